// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_DRIVER_REFUSED_H
#define REFOLD_LIB_DRIVER_REFUSED_H

#include "refold/Driver/Driver.h"
#include "refold/Target/CPU/DetectTarget.h"

namespace refold {

/// Fusions that a target has no code for: their products, or else all of their
/// reductions, become steps of their own.
class RefusedFusions {
public:
  /// Whether the target takes a kernel: Unsupported where it does not, any
  /// other error where something is wrong with its own work.
  using Check = llvm::function_ref<llvm::Error(const KernelText &)>;

  /// Before `program` is fused.
  explicit RefusedFusions(LoadedProgram &program)
      : original(program.module->clone()) {}

  /// After it was fused with these options: fuses it again, without what
  /// `check` refuses, if there is any; `report` then says so, and certificates
  /// are not deferred. Whether it did. What is refused unfused too stays as it
  /// is.
  llvm::Expected<bool> leave(LoadedProgram &program, const FuseOptions &options,
                             const CpuTarget &target, Check check,
                             FuseReport &report);

  /// The program fused with these options, but for what `check` refuses; null
  /// where that is nothing, or cannot be left apart.
  llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
  without(const FuseOptions &options, const CpuTarget &target, Check check);

private:
  mlir::OwningOpRef<mlir::ModuleOp> original;
};

} // namespace refold

#endif // REFOLD_LIB_DRIVER_REFUSED_H
