// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Short rows with lists of the best, a row a lane: lanes of a warp bring the
// rows of all of them to shared memory. A list is chosen in two steps: the best
// of each vector alone is compared, and only the elements of vectors that can
// have some of the best are looked at.
#include "RowPrinter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

/// Rows that a block has, and vectors that it reads at once: so many that their
/// pieces of 16 bytes can trade places in eights.
static constexpr int kLanesRows = 64, kLanesVectors = 8;
/// Elements of a row: fewer blocks share a multiprocessor where it is longer.
static constexpr int64_t kLongest = 512;

/// Where key and place are one word of the machine; for so many rows that
/// every multiprocessor has some blocks.
void RowPrinter::addLanes(int width) {
  constexpr int64_t kFewestRows = 32768;
  bool areShort = llvm::all_of(plan.states, [&](StatePlan &s) {
    return !s.op.isOrdered() || keyBits(s.term) < 32;
  });
  if (!areShort || !mayKeep(width) || hasSweep())
    return;
  CudaEntry entry{"", 1, kLanesRows, kLanesVectors, width, true, kLongest};
  entry.place = CudaEntry::Lanes;
  entry.keptBytes = keptBytes() * kLanesRows;
  entry.fewestRows = kFewestRows;
  addEntry(entry);
  hasLanes = true;
}

/// Where a read of the thread's own row begins, in bytes from that of the row.
static std::string beginOf(const RowKernel &kernel, const RowRead &read) {
  int64_t before = 0;
  for (auto &[node, other] : kernel.reads) {
    if (&other == &read)
      break;
    if (other.isFolded && !other.isShared)
      before += bytesOf(node->type);
  }
  return before ? " + uint32_t(kOwnLength * " + std::to_string(before) + ")"
                : "";
}

void RowPrinter::printLanes() {
  out.blank();
  out.comment("Where every lane has a row for itself, in whole chunks. Lanes "
              "of a warp bring the rows of all of them together.");
  out.line("[[maybe_unused]] constexpr int64_t kLanesLongest = " +
           std::to_string(kLongest) + ";");
  std::string length = "(" + count() + " + kChunk - 1) / kChunk * kChunk";
  out.line("const int64_t kOwnLength = kPlace == InLanes ? " + length +
           " : 0;");
  out.line("REFOLD_SHARED_BYTES(own_rows, kRows * kOwnLength * " +
           std::to_string(keptBytes()) + ");");
  out.open("[[maybe_unused]] const auto own_row = [&](int which) {");
  out.line("return own_rows + uint32_t(which) * uint32_t(kOwnLength * " +
           std::to_string(keptBytes()) + ");");
  out.close("};");
  out.open("if constexpr (kPlace == InLanes) {");
  out.line("int lane_bits = 0; // lanes that bring one row");
  out.line("while (lane_bits < 5 && (kWidth << lane_bits) < " + count() + ")");
  out.line("  ++lane_bits;");
  out.line("REFOLD_NO_UNROLL");
  out.open("for (int at = thread() % 32 >> lane_bits; at < 32; at += 32 >> "
           "lane_bits) {");
  out.line("const int which = thread() / 32 * 32 + at;");
  out.line("int64_t row = block() * kRows + which;");
  out.line("row = row < " + rowCount() + " ? row : 0;");
  {
    Expressions::Scope scope(values, {});
    printRowPointers([](const RowRead &read) { return isKept(read); });
    out.open("for (int64_t column = (thread() & ((1 << lane_bits) - 1)) * "
             "kWidth; column < " +
             count() + "; column += kWidth << lane_bits) {");
    for (auto &[node, read] : kernel.reads)
      if (isKept(read))
        out.line("copy_own<kWidth>(own_row(which)" + beginOf(kernel, read) +
                 ", which, column, " + read.row + " + column);");
    out.close();
  }
  out.close();
  out.line("commit_copies();");
  out.line("wait_copies<0>();");
  out.line("any_lane(false); // a warp's copies are seen by its lanes");
  out.close();
}

/// Vectors of the thread's own row from `first` on.
void RowPrinter::printFetchOwn() {
  out.open("[[maybe_unused]] const auto fetch_own = [&](auto &chunk, int64_t "
           "first) {");
  out.line("REFOLD_UNROLL");
  out.open("for (int v = 0; v < chunk.kCount; ++v) {");
  out.line("const int64_t column = first + v * kWidth;");
  out.line("if (column >= " + count() + ")");
  out.line("  continue;");
  for (auto &[node, read] : kernel.reads) {
    std::string to = "chunk." + read.name + "[v]";
    if (isKept(read))
      out.line(to + " = load_own<" + storedType(node->type) +
               ", kWidth>(own_row(thread())" + beginOf(kernel, read) +
               ", thread(), column);");
    else if (read.isFolded)
      out.line(to + " = load_vector<" + read.times("kWidth") + ", Reuse>(" +
               read.row + " + " + read.times("column") + ");");
  }
  out.close();
  out.close("};");
}

/// The best of each vector of a chunk, at the vector's place, into a list of
/// its own. NaN is the best of the largest and the last of the smallest.
void RowPrinter::printBestsOfVectors(StatePlan &s) {
  bool isTop = s.op.getReducer() == Reducer::TopK;
  out.line("typename " + listType(s) + "::Word words[kVectors];");
  out.line("REFOLD_UNROLL");
  out.open("for (int v = 0; v < kVectors; ++v) {");
  out.line("words[v] = 0;");
  out.line("const int64_t column = first + v * kWidth;");
  out.line("if (whole.value == 0 && column >= " + count() + ")");
  out.line("  continue;");
  out.line("float best_key = 0.0f;");
  out.line("REFOLD_UNROLL");
  out.open("for (int e = 0; e < kWidth; ++e) {");
  {
    Expressions::Scope scope(values, {s.term});
    bindElements(true);
    out.line("[[maybe_unused]] const int64_t " +
             kernel.indexNames[kernel.stream] + " = column + e;");
    out.line("const float own_key = " +
             withoutParentheses(values.value(s.term)) + ";");
    out.line(std::string("best_key = e == 0 ? own_key : ") +
             (isTop ? "max_nan" : "fminf") + "(best_key, own_key);");
  }
  out.close();
  out.line("words[v] = " + listType(s) + "::word_of(best_key, column);");
  out.close();
  out.line("vectors_" + name(s) + ".template take<false>(words, first == 0);");
}

/// Lists, from vectors in the order of their bests.
void RowPrinter::printSelections(unsigned pass) {
  for (StatePlan *s : listsOf(pass)) {
    Expressions::Scope outside(values, {s->term});
    nameLists({s->term});
    values.hoist(s->term);
    out.open(name(*s) + ".template select<kWidth>(vectors_" + name(*s) +
             ", [&](auto &words, int64_t column) {");
    out.line("Chunk<1, kWidth> chunk;");
    out.line("constexpr int v = 0;");
    out.line("fetch_own(chunk, column);");
    out.line("REFOLD_UNROLL");
    out.open("for (int e = 0; e < kWidth; ++e) {");
    {
      Expressions::Scope scope(values, {s->term});
      bindElements(true);
      out.line("[[maybe_unused]] const int64_t " +
               kernel.indexNames[kernel.stream] + " = column + e;");
      out.line("words[e] = " + listType(*s) + "::word_of(" +
               withoutParentheses(values.value(s->term)) + ", column + e);");
    }
    out.close();
    out.close("});");
  }
}
