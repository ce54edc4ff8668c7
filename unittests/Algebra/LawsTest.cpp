// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The worked numbers of docs/math, computed: a test a law, named after it. What
// a test computes must stand on the law's page in these digits.
#include "Suite.h"

#include "refold/Algebra/Certify.h"
#include "refold/Algebra/Evaluate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

namespace refold::algebra::test {
namespace {

using Row = std::map<std::string, std::vector<double>>;
const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInf = std::numeric_limits<double>::infinity();

/// Six digits, as the pages write numbers.
std::string digits(double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof(buffer), value >= 1e6 ? "%.0f" : "%.6g", value);
  return buffer;
}

class LawsTest : public ::testing::Test {
protected:
  /// The page of `key` shows the number among its worked numbers.
  void expectOnPage(const std::string &key, double value) {
    std::ifstream file(std::string(REFOLD_SOURCE_DIR) + "/docs/math/" + key +
                       ".md");
    std::stringstream text;
    text << file.rdbuf();
    std::string page = text.str();
    size_t begin = page.find("## Worked numbers");
    size_t end = page.find("\n## ", begin + 1);
    ASSERT_NE(end, std::string::npos) << "no page of " << key;
    std::string numbers = page.substr(begin, end - begin);
    EXPECT_NE(numbers.find(digits(value)), std::string::npos)
        << key << " lacks " << digits(value);
  }

  /// The first output of the cascade on a row, as the derived program gives it
  /// in stream order; every other order and the definition must agree.
  double output(const std::string &lines, const Row &row) {
    Text text(lines);
    Cascade cascade = text.cascade();
    Derivation derivation = derive(cascade);
    Random random(1);
    uint32_t length = uint32_t(row.begin()->second.size());
    Sample sample = makeSample(cascade.indices, rootsOf(cascade),
                               Family::Normal, length, random);
    for (auto &[symbol, values] : sample.values)
      if (auto it = row.find(symbol->name); it != row.end())
        values = it->second;
    ProgramEvaluator<double> program(*derivation.program, sample.extents);
    double value = program.run(sample, Order::Stream, random).outputs[0][0];
    for (Order order : {Order::Balanced, Order::Random, Order::Right})
      expectSame(program.run(sample, order, random).outputs[0][0], value);
    expectSame(DefinitionEvaluator<double>(cascade, sample.extents)
                   .run(sample)
                   .outputs[0][0],
               value);
    passes = derivation.program->passes;
    unfusedPasses = derivation.program->unfusedPasses;
    return value;
  }
  static void expectSame(double a, double b) {
    EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b)) ||
                std::fabs(a - b) <= 1e-12 * std::fabs(b))
        << a << " and " << b;
  }

  unsigned passes = 0, unfusedPasses = 0;
};

// rescale-distributes
TEST_F(LawsTest, RescaleDistributes) {
  double s = 1;
  s = s * std::exp(1.0 - 3) + 1;
  expectOnPage("rescale-distributes", s);
  s = s * std::exp(3.0 - 3) + std::exp(2.0 - 3);
  expectOnPage("rescale-distributes", s);
  expectSame(output("in x\nm = max x\ns = sum exp(x-m)\nout s = s",
                    {{"x", {1, 3, 2}}}),
             s);
}

// taylor-shift
TEST_F(LawsTest, TaylorShift) {
  auto moved = [](std::array<double, 3> c, double d) {
    return std::array<double, 3>{c[0], c[1] + d * c[0],
                                 c[2] + 2 * d * c[1] + d * d * c[0]};
  };
  auto absorbed = [&](std::array<double, 3> c, double from, double to,
                      double x) {
    c = moved(c, from - to);
    double t = x - to;
    return std::array<double, 3>{c[0] + 1, c[1] + t, c[2] + t * t};
  };
  std::array<double, 3> c = {1, 0, 0};
  c = absorbed(c, 2, 3, 4);
  EXPECT_EQ(c, (std::array<double, 3>{2, 0, 2}));
  EXPECT_EQ(moved(c, 3 - 1), (std::array<double, 3>{2, 4, 10}));
  expectOnPage("taylor-shift", moved(c, 3 - 1)[2]);
  c = absorbed(c, 3, 5, 9);
  EXPECT_EQ(c, (std::array<double, 3>{3, 0, 26}));
  expectOnPage("taylor-shift", c[2]);
  EXPECT_DOUBLE_EQ(output("in x\nS = sum x\nmu := S/n\nV = sum (x-mu)**2\n"
                          "out V = V",
                          {{"x", {2, 4, 9}}}),
                   26);
}

// constant-under-move
TEST_F(LawsTest, ConstantUnderMove) {
  double count = output("in x\nS = sum x\nc = sum 1+0*(x-x)\nout c = c",
                        {{"x", {2, 4, 9}}});
  EXPECT_EQ(count, 3);
  expectOnPage("constant-under-move", count);
}

// reset-transport
TEST_F(LawsTest, ResetTransport) {
  Row row = {{"x", {3, 5, 5, 1}}, {"v", {10, 20, 40, 80}}};
  const std::string start = "in x v\nm = max x\n";
  double at = output(start + "o = sum where(x==m,v,0)\nout o = o", row);
  double count = output(start + "o = sum where(x==m,1+0*v,0)\nout o = o", row);
  double off = output(start + "o = sum where(x<m,v,0)\nout o = o", row);
  EXPECT_EQ(passes, 1u);
  EXPECT_EQ(at, 60);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(off, 90);
  for (double value : {at, count, off, at / count, at + off})
    expectOnPage("reset-transport", value);
}

// order-reach
TEST_F(LawsTest, OrderReach) {
  Row row = {{"x", {2, 5, 1, 5, 7}}, {"g", {1, 10, 100, 1000, 10000}}};
  const std::string start = "in x g\na = top1 x\n";
  double behind = output(start + "o = sum where(l>a_at,g,0)\nout o = o", row);
  EXPECT_EQ(passes, 1u);
  EXPECT_EQ(behind, 0);
  EXPECT_EQ(output(start + "o = sum where(l<a_at,g,0)\nout o = o", row), 1111);
  EXPECT_EQ(output(start + "o = sum abs(l-a_at)*g\nout o = o", row),
            4 * 1 + 3 * 10 + 2 * 100 + 1000);
  row["x"] = {2, 5, 1, 5, 3};
  behind = output(start + "o = sum where(l>a_at,g,0)\nout o = o", row);
  expectOnPage("order-reach", behind);
  EXPECT_EQ(output(start + "o = max where(l>=a_at,g,-inf)\nout o = o", row),
            10000);
  EXPECT_EQ(passes, 1u);
  // Negations, the other end, squares, equality.
  row["x"] = {2, 5, 1, 1, 3};
  const std::string least = "in x g\na = bottom1 x\n";
  EXPECT_EQ(output(least + "o = sum where(l<=a_at,g,0)\nout o = o", row), 111);
  EXPECT_EQ(output(least + "o = sum where(l==a_at,g,0)\nout o = o", row), 100);
  EXPECT_NEAR(output(least + "o = sum (l-a_at)**2*g\nout o = o", row),
              4 + 10 + 1000 + 4 * 10000, 1e-9);
  EXPECT_EQ(passes, 1u);
  output(least + "o = sum where(l>a_at+3,g,0)\nout o = o", row);
  EXPECT_EQ(passes, 2u);
}

// Weights that a guard does not cover count 0 times what they are.
TEST_F(LawsTest, OrderReachKeepsNan) {
  for (const char *line :
       {"o = sum where(l>a_at,1,0)*g", "o = sum where(x==m,1,0)*g"})
    for (double weight : {kInf, kNan}) {
      Row row = {{"x", {1, 2, 3, 4}}, {"g", {weight, 1, 1, 1}}};
      EXPECT_TRUE(std::isnan(output(
          std::string("in x g\na = top1 x\nm = max x\n") + line + "\nout o = o",
          row)))
          << line;
    }
  // A bound over elements that the position chooses is one of the next pass.
  Text text("in x g\na = top1 x\no = max where(l>=a_at,g,-inf)\n"
            "q = sum where(l>=a_at,exp(g-o),0)\nout q = q");
  Derivation derivation = derive(text.cascade());
  EXPECT_EQ(derivation.program->passes, 2u);
  EXPECT_EQ(derivation.program->cuts.size(), 1u);
}

// minor-of-a-term
TEST_F(LawsTest, MinorOfATerm) {
  const char *key = "minor-of-a-term";
  auto determinant = [](std::vector<std::vector<double>> m) {
    double result = 1;
    for (size_t k = 0; k < m.size(); ++k) {
      size_t pivot = k;
      for (size_t r = k; r < m.size(); ++r)
        if (std::fabs(m[r][k]) > std::fabs(m[pivot][k]))
          pivot = r;
      result *= pivot == k ? m[k][k] : -m[pivot][k];
      std::swap(m[k], m[pivot]);
      for (size_t r = k + 1; r < m.size(); ++r)
        for (size_t c = m.size(); c-- > k && m[k][k] != 0;)
          m[r][c] -= m[r][k] / m[k][k] * m[k][c];
    }
    return result;
  };
  auto minor = [&](size_t order, double start, auto term) {
    std::vector<std::vector<double>> m(order);
    for (size_t i = 0; i < order; ++i)
      for (size_t j = 0; j < order; ++j)
        m[i].push_back(term(double(i), start + double(j)));
    return determinant(m);
  };
  expectOnPage(
      key, minor(3, 0.5, [](double x, double d) { return std::fabs(x - d); }));
  EXPECT_NEAR(minor(4, 0, [](double x, double d) { return (x - d) * (x - d); }),
              0, 1e-12);
  expectOnPage(key,
               minor(2, 0, [](double x, double d) { return std::exp(x * d); }));
}

// transport-identity
TEST_F(LawsTest, TransportIdentity) {
  const char *key = "transport-identity";
  expectOnPage(key, 1.5 * std::exp(1.0 - 3));
  double atOne = std::exp(2.0 - 1), atThree = std::exp(2.0 - 3);
  expectSame(atOne * std::exp(1.0 - 3), atThree);
  expectOnPage(key, atOne);
  expectOnPage(key, atThree);
  expectOnPage(key, atOne * std::exp(3.0 - 1)); // turned round
  EXPECT_NE(atOne * std::exp(3.0 - 1), atThree);
}

// deferred-normalisation
TEST_F(LawsTest, DeferredNormalisation) {
  Row row = {{"e", {1, 2, 5}}, {"v", {8, 16, 24}}};
  double o = output("in e v\ns = sum e\no = sum e/s*v\nout o = o", row);
  EXPECT_EQ(passes, 1u);
  EXPECT_EQ(o, 20);
  expectOnPage("deferred-normalisation", o);
  expectOnPage("deferred-normalisation", 8 + 2 * 16 + 5 * 24);
  expectOnPage("deferred-normalisation", 101 - 2 * 5 * 15 + 3 * 25);
}

// extremal-monotone
TEST_F(LawsTest, ExtremalMonotone) {
  double z = output("in x\nS = sum x\nmu := S/n\nz = max abs(x-mu)\nout z = z",
                    {{"x", {2, 4, 9}}});
  EXPECT_EQ(passes, 1u);
  EXPECT_EQ(z, 4);
  expectOnPage("extremal-monotone", std::exp(2.0 - 9));
  expectOnPage("extremal-monotone", std::exp(4.0 - 9));
  double p = output("in x\nm = max x\ns = sum exp(x-m)\n"
                    "p = max exp(x-m)/s\nout p = p",
                    {{"x", {2, 4, 9}}});
  EXPECT_EQ(passes, 1u);
  expectOnPage("extremal-monotone", p);
}

// extremal-parts
TEST_F(LawsTest, ExtremalParts) {
  Row row = {{"x", {2, 4, 9}}, {"y", {1, 1, 7}}, {"k", {1, 1, 0}}};
  const std::string start =
      "in x y\nmask k\nS = sum x\nmu := S/n\nU = sum y\nnu := U/n\n";
  EXPECT_EQ(output(start + "o = max max(x-mu,nu-y)\nout o = o", row), 4);
  EXPECT_EQ(passes, 1u);
  EXPECT_EQ(output(start + "o = max where(k,abs(x-mu),-inf)\nout o = o", row),
            3);
  EXPECT_EQ(passes, 1u);
  for (double value : {4, 3, 5})
    expectOnPage("extremal-parts", value);
  EXPECT_EQ(
      output("in x\nS = sum x\no = maxnum x-S\nout o = o", {{"x", {kNan, 1}}}),
      -kInf);
  row["k"] = {0, 0, 0};
  EXPECT_EQ(output(start + "o = max where(k,abs(x-mu),-inf)\nout o = o", row),
            -kInf);
}

// identity-clamp
TEST_F(LawsTest, IdentityClamp) {
  double lowest = -largestFinite(Type::F32);
  double s = std::exp(-kInf - lowest);
  EXPECT_EQ(s, 0);
  s = s * std::exp(lowest - 3) + 1;
  EXPECT_EQ(s, 1);
  s += std::exp(1.0 - 3);
  expectOnPage("identity-clamp", s);
  EXPECT_TRUE(std::isnan(std::exp(-kInf - -kInf)));
  expectSame(output("in x\nm = max x\ns = sum exp(x-m)\nout s = s",
                    {{"x", {-kInf, 3, 1}}}),
             s);
}

// identity-row
TEST_F(LawsTest, IdentityRow) {
  Row dead = {{"x", {-kInf, -kInf}}};
  EXPECT_TRUE(
      std::isnan(output("in x\nm = max x\ns = sum exp(x-m)\nout s = s", dead)));
  EXPECT_EQ(output("in x\nm = max x\n"
                   "s = sum where(m==-inf,0,exp(x-m))\nout s = s",
                   dead),
            0);
}

// empty-row
TEST_F(LawsTest, EmptyRow) {
  EXPECT_EQ(output("in e v\ns = sum e\no = sum e/s*v\nout o = o",
                   {{"e", {}}, {"v", {}}}),
            0);
  double zero = 0;
  EXPECT_TRUE(std::isnan(zero / zero));
}

// irregular-rows
TEST_F(LawsTest, IrregularRows) {
  EXPECT_EQ(0.0 * 2 + 1.0 / 3 * kInf + 1.0 * 0, kInf);
  EXPECT_TRUE(std::isnan(-1.0 * 2 + 0.0 * kInf + 2.0 * 0));
  // A kurtosis of elements of 1e-12: the fourth powers are no floats.
  double squares = 0, fourths = 0;
  for (double x : {1e-12, -1e-12, 2e-12, -2e-12}) {
    squares += x * x / 4;
    fourths += x * x * x * x;
  }
  EXPECT_NEAR(squares, 2.5e-24, 1e-36);
  EXPECT_NEAR(fourths, 3.4e-47, 1e-59);
  EXPECT_EQ(float(fourths), 0);
  EXPECT_EQ(float(squares * squares), 0);
  EXPECT_NEAR(fourths / (4 * squares * squares), 1.36, 1e-9);
  Text text("in x w\nlo = min x\nhi = max x\n"
            "o = sum (x-lo)/(hi-lo)*w\nout o = o");
  Cascade cascade = text.cascade();
  Derivation derivation = derive(cascade);
  EXPECT_FALSE(certify(cascade, derivation).holds &&
               certify(cascade, derivation).edgeDifferences == 0);
  Certified whole = certified(cascade, derivation, {});
  EXPECT_TRUE(whole.certificate.holds) << whole.certificate.summary();
  EXPECT_EQ(whole.certificate.edgeDifferences, 0u);
  EXPECT_EQ(whole.derivation.program->passes, 1u);
  EXPECT_EQ(whole.derivation.program->repairPasses, 1u);
  // The row of the page, by the repaired program.
  Sample sample;
  Random random(1);
  sample =
      makeSample(cascade.indices, rootsOf(cascade), Family::Normal, 3, random);
  for (auto &[symbol, values] : sample.values)
    values = symbol->name == "x" ? std::vector<double>{-1, 0, 2}
                                 : std::vector<double>{2, kInf, 0};
  ProgramEvaluator<float> repaired(*whole.derivation.program, sample.extents);
  EXPECT_EQ(repaired.run(sample, Order::Stream, random).outputs[0][0], kInf);
  ProgramEvaluator<float> fused(*derivation.program, sample.extents);
  EXPECT_TRUE(
      std::isnan(fused.run(sample, Order::Stream, random).outputs[0][0]));
}

// threshold-by-list
TEST_F(LawsTest, ThresholdByList) {
  Text text("in x\nm = max x\no = sum where(x>m-1,x,0)\nout o = o");
  Cascade cascade = text.cascade();
  Policy policy;
  for (unsigned room : {2u, 3u}) {
    policy.thresholdList = room;
    Derivation derivation = derive(cascade, policy);
    const Program &program = *derivation.program;
    EXPECT_EQ(program.passes, 1u);
    EXPECT_EQ(program.repairPasses, 1u);
    EXPECT_EQ(program.lists.size(), 1u);
    Certificate certificate = certify(cascade, derivation);
    EXPECT_TRUE(certificate.holds) << certificate.summary();
    EXPECT_EQ(certificate.edgeDifferences, 0u);
    Random random(1);
    Sample sample = makeSample(program.indices, rootsOf(program),
                               Family::Normal, 4, random);
    sample.extents.back() = room;
    for (auto &[symbol, values] : sample.values)
      if (symbol->name == "x")
        values = {0, 3, 1, 2.5};
      else if (symbol->role == Role::Index && values.size() == 2)
        values.resize(room, 2);
      else if (symbol->name.starts_with("len(r"))
        values = {double(room)};
    ProgramEvaluator<double> evaluator(program, sample.extents);
    double found = evaluator.run(sample, Order::Stream, random).outputs[0][0];
    expectOnPage("threshold-by-list", found);
  }
  // As if the list were always long enough.
  policy.thresholdList = 2;
  Derivation broken = derive(cascade, policy);
  for (Definition &definition : broken.program->definitions)
    if (Let *let = std::get_if<Let>(&definition);
        let && let->symbol.symbol().name == "short")
      let->value = cascade.context->boolean(false);
  EXPECT_FALSE(certify(cascade, broken).holds);
}

// Sets that may be most of a row, or that others read, get no list.
TEST_F(LawsTest, NoListFarFromAnExtreme) {
  Policy policy;
  policy.thresholdList = 32;
  for (const char *lines :
       {"in x\nS = sum x\no = sum where(x>S/n,1,0)\nout o = o",
        "in x\nlo = min x\nhi = max x\n"
        "o = sum where(x>lo+(hi-lo)/10,x,0)\nout o = o",
        "in x\nm = max x\no = sum where(abs(x-m)<1,2,1)\nout o = o",
        "in x v\nm = max x\ns = sum where(x>m-1,x,0)\n"
        "o = sum v/(1+exp(s-v))\nout o = o",
        "in x\nm = max x\no = prod where(x>m-1,x,1)\nout o = o",
        "in x\ncarried w\nm = max x\no = sum where(x>m-1,w,0)\nout o = o"}) {
    Text text(lines);
    Derivation derivation = derive(text.cascade(), policy);
    EXPECT_TRUE(derivation.program->lists.empty()) << lines;
    EXPECT_FALSE(derivation.program->cuts.empty()) << lines;
  }
  // From below, and with what else the summand reads.
  for (const char *lines :
       {"in x v\nm = min x\no = sum where(x<=m+2,v*exp(m-x),0)\nout o = o",
        "in x v\nm = max x\ns = sum exp(x-m)\n"
        "o = sum where(exp(x-m)/s>0.01 and v>0,v,0)\nout o = o"}) {
    Text text(lines);
    Cascade cascade = text.cascade();
    Derivation derivation = derive(cascade, policy);
    EXPECT_EQ(derivation.program->passes, 1u) << lines;
    EXPECT_EQ(derivation.program->lists.size(), 1u) << lines;
    Certificate certificate = certify(cascade, derivation);
    EXPECT_TRUE(certificate.holds) << lines << certificate.summary();
    // Without the policy the hint says so.
    Derivation plain = derive(cascade);
    ASSERT_FALSE(plain.program->cuts.empty()) << lines;
    EXPECT_NE(plain.program->cuts[0].hint.find("--thresholds list"),
              std::string::npos);
  }
}

// guard-row-predicate
TEST_F(LawsTest, GuardRowPredicate) {
  auto of = [&](std::vector<double> x) {
    return output("in x v\nm = max x\ns = sum where(m==-inf,0,exp(x-m))\n"
                  "p := where(m==-inf,0,exp(x-m))/s\n"
                  "o = sum where(isnan(p),0,p)*v\nout o = o",
                  {{"x", x}, {"v", {3, 5}}});
  };
  EXPECT_EQ(of({0, -kInf}), 3);
  EXPECT_EQ(of({-kInf, -kInf}), 0);
  EXPECT_EQ(of({kNan, 1}), 0);
}

// topk-merge
TEST_F(LawsTest, TopkMerge) {
  Row row = {{"x", {5, 1, 5, 7, 5}}};
  double first = output("in x\nt = top2 x\nout i = t_at", row);
  EXPECT_EQ(first, 3);
  EXPECT_EQ(output("in x\nt = top2 x\nout k = t", row), 7);
}

/// The k largest of keys with positions, of equal keys the earlier.
using Entry = std::pair<double, int>;
static std::vector<Entry> bestOf(std::vector<Entry> entries, size_t k) {
  std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  entries.resize(std::min(k, entries.size()));
  return entries;
}

// lists-of-groups
TEST_F(LawsTest, ListsOfGroups) {
  const double x[3][3] = {{5, 1, 5}, {3, 6, 0}, {2, 9, 4}}, masked = 4;
  std::vector<Entry> scores, all, entries;
  std::vector<std::vector<Entry>> lists;
  for (int g = 0; g < 3; ++g) {
    std::vector<Entry> members;
    for (int u = 0; u < 3; ++u)
      members.push_back({x[g][u], 3 * g + u});
    lists.push_back(bestOf(members, 3));
    scores.push_back({lists[g][0].first + lists[g][1].first, g});
    expectOnPage("lists-of-groups", scores.back().first);
  }
  std::vector<Entry> kept = bestOf(scores, 2);
  for (int g = 0; g < 3; ++g) {
    bool isKept = kept[0].second == g || kept[1].second == g;
    for (int u = 0; u < 3; ++u) {
      all.push_back({isKept ? x[g][u] : masked, 3 * g + u});
      entries.push_back(isKept ? lists[g][u] : Entry(masked, 3 * g + u));
    }
  }
  EXPECT_EQ(bestOf(all, 4), bestOf(entries, 4));
  std::vector<Entry> want = {{9, 7}, {5, 0}, {5, 2}, {4, 3}};
  EXPECT_EQ(bestOf(entries, 4), want);
}

// homogeneous-readout
TEST_F(LawsTest, HomogeneousReadout) {
  for (bool hasOffset : {false, true}) {
    Context context;
    Cascade cascade(context);
    unsigned n = cascade.addIndex("n", IndexRole::Stream);
    unsigned r = cascade.addIndex("r", IndexRole::Rank, 2);
    Expr x = cascade.addRead("x", IndexSet(1) << n);
    Expr m = cascade.addStage("m", Reducer::Max, x);
    Expr e = context.exp(context.sub(x, m));
    Expr s = cascade.addStage("s", Reducer::Sum, e);
    Expr t = cascade.addTopK("t", context.div(e, s), {}, 2, true, int(r))[0];
    Expr total = context.contract(IndexSet(1) << r, t);
    if (hasOffset)
      total = context.add(total, context.real(1e-4));
    cascade.addOutput("w", context.div(t, total));
    Derivation derivation = derive(cascade);
    const Program &program = *derivation.program;
    EXPECT_EQ(program.stateSize, hasOffset ? 3u : 2u);
    Certificate certificate = certify(cascade, derivation);
    EXPECT_TRUE(certificate.holds) << certificate.failure;
    Random random(1);
    Sample sample = makeSample(cascade.indices, rootsOf(cascade),
                               Family::Normal, 3, random);
    sample.values.begin()->second = {2, 0, 1};
    std::vector<double> w = ProgramEvaluator<double>(program, sample.extents)
                                .run(sample, Order::Stream, random)
                                .outputs[0];
    if (hasOffset)
      continue;
    expectOnPage("homogeneous-readout", w[0]);
    expectOnPage("homogeneous-readout", w[1]);
  }
}

// fewest-passes
TEST_F(LawsTest, FewestPasses) {
  Row row = {{"x", {2, 4, 9}}, {"v", {1, 2, 3}}};
  output("in x v\nS = sum x\nmu := S/n\nV = sum (x-mu)**2\nsd := sqrt(V/n)\n"
         "m = max (x-mu)/sd\ns = sum exp((x-mu)/sd-m)\n"
         "o = sum exp((x-mu)/sd-m)/s*v\nout o = o",
         row);
  EXPECT_EQ(passes, 2u);
  EXPECT_EQ(unfusedPasses, 5u);
  output("in x v\nm = max x\ns = sum exp(x-m)\np := exp(x-m)/s\nm2 = max p\n"
         "s2 = sum exp(p-m2)\no = sum exp(p-m2)/s2*v\nout o = o",
         row);
  EXPECT_EQ(passes, 2u);
  EXPECT_EQ(unfusedPasses, 5u);
  expectOnPage("fewest-passes", unfusedPasses);
}

// vanishing-basis
TEST_F(LawsTest, VanishingBasis) {
  const char *key = "vanishing-basis";
  auto tail = [](double u) { return std::expm1(u) - u; };
  double b2 = tail(0.1 - 0.15) + tail(0.2 - 0.15), d = 0.15 - 0.3;
  expectOnPage(key, b2);
  b2 = std::exp(d) * b2 + tail(d) * 2;
  expectOnPage(key, b2);
  b2 += tail(0.6 - 0.3);
  expectOnPage(key, b2);
  expectOnPage(key, b2 / 3);
  double k = output("in x y\nm = max x\ns = sum exp(x-m)\nm2 = max y\n"
                    "s2 = sum exp(y-m2)\nk = sum exp(x-m)/s*"
                    "((x-m-log(s))-(y-m2-log(s2)))\nout k = k",
                    {{"x", {0, 0, 0}}, {"y", {0.1, 0.2, 0.6}}});
  expectSame(k, std::log1p(b2 / 3));
  expectOnPage(key, k);
}

// attained-element
TEST_F(LawsTest, AttainedElement) {
  const char *key = "attained-element";
  double rest = std::exp(-2.0) + std::exp(-3.0);
  for (double value : {rest, 2 + rest, rest / 2})
    expectOnPage(key, value);
  const std::string start = "in x\nm = max x\ns = sum exp(x-m)\n";
  double log = output(start + "out l = log(s)", {{"x", {1, 3, 3, 0}}});
  expectSame(log, std::log(2) + std::log1p(rest / 2));
  expectOnPage(key, log);
  EXPECT_EQ(float(1 + std::exp(-30.0)), 1);
  expectOnPage(key, std::log1p(std::exp(-30.0)));
}

// double-double-sum
TEST_F(LawsTest, DoubleDoubleSum) {
  DoubleDouble small = DoubleDouble(1) + DoubleDouble(0x1p-60);
  EXPECT_EQ(small.hi, 1);
  EXPECT_EQ(small.lo, 0x1p-60);
  expectOnPage("double-double-sum", small.lo);
  DoubleDouble large = DoubleDouble(1e16) + DoubleDouble(1);
  EXPECT_EQ(large.lo, 1);
  expectOnPage("double-double-sum", large.hi);
}

// expm1-doubling
TEST_F(LawsTest, Expm1Doubling) {
  double h = std::expm1(0.25);
  expectOnPage("expm1-doubling", h);
  expectOnPage("expm1-doubling", 2 * h + h * h);
  expectSame(2 * h + h * h, std::expm1(0.5));
  double d = std::expm1(38.0 / 128), rest = std::expm1(0.3 - 38.0 / 128);
  expectOnPage("expm1-doubling", d);
  expectOnPage("expm1-doubling", d + rest + d * rest);
  expectSame(d + rest + d * rest, std::expm1(0.3));
}

/// The row x = 1, 3, 2 with weights 1, through a quantiser: the sum as rounded
/// at the final scale, and in stream order.
static std::pair<double, double> quantised(const std::string &scale) {
  Text text("in x w\na = max abs(x)\nS := " + scale +
            "\ny = sum f8e4m3(x/S)*w\nout o = y*S\nout t = y");
  Cascade cascade = text.cascade();
  Policy policy;
  policy.casts = CastPolicy::Requantise;
  Derivation derivation = derive(cascade, policy);
  Random random(1);
  Sample sample =
      makeSample(cascade.indices, rootsOf(cascade), Family::Normal, 3, random);
  for (auto &[symbol, values] : sample.values)
    values = symbol->name == "x" ? std::vector<double>{1, 3, 2}
                                 : std::vector<double>{1, 1, 1};
  ProgramEvaluator<double> program(*derivation.program, sample.extents);
  DefinitionEvaluator<double> definition(cascade, sample.extents);
  return {definition.run(sample).outputs[1][0],
          program.run(sample, Order::Stream, random).outputs[1][0]};
}

TEST_F(LawsTest, RoundedAtRunningPivot) {
  auto [atTheEnd, running] = quantised("a/448");
  EXPECT_EQ(atTheEnd, 144 + 448 + 288);
  EXPECT_NEAR(running, 448 / 3.0 + 448 + 288, 1e-12);
  double bound = 2 * 0x1p-4 * (1 + 3 + 2) * 448 / 3;
  EXPECT_LE(std::fabs(running - atTheEnd), bound);
  for (double value : {atTheEnd, running, bound})
    expectOnPage("rounded-at-running-pivot", value);
}

TEST_F(LawsTest, PowerOfTwoScale) {
  auto [atTheEnd, running] = quantised("exp2(ceil(log2(a/448)))");
  EXPECT_EQ(atTheEnd, 128 + 384 + 256);
  EXPECT_EQ(running, atTheEnd);
  expectOnPage("power-of-two-scale", running);
}

} // namespace
} // namespace refold::algebra::test
