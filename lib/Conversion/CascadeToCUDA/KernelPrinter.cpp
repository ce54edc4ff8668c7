// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What all printers of CUDA kernels say: parameters, the head, states.
#include "KernelPrinter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

CudaExtent KernelPrinter::extentOf(unsigned index) {
  CudaExtent extent;
  if (auto place = plan.cascade.sizeOf(index)) {
    extent.operand = place->operand;
    extent.dim = int(place->dim);
  } else {
    extent.constant = plan.extent(index);
  }
  return extent;
}

/// Whether the body says the word at all.
bool KernelPrinter::isNamed(StringRef parameter) {
  return earlier.empty() || isNamedIn(earlier, parameter);
}

bool KernelPrinter::isNamedIn(StringRef earlier, StringRef parameter) {
  auto isWord = [](char c) { return llvm::isAlnum(c) || c == '_'; };
  for (size_t at = 0; (at = earlier.find(parameter, at)) != StringRef::npos;
       ++at) {
    StringRef behind = earlier.substr(at + parameter.size());
    if ((at == 0 || !isWord(earlier[at - 1])) &&
        (behind.empty() || !isWord(behind.front())))
      return true;
  }
  return false;
}

void KernelPrinter::addParameter(CudaParameter parameter,
                                 const std::string &type,
                                 const std::string &name) {
  if (!isNamed(name))
    return;
  result.parameters.push_back(parameter);
  parameters.push_back({type, name});
  bool isFirst = plainParameters.empty();
  plainParameters += (isFirst ? "" : ", ") + name;
  typedParameters += (isFirst ? "" : ", ") + type + name;
}

void KernelPrinter::findParameters() {
  CascadeOp op = plan.cascade;
  unsigned word = 0;
  unsigned numInputs = op.getInputs().size();
  for (auto [i, value] : llvm::enumerate(op->getOperands())) {
    CudaOperand operand;
    operand.word = word;
    operand.isResult = i >= numInputs;
    auto type = dyn_cast<MemRefType>(value.getType());
    operand.isArray = bool(type);
    const std::string &name = kernel.operandNames[i];
    if (type) {
      operand.rank = type.getRank();
      operand.elementBytes = bytesOf(type.getElementType());
      addParameter({CudaParameter::Pointer, unsigned(i), 0},
                   (operand.isResult ? "" : "const ") +
                       storedType(type.getElementType()) + " *",
                   name);
    } else {
      addParameter({CudaParameter::Scalar, unsigned(i), 0},
                   valueType(value.getType()) + " ", name);
    }
    word += type ? 3 + 2 * type.getRank() : 1;
    result.operands.push_back(operand);
  }
  for (unsigned i = 0; i < op.numIndices(); ++i)
    if (CudaExtent extent = extentOf(i); extent.operand >= 0)
      addParameter(
          {extent.dim < 0 ? CudaParameter::Scalar : CudaParameter::Size,
           unsigned(extent.operand), unsigned(std::max(extent.dim, 0))},
          "int64_t ", kernel.indexNames[i] + "_count");
  for (auto [i, operand] : llvm::enumerate(result.operands))
    for (unsigned dim = 0; dim < operand.rank; ++dim) {
      addParameter({CudaParameter::Stride, unsigned(i), dim}, "int64_t ",
                   kernel.operandNames[i] + "_stride" + std::to_string(dim));
      addParameter({CudaParameter::Size, unsigned(i), dim}, "int64_t ",
                   kernel.operandNames[i] + "_size" + std::to_string(dim));
    }
}

std::pair<std::string, std::string>
KernelPrinter::parametersIn(StringRef text) {
  std::string typed, plain;
  for (auto &[type, name] : parameters)
    if (text.empty() || isNamedIn(text, name)) {
      typed += (typed.empty() ? "" : ", ") + type + name;
      plain += (plain.empty() ? "" : ", ") + name;
    }
  return {typed, plain};
}

void KernelPrinter::addParts() {
  addParameter({CudaParameter::Workspace, 0, 0}, "unsigned char *",
               "workspace");
  addParameter({CudaParameter::Tickets, 0, 0}, "uint32_t *", "tickets");
}

std::string KernelPrinter::describeRead(ReadOp read) {
  CascadeOp op = plan.cascade;
  std::string text =
      kernel.operandNames[cast<BlockArgument>(read.getSource()).getArgNumber() -
                          op.numIndices()];
  std::string inside;
  for (AffineExpr expr : read.getMap().getResults()) {
    std::string subscript = "...";
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      subscript = describe(read.getIndices()[dim.getPosition()], 3);
    else if (auto constant = dyn_cast<AffineConstantExpr>(expr))
      subscript = std::to_string(constant.getValue());
    inside += (inside.empty() ? "" : ", ") + subscript;
  }
  return text + "[" + inside + "]";
}

/// A formula for people, cut where it nests deeply.
std::string KernelPrinter::describe(Value value, unsigned depth) {
  if (auto arg = dyn_cast<BlockArgument>(value)) {
    unsigned n = arg.getArgNumber(), indices = plan.cascade.numIndices();
    return n < indices ? kernel.indexNames[n]
                       : kernel.operandNames[n - indices];
  }
  Operation *op = value.getDefiningOp();
  if (auto state = dyn_cast<StateOp>(op))
    return kernel.stateNames[plan.graph->numberOf(state)];
  if (auto read = dyn_cast<ReadOp>(op))
    return describeRead(read);
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return literal(cast<TypedAttr>(constant.getValue()));
  if (auto contract = dyn_cast<ContractOp>(op)) {
    std::string over;
    for (Value index : contract.getOver())
      over += (over.empty() ? "" : ", ") + describe(index);
    return "(sum over " + over + " of " +
           withoutParentheses(describe(op->getOperand(0), depth)) + ")";
  }
  if (isa<ExtentOp>(op))
    return describe(op->getOperand(0)) + "_count";
  if (isa<arith::ExtFOp, arith::TruncFOp, arith::IndexCastOp>(op))
    return describe(op->getOperand(0), depth);
  if (depth >= 5)
    return "...";
  std::string pattern = templateOf(op, false), text;
  for (size_t at = 0; at < pattern.size(); ++at)
    text += pattern[at] == '$'
                ? describe(op->getOperand(pattern[++at] - '0'), depth + 1)
                : std::string(1, pattern[at]);
  return text;
}

void KernelPrinter::describeOperands(bool areResults) {
  CascadeOp op = plan.cascade;
  std::string text;
  for (auto [i, operand] : llvm::enumerate(result.operands)) {
    if (operand.isResult != areResults)
      continue;
    Type type = op->getOperand(i).getType();
    auto memref = dyn_cast<MemRefType>(type);
    text += (text.empty() ? "" : ", ") + kernel.operandNames[i] + ": " +
            valueType(memref ? memref.getElementType() : type);
    if (memref)
      text += " of " + std::to_string(memref.getRank()) + " dimensions";
  }
  out.comment((areResults ? "Results  " : "Inputs   ") + text);
}

void KernelPrinter::printOrigin() {
  out.comment("refold, --target " + options.target +
              ". Generated; do not edit.");
  if (!options.source.empty())
    out.comment("From " + options.source);
  for (StatePlan &s : plan.states) {
    std::string along;
    for (unsigned outer : kernel.outer)
      along += kernel.indexNames[outer] + ", ";
    std::string text = "Fuses    " + name(s) + " = " +
                       stringifyReducer(s.op.getReducer()).str() + " over " +
                       along + kernel.indexNames[kernel.stream] + " of " +
                       withoutParentheses(describe(s.op.getValues()[0]));
    for (Value pivot : s.op.getPivots())
      text += ", relative to " + withoutParentheses(describe(pivot));
    if (s.pass > 0)
      text += ", in pass " + std::to_string(s.pass + 1);
    out.comment(text);
    if (auto law = s.op.getLaw())
      out.comment("         law " + law->str());
  }
  describeOperands(false);
  describeOperands(true);
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

void KernelPrinter::printStates() {
  if (!hasStates())
    return;
  out.line("/// What a thread, and at the end every thread, knows of its row.");
  out.open("struct States {");
  for (StatePlan &s : plan.states)
    if (!s.op.isOrdered())
      out.line(valueType(s.type()) + " " + name(s) + " = " + identity(s) + ";");
  out.close("};");
  out.blank();
}

SmallVector<StatePlan *> KernelPrinter::statesOf(unsigned pass, int level) {
  SmallVector<StatePlan *> states;
  for (StatePlan &s : plan.states)
    if (s.pass == pass && (level < 0 || int(s.level) == level) &&
        !s.op.isOrdered())
      states.push_back(&s);
  return states;
}

std::string KernelPrinter::identity(StatePlan &s) {
  return literal(identityOf(s.op.getReducer(), s.type()));
}

std::string KernelPrinter::combine(StatePlan &s, const std::string &x,
                                   const std::string &y) {
  bool isFloat = isa<FloatType>(s.type()), isBit = s.type().isInteger(1);
  auto call = [&](const char *function) {
    return std::string(function) + "(" + x + ", " + y + ")";
  };
  auto infix = [&](const char *op) { return "(" + x + op + y + ")"; };
  auto wrapped = [&](const char *op) {
    if (isFloat)
      return infix(op);
    std::string wide = wrappingType(s.type());
    return valueType(s.type()) + "(" + wide + "(" + x + ")" + op + wide + "(" +
           y + "))";
  };
  auto choose = [&](const char *op) {
    return "(" + x + op + y + " ? " + x + " : " + y + ")";
  };
  switch (s.op.getReducer()) {
  case Reducer::Add:
    return wrapped(" + ");
  case Reducer::Mul:
    return wrapped(" * ");
  case Reducer::And:
    return infix(isBit ? " && " : " & ");
  case Reducer::Or:
    return infix(isBit ? " || " : " | ");
  case Reducer::Max:
    return isBit ? infix(" || ") : isFloat ? call("max_nan") : choose(" > ");
  case Reducer::Min:
    return isBit ? infix(" && ") : isFloat ? call("min_nan") : choose(" < ");
  case Reducer::MaxNum:
    return call("fmaxf");
  case Reducer::MinNum:
    return call("fminf");
  case Reducer::TopK:
  case Reducer::BottomK:
    break;
  }
  llvm_unreachable("lists are no numbers");
}

void KernelPrinter::printIncludes(StringRef more, StringRef andMore) {
  out.line("#include \"refold_cuda.h\"");
  for (StringRef header : {more, andMore})
    if (!header.empty())
      out.line("#include \"" + header.str() + "\"");
  out.blank();
  out.line("using namespace refold;");
  out.blank();
  out.line("namespace {");
}

/// What the rows' numbers are at `row`.
void KernelPrinter::printRowIndices(bool ofBlocks) {
  unsigned last = kernel.rows.empty() ? 0 : kernel.rows.front();
  std::string rest = "row";
  for (unsigned index : llvm::reverse(kernel.rows)) {
    std::string count = kernel.indexNames[index] + "_count";
    std::string number = index == last ? rest
                         : ofBlocks
                             ? "block_remainder(" + rest + ", " + count + ")"
                             : rest + " % " + count;
    out.line((ofBlocks || kernel.isByPlaces() ? "[[maybe_unused]] " : "") +
             std::string() + "const int64_t " + kernel.indexNames[index] +
             " = " + number + ";");
    rest = ofBlocks ? "block_quotient(" + rest + ", " + count + ")"
                    : (rest == "row" ? rest : "(" + rest + ")") + " / " + count;
  }
}
