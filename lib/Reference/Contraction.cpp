// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums of products, found by their loops and their body: both operands are
// packed and multiplied as matrices, one product for each batch element.
#include "Session.h"
#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace refold;
using namespace refold::reference;

namespace {
/// A loop by the operands that it moves in.
enum Kind { Batch, Rows, Columns, Depth, NumKinds };

struct Plan {
  SmallVector<unsigned> loops[NumKinds];
  unsigned left = 0, right = 1; ///< operands
};
} // namespace

/// The input that `value` is, through casts that keep its value.
static std::optional<unsigned> inputOf(Value value, Block &body) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isa<arith::ExtFOp>(op))
      return std::nullopt;
    value = op->getOperand(0);
  }
  auto arg = dyn_cast<BlockArgument>(value);
  if (!arg || arg.getOwner() != &body)
    return std::nullopt;
  return arg.getArgNumber();
}

/// Is the body acc + a * b? The operands a and b.
static std::optional<std::pair<unsigned, unsigned>>
factorsOf(linalg::GenericOp op) {
  Block &body = op.getRegion().front();
  if (op.getNumDpsInits() != 1 || op.getNumDpsInputs() > 2 ||
      op.getNumReductionLoops() == 0)
    return std::nullopt;
  auto sum = body.getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  if (!sum)
    return std::nullopt;
  BlockArgument acc = op.getRegionOutputArgs()[0];
  Value term = sum.getLhs() == acc   ? sum.getRhs()
               : sum.getRhs() == acc ? sum.getLhs()
                                     : Value();
  auto product = term ? term.getDefiningOp<arith::MulFOp>() : arith::MulFOp();
  if (!product || !acc.hasOneUse())
    return std::nullopt;
  std::optional<unsigned> a = inputOf(product.getLhs(), body),
                          b = inputOf(product.getRhs(), body);
  if (!a || !b || *a >= op.getNumDpsInputs() || *b >= op.getNumDpsInputs())
    return std::nullopt;
  return std::make_pair(*a, *b);
}

static bool movesIn(AffineMap map, unsigned loop) {
  return map.isFunctionOfDim(loop);
}

static std::optional<Plan> planOf(linalg::GenericOp op) {
  auto factors = factorsOf(op);
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  if (!factors || !maps.back().isProjectedPermutation())
    return std::nullopt;
  Plan plan;
  std::tie(plan.left, plan.right) = *factors;
  for (unsigned l = 0; l < op.getNumLoops(); ++l) {
    bool inA = movesIn(maps[plan.left], l), inB = movesIn(maps[plan.right], l);
    bool inC = movesIn(maps.back(), l);
    if ((!inA && !inB) || (!inC && !(inA && inB)))
      return std::nullopt;
    Kind kind = !inC ? Depth : inA && inB ? Batch : inA ? Rows : Columns;
    plan.loops[kind].push_back(l);
  }
  return plan;
}

/// The factors of the loops in a subscript and its constant; nothing where it
/// is not linear with factors of at least 0.
static std::optional<SmallVector<int64_t>> factorsIn(AffineExpr expr,
                                                     unsigned numLoops) {
  SmallVector<int64_t> flat;
  if (!expr.isPureAffine() ||
      failed(getFlattenedAffineExpr(expr, numLoops, 0, &flat)) ||
      flat.size() != numLoops + 1 ||
      llvm::any_of(flat, [](int64_t factor) { return factor < 0; }))
    return std::nullopt;
  return flat;
}

/// Whether every subscript is linear and stays inside at these extents, which
/// an operand of overlapping windows is a strided view for.
static bool isStrided(AffineMap map, const RefTensor &array,
                      ArrayRef<int64_t> extents) {
  for (auto [d, expr] : llvm::enumerate(map.getResults())) {
    auto flat = factorsIn(expr, extents.size());
    if (!flat)
      return false;
    int64_t last = flat->back();
    for (auto [factor, extent] : llvm::zip(*flat, extents))
      if (extent == 0 || llvm::MulOverflow(factor, extent - 1, factor) ||
          llvm::AddOverflow(last, factor, last))
        return false;
    if (last >= array.shape()[d])
      return false;
  }
  return true;
}

/// The strided view of an operand with the loops of three kinds as dimensions.
static RefTensor viewBy(const RefTensor &array, AffineMap map,
                        ArrayRef<int64_t> extents, ArrayRef<unsigned> order) {
  SmallVector<int64_t> shape, strides;
  int64_t start = 0;
  SmallVector<SmallVector<int64_t>> factors;
  for (auto [d, expr] : llvm::enumerate(map.getResults())) {
    factors.push_back(*factorsIn(expr, extents.size()));
    start += factors.back().back() * array.strides()[d];
  }
  for (unsigned loop : order) {
    shape.push_back(extents[loop]);
    int64_t stride = 0;
    for (auto [d, flat] : llvm::enumerate(factors))
      stride += flat[loop] * array.strides()[d];
    strides.push_back(stride);
  }
  return array.view(shape, strides, start);
}

/// The floats of `view` in row-major order.
template <typename Real> static std::vector<Real> pack(const RefTensor &view) {
  std::vector<Real> packed(view.numElements());
  if (packed.empty())
    return packed;
  SmallVector<int64_t> at(view.rank(), 0), outer(view.shape());
  int64_t count = outer.empty() ? 1 : outer.back();
  int64_t step = outer.empty() ? 0 : view.strides().back();
  if (!outer.empty())
    outer.back() = 1;
  Real *to = packed.data();
  do {
    const Cell *from = view.data();
    for (unsigned d = 0; d < view.rank(); ++d)
      from += at[d] * view.strides()[d];
    for (int64_t i = 0; i < count; ++i)
      *to++ = from[i * step].*kFloatField<Real>;
  } while (nextSubscripts(at, outer));
  return packed;
}

/// Adds one product for each batch element. `result` is row-major.
template <typename Real>
static void multiply(const RefTensor &left, const RefTensor &right,
                     RefTensor &result, ArrayRef<int64_t> sizes,
                     std::optional<uint64_t> noise) {
  std::vector<Real> a = pack<Real>(left), b = pack<Real>(right),
                    c = pack<Real>(result);
  int64_t m = sizes[Rows], n = sizes[Columns], k = sizes[Depth];
  for (int64_t batch = 0; batch < sizes[Batch]; ++batch)
    multiplyAdd(a.data() + batch * m * k, b.data() + batch * k * n,
                c.data() + batch * m * n, m, n, k);
  for (auto [p, value] : llvm::enumerate(c))
    result.data()[p].*kFloatField<Real> =
        noise ? withOwnNoise(*noise, 0, value) : value;
}

llvm::Expected<std::optional<RefTensor>>
reference::evaluateContraction(linalg::GenericOp op,
                               ArrayRef<RefTensor> operands,
                               ArrayRef<int64_t> extents, Session &session) {
  std::optional<Plan> plan = planOf(op);
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  if (!plan || !isStrided(maps[plan->left], operands[plan->left], extents) ||
      !isStrided(maps[plan->right], operands[plan->right], extents))
    return std::optional<RefTensor>();
  auto order = [&](std::initializer_list<Kind> kinds) {
    SmallVector<unsigned> loops;
    for (Kind kind : kinds)
      llvm::append_range(loops, plan->loops[kind]);
    return loops;
  };
  double points = 1;
  int64_t sizes[NumKinds];
  for (unsigned kind = 0; kind < NumKinds; ++kind) {
    sizes[kind] = 1;
    for (unsigned loop : plan->loops[kind])
      sizes[kind] *= extents[loop];
    points *= double(sizes[kind]);
  }
  if (llvm::Error error = session.charge(2 * points, op.getLoc()))
    return std::move(error);
  auto viewOf = [&](unsigned operand, std::initializer_list<Kind> kinds) {
    return viewBy(operands[operand], maps[operand], extents, order(kinds));
  };
  auto c = session.copy(viewOf(operands.size() - 1, {Batch, Rows, Columns}),
                        op.getLoc());
  if (!c)
    return c.takeError();
  // The products are off with their sums.
  std::optional<uint64_t> noise = session.drawOwnNoise();
  RefTensor a = viewOf(plan->left, {Batch, Rows, Depth}),
            b = viewOf(plan->right, {Batch, Depth, Columns});
  session.isWide ? multiply<long double>(a, b, *c, sizes, noise)
                 : multiply<double>(a, b, *c, sizes, noise);
  // The loops in the order of the result's own dimensions.
  SmallVector<unsigned> have = order({Batch, Rows, Columns});
  SmallVector<int64_t> strides;
  for (AffineExpr expr : maps.back().getResults()) {
    unsigned loop = cast<AffineDimExpr>(expr).getPosition();
    strides.push_back(c->strides()[llvm::find(have, loop) - have.begin()]);
  }
  return std::optional(c->view(operands.back().shape(), strides, 0));
}
