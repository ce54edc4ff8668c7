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

/// Rows that a block has, and vectors that a lane reads at once; of longer
/// rows, where registers have room for more.
static constexpr int kLanesRows = 64, kLanesVectors = 8, kLongRows = 32,
                     kLongVectors = 16;
/// Elements and bytes of a row: fewer blocks share a multiprocessor where it is
/// longer.
static constexpr int64_t kLongest = 512, kMostBytes = 1024;

/// For so many rows that every multiprocessor has some blocks. Two lanes a row
/// are quicker up to 64 bytes (softmax and 8 best of 1M rows of 32 bf16 on an
/// H200: 58 us against 67; of 64, 88 against 68). Long lists of words of 64
/// bits leave no registers.
void RowPrinter::addLanes(int width) {
  constexpr int64_t kFewestRows = 32768, kFewPlaces = 8;
  int64_t places = 0, lists = 0;
  bool isWide = false, areStored = true;
  for (StatePlan &s : plan.states) {
    if (!s.op.isOrdered())
      continue;
    ++lists;
    places += plan.extent(rankOf(s));
    isWide |= keyBits(s.term) == 32;
    areStored &= storedKeysOf(s).has_value();
  }
  if (isWide && places > kFewPlaces)
    return;
  auto add = [&](int rows, int vectors, int64_t longest, int blocks,
                 int picked) {
    CudaEntry entry{"", 1, rows, vectors, width, true, longest};
    entry.place = CudaEntry::Lanes;
    entry.keptBytes = keptBytes() * rows;
    entry.sharedBytes = 16 * rows;
    entry.fewestRows = kFewestRows;
    entry.blocksPerUnit = blocks;
    entry.picked = picked;
    addEntry(entry);
  };
  hasLanes = true;
  int64_t longest = std::min(kLongest, kMostBytes / keptBytes());
  // Left alone, ptxas spills to have twelve.
  int numRead = int(llvm::count_if(
      kernel.reads, [](auto &read) { return read.second.isFolded; }));
  bool isMuch = lists > 1 || places > kFewPlaces || (width == 8 && numRead > 1);
  // Before sm_90 ptxas takes 251 registers for 16 vectors, and none was timed.
  bool isOld = StringRef(options.target).contains("sm80");
  if (isMuch || !areStored || width < 8 || isOld)
    return add(kLanesRows, kLanesVectors, longest, isMuch ? 8 : 0, 0);
  // A vector that is popped costs more than half of two do, and twice as many
  // of a chunk are more to sort: with as many places as that is worth it, rows
  // of one chunk are chosen from halves, in 64 registers (softmax and 8 best of
  // 1M rows of 64 / 128 bf16 on an H200: 58.7 / 92 us, from whole ones 61.2 /
  // 88).
  int64_t chunk = kLanesVectors * width;
  if (places > kFewPlaces / 2 && plan.states.size() <= 3) {
    hasPicked = true;
    add(kLanesRows, kLanesVectors, chunk, 16, width / 2);
  }
  // Longer rows: fewer merges, and blocks of a warp, of which more fit (of 128
  // / 256: 91.5 / 155.6 us, by 64 rows and 8 vectors 87.8 / 162.5).
  add(kLanesRows, kLanesVectors, 2 * chunk, 0, 0);
  add(kLongRows, kLongVectors, longest, 0, 0);
}

/// One row index, which subscripts have as it is.
bool RowPrinter::isEven(const RowRead &read) {
  if (kernel.rows.size() != 1)
    return false;
  bool isLinear = true;
  for (AffineExpr expr : cast<ReadOp>(read.node->op).getMap().getResults())
    expr.walk([&](AffineExpr part) {
      isLinear &= part.getKind() != AffineExprKind::Mod &&
                  part.getKind() != AffineExprKind::FloorDiv &&
                  part.getKind() != AffineExprKind::CeilDiv;
    });
  return isLinear && llvm::all_of(read.node->in, [&](Node *n) {
           return n->kind == Node::Index || !(n->set & bit(kernel.rows[0]));
         });
}

/// Where a read of a row begins, in bytes from where the row does.
static std::string beginOf(const RowKernel &kernel, const RowRead &read,
                           const std::string &count) {
  int64_t before = 0;
  for (auto &[node, other] : kernel.reads) {
    if (&other == &read)
      break;
    if (other.isFolded && !other.isShared)
      before += bytesOf(node->type);
  }
  return before ? " + uint32_t(" + count + " * " + std::to_string(before) + ")"
                : "";
}

void RowPrinter::printLanes() {
  std::string bytes = std::to_string(keptBytes());
  out.blank();
  out.comment("Where every lane has a row for itself, of an odd number of "
              "pieces of 16 bytes, so that lanes that read the same piece of "
              "theirs meet in no bank. Lanes of a warp bring the rows of all "
              "of them together.");
  out.line("[[maybe_unused]] constexpr int64_t kLanesLongest = " +
           std::to_string(kLongest) + ";");
  out.line("const uint32_t own_bytes = kPlace == InLanes ? uint32_t(" +
           count() + " * " + bytes + ") | 16 : 0;");
  out.line("REFOLD_SHARED_BYTES(own_rows, kRows * own_bytes);");
  out.line("[[maybe_unused]] const uint32_t own_row = own_rows + "
           "uint32_t(thread()) * own_bytes;");
  out.open("if constexpr (kPlace == InLanes) {");
  out.line("const int own_warp = thread() / 32 * 32;");
  for (auto &[node, read] : kernel.reads) {
    if (!isKept(read))
      continue;
    out.open("const auto " + read.name + "_at = [&](int which) {");
    bool areEven = isEven(read);
    out.line(std::string(areEven ? "const " : "") +
             "int64_t row = block() * kRows + own_warp + which;");
    if (!areEven)
      out.line("row = row < " + rowCount() + " ? row : 0;");
    {
      Expressions::Scope scope(values, {});
      printRowPointers([&](const RowRead &other) { return &other == &read; });
    }
    out.line("return " + read.row + ";");
    out.close("};");
    std::string at = read.name + "_at";
    std::string to = "<kWidth>(own_rows + uint32_t(own_warp) * own_bytes" +
                     beginOf(kernel, read, count()) + ", own_bytes, " +
                     count() + ", ";
    if (areEven)
      out.line("copy_even_rows" + to + at + "(0), " + at + "(1) - " + at +
               "(0), " + rowCount() + " - block() * kRows - own_warp);");
    else
      out.line("copy_rows" + to + at + ");");
  }
  out.line("commit_copies();");
  out.line("wait_copies<0>();");
  out.line("warp_barrier(); // a warp's copies are seen by its lanes");
  out.close();
}

/// Vectors of the thread's own row from `first` on.
void RowPrinter::printFetchOwn() {
  out.open("[[maybe_unused]] const auto fetch_own = [&](auto whole, auto "
           "&chunk, Column first) {");
  out.line("REFOLD_UNROLL");
  out.open("for (int v = 0; v < chunk.kCount; ++v) {");
  out.line("const Column column = first + v * kWidth;");
  out.line("if (whole.value == 0 && column >= " + count() + ")");
  out.line("  continue;");
  for (auto &[node, read] : kernel.reads) {
    std::string to = "chunk." + read.name + "[v]";
    if (isKept(read))
      out.line(to + " = load_own<" + storedType(node->type) +
               ", kWidth>(own_row" + beginOf(kernel, read, count()) +
               " + uint32_t(column) * " + std::to_string(bytesOf(node->type)) +
               ");");
    else if (read.isFolded)
      out.line(to + " = load_vector<" + read.times("kWidth") + ", Reuse>(" +
               read.row + " + " + read.times("column") + ");");
  }
  out.close();
  out.close("};");
}

/// Of a list by 16-bit floats as they are stored, or by their opposites: the
/// read that they are.
std::optional<RowPrinter::Stored> RowPrinter::storedKeysOf(StatePlan &s) {
  Node *term = s.term;
  bool isNegated = term->kind == Node::Elem && isa<arith::NegFOp>(term->op);
  Node *node = widenedRead(isNegated ? term->in[0] : term);
  auto found = node ? kernel.reads.find(node) : kernel.reads.end();
  if (found == kernel.reads.end() || found->second.group.size != 1 ||
      !found->second.isFolded)
    return std::nullopt;
  bool isTop = s.op.getReducer() == Reducer::TopK;
  return Stored{&found->second, isTop && !isNegated,
                "StoredKeys<" + storedType(node->type) + ", " +
                    (isTop ? "true" : "false") + ", " +
                    (isNegated ? "true" : "false") + ">"};
}

/// Before states are made of a chunk: some are made of that as well.
void RowPrinter::printBestsOfChunk(unsigned pass) {
  for (StatePlan *s : listsOf(pass))
    if (std::optional<Stored> keys = storedKeysOf(*s)) {
      std::string parts = hasPicked ? " * (kWidth / kPicked);" : ";";
      out.line("[[maybe_unused]] int there = kVectors" + parts);
      out.line("if (whole.value == 0 && kPlace == InLanes)");
      out.line("  there = int((" + count() + " - first) / kWidth)" + parts);
      break;
    }
  for (StatePlan *s : listsOf(pass))
    if (std::optional<Stored> keys = storedKeysOf(*s))
      out.line("[[maybe_unused]] const auto bests_" + name(*s) +
               " = bests_of<kPlace == InLanes, " + keys->type + ">(" +
               (hasPicked
                    ? "parts_of<kPicked>(chunk." + keys->read->name + ").of"
                    : "chunk." + keys->read->name) +
               ", there);");
}

/// The best of each vector of a chunk, at the vector's place, into a list of
/// its own. NaN is the best of the largest and the last of the smallest.
void RowPrinter::printBestsOfVectors(StatePlan &s) {
  if (storedKeysOf(s)) {
    out.line("vectors_" + name(s) + ".template take_bests<" + picked() +
             ">(bests_" + name(s) + ", first, there);");
    return;
  }
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
  if (listsOf(pass).empty())
    return;
  out.open("if (" + count() + " > 0) {");
  for (StatePlan *s : listsOf(pass)) {
    if (std::optional<Stored> keys = storedKeysOf(*s)) {
      const RowRead &read = *keys->read;
      std::string vectors = "vectors_" + name(*s), at = name(*s) + "_vector_at";
      out.open("const auto " + at + " = [&](Column column) {");
      if (isKept(read))
        out.line("return load_own<" + storedType(read.node->type) + ", " +
                 picked() + ">(own_row" + beginOf(kernel, read, count()) +
                 " + uint32_t(column) * " +
                 std::to_string(bytesOf(read.node->type)) + ");");
      else
        out.line("return load_vector<" + picked() + ", Reuse>(" + read.row +
                 " + column);");
      out.close("};");
      auto select = [&](StringRef isFull) {
        return name(*s) + ".template select_stored<" + picked() + ", " +
               isFull.str() + ">(" + vectors + ", " + at + ");";
      };
      // Long ones are long text.
      if (int64_t places = plan.extent(rankOf(*s)); places <= 8) {
        out.line("if (" + count() + " >= " + std::to_string(places) + " * " +
                 picked() + ")");
        out.line("  " + select("true"));
        out.line("else");
        out.line("  " + select("false"));
      } else {
        out.line(select("false"));
      }
      continue;
    }
    Expressions::Scope outside(values, {s->term});
    nameLists({s->term});
    values.hoist(s->term);
    out.open(name(*s) + ".template select<kWidth>(vectors_" + name(*s) +
             ", [&](auto &words, Column column) {");
    out.line("Chunk<1, kWidth> chunk;");
    out.line("fetch_own(Number<1>{}, chunk, column);");
    out.line("constexpr int v = 0;");
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
  out.close();
}
