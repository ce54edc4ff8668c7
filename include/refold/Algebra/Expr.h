// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_ALGEBRA_EXPR_H
#define REFOLD_ALGEBRA_EXPR_H

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

/// Scalar expressions, the language in which reductions are described, derived
/// and printed. Nothing here knows MLIR.
///
/// An expression is what the user wrote: the builder folds constants where they
/// stand and drops neutral operands, but never reassociates, distributes or
/// cancels ((a + b) - a stays). Normal forms are made, compared and thrown away
/// inside the separator; rounding is decided by what is printed from here.
namespace refold::algebra {

/// A set of the cascade's indices, bit i = index i.
using IndexSet = uint64_t;

/// f16, bf16 and f8 are storage: a value of such a type takes part in
/// arithmetic as its exact extension to f32, so extensions never appear as
/// nodes. Truncations do, as casts. A float next to an integer stands for its
/// conversion; `promote` says what comes out.
enum class Type : uint8_t {
  F64,
  F32,
  F16,
  BF16,
  F8E4M3,
  F8E5M2,
  I64,
  I32,
  I8,
  U8,
  Bool,
  Index
};
bool isFloat(Type type);
/// The type in which arithmetic on values of `type` happens: f32 for narrow
/// floats.
Type computeType(Type type);
/// The type of arithmetic on both: f64 > f32 > i64 > i32; index with index
/// stays.
Type promote(Type a, Type b);
/// True if every value of `from` is a value of `to`.
bool isExactConversion(Type from, Type to);
/// Largest finite value of a float type.
double largestFinite(Type type);
const char *spelling(Type type);

enum class Kind : uint8_t {
  Const, ///< typed constant
  Sym,   ///< named value
  Add,
  Sub,
  Mul,
  Div, ///< two operands; Div is the real quotient
  Neg,
  Pow, ///< constant rational exponent
  Fn,  ///< see `Fn`
  Max,
  Min, ///< two operands, NaN sticks
  MaxNum,
  MinNum, ///< two operands, a NaN gives way
  Cmp,    ///< see `Pred`, Bool
  And,
  Or,
  Not,
  Select, ///< condition, value if true, value if false
  Cast,   ///< to the node's type: rounds to nearest even, saturates as docs say
  Contract ///< sum of the operand over inner indices, complete for one element
};

enum class Fn : uint8_t {
  Exp,
  Exp2,
  Expm1,
  Log,
  Log2,
  Log1p,
  Sqrt,
  Rsqrt,
  Abs,
  Sign,
  Floor,
  Ceil,
  Round, ///< to nearest, ties to even
  Tanh,
  Sigmoid,
  Erf,
  Sin,
  Cos,
  Sinh,
  Cosh,
  Relu,
  IsNan,
  IsInf,
  // Two operands:
  PowFn, ///< general power
  FloorDiv,
  Rem, ///< of integers: // and % of the language
  Atan2
};
unsigned arity(Fn fn);
const char *spelling(Fn fn);

/// Comparisons of floats are ordered (false on NaN) but Ne, which is true on
/// NaN.
enum class Pred : uint8_t { Lt, Le, Gt, Ge, Eq, Ne };
const char *spelling(Pred pred);

struct Rational {
  int64_t num = 0;
  int64_t den = 1; ///< > 0, no common divisor
  bool isInteger() const { return den == 1; }
  double value() const { return double(num) / double(den); }
  friend bool operator==(const Rational &, const Rational &) = default;
};
/// The reduced fraction. Requires den != 0.
Rational rational(int64_t num, int64_t den = 1);

/// What a symbol stands for.
enum class Role : uint8_t {
  Element,   ///< read that depends on the stream
  Parameter, ///< read or scalar that does not; lengths too
  Index,     ///< an index as a value
  Stage,     ///< complete value of a stage of the user's cascade
  State,     ///< complete value of a state of a derived program
  Let,       ///< named value of a derived program
  Old,
  New,  ///< transport: pivot number `ordinal` before and after the move
  Self, ///< transport: the state itself, before the move
  With  ///< transport: state number `ordinal` of `with`, before the move
};

/// What is known of a symbol's value besides its type.
struct Facts {
  bool nonNegative = false;
  bool mayBeNegInf = true; ///< false: every finite or +inf; masks make -inf
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

struct Symbol {
  std::string name; ///< for people; identity is the object
  Role role;
  Type type;
  IndexSet indices = 0;
  unsigned ordinal = 0; ///< which pivot, `with`, stage or index it is
  Facts facts;
  uint32_t id = 0; ///< order of creation in its context
};

class Context;
class Expr;

/// One node. Equal nodes of one context are one object.
struct Node {
  Kind kind;
  Type type;
  Fn fn{};
  Pred pred{};
  bool integral = false; ///< Const: `integer` holds the value
  uint8_t roles =
      0; ///< union of 1 << role over the symbols inside (low 8 roles)
  uint8_t count = 0;    ///< operands
  IndexSet indices = 0; ///< Contract has removed its own
  IndexSet contracted = 0;
  double real = 0;
  int64_t integer = 0;
  Rational exponent{};
  const Symbol *symbol = nullptr;
  const Node *operands[3] = {nullptr, nullptr, nullptr};
  uint32_t id = 0;    ///< creation order: operands come before users
  uint32_t depth = 1; ///< longest path to a leaf
  size_t hash = 0;
};

/// A handle: cheap to copy, compares by identity. Null until assigned.
class Expr {
public:
  Expr() = default;
  explicit Expr(const Node *node) : node(node) {}
  explicit operator bool() const { return node != nullptr; }
  const Node *operator->() const { return node; }
  const Node *get() const { return node; }

  Kind kind() const { return node->kind; }
  Type type() const { return node->type; }
  IndexSet indices() const { return node->indices; }
  unsigned size() const { return node->count; }
  Expr operand(unsigned i) const { return Expr(node->operands[i]); }
  bool is(Kind kind) const { return node->kind == kind; }
  bool is(Fn fn) const { return node->kind == Kind::Fn && node->fn == fn; }
  bool isSym() const { return is(Kind::Sym); }
  bool isSym(Role role) const { return isSym() && node->symbol->role == role; }
  const Symbol &symbol() const { return *node->symbol; }
  /// The value of a constant as a real number.
  std::optional<double> constant() const;
  bool isConstant(double value) const;
  /// True if a symbol of this role is inside.
  bool uses(Role role) const;

  friend bool operator==(Expr a, Expr b) { return a.node == b.node; }
  friend bool operator<(Expr a, Expr b) { return a.node->id < b.node->id; }

private:
  const Node *node = nullptr;
};

struct ExprHash {
  size_t operator()(Expr e) const { return std::hash<const void *>()(e.get()); }
};
using ExprMap = std::unordered_map<Expr, Expr, ExprHash>;
using ExprSet = std::unordered_set<Expr, ExprHash>;

/// Owns symbols and nodes. Not thread safe; one per derivation is the custom.
class Context {
public:
  Context();
  ~Context();
  Context(const Context &) = delete;
  Context &operator=(const Context &) = delete;

  // Leaves.
  Expr real(double value, Type type = Type::F32);
  Expr integer(int64_t value, Type type = Type::I64);
  Expr boolean(bool value);
  /// A new symbol each call, also under an old name.
  Expr symbol(std::string name, Role role, Type type, IndexSet indices,
              unsigned ordinal = 0, Facts facts = {});
  /// Transport placeholders: one for each role, ordinal and type.
  Expr placeholder(Role role, unsigned ordinal, Type type);

  // Arithmetic. Types are promoted as said at `Type`.
  Expr add(Expr a, Expr b);
  Expr sub(Expr a, Expr b);
  Expr mul(Expr a, Expr b);
  Expr div(Expr a, Expr b);
  Expr neg(Expr a);
  Expr pow(Expr base, Rational exponent);
  Expr fn(Fn fn, Expr a);
  Expr fn(Fn fn, Expr a, Expr b);
  Expr max(Expr a, Expr b);
  Expr min(Expr a, Expr b);
  Expr maxNum(Expr a, Expr b);
  Expr minNum(Expr a, Expr b);
  Expr cmp(Pred pred, Expr a, Expr b);
  Expr logicalAnd(Expr a, Expr b);
  Expr logicalOr(Expr a, Expr b);
  Expr logicalNot(Expr a);
  Expr select(Expr condition, Expr ifTrue, Expr ifFalse);
  /// An exact conversion to a wider float is `a` itself.
  Expr cast(Type type, Expr a);
  Expr contract(IndexSet inner, Expr body);

  // Shorthand.
  Expr exp(Expr a) { return fn(Fn::Exp, a); }
  Expr log(Expr a) { return fn(Fn::Log, a); }
  Expr sqrt(Expr a) { return fn(Fn::Sqrt, a); }
  /// A node like `like` over other operands.
  Expr rebuild(Expr like, std::span<const Expr> operands);

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
  Expr intern(Node node);
};

/// Calls `visit` once for each node, operands first.
void forEachNode(Expr root, const std::function<void(Expr)> &visit);
/// The symbols inside, in order of creation.
std::vector<Expr> symbolsOf(Expr root);
bool contains(Expr root, Expr part);
/// `root` with every key of `map` replaced; replacements are not searched
/// again.
Expr substitute(Context &context, Expr root, const ExprMap &map);

/// Hash and equality by structure, also across contexts. Without `names`, two
/// symbols correspond if role, type, indices and ordinal do and the
/// correspondence is one to one in order of first use (of `equal`: checked).
uint64_t structuralHash(Expr root, bool names);
bool structurallyEqual(Expr a, Expr b, bool names);

/// One line for debugging and test failures: (add x (mul 2 y)). Docs/remarks
/// use Formula.h.
std::string dump(Expr root);

} // namespace refold::algebra

#endif // REFOLD_ALGEBRA_EXPR_H
