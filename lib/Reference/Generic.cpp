// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// linalg.generic: a loop nest whose one loop of independent elements runs in
// lanes and whose others step like an odometer.
#include "Session.h"
#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "refold/Support/Error.h"

using namespace mlir;
using namespace refold;
using namespace refold::reference;

llvm::Expected<SmallVector<int64_t>>
reference::loopExtents(linalg::GenericOp op, ArrayRef<RefTensor> operands) {
  SmallVector<int64_t> extents(op.getNumLoops(), -1);
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  for (auto [number, operand, map] : llvm::enumerate(operands, maps))
    for (auto [d, expr] : llvm::enumerate(map.getResults())) {
      auto dim = dyn_cast<AffineDimExpr>(expr);
      if (!dim)
        continue;
      int64_t &extent = extents[dim.getPosition()];
      int64_t have = operand.shape()[d];
      if (extent >= 0 && extent != have)
        return failAt(ExitCode::Model, op.getLoc(),
                      "operand " + llvm::Twine(number) + " has size " +
                          llvm::Twine(have) + " at dimension " +
                          llvm::Twine(d) + "; expected " + llvm::Twine(extent));
      extent = have;
    }
  for (int64_t extent : extents)
    if (extent < 0)
      return failAt(ExitCode::Unsupported, op.getLoc(),
                    "a loop has an extent that no operand shows");
  return extents;
}

namespace {

/// A linear subscript map as a start and one step a loop, in cells.
struct Access {
  Cell *data = nullptr;
  int64_t start = 0;
  SmallVector<int64_t> steps;
};

class GenericEvaluator {
public:
  GenericEvaluator(linalg::GenericOp op, ArrayRef<RefTensor> operands,
                   ArrayRef<int64_t> extents, const Lookup &outer,
                   Session &session)
      : op(op), operands(operands.begin(), operands.end()), extents(extents),
        outer(outer), session(session), program(session.isWide),
        compiler(program, session.options) {
    program.running = session.running();
    program.functionNoise = session.options.functionNoise;
    program.ownNoise = session.drawOwnNoise();
    session.setRange(program);
  }

  llvm::Expected<SmallVector<RefTensor>> run(bool keepsExact);

private:
  llvm::Error prepareOutputs();
  llvm::Error compileBody();
  void bindAccumulators();
  llvm::Error bindResults(bool keepsExact);
  llvm::Error bindInputs();
  std::optional<Access> accessOf(unsigned operand);
  llvm::Error checkRange(unsigned operand);
  bool outputsAreIndependentAlong(unsigned loop);
  void chooseLanes();
  llvm::Error loop();
  llvm::Error runLanes(Lanes &lanes, ArrayRef<int64_t> at);
  Location loc() { return op.getLoc(); }

  struct Input {
    uint32_t reg;
    Access access;
  };
  struct Output {
    uint32_t from = 0; ///< register of the yielded value
    std::optional<uint32_t>
        into; ///< of the accumulator, where the body reads it
    Access access;
  };

  linalg::GenericOp op;
  SmallVector<RefTensor> operands; ///< outputs replaced by arrays of our own
  ArrayRef<int64_t> extents;
  const Lookup &outer;
  Session &session;
  ScalarProgram program;
  ScalarCompiler compiler;
  SmallVector<Input> inputs;
  SmallVector<Output> outputs;
  SmallVector<std::optional<uint32_t>> loopRegisters;
  std::optional<unsigned> laneLoop;
};

} // namespace

std::optional<Access> GenericEvaluator::accessOf(unsigned operand) {
  AffineMap map = op.getIndexingMapsArray()[operand];
  const RefTensor &array = operands[operand];
  Access access;
  access.data = array.data();
  access.steps.assign(extents.size(), 0);
  for (auto [d, expr] : llvm::enumerate(map.getResults())) {
    SmallVector<int64_t> flat;
    // Linear in the dims, without the local variables of mod and floordiv.
    if (!expr.isPureAffine() ||
        failed(getFlattenedAffineExpr(expr, map.getNumDims(), 0, &flat)) ||
        flat.size() != map.getNumDims() + 1)
      return std::nullopt;
    for (size_t l = 0; l < extents.size(); ++l)
      access.steps[l] += flat[l] * array.strides()[d];
    access.start += flat.back() * array.strides()[d];
  }
  return access;
}

llvm::Error GenericEvaluator::checkRange(unsigned operand) {
  AffineMap map = op.getIndexingMapsArray()[operand];
  for (auto [d, expr] : llvm::enumerate(map.getResults())) {
    SmallVector<int64_t> flat;
    if (failed(getFlattenedAffineExpr(expr, map.getNumDims(), 0, &flat)))
      continue;
    int64_t low = flat.back(), high = flat.back();
    for (size_t l = 0; l < extents.size(); ++l)
      (flat[l] < 0 ? low : high) += flat[l] * (extents[l] - 1);
    int64_t size = operands[operand].shape()[d];
    if (low < 0 || high >= size)
      return failAt(ExitCode::Model, loc(),
                    "operand " + llvm::Twine(operand) + " is read at " +
                        llvm::Twine(low < 0 ? low : high) + " of dimension " +
                        llvm::Twine(d) + "; expected 0 to " +
                        llvm::Twine(size - 1));
  }
  return llvm::Error::success();
}

llvm::Error GenericEvaluator::prepareOutputs() {
  for (unsigned o = 0; o < op.getNumDpsInits(); ++o) {
    RefTensor &array = operands[op.getNumDpsInputs() + o];
    bool isElementwise =
        llvm::all_of(op.getIteratorTypesArray(), [](auto kind) {
          return kind == utils::IteratorType::parallel;
        });
    AffineMap map = op.getIndexingMapsArray()[op.getNumDpsInputs() + o];
    bool overwritten = isElementwise && map.isPermutation() &&
                       op.getRegionOutputArgs()[o].use_empty();
    auto made = overwritten
                    ? session.make(array.isFloat(), array.shape(), loc())
                    : session.copy(array, loc());
    if (!made)
      return made.takeError();
    array = *made;
  }
  return llvm::Error::success();
}

llvm::Error GenericEvaluator::bindInputs() {
  SmallVector<uint32_t> loops(extents.size(), 0);
  for (unsigned i = 0; i < op.getNumDpsInputs(); ++i) {
    BlockArgument arg = op.getRegionInputArgs()[i];
    if (arg.use_empty())
      continue;
    std::optional<Access> access = accessOf(i);
    if (access) {
      if (llvm::Error error = checkRange(i))
        return error;
      uint32_t reg = program.newRegister();
      compiler.bind(arg, reg);
      inputs.push_back({reg, std::move(*access)});
      continue;
    }
    AffineMap map = op.getIndexingMapsArray()[i];
    for (size_t l = 0; l < extents.size(); ++l) {
      if (!loopRegisters[l])
        loopRegisters[l] = program.newRegister();
      loops[l] = *loopRegisters[l];
    }
    SmallVector<uint32_t> subscripts;
    for (AffineExpr expr : map.getResults()) {
      auto reg = compiler.compileAffine(expr, loops, {}, loc());
      if (!reg)
        return reg.takeError();
      subscripts.push_back(*reg);
    }
    compiler.bind(arg, compiler.load(operands[i], subscripts, loc()));
  }
  return llvm::Error::success();
}

void GenericEvaluator::bindAccumulators() {
  for (BlockArgument arg : op.getRegionOutputArgs()) {
    Output output;
    if (!arg.use_empty()) {
      output.into = program.newRegister();
      compiler.bind(arg, *output.into);
    }
    outputs.push_back(std::move(output));
  }
}

llvm::Error GenericEvaluator::compileBody() {
  compiler.outer = outer;
  loopRegisters.resize(extents.size());
  if (llvm::Error error = bindInputs())
    return error;
  bindAccumulators();
  for (Operation &inner : op.getRegion().front().without_terminator()) {
    if (auto index = dyn_cast<linalg::IndexOp>(inner)) {
      std::optional<uint32_t> &reg = loopRegisters[index.getDim()];
      if (!reg)
        reg = program.newRegister();
      compiler.bind(index.getResult(), *reg);
      continue;
    }
    if (llvm::Error error = compiler.compile(inner))
      return error;
  }
  return llvm::Error::success();
}

/// Finds the registers of the results, and where they go.
llvm::Error GenericEvaluator::bindResults(bool keepsExact) {
  Operation *yield = op.getRegion().front().getTerminator();
  for (auto [o, output] : llvm::enumerate(outputs)) {
    unsigned operand = op.getNumDpsInputs() + o;
    RefTensor &array = operands[operand];
    Value value = yield->getOperand(o);
    std::optional<uint32_t> exact;
    if (keepsExact && !output.into)
      exact = compiler.compileExact(value, loc());
    auto reg = compiler.registerOf(value, yield);
    if (!reg)
      return reg.takeError();
    output.from = exact.value_or(*reg);
    if (exact && !array.isFloat()) {
      auto made = session.make(true, array.shape(), loc());
      if (!made)
        return made.takeError();
      array = *made;
    }
    std::optional<Access> access = accessOf(operand);
    if (!access)
      return failAt(ExitCode::Unsupported, loc(),
                    "an output is written by subscripts that are not linear");
    if (llvm::Error error = checkRange(operand))
      return error;
    output.access = std::move(*access);
  }
  return llvm::Error::success();
}

/// Do different values of the loop write different elements of every output?
bool GenericEvaluator::outputsAreIndependentAlong(unsigned loop) {
  for (unsigned o = 0; o < outputs.size(); ++o) {
    AffineMap map = op.getIndexingMapsArray()[op.getNumDpsInputs() + o];
    if (!llvm::any_of(map.getResults(), [&](AffineExpr expr) {
          auto dim = dyn_cast<AffineDimExpr>(expr);
          return dim && dim.getPosition() == loop;
        }))
      return false;
  }
  return true;
}

void GenericEvaluator::chooseLanes() {
  for (unsigned l = 0; l < extents.size(); ++l)
    if (outputsAreIndependentAlong(l) &&
        (!laneLoop || extents[l] > extents[*laneLoop] ||
         extents[l] >= int64_t(kLanes)))
      laneLoop = l;
}

llvm::Error GenericEvaluator::runLanes(Lanes &lanes, ArrayRef<int64_t> at) {
  auto baseOf = [&](const Access &access) {
    int64_t base = access.start;
    for (size_t l = 0; l < at.size(); ++l)
      base += at[l] * access.steps[l];
    return access.data + base;
  };
  SmallVector<const Cell *, 8> from;
  SmallVector<Cell *, 2> to;
  for (const Input &input : inputs)
    from.push_back(baseOf(input.access));
  for (const Output &output : outputs)
    to.push_back(baseOf(output.access));
  int64_t total = laneLoop ? extents[*laneLoop] : 1;
  for (auto [l, reg] : llvm::enumerate(loopRegisters))
    if (reg && (!laneLoop || l != *laneLoop)) {
      Cell cell{};
      cell.i = at[l];
      lanes.fill(*reg, cell, std::min<int64_t>(kLanes, total));
    }
  for (int64_t done = 0; done < total; done += kLanes) {
    unsigned n = std::min<int64_t>(kLanes, total - done);
    for (auto [input, data] : llvm::zip(inputs, from)) {
      int64_t step = laneLoop ? input.access.steps[*laneLoop] : 0;
      Cell *reg = lanes.of(input.reg);
      for (unsigned l = 0; l < n; ++l)
        reg[l] = data[(done + l) * step];
    }
    if (laneLoop && loopRegisters[*laneLoop])
      for (unsigned l = 0; l < n; ++l)
        lanes.of(*loopRegisters[*laneLoop])[l].i = done + l;
    for (auto [output, data] : llvm::zip(outputs, to)) {
      int64_t step = laneLoop ? output.access.steps[*laneLoop] : 0;
      if (output.into)
        for (unsigned l = 0; l < n; ++l)
          lanes.of(*output.into)[l] = data[(done + l) * step];
    }
    TrapState trap;
    if (!reference::run(program, lanes, n, trap))
      return compiler.describe(trap);
    for (auto [output, data] : llvm::zip(outputs, to)) {
      int64_t step = laneLoop ? output.access.steps[*laneLoop] : 0;
      for (unsigned l = 0; l < n; ++l)
        data[(done + l) * step] = lanes.of(output.from)[l];
    }
  }
  return llvm::Error::success();
}

llvm::Error GenericEvaluator::loop() {
  double points = 1;
  for (int64_t extent : extents)
    points *= double(extent);
  if (points == 0)
    return llvm::Error::success();
  if (llvm::Error error = session.charge(
          points * (1.0 + double(program.instructions.size())), loc()))
    return error;
  SmallVector<int64_t> counts(extents.begin(), extents.end());
  if (laneLoop)
    counts[*laneLoop] = 1;
  SmallVector<int64_t> at(extents.size(), 0);
  Lanes lanes(program);
  do
    if (llvm::Error error = runLanes(lanes, at))
      return error;
  while (nextSubscripts(at, counts));
  return llvm::Error::success();
}

llvm::Expected<SmallVector<RefTensor>> GenericEvaluator::run(bool keepsExact) {
  bool isEmpty = llvm::is_contained(extents, 0);
  if (llvm::Error error = prepareOutputs())
    return std::move(error);
  if (!isEmpty) {
    if (llvm::Error error = compileBody())
      return std::move(error);
    if (llvm::Error error = bindResults(keepsExact))
      return std::move(error);
    chooseLanes();
    if (llvm::Error error = loop())
      return std::move(error);
  }
  return SmallVector<RefTensor>(
      ArrayRef(operands).drop_front(op.getNumDpsInputs()));
}

llvm::Expected<SmallVector<RefTensor>>
reference::evaluateGeneric(linalg::GenericOp op, ArrayRef<RefTensor> inputs,
                           ArrayRef<RefTensor> inits, const Lookup &outer,
                           bool keepsExact, Session &session) {
  for (Value operand : op->getOperands()) {
    auto array = dyn_cast<RankedTensorType>(operand.getType());
    if (!isKnownScalar(array ? array.getElementType() : operand.getType()))
      return failAt(ExitCode::Unsupported, op.getLoc(),
                    "an operand has an element type that the reference does "
                    "not know");
  }
  SmallVector<RefTensor> operands(inputs);
  operands.append(inits.begin(), inits.end());
  auto extents = loopExtents(op, operands);
  if (!extents)
    return extents.takeError();
  if (!session.options.roundEveryOp && !session.running() &&
      session.options.beyondRange == BeyondRange::AsIs) {
    auto product = evaluateContraction(op, operands, *extents, session);
    if (!product)
      return product.takeError();
    if (*product)
      return SmallVector<RefTensor>{std::move(**product)};
  }
  return GenericEvaluator(op, operands, *extents, outer, session)
      .run(keepsExact);
}
