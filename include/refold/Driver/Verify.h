// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_DRIVER_VERIFY_H
#define REFOLD_DRIVER_VERIFY_H

#include "refold/Driver/Compare.h"
#include "refold/Driver/Inputs.h"

namespace refold {

struct VerifyOptions {
  Extents shape; ///< what it names is not varied
  /// Extents that the stream axes take where `shape` does not name them.
  std::vector<int64_t> streamExtents = {0, 1, 17, 1000};
  std::vector<int64_t> threads = {1, 2};
  std::vector<InputRecipe> families;
  std::map<std::string, InputRecipe> inputs;
  uint64_t seed = 0;
  int64_t seeds = 32;
  std::string target;
  /// Told of every finished case.
  std::function<void(size_t done, size_t total, llvm::StringRef what)>
      onProgress;
};

/// One output under one family of inputs and one shape, worst over all seeds.
struct OutputCase {
  Extents shape;
  std::string family;
  double fusedError = 0.0, unfusedError = 0.0, bound = 0.0;
  /// Fused loses a class that unfused has; or unfused itself has another class
  /// than double.
  int64_t classLosses = 0, unfusedClassErrors = 0;
  bool isGood() const { return fusedError <= bound && classLosses == 0; }
};

struct OutputVerdict {
  std::string name;
  std::vector<OutputCase> cases;
  /// The case nearest to its bound, or beyond it.
  const OutputCase &worst() const;
};

struct Verification {
  std::vector<OutputVerdict> outputs;
  std::vector<CascadeReport> cascades;
  bool equalAcrossThreads = true; ///< bitwise
  bool equalAcrossStrides = true; ///< bitwise, inputs with gaps
  std::vector<std::string>
      policies; ///< keys of named policies that cascades use
  bool isGood() const;
};

/// Compares the program fused and unfused with double precision, for every
/// shape, family and seed. `path` is loaded once for each of the three.
llvm::Expected<Verification> verify(mlir::MLIRContext &context,
                                    llvm::StringRef path,
                                    const LoadOptions &loadOptions,
                                    const VerifyOptions &options);

} // namespace refold

#endif // REFOLD_DRIVER_VERIFY_H
