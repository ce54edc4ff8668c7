// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CertifyField.h"
#include "refold/Support/SplitMix64.h"

#include <bit>
#include <cmath>

namespace refold::algebra::certifier {

template <uint64_t Modulus> uint64_t Field<Modulus>::fromDouble(double value) {
  int exponent = 0;
  int64_t digits = int64_t(std::ldexp(std::frexp(value, &exponent), 53));
  exponent -= 53;
  uint64_t scale = pow(2, uint64_t(std::abs(exponent)));
  return mul(fromInteger(digits), exponent < 0 ? inverse(scale) : scale);
}
template struct Field<kPrime>;
template struct Field<kHalfPrime>;

/// Terms of an exponent beyond which it is read as one opaque number.
static constexpr size_t kMostTerms = 256;
/// The same for powers in it; their sums and products with 16 stay in range.
static constexpr int64_t kHighestPower = int64_t(1) << 40;

/// Kinds of random readings.
enum : uint64_t {
  SymbolKind = 1,
  ExpKind,
  Exp2Kind,
  LogKind,
  ConstantKind,
  CastKind,
  FunctionKind = 100 // + Fn
};

uint64_t FieldReader::random(uint64_t kind,
                             std::initializer_list<uint64_t> key) const {
  uint64_t hash = splitMix64(seed ^ splitMix64(kind));
  for (uint64_t part : key)
    hash = splitMix64(hash ^ part);
  return hash % (kPrime - 2) + 1;
}

/// +1 for squares, -1 for the others, 0.
static int character(uint64_t a) {
  uint64_t power = F::pow(a, kHalfPrime);
  return power == 0 ? 0 : power == 1 ? 1 : -1;
}

bool FieldReader::isLess(uint64_t a, uint64_t b) {
  return character(F::sub(b, a)) == 1;
}

static uint64_t magnitude(uint64_t a) {
  return character(a) < 0 ? F::neg(a) : a;
}

/// The square root that is a square itself, of |a|.
static uint64_t squareRoot(uint64_t a) {
  return F::pow(magnitude(a), (kPrime + 1) / 4);
}

uint64_t FieldReader::read(Expr e, const Environment &replaced) {
  environment = &replaced;
  known.clear();
  knownPolynomials.clear();
  return value(e);
}

uint64_t FieldReader::value(Expr e) {
  auto it = known.find(e);
  if (it != known.end())
    return it->second;
  uint64_t result = compute(e);
  known[e] = result;
  return result;
}

uint64_t FieldReader::symbolValue(Expr e) {
  const Symbol &symbol = e.symbol();
  auto it = environment->find(&symbol);
  if (it != environment->end())
    return it->second;
  uint64_t where = 0;
  for (size_t i = 0; i < extents.size(); ++i)
    if (symbol.indices >> i & 1)
      where = where * 64 + positions[i] + 1;
  uint64_t residue = random(SymbolKind, {symbol.id, where});
  if (symbol.type == Type::Bool)
    return residue & 1;
  return symbol.facts.nonNegative ? F::mul(residue, residue) : residue;
}

/// A symbol of the environment, which is a pivot, is inside.
bool FieldReader::isReplacedIn(Expr e) const {
  for (Expr symbol : symbolsOf(e))
    if (environment->count(&symbol.symbol()))
      return true;
  return false;
}

uint64_t FieldReader::compute(Expr e) {
  auto in = [&](unsigned i) { return value(e.operand(i)); };
  switch (e.kind()) {
  case Kind::Const: {
    double constant = *e.constant();
    if (!std::isfinite(constant))
      return random(ConstantKind, {std::bit_cast<uint64_t>(constant)});
    return e->integral ? F::fromInteger(e->integer) : F::fromDouble(constant);
  }
  case Kind::Sym:
    return symbolValue(e);
  case Kind::Add:
    return F::add(in(0), in(1));
  case Kind::Sub:
    return F::sub(in(0), in(1));
  case Kind::Mul:
    return F::mul(in(0), in(1));
  case Kind::Div:
    return F::mul(in(0), F::inverse(in(1)));
  case Kind::Neg:
    return F::neg(in(0));
  case Kind::Pow:
    return rationalPower(in(0), e->exponent);
  case Kind::Fn:
    return apply(e);
  case Kind::Max:
  case Kind::MaxNum:
    return isLess(in(0), in(1)) ? in(1) : in(0);
  case Kind::Min:
  case Kind::MinNum:
    return isLess(in(0), in(1)) ? in(0) : in(1);
  case Kind::Cmp:
    return compare(e);
  case Kind::And:
    return in(0) && in(1);
  case Kind::Or:
    return in(0) || in(1);
  case Kind::Not:
    return !in(0);
  case Kind::Select:
    return in(0) ? in(1) : in(2);
  case Kind::Cast:
    if (isFloat(e.type()) && !isFloat(e.operand(0).type()))
      return in(0); // values of integers stay
    // At a pivot: the identity holds up to the rounding, which rows execute.
    if (isReplacedIn(e))
      return in(0);
    return random(CastKind, {uint64_t(e.type()), in(0)});
  case Kind::Contract: {
    uint64_t total = 0;
    forEachPosition(e->contracted,
                    [&] { total = F::add(total, value(e.operand(0))); });
    return total;
  }
  }
  return 0;
}

void FieldReader::forEachPosition(IndexSet inner,
                                  const std::function<void()> &visit) {
  // Two positions tell a sum from anything else.
  auto outside = std::move(known);
  auto outsidePolynomials = std::move(knownPolynomials);
  std::vector<size_t> moving;
  for (size_t i = 0; i < extents.size(); ++i)
    if (inner >> i & 1)
      moving.push_back(i);
  for (uint64_t tuple = 0;
       tuple < uint64_t(1) << std::min<size_t>(moving.size(), 4); ++tuple) {
    for (size_t i = 0; i < moving.size(); ++i)
      positions[moving[i]] = uint32_t(tuple >> i & 1);
    known.clear();
    knownPolynomials.clear();
    visit();
  }
  for (size_t i : moving)
    positions[i] = 0;
  known = std::move(outside);
  knownPolynomials = std::move(outsidePolynomials);
}

bool FieldReader::compare(Expr e) {
  uint64_t a = value(e.operand(0)), b = value(e.operand(1));
  switch (e->pred) {
  case Pred::Lt:
    return isLess(a, b);
  case Pred::Le:
    return !isLess(b, a);
  case Pred::Gt:
    return isLess(b, a);
  case Pred::Ge:
    return !isLess(a, b);
  case Pred::Eq:
    return a == b;
  case Pred::Ne:
    return a != b;
  }
  return false;
}

uint64_t FieldReader::rationalPower(uint64_t base, Rational exponent) {
  if (exponent.isInteger()) {
    uint64_t power = F::pow(base, uint64_t(std::abs(exponent.num)));
    return exponent.num < 0 ? F::inverse(power) : power;
  }
  uint64_t residue =
      Exponent::mul(Exponent::fromInteger(exponent.num),
                    Exponent::inverse(Exponent::fromInteger(exponent.den)));
  return F::pow(magnitude(base), residue);
}

uint64_t FieldReader::apply(Expr e) {
  Expr argument = e.operand(0);
  auto a = [&] { return value(argument); };
  auto ofExp = [&](auto combine) {
    uint64_t up = exponential(ExpKind, argument);
    return combine(up, F::inverse(up));
  };
  uint64_t half = F::inverse(2);
  switch (e->fn) {
  case Fn::Exp:
    return exponential(ExpKind, argument);
  case Fn::Exp2:
    return exponential(Exp2Kind, argument);
  case Fn::Expm1:
    return F::sub(exponential(ExpKind, argument), 1);
  case Fn::Sigmoid: // 1 / (1 + e^-a)
    return ofExp(
        [&](uint64_t, uint64_t down) { return F::inverse(F::add(1, down)); });
  case Fn::Cosh:
    return ofExp([&](uint64_t up, uint64_t down) {
      return F::mul(half, F::add(up, down));
    });
  case Fn::Sinh:
    return ofExp([&](uint64_t up, uint64_t down) {
      return F::mul(half, F::sub(up, down));
    });
  case Fn::Log:
    return logarithm(argument);
  case Fn::Sqrt:
    return squareRoot(a());
  case Fn::Rsqrt:
    return F::inverse(squareRoot(a()));
  case Fn::Abs:
    return magnitude(a());
  case Fn::Floor:
  case Fn::Ceil:
  case Fn::Round:
    if (isReplacedIn(argument))
      return a(); // as casts
    break;
  case Fn::Sign: {
    int sign = character(a());
    return sign < 0 ? F::neg(1) : uint64_t(sign);
  }
  case Fn::Relu:
    return character(a()) > 0 ? a() : 0;
  case Fn::IsNan:
  case Fn::IsInf:
    return 0;
  default:
    break;
  }
  return random(FunctionKind + uint64_t(e->fn),
                {a(), arity(e->fn) == 2 ? value(e.operand(1)) : 0});
}

/// e^(sum c_M M) = product of E_M^(c_M), with a random square E_M for each
/// monomial M.
uint64_t FieldReader::exponential(uint64_t base, Expr argument) {
  uint64_t result = 1;
  for (const auto &[monomial, coefficient] : polynomial(argument)) {
    uint64_t root = random(base, {});
    for (auto [atom, power] : monomial)
      root = random(base, {root, atom, uint64_t(power)});
    result = F::mul(result, F::pow(F::mul(root, root), coefficient));
  }
  if (base == ExpKind)
    logarithms[result] = value(argument);
  return result;
}

/// log(c a^k b^l) = log c + k log a + l log b, log e^a = a.
uint64_t FieldReader::logarithm(Expr argument) {
  auto ofAtom = [&](uint64_t atom) {
    auto it = logarithms.find(atom);
    return it != logarithms.end() ? it->second : random(LogKind, {atom});
  };
  Polynomial terms = polynomial(argument);
  if (terms.size() != 1)
    return ofAtom(value(argument));
  const auto &[monomial, coefficient] = *terms.begin();
  uint64_t total = coefficient == 1 ? 0 : random(LogKind, {coefficient, 1});
  for (auto [atom, power] : monomial)
    total = F::add(total, F::mul(F::fromInteger(power), ofAtom(atom)));
  return total;
}

FieldReader::Polynomial FieldReader::atom(Expr e) {
  uint64_t residue = value(e);
  if (residue == 0)
    return {};
  return {{Monomial{{residue, 1}}, 1}};
}

FieldReader::Polynomial FieldReader::sum(Polynomial a, const Polynomial &b,
                                         bool negated) {
  for (const auto &[monomial, coefficient] : b) {
    uint64_t &own = a[monomial];
    own = negated ? Exponent::sub(own, coefficient)
                  : Exponent::add(own, coefficient);
    if (own == 0)
      a.erase(monomial);
  }
  return a;
}

std::optional<FieldReader::Polynomial>
FieldReader::product(const Polynomial &a, const Polynomial &b) {
  if (a.size() * b.size() > kMostTerms)
    return std::nullopt;
  Polynomial result;
  for (const auto &[left, c] : a)
    for (const auto &[right, d] : b) {
      std::map<uint64_t, int64_t> powers(left.begin(), left.end());
      for (auto [atom, power] : right)
        powers[atom] += power;
      for (auto [atom, power] : powers)
        if (std::abs(power) > kHighestPower)
          return std::nullopt;
      Monomial monomial;
      for (auto [atom, power] : powers)
        if (power != 0)
          monomial.push_back({atom, power});
      result = sum(std::move(result), {{monomial, Exponent::mul(c, d)}}, false);
    }
  return result;
}

std::optional<FieldReader::Polynomial>
FieldReader::reciprocal(const Polynomial &a) {
  if (a.size() != 1)
    return std::nullopt;
  Monomial monomial = a.begin()->first;
  uint64_t coefficient = a.begin()->second;
  for (auto &factor : monomial)
    factor.second = -factor.second;
  return Polynomial{{monomial, Exponent::inverse(coefficient)}};
}

/// 1 / e; of a sum an atom of its own, so that (a - b)/e is a/e - b/e.
FieldReader::Polynomial FieldReader::inverted(Expr e) {
  if (auto below = reciprocal(polynomial(e)))
    return *below;
  uint64_t residue = F::inverse(value(e));
  return residue ? Polynomial{{Monomial{{residue, 1}}, 1}} : Polynomial{};
}

FieldReader::Polynomial FieldReader::polynomial(Expr e) {
  auto it = knownPolynomials.find(e);
  if (it != knownPolynomials.end())
    return it->second;
  Polynomial result = polynomialOf(e);
  if (result.size() > kMostTerms)
    result = atom(e);
  knownPolynomials[e] = result;
  return result;
}

FieldReader::Polynomial FieldReader::polynomialOf(Expr e) {
  auto in = [&](unsigned i) { return polynomial(e.operand(i)); };
  switch (e.kind()) {
  case Kind::Const: {
    double constant = *e.constant();
    if (!std::isfinite(constant))
      return atom(e);
    uint64_t residue = e->integral ? Exponent::fromInteger(e->integer)
                                   : Exponent::fromDouble(constant);
    return residue ? Polynomial{{Monomial{}, residue}} : Polynomial{};
  }
  case Kind::Add:
    return sum(in(0), in(1), false);
  case Kind::Sub:
    return sum(in(0), in(1), true);
  case Kind::Neg:
    return sum({}, in(0), true);
  case Kind::Mul:
    if (auto both = product(in(0), in(1)))
      return *both;
    return atom(e);
  case Kind::Div:
    if (auto both = product(in(0), inverted(e.operand(1))))
      return *both;
    return atom(e);
  case Kind::Pow: {
    if (!e->exponent.isInteger() || std::abs(e->exponent.num) > 16)
      return atom(e);
    Polynomial base = in(0);
    if (e->exponent.num < 0)
      base = inverted(e.operand(0));
    std::optional<Polynomial> power = Polynomial{{Monomial{}, 1}};
    for (int64_t i = 0; power && i < std::abs(e->exponent.num); ++i)
      power = product(*power, base);
    return power ? *power : atom(e);
  }
  case Kind::Select:
    return value(e.operand(0)) ? in(1) : in(2);
  case Kind::Max:
  case Kind::MaxNum:
    return isLess(value(e.operand(0)), value(e.operand(1))) ? in(1) : in(0);
  case Kind::Min:
  case Kind::MinNum:
    return isLess(value(e.operand(0)), value(e.operand(1))) ? in(0) : in(1);
  case Kind::Contract: {
    Polynomial total;
    forEachPosition(e->contracted, [&] {
      if (total.size() <= kMostTerms)
        total = sum(std::move(total), polynomial(e.operand(0)), false);
    });
    return total;
  }
  case Kind::Fn:
    if (e.is(Fn::Abs))
      return sum({}, in(0), character(value(e.operand(0))) < 0);
    return atom(e);
  default:
    return atom(e);
  }
}

} // namespace refold::algebra::certifier
