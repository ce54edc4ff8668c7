// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_RUNTIME_ALIGNEDBUFFER_H
#define REFOLD_RUNTIME_ALIGNEDBUFFER_H

#include <cstddef>
#include <cstdlib>
#include <sys/mman.h>
#include <utility>

namespace refold {

/// Bytes for vectors, 64-byte aligned (to 2 MiB where large); grown, never
/// shrunk.
class AlignedBuffer {
public:
  static constexpr size_t kAlignment = 64;

  AlignedBuffer() = default;
  AlignedBuffer(AlignedBuffer &&other) noexcept
      : bytes(std::exchange(other.bytes, nullptr)),
        capacity(std::exchange(other.capacity, 0)) {}
  AlignedBuffer &operator=(AlignedBuffer &&other) noexcept {
    std::swap(bytes, other.bytes);
    std::swap(capacity, other.capacity);
    return *this;
  }
  ~AlignedBuffer() { std::free(bytes); }

  /// False where memory is short; the old bytes are then kept. What was stored
  /// is lost where it grows.
  [[nodiscard]] bool reserve(size_t wanted) {
    if (wanted <= capacity)
      return true;
    size_t alignment = wanted >= kHugePage ? kHugePage : kAlignment;
    size_t rounded = (wanted + alignment - 1) / alignment * alignment;
    if (rounded < wanted)
      return false;
    void *grown = std::aligned_alloc(alignment, rounded);
    if (!grown)
      return false;
    if (alignment == kHugePage)
      madvise(grown, rounded, MADV_HUGEPAGE); // a wish; failure changes nothing
    std::free(bytes);
    bytes = static_cast<char *>(grown);
    capacity = rounded;
    return true;
  }
  char *data() const { return bytes; }
  size_t size() const { return capacity; }

private:
  /// Transparent huge pages apply to whole pages of 2 MiB only.
  static constexpr size_t kHugePage = size_t(2) << 20;
  char *bytes = nullptr;
  size_t capacity = 0;
};

} // namespace refold

#endif // REFOLD_RUNTIME_ALIGNEDBUFFER_H
