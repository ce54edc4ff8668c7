// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which entries keep rows in shared memory.
#include "RowPrinter.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

// What a multiprocessor has, beside what every block takes for itself.
static constexpr int64_t kUnitBytes = 228 << 10, kOfBlock = 1 << 10;
static constexpr int kUnitRegisters = 65536;

/// Bytes of an element of what all rows read.
int64_t RowPrinter::tableBytes() {
  int64_t bytes = 0;
  for (auto &[node, read] : kernel.reads)
    if (read.isShared)
      bytes += bytesOf(node->type);
  return bytes;
}

/// Whether that can wait in shared memory: by copies of 16 bytes.
bool RowPrinter::mayKeepTables(int width) {
  return readsTables() && llvm::all_of(kernel.reads, [&](auto &read) {
           return !read.second.isShared ||
                  (read.second.group.size == 1 &&
                   width * read.second.bytes() % 16 == 0);
         });
}

/// Bytes of states in static shared memory: of each warp, and of each block of
/// a cluster, twice.
static int64_t statesBytes(const KeptRows &rows, int threads, int together) {
  return rows.perWarp * ((threads + 31) / 32 + (together > 1 ? together : 0)) +
         (together > 1 ? 16 : 0);
}

/// `percent` of the registers of a thread are for what it reads.
static int vectorsOf(const KeptRows &rows, int threads, int blocks,
                     int percent) {
  int vectors =
      percent * kUnitRegisters / 100 / (threads * blocks) / rows.words;
  return int(llvm::bit_floor(unsigned(std::clamp(vectors, 1, 4))));
}

/// `blocks` a multiprocessor, of which a block may have one of `parts`.
void RowPrinter::addShared(const KeptRows &rows, CudaEntry::Place place,
                           int threads, int blocks, int parts, int percent,
                           int together) {
  CudaEntry entry{"",         threads,
                  1,          vectorsOf(rows, threads, blocks, percent),
                  rows.width, true};
  entry.place = place;
  entry.keptBytes = rows.bytes;
  entry.blocksPerUnit = blocks;
  entry.isLoop = blocks == 1 && together == 1;
  entry.blocks = together;
  int64_t room =
      kUnitBytes / parts - kOfBlock - statesBytes(rows, threads, together);
  entry.longest =
      room / (rows.bytes * entry.chunk()) * entry.chunk() * together +
      entry.held();
  if (entry.longest > entry.held())
    addEntry(entry);
}

/// Where states need what all rows read, that is read twice a row: from shared
/// memory, once for many rows. Several blocks a multiprocessor, each of another
/// cluster, so that others go on while one waits for the rest of its own.
/// RMSNorm to 8 bits on an H100, shares of the copy: rows of 256 KB 0.95 so,
/// 0.73 as `Split`, 0.88 by clusters that read the table. Where registers have
/// room for one vector only it is slower than `Split` (LayerNorm to 8 bits).
void RowPrinter::addRings(const KeptRows &rows) {
  if (!mayKeepTables(rows.width))
    return;
  constexpr int kThreads = 256, kBlocks = 3;
  for (int together : {4, 8}) {
    CudaEntry entry{"",         kThreads,
                    1,          vectorsOf(rows, kThreads, kBlocks, 20),
                    rows.width, true};
    entry.place = CudaEntry::Ring;
    entry.tableBytes = tableBytes();
    entry.keptBytes = rows.bytes + entry.tableBytes;
    entry.ahead = 1;
    entry.blocksPerUnit = kBlocks;
    entry.isLoop = true;
    entry.blocks = together;
    int64_t room = kUnitBytes / kBlocks - kOfBlock - entry.aheadBytes() -
                   statesBytes(rows, kThreads, together);
    entry.longest =
        room / (entry.keptBytes * entry.chunk()) * entry.chunk() * together;
    if (entry.longest > 0)
      addEntry(entry);
  }
}

/// What has no room in a multiprocessor, and what is long, several blocks have
/// together, three of them a multiprocessor or two: nothing else would run
/// while a row is folded. Softmax of bf16 on an H100, TB/s: rows of 256
/// KB 2.95, by one block 2.80 (benchmarks/results/cuda-rows.md, "Clusters that
/// send").
void RowPrinter::addLong(const KeptRows &rows) {
  // A thread has 40 registers, or 64 where elements and states ask for them.
  bool areThree = rows.words <= 8 && plan.states.size() <= 4;
  bool areBetter = mayHaveClusters() && areThree;
  bool areBeside = readsTables() && !foldsTables();
  if (areBetter && foldsTables())
    addRings(rows);
  if (areBetter && areBeside)
    addShared(rows, CudaEntry::Shared, 512, 3, 3, 20, 2);
  // Registers of a longer row: fewer threads have more of them (RMSNorm to 8
  // bits on an H200, TB/s: rows of 128 KB 3.0 and 2.6, of 256 KB 2.7 and 2.5).
  if (foldsTables() && rows.words <= 8)
    addShared(rows, CudaEntry::Split, 512, 1, 1, 40, 1);
  else if (foldsTables() && !mayHaveClusters()) // 64 registers spill on sm_80
    addShared(rows, CudaEntry::Split, 512, 1, 1, 20, 1);
  else if (!areBetter || foldsTables())
    addShared(rows, CudaEntry::Split, 1024, 1, 1, 20, 1);
  if (!mayHaveClusters())
    return;
  // Beside tables half of a multiprocessor's rows is where several do better.
  if (areBeside && result.entries.back().place == CudaEntry::Split)
    result.entries.back().longest = std::min(result.entries.back().longest,
                                             (kUnitBytes * 2 / 3) / rows.bytes);
  for (int together : {4, 8})
    addShared(rows, CudaEntry::Shared, 512, areThree ? 3 : 2, 2, 20, together);
  if (!readsTables())
    addShared(rows, CudaEntry::Shared, 1024, 1, 1, 20, 8);
}

/// Rows with results along them that registers do not hold wait in shared
/// memory, where copies bring them: several blocks a multiprocessor, in order,
/// as long as two fit, so that one reads while another writes. A longer one
/// fills a multiprocessor that does many rows: what is written makes room for
/// the next. `words`: registers of a vector of all that is folded.
void RowPrinter::chooseShared(int width, int words) {
  KeptRows rows{width, words, keptBytes()};
  for (StatePlan &s : plan.states)
    rows.perWarp +=
        2 * (s.op.isOrdered() ? listBytes(s)
                              : std::max<int64_t>(4, bytesOf(s.type())));
  auto add = [&](CudaEntry::Place place, int threads, int blocks, int parts,
                 int percent = 20) {
    addShared(rows, place, threads, blocks, parts, percent, 1);
  };
  // Arrays of all rows come from the caches: more, smaller blocks wait better,
  // up to a quarter of a multiprocessor (LayerNorm on an H200, TB/s: rows of
  // 32 KB 3.7 with 256 threads and 3.1 with 512, of 64 KB 2.8 and 3.7).
  if (!readsTables())
    add(CudaEntry::Shared, 128, 6, 12);
  add(CudaEntry::Shared, 256, 3, readsTables() && !foldsTables() ? 4 : 6);
  // Beside tables chunks of four vectors, so that what a chunk costs beside its
  // elements is little.
  if (foldsTables() && words <= 8)
    add(CudaEntry::Shared, 256, 2, 2, 25);
  else
    add(CudaEntry::Shared, 512, 2, 2, readsTables() ? 25 : 20);
  addLong(rows);
  auto any = [&](auto is) { return llvm::any_of(result.entries, is); };
  hasClusters = any([](const CudaEntry &e) { return e.blocks > 1; });
  hasShared = any([](const CudaEntry &e) { return e.keptBytes > 0; });
  hasRings = any([](const CudaEntry &e) { return e.ahead > 0; });
}
