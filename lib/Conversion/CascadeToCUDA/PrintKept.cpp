// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The text of rows that wait in shared memory between sweeps.
#include "RowPrinter.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

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
  out.line(std::string("constexpr bool kIsShared = kPlace >= InShared") +
           (hasParts ? " && kPlace != InParts;" : ";"));
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
