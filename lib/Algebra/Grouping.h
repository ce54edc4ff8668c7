// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_ALGEBRA_GROUPING_H
#define REFOLD_LIB_ALGEBRA_GROUPING_H

#include "Builder.h"

/// Deferring a factor is exact, but may move a cancellation from the elements
/// into the epilogue: log s - log t of two sums that are nearly equal. Two
/// groupings keep the digits, with states of their own.
namespace refold::algebra {

/// An epilogue that loses no digits where it holds.
struct Grouping {
  Expr value;
  Expr holds; ///< of the row; elsewhere the value is as it fell out
  /// The value goes to 0 as two sums become equal, or as all but the attained
  /// elements of one do: rounding errors grow beyond any bound, whatever rows
  /// are tried.
  bool isVanishing = false;
  std::vector<std::string> texts; ///< what was done, for people
};

/// Looks for what can be grouped in a value over states.
class Grouper {
public:
  explicit Grouper(Builder &builder)
      : builder(builder), context(builder.context) {}
  /// Nothing if no grouping is known. May add states, which are pruned if
  /// nothing comes to read them.
  std::optional<Grouping> group(Expr value);

private:
  /// A term ±factor·log(sum).
  struct LogTerm {
    Monomial factor;
    double coefficient;
    Expr sum;
  };
  /// A difference of logs: factor·coefficient·(log above - log below) + rest.
  struct LogDifference {
    Monomial factor;
    double coefficient;
    Expr above, below;
    Poly rest;
  };

  Expr visit(Expr e);
  Expr paired(Expr e);
  Expr pairedOver(const LogDifference &of, bool isAboutMean, Type type);
  struct Direct;
  Direct directly(const LogDifference &of, const Poly &offset, Expr mean,
                  Type type);
  Expr meanOf(const LogDifference &of, const Poly &feature, Type type);
  Expr sumWhere(Expr isNeeded, const SumInfo &below, Expr factor, Type type,
                const std::string &name);
  Expr aboutMean(const LogDifference &of, const Poly &feature,
                 const Poly &offset, const Poly &base, Type type);
  Expr aboutZero(const LogDifference &of, const Poly &feature,
                 const Poly &offset, const Poly &base, Type type);
  Expr completed(const LogDifference &of, const Poly &base, Expr closeness,
                 Type type);
  Expr attainedLog(Expr e);
  Expr attainedRest(Expr e);
  std::optional<LogDifference> differenceIn(Expr e);
  const Extremal *attainedBy(Expr sum);
  std::pair<Expr, Expr> splitOff(Expr sum, const Extremal &fact);
  std::optional<Poly> logOf(Expr sum);
  std::optional<Poly> pointwise(const LogDifference &of);
  std::optional<Poly> ratio(Expr state, Expr weight);
  Poly expandedLogs(const Poly &poly);
  Expr atAtoms(Expr e);
  bool hasElements(const Poly &poly) const;
  void require(Expr condition);

  Builder &builder;
  Context &context;
  ExprMap visited;
  Expr vanishing; ///< the last grouping that goes to 0
  Grouping result;
};

} // namespace refold::algebra

#endif // REFOLD_LIB_ALGEBRA_GROUPING_H
