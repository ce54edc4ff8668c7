// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The walk over a function in program form.
#include "Session.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "refold/Support/Diagnostics.h"
#include "refold/Support/Error.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace refold;
using namespace refold::reference;

/// Does a program compute in f64, so that its judge must be finer than double?
/// Rounding every operation to its type is no judging, but where it is asked
/// for, and states of cascades are doubles.
static bool computesInDouble(func::FuncOp function,
                             const EvaluationOptions &options) {
  auto isDouble = [](Type type) { return getElementTypeOrSelf(type).isF64(); };
  bool hasDouble = false, hasCascade = false;
  function.walk([&](Operation *op) {
    hasCascade |= isa<CascadeOp>(op);
    hasDouble |= llvm::any_of(op->getOperandTypes(), isDouble) ||
                 llvm::any_of(op->getResultTypes(), isDouble);
  });
  return !hasCascade &&
         options.isWide.value_or(hasDouble && !options.roundEveryOp);
}

namespace {

class ProgramEvaluator {
public:
  ProgramEvaluator(func::FuncOp function, const EvaluationOptions &options)
      : function(function),
        session(options, computesInDouble(function, options)),
        random(options.seed) {}

  llvm::Expected<std::vector<RefOutput>> run(ArrayRef<Tensor> inputs);

private:
  llvm::Error bindInputs(ArrayRef<Tensor> inputs);
  llvm::Error bindInput(unsigned number, const Tensor &input,
                        llvm::StringMap<int64_t> &named);
  llvm::Error visit(Operation &op);
  llvm::Error visitGeneric(linalg::GenericOp op);
  llvm::Error visitCascade(CascadeOp op);
  llvm::Error visitTopK(TopKOp op);
  llvm::Error visitAssert(cf::AssertOp op);
  llvm::Error visitScalar(Operation &op);
  std::optional<SelectedKeys> selectedBy(Value output) const;
  void releaseAfter(Operation &op);
  bool feedsOutputsOnly(Operation &op) const;
  const RefTensor &get(Value value) const { return values.find(value)->second; }

  func::FuncOp function;
  Session session;
  std::mt19937_64 random; ///< of cuts and pivots
  DenseMap<Value, RefTensor> values;
  DenseMap<Value, Operation *> lastUse;
  DenseMap<Value, RefTensor> chosenFrom; ///< positions -> source of their topk
  Lookup lookup = [this](Value value) -> const RefTensor * {
    auto it = values.find(value);
    return it == values.end() ? nullptr : &it->second;
  };
};

} // namespace

llvm::Error ProgramEvaluator::bindInput(unsigned number, const Tensor &input,
                                        llvm::StringMap<int64_t> &named) {
  BlockArgument arg = function.getArgument(number);
  auto type = dyn_cast<RankedTensorType>(arg.getType());
  std::string name = "input " + std::to_string(number);
  if (auto given = function.getArgAttrOfType<StringAttr>(number, "refold.name"))
    name += " '" + given.getValue().str() + "'";
  Type element = type ? type.getElementType() : Type();
  if (!type || !isKnownScalar(element))
    return failAt(ExitCode::Unsupported, function.getLoc(),
                  name + " is no ranked tensor of numbers");
  if (!agrees(input.shape(), type.getShape()))
    return fail(ExitCode::Model, name + " has shape " +
                                     showShape(input.shape()) + "; expected " +
                                     showShape(type.getShape()));
  if (refold::isFloat(input.dtype()) != isa<FloatType>(element))
    return fail(ExitCode::Model, name + " is " + nameOf(input.dtype()) +
                                     "; expected another kind of number");
  auto dims = function.getArgAttrOfType<ArrayAttr>(number, "refold.dims");
  for (unsigned d = 0; dims && d < dims.size() && d < input.rank(); ++d) {
    auto dim = dyn_cast<StringAttr>(dims[d]);
    if (!dim || dim.getValue().empty())
      continue;
    auto [known, isNew] = named.try_emplace(dim.getValue(), input.shape()[d]);
    if (!isNew && known->second != input.shape()[d])
      return fail(ExitCode::Model, name + " has " + dim.getValue() + " = " +
                                       llvm::Twine(input.shape()[d]) +
                                       "; expected " +
                                       llvm::Twine(known->second));
  }
  auto room = session.make(true, input.shape(), function.getLoc());
  if (!room)
    return room.takeError();
  values[arg] = RefTensor::fromTensor(input, session.isWide);
  return llvm::Error::success();
}

llvm::Error ProgramEvaluator::bindInputs(ArrayRef<Tensor> inputs) {
  if (inputs.size() != function.getNumArguments())
    return fail(ExitCode::Model, "found " + llvm::Twine(inputs.size()) +
                                     " inputs; expected " +
                                     llvm::Twine(function.getNumArguments()));
  llvm::StringMap<int64_t> named;
  for (auto [number, input] : llvm::enumerate(inputs))
    if (llvm::Error error = bindInput(number, input, named))
      return error;
  return llvm::Error::success();
}

/// Is every result only returned?
bool ProgramEvaluator::feedsOutputsOnly(Operation &op) const {
  return llvm::all_of(
      op.getUsers(), [](Operation *user) { return isa<func::ReturnOp>(user); });
}

llvm::Error ProgramEvaluator::visitGeneric(linalg::GenericOp op) {
  SmallVector<RefTensor> inputs, inits;
  for (Value input : op.getInputs())
    inputs.push_back(get(input));
  for (Value init : op.getOutputs())
    inits.push_back(get(init));
  bool keepsExact = session.options.keepOutputsExact && feedsOutputsOnly(*op);
  auto results =
      evaluateGeneric(op, inputs, inits, lookup, keepsExact, session);
  if (!results)
    return results.takeError();
  for (auto [value, result] : llvm::zip(op.getResults(), *results))
    values[value] = result;
  return llvm::Error::success();
}

llvm::Error ProgramEvaluator::visitTopK(TopKOp op) {
  auto best = evaluateTopK(op, get(op.getSource()), session);
  if (!best)
    return best.takeError();
  values[op.getKeys()] = best->first;
  values[op.getPositions()] = best->second;
  chosenFrom[op.getPositions()] = get(op.getSource());
  return llvm::Error::success();
}

llvm::Error ProgramEvaluator::visitAssert(cf::AssertOp op) {
  if (get(op.getArg()).data()->i != 0)
    return llvm::Error::success();
  // Front ends write the place into the message, since programs print it too.
  if (op.getMsg().starts_with(describePlace(op.getLoc())))
    return fail(ExitCode::Model, op.getMsg());
  return failAt(ExitCode::Model, op.getLoc(), op.getMsg());
}

llvm::Error ProgramEvaluator::visitScalar(Operation &op) {
  ScalarProgram program(session.isWide);
  program.running = session.running();
  program.functionNoise = session.options.functionNoise;
  program.ownNoise = session.drawOwnNoise();
  session.setRange(program);
  ScalarCompiler compiler(program, session.options);
  compiler.outer = lookup;
  if (llvm::Error error = compiler.compile(op))
    return error;
  auto reg = compiler.registerOf(op.getResult(0), &op);
  if (!reg)
    return reg.takeError();
  Lanes lanes(program);
  TrapState trap;
  if (!reference::run(program, lanes, 1, trap))
    return compiler.describe(trap);
  RefTensor result = RefTensor::create(
      isa<FloatType>(op.getResult(0).getType()), {}, session.isWide);
  *result.data() = *lanes.of(*reg);
  values[op.getResult(0)] = result;
  return llvm::Error::success();
}

llvm::Error ProgramEvaluator::visitCascade(CascadeOp op) {
  SmallVector<RefTensor> operands;
  for (Value operand : op->getOperands())
    operands.push_back(get(operand));
  const EvaluationOptions &options = session.options;
  auto results = options.splits
                     ? evaluateCascadeStreaming(op, operands, *options.splits,
                                                random, options)
                     : evaluateCascade(op, operands, options);
  if (!results)
    return results.takeError();
  for (auto [value, result] : llvm::zip(op.getResults(), *results))
    values[value] = result;
  return llvm::Error::success();
}

llvm::Error ProgramEvaluator::visit(Operation &op) {
  if (auto constant = dyn_cast<arith::ConstantOp>(op);
      constant && isa<ShapedType>(constant.getType())) {
    auto value = evaluateConstant(constant.getValue(), op.getLoc(), session);
    if (!value)
      return value.takeError();
    values[constant.getResult()] = *value;
    return llvm::Error::success();
  }
  if (auto generic = dyn_cast<linalg::GenericOp>(op))
    return visitGeneric(generic);
  if (auto topk = dyn_cast<TopKOp>(op))
    return visitTopK(topk);
  if (auto cascade = dyn_cast<CascadeOp>(op))
    return visitCascade(cascade);
  if (auto check = dyn_cast<cf::AssertOp>(op))
    return visitAssert(check);
  auto moved = evaluateTensorOp(op, lookup, session);
  if (!moved)
    return moved.takeError();
  if (*moved) {
    values[op.getResult(0)] = **moved;
    return llvm::Error::success();
  }
  if (op.getNumResults() == 1 && isKnownScalar(op.getResult(0).getType()))
    return visitScalar(op);
  return failAt(ExitCode::Unsupported, op.getLoc(),
                "found '" + op.getName().getStringRef() +
                    "'; expected an op of the program form");
}

/// The array that positions were chosen from, through ops that only reshape or
/// convert them.
std::optional<SelectedKeys> ProgramEvaluator::selectedBy(Value output) const {
  while (Operation *def = output.getDefiningOp()) {
    if (auto topk = dyn_cast<TopKOp>(def)) {
      if (output != topk.getPositions())
        return std::nullopt;
      return SelectedKeys{chosenFrom.find(output)->second,
                          unsigned(topk.getDim())};
    }
    if (isa<tensor::CastOp, tensor::CollapseShapeOp>(def)) {
      output = def->getOperand(0);
      continue;
    }
    auto generic = dyn_cast<linalg::GenericOp>(def);
    bool converts =
        generic && generic.getNumDpsInputs() == 1 &&
        llvm::all_of(generic.getIndexingMapsArray(),
                     [](AffineMap map) { return map.isIdentity(); }) &&
        llvm::all_of(generic.getRegion().front().without_terminator(),
                     [](Operation &op) { return isa<CastOpInterface>(op); });
    if (!converts)
      return std::nullopt;
    output = generic.getInputs()[0];
  }
  return std::nullopt;
}

void ProgramEvaluator::releaseAfter(Operation &op) {
  auto release = [&](Value value) {
    auto it = lastUse.find(value);
    if (it == lastUse.end() || it->second == &op)
      values.erase(value);
  };
  // Values that bodies capture count as operands of the op around.
  op.walk([&](Operation *inner) {
    for (Value operand : inner->getOperands())
      if (operand.getParentBlock() == op.getBlock())
        release(operand);
  });
  for (Value result : op.getResults())
    if (!lastUse.count(result))
      values.erase(result);
}

/// Named linalg ops as generics.
static llvm::Error generalise(func::FuncOp function) {
  SmallVector<linalg::LinalgOp> named;
  function.walk([&](linalg::LinalgOp op) {
    if (!isa<linalg::GenericOp, linalg::FillOp>(op))
      named.push_back(op);
  });
  IRRewriter rewriter(function.getContext());
  for (linalg::LinalgOp op : named) {
    rewriter.setInsertionPoint(op);
    Location location = op.getLoc();
    StringRef name = op->getName().getStringRef();
    if (failed(linalg::generalizeNamedOp(rewriter, op)))
      return failAt(ExitCode::Unsupported, location,
                    "found '" + name + "', which has no general form");
  }
  return llvm::Error::success();
}

llvm::Expected<std::vector<RefOutput>>
ProgramEvaluator::run(ArrayRef<Tensor> inputs) {
  if (!function.getBody().hasOneBlock())
    return failAt(ExitCode::Unsupported, function.getLoc(),
                  "the function has control flow; expected one block");
  if (llvm::Error error = generalise(function))
    return std::move(error);
  Block &body = function.getBody().front();
  for (Operation &op : body)
    op.walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (operand.getParentBlock() == &body)
          lastUse[operand] = &op;
    });
  if (llvm::Error error = bindInputs(inputs))
    return std::move(error);
  for (Operation &op : body.without_terminator()) {
    if (llvm::Error error = visit(op))
      return std::move(error);
    releaseAfter(op);
  }
  std::vector<RefOutput> outputs;
  for (auto [number, value] :
       llvm::enumerate(body.getTerminator()->getOperands())) {
    RefTensor array = get(value);
    if (!array.isFloat() && function.getResultAttr(number, "refold.unsigned")) {
      array = array.clone();
      unsigned width =
          widthOf(cast<ShapedType>(value.getType()).getElementType());
      for (int64_t p = 0, n = array.numElements(); p < n && width < 64; ++p)
        array.data()[p].i &= (int64_t(1) << width) - 1;
    }
    outputs.push_back({array, selectedBy(value)});
  }
  return outputs;
}

llvm::Expected<std::vector<RefOutput>>
refold::evaluateProgram(func::FuncOp function, ArrayRef<Tensor> inputs,
                        const EvaluationOptions &options) {
  if (function.isExternal())
    return failAt(ExitCode::Model, function.getLoc(),
                  "the function has no body");
  OwningOpRef<func::FuncOp> ours = function.clone();
  return ProgramEvaluator(*ours, options).run(inputs);
}
