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

bool Analyzer::failUnsupported(SourcePos pos, std::string message) {
  if (!error)
    error = Error{pos, std::move(message), ExitCode::Unsupported};
  return false;
}

bool Analyzer::failLimit(SourcePos pos, std::string message) {
  if (!error)
    error = Error{pos, std::move(message), ExitCode::Limit};
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
  if (options.storage && !isFloat(*options.storage))
    return fail(ast.name.pos, "found dtype " + nameOf(*options.storage).str() +
                                  " for real arguments and outputs, expected "
                                  "a real one");
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

/// What the caller fixes wrongly is no mistake of the program's.
bool Analyzer::applyOptions() {
  bool isApplied = applyDims();
  if (!isApplied)
    error->code = ExitCode::Usage;
  return isApplied;
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

bool Analyzer::checkSize(const std::vector<AxisId> &axes, int64_t limit,
                         std::string_view limitText, SourcePos pos,
                         const std::string &of) {
  int64_t size = 1;
  for (AxisId axis : axes) {
    int64_t extent =
        std::max<int64_t>(program.fixedExtent(axis).value_or(1), 1);
    if (extent > limit / size)
      return failLimit(pos, "found more than " + std::string(limitText) + of +
                                ", expected fewer");
    size *= extent;
  }
  return true;
}

/// Sizes that are known are bounded, so that no product of extents overflows:
/// arrays of the program, those of nested reducers and keys, loops.
bool Analyzer::checkSizes() {
  const std::string elements = "2^48 elements", steps = "2^60 steps";
  for (const Variable &value : program.values)
    if (!checkSize(value.axes, kMaxElements, elements, value.pos,
                   " in " + quoted(value.name)))
      return false;
  std::vector<const Node *> keys;
  for (const Statement &statement : program.statements)
    if (statement.topk)
      keys.push_back(&program.nodes[statement.root]);
  for (const Node &node : program.nodes) {
    if (node.kind != NodeKind::Reduce)
      continue;
    const Node &operand = program.nodes[node.operands[0]];
    if (node.reducer == ReducerKind::ArgMax ||
        node.reducer == ReducerKind::ArgMin)
      keys.push_back(&operand);
    if (node.axes.size() > kMaxAxesOfValue)
      return failLimit(node.pos, "found " + std::to_string(node.axes.size()) +
                                     " axes of a reduction, expected at most " +
                                     std::to_string(kMaxAxesOfValue));
    std::vector<AxisId> loops = node.axes;
    loops.insert(loops.end(), node.reduced.begin(), node.reduced.end());
    if (!checkSize(node.axes, kMaxElements, elements, node.pos,
                   " in a reduction") ||
        !checkSize(loops, kMaxSteps, steps, node.pos, " of a reduction"))
      return false;
  }
  for (const Node *node : keys)
    if (!checkSize(node->axes, kMaxElements, elements, node->pos, " of keys"))
      return false;
  return true;
}

Result<Program> Analyzer::run() {
  program.name = ast.name.text;
  bool ok =
      declareValues() && declareAxes() && applyOptions() && declareArguments();
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
