// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Views.h"

#include <algorithm>
#include <cstring>

using namespace refold;

int64_t View::numElements() const {
  int64_t count = 1;
  for (int64_t size : sizes)
    count *= size;
  return count;
}

std::optional<View> refold::resolve(const ViewSpec &spec,
                                    llvm::ArrayRef<int64_t> symbols) {
  View view;
  view.buffer = spec.buffer;
  view.dtype = spec.dtype;
  std::optional<int64_t> offset = spec.offset.evaluate(symbols);
  if (!offset ||
      __builtin_mul_overflow(*offset, byteWidth(spec.dtype), &view.byteOffset))
    return std::nullopt;
  for (const SizeExpr &expr : spec.sizes) {
    std::optional<int64_t> size = expr.evaluate(symbols);
    if (!size || *size < 0)
      return std::nullopt;
    view.sizes.push_back(*size);
  }
  for (const SizeExpr &expr : spec.strides) {
    std::optional<int64_t> stride = expr.evaluate(symbols);
    if (!stride)
      return std::nullopt;
    view.strides.push_back(*stride);
  }
  if (!checkedNumElements(view.sizes, byteWidth(spec.dtype)))
    return std::nullopt;
  return view;
}

namespace {
/// What is left to copy below one dimension.
struct Copy {
  unsigned elementBytes;
  llvm::ArrayRef<int64_t> sizes, fromStrides, toStrides;

  void run(unsigned dim, const char *from, char *to) const {
    if (dim == sizes.size()) {
      std::memcpy(to, from, elementBytes);
      return;
    }
    int64_t fromStep = fromStrides[dim] * int64_t(elementBytes);
    int64_t toStep = toStrides[dim] * int64_t(elementBytes);
    if (dim + 1 == sizes.size()) {
      if (fromStrides[dim] == 1 && toStrides[dim] == 1) {
        std::memcpy(to, from, size_t(sizes[dim]) * elementBytes);
        return;
      }
      if (fromStrides[dim] == 0 && toStrides[dim] == 1)
        return repeat(size_t(sizes[dim]) * elementBytes, from, to);
      switch (elementBytes) {
      case 1:
        return row<1>(sizes[dim], from, fromStep, to, toStep);
      case 2:
        return row<2>(sizes[dim], from, fromStep, to, toStep);
      case 4:
        return row<4>(sizes[dim], from, fromStep, to, toStep);
      default:
        return row<8>(sizes[dim], from, fromStep, to, toStep);
      }
    }
    for (int64_t i = 0; i < sizes[dim]; ++i)
      run(dim + 1, from + i * fromStep, to + i * toStep);
  }

private:
  /// One element over and over: what is there is doubled.
  void repeat(size_t bytes, const char *from, char *to) const {
    std::memcpy(to, from, elementBytes);
    for (size_t done = elementBytes; done < bytes; done *= 2)
      std::memcpy(to + done, to, std::min(done, bytes - done));
  }
  template <unsigned bytes>
  static void row(int64_t count, const char *from, int64_t fromStep, char *to,
                  int64_t toStep) {
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(to + i * toStep, from + i * fromStep, bytes);
  }
};
} // namespace

void refold::copyStrided(unsigned elementBytes, llvm::ArrayRef<int64_t> sizes,
                         const char *from, llvm::ArrayRef<int64_t> fromStrides,
                         char *to, llvm::ArrayRef<int64_t> toStrides) {
  for (int64_t size : sizes)
    if (size == 0)
      return;
  // Neighbouring dimensions that both sides step through evenly are one.
  llvm::SmallVector<int64_t, 8> merged, fromMerged, toMerged;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1)
      continue;
    if (!merged.empty() && fromMerged.back() == fromStrides[d] * sizes[d] &&
        toMerged.back() == toStrides[d] * sizes[d]) {
      merged.back() *= sizes[d];
      fromMerged.back() = fromStrides[d];
      toMerged.back() = toStrides[d];
      continue;
    }
    merged.push_back(sizes[d]);
    fromMerged.push_back(fromStrides[d]);
    toMerged.push_back(toStrides[d]);
  }
  Copy{elementBytes, merged, fromMerged, toMerged}.run(0, from, to);
}
