// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shared memory by bytes, asynchronous copies and matrix units for the host;
// the end of refold_cuda_emulated.h. A copy arrives when it begins or when it
// is waited for, as chance has it; reading its target in between is reported
// in either case.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_TILES_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_TILES_H

namespace refold::emulator {

/// The offset of the only array of this kind that a block has. It is watched by
/// `elementBytes`: 16, or 4 where threads write words.
inline uint32_t sharedBytes(int64_t count, size_t elementBytes = 16) {
  if (count > machine.launchBytes)
    report("asks for " + std::to_string(count) + " bytes of shared memory of " +
           std::to_string(machine.launchBytes));
  if (machine.bytes.elements.empty()) {
    machine.bytes.elementBytes = elementBytes;
    machine.bytes.bytes.assign(count, char(0xff));
    machine.bytes.elements.resize(count / elementBytes);
  }
  return 0;
}

/// The number of the 16 bytes at an offset.
inline int chunkAt(uint32_t at) {
  if (at % 16)
    report("shared memory is accessed misaligned, 16 bytes at once");
  return int(at / 16);
}

/// The elements of some bytes, at multiples of their number.
template <typename Each>
void eachElement(uint32_t at, uint32_t bytes, Each each) {
  if (at % bytes)
    report("shared memory is accessed misaligned, " + std::to_string(bytes) +
           " bytes at once");
  const uint32_t own = uint32_t(machine.bytes.elementBytes);
  if (bytes % own)
    report("writes words of shared memory that is watched by 16 bytes");
  for (uint32_t i = at / own; i < (at + bytes) / own; ++i)
    each(int(i));
}

inline void land(const Copy &copy) {
  std::memcpy(machine.bytes.bytes.data() + copy.to, copy.data, copy.bytes);
}

/// Begins to copy `bytes` to shared memory, of which `there` are read and the
/// others 0; `isLeft`: of what blocks have left.
inline void beginCopy(uint32_t to, const void *from, uint32_t bytes, int there,
                      bool isLeft = false) {
  Copy copy;
  copy.to = to;
  copy.bytes = bytes;
  copy.group = current().group;
  std::memset(copy.data, 0, 16);
  eachElement(to, bytes, [](int i) { writeShared(machine.bytes, i); });
  if (uintptr_t(from) % bytes)
    report("a copy of " + std::to_string(bytes) + " bytes begins misaligned");
  if (there < 0 || there > int(bytes))
    report("a copy of " + std::to_string(bytes) + " bytes reads " +
           std::to_string(there));
  if (there > 0) {
    if (isLeft) {
      takeValue(from, there);
    } else { // within an array: the copy may end inside its last 16 bytes
      checkGlobal(from, 1, false);
      checkGlobal(static_cast<const char *>(from) + there - 1, 1, false);
    }
    std::memcpy(copy.data, from, there);
  }
  eachElement(to, bytes,
              [](int i) { machine.bytes.elements[i].isUnderWay = true; });
  std::memset(machine.bytes.bytes.data() + to, 0xff, bytes);
  if (drawRandom() & 1)
    land(copy);
  current().copies.push_back(copy);
}

} // namespace refold::emulator

namespace refold {

inline bool any_lane(bool x) {
  struct Slot {
    bool in, out;
  } slot{x, false};
  emulator::meetWarp("any_lane", &slot, [](void **slots) {
    bool any = false;
    for (int i = 0; i < 32; ++i)
      any = any || static_cast<Slot *>(slots[i])->in;
    for (int i = 0; i < 32; ++i)
      static_cast<Slot *>(slots[i])->out = any;
  });
  return slot.out;
}

/// What each lane has done before all have done.
inline void warp_barrier() {
  using namespace emulator;
  if (engine)
    engine->reachWarp();
  meetWarp("warp_barrier", nullptr, [](void **) {
    if (engine)
      engine->meetWarp();
  });
}

inline void store_shared(uint32_t to, const uint32_t (&from)[4]) {
  using namespace emulator;
  eachElement(to, 16, [](int i) { writeShared(machine.bytes, i); });
  std::memcpy(machine.bytes.bytes.data() + to, from, 16);
}
inline void load_shared(uint32_t (&to)[4], uint32_t from) {
  using namespace emulator;
  eachElement(from, 16, [](int i) { readShared(machine.bytes, i); });
  std::memcpy(to, machine.bytes.bytes.data() + from, 16);
}

template <int kBytes>
void load_words_shared(uint32_t (&to)[(kBytes + 3) / 4], uint32_t from) {
  using namespace emulator;
  static_assert(kBytes == 2 || kBytes == 4 || kBytes == 8 || kBytes == 16);
  if (from % kBytes)
    report("shared memory is accessed misaligned, " + std::to_string(kBytes) +
           " bytes at once");
  readShared(machine.bytes, int(from / machine.bytes.elementBytes));
  to[0] = 0;
  std::memcpy(to, machine.bytes.bytes.data() + from, kBytes);
}

inline void copy_async(uint32_t to, const void *from, int bytes) {
  emulator::beginCopy(to, from, 16, bytes);
}
inline void take_async(uint32_t to, const void *from, int bytes) {
  emulator::beginCopy(to, from, 16, bytes, /*isLeft=*/true);
}
inline void copy_word_async(uint32_t to, const void *from, bool is_there) {
  emulator::beginCopy(to, from, 4, is_there ? 4 : 0);
}
inline void commit_copies() { ++emulator::current().group; }
template <int kLeft> void wait_copies() {
  using namespace emulator;
  const uint64_t groups = current().group;
  const uint64_t end = groups < kLeft ? 0 : groups - kLeft;
  std::erase_if(current().copies, [&](const Copy &copy) {
    if (copy.group >= end)
      return false;
    land(copy);
    eachElement(copy.to, copy.bytes, [](int i) {
      SharedElement &element = machine.bytes.elements[i];
      element.isUnderWay = false;
      element.write = now();
    });
    return true;
  });
  if (engine && kLeft == 0)
    engine->landCopies(machine.current);
  else if (engine)
    engine->landGroups(machine.current, end);
}

namespace emulator {

inline void loadMatrices(const char *kind, uint32_t (&to)[4], uint32_t row,
                         bool isTransposed) {
  struct Slot {
    uint16_t row[8];
    uint32_t *to;
  } slot;
  std::memcpy(slot.row, readShared(machine.bytes, chunkAt(row)), 16);
  slot.to = to;
  meetWarp(kind, &slot, [isTransposed](void **slots) {
    auto element = [&](int matrix, int row, int column) -> uint32_t {
      return static_cast<Slot *>(slots[8 * matrix + row])->row[column];
    };
    for (int lane = 0; lane < 32; ++lane)
      for (int matrix = 0; matrix < 4; ++matrix) {
        const int r = lane / 4, c = lane % 4 * 2;
        static_cast<Slot *>(slots[lane])->to[matrix] =
            isTransposed
                ? element(matrix, c, r) | element(matrix, c + 1, r) << 16
                : element(matrix, r, c) | element(matrix, r, c + 1) << 16;
      }
  });
}

/// Sixteen numbers of 16 bits that are multiplied, and their powers of two.
struct Sixteen {
  float values[16];
  int powers[16];
  void set(int i, float value) {
    values[i] = value;
    const int exponent = int(std::bit_cast<uint32_t>(value) >> 23 & 255);
    powers[i] = value == 0.0f     ? kNoPower
                : exponent == 255 ? kNotFinite
                                  : exponent - 127;
  }
  static constexpr int kNoPower = -1000, kNotFinite = 1 << 20;
};

/// Matrix units add 16 products and the sum before at once. The products are
/// exact; what lies 26 bits and more below the largest power of two of all,
/// that of a product being the sum of its factors', is cut off, and so is what
/// a float has no room for. An H100 gives these very bits, by `mma.sync` and by
/// `wgmma`, of f16 and of bf16.
inline float addProducts(float sum, const Sixteen &left, const Sixteen &right) {
  Sixteen before;
  before.set(0, sum);
  int power = before.powers[0];
  for (int k = 0; k < 16; ++k)
    power = std::max(power, left.powers[k] + right.powers[k]);
  if (power < Sixteen::kNoPower / 2)
    return sum;
  if (power > Sixteen::kNotFinite / 2) {
    for (int k = 0; k < 16; ++k)
      sum += left.values[k] * right.values[k];
    return sum;
  }
  // One unit is the last bit that counts: a product has less than 2^27 of them.
  const double units = std::bit_cast<double>(uint64_t(1023 + 25 - power) << 52);
  int64_t total = int32_t(sum * units);
  for (int k = 0; k < 16; ++k)
    total += int32_t(double(left.values[k]) * double(right.values[k]) * units);
  // The first 24 bits of what is left.
  const uint64_t bits = std::bit_cast<uint64_t>(double(total) / units);
  return float(std::bit_cast<double>(bits >> 29 << 29));
}

template <typename T>
void multiplyMatrices(const char *kind, float (&sums)[4],
                      const uint32_t (&left)[4], uint32_t right0,
                      uint32_t right1) {
  struct Slot {
    float *sums;
    const uint32_t *left;
    uint32_t right[2];
  } slot{sums, left, {right0, right1}};
  meetWarp(kind, &slot, [](void **slots) {
    auto half = [](uint32_t word, int i) {
      return to_float(T{uint16_t(word >> 16 * i)});
    };
    Sixteen a[16], b[8];
    for (int lane = 0; lane < 32; ++lane) {
      const Slot &one = *static_cast<Slot *>(slots[lane]);
      const int r = lane / 4, c = lane % 4 * 2;
      for (int word = 0; word < 4; ++word)
        for (int i = 0; i < 2; ++i)
          a[r + word % 2 * 8].set(c + word / 2 * 8 + i,
                                  half(one.left[word], i));
      for (int word = 0; word < 2; ++word)
        for (int i = 0; i < 2; ++i)
          b[r].set(c + word * 8 + i, half(one.right[word], i));
    }
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        const int r = lane / 4 + i / 2 * 8, c = lane % 4 * 2 + i % 2;
        float &sum = static_cast<Slot *>(slots[lane])->sums[i];
        sum = addProducts(sum, a[r], b[c]);
      }
  });
}

} // namespace emulator

inline void load_matrices(uint32_t (&to)[4], uint32_t row) {
  emulator::loadMatrices("load_matrices", to, row, false);
}
inline void load_transposed(uint32_t (&to)[4], uint32_t row) {
  emulator::loadMatrices("load_transposed", to, row, true);
}
inline void multiply_matrices(float (&sums)[4], const uint32_t (&left)[4],
                              uint32_t right0, uint32_t right1, bf16) {
  emulator::multiplyMatrices<bf16>("multiply_matrices", sums, left, right0,
                                   right1);
}
inline void multiply_matrices(float (&sums)[4], const uint32_t (&left)[4],
                              uint32_t right0, uint32_t right1, f16) {
  emulator::multiplyMatrices<f16>("multiply_matrices of f16", sums, left,
                                  right0, right1);
}

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_TILES_H
