// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The verifier of the tile level on a small kernel: four warps copy, four
// multiply. Each rule fires where what it forbids is planted.
#include "refold/Conversion/VerifyTiles.h"

#include <gtest/gtest.h>

using namespace refold::tile;

namespace {

Op plain(Op::Kind kind, const std::string &count = "") {
  Op op;
  op.kind = kind;
  op.count = count;
  return op;
}
Op let(const std::string &name, const std::string &number) {
  Op op = plain(Op::Let);
  op.callee = "int";
  op.numbers = {{name, number}};
  return op;
}
Op gate(Op::Kind kind, const std::string &name, const std::string &place,
        const std::string &count = "") {
  Op op = plain(kind, count);
  op.gate = name;
  op.place = place;
  return op;
}
Op turn(Op::Kind kind, const std::string &barrier, const std::string &threads) {
  Op op = plain(kind, threads);
  op.place = barrier;
  return op;
}
Op where(const std::string &condition, std::vector<Op> body) {
  Op op = plain(Op::Branch);
  op.condition = condition;
  op.body = std::move(body);
  return op;
}
Op loop(const std::string &name, const std::string &begin,
        const std::string &condition, const std::string &step,
        std::vector<Op> body) {
  Op op = plain(Op::Loop);
  op.callee = "int";
  op.numbers = {{name, begin}};
  op.condition = condition;
  op.step = step;
  op.body = std::move(body);
  return op;
}
Op text(const std::string &lines) {
  Op op;
  op.text = lines;
  return op;
}
Op copyRows() {
  Op op = plain(Op::CopyRows);
  op.callee = "copy_rows";
  op.to = {"tiles", "place", "Tile"};
  return op;
}
Op multiply() {
  Op op = plain(Op::Multiply);
  op.callee = "multiply";
  op.arguments = {"sums", ""};
  op.reads = {{"tiles", "place", "Tile"}};
  op.sums = {"sums"};
  return op;
}
Op settle() {
  Op op = plain(Op::Settle);
  op.arguments = op.sums = {"sums"};
  return op;
}

/// What the copying warps do, and what the others do, for each tile of one row
/// of tiles after the other.
struct Parts {
  std::vector<Op> begin = {
      let("tiles", "0"), let("came", "16384"), let("left", "16400"),
      where("thread() == 0",
            {loop("place", "0", "place < 2", "++place",
                  {gate(Op::MakeGate, "came", "place", "128"),
                   gate(Op::MakeGate, "left", "place", "4")})}),
      plain(Op::BlockBarrier)};
  std::vector<Op> copier, others;
  std::vector<Op> copy = {
      gate(Op::WaitGate, "left", "place", "(turn / 2 + 1) & 1"), copyRows(),
      gate(Op::ArriveWithCopies, "came", "place")};
  std::vector<Op> copied = {plain(Op::WaitCopies, "0")};
  std::vector<Op> use = {
      gate(Op::WaitGate, "came", "place", "(turn / 2) & 1"),
      plain(Op::Fence),
      plain(Op::BeginProducts),
      multiply(),
      plain(Op::CommitProducts),
      plain(Op::WaitProducts, "0"),
      settle(),
      where("thread_again() % 32 == 0", {gate(Op::Arrive, "left", "place")}),
      text("sums[0] *= 2.0f;\n")};
  std::vector<Op> end;
  Entry entry{{{"kRegisters", 64}, {"Tile::kBytes", 8192}}, 256, 16416};
  std::string bytes = "Tile::kBytes";

  Program program() const {
    auto rounds = [](std::vector<Op> body) {
      body.insert(body.begin(), let("place", "turn & 1"));
      std::vector<Op> visit = {let("matrix", "matrix_of(visits)"),
                               where("matrix < 0", {plain(Op::Break)}),
                               loop("at", "begin_of(visits)",
                                    "at < end_of(visits)", "++at, ++turn",
                                    std::move(body))};
      return std::vector<Op>{let("turn", "0"),
                             loop("visits", "0", "", "++visits", visit)};
    };
    auto add = [](std::vector<Op> &to, const std::vector<Op> &from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    Program program;
    program.ops = begin;
    std::vector<Op> role = copier;
    add(role, rounds(copy));
    add(role, copied);
    role.push_back(plain(Op::Return));
    program.ops.push_back(where("thread_again() < 128", role));
    add(program.ops, others);
    add(program.ops, rounds(use));
    add(program.ops, end);
    program.tiles = {{"tiles", "tiles", "2", bytes, "came", "left", 1024, ""},
                     {"came", "came", "2", "8", "", "", 8, ""},
                     {"left", "left", "2", "8", "", "", 8, ""}};
    program.registers = {{"sums", "kRegisters"}};
    return program;
  }
  /// The rule that is named, "" for none.
  std::string rule() const {
    auto fault = verify(program(), entry);
    return fault ? fault->rule : "";
  }
};

Parts sound() { return Parts(); }

void expectRule(const Parts &parts, const std::string &rule) {
  auto fault = verify(parts.program(), parts.entry);
  ASSERT_TRUE(fault) << "expected " << rule;
  EXPECT_EQ(fault->rule, rule) << fault->detail;
}

TEST(VerifyTiles, ASoundProgramHasNoFault) {
  auto fault = verify(sound().program(), sound().entry);
  EXPECT_FALSE(fault) << fault->rule << ": " << fault->detail;
}

TEST(VerifyTiles, TokensAreWaitedFor) {
  Parts parts = sound();
  parts.copied.clear();
  expectRule(parts, "token-waited");
  parts = sound();
  parts.use[5] = plain(Op::WaitProducts, "1");
  expectRule(parts, "token-waited");
  parts = sound();
  Op boxes = plain(Op::StoreBoxes);
  boxes.callee = "store_boxes";
  parts.end = {boxes};
  expectRule(parts, "token-waited");
  parts.end = {boxes, plain(Op::WaitBoxes, "0")};
  EXPECT_EQ(parts.rule(), "");
}

TEST(VerifyTiles, AccessesAreOrdered) {
  for (int removed : {0, 2}) { // waits of both sides
    Parts parts = sound();
    if (removed == 0)
      parts.use.erase(parts.use.begin());
    else
      parts.copy.erase(parts.copy.begin());
    expectRule(parts, "ordered-access");
  }
  Parts parts = sound(); // released while products are under way
  std::swap(parts.use[5], parts.use[7]);
  std::swap(parts.use[6], parts.use[7]);
  expectRule(parts, "ordered-access");
  parts = sound(); // as if copies were there at once
  parts.copy[2].kind = Op::Arrive;
  expectRule(parts, "ordered-access");
}

TEST(VerifyTiles, StagesAreReleasedOnce) {
  Parts parts = sound();
  parts.use[7].body.push_back(gate(Op::Arrive, "left", "place"));
  EXPECT_NE(parts.rule(), "");
  parts = sound(); // never: one trip ends, more wait for ever
  parts.use[7].body.clear();
  expectRule(parts, "stage-release");
  parts = sound(); // of a last tile only where another follows
  parts.use[7].condition =
      "thread_again() % 32 == 0 && at + 1 < end_of(visits)";
  expectRule(parts, "stage-release");
}

TEST(VerifyTiles, EveryStageIsRead) {
  Parts parts = sound();
  parts.use.erase(parts.use.begin() + 3);
  expectRule(parts, "stage-read");
}

TEST(VerifyTiles, FencesStandBetweenWaysToMemory) {
  Parts parts = sound();
  parts.use.erase(parts.use.begin() + 1);
  expectRule(parts, "proxy-fence");
}

TEST(VerifyTiles, NothingTouchesSumsUnderWay) {
  Parts parts = sound();
  parts.use.insert(parts.use.begin() + 5, text("sums[0] *= 2.0f;\n"));
  expectRule(parts, "accumulator-touched");
  parts = sound(); // not settled
  parts.use.erase(parts.use.begin() + 6);
  expectRule(parts, "accumulator-touched");
  parts = sound(); // no begin_products behind what touches them
  parts.use.erase(parts.use.begin() + 2);
  expectRule(parts, "accumulator-touched");
  parts = sound(); // comments touch nothing, nor do longer names
  parts.use.insert(parts.use.begin() + 5,
                   text("// sums are under way\nother_sums[0] = 1.0f;\n"));
  EXPECT_EQ(parts.rule(), "");
}

TEST(VerifyTiles, CollectivesAreOfAWholeWarp) {
  Parts parts = sound();
  parts.use[5] =
      where("thread_again() % 32 < 16", {plain(Op::WaitProducts, "0")});
  expectRule(parts, "uniform-collective");
  parts = sound();
  parts.use.push_back(
      where("thread_again() % 32 < 16", {text("x = shuffle_xor(x, 1);\n")}));
  expectRule(parts, "uniform-collective");
  parts = sound();
  parts.use.push_back(where("thread_again() % 32 == 0", {plain(Op::Break)}));
  expectRule(parts, "uniform-collective");
}

TEST(VerifyTiles, FourWarpsMultiplyTogether) {
  Parts parts = sound();
  parts.use[5] =
      where("thread_again() / 32 != 5", {plain(Op::WaitProducts, "0")});
  expectRule(parts, "group-collective");
}

TEST(VerifyTiles, BarriersHaveTheirThreads) {
  Parts parts = sound();
  parts.end = {turn(Op::AwaitTurn, "1", "256")};
  expectRule(parts, "deadlock");
  parts.end = {turn(Op::PassTurn, "1", "256")};
  expectRule(parts, "barrier-participants");
  parts.end = {turn(Op::AwaitTurn, "1", "48")};
  expectRule(parts, "barrier-participants");
  parts.end = {turn(Op::AwaitTurn, "16", "128")};
  expectRule(parts, "barrier-participants");
  parts.end = {turn(Op::AwaitTurn, "1", "128")};
  EXPECT_EQ(parts.rule(), "");
}

TEST(VerifyTiles, GatesAreMadeBefore) {
  Parts parts = sound();
  parts.begin.pop_back();
  expectRule(parts, "gate-made");
}

TEST(VerifyTiles, WaitsEnd) {
  Parts parts = sound();
  parts.use[0].count = "(turn / 2 + 1) & 1";
  EXPECT_NE(parts.rule(), "");
  parts = sound();
  parts.copy.pop_back();
  expectRule(parts, "deadlock");
}

TEST(VerifyTiles, RegistersAreThoseOfTheLaunch) {
  Parts parts = sound();
  parts.entry.constants["kRegisters"] = 240;
  expectRule(parts, "register-budget");
  // Three groups have 168 each.
  parts = sound();
  parts.entry.threads = 384;
  parts.begin[3].body[0].body[1].count = "8";
  parts.copier = {plain(Op::GiveRegisters, "40")};
  parts.others = {plain(Op::TakeRegisters, "232")};
  EXPECT_EQ(parts.rule(), "");
  Parts more = parts;
  more.others = {plain(Op::TakeRegisters, "240")};
  expectRule(more, "register-budget");
  more = parts;
  more.copier.clear();
  expectRule(more, "register-budget");
  more = parts;
  more.others.clear();
  expectRule(more, "register-budget");
}

TEST(VerifyTiles, TilesHaveTheirMemory) {
  Parts parts = sound();
  parts.entry.sharedBytes -= 8;
  expectRule(parts, "shared-memory");
  parts = sound();
  parts.bytes = "Tile::kBytes + 1024"; // where gates are
  expectRule(parts, "shared-memory");
  parts = sound();
  parts.begin[0] = let("tiles", "512");
  expectRule(parts, "shared-memory");
  parts = sound();
  parts.entry.sharedBytes = 228 << 10;
  expectRule(parts, "shared-memory");
}

TEST(VerifyTiles, PlacesAreThoseOfTheRing) {
  Parts parts = sound();
  parts.copy[1].to.stage = "turn";
  expectRule(parts, "stage-in-ring");
}

TEST(VerifyTiles, WhatIsNotKnownIsNoProof) {
  Parts parts = sound();
  parts.use.push_back(where("is_moved", {plain(Op::Fence)}));
  expectRule(parts, "known-numbers");
  parts = sound();
  parts.use.push_back(text("  wait_gate(came, 0);\n"));
  expectRule(parts, "unmodelled");
  parts = sound();
  parts.use.push_back(text("x = load_shared(tiles + 4);\n"));
  expectRule(parts, "unmodelled");
  parts = sound();
  parts.end = {loop("turns", "0", "turns >= 0", "++turns", {})};
  expectRule(parts, "loop-ends");
}

TEST(VerifyTiles, OneOrderIsAsGoodAsAnother) {
  // Two gates that either side may pass first: which phase a wait sees is a
  // matter of luck.
  Parts parts = sound();
  parts.begin[3].body.push_back(gate(Op::MakeGate, "luck", "0", "2"));
  parts.end = {
      where("thread_again() % 32 == 0", {gate(Op::Arrive, "luck", "0")})};
  parts.copied.push_back(gate(Op::WaitGate, "luck", "0", "1"));
  expectRule(parts, "one-order");
}

TEST(VerifyTiles, TextIsPrintedFromTheOps) {
  struct ToString : Lines {
    void line(const std::string &s) override { text += s + "\n"; }
    void open(const std::string &s) override { text += s + "\n"; }
    void otherwise() override { text += "} else {\n"; }
    void close(const std::string &s) override { text += s + "\n"; }
    void verbatim(const std::string &s) override { text += s; }
    void indent(int) override {}
    std::string text;
  } to;
  Op bare = where("is_done", {gate(Op::Arrive, "left", "place ^ 1")});
  bare.style = Op::Bare;
  Op constant = where("kHas", {plain(Op::Fence)});
  constant.isConstant = constant.hasOtherwise = true;
  constant.otherwise = {plain(Op::WaitProducts, "1")};
  print({loop("at", "end - 1", "at >= begin", "--at, ++turn",
              {gate(Op::WaitGate, "came", "place", "parity"), bare, constant}),
         text("done();\n")},
        to);
  EXPECT_EQ(to.text, "for (int at = end - 1; at >= begin; --at, ++turn) {\n"
                     "wait_gate(came + 8 * place, parity);\n"
                     "if (is_done)\n"
                     "  arrive(left + 8 * (place ^ 1));\n"
                     "if constexpr (kHas) {\n"
                     "show_matrices();\n"
                     "} else {\n"
                     "wait_products<1>();\n"
                     "}\n"
                     "}\n"
                     "done();\n");
}

} // namespace
