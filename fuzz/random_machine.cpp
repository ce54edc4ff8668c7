// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "random_machine.h"
#include "mlir/IR/Diagnostics.h"
#include "refold/Schedule/Schedule.h"
#include "llvm/Support/raw_ostream.h"
#include <random>

namespace refold::fuzz {

namespace {

struct Dice {
  std::mt19937_64 engine;
  explicit Dice(uint64_t seed) : engine(seed) {}
  bool oneIn(unsigned n) { return engine() % n == 0; }
  int64_t of(std::initializer_list<int64_t> values) {
    return values.begin()[engine() % values.size()];
  }
};

/// Fields that differ from what is chosen for `facts`.
Schedule otherSchedule(CascadeOp op, const Schedule &chosen, Dice &dice) {
  Schedule other = chosen;
  for (unsigned i = 0; i < op.numIndices(); ++i)
    if (dice.oneIn(3) && op.getRoles()[i] != CascadeOp::Inner)
      other.tile[op.indexName(i).str()] =
          dice.of({1, 2, 3, 4, 8, 13, 16, 64, 100, 256, 1024});
  if (dice.oneIn(4))
    other.registerRows = dice.of({1, 2, 3, 4, 6, 8, 12});
  if (dice.oneIn(4))
    other.registerLanes = dice.of({4, 8, 16, 32, 64});
  if (dice.oneIn(4))
    other.unroll = dice.of({1, 2, 3, 4, 8});
  if (dice.oneIn(4))
    other.segments = dice.of({1, 2, 3, 7});
  if (dice.oneIn(2))
    other.prefetch = !other.prefetch;
  if (dice.oneIn(2))
    other.streamBytes = dice.of({0, 1});
  if (dice.oneIn(3))
    other.panelBytes = dice.of({0, 4096});
  if (dice.oneIn(8))
    other.innerLanes = !other.innerLanes;
  other.pack.clear(); // chosen again, and laid under these fields
  return other;
}

} // namespace

void makeOtherMachine(TargetFacts &facts, uint64_t seed) {
  Dice dice(seed ^ 0x9e3779b97f4a7c15);
  facts.vectorBits = std::min(facts.vectorBits, dice.of({128, 256, 512}));
  facts.vectorRegisters = dice.of({16, 32});
  facts.l1Bytes = dice.of({4 << 10, 32 << 10, 48 << 10});
  facts.l2Bytes = dice.of({16 << 10, 128 << 10, 1 << 20});
  facts.l3Bytes = dice.of({1 << 10, 256 << 10, 32 << 20});
  facts.cores = dice.of({1, 2, 16, 64});
  facts.mostRowsByPanel = dice.of({1, 32, 63, INT64_MAX});
  for (bool TargetFacts::*fact :
       {&TargetFacts::gathersWords, &TargetFacts::masksAreFree,
        &TargetFacts::followsRows, &TargetFacts::asksIntoFirst,
        &TargetFacts::asksInOrder, &TargetFacts::asksTwice,
        &TargetFacts::beginsNextRow, &TargetFacts::addsApart})
    facts.*fact = dice.oneIn(2);
}

std::string describe(const TargetFacts &facts) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << facts.vectorBits << " bits, " << facts.vectorRegisters
     << " registers, caches " << facts.l1Bytes << " " << facts.l2Bytes << " "
     << facts.l3Bytes << ", " << facts.cores << " cores, gathersWords "
     << facts.gathersWords << ", masksAreFree " << facts.masksAreFree
     << ", followsRows " << facts.followsRows << ", asksIntoFirst "
     << facts.asksIntoFirst << ", asksInOrder " << facts.asksInOrder
     << ", asksTwice " << facts.asksTwice << ", beginsNextRow "
     << facts.beginsNextRow << ", addsApart " << facts.addsApart
     << ", mostRowsByPanel " << facts.mostRowsByPanel;
  return text;
}

std::string setOtherSchedules(mlir::ModuleOp module, const TargetFacts &facts,
                              uint64_t seed) {
  mlir::ScopedDiagnosticHandler quiet(
      module.getContext(), [](mlir::Diagnostic &) { return mlir::success(); });
  Dice dice(seed ^ 0xd1b54a32d192ed03);
  std::string text;
  llvm::raw_string_ostream os(text);
  module.walk([&](CascadeOp op) {
    if (dice.oneIn(2))
      return;
    mlir::FailureOr<Schedule> chosen = chooseSchedule(op, facts);
    if (mlir::failed(chosen))
      return;
    auto before = op.getScheduleAttr();
    op.setScheduleAttr(
        otherSchedule(op, *chosen, dice).toAttr(op.getContext()));
    if (mlir::failed(chooseSchedule(op, facts)))
      return op.setScheduleAttr(before);
    os << "; schedule " << mlir::Attribute(op.getScheduleAttr());
  });
  return text;
}

} // namespace refold::fuzz
