// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Generated kernels as programs of tile ops that are read from their text: rows
// that wait in shared memory, blocks that have rows together, tiles by warps.
#include "../../Conversion/ReadKernels.h"
#include "WeightedRows.h"

#include "mlir/Parser/Parser.h"
#include "refold/Conversion/CascadeToCUDA.h"

using namespace refold;
using namespace refold::test;

namespace {

/// What printers call the function of a kernel.
const std::string ofRows("kernel"), ofTiles("kernel");
std::string textOf(const std::string &program, const char *target) {
  auto context = makeContext();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(program, context.get());
  CudaOptions options;
  options.target = target;
  auto kernel = printCascadeAsCuda(
      *module->getOps<mlir::func::FuncOp>().begin(), options);
  EXPECT_TRUE(mlir::succeeded(kernel));
  return mlir::succeeded(kernel) ? kernel->text : std::string();
}

// x / sum(x) * w + b of 16 bits, in 32 bits.
constexpr const char *kScaled = R"(
func.func @kernel(%x: memref<?x?xbf16>, %w: memref<?xbf16>, %b: memref<?xbf16>, %y: memref<?x?xf32>) {
  refold.cascade rows(%m = ?) stream(%n = ?)
    ins(%xs = %x : memref<?x?xbf16>, %ws = %w : memref<?xbf16>, %bs = %b : memref<?xbf16>)
    outs(%ys = %y : memref<?x?xf32>)
    sizes(%m = %ys[0], %n = %ys[1]) {
    %v = refold.read %xs[%m, %n] : bf16
    %vf = arith.extf %v : bf16 to f32
    %g = refold.read %ws[%n] : bf16
    %gf = arith.extf %g : bf16 to f32
    %h = refold.read %bs[%n] : bf16
    %hf = arith.extf %h : bf16 to f32
    %z = refold.state add(%vf : f32)
    %s = arith.divf %vf, %z : f32
    %t = arith.mulf %s, %gf : f32
    %u = arith.addf %t, %hf : f32
    refold.write %u, %ys[%m, %n] : f32
  }
  return
})";
std::string rowsText() { return textOf(kScaled, "cuda-sm90"); }
std::string tilesText() { return textOf(weightedText(64, 64), "cuda-sm80"); }

std::vector<SameWithout> sameTwice() {
  return {{"copy_kept(", "the same bytes, in the same group"},
          {"copy_tile(", "the same bytes, in the same group"},
          {"gather_tile(", "the same bytes, in the same group"},
          {"wait_copies(", "nothing is under way any more"},
          {"commit_copies(", "a group of no copies: who waits for all but some "
                             "of the last ones waits for more"},
          {"block_barrier(", "threads that have met meet again"},
          {"fence_blocks(", "what was seen is told already"},
          {"receive_across: wait", "the phase is over already"},
          {"open_mailbox: gate", "nobody has arrived at it yet"}};
}

/// Rows of `blocks` blocks each that wait in shared memory, two warps a block.
ReadKernel rows(const char *name, const char *place, int blocks, int ahead) {
  constexpr int kThreads = 64, kVectors = 2, kWidth = 8;
  constexpr int64_t kChunk = kThreads * kVectors * kWidth, kBytes = kChunk * 2;
  ReadKernel kernel;
  kernel.name = name;
  kernel.threads = kThreads;
  tile::Reading &reading = kernel.reading;
  reading.texts = {readHeader("refold_cuda_tiles.h"), rowsText()};
  reading.function = ofRows + "<" + std::to_string(kThreads) + ", 1, " +
                     std::to_string(kVectors) + ", " + std::to_string(kWidth) +
                     ", " + place + ", " + std::to_string(blocks) + ", " +
                     std::to_string(ahead) + ">";
  reading.numbers = {{"Nowhere", 0}, {"InRegisters", 1}, {"InShared", 2},
                     {"Split", 3},   {"InRing", 4},      {"InParts", 5},
                     {"InLanes", 6}};
  bool isRing = std::string(place) == "InRing";
  if (isRing)
    reading.tiles.push_back(tilesAt("tables", 0, 1, kBytes));
  reading.tiles.push_back(
      tilesAt("rows", isRing ? kBytes : 0, isRing ? ahead + 1 : 4, kBytes));
  for (tile::Tiles &tiles : reading.tiles) {
    tiles.isOwn = true;
    tiles.isMet = false;
  }
  // One row, one for each place, many; whole chunks and ragged ones.
  for (int64_t count : {1, 2, 3, 9})
    for (int64_t length : {int64_t(40), kChunk, 2 * kChunk - 8}) {
      // Blocks of a ring have a chunk each.
      if (isRing && length > blocks * kChunk)
        continue;
      kernel.launches.push_back({{{"m_count", count},
                                  {"n_count", length},
                                  {"by_2.is_plain", count % 2}},
                                 0,
                                 blocks,
                                 blocks});
    }
  kernel.repeated = sameTwice();
  kernel.removed = {{isRing       ? "copy_kept(at_8"
                     : blocks > 1 ? "copy_kept(at_8"
                                  : "copy_kept(at_7",
                     "a row that is there instead of a later "
                     "one: the emulator finds it"}};
  if (isRing)
    kernel.removed.push_back({"commit_copies() #0",
                              "what all rows read is then of the first row's "
                              "group, which is waited for as well"});
  return kernel;
}

/// Tiles of 64 rows by four warps, two of the stream at a time.
ReadKernel tiles(int vector, bool isKept) {
  constexpr int64_t kTile = 64 * 64 * 2;
  ReadKernel kernel;
  kernel.name = std::string("tiles") + (vector > 1 ? "" : "_single") +
                (isKept ? "" : "_wide");
  kernel.threads = 128;
  tile::Reading &reading = kernel.reading;
  reading.texts = {readHeader("refold_cuda_tiles.h"), tilesText()};
  reading.function = ofTiles + "<4, 1, 64, 64, 64, " + std::to_string(vector) +
                     ", " + (isKept ? "true" : "false") + ", 40960>";
  reading.tiles = {tilesAt("left_tile", 0, 1, kTile),
                   tilesAt("right_tiles", kTile, 2, kTile),
                   tilesAt("value_tiles", 3 * kTile, 2, kTile)};
  for (int64_t count : {0, 1, 2, 5})
    kernel.launches.push_back({{{"m_count", 64},
                                {"n_count", 64 * count},
                                {"d_count", 64},
                                {"e2_count", 64},
                                {"h_count", 1},
                                {"begin", 0},
                                {"end", count},
                                {"whole_begin", 0},
                                {"whole_end", count / 2}}});
  kernel.repeated = sameTwice();
  kernel.repeated.push_back({"bring(", "the same bytes, in the same group"});
  kernel.removed = {
      {"bring(", "one of the parts of a tile: the emulator finds it"},
      {"commit_copies() #1",
       "of the left side, which is in the group of the first tile as well"}};
  if (isKept)
    kernel.removed.push_back({"commit_copies() #0",
                              "fragments that stay in registers are waited "
                              "for in a group of their own"});
  if (vector == 1)
    for (const char *one : {"wait_copies(", "commit_copies("})
      kernel.removed.push_back({one, "elements are stored, and not copied"});
  return kernel;
}

/// A part of the stream a block, a part of each tile a warp; the last block to
/// come merges them.
ReadKernel tilesInParts(int vector) {
  constexpr int64_t kTile = 64 * 64 * 2, kLeft = 16 * 64 * 2;
  ReadKernel kernel;
  kernel.name = std::string("tiles_in_parts") + (vector > 1 ? "" : "_single");
  kernel.threads = 128;
  tile::Reading &reading = kernel.reading;
  reading.texts = {readHeader("refold_cuda_tiles.h"),
                   readHeader("refold_cuda_parts.h"), tilesText()};
  reading.function = ofTiles + "_in_parts<4, 64, 64, " +
                     std::to_string(vector) + ", true, 67584>";
  reading.tiles = {tilesAt("left_tile", 0, 1, kLeft),
                   tilesAt("right_tiles", kLeft, 4, kTile),
                   tilesAt("value_tiles", kLeft + 4 * kTile, 4, kTile)};
  reading.loads = {{"shared_last", "block() == last_block"}};
  tile::Tiles parts;
  parts.name = "parts";
  parts.count = "2";
  parts.isGlobal = true;
  reading.tiles.push_back(parts);
  for (int64_t blocks : {1, 2})
    for (int64_t count : {0, 1, 3, 9})
      kernel.launches.push_back({{{"m_count", 4},
                                  {"n_count", 64 * count},
                                  {"d_count", 64},
                                  {"e2_count", 64},
                                  {"h_count", 1},
                                  {"b_count", 1},
                                  {"begin", 0},
                                  {"end", count},
                                  {"whole_begin", 0},
                                  {"whole_end", count / 2},
                                  {"parts", blocks},
                                  {"last_block", count % 2 ? blocks - 1 : 0}},
                                 0,
                                 int(blocks),
                                 int(blocks)});
  kernel.repeated = sameTwice();
  kernel.removed = {{"wait_copies(, 0)",
                     "each tile has waited for its own group, and those "
                     "behind the last one are empty"}};
  if (vector == 1)
    for (const char *one : {"wait_copies(", "commit_copies("})
      kernel.removed.push_back({one, "elements are stored, and not copied"});
  return kernel;
}

std::vector<ReadKernel> kernels() {
  return {rows("ring", "InRing", 1, 2),
          rows("ring_cluster", "InRing", 2, 1),
          rows("shared", "InShared", 1, 0),
          rows("shared_cluster", "InShared", 2, 0),
          tiles(8, true),
          tiles(8, false),
          tiles(1, true),
          tilesInParts(8),
          tilesInParts(1)};
}

class ReadPrograms : public testing::TestWithParam<ReadKernel> {};

TEST_P(ReadPrograms, IsVerified) { expectVerified(GetParam()); }
TEST_P(ReadPrograms, EveryRemovalIsRejected) {
  expectRemovalsRejected(GetParam());
}
TEST_P(ReadPrograms, EveryRepetitionIsRejected) {
  expectRepetitionsRejected(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Kernels, ReadPrograms, testing::ValuesIn(kernels()),
                         [](const auto &info) { return info.param.name; });

} // namespace
