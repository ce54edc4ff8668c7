// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_TRANSFORMS_PASSES_H
#define REFOLD_TRANSFORMS_PASSES_H

#include "mlir/Pass/Pass.h"
#include <memory>

namespace refold {

/// -refold-normalise-program
std::unique_ptr<mlir::Pass> createNormaliseProgramPass();
/// -refold-fuse-cascades{fuse=true}
std::unique_ptr<mlir::Pass> createFuseCascadesPass();

/// -refold-fuse-epilogues
std::unique_ptr<mlir::Pass> createFuseEpiloguesPass();
/// -refold-recertify-cascades
std::unique_ptr<mlir::Pass> createRecertifyCascadesPass();
/// -refold-print-kernels{fuse=true}
std::unique_ptr<mlir::Pass> createPrintKernelsPass();

/// Registers the passes of lib/Transforms by their flags.
void registerRefoldPasses();

} // namespace refold

#endif // REFOLD_TRANSFORMS_PASSES_H
