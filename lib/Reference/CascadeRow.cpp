// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CascadeRow.h"
#include "refold/Support/Error.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace refold;
using namespace refold::reference;

RefTensor reference::broadcastTo(const Field &field, ArrayRef<unsigned> dims,
                                 ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides;
  for (unsigned dim : dims) {
    auto it = llvm::find(field.dims, dim);
    strides.push_back(it == field.dims.end()
                          ? 0
                          : field.cells.strides()[it - field.dims.begin()]);
  }
  return field.cells.view(shape, strides, 0);
}

//===----------------------------------------------------------------------===//
// Extents
//===----------------------------------------------------------------------===//

llvm::Error CascadeRow::takeExtent(Operation *access, AffineMap map,
                                   ValueRange indices, Value arg,
                                   bool isWrite) {
  unsigned number = cast<BlockArgument>(arg).getArgNumber();
  const RefTensor &array = operands[number - cascade.numIndices()];
  for (auto [d, expr] : llvm::enumerate(map.getResults())) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    auto index = dim ? dyn_cast<BlockArgument>(indices[dim.getPosition()])
                     : BlockArgument();
    if (!index)
      continue;
    int64_t &extent = extents[index.getArgNumber()];
    int64_t size = array.shape()[d];
    bool isKnown = !ShapedType::isDynamic(extent);
    if (isKnown && (isWrite ? extent != size : extent > size))
      return failAt(ExitCode::Model, access->getLoc(),
                    "index '" + cascade.indexName(index.getArgNumber()) +
                        "' has extent " + llvm::Twine(extent) +
                        ", but the operand has size " + llvm::Twine(size) +
                        " there");
    if (!isKnown)
      extent = size;
  }
  return llvm::Error::success();
}

llvm::Error CascadeRow::resolveExtents() {
  extents.assign(cascade.getExtents().begin(), cascade.getExtents().end());
  for (unsigned i = 0; i < extents.size(); ++i)
    if (auto size = cascade.sizeOf(i);
        size && ShapedType::isDynamic(extents[i]))
      extents[i] = size->dim < 0 ? int64_t(operands[size->operand].get(0))
                                 : operands[size->operand].shape()[size->dim];
  // A read may take the front of an operand: results say the size first.
  for (auto write : cascade.bodyBlock()->getOps<WriteOp>())
    if (llvm::Error error =
            takeExtent(write, write.getMap(), write.getIndices(),
                       write.getTarget(), /*isWrite=*/true))
      return error;
  for (auto read : cascade.bodyBlock()->getOps<ReadOp>())
    if (llvm::Error error = takeExtent(read, read.getMap(), read.getIndices(),
                                       read.getSource(), /*isWrite=*/false))
      return error;
  double length = 1;
  for (unsigned i = 0; i < extents.size(); ++i) {
    if (cascade.getRoles()[i] == CascadeOp::Row)
      rows.push_back(i);
    if (cascade.getRoles()[i] != CascadeOp::Stream)
      continue;
    streams.push_back(i);
    length *= double(extents[i]);
    if (length > double(int64_t(1) << 40))
      return failAt(ExitCode::Limit, cascade.getLoc(),
                    "the stream is longer than the reference's limit");
    streamLength *= extents[i];
  }
  return llvm::Error::success();
}

bool CascadeRow::nextRow() {
  SmallVector<int64_t> shape;
  for (unsigned row : rows)
    shape.push_back(extents[row]);
  if (isStarted)
    return nextSubscripts(rowAt, shape);
  isStarted = true;
  rowAt.assign(rows.size(), 0);
  return !llvm::is_contained(shape, 0);
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

uint32_t CascadeRow::inputRegister(Plan &plan, Value value) {
  for (auto [known, reg] : plan.inputs)
    if (known == value)
      return reg;
  plan.inputs.push_back({value, plan.program.newRegister()});
  plan.compiler->bind(value, plan.inputs.back().second);
  return plan.inputs.back().second;
}

llvm::Error CascadeRow::planRead(ReadOp read, Plan &plan) {
  SmallVector<uint32_t> dims, subscripts;
  for (Value index : read.getIndices())
    dims.push_back(inputRegister(plan, index));
  unsigned dimCount = read.getMap().getNumDims();
  for (AffineExpr expr : read.getMap().getResults()) {
    auto reg = plan.compiler->compileAffine(
        expr, ArrayRef(dims).take_front(dimCount),
        ArrayRef(dims).drop_front(dimCount), read.getLoc());
    if (!reg)
      return reg.takeError();
    subscripts.push_back(*reg);
  }
  unsigned number = cast<BlockArgument>(read.getSource()).getArgNumber();
  plan.result = plan.compiler->load(operands[number - cascade.numIndices()],
                                    subscripts, read.getLoc());
  return llvm::Error::success();
}

llvm::Error CascadeRow::planTransport(StateOp state) {
  Plan plan;
  plan.compiler =
      std::make_unique<ScalarCompiler>(plan.program, session.options);
  Block &block = state.getTransport().front();
  for (BlockArgument arg : block.getArguments())
    inputRegister(plan, arg);
  for (Operation &inner : block.without_terminator()) {
    for (Value operand : inner.getOperands())
      if (operand.getParentBlock() != &block)
        inputRegister(plan, operand);
    if (llvm::Error error = plan.compiler->compile(inner))
      return error;
  }
  Operation *yield = block.getTerminator();
  if (yield->getOperand(0).getParentBlock() != &block)
    inputRegister(plan, yield->getOperand(0));
  auto reg = plan.compiler->registerOf(yield->getOperand(0), yield);
  if (!reg)
    return reg.takeError();
  plan.result = *reg;
  plan.lanes = std::make_unique<Lanes>(plan.program);
  plans[state] = std::move(plan);
  return llvm::Error::success();
}

llvm::Error CascadeRow::planOp(Operation &op) {
  Plan plan;
  plan.compiler =
      std::make_unique<ScalarCompiler>(plan.program, session.options);
  if (auto read = dyn_cast<ReadOp>(op)) {
    if (llvm::Error error = planRead(read, plan))
      return error;
  } else if (auto extent = dyn_cast<ExtentOp>(op)) {
    unsigned index = cast<BlockArgument>(extent.getOf()).getArgNumber();
    plan.result = plan.compiler->constant(extents[index]);
  } else {
    for (Value operand : op.getOperands())
      inputRegister(plan, operand);
    if (llvm::Error error = plan.compiler->compile(op))
      return error;
    auto reg = plan.compiler->registerOf(op.getResult(0), &op);
    if (!reg)
      return reg.takeError();
    plan.result = *reg;
  }
  plan.lanes = std::make_unique<Lanes>(plan.program);
  plans[&op] = std::move(plan);
  return llvm::Error::success();
}

llvm::Error CascadeRow::planOps() {
  for (Operation &op : *cascade.bodyBlock()) {
    llvm::Error error = llvm::Error::success();
    if (auto state = dyn_cast<StateOp>(op)) {
      if (!state.getTransport().empty())
        error = planTransport(state);
    } else if (!isa<WriteOp, ContractOp>(op)) {
      error = planOp(op);
    }
    if (error)
      return error;
  }
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<CascadeRow>>
CascadeRow::create(CascadeOp cascade, ArrayRef<RefTensor> operands,
                   Session &session) {
  std::unique_ptr<CascadeRow> made(new CascadeRow(cascade, operands, session));
  FailureOr<IndexSets> sets = IndexSets::infer(cascade);
  if (failed(sets))
    return failAt(ExitCode::Internal, cascade.getLoc(),
                  "the cascade does not verify");
  made->sets = std::move(*sets);
  for (size_t o = cascade.getInputs().size(); o < operands.size(); ++o) {
    auto copy = session.copy(operands[o], cascade.getLoc());
    if (!copy)
      return copy.takeError();
    made->results.push_back(*copy);
  }
  if (llvm::Error error = made->resolveExtents())
    return std::move(error);
  if (llvm::Error error = made->planOps())
    return std::move(error);
  return made;
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

Field CascadeRow::indexField(unsigned index, StreamRange range) const {
  Field field;
  int32_t role = const_cast<CascadeRow *>(this)->cascade.getRoles()[index];
  if (role == CascadeOp::Row) {
    field.cells =
        RefTensor::scalar(rowAt[llvm::find(rows, index) - rows.begin()]);
    return field;
  }
  bool isStream = role == CascadeOp::Stream;
  unsigned dim = isStream ? kStreamDim : index;
  int64_t n = extentOf(dim, range), inside = 1;
  for (size_t s = streams.size(); isStream && s-- > 0 && streams[s] != index;)
    inside *= extents[streams[s]];
  field.dims = {dim};
  field.cells = RefTensor::create(false, {n});
  for (int64_t p = 0; p < n; ++p)
    field.cells.data()[p].i =
        isStream ? (range.begin + p) / inside % extents[index] : p;
  return field;
}

llvm::Expected<Field> CascadeRow::runPlan(Plan &plan, ArrayRef<Field> inputs,
                                          StreamRange range, bool isFloat,
                                          Location location) {
  Field result;
  for (const Field &input : inputs)
    for (unsigned dim : input.dims)
      if (!llvm::is_contained(result.dims, dim))
        result.dims.push_back(dim);
  llvm::sort(result.dims);
  SmallVector<int64_t> shape;
  for (unsigned dim : result.dims)
    shape.push_back(extentOf(dim, range));
  auto cells = session.make(isFloat, shape, location);
  if (!cells)
    return cells.takeError();
  result.cells = *cells;
  int64_t total = cells->numElements();
  if (total == 0)
    return result;
  if (llvm::Error error = session.charge(
          double(total) * (1.0 + double(plan.program.instructions.size())),
          location))
    return std::move(error);
  SmallVector<RefTensor> from;
  for (const Field &input : inputs)
    from.push_back(broadcastTo(input, result.dims, shape));
  int64_t last = shape.empty() ? 1 : shape.back();
  SmallVector<int64_t> outer(shape), at(shape.size(), 0);
  if (!outer.empty())
    outer.back() = 1;
  Cell *to = cells->data();
  Lanes &lanes = *plan.lanes;
  do {
    for (int64_t done = 0; done < last; done += kLanes) {
      unsigned n = std::min<int64_t>(kLanes, last - done);
      for (auto [array, input] : llvm::zip(from, plan.inputs)) {
        const Cell *data = array.data();
        for (size_t d = 0; d < at.size(); ++d)
          data += at[d] * array.strides()[d];
        int64_t step = shape.empty() ? 0 : array.strides().back();
        Cell *reg = lanes.of(input.second);
        for (unsigned l = 0; l < n; ++l)
          reg[l] = data[(done + l) * step];
      }
      TrapState trap;
      if (!reference::run(plan.program, lanes, n, trap))
        return plan.compiler->describe(trap);
      std::copy_n(lanes.of(plan.result), n, to);
      to += n;
    }
  } while (nextSubscripts(at, outer));
  return result;
}

llvm::Expected<Field> CascadeRow::contract(ContractOp op, const Field &value) {
  SmallVector<unsigned> kept, over;
  for (unsigned dim : value.dims)
    (llvm::is_contained(op.getOver(),
                        dim == kStreamDim
                            ? Value()
                            : Value(cascade.bodyBlock()->getArgument(dim)))
         ? over
         : kept)
        .push_back(dim);
  Field result;
  result.dims.assign(kept.begin(), kept.end());
  SmallVector<unsigned> order(kept);
  order.append(over);
  SmallVector<int64_t> shape, keptShape;
  for (unsigned dim : order)
    shape.push_back(
        value.cells.shape()[llvm::find(value.dims, dim) - value.dims.begin()]);
  keptShape.assign(shape.begin(), shape.begin() + kept.size());
  int64_t summed = 1;
  for (unsigned d = kept.size(); d < order.size(); ++d)
    summed *= shape[d];
  auto cells = session.make(value.cells.isFloat(), keptShape, op.getLoc());
  if (!cells)
    return cells.takeError();
  RefTensor from = broadcastTo(value, order, shape).clone();
  Type type = op.getResult().getType();
  for (int64_t p = 0, n = cells->numElements(); p < n; ++p) {
    Cell &sum = cells->data()[p];
    const Cell *data = from.data() + p * summed;
    for (int64_t k = 0; k < summed; ++k) {
      if (!cells->isFloat())
        sum.i = wrapTo(widthOf(type), sum.i + data[k].i);
      else if (session.options.roundEveryOp)
        sum.f = session.isUnlimited()
                    ? roundDigits(*dtypeOf(type), sum.f + data[k].f)
                    : roundTo(*dtypeOf(type), sum.f + data[k].f);
      else
        sum.f += data[k].f;
    }
  }
  result.cells = *cells;
  return result;
}

llvm::Error
CascadeRow::ensure(Value value, Scope &scope,
                   llvm::function_ref<bool(StateOp)> computesState) {
  if (scope.values.count(value))
    return llvm::Error::success();
  if (auto arg = dyn_cast<BlockArgument>(value)) {
    unsigned number = arg.getArgNumber();
    if (number < cascade.numIndices())
      scope.values[value] = indexField(number, scope.range);
    else // a scalar operand
      scope.values[value] = {{}, operands[number - cascade.numIndices()]};
    return llvm::Error::success();
  }
  Operation *def = value.getDefiningOp();
  if (auto state = dyn_cast<StateOp>(def)) {
    if (!computesState(state))
      return failAt(ExitCode::Internal, state.getLoc(),
                    "a state is read before it is complete");
    auto fields = reduce(state, scope, computesState);
    if (!fields)
      return fields.takeError();
    for (auto [result, field] : llvm::zip(state.getResults(), *fields))
      scope.values[result] = field;
    return llvm::Error::success();
  }
  if (auto contracted = dyn_cast<ContractOp>(def)) {
    if (llvm::Error error = ensure(contracted.getValue(), scope, computesState))
      return error;
    auto field = contract(contracted, scope.values[contracted.getValue()]);
    if (!field)
      return field.takeError();
    scope.values[value] = *field;
    return llvm::Error::success();
  }
  Plan &plan = plans.find(def)->second;
  SmallVector<Field> inputs;
  for (auto [input, reg] : plan.inputs) {
    if (llvm::Error error = ensure(input, scope, computesState))
      return error;
    inputs.push_back(scope.values[input]);
  }
  auto field = runPlan(plan, inputs, scope.range,
                       isa<FloatType>(value.getType()), def->getLoc());
  if (!field)
    return field.takeError();
  scope.values[value] = *field;
  return llvm::Error::success();
}

llvm::Expected<Field>
CascadeRow::transport(StateOp state, ArrayRef<Field> old, ArrayRef<Field> to,
                      const Field &self, ArrayRef<Field> with, Scope &scope) {
  Plan &plan = plans.find(state)->second;
  SmallVector<Field> inputs;
  for (auto [from, into] : llvm::zip(old, to)) {
    inputs.push_back(from);
    inputs.push_back(into);
  }
  inputs.push_back(self);
  inputs.append(with.begin(), with.end());
  for (auto [value, reg] : ArrayRef(plan.inputs).drop_front(inputs.size())) {
    if (llvm::Error error = ensure(value, scope, [](StateOp) { return false; }))
      return std::move(error);
    inputs.push_back(scope.values[value]);
  }
  return runPlan(plan, inputs, scope.range, self.cells.isFloat(),
                 state.getLoc());
}

llvm::Error CascadeRow::store(WriteOp write, Scope &scope) {
  unsigned number = cast<BlockArgument>(write.getTarget()).getArgNumber();
  const RefTensor &target =
      results[number - cascade.numIndices() - cascade.getInputs().size()];
  const Field &value = scope.values[write.getValue()];
  // The subscripts as strides of the indices that are not the row's.
  SmallVector<unsigned> dims;
  SmallVector<int64_t> shape, strideOf(cascade.numIndices(), 0);
  bool hasStream = false;
  int64_t base = 0;
  for (auto [d, expr] : llvm::enumerate(write.getMap().getResults())) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    if (!dim)
      continue;
    unsigned index = cast<BlockArgument>(write.getIndices()[dim.getPosition()])
                         .getArgNumber();
    strideOf[index] = target.strides()[d];
    auto row = llvm::find(rows, index);
    if (row != rows.end())
      base += rowAt[row - rows.begin()] * target.strides()[d];
    else if (cascade.getRoles()[index] == CascadeOp::Stream)
      hasStream = true;
    else
      dims.push_back(index);
  }
  llvm::sort(dims);
  if (hasStream)
    dims.push_back(kStreamDim);
  for (unsigned dim : dims)
    shape.push_back(extentOf(dim, scope.range));
  RefTensor from = broadcastTo(value, dims, shape);
  if (from.numElements() == 0)
    return llvm::Error::success();
  SmallVector<int64_t> at(dims.size(), 0);
  do {
    int64_t source = 0, where = base;
    for (auto [d, dim] : llvm::enumerate(dims)) {
      source += at[d] * from.strides()[d];
      int64_t rest = scope.range.begin + at[d];
      if (dim != kStreamDim)
        where += at[d] * strideOf[dim];
      else
        for (size_t s = streams.size(); s-- > 0; rest /= extents[streams[s]])
          where += rest % extents[streams[s]] * strideOf[streams[s]];
    }
    target.data()[where] = from.data()[source];
  } while (nextSubscripts(at, shape));
  return llvm::Error::success();
}
