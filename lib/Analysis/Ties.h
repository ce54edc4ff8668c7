// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_ANALYSIS_TIES_H
#define REFOLD_LIB_ANALYSIS_TIES_H

#include "refold/Analysis/Kernels.h"

#include "llvm/ADT/DenseSet.h"

namespace refold {

/// Tensors in memory for readers that need them anew for every element of their
/// stream (the mean of a row in a sum over rows). All others see through them,
/// so that a reduction that is stored stays a stage of its cascade.
class Shared {
public:
  /// False if it is known already.
  bool add(mlir::Value tensor, SizeTable &sizes,
           const llvm::SetVector<mlir::Value> &materialised);
  /// Some reader needs the memory after all. False if it was not shared.
  bool erase(mlir::Value tensor) { return known.erase(tensor); }
  size_t size() const { return known.size(); }
  bool seesThrough(mlir::Value tensor, const Subscripts &at,
                   const Formula &reader) const;

private:
  struct Reduced {
    uint64_t dims = 0; ///< of the tensor, that the reduction is read at
    llvm::SmallVector<Size> stream;
  };
  llvm::DenseMap<mlir::Value, llvm::SmallVector<Reduced>> known;
};

/// Which reductions of a function are computed together, by how one is read in
/// the term of another:
///
/// - *tied*: read at a place that does not move with the reader's stream, and
///   reduced over an axis of the same size. Both become stages of one cascade.
/// - *inside*: read anew for every element. A contraction may then be computed
///   inside the element; anything else is computed before.
///
/// A matrix product joins a cascade only as the last reader of what ties it;
/// otherwise it is left to the library.
class Ties {
public:
  static Ties find(mlir::func::FuncOp function, SizeTable &sizes,
                   const llvm::SetVector<mlir::Value> &materialised,
                   const Shared &shared, const PlanOptions &options,
                   std::vector<Refusal> &notes);

  llvm::ArrayRef<mlir::linalg::GenericOp> products() const {
    return libraryProducts;
  }
  bool isLibraryProduct(mlir::linalg::GenericOp op) const {
    return libraryOps.contains(op.getOperation());
  }
  bool mayContract(mlir::Operation *op) const {
    return contractibleOps.contains(op);
  }
  /// Contractions computed inside kernels: in elements, or as a stage.
  llvm::SmallVector<mlir::linalg::GenericOp> contractionsInside() const;
  /// Results that a kernel of their own must compute.
  llvm::ArrayRef<mlir::Value> separate() const { return forced; }
  /// Results that everybody reads from memory because the caller asked for it.
  llvm::ArrayRef<mlir::Value> apart() const { return alone; }
  /// The stream of what a reduction reads, where that has all its axes and
  /// more; null where it has no more.
  const WiderStream *widerStream(mlir::linalg::GenericOp op) const;
  /// Whether a reduction that is not in memory stands behind `tensor`.
  bool dependsOnReduction(mlir::Value tensor) const;

private:
  /// One reading of `producer` in the term of a reduction.
  struct Occurrence {
    mlir::Operation *producer;
    uint64_t loops; ///< of the reader, that the place depends on
    bool moves;     ///< with the reader's stream
  };
  /// A tensor in memory as a term reads it: the loop along each dimension, -1
  /// where that is none alone.
  struct Operand {
    mlir::Value tensor;
    llvm::SmallVector<int, 4> loops;
  };
  struct Reduction {
    mlir::Operation *op;
    llvm::SmallVector<Size> stream;
    std::vector<Occurrence> reads;
    uint64_t rowLoops = 0; ///< not reduced
    llvm::SmallVector<unsigned> streamLoops;
    std::vector<Operand> operands;
    std::optional<WiderStream> wider;
  };

  void read(Reduction &reduction, SizeTable &sizes);
  const Reduction *find(mlir::Operation *op) const;
  std::optional<WiderStream> along(const Reduction &reader,
                                   const Reduction &producer,
                                   uint64_t placeLoops) const;
  void widen(Reduction &reader) const;
  bool tied(const Reduction &reader, const Occurrence &occurrence) const;
  bool isLastReader(mlir::linalg::GenericOp product, mlir::Operation *producer,
                    SizeTable &sizes) const;
  bool isComputedOnce(mlir::Operation *contraction) const;
  llvm::DenseSet<mlir::Operation *> between(mlir::linalg::GenericOp product,
                                            mlir::Operation *producer) const;
  void setLibraryProducts(llvm::ArrayRef<mlir::linalg::GenericOp> products);
  bool reads(mlir::Value tensor, mlir::Operation *reduction) const;
  bool onlyFeedsReductions(mlir::Operation *op) const;
  llvm::SmallVector<llvm::SmallVector<mlir::Operation *>>
  cascadesOf(llvm::ArrayRef<mlir::Operation *> producers) const;
  void noteInside(const Reduction &inner,
                  llvm::ArrayRef<mlir::Operation *> producers,
                  std::vector<Refusal> &notes) const;
  void noteSlices(const Reduction &reader,
                  llvm::ArrayRef<mlir::Operation *> producers, SizeTable &sizes,
                  std::vector<Refusal> &notes) const;
  mlir::Value coverOf(const Reduction &reader,
                      llvm::ArrayRef<mlir::Operation *> producers) const;

  const llvm::SetVector<mlir::Value> *materialised = nullptr;
  const Shared *shared = nullptr;
  std::vector<Reduction> reductions;
  llvm::DenseMap<mlir::Operation *, unsigned> numberOf; ///< of each reduction
  /// The reductions whose terms read a reduction.
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<unsigned>> readersOf;
  llvm::SmallVector<mlir::linalg::GenericOp> libraryProducts, joined;
  llvm::SmallVector<mlir::Operation *> contractible;
  llvm::DenseSet<mlir::Operation *> libraryOps, contractibleOps;
  llvm::SmallVector<mlir::Value> forced, alone;
};

} // namespace refold

#endif // REFOLD_LIB_ANALYSIS_TIES_H
