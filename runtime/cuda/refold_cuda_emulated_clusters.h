// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// refold_cuda_clusters.h for the host. Blocks run one after the other; one that
// has come to a barrier of its cluster waits there for the others. Whether an
// access to another block's shared memory comes after what it needs is told by
// these barriers alone.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_CLUSTERS_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_CLUSTERS_H

#define REFOLD_CLUSTER_KERNEL(threads, blocks, count) REFOLD_ENTRY
#define REFOLD_MAILBOX(name) [[maybe_unused]] const refold::Mailbox name

namespace refold::emulator {

/// A block that runs or waits.
inline Block &blockOf(int64_t number) {
  if (machine.block == number)
    return machine;
  for (Block &other : machine.waiting)
    if (other.block == number)
      return other;
  report("asks for shared memory of block " + std::to_string(number) +
         ", which has not begun or has ended");
}

/// What block `number` has under a name.
inline SharedMemory &sharedOf(int64_t number, int site) {
  Block &block = blockOf(number);
  auto found = block.shared.find(site);
  if (found == block.shared.end())
    report("reads shared memory that block " + std::to_string(number) +
           " does not have");
  return found->second;
}

/// Puts a letter to its place, if the block has one by now.
inline bool deliver(Block &block, const Letter &letter) {
  auto found = block.shared.find(letter.site);
  if (found == block.shared.end())
    return false;
  SharedMemory &memory = found->second;
  SharedElement &element = sharedElement(memory, letter.place);
  element.write = Access();
  element.write.thread = 0;
  element.reads.clear();
  std::memcpy(memory.bytes.data() + letter.place * memory.elementBytes,
              letter.value.data(), letter.value.size());
  return true;
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

struct Mailbox {};

template <int kBlocks> void open_mailbox(const Mailbox &) {
  arrive_at_cluster<kBlocks>();
}

/// A letter arrives at once or when it is waited for.
template <int kBlocks, typename T>
void send_across(const Mailbox &, int exchange, const Shared<T> &array,
                 int which, int i, T value) {
  using namespace emulator;
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  if (current().clusterWaits == 0)
    report("sends to a mailbox that may not be open");
  if (which < 0 || which >= kBlocks)
    report("sends to block " + std::to_string(which) + " of a cluster of " +
           std::to_string(kBlocks));
  const int64_t number = machine.block / kBlocks * kBlocks + which;
  Block &block = blockOf(number);
  Letters &letters = machine.letters[{number, uint32_t(exchange)}];
  Letter letter{array.site, i,
                std::string(reinterpret_cast<const char *>(&value), sizeof(T))};
  if (drawRandom() % 2 || !deliver(block, letter))
    letters.underWay.push_back(letter);
  letters.bytes += sizeof(T);
  ++machine.progress;
}

template <int kBlocks>
void receive_across(const Mailbox &, int exchange, int bytes) {
  using namespace emulator;
  Fiber &own = current();
  if (uint32_t(exchange) != own.exchanges)
    report("receives exchange " + std::to_string(exchange) + ", expected " +
           std::to_string(own.exchanges));
  if (own.exchanges > 0 && own.exchangeEpoch == own.blockEpoch)
    report("receives twice without a barrier of the block");
  Letters &letters = machine.letters[{machine.block, uint32_t(exchange)}];
  if (letters.bytes != uint32_t(bytes)) {
    own.awaited = &letters.bytes;
    own.wanted = uint32_t(bytes);
    while (current().awaited && letters.bytes != uint32_t(bytes))
      yield("what other blocks send");
    current().awaited = nullptr;
  }
  if (letters.bytes != uint32_t(bytes))
    report("waits for " + std::to_string(bytes) +
           " bytes of other blocks, of "
           "which " +
           std::to_string(letters.bytes) + " come");
  for (const Letter &letter : letters.underWay)
    if (!deliver(machine, letter))
      report("is sent what it has no place for");
  letters.underWay.clear();
  ++current().exchanges;
  current().exchangeEpoch = current().blockEpoch;
}

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_CLUSTERS_H
