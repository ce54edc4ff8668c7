// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Reference/RefTensor.h"
#include "llvm/Support/ErrorHandling.h"
#include <atomic>
#include <cstdlib>

using namespace refold;

static std::atomic<int64_t> live = 0;

int64_t RefTensor::liveBytes() { return live; }

static int64_t product(llvm::ArrayRef<int64_t> shape) {
  int64_t n = 1;
  for (int64_t extent : shape)
    n *= extent;
  return n;
}

bool refold::nextSubscripts(llvm::MutableArrayRef<int64_t> subscripts,
                            llvm::ArrayRef<int64_t> shape) {
  for (size_t d = shape.size(); d-- > 0;) {
    if (++subscripts[d] < shape[d])
      return true;
    subscripts[d] = 0;
  }
  return false;
}

RefTensor RefTensor::create(bool isFloat, llvm::ArrayRef<int64_t> shape,
                            bool isWide) {
  RefTensor made;
  made.kind = !isFloat ? Kind::Integer : isWide ? Kind::Wide : Kind::Double;
  made.extents.assign(shape.begin(), shape.end());
  made.steps = rowMajorStrides(shape);
  // All-zero bytes are 0 of both kinds. Memory limits are checked before.
  int64_t bytes = std::max<int64_t>(product(shape), 1) * sizeof(Cell);
  auto *cells = static_cast<Cell *>(std::calloc(bytes, 1));
  if (!cells)
    llvm::report_bad_alloc_error("reference: out of memory");
  live += bytes;
  made.cells = std::shared_ptr<Cell[]>(cells, [bytes](Cell *freed) {
    live -= bytes;
    std::free(freed);
  });
  return made;
}

static Cell loadCell(DType dtype, const void *element, bool isWide) {
  Cell cell{};
  switch (dtype) {
  case DType::I64:
    cell.i = *static_cast<const int64_t *>(element);
    break;
  case DType::I32:
    cell.i = *static_cast<const int32_t *>(element);
    break;
  case DType::I8:
  case DType::U8:
    cell.i = *static_cast<const int8_t *>(element);
    break;
  case DType::Bool:
    cell.i = *static_cast<const uint8_t *>(element) != 0;
    break;
  default:
    setFloat(cell, isWide, loadAsDouble(dtype, element));
  }
  return cell;
}

RefTensor RefTensor::fromTensor(const Tensor &tensor, bool isWide) {
  RefTensor made =
      create(refold::isFloat(tensor.dtype()), tensor.shape(), isWide);
  int64_t n = tensor.numElements();
  if (!tensor.isRowMajor()) {
    for (int64_t p = 0; p < n; ++p)
      made.cells[p] = loadCell(tensor.dtype(), tensor.at(p), isWide);
    return made;
  }
  const char *bytes = static_cast<const char *>(tensor.data());
  unsigned width = byteWidth(tensor.dtype());
  for (int64_t p = 0; p < n; ++p)
    made.cells[p] = loadCell(tensor.dtype(), bytes + p * width, isWide);
  return made;
}

RefTensor RefTensor::scalar(double value) {
  RefTensor made = create(true, {});
  made.cells[0].f = value;
  return made;
}

RefTensor RefTensor::scalar(int64_t value) {
  RefTensor made = create(false, {});
  made.cells[0].i = value;
  return made;
}

int64_t RefTensor::numElements() const { return product(extents); }

int64_t RefTensor::offsetOf(int64_t position) const {
  int64_t where = 0;
  for (size_t d = extents.size(); d-- > 0;) {
    where += position % extents[d] * steps[d];
    position /= extents[d];
  }
  return where;
}

RefTensor RefTensor::clone() const {
  RefTensor made = create(isFloat(), extents, isWide());
  int64_t n = numElements();
  if (n == 0)
    return made;
  if (isRowMajor()) {
    std::copy(data(), data() + n, made.data());
    return made;
  }
  llvm::SmallVector<int64_t, 4> at(rank(), 0);
  Cell *to = made.data();
  do {
    int64_t from = 0;
    for (unsigned d = 0; d < rank(); ++d)
      from += at[d] * steps[d];
    *to++ = data()[from];
  } while (nextSubscripts(at, extents));
  return made;
}

RefTensor RefTensor::view(llvm::ArrayRef<int64_t> shape,
                          llvm::ArrayRef<int64_t> strides,
                          int64_t offsetFromHere) const {
  RefTensor made = *this;
  made.extents.assign(shape.begin(), shape.end());
  made.steps.assign(strides.begin(), strides.end());
  made.isDense = areRowMajor(strides, shape);
  made.offset += offsetFromHere;
  return made;
}

RefTensor RefTensor::reshaped(llvm::ArrayRef<int64_t> shape) const {
  RefTensor rowMajor = isRowMajor() ? *this : clone();
  return rowMajor.view(shape, rowMajorStrides(shape), 0);
}

llvm::Expected<Tensor> RefTensor::toTensor(DType dtype) const {
  llvm::Expected<Tensor> made = Tensor::create(dtype, extents);
  if (!made)
    return made;
  int64_t n = numElements();
  for (int64_t p = 0; p < n; ++p) {
    void *element = made->at(p);
    if (isFloat())
      storeFromDouble(dtype, double(get(p)), element);
    else if (dtype == DType::I64)
      *static_cast<int64_t *>(element) = at(p).i;
    else if (dtype == DType::U8)
      *static_cast<uint8_t *>(element) = uint8_t(at(p).i);
    else
      storeFromDouble(dtype, double(at(p).i), element);
  }
  return made;
}
