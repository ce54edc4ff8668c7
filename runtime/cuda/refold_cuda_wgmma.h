// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What kernels with roles are written in, for sm_90a: gates that copies and
// threads pass, products of four warps on matrices in shared memory that are
// under way until they are waited for, registers that roles give each other.
// Every primitive has its emulation in refold_cuda_emulated_wgmma.h and a
// kernel of conformance_wgmma.cu.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_WGMMA_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_WGMMA_H

#ifdef REFOLD_CUDA_EMULATED
#include "refold_cuda_emulated_wgmma.h"
#else

/// `count` gates of a block, 8 bytes each, beside REFOLD_SHARED_BYTES.
#define REFOLD_GATES(name, count)                                              \
  __shared__ uint64_t name##_memory[count];                                    \
  const uint32_t name = uint32_t(__cvta_generic_to_shared(name##_memory))

namespace refold {

/// What lane 0 of the warp has: the same for all of them, as descriptors and
/// branches of a warp want it.
REFOLD_DEVICE int of_warp(int x) { return __shfl_sync(0xffffffffu, x, 0); }

//===----------------------------------------------------------------------===//
// Gates
//===----------------------------------------------------------------------===//

/// A gate is 8 bytes of shared memory. It opens each time `arrivals` have
/// arrived; one thread makes it, before a barrier of the block.
REFOLD_DEVICE void make_gate(uint32_t gate, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(gate),
               "r"(arrivals)
               : "memory");
}
REFOLD_DEVICE void arrive(uint32_t gate) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(gate)
               : "memory");
}
/// Arrives when all copies have that this thread has begun.
REFOLD_DEVICE void arrive_with_copies(uint32_t gate) {
  asm volatile(
      "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(gate)
      : "memory");
}
/// Until the gate has opened for the (2 n + parity)-th time, n any number that
/// is not more than one behind.
REFOLD_DEVICE void wait_gate(uint32_t gate, uint32_t parity) {
  asm volatile("{\n.reg .pred p;\n"
               "again:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1, "
               "0x989680;\n"
               "@p bra done;\n"
               "bra again;\n"
               "done:\n}" ::"r"(gate),
               "r"(parity)
               : "memory");
}
/// Arrives, and lets the gate open only when as many bytes have come that
/// `copy_box` brings.
REFOLD_DEVICE void arrive_expecting(uint32_t gate, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(gate),
      "r"(bytes)
      : "memory");
}

/// What copies of boxes are told of an array by who launches the kernel: rows
/// of bytes, and of all indices in front of the row how many and how far apart.
struct alignas(64) ArrayMap {
  uint64_t words[16];
};
/// All of an entry, its last parameter.
template <int kCount> struct ArrayMaps {
  ArrayMap of[kCount];
};
#define REFOLD_MAPS(name, count)                                               \
  const __grid_constant__ refold::ArrayMaps<count> name

/// The same, made by a block. Tells copies of matrices of bytes: rows of
/// `columns`, `strides[0]` apart, of which each has `extents[0]`; of all
/// indices in front of the row, as many and as far apart as `extents` and
/// `strides` say, the nearest first. Strides are multiples of 16, or 0, where
/// there are several; boxes have 128 columns and `box_rows` rows of one matrix.
/// A map is 128 aligned bytes of device memory that belong to the block,
/// `scratch` as many of shared memory. All lanes of one warp call it, and only
/// they use the map, and who has seen it (see_map).
template <int kIndices>
REFOLD_DEVICE void make_array_map(void *map, uint32_t scratch,
                                  const void *first,
                                  const int64_t (&extents)[kIndices],
                                  const int64_t (&strides)[kIndices],
                                  int64_t columns, int box_rows) {
  static_assert(kIndices >= 1 && kIndices <= 4);
  const int lane = int(threadIdx.x) % 32;
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(scratch + lane * 4), "r"(0)
               : "memory");
  __syncwarp();
  if (lane == 0) {
#define REFOLD_REPLACE(field, width, rest, ...)                                \
  asm volatile("tensormap.replace.tile." field ".shared::cta.b1024." width     \
               " [%0], " rest ";" ::"r"(scratch),                              \
               __VA_ARGS__                                                     \
               : "memory")
#define REFOLD_SET(field, value)                                               \
  asm volatile("tensormap.replace.tile." field                                 \
               ".shared::cta.b1024.b32 [%0], " value ";" ::"r"(scratch)        \
               : "memory")
// Of index `i`, which is dimension `dim` behind that of the columns.
#define REFOLD_INDEX(i, dim, box)                                              \
  if constexpr (kIndices > i) {                                                \
    constexpr int kAt = i < kIndices ? i : 0;                                  \
    const int64_t stride = uint32_t(extents[kAt]) > 1 ? strides[kAt] : 16;     \
    REFOLD_REPLACE("box_dim", "b32", dim ", %1", "r"(box));                    \
    REFOLD_REPLACE("global_dim", "b32", dim ", %1",                            \
                   "r"(uint32_t(extents[kAt])));                               \
    REFOLD_REPLACE("global_stride", "b64", #i ", %1", "l"(stride));            \
    REFOLD_REPLACE("element_stride", "b32", dim ", %1", "r"(1));               \
  }
    REFOLD_REPLACE("global_address", "b64", "%1", "l"(first));
    REFOLD_REPLACE("rank", "b32", "%1", "n"(kIndices)); // dimensions less one
    REFOLD_REPLACE("box_dim", "b32", "0, %1", "r"(128));
    REFOLD_REPLACE("global_dim", "b32", "0, %1", "r"(uint32_t(columns)));
    REFOLD_REPLACE("element_stride", "b32", "0, %1", "r"(1));
    REFOLD_INDEX(0, "1", box_rows)
    REFOLD_INDEX(1, "2", 1)
    REFOLD_INDEX(2, "3", 1)
    REFOLD_INDEX(3, "4", 1)
    REFOLD_SET("elemtype", "0");          // bytes
    REFOLD_SET("interleave_layout", "0"); // none
    REFOLD_SET("swizzle_mode", "3");      // of 128 bytes
    REFOLD_SET("fill_mode", "0");         // zeros
#undef REFOLD_INDEX
#undef REFOLD_REPLACE
#undef REFOLD_SET
  }
  __syncwarp();
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic."
               "release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(map),
               "r"(scratch)
               : "memory");
  asm volatile(
      "fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map)
      : "memory");
}
/// Before the thread uses a map of another warp, which it has met since.
REFOLD_DEVICE void see_map(const void *map) {
  asm volatile(
      "fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map)
      : "memory");
}
/// Begins to bring a box as Panels has it, to a multiple of 1024 bytes, by one
/// thread; zeros where there is no matrix. The bytes are those of `gate`.
REFOLD_DEVICE void copy_box(uint32_t to, const void *map, uint32_t gate,
                            int column, int row) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::"
               "complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
               "l"(map), "r"(gate), "r"(column), "r"(row)
               : "memory");
}
/// The same of one of several matrices: indices in front of the row, the
/// nearest first.
REFOLD_DEVICE void copy_box(uint32_t to, const void *map, uint32_t gate,
                            int column, int row, int i) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::"
               "complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
               "l"(map), "r"(gate), "r"(column), "r"(row), "r"(i)
               : "memory");
}
REFOLD_DEVICE void copy_box(uint32_t to, const void *map, uint32_t gate,
                            int column, int row, int i, int j) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::"
      "complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(map), "r"(gate), "r"(column), "r"(row), "r"(i), "r"(j)
      : "memory");
}
REFOLD_DEVICE void copy_box(uint32_t to, const void *map, uint32_t gate,
                            int column, int row, int i, int j, int k) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::"
      "complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
      "l"(map), "r"(gate), "r"(column), "r"(row), "r"(i), "r"(j), "r"(k)
      : "memory");
}
/// Begins to write a box to the matrix of a map, from where `copy_box` would
/// bring it, by one thread; nothing where there is no matrix. Who has written
/// that memory has shown it (show_matrices) and met the thread since.
REFOLD_DEVICE void store_box(const void *map, uint32_t from, int column,
                             int row) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, "
               "{%2, %3}], [%1];" ::"l"(map),
               "r"(from), "r"(column), "r"(row)
               : "memory");
}
/// The same of one of several matrices: indices in front of the row, the
/// nearest first.
REFOLD_DEVICE void store_box(const void *map, uint32_t from, int column,
                             int row, int i) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, "
               "{%2, %3, %4}], [%1];" ::"l"(map),
               "r"(from), "r"(column), "r"(row), "r"(i)
               : "memory");
}
REFOLD_DEVICE void store_box(const void *map, uint32_t from, int column,
                             int row, int i, int j) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, "
               "{%2, %3, %4, %5}], [%1];" ::"l"(map),
               "r"(from), "r"(column), "r"(row), "r"(i), "r"(j)
               : "memory");
}
REFOLD_DEVICE void store_box(const void *map, uint32_t from, int column,
                             int row, int i, int j, int k) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, "
               "{%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
               "r"(from), "r"(column), "r"(row), "r"(i), "r"(j), "r"(k)
               : "memory");
}
/// The boxes that this thread has begun to write since the last call are one
/// group.
REFOLD_DEVICE void commit_boxes() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// Until all but the last `kLeft` groups of this thread have been read from
/// shared memory. Launches that follow find them written.
template <int kLeft> REFOLD_DEVICE void wait_boxes() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kLeft) : "memory");
}
/// What this thread has seen arrive is seen by the matrix units, and what it
/// has written by them and by `store_box`.
REFOLD_DEVICE void show_matrices() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

/// Barriers 1 to 15 of the block, for `threads` of it: `await_turn` waits for
/// the others, `pass_turn` does not.
REFOLD_DEVICE void await_turn(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
REFOLD_DEVICE void pass_turn(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
/// From here on the threads of four warps have `kCount` registers each: fewer
/// than at the launch, or more once others have fewer.
template <int kCount> REFOLD_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount> REFOLD_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

/// What `load_matrices` has loaded from the same rows.
REFOLD_DEVICE void store_matrices(uint32_t row, const uint32_t (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, "
               "%4};" ::"r"(row),
               "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}

//===----------------------------------------------------------------------===//
// Products of four warps
//===----------------------------------------------------------------------===//

/// Before products, after sums or factors in registers have been written.
REFOLD_DEVICE void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/// The products since the last call are one group.
REFOLD_DEVICE void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Until at most `kLeft` groups are under way.
template <int kLeft> REFOLD_DEVICE void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// Numbers of the registers that hold sums, and the sums.
#define REFOLD_SLOTS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define REFOLD_SLOTS_16 REFOLD_SLOTS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define REFOLD_SLOTS_32                                                        \
  REFOLD_SLOTS_16                                                              \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "   \
  "%30, %31"
#define REFOLD_SLOTS_64                                                        \
  REFOLD_SLOTS_32                                                              \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "   \
  "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "     \
  "%60, %61, %62, %63"
#define REFOLD_SLOTS_128                                                       \
  REFOLD_SLOTS_64                                                              \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "   \
  "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, "     \
  "%92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, "     \
  "%105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, "   \
  "%117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define REFOLD_SUMS_4(part)                                                    \
  "+f"(sums[kPart + part][0]), "+f"(sums[kPart + part][1]),                    \
      "+f"(sums[kPart + part][2]), "+f"(sums[kPart + part][3])
#define REFOLD_SUMS_8(part) REFOLD_SUMS_4(part), REFOLD_SUMS_4(part + 1)
#define REFOLD_SUMS_16(part) REFOLD_SUMS_8(part), REFOLD_SUMS_8(part + 2)
#define REFOLD_SUMS_32(part) REFOLD_SUMS_16(part), REFOLD_SUMS_16(part + 4)
#define REFOLD_SUMS_64(part) REFOLD_SUMS_32(part), REFOLD_SUMS_32(part + 8)
#define REFOLD_SUMS_128(part) REFOLD_SUMS_64(part), REFOLD_SUMS_64(part + 16)

/// Nothing that reads these sums moves above the wait before.
template <int kParts> REFOLD_DEVICE void settle(float (&sums)[kParts][4]) {
  REFOLD_UNROLL
  for (int kPart = 0; kPart < kParts; ++kPart)
    asm volatile("" : REFOLD_SUMS_4(0)::"memory");
}

// `count` registers of sums of `columns` columns; `a` to `f` are the numbers of
// the operands behind them. `along`: rows of the right side lie along the sum.
#define REFOLD_PRODUCTS(type, name, columns, count, a, b, c, d, e, f)          \
  template <int kPart, int kParts>                                             \
  REFOLD_DEVICE void multiply_shared_##columns(float(&sums)[kParts][4],        \
                                               uint64_t left, uint64_t right,  \
                                               int adds, type) {               \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" c                        \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns            \
                 "k16.f32." name "." name " {" REFOLD_SLOTS_##count            \
                 "}, %" a ", %" b ", p, 1, 1, 0, 0;\n}"                        \
                 : REFOLD_SUMS_##count(0)                                      \
                 : "l"(left), "l"(right), "r"(adds));                          \
  }                                                                            \
  template <int kPart, int kParts>                                             \
  REFOLD_DEVICE void multiply_along_##columns(float(&sums)[kParts][4],         \
                                              uint64_t left, uint64_t right,   \
                                              int adds, type) {                \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" c                        \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns            \
                 "k16.f32." name "." name " {" REFOLD_SLOTS_##count            \
                 "}, %" a ", %" b ", p, 1, 1, 0, 1;\n}"                        \
                 : REFOLD_SUMS_##count(0)                                      \
                 : "l"(left), "l"(right), "r"(adds));                          \
  }                                                                            \
  template <int kPart, int kParts>                                             \
  REFOLD_DEVICE void multiply_kept_##columns(float(&sums)[kParts][4],          \
                                             const uint32_t(&left)[4],         \
                                             uint64_t right, int adds, type) { \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" f                        \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns            \
                 "k16.f32." name "." name " {" REFOLD_SLOTS_##count            \
                 "}, {%" a ", %" b ", %" c ", %" d "}, %" e ", p, 1, 1, 0;\n}" \
                 : REFOLD_SUMS_##count(0)                                      \
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]),     \
                   "l"(right), "r"(adds));                                     \
  }                                                                            \
  template <int kPart, int kParts>                                             \
  REFOLD_DEVICE void multiply_factors_##columns(                               \
      float(&sums)[kParts][4], const uint32_t(&left)[4], uint64_t right,       \
      int adds, type) {                                                        \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" f                        \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns            \
                 "k16.f32." name "." name " {" REFOLD_SLOTS_##count            \
                 "}, {%" a ", %" b ", %" c ", %" d "}, %" e ", p, 1, 1, 1;\n}" \
                 : REFOLD_SUMS_##count(0)                                      \
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]),     \
                   "l"(right), "r"(adds));                                     \
  }
#define REFOLD_PRODUCTS_OF(type, name)                                         \
  REFOLD_PRODUCTS(type, name, 16, 8, "8", "9", "10", "11", "12", "13")         \
  REFOLD_PRODUCTS(type, name, 32, 16, "16", "17", "18", "19", "20", "21")      \
  REFOLD_PRODUCTS(type, name, 64, 32, "32", "33", "34", "35", "36", "37")      \
  REFOLD_PRODUCTS(type, name, 128, 64, "64", "65", "66", "67", "68", "69")     \
  REFOLD_PRODUCTS(type, name, 256, 128, "128", "129", "130", "131", "132",     \
                  "133")
REFOLD_PRODUCTS_OF(bf16, "bf16")
REFOLD_PRODUCTS_OF(f16, "f16")
#undef REFOLD_PRODUCTS_OF
#undef REFOLD_PRODUCTS

// Four of them along the sum, one instruction after the other: compilers have
// the registers of the sums once instead of four times.
#define REFOLD_STEP(name, operands, adds, rest)                                \
  "wgmma.mma_async.sync.aligned.m64n128k16.f32." name "." name                 \
  " {" REFOLD_SLOTS_64 "}, " operands ", " adds rest ";\n"
#define REFOLD_PRODUCTS_OF(type, name)                                         \
  template <int kPart, int kParts>                                             \
  REFOLD_DEVICE void multiply_shared_128(                                      \
      float(&sums)[kParts][4], const uint64_t(&left)[4],                       \
      const uint64_t(&right)[4], int adds, type) {                             \
    asm volatile(                                                              \
        "{\n.reg .pred p, q;\nsetp.ne.b32 p, %72, 0;\n"                        \
        "setp.eq.b32 q, 0, 0;\n" REFOLD_STEP(name, "%64, %65", "p",            \
                                             ", 1, 1, 0, 0")                   \
            REFOLD_STEP(name, "%66, %67", "q", ", 1, 1, 0, 0")                 \
                REFOLD_STEP(name, "%68, %69", "q", ", 1, 1, 0, 0")             \
                    REFOLD_STEP(name, "%70, %71", "q", ", 1, 1, 0, 0") "}"     \
        : REFOLD_SUMS_64(0)                                                    \
        : "l"(left[0]), "l"(right[0]), "l"(left[1]), "l"(right[1]),            \
          "l"(left[2]), "l"(right[2]), "l"(left[3]), "l"(right[3]),            \
          "r"(adds));                                                          \
  }                                                                            \
  template <int kPart, int kFirst, int kParts, int kSteps>                     \
  REFOLD_DEVICE void multiply_factors_128(                                     \
      float(&sums)[kParts][4], const uint32_t(&left)[kSteps][1][4],            \
      const uint64_t(&right)[4], int adds, type) {                             \
    asm volatile(                                                              \
        "{\n.reg .pred p, q;\nsetp.ne.b32 p, %84, 0;\n"                        \
        "setp.eq.b32 q, 0, 0;\n" REFOLD_STEP(                                  \
            name, "{%64, %65, %66, %67}, %80", "p", ", 1, 1, 1")               \
            REFOLD_STEP(name, "{%68, %69, %70, %71}, %81", "q", ", 1, 1, 1")   \
                REFOLD_STEP(name, "{%72, %73, %74, %75}, %82", "q",            \
                            ", 1, 1, 1")                                       \
                    REFOLD_STEP(name, "{%76, %77, %78, %79}, %83", "q",        \
                                ", 1, 1, 1") "}"                               \
        : REFOLD_SUMS_64(0)                                                    \
        : REFOLD_FACTORS(0), REFOLD_FACTORS(1), REFOLD_FACTORS(2),             \
          REFOLD_FACTORS(3), "l"(right[0]), "l"(right[1]), "l"(right[2]),      \
          "l"(right[3]), "r"(adds));                                           \
  }
#define REFOLD_FACTORS(step)                                                   \
  "r"(left[kFirst + step][0][0]), "r"(left[kFirst + step][0][1]),              \
      "r"(left[kFirst + step][0][2]), "r"(left[kFirst + step][0][3])
REFOLD_PRODUCTS_OF(bf16, "bf16")
REFOLD_PRODUCTS_OF(f16, "f16")
#undef REFOLD_FACTORS
#undef REFOLD_PRODUCTS_OF
#undef REFOLD_STEP

// Of floats of 8 bits, 32 along what is summed. The matrix units add 32
// products and the sum before them with some 14 bits of the largest.
#define REFOLD_PRODUCTS(left_type, right_type, names, columns, count, a, b, c) \
  template <int kPart, int kParts>                                             \
  REFOLD_DEVICE void multiply_bytes_##columns(                                 \
      float(&sums)[kParts][4], uint64_t left, uint64_t right, int adds,        \
      left_type, right_type) {                                                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" c                        \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns            \
                 "k32.f32." names " {" REFOLD_SLOTS_##count "}, %" a ", %" b   \
                                                            ", p, 1, 1;\n}"    \
                 : REFOLD_SUMS_##count(0)                                      \
                 : "l"(left), "l"(right), "r"(adds));                          \
  }
#define REFOLD_PRODUCTS_OF(left_type, right_type, names)                       \
  REFOLD_PRODUCTS(left_type, right_type, names, 64, 32, "32", "33", "34")      \
  REFOLD_PRODUCTS(left_type, right_type, names, 128, 64, "64", "65", "66")     \
  REFOLD_PRODUCTS(left_type, right_type, names, 256, 128, "128", "129", "130")
REFOLD_PRODUCTS_OF(f8e4m3, f8e4m3, "e4m3.e4m3")
REFOLD_PRODUCTS_OF(f8e4m3, f8e5m2, "e4m3.e5m2")
REFOLD_PRODUCTS_OF(f8e5m2, f8e4m3, "e5m2.e4m3")
REFOLD_PRODUCTS_OF(f8e5m2, f8e5m2, "e5m2.e5m2")
#undef REFOLD_PRODUCTS_OF
#undef REFOLD_PRODUCTS

} // namespace refold

#endif // REFOLD_CUDA_EMULATED

namespace refold {

/// The same of one matrix.
REFOLD_DEVICE void make_map(void *map, uint32_t scratch, const void *first,
                            int64_t rows, int64_t columns, int64_t stride,
                            int box_rows) {
  make_array_map<1>(map, scratch, first, {rows}, {stride}, columns, box_rows);
}

//===----------------------------------------------------------------------===//
// Where a block goes
//===----------------------------------------------------------------------===//

/// What a tile is to a block: a further one of its rows, the first one, or
/// which of them is known when it is folded.
enum TileKind { Further, FirstOfRows, FirstOrFurther };

/// Some rows of one of several matrices. A negative matrix: there are no more;
/// negative rows: none this time.
struct Visit {
  int matrix, rows;
};
/// The n-th of a block, where every matrix has `count` blocks of rows. Where
/// later rows read more of the stream (kIsGrowing) the last ones go with the
/// first ones, so that two visits are as much work for everybody.
template <bool kIsGrowing>
REFOLD_DEVICE Visit visit_of(int n, int count, int matrices) {
  const int64_t all = blocks(), turn = kIsGrowing ? n / 2 : n;
  if (!kIsGrowing || int64_t(count) * matrices <= all) {
    const int64_t at = block() + n * all;
    if (at >= int64_t(count) * matrices)
      return {-1, 0};
    const int rows = int(uint32_t(at) % uint32_t(count));
    return {int(uint32_t(at) / uint32_t(count)),
            kIsGrowing ? count - 1 - rows : rows};
  }
  const int pairs = (count + 1) / 2;
  const int64_t at = block() + turn * all;
  if (at >= int64_t(pairs) * matrices)
    return {-1, 0};
  const int pair = int(uint32_t(at) % uint32_t(pairs));
  const int last = count - 1 - pair;
  return {int(uint32_t(at) / uint32_t(pairs)), n % 2 == 0     ? last
                                               : pair == last ? -1
                                                              : pair};
}

//===----------------------------------------------------------------------===//
// Matrices that four warps read
//===----------------------------------------------------------------------===//

/// A matrix of 16-bit elements in shared memory, in panels of 64 columns: chunk
/// c of row r of one lies where chunk c ^ r % 8 would, which is what the matrix
/// units call a swizzle of 128 bytes. Begins at a multiple of 1024 bytes.
template <int kRowsOf, int kColumnsOf> struct Panels {
  static constexpr int kRows = kRowsOf, kColumns = kColumnsOf;
  static constexpr int kRowBytes = 128, kPanelBytes = kRows * kRowBytes;
  static constexpr int kCount = (kColumns + 63) / 64, kChunks = kColumns / 8;
  static constexpr int kBytes = kCount * kPanelBytes;
  static_assert(kRows % 16 == 0 && kColumns % 16 == 0);

  REFOLD_DEVICE static uint32_t place(int row, int chunk) {
    return chunk / 8 * kPanelBytes + row * kRowBytes + ((chunk ^ row) & 7) * 16;
  }
  /// A multiple of 8 rows down.
  REFOLD_DEVICE static uint32_t down(uint32_t at, int rows) {
    return at + rows * kRowBytes;
  }
};

/// What the matrix units are told of a matrix: where it begins, how far apart
/// panels (of what lies beside each other) and 8 rows are.
REFOLD_DEVICE uint64_t describe(uint32_t at, int panel_bytes) {
  return uint64_t((at & 0x3ffff) >> 4) | uint64_t(panel_bytes >> 4) << 16 |
         uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

/// The same `bytes` further on, one addition: no address has a carry into what
/// is beside it.
REFOLD_DEVICE uint64_t further(uint64_t matrix, int bytes) {
  return (matrix & 0xffffffff00000000) |
         uint32_t(uint32_t(matrix) + uint32_t(bytes >> 4));
}

/// Brings rows of a matrix into panels, all 128 threads of a role together: 16
/// bytes at once. What lies beyond `rows` is 0, and so are the chunks beyond
/// `columns` that products read.
template <typename To, typename T>
REFOLD_DEVICE void copy_panels(uint32_t to, const T *from, int64_t row_stride,
                               int64_t rows, int64_t columns) {
  constexpr int kChunks = To::kColumns / 8, kWhole = kChunks / 8 * 8;
  // 8 threads bring 128 bytes of a row; what is left of it goes on its own.
  const int at = thread_again();
  const auto bring = [&](auto count, int first_chunk) {
    constexpr int kAcross = decltype(count)::value; // chunks of one panel
    constexpr int kStep = 128 / kAcross / 8 * 8;    // rows at once
    const int chunk = at % kAcross, first = at / kAcross;
    if (128 % (kAcross * 8) != 0 && first >= kStep)
      return;
    const T *source = from + first * row_stride + (first_chunk + chunk) * 8;
    const uint32_t place = to + To::place(first, first_chunk + chunk);
    if (rows >= To::kRows && columns == To::kColumns) {
      REFOLD_UNROLL
      for (int row = 0; row < To::kRows; row += kStep) {
        if (To::kRows % kStep == 0 || row + first < To::kRows)
          copy_async(place + row * To::kRowBytes, source, 16);
        source += kStep * row_stride;
      }
      return;
    }
    const bool is_column = (first_chunk + chunk) * 8 < columns;
    REFOLD_UNROLL
    for (int row = 0; row < To::kRows; row += kStep) {
      const bool is_there = is_column && row + first < rows;
      if (To::kRows % kStep == 0 || row + first < To::kRows)
        copy_async(place + row * To::kRowBytes, is_there ? source : from,
                   is_there ? 16 : 0);
      source += kStep * row_stride;
    }
  };
  REFOLD_UNROLL
  for (int chunk = 0; chunk < kWhole; chunk += 8)
    bring(Number<8>{}, chunk);
  if constexpr (kChunks % 8 != 0)
    bring(Number<kChunks % 8>{}, kWhole);
}

/// Begins to bring rows of a matrix into panels, by one thread: by boxes of a
/// map of as many rows, of the matrix that `at` says, whose bytes the gate
/// expects. What lies beyond the matrix is 0.
template <typename To, typename Map, typename... At>
REFOLD_DEVICE void copy_by_boxes(uint32_t to, const Map *map, uint32_t gate,
                                 int row, At... at) {
  arrive_expecting(gate, To::kBytes);
  REFOLD_UNROLL
  for (int panel = 0; panel < To::kCount; ++panel)
    copy_box(to + panel * To::kPanelBytes, map, gate, panel * 128, row, at...);
}

/// What one of 128 threads brings of a matrix into panels: a chunk of every
/// 16th row of each panel.
template <typename To, typename T> struct PanelChunks {
  static constexpr int kPasses = To::kRows / 16, kPanels = To::kChunks / 8;
  static_assert(To::kChunks % 8 == 0);
  const T *source;
  int64_t pass_stride;
  int first, chunk;

  REFOLD_DEVICE PanelChunks(const T *from, int64_t row_stride)
      : pass_stride(16 * row_stride), first(thread() % 128 / 8),
        chunk(thread() % 8) {
    source = from + first * row_stride + chunk * 8;
  }
  /// What lies beyond `rows` and `columns` is 0.
  REFOLD_DEVICE void bring(uint32_t to, int rows, int columns) const {
    const uint32_t place = to + To::place(first, chunk);
    REFOLD_UNROLL
    for (int panel = 0; panel < kPanels; ++panel) {
      const bool is_column = panel * 64 + chunk * 8 < columns;
      const T *from = source + panel * 64;
      REFOLD_UNROLL
      for (int pass = 0; pass < kPasses; ++pass) {
        copy_async(place + panel * To::kPanelBytes + pass * 16 * To::kRowBytes,
                   from, is_column && pass * 16 + first < rows ? 16 : 0);
        from += pass_stride;
      }
    }
  }
};

/// Puts 16 rows that a warp holds where `load_rows` finds them: 16 columns from
/// the k-th 16 on.
template <typename To>
REFOLD_DEVICE void store_rows(const uint32_t (&from)[4], uint32_t to, int k) {
  const int lane = thread_again() % 32;
  store_matrices(To::right(to + To::place(lane % 16, lane / 16), 2 * k), from);
}

/// Begins to write 16 rows of pairs of 16 bits that a warp holds as sums of
/// products are, from `by`, which only it has: by boxes of a map of 16 rows, of
/// the matrix that `at` says. `Rows`, Panels<16, kColumns>, has room for all
/// columns, or for some panels, which then leave one after the other. The ones
/// before are read first; the last ones lane 0 waits for (wait_boxes).
template <typename Rows, typename Map, int kParts, typename... At>
REFOLD_DEVICE void store_by_boxes(const Map *map, uint32_t by,
                                  const uint32_t (&words)[2][kParts], int row,
                                  At... at) {
  constexpr int kPanels = (kParts + 7) / 8, kRoom = Rows::kCount;
  constexpr int kAtOnce = kRoom < kPanels ? 1 : kPanels;
  static_assert(Rows::kRows == 16 && Rows::kColumns <= kParts * 8);
  const int lane = thread_again() % 32;
  const uint32_t first = by + Rows::place(lane % 16, lane / 16);
  REFOLD_UNROLL
  for (int panel = 0; panel < kPanels; panel += kAtOnce) {
    const uint32_t room = panel % kRoom * Rows::kPanelBytes;
    if (panel == 0 || panel >= kRoom) {
      if (lane == 0) {
        if (panel == 0)
          wait_boxes<0>();
        else
          wait_boxes<kRoom - 1>();
      }
      warp_barrier();
    }
    REFOLD_UNROLL
    for (int part = panel * 8; part < kParts && part < (panel + kAtOnce) * 8;
         part += 2) {
      const uint32_t quad[4] = {words[0][part], words[1][part],
                                words[0][part + 1], words[1][part + 1]};
      store_matrices((first ^ ((part & 6) << 4)) + room +
                         (part / 8 - panel) * Rows::kPanelBytes,
                     quad);
    }
    show_matrices();
    warp_barrier();
    if (lane == 0) {
      REFOLD_UNROLL
      for (int i = 0; i < kAtOnce; ++i)
        store_box(map, by + room + i * Rows::kPanelBytes, (panel + i) * 128,
                  row, at...);
      commit_boxes();
    }
  }
}

/// The widest of the products that fit into `left` columns.
constexpr int piece_of(int left) {
  return left >= 128 ? 128 : left >= 64 ? 64 : left >= 32 ? 32 : 16;
}

/// products = left * right^T, 64 rows of `left` from its offset on against all
/// rows of `right`; under way until it is waited for.
template <typename T, typename Left, typename Right, int kRow = 0, int kParts>
REFOLD_DEVICE void multiply_panels(float (&products)[kParts][4], uint32_t left,
                                   uint32_t right) {
  static_assert(kParts * 8 == Right::kRows &&
                Left::kColumns == Right::kColumns);
  constexpr int kPiece = piece_of(Right::kRows - kRow);
  const uint64_t left_at = describe(left, 16);
  const uint64_t right_at = describe(right + kRow * Right::kRowBytes, 16);
  constexpr int kFours = kPiece == 128 ? Left::kColumns / 64 : 0;
  REFOLD_UNROLL
  for (int k = 0; k < kFours; ++k) {
    uint64_t a[4], b[4];
    REFOLD_UNROLL
    for (int i = 0; i < 4; ++i) {
      a[i] = further(left_at, k * Left::kPanelBytes + i * 32);
      b[i] = further(right_at, k * Right::kPanelBytes + i * 32);
    }
    if constexpr (kPiece == 128)
      multiply_shared_128<kRow / 8>(products, a, b, k != 0, T{});
  }
  REFOLD_UNROLL
  for (int k = kFours * 4; k < Left::kColumns / 16; ++k) {
    const uint64_t a = further(left_at, k / 4 * Left::kPanelBytes + k % 4 * 32);
    const uint64_t b =
        further(right_at, k / 4 * Right::kPanelBytes + k % 4 * 32);
    if constexpr (kPiece == 128)
      multiply_shared_128<kRow / 8>(products, a, b, k != 0, T{});
    else if constexpr (kPiece == 64)
      multiply_shared_64<kRow / 8>(products, a, b, k != 0, T{});
    else if constexpr (kPiece == 32)
      multiply_shared_32<kRow / 8>(products, a, b, k != 0, T{});
    else
      multiply_shared_16<kRow / 8>(products, a, b, k != 0, T{});
  }
  if constexpr (kRow + kPiece < Right::kRows) {
    begin_products();
    multiply_panels<T, Left, Right, kRow + kPiece>(products, left, right);
  }
}

/// The next one, of 128 columns.
template <typename T, typename Values, int kColumn, int kFirst = 0, int kParts,
          int kSteps>
REFOLD_DEVICE void multiply_fours(float (&sums)[kParts][4],
                                  const uint32_t (&factors)[kSteps][1][4],
                                  uint64_t values_at, int adds) {
  uint64_t b[4];
  REFOLD_UNROLL
  for (int i = 0; i < 4; ++i)
    b[i] = further(values_at, (kFirst + i) * 16 * Values::kRowBytes);
  multiply_factors_128<kColumn / 8, kFirst>(sums, factors, b, adds, T{});
  if constexpr (kFirst + 4 < kSteps)
    multiply_fours<T, Values, kColumn, kFirst + 4>(sums, factors, values_at, 1);
}

/// sums += factors * values: factors of 16 rows of `Values` after each other.
/// `adds` 0: what the sums were before does not matter.
template <typename T, typename Values, int kColumn = 0, int kParts, int kSteps>
REFOLD_DEVICE void multiply_factors(float (&sums)[kParts][4],
                                    const uint32_t (&factors)[kSteps][1][4],
                                    uint32_t values, int adds = 1) {
  static_assert(kParts * 8 == Values::kColumns && kSteps * 16 == Values::kRows);
  constexpr int kPiece = piece_of(Values::kColumns - kColumn);
  const uint64_t values_at =
      describe(values + kColumn / 64 * Values::kPanelBytes + kColumn % 64 * 2,
               Values::kPanelBytes);
  if constexpr (kPiece == 128 && kSteps % 4 == 0)
    multiply_fours<T, Values, kColumn>(sums, factors, values_at, adds);
  else
    REFOLD_UNROLL
  for (int k = 0; k < kSteps; ++k) {
    const uint64_t b = further(values_at, k * 16 * Values::kRowBytes);
    const int own = k == 0 ? adds : 1;
    if constexpr (kPiece == 128)
      multiply_factors_128<kColumn / 8>(sums, factors[k][0], b, own, T{});
    else if constexpr (kPiece == 64)
      multiply_factors_64<kColumn / 8>(sums, factors[k][0], b, own, T{});
    else if constexpr (kPiece == 32)
      multiply_factors_32<kColumn / 8>(sums, factors[k][0], b, own, T{});
    else
      multiply_factors_16<kColumn / 8>(sums, factors[k][0], b, own, T{});
  }
  if constexpr (kColumn + kPiece < Values::kColumns) {
    begin_products();
    multiply_factors<T, Values, kColumn + kPiece>(sums, factors, values, adds);
  }
}

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_WGMMA_H
