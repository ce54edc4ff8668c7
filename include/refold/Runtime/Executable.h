// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_RUNTIME_EXECUTABLE_H
#define REFOLD_RUNTIME_EXECUTABLE_H

#include "refold/Runtime/ExecutableSpec.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"
#include <functional>
#include <memory>

namespace refold {

/// A compiled program. Re-entrant: calls from several threads run side by side.
/// After the first run of a shape a run allocates nothing, outputs aside
/// (`runInto` has none to make). The bits of a result depend on the inputs and
/// the machine's instruction set, never on `threads`. What follows from
/// constants alone (`findConstantSteps`) is computed once, before the first
/// run.
class Executable {
public:
  explicit Executable(ExecutableSpec spec);
  ~Executable();
  Executable(Executable &&);
  Executable &operator=(Executable &&);

  /// Runs on `threads` threads (at least 1). Inputs in the order of the spec,
  /// any strides: those that are not row-major are copied first. A wrong count,
  /// dtype, rank or extent is an error that names the argument and dimension.
  llvm::Expected<std::vector<Tensor>> run(llvm::ArrayRef<Tensor> inputs,
                                          unsigned threads);

  /// As run, into outputs of the caller; their shapes must be right, their
  /// strides are free. Inputs and outputs must not overlap.
  llvm::Error runInto(llvm::ArrayRef<Tensor> inputs,
                      llvm::MutableArrayRef<Tensor> outputs, unsigned threads);

  /// Shapes of the outputs for inputs of these shapes.
  llvm::Expected<std::vector<llvm::SmallVector<int64_t, 4>>>
  outputShapes(llvm::ArrayRef<Tensor> inputs);

  /// Called after every step of every run with its number in the spec and the
  /// milliseconds that it took; empty: nobody is told. Steps that are done once
  /// are told of in the first run. Set while nothing runs.
  using StepObserver = std::function<void(size_t step, double ms)>;
  void observeSteps(StepObserver observer);

  const ExecutableSpec &spec() const;

  /// {"kernels", "cached_kernels", "kernel_calls", "products", "steps",
  /// "once_steps", "constant_bytes", "kept_bytes", "shapes", "arena_bytes"};
  /// the last two over all shapes run so far (how many; the largest arena),
  /// `once_steps` those of the steps that are done once, `kept_bytes` what is
  /// kept of them.
  llvm::json::Object counters() const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace refold

#endif // REFOLD_RUNTIME_EXECUTABLE_H
