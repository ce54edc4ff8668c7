// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks that do many rows, beside arrays that all rows read: a block has one
// chunk of every row, keeps those arrays for it, and has later rows on their
// way.
#include "RowPrinter.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

/// Where tables and rows are: a place for the row that is folded, and one for
/// each of the `kAhead` that are on their way.
void RowPrinter::printRing() {
  out.line("constexpr bool kIsRing = kPlace == InRing;");
  out.line("constexpr uint32_t kTableBytes = kIsRing ? uint32_t(kChunk) * " +
           std::to_string(sharedTableBytes()) + " : 0;");
  out.line("REFOLD_SHARED_BYTES(kept, kIsRing ? kTableBytes + (kAhead + 1) * "
           "kChunkBytes : kept_length * kElementBytes);");
  out.line("[[maybe_unused]] const uint32_t tables = kept + uint32_t(lane) * "
           "16;");
  out.line("const uint32_t ring_begin = tables + kTableBytes;");
  out.line("[[maybe_unused]] const uint32_t ring_end = ring_begin + (kAhead + "
           "1) * kChunkBytes;");
  out.line("// Where a row ends most warps have all vectors of a chunk.");
  out.line("[[maybe_unused]] const bool has_all = part_first + ((kVectors - 1) "
           "* kThreads + (lane | 31)) * kWidth < part_end;");
}

/// Begins copies of the block's part of a row; they are a group, also where no
/// row is left.
void RowPrinter::printBringLater() {
  out.open("[[maybe_unused]] const auto bring_part = [&](auto whole, int64_t "
           "row, uint32_t at) {");
  out.line("if (row < " + rowCount() + ")");
  out.line("  bring(whole, row, part_first, at);");
  out.line("else");
  out.line("  commit_copies();");
  out.close("};");
}

/// Before the first row: what all rows read, and the rows that are first.
void RowPrinter::printTables() {
  SmallVector<const RowRead *> tables;
  for (auto &[node, read] : kernel.reads)
    if (read.isShared)
      tables.push_back(&read);
  for (const RowRead *read : tables)
    if (isInRegisters(*read))
      out.line("[[maybe_unused]] Vector<" + storedType(read->node->type) +
               ", kWidth> own_" + read->name + "[kIsRing ? kVectors : 1];");
  out.open("if constexpr (kIsRing) {");
  {
    Expressions::Scope scope(values, {});
    printRowPointers([](const RowRead &read) { return read.isShared; });
    out.line("constexpr Number<0> whole{};");
    out.line("const Column first = part_first;");
    openVectors();
    for (const RowRead *read : tables)
      if (isInRegisters(*read))
        out.line("own_" + read->name + "[v] = load_vector<kWidth, Reuse>(" +
                 read->row + " + column);");
      else
        out.line("copy_kept<kThreads, kWidth>(tables + " + keptAt(*read) +
                 ", " + read->row + " + column);");
    out.close();
  }
  out.line("commit_copies();");
  out.line("REFOLD_UNROLL");
  out.line("for (int later = 0; later <= kAhead; ++later)");
  out.line("  bring_part(Number<0>{}, row + later * (" + rowStep() +
           "), ring_begin + uint32_t(later) * kChunkBytes);");
  out.close();
}

/// What all rows read, from where it is kept.
void RowPrinter::printTable(const std::string &to, const RowRead &read) {
  std::string load = " = load_vector<" + read.times("kWidth") + ", Reuse>(" +
                     read.row + " + " + read.times("column") + ");";
  if (!hasRings) {
    out.line(to + load);
    return;
  }
  if (read.isFolded) {
    out.line("if constexpr (!kIsRing)");
    out.line("  " + to + load);
    return;
  }
  out.line("if constexpr (kIsRing)");
  out.line("  " + to + " = " +
           (isInRegisters(read) ? "pinned(own_" + read.name + "[v])"
                                : loadKept(read, "tables")) +
           ";");
  out.line("else");
  out.line("  " + to + load);
}

/// What all rows read and states need: a ring has no registers for a chunk of
/// it beside one of the row.
void RowPrinter::printFoldedTables() {
  if (!hasRings)
    return;
  for (auto &[node, read] : kernel.reads) {
    if (!read.isShared || !read.isFolded)
      continue;
    out.open("[[maybe_unused]] const auto " + read.name +
             "_of = [&](const auto &chunk, int v) {");
    out.line("if constexpr (kIsRing)");
    out.line("  return " + loadKept(read, "tables") + ";");
    out.line("else");
    out.line("  return chunk." + read.name + "[v];");
    out.close("};");
  }
}

/// Whether a chunk has no such vector where a block does many rows.
bool RowPrinter::isApart(const RowRead &read) const {
  return hasRings && read.isShared && read.isFolded;
}

/// Vectors v that a chunk has apart.
void RowPrinter::printApart() {
  for (auto &[node, read] : kernel.reads)
    if (isApart(read))
      out.line("const auto " + read.name + "_v = " + read.name +
               "_of(chunk, v);");
}

/// Between states that others are relative to and those: elements of a chunk
/// are not kept as numbers, which take twice the registers.
void RowPrinter::printPinned() {
  out.open("if constexpr (kIsRing) {");
  out.line("REFOLD_UNROLL");
  out.open("for (int v = 0; v < kVectors; ++v) {");
  for (auto &[node, read] : kernel.reads)
    if (isKept(read))
      out.line("chunk." + read.name + "[v] = pinned(chunk." + read.name +
               "[v]);");
  out.close();
  out.close();
}

/// To the place of the block's next row.
void RowPrinter::printNextPlace() {
  out.line("row_place += kIsRing ? kChunkBytes : 0;");
  out.line("row_place = kIsRing && row_place == ring_end ? ring_begin : "
           "row_place;");
}

std::string RowPrinter::loadKept(const RowRead &read, const std::string &at) {
  return "load_kept<kThreads, " + storedType(read.node->type) + ", kWidth>(" +
         at + " + " + keptAt(read) + ")";
}
