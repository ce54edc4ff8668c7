// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_RUNTIME_PROGRAMSPEC_H
#define REFOLD_RUNTIME_PROGRAMSPEC_H

#include "refold/Runtime/SizeExpr.h"
#include "refold/Support/DType.h"
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

/// What a compiled program does, as plain data: which arrays enter and leave,
/// what is computed in which order, and where it lies. Needs no LLVM: packages
/// hold the same.
namespace refold {

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
  unsigned port = 0;          ///< which input or output
  const void *data = nullptr; ///< of a constant; somebody else keeps it
  SizeExpr bytes;
};

/// A strided view of a buffer; offset and strides count elements.
struct ViewSpec {
  unsigned buffer = 0;
  DType dtype = DType::F32;
  SizeExpr offset;
  std::vector<SizeExpr> sizes, strides;
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
  /// What GeluErf multiplies by in erf. Only on GPUs anything else than the
  /// root of 1/2, which a program in 16 bits rounds.
  double erfScale = 0.70710678118654752;
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
  /// A run has it where this is not 0.
  SizeExpr condition = 1;
};

/// All of a program but its code.
struct ProgramSpec {
  unsigned numSymbols = 0;
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::vector<BufferSpec> buffers;
  std::vector<Step> steps;
};

} // namespace refold

#endif // REFOLD_RUNTIME_PROGRAMSPEC_H
