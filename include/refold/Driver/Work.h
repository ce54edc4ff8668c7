// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_DRIVER_WORK_H
#define REFOLD_DRIVER_WORK_H

#include "refold/Driver/Inputs.h"
#include "refold/Driver/MachineFacts.h"
#include "refold/Schedule/CostModel.h"
#include "refold/Schedule/GpuCost.h"
#include <variant>

namespace refold {

/// What a step of a program moves and computes at one shape. Bytes are those of
/// different elements, so that what a cache may serve again counts once. One
/// operation is one of the formula: an addition, a product, an exp. In doubles:
/// nothing overflows.
struct StepWork {
  std::string name;              ///< of the definition or node
  std::string kind;              ///< "kernel", "product", "copy" or "check"
  std::string kernel;            ///< its symbol, where it is one
  std::vector<std::string> axes; ///< that the kernel streams over
  std::string shape; ///< its indices, each a role and an extent, and results
  double bytesRead = 0.0, bytesWritten = 0.0, operations = 0.0;
  /// Of them, those of arrays that steps pass to each other.
  double passedRead = 0.0, passedWritten = 0.0;
  /// Done before the first run, of weights alone: no run takes time for it.
  bool isOnce = false;
  /// Other steps do its work at these sizes: nothing of it is counted.
  bool isLeftOut = false;
  /// Tiles that a mask proves dead are skipped: `operations` is the most.
  bool skipsTiles = false;
  /// The same as the cost model takes it; nothing for checks.
  std::variant<std::monostate, KernelWork, ProductWork, GpuWork> counts;
  /// Milliseconds, by `predictTimes`, in a program of so many bytes.
  Cost predicted;
  double workingSet = 0.0;
};

struct ProgramWork {
  std::vector<StepWork> steps; ///< as in the executable
  /// What any way to compute the program moves in a run: elements of inputs and
  /// weights that are read, and outputs. What is kept of steps that are done
  /// once is a weight, what only they read is none.
  double inputBytes = 0.0, weightBytes = 0.0, outputBytes = 0.0;
  double operations = 0.0; ///< of steps that skip nothing and are not done once
  int64_t keptBytes = 0;   ///< of steps that are done once
  /// Bytes of all buffers that steps touch, but for results of the program that
  /// are stored past the caches.
  double workingSet = 0.0;
  double predictedMs = 0.0; ///< of all steps, by `predictTimes`

  double bytes() const { return inputBytes + weightBytes + outputBytes; }
};

/// Requires `shapes`: one an input, as the program takes them. `context` has
/// every dialect.
llvm::Expected<ProgramWork>
measureWork(mlir::MLIRContext &context, const CompiledProgram &program,
            llvm::ArrayRef<llvm::SmallVector<int64_t, 4>> shapes);
/// Of a program that need not be compiled; `facts` are those of its kernels.
llvm::Expected<ProgramWork>
measureWork(mlir::MLIRContext &context, const ExecutableSpec &spec,
            llvm::ArrayRef<KernelText> kernels, const TargetFacts &facts,
            llvm::ArrayRef<llvm::SmallVector<int64_t, 4>> shapes);
/// The same of a program whose products are kernels of a GPU: `counts` are
/// those that a GPU's time is predicted from.
llvm::Expected<ProgramWork>
measureGpuWork(mlir::MLIRContext &context, const CompiledProgram &program,
               llvm::ArrayRef<llvm::SmallVector<int64_t, 4>> shapes);

/// Fills in what every step and the whole program are predicted to take.
void predictTimes(ProgramWork &work, const TargetFacts &target,
                  const MachineRates &rates, int64_t threads);

/// How the kernel of a step is walked on this target: the schedule's fields,
/// the passes over the stream, whether a second sweep writes, and the plan as
/// lines.
llvm::Expected<llvm::json::Object>
describeSchedule(mlir::MLIRContext &context, const CompiledProgram &program,
                 size_t step, llvm::StringRef target);

/// Shapes of all inputs under these extents.
llvm::Expected<std::vector<llvm::SmallVector<int64_t, 4>>>
shapesOf(llvm::ArrayRef<Port> inputs, const Extents &extents);

} // namespace refold

#endif // REFOLD_DRIVER_WORK_H
