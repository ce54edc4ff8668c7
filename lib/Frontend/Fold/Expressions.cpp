// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Names, types and free axes of expressions.
#include "Analyzer.h"
#include "refold/Support/NearestName.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <cmath>
#include <limits>
#include <numbers>

namespace refold::fold {

namespace {
struct Function {
  std::string_view name;
  Op op;
  unsigned operands;
};
} // namespace

static constexpr Function kFunctions[] = {
    {"where", Op::Select, 3}, {"min", Op::Min, 2},
    {"max", Op::Max, 2},      {"pow", Op::Pow, 2},
    {"abs", Op::Abs, 1},      {"sign", Op::Sign, 1},
    {"relu", Op::Relu, 1},    {"exp", Op::Exp, 1},
    {"exp2", Op::Exp2, 1},    {"expm1", Op::Expm1, 1},
    {"log", Op::Log, 1},      {"log2", Op::Log2, 1},
    {"log1p", Op::Log1p, 1},  {"sqrt", Op::Sqrt, 1},
    {"rsqrt", Op::Rsqrt, 1},  {"floor", Op::Floor, 1},
    {"ceil", Op::Ceil, 1},    {"round", Op::Round, 1},
    {"tanh", Op::Tanh, 1},    {"sigmoid", Op::Sigmoid, 1},
    {"erf", Op::Erf, 1},      {"sin", Op::Sin, 1},
    {"cos", Op::Cos, 1},      {"sinh", Op::Sinh, 1},
    {"cosh", Op::Cosh, 1},    {"isnan", Op::IsNan, 1},
    {"isinf", Op::IsInf, 1},
};

static constexpr std::string_view kReducers[] = {
    "sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "mean"};

/// Beyond 2^53 not every whole number is a double, so such a literal is real.
static constexpr double kMaxWhole = 9007199254740992.0;

NodeId Analyzer::add(Node node) {
  program.nodes.push_back(std::move(node));
  return program.nodes.size() - 1;
}

NodeId Analyzer::addRead(ValueId value, SourcePos pos) {
  Node node;
  node.kind = NodeKind::Read;
  node.pos = pos;
  node.value = value;
  node.dtype = program.values[value].dtype;
  node.axes = program.values[value].axes;
  node.numReadAxes = node.axes.size();
  node.byAxes = true;
  ++program.values[value].readers;
  return add(std::move(node));
}

bool Analyzer::visitName(const Expr &expr, NodeId &result) {
  Node node;
  node.pos = expr.pos;
  node.weak = true;
  if (expr.name == "inf" || expr.name == "nan" || expr.name == "pi") {
    node.number = expr.name == "inf" ? std::numeric_limits<double>::infinity()
                  : expr.name == "nan"
                      ? std::numeric_limits<double>::quiet_NaN()
                      : std::numbers::pi;
    node.dtype = defaultReal;
    result = add(std::move(node));
    return true;
  }
  if (auto value = latest.find(expr.name); value != latest.end()) {
    result = addRead(value->second, expr.pos);
    return true;
  }
  if (auto axis = axisNames.find(expr.name); axis != axisNames.end()) {
    node.kind = NodeKind::Index;
    node.axis = axis->second;
    node.axes = {axis->second};
    node.dtype = DType::I64;
    result = add(std::move(node));
    return true;
  }
  if (valueNames.count(expr.name))
    return fail(expr.pos, "found " + quoted(expr.name) +
                              " before its definition, expected a name that "
                              "is defined above");
  return fail(expr.pos, "found unknown name " + quoted(expr.name) +
                            ", expected a value or an axis" +
                            suggest(expr.name));
}

/// One more subscript of `node`, which reads `value`.
bool Analyzer::addSubscript(const Expr &expr, Node &node,
                            const Variable &value) {
  size_t position = node.operands.size();
  NodeId subscript = 0;
  if (!visit(expr.operands[position], subscript) ||
      !requireInteger(subscript, "a subscript"))
    return false;
  const Node &operand = program.nodes[subscript];
  AxisId dimension = value.axes[position];
  if (operand.kind == NodeKind::Index) {
    // An axis that only subscripts name runs over what it first reads.
    Axis &axis = program.axes[operand.axis];
    if (!axis.extent && !axis.source && !axis.sameAs &&
        program.extentOf(dimension) != operand.axis)
      axis.sameAs = dimension;
    node.byAxes = node.byAxes && !contains(node.axes, operand.axis);
  } else {
    node.byAxes = false;
  }
  uniteAxes(node, operand);
  node.numReadAxes = node.axes.size();
  node.operands.push_back(subscript);
  return true;
}

bool Analyzer::visitSubscript(const Expr &expr, NodeId &result) {
  auto found = latest.find(expr.name);
  if (found == latest.end()) {
    if (axisNames.count(expr.name))
      return fail(expr.pos, "found the axis " + quoted(expr.name) +
                                " with subscripts, expected a value");
    Expr name = expr; // for the error of an unknown name
    return visitName(name, result);
  }
  ValueId id = found->second;
  const Variable value = program.values[id];
  if (value.axes.size() != expr.operands.size())
    return fail(expr.pos, "found " +
                              counted(expr.operands.size(), "subscript") +
                              " of " + quoted(expr.name) + ", expected " +
                              std::to_string(value.axes.size()) + ": " +
                              axisList(program, value.axes));
  Node node;
  node.kind = NodeKind::Read;
  node.pos = expr.pos;
  node.value = id;
  node.dtype = value.dtype;
  node.byAxes = true;
  while (node.operands.size() < value.axes.size())
    if (!addSubscript(expr, node, value))
      return false;
  node.bounds.assign(node.operands.size(), Bound::Proved);
  ++program.values[id].readers;
  result = add(std::move(node));
  return true;
}

bool Analyzer::unknownCall(const Expr &expr) {
  if (expr.name == "topk")
    return fail(expr.pos, "found topk inside an expression, expected a line "
                          "of its own: values, indices = topk(axis: "
                          "expression, k)");
  for (std::string_view reducer : kReducers)
    if (expr.name == reducer && expr.kind == ExprKind::Call)
      return fail(expr.pos, "found " + quoted(expr.name) +
                                " without an axis, expected " + expr.name +
                                "(axis: expression)");
  std::string expected = expr.kind == ExprKind::Call
                             ? "a function, a reducer or a dtype"
                             : "a reducer";
  llvm::SmallVector<llvm::StringRef> known;
  if (expr.kind == ExprKind::Call) {
    for (const Function &function : kFunctions)
      known.emplace_back(function.name.data(), function.name.size());
    known.append({"clip", "len", "topk"});
  }
  for (std::string_view reducer : kReducers)
    known.emplace_back(reducer.data(), reducer.size());
  return fail(expr.pos, "found " + quoted(expr.name) +
                            " before '(', expected " + expected +
                            suggestion(expr.name, known));
}

bool Analyzer::visitLen(const Expr &expr, NodeId &result) {
  bool isName = expr.operands.size() == 1 &&
                ast.exprs[expr.operands[0]].kind == ExprKind::Name;
  if (!isName)
    return fail(expr.pos, "found len of an expression, expected an axis");
  const Expr &operand = ast.exprs[expr.operands[0]];
  Node node;
  node.kind = NodeKind::Extent;
  node.pos = expr.pos;
  node.weak = true;
  node.dtype = DType::I64;
  if (!findAxis({operand.name, operand.pos}, node.axis))
    return false;
  result = add(std::move(node));
  return true;
}

bool Analyzer::visitCall(const Expr &expr, NodeId &result) {
  if (expr.name == "len")
    return visitLen(expr, result);
  unsigned expected = 0;
  std::optional<Op> op;
  for (const Function &function : kFunctions)
    if (function.name == expr.name) {
      op = function.op;
      expected = function.operands;
    }
  bool isClip = expr.name == "clip";
  std::optional<DType> dtype = parseDType(expr.name);
  if (isClip)
    expected = 3;
  if (dtype)
    expected = 1;
  if (!op && !isClip && !dtype)
    return unknownCall(expr);
  if (expr.operands.size() != expected) {
    // max(x) is more likely a reducer without its axis.
    if (op == Op::Max || op == Op::Min)
      return fail(expr.pos, "found " + quoted(expr.name) + " of " +
                                counted(expr.operands.size(), "operand") +
                                ", expected two, or " + expr.name +
                                "(axis: expression)");
    return fail(expr.pos, "found " + counted(expr.operands.size(), "operand") +
                              " of " + quoted(expr.name) + ", expected " +
                              std::to_string(expected));
  }
  std::vector<NodeId> operands(expected);
  for (unsigned i = 0; i < expected; ++i)
    if (!visit(expr.operands[i], operands[i]))
      return false;
  if (dtype) {
    Node node;
    node.kind = NodeKind::Cast;
    node.pos = expr.pos;
    node.dtype = *dtype;
    node.operands = operands;
    uniteAxes(node, program.nodes[operands[0]]);
    result = add(std::move(node));
    return true;
  }
  if (!isClip)
    return addApply(*op, expr.pos, operands, result);
  NodeId atLeast = 0;
  return addApply(Op::Max, expr.pos, {operands[0], operands[1]}, atLeast) &&
         addApply(Op::Min, expr.pos, {atLeast, operands[2]}, result);
}

bool Analyzer::visitReducedAxes(const Expr &expr, std::vector<AxisId> &axes) {
  for (const Name &name : expr.axes) {
    AxisId axis = 0;
    if (!findAxis(name, axis))
      return false;
    axes.push_back(axis);
  }
  return true;
}

bool Analyzer::visitReduce(const Expr &expr, NodeId &result) {
  const auto *known = llvm::find(kReducers, std::string_view(expr.name));
  if (known == std::end(kReducers))
    return unknownCall(expr);
  if (expr.operands.size() != 1)
    return fail(expr.pos, "found " + counted(expr.operands.size(), "operand") +
                              " of " + quoted(expr.name) +
                              " over an axis, expected one");
  static constexpr ReducerKind kinds[] = {
      ReducerKind::Sum,    ReducerKind::Prod,   ReducerKind::Max,
      ReducerKind::Min,    ReducerKind::Any,    ReducerKind::All,
      ReducerKind::ArgMax, ReducerKind::ArgMin, ReducerKind::Sum};
  Node node;
  node.kind = NodeKind::Reduce;
  node.pos = expr.pos;
  node.reducer = kinds[known - std::begin(kReducers)];
  NodeId operand = 0;
  if (!visitReducedAxes(expr, node.reduced) ||
      !visit(expr.operands[0], operand))
    return false;
  node.dtype = promoteNumber(operand);
  bool isLogic =
      node.reducer == ReducerKind::Any || node.reducer == ReducerKind::All;
  bool isArg = node.reducer == ReducerKind::ArgMax ||
               node.reducer == ReducerKind::ArgMin;
  if (isLogic) {
    if (!requireBool(operand, quoted(expr.name)))
      return false;
    node.dtype = DType::Bool;
  }
  if (isArg) {
    if (node.reduced.size() != 1)
      return fail(expr.axes[1].pos,
                  "found " + std::to_string(node.reduced.size()) + " axes of " +
                      quoted(expr.name) + ", expected one");
    if (node.dtype == DType::I64)
      return failUnsupported(program.nodes[operand].pos,
                             "found i64 keys of " + quoted(expr.name) +
                                 ", expected i32 or real ones");
    node.dtype = DType::I32;
  }
  node.operands = {operand};
  // The result is a tensor, so all its axes are read.
  for (AxisId axis : program.nodes[operand].axes)
    if (!contains(node.reduced, axis))
      node.axes.push_back(axis);
  node.numReadAxes = node.axes.size();
  std::vector<AxisId> reduced = node.reduced;
  result = add(std::move(node));
  return expr.name != "mean" || divideByExtents(reduced, expr.pos, result);
}

/// The second half of mean.
bool Analyzer::divideByExtents(const std::vector<AxisId> &axes, SourcePos pos,
                               NodeId &result) {
  std::optional<NodeId> count;
  for (AxisId axis : axes) {
    Node extent;
    extent.kind = NodeKind::Extent;
    extent.pos = pos;
    extent.weak = true;
    extent.dtype = DType::I64;
    extent.axis = axis;
    NodeId factor = add(std::move(extent));
    if (count && !addApply(Op::Mul, pos, {*count, factor}, factor))
      return false;
    count = factor;
  }
  return addApply(Op::Div, pos, {result, *count}, result);
}

/// Constants made of literals, so that -1 and 2*4 are literals too.
bool Analyzer::fold(Op op, SourcePos pos, const std::vector<NodeId> &operands,
                    NodeId &result) {
  for (NodeId operand : operands)
    if (program.nodes[operand].kind != NodeKind::Literal ||
        (op != Op::Neg && !program.nodes[operand].whole))
      return false;
  double a = program.nodes[operands[0]].number;
  double b = operands.size() > 1 ? program.nodes[operands[1]].number : 0;
  double number;
  switch (op) {
  case Op::Neg:
    number = -a;
    break;
  case Op::Add:
    number = a + b;
    break;
  case Op::Sub:
    number = a - b;
    break;
  case Op::Mul:
    number = a * b;
    break;
  default:
    return false;
  }
  if (op != Op::Neg && std::abs(number) > kMaxWhole)
    return false;
  Node node = program.nodes[operands[0]];
  node.pos = pos;
  node.number = number;
  result = add(std::move(node));
  return true;
}

bool Analyzer::addApply(Op op, SourcePos pos, std::vector<NodeId> operands,
                        NodeId &result) {
  if (fold(op, pos, operands, result))
    return true;
  Node node;
  node.kind = NodeKind::Apply;
  node.op = op;
  node.pos = pos;
  node.weak = true;
  for (NodeId operand : operands) {
    // A choice has the precision of what is chosen, not of the condition.
    bool isCondition = op == Op::Select && operand == operands.front();
    node.weak = node.weak && (isCondition || program.nodes[operand].weak);
    uniteAxes(node, program.nodes[operand]);
  }
  node.operands = std::move(operands);
  if (!inferApply(node))
    return false;
  result = add(std::move(node));
  return true;
}

bool Analyzer::visit(ExprId id, NodeId &result) {
  const Expr &expr = ast.exprs[id];
  switch (expr.kind) {
  case ExprKind::Number: {
    Node node;
    node.pos = expr.pos;
    node.weak = true;
    node.number = expr.number;
    node.whole = expr.whole && expr.number <= kMaxWhole;
    node.dtype = defaultReal;
    result = add(std::move(node));
    return true;
  }
  case ExprKind::Name:
    return visitName(expr, result);
  case ExprKind::Subscript:
    return visitSubscript(expr, result);
  case ExprKind::Call:
    return visitCall(expr, result);
  case ExprKind::Reduce:
    return visitReduce(expr, result);
  case ExprKind::Unary:
  case ExprKind::Binary:
    break;
  }
  std::vector<NodeId> operands(expr.operands.size());
  for (size_t i = 0; i < operands.size(); ++i)
    if (!visit(expr.operands[i], operands[i]))
      return false;
  return addApply(expr.op, expr.pos, operands, result);
}

} // namespace refold::fold
