// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shared memory by bytes, asynchronous copies and matrix units for the host;
// the end of refold_cuda_emulated.h. A copy arrives when it begins or when it
// is waited for, as chance has it; reading its target in between is reported
// in either case.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_TILES_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_TILES_H

namespace refold::emulator {

/// The offset of the only array of this kind that a block has.
inline uint32_t sharedBytes(int64_t count) {
  if (count > machine.launchBytes)
    report("asks for " + std::to_string(count) + " bytes of shared memory of " +
           std::to_string(machine.launchBytes));
  if (machine.bytes.elements.empty()) {
    machine.bytes.elementBytes = 16;
    machine.bytes.bytes.assign(count, char(0xff));
    machine.bytes.elements.resize(count / 16);
  }
  return 0;
}

/// The number of the 16 bytes at an offset.
inline int chunkAt(uint32_t at) {
  if (at % 16)
    report("shared memory is accessed misaligned, 16 bytes at once");
  return int(at / 16);
}

inline void land(const Copy &copy) {
  std::memcpy(machine.bytes.bytes.data() + copy.to, copy.data, 16);
}

} // namespace refold::emulator

namespace refold {

inline void store_shared(uint32_t to, const uint32_t (&from)[4]) {
  using namespace emulator;
  std::memcpy(writeShared(machine.bytes, chunkAt(to)), from, 16);
}
inline void load_shared(uint32_t (&to)[4], uint32_t from) {
  using namespace emulator;
  std::memcpy(to, readShared(machine.bytes, chunkAt(from)), 16);
}

inline void copy_async(uint32_t to, const void *from, int bytes) {
  using namespace emulator;
  const int chunk = chunkAt(to);
  writeShared(machine.bytes, chunk);
  if (uintptr_t(from) % 16)
    report("a copy of 16 bytes begins misaligned");
  Copy copy;
  copy.to = to;
  copy.group = current().group;
  std::memset(copy.data, 0, 16);
  if (bytes < 0 || bytes > 16)
    report("a copy of 16 bytes reads " + std::to_string(bytes));
  if (bytes > 0) {
    // Within an array: the copy may end inside its last 16 bytes.
    checkGlobal(from, 1, false);
    checkGlobal(static_cast<const char *>(from) + bytes - 1, 1, false);
    std::memcpy(copy.data, from, bytes);
  }
  machine.bytes.elements[chunk].isUnderWay = true;
  std::memset(machine.bytes.bytes.data() + to, 0xff, 16);
  if (drawRandom() & 1)
    land(copy);
  current().copies.push_back(copy);
}
inline void commit_copies() { ++emulator::current().group; }
template <int kLeft> void wait_copies() {
  using namespace emulator;
  std::vector<Copy> left;
  for (const Copy &copy : current().copies) {
    if (copy.group + kLeft >= current().group) {
      left.push_back(copy);
      continue;
    }
    land(copy);
    SharedElement &element = machine.bytes.elements[copy.to / 16];
    element.isUnderWay = false;
    element.write = now();
  }
  current().copies = std::move(left);
  if (engine && kLeft == 0)
    engine->landCopies(machine.current);
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
    float a[16][16], b[8][16];
    for (int lane = 0; lane < 32; ++lane) {
      const Slot &one = *static_cast<Slot *>(slots[lane]);
      const int r = lane / 4, c = lane % 4 * 2;
      for (int word = 0; word < 4; ++word)
        for (int i = 0; i < 2; ++i)
          a[r + word % 2 * 8][c + word / 2 * 8 + i] = half(one.left[word], i);
      for (int word = 0; word < 2; ++word)
        for (int i = 0; i < 2; ++i)
          b[r][c + word * 8 + i] = half(one.right[word], i);
    }
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        const int r = lane / 4 + i / 2 * 8, c = lane % 4 * 2 + i % 2;
        float &sum = static_cast<Slot *>(slots[lane])->sums[i];
        for (int k = 0; k < 16; ++k)
          sum += a[r][k] * b[c][k];
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
