// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_UNITTESTS_SUPPORT_TESTTENSORS_H
#define REFOLD_UNITTESTS_SUPPORT_TESTTENSORS_H

#include "refold/Support/Tensor.h"
#include <limits>
#include <vector>

namespace refold {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// An array of these elements, row by row.
inline Tensor array(DType dtype, std::vector<int64_t> shape,
                    std::vector<double> values) {
  Tensor tensor = llvm::cantFail(Tensor::create(dtype, shape));
  for (size_t i = 0; i < values.size(); ++i)
    tensor.set(i, values[i]);
  return tensor;
}

} // namespace refold

#endif // REFOLD_UNITTESTS_SUPPORT_TESTTENSORS_H
