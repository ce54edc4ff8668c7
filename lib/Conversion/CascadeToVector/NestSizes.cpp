// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How many instructions a loop body has: a register tile is made smaller, and
// loops are unrolled less, until it is one that compiles in no time. Which
// bodies may work on the padding of arrays, so that there need be no others for
// the lanes at the edge.
#include "Kernel.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// Of a body, and of all bodies of a kernel. LLVM takes 0.05 to 0.14 ms for an
/// instruction, and 20000 are 100 KB.
constexpr int64_t kMostOfBody = 1200, kLeastOfBody = 96, kMostOfKernel = 20000;
/// Bodies of a nest: whole register tiles, and those at its edges.
constexpr int64_t kBodies = 4;

int64_t Kernel::sizeOfGather(Type element) {
  constexpr int64_t kBranch = 12; // a lane: its bit, its address, a load
  if (!plan.facts.gathersWords)
    return kBranch * to.lanes();
  constexpr int64_t kWords = 8, kNarrow = 16;
  return element.getIntOrFloatBitWidth() < 32 ? kNarrow : kWords;
}

/// Instructions of one evaluation, what it reads not counted.
int64_t Kernel::sizeOf(Node *n, int lane) {
  constexpr int64_t kFunction = 16;
  if (n->kind != Node::Read)
    return isCostly(n) ? kFunction : 1;
  if (lane == kNone || !n->has(lane) || plan.packs.count(n) ||
      turnedReads.count(n))
    return 1;
  Along::Kind kind = plan.along(n, lane).kind;
  return kind == Along::Strided || kind == Along::Computed
             ? sizeOfGather(n->type)
             : 1;
}

/// Calls `visit` for each formula that evaluating `root` computes or loads.
void Kernel::eachEvaluated(Node *root, llvm::DenseSet<Node *> &seen,
                           llvm::function_ref<void(Node *)> visit) {
  SmallVector<Node *> work{root};
  while (!work.empty()) {
    Node *n = work.pop_back_val();
    if (n->kind == Node::Const || !seen.insert(n).second)
      continue;
    visit(n);
    bool isStored = n->kind == Node::Contract || n->isState() ||
                    keptReady.contains(n) || plan.packs.count(n) ||
                    (hasOperands && plan.operands.count(n));
    if (!isStored)
      work.append(n->in.begin(), n->in.end());
  }
}

int64_t Kernel::sizeOf(ArrayRef<Node *> roots, int lane, Set reduced,
                       int64_t rows, int64_t columns, int64_t unroll) {
  int64_t size = 0;
  llvm::DenseSet<Node *> seen;
  for (Node *root : roots)
    eachEvaluated(root, seen, [&](Node *n) {
      bool varies = lane != kNone && n->has(lane);
      size += sizeOf(n, lane) * (plan.hasRow(n->set) ? rows : 1) *
              (varies ? columns : 1) * (n->set & reduced ? unroll : 1);
    });
  return size;
}

/// What a body may have, of a kernel with so many nests.
int64_t Kernel::mostOfBody() {
  int64_t nests = plan.finishWrites.size() + plan.sweepWrites.size() +
                  plan.prologue.size() + plan.finishContractions.size() +
                  plan.sweepContractions.size();
  for (StatePlan &s : plan.states)
    nests += s.form == StatePlan::Matrix ? 2 : 0; // one sets it out
  for (PassPlan &p : plan.passes)
    nests += p.steps.size() + p.prelude.size();
  return std::clamp(kMostOfKernel / (kBodies * std::max<int64_t>(nests, 1)),
                    kLeastOfBody, kMostOfBody);
}

void Kernel::sizeNest(Nest &nest) {
  if (!nest.rows)
    nest.rows = plan.registerRows;
  // Half words of both sides take registers beside the sums.
  if (auto dot = plan.dots.find(nest.term);
      dot != plan.dots.end() && !dot->second.isMixed && nest.rows > 4 &&
      plan.facts.vectorRegisters < 32)
    nest.rows = 4;
  nest.unroll = plan.unroll;
  if (!nest.width)
    nest.width = plan.registerLanes;
  SmallVector<Node *> roots(nest.results);
  if (nest.term)
    roots.push_back(nest.term);
  Set reduced = 0;
  for (unsigned i : nest.reduced)
    reduced |= bit(i);
  int lane = nest.lanesReduced ? int(nest.reduced.back()) : nest.lane;
  int64_t lanes = to.lanes(), most = mostOfBody();
  auto isLarge = [&] {
    bool hasRow = plan.hasRow(nest.out) && !nest.reduced.empty();
    int64_t columns = nest.lanesReduced ? 1 : nest.width / lanes;
    return sizeOf(roots, lane, reduced, hasRow ? nest.rows : 1, columns,
                  nest.unroll) > most;
  };
  while (nest.unroll > 1 && isLarge())
    nest.unroll /= 2;
  while (nest.rows > 1 && isLarge())
    nest.rows = nest.rows % 2 ? 1 : nest.rows / 2;
  while (nest.width > lanes && isLarge())
    nest.width = nest.width / lanes % 2 ? lanes : nest.width / 2;
}

/// Whether lanes outside may be computed like all others: what is read there
/// is zeros of a panel or room of an array, and what is left there nobody
/// reads.
bool Kernel::mayPadLanes(const Nest &nest) {
  // What is read in place has nothing behind its rows, whatever a panel of it
  // would hold.
  if (nest.inPlace || !nest.fillsArray || nest.lane == kNone ||
      nest.reduced.empty())
    return false;
  llvm::DenseSet<Node *> seen;
  bool isPadded = true;
  eachEvaluated(nest.term, seen, [&](Node *n) {
    bool isRead = n->kind == Node::Read && n->has(nest.lane);
    auto pack = plan.packs.find(n);
    bool hasPanel = nest.readsPanels && pack != plan.packs.end() &&
                    int(pack->second.laneIndex) == nest.lane;
    isPadded &= !isRead || hasPanel;
  });
  // Nor has a mask or a bias of what is stored, where it lies.
  for (Node *root : nest.results)
    eachEvaluated(root, seen, [&](Node *n) {
      isPadded &= n->kind != Node::Read || !n->has(nest.lane) ||
                  keptReady.contains(n) || plan.packs.count(n);
    });
  return isPadded;
}

/// Whether all lanes may be masked, those of whole blocks too.
bool Kernel::mayMaskAll(const Nest &nest) {
  return nest.fillsArray && nest.lane != kNone && !nest.reduced.empty() &&
         plan.facts.masksAreFree;
}

/// Whether the last register of the lanes has a body of its own where extents
/// are not known: of 16 lanes, products with 32 take twice as long. Zen 4, 2000
/// rows of 64 by 16 columns and the maximum of each row 0.096 ms, so 0.059.
/// Beside a second product the columns of the first one are many, and the body
/// would be compiled for nothing.
bool Kernel::mayHaveFewLanes(const Nest &nest) {
  return nest.lane != plan.stream || !plan.hasMatrixStates();
}
