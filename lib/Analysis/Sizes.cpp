// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Analysis/Sizes.h"

#include "refold/Dialect/Refold/IR/Refold.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace refold;

int64_t Size::staticOrDynamic() const {
  return isStatic() ? factor : ShapedType::kDynamic;
}

Size refold::operator*(const Size &a, const Size &b) {
  Size product = a;
  product.factor *= b.factor;
  product.bases.append(b.bases.begin(), b.bases.end());
  llvm::sort(product.bases);
  if (product.factor == 0)
    product.bases.clear();
  return product;
}

std::optional<Size> refold::exactQuotient(const Size &a, const Size &b) {
  if (b.factor == 0 || a.factor % b.factor)
    return std::nullopt;
  Size quotient = Size::constant(a.factor / b.factor);
  auto next = b.bases.begin();
  for (unsigned base : a.bases) {
    if (next != b.bases.end() && *next == base)
      ++next;
    else
      quotient.bases.push_back(base);
  }
  return next == b.bases.end() ? std::optional(quotient) : std::nullopt;
}

SizeTable::SizeTable(func::FuncOp function) : function(function) {}

unsigned SizeTable::baseOf(Value value, int64_t dim, StringRef name) {
  if (!name.empty())
    if (auto it = named.find(name); it != named.end())
      return it->second;
  auto [it, fresh] = baseNumbers.try_emplace({value, dim}, bases.size());
  if (fresh)
    bases.push_back({value, dim, name.str()});
  if (!name.empty())
    named[name] = it->second;
  return it->second;
}

Size SizeTable::of(Value tensor, int64_t dim) {
  int64_t extent = cast<ShapedType>(tensor.getType()).getDimSize(dim);
  if (!ShapedType::isDynamic(extent))
    return Size::constant(extent);
  auto key = std::make_pair(tensor, dim);
  if (auto it = known.find(key); it != known.end())
    return it->second;
  Size size = compute(tensor, dim);
  return known[key] = size;
}

/// The dimension of the source that dimension `dim` of a slice's result is.
static int64_t sourceDim(tensor::ExtractSliceOp slice, int64_t dim) {
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  for (int64_t d = 0, kept = 0; d < int64_t(dropped.size()); ++d)
    if (!dropped[d] && kept++ == dim)
      return d;
  return dim;
}

Size SizeTable::compute(Value tensor, int64_t dim) {
  if (auto arg = dyn_cast<BlockArgument>(tensor)) {
    StringRef name;
    if (arg.getOwner()->getParentOp() == function)
      if (auto dims = function.getArgAttrOfType<ArrayAttr>(arg.getArgNumber(),
                                                           "refold.dims");
          dims && dim < int64_t(dims.size()))
        if (auto text = dyn_cast<StringAttr>(dims[dim]))
          name = text.getValue();
    return Size{1, {baseOf(tensor, dim, name)}};
  }
  Operation *op = tensor.getDefiningOp();
  auto opaque = [&] { return Size{1, {baseOf(tensor, dim)}}; };
  auto ofFold = [&](OpFoldResult size) {
    if (std::optional<int64_t> value = getConstantIntValue(size))
      return Size::constant(*value);
    return ofIndex(cast<Value>(size));
  };
  return llvm::TypeSwitch<Operation *, Size>(op)
      .Case([&](tensor::EmptyOp empty) {
        return ofIndex(empty.getDynamicSize(dim));
      })
      .Case([&](tensor::CastOp cast) { return of(cast.getSource(), dim); })
      .Case([&](tensor::ExpandShapeOp expand) {
        ArrayRef<int64_t> shape = expand.getStaticOutputShape();
        return ofIndex(expand.getOutputShape()[llvm::count_if(
            shape.take_front(dim), ShapedType::isDynamic)]);
      })
      .Case([&](tensor::CollapseShapeOp collapse) {
        Size size = Size::constant(1);
        auto groups = collapse.getReassociationIndices();
        for (int64_t d : groups[dim])
          size = size * of(collapse.getSrc(), d);
        return size;
      })
      .Case([&](tensor::ExtractSliceOp slice) {
        return ofFold(slice.getMixedSizes()[sourceDim(slice, dim)]);
      })
      .Case([&](TopKOp topk) { return of(topk.getSource(), dim); })
      .Case([&](DestinationStyleOpInterface dps) {
        return of(dps.getTiedOpOperand(cast<OpResult>(tensor))->get(), dim);
      })
      .Default([&](Operation *) { return opaque(); });
}

Size SizeTable::ofIndex(Value index) {
  auto key = std::make_pair(index, int64_t(-1));
  if (auto it = known.find(key); it != known.end())
    return it->second;
  Size size = computeIndex(index);
  return known[key] = size;
}

Size SizeTable::computeIndex(Value index) {
  if (std::optional<int64_t> value = getConstantIntValue(index))
    return Size::constant(*value);
  auto opaque = [&] { return Size{1, {baseOf(index, -1)}}; };
  Operation *op = index.getDefiningOp();
  if (!op)
    return opaque();
  return llvm::TypeSwitch<Operation *, Size>(op)
      .Case([&](tensor::DimOp dim) {
        std::optional<int64_t> at = dim.getConstantIndex();
        auto type = dyn_cast<RankedTensorType>(dim.getSource().getType());
        return at && type && *at < type.getRank() ? of(dim.getSource(), *at)
                                                  : opaque();
      })
      .Case([&](arith::MulIOp mul) {
        return ofIndex(mul.getLhs()) * ofIndex(mul.getRhs());
      })
      .Case<arith::DivSIOp, arith::DivUIOp, arith::FloorDivSIOp>([&](auto div) {
        std::optional<Size> size =
            exactQuotient(ofIndex(div.getLhs()), ofIndex(div.getRhs()));
        return size ? *size : opaque();
      })
      .Case<arith::IndexCastOp, arith::IndexCastUIOp>(
          [&](auto cast) { return ofIndex(cast.getIn()); })
      .Case([&](affine::AffineApplyOp apply) {
        auto mul =
            dyn_cast<AffineBinaryOpExpr>(apply.getAffineMap().getResult(0));
        if (!mul || mul.getKind() != AffineExprKind::Mul)
          return opaque();
        Size size = Size::constant(1);
        for (AffineExpr side : {mul.getLHS(), mul.getRHS()}) {
          if (auto c = dyn_cast<AffineConstantExpr>(side))
            size = size * Size::constant(c.getValue());
          else if (auto d = dyn_cast<AffineDimExpr>(side))
            size = size * ofIndex(apply.getOperand(d.getPosition()));
          else if (auto s = dyn_cast<AffineSymbolExpr>(side))
            size = size *
                   ofIndex(apply.getOperand(apply.getAffineMap().getNumDims() +
                                            s.getPosition()));
          else
            return opaque();
        }
        return size;
      })
      .Default([&](Operation *) { return opaque(); });
}

Value SizeTable::materialise(OpBuilder &b, Location loc, const Size &size) {
  Value product;
  for (unsigned number : size.bases) {
    const Base &base = bases[number];
    Value factor =
        base.dim < 0
            ? base.value
            : b.create<tensor::DimOp>(loc, base.value, base.dim).getResult();
    product = product ? b.create<arith::MulIOp>(loc, product, factor) : factor;
  }
  if (product && size.factor == 1)
    return product;
  Value factor = b.create<arith::ConstantIndexOp>(loc, size.factor);
  return product ? b.create<arith::MulIOp>(loc, product, factor) : factor;
}

StringRef SizeTable::nameOf(const Size &size) const {
  if (size.factor != 1 || size.bases.size() != 1)
    return "";
  return bases[size.bases.front()].name;
}

std::string SizeTable::describe(llvm::ArrayRef<Size> sizes) const {
  std::string text;
  for (const Size &size : sizes) {
    StringRef name = nameOf(size);
    text += text.empty() ? "(" : ", ";
    text += !name.empty()     ? name.str()
            : size.isStatic() ? std::to_string(size.factor)
                              : "?";
  }
  return text + ")";
}
