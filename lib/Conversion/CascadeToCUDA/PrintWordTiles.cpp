// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a kernel over tiles of f32 has of its own: products by multiply-adds,
// factors that lanes put into shared memory for each other, and one place for
// what the stream brings, since a tile takes long enough: the values come while
// products are summed, the next right side while values are.
#include "TilePrinter.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

//===----------------------------------------------------------------------===//
// What is launched
//===----------------------------------------------------------------------===//

size_t TilePrinter::numberOfFactor(const TileState &product) const {
  SmallVector<Node *> factors;
  for (const TileState &p : tiles.products) {
    if (p.factor == product.factor)
      return factors.size();
    if (!llvm::is_contained(factors, p.factor))
      factors.push_back(p.factor);
  }
  llvm_unreachable("a product of the kernel");
}

size_t TilePrinter::numFactors() const {
  size_t count = 0;
  for (const TileState &p : tiles.products)
    count = std::max(count, numberOfFactor(p) + 1);
  return count;
}

/// What WordFactors of all products take of a warp.
int64_t TilePrinter::wordFactorBytes(int64_t rows, int64_t columns) const {
  return tiles.isOfWords ? int64_t(numFactors()) * rows * columns * 4 : 0;
}

/// A warp has 32 rows where registers hold as many sums: a lane then reads 20
/// vectors for 256 multiply-adds.
void TilePrinter::addWordEntry(int deepest, int widest, int vector) {
  constexpr int kColumns = 32, kMostSums = 128; // of a lane's 255 registers
  int sums = int(tiles.products.size()) * widest;
  addTiles(deepest, widest, vector, sums <= kMostSums ? 2 : 1, kColumns);
}

//===----------------------------------------------------------------------===//
// Types and copies
//===----------------------------------------------------------------------===//

void TilePrinter::printLaneSums() {
  for (const TileState &p : tiles.products)
    out.line("float " + name(*p.state) + "_sums" +
             (tiles.isOfWords ? "[2 * kTiles][kWidth / 4]"
                              : "[kTiles][kWidth / 8][4]") +
             " = {};");
  for (StatePlan &s : plan.states)
    if (isByUnits(s))
      out.line("float " + name(s) + "_sums[kTiles][4] = {};");
}

/// What lies behind the left side.
std::string TilePrinter::factorBytes() const {
  return numFactors() > 0 && tiles.isOfWords
             ? " + kWarps * " + std::to_string(numFactors()) +
                   " * Factors::kBytes"
             : "";
}

/// The bytes of all factors.
std::string TilePrinter::printWordFactorType() {
  std::string bytes = factorBytes();
  if (!bytes.empty())
    out.line("using Factors = WordFactors<2 * kTiles, kColumns>;");
  return bytes;
}

std::string TilePrinter::factorsName(const TileState &product) {
  return "factors_" + std::to_string(numberOfFactor(product));
}

void TilePrinter::printWordCopies(PrintCopy copy) {
  std::string n = kernel.indexNames[tiles.stream];
  const std::string rest = n + "_count - " + n + "_first";
  out.line("// Begins to bring a part of the stream.");
  out.open("const auto bring_right = [&](int64_t " + n + "_first) {");
  copy(tiles.right, "Right", "right_tiles", n + "_first", rest, tiles.depth);
  out.line("commit_copies();");
  out.close("};");
  if (!tiles.values.empty()) {
    out.open("const auto bring_values = [&](int64_t " + n + "_first) {");
    for (auto [i, access] : llvm::enumerate(tiles.values))
      copy(access, "Values",
           "value_tiles + " + std::to_string(i) + " * Values::kBytes",
           n + "_first", rest, tiles.width);
    out.line("commit_copies();");
    out.close("};");
  }
  std::string m = hasTileRow() ? kernel.indexNames[tiles.tileRow] : "";
  copy(tiles.left, "Left", "left_tile", "",
       m.empty() ? "1" : m + "_end - " + m + "_first", tiles.depth);
  out.line("if (begin < end)");
  out.line("  bring_right(int64_t(end - 1) * kColumns);");
  out.line("else");
  out.line("  commit_copies(); // of the left side, which is waited for in the "
           "end");
}

//===----------------------------------------------------------------------===//
// A tile
//===----------------------------------------------------------------------===//

void TilePrinter::printWordProducts(const std::string &right,
                                    const std::string &leftAt,
                                    const std::string &rightAt) {
  out.line("float products[2 * kTiles][kColumns / 4] = {};");
  out.line("multiply_word_rows<Left, " + right + ">(products, " + leftAt +
           ", " + rightAt + ");");
}

/// The rest of `fold`.
void TilePrinter::printWordFold() {
  std::string n = kernel.indexNames[tiles.stream];
  bool hasValues = !tiles.values.empty();
  if (hasValues)
    out.line("bring_values(" + n + "_first);");
  printWordProducts("Right",
                    "left_tile + which / 32 * kTiles * 16 * Left::kRowBytes",
                    "right_tiles");
  for (unsigned level = 0; level < tiles.numLevels(); ++level)
    printLevel(level);
  out.line(hasValues ? "// All are done with the right side, and see values "
                       "and factors."
                     : "// All are done with the right side.");
  if (hasValues)
    out.line("wait_copies<0>();");
  out.line("block_barrier();");
  out.line("if (" + n + "_first > int64_t(begin) * kColumns)");
  out.line("  bring_right(" + n + "_first - kColumns);");
  printWordSums();
  out.close("};");
}

/// Where the lanes of a warp put factors for each other.
void TilePrinter::printWordFactors(ArrayRef<const TileState *> products) {
  SmallVector<std::string> named;
  for (const TileState *p : products) {
    std::string name = factorsName(*p);
    if (llvm::is_contained(named, name))
      continue;
    named.push_back(name);
    out.line("const uint32_t " + name +
             " = left_tile + Left::kBytes + (which / 32 * " +
             std::to_string(numFactors()) + " + " +
             std::to_string(numberOfFactor(*p)) + ") * Factors::kBytes;");
  }
}

/// Sums of all products, once their factors are there.
void TilePrinter::printWordSums() {
  for (const TileState &p : tiles.products)
    out.line("multiply_word_columns<Factors, Values>(" + name(*p.state) +
             "_sums, " + factorsName(p) + ", value_tiles + " +
             (isInParts ? "(" + std::to_string(p.values) +
                              " * kPlaces + place) * Values::kBytes + which / "
                              "32 * kColumns * Values::kRowBytes"
                        : std::to_string(p.values) + " * Values::kBytes") +
             ");");
}

bool TilePrinter::isSumOfTile(const StatePlan &s) const {
  return tiles.isOfWords && !isInParts && !isReduced(s) &&
         StateOp(s.op).getReducer() == Reducer::Add;
}

void TilePrinter::printSumsOfTile(ArrayRef<StatePlan *> states) {
  SmallVector<StatePlan *> sums;
  for (StatePlan *s : states)
    if (isSumOfTile(*s))
      sums.push_back(s);
  if (sums.empty())
    return;
  out.line("REFOLD_UNROLL");
  out.open("for (int i = 0; i < 2 * kTiles; ++i) {");
  for (StatePlan *s : sums)
    out.line("states[i]." + name(*s) + " = states[i]." + name(*s) + " + " +
             name(*s) + "_tile[i];");
  out.close();
}

//===----------------------------------------------------------------------===//
// What leaves a lane
//===----------------------------------------------------------------------===//

/// Sums that warps have, as rows of shared memory.
void TilePrinter::printWordQuads(const TileState &product, unsigned number) {
  std::string sums = name(*product.state) + "_sums[i][";
  out.line("REFOLD_UNROLL");
  out.open("for (int c = 0; c < kWidth / 4; c += 4) {");
  out.line("const uint32_t quad[4] = {bits_of(" + sums + "c]), bits_of(" +
           sums + "c + 1]), bits_of(" + sums + "c + 2]), bits_of(" + sums +
           "c + 3])};");
  out.line("store_shared(right_tiles + uint32_t(((" + std::to_string(number) +
           " * kWarps * kRows + row) * kWidth + c * 4 + word_quad(which)) * "
           "4), quad);");
  out.close();
}

/// A lane has 16 bytes of every 64.
void TilePrinter::printWordVectors(WritePlan &w, ArrayRef<Node *> roots,
                                   const std::string &isRow) {
  unsigned target = cast<BlockArgument>(w.op.getTarget()).getArgNumber() -
                    plan.cascade.numIndices();
  const std::string &e = kernel.indexNames[tiles.width];
  const std::string array = kernel.operandNames[target];
  out.open("if (" + isRow + ") {");
  out.line("REFOLD_UNROLL");
  out.open("for (int quad = 0; quad < kWidth / 16; ++quad) {");
  out.line("uint32_t " + array + "_words[4];");
  out.line("REFOLD_UNROLL");
  out.open("for (int c = 4 * quad; c < 4 * quad + 4; ++c) {");
  out.line("[[maybe_unused]] const int64_t " + e + " = smaller(" +
           resultColumn() + ", " + countOf(tiles.width) + " - 1);");
  {
    Expressions::Scope inside(values, roots);
    bindSums();
    out.line(array + "_words[c % 4] = bits_of(" +
             withoutParentheses(values.value(w.value)) + ");");
  }
  out.close();
  SmallVector<Node *> in;
  Graph::Instance final(plan.sets.numPasses, Node::Final);
  for (Value index : w.op.getIndices())
    in.push_back(plan.graph->instantiate(index, final));
  std::string at = values.offset(target, w.op.getMap(), in, 1);
  out.line("const int own_quad = quad * 16 + word_quad(which);");
  out.line("if (own_quad < " + countOf(tiles.width) + ")");
  out.line("  store_words<16>(" + array + at + " + own_quad, " + array +
           "_words);");
  out.close();
  out.close();
}
