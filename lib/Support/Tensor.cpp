// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/Tensor.h"
#include "refold/Support/AlignedBuffer.h"
#include "refold/Support/Error.h"
#include <cmath>
#include <cstring>
#include <iterator>
#include <new>

namespace refold {

namespace {

/// A binary format of at most 16 bits: sign, exponent, `mantissa` bits of
/// fraction.
struct SmallFormat {
  int mantissa;
  int minExponent;   ///< of the smallest normal number
  uint32_t largest;  ///< code of the largest finite number
  uint32_t infinity; ///< code of infinity; `largest` where the format saturates
  uint32_t nan;      ///< code of a quiet NaN
  uint32_t signBit;
  bool hasInfinity;
};

constexpr SmallFormat kF16 = {10, -14, 0x7bff, 0x7c00, 0x7e00, 0x8000, true};
constexpr SmallFormat kBF16 = {7, -126, 0x7f7f, 0x7f80, 0x7fc0, 0x8000, true};
constexpr SmallFormat kF8E4M3 = {3, -6, 0x7e, 0x7e, 0x7f, 0x80, false};
constexpr SmallFormat kF8E5M2 = {2, -14, 0x7b, 0x7b, 0x7e, 0x80, true};

double decode(const SmallFormat &format, uint32_t code) {
  double sign = code & format.signBit ? -1.0 : 1.0;
  code &= format.signBit - 1;
  if (code > format.largest) {
    bool isInfinity = format.hasInfinity && code == format.largest + 1;
    return isInfinity ? sign * INFINITY : NAN;
  }
  uint32_t exponent = code >> format.mantissa;
  uint32_t fraction = code & ((1u << format.mantissa) - 1);
  if (exponent == 0)
    return sign * std::ldexp(fraction, format.minExponent - format.mantissa);
  return sign * std::ldexp(fraction + (1u << format.mantissa),
                           static_cast<int>(exponent) - 1 + format.minExponent -
                               format.mantissa);
}

uint32_t encode(const SmallFormat &format, double value) {
  if (std::isnan(value))
    return format.nan;
  uint32_t sign = std::signbit(value) ? format.signBit : 0;
  double size = std::abs(value);
  if (std::isinf(size))
    return sign | format.infinity;
  int exponent = size == 0 ? format.minExponent
                           : std::max(std::ilogb(size), format.minExponent);
  // One rounding, to whole units of the last place; a carry moves into the
  // exponent field by itself, which is also what makes the smallest normal
  // number.
  double units = std::nearbyint(std::ldexp(size, format.mantissa - exponent));
  double code =
      std::ldexp(exponent - format.minExponent, format.mantissa) + units;
  return sign | (code > format.largest ? format.infinity
                                       : static_cast<uint32_t>(code));
}

template <typename T> double loadRaw(const void *element) {
  T value;
  std::memcpy(&value, element, sizeof(T));
  return static_cast<double>(value);
}
template <typename T> void storeRaw(T value, void *element) {
  std::memcpy(element, &value, sizeof(T));
}

template <typename T> void storeInteger(double value, void *element) {
  constexpr T low = std::numeric_limits<T>::min(),
              high = std::numeric_limits<T>::max();
  double rounded = std::nearbyint(value);
  T result = 0;
  if (std::isnan(value))
    result = 0;
  else if (rounded >= std::ldexp(1.0, std::numeric_limits<T>::digits))
    result = high;
  else if (rounded <= static_cast<double>(low))
    result = low;
  else
    result = static_cast<T>(rounded);
  storeRaw(result, element);
}

template <typename T> uint32_t loadCode(const void *element) {
  T code;
  std::memcpy(&code, element, sizeof(T));
  return code;
}

} // namespace

llvm::StringRef nameOf(DType dtype) { return infoOf(dtype).name; }

std::optional<DType> parseDType(llvm::StringRef name) {
  for (uint8_t i = 0; i < std::size(kDTypes); ++i)
    if (name == kDTypes[i].name)
      return static_cast<DType>(i);
  return std::nullopt;
}

double loadAsDouble(DType dtype, const void *element) {
  switch (dtype) {
  case DType::F64:
    return loadRaw<double>(element);
  case DType::F32:
    return loadRaw<float>(element);
  case DType::F16:
    return decode(kF16, loadCode<uint16_t>(element));
  case DType::BF16:
    return decode(kBF16, loadCode<uint16_t>(element));
  case DType::F8E4M3:
    return decode(kF8E4M3, loadCode<uint8_t>(element));
  case DType::F8E5M2:
    return decode(kF8E5M2, loadCode<uint8_t>(element));
  case DType::I64:
    return loadRaw<int64_t>(element);
  case DType::I32:
    return loadRaw<int32_t>(element);
  case DType::I8:
    return loadRaw<int8_t>(element);
  case DType::U8:
    return loadRaw<uint8_t>(element);
  case DType::Bool:
    return loadCode<uint8_t>(element) != 0;
  }
  llvm_unreachable("every dtype is a case");
}

void storeFromDouble(DType dtype, double value, void *element) {
  switch (dtype) {
  case DType::F64:
    return storeRaw(value, element);
  case DType::F32:
    return storeRaw(static_cast<float>(value), element);
  case DType::F16:
    return storeRaw(static_cast<uint16_t>(encode(kF16, value)), element);
  case DType::BF16:
    return storeRaw(static_cast<uint16_t>(encode(kBF16, value)), element);
  case DType::F8E4M3:
    return storeRaw(static_cast<uint8_t>(encode(kF8E4M3, value)), element);
  case DType::F8E5M2:
    return storeRaw(static_cast<uint8_t>(encode(kF8E5M2, value)), element);
  case DType::I64:
    return storeInteger<int64_t>(value, element);
  case DType::I32:
    return storeInteger<int32_t>(value, element);
  case DType::I8:
    return storeInteger<int8_t>(value, element);
  case DType::U8:
    return storeInteger<uint8_t>(value, element);
  case DType::Bool:
    return storeRaw(static_cast<uint8_t>(value != 0), element);
  }
}

llvm::SmallVector<int64_t, 4> rowMajorStrides(llvm::ArrayRef<int64_t> shape) {
  llvm::SmallVector<int64_t, 4> strides(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

bool areRowMajor(llvm::ArrayRef<int64_t> strides,
                 llvm::ArrayRef<int64_t> shape) {
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != step)
      return shape[i] == 0;
    step *= shape[i];
  }
  return true;
}

llvm::Expected<Tensor> Tensor::create(DType dtype,
                                      llvm::ArrayRef<int64_t> shape) {
  std::optional<int64_t> count = checkedNumElements(shape, byteWidth(dtype));
  if (!count)
    return fail(ExitCode::Limit, "an array of this shape exceeds 2^62 bytes");
  auto owner = std::make_shared<AlignedBuffer>();
  size_t size = *count * byteWidth(dtype);
  // Of one page of 2 MiB more than half might be lost.
  if (!owner->reserve(std::max<size_t>(size, 1), 2 * AlignedBuffer::kHugePage))
    return fail(ExitCode::Limit, llvm::Twine("no memory for an array of ") +
                                     llvm::Twine(size) + " bytes");
  char *data = owner->data();
  std::memset(data, 0, size);
  return share(dtype, shape, rowMajorStrides(shape), data, std::move(owner));
}

Tensor Tensor::borrow(DType dtype, llvm::ArrayRef<int64_t> shape,
                      llvm::ArrayRef<int64_t> strides, void *data) {
  return share(dtype, shape, strides, data, nullptr);
}

Tensor Tensor::share(DType dtype, llvm::ArrayRef<int64_t> shape,
                     llvm::ArrayRef<int64_t> strides, void *data,
                     std::shared_ptr<void> owner) {
  assert(shape.size() == strides.size() && "one stride an axis");
  Tensor result;
  result.type = dtype;
  result.extents.assign(shape.begin(), shape.end());
  result.steps.assign(strides.begin(), strides.end());
  result.isDense = areRowMajor(strides, shape);
  result.bytes = data;
  result.owner = std::move(owner);
  return result;
}

int64_t Tensor::numElements() const {
  int64_t count = 1;
  for (int64_t extent : extents)
    count *= extent;
  return count;
}

int64_t Tensor::offsetOf(int64_t position) const {
  int64_t offset = 0;
  for (size_t i = extents.size(); i-- > 0;) {
    offset += position % extents[i] * steps[i];
    position /= extents[i];
  }
  return offset;
}

llvm::Expected<Tensor> Tensor::clone(std::optional<DType> dtype) const {
  llvm::Expected<Tensor> result = create(dtype.value_or(type), extents);
  if (!result)
    return result;
  int64_t count = numElements();
  if (result->dtype() == type && isRowMajor()) {
    std::memcpy(result->data(), bytes, count * byteWidth(type));
    return result;
  }
  bool isSameType = result->dtype() == type;
  for (int64_t i = 0; i < count; ++i) {
    // Same type: bytes are moved, since a double does not hold every i64 and
    // NaN payload.
    if (isSameType)
      std::memcpy(result->at(i), at(i), byteWidth(type));
    else
      result->set(i, get(i));
  }
  return result;
}

std::string describe(const Tensor &tensor) {
  std::string text = nameOf(tensor.dtype()).str() + "[";
  for (auto [i, extent] : llvm::enumerate(tensor.shape()))
    text += (i ? ", " : "") + std::to_string(extent);
  return text + "]";
}

} // namespace refold
