// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Index arithmetic at function level, to size expressions.
#include "ProgramCompiler.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace refold;

using Code = SizeExpr::Op;

std::optional<SizeExpr> ProgramCompiler::sizeOf(Value value) const {
  auto known = sizes.find(value);
  if (known == sizes.end())
    return std::nullopt;
  return known->second;
}

std::optional<SizeExpr> ProgramCompiler::sizeOf(OpFoldResult value) const {
  if (auto attribute = dyn_cast<Attribute>(value))
    return SizeExpr(cast<IntegerAttr>(attribute).getInt());
  return sizeOf(cast<Value>(value));
}

std::optional<Sizes>
ProgramCompiler::sizesOf(ArrayRef<OpFoldResult> values) const {
  Sizes result;
  for (OpFoldResult value : values) {
    std::optional<SizeExpr> size = sizeOf(value);
    if (!size)
      return std::nullopt;
    result.push_back(*size);
  }
  return result;
}

/// Towards zero, as arith.divsi divides.
static SizeExpr truncatingDiv(const SizeExpr &a, const SizeExpr &b) {
  SizeExpr signsDiffer =
      SizeExpr::binary(Code::Ne, SizeExpr::binary(Code::Lt, a, SizeExpr(0)),
                       SizeExpr::binary(Code::Lt, b, SizeExpr(0)));
  return SizeExpr::select(signsDiffer, SizeExpr::binary(Code::CeilDiv, a, b),
                          SizeExpr::binary(Code::FloorDiv, a, b));
}

static std::optional<SizeExpr> compare(arith::CmpIPredicate predicate,
                                       const SizeExpr &a, const SizeExpr &b) {
  switch (predicate) {
  case arith::CmpIPredicate::eq:
    return SizeExpr::binary(Code::Eq, a, b);
  case arith::CmpIPredicate::ne:
    return SizeExpr::binary(Code::Ne, a, b);
  case arith::CmpIPredicate::slt:
    return SizeExpr::binary(Code::Lt, a, b);
  case arith::CmpIPredicate::sle:
    return SizeExpr::binary(Code::Le, a, b);
  case arith::CmpIPredicate::sgt:
    return SizeExpr::binary(Code::Lt, b, a);
  case arith::CmpIPredicate::sge:
    return SizeExpr::binary(Code::Le, b, a);
  default:
    return std::nullopt; // unsigned: no front end compares sizes so
  }
}

/// A binary op of arith on sizes.
static std::optional<SizeExpr> binarySize(Operation *op, const SizeExpr &a,
                                          const SizeExpr &b) {
  auto made = [&](Code code) { return SizeExpr::binary(code, a, b); };
  bool isBool = op->getResult(0).getType().isInteger(1);
  return llvm::TypeSwitch<Operation *, std::optional<SizeExpr>>(op)
      .Case([&](arith::AddIOp) { return made(Code::Add); })
      .Case([&](arith::SubIOp) { return made(Code::Sub); })
      .Case([&](arith::MulIOp) { return made(Code::Mul); })
      .Case([&](arith::FloorDivSIOp) { return made(Code::FloorDiv); })
      .Case([&](arith::CeilDivSIOp) { return made(Code::CeilDiv); })
      .Case([&](arith::DivSIOp) { return truncatingDiv(a, b); })
      .Case([&](arith::RemSIOp) { return a - truncatingDiv(a, b) * b; })
      .Case([&](arith::MinSIOp) { return made(Code::Min); })
      .Case([&](arith::MaxSIOp) { return made(Code::Max); })
      .Case([&](arith::CmpIOp compared) {
        return compare(compared.getPredicate(), a, b);
      })
      .Case([&](arith::AndIOp) {
        return isBool ? std::optional(made(Code::Min)) : std::nullopt;
      })
      .Case([&](arith::OrIOp) {
        return isBool ? std::optional(made(Code::Max)) : std::nullopt;
      })
      .Case([&](arith::XOrIOp) {
        return isBool ? std::optional(made(Code::Ne)) : std::nullopt;
      })
      .Default([](Operation *) { return std::nullopt; });
}

std::optional<SizeExpr>
ProgramCompiler::affineSize(AffineExpr expr, ArrayRef<SizeExpr> dims,
                            ArrayRef<SizeExpr> symbols) const {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return SizeExpr(constant.getValue());
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return dims[dim.getPosition()];
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
    return symbols[symbol.getPosition()];
  auto binary = cast<AffineBinaryOpExpr>(expr);
  std::optional<SizeExpr> a = affineSize(binary.getLHS(), dims, symbols);
  std::optional<SizeExpr> b = affineSize(binary.getRHS(), dims, symbols);
  if (!a || !b)
    return std::nullopt;
  switch (expr.getKind()) {
  case AffineExprKind::Add:
    return *a + *b;
  case AffineExprKind::Mul:
    return *a * *b;
  case AffineExprKind::FloorDiv:
    return SizeExpr::binary(Code::FloorDiv, *a, *b);
  case AffineExprKind::CeilDiv:
    return SizeExpr::binary(Code::CeilDiv, *a, *b);
  case AffineExprKind::Mod:
    return SizeExpr::binary(Code::Mod, *a, *b);
  default:
    return std::nullopt;
  }
}

llvm::Expected<bool> ProgramCompiler::addSizeOp(Operation *op) {
  if (auto dim = dyn_cast<tensor::DimOp>(op)) {
    std::optional<SizeExpr> index = sizeOf(dim.getIndex());
    std::optional<int64_t> at = index ? index->constant() : std::nullopt;
    if (!at)
      return refuse(op, "found a dimension number that is not constant");
    // Without asking for contents: those of an empty tensor are never made.
    auto empty = empties.find(dim.getSource());
    if (empty != empties.end()) {
      sizes[dim] = empty->second[*at];
      return true;
    }
    llvm::Expected<Slot> slot = slotOf(op, dim.getSource());
    if (!slot)
      return slot.takeError();
    sizes[dim] = slot->view.sizes[*at];
    return true;
  }
  bool isAffine =
      isa<affine::AffineApplyOp, affine::AffineMinOp, affine::AffineMaxOp>(op);
  bool isScalarArith = isa<arith::ArithDialect>(op->getDialect()) &&
                       op->getNumResults() == 1 &&
                       op->getResult(0).getType().isIntOrIndex();
  if (!isAffine && !isScalarArith)
    return false;
  Sizes operands;
  for (Value operand : op->getOperands()) {
    std::optional<SizeExpr> size = sizeOf(operand);
    if (!size)
      return false; // computed from data; whoever needs it says so
    operands.push_back(*size);
  }
  if (isAffine) {
    AffineMap map = cast<AffineMapAttr>(op->getAttr("map")).getValue();
    ArrayRef<SizeExpr> all = operands;
    std::optional<SizeExpr> total;
    for (AffineExpr expr : map.getResults()) {
      std::optional<SizeExpr> one =
          affineSize(expr, all.take_front(map.getNumDims()),
                     all.drop_front(map.getNumDims()));
      if (!one)
        return refuse(op, "found an affine expression that is not covered");
      total = !total ? *one
                     : SizeExpr::binary(
                           isa<affine::AffineMinOp>(op) ? Code::Min : Code::Max,
                           *total, *one);
    }
    sizes[op->getResult(0)] = *total;
    return true;
  }
  std::optional<SizeExpr> value;
  if (isa<arith::IndexCastOp, arith::IndexCastUIOp, arith::ExtUIOp,
          arith::ExtSIOp, arith::TruncIOp>(op))
    value = operands[0];
  else if (isa<arith::SelectOp>(op))
    value = SizeExpr::select(operands[0], operands[1], operands[2]);
  else if (operands.size() == 2)
    value = binarySize(op, operands[0], operands[1]);
  if (!value)
    return refuse(op, "found '" + op->getName().getStringRef() +
                          "' on sizes, which is not covered");
  sizes[op->getResult(0)] = *value;
  return true;
}
