// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which cascades with products are for matrix units, and what of them is what.
#include "TileKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "refold/Conversion/RoundFactors.h"
#include <cmath>

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

unsigned TileKernel::numLevels() const {
  unsigned count = 0;
  for (unsigned level : levels)
    count = std::max(count, level + 1);
  return count;
}

const TileState *TileKernel::productOf(const StatePlan &s) const {
  for (const TileState &product : products)
    if (product.state == &s)
      return &product;
  return nullptr;
}

bool TileKernel::isPivot(const StatePlan &s) const {
  return llvm::any_of(plan->states, [&](StatePlan &other) {
    NodeSet all;
    collect(other.moved, all);
    return llvm::any_of(all, [&](Node *n) {
      return n->kind == Node::New && n->state == int(s.number);
    });
  });
}

bool TileKernel::isExtremeOfKept(const StatePlan &s) const {
  Reducer reducer = StateOp(s.op).getReducer();
  return s.term == kept && s.moved->isState() &&
         (reducer == Reducer::Max || reducer == Reducer::MaxNum ||
          reducer == Reducer::Min || reducer == Reducer::MinNum);
}

static bool isOp(Node *n, StringRef name) {
  return n->kind == Node::Elem && n->op->getName().getStringRef() == name;
}

bool TileKernel::mayBeInBits(Node *n) const {
  if (n == kept || (n->kind == Node::Const && n->type.isF32()))
    return true;
  if (n->isState())
    return isExtremeOfKept(plan->states[n->state]);
  bool isExtreme = isOp(n, "arith.maxnumf") || isOp(n, "arith.maximumf") ||
                   isOp(n, "arith.minnumf") || isOp(n, "arith.minimumf");
  return isExtreme && mayBeInBits(n->in[0]) && mayBeInBits(n->in[1]);
}

bool TileKernel::isPowerOfTwo(Node *n) const {
  return isInBits && isOp(n, "math.exp") && isOp(n->in[0], "arith.subf") &&
         mayBeInBits(n->in[0]->in[0]) && mayBeInBits(n->in[0]->in[1]);
}

Node *TileKernel::factorOf(const StatePlan &s) const {
  Node *moved = s.moved;
  if (!isOp(moved, "arith.mulf"))
    return nullptr;
  for (unsigned i : {0, 1})
    if (moved->in[i]->kind == Node::Old &&
        moved->in[i]->state == int(s.number)) {
      NodeSet all;
      collect(moved->in[1 - i], all);
      bool isOfPivots = llvm::all_of(all, [&](Node *n) {
        return !n->isState() || isPivot(plan->states[n->state]);
      });
      return isOfPivots ? moved->in[1 - i] : nullptr;
    }
  return nullptr;
}

bool TileKernel::isFloored(Node *n) const {
  if (!isOp(n, "arith.maxnumf"))
    return false;
  for (unsigned i : {0, 1})
    if (n->in[i]->isState())
      if (Node *floor = floors.lookup(n->in[i]->state);
          floor && floor == n->in[1 - i])
        return true;
  return false;
}

static void findFloors(TileKernel &kernel) {
  NodeSet all;
  for (StatePlan &s : kernel.plan->states) {
    collect(s.term, all);
    collect(s.moved, all);
  }
  for (StatePlan &s : kernel.plan->states) {
    bool isMaximum = s.op.getReducer() == Reducer::Max ||
                     s.op.getReducer() == Reducer::MaxNum;
    if (!isMaximum || !kernel.isPivot(s) || !s.op.getTransport().empty())
      continue;
    Node *floor = nullptr;
    bool isAsked = true;
    for (Node *n : all)
      for (auto [i, operand] : llvm::enumerate(n->in))
        if (operand->isState() && operand->state == int(s.number)) {
          Node *other = isOp(n, "arith.maxnumf") ? n->in[1 - i] : nullptr;
          bool isNumber = other && other->kind == Node::Const;
          isAsked &= isNumber && (!floor || floor == other);
          floor = other;
        }
    if (isAsked && floor)
      kernel.floors[s.number] = floor;
  }
}

/// How often a factor of all moved states comes out of `n`; nothing where it
/// does not come out whole.
static std::optional<int> degreeOf(TileKernel &kernel, Node *n) {
  if (n->isState()) {
    StatePlan &s = kernel.plan->states[n->state];
    if (kernel.isPivot(s))
      return std::nullopt;
    return s.op.getTransport().empty() ? 0 : 1;
  }
  SmallVector<int> in;
  for (Node *i : n->in) {
    std::optional<int> degree = degreeOf(kernel, i);
    if (!degree)
      return std::nullopt;
    in.push_back(*degree);
  }
  if (llvm::all_of(in, [](int degree) { return degree == 0; }))
    return 0;
  if (isOp(n, "arith.mulf"))
    return in[0] + in[1];
  if (isOp(n, "arith.divf"))
    return in[0] - in[1];
  bool isAdditive = isOp(n, "arith.addf") || isOp(n, "arith.subf");
  return isAdditive && in[0] == in[1] ? std::optional(in[0]) : std::nullopt;
}

/// Every moved state is multiplied by one factor, which no result keeps.
static bool mayDropPivots(TileKernel &kernel) {
  Node *factor = nullptr;
  for (StatePlan &s : kernel.plan->states) {
    if (s.op.getTransport().empty())
      continue;
    Node *own = kernel.factorOf(s);
    if (!own || (factor && own != factor))
      return false;
    factor = own;
  }
  return factor && kernel.numLevels() <= 2 &&
         llvm::all_of(kernel.plan->finishWrites, [&](WritePlan &w) {
           return degreeOf(kernel, w.value) == 0;
         });
}

bool cuda::dependsOn(Node *n, unsigned index) {
  NodeSet all;
  collect(n, all);
  return llvm::any_of(all, [&](Node *i) {
    return (i->kind == Node::Index && i->index == index) ||
           (i->isState() && i->has(index));
  });
}

bool cuda::isFixed(const TileKernel &kernel, Node *n) {
  if (dependsOnStream(n))
    return false;
  for (int index :
       {kernel.tileRow, int(kernel.stream), kernel.depth, kernel.width})
    if (index >= 0 && dependsOn(n, index))
      return false;
  return llvm::none_of(kernel.packed, [&](const TileKernel::Packed &packed) {
    return dependsOn(n, packed.index);
  });
}

bool cuda::dependsOnStream(Node *n) {
  NodeSet all;
  collect(n, all);
  return llvm::any_of(
      all, [](Node *i) { return i->isState() || i->kind == Node::Contract; });
}

Node *cuda::widenedRead(Node *n) {
  bool isRead = isOp(n, "arith.extf") && n->in[0]->kind == Node::Read &&
                (n->in[0]->type.isF16() || n->in[0]->type.isBF16());
  return isRead ? n->in[0] : nullptr;
}

static InFlightDiagnostic refuseTiles(TileKernel &kernel) {
  return refuse(kernel.plan->cascade, Reason::CudaNotTiles);
}

/// Exactly one index of each role that tiles have, one pass, numbers as states.
static LogicalResult chooseIndices(TileKernel &kernel) {
  CascadeOp op = kernel.plan->cascade;
  unsigned counts[4] = {};
  for (unsigned i = 0; i < op.numIndices(); ++i)
    switch (op.getRoles()[i]) {
    case CascadeOp::Row:
      kernel.rows.push_back(i);
      break;
    case CascadeOp::Stream:
      ++counts[1], kernel.stream = i;
      break;
    case CascadeOp::Inner:
      ++counts[2], kernel.depth = i;
      break;
    default:
      ++counts[3], kernel.width = i;
    }
  if (counts[1] != 1 || counts[2] != 1 || counts[3] > 1)
    return refuseTiles(kernel)
           << "found " << counts[1] << " stream, " << counts[2] << " inner and "
           << counts[3]
           << " carried indices; expected one, one, and at most one";
  if (kernel.plan->passes.size() != 1)
    return refuseTiles(kernel) << "found " << kernel.plan->passes.size()
                               << " passes over products; expected one";
  for (StatePlan &s : kernel.plan->states)
    if (s.op.isOrdered())
      return refuseTiles(kernel) << "found a list of the best elements; "
                                    "expected states that are numbers";
  return success();
}

/// The array of `read` as a matrix: its last subscript is `column`, one other
/// one is `row`, or none is and no other one has it.
static LogicalResult findAccess(TileKernel &kernel, TileAccess &access,
                                Node *read, int row, int column) {
  CascadeOp op = kernel.plan->cascade;
  auto readOp = cast<ReadOp>(read->op);
  access.read = read;
  access.operand =
      cast<BlockArgument>(readOp.getSource()).getArgNumber() - op.numIndices();
  auto isIndex = [&](AffineExpr expr, int index) {
    auto place = dyn_cast<AffineDimExpr>(expr);
    return place && read->in[place.getPosition()]->kind == Node::Index &&
           int(read->in[place.getPosition()]->index) == index;
  };
  auto has = [&](AffineExpr expr, int index) {
    for (auto [k, n] : llvm::enumerate(read->in))
      if (index >= 0 && expr.isFunctionOfDim(k) && dependsOn(n, index))
        return true;
    return false;
  };
  ArrayRef<AffineExpr> subscripts = readOp.getMap().getResults();
  auto type = cast<MemRefType>(op->getOperand(access.operand).getType());
  SmallVector<int64_t> strides;
  int64_t offset = 0;
  bool isMatrix = !subscripts.empty() && isIndex(subscripts.back(), column) &&
                  succeeded(getStridesAndOffset(type, strides, offset)) &&
                  strides.back() == 1;
  for (auto [dim, expr] : llvm::enumerate(subscripts.drop_back())) {
    if (isIndex(expr, row) && access.rowDim < 0)
      access.rowDim = int(dim);
    else if (has(expr, row) || has(expr, column))
      isMatrix = false;
  }
  if (!isMatrix)
    return refuseTiles(kernel)
           << "found '" << kernel.operandNames[access.operand]
           << "' read otherwise than by rows along '" << op.indexName(column)
           << "'; expected its last dimension there, densely";
  access.name = kernel.nameFor(kernel.operandNames[access.operand] + "_rows");
  return success();
}

/// The two arrays whose products are summed, as `left` (rows of the result) and
/// `right` (rows of the stream).
static LogicalResult findContraction(TileKernel &kernel) {
  Plan &plan = *kernel.plan;
  NodeSet terms, results;
  for (StatePlan &s : plan.states)
    collect(s.term, terms);
  for (auto *writes : {&plan.finishWrites, &plan.sweepWrites})
    for (WritePlan &w : *writes)
      collect(w.value, results);
  for (Node *n : terms)
    if (n->kind == Node::Contract) {
      if (kernel.contraction)
        return refuseTiles(kernel)
               << "found several sums of products; expected one";
      kernel.contraction = n;
    }
  bool isWritten =
      llvm::any_of(results, [](Node *n) { return n->kind == Node::Contract; });
  if (!kernel.contraction || isWritten || !plan.sweepWrites.empty())
    return refuseTiles(kernel)
           << (kernel.contraction ? "found products that results need, or "
                                    "results along the stream"
                                  : "found no product along the stream")
           << "; expected products that states read";
  Node *product = kernel.contraction->in[0];
  Node *sides[2] = {};
  if (isOp(product, "arith.mulf"))
    for (unsigned i : {0, 1})
      sides[i] = widenedRead(product->in[i]);
  if (!sides[0] || !sides[1] || sides[0]->type != sides[1]->type)
    return refuseTiles(kernel)
           << "found a sum of something else than products of two f16 or two "
              "bf16 arrays; expected that, which is what matrix units take";
  if (dependsOn(sides[0], kernel.stream))
    std::swap(sides[0], sides[1]);
  if (dependsOn(sides[0], kernel.stream) || !dependsOn(sides[1], kernel.stream))
    return refuseTiles(kernel) << "found a product of which not one side alone "
                                  "moves along the stream";
  kernel.left.read = sides[0];
  kernel.right.read = sides[1];
  return success();
}

/// The value is at most 1: the exponential of a difference to a maximum of what
/// is there, which only other maxima were taken with.
static bool isAtMostOne(TileKernel &kernel, Node *n) {
  bool isExp = isOp(n, "math.exp") || isOp(n, "math.exp2");
  if (!isExp || !isOp(n->in[0], "arith.subf"))
    return false;
  Node *x = n->in[0]->in[0];
  NodeSet pivot;
  collect(n->in[0]->in[1], pivot);
  bool isMaximum = llvm::all_of(pivot, [](Node *i) {
    return i->isState() || i->kind == Node::Const || isOp(i, "arith.maxnumf") ||
           isOp(i, "arith.maximumf");
  });
  return isMaximum && llvm::any_of(pivot, [&](Node *i) {
           if (!i->isState())
             return false;
           StatePlan &s = kernel.plan->states[i->state];
           Reducer reducer = s.op.getReducer();
           return s.term == x &&
                  (reducer == Reducer::Max || reducer == Reducer::MaxNum);
         });
}

/// States with a carried index as factors and rows of arrays.
static LogicalResult findProducts(TileKernel &kernel) {
  for (StatePlan &s : kernel.plan->states) {
    if (kernel.width < 0 || !(s.set & bit(kernel.width)))
      continue;
    TileState product;
    product.state = &s;
    Node *read = nullptr;
    if (s.op.getReducer() == Reducer::Add && isOp(s.term, "arith.mulf"))
      for (unsigned i : {0, 1})
        if (Node *side = widenedRead(s.term->in[i]);
            side && dependsOn(side, kernel.width) &&
            !dependsOn(s.term->in[1 - i], kernel.width)) {
          read = side;
          product.factor = s.term->in[1 - i];
        }
    if (!read)
      return refuseTiles(kernel)
             << "found '" << kernel.operandNames.back()
             << "' made of something else than a sum of numbers times f16 or "
                "bf16 rows; expected that, which is what matrix units take";
    if (read->type.isF16() && !isAtMostOne(kernel, product.factor))
      return refuseTiles(kernel)
             << "found factors of f16 rows that are not known to be at most 1; "
                "expected that, or bf16, which has the range of f32";
    kernel.rounding = std::max(kernel.rounding, factorRoundingOf(read->type));
    auto known = llvm::find_if(
        kernel.values, [&](const TileAccess &a) { return a.read == read; });
    product.values = known - kernel.values.begin();
    if (known == kernel.values.end()) {
      TileAccess &access = kernel.values.emplace_back();
      if (failed(findAccess(kernel, access, read, kernel.stream, kernel.width)))
        return failure();
      if (access.rowDim < 0)
        return refuseTiles(kernel)
               << "found rows that do not move along the stream";
    }
    kernel.products.push_back(product);
  }
  return success();
}

/// A row index that only the left side moves with: a tile has several of it.
static void chooseTileRow(TileKernel &kernel) {
  auto left = cast<ReadOp>(kernel.left.read->op);
  for (unsigned row : llvm::reverse(kernel.rows)) {
    bool isFree = !dependsOn(kernel.right.read, row);
    for (TileState &product : kernel.products)
      isFree &= !dependsOn(kernel.values[product.values].read, row);
    unsigned places = 0, uses = 0;
    for (AffineExpr expr : left.getMap().getResults())
      for (auto [k, n] : llvm::enumerate(kernel.left.read->in))
        if (expr.isFunctionOfDim(k) && dependsOn(n, row)) {
          ++uses;
          places += isa<AffineDimExpr>(expr) && n->kind == Node::Index;
        }
    if (isFree && uses == 1 && places == 1) {
      kernel.tileRow = row;
      break;
    }
  }
  llvm::erase_if(kernel.rows,
                 [&](unsigned i) { return int(i) == kernel.tileRow; });
}

/// How many neighbours of a row index read the same rows of an array: 0 for
/// all of them, 1 where it is not known that any do.
static int64_t shareOf(Node *node, unsigned row) {
  auto read = cast<ReadOp>(node->op);
  int64_t share = 0;
  for (AffineExpr expr : read.getMap().getResults())
    for (auto [k, n] : llvm::enumerate(node->in)) {
      if (!expr.isFunctionOfDim(k) || !dependsOn(n, row))
        continue;
      auto quotient = dyn_cast<AffineBinaryOpExpr>(expr);
      bool isQuotient = n->kind == Node::Index && quotient &&
                        expr.getKind() == AffineExprKind::FloorDiv &&
                        isa<AffineDimExpr>(quotient.getLHS());
      auto by = isQuotient ? dyn_cast<AffineConstantExpr>(quotient.getRHS())
                           : AffineConstantExpr();
      if (!by || by.getValue() < 1 || (share && share != by.getValue()))
        return 1;
      share = by.getValue();
    }
  return share;
}

/// Row indices whose places, some or all, read one stream. What bounds the
/// stream has to be the same for all of them.
static void choosePacked(TileKernel &kernel) {
  SmallVector<Node *> streamed{kernel.right.read};
  for (TileAccess &access : kernel.values)
    streamed.push_back(access.read);
  for (unsigned row : kernel.rows) {
    std::optional<int64_t> share;
    bool isSame = llvm::none_of(
        kernel.plan->passes[0].conditions,
        [&](Condition &condition) { return dependsOn(condition.bound, row); });
    for (Node *read : streamed) {
      int64_t own = shareOf(read, row);
      isSame &= own != 1 && (!share || *share == own);
      share = own;
    }
    if (isSame)
      kernel.packed.push_back({row, *share});
  }
}

static void findLevels(TileKernel &kernel) {
  Plan &plan = *kernel.plan;
  kernel.levels.assign(plan.states.size(), 0);
  for (size_t round = 0; round < plan.states.size(); ++round)
    for (StatePlan &s : plan.states) {
      NodeSet all;
      collect(s.term, all);
      collect(s.moved, all);
      for (Node *n : all)
        if (n->kind == Node::New)
          kernel.levels[s.number] =
              std::max(kernel.levels[s.number], kernel.levels[n->state] + 1);
    }
}

/// Follows the contraction as long as one operation alone reads it.
static void findKept(TileKernel &kernel) {
  Plan &plan = *kernel.plan;
  NodeSet all;
  for (StatePlan &s : plan.states)
    collect(s.term, all);
  kernel.kept = kernel.contraction;
  auto isRoot = [&](Node *n) {
    return llvm::any_of(plan.states,
                        [&](StatePlan &s) { return s.term == n; }) ||
           llvm::any_of(kernel.products,
                        [&](TileState &p) { return p.factor == n; });
  };
  while (!isRoot(kernel.kept)) {
    SmallVector<Node *> users;
    for (Node *n : all)
      if (llvm::is_contained(n->in, kernel.kept))
        users.push_back(n);
    NodeSet below;
    if (users.size() == 1)
      collect(users[0], below);
    bool isFollowed =
        users.size() == 1 && users[0]->kind == Node::Elem &&
        users[0]->type.isF32() &&
        llvm::none_of(below, [](Node *n) { return n->isState(); });
    if (!isFollowed)
      return;
    kernel.kept = users[0];
  }
}

static LogicalResult checkStates(TileKernel &kernel) {
  for (StatePlan &s : kernel.plan->states) {
    if (!kernel.productOf(s) && !s.type().isF32())
      return refuseTiles(kernel)
             << "found a state of type " << s.type() << "; expected f32";
    // Contractions of a transport, or rows that states alone have.
    NodeSet all;
    collect(s.moved, all);
    for (Node *n : all)
      if (n->kind == Node::Contract || n->kind == Node::Read)
        return refuseTiles(kernel)
               << "found a transport that reads an array; expected states";
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Factors that are applied late
//===----------------------------------------------------------------------===//

/// Bounds of a number that is known to be positive and no more than a power of
/// two away from what f32 holds. Extents count from 1: of an empty sum every
/// multiple is the same.
static std::optional<std::pair<double, double>> positiveRange(Node *n) {
  using Range = std::pair<double, double>;
  auto check = [](Range r) {
    constexpr double kLeast = 0x1p-120, kMost = 0x1p120;
    return r.first >= kLeast && r.second <= kMost ? std::optional(r)
                                                  : std::nullopt;
  };
  if (n->kind == Node::Extent)
    return Range{1.0, 0x1p63};
  if (n->kind == Node::Const) {
    auto number =
        dyn_cast<FloatAttr>(cast<arith::ConstantOp>(n->op).getValue());
    if (!number || !number.getValue().isFinite())
      return std::nullopt;
    double x = number.getValueAsDouble();
    return check({x, x});
  }
  if (n->kind != Node::Elem)
    return std::nullopt;
  SmallVector<Range, 2> in;
  for (Node *i : n->in) {
    std::optional<Range> range = positiveRange(i);
    if (!range)
      return std::nullopt;
    in.push_back(*range);
  }
  if (isa<arith::IndexCastOp, arith::SIToFPOp, arith::ExtFOp>(n->op))
    return in[0];
  if (isa<math::SqrtOp>(n->op))
    return Range{std::sqrt(in[0].first), std::sqrt(in[0].second)};
  if (isa<math::RsqrtOp>(n->op))
    return Range{1 / std::sqrt(in[0].second), 1 / std::sqrt(in[0].first)};
  if (isa<arith::MulFOp>(n->op))
    return check({in[0].first * in[1].first, in[0].second * in[1].second});
  if (isa<arith::DivFOp>(n->op))
    return check({in[0].first / in[1].second, in[0].second / in[1].first});
  return std::nullopt;
}

/// Whether every value that `n` selects from is a product with one positive
/// factor of the block, or a number that dividing by it leaves a number:
/// infinities, and all where the factor is a constant.
static bool findFactor(TileKernel &kernel, Node *n, Node *&factor,
                       bool &hasFinite) {
  if (n->kind == Node::Const) {
    auto number = cast<FloatAttr>(cast<arith::ConstantOp>(n->op).getValue());
    hasFinite |= number.getValue().isFinite();
    return !number.getValue().isNaN();
  }
  if (isOp(n, "arith.select"))
    return findFactor(kernel, n->in[1], factor, hasFinite) &&
           findFactor(kernel, n->in[2], factor, hasFinite);
  if (!isOp(n, "arith.mulf"))
    return false;
  for (Node *side : n->in)
    if (isFixed(kernel, side) && positiveRange(side)) {
      bool isSame = !factor || factor == side;
      factor = side;
      return isSame;
    }
  return false;
}

/// Whether `n` reads what is kept otherwise than in exp(kept - pivot).
static bool readsOtherwise(TileKernel &kernel, Node *n, Node *&pivot) {
  if (n == kernel.kept)
    return true;
  if (kernel.isPowerOfTwo(n) && n->in[0]->in[0] == kernel.kept) {
    Node *side = n->in[0]->in[1];
    bool isOther = pivot && pivot != side;
    pivot = side;
    NodeSet all;
    collect(side, all);
    return isOther || all.contains(kernel.kept);
  }
  return llvm::any_of(
      n->in, [&](Node *i) { return readsOtherwise(kernel, i, pivot); });
}

/// A constant that numbers of a mask can be divided by.
static bool isPlainScale(Node *factor) {
  constexpr double kLeast = 1e-6;
  return factor->kind == Node::Const &&
         cast<FloatAttr>(cast<arith::ConstantOp>(factor->op).getValue())
                 .getValueAsDouble() >= kLeast;
}

/// `degreeOf`, past guards: a choice by a sign, against a number.
static std::optional<int> guardedDegreeOf(TileKernel &kernel, Node *n) {
  if (isOp(n, "arith.select")) {
    std::optional<int> x = guardedDegreeOf(kernel, n->in[1]);
    std::optional<int> y = guardedDegreeOf(kernel, n->in[2]);
    if (n->in[1]->kind == Node::Const)
      return y;
    if (n->in[2]->kind == Node::Const || x == y)
      return x;
    return std::nullopt;
  }
  if (isOp(n, "arith.mulf") || isOp(n, "arith.divf")) {
    std::optional<int> x = guardedDegreeOf(kernel, n->in[0]);
    std::optional<int> y = guardedDegreeOf(kernel, n->in[1]);
    if (!x || !y)
      return std::nullopt;
    return isOp(n, "arith.mulf") ? *x + *y : *x - *y;
  }
  return degreeOf(kernel, n);
}

static bool readsPivot(TileKernel &kernel, Node *n) {
  NodeSet all;
  collect(n, all);
  return llvm::any_of(all, [&](Node *i) {
    return i->isState() && kernel.isPivot(kernel.plan->states[i->state]);
  });
}

/// Whether a result is the same if all moved states have one factor near 1: it
/// comes out, or is lost beside the pivot that its logarithm is added to.
static bool hidesFactor(TileKernel &kernel, Node *n) {
  if (guardedDegreeOf(kernel, n) == 0)
    return true;
  if (n->isState())
    return kernel.isPivot(kernel.plan->states[n->state]);
  if (isOp(n, "arith.addf"))
    for (unsigned side : {0, 1})
      if (Node *log = n->in[side]; isOp(log, "math.log") &&
                                   guardedDegreeOf(kernel, log->in[0]) &&
                                   readsPivot(kernel, n->in[1 - side]))
        return hidesFactor(kernel, n->in[1 - side]);
  return n->kind == Node::Elem &&
         llvm::all_of(n->in, [&](Node *i) { return hidesFactor(kernel, i); });
}

static void findLateScale(TileKernel &kernel) {
  TileKernel::LateScale late;
  bool hasFinite = false;
  if (!kernel.isInBits || kernel.numLevels() != 2)
    return;
  // Products that nothing scales are kept times log2(e) alone.
  bool isPlain = kernel.kept == kernel.contraction;
  if (!isPlain && (!findFactor(kernel, kernel.kept, late.factor, hasFinite) ||
                   !late.factor || (hasFinite && !isPlainScale(late.factor))))
    return;
  // What rounding a pivot takes from it is a factor of what is relative to it.
  for (auto *writes : {&kernel.plan->finishWrites, &kernel.plan->sweepWrites})
    for (WritePlan &w : *writes)
      if (!hidesFactor(kernel, w.value))
        return;
  bool isMoved = false;
  for (StatePlan &s : kernel.plan->states) {
    if (kernel.levels[s.number] == 0)
      continue;
    const TileState *product = kernel.productOf(s);
    Node *factor = kernel.factorOf(s);
    if (readsOtherwise(kernel, product ? product->factor : s.term,
                       late.pivot) ||
        (!s.op.getTransport().empty() &&
         !(factor && kernel.isPowerOfTwo(factor))))
      return;
    isMoved |= !s.op.getTransport().empty();
  }
  if (isMoved && late.pivot)
    kernel.late = late;
}

/// Whether what is kept may be finite and larger than f32 has it times log2(e):
/// where it is made of an array that reaches as far, or of such a number (a
/// mask that takes the lowest one), beside the products.
static bool mayLeaveBits(const TileKernel &kernel) {
  constexpr double kFar = 1e30; // over the least late factor finite, too
  NodeSet seen;
  SmallVector<Node *> pending{kernel.kept};
  while (!pending.empty()) {
    Node *n = pending.pop_back_val();
    if (n == kernel.contraction || !seen.insert(n))
      continue;
    if (n->kind == Node::Read) {
      Type type = n->op->getResult(0).getType();
      if (type.isF32() || type.isBF16())
        return true;
    }
    if (n->kind == Node::Const)
      if (auto number =
              dyn_cast<FloatAttr>(cast<arith::ConstantOp>(n->op).getValue());
          number && number.getValue().isFinite() &&
          std::fabs(number.getValueAsDouble()) > kFar)
        return true;
    pending.append(n->in.begin(), n->in.end());
  }
  return false;
}

FailureOr<TileKernel> cuda::findTiles(Plan &plan, bool packs) {
  TileKernel kernel;
  kernel.plan = &plan;
  if (failed(chooseIndices(kernel)) || failed(checkTypes(kernel)))
    return failure();
  chooseNames(kernel);
  if (failed(findContraction(kernel)))
    return failure();
  if (failed(findProducts(kernel)))
    return failure();
  chooseTileRow(kernel);
  if (packs)
    choosePacked(kernel);
  TileAccess right, left;
  if (failed(findAccess(kernel, left, kernel.left.read, kernel.tileRow,
                        kernel.depth)) ||
      failed(findAccess(kernel, right, kernel.right.read, kernel.stream,
                        kernel.depth)))
    return failure();
  kernel.left = left;
  kernel.right = right;
  if (right.rowDim < 0)
    return refuseTiles(kernel)
           << "found '" << kernel.operandNames[right.operand]
           << "' read at computed places of the stream";
  if (failed(checkStates(kernel)))
    return failure();
  findLevels(kernel);
  findKept(kernel);
  // What a factor's rounding costs is more than an approximation's.
  kernel.isNarrow =
      kernel.rounding > 0 ||
      llvm::all_of(plan.cascade->getOperandTypes(), [](Type type) {
        auto memref = dyn_cast<MemRefType>(type);
        return memref && !memref.getElementType().isF32();
      });
  kernel.dropsPivots = mayDropPivots(kernel);
  if (kernel.dropsPivots)
    findFloors(kernel);
  kernel.isInBits = kernel.isNarrow && !mayLeaveBits(kernel);
  kernel.isInBits = llvm::any_of(plan.states, [&](StatePlan &s) {
    NodeSet all;
    collect(s.term, all);
    return llvm::any_of(all, [&](Node *n) { return kernel.isPowerOfTwo(n); });
  });
  findLateScale(kernel);
  return kernel;
}
