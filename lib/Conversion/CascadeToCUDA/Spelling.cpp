// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Types, constants and scalar operations as C++ that host and device compile.
#include "RowKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace refold;

std::string cuda::valueType(Type type) {
  if (type.isF32())
    return "float";
  if (type.isF16())
    return "f16";
  if (type.isBF16())
    return "bf16";
  if (type.isFloat8E4M3FN())
    return "f8e4m3";
  if (type.isFloat8E5M2())
    return "f8e5m2";
  if (type.isInteger(1))
    return "bool";
  if (type.isIndex())
    return "int64_t";
  for (unsigned bits : {8, 16, 32, 64})
    if (type.isInteger(bits))
      return "int" + std::to_string(bits) + "_t";
  return "";
}

std::string cuda::wrappingType(Type type) {
  bool isLong = type.isIndex() || type.getIntOrFloatBitWidth() == 64;
  return isLong ? "uint64_t" : "uint32_t"; // shorter ones are promoted to int
}

std::string cuda::storedType(Type type) {
  return type.isInteger(1) ? "int8_t" : valueType(type);
}

std::string cuda::literal(TypedAttr value) {
  Type type = value.getType();
  if (auto number = dyn_cast<IntegerAttr>(value)) {
    if (type.isInteger(1))
      return number.getValue().isZero() ? "false" : "true";
    if (number.getValue().isMinSignedValue()) {
      // Its digits alone are a number of the next longer type.
      std::string above = std::to_string(number.getValue().getSExtValue() + 1);
      return valueType(type) + "(" + above + " - 1)";
    }
    std::string text = std::to_string(number.getValue().getSExtValue());
    return type.isInteger(32) ? text : valueType(type) + "(" + text + ")";
  }
  const APFloat &number = cast<FloatAttr>(value).getValue();
  if (!type.isF32())
    return llvm::formatv("{0}{{uint{1}_t({2}u)}", valueType(type),
                         type.getIntOrFloatBitWidth(),
                         number.bitcastToAPInt().getZExtValue());
  if (number.isNaN())
    return "not_a_number()";
  if (number.isInfinity())
    return number.isNegative() ? "-infinity()" : "infinity()";
  char text[40];
  snprintf(text, sizeof text, "%.9g", number.convertToDouble());
  bool isWhole = StringRef(text).find_first_of(".e") == StringRef::npos;
  return std::string(text) + (isWhole ? ".0f" : "f");
}

static std::string comparison(StringRef symbol) {
  return ("($0 " + symbol + " $1)").str();
}

static std::string floatComparison(arith::CmpFPredicate predicate) {
  using P = arith::CmpFPredicate;
  switch (predicate) {
  case P::OEQ:
    return comparison("==");
  case P::OGT:
    return comparison(">");
  case P::OGE:
    return comparison(">=");
  case P::OLT:
    return comparison("<");
  case P::OLE:
    return comparison("<=");
  case P::ONE:
    return "($0 < $1 || $0 > $1)";
  case P::ORD:
    return "($0 == $0 && $1 == $1)";
  case P::UEQ:
    return "!($0 < $1 || $0 > $1)";
  case P::UGT:
    return "!($0 <= $1)";
  case P::UGE:
    return "!($0 < $1)";
  case P::ULT:
    return "!($0 >= $1)";
  case P::ULE:
    return "!($0 > $1)";
  case P::UNE:
    return comparison("!=");
  case P::UNO:
    return "($0 != $0 || $1 != $1)";
  case P::AlwaysTrue:
    return "true";
  case P::AlwaysFalse:
    return "false";
  }
  return "";
}

static std::string integerComparison(arith::CmpIPredicate predicate) {
  using P = arith::CmpIPredicate;
  auto ofUnsigned = [](StringRef symbol) {
    return ("(uint64_t($0) " + symbol + " uint64_t($1))").str();
  };
  switch (predicate) {
  case P::eq:
    return comparison("==");
  case P::ne:
    return comparison("!=");
  case P::slt:
    return comparison("<");
  case P::sle:
    return comparison("<=");
  case P::sgt:
    return comparison(">");
  case P::sge:
    return comparison(">=");
  case P::ult:
    return ofUnsigned("<");
  case P::ule:
    return ofUnsigned("<=");
  case P::ugt:
    return ofUnsigned(">");
  case P::uge:
    return ofUnsigned(">=");
  }
  return "";
}

/// Of f32 values: storage types only pass through casts.
static StringRef floatTemplate(StringRef op) {
  return llvm::StringSwitch<StringRef>(op)
      .Case("arith.addf", "($0 + $1)")
      .Case("arith.subf", "($0 - $1)")
      .Case("arith.mulf", "($0 * $1)")
      .Case("arith.divf", "divide($0, $1)")
      .Case("arith.negf", "(-$0)")
      .Case("arith.remf", "fmodf($0, $1)")
      .Case("arith.maxnumf", "fmaxf($0, $1)")
      .Case("arith.minnumf", "fminf($0, $1)")
      .Case("arith.maximumf", "max_nan($0, $1)")
      .Case("arith.minimumf", "min_nan($0, $1)")
      .Case("math.absf", "fabsf($0)")
      .Case("math.exp", "expf($0)")
      .Case("math.exp2", "exp2f($0)")
      .Case("math.expm1", "expm1f($0)")
      .Case("math.log", "logf($0)")
      .Case("math.log1p", "log1pf($0)")
      .Case("math.log2", "log2f($0)")
      .Case("math.sqrt", "square_root($0)")
      .Case("math.rsqrt", "divide(1.0f, square_root($0))")
      .Case("math.tanh", "tanhf($0)")
      .Case("math.erf", "erff($0)")
      .Case("math.sin", "sinf($0)")
      .Case("math.cos", "cosf($0)")
      .Case("math.floor", "floorf($0)")
      .Case("math.ceil", "ceilf($0)")
      .Case("math.roundeven", "rintf($0)")
      .Case("math.powf", "powf($0, $1)")
      .Default("");
}

static StringRef integerTemplate(StringRef op, bool isBit) {
  if (isBit)
    return llvm::StringSwitch<StringRef>(op)
        .Case("arith.andi", "($0 && $1)")
        .Case("arith.ori", "($0 || $1)")
        .Case("arith.xori", "($0 != $1)")
        .Default("");
  return llvm::StringSwitch<StringRef>(op)
      .Case("arith.addi", "$t($w($0) + $w($1))") // signed must not wrap in C++
      .Case("arith.subi", "$t($w($0) - $w($1))")
      .Case("arith.muli", "$t($w($0) * $w($1))")
      .Case("arith.divsi", "$t($0 / $1)")
      .Case("arith.remsi", "$t($0 % $1)")
      .Case("arith.andi", "$t($0 & $1)")
      .Case("arith.ori", "$t($0 | $1)")
      .Case("arith.xori", "$t($0 ^ $1)")
      .Case("arith.maxsi", "($0 > $1 ? $0 : $1)")
      .Case("arith.minsi", "($0 < $1 ? $0 : $1)")
      .Cases("arith.extsi", "arith.trunci", "arith.index_cast", "arith.fptosi",
             "$t($0)")
      .Cases("arith.extui", "arith.index_castui", "$t($u($0))")
      .Default("");
}

static std::string castTemplate(Operation *op, Type from, Type to) {
  StringRef name = op->getName().getStringRef();
  if (name == "arith.extf" && to.isF32())
    return "to_float($0)";
  if (name == "arith.truncf" && from.isF32())
    return "narrow<" + cuda::valueType(to) + ">($0)";
  if (name == "arith.sitofp" && to.isF32())
    return from.isInteger(1) ? "($0 ? -1.0f : 0.0f)" : "float($0)";
  if (name == "arith.uitofp" && to.isF32())
    return "float($u($0))";
  return "";
}

static void replaceAll(std::string &text, StringRef from, StringRef to) {
  for (size_t at = 0; (at = text.find(from.str(), at)) != std::string::npos;
       at += to.size())
    text.replace(at, from.size(), to.str());
}

std::string cuda::templateOf(Operation *op, bool isFast) {
  if (auto compare = dyn_cast<arith::CmpFOp>(op))
    return compare.getLhs().getType().isF32()
               ? floatComparison(compare.getPredicate())
               : "";
  if (auto compare = dyn_cast<arith::CmpIOp>(op))
    return integerComparison(compare.getPredicate());
  if (isa<arith::SelectOp>(op))
    return "($0 ? $1 : $2)";
  StringRef name = op->getName().getStringRef();
  Type from = op->getOperand(0).getType(), to = op->getResult(0).getType();
  std::string text = castTemplate(op, from, to);
  if (text.empty() && to.isF32() && from.isF32())
    text = isFast && name == "math.exp" ? "exp_fast($0)"
                                        : floatTemplate(name).str();
  if (text.empty() && to.isIntOrIndex())
    text = integerTemplate(name, to.isInteger(1)).str();
  replaceAll(text, "$t", valueType(to));
  if (to.isIntOrIndex())
    replaceAll(text, "$w", wrappingType(to));
  if (from.isIntOrIndex())
    replaceAll(text, "$u", from.isInteger(1) ? "bool" : "u" + valueType(from));
  return text;
}
