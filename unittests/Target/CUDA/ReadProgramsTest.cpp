// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Generated kernels as programs of tile ops that are read from their text: rows
// that wait in shared memory, blocks that have rows together, tiles by warps.
#include "PrintedText.h"

using namespace refold;
using namespace refold::test;

namespace {

/// What printers call the function of a kernel.
const std::string ofRows("kernel"), ofTiles("kernel");

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
std::string rowsText() { return printedText(kScaled, "cuda-sm90"); }
std::string tilesText() {
  return printedText(weightedText(64, 64), "cuda-sm80");
}

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
  reading.tiles.push_back(partsOf(2));
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

/// The program in f32.
std::string wordsText() {
  std::string text = weightedText(64, 64), of = " : bf16 to f32";
  auto replace = [&](const std::string &from, const std::string &to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
         at += to.size())
      text.replace(at, from.size(), to);
  };
  for (const char *one : {"q", "k", "v"}) {
    std::string name = std::string("%") + one;
    replace("    " + name + "f = arith.extf " + name + "v" + of + "\n", "");
    replace(name + "v =", name + "f =");
  }
  replace("    %yt = arith.truncf %y : f32 to bf16\n", "");
  replace("%yt", "%y");
  replace("bf16", "f32");
  return text;
}

void setTiles(Launch &launch, int64_t rows, int64_t columns, int64_t count) {
  launch.numbers.insert({{"m_count", rows},
                         {"n_count", columns * count},
                         {"d_count", 64},
                         {"begin", 0},
                         {"end", count},
                         {"whole_begin", 0},
                         {"whole_end", count / 2}});
}

/// Tiles of f32: 128 rows by four warps, factors that lanes hand over, one
/// place for what the stream brings.
ReadKernel words(int vector) {
  constexpr int64_t kLeft = 128 * 64 * 4, kFactors = 32 * 32 * 4;
  constexpr int64_t kTile = 32 * 64 * 4;
  ReadKernel kernel;
  kernel.name = std::string("words") + (vector > 1 ? "" : "_single");
  kernel.threads = 128;
  tile::Reading &reading = kernel.reading;
  reading.texts = {readHeader("refold_cuda_tiles.h"),
                   readHeader("refold_cuda_tiles_words.h"),
                   printedText(wordsText(), "cuda-sm80")};
  reading.function = ofTiles + "<4, 2, 32, 64, 64, " + std::to_string(vector) +
                     ", false, 65536>";
  int64_t right = kLeft + 4 * kFactors;
  reading.tiles = {tilesAt("left_tile", 0, 1, kLeft),
                   tilesAt("factors", kLeft, 4, kFactors),
                   tilesAt("right_tile", right, 1, kTile),
                   tilesAt("value_tile", right + kTile, 1, kTile)};
  for (int64_t count : {3, 0, 1}) {
    kernel.launches.emplace_back();
    setTiles(kernel.launches.back(), 128, 32, count);
  }
  kernel.repeated = sameTwice();
  if (vector > 1)
    kernel.removed = {{"copy_tile(#) 3", "a tile that is there instead of a "
                                         "later one: the emulator finds it"}};
  else
    for (const char *one : {"wait_copies(", "commit_copies("})
      kernel.removed.push_back({one, "elements are stored, and not copied"});
  return kernel;
}

/// A part of the stream a block, of which warps have columns each; results are
/// wider than what is multiplied, so that warps write over what others read.
ReadKernel wordsInParts() {
  constexpr int64_t kLeft = 16 * 64 * 4, kFactors = 16 * 16 * 4;
  constexpr int64_t kRight = 64 * 64 * 4, kValues = 2 * kRight;
  ReadKernel kernel;
  kernel.name = "words_in_parts";
  kernel.threads = 128;
  tile::Reading &reading = kernel.reading;
  reading.texts = {readHeader("refold_cuda_tiles.h"),
                   readHeader("refold_cuda_tiles_words.h"),
                   readHeader("refold_cuda_parts.h"),
                   printedText(wordsText(), "cuda-sm80")};
  int64_t right = kLeft + 4 * kFactors, values = right + 4 * kRight;
  reading.function = ofTiles + "_in_parts<4, 64, 128, 4, false, " +
                     std::to_string(values + 4 * kValues) + ">";
  reading.loads = {{"shared_last", "block() == last_block"}};
  reading.tiles = {tilesAt("left_tile", 0, 1, kLeft),
                   tilesAt("factors", kLeft, 4, kFactors),
                   tilesAt("right_tiles", right, 4, kRight),
                   tilesAt("value_tiles", values, 4, kValues), partsOf(2)};
  for (auto [blocks, count] :
       {std::pair<int64_t, int64_t>(1, 6), {2, 3}, {2, 0}, {1, 1}}) {
    kernel.launches.push_back(
        {{{"parts", blocks}, {"last_block", count ? blocks - 1 : 0}},
         0,
         int(blocks),
         int(blocks)});
    setTiles(kernel.launches.back(), 4, 64, count);
  }
  kernel.repeated = sameTwice();
  kernel.repeated.push_back(
      {"warp_barrier(", "lanes that have met meet again"});
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
          tilesInParts(1),
          words(4),
          words(1),
          wordsInParts()};
}

INSTANTIATE_TEST_SUITE_P(Programs, ReadKernelTest, testing::ValuesIn(kernels()),
                         nameOfKernel);

} // namespace
