// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Algebra/Evaluate.h"

#include "TestPrograms.h"

#include <gtest/gtest.h>

using namespace refold::algebra;

namespace {

constexpr Order kTreeOrders[] = {Order::Stream, Order::Balanced,
                                 Order::Random, Order::Right,
                                 Order::Pivots, Order::Definition};

/// Largest |a - b| / max(1, |b|); NaN and infinities must be the same.
double distance(const std::vector<DoubleDouble> &a,
                const std::vector<DoubleDouble> &b) {
  if (a.size() != b.size())
    return HUGE_VAL;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (isnan(a[i]) && isnan(b[i]))
      continue;
    if (a[i] == b[i])
      continue;
    double difference =
        double(fabs(a[i] - b[i])) / std::max(1.0, std::fabs(double(b[i])));
    worst = std::max(worst, std::isnan(difference) ? HUGE_VAL : difference);
  }
  return worst;
}

/// Largest disagreement of a program with its cascade over families, lengths
/// and orders.
double worstOver(const Handmade &h, std::vector<uint32_t> lengths) {
  double worst = 0;
  Random random(7);
  std::vector<Expr> roots = rootsOf(h.cascade);
  for (unsigned family = 0; family < kFamilies; ++family)
    for (uint32_t length : lengths) {
      Sample sample =
          makeSample(h.cascade.indices, roots, Family(family), length, random);
      DefinitionEvaluator<DoubleDouble> byDefinition(h.cascade, sample.extents);
      ProgramEvaluator<DoubleDouble> asKernel(h.program, sample.extents);
      RowValues<DoubleDouble> expected = byDefinition.run(sample);
      for (Order order : kTreeOrders) {
        RowValues<DoubleDouble> found = asKernel.run(sample, order, random);
        for (size_t i = 0; i < expected.outputs.size(); ++i)
          worst =
              std::max(worst, distance(found.outputs[i], expected.outputs[i]));
        for (size_t i = 0; i < expected.stages.size(); ++i)
          worst = std::max(worst,
                           distance(found.stages[i][0], expected.stages[i][0]));
      }
    }
  return worst;
}

TEST(EvaluateTest, OrdersAgreeWithTheDefinition) {
  EXPECT_LT(worstOver(*makeWeightedMean(), {0, 1, 2, 3, 17}), 1e-25);
  EXPECT_LT(worstOver(*makeVariance(), {1, 2, 3, 17}), 1e-25);
}

/// Replaces the transport of the last state.
void mutate(Handmade &h, Expr transport) {
  std::get<State>(h.program.definitions.back()).transport = transport;
}

TEST(EvaluateTest, TurnedRoundTransportDisagrees) {
  auto h = makeWeightedMean();
  Context &c = h->context;
  mutate(*h, c.mul(h->self(), c.exp(c.sub(h->fresh(), h->old()))));
  EXPECT_GT(worstOver(*h, {3, 17}), 1e-3);
}

/// At the mean itself c1 is 0, so that only random pivots see its factor.
TEST(EvaluateTest, OnlyRandomPivotsSeeTheFirstMoment) {
  auto h = makeVariance();
  Context &c = h->context;
  Expr d = c.sub(h->old(), h->fresh());
  mutate(*h, c.add(c.add(h->self(), c.mul(d, h->with(1))),
                   c.mul(c.pow(d, {2, 1}), h->with(0))));
  EXPECT_GT(worstOver(*h, {3, 17}), 1e-3);
}

TEST(EvaluateTest, SoftmaxOfThreeInDouble) {
  auto h = makeWeightedMean();
  Sample sample;
  sample.extents = {3};
  for (Expr root : rootsOf(h->cascade))
    for (Expr symbol : symbolsOf(root)) {
      if (symbol.symbol().name == "x")
        sample.values[&symbol.symbol()] = {0, std::log(2.0), std::log(5.0)};
      if (symbol.symbol().name == "v")
        sample.values[&symbol.symbol()] = {8, 16, 24};
    }
  sample.values[&h->cascade.indices[0].length.symbol()] = {3};
  Random random(1);
  for (Order order : kTreeOrders) {
    ProgramEvaluator<double> evaluator(h->program, sample.extents);
    RowValues<double> row = evaluator.run(sample, order, random);
    EXPECT_NEAR(row.outputs[0][0], 1 + 4 + 15, 1e-12) << spelling(order);
    ASSERT_EQ(row.outputs[1].size(), 3u);
    EXPECT_NEAR(row.outputs[1][1], 0.25, 1e-14);
    EXPECT_TRUE(evaluator.isRegular());
  }
}

TEST(EvaluateTest, TopKKeepsTheEarlierOfEqualKeysAndSetsNanFirst) {
  Context c;
  Cascade cascade(c);
  unsigned n = cascade.addIndex("n", IndexRole::Stream);
  unsigned r = cascade.addIndex("r", IndexRole::Rank, 3);
  Expr x = cascade.addRead("x", 1);
  auto results =
      cascade.addTopK("best", x, {cascade.indices[n].value}, 3, true, int(r));
  cascade.addOutput("index", results[1]);
  State top;
  top.reducer = Reducer::TopK;
  top.k = 3;
  top.rank = int(r);
  top.values = {x, cascade.indices[n].value};
  top.indices = IndexSet(1) << r;
  for (Expr result : results)
    top.results.push_back(
        c.symbol("top", Role::State, result.type(), top.indices));
  Program program;
  program.context = &c;
  program.indices = cascade.indices;
  program.definitions = {top};
  program.readouts = {{top.results[0], top.results[1]}};
  program.outputs = {{"index", top.results[1]}};
  Sample sample;
  sample.extents = {6, 3};
  sample.values[&x.symbol()] = {1, 5, NAN, 5, -INFINITY, 5};
  sample.values[&cascade.indices[n].value.symbol()] = {0, 1, 2, 3, 4, 5};
  DefinitionEvaluator<double> byDefinition(cascade, sample.extents);
  std::vector<double> expected = {2, 1, 3};
  EXPECT_EQ(byDefinition.run(sample).outputs[0], expected);
  ProgramEvaluator<double> asKernel(program, sample.extents);
  Random random(3);
  for (Order order : kTreeOrders)
    EXPECT_EQ(asKernel.run(sample, order, random).outputs[0], expected)
        << spelling(order);
}

/// A mask that selects everything, and one that selects nothing.
TEST(EvaluateTest, MasksAreAlsoAllTrueAndAllFalse) {
  Context context;
  Cascade cascade(context);
  cascade.addIndex("n", IndexRole::Stream);
  Expr mask = cascade.addRead("k", 1, Type::Bool);
  cascade.addStage("c", Reducer::Any, mask);
  Random random(3);
  auto sumOf = [&](Family family) {
    double sum = 0;
    Sample sample =
        makeSample(cascade.indices, rootsOf(cascade), family, 40, random);
    for (double value : sample.values.at(&mask.symbol()))
      sum += value;
    return sum;
  };
  EXPECT_EQ(sumOf(Family::Offset), 40);
  EXPECT_EQ(sumOf(Family::Tiny), 0);
  EXPECT_GT(sumOf(Family::Normal), 5);
  EXPECT_LT(sumOf(Family::Normal), 35);
}

} // namespace
