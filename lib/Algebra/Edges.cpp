// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Edges.h"

#include <algorithm>
#include <cmath>

namespace refold::algebra {

static constexpr double kInf = std::numeric_limits<double>::infinity();
static constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool Folded::isFinite() const {
  return kind == Kind::Finite || (isKnown() && std::isfinite(value));
}

bool isSame(Folded a, Folded b) {
  return a.isKnown() && b.isKnown() &&
         (a.value == b.value || (a.isNan() && b.isNan()));
}

static Folded finiteIf(bool isFinite) {
  return isFinite ? Folded::finite() : Folded();
}

static Folded negated(Folded a) {
  return a.isKnown() ? Folded::known(-a.value) : a;
}

static Folded foldSum(Folded a, Folded b) {
  if (a.isKnown() && b.isKnown())
    return Folded::known(a.value + b.value);
  if (a.isNan() || b.isNan())
    return Folded::known(kNan);
  if (a.isFinite() && b.isFinite())
    return Folded::finite();
  // An infinity and something finite.
  if (a.isFinite() || b.isFinite())
    return a.isFinite() ? b : a;
  return {};
}

static Folded foldProduct(Folded a, Folded b) {
  if (a.isKnown() && b.isKnown())
    return Folded::known(a.value * b.value);
  if (a.isNan() || b.isNan())
    return Folded::known(kNan);
  if (!a.isFinite() || !b.isFinite())
    return {};
  return a.isKnown(0) || b.isKnown(0) ? Folded::known(0) : Folded::finite();
}

static Folded foldQuotient(Folded a, Folded b, Expr divisor) {
  if (a.isKnown() && b.isKnown())
    return Folded::known(a.value / b.value);
  if (a.isNan() || b.isNan())
    return Folded::known(kNan);
  if (b.isKnown())
    return std::isinf(b.value) && a.isFinite()
               ? Folded::known(0)
               : finiteIf(a.isFinite() && b.value != 0);
  bool isPositive = divisor.isSym() && divisor.symbol().facts.nonNegative;
  if (a.isKnown() && std::isinf(a.value) && b.isFinite() && isPositive)
    return a;
  return {};
}

static Folded foldExtreme(Expr e, Folded a, Folded b) {
  bool isMax = e.is(Kind::Max) || e.is(Kind::MaxNum);
  bool sticks = e.is(Kind::Max) || e.is(Kind::Min);
  double best = isMax ? kInf : -kInf;
  if (a.isNan() || b.isNan())
    return sticks ? Folded::known(kNan) : a.isNan() ? b : a;
  if (a.isKnown() && b.isKnown())
    return Folded::known(isMax ? std::max(a.value, b.value)
                               : std::min(a.value, b.value));
  Folded known = a.isKnown() ? a : b, other = a.isKnown() ? b : a;
  if (other.isFinite() && known.isKnown() && std::isinf(known.value))
    return known.value == best ? known : other;
  return finiteIf(a.isFinite() && b.isFinite());
}

static Folded foldCompare(Pred pred, Folded a, Folded b) {
  if (a.isNan() || b.isNan())
    return Folded::known(pred == Pred::Ne);
  if (!a.isKnown() || !b.isKnown()) {
    // Only an infinity against a finite number is decided.
    Folded known = a.isKnown() ? a : b, other = a.isKnown() ? b : a;
    if (!known.isKnown() || !std::isinf(known.value) || !other.isFinite())
      return Folded::finite();
    return foldCompare(pred, a.isKnown() ? a : Folded::known(0),
                       b.isKnown() ? b : Folded::known(0));
  }
  switch (pred) {
  case Pred::Lt:
    return Folded::known(a.value < b.value);
  case Pred::Le:
    return Folded::known(a.value <= b.value);
  case Pred::Gt:
    return Folded::known(a.value > b.value);
  case Pred::Ge:
    return Folded::known(a.value >= b.value);
  case Pred::Eq:
    return Folded::known(a.value == b.value);
  case Pred::Ne:
    return Folded::known(a.value != b.value);
  }
  return {};
}

/// Functions that are finite on all finite numbers, overflow apart.
static bool isTotal(Fn fn) {
  switch (fn) {
  case Fn::Log:
  case Fn::Log2:
  case Fn::Log1p:
  case Fn::Sqrt:
  case Fn::Rsqrt:
    return false;
  default:
    return arity(fn) == 1;
  }
}

static Folded foldFunction(Expr e, Folded a) {
  if (!a.isKnown()) {
    if (e.is(Fn::IsNan) || e.is(Fn::IsInf))
      return a.isFinite() ? Folded::known(0) : Folded::finite();
    return finiteIf(a.isFinite() && isTotal(e->fn));
  }
  double x = a.value;
  switch (e->fn) {
  case Fn::Exp:
    return Folded::known(std::exp(x));
  case Fn::Exp2:
    return Folded::known(std::exp2(x));
  case Fn::Expm1:
    return Folded::known(std::expm1(x));
  case Fn::Log:
    return Folded::known(std::log(x));
  case Fn::Log2:
    return Folded::known(std::log2(x));
  case Fn::Log1p:
    return Folded::known(std::log1p(x));
  case Fn::Sqrt:
    return Folded::known(std::sqrt(x));
  case Fn::Rsqrt:
    return Folded::known(1 / std::sqrt(x));
  case Fn::Abs:
    return Folded::known(std::fabs(x));
  case Fn::Tanh:
    return Folded::known(std::tanh(x));
  case Fn::Sigmoid:
    return Folded::known(1 / (1 + std::exp(-x)));
  case Fn::Erf:
    return Folded::known(std::erf(x));
  case Fn::Relu:
    return Folded::known(std::isnan(x) ? x : std::max(x, 0.0));
  case Fn::IsNan:
    return Folded::known(std::isnan(x));
  case Fn::IsInf:
    return Folded::known(std::isinf(x));
  default:
    return std::isnan(x) ? a : finiteIf(std::isfinite(x) && isTotal(e->fn));
  }
}

static Folded foldSelect(Folded condition, Folded a, Folded b) {
  if (condition.isKnown())
    return condition.value ? a : b;
  return isSame(a, b) ? a : finiteIf(a.isFinite() && b.isFinite());
}

static Folded foldLogic(Expr e, Folded a, Folded b) {
  double decides = e.is(Kind::Or);
  for (Folded side : {a, b})
    if (side.isKnown() && (side.value != 0) == (decides != 0))
      return Folded::known(decides);
  return a.isKnown() && b.isKnown() ? Folded::known(!decides)
                                    : Folded::finite();
}

static Folded foldSymbol(Expr e) {
  Role role = e.symbol().role;
  return finiteIf(role == Role::Element || role == Role::Parameter ||
                  role == Role::Index);
}

static Folded foldPower(Expr e, Folded a) {
  if (a.isKnown())
    return Folded::known(std::pow(a.value, e->exponent.value()));
  return finiteIf(a.isFinite() && e->exponent.isInteger() &&
                  e->exponent.num >= 0);
}

static Folded foldNode(Expr e, const Folded *v) {
  switch (e.kind()) {
  case Kind::Const:
    return Folded::known(*e.constant());
  case Kind::Sym:
    return foldSymbol(e);
  case Kind::Add:
    return foldSum(v[0], v[1]);
  case Kind::Sub:
    return foldSum(v[0], negated(v[1]));
  case Kind::Neg:
    return negated(v[0]);
  case Kind::Mul:
    return foldProduct(v[0], v[1]);
  case Kind::Div:
    return foldQuotient(v[0], v[1], e.operand(1));
  case Kind::Pow:
    return foldPower(e, v[0]);
  case Kind::Max:
  case Kind::Min:
  case Kind::MaxNum:
  case Kind::MinNum:
    return foldExtreme(e, v[0], v[1]);
  case Kind::Cmp:
    return foldCompare(e->pred, v[0], v[1]);
  case Kind::And:
  case Kind::Or:
    return foldLogic(e, v[0], v[1]);
  case Kind::Not:
    return v[0].isKnown() ? Folded::known(!v[0].value) : v[0];
  case Kind::Select:
    return foldSelect(v[0], v[1], v[2]);
  case Kind::Cast: {
    bool saturates = !isFloat(e.type()) || e.type() == Type::F8E4M3 ||
                     e.type() == Type::F8E5M2;
    bool isNumber = v[0].isFinite() || (v[0].isNan() && isFloat(e.type()));
    return saturates && v[0].isKnown() && !isNumber ? Folded::finite() : v[0];
  }
  case Kind::Contract:
    return v[0].isNan() || v[0].isKnown(0) ? v[0] : finiteIf(v[0].isFinite());
  case Kind::Fn:
    return e.size() == 1 ? foldFunction(e, v[0]) : Folded();
  }
  return {};
}

Folded fold(Expr root, const FoldedMap &map) {
  FoldedMap values;
  forEachNode(root, [&](Expr e) {
    if (auto it = map.find(e); it != map.end()) {
      values[e] = it->second;
      return;
    }
    Folded operands[3];
    for (unsigned i = 0; i < e.size(); ++i)
      operands[i] = values.at(e.operand(i));
    values[e] = foldNode(e, operands);
  });
  return values.at(root);
}

//===----------------------------------------------------------------------===//
// Edges
//===----------------------------------------------------------------------===//

/// A reduction whose terms are all this value.
static Folded reduced(Reducer reducer, Folded term) {
  double v = term.value;
  switch (reducer) {
  case Reducer::Sum: // of at least one
    if (term.isKnown() && v != 0 && std::isfinite(v))
      return Folded::finite();
    return term;
  case Reducer::Prod:
    if (term.isKnown() && v != 0 && v != 1 && !std::isnan(v))
      return finiteIf(std::isfinite(v));
    return term;
  case Reducer::MaxNum: // NaN gives way, to nothing
    return term.isNan() ? Folded::known(-kInf) : term;
  case Reducer::MinNum:
    return term.isNan() ? Folded::known(kInf) : term;
  default:
    return term;
  }
}

static Folded identityValue(const Cascade &cascade, Reducer reducer, Type type,
                            bool largest = true) {
  double none = *identity(*cascade.context, reducer, type).constant();
  bool isBottom = reducer == Reducer::TopK && !largest && std::isinf(none);
  return Folded::known(isBottom ? -none : none);
}

Edges::Edges(const Cascade &cascade) : cascade(cascade) {
  Context &context = *cascade.context;
  Row empty;
  for (const Index &index : cascade.indices) {
    if (index.role != IndexRole::Stream || index.extent > 0)
      continue;
    Expr own =
        context.cmp(Pred::Eq, index.length, context.integer(0, Type::Index));
    empty.condition =
        empty.condition ? context.logicalOr(empty.condition, own) : own;
    if (index.extent < 0)
      empty.written[index.length] = empty.states[index.length] =
          Folded::known(0);
  }
  if (empty.condition)
    rows.push_back(std::move(empty));
}

void Edges::addExtremal(Expr symbol, Expr feature, Expr written, bool isMax) {
  if (!isFloat(symbol.type()))
    return;
  Context &context = *cascade.context;
  Row row;
  row.extreme = symbol;
  row.value = isMax ? -kInf : kInf;
  row.condition =
      context.cmp(Pred::Eq, symbol, context.real(row.value, symbol.type()));
  row.written[written] = row.states[feature] = Folded::known(row.value);
  for (const Definition &definition : seen)
    note(row, definition);
  rows.insert(rows.begin(), std::move(row));
}

void Edges::note(Row &row, const Definition &definition) const {
  if (const Let *let = std::get_if<Let>(&definition)) {
    row.states[let->symbol] = fold(let->value, row.states);
    return;
  }
  const State &state = std::get<State>(definition);
  for (size_t i = 0; i < state.results.size(); ++i) {
    Folded value =
        row.extreme ? reduced(state.reducer, fold(state.values[i], row.states))
        : i == 0 ? identityValue(cascade, state.reducer, state.values[i].type(),
                                 state.largest)
                 // What a place of a list holds that no element took.
                 : Folded::known(isFloat(state.results[i].type()) ? kNan : -1);
    row.states[state.results[i]] = value;
  }
}

void Edges::follow(const Program &program) {
  for (; followed < program.definitions.size(); ++followed) {
    for (Row &row : rows)
      note(row, program.definitions[followed]);
    seen.push_back(program.definitions[followed]);
  }
}

/// Law `identity-row`: where the maximum is -inf every feature is, and the
/// stage reduces a constant. Law `empty-row`: with no elements it is its
/// identity.
Folded Edges::wanted(const Row &row, const Stage &stage,
                     unsigned number) const {
  Expr term = number == 0 ? stage.term : stage.payloads[number - 1];
  if (row.extreme)
    return number == 0 ? reduced(stage.reducer, fold(term, row.written))
                       : Folded();
  if (number > 0)
    return {};
  return identityValue(cascade, stage.reducer, stage.results[0].type(),
                       stage.largest);
}

Expr Edges::corrected(const Stage &stage, unsigned number, Expr raw) {
  Context &context = *cascade.context;
  Expr result = stage.results[number], value = raw;
  for (Row &row : rows) {
    Folded want = wanted(row, stage, number);
    row.written[result] = want;
    if (!want.isKnown() || isSame(fold(value, row.states), want))
      continue;
    // A sum of rounded integers may be kept as a float.
    Expr constant = isFloat(value.type())
                        ? context.real(want.value, value.type())
                        : context.integer(int64_t(want.value), result.type());
    value = context.select(row.condition, constant, value);
  }
  return value;
}

Expr Edges::zeroed(Expr written, Expr value) const {
  Context &context = *cascade.context;
  Expr result;
  for (const Row &row : rows)
    if (row.extreme && fold(written, row.written).isNan())
      result = context.select(row.condition, context.real(0, value.type()),
                              result ? result : value);
  // A row without elements has its extremes at their identities too.
  for (const Row &row : rows)
    if (result && !row.extreme && !(written.indices() & cascade.stream()) &&
        !fold(written, row.written).isNan())
      result = context.select(row.condition, value, result);
  return result;
}

bool Edges::agrees(Expr written, Expr raw) const {
  bool isSweep = written.indices() & cascade.stream();
  return std::all_of(rows.begin(), rows.end(), [&](const Row &row) {
    if (isSweep && !row.extreme)
      return true; // no elements, nothing written
    return isSame(fold(written, row.written), fold(raw, row.states));
  });
}

Folded Edges::termOn(Expr symbol, Expr term) const {
  for (const Row &row : rows)
    if (row.extreme == symbol)
      return fold(term, row.written);
  return {};
}

} // namespace refold::algebra
