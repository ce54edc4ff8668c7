// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A case as text, and its operands as arrays.
#include "CascadeSuite.h"

#include <cmath>
#include <random>

using namespace refold;

static const char *mlirName(DType dtype) {
  switch (dtype) {
  case DType::F64:
    return "f64";
  case DType::F16:
    return "f16";
  case DType::BF16:
    return "bf16";
  case DType::F8E4M3:
    return "f8E4M3FN";
  case DType::I64:
    return "i64";
  case DType::I32:
    return "i32";
  case DType::I8:
  case DType::U8:
    return "i8";
  case DType::Bool:
    return "i1";
  default:
    return "f32";
  }
}

static std::string memrefType(const SuiteOperand &o, bool isDynamic,
                              bool isStrided) {
  std::string text = "memref<", strides;
  for (size_t i = 0; i < o.shape.size(); ++i) {
    text += (isDynamic ? "?" : std::to_string(o.shape[i])) + "x";
    strides += i ? ", ?" : "?";
  }
  text += mlirName(o.dtype);
  if (isStrided && !o.shape.empty())
    text += ", strided<[" + strides + "], offset: ?>";
  return text + ">";
}

bool SuiteCase::hasNests() const {
  for (const SuiteIndex &i : indices)
    if (i.role == "inner" || i.role == "carried")
      return true;
  return false;
}

std::string SuiteCase::text(bool isDynamic, const std::string &schedule,
                            bool isStrided, bool areVarying) const {
  std::string arguments, parts[2], header;
  for (int isOut = 0; isOut < 2; ++isOut)
    for (const SuiteOperand &o : isOut ? outputs : inputs) {
      std::string type = memrefType(o, isDynamic, isStrided);
      arguments +=
          (arguments.empty() ? "" : ", ") + ("%A" + o.name) + ": " + type;
      parts[isOut] += (parts[isOut].empty() ? "" : ", ") + ("%" + o.name) +
                      " = %A" + o.name + " : " + type;
    }
  for (const char *role : {"rows", "stream", "inner", "carried"}) {
    std::string list;
    for (const SuiteIndex &i : indices)
      if (i.role == role)
        list += (list.empty() ? "%" : ", %") + i.name + " = " +
                (isDynamic ? "?" : std::to_string(i.extent));
    if (!list.empty())
      header += std::string(" ") + role + "(" + list + ")";
  }
  std::string text =
      "func.func @kernel(" + arguments + ") {\n  refold.cascade" + header;
  if (!inputs.empty())
    text += "\n    ins(" + parts[0] + ")";
  text += "\n    outs(" + parts[1] + ")";
  if (!schedule.empty())
    text += "\n    schedule {" + schedule + "}";
  if (areVarying && !inputs.empty()) {
    text += "\n    attributes {refold.varying = array<i1: true";
    for (size_t i = 1; i < inputs.size(); ++i)
      text += ", true";
    text += ">}";
  }
  static const char *constants =
      " {\n%zero = arith.constant 0.0 : f32\n%one = arith.constant 1.0 : f32\n"
      "%two = arith.constant 2.0 : f32\n%ninf = arith.constant 0xFF800000 : "
      "f32\n%lowest = arith.constant -3.4028235e38 : f32\n%eps = "
      "arith.constant "
      "1.0e-5 : f32\n%c30 = arith.constant 30.0 : f32\n%c127 = arith.constant "
      "127.0 : f32\n";
  return text + constants + body + "}\nreturn\n}\n";
}

/// Rows in turn: plain, all -inf, one NaN, one +inf, one -inf, large, all NaN.
static double specialValue(double x, int64_t at,
                           const std::vector<int64_t> &shape) {
  int64_t length = shape.empty() ? 1 : shape.back();
  int64_t row = at / length, place = at % length;
  bool isChosen = place == (row * 5 + 3) % length;
  switch (row % 7) {
  case 1:
    return -INFINITY;
  case 2:
    return isChosen ? NAN : x;
  case 3:
    return isChosen ? INFINITY : x;
  case 4:
    return isChosen ? -INFINITY : x;
  case 5:
    return 1e4 * x;
  case 6:
    return NAN;
  default:
    return x;
  }
}

Tensor refold::makeOperand(const SuiteOperand &o, uint64_t seed,
                           bool isStrided) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  Tensor tensor;
  if (isStrided) {
    std::vector<int64_t> frame, strides;
    for (int64_t n : o.shape)
      frame.push_back(2 * n + 1);
    Tensor whole = llvm::cantFail(Tensor::create(o.dtype, frame));
    for (int64_t s : whole.strides())
      strides.push_back(2 * s);
    auto owner = std::make_shared<Tensor>(whole);
    tensor = Tensor::share(o.dtype, o.shape, strides, whole.data(), owner);
  } else {
    tensor = llvm::cantFail(Tensor::create(o.dtype, o.shape));
  }
  for (int64_t i = 0; i < tensor.numElements(); ++i) {
    double x = o.scale * normal(random);
    switch (o.fill) {
    case SuiteOperand::Normal:
      break;
    case SuiteOperand::Round:
      x = std::round(x);
      break;
    case SuiteOperand::Labels:
      x = double(random() % uint64_t(std::max<int64_t>(o.limit, 1)));
      break;
    case SuiteOperand::Bits:
      x = double(random() & 1);
      break;
    case SuiteOperand::Positive:
      x = std::abs(x);
      break;
    case SuiteOperand::Special:
      x = specialValue(x, i, o.shape);
      break;
    }
    tensor.set(i, x);
  }
  return tensor;
}
