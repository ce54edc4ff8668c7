// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Mutants.h"
#include "MutantsEquivalent.h"
#include "Suite.h"

#include "refold/Algebra/Certify.h"

#include <array>
#include <gtest/gtest.h>

namespace refold::algebra::test {
namespace {

const char *const kCascades[] = {
    // Exponentials relative to a maximum, alone and with values.
    "in x\ncarried v\nm = max x\ns = sum exp(x-m)\no = sum exp(x-m)/s*v\n"
    "out o = o",
    "in x\nm = max x\ns = sum exp(x-m)\nH = sum exp(x-m)/s*(x-m-log(s))\n"
    "out H = -H",
    "in x\nparam T>=0\nm = max x\ns = sum exp((x-m)/T)\nout l = m/T+log(s)",
    "in x y\nm = max x\ns = sum exp(x-m)\nm2 = max y\ns2 = sum exp(y-m2)\n"
    "k = sum exp(x-m)/s*((x-m-log(s))-(y-m2-log(s2)))\nout k = k",
    "in x\nm = max x\ns = sum exp(x-m)\nr = sum (exp(x-m)/s)**2\n"
    "out r = -log(r)",
    // Moments relative to means.
    "in x\nS = sum x\nmu := S/n\nV = sum (x-mu)**2\nout v = V/n",
    "in x\nS = sum x\nmu := S/n\nC = sum (x-mu)**3\nout c = C/n",
    "in x\nS = sum x\nmu := S/n\nQ = sum (x-mu)**4\nout q = Q/n",
    "in x y\nS = sum x\nU = sum y\nmx := S/n\nmy := U/n\n"
    "C = sum (x-mx)*(y-my)\nout c = C/n",
    "in w>=0 x\nM = sum w\nS = sum w*x\nmu := S/M\nV = sum w*(x-mu)**2\n"
    "out v = V/M",
    // Both at once.
    "in x v\nm = max x\ns = sum exp(x-m)\no = sum exp(x-m)*v\nmu := o/s\n"
    "V = sum exp(x-m)/s*(v-mu)**2\nout v = V",
};

/// Copies of `root` in which one node is something else.
std::vector<Expr> mutantsOf(Context &c, const State &state) {
  Expr root = state.transport;
  std::vector<Expr> mutants;
  auto replace = [&](Expr node, Expr by) {
    Expr mutant = substitute(c, root, {{node, by}});
    if (mutant != root)
      mutants.push_back(mutant);
  };
  ExprMap swap;
  for (Expr symbol : symbolsOf(root)) {
    const Symbol &s = symbol.symbol();
    if (s.role == Role::Old || s.role == Role::New)
      swap[symbol] = c.placeholder(s.role == Role::Old ? Role::New : Role::Old,
                                   s.ordinal, s.type);
  }
  mutants.push_back(substitute(c, root, swap)); // turned round
  // That an empty side stays where it is no law asks, but f32 does.
  Expr moved = root.is(Kind::Select) ? root.operand(2) : root;
  forEachNode(moved, [&](Expr e) {
    bool isSum = e.is(Kind::Add) || e.is(Kind::Sub);
    if (isSum || e.is(Kind::Mul) || e.is(Kind::Div))
      for (unsigned i : {0, 1})
        replace(e, e.operand(i)); // a term or factor is lost
    if (isSum) {
      auto other = e.is(Kind::Add) ? &Context::sub : &Context::add;
      replace(e, (c.*other)(e.operand(0), e.operand(1)));
    }
    if (e.is(Fn::Exp))
      replace(e, c.exp(c.neg(e.operand(0))));
    if (e.is(Kind::Neg))
      replace(e, e.operand(0));
    if (e.is(Kind::Const) && isFloat(e.type()))
      for (double factor : {0.5, -1.0, 1.01})
        replace(e, c.real(*e.constant() * factor, e.type()));
    if (e.is(Kind::Pow))
      replace(e, c.pow(e.operand(0),
                       rational(e->exponent.num + 1, e->exponent.den)));
  });
  return mutants;
}

/// Wrong transports of derived programs are found by the modular test alone,
/// before anything is executed.
TEST(CertifyMutantsTest, EveryWrongTransportIsRejected) {
  unsigned mutants = 0, rejected = 0, transports = 0;
  for (const char *lines : kCascades) {
    SCOPED_TRACE(lines);
    Text text(lines);
    Cascade cascade = text.cascade();
    Derivation derivation = derive(cascade);
    ASSERT_TRUE(derivation.program);
    // With passes for irregular rows, where some need them.
    Certified whole = certified(cascade, derivation, {});
    const Certificate &right = whole.certificate;
    EXPECT_TRUE(right.holds && !whole.isFallback) << right.summary();
    transports += right.transports;
    Program program = *whole.derivation.program;
    for (Definition &definition : program.definitions) {
      State *state = std::get_if<State>(&definition);
      if (!state || !state->transport)
        continue;
      Expr original = state->transport;
      for (Expr mutant : mutantsOf(text.context, *state)) {
        state->transport = mutant;
        ++mutants;
        Certificate wrong = certify(cascade, program);
        bool isFound = wrong.failure.starts_with("transport of state");
        rejected += isFound;
        EXPECT_TRUE(isFound) << state->symbol().symbol().name << " moved by "
                             << dump(mutant) << ": " << wrong.summary();
      }
      state->transport = original;
    }
  }
  EXPECT_EQ(rejected, mutants);
  EXPECT_GT(mutants, 200u);
  printf("%u transports, %u of %u mutants rejected\n", transports, rejected,
         mutants);
}

/// A part of the defects that `cascade_mutants` plants: every one is rejected,
/// or named with a proof that it computes the same.
TEST(CertifyMutantsTest, EveryDefectIsRejectedOrProvedToBeNone) {
  MutantCount count;
  plantMutants(/*every=*/7, [&](const Mutant &mutant) {
    count.add(mutant);
    EXPECT_FALSE(mutant.isSurvivor()) << mutant.title();
    // What is rejected needs no excuse.
    if (!mutant.rejection.empty())
      EXPECT_EQ(Equivalents::known().proofOf(mutant.title()), "")
          << mutant.title();
  });
  EXPECT_GT(count.planted(), 400u);
  printf("%s", count.summary().c_str());
}

/// An excuse is for one mutant, whose name it has, and one that is for none is
/// found.
TEST(CertifyMutantsTest, ExcusesAreExact) {
  Equivalents equivalents("# a remark\n"
                          "x <= max x,\n"
                          "always.\n"
                          "  [output] a: output o: 1 for 0\n"
                          "  [let] a: let m: 1 for 0\n"
                          "\n"
                          "0 is divided.\n"
                          "  [let] a: let m: 0.5 for 1\n");
  EXPECT_EQ(equivalents.proofOf("[output] a: output o: 1 for 0"),
            "x <= max x, always.");
  EXPECT_EQ(equivalents.proofOf("[let] a: let m: 0.5 for 1"), "0 is divided.");
  for (const char *other :
       {"[output] a: output o: 1 for 01", "[readout] a: output o: 1 for 0",
        "[output] a: output o: 1 for", "[output] b: output o: 1 for 0"})
    EXPECT_EQ(equivalents.proofOf(other), "") << other;

  MutantCount count;
  count.add({MutantKind::Output, "a: output o: 1 for 0", "",
             equivalents.proofOf("[output] a: output o: 1 for 0")});
  count.add({MutantKind::Let, "a: let m: 1 for 0", "found", ""});
  EXPECT_EQ(count.survivors(), 0u);
  std::vector<std::string> idle = {"[let] a: let m: 0.5 for 1",
                                   "[let] a: let m: 1 for 0"};
  EXPECT_EQ(count.idleExcuses(equivalents), idle);
  EXPECT_DEATH(Equivalents("  [let] a\n"), "without a proof");
  EXPECT_DEATH(Equivalents("p\n  [let] a\n  [let] a\n"), "twice");
}

/// Cuts have proofs, of the kind that fits their term.
TEST(CertifyMutantsTest, CutsHaveProofs) {
  using Proof = RankEvidence::Proof;
  const std::string mean = "in x\nS = sum x\nmu := S/n\n";
  struct {
    std::string lines;
    Proof proof;
    unsigned least;
  } expected[] = {
      {mean + "o = sum relu(x-mu)\nout o = o", Proof::Field, 8},
      {mean + "o = sum abs(x-mu)\nout o = o", Proof::Field, 8},
      {mean + "o = sum where(x>mu,1,0)\nout o = o", Proof::Field, 6},
      {mean + "o = sum exp(-(x-mu)**2/2)\nout o = o", Proof::Field, 16},
      {mean + "o = sum tanh(x-mu)\nout o = o", Proof::Field, 16},
      // The root of a length is a number.
      {mean + "o = sum tanh(x*rsqrt(n)-mu)\nout o = o", Proof::Field, 16},
      {mean + "o = sum (x-mu)/sqrt(1+(x-mu)**2)\nout o = o", Proof::Ball, 12},
      {mean + "o = sum 1/(2+sin(x-mu))\nout o = o", Proof::Ball, 12},
      {mean + "o = min abs(x-mu)\nout o = o", Proof::Optimum, 12},
      {"in x w\na = max abs(x)\no = sum f8e4m3(x*448/a)*w\nout o = o",
       Proof::Ball, 8},
  };
  for (const auto &[lines, proof, least] : expected) {
    Text text(lines);
    Cascade cascade = text.cascade();
    Derivation derivation = derive(cascade);
    ASSERT_TRUE(derivation.program);
    ASSERT_EQ(derivation.program->cuts.size(), 1u) << lines;
    auto evidence =
        rankEvidence(cascade, *derivation.program, derivation.program->cuts[0]);
    ASSERT_TRUE(evidence) << lines;
    // What the field tells needs no balls.
    bool isField = proof == Proof::Ball && evidence->proof == Proof::Field;
    EXPECT_TRUE(isField || evidence->proof == proof) << lines;
    EXPECT_GE(evidence->rank, least) << lines;
    EXPECT_EQ(evidence->samples, 16u);
    // The witness: as many elements as rows, each once.
    EXPECT_EQ(evidence->elements.size(), evidence->rank);
    EXPECT_EQ(evidence->rows.size(), evidence->rank);
    std::set<unsigned> elements(evidence->elements.begin(),
                                evidence->elements.end());
    EXPECT_EQ(elements.size(), evidence->rank);
    EXPECT_EQ(evidence->determinant != 0, evidence->proof == Proof::Field);
  }
}

/// A term of known rank is never shown to have more: a proof of what fuses
/// would be wrong.
TEST(CertifyMutantsTest, NoProofOfWhatFuses) {
  const std::string softmax = "in x v w>=0\nm = max x\ns = sum exp(x-m)\n";
  const std::pair<std::string, unsigned> expected[] = {
      {"in x\nS = sum x\nmu := S/n\no = sum (x-mu)**2\nout o = o", 3},
      {"in x\nS = sum x\nmu := S/n\no = sum cos(x-mu)\nout o = o", 2},
      {"in x\nS = sum x\nmu := S/n\no = sum sinh(x-mu)\nout o = o", 2},
      {softmax + "o = sum exp(x-m)/s*(x-m-log(s))\nout o = o", 2},
      {softmax + "o = sum abs(x-m)*w\nout o = o", 2},
      {softmax + "o = sum exp(x-m)/s*v\nout o = o", 1},
      {softmax + "o = sum w*max(x,m+log(s))\nout o = o", 1},
      {"in x\nS = sum x\no = max x-S\nout o = o", 1},
      {"in x\nS = sum x\nmu := S/n\no = max abs(x-mu)\nout o = o", 2},
  };
  for (const auto &[lines, rank] : expected) {
    Text text(lines);
    Cascade cascade = text.cascade();
    Derivation derivation = derive(cascade);
    EXPECT_TRUE(derivation.program->cuts.empty()) << lines;
    Cut cut;
    cut.stage = unsigned(cascade.stages.size()) - 1;
    auto evidence = rankEvidence(cascade, *derivation.program, cut);
    ASSERT_TRUE(evidence) << lines;
    EXPECT_LE(evidence->rank, rank) << lines;
  }
}

/// A function that the field does not read is a number of its own.
TEST(CertifyMutantsTest, FloorsAreRead) {
  Text text(
      "in x\nS = sum x\nmu := S/n\nV = sum floor(x)*(x-mu)**2\nout o = V");
  Cascade cascade = text.cascade();
  Derivation derivation = derive(cascade);
  EXPECT_TRUE(derivation.program->isFused());
  Certificate certificate = certify(cascade, derivation);
  EXPECT_TRUE(certificate.holds) << certificate.failure;
}

/// What a test for a single product would admit, and what not.
TEST(CertifyMutantsTest, SingleProductsAreTold) {
  auto single = [](const std::string &lines) {
    Text text(lines);
    Cascade cascade = text.cascade();
    bool all = true;
    for (unsigned i = 0; i < cascade.stages.size(); ++i)
      all &= needsOneProduct(cascade, i);
    return all;
  };
  const std::string softmax = "in x v\nm = max x\ns = sum exp(x-m)\n";
  const std::string mean = "in x v\nS = sum x\nmu := S/n\n";
  EXPECT_TRUE(single(softmax + "o = sum exp(x-m)/s*v\nout o = o"));
  EXPECT_TRUE(single(softmax + "t = top2 x-m\nout o = t"));
  EXPECT_TRUE(single(mean + "o = max x-mu\nout o = o"));
  EXPECT_FALSE(single(mean + "o = sum (x-mu)**2\nout o = o"));
  EXPECT_FALSE(single(mean + "o = max abs(x-mu)\nout o = o"));
  EXPECT_FALSE(single(softmax + "o = sum exp(x-m)*(x-m-log(s))\nout o = o"));
}

} // namespace
} // namespace refold::algebra::test
