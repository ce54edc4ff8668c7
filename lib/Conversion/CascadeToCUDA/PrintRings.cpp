// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks that do many rows, beside arrays that all rows read: shared memory
// keeps these, the row, and what fits of the row after it.
#include "RowPrinter.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

/// The ring of places: a row's chunks lie behind each other, then those of the
/// block's next row, `kAhead` more than a row has.
void RowPrinter::printBringNext() {
  out.open("[[maybe_unused]] const auto place_after = [&](uint32_t at) {");
  out.line("at += kChunkBytes;");
  out.line("return kIsRing && at == ring_end ? ring_begin : at;");
  out.close("};");
  out.line("[[maybe_unused]] int64_t next_row = row;");
  std::string begin = hasClusters ? "part_first" : "0",
              end = hasClusters ? "part_end" : count();
  out.line("[[maybe_unused]] Column next_first = " + begin + ";");
  out.comment("Begins copies of the chunk after the last that was brought; "
              "each is a group, also where no row is left.");
  out.open("[[maybe_unused]] const auto bring_next = [&](auto at) {");
  out.line("if (next_row >= " + rowCount() + ")");
  out.line("  commit_copies();");
  out.line("else if (next_first + kChunk <= " + count() + ")");
  out.line("  bring(Number<1>{}, next_row, next_first, at);");
  out.line("else");
  out.line("  bring(Number<0>{}, next_row, next_first, at);");
  out.line("next_first += kChunk;");
  out.open("if (next_first >= " + end + ") {");
  out.line("next_first = " + begin + ";");
  out.line("next_row += " + rowStep() + ";");
  out.close();
  out.close("};");
}

/// Before the first row: what all rows read, and the ring.
void RowPrinter::printTables() {
  std::string begin = hasClusters ? "part_first" : "0",
              end = hasClusters ? "part_end" : count();
  out.open("[[maybe_unused]] const auto table_place = [&](Column first) {");
  out.line("return kept + uint32_t((first - " + begin +
           ") * kTableBytes) + uint32_t(lane) * 16;");
  out.close("};");
  out.open("if constexpr (kIsRing) {");
  {
    Expressions::Scope scope(values, {});
    printRowPointers([](const RowRead &read) { return read.isShared; });
    out.open("for (Column first = " + begin + "; first < " + end +
             "; first += kChunk) {");
    out.line("constexpr Number<0> whole{};");
    openVectors();
    for (auto &[node, read] : kernel.reads)
      if (read.isShared)
        out.line("copy_kept<kThreads, kWidth>(table_place(first) + " +
                 keptAt(read) + ", " + read.row + " + column);");
    out.close();
    out.close();
  }
  out.line("commit_copies();");
  out.line("uint32_t at = ring_begin;");
  out.open("for (Column first = 0; first < kept_length + kAhead * kChunk; "
           "first += kChunk) {");
  out.line("bring_next(at);");
  out.line("at += kChunkBytes;");
  out.close();
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
  out.line("if constexpr (kIsRing)");
  out.line("  " + to + " = " + loadKept(read, "table_place(first)") + ";");
  out.line("else");
  out.line("  " + to + load);
}

std::string RowPrinter::loadKept(const RowRead &read, const std::string &at) {
  return "load_kept<kThreads, " + storedType(read.node->type) + ", kWidth>(" +
         at + " + " + keptAt(read) + ")";
}
