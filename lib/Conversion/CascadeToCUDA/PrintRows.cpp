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
  for (unsigned outer : kernel.outer)
    result.outerStreams.push_back(extentOf(outer));
  if (kernel.isByPlaces())
    return;
  auto hasVectors = [&](Value argument) {
    unsigned i = cast<BlockArgument>(argument).getArgNumber() - op.numIndices();
    result.operands[i].hasVectors = true;
  };
  for (auto &[node, read] : kernel.reads) {
    if (kernel.isProduct(node))
      continue;
    Value source = cast<ReadOp>(node->op).getSource();
    hasVectors(source);
    CudaOperand &o =
        result.operands[cast<BlockArgument>(source).getArgNumber() -
                        op.numIndices()];
    o.groupDims = read.group.dims;
    o.group = read.group.size;
  }
  for (auto *writes : {&plan.finishWrites, &plan.sweepWrites})
    for (WritePlan &w : *writes)
      if (hasStream() && (w.set & bit(kernel.stream)))
        hasVectors(w.op.getTarget());
}

void RowPrinter::addEntry(CudaEntry entry) {
  static constexpr llvm::StringLiteral kNames[] = {
      "_chunks", "_rows", "_shared", "_split", "_ring", "_lanes"};
  std::string kind = entry.hasParts() ? "_parts" : kNames[entry.place].str();
  if (entry.blocks > 1)
    kind = (entry.place == CudaEntry::Ring ? "_ring" : "_cluster") +
           std::to_string(entry.blocks) + "x";
  entry.name = options.name + kind + std::to_string(entry.threads) + "x" +
               std::to_string(entry.vectors) + "x" +
               std::to_string(entry.width);
  bool isKnown = llvm::any_of(result.entries, [&](const CudaEntry &other) {
    return other.name == entry.name;
  });
  if (!isKnown)
    result.entries.push_back(entry);
}

/// Rows that fit stay in registers; the shorter, the fewer threads share one.
/// Longer ones are read in chunks, the next one on its way while one is folded:
/// those without results along the row soon, since nobody reads them twice.
/// Numbers of threads are what was fastest on an H200 (docs/targets/cuda.md).
void RowPrinter::chooseEntries() {
  if (kernel.product)
    return chooseProducts();
  // Registers for what a thread has read of a row; two rows have more states.
  int numFolded = llvm::count_if(
      kernel.reads, [](auto &read) { return read.second.isFolded; });
  // Tables are read again where they are not kept: RMSNorm to 8 bits, rows of
  // 4096 on an H200, has 3.3 TB/s in 67 registers and 2.0 from shared memory.
  int budget = numFolded > 1 && !foldsTables() ? 16 : 32;
  int width =
      std::clamp<int>(16 / std::max<int64_t>(kernel.narrowest, 1), 1, 8);
  int words = 0;
  for (auto &[node, read] : kernel.reads)
    if (read.isFolded)
      words += std::max<int>(1, width * read.bytes() / 4);
  bool hasGroups = llvm::any_of(
      kernel.reads, [](auto &read) { return read.second.group.size > 1; });
  words = std::max(words, 1); // 0 where elements are numbers of their places
  int most = std::clamp(budget / words, 1, 8);
  if (foldsTables())
    most = int(llvm::bit_floor(unsigned(most)));
  auto add = [&](int threads, int rows, int vectors, int width, bool isResident,
                 int64_t longest = -1) {
    CudaEntry entry{"", threads, rows, vectors, width, isResident, longest};
    entry.place = isResident ? CudaEntry::Registers : CudaEntry::Nowhere;
    if (isResident)
      entry.longest = entry.chunk();
    addEntry(entry);
  };
  if (kernel.isColumns) {
    // Elements one by one, many on their way at once, and summed by themselves:
    // a thread's sum of a whole row in steps of 8 errs by 5 ulp at 1000
    // elements.
    add(1, 128, 32, 1, false);
    // Left alone, ptxas spills to have nine blocks.
    if (plan.states.size() >= 7 && plan.passes.size() == 1)
      result.entries.back().blocksPerUnit = 8;
    return;
  }
  if (!kernel.outer.empty()) {
    add(32, 4, 8, 1, true);
    addPartsEntry(4, 1);
    add(256, 1, 4, 1, false);
    // Left alone, ptxas spills beside divisions of 64 bits.
    for (CudaEntry &entry : result.entries)
      entry.blocksPerUnit = 2;
    return;
  }
  if (int own = listWords()) {
    // Few lanes a row, since both sides do the work of a merge. Sorting takes
    // another list and what is sorted, so that long ones leave little room.
    int room = own <= 8 ? 64 : own <= 16 ? 32 : 16;
    room /= int(llvm::count_if(plan.states,
                               [](StatePlan &s) { return s.op.isOrdered(); }));
    int held = std::clamp(room / std::max(words, 1), 1, 16);
    if (width > 1) {
      if (mayKeep(width) && !hasSweep()) {
        add(2, 64, 2, width, true); // rows of 64 bytes
        addLanes(width);
      }
      for (int part : {4, 2, 1})
        add(2, 64, std::max(held / part, 1), width, true);
      add(8, 16, std::max(held / 2, 1), width, true);
      add(32, 4, std::max(held / 2, 1), width, true);
      add(128, 1, 2, width, false);
    }
    add(32, 4, 8, 1, true);
    add(256, 1, 4, 1, false);
    // Left alone, ptxas spills to have as many beside other states.
    if (own >= 16 && plan.states.size() > 1)
      result.entries.back().blocksPerUnit = 4;
    return;
  }
  if (width > 1) {
    add(8, 16, std::max(most / 4, 1), width, true);
    add(8, 16, std::max(most / 2, 1), width, true);
    add(32, 4, std::max(most / 4, 1), width, true);
    add(32, 4, std::max(most / 2, 1), width, true);
    add(32, 4, most, width, true);
    // Two simple states leave 64 registers for elements of two arrays.
    bool isSimple = llvm::all_of(plan.states, [](StatePlan &s) {
      return s.op.getTransport().empty() && !s.op.isOrdered();
    });
    isWide = foldsTables() && isSimple && words <= 8 &&
             statesOf(0).size() <= 2 && 64 / words > most;
    if (isWide)
      most = int(llvm::bit_floor(64u / words));
    if (!hasSweep()) {
      // The fewer threads merge their states the better: 64 registers of row.
      int held = foldsTables() ? most : std::clamp(64 / words, most, 16);
      // Terms of more states are under way on sm_80, all at once.
      bool isOld = StringRef(options.target).contains("sm80");
      if (isOld && width == 8 && plan.states.size() >= 7 &&
          plan.passes.size() == 1)
        held = std::min(held, 8);
      for (int threads : {32, 64, 128})
        add(threads, threads == 32 ? 4 : 1, held, width, true);
      // Left alone, ptxas spills to have a fourth block of 128 threads.
      if (width <= 4 && plan.states.size() >= 9 &&
          (plan.passes.size() > 2 || plan.states.size() > 10))
        for (CudaEntry &entry : result.entries)
          if (entry.vectors == held && held * words >= 64)
            entry.blocksPerUnit = 384 / (entry.threads * entry.rows);
    } else {
      bool mayBeWarps = mayKeep(width) && keptBytes() * width == 16;
      // Registers of a row that is not there are idle, and two or three tables
      // leave few that take a short one (RMSNorm to f8 of 2048, TB/s: 2.6 by 64
      // threads that hold 4096, 4.0 so; LayerNorm of 2560 3.4 and 4.0).
      if (mayBeWarps && foldsTables()) {
        addWarps(32, 8, 8 << 10, (7 << 10) / keptBytes() + 1);
        addWarps(32, 4, 10 << 10);
        addWarps(64, 4, 14 << 10);
      } else if (mayBeWarps && readsTables()) {
        addWarps(32, 4, 6 << 10);
      }
      // A warp for a row of as many registers as it has: no barrier, and what
      // it reads and writes lies beside each other (H200, rows of 4096 bf16,
      // TB/s: softmax 4.12 for 4.09, LayerNorm 4.15 for 4.10).
      if (mayBeWarps && !foldsTables() && plan.states.size() <= 4) {
        add(32, 4, 16, width, true);
        result.entries.back().shortest = result.entries.back().longest * 7 / 8;
        result.entries.back().fewestRows = 4096;
      }
      add(64, 1, most, width, true);
      if (mayBeWarps && !readsTables()) // softmax of 5120: 4.1 TB/s for 3.8
        addWarps(32, 4, 16 << 10);
    }
    if (hasSweep()) {
      if (!mayKeep(width) || readsTables())
        add(128, 1, most, width, true);
      if (foldsTables() && !isWide) // 96 registers, of few threads
        add(128, 1, std::max(most, int(llvm::bit_floor(48u / words))), width,
            true);
      // Left alone, ptxas spills to have a fifth block.
      if (foldsTables() && !isWide && words > 8 && plan.states.size() <= 2)
        result.entries.back().blocksPerUnit = 4;
      if (mayKeep(width)) {
        chooseShared(width, words);
      } else {
        add(256, 1, most, width, true);
        add(512, 1, most, width, true);
      }
      // Two chunks and the states have 64 registers, or 128.
      constexpr int kMostWords = 12;
      add(words > kMostWords ? 512 : 1024, 1, std::max(most / 8, 1), width,
          false);
    } else {
      // 16 elements a thread in registers: with more, what 16 bits hold lost a
      // fifth. Of groups 8 columns: what a chunk costs beside its elements, as
      // means that move, is worth more than a fourth block a multiprocessor.
      addPartsEntry(hasGroups ? std::max(8 / width, 1)
                    : mayStage(width)
                        ? std::clamp(16 / words, 1, 4)
                        : std::clamp(16 / width, 1, std::max(most / 2, 1)),
                    width);
      // Two chunks of four vectors, so that what a chunk costs beside its
      // elements is little. The longer, the fewer rows there are: more threads
      // share one, where one array leaves room for two blocks of them.
      int own = std::clamp(32 / words, 1, 4);
      add(128, 1, own, width, false, words <= 4 ? 65536 : -1);
      addStages(result.entries.back());
      if (words <= 4) {
        add(256, 1, own, width, false);
        addStages(result.entries.back());
      }
      // Left alone, ptxas spills to have as many beside more states.
      if (words <= 4 && width <= 4 && plan.states.size() >= 7 &&
          plan.passes.size() == 1)
        result.entries.back().blocksPerUnit = 3;
    }
  }
  add(32, 4, 8, 1, true);
  // 64 registers a thread, which eight elements of two arrays do not leave room
  // in.
  add(256, 1, numFolded > 1 ? 4 : 8, 1, true);
  // Of two passes over many states, three leave registers.
  bool isMuch = plan.states.size() >= 10 && plan.passes.size() > 1;
  addPartsEntry(isMuch ? 3 : 4, 1);
  add(256, 1, hasGroups ? 2 : isMuch ? 3 : 4, 1, false);
}

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
        "         T is 1: a thread has a row of its own, threads beside "
        "each other have neighbours of the last index.");
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
    out.comment("         _partsTxVxW takes few long rows, of each a part a "
                "block. They leave states in the workspace and take a "
                "ticket of the row; the last one merges them.");
  if (hasLanes)
    out.comment("         _lanesTxVxW brings rows to shared memory, where "
                "every lane has one for itself.");
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
  out.line("const int lane = thread() % kThreads;");
  out.line(hasParts ? "int64_t row = kIsPart ? block() / row_parts : block() * "
                      "kRows + thread() / kThreads;"
           : hasClusters
               ? "int64_t row = block() / kBlocks * kRows + thread() / "
                 "kThreads;"
               : "int64_t row = block() * kRows + thread() / kThreads;");
  out.line("const bool is_row = row < " + rowCount() + ";");
  out.line("// A warp leaves as a whole; what is left of one does row 0 again "
           "and writes nothing.");
  out.line("if (kThreads >= 32 && !is_row)");
  out.line("  return;");
  out.line("row = is_row ? row : 0;");
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
void RowPrinter::openVectors() {
  out.line("REFOLD_UNROLL");
  out.open("for (int v = 0; v < kVectors; ++v) {");
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

/// Where vector v of a read is, in bytes from the place of a chunk.
std::string RowPrinter::keptAt(const RowRead &read) {
  int64_t before = 0;
  for (auto &[node, other] : kernel.reads) {
    if (&other == &read)
      break;
    if (read.isShared ? other.isShared && !isInRegisters(other) : isKept(other))
      before += bytesOf(node->type);
  }
  std::string text = "uint32_t(";
  if (before)
    text += std::to_string(before) + " * kChunk + ";
  return text + "v * kThreads * kWidth * " +
         std::to_string(bytesOf(read.node->type)) + ")";
}

/// Begins copies of a chunk of a row.
void RowPrinter::printBring() {
  // A template, so that only entries that call it have to be able to.
  out.open("[[maybe_unused]] const auto bring = [&](auto whole, int64_t row, "
           "Column first, uint32_t at) {");
  {
    Expressions::Scope scope(values, {});
    printRowPointers([](const RowRead &read) { return isKept(read); });
    openVectors();
    for (auto &[node, read] : kernel.reads)
      if (isKept(read))
        out.line("copy_kept<kThreads, kWidth>(at + " + keptAt(read) + ", " +
                 read.row + " + column);");
    out.close();
  }
  out.line("commit_copies();");
  out.close("};");
}

/// Over the chunks that shared memory keeps.
std::string RowPrinter::keptLoop() {
  return "for (Column first = " +
         std::string(hasClusters ? "part_first + " : "") + "kHeld; first < " +
         (hasClusters ? "part_end" : count()) + "; first += kChunk)";
}

/// Rows wait in shared memory between sweeps.
void RowPrinter::printKept() {
  out.blank();
  out.comment("Where shared memory keeps rows: every thread has places of its "
              "own, which copies fill.");
  std::string length = hasClusters ? "part_length" : count();
  if (hasClusters)
    printPartOfCluster();
  out.line("constexpr bool kIsShared = kPlace >= InShared;");
  out.line("constexpr Column kHeld = kPlace == Split ? kChunk : 0;");
  out.line("constexpr int kElementBytes = " + std::to_string(keptBytes()) +
           ";");
  out.line("const Column kept_length = kIsShared && " + length +
           " > kHeld ? (" + length +
           " - kHeld + kChunk - 1) / kChunk * kChunk : 0;");
  out.line("constexpr uint32_t kChunkBytes = uint32_t(kChunk) * "
           "kElementBytes;");
  if (hasRings) {
    printRing();
  } else {
    out.line("REFOLD_SHARED_BYTES(kept, kept_length * kElementBytes);");
    out.line("const uint32_t ring_begin = kept + uint32_t(lane) * 16;");
  }
  printBring();
  if (hasRings)
    printBringLater();
  out.line(std::string("[[maybe_unused]] ") + (hasRings ? "" : "const ") +
           "uint32_t row_place = ring_begin;");
  if (hasRings)
    printTables();
  out.open(hasRings ? "if constexpr (kIsShared && !kIsRing) {"
                    : "if constexpr (kIsShared) {");
  out.line("uint32_t at = row_place;");
  out.open(keptLoop() + " {");
  out.line("bring(Number<0>{}, row, first, at);");
  out.line("at += kChunkBytes;");
  out.close();
  out.close();
  out.line(
      "[[maybe_unused]] int turn = 0; // states of rows in turn lie apart");
}

/// A chunk that shared memory keeps.
void RowPrinter::printFetch() {
  out.open("[[maybe_unused]] const auto fetch = [&](auto whole, auto &chunk, "
           "Column first, uint32_t at) {");
  openVectors();
  for (auto &[node, read] : kernel.reads) {
    std::string to = "chunk." + read.name + "[v]";
    if (isKept(read))
      out.line(to + " = " + loadKept(read, "at") + ";");
    else if (read.isFolded)
      printTable(to, read);
  }
  out.close();
  out.close("};");
}

/// All chunks that shared memory keeps. To fetch one while the one before is
/// used was slower on an H200 (RMSNorm to 8 bits, rows of 32768: 0.60 ms
/// against 0.52), since registers then have room for half as much.
/// Each has one guard; `isPlain` and that there is all of it make it whole.
void RowPrinter::printKeptChunks(const std::string &isPlain,
                                 llvm::function_ref<void()> printUse) {
  out.line("uint32_t at = row_place;");
  if (hasRings) {
    out.open("const auto each = [&](Column first) {");
  } else {
    out.line("REFOLD_NO_UNROLL");
    out.open(keptLoop() + " {");
  }
  out.open("const auto use = [&](auto whole) {");
  out.line("fetch(whole, chunk, first, at);");
  printUse();
  out.close("};");
  if (hasRings) {
    out.line("const bool is_whole = kIsRing ? has_all : first + kChunk <= "
             "part_end;");
    printChoice(isPlain + "is_whole", "use($);");
  } else {
    printChoice(isPlain + "first + kChunk <= " + count(), "use($);");
  }
  out.line("at += kChunkBytes;");
  if (!hasRings)
    return out.close();
  out.close("};");
  // Places of its columns, known before the first row, would take registers.
  out.open("if constexpr (kIsRing) {");
  out.line("each(pinned(part_first));");
  out.otherwise();
  out.line("REFOLD_NO_UNROLL");
  out.line(keptLoop());
  out.line("  each(first);");
  out.close();
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

FailureOr<CudaKernel> refold::printCascadeAsCuda(func::FuncOp function,
                                                 const CudaOptions &options) {
  CascadeOp cascade;
  function.walk([&](CascadeOp op) { cascade = op; });
  if (!cascade)
    return function.emitError("found no cascade in the kernel"), failure();
  auto plan = makePlan(cascade, TargetFacts::scalar());
  if (failed(plan))
    return failure();
  if ((*plan)->inner && (*plan)->states.empty())
    return printF8Products(**plan, options);
  if ((*plan)->inner) {
    std::string why;
    {
      ScopedDiagnosticHandler handler(function.getContext(),
                                      [&](Diagnostic &diagnostic) {
                                        why += diagnostic.str();
                                        return success();
                                      });
      auto products = findProductRows(**plan);
      if (succeeded(products)) {
        RowKernel again = *products;
        RowPrinter first(*products, options);
        first.print();
        return RowPrinter(again, options, first.body).print();
      }
    }
    // What is no row of products may be tiles, but for lists and passes.
    bool mayBeTiles = (*plan)->passes.size() == 1 &&
                      llvm::none_of((*plan)->states, [](StatePlan &s) {
                        return s.op.isOrdered();
                      });
    if (!mayBeTiles)
      return cascade->emitError(why), failure();
    auto tiles = findTiles(**plan);
    if (failed(tiles))
      return failure();
    auto packed = findTiles(**plan, /*packs=*/true);
    if (failed(packed))
      return failure();
    TileKernel again = *tiles, packedAgain = *packed;
    TilePrinter first(*tiles, options);
    first.packing = &*packed;
    if (failed(first.print()))
      return failure();
    std::string bodies = first.body + first.partsBody;
    TilePrinter second(again, options, bodies);
    second.packing = &packedAgain;
    second.earlierOwn = first.body;
    second.earlierParts = first.partsBody;
    return second.print();
  }
  auto kernel = findRows(**plan);
  if (failed(kernel))
    return failure();
  RowKernel again = *kernel;
  RowPrinter first(*kernel, options);
  first.print();
  return RowPrinter(again, options, first.body).print();
}
