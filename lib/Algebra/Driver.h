// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_ALGEBRA_DRIVER_H
#define REFOLD_LIB_ALGEBRA_DRIVER_H

#include "Edges.h"
#include "Guards.h"

namespace refold::algebra {

/// One derivation: stages in order (Derive.cpp), then outputs (Outputs.cpp).
class Driver {
public:
  Driver(const Cascade &cascade, const Policy &policy, Program &program)
      : cascade(cascade), program(program), policy(policy),
        builder(cascade, policy, program), edges(cascade) {}
  void run();
  /// True if maxima of our own were added and no output got rid of them: it
  /// overflows where the formula as written does.
  bool hasUselessPivots() const {
    return !builder.ownPivots.empty() && !hasSettledOutput;
  }

private:
  void stage(unsigned number);
  bool attempt(unsigned number, Expr term, unsigned pass);
  bool derived(unsigned number, Expr term, unsigned pass);
  Expr inPass(Expr term, unsigned pass);
  Expr named(Expr result);
  void addFacts(const Stage &stage, Expr value, unsigned pass);
  bool isNeverNegative(Expr term);
  Expr inDomain(const Stage &stage, Expr readout, unsigned pass);
  std::optional<Poly> atExtreme(Expr e, const Extremal &fact);
  Expr unguardedPivots(Expr term);
  void followEdges();
  Expr filled(const Stage &stage, size_t number, Expr value);
  bool readsVacancies(Expr output) const;
  Expr written(const Extremal &fact) const;
  void finish();
  Expr grouped(const Output &output, Expr raw, Expr value);
  Program trialOf(const std::string &name, Expr value);
  double amplificationOf(const std::string &name, Expr value);
  bool losesDigits(size_t output, Expr value);
  void prune();
  Expr asWritten(Expr e) const;
  void nameRoundings();
  Cut cutOf(unsigned number, unsigned pass);
  void nameList(const Stage &stage);
  Expr withoutOwnPivots(Expr value);
  Expr withoutMoves(Expr value);
  std::optional<Rational>
  degreeOf(Expr e, const ExprSet &scaled,
           std::unordered_map<Expr, std::optional<Rational>, ExprHash> &memo);
  ExprMap homogeneous(Expr output);
  void dropReadouts();
  std::optional<bool> known(Expr condition);
  void findIdleGuards();

  const Cascade &cascade;
  Program &program;
  const Policy &policy;
  Builder builder;
  Edges edges;
  size_t extremals = 0; ///< facts that `edges` knows
  std::vector<unsigned> depth;
  bool hasSettledOutput = false;  ///< some output lost a pivot of our own
  ExprMap names;                  ///< results of earlier passes -> their lets
  std::optional<ExprSet> domains; ///< results under roots and logarithms
};

} // namespace refold::algebra

#endif // REFOLD_LIB_ALGEBRA_DRIVER_H
