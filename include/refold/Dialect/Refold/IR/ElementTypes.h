// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_DIALECT_REFOLD_IR_ELEMENTTYPES_H
#define REFOLD_DIALECT_REFOLD_IR_ELEMENTTYPES_H

#include "mlir/IR/Types.h"
#include "refold/Support/Tensor.h"
#include <optional>

namespace refold {

/// The dtype that stores elements of a type, or nothing for one that no array
/// has. An `index` is stored as i64; i8 says nothing of its sign, which
/// `isUnsigned` does (attribute `refold.unsigned` of a port).
std::optional<DType> dtypeOf(mlir::Type elementType, bool isUnsigned = false);

} // namespace refold

#endif // REFOLD_DIALECT_REFOLD_IR_ELEMENTTYPES_H
