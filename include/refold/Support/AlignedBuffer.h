// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SUPPORT_ALIGNEDBUFFER_H
#define REFOLD_SUPPORT_ALIGNEDBUFFER_H

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <utility>

namespace refold {

/// Bytes for vectors, 64-byte aligned (to 2 MiB where large); grown, never
/// shrunk.
///
/// With assertions they lie between guards: once a kernel has written before or
/// behind them, the next `reserve`, or the end of the buffer, ends the process
/// and says where. What nobody has written of less than 2 MiB is NaN then.
class AlignedBuffer {
public:
  static constexpr size_t kAlignment = 64;
  /// Transparent huge pages apply to whole pages of 2 MiB only.
  static constexpr size_t kHugePage = size_t(2) << 20;
  /// AddressSanitizer has better ones, which see reads too.
#if defined(NDEBUG) || __has_feature(address_sanitizer)
  static constexpr bool kIsGuarded = false;
#else
  static constexpr bool kIsGuarded = true;
#endif

  AlignedBuffer() = default;
  AlignedBuffer(AlignedBuffer &&other) noexcept
      : bytes(std::exchange(other.bytes, nullptr)),
        block(std::exchange(other.block, nullptr)),
        capacity(std::exchange(other.capacity, 0)),
        used(std::exchange(other.used, 0)) {}
  AlignedBuffer &operator=(AlignedBuffer &&other) noexcept {
    std::swap(bytes, other.bytes);
    std::swap(block, other.block);
    std::swap(capacity, other.capacity);
    std::swap(used, other.used);
    return *this;
  }
  ~AlignedBuffer() { release(); }

  /// False where memory is short; the old bytes are then kept. What was stored
  /// is lost where it grows. From `huge` bytes on pages are of 2 MiB.
  [[nodiscard]] bool reserve(size_t wanted, size_t huge = kHugePage) {
    if (wanted <= capacity) {
      if (wanted && wanted != used)
        guard(wanted);
      return true;
    }
    size_t alignment = wanted >= huge ? kHugePage : kAlignment;
    size_t rounded = (wanted + alignment - 1) / alignment * alignment;
    // The guards: one that keeps the alignment in front, a line behind.
    size_t more = kIsGuarded ? 2 * alignment : 0;
    if (rounded < wanted || rounded + more < rounded)
      return false;
    char *grown =
        static_cast<char *>(std::aligned_alloc(alignment, rounded + more));
    if (!grown)
      return false;
    // Streams over pages of 4 KB reach half the memory rate of a virtual
    // machine (Zen 4: 17 GB/s against 33).
    if (alignment == kHugePage)
      madvise(grown, rounded + more, MADV_HUGEPAGE); // a wish
    release();
    block = grown;
    bytes = block + more / 2;
    capacity = rounded;
    used = 0;
    if (kIsGuarded && alignment != kHugePage) // these are left untouched
      std::memset(bytes, 0xff, rounded);
    guard(wanted);
    return true;
  }
  char *data() const { return bytes; }

private:
  static constexpr int kGuard = 0xa5;

  /// Of `wanted` bytes from now on.
  void guard(size_t wanted) {
    if (!kIsGuarded)
      return;
    if (used)
      check();
    std::memset(bytes - kAlignment, kGuard, kAlignment);
    std::memset(bytes + wanted, kGuard, kAlignment);
    used = wanted;
  }

  void check() const {
    for (size_t i = 0; i < kAlignment; ++i)
      for (const char *at : {bytes - kAlignment + i, bytes + used + i})
        if (static_cast<unsigned char>(*at) != kGuard) {
          std::fprintf(stderr,
                       "found a write at byte %td of an array of %zu bytes\n",
                       at - bytes, used);
          std::abort();
        }
  }

  void release() {
    if (used)
      check();
    std::free(block);
  }

  char *bytes = nullptr;
  char *block = nullptr; ///< with the guards
  size_t capacity = 0;
  size_t used = 0; ///< between the guards; 0: there are none
};

} // namespace refold

#endif // REFOLD_SUPPORT_ALIGNEDBUFFER_H
