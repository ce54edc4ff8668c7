// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums of a row beside weighted ones of the same factors: matrix units, which
// have these factors, multiply them by one more column, of ones.
#include "TilePrinter.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

/// The weighted sum whose factors are the terms of `s`, none below 0, where all
/// results that read `s` read it as well: they are then functions of means with
/// the same rounded weights.
static const TileState *summedBeside(TileKernel &tiles, StatePlan &s) {
  Plan &plan = *tiles.plan;
  if (!isOp(s.term, "math.exp") && !isOp(s.term, "math.exp2"))
    return nullptr;
  const TileState *beside = llvm::find_if(
      tiles.products, [&](const TileState &p) { return p.factor == s.term; });
  if (beside == tiles.products.end() ||
      tiles.levels[beside->state->number] != tiles.levels[s.number])
    return nullptr;
  Node *own = plan.graph->version(s.op, Node::Final);
  for (WritePlan &w : plan.finishWrites) {
    NodeSet read;
    collect(w.value, read);
    if (read.contains(own) &&
        llvm::none_of(tiles.products, [&](const TileState &p) {
          return p.factor == s.term &&
                 read.contains(plan.graph->version(p.state->op, Node::Final));
        }))
      return nullptr;
  }
  return beside;
}

/// States are a sum a lane until the stream ends, moved by a factor that
/// nobody keeps: those whose rows a block has to itself.
void TilePrinter::findUnitSums() {
  if (tiles.isOfWords || !tiles.dropsPivots || !hasWidth())
    return;
  for (StatePlan &s : plan.states) {
    if (tiles.productOf(s) || s.form != StatePlan::Partial ||
        s.op.getReducer() != Reducer::Add || !s.type().isF32())
      continue;
    if (const TileState *beside = summedBeside(tiles, s))
      unitSums.try_emplace(s.number, beside);
  }
}

bool TilePrinter::isByUnits(const StatePlan &s) const {
  return isOfBlockRows() && unitSums.contains(s.number);
}

/// That of a row in what matrix units leave: all columns have it, the first of
/// a lane's two is moved and read.
std::string TilePrinter::unitSum(StatePlan &s) {
  return name(s) + "_sums[i / 2][i % 2 * 2]";
}

void TilePrinter::printUnitSumTypes() {
  if (unitSums.empty())
    return;
  out.comment("Beside narrow results matrix units have time for the sums of "
              "rows; otherwise lanes add up what they have.");
  out.line("[[maybe_unused]] constexpr bool kSumsByUnits = kWidth <= " +
           std::to_string(kWidestBesideSums) + ";");
}

void TilePrinter::printUnitSumMoved(StatePlan &s) {
  out.open("{");
  Expressions::Scope inside(values, {s.moved});
  out.line("float &" + name(s) + " = " + unitSum(s) + ";");
  values.bind(plan.graph->version(s.op, Node::Old), name(s));
  out.line(name(s) + " = " + withoutParentheses(values.value(s.moved)) + ";");
  out.close();
}

/// What a row adds of four columns, the lane's of 16.
void TilePrinter::printFour(StatePlan &s) {
  std::string t = name(s) + "_terms[";
  std::string four = combine(s, combine(s, t + "0]", t + "1]"),
                             combine(s, t + "2]", t + "3]"));
  auto add = [&](const std::string &to, const std::string &value) {
    out.line(to + " = " + withoutParentheses(combine(s, to, value)) + ";");
  };
  if (isOfTile(s) && isOfBlockRows()) {
    // Nothing to combine the first four with.
    std::string to = name(s) + "_tile[i]";
    out.line("const " + valueType(s.type()) + " " + name(s) +
             "_four = " + withoutParentheses(four) + ";");
    four = name(s) + "_four";
    out.line(to + " = c == 0 ? " + four + " : " +
             withoutParentheses(combine(s, to, four)) + ";");
  } else if (isOfTile(s)) {
    add(name(s) + "_tile[i]", four);
  } else if (isByUnits(s)) {
    out.open("if constexpr (!kSumsByUnits) {");
    add(unitSum(s), four);
    out.close();
  } else {
    add("s." + name(s), scaledExtreme(s, four));
  }
}

/// Those of 16 columns of factors.
void TilePrinter::printUnitSums(ArrayRef<StatePlan *> states) {
  for (StatePlan *s : states) {
    if (!isByUnits(*s))
      continue;
    const TileState &beside = *unitSums.lookup(s->number);
    out.line("if constexpr (kSumsByUnits)");
    out.line("  sum_factors<" + unitOf(tiles.values[beside.values]) + ">(" +
             name(*s) + "_sums, " + name(*beside.state) + "_factors);");
  }
}

/// What lanes of a row have apart is brought together.
void TilePrinter::printTogether() {
  for (StatePlan &s : plan.states) {
    if (tiles.productOf(s) || isReduced(s))
      continue;
    if (isByUnits(s)) {
      out.line("s." + name(s) + " = " + unitSum(s) + ";");
      out.open("if constexpr (!kSumsByUnits) {");
    }
    for (const char *mask : laneMasks())
      out.line("s." + name(s) + " = " +
               withoutParentheses(combine(s, "s." + name(s),
                                          "shuffle_xor(s." + name(s) + ", " +
                                              std::string(mask) + ")")) +
               ";");
    if (isByUnits(s))
      out.close();
  }
}
