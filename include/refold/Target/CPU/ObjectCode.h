// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_TARGET_CPU_OBJECTCODE_H
#define REFOLD_TARGET_CPU_OBJECTCODE_H

#include "mlir/IR/BuiltinOps.h"
#include "refold/Package/Package.h"
#include "refold/Runtime/ExecutableSpec.h"
#include "refold/Support/DiskCache.h"
#include "refold/Support/StageTimes.h"
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
  bool asAssembly = false;     ///< text instead of an object
  unsigned threads = 1;        ///< two generate code of large modules
  StageTimes *times = nullptr; ///< gets the time of every stage, where set
  /// Asked between the stages of a kernel, from any thread, where set; if so
  /// the compilation ends with an error.
  std::function<bool()> isCancelled;
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
  /// Links position independent objects for x86-64. The code may call nothing
  /// but libm, memcpy, memmove and memset: other undefined symbols are an error
  /// here, as are objects that are not well formed.
  static llvm::Expected<std::shared_ptr<LoadedCode>>
  load(std::vector<std::unique_ptr<llvm::MemoryBuffer>> objects);
  ~LoadedCode();

  /// The wrapper of function `name`.
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
  std::vector<std::shared_ptr<LoadedCode>> code; ///< likewise
  unsigned cached = 0; ///< kernels that were found in the cache
};

struct CompileKernelsOptions {
  unsigned threads = 0; ///< side by side; 0: one a core
  /// Where kernels are looked for, and kept; null: nowhere.
  const DiskCache *cache = nullptr;
  StageTimes *times = nullptr; ///< gets the time of every stage, where set
  /// Asked between the stages of a kernel, from any thread, where set; if so
  /// the compilation ends with an error.
  std::function<bool()> isCancelled;
  /// Called with the assembly of every kernel, where set; all are then
  /// compiled.
  std::function<void(llvm::StringRef kernel, llvm::StringRef assembly)>
      onAssembly;
  /// Called with the object code of every kernel, in order, where set.
  std::function<void(package::HostKernel kernel, std::string object)> onObject;
};

/// Lowers and compiles the kernels that the cache lacks, each in a context of
/// its own. The result, and which of several errors is given, do not depend on
/// the number of threads or on the cache.
llvm::Expected<CompiledKernels>
compileKernels(llvm::ArrayRef<KernelSource> sources, const CpuTarget &target,
               const CompileKernelsOptions &options = {});

} // namespace refold

#endif // REFOLD_TARGET_CPU_OBJECTCODE_H
