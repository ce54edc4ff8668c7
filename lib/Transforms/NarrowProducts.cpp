// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Transforms/NarrowProducts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include <cmath>
#include <cstring>

using namespace mlir;
using namespace refold;

/// A sum of products of two f32 arrays (or of one with a narrower one), each
/// with rows that the other does not have.
static bool isProduct(linalg::LinalgOp op) {
  if (op.getNumDpsInputs() != 2 || op.getNumDpsInits() != 1 ||
      !linalg::isaContractionOpInterface(op) || op.hasPureBufferSemantics())
    return false;
  auto elementOf = [](Value value) {
    return cast<ShapedType>(value.getType()).getElementType();
  };
  FailureOr<linalg::ContractionDimensions> dims =
      linalg::inferContractionDims(op);
  return succeeded(dims) && !dims->m.empty() && !dims->n.empty() &&
         !dims->k.empty() && elementOf(op->getResult(0)).isF32();
}

namespace {
class Narrowing {
public:
  Narrowing(func::FuncOp function, FloatType type)
      : function(function), type(type) {}
  NarrowReport run();

private:
  void narrowOperands(linalg::GenericOp product);
  void storeConstants();
  Value narrow(Value value);
  Value elementwise(Value value, FloatType to);
  std::optional<Value> narrowConstant(arith::ConstantOp constant);
  bool isComputedProduct(linalg::LinalgOp op);
  bool comesOfComputedProduct(Value value);

  func::FuncOp function;
  FloatType type;
  NarrowReport report;
  DenseMap<Value, Value> narrowed;
  DenseMap<Value, bool> known; ///< by `comesOfComputedProduct`
};
} // namespace

static arith::ConstantOp constantOf(Value value) {
  return value.getDefiningOp<arith::ConstantOp>();
}

bool Narrowing::isComputedProduct(linalg::LinalgOp op) {
  return isProduct(op) && llvm::none_of(op.getDpsInputs(), [](Value input) {
           return constantOf(input);
         });
}

/// Whether the nearest products that make the value are of computed arrays.
bool Narrowing::comesOfComputedProduct(Value value) {
  auto [it, isNew] = known.try_emplace(value, false);
  Operation *op = value.getDefiningOp();
  if (!isNew || !op)
    return it->second;
  bool comes = false;
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
      linalgOp && isProduct(linalgOp)) {
    comes = isComputedProduct(linalgOp);
  } else {
    for (Value operand : op->getOperands())
      comes = comes || (isa<RankedTensorType>(operand.getType()) &&
                        comesOfComputedProduct(operand));
  }
  return known[value] = comes;
}

Value Narrowing::elementwise(Value value, FloatType to) {
  auto from = cast<RankedTensorType>(value.getType());
  OpBuilder b(function.getContext());
  b.setInsertionPointAfterValue(value);
  Location loc = value.getLoc();
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, value);
  Value empty = b.create<tensor::EmptyOp>(loc, sizes, to);
  SmallVector<AffineMap> maps(2, b.getMultiDimIdentityMap(from.getRank()));
  SmallVector<utils::IteratorType> loops(from.getRank(),
                                         utils::IteratorType::parallel);
  auto cast = b.create<linalg::GenericOp>(
      loc, TypeRange{empty.getType()}, ValueRange{value}, ValueRange{empty},
      maps, loops, [&](OpBuilder &inner, Location at, ValueRange in) {
        bool narrows = to.getWidth() < from.getElementTypeBitWidth();
        Value made =
            narrows ? inner.create<arith::TruncFOp>(at, to, in[0]).getResult()
                    : inner.create<arith::ExtFOp>(at, to, in[0]).getResult();
        inner.create<linalg::YieldOp>(at, made);
      });
  return cast.getResult(0);
}

/// The bits of `x` in a type of 16 bits, rounded to nearest even.
static uint16_t bitsOf(float x, bool isBrain) {
  if (!isBrain) {
    _Float16 half = static_cast<_Float16>(x);
    uint16_t bits;
    std::memcpy(&bits, &half, sizeof(bits));
    return bits;
  }
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  if (std::isnan(x))
    return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// Nothing for what would overflow, and for what is no array of f32.
std::optional<Value> Narrowing::narrowConstant(arith::ConstantOp constant) {
  auto elements = dyn_cast<ElementsAttr>(constant.getValue());
  if (!elements || !elements.getElementType().isF32())
    return std::nullopt;
  SmallVector<float, 0> values;
  if (auto resource = dyn_cast<DenseResourceElementsAttr>(elements)) {
    AsmResourceBlob *blob = resource.getRawHandle().getBlob();
    size_t count = size_t(elements.getNumElements());
    if (!blob || blob->getData().size() != count * sizeof(float))
      return std::nullopt;
    values.resize(count);
    std::memcpy(values.data(), blob->getData().data(), count * sizeof(float));
  } else if (auto dense = dyn_cast<DenseElementsAttr>(elements)) {
    values.assign(dense.value_begin<float>(), dense.value_end<float>());
  } else {
    return std::nullopt;
  }
  report.bytesBefore += int64_t(values.size() * sizeof(float));
  report.bytesAfter += int64_t(values.size() * sizeof(float));
  bool isBrain = type.isBF16();
  const float most = isBrain ? 3.3895e38f : 65504.0f;
  SmallVector<uint16_t, 0> bits;
  bits.reserve(values.size());
  for (float x : values) {
    if (std::isfinite(x) && std::abs(x) > most) {
      ++report.tooLarge;
      return std::nullopt;
    }
    bits.push_back(bitsOf(x, isBrain));
  }
  ++report.constants;
  report.bytesAfter -= int64_t(values.size() * sizeof(uint16_t));
  auto to = RankedTensorType::get(elements.getShapedType().getShape(), type);
  ArrayRef<char> bytes(reinterpret_cast<const char *>(bits.data()),
                       bits.size() * sizeof(uint16_t));
  auto made = DenseResourceElementsAttr::get(
      to, "narrow",
      HeapAsmResourceBlob::allocateAndCopyWithAlign(bytes, /*align=*/64,
                                                    /*dataIsMutable=*/true));
  OpBuilder b(constant);
  return b.create<arith::ConstantOp>(constant.getLoc(), made).getResult();
}

Value Narrowing::narrow(Value value) {
  auto [it, isNew] = narrowed.try_emplace(value, Value());
  if (!isNew)
    return it->second;
  if (arith::ConstantOp constant = constantOf(value))
    return narrowed[value] = narrowConstant(constant).value_or(value);
  // Stored in the shape in which it is computed: rounded behind the view, an
  // index of the source would become two of whoever computes it, or two one.
  if (Operation *view = value.getDefiningOp();
      isa_and_nonnull<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(view)) {
    Value source = narrow(view->getOperand(0));
    if (getElementTypeOrSelf(source.getType()) != type)
      return narrowed[value] = value;
    OpBuilder b(view);
    Operation *made = b.clone(*view);
    made->setOperand(0, source);
    auto shaped = cast<RankedTensorType>(value.getType());
    made->getResult(0).setType(
        RankedTensorType::get(shaped.getShape(), type, shaped.getEncoding()));
    return narrowed[value] = made->getResult(0);
  }
  // One array is stored: what else reads it (a residual) reads it rounded.
  Value made = elementwise(value, type);
  Value wide = elementwise(made, FloatType::getF32(type.getContext()));
  value.replaceUsesWithIf(wide, [&](OpOperand &use) {
    return use.getOwner() != made.getDefiningOp() &&
           !isa<func::ReturnOp, tensor::DimOp>(use.getOwner());
  });
  known[wide] = comesOfComputedProduct(value);
  narrowed[wide] = made;
  return narrowed[value] = made;
}

void Narrowing::narrowOperands(linalg::GenericOp product) {
  bool isComputed = isComputedProduct(product);
  SmallVector<Value> inputs;
  for (Value input : product.getInputs()) {
    bool isWide = cast<ShapedType>(input.getType()).getElementType().isF32();
    bool stays = !isWide || (isComputed && comesOfComputedProduct(input));
    inputs.push_back(stays ? input : narrow(input));
  }
  if (ValueRange(inputs) == product.getInputs())
    return;
  ++report.products;
  OpBuilder b(product.getContext());
  Block &body = product.getRegion().front();
  b.setInsertionPointToStart(&body);
  for (auto [i, input] : llvm::enumerate(inputs)) {
    if (input == product.getInputs()[i])
      continue;
    BlockArgument element = body.getArgument(i);
    element.setType(type);
    auto wide =
        b.create<arith::ExtFOp>(product.getLoc(), b.getF32Type(), element);
    element.replaceAllUsesExcept(wide, wide);
    product->setOperand(i, input);
  }
}

/// Tables that are no operands: what reads them widens.
void Narrowing::storeConstants() {
  SmallVector<arith::ConstantOp> constants;
  function.walk([&](arith::ConstantOp constant) {
    auto type = dyn_cast<RankedTensorType>(constant.getType());
    if (type && type.getRank() >= 2 && type.getElementType().isF32() &&
        !constant->use_empty())
      constants.push_back(constant);
  });
  for (arith::ConstantOp constant : constants)
    if (Value made = narrow(constant); made != constant.getResult())
      // What the program returns is as it was.
      constant.getResult().replaceUsesWithIf(
          elementwise(made, FloatType::getF32(type.getContext())),
          [](OpOperand &use) { return !isa<func::ReturnOp>(use.getOwner()); });
}

NarrowReport Narrowing::run() {
  SmallVector<linalg::LinalgOp> products;
  function.walk([&](linalg::LinalgOp op) {
    if (isProduct(op))
      products.push_back(op);
  });
  // What they are made of is asked before any of it changes.
  for (linalg::LinalgOp op : products)
    for (Value input : op.getDpsInputs())
      comesOfComputedProduct(input);
  IRRewriter rewriter(function.getContext());
  for (linalg::LinalgOp op : products) {
    auto generic = dyn_cast<linalg::GenericOp>(op.getOperation());
    if (!generic) {
      rewriter.setInsertionPoint(op);
      FailureOr<linalg::GenericOp> made =
          linalg::generalizeNamedOp(rewriter, op);
      if (failed(made))
        continue;
      generic = *made;
    }
    narrowOperands(generic);
  }
  storeConstants();
  return report;
}

NarrowReport refold::narrowProducts(func::FuncOp function, FloatType type) {
  return Narrowing(function, type).run();
}
