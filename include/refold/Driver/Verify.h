// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_DRIVER_VERIFY_H
#define REFOLD_DRIVER_VERIFY_H

#include "refold/Driver/AsWritten.h"
#include "refold/Driver/Compare.h"
#include "refold/Driver/Driver.h"
#include "refold/Driver/Inputs.h"

namespace refold {

struct VerifyOptions {
  Extents shape; ///< what it names is not varied
  /// Extents that the stream axes take where `shape` does not name them.
  std::vector<int64_t> streamExtents = {0, 1, 2, 15, 16, 17, 1000, 4097};
  /// The stream's extent in one more shape, whose last three other axes are
  /// long enough for whole register tiles; 0 for none. Nothing: 130, or 4290,
  /// which are several tiles, where one stream and one other axis are all.
  std::optional<int64_t> broadLength;
  std::vector<int64_t> threads = {1, 2};
  std::vector<InputRecipe> families;
  std::map<std::string, InputRecipe> inputs;
  uint64_t seed = 0;
  /// Inputs of each family and shape: the first few, and on to `seeds` while an
  /// error is beyond its bound, which may be the luck of few inputs. Lengths
  /// have seeds of their own, so that a family sees more than the few. What is
  /// beyond its bound then is compared with what the last bits of the inputs
  /// do.
  int64_t firstSeeds = 4, seeds = 256;
  /// Programs compiled with another cut of their streams, drawn with a seed of
  /// their own: an input can be had again alone.
  int64_t splits = 2, splitSeed = 0;
  std::string target;
  /// Where kernels and certificates are looked for, and kept, but those of
  /// other cuts; null: nowhere.
  const DiskCache *cache = nullptr;
  NumericPolicy numerics;
  /// Told once of what was fused, and what was not.
  std::function<void(const FuseReport &report)> onReport;
  /// Changes results before they are judged: how tests plant a fault.
  std::function<void(llvm::MutableArrayRef<Tensor> results, bool isFused)>
      disturb;
  /// Told of every finished case.
  std::function<void(size_t done, size_t total, llvm::StringRef what)>
      onProgress;
};

/// One output under one family of inputs and one shape, worst over all seeds
/// and all cuts of the stream.
struct OutputCase {
  Extents shape;
  std::string family;
  uint64_t worstSeed = 0; ///< of the largest fused error, touched or not
  double fusedError = 0.0, unfusedError = 0.0, bound = 0.0;
  /// The same of elements that the range of the type as written has changed
  /// (docs/numerics.md, "What is lost as written").
  double touchedError = 0.0, touchedUnfusedError = 0.0, touchedBound = 0.0;
  int64_t lost = 0; ///< elements that the program as written loses: not judged
  /// Fused loses a class that unfused has; or unfused itself has another class
  /// than double.
  int64_t classLosses = 0, unfusedClassErrors = 0;
  int64_t wrongRows = 0; ///< of one number, by `AsWritten::countWrongRows`
  int64_t seeds = 0;     ///< inputs seen
  /// Of what running roundings may change, the largest part that was seen. The
  /// fused error is what exceeds it.
  double shareOfBound = 0.0;
  /// Of elements for which nothing is known of that: said, not judged.
  double unknownError = 0.0;
  /// The unfused error includes that on inputs that differ in their last bit.
  bool isConditioned = false;
  /// On the first input, and on each where unfused errs more than it may on the
  /// last such one.
  UnfusedVerdict asWritten;
  bool isGood() const {
    return isWithinBound() && classLosses == 0 && wrongRows == 0 &&
           asWritten.isGood();
  }
  bool isWithinBound() const {
    return fusedError <= bound && touchedError <= touchedBound;
  }
  /// Beyond its bound, and nothing worse.
  bool mayBeLuck() const { return !isWithinBound() && classLosses == 0; }
};

struct OutputVerdict {
  std::string name;
  std::vector<OutputCase> cases;
  /// The case nearest to its bound, or beyond it.
  const OutputCase &worst() const;
};

/// A length that the program itself does not take, in any form.
struct RefusedLength {
  int64_t length = 0;
  std::string reason;
};

/// What was looked at.
struct Coverage {
  std::vector<std::string> streamAxes; ///< that took the lengths
  /// Other axes without whose length the end of a stream is not read: queries
  /// of a causal program. As long as it in the broad shape and a long one.
  std::vector<std::string> followingAxes;
  std::vector<int64_t> lengths;       ///< empty where no axis is open
  std::vector<RefusedLength> refused; ///< of the others
  Extents broad; ///< the one shape with long axes; empty for none
  std::vector<std::string> families; ///< that make a difference
  std::vector<int64_t> threads;
  std::vector<StreamSplit> splits;
  int64_t inputs = 0; ///< sets of inputs, each run in all forms
};

struct Verification {
  std::vector<OutputVerdict> outputs;
  Coverage coverage;
  std::vector<CascadeReport> cascades;
  bool equalAcrossThreads = true; ///< bitwise
  bool equalAcrossStrides = true; ///< bitwise, inputs with gaps
  std::vector<std::string>
      policies; ///< keys of named policies that cascades use
  bool isGood() const;
};

/// Compares the program fused, fused with other cuts of the stream, and unfused
/// with the judge, for every shape, family and seed; and unfused with the judge
/// that rounds as written, for every shape and family. `path` is loaded once
/// for each of them.
llvm::Expected<Verification> verify(mlir::MLIRContext &context,
                                    llvm::StringRef path,
                                    const LoadOptions &loadOptions,
                                    const VerifyOptions &options);

} // namespace refold

#endif // REFOLD_DRIVER_VERIFY_H
