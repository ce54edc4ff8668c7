// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How tiles are brought to shared memory, and what they take there.
#include "TilePrinter.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

/// What Tile and WordTile of the tile level take: rows of as many chunks of 16
/// bytes, which lie alike.
int64_t TilePrinter::bytesOfTile(int64_t rows, int64_t length) const {
  constexpr int64_t kInChunk = 8; // of 16 bits
  return tile::SharedRows::tile(rows, length / tiles.vector() * kInChunk)
      .bytes();
}

std::string TilePrinter::copyOf(const TileAccess &access,
                                const std::string &function,
                                const std::string &tile) {
  std::string vector = tiles.mayWidenAhead() ? "kInVector" : "kVector";
  return function + (access.isWidened() ? "_widened<" : "_tile<") + tile +
         ", kThreads, " + vector +
         (access.isWidened() ? ", " + unitOf(access) + ">" : ">");
}

void TilePrinter::printCopies() {
  std::string n = kernel.indexNames[tiles.stream];
  auto copy = [&](TileAccess &access, const std::string &tile,
                  const std::string &to, const std::string &first,
                  const std::string &rows, int column) {
    std::string stride = strideOf(access);
    std::string from = access.name;
    if (!first.empty())
      from += " + " + first + " * " + stride;
    out.line(copyOf(access, "copy", tile) + "(" + to + ", " + from + ", " +
             stride + ", " + rows + ", " + countOf(column) + ");");
  };
  if (tiles.isOfWords)
    return printWordCopies(copy);
  out.line("// Begins to bring a part of the stream into one of two places.");
  out.open("const auto bring = [&](int64_t " + n + "_first, int place) {");
  if (tiles.mayWidenAhead()) {
    printNarrowBring(copy);
  } else {
    copy(tiles.right, "Right", "right_tiles + place * Right::kBytes",
         n + "_first", n + "_count - " + n + "_first", tiles.depth);
    if (waitsForFirstValues()) {
      out.line("if constexpr (Right::kIsTight)");
      out.line("  commit_copies(); // values are waited for later");
    }
    for (auto [i, access] : llvm::enumerate(tiles.values))
      copy(access, "Values",
           "value_tiles + (" + std::to_string(2 * i) +
               " + place) * Values::kBytes",
           n + "_first", n + "_count - " + n + "_first", tiles.width);
    out.line("commit_copies();");
  }
  out.close("};");
  std::string m = hasTileRow() ? kernel.indexNames[tiles.tileRow] : "";
  copy(tiles.left, "Left", "left_tile", "",
       m.empty() ? "1" : m + "_end - " + m + "_first", tiles.depth);
  out.line("if (begin < end)");
  out.line("  bring(int64_t(end - 1) * kColumns, 0);");
  out.line("else");
  out.line("  commit_copies(); // of the left side, which is waited for in the "
           "end");
  out.line("// Fragments that fit into registers stay there.");
  out.line("[[maybe_unused]] uint32_t kept[kIsKept ? kDepth / 16 : "
           "1][kTiles][4];");
  out.open("if constexpr (kIsKept) {");
  out.line("commit_copies();");
  out.line("wait_copies<0>();");
  out.line("block_barrier();");
  out.line("REFOLD_UNROLL");
  out.line("for (int k = 0; k < kDepth / 16; ++k)");
  out.line("  load_rows<Left>(kept[k], left_tile + thread() / 32 * kTiles * 16 "
           "* Left::kRowBytes, k);");
  out.close();
}

/// Whether products of the first tile begin before its values are there, in the
/// entry of which a multiprocessor has two blocks. Elsewhere three hide the
/// wait, or registers spill.
bool TilePrinter::waitsForFirstValues() {
  return hasTight() && !tiles.widensStream() && !tiles.isOfWords;
}

void TilePrinter::printFirstValues() {
  if (!waitsForFirstValues())
    return;
  out.open("if constexpr (Right::kIsTight) {");
  out.line("// What comes next was asked for behind the first values.");
  out.open("if (" + kernel.indexNames[tiles.stream] +
           "_first == int64_t(end - 1) * kColumns) {");
  out.line("wait_copies<1>();");
  out.line("block_barrier();");
  out.close();
  out.close();
}

/// How what comes after a tile is brought between the products of that one.
void TilePrinter::printNext() {
  if (tiles.widensStream() && !tiles.mayWidenAhead()) {
    // All of it is brought before.
    out.line("const auto bring_part = [](int, int) {};");
    return;
  }
  std::string n = kernel.indexNames[tiles.stream];
  out.line("// What comes next is brought between products, if it is brought "
           "by vectors.");
  out.line("[[maybe_unused]] const bool has_next = " + n +
           "_first > int64_t(begin) * kColumns;");
  out.line("[[maybe_unused]] const int64_t next_first = " + n +
           "_first - (has_next ? kColumns : 0);");
  if (tiles.mayWidenAhead()) {
    out.line("// Of what is widened the tile behind it.");
    out.line("[[maybe_unused]] const bool has_further = " + n +
             "_first > (int64_t(begin) + 1) * kColumns;");
    out.line("[[maybe_unused]] const int64_t further_first = " + n +
             "_first - (has_further ? 2 * kColumns : 0);");
  }
  auto next = [&](TileAccess &access, const char *tile, int column) {
    bool isAhead = access.isWidened() && tiles.mayWidenAhead();
    out.line("[[maybe_unused]] const Next" +
             std::string(isAhead ? "Narrow<" : "<") + tile + ", kThreads, " +
             (isAhead ? unitOf(access) + ", " : "") + typeOf(access) + "> " +
             access.name + "_next(" + access.name +
             (isAhead ? " + further_first * " : " + next_first * ") +
             strideOf(access) + ", " + strideOf(access) + ", " +
             countOf(column) + (isAhead ? ", has_further);" : ", has_next);"));
  };
  next(tiles.right, "Right", tiles.depth);
  for (TileAccess &access : tiles.values)
    next(access, "Values", tiles.width);
  out.open("const auto bring_part = [&]([[maybe_unused]] int part, "
           "[[maybe_unused]] int parts) {");
  out.open(tiles.mayWidenAhead() ? "if constexpr (kVector == 16) {"
                                 : "if constexpr (kVector == 8) {");
  for (TileAccess *access : streamed()) {
    bool isAhead = access->isWidened() && tiles.mayWidenAhead();
    out.line(access->name + "_next." +
             (isAhead ? "pass_on(part, parts, " : "bring(part, parts, ") +
             tileAt(*access, "(place ^ 1)") + ", " +
             (isAhead ? access->name + "_places, " : "") + strideOf(*access) +
             ");");
  }
  out.line("if (part + 1 == parts)");
  out.line("  commit_copies();");
  out.close();
  out.close("};");
}
