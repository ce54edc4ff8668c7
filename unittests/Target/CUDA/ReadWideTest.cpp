// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels whose results are wide as programs of tile ops that are read from
// their text: four warps with states of rows, eight with sums, blocks that
// share the stream.
#include "PrintedText.h"

using namespace refold;
using namespace refold::test;

namespace {

// What `weightedText` has, of several matrices: queries `q[b,m,d]` of rows that
// all read the stream of `k[b,n,d]`, of which each has `l[b]`; or of the matrix
// `l[b]`.
std::string matricesText(bool isTabled) {
  std::string text = R"(
func.func @kernel(%q: memref<?x?x320xbf16>, %k: memref<?x?x320xbf16>, %l: memref<?xi64>, %o: memref<?x?x104xbf16>) {
  refold.cascade rows(%b = ?, %m = ?) stream(%n = ?) inner(%d = 320) carried(%w = 104)
    ins(%qs = %q : memref<?x?x320xbf16>, %ks = %k : memref<?x?x320xbf16>, %ls = %l : memref<?xi64>)
    outs(%r = %o : memref<?x?x104xbf16>)
    sizes(%b = %r[0], %m = %r[1], %n = %ks[1]) {
    %ninf = arith.constant 0xFF800000 : f32
    %lowest = arith.constant -3.40282347E+38 : f32
    %lv = refold.read %ls[%b] : i64
    %li = arith.index_cast %lv : i64 to index
    %qv = refold.read %qs[%b, %m, %d] : bf16
    %qf = arith.extf %qv : bf16 to f32
    %kv = refold.read %ks[MATRIX, %n, %d] : bf16
    %kf = arith.extf %kv : bf16 to f32
    %qk = arith.mulf %qf, %kf : f32
    %s0 = refold.contract %qk over(%d) : f32
    MASK
    %max = refold.state max(%s : f32)
    %g = arith.maxnumf %max, %lowest : f32
    %u = arith.subf %s, %g : f32
    %p = math.exp %u : f32
    %vv = refold.read %ks[MATRIX, %n, %w] : bf16
    %vf = arith.extf %vv : bf16 to f32
    %pv = arith.mulf %p, %vf : f32
    %acc = refold.state add(%pv : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %x = arith.subf %old, %new : f32
      %f = math.exp %x : f32
      %t = arith.mulf %self, %f : f32
      refold.yield %t : f32
    } law "rescale-distributes"
    %z = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %x = arith.subf %old, %new : f32
      %f = math.exp %x : f32
      %t = arith.mulf %self, %f : f32
      refold.yield %t : f32
    } law "rescale-distributes"
    %y = arith.divf %acc, %z : f32
    %yt = arith.truncf %y : f32 to bf16
    refold.write %yt, %r[%b, %m, %w] : bf16
  }
  return
})";
  auto replace = [&](const std::string &from, const std::string &to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
         at += to.size())
      text.replace(at, from.size(), to);
  };
  replace("MATRIX", isTabled ? "%li" : "%b");
  replace("MASK", isTabled ? "%s = arith.mulf %s0, %s0 : f32"
                           : "%seen = arith.cmpi slt, %n, %li : index\n"
                             "%s = arith.select %seen, %s0, %ninf : f32");
  return text;
}

/// "name<...>" as it is called in the text.
std::string calledIn(const std::string &text, const std::string &name) {
  size_t at = text.find(" " + name + "<");
  EXPECT_NE(at, std::string::npos) << name;
  return text.substr(at + 1, text.find('>', at) - at);
}

/// The numbers of a template, as they are written.
std::vector<int64_t> numbersOf(const std::string &called) {
  std::vector<int64_t> numbers;
  for (size_t at = called.find('<'); called[at] != '>';
       at = called.find_first_of(",>", at + 1))
    numbers.push_back(std::stoll(called.substr(at + 1)));
  return numbers;
}

/// Slices of rows that blocks merge: which block comes when, and which one
/// waits in vain for the others (-1: none) and leaves its slice to the last to
/// come.
void addSlices(tile::Reading &reading) {
  const std::string order = "(backwards ? parts - 1 - part : part)",
                    goneOrder = "(backwards ? parts - 1 - gone : gone)";
  reading.answers["add_to_ticket(ticket,1)"] =
      order + " + (thread() == gone && " + order + " > " + goneOrder +
      " ? 65536 : 0)";
  reading.answers["wait_for_bits(ticket"] = "part == gone ? 0 : all";
  reading.answers["add_to_ticket(ticket,kIsGone)"] = order + " + 1";
  reading.loads["shared_slices"] =
      "(part < slices && part != gone ? 1 << part : 0) + (gone >= 0 && " +
      order + " == parts - 1 ? 1 << gone : 0)";
}

/// Where maps are made, which is not shared memory.
constexpr int64_t kMaps = int64_t(1) << 30;

/// How blocks are shared, which data say.
void addShares(tile::Reading &reading) {
  reading.answers["load_element("] = "n_count";
  reading.answers["count<=Costs::kAtOnce&&"] = "0";
  reading.answers["parts<=Costs::kAtOnce"] = "1";
  reading.answers["level_of(cut)!=level"] = "0";
  reading.answers["before<=own"] = "lane == 0";
  reading.answers["level<0"] = "level_is_none";
  reading.loads["shared_share[0]"] = "level_is_none ? 0 : parts";
  reading.loads["shared_share[1]"] = "0";
  reading.loads["shared_share[2]"] = "block()";
}

/// `numbers`: of the kernel's template.
void addLaunches(ReadKernel &kernel, const std::vector<int64_t> &numbers,
                 bool hasShares) {
  int64_t stages = numbers[0];
  auto launch = [&](int64_t tiles, int blocks, int64_t gone, bool isBackwards,
                    int64_t slices = 32) -> Launch {
    return {{{"kSlices", slices}, // at most
             {"left_came", numbers[5]},
             {"workspace", kMaps},
             {"level_is_none", 0},
             {"tickets", 0},
             {"gone", gone},
             {"backwards", isBackwards},
             {"parts", blocks},
             {"m_count", 60},
             {"h_count", 1},
             {"b_count", 1},
             {"n_count", 64 * tiles},
             {"n_begin", 0}, // as data or rows say
             {"n_end", 64 * tiles}},
            0,
            blocks,
            blocks};
  };
  // Of one tile and three blocks the last has less than none, and no slice of
  // its own: it takes that which another one has left.
  for (auto [tiles, blocks, gone, isBackwards, slices] :
       {std::tuple(3 * stages + 2, 1, -1, false, 32),
        {2 * stages + 3, 2, 0, false, 32},
        {int64_t(1), 3, 0, false, 32},
        {int64_t(3), 2, -1, false, 2},
        {int64_t(3), 2, 1, true, 2},
        {int64_t(0), 1, -1, false, 32}})
    kernel.launches.push_back(launch(tiles, blocks, gone, isBackwards, slices));
  kernel.mostSwept = kernel.launches.size();
  kernel.mostRepeated = 3;
  for (int64_t tiles : {int64_t(1), int64_t(2), stages, stages + 1})
    kernel.launches.push_back(launch(tiles, 1, -1, false));
  kernel.launches.push_back(launch(2 * stages + 3, 2, -1, true));
  kernel.launches.push_back(launch(3, 3, 0, false));
  // Streams of two lengths: the block has some part of one, or nothing is left
  // for it.
  for (int64_t isNone : {0, 1})
    if (hasShares) {
      Launch shared = launch(3, 1, -1, false);
      shared.numbers["level_is_none"] = isNone;
      shared.numbers["b_count"] = 2;
      kernel.launches.insert(kernel.launches.begin(), shared);
      ++kernel.mostSwept, ++kernel.mostRepeated;
    }
}

/// Why it is the same without.
/// `isLonger`: the text has more loops over tiles than one.
void listRemoved(ReadKernel &kernel, bool hasMaps, bool isLonger) {
  kernel.removed = {
      {"multiply_", "not of the order: the emulator finds it"},
      {"take_async(", "what is there instead: the emulator finds it"},
      {"begin_products() #1", "no register is written between"},
      {"commit_products() #0",
       "what waits for all but the last steps waits for nothing then; sums of "
       "the tile before begin a little sooner"},
      {"wait_products(, 1)",
       "the same: factors were handed over when the tile before was done"},
      {isLonger ? "wait_gate(#+#*stage, turn/#&#) 4"
                : "wait_gate(#+#*stage, turn/#&#) 2",
       "who has states has waited for it, and passes the turn behind; the "
       "emulator has every warp see by itself what has come, and rejects it"},
      {"warp_barrier()", "lanes meet where they wait for the next turn"}};
  if (hasMaps) {
    kernel.removed.back().statement = "warp_barrier() #1";
    for (const char *one : {"warp_barrier() #2", "warp_barrier() #3"})
      kernel.removed.push_back({one, kernel.removed.back().why});
    kernel.removed.push_back({"show_matrices() #0",
                              "each warp shows what it has seen, gates among "
                              "it, behind the map that it makes"});
  }
}

/// Why it is the same where it is there twice.
void listRepeated(ReadKernel &kernel, bool hasShares) {
  kernel.repeated = {
      {"wait_gate(", "the phase is over already"},
      {"wait_products(", "no more than that is under way already"},
      {"wait_copies(", "nothing is under way any more"},
      {"wait_for_bits(", "it is that already"},
      {"await_turn(6, 256)", "threads that have met meet again"},
      {"block_barrier() #0", "threads that have met meet again"},
      {"warp_barrier(", "lanes that have met meet again"},
      {"show_matrices(", "what was seen is shown already"},
      {"begin_products(", "no register is written between"},
      {"commit_products(", "a group of no products"},
      {"commit_copies(", "a group of no copies"},
      {"settle(", "no instruction: registers are pinned twice"},
      {"give_registers(", "as many as there are"},
      {"take_registers(", "as many as there are"},
      {"make_gate(", "nobody has arrived at it yet"},
      {"make_map(", "the same map, by the same way"},
      {"copy_async(", "the same bytes, in the same group"},
      {"take_async(", "the same bytes, in the same group"},
      {"fence_blocks(", "what was seen is told already"},
      {"multiply_", "not of the order: the emulator finds it"}};
  for (int i = 1; hasShares && i < 4; ++i)
    kernel.repeated.push_back({"block_barrier() #" + std::to_string(i),
                               "all threads of the block, before roles"});
}

ReadKernel wide(const char *name, const std::string &text) {
  constexpr int64_t kPanel = 64 * 64 * 2, kStep = 64 * 16 * 2;
  ReadKernel kernel;
  kernel.name = name;
  kernel.threads = 384;
  tile::Reading &reading = kernel.reading;
  reading.texts = {
      readHeader("refold_cuda_tiles.h"), readHeader("refold_cuda_parts.h"),
      readHeader("refold_cuda_wgmma.h"), readHeader("refold_cuda_shares.h"),
      readHeader("refold_cuda_wide.h"),  text};
  reading.function = calledIn(text, "kernel_by_states");
  std::vector<int64_t> numbers = numbersOf(reading.function);
  int64_t stages = numbers[0], otherStages = numbers[1], kept = numbers[2];
  int64_t depth = numbers[3], width = numbers[4], bytes = numbers[5];
  int64_t halves = (width / 2 + 63) / 64;
  int64_t left = depth / 16 - kept;
  reading.tiles = {
      tilesAt("panels", 0, (bytes - left * kStep) / kPanel, kPanel),
      tilesAt("left_steps", bytes - left * kStep, left, kStep),
      gatesAt("gates", bytes, 1 + 3 * stages + 2 * otherStages)};
  reading.registers = {{"products", "32"},
                       {"kept", std::to_string(4 * kept)},
                       {"add_1_sums", std::to_string(32 * halves)}};
  addSlices(reading);
  // Where maps are made: of each warp that brings panels.
  reading.tiles.push_back(tilesAt("maps", kMaps, 3 * 8, 128));
  reading.tiles.back().isGlobal = true;
  addShares(reading);
  reading.tiles.push_back(partsOf(3));
  bool hasShares = text.find("share_blocks<") != std::string::npos;
  addLaunches(kernel, numbers, hasShares);
  bool hasMaps = text.find("make_map(") != std::string::npos;
  listRemoved(kernel, hasMaps, hasMaps || hasShares);
  listRepeated(kernel, hasShares);
  return kernel;
}

std::vector<ReadKernel> kernels() {
  std::vector<ReadKernel> all = {
      wide("wide",
           printedText(weightedText(408, 104, /*isShared=*/true), "cuda-sm90")),
      wide("ragged", printedText(matricesText(false), "cuda-sm90")),
      wide("tabled", printedText(matricesText(true), "cuda-sm90"))};
  return all;
}

INSTANTIATE_TEST_SUITE_P(Wide, ReadKernelTest, testing::ValuesIn(kernels()),
                         nameOfKernel);

} // namespace
