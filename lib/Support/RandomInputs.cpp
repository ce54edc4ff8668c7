// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/RandomInputs.h"
#include "refold/Support/Error.h"
#include "refold/Support/SplitMix64.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

namespace refold {

namespace {

class Generator {
public:
  explicit Generator(uint64_t seed) : state(seed) {}
  uint64_t next() {
    uint64_t draw = splitMix64(state);
    state += kSplitMix64Step;
    return draw;
  }
  /// In [0, 1).
  double uniform() {
    return std::ldexp(static_cast<double>(next() >> 11), -53);
  }
  /// By Box and Muller, who give two at a time.
  double normal() {
    if (spare)
      return *std::exchange(spare, std::nullopt);
    double radius = std::sqrt(-2.0 * std::log1p(-uniform()));
    double angle = 2.0 * std::numbers::pi * uniform();
    spare = radius * std::sin(angle);
    return radius * std::cos(angle);
  }

private:
  uint64_t state;
  std::optional<double> spare;
};

/// FNV-1a: two arguments of one call must not get the same values.
uint64_t hashOf(llvm::StringRef text) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (unsigned char c : text)
    hash = (hash ^ c) * 0x100000001b3ull;
  return hash;
}

double integerSample(const InputRecipe &recipe, Generator &generator) {
  if (recipe.family == InputFamily::Uniform)
    return std::floor(recipe.low +
                      (recipe.high - recipe.low) * generator.uniform());
  return std::nearbyint(8.0 * generator.normal());
}

constexpr std::pair<InputFamily, const char *> kFamilies[] = {
    {InputFamily::Normal, "normal"}, {InputFamily::NegInf, "ninf"},
    {InputFamily::NaN, "nan"},       {InputFamily::Offset, "offset"},
    {InputFamily::Const, "const"},   {InputFamily::Growing, "growing"},
    {InputFamily::Tiny, "tiny"},     {InputFamily::Huge, "huge"},
    {InputFamily::Mixed, "mixed"},
};

} // namespace

llvm::Expected<InputRecipe> parseInputRecipe(llvm::StringRef text) {
  for (auto [family, name] : kFamilies)
    if (text == name)
      return InputRecipe{family, 0.0, 0.0};
  llvm::StringRef range = text;
  if (range.consume_front("uniform(") && range.consume_back(")")) {
    auto [low, high] = range.split(',');
    InputRecipe recipe{InputFamily::Uniform, 0.0, 0.0};
    bool isBad = low.trim().getAsDouble(recipe.low) ||
                 high.trim().getAsDouble(recipe.high);
    if (!isBad && std::isfinite(recipe.low) && std::isfinite(recipe.high) &&
        recipe.low < recipe.high)
      return recipe;
    return fail(ExitCode::Usage,
                "found '" + text +
                    "', expected uniform(low,high) with low < high");
  }
  return fail(ExitCode::Usage,
              "found '" + text +
                  "', expected normal, ninf, nan, offset, const, "
                  "growing, tiny, huge, mixed or uniform(low,high)");
}

std::string describe(const InputRecipe &recipe) {
  for (auto [family, name] : kFamilies)
    if (recipe.family == family)
      return name;
  std::string text;
  llvm::raw_string_ostream(text)
      << "uniform(" << llvm::format("%.6g", recipe.low) << ","
      << llvm::format("%.6g", recipe.high) << ")";
  return text;
}

/// The power of two whose square leaves the range of the type: f32 2^-146 and
/// 2^134, where a square has some of its digits, or is infinite.
static int scaleOf(DType dtype, bool isHuge) {
  switch (dtype) {
  case DType::F64:
    return isHuge ? 532 : -548;
  case DType::F16:
    return isHuge ? 9 : -14;
  case DType::F8E4M3:
    return isHuge ? 5 : -6;
  case DType::F8E5M2:
    return isHuge ? 9 : -14;
  default:
    return isHuge ? 67 : -73;
  }
}

/// A power of two between those of Tiny and Huge.
static int mixedScale(DType dtype, Generator &generator) {
  int least = scaleOf(dtype, false), most = scaleOf(dtype, true);
  return least + static_cast<int>(generator.uniform() * (most - least + 1));
}

/// One float at a column of a row; `level` is the one value of Const, `scale`
/// the row's power of two of Mixed.
static double floatSample(const InputRecipe &recipe, int64_t column,
                          bool isMarkedRow, bool isMarkedColumn, double level,
                          int scale, DType dtype, Generator &generator) {
  double value = generator.normal();
  switch (recipe.family) {
  case InputFamily::Normal:
    return value;
  case InputFamily::NegInf:
    return isMarkedRow || generator.uniform() < 0.25 ? -INFINITY : value;
  case InputFamily::NaN:
    return isMarkedRow && isMarkedColumn ? NAN : value;
  case InputFamily::Offset:
    return value + 1000.0;
  case InputFamily::Const:
    return level;
  case InputFamily::Growing:
    return 0.1 * static_cast<double>(column) + 0.01 * value;
  case InputFamily::Tiny:
  case InputFamily::Huge:
    return std::ldexp(value,
                      scaleOf(dtype, recipe.family == InputFamily::Huge));
  case InputFamily::Mixed:
    return std::ldexp(value, generator.uniform() < 0.25
                                 ? mixedScale(dtype, generator)
                                 : scale);
  case InputFamily::Uniform:
    return recipe.low + (recipe.high - recipe.low) * generator.uniform();
  }
  return value;
}

void fillRandom(Tensor &tensor, const InputRecipe &recipe, uint64_t seed,
                llvm::StringRef name) {
  Generator generator(Generator(seed).next() ^ hashOf(name));
  int64_t count = tensor.numElements();
  int64_t rowLength = tensor.rank() ? tensor.shape().back() : 1;
  double level = generator.normal();
  bool isConst = recipe.family == InputFamily::Const;
  // Finding an element behind strides costs more than making it.
  char *dense =
      tensor.isRowMajor() ? static_cast<char *>(tensor.data()) : nullptr;
  auto set = [&](int64_t i, double value) {
    storeFromDouble(tensor.dtype(), value,
                    dense ? dense + i * byteWidth(tensor.dtype())
                          : tensor.at(i));
  };
  int64_t nanColumn = 0;
  int scale = 0;
  for (int64_t i = 0, row = 0, column = 0; i < count; ++i) {
    if (column == 0)
      nanColumn = static_cast<int64_t>(generator.next() %
                                       static_cast<uint64_t>(rowLength));
    if (column == 0 && recipe.family == InputFamily::Mixed)
      scale = mixedScale(tensor.dtype(), generator);
    if (tensor.dtype() == DType::Bool)
      set(i, isConst || generator.uniform() < 0.5);
    else if (!isFloat(tensor.dtype()))
      set(i, isConst ? 3.0 : integerSample(recipe, generator));
    else
      set(i, floatSample(recipe, column, row % 3 == 2, column == nanColumn,
                         level, scale, tensor.dtype(), generator));
    if (++column == rowLength) {
      column = 0;
      ++row;
    }
  }
}

} // namespace refold
