// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The k best of a row, on device and host alike: each thread has a list of the
// best that it has seen, in registers, and lists are merged (law topk-merge).
// An element is a word: its key as a number that is larger where the key is
// better, and behind it its place, counted down, so that of equal keys the
// earlier one is the larger word. No two words are equal, and 0 is no element.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_LISTS_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_LISTS_H

namespace refold {

REFOLD_DEVICE uint32_t shuffle_xor(uint32_t x, int mask) {
  return uint32_t(shuffle_xor(int32_t(x), mask));
}
REFOLD_DEVICE uint64_t shuffle_xor(uint64_t x, int mask) {
  return uint64_t(shuffle_xor(int64_t(x), mask));
}

/// Larger for larger numbers; zeros of both signs are one number, and a NaN is
/// above all others.
REFOLD_DEVICE uint32_t order_of(float x) {
  const uint32_t bits = bits_of(plain_number(x));
  return bits ^ (uint32_t(int32_t(bits) >> 31) | 0x80000000u);
}
REFOLD_DEVICE float number_of(uint32_t order) {
  return float_of(order & 0x80000000u ? order ^ 0x80000000u : ~order);
}

template <bool kIsShort> struct WordOf {
  using Type = uint64_t;
};
template <> struct WordOf<true> {
  using Type = uint32_t;
};

template <typename W> REFOLD_DEVICE W larger_word(W x, W y) {
  return x > y ? x : y;
}
/// The larger one first.
template <typename W> REFOLD_DEVICE void sort_pair(W &x, W &y) {
  const W first = x > y ? x : y, second = x > y ? y : x;
  x = first;
  y = second;
}

/// Sorts what rises and then falls, or falls and then rises: words that are
/// `kStep` apart, then those half as far.
template <int kStep, int kCount, typename W>
REFOLD_DEVICE void sort_bitonic(W (&words)[kCount]) {
  REFOLD_UNROLL
  for (int i = 0; i < kCount; ++i)
    if ((i & kStep) == 0)
      sort_pair(words[i], words[i | kStep]);
  if constexpr (kStep > 1)
    sort_bitonic<kStep / 2>(words);
}

/// Merges neighbours that are sorted, `kSorted` words each (Batcher): pairs
/// that are `kStep` apart, then those half as far.
template <int kSorted, int kStep, int kCount, typename W>
REFOLD_DEVICE void merge_neighbours(W (&words)[kCount]) {
  REFOLD_UNROLL
  for (int first = kStep % kSorted; first + kStep < kCount;
       first += 2 * kStep) {
    REFOLD_UNROLL
    for (int i = first; i < first + kStep; ++i)
      if (i + kStep < kCount &&
          i / (2 * kSorted) == (i + kStep) / (2 * kSorted))
        sort_pair(words[i], words[i + kStep]);
  }
  if constexpr (kStep > 1)
    merge_neighbours<kSorted, kStep / 2>(words);
}

/// The largest first.
template <int kSorted = 1, int kCount, typename W>
REFOLD_DEVICE void sort_words(W (&words)[kCount]) {
  if constexpr (kSorted < kCount) {
    merge_neighbours<kSorted, kSorted>(words);
    sort_words<2 * kSorted>(words);
  }
}

/// How many threads of `kThreads` write `kCount` places: parts are equal.
template <int kThreads, int kCount> REFOLD_DEVICE constexpr int writers() {
  int parts = 1;
  while (2 * parts <= kThreads && kCount % (2 * parts) == 0)
    parts *= 2;
  return parts;
}

/// Elements behind each other, by vectors of 16 bytes where they are some.
template <int kCount, typename T>
REFOLD_DEVICE void store_places(T *to, const T (&from)[kCount]) {
  if constexpr (kCount * sizeof(T) % 16 == 0)
    if (uint64_t(to) % 16 == 0)
      return store_values(to, from);
  REFOLD_UNROLL
  for (int i = 0; i < kCount; ++i)
    store_element(to + i, from[i]);
}

/// Keys that are 16-bit floats as they are stored, or their opposites, two of
/// them a word.
template <typename T, bool kIsTop, bool kIsNegated> struct StoredKeys {
  static REFOLD_DEVICE uint32_t keys(uint32_t pair) {
    return kIsNegated ? pair ^ 0x80008000u : pair;
  }
  /// NaN is the best of the largest and the last of the smallest.
  static REFOLD_DEVICE uint32_t better(uint32_t x, uint32_t y) {
    if constexpr (kIsTop)
      return max_pairs(x, y, T{});
    else
      return min_numbers(x, y, T{});
  }
  /// Numbers of 16 bits that are larger where keys are better.
  static REFOLD_DEVICE uint32_t orders(uint32_t keys) {
    const uint32_t plain = plain_pairs(keys, T{});
    const uint32_t order = plain ^ (spread_signs(plain) | 0x80008000u);
    return kIsTop ? order : ~order;
  }
  /// Of the order in the upper half of a word.
  static REFOLD_DEVICE float key(uint32_t word) {
    const uint32_t own = kIsTop ? word : ~word;
    const uint32_t bits = own ^ (~spread_signs(own) | 0x80008000u);
    return to_float(T{uint16_t(bits >> 16)});
  }
  /// The best key of each of `kCount` vectors, of which the first `there` are;
  /// of others any number.
  template <int kCount, int kWidth>
  static REFOLD_DEVICE Vector<T, kCount>
  bests(const Vector<T, kWidth> (&from)[kCount], int there) {
    static_assert(kWidth % 2 == 0 && kCount % 2 == 0);
    const auto best = [&](int v) {
      if (v >= there) // no other is worse
        return narrow<T>(kIsTop ? -infinity() : infinity()).bits * 0x10001u;
      uint32_t pair = keys(from[v].words[0]);
      REFOLD_UNROLL
      for (int i = 1; i < kWidth / 2; ++i)
        pair = better(pair, keys(from[v].words[i]));
      return pair;
    };
    Vector<T, kCount> bests;
    REFOLD_UNROLL
    for (int i = 0; i < kCount / 2; ++i) {
      const uint32_t x = best(2 * i), y = best(2 * i + 1);
      bests.words[i] =
          better((x & 0xffffu) | y << 16, x >> 16 | (y & 0xffff0000u));
    }
    return bests;
  }
};
template <typename T> struct IsFloat {
  static constexpr bool kValue = false;
};
template <> struct IsFloat<float> {
  static constexpr bool kValue = true;
};
template <bool kIsFirst, typename First, typename Second> struct EitherOf {
  using Type = First;
};
template <typename First, typename Second>
struct EitherOf<false, First, Second> {
  using Type = Second;
};
template <bool kIsFirst, typename First, typename Second>
using Either = typename EitherOf<kIsFirst, First, Second>::Type;

struct NoBests {};
/// Of lanes with a row each; elsewhere nobody asks for them.
template <bool kIsWanted, typename Keys, typename Vectors>
REFOLD_DEVICE auto bests_of(const Vectors &from, int there) {
  if constexpr (kIsWanted)
    return Keys::bests(from, there);
  else
    return NoBests{};
}

/// The `kCount` best of what was taken: of keys of which the first
/// `kKeyBits` bits differ, in rows of at most `kLongest` elements (-1: any).
/// `Keys`: float, or how keys are stored, of which words have all 16 bits.
template <int kCount, bool kIsTop, int kKeyBits, int64_t kLongest,
          typename Keys = float>
struct List {
  /// Where key and place fit 32 bits, they are one word of the machine; what
  /// places count down to has its first bit.
  static constexpr int kPlaceBits = kKeyBits < 32 ? 32 - kKeyBits : 32;
  static constexpr uint32_t kPlaces = uint32_t((uint64_t(1) << kPlaceBits) - 1);
  static constexpr bool kIsShort =
      kKeyBits < 32 && kLongest >= 0 && kLongest < int64_t(kPlaces / 2);
  using Word = typename WordOf<kIsShort>::Type;
  static constexpr int kRoom = kCount <= 1    ? 1
                               : kCount <= 2  ? 2
                               : kCount <= 4  ? 4
                               : kCount <= 8  ? 8
                               : kCount <= 16 ? 16
                                              : 32;
  static_assert(kCount <= kRoom);
  Word words[kRoom];

  REFOLD_DEVICE List() {
    REFOLD_UNROLL
    for (Word &word : words)
      word = 0;
  }

  static REFOLD_DEVICE Word word_of(float key, int64_t place) {
    const uint32_t order = kIsTop ? order_of(key) : ~order_of(key);
    if constexpr (kIsShort) {
      return (order & ~kPlaces) | (kPlaces - uint32_t(place));
    } else {
      return uint64_t(order) << 32 | uint32_t(~uint32_t(place));
    }
  }

  /// Absorbs elements. `kIsRare`: few of them are among the best, so that it is
  /// worth asking first; `isFirst`: nothing was absorbed before.
  template <bool kIsRare, int kWidth>
  REFOLD_DEVICE void take(Word (&elements)[kWidth], bool isFirst) {
    if constexpr (kIsRare || kRoom == 1) {
      Word best = elements[0];
      REFOLD_UNROLL
      for (int i = 1; i < kWidth; ++i)
        best = larger_word(best, elements[i]);
      if constexpr (kRoom == 1) {
        words[0] = larger_word(words[0], best);
        return;
      }
      if (best < words[kCount - 1])
        return;
    }
    if constexpr (kRoom > 1) {
      sort_words(elements);
      constexpr int kTaken = kWidth < kRoom ? kWidth : kRoom;
      if (isFirst) {
        REFOLD_UNROLL
        for (int i = 0; i < kTaken; ++i)
          words[i] = elements[i];
        return;
      }
      REFOLD_UNROLL
      for (int i = 0; i < kTaken; ++i)
        words[kRoom - 1 - i] = larger_word(words[kRoom - 1 - i], elements[i]);
      sort_bitonic<kRoom / 2>(words);
    }
  }

  /// The best of all elements of a row, from `vectors`: the bests of their
  /// `kWidth` elements each, at the place of the first. No element of a vector
  /// that is not among them is among the best. `words_at` gives the elements of
  /// the vector that begins at a place. The best of all is in the first vector;
  /// that goes back to where its next one belongs.
  template <int kWidth, typename WordsAt>
  REFOLD_DEVICE void select(List &vectors, WordsAt words_at) {
    REFOLD_UNROLL
    for (int n = 0; n < kCount; ++n) {
      // The best not above this is what it stands for: its place is the first
      // that there may be.
      const Word bound = vectors.words[0];
      Word elements[kWidth];
      words_at(elements, bound == 0 ? 0 : vectors.place(0) / kWidth * kWidth);
      Word best = 0;
      REFOLD_UNROLL
      for (int i = 0; i < kWidth; ++i) // unsigned: what is above wraps low
        best = larger_word(best, Word(elements[i] + ~bound));
      best = bound == 0 ? Word(0) : Word(best + bound + 1);
      words[n] = best;
      Word next = 0;
      REFOLD_UNROLL
      for (int i = 0; i < kWidth; ++i)
        next = larger_word(next, Word(elements[i] - best));
      next = Word(next + best) < best ? Word(next + best) : Word(0);
      REFOLD_UNROLL
      for (int i = 0; i + 1 < kCount - n; ++i) {
        vectors.words[i] = larger_word(vectors.words[i + 1], next);
        next = vectors.words[i + 1] < next ? vectors.words[i + 1] : next;
      }
    }
  }

  /// Absorbs vectors of `kWidth` elements by the best of each, as `Keys` finds
  /// them: the first vector begins at place `first`, `there` of them are.
  template <int kWidth, int kVectors, typename T>
  REFOLD_DEVICE void take_bests(const Vector<T, kVectors> &bests, int64_t first,
                                int there) {
    Word elements[kVectors];
    REFOLD_UNROLL
    for (int v = 0; v < kVectors; v += 2) {
      const uint32_t orders = Keys::orders(bests.words[v / 2]);
      const uint32_t places = kPlaces - uint32_t(first) - uint32_t(v * kWidth);
      elements[v] = v < there ? orders << 16 | places : 0;
      elements[v + 1] =
          v + 1 < there ? (orders & ~kPlaces) | (places - kWidth) : 0;
    }
    // Lists of no more than that are sorted at once.
    constexpr int kPart = kVectors < 8 ? kVectors : 8;
    REFOLD_UNROLL
    for (int part = 0; part < kVectors; part += kPart) {
      Word some[kPart];
      REFOLD_UNROLL
      for (int i = 0; i < kPart; ++i)
        some[i] = elements[part + i];
      take<false>(some, first == 0 && part == 0);
    }
  }

  /// As `select`; `vector_at` gives the vector that begins at a place.
  /// `kIsFull`: there are at least `kCount` vectors.
  template <int kWidth, bool kIsFull, typename VectorAt>
  REFOLD_DEVICE void select_stored(List &vectors, VectorAt vector_at) {
    REFOLD_UNROLL
    for (int n = 0; n < kCount; ++n) {
      const Word bound = vectors.words[0];
      const bool is_there = kIsFull || bound != 0;
      const uint32_t first =
          is_there ? ~uint32_t(bound) & kPlaces & ~uint32_t(kWidth - 1) : 0;
      // Places count down to the vector's last element.
      const Word base = kPlaces - first - (kWidth - 1);
      const auto vector = vector_at(first);
      Word elements[kWidth];
      REFOLD_UNROLL
      for (int i = 0; i < kWidth; i += 2) {
        const uint32_t orders = Keys::orders(Keys::keys(vector.words[i / 2]));
        elements[i] = orders << 16 | uint32_t(kWidth - 1 - i);
        elements[i + 1] = (orders & ~kPlaces) | uint32_t(kWidth - 2 - i);
      }
      const Word above = base - bound - 1;
      Word best = 0;
      REFOLD_UNROLL
      for (int i = 0; i < kWidth; ++i) // unsigned: what is above wraps low
        best = larger_word(best, Word(elements[i] + above));
      best -= above;
      words[n] = is_there ? Word(best + base) : Word(0);
      Word next = 0;
      REFOLD_UNROLL
      for (int i = 0; i < kWidth; ++i)
        next = larger_word(next, Word(elements[i] - best));
      next += best;
      next = is_there && next < best ? Word(next + base) : Word(0);
      REFOLD_UNROLL
      for (int i = 0; i + 1 < kCount - n; ++i) {
        vectors.words[i] = larger_word(vectors.words[i + 1], next);
        next = vectors.words[i + 1] < next ? vectors.words[i + 1] : next;
      }
    }
  }

  /// The best of this list and of that of another lane, which does the same.
  REFOLD_DEVICE void merge_lane(int mask) {
    Word other[kRoom];
    REFOLD_UNROLL
    for (int i = 0; i < kRoom; ++i)
      other[i] = shuffle_xor(words[i], mask);
    REFOLD_UNROLL
    for (int i = 0; i < kRoom; ++i)
      words[i] = larger_word(words[i], other[kRoom - 1 - i]);
    if constexpr (kRoom > 1)
      sort_bitonic<kRoom / 2>(words);
  }

  /// Every `kParts`-th part of the list, for the threads that write it: places
  /// 0 on are those from `part` * kCount / kParts on.
  template <int kParts> REFOLD_DEVICE List part_of(int part) const {
    constexpr int kOwn = kCount / kParts;
    List own;
    REFOLD_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      REFOLD_UNROLL
      for (int p = 0; p < kParts; ++p)
        own.words[i] = part == p ? words[p * kOwn + i] : own.words[i];
    }
    return own;
  }

  /// To and from place `which` of what warps share.
  template <typename Memory>
  REFOLD_DEVICE void store(const Memory &memory, int which) const {
    REFOLD_UNROLL
    for (int i = 0; i < kRoom; ++i)
      memory.store(which * kRoom + i, words[i]);
  }
  template <typename Memory>
  REFOLD_DEVICE void load(const Memory &memory, int which) {
    REFOLD_UNROLL
    for (int i = 0; i < kRoom; ++i)
      words[i] = memory.load(which * kRoom + i);
  }

  REFOLD_DEVICE bool is_free(int64_t i) const { return words[i] == 0; }
  /// -1 where nothing is.
  REFOLD_DEVICE int32_t place(int64_t i) const {
    if constexpr (kIsShort) {
      return int32_t(~words[i] << (32 - kPlaceBits)) >> (32 - kPlaceBits);
    } else {
      return int32_t(~uint32_t(words[i]));
    }
  }
  REFOLD_DEVICE float key(int64_t i, float free) const {
    if (is_free(i))
      return free;
    if constexpr (kIsShort) {
      // Where the place was, keys have no bits.
      const uint32_t order = words[i] & ~kPlaces;
      if constexpr (IsFloat<Keys>::kValue)
        return float_of(bits_of(number_of(kIsTop ? order : ~order)) & ~kPlaces);
      else
        return Keys::key(order);
    } else {
      const uint32_t order = uint32_t(words[i] >> 32);
      return number_of(kIsTop ? order : ~order);
    }
  }
};

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_LISTS_H
