// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A cascade becomes a kernel of its own and a step that calls it.
#include "ProgramCompiler.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "refold/Conversion/CascadeToVector.h"
#include "refold/Schedule/Schedule.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace refold;

/// A memref that lies as the slot does. Offsets are added to the address, so
/// that the layout has none.
static MemRefType memrefFor(const Slot &slot, RankedTensorType type) {
  if (slot.isRowMajor)
    return MemRefType::get(type.getShape(), type.getElementType());
  SmallVector<int64_t> strides;
  for (const SizeExpr &stride : slot.view.strides)
    strides.push_back(stride.constant().value_or(ShapedType::kDynamic));
  return MemRefType::get(
      type.getShape(), type.getElementType(),
      StridedLayoutAttr::get(type.getContext(), /*offset=*/0, strides));
}

/// Whether the value, or what reshapes it, is returned and nothing else.
static bool isOnlyReturned(Value value) {
  return llvm::all_of(value.getUsers(), [](Operation *user) {
    if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp, tensor::CastOp>(
            user))
      return isOnlyReturned(user->getResult(0));
    return isa<func::ReturnOp>(user);
  });
}

/// The cascade on memrefs in a function of its own, as text. Names of operands
/// and locations do not appear, so that equal kernels have equal text; a
/// schedule may use operand names, which then stay.
static std::string kernelText(CascadeOp op, ArrayRef<Type> types,
                              ArrayRef<bool> isVarying, bool keepsNames) {
  MLIRContext *context = op.getContext();
  OpBuilder b(context);
  Location loc = UnknownLoc::get(context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  b.setInsertionPointToStart(module->getBody());
  auto function = b.create<func::FuncOp>(loc, "kernel",
                                         b.getFunctionType(types, TypeRange()));
  b.setInsertionPointToStart(function.addEntryBlock());

  OperationState state(loc, CascadeOp::getOperationName());
  state.addOperands(function.getArguments());
  for (NamedAttribute attribute : op->getAttrs()) {
    bool isOwn = llvm::is_contained(CascadeOp::getAttributeNames(),
                                    attribute.getName().getValue());
    if (!isOwn)
      continue; // names and notes for people
    Attribute value = attribute.getValue();
    if (attribute.getName() == op.getArgNamesAttrName() && !op.getSchedule() &&
        !keepsNames) {
      SmallVector<Attribute> names;
      for (size_t i = 0; i < types.size(); ++i)
        names.push_back(b.getStringAttr("a" + Twine(i)));
      value = b.getArrayAttr(names);
    }
    state.addAttribute(attribute.getName(), value);
  }
  SmallVector<bool> isFinal;
  for (Value result : op.getResults())
    isFinal.push_back(isOnlyReturned(result));
  if (llvm::is_contained(isFinal, true))
    state.addAttribute(kFinalResultsAttr, b.getDenseBoolArrayAttr(isFinal));
  bool hasNests =
      op.indicesOfRole(CascadeOp::Inner) | op.indicesOfRole(CascadeOp::Carried);
  if (hasNests && llvm::is_contained(isVarying, true))
    state.addAttribute(kVaryingInputsAttr, b.getDenseBoolArrayAttr(isVarying));
  IRMapping mapping;
  op.getBody().cloneInto(state.addRegion(), mapping);
  b.create(state);
  b.create<func::ReturnOp>(loc);

  std::string text;
  llvm::raw_string_ostream stream(text);
  module->print(stream, OpPrintingFlags().enableDebugInfo(false));
  return text;
}

/// A name for symbols: what the user called it, as far as letters go.
static std::string symbolFor(Operation *op, size_t number) {
  std::string name = "k" + std::to_string(number) + "_";
  for (char c : stepNameOf(op))
    name += llvm::isAlnum(c) ? c : '_';
  return name;
}

unsigned ProgramCompiler::kernelFor(CascadeOp op, ArrayRef<Type> types,
                                    ArrayRef<bool> isVarying) {
  // Layers of a model have the same kernels, under the names of the first.
  std::string text = kernelText(op, types, isVarying, /*keepsNames=*/false);
  auto [known, isNew] = kernelNumbers.try_emplace(text, kernels.size());
  if (!isNew)
    return known->second;
  if (keepsNames)
    text = kernelText(op, types, isVarying, /*keepsNames=*/true);
  kernels.push_back({symbolFor(op, kernels.size()), std::move(text)});
  return known->second;
}

/// A scalar operand by value: a size, or the bits of a constant.
static std::optional<ScalarSpec> scalarFor(Value value,
                                           std::optional<SizeExpr> size) {
  if (size)
    return ScalarSpec{*size};
  TypedAttr attribute;
  if (!matchPattern(value, m_Constant(&attribute)))
    return std::nullopt;
  if (auto number = dyn_cast<FloatAttr>(attribute))
    return ScalarSpec{
        SizeExpr(int64_t(number.getValue().bitcastToAPInt().getZExtValue()))};
  if (auto number = dyn_cast<IntegerAttr>(attribute))
    return ScalarSpec{SizeExpr(number.getValue().getSExtValue())};
  return std::nullopt;
}

/// Whether every run finds the same there: a constant, or what is computed once
/// and kept.
bool ProgramCompiler::staysTheSame(unsigned buffer) {
  flow.followUpTo(spec.steps.size());
  return flow.isConstant(buffer) && flow.mayBeKept(buffer);
}

llvm::Error ProgramCompiler::addCascade(CascadeOp op) {
  if (foldEpilogue(op))
    return llvm::Error::success();
  KernelStep step;
  step.numInputs = op.getInputs().size();
  SmallVector<Type> types;
  SmallVector<bool> isVarying;
  for (Value input : op.getInputs()) {
    auto tensor = dyn_cast<RankedTensorType>(input.getType());
    if (!tensor) {
      std::optional<ScalarSpec> scalar = scalarFor(input, sizeOf(input));
      if (!scalar)
        return refuse(op, "found a scalar operand of type " +
                              llvm::formatv("{0}", input.getType()).str() +
                              " that is neither a size nor a constant; "
                              "expected an array of rank 0");
      types.push_back(input.getType());
      isVarying.push_back(false);
      step.operands.push_back(*scalar);
      continue;
    }
    llvm::Expected<Slot> slot = slotOf(op, input);
    if (!slot)
      return slot.takeError();
    types.push_back(memrefFor(*slot, tensor));
    isVarying.push_back(!staysTheSame(slot->view.buffer));
    step.operands.push_back(slot->view);
  }
  for (auto [output, result] :
       llvm::zip_equal(op.getOutputs(), op.getResults())) {
    auto tensor = cast<RankedTensorType>(output.getType());
    llvm::Expected<DType> dtype = dtypeFor(op, tensor);
    if (!dtype)
      return dtype.takeError();
    // What a cascade does not write keeps the contents of its destination.
    Slot slot;
    auto empty = empties.find(output);
    if (empty != empties.end() && !fills.count(output)) {
      // What is computed once stays apart from what every run writes.
      slot = llvm::is_contained(isVarying, true)
                 ? slotForResult(result, *dtype, Sizes(empty->second))
                 : makeTemporary(*dtype, Sizes(empty->second));
    } else {
      llvm::Expected<Slot> before = slotOf(op, output);
      if (!before)
        return before.takeError();
      slot = makeTemporary(*dtype, before->view.sizes);
      addCopy(op, before->view, slot.view);
    }
    types.push_back(memrefFor(slot, tensor));
    step.operands.push_back(slot.view);
    slots[result] = slot;
  }
  step.kernel = kernelFor(op, types, isVarying);
  spec.steps.push_back({std::move(step), stepNameOf(op)});
  return llvm::Error::success();
}
