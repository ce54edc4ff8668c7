// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products outside cascades by the library: result = lhs rhs, row-major, is
// result^T = rhs^T lhs^T of matrices that lie by columns.
#include "ProductLibrary.h"

#include <algorithm>

using namespace refold;
using namespace refold::package;

/// All arrays begin at multiples of it, or our own kernel computes the product.
static constexpr int64_t kAlignment = 16;

static int spelled(DType dtype) {
  return dtype == DType::F16 ? kLtF16 : dtype == DType::BF16 ? kLtBf16 : kLtF32;
}

LibraryProduct::~LibraryProduct() {
  for (LtLayout one : {left, right, target})
    if (one)
      lt.cublasLtMatrixLayoutDestroy(one);
  if (operation)
    lt.cublasLtMatmulDescDestroy(operation);
}

/// How the library sees rows and columns at these strides; nothing where
/// neither lies beside each other, or some elements are the same one.
std::optional<LibraryProduct::Matrix>
LibraryProduct::matrix(int64_t rows, int64_t columns, int64_t rowStride,
                       int64_t columnStride) {
  if ((columns == 1 || columnStride == 1) &&
      (rows == 1 || rowStride >= columns))
    return Matrix{columns, rows, rows == 1 ? columns : rowStride, true};
  if ((rows == 1 || rowStride == 1) && (columns == 1 || columnStride >= rows))
    return Matrix{rows, columns, columns == 1 ? rows : columnStride, false};
  return std::nullopt;
}

namespace {
/// An operand as the words of a call give it: batch dimensions, rows, columns.
struct Operand {
  std::vector<int64_t> sizes, strides;
  Operand(const std::vector<int64_t> &words, uint32_t word, uint32_t rank)
      : sizes(words.begin() + word + 3, words.begin() + word + 3 + rank),
        strides(words.begin() + word + 3 + rank,
                words.begin() + word + 3 + 2 * rank) {}
  int64_t rows() const { return sizes[sizes.size() - 2]; }
  int64_t columns() const { return sizes.back(); }
  int64_t &rowStride() { return strides[strides.size() - 2]; }
};
} // namespace

/// Two dimensions of a batch at most are left, or there is no product of the
/// library.
bool LibraryProduct::measure(const std::vector<int64_t> &words) {
  const uint32_t rank = product.rank;
  auto fits = [&](const DeviceProduct::Side &side, size_t count) {
    return side.word + 3 + 2 * count <= words.size();
  };
  if (rank < 2 || !fits(product.lhs, rank) || !fits(product.rhs, rank) ||
      !fits(product.result, rank) ||
      (product.hasBias &&
       (product.biasRank < 1 || !fits(product.bias, product.biasRank))))
    return false;
  Operand a(words, product.lhs.word, rank), b(words, product.rhs.word, rank),
      c(words, product.result.word, rank);
  int64_t rows = c.rows(), columns = c.columns(), depth = a.columns();
  if (rows < 1 || columns < 1 || depth < 1 || a.rows() != rows ||
      b.rows() != depth || b.columns() != columns)
    return false;
  if (product.hasBias) {
    Operand bias(words, product.bias.word, product.biasRank);
    auto isOne = [](int64_t size) { return size == 1; };
    if (bias.columns() != columns ||
        (columns > 1 && bias.strides.back() != 1) ||
        !std::all_of(bias.sizes.begin(), bias.sizes.end() - 1, isOne))
      return false;
  }
  // From the last on: of one that continues the rows, or the batch behind it.
  Batch batch, outer;
  for (uint32_t d = rank - 2; d-- > 0;) {
    int64_t count = c.sizes[d];
    if (count < 1 || a.sizes[d] != count || b.sizes[d] != count)
      return false;
    if (count == 1)
      continue;
    int64_t endOfA = 0, endOfC = 0;
    bool continuesRows =
        batch.count == 1 && b.strides[d] == 0 &&
        !__builtin_mul_overflow(rows, a.rowStride(), &endOfA) &&
        !__builtin_mul_overflow(rows, c.rowStride(), &endOfC) &&
        (rows == 1 || (a.strides[d] == endOfA && c.strides[d] == endOfC));
    if (continuesRows) {
      if (rows == 1) {
        a.rowStride() = a.strides[d];
        c.rowStride() = c.strides[d];
      }
      if (__builtin_mul_overflow(rows, count, &rows))
        return false;
      continue;
    }
    Batch next = {count, a.strides[d], b.strides[d], c.strides[d]};
    Batch &last = outer.count > 1 ? outer : batch;
    if (batch.count == 1)
      batch = next;
    else if (!last.isContinuedBy(next)) {
      if (outer.count > 1)
        return false;
      outer = next;
    }
  }
  auto isWhole = [](int64_t stride, const DeviceProduct::Side &side) {
    return stride % (kAlignment / byteWidth(side.dtype)) == 0;
  };
  constexpr int64_t kMostCalls = 64;
  if (outer.count > kMostCalls || !isWhole(outer.a, product.lhs) ||
      !isWhole(outer.b, product.rhs) || !isWhole(outer.c, product.result))
    return false;
  std::optional<Matrix> ofA = matrix(rows, depth, a.rowStride(),
                                     a.strides.back()),
                        ofB = matrix(depth, columns, b.rowStride(),
                                     b.strides.back()),
                        ofC = matrix(rows, columns, c.rowStride(),
                                     c.strides.back());
  // Results lie by rows; those of one column do either way.
  if (!ofA || !ofB || !ofC || !ofC->isTransposed ||
      (batch.count > 1 && (batch.a < 0 || batch.b < 0 || batch.c <= 0)) ||
      batch.count > INT32_MAX)
    return false;
  lhs = *ofA, rhs = *ofB, result = *ofC;
  lhs.batchStride = batch.a, rhs.batchStride = batch.b;
  result.batchStride = batch.c;
  batches = batch.count;
  calls = outer;
  return true;
}

/// Whether one batch with the same strides has both; then it does.
bool LibraryProduct::Batch::isContinuedBy(const Batch &next) {
  auto continues = [&](int64_t stride, int64_t inner) {
    int64_t end = 0;
    return !__builtin_mul_overflow(count, inner, &end) && stride == end;
  };
  int64_t both = 0;
  if (!continues(next.a, a) || !continues(next.b, b) || !continues(next.c, c) ||
      __builtin_mul_overflow(count, next.count, &both))
    return false;
  count = both;
  return true;
}

LtLayout LibraryProduct::layout(const Matrix &matrix, DType dtype) {
  LtLayout made = nullptr;
  if (lt.cublasLtMatrixLayoutCreate(&made, spelled(dtype),
                                    uint64_t(matrix.rows),
                                    uint64_t(matrix.columns), matrix.leading))
    return nullptr;
  auto count = int32_t(batches);
  if (batches > 1 && (lt.cublasLtMatrixLayoutSetAttribute(
                          made, kLtBatchCount, &count, sizeof(count)) ||
                      lt.cublasLtMatrixLayoutSetAttribute(
                          made, kLtBatchStride, &matrix.batchStride,
                          sizeof(matrix.batchStride)))) {
    lt.cublasLtMatrixLayoutDestroy(made);
    return nullptr;
  }
  return made;
}

/// Tells the library what is multiplied, and asks how it would.
bool LibraryProduct::describe(LtHandle handle, int64_t mostWorkspace) {
  if (lt.cublasLtMatmulDescCreate(&operation, kLtComputeF32, kLtF32)) {
    operation = nullptr;
    return false;
  }
  auto set = [&](int attribute, const auto &value) {
    return lt.cublasLtMatmulDescSetAttribute(operation, attribute, &value,
                                             sizeof(value)) == 0;
  };
  // A left side that lies by rows is what is wanted of it: transposed.
  int32_t ofRight = rhs.isTransposed ? kLtAsItIs : kLtTransposed,
          ofLeft = lhs.isTransposed ? kLtAsItIs : kLtTransposed;
  uint32_t epilogue = product.hasBias ? kLtBias : kLtPlain;
  if (!set(kLtTransA, ofRight) || !set(kLtTransB, ofLeft) ||
      !set(kLtEpilogue, epilogue))
    return false;
  // It may want to see one; every run has its own.
  if (product.hasBias && !set(kLtBiasPointer, DeviceAddress(kAlignment)))
    return false;
  right = layout(rhs, product.rhs.dtype);
  left = layout(lhs, product.lhs.dtype);
  target = layout(result, product.result.dtype);
  if (!left || !right || !target)
    return false;
  LtPreference preference = nullptr;
  if (lt.cublasLtMatmulPreferenceCreate(&preference))
    return false;
  auto prefer = [&](int attribute, const auto &value) {
    return lt.cublasLtMatmulPreferenceSetAttribute(preference, attribute,
                                                   &value, sizeof(value)) == 0;
  };
  bool isTold = prefer(kLtMostWorkspace, uint64_t(mostWorkspace)) &&
                prefer(kLtReductions, kLtReduceInOrder);
  // Of A, B, C and D: where columns and matrices of a batch begin, too.
  auto alignmentOf = [](const Matrix &matrix, DType dtype) {
    int64_t all = (matrix.leading | matrix.batchStride) * byteWidth(dtype);
    return uint32_t(std::min(all & -all, kAlignment));
  };
  uint32_t alignments[] = {alignmentOf(rhs, product.rhs.dtype),
                           alignmentOf(lhs, product.lhs.dtype),
                           alignmentOf(result, product.result.dtype),
                           alignmentOf(result, product.result.dtype)};
  for (int i = 0; i < 4; ++i)
    isTold = isTold && prefer(kLtAlignmentA + i, alignments[i]);
  LtHeuristic best{};
  int found = 0;
  if (isTold &&
      lt.cublasLtMatmulAlgoGetHeuristic(handle, operation, right, left, target,
                                        target, preference, 1, &best, &found))
    found = 0;
  lt.cublasLtMatmulPreferenceDestroy(preference);
  if (found < 1 || best.state != 0 ||
      best.workspaceBytes > size_t(mostWorkspace))
    return false;
  algorithm = best.algorithm;
  workspaceBytes = best.workspaceBytes;
  return true;
}

bool LibraryProduct::takes(const std::vector<int64_t> &words) const {
  auto isAligned = [&](const DeviceProduct::Side &side) {
    return address(side, words) % kAlignment == 0;
  };
  return isAligned(product.lhs) && isAligned(product.rhs) &&
         isAligned(product.result) &&
         (!product.hasBias || isAligned(product.bias));
}

LtStatus LibraryProduct::run(LtHandle handle, const std::vector<int64_t> &words,
                             DeviceAddress workspace, CuStream on) {
  if (product.hasBias) {
    DeviceAddress bias = address(product.bias, words);
    if (LtStatus status = lt.cublasLtMatmulDescSetAttribute(
            operation, kLtBiasPointer, &bias, sizeof(bias)))
      return status;
  }
  static constexpr float kOne = 1.0f, kZero = 0.0f;
  for (int64_t i = 0; i < calls.count; ++i) {
    auto at = [&](const DeviceProduct::Side &side, int64_t stride) {
      return address(side, words) +
             DeviceAddress(i * stride * byteWidth(side.dtype));
    };
    DeviceAddress to = at(product.result, calls.c);
    if (LtStatus status = lt.cublasLtMatmul(
            handle, operation, &kOne, at(product.rhs, calls.b), right,
            at(product.lhs, calls.a), left, &kZero, to, target, to, target,
            &algorithm, workspace, workspaceBytes, on))
      return status;
  }
  return 0;
}

Outcome<std::unique_ptr<ProductLibrary>> ProductLibrary::create() {
  Outcome<const CublasLt *> lt = cublasLt();
  if (!lt)
    return lt.error();
  if (!*lt)
    return std::unique_ptr<ProductLibrary>();
  std::unique_ptr<ProductLibrary> made(new ProductLibrary(**lt));
  if (LtStatus status = (*lt)->cublasLtCreate(&made->handle)) {
    made->handle = nullptr;
    return problem(ExitCode::Internal,
                   made->describe("cublasLtCreate", status));
  }
  return made;
}

ProductLibrary::~ProductLibrary() {
  if (handle)
    lt.cublasLtDestroy(handle);
}

std::unique_ptr<LibraryProduct>
ProductLibrary::prepare(const DeviceProduct &product,
                        const std::vector<int64_t> &words) {
  auto made = std::make_unique<LibraryProduct>(lt, product);
  if (!made->measure(words) || !made->describe(handle, kWorkspaceBytes))
    return nullptr;
  return made;
}

std::string ProductLibrary::describe(const char *call, LtStatus status) const {
  const char *name = lt.cublasLtGetStatusName(status);
  return std::string(call) + " of cuBLASLt " + lt.version + ": " +
         (name ? name : "unknown") + " (" + std::to_string(status) + ")";
}
