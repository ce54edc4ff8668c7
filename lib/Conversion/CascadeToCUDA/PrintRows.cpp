// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The text of a row kernel: its head, what it shares, its entries.
#include "RowPrinter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

//===----------------------------------------------------------------------===//
// What is launched
//===----------------------------------------------------------------------===//

CudaExtent RowPrinter::extentOf(unsigned index) {
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
bool RowPrinter::isNamed(StringRef parameter) {
  if (earlier.empty())
    return true;
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

void RowPrinter::addParameter(CudaParameter parameter, const std::string &type,
                              const std::string &name) {
  if (!isNamed(name))
    return;
  result.parameters.push_back(parameter);
  bool isFirst = plainParameters.empty();
  plainParameters += (isFirst ? "" : ", ") + name;
  typedParameters += (isFirst ? "" : ", ") + type + name;
}

void RowPrinter::findParameters() {
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
    for (unsigned dim = 0; dim < operand.rank; ++dim)
      addParameter({CudaParameter::Stride, unsigned(i), dim}, "int64_t ",
                   kernel.operandNames[i] + "_stride" + std::to_string(dim));
  for (unsigned row : kernel.rows)
    result.rows.push_back(extentOf(row));
  if (hasStream())
    result.stream = extentOf(kernel.stream);
  auto hasVectors = [&](Value argument) {
    unsigned i = cast<BlockArgument>(argument).getArgNumber() - op.numIndices();
    result.operands[i].hasVectors = true;
  };
  for (auto &read : kernel.reads)
    hasVectors(cast<ReadOp>(read.first->op).getSource());
  for (auto *writes : {&plan.finishWrites, &plan.sweepWrites})
    for (WritePlan &w : *writes)
      if (hasStream() && (w.set & bit(kernel.stream)))
        hasVectors(w.op.getTarget());
}

/// Rows that fit stay in registers; the shorter, the fewer threads share one.
/// Longer ones are read in chunks, the next one on its way while one is folded:
/// those without results along the row soon, since nobody reads them twice.
/// Numbers of threads are what was fastest on an H200 (docs/targets/cuda.md).
void RowPrinter::chooseEntries() {
  // Registers for what a thread has read of a row; two rows have more states.
  int numFolded = llvm::count_if(
      kernel.reads, [](auto &read) { return read.second.isFolded; });
  int budget = numFolded > 1 ? 16 : 32;
  int width =
      std::clamp<int>(16 / std::max<int64_t>(kernel.narrowest, 1), 1, 8);
  int words = 0;
  for (auto &[node, read] : kernel.reads)
    if (read.isFolded)
      words += std::max<int>(1, width * bytesOf(node->type) / 4);
  int most = std::clamp(budget / std::max(words, 1), 1, 8);
  auto add = [&](int threads, int rows, int vectors, int width, bool isResident,
                 int64_t longest = -1) {
    CudaEntry entry{"", threads, rows, vectors, width, isResident, longest};
    if (isResident)
      entry.longest = entry.chunk();
    entry.name = options.name + (isResident ? "_rows" : "_chunks") +
                 std::to_string(threads) + "x" + std::to_string(vectors) + "x" +
                 std::to_string(width);
    bool isKnown = llvm::any_of(result.entries, [&](const CudaEntry &other) {
      return other.name == entry.name;
    });
    if (!isKnown)
      result.entries.push_back(entry);
  };
  if (width > 1) {
    add(8, 16, std::max(most / 4, 1), width, true);
    add(8, 16, std::max(most / 2, 1), width, true);
    add(32, 4, std::max(most / 4, 1), width, true);
    add(32, 4, std::max(most / 2, 1), width, true);
    add(32, 4, most, width, true);
    add(64, 1, most, width, true);
    if (hasSweep()) {
      add(128, 1, most, width, true);
      add(256, 1, most, width, true);
      add(512, 1, most, width, true);
      add(1024, 1, std::max(most / 8, 1), width, false);
    } else {
      add(128, 1, std::max(most / 4, 1), width, false, 65536);
      add(256, 1, std::max(most / 4, 1), width, false);
    }
  }
  add(32, 4, 8, 1, true);
  add(256, 1, 8, 1, true);
  add(256, 1, 4, 1, false);
}

//===----------------------------------------------------------------------===//
// The head
//===----------------------------------------------------------------------===//

std::string RowPrinter::describeRead(ReadOp read) {
  CascadeOp op = plan.cascade;
  std::string text =
      kernel.operandNames[cast<BlockArgument>(read.getSource()).getArgNumber() -
                          op.numIndices()];
  std::string inside;
  for (AffineExpr expr : read.getMap().getResults()) {
    std::string subscript = "...";
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      subscript = describe(read.getIndices()[dim.getPosition()], 3);
    inside += (inside.empty() ? "" : ", ") + subscript;
  }
  return text + "[" + inside + "]";
}

/// A formula for people, cut where it nests deeply.
std::string RowPrinter::describe(Value value, unsigned depth) {
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

void RowPrinter::describeOperands(bool areResults) {
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

void RowPrinter::printHead() {
  out.comment("refold, --target " + options.target +
              ". Generated; do not edit.");
  if (!options.source.empty())
    out.comment("From " + options.source);
  for (StatePlan &s : plan.states) {
    std::string text = "Fuses    " + name(s) + " = " +
                       stringifyReducer(s.op.getReducer()).str() + " over " +
                       kernel.indexNames[kernel.stream] + " of " +
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
  std::string rows;
  for (unsigned row : kernel.rows)
    rows += (rows.empty() ? "" : " * ") + kernel.indexNames[row] + "_count";
  out.comment(
      "Launch   a row for each of " + (rows.empty() ? "1" : rows) +
      ", kRows of them a block of kThreads * kRows threads; an entry "
      "_rowsTxVxW takes rows of at most T * V * W elements, _chunksTxVxW "
      "any; W > 1: rows begin at multiples of 16 bytes and are whole "
      "vectors. The first entry that takes the rows is launched.");
  if (!hasStates())
    out.comment("No reduction: every element is computed on its own.");
  out.line("#include \"refold_cuda.h\"");
  out.blank();
  out.line("using namespace refold;");
  out.blank();
  out.line("namespace {");
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

void RowPrinter::printStates() {
  if (!hasStates())
    return;
  out.line("/// What a thread, and at the end every thread, knows of its row.");
  out.open("struct States {");
  for (StatePlan &s : plan.states)
    out.line(valueType(s.type()) + " " + name(s) + " = " + identity(s) + ";");
  out.close("};");
  out.blank();
}

void RowPrinter::printRowPointers() {
  CascadeOp op = plan.cascade;
  unsigned last = kernel.rows.empty() ? 0 : kernel.rows.front();
  std::string rest = "row";
  for (unsigned index : llvm::reverse(kernel.rows)) {
    std::string count = kernel.indexNames[index] + "_count";
    bool isOutermost = index == last;
    out.line("const int64_t " + kernel.indexNames[index] + " = " + rest +
             (isOutermost ? ";" : " % " + count + ";"));
    rest = (rest == "row" ? rest : "(" + rest + ")") + " / " + count;
  }
  for (auto &[node, read] : kernel.reads) {
    auto readOp = cast<ReadOp>(node->op);
    unsigned operand = cast<BlockArgument>(readOp.getSource()).getArgNumber() -
                       op.numIndices();
    std::string at = values.offset(operand, readOp.getMap(), node->in, true);
    std::string type = storedType(node->type);
    out.line("const " + type + " *const " + read.row + " = " +
             kernel.operandNames[operand] + at + ";");
  }
}

/// What the states and the results ask of a row but its elements.
void RowPrinter::printRow() {
  out.line("const int lane = thread() % kThreads;");
  out.line("int64_t row = block() * kRows + thread() / kThreads;");
  std::string rows;
  for (unsigned row : kernel.rows)
    rows += (rows.empty() ? "" : " * ") + kernel.indexNames[row] + "_count";
  out.line("const bool is_row = row < " + (rows.empty() ? "1" : rows) + ";");
  out.line("// A warp leaves as a whole; what is left of one does row 0 again "
           "and writes nothing.");
  out.line("if (kThreads >= 32 && !is_row)");
  out.line("  return;");
  out.line("row = is_row ? row : 0;");
  printRowPointers();
}

void RowPrinter::printChunk() {
  out.line("/// What a thread has read of a row: vector i is at column "
           "(i * kThreads + lane) * kWidth.");
  out.open("template <int kVectors, int kWidth> struct Chunk {");
  for (auto &[node, read] : kernel.reads)
    if (read.isFolded)
      out.line("Vector<" + storedType(node->type) + ", kWidth> " + read.name +
               "[kVectors];");
  out.close("};");
  out.blank();
}

/// A loop over the vectors of a chunk; closed by its caller.
void RowPrinter::openVectors(bool isChecked) {
  out.line("REFOLD_UNROLL");
  out.open("for (int v = 0; v < kVectors; ++v) {");
  out.line("const int64_t column = first + (v * kThreads + lane) * kWidth;");
  out.line(std::string("if (") + (isChecked ? "" : "whole.value == 0 && ") +
           "column >= " + count() + ")");
  out.line("  continue;");
}

void RowPrinter::printLoad() {
  out.open("const auto load = [&](auto &chunk, int64_t first) {");
  openVectors(true);
  for (auto &[node, read] : kernel.reads)
    if (read.isFolded)
      out.line("chunk." + read.name + "[v] = load_vector<kWidth, " +
               (read.isShared ? "Reuse" : "Stream") + ">(" + read.row +
               " + column);");
  out.close();
  out.close("};");
}

/// Names of the elements at v and e, for what is evaluated there.
void RowPrinter::bindElements(bool isFolded) {
  for (auto &[node, read] : kernel.reads) {
    std::string vector =
        read.isFolded ? "chunk." + read.name + "[v]" : read.name + "_v";
    if (isFolded && !read.isFolded)
      continue;
    std::string text = vector + ".get(e)";
    values.bind(node, node->type.isInteger(1) ? "(" + text + " != 0)" : text);
  }
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

void RowPrinter::printBody() {
  out.line("template <int kThreads, int kRows, int kVectors, int kWidth, bool "
           "kIsResident>");
  out.open("REFOLD_DEVICE void " + options.name + "(" + typedParameters +
           ") {");
  size_t begin = out.text.size();
  for (unsigned i = 0; i < plan.cascade.numIndices(); ++i)
    if (extentOf(i).operand < 0 && isNamed(kernel.indexNames[i] + "_count"))
      out.line("[[maybe_unused]] constexpr int64_t " + kernel.indexNames[i] +
               "_count = " + std::to_string(plan.extent(i)) + ";");
  out.line("constexpr int64_t kChunk = int64_t(kThreads) * kVectors * kWidth;");
  out.line("[[maybe_unused]] constexpr int kParts = 4; // sums a thread keeps "
           "apart");
  Expressions::Scope scope(values, {});
  printRow();
  if (hasStream()) {
    if (hasStates())
      out.line("States s;");
    out.line("Chunk<kVectors, kWidth> chunk;");
    printLoad();
  }
  for (unsigned pass = 0; pass < plan.passes.size(); ++pass)
    if (!statesOf(pass).empty())
      printPass(pass);
  printResults();
  body = out.text.substr(begin);
  out.close();
  out.line("} // namespace");
}

void RowPrinter::printEntries() {
  for (const CudaEntry &entry : result.entries) {
    out.blank();
    out.line("REFOLD_KERNEL(" + std::to_string(entry.threads * entry.rows) +
             ")");
    out.open(entry.name + "(" + typedParameters + ") {");
    out.line(options.name + "<" + std::to_string(entry.threads) + ", " +
             std::to_string(entry.rows) + ", " + std::to_string(entry.vectors) +
             ", " + std::to_string(entry.width) + ", " +
             (entry.isResident ? "true" : "false") + ">(" + plainParameters +
             ");");
    out.close();
  }
}

CudaKernel RowPrinter::print() {
  findParameters();
  chooseEntries();
  printHead();
  printStates();
  if (hasStream())
    printChunk();
  printBody();
  printEntries();
  result.text = std::move(out.text);
  return std::move(result);
}

FailureOr<CudaKernel> refold::printCascadeAsCuda(func::FuncOp function,
                                                 const CudaOptions &options) {
  CascadeOp cascade;
  function.walk([&](CascadeOp op) { cascade = op; });
  if (!cascade)
    return function.emitError("found no cascade in the kernel"), failure();
  auto plan = makePlan(cascade, TargetFacts::scalar());
  if (failed(plan))
    return failure();
  auto kernel = findRows(**plan);
  if (failed(kernel))
    return failure();
  RowKernel again = *kernel;
  RowPrinter first(*kernel, options);
  first.print();
  return RowPrinter(again, options, first.body).print();
}
