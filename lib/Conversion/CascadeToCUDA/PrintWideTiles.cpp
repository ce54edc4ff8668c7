// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel over tiles for results that are too wide for the registers of
// whoever multiplies, where the rows that are added are the front of the rows
// that are multiplied: read once, used for both. For sm_90a. Four warps copy,
// four have what is known of a row, and two times four have half of its sums
// each.
#include "TilePrinter.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

namespace {
constexpr int kRows = 64, kColumns = 64;
constexpr int64_t kPanel = 64, kPanelBytes = kRows * kPanel * 2;
constexpr int64_t kGateBytes = 512;
/// Of what a thread of each role would have if all had as many: of those who
/// copy, and beside products and sums of those who multiply.
constexpr int64_t kRegisters = 128, kOfCopies = 32, kBesideProducts = 32,
                  kBesideSums = 48, kOfMerges = 144;
constexpr int64_t kDeepest = 576, kWidest = 512;
} // namespace

//===----------------------------------------------------------------------===//
// What is launched
//===----------------------------------------------------------------------===//

/// Whether two subscripts are the same place.
static bool isSamePlace(AffineExpr x, Node *of, AffineExpr y, Node *other) {
  if (auto dim = dyn_cast<AffineDimExpr>(x)) {
    auto second = dyn_cast<AffineDimExpr>(y);
    return second &&
           of->in[dim.getPosition()] == other->in[second.getPosition()];
  }
  if (auto both = dyn_cast<AffineBinaryOpExpr>(x)) {
    auto second = dyn_cast<AffineBinaryOpExpr>(y);
    return second && both.getKind() == second.getKind() &&
           isSamePlace(both.getLHS(), of, second.getLHS(), other) &&
           isSamePlace(both.getRHS(), of, second.getRHS(), other);
  }
  return isa<AffineConstantExpr>(x) && x == y;
}

bool TileKernel::sharesRows() const {
  if (values.size() != 1 || values[0].operand != right.operand ||
      values[0].rowDim != right.rowDim)
    return false;
  for (const TileAccess *access : {&right, &values[0]}) {
    auto first = dyn_cast<AffineConstantExpr>(access->inside);
    if (!first || first.getValue() != 0)
      return false;
  }
  auto all = cast<ReadOp>(right.read->op).getMap().getResults().drop_back();
  auto front =
      cast<ReadOp>(values[0].read->op).getMap().getResults().drop_back();
  return llvm::all_of(llvm::zip_equal(all, front), [&](auto pair) {
    auto [x, y] = pair;
    return isSamePlace(x, right.read, y, values[0].read);
  });
}

/// Whether rows are shared, and one number a row moves its sums.
bool TilePrinter::mayBeWide() {
  if (!StringRef(options.target).contains("sm90") || !packing ||
      tiles.products.size() != 1 || tiles.numLevels() > 2 ||
      !tiles.sharesRows())
    return false;
  const StatePlan &sum = *tiles.products.front().state;
  // Known ones: other entries, and other kernels, take what this one refuses.
  int64_t depth = plan.extent(tiles.depth), width = plan.extent(tiles.width);
  auto isWithin = [](int64_t extent, int64_t most) {
    return !ShapedType::isDynamic(extent) && extent <= most && extent % 8 == 0;
  };
  return isWithin(depth, kDeepest) && isWithin(width, kWidest) &&
         width <= depth && tiles.levels[sum.number] + 1 == tiles.numLevels() &&
         (StateOp(sum.op).getTransport().empty() || tiles.factorOf(sum));
}

/// What four warps of a role have, for results of `widest` columns.
static int64_t registersOfSums(int64_t widest) {
  int64_t half = llvm::alignTo(llvm::divideCeil(widest, 2), kPanel);
  return std::max<int64_t>(half / 2 + kBesideSums, kOfMerges);
}
static int64_t registersOfStates(int64_t kept) {
  return kColumns / 2 + kBesideProducts + kept * kPanel / 4;
}

namespace {
/// What of a block's memory is for what, in panels.
struct WideRoom {
  int64_t lefts, tile; ///< of the left side, of a tile
  int64_t kept = 0;    ///< of the left side, in registers
  int64_t places = 0;  ///< under way
};
} // namespace

/// As many panels under way as there is room for: three tiles want that the
/// left side's are in registers, as far as these go. `others`: bytes of all
/// that is neither.
static WideRoom roomOf(const CudaEntry &entry, int64_t others) {
  constexpr int64_t kMostBytes = 227 << 10;
  int64_t half = llvm::divideCeil(llvm::divideCeil(entry.widest, 2), kPanel);
  WideRoom room;
  room.lefts = llvm::divideCeil(entry.deepest, kPanel);
  room.tile = std::max(room.lefts, 2 * half);
  auto placesBeside = [&](int64_t kept) {
    return (kMostBytes - others) / kPanelBytes - (room.lefts - kept);
  };
  auto hasRegisters = [&](int64_t kept) {
    return registersOfStates(kept) + kOfCopies +
               2 * registersOfSums(entry.widest) <=
           4 * kRegisters;
  };
  while (room.kept + 1 < room.lefts &&
         placesBeside(room.kept) < 3 * room.tile && hasRegisters(room.kept + 1))
    ++room.kept;
  room.places = std::min(placesBeside(room.kept), 4 * room.tile);
  return room;
}

/// Factors, gates, states of rows and the number that moves their sums.
static int64_t otherBytes(size_t numStates) {
  return kRows * kColumns * 2 + kGateBytes + 16 +
         int64_t(numStates + 1) * kRows * 4;
}

void TilePrinter::addWideEntry() {
  auto lengthOf = [&](int index, int64_t most) {
    int64_t extent = plan.extent(index);
    return ShapedType::isDynamic(extent)
               ? most
               : int64_t(llvm::alignTo(std::max<int64_t>(extent, 1), 16));
  };
  CudaEntry entry;
  entry.threads = 512;
  entry.roles = 3;
  entry.rows = kRows;
  entry.vectors = kColumns;
  entry.width = 8;
  entry.isResident = false;
  entry.deepest = lengthOf(tiles.depth, kDeepest);
  entry.widest = lengthOf(tiles.width, kWidest);
  WideRoom room = roomOf(entry, otherBytes(rowStates().size()));
  // What a block leaves has the places of panels in the end.
  int64_t sums = kRows * entry.widest * 4;
  entry.columns = int(room.places);
  entry.sharedBytes = (room.lefts - room.kept) * kPanelBytes +
                      std::max(room.places * kPanelBytes, sums) +
                      kRows * kColumns * 2 + kGateBytes;
  entry.mostBlocks = 132;
  entry.leftBytes = int64_t(rowStates().size()) * kRows * 4 + sums;
  entry.name = options.name + "_wide" + std::to_string(kRows) + "x" +
               std::to_string(kColumns) + "x" + std::to_string(entry.deepest) +
               "x" + std::to_string(entry.widest);
  result.entries.push_back(entry);
}

void TilePrinter::printWideEntry(const CudaEntry &entry) {
  out.line(options.name + "_by_states<" + std::to_string(entry.columns) + ", " +
           std::to_string(roomOf(entry, otherBytes(rowStates().size())).kept) +
           ", " + std::to_string(entry.deepest) + ", " +
           std::to_string(entry.widest) + ", " +
           std::to_string(entry.sharedBytes) + ">(" + ofParts.second + ");");
  out.close();
}

/// The text, and the entry, of `of`.
std::string TilePrinter::printWide(TilePrinter &of) {
  isInParts = isWide = true;
  ofParts = of.ofParts;
  findPacking(*of.result.tiles);
  addWideEntry();
  of.result.entries.insert(of.result.entries.begin(), result.entries.begin(),
                           result.entries.end());
  printWideBody();
  return std::move(out.text);
}

/// What a thread of a role has from here on.
void TilePrinter::printRegisters(int64_t count) {
  out.line((count > kRegisters ? "take_registers<" : "give_registers<") +
           std::to_string(count) + ">();");
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

void TilePrinter::printWideNumbers() {
  out.line("// A set of states a row. A group of four warps has kHalf sums.");
  out.line("constexpr int kRows = " + std::to_string(kRows) +
           ", kTiles = 1, kColumns = " + std::to_string(kColumns) +
           ", kWarps = 1, kThreads = 256;");
  out.line("constexpr int kHalf = (kWidth / 2 + 63) / 64 * 64, kQuads = kWidth "
           "/ 4;");
  out.line("// Quads of a row that a thread merges at once, so many apart.");
  out.line("constexpr int kAtOnce = 4, kApart = kWidth / kAtOnce;");
  out.comment("A tile is panels of 64 columns, read by both halves of the "
              "sums first. The left side's first kKept are in registers.");
  out.line("constexpr int kHalves = kHalf / 64, kLefts = (kDepth + 63) / 64;");
  out.line("constexpr int kPanels = kLefts > 2 * kHalves ? kLefts : 2 * "
           "kHalves;");
  out.line("using Left = Panels<kRows, kDepth - kKept * 64>;");
  out.line("using Panel = Panels<kColumns, 64>;");
  out.line("using Places = Ring<kPlaces>;");
  out.line("using Factors = Tile<kRows, kColumns>;");
  out.line("constexpr int64_t kTileBytes = kPlaces * Panel::kBytes, kSumBytes "
           "= kRows * kWidth * 4;");
  out.line(
      "constexpr int64_t kPlaceBytes = kTileBytes > kSumBytes ? kTileBytes "
      ": kSumBytes;");
  out.line("static_assert(kSharedBytes == Left::kBytes + kPlaceBytes + "
           "Factors::kBytes + 512);");
  out.line("REFOLD_SHARED_BYTES(left_tile, kSharedBytes);");
  out.line("const uint32_t right_panels = left_tile + Left::kBytes;");
  out.line(
      "const uint32_t factor_tile = right_panels + uint32_t(kPlaceBytes);");
  out.comment("Gates: what is there has come, and all are done with it.");
  out.line("const uint32_t left_came = factor_tile + Factors::kBytes;");
  out.line("const uint32_t right_came = left_came + 16, right_left = "
           "right_came + 8 * kPlaces;");
  out.comment("A tile's sums wait for the next one's products.");
  out.line("static_assert(kPlaces >= kPanels + 2 * kHalves && 16 * kPlaces <= "
           "496);");
  out.open("if (thread() == 0) {");
  out.line("make_gate(left_came, 128);");
  out.open("for (int place = 0; place < kPlaces; ++place) {");
  out.line("make_gate(right_came + 8 * place, 32);");
  out.line("make_gate(right_left + 8 * place, 8);");
  out.close();
  out.close();
  for (StatePlan *s : rowStates())
    out.line("REFOLD_SHARED(float, shared_" + name(*s) + ", kRows);");
  out.line("REFOLD_SHARED(float, shared_moved, kRows);");
  out.line("block_barrier();");
}

/// What of a block does not merge meets the barriers of what does.
void TilePrinter::printWideEnd() {
  out.line("block_barrier();");
  out.line("if (row_parts > 1)");
  out.line("  is_last_block(tickets + group, row_parts);");
  out.line("return;");
}

/// Where the block is: found by every role, so that nobody keeps it for others.
void TilePrinter::printWidePlaces() {
  printPackedPlaces();
  printWideRange();
}

void TilePrinter::printWideRange() {
  printBounds();
  printRange();
  out.line("const int part_tiles = (end - begin + int(row_parts) - 1) / "
           "int(row_parts);");
  out.line("const int part_begin = begin + int(part) * part_tiles;");
  out.line("const int part_end = int(smaller(part_begin + part_tiles, end));");
}

void TilePrinter::printWideCopier() {
  std::string n = kernel.indexNames[tiles.stream];
  printRegisters(kOfCopies);
  printPackedPlaces();
  auto read = cast<ReadOp>(tiles.left.read->op);
  out.open("const auto left_row = [&](int i) {");
  {
    Expressions::Scope scope(values, {});
    printPackedRow("packed_first + i");
    out.line("return " + kernel.operandNames[tiles.left.operand] +
             values.offset(tiles.left.operand, read.getMap(),
                           tiles.left.read->in, 1) +
             insideText(tiles.left) + ";");
  }
  out.close("};");
  out.line(
      "const int rows = int(smaller(packed_count - packed_first, kRows));");
  out.open("gather_panels<Panel, kLefts>([&](int panel) {");
  out.line("return panel < kKept ? right_panels + panel * Panel::kBytes : "
           "left_tile + (panel - kKept) * Panel::kBytes;");
  out.close("}, left_row, rows, " + countOf(tiles.depth) + ");");
  out.line("arrive_with_copies(left_came);");
  printWideRange();
  printMatrix(tiles.right);
  out.comment("Each warp brings every fourth panel, so that none waits for "
              "another's place.");
  out.line("const int warp = of_warp(thread_again() / 32);");
  out.line("if (warp == 0)");
  out.line("  for (int panel = 0; panel < kKept; ++panel)");
  out.line("    arrive(right_came + 8 * panel); // as if it had come here");
  out.line("REFOLD_NO_UNROLL");
  out.open(
      "for (int number = warp; number < (part_end - part_begin) * kPanels; "
      "number += 4) {");
  out.line("const int turn = number / kPanels, at = kKept + number, place = "
           "Places::place(at);");
  out.line("const int64_t first = int64_t(part_end - 1 - turn) * kColumns;");
  out.line(
      "const int column = panel_in_order<kHalves>(number - turn * kPanels) "
      "* 64;");
  out.line("wait_gate(right_left + 8 * place, Places::parity(at) ^ 1);");
  out.line("copy_panel<Panel>(right_panels + place * Panel::kBytes, " +
           tiles.right.name + " + first * " + strideOf(tiles.right) +
           " + (column < kLefts * 64 ? column : 0), " + strideOf(tiles.right) +
           ", within(" + n + "_count - first, kColumns), int(" +
           countOf(tiles.depth) + ") - column);");
  out.line("arrive_with_copies(right_came + 8 * place);");
  out.close();
  out.line("wait_copies<0>();");
}

//===----------------------------------------------------------------------===//
// States of rows
//===----------------------------------------------------------------------===//

/// What a tile does to the states of rows: its factors, and what moves sums,
/// are handed over.
void TilePrinter::printWideFold() {
  std::string n = kernel.indexNames[tiles.stream];
  out.line("States states[2];");
  out.line("// Absorbs a tile: states that others are relative to come first.");
  out.open("const auto fold = [&](auto whole, int64_t " + n +
           "_first, int turn) {");
  out.line("const int which = thread_again() - 128;");
  out.line("const int first_at = of_warp(kKept + turn * kPanels);");
  out.line("[[maybe_unused]] const int count = within(" + n + "_count - " + n +
           "_first, kColumns);");
  out.line("float products[kTiles][kColumns / 8][4];");
  out.line("REFOLD_UNROLL");
  out.open("for (int begin = 0; begin < kPanels; begin += 4) {");
  out.line("const int end = int(smaller(begin + 4, kPanels));");
  out.line("REFOLD_UNROLL");
  out.line("for (int i = begin; i < end; ++i)");
  out.line("  if (panel_in_order<kHalves>(i) < kLefts)");
  out.line("    wait_gate(right_came + 8 * Places::place(first_at + i), "
           "Places::parity(first_at + i));");
  out.line("show_matrices();");
  out.line("begin_products();");
  out.line("REFOLD_UNROLL");
  out.open("for (int i = begin; i < end; ++i) {");
  out.line("const int panel = panel_in_order<kHalves>(i);");
  out.line("const uint32_t right = right_panels + Places::place(first_at + i) "
           "* Panel::kBytes;");
  out.line("if (panel < kKept)");
  out.line("  multiply_kept<" + typeOf(tiles.left) +
           ">(products[0], kept, panel * 4, right, i != 0);");
  out.line("else if (panel < kLefts)");
  out.line("  multiply_panel<" + typeOf(tiles.left) +
           ">(products[0], left_tile + (panel - kKept) * Panel::kBytes, right, "
           "int(smaller(4, kDepth / 16 - panel * 4)), i != 0);");
  out.close();
  out.line("commit_products();");
  out.close();
  out.line("wait_products<0>();");
  out.line("settle(products[0]);");
  out.comment("Panels that no sums read are left twice.");
  out.line("constexpr int kAlone = kPanels - 2 * kHalves;");
  out.open("if (which % 32 < kPanels + kAlone) {");
  out.line("const int i = which % 32 < kPanels ? which % 32 : which % 32 - "
           "kAlone;");
  out.line("arrive(right_left + 8 * Places::place(first_at + i));");
  out.close();
  if (!movedAt(-1).empty())
    out.line("[[maybe_unused]] bool is_moved = false;");
  out.line("float moved_by[2] = {1.0f, 1.0f};");
  isInRoles = true;
  for (unsigned level = 0; level < tiles.numLevels(); ++level)
    printLevel(level);
  isInRoles = false;
  out.line("await_turn(2, 384); // all have read what was there");
  out.line("REFOLD_UNROLL");
  out.open("for (int c = 0; c < kColumns / 16; ++c) {");
  out.line("uint32_t words[4];");
  out.line("REFOLD_UNROLL");
  out.line("for (int word = 0; word < 4; ++word)");
  out.line("  words[word] = pack(products[0][2 * c + word / 2][word % 2 * 2], "
           "products[0][2 * c + word / 2][word % 2 * 2 + 1], " +
           typeOf(tiles.values[0]) + "{});");
  out.line("store_rows<Factors>(words, factor_tile + which / 32 * 16 * "
           "Factors::kRowBytes, c);");
  out.close();
  printWideMoves();
  out.line("pass_turn(1, 384);");
  out.close("};");
}

/// What moves the sums of a row, where who has them finds it.
void TilePrinter::printWideMoves() {
  out.line("REFOLD_UNROLL");
  out.line("for (int i = 0; i < 2; ++i)");
  out.line("  if (fragment_column(0, which) == 0)");
  out.line("    shared_moved.store(which / 32 * 16 + fragment_row(i, which), "
           "moved_by[i]);");
}

void TilePrinter::printWideRows() {
  const CudaEntry &entry = result.entries.front();
  printRegisters(
      registersOfStates(roomOf(entry, otherBytes(rowStates().size())).kept));
  printWidePlaces();
  printFixed();
  out.line("wait_gate(left_came, 0);");
  out.line("show_matrices();");
  out.line("[[maybe_unused]] uint32_t kept[kKept == 0 ? 1 : kKept * 4][4];");
  out.line("REFOLD_UNROLL");
  out.line("for (int panel = 0; panel < kKept; ++panel)");
  out.line("  keep_panel<Panel>(kept, panel * 4, right_panels + panel * "
           "Panel::kBytes);");
  out.line("await_turn(4, 128); // all have read what tiles will lie over");
  out.line("if (thread_again() % 32 < 2)");
  out.line("  for (int panel = 0; panel < kKept; ++panel)");
  out.line("    arrive(right_left + 8 * panel);");
  printWideFold();
  out.open("for (int turn = 0; turn < part_end - part_begin; ++turn) {");
  out.line("const int at = part_end - 1 - turn;");
  out.line("const int64_t first = int64_t(at) * kColumns;");
  out.line("if (at >= whole_begin && at < whole_end)");
  out.line("  fold(Number<1>{}, first, turn);");
  out.line("else");
  out.line("  fold(Number<0>{}, first, turn);");
  out.close();
  out.line("await_turn(2, 384); // that nobody has taken");
  out.line("const int which = thread_again() - 128;");
  out.line("float moved_by[2] = {1.0f, 1.0f};");
  out.line("// What lanes of a row have apart is brought together.");
  openRows();
  for (StatePlan *s : rowStates())
    if (!isReduced(*s))
      for (const char *mask : {"1", "2"})
        out.line("s." + name(*s) + " = " +
                 withoutParentheses(combine(*s, "s." + name(*s),
                                            "shuffle_xor(s." + name(*s) + ", " +
                                                std::string(mask) + ")")) +
                 ";");
  if (SmallVector<StatePlan *> moved = movedAt(-1);
      !moved.empty() && !tiles.dropsPivots) {
    mode = Moving;
    isInRoles = true;
    out.open("{");
    printTransports(moved);
    out.close();
    isInRoles = false;
    mode = Absorbing;
  }
  out.line("const int place = which / 32 * 16 + fragment_row(i, which);");
  out.open("if (fragment_column(0, which) == 0) {");
  for (StatePlan *s : rowStates())
    out.line("shared_" + name(*s) + ".store(place, s." + name(*s) + ");");
  out.close();
  closeRows();
  printWideMoves();
  printWideEnd();
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

void TilePrinter::printWideSums() {
  const TileState &p = tiles.products.front();
  std::string sums = name(*p.state) + "_sums";
  bool isMoved = !p.state->op.getTransport().empty();
  printRegisters(registersOfSums(result.entries.front().widest));
  // Where the block is is found again behind the loop: nobody keeps it.
  out.line("int turns;");
  out.open("{");
  {
    Expressions::Scope inside(values, {});
    values.beginFunction();
    printWidePlaces();
    out.line("turns = part_end - part_begin;");
  }
  out.close();
  out.line("const int half = of_warp((thread_again() - 256) / 128);");
  out.line("float " + sums + "[kHalf / 8][4] = {};");
  auto move = [&](const char *which) {
    if (!isMoved)
      return;
    out.line("const float moved_by[2] = {shared_moved.load(" +
             std::string(which) + "), shared_moved.load(" + which + " + 8)};");
  };
  auto moveSums = [&] {
    if (!isMoved)
      return;
    out.open("if (any_lane(moved_by[0] != 1.0f | moved_by[1] != 1.0f)) {");
    out.line("REFOLD_UNROLL");
    out.line("for (int c = 0; c < kHalf / 2; ++c)");
    out.line("  " + sums + "[c / 4][c % 4] *= moved_by[c % 4 / 2];");
    out.close();
  };
  out.line("pass_turn(2, 384); // nobody has anything to read yet");
  out.open("for (int turn = 0; turn < turns; ++turn) {");
  out.line("const int which = thread_again() % 128;");
  out.line("const int first_at = of_warp(kKept + turn * kPanels + half);");
  out.line("uint32_t factors[kColumns / 16][1][4];");
  out.line("await_turn(1, 384);");
  out.line("REFOLD_UNROLL");
  out.line("for (int c = 0; c < kColumns / 16; ++c)");
  out.line("  load_rows<Factors>(factors[c], factor_tile + which / 32 * 16 * "
           "Factors::kRowBytes, c);");
  move("which / 32 * 16 + fragment_row(0, which)");
  out.line("pass_turn(2, 384);");
  moveSums();
  out.line("REFOLD_UNROLL");
  out.line("for (int panel = 0; panel < kHalves; ++panel)");
  out.line("  wait_gate(right_came + 8 * Places::place(first_at + 2 * panel), "
           "Places::parity(first_at + 2 * panel));");
  out.line("show_matrices();");
  out.open("multiply_values<" + typeOf(tiles.values[p.values]) + ", Panel>(" +
           sums + ", factors, [&](int panel) {");
  out.line("return right_panels + Places::place(first_at + 2 * panel) * "
           "Panel::kBytes;");
  out.close("});");
  out.open("wait_in_order<kHalves>([&](int panel) {");
  out.line("if (which % 32 == 0)");
  out.line("  arrive(right_left + 8 * Places::place(first_at + 2 * panel));");
  out.close("});");
  out.line("settle(" + sums + ");");
  out.close();
  values.beginFunction();
  bits.clear();
  printWidePlaces();
  for (StatePlan *s : movedAt(-1))
    nameFixed(s->moved);
  for (WritePlan &w : plan.finishWrites)
    nameFixed(w.value);
  out.line("block_barrier();");
  out.blank();
  out.comment("4. Sums are where tiles have been, so that who merges or writes "
              "them has neighbours.");
  out.open("{");
  out.line("const int which = thread_again() % 128;");
  out.line("const int row = which / 32 * 16 + fragment_row(0, which);");
  move("row");
  moveSums();
  out.line("REFOLD_UNROLL");
  out.open("for (int c = 0; c < kHalf / 8; c += 2) {");
  out.line("REFOLD_UNROLL");
  out.open("for (int i = 0; i < 2; ++i) {");
  for (const char *side : {"low", "high"})
    out.line("const float " + std::string(side) + "[2] = {" + sums +
             (side[0] == 'l' ? "[c]" : "[c + 1]") + "[i * 2], " + sums +
             (side[0] == 'l' ? "[c]" : "[c + 1]") + "[i * 2 + 1]};");
  out.line("uint32_t quad[4];");
  out.line("exchange_quads(quad, low, high);");
  out.line("const int column = half * kHalf + c * 8 + fragment_quad(which);");
  out.line("if (column < kWidth)");
  out.line("  store_shared(right_panels + uint32_t(((row + i * 8) * kWidth + "
           "column) * 4), quad);");
  out.close();
  out.close();
  out.close();
  out.line("await_turn(3, 256);");
}

void TilePrinter::printWideBody() {
  out.blank();
  out.line("template <int kPlaces, int kKept, int kDepth, int kWidth, int64_t "
           "kSharedBytes>");
  out.open("REFOLD_DEVICE void " + options.name + "_by_states(" +
           ofParts.first + ") {");
  size_t begin = out.text.size();
  for (unsigned i = 0; i < plan.cascade.numIndices(); ++i)
    if (extentOf(i).operand < 0 && isNamed(kernel.indexNames[i] + "_count"))
      out.line("[[maybe_unused]] constexpr int64_t " + kernel.indexNames[i] +
               "_count = " + std::to_string(plan.extent(i)) + ";");
  bits.clear();
  scales.clear();
  printWideNumbers();
  Expressions::Scope scope(values, {});
  out.blank();
  out.line("// 1. Four warps bring what the others need.");
  out.open("if (thread_again() < 128) {");
  {
    Expressions::Scope inside(values, {});
    out.open("{");
    {
      Expressions::Scope copies(values, {});
      values.beginFunction();
      printWideCopier();
    }
    out.close();
    // Found again: nobody keeps it while copying.
    values.beginFunction();
    printWidePlaces();
    printWideEnd();
  }
  out.close();
  out.blank();
  out.line("// 2. Four have the states of rows. The stream from its end.");
  out.open("if (thread_again() < 256) {");
  {
    Expressions::Scope inside(values, {});
    values.beginFunction();
    printWideRows();
  }
  out.close();
  out.blank();
  out.line("// 3. The others have half of the sums each.");
  printWideSums();
  printWorkspace();
  printPartResults();
  printMergedParts(/*isOfBlocks=*/false);
  out.line("if (row_parts == 1 || !is_last_block(tickets + group, row_parts))");
  out.line("  return;");
  printMergedParts(/*isOfBlocks=*/true);
  partsBody = out.text.substr(begin);
  out.close();
}
