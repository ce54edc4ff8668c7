// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel over tiles for few rows: those that read one stream are in one
// block, whatever their indices; warps fold columns of a tile each, and blocks
// parts of the stream. States are merged twice, by one text: those of warps,
// then those of blocks.
#include "TilePrinter.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

namespace {
constexpr int kRows = 16, kWarps = 4, kColumns = 16; ///< columns of a warp
} // namespace

//===----------------------------------------------------------------------===//
// What is launched
//===----------------------------------------------------------------------===//

/// As many tiles under way as the smallest multiprocessor has room for, up to
/// four: with more, nothing was gained on an H200.
void TilePrinter::addPartsEntry(const CudaEntry &like) {
  constexpr int64_t kRoom = 160 << 10;
  CudaEntry entry;
  entry.threads = kWarps * 32;
  entry.rows = kRows;
  entry.vectors = kWarps * kColumns;
  entry.width = like.width;
  entry.isResident = false;
  entry.deepest = like.deepest;
  entry.widest = like.widest;
  int64_t left = bytesOfTile(kRows, entry.deepest) +
                 kWarps * wordFactorBytes(kRows, kColumns);
  int64_t place =
      bytesOfTile(entry.vectors, entry.deepest) +
      int64_t(tiles.values.size()) * bytesOfTile(entry.vectors, entry.widest);
  int64_t places = std::clamp<int64_t>((kRoom - left) / place, 2, 4);
  int64_t bytes = places * place;
  if (int64_t narrow = narrowBytes(entry)) { // two tiles that are widened
    constexpr int64_t kMostNarrow = 6;
    places = std::clamp<int64_t>((kRoom - left - 2 * place) / narrow, 2,
                                 kMostNarrow);
    bytes = 2 * place + places * narrow;
  }
  int64_t sums = int64_t(tiles.products.size()) * entry.widest * kRows * 4;
  entry.columns = int(places);
  entry.sharedBytes = left + std::max(bytes, kWarps * sums);
  if (hasShares()) {
    entry.mostGroups = kMostGroups;
    entry.sharedBytes = std::max(entry.sharedBytes, shareBytes(entry.threads));
  }
  // A block a multiprocessor of a large GPU; how many follows from shapes.
  entry.mostBlocks = 132;
  entry.leftBytes = int64_t(rowStates().size()) * kRows * 4 + sums;
  entry.name = options.name + "_parts" + std::to_string(kRows) + "x" +
               std::to_string(entry.vectors) + "x" +
               std::to_string(entry.deepest);
  if (hasWidth())
    entry.name += "x" + std::to_string(entry.widest);
  entry.name += "x" + std::to_string(entry.width);
  // Of two entries that columns alone tell apart.
  if (result.entries.empty() || result.entries.back().name != entry.name)
    result.entries.push_back(entry);
}

void TilePrinter::findPacking(CudaTiles &grid) {
  for (unsigned row : tiles.rows) {
    auto packed = llvm::find_if(tiles.packed,
                                [&](auto &one) { return one.index == row; });
    if (packed == tiles.packed.end())
      grid.groups.push_back({extentOf(row), 1, hasOwnStream(row)});
    else if (packed->share)
      grid.groups.push_back({extentOf(row), packed->share, hasOwnStream(row)});
  }
  for (TileKernel::Packed &packed : tiles.packed)
    grid.packed.push_back({extentOf(packed.index), packed.share});
  if (hasTileRow())
    grid.packed.push_back({extentOf(tiles.tileRow), 0});
}

void TilePrinter::printPartsEntry(const CudaEntry &entry) {
  if (entry.roles > 0)
    return printWideEntry(entry);
  bool isKept = entry.deepest <= 128 && !tiles.isOfWords;
  out.line(options.name + "_in_parts<" + std::to_string(entry.columns) + ", " +
           std::to_string(entry.deepest) + ", " + std::to_string(entry.widest) +
           ", " + std::to_string(entry.width) + ", " +
           (isKept ? "true" : "false") + ", " +
           std::to_string(entry.sharedBytes) + ">(" + ofParts.second + ");");
  out.close();
}

/// The text, and the entries, before those of `of`.
std::string TilePrinter::printParts(TilePrinter &of) {
  isInParts = true;
  ofParts = of.ofParts;
  findPacking(*of.result.tiles);
  for (const CudaEntry &entry : of.result.entries)
    if (entry.roles == 0 &&
        (entry.width < TileKernel::kNarrowVector || widensParts()))
      addPartsEntry(entry);
  of.result.entries.insert(of.result.entries.begin(), result.entries.begin(),
                           result.entries.end());
  printPartsBody();
  return std::move(out.text);
}

/// States that are numbers of a row, of all levels.
SmallVector<StatePlan *> TilePrinter::rowStates() {
  SmallVector<StatePlan *> states;
  for (StatePlan &s : plan.states)
    if (!tiles.productOf(s))
      states.push_back(&s);
  return states;
}

//===----------------------------------------------------------------------===//
// Where a block is
//===----------------------------------------------------------------------===//

/// What of the rows' numbers all rows of the block have.
void TilePrinter::printPackedPlaces() {
  std::string packed;
  auto shareOf = [&](const TileKernel::Packed &one) {
    return one.share ? "int64_t(" + std::to_string(one.share) + ")"
                     : countOf(one.index);
  };
  for (const TileKernel::Packed &one : tiles.packed)
    packed += (packed.empty() ? "" : " * ") + shareOf(one);
  if (hasTileRow())
    packed += (packed.empty() ? "" : " * ") + countOf(tiles.tileRow);
  out.comment("Rows that read one stream are numbered together; blocks beside "
              "each other have parts of the stream.");
  packedText = packed.empty() ? std::string("1") : packed;
  out.line("const int64_t packed_count = " + packedText + ";");
  out.line("const int64_t packed_blocks = (packed_count + kRows - 1) / kRows;");
  std::string groups = "packed_blocks";
  SmallVector<std::pair<unsigned, int64_t>> places;
  for (unsigned row : tiles.rows) {
    auto found = llvm::find_if(tiles.packed,
                               [&](auto &one) { return one.index == row; });
    int64_t share = found == tiles.packed.end() ? 1 : found->share;
    if (share == 0)
      continue;
    places.push_back({row, share});
    groups += share == 1
                  ? " * " + countOf(row)
                  : " * ((" + countOf(row) + " + " + std::to_string(share - 1) +
                        ") / " + std::to_string(share) + ")";
  }
  std::string block = isWide ? "block_again()" : "block()";
  if (isSharing) { // asked of any group
    groupsText = groups;
  } else if (hasShares()) {
    out.line("const int64_t row_parts = shared_share.load(0);");
    out.line("[[maybe_unused]] const int64_t group = shared_share.load(1);");
    out.line("const int64_t part = shared_share.load(2);");
  } else {
    out.line("const int64_t row_parts = block_quotient(blocks(), " + groups +
             ");");
    out.line("[[maybe_unused]] const int64_t group = block_quotient(" + block +
             ", row_parts);");
    out.line("const int64_t part = " + block + " - group * row_parts;");
  }
  out.line(
      "[[maybe_unused]] const int64_t packed_first = block_remainder(group, "
      "packed_blocks) * kRows;");
  out.line("const int64_t row_0 = block_quotient(group, packed_blocks);");
  unsigned number = 0;
  for (auto [row, share] : llvm::reverse(places)) {
    std::string count = countOf(row), rest = "row_" + std::to_string(number);
    if (share > 1)
      count = "((" + count + " + " + std::to_string(share - 1) + ") / " +
              std::to_string(share) + ")";
    out.line("[[maybe_unused]] const int64_t " +
             (share == 1 ? kernel.indexNames[row] : firstOf(row)) +
             " = block_remainder(" + rest + ", " + count + ")" +
             (share == 1 ? ";" : " * " + std::to_string(share) + ";"));
    if (share > 1) // what rows of the block read of it is the same
      out.line("[[maybe_unused]] const int64_t " + kernel.indexNames[row] +
               " = " + firstOf(row) + ";");
    out.line("[[maybe_unused]] const int64_t row_" + std::to_string(++number) +
             " = block_quotient(" + rest + ", " + count + ");");
  }
  if (hasTileRow()) // bounds are those of all rows
    out.line("[[maybe_unused]] const int64_t " + firstOf(tiles.tileRow) +
             " = 0, " + kernel.indexNames[tiles.tileRow] +
             "_end = " + countOf(tiles.tileRow) + ";");
}

/// Whether a row says where the stream ends, or begins, of its group.
bool TilePrinter::hasOwnStream(unsigned row) {
  auto packed =
      llvm::find_if(tiles.packed, [&](auto &one) { return one.index == row; });
  return (packed == tiles.packed.end() || packed->share > 0) &&
         llvm::any_of(
             plan.passes[0].conditions, [&](const Condition &condition) {
               return condition.extreme < 0 && dependsOn(condition.bound, row);
             });
}
bool TilePrinter::hasShares() {
  return llvm::any_of(tiles.rows,
                      [&](unsigned row) { return hasOwnStream(row); });
}

/// Which group of rows a block has, and which part of their stream.
void TilePrinter::printShare(const std::string &costs,
                             const std::string &scratch) {
  out.line("REFOLD_SHARED(int32_t, shared_share, 3);");
  out.open("{");
  Expressions::Scope scope(values, {});
  values.beginFunction();
  out.open("const auto tiles_of = [&](int64_t group) -> int {");
  isSharing = true;
  {
    Expressions::Scope inside(values, {});
    printPackedPlaces();
    printBounds();
    printRange();
    out.line("return end - begin;");
  }
  isSharing = false;
  out.close("};");
  out.line("const int64_t packed_count = " + packedText + ";");
  out.line("[[maybe_unused]] const int64_t packed_blocks = (packed_count + "
           "kRows - 1) / kRows;");
  std::string streams;
  for (unsigned row : tiles.rows)
    if (hasOwnStream(row))
      streams += (streams.empty() ? "" : " * ") + countOf(row);
  out.line("using Costs = ShareCosts<" + costs + ", " +
           std::to_string(result.entries.front().mostBlocks) + ">;");
  out.line("share_blocks<Costs, " + std::to_string(kMostGroups) + ", " +
           std::to_string(result.entries.front().threads) + ">(shared_share, " +
           scratch + ", " + groupsText + ", " + streams + ", tiles_of);");
  out.close();
  out.line("block_barrier();");
  out.line("if (shared_share.load(0) == 0)");
  out.line("  return; // nothing is left for it");
}

/// The numbers of a row of the block; past the last one those of the last.
void TilePrinter::printPackedRow(const std::string &at) {
  out.line("const int64_t packed = " + at + ";");
  std::string rest = "packed_rest";
  out.line("[[maybe_unused]] bool is_row = packed < packed_count;");
  out.line("[[maybe_unused]] const int64_t packed_rest = smaller(packed, "
           "packed_count - 1);");
  unsigned number = 0;
  auto next = [&](const std::string &count) {
    std::string further = "packed_rest" + std::to_string(++number);
    out.line("[[maybe_unused]] const int64_t " + further +
             " = block_quotient(" + rest + ", " + count + ");");
    std::string place = "block_remainder(" + rest + ", " + count + ")";
    rest = further;
    return place;
  };
  if (hasTileRow())
    out.line("[[maybe_unused]] const int64_t " +
             kernel.indexNames[tiles.tileRow] + " = block_remainder(" + rest +
             ", " + countOf(tiles.tileRow) + ");");
  if (hasTileRow())
    next(countOf(tiles.tileRow));
  for (const TileKernel::Packed &one : llvm::reverse(tiles.packed)) {
    const std::string &name = kernel.indexNames[one.index];
    std::string count =
        one.share ? std::to_string(one.share) : countOf(one.index);
    std::string place = "block_remainder(" + rest + ", " + count + ")";
    if (one.share > 0) {
      out.line("const int64_t " + name + "_at = " + firstOf(one.index) + " + " +
               place + ";");
      out.line("is_row = is_row && " + name + "_at < " + countOf(one.index) +
               ";");
      out.line("[[maybe_unused]] const int64_t " + name + " = smaller(" + name +
               "_at, " + countOf(one.index) + " - 1);");
    } else {
      out.line("[[maybe_unused]] const int64_t " + name + " = " + place + ";");
    }
    next(count);
  }
}

//===----------------------------------------------------------------------===//
// The stream
//===----------------------------------------------------------------------===//

void TilePrinter::printBrings() {
  std::string n = kernel.indexNames[tiles.stream];
  out.line("// Begins to bring a tile of the part, if there is one.");
  out.open("const auto bring = [&](int at, int place) {");
  out.open("if (at >= part_begin) {");
  out.line("const int64_t first = int64_t(at) * Right::kRows;");
  auto copy = [&](TileAccess &access, const std::string &tile,
                  const std::string &to, int column) {
    out.line(copyOf(access, "copy", tile) + "(" + to + ", " + access.name +
             " + first * " + strideOf(access) + ", " + strideOf(access) + ", " +
             n + "_count - first, " + countOf(column) + ");");
  };
  const std::string each = widensParts() ? "kTilePlaces" : "kPlaces";
  if (widensParts()) {
    printNarrowPart();
    out.otherwise();
  }
  copy(tiles.right, "Right", "right_tiles + place * Right::kBytes",
       tiles.depth);
  for (auto [i, access] : llvm::enumerate(tiles.values))
    copy(access, "Values",
         "value_tiles + (" + std::to_string(i) + " * " + each +
             " + place) * Values::kBytes",
         tiles.width);
  if (widensParts())
    out.close();
  out.close();
  out.close("};");
  out.comment(
      "The left side comes with the first tile, and is asked for behind "
      "it: where its rows are takes longer to find.");
  out.line("bring(part_end - 1, 0);");
  auto read = cast<ReadOp>(tiles.left.read->op);
  out.open(copyOf(tiles.left, "gather", "Left") + "(left_tile, [&](int i) {");
  {
    Expressions::Scope scope(values, {});
    printPackedRow("packed_first + i");
    out.line("return " + kernel.operandNames[tiles.left.operand] +
             values.offset(tiles.left.operand, read.getMap(),
                           tiles.left.read->in, 1) +
             insideText(tiles.left) + ";");
  }
  out.close("}, int(smaller(packed_count - packed_first, kRows)), " +
            countOf(tiles.depth) + ");");
  out.line("commit_copies();");
  out.open("for (int i = 1; i < kPlaces - 1; ++i) {");
  out.line("bring(part_end - 1 - i, i);");
  out.line("commit_copies();");
  out.close();
  if (tiles.isOfWords)
    return;
  out.line("// Fragments that fit into registers stay there.");
  out.line("[[maybe_unused]] uint32_t kept[kIsKept ? kDepth / 16 : "
           "1][kTiles][4];");
  out.open("if constexpr (kIsKept) {");
  out.line("wait_copies<kPlaces - 2>();");
  out.line("block_barrier();");
  out.line("REFOLD_UNROLL");
  out.line("for (int k = 0; k < kDepth / 16; ++k)");
  out.line("  load_rows<Left>(kept[k], left_tile, k);");
  out.close();
}

void TilePrinter::printPartsFold() {
  std::string n = kernel.indexNames[tiles.stream];
  out.line("States states[2 * kTiles];");
  printLaneSums();
  out.line("// Absorbs the warp's columns of a tile: states that others are "
           "relative to come first.");
  openFold(n + "_first, int place", /*mayMaskAhead=*/true);
  out.line("const int which = thread_again();");
  out.line("[[maybe_unused]] const int count = within(" + n + "_count - " + n +
           "_first, kColumns);");
  const std::string right =
      "right_tiles + place * Right::kBytes + which / 32 * kColumns * "
      "Right::kRowBytes";
  if (tiles.isOfWords) {
    printWordProducts("Own", "left_tile", right);
  } else {
    out.line("float products[kTiles][kColumns / 8][4] = {};");
    out.line("multiply_rows<" + unitOf(tiles.left) +
             ", Left, Own, kIsKept>(products, kept, left_tile, " + right +
             ", [](int, int) {});");
  }
  for (unsigned level = 0; level < tiles.numLevels(); ++level)
    printLevel(level);
  if (tiles.isOfWords && !tiles.products.empty()) {
    out.line("warp_barrier(); // of what lanes have put there for each other");
    printWordSums();
  }
  out.close("};");
}

void TilePrinter::printPartsWalk() {
  out.blank();
  out.line("// 2. The part from its end, tiles on their way while one is "
           "folded.");
  out.open("for (int at = part_end - 1; at >= part_begin; --at) {");
  out.line("// What has arrived is seen by all, and all are done with what "
           "comes next overwrites.");
  out.line("wait_copies<kPlaces - 2>();");
  if (widensParts())
    printNarrowPartTaken();
  out.line("block_barrier();");
  if (!widensParts())
    out.line("const int place = (part_end - 1 - at) % kPlaces;");
  const std::string slot = widensParts() ? "slot" : "place";
  out.line("bring(at - (kPlaces - 1), (" + slot +
           " + kPlaces - 1) % kPlaces);");
  out.line("commit_copies();");
  out.line("const int64_t first = int64_t(at) * Right::kRows + thread_again() "
           "/ 32 * kColumns;");
  out.line("if (first >= " + countOf(tiles.stream) + ")");
  out.line("  continue; // no column of the last tile is this warp's");
  printFoldCall("place");
  out.close();
  out.line("wait_copies<0>();");
  out.line("block_barrier();");
}

//===----------------------------------------------------------------------===//
// Merges
//===----------------------------------------------------------------------===//

/// What warps have, where all threads of the block find it.
void TilePrinter::printWarpStates() {
  out.blank();
  out.line("// 3. What warps have is merged, then what blocks have.");
  for (StatePlan *s : rowStates())
    out.line("REFOLD_SHARED(float, shared_" + name(*s) + ", kWarps * kRows);");
  out.open("{");
  out.line("const int which = thread_again();");
  openRows();
  for (StatePlan *s : rowStates())
    if (!isReduced(*s))
      for (const char *mask : laneMasks())
        out.line("s." + name(*s) + " = " +
                 withoutParentheses(combine(*s, "s." + name(*s),
                                            "shuffle_xor(s." + name(*s) + ", " +
                                                std::string(mask) + ")")) +
                 ";");
  if (SmallVector<StatePlan *> moved = movedAt(-1);
      !moved.empty() && !tiles.dropsPivots) {
    mode = Moving;
    out.open("{");
    printTransports(moved);
    out.close();
    mode = Absorbing;
  }
  out.line("const int row = which / 32 * kRows + " + laneRow("i") + ";");
  out.open("if (" + laneColumn("0") + " == 0) {");
  for (StatePlan *s : rowStates())
    out.line("shared_" + name(*s) + ".store(row, s." + name(*s) + ");");
  out.close();
  for (auto [p, product] : llvm::enumerate(tiles.products)) {
    std::string sums = name(*product.state) + "_sums[0]";
    if (tiles.isOfWords) {
      printWordQuads(product, unsigned(p));
      continue;
    }
    out.line("REFOLD_UNROLL");
    out.open("for (int c = 0; c < kWidth / 8; c += 2) {");
    for (const char *side : {"low", "high"})
      out.line("const float " + std::string(side) + "[2] = {" + sums +
               (side[0] == 'l' ? "[c]" : "[c + 1]") + "[i * 2], " + sums +
               (side[0] == 'l' ? "[c]" : "[c + 1]") + "[i * 2 + 1]};");
    out.line("uint32_t quad[4];");
    out.line("exchange_quads(quad, low, high);");
    out.line("store_shared(right_tiles + uint32_t(((" + std::to_string(p) +
             " * kWarps * kRows + row) * kWidth + c * 8 + "
             "fragment_quad(which)) * 4), quad);");
    out.close();
  }
  closeRows();
  out.close();
  out.line("block_barrier();");
}

/// What states and sums become by those of a part, `old`; `one`: which of
/// several quads that a thread has.
void TilePrinter::printMergedStates(ArrayRef<StatePlan *> here,
                                    ArrayRef<const TileState *> products,
                                    const std::string &one, bool isOfBlocks) {
  auto ifThere = [&](const std::string &value, const std::string &otherwise) {
    return isOfBlocks ? "is_there ? " + value + " : " + otherwise : value;
  };
  SmallVector<Node *> roots;
  for (StatePlan *s : here)
    roots.push_back(s->moved);
  for (const TileState *p : products)
    roots.push_back(p->state->moved);
  auto moved = [&](StatePlan &s, const std::string &plain) {
    return s.op.getTransport().empty() ? plain : values.value(s.moved);
  };
  for (StatePlan *s : here)
    out.line("s." + name(*s) + " = " +
             withoutParentheses(
                 combine(*s, "s." + name(*s), moved(*s, "old." + name(*s)))) +
             ";");
  for (const TileState *p : products)
    values.hoist(p->state->moved);
  if (!products.empty()) {
    if (!one.empty()) {
      out.line("REFOLD_UNROLL");
      out.open("for (int j = 0; j < kAtOnce; ++j) {");
    }
    out.line("REFOLD_UNROLL");
    out.open("for (int e = 0; e < 4; ++e) {");
    Expressions::Scope inside(values, roots);
    for (const TileState *p : products) {
      std::string sum = name(*p->state);
      out.line("const float " + sum + " = " +
               ifThere("float_of(" + sum + "_quads[slot]" + one + "[e])",
                       identity(*p->state)) +
               ";");
      values.bind(plan.graph->version(p->state->op, Node::Old), sum);
    }
    for (const TileState *p : products) {
      std::string sum = name(*p->state) + "_merged" + one + "[e]";
      out.line(sum + " = " +
               withoutParentheses(
                   combine(*p->state, sum, moved(*p->state, name(*p->state)))) +
               ";");
    }
    out.close();
    if (!one.empty())
      out.close();
  }
}

/// A level of the states of a row, of all warps or blocks, several of them
/// under way at once.
void TilePrinter::printMergeLevel(unsigned level, bool isOfBlocks) {
  SmallVector<StatePlan *> here = rowStatesOf(level);
  SmallVector<const TileState *> products = productsOf(level);
  SmallVector<Node *> roots;
  NodeSet read;
  for (StatePlan *s : here)
    roots.push_back(s->moved);
  for (const TileState *p : products)
    roots.push_back(p->state->moved);
  for (Node *root : roots)
    collect(root, read);
  auto isRead = [&](StatePlan *s) {
    return llvm::is_contained(here, s) ||
           read.contains(plan.graph->version(s->op, Node::Old));
  };
  // Of wide results four quads each, where there are some.
  bool hasQuads = isWide && !products.empty();
  std::string batch = !isOfBlocks ? "kWarps" : hasQuads ? "4" : "16";
  std::string several = isWide ? "[kAtOnce]" : "", one = isWide ? "[j]" : "";
  auto openQuads = [&] {
    if (!isWide)
      return;
    out.line("REFOLD_UNROLL");
    out.open("for (int j = 0; j < kAtOnce; ++j) {");
  };
  auto closeQuads = [&] {
    if (isWide)
      out.close();
  };
  std::string count = isOfBlocks ? "row_parts" : "int64_t(kWarps)";
  out.line(isOfBlocks ? "REFOLD_NO_UNROLL" : "REFOLD_UNROLL");
  out.open("for (int64_t base = 0; base < " + count + "; base += " + batch +
           ") {");
  out.line("[[maybe_unused]] States olds[" + batch + "];");
  for (const TileState *p : products)
    out.line("uint32_t " + name(*p->state) + "_quads[" + batch + "]" + several +
             "[4];");
  out.line("REFOLD_UNROLL");
  out.open("for (int slot = 0; slot < " + batch + "; ++slot) {");
  out.line("const int64_t at = smaller(base + slot, " + count + " - 1)" +
           (isOfBlocks ? " + " + firstPart() + ";" : ";"));
  for (StatePlan *s : rowStates())
    if (isRead(s))
      out.line(
          "olds[slot]." + name(*s) + " = " +
          (isOfBlocks ? "take_left(left_" + name(*s) + " + at * kRows + row);"
           : isWide   ? "take_number(row_numbers + (" +
                          std::to_string(numberAmongRows(*s)) +
                          " * kRows + row) * 16);"
                    : "shared_" + name(*s) + ".load(int(at) * kRows + row);"));
  for (const TileState *p : products) {
    std::string place =
        std::to_string(p - tiles.products.data()) +
        (isOfBlocks ? " * blocks() * kRows" : " * kWarps * kRows");
    std::string from = "((" + place + " + at * kRows + row) * kWidth + column" +
                       (isWide ? " + j * kApart)" : ")");
    openQuads();
    std::string to = name(*p->state) + "_quads[slot]" + one;
    // Parts that are not there would be loads for nothing.
    out.line(isOfBlocks && isWide ? "take_words_if(" + to + ", left_sums + " +
                                        from + ", base + slot < row_parts);"
             : isOfBlocks
                 ? "take_words<16>(" + to + ", left_sums + " + from + ");"
                 : "load_shared(" + to +
                       (isWide ? ", right_panels" : ", right_tiles") +
                       " + uint32_t(" + from + " * 4));");
    closeQuads();
  }
  out.close();
  out.line("REFOLD_UNROLL");
  out.open("for (int slot = 0; slot < " + batch + "; ++slot) {");
  out.line("// A branch would have every load wait for the one before.");
  if (isOfBlocks)
    out.line("const bool is_there = base + slot < row_parts;");
  out.line(std::string("[[maybe_unused]] const States old = ") +
           (isOfBlocks ? "is_there ? olds[slot] : States();" : "olds[slot];"));
  {
    Expressions::Scope scope(values, roots);
    mode = Merging;
    int stream = kernel.stream;
    kernel.stream = tiles.width;
    printMergedStates(here, products, one, isOfBlocks);
    kernel.stream = stream;
    mode = Absorbing;
  }
  out.close();
  out.close();
}

/// Every thread has four columns of a row at a time: of all that warps have, or
/// blocks.
void TilePrinter::printMergedParts(bool isOfBlocks) {
  bool isSliced = isWide && isOfBlocks;
  std::string steps = isWide ? "(kQuads / kAtOnce)" : "kQuads";
  std::string one = isWide ? "[j]" : "";
  auto openQuads = [&] {
    if (!isWide)
      return;
    out.line("REFOLD_UNROLL");
    out.open("for (int j = 0; j < kAtOnce; ++j) {");
  };
  out.line("REFOLD_NO_UNROLL");
  out.open("for (int index = thread()" + std::string(isWide ? " - 128" : "") +
           "; index < " + (isSliced ? "slice_rows" : "kRows") + " * " + steps +
           "; index += kThreads) {");
  out.line(std::string("const int row = ") +
           (isSliced ? "slice * slice_rows + " : "") + "index / " + steps +
           ";");
  out.line("[[maybe_unused]] const int column = index % " + steps + " * 4;");
  out.line("if (packed_first + row >= packed_count)");
  out.line("  break;");
  out.line("States s;");
  for (const TileState &p : tiles.products)
    out.line("float " + name(*p.state) + "_merged" +
             (isWide ? "[kAtOnce]" : "") + "[4] = {};");
  for (unsigned level = 0; level < tiles.numLevels(); ++level)
    printMergeLevel(level, isOfBlocks);
  std::string sums;
  for (const TileState &p : tiles.products)
    sums += ", " + name(*p.state) + "_merged" + one;
  if (!isOfBlocks && !isWide) { // whose sums are left by whoever has them
    out.open("if (row_parts > 1) {");
    out.open("if (column == 0) {");
    for (StatePlan *s : rowStates())
      out.line("leave(left_" + name(*s) + " + block() * kRows + row, s." +
               name(*s) + ");");
    out.close();
    for (auto [p, product] : llvm::enumerate(tiles.products)) {
      std::string merged = name(*product.state) + "_merged[";
      std::string quad = name(*product.state) + "_quad";
      out.line("const uint32_t " + quad + "[4] = {bits_of(" + merged +
               "0]), bits_of(" + merged + "1]), bits_of(" + merged +
               "2]), bits_of(" + merged + "3])};");
      out.line("leave_words<16>(left_sums + ((" + std::to_string(p) +
               " * blocks() * kRows + block() * kRows + row) * kWidth + "
               "column), " +
               quad + ");");
    }
    out.line("continue;");
    out.close();
  }
  openQuads();
  out.line("write(s, row, column" + std::string(isWide ? " + j * kApart" : "") +
           sums + ");");
  if (isWide)
    out.close();
  out.close();
}

/// What is made of the states of a row: four columns of it.
void TilePrinter::printPartResults() {
  SmallVector<WritePlan *> rows, wide;
  SmallVector<Node *> roots;
  for (WritePlan &w : plan.finishWrites) {
    (hasWidth() && (w.set & bit(tiles.width)) ? wide : rows).push_back(&w);
    roots.push_back(w.value);
  }
  std::string sums;
  for (const TileState &p : tiles.products)
    sums += ", const float (&" + name(*p.state) + "_merged)[4]";
  out.open("const auto write = [&]([[maybe_unused]] const States &s, int at, "
           "[[maybe_unused]] int first" +
           sums + ") {");
  {
    Expressions::Scope scope(values, roots);
    printPackedRow("packed_first + at");
    out.line("if (!is_row)");
    out.line("  return;");
    mode = Merging;
    int stream = kernel.stream;
    kernel.stream = tiles.width;
    if (!rows.empty()) {
      out.open("if (first == 0) {");
      Expressions::Scope inside(values, roots);
      for (WritePlan *w : rows)
        printResult(*w);
      out.close();
    }
    values.takesReciprocals = true;
    for (WritePlan *w : wide)
      values.hoist(w->value);
    if (!wide.empty()) {
      const std::string &e = kernel.indexNames[tiles.width];
      out.line("REFOLD_UNROLL");
      out.open("for (int c = 0; c < 4; ++c) {");
      out.line("const int64_t " + e + " = first + c;");
      out.line("if (" + e + " >= " + countOf(tiles.width) + ")");
      out.line("  break;");
      Expressions::Scope inside(values, roots);
      for (const TileState &p : tiles.products)
        values.bind(plan.graph->version(p.state->op, Node::Final),
                    name(*p.state) + "_merged[c]");
      for (WritePlan *w : wide)
        printResult(*w);
      out.close();
    }
    values.takesReciprocals = false;
    kernel.stream = stream;
    mode = Absorbing;
  }
  out.close("};");
}

void TilePrinter::printPartsBody() {
  out.blank();
  out.line("template <int kPlaces, int kDepth, int kWidth, int kVector, bool "
           "kIsKept, int64_t kSharedBytes>");
  out.open("REFOLD_DEVICE void " + options.name + "_in_parts(" + ofParts.first +
           ") {");
  size_t begin = out.text.size();
  for (unsigned i = 0; i < plan.cascade.numIndices(); ++i)
    if (extentOf(i).operand < 0 && isNamed(kernel.indexNames[i] + "_count"))
      out.line("[[maybe_unused]] constexpr int64_t " + kernel.indexNames[i] +
               "_count = " + std::to_string(plan.extent(i)) + ";");
  out.line("constexpr int kWarps = " + std::to_string(kWarps) +
           ", kThreads = kWarps * 32, kRows = " + std::to_string(kRows) +
           ", kTiles = 1, kColumns = " + std::to_string(kColumns) +
           "; // of a warp");
  const std::string tile = tileType();
  out.line("using Left = " + tile + "<kRows, kDepth>;");
  out.line("using Right = " + tile + "<kWarps * kColumns, kDepth>;");
  out.line("using Own = " + tile + "<kColumns, kDepth>;");
  const std::string each = widensParts() ? "kTilePlaces" : "kPlaces";
  if (tiles.mayWidenAhead())
    out.line("[[maybe_unused]] constexpr int kInVector = kVector == 16 ? 8 : "
             "kVector; // of a chunk");
  if (widensParts())
    out.line("constexpr int kTilePlaces = kVector == 16 ? 2 : kPlaces;");
  std::string total = "Left::kBytes + " + each + " * Right::kBytes";
  total += printWordFactorType();
  if (hasWidth()) {
    out.line("using Values = " + tile + "<kWarps * kColumns, kWidth>;");
    total += " + " + std::to_string(tiles.values.size()) + " * " + each +
             " * Values::kBytes";
  }
  out.line("constexpr int kQuads = kWidth == 0 ? 1 : kWidth / 4;");
  out.line("static_assert(kSharedBytes >= " + total + ");");
  out.line("REFOLD_SHARED_BYTES(left_tile, kSharedBytes);");
  out.line("const uint32_t right_tiles = left_tile + Left::kBytes" +
           factorBytes() + ";");
  if (hasWidth())
    out.line("const uint32_t value_tiles = right_tiles + " + each +
             " * Right::kBytes;");
  if (widensParts())
    printNarrowPlaces("left_tile + " + total, "kPlaces");
  Expressions::Scope scope(values, {});
  out.blank();
  out.line("// 1. Where the block is, and what does not change there.");
  if (hasShares())
    printShare("4, 1, 21, " + std::to_string(CudaEntry::kPartChunks),
               "left_tile");
  printPackedPlaces();
  for (TileAccess *access : {&tiles.right})
    printMatrix(*access);
  for (TileAccess &access : tiles.values)
    printMatrix(access);
  printFixed();
  printBounds();
  printRange();
  out.line("const int part_tiles = (end - begin + int(row_parts) - 1) / "
           "int(row_parts);");
  out.line("const int part_begin = begin + int(part) * part_tiles;");
  out.line("const int part_end = int(smaller(part_begin + part_tiles, end));");
  printBrings();
  printPartsFold();
  printPartsWalk();
  printWarpStates();
  printWorkspace();
  printPartResults();
  printMergedParts(/*isOfBlocks=*/false);
  out.line("if (row_parts == 1 || !is_last_block(tickets + " +
           (hasShares() ? firstPart() : "group") + ", row_parts))");
  out.line("  return;");
  printMergedParts(/*isOfBlocks=*/true);
  partsBody = out.text.substr(begin);
  out.close();
}
