// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/GpuPlan.h"
#include "refold/Support/Error.h"

namespace refold {

std::string GpuCard::source() const {
  return isAssumed ? "assumed: " + why : "the GPU of this machine";
}

/// The card that the text of a target was timed on, by its data sheet.
static package::GpuFacts usualCard(bool isSm90) {
  package::GpuFacts facts;
  facts.name = isSm90 ? "NVIDIA H200" : "NVIDIA A100-SXM4-80GB";
  facts.major = isSm90 ? 9 : 8;
  facts.multiprocessors = isSm90 ? 132 : 108;
  facts.memoryBytes = isSm90 ? 141000000000 : 80000000000;
  facts.l2Bytes = (isSm90 ? 50 : 40) * int64_t(1 << 20);
  facts.sharedBytesPerBlock = (isSm90 ? 227 : 163) * int64_t(1 << 10);
  facts.cyclesAMs = isSm90 ? 1980000 : 1410000;
  facts.memoryBytesAMs = isSm90 ? 4800000000 : 2039000000;
  return facts;
}

llvm::Expected<GpuCard> cardFor(llvm::StringRef target) {
  if (target != "cuda" && target != "cuda-sm80" && target != "cuda-sm90")
    return fail(ExitCode::Usage,
                "found the target '" + target +
                    "', expected avx512, avx2, baseline, cuda, cuda-sm80 or "
                    "cuda-sm90");
  GpuCard card;
  package::Outcome<package::GpuFacts> gpu = package::findGpu();
  if (gpu && (target == "cuda" || target == "cuda-sm80" ||
              gpu->textTarget() == target)) {
    card.facts = *gpu;
  } else {
    card.facts = usualCard(target != "cuda-sm80");
    card.isAssumed = true;
    card.why = gpu ? "the GPU '" + gpu->name + "' runs other text"
                   : gpu.error().message.substr(
                         0, gpu.error().message.find_first_of(":;,"));
  }
  card.rates = ratesOf(card.facts);
  return card;
}

GpuRates ratesOf(const package::GpuFacts &facts) {
  package::GpuFacts usual = usualCard(facts.major >= 9);
  // Of its peak a read, and a copy, get (H200, H100 and A100, cuda-rows.md).
  constexpr double kRead = 0.935, kCopied = 0.885;
  // Of the matrix units' peak at the highest clock, which they do not keep.
  constexpr double kSustained = 0.76;
  GpuRates rates;
  rates.units = std::max(facts.multiprocessors, 1);
  rates.cycles =
      double(facts.cyclesAMs > 0 ? facts.cyclesAMs : usual.cyclesAMs);
  double memory = double(facts.memoryBytesAMs > 0 ? facts.memoryBytesAMs
                                                  : usual.memoryBytesAMs);
  rates.memory = kRead * memory;
  rates.copied = kCopied * memory;
  rates.cacheBytes = double(facts.l2Bytes);
  // A multiprocessor takes 64 bytes a cycle, all of them together some 60 % of
  // that (products of 16 bits on an H200 have 8.5 TB/s of it).
  rates.cache = 0.6 * 64.0 * rates.units * rates.cycles;
  bool isOld = facts.major < 9;
  bool isSmall = facts.major == 8 && facts.minor > 0; // 8.6 and 8.9
  rates.multiplied = kSustained *
                     (isSmall ? 512.0
                      : isOld ? 1024.0
                              : 2048.0) *
                     rates.units * rates.cycles;
  rates.warpShare = isOld ? 1.0 : 0.62;
  rates.byteShare = isOld ? 1.0 : 2.0;
  rates.sumsACycle = isOld && !isSmall ? 64.0 : 128.0;
  return rates;
}

Occupancy occupancyOf(const package::GpuFacts &gpu, int64_t threads,
                      int64_t registers, int64_t sharedBytes) {
  // CUDA C++ Programming Guide, "Compute capabilities".
  constexpr int64_t kWarp = 32, kRegisters = 65536, kRegistersAtOnce = 256;
  constexpr int64_t kReserved = 1024;
  bool isSmall = (gpu.major == 8 && gpu.minor > 0) || gpu.major == 12;
  int64_t mostThreads = isSmall ? 1536 : 2048;
  int64_t mostBlocks = gpu.major == 8 && gpu.minor > 0 && gpu.minor < 9 ? 16
                       : isSmall                                        ? 24
                                                                        : 32;
  int64_t warps = (threads + kWarp - 1) / kWarp;
  Occupancy found;
  found.mostWarps = mostThreads / kWarp;
  found.blocks = mostBlocks;
  found.bound = "blocks";
  auto limit = [&](int64_t blocks, const char *bound) {
    if (blocks < found.blocks) {
      found.blocks = blocks;
      found.bound = bound;
    }
  };
  limit(found.mostWarps / std::max<int64_t>(warps, 1), "threads");
  if (registers > 0) {
    int64_t ofWarp = (registers * kWarp + kRegistersAtOnce - 1) /
                     kRegistersAtOnce * kRegistersAtOnce;
    limit(kRegisters / ofWarp / std::max<int64_t>(warps, 1), "registers");
  }
  limit((gpu.sharedBytesPerBlock + kReserved) / (sharedBytes + kReserved),
        "shared memory");
  found.warps = found.blocks * warps;
  return found;
}

} // namespace refold
