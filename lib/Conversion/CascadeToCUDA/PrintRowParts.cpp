// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks that share a row: each folds a part of it; the last of them to be done
// merges what all have left, in the order of the row. Where results lie along
// the row all of them do, and each has those of its part.
#include "RowPrinter.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

/// Whether one sweep makes all that most rows need. Passes behind a guard are
/// walked by the last block alone, so that there are none where results lie
/// along the row.
bool RowPrinter::mayHaveParts() {
  if (!hasStates() || plan.passes.empty() ||
      (hasSweep() && plan.passes.size() > 1))
    return false;
  for (StatePlan &s : plan.states)
    if (s.op.isOrdered() || (bytesOf(s.type()) < 4 && !s.type().isInteger(1)))
      return false;
  for (unsigned pass = 1; pass < plan.passes.size(); ++pass)
    if (plan.passes[pass].guards.empty() && !statesOf(pass).empty())
      return false;
  return plan.passes[0].guards.empty() && !statesOf(0).empty();
}

/// As many blocks as four a multiprocessor of a large GPU: what is folded does
/// not depend on the GPU.
void RowPrinter::addPartsEntry(int vectors, int width, int blocksPerUnit) {
  if (!mayHaveParts())
    return;
  CudaEntry entry{"", 256, 1, vectors, width, false, -1};
  entry.place = CudaEntry::Nowhere;
  entry.mostBlocks = 512;
  entry.leftBytes = 8 * int64_t(statesOf(0).size());
  hasParts = true;
  bool hasGroups = llvm::any_of(
      kernel.reads, [](auto &read) { return read.second.group.size > 1; });
  bool havePlaces = llvm::any_of(
      plan.states, [&](StatePlan &s) { return needsPlace(s.term); });
  if (hasSweep()) {
    // What waits for each other has to run at once. Places of elements and
    // groups of them take registers.
    if (hasGroups || havePlaces)
      blocksPerUnit = std::min(blocksPerUnit, 2);
    entry.waits = true;
    entry.blocksPerUnit = blocksPerUnit;
    entry.mostBlocks = 132 * blocksPerUnit;
    return addEntry(entry);
  }
  addStages(entry);
  // As many as run at once: more would be a second round (moment of inertia of
  // 16M points in space of bf16 on an H200, 512 blocks 47 us, 396 39).
  if (entry.stages > 0) {
    entry.blocksPerUnit = plan.states.size() > 8 || havePlaces ? 2
                          : hasGroups                          ? 3
                                                               : 4;
    entry.mostBlocks =
        std::min<int64_t>(132 * entry.blocksPerUnit, entry.mostBlocks);
  } else if (havePlaces) {
    entry.blocksPerUnit = 3;
  }
  addEntry(entry);
}

/// Which part of which row the block has.
void RowPrinter::printPart() {
  out.comment(std::string("Blocks beside each other have parts of ") +
              (kernel.isColumns ? "the same rows" : "one row") +
              ": whole chunks.");
  out.line("constexpr bool kIsPart = kPlace == InParts;");
  if (kernel.isColumns)
    out.line("const int64_t group_count = (" + rowCount() +
             " + kRows - 1) / kRows;");
  if (hasSweep()) { // beside clusters, whose blocks have parts, too
    out.line("const int64_t row_parts = kIsPart ? block_quotient(blocks(), " +
             groupCount() + ") : 1;");
    out.line("const int64_t own_part = kIsPart ? block_remainder(block(), "
             "row_parts) : 0;");
    out.line("const int64_t share_length = kIsPart ? block_quotient((" +
             count() +
             " + kChunk - 1) / kChunk + row_parts - 1, row_parts) * kChunk : " +
             count() + ";");
    out.line("const int64_t share_first = own_part * share_length;");
    out.line("const int64_t share_end = smaller(share_first + share_length, " +
             count() + ");");
    return;
  }
  // Columns leave no registers for divisions of 64 bits.
  auto quotient = [&](const std::string &what, const std::string &by) {
    return kernel.isColumns    ? "block_quotient(" + what + ", " + by + ")"
           : by == "row_parts" ? what + " / " + by
                               : what + " / (" + by + ")";
  };
  out.line("const int64_t row_parts = kIsPart ? " +
           quotient("blocks()", groupCount()) + " : 1;");
  out.line("const int64_t part_length = kIsPart ? " +
           quotient("((" + count() + " + kChunk - 1) / kChunk + row_parts - 1)",
                    "row_parts") +
           " * kChunk : " + count() + ";");
  out.line("const int64_t part_first = kIsPart ? " +
           std::string(kernel.isColumns ? "block_remainder(block(), row_parts)"
                                        : "block() % row_parts") +
           " * part_length : 0;");
  out.line("const int64_t part_end = smaller(part_first + part_length, " +
           count() + ");");
}

/// What blocks tell each other of a row that they sweep again.
void RowPrinter::printRowTickets() {
  out.line("[[maybe_unused]] RowTickets<kIsPart> row_tickets(tickets, " +
           ownGroup() + ", " + groupCount() + ", own_part, row_parts);");
}

/// The block's own part, whose last chunk is at hand, and those that others
/// have left to it; backwards, since what was read last is in the caches.
void RowPrinter::printSweepOfParts(
    llvm::function_ref<void(const std::string &)> writeAt) {
  out.comment("Its own part, and those of blocks that are gone.");
  out.open("for (int64_t part = row_tickets.next(); part < row_parts; part = "
           "row_tickets.next()) {");
  out.line("const Column begin = part * share_length;");
  out.line("const Column last = begin + (smaller(begin + share_length, " +
           count() + ") - begin - 1) / kChunk * kChunk;");
  out.line("if (part != own_part)");
  out.line("  load(chunk, last);");
  out.open("for (Column first = last; first >= begin; first -= kChunk) {");
  out.line("Chunk<kVectors, kWidth> next;");
  out.line("if (first > begin)");
  out.line("  load(next, first - kChunk);");
  writeAt("first");
  out.line("if (first > begin)");
  out.line("  chunk = next;");
  out.close();
  out.close();
  out.line("row_tickets.end();");
}

/// Where all blocks of a row merge, none waits for one part before it asks for
/// the next: a thread has few.
void RowPrinter::printAllParts(unsigned levels) {
  int64_t most = 0;
  for (const CudaEntry &entry : result.entries)
    if (entry.waits)
      most = std::max(most,
                      (entry.mostBlocks + entry.threads - 1) / entry.threads);
  std::string count = std::to_string(most);
  out.line("States parts[" + count + "];");
  out.line("REFOLD_UNROLL");
  out.open("for (int i = 0; i < " + count + "; ++i) {");
  out.line("const int64_t part = i * kThreads + lane;");
  out.open("if (part < row_parts) {");
  for (StatePlan *s : statesOf(0))
    out.line("parts[i]." + name(*s) + " = take_left(left_" + name(*s) +
             " + row * row_parts + part);");
  out.close();
  out.close();
  out.line("s = States();");
  for (unsigned level = 0; level < levels; ++level) {
    SmallVector<Node *> roots;
    for (StatePlan *s : statesOf(0, level))
      roots.push_back(s->moved);
    out.line("REFOLD_UNROLL");
    out.open("for (int i = 0; i < " + count + "; ++i) {");
    Expressions::Scope scope(values, roots);
    out.line("[[maybe_unused]] const States &old = parts[i];");
    for (StatePlan *s : statesOf(0, level)) {
      bool isMoved = !s->op.getTransport().empty();
      std::string moved = isMoved ? values.value(s->moved) : "old." + name(*s);
      out.line("s." + name(*s) + " = " +
               withoutParentheses(combine(*s, "s." + name(*s), moved)) + ";");
    }
    out.close();
  }
}

/// All parts of a row that a thread has, to the pivots that are known of them;
/// of columns, whose threads have many, some at once.
void RowPrinter::printTakenParts(unsigned level) {
  SmallVector<StatePlan *> here = statesOf(0, level);
  SmallVector<Node *> roots;
  NodeSet read;
  for (StatePlan *s : here) {
    roots.push_back(s->moved);
    if (!s->op.getTransport().empty())
      collect(s->moved, read);
  }
  std::string place = ownGroup() + " * row_parts + part";
  if (kernel.isColumns)
    place = "(" + place + ")";
  auto take = [&](const std::string &to) {
    for (StatePlan *s : statesOf(0))
      if (read.contains(plan.graph->version(s->op, Node::Old)) ||
          llvm::is_contained(here, s))
        out.line(to + "." + name(*s) + " = take_left(left_" + name(*s) + " + " +
                 leftAt(place) + ");");
  };
  const std::string kAtOnce = "2";
  out.line("REFOLD_NO_UNROLL");
  if (kernel.isColumns) {
    out.open("for (int64_t base = lane; base < row_parts; base += " + kAtOnce +
             " * kThreads) {");
    out.line("States parts[" + kAtOnce + "];");
    out.line("REFOLD_UNROLL");
    out.open("for (int i = 0; i < " + kAtOnce + "; ++i) {");
    out.line("const int64_t part = base + i * kThreads;");
    out.open("if (part < row_parts) {");
    take("parts[i]");
    out.close();
    out.close();
    out.line("REFOLD_UNROLL");
    out.open("for (int i = 0; i < " + kAtOnce + "; ++i) {");
  } else {
    out.open("for (int64_t part = lane; part < row_parts; part += kThreads) {");
  }
  {
    Expressions::Scope scope(values, roots);
    if (kernel.isColumns) {
      out.line("[[maybe_unused]] const States &old = parts[i];");
    } else {
      out.line("[[maybe_unused]] States old;");
      take("old");
    }
    for (StatePlan *s : here) {
      bool isMoved = !s->op.getTransport().empty();
      std::string moved = isMoved ? values.value(s->moved) : "old." + name(*s);
      out.line("s." + name(*s) + " = " +
               withoutParentheses(combine(*s, "s." + name(*s), moved)) + ";");
    }
  }
  out.close();
  if (kernel.isColumns)
    out.close();
}

/// Whoever comes last has the states of the whole row, and goes on.
void RowPrinter::printMergeOfParts() {
  out.open("if constexpr (kIsPart) {");
  out.comment(hasSweep()
                  ? "Every block of the row merges what all have left, in the "
                    "order of parts; one that waits too long for the others "
                    "leaves its part to those that come later."
                  : "The last block of the row merges what all have left: in "
                    "the order of parts, whoever is last.");
  unsigned number = 0;
  for (StatePlan *s : statesOf(0)) {
    std::string type = valueType(s->type());
    out.line(type + " *const left_" + name(*s) + " = reinterpret_cast<" + type +
             " *>(workspace + " + std::to_string(8 * number++) + " * blocks()" +
             (kernel.isColumns ? " * kRows" : "") + ");");
  }
  out.open("if (lane == 0) {");
  for (StatePlan *s : statesOf(0))
    out.line("leave(left_" + name(*s) + " + " + leftAt("block()") + ", s." +
             name(*s) + ");");
  out.close();
  if (hasSweep()) {
    if (kernel.isColumns) // whose states several threads have left
      out.line("block_barrier();");
    out.line("if (!row_tickets.meet())");
    out.line("  return row_tickets.end();");
  } else {
    out.line("if (!is_last_block(tickets + " + ownGroup() + ", row_parts))");
    out.line("  return;");
  }
  unsigned levels = 0;
  for (StatePlan *s : statesOf(0))
    levels = std::max(levels, s->level + 1);
  if (hasSweep() && !kernel.isColumns) {
    printAllParts(levels);
  } else {
    out.line("s = States();");
    for (unsigned level = 0; level < levels; ++level)
      printTakenParts(level);
  }
  printMergeAcrossWarps(0);
  out.close();
}
