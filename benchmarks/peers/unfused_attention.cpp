// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention as it is written without fusion: two products of oneDNN and a
// softmax over rows of the score matrix between them, one head a thread. The
// baseline that `refold bench --baseline unfused` must stay close to.
//
//   unfused_attention b=1,h=8,m=2048,n=2048,d=64,e=64 THREADS
//
// Prints {"ms": median, "error": worst sampled row against double}.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <dnnl.h>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

extern "C" void omp_set_num_threads(int);

namespace {

struct Shape {
  long b = 1, h = 8, m = 2048, n = 2048, d = 64, e = 64;
};

struct Arrays {
  std::vector<float> q, k, v, o;
};

bool readShape(const std::string &text, Shape &shape) {
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    long *target = nullptr;
    if (part.size() > 2 && part[1] == '=')
      switch (part[0]) {
      case 'b':
        target = &shape.b;
        break;
      case 'h':
        target = &shape.h;
        break;
      case 'm':
        target = &shape.m;
        break;
      case 'n':
        target = &shape.n;
        break;
      case 'd':
        target = &shape.d;
        break;
      case 'e':
        target = &shape.e;
        break;
      }
    if (!target)
      return false;
    *target = std::atol(part.c_str() + 2);
    if (*target < 1 || *target > 1 << 20)
      return false;
  }
  return true;
}

/// The three loops of a numerically safe softmax; the compiler vectorises them
/// and takes exp from libmvec.
void softmaxRows(float *s, long rows, long n, float scale) {
  for (long r = 0; r < rows; ++r, s += n) {
    float largest = -std::numeric_limits<float>::max(), sum = 0;
    for (long j = 0; j < n; ++j)
      largest = std::max(largest, s[j]);
    for (long j = 0; j < n; ++j) {
      s[j] = std::exp((s[j] - largest) * scale);
      sum += s[j];
    }
    float inverse = 1 / sum;
    for (long j = 0; j < n; ++j)
      s[j] *= inverse;
  }
}

void attend(const Shape &x, Arrays &a, std::vector<std::vector<float>> &scores,
            std::atomic<long> &next, unsigned thread) {
  omp_set_num_threads(1);
  std::vector<float> &s = scores[thread];
  for (long head; (head = next++) < x.b * x.h;) {
    dnnl_sgemm('N', 'T', x.m, x.n, x.d, 1, &a.q[head * x.m * x.d], x.d,
               &a.k[head * x.n * x.d], x.d, 0, s.data(), x.n);
    softmaxRows(s.data(), x.m, x.n, 1 / std::sqrt(float(x.d)));
    dnnl_sgemm('N', 'N', x.m, x.e, x.n, 1, s.data(), x.n,
               &a.v[head * x.n * x.e], x.e, 0, &a.o[head * x.m * x.e], x.e);
  }
}

double worstError(const Shape &x, const Arrays &a) {
  double worst = 0;
  for (long sample = 0; sample < 32; ++sample) {
    long row = sample * 7919 % (x.b * x.h * x.m), head = row / x.m;
    std::vector<double> p(x.n);
    double largest = std::numeric_limits<double>::lowest(), sum = 0;
    for (long j = 0; j < x.n; ++j) {
      double s = 0;
      for (long d = 0; d < x.d; ++d)
        s += double(a.q[row * x.d + d]) * a.k[(head * x.n + j) * x.d + d];
      largest = std::max(largest, p[j] = s / std::sqrt(double(x.d)));
    }
    for (double &one : p)
      sum += one = std::exp(one - largest);
    double distance = 0, size = 0;
    for (long e = 0; e < x.e; ++e) {
      double o = 0;
      for (long j = 0; j < x.n; ++j)
        o += p[j] / sum * a.v[(head * x.n + j) * x.e + e];
      distance = std::max(distance, std::abs(a.o[row * x.e + e] - o));
      size = std::max(size, std::abs(o));
    }
    worst = std::max(worst, distance / size);
  }
  return worst;
}

} // namespace

int main(int argc, char **argv) {
  Shape x;
  unsigned threads = argc > 2 ? std::atoi(argv[2]) : 0;
  if (argc != 3 || !readShape(argv[1], x) || threads < 1 || threads > 256) {
    std::fputs("usage: unfused_attention b=1,h=8,m=2048,n=2048,d=64,e=64 "
               "THREADS\n",
               stderr);
    return 2;
  }
  Arrays a;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  auto fill = [&](std::vector<float> &array, long count) {
    array.resize(count);
    for (float &one : array)
      one = normal(random);
  };
  fill(a.q, x.b * x.h * x.m * x.d);
  fill(a.k, x.b * x.h * x.n * x.d);
  fill(a.v, x.b * x.h * x.n * x.e);
  a.o.resize(x.b * x.h * x.m * x.e);
  std::vector<std::vector<float>> scores(threads,
                                         std::vector<float>(x.m * x.n));
  std::vector<double> times;
  for (int round = 0; round < 8; ++round) {
    auto start = std::chrono::steady_clock::now();
    std::atomic<long> next{0};
    std::vector<std::thread> others;
    for (unsigned t = 1; t < threads; ++t)
      others.emplace_back([&, t] { attend(x, a, scores, next, t); });
    attend(x, a, scores, next, 0);
    for (std::thread &other : others)
      other.join();
    std::chrono::duration<double, std::milli> took =
        std::chrono::steady_clock::now() - start;
    if (round) // the first touches pages
      times.push_back(took.count());
  }
  std::sort(times.begin(), times.end());
  std::printf("{\"ms\": %.3f, \"error\": %.2e}\n", times[times.size() / 2],
              worstError(x, a));
}
