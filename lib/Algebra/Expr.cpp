// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Algebra/Expr.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>
#include <tuple>

namespace refold::algebra {

//===----------------------------------------------------------------------===//
// Types and names
//===----------------------------------------------------------------------===//

bool isFloat(Type type) { return type <= Type::F8E5M2; }

Type computeType(Type type) {
  switch (type) {
  case Type::F16:
  case Type::BF16:
  case Type::F8E4M3:
  case Type::F8E5M2:
    return Type::F32;
  case Type::I8:
  case Type::U8:
  case Type::Bool:
    return Type::I32;
  default:
    return type;
  }
}

Type promote(Type a, Type b) {
  if (a == Type::Index && b == Type::Index)
    return Type::Index;
  for (Type wide : {Type::F64, Type::F32})
    if (computeType(a) == wide || computeType(b) == wide)
      return wide;
  for (Type wide : {Type::I64, Type::Index})
    if (a == wide || b == wide)
      return Type::I64;
  return Type::I32;
}

namespace {
/// Significant bits, smallest and largest exponent of a float type's numbers.
struct FloatFormat {
  int precision, minExponent, maxExponent;
};
} // namespace

static FloatFormat formatOf(Type type) {
  switch (type) {
  case Type::F64:
    return {53, -1074, 1023};
  case Type::F16:
    return {11, -24, 15};
  case Type::BF16:
    return {8, -133, 127};
  case Type::F8E4M3:
    return {4, -9, 8};
  case Type::F8E5M2:
    return {3, -16, 15};
  default:
    return {24, -149, 127};
  }
}

/// Bits of magnitude that an integer type needs.
static int integerBits(Type type) {
  switch (type) {
  case Type::Bool:
    return 1;
  case Type::I8:
  case Type::U8:
    return 8;
  case Type::I32:
    return 31;
  default:
    return 63;
  }
}

bool isExactConversion(Type from, Type to) {
  if (from == to)
    return true;
  if (isFloat(to)) {
    FloatFormat target = formatOf(to);
    if (!isFloat(from))
      return integerBits(from) <= target.precision &&
             integerBits(from) <= target.maxExponent;
    FloatFormat source = formatOf(from);
    return source.precision <= target.precision &&
           source.minExponent >= target.minExponent &&
           source.maxExponent <= target.maxExponent;
  }
  if (isFloat(from))
    return false;
  if (to == Type::U8)
    return from == Type::Bool;
  return integerBits(from) < integerBits(to) ||
         (integerBits(from) == 63 && integerBits(to) == 63);
}

double largestFinite(Type type) {
  switch (type) {
  case Type::F64:
    return std::numeric_limits<double>::max();
  case Type::F16:
    return 65504.0;
  case Type::BF16:
    return std::ldexp(2.0 - std::ldexp(1.0, -7), 127);
  case Type::F8E4M3:
    return 448.0;
  case Type::F8E5M2:
    return 57344.0;
  default:
    return std::numeric_limits<float>::max();
  }
}

const char *spelling(Type type) {
  static const char *const names[] = {"f64",    "f32",    "f16",  "bf16",
                                      "f8e4m3", "f8e5m2", "i64",  "i32",
                                      "i8",     "u8",     "bool", "index"};
  return names[unsigned(type)];
}

unsigned arity(Fn fn) { return fn >= Fn::PowFn ? 2 : 1; }

const char *spelling(Fn fn) {
  static const char *const names[] = {
      "exp",     "exp2",  "expm1", "log",      "log2", "log1p", "sqrt",
      "rsqrt",   "abs",   "sign",  "floor",    "ceil", "round", "tanh",
      "sigmoid", "erf",   "sin",   "cos",      "sinh", "cosh",  "relu",
      "isnan",   "isinf", "pow",   "floordiv", "rem",  "atan2"};
  return names[unsigned(fn)];
}

const char *spelling(Pred pred) {
  static const char *const names[] = {"<", "<=", ">", ">=", "==", "!="};
  return names[unsigned(pred)];
}

Rational rational(int64_t num, int64_t den) {
  assert(den != 0 && "a fraction over nothing");
  int64_t divisor = std::gcd(num, den);
  if (divisor == 0)
    return {0, 1};
  if (den < 0)
    divisor = -divisor;
  return {num / divisor, den / divisor};
}

//===----------------------------------------------------------------------===//
// Handles
//===----------------------------------------------------------------------===//

std::optional<double> Expr::constant() const {
  if (!is(Kind::Const))
    return std::nullopt;
  return node->integral ? double(node->integer) : node->real;
}

bool Expr::isConstant(double value) const {
  std::optional<double> known = constant();
  return known && *known == value;
}

static uint8_t roleBit(Role role) {
  return role <= Role::New ? uint8_t(1u << unsigned(role)) : uint8_t(0);
}

bool Expr::uses(Role role) const {
  if (uint8_t bit = roleBit(role))
    return node->roles & bit;
  for (Expr symbol : symbolsOf(*this))
    if (symbol.isSym(role))
      return true;
  return false;
}

//===----------------------------------------------------------------------===//
// Context
//===----------------------------------------------------------------------===//

static size_t mix(size_t seed, uint64_t value) {
  value *= 0x9E3779B97F4A7C15ull;
  value ^= value >> 29;
  return (seed ^ value) * 0xBF58476D1CE4E5B9ull + 0x94D049BB133111EBull;
}

static size_t hashOf(const Node &n) {
  size_t h = mix(0, unsigned(n.kind) | unsigned(n.type) << 8 |
                        unsigned(n.fn) << 16 | unsigned(n.pred) << 24);
  h = mix(h, n.contracted);
  h = mix(h, std::bit_cast<uint64_t>(n.real));
  h = mix(h, uint64_t(n.integer));
  h = mix(h, uint64_t(n.exponent.num) * 31 + uint64_t(n.exponent.den));
  h = mix(h, n.symbol ? n.symbol->id + 1 : 0);
  for (unsigned i = 0; i < n.count; ++i)
    h = mix(h, n.operands[i]->id);
  return h;
}

namespace {
struct NodeHash {
  size_t operator()(const Node *n) const { return n->hash; }
};
struct NodeEqual {
  bool operator()(const Node *a, const Node *b) const {
    return a->kind == b->kind && a->type == b->type && a->fn == b->fn &&
           a->pred == b->pred && a->contracted == b->contracted &&
           a->integral == b->integral && a->integer == b->integer &&
           std::bit_cast<uint64_t>(a->real) ==
               std::bit_cast<uint64_t>(b->real) &&
           a->exponent == b->exponent && a->symbol == b->symbol &&
           a->count == b->count &&
           std::equal(a->operands, a->operands + a->count, b->operands);
  }
};
} // namespace

struct Context::Impl {
  std::deque<Node> nodes;
  std::deque<Symbol> symbols;
  std::unordered_set<const Node *, NodeHash, NodeEqual> table;
  std::map<std::tuple<Role, unsigned, Type>, Expr> placeholders;
};

Context::Context() : impl(std::make_unique<Impl>()) {}
Context::~Context() = default;

Expr Context::intern(Node node) {
  for (unsigned i = 0; i < node.count; ++i) {
    node.roles |= node.operands[i]->roles;
    node.indices |= node.operands[i]->indices;
    node.depth = std::max(node.depth, node.operands[i]->depth + 1);
  }
  node.indices &= ~node.contracted;
  node.hash = hashOf(node);
  if (auto it = impl->table.find(&node); it != impl->table.end())
    return Expr(*it);
  node.id = uint32_t(impl->nodes.size());
  impl->nodes.push_back(node);
  impl->table.insert(&impl->nodes.back());
  return Expr(&impl->nodes.back());
}

/// A double as a value of `type`. Narrow floats compute in f32.
static double roundTo(double value, Type type) {
  return computeType(type) == Type::F32 ? double(float(value)) : value;
}

Expr Context::real(double value, Type type) {
  Node node{Kind::Const, type};
  node.real = value == 0 ? 0.0 * value : value;
  if (std::isnan(value))
    node.real = std::numeric_limits<double>::quiet_NaN();
  return intern(node);
}

Expr Context::integer(int64_t value, Type type) {
  if (isFloat(type))
    return real(double(value), type);
  Node node{Kind::Const, type};
  node.integral = true;
  node.integer = value;
  return intern(node);
}

Expr Context::boolean(bool value) { return integer(value, Type::Bool); }

Expr Context::symbol(std::string name, Role role, Type type, IndexSet indices,
                     unsigned ordinal, Facts facts) {
  uint32_t id = uint32_t(impl->symbols.size());
  impl->symbols.push_back(
      {std::move(name), role, type, indices, ordinal, facts, id});
  Node node{Kind::Sym, type};
  node.symbol = &impl->symbols.back();
  node.indices = indices;
  node.roles = roleBit(role);
  return intern(node);
}

Expr Context::placeholder(Role role, unsigned ordinal, Type type) {
  Expr &entry = impl->placeholders[{role, ordinal, type}];
  if (!entry) {
    const char *stem = role == Role::Old    ? "old"
                       : role == Role::New  ? "new"
                       : role == Role::Self ? "self"
                                            : "with";
    std::string name = stem;
    if (role != Role::Self)
      name += std::to_string(ordinal);
    entry = symbol(name, role, type, 0, ordinal);
  }
  return entry;
}

static Node makeNode(Kind kind, Type type,
                     std::initializer_list<Expr> operands) {
  Node node{kind, type};
  for (Expr operand : operands)
    node.operands[node.count++] = operand.get();
  return node;
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

/// Both constants and floats: the rounded result of `op`.
template <typename Op>
static std::optional<double> foldReal(Expr a, Expr b, Type type, Op op) {
  if (!isFloat(type) || !a.constant() || !b.constant())
    return std::nullopt;
  return roundTo(op(*a.constant(), *b.constant()), type);
}

/// Both constants and integers, without overflow of 64 bits.
template <typename Op>
static std::optional<int64_t> foldInteger(Expr a, Expr b, Type type, Op op) {
  if (isFloat(type) || !a.is(Kind::Const) || !b.is(Kind::Const) ||
      !a->integral || !b->integral)
    return std::nullopt;
  int64_t result;
  if (op(a->integer, b->integer, &result))
    return std::nullopt;
  return result;
}

/// Dropping the neutral operand must not change the type of the value.
static bool keepsType(Expr kept, Type type) {
  return computeType(kept.type()) == computeType(type) &&
         isFloat(kept.type()) == isFloat(type);
}

Expr Context::add(Expr a, Expr b) {
  Type type = promote(a.type(), b.type());
  if (auto v = foldReal(a, b, type, std::plus<double>()))
    return real(*v, type);
  if (auto v = foldInteger(a, b, type, [](auto x, auto y, auto *r) {
        return __builtin_add_overflow(x, y, r);
      }))
    return integer(*v, type);
  if (b.isConstant(0) && keepsType(a, type))
    return a;
  if (a.isConstant(0) && keepsType(b, type))
    return b;
  return intern(makeNode(Kind::Add, type, {a, b}));
}

Expr Context::sub(Expr a, Expr b) {
  Type type = promote(a.type(), b.type());
  if (auto v = foldReal(a, b, type, std::minus<double>()))
    return real(*v, type);
  if (auto v = foldInteger(a, b, type, [](auto x, auto y, auto *r) {
        return __builtin_sub_overflow(x, y, r);
      }))
    return integer(*v, type);
  if (b.isConstant(0) && keepsType(a, type))
    return a;
  if (a.isConstant(0) && keepsType(b, type))
    return neg(b);
  return intern(makeNode(Kind::Sub, type, {a, b}));
}

Expr Context::mul(Expr a, Expr b) {
  Type type = promote(a.type(), b.type());
  if (auto v = foldReal(a, b, type, std::multiplies<double>()))
    return real(*v, type);
  if (auto v = foldInteger(a, b, type, [](auto x, auto y, auto *r) {
        return __builtin_mul_overflow(x, y, r);
      }))
    return integer(*v, type);
  if (b.isConstant(1) && keepsType(a, type))
    return a;
  if (a.isConstant(1) && keepsType(b, type))
    return b;
  return intern(makeNode(Kind::Mul, type, {a, b}));
}

Expr Context::div(Expr a, Expr b) {
  Type type = promote(a.type(), b.type());
  if (!isFloat(type)) // the real quotient of integers
    type = Type::F32;
  if (auto v = foldReal(a, b, type, std::divides<double>()))
    return real(*v, type);
  if (b.isConstant(1) && keepsType(a, type))
    return a;
  return intern(makeNode(Kind::Div, type, {a, b}));
}

Expr Context::neg(Expr a) {
  Type type = computeType(a.type());
  if (a.is(Kind::Const))
    return a->integral && a->integer != INT64_MIN
               ? integer(-a->integer, type)
               : real(-*a.constant(), isFloat(type) ? type : Type::F32);
  if (a.is(Kind::Neg))
    return a.operand(0);
  return intern(makeNode(Kind::Neg, type, {a}));
}

Expr Context::pow(Expr base, Rational exponent) {
  Type type = computeType(base.type());
  // The cube of a length leaves 64 bits.
  bool isLarge = type == Type::Index && exponent.num > 2;
  if (!isFloat(type) && (exponent.num < 0 || !exponent.isInteger() || isLarge))
    type = Type::F32;
  if (exponent == rational(1) && keepsType(base, type))
    return base;
  if (base.constant() && isFloat(type))
    return real(roundTo(std::pow(*base.constant(), exponent.value()), type),
                type);
  Node node = makeNode(Kind::Pow, type, {base});
  node.exponent = exponent;
  return intern(node);
}

static std::optional<double> foldFn(Fn fn, double x) {
  switch (fn) {
  case Fn::Exp:
    return std::exp(x);
  case Fn::Log:
    return std::log(x);
  case Fn::Sqrt:
    return std::sqrt(x);
  case Fn::Rsqrt:
    return 1.0 / std::sqrt(x);
  case Fn::Abs:
    return std::fabs(x);
  default:
    return std::nullopt;
  }
}

Expr Context::fn(Fn fn, Expr a) {
  assert(arity(fn) == 1 && "wrong number of operands");
  bool isPredicate = fn == Fn::IsNan || fn == Fn::IsInf;
  bool keepsIntegers = fn == Fn::Abs || fn == Fn::Sign || fn == Fn::Relu;
  Type type = computeType(a.type());
  if (isPredicate)
    type = Type::Bool;
  else if (!isFloat(type) && !keepsIntegers)
    type = Type::F32;
  if (a.constant() && !a->integral && isFloat(type))
    if (std::optional<double> v = foldFn(fn, *a.constant()))
      return real(roundTo(*v, type), type);
  Node node = makeNode(Kind::Fn, type, {a});
  node.fn = fn;
  return intern(node);
}

Expr Context::fn(Fn fn, Expr a, Expr b) {
  assert(arity(fn) == 2 && "wrong number of operands");
  Type type = promote(a.type(), b.type());
  bool isReal = fn == Fn::PowFn || fn == Fn::Atan2;
  if (isReal && !isFloat(type))
    type = Type::F32;
  // A general power with a small constant fraction is the algebraic one.
  if (fn == Fn::PowFn && b.constant())
    for (int64_t den : {1, 2, 3, 4})
      if (double num = *b.constant() * double(den);
          num == std::floor(num) && std::fabs(num) <= 64)
        return pow(a, rational(int64_t(num), den));
  Node node = makeNode(Kind::Fn, type, {a, b});
  node.fn = fn;
  return intern(node);
}

Expr Context::max(Expr a, Expr b) {
  if (a == b)
    return a;
  return intern(makeNode(Kind::Max, promote(a.type(), b.type()), {a, b}));
}
Expr Context::min(Expr a, Expr b) {
  if (a == b)
    return a;
  return intern(makeNode(Kind::Min, promote(a.type(), b.type()), {a, b}));
}
Expr Context::maxNum(Expr a, Expr b) {
  if (a == b)
    return a;
  return intern(makeNode(Kind::MaxNum, promote(a.type(), b.type()), {a, b}));
}
Expr Context::minNum(Expr a, Expr b) {
  if (a == b)
    return a;
  return intern(makeNode(Kind::MinNum, promote(a.type(), b.type()), {a, b}));
}

static bool compare(Pred pred, double a, double b) {
  switch (pred) {
  case Pred::Lt:
    return a < b;
  case Pred::Le:
    return a <= b;
  case Pred::Gt:
    return a > b;
  case Pred::Ge:
    return a >= b;
  case Pred::Eq:
    return a == b;
  case Pred::Ne:
    return a != b;
  }
  return false;
}

Expr Context::cmp(Pred pred, Expr a, Expr b) {
  if (a.constant() && b.constant() && a->integral == b->integral)
    return boolean(compare(pred, *a.constant(), *b.constant()));
  // A negation, or nothing: c != true, c == true.
  if (a.type() == Type::Bool && b.is(Kind::Const) &&
      (pred == Pred::Eq || pred == Pred::Ne))
    return (pred == Pred::Eq) == (b->integer != 0) ? a : logicalNot(a);
  Node node = makeNode(Kind::Cmp, Type::Bool, {a, b});
  node.pred = pred;
  return intern(node);
}

Expr Context::logicalAnd(Expr a, Expr b) {
  if (a.is(Kind::Const))
    return a->integer ? b : a;
  if (b.is(Kind::Const))
    return b->integer ? a : b;
  return a == b ? a : intern(makeNode(Kind::And, Type::Bool, {a, b}));
}

Expr Context::logicalOr(Expr a, Expr b) {
  if (a.is(Kind::Const))
    return a->integer ? a : b;
  if (b.is(Kind::Const))
    return b->integer ? b : a;
  return a == b ? a : intern(makeNode(Kind::Or, Type::Bool, {a, b}));
}

Expr Context::logicalNot(Expr a) {
  if (a.is(Kind::Const))
    return boolean(!a->integer);
  if (a.is(Kind::Not))
    return a.operand(0);
  return intern(makeNode(Kind::Not, Type::Bool, {a}));
}

Expr Context::select(Expr condition, Expr ifTrue, Expr ifFalse) {
  if (condition.is(Kind::Const))
    return condition->integer ? ifTrue : ifFalse;
  if (ifTrue == ifFalse)
    return ifTrue;
  Type type = ifTrue.type() == ifFalse.type()
                  ? ifTrue.type()
                  : promote(ifTrue.type(), ifFalse.type());
  return intern(makeNode(Kind::Select, type, {condition, ifTrue, ifFalse}));
}

Expr Context::cast(Type type, Expr a) {
  if (a.type() == type)
    return a;
  if (isFloat(a.type()) && isFloat(type) && isExactConversion(a.type(), type))
    return a;
  if (a.is(Kind::Const)) {
    if (isFloat(type) && computeType(type) == type)
      return real(roundTo(*a.constant(), type), type);
    if (!isFloat(type) && a->integral && isExactConversion(a.type(), type))
      return integer(a->integer, type);
  }
  return intern(makeNode(Kind::Cast, type, {a}));
}

Expr Context::contract(IndexSet inner, Expr body) {
  if (!inner)
    return body;
  Node node = makeNode(Kind::Contract, computeType(body.type()), {body});
  node.contracted = inner;
  return intern(node);
}

Expr Context::rebuild(Expr like, std::span<const Expr> ops) {
  assert(ops.size() == like.size() && "a node keeps its number of operands");
  switch (like.kind()) {
  case Kind::Const:
  case Kind::Sym:
    return like;
  case Kind::Add:
    return add(ops[0], ops[1]);
  case Kind::Sub:
    return sub(ops[0], ops[1]);
  case Kind::Mul:
    return mul(ops[0], ops[1]);
  case Kind::Div:
    return div(ops[0], ops[1]);
  case Kind::Neg:
    return neg(ops[0]);
  case Kind::Pow:
    return pow(ops[0], like->exponent);
  case Kind::Fn:
    return like.size() == 1 ? fn(like->fn, ops[0])
                            : fn(like->fn, ops[0], ops[1]);
  case Kind::Max:
    return max(ops[0], ops[1]);
  case Kind::Min:
    return min(ops[0], ops[1]);
  case Kind::MaxNum:
    return maxNum(ops[0], ops[1]);
  case Kind::MinNum:
    return minNum(ops[0], ops[1]);
  case Kind::Cmp:
    return cmp(like->pred, ops[0], ops[1]);
  case Kind::And:
    return logicalAnd(ops[0], ops[1]);
  case Kind::Or:
    return logicalOr(ops[0], ops[1]);
  case Kind::Not:
    return logicalNot(ops[0]);
  case Kind::Select:
    return select(ops[0], ops[1], ops[2]);
  case Kind::Cast:
    return cast(like.type(), ops[0]);
  case Kind::Contract:
    return contract(like->contracted, ops[0]);
  }
  return like;
}

} // namespace refold::algebra
