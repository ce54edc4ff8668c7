// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SUPPORT_DTYPE_H
#define REFOLD_SUPPORT_DTYPE_H

#include <cstdint>
#include <optional>
#include <span>

namespace refold {

/// Element types of arrays that enter and leave a program. F8E4M3 is the "FN"
/// form: no infinity, largest value 448.
enum class DType : uint8_t {
  F64,
  F32,
  F16,
  BF16,
  F8E4M3,
  F8E5M2,
  I64,
  I32,
  I8,
  U8,
  Bool
};

struct DTypeInfo {
  const char *name; ///< "f64", "f8e4m3", "bool", ...
  unsigned bytes;   ///< of one element
  bool isFloat;
};
/// In the order of `DType`.
inline constexpr DTypeInfo kDTypes[] = {
    {"f64", 8, true},  {"f32", 4, true},    {"f16", 2, true},
    {"bf16", 2, true}, {"f8e4m3", 1, true}, {"f8e5m2", 1, true},
    {"i64", 8, false}, {"i32", 4, false},   {"i8", 1, false},
    {"u8", 1, false},  {"bool", 1, false},
};
constexpr const DTypeInfo &infoOf(DType dtype) {
  return kDTypes[static_cast<uint8_t>(dtype)];
}

/// Bytes of one element.
constexpr unsigned byteWidth(DType dtype) { return infoOf(dtype).bytes; }
constexpr bool isFloat(DType dtype) { return infoOf(dtype).isFloat; }

/// Product of the extents, or nothing where one is negative or the bytes exceed
/// 2^62.
inline std::optional<int64_t> checkedNumElements(std::span<const int64_t> shape,
                                                 unsigned bytesPerElement) {
  // Zero extents do not excuse the others: [2^62, 2^62, 0] has strides that
  // overflow.
  constexpr int64_t kLimit = int64_t(1) << 62;
  int64_t nonZero = bytesPerElement;
  bool isEmpty = false;
  for (int64_t extent : shape) {
    isEmpty |= extent == 0;
    if (extent < 0 ||
        (extent > 0 && __builtin_mul_overflow(nonZero, extent, &nonZero)) ||
        nonZero > kLimit)
      return std::nullopt;
  }
  return isEmpty ? 0 : nonZero / bytesPerElement;
}

} // namespace refold

#endif // REFOLD_SUPPORT_DTYPE_H
