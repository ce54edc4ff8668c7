// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which cascades with products are for matrix units, and what of them is what.
#include "TileKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "refold/Conversion/RoundFactors.h"

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

bool cuda::isOp(Node *n, StringRef name) {
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

std::optional<int> cuda::degreeOf(TileKernel &kernel, Node *n) {
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

/// The same of f32, which is read as it is.
static bool isOfBytes(Type type) {
  return type.isFloat8E4M3FN() || type.isFloat8E5M2();
}
static Node *tileRead(Node *n) {
  if (n->kind == Node::Read && n->type.isF32())
    return n;
  bool isByte = isOp(n, "arith.extf") && n->in[0]->kind == Node::Read &&
                isOfBytes(n->in[0]->type);
  return isByte ? n->in[0] : widenedRead(n);
}

/// The type that has all numbers of both; null where there is none of 16 bits.
/// f16 and bf16 have those of either type of 8 bits.
static Type unitOf(Type x, Type y) {
  if (isOfBytes(x) && isOfBytes(y))
    return Float16Type::get(x.getContext());
  if (isOfBytes(x) || x == y)
    return y.isF32() && x != y ? Type() : y;
  return isOfBytes(y) && !x.isF32() ? x : Type();
}

bool TileAccess::isWidened() const { return isOfBytes(read->type); }

bool TileKernel::widens() const { return left.isWidened() || widensStream(); }

bool TileKernel::widensStream() const {
  return right.isWidened() ||
         llvm::any_of(values, [](auto &a) { return a.isWidened(); });
}

bool TileKernel::mayWidenAhead() const {
  auto isWhole = [](const TileAccess &a) {
    return !a.isWidened() || a.inside.isMultipleOf(kNarrowVector);
  };
  return widensStream() && isWhole(right) && llvm::all_of(values, isWhole);
}

bool TileKernel::widensAllOfStream() const {
  return right.isWidened() &&
         llvm::all_of(values, [](auto &a) { return a.isWidened(); });
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

/// What is added to `column` in the subscript, which is their sum: whole
/// vectors of 16 bits of indices that are not `row`; null where it is anything
/// else.
static AffineExpr insideRow(AffineExpr subscript, Node *read, int row,
                            int column) {
  constexpr int64_t kVector = 8;
  AffineExpr rest = getAffineConstantExpr(0, subscript.getContext());
  bool isFound = false;
  SmallVector<AffineExpr> terms{subscript};
  while (!terms.empty()) {
    AffineExpr term = terms.pop_back_val();
    auto sum = dyn_cast<AffineBinaryOpExpr>(term);
    if (sum && sum.getKind() == AffineExprKind::Add) {
      terms.append({sum.getRHS(), sum.getLHS()});
      continue;
    }
    auto dim = dyn_cast<AffineDimExpr>(term);
    Node *index = dim ? read->in[dim.getPosition()] : nullptr;
    if (!isFound && index && index->kind == Node::Index &&
        int(index->index) == column)
      isFound = true;
    else
      rest = rest + term;
  }
  bool isPlain = isFound && rest.isMultipleOf(kVector);
  for (auto [k, n] : llvm::enumerate(read->in))
    if (rest.isFunctionOfDim(k))
      isPlain &= n->kind == Node::Index && int(n->index) != row &&
                 int(n->index) != column;
  return isPlain ? rest : AffineExpr();
}

/// Whether the array of `read` is a matrix: its last subscript is `column`, or
/// a part of the array's rows that begins there; one other one is `row`, or
/// none is and no other one has it.
static bool isMatrix(TileKernel &kernel, TileAccess &access, Node *read,
                     int row, int column) {
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
  if (!subscripts.empty())
    access.inside = insideRow(subscripts.back(), read, row, column);
  bool isFound = access.inside &&
                 succeeded(getStridesAndOffset(type, strides, offset)) &&
                 strides.back() == 1;
  for (auto [dim, expr] : llvm::enumerate(subscripts.drop_back())) {
    if (isIndex(expr, row) && access.rowDim < 0)
      access.rowDim = int(dim);
    else if (has(expr, row) || has(expr, column))
      isFound = false;
  }
  return isFound;
}

static LogicalResult findAccess(TileKernel &kernel, TileAccess &access,
                                Node *read, int row, int column) {
  CascadeOp op = kernel.plan->cascade;
  if (!isMatrix(kernel, access, read, row, column))
    return refuseTiles(kernel)
           << "found '" << kernel.operandNames[access.operand]
           << "' read otherwise than by rows along '" << op.indexName(column)
           << "'; expected its last dimension there, densely and from a "
              "multiple of 8 elements on";
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
      sides[i] = tileRead(product->in[i]);
  Type unit =
      sides[0] && sides[1] ? unitOf(sides[0]->type, sides[1]->type) : Type();
  if (!unit)
    return refuseTiles(kernel)
           << "found a sum of something else than products of two f32, two f16 "
              "or two bf16 arrays, or of one of these and 8-bit floats; "
              "expected that";
  kernel.isOfWords = unit.isF32();
  kernel.left.unit = kernel.right.unit = unit;
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
        if (Node *side = tileRead(s.term->in[i]);
            side && side->type.isF32() == kernel.isOfWords &&
            dependsOn(side, kernel.width) &&
            !dependsOn(s.term->in[1 - i], kernel.width)) {
          read = side;
          product.factor = s.term->in[1 - i];
        }
    if (!read)
      return refuseTiles(kernel)
             << "found '" << kernel.operandNames.back()
             << "' made of something else than a sum of numbers times "
             << (kernel.isOfWords ? "f32 rows; expected that, as what is "
                                    "multiplied before is f32"
                                  : "rows of 16 or 8 bits; expected that, "
                                    "which is what matrix units take");
    // Of 8 bits either type has them; f16 rounds factors less.
    bool isSmall = isAtMostOne(kernel, product.factor);
    Type unit = read->type;
    if (isOfBytes(unit))
      unit = isSmall ? Type(Float16Type::get(unit.getContext()))
                     : Type(BFloat16Type::get(unit.getContext()));
    if (read->type.isF16() && !isSmall)
      return refuseTiles(kernel)
             << "found factors of f16 rows that are not known to be at most 1; "
                "expected that, or bf16, which has the range of f32";
    if (!kernel.isOfWords)
      kernel.rounding = std::max(kernel.rounding, factorRoundingOf(unit));
    auto known = llvm::find_if(kernel.values, [&](const TileAccess &a) {
      return a.read == read && a.unit == unit;
    });
    product.values = known - kernel.values.begin();
    if (known == kernel.values.end()) {
      TileAccess &access = kernel.values.emplace_back();
      access.unit = unit;
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

/// Of a bound that data say of each row of a tile, none is the first or last.
/// Blocks with one row walk the stream once: not where a mask is finite.
static void dropUnorderedBounds(TileKernel &kernel) {
  llvm::erase_if(kernel.plan->passes[0].conditions, [&](Condition &condition) {
    if (condition.extreme >= 0 && kernel.tileRow < 0)
      return true;
    NodeSet all;
    collect(condition.bound, all);
    return kernel.tileRow >= 0 && llvm::any_of(all, [&](Node *n) {
             return n->kind == Node::Read && dependsOn(n, kernel.tileRow);
           });
  });
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
        kernel.plan->passes[0].conditions, [&](Condition &condition) {
          return condition.extreme < 0 && dependsOn(condition.bound, row);
        });
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

/// What terms read by row and column, and by nothing else that moves in a tile.
static void findElements(TileKernel &kernel) {
  NodeSet all;
  for (StatePlan &s : kernel.plan->states)
    collect(s.term, all);
  for (Node *n : all) {
    if (n->kind != Node::Read || kernel.tileRow < 0 ||
        !dependsOn(n, kernel.tileRow) || !dependsOn(n, kernel.stream))
      continue;
    bool isOfOthers =
        llvm::any_of(ArrayRef<int>{kernel.depth, kernel.width}, [&](int index) {
          return index >= 0 && dependsOn(n, index);
        });
    TileAccess access;
    bool isFound = !isOfOthers && !dependsOnStream(n) &&
                   isMatrix(kernel, access, n, kernel.tileRow, kernel.stream) &&
                   access.rowDim >= 0;
    // Eight of one byte may begin between multiples of 16.
    if (isFound && (isa<AffineConstantExpr>(access.inside) ||
                    n->type.getIntOrFloatBitWidth() > 8)) {
      access.name =
          kernel.nameFor(kernel.operandNames[access.operand] + "_rows");
      kernel.elements.push_back(access);
    }
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
  dropUnorderedBounds(kernel);
  if (packs)
    choosePacked(kernel);
  TileAccess right, left;
  if (failed(findAccess(kernel, left, kernel.left.read, kernel.tileRow,
                        kernel.depth)) ||
      failed(findAccess(kernel, right, kernel.right.read, kernel.stream,
                        kernel.depth)))
    return failure();
  left.unit = kernel.left.unit;
  right.unit = kernel.right.unit;
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
  if (!packs)
    findElements(kernel);
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
  // Of f32 what rounding an exponent takes is no more than what the scores'
  // own rounding does.
  kernel.isInBits =
      (kernel.isNarrow || kernel.isOfWords) && !mayLeaveBits(kernel);
  kernel.isInBits = llvm::any_of(plan.states, [&](StatePlan &s) {
    NodeSet all;
    collect(s.term, all);
    return llvm::any_of(all, [&](Node *n) { return kernel.isPowerOfTwo(n); });
  });
  findLateScale(kernel);
  return kernel;
}
