// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel over tiles for results that are too wide for the registers of
// whoever multiplies, where the rows that are added are the front of the rows
// that are multiplied: read once, used for both. For sm_90a. Four warps have
// what is known of a row, and two times four have half of its sums each, and
// bring what streams by.
#include "TilePrinter.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

namespace {
constexpr int kRows = 64, kColumns = 64;
constexpr int64_t kPanel = 64, kPanelBytes = kRows * kPanel * 2;
constexpr int64_t kStep = 16, kStepBytes = kRows * kStep * 2;
constexpr int kThreads = 384, kBringing = kThreads / 32 - 4;
/// Of what a thread of each role would have if all had as many: beside products
/// and what is kept, and beside sums.
constexpr int64_t kRegisters = 168, kBesideProducts = 28, kBesideSums = 32,
                  kOfMerges = 144, kMostRegisters = 232;
/// Gates, what moves sums, and a ticket, before what begins at a multiple of
/// 1024.
constexpr int64_t kMostBytes = (227 << 10) - 1024;
constexpr int64_t kMostNumbers = 8; ///< of a row, handed over in the end
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
      tiles.isOfWords || tiles.widens() || tiles.products.size() != 1 ||
      tiles.numLevels() > 2 || !tiles.sharesRows())
    return false;
  const StatePlan &sum = *tiles.products.front().state;
  // Known ones: other entries, and other kernels, take what this one refuses.
  int64_t depth = plan.extent(tiles.depth), width = plan.extent(tiles.width);
  auto isWithin = [](int64_t extent, int64_t most) {
    return !ShapedType::isDynamic(extent) && extent <= most && extent % 8 == 0;
  };
  return isWithin(depth, kDeepest) && isWithin(width, kWidest) &&
         width <= depth && rowStates().size() + 1 <= kMostNumbers &&
         tiles.levels[sum.number] + 1 == tiles.numLevels() &&
         (StateOp(sum.op).getTransport().empty() || tiles.factorOf(sum));
}

namespace {
/// What of a block's memory is for what.
struct WideRoom {
  int64_t half;                ///< columns of half of the sums, in panels
  int64_t others;              ///< panels of a tile that no sums read
  int64_t ofSums, ofStates;    ///< registers
  int64_t kept;                ///< steps of the left side in registers
  int64_t stages, otherStages; ///< tiles under way
  int64_t leftBytes, bytes;    ///< of the left side's other steps, of all
};
} // namespace

/// As many tiles under way as there is room for. Three want most of the left
/// side in registers.
static WideRoom roomOf(int64_t deepest, int64_t widest) {
  WideRoom room;
  room.half = llvm::divideCeil(llvm::divideCeil(widest, 2), kPanel);
  int64_t lefts = llvm::divideCeil(deepest, kPanel);
  room.others = std::max<int64_t>(lefts - 2 * room.half, 0);
  room.ofSums =
      std::max<int64_t>(room.half * kPanel / 2 + kBesideSums, kOfMerges);
  room.ofStates = std::min(3 * kRegisters - 2 * room.ofSums, kMostRegisters);
  int64_t places = 0;
  for (room.stages = 4;; --room.stages) {
    // What is kept comes where tiles lie later, but for the first one.
    room.kept = std::min({(room.ofStates - kColumns / 2 - kBesideProducts) / 4,
                          deepest / kStep,
                          (room.stages - 1) * 2 * room.half * kPanel / kStep});
    room.leftBytes = (deepest / kStep - room.kept) * kStepBytes;
    places = (kMostBytes - 2 * kPanelBytes - room.leftBytes) / kPanelBytes -
             room.stages * 2 * room.half;
    room.otherStages =
        room.others == 0 ? 1 : std::min(places / room.others, room.stages);
    if (room.stages == 2 ||
        (places >= 0 &&
         room.otherStages >= std::max<int64_t>(1, room.stages - 2)))
      break;
  }
  room.bytes =
      (room.stages * 2 * room.half + room.otherStages * room.others + 2) *
          kPanelBytes +
      room.leftBytes;
  assert(room.otherStages >= 1 && room.bytes <= kMostBytes);
  return room;
}

void TilePrinter::addWideEntry() {
  auto lengthOf = [&](int index, int64_t most) {
    int64_t extent = plan.extent(index);
    return ShapedType::isDynamic(extent)
               ? most
               : int64_t(llvm::alignTo(std::max<int64_t>(extent, 1), 16));
  };
  CudaEntry entry;
  entry.threads = kThreads;
  entry.roles = 3;
  entry.rows = kRows;
  entry.vectors = kColumns;
  entry.width = 8;
  entry.isResident = false;
  entry.deepest = lengthOf(tiles.depth, kDeepest);
  entry.widest = lengthOf(tiles.width, kWidest);
  entry.sharedBytes = roomOf(entry.deepest, entry.widest).bytes;
  entry.mostBlocks = 132;
  entry.leftBytes =
      int64_t(rowStates().size()) * kRows * 4 + kRows * entry.widest * 4;
  // Where data say which matrix a block reads, each warp that brings panels
  // makes a map of it.
  if (mayMap(tiles.right))
    entry.maps = {mapOf(tiles.right, tiles.stream, tiles.depth, kColumns)};
  else
    entry.mapBytes = kBringing * 128;
  entry.mostGroups = hasShares() ? kMostGroups : 0;
  entry.name = options.name + "_wide" + std::to_string(kRows) + "x" +
               std::to_string(kColumns) + "x" + std::to_string(entry.deepest) +
               "x" + std::to_string(entry.widest);
  result.entries.push_back(entry);
}

void TilePrinter::printWideEntry(const CudaEntry &entry) {
  WideRoom room = roomOf(entry.deepest, entry.widest);
  std::string numbers;
  for (int64_t number :
       {room.stages, room.otherStages, room.kept, entry.deepest, entry.widest})
    numbers += std::to_string(number) + ", ";
  out.line(options.name + "_by_states<" + numbers +
           std::to_string(entry.sharedBytes) + ">(" + ofParts.second +
           (entry.maps.empty() ? ");" : ", maps.of);"));
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
  out.line("// Blocks that merge a slice each of the rows that they share.");
  out.line("constexpr int kSlices = 32;");
  out.comment("A tile is panels of 64 columns: those that sums read, kStages "
              "tiles of them, and others. The left side's first kKept steps "
              "of 16 columns are in registers.");
  out.line("constexpr int kHalves = kHalf / 64, kShared = 2 * kHalves, kSteps "
           "= kDepth / 16, kLefts = (kDepth + 63) / 64;");
  out.line("constexpr int kOthers = kLefts > kShared ? kLefts - kShared : 0;");
  out.line("using Panel = Panels<kColumns, 64>;");
  out.line("using Left = Steps<kRows, kSteps - kKept>;");
  out.line("constexpr int kOtherAt = kStages * kShared * Panel::kBytes, "
           "kFactorsAt = kOtherAt + kOtherStages * kOthers * Panel::kBytes;");
  out.line("constexpr int kLeftAt = kFactorsAt + 2 * Panel::kBytes;");
  out.line("static_assert(kSharedBytes == kLeftAt + Left::kBytes && kFactorsAt "
           ">= kRows * kWidth * 4);");
  out.comment("What is kept comes where tiles lie later, but for the first "
              "one.");
  out.line("constexpr int kKeptAt = kOtherAt - (kKept + 3) / 4 * "
           "Panel::kBytes;");
  out.line("static_assert(kKeptAt >= kShared * Panel::kBytes && kHalves <= 4 "
           "&& kOthers <= 8);");
  out.line("REFOLD_SHARED_BYTES(right_panels, kSharedBytes);");
  out.line("const uint32_t other_panels = right_panels + kOtherAt;");
  out.line("const uint32_t factor_panels = right_panels + kFactorsAt;");
  out.line("const uint32_t left_steps = right_panels + kLeftAt;");
  out.comment("Gates: what is there has come, and all are done with it; of a "
              "tile's panels, each half of the sums.");
  out.line("REFOLD_GATES(left_came, 1 + 3 * kStages + 2 * kOtherStages);");
  out.line("const uint32_t right_came = left_came + 8, right_left = right_came "
           "+ 8 * kStages;");
  out.line("[[maybe_unused]] const uint32_t other_came = right_left + 16 * "
           "kStages, other_left = other_came + 8 * kOtherStages;");
  out.open("if (thread() == 0) {");
  out.line("make_gate(left_came, kThreads);");
  out.open("for (int stage = 0; stage < kStages; ++stage) {");
  out.line("make_gate(right_came + 8 * stage, kShared);");
  out.line("make_gate(right_left + 16 * stage, 4);");
  out.line("make_gate(right_left + 16 * stage + 8, 4);");
  out.close();
  out.open("for (int stage = 0; kOthers > 0 && stage < kOtherStages; ++stage) "
           "{");
  out.line("make_gate(other_came + 8 * stage, kOthers);");
  out.line("make_gate(other_left + 8 * stage, 4);");
  out.close();
  out.line("show_matrices(); // the gates, to copies that arrive at them");
  out.close();
  out.line("REFOLD_SHARED(float, shared_moved, 2 * kRows);");
  // What beginning and leaving are worth on an H200; no part is shorter than
  // PlanLaunch has it.
  if (hasShares())
    printShare("8, 6, 7, 2", "factor_panels");
  else
    out.line("block_barrier();");
}

/// What of a block does not merge meets the barriers of what does.
void TilePrinter::printWideEnd() {
  out.line("block_barrier();");
  out.line("if (row_parts > 1)");
  out.line("  claim_slices(tickets + " + firstPart() +
           ", part, row_parts, "
           "slices_of<kSlices>(row_parts));");
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

/// Every warp that has sums brings a panel of its half, or of those that no
/// sums read, so that it waits for nobody but its own four. Tiles are asked for
/// behind rows of the left side, which would wait for them on their way.
void TilePrinter::printWideBrings() {
  std::string n = kernel.indexNames[tiles.stream];
  auto read = cast<ReadOp>(tiles.left.read->op);
  if (hasMaps(true))
    for (auto [i, index] : llvm::enumerate(indicesBeside(tiles.right)))
      out.line(
          "beside_" + std::to_string(i) + " = int(" +
          withoutParentheses(values.subscript(index.at, tiles.right.read->in)) +
          ");");
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
  out.open("gather_rows<kThreads, kRows, kSteps * 2>(thread_again() - 128, "
           "[&](int row, int chunk) {");
  out.line("if (chunk < kKept * 2)");
  out.line("  return right_panels + kKeptAt + chunk / 8 * Panel::kBytes + "
           "Panel::place(row, chunk % 8);");
  out.line("return left_steps + Left::place(row, chunk - kKept * 2);");
  out.close("}, left_row, rows, " + countOf(tiles.depth) + ");");
  out.line("arrive_with_copies(left_came);");
  if (hasMaps(true))
    return printWideFirst();
  printMatrix(tiles.right);
  out.open("if (turns > 0 && (mine < kHalves || other < kOthers)) {");
  out.comment("The first tile comes over what the map is made from.");
  out.line("make_map(map, mine < kHalves ? right_panels + (half * kHalves + "
           "mine) * Panel::kBytes : other_panels + other * Panel::kBytes, " +
           tiles.right.name + ", " + n + "_count, " + countOf(tiles.depth) +
           " * 2, (" + n + "_count > 1 ? " + strideOf(tiles.right) +
           " : int64_t(kDepth)) * 2, kColumns);");
  out.line("show_matrices();");
  out.line("warp_barrier();");
  out.close();
  printWideFirst();
}

/// The first tiles, as many as there is room for beside what is kept.
void TilePrinter::printWideFirst() {
  out.open("if (thread_again() % 32 == 0) {");
  out.line("for (int turn = 0; mine < kHalves && turn < kFree && turn < turns; "
           "++turn)");
  out.line("  bring(turn);");
  out.line("for (int turn = 0; other < kOthers && turn < kOtherStages && turn "
           "< turns; ++turn)");
  out.line("  bring_other(turn);");
  out.close();
}

/// How a tile's panels are asked for: named where they are, again and again.
void TilePrinter::printWideBring() {
  // Of a map of all matrices, which one.
  std::string end = "(last_tile - turn) * kColumns";
  if (hasMaps(true))
    for (size_t i = 0; i < indicesBeside(tiles.right).size(); ++i)
      end += ", beside_" + std::to_string(i);
  const char *map = hasMaps(true) ? "maps" : "map";
  out.comment("A warp's panel of a tile, and that of those that no sums read; "
              "asked for by one lane.");
  out.open("const auto bring = [&](int turn) {");
  out.line("const int stage = turn % kStages;");
  out.line("arrive_expecting(right_came + 8 * stage, Panel::kBytes);");
  out.line("copy_box(right_panels + (stage * kShared + half * kHalves + mine) "
           "* Panel::kBytes, " +
           std::string(map) +
           ", right_came + 8 * stage, (half * kHalves + mine) * 128, " + end +
           ");");
  out.close("};");
  out.open("[[maybe_unused]] const auto bring_other = [&](int turn) {");
  out.line("const int stage = turn % kOtherStages;");
  out.line("arrive_expecting(other_came + 8 * stage, Panel::kBytes);");
  out.line(
      "copy_box(other_panels + (stage * kOthers + other) * Panel::kBytes, " +
      std::string(map) + ", other_came + 8 * stage, (kShared + other) * 128, " +
      end + ");");
  out.close("};");
}

//===----------------------------------------------------------------------===//
// States of rows
//===----------------------------------------------------------------------===//

/// What a tile does to the states of rows: its factors, and what moves sums,
/// are handed over.
void TilePrinter::printWideFold() {
  std::string n = kernel.indexNames[tiles.stream];
  std::string multiply = "multiply_steps<" + typeOf(tiles.left) + ", Left, ";
  out.line("States states[2];");
  out.line("// Absorbs a tile: states that others are relative to come first.");
  openFold(n + "_first, int turn", /*mayMaskAhead=*/true);
  out.line("[[maybe_unused]] const int count = within(" + n + "_count - " + n +
           "_first, kColumns);");
  out.line("float products[kTiles][kColumns / 8][4];");
  out.comment("The last steps are a group of their own: sums of the tile "
              "before begin behind the others, and go on beside formulas.");
  out.line("constexpr int kEnd = kOthers > 0 ? kShared * 4 : kSteps, kSplit = "
           "kOthers > 0 ? kEnd : kSteps - (kSteps > 4 ? 4 : kSteps / 2);");
  out.open("{");
  out.line("const int stage = turn % kStages;");
  out.line("wait_gate(right_came + 8 * stage, turn / kStages & 1);");
  out.line("const uint32_t right = right_panels + of_warp(stage * kShared * "
           "Panel::kBytes);");
  out.line("begin_products();");
  out.line(multiply + "Panel, 0, 0, kSplit>(products[0], kept, left_steps, "
                      "right);");
  out.line("commit_products();");
  out.open("if constexpr (kOthers == 0) {");
  out.line("begin_products();");
  out.line(multiply + "Panel, 0, kSplit, kEnd>(products[0], kept, left_steps, "
                      "right);");
  out.line("commit_products();");
  out.close();
  out.close();
  out.open("if constexpr (kOthers > 0) {");
  out.line("const int stage = turn % kOtherStages;");
  out.line("wait_gate(other_came + 8 * stage, turn / kOtherStages & 1);");
  out.line("begin_products();");
  out.line(multiply + "Panel, kEnd, kEnd, kSteps>(products[0], kept, "
                      "left_steps, other_panels + of_warp(stage * kOthers * "
                      "Panel::kBytes));");
  out.line("commit_products();");
  out.close();
  out.line("wait_products<1>();");
  out.line("if (turn > 0)");
  out.line("  pass_turn(2 - turn % 2, 384); // sums of the tile before begin");
  out.line("wait_products<0>();");
  out.line("settle(products[0]);");
  out.line("const int which = thread_again();");
  out.line("if (kOthers > 0 && which % 32 == 0)");
  out.line("  arrive(other_left + 8 * (turn % kOtherStages));");
  if (!movedAt(-1).empty())
    out.line("[[maybe_unused]] bool is_moved = false;");
  out.line("float moved_by[2] = {1.0f, 1.0f};");
  isInRoles = true;
  for (unsigned level = 0; level < tiles.numLevels(); ++level)
    printLevel(level);
  isInRoles = false;
  out.line("if (turn > 1)");
  out.line("  await_turn(3 + turn % 2, 384); // all have read what was there");
  out.line("const int slot = turn % 2;");
  out.line("REFOLD_UNROLL");
  out.open("for (int c = 0; c < kColumns / 16; ++c) {");
  out.line("uint32_t words[4];");
  out.line("REFOLD_UNROLL");
  out.line("for (int word = 0; word < 4; ++word)");
  out.line("  words[word] = pack(products[0][2 * c + word / 2][word % 2 * 2], "
           "products[0][2 * c + word / 2][word % 2 * 2 + 1], " +
           typeOf(tiles.values[0]) + "{});");
  out.line("store_factors<Panel>(words, factor_panels + slot * Panel::kBytes, "
           "c);");
  out.close();
  out.line("REFOLD_UNROLL");
  out.line("for (int i = 0; i < 2; ++i)");
  out.line("  if (fragment_column(0, which) == 0)");
  out.line("    shared_moved.store(slot * kRows + which / 32 * 16 + "
           "fragment_row(i, which), moved_by[i]);");
  out.line("show_matrices();");
  out.close("};");
}

void TilePrinter::printWideRows() {
  const CudaEntry &entry = result.entries.front();
  printRegisters(roomOf(entry.deepest, entry.widest).ofStates);
  printWidePlaces();
  printFixed();
  out.line("wait_gate(left_came, 0);");
  out.line("uint32_t kept[kKept][4];");
  out.line("keep_steps<Panel>(kept, right_panels + kKeptAt);");
  out.line("show_matrices();");
  out.line("pass_turn(5, 384); // tiles may lie over it");
  printWideFold();
  out.open("for (int turn = 0; turn < part_end - part_begin; ++turn) {");
  out.line("const int at = part_end - 1 - turn;");
  out.line("const int64_t first = int64_t(at) * kColumns;");
  printFoldCall("turn");
  out.close();
  out.line("const int turns = part_end - part_begin;");
  out.line("if (turns > 0)");
  out.line("  pass_turn(2 - turns % 2, 384);");
  out.line("if (turns > 1)");
  out.line("  await_turn(3 + turns % 2, 384);");
  out.line("const int which = thread_again();");
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
  // Of parts behind the end of the stream there are less than no turns.
  out.line("// Numbers of a row lie where factors have been.");
  out.line("const uint32_t place = factor_panels + (turns & 1) * Panel::kBytes "
           "+ (which / 32 * 16 + fragment_row(i, which)) * 16;");
  out.open("if (fragment_column(0, which) == 0) {");
  for (StatePlan *s : rowStates())
    out.line("put_number(place + " + std::to_string(numberAmongRows(*s)) +
             " * kRows * 16, s." + name(*s) + ");");
  out.line("put_number(place + " + std::to_string(rowStates().size()) +
           " * kRows * 16, moved_by[i]);");
  out.close();
  closeRows();
  printWideEnd();
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

void TilePrinter::printWideSums() {
  const TileState &p = tiles.products.front();
  std::string sums = name(*p.state) + "_sums";
  bool isMoved = !p.state->op.getTransport().empty();
  const CudaEntry &entry = result.entries.front();
  printRegisters(roomOf(entry.deepest, entry.widest).ofSums);
  out.line("const int half = of_warp(thread_again() / 128 - 1);");
  out.line("const int mine = of_warp(thread_again() / 32 % 4);");
  out.line("[[maybe_unused]] const int other = 7 - half * 4 - mine;");
  std::string beside;
  if (hasMaps(true))
    for (size_t i = 0; i < indicesBeside(tiles.right).size(); ++i)
      beside += ", beside_" + std::to_string(i);
  else
    out.line("unsigned char *const map = workspace + (block_again() * 8 + half "
             "* 4 + mine) * 128;");
  // Where the block is is found again behind the loop: nobody keeps it.
  out.line("int turns, last_tile" + beside + ";");
  printWideBring();
  out.line(
      "constexpr int kFree = kKeptAt / (kShared * Panel::kBytes); // tiles "
      "beside what is kept");
  out.open("{");
  {
    Expressions::Scope inside(values, {});
    values.beginFunction();
    printWidePlaces();
    out.line("turns = part_end - part_begin;");
    out.line("last_tile = part_end - 1;");
    printWideBrings();
  }
  out.close();
  out.line("await_turn(5, 384);");
  out.open("if (thread_again() % 32 == 0) {");
  out.line("for (int turn = kFree; mine < kHalves && turn < kStages && turn < "
           "turns; ++turn)");
  out.line("  bring(turn);");
  out.open("if (other < kOthers && kOtherStages < turns) {");
  out.line("wait_gate(other_left, 0);");
  out.line("bring_other(kOtherStages);");
  out.close();
  out.close();
  out.line("warp_barrier();");
  out.line("float " + sums + "[kHalf / 8][4] = {};");
  auto moveSums = [&] {
    if (!isMoved)
      return;
    out.open("if (any_lane(moved_by[0] != 1.0f | moved_by[1] != 1.0f)) {");
    out.line("REFOLD_UNROLL");
    out.line("for (int c = 0; c < kHalf / 2; ++c)");
    out.line("  " + sums + "[c / 4][c % 4] *= moved_by[c % 4 / 2];");
    out.close();
  };
  out.open("for (int turn = 0; turn < turns; ++turn) {");
  out.line("const int stage = turn % kStages, slot = turn % 2;");
  out.line("await_turn(1 + slot, 384);");
  if (isMoved) {
    out.line("const int row = slot * kRows + thread_again() % 128 / 32 * 16 + "
             "fragment_row(0);");
    out.line("const float moved_by[2] = {shared_moved.load(row), "
             "shared_moved.load(row + 8)};");
  }
  moveSums();
  out.line("wait_gate(right_came + 8 * stage, turn / kStages & 1);");
  out.line("begin_products();");
  out.line("multiply_values<" + typeOf(tiles.values[p.values]) + ", Panel>(" +
           sums +
           ", factor_panels + of_warp(slot * Panel::kBytes), right_panels + "
           "of_warp((stage * kShared + half * kHalves) * Panel::kBytes));");
  out.line("commit_products();");
  out.comment("Products of the next tile are done, but perhaps for the last "
              "steps.");
  out.open("if (other < kOthers && thread_again() % 32 == 0 && turn + 1 + "
           "kOtherStages < turns) {");
  out.line("wait_gate(other_left + 8 * ((turn + 1) % kOtherStages), (turn + 1) "
           "/ kOtherStages & 1);");
  out.line("bring_other(turn + 1 + kOtherStages);");
  out.close();
  out.line("warp_barrier();");
  out.line("wait_products<0>();");
  out.line("settle(" + sums + ");");
  out.line("if (turn + 1 < turns)");
  out.line("  pass_turn(3 + slot, 384);");
  out.open("if (thread_again() % 32 == 0) {");
  out.line("const uint32_t left = right_left + 16 * stage + 8 * half;");
  out.line("arrive(left);");
  out.open("if (mine < kHalves && turn + kStages < turns) {");
  out.line("wait_gate(left, turn / kStages & 1);");
  out.line("bring(turn + kStages);");
  out.close();
  out.close();
  out.line("warp_barrier();");
  out.close();
  values.beginFunction();
  bits.clear();
  printWidePlaces();
  for (StatePlan *s : movedAt(-1))
    nameFixed(s->moved);
  for (WritePlan &w : plan.finishWrites)
    nameFixed(w.value);
  out.line("block_barrier();");
  out.line("const uint32_t row_numbers = factor_panels + ((part_end - "
           "part_begin) & 1) * Panel::kBytes;");
  out.blank();
  printWorkspace();
  out.comment("3. Sums are left as they are where others have parts of the "
              "stream, too; else they are where tiles have been, so that who "
              "writes them has neighbours.");
  out.open("{");
  out.line("const int which = thread_again() % 128;");
  out.line("const int row = which / 32 * 16 + fragment_row(0, which);");
  if (isMoved) {
    std::string moved = "take_number(row_numbers + (" +
                        std::to_string(rowStates().size()) + " * kRows + row";
    out.line("const float moved_by[2] = {" + moved + ") * 16), " + moved +
             " + 8) * 16)};");
  }
  moveSums();
  auto put = [&](const std::string &to) {
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
    out.line("  " + to);
    out.close();
    out.close();
  };
  out.open("if (row_parts > 1) {");
  out.line("const int at = thread_again() - 128;");
  out.open("if (at < kRows) {");
  for (StatePlan *s : rowStates())
    out.line("leave(left_" + name(*s) +
             " + block() * kRows + at, take_number("
             "row_numbers + (" +
             std::to_string(numberAmongRows(*s)) + " * kRows + at) * 16));");
  out.close();
  put("leave_words<16>(left_sums + ((block() * kRows + row + i * 8) * kWidth + "
      "column), quad);");
  out.otherwise();
  put("store_shared(right_panels + uint32_t(((row + i * 8) * kWidth + column) "
      "* 4), quad);");
  out.close();
  out.close();
}

void TilePrinter::printWideBody() {
  out.blank();
  out.line(
      "template <int kStages, int kOtherStages, int kKept, int kDepth, int "
      "kWidth, int64_t kSharedBytes>");
  out.open("REFOLD_DEVICE void " + options.name + "_by_states(" +
           ofParts.first +
           (hasMaps(true) ? ", const ArrayMap *maps) {" : ") {"));
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
  out.line(
      "// 1. Four warps have the states of rows. The stream from its end.");
  out.open("if (thread_again() < 128) {");
  {
    Expressions::Scope inside(values, {});
    values.beginFunction();
    printWideRows();
  }
  out.close();
  out.blank();
  out.line("// 2. Four each have half of the sums, and bring what all read.");
  printWideSums();
  printPartResults();
  out.open("if (row_parts == 1) {");
  out.line("await_turn(6, 256);");
  printMergedParts(/*isOfBlocks=*/false);
  out.line("return;");
  out.close();
  printSlices();
  partsBody = out.text.substr(begin);
  out.close();
}
