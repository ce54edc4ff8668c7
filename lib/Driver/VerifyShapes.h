// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_DRIVER_VERIFYSHAPES_H
#define REFOLD_LIB_DRIVER_VERIFYSHAPES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "refold/Driver/Verify.h"

namespace refold {

/// The program as loaded, and what is known of its axes.
struct ShapesOf {
  mlir::func::FuncOp function;
  llvm::ArrayRef<Port> inputs;
  std::vector<std::string> streams; ///< what cascades run over
};

struct ShapeToVerify {
  Extents extents;
  /// One input of each family is affordable, and more where an error is beyond
  /// its bound.
  bool isCostly = false;
};

/// One shape for each length of the stream axes, then the broad one; names the
/// stream axes, and those that follow them, in `coverage`.
std::vector<ShapeToVerify> chooseShapes(const ShapesOf &program,
                                        const VerifyOptions &options,
                                        Coverage &coverage);

} // namespace refold

#endif // REFOLD_LIB_DRIVER_VERIFYSHAPES_H
