// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks that the device runs at the same time, near each other: each reads
// what the others have in shared memory. From sm_90 on.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_CLUSTERS_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_CLUSTERS_H

#ifdef REFOLD_CUDA_EMULATED
#include "refold_cuda_emulated_clusters.h"
#else

/// A kernel of clusters: `count` blocks beside each other, of which the launch
/// has a multiple. `blocks` are meant to share a multiprocessor.
#define REFOLD_CLUSTER_KERNEL(threads, blocks, count)                          \
  extern "C" __global__ void __cluster_dims__(count, 1, 1)                     \
      REFOLD_UNIT_BOUNDS(threads, blocks)

namespace refold {

/// A barrier of all threads of the `kBlocks` blocks of the cluster, in two
/// halves: what was written to shared memory, or read there, before everybody's
/// arrival is seen, or done, behind the wait. A block may not end before the
/// others have read what it has.
template <int kBlocks> REFOLD_DEVICE void arrive_at_cluster() {
  static_assert(kBlocks > 1 && kBlocks <= 8);
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
template <int kBlocks> REFOLD_DEVICE void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Element i of the array that block `which` of the `kBlocks` of the cluster
/// has under this name.
template <int kBlocks, typename T>
REFOLD_DEVICE T load_across(const Shared<T> &array, int which, int i) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 1);
  uint32_t at = uint32_t(__cvta_generic_to_shared(array.memory + i));
  asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(which));
  T value;
  if constexpr (sizeof(T) == 4) {
    uint32_t bits;
    asm volatile("ld.shared::cluster.b32 %0, [%1];"
                 : "=r"(bits)
                 : "r"(at)
                 : "memory");
    value = reinterpret_cast<const T &>(bits);
  } else if constexpr (sizeof(T) == 8) {
    uint64_t bits;
    asm volatile("ld.shared::cluster.b64 %0, [%1];"
                 : "=l"(bits)
                 : "r"(at)
                 : "memory");
    value = reinterpret_cast<const T &>(bits);
  } else {
    uint32_t bits;
    asm volatile("ld.shared::cluster.u8 %0, [%1];"
                 : "=r"(bits)
                 : "r"(at)
                 : "memory");
    value = T(bits);
  }
  return value;
}

} // namespace refold

#endif // REFOLD_CUDA_EMULATED
#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_CLUSTERS_H
