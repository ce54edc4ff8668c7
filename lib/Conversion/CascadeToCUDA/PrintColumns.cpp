// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows whose neighbours lie beside each other: a thread has one, or several
// warps have parts of 32 of them.
#include "RowPrinter.h"

#include <set>

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

/// Blocks of `warps` times `columns` threads.
static CudaEntry columnEntry(int warps, int columns, int vectors, int blocks) {
  CudaEntry entry{"", warps, columns, vectors, 1, false, -1};
  entry.place = CudaEntry::Nowhere;
  entry.blocksPerUnit = blocks;
  return entry;
}

/// A thread a column. Elements one by one, many on their way at once, and
/// summed by themselves: a thread's sum of a whole row in steps of 8 errs by 5
/// ulp at 1000 elements.
CudaEntry RowPrinter::aloneColumns() {
  bool isOld = StringRef(options.target).contains("sm80");
  bool isLong = hasLongTerms(), hasPasses = plan.passes.size() > 1;
  size_t states = plan.states.size();
  // Compiled for sm_80 more than 24 spill beside many states, functions and
  // quotients (mixtures on an H200, where 32 do not: 24 take 1.08 to 1.14 of
  // their time, 16 1.28 to 1.43).
  bool isMuch = isOld ? isLong || states > 4
                      : isLong && ((states > 2 && states <= 4) || hasPasses);
  // Left alone, ptxas spills beside many states to have nine blocks, and for
  // sm_90 takes so few registers beside few that elements wait for each other
  // (H200: sums beside gradients of LayerNorm took 1.1 to 2.7 times as long,
  // softmax of keys 1.5 to 2.1, variances 1.1 to 1.3).
  int blocks = 0;
  if (states >= 7 && !hasPasses)
    blocks = 4;
  else if (!isOld && states == 1)
    blocks = isLong ? 0 : 8;
  else if (!isOld && states > 0 && states <= 4 &&
           (!isLong || states > 2 || hasSweep() || hasPasses))
    blocks = 4;
  return columnEntry(1, 128, isMuch ? 24 : 32, blocks);
}

/// How many warps have parts of 32 columns: 16, or as many as shared memory
/// that no launch has to ask for (48 KB) has room for what they tell each
/// other; 1: none.
int RowPrinter::columnWarps() {
  constexpr int64_t kMostBytes = 40 << 10, kColumns = 32;
  int64_t bytes = 0;
  for (StatePlan &s : plan.states)
    bytes += kColumns * bytesOf(s.type());
  for (int warps : {16, 4})
    if (warps * bytes <= kMostBytes)
      return warps;
  return 1;
}

/// Few columns are few threads: several warps have parts of 32, and several
/// blocks where there are few of those. What is fastest on an H200, by columns
/// and elements: benchmarks/results/cuda-rows.md.
void RowPrinter::chooseColumns() {
  CudaEntry alone = aloneColumns();
  int warps = columnWarps();
  if (!hasStates() || listWords() > 0 || warps == 1)
    return addEntry(alone);
  hasColumnLanes = true;
  NodeSet all;
  for (StatePlan &s : plan.states)
    collectRow(kernel, s.term, all);
  SmallVector<Node *> reads;
  for (Node *n : all)
    if (n->kind == Node::Read && kernel.hasStream(n))
      reads.push_back(n);
  // Places that are computed take registers, and so does what a pass is told.
  auto isComputed = [](Node *n) {
    return llvm::any_of(
        cast<ReadOp>(n->op).getMap().getResults(),
        [](AffineExpr e) { return isa<AffineBinaryOpExpr>(e); });
  };
  size_t states = plan.states.size();
  bool areMany = reads.size() > 1 || states > 4;
  bool isMost = states > 4 ||
                (reads.size() > 1 && states > 1 && reads.size() + states > 4) ||
                !kernel.outer.empty() ||
                (hasLongTerms() && plan.passes.size() > 1) ||
                llvm::any_of(reads, isComputed);
  // What several columns read is in caches, and more of them at once are worth
  // more than elements on their way.
  bool isShared = llvm::any_of(reads, [&](Node *n) {
    auto isOfRow = [&](unsigned row) { return dependsOn(n, row); };
    return llvm::any_of(kernel.rows, isOfRow) &&
           !llvm::all_of(kernel.rows, isOfRow);
  });
  CudaEntry few = columnEntry(4, 32, areMany ? 16 : 32, 4),
            many = columnEntry(warps, 32, areMany ? 8 : 16, isMost ? 1 : 2);
  // So many columns that a thread each is enough.
  constexpr int64_t kManyColumns = 32768, kFewElements = 384;
  bool isAlone = isMost || isShared;
  alone.fewestRows = states > 4 ? kManyColumns / 2
                     : isAlone  ? 2 * kManyColumns
                                : kManyColumns;
  alone.longest = isAlone ? -1 : kFewElements;
  few.fewestRows = kManyColumns;
  addEntry(alone);
  if (!isAlone)
    addEntry(few);
  addPartsOfColumns(many);
  addEntry(many);
}

/// Where `entry` has columns beside each other, more blocks share them: as many
/// as run at once.
void RowPrinter::addPartsOfColumns(CudaEntry entry) {
  if (!mayHaveParts())
    return;
  hasParts = true;
  entry.waits = hasSweep();
  entry.mostBlocks = 132 * entry.blocksPerUnit;
  entry.leftBytes = 8 * int64_t(statesOf(0).size()) * entry.rows;
  addEntry(entry);
}

/// How many elements a thread has at once: fewer where each is asked whether it
/// is there, which takes registers.
void RowPrinter::printOwnVectors() {
  if (hasColumnLanes)
    out.line("constexpr int kOwn = whole.value ? kVectors : kRest;");
}

/// What states of several levels are made of is read once: where steps are
/// strides of the program, compilers do not see that it is the same.
void RowPrinter::printSharedReads(unsigned pass) {
  sharedReads.clear();
  if (!hasColumnLanes)
    return;
  llvm::MapVector<Node *, std::set<unsigned>> levels;
  for (StatePlan *s : statesOf(pass)) {
    NodeSet all;
    collectRow(kernel, s->term, all);
    for (Node *n : all)
      if (n->kind == Node::Read && kernel.hasStream(n) &&
          !n->type.isInteger(1) &&
          llvm::all_of(n->in, [](Node *at) { return at->kind == Node::Index; }))
        levels[n].insert(s->level);
  }
  SmallVector<Node *> shared;
  for (auto &[node, of] : levels)
    if (of.size() > 1)
      shared.push_back(node);
  if (shared.empty())
    return;
  SmallVector<std::string> names;
  for (Node *n : shared) {
    unsigned operand =
        cast<BlockArgument>(cast<ReadOp>(n->op).getSource()).getArgNumber() -
        plan.cascade.numIndices();
    names.push_back(kernel.nameFor(kernel.operandNames[operand] + "_read"));
    out.line(storedType(n->type) + " " + names.back() + "[kOwn];");
  }
  openVectors(ownVectors());
  {
    Expressions::Scope scope(values, shared);
    printStreamIndices("column");
    for (auto [n, name] : llvm::zip(shared, names))
      out.line(name + "[v] = " + values.value(n) + ";");
  }
  out.close();
  for (auto [n, name] : llvm::zip(shared, names))
    sharedReads[n] = name + "[v]";
}

/// Whole chunks, and what is left a few elements at a time.
void RowPrinter::printColumnWalk(unsigned pass) {
  bool isPart = hasParts && pass == 0;
  std::string of = hasSweep() ? "share_" : "part_";
  std::string fold = "fold" + std::to_string(pass + 1);
  std::string end = isPart ? of + "end" : count();
  out.open("{");
  out.line("Column first = " + (isPart ? of + "first" : "0") + ";");
  out.line("for (; first + kChunk <= " + end + "; first += kChunk)");
  out.line("  " + fold + "(Number<1>{}, chunk, first);");
  out.line("REFOLD_NO_UNROLL");
  out.line("for (; first < " + end + "; first += kThreads * kRest)");
  out.line("  " + fold + "(Number<0>{}, chunk, first);");
  out.close();
}

/// Backwards: what was read last is still on chip. Of lanes that meet for the
/// next part, some may have no row.
void RowPrinter::printColumnSweepWalk() {
  out.open("const auto sweep = [&](Column begin, Column end) {");
  out.line("const Column rest = begin + (end - begin) / kChunk * kChunk;");
  out.line("REFOLD_NO_UNROLL");
  out.line("for (Column first = rest; first < end; first += kThreads * kRest)");
  out.line("  write(Number<0>{}, chunk, first);");
  out.line(
      "for (Column first = rest - kChunk; first >= begin; first -= kChunk)");
  out.line("  write(Number<1>{}, chunk, first);");
  out.close("};");
  if (hasParts) {
    out.open("if constexpr (kIsPart) {");
    out.comment("Its own part, and those of blocks that are gone.");
    out.open("for (int64_t part = row_tickets.next(); part < row_parts; part = "
             "row_tickets.next()) {");
    out.line("const Column begin = part * share_length;");
    out.line("if (is_row)");
    out.line("  sweep(begin, smaller(begin + share_length, " + count() + "));");
    out.close();
    out.line("row_tickets.end();");
    out.otherwise("if (is_row)");
  } else {
    out.open("if (is_row) {");
  }
  out.line("sweep(0, " + count() + ");");
  out.close();
}
