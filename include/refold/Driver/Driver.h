// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_DRIVER_DRIVER_H
#define REFOLD_DRIVER_DRIVER_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "refold/Support/Tensor.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"
#include <map>
#include <memory>
#include <string>
#include <vector>

/// The house as seen from its door: what the tools and the C API call. Every
/// function answers with a value or with a `Failure` (refold/Support/Error.h)
/// whose message is ready to be printed; nothing here prints.
namespace refold {

/// An argument or a result of a program.
struct Port {
  std::string name;
  DType dtype = DType::F32;
  std::vector<std::string> dims; ///< "" where the dimension has no name
  std::vector<int64_t> extents;  ///< -1 where it is known only when run
};

/// A program in program form with what its signature says.
struct LoadedProgram {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::string name; ///< of the public function
  std::vector<Port> inputs, outputs;
};

struct LoadOptions {
  /// Extents of named dimensions, fixed while loading.
  std::map<std::string, int64_t> dims;
  /// Replaces the dtype of every float argument and result (.fold only:
  /// `--dtype`).
  std::optional<DType> dtype;
};

/// A context with every dialect and interface that the passes need.
std::unique_ptr<mlir::MLIRContext> makeContext();

/// Reads a `.fold`, `.onnx` or `.mlir` file, by its extension.
llvm::Expected<LoadedProgram> load(mlir::MLIRContext &context,
                                   llvm::StringRef path,
                                   const LoadOptions &options = {});

enum class FusePolicy : uint8_t {
  Never, ///< every reduction is a kernel of its own: the baseline
  Auto,  ///< what can be fused and is predicted to be faster
};

struct StageReport {
  std::string name; ///< of the definition or node
  std::string op;   ///< "sum", "max", "topk", ...
  int64_t line = 0; ///< in the user's file, 0 where unknown
  int64_t pass = 0;
};
struct ReasonReport {
  std::string key, at, text;
};

/// One entry of `refold explain`: stages tied by dependence over common axes.
/// The fields are those of the JSON of docs/tools.md.
struct CascadeReport {
  std::string name;
  std::vector<std::string> axes;
  std::vector<StageReport> stages;
  bool isFused = false;
  int64_t passes = 0, unfusedPasses = 0, stateSize = 0;
  std::string formula, gauge, certificate;
  std::vector<ReasonReport> reasons;
  std::optional<llvm::json::Object> schedule;
};

struct FuseOptions {
  FusePolicy policy = FusePolicy::Auto;
};

/// Normalises the module and replaces its reductions by `refold.cascade`. One
/// report a cascade, fused or cut, in program order.
llvm::Expected<std::vector<CascadeReport>> fuse(mlir::ModuleOp module,
                                                const FuseOptions &options);

struct CompileStats {
  int64_t kernels = 0;     ///< compiled; equal ones once
  int64_t kernelCalls = 0; ///< steps of the program that run a kernel
  int64_t products = 0;    ///< steps that run a matrix product or convolution
  double compileMs = 0.0;
  std::string target; ///< "cpu-avx512", ...
};

/// A compiled program; re-entrant.
class CompiledProgram {
public:
  virtual ~CompiledProgram() = default;
  /// Runs. Inputs as `LoadedProgram::inputs`, any strides; the outputs are
  /// made.
  virtual llvm::Expected<std::vector<Tensor>> run(llvm::ArrayRef<Tensor> inputs,
                                                  unsigned threads) = 0;
  /// Runs into outputs of the caller, whose shapes are those of a former `run`.
  virtual llvm::Error runInto(llvm::ArrayRef<Tensor> inputs,
                              llvm::MutableArrayRef<Tensor> outputs,
                              unsigned threads) = 0;
  virtual const CompileStats &stats() const = 0;
};

struct CompileOptions {
  FusePolicy policy = FusePolicy::Auto;
};

/// Fuses by the policy, generates code and prepares the program for runs. The
/// module is consumed.
llvm::Expected<std::unique_ptr<CompiledProgram>>
compile(LoadedProgram program, const CompileOptions &options);

/// The program as written, in double precision, with every rounding that the
/// source writes.
llvm::Expected<std::vector<Tensor>>
evaluateReference(mlir::ModuleOp module, llvm::ArrayRef<Tensor> inputs);

} // namespace refold

#endif // REFOLD_DRIVER_DRIVER_H
