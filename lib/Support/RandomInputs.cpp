// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/RandomInputs.h"
#include "refold/Support/Error.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include <cmath>
#include <numbers>

namespace refold {

namespace {

/// SplitMix64: small, of known quality, and the same on every machine.
class Generator {
public:
  explicit Generator(uint64_t seed) : state(seed) {}
  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  /// In [0, 1).
  double uniform() {
    return std::ldexp(static_cast<double>(next() >> 11), -53);
  }
  double normal() {
    double radius = std::sqrt(-2.0 * std::log1p(-uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

private:
  uint64_t state;
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
                  "growing or uniform(low,high)");
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

void fillRandom(Tensor &tensor, const InputRecipe &recipe, uint64_t seed,
                llvm::StringRef name) {
  Generator generator(Generator(seed).next() ^ hashOf(name));
  int64_t count = tensor.numElements();
  int64_t rowLength = tensor.rank() ? tensor.shape().back() : 1;
  double level = generator.normal();
  int64_t nanColumn = 0;
  for (int64_t i = 0; i < count; ++i) {
    int64_t row = i / rowLength, column = i % rowLength;
    bool isMarkedRow = row % 3 == 2;
    if (column == 0)
      nanColumn = static_cast<int64_t>(generator.next() %
                                       static_cast<uint64_t>(rowLength));
    if (tensor.dtype() == DType::Bool) {
      tensor.set(i, recipe.family == InputFamily::Const ||
                        generator.uniform() < 0.5);
      continue;
    }
    if (!isFloat(tensor.dtype())) {
      tensor.set(i, recipe.family == InputFamily::Const
                        ? 3.0
                        : integerSample(recipe, generator));
      continue;
    }
    double value = generator.normal();
    switch (recipe.family) {
    case InputFamily::Normal:
      break;
    case InputFamily::NegInf:
      value = isMarkedRow || generator.uniform() < 0.25 ? -INFINITY : value;
      break;
    case InputFamily::NaN:
      value = isMarkedRow && column == nanColumn ? NAN : value;
      break;
    case InputFamily::Offset:
      value += 1000.0;
      break;
    case InputFamily::Const:
      value = level;
      break;
    case InputFamily::Growing:
      value = 0.1 * static_cast<double>(column) + 0.01 * value;
      break;
    case InputFamily::Uniform:
      value = recipe.low + (recipe.high - recipe.low) * generator.uniform();
      break;
    }
    tensor.set(i, value);
  }
}

} // namespace refold
