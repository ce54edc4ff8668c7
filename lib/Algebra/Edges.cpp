// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Edges.h"

#include <algorithm>
#include <cmath>

namespace refold::algebra {

static constexpr double kInf = std::numeric_limits<double>::infinity();
static constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool isSame(Folded a, Folded b) {
  if (!a || !b)
    return false;
  return *a == *b || (std::isnan(*a) && std::isnan(*b));
}

static Folded foldSum(Folded a, Folded b) {
  if (a && b)
    return *a + *b;
  Folded known = a ? a : b; // the other one is finite
  return known && !std::isfinite(*known) ? known : std::nullopt;
}

static Folded foldProduct(Folded a, Folded b) {
  if (a && b)
    return *a * *b;
  Folded known = a ? a : b;
  return known && (std::isnan(*known) || *known == 0) ? known : std::nullopt;
}

static Folded foldQuotient(Folded a, Folded b) {
  if (a && b)
    return *a / *b;
  if ((a && std::isnan(*a)) || (b && std::isnan(*b)))
    return kNan;
  return b && std::isinf(*b) ? Folded(0.0) : std::nullopt;
}

static Folded foldExtreme(Expr e, Folded a, Folded b) {
  bool isMax = e.is(Kind::Max) || e.is(Kind::MaxNum);
  bool sticks = e.is(Kind::Max) || e.is(Kind::Min);
  double best = isMax ? kInf : -kInf;
  if (a && b) {
    if (std::isnan(*a) || std::isnan(*b)) {
      if (sticks)
        return kNan;
      return std::isnan(*a) ? b : a;
    }
    return isMax ? std::max(*a, *b) : std::min(*a, *b);
  }
  Folded known = a ? a : b;
  if (known && std::isnan(*known) && sticks)
    return known;
  return known && *known == best ? known : std::nullopt;
}

static Folded foldCompare(Pred pred, Folded a, Folded b) {
  if ((a && std::isnan(*a)) || (b && std::isnan(*b)))
    return pred == Pred::Ne ? 1.0 : 0.0;
  if (!a || !b) {
    // One side is an infinity, the other finite.
    Folded known = a ? a : b;
    if (!known || !std::isinf(*known))
      return std::nullopt;
    return foldCompare(pred, a ? a : Folded(0.0), b ? b : Folded(0.0));
  }
  switch (pred) {
  case Pred::Lt:
    return *a < *b;
  case Pred::Le:
    return *a <= *b;
  case Pred::Gt:
    return *a > *b;
  case Pred::Ge:
    return *a >= *b;
  case Pred::Eq:
    return *a == *b;
  case Pred::Ne:
    return *a != *b;
  }
  return std::nullopt;
}

static Folded foldFunction(Expr e, Folded a) {
  if (!a)
    return e.is(Fn::IsNan) || e.is(Fn::IsInf) ? Folded(0.0) : std::nullopt;
  double x = *a;
  switch (e->fn) {
  case Fn::Exp:
    return std::exp(x);
  case Fn::Exp2:
    return std::exp2(x);
  case Fn::Expm1:
    return std::expm1(x);
  case Fn::Log:
    return std::log(x);
  case Fn::Log2:
    return std::log2(x);
  case Fn::Log1p:
    return std::log1p(x);
  case Fn::Sqrt:
    return std::sqrt(x);
  case Fn::Rsqrt:
    return 1 / std::sqrt(x);
  case Fn::Abs:
    return std::fabs(x);
  case Fn::Tanh:
    return std::tanh(x);
  case Fn::Sigmoid:
    return 1 / (1 + std::exp(-x));
  case Fn::Erf:
    return std::erf(x);
  case Fn::Relu:
    return std::isnan(x) ? x : std::max(x, 0.0);
  case Fn::IsNan:
    return std::isnan(x);
  case Fn::IsInf:
    return std::isinf(x);
  default:
    return std::isnan(x) ? a : std::nullopt;
  }
}

static Folded foldSelect(Folded condition, Folded a, Folded b) {
  if (condition)
    return *condition ? a : b;
  return isSame(a, b) ? a : std::nullopt;
}

static Folded foldNode(Expr e, const Folded *v) {
  switch (e.kind()) {
  case Kind::Const:
    return e.constant();
  case Kind::Add:
    return foldSum(v[0], v[1]);
  case Kind::Sub:
    return foldSum(v[0], v[1] ? Folded(-*v[1]) : std::nullopt);
  case Kind::Neg:
    return v[0] ? Folded(-*v[0]) : std::nullopt;
  case Kind::Mul:
    return foldProduct(v[0], v[1]);
  case Kind::Div:
    return foldQuotient(v[0], v[1]);
  case Kind::Pow:
    return v[0] ? Folded(std::pow(*v[0], e->exponent.value())) : std::nullopt;
  case Kind::Max:
  case Kind::Min:
  case Kind::MaxNum:
  case Kind::MinNum:
    return foldExtreme(e, v[0], v[1]);
  case Kind::Cmp:
    return foldCompare(e->pred, v[0], v[1]);
  case Kind::And:
    if ((v[0] && !*v[0]) || (v[1] && !*v[1]))
      return 0.0;
    return v[0] && v[1] ? Folded(1.0) : std::nullopt;
  case Kind::Or:
    if ((v[0] && *v[0]) || (v[1] && *v[1]))
      return 1.0;
    return v[0] && v[1] ? Folded(0.0) : std::nullopt;
  case Kind::Not:
    return v[0] ? Folded(!*v[0]) : std::nullopt;
  case Kind::Select:
    return foldSelect(v[0], v[1], v[2]);
  case Kind::Cast:
    return v[0];
  case Kind::Contract:
    return v[0] && (*v[0] == 0 || std::isnan(*v[0])) ? v[0] : std::nullopt;
  case Kind::Fn:
    return e.size() == 1 ? foldFunction(e, v[0]) : std::nullopt;
  case Kind::Sym:
    return std::nullopt;
  }
  return std::nullopt;
}

Folded fold(Expr root, const FoldedMap &known) {
  std::unordered_map<Expr, Folded, ExprHash> values;
  forEachNode(root, [&](Expr e) {
    if (auto it = known.find(e); it != known.end()) {
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
  if (!term)
    return std::nullopt;
  switch (reducer) {
  case Reducer::Sum:
    return *term == 0 || std::isnan(*term) ? term : std::nullopt;
  case Reducer::Prod:
    return *term == 0 || *term == 1 || std::isnan(*term) ? term : std::nullopt;
  default:
    return term;
  }
}

static Folded identityValue(const Cascade &cascade, Reducer reducer,
                            Type type) {
  return identity(*cascade.context, reducer, type).constant();
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
      empty.written[index.length] = empty.states[index.length] = 0;
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
  row.written[written] = row.states[feature] = row.value;
  for (const Definition &definition : seen)
    note(row, definition);
  rows.insert(rows.begin(), std::move(row));
}

void Edges::note(Row &row, const Definition &definition) const {
  if (const Let *let = std::get_if<Let>(&definition)) {
    if (Folded value = fold(let->value, row.states))
      row.states[let->symbol] = *value;
    return;
  }
  const State &state = std::get<State>(definition);
  for (size_t i = 0; i < state.results.size(); ++i) {
    Folded value =
        row.extreme ? reduced(state.reducer, fold(state.values[i], row.states))
        : i == 0 ? identityValue(cascade, state.reducer, state.values[i].type())
                 : Folded(-1.0);
    if (value)
      row.states[state.results[i]] = *value;
  }
}

void Edges::follow(const Program &program) {
  for (; followed < program.definitions.size(); ++followed) {
    for (Row &row : rows)
      note(row, program.definitions[followed]);
    seen.push_back(program.definitions[followed]);
  }
}

Folded Edges::wanted(const Row &row, const Stage &stage,
                     unsigned number) const {
  Expr term = number == 0 ? stage.term : stage.payloads[number - 1];
  if (row.extreme)
    return number == 0 ? reduced(stage.reducer, fold(term, row.written))
                       : std::nullopt;
  if (number > 0)
    return std::nullopt;
  Folded none =
      identityValue(cascade, stage.reducer, stage.results[0].type());
  bool isBottom = stage.reducer == Reducer::TopK && !stage.largest;
  return none && isBottom && std::isinf(*none) ? Folded(-*none) : none;
}

Expr Edges::corrected(const Stage &stage, unsigned number, Expr raw) {
  Context &context = *cascade.context;
  Expr result = stage.results[number], value = raw;
  for (Row &row : rows) {
    Folded want = wanted(row, stage, number);
    if (!want)
      continue;
    row.written[result] = *want;
    if (isSame(fold(value, row.states), want))
      continue;
    Expr constant = isFloat(result.type())
                        ? context.real(*want, result.type())
                        : context.integer(int64_t(*want), result.type());
    value = context.select(row.condition, constant, value);
  }
  return value;
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
  return std::nullopt;
}

} // namespace refold::algebra
