// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every primitive once, for test/Target/CUDA/conformance_test.py: emulated on
// every machine, and on a GPU where there is one. What the two disagree on is
// wrong in one of them.
#include "refold_cuda.h"

using namespace refold;

/// Results of element i lie at [k * count + i], k as listed.
REFOLD_KERNEL(128)
conform_arithmetic(const float *in, float *out, int64_t count) {
  const int64_t i = block() * 128 + thread();
  if (i >= count)
    return;
  const float x = load_element(in + i), y = load_element(in + (count - 1 - i));
  const float results[] = {exp2_fast(x),
                           reciprocal_fast(x),
                           reciprocal_root_fast(x),
                           max_nan(x, y),
                           min_nan(x, y),
                           multiply_add(x, y, 1.0f),
                           divide(x, y),
                           square_root(x),
                           exp_fast(x),
                           Divisor(y).quotient(x),
                           to_float(narrow<bf16>(x)),
                           to_float(narrow<f16>(x))};
  REFOLD_UNROLL
  for (int k = 0; k < 12; ++k)
    store_element(out + k * count + i, results[k]);
}

/// Values of lanes that differ in one bit, in three types; then of the thread
/// opposite in the block, through shared memory.
REFOLD_KERNEL(128)
conform_exchange(const int32_t *in, int32_t *out, int64_t count) {
  const int64_t i = block() * 128 + thread();
  const int32_t value = load_element(in + i);
  int32_t total = 0;
  REFOLD_UNROLL
  for (int mask = 1; mask < 32; mask *= 2) {
    total = total * 3 + shuffle_xor(value, mask);
    total ^= int32_t(shuffle_xor(int64_t(value) << 20, mask) >> 20);
    total += int32_t(shuffle_xor(float(value), mask)) +
             shuffle_xor(value % 2 != 0, mask);
  }
  store_element(out + i, total);
  REFOLD_SHARED(int32_t, opposite, 128);
  opposite.store(thread(), value);
  block_barrier();
  store_element(out + count + i, opposite.load(127 - thread()));
}

template <typename T, int kWidth>
REFOLD_DEVICE void copy_vectors(const int8_t *in, int8_t *out, int64_t bytes) {
  const T *from = reinterpret_cast<const T *>(in);
  T *to = reinterpret_cast<T *>(out);
  const int64_t i = block() * 128 + thread();
  if ((i + 1) * kWidth * int64_t(sizeof(T)) > bytes)
    return;
  const Vector<T, kWidth> v = load_vector<kWidth, Stream>(from + i * kWidth);
  T values[kWidth];
  REFOLD_UNROLL
  for (int e = 0; e < kWidth; ++e)
    values[e] = v.get(e);
  store_values<kWidth>(to + i * kWidth, values);
}

/// All bytes, by vectors of every width and element.
#define CONFORM_COPY(name, type, width)                                        \
  REFOLD_KERNEL(128)                                                           \
  conform_copy_##name(const int8_t *in, int8_t *out, int64_t bytes) {          \
    copy_vectors<type, width>(in, out, bytes);                                 \
  }
CONFORM_COPY(i8x1, int8_t, 1)
CONFORM_COPY(i8x8, int8_t, 8)
CONFORM_COPY(bf16x1, bf16, 1)
CONFORM_COPY(f16x8, f16, 8)
CONFORM_COPY(f32x4, float, 4)
CONFORM_COPY(f32x8, float, 8)
CONFORM_COPY(i64x1, int64_t, 1)
CONFORM_COPY(i64x8, int64_t, 8)
