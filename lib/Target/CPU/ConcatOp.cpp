// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arrays one behind the other: each is copied to its place, unless the kernel
// that computes it writes there.
#include "ProgramCompiler.h"

using namespace mlir;
using namespace refold;

namespace {
/// An array as the part of a longer one.
struct Part {
  tensor::ConcatOp into;
  unsigned number = 0;            ///< of the operand
  SmallVector<Operation *> views; ///< from the array to the operand
};
} // namespace

/// What the array is a part of, if only kernels read it beside: they take rows
/// with gaps.
static std::optional<Part> partOf(Value value) {
  std::optional<Part> part;
  for (OpOperand &use : value.getUses()) {
    Operation *user = use.getOwner();
    if (isa<CascadeOp>(user))
      continue;
    if (part)
      return std::nullopt;
    if (auto concat = dyn_cast<tensor::ConcatOp>(user)) {
      part = Part{concat, use.getOperandNumber(), {}};
    } else if (isa<tensor::ExpandShapeOp, tensor::CastOp>(user)) {
      part = partOf(user->getResult(0));
      if (!part)
        return std::nullopt;
      part->views.insert(part->views.begin(), user);
    } else {
      return std::nullopt;
    }
  }
  return part;
}

/// Where the operand begins along the dimension, and the length of all; nothing
/// where only the running program knows.
static std::optional<std::pair<int64_t, int64_t>> placeOf(Part part) {
  int64_t at = 0, total = 0, dim = int64_t(part.into.getDim());
  for (auto [i, input] : llvm::enumerate(part.into.getInputs())) {
    int64_t extent = cast<RankedTensorType>(input.getType()).getDimSize(dim);
    if (ShapedType::isDynamic(extent))
      return std::nullopt;
    at += i < part.number ? extent : 0;
    total += extent;
  }
  return std::pair(at, total);
}

/// Whether its elements follow each other in memory.
static bool isDense(const ViewSpec &view) {
  Sizes strides = rowMajorStrides(ArrayRef<SizeExpr>(view.sizes));
  return llvm::all_of(llvm::seq<size_t>(0, strides.size()), [&](size_t i) {
    return view.sizes[i] == SizeExpr(1) || view.strides[i] == strides[i];
  });
}

std::optional<Slot> ProgramCompiler::slotInConcat(Value value, DType dtype,
                                                  const Sizes &extents) {
  std::optional<Part> part = writesParts ? partOf(value) : std::nullopt;
  std::optional<std::pair<int64_t, int64_t>> place;
  if (part)
    place = placeOf(*part);
  if (!place)
    return std::nullopt;
  Builder b(value.getContext());
  Sizes own = extents;
  for (Operation *view : part->views)
    if (auto expand = dyn_cast<tensor::ExpandShapeOp>(view)) {
      std::optional<Sizes> sizes = sizesOf(getMixedValues(
          expand.getStaticOutputShape(), expand.getOutputShape(), b));
      if (!sizes)
        return std::nullopt;
      own = *sizes;
    }
  size_t dim = part->into.getDim();
  Sizes all = own;
  all[dim] = SizeExpr(place->second);
  auto known = concats.find(part->into);
  Slot slot =
      known != concats.end() ? known->second.whole : makeTemporary(dtype, all);
  if (slot.view.sizes != all)
    return std::nullopt;
  Concat &concat = concats[part->into];
  concat.whole = slot;
  slot.view.offset = SizeExpr(place->first) * slot.view.strides[dim];
  slot.view.sizes = own;
  slot.isRowMajor = slot.isWhole = false;
  for (Operation *view : llvm::reverse(part->views))
    if (auto expand = dyn_cast<tensor::ExpandShapeOp>(view)) {
      std::optional<Slot> before =
          collapse(slot, expand.getReassociationIndices());
      if (!before)
        return std::nullopt;
      slot = *before;
    }
  if (slot.view.sizes != extents)
    return std::nullopt;
  slot.isRowMajor = isDense(slot.view);
  concat.written.insert(part->number);
  return slot;
}

llvm::Error ProgramCompiler::addConcat(tensor::ConcatOp op) {
  size_t dim = op.getDim();
  std::vector<Slot> parts;
  for (Value input : op.getInputs()) {
    llvm::Expected<Slot> slot = slotOf(op, input);
    if (!slot)
      return slot.takeError();
    parts.push_back(*slot);
  }
  Sizes extents = parts[0].view.sizes;
  for (const Slot &part : ArrayRef<Slot>(parts).drop_front()) {
    for (size_t i = 0; i < extents.size(); ++i)
      if (i != dim && !(extents[i] == part.view.sizes[i]))
        require(
            op,
            SizeExpr::binary(SizeExpr::Op::Eq, extents[i], part.view.sizes[i]),
            "the arrays differ in a dimension that they share");
    extents[dim] = extents[dim] + part.view.sizes[dim];
  }
  auto known = concats.find(op);
  Slot to = known != concats.end()
                ? known->second.whole
                : makeTemporary(parts[0].view.dtype, extents);
  SizeExpr at = 0;
  for (auto [i, part] : llvm::enumerate(parts)) {
    ViewSpec place = to.view;
    place.offset = at * to.view.strides[dim];
    place.sizes = part.view.sizes;
    if (known == concats.end() || !known->second.written.contains(unsigned(i)))
      addCopy(op, part.view, place);
    at = at + part.view.sizes[dim];
  }
  slots[op.getResult()] = to;
  return llvm::Error::success();
}
