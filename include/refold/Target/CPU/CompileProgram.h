// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_TARGET_CPU_COMPILEPROGRAM_H
#define REFOLD_TARGET_CPU_COMPILEPROGRAM_H

#include "mlir/IR/BuiltinOps.h"
#include "refold/Package/Package.h"
#include "refold/Runtime/ExecutableSpec.h"
#include "refold/Target/CPU/DetectTarget.h"
#include "llvm/Support/Error.h"
#include <functional>

namespace refold {

class DiskCache;
class StageTimes;

struct CompileProgramOptions {
  unsigned threads = 0; ///< that compile kernels; 0: one a core
  /// Where kernels are looked for, and kept; null: nowhere.
  const DiskCache *cache = nullptr;
  StageTimes *times = nullptr; ///< gets the time of every stage, where set
  /// Asked between the stages of a kernel, from any thread, where set; if so
  /// the compilation ends with an error.
  std::function<bool()> isCancelled;
  /// Only the steps and the texts of the kernels: for a look at what would run.
  bool plansOnly = false;
  /// The texts call operands as the program does; equal kernels, as the first
  /// of them does.
  bool keepsNames = false;
  /// Products write f16 and bf16 themselves where the program rounds them next.
  bool roundsProducts = false;
  /// Kernels write what is a part of a longer array into that array. Not for
  /// GPUs: their kernels copy boxes of arrays that begin at round addresses.
  bool writesParts = true;
  /// Told of every kernel in the order of their numbers, before it is lowered:
  /// the text of a module whose one function holds a cascade on memrefs.
  std::function<void(llvm::StringRef kernel, llvm::StringRef text)> onKernel;
  /// Called with the LLVM IR or assembly of every kernel, where set; for tools
  /// that show code.
  std::function<void(llvm::StringRef kernel, llvm::StringRef assembly)>
      onAssembly;
  /// Called with the object code of every kernel, in order, where set.
  std::function<void(package::HostKernel kernel, std::string object)> onObject;
};

/// Generates code for a program after fusing: one public function whose body
/// has `refold.cascade` on tensors, `linalg.generic` contractions (run as
/// products), views (`tensor.expand_shape`, `collapse_shape`, `extract_slice`,
/// `cast`), copies (`insert_slice`, `concat`, `pad`), constants, size
/// arithmetic and `cf.assert`. Anything else is refused with the op's name and
/// location. Equal kernels are compiled once. The module is only read.
///
/// Large constants are not copied: the spec points into the `dense_resource`
/// blobs, which live as long as the module's context; the caller adds an owner.
llvm::Expected<ExecutableSpec>
compileProgram(mlir::ModuleOp module, const CpuTarget &target,
               const CompileProgramOptions &options = {});

} // namespace refold

#endif // REFOLD_TARGET_CPU_COMPILEPROGRAM_H
