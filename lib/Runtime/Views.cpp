// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Runtime/Views.h"

#include <algorithm>
#include <cstring>
#include <memory_resource>

using namespace refold;

int64_t View::numElements() const {
  int64_t count = 1;
  for (int64_t size : sizes)
    count *= size;
  return count;
}

std::optional<View> refold::resolve(const ViewSpec &spec, SizeValues &values) {
  View view;
  view.buffer = spec.buffer;
  view.dtype = spec.dtype;
  std::optional<int64_t> offset = values.of(spec.offset);
  if (!offset ||
      __builtin_mul_overflow(*offset, byteWidth(spec.dtype), &view.byteOffset))
    return std::nullopt;
  for (const SizeExpr &expr : spec.sizes) {
    std::optional<int64_t> size = values.of(expr);
    if (!size || *size < 0)
      return std::nullopt;
    view.sizes.push_back(*size);
  }
  for (const SizeExpr &expr : spec.strides) {
    std::optional<int64_t> stride = values.of(expr);
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
  std::span<const int64_t> sizes, fromStrides, toStrides;

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

void refold::mergeDims(std::pmr::vector<int64_t> &sizes,
                       std::pmr::vector<int64_t> &from,
                       std::pmr::vector<int64_t> &to) {
  size_t kept = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1)
      continue;
    bool isNext = kept && from[kept - 1] == from[d] * sizes[d] &&
                  to[kept - 1] == to[d] * sizes[d];
    kept += !isNext;
    sizes[kept - 1] = isNext ? sizes[kept - 1] * sizes[d] : sizes[d];
    from[kept - 1] = from[d];
    to[kept - 1] = to[d];
  }
  for (auto *dims : {&sizes, &from, &to})
    dims->resize(kept);
}

void refold::copyStrided(unsigned elementBytes, std::span<const int64_t> sizes,
                         const char *from, std::span<const int64_t> fromStrides,
                         char *to, std::span<const int64_t> toStrides) {
  for (int64_t size : sizes)
    if (size == 0)
      return;
  std::byte room[3 * 8 * sizeof(int64_t)];
  std::pmr::monotonic_buffer_resource pool(room, sizeof(room));
  std::pmr::vector<int64_t> merged(sizes.begin(), sizes.end(), &pool),
      fromMerged(fromStrides.begin(), fromStrides.end(), &pool),
      toMerged(toStrides.begin(), toStrides.end(), &pool);
  mergeDims(merged, fromMerged, toMerged);
  Copy{elementBytes, merged, fromMerged, toMerged}.run(0, from, to);
}
