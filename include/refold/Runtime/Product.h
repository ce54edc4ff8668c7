// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_RUNTIME_PRODUCT_H
#define REFOLD_RUNTIME_PRODUCT_H

#include "refold/Runtime/OneDnn.h"
#include "refold/Runtime/Views.h"
#include "refold/Support/AlignedBuffer.h"
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace refold {

/// Whether oneDNN computes products of these types: sums of f32. Others are
/// computed by plain loops.
bool needsProductLibrary(DType lhs, DType rhs, DType result);
/// Whether there are products of these types at all.
bool hasProduct(DType lhs, DType rhs, DType result);

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
    /// Null where `needsProductLibrary` is false.
    const onednn::Library *library = nullptr;
  };

  /// Views as in `ProductStep`. Must be called, and its items run, with
  /// libraries on one thread: it is where the library has its own runtime.
  /// Null where there is none; `error` then says why.
  static std::unique_ptr<ProductPlan>
  create(const View &lhs, const View &rhs, const View &result,
         const Options &options, PackedWeights &weights, std::string &error);
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

#endif // REFOLD_RUNTIME_PRODUCT_H
