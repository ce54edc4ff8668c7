// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_ALGEBRA_CERTIFYTERM_H
#define REFOLD_LIB_ALGEBRA_CERTIFYTERM_H

#include "CertifyParts.h"
#include "refold/Algebra/DoubleDouble.h"

#include <algorithm>

namespace refold::algebra::certifier {

using Matrix = std::vector<std::vector<DoubleDouble>>;

/// Steps of a Gaussian elimination with full pivoting until what is left is
/// rounding.
unsigned numericRank(Matrix matrix);

/// The cascade up to one stage, whose term is its first output; values that are
/// constant in the pass of the cut are parameters. Without a program none is.
struct TermCascade {
  TermCascade(const Cascade &original, const Program *program, unsigned stage);

  Expr term() const { return cascade.outputs[0].value; }

  Cascade cascade;
  std::vector<std::pair<Expr, Expr>> constants; ///< result, its parameter
};

/// True if the term of a stage can be sampled: over one stream, without ranks.
bool isSampled(const Cascade &cascade, unsigned stage);

/// The inputs of a sample, always in the same order.
inline std::vector<std::pair<const Symbol *, std::vector<double> *>>
inOrder(Sample &sample) {
  std::vector<std::pair<const Symbol *, std::vector<double> *>> result;
  for (auto &[symbol, values] : sample.values)
    result.push_back({symbol, &values});
  std::sort(result.begin(), result.end(),
            [](auto a, auto b) { return a.first->id < b.first->id; });
  return result;
}

} // namespace refold::algebra::certifier

#endif // REFOLD_LIB_ALGEBRA_CERTIFYTERM_H
