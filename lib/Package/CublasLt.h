// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is used of NVIDIA's library of matrix products, where the user wants it:
// no header of CUDA is read, and without it our own kernels compute products.
// Names, types and numbers are those of the cuBLAS documentation, version 13.1
// (docs.nvidia.com/cuda/cublas), "Using the cublasLt API".
#ifndef REFOLD_LIB_PACKAGE_CUBLASLT_H
#define REFOLD_LIB_PACKAGE_CUBLASLT_H

#include "CudaDriver.h"

namespace refold::package {

using LtStatus = int; ///< cublasStatus_t; 0: success
using LtHandle = struct LtHandleTag *;
using LtOperation = struct LtOperationTag *;   ///< cublasLtMatmulDesc_t
using LtLayout = struct LtLayoutTag *;         ///< cublasLtMatrixLayout_t
using LtPreference = struct LtPreferenceTag *; ///< cublasLtMatmulPreference_t
struct LtAlgorithm {
  uint64_t data[8];
};
/// cublasLtMatmulHeuristicResult_t.
struct LtHeuristic {
  LtAlgorithm algorithm;
  size_t workspaceBytes;
  LtStatus state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(LtHeuristic) == 96);

/// cudaDataType, cublasComputeType_t, cublasOperation_t.
enum : int { kLtF32 = 0, kLtF16 = 2, kLtBf16 = 14 };
enum : int { kLtComputeF32 = 68 };
enum : int32_t { kLtAsItIs = 0, kLtTransposed = 1 };
/// cublasLtMatmulDescAttributes_t.
enum : int {
  kLtTransA = 3,     ///< int32_t
  kLtTransB = 4,     ///< int32_t
  kLtEpilogue = 7,   ///< uint32_t
  kLtBiasPointer = 8 ///< an address
};
/// cublasLtEpilogue_t.
enum : uint32_t { kLtPlain = 1, kLtBias = 4 };
/// cublasLtMatrixLayoutAttribute_t.
enum : int {
  kLtBatchCount = 5, ///< int32_t
  kLtBatchStride = 6 ///< int64_t, elements
};
/// cublasLtMatmulPreferenceAttributes_t.
enum : int {
  kLtMostWorkspace = 1, ///< uint64_t, bytes
  kLtReductions = 3,    ///< uint32_t, a mask of cublasLtReductionScheme_t
  kLtAlignmentA = 5,    ///< uint32_t, bytes; then of B, C and D
};
/// Parts of a sum are added up in its own type, in a step of its own: never by
/// whoever comes first.
inline constexpr uint32_t kLtReduceInOrder = 2;

#define REFOLD_CUBLASLT_FUNCTIONS(X)                                           \
  X(LtStatus, cublasLtCreate, (LtHandle * handle))                             \
  X(LtStatus, cublasLtDestroy, (LtHandle handle))                              \
  X(size_t, cublasLtGetVersion, (void))                                        \
  X(const char *, cublasLtGetStatusName, (LtStatus status))                    \
  X(LtStatus, cublasLtMatmulDescCreate,                                        \
    (LtOperation * operation, int compute, int scaleType))                     \
  X(LtStatus, cublasLtMatmulDescDestroy, (LtOperation operation))              \
  X(LtStatus, cublasLtMatmulDescSetAttribute,                                  \
    (LtOperation operation, int attribute, const void *value, size_t bytes))   \
  X(LtStatus, cublasLtMatrixLayoutCreate,                                      \
    (LtLayout * layout, int type, uint64_t rows, uint64_t columns,             \
     int64_t leading))                                                         \
  X(LtStatus, cublasLtMatrixLayoutDestroy, (LtLayout layout))                  \
  X(LtStatus, cublasLtMatrixLayoutSetAttribute,                                \
    (LtLayout layout, int attribute, const void *value, size_t bytes))         \
  X(LtStatus, cublasLtMatmulPreferenceCreate, (LtPreference * preference))     \
  X(LtStatus, cublasLtMatmulPreferenceDestroy, (LtPreference preference))      \
  X(LtStatus, cublasLtMatmulPreferenceSetAttribute,                            \
    (LtPreference preference, int attribute, const void *value, size_t bytes)) \
  X(LtStatus, cublasLtMatmulAlgoGetHeuristic,                                  \
    (LtHandle handle, LtOperation operation, LtLayout a, LtLayout b,           \
     LtLayout c, LtLayout d, LtPreference preference, int wanted,              \
     LtHeuristic *results, int *found))                                        \
  X(LtStatus, cublasLtMatmul,                                                  \
    (LtHandle handle, LtOperation operation, const void *alpha,                \
     DeviceAddress a, LtLayout aLayout, DeviceAddress b, LtLayout bLayout,     \
     const void *beta, DeviceAddress c, LtLayout cLayout, DeviceAddress d,     \
     LtLayout dLayout, const LtAlgorithm *algorithm, DeviceAddress workspace,  \
     size_t workspaceBytes, CuStream stream))

/// The library's functions by their names.
struct CublasLt {
#define REFOLD_DECLARE(result, name, arguments)                                \
  result(*name) arguments = nullptr;
  REFOLD_CUBLASLT_FUNCTIONS(REFOLD_DECLARE)
#undef REFOLD_DECLARE
  std::string file, version; ///< "13.1"
};

/// The library of the process: the file or folder REFOLD_CUBLASLT; "on": where
/// CUDA and its Python packages are. Null where it is not set or "off"; none
/// that is wanted and found is an error. Loaded once, which takes some hundred
/// megabytes.
Outcome<const CublasLt *> cublasLt();

} // namespace refold::package

#endif // REFOLD_LIB_PACKAGE_CUBLASLT_H
