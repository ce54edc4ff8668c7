// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The product of rows of int8 with a matrix of int8 by matrix tiles (AMX),
// scaled by row and column, written by hand: what may be asked of the compiler
// for quantised rows and their product. Quantising the rows and laying out
// either side are not timed, so that this is less than the whole.
//
//   ninja -C build/release product_tiles
//   build/release/bin/product_tiles
//
// prints a JSON line a number of threads, as acceptance.py --by-hand reads
// them; the bound is products of tiles from registers, timed in between.
// Answers are checked before they are timed.
#include "Tiles.h"

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <immintrin.h>
#include <random>
#include <thread>
#include <vector>

namespace {

constexpr int kM = 1024, kN = 4096, kJ = 4096; ///< rows, sum, columns
constexpr int kBlock = 32;    ///< rows and columns of 2 x 2 tiles
constexpr int kColumns = 256; ///< that are multiplied while rows are there
constexpr int kDepth = 512;   ///< of the sum, so that 32 rows stay in L1
constexpr int kStep = 64;     ///< of the sum, in one tile

template <typename T> using Array = std::vector<T, OnLines<T>>;

struct Problem {
  Array<int8_t> x, w;   ///< row by row
  Array<float> xs, ws;  ///< of rows, of columns
  Array<int8_t> left;   ///< [row / 16][sum / 64][16][64]
  Array<int8_t> panels; ///< [column / 32][sum / 4][32][4]
  Array<float> y;
};

Problem makeProblem() {
  Problem p{Array<int8_t>(size_t(kM) * kN),
            Array<int8_t>(size_t(kN) * kJ),
            Array<float>(kM),
            Array<float>(kJ),
            Array<int8_t>(size_t(kM) * kN),
            Array<int8_t>(size_t(kN) * kJ),
            Array<float>(size_t(kM) * kJ)};
  std::mt19937 random(1);
  for (Array<int8_t> *bytes : {&p.x, &p.w})
    for (int8_t &b : *bytes)
      b = int8_t(int(random() % 255) - 127);
  for (Array<float> *scales : {&p.xs, &p.ws})
    for (float &s : *scales)
      s = 0.001f * float(1 + random() % 1000);
  for (int i = 0; i < kM; ++i)
    for (int n = 0; n < kN; ++n)
      p.left[size_t(i / 16 * 16) * kN + n / kStep * 16 * kStep +
             i % 16 * kStep + n % kStep] = p.x[size_t(i) * kN + n];
  for (int n = 0; n < kN; ++n)
    for (int j = 0; j < kJ; ++j)
      p.panels[size_t(j / kBlock * kBlock) * kN + n / 4 * kBlock * 4 +
               j % kBlock * 4 + n % 4] = p.w[size_t(n) * kJ + j];
  return p;
}

/// 32 rows by 32 columns over `kDepth` of the sum, into `sums`.
void addBlock(const int8_t *left, const int8_t *panel, int32_t *sums,
              bool isFirst) {
  constexpr int kRowBytes = kBlock * 4;
  if (isFirst) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, kRowBytes);
    _tile_loadd(1, sums + 16, kRowBytes);
    _tile_loadd(2, sums + 16 * kBlock, kRowBytes);
    _tile_loadd(3, sums + 16 * kBlock + 16, kRowBytes);
  }
  for (int n = 0; n < kDepth; n += kStep) {
    _tile_loadd(6, panel + n * kBlock, kRowBytes);
    _tile_loadd(4, left + n * 16, kStep);
    _tile_loadd(7, panel + n * kBlock + 64, kRowBytes);
    _tile_loadd(5, left + size_t(16) * kN + n * 16, kStep);
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_stored(0, sums, kRowBytes);
  _tile_stored(1, sums + 16, kRowBytes);
  _tile_stored(2, sums + 16 * kBlock, kRowBytes);
  _tile_stored(3, sums + 16 * kBlock + 16, kRowBytes);
}

/// Columns [first, end).
void multiply(Problem &p, int first, int end) {
  alignas(64) static thread_local int32_t sums[kColumns * kBlock];
  for (int j = first; j < end; j += kColumns)
    for (int i = 0; i < kM; i += kBlock) {
      for (int n = 0; n < kN; n += kDepth)
        for (int c = 0; c < kColumns; c += kBlock)
          addBlock(&p.left[size_t(i) * kN + n * 16],
                   &p.panels[size_t(j + c) * kN + size_t(n) * kBlock],
                   sums + c * kBlock, n == 0);
      for (int r = 0; r < kBlock; ++r)
        for (int c = 0; c < kColumns; c += 16) {
          __m512i sum = _mm512_load_si512(sums + c / kBlock * kBlock * kBlock +
                                          r * kBlock + c % kBlock);
          __m512 y = _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum),
                                                 _mm512_set1_ps(p.xs[i + r])),
                                   _mm512_load_ps(&p.ws[j + c]));
          _mm512_stream_ps(&p.y[size_t(i + r) * kJ + j + c], y);
        }
    }
  _mm_sfence();
}

/// Each thread's own columns, together; ms from the first to the last.
double timeOf(int threads, const std::function<void(int)> &work) {
  std::barrier together(threads);
  double begin = 0, end = 0;
  auto run = [&](int thread) {
    beginTiles();
    together.arrive_and_wait();
    if (thread == 0)
      begin = now();
    together.arrive_and_wait();
    work(thread);
    together.arrive_and_wait();
    if (thread == 0)
      end = now();
    _tile_release();
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread)
    others.emplace_back(run, thread);
  run(0);
  for (std::thread &other : others)
    other.join();
  return end - begin;
}

/// Some thousand results against exact sums.
bool isRight(const Problem &p) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 4096; ++trial) {
    int i = int(random() % kM), j = int(random() % kJ);
    int64_t sum = 0;
    for (int n = 0; n < kN; ++n)
      sum += int(p.x[size_t(i) * kN + n]) * int(p.w[size_t(n) * kJ + j]);
    double want = double(sum) * p.xs[i] * p.ws[j];
    if (!(std::abs(p.y[size_t(i) * kJ + j] - want) <= 1e-6 * std::abs(want))) {
      std::fprintf(stderr, "error: found %g at %d, %d, expected %g\n",
                   p.y[size_t(i) * kJ + j], i, j, want);
      return false;
    }
  }
  return true;
}

/// As many products of tiles from registers, ms.
double timeOfRegisters(int threads) {
  constexpr int64_t kProducts = int64_t(kM) * kN * kJ / (16 * 16 * kStep) / 4;
  return timeOf(threads, [&](int) {
    for (int64_t step = 0; step < kProducts / threads; ++step) {
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 4, 7);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    }
  });
}

double medianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

} // namespace

int main() {
  if (!beginTiles()) {
    std::fputs("error: found no matrix tiles (AMX)\n", stderr);
    return 3;
  }
  _tile_release();
  Problem p = makeProblem();
  for (int threads : {1, 2}) {
    int each = kJ / threads;
    auto work = [&](int thread) {
      multiply(p, thread * each, (thread + 1) * each);
    };
    std::fill(p.y.begin(), p.y.end(), 0.0f);
    timeOf(threads, work);
    if (!isRight(p))
      return 1;
    std::vector<double> times, bounds;
    for (int round = 0; round < 15; ++round) {
      times.push_back(timeOf(threads, work));
      bounds.push_back(timeOfRegisters(threads));
    }
    std::printf("{\"workload\": \"quantised_product\", \"dtype\": \"f32\", "
                "\"shape\": {\"m\": %d, \"n\": %d, \"j\": %d}, \"threads\": "
                "%d, \"ms\": %.4g, \"bound_ms\": %.4g, \"kernel\": "
                "\"product_tiles\"}\n",
                kM, kN, kJ, threads, medianOf(times), medianOf(bounds));
  }
}
