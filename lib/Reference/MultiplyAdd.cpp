// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The one loop of the reference that is worth its instruction set: a whole
// encoder is mostly this.
#include <algorithm>
#include <cstdint>

namespace refold::reference {
void multiplyAdd(const double *a, const double *b, double *c, int64_t m,
                 int64_t n, int64_t k);
void multiplyAdd(const long double *a, const long double *b, long double *c,
                 int64_t m, int64_t n, int64_t k);
} // namespace refold::reference

namespace {

constexpr int64_t kRows = 4, kColumns = 16;
/// Columns and depth of a block of b that stays in the cache.
constexpr int64_t kBlockColumns = 128, kBlockDepth = 128;

/// c[kRows, kColumns] += a[kRows, k] b[k, kColumns], accumulators in registers.
inline __attribute__((always_inline)) void
tile(const double *__restrict a, int64_t lda, const double *__restrict b,
     int64_t ldb, double *__restrict c, int64_t ldc, int64_t k) {
  double sum[kRows][kColumns] = {};
  for (int64_t l = 0; l < k; ++l)
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t j = 0; j < kColumns; ++j)
        sum[r][j] += a[r * lda + l] * b[l * ldb + j];
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t j = 0; j < kColumns; ++j)
      c[r * ldc + j] += sum[r][j];
}

/// The same for what is left over at the edges.
inline void edge(const double *a, int64_t lda, const double *b, int64_t ldb,
                 double *c, int64_t ldc, int64_t m, int64_t n, int64_t k) {
  for (int64_t r = 0; r < m; ++r)
    for (int64_t l = 0; l < k; ++l)
      for (int64_t j = 0; j < n; ++j)
        c[r * ldc + j] += a[r * lda + l] * b[l * ldb + j];
}

} // namespace

#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void refold::reference::multiplyAdd(const double *a, const double *b, double *c,
                                    int64_t m, int64_t n, int64_t k) {
  for (int64_t n0 = 0; n0 < n; n0 += kBlockColumns)
    for (int64_t k0 = 0; k0 < k; k0 += kBlockDepth) {
      int64_t nEnd = std::min(n, n0 + kBlockColumns);
      int64_t depth = std::min(kBlockDepth, k - k0);
      for (int64_t i = 0; i < m; i += kRows) {
        int64_t rows = std::min(kRows, m - i);
        const double *from = a + i * k + k0;
        int64_t j = n0;
        if (rows == kRows)
          for (; j + kColumns <= nEnd; j += kColumns)
            tile(from, k, b + k0 * n + j, n, c + i * n + j, n, depth);
        if (j < nEnd)
          edge(from, k, b + k0 * n + j, n, c + i * n + j, n, rows, nEnd - j,
               depth);
      }
    }
}

void refold::reference::multiplyAdd(const long double *a, const long double *b,
                                    long double *c, int64_t m, int64_t n,
                                    int64_t k) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t l = 0; l < k; ++l)
      for (int64_t j = 0; j < n; ++j)
        c[i * n + j] += a[i * k + l] * b[l * n + j];
}
