// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Property: any cascade is derived or cut without a crash, and a program whose
// certificate holds is right on other rows too. The bytes choose the cascade;
// about half of the choices are of forms that fuse.
#include "refold/Algebra/Certify.h"
#include "refold/Algebra/Formula.h"

#include <cstdio>
#include <cstdlib>

using namespace refold::algebra;

namespace {
class Maker {
public:
  Maker(const uint8_t *data, size_t size)
      : data(data), size(size), cascade(context) {}

  void make() {
    unsigned n = cascade.addIndex("n", IndexRole::Stream, choose(4) ? -1 : 7);
    unsigned e = cascade.addIndex("e", IndexRole::Carried);
    unsigned d = cascade.addIndex("d", IndexRole::Inner);
    IndexSet stream = IndexSet(1) << n;
    length = cascade.indices[n].length;
    leaves = {cascade.addRead("x", stream), cascade.addRead("y", stream)};
    Facts positive;
    positive.nonNegative = true;
    leaves.push_back(cascade.addRead("w", stream, Type::F32, positive));
    leaves.push_back(cascade.addRead("v", stream | IndexSet(1) << e));
    Expr q = cascade.addRead("q", IndexSet(1) << d);
    Expr k = cascade.addRead("k", stream | IndexSet(1) << d);
    leaves.push_back(context.contract(IndexSet(1) << d, context.mul(q, k)));
    leaves.push_back(cascade.addRead("T", 0));
    leaves.push_back(cascade.indices[n].value);
    mask = cascade.addRead("mask", stream, Type::Bool);
    for (unsigned stages = 1 + choose(5); stages > 0; --stages)
      addStage();
    for (unsigned outputs = 1 + choose(2); outputs > 0; --outputs)
      cascade.addOutput("o" + std::to_string(outputs),
                        choose(4) ? overResults(3) : term(2));
  }

  const uint8_t *data;
  size_t size;
  Context context;
  Cascade cascade;

private:
  unsigned choose(unsigned bound) {
    if (size == 0)
      return 0;
    --size;
    return *data++ % bound;
  }
  template <typename T> T pick(const std::vector<T> &list) {
    return list[choose(unsigned(list.size()))];
  }

  Expr constant() {
    static const double values[] = {0, 1, 2, 0.5, -1, 3, 0.1, 1e-5};
    if (choose(8) == 0)
      return context.real(-std::numeric_limits<double>::infinity());
    return context.real(values[choose(8)]);
  }

  Expr result() { return results.empty() ? constant() : pick(results); }

  Expr element() { return choose(3) ? leaves[choose(3)] : pick(leaves); }

  /// A part that separations see often.
  Expr idiom(unsigned depth) {
    static const Fn circular[] = {Fn::Sin, Fn::Cos, Fn::Sinh, Fn::Cosh};
    switch (choose(10)) {
    case 0:
      return context.exp(context.sub(element(), result()));
    case 1:
      return context.sub(element(), context.div(result(), length));
    case 2:
      return context.pow(context.sub(element(), result()),
                         {int64_t(1 + choose(4)), 1});
    case 3:
      return context.div(term(depth), result());
    case 4:
      return context.mul(term(depth), element());
    case 5:
      return context.select(mask, term(depth), constant());
    case 6:
      return context.pow(context.sub(element(), context.div(result(), length)),
                         {2, 1});
    case 7: // a question of ties, where the result is an extreme
      return context.select(context.cmp(Pred(choose(6)), element(), result()),
                            term(depth), constant());
    case 8:
      return context.fn(circular[choose(4)],
                        context.sub(element(), context.div(result(), length)));
    default:
      return context.fn(Fn::Abs, context.sub(element(), result()));
    }
  }

  Expr any(unsigned depth, const std::function<Expr()> &part) {
    Expr a = part();
    switch (choose(14)) {
    case 0:
      return context.add(a, part());
    case 1:
      return context.sub(a, part());
    case 2:
    case 3:
      return context.mul(a, part());
    case 4:
      return context.div(a, part());
    case 5:
      return context.pow(a, rational(int64_t(choose(7)) - 3, 1 + choose(2)));
    case 6:
      return context.fn(Fn(choose(unsigned(Fn::PowFn))), asReal(a));
    case 7:
      return context.max(a, part());
    case 8:
      return context.min(a, part());
    case 9:
      return context.select(context.cmp(Pred(choose(6)), a, part()), part(),
                            part());
    case 10:
      return context.cast(choose(2) ? Type::F16 : Type::F8E4M3, asReal(a));
    case 11:
      return context.exp(a);
    case 12:
      return context.log(a);
    default:
      return context.neg(a);
    }
  }

  /// Functions of integers and truth values are of no interest here.
  Expr asReal(Expr e) {
    return isFloat(e.type()) ? e : context.add(e, context.real(0.25));
  }

  Expr term(unsigned depth) {
    if (depth == 0)
      return choose(3) == 0 ? result() : choose(4) ? element() : constant();
    if (choose(2))
      return asReal(idiom(depth - 1));
    return asReal(any(depth - 1, [&] { return asReal(term(depth - 1)); }));
  }

  Expr overResults(unsigned depth) {
    if (depth == 0)
      return choose(3) ? result() : constant();
    return asReal(any(depth - 1, [&] { return overResults(depth - 1); }));
  }

  void addStage() {
    static const Reducer reducers[] = {
        Reducer::Sum, Reducer::Sum, Reducer::Sum,    Reducer::Max,
        Reducer::Max, Reducer::Min, Reducer::MaxNum, Reducer::Prod,
        Reducer::Any, Reducer::TopK};
    Reducer reducer = reducers[choose(10)];
    Expr value = choose(3) ? term(2) : asReal(element());
    std::string name = "r" + std::to_string(cascade.stages.size());
    if (reducer == Reducer::Any) {
      value = context.cmp(Pred(choose(6)), value, result());
    } else if (reducer == Reducer::TopK) {
      auto made = cascade.addTopK(name, value, {element()}, 1, choose(2), -1);
      results.push_back(made[choose(2)]);
      return;
    }
    Expr made = cascade.addStage(name, reducer, value);
    if (reducer != Reducer::Any)
      results.push_back(made);
  }

  Expr length, mask;
  std::vector<Expr> leaves, results;
};
} // namespace

static void require(bool condition, const char *what, const std::string &text) {
  if (condition)
    return;
  std::fprintf(stderr, "property broken: %s\n%s\n", what, text.c_str());
  std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Maker maker(data, size);
  maker.make();
  Derivation derivation = derive(maker.cascade);
  if (!derivation.program)
    return 0;
  std::string text = describe(maker.cascade, derivation, Charset::Ascii).str();
  for (const Cut &cut : derivation.program->cuts)
    rankEvidence(maker.cascade, *derivation.program, cut, 6);
  CertifyOptions first;
  first.rowLength = 6;
  first.edgeRows = 40;
  Certificate certificate = certify(maker.cascade, derivation, first);
  if (std::getenv("REFOLD_FUZZ_SHOW") && !certificate.holds)
    std::printf("%s%s\n\n", text.c_str(), certificate.summary().c_str());
  if (!certificate.holds)
    return 0;
  CertifyOptions second;
  second.seed = 4711;
  second.rowLength = 14;
  second.edgeRows = 0;
  second.tolerance = 1e-6;
  // Random formulas of extreme values lose all digits in the definition too.
  second.extremeValues = false;
  Certificate again = certify(maker.cascade, derivation, second);
  require(again.holds, "a certified program is right on other rows",
          text + again.summary());
  return 0;
}
