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

/// Where other blocks of the cluster send.
#define REFOLD_MAILBOX(name)                                                   \
  __shared__ uint64_t name##_gates[2];                                         \
  [[maybe_unused]] const refold::Mailbox name {                                \
    uint32_t(__cvta_generic_to_shared(name##_gates))                           \
  }

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

/// Two gates of a block, at which other blocks of its cluster send.
struct Mailbox {
  uint32_t gates;
};
/// Every thread calls it, and waits for the cluster before anyone sends.
template <int kBlocks> REFOLD_DEVICE void open_mailbox(const Mailbox &mailbox) {
  static_assert(kBlocks > 1 && kBlocks <= 8);
  if (thread() == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n"
                 "mbarrier.init.shared::cta.b64 [%0 + 8], 1;\n"
                 "fence.mbarrier_init.release.cluster;" ::"r"(mailbox.gates)
                 : "memory");
  }
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
/// `value` to element i of what block `which` of the cluster has under this
/// name. It is there when that block has received as many bytes in this
/// `exchange`. Nothing else that was written is waited for.
template <int kBlocks, typename T>
REFOLD_DEVICE void send_across(const Mailbox &mailbox, int exchange,
                               const Shared<T> &array, int which, int i,
                               T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  uint32_t to = uint32_t(__cvta_generic_to_shared(array.memory + i));
  uint32_t gate = mailbox.gates + uint32_t(exchange % 2) * 8;
  asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(to) : "r"(which));
  asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(gate) : "r"(which));
  if constexpr (sizeof(T) == 4)
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"
                 ".b32 [%0], %1, [%2];" ::"r"(to),
                 "r"(reinterpret_cast<const uint32_t &>(value)), "r"(gate)
                 : "memory");
  else
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"
                 ".b64 [%0], %1, [%2];" ::"r"(to),
                 "l"(reinterpret_cast<const uint64_t &>(value)), "r"(gate)
                 : "memory");
}
/// Until `bytes` have come in this exchange, 0, 1, 2, ... in turn. Every thread
/// calls it; between two calls the block has a barrier.
template <int kBlocks>
REFOLD_DEVICE void receive_across(const Mailbox &mailbox, int exchange,
                                  int bytes) {
  const uint32_t gate = mailbox.gates + uint32_t(exchange % 2) * 8;
  if (thread() == 0)
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(gate),
        "r"(bytes)
        : "memory");
  asm volatile("{\n"
               ".reg .pred is_open;\n"
               "again:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 is_open, [%0], %1;\n"
               "@is_open bra done;\n"
               "bra again;\n"
               "done:\n}" ::"r"(gate),
               "r"(uint32_t(exchange / 2 % 2))
               : "memory");
}

} // namespace refold

#endif // REFOLD_CUDA_EMULATED
#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_CLUSTERS_H
