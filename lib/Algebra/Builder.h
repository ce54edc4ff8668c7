// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_ALGEBRA_BUILDER_H
#define REFOLD_LIB_ALGEBRA_BUILDER_H

#include "Separate.h"
#include "refold/Algebra/Derive.h"

/// The state of a derivation: the program so far, what its states are, and what
/// is known of them.
namespace refold::algebra {

/// What a reducer accumulates values of `type` in.
Type accumulatorType(Reducer reducer, Type type);

/// coefficient·scale times a symbol: how far an x-part is moved by one pivot.
struct Shift {
  double coefficient = 1;
  Monomial scale; ///< neutral
  Expr atom;      ///< the pivot as it occurs in normal forms
  Expr feature;   ///< u with t = u - pivot; may be null
  Expr pivot;     ///< guarded: the symbol of a let
  friend bool operator==(const Shift &a, const Shift &b) {
    return a.coefficient == b.coefficient && a.scale == b.scale &&
           a.pivot == b.pivot;
  }
};

/// A pivot that elements are divided by (or multiplied with) before rounding.
struct Scale {
  Expr pivot;
  bool divides;
};

/// The exponential that a group of terms shares: e^(ex - pivots), at most 1,
/// and what is rounded at running pivots.
struct Gauge {
  Expr factor; ///< null: no exponential
  std::vector<Shift> shifts;
  std::vector<Scale> scales;
  const char *castLaw = nullptr; ///< of what is rounded, if anything is
  Poly
      moved; ///< what was subtracted from the exponent: Σ shifts + neutral rest
  std::vector<Expr> xGuards;
  Monomial outer; ///< factors that the guards do not cover
  friend bool operator==(const Gauge &a, const Gauge &b) {
    return a.factor == b.factor && a.xGuards == b.xGuards && a.outer == b.outer;
  }
};

/// What a Sum state adds up: coefficient-free g(x) under a gauge.
struct SumInfo {
  Monomial g;
  Gauge gauge;
};

/// A mean that serves as a pivot: sum / weight, guarded, and its first moment.
struct Mean {
  Expr sum, weight;
  Expr feature;
  Expr divisor; ///< weight, never 0
  Expr pivot;   ///< let: sum / divisor
  Expr moment;  ///< Σ weight·(feature - pivot), where some state needs it
};

/// One variable of a frame: t = Σ k·(u - pivot) + rest.
struct Variable {
  Expr t;
  std::vector<Shift> shifts;
  Expr offset; ///< what is left of the δ-part, null if it cancels: x - δ = t +
               ///< offset
};

/// A variable while its pivots are chosen.
struct Location {
  Variable variable;
  Poly rest;  ///< of the x-part, without the features taken
  Poly delta; ///< of the δ-part, with the pivots taken
  std::vector<std::pair<Shift, Mean>> refined; ///< pivots that are exact means
};

/// A polynomial in the variables of a frame with coefficients g(x).
using Powers = std::map<unsigned, unsigned>;
using FramePoly = std::map<std::pair<Monomial, Powers>, double>;
using Combination = std::vector<std::pair<double, Expr>>;

/// What the states of a frame polynomial depend on.
struct FrameKey {
  FramePoly poly;
  std::vector<Expr> variables;
  uint32_t exponential; ///< 0: none
  std::vector<Expr> guards;
  Monomial outer;
  unsigned pass;
  friend bool operator<(const FrameKey &a, const FrameKey &b) {
    return std::tie(a.poly, a.variables, a.exponential, a.guards, a.outer,
                    a.pass) < std::tie(b.poly, b.variables, b.exponential,
                                       b.guards, b.outer, b.pass);
  }
};

/// A sum of states times a factor without elements.
struct Part {
  Monomial factor;
  Combination sum;
};

/// Terms that share their exponential and their guards on elements.
struct Group {
  std::vector<Term> terms;
  LinearSum ex;
  Poly exNormal;
  std::vector<unsigned> casts;
  std::vector<Expr> xGuards;
  Monomial outer;
};

/// What parts of a readout share: where(guards, factor·where(any, sum, 0), 0).
struct SumKey {
  std::vector<Expr> guards; ///< on the row
  Expr any;        ///< state: some element passes the guards; null: no matter
  Monomial factor; ///< of the sum of the parts
  friend bool operator<(const SumKey &a, const SumKey &b) {
    auto number = [](Expr e) { return e ? int64_t(e->id) : -1; };
    return std::tuple(a.guards, number(a.any), a.factor) <
           std::tuple(b.guards, number(b.any), b.factor);
  }
};

/// The readout of a sum while it is put together.
struct SumParts {
  std::map<SumKey, std::vector<Part>> parts;
  std::vector<Expr> offsets;
};

/// The extreme of a term over the elements that pass a guard.
struct Extremum {
  const Stage &stage;
  Reducer reducer;
  Expr guard; ///< of elements; null: all pass
  unsigned pass;
  /// The value where the guard holds, else the identity.
  Expr guarded(Context &context, Expr value) const;
};

class Builder {
public:
  Builder(const Cascade &cascade, const Policy &policy, Program &program);

  Context &context;
  const Cascade &cascade;
  const Policy &policy;
  Program &program;
  Normaliser normaliser;
  FactBase facts;

  /// Stage symbol -> its value over states, to be separated further (raw) and
  /// as the user sees it on every row (final).
  ExprMap rawReadout, finalReadout;
  /// Result of a top-k -> which of its slots no element fills.
  ExprMap vacancies;
  std::unordered_map<Expr, unsigned, ExprHash> passOf; ///< states and lets
  std::unordered_map<Expr, SumInfo, ExprHash> sums;

  Expr listed; ///< the condition of the latest list
  /// States of passes that only some rows need.
  ExprSet repairs;

  /// Maxima that the user did not write: they must leave the results again.
  ExprSet ownPivots;

  // Builder.cpp
  Scope scopeOf(unsigned pass) const;
  /// The state of this reducer and value, made if there is none yet.
  Expr state(Reducer reducer, Expr value, std::string name);
  Expr addState(State state, std::string name);
  Expr addLet(Expr value, std::string name);
  Expr count(unsigned pass, Expr hold);
  /// The guarded pivot for max/min-like `atom`.
  Expr guarded(Expr atom);
  bool isPivotable(Expr atom, Scope &scope) const;

  // Gauge.cpp
  Gauge chooseGauge(const LinearSum &ex, const std::vector<const Term *> &terms,
                    Scope &scope, Type type, unsigned pass,
                    const std::string &name);
  Expr shifted(const LinearSum &x, const std::vector<Shift> &shifts,
               Scope &scope, Type type);
  std::optional<Shift> multipleOf(const Poly &poly, const Poly &normal,
                                  Scope &scope) const;

  // Casts.cpp
  bool addCasts(const std::vector<unsigned> &casts,
                const std::vector<const Term *> &terms, Separator &separator,
                Scope &scope, Type type, unsigned pass, const std::string &name,
                Gauge &gauge, Monomial &readout);
  /// The term separates if roundings may be done at running values.
  bool wouldRequantise(Expr term, unsigned pass);

  // Frame.cpp
  Variable locate(const Translate &translate, const Gauge &gauge,
                  const Monomial &weights, unsigned degree, Scope &scope,
                  Type type, unsigned pass, const std::string &name);
  Combination build(FramePoly poly, const std::vector<Variable> &variables,
                    const Gauge &gauge, Type type, unsigned pass,
                    const std::string &name);
  Combination construct(FramePoly poly, const std::vector<Variable> &variables,
                        const Gauge &gauge, Type type, unsigned pass,
                        const std::string &name);
  bool isFirstMoment(const FramePoly &poly,
                     const std::vector<Variable> &variables,
                     const Gauge &gauge) const;
  Expr firstMoment(const Mean &mean, Type type, unsigned pass);
  Expr squaresAbout(const Mean &mean) const;
  Expr refinedMean(const Mean &mean, Expr written, Expr weight);
  /// `value` with means S/W as pivot + moment/W where squares about the pivot
  /// say that the moment has digits that the rounded pivot lacks.
  Expr refined(Expr value);

  // Sums.cpp
  bool deriveSum(unsigned stage, Expr term, unsigned pass);
  bool deriveProduct(unsigned stage, Expr term, unsigned pass);
  // Resets.cpp
  bool deriveAtExtreme(unsigned stage, Expr term, Scope &scope);
  /// `all`: the same without the guard. `keepsClass`: what is not at the
  /// extreme is 0 times `all`.
  void reset(State &state, const ExtremeGuard &guard, std::optional<State> all,
             bool keepsClass = false);
  /// The term with positions of best elements as states that others are kept
  /// relative to.
  Expr withPositions(Expr term, unsigned pass);
  // Extremes.cpp
  bool deriveExtremum(unsigned stage, Expr term, unsigned pass);
  Expr extremeOf(const Extremum &of, Expr term, Scope &scope);
  bool deriveTopK(unsigned stage, Expr term, unsigned pass);
  // Thresholds.cpp
  /// A sum over the best elements. `finalTerm` makes the term of the next pass,
  /// which rows need whose list is too short; null: only asks whether there is
  /// such a list.
  bool deriveThreshold(unsigned stage, Expr term,
                       const std::function<Expr()> *finalTerm, unsigned pass);

  Reject reject; ///< set where derive... answers false

private:
  friend class Grouper;
  Expr extremeByFeature(const Extremum &of, Expr term, Scope &scope);
  Expr extremeByParts(const Extremum &of, Expr term, Scope &scope);
  Expr joined(Reducer reducer, Expr a, Expr b);
  std::string unique(std::string name);
  unsigned rulePass(const std::vector<Expr> &values,
                    const std::vector<Expr> &pivots) const;
  std::optional<Mean> meanIn(const Monomial &monomial, const Poly &xNormal,
                             Scope &scope, Type type, unsigned pass,
                             Shift &shift);
  Mean meanOf(Expr sum, Expr weight, Expr feature, Type type);
  void take(Location &location, const Shift &shift);
  void takeExtremal(Location &location, const Extremal &fact, Scope &scope);
  void takePosition(Location &location, const Position &place, Scope &scope,
                    Type type);
  void takeMeans(Location &location, const Poly &subtracted, Scope &scope,
                 Type type, unsigned pass);
  void takeOwnMean(Location &location, const LinearSum &x, const Gauge &of,
                   const Monomial &weights, Scope &scope, Type type,
                   unsigned pass, const std::string &name);
  Expr offsetOf(const Location &location, unsigned degree, Type type,
                unsigned pass, const std::string &name);
  Expr print(const FramePoly &poly, const std::vector<Variable> &variables,
             const Gauge &gauge, Type type);
  Expr distance(const std::vector<Shift> &shifts, std::vector<Expr> &pivots,
                unsigned pass, Type type);
  Expr value(const Combination &sum, Type type);
  Expr realSummand(unsigned number, Expr term);
  bool isSafeScale(Expr scale);
  Expr scaleMove(const std::vector<Scale> &scales, std::vector<Expr> &pivots,
                 unsigned pass);
  bool castGauge(const RunningCast &own, const std::vector<const Term *> &terms,
                 Scope &scope, Type type, unsigned pass,
                 const std::string &name, Gauge &gauge, Monomial &readout);
  Expr unlessEmpty(const State &state, Expr moved);
  Expr movedWith(State &state, const State &other);
  void resetAll(State &state, const FramePoly &poly,
                const std::vector<Variable> &variables, const Gauge &gauge,
                Type type, unsigned pass, const std::string &name);
  Expr plainSum(Expr term, const std::vector<Term> *terms,
                const std::string &name);
  bool isForOutputsOnly(unsigned stage) const;
  Expr sumOf(unsigned stage, Expr term, unsigned pass, const std::string &name);
  Monomial weightsOf(const Group &group, unsigned translate) const;
  bool addGroup(Group group, Separator &separator, Scope &scope, Type type,
                unsigned pass, unsigned stage, const std::string &name,
                SumParts &result);
  bool isTame(const Monomial &factor, const std::vector<Expr> &guards);
  Expr anyOf(const std::vector<Expr> &guards, const std::string &name);
  Expr firstPosition(const State &best, unsigned pass);
  std::vector<Expr> bestBy(const std::vector<Expr> &values, bool largest);
  Expr total(std::vector<Part> parts, const std::vector<Expr> &offsets,
             Type type);
  Expr transport(const std::map<Powers, Combination> &taylor,
                 const std::vector<Variable> &variables, const Gauge &gauge,
                 State &state, unsigned pass, Type type);

  std::map<std::tuple<Reducer, Expr, unsigned>, Expr> table;
  std::map<FrameKey, Combination> built;
  /// Lists of the best elements, by what they keep and which end.
  std::map<std::pair<std::vector<Expr>, bool>, std::vector<Expr>> lists;
  int listRank = -1; ///< the index of their places
  /// By value: whether the row has more elements of a set than its list holds.
  std::map<Expr, Expr> shortLists;
  std::map<Expr, Expr> guards;
  std::map<std::pair<Expr, bool>, Expr> scales; ///< lets by scale, divides
  std::map<Expr, Expr> offsets;                 ///< lets by value
  std::map<std::pair<Expr, Expr>, Mean> means;
  std::unordered_map<std::string, unsigned> names;
};

} // namespace refold::algebra

#endif // REFOLD_LIB_ALGEBRA_BUILDER_H
