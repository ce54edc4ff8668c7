// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CxxSpelling.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

// Standard C++ has no such type.
static constexpr StringLiteral kBrainFloat = R"(#ifndef REFOLD_BF16
#define REFOLD_BF16
struct bf16 {
  uint16_t bits;
  bf16() = default;
  explicit bf16(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    bits = x != x ? 0x7fc0 : uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
  }
  explicit operator float() const {
    return std::bit_cast<float>(uint32_t(bits) << 16);
  }
};

inline int32_t refold_pair(bf16 low, bf16 high) {
  return int32_t(low.bits | uint32_t(high.bits) << 16);
}

inline float refold_add_pairs(int32_t x, int32_t y, float sum) {
  auto upper = [](uint32_t u) { return std::bit_cast<float>(u & 0xffff0000); };
  auto lower = [](uint32_t u) { return std::bit_cast<float>(u << 16); };
  return (sum + upper(x) * upper(y)) + lower(x) * lower(y);
}
#endif

)";

CxxSpelling::CxxSpelling(func::FuncOp kernel) : Spelling(1), kernel(kernel) {
  text = "#include <algorithm>\n#include <bit>\n#include <cmath>\n"
         "#include <cstdint>\n#include <type_traits>\n\n";
  text += kBrainFloat;
  for (Type type : kernel.getArgumentTypes())
    if (auto memref = dyn_cast<MemRefType>(type))
      if (isa<FloatType>(memref.getElementType()) &&
          memref.getElementTypeBitWidth() < 16)
        unknown = "f8 storage";
}

static std::string typeName(Type type) {
  if (type.isF64())
    return "double";
  if (type.isF32())
    return "float";
  if (type.isF16())
    return "_Float16";
  if (type.isBF16())
    return "bf16";
  if (type.isInteger(1))
    return "bool";
  if (type.isIndex())
    return "int32_t";
  return "int" + std::to_string(type.getIntOrFloatBitWidth()) + "_t";
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

Val CxxSpelling::named(const std::string &name, bool isWide) {
  names.push_back(name);
  return {&names.back(), isWide};
}

std::string CxxSpelling::nameOf(const void *token) {
  return *static_cast<const std::string *>(token);
}

void CxxSpelling::line(const std::string &statement) {
  text += std::string(2 * depth, ' ') + statement + "\n";
}

Val CxxSpelling::define(const std::string &expression, bool isWide) {
  std::string name = "v" + std::to_string(++numValues);
  line("const auto " + name + " = " + expression + ";");
  return named(name, isWide);
}

std::string CxxSpelling::show(Ix x) {
  if (x.isConstant())
    return std::to_string(x.constant);
  if (!x.constant)
    return nameOf(x.value);
  return "(" + nameOf(x.value) + " + " + std::to_string(x.constant) + ")";
}

//===----------------------------------------------------------------------===//
// Functions and operands
//===----------------------------------------------------------------------===//

void CxxSpelling::beginFunction(const std::string &name, bool isPhase) {
  line("extern \"C\" void " + name +
       "(const int64_t *words, int64_t *results) {");
  ++depth;
  unsigned at = 0;
  auto word = [&](unsigned k) { return "words[" + std::to_string(k) + "]"; };
  for (auto [i, type] : llvm::enumerate(kernel.getArgumentTypes())) {
    std::string a = "a" + std::to_string(i);
    auto memref = dyn_cast<MemRefType>(type);
    if (!memref) {
      line("const auto " + a + " = *reinterpret_cast<const " + typeName(type) +
           " *>(&" + word(at++) + ");");
      continue;
    }
    std::string t = typeName(memref.getElementType());
    line(t + " *const " + a + " = reinterpret_cast<" + t + " *>(" +
         word(at + 1) + ") + " + word(at + 2) + ";");
    int64_t rank = memref.getRank();
    for (int64_t d = 0; d < rank; ++d) {
      std::string k = std::to_string(d);
      line("const int64_t " + a + "_size" + k + " = " + word(at + 3 + d) +
           ", " + a + "_stride" + k + " = " + word(at + 3 + rank + d) + ";");
    }
    at += 3 + 2 * rank;
  }
  if (!isPhase)
    return;
  line("char *const shared = reinterpret_cast<char *>(" + word(at + 1) + ");");
  line("char *const own = reinterpret_cast<char *>(" + word(at + 6) + ");");
  line("const int64_t item_begin = " + word(at + 10) +
       ", item_end = " + word(at + 11) + ";");
}

void CxxSpelling::beginShape(unsigned) {
  beginFunction(kernel.getName().str() + "_shape", false);
}

void CxxSpelling::endShape(ArrayRef<Ix> results) {
  for (auto [i, x] : llvm::enumerate(results))
    line("results[" + std::to_string(i) + "] = " + show(x) + ";");
  --depth;
  line("}\n");
}

void CxxSpelling::beginPhase(unsigned number) {
  beginFunction(kernel.getName().str() + "_phase" + std::to_string(number),
                true);
}

void CxxSpelling::endPhase() {
  --depth;
  line("}\n");
}

Buffer CxxSpelling::workspace(bool isShared, Ix byte, Type element, Ix) {
  Val v = define("reinterpret_cast<" + typeName(element) + " *>(" +
                 (isShared ? "shared + " : "own + ") + show(byte) + ")");
  return {v.token, element, Ix(0)};
}

Buffer CxxSpelling::operand(unsigned number) {
  auto type = cast<MemRefType>(kernel.getArgumentTypes()[number]);
  return {named("a" + std::to_string(number)).token, type.getElementType(),
          Ix(0)};
}

Val CxxSpelling::scalarOperand(unsigned number) {
  return named("a" + std::to_string(number));
}

Ix CxxSpelling::size(unsigned operand, unsigned dim) {
  auto type = cast<MemRefType>(kernel.getArgumentTypes()[operand]);
  if (!type.isDynamicDim(dim))
    return type.getDimSize(dim);
  return Ix(
      named("a" + std::to_string(operand) + "_size" + std::to_string(dim)));
}

Ix CxxSpelling::stride(unsigned operand, unsigned dim) {
  return Ix(
      named("a" + std::to_string(operand) + "_stride" + std::to_string(dim)));
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

Val CxxSpelling::constant(TypedAttr value) {
  Type type = value.getType();
  if (auto f = dyn_cast<FloatAttr>(value)) {
    uint64_t bits = f.getValue().bitcastToAPInt().getZExtValue();
    std::string unsignedType =
        "uint" + std::to_string(type.getIntOrFloatBitWidth()) + "_t";
    return define("std::bit_cast<" + typeName(type) + ">(" + unsignedType +
                  "(" + std::to_string(bits) + "u))");
  }
  auto i = cast<IntegerAttr>(value);
  if (type.isInteger(1))
    return define(i.getValue().getBoolValue() ? "true" : "false");
  return define(typeName(type) + "(" +
                std::to_string(i.getValue().getSExtValue()) + "ll)");
}

/// An expression with $0, $1, $2 for operands and $t for the result's type.
static StringRef templateOf(StringRef op) {
  return llvm::StringSwitch<StringRef>(op)
      .Cases("arith.addf", "arith.addi", "$t($0 + $1)")
      .Cases("arith.subf", "arith.subi", "$t($0 - $1)")
      .Cases("arith.mulf", "arith.muli", "$t($0 * $1)")
      .Cases("arith.divf", "arith.divsi", "$t($0 / $1)")
      .Case("arith.remsi", "$t($0 % $1)")
      .Case("arith.remf", "std::fmod($0, $1)")
      .Case("arith.negf", "$t(-$0)")
      .Case("arith.andi", "$t($0 & $1)")
      .Case("arith.ori", "$t($0 | $1)")
      .Case("arith.xori", "$t($0 ^ $1)")
      .Case("arith.maxsi", "std::max($0, $1)")
      .Case("arith.minsi", "std::min($0, $1)")
      .Case("arith.select", "($0 ? $1 : $2)")
      .Case("arith.maxnumf", "std::fmax($0, $1)")
      .Case("arith.minnumf", "std::fmin($0, $1)")
      .Case("arith.maximumf", "($0 != $0 || $0 > $1 ? $0 : $1)")
      .Case("arith.minimumf", "($0 != $0 || $0 < $1 ? $0 : $1)")
      .Cases("arith.extf", "arith.truncf", "arith.sitofp", "arith.fptosi",
             "arith.extsi", "arith.trunci", "$t($0)")
      .Cases("arith.extui", "arith.uitofp", "$t($s($0))")
      .Case("math.absf", "std::fabs($0)")
      .Case("math.exp2", "std::exp2($0)")
      .Case("math.rsqrt", "$t(1 / std::sqrt($0))")
      .Case("math.powf", "std::pow($0, $1)")
      .Case("math.roundeven", "std::nearbyint($0)")
      .Cases("math.exp", "math.expm1", "math.log", "math.log1p", "math.log2",
             "math.sqrt", "math.tanh", "math.erf", "std::$f($0)")
      .Cases("math.sin", "math.cos", "math.floor", "math.ceil", "std::$f($0)")
      .Default("");
}

static StringRef comparisonOf(Operation *op) {
  using F = arith::CmpFPredicate;
  using I = arith::CmpIPredicate;
  if (auto compare = dyn_cast<arith::CmpFOp>(op)) {
    switch (compare.getPredicate()) {
    case F::OEQ:
      return "($0 == $1)";
    case F::OGT:
      return "($0 > $1)";
    case F::OGE:
      return "($0 >= $1)";
    case F::OLT:
      return "($0 < $1)";
    case F::OLE:
      return "($0 <= $1)";
    case F::UNE:
      return "($0 != $1)";
    case F::UNO:
      return "($0 != $0 || $1 != $1)";
    case F::ORD:
      return "($0 == $0 && $1 == $1)";
    default:
      return "";
    }
  }
  auto compare = dyn_cast<arith::CmpIOp>(op);
  if (!compare)
    return "";
  switch (compare.getPredicate()) {
  case I::eq:
    return "($0 == $1)";
  case I::ne:
    return "($0 != $1)";
  case I::slt:
    return "($0 < $1)";
  case I::sle:
    return "($0 <= $1)";
  case I::sgt:
    return "($0 > $1)";
  case I::sge:
    return "($0 >= $1)";
  case I::ult:
    return "(uint64_t($0) < uint64_t($1))";
  case I::ule:
    return "(uint64_t($0) <= uint64_t($1))";
  case I::ugt:
    return "(uint64_t($0) > uint64_t($1))";
  case I::uge:
    return "(uint64_t($0) >= uint64_t($1))";
  }
  return "";
}

static void replaceAll(std::string &text, StringRef from,
                       const std::string &to) {
  for (size_t at = 0; (at = text.find(from.str(), at)) != std::string::npos;
       at += to.size())
    text.replace(at, from.size(), to);
}

Val CxxSpelling::elementwise(Operation *op, ArrayRef<Val> in, Type element) {
  StringRef name = op->getName().getStringRef();
  std::string expression = templateOf(name).str();
  if (expression.empty())
    expression = comparisonOf(op).str();
  if (expression.empty()) {
    unknown = name.str();
    expression = "$t(0)";
  }
  replaceAll(expression, "$t", typeName(element));
  if (op->getNumOperands()) {
    std::string source = typeName(op->getOperand(0).getType());
    replaceAll(expression, "$s", source == "bool" ? source : "u" + source);
  }
  replaceAll(expression, "$f", name.drop_front(name.find('.') + 1).str());
  for (auto [i, v] : llvm::enumerate(in))
    replaceAll(expression, "$" + std::to_string(i), nameOf(v));
  return define(expression, !in.empty() && in[0].wide);
}

Val CxxSpelling::binary(Binary kind, Val x, Val y) {
  std::string a = nameOf(x), b = nameOf(y), e;
  switch (kind) {
  case Binary::AddF:
  case Binary::AddI:
    e = "decltype(" + a + ")(" + a + " + " + b + ")";
    break;
  case Binary::MulF:
  case Binary::MulI:
    e = "decltype(" + a + ")(" + a + " * " + b + ")";
    break;
  case Binary::MaxF:
  case Binary::MaxSI:
    e = "(" + a + " > " + b + " ? " + a + " : " + b + ")";
    break;
  case Binary::MinF:
  case Binary::MinSI:
    e = "(" + a + " < " + b + " ? " + a + " : " + b + ")";
    break;
  case Binary::MaximumF:
  case Binary::MaxMagnitude:
    e = "(" + a + " != " + a + " || " + a + " > " + b + " ? " + a + " : " + b +
        ")";
    break;
  case Binary::MinimumF:
    e = "(" + a + " != " + a + " || " + a + " < " + b + " ? " + a + " : " + b +
        ")";
    break;
  case Binary::MaxNumF:
    e = "std::fmax(" + a + ", " + b + ")";
    break;
  case Binary::MinNumF:
    e = "std::fmin(" + a + ", " + b + ")";
    break;
  case Binary::AndI:
    e = "decltype(" + a + ")(" + a + " & " + b + ")";
    break;
  case Binary::OrI:
    e = "decltype(" + a + ")(" + a + " | " + b + ")";
    break;
  }
  return define(e, x.wide);
}

Val CxxSpelling::fma(Val x, Val y, Val z) {
  return define(nameOf(x) + " * " + nameOf(y) + " + " + nameOf(z), x.wide);
}

Val CxxSpelling::exp2(Val x, Exp2Form) {
  return define("std::exp2(" + nameOf(x) + ")", x.wide);
}

Val CxxSpelling::compare(Compare kind, Val x, Val y) {
  std::string a = nameOf(x), b = nameOf(y), e;
  switch (kind) {
  case Compare::OGT:
  case Compare::SGT:
    e = a + " > " + b;
    break;
  case Compare::OLT:
  case Compare::SLT:
    e = a + " < " + b;
    break;
  case Compare::UGT:
    e = "!(" + a + " <= " + b + ")";
    break;
  case Compare::ULT:
    e = "!(" + a + " >= " + b + ")";
    break;
  case Compare::UGE:
    e = "!(" + a + " < " + b + ")";
    break;
  case Compare::ULE:
    e = "!(" + a + " > " + b + ")";
    break;
  case Compare::SGE:
    e = a + " >= " + b;
    break;
  case Compare::SLE:
    e = a + " <= " + b;
    break;
  case Compare::ORD:
    e = a + " == " + a + " && " + b + " == " + b;
    break;
  }
  return define("bool(" + e + ")", x.wide);
}

Val CxxSpelling::select(Val condition, Val x, Val y) {
  return define(nameOf(condition) + " ? " + nameOf(x) + " : " + nameOf(y),
                x.wide);
}

Val CxxSpelling::toFloat(Val x, Type to) {
  return define(typeName(to) + "(" + nameOf(x) + ")");
}

Val CxxSpelling::integerCast(Val x, Type, Type to) {
  return define(typeName(to) + "(" + nameOf(x) + ")", x.wide);
}

//===----------------------------------------------------------------------===//
// Indices
//===----------------------------------------------------------------------===//

Val CxxSpelling::firstLane(Val wide) {
  return define("int32_t(" + nameOf(wide) + " ? 0 : 1)");
}

Val CxxSpelling::countLanes(Val mask) {
  return define("int32_t(" + nameOf(mask) + ")");
}

Val CxxSpelling::iota(Ix first) {
  return define("int32_t(" + show(first) + ")", true);
}

Val CxxSpelling::mask(Ix count) {
  return define("bool(" + show(count) + " > 0)", true);
}

static std::string indexExpression(IndexOp op, const std::string &x,
                                   const std::string &y) {
  switch (op) {
  case IndexOp::Add:
    return x + " + " + y;
  case IndexOp::Sub:
    return x + " - " + y;
  case IndexOp::Mul:
    return x + " * " + y;
  case IndexOp::Div:
    return x + " / " + y;
  case IndexOp::Rem:
    return x + " % " + y;
  case IndexOp::Min:
    return "std::min(" + x + ", " + y + ")";
  case IndexOp::Max:
    return "std::max(" + x + ", " + y + ")";
  }
  return "";
}

Val CxxSpelling::indexOp(IndexOp op, Val x, Val y) {
  return define(indexExpression(op, nameOf(x), nameOf(y)));
}

Val CxxSpelling::wideIndexOp(IndexOp op, Val x, Val y) {
  return define(indexExpression(op, nameOf(x), nameOf(y)), true);
}

Val CxxSpelling::indexConstant(int64_t value) {
  return define("int64_t(" + std::to_string(value) + ")");
}

Val CxxSpelling::less(Ix x, Ix y) {
  return define("bool(" + show(x) + " < " + show(y) + ")");
}

Val CxxSpelling::toData(Ix index) {
  return define("int32_t(" + show(index) + ")");
}

Ix CxxSpelling::toIndex(Val data) {
  return Ix(define("int64_t(" + nameOf(data) + ")"));
}

Val CxxSpelling::toWideIndex(Val wideData) {
  return define("int64_t(" + nameOf(wideData) + ")", true);
}

Val CxxSpelling::wideIndex(Ix first, Ix) {
  return define("int64_t(" + show(first) + ")", true);
}

//===----------------------------------------------------------------------===//
// Memory and control flow
//===----------------------------------------------------------------------===//

std::string CxxSpelling::element(const Buffer &buffer, const std::string &at) {
  return nameOf(buffer.token) + "[" + at + "]";
}

Val CxxSpelling::load(const Buffer &from, Ix at) {
  return define(element(from, show(at)));
}

Val CxxSpelling::loadWide(const Buffer &from, Ix at, Val mask) {
  std::string e = element(from, show(at));
  if (mask)
    e = nameOf(mask) + " ? " + e + " : " + typeName(from.element) + "(0)";
  return define(e, true);
}

Val CxxSpelling::gather(const Buffer &from, Val at, Val mask) {
  return loadWide(from, Ix(at), mask);
}

Val CxxSpelling::loadEvery(const Buffer &from, Ix at, int64_t part, int64_t) {
  return loadWide(from, add(at, part), Val());
}

void CxxSpelling::store(Val value, const Buffer &to, Ix at) {
  line(element(to, show(at)) + " = " + nameOf(value) + ";");
}

void CxxSpelling::storeWide(Val value, const Buffer &to, Ix at, Val mask) {
  std::string guard = mask ? "if (" + nameOf(mask) + ") " : "";
  line(guard + element(to, show(at)) + " = " + nameOf(value) + ";");
}

void CxxSpelling::storeStreaming(Val value, const Buffer &to, Ix at) {
  storeWide(value, to, at, Val());
}

/// Elements are aligned, and a register is an element.
Ix CxxSpelling::untilAligned(const Buffer &, Ix) { return Ix(0); }

void CxxSpelling::scatter(Val value, const Buffer &to, Val at, Val mask) {
  storeWide(value, to, Ix(at), mask);
}

Val CxxSpelling::pairUp(Val low, Val high) {
  return define("refold_pair(" + nameOf(low) + ", " + nameOf(high) + ")", true);
}

Val CxxSpelling::narrow(Val x, Type element) {
  return define(typeName(element) + "(" + nameOf(x) + ")", true);
}

Val CxxSpelling::addPairs(Val x, Val y, Val sum) {
  return define("refold_add_pairs(" + nameOf(x) + ", " + nameOf(y) + ", " +
                    nameOf(sum) + ")",
                true);
}

void CxxSpelling::transposePairs(const Buffer &from, Ix fromAt, Ix,
                                 const Buffer &to, Ix toAt, Ix) {
  Val low = loadWide(from, fromAt, Val());
  Val high = loadWide(from, add(fromAt, 1), Val());
  storeWide(pairUp(low, high), to, toAt, Val());
}

void CxxSpelling::transposeBlock(const Buffer &from, Ix fromAt, Ix,
                                 const Buffer &to, Ix toAt, Ix) {
  line(element(to, show(toAt)) + " = " + element(from, show(fromAt)) + ";");
}

/// Variables of their own, that a loop changes.
Spelling::Values CxxSpelling::variables(ArrayRef<Val> init) {
  Values carried;
  for (Val v : init) {
    std::string name = "v" + std::to_string(++numValues);
    line("std::remove_const_t<decltype(" + nameOf(v) + ")> " + name + " = " +
         nameOf(v) + ";");
    carried.push_back(named(name, v.wide));
  }
  return carried;
}

Spelling::Values CxxSpelling::loop(Ix lo, Ix hi, int64_t step,
                                   ArrayRef<Val> init, LoopBody body) {
  Values carried = variables(init);
  std::string i = "i" + std::to_string(++numValues);
  line("for (int64_t " + i + " = " + show(lo) + "; " + i + " < " + show(hi) +
       "; " + i + " += " + std::to_string(step) + ") {");
  ++depth;
  // The body sees this turn's values under names of their own: a value that is
  // yielded may be another one's old value.
  Values now;
  for (Val v : carried)
    now.push_back(define(nameOf(v), v.wide));
  Values next = body(Ix(named(i)), now);
  for (auto [variable, v] : llvm::zip(carried, next))
    line(nameOf(variable) + " = " + nameOf(v) + ";");
  --depth;
  line("}");
  return carried;
}

void CxxSpelling::branch(Val condition, Block then, Block otherwise) {
  line("if (" + nameOf(condition) + ") {");
  ++depth;
  then();
  --depth;
  line("} else {");
  ++depth;
  otherwise();
  --depth;
  line("}");
}

Spelling::Values
CxxSpelling::repeat(ArrayRef<Val> init,
                    llvm::function_ref<Val(ArrayRef<Val>)> condition,
                    llvm::function_ref<Values(ArrayRef<Val>)> body) {
  Values carried = variables(init);
  line("while (true) {");
  ++depth;
  Values now;
  for (Val v : carried)
    now.push_back(define(nameOf(v), v.wide));
  line("if (!(" + nameOf(condition(now)) + "))");
  line("  break;");
  Values next = body(now);
  for (auto [variable, v] : llvm::zip(carried, next))
    line(nameOf(variable) + " = " + nameOf(v) + ";");
  --depth;
  line("}");
  return carried;
}
