// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The text of a row kernel: its head, what it shares, its entries.
#include "RowPrinter.h"
#include "TilePrinter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

//===----------------------------------------------------------------------===//
// What is launched
//===----------------------------------------------------------------------===//

void RowPrinter::findGrid() {
  CascadeOp op = plan.cascade;
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

void RowPrinter::printHead() {
  printOrigin();
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
  printIncludes();
}

void RowPrinter::printRowPointers() {
  CascadeOp op = plan.cascade;
  printRowIndices();
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
  findGrid();
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
  if ((*plan)->inner) {
    auto tiles = findTiles(**plan);
    if (failed(tiles))
      return failure();
    TileKernel again = *tiles;
    TilePrinter first(*tiles, options);
    if (failed(first.print()))
      return failure();
    return TilePrinter(again, options, first.body).print();
  }
  auto kernel = findRows(**plan);
  if (failed(kernel))
    return failure();
  RowKernel again = *kernel;
  RowPrinter first(*kernel, options);
  first.print();
  return RowPrinter(again, options, first.body).print();
}
