// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is used of NVIDIA's driver, found when it is needed: no header of CUDA
// is read, and a machine without a driver runs everything else. Names, types
// and numbers are those of the CUDA Driver API reference, version 13.0
// (docs.nvidia.com/cuda/cuda-driver-api); the suffix _v2 is part of the ABI.
#ifndef REFOLD_LIB_PACKAGE_CUDADRIVER_H
#define REFOLD_LIB_PACKAGE_CUDADRIVER_H

#include "refold/Package/Cuda.h"
#include <cstddef>

namespace refold::package {

using CuResult = int;
using CuDevice = int;
using CuContext = struct CuContextTag *;
using CuModule = struct CuModuleTag *;
using CuFunction = struct CuFunctionTag *;
using CuStream = struct CuStreamTag *;
using CuEvent = struct CuEventTag *;
using CuGraph = struct CuGraphTag *;
using CuGraphExec = struct CuGraphExecTag *;

enum : CuResult {
  kCudaSuccess = 0,
  kCudaOutOfMemory = 2,
  kCudaNoDevice = 100,
  kCudaInvalidDevice = 101,
  kCudaInvalidImage = 200,
  kCudaNoBinaryForGpu = 209,
};
/// CUdevice_attribute.
enum : int {
  kClockRate = 13, // kHz
  kMultiprocessorCount = 16,
  kMemoryClockRate = 36, // kHz
  kMemoryBusWidth = 37,  // bits
  kL2CacheSize = 38,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMaxSharedPerBlockOptin = 97,
};
/// CUfunction_attribute.
enum : int { kMaxDynamicSharedBytes = 8, kRequiredClusterWidth = 11 };
/// CUlaunchAttribute: of a launch that may begin before the one in front of it
/// on the stream has ended. What kernels begin with waits for that
/// (follow_launch of refold_cuda.h).
struct CuLaunchAttribute {
  int id = 6; ///< CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
  int padding = 0;
  int isAllowed = 1;
  char rest[60] = {};
};
static_assert(sizeof(CuLaunchAttribute) == 72);
/// CUlaunchConfig.
struct CuLaunchConfig {
  unsigned grid[3], block[3];
  unsigned sharedBytes;
  CuStream stream;
  const CuLaunchAttribute *attributes;
  unsigned numAttributes;
};
/// CUtensorMap: what only the driver can make and only the GPU can read.
struct alignas(64) CuTensorMap {
  uint64_t words[16] = {};
};
/// CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_INTERLEAVE_NONE,
/// CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
/// CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE (zeros).
inline constexpr int kMapOfBytes = 0, kMapInterleave = 0, kMapSwizzle = 3,
                     kMapPromotion = 0, kMapFill = 0;
/// The first driver whose graphs have such launches.
inline constexpr int kEarlyLaunchVersion = 12030;
/// CU_STREAM_NON_BLOCKING.
inline constexpr unsigned kStreamNonBlocking = 1;
/// CU_STREAM_CAPTURE_STATUS_NONE.
inline constexpr int kNoCapture = 0;
/// CU_STREAM_CAPTURE_MODE_THREAD_LOCAL.
inline constexpr int kCaptureOfThread = 1;
/// What a launch may ask for: a block has 48 KB unasked, of which kernels have
/// some KB for themselves.
inline constexpr int64_t kSharedBytesWithoutAsking = 24 << 10;

#define REFOLD_CUDA_FUNCTIONS(X)                                               \
  X(cuInit, (unsigned flags))                                                  \
  X(cuGetErrorName, (CuResult error, const char **name))                       \
  X(cuGetErrorString, (CuResult error, const char **text))                     \
  X(cuDeviceGet, (CuDevice * device, int ordinal))                             \
  X(cuDeviceGetCount, (int *count))                                            \
  X(cuDeviceGetName, (char *name, int bytes, CuDevice device))                 \
  X(cuDeviceGetAttribute, (int *value, int attribute, CuDevice device))        \
  X(cuDeviceTotalMem_v2, (size_t *bytes, CuDevice device))                     \
  X(cuDevicePrimaryCtxRetain, (CuContext * context, CuDevice device))          \
  X(cuDevicePrimaryCtxRelease_v2, (CuDevice device))                           \
  X(cuCtxPushCurrent_v2, (CuContext context))                                  \
  X(cuCtxPopCurrent_v2, (CuContext * context))                                 \
  X(cuModuleLoadData, (CuModule * module, const void *image))                  \
  X(cuModuleUnload, (CuModule module))                                         \
  X(cuModuleGetFunction,                                                       \
    (CuFunction * function, CuModule module, const char *name))                \
  X(cuFuncSetAttribute, (CuFunction function, int attribute, int value))       \
  X(cuLaunchKernel,                                                            \
    (CuFunction function, unsigned gridX, unsigned gridY, unsigned gridZ,      \
     unsigned blockX, unsigned blockY, unsigned blockZ, unsigned sharedBytes,  \
     CuStream stream, void **parameters, void **extra))                        \
  X(cuMemAlloc_v2, (DeviceAddress * address, size_t bytes))                    \
  X(cuMemFree_v2, (DeviceAddress address))                                     \
  X(cuMemcpyHtoDAsync_v2,                                                      \
    (DeviceAddress to, const void *from, size_t bytes, CuStream stream))       \
  X(cuMemcpyDtoHAsync_v2,                                                      \
    (void *to, DeviceAddress from, size_t bytes, CuStream stream))             \
  X(cuMemcpyDtoDAsync_v2,                                                      \
    (DeviceAddress to, DeviceAddress from, size_t bytes, CuStream stream))     \
  X(cuStreamCreate, (CuStream * stream, unsigned flags))                       \
  X(cuStreamDestroy_v2, (CuStream stream))                                     \
  X(cuStreamIsCapturing, (CuStream stream, int *status))                       \
  X(cuStreamSynchronize, (CuStream stream))                                    \
  X(cuEventCreate, (CuEvent * event, unsigned flags))                          \
  X(cuEventDestroy_v2, (CuEvent event))                                        \
  X(cuEventRecord, (CuEvent event, CuStream stream))                           \
  X(cuEventSynchronize, (CuEvent event))                                       \
  X(cuEventElapsedTime, (float *ms, CuEvent begin, CuEvent end))

/// A driver may lack these.
#define REFOLD_CUDA_LATER_FUNCTIONS(X)                                         \
  X(cuDriverGetVersion, (int *version))                                        \
  X(cuFuncGetAttribute, (int *value, int attribute, CuFunction function))      \
  X(cuTensorMapEncodeTiled,                                                    \
    (CuTensorMap * map, int type, unsigned rank, void *first,                  \
     const uint64_t *extents, const uint64_t *strides, const unsigned *box,    \
     const unsigned *elementStrides, int interleave, int swizzle,              \
     int promotion, int fill))                                                 \
  X(cuOccupancyMaxActiveClusters,                                              \
    (int *count, CuFunction function, const CuLaunchConfig *config))           \
  X(cuLaunchKernelEx, (const CuLaunchConfig *config, CuFunction function,      \
                       void **parameters, void **extra))                       \
  X(cuStreamBeginCapture_v2, (CuStream stream, int mode))                      \
  X(cuStreamEndCapture, (CuStream stream, CuGraph * graph))                    \
  X(cuGraphInstantiateWithFlags,                                               \
    (CuGraphExec * made, CuGraph graph, unsigned long long flags))             \
  X(cuGraphLaunch, (CuGraphExec graph, CuStream stream))                       \
  X(cuGraphExecDestroy, (CuGraphExec graph))                                   \
  X(cuGraphDestroy, (CuGraph graph))

/// The driver's functions by their names.
struct CudaDriver {
#define REFOLD_DECLARE(name, arguments) CuResult(*name) arguments = nullptr;
  REFOLD_CUDA_FUNCTIONS(REFOLD_DECLARE)
  REFOLD_CUDA_LATER_FUNCTIONS(REFOLD_DECLARE)
#undef REFOLD_DECLARE
  bool hasEarlyLaunches = false;

  /// "cuMemAlloc_v2: out of memory (CUDA_ERROR_OUT_OF_MEMORY)".
  std::string describe(const char *call, CuResult error) const;
};

/// The driver of the process: the library REFOLD_LIBCUDA, or libcuda.so.1.
/// Loaded and initialised once; a failure is kept as well.
Outcome<const CudaDriver *> cudaDriver();

/// The GPU number `ordinal`, and what it is.
Outcome<std::pair<CuDevice, GpuFacts>> findDevice(int ordinal);

} // namespace refold::package

#endif // REFOLD_LIB_PACKAGE_CUDADRIVER_H
