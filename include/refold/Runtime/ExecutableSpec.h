// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_RUNTIME_EXECUTABLESPEC_H
#define REFOLD_RUNTIME_EXECUTABLESPEC_H

#include "refold/Runtime/InstructionSet.h"
#include "refold/Runtime/ProgramSpec.h"
#include "refold/Support/Tensor.h"
#include "llvm/Support/Error.h"
#include <functional>
#include <memory>
#include <string>
#include <vector>

/// A compiled program as plain data and function pointers. Target/CPU fills it
/// in; `Executable` runs it; a test may write one by hand.
namespace refold {

/// A generated function. `words` holds the arguments one after the other, a
/// word of 8 bytes each: a memref as base, aligned base, offset, sizes,
/// strides; a scalar in the low bytes of its word. `results` gets its results
/// the same way.
using KernelFunction = void (*)(const int64_t *words, int64_t *results);

/// The functions of one kernel (docs/architecture.md, "Kernel ABI").
struct Kernel {
  std::string name;
  /// To shared workspace bytes, workspace bytes a thread, items of each phase.
  KernelFunction shape = nullptr;
  /// Operands, then shared and private workspace as memref<?xi8>, begin, end.
  std::vector<KernelFunction> phases;
  /// The first phases lay out one operand each in the shared workspace and read
  /// nothing else: its number.
  std::vector<unsigned> packedOperands;
  /// They leave all that the shared workspace holds: where these operands are
  /// constants they run once.
  bool sharesOnlyPanels = false;
  /// Set where another machine than the CPU runs the kernel: takes the operands
  /// as `shape` does, and nothing else of the above is there.
  std::function<llvm::Error(const int64_t *words)> launch;
};

/// Runs all of a program elsewhere than on the CPU.
class RemoteProgram {
public:
  virtual ~RemoteProgram() = default;
  /// `from` and `to` are row-major arrays of the host, inputs and outputs in
  /// the order of the program. Their shapes were checked.
  virtual llvm::Error run(llvm::ArrayRef<Tensor> inputs,
                          llvm::ArrayRef<const void *> from,
                          llvm::ArrayRef<void *> to) = 0;
};

/// A whole program.
struct ExecutableSpec : ProgramSpec {
  /// Limits the product library too.
  InstructionSet instructionSet = InstructionSet::Baseline;
  std::vector<Kernel> kernels;
  /// Steps from here on are for sizes that the kernels of those before have no
  /// room for: runs have the ones or the others.
  size_t firstOther = SIZE_MAX;
  int64_t cachedKernels = 0; ///< of those, not compiled but found in a cache
  /// Where set, it runs the steps; kernels only have names.
  std::shared_ptr<RemoteProgram> remote;
  /// Keeps code and constants alive.
  std::vector<std::shared_ptr<void>> owners;
};

} // namespace refold

#endif // REFOLD_RUNTIME_EXECUTABLESPEC_H
