// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Separate.h"

#include <algorithm>
#include <cmath>

namespace refold::algebra {

// Law `deferred-normalisation`: Σ_l Σ_k G_k(x_l)·H_k(δ) = Σ_k H_k(δ)·Σ_l
// G_k(x_l), so the H_k wait for the end of the row.

/// Integer powers of sums that are multiplied out.
static constexpr int64_t kMaxPower = 8;
static const double kLn2 = std::log(2.0);

//===----------------------------------------------------------------------===//
// Scope
//===----------------------------------------------------------------------===//

Dependence Scope::of(Expr root) {
  if (auto it = memo.find(root); it != memo.end())
    return it->second;
  forEachNode(root, [&](Expr e) {
    if (memo.contains(e))
      return;
    unsigned bits = e.indices() & stream ? 1 : 0;
    if (e.isSym() && varying.contains(e))
      bits |= 2;
    for (unsigned i = 0; i < e.size(); ++i)
      bits |= unsigned(memo.at(e.operand(i))) & 2;
    memo[e] = Dependence(bits);
  });
  return memo.at(root);
}

void Scope::addVarying(Expr symbol) {
  varying.insert(symbol);
  memo.clear();
}

//===----------------------------------------------------------------------===//
// LinearSum
//===----------------------------------------------------------------------===//

void LinearSum::add(Expr value, double coefficient, const Monomial &scale) {
  if (coefficient == 0 || value.isConstant(0))
    return;
  for (Piece &piece : pieces)
    if (piece.value == value && piece.scale == scale) {
      piece.coefficient += coefficient;
      if (piece.coefficient == 0)
        std::erase_if(pieces, [](const Piece &p) { return !p.coefficient; });
      return;
    }
  pieces.push_back({coefficient, scale, value});
}

LinearSum LinearSum::scaled(double coefficient, const Monomial &scale) const {
  LinearSum result = *this;
  for (Piece &piece : result.pieces) {
    piece.coefficient *= coefficient;
    piece.scale = piece.scale * scale;
  }
  return result;
}

void LinearSum::append(const LinearSum &other) {
  for (const Piece &piece : other.pieces)
    add(piece.value, piece.coefficient, piece.scale);
}

Poly LinearSum::normal(Normaliser &normaliser) const {
  Poly result;
  for (const Piece &piece : pieces)
    result = result + normaliser.normal(piece.value) *
                          Poly::monomial(piece.scale, piece.coefficient);
  return result;
}

Expr LinearSum::toExpr(Context &context, Type type) const {
  Expr result;
  for (const Piece &piece : pieces) {
    bool isNegative = piece.coefficient < 0;
    double magnitude = std::abs(piece.coefficient);
    Expr part = multiplied(context, piece.value, piece.scale, magnitude, type);
    if (!result)
      result = isNegative ? context.neg(part) : part;
    else
      result =
          isNegative ? context.sub(result, part) : context.add(result, part);
  }
  return result ? result : context.real(0, type);
}

//===----------------------------------------------------------------------===//
// Terms
//===----------------------------------------------------------------------===//

std::nullopt_t Separator::fail(const char *reason, Expr node,
                               std::string text) {
  if (!reject.reason) // the innermost is the most telling
    reject = {reason, node, std::move(text)};
  return std::nullopt;
}

bool Separator::dependsOnX(const Term &term) const {
  bool result = !term.g.isOne() || !term.translates.empty() ||
                !term.xGuards.empty() || !term.casts.empty();
  for (const LinearSum::Piece &piece : term.ex.all())
    result |= scope.hasX(piece.value);
  return result;
}

bool Separator::dependsOnD(const Term &term) const {
  bool result =
      !term.translates.empty() || !term.ed.isZero() || !term.casts.empty();
  for (const Monomial *own : {&term.h, &term.inner})
    for (const auto &[atom, exponent] : own->factors())
      result |= scope.hasD(atom);
  for (const std::vector<Expr> *guards : {&term.xGuards, &term.dGuards})
    for (Expr guard : *guards)
      result |= scope.hasD(guard);
  return result;
}

Expr Separator::toExpr(const Term &term) {
  Expr factor;
  if (!term.ex.empty() || !term.ed.isZero()) {
    Expr exponent = term.ex.toExpr(context, type);
    if (!term.ed.isZero())
      exponent =
          term.ex.empty()
              ? algebra::toExpr(context, term.ed, type)
              : context.sub(exponent,
                            algebra::toExpr(context, term.ed.scaled(-1), type));
    factor = context.exp(exponent);
  }
  for (auto [number, power] : term.translates) {
    const Translate &own = translates[number];
    Expr moved =
        context.sub(own.x.toExpr(context, type),
                    algebra::toExpr(context, own.delta.scaled(-1), type));
    for (unsigned i = 0; i < power; ++i)
      factor = factor ? context.mul(factor, moved) : moved;
  }
  bool isGuarded = !term.xGuards.empty();
  Expr value = multiplied(context, factor,
                          isGuarded ? term.g * term.inner : term.g * term.h,
                          term.coefficient, type);
  for (const std::vector<Expr> *guards : {&term.xGuards, &term.dGuards})
    for (Expr guard : *guards)
      value = context.select(guard, value, context.real(0, type));
  Monomial outside = isGuarded ? term.outer * term.h : term.outer;
  if (!outside.isOne())
    value = multiplied(context, value, outside, 1, type);
  return value;
}

/// Sorted union; nothing if it holds a condition and its negation.
static std::optional<std::vector<Expr>> joined(Context &context,
                                               const std::vector<Expr> &a,
                                               const std::vector<Expr> &b) {
  std::vector<Expr> result;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(),
                 std::back_inserter(result));
  for (Expr guard : result)
    if (std::binary_search(result.begin(), result.end(),
                           context.logicalNot(guard)))
      return std::nullopt;
  return result;
}

/// Adds the terms that differ in their coefficient only.
std::vector<Term> Separator::combined(Terms terms) {
  Terms result;
  std::vector<Poly> exponents;
  for (Term &term : terms) {
    Poly exponent = term.ex.normal(normaliser);
    bool isMerged = false;
    for (size_t i = 0; i < result.size() && !isMerged; ++i) {
      Term &other = result[i];
      if (!(other.g == term.g && other.outer == term.outer &&
            other.h == term.h && other.inner == term.inner &&
            other.ed == term.ed && other.translates == term.translates &&
            other.xGuards == term.xGuards && other.dGuards == term.dGuards &&
            other.casts == term.casts && exponents[i] == exponent))
        continue;
      other.coefficient += term.coefficient;
      isMerged = true;
    }
    if (isMerged)
      continue;
    result.push_back(std::move(term));
    exponents.push_back(std::move(exponent));
  }
  std::erase_if(result, [](const Term &t) { return t.coefficient == 0; });
  return result;
}

std::vector<Term> Separator::scaled(Terms terms, double coefficient,
                                    const Monomial &scale) {
  for (Term &term : terms) {
    term.coefficient *= coefficient;
    term.h = term.h * scale;
  }
  if (coefficient == 0)
    terms.clear();
  return terms;
}

std::optional<std::vector<Term>>
Separator::multiply(const Terms &a, const Terms &b, Expr node) {
  if (a.size() * b.size() > size_t(budget) * 4)
    return fail(reason::rankBudget, node, "a product of too many terms");
  Terms result;
  for (const Term &x : a)
    for (const Term &y : b) {
      auto xGuards = joined(context, x.xGuards, y.xGuards);
      auto dGuards = joined(context, x.dGuards, y.dGuards);
      if (!xGuards || !dGuards)
        continue;
      Term term = x;
      term.coefficient *= y.coefficient;
      bool isGuarded = !xGuards->empty();
      term.g = {};
      term.outer = x.outer * y.outer;
      for (const Term *factor : {&x, &y})
        if (isGuarded && factor->xGuards.empty())
          term.outer = term.outer * factor->g;
        else
          term.g = term.g * factor->g;
      term.h = x.h * y.h;
      term.inner = x.inner * y.inner;
      if (!term.g.isSmall() || !term.h.isSmall() || !term.inner.isSmall())
        return fail(reason::rankBudget, node, "a power too large to keep");
      for (auto [number, power] : y.translates)
        term.translates[number] += power;
      term.ex.append(y.ex);
      term.casts.insert(term.casts.end(), y.casts.begin(), y.casts.end());
      std::sort(term.casts.begin(), term.casts.end());
      term.ed = x.ed + y.ed;
      term.xGuards = std::move(*xGuards);
      term.dGuards = std::move(*dGuards);
      result.push_back(std::move(term));
    }
  result = combined(std::move(result));
  if (result.size() > budget)
    return fail(reason::rankBudget, node,
                "more than " + std::to_string(budget) + " separate terms");
  return result;
}

Term Separator::translated(LinearSum x, Poly delta) {
  Term term;
  Poly xNormal = x.normal(normaliser);
  // (m - x) and (x - m) are one translate.
  if (!xNormal.isZero() && xNormal.all().begin()->second < 0) {
    x = x.scaled(-1);
    xNormal = xNormal.scaled(-1);
    delta = delta.scaled(-1);
    term.coefficient = -1;
  }
  for (size_t i = 0; i < translates.size(); ++i)
    if (translates[i].xNormal == xNormal && translates[i].delta == delta) {
      term.translates[unsigned(i)] = 1;
      return term;
    }
  term.translates[unsigned(translates.size())] = 1;
  translates.push_back({std::move(x), std::move(xNormal), std::move(delta)});
  return term;
}

unsigned Separator::untranslated(Expr x) {
  LinearSum sum;
  sum.add(x);
  const Poly &normal = normaliser.normal(x);
  for (size_t i = 0; i < translates.size(); ++i)
    if (translates[i].xNormal == normal && translates[i].delta.isZero())
      return unsigned(i);
  translates.push_back({std::move(sum), normal, {}});
  return unsigned(translates.size() - 1);
}

/// Multiplies out (t + e)^k for the places that know no frame.
std::optional<std::vector<Term>> Separator::withoutTranslates(const Term &term,
                                                              Expr node) {
  Term rest = term;
  rest.translates.clear();
  Terms result{rest};
  for (auto [number, power] : term.translates) {
    Terms sum;
    Term x, d;
    x.g.multiply(translates[number].x.toExpr(context, type), rational(1));
    d.h.multiply(algebra::toExpr(context, translates[number].delta, type),
                 rational(1));
    sum = {x, d};
    for (unsigned i = 0; i < power; ++i) {
      std::optional<Terms> next = multiply(result, sum, node);
      if (!next)
        return std::nullopt;
      result = std::move(*next);
    }
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Structural recursion
//===----------------------------------------------------------------------===//

std::optional<std::vector<Term>> Separator::separate(Expr e) {
  steps = 0;
  reject = {};
  if (scope.isMixed(e) && !isFloat(e.type()))
    return fail(reason::nonRepresentative, e,
                "integer arithmetic on a running value");
  std::optional<Terms> terms = visit(e);
  if (terms && terms->size() > budget)
    return fail(reason::rankBudget, e,
                "more than " + std::to_string(budget) + " separate terms");
  return terms;
}

std::optional<std::vector<Term>> Separator::visit(Expr e) {
  if (auto it = memo.find(e); it != memo.end())
    return it->second;
  if (++steps > kMaxSteps)
    return fail(reason::rankBudget, e, "a term too large to separate");
  std::optional<Terms> terms = compute(e);
  if (terms)
    memo[e] = *terms;
  return terms;
}

std::optional<std::vector<Term>> Separator::atom(Expr e) {
  Term term;
  (scope.hasX(e) ? term.g : term.h).multiply(e, rational(1));
  return Terms{term};
}

std::optional<std::vector<Term>> Separator::compute(Expr e) {
  switch (e.kind()) {
  case Kind::Const: {
    double value = *e.constant();
    Term term;
    if (!std::isfinite(value)) {
      // On the side of the elements: no element, no infinity.
      term.g.multiply(e, rational(1));
      return Terms{term};
    }
    term.coefficient = value;
    return value == 0 ? Terms{} : Terms{term};
  }
  case Kind::Sym:
    return atom(e);
  case Kind::Neg: {
    std::optional<Terms> terms = visit(e.operand(0));
    return terms ? std::optional(scaled(*terms, -1, {})) : std::nullopt;
  }
  case Kind::Mul: {
    std::optional<Terms> a = visit(e.operand(0));
    std::optional<Terms> b = a ? visit(e.operand(1)) : std::nullopt;
    return b ? multiply(*a, *b, e) : std::nullopt;
  }
  case Kind::Div: {
    std::optional<Terms> a = visit(e.operand(0));
    std::optional<Terms> b =
        a ? power(e, e.operand(1), rational(-1)) : std::nullopt;
    return b ? multiply(*a, *b, e) : std::nullopt;
  }
  case Kind::Pow:
    return power(e, e.operand(0), e->exponent);
  case Kind::Add:
  case Kind::Sub:
    if (scope.isMixed(e) || hasFreeExp(e))
      return sum(e);
    return atom(e);
  case Kind::Fn:
    if (e.is(Fn::Exp))
      return exponential(e.operand(0), 1);
    if (e.is(Fn::Exp2))
      return exponential(e.operand(0), kLn2);
    if (e.is(Fn::Sqrt))
      return power(e, e.operand(0), rational(1, 2));
    if (e.is(Fn::Rsqrt))
      return power(e, e.operand(0), rational(-1, 2));
    if (e.is(Fn::Log) || e.is(Fn::Log2))
      return scope.hasD(e) ? sum(e) : atom(e);
    return scope.isMixed(e) ? function(e) : atom(e);
  case Kind::Select:
    return scope.isMixed(e) || hasFreeExp(e) ? choice(e) : atom(e);
  default:
    break;
  }
  if (!scope.isMixed(e))
    return atom(e);
  switch (e.kind()) {
  case Kind::Max:
  case Kind::Min:
  case Kind::MaxNum:
  case Kind::MinNum:
    return extremum(e);
  case Kind::Contract:
    return contraction(e);
  case Kind::Cast: {
    Expr operand = e.operand(0);
    if (operand.type() == Type::Bool)
      return chosen(operand, context.real(1, type), context.real(0, type));
    if (isExactConversion(operand.type(), e.type()) && isFloat(operand.type()))
      return visit(operand);
    if (Expr distance = castDistance(e))
      return visit(distance);
    return rounded(e);
  }
  default:
    return fail(reason::mixedCompare, e, "a predicate of a running value");
  }
}

/// Some summand or factor is an exponential of an element, which needs a pivot.
bool Separator::hasFreeExp(Expr root) {
  ExprSet seen;
  std::vector<Expr> pending{root};
  while (!pending.empty()) {
    Expr e = pending.back();
    pending.pop_back();
    if (!seen.insert(e).second || !scope.hasX(e))
      continue;
    if (e.is(Fn::Exp) || e.is(Fn::Exp2))
      return true;
    switch (e.kind()) {
    case Kind::Add:
    case Kind::Sub:
    case Kind::Mul:
    case Kind::Div:
    case Kind::Neg:
    case Kind::Pow:
      for (unsigned i = 0; i < e.size(); ++i)
        pending.push_back(e.operand(i));
      break;
    case Kind::Select:
      pending.push_back(e.operand(1));
      pending.push_back(e.operand(2));
      break;
    default:
      break;
    }
  }
  return false;
}

std::optional<std::vector<Term>> Separator::power(Expr e, Expr base,
                                                  Rational exponent) {
  auto whole = [&] {
    Term term;
    (scope.hasX(base) ? term.g : term.h).multiply(base, exponent);
    return Terms{term};
  };
  if (exponent.num == 0) // of NaN too
    return Terms{Term{}};
  Monomial probe(base, exponent);
  if (!probe.isSmall())
    return fail(reason::rankBudget, e, "a power too large to keep");
  bool isMixed = scope.isMixed(base);
  if (!isMixed && (!exponent.isInteger() || base.is(Kind::Add) ||
                   base.is(Kind::Sub) || base.is(Kind::Select)))
    return whole();
  std::optional<Terms> terms = visit(base);
  if (!terms)
    return std::nullopt;
  bool isSingle = terms->size() == 1 && (*terms)[0].translates.empty();
  if (!isMixed && !isSingle)
    return whole();
  bool isRounded =
      terms && std::any_of(terms->begin(), terms->end(),
                           [](const Term &t) { return !t.casts.empty(); });
  if (isRounded &&
      (!exponent.isInteger() || exponent.num < 0 || exponent.num > kMaxPower))
    return fail(reason::mixedCast, e,
                "a rounded running value below a fraction or a root");
  if (isSingle && exponent.num < 0 &&
      !((*terms)[0].xGuards.empty() && (*terms)[0].dGuards.empty()))
    return isMixed ? fail(reason::guardMixed, base, "a divisor with a guard")
                   : std::optional(whole());
  if (isSingle) {
    Term term = (*terms)[0];
    bool isSigned = exponent.isInteger() ||
                    facts.isNonPositive(Poly::monomial(term.g, -1)) ||
                    facts.isNonPositive(Poly::monomial(term.h, -1));
    if (!exponent.isInteger() && (term.coefficient < 0 || !isSigned))
      return fail(reason::powOfSum, e,
                  "a root whose factors have no known sign");
    term.coefficient = std::pow(term.coefficient, exponent.value());
    term.g = term.g.raised(exponent);
    term.outer = term.outer.raised(exponent);
    term.h = term.h.raised(exponent);
    term.inner = term.inner.raised(exponent);
    term.ex = term.ex.scaled(exponent.value());
    term.ed = term.ed.scaled(exponent.value());
    std::vector<unsigned> once = term.casts;
    for (int64_t i = 1; i < exponent.num && !once.empty(); ++i)
      term.casts.insert(term.casts.end(), once.begin(), once.end());
    std::sort(term.casts.begin(), term.casts.end());
    if (!std::isfinite(term.coefficient) || !term.g.isSmall() ||
        !term.h.isSmall())
      return fail(reason::rankBudget, e, "a power too large to keep");
    return Terms{term};
  }
  if (!exponent.isInteger() || exponent.num < 0)
    return fail(reason::powOfSum, e,
                "a root or quotient of a sum of elements and running values");
  if (exponent.num > kMaxPower)
    return fail(reason::rankBudget, e, "a power too large to multiply out");
  Terms result{Term{}};
  for (int64_t i = 0; i < exponent.num; ++i) {
    std::optional<Terms> next = multiply(result, *terms, e);
    if (!next)
      return std::nullopt;
    result = std::move(*next);
  }
  return result;
}

std::optional<std::vector<Term>> Separator::exponential(Expr argument,
                                                        double factor) {
  Term term;
  if (scope.of(argument) == Dependence::Neutral) {
    term.h.multiply(
        context.exp(multiplied(context, argument, {}, factor, type)),
        rational(1));
    return Terms{term};
  }
  std::optional<Split> parts = split(argument);
  if (!parts)
    return std::nullopt;
  bool hasElements = false;
  for (const LinearSum::Piece &piece : parts->x.all())
    hasElements |= scope.hasX(piece.value);
  if (hasElements) {
    term.ex = parts->x.scaled(factor);
    term.ed = parts->delta.scaled(factor);
  } else {
    term.ed = (parts->x.normal(normaliser) + parts->delta).scaled(factor);
  }
  return Terms{term};
}

std::optional<Separator::Split> Separator::split(Expr e) {
  LinearSum x, d;
  Terms mixed;
  if (!flatten(e, 1, {}, x, d, mixed))
    return std::nullopt;
  for (const Term &term : mixed)
    if (!settleLeftover(term, e, x, d))
      return std::nullopt;
  return Split{x, d.normal(normaliser)};
}

/// Puts a product to the side of a sum where it belongs, if there is one.
bool Separator::settleLeftover(const Term &term, Expr node, LinearSum &x,
                               LinearSum &d) {
  if (!dependsOnX(term)) {
    d.add(toExpr(term));
    return true;
  }
  if (!dependsOnD(term)) {
    x.add(toExpr(term));
    return true;
  }
  fail(reason::mixedExponent, node,
       "the exponent multiplies elements with a running value, and "
       "exponentials of different products are independent");
  return false;
}

bool Separator::flatten(Expr e, double coefficient, const Monomial &scale,
                        LinearSum &x, LinearSum &d, Terms &mixed) {
  if (++steps > kMaxSteps) {
    fail(reason::rankBudget, e, "a term too large to separate");
    return false;
  }
  Dependence dependence = scope.of(e);
  if (dependence == Dependence::Neutral || dependence == Dependence::X) {
    x.add(e, coefficient, scale);
    return true;
  }
  auto below = [&](unsigned i, double factor, const Monomial &by) {
    return flatten(e.operand(i), coefficient * factor, scale * by, x, d, mixed);
  };
  switch (e.kind()) {
  case Kind::Add:
    return below(0, 1, {}) && below(1, 1, {});
  case Kind::Sub:
    return below(0, 1, {}) && below(1, -1, {});
  case Kind::Neg:
    return below(0, -1, {});
  case Kind::Mul:
  case Kind::Div:
    for (unsigned i = e.is(Kind::Div) ? 1 : 0; i < 2; ++i) {
      if (scope.of(e.operand(i)) != Dependence::Neutral)
        continue;
      const Poly &neutral = normaliser.normal(e.operand(i));
      const auto *factor = neutral.single();
      Rational sign = e.is(Kind::Div) ? rational(-1) : rational(1);
      Monomial by =
          factor ? factor->first.raised(sign) : Monomial(e.operand(i), sign);
      double value = factor ? std::pow(factor->second, sign.value()) : 1.0;
      if (std::isfinite(value) && value != 0 && (scale * by).isSmall())
        return below(1 - i, value, by);
    }
    break;
  case Kind::Fn:
    if (e.is(Fn::Log) || e.is(Fn::Log2))
      return flattenLog(e, e.is(Fn::Log2) ? coefficient / kLn2 : coefficient,
                        scale, x, d);
    break;
  default:
    break;
  }
  if (dependence == Dependence::D) {
    d.add(e, coefficient, scale);
    return true;
  }
  std::optional<Terms> terms = visit(e);
  if (!terms)
    return false;
  for (Term &term : scaled(*terms, coefficient, scale))
    mixed.push_back(std::move(term));
  return true;
}

/// log(c·g·h·e^(ex + ed)) = log c + log g + log h + ex + ed.
bool Separator::flattenLog(Expr e, double coefficient, const Monomial &scale,
                           LinearSum &x, LinearSum &d) {
  std::optional<Terms> terms = visit(e.operand(0));
  bool isPure = !scope.isMixed(e);
  bool isSingle = terms && terms->size() == 1 &&
                  (*terms)[0].translates.empty() &&
                  (*terms)[0].xGuards.empty() && (*terms)[0].dGuards.empty() &&
                  (*terms)[0].casts.empty();
  const Term *term = isSingle ? &(*terms)[0] : nullptr;
  if (term && (term->coefficient < 0 ||
               !(term->g.isOne() || term->h.isOne() ||
                 facts.isNonPositive(Poly::monomial(term->g, -1)) ||
                 facts.isNonPositive(Poly::monomial(term->h, -1)))))
    term = nullptr;
  if (isPure && (!term || (term->ed.isZero() && term->ex.empty()))) {
    // Nothing to gain: keep what was written.
    reject = {};
    d.add(context.log(e.operand(0)), coefficient, scale);
    return true;
  }
  if (!term) {
    fail(reason::powOfSum, e,
         "the logarithm of a sum of elements and running values");
    return false;
  }
  if (term->coefficient != 1)
    x.add(context.real(std::log(term->coefficient), type), coefficient, scale);
  auto addLog = [&](const Monomial &m, LinearSum &side) {
    if (m.isOne())
      return;
    auto [atom, exponent] = m.factors().front();
    bool isOdd = exponent.isInteger() && exponent.num % 2 != 0;
    if (m.factors().size() == 1 && isOdd)
      side.add(context.log(atom), coefficient * exponent.value(), scale);
    else
      side.add(context.log(algebra::toExpr(context, m, 1, type)), coefficient,
               scale);
  };
  addLog(term->g, x);
  addLog(term->h, d);
  x.append(term->ex.scaled(coefficient, scale));
  if (!term->ed.isZero())
    d.add(algebra::toExpr(context, term->ed, type), coefficient, scale);
  return true;
}

std::optional<std::vector<Term>> Separator::sum(Expr e) {
  LinearSum x, d;
  Terms terms;
  if (!flatten(e, 1, {}, x, d, terms))
    return std::nullopt;
  bool hasElements = false, hasExp = false;
  for (const LinearSum::Piece &piece : x.all()) {
    hasElements |= scope.hasX(piece.value);
    hasExp |= hasFreeExp(piece.value);
  }
  if (hasElements && !d.empty() && !hasExp) {
    terms.push_back(translated(x, d.normal(normaliser)));
    return combined(std::move(terms));
  }
  auto addSide = [&](const LinearSum &side) {
    // Parts that need no pivot stay one atom, as written.
    LinearSum rest;
    for (const LinearSum::Piece &piece : side.all()) {
      if (side.all().size() > 1 && !hasFreeExp(piece.value) &&
          !piece.value.is(Kind::Const)) {
        rest.add(piece.value, piece.coefficient, piece.scale);
        continue;
      }
      std::optional<Terms> own =
          piece.value == e ? atom(e) : visit(piece.value);
      if (!own)
        return false;
      for (Term &term : scaled(*own, piece.coefficient, piece.scale))
        terms.push_back(std::move(term));
    }
    if (rest.all().size() == 1) {
      const LinearSum::Piece &piece = rest.all()[0];
      std::optional<Terms> own =
          piece.value == e ? atom(e) : visit(piece.value);
      if (!own)
        return false;
      for (Term &term : scaled(*own, piece.coefficient, piece.scale))
        terms.push_back(std::move(term));
    } else if (!rest.empty()) {
      Terms whole = *atom(rest.toExpr(context, type));
      terms.insert(terms.end(), whole.begin(), whole.end());
    }
    return true;
  };
  if (!addSide(x) || !addSide(d))
    return std::nullopt;
  return combined(std::move(terms));
}

} // namespace refold::algebra
