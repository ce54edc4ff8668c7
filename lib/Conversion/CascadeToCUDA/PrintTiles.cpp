// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The text of a kernel over tiles: its head, where a block is, how it walks the
// stream, its entries.
#include "TilePrinter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

//===----------------------------------------------------------------------===//
// What is launched
//===----------------------------------------------------------------------===//

void TilePrinter::findGrid() {
  for (unsigned row : tiles.rows)
    result.rows.push_back(extentOf(row));
  result.stream = extentOf(tiles.stream);
  CudaTiles grid;
  if (hasTileRow())
    grid.rows = extentOf(tiles.tileRow);
  grid.depth = extentOf(tiles.depth);
  if (hasWidth())
    grid.width = extentOf(tiles.width);
  grid.isGrowing = hasUpper();
  result.tiles = grid;
  result.factorRounding = tiles.rounding;
  for (const TileAccess *access : {&tiles.left, &tiles.right})
    result.operands[access->operand].hasVectors = true;
  for (const TileAccess &access : tiles.values)
    result.operands[access.operand].hasVectors = true;
  for (WritePlan &w : plan.finishWrites)
    if (hasWidth() && (w.set & bit(tiles.width)))
      result
          .operands[cast<BlockArgument>(w.op.getTarget()).getArgNumber() -
                    plan.cascade.numIndices()]
          .hasVectors = true;
}

/// Whether a term reads an array at the row and the column of an element: all
/// of a tile are under way at once, behind addresses of their own. The first
/// `brought` of those that may be are in shared memory.
bool TilePrinter::readsElements(unsigned brought) {
  NodeSet all;
  for (StatePlan &s : plan.states)
    collect(s.term, all);
  return llvm::any_of(all, [&](Node *n) {
    return n->kind == Node::Read && n != tiles.right.read && needsRow(n) &&
           dependsOn(n, tiles.stream) &&
           llvm::none_of(ArrayRef(tiles.elements).take_front(brought),
                         [&](const TileAccess &a) { return a.read == n; });
  });
}

static bool isInfinite(Node *n) {
  auto constant =
      n->kind == Node::Const ? dyn_cast<arith::ConstantOp>(n->op) : nullptr;
  auto number =
      constant ? dyn_cast<FloatAttr>(constant.getValue()) : FloatAttr();
  return number && number.getValue().isInfinity();
}

/// Whether what is kept is products, scaled perhaps, and what one mask leaves
/// of them: little lives beside them.
bool TilePrinter::keepsProducts() {
  NodeSet all;
  collect(tiles.kept, all);
  int masks = 0;
  auto isPlain = [&](Node *n) {
    if (n->kind != Node::Elem || !dependsOnStream(n))
      return true;
    if (isOp(n, "arith.select"))
      return ++masks == 1 && (isInfinite(n->in[1]) || isInfinite(n->in[2]));
    return isOp(n, "arith.mulf") || isOp(n, "arith.divf");
  };
  return llvm::all_of(all, isPlain) && plan.passes[0].conditions.size() <= 1;
}

/// Rows a warp has twice over where its registers hold their results: every
/// fragment that is read from shared memory then feeds two products.
void TilePrinter::addEntry(int deepest, int widest, int vector) {
  if (tiles.isOfWords)
    return addWordEntry(deepest, widest, vector);
  int sums = int(tiles.products.size()) * widest / 2; // registers of 16 rows
  bool isDouble = vector > 1 && sums <= 64;
  // More states a row than a pivot and a sum take what a second tile of rows,
  // or more columns, would.
  bool hasMoreStates = hasWidth() && rowStates().size() > 2;
  isDouble &= sums <= 32 || !(hasMoreStates || callsFunctions());
  // Beside what is read at every element a second tile of rows spills 44 to 692
  // bytes. H200, a bias of pairs, of 1000 to 4096 rows, width 64 / 128: 0.42 to
  // 0.85 of the time by one; looked up by distance 0.69 to 0.92 / 0.80 to 1.10;
  // gated 0.58 to 0.88 / 0.53 to 1.01. Of 80 or 96 columns up to 1.5.
  bool isInTurn = isDouble && (readsElements() || countsColumns());
  isDouble &= !isInTurn;
  int numTiles = isDouble ? 2 : 1;
  bool isFixed = plan.extent(tiles.depth) == deepest && hasWidth() &&
                 plan.extent(tiles.width) == widest;
  // With more beside these sums ptxas spills some of 255 registers; for sm_80
  // it takes more of them.
  bool isOld = !StringRef(options.target).contains("sm90");
  int columns = 32;
  if (isInTurn)
    columns = sums <= 32 || !isOld ? 64 : isFixed ? 48 : 32;
  else if (isDouble)
    columns = sums > 32 || hasMoreStates ? 48 : deepest > 64 ? 64 : 80;
  // Nor are there registers for where rows end, of extents that are open.
  if (columns == 48 && hasRoles() && hasUpper() && !isFixed && !isInTurn)
    columns = 32;
  // Short streams, and those that end between tiles, lose what is left of the
  // last tile (LaunchConditions says when). Beside roles they are rare.
  if (columns == 80 && !hasRoles()) {
    addTiles(deepest, widest, vector, numTiles, 64);
    // A third block a multiprocessor hides how the others begin and end, and
    // where matrix units sum what lanes would, it is quicker at any length.
    if (keepsProducts()) {
      // Of more states ptxas spills.
      result.entries.back().blocksPerUnit = rowStates().size() > 2 ? 2 : 3;
      if (!unitSums.empty() && !tiles.widensStream())
        return;
    }
  }
  // All registers that there are hold products of 64 columns beside these sums,
  // but no extents; two blocks of them ask for 194 KiB, or they are slower.
  if (columns == 48 && deepest == 128 && widest == 128 && isFixed &&
      !hasRoles() && !hasMoreStates && keepsProducts() && !isInTurn) {
    addTiles(deepest, widest, vector, numTiles, 64);
    result.entries.back().leastBlocks = 2;
  }
  addTiles(deepest, widest, vector, numTiles, columns);
}

void TilePrinter::addTiles(int deepest, int widest, int vector, int numTiles,
                           int columns) {
  constexpr int warps = 4;
  CudaEntry entry;
  entry.threads = warps * 32;
  entry.rows = warps * numTiles * 16;
  entry.vectors = columns;
  entry.width = vector;
  entry.isResident = false;
  entry.deepest = deepest;
  entry.widest = widest;
  // Two places of what the stream brings, of f32 one.
  int64_t places = tiles.isOfWords ? 1 : 2;
  entry.sharedBytes =
      bytesOfTile(entry.rows, deepest) +
      warps * wordFactorBytes(numTiles * 16, columns) +
      places * (bytesOfTile(columns, deepest) +
                int64_t(tiles.values.size()) * bytesOfTile(columns, widest)) +
      narrowBytes(entry);
  entry.name = options.name + "_tiles" + std::to_string(entry.rows) + "x" +
               std::to_string(columns) + "x" + std::to_string(deepest);
  if (hasWidth())
    entry.name += "x" + std::to_string(widest);
  entry.name += "x" + std::to_string(vector);
  result.entries.push_back(entry);
}

/// Extents that the program fixes are what an entry is made for; others take
/// the first that is long enough.
LogicalResult TilePrinter::chooseEntries() {
  // Of f32 256 took 1.4 to 2.6 times as long as products of their own do.
  const int64_t kMost = tiles.isOfWords ? 128 : 256;
  const SmallVector<int> lengths = tiles.isOfWords
                                       ? SmallVector<int>{64, 128}
                                       : SmallVector<int>{64, 128, 256};
  auto choicesOf = [&](int index, SmallVectorImpl<int> &choices) {
    int64_t extent = index < 0 ? 16 : plan.extent(index);
    if (ShapedType::isDynamic(extent))
      choices.append(lengths.begin(), lengths.end());
    else
      choices.push_back(
          int(llvm::alignTo(std::clamp<int64_t>(extent, 1, kMost + 1), 16)));
  };
  SmallVector<int> depths, widths;
  choicesOf(tiles.depth, depths);
  choicesOf(tiles.width, widths);
  bool isSquare = depths.size() > 1 && widths.size() > 1;
  if (mayHaveRoles() && depths[0] <= kMost && widths[0] <= kMost)
    for (int depth : depths)
      for (int width : widths)
        if (!isSquare || depth == width) {
          if (!tiles.elements.empty())
            addRoles(depth, width, 2, /*brings=*/true);
          // A third group of four warps where it has registers enough.
          if (int(tiles.products.size()) * width <= 64 && depth <= 64)
            addRoles(depth, width, 3);
          addRoles(depth, width, 2);
        }
  bool isTooLong = depths[0] > kMost || widths[0] > kMost;
  if (isTooLong && mayBeWide())
    return success(); // an entry of its own
  if (isTooLong)
    return refuse(plan.cascade, Reason::CudaNotTiles)
           << "found products of "
           << (depths[0] > kMost ? plan.extent(tiles.depth)
                                 : plan.extent(tiles.width))
           << " elements; expected at most " << kMost;
  if (isSquare) {
    for (int vector : vectorsOfEntries())
      for (int length : lengths)
        addEntry(length, length, vector);
    addEntry(64, 64, 1);
    addEntry(kMost, kMost, 1);
    return success();
  }
  SmallVector<int> vectors = vectorsOfEntries();
  vectors.push_back(1);
  for (int vector : vectors)
    for (int depth : depths)
      for (int width : widths)
        addEntry(depth, hasWidth() ? width : 0, vector);
  return success();
}

/// What entries copy at once, but for those that copy one by one.
SmallVector<int> TilePrinter::vectorsOfEntries() {
  auto isWhole = [&](int index) {
    int64_t extent = index < 0 ? 0 : plan.extent(index);
    return ShapedType::isDynamic(extent) ||
           extent % TileKernel::kNarrowVector == 0;
  };
  if (tiles.mayWidenAhead() && isWhole(tiles.depth) && isWhole(tiles.width))
    return {TileKernel::kNarrowVector, tiles.vector()};
  return {tiles.vector()};
}

/// Whether registers hold the rows of the block beside products and sums.
bool TilePrinter::keepsLeft(const CudaEntry &entry) {
  // Of 168 or 255, with what addresses and terms take.
  int64_t kMost = entry.blocksPerUnit > 2 ? 128 : 176;
  int64_t rows = entry.rows / (entry.threads / 32); // of a warp
  int64_t held = rows * (int64_t(entry.vectors) +
                         int64_t(tiles.products.size()) * entry.widest +
                         entry.deepest / 2);
  return !tiles.isOfWords && rows > 16 && held / 32 <= kMost;
}

void TilePrinter::printEntries() {
  for (const CudaEntry &entry : result.entries) {
    out.blank();
    // Roles give each other registers of what a launch bound fixes.
    std::string threads = std::to_string(entry.threads);
    // Left alone, ptxas spills to have four blocks of those that share the
    // stream, where shared memory has room for three.
    bool isHeld =
        entry.blocksPerUnit == 3 ||
        (entry.roles == 0 && entry.hasParts() && !readsElements() &&
         !tiles.isOfWords && entry.widest <= 128 && entry.deepest <= 128);
    // Or to have seven of those that copy single elements.
    bool isSingle = entry.width == 1 && entry.widest <= 64 && !tiles.isOfWords;
    out.line(entry.roles > 0      ? "REFOLD_UNIT_KERNEL(" + threads + ", 1)"
             : isHeld || isSingle ? "REFOLD_UNIT_KERNEL(" + threads + ", 3)"
             : tiles.isOfWords    ? "REFOLD_UNIT_KERNEL(" + threads + ", 2)"
                                  : "REFOLD_KERNEL(" + threads + ")");
    // All entries are launched with the same.
    const std::string &used = (entry.hasParts() ? ofParts : own).second;
    std::string typed;
    for (auto &[type, name] : parameters)
      typed += (typed.empty() ? "" : ", ") +
               std::string(isNamedIn(used, name) ? "" : "[[maybe_unused]] ") +
               type + name;
    if (!entry.maps.empty())
      typed += ", REFOLD_MAPS(maps, " + std::to_string(entry.maps.size()) + ")";
    out.open(entry.name + "(" + typed + ") {");
    printLaunch();
    int warps = entry.threads / 32;
    std::string numbers;
    if (entry.hasParts()) {
      printPartsEntry(entry);
      continue;
    }
    if (entry.roles > 0) {
      for (int64_t number : {int64_t(entry.roles), int64_t(entry.vectors),
                             entry.deepest, entry.widest})
        numbers += std::to_string(number) + ", ";
      if (mostBrought() > fewestBrought())
        numbers += std::to_string(brought[entry.name]) + ", ";
      if (hasBoxes())
        numbers += std::to_string(boxColumns[entry.name]) + ", ";
      out.line(options.name + "_by_roles<" + numbers +
               std::to_string(entry.sharedBytes) + ">(" + own.second +
               mapsOf(entry) + ");");
      out.close();
      continue;
    }
    int numTiles = entry.rows / (16 * warps);
    for (int64_t number :
         {int64_t(warps), int64_t(numTiles), int64_t(entry.vectors),
          entry.deepest, entry.widest, int64_t(entry.width)})
      numbers += std::to_string(number) + ", ";
    numbers += keepsLeft(entry) ? "true, " : "false, ";
    numbers += std::to_string(entry.sharedBytes);
    out.line(options.name + "<" + numbers + ">(" + own.second + ");");
    out.close();
  }
}

//===----------------------------------------------------------------------===//
// The head
//===----------------------------------------------------------------------===//

void TilePrinter::printHead() {
  printOrigin();
  std::string blocks;
  for (unsigned row : tiles.rows)
    blocks += kernel.indexNames[row] + "_count * ";
  blocks += hasTileRow() ? "ceil(" + countOf(tiles.tileRow) + " / R)" : "1";
  bool isWide =
      result.entries.front().roles > 0 && result.entries.front().hasParts();
  if (isWide) {
    out.comment(
        "Launch   blocks of 384 threads: an entry _wideRxCxDxW has R rows that "
        "read one stream a block, of several indices together, and a part of "
        "the stream, C of it at a time; takes products of at most D elements "
        "and results of at most W. What is added is the front of what is "
        "multiplied, read once. Arrays are whole vectors of 16 bytes. Four "
        "warps have states of rows, eight have sums and bring what all read. "
        "Blocks leave both in the workspace and take "
        "a ticket; each merges a slice of them when all have come, and the "
        "last one those that nobody has.");
  } else {
    out.comment(
        "Launch   " + blocks +
        " blocks; an entry _tilesRxCxDxWxV has R rows a block, C of the stream "
        "at a time, takes products of at most D elements and results of at "
        "most "
        "W, V elements at once: V > 1 asks that all rows begin at multiples of "
        "16 bytes and are whole vectors. The first entry that takes the arrays "
        "is launched, with the shared memory that it names last.");
    if (hasRoles())
      out.comment("An entry _rolesRxCxDxW has four warps that copy and, for "
                  "every 64 of R rows, four that compute; vectors of 8.");
    for (const TileAccess &access :
         ArrayRef(tiles.elements).take_front(mostBrought()))
      out.comment("           In one that ends with e they bring " +
                  kernel.operandNames[access.operand] +
                  " by rectangles to shared memory, 16 bytes at once: its rows "
                  "begin at multiples of that. Others read every element where "
                  "it lies.");
    if (packing)
      out.comment(
          "An entry _partsRxCxDxWxV takes few rows that read one stream, "
          "of several indices together, and a part of the stream a "
          "block, a part of each tile a warp. Blocks leave states in the "
          "workspace and take a ticket; the last one merges them.");
  }
  if (tiles.rounding > 0)
    out.comment("Factors  of " + kernel.operandNames[tiles.values[0].operand] +
                " are rounded to " + unitOf(tiles.values[0]) +
                ", which is what matrix units take" +
                (unitSums.empty() ? std::string(".")
                                  : "; entries _tiles of at most " +
                                        std::to_string(kWidestBesideSums) +
                                        " columns divide by sums of these."));
  printIncludes(isWide            ? "refold_cuda_wide.h"
                : hasRoles()      ? "refold_cuda_wgmma.h"
                : tiles.isOfWords ? "refold_cuda_tiles_words.h"
                                  : "",
                !isWide && partsHaveShares ? "refold_cuda_shares.h" : "");
}

void TilePrinter::printTileStates() {
  out.line("/// What a thread knows of a row.");
  if (tiles.isInBits)
    for (StatePlan &s : plan.states)
      if (tiles.isExtremeOfKept(s))
        out.line("/// " + name(s) +
                 " times log2(e): exponentials are powers of "
                 "two.");
  out.open("struct States {");
  for (StatePlan &s : plan.states)
    if (!tiles.productOf(s)) {
      bool isPivot = tiles.isPivot(s) && !tiles.dropsPivots;
      Node *floor = tiles.floors.lookup(s.number);
      bool isScaled = tiles.isInBits && tiles.isExtremeOfKept(s);
      out.line(valueType(s.type()) + " " + name(s) + " = " +
               (!floor     ? identity(s)
                : isScaled ? inBits(floor)
                           : values.value(floor)) +
               ";");
      if (isPivot)
        out.line(valueType(s.type()) + " " + name(s) + "_pivot = " +
                 identity(s) + "; // that others are relative to");
    }
  out.close("};");
  out.blank();
}

//===----------------------------------------------------------------------===//
// Where a block is
//===----------------------------------------------------------------------===//

void TilePrinter::nameFixed(Node *n) {
  bool isLeaf = n->kind != Node::Elem && n->kind != Node::Read &&
                n->kind != Node::Contract;
  if (isLeaf)
    return;
  if (n->kind != Node::Contract && isFixed(n)) {
    values.named(n);
    return;
  }
  // Subscripts of the matrices are where their rows begin.
  bool isMatrix = n->kind == Node::Contract;
  for (const TileAccess &access : tiles.values)
    isMatrix |= access.read == n;
  if (!isMatrix)
    for (Node *i : n->in)
      nameFixed(i);
}

/// What does not change in the block, once.
void TilePrinter::printFixed() {
  for (StatePlan &s : plan.states) {
    nameFixed(s.term);
    nameFixed(s.moved);
  }
  if (tiles.late) {
    keptScale = kernel.nameFor("kept_scale");
    pivots = kernel.nameFor("pivots");
    Node *factor = tiles.late->factor;
    out.line("const float " + keptScale + " = " +
             (!factor ? std::string(kLog2E)
              : tiles.late->isDivisor
                  ? "divide(" + std::string(kLog2E) + ", " +
                        withoutParentheses(values.value(factor)) + ")"
                  : values.value(factor) + " * " + kLog2E) +
             ";");
  } else if (tiles.isInBits) {
    keptInBits(tiles.kept);
  }
  for (WritePlan &w : plan.finishWrites)
    nameFixed(w.value);
}

void TilePrinter::printMatrix(TileAccess &access) {
  auto read = cast<ReadOp>(access.read->op);
  const std::string &array = kernel.operandNames[access.operand];
  std::string at;
  AffineMap map = read.getMap();
  for (auto [dim, expr] : llvm::enumerate(map.getResults().drop_back())) {
    auto constant = dyn_cast<AffineConstantExpr>(expr);
    if (constant && constant.getValue() == 0)
      continue;
    bool isRow = int(dim) == access.rowDim;
    bool isOfRows = &access == &tiles.left ||
                    llvm::any_of(tiles.elements, [&](const TileAccess &one) {
                      return &one == &access;
                    });
    if (isRow && !isOfRows)
      continue;
    at += " + " +
          (isRow ? firstOf(tiles.tileRow)
                 : values.subscriptInside(access.operand, dim, expr,
                                          access.read->in)) +
          " * " + array + "_stride" + std::to_string(dim);
  }
  out.line("const " + typeOf(access) + " *const " + access.name + " = " +
           array + at + insideText(access) + ";");
}

std::string TilePrinter::insideText(const TileAccess &access) {
  auto constant = dyn_cast<AffineConstantExpr>(access.inside);
  if (constant && constant.getValue() == 0)
    return "";
  return " + " + values.subscript(access.inside, access.read->in);
}

/// The rows of the block, from its number `at`.
void TilePrinter::printPlaces(const std::string &at) {
  if (hasTileRow()) {
    const std::string &m = kernel.indexNames[tiles.tileRow];
    out.line("const int64_t " + m + "_blocks = (" + m +
             "_count + kBlockRows - 1) / kBlockRows;");
    std::string place = "block_remainder(" + at + ", " + m + "_blocks)";
    if (hasUpper())
      out.comment("The last rows read most of the stream: they come first.");
    out.line("const int64_t " + m + "_first = " +
             (hasUpper() ? "(" + m + "_blocks - 1 - " + place + ")" : place) +
             " * kBlockRows;");
    out.line("const int64_t " + m + "_end = smaller(" + m +
             "_first + kBlockRows, " + m + "_count);");
    out.line("[[maybe_unused]] const int64_t row = block_quotient(" + at +
             ", " + m + "_blocks);");
  } else {
    out.line("[[maybe_unused]] const int64_t row = " + at + ";");
  }
  printRowIndices(/*ofBlocks=*/true);
}

void TilePrinter::printMatrices() {
  for (TileAccess *access : {&tiles.left, &tiles.right})
    printMatrix(*access);
  for (TileAccess &access : tiles.values)
    printMatrix(access);
}

/// Where of the stream some row, and where every row, has something to do.
void TilePrinter::printBounds() {
  std::string n = kernel.indexNames[tiles.stream];
  bool isBounded = llvm::any_of(plan.passes[0].conditions,
                                [&](const Condition &c) { return isBound(c); });
  std::string mark = isBounded ? "int64_t " : "const int64_t ";
  out.comment("Some row of the block needs [" + n + "_begin, " + n +
              "_end), every one needs all of [" + n + "_whole_begin, " + n +
              "_whole_end).");
  out.line(mark + n + "_begin = 0, " + n + "_end = " + n + "_count;");
  out.line(mark + n + "_whole_begin = 0, " + n + "_whole_end = " + n +
           "_count;");
  auto print = [&](size_t i, Condition &condition) {
    std::string bound = "bound_" + std::to_string(i), low = bound, high = bound;
    auto value = [&] {
      return withoutParentheses(values.value(condition.bound)) +
             (condition.add ? " + 1;" : ";");
    };
    if (isOfTileRow(condition)) {
      std::string m = kernel.indexNames[tiles.tileRow];
      out.open("const auto " + bound + " = [&](int64_t " + m +
               ") -> int64_t {");
      Expressions::Scope scope(values, {condition.bound});
      out.line("return " + value());
      out.close("};");
      low += "(" + m + "_first)";
      high += "(" + m + "_end - 1)";
    } else {
      out.line("const int64_t " + bound + " = " + value());
    }
    if (condition.extreme >= 0 && isOfRoles)
      out.line("if (!walks_all)");
    std::string to = condition.extreme >= 0 && isOfRoles ? "  " + n : n;
    if (condition.isUpper) {
      out.line(to + "_end = smaller(" + n + "_end, " + high + ");");
      out.line(n + "_whole_end = smaller(" + n + "_whole_end, " + low + ");");
    } else {
      out.line(to + "_begin = larger(" + n + "_begin, " + low + ");");
      out.line(n + "_whole_begin = larger(" + n + "_whole_begin, " + high +
               ");");
    }
  };
  for (auto [i, condition] : llvm::enumerate(plan.passes[0].conditions))
    if (condition.extreme < 0)
      print(i, condition);
  if (hasLow() && !isOfRoles)
    out.line("const int64_t " + n + "_all_begin = " + n + "_begin, " + n +
             "_all_end = " + n + "_end;");
  for (auto [i, condition] : llvm::enumerate(plan.passes[0].conditions))
    if (condition.extreme >= 0 && isBound(condition))
      print(i, condition);
}

/// Whether rows of `states` have seen nothing above what masks hold, or a NaN.
/// Numbers near the end of the range are masks before what is applied late, so
/// that less is asked.
std::string TilePrinter::staysLow(const std::string &states) {
  constexpr double kLeastAsked = -1e25;
  std::map<int, double> least; // by extreme
  for (const Condition &c : plan.passes[0].conditions)
    if (c.extreme >= 0) {
      double value = std::max(c.least, kLeastAsked);
      auto [known, isNew] = least.try_emplace(c.extreme, value);
      known->second = std::max(known->second, value);
    }
  std::string text;
  for (auto [number, value] : least) {
    StatePlan &s = plan.states[unsigned(number)];
    if (tiles.isInBits && tiles.isExtremeOfKept(s))
      value *= 1.4426950408889634;
    std::string bound =
        literal(FloatAttr::get(cast<FloatType>(s.type()), value));
    text += (text.empty() ? "" : " | ") + ("!(" + states + ".") + name(s) +
            " > " + bound + ")";
  }
  return text;
}

/// Reads the row's number otherwise than to find what is multiplied.
bool TilePrinter::needsRow(Node *n) {
  if (n->kind == Node::Index)
    return int(n->index) == tiles.tileRow ||
           llvm::any_of(tiles.packed, [&](const TileKernel::Packed &packed) {
             return packed.index == n->index;
           });
  return n->kind != Node::Contract &&
         llvm::any_of(n->in, [&](Node *i) { return needsRow(i); });
}

/// Whether what a tile is folded with differs from row to row.
bool TilePrinter::foldsByRow() {
  bool hasRows = llvm::any_of(plan.passes[0].conditions, [&](Condition &c) {
    return isBound(c) && isOfTileRow(c);
  });
  for (StatePlan &state : plan.states)
    hasRows |= needsRow(state.term);
  return hasRows;
}

std::string TilePrinter::strideOf(const TileAccess &access) {
  return access.rowDim < 0 ? "int64_t(0)"
                           : kernel.operandNames[access.operand] + "_stride" +
                                 std::to_string(access.rowDim);
}

/// What of the stream tiles are made of.
void TilePrinter::printRange() {
  std::string n = kernel.indexNames[tiles.stream];
  std::string columns = isInParts && !isWide ? "Right::kRows" : "kColumns";
  // All of the stream may follow.
  const std::string type = hasLow() && !isOfRoles ? "int " : "const int ";
  out.line(type + "begin = int(larger(" + n + "_begin, 0) / " + columns + ");");
  out.line(type + "end = " + n + "_end > " + n + "_begin ? int((" + n +
           "_end + " + columns + " - 1) / " + columns + ") : begin;");
  out.line("[[maybe_unused]] const int whole_begin = int((larger(" + n +
           "_whole_begin, 0) + " + columns + " - 1) / " + columns + ");");
  out.line("[[maybe_unused]] const int whole_end = int(larger(" + n +
           "_whole_end, 0) / " + columns + ");");
}

/// The stream from its end: what is past it comes first, so that all that is
/// on its way while a tile is folded is whole.
void TilePrinter::printWalk() {
  out.blank();
  out.line("// 2. The stream from its end, a tile on its way while one is "
           "folded.");
  if (hasLow())
    out.open("for (bool walks_all = false;; walks_all = true) {");
  out.open("for (int at = end - 1; at >= begin; --at) {");
  out.line("// What has arrived is seen by all, and all are done with what "
           "comes next overwrites.");
  if (waitsForFirstValues()) {
    out.line("if (Right::kIsTight && at == end - 1)");
    out.line("  wait_copies<1>(); // but for the values");
    out.line("else");
    out.line("  wait_copies<0>();");
  } else {
    out.line("wait_copies<0>();");
  }
  out.line("block_barrier();");
  if (tiles.isOfWords) {
    out.line("const int place = 0;");
  } else {
    out.line("const int place = (end - 1 - at) & 1;");
    out.line(tiles.mayWidenAhead()  ? "if (kVector < 16 && at > begin)"
             : tiles.widensStream() ? "if (at > begin)"
                                    : "if (kVector == 1 && at > begin)");
    out.line("  bring((int64_t(at) - 1) * kColumns, place ^ 1);");
  }
  out.line("const int64_t first = int64_t(at) * kColumns;");
  printFoldCall("place");
  out.close();
  out.line("wait_copies<0>();");
  if (hasLow())
    printLow();
}

/// Where a row of the block has seen nothing above what masks hold, all of the
/// stream is walked anew.
void TilePrinter::printLow() {
  std::string n = kernel.indexNames[tiles.stream];
  out.comment("Rows that have seen nothing above what masks hold need all of "
              "the stream, and so does their block.");
  out.line("if (walks_all)");
  out.line("  break;");
  out.line("bool is_low = false;");
  out.line("for (const States &s : states)");
  out.line("  is_low |= " + staysLow("s") + ";");
  out.line("if (!any_of_block<kWarps>(is_low))");
  out.line("  break;");
  out.line("begin = int(larger(" + n + "_all_begin, 0) / kColumns);");
  out.line("end = " + n + "_all_end > " + n + "_all_begin ? int((" + n +
           "_all_end + kColumns - 1) / kColumns) : begin;");
  out.line("for (States &s : states)");
  out.line("  s = States();");
  for (const TileState &p : tiles.products) {
    out.line("REFOLD_UNROLL");
    out.line("for (auto &tile : " + name(*p.state) + "_sums)");
    out.line("  REFOLD_UNROLL");
    out.line("  for (auto &sum : tile)");
    out.line(tiles.isOfWords ? "    sum = 0.0f;"
                             : "    sum[0] = sum[1] = sum[2] = sum[3] = 0.0f;");
  }
  for (StatePlan &s : plan.states)
    if (isByUnits(s)) {
      out.line("REFOLD_UNROLL");
      out.line("for (auto &sum : " + name(s) + "_sums)");
      out.line("  sum[0] = sum[1] = sum[2] = sum[3] = 0.0f;");
    }
  out.line("if (begin < end)");
  out.line(std::string("  ") + (tiles.isOfWords ? "bring_right" : "bring") +
           "(int64_t(end - 1) * kColumns" + (tiles.isOfWords ? ");" : ", 0);"));
  out.close();
}

void TilePrinter::printBody() {
  out.line("template <int kWarps, int kTiles, int kColumns, int kDepth, int "
           "kWidth, int kVector, bool kIsKept, int64_t kSharedBytes>");
  out.open("REFOLD_DEVICE void " + options.name + "(" + own.first + ") {");
  size_t begin = out.text.size();
  for (unsigned i = 0; i < plan.cascade.numIndices(); ++i)
    if (extentOf(i).operand < 0 && isNamed(kernel.indexNames[i] + "_count"))
      out.line("[[maybe_unused]] constexpr int64_t " + kernel.indexNames[i] +
               "_count = " + std::to_string(plan.extent(i)) + ";");
  out.line("constexpr int kThreads = kWarps * 32, kBlockRows = kWarps * kTiles "
           "* 16;");
  const std::string tile = tileType();
  const size_t places = tiles.isOfWords ? 1 : 2;
  out.line("using Left = " + tile + "<kBlockRows, kDepth>;");
  out.line("using Right = " + tile + "<kColumns, kDepth>;");
  std::string total =
      "Left::kBytes + " + std::to_string(places) + " * Right::kBytes";
  total += printWordFactorType();
  if (hasWidth()) {
    out.line("using Values = " + tile + "<kColumns, kWidth>;");
    total += " + " + std::to_string(places * tiles.values.size()) +
             " * Values::kBytes";
  }
  printUnitSumTypes();
  if (!tiles.mayWidenAhead())
    out.line("static_assert(kSharedBytes == " + total + ");");
  out.line("REFOLD_SHARED_BYTES(left_tile, kSharedBytes);");
  out.line("const uint32_t right_tiles = left_tile + Left::kBytes" +
           factorBytes() + ";");
  if (hasWidth())
    out.line("const uint32_t value_tiles = right_tiles + " +
             std::to_string(places) + " * Right::kBytes;");
  if (tiles.mayWidenAhead()) {
    out.line("constexpr int kInVector = kVector == 16 ? 8 : kVector; // of a "
             "chunk");
    std::string narrow = printNarrowPlaces("left_tile + " + total, "");
    out.line("static_assert(kSharedBytes == " + total + " + (kVector == 16 ? " +
             narrow + " : 0));");
  }
  Expressions::Scope scope(values, {});
  out.blank();
  out.line("// 1. Where the block is, and what does not change there.");
  printPlaces("block()");
  printMatrices();
  printFixed();
  printBounds();
  printRange();
  printCopies();
  printFold();
  printWalk();
  printResults();
  body = out.text.substr(begin);
  out.close();
}

FailureOr<CudaKernel> TilePrinter::print() {
  findParameters();
  findGrid();
  findUnitSums();
  if (failed(chooseEntries()) || failed(checkLayouts()))
    return failure();
  if (llvm::none_of(result.entries, [](const CudaEntry &e) {
        return e.roles == 0 && e.widest <= kWidestBesideSums;
      }))
    unitSums.clear();
  std::string parts;
  bool hasTiles = !result.entries.empty();
  if (packing) {
    addParts();
    ofParts = parametersIn(earlierParts);
    TilePrinter packer(*packing, options, earlier);
    parts = hasTiles ? packer.printParts(*this) : packer.printWide(*this);
    partsBody = packer.partsBody;
    partsHaveShares = packer.hasShares();
  }
  own = parametersIn(earlierOwn);
  printHead();
  {
    Expressions::Scope scope(values, {});
    printTileStates();
  }
  if (hasTiles)
    printBody();
  if (hasTiles && hasRoles() && failed(printRoles()))
    return failure();
  out.text += parts;
  out.line("} // namespace");
  printEntries();
  result.text = std::move(out.text);
  return std::move(result);
}
