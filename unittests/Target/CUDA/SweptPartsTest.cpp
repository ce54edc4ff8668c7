// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows that blocks share and sweep again, in the emulator, and with defects
// planted in the text or in what blocks tell each other.
#include "PlantedDefects.h"
#include "refold/Driver/Driver.h"
#include "refold/Support/Error.h"
#include "refold/Target/CUDA/CompileCuda.h"
#include <cmath>

using namespace refold;
using namespace refold::test;

namespace {

// Shares of exp(x) in each row, and their sum relative to the largest.
constexpr llvm::StringLiteral kShares = R"(
func.func @kernel(%x: memref<?x?xf32>, %y: memref<?x?xf32>, %s: memref<?xf32>) {
  refold.cascade rows(%m = ?) stream(%n = ?)
    ins(%a = %x : memref<?x?xf32>)
    outs(%b = %y : memref<?x?xf32>, %c = %s : memref<?xf32>)
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
    refold.write %z, %c[%m] : f32
  }
  return
})";

/// Of the text for sm_90 blocks may have rows together, too.
CudaKernel printShares(const char *target) {
  auto context = makeContext();
  auto kernel = printCudaKernel(*context, "shares", kShares, "test",
                                {CudaDevice::Emulated, target});
  if (!kernel) {
    ADD_FAILURE() << llvm::toString(kernel.takeError());
    return {};
  }
  // Parts of several chunks, in rows that are soon emulated.
  for (CudaEntry &entry : kernel->entries)
    if (entry.waits)
      entry.mostBlocks = 12;
  return std::move(*kernel);
}

/// What is wrong with rows whose scores grow, so that every part has another
/// extreme: the second is -inf but for its last part, the third has a NaN, the
/// fourth is -inf.
std::string judge(const Kernel &kernel, int64_t rows, int64_t n) {
  std::vector<float> x(rows * n), y(rows * n, -1.0f), s(rows, -1.0f);
  for (int64_t i = 0; i < rows * n; ++i)
    x[i] = float(i % n) * 12.0f / float(n) + float(i * 7919 % 13) * 0.25f;
  if (rows > 1)
    std::fill_n(x.begin() + n, n - n / 8, -INFINITY);
  if (rows > 2)
    x[2 * n + n / 2] = NAN;
  if (rows > 3)
    std::fill_n(x.begin() + 3 * n, n, -INFINITY);
  auto address = [](const std::vector<float> &v) {
    return int64_t(reinterpret_cast<intptr_t>(v.data()));
  };
  int64_t words[] = {address(x), address(x), 0, rows, n, n, 1,
                     address(y), address(y), 0, rows, n, n, 1,
                     address(s), address(s), 0, rows, 1};
  if (llvm::Error error = kernel.launch(words))
    return llvm::toString(std::move(error));
  for (int64_t row = 0; row < rows; ++row) {
    const float *of = x.data() + row * n, *found = y.data() + row * n;
    auto isNaN = [](float value) { return std::isnan(value); };
    if (row == 2 || row == 3) {
      if (!std::all_of(found, found + n, isNaN) ||
          (row == 2 ? !std::isnan(s[row]) : s[row] != 0.0f))
        return "found a number";
      continue;
    }
    double largest = *std::max_element(of, of + n), sum = 0.0;
    for (int64_t i = 0; i < n; ++i)
      sum += std::exp(of[i] - largest);
    if (!(std::abs(s[row] - sum) <= 1e-5 * sum))
      return "found a wrong sum";
    for (int64_t i = 0; i < n; ++i) {
      double exact = std::exp(of[i] - largest) / sum;
      if (!(std::abs(found[i] - exact) <= 1e-5 * exact))
        return "found a wrong result";
    }
  }
  return "";
}

/// A row of a chunk a part, the last of which is ragged; rows of three chunks a
/// part, of which the last has nothing; rows of one part.
std::string judge(const CudaKernel &printed) {
  ExecutableSpec spec;
  setenv("REFOLD_CUDA_ENTRY", "parts256x4x4", 1);
  llvm::Error error = attachEmulated(spec, {printed});
  unsetenv("REFOLD_CUDA_ENTRY");
  if (error)
    return "does not compile: " + llvm::toString(std::move(error));
  const std::pair<int64_t, int64_t> shapes[] = {
      {2, 61000}, {1, 40004}, {5, 20004}, {7, 4100}};
  for (auto [rows, n] : shapes)
    if (std::string wrong = judge(spec.kernels.front(), rows, n);
        !wrong.empty())
      return wrong;
  return "";
}

class PlantedSweptPartDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedSweptPartDefect, IsCaught) {
  CudaKernel kernel = printShares("cuda-emulated");
  carryHeader(kernel, "refold_cuda_parts.h",
              "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PARTS_H");
  plant(kernel, GetParam());
  expectCaught(judge(kernel), GetParam());
}

const std::vector<Defect> kDefects = {
    // What makes states seen.
    Defect{"fence_blocks();\n      add_to_ticket", "add_to_ticket"},
    Defect{"uint32_t(all));\n        fence_blocks();", "uint32_t(all));"},
    Defect{"block_barrier();\n    state = shared_state",
           "state = shared_state"},
    Defect{"if (!row_tickets.meet())\n        return row_tickets.end();",
           "row_tickets.meet();"},
    // Who waits in vain, and whom that is told.
    Defect{"seen = add_unless(came, kOther, kCount, uint32_t(all));",
           "seen = 0;"},
    Defect{"add_unless(came, kOther, kCount, uint32_t(all))",
           "add_to_ticket(came, kOther) + kOther"},
    Defect{"wait_for_bits(came, kCount, uint32_t(all))",
           "wait_for_bits(came, kCount, uint32_t(all) - 1)"},
    Defect{"if (seen >= kOther)", "if (false)"},
    Defect{"< kOther ? kWrites : 0)", "< kOther ? kWrites : kWrites)"},
    Defect{"own == 0 ? kWrites : 0", "0"},
    Defect{"own == 0 ? kWrites : 0", "kWrites"},
    // Whose part is whose, of those that are left.
    Defect{"looked++ == 0 ? own : all", "looked++ == 0 ? 0 : all"},
    Defect{"first == lane && add_to_ticket(taken + place, 1) == 0",
           "first == lane"},
    Defect{"first == lane && add_to_ticket(taken + place, 1) == 0",
           "add_to_ticket(taken + place, 1) == 0"},
    Defect{"first < 32 ? first + 1 : 32;", "32;"},
    Defect{"block_barrier();\n    if (thread() < 32) {\n      int found",
           "if (thread() < 32) {\n      int found"},
    Defect{"block_barrier();\n    return shared_part", "return shared_part"},
    Defect{"if (part != own_part)", "if (false)"},
    // What the next launch finds.
    Defect{"thread() == 0 && !looks()", "thread() == 0"},
    Defect{"if (looks())\n      departed", "if (false)\n      departed"},
    Defect{"count_of(departed) != all", "departed != uint32_t(all)"},
    Defect{"clear_ticket(came + 1);", ""},
    Defect{"clear_ticket(taken + part);", "clear_ticket(came);"},
    Defect{"}\n        row_tickets.end();", "}"},
    Defect{"came(tickets + 2 * row)", "came(tickets + row)"},
    // The merge.
    Defect{"part < row_parts) {\n", "part + 1 < row_parts) {\n"},
    Defect{"i * kThreads + lane", "lane"}, Defect{"s = States();", ""},
    Defect{"left_add_1 + row * row_parts + part", "left_add_1 + part"},
    Defect{"leave(left_add_1 + block(), s.add_1);", ""},
    // Where parts are.
    Defect{"own_part * share_length", "own_part * kChunk"},
    Defect{"smaller(share_first + share_length, row_length)", "row_length"},
    Defect{"begin = part * share_length", "begin = own_part * share_length"},
    Defect{"first >= begin; first -= kChunk", "first > begin; first -= kChunk"},
    Defect{"if (first > begin)\n              load(next, first - kChunk);", ""},
    Defect{"smaller(begin + share_length, row_length)", "row_length"},
    Defect{"kIsPart ? block_quotient(block(), row_parts)",
           "kIsPart ? block_remainder(block(), row_parts)"},
    Defect{"row_tickets.writes()", "true"},
    Defect{"row_tickets.writes()", "(!kIsPart || own_part == 0)"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedSweptPartDefect,
                         testing::ValuesIn(chosenDefects(kDefects, 4)));

TEST(SweptParts, AGeneratedKernelIsRight) {
  EXPECT_EQ(judge(printShares("cuda-emulated")), "");
  EXPECT_EQ(judge(printShares("cuda-emulated-sm90")), "");
}

} // namespace
