// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_UNITTESTS_CONVERSION_CASCADESUITE_H
#define REFOLD_UNITTESTS_CONVERSION_CASCADESUITE_H

#include "refold/Support/Tensor.h"
#include <ostream>
#include <string>
#include <vector>

namespace refold {

/// An operand: element type, extents by index names or numbers, and how it is
/// filled.
struct SuiteOperand {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  enum Fill { Normal, Round, Labels, Bits, Positive, Special } fill = Normal;
  double scale = 1;
  int64_t limit = 0; ///< Labels: exclusive upper bound
};

struct SuiteIndex {
  std::string name, role;
  int64_t extent = 0;
};

/// A cascade without extents and operands spelled out: `text` makes it static
/// or dynamic.
struct SuiteCase {
  std::string name;
  std::vector<SuiteIndex> indices;
  std::vector<SuiteOperand> inputs, outputs;
  std::string body;
  double tolerance = 3e-6;
  bool canBeDynamic = true;
  std::string schedule = {}; ///< "" leaves the choice to the default

  /// `areVarying`: no input is said to be the same in every run.
  std::string text(bool isDynamic, const std::string &schedule,
                   bool isStrided = false, bool areVarying = false) const;
  bool hasNests() const;
};

/// For gtest's messages.
inline void PrintTo(const SuiteCase &c, std::ostream *os) { *os << c.name; }

/// Every case, at its own extents.
std::vector<SuiteCase> cascadeSuite();
/// Those of it where an element counts for one place of a carried index.
std::vector<SuiteCase> keyedCases();
/// Attention and row cases at other extents, of `batch` times twice as many
/// heads; the order and the dynamic texts do not depend on them.
std::vector<SuiteCase> cascadesOf(int64_t rows, int64_t stream,
                                  int64_t batch = 1);
/// Filled deterministically; a strided one has a row-major frame around it.
Tensor makeOperand(const SuiteOperand &operand, uint64_t seed, bool isStrided);

} // namespace refold

#endif // REFOLD_UNITTESTS_CONVERSION_CASCADESUITE_H
