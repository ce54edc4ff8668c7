// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Headers of runtime/cuda whose functions wait for each other, as programs of
// tile ops.
#include "ReadKernels.h"

#include <gtest/gtest.h>

using namespace refold;
using namespace refold::test;

namespace {

std::vector<std::string> headers(std::initializer_list<const char *> names) {
  std::vector<std::string> texts;
  for (const char *name : names)
    texts.push_back(readHeader(name));
  return texts;
}

constexpr int64_t kGate = 8;

/// What may be there twice: nothing happens between the two.
const std::vector<SameWithout> kRepeated = {
    {"wait_gate(", "the phase is over already, and its parity stays until the "
                   "warp itself lets the next but one begin"},
    {"wait_copies(", "nothing is under way any more"},
    {"wait_boxes(", "nothing is under way any more"},
    {"wait_products(", "no more than that is under way already"},
    {"show_matrices(", "what was seen is shown already"},
    {"begin_products(", "no register is written between"},
    {"commit_products(", "a group of no products, over as soon as those before "
                         "it are"},
    {"commit_boxes(", "a group of no boxes: who waits for all but the last one "
                      "waits for more"},
    {"settle(", "no instruction: registers are pinned twice"},
    {"warp_barrier(", "lanes that have met meet again"},
    {"make_gate(", "nobody has arrived at it yet"},
    {"block_barrier(", "threads that have met meet again"},
    {"give_registers(", "as many as there are"},
    {"take_registers(", "as many as there are"},
    {"store_box(", "the same bytes go to the same place"},
    {"bring(", "the same bytes, in the same group"},
    {"copy_tile(", "the same bytes, in the same group"},
    {"see_map(", "it is seen already"},
    {"make_map(", "the same map, by the same way"},
    {"fence_blocks(", "what was seen is told already"},
    // Sums are added twice: a wrong number, which is no matter of order.
    {"multiply_", "not of the order: the emulator finds it"}};

/// Results that are not written, sums that are not added: wrong numbers, which
/// is no matter of order.
const std::vector<SameWithout> kRemoved = {
    {"store_box(", "not of the order: the emulator finds it"},
    {"multiply_", "not of the order: the emulator finds it"}};

/// Products of 8 bits with roles: rings of boxes, numbers of rows and columns
/// that are handed over, results on their way out.
ReadKernel bytesByRoles(int columns, int stages, bool isInParts) {
  ReadKernel kernel;
  kernel.name =
      "F8Roles" + std::to_string(columns) + (isInParts ? "_parts" : "_whole");
  kernel.threads = 384;
  tile::Reading &reading = kernel.reading;
  reading.texts = headers(
      {"refold_cuda_tiles.h", "refold_cuda_wgmma.h", "refold_cuda_products.h",
       "refold_cuda_products_f8.h", "refold_cuda_products_f8_roles.h"});
  reading.function = "F8Roles<" + std::to_string(columns) + ", " +
                     std::to_string(stages) + ", " +
                     (isInParts ? "true" : "false") + ">::run";
  int64_t left = 128 * 128, right = columns * 128, step = left + right;
  for (int place = 0; place < stages; ++place) {
    std::string number = " " + std::to_string(place);
    reading.tiles.push_back(tilesAt("left" + number, place * step, 1, left));
    reading.tiles.push_back(
        tilesAt("right" + number, place * step + left, 1, right));
  }
  int64_t out = stages * step, gates = out + 16 * 2048;
  reading.tiles.push_back(tilesAt("out", out, 16, 2048));
  reading.tiles.push_back(gatesAt("came", gates, stages));
  reading.tiles.push_back(gatesAt("gone", gates + stages * kGate, stages));
  reading.registers = {{"sums", std::to_string(columns / 2)},
                       {"part", isInParts ? "64" : "0"}};
  for (int64_t depth : {128, 640, 1300})
    for (int64_t rows : {100, 300})
      kernel.launches.push_back({{{"memory", 0},
                                  {"rows", rows},
                                  {"columns", 2 * columns},
                                  {"depth", depth}},
                                 0,
                                 1,
                                 2});
  kernel.removed = kRemoved;
  kernel.repeated = kRepeated;
  return kernel;
}

/// Rows of products with roles: four warps copy, four multiply, and the sums
/// lie where steps were.
ReadKernel rowsByRoles(int columns, int stages, bool isBoxed) {
  ReadKernel kernel;
  kernel.name = "RoleUnits" + std::to_string(columns);
  kernel.threads = 256;
  tile::Reading &reading = kernel.reading;
  reading.texts = headers(
      {"refold_cuda_tiles.h", "refold_cuda_wgmma.h", "refold_cuda_products.h",
       "refold_cuda_products_rows.h", "refold_cuda_products_roles.h"});
  reading.function = "RoleUnits<" + std::to_string(columns) + ", " +
                     std::to_string(stages) + ", " +
                     (isBoxed ? "true" : "false") + ">::sum<true, 8>";
  int64_t left = 64 * 128, right = columns * 128, step = left + right;
  for (int place = 0; place < stages; ++place) {
    std::string number = " " + std::to_string(place);
    reading.tiles.push_back(tilesAt("left" + number, place * step, 1, left));
    reading.tiles.push_back(
        tilesAt("right" + number, place * step + left, 1, right));
  }
  int64_t gates = stages * step + (isBoxed ? 256 : 0);
  reading.tiles.push_back(gatesAt("came", gates, stages));
  reading.tiles.push_back(gatesAt("gone", gates + stages * kGate, stages));
  constexpr int64_t kMaps = int64_t(1) << 30; // not in shared memory
  if (isBoxed) {
    reading.tiles.push_back(tilesAt("scratch", stages * step, 2, 128));
    reading.tiles.push_back(
        gatesAt("first", gates + 2 * stages * kGate, stages));
    reading.tiles.push_back(tilesAt("maps", kMaps, 2, 128));
    reading.tiles.back().isGlobal = true;
  }
  reading.registers = {{"sums", std::to_string(columns / 2)}};
  for (int64_t steps : {0, 1, stages - 1, stages, stages + 1, 3 * stages + 2})
    kernel.launches.push_back({{{"memory", 0},
                                {"maps", kMaps},
                                {"all_rows", 64},
                                {"all_columns", columns},
                                {"depth", 64 * steps}}});
  kernel.removed = kRemoved;
  kernel.removed.push_back(
      {"wait_copies(, 0)",
       "no group is committed: who multiplies has waited for what is copied, "
       "at a gate that counts copies"});
  if (isBoxed)
    kernel.removed.push_back(
        {"warp_barrier()", "lanes meet at the block's barrier anyway"});
  kernel.repeated = kRepeated;
  return kernel;
}

/// Where several blocks share sums: `last` of `parts` comes last.
Launch sharedBy(std::map<std::string, int64_t> numbers, int64_t parts,
                int64_t last) {
  Launch launch{std::move(numbers), 0, int(parts), int(parts)};
  launch.numbers.insert({{"shares.parts", parts},
                         {"Shares::kMayShare", 1},
                         {"parts", parts},
                         {"last_block", last}});
  return launch;
}
void addParts(tile::Reading &reading, int64_t most) {
  reading.texts.push_back(readHeader("refold_cuda_parts.h"));
  reading.loads = {{"shared_last", "block() == last_block"}};
  reading.tiles.push_back(partsOf(most));
}

/// Products of 16 bits with roles; blocks may share their sums.
ReadKernel panels(int groups, int columns, int stages, bool isTransposed,
                  bool isAhead, int depth = 64) {
  ReadKernel kernel;
  kernel.name = "PanelUnits" + std::to_string(64 * groups) + "x" +
                std::to_string(columns) + "x" + std::to_string(depth) +
                (isAhead ? "_ahead" : "");
  kernel.threads = 128 * (groups + 1);
  tile::Reading &reading = kernel.reading;
  reading.texts =
      headers({"refold_cuda_tiles.h", "refold_cuda_wgmma.h",
               "refold_cuda_products.h", "refold_cuda_products_panels.h"});
  reading.function = "PanelUnits<" + std::to_string(groups) + ", " +
                     std::to_string(columns) + ", " + std::to_string(stages) +
                     ", " + std::to_string(depth) + ">::run<" +
                     (isTransposed ? "true" : "false") + ", " +
                     (isAhead ? "true" : "false") + ">";
  int64_t left = groups * 128 * depth, right = columns * 2 * depth;
  int64_t step = left + right;
  for (int place = 0; place < stages; ++place) {
    std::string number = " " + std::to_string(place);
    reading.tiles.push_back(tilesAt("left" + number, place * step, 1, left));
    reading.tiles.push_back(
        tilesAt("right" + number, place * step + left, 1, right));
  }
  reading.tiles.push_back(gatesAt("came", stages * step, stages));
  reading.tiles.push_back(
      gatesAt("gone", stages * step + stages * kGate, stages));
  addParts(reading, 3);
  reading.registers = {{"sums", std::to_string(columns / 2)}};
  auto numbers = [&](int64_t steps) {
    return std::map<std::string, int64_t>{{"memory", 0},
                                          {"row0", 0},
                                          {"column0", 0},
                                          {"target.rows", 70},
                                          {"target.columns", columns},
                                          {"first", 0},
                                          {"depth", depth * steps}};
  };
  for (int64_t steps : {0, 1, stages - 1, stages, stages + 1, 3 * stages + 2})
    kernel.launches.push_back(sharedBy(numbers(steps), 1, 0));
  for (int64_t last : {0, 1})
    kernel.launches.push_back(sharedBy(numbers(stages + 1), 2, last));
  kernel.removed = kRemoved;
  kernel.removed.push_back(
      {"wait_copies(, 0)",
       "no group is committed: who multiplies has waited for what is copied, "
       "at a gate that counts copies"});
  kernel.repeated = kRepeated;
  if (isAhead)
    kernel.removed.push_back(
        {"bring(to_21)", "later steps of one side, instead of which there are "
                         "earlier ones: the emulator finds it"});
  // Behind the first one, roles meet by barriers of their own functions.
  for (SameWithout &one : kernel.repeated)
    if (one.statement == "block_barrier(")
      one.statement = "block_barrier() #0";
  return kernel;
}

/// Products by warps, copies in groups; `slices`: of the sum, added up in the
/// end.
ReadKernel byWarps(const std::string &name, const std::string &function,
                   int threads, int64_t left, int64_t right, int stages,
                   bool isSingle = false) {
  ReadKernel kernel;
  kernel.name = name;
  kernel.threads = threads;
  tile::Reading &reading = kernel.reading;
  reading.texts =
      headers({"refold_cuda_tiles.h", "refold_cuda_products.h",
               "refold_cuda_products_rows.h", "refold_cuda_products_f8.h"});
  reading.function = function;
  int64_t step = left + right;
  for (int place = 0; place < stages; ++place) {
    std::string number = " " + std::to_string(place);
    reading.tiles.push_back(tilesAt("left" + number, place * step, 1, left));
    reading.tiles.push_back(
        tilesAt("right" + number, place * step + left, 1, right));
  }
  for (int64_t steps : {0, 1, stages - 1, stages, 2 * stages + 1})
    kernel.launches.push_back({{{"memory", 0},
                                {"kTiles", 2}, // as follows from the sums
                                {"kParts", 4},
                                {"rows", 64},
                                {"columns", 64},
                                {"row0", 0},
                                {"column0", 0},
                                {"target.rows", 64},
                                {"target.columns", 64},
                                {"depth", 64 * steps}}});
  kernel.removed = kRemoved;
  kernel.repeated = kRepeated;
  kernel.repeated.push_back(
      {"commit_copies(", "a group of no copies: who waits for all but some of "
                         "the last ones waits for more"});
  kernel.removed.push_back({"wait_copies(, 0)",
                            "each step has waited for its own group, and those "
                            "behind the last one are empty"});
  if (isSingle)
    for (const char *one : {"wait_copies(", "commit_copies("})
      kernel.removed.push_back({one, "elements are stored, and not copied"});
  return kernel;
}

/// Products of f32 by multiply-adds: sums in registers, lines of both sides in
/// shared memory, two slices of the sum.
ReadKernel words() {
  ReadKernel kernel;
  kernel.name = "WordUnits";
  kernel.threads = 128;
  tile::Reading &reading = kernel.reading;
  reading.texts = headers({"refold_cuda_tiles.h", "refold_cuda_products.h",
                           "refold_cuda_products_words.h"});
  reading.function = "WordUnits<8, 8, 1, 1, 2, 16, 3>::run<0, 0, 4>";
  constexpr int64_t kLines = 16 * 36 * 4;
  for (int place = 0; place < 3; ++place) {
    std::string number = " " + std::to_string(place);
    reading.tiles.push_back(
        tilesAt("left" + number, 2 * place * kLines, 1, kLines));
    reading.tiles.push_back(
        tilesAt("right" + number, (2 * place + 1) * kLines, 1, kLines));
  }
  addParts(reading, 3);
  auto numbers = [&](int64_t steps) {
    return std::map<std::string, int64_t>{
        {"memory", 0},          {"row0", 0},
        {"column0", 0},         {"target.rows", 30},
        {"target.columns", 32}, {"first", 0},
        {"depth", 16 * steps}};
  };
  for (int64_t steps : {0, 1, 2, 3, 8})
    kernel.launches.push_back(sharedBy(numbers(steps), 1, 0));
  for (int64_t last : {0, 1})
    kernel.launches.push_back(sharedBy(numbers(4), 2, last));
  kernel.removed = kRemoved;
  kernel.removed.push_back({"wait_copies(, 0)",
                            "each step has waited for its own group, and those "
                            "behind the last one are empty"});
  kernel.repeated = kRepeated;
  kernel.repeated.push_back(
      {"commit_copies(", "a group of no copies: who waits for all but some of "
                         "the last ones waits for more"});
  return kernel;
}

std::vector<ReadKernel> kernels() {
  return {panels(2, 256, 4, true, true),
          panels(1, 128, 6, false, false),
          panels(1, 64, 3, true, true, 128),
          words(),
          byWarps("RowUnits", "RowUnits<2, 2, 2, 4, 64, 4>::sum<true, 8>", 128,
                  64 * 128, 64 * 128, 4),
          byWarps("RowUnits_single",
                  "RowUnits<2, 2, 2, 4, 64, 4>::sum<true, 1>", 128, 64 * 128,
                  64 * 128, 4, true),
          byWarps("Units_slices",
                  "multiply_on_units<Units<2, 2, 2, 4, 64, 3, 2>, true, 8, 0>",
                  256, 64 * 128, 64 * 128, 3),
          byWarps("F8Units", "F8Units<2, 2, 2, 4, 16>::run", 128, 64 * 80,
                  64 * 80, 3),
          rowsByRoles(128, 8, false),
          rowsByRoles(256, 5, true),
          bytesByRoles(256, 4, true),
          bytesByRoles(128, 6, true),
          bytesByRoles(256, 4, false),
          bytesByRoles(128, 6, false)};
}

/// The rule that a function breaks, "" for none: two warps of each of two
/// blocks, in 2 KB of shared memory and a ticket.
std::string ruleOf(const std::string &body) {
  tile::Reading reading;
  reading.texts = {"REFOLD_DEVICE void f(uint32_t at, uint32_t *ticket) {" +
                   body + "}"};
  reading.function = "f";
  reading.numbers = {{"at", 0}, {"ticket", 0}};
  reading.answers = {{"add_to_ticket(ticket,1)", "block()"},
                     {"wait_for_bits(ticket", "2"}};
  reading.numbers["parts"] = 2;
  reading.tiles = {tilesAt("places", 0, 1, 2048), partsOf(2)};
  std::optional<tile::Fault> fault;
  tile::Program program = tile::readProgram(reading, fault);
  tile::Entry entry{reading.numbers, 64, 2048, 0, 2, 2, false};
  if (!fault)
    fault = tile::verify(program, entry);
  return fault ? fault->rule : "";
}

TEST(ReadRules, LanesHavePlacesOfTheirOwn) {
  const std::string own = "copy_async(at + thread() * 16, x, 16);"
                          "commit_copies(); wait_copies<0>();";
  EXPECT_EQ(ruleOf(own + "load_shared(y, at + thread() * 16);"), "");
  EXPECT_EQ(ruleOf(own + "load_shared(y, at + (thread() ^ 1) * 16);"),
            "ordered-access");
  EXPECT_EQ(
      ruleOf(own + "warp_barrier(); load_shared(y, at + (thread() ^ 1) * 16);"),
      "");
  EXPECT_EQ(ruleOf(own + "warp_barrier();"
                         "load_shared(y, at + (thread() ^ 32) * 16);"),
            "ordered-access");
  // A vote orders no memory.
  EXPECT_EQ(ruleOf(own + "any_lane(false);"
                         "load_shared(y, at + (thread() ^ 1) * 16);"),
            "ordered-access");
}

TEST(ReadRules, TicketsTellWhatWasFenced) {
  auto ruleWith = [](const std::string &before, const std::string &behind,
                     const std::string &end) {
    return ruleOf("if (thread() == 0) { leave(x, y);" + before +
                  "add_to_ticket(ticket, 1); if (block() == 0) {"
                  "wait_for_bits(ticket, ~0u, 2);" +
                  behind + "take_left(x);" + end + "}}");
  };
  const std::string fence = "fence_blocks();",
                    end = "add_to_ticket(ticket, 0u - 2);";
  // A look is an acquire, as it is behind a fence.
  EXPECT_EQ(ruleWith(fence, "", end), "");
  EXPECT_EQ(ruleWith("", "", end), "ordered-access");
  EXPECT_EQ(ruleWith("", fence, end), "ordered-access");
  EXPECT_EQ(ruleWith(fence, "", ""), "stage-release");
  EXPECT_EQ(ruleWith(fence, "", "clear_ticket(ticket);" + end),
            "stage-release");
  EXPECT_EQ(ruleOf("if (thread() == 0) wait_for_bits(ticket, ~0u, 2);"),
            "deadlock");
}

INSTANTIATE_TEST_SUITE_P(Headers, ReadKernelTest, testing::ValuesIn(kernels()),
                         nameOfKernel);

} // namespace
