// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel over tiles with roles, for sm_90a: four warps copy, others compute
// with products that are under way while they do something else.
#include "TilePrinter.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

//===----------------------------------------------------------------------===//
// What is launched
//===----------------------------------------------------------------------===//

/// Whether factors of all sums are the same numbers, which can stay where
/// products were, and transports multiply by one number a row: sums are then
/// moved when they have come.
bool TilePrinter::mayHaveRoles() {
  if (!StringRef(options.target).contains("sm90") || !hasTileRow() ||
      !hasWidth() || tiles.products.empty() || tiles.numLevels() > 2)
    return false;
  Node *factor = tiles.products.front().factor, *move = nullptr;
  std::string type = typeOf(tiles.values.front());
  for (const TileState &p : tiles.products) {
    if (p.factor != factor || typeOf(tiles.values[p.values]) != type ||
        tiles.levels[p.state->number] + 1 != tiles.numLevels())
      return false;
    if (p.state->op.getTransport().empty())
      continue;
    Node *own = tiles.factorOf(*p.state);
    if (!own || (move && own != move))
      return false;
    move = own;
  }
  return true;
}

/// As many columns at a time as registers hold products, factors and sums of,
/// and as shared memory has room for twice. `brings`: beside them, elements, of
/// which fewer columns are not worth it.
void TilePrinter::addRoles(int deepest, int widest, int groups, bool brings) {
  // Beside them, what is low (LowVisits).
  const int64_t kMostBytes = (227 << 10) - (hasLow() ? 2 << 10 : 0);
  int sums = int(tiles.products.size()) * widest / 2; // registers
  CudaEntry entry;
  entry.roles = groups;
  entry.rows = 64 * groups;
  entry.threads = 128 * (groups + 1);
  entry.width = 8;
  entry.isResident = false;
  entry.deepest = deepest;
  entry.widest = widest;
  // With fewer rows, too many of the third group have nothing to do.
  constexpr int64_t kManyRows = 1536, kManyGrowing = 3072;
  entry.fewestRows = groups == 2 ? 65 : hasUpper() ? kManyGrowing : kManyRows;
  // What is next comes while the results of the last rows are computed.
  entry.isLoop = true;
  entry.blocksPerUnit = 1;
  auto bytes = [](int64_t rows, int64_t length) {
    return tile::SharedRows::panel(rows, length).bytes();
  };
  // What columns decide takes some of a third group's few.
  NodeSet all;
  for (StatePlan &s : plan.states)
    collect(s.term, all);
  bool readsColumns = llvm::any_of(all, [&](Node *n) {
    return n->kind == Node::Read && n != tiles.right.read && isOfColumn(n);
  });
  bool isMuch = readsColumns || callsFunctions() || rowStates().size() > 2;
  const int mostRegisters = groups == 2 ? 176 : isMuch ? 104 : 128;
  int most = brings ? int(tiles.elements.size()) : 0;
  for (int columns : {128, 64, 32})
    for (int count = most; count >= (brings ? 1 : 0); --count) {
      entry.vectors = columns;
      // Elements that are read, or made by functions, are all under way at
      // once.
      if (columns > 64 &&
          (readsElements(count) || (sums > 32 && callsFunctions())))
        continue;
      // Gates are behind the tiles.
      entry.sharedBytes =
          bytes(entry.rows, deepest) +
          2 * (bytes(columns, deepest) +
               int64_t(tiles.values.size()) * bytes(columns, widest)) +
          bytesOfBrought(count, entry.rows, columns) + gateBytes();
      if (sums + columns * 3 / 4 > mostRegisters ||
          entry.sharedBytes > kMostBytes || (brings && columns < 64))
        continue;
      entry.name = options.name + "_roles" + std::to_string(entry.rows) + "x" +
                   std::to_string(columns) + "x" + std::to_string(deepest) +
                   "x" + std::to_string(widest) + (brings ? "e" : "");
      // Results leave by boxes where there is room for them, and maps: for all
      // columns, or for two panels.
      for (int room : {widest, std::min(widest, 128)}) {
        int64_t rows = bytes(entry.rows, room);
        if (hasNarrowRows() || !boxedWrite() ||
            entry.sharedBytes + rows > kMostBytes)
          continue;
        entry.sharedBytes += rows;
        boxColumns[entry.name] = room;
        break;
      }
      // Of arrays that are copied, and of the result.
      if (copiesByBoxes())
        entry.maps = copyMaps(entry);
      if (boxColumns.count(entry.name))
        entry.maps.push_back(resultMap());
      // The left side of the next rows comes early where there is room, and
      // registers of two groups for it.
      if (int64_t left = bytes(entry.rows, deepest);
          groups == 2 && entry.sharedBytes + left <= kMostBytes)
        entry.sharedBytes += left;
      for (const TileAccess &access :
           ArrayRef(tiles.elements).take_front(count))
        entry.whole.push_back(access.operand);
      brought[entry.name] = count;
      result.entries.push_back(entry);
      return;
    }
}

//===----------------------------------------------------------------------===//
// Gates and copies
//===----------------------------------------------------------------------===//

void TilePrinter::printRoleNumbers() {
  out.line("constexpr int kTiles = 1, kVector = 8, kBlockRows = 64 * "
           "kConsumers;");
  out.line("using Left = Panels<kBlockRows, kDepth>;");
  out.line("using Right = Panels<kColumns, kDepth>;");
  out.line("using Values = Panels<kColumns, kWidth>;");
  std::string values = std::to_string(2 * tiles.values.size());
  if (hasBoxes()) {
    out.line("constexpr bool kIsBoxed = kBoxColumns > 0;");
    out.line("using Rows = Panels<16, kBoxColumns>; // of a warp, at once");
    out.line("constexpr int kRowsBytes = 4 * kConsumers * Rows::kBytes;");
  }
  std::string behind =
      hasBoxes() ? " * Values::kBytes + kRowsBytes" : " * Values::kBytes";
  printElementNumbers();
  out.line("constexpr int64_t kLeast = Left::kBytes + 2 * Right::kBytes + " +
           values + behind + " + " + (mostBrought() ? "kElementBytes + " : "") +
           std::to_string(gateBytes()) + ";");
  out.line("constexpr int kLefts = kSharedBytes == kLeast ? 1 : 2;");
  out.line("static_assert(kSharedBytes == kLeast + (kLefts - 1) * "
           "Left::kBytes);");
  out.line("REFOLD_SHARED_BYTES(left_tile, kSharedBytes);");
  out.line("const uint32_t right_tiles = left_tile + kLefts * Left::kBytes;");
  out.line("const uint32_t value_tiles = right_tiles + 2 * Right::kBytes;");
  printElementPlaces();
  out.comment("Gates of two places each: what is there has come, and all are "
              "done with it.");
  out.line("const uint32_t left_came = value_tiles + " + values + behind +
           (mostBrought() ? " + kElementBytes" : "") +
           ", left_left = left_came + 16;");
  out.line("const uint32_t right_came = left_left + 16, right_left = "
           "right_came + 16;");
  out.line("const uint32_t values_came = right_left + 16, values_left = "
           "values_came + 16;");
  if (mostBrought())
    out.line("const uint32_t elements_came = values_left + 16, elements_left = "
             "elements_came + 16;");
  if (hasLow()) {
    out.line("const uint32_t all_walked = left_came + 128;");
    out.line("using Low = LowVisits<4 * kConsumers>;");
    out.line("REFOLD_SHARED(uint32_t, low_words, Low::kCount);");
    out.line("const Low low_visits{low_words};");
  }
}

void TilePrinter::printGates() {
  out.open("if (thread() == 0) {");
  out.open("for (int place = 0; place < 2; ++place) {");
  for (const char *name : {"left", "right", "values", "elements"}) {
    if (StringRef(name) == "elements" && !mostBrought())
      continue;
    size_t arrivals = !copiesByBoxes()              ? 128
                      : StringRef(name) == "values" ? tiles.values.size()
                                                    : 1;
    out.line("make_gate(" + std::string(name) + "_came + 8 * place, " +
             std::to_string(arrivals) + ");");
    out.line("make_gate(" + std::string(name) +
             "_left + 8 * place, 4 * kConsumers);");
  }
  out.close();
  if (hasLow())
    out.line("make_gate(all_walked, 4 * kConsumers);");
  if (copiesByBoxes())
    out.line("show_matrices(); // the gates, to copies that arrive at them");
  out.close();
  if (hasLow())
    out.line("low_visits.forget();");
  out.line("block_barrier();");
}

/// The rows that a block comes to next.
void TilePrinter::printNextVisit() {
  out.line(std::string("const Visit visit = visit_of<") +
           (hasUpper() ? "true" : "false") + ">(visits, m_blocks, matrices);");
  if (hasLow()) {
    out.open("if (visit.matrix < 0) {");
    printAgain();
    out.close();
    out.line("if (is_again && !low_visits.has(visits))");
    out.line("  continue;");
  } else {
    out.line("if (visit.matrix < 0)");
    out.line("  break;");
  }
  if (hasUpper()) {
    out.line("if (visit.rows < 0)");
    out.line("  continue;");
  }
  if (hasLow())
    out.line("const bool walks_all = is_again || visits >= Low::kMost;");
}

/// What follows the last visit: those again whose rows stayed low in some warp,
/// with all of the stream, once everybody knows which these are.
void TilePrinter::printAgain() {
  out.line("if (is_again)");
  out.line("  break;");
  out.line("wait_gate(all_walked, 0);");
  out.line("if (!low_visits.hasAny())");
  out.line("  break;");
  out.line("is_again = true;");
  out.line("visits = -1;");
  out.line("continue;");
}

/// The same for those who compute: behind the last rows these come once more,
/// for their results.
void TilePrinter::printRoleVisit() {
  out.line(std::string("const Visit next = visit_of<") +
           (hasUpper() ? "true" : "false") + ">(visits, m_blocks, matrices);");
  out.line("const bool is_over = next.matrix < 0;");
  if (hasLow()) {
    out.open("if (is_over && before.matrix < 0) {");
    printAllWalked();
    out.close();
    out.line("if (is_again && !is_over && !low_visits.has(visits))");
    out.line("  continue;");
  } else {
    out.line("if (is_over && before.matrix < 0)");
    out.line("  break;");
  }
  if (hasUpper()) {
    out.line("if (next.rows < 0)");
    out.line("  continue;");
  }
  if (hasLow())
    out.line("const bool walks_all = is_again || visits >= Low::kMost;");
  out.line("const Visit visit = is_over ? before : next;");
}

void TilePrinter::printAllWalked() {
  out.line("if (!is_again && thread_again() % 32 == 0)");
  out.line("  arrive(all_walked);");
  printAgain();
}

/// Where they are.
void TilePrinter::printVisit() {
  const std::string &m = kernel.indexNames[tiles.tileRow];
  out.line("const int64_t " + m + "_first = int64_t(visit.rows) * kBlockRows;");
  out.line("[[maybe_unused]] const int64_t " + m + "_end = smaller(" + m +
           "_first + kBlockRows, " + m + "_count);");
  out.line("[[maybe_unused]] const int64_t row = visit.matrix;");
  printRowIndices(/*ofBlocks=*/true);
}

void TilePrinter::printCopier() {
  std::string n = kernel.indexNames[tiles.stream];
  std::string m = kernel.indexNames[tiles.tileRow];
  auto copy = [&](TileAccess &access, const std::string &type,
                  const std::string &to, const std::string &from,
                  const std::string &rows, int column) {
    out.line("copy_panels<" + type + ">(" + to + ", " + access.name + from +
             ", " + strideOf(access) + ", " + rows + ", " + countOf(column) +
             ");");
  };
  out.line("give_registers<kConsumers == 3 ? 32 : 40>();");
  if (copiesByBoxes())
    return printBoxCopier();
  out.line("int turn = 0, lefts = 0;");
  if (hasLow())
    out.line("bool is_again = false;");
  out.open("for (int visits = 0;; ++visits) {");
  Expressions::Scope scope(values, {});
  printNextVisit();
  printVisit();
  printMatrices();
  printElementRows();
  printBounds();
  printRange();
  out.open("for (int at = end - 1; at >= begin; --at, ++turn) {");
  out.line("const int place = turn & 1;");
  out.line("const uint32_t parity = (turn / 2 + 1) & 1;");
  out.line("const int64_t first = int64_t(at) * kColumns;");
  out.line("wait_gate(right_left + 8 * place, parity);");
  copy(tiles.right, "Right", "right_tiles + place * Right::kBytes",
       " + first * " + strideOf(tiles.right), n + "_count - first",
       tiles.depth);
  out.line("arrive_with_copies(right_came + 8 * place);");
  out.open("if (at == end - 1) {");
  out.line("const int left = lefts % kLefts;");
  out.line("wait_gate(left_left + 8 * left, (lefts / kLefts + 1) & 1);");
  copy(tiles.left, "Left", "left_tile + left * Left::kBytes", "",
       m + "_end - " + m + "_first", tiles.depth);
  out.line("arrive_with_copies(left_came + 8 * left);");
  out.line("++lefts;");
  out.close();
  printElementCopies();
  out.line("wait_gate(values_left + 8 * place, parity);");
  for (auto [i, access] : llvm::enumerate(tiles.values))
    copy(access, "Values",
         "value_tiles + (" + std::to_string(2 * i) +
             " + place) * Values::kBytes",
         " + first * " + strideOf(access), n + "_count - first", tiles.width);
  out.line("arrive_with_copies(values_came + 8 * place);");
  out.close();
  out.close();
  out.line("wait_copies<0>();");
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Begins the products of a tile, and the sums of the one before.
void TilePrinter::printIssue() {
  out.line("if constexpr (kConsumers == 2)");
  out.line("  await_turn(1 + consumer, 256);");
  out.line("begin_products();");
  out.line("multiply_panels<" + typeOf(tiles.left) +
           ", Left, Right>(products[0], left_rows_of, right_tiles + place * "
           "Right::kBytes);");
  out.line("commit_products();");
  out.comment("Where no rows come before, sums of this very tile, which are "
              "forgotten: registers of sums under way have one way to come "
              "here.");
  out.line("const bool has_before = kind.value == Further || before.matrix >= "
           "0;");
  out.line("multiply_values(turn - has_before, place ^ int(has_before));");
  out.line("if constexpr (kConsumers == 2)");
  out.line("  pass_turn(2 - consumer, 256);");
  out.line("wait_products<1>();");
  out.line("settle(products[0]);");
  out.open("if (which % 32 == 0) {");
  out.line("arrive(right_left + 8 * place);");
  out.line("if (!has_next)");
  out.line("  arrive(left_left + 8 * left);");
  out.close();
}

/// Sums of the tile before have come; what was computed since becomes the
/// factors of the next ones.
void TilePrinter::printSettle() {
  out.comment("The wait for the next tile keeps what is above it there: the "
              "sums are under way until here.");
  out.open("if (has_next) {");
  out.line("wait_gate(right_came + 8 * (place ^ 1), ((turn + 1) / 2) & 1);");
  out.line("show_matrices();");
  out.close();
  out.line("if constexpr (kind.value == FirstOfRows)");
  out.line("  bring_together(done);");
  out.line("settle_sums(place ^ 1, has_before);");
  out.open("if constexpr (kind.value == FirstOfRows) {");
  out.line("if (has_before)");
  out.line("  finish(done, before);");
  out.line("forget_sums();");
  out.otherwise();
  bool isMoved = llvm::any_of(tiles.products, [](const TileState &p) {
    return !p.state->op.getTransport().empty();
  });
  if (isMoved) {
    out.open("if (is_moved) {");
    for (const TileState &p : tiles.products) {
      if (p.state->op.getTransport().empty())
        continue;
      out.line("REFOLD_UNROLL");
      out.line("for (int c = 0; c < kWidth / 2; ++c)");
      out.line("  " + name(*p.state) +
               "_sums[0][c / 4][c % 4] *= moved_by[c % 4 / 2];");
    }
    out.close();
  }
  out.close();
  out.line("REFOLD_UNROLL");
  out.open("for (int c = 0; c < kColumns / 16; ++c) {");
  out.line("REFOLD_UNROLL");
  out.line("for (int word = 0; word < 4; ++word)");
  out.line("  factors[c][0][word] = pack(products[0][2 * c + word / 2][word % "
           "2 * 2], products[0][2 * c + word / 2][word % 2 * 2 + 1], " +
           typeOf(tiles.values[tiles.products.front().values]) + "{});");
  out.close();
}

/// What all rows of a block have in common.
void TilePrinter::printSums() {
  for (const TileState &p : tiles.products)
    out.line("float " + name(*p.state) + "_sums[1][kWidth / 8][4] = {};");
  out.line("uint32_t factors[kColumns / 16][1][4] = {};");
  out.comment("Whether sums have anything of the rows at hand. Wide ones leave "
              "no register for it, and begin as 0.");
  out.line("constexpr bool kIsZeroed = kWidth > 128;");
  out.line("int adds = kIsZeroed;");
  out.line("// Begins to add what a tile has to the sums.");
  out.open("const auto multiply_values = [&](int turn, int place) {");
  out.line("wait_gate(values_came + 8 * place, (turn / 2) & 1);");
  out.line("show_matrices();");
  out.line("begin_products();");
  for (const TileState &p : tiles.products)
    out.line("multiply_factors<" + typeOf(tiles.values[p.values]) +
             ", Values>(" + name(*p.state) +
             "_sums[0], factors, value_tiles + (" +
             std::to_string(2 * p.values) +
             " + place) * Values::kBytes, kIsZeroed ? 1 : adds);");
  out.line("commit_products();");
  out.line("if constexpr (!kIsZeroed)");
  out.line("  adds = 1;");
  out.close("};");
  out.line("// They have come; of a tile of other rows it is not done yet.");
  out.open("const auto settle_sums = [&](int place, bool is_done) {");
  out.line("wait_products<0>();");
  for (const TileState &p : tiles.products)
    out.line("settle(" + name(*p.state) + "_sums[0]);");
  out.line("if (is_done && thread_again() % 32 == 0)");
  out.line("  arrive(values_left + 8 * place);");
  out.close("};");
  out.line("// The next ones are those of new rows.");
  out.open("const auto forget_sums = [&] {");
  out.open("if constexpr (kIsZeroed) {");
  printZeros();
  out.otherwise();
  out.line("adds = 0;");
  out.close();
  out.close("};");
}

void TilePrinter::printZeros() {
  for (const TileState &p : tiles.products) {
    out.line("REFOLD_UNROLL");
    out.line("for (auto &sum : " + name(*p.state) + "_sums[0])");
    out.line("  sum[0] = sum[1] = sum[2] = sum[3] = 0.0f;");
  }
}

/// Results, once the sums of some rows have come.
void TilePrinter::printFinish() {
  out.blank();
  out.line("// What lanes of a row have apart.");
  out.open("const auto bring_together = [&]([[maybe_unused]] "
           "States(&states)[2]) {");
  out.line("REFOLD_UNROLL");
  out.open("for (States &s : states) {");
  printTogether();
  out.close();
  out.close("};");
  if (hasLow()) {
    out.line("// Which visit `before` was, and whether visits come again.");
    out.line("int visits_before = 0;");
    out.line("bool is_again = false;");
  }
  out.open("const auto finish = [&]([[maybe_unused]] States(&states)[2], Visit "
           "visit) {");
  Expressions::Scope scope(values, {});
  if (hasLow()) {
    out.comment("Rows of a warp are written when all of the stream is walked, "
                "where one of them has seen nothing above what masks hold.");
    out.line("const int warp = of_warp(thread_again() / 32 - 4);");
    out.open("if (!is_again && visits_before < Low::kMost) {");
    out.line("const bool is_low = " + staysLow("states[0]") + " | " +
             staysLow("states[1]") + ";");
    out.open("if (any_lane(is_low)) {");
    out.line("low_visits.add(warp, visits_before);");
    out.line("return;");
    out.close();
    out.close();
    out.line("if (is_again && !low_visits.has(visits_before, warp))");
    out.line("  return;");
  }
  printVisit();
  for (StatePlan *s : movedAt(-1))
    if (!tiles.dropsPivots)
      nameFixed(s->moved);
  for (WritePlan &w : plan.finishWrites)
    nameFixed(w.value);
  printResults();
  out.close("};");
  out.line("// Rows of which the last sums are still to be added.");
  out.line("States done[2];");
  out.line("Visit before = {-1, 0};");
}

void TilePrinter::printRoleFold() {
  std::string n = kernel.indexNames[tiles.stream];
  out.line("States states[2];");
  out.line("const int left = of_warp(lefts % kLefts);");
  out.line("const uint32_t left_rows_of = left_tile + left * Left::kBytes + "
           "consumer * 64 * Left::kRowBytes;");
  out.comment("Absorbs a tile: states that others are relative to come first. "
              "The sums of the tile before are under way meanwhile, which is "
              "the last one of other rows where this one is the first.");
  out.open(std::string("const auto fold = [&](") +
           (masks ? "bool is_whole" : "auto whole") + ", auto kind, int64_t " +
           n + "_first, int turn, bool has_next) {");
  out.line(
      "const int which = thread_again() - 128, place = of_warp(turn & 1);");
  out.line("[[maybe_unused]] const int count = within(" + n + "_count - " + n +
           "_first, kColumns);");
  out.line("float products[kTiles][kColumns / 8][4];");
  printIssue();
  if (!movedAt(-1).empty()) {
    out.line("[[maybe_unused]] bool is_moved = false;");
    out.line("[[maybe_unused]] float moved_by[2] = {1.0f, 1.0f};");
  }
  isInRoles = true;
  printElementsCome();
  for (unsigned level = 0; level < tiles.numLevels(); ++level)
    printLevel(level);
  printElementsLeave();
  isInRoles = false;
  printSettle();
  out.close("};");
}

/// The last sums of rows, where no others follow: of those before, and of rows
/// of which there is nothing to fold.
void TilePrinter::printLastSums() {
  out.open("if (is_over || begin >= end) {");
  out.line("REFOLD_NO_UNROLL");
  out.open("for (int some = before.matrix < 0; some < (is_over ? 1 : 2); "
           "++some) {");
  out.open("if (some == 0) {");
  out.line("multiply_values(turns - 1, of_warp((turns - 1) & 1));");
  out.line("bring_together(done);");
  out.line("settle_sums((turns - 1) & 1, true);");
  out.otherwise();
  out.line("// What rows begin with is what they have.");
  printZeros();
  out.line("done[0] = states[0], done[1] = states[1];");
  out.line("bring_together(done);");
  out.line("before = visit;");
  if (hasLow())
    out.line("visits_before = visits;");
  out.close();
  out.line("finish(done, before);");
  out.line("forget_sums();");
  out.close();
  out.line("before.matrix = -1;");
  if (hasLow()) {
    out.open("if (is_over) {");
    printAllWalked();
    out.close();
  } else {
    out.line("if (is_over)");
    out.line("  break;");
  }
  out.line("continue;");
  out.close();
}

void TilePrinter::printRoleWalk() {
  printLastSums();
  out.line("wait_gate(left_came + 8 * left, (lefts / kLefts) & 1);");
  out.line("wait_gate(right_came + 8 * (turns & 1), (turns / 2) & 1);");
  out.line("show_matrices();");
  out.line("const int64_t last = int64_t(end - 1) * kColumns;");
  auto fold = [&](const std::string &whole, const char *rest) {
    out.line("fold(" + whole + ", " + rest + ");");
  };
  auto indented = [&](const char *whole, const char *rest) {
    out.line(std::string("  fold(") + whole + ", " + rest + ");");
  };
  // `whole` is asked where the text has masks for both.
  auto foldEither = [&](const std::string &whole, const char *rest) {
    if (masks)
      return fold(whole, rest);
    out.line("if (" + whole + ")");
    indented("Number<1>{}", rest);
    out.line("else");
    indented("Number<0>{}", rest);
  };
  const char *first = "Number<FirstOfRows>{}, last, turns, end - 1 > begin";
  const char *further = "Number<Further>{}, first, turn, at > begin";
  // Masks of a whole tile are 6 % of a visit of four tiles. Where elements of
  // the stream are left out the first tile is the one that is not whole.
  if (isWholeBehindFirst())
    foldEither("end - 1 < whole_end", first);
  else
    fold(masks ? "false" : "Number<0>{}", first);
  out.open("for (int at = end - 2; at >= begin; --at) {");
  out.line("const int64_t first = int64_t(at) * kColumns;");
  out.line("const int turn = turns + end - 1 - at;");
  if (isWholeBehindFirst()) {
    out.line("// Only the first of them is not whole.");
    fold(masks ? "true" : "Number<1>{}", further);
  } else {
    foldEither("at >= whole_begin && at < whole_end", further);
  }
  out.close();
  out.line("turns += end - begin;");
  out.line("++lefts;");
  out.line("done[0] = states[0], done[1] = states[1];");
  out.line("before = visit;");
  if (hasLow())
    out.line("visits_before = visits;");
}

void TilePrinter::printRoles() {
  out.blank();
  out.line(std::string("template <int kConsumers, int kColumns, int kDepth, "
                       "int kWidth, ") +
           (mostBrought() > fewestBrought() ? "int kBrought, " : "") +
           (hasBoxes() ? "int kBoxColumns, " : "") + "int64_t kSharedBytes>");
  out.open("REFOLD_DEVICE void " + options.name + "_by_roles(" + own.first +
           (hasMaps(false) ? ", const ArrayMap *maps) {" : ") {"));
  size_t begin = out.text.size();
  isOfRoles = true;
  bits.clear();
  scales.clear();
  values.beginFunction();
  values.below = {{unsigned(tiles.tileRow), CudaTiles::kMostPlaces},
                  {unsigned(tiles.stream), CudaTiles::kMostPlaces}};
  for (unsigned i = 0; i < plan.cascade.numIndices(); ++i)
    if (extentOf(i).operand < 0 && isNamed(kernel.indexNames[i] + "_count"))
      out.line("[[maybe_unused]] constexpr int64_t " + kernel.indexNames[i] +
               "_count = " + std::to_string(plan.extent(i)) + ";");
  printRoleNumbers();
  printGates();
  std::string m = kernel.indexNames[tiles.tileRow], matrices;
  for (unsigned row : tiles.rows)
    matrices += (matrices.empty() ? "" : " * ") + countOf(row);
  out.line("const int m_blocks = int((" + m +
           "_count + kBlockRows - 1) / kBlockRows);");
  out.line("const int matrices = int(" + (matrices.empty() ? "1" : matrices) +
           ");");
  out.blank();
  out.line("// 1. Four warps bring what the others need.");
  out.open("if (thread_again() < 128) {");
  printCopier();
  out.line("return;");
  out.close();
  out.blank();
  out.line("// 2. The stream from its end, for some rows after the other.");
  out.line("take_registers<kConsumers == 3 ? 160 : 232>();");
  out.line("const int consumer = of_warp((thread_again() - 128) / 128);");
  out.open("if constexpr (kConsumers == 2) {");
  out.line("if (consumer == 1)");
  out.line("  pass_turn(1, 256); // the others go first");
  out.close();
  out.line("int turns = 0, lefts = 0;");
  hasVisits = true;
  if (hasBoxes())
    printOwnRows();
  printSums();
  values.beginFunction();
  printFinish();
  out.open("for (int visits = 0;; ++visits) {");
  {
    Expressions::Scope scope(values, {});
    values.beginFunction();
    bits.clear();
    scales.clear();
    masks = masksAhead();
    printRoleVisit();
    printVisit();
    printFixed();
    printBounds();
    printRange();
    printRoleFold();
    printRoleWalk();
  }
  masks = false;
  out.close();
  if (hasBoxes()) {
    out.line("if (kIsBoxed && thread_again() % 32 == 0)");
    out.line("  wait_boxes<0>();");
  }
  out.open("if constexpr (kConsumers == 2) {");
  out.line("if (consumer == 0)");
  out.line("  await_turn(1, 256); // that nobody has taken");
  out.close();
  hasVisits = isOfRoles = false;
  values.below.clear();
  body += out.text.substr(begin);
  out.close();
}
