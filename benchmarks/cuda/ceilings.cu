// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the memory of a GPU gives: the rates that rows.py holds kernels against.
#include "refold_cuda.h"

using namespace refold;

/// Every word once; the sum is written where it has a value that it never has.
REFOLD_KERNEL(512) read_all(const int32_t *from, int32_t *to, int64_t vectors) {
  constexpr int kInFlight = 8;
  int32_t sum = 0;
  const int64_t step = int64_t(gridDim.x) * 512;
  for (int64_t i = block() * 512 + thread(); i < vectors;
       i += step * kInFlight) {
    Vector<int32_t, 4> v[kInFlight];
    REFOLD_UNROLL
    for (int j = 0; j < kInFlight; ++j)
      if (i + j * step < vectors)
        v[j] = load_vector<4, Stream>(from + (i + j * step) * 4);
    REFOLD_UNROLL
    for (int j = 0; j < kInFlight; ++j)
      if (i + j * step < vectors)
        sum ^= v[j].get(0) ^ v[j].get(1) ^ v[j].get(2) ^ v[j].get(3);
  }
  if (sum == 0x12345678)
    to[thread()] = sum;
}

/// One block for 32 KB, in order.
REFOLD_KERNEL(256) copy_all(const int32_t *from, int32_t *to, int64_t) {
  constexpr int kInFlight = 8;
  const int64_t first = block() * 256 * kInFlight + thread();
  Vector<int32_t, 4> v[kInFlight];
  REFOLD_UNROLL
  for (int j = 0; j < kInFlight; ++j)
    v[j] = load_vector<4, Stream>(from + (first + j * 256) * 4);
  REFOLD_UNROLL
  for (int j = 0; j < kInFlight; ++j)
    store_vector(to + (first + j * 256) * 4, v[j]);
}
