// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What generated kernels are written in. Every primitive here has its emulation
// in refold_cuda_emulated.h and a kernel of conformance.cu: none without the
// other two. Fused multiply-adds are spelled out (-fmad=false), so that host
// and device compute the same expression.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_H

#ifdef REFOLD_CUDA_EMULATED
#include "refold_cuda_emulated.h"
#else

// Compiled by NVRTC: no header of the host exists.
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned;
using uint64_t = unsigned long;

#define REFOLD_DEVICE __device__ __forceinline__
#define REFOLD_UNROLL _Pragma("unroll")
#define REFOLD_NO_UNROLL _Pragma("unroll 1")
/// A function that the host launches, in blocks of `threads`. Before sm_90,
/// ptxas spills rather than let fewer blocks share a multiprocessor; told that
/// one is enough it does not, but there it costs up to 12 %.
#if __CUDA_ARCH__ < 900
#define REFOLD_LAUNCH_BOUNDS(threads) __launch_bounds__(threads, 1)
#define REFOLD_UNIT_BOUNDS(threads, blocks) __launch_bounds__(threads, 1)
#else
#define REFOLD_LAUNCH_BOUNDS(threads) __launch_bounds__(threads)
#define REFOLD_UNIT_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#endif
#define REFOLD_KERNEL(threads)                                                 \
  extern "C" __global__ void REFOLD_LAUNCH_BOUNDS(threads)
/// The same where `blocks` of them are meant to share a multiprocessor.
#define REFOLD_UNIT_KERNEL(threads, blocks)                                    \
  extern "C" __global__ void REFOLD_UNIT_BOUNDS(threads, blocks)
/// `count` elements that the threads of a block share.
#define REFOLD_SHARED(type, name, count)                                       \
  __shared__ type name##_memory[count];                                        \
  const refold::Shared<type> name { name##_memory }
/// `count` bytes that the threads of a block share, by offset: the launch has
/// to ask for at least as many.
#define REFOLD_SHARED_BYTES(name, count)                                       \
  extern __shared__ __align__(1024) unsigned char name##_memory[];             \
  const uint32_t name = uint32_t(__cvta_generic_to_shared(name##_memory))
/// The same where several threads write words of the same 16 bytes.
#define REFOLD_SHARED_WORDS(name, count) REFOLD_SHARED_BYTES(name, count)

namespace refold {

REFOLD_DEVICE int thread() { return int(threadIdx.x); }
REFOLD_DEVICE int64_t block() { return int64_t(blockIdx.x); }
/// How many blocks the launch has.
REFOLD_DEVICE int64_t blocks() { return int64_t(gridDim.x); }

/// The same, read where it is asked for: what follows from it is computed
/// there, and holds no register before.
REFOLD_DEVICE int thread_again() {
  int x;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
  return x;
}
/// The same where registers are few: known to be no more than a block has, so
/// that its quotients are shifts.
REFOLD_DEVICE int thread_within() {
  const int x = thread_again();
  __builtin_assume(x >= 0 && x < 1024);
  return x;
}
REFOLD_DEVICE int64_t block_again() {
  int x;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
  return int64_t(x);
}

//===----------------------------------------------------------------------===//
// Launches after each other
//===----------------------------------------------------------------------===//

/// What is launched next on the stream may begin when all blocks have said so.
REFOLD_DEVICE void invite_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// Until what was launched before is done and all that it wrote can be read.
/// Every thread of every kernel calls it before it touches memory that a launch
/// writes: only then is who is done behind everybody else.
REFOLD_DEVICE void follow_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

//===----------------------------------------------------------------------===//
// Bits and storage types
//===----------------------------------------------------------------------===//

REFOLD_DEVICE float float_of(uint32_t bits) { return __uint_as_float(bits); }
REFOLD_DEVICE uint32_t bits_of(float x) { return __float_as_uint(x); }

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};
REFOLD_DEVICE float to_float(bf16 x) {
  return float_of(uint32_t(x.bits) << 16);
}
REFOLD_DEVICE float to_float(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
REFOLD_DEVICE uint32_t pack(float low, float high, bf16) {
  uint32_t y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
REFOLD_DEVICE uint32_t pack(float low, float high, f16) {
  uint32_t y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

/// x * y + z, rounded once.
REFOLD_DEVICE float multiply_add(float x, float y, float z) {
  return __fmaf_rn(x, y, z);
}
/// 2^x within 2 ulp; results below the normal numbers may be 0.
REFOLD_DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// 1 / x and 1 / sqrt(x) within 2 ulp; subnormal numbers count as 0.
REFOLD_DEVICE float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
REFOLD_DEVICE float reciprocal_root_fast(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// NaN where one operand is.
REFOLD_DEVICE float max_nan(float x, float y) {
  float z;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}
REFOLD_DEVICE float min_nan(float x, float y) {
  float z;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}
/// Of two pairs of 16-bit floats, a word each, the larger or the smaller ones,
/// NaN where one operand is; the smaller numbers, NaN where both are.
#define REFOLD_OF_PAIRS(function, instruction, type, suffix)                   \
  REFOLD_DEVICE uint32_t function(uint32_t x, uint32_t y, type) {              \
    uint32_t z;                                                                \
    asm(instruction "." suffix " %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));     \
    return z;                                                                  \
  }
REFOLD_OF_PAIRS(max_pairs, "max.NaN", bf16, "bf16x2")
REFOLD_OF_PAIRS(max_pairs, "max.NaN", f16, "f16x2")
REFOLD_OF_PAIRS(min_pairs, "min.NaN", bf16, "bf16x2")
REFOLD_OF_PAIRS(min_pairs, "min.NaN", f16, "f16x2")
REFOLD_OF_PAIRS(min_numbers, "min", bf16, "bf16x2")
REFOLD_OF_PAIRS(min_numbers, "min", f16, "f16x2")
#undef REFOLD_OF_PAIRS
/// The same number, of both zeros the positive one, of all NaNs the one with
/// the bits 0x7fffffff.
REFOLD_DEVICE float plain_number(float x) {
  float y;
  asm("add.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
  return y;
}
/// The same of pairs of 16-bit floats; of NaNs the ones with the bits 0x7fff.
REFOLD_DEVICE uint32_t plain_pairs(uint32_t x, bf16) {
  uint32_t y;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(y)
      : "r"(x), "r"(0x3f803f80u), "r"(0u));
  return y;
}
REFOLD_DEVICE uint32_t plain_pairs(uint32_t x, f16) {
  uint32_t y;
  asm("fma.rn.f16x2 %0, %1, %2, %3;"
      : "=r"(y)
      : "r"(x), "r"(0x3c003c00u), "r"(0u));
  return y;
}
/// Halves of ones where those of `x` have their first bit, 0 elsewhere.
REFOLD_DEVICE uint32_t spread_signs(uint32_t x) {
  uint32_t y;
  asm("prmt.b32 %0, %1, %1, 0xbb99;" : "=r"(y) : "r"(x));
  return y;
}

//===----------------------------------------------------------------------===//
// Warps, blocks, shared memory
//===----------------------------------------------------------------------===//

/// The value of the lane whose number differs in the bits of `mask`; all 32
/// lanes of a warp call it.
REFOLD_DEVICE float shuffle_xor(float x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
REFOLD_DEVICE int32_t shuffle_xor(int32_t x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
REFOLD_DEVICE int64_t shuffle_xor(int64_t x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}

/// The value of a lane of the warp; all 32 lanes call it.
REFOLD_DEVICE float shuffle_from(float x, int lane) {
  return __shfl_sync(0xffffffffu, x, lane);
}

/// Whether a lane of the warp says so; all 32 lanes call it.
REFOLD_DEVICE bool any_lane(bool x) { return __any_sync(0xffffffffu, x) != 0; }

/// Orders the shared memory accesses of the lanes of a warp, all of which meet.
REFOLD_DEVICE void warp_barrier() { __syncwarp(); }
/// Orders the shared memory accesses of all threads of a block.
REFOLD_DEVICE void block_barrier() { __syncthreads(); }

template <typename T> struct Shared {
  T *memory;
  REFOLD_DEVICE T load(int i) const { return memory[i]; }
  REFOLD_DEVICE void store(int i, T value) const { memory[i] = value; }
};

/// 16 bytes at an offset into REFOLD_SHARED_BYTES, a multiple of 16.
REFOLD_DEVICE void store_shared(uint32_t to, const uint32_t (&from)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}
REFOLD_DEVICE void load_shared(uint32_t (&to)[4], uint32_t from) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

/// 2, 4, 8 or 16 bytes, at a multiple of as many.
template <int kBytes>
REFOLD_DEVICE void load_words_shared(uint32_t (&to)[(kBytes + 3) / 4],
                                     uint32_t from) {
  if constexpr (kBytes == 2) {
    uint16_t half;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(half) : "r"(from) : "memory");
    to[0] = half;
  } else if constexpr (kBytes == 4) {
    asm volatile("ld.shared.u32 %0, [%1];"
                 : "=r"(to[0])
                 : "r"(from)
                 : "memory");
  } else if constexpr (kBytes == 8) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "r"(from)
                 : "memory");
  } else {
    load_shared(to, from);
  }
}

/// 16 bytes from global to shared memory, under way until they are waited for.
/// Of the source the first `bytes` are read, 0 to 16; the rest is 0.
REFOLD_DEVICE void copy_async(uint32_t to, const void *from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
               "l"(from), "r"(bytes)
               : "memory");
}
/// The same of what blocks of the launch have left.
REFOLD_DEVICE void take_async(uint32_t to, const void *from, int bytes) {
  copy_async(to, from, bytes);
}
/// 4 bytes, or 0 where `is_there` is false.
REFOLD_DEVICE void copy_word_async(uint32_t to, const void *from,
                                   bool is_there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to),
               "l"(from), "r"(is_there ? 4 : 0)
               : "memory");
}
/// The copies that this thread has begun since the last call are one group.
REFOLD_DEVICE void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Until at most `kLeft` groups of this thread are under way. Other threads see
/// its copies after a barrier.
template <int kLeft> REFOLD_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

//===----------------------------------------------------------------------===//
// Matrix units
//===----------------------------------------------------------------------===//

/// Four matrices of 8 x 8 elements of 16 bits. Lane 8 i + r names row r of
/// matrix i, 16 bytes; of each matrix, lane 4 r + c gets elements 2 c and 2 c +
/// 1 of row r, or of column r where it is transposed. All 32 lanes call it.
REFOLD_DEVICE void load_matrices(uint32_t (&to)[4], uint32_t row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
      : "r"(row)
      : "memory");
}
REFOLD_DEVICE void load_transposed(uint32_t (&to)[4], uint32_t row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
      : "r"(row)
      : "memory");
}

/// sums += left * right, 16 x 16 by 16 x 8, added in f32. Lane 4 r + c holds:
/// of `left` elements 2 c and 2 c + 1 of row r, of row r + 8, and 8 columns on
/// of both; of `right` rows 2 c and 2 c + 1 of column r, and 8 rows on; of
/// `sums` elements 2 c and 2 c + 1 of row r and of row r + 8.
REFOLD_DEVICE void multiply_matrices(float (&sums)[4],
                                     const uint32_t (&left)[4], uint32_t right0,
                                     uint32_t right1, bf16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]),
                 "r"(right0), "r"(right1));
}
REFOLD_DEVICE void multiply_matrices(float (&sums)[4],
                                     const uint32_t (&left)[4], uint32_t right0,
                                     uint32_t right1, f16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]),
                 "r"(right0), "r"(right1));
}

//===----------------------------------------------------------------------===//
// Global memory
//===----------------------------------------------------------------------===//

/// How memory is read: `Stream` once by one thread, `Reuse` by many blocks.
enum Policy { Stream, Reuse };

template <int kBytes, Policy kPolicy>
REFOLD_DEVICE void load_words(uint32_t *to, const void *from) {
  static_assert(kBytes == 1 || kBytes == 2 || kBytes == 4 || kBytes == 8 ||
                kBytes == 16);
  uint16_t half;
  if constexpr (kBytes == 1) {
    asm("ld.global.nc.u8 %0, [%1];" : "=h"(half) : "l"(from));
    to[0] = half;
  } else if constexpr (kBytes == 2) {
    asm("ld.global.nc.u16 %0, [%1];" : "=h"(half) : "l"(from));
    to[0] = half;
  } else if constexpr (kBytes == 4) {
    asm("ld.global.nc.u32 %0, [%1];" : "=r"(to[0]) : "l"(from));
  } else if constexpr (kBytes == 8) {
    asm("ld.global.nc.v2.u32 {%0, %1}, [%2];"
        : "=r"(to[0]), "=r"(to[1])
        : "l"(from));
  } else if constexpr (kPolicy == Stream) {
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "l"(from));
  } else {
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "l"(from));
  }
}

/// Past the caches: nobody reads it soon.
template <int kBytes>
REFOLD_DEVICE void store_words(void *to, const uint32_t *from) {
  if constexpr (kBytes == 1)
    *static_cast<uint8_t *>(to) = uint8_t(from[0]);
  else if constexpr (kBytes == 2)
    *static_cast<uint16_t *>(to) = uint16_t(from[0]);
  else if constexpr (kBytes == 4)
    __stcs(static_cast<uint32_t *>(to), from[0]);
  else if constexpr (kBytes == 8)
    __stcs(static_cast<uint2 *>(to), uint2{from[0], from[1]});
  else
    __stcs(static_cast<uint4 *>(to), uint4{from[0], from[1], from[2], from[3]});
}

//===----------------------------------------------------------------------===//
// Blocks of one launch
//===----------------------------------------------------------------------===//

/// What a block leaves for another. Neither side may keep it in a cache of its
/// multiprocessor.
template <int kBytes>
REFOLD_DEVICE void leave_words(void *to, const uint32_t *from) {
  static_assert(kBytes == 1 || kBytes == 4 || kBytes == 8 || kBytes == 16);
  if constexpr (kBytes == 1)
    asm volatile("st.global.cg.u8 [%0], %1;" ::"l"(to), "r"(from[0])
                 : "memory");
  else if constexpr (kBytes == 4)
    asm volatile("st.global.cg.u32 [%0], %1;" ::"l"(to), "r"(from[0])
                 : "memory");
  else if constexpr (kBytes == 8)
    asm volatile("st.global.cg.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(from[0]),
                 "r"(from[1])
                 : "memory");
  else
    asm volatile("st.global.cg.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to),
                 "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
}
template <int kBytes>
REFOLD_DEVICE void take_words(uint32_t *to, const void *from) {
  static_assert(kBytes == 1 || kBytes == 4 || kBytes == 8 || kBytes == 16);
  if constexpr (kBytes == 1)
    asm volatile("ld.global.cg.u8 %0, [%1];"
                 : "=r"(to[0])
                 : "l"(from)
                 : "memory");
  else if constexpr (kBytes == 4)
    asm volatile("ld.global.cg.u32 %0, [%1];"
                 : "=r"(to[0])
                 : "l"(from)
                 : "memory");
  else if constexpr (kBytes == 8)
    asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "l"(from)
                 : "memory");
  else
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(from)
                 : "memory");
}
/// 16 bytes, or zeros where `is_there` is false: without a branch, so that many
/// are under way.
REFOLD_DEVICE void take_words_if(uint32_t (&to)[4], const void *from,
                                 bool is_there) {
  asm volatile("{\n"
               ".reg .pred there;\n"
               "setp.ne.u32 there, %5, 0;\n"
               "mov.b32 %0, 0;\n"
               "mov.b32 %1, 0;\n"
               "mov.b32 %2, 0;\n"
               "mov.b32 %3, 0;\n"
               "@there ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               "}"
               : "=&r"(to[0]), "=&r"(to[1]), "=&r"(to[2]), "=&r"(to[3])
               : "l"(from), "r"(uint32_t(is_there))
               : "memory");
}
/// What this thread has written, and seen behind barriers, is there for other
/// blocks before what it does next; what it does next sees what they had there.
REFOLD_DEVICE void fence_blocks() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
/// How many came before; the last of `count` leaves the ticket at 0.
REFOLD_DEVICE uint32_t take_ticket(uint32_t *ticket, uint32_t count) {
  return atomicInc(ticket, count - 1);
}
/// What the ticket was before.
REFOLD_DEVICE uint32_t add_to_ticket(uint32_t *ticket, uint32_t x) {
  return atomicAdd(ticket, x);
}
/// Adds to the ticket unless its bits of `mask` are `value`; what it is then.
REFOLD_DEVICE uint32_t add_unless(uint32_t *ticket, uint32_t x, uint32_t mask,
                                  uint32_t value) {
  uint32_t now = atomicAdd(ticket, 0);
  while ((now & mask) != value) {
    const uint32_t before = atomicCAS(ticket, now, now + x);
    if (before == now)
      return now + x;
    now = before;
  }
  return now;
}
/// Nobody else changes the ticket any more.
REFOLD_DEVICE void clear_ticket(uint32_t *ticket) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], 0;" ::"l"(ticket) : "memory");
}
/// What the ticket is when its bits of `mask` have become `value`, as behind a
/// fence, or 0 where that takes longer than some tens of microseconds.
REFOLD_DEVICE uint32_t wait_for_bits(const uint32_t *ticket, uint32_t mask,
                                     uint32_t value) {
  constexpr int kLooks = 64; // of some 0.7 us each
  REFOLD_NO_UNROLL
  for (int i = 0; i < kLooks; ++i) {
    uint32_t now;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                 : "=r"(now)
                 : "l"(ticket)
                 : "memory");
    if ((now & mask) == value)
      return now;
  }
  return 0;
}

} // namespace refold

#endif // REFOLD_CUDA_EMULATED

#include "refold_cuda_f8.h"

#include "refold_cuda_vectors.h"

#include "refold_cuda_lists.h"
#include "refold_cuda_parts.h"
#include "refold_cuda_tiles.h"

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_H
