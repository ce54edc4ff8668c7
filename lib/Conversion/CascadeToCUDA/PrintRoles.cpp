// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel over tiles with roles, for sm_90a: four warps copy, others compute
// with products that are under way while they do something else.
#include "TilePrinter.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;
using TileOp = tile::Op;

//===----------------------------------------------------------------------===//
// What is launched
//===----------------------------------------------------------------------===//

/// Whether factors of all sums are the same numbers, which can stay where
/// products were, and transports multiply by one number a row: sums are then
/// moved when they have come.
bool TilePrinter::mayHaveRoles() {
  if (!StringRef(options.target).contains("sm90") || tiles.isOfWords ||
      (tiles.widens() && !widensByRoles()) || !hasTileRow() || !hasWidth() ||
      tiles.products.empty() || tiles.numLevels() > 2)
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
  entry.width = vectorsOfEntries().front();
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
          bytesOfBrought(count, entry.rows, columns) + gateBytes() +
          narrowBytes(entry);
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
  const std::string narrow = printNarrowTypes();
  std::string values = std::to_string(2 * tiles.values.size());
  if (hasBoxes()) {
    ops.add(let("constexpr bool", {{"kIsBoxed", "kBoxColumns > 0"}}));
    out.line("using Rows = Panels<16, kBoxColumns>; // of a warp, at once");
    ops.add(let("constexpr int",
                {{"kRowsBytes", "4 * kConsumers * Rows::kBytes"}}));
  }
  std::string behind =
      hasBoxes() ? " * Values::kBytes + kRowsBytes" : " * Values::kBytes";
  printElementNumbers();
  ops.add(
      let("constexpr int64_t",
          {{"kLeast", "Left::kBytes + 2 * Right::kBytes + " + values + behind +
                          " + " + (mostBrought() ? "kElementBytes + " : "") +
                          std::to_string(gateBytes()) + narrow}}));
  ops.add(let("constexpr int", {{"kLefts", "kSharedBytes == kLeast ? 1 : 2"}}));
  out.line("static_assert(kSharedBytes == kLeast + (kLefts - 1) * "
           "Left::kBytes);");
  ops.add(letAs("REFOLD_SHARED_BYTES(left_tile, kSharedBytes);",
                {{"left_tile", "0"}}));
  ops.add(let("const uint32_t",
              {{"right_tiles", "left_tile + kLefts * Left::kBytes"}}));
  ops.add(let("const uint32_t",
              {{"value_tiles", "right_tiles + 2 * Right::kBytes"}}));
  printElementPlaces();
  out.comment("Gates of two places each: what is there has come, and all are "
              "done with it.");
  const char *type = "const uint32_t";
  ops.add(
      let(type, {{"left_came", "value_tiles + " + values + behind +
                                   (mostBrought() ? " + kElementBytes" : "")},
                 {"left_left", "left_came + 16"}}));
  ops.add(let(type, {{"right_came", "left_left + 16"},
                     {"right_left", "right_came + 16"}}));
  ops.add(let(type, {{"values_came", "right_left + 16"},
                     {"values_left", "values_came + 16"}}));
  if (mostBrought())
    ops.add(let(type, {{"elements_came", "values_left + 16"},
                       {"elements_left", "elements_came + 16"}}));
  printNarrowRolePlaces("left_came + " + std::to_string(gateBytes()));
  if (hasLow()) {
    ops.add(let(type, {{"all_walked", "left_came + 128"}}));
    out.line("using Low = LowVisits<4 * kConsumers>;");
    out.line("REFOLD_SHARED(uint32_t, low_words, Low::kCount);");
    out.line("const Low low_visits{low_words};");
  }
}

/// What is written of the visits that are low in a warp.
static TileOp lowWords(const std::string &text, const std::string &warp) {
  TileOp op = plain(TileOp::Write);
  op.text = text;
  op.to = {"low_words", warp, ""};
  return op;
}

void TilePrinter::printGates() {
  ops.open(where("thread() == 0"));
  ops.open(loop({{"place", "0"}}, "place < 2", "++place"));
  for (const char *name : {"left", "right", "values", "elements"}) {
    if (StringRef(name) == "elements" && !mostBrought())
      continue;
    size_t arrivals = !copiesByBoxes()              ? 128
                      : StringRef(name) == "values" ? tiles.values.size()
                                                    : 1;
    ops.add(atGate(TileOp::MakeGate, std::string(name) + "_came", "place",
                   std::to_string(arrivals)));
    ops.add(atGate(TileOp::MakeGate, std::string(name) + "_left", "place",
                   "4 * kConsumers"));
  }
  ops.close();
  if (hasLow())
    ops.add(atGate(TileOp::MakeGate, "all_walked", "", "4 * kConsumers"));
  if (copiesByBoxes()) {
    TileOp fence = plain(TileOp::Fence);
    fence.comment = "the gates, to copies that arrive at them";
    ops.add(fence);
  }
  ops.close();
  if (hasLow()) {
    // All threads write some of the words of all warps.
    ops.add(lowWords("low_visits.forget();",
                     "thread_again() / 32 % (4 * kConsumers)"));
  }
  ops.add(plain(TileOp::BlockBarrier));
}

/// Names of a visit that the ops know: which matrix, which rows of it, and
/// which visit of the block it is.
static std::vector<tile::Number> visit(const std::string &name,
                                       const std::string &matrix,
                                       const std::string &rows,
                                       const std::string &number) {
  return {{name + ".matrix", matrix},
          {name + ".rows", rows},
          {name + ".number", number}};
}

static TileOp nextVisit(const std::string &name, bool isGrowing) {
  return letAs("const Visit " + name + " = visit_of<" +
                   (isGrowing ? "true" : "false") +
                   ">(visits, m_blocks, matrices);",
               visit(name, "matrix_of(visits)", "rows_of(visits)", "visits"));
}

/// The rows that a block comes to next.
void TilePrinter::printNextVisit() {
  ops.add(nextVisit("visit", hasUpper()));
  if (hasLow()) {
    ops.open(where("visit.matrix < 0"));
    printAgain();
    ops.close();
    ops.add(
        where("is_again && !low_visits.has(visits)", jump(TileOp::Continue)));
  } else {
    ops.add(where("visit.matrix < 0", jump(TileOp::Break)));
  }
  if (hasUpper())
    ops.add(where("visit.rows < 0", jump(TileOp::Continue)));
  if (hasLow())
    out.line("const bool walks_all = is_again || visits >= Low::kMost;");
}

/// What follows the last visit: those again whose rows stayed low in some warp,
/// with all of the stream, once everybody knows which these are.
void TilePrinter::printAgain() {
  ops.add(where("is_again", jump(TileOp::Break)));
  ops.add(atGate(TileOp::WaitGate, "all_walked", "", "0"));
  ops.add(where("!low_visits.hasAny()", jump(TileOp::Break)));
  ops.add(assign("is_again", "true"));
  ops.add(assign("visits", "-1"));
  ops.add(jump(TileOp::Continue));
}

/// The same for those who compute: behind the last rows these come once more,
/// for their results.
void TilePrinter::printRoleVisit() {
  ops.add(nextVisit("next", hasUpper()));
  ops.add(let("const bool", {{"is_over", "next.matrix < 0"}}));
  if (hasLow()) {
    ops.open(where("is_over && before.matrix < 0"));
    printAllWalked();
    ops.close();
    ops.add(where("is_again && !is_over && !low_visits.has(visits)",
                  jump(TileOp::Continue)));
  } else {
    ops.add(where("is_over && before.matrix < 0", jump(TileOp::Break)));
  }
  if (hasUpper())
    ops.add(where("next.rows < 0", jump(TileOp::Continue)));
  if (hasLow())
    out.line("const bool walks_all = is_again || visits >= Low::kMost;");
  auto either = [](const std::string &part) {
    return "is_over ? before." + part + " : next." + part;
  };
  ops.add(letAs(
      "const Visit visit = is_over ? before : next;",
      visit("visit", either("matrix"), either("rows"), either("number"))));
}

void TilePrinter::printAllWalked() {
  ops.add(where("!is_again && thread_again() % 32 == 0",
                atGate(TileOp::Arrive, "all_walked", "")));
  printAgain();
}

/// Which tiles they need: the text computes it.
void TilePrinter::printRoleRange() {
  printRange();
  ops.add(letAs("", {{"begin", "begin_of(visit.number)"},
                     {"end", "end_of(visit.number)"}}));
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
  auto arrive = [&](const TileAccess &access, const std::string &gate,
                    const std::string &place) {
    if (access.isWidened()) // by ordinary accesses
      ops.add(plain(TileOp::Fence));
    ops.add(
        atGate(access.isWidened() ? TileOp::Arrive : TileOp::ArriveWithCopies,
               gate, place));
  };
  auto copy = [&](TileAccess &access, const std::string &type,
                  const std::string &to, const std::string &stage,
                  const std::string &from, const std::string &rows,
                  int column) {
    if (access.isWidened())
      return ops.add(widening(access, {to, stage, type}));
    TileOp op = plain(TileOp::CopyRows);
    op.callee = "copy_panels<" + type + ">";
    op.to = {to, stage, type};
    op.arguments = {access.name + from, strideOf(access), rows,
                    countOf(column)};
    return ops.add(op);
  };
  ops.add(plain(TileOp::GiveRegisters, "kConsumers == 3 ? 32 : 40"));
  if (copiesByBoxes())
    return printBoxCopier();
  ops.add(let("int", {{"turn", "0"}, {"lefts", "0"}}));
  if (hasLow())
    ops.add(let("bool", {{"is_again", "false"}}));
  ops.open(loop({{"visits", "0"}}, "", "++visits"));
  Expressions::Scope scope(values, {});
  printNextVisit();
  printVisit();
  printMatrices();
  printElementRows();
  printBounds();
  printRoleRange();
  if (tiles.widensStream()) {
    out.line("// What is widened comes a tile before.");
    ops.open(where("begin < end"));
    printNarrowNext("end", /*ofValues=*/false);
    if (tiles.left.isWidened())
      printNarrowLeft();
    else
      printNarrowNext("end", /*ofValues=*/true);
    ops.close();
  }
  ops.open(loop({{"at", "end - 1"}}, "at >= begin", "--at, ++turn"));
  ops.add(let("const int", {{"place", "turn & 1"}}));
  ops.add(let("const uint32_t", {{"parity", "(turn / 2 + 1) & 1"}}));
  out.line("const int64_t first = int64_t(at) * kColumns;");
  ops.add(atGate(TileOp::WaitGate, "right_left", "place", "parity"));
  copy(tiles.right, "Right", "right_tiles", "place",
       " + first * " + strideOf(tiles.right), n + "_count - first",
       tiles.depth);
  arrive(tiles.right, "right_came", "place");
  if (tiles.widensStream())
    printNarrowNext("at", /*ofValues=*/false);
  ops.open(where("at == end - 1"));
  ops.add(let("const int", {{"left", "lefts % kLefts"}}));
  ops.add(atGate(TileOp::WaitGate, "left_left", "left",
                 "(lefts / kLefts + 1) & 1"));
  copy(tiles.left, "Left", "left_tile", "left", "",
       m + "_end - " + m + "_first", tiles.depth);
  arrive(tiles.left, "left_came", "left");
  if (tiles.left.isWidened())
    printNarrowNext("(at + 1)", /*ofValues=*/true);
  ops.add(step("++lefts"));
  ops.close();
  printElementCopies();
  ops.add(atGate(TileOp::WaitGate, "values_left", "place", "parity"));
  for (auto [i, access] : llvm::enumerate(tiles.values))
    copy(access, "Values", "value_tiles",
         "(" + std::to_string(2 * i) + " + place)",
         " + first * " + strideOf(access), n + "_count - first", tiles.width);
  arrive(tiles.values.front(), "values_came", "place");
  if (tiles.widensStream())
    printNarrowNext("at", /*ofValues=*/true);
  ops.close();
  ops.close();
  ops.add(plain(TileOp::WaitCopies, "0"));
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Begins the products of a tile, and the sums of the one before.
void TilePrinter::printIssue() {
  ops.add(where("kConsumers == 2",
                turn(TileOp::AwaitTurn, "1 + consumer", "256"),
                /*isConstant=*/true));
  ops.add(plain(TileOp::BeginProducts));
  TileOp multiply = plain(TileOp::Multiply);
  multiply.callee = "multiply_panels<" + unitOf(tiles.left) + ", Left, Right>";
  multiply.arguments = {"products[0]", "left_rows_of", ""};
  multiply.reads = {{"right_tiles", "place", "Right"},
                    {"left_tile", "left", "Left"}};
  multiply.sums = {"products"};
  ops.add(multiply);
  ops.add(plain(TileOp::CommitProducts));
  out.comment("Where no rows come before, sums of this very tile, which are "
              "forgotten: registers of sums under way have one way to come "
              "here.");
  ops.add(
      let("const bool", {{"has_before", "!is_first || before.matrix >= 0"}}));
  ops.add(call("multiply_values",
               {"turn - has_before", "place ^ int(has_before)"}));
  ops.add(where("kConsumers == 2",
                turn(TileOp::PassTurn, "2 - consumer", "256"),
                /*isConstant=*/true));
  ops.add(plain(TileOp::WaitProducts, "1"));
  ops.add(settle("products[0]", "products"));
  ops.open(where("which % 32 == 0"));
  ops.add(atGate(TileOp::Arrive, "right_left", "place"));
  ops.add(where("!has_next", atGate(TileOp::Arrive, "left_left", "left")));
  ops.close();
}

/// Sums of the tile before have come; what was computed since becomes the
/// factors of the next ones.
void TilePrinter::printSettle() {
  out.comment("The wait for the next tile keeps what is above it there: the "
              "sums are under way until here.");
  ops.open(where("has_next"));
  ops.add(atGate(TileOp::WaitGate, "right_came", "place ^ 1",
                 "((turn + 1) / 2) & 1"));
  ops.add(plain(TileOp::Fence));
  ops.close();
  // Beside the wait, where the text is that of first tiles only.
  if (hasTwoTexts())
    ops.add(where("kind.value == FirstOfRows", call("bring_together", {"done"}),
                  /*isConstant=*/true));
  ops.add(call("settle_sums", {"place ^ 1", "has_before"}));
  bool isMoved = llvm::any_of(tiles.products, [](const TileState &p) {
    return !p.state->op.getTransport().empty();
  });
  // One branch for what few tiles have to do.
  if (isMoved)
    out.open("if (is_first | is_moved) {");
  ops.open(where("is_first"));
  if (hasOneText())
    ops.add(where("kind.value == FirstOrFurther",
                  call("bring_together", {"done"}),
                  /*isConstant=*/true));
  ops.add(where("has_before", call("finish", {"done", "before"})));
  ops.add(call("forget_sums", {}));
  if (isMoved) {
    ops.otherwise();
    for (const TileState &p : tiles.products) {
      if (p.state->op.getTransport().empty())
        continue;
      out.line("REFOLD_UNROLL");
      out.line("for (int c = 0; c < kWidth / 2; ++c)");
      out.line("  " + name(*p.state) +
               "_sums[0][c / 4][c % 4] *= moved_by[c % 4 / 2];");
    }
  }
  ops.close();
  if (isMoved)
    out.close();
  out.line("REFOLD_UNROLL");
  out.open("for (int c = 0; c < kColumns / 16; ++c) {");
  out.line("REFOLD_UNROLL");
  out.line("for (int word = 0; word < 4; ++word)");
  out.line("  factors[c][0][word] = pack(products[0][2 * c + word / 2][word % "
           "2 * 2], products[0][2 * c + word / 2][word % 2 * 2 + 1], " +
           unitOf(tiles.values[tiles.products.front().values]) + "{});");
  out.close();
}

/// What all rows of a block have in common.
void TilePrinter::printSums() {
  for (const TileState &p : tiles.products)
    out.line("float " + name(*p.state) + "_sums[1][kWidth / 8][4] = {};");
  out.line("uint32_t factors[kColumns / 16][1][4] = {};");
  out.comment("Whether sums have anything of the rows at hand. Wide ones leave "
              "no register for it, and begin as 0.");
  ops.add(let("constexpr bool", {{"kIsZeroed", "kWidth > 128"}}));
  ops.add(let("int", {{"adds", "kIsZeroed"}}));
  out.line("// Begins to add what a tile has to the sums.");
  ops.open(define("multiply_values", "[&](int turn, int place)",
                  {{"turn", "number"}, {"place", "number"}}));
  ops.add(atGate(TileOp::WaitGate, "values_came", "place", "(turn / 2) & 1"));
  ops.add(plain(TileOp::Fence));
  ops.add(plain(TileOp::BeginProducts));
  for (const TileState &p : tiles.products) {
    TileOp multiply = plain(TileOp::Multiply);
    multiply.callee =
        "multiply_factors<" + unitOf(tiles.values[p.values]) + ", Values>";
    multiply.arguments = {name(*p.state) + "_sums[0]", "factors", "",
                          "kIsZeroed ? 1 : adds"};
    multiply.reads = {{"value_tiles",
                       "(" + std::to_string(2 * p.values) + " + place)",
                       "Values"}};
    multiply.sums = {name(*p.state) + "_sums"};
    multiply.factors = {"factors"};
    ops.add(multiply);
  }
  ops.add(plain(TileOp::CommitProducts));
  ops.add(where("!kIsZeroed", assign("adds", "1"), /*isConstant=*/true));
  ops.close();
  out.line("// They have come; of a tile of other rows it is not done yet.");
  ops.open(define("settle_sums", "[&](int place, bool is_done)",
                  {{"place", "number"}, {"is_done", "number"}}));
  ops.add(plain(TileOp::WaitProducts, "0"));
  for (const TileState &p : tiles.products)
    ops.add(settle(name(*p.state) + "_sums[0]", name(*p.state) + "_sums"));
  ops.add(where("is_done && thread_again() % 32 == 0",
                atGate(TileOp::Arrive, "values_left", "place")));
  ops.close();
  out.line("// The next ones are those of new rows.");
  ops.open(define("forget_sums", "[&]", {}));
  ops.open(where("kIsZeroed", /*isConstant=*/true));
  printZeros();
  ops.otherwise();
  ops.add(assign("adds", "0"));
  ops.close();
  ops.close();
}

/// Results, once the sums of some rows have come.
void TilePrinter::printFinish() {
  out.blank();
  out.line("// What lanes of a row have apart.");
  ops.open(define("bring_together", "[&]([[maybe_unused]] States(&states)[2])",
                  {{"states", ""}}));
  out.line("REFOLD_UNROLL");
  out.open("for (States &s : states) {");
  printTogether();
  out.close();
  ops.close();
  if (hasLow()) {
    out.line("// Which visit `before` was, and whether visits come again.");
    ops.add(let("int", {{"visits_before", "0"}}));
    ops.add(let("bool", {{"is_again", "false"}}));
  }
  ops.open(define("finish",
                  "[&]([[maybe_unused]] States(&states)[2], Visit visit)",
                  {{"states", ""}, {"visit", "visit"}}));
  Expressions::Scope scope(values, {});
  if (hasLow()) {
    out.comment("Rows of a warp are written when all of the stream is walked, "
                "where one of them has seen nothing above what masks hold.");
    ops.add(let("const int", {{"warp", "of_warp(thread_again() / 32 - 4)"}}));
    ops.open(where("!is_again && visits_before < Low::kMost"));
    ops.add(letAs("const bool is_low = " + staysLow("states[0]") + " | " +
                      staysLow("states[1]") + ";",
                  {{"is_low", "low_of(visits_before)"}}));
    ops.open(where("any_lane(is_low)"));
    ops.add(lowWords("low_visits.add(warp, visits_before);", "warp"));
    ops.add(jump(TileOp::Return));
    ops.close();
    ops.close();
    ops.add(where("is_again && !low_visits.has(visits_before, warp)",
                  jump(TileOp::Return)));
  }
  printVisit();
  for (StatePlan *s : movedAt(-1))
    if (!tiles.dropsPivots)
      nameFixed(s->moved);
  for (WritePlan &w : plan.finishWrites)
    nameFixed(w.value);
  printResults();
  ops.close();
  out.line("// Rows of which the last sums are still to be added.");
  out.line("States done[2];");
  ops.add(letAs("Visit before = {-1, 0};", visit("before", "-1", "0", "0")));
}

void TilePrinter::printRoleFold() {
  std::string n = kernel.indexNames[tiles.stream];
  out.line("States states[2];");
  ops.add(let("const int", {{"left", "of_warp(lefts % kLefts)"}}));
  ops.add(letAs("const uint32_t left_rows_of = left_tile + left * Left::kBytes "
                "+ consumer * 64 * Left::kRowBytes;",
                {}));
  out.comment("Absorbs a tile: states that others are relative to come first. "
              "The sums of the tile before are under way meanwhile, which is "
              "the last one of other rows where this one is the first.");
  ops.open(define("fold",
                  std::string("[&](") +
                      (masks ? "bool is_whole" : "auto whole") +
                      ", auto kind, bool is_first, int64_t " + n +
                      "_first, int turn, bool has_next)",
                  {{"whole", ""},
                   {"kind", "constant"},
                   {"is_first", "number"},
                   {"first", ""},
                   {"turn", "number"},
                   {"has_next", "number"}}));
  ops.add(let("const int", {{"which", "thread_again() - 128"},
                            {"place", "of_warp(turn & 1)"}}));
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
  ops.close();
}

/// The rows at hand are those that sums are still to be added to.
void TilePrinter::printBefore() {
  TileOp op = assign("", "");
  op.text = "before = visit;";
  op.numbers = visit("before", "visit.matrix", "visit.rows", "visit.number");
  ops.add(op);
  if (hasLow())
    ops.add(assign("visits_before", "visits"));
}

/// The first turn of two groups that multiply, and the last one.
void TilePrinter::printTurn(const std::string &consumer, TileOp op,
                            const char *why) {
  op.comment = why;
  ops.open(where("kConsumers == 2", /*isConstant=*/true));
  ops.add(where("consumer == " + consumer, op));
  ops.close();
}

LogicalResult TilePrinter::printRoles() {
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
  ops.begin();
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
  ops.open(where("thread_again() < 128"));
  printCopier();
  ops.add(jump(TileOp::Return));
  ops.close();
  out.blank();
  out.line("// 2. The stream from its end, for some rows after the other.");
  ops.add(plain(TileOp::TakeRegisters, "kConsumers == 3 ? 160 : 232"));
  ops.add(let("const int",
              {{"consumer", "of_warp((thread_again() - 128) / 128)"}}));
  printTurn("1", turn(TileOp::PassTurn, "1", "256"), "the others go first");
  ops.add(let("int", {{"turns", "0"}, {"lefts", "0"}}));
  hasVisits = true;
  if (hasBoxes())
    printOwnRows();
  printSums();
  values.beginFunction();
  printFinish();
  ops.open(loop({{"visits", "0"}}, "", "++visits"));
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
    printRoleRange();
    printRoleFold();
    printRoleWalk();
  }
  masks = false;
  ops.close();
  if (hasBoxes())
    ops.add(where("kIsBoxed && thread_again() % 32 == 0",
                  plain(TileOp::WaitBoxes, "0")));
  printTurn("0", turn(TileOp::AwaitTurn, "1", "256"), "that nobody has taken");
  LogicalResult verified = verifyRoles(ops.end());
  hasVisits = isOfRoles = false;
  values.below.clear();
  body += out.text.substr(begin);
  out.close();
  return verified;
}
