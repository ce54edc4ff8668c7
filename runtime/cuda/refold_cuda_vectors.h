// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is made of the primitives of refold_cuda.h, on device and host alike:
// vectors of storage elements, quotients by a number of the row.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_VECTORS_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_VECTORS_H

namespace refold {

/// What a kernel begins with that has nothing to do before launches before it
/// are done.
REFOLD_DEVICE void begin_launch() {
  invite_launch();
  follow_launch();
}

REFOLD_DEVICE float infinity() { return float_of(0x7f800000u); }
REFOLD_DEVICE float not_a_number() { return float_of(0x7fc00000u); }

/// A compile-time number as an argument.
template <int kValue> struct Number {
  static constexpr int value = kValue;
};

template <typename T> struct Stored;
#define REFOLD_STORED(T, element, bits)                                        \
  template <> struct Stored<T> {                                               \
    static REFOLD_DEVICE T of(uint32_t low, uint32_t high) {                   \
      (void)high;                                                              \
      return element;                                                          \
    }                                                                          \
    static REFOLD_DEVICE uint64_t to(T x) { return bits; }                     \
  }
REFOLD_STORED(float, float_of(low), bits_of(x));
REFOLD_STORED(bf16, bf16{uint16_t(low)}, x.bits);
REFOLD_STORED(f16, f16{uint16_t(low)}, x.bits);
REFOLD_STORED(f8e4m3, f8e4m3{uint8_t(low)}, x.bits);
REFOLD_STORED(f8e5m2, f8e5m2{uint8_t(low)}, x.bits);
REFOLD_STORED(int8_t, int8_t(low), uint8_t(x));
REFOLD_STORED(int16_t, int16_t(low), uint16_t(x));
REFOLD_STORED(int32_t, int32_t(low), uint32_t(x));
REFOLD_STORED(int64_t, int64_t(uint64_t(high) << 32 | low), uint64_t(x));
#undef REFOLD_STORED

/// Elements behind each other, in the registers of one lane.
template <typename T, int kWidth> struct Vector {
  static constexpr int kBytes = kWidth * int(sizeof(T));
  uint32_t words[(kBytes + 3) / 4];
#ifdef REFOLD_CUDA_EMULATED
  Vector() { // what nobody has read is NaN in all floats
    for (uint32_t &word : words)
      word = 0x7fffffffu;
  }
#endif

  REFOLD_DEVICE T get(int i) const {
    if constexpr (sizeof(T) == 8)
      return Stored<T>::of(words[2 * i], words[2 * i + 1]);
    constexpr int kPerWord = sizeof(T) >= 4 ? 1 : 4 / int(sizeof(T));
    return Stored<T>::of(words[i / kPerWord] >> (i % kPerWord * 32 / kPerWord),
                         0);
  }
  REFOLD_DEVICE void set(const T (&from)[kWidth]) {
    REFOLD_UNROLL
    for (uint32_t &word : words)
      word = 0;
    REFOLD_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      const uint64_t bits = Stored<T>::to(from[i]);
      const int at = i * int(sizeof(T));
      words[at / 4] |= uint32_t(bits) << (at % 4 * 8);
      if constexpr (sizeof(T) == 8)
        words[at / 4 + 1] = uint32_t(bits >> 32);
    }
  }
};

/// Rounded to nearest, ties to even.
template <typename T> REFOLD_DEVICE T narrow(float x) {
  return T{decltype(T::bits)(pack(x, 0.0f, T{}))};
}
/// The same, what is too large as the largest number.
template <typename T> REFOLD_DEVICE T saturate(float x) {
  return T{decltype(T::bits)(pack_saturated(x, 0.0f, T{}))};
}

/// The same, of which nothing is known to the compiler: what is made of a
/// vector that many rows have is made for each of them, where registers have no
/// room for that as well.
template <typename T, int kWidth>
REFOLD_DEVICE Vector<T, kWidth> pinned(Vector<T, kWidth> vector) {
#ifndef REFOLD_CUDA_EMULATED
  REFOLD_UNROLL
  for (uint32_t &word : vector.words)
    asm volatile("" : "+r"(word));
#endif
  return vector;
}

REFOLD_DEVICE int64_t pinned(int64_t x) {
#ifndef REFOLD_CUDA_EMULATED
  asm volatile("" : "+l"(x));
#endif
  return x;
}
REFOLD_DEVICE int32_t pinned(int32_t x) {
#ifndef REFOLD_CUDA_EMULATED
  asm volatile("" : "+r"(x));
#endif
  return x;
}

/// `kWidth` elements at an address that is a multiple of the largest power of 2
/// in their bytes, or of 16 bytes if that is more.
template <int kWidth, Policy kPolicy, typename T>
REFOLD_DEVICE Vector<T, kWidth> load_vector(const T *from) {
  constexpr int kBytes = Vector<T, kWidth>::kBytes;
  constexpr int kWhole = kBytes & -kBytes;
  constexpr int kPart = kWhole < 16 ? kWhole : 16;
  const char *const bytes = reinterpret_cast<const char *>(from);
  Vector<T, kWidth> to;
  REFOLD_UNROLL
  for (int at = 0; at < kBytes; at += kPart) {
    if constexpr (kPart >= 4 || kPart == kBytes) {
      load_words<kPart, kPolicy>(to.words + at / 4, bytes + at);
    } else {
      uint32_t part;
      load_words<kPart, kPolicy>(&part, bytes + at);
      to.words[at / 4] =
          at % 4 ? to.words[at / 4] | part << (at % 4 * 8) : part;
    }
  }
  return to;
}

template <typename T> REFOLD_DEVICE T load_element(const T *from) {
  return load_vector<1, Reuse>(from).get(0);
}

template <int kWidth, typename T>
REFOLD_DEVICE void store_vector(T *to, const Vector<T, kWidth> &from) {
  constexpr int kPart =
      Vector<T, kWidth>::kBytes < 16 ? Vector<T, kWidth>::kBytes : 16;
  REFOLD_UNROLL
  for (int at = 0; at < Vector<T, kWidth>::kBytes; at += kPart)
    store_words<kPart>(reinterpret_cast<char *>(to) + at, from.words + at / 4);
}

template <int kWidth, typename T>
REFOLD_DEVICE void store_values(T *to, const T (&from)[kWidth]) {
  Vector<T, kWidth> vector;
  vector.set(from);
  store_vector(to, vector);
}

/// The same, each value rounded to the storage type, by `pack2`.
template <int kWidth, typename T, typename Pack>
REFOLD_DEVICE void store_packed(T *to, const float (&from)[kWidth],
                                Pack pack2) {
  constexpr int kBits = 8 * int(sizeof(T));
  Vector<T, kWidth> vector;
  if constexpr (kWidth == 1) {
    vector.words[0] = pack2(from[0], 0.0f) & ((1u << kBits) - 1);
  } else {
    REFOLD_UNROLL
    for (int i = 0; i < kWidth; i += 2) {
      const uint32_t pair = pack2(from[i], from[i + 1]);
      const int at = i * kBits;
      vector.words[at / 32] =
          at % 32 ? vector.words[at / 32] | pair << (at % 32) : pair;
    }
  }
  store_vector(to, vector);
}
template <int kWidth, typename T>
REFOLD_DEVICE void store_rounded(T *to, const float (&from)[kWidth]) {
  store_packed(to, from,
               [](float low, float high) { return pack(low, high, T{}); });
}
template <int kWidth, typename T>
REFOLD_DEVICE void store_saturated(T *to, const float (&from)[kWidth]) {
  store_packed(to, from, [](float low, float high) {
    return pack_saturated(low, high, T{});
  });
}

template <typename T> REFOLD_DEVICE void store_element(T *to, T value) {
  const T values[1] = {value};
  store_values(to, values);
}

/// The largest or smallest of the elements of vectors of 16-bit floats, two of
/// them with one instruction; of their magnitudes with `kSigns` 0x7fff7fff.
template <typename T, bool kIsLargest, uint32_t kSigns = 0xffffffffu>
struct Extremes {
  static constexpr int kParts = 4; // kept apart
  uint32_t pairs[kParts];

  static REFOLD_DEVICE uint32_t of(uint32_t x, uint32_t y) {
    if constexpr (kIsLargest)
      return max_pairs(x, y, T{});
    else
      return min_pairs(x, y, T{});
  }
  /// `identity`: what no element goes beyond.
  explicit REFOLD_DEVICE Extremes(float identity) {
    const uint32_t pair = narrow<T>(identity).bits * 0x10001u;
    REFOLD_UNROLL
    for (uint32_t &words : pairs)
      words = pair;
  }
  template <int kWidth> REFOLD_DEVICE void take(const Vector<T, kWidth> &from) {
    static_assert(kWidth == 1 || kWidth % 2 == 0);
    REFOLD_UNROLL
    for (int i = 0; i < (kWidth + 1) / 2; ++i) {
      const uint32_t word =
          kWidth == 1 ? (from.words[0] & 0xffffu) * 0x10001u : from.words[i];
      pairs[i % kParts] = of(pairs[i % kParts], word & kSigns);
    }
  }
  /// With that of what was before.
  REFOLD_DEVICE float with(float before) const {
    const uint32_t pair = of(of(pairs[0], pairs[1]), of(pairs[2], pairs[3]));
    const float low = to_float(T{uint16_t(pair)});
    const float high = to_float(T{uint16_t(pair >> 16)});
    return kIsLargest ? max_nan(before, max_nan(low, high))
                      : min_nan(before, min_nan(low, high));
  }
};

/// Where a row is between the sweeps over it: CudaEntry::Place; or in parts,
/// which are swept once.
enum Place { Nowhere, InRegisters, InShared, Split, InRing, InParts, InLanes };

/// Columns of a row: 32 bits are enough for one that is on chip.
template <bool kIsOnChip> struct Columns {
  using Type = int64_t;
};
template <> struct Columns<true> {
  using Type = int32_t;
};
template <Place kPlace>
using ColumnOf = typename Columns<kPlace == InRegisters || kPlace == InShared ||
                                  kPlace == Split || kPlace == InRing ||
                                  kPlace == InLanes>::Type;

/// A thread's own vector in shared memory: its parts of 16 bytes lie
/// `kThreads` of them apart, so that those of a warp are neighbours. No other
/// thread reads it, so that no barrier is needed.
template <int kThreads, typename T, int kWidth>
REFOLD_DEVICE Vector<T, kWidth> load_kept(uint32_t from) {
  static_assert(Vector<T, kWidth>::kBytes % 16 == 0);
  Vector<T, kWidth> to;
  REFOLD_UNROLL
  for (int part = 0; part < Vector<T, kWidth>::kBytes / 16; ++part) {
    uint32_t words[4];
    load_shared(words, from + uint32_t(part * kThreads * 16));
    REFOLD_UNROLL
    for (int i = 0; i < 4; ++i)
      to.words[part * 4 + i] = words[i];
  }
  return to;
}
/// Begins to copy one there, or zeros.
template <int kThreads, int kWidth, typename T>
REFOLD_DEVICE void copy_kept(uint32_t to, const T *from, bool is_there = true) {
  static_assert(Vector<T, kWidth>::kBytes % 16 == 0);
  REFOLD_UNROLL
  for (int part = 0; part < Vector<T, kWidth>::kBytes / 16; ++part)
    copy_async(to + uint32_t(part * kThreads * 16),
               reinterpret_cast<const char *>(from) + part * 16,
               is_there ? 16 : 0);
}

/// Begins to copy the vectors of a warp, which lie beside each other from the
/// first lane's on, so that lanes beside each other copy what lies beside each
/// other: the first `count` elements of them, and zeros. All lanes call it, and
/// read their own when they have waited for their copies and met.
template <int kWidth, typename T>
REFOLD_DEVICE void copy_of_warp(uint32_t to, const T *from, int64_t count) {
  static_assert(Vector<T, kWidth>::kBytes % 16 == 0);
  REFOLD_UNROLL
  for (int part = 0; part < Vector<T, kWidth>::kBytes / 16; ++part) {
    const int piece = part * 32 + thread() % 32;
    copy_async(to + uint32_t(piece) * 16,
               reinterpret_cast<const char *>(from) + piece * 16,
               piece * int(16 / sizeof(T)) < count ? 16 : 0);
  }
}
template <typename T, int kWidth>
REFOLD_DEVICE Vector<T, kWidth> load_of_warp(uint32_t from) {
  return load_kept<1, T, kWidth>(from + uint32_t(thread() % 32) *
                                            Vector<T, kWidth>::kBytes);
}

/// A vector of a row that a lane has for itself in shared memory.
template <typename T, int kWidth>
REFOLD_DEVICE Vector<T, kWidth> load_own(uint32_t from) {
  if constexpr (Vector<T, kWidth>::kBytes % 16 == 0) {
    return load_kept<1, T, kWidth>(from);
  } else {
    Vector<T, kWidth> to;
    load_words_shared<Vector<T, kWidth>::kBytes>(to.words, from);
    return to;
  }
}

/// Vectors as `kCount` of `kPart` elements.
template <typename T, int kPart, int kCount> struct PartsOfVectors {
  Vector<T, kPart> of[kCount];
};
template <int kPart, typename T, int kWidth, int kCount>
REFOLD_DEVICE auto parts_of(const Vector<T, kWidth> (&from)[kCount]) {
  static_assert(kWidth % kPart == 0);
  constexpr int kParts = kWidth / kPart, kWords = (kPart * sizeof(T) + 3) / 4;
  PartsOfVectors<T, kPart, kCount * kParts> parts;
  REFOLD_UNROLL
  for (int i = 0; i < kCount * kParts; ++i) {
    REFOLD_UNROLL
    for (int word = 0; word < kWords; ++word)
      parts.of[i].words[word] =
          from[i / kParts].words[i % kParts * kWords + word];
  }
  return parts;
}
/// Begins to copy the rows of a warp, of `count` elements that are whole
/// vectors each: row i of it from `row_at(i)` to `to` + i * `stride`. Lanes
/// beside each other copy vectors beside each other. All lanes call it.
template <int kWidth, typename RowAt>
REFOLD_DEVICE void copy_rows(uint32_t to, uint32_t stride, int64_t count,
                             RowAt row_at) {
  const int lane = thread() % 32;
  int bits = 0; // of the lanes that copy one row
  REFOLD_UNROLL
  for (int i = 0; i < 5; ++i)
    bits += int(count > kWidth << i);
  const auto first = row_at(0);
  const int64_t apart = row_at(1) - first;
  // Of rows that lie evenly, lanes that have eight or more to copy know where.
  const bool is_even =
      !any_lane(bits < 3 || row_at(lane) != first + lane * apart);
  const int which = lane >> bits, step = 32 >> bits;
  for (int64_t column = (lane & ((1 << bits) - 1)) * kWidth; column < count;
       column += kWidth << bits) {
    uint32_t place = to + uint32_t(which) * stride +
                     uint32_t(column) * uint32_t(sizeof(*first));
    if (!is_even) {
      for (int row = which; row < 32; row += step, place += step * stride)
        copy_kept<1, kWidth>(place, row_at(row) + column);
      continue;
    }
    auto from = first + which * apart + column;
    REFOLD_NO_UNROLL
    for (int row = which; row < 32; row += 8 * step) {
      REFOLD_UNROLL
      for (int i = 0; i < 8; ++i) {
        copy_kept<1, kWidth>(place, from);
        place += uint32_t(step) * stride;
        from += step * apart;
      }
    }
  }
}

/// The same of rows that lie evenly: the first begins at `first`, each `apart`
/// elements behind the one before. `there` of them are; zeros are brought for
/// the others.
template <int kWidth, typename T>
REFOLD_DEVICE void copy_even_rows(uint32_t to, uint32_t stride, int count,
                                  const T *first, int64_t apart,
                                  int64_t there) {
  const int lane = thread() % 32;
  int bits = 0; // of the lanes that copy one row
  REFOLD_UNROLL
  for (int i = 0; i < 5; ++i)
    bits += int(count > kWidth << i);
  const int which = lane >> bits, step = 32 >> bits;
  // Lanes that have eight or more to copy, of rows that are all there.
  const bool are_eights = bits >= 3 && there >= 32;
  const int64_t next = step * apart;
  for (int column = (lane & ((1 << bits) - 1)) * kWidth; column < count;
       column += kWidth << bits) {
    uint32_t place =
        to + uint32_t(which) * stride + uint32_t(column) * uint32_t(sizeof(T));
    const T *from = first + which * apart + column;
    if (!are_eights) {
      for (int row = which; row < 32; row += step) {
        copy_kept<1, kWidth>(place, from, row < there);
        place += uint32_t(step) * stride;
        from += next;
      }
      continue;
    }
    REFOLD_NO_UNROLL
    for (int row = which; row < 32; row += 8 * step) {
      REFOLD_UNROLL
      for (int i = 0; i < 8; ++i) {
        copy_kept<1, kWidth>(place, from);
        place += uint32_t(step) * stride;
        from += next;
      }
    }
  }
}

REFOLD_DEVICE bool shuffle_xor(bool x, int mask) {
  return shuffle_xor(int32_t(x), mask) != 0;
}

/// exp(x) by 2^x, for what is stored in 16 bits.
REFOLD_DEVICE float exp_fast(float x) { return exp2_fast(x * 1.44269504f); }

/// 1 / x for x of ordinary magnitude, within 1 ulp; 0, infinite and NaN as by
/// division. One step of Newton's method, which has no value at 0 and infinity.
REFOLD_DEVICE float reciprocal(float x) {
  const float y = reciprocal_fast(x);
  const float error = multiply_add(-x, y, 1.0f);
  return fabsf(error) < 0.5f ? multiply_add(y, error, y) : y;
}

/// Quotients by one number, each within 1.5 ulp at any magnitude of it: both
/// sides are first multiplied by a power of two that brings the number near 1,
/// so that its reciprocal exists. By a plain number, far from what has none,
/// one product is enough.
struct Divisor {
  float scale, scaled, inverse;
  bool is_plain; ///< 2^-100 <= |by| < 2^101
  explicit REFOLD_DEVICE Divisor(float by) {
    const int steps = 126 - int(bits_of(by) >> 23 & 255);
    is_plain = steps >= -101 && steps <= 99;
    scale = float_of(uint32_t(127 + (steps < -126 ? -126 : steps)) << 23);
    scaled = by * scale;
    inverse = reciprocal(scaled);
  }
  /// `kIsPlain`: the number is.
  template <bool kIsPlain = false> REFOLD_DEVICE float quotient(float x) const {
    return kIsPlain ? x * (scale * inverse) : x * scale * inverse;
  }
  /// The nearest float but for subnormal results, without a branch.
  REFOLD_DEVICE float nearest(float x) const {
    const float first = quotient(x);
    const float error = multiply_add(-first, scaled, x * scale);
    // At infinite and 0 there is no error that a number could mend.
    return fabsf(error) <= fabsf(x * scale)
               ? multiply_add(error, inverse, first)
               : first;
  }
};

REFOLD_DEVICE float divide(float x, float y) { return Divisor(y).nearest(x); }

/// The root, within 1 ulp; without a branch.
REFOLD_DEVICE float square_root(float x) {
  const bool is_small = x < 7.88860905e-31f;                       // 2^-100
  const float scaled = is_small ? x * 18446744073709551616.0f : x; // 2^64
  const float inverse = reciprocal_root_fast(scaled);
  const float first = scaled * inverse;
  const float error = multiply_add(-first, first, scaled);
  const bool is_number = scaled > 0.0f && scaled < infinity();
  const float root = is_number ? multiply_add(error, 0.5f * inverse, first)
                     : scaled < 0.0f ? not_a_number()
                                     : scaled;
  return is_small ? root * 2.32830644e-10f : root; // 2^-32
}

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_VECTORS_H
