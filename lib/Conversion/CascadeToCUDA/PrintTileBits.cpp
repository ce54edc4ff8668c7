// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How a kernel over tiles spells what is kept, extremes of it and exponentials:
// as powers of two, and what rows or columns alone decide once for all
// elements.
#include "TilePrinter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

/// What a state is called now.
std::string TilePrinter::stateText(Node *n) {
  StatePlan &s = plan.states[n->state];
  if (mode == Merging)
    return (n->kind == Node::Old ? "old." : "s.") + name(s);
  if (tiles.dropsPivots && tiles.isPivot(s) && mode == Moving &&
      n->kind == Node::New)
    return name(s) + "_tile[i]";
  if (tiles.dropsPivots)
    return "s." + name(s);
  bool isReference = n->kind == Node::Old
                         ? mode == Moving && tiles.isPivot(s)
                         : n->kind == Node::New && mode == Absorbing;
  return "s." + name(s) + (isReference ? "_pivot" : "");
}

std::string TilePrinter::inBits(Node *n) {
  if (auto known = bits.find(n); known != bits.end())
    return known->second;
  if (n == tiles.kept)
    return tiles.late ? "(product * " + keptScale + ")" : "product";
  if (tiles.isFloored(n))
    return stateText(n->in[n->in[0]->isState() ? 0 : 1]);
  if (n->isState())
    return stateText(n);
  if (n->kind == Node::Const) {
    // The least number stays one: -inf minus itself is none.
    auto value = cast<FloatAttr>(cast<arith::ConstantOp>(n->op).getValue());
    double scaled = value.getValueAsDouble() * 1.4426950408889634;
    double most = 3.4028234663852886e38;
    if (std::isfinite(value.getValueAsDouble()))
      scaled = std::clamp(scaled, -most, most);
    return literal(FloatAttr::get(n->type, scaled));
  }
  bool isMaximum = isa<arith::MaxNumFOp, arith::MaximumFOp>(n->op);
  bool isStrict = isa<arith::MaximumFOp, arith::MinimumFOp>(n->op);
  std::string function = isMaximum ? (isStrict ? "max_nan" : "fmaxf")
                                   : (isStrict ? "min_nan" : "fminf");
  return function + "(" + inBits(n->in[0]) + ", " + inBits(n->in[1]) + ")";
}

/// What `n` adds to products or takes from them; null for anything else.
static Node *addedToProducts(Node *n) {
  bool isSum = isOp(n, "arith.addf");
  for (unsigned i : {0, 1})
    if ((isSum || (i == 0 && isOp(n, "arith.subf"))) &&
        dependsOnStream(n->in[i]) && !dependsOnStream(n->in[1 - i]))
      return n->in[1 - i];
  return nullptr;
}

/// What is kept, times log2(e): in its factor, where it has one that is fixed.
std::string TilePrinter::keptInBits(Node *n) {
  if (n->kind == Node::Const)
    return inBits(n);
  if (n->kind == Node::Elem && isa<arith::SelectOp>(n->op)) {
    std::string first = keptInBits(n->in[1]), second = keptInBits(n->in[2]);
    // Asked for once before the stream, for the factors alone.
    return bits.count(tiles.contraction)
               ? "(" + values.value(n->in[0]) + " ? " + first + " : " + second +
                     ")"
               : "";
  }
  if (Node *added = addedToProducts(n)) {
    Node *rest = n->in[n->in[0] == added ? 1 : 0];
    bool isSum = addedToProducts(rest) != nullptr;
    std::string sum = isSum ? keptInBits(rest) : "";
    auto [inner, scale] =
        isSum ? std::pair<std::string, std::string>() : scaledInBits(rest);
    if (!bits.count(tiles.contraction))
      return "";
    auto known = bits.find(added);
    std::string term = known != bits.end()
                           ? known->second
                           : "(" + values.value(added) + " * " + kLog2E + ")";
    bool isTaken = isa<arith::SubFOp>(n->op);
    if (isSum)
      return "(" + sum + (isTaken ? " - " : " + ") + term + ")";
    return "multiply_add(" + withoutParentheses(inner) + ", " + scale + ", " +
           (isTaken ? "-" + term : withoutParentheses(term)) + ")";
  }
  auto [inner, scale] = scaledInBits(n);
  return bits.count(tiles.contraction) ? "(" + inner + " * " + scale + ")" : "";
}

/// A value and what it is to be multiplied by: log2(e), and a factor or divisor
/// of the block that it has. A reciprocal costs no more than that product does.
std::pair<std::string, std::string> TilePrinter::scaledInBits(Node *n) {
  bool isElem = n->kind == Node::Elem;
  Node *factor = nullptr, *inner = n;
  bool divides = isElem && isa<arith::DivFOp>(n->op);
  if (divides && isFixed(n->in[1]) && positiveRange(n->in[1])) {
    factor = n->in[1];
    inner = n->in[0];
  } else if (isElem && isa<arith::MulFOp>(n->op)) {
    for (unsigned i : {1, 0})
      if (isFixed(n->in[i])) {
        factor = n->in[i];
        inner = n->in[1 - i];
      }
  }
  std::string scale = kLog2E;
  if (factor) {
    std::string &name = scales[n];
    if (name.empty()) {
      std::string by = withoutParentheses(values.value(factor));
      name = kernel.nameFor("kept_scale");
      out.line("const float " + name + " = " +
               (divides ? "divide(" + std::string(kLog2E) + ", " + by + ")"
                        : values.value(factor) + " * " + kLog2E) +
               ";");
    }
    scale = name;
  }
  // Asked for once before the stream, for the factors alone.
  if (!bits.count(tiles.contraction))
    return {};
  return {values.value(inner), scale};
}

std::string TilePrinter::keptText() {
  if (!tiles.isInBits)
    return "product";
  if (!tiles.late)
    return std::string("(product * ") + kLog2 + ")";
  if (!tiles.late->factor)
    return "product";
  std::string factor = values.value(tiles.late->factor);
  return tiles.late->isDivisor
             ? "divide(product, " + withoutParentheses(factor) + ")"
             : "(product * " + factor + ")";
}

std::string TilePrinter::rawKept(Node *n) {
  if (n == tiles.contraction)
    return "product";
  if (n->kind == Node::Const) {
    auto number = cast<FloatAttr>(cast<arith::ConstantOp>(n->op).getValue());
    if (!number.getValue().isFinite())
      return literal(number);
    // The lowest number stays one, and so does its product with the factor.
    constexpr double kMost = 3.4e38;
    double value = number.getValueAsDouble();
    Node *factor = tiles.late->factor;
    if (factor && factor->kind != Node::Const) {
      double inBits = std::clamp(value * 1.4426950408889634, -kMost, kMost);
      return "fminf(fmaxf(divide(" + literal(FloatAttr::get(n->type, inBits)) +
             ", " + keptScale + "), -3.4e+38f), 3.4e+38f)";
    }
    double by =
        !factor
            ? 1.0
            : cast<FloatAttr>(cast<arith::ConstantOp>(factor->op).getValue())
                  .getValueAsDouble();
    if (factor && tiles.late->isDivisor)
      by = 1 / by;
    double most = kMost / std::max(1.0, by * 1.4426950408889634);
    return literal(
        FloatAttr::get(n->type, std::clamp(value / by, -most, most)));
  }
  if (isa<arith::SelectOp>(n->op)) {
    std::string condition = values.value(n->in[0]);
    std::string chosen = rawKept(n->in[1]);
    return condition == "true" ? chosen
                               : "(" + condition + " ? " + chosen + " : " +
                                     rawKept(n->in[2]) + ")";
  }
  bool isFirst = !tiles.late->isDivisor && n->in[0] == tiles.late->factor;
  return values.value(n->in[isFirst ? 1 : 0]);
}

std::string TilePrinter::scaledExtreme(StatePlan &s, const std::string &value) {
  bool isScaled = tiles.late && tiles.isExtremeOfKept(s);
  return isScaled ? "(" + value + " * " + keptScale + ")" : value;
}

std::string TilePrinter::spell(Node *n) {
  if (tiles.late && tiles.isPowerOfTwo(n) && n->in[0]->in[0] == tiles.kept)
    return "exp2_fast(multiply_add(product, " + keptScale + ", -" +
           inBits(n->in[0]->in[1]) + "))";
  if (tiles.isPowerOfTwo(n))
    return "exp2_fast(" + inBits(n->in[0]->in[0]) + " - " +
           inBits(n->in[0]->in[1]) + ")";
  if (tiles.isFloored(n)) {
    Node *state = n->in[n->in[0]->isState() ? 0 : 1];
    bool isScaled =
        tiles.isInBits && tiles.isExtremeOfKept(plan.states[state->state]);
    return isScaled ? "(" + stateText(state) + " * " + kLog2 + ")"
                    : stateText(state);
  }
  if (!n->isState() || tiles.productOf(plan.states[n->state]))
    return "";
  bool isScaled =
      tiles.isInBits && tiles.isExtremeOfKept(plan.states[n->state]);
  return isScaled ? "(" + stateText(n) + " * " + kLog2 + ")" : stateText(n);
}

/// Names what a row has of a term, before its elements.
void TilePrinter::hoistTerm(Node *n) {
  if (tiles.isPowerOfTwo(n)) {
    for (Node *side : n->in[0]->in)
      if (!kernel.hasStream(side) && side->kind == Node::Elem &&
          !tiles.isFloored(side) && !bits.count(side)) {
        std::string name = kernel.nameFor("pivot_bits");
        out.line("const float " + name + " = " + inBits(side) + ";");
        bits[side] = name;
      }
    return;
  }
  if (n == tiles.kept || !kernel.hasStream(n)) {
    values.hoist(n);
    return;
  }
  for (Node *i : n->in)
    hoistTerm(i);
}

/// Products that are kept are -inf where a row has no element: then so is what
/// is kept, and its exponential relative to a number is 0.
bool TilePrinter::isNothingOutside(Node *n, const std::string &identity) {
  if (!tiles.late)
    return false;
  if (n == tiles.kept)
    return identity == "-infinity()";
  if (!tiles.isPowerOfTwo(n) || n->in[0]->in[0] != tiles.kept)
    return false;
  Node *pivot = n->in[0]->in[1];
  bool isFloored =
      pivot->kind == Node::Elem && isa<arith::MaxNumFOp>(pivot->op) &&
      llvm::any_of(pivot->in, [](Node *i) { return i->kind == Node::Const; });
  return isFloored && identity == "0.0f";
}

/// Whether an entry has one text for whole tiles and others, beside entries of
/// which that would take a register more than there are.
bool TilePrinter::hasTight() {
  return llvm::any_of(result.entries,
                      [](const CudaEntry &e) { return e.leastBlocks > 0; });
}

/// Where the text that absorbs a tile begins, once for whole tiles and once for
/// others, or once for both.
void TilePrinter::openFold(const std::string &parameters, bool mayMaskAhead) {
  masks = mayMaskAhead && masksAhead();
  out.open(std::string("const auto fold = [&](") +
           (masks    ? "bool is_whole"
            : mayMix ? "auto whole, [[maybe_unused]] bool is_whole"
                     : "auto whole") +
           ", int64_t " + parameters + ") {");
}

/// Absorbs the tile at hand.
void TilePrinter::printFoldCall(const std::string &place) {
  const std::string whole = "at >= whole_begin && at < whole_end";
  if (masks) {
    out.line("fold(" + whole + ", first, " + place + ");");
    return;
  }
  if (mayMix) {
    out.line("const bool is_whole = " + whole + ";");
    out.line("if constexpr (Right::kIsTight)");
    out.line("  fold(Number<1>{}, is_whole, first, " + place + ");");
    out.line("else if (is_whole)");
    out.line("  fold(Number<1>{}, true, first, " + place + ");");
    out.line("else");
    out.line("  fold(Number<0>{}, false, first, " + place + ");");
    mayMix = false;
    return;
  }
  out.line("if (" + whole + ")");
  out.line("  fold(Number<1>{}, first, " + place + ");");
  out.line("else");
  out.line("  fold(Number<0>{}, first, " + place + ");");
}

/// What an entry that has one text leaves out of tiles that are not whole.
void TilePrinter::printMixedMasks() {
  if (!mayMix)
    return;
  out.open("if constexpr (Right::kIsTight) {");
  printMasks();
  out.close();
}

/// Whether what a row leaves out of a tile may be -inf among the products
/// already: all that is made of an element is made of its product and of
/// pivots, and is nothing then. One text does for whole tiles and for others,
/// which have a branch more.
bool TilePrinter::masksAhead() {
  if (!tiles.late)
    return false;
  Node *kept = tiles.kept;
  Node *masked = nullptr;
  while (kept->kind == Node::Elem && isa<arith::SelectOp>(kept->op)) {
    const Condition *bound = boundOf(kept->in[0]);
    if (!bound)
      break;
    if (bound->extreme >= 0) {
      // One number for all of them.
      Node *low = kept->in[2];
      if (low->kind != Node::Const ||
          (masked && masked->op != low->op && rawKept(masked) != rawKept(low)))
        return false;
      masked = low;
    }
    kept = kept->in[1];
  }
  if (kept != tiles.contraction &&
      (kept->in.size() != 2 ||
       !llvm::is_contained(kept->in, tiles.late->factor) ||
       !llvm::is_contained(kept->in, tiles.contraction)))
    return false;
  maskedProduct = masked;
  return hasLow() == (masked != nullptr) &&
         llvm::all_of(plan.states,
                      [&](StatePlan &s) {
                        return tiles.productOf(s) ||
                               isNothingOutside(s.term, identity(s));
                      }) &&
         llvm::all_of(tiles.products, [&](const TileState &p) {
           return isNothingOutside(p.factor, "0.0f");
         });
}

//===----------------------------------------------------------------------===//
// What columns or rows alone decide
//===----------------------------------------------------------------------===//

static bool readsArray(Node *n) {
  NodeSet all;
  collect(n, all);
  return llvm::any_of(all, [](Node *i) { return i->kind == Node::Read; });
}

/// Whether what is kept is made by functions, many of which are under way.
bool TilePrinter::callsFunctions() {
  NodeSet all;
  collect(tiles.kept, all);
  return llvm::any_of(all, [&](Node *n) {
    return n->kind == Node::Elem && dependsOnStream(n) &&
           n->op->getName().getDialectNamespace() == "math";
  });
}

/// Whether numbers are made of places, as distances are, beside comparisons.
bool TilePrinter::countsColumns() {
  NodeSet all;
  collect(tiles.kept, all);
  return llvm::any_of(all, [&](Node *n) {
    return n->kind == Node::Elem && isa<arith::SIToFPOp>(n->op) &&
           dependsOn(n->in[0], tiles.stream);
  });
}

/// A value that moves with the column and with nothing else of a tile, and is
/// worth a register: read, or a number.
bool TilePrinter::isOfColumn(Node *n) {
  bool isMade = n->kind == Node::Elem || n->kind == Node::Read;
  return isMade && dependsOn(n, tiles.stream) && !dependsOnStream(n) &&
         !needsRow(n) && !(hasWidth() && dependsOn(n, tiles.width)) &&
         (isa<FloatType>(n->type) || readsArray(n));
}

/// The largest such values of a term; `added`: those that what is kept in bits
/// is a sum with.
void TilePrinter::findColumns(Node *n, bool isFirst, bool isKept,
                              SmallVectorImpl<Node *> &found,
                              SmallVectorImpl<Node *> &added) {
  // Of what a row leaves out, no formula asks.
  if (boundOf(n) || n->kind == Node::Contract || (n == tiles.kept && !isFirst))
    return;
  if (isOfColumn(n)) {
    if (!llvm::is_contained(found, n) && !llvm::is_contained(added, n))
      found.push_back(n);
    return;
  }
  isKept |= n == tiles.kept && tiles.isInBits && !tiles.late;
  Node *sumWith = isKept ? addedToProducts(n) : nullptr;
  bool isChosen =
      isKept && n->kind == Node::Elem && isa<arith::SelectOp>(n->op);
  for (auto [i, in] : llvm::enumerate(n->in)) {
    bool isAdded = in == sumWith && isOfColumn(in);
    if (isAdded && !llvm::is_contained(added, in))
      added.push_back(in);
    if (!isAdded)
      findColumns(in, isFirst, (isChosen && i > 0) || sumWith, found, added);
  }
}

/// Where an element of the tile is in the stream.
void TilePrinter::printColumn() {
  const std::string &n = kernel.indexNames[tiles.stream];
  out.line("const int column = c * 16 + e / 2 * 8 + " + laneColumn("e % 2") +
           ";");
  out.line("[[maybe_unused]] const int64_t " + n + " = " + n +
           "_first + (whole.value != 0 || column < count ? column : count - "
           "1);");
}

/// Of numbers, a lane has one of 32 columns: read and converted once a warp.
void TilePrinter::printLanesOfColumns(ArrayRef<Node *> roots, bool isFirst) {
  columns.clear();
  SmallVector<Node *> found, added;
  for (Node *root : roots)
    findColumns(root, isFirst, false, found, added);
  for (auto [all, isInBits] :
       {std::pair(&found, false), std::pair(&added, true)})
    for (Node *n : *all)
      columns.push_back({n, kernel.nameFor("of_column"),
                         n->type.isF32() ? kernel.nameFor("of_lane") : "",
                         isInBits});
  auto isOfLane = [](const OfColumn &one) { return !one.lanes.empty(); };
  if (llvm::none_of(columns, isOfLane))
    return;
  const std::string &n = kernel.indexNames[tiles.stream];
  constexpr const char *kCount = "(kColumns + 31) / 32";
  for (const OfColumn &one : columns)
    if (isOfLane(one))
      out.line("float " + one.lanes + "[" + kCount + "];");
  out.line("REFOLD_UNROLL");
  out.open("for (int part = 0; part < " + std::string(kCount) + "; ++part) {");
  out.line("const int column = part * 32 + which % 32;");
  out.line("[[maybe_unused]] const int64_t " + n + " = " + n +
           "_first + (column < count ? column : count - 1);");
  printOfColumns(isOfLane,
                 [](const OfColumn &one) { return one.lanes + "[part]"; });
  out.close();
}

/// The values of `columns` that `isMeant` takes, in order.
void TilePrinter::printOfColumns(
    llvm::function_ref<bool(const OfColumn &)> isMeant,
    llvm::function_ref<std::string(const OfColumn &)> to) {
  SmallVector<Node *> roots;
  for (const OfColumn &one : columns)
    if (isMeant(one))
      roots.push_back(one.node);
  Expressions::Scope scope(values, roots);
  for (Condition &condition : plan.passes[0].conditions)
    if (condition.extreme < 0)
      values.bind(condition.compare, "true");
  for (const OfColumn &one : columns)
    if (isMeant(one))
      out.line(to(one) + " = " +
               (one.isInBits ? values.value(one.node) + " * " + kLog2E
                             : withoutParentheses(values.value(one.node))) +
               ";");
}

/// What four columns decide, once for all rows that a thread has of them.
void TilePrinter::printColumns() {
  if (columns.empty())
    return;
  for (const OfColumn &one : columns)
    out.line(
        (one.node->type.isInteger(1) ? "bool" : valueType(one.node->type)) +
        " " + one.name + "[4];");
  out.line("REFOLD_UNROLL");
  out.open("for (int e = 0; e < 4; ++e) {");
  Expressions::Scope scope(values, {});
  auto isRead = [](const OfColumn &one) { return one.lanes.empty(); };
  if (llvm::any_of(columns, isRead)) {
    printColumn();
    printOfColumns(isRead,
                   [](const OfColumn &one) { return one.name + "[e]"; });
  }
  for (const OfColumn &one : columns)
    if (!isRead(one))
      out.line(one.name + "[e] = shuffle_from(" + one.lanes +
               "[c / 2], c % 2 * 16 + e / 2 * 8 + " + laneColumn("e % 2") +
               ");");
  out.close();
}

/// Names what a row alone reads for a term, before its elements.
void TilePrinter::hoistRows(Node *n) {
  if (boundOf(n) || n->kind == Node::Contract || n->isState())
    return;
  if (!kernel.hasStream(n)) {
    if (readsArray(n))
      values.hoist(n);
    return;
  }
  for (Node *i : n->in)
    hoistRows(i);
}
