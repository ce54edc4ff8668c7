// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// MLIR's scalar ops to a ScalarProgram.
#ifndef REFOLD_LIB_REFERENCE_SCALARCOMPILER_H
#define REFOLD_LIB_REFERENCE_SCALARCOMPILER_H

#include "ScalarProgram.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Operation.h"
#include "refold/Reference/Evaluate.h"
#include "refold/Support/ExitCode.h"
#include "llvm/ADT/DenseMap.h"
#include <functional>

namespace refold::reference {

/// The error `message` at a location.
llvm::Error failAt(ExitCode code, mlir::Location location,
                   const llvm::Twine &message);

/// Is the type a float, an integer or index, and one the reference knows?
bool isKnownScalar(mlir::Type type);
/// 64 for index.
unsigned widthOf(mlir::Type type);
/// The storage format of a float type; nothing for those that are not known.
std::optional<DType> dtypeOf(mlir::Type floatType);
/// The value of a constant of a known scalar type.
Cell cellOf(mlir::Attribute attribute, bool isWide);

/// Translates a block of scalar ops. Values from outside are bound first, or
/// asked for through `outer`.
class ScalarCompiler {
public:
  ScalarCompiler(ScalarProgram &program, const EvaluationOptions &options)
      : program(program), options(options) {}

  /// The value of a scalar, or the array that a `tensor.extract` reads, of the
  /// surroundings; null where there is none.
  std::function<const RefTensor *(mlir::Value)> outer;

  void bind(mlir::Value value, uint32_t reg) { registers[value] = reg; }
  llvm::Expected<uint32_t> registerOf(mlir::Value value, mlir::Operation *user);
  llvm::Error compile(mlir::Operation &op);
  /// The register of an expression over registers for dims and symbols.
  llvm::Expected<uint32_t> compileAffine(mlir::AffineExpr expr,
                                         llvm::ArrayRef<uint32_t> dims,
                                         llvm::ArrayRef<uint32_t> symbols,
                                         mlir::Location location);
  /// The register of what a compiled value is before the rounding to its type,
  /// as a double: before a truncation, before a rounding to an integer (through
  /// the clamps around it). Nothing where it is not rounded last.
  std::optional<uint32_t> compileExact(mlir::Value value,
                                       mlir::Location location);
  uint32_t constant(int64_t value);
  /// An element of `table` at registers; `location` is named if it traps.
  uint32_t load(const RefTensor &table, llvm::ArrayRef<uint32_t> subscripts,
                mlir::Location location);
  /// The error of a trap of this program.
  llvm::Error describe(const TrapState &trap) const;

private:
  std::optional<uint32_t> compileExactSelect(mlir::Operation *select,
                                             mlir::Location location);
  uint32_t realConstant(double value);
  uint32_t emit(Instruction instruction, mlir::Location location);
  llvm::Error compileAffineApply(mlir::Operation &op);
  llvm::Error compileExtract(mlir::Operation &op);
  llvm::Error compileConversion(mlir::Operation &op, Instruction instruction);
  bool planConversion(mlir::Operation &op, Instruction &instruction);

  ScalarProgram &program;
  const EvaluationOptions &options;
  llvm::DenseMap<mlir::Value, uint32_t> registers;
  std::vector<mlir::Location> locations; ///< one an instruction
};

} // namespace refold::reference

#endif // REFOLD_LIB_REFERENCE_SCALARCOMPILER_H
