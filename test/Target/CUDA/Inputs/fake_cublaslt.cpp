// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A library of matrix products that is none: the functions of cuBLASLt that are
// used, on the host's memory, in double. device_test.py builds it beside
// fake_cuda.cpp. The environment says what it is and what fails:
//   FAKE_CUDA_LOG         a file that gets a line a call
//   FAKE_CUBLASLT_FAIL    FUNCTION=CODE
//   FAKE_CUBLASLT_VERSION 130102
//   FAKE_CUBLASLT_NONE    1: it has no algorithm for anything
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

int begin(const std::string &name, const std::string &what = "") {
  if (const char *path = std::getenv("FAKE_CUDA_LOG"))
    if (FILE *file = std::fopen(path, "a")) {
      std::fprintf(file, "%s%s%s\n", name.c_str(), what.empty() ? "" : " ",
                   what.c_str());
      std::fclose(file);
    }
  const char *fails = std::getenv("FAKE_CUBLASLT_FAIL");
  std::string wanted = fails ? fails : "";
  size_t equals = wanted.find('=');
  return wanted.substr(0, equals) == name ? std::stoi(wanted.substr(equals + 1))
                                          : 0;
}

constexpr int kInvalidValue = 7; // CUBLAS_STATUS_INVALID_VALUE

struct Operation {
  int compute, scale;
  std::map<int, int64_t> attributes;
  int64_t get(int attribute, int64_t otherwise) const {
    auto found = attributes.find(attribute);
    return found == attributes.end() ? otherwise : found->second;
  }
};
struct Layout {
  int type;
  int64_t rows, columns, leading;
  int64_t batches = 1, batchStride = 0;
};
struct Preference {
  std::map<int, int64_t> attributes;
};
struct Result {
  uint64_t algorithm[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

int64_t read(const void *value, size_t bytes) {
  int64_t word = 0;
  std::memcpy(&word, value, bytes);
  return word;
}

size_t widthOf(int type) { return type == 0 ? 4 : 2; }

double load(const char *from, int type) {
  if (type == 0)
    return *reinterpret_cast<const float *>(from);
  if (type == 2)
    return *reinterpret_cast<const _Float16 *>(from);
  uint32_t word = uint32_t(*reinterpret_cast<const uint16_t *>(from)) << 16;
  float value;
  std::memcpy(&value, &word, 4);
  return value;
}

void store(char *to, int type, double value) {
  if (type == 0) {
    *reinterpret_cast<float *>(to) = float(value);
  } else if (type == 2) {
    *reinterpret_cast<_Float16 *>(to) = _Float16(float(value));
  } else {
    auto narrow = float(value);
    uint32_t word;
    std::memcpy(&word, &narrow, 4);
    word += 0x7fff + (word >> 16 & 1);
    *reinterpret_cast<uint16_t *>(to) = uint16_t(word >> 16);
  }
}

/// Whether the three fit each other, as the documentation asks.
bool fits(const Operation &op, const Layout &a, const Layout &b,
          const Layout &d) {
  bool ta = op.get(3, 0) == 1, tb = op.get(4, 0) == 1;
  int64_t m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns,
          n = tb ? b.rows : b.columns, kOfB = tb ? b.columns : b.rows;
  for (const Layout *one : {&a, &b, &d})
    if (one->rows < 1 || one->columns < 1 || one->leading < one->rows ||
        one->batches != d.batches)
      return false;
  return op.compute == 68 && op.scale == 0 && k == kOfB && d.rows == m &&
         d.columns == n && a.type == b.type;
}

} // namespace

extern "C" {

size_t cublasLtGetVersion() {
  const char *version = std::getenv("FAKE_CUBLASLT_VERSION");
  return version ? std::stoul(version) : 130102;
}
const char *cublasLtGetStatusName(int) { return "CUBLAS_STATUS_FAKE"; }
int cublasLtCreate(void **handle) {
  *handle = new int(0);
  return begin("cublasLtCreate");
}
int cublasLtDestroy(void *handle) {
  delete static_cast<int *>(handle);
  return begin("cublasLtDestroy");
}
int cublasLtMatmulDescCreate(Operation **operation, int compute, int scale) {
  *operation = new Operation{compute, scale, {}};
  return begin("cublasLtMatmulDescCreate");
}
int cublasLtMatmulDescDestroy(Operation *operation) {
  delete operation;
  return begin("cublasLtMatmulDescDestroy");
}
int cublasLtMatmulDescSetAttribute(Operation *operation, int attribute,
                                   const void *value, size_t bytes) {
  if (bytes != (attribute == 8 ? 8u : 4u))
    return kInvalidValue;
  operation->attributes[attribute] = read(value, bytes);
  return 0;
}
int cublasLtMatrixLayoutCreate(Layout **layout, int type, uint64_t rows,
                               uint64_t columns, int64_t leading) {
  *layout = new Layout{type, int64_t(rows), int64_t(columns), leading};
  return begin("cublasLtMatrixLayoutCreate");
}
int cublasLtMatrixLayoutDestroy(Layout *layout) {
  delete layout;
  return begin("cublasLtMatrixLayoutDestroy");
}
int cublasLtMatrixLayoutSetAttribute(Layout *layout, int attribute,
                                     const void *value, size_t bytes) {
  if (attribute == 5 && bytes == 4)
    layout->batches = read(value, bytes);
  else if (attribute == 6 && bytes == 8)
    layout->batchStride = read(value, bytes);
  else
    return kInvalidValue;
  return 0;
}
int cublasLtMatmulPreferenceCreate(Preference **preference) {
  *preference = new Preference;
  return 0;
}
int cublasLtMatmulPreferenceDestroy(Preference *preference) {
  delete preference;
  return 0;
}
int cublasLtMatmulPreferenceSetAttribute(Preference *preference, int attribute,
                                         const void *value, size_t bytes) {
  if (bytes != (attribute == 1 ? 8u : 4u))
    return kInvalidValue;
  preference->attributes[attribute] = read(value, bytes);
  return 0;
}
int cublasLtMatmulAlgoGetHeuristic(void *, Operation *operation, Layout *a,
                                   Layout *b, Layout *c, Layout *d,
                                   Preference *preference, int wanted,
                                   Result *results, int *found) {
  *found = 0;
  if (int failure = begin("cublasLtMatmulAlgoGetHeuristic"))
    return failure;
  if (wanted < 1 || c != d || !fits(*operation, *a, *b, *d))
    return kInvalidValue;
  if (std::getenv("FAKE_CUBLASLT_NONE"))
    return 15; // CUBLAS_STATUS_NOT_SUPPORTED
  *results = {};
  results->algorithm[0] = 0x5ca1ab1e;
  results->workspace = size_t(preference->attributes[1]);
  *found = 1;
  return 0;
}
int cublasLtMatmul(void *, Operation *operation, const float *alpha,
                   const char *a, Layout *aLayout, const char *b,
                   Layout *bLayout, const float *beta, const char *c, Layout *,
                   char *d, Layout *dLayout, const uint64_t *algorithm,
                   char *workspace, size_t workspaceBytes, void *) {
  const Layout &la = *aLayout, &lb = *bLayout, &ld = *dLayout;
  bool ta = operation->get(3, 0) == 1, tb = operation->get(4, 0) == 1;
  int64_t epilogue = operation->get(7, 1), depth = ta ? la.rows : la.columns;
  if (int failure = begin(
          "cublasLtMatmul",
          std::to_string(ld.columns) + "x" + std::to_string(depth) + "x" +
              std::to_string(ld.rows) + " of " + std::to_string(ld.batches)))
    return failure;
  if (algorithm[0] != 0x5ca1ab1e || *alpha != 1.0f || *beta != 0.0f || c != d ||
      uintptr_t(a) % 16 || uintptr_t(b) % 16 || uintptr_t(d) % 16)
    return kInvalidValue;
  std::memset(workspace, 0xff, workspaceBytes); // it is the library's
  const char *bias = epilogue & 4
                         ? reinterpret_cast<const char *>(operation->get(8, 0))
                         : nullptr;
  for (int64_t batch = 0; batch < ld.batches; ++batch)
    for (int64_t row = 0; row < ld.rows; ++row)
      for (int64_t column = 0; column < ld.columns; ++column) {
        double sum = 0.0;
        for (int64_t k = 0; k < depth; ++k) {
          int64_t atA = batch * la.batchStride +
                        (ta ? k + row * la.leading : row + k * la.leading);
          int64_t atB = batch * lb.batchStride + (tb ? column + k * lb.leading
                                                     : k + column * lb.leading);
          sum += load(a + atA * int64_t(widthOf(la.type)), la.type) *
                 load(b + atB * int64_t(widthOf(lb.type)), lb.type);
        }
        if (bias)
          sum += load(bias + row * int64_t(widthOf(ld.type)), ld.type);
        store(d + (batch * ld.batchStride + row + column * ld.leading) *
                      int64_t(widthOf(ld.type)),
              ld.type, sum);
      }
  return 0;
}
}
