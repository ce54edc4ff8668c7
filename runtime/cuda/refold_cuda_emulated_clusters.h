// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// refold_cuda_clusters.h for the host. Blocks run one after the other; one that
// has come to a barrier of its cluster waits there for the others. Whether an
// access to another block's shared memory comes after what it needs is told by
// these barriers alone.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_CLUSTERS_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_CLUSTERS_H

#define REFOLD_CLUSTER_KERNEL(threads, blocks, count) REFOLD_ENTRY

namespace refold::emulator {

/// What block `number` has under a name, be it the current one or one that
/// waits.
inline SharedMemory &sharedOf(int64_t number, int site) {
  Block *block = machine.block == number ? &machine : nullptr;
  for (Block &other : machine.waiting)
    if (other.block == number)
      block = &other;
  if (!block)
    report("reads shared memory of block " + std::to_string(number) +
           ", which has not begun or has ended");
  auto found = block->shared.find(site);
  if (found == block->shared.end())
    report("reads shared memory that block " + std::to_string(number) +
           " does not have");
  return found->second;
}

} // namespace refold::emulator

namespace refold {

template <int kBlocks> void arrive_at_cluster() {
  using namespace emulator;
  static_assert(kBlocks > 1 && kBlocks <= 8);
  if (machine.blocks % kBlocks != 0)
    report("is in a cluster of " + std::to_string(kBlocks) + " blocks, of " +
           std::to_string(machine.blocks));
  Fiber &own = current();
  if (own.clusterArrivals != own.clusterWaits)
    report("arrives twice at a cluster barrier");
  ++machine.clusters[{machine.block / kBlocks, own.clusterArrivals++}];
  ++machine.progress;
}

template <int kBlocks> void wait_for_cluster() {
  using namespace emulator;
  Fiber &own = current();
  if (own.clusterArrivals == own.clusterWaits)
    report("waits at a cluster barrier that it has not come to");
  const uint32_t all = uint32_t(machine.threads) * kBlocks;
  const uint32_t &arrived =
      machine.clusters[{machine.block / kBlocks, own.clusterWaits}];
  if (arrived != all) {
    own.awaited = &arrived;
    own.wanted = all;
    while (current().awaited && arrived != all)
      yield("a cluster barrier");
    current().awaited = nullptr;
  }
  if (arrived != all)
    report("waits at a cluster barrier that " + std::to_string(all - arrived) +
           " threads never reach");
  ++current().clusterWaits;
}

template <int kBlocks, typename T>
T load_across(const Shared<T> &array, int which, int i) {
  using namespace emulator;
  if (which < 0 || which >= kBlocks)
    report("reads shared memory of block " + std::to_string(which) +
           " of a cluster of " + std::to_string(kBlocks));
  const int64_t number = machine.block / kBlocks * kBlocks + which;
  T value;
  std::memcpy(&value, readShared(sharedOf(number, array.site), i), sizeof(T));
  return value;
}

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_CLUSTERS_H
