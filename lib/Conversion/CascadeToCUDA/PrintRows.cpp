// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The text of a row kernel: its head, its body, its entries.
#include "RowPrinter.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

//===----------------------------------------------------------------------===//
// The head
//===----------------------------------------------------------------------===//

void RowPrinter::printHead() {
  printOrigin();
  if (kernel.product)
    return printProductHead();
  out.comment(
      "Launch   a row for each of " + rowCount() +
      ", kRows of them a block of kThreads * kRows threads; an entry "
      "_rowsTxVxW takes rows of at most T * V * W elements, _chunksTxVxW "
      "any; W > 1: rows begin at multiples of 16 bytes and are whole "
      "vectors. The first entry that takes the rows is launched.");
  if (kernel.isColumns)
    out.comment(
        "         T is 1: a thread has a row of its own; threads beside "
        "each other have neighbours of the last index." +
        std::string(hasColumnLanes ? " Of others T warps have parts of "
                                     "kRows such rows."
                                   : ""));
  if (hasShared)
    out.comment(
        "         _sharedTxVxW keeps rows in shared memory, "
        "_splitTxVxW all but the first T * V * W elements of longer ones; "
        "a launch has any number of blocks.");
  if (hasClusters)
    out.comment("         _clusterBxTxVxW is _shared of rows that B blocks "
                "have together: as many times the blocks, each a part.");
  if (hasRings)
    out.comment(
        "         _ringBxTxVxW is the same of rows of which a block has a "
        "chunk; it keeps what all rows read for that, and has its next "
        "row on its way; a launch has as many clusters of B blocks as "
        "run at once.");
  if (hasParts)
    out.comment("         _partsTxVxW takes few " +
                std::string(hasColumnLanes
                                ? "rows, of kRows of them a part a block. They "
                                  "leave states in the workspace and take a "
                                  "ticket of these rows; "
                                : "long rows, of each a part a block. They "
                                  "leave states in the workspace and take a "
                                  "ticket of the row; ") +
                std::string(hasSweep() ? "when all have, each merges them and "
                                         "sweeps its part again."
                                       : "the last one merges them."));
  if (hasLanes)
    out.comment("         _lanesTxVxW brings rows to shared memory, where "
                "every lane has one for itself" +
                std::string(hasPicked
                                ? "; _lanesTxVxWxP chooses lists by the best "
                                  "of P elements each."
                                : "."));
  if (!hasStates())
    out.comment("No reduction: every element is computed on its own.");
  printIncludes(hasClusters ? "refold_cuda_clusters.h" : "");
}

void RowPrinter::printRowPointers(
    llvm::function_ref<bool(const RowRead &)> isWanted) {
  CascadeOp op = plan.cascade;
  if (!kernel.product) // whose rows the block knows
    printRowIndices(bool(isWanted));
  for (auto &[node, read] : kernel.reads) {
    if ((isWanted && !isWanted(read)) || kernel.isProduct(node))
      continue;
    auto readOp = cast<ReadOp>(node->op);
    unsigned operand = cast<BlockArgument>(readOp.getSource()).getArgNumber() -
                       op.numIndices();
    std::string at =
        values.offset(operand, readOp.getMap(), node->in, 1 + read.group.dims);
    std::string type = storedType(node->type);
    out.line("const " + type + " *const " + read.row + " = " +
             kernel.operandNames[operand] + at + ";");
  }
}

/// What the states and the results ask of a row but its elements.
void RowPrinter::printRow() {
  std::string ofPart = !hasParts ? ""
                       : hasSweep() || kernel.isColumns
                           ? "kIsPart ? block_quotient(block(), row_parts) : "
                           : "kIsPart ? block() / row_parts : ";
  if (hasColumnLanes) {
    out.line("const int lane = kThreads > 1 ? thread() / kRows : 0;");
    out.line("const int64_t group = " + ofPart + "block();");
    out.line("int64_t row = group * kRows + thread() % kRows;");
  } else {
    out.line("const int lane = thread() % kThreads;");
    std::string block =
        hasClusters ? "block() / kBlocks * kRows" : "block() * kRows";
    out.line("int64_t row = " + ofPart + block + " + thread() / kThreads;");
  }
  out.line("const bool is_row = row < " + rowCount() + ";");
  if (hasColumnLanes) {
    out.comment("What is left of a block does row 0 again and writes nothing.");
  } else {
    out.line("// A warp leaves as a whole; what is left of one does row 0 "
             "again and writes nothing.");
    out.line("if (kThreads >= 32 && !is_row)");
    out.line("  return;");
  }
  out.line("row = is_row ? row : 0;");
  if (hasParts && hasSweep())
    printRowTickets();
}

/// Whether the states need such an array.
bool RowPrinter::foldsTables() {
  return llvm::any_of(kernel.reads, [](auto &read) {
    return read.second.isShared && read.second.isFolded;
  });
}

std::string RowPrinter::rowCount() {
  std::string rows;
  for (unsigned row : kernel.rows)
    rows += (rows.empty() ? "" : " * ") + kernel.indexNames[row] + "_count";
  return rows.empty() ? "1" : rows;
}

void RowPrinter::printChunk() {
  out.line("/// What a thread has read of a row: vector i is at column "
           "(i * kThreads + lane) * kWidth.");
  out.open("template <int kVectors, int kWidth> struct Chunk {");
  if (hasLanes)
    out.line("static constexpr int kCount = kVectors;");
  for (auto &[node, read] : kernel.reads)
    if (read.isFolded)
      out.line("Vector<" + storedType(node->type) + ", " +
               read.times("kWidth") + "> " + read.name + "[kVectors];");
  out.close("};");
  out.blank();
}

/// What the stream indices are at an element of the row.
void RowPrinter::printStreamIndices(const std::string &at) {
  std::string rest = at;
  auto print = [&](unsigned index, const std::string &number) {
    out.line("[[maybe_unused]] const int64_t " + kernel.indexNames[index] +
             " = " + number + ";");
  };
  if (kernel.outer.empty())
    return print(kernel.stream, at);
  out.line("const Along along_" + kernel.indexNames[kernel.stream] + "(" + at +
           ", " + kernel.indexNames[kernel.stream] + "_count);");
  print(kernel.stream,
        "along_" + kernel.indexNames[kernel.stream] + ".remainder");
  rest = "along_" + kernel.indexNames[kernel.stream] + ".quotient";
  for (unsigned index : llvm::reverse(kernel.outer)) {
    std::string along = "along_" + kernel.indexNames[index];
    if (index == kernel.outer.front())
      return print(index, rest);
    out.line("const Along " + along + "(" + rest + ", " +
             kernel.indexNames[index] + "_count);");
    print(index, along + ".remainder");
    rest = along + ".quotient";
  }
}

/// A loop over the vectors of a chunk; closed by its caller.
void RowPrinter::openVectors(const std::string &vectors) {
  out.line("REFOLD_UNROLL");
  out.open("for (int v = 0; v < " + vectors + "; ++v) {");
  out.line("const Column column = first + (v * kThreads + lane) * kWidth;");
  out.line("if (whole.value == 0 && column >= " + end() + ")");
  out.line("  continue;");
}

void RowPrinter::printLoad() {
  // Lists leave no registers for a second way; blocks that share a row were 8 %
  // slower with one (variance of 16M f32 on an H200: 23.5 us against 21.8).
  bool isSplit = !kernel.product && listWords() == 0;
  out.open(
      "const auto load = [&]([[maybe_unused]] auto &chunk, Column first) {");
  if (isSplit)
    out.open("const auto each = [&](auto whole) {");
  else
    out.line("constexpr Number<0> whole{};");
  openVectors();
  for (auto &[node, read] : kernel.reads)
    if (kernel.isProduct(node))
      out.line("chunk." + read.name +
               "[v] = load_sums<kWidth>(own_sums, column);");
    else if (read.isFolded)
      out.line("chunk." + read.name + "[v] = load_vector<" +
               read.times("kWidth") + ", " + read.policy() + ">(" + read.row +
               " + " + read.times("column") + ");");
  out.close();
  if (isSplit) {
    out.close("};");
    out.comment("One address is enough for vectors that are all there.");
    out.line("if (kPlace != InParts && kVectors > 1 && first + kChunk <= " +
             count() + ")");
    out.line("  each(Number<1>{});");
    out.line("else");
    out.line("  each(Number<0>{});");
  }
  out.close("};");
}

/// Names of the elements at v and e, for what is evaluated there.
void RowPrinter::bindElements(bool isFolded) {
  for (auto &[node, read] : kernel.reads) {
    std::string vector = read.isFolded && !isApart(read)
                             ? "chunk." + read.name + "[v]"
                             : read.name + "_v";
    if (isFolded && !read.isFolded)
      continue;
    auto bind = [&](Node *n, const std::string &at) {
      std::string text = vector + ".get(" + at + ")";
      values.bind(n, n->type.isInteger(1) ? "(" + text + " != 0)" : text);
    };
    if (read.group.size == 1) {
      bind(node, "e");
      continue;
    }
    for (auto &[part, of] : kernel.parts)
      if (of.first == node)
        bind(part, read.times("e") + " + " + std::to_string(of.second));
  }
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

void RowPrinter::printBody() {
  if (kernel.product)
    out.line("template <typename U, int kCopied, int kThreads, int kVectors, "
             "int kWidth, int64_t kSharedBytes, Place kPlace>");
  else
    out.line("template <int kThreads, int kRows, int kVectors, int kWidth, "
             "Place kPlace" +
             std::string(hasClusters ? ", int kBlocks = 1" : "") +
             (hasRings    ? ", int kAhead = 0>"
              : hasStages ? ", int kStages = 0>"
              : hasPicked ? ", int kPicked = kWidth>"
                          : ">"));
  out.open("REFOLD_DEVICE void " + options.name + "(" + typedParameters +
           ") {");
  size_t begin = out.text.size();
  for (unsigned i = 0; i < plan.cascade.numIndices(); ++i)
    if (extentOf(i).operand < 0 && isNamed(kernel.indexNames[i] + "_count"))
      out.line("[[maybe_unused]] constexpr int64_t " + kernel.indexNames[i] +
               "_count = " + std::to_string(plan.extent(i)) + ";");
  for (unsigned rank : kernel.ranks)
    if (plan.extent(rank) == 1)
      out.line("[[maybe_unused]] constexpr int64_t " + kernel.indexNames[rank] +
               " = 0;");
  if (!kernel.outer.empty()) {
    std::string all;
    for (unsigned outer : kernel.outer)
      all += kernel.indexNames[outer] + "_count * ";
    out.line("using Column = int64_t;");
    out.line("const Column row_length = " + all +
             kernel.indexNames[kernel.stream] + "_count;");
  } else if (kernel.isColumns || kernel.product) {
    out.line("using Column = int64_t;");
  } else {
    out.line("using Column = ColumnOf<kPlace>;");
  }
  if (hasStream() && kernel.outer.empty() && !kernel.product)
    out.line("const Column row_length = Column(" +
             kernel.indexNames[kernel.stream] + "_count);");
  out.line("constexpr Column kChunk = Column(kThreads) * kVectors * kWidth;");
  out.line("[[maybe_unused]] constexpr int kParts = 4; // sums a thread keeps "
           "apart");
  if (hasColumnLanes)
    out.line(
        "constexpr int kRest = kVectors / 2; // vectors at once of what is "
        "no whole chunk");
  Expressions::Scope scope(values, {});
  if (hasParts)
    printPart();
  if (kernel.product) {
    printProduct();
    printProductRow();
  } else {
    printRow();
  }
  if (hasShared) {
    printMailbox(/*isOpening=*/true);
    printKept();
    printMailbox(/*isOpening=*/false);
    out.open("do {");
  }
  if (hasLanes)
    printLanes();
  printRowPointers();
  if (hasStream()) {
    if (hasStates())
      out.line("[[maybe_unused]] States s;");
    printLists();
    out.line("Chunk<kVectors, kWidth> chunk;");
    if (!hasColumnLanes)
      printLoad();
    if (hasShared)
      printFetch();
    if (hasStages)
      printStages();
    printFoldedTables();
    if (hasLanes)
      printFetchOwn();
  }
  if (hasShared)
    out.line("[[maybe_unused]] Chunk<kVectors, kWidth> held;");
  for (unsigned pass = 0; pass < plan.passes.size(); ++pass)
    if (!statesOf(pass).empty() || !listsOf(pass).empty())
      printPass(pass);
  printResults();
  while (!rowScopes.empty())
    rowScopes.pop_back();
  if (hasShared) {
    out.line("row += " + rowStep() + ";");
    out.line("turn = kThreads / 32 - turn;");
    if (hasRings)
      printNextPlace();
    out.close("} while (kIsShared && row < " + rowCount() + ");");
  }
  if (kernel.product)
    out.close();
  body = out.text.substr(begin);
  out.close();
  out.line("} // namespace");
}

void RowPrinter::printEntries() {
  static constexpr llvm::StringLiteral kPlaces[] = {
      "Nowhere", "InRegisters", "InShared", "Split", "InRing", "InLanes"};
  for (const CudaEntry &entry : result.entries) {
    out.blank();
    std::string threads =
        std::to_string(entry.threads * (kernel.product ? 1 : entry.rows));
    std::string place = entry.hasParts() && !kernel.product
                            ? "InParts"
                            : kPlaces[entry.place].str();
    // Left alone, ptxas spills to have ten blocks of 64 threads.
    bool isHeld = isWide && entry.threads * entry.rows == 64;
    // What sums and rows take is no matter of how many blocks fit.
    out.line(entry.blocks > 1 ? "REFOLD_CLUSTER_KERNEL(" + threads + ", " +
                                    std::to_string(entry.blocksPerUnit) + ", " +
                                    std::to_string(entry.blocks) + ")"
             : kernel.product ? "REFOLD_UNIT_KERNEL(" + threads + ", 1)"
             : entry.blocksPerUnit == 0 && isHeld
                 ? "REFOLD_UNIT_KERNEL(" + threads + ", 8)"
             : entry.blocksPerUnit == 0
                 ? "REFOLD_KERNEL(" + threads + ")"
                 : "REFOLD_UNIT_KERNEL(" + threads + ", " +
                       std::to_string(entry.blocksPerUnit) + ")");
    out.open(entry.name + "(" + typedParameters + ") {");
    printLaunch();
    std::string shape = kernel.product ? productArguments(entry)
                                       : std::to_string(entry.threads) + ", " +
                                             std::to_string(entry.rows) + ", " +
                                             std::to_string(entry.vectors) +
                                             ", " + std::to_string(entry.width);
    if (entry.blocks > 1 || (entry.ahead > 0 && hasClusters))
      place += ", " + std::to_string(entry.blocks);
    if (entry.ahead > 0 || entry.stages > 0)
      place += ", " + std::to_string(entry.ahead + entry.stages);
    if (entry.picked > 0)
      place += ", " + std::to_string(entry.picked);
    out.line(options.name + "<" + shape + ", " + place + ">(" +
             plainParameters + ");");
    out.close();
  }
}

CudaKernel RowPrinter::print() {
  findParameters();
  findGrid();
  chooseEntries();
  if (hasParts || kernel.product)
    addParts();
  printHead();
  printStates();
  if (hasStream())
    printChunk();
  printBody();
  printEntries();
  result.text = std::move(out.text);
  return std::move(result);
}
