// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The types of expressions.
#include "Analyzer.h"
#include <limits>

namespace refold::fold {

DType widened(DType dtype) {
  switch (dtype) {
  case DType::F64:
  case DType::I64:
  case DType::Bool:
    return dtype;
  case DType::I32:
  case DType::I8:
  case DType::U8:
    return DType::I32;
  default:
    return DType::F32;
  }
}

bool Analyzer::isWhole(NodeId id) const {
  const Node &node = program.nodes[id];
  return node.kind == NodeKind::Literal && node.whole;
}

std::string Analyzer::typeText(NodeId id) const {
  return std::string(nameOf(program.nodes[id].dtype));
}

DType Analyzer::realOf(DType dtype) const {
  DType wide = widened(dtype);
  return isFloat(wide) ? wide : defaultReal;
}

/// A number's type on its own: bool counts as i32.
DType Analyzer::promoteNumber(NodeId id) const {
  DType wide = widened(program.nodes[id].dtype);
  return wide == DType::Bool ? DType::I32 : wide;
}

/// The common type of two numbers. Real wins over integer, f64 over f32, i64
/// over i32; what reads no data adapts to what does; a whole literal is an
/// integer beside an integer.
DType Analyzer::promote(NodeId a, NodeId b) const {
  if (isWhole(a) && isWhole(b))
    return defaultReal;
  if (isWhole(a))
    std::swap(a, b);
  DType first = promoteNumber(a), second = promoteNumber(b);
  if (isWhole(b)) {
    if (isFloat(first))
      return first;
    double number = program.nodes[b].number;
    bool fits = number >= std::numeric_limits<int32_t>::min() &&
                number <= std::numeric_limits<int32_t>::max();
    return fits ? first : DType::I64;
  }
  if (isFloat(first) && isFloat(second)) {
    if (program.nodes[a].weak != program.nodes[b].weak)
      return program.nodes[a].weak ? second : first;
    return first == DType::F64 ? first : second;
  }
  if (isFloat(first) || isFloat(second))
    return isFloat(first) ? first : second;
  return first == DType::I64 ? first : second;
}

bool Analyzer::requireBool(NodeId operand, std::string_view of) {
  const Node &node = program.nodes[operand];
  if (node.dtype == DType::Bool)
    return true;
  return fail(node.pos, "found " + typeText(operand) + " as operand of " +
                            std::string(of) +
                            ", expected bool: a comparison, for example");
}

bool Analyzer::requireInteger(NodeId operand, std::string_view of) {
  const Node &node = program.nodes[operand];
  if (isInteger(node.dtype) || isWhole(operand))
    return true;
  return fail(node.pos, "found " + typeText(operand) + " as operand of " +
                            std::string(of) + ", expected an integer");
}

bool Analyzer::inferLogic(Node &node) {
  std::string_view word = node.op == Op::And  ? "'and'"
                          : node.op == Op::Or ? "'or'"
                                              : "'not'";
  for (NodeId operand : node.operands)
    if (!requireBool(operand, word))
      return false;
  node.compute = node.dtype = DType::Bool;
  return true;
}

bool Analyzer::inferIntegerDivision(Node &node) {
  NodeId a = node.operands[0], b = node.operands[1];
  std::string_view word = node.op == Op::Mod ? "'%'" : "'//'";
  if (!requireInteger(a, word) || !requireInteger(b, word))
    return false;
  if (isWhole(b) && program.nodes[b].number == 0)
    return fail(program.nodes[b].pos,
                "found a division by 0, expected another number");
  node.compute = node.dtype =
      isWhole(a) && isWhole(b) ? DType::I64 : promote(a, b);
  return true;
}

/// Sets `compute` and `dtype` from the operands.
bool Analyzer::inferApply(Node &node) {
  const std::vector<NodeId> &in = node.operands;
  auto areBools = [&](NodeId a, NodeId b) {
    return program.nodes[a].dtype == DType::Bool &&
           program.nodes[b].dtype == DType::Bool;
  };
  switch (node.op) {
  case Op::And:
  case Op::Or:
  case Op::Not:
    return inferLogic(node);
  case Op::Eq:
  case Op::Ne:
  case Op::Lt:
  case Op::Le:
  case Op::Gt:
  case Op::Ge:
    node.compute = areBools(in[0], in[1]) ? DType::Bool : promote(in[0], in[1]);
    node.dtype = DType::Bool;
    return true;
  case Op::Add:
  case Op::Sub:
  case Op::Mul:
  case Op::Min:
  case Op::Max:
    node.compute = node.dtype = promote(in[0], in[1]);
    return true;
  case Op::Div:
  case Op::Pow:
    node.compute = node.dtype = realOf(promote(in[0], in[1]));
    return true;
  case Op::FloorDiv:
  case Op::Mod:
    return inferIntegerDivision(node);
  case Op::Select:
    node.compute = node.dtype =
        areBools(in[1], in[2]) ? DType::Bool : promote(in[1], in[2]);
    return requireBool(in[0], "'where'");
  case Op::Neg:
  case Op::Abs:
  case Op::Sign:
  case Op::Relu:
    node.compute = node.dtype = promoteNumber(in[0]);
    return true;
  case Op::IsNan:
  case Op::IsInf:
    node.compute = realOf(program.nodes[in[0]].dtype);
    node.dtype = DType::Bool;
    return true;
  default: // the real functions
    node.compute = node.dtype = realOf(program.nodes[in[0]].dtype);
    return true;
  }
}

} // namespace refold::fold
