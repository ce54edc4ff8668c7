// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What this machine can do, asked for between other measurements: a line in, a
// line out.
//
//   fma THREADS | bf16 THREADS | vnni THREADS    operations a millisecond
//   read THREADS BYTES | copy THREADS BYTES      bytes a millisecond
//
// The answer is {"rate": R, "best": B} of a few short rounds of all threads
// together, zeros where the instruction is missing. The rate is their median
// but for the first, as of every program that takes turns with the probe: what
// a shared machine does in its best moment bounds no median. A copy counts what
// it reads and what it writes, past the caches. It runs where it is built.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <immintrin.h>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using Vector = float __attribute__((vector_size(64)));
// Enough to hide the latency of an fma, and as many as registers hold: without
// AVX-512 a vector is two of them.
#ifdef __AVX512F__
constexpr int kSums = 12;
#else
constexpr int kSums = 6;
#endif
constexpr int64_t kSteps = 20000, kLanes = 16;
constexpr int64_t kPage = int64_t(2) << 20;

volatile float sink;

void keep(Vector x) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i)
    sum += x[i];
  sink = sum;
}

double multiplyAndAdd() {
  Vector sums[kSums];
  for (int i = 0; i < kSums; ++i)
    sums[i] = Vector{} + (static_cast<float>(i) + 0.5f);
  Vector a = Vector{} + 0.999f, b = Vector{} + 0.001f;
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma clang loop unroll(full)
    for (int i = 0; i < kSums; ++i)
      sums[i] = sums[i] * a + b;
    asm volatile("" ::: "memory");
  }
  for (int i = 1; i < kSums; ++i)
    sums[0] += sums[i];
  keep(sums[0]);
  return 2.0 * kLanes * kSums * kSteps;
}

double dotBf16() {
#ifdef __AVX512BF16__
  __m512 sums[kSums] = {};
  __m512bh one = (__m512bh)_mm512_set1_epi16(0x3f80);
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma clang loop unroll(full)
    for (int i = 0; i < kSums; ++i)
      sums[i] = _mm512_dpbf16_ps(sums[i], one, one);
    asm volatile("" ::"v"(sums[0]));
  }
  for (int i = 1; i < kSums; ++i)
    sums[0] += sums[i];
  keep((Vector)sums[0]);
  return 4.0 * kLanes * kSums * kSteps;
#else
  return 0;
#endif
}

double dotInt8() {
#ifdef __AVX512VNNI__
  __m512i sums[kSums] = {};
  __m512i three = _mm512_set1_epi8(3);
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma clang loop unroll(full)
    for (int i = 0; i < kSums; ++i)
      sums[i] = _mm512_dpbusd_epi32(sums[i], three, three);
    asm volatile("" ::"v"(sums[0]));
  }
  for (int i = 1; i < kSums; ++i)
    sums[0] = _mm512_add_epi32(sums[0], sums[i]);
  keep((Vector)sums[0]);
  return 8.0 * kLanes * kSums * kSteps;
#else
  return 0;
#endif
}

#if defined(__AMX_INT8__) && defined(__AMX_BF16__) && defined(__linux__)
/// Registers of 16 rows of 64 bytes, if the kernel gives them.
bool beginTiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  static const bool may =
      syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  alignas(64) uint8_t layout[64] = {1};
  for (int tile = 0; tile < 8; ++tile) {
    layout[16 + 2 * tile] = 64;
    layout[48 + tile] = 16;
  }
  if (may)
    _tile_loadconfig(layout);
  return may;
}

/// Four sums of two tiles by two, over and over.
double tileBf16() {
  if (!beginTiles())
    return 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 2.0 * 16 * 16 * 32 * 4 * kSteps;
}

double tileInt8() {
  if (!beginTiles())
    return 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
  return 2.0 * 16 * 16 * 64 * 4 * kSteps;
}
#else
double tileBf16() { return 0; }
double tileInt8() { return 0; }
#endif

/// Zeroed memory in large pages where the system has them.
struct Array {
  explicit Array(int64_t bytes) : bytes((bytes / kPage + 2) * kPage) {
    void *at = mmap(nullptr, this->bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
      std::fputs("error: found no memory for a probe\n", stderr);
      std::exit(1);
    }
    madvise(at, this->bytes, MADV_HUGEPAGE);
    data = static_cast<float *>(at);
    for (int64_t i = 0; i < this->bytes / 4; i += 1024)
      data[i] = 1;
  }
  ~Array() { munmap(data, bytes); }
  Array(const Array &) = delete;
  Array &operator=(const Array &) = delete;
  int64_t bytes;
  float *data = nullptr;
};

constexpr int64_t kBlock = 8 * kLanes;

double readAll(const float *data, int64_t count, int64_t ahead) {
  Vector sums[8] = {};
  for (int64_t i = 0; i + kBlock <= count; i += kBlock) {
#pragma clang loop unroll(full)
    for (int k = 0; k < 8; ++k) {
      sums[k] += *reinterpret_cast<const Vector *>(data + i + k * kLanes);
      if (ahead)
        __builtin_prefetch(data + i + k * kLanes + ahead);
    }
  }
  for (int k = 1; k < 8; ++k)
    sums[0] += sums[k];
  keep(sums[0]);
  return 4.0 * count;
}

double copyAll(const float *from, float *to, int64_t count) {
  for (int64_t i = 0; i + kBlock <= count; i += kBlock)
#pragma clang loop unroll(full)
    for (int k = 0; k < 8; ++k)
      __builtin_nontemporal_store(
          *reinterpret_cast<const Vector *>(from + i + k * kLanes),
          reinterpret_cast<Vector *>(to + i + k * kLanes));
  _mm_sfence();
  return 8.0 * count;
}

/// Units a millisecond of all threads.
struct Rate {
  double median = 0, best = 0;
};

Rate fasterOf(Rate one, Rate other) {
  return {std::max(one.median, other.median), std::max(one.best, other.best)};
}

/// `call` says how many units it did.
Rate rateOf(int threads, const std::function<double(int)> &call) {
  using Clock = std::chrono::steady_clock;
  constexpr double kRoundMs = 2.0;
  constexpr int kRounds = 8;
  std::vector<double> rates(threads), ofRounds;
  std::barrier together(threads);
  auto work = [&](int thread) {
    for (int round = 0; round < kRounds; ++round) {
      together.arrive_and_wait();
      auto begin = Clock::now();
      double units = 0, ms = 0;
      while (ms < kRoundMs) {
        units += call(thread);
        ms = std::chrono::duration<double, std::milli>(Clock::now() - begin)
                 .count();
      }
      rates[thread] = units / ms;
      together.arrive_and_wait();
      if (thread)
        continue;
      double total = 0;
      for (double rate : rates)
        total += rate;
      if (round)
        ofRounds.push_back(total);
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread)
    others.emplace_back(work, thread);
  work(0);
  for (std::thread &other : others)
    other.join();
  std::sort(ofRounds.begin(), ofRounds.end());
  return {ofRounds[ofRounds.size() / 2], ofRounds.back()};
}

Rate rateOfMemory(const std::string &what, int threads, double bytes) {
  bool isCopy = what == "copy";
  int64_t each = static_cast<int64_t>(bytes / threads / (isCopy ? 2 : 1));
  each = std::clamp<int64_t>(each, 16 << 10, int64_t(1) << 30);
  int64_t count = each / 4 / kBlock * kBlock;
  std::vector<std::unique_ptr<Array>> from, to;
  for (int thread = 0; thread < threads; ++thread) {
    from.push_back(std::make_unique<Array>(each));
    if (isCopy)
      to.push_back(std::make_unique<Array>(each));
  }
  if (isCopy)
    return rateOf(threads, [&](int t) {
      return copyAll(from[t]->data, to[t]->data, count);
    });
  Rate faster;
  for (int64_t ahead : {0, 2048}) // floats: 8 KB
    faster = fasterOf(faster, rateOf(threads, [&](int t) {
                        return readAll(from[t]->data, count, ahead);
                      }));
  return faster;
}

} // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what;
    int threads = 0;
    double bytes = 0;
    std::optional<Rate> rate;
    words >> what >> threads >> bytes;
    if (threads >= 1 && threads <= 1024) {
      if (what == "fma")
        rate = rateOf(threads, [](int) { return multiplyAndAdd(); });
      else if (what == "bf16")
        rate = fasterOf(rateOf(threads, [](int) { return dotBf16(); }),
                        rateOf(threads, [](int) { return tileBf16(); }));
      else if (what == "vnni")
        rate = fasterOf(rateOf(threads, [](int) { return dotInt8(); }),
                        rateOf(threads, [](int) { return tileInt8(); }));
      else if ((what == "read" || what == "copy") && bytes > 0)
        rate = rateOfMemory(what, threads, bytes);
    }
    if (!rate) {
      std::fprintf(stderr,
                   "error: found '%s', expected fma, bf16, vnni, read or copy, "
                   "threads, and bytes\n",
                   line.c_str());
      return 2;
    }
    std::printf("{\"rate\": %.6g, \"best\": %.6g}\n", rate->median, rate->best);
    std::fflush(stdout);
  }
}
