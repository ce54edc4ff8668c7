// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_ALGEBRA_SEPARATE_H
#define REFOLD_LIB_ALGEBRA_SEPARATE_H

#include "Facts.h"
#include "refold/Algebra/Derive.h"

/// Separation: F(x, δ) as a finite sum of g(x)·h(δ), where x is what depends on
/// the stream and δ are the reductions that the same pass computes.
namespace refold::algebra {

/// What an expression depends on, seen from one pass.
enum class Dependence : uint8_t {
  Neutral = 0, ///< constants, parameters, results of earlier passes
  X = 1,       ///< elements
  D = 2,       ///< results of this pass
  Mixed = 3
};

/// Splits symbols into elements, results that vary in the pass, and the rest.
class Scope {
public:
  Scope(IndexSet stream, ExprSet varying)
      : stream(stream), varying(std::move(varying)) {}
  Dependence of(Expr e);
  bool isMixed(Expr e) { return of(e) == Dependence::Mixed; }
  bool hasX(Expr e) { return unsigned(of(e)) & 1; }
  bool hasD(Expr e) { return unsigned(of(e)) & 2; }
  void addVarying(Expr symbol);

private:
  IndexSet stream;
  ExprSet varying;
  std::unordered_map<Expr, Dependence, ExprHash> memo;
};

/// A predicate that knows only whether a feature u is at its extreme m, or on
/// which side of a position an element lies.
struct ExtremeGuard {
  Expr literal;
  Expr symbol;      ///< m
  bool isTrueShort; ///< its value where u is short of m, a number
  bool isTrueOnNan; ///< its value where m is NaN
  bool isPosition = false;
  bool isTrueBehind = false; ///< of a position: where the element is behind it
};
/// The four of a fact.
std::vector<ExtremeGuard> guardsAt(Context &context, const Extremal &fact);
/// The six of a position.
std::vector<ExtremeGuard> guardsAt(Context &context, const Position &place);
/// What `literal` says, if it is one of them.
std::optional<ExtremeGuard> extremeGuard(Context &context, FactBase &facts,
                                         Expr literal);
/// A mixed comparison as one of them.
std::optional<Expr> atExtreme(Context &context, FactBase &facts, Scope &scope,
                              Expr condition);

/// A sum of scaled expressions, kept as the user wrote them.
class LinearSum {
public:
  struct Piece {
    double coefficient;
    Monomial scale; ///< neutral
    Expr value;
  };
  void add(Expr value, double coefficient = 1, const Monomial &scale = {});
  LinearSum scaled(double coefficient, const Monomial &scale = {}) const;
  void append(const LinearSum &other);
  bool empty() const { return pieces.empty(); }
  const std::vector<Piece> &all() const { return pieces; }
  Poly normal(Normaliser &normaliser) const;
  Expr toExpr(Context &context, Type type) const;

private:
  std::vector<Piece> pieces;
};

/// A sum of an x-part and a δ-part inside a product: (x - mean), (x - m - log
/// s). In a frame it becomes t + e, with t the x-part seen from a pivot.
struct Translate {
  LinearSum x;
  Poly xNormal;
  Poly delta;
};

/// coefficient · g(x) · h(δ) · Π translate^k · e^(ex + ed), where all guards
/// hold.
struct Term {
  double coefficient = 1;
  Monomial g; ///< atoms with x
  /// Atoms with x that the guards do not cover: where(c, 0, p)·v is 0·v = NaN
  /// for v = NaN. Empty without guards.
  Monomial outer;
  Monomial h; ///< atoms without
  /// Atoms without x that the guards on elements cover: where no element
  /// passes them, 1/s of s = 0 is never formed. Empty without such guards.
  Monomial inner;
  std::map<unsigned, unsigned> translates; ///< number -> power
  LinearSum ex;                            ///< exponent, x and neutral parts
  std::vector<unsigned> casts;             ///< numbers of running casts, sorted
  Poly ed;                                 ///< exponent, δ-part
  std::vector<Expr> xGuards, dGuards;      ///< sorted by id, each once
};

/// One factor of what a running cast rounds.
struct CastFactor {
  enum class Kind : uint8_t {
    Element, ///< has elements, or nothing of the pass; results in exponents
    Running, ///< results that the rounded value is kept relative to
    Deferred ///< results of at most 1 that wait for the end of the row
  };
  Kind kind;
  Expr node;
  bool divides;
  std::optional<Term> term; ///< Element
};

/// q(y) with y = Π factors of elements and results: rounded at the results of
/// the elements read so far, and moved with them.
struct RunningCast {
  Expr node;    ///< as written
  Expr inner;   ///< without limits that never act
  Expr operand; ///< y in `inner`
  double unit = 0, step = 0, lowestNormal = 0;              ///< as in Rounding
  double largest = std::numeric_limits<double>::infinity(); ///< of the type
  double size = 0; ///< bound of |y|, where one is known
  unsigned floatCasts = 0, otherCasts = 0;
  bool isPowerOfTwo = false;
  std::vector<CastFactor> factors;
};

/// Why a term does not separate.
struct Reject {
  const char *reason = nullptr;
  Expr node;
  std::string text; ///< what is in the way, without names
  Expr term = {};   ///< the whole, over states
};

class Separator {
public:
  Separator(Context &context, Normaliser &normaliser, FactBase &facts,
            Scope &scope, Type type, unsigned budget)
      : context(context), normaliser(normaliser), facts(facts), scope(scope),
        type(type), budget(budget) {}

  /// Terms whose sum is `e`, or nothing and `reject` says why.
  std::optional<std::vector<Term>> separate(Expr e);
  /// An exponent or other sum as x-part and δ-part.
  struct Split {
    LinearSum x;
    Poly delta;
  };
  std::optional<Split> split(Expr e);

  const std::vector<Translate> &allTranslates() const { return translates; }
  /// The number of a translate by nothing: x itself, to be seen from a pivot.
  unsigned untranslated(Expr x);
  /// The product, its exponentials as exp(ex + ed).
  Expr toExpr(const Term &term);
  Reject reject;

  /// Set where running casts are understood: sums.
  const Policy *castPolicy = nullptr;
  const std::vector<RunningCast> &allCasts() const { return casts; }

private:
  /// Visits before a term is given up: shared subterms can make it exponential.
  static constexpr unsigned kMaxSteps = 20000;
  using Terms = std::vector<Term>;
  std::nullopt_t fail(const char *reason, Expr node, std::string text);
  std::optional<Terms> visit(Expr e);
  std::optional<Terms> compute(Expr e);
  std::optional<Terms> withoutTranslates(const Term &term, Expr node);
  Terms scaled(Terms terms, double coefficient, const Monomial &scale);
  std::optional<Terms> atom(Expr e);
  std::optional<Terms> sum(Expr e);
  std::optional<Terms> multiply(const Terms &a, const Terms &b, Expr node);
  std::optional<Terms> power(Expr e, Expr base, Rational exponent);
  std::optional<Terms> exponential(Expr argument, double factor);
  std::optional<Terms> absolute(Expr e);
  std::optional<Terms> extremum(Expr e);
  Expr castDistance(Expr e);
  std::optional<Terms> besides(const Position &place, double factor, Expr e);
  std::optional<Terms> choice(Expr e);
  std::optional<Terms> chosen(Expr condition, Expr ifTrue, Expr ifFalse);
  std::optional<Terms> function(Expr e);
  std::optional<Terms> circular(Expr e);
  std::pair<Expr, Expr> circularOf(const LinearSum &x);
  std::optional<Terms> contraction(Expr e);
  struct Branches {
    Expr condition, ifTrue, ifFalse;
  };
  std::optional<Branches> choiceIn(Expr e);
  std::optional<Expr> settled(Expr condition);
  // Casts.cpp
  std::optional<Terms> rounded(Expr e);
  Expr withoutLimits(Expr e, RunningCast &own);
  Expr withoutLimit(Expr e, RunningCast &own);
  bool collectFactors(Expr e, bool divides, RunningCast &own);
  bool chooseScales(RunningCast &own);
  bool isBounded(const RunningCast &own, double limit);
  double sizeOf(const RunningCast &own);
  bool isGrowing(Expr e, bool isFalling);
  Expr unguardedScale(Expr e);
  void addScaleFacts(Expr scale);
  bool hasFreeExp(Expr e);
  bool dependsOnX(const Term &term) const;
  bool dependsOnD(const Term &term) const;
  bool flatten(Expr e, double coefficient, const Monomial &scale, LinearSum &x,
               LinearSum &d, Terms &mixed);
  bool flattenLog(Expr argument, double coefficient, const Monomial &scale,
                  LinearSum &x, LinearSum &d);
  bool settleLeftover(const Term &term, Expr node, LinearSum &x, LinearSum &d);
  Term translated(LinearSum x, Poly delta);
  Terms combined(Terms terms);

  Context &context;
  Normaliser &normaliser;
  FactBase &facts;
  Scope &scope;
  Type type;
  unsigned budget;
  std::vector<Translate> translates;
  std::vector<RunningCast> casts;
  std::unordered_map<Expr, Terms, ExprHash> memo;
  unsigned steps = 0;
};

} // namespace refold::algebra

#endif // REFOLD_LIB_ALGEBRA_SEPARATE_H
