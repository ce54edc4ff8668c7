// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_ALGEBRA_FEATURES_H
#define REFOLD_LIB_ALGEBRA_FEATURES_H

#include "Builder.h"
#include "Monotone.h"

namespace refold::algebra {

/// term = φ(u) with u an element feature and φ free of elements.
struct Feature {
  Expr feature;
  Expr variable; ///< stands for the feature in `function`
  Expr function;
  Shape shape = Shape::Unknown;
  /// May be NaN where the feature is a number, as log(u - δ) is: NaN has a
  /// place of its own in every order.
  bool makesNan = false;
};

class FeatureFinder {
public:
  FeatureFinder(Builder &builder, Scope &scope, Expr term)
      : builder(builder), context(builder.context), scope(scope), term(term) {}
  /// The first feature in which the term is of a known shape; else any.
  std::optional<Feature> find();

private:
  std::vector<Expr> candidates();
  std::optional<Feature> bySubstitution(Expr feature);
  std::optional<Feature> bySeparation();
  void classify(Feature &found);

  Builder &builder;
  Context &context;
  Scope &scope;
  Expr term;
};

} // namespace refold::algebra

#endif // REFOLD_LIB_ALGEBRA_FEATURES_H
