// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A generated kernel over rows of products in the emulator, and the same with a
// defect planted in its text or in what it is written in: each has to be
// reported, or to give a wrong answer.
#include "WeightedRows.h"
#include <numeric>

using namespace refold;
using namespace refold::test;

namespace {

// The two largest of 24 products of every row with their places, and the sum of
// the exponentials of all of them.
constexpr llvm::StringLiteral kBest = R"(
func.func @kernel(%x: memref<?x?xbf16>, %w: memref<SIDE>, %v: memref<?x2xf32>, %i: memref<?x2xi32>, %z: memref<?xf32>) {
  refold.cascade rows(%m = ?) stream(%n = 24) inner(%d = ?) carried(%r = 2)
    ins(%a = %x : memref<?x?xbf16>, %b = %w : memref<SIDE>)
    outs(%c = %v : memref<?x2xf32>, %e = %i : memref<?x2xi32>, %f = %z : memref<?xf32>)
    sizes(%m = %c[0], %d = %a[1]) {
    %lowest = arith.constant -3.40282347E+38 : f32
    %xv = refold.read %a[%m, %d] : bf16
    %xf = arith.extf %xv : bf16 to f32
    %wv = refold.read %b[PLACE] : bf16
    %wf = arith.extf %wv : bf16 to f32
    %xw = arith.mulf %xf, %wf : f32
    %s = refold.contract %xw over(%d) : f32
    %at = arith.index_cast %n : index to i32
    %top:2 = refold.state topk(%s : f32, %at : i32) rank(%r)
    %max = refold.state max(%s : f32)
    %g = arith.maxnumf %max, %lowest : f32
    %u = arith.subf %s, %g : f32
    %p = math.exp %u : f32
    %sum = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %o = arith.subf %old, %new : f32
      %h = math.exp %o : f32
      %t = arith.mulf %self, %h : f32
      refold.yield %t : f32
    } law "rescale-distributes"
    refold.write %top#0, %c[%m, %r] : f32
    refold.write %top#1, %e[%m, %r] : i32
    refold.write %sum, %f[%m] : f32
  }
  return
})";

CudaKernel printBest(bool isAcross, const std::string &target) {
  std::string text = kBest.str();
  auto replace = [&](const std::string &from, const std::string &to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
         at += to.size())
      text.replace(at, from.size(), to);
  };
  replace("SIDE", isAcross ? "?x24xbf16" : "24x?xbf16");
  replace("PLACE", isAcross ? "%d, %n" : "%n, %d");
  auto context = makeContext();
  auto kernel = printCudaKernel(*context, "best", text, "test",
                                {CudaDevice::Emulated, target});
  if (!kernel) {
    ADD_FAILURE() << llvm::toString(kernel.takeError());
    return {};
  }
  return std::move(*kernel);
}

constexpr int64_t kCount = 24;

/// What is wrong with the kernel for some rows and sums, "" if nothing.
std::string judge(const Kernel &kernel, bool isAcross, int64_t m, int64_t d) {
  // Sums of small multiples of 1/8 are exact; a row of zeros has equal ones.
  std::vector<uint16_t> x = drawn(m, d, 0.125f, 0.0f),
                        w = drawn(kCount, d, 0.125f, 0.25f), side(w);
  for (int64_t k = 0; k < d && m > 1; ++k)
    x[d + k] = 0;
  if (isAcross)
    for (int64_t n = 0; n < kCount; ++n)
      for (int64_t k = 0; k < d; ++k)
        side[k * kCount + n] = w[n * d + k];
  std::vector<float> v(m * 2), z(m);
  std::vector<int32_t> places(m * 2);
  std::vector<int64_t> words;
  auto add = [&](auto &array, llvm::ArrayRef<int64_t> sizes) {
    int64_t at = int64_t(reinterpret_cast<intptr_t>(array.data()));
    words.insert(words.end(), {at, at, 0});
    words.insert(words.end(), sizes.begin(), sizes.end());
    if (sizes.size() == 2)
      words.push_back(sizes[1]);
    words.push_back(1);
  };
  add(x, {m, d});
  isAcross ? add(side, {d, kCount}) : add(side, {kCount, d});
  add(v, {m, 2}), add(places, {m, 2}), add(z, {m});
  if (llvm::Error error = kernel.launch(words.data()))
    return llvm::toString(std::move(error));
  for (int64_t row = 0; row < m; ++row) {
    std::vector<double> s(kCount, 0.0);
    for (int64_t n = 0; n < kCount; ++n)
      for (int64_t k = 0; k < d; ++k)
        s[n] += double(toFloat(x[row * d + k])) * toFloat(w[n * d + k]);
    std::vector<int32_t> order(kCount);
    std::iota(order.begin(), order.end(), 0);
    llvm::stable_sort(order, [&](int a, int b) { return s[a] > s[b]; });
    double sum = 0.0;
    for (double one : s)
      sum += std::exp(one - s[order[0]]);
    for (int r : {0, 1})
      if (v[row * 2 + r] != float(s[order[r]]) ||
          places[row * 2 + r] != order[r])
        return "found another list";
    if (!(std::abs(z[row] - sum) <= 1e-6 * sum))
      return "found a wrong sum";
  }
  return "";
}

/// `hasRoles`: the entry with roles computes what it may, whichever is expected
/// to be quicker.
std::string judgeAll(const CudaKernel &printed, bool isAcross,
                     bool hasRoles = false) {
  ExecutableSpec spec;
  if (hasRoles) {
    auto entry = llvm::find_if(
        printed.entries, [](const CudaEntry &one) { return one.roles > 0; });
    if (entry == printed.entries.end())
      return "there is no entry with roles: does not compile";
    llvm::StringRef name = entry->name;
    setenv("REFOLD_CUDA_ENTRY", name.rsplit('_').second.str().c_str(), 1);
  }
  llvm::Error failure = attachEmulated(spec, {printed});
  unsetenv("REFOLD_CUDA_ENTRY");
  if (failure)
    return "does not compile: " + llvm::toString(std::move(failure));
  // Few rows and many, whole vectors and none, more steps than are under way.
  // The deep ones are sums that blocks share: of some parts the last is short.
  for (auto [m, d] : {std::pair<int64_t, int64_t>{70, 1032},
                      {3, 8200},
                      {260, 2184},
                      {260, 1032},
                      {20, 5},
                      {17, 0}})
    if (std::string wrong = judge(spec.kernels.front(), isAcross, m, d);
        !wrong.empty())
      return wrong;
  return "";
}

/// Blocks that share a sum add up slices of the rows, however few there are.
const Defect kAllInSlices{"kQuadsOfOne = 5120", "kQuadsOfOne = 0"};

struct Header {
  const char *name, *guard;
};

/// The entry with roles with boxes, as those of more columns have them.
void takeBoxes(CudaKernel &kernel) {
  auto entry = llvm::find_if(kernel.entries,
                             [](CudaEntry &one) { return one.roles > 0; });
  ASSERT_NE(entry, kernel.entries.end());
  entry->mapBytes = 256;
  std::string before = std::to_string(entry->sharedBytes);
  entry->sharedBytes += entry->mapBytes + 12 * 8; // stages, a gate more each
  std::string now = std::to_string(entry->sharedBytes);
  plant(kernel, {before.c_str(), now.c_str()});
  plant(kernel, {", 12, false>", ", 12, true>"});
}

/// A defect of the text, or of what it is written in.
void judgePlanted(const Defect &defect, const std::string &target,
                  llvm::ArrayRef<Header> headers, llvm::ArrayRef<bool> layouts,
                  bool hasRoles = false, bool isBoxed = false) {
  std::string all;
  for (bool isAcross : layouts) {
    CudaKernel kernel = printBest(isAcross, target);
    if (isBoxed)
      takeBoxes(kernel);
    for (const Header &header : headers)
      carryHeader(kernel, header.name, header.guard);
    if (isAcross)
      plant(kernel, kAllInSlices);
    plant(kernel, defect);
    all += judgeAll(kernel, isAcross, hasRoles);
  }
  expectCaught(all, defect);
}

constexpr Header kRowsHeader = {
    "refold_cuda_products_rows.h",
    "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_ROWS_H"};

class PlantedProductDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedProductDefect, IsCaught) {
  judgePlanted(
      GetParam(), "cuda-emulated",
      {kRowsHeader,
       {"refold_cuda_products.h", "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_H"},
       {"refold_cuda_tiles.h", "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_TILES_H"},
       {"refold_cuda_parts.h", "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PARTS_H"}},
      {false, true});
}

const std::vector<Defect> kDefects = {
    // Copies and who waits for them.
    Defect{"wait_copies<U::kStages - 2>();\n    block_barrier();",
           "block_barrier();"},
    Defect{"wait_copies<U::kStages - 2>();", "wait_copies<U::kStages - 1>();"},
    Defect{"wait_copies<U::kStages - 2>();\n    block_barrier();",
           "wait_copies<U::kStages - 2>();"},
    Defect{"place == 0 ? U::kStages - 1 : place - 1", "place"},
    Defect{"step + U::kStages - 1", "step + U::kStages"},
    Defect{"(depth + U::kDepth - 1) / U::kDepth", "depth / U::kDepth"},
    Defect{"depth - k < U::kDepth ? depth - k : U::kDepth", "U::kDepth"},
    Defect{"row < inside ? 16 : 0", "16"},
    Defect{"const int64_t k = step * U::kDepth;", "const int64_t k = 0;"},
    // Sums to rows.
    Defect{"wait_copies<0>();\n    block_barrier();", "wait_copies<0>();"},
    Defect{"U::kMapBytes);\n  block_barrier();", "U::kMapBytes);"},
    Defect{"row + fragment_row(half)", "row + fragment_row(0)"},
    Defect{"column + fragment_quad()", "column + fragment_quad() / 2"},
    Defect{"{low[half * 2], low[half * 2 + 1]}", "{low[0], low[1]}"},
    Defect{"sums[i][2 * c], sums[i][2 * c + 1]",
           "sums[i][2 * c + 1], sums[i][2 * c]"},
    Defect{"row + i * 16, column + c * 16", "row, column + c * 16"},
    Defect{"warp / U::kColumnWarps * U::kTiles * 16;", "0;"},
    Defect{"kRowBytes = kColumns * 4 + 16", "kRowBytes = kColumns * 4 - 64"},
    // Rows.
    Defect{"smaller(m_count - m_first, U::kRows)", "U::kRows"},
    Defect{"own_rows >> own & 1", "own_rows & 1"},
    Defect{"(is_row ? own : 0)", "0"},
    Defect{"turn + thread() / kThreads", "thread() / kThreads"},
    Defect{"turn += kAtOnce", "turn += 2 * kAtOnce"},
    Defect{"row + uint32_t(column + part * 4) * 4",
           "row + uint32_t(column) * 4"},
    Defect{"+ m_first * ", "+ 0 * "},
    // What blocks share.
    Defect{"own_part.first", "0"}, Defect{"part * own, depth", "0, depth"},
    Defect{"smaller(own, depth - first)", "own"},
    Defect{"steps + parts - 1, parts", "steps, parts"},
    Defect{"block_remainder(block(), row_parts)", "0"},
    Defect{"row_group * row_parts, int(row_parts)", "0, int(row_parts)"},
    Defect{"row_group * row_parts * kLeftBytes", "0"},
    Defect{"left + part * kPartBytes", "left"},
    Defect{"if (!is_last_block(tickets, parts))", "if (part > 0)"},
    Defect{"part < parts; part += kAtOnce",
           "part + kAtOnce <= parts; part += kAtOnce"},
    Defect{"part + i < parts", "true"},
    Defect{"from + i * kPartBytes + places", "from + places"},
    Defect{"from += kAtOnce * kPartBytes;", ""},
    Defect{"smaller(at + s * U::kThreads, end - 1)", "at"},
    Defect{"sums[s][e] = sums[s][e] + float_of(words[i][s][e]);",
           "sums[s][e] = float_of(words[i][s][e]);"},
    // Slices of rows.
    Defect{"(rows + slices - 1) / slices", "rows / slices"},
    Defect{"claimed >>= 1, first += rows_each", "claimed >>= 1"},
    Defect{"first_rows(end) & ~first_rows(first)", "first_rows(end)"},
    Defect{"smaller(first + rows_each, rows)", "first + rows_each"},
    Defect{"slices_of(smaller(parts, rows))", "slices_of(parts + 16)"},
    Defect{"shared_slices, 1);\n  block_barrier();", "shared_slices, 1);"},
    Defect{"      fence_blocks();\n      uint32_t seen", "      uint32_t seen"},
    Defect{"          fence_blocks();\n        add_to_ticket",
           "          ;\n        add_to_ticket"},
    Defect{"add_to_ticket(ticket, 0u - seen);", ""},
    Defect{"0u - seen", "0u - all"},
    Defect{"is_own || seen == all + kIsGone", "is_own || seen >= all"},
    Defect{"is_own || seen == all + kIsGone", "is_own"},
    Defect{"seen = wait_for_bits(ticket, ~0u, all);", "seen = all;"},
    Defect{"wait_for_bits(ticket, ~0u, all);\n        is_own = seen == all",
           "wait_for_bits(ticket, ~0u, all - 1);\n        is_own = seen != 0"},
    Defect{"mine = 1 << thread();", "mine = 1;"},
    Defect{"mask < 32; mask *= 2)\n      mine",
           "mask < 2; mask *= 2)\n      mine"},
    Defect{"  block_barrier();\n  return uint32_t(shared_slices",
           "  return uint32_t(shared_slices"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedProductDefect,
                         testing::ValuesIn(chosenDefects(kDefects)));

class PlantedProductRolesDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedProductRolesDefect, IsCaught) {
  judgePlanted(GetParam(), "cuda-emulated-sm90",
               {{"refold_cuda_products_roles.h",
                 "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_ROLES_H"}},
               {false}, /*hasRoles=*/true);
}

const std::vector<Defect> kRolesDefects = {
    Defect{"make_gate(first + 8 * place, 128);",
           "make_gate(first + 8 * place, 127);"},
    Defect{"make_gate(gone + 8 * place, 4);",
           "make_gate(gone + 8 * place, 3);"},
    Defect{"wait_gate(ring.gone + 8 * place, parity);", ""},
    Defect{"int place = 0, parity = 1;", "int place = 0, parity = 0;"},
    Defect{
        "wait_gate((is_first ? ring.first : ring.came) + 8 * place, parity);",
        ""},
    Defect{"place + 1 == kStages ? 0 : place + 1", "0"},
    Defect{"parity ^= place == 0;", ""},
    Defect{"show_matrices();", ""},
    Defect{"begin_products();", ""},
    Defect{"wait_products<1>();", ""},
    Defect{"wait_products<0>();", ""},
    Defect{"place == 0 ? kStages - 1 : place - 1", "place"},
    Defect{"lefts.source += kDepth;", ""},
    Defect{"int(smaller(depth, kDepth))", "kDepth"},
    Defect{"k > 0 && thread() % 32 == 0", "thread() % 32 == 0"},
    Defect{"rights.source += kDepth;", ""},
    Defect{"int(smaller(all_rows, kRows))", "kRows"},
    Defect{"settle(sums);\n    // Everything has come and is multiplied: rows "
           "may lie there.\n    block_barrier();",
           "settle(sums);"},
    Defect{"thread() / 32 * 16 - 64", "0"},
    Defect{"sums[2 * c], sums[2 * c + 1]", "sums[2 * c + 1], sums[2 * c]"},
    Defect{"k % 4 * 32);\n    const uint64_t b", "0);\n    const uint64_t b"},
    Defect{"columns, count);", "kColumns, count);"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedProductRolesDefect,
                         testing::ValuesIn(chosenDefects(kRolesDefects)));

class PlantedProductBoxesDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedProductBoxesDefect, IsCaught) {
  judgePlanted(GetParam(), "cuda-emulated-sm90",
               {{"refold_cuda_products_roles.h",
                 "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_ROLES_H"}},
               {false}, /*hasRoles=*/true, /*isBoxed=*/true);
}

const std::vector<Defect> kBoxesDefects = {
    Defect{"await_turn(1, 128);", ""},
    Defect{"make_gate(came + 8 * place, 2);",
           "make_gate(came + 8 * place, 1);"},
    Defect{"see_map(map);", ""},
    Defect{"k = kStages * kDepth; k < depth", "k = 0; k < depth"},
    Defect{"int(k) * 2, 0);", "int(k), 0);"},
    Defect{"maps + 128, depth);", "maps, depth);"},
    Defect{"ring.scratch() + 128", "ring.scratch()"},
    Defect{"parity ^= !is_first;", "parity ^= 1;"},
    Defect{"is_first = false;", ""},
    Defect{"Side::kBytes);\n", "Side::kBytes / 2);\n"},
    Defect{"left.first, rows, depth * 2,", "left.first, rows, depth,"},
    Defect{"left.first, rows, depth * 2,", "left.first, kRows, depth * 2,"},
    Defect{"right.first, columns,", "right.first, kColumns,"},
    Defect{"workspace + block() * U::kMapBytes", "workspace"},
    Defect{"wait_gate(ring.gone + 8 * place, parity);", ""}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedProductBoxesDefect,
                         testing::ValuesIn(chosenDefects(kBoxesDefects)));

/// By the last block that has a part, and in slices.
TEST(EmulatedProductRows, AGeneratedKernelIsRight) {
  for (const char *target : {"cuda-emulated", "cuda-emulated-sm90"})
    for (bool isAcross : {false, true}) {
      CudaKernel kernel = printBest(isAcross, target);
      carryHeader(kernel, kRowsHeader.name, kRowsHeader.guard);
      if (isAcross)
        plant(kernel, kAllInSlices);
      EXPECT_EQ(judgeAll(kernel, isAcross), "") << target;
      if (!isAcross && llvm::StringRef(target).ends_with("sm90"))
        EXPECT_EQ(judgeAll(kernel, isAcross, /*hasRoles=*/true), "");
    }
  CudaKernel boxed = printBest(/*isAcross=*/false, "cuda-emulated-sm90");
  takeBoxes(boxed);
  EXPECT_EQ(judgeAll(boxed, /*isAcross=*/false, /*hasRoles=*/true), "");
}

} // namespace
