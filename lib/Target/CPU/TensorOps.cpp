// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Views, copies, and tensors that have no contents yet.
#include "ProgramCompiler.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace refold;

SizeExpr refold::productOf(ArrayRef<SizeExpr> sizes) {
  SizeExpr total = 1;
  for (const SizeExpr &size : sizes)
    total = total * size;
  return total;
}

Sizes refold::rowMajorStrides(ArrayRef<SizeExpr> sizes) {
  Sizes strides(sizes.size(), SizeExpr(1));
  for (size_t i = sizes.size(); i-- > 1;)
    strides[i - 1] = sizes[i] * strides[i];
  return strides;
}

Slot ProgramCompiler::rowMajorSlot(unsigned buffer, DType dtype,
                                   const Sizes &extents) {
  Slot slot;
  slot.view.buffer = buffer;
  slot.view.dtype = dtype;
  slot.view.sizes = extents;
  slot.view.strides = ::rowMajorStrides(ArrayRef<SizeExpr>(extents));
  return slot;
}

Slot ProgramCompiler::makeTemporary(DType dtype, const Sizes &extents) {
  BufferSpec buffer;
  buffer.bytes = productOf(extents) * SizeExpr(byteWidth(dtype));
  spec.buffers.push_back(std::move(buffer));
  return rowMajorSlot(spec.buffers.size() - 1, dtype, extents);
}

unsigned ProgramCompiler::addConstantBuffer(const void *data, int64_t bytes) {
  BufferSpec buffer;
  buffer.kind = BufferKind::Constant;
  buffer.data = data;
  buffer.bytes = bytes;
  spec.buffers.push_back(std::move(buffer));
  return spec.buffers.size() - 1;
}

unsigned ProgramCompiler::ownConstant(std::vector<char> bytes) {
  auto owner = std::make_shared<std::vector<char>>(std::move(bytes));
  spec.owners.push_back(owner);
  return addConstantBuffer(owner->data(), owner->size());
}

void ProgramCompiler::addCopy(Operation *op, const ViewSpec &from,
                              const ViewSpec &to) {
  spec.steps.push_back({CopyStep{from, to}, stepNameOf(op)});
}

void ProgramCompiler::require(Operation *op, const SizeExpr &condition,
                              StringRef message) {
  if (condition.constant() == std::optional<int64_t>(1))
    return;
  AssertStep check{("'" + stepNameOf(op) + "': " + message).str(), condition};
  spec.steps.push_back({std::move(check), stepNameOf(op)});
}

/// The bytes of one element.
static std::optional<std::vector<char>> bytesOf(Attribute value, DType dtype) {
  std::vector<char> bytes(byteWidth(dtype));
  if (auto number = dyn_cast<FloatAttr>(value)) {
    APInt bits = number.getValue().bitcastToAPInt();
    std::memcpy(bytes.data(), bits.getRawData(), bytes.size());
    return bytes;
  }
  if (auto number = dyn_cast<IntegerAttr>(value)) {
    int64_t bits = dtype == DType::Bool ? !number.getValue().isZero()
                                        : number.getValue().getSExtValue();
    std::memcpy(bytes.data(), &bits, bytes.size());
    return bytes;
  }
  return std::nullopt;
}

llvm::Expected<Slot> ProgramCompiler::slotOf(Operation *user, Value value) {
  if (auto known = slots.find(value); known != slots.end())
    return known->second;
  auto empty = empties.find(value);
  if (empty == empties.end())
    return refuse(user, "found an operand that no step before it computes");
  llvm::Expected<DType> dtype = dtypeFor(user, value.getType());
  if (!dtype)
    return dtype.takeError();
  Slot slot;
  if (auto fill = fills.find(value); fill != fills.end()) {
    std::optional<std::vector<char>> bytes = bytesOf(fill->second, *dtype);
    if (!bytes)
      return refuse(user, "found a fill value that is no number");
    // One element, read again and again.
    slot.view.buffer = ownConstant(std::move(*bytes));
    slot.view.dtype = *dtype;
    slot.view.sizes = empty->second;
    slot.view.strides.assign(empty->second.size(), SizeExpr(0));
    slot.isRowMajor = slot.isWhole = empty->second.empty();
  } else {
    slot = makeTemporary(*dtype, empty->second);
  }
  slots[value] = slot;
  return slot;
}

llvm::Error ProgramCompiler::addEmpty(tensor::EmptyOp op) {
  std::optional<Sizes> extents = sizesOf(op.getMixedSizes());
  if (!extents)
    return refuse(op, "found a size that depends on data");
  empties[op.getResult()] = *extents;
  return llvm::Error::success();
}

llvm::Error ProgramCompiler::addFill(linalg::FillOp op) {
  Value target = op.getOutputs()[0];
  Sizes extents;
  if (auto empty = empties.find(target); empty != empties.end()) {
    extents = empty->second;
  } else {
    llvm::Expected<Slot> slot = slotOf(op, target);
    if (!slot)
      return slot.takeError();
    extents = slot->view.sizes;
  }
  TypedAttr value;
  if (!matchPattern(op.getInputs()[0], m_Constant(&value)))
    return refuse(op, "found a fill with a value that is not constant");
  empties[op.getResult(0)] = extents;
  fills[op.getResult(0)] = value;
  return llvm::Error::success();
}

llvm::Error ProgramCompiler::addExpand(tensor::ExpandShapeOp op) {
  llvm::Expected<Slot> from = slotOf(op, op.getSrc());
  if (!from)
    return from.takeError();
  Builder b(op.getContext());
  std::optional<Sizes> extents = sizesOf(
      getMixedValues(op.getStaticOutputShape(), op.getOutputShape(), b));
  if (!extents)
    return refuse(op, "found a size that depends on data");
  Slot to = *from;
  to.view.sizes = *extents;
  to.view.strides.assign(extents->size(), SizeExpr(1));
  for (auto [dim, group] : llvm::enumerate(op.getReassociationIndices())) {
    SizeExpr stride = from->view.strides[dim];
    for (int64_t at : llvm::reverse(group)) {
      to.view.strides[at] = stride;
      stride = stride * (*extents)[at];
    }
    SizeExpr parts = 1;
    for (int64_t at : group)
      parts = parts * (*extents)[at];
    if (!(parts == from->view.sizes[dim]))
      require(op,
              SizeExpr::binary(SizeExpr::Op::Eq, parts, from->view.sizes[dim]),
              "the parts of a dimension do not multiply to it");
  }
  slots[op.getResult()] = to;
  return llvm::Error::success();
}

std::optional<Slot> refold::collapse(const Slot &from,
                                     ArrayRef<ReassociationIndices> groups) {
  Slot to = from;
  to.view.sizes.clear();
  to.view.strides.clear();
  for (const ReassociationIndices &group : groups) {
    SizeExpr size = 1, stride = 1;
    bool isFirst = true;
    for (int64_t at : llvm::reverse(group)) {
      const SizeExpr &extent = from.view.sizes[at];
      if (extent == SizeExpr(1))
        continue;
      if (isFirst)
        stride = from.view.strides[at];
      else if (!from.isRowMajor && !(from.view.strides[at] == stride * size))
        return std::nullopt;
      isFirst = false;
      size = extent * size;
    }
    to.view.sizes.push_back(size);
    to.view.strides.push_back(stride);
  }
  if (to.isRowMajor)
    to.view.strides = ::rowMajorStrides(ArrayRef<SizeExpr>(to.view.sizes));
  return to;
}

llvm::Error ProgramCompiler::addCollapse(tensor::CollapseShapeOp op) {
  llvm::Expected<Slot> from = slotOf(op, op.getSrc());
  if (!from)
    return from.takeError();
  SmallVector<ReassociationIndices> groups = op.getReassociationIndices();
  std::optional<Slot> to = collapse(*from, groups);
  if (!to) {
    Slot copy = makeTemporary(from->view.dtype, from->view.sizes);
    addCopy(op, from->view, copy.view);
    to = collapse(copy, groups);
  }
  slots[op.getResult()] = *to;
  return llvm::Error::success();
}

/// The part of a view that offsets, sizes and strides choose.
static ViewSpec subview(const ViewSpec &from, ArrayRef<SizeExpr> offsets,
                        ArrayRef<SizeExpr> extents, ArrayRef<SizeExpr> steps) {
  ViewSpec to = from;
  for (size_t i = 0; i < offsets.size(); ++i) {
    to.offset = to.offset + offsets[i] * from.strides[i];
    to.sizes[i] = extents[i];
    to.strides[i] = from.strides[i] * steps[i];
  }
  return to;
}

/// That a slice lies inside: offset >= 0, and offset + (size - 1) step < extent
/// unless it is empty. Checked when run, where it is not known before.
static SizeExpr isInside(const ViewSpec &from, ArrayRef<SizeExpr> offsets,
                         ArrayRef<SizeExpr> extents, ArrayRef<SizeExpr> steps) {
  using Op = SizeExpr::Op;
  SizeExpr all = 1;
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (offsets[i] == SizeExpr(0) && extents[i] == from.sizes[i])
      continue;
    SizeExpr last = offsets[i] + (extents[i] - SizeExpr(1)) * steps[i];
    SizeExpr fits = SizeExpr::binary(
        Op::Min, SizeExpr::binary(Op::Le, SizeExpr(0), offsets[i]),
        SizeExpr::binary(Op::Lt, last, from.sizes[i]));
    fits = SizeExpr::binary(Op::Max, fits,
                            SizeExpr::binary(Op::Eq, extents[i], SizeExpr(0)));
    all = SizeExpr::binary(Op::Min, all, fits);
  }
  return all;
}

llvm::Error ProgramCompiler::addExtractSlice(tensor::ExtractSliceOp op) {
  llvm::Expected<Slot> from = slotOf(op, op.getSource());
  if (!from)
    return from.takeError();
  std::optional<Sizes> offsets = sizesOf(op.getMixedOffsets());
  std::optional<Sizes> extents = sizesOf(op.getMixedSizes());
  std::optional<Sizes> steps = sizesOf(op.getMixedStrides());
  if (!offsets || !extents || !steps)
    return refuse(op, "found a slice whose place depends on data");
  require(op, isInside(from->view, *offsets, *extents, *steps),
          "a slice exceeds its array");
  Slot to;
  to.view = subview(from->view, *offsets, *extents, *steps);
  // Row-major still, where only the first dimension that is longer than 1 is
  // cut.
  to.isRowMajor = from->isRowMajor;
  bool mayBeCut = true;
  for (size_t i = 0; i < extents->size(); ++i) {
    bool isUncut = (*extents)[i] == from->view.sizes[i];
    to.isRowMajor &= (*steps)[i] == SizeExpr(1) && (isUncut || mayBeCut);
    mayBeCut &= (*extents)[i] == SizeExpr(1);
  }
  to.isWhole = false;
  llvm::SmallBitVector dropped = op.getDroppedDims();
  for (size_t i = dropped.size(); i-- > 0;)
    if (dropped.test(i)) {
      to.view.sizes.erase(to.view.sizes.begin() + i);
      to.view.strides.erase(to.view.strides.begin() + i);
    }
  slots[op.getResult()] = to;
  return llvm::Error::success();
}

llvm::Error ProgramCompiler::addInsertSlice(tensor::InsertSliceOp op) {
  llvm::Expected<Slot> source = slotOf(op, op.getSource());
  if (!source)
    return source.takeError();
  llvm::Expected<Slot> dest = slotOf(op, op.getDest());
  if (!dest)
    return dest.takeError();
  std::optional<Sizes> offsets = sizesOf(op.getMixedOffsets());
  std::optional<Sizes> extents = sizesOf(op.getMixedSizes());
  std::optional<Sizes> steps = sizesOf(op.getMixedStrides());
  if (!offsets || !extents || !steps)
    return refuse(op, "found a slice whose place depends on data");
  require(op, isInside(dest->view, *offsets, *extents, *steps),
          "a slice exceeds its array");
  Slot to = makeTemporary(dest->view.dtype, dest->view.sizes);
  bool hasContents = !empties.count(op.getDest()) || fills.count(op.getDest());
  if (hasContents)
    addCopy(op, dest->view, to.view);
  ViewSpec part = subview(to.view, *offsets, *extents, *steps);
  llvm::SmallBitVector dropped = op.getDroppedDims();
  for (size_t i = dropped.size(); i-- > 0;)
    if (dropped.test(i)) {
      part.sizes.erase(part.sizes.begin() + i);
      part.strides.erase(part.strides.begin() + i);
    }
  addCopy(op, source->view, part);
  slots[op.getResult()] = to;
  return llvm::Error::success();
}

std::optional<Padding>
ProgramCompiler::paddingOf(tensor::PadOp op, ArrayRef<SizeExpr> extents) const {
  std::optional<Sizes> low = sizesOf(op.getMixedLowPad());
  std::optional<Sizes> high = sizesOf(op.getMixedHighPad());
  if (!low || !high || low->size() != extents.size())
    return std::nullopt;
  return Padding{*low, *high};
}

/// The array with its padding, and the view of what is padded.
static Sizes paddedSizes(const Padding &padding, ArrayRef<SizeExpr> extents) {
  Sizes sizes;
  for (size_t i = 0; i < extents.size(); ++i)
    sizes.push_back(padding.low[i] + extents[i] + padding.high[i]);
  return sizes;
}

static ViewSpec middleOf(const Slot &whole, const Padding &padding,
                         ArrayRef<SizeExpr> extents) {
  ViewSpec middle = whole.view;
  for (size_t i = 0; i < extents.size(); ++i)
    middle.offset = middle.offset + padding.low[i] * whole.view.strides[i];
  middle.sizes.assign(extents.begin(), extents.end());
  return middle;
}

Slot ProgramCompiler::slotForResult(Value value, DType dtype,
                                    const Sizes &extents) {
  if (std::optional<Slot> part = slotInConcat(value, dtype, extents))
    return *part;
  tensor::PadOp pad;
  for (Operation *user : value.getUsers()) {
    auto own = dyn_cast<tensor::PadOp>(user);
    if (!own && !isa<CascadeOp>(user))
      return makeTemporary(dtype, extents);
    if (own && !pad)
      pad = own;
  }
  std::optional<Padding> padding;
  if (pad)
    padding = paddingOf(pad, extents);
  auto isNumber = [](const SizeExpr &size) {
    return size.constant().value_or(-1) >= 0;
  };
  if (!padding || !llvm::all_of(padding->low, isNumber) ||
      !llvm::all_of(padding->high, isNumber))
    return makeTemporary(dtype, extents);
  Slot whole = makeTemporary(dtype, paddedSizes(*padding, extents));
  padded[pad] = whole;
  Slot slot = whole;
  slot.view = middleOf(whole, *padding, extents);
  slot.isRowMajor = slot.isWhole = false;
  return slot;
}

/// Slabs at both ends of each dimension; the middle of those before it, all of
/// those behind it.
void ProgramCompiler::fillBorder(tensor::PadOp op, const Slot &whole,
                                 const Padding &padding, unsigned filler) {
  ViewSpec rest = whole.view;
  for (size_t i = 0; i < padding.low.size(); ++i) {
    SizeExpr stride = whole.view.strides[i];
    SizeExpr inside = rest.sizes[i] - padding.low[i] - padding.high[i];
    auto fill = [&](const SizeExpr &first, const SizeExpr &count) {
      if (count == SizeExpr(0))
        return;
      ViewSpec slab = rest;
      slab.offset = slab.offset + first * stride;
      slab.sizes[i] = count;
      ViewSpec from = slab;
      from.buffer = filler;
      from.offset = 0;
      from.strides.assign(slab.sizes.size(), SizeExpr(0));
      addCopy(op, from, slab);
    };
    fill(0, padding.low[i]);
    fill(padding.low[i] + inside, padding.high[i]);
    rest.offset = rest.offset + padding.low[i] * stride;
    rest.sizes[i] = inside;
  }
}

llvm::Error ProgramCompiler::addPad(tensor::PadOp op) {
  llvm::Expected<Slot> from = slotOf(op, op.getSource());
  if (!from)
    return from.takeError();
  std::optional<Padding> padding = paddingOf(op, from->view.sizes);
  TypedAttr value;
  Value constant = op.getConstantPaddingValue();
  if (!padding || !constant || !matchPattern(constant, m_Constant(&value)))
    return refuse(op, "found a padding that is not constant");
  std::optional<std::vector<char>> bytes = bytesOf(value, from->view.dtype);
  if (!bytes)
    return refuse(op, "found a padding value that is no number");
  for (auto *side : {&padding->low, &padding->high})
    for (const SizeExpr &width : *side)
      require(op, SizeExpr::binary(SizeExpr::Op::Le, SizeExpr(0), width),
              "a padding is negative");
  unsigned filler = ownConstant(std::move(*bytes));
  auto known = padded.find(op);
  Slot to = known != padded.end()
                ? known->second
                : makeTemporary(from->view.dtype,
                                paddedSizes(*padding, from->view.sizes));
  fillBorder(op, to, *padding, filler);
  if (known == padded.end())
    addCopy(op, from->view, middleOf(to, *padding, from->view.sizes));
  slots[op.getResult()] = to;
  return llvm::Error::success();
}

llvm::Expected<bool> ProgramCompiler::addTensorOp(Operation *op) {
  auto done = [](llvm::Error error) -> llvm::Expected<bool> {
    if (error)
      return std::move(error);
    return true;
  };
  if (auto empty = dyn_cast<tensor::EmptyOp>(op))
    return done(addEmpty(empty));
  if (auto fill = dyn_cast<linalg::FillOp>(op))
    return done(addFill(fill));
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op))
    return done(addExpand(expand));
  if (auto collapsed = dyn_cast<tensor::CollapseShapeOp>(op))
    return done(addCollapse(collapsed));
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return done(addExtractSlice(slice));
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op))
    return done(addInsertSlice(insert));
  if (auto concat = dyn_cast<tensor::ConcatOp>(op))
    return done(addConcat(concat));
  if (auto pad = dyn_cast<tensor::PadOp>(op))
    return done(addPad(pad));
  if (auto transpose = dyn_cast<linalg::TransposeOp>(op)) {
    llvm::Expected<Slot> from = slotOf(op, transpose.getInput());
    if (!from)
      return from.takeError();
    Slot to = *from;
    to.isRowMajor = to.isWhole = false;
    for (auto [i, dim] : llvm::enumerate(transpose.getPermutation())) {
      to.view.sizes[i] = from->view.sizes[dim];
      to.view.strides[i] = from->view.strides[dim];
    }
    slots[op->getResult(0)] = to;
    return true;
  }
  if (auto cast = dyn_cast<tensor::CastOp>(op)) {
    if (auto empty = empties.find(cast.getSource()); empty != empties.end()) {
      Sizes extents = empty->second;
      empties[cast.getResult()] = extents;
      if (TypedAttr value = fills.lookup(cast.getSource()))
        fills[cast.getResult()] = value;
      return true;
    }
    llvm::Expected<Slot> from = slotOf(op, cast.getSource());
    if (!from)
      return from.takeError();
    slots[cast.getResult()] = *from;
    return true;
  }
  return false;
}
