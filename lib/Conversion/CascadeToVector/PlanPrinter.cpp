// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A plan as text: one decision a line, for tests and for `refold explain`.
#include "Plan.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

static std::string describeState(Plan &plan, StatePlan &s) {
  std::string text = "state " + std::to_string(s.number) + " " +
                     stringifyReducer(s.op.getReducer()).str() + " " +
                     plan.cascade.showIndices(s.set);
  switch (s.form) {
  case StatePlan::Matrix:
    for (const StateKey &key : s.keys)
      text += " at " + plan.cascade.indexName(key.carried).str() + " = " +
              plan.cascade.indexName(key.stream).str();
    return text + " matrix nest, lanes " + plan.cascade.indexName(s.lane).str();
  case StatePlan::Ordered:
    return text + (s.takesCandidates
                       ? " ordered, candidates of a register of rows"
                       : " ordered");
  case StatePlan::Partial:
    text += " lane partial, level " + std::to_string(s.level);
    break;
  case StatePlan::Reduced:
    text += " reduced each tile, level " + std::to_string(s.level);
    if (s.gatheredBy)
      text += ", lanes found by its contraction";
    break;
  }
  return s.vanishesWith.empty() ? text : text + ", 0 in a whole row";
}

static std::string describeContraction(Plan &plan, Node *n) {
  int lane = plan.laneOf(n);
  return "contraction " + plan.cascade.showIndices(n->set) + " over " +
         plan.cascade.showIndices(n->over) + ", lanes " +
         (lane == kNone ? "over the contracted"
                        : plan.cascade.indexName(lane).str());
}

static std::string nameOfRead(Plan &plan, Node *read) {
  unsigned operand =
      cast<BlockArgument>(cast<ReadOp>(read->op).getSource()).getArgNumber() -
      plan.cascade.numIndices();
  return cast<StringAttr>(plan.cascade.getArgNames()[operand]).getValue().str();
}

static std::string describeWrite(Plan &plan, WritePlan &w) {
  return "writes " + plan.cascade.showIndices(w.set) +
         (w.isTurned ? ", turned" : "");
}

static void describePass(Plan &plan, unsigned number, std::string &text) {
  PassPlan &p = plan.passes[number];
  std::string head = "pass " + std::to_string(number) + ": ";
  for (Node *n : p.prelude)
    text += head + "before it " + describeContraction(plan, n) + "\n";
  for (Condition &c : p.conditions)
    text += head + "tiles skipped or peeled by " +
            (c.isUpper ? "upper" : "lower") + " bound " +
            plan.cascade.showIndices(c.bound->set) +
            (c.extreme < 0 ? ""
                           : ", where state " + std::to_string(c.extreme) +
                                 " is above what masks hold") +
            "\n";
  for (RowGuard &guard : p.guards)
    text += head + "only where a row of the tile asks for it, by a value of " +
            plan.cascade.showIndices(guard.condition->set) + "\n";
  for (Step &step : p.steps) {
    if (step.kind == Step::Contraction) {
      text += head + describeContraction(plan, step.contraction) +
              (plan.stored.count(step.contraction) ? ", completed in registers"
                                                   : "") +
              "\n";
      continue;
    }
    for (StatePlan &s : plan.states) {
      bool isInStep = step.kind == Step::MatrixState
                          ? s.number == step.state
                          : s.pass == number && s.form != StatePlan::Matrix &&
                                s.level >= step.firstLevel &&
                                s.level <= step.lastLevel &&
                                plan.hasRow(s.set) == step.hasRow;
      if (isInStep)
        text += head + describeState(plan, s) + "\n";
    }
  }
  if (p.lazy)
    text += head + "levels " + std::to_string(p.lazy->level) + " and " +
            std::to_string(p.lazy->level + 1) + " at once, slack " +
            std::to_string(int(p.lazy->slack)) + "\n";
  if (p.trailing)
    text += head + "levels " + std::to_string(p.trailing->level) + " and " +
            std::to_string(p.trailing->level + 1) +
            " at once, about numbers of the tiles before\n";
  for (Node *n : p.kept)
    text += head + "kept " + plan.cascade.showIndices(n->set) + ", level " +
            std::to_string(n->level) + "\n";
}

std::string Plan::describe() {
  std::string text;
  auto tile = [&](const char *what, int index, int64_t size) {
    if (index != kNone)
      text += std::string(what) + " " + cascade.indexName(index).str() +
              " in tiles of " + std::to_string(size) + "\n";
  };
  tile("rows", row, tileRows);
  tile("stream", stream, tileStream);
  for (unsigned i : flat)
    text += "with " + cascade.indexName(i).str() +
            " as one stream, where they are one in memory\n";
  tile("carried", block, tileBlock);
  for (auto &[node, pack] : packs) {
    text +=
        "packed '" +
        cast<StringAttr>(cascade.getArgNames()[pack.operand]).getValue().str() +
        "' in panels along " + cascade.indexName(pack.laneIndex).str() +
        (pack.inPairs ? ", in pairs" : "") +
        (pack.isOwn ? ", some at a time" : "") +
        (pack.rowsWithout
             ? ", of more than " + std::to_string(pack.rowsWithout) + " rows"
             : "");
    for (unsigned i : pack.openSums)
      text += ", or than half the length of " + cascade.indexName(i).str();
    text += "\n";
  }
  for (auto &[term, pair] : pairs)
    if (pair.isInPlace)
      text += "'" + nameOfRead(*this, pair.shared) +
              "' in matrix tiles as it lies" +
              (packs.count(pair.shared)
                   ? ", of up to " + std::to_string(PairPlan::kMostInPlace) +
                         " rows"
                   : "") +
              "\n";
  if (usesTiles() && !packs.empty())
    text += "products of packed operands in matrix tiles, 32 rows by " +
            std::to_string(registerLanes) + "\n";
  for (Node *n : turned)
    text += "turned '" + nameOfRead(*this, n) + "', which lies along " +
            cascade.indexName(row).str() + "\n";
  for (Node *n : prologue)
    text += "before the passes: " + describeContraction(*this, n) + "\n";
  for (unsigned p = 0; p < passes.size(); ++p)
    describePass(*this, p, text);
  if (longestGrouped)
    text += "rows of up to " + std::to_string(longestGrouped) + ": " +
            std::to_string(lanes) + " by all passes before the next\n";
  if (joinsTiles)
    text += "rows between streams: " + std::to_string(lanes) +
            " side by side, from tile to tile\n";
  if (wholes.size() > 1)
    text += std::to_string(wholes.size()) + " products " +
            (areWholesApart ? "one after the other" : "at once") +
            ", written from registers\n";
  for (Node *n : finishContractions)
    text += "finish: " + describeContraction(*this, n) + "\n";
  for (WritePlan &w : finishWrites)
    text += "finish: " + describeWrite(*this, w) + "\n";
  if (auto longest = longestSweptAlone())
    text += "sweep: of rows longer than " + std::to_string(*longest) +
            " all of an item, tile by tile\n";
  if (auto longest = longestWrittenFirst())
    text += "sweep: of rows longer than " + std::to_string(*longest) +
            " beside the pass of the next, tile by tile\n";
  for (Node *n : sweepContractions)
    text += "sweep: " + describeContraction(*this, n) + "\n";
  for (WritePlan &w : sweepWrites)
    text += "sweep: " + describeWrite(*this, w) + "\n";
  return text;
}
