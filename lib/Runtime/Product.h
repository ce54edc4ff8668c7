// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_RUNTIME_PRODUCT_H
#define REFOLD_LIB_RUNTIME_PRODUCT_H

#include "ProductShape.h"
#include "refold/Runtime/AlignedBuffer.h"
#include "refold/Runtime/InstructionSet.h"
#include "llvm/Support/Error.h"
#include <map>
#include <memory>
#include <mutex>

namespace refold {

/// Limits the library to an instruction set. Has an effect only before its
/// first use in the process.
void limitProductLibrary(InstructionSet instructionSet);

/// True while the calling thread is inside the library, which allocates a small
/// table for each call: the one exception to `Executable`'s promise.
bool isInProductLibrary();

/// Constant right sides in the layout that the library computes with, made once
/// for all shapes of one step.
class PackedWeights {
public:
  PackedWeights();
  ~PackedWeights();
  /// No plan that uses them may be left.
  void clear();

private:
  friend class ProductPlan;
  struct Block;
  /// By first byte.
  std::map<int64_t, std::unique_ptr<Block>> blocks;
  std::mutex mutex;
};

struct ProductOperands {
  const char *lhs, *rhs;
  const char *bias; ///< n elements of f32; may be null
  char *result;
};

/// A matrix product of known shape, ready to run. Immutable; any number of
/// threads run items of it.
class ProductPlan {
public:
  struct Options {
    Activation activation = Activation::None;
    bool hasBias = false;
    /// The bytes of a constant right side; null where it is computed.
    const char *constantRhs = nullptr;
  };

  /// Views as in `ProductStep`. Must be called, and its items run, with
  /// libraries on one thread.
  static llvm::Expected<std::unique_ptr<ProductPlan>>
  create(const View &lhs, const View &rhs, const View &result,
         const Options &options, PackedWeights &weights);
  ~ProductPlan();

  int64_t numItems() const;
  /// Bytes that each thread that runs items must provide, 64-byte aligned.
  int64_t privateBytes() const;
  /// False where the library failed.
  [[nodiscard]] bool run(const ProductOperands &operands, int64_t begin,
                         int64_t end, char *workspace) const;

private:
  struct Impl;
  explicit ProductPlan(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace refold

#endif // REFOLD_LIB_RUNTIME_PRODUCT_H
