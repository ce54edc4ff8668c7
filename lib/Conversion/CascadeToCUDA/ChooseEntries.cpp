// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is launched for rows: the grid, and the entries of a kernel, by how long
// rows are and where they wait.
#include "RowPrinter.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

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
  if (entry.picked)
    entry.name += "x" + std::to_string(entry.picked);
  bool isKnown = llvm::any_of(result.entries, [&](const CudaEntry &other) {
    return other.name == entry.name;
  });
  if (!isKnown)
    result.entries.push_back(entry);
}

/// Whether functions or quotients are made of every element.
bool RowPrinter::hasLongTerms() {
  NodeSet all;
  for (StatePlan &s : plan.states)
    collect(s.term, all);
  return llvm::any_of(all, [&](Node *n) {
    return isFunctionOfStream(n) ||
           (n->kind == Node::Elem && kernel.hasStream(n) &&
            isa<arith::DivFOp>(n->op));
  });
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
  if (kernel.isColumns)
    return chooseColumns();
  if (!kernel.outer.empty()) {
    add(32, 4, 8, 1, true);
    addPartsEntry(4, 1, 2);
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
      // Left alone, ptxas spills to have a fourth block of 128 registers, or a
      // fifth beside two arrays.
      if (plan.passes.size() > 2)
        result.entries.back().blocksPerUnit = 2;
      else if (numFolded > 1)
        result.entries.back().blocksPerUnit = 4;
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
    bool mayBeWarps = hasSweep() && mayKeep(width) && keptBytes() * width == 16;
    // Extremes that are found by pairs take next to nothing to merge: of few
    // rows a thread has two vectors, so that all blocks are soon done (bf16 to
    // f8, us, H200 / H100: 1024 rows of 4096 3.7 / 3.8 for 4.5 by 64 threads,
    // of 2048 3.0 / 2.8 for 3.5 / 3.1 by warps), of many four (32768 rows of
    // 4096 93.9 / 136.7 for 95.3 / 137.6 by warps, 98.8 / 135.8 by twos).
    bool areExtremes =
        mayBeWarps && llvm::all_of(plan.states, [&](StatePlan &s) {
          return extremesOf(s).has_value();
        });
    auto addShort = [&](int threads, int vectors, int64_t few) {
      result.entries.back().fewestRows = few;
      add(threads, 1, vectors, width, true);
    };
    add(32, 4, most, width, true);
    if (areExtremes)
      addShort(128, 2, 2048);
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
      // Left alone, ptxas spills to have a sixth block of 128 threads.
      if (width == 8 && needsPlaces() && plan.states.size() > 5)
        result.entries.back().blocksPerUnit = 5;
      for (int threads : {32, 64, 128})
        add(threads, threads == 32 ? 4 : 1, held, width, true);
      bool areFew = numFolded == 1 && plan.states.size() <= 3 && !needsPlaces();
      for (CudaEntry &entry : result.entries)
        if (entry.vectors == held && held * words >= 64) {
          int threads = entry.threads * entry.rows;
          if (width <= 4 && areFew)
            entry.blocksPerUnit = 640 / threads;
          else if (width == 8 && threads == 64 && plan.passes.size() > 1 &&
                   plan.states.size() <= 4)
            entry.blocksPerUnit = 512 / threads;
        }
      // Left alone, ptxas spills to have a fourth block of 128 threads.
      if (width <= 4 && plan.states.size() >= 9 &&
          (plan.passes.size() > 2 || plan.states.size() > 10))
        for (CudaEntry &entry : result.entries)
          if (entry.vectors == held && held * words >= 64)
            entry.blocksPerUnit = 384 / (entry.threads * entry.rows);
    } else {
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
      if (areExtremes) {
        add(128, 1, 4, width, true);
        addShort(256, 2, 8192);
      } else {
        // Of places compiled for sm_80 a row takes more than there are.
        bool isMuch =
            needsPlaces() && StringRef(options.target).contains("sm80");
        if (mayBeWarps && !foldsTables() && plan.states.size() <= 4 &&
            !isMuch) {
          add(32, 4, 16, width, true);
          result.entries.back().shortest =
              result.entries.back().longest * 7 / 8;
          // Of fewer the last blocks of four are the time (H200, softmax of
          // 4096 / 8192 / 16384 / 32768 rows, us: 18.3 / 34.8 / 66.6 / 131.8
          // for 17.5 / 34.0 / 66.5 / 133.1 by 64 threads).
          result.entries.back().fewestRows = 32768;
        }
        add(64, 1, most, width, true);
      }
      if (mayBeWarps && !readsTables()) // softmax of 5120: 4.1 TB/s for 3.8
        addWarps(32, 4, 16 << 10);
    }
    if (hasSweep()) {
      // A chunk of 16 registers waits for the other blocks.
      addPartsEntry(std::clamp(16 / words, 1, 4), width);
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
      // Left alone, ptxas spills to have a second block.
      if (plan.states.empty())
        result.entries.back().blocksPerUnit = 1;
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
      // Left alone, ptxas spills to have a fifth block, or a seventh.
      if (words > 4 && plan.states.size() >= 5)
        result.entries.back().blocksPerUnit = 4;
      else if (width > 1 && width < 8 && plan.states.size() == 1 &&
               needsPlaces())
        result.entries.back().blocksPerUnit = 6;
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
  addPartsEntry(hasSweep() ? std::clamp(8 / std::max(numFolded, 1), 1, 8)
                : isMuch   ? 3
                           : 4,
                1);
  add(256, 1, hasGroups ? 2 : isMuch ? 3 : 4, 1, false);
}
