// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_FRONTEND_FOLD_ANALYZER_H
#define REFOLD_LIB_FRONTEND_FOLD_ANALYZER_H

#include "refold/Frontend/Fold/Program.h"
#include <map>
#include <set>

namespace refold::fold {

/// From syntax tree to program. A member that returns bool sets `error` when it
/// returns false. Declarations are in Analyzer.cpp, definitions in
/// Statements.cpp, expressions in Expressions.cpp, their types in Types.cpp,
/// ranges of subscripts in Ranges.cpp.
class Analyzer {
public:
  Analyzer(const Ast &ast, const Options &options)
      : ast(ast), options(options) {}
  Result<Program> run();

private:
  bool fail(SourcePos pos, std::string message);
  bool failLimit(SourcePos pos, std::string message);
  bool failUnsupported(SourcePos pos, std::string message);

  // Names.
  bool declareValues();
  bool declareAxes();
  bool declareAxis(const Name &name);
  bool fixExtent(AxisId axis, int64_t extent, SourcePos pos);
  bool applyDims();
  bool applyOptions();
  bool declareArguments();
  bool checkExtents();
  bool checkSizes();
  bool checkSize(const std::vector<AxisId> &axes, int64_t limit,
                 std::string_view limitText, SourcePos pos,
                 const std::string &of);
  bool findAxis(const Name &name, AxisId &axis);
  std::string suggest(const std::string &name) const;
  DType storageOf(std::optional<DType> written) const;

  // Statements.
  bool addStatement(const Definition &definition);
  bool addTopK(const Definition &definition);
  bool parseTopK(const Definition &definition, TopK &topk, NodeId &root);
  bool findRankAxis(const Target &written, const std::vector<AxisId> &free,
                    TopK &topk);
  bool checkAxes(const Target &target, const std::vector<AxisId> &free,
                 std::vector<AxisId> &axes);
  ValueId addValue(const Name &name, DType dtype, std::vector<AxisId> axes);
  bool addOutputs();
  bool addOutput(const OutputDecl &output);
  Statement *definitionOf(ValueId value);

  // Expressions.
  bool visit(ExprId id, NodeId &result);
  bool visitName(const Expr &expr, NodeId &result);
  bool visitSubscript(const Expr &expr, NodeId &result);
  bool addSubscript(const Expr &expr, Node &node, const Variable &value);
  bool visitCall(const Expr &expr, NodeId &result);
  bool visitLen(const Expr &expr, NodeId &result);
  bool visitReduce(const Expr &expr, NodeId &result);
  bool divideByExtents(const std::vector<AxisId> &axes, SourcePos pos,
                       NodeId &result);
  bool visitReducedAxes(const Expr &expr, std::vector<AxisId> &axes);
  bool unknownCall(const Expr &expr);
  bool addApply(Op op, SourcePos pos, std::vector<NodeId> operands,
                NodeId &result);
  bool inferApply(Node &node);
  bool inferLogic(Node &node);
  bool inferIntegerDivision(Node &node);
  bool fold(Op op, SourcePos pos, const std::vector<NodeId> &operands,
            NodeId &result);
  bool requireBool(NodeId operand, std::string_view of);
  bool requireInteger(NodeId operand, std::string_view of);
  DType promote(NodeId a, NodeId b) const;
  DType promoteNumber(NodeId a) const;
  DType realOf(DType dtype) const;
  bool isWhole(NodeId node) const;
  std::string typeText(NodeId node) const;
  NodeId addRead(ValueId value, SourcePos pos);
  NodeId add(Node node);

  // Subscripts.
  bool classifyBounds();
  bool classifyBound(Node &read, size_t position);
  bool isOfShapes(NodeId node) const;
  bool visitsEmptyAxis(NodeId node) const;

  const Ast &ast;
  const Options &options;
  Program program;
  DType defaultReal = DType::F32;
  std::map<std::string, SourcePos> valueNames; ///< of the whole file
  std::map<std::string, AxisId> axisNames;
  std::map<std::string, ValueId> latest;
  std::optional<Error> error;
};

std::string quoted(std::string_view text);
/// "1 operand", "2 operands".
std::string counted(size_t count, std::string noun);
/// "[b, h, m]".
std::string axisList(const Program &program, const std::vector<AxisId> &axes);
/// Adds the free axes of an operand.
void uniteAxes(Node &node, const Node &operand);
bool contains(const std::vector<AxisId> &axes, AxisId axis);

} // namespace refold::fold

#endif // REFOLD_LIB_FRONTEND_FOLD_ANALYZER_H
