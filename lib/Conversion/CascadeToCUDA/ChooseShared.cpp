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

int64_t RowPrinter::sharedTableBytes() {
  int64_t bytes = 0;
  for (auto &[node, read] : kernel.reads)
    if (read.isShared && !isInRegisters(read))
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
  // What has rows before has them all.
  bool isNew = llvm::all_of(result.entries, [&](const CudaEntry &other) {
    return other.width != entry.width || other.shortest > 0 ||
           other.fewestRows > 0 || other.longest < entry.longest;
  });
  if (entry.longest > entry.held() && isNew)
    addEntry(entry);
}

/// Whether tables have room beside chunks of `vectors` of two rows, and which
/// of them registers have: one block a multiprocessor.
bool RowPrinter::placeTables(const KeptRows &rows, const CudaEntry &entry) {
  constexpr int kMost = 8;
  int64_t room = kUnitBytes - kOfBlock -
                 statesBytes(rows, entry.threads, kMost) -
                 (1 + entry.ahead) * rows.bytes * entry.chunk();
  // A thread has 64 words for a chunk of what is folded and for tables.
  int words = 64 / entry.vectors - rows.words;
  inRegisters.clear();
  for (auto &[node, read] : kernel.reads) {
    if (!read.isShared)
      continue;
    int64_t bytes = read.bytes() * entry.chunk();
    int own = int(rows.width * read.bytes() / 4);
    if (bytes <= room) {
      room -= bytes;
    } else if (!read.isFolded && own <= words) {
      words -= own;
      inRegisters.insert(node);
    } else {
      room = words = -1;
    }
  }
  if (room < 0 || words < 0)
    inRegisters.clear();
  return room >= 0 && words >= 0;
}

/// Bytes of tables that a row reads for an element, once for each sweep.
int64_t RowPrinter::tableBytesRead() {
  int64_t bytes = 0;
  for (auto &[node, read] : kernel.reads)
    if (read.isShared)
      bytes += read.bytes() * (read.isFolded ? 2 : 1);
  return bytes;
}

/// What all rows read comes from the second level cache for every row: gamma
/// and beta, or gamma twice, are 4 bytes for 2 of the row, which is what an
/// H200 waits for. Blocks that do many rows read it once: one a multiprocessor,
/// so that there is room, and of a row a chunk, so that states are made once
/// and a thread has one address. Where a table is read once, rows in their
/// order are better (RMSNorm of 32768, TB/s: 4.0 and 3.9), and where results
/// take many instructions (quotients rounded to int8: 2.8 and 2.6).
/// benchmarks/results/cuda-rows.md, "Tables read once", has what was measured.
void RowPrinter::addRings(const KeptRows &rows) {
  if (!mayKeepTables(rows.width) || tableBytesRead() < 2 * rows.bytes ||
      !isLight())
    return;
  CudaEntry entry{"", 512, 1, 8, rows.width, true};
  entry.place = CudaEntry::Ring;
  entry.ahead = 1;
  entry.blocksPerUnit = 1;
  while (!placeTables(rows, entry))
    if ((entry.vectors /= 2) < 4)
      return;
  entry.tableBytes = sharedTableBytes();
  entry.keptBytes = rows.bytes + entry.tableBytes;
  const int most = entry.vectors, fewer = most * 3 / 4;
  const int64_t piece = entry.chunk() / most;
  // f32 by one block, TB/s: 3.8, and 4.0 in the order of rows.
  for (entry.blocks = rows.width < 8 ? 2 : 1; entry.blocks <= 8;
       entry.blocks *= 2) {
    // Entries in the order of rows are better than vectors that are not there
    // (LayerNorm of 49152: 3.8 TB/s and 3.2) while they have room.
    bool areTight = entry.blocks <= 2;
    for (int vectors : {fewer, most}) {
      if (areTight && vectors == fewer && !foldsTables())
        continue;
      entry.vectors = vectors;
      entry.longest = entry.chunk() * entry.blocks;
      int there = vectors == most && !foldsTables() ? fewer : vectors - 1;
      entry.shortest =
          1 + (areTight ? entry.longest - piece : piece * there * entry.blocks);
      // Later blocks begin when those before are done, which evens out what
      // these differ by (RMSNorm to f8 of 32768: 4.05 TB/s, by as many blocks
      // as run at once 3.86). Four take longer to begin than that gives.
      entry.isLoop = !areTight;
      entry.turnRows = entry.blocks == 1 ? 8 : areTight ? 32 : 0;
      addEntry(entry);
    }
  }
}

/// A warp a row: short chunks, of which few are not whole, and no barrier.
/// `most`: bytes of a row; `least`: elements.
void RowPrinter::addWarps(int threads, int vectors, int64_t most,
                          int64_t least) {
  CudaEntry entry{"", threads, 1, vectors, int(16 / keptBytes()), true};
  entry.place = CudaEntry::Shared;
  entry.keptBytes = keptBytes();
  entry.longest = most / entry.keptBytes / entry.chunk() * entry.chunk();
  entry.shortest = least;
  entry.fewestRows = 1024; // eight or so a multiprocessor
  addEntry(entry);
}

/// What has no room in a multiprocessor, and what is long, several blocks have
/// together, three of them a multiprocessor or two: nothing else would run
/// while a row is folded. Softmax of bf16 on an H100, TB/s: rows of 256
/// KB 2.95, by one block 2.80 (benchmarks/results/cuda-rows.md, "Clusters that
/// send").
void RowPrinter::addLong(const KeptRows &rows) {
  // A thread has 40 registers, or 64 where elements and states ask for them.
  bool areThree = rows.words <= 8 && plan.states.size() <= 4 && !needsPlaces();
  bool areBetter = mayHaveClusters() && areThree;
  bool areBeside = readsTables() && !foldsTables();
  if (areBetter && areBeside)
    addShared(rows, CudaEntry::Shared, 512, 3, 3, 20, 2);
  // Registers of a longer row: fewer threads have more of them (RMSNorm to 8
  // bits on an H200, TB/s: rows of 128 KB 3.0 and 2.6, of 256 KB 2.7 and 2.5).
  if (foldsTables() && rows.words <= 8)
    addShared(rows, CudaEntry::Split, 512, 1, 1, 40, 1);
  else if (foldsTables() && !mayHaveClusters()) // 64 registers spill on sm_80
    addShared(rows, CudaEntry::Split, 512, 1, 1, 20, 1);
  else if (!areBetter && !foldsTables())
    addShared(rows, CudaEntry::Split, 1024, 1, 1, 20, 1);
  // Tables that are folded beside more words go to several blocks at once: one
  // spills 44 to 124 bytes (gradients of LayerNorm with what is summed over
  // rows, ms on an H200: 1024 rows of 32768 f32 0.69 and 0.40, bf16 0.46 and
  // 0.38, 2048 of 16384 f32 0.69 and 0.62).
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
  bool isSimple = words <= 8 && plan.states.size() <= 4;
  if (mayHaveClusters() && isSimple && readsTables())
    addRings(rows);
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
