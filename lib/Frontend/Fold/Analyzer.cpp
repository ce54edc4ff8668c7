// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Analyzer.h"
#include "refold/Support/NearestName.h"
#include "llvm/ADT/SmallVector.h"
#include <algorithm>

namespace refold::fold {

std::string quoted(std::string_view text) {
  return "'" + std::string(text) + "'";
}

std::string counted(size_t count, std::string noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string axisList(const Program &program, const std::vector<AxisId> &axes) {
  std::string text = "[";
  for (AxisId axis : axes)
    text += (text.size() > 1 ? ", " : "") + program.axes[axis].name;
  return text + "]";
}

bool contains(const std::vector<AxisId> &axes, AxisId axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

/// Read axes lead, so that where(n <= m, s, -inf) keeps the order of s.
void uniteAxes(Node &node, const Node &operand) {
  std::vector<AxisId> axes;
  auto append = [&](const Node &from, bool read) {
    size_t begin = read ? 0 : from.numReadAxes;
    size_t end = read ? from.numReadAxes : from.axes.size();
    for (size_t i = begin; i < end; ++i)
      if (!contains(axes, from.axes[i]))
        axes.push_back(from.axes[i]);
  };
  append(node, true);
  append(operand, true);
  size_t numReadAxes = axes.size();
  append(node, false);
  append(operand, false);
  node.axes = std::move(axes);
  node.numReadAxes = numReadAxes;
}

AxisId Program::extentOf(AxisId axis) const {
  while (axes[axis].sameAs)
    axis = *axes[axis].sameAs;
  return axis;
}

bool Program::sameExtent(AxisId a, AxisId b) const {
  if (extentOf(a) == extentOf(b))
    return true;
  return fixedExtent(a) && fixedExtent(a) == fixedExtent(b);
}

bool Analyzer::fail(SourcePos pos, std::string message) {
  if (!error)
    error = Error{pos, std::move(message)};
  return false;
}

bool Analyzer::failLimit(SourcePos pos, std::string message) {
  if (!error)
    error = Error{pos, std::move(message), /*isLimit=*/true};
  return false;
}

std::string Analyzer::suggest(const std::string &name) const {
  llvm::SmallVector<llvm::StringRef> known;
  for (const auto &[value, id] : latest)
    known.push_back(value);
  for (const auto &[axis, id] : axisNames)
    known.push_back(axis);
  return suggestion(name, known);
}

bool Analyzer::findAxis(const Name &name, AxisId &axis) {
  auto found = axisNames.find(name.text);
  if (found != axisNames.end()) {
    axis = found->second;
    return true;
  }
  if (valueNames.count(name.text))
    return fail(name.pos,
                "found the value " + quoted(name.text) + ", expected an axis");
  llvm::SmallVector<llvm::StringRef> known;
  for (const auto &[other, id] : axisNames)
    known.push_back(other);
  return fail(name.pos, "found unknown name " + quoted(name.text) +
                            ", expected an axis" +
                            suggestion(name.text, known));
}

/// Every name that is a value somewhere in the file: an axis may not be called
/// so, before or after.
bool Analyzer::declareValues() {
  for (const Argument &argument : ast.arguments)
    if (!valueNames.emplace(argument.name.text, argument.name.pos).second)
      return fail(argument.name.pos, "found a second argument " +
                                         quoted(argument.name.text) +
                                         ", expected different names");
  for (const Definition &definition : ast.definitions)
    for (const Target &target : definition.targets)
      valueNames.emplace(target.name.text, target.name.pos);
  return true;
}

bool Analyzer::declareAxis(const Name &name) {
  auto value = valueNames.find(name.text);
  if (value != valueNames.end())
    return fail(name.pos, "found " + quoted(name.text) +
                              " as an axis and, on line " +
                              std::to_string(value->second.line) +
                              ", as a value, expected different names");
  if (!axisNames.emplace(name.text, program.axes.size()).second)
    return true;
  if (program.axes.size() == kMaxAxes)
    return failLimit(name.pos, "found more than " + std::to_string(kMaxAxes) +
                                   " axes, expected fewer");
  program.axes.push_back({name.text, name.pos, {}, {}, {}});
  return true;
}

bool Analyzer::fixExtent(AxisId axis, int64_t extent, SourcePos pos) {
  std::optional<int64_t> &known = program.axes[axis].extent;
  if (known && *known != extent)
    return fail(pos, "found extent " + std::to_string(extent) + " for axis " +
                         quoted(program.axes[axis].name) + ", expected " +
                         std::to_string(*known) + " as fixed before");
  known = extent;
  return true;
}

/// Axes are declared by the header, by the axes of definitions and by
/// subscripts; reducers and expressions only use them.
bool Analyzer::declareAxes() {
  for (const auto &[index, argument] : llvm::enumerate(ast.arguments))
    for (const auto &[position, axis] : llvm::enumerate(argument.axes)) {
      if (!declareAxis(axis.name))
        return false;
      AxisId id = axisNames[axis.name.text];
      if (!program.axes[id].source)
        program.axes[id].source = {unsigned(index), unsigned(position)};
      if (axis.extent && !fixExtent(id, *axis.extent, axis.name.pos))
        return false;
    }
  for (const Definition &definition : ast.definitions)
    for (const Target &target : definition.targets)
      for (const Name &axis : target.axes.value_or(std::vector<Name>()))
        if (!declareAxis(axis))
          return false;
  for (const Expr &expr : ast.exprs) {
    if (expr.kind != ExprKind::Subscript)
      continue;
    for (ExprId operand : expr.operands) {
      const Expr &subscript = ast.exprs[operand];
      if (subscript.kind == ExprKind::Name &&
          !valueNames.count(subscript.name) && subscript.name != "inf" &&
          subscript.name != "nan" && subscript.name != "pi" &&
          !declareAxis({subscript.name, subscript.pos}))
        return false;
    }
  }
  return true;
}

bool Analyzer::applyDims() {
  for (const auto &[name, extent] : options.dims) {
    AxisId axis = 0;
    if (!findAxis({name, ast.name.pos}, axis))
      return false;
    if (extent < 0 || extent > kMaxExtent)
      return fail(ast.name.pos, "found extent " + std::to_string(extent) +
                                    " for axis " + quoted(name) +
                                    ", expected 0 to 2^40");
    if (!fixExtent(axis, extent, ast.name.pos))
      return false;
  }
  return true;
}

DType Analyzer::storageOf(std::optional<DType> written) const {
  DType dtype = written.value_or(DType::F32);
  bool isPrecision = dtype == DType::F64 || dtype == DType::F32 ||
                     dtype == DType::F16 || dtype == DType::BF16;
  return isPrecision && options.storage ? *options.storage : dtype;
}

ValueId Analyzer::addValue(const Name &name, DType dtype,
                           std::vector<AxisId> axes) {
  ValueId id = program.values.size();
  program.values.push_back(
      {name.text, name.pos, dtype, std::move(axes), 0, {}});
  latest[name.text] = id;
  return id;
}

bool Analyzer::declareArguments() {
  for (const Argument &argument : ast.arguments) {
    std::vector<AxisId> axes;
    for (const AxisDecl &axis : argument.axes)
      axes.push_back(axisNames[axis.name.text]);
    if (axes.size() > kMaxAxesOfValue)
      return failLimit(argument.name.pos, "found " +
                                              std::to_string(axes.size()) +
                                              " axes, expected at most " +
                                              std::to_string(kMaxAxesOfValue));
    addValue(argument.name, storageOf(argument.dtype), axes);
  }
  program.numArguments = ast.arguments.size();
  for (const Variable &value : program.values)
    if (value.dtype == DType::F64)
      defaultReal = DType::F64;
  for (const OutputDecl &output : ast.outputs)
    if (storageOf(output.dtype) == DType::F64)
      defaultReal = DType::F64;
  return true;
}

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

bool Analyzer::addTopK(const Definition &definition) {
  const Expr &expr = ast.exprs[definition.expr];
  const std::vector<Target> &targets = definition.targets;
  if (targets.size() != 2)
    return fail(targets.front().name.pos,
                "found " + counted(targets.size(), "name") +
                    " left of '=', expected two: values, indices = "
                    "topk(...)");
  if (expr.axes.size() != 1 || expr.operands.size() != 2)
    return fail(expr.pos,
                "found topk with " + std::to_string(expr.axes.size()) +
                    (expr.axes.size() == 1 ? " axis" : " axes") + " and " +
                    counted(expr.operands.size(), "operand") +
                    ", expected topk(axis: expression, k)");
  const Expr &count = ast.exprs[expr.operands[1]];
  if (count.kind != ExprKind::Number || !count.whole || count.number < 1 ||
      count.number > kMaxTopK)
    return fail(count.pos, "found no usable k, expected a whole number from 1 "
                           "to " +
                               std::to_string(kMaxTopK));
  Statement statement;
  TopK topk;
  topk.k = int64_t(count.number);
  if (!findAxis(expr.axes.front(), topk.over) ||
      !visit(expr.operands[0], statement.root))
    return false;
  const Node &root = program.nodes[statement.root];
  if (!isFloat(widened(root.dtype)))
    return fail(root.pos, "found keys of type " + typeText(statement.root) +
                              ", expected real ones: f32(...) or f64(...)");
  std::vector<AxisId> free = root.axes;
  std::erase(free, topk.over);

  // The new axis is the one that is written and not free.
  const Target &written = targets[0].axes ? targets[0] : targets[1];
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
  const Axis &rankAxis = program.axes[topk.rank];
  if (rankAxis.sameAs || (rankAxis.source && rankAxis.extent != topk.k))
    return fail(written.name.pos, "found axis " + quoted(rankAxis.name) +
                                      ", which is in use, expected a new one "
                                      "of extent " +
                                      std::to_string(topk.k));
  if (!fixExtent(topk.rank, topk.k, expr.pos))
    return false;
  free.push_back(topk.rank);
  DType keyType = widened(root.dtype);
  for (const Target &target : targets) {
    std::vector<AxisId> axes;
    if (!checkAxes(target.axes ? target : written, free, axes))
      return false;
    if (axes.size() != free.size())
      return fail(target.name.pos, "found axes " + axisList(program, axes) +
                                       ", expected " + axisList(program, free) +
                                       " in any order");
    bool isKeys = &target == &targets.front();
    statement.values.push_back(
        addValue(target.name, isKeys ? keyType : DType::I32, axes));
  }
  if (targets[0].name.text == targets[1].name.text)
    return fail(targets[1].name.pos, "found " + quoted(targets[1].name.text) +
                                         " twice, expected different names");
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

bool Analyzer::checkExtents() {
  for (AxisId id = 0; id < program.axes.size(); ++id) {
    const Axis &axis = program.axes[program.extentOf(id)];
    if (!axis.extent && !axis.source)
      return fail(program.axes[id].pos,
                  "found axis " + quoted(program.axes[id].name) +
                      " without an extent, expected it among the axes of an "
                      "argument");
  }
  return true;
}

/// Sizes that are known are bounded, so that no product of extents overflows.
bool Analyzer::checkSizes() {
  for (const Variable &value : program.values) {
    int64_t elements = 1;
    for (AxisId axis : value.axes) {
      int64_t extent =
          std::max<int64_t>(program.fixedExtent(axis).value_or(1), 1);
      if (extent > kMaxElements / elements)
        return failLimit(value.pos, "found more than 2^48 elements in " +
                                        quoted(value.name) +
                                        ", expected fewer");
      elements *= extent;
    }
  }
  return true;
}

Result<Program> Analyzer::run() {
  program.name = ast.name.text;
  bool ok =
      declareValues() && declareAxes() && applyDims() && declareArguments();
  for (size_t i = 0; ok && i < ast.definitions.size(); ++i)
    ok = addStatement(ast.definitions[i]);
  ok = ok && addOutputs() && checkExtents() && checkSizes() && classifyBounds();
  if (!ok)
    return *error;
  return std::move(program);
}

Result<Program> analyze(const Ast &ast, const Options &options) {
  return Analyzer(ast, options).run();
}

} // namespace refold::fold
