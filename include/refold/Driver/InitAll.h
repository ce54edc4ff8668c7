// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_DRIVER_INITALL_H
#define REFOLD_DRIVER_INITALL_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace refold {

/// Every dialect from the program form down to LLVM, with the interfaces that
/// the passes ask for.
void registerAllDialects(mlir::DialectRegistry &registry);

/// The passes and pipelines of the project, for refold-opt.
void registerAllPasses();

} // namespace refold

#endif // REFOLD_DRIVER_INITALL_H
