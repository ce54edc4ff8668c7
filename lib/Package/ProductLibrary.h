// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_PACKAGE_PRODUCTLIBRARY_H
#define REFOLD_LIB_PACKAGE_PRODUCTLIBRARY_H

#include "CublasLt.h"
#include "refold/Package/Package.h"

namespace refold::package {

/// A product of the library for one step of a plan: all but the addresses.
class LibraryProduct {
public:
  LibraryProduct(const CublasLt &lt, const DeviceProduct &product)
      : lt(lt), product(product) {}
  ~LibraryProduct();
  LibraryProduct(const LibraryProduct &) = delete;
  LibraryProduct &operator=(const LibraryProduct &) = delete;

  /// Whether arrays at these addresses are what it was prepared for.
  bool takes(const std::vector<int64_t> &words) const;
  LtStatus run(LtHandle handle, const std::vector<int64_t> &words,
               DeviceAddress workspace, CuStream on);

private:
  friend class ProductLibrary;
  /// The library's matrices lie by columns: a row-major one is its transposed.
  struct Matrix {
    int64_t rows, columns, leading;
    bool isTransposed;
    int64_t batchStride = 0;
  };
  /// Products at the same strides, in elements.
  struct Batch {
    int64_t count = 1, a = 0, b = 0, c = 0;
    bool isContinuedBy(const Batch &next);
  };
  static std::optional<Matrix> matrix(int64_t rows, int64_t columns,
                                      int64_t rowStride, int64_t columnStride);
  bool measure(const std::vector<int64_t> &words);
  bool describe(LtHandle handle, int64_t mostWorkspace);
  LtLayout layout(const Matrix &matrix, DType dtype);
  DeviceAddress address(const DeviceProduct::Side &side,
                        const std::vector<int64_t> &words) const {
    return DeviceAddress(words[side.word]);
  }

  const CublasLt &lt;
  const DeviceProduct &product;
  Matrix lhs{}, rhs{}, result{};
  int64_t batches = 1; ///< of a call
  Batch calls;
  LtOperation operation = nullptr;
  LtLayout left = nullptr, right = nullptr, target = nullptr;
  LtAlgorithm algorithm{};
  size_t workspaceBytes = 0;
};

/// The library on a GPU, whose context is the thread's in every call.
class ProductLibrary {
public:
  /// Of its workspace.
  static constexpr int64_t kWorkspaceBytes = int64_t(32) << 20;

  /// Null where there is no library; see `cublasLt`.
  static Outcome<std::unique_ptr<ProductLibrary>> create();
  ~ProductLibrary();

  /// What computes a step whose call has these words (addresses are not looked
  /// at); null where the library has no such product.
  std::unique_ptr<LibraryProduct> prepare(const DeviceProduct &product,
                                          const std::vector<int64_t> &words);
  LtStatus run(LibraryProduct &product, const std::vector<int64_t> &words,
               DeviceAddress workspace, CuStream on) {
    return product.run(handle, words, workspace, on);
  }
  /// "cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED (13)".
  std::string describe(const char *call, LtStatus status) const;
  const CublasLt &functions() const { return lt; }

private:
  explicit ProductLibrary(const CublasLt &lt) : lt(lt) {}
  const CublasLt &lt;
  LtHandle handle = nullptr;
};

} // namespace refold::package

#endif // REFOLD_LIB_PACKAGE_PRODUCTLIBRARY_H
