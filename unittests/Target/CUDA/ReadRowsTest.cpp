// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels over rows as programs of tile ops that are read from their text:
// parts of a row whose blocks wait for each other, and lists of the best.
#include "PrintedText.h"

using namespace refold;
using namespace refold::test;

namespace {

// Shares of exp(x) in each row.
constexpr const char *kShares = R"(
func.func @kernel(%x: memref<?x?xf32>, %y: memref<?x?xf32>) {
  refold.cascade rows(%m = ?) stream(%n = ?)
    ins(%a = %x : memref<?x?xf32>)
    outs(%b = %y : memref<?x?xf32>)
    sizes(%m = %b[0], %n = %b[1]) {
    %lowest = arith.constant -3.40282347E+38 : f32
    %v = refold.read %a[%m, %n] : f32
    %max = refold.state max(%v : f32)
    %g = arith.maxnumf %max, %lowest : f32
    %u = arith.subf %v, %g : f32
    %p = math.exp %u : f32
    %z = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %d = arith.subf %old, %new : f32
      %f = math.exp %d : f32
      %t = arith.mulf %self, %f : f32
      refold.yield %t : f32
    } law "rescale-distributes"
    %w = arith.divf %p, %z : f32
    refold.write %w, %b[%m, %n] : f32
  }
  return
})";

// The three largest of every row, with their places.
constexpr const char *kBest = R"(
func.func @kernel(%x: memref<?x?xf32>, %v: memref<?x3xf32>, %i: memref<?x3xi32>) {
  refold.cascade rows(%m = ?) stream(%n = ?) carried(%r = 3)
    ins(%a = %x : memref<?x?xf32>)
    outs(%b = %v : memref<?x3xf32>, %c = %i : memref<?x3xi32>)
    sizes(%m = %b[0], %n = %a[1]) {
    %read = refold.read %a[%m, %n] : f32
    %at = arith.index_cast %n : index to i32
    %top:2 = refold.state topk(%read : f32, %at : i32) rank(%r)
    refold.write %top#0, %b[%m, %r] : f32
    refold.write %top#1, %c[%m, %r] : i32
  }
  return
})";

ReadKernel rows(const char *name, int threads, const char *program,
                const char *numbers) {
  ReadKernel kernel;
  kernel.name = name;
  kernel.threads = threads;
  kernel.reading.texts = {
      readHeader("refold_cuda_tiles.h"), readHeader("refold_cuda_vectors.h"),
      readHeader("refold_cuda_lists.h"), readHeader("refold_cuda_parts.h"),
      printedText(program, "cuda-sm80")};
  kernel.reading.function = std::string("kernel<") + numbers + ">";
  kernel.reading.numbers = {{"Nowhere", 0}, {"InRegisters", 1}, {"InShared", 2},
                            {"Split", 3},   {"InRing", 4},      {"InParts", 5},
                            {"InLanes", 6}};
  kernel.repeated = {{"block_barrier(", "threads that have met meet again"},
                     {"warp_barrier(", "lanes that have met meet again"},
                     {"wait_copies(", "nothing is under way any more"},
                     {"commit_copies(", "a group of no copies"},
                     {"copy_even_rows(", "the same bytes, in the same group"},
                     {"fence_blocks(", "what was seen is told already"},
                     {"wait_for_bits(", "it is that already"},
                     {"add_to_ticket(taken+place,0)", "nothing is added"}};
  return kernel;
}

/// Three blocks that share a row and wait for each other. `gone`: the first to
/// come, which waits in vain, so that others have its part, too; `late`: one
/// that has waited in vain when all have come after all; -1 for none.
ReadKernel sweptParts() {
  ReadKernel kernel = rows("swept_parts", 64, kShares, "64, 1, 4, 4, InParts");
  tile::Reading &reading = kernel.reading;
  reading.tiles = {partsOf(3)};
  // Numbers of those that are not gone, and who has the part of who is.
  const std::string other = "(own < gone ? own : own - 1)",
                    taker = "(gone == 0 ? 1 : 0)";
  reading.answers = {
      {"add_to_ticket(came,1)",
       "gone < 0 ? own : own == gone ? 0 : " + other + " + 65537"},
      {"wait_for_bits(came",
       "own == gone || own == late ? 0 : gone < 0 ? all : all + 65536"},
      {"add_unless(came", "own == late ? all : 65537"},
      {"add_to_ticket(came+1,kOther)", "1 + " + other + " * 65536"},
      {"add_to_ticket(came+1,1)",
       "gone < 0 ? own : own == gone ? 0 : (all - 1) * 65536 + 1 + " + other},
      // Own parts first, then that of who is gone.
      {"shuffle_xor(first,mask)",
       "looked == 0 ? 0 : looked == 1 && own == " + taker +
           " ? (gone - own - 1 + 2 * all) % all : 32"},
      {"add_to_ticket(taken+place,0)", "~1"},
      {"add_to_ticket(taken+place,1)", "0"},
      {"any_lane(is_mine)", "first < 32"}};
  reading.loads = {
      {"shared_state", "gone < 0 ? (own == 0 ? 4 : 0) : own == gone ? 1 : " +
                           other + " == 0 ? 6 : 2"},
      {"shared_part",
       "times == 0 ? own : times == 1 && own == " + taker + " ? gone : all"}};
  for (auto [gone, late] :
       {std::pair(-1, -1), {0, -1}, {1, -1}, {2, -1}, {-1, 1}})
    kernel.launches.push_back({{{"m_count", 1},
                                {"n_count", 3 * 1024},
                                {"tickets", 0},
                                {"by_2.is_plain", 1},
                                {"parts", 3},
                                {"gone", gone},
                                {"late", late}},
                               0,
                               3,
                               3});
  // What is seen of tickets the walk is told, whatever was added.
  const char *const why = "not of the order: the emulator finds it";
  kernel.removed = {{"add_to_ticket(taken+place", why},
                    {"add_to_ticket(came+1,1) #2", why},
                    {"block_barrier() #3",
                     "of the first part that is asked for nobody has "
                     "read another one; of later ones it is rejected"}};
  return kernel;
}

/// Lists that warps merge, and rows that a lane has for itself.
ReadKernel lists(bool isInLanes) {
  ReadKernel kernel =
      isInLanes ? rows("lists_of_lanes", 64, kBest, "1, 64, 8, 4, InLanes")
                : rows("lists", 128, kBest, "128, 1, 2, 4, Nowhere");
  tile::Reading &reading = kernel.reading;
  if (isInLanes)
    reading.tiles = {tilesAt("own rows", 0, 2, 32 * (100 * 4 | 16))};
  reading.answers = {{"best<words", "0"},         // there are better ones
                     {"uint64_t(to)%16==0", "1"}, // where results go
                     {"words_at(", "!"}};         // again, where data say
  for (int64_t length : {100, 1024, 5000})
    if (!isInLanes || length == 100)
      kernel.launches.push_back({{{"m_count", 64}, {"n_count", length}}});
  return kernel;
}

INSTANTIATE_TEST_SUITE_P(Rows, ReadKernelTest,
                         testing::Values(sweptParts(), lists(false),
                                         lists(true)),
                         nameOfKernel);

} // namespace
