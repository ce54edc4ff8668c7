// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of floats of 8 bits with roles in the emulator, and the same with a
// defect planted in what they are written in: each has to be reported, or to
// give a wrong answer.
#include "WeightedRows.h"
#include <cstring>

using namespace refold;
using namespace refold::test;

namespace {

// Two results of one product: with numbers of the row and the column in 16
// bits, and with that of the column alone in 32.
constexpr llvm::StringLiteral kScaled = R"(
func.func @kernel(%q: memref<?x?xf8E4M3FN>, %w: memref<?x?xf8E4M3FN>, %s: memref<?xf32>, %t: memref<?xf32>,
                  %y: memref<?x?xbf16>, %z: memref<?x?xf32>) {
  refold.cascade rows(%m = ?, %n = ?) inner(%k = ?)
    ins(%a = %q : memref<?x?xf8E4M3FN>, %b = %w : memref<?x?xf8E4M3FN>, %c = %s : memref<?xf32>, %d = %t : memref<?xf32>)
    outs(%e = %y : memref<?x?xbf16>, %f = %z : memref<?x?xf32>)
    sizes(%m = %a[0], %n = %b[0], %k = %a[1])
    attributes {refold.final = array<i1: true, true>} {
    %av = refold.read %a[%m, %k] : f8E4M3FN
    %af = arith.extf %av : f8E4M3FN to f32
    %bv = refold.read %b[%n, %k] : f8E4M3FN
    %bf = arith.extf %bv : f8E4M3FN to f32
    %p = arith.mulf %af, %bf : f32
    %sum = refold.contract %p over(%k) : f32
    %row = refold.read %c[%m] : f32
    %column = refold.read %d[%n] : f32
    %scaled = arith.mulf %sum, %row : f32
    %x = arith.mulf %scaled, %column : f32
    %narrow = arith.truncf %x : f32 to bf16
    refold.write %narrow, %e[%m, %n] : bf16
    %other = arith.addf %sum, %column : f32
    refold.write %other, %f[%m, %n] : f32
  }
  return
})";

CudaKernel printScaled() {
  auto context = makeContext();
  auto kernel = printCudaKernel(*context, "scaled", kScaled, "test",
                                {CudaDevice::Emulated, "cuda-emulated-sm90"});
  if (!kernel) {
    ADD_FAILURE() << llvm::toString(kernel.takeError());
    return {};
  }
  return std::move(*kernel);
}

/// f8E4M3FN of whole numbers from -4 to 4.
std::vector<uint8_t> drawnBytes(int64_t rows, int64_t n, int step) {
  constexpr uint8_t kCodes[] = {0xc8, 0xc4, 0xc0, 0xb8, 0x00,
                                0x38, 0x40, 0x44, 0x48};
  std::vector<uint8_t> x(rows * n);
  for (int64_t i = 0; i < rows * n; ++i)
    x[i] = kCodes[(i * step + i / n * 5 + i / 128) % 9];
  return x;
}
double valueOf(uint8_t code) {
  double x =
      code & 0x7f ? std::ldexp(8 + (code & 7), (code >> 3 & 15) - 10) : 0;
  return code & 0x80 ? -x : x;
}

/// What is wrong with the kernel for some sizes, "" if nothing: sums of small
/// whole numbers are exact.
std::string judge(const Kernel &kernel, int64_t m, int64_t n, int64_t d) {
  std::vector<uint8_t> q = drawnBytes(m, d, 7), w = drawnBytes(n, d, 4);
  std::vector<float> s(m), t(n), z(m * n);
  std::vector<uint16_t> y(m * n);
  for (int64_t i = 0; i < m; ++i)
    s[i] = std::ldexp(1.0f, int(i % 5) - 2);
  for (int64_t j = 0; j < n; ++j)
    t[j] = float(j % 7 + 1);
  std::vector<int64_t> words;
  auto add = [&](void *array, std::vector<int64_t> sizes) {
    int64_t at = int64_t(reinterpret_cast<intptr_t>(array));
    words.insert(words.end(), {at, at, 0});
    words.insert(words.end(), sizes.begin(), sizes.end());
    if (sizes.size() == 2)
      words.push_back(sizes[1]);
    words.push_back(1);
  };
  add(q.data(), {m, d}), add(w.data(), {n, d}), add(s.data(), {m});
  add(t.data(), {n}), add(y.data(), {m, n}), add(z.data(), {m, n});
  if (llvm::Error error = kernel.launch(words.data()))
    return llvm::toString(std::move(error));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0.0;
      for (int64_t k = 0; k < d; ++k)
        sum += valueOf(q[i * d + k]) * valueOf(w[j * d + k]);
      double scaled = sum * s[i] * t[j];
      if (z[i * n + j] != float(sum + t[j]) ||
          !(std::abs(toFloat(y[i * n + j]) - scaled) <=
            std::abs(scaled) * 0x1p-8))
        return "found a wrong sum";
    }
  return "";
}

std::string judgeAll(const CudaKernel &printed, const char *entry) {
  ExecutableSpec spec;
  setenv("REFOLD_CUDA_ENTRY", entry, 1);
  llvm::Error error = attachEmulated(spec, {printed});
  unsetenv("REFOLD_CUDA_ENTRY");
  if (error)
    return "does not compile: " + llvm::toString(std::move(error));
  // Ragged rows, columns and steps, more steps than are under way, several
  // rectangles for a block.
  for (auto [m, n, d] :
       {std::array<int64_t, 3>{130, 520, 16}, {70, 136, 528}, {3, 8, 16}})
    if (std::string wrong = judge(spec.kernels.front(), m, n, d);
        !wrong.empty())
      return std::string(entry) + ": " + wrong;
  return "";
}

class PlantedF8RolesDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedF8RolesDefect, IsCaught) {
  CudaKernel kernel = printScaled();
  carryHeader(kernel, "refold_cuda_products_f8_roles.h",
              "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_F8_ROLES_H");
  plant(kernel, GetParam());
  expectCaught(judgeAll(kernel, "f8Roles128x256x16"), GetParam());
}

const std::vector<Defect> kDefects = {
    // Boxes on their way out.
    Defect{"wait_boxes<1>();", ""},
    Defect{"wait_boxes<1>();", "wait_boxes<2>();"},
    Defect{"        show_matrices();\n        warp_barrier();",
           "        warp_barrier();"},
    Defect{"        show_matrices();\n        warp_barrier();",
           "        show_matrices();"},
    Defect{"commit_boxes();", ""},
    Defect{"      wait_boxes<0>();", "      wait_boxes<1>();"},
    Defect{"store_box(target.maps",
           "if (first % 16 == 0) store_box(target.maps"},
    Defect{"first / 8 % 2 * Out::kBytes", "0"},
    Defect{"out + (warp - 4) * kOutBytes", "out"},
    Defect{"int(target.column0 + first * 8) * 2",
           "int(target.column0 + first * 8)"},
    Defect{"Out::place(lane % 16, first % 8 + lane / 16)",
           "Out::place(lane % 16, first % 8)"},
    Defect{"words[c * 2 + half]", "words[half * 2 + c]"},
    // Maps.
    Defect{"ring, Left::kBytes, depth, maps + 1",
           "ring, Left::kBytes, depth, maps"},
    Defect{"maps + 2}", "maps + 1}"},
    // Numbers of rows and columns.
    Defect{"        await_turn(kCame + group, kTurnThreads);\n        write",
           "        write"},
    Defect{"        pass_turn(kGone + group, kTurnThreads);", "        ;"},
    Defect{"          await_turn(kGone + group, kTurnThreads);", "          ;"},
    Defect{"if (at + blocks() < all)", "if (true)"},
    Defect{"target.own + fragment_row(0)", "fragment_row(0)"},
    Defect{"return result.element(of_row[half],",
           "return result.element(of_row[0],"},
    Defect{"of_column.numbers[e]", "of_column.numbers[0]"},
    Defect{"target.of_columns.load(column / 2)",
           "target.of_columns.load(column % 128 / 2)"},
    Defect{"smaller(row0 + i, rows - 1)", "row0 + i"},
    Defect{"smaller(column0 + 2 * i + e, columns - 1)", "column0 + 2 * i + e"},
    Defect{"row0 = block_quotient(at, across) * kRows;", "row0 = 0;"},
    // Steps.
    Defect{"make_gate(ring.came + 8 * place, 2);",
           "make_gate(ring.came + 8 * place, 1);"},
    Defect{"make_gate(ring.gone + 8 * place, 4 * kGroups);",
           "make_gate(ring.gone + 8 * place, 4 * kGroups - 1);"},
    Defect{"wait_gate(ring.gone + 8 * place.at, place.parity ^ 1);", ""},
    Defect{"wait_gate(ring.came + 8 * place.at, place.parity);", ""},
    Defect{"arrive_expecting(came, kBoxRows * int(kDepth));",
           "arrive_expecting(came, kBoxRows * int(kDepth) / 2);"},
    Defect{"parity ^= at == 0;", ""},
    Defect{"at + 1 == kStages ? 0 : at + 1", "at + 1 == kStages ? 1 : at + 1"},
    Defect{"begin_products();", ""}, Defect{"commit_products();", ""},
    Defect{"wait_products<0>();\n        settle(part);", "settle(part);"},
    Defect{"        if (half + 1 == kHalves)\n", "        if (half == 0)\n"},
    Defect{"half * 128 * 128", "0"}, Defect{"left + group * 64 * 128", "left"},
    Defect{"sums[half * kHalfParts + c][i] += part[c][i]",
           "sums[c][i] += part[c][i]"},
    Defect{"add_step(Number<1>{});", "add_step(Number<0>{});"},
    Defect{"{ return block_remainder(at, across) * kColumns; }",
           "{ return 0; }"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedF8RolesDefect,
                         testing::ValuesIn(chosenDefects(kDefects)));

TEST(EmulatedF8Roles, AGeneratedKernelIsRight) {
  CudaKernel kernel = printScaled();
  for (const char *entry : {"f8Roles128x256x16", "f8Roles128x128x16"})
    EXPECT_EQ(judgeAll(kernel, entry), "");
}

TEST(EmulatedF8Roles, WhatTheLaunchSaysOfArraysMatters) {
  constexpr const char *kEntry = "f8Roles128x256x16";
  expectMapsMatter(printScaled(), kEntry, [](const CudaKernel &kernel) {
    return judgeAll(kernel, kEntry);
  });
}

} // namespace
