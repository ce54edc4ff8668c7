// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Definitions and outputs.
#include "Analyzer.h"
#include "refold/Support/NearestName.h"
#include <algorithm>

namespace refold::fold {

/// The axes of a definition: as written, else the free ones of its expression.
bool Analyzer::checkAxes(const Target &target, const std::vector<AxisId> &free,
                         std::vector<AxisId> &axes) {
  axes = free;
  if (target.axes) {
    axes.clear();
    for (const Name &name : *target.axes)
      axes.push_back(axisNames[name.text]);
    for (AxisId axis : free)
      if (!contains(axes, axis))
        return fail(target.name.pos,
                    "found axes " + axisList(program, axes) + " for " +
                        quoted(target.name.text) + ", expected " +
                        quoted(program.axes[axis].name) +
                        " among them or reduced: the expression varies "
                        "along it");
  }
  if (axes.size() > kMaxAxesOfValue)
    return failLimit(target.name.pos, "found " + std::to_string(axes.size()) +
                                          " axes, expected at most " +
                                          std::to_string(kMaxAxesOfValue));
  return true;
}

bool Analyzer::addStatement(const Definition &definition) {
  const Expr &expr = ast.exprs[definition.expr];
  if (expr.kind == ExprKind::Reduce && expr.name == "topk")
    return addTopK(definition);
  const Target &target = definition.targets.front();
  if (definition.targets.size() > 1)
    return fail(definition.targets[1].name.pos,
                "found " + std::to_string(definition.targets.size()) +
                    " names left of '=', expected one: only topk defines two");
  Statement statement;
  std::vector<AxisId> axes;
  if (!visit(definition.expr, statement.root) ||
      !checkAxes(target, program.nodes[statement.root].axes, axes))
    return false;
  DType dtype = program.nodes[statement.root].dtype;
  statement.values = {addValue(target.name, dtype, axes)};
  program.statements.push_back(std::move(statement));
  return true;
}

/// The right-hand side, with k and the axis it runs over.
bool Analyzer::parseTopK(const Definition &definition, TopK &topk,
                         NodeId &root) {
  const Expr &expr = ast.exprs[definition.expr];
  const std::vector<Target> &targets = definition.targets;
  if (targets.size() != 2)
    return fail(targets.front().name.pos,
                "found " + counted(targets.size(), "name") +
                    " left of '=', expected two: values, indices = topk(...)");
  if (targets[0].name.text == targets[1].name.text)
    return fail(targets[1].name.pos, "found " + quoted(targets[1].name.text) +
                                         " twice, expected different names");
  if (expr.axes.size() != 1 || expr.operands.size() != 2)
    return fail(expr.pos,
                "found topk with " + std::to_string(expr.axes.size()) +
                    (expr.axes.size() == 1 ? " axis" : " axes") + " and " +
                    counted(expr.operands.size(), "operand") +
                    ", expected topk(axis: expression, k)");
  const Expr &count = ast.exprs[expr.operands[1]];
  bool isCount =
      count.kind == ExprKind::Number && count.whole && count.number >= 1;
  std::string expected =
      "expected a whole number from 1 to " + std::to_string(kMaxTopK);
  if (!isCount)
    return fail(count.pos, "found no usable k, " + expected);
  if (count.number > kMaxTopK)
    return failLimit(count.pos, "found a k that is too large, " + expected);
  topk.k = int64_t(count.number);
  if (!findAxis(expr.axes.front(), topk.over) || !visit(expr.operands[0], root))
    return false;
  if (!isFloat(widened(program.nodes[root].dtype)))
    return failUnsupported(program.nodes[root].pos,
                           "found keys of type " + typeText(root) +
                               ", expected real ones: f32(...) or f64(...)");
  return true;
}

/// The new axis is the one that is written and not free.
bool Analyzer::findRankAxis(const Target &written,
                            const std::vector<AxisId> &free, TopK &topk) {
  std::optional<AxisId> rank;
  for (const Name &name : written.axes.value_or(std::vector<Name>()))
    if (AxisId axis = axisNames[name.text]; !contains(free, axis)) {
      if (rank)
        return fail(name.pos, "found a second new axis " + quoted(name.text) +
                                  ", expected one of extent " +
                                  std::to_string(topk.k));
      rank = axis;
    }
  if (!rank)
    return fail(written.name.pos,
                "found no new axis for topk, expected for example " +
                    quoted(written.name.text + "[.., r]"));
  topk.rank = *rank;
  const Axis &axis = program.axes[topk.rank];
  if (axis.sameAs || (axis.source && axis.extent != topk.k))
    return fail(written.name.pos, "found axis " + quoted(axis.name) +
                                      ", which is in use, expected a new one "
                                      "of extent " +
                                      std::to_string(topk.k));
  return fixExtent(topk.rank, topk.k, written.name.pos);
}

bool Analyzer::addTopK(const Definition &definition) {
  Statement statement;
  TopK topk;
  if (!parseTopK(definition, topk, statement.root))
    return false;
  const std::vector<Target> &targets = definition.targets;
  const Target &written = targets[0].axes ? targets[0] : targets[1];
  std::vector<AxisId> free = program.nodes[statement.root].axes;
  std::erase(free, topk.over);
  if (!findRankAxis(written, free, topk))
    return false;
  free.push_back(topk.rank);
  DType dtype = widened(program.nodes[statement.root].dtype);
  for (const Target &target : targets) {
    std::vector<AxisId> axes;
    if (!checkAxes(target.axes ? target : written, free, axes))
      return false;
    if (axes.size() != free.size())
      return fail(target.name.pos, "found axes " + axisList(program, axes) +
                                       ", expected " + axisList(program, free) +
                                       " in any order");
    statement.values.push_back(addValue(target.name, dtype, axes));
    dtype = DType::I32; // the positions
  }
  statement.topk = topk;
  program.statements.push_back(std::move(statement));
  return true;
}

Statement *Analyzer::definitionOf(ValueId value) {
  for (Statement &statement : program.statements)
    if (std::find(statement.values.begin(), statement.values.end(), value) !=
        statement.values.end())
      return &statement;
  return nullptr;
}

/// An output is rounded to its dtype; what other definitions read is not.
bool Analyzer::addOutput(const OutputDecl &output) {
  const std::string &name = output.name.text;
  auto found = latest.find(name);
  if (found == latest.end() || found->second < program.numArguments)
    return fail(output.name.pos,
                "found no definition of the output " + quoted(name) +
                    ", expected one" +
                    (found == latest.end() ? suggest(name) : ""));
  for (const std::string &other : program.outputNames)
    if (other == name)
      return fail(output.name.pos, "found a second output " + quoted(name) +
                                       ", expected different names");
  ValueId value = found->second;
  DType dtype = storageOf(output.dtype);
  if (program.values[value].dtype != dtype) {
    Statement *definition = definitionOf(value);
    bool inPlace = program.values[value].readers == 0 && !definition->topk;
    Node cast;
    cast.kind = NodeKind::Cast;
    cast.pos = program.values[value].pos;
    cast.dtype = dtype;
    if (inPlace) {
      cast.operands = {definition->root};
      uniteAxes(cast, program.nodes[definition->root]);
      definition->root = add(std::move(cast));
      program.values[value].dtype = dtype;
    } else {
      NodeId read = addRead(value, cast.pos);
      cast.operands = {read};
      uniteAxes(cast, program.nodes[read]);
      Statement statement;
      statement.root = add(std::move(cast));
      Name as = {name, program.values[value].pos};
      std::vector<AxisId> axes = program.values[value].axes;
      value = addValue(as, dtype, axes);
      statement.values = {value};
      program.statements.push_back(std::move(statement));
    }
  }
  program.outputs.push_back(value);
  program.outputNames.push_back(name);
  return true;
}

bool Analyzer::addOutputs() {
  for (const OutputDecl &output : ast.outputs)
    if (!addOutput(output))
      return false;
  return true;
}

} // namespace refold::fold
