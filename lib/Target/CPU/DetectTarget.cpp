// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Target/CPU/DetectTarget.h"

#include "refold/Runtime/MatrixTiles.h"
#include "refold/Support/Error.h"
#include "refold/Support/NearestName.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/TargetParser/Host.h"
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <thread>
#include <unistd.h>

using namespace refold;

namespace {
struct Form {
  InstructionSet instructionSet;
  llvm::StringLiteral name;
  llvm::StringLiteral level; ///< x86-64 psABI level, as LLVM calls it
  llvm::ArrayRef<llvm::StringLiteral> needs;
  TargetFacts facts;
};
} // namespace

static constexpr llvm::StringLiteral kBaselineNeeds[] = {"sse4.2", "ssse3",
                                                         "popcnt"};
static constexpr llvm::StringLiteral kAVX2Needs[] = {"avx2", "fma", "f16c",
                                                     "bmi2"};
static constexpr llvm::StringLiteral kAVX512Needs[] = {
    "avx2",     "fma",      "f16c",     "avx512f",
    "avx512bw", "avx512cd", "avx512dq", "avx512vl"};

/// Best first.
static const Form (&forms())[3] {
  static const Form table[] = {{InstructionSet::AVX512, "avx512", "x86-64-v4",
                                kAVX512Needs, TargetFacts::avx512()},
                               {InstructionSet::AVX2, "avx2", "x86-64-v3",
                                kAVX2Needs, TargetFacts::avx2()},
                               {InstructionSet::Baseline, "baseline",
                                "x86-64-v2", kBaselineNeeds,
                                TargetFacts::baseline()}};
  return table;
}

llvm::StringRef refold::nameOf(InstructionSet instructionSet) {
  for (const Form &form : forms())
    if (form.instructionSet == instructionSet)
      return form.name;
  return "";
}

/// What this machine lacks for a form, or "".
static llvm::StringRef lacks(const Form &form,
                             const llvm::StringMap<bool> &host) {
  for (llvm::StringRef feature : form.needs)
    if (!host.lookup(feature))
      return feature;
  return "";
}

/// "32768K" of the kernel, for the first core.
static int64_t listedCacheBytes(llvm::StringRef index) {
  auto file = llvm::MemoryBuffer::getFileAsStream(
      "/sys/devices/system/cpu/cpu0/cache/index" + index + "/size");
  int64_t kibibytes = 0;
  if (!file || (*file)->getBuffer().trim().consumeInteger(10, kibibytes) ||
      kibibytes <= 0 || kibibytes >= (int64_t(1) << 32))
    return 0;
  return kibibytes * 1024;
}

int64_t refold::cacheBytes(unsigned level) {
  // The second is that of instructions.
  if (int64_t bytes = listedCacheBytes(level == 1   ? "0"
                                       : level == 2 ? "2"
                                                    : "3"))
    return bytes;
  long bytes = sysconf(level == 1   ? _SC_LEVEL1_DCACHE_SIZE
                       : level == 2 ? _SC_LEVEL2_CACHE_SIZE
                                    : _SC_LEVEL3_CACHE_SIZE);
  return std::max<int64_t>(bytes, 0);
}

/// Machines of which the dot product of pairs of bf16 is known to take no
/// longer than a multiplication and addition of f32: twice the products in a
/// cycle (Zen 4, Zen 5). Elsewhere it has half that rate (Sapphire Rapids).
static bool addsPairsFast(const llvm::StringMap<bool> &host) {
  llvm::StringRef name = llvm::sys::getHostCPUName();
  return host.lookup("avx512bf16") && (name == "znver4" || name == "znver5");
}

/// What tiles leave over is added in pairs and fours, whatever that takes.
static bool hasTiles(const llvm::StringMap<bool> &host) {
  return host.lookup("avx512bf16") && host.lookup("avx512vnni") &&
         mayUseMatrixTiles();
}

/// What was measured of processors, by LLVM's names for them. Of others nothing
/// is known: the facts stay as they are.
static void setFactsOfProcessor(TargetFacts &facts) {
  llvm::StringRef name = llvm::sys::getHostCPUName();
  if (name == "sapphirerapids") {
    // x[m, 4096] by 4096 x 4096, one thread, asked for and not: m = 128 24.2 to
    // 24.9 and 22.6 to 23.0 ms; 128 x 768 x 3072 3.4 and 3.15; a copy into
    // panels alone 14 GB/s and 18.
    facts.followsRows = true;
    facts.asksInOrder = true; // `Kernel::prefetchInOrder`
    // From memory (12 to 15 GB/s), one thread / two, ms, before and so: RMSNorm
    // to int8 32768 x 1024 19.9 and 14.8 / 9.1 and 6.4, LayerNorm 22.4 and 17.0
    // / 11.6 and 8.8, kurtosis 8192 x 4096 15.8 and 12.8 / 7.0 and 5.4, softmax
    // 17.4 and 16.6 / 9.5 and 9.0; logsumexp 32768 x 1024, five pairs of
    // processes, 0.94 to 1.23 of the time / 0.79 to 1.43 (medians 0.94, 0.97).
    facts.asksFarAhead = true;
    facts.sharesPorts = facts.vectorBits == 512;
  }
  if (name == "znver4") {
    // 4096 x 4096, one thread, ms, once (and into the first cache, but for
    // decoding) and so: LayerNorm 5.6 and 5.1, RMSNorm 4.5 and 4.1, to int8 3.9
    // and 3.6, softmax 6.2 and 5.4; variance 4.3 and 2.6 (not asking 3.7),
    // kurtosis 4.0 and 2.6 (3.7), KL divergence 8.2 and 6.6; decode 32/8 heads
    // of 128, 16384 keys, f32 6.8 and 5.8. By AVX2 (a Zen 4 without AVX-512),
    // not asked twice and so: LayerNorm 7.6 and 5.3, variance 3.3 and 2.4,
    // kurtosis 512 x 32768 5.5 and 4.1, RMSNorm 2048 x 4096 2.4 and 1.9, to
    // int8 3.6 and 2.9, decode f32 7.6 and 7.55, bf16 8.7 and 7.9.
    facts.asksTwice = facts.vectorBits >= 256;
    // `longestWrittenFirst`, one thread, ms, without and with: RMSNorm 128 x
    // 131072 6.7 and 4.4, to int8 6.8 and 5.3, 16 x 1048576 6.0 and 5.6,
    // LayerNorm 128 x 131072 6.6 and 5.5, softmax 5.7 and 5.4.
    facts.beginsNextRow = true;
    // Pairs of 512 bits, cycles: fma and fma 1.9, fma and add 1.1, fma and
    // vscalefps 1.9, add and vscalefps 2.9.
    facts.addsApart = facts.vectorBits == 512;
    // 118 GFLOP/s, one thread, ms, in groups from 33 rows on and panel by
    // panel: 384 x 1536 and back 12 times, 33 / 40 / 48 / 64 / 128 / 512 rows
    // 9.2 / 11.4 / 13.5 / 16.3 / 31.9 / 126.8 and 8.6 / 10.0 / 12.1 / 16.3 /
    // 32.2 / 127; 768 x 3072 and back, three times, 48 / 64 / 128 rows 13.4 /
    // 16.6 / 32.3 and 12.1 / 17.2 / 33.5.
    facts.mostRowsByPanel = 63;
  }
  if (name == "znver5") {
    // 48 KB and 1 MB, one thread, into the second cache and the first: decode
    // 32/8 heads of 128, 16384 keys, f32 6.5 and 4.8 ms, bf16 2.75 and 2.25;
    // LayerNorm 4096 x 4096 3.4 and 3.0. (Zen 4, 32 KB, decode: 8.6 and 14.2.)
    facts.asksIntoFirst = true;
    facts.asksInOrder = true;
    facts.beginsNextRow = true;
    // `Kernel::passByPanel`.
    facts.mostRowsByPanel = std::numeric_limits<int64_t>::max();
  }
}

/// A virtual machine lists the whole last cache of its host, which others use
/// too: no core counts for more. Sapphire Rapids, 2 of its cores, 300 MB
/// listed, softmax stored past the caches from 300 MB on and from 32 MB: 4096 x
/// 4096 5.7 and 4.8 ms, 16384 x 1024 5.1 and 3.9, 256 x 131072 22 and 12.5,
/// LayerNorm 4096 x 4096 5.1 and 4.7; with two threads alike. Of 16 MB there is
/// no difference.
int64_t refold::lastCacheOfCores(int64_t bytes, int64_t cores) {
  constexpr int64_t kLastCacheOfCore = 16 << 20;
  return std::min(bytes, cores * kLastCacheOfCore);
}

static CpuTarget makeTarget(const Form &form,
                            const llvm::StringMap<bool> &host) {
  CpuTarget target;
  target.instructionSet = form.instructionSet;
  target.facts = form.facts;
  if (int64_t bytes = cacheBytes(1))
    target.facts.l1Bytes = bytes;
  if (int64_t bytes = cacheBytes(2))
    target.facts.l2Bytes = bytes;
  target.facts.cores = std::max(1u, std::thread::hardware_concurrency());
  if (int64_t bytes = cacheBytes(3))
    target.facts.l3Bytes = lastCacheOfCores(bytes, target.facts.cores);
  // One CPU name and one feature list a form, not the host's: the code is then
  // the same on every machine that runs the form.
  target.cpuName = form.level.str();
  if (form.instructionSet == InstructionSet::AVX512)
    target.features =
        "-prefer-256-bit"; // LLVM's cost model would halve vectors
  if (form.instructionSet == InstructionSet::AVX512 &&
      host.lookup("avx512vnni")) {
    target.facts.hasByteDots = true;
    target.features += ",+avx512vnni";
  }
  return target;
}

llvm::Expected<CpuTarget> refold::detectTarget(llvm::StringRef wanted) {
  llvm::StringMap<bool> host = llvm::sys::getHostCPUFeatures();
  llvm::StringRef source = "the wanted target";
  if (wanted.empty()) {
    if (const char *environment = std::getenv("REFOLD_CPU")) {
      wanted = environment;
      source = "REFOLD_CPU";
    }
  }
  for (const Form &form : forms()) {
    llvm::StringRef missing = lacks(form, host);
    if (wanted.empty() && missing.empty()) {
      CpuTarget target = makeTarget(form, host);
      // A form that is asked for by name is the same on every machine.
      if (form.instructionSet == InstructionSet::AVX512 &&
          addsPairsFast(host)) {
        target.facts.addsPairs = true;
        target.features += ",+avx512bf16";
      }
      if (form.instructionSet == InstructionSet::AVX512 && hasTiles(host)) {
        target.facts.addsPairs = target.facts.multipliesTiles = true;
        target.features += ",+avx512bf16,+amx-tile,+amx-int8,+amx-bf16";
      }
      setFactsOfProcessor(target.facts);
      return target;
    }
    if (wanted != form.name)
      continue;
    if (!missing.empty())
      return fail(ExitCode::Unsupported, source + " is '" + wanted +
                                             "', but this machine lacks '" +
                                             missing + "'");
    return makeTarget(form, host);
  }
  if (wanted.empty())
    return fail(ExitCode::Unsupported,
                "this machine lacks '" + lacks(forms()[2], host) +
                    "'; code is generated for x86-64-v2 and later");
  static constexpr llvm::StringRef names[] = {"avx512", "avx2", "baseline"};
  return fail(ExitCode::Usage, source + " is '" + wanted +
                                   "', expected avx512, avx2 or baseline" +
                                   suggestion(wanted, names));
}
