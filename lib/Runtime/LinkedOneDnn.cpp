// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The only file that reads oneDNN's header: what OneDnn.h declares is held
// against it.
#include "LinkedOneDnn.h"

#include <dnnl.h>

using namespace refold;

static_assert(DNNL_VERSION_MAJOR == 2);
static_assert(sizeof(onednn::MemoryDesc) == sizeof(dnnl_memory_desc_t) &&
              alignof(onednn::MemoryDesc) == alignof(dnnl_memory_desc_t));
static_assert(sizeof(onednn::MatmulDesc) == sizeof(dnnl_matmul_desc_t));
static_assert(sizeof(onednn::Argument) == sizeof(dnnl_exec_arg_t));
static_assert(sizeof(onednn::Version) == sizeof(dnnl_version_t));
static_assert(offsetof(onednn::Version, cpuRuntime) ==
              offsetof(dnnl_version_t, cpu_runtime));
static_assert(onednn::kMostDims == DNNL_MAX_NDIMS);
static_assert(int(onednn::kCpu) == int(dnnl_cpu) &&
              int(onednn::kDefaultStream) == int(dnnl_stream_default_flags) &&
              int(onednn::kF32) == int(dnnl_f32) &&
              int(onednn::kAnyFormat) == int(dnnl_format_tag_any) &&
              int(onednn::kUserScratchpad) == int(dnnl_scratchpad_mode_user));
static_assert(int(onednn::kRelu) == int(dnnl_eltwise_relu) &&
              int(onednn::kTanh) == int(dnnl_eltwise_tanh) &&
              int(onednn::kGeluErf) == int(dnnl_eltwise_gelu_erf));
static_assert(int(onednn::kSourceDesc) == int(dnnl_query_src_md) &&
              int(onednn::kWeightsDesc) == int(dnnl_query_weights_md) &&
              int(onednn::kResultDesc) == int(dnnl_query_dst_md) &&
              int(onednn::kScratchpadDesc) == int(dnnl_query_scratchpad_md));
static_assert(onednn::kSource == DNNL_ARG_SRC &&
              onednn::kResult == DNNL_ARG_DST &&
              onednn::kWeights == DNNL_ARG_WEIGHTS &&
              onednn::kBias == DNNL_ARG_BIAS &&
              onednn::kScratchpad == DNNL_ARG_SCRATCHPAD &&
              onednn::kSource == DNNL_ARG_FROM &&
              onednn::kResult == DNNL_ARG_TO);
static_assert(onednn::kSequential == DNNL_RUNTIME_SEQ &&
              onednn::kOpenMP == DNNL_RUNTIME_OMP);
static_assert(int(onednn::kOutOfMemory) == int(dnnl_out_of_memory) &&
              int(onednn::kInvalidArguments) == int(dnnl_invalid_arguments) &&
              int(onednn::kUnimplemented) == int(dnnl_unimplemented));

const onednn::Library &refold::linkedOneDnn() {
  static const onednn::Library library = [] {
    onednn::Library made;
#define REFOLD_TAKE(result, name, arguments)                                   \
  made.name = reinterpret_cast<decltype(made.name)>(&::name);
    REFOLD_ONEDNN_FUNCTIONS(REFOLD_TAKE)
#undef REFOLD_TAKE
    return made;
  }();
  return library;
}

void refold::limitProductLibrary(InstructionSet instructionSet) {
  // A refusal means that the library has been used already; it then computes
  // with what it has chosen, which every caller sees alike.
  if (instructionSet == InstructionSet::AVX2)
    (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
  else if (instructionSet == InstructionSet::Baseline)
    (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41);
}
