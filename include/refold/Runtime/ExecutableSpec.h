// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_RUNTIME_EXECUTABLESPEC_H
#define REFOLD_RUNTIME_EXECUTABLESPEC_H

#include "refold/Runtime/InstructionSet.h"
#include "refold/Runtime/SizeExpr.h"
#include "refold/Support/Tensor.h"
#include "llvm/Support/Error.h"
#include <functional>
#include <memory>
#include <string>
#include <variant>
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

/// A dimension of an argument.
struct DimSpec {
  std::string name;    ///< as the user named it; may be empty
  int64_t extent = -1; ///< -1: the symbol says
  unsigned symbol = 0; ///< dimensions of one name share it
};

struct InputSpec {
  std::string name;
  DType dtype = DType::F32;
  std::vector<DimSpec> dims;
};

struct OutputSpec {
  std::string name;
  DType dtype = DType::F32;
  std::vector<SizeExpr> shape;
};

enum class BufferKind : uint8_t { Input, Output, Constant, Temporary };

/// Memory that steps read and write, always row-major. A temporary lives in the
/// arena from the first to the last step that names it.
struct BufferSpec {
  BufferKind kind = BufferKind::Temporary;
  unsigned port = 0; ///< which input or output
  const void *data =
      nullptr; ///< of a constant; `ExecutableSpec::owner` keeps it
  SizeExpr bytes;
};

/// A strided view of a buffer; offset and strides count elements.
struct ViewSpec {
  unsigned buffer = 0;
  DType dtype = DType::F32;
  SizeExpr offset;
  llvm::SmallVector<SizeExpr, 4> sizes, strides;
};

/// A word that a kernel gets by value: an extent, or bits where it is constant.
struct ScalarSpec {
  SizeExpr value;
};

using OperandSpec = std::variant<ViewSpec, ScalarSpec>;

struct KernelStep {
  unsigned kernel = 0;
  std::vector<OperandSpec> operands;
  /// Operands from here on are written.
  unsigned numInputs = 0;
};

enum class Activation : uint8_t { None, Relu, GeluErf, Tanh };

/// result[batch, m, n] = activation(sum_k lhs[batch, m, k] * rhs[batch, k, n] +
/// bias[n]). The views have one size for every batch dimension and the two of
/// the matrix; a broadcast is a stride of 0. f16 and bf16 operands are read as
/// f32; integers are summed in the result's type.
struct ProductStep {
  ViewSpec lhs, rhs, result;
  std::optional<ViewSpec> bias;
  Activation activation = Activation::None;
};

/// Copies elements; dtypes are equal.
struct CopyStep {
  ViewSpec from, to;
};

/// Fails the run where the size is 0, or where an element of the i8 view is.
struct AssertStep {
  std::string message;
  std::variant<SizeExpr, ViewSpec> condition;
};

struct Step {
  std::variant<KernelStep, ProductStep, CopyStep, AssertStep> what;
  std::string name; ///< of the definition in the user's program
};

/// A whole program.
struct ExecutableSpec {
  /// Limits the product library too.
  InstructionSet instructionSet = InstructionSet::Baseline;
  unsigned numSymbols = 0;
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::vector<Kernel> kernels;
  int64_t cachedKernels = 0; ///< of those, not compiled but found in a cache
  std::vector<BufferSpec> buffers;
  std::vector<Step> steps;
  /// Keeps code and constants alive.
  std::vector<std::shared_ptr<void>> owners;
};

} // namespace refold

#endif // REFOLD_RUNTIME_EXECUTABLESPEC_H
