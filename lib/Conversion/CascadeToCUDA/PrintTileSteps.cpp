// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a tile of the stream does to the states of a kernel over tiles, and what
// is made of them in the end.
#include "TilePrinter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

SmallVector<StatePlan *> TilePrinter::rowStatesOf(unsigned level) {
  SmallVector<StatePlan *> states;
  for (StatePlan &s : plan.states)
    if (tiles.levels[s.number] == level && !tiles.productOf(s))
      states.push_back(&s);
  return states;
}

SmallVector<const TileState *> TilePrinter::productsOf(unsigned level) {
  SmallVector<const TileState *> products;
  for (const TileState &product : tiles.products)
    if (tiles.levels[product.state->number] == level)
      products.push_back(&product);
  return products;
}

void TilePrinter::openRows() {
  out.line("REFOLD_UNROLL");
  out.open("for (int i = 0; i < 2 * kTiles; ++i) {");
  out.line("[[maybe_unused]] States &s = states[i];");
  if (isInParts) {
    if (foldsByRow())
      printPackedRow(std::string("packed_first + ") +
                     (isWide ? "which / 32 * 16 + " : "") + laneRow("i"));
    return;
  }
  if (!hasTileRow())
    return;
  const std::string &m = kernel.indexNames[tiles.tileRow];
  out.line("[[maybe_unused]] const int64_t " + m + "_at = " + m + "_first + " +
           "which / 32 * kTiles * 16 + i / 2 * 16 + " + laneRow("i % 2") + ";");
  out.line("[[maybe_unused]] const int64_t " + m + " = smaller(" + m + "_at, " +
           m + "_end - 1);");
}

void TilePrinter::closeRows() { out.close(); }

//===----------------------------------------------------------------------===//
// A level of states
//===----------------------------------------------------------------------===//

SmallVector<StatePlan *> TilePrinter::movedAt(int level) {
  SmallVector<StatePlan *> moved;
  for (StatePlan &s : plan.states)
    if ((level < 0 || int(tiles.levels[s.number]) == level) &&
        !s.op.getTransport().empty())
      moved.push_back(&s);
  return moved;
}

/// exp(old - new) of one maximum: never more than 1.
bool TilePrinter::isFromMaximum(Node *factor) {
  int states[2];
  for (unsigned i : {0, 1}) {
    Node *side = factor->in[0]->in[i];
    if (tiles.isFloored(side))
      side = side->in[side->in[0]->isState() ? 0 : 1];
    if (side->kind != (i == 0 ? Node::Old : Node::New))
      return false;
    states[i] = side->state;
  }
  Reducer reducer = plan.states[states[0]].op.getReducer();
  return states[0] == states[1] &&
         (reducer == Reducer::Max || reducer == Reducer::MaxNum);
}

/// When the states of a row have to move, without a branch. Products with a
/// factor near 1 may wait: states are right relative to any pivot, and stay in
/// range.
std::string TilePrinter::needsMove(ArrayRef<StatePlan *> moved) {
  NodeSet factors, read;
  bool mayWait = tiles.numLevels() <= 2;
  for (StatePlan *s : moved) {
    collect(s->moved, read);
    Node *factor = tiles.factorOf(*s);
    mayWait &= factor != nullptr;
    if (factor)
      factors.insert(factor);
  }
  std::string condition;
  auto add = [&](const std::string &one) {
    condition += (condition.empty() ? "" : " | ") + one;
  };
  if (mayWait) {
    for (Node *factor : factors) {
      if (tiles.isPowerOfTwo(factor)) {
        std::string down = "(" + inBits(factor->in[0]->in[0]) + " - " +
                           inBits(factor->in[0]->in[1]) + ")";
        add(isFromMaximum(factor)
                ? "!(" + withoutParentheses(down) + " >= -kWaitingBits)"
                : "!(" + down + " >= -kWaitingBits & " + down + " <= 0.0f)");
        continue;
      }
      std::string f = values.named(factor);
      add("!(" + f + " >= kWaits & " + f + " <= 1.0f)");
    }
    return condition;
  }
  for (Node *n : read)
    if (n->kind == Node::New) {
      const std::string &state = kernel.stateNames[n->state];
      add("(s." + state + "_pivot != s." + state + ")");
    }
  return condition;
}

/// From the pivots that states are relative to, to what these are now.
void TilePrinter::printTransports(ArrayRef<StatePlan *> moved) {
  SmallVector<Node *> roots;
  NodeSet read;
  for (StatePlan *s : moved) {
    roots.push_back(s->moved);
    collect(s->moved, read);
  }
  Expressions::Scope scope(values, roots);
  int stream = kernel.stream;
  kernel.stream = tiles.width;
  auto isSum = [&](StatePlan *s) { return tiles.productOf(*s) != nullptr; };
  for (StatePlan *s : moved)
    if (isSum(s))
      values.hoist(s->moved);
  if (isInRoles) {
    // Sums are under way: they are moved when they have come.
    if (auto sum = llvm::find_if(moved, isSum); sum != moved.end())
      out.line("moved_by[i] = " +
               withoutParentheses(values.value(tiles.factorOf(**sum))) + ";");
  } else if (llvm::any_of(moved, isSum)) {
    out.line("REFOLD_UNROLL");
    out.open("for (int c = 0; c < kWidth / 4; ++c) {");
    Expressions::Scope inside(values, roots);
    for (const TileState &p : tiles.products) {
      out.line("float &" + name(*p.state) + " = " + name(*p.state) + "_sums" +
               laneElement("c") + ";");
      values.bind(plan.graph->version(p.state->op, Node::Old), name(*p.state));
    }
    for (StatePlan *s : moved)
      if (isSum(s))
        out.line("const float " + name(*s) + "_moved = " +
                 withoutParentheses(values.value(s->moved)) + ";");
    for (StatePlan *s : moved)
      if (isSum(s))
        out.line(name(*s) + " = " + name(*s) + "_moved;");
    out.close();
  }
  for (StatePlan *s : moved)
    if (!isSum(s) && isByUnits(*s))
      printUnitSumMoved(*s);
  for (StatePlan *s : moved)
    if (!isSum(s) && !isByUnits(*s))
      out.line("const float " + name(*s) +
               "_moved = " + withoutParentheses(values.value(s->moved)) + ";");
  for (StatePlan *s : moved)
    if (!isSum(s) && !isByUnits(*s))
      out.line("s." + name(*s) + " = " + name(*s) + "_moved;");
  for (StatePlan &s : plan.states)
    if (read.contains(plan.graph->version(s.op, Node::New)))
      out.line(tiles.dropsPivots
                   ? "s." + name(s) + " = " + name(s) + "_tile[i];"
                   : "s." + name(s) + "_pivot = s." + name(s) + ";");
  kernel.stream = stream;
}

/// Brings the states of a level to the pivots that lower levels have now.
void TilePrinter::printMoves(unsigned level) {
  SmallVector<StatePlan *> moved = movedAt(level);
  if (moved.empty())
    return;
  mode = Moving;
  out.comment(
      "Transports leave a state as it is where no pivot has moved, and "
      "factors near 1 may wait: mostly no row of the warp has to move.");
  std::string flag = "moves_" + std::to_string(level);
  out.line("bool " + flag + " = false;");
  if (tiles.late)
    out.line("float " + pivots + "[2 * kTiles];");
  openRows();
  {
    SmallVector<Node *> roots;
    for (StatePlan *s : moved)
      roots.push_back(s->moved);
    Expressions::Scope scope(values, roots);
    std::string condition = needsMove(moved);
    if (tiles.late) {
      condition +=
          " | !(fabsf(" + inBits(tiles.late->pivot) + ") <= kLargePivot)";
      mode = Absorbing;
      out.line(pivots + "[i] = " + inBits(tiles.late->pivot) + ";");
    }
    out.line(flag + " |= " + condition + ";");
  }
  closeRows();
  mode = Moving;
  if (isInRoles)
    out.line("is_moved = any_lane(" + flag + ");");
  out.open(isInRoles ? "if (is_moved) {" : "if (any_lane(" + flag + ")) {");
  openRows();
  printTransports(moved);
  mode = Absorbing;
  if (tiles.late)
    printLargePivots();
  closeRows();
  out.close();
}

/// Products are brought near a pivot that is far away, and that to 0: products
/// themselves would differ from it by what its rounding took.
void TilePrinter::printLargePivots() {
  std::string pivot = pivots + "[i]", value = inBits(tiles.late->pivot);
  out.line(pivot + " = " + value + ";");
  out.open("if (!(fabsf(" + pivot + ") <= kLargePivot)) {");
  out.line("const float inverse = reciprocal_fast(" + keptScale + ");");
  out.line("REFOLD_UNROLL");
  out.open("for (int c = 0; c < kColumns / 4; ++c) {");
  out.line("float &product = products" + laneElement("c") + ";");
  out.line("product = (product * " + keptScale + " - " + pivot +
           ") * inverse;");
  out.close();
  out.line(pivot + " = 0.0f;");
  out.close();
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

/// The terms of four elements of a row.
void TilePrinter::printTerms(unsigned level) {
  out.line("REFOLD_UNROLL");
  out.open("for (int e = 0; e < 4; ++e) {");
  {
    Expressions::Scope scope(values, {});
    if (!masks) {
      printColumn();
      bool hasLower = llvm::any_of(plan.passes[0].conditions, [](Condition &c) {
        return !c.isUpper && c.extreme < 0;
      });
      out.line(std::string("[[maybe_unused]] const bool is_in = whole.value "
                           "!= 0 || ") +
               (hasLower ? "(column < limit && column >= least);"
                         : "column < limit;"));
    }
    out.line("float &product = products" +
             (tiles.isOfWords ? std::string("[i][4 * c + e]")
                              : "[i / 2][2 * c + e / 2][i % 2 * 2 + e % 2]") +
             ";");
    SmallVector<Node *> roots;
    for (StatePlan *s : rowStatesOf(level))
      roots.push_back(s->term);
    for (const TileState *p : productsOf(level))
      roots.push_back(p->factor);
    bool isFirst = level == 0;
    if (isFirst) {
      values.bind(tiles.contraction, "product");
      bits[tiles.contraction] = "product";
    }
    Expressions::Scope terms(values, roots);
    // Of what a row leaves out, no formula asks; of what is finite there, in
    // tiles that some row takes in part.
    for (auto [i, condition] : llvm::enumerate(plan.passes[0].conditions))
      if (condition.extreme < 0 || masks)
        values.bind(condition.compare, "true");
      else if (isBound(condition))
        values.bind(condition.compare,
                    "(whole.value != 0 || column " +
                        std::string(condition.isUpper ? "<" : ">=") +
                        " limit_" + std::to_string(i) + ")");
    bindBrought();
    for (const OfColumn &one : columns)
      if (one.isInBits)
        bits[one.node] = one.name + "[e]";
      else
        values.bind(one.node, one.name + "[e]");
    if (isFirst && masks)
      ; // printMasks did
    else if (isFirst && tiles.late)
      out.line("product = is_in ? " + withoutParentheses(rawKept(tiles.kept)) +
               " : -infinity();");
    else if (isFirst && tiles.isInBits)
      out.line("product = " + withoutParentheses(keptInBits(tiles.kept)) + ";");
    else if (isFirst && tiles.kept != tiles.contraction)
      out.line("product = " + withoutParentheses(values.value(tiles.kept)) +
               ";");
    values.bind(tiles.kept, keptText());
    auto choose = [&](Node *n, const std::string &value,
                      const std::string &otherwise) {
      return isNothingOutside(n, otherwise)
                 ? withoutParentheses(value)
                 : "is_in ? " + withoutParentheses(value) + " : " + otherwise;
    };
    for (StatePlan *s : rowStatesOf(level)) {
      bool isScaled = tiles.isInBits && tiles.isExtremeOfKept(*s);
      out.line(name(*s) + "_terms[e] = " +
               choose(s->term,
                      isScaled ? std::string("product") : values.value(s->term),
                      identity(*s)) +
               ";");
    }
    for (const TileState *p : factorsOf(level))
      out.line((isInRoles ? "product" : name(*p->state) + "_terms[e]") + " = " +
               choose(p->factor, values.value(p->factor), "0.0f") + ";");
  }
  out.close();
}

/// The columns of a tile that a row takes; those of a finite mask by
/// themselves.
void TilePrinter::printLimits() {
  std::string limit = "count", least;
  for (auto [i, condition] : llvm::enumerate(plan.passes[0].conditions)) {
    if (!isBound(condition))
      continue;
    std::string bound =
        "within(bound_" + std::to_string(i) +
        (isOfTileRow(condition) ? "(" + kernel.indexNames[tiles.tileRow] + ")"
                                : "") +
        " - " + kernel.indexNames[tiles.stream] + "_first, kColumns)";
    if (condition.extreme >= 0) {
      out.line("[[maybe_unused]] const int limit_" + std::to_string(i) +
               " = int(" + bound + ");");
      continue;
    }
    std::string &to = condition.isUpper ? limit : least;
    to = to.empty() ? bound
                    : (condition.isUpper ? "smaller(" : "larger(") + to + ", " +
                          bound + ")";
  }
  auto define = [&](const char *name, const std::string &value) {
    bool isCall = value != "count";
    out.line("[[maybe_unused]] const int " + std::string(name) + " = " +
             (isCall ? "int(" + value + ")" : value) + ";");
  };
  define("limit", limit);
  if (!least.empty())
    define("least", least);
}

/// Products that rows leave out (masksAhead).
void TilePrinter::printMasks() {
  std::string low, narrowed[2];
  bool hasLower = false, hasHardLower = false;
  for (auto [i, condition] : llvm::enumerate(plan.passes[0].conditions)) {
    if (!isBound(condition))
      continue;
    hasLower |= !condition.isUpper;
    hasHardLower |= !condition.isUpper && condition.extreme < 0;
    if (condition.extreme < 0)
      continue;
    std::string limit = "limit_" + std::to_string(i) + " - own_column";
    low += (low.empty() ? "" : " && ") + std::string("step ") +
           (condition.isUpper ? "< " : ">= ") + limit;
    std::string &to = narrowed[condition.isUpper];
    if (to.empty())
      to = condition.isUpper ? "own_limit" : "own_least";
    to = (condition.isUpper ? "int(smaller(" : "int(larger(") + to + ", " +
         limit + "))";
  }
  std::string mark = low.empty() ? "const int " : "int ";
  auto each = [&](const std::string &value) {
    out.line("REFOLD_UNROLL");
    out.open("for (int c = 0; c < kColumns / 4; ++c) {");
    out.line("const int step = c / 2 * 8 + c % 2;");
    out.line("float &product = products" + laneElement("c") + ";");
    out.line("product = " + value + ";");
    out.close();
  };
  out.open("if (!is_whole) {");
  out.line("const int own_column = " + laneColumn("0") + ";");
  openRows();
  printLimits();
  out.line("// Of the lane's first column.");
  out.line(mark + "own_limit = limit - own_column;");
  if (hasLower)
    out.line(mark + "own_least = " + (hasHardLower ? "least" : "0") +
             " - own_column;");
  if (!low.empty()) {
    out.open("if (walks_all) {");
    each(low + " ? product : " + withoutParentheses(rawKept(maskedProduct)));
    out.otherwise();
    out.line(
        "// Nothing to rows that have seen more; others are walked again.");
    if (!narrowed[0].empty())
      out.line("own_least = " + narrowed[0] + ";");
    if (!narrowed[1].empty())
      out.line("own_limit = " + narrowed[1] + ";");
    out.close();
  }
  each(std::string(hasLower ? "(step < own_limit && step >= own_least)"
                            : "step < own_limit") +
       " ? product : -infinity()");
  closeRows();
  out.close();
}

void TilePrinter::printElements(unsigned level) {
  SmallVector<StatePlan *> states = rowStatesOf(level);
  SmallVector<const TileState *> products = productsOf(level);
  // Factors then stay where products were, until the sums before have come.
  SmallVector<const TileState *> packed;
  if (!isInRoles)
    packed = products;
  for (StatePlan *s : states)
    if (isOfTile(*s)) {
      out.line("float " + name(*s) + "_tile[2 * kTiles];");
      out.line("REFOLD_UNROLL");
      out.line("for (float &value : " + name(*s) + "_tile)");
      out.line("  value = " + identity(*s) + ";");
    }
  if (tiles.isOfWords)
    printWordFactors(packed);
  else
    for (const TileState *p : packed)
      out.line(
          "const uint32_t " + name(*p->state) + "_values = value_tiles + (" +
          (isInParts ? std::to_string(p->values) +
                           (widensParts() ? " * kTilePlaces" : " * kPlaces")
                     : std::to_string(2 * p->values)) +
          " + place) * Values::kBytes + " +
          (isInParts ? "which / 32 * kColumns * Values::kRowBytes + " : "") +
          "lane_of_columns<Values>(which);");
  SmallVector<Node *> roots;
  for (StatePlan *s : states)
    roots.push_back(s->term);
  for (const TileState *p : products)
    roots.push_back(p->factor);
  printLanesOfColumns(roots, level == 0);
  findBrought(roots, level == 0);
  out.line("REFOLD_UNROLL");
  out.open("for (int c = 0; c < kColumns / 16; ++c) {");
  for (const TileState *p : packed)
    if (!tiles.isOfWords)
      out.line("uint32_t " + name(*p->state) + "_factors[kTiles][4];");
  // A branch that is always taken has what later columns read wait for it.
  bool isInTurn = level == 0 && !isInRoles && !isInParts && readsElements();
  if (isInTurn)
    out.open("if (kWidth <= 128 || count > 0) {");
  printColumns();
  printBrought();
  openRows();
  {
    Expressions::Scope scope(values, roots);
    llvm::DenseMap<Node *, std::string> outside = bits;
    if (level > 0) {
      if (tiles.late)
        bits[tiles.late->pivot] = pivots + "[i]";
      values.bind(tiles.kept, keptText());
      for (Node *root : roots)
        hoistTerm(root);
    } else {
      for (Node *root : roots)
        hoistRows(root);
    }
    for (StatePlan *s : states)
      out.line("float " + name(*s) + "_terms[4];");
    if (!masks)
      printLimits();
    for (const TileState *p : packed)
      out.line("float " + name(*p->state) + "_terms[4];");
    printTerms(level);
    bits = outside;
    for (StatePlan *s : states)
      printFour(*s);
    for (const TileState *p : packed)
      if (tiles.isOfWords)
        out.line("Factors::put(" + factorsName(*p) + ", i, c, " +
                 name(*p->state) + "_terms);");
      else
        out.line("pack_factors<" + unitOf(tiles.values[p->values]) + ">(" +
                 name(*p->state) + "_factors, i / 2, i % 2, " +
                 name(*p->state) + "_terms);");
  }
  closeRows();
  if (isInTurn)
    out.close();
  printUnitSums(states);
  for (const TileState *p : packed)
    if (!tiles.isOfWords)
      out.line("multiply_columns<" + unitOf(tiles.values[p->values]) +
               ", Values>(" + name(*p->state) + "_sums, " + name(*p->state) +
               "_factors, " + name(*p->state) +
               "_values + c * 16 * Values::kRowBytes);");
  out.close();
  printSumsOfTile(states);
}

/// States that others read: all four lanes of a row get those of the tile.
void TilePrinter::printReductions(unsigned level) {
  SmallVector<StatePlan *> reduced;
  for (StatePlan *s : rowStatesOf(level))
    if (isReduced(*s))
      reduced.push_back(s);
  if (reduced.empty())
    return;
  openRows();
  for (StatePlan *s : reduced) {
    std::string tile = name(*s) + "_tile[i]";
    for (const char *mask : laneMasks())
      out.line(tile + " = " +
               withoutParentheses(combine(*s, tile,
                                          "shuffle_xor(" + tile + ", " +
                                              std::string(mask) + ")")) +
               ";");
    bool isNewest = tiles.dropsPivots && tiles.isPivot(*s);
    out.line((isNewest ? tile : "s." + name(*s)) + " = " +
             withoutParentheses(
                 combine(*s, "s." + name(*s), scaledExtreme(*s, tile))) +
             ";");
  }
  closeRows();
}

void TilePrinter::printLevel(unsigned level) {
  if (masks && level == 0)
    printMasks();
  printMoves(level);
  printElements(level);
  printReductions(level);
}

SmallVector<const TileState *> TilePrinter::factorsOf(unsigned level) {
  SmallVector<const TileState *> products = productsOf(level);
  if (isInRoles && !products.empty())
    products.truncate(1); // all have the same
  return products;
}

void TilePrinter::printFold() {
  std::string n = kernel.indexNames[tiles.stream];
  out.line("States states[2 * kTiles];");
  printLaneSums();
  out.line("// Absorbs a tile: states that others are relative to come first.");
  mayMix = hasTight() && masksAhead();
  openFold(n + (tiles.isOfWords ? "_first, [[maybe_unused]] int place"
                                : "_first, int place"),
           /*mayMaskAhead=*/tiles.isOfWords && !hasLow());
  out.line("// Read again, so that nothing that follows from it is kept.");
  out.line(tiles.isOfWords
               ? "const int which = thread_again();"
               : "const int which = Right::kHasShifts ? thread_within() : "
                 "thread_again();");
  out.line("[[maybe_unused]] const int count = within(" + n + "_count - " + n +
           "_first, kColumns);");
  if (foldsByRow())
    printPlaces("block_again()");
  if (tiles.isOfWords)
    return printWordFold();
  printNext();
  out.line("float products[kTiles][kColumns / 8][4] = {};");
  out.line("multiply_rows<" + unitOf(tiles.left) +
           ", Left, Right, kIsKept>(products, kept, left_tile + which / 32 * "
           "kTiles * 16 * Left::kRowBytes, right_tiles + place * "
           "Right::kBytes, bring_part);");
  printMixedMasks();
  printFirstValues();
  for (unsigned level = 0; level < tiles.numLevels(); ++level)
    printLevel(level);
  out.close("};");
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

void TilePrinter::printResult(WritePlan &w) {
  unsigned target = cast<BlockArgument>(w.op.getTarget()).getArgNumber() -
                    plan.cascade.numIndices();
  const std::string &array = kernel.operandNames[target];
  SmallVector<Node *> in;
  Graph::Instance final(plan.sets.numPasses, Node::Final);
  for (Value index : w.op.getIndices())
    in.push_back(plan.graph->instantiate(index, final));
  std::string at = values.offset(target, w.op.getMap(), in, 0);
  std::string value = withoutParentheses(values.value(w.value));
  if (w.value->type.isInteger(1))
    value = "int8_t(" + value + ")";
  out.line("store_element(" + array + at + ", " + value + ");");
}

/// Whether rows of a result may be written 16 bytes at once.
bool TilePrinter::isStoredByVectors(WritePlan &w) {
  unsigned target = cast<BlockArgument>(w.op.getTarget()).getArgNumber() -
                    plan.cascade.numIndices();
  auto type = cast<MemRefType>(plan.cascade->getOperand(target).getType());
  SmallVector<Value> indices(w.op.getIndices());
  auto last = dyn_cast<AffineDimExpr>(w.op.getMap().getResults().back());
  auto arg = last ? dyn_cast<BlockArgument>(indices[last.getPosition()])
                  : BlockArgument();
  SmallVector<int64_t> strides;
  int64_t offset = 0;
  Type stored = w.value->type;
  return arg && int(arg.getArgNumber()) == tiles.width &&
         (tiles.isOfWords ? stored.isF32()
                          : stored.isF16() || stored.isBF16()) &&
         succeeded(getStridesAndOffset(type, strides, offset)) &&
         strides.back() == 1;
}

void TilePrinter::bindSums() {
  for (const TileState &p : tiles.products)
    values.bind(plan.graph->version(p.state->op, Node::Final),
                name(*p.state) + "_sums" + laneElement("c"));
}

/// One element after the other.
void TilePrinter::printElementwise(ArrayRef<WritePlan *> writes,
                                   ArrayRef<Node *> roots,
                                   const std::string &isRow) {
  const std::string &e = kernel.indexNames[tiles.width];
  out.open("if (" + isRow + ") {");
  out.line("REFOLD_UNROLL");
  out.open("for (int c = 0; c < kWidth / 4; ++c) {");
  out.line("const int64_t " + e + " = " + resultColumn() + ";");
  out.open("if (" + countOf(tiles.width) + " == kWidth || " + e + " < " +
           countOf(tiles.width) + ") {");
  {
    Expressions::Scope inside(values, roots);
    bindSums();
    for (WritePlan *w : writes)
      printResult(*w);
  }
  for (int i = 0; i < 3; ++i)
    out.close();
}

/// Whether a result reads an array along its columns.
bool TilePrinter::isOfWidth(Node *n) {
  NodeSet all;
  collect(n, all);
  return llvm::any_of(all, [&](Node *i) {
    return i->kind == Node::Read && dependsOn(i, tiles.width);
  });
}

/// 16 bytes at once, of lanes that have exchanged what they hold.
void TilePrinter::printVectors(WritePlan &w, ArrayRef<Node *> roots,
                               const std::string &isRow) {
  if (tiles.isOfWords)
    return printWordVectors(w, roots, isRow);
  unsigned target = cast<BlockArgument>(w.op.getTarget()).getArgNumber() -
                    plan.cascade.numIndices();
  const std::string &array = kernel.operandNames[target];
  const std::string &e = kernel.indexNames[tiles.width];
  out.line("uint32_t " + array + "_words[kWidth / 8] = {};");
  // Two columns are rounded at once.
  Node *value = withoutCasts(w.value);
  bool rounds = isRounded(value);
  out.line("REFOLD_UNROLL");
  // What is read for all columns at once has no registers beside their sums.
  bool isInTurn = isOfWidth(w.value);
  if (isInTurn) {
    out.open("for (int part = 0; part < kWidth / 16; ++part) {");
    out.open("if (part * 16 < " + countOf(tiles.width) + ") {");
    out.line("REFOLD_UNROLL");
    out.open("for (int word = 2 * part; word < 2 * part + 2; ++word) {");
  } else {
    out.open("for (int word = 0; word < kWidth / 8; ++word) {");
  }
  out.line(std::string(rounds ? "float" : storedType(value->type)) +
           " pair[2];");
  out.line("REFOLD_UNROLL");
  out.open("for (int c = 2 * word; c < 2 * word + 2; ++c) {");
  out.line("[[maybe_unused]] const int64_t " + e + " = smaller(" +
           resultColumn() + ", " + countOf(tiles.width) + " - 1);");
  {
    Expressions::Scope inside(values, roots);
    bindSums();
    out.line("pair[c % 2] = " +
             withoutParentheses(values.value(rounds ? value->in[0] : value)) +
             ";");
  }
  out.close();
  out.line(array + "_words[word] = " +
           (rounds
                ? "pack(pair[0], pair[1], " + storedType(value->type) + "{});"
                : "uint32_t(pair[0].bits) | uint32_t(pair[1].bits) << 16;"));
  for (int i = 0; i < (isInTurn ? 3 : 1); ++i)
    out.close();
  SmallVector<Node *> in;
  Graph::Instance final(plan.sets.numPasses, Node::Final);
  for (Value index : w.op.getIndices())
    in.push_back(plan.graph->instantiate(index, final));
  std::string at = values.offset(target, w.op.getMap(), in, 1);
  out.line("store_quads(" + isRow + " ? reinterpret_cast<char *>(" + array +
           at + ") : nullptr, " + array + "_words, 2 * " +
           countOf(tiles.width) + ");");
}

void TilePrinter::printResults() {
  out.blank();
  out.line(hasVisits ? "// 3. Results."
                     : "// 3. Results. Where the block is is found again, so "
                       "that nobody had to know it.");
  out.line(std::string("const int which = thread_again()") +
           (hasVisits ? " - 128;" : ";"));
  out.open("{");
  if (!hasVisits)
    printPlaces("block_again()");
  bool isBoxed = hasVisits && hasBoxes();
  if (isBoxed)
    out.line("[[maybe_unused]] uint32_t " + boxedName() +
             "_words[2][kWidth / 8] = {};");
  if (!hasVisits)
    out.line("// What lanes of a row have apart is brought together.");
  openRows();
  if (!hasVisits)
    printTogether();
  if (SmallVector<StatePlan *> moved = movedAt(-1);
      !moved.empty() && !tiles.dropsPivots) {
    mode = Moving;
    out.open("{");
    printTransports(moved);
    out.close();
    mode = Absorbing;
  }
  out.line(std::string(isBoxed ? "[[maybe_unused]] " : "") +
           "const bool is_row = " +
           (hasTileRow()
                ? kernel.indexNames[tiles.tileRow] + "_at < " +
                      kernel.indexNames[tiles.tileRow] + "_end;"
                : "which / 32 == 0 && i == 0 && " + laneRow("0") + " == 0;"));
  SmallVector<WritePlan *> rows, wide;
  SmallVector<Node *> roots;
  for (WritePlan &w : plan.finishWrites) {
    (hasWidth() && (w.set & bit(tiles.width)) ? wide : rows).push_back(&w);
    roots.push_back(w.value);
  }
  Expressions::Scope scope(values, roots);
  int stream = kernel.stream;
  kernel.stream = tiles.width;
  if (!rows.empty()) {
    out.open("if (is_row && " + laneColumn("0") + " == 0) {");
    Expressions::Scope inside(values, roots);
    for (WritePlan *w : rows)
      printResult(*w);
    out.close();
  }
  values.takesReciprocals = true;
  for (WritePlan *w : wide)
    values.hoist(w->value);
  SmallVector<WritePlan *> elements;
  for (WritePlan *w : wide)
    if (!isStoredByVectors(*w))
      elements.push_back(w);
  if (wide.size() > elements.size()) {
    if (isBoxed) {
      out.open("if constexpr (kIsBoxed) {");
      printBoxWords(*wide.front(), roots);
      out.otherwise("if constexpr (kVector == 8)");
    } else {
      out.open("if constexpr (" + isByVectors() + ") {");
    }
    for (WritePlan *w : wide)
      if (isStoredByVectors(*w))
        printVectors(*w, roots, "is_row");
    out.otherwise();
    printElementwise(wide, roots, "is_row");
    out.close();
    if (!elements.empty()) {
      out.line("if constexpr (" + isByVectors() + ")");
      printElementwise(elements, roots, "is_row");
    }
  } else if (!wide.empty()) {
    printElementwise(wide, roots, "is_row");
  }
  values.takesReciprocals = false;
  kernel.stream = stream;
  closeRows();
  if (isBoxed)
    printBoxes();
  out.close();
}
