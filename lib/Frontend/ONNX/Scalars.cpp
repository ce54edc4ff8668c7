// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Scalars.h"
#include <cmath>

using namespace mlir;
using namespace refold::onnx;

/// Floats are computed with in f32 or f64; integers must fit their type.
static Scalar roundTo(Scalar scalar, ElementType type) {
  if (scalar.real && type != ElementType::F64)
    scalar.real = double(float(*scalar.real));
  if (scalar.integer && scalar.integer->constant()) {
    int64_t value = *scalar.integer->constant();
    bool fits = true;
    if (type == ElementType::I32)
      fits = value == int32_t(value);
    else if (type == ElementType::I8)
      fits = value == int8_t(value);
    else if (type == ElementType::U8)
      fits = value == uint8_t(value);
    if (!fits)
      return Scalar();
  }
  return scalar;
}

std::optional<Tensor> refold::onnx::foldElementwise(Node &node,
                                                    ArrayRef<Tensor *> inputs,
                                                    ArrayRef<Extent> shape,
                                                    ElementType type,
                                                    FoldFn fold) {
  bool allSplat = true;
  for (Tensor *input : inputs) {
    if (!input->isTracked)
      return std::nullopt;
    allSplat &= input->splat() != nullptr;
  }
  std::optional<int64_t> count = smallCount(shape, kMostKnown);
  if (!count && !allSplat)
    return std::nullopt;
  std::vector<Scalar> known;
  SmallVector<int64_t> at(shape.size(), 0);
  int64_t total = allSplat ? 1 : *count;
  for (int64_t place = 0; place < total; ++place) {
    SmallVector<Scalar> operands;
    for (Tensor *input : inputs) {
      int64_t position = 0;
      if (input->known.size() > 1)
        for (unsigned k = 0; k < input->rank(); ++k) {
          int64_t size = *input->shape[k].constant();
          int64_t subscript = at[shape.size() - input->rank() + k];
          position = position * size + (size == 1 ? 0 : subscript);
        }
      operands.push_back(input->known[position]);
    }
    bool areKnown = llvm::all_of(operands, [](auto &s) { return s.isKnown(); });
    Scalar value;
    if (areKnown)
      value = roundTo(fold(node.extents, operands), type);
    known.push_back(value);
    for (int k = int(shape.size()) - 1; k >= 0 && !allSplat; --k) {
      if (++at[k] < *shape[k].constant())
        break;
      at[k] = 0;
    }
  }
  Tensor result = node.graph.knownTensor(type, shape, std::move(known));
  if (!result.isKnown())
    return std::nullopt;
  return result;
}

std::optional<IndexForm> refold::onnx::formOver(Extents &extents,
                                                const Tensor &tensor,
                                                ArrayRef<Extent> shape) {
  if (const Scalar *splat = tensor.splat(); splat && splat->integer) {
    Affine constant{*splat->integer, {}};
    constant.coefficients.resize(shape.size());
    return IndexForm{{constant}};
  }
  if (!tensor.form || tensor.form->parts.size() != 1)
    return std::nullopt;
  Affine over{tensor.form->parts.front().offset, {}};
  over.coefficients.resize(shape.size());
  for (unsigned k = 0; k < tensor.rank(); ++k)
    if (!tensor.shape[k].is(1))
      over.coefficients[shape.size() - tensor.rank() + k] =
          tensor.form->parts.front().coefficients[k];
  return IndexForm{{over}};
}

std::optional<IndexForm> refold::onnx::fitForm(ArrayRef<int64_t> elements,
                                               ArrayRef<Extent> shape) {
  if (elements.empty())
    return std::nullopt;
  SmallVector<int64_t> sizes, strides(shape.size(), 1), slopes(shape.size(), 0);
  for (const Extent &extent : shape)
    sizes.push_back(*extent.constant());
  for (int k = int(sizes.size()) - 2; k >= 0; --k)
    strides[k] = strides[k + 1] * sizes[k + 1];
  auto isSmall = [](int64_t value) {
    return std::abs(value) < (int64_t(1) << 40);
  };
  for (int64_t element : elements)
    if (element == INT64_MIN || !isSmall(element))
      return std::nullopt;
  for (size_t k = 0; k < sizes.size(); ++k)
    if (sizes[k] > 1)
      slopes[k] = elements[strides[k]] - elements[0];
  for (auto [position, element] : llvm::enumerate(elements)) {
    int64_t expected = elements[0];
    for (size_t k = 0; k < sizes.size(); ++k)
      expected += slopes[k] * (int64_t(position) / strides[k] % sizes[k]);
    if (element != expected)
      return std::nullopt;
  }
  Affine affine{Extent(elements[0]), {}};
  for (int64_t slope : slopes)
    affine.coefficients.push_back(Extent(slope));
  return IndexForm{{affine}};
}

std::optional<Interval> refold::onnx::rangeOf(Extents &extents,
                                              const Affine &affine,
                                              ArrayRef<Extent> shape) {
  Interval range{affine.offset, affine.offset};
  for (auto [slope, extent] : llvm::zip(affine.coefficients, shape)) {
    Extent reach = extents.mul(slope, extents.sub(extent, 1));
    if (extents.isNonNegative(slope))
      range.most = extents.add(range.most, reach);
    else if (extents.isAtMost(slope, 0))
      range.least = extents.add(range.least, reach);
    else
      return std::nullopt;
  }
  return range;
}
