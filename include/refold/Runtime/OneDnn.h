// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is used of oneDNN's C API: packages load the library when a program
// needs it and read no header of it. Names, types and numbers are those of its
// version 2.6, which all of 2 have (oneapi/dnnl/dnnl.h); `linkedOneDnn` holds
// them against the header.
#ifndef REFOLD_RUNTIME_ONEDNN_H
#define REFOLD_RUNTIME_ONEDNN_H

#include <cstddef>
#include <cstdint>

namespace refold::onednn {

using Status = int; ///< dnnl_status_t
enum : Status {
  kSuccess = 0,
  kOutOfMemory = 1,
  kInvalidArguments = 2,
  kUnimplemented = 3
};
using Engine = struct EngineTag *;
using Stream = struct StreamTag *;
using Memory = struct MemoryTag *;
using Attributes = struct AttributesTag *; ///< dnnl_primitive_attr_t
using PostOps = struct PostOpsTag *;
using PrimitiveDesc = struct PrimitiveDescTag *;
using Primitive = struct PrimitiveTag *;

inline constexpr int kMostDims = 12;
using Dims = int64_t[kMostDims];

/// dnnl_memory_desc_t: made and read by the library.
struct MemoryDesc {
  int ndims = 0;
  alignas(8) unsigned char rest[688] = {};
};
static_assert(sizeof(MemoryDesc) == 696);
/// dnnl_matmul_desc_t
struct MatmulDesc {
  int kind = 0;
  MemoryDesc source, weights, bias, result;
  int sumType = 0;
};
/// dnnl_exec_arg_t
struct Argument {
  int which;
  Memory memory;
};
/// dnnl_version_t
struct Version {
  int major, minor, patch;
  const char *hash;
  unsigned cpuRuntime, gpuRuntime;
};

enum : int { kCpu = 1 };                ///< dnnl_engine_kind_t
enum : unsigned { kDefaultStream = 1 }; ///< dnnl_stream_flags_t
enum : int { kF32 = 3 };                ///< dnnl_data_type_t
enum : int { kAnyFormat = 1 };          ///< dnnl_format_tag_t
enum : int { kUserScratchpad = 1 };     ///< dnnl_scratchpad_mode_t
enum : int {                            ///< dnnl_alg_kind_t
  kRelu = 0x1f,
  kTanh = 0x2f,
  kGeluErf = 0x30
};
enum : int { ///< dnnl_query_t
  kSourceDesc = 129,
  kWeightsDesc = 131, ///< index 1: the bias
  kResultDesc = 133,
  kScratchpadDesc = 136
};
enum : int { ///< DNNL_ARG_...
  kSource = 1,
  kResult = 17,
  kWeights = 33,
  kBias = 41,
  kScratchpad = 80
};
enum : unsigned { kSequential = 1, kOpenMP = 2 }; ///< DNNL_RUNTIME_...

#define REFOLD_ONEDNN_FUNCTIONS(X)                                             \
  X(const Version *, dnnl_version, (void))                                     \
  X(Status, dnnl_engine_create, (Engine * engine, int kind, size_t index))     \
  X(Status, dnnl_engine_destroy, (Engine engine))                              \
  X(Status, dnnl_stream_create,                                                \
    (Stream * stream, Engine engine, unsigned flags))                          \
  X(Status, dnnl_stream_wait, (Stream stream))                                 \
  X(Status, dnnl_stream_destroy, (Stream stream))                              \
  X(Status, dnnl_memory_desc_init_by_strides,                                  \
    (MemoryDesc * desc, int dims, const int64_t *sizes, int type,              \
     const int64_t *strides))                                                  \
  X(Status, dnnl_memory_desc_init_by_tag,                                      \
    (MemoryDesc * desc, int dims, const int64_t *sizes, int type, int tag))    \
  X(size_t, dnnl_memory_desc_get_size, (const MemoryDesc *desc))               \
  X(Status, dnnl_memory_create,                                                \
    (Memory * memory, const MemoryDesc *desc, Engine engine, void *bytes))     \
  X(Status, dnnl_memory_destroy, (Memory memory))                              \
  X(Status, dnnl_memory_set_data_handle, (Memory memory, void *bytes))         \
  X(Status, dnnl_matmul_desc_init,                                             \
    (MatmulDesc * desc, const MemoryDesc *source, const MemoryDesc *weights,   \
     const MemoryDesc *bias, const MemoryDesc *result))                        \
  X(Status, dnnl_primitive_attr_create, (Attributes * attributes))             \
  X(Status, dnnl_primitive_attr_destroy, (Attributes attributes))              \
  X(Status, dnnl_primitive_attr_set_scratchpad_mode,                           \
    (Attributes attributes, int mode))                                         \
  X(Status, dnnl_primitive_attr_set_post_ops,                                  \
    (Attributes attributes, PostOps operations))                               \
  X(Status, dnnl_post_ops_create, (PostOps * operations))                      \
  X(Status, dnnl_post_ops_destroy, (PostOps operations))                       \
  X(Status, dnnl_post_ops_append_eltwise,                                      \
    (PostOps operations, float scale, int algorithm, float alpha, float beta)) \
  X(Status, dnnl_primitive_desc_create,                                        \
    (PrimitiveDesc * made, const MatmulDesc *desc, Attributes attributes,      \
     Engine engine, PrimitiveDesc hint))                                       \
  X(Status, dnnl_primitive_desc_destroy, (PrimitiveDesc desc))                 \
  X(const MemoryDesc *, dnnl_primitive_desc_query_md,                          \
    (PrimitiveDesc desc, int what, int index))                                 \
  X(Status, dnnl_primitive_create, (Primitive * made, PrimitiveDesc desc))     \
  X(Status, dnnl_primitive_destroy, (Primitive primitive))                     \
  X(Status, dnnl_primitive_execute,                                            \
    (Primitive primitive, Stream stream, int count, const Argument *list))     \
  X(Status, dnnl_reorder_primitive_desc_create,                                \
    (PrimitiveDesc * made, const MemoryDesc *from, Engine fromEngine,          \
     const MemoryDesc *to, Engine toEngine, Attributes attributes))

/// The library's functions by their names.
struct Library {
#define REFOLD_DECLARE(result, name, arguments)                                \
  result(*name) arguments = nullptr;
  REFOLD_ONEDNN_FUNCTIONS(REFOLD_DECLARE)
#undef REFOLD_DECLARE
  /// Of the OpenMP runtime that it came with; null where it has none, or where
  /// callers see to it. What it computes is computed on one thread.
  int (*omp_get_max_threads)() = nullptr;
  void (*omp_set_num_threads)(int) = nullptr;
};

} // namespace refold::onednn

#endif // REFOLD_RUNTIME_ONEDNN_H
