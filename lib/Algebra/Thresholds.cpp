// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Law `threshold-by-list`: a sum over the elements with u >= θ(δ) is one over
// the list of the K largest u, if the K-th of them is not in the set. Rows
// where it is are summed again as written, in a pass that others leave out.
#include "Features.h"

#include <algorithm>

namespace refold::algebra {

namespace {
/// The set that a term is summed over, and what it reads of its elements.
struct UpSet {
  Expr condition;
  Feature member; ///< the condition as a function of the feature
  Expr summand;   ///< the term, over the feature's variable
  std::vector<Expr> payloads;
};

class ThresholdFinder {
public:
  ThresholdFinder(Builder &builder, Scope &scope, Expr term)
      : builder(builder), context(builder.context), scope(scope), term(term) {}
  std::optional<UpSet> find();

private:
  /// A list has rows and ranks only.
  bool fitsInList(Expr e) const {
    return !(e.indices() & ~builder.cascade.stream() &
             ~builder.cascade.indicesOf(IndexRole::Row));
  }
  bool isNothingWithout(Expr condition);
  bool isNearExtreme(const Feature &member);
  bool isRelative(Expr e, const Poly &distance);
  bool takePayloads(UpSet &set);

  Builder &builder;
  Context &context;
  Scope &scope;
  Expr term;
};
} // namespace

/// The term adds nothing where the condition is false.
bool ThresholdFinder::isNothingWithout(Expr condition) {
  Expr outside =
      substitute(context, term, {{condition, context.boolean(false)}});
  return outside.isConstant(0);
}

/// e moves with the distance of a feature from its extreme, not with either:
/// `distance` is u - m in normal form.
bool ThresholdFinder::isRelative(Expr e, const Poly &distance) {
  std::vector<Expr> ends = distance.atoms();
  auto readsEnd = [&](Expr part) {
    return std::any_of(ends.begin(), ends.end(),
                       [&](Expr end) { return contains(part, end); });
  };
  auto isShifted = [&](const Poly &normal) {
    const auto &[leading, unit] = *distance.all().begin();
    Poly rest = normal - distance.scaled(normal.coefficientOf(leading) / unit);
    std::vector<Expr> atoms = rest.atoms();
    return std::none_of(atoms.begin(), atoms.end(), readsEnd);
  };
  if (!readsEnd(e))
    return true;
  if (e.is(Kind::Cmp) && isFloat(e.operand(0).type()) &&
      isShifted(builder.normaliser.normal(e.operand(0)) -
                builder.normaliser.normal(e.operand(1))))
    return true;
  if (isFloat(e.type()) && isShifted(builder.normaliser.normal(e)))
    return true;
  if (e.size() == 0)
    return false;
  for (unsigned i = 0; i < e.size(); ++i)
    if (!isRelative(e.operand(i), distance))
      return false;
  return true;
}

/// Elements count by their distance from the best one: they are few. Those
/// above a mean are half of the row, of which no list has room for all.
bool ThresholdFinder::isNearExtreme(const Feature &member) {
  Poly feature = builder.normaliser.normal(member.feature);
  bool wantsMax = member.shape == Shape::Increasing;
  for (const Extremal &fact : builder.facts.extremals()) {
    if (!fact.isAttained || fact.isMax != wantsMax ||
        !(fact.normal == feature) || !contains(member.function, fact.symbol))
      continue;
    if (isRelative(member.function,
                   Poly::atom(member.variable) - Poly::atom(fact.symbol)))
      return true;
  }
  return false;
}

/// What the summand reads of elements beside the feature goes along with it.
bool ThresholdFinder::takePayloads(UpSet &set) {
  const Feature &member = set.member;
  set.summand = substitute(context, term, {{member.feature, member.variable}});
  for (Expr symbol : symbolsOf(set.summand)) {
    if (symbol == member.variable || !scope.hasX(symbol))
      continue;
    if (symbol.type() == Type::Bool || !fitsInList(symbol))
      return false;
    set.payloads.push_back(symbol);
  }
  return true;
}

std::optional<UpSet> ThresholdFinder::find() {
  std::vector<Expr> conditions;
  forEachNode(term, [&](Expr e) {
    if (e.is(Kind::Cmp) && scope.isMixed(e))
      conditions.push_back(e);
  });
  for (Expr condition : conditions) {
    if (!isNothingWithout(condition))
      continue;
    std::optional<Feature> member =
        FeatureFinder(builder, scope, condition).find();
    if (!member || member->makesNan ||
        (member->shape != Shape::Increasing &&
         member->shape != Shape::Decreasing) ||
        !fitsInList(member->feature) || !isFloat(member->feature.type()) ||
        !isNearExtreme(*member))
      continue;
    UpSet set{condition, *member, {}, {}};
    if (takePayloads(set))
      return set;
  }
  return std::nullopt;
}

/// The K best by the feature with their payloads: results of the state, the
/// feature itself first.
std::vector<Expr> Builder::bestBy(const std::vector<Expr> &values,
                                  bool largest) {
  unsigned k = policy.thresholdList;
  std::vector<Expr> &known = lists[{values, largest}];
  if (!known.empty())
    return known;
  if (listRank < 0) {
    listRank = int(program.indices.size());
    std::string name = "rank";
    auto isTaken = [&](const Index &index) { return index.name == name; };
    while (std::any_of(program.indices.begin(), program.indices.end(), isTaken))
      name += "_";
    // The length is no constant, so that a certificate may use a short list.
    Expr length =
        context.symbol("len(" + name + ")", Role::Parameter, Type::Index, 0,
                       unsigned(listRank), {true, false, 0});
    Expr rank =
        context.symbol(name, Role::Index, Type::Index, IndexSet(1) << listRank,
                       unsigned(listRank), {true, false, 0});
    program.indices.push_back(
        {name, IndexRole::Rank, int64_t(k), rank, length});
  }
  State list;
  list.reducer = Reducer::TopK;
  list.k = k;
  list.rank = listRank;
  list.largest = largest;
  list.values = values;
  addState(std::move(list), "best");
  return known = std::get<State>(program.definitions.back()).results;
}

bool Builder::deriveThreshold(unsigned number, Expr term,
                              const std::function<Expr()> *finalTerm,
                              unsigned pass) {
  const Stage &stage = cascade.stages[number];
  Scope scope = scopeOf(pass);
  if (stage.reducer != Reducer::Sum || !isForOutputsOnly(number) ||
      program.indices.size() >= 64)
    return false;
  std::optional<UpSet> set = ThresholdFinder(*this, scope, term).find();
  if (!set || !finalTerm)
    return bool(set);
  listed = set->condition;
  bool largest = set->member.shape == Shape::Increasing;
  std::vector<Expr> values = {set->member.feature};
  values.insert(values.end(), set->payloads.begin(), set->payloads.end());
  std::vector<Expr> best = bestBy(values, largest);
  ExprMap places = {{set->member.variable, best[0]}};
  for (size_t i = 0; i < set->payloads.size(); ++i)
    places[set->payloads[i]] = best[i + 1];

  const Index &rank = program.indices[size_t(listRank)];
  IndexSet ranks = IndexSet(1) << listRank;
  Type type = stage.results[0].type();
  Expr sum = context.contract(
      ranks, context.cast(type, substitute(context, set->summand, places)));
  // The last of the list is in the set, or has no place in the order.
  Expr isMember = substitute(context, set->member.function, places);
  Expr isLast =
      context.cmp(Pred::Eq, rank.value,
                  context.sub(rank.length, context.integer(1, Type::Index)));
  Expr isOpen = context.logicalAnd(
      isLast,
      context.logicalOr(isMember, context.cmp(Pred::Ne, best[0], best[0])));
  Expr isShort = context.cmp(
      Pred::Gt,
      context.contract(
          ranks, context.select(isOpen, context.real(1), context.real(0))),
      context.real(0));
  Expr &flag = shortLists[isShort];
  if (!flag)
    flag = addLet(isShort, "short");

  Expr again = context.select(flag, context.cast(type, (*finalTerm)()),
                              identity(context, Reducer::Sum, type));
  Expr repaired = state(Reducer::Sum, again, stage.name + ".again");
  repairs.insert(repaired);
  Expr result = addLet(sum, stage.name + ".listed");
  rawReadout[stage.results[0]] = context.select(flag, repaired, result);
  return true;
}

} // namespace refold::algebra
