// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_TARGET_CPU_OBJECTCODE_H
#define REFOLD_TARGET_CPU_OBJECTCODE_H

#include "mlir/IR/BuiltinOps.h"
#include "refold/Runtime/ExecutableSpec.h"
#include "refold/Target/CPU/DetectTarget.h"
#include "llvm/Support/MemoryBuffer.h"
#include <functional>
#include <memory>

namespace refold {

/// Dialects and translations that code generation needs. Contexts of callers of
/// `emitObject` must have them.
void registerCpuDialects(mlir::DialectRegistry &registry);

struct ObjectOptions {
  /// LLVM's middle end: 0 skips it. It gains nothing on most kernels, doubles
  /// the time of code generation and has halved the speed of some.
  unsigned middleEnd = 0;
  bool asAssembly = false; ///< text instead of an object
};

/// Lowers a module of vector, scf, memref, math and arith to object code. For
/// every public function NAME the object has a symbol NAME_words of the type
/// `KernelFunction`. The module is consumed. Same module and target, same
/// bytes.
llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>>
emitObject(mlir::ModuleOp module, const CpuTarget &target,
           const ObjectOptions &options = {});

/// Object code made executable in this process.
class LoadedCode {
public:
  static llvm::Expected<std::shared_ptr<LoadedCode>>
  load(std::vector<std::unique_ptr<llvm::MemoryBuffer>> objects);
  ~LoadedCode();

  /// The wrapper of function `name`. The code calls nothing but libm, memcpy
  /// and memset: other undefined symbols are an error here.
  llvm::Expected<KernelFunction> find(llvm::StringRef name);

private:
  LoadedCode();
  struct Impl;
  std::unique_ptr<Impl> impl;
};

/// A kernel before lowering: a module as text whose one function holds a
/// cascade on memrefs.
struct KernelSource {
  std::string name;
  std::string text;
};

struct CompiledKernels {
  std::vector<Kernel> kernels; ///< in the order of the sources
  std::shared_ptr<LoadedCode> code;
};

/// Lowers and compiles kernels, side by side on `threads` threads (0: one a
/// core), each in a context of its own.
llvm::Expected<CompiledKernels> compileKernels(
    llvm::ArrayRef<KernelSource> sources, const CpuTarget &target,
    unsigned threads,
    const std::function<void(llvm::StringRef kernel, llvm::StringRef assembly)>
        &onAssembly = {});

} // namespace refold

#endif // REFOLD_TARGET_CPU_OBJECTCODE_H
