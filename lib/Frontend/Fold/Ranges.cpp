// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is known of a subscript before anything runs.
#include "Analyzer.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>

namespace refold::fold {

using Maybe = std::optional<int64_t>;

static Maybe sum(Maybe a, Maybe b) {
  int64_t result;
  if (!a || !b || llvm::AddOverflow(*a, *b, result))
    return std::nullopt;
  return result;
}

static Maybe negate(Maybe a) {
  return a && *a != INT64_MIN ? Maybe(-*a) : std::nullopt;
}

static Maybe product(Maybe a, Maybe b) {
  int64_t result;
  if (!a || !b || llvm::MulOverflow(*a, *b, result))
    return std::nullopt;
  return result;
}

static bool isNonNegative(Range range) { return range.low && *range.low >= 0; }

static Range multiply(Range a, Range b) {
  if (isNonNegative(a) && isNonNegative(b))
    return {product(a.low, b.low), product(a.high, b.high)};
  Maybe corners[] = {product(a.low, b.low), product(a.low, b.high),
                     product(a.high, b.low), product(a.high, b.high)};
  Range range{corners[0], corners[0]};
  for (Maybe corner : corners) {
    if (!corner)
      return {};
    range.low = std::min(*range.low, *corner);
    range.high = std::max(*range.high, *corner);
  }
  return range;
}

static int64_t floorDivide(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && a < 0);
}

static Range divide(Range a, Range b) {
  if (!b.low || *b.low <= 0)
    return {};
  if (b.high == b.low) {
    int64_t divisor = *b.low;
    auto by = [&](Maybe value) {
      return value ? Maybe(floorDivide(*value, divisor)) : std::nullopt;
    };
    return {by(a.low), by(a.high)};
  }
  if (isNonNegative(a))
    return {0, a.high};
  return {};
}

static Range applyRange(const Program &program, const Node &node,
                        Maybe assumed) {
  Range a = rangeOf(program, node.operands[0], assumed);
  Range b = node.operands.size() > 1
                ? rangeOf(program, node.operands[1], assumed)
                : Range();
  switch (node.op) {
  case Op::Neg:
    return {negate(a.high), negate(a.low)};
  case Op::Add:
    return {sum(a.low, b.low), sum(a.high, b.high)};
  case Op::Sub:
    return {sum(a.low, negate(b.high)), sum(a.high, negate(b.low))};
  case Op::Mul:
    return multiply(a, b);
  case Op::FloorDiv:
    return divide(a, b);
  case Op::Mod:
    if (!b.low || *b.low <= 0)
      return {};
    return {0, sum(b.high, -1)};
  default:
    return {};
  }
}

Range rangeOf(const Program &program, NodeId id, Maybe assumed) {
  const Node &node = program.nodes[id];
  auto highestExtent = [&]() {
    Maybe extent = program.fixedExtent(node.axis);
    return extent ? extent : assumed;
  };
  switch (node.kind) {
  case NodeKind::Literal:
    if (!node.whole)
      return {};
    return {int64_t(node.number), int64_t(node.number)};
  case NodeKind::Index:
    return {0, sum(highestExtent(), -1)};
  case NodeKind::Extent:
    if (Maybe extent = program.fixedExtent(node.axis))
      return {extent, extent};
    return {0, highestExtent()};
  case NodeKind::Apply:
    // An i32 sum may wrap; only indices and lengths cannot in practice.
    return node.compute == DType::I64 ? applyRange(program, node, assumed)
                                      : Range();
  case NodeKind::Read:
    if (node.dtype == DType::U8 || node.dtype == DType::Bool)
      return {0, 255};
    return {};
  default:
    return {};
  }
}

/// Does the lowering know bounds of this expression from extents alone?
bool Analyzer::isOfShapes(NodeId id) const {
  const Node &node = program.nodes[id];
  switch (node.kind) {
  case NodeKind::Literal:
    return node.whole;
  case NodeKind::Index:
  case NodeKind::Extent:
    return true;
  case NodeKind::Apply:
    break;
  default:
    return false;
  }
  for (NodeId operand : node.operands)
    if (!isOfShapes(operand))
      return false;
  // Where i64 might wrap, the bounds at the ends of the axes say nothing about
  // what is between.
  Range worst = rangeOf(program, id, kMaxElements);
  if (!worst.low || !worst.high)
    return false;
  switch (node.op) {
  case Op::Neg:
  case Op::Add:
  case Op::Sub:
    return true;
  case Op::Mul:
    return isNonNegative(rangeOf(program, node.operands[0])) &&
           isNonNegative(rangeOf(program, node.operands[1]));
  case Op::FloorDiv:
  case Op::Mod:
    return isWhole(node.operands[1]) &&
           program.nodes[node.operands[1]].number > 0;
  default:
    return false;
  }
}

bool Analyzer::visitsEmptyAxis(NodeId id) const {
  for (AxisId axis : program.nodes[id].axes)
    if (program.fixedExtent(axis) == 0)
      return true;
  return false;
}

bool Analyzer::classifyBound(Node &read, size_t position) {
  const Node &subscript = program.nodes[read.operands[position]];
  const Variable &value = program.values[read.value];
  AxisId dimension = value.axes[position];
  Bound &bound = read.bounds[position];
  bound = Bound::Proved;
  if (subscript.kind == NodeKind::Index &&
      program.sameExtent(subscript.axis, dimension))
    return true;
  if (!isOfShapes(read.operands[position])) {
    bound = Bound::Data;
    if (subscript.kind == NodeKind::Read &&
        subscript.value < program.numArguments)
      program.values[subscript.value].indexes = dimension;
    return true;
  }
  if (visitsEmptyAxis(read.operands[position]))
    return true;
  Range range = rangeOf(program, read.operands[position]);
  Maybe extent = program.fixedExtent(dimension);
  std::string where =
      "subscript " + std::to_string(position + 1) + " of " + quoted(value.name);
  bool depends = !subscript.axes.empty();
  std::string verb = depends ? ", which reaches " : ", which is ";
  if (range.low && *range.low < 0)
    return fail(subscript.pos, "found " + where + verb +
                                   std::to_string(*range.low) +
                                   ", expected at least 0");
  if (range.high && extent && *range.high >= *extent)
    return fail(subscript.pos,
                "found " + where + verb + std::to_string(*range.high) +
                    ", expected less than " + std::to_string(*extent));
  if (!range.low || !range.high || !extent)
    bound = Bound::Extents;
  return true;
}

/// After all extents are known.
bool Analyzer::classifyBounds() {
  for (Node &node : program.nodes)
    for (size_t i = 0; i < node.bounds.size(); ++i)
      if (!classifyBound(node, i))
        return false;
  return true;
}

} // namespace refold::fold
