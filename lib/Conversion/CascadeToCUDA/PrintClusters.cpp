// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks that have a row together at the same time, each a part of it in its
// shared memory: what they know of it they read from each other.
#include "RowPrinter.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

/// Bytes of an element of a row in shared memory.
int64_t RowPrinter::keptBytes() {
  int64_t bytes = 0;
  for (auto &[node, read] : kernel.reads)
    if (isKept(read))
      bytes += bytesOf(node->type);
  return bytes;
}

/// Whether rows can wait in shared memory: by copies of 16 bytes.
bool RowPrinter::mayKeep(int width) {
  bool areWhole = llvm::all_of(kernel.reads, [&](auto &read) {
    return !isKept(read.second) || (read.second.group.size == 1 &&
                                    width * read.second.bytes() % 16 == 0);
  });
  return hasStates() && areWhole && keptBytes() > 0;
}

/// Whether some array is read along the row by all rows.
bool RowPrinter::readsTables() {
  return llvm::any_of(kernel.reads,
                      [](auto &read) { return read.second.isShared; });
}

/// Whether a block can read what another has of every state.
bool RowPrinter::mayHaveClusters() {
  return StringRef(options.target).contains("sm90") &&
         llvm::all_of(plan.states, [](StatePlan &s) {
           return !s.op.isOrdered() &&
                  (bytesOf(s.type()) >= 4 || s.type().isInteger(1));
         });
}

/// Which part of the row the block has.
void RowPrinter::printPartOfCluster() {
  std::string whole = "kChunk";
  if (hasRings) {
    out.comment("Blocks beside each other have parts of one row: whole chunks, "
                "or a chunk each, as little as all have the same of.");
    out.line("constexpr Column kPiece = kPlace == InRing ? kThreads * kWidth : "
             "kChunk;");
    whole = "kPiece";
  } else {
    out.comment("Blocks beside each other have parts of one row: whole "
                "chunks.");
  }
  out.line("const Column part_length = kBlocks > 1 ? ((" + count() + " + " +
           whole + " - 1) / " + whole + " + kBlocks - 1) / kBlocks * " + whole +
           " : " + count() + ";");
  out.line("const Column part_first = kBlocks > 1 ? Column(block() % kBlocks) "
           "* part_length : 0;");
  out.line(
      "const Column part_end = kBlocks > 1 && part_first + part_length < " +
      count() + " ? part_first + part_length : " + count() + ";");
}

/// Before anything is copied, so that the blocks know of each other when the
/// first states are there.
void RowPrinter::printMailbox(bool isOpening) {
  if (!hasClusters)
    return;
  if (isOpening) {
    out.line("REFOLD_MAILBOX(mailbox);");
    out.line("[[maybe_unused]] int exchange = 0; // of states");
  }
  out.line("if constexpr (kBlocks > 1)");
  out.line(isOpening ? "  open_mailbox<kBlocks>(mailbox);"
                     : "  wait_for_cluster<kBlocks>(); // until all are open");
}

/// Every thread of the cluster has the states of the row then, from those of
/// its blocks in the same order. A block sends its own to all, which wait for
/// no more than these: a barrier of the cluster would wait for all that was
/// written before, too. Two places of each are enough: a block sends those
/// after the next when all have sent the next, behind a barrier of their own.
void RowPrinter::printMergeAcrossBlocks(unsigned pass) {
  if (!hasClusters)
    return;
  SmallVector<StatePlan *> states = statesOf(pass);
  out.open("if constexpr (kBlocks > 1) {");
  int64_t bytes = 0;
  for (StatePlan *s : states) {
    bool isBit = s->type().isInteger(1);
    bytes += isBit ? 4 : bytesOf(s->type());
    out.line("REFOLD_SHARED(" + (isBit ? "int32_t" : valueType(s->type())) +
             ", cluster_" + name(*s) + ", 2 * kBlocks);");
  }
  out.line("const int places = exchange % 2 * kBlocks;");
  out.open("if (lane < kBlocks) {");
  for (StatePlan *s : states)
    out.line("send_across<kBlocks>(mailbox, exchange, cluster_" + name(*s) +
             ", lane, places + int(block() % kBlocks), " +
             (s->type().isInteger(1) ? "int32_t(s." + name(*s) + ")"
                                     : "s." + name(*s)) +
             ");");
  out.close();
  out.line("receive_across<kBlocks>(mailbox, exchange, kBlocks * " +
           std::to_string(bytes) + ");");
  out.comment("As above, of as many lanes as there are blocks.");
  for (StatePlan *s : states)
    out.line("s." + name(*s) + " = cluster_" + name(*s) +
             ".load(places + lane % kBlocks)" +
             (s->type().isInteger(1) ? " != 0;" : ";"));
  out.line("++exchange;");
  out.line("merge" + std::to_string(pass + 1) + "(Number<kBlocks>{});");
  out.close();
}
