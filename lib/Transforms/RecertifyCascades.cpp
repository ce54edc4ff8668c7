// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads a refold.cascade back into the algebra and recomputes its certificate,
// so that an op written or changed by hand is held to what a derived one is.
#include "refold/Algebra/Certify.h"
#include "refold/Analysis/Formula.h"
#include "refold/Dialect/Refold/IR/Refold.h"
#include "refold/Transforms/FuseCascades.h"
#include "refold/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace refold;
using algebra::Expr;
using algebra::IndexSet;

namespace {

class CascadeImport {
public:
  explicit CascadeImport(CascadeOp op, algebra::Context &context)
      : op(op), context(context), shell(context) {}

  FailureOr<algebra::Program> run();

private:
  void addIndices();
  LogicalResult add(Operation &o);
  LogicalResult addState(StateOp state);
  LogicalResult addTransport(StateOp op, algebra::State &state);
  void define(Value value, Scalar scalar);
  LogicalResult scalar(Operation &o, DenseMap<Value, Scalar> &values);

  CascadeOp op;
  algebra::Context &context;
  algebra::Cascade shell; ///< makes the symbols of indices and reads
  IndexAtoms atoms;
  algebra::Program program;
  DenseMap<Value, Scalar> known;
  DenseSet<Value> pivots;
};

} // namespace

static algebra::Reducer importReducer(Reducer reducer) {
  switch (reducer) {
  case Reducer::Add:
    return algebra::Reducer::Sum;
  case Reducer::Mul:
    return algebra::Reducer::Prod;
  case Reducer::Max:
    return algebra::Reducer::Max;
  case Reducer::Min:
    return algebra::Reducer::Min;
  case Reducer::MaxNum:
    return algebra::Reducer::MaxNum;
  case Reducer::MinNum:
    return algebra::Reducer::MinNum;
  case Reducer::And:
    return algebra::Reducer::All;
  case Reducer::Or:
    return algebra::Reducer::Any;
  case Reducer::TopK:
  case Reducer::BottomK:
    return algebra::Reducer::TopK;
  }
  return algebra::Reducer::Sum;
}

void CascadeImport::addIndices() {
  DenseSet<unsigned> ranks;
  op.getBody().walk([&](StateOp state) {
    for (Value rank : state.getRank())
      ranks.insert(cast<BlockArgument>(rank).getArgNumber());
  });
  for (unsigned i = 0; i < op.numIndices(); ++i) {
    using R = algebra::IndexRole;
    R role = R::Row;
    switch (op.getRoles()[i]) {
    case CascadeOp::Stream:
      role = R::Stream;
      break;
    case CascadeOp::Inner:
      role = R::Inner;
      break;
    case CascadeOp::Carried:
      role = ranks.contains(i) ? R::Rank : R::Carried;
      break;
    default:
      break;
    }
    int64_t extent = op.getExtents()[i];
    unsigned number =
        shell.addIndex(op.indexName(i).str(), role,
                       ShapedType::isDynamic(extent) ? -1 : extent);
    Size size =
        ShapedType::isDynamic(extent) ? Size{1, {i}} : Size::constant(extent);
    known[op.getBody().getArgument(i)] =
        Scalar{shell.indices[number].value, atoms.index(number, size)};
  }
}

/// A pivot is a named value; anything else stays part of the formulas that use
/// it.
void CascadeImport::define(Value value, Scalar scalar) {
  if (pivots.contains(value) && !scalar.expr.isSym(algebra::Role::State)) {
    Expr symbol = context.symbol(
        "p" + std::to_string(program.definitions.size()), algebra::Role::Let,
        scalar.expr.type(), scalar.expr.indices());
    program.definitions.push_back(algebra::Let{symbol, scalar.expr});
    scalar = Scalar{symbol, std::nullopt};
  }
  known[value] = scalar;
}

LogicalResult CascadeImport::scalar(Operation &o,
                                    DenseMap<Value, Scalar> &values) {
  SmallVector<Scalar> operands;
  for (Value v : o.getOperands())
    operands.push_back(values.count(v) ? values.lookup(v) : known.lookup(v));
  std::optional<Scalar> value = importScalarOp(&o, 0, operands, context, atoms);
  if (!value)
    return o.emitError("has no form in the algebra [unsupported-op]");
  if (&values == &known)
    define(o.getResult(0), *value);
  else
    values[o.getResult(0)] = *value;
  return success();
}

LogicalResult CascadeImport::addTransport(StateOp o, algebra::State &state) {
  Block &block = o.getTransport().front();
  DenseMap<Value, Scalar> values;
  unsigned a = 0;
  auto next = [&](algebra::Role role, unsigned ordinal) {
    BlockArgument arg = block.getArgument(a++);
    algebra::Type type = *importType(arg.getType());
    values[arg] =
        Scalar{context.placeholder(role, ordinal, type), std::nullopt};
  };
  for (unsigned p = 0; p < o.getPivots().size(); ++p) {
    next(algebra::Role::Old, p);
    next(algebra::Role::New, p);
  }
  next(algebra::Role::Self, 0);
  for (unsigned w = 0; w < o.getWith().size(); ++w)
    next(algebra::Role::With, w);
  for (Operation &inner : block) {
    if (auto yield = dyn_cast<YieldOp>(inner)) {
      Value v = yield.getValue();
      state.transport = (values.count(v) ? values : known).lookup(v).expr;
      return success();
    }
    if (failed(scalar(inner, values)))
      return failure();
  }
  return failure();
}

LogicalResult CascadeImport::addState(StateOp o) {
  algebra::State state;
  state.reducer = importReducer(o.getReducer());
  for (Value v : o.getValues())
    state.values.push_back(known.lookup(v).expr);
  state.largest = o.getReducer() != Reducer::BottomK;
  if (!o.getRank().empty()) {
    state.rank = cast<BlockArgument>(o.getRank()[0]).getArgNumber();
    int64_t k = op.getExtents()[state.rank];
    if (ShapedType::isDynamic(k))
      return o.emitError("has a rank of unknown extent [unsupported-op]");
    state.k = k;
    state.indices |= IndexSet(1) << state.rank;
  }
  for (Expr value : state.values)
    state.indices |= value.indices();
  state.indices &= ~shell.stream();
  for (Value v : o.getPivots())
    state.pivots.push_back(known.lookup(v).expr);
  for (Value v : o.getWith())
    state.with.push_back(known.lookup(v).expr);
  if (o.getLaw())
    state.law = o.getLaw()->str();
  if (!o.getTransport().empty() && failed(addTransport(o, state)))
    return failure();
  for (auto [i, v] : llvm::enumerate(o.getResults())) {
    Expr symbol = context.symbol(
        "s" + std::to_string(program.definitions.size()) +
            (i ? "_" + std::to_string(i) : ""),
        algebra::Role::State, *importType(v.getType()), state.indices);
    state.results.push_back(symbol);
    known[v] = Scalar{symbol, std::nullopt};
  }
  program.definitions.push_back(std::move(state));
  return success();
}

LogicalResult CascadeImport::add(Operation &o) {
  if (auto read = dyn_cast<ReadOp>(o)) {
    std::optional<algebra::Type> type = importType(read.getValue().getType());
    if (!type)
      return read.emitError("has no form in the algebra [unsupported-op]");
    IndexSet set = 0;
    for (Value index : read.getIndices())
      set |= known.lookup(index).expr.indices();
    define(read.getValue(),
           Scalar{shell.addRead("x" + std::to_string(known.size()), set, *type),
                  std::nullopt});
    return success();
  }
  if (auto extent = dyn_cast<ExtentOp>(o)) {
    unsigned i = cast<BlockArgument>(extent.getOf()).getArgNumber();
    define(extent.getExtent(), Scalar{shell.indices[i].length, std::nullopt});
    return success();
  }
  if (auto contract = dyn_cast<ContractOp>(o)) {
    IndexSet over = 0;
    for (Value index : contract.getOver())
      over |= known.lookup(index).expr.indices();
    define(
        contract.getResult(),
        Scalar{context.contract(over, known.lookup(contract.getValue()).expr),
               std::nullopt});
    return success();
  }
  if (auto state = dyn_cast<StateOp>(o))
    return addState(state);
  if (auto write = dyn_cast<WriteOp>(o)) {
    program.outputs.push_back({"out" + std::to_string(program.outputs.size()),
                               known.lookup(write.getValue()).expr});
    return success();
  }
  return scalar(o, known);
}

FailureOr<algebra::Program> CascadeImport::run() {
  FailureOr<IndexSets> sets = IndexSets::infer(op);
  if (failed(sets))
    return failure();
  program.context = &context;
  addIndices();
  for (auto [i, arg] :
       llvm::enumerate(op.getBody().getArguments().drop_front(op.numIndices())))
    if (std::optional<algebra::Type> type = importType(arg.getType()))
      known[arg] = Scalar{shell.addRead("c" + std::to_string(i), 0, *type),
                          std::nullopt};
  op.getBody().walk([&](StateOp state) {
    pivots.insert(state.getPivots().begin(), state.getPivots().end());
  });
  for (Operation &o : *op.bodyBlock())
    if (failed(add(o)))
      return failure();
  program.indices = shell.indices;
  std::vector<unsigned> passes = algebra::passesOf(program.definitions);
  for (auto [definition, pass] : llvm::zip(program.definitions, passes))
    if (auto *state = std::get_if<algebra::State>(&definition))
      state->pass = pass;
  program.passes = sets->numPasses;
  return program;
}

FailureOr<std::string> refold::recertifyCascade(CascadeOp op) {
  algebra::Context context;
  FailureOr<algebra::Program> program = CascadeImport(op, context).run();
  if (failed(program))
    return failure();
  algebra::Certificate certificate = algebra::recertify(*program);
  if (!certificate.holds)
    return op.emitError("certificate fails: ") << certificate.failure,
           failure();
  return certificate.summary();
}

namespace {
struct RecertifyCascades
    : PassWrapper<RecertifyCascades, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(RecertifyCascades)
  StringRef getArgument() const override { return "refold-recertify-cascades"; }
  StringRef getDescription() const override {
    return "recompute the certificate of every cascade";
  }
  void runOnOperation() override {
    bool failedAny = false;
    getOperation()->walk([&](CascadeOp op) {
      FailureOr<std::string> summary = recertifyCascade(op);
      if (failed(summary))
        failedAny = true;
      else
        op.emitRemark() << "certificate holds: " << *summary;
    });
    if (failedAny)
      signalPassFailure();
  }
};
} // namespace

std::unique_ptr<Pass> refold::createRecertifyCascadesPass() {
  return std::make_unique<RecertifyCascades>();
}
