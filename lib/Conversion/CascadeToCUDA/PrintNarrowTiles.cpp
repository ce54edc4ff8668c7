// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a kernel over tiles of 8 bits has of its own: the stream comes as bytes,
// to places that are one thread's each, which widens them a tile ahead.
#include "TilePrinter.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;
using TileOp = tile::Op;

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

/// What Narrow takes.
int64_t TilePrinter::bytesOfNarrow(int64_t rows, int64_t length,
                                   int64_t threads) const {
  constexpr int64_t kBytes = 16;
  int64_t atOnce = threads / (length / kBytes) / 8 * 8;
  return llvm::divideCeil(rows, atOnce) * threads * kBytes;
}

/// Of all that the stream brings for a tile.
int64_t TilePrinter::narrowBytes(const CudaEntry &entry) const {
  if (entry.width != TileKernel::kNarrowVector)
    return 0;
  auto bytes = [&](const TileAccess &access, int64_t length) {
    return access.isWidened() ? bytesOfNarrow(entry.vectors, length, 128) : 0;
  };
  int64_t values = 0;
  for (const TileAccess &access : tiles.values)
    values += bytes(access, entry.widest);
  if (entry.roles > 0 && tiles.left.isWidened())
    values = std::max(values, bytesOfNarrow(entry.rows, entry.deepest, 128));
  return bytes(tiles.right, entry.deepest) + values;
}

std::string TilePrinter::narrowType(const TileAccess &access) {
  return std::string("Narrow<") +
         (&access == &tiles.right ? "Right" : "Values") + ", kThreads, " +
         unitOf(access) + ", " + typeOf(access) + ">";
}

SmallVector<TileAccess *> TilePrinter::narrowOnes() {
  SmallVector<TileAccess *> all;
  for (TileAccess *access : streamed())
    if (access->isWidened() && tiles.mayWidenAhead())
      all.push_back(access);
  return all;
}

SmallVector<TileAccess *> TilePrinter::streamed() {
  SmallVector<TileAccess *> all{&tiles.right};
  for (TileAccess &access : tiles.values)
    all.push_back(&access);
  return all;
}

/// Their places, behind everything else; `places` of each are under way.
/// Returns the bytes of all.
std::string TilePrinter::printNarrowPlaces(const std::string &from,
                                           const std::string &places) {
  std::string at = from, all;
  for (TileAccess *access : narrowOnes()) {
    out.line("[[maybe_unused]] const uint32_t " + access->name +
             "_places = " + at + ";");
    std::string bytes = (places.empty() ? "" : places + " * ") +
                        narrowType(*access) + "::kBytes";
    at = access->name + "_places + " + bytes;
    all += (all.empty() ? "" : " + ") + bytes;
  }
  return all;
}

/// Widens a tile that has come; `place` is that of the tile, `from` where its
/// bytes are.
void TilePrinter::printWidening(
    llvm::function_ref<std::string(TileAccess &)> to, const std::string &from) {
  for (TileAccess *access : narrowOnes())
    out.line(narrowType(*access) + "::widen_all(" + to(*access) + ", " +
             access->name + "_places" +
             (from.empty()
                  ? ""
                  : " + " + from + " * " + narrowType(*access) + "::kBytes") +
             ");");
}

/// Where a tile of an array is, of two places.
std::string TilePrinter::tileAt(const TileAccess &access,
                                const std::string &place) {
  if (&access == &tiles.right)
    return "right_tiles + " + place + " * Right::kBytes";
  size_t number = size_t(&access - tiles.values.data());
  return "value_tiles + (" + std::to_string(2 * number) + " + " + place +
         ") * Values::kBytes";
}

/// Begins to bring a part of the stream; what is widened ahead comes with the
/// one behind it.
void TilePrinter::printNarrowBring(PrintCopy copy) {
  std::string n = kernel.indexNames[tiles.stream];
  auto bring = [&](TileAccess &access, const std::string &first,
                   const std::string &rows) {
    int column = &access == &tiles.right ? tiles.depth : tiles.width;
    out.line(narrowType(access) + "::bring(" + access.name + "_places, " +
             access.name + " + " + first + " * " + strideOf(access) + ", " +
             strideOf(access) + ", " + rows + ", " + countOf(column) + ");");
  };
  const std::string rest = n + "_count - " + n + "_first";
  for (TileAccess *access : streamed()) {
    if (access->isWidened()) {
      out.line("if constexpr (kVector == 16)");
      out.text += "  ";
      bring(*access, n + "_first", rest);
      out.line("else");
      out.text += "  ";
    }
    bool isRight = access == &tiles.right;
    copy(*access, isRight ? "Right" : "Values", tileAt(*access, "place"),
         n + "_first", rest, isRight ? tiles.depth : tiles.width);
  }
  out.line("commit_copies();");
  out.open("if constexpr (kVector == 16) {");
  out.line("// Each thread widens what it has brought.");
  out.line("wait_copies<0>();");
  printWidening([&](TileAccess &a) { return tileAt(a, "place"); }, "");
  out.line("const int64_t next_rows = " + n +
           "_first > int64_t(begin) * kColumns ? kColumns : 0;");
  for (TileAccess *access : narrowOnes())
    bring(*access, "(" + n + "_first - next_rows)", "next_rows");
  out.line("commit_copies();");
  out.close();
}

//===----------------------------------------------------------------------===//
// Blocks that share the stream
//===----------------------------------------------------------------------===//

/// Whether all that blocks who share a stream bring of it is widened, each tile
/// before it is folded: what is under way has 8 bits.
bool TilePrinter::widensParts() const {
  return tiles.mayWidenAhead() && tiles.widensAllOfStream();
}

/// Begins to bring a tile of the part to a place of bytes.
void TilePrinter::printNarrowPart() {
  out.open("if constexpr (kVector == 16) {");
  for (TileAccess *access : streamed())
    out.line(
        narrowType(*access) + "::bring(" + access->name + "_places + place * " +
        narrowType(*access) + "::kBytes, " + access->name + " + first * " +
        strideOf(*access) + ", " + strideOf(*access) + ", " +
        kernel.indexNames[tiles.stream] + "_count - first, " +
        countOf(access == &tiles.right ? tiles.depth : tiles.width) + ");");
}

/// What has come of a tile is widened.
void TilePrinter::printNarrowPartTaken() {
  out.line("const int slot = (part_end - 1 - at) % kPlaces;");
  out.line("const int place = (part_end - 1 - at) % kTilePlaces;");
  out.open("if constexpr (kVector == 16) {");
  out.line("// Each thread widens what it has brought: two tiles ago is what "
           "was there.");
  printWidening(
      [&](TileAccess &a) {
        return &a == &tiles.right
                   ? std::string("right_tiles + place * Right::kBytes")
                   : "value_tiles + (" +
                         std::to_string(&a - tiles.values.data()) +
                         " * kTilePlaces + place) * Values::kBytes";
      },
      "slot");
  out.close();
}

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

/// Whether all that the stream brings is widened by those who copy it.
bool TilePrinter::widensByRoles() {
  return widensParts() &&
         vectorsOfEntries().front() == TileKernel::kNarrowVector;
}

/// Rows of 8 bits that are widened to where they are multiplied, from places of
/// the thread, once they have come. The left side comes to those of the first
/// values, before these.
TileOp TilePrinter::widening(TileAccess &access, const tile::Stage &to) {
  TileOp op = plain(TileOp::Write);
  op.to = to;
  bool isLeft = &access == &tiles.left;
  // Of values no group is behind theirs that has not come where the left side
  // was before them.
  bool isAll = tiles.left.isWidened() && !isLeft && &access != &tiles.right;
  op.text = to.type + "Narrow::take" + (isAll ? "_all(" : "(") + to.text() +
            ", " + (isLeft ? tiles.values.front().name : access.name) +
            "_places);";
  return op;
}

/// Begins to bring the tile before `at` of the stream, where there is one. The
/// right side is a group of copies, and values are one.
void TilePrinter::printNarrowNext(const std::string &at,
                                  std::optional<bool> ofValues) {
  std::string n = kernel.indexNames[tiles.stream];
  const std::string first = "(int64_t(" + at + ") - 1) * kColumns";
  for (bool isOfValues : {false, true}) {
    if (ofValues.value_or(isOfValues) != isOfValues)
      continue;
    if (at != "end")
      out.open("if (" + at + " > begin) {");
    for (TileAccess *access : narrowOnes())
      if ((access != &tiles.right) == isOfValues)
        out.line(std::string(isOfValues ? "Values" : "Right") +
                 "Narrow::bring(" + access->name + "_places, " + access->name +
                 " + " + first + " * " + strideOf(*access) + ", " +
                 strideOf(*access) + ", " + n + "_count - " + first + ", " +
                 countOf(isOfValues ? tiles.width : tiles.depth) + ");");
    if (at != "end")
      out.close();
    ops.add(plain(TileOp::CommitCopies));
  }
}

/// Begins to bring the left side, for which nobody has to wait meanwhile.
void TilePrinter::printNarrowLeft() {
  std::string m = kernel.indexNames[tiles.tileRow];
  out.line("LeftNarrow::bring(" + tiles.values.front().name + "_places, " +
           tiles.left.name + ", " + strideOf(tiles.left) + ", " + m +
           "_end - " + m + "_first, " + countOf(tiles.depth) + ");");
  ops.add(plain(TileOp::CommitCopies));
}

/// The types of places, and the bytes of all of them.
std::string TilePrinter::printNarrowTypes() {
  if (!tiles.widensStream())
    return "";
  auto type = [&](const std::string &name, const TileAccess &access) {
    out.line("using " + name + "Narrow = Narrow<" + name + ", 128, " +
             unitOf(access) + ", " + typeOf(access) + ">;");
  };
  type("Right", tiles.right);
  type("Values", tiles.values.front());
  std::string values =
      std::to_string(tiles.values.size()) + " * ValuesNarrow::kBytes";
  if (tiles.left.isWidened()) {
    type("Left", tiles.left);
    values = "(LeftNarrow::kBytes > " + values +
             " ? LeftNarrow::kBytes : " + values + ")";
  }
  return " + RightNarrow::kBytes + " + values;
}

void TilePrinter::printNarrowRolePlaces(const std::string &from) {
  std::string at = from;
  for (TileAccess *access : narrowOnes()) {
    ops.add(let("const uint32_t", {{access->name + "_places", at}}));
    at = access->name + "_places + " +
         (access == &tiles.right ? "Right" : "Values") + "Narrow::kBytes";
  }
}
