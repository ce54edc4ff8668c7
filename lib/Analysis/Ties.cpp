// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Ties.h"

#include "refold/Analysis/Kernels.h"
#include "refold/Dialect/Refold/IR/Refold.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/EquivalenceClasses.h"

using namespace mlir;
using namespace refold;

/// The operand of a body that `value` is, through an exact extension.
static BlockArgument bodyOperand(Value value) {
  if (Operation *op = value.getDefiningOp();
      op && isa<arith::ExtFOp, arith::ExtSIOp>(op))
    value = op->getOperand(0);
  return dyn_cast<BlockArgument>(value);
}

/// Whether the body adds a product of the two operands to the sum.
static bool addsProducts(linalg::GenericOp generic) {
  std::optional<Combiner> combiner =
      matchCombiner(generic.getBody()->getTerminator()->getOperand(0),
                    generic.getRegionOutputArgs()[0]);
  if (!combiner || combiner->reducer != algebra::Reducer::Sum)
    return false;
  Operation *mul = combiner->term.getDefiningOp();
  if (!mul || !isa<arith::MulFOp, arith::MulIOp>(mul))
    return false;
  BlockArgument a = bodyOperand(mul->getOperand(0));
  BlockArgument b = bodyOperand(mul->getOperand(1));
  return a && b && a != b;
}

static bool hasTwoOperands(linalg::GenericOp generic) {
  return generic.getNumResults() == 1 && generic.getNumDpsInputs() == 2;
}

/// Sums of multiples of loops, each loop in one subscript.
static bool isWindowMap(AffineMap map) {
  SmallVector<unsigned> uses(map.getNumDims(), 0);
  auto isTerm = [&](AffineExpr expr) {
    auto scaled = dyn_cast<AffineBinaryOpExpr>(expr);
    if (scaled && scaled.getKind() == AffineExprKind::Mul) {
      auto factor = dyn_cast<AffineConstantExpr>(scaled.getRHS());
      if (!factor || factor.getValue() < 1)
        return false;
      expr = scaled.getLHS();
    }
    auto dim = dyn_cast<AffineDimExpr>(expr);
    return dim && ++uses[dim.getPosition()] == 1;
  };
  return llvm::all_of(map.getResults(), [&](AffineExpr expr) {
    auto sum = dyn_cast<AffineBinaryOpExpr>(expr);
    if (sum && sum.getKind() == AffineExprKind::Add)
      return isTerm(sum.getLHS()) && isTerm(sum.getRHS());
    auto constant = dyn_cast<AffineConstantExpr>(expr);
    return (constant && constant.getValue() == 0) || isTerm(expr);
  });
}

bool refold::isWindowProduct(linalg::GenericOp generic) {
  if (!hasTwoOperands(generic) || !addsProducts(generic))
    return false;
  SmallVector<AffineMap> maps = generic.getIndexingMapsArray();
  if (maps[0].isProjectedPermutation(/*allowZeroInResults=*/true) ||
      !isWindowMap(maps[0]) ||
      !maps[1].isProjectedPermutation(/*allowZeroInResults=*/true) ||
      !maps[2].isProjectedPermutation())
    return false;
  bool hasOwn = false;
  for (unsigned d = 0; d < generic.getNumLoops(); ++d) {
    bool inA = maps[0].isFunctionOfDim(d), inB = maps[1].isFunctionOfDim(d);
    bool inC = maps[2].isFunctionOfDim(d);
    hasOwn |= inA && !inB && inC;
    if ((!inA && !inB) || (!inC && !(inA && inB)))
      return false;
  }
  return hasOwn;
}

bool refold::isProduct(linalg::GenericOp generic) {
  if (!hasTwoOperands(generic) || !generic.getNumReductionLoops())
    return false;
  for (AffineMap map : generic.getIndexingMapsArray())
    if (!map.isProjectedPermutation())
      return isWindowProduct(generic);
  if (!addsProducts(generic))
    return false;
  // Rows of its own in each operand; otherwise it is a plain reduction.
  bool ownInA = false, ownInB = false;
  for (unsigned d = 0; d < generic.getNumLoops(); ++d) {
    bool inA = generic.getIndexingMapsArray()[0].isFunctionOfDim(d);
    bool inB = generic.getIndexingMapsArray()[1].isFunctionOfDim(d);
    bool inC = generic.getIndexingMapsArray()[2].isFunctionOfDim(d);
    ownInA |= inA && !inB && inC;
    ownInB |= inB && !inA && inC;
    if (!inC && !(inA && inB))
      return false;
  }
  return ownInA && ownInB;
}

/// What makes a value of a body, through the elementwise ops that make the
/// tensors it reads where these are not in memory; null where that is no op.
static Operation *scalarProducer(Value value,
                                 const llvm::SetVector<Value> &materialised) {
  while (auto arg = dyn_cast<BlockArgument>(value)) {
    auto reader = dyn_cast<linalg::GenericOp>(arg.getOwner()->getParentOp());
    if (!reader || arg.getArgNumber() >= reader.getNumDpsInputs())
      return nullptr;
    Value tensor = reader->getOperand(arg.getArgNumber());
    auto maker = tensor.getDefiningOp<linalg::GenericOp>();
    if (!maker || materialised.contains(tensor) ||
        maker.getNumReductionLoops() || maker.getNumResults() != 1)
      return nullptr;
    value = maker.getBody()->getTerminator()->getOperand(0);
  }
  return value.getDefiningOp();
}

/// A sum of products, whatever the operands and whichever op multiplies: cheap
/// enough to be computed inside an element.
static bool isContraction(linalg::GenericOp generic,
                          const llvm::SetVector<Value> &materialised) {
  if (generic.getNumResults() != 1 || !generic.getNumReductionLoops())
    return false;
  std::optional<Combiner> combiner =
      matchCombiner(generic.getBody()->getTerminator()->getOperand(0),
                    generic.getRegionOutputArgs()[0]);
  if (!combiner || combiner->reducer != algebra::Reducer::Sum)
    return false;
  // A scale of the products is one of the sum (`Formula::contraction`).
  Operation *term = scalarProducer(combiner->term, materialised);
  while (auto quotient = dyn_cast_or_null<arith::DivFOp>(term)) {
    if (!quotient.getRhs().getDefiningOp<arith::ConstantOp>())
      return false;
    term = scalarProducer(quotient.getLhs(), materialised);
  }
  return isa_and_nonnull<arith::MulFOp, arith::MulIOp>(term);
}

/// The sizes that a reduction runs over.
static SmallVector<Size> streamOf(Operation *op, Formula &formula) {
  if (auto topk = dyn_cast<TopKOp>(op))
    return {formula.sizes.of(topk.getSource(), topk.getDim())};
  SmallVector<Size> stream;
  auto generic = cast<linalg::GenericOp>(op);
  for (auto [d, type] : llvm::enumerate(generic.getIteratorTypesArray()))
    if (type == utils::IteratorType::reduction)
      stream.push_back(formula.sizeOfLoop(generic, d));
  return stream;
}

bool Shared::add(Value tensor, SizeTable &sizes,
                 const llvm::SetVector<Value> &materialised) {
  if (known.contains(tensor))
    return false;
  FormulaPolicy policy;
  policy.isMaterialised = [&](Value v) {
    return v != tensor && materialised.contains(v);
  };
  policy.mayContract = [](Operation *) { return false; };
  policy.seesThrough = [&](Value v, const Subscripts &at, const Formula &f) {
    return seesThrough(v, at, f);
  };
  SmallVector<Reduced> reduced;
  Formula *current = nullptr;
  policy.onReduction = [&](Operation *op, const Subscripts &at) {
    Reduced own;
    for (const IndexExpr &e : at)
      own.dims |= current->atoms.indicesOf(e);
    own.stream = streamOf(op, *current);
    reduced.push_back(std::move(own));
  };
  Formula formula(sizes, policy);
  current = &formula;
  Subscripts at;
  for (int64_t d = 0, e = cast<RankedTensorType>(tensor.getType()).getRank();
       d < e; ++d)
    at.push_back(formula.index(
        formula.addIndex("i", algebra::IndexRole::Row, sizes.of(tensor, d))));
  formula.element(tensor, at);
  known[tensor] = std::move(reduced);
  return true;
}

bool Shared::seesThrough(Value tensor, const Subscripts &at,
                         const Formula &reader) const {
  auto it = known.find(tensor);
  if (it == known.end())
    return false;
  algebra::IndexSet perElement =
      reader.cascade.stream() |
      reader.cascade.indicesOf(algebra::IndexRole::Inner);
  for (const Reduced &own : it->second) {
    for (auto [d, e] : llvm::enumerate(at))
      if ((own.dims & (uint64_t(1) << d)) &&
          (reader.atoms.indicesOf(e) & perElement))
        return false;
    bool isSame = reader.streams.empty() ||
                  llvm::equal(own.stream, reader.streams,
                              [&](const Size &size, unsigned s) {
                                return size == reader.extents[s];
                              });
    if (!isSame)
      return false;
  }
  return true;
}

/// Fills in what the reduction's term reads, with other reductions as symbols.
void Ties::read(Reduction &reduction, SizeTable &sizes) {
  Operation *self = reduction.op;
  FormulaPolicy policy;
  policy.isMaterialised = [&](Value v) { return materialised->contains(v); };
  policy.mayContract = [](Operation *) { return false; };
  policy.seesThrough = [&](Value v, const Subscripts &at, const Formula &f) {
    return shared->seesThrough(v, at, f);
  };
  uint64_t stream = 0;
  Formula *current = nullptr;
  policy.onReduction = [&](Operation *op, const Subscripts &at) {
    uint64_t set = 0;
    for (const IndexExpr &e : at)
      set |= current->atoms.indicesOf(e);
    reduction.reads.push_back({op, set, (set & stream) != 0});
  };
  Formula formula(sizes, policy);
  current = &formula;
  auto addLoop = [&](const Size &size, bool isStream) {
    unsigned number = formula.addIndex(
        "i", isStream ? algebra::IndexRole::Stream : algebra::IndexRole::Row,
        size);
    if (isStream) {
      stream |= uint64_t(1) << number;
      reduction.stream.push_back(size);
      reduction.streamLoops.push_back(number);
    } else {
      reduction.rowLoops |= uint64_t(1) << number;
    }
    return formula.index(number);
  };
  if (auto topk = dyn_cast<TopKOp>(self)) {
    Subscripts at;
    auto type = cast<RankedTensorType>(topk.getSource().getType());
    for (int64_t d = 0; d < type.getRank(); ++d)
      at.push_back(
          addLoop(sizes.of(topk.getSource(), d), d == int64_t(topk.getDim())));
    formula.element(topk.getSource(), at);
    return;
  }
  auto generic = cast<linalg::GenericOp>(self);
  Subscripts loops;
  for (auto [d, type] : llvm::enumerate(generic.getIteratorTypesArray()))
    loops.push_back(addLoop(formula.sizeOfLoop(generic, d),
                            type == utils::IteratorType::reduction));
  algebra::Reducer reducer;
  formula.term(generic, loops, reducer);
  for (const Read &read : formula.reads) {
    if (!read.operand)
      continue;
    Operand operand{read.operand, {}};
    for (const IndexExpr &e : read.subscripts) {
      std::optional<unsigned> loop = formula.atoms.asIndex(e);
      operand.loops.push_back(loop ? int(*loop) : -1);
    }
    reduction.operands.push_back(std::move(operand));
  }
}

const Ties::Reduction *Ties::find(Operation *op) const {
  auto it = numberOf.find(op);
  return it == numberOf.end() ? nullptr : &reductions[it->second];
}

bool Ties::tied(const Reduction &reader, const Occurrence &occurrence) const {
  if (occurrence.moves)
    return false;
  const Reduction *producer = find(occurrence.producer);
  return producer &&
         (producer->stream == reader.stream ||
          (reader.wider && producer->stream == reader.wider->sizes));
}

bool Ties::dependsOnReduction(Value tensor) const {
  SmallVector<Value> work{tensor};
  DenseSet<Value> seen;
  while (!work.empty()) {
    Value v = work.pop_back_val();
    Operation *op = v.getDefiningOp();
    if (!seen.insert(v).second || !op || materialised->contains(v))
      continue;
    if (find(op))
      return true;
    work.append(op->operand_begin(), op->operand_end());
  }
  return false;
}

/// Whether a contraction inside its readers is computed once for every value,
/// and not again for each row: it must move with all rows of every reader. The
/// rows of a joined product are those of the stages that it reads; its other
/// loops are carried.
bool Ties::isComputedOnce(Operation *contraction) const {
  auto it = readersOf.find(contraction);
  if (it == readersOf.end())
    return true;
  for (unsigned number : it->second) {
    const Reduction &reader = reductions[number];
    uint64_t rows = 0;
    bool anyTie = false;
    for (const Occurrence &o : reader.reads)
      if (tied(reader, o)) {
        rows |= o.loops;
        anyTie = true;
      }
    if (!anyTie)
      rows = reader.rowLoops;
    for (const Occurrence &o : reader.reads)
      if (o.producer == contraction && (rows & ~o.loops))
        return false;
  }
  return true;
}

/// Whether the formula of `tensor` holds the reduction.
bool Ties::reads(Value tensor, Operation *reduction) const {
  SmallVector<Value> work{tensor};
  DenseSet<Value> seen;
  while (!work.empty()) {
    Value v = work.pop_back_val();
    Operation *op = v.getDefiningOp();
    if (!seen.insert(v).second || !op || materialised->contains(v))
      continue;
    if (op == reduction)
      return true;
    if (!find(op) || mayContract(op))
      work.append(op->operand_begin(), op->operand_end());
  }
  return false;
}

/// The ops on the way from `producer` to the product, without either.
DenseSet<Operation *> Ties::between(linalg::GenericOp product,
                                    Operation *producer) const {
  // What the product is made of, as far as the producer can be behind it.
  SmallVector<Operation *> behind;
  DenseSet<Operation *> seen;
  SmallVector<Value> work;
  for (OpOperand *operand : product.getDpsInputOperands())
    work.push_back(operand->get());
  while (!work.empty()) {
    Operation *op = work.pop_back_val().getDefiningOp();
    if (!op || op == producer || op->isBeforeInBlock(producer) ||
        !seen.insert(op).second || find(op))
      continue;
    behind.push_back(op);
    work.append(op->operand_begin(), op->operand_end());
  }
  llvm::sort(behind,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  DenseSet<Operation *> result;
  for (Operation *op : behind)
    if (llvm::any_of(op->getOperands(), [&](Value v) {
          Operation *def = v.getDefiningOp();
          return def && (def == producer || result.contains(def));
        }))
      result.insert(op);
  return result;
}

/// Between `producer` and the product nothing that moves with the product's
/// stream is read by anybody else than products, reductions and the caller:
/// what is would have to be in memory anyway. A value of the row costs nothing.
bool Ties::isLastReader(linalg::GenericOp product, Operation *producer,
                        SizeTable &sizes) const {
  ArrayRef<Size> stream = find(product)->stream;
  auto isOfRow = [&](Operation *op) {
    return llvm::all_of(op->getResults(), [&](Value v) {
      auto type = dyn_cast<RankedTensorType>(v.getType());
      for (int64_t d = 0, e = type ? type.getRank() : 0; d < e; ++d)
        if (llvm::is_contained(stream, sizes.of(v, d)))
          return false;
      return true;
    });
  };
  // Another product joins too if it is tied to the same stage.
  auto staysOutside = [&](Operation *op) {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (!generic || !isProduct(generic))
      return false;
    const Reduction &other = *find(op);
    return llvm::none_of(other.reads, [&](const Occurrence &o) {
      return o.producer == producer && tied(other, o);
    });
  };
  DenseSet<Operation *> path = between(product, producer);
  for (Operation *op : path) {
    if (isOfRow(op))
      continue;
    for (Operation *user : op->getUsers())
      if (user != product.getOperation() && !path.contains(user) &&
          !isa<func::ReturnOp>(user) && (!find(user) || staysOutside(user)))
        return false;
  }
  return true;
}

/// Whether everything that reads `op`, through elementwise ops, are reductions
/// that keep it inside: no result and no library product.
bool Ties::onlyFeedsReductions(Operation *op) const {
  SmallVector<Operation *> work(op->getUsers());
  DenseSet<Operation *> seen;
  bool any = false;
  while (!work.empty()) {
    Operation *user = work.pop_back_val();
    if (!seen.insert(user).second)
      continue;
    if (isa<func::ReturnOp>(user))
      return false;
    if (auto generic = dyn_cast<linalg::GenericOp>(user))
      if (isLibraryProduct(generic))
        return false;
    if (find(user)) {
      any = true;
      continue;
    }
    for (Value v : user->getResults())
      if (materialised->contains(v))
        return false;
    work.append(user->user_begin(), user->user_end());
  }
  return any;
}

/// Producers that are tied to each other, directly or through others.
SmallVector<SmallVector<Operation *>>
Ties::cascadesOf(ArrayRef<Operation *> producers) const {
  llvm::EquivalenceClasses<Operation *> classes;
  SmallVector<Operation *> work(producers);
  DenseSet<Operation *> seen;
  while (!work.empty()) {
    Operation *op = work.pop_back_val();
    classes.insert(op);
    const Reduction *own = find(op);
    if (!seen.insert(op).second || !own)
      continue;
    for (const Occurrence &o : own->reads)
      if (tied(*own, o)) {
        classes.unionSets(op, o.producer);
        work.push_back(o.producer);
      }
  }
  SmallVector<SmallVector<Operation *>> result;
  SmallVector<Operation *> leaders;
  for (Operation *op : producers) {
    Operation *leader = classes.getLeaderValue(op);
    auto it = llvm::find(leaders, leader);
    if (it == leaders.end()) {
      leaders.push_back(leader);
      result.emplace_back();
      it = std::prev(leaders.end());
    }
    result[it - leaders.begin()].push_back(op);
  }
  return result;
}

/// A tensor behind the reader that holds all of `producers` and nothing that
/// the reader is tied to: of the fewest dimensions, and of these the last.
Value Ties::coverOf(const Reduction &reader,
                    ArrayRef<Operation *> producers) const {
  SmallVector<Operation *> tiedTo;
  for (const Occurrence &o : reader.reads)
    if (tied(reader, o))
      tiedTo.push_back(o.producer);
  SmallVector<Value> work(reader.op->getOperands());
  DenseSet<Value> seen;
  Value best;
  for (size_t i = 0; i < work.size(); ++i) { // breadth first: the last first
    Value v = work[i];
    Operation *op = v.getDefiningOp();
    auto type = dyn_cast<RankedTensorType>(v.getType());
    if (!seen.insert(v).second || !op || !type || materialised->contains(v) ||
        find(op) || llvm::any_of(producers, [&](Operation *producer) {
          return !reads(v, producer);
        }))
      continue;
    bool isPure = llvm::none_of(
        tiedTo, [&](Operation *other) { return reads(v, other); });
    if (isPure &&
        (!best ||
         type.getRank() < cast<RankedTensorType>(best.getType()).getRank()))
      best = v;
    work.append(op->operand_begin(), op->operand_end());
  }
  return best;
}

/// A sum inside an element of a stage, over what a result of the same stream is
/// at every place of it: as a stage with that index it would be tied.
void Ties::noteInside(const Reduction &inner, ArrayRef<Operation *> producers,
                      std::vector<Refusal> &notes) const {
  for (const Reduction &reader : reductions)
    for (const Occurrence &o : reader.reads)
      for (Operation *producer : producers)
        if (o.producer == inner.op && o.moves &&
            find(producer)->stream == reader.stream)
          notes.push_back(
              {"axis-change",
               "'" + sourceName(reader.op->getResult(0)) +
                   "' sums inside its elements what '" +
                   sourceName(producer->getResult(0)) +
                   "' is at each of their places; a sum for each place, added "
                   "up afterwards, would be one cascade with it",
               reader.op, Value()});
}

/// The last result of a cascade that each element of a stream has anew: as many
/// numbers as the stream is long would have to be known before it is read.
void Ties::noteSlices(const Reduction &reader, ArrayRef<Operation *> producers,
                      SizeTable &sizes, std::vector<Refusal> &notes) const {
  for (Operation *producer : producers) {
    const Reduction &own = *find(producer);
    if (llvm::none_of(own.reads,
                      [&](const Occurrence &o) { return tied(own, o); }))
      continue;
    notes.push_back({"axis-change",
                     "'" + sourceName(producer->getResult(0)) +
                         "', reduced over " + sizes.describe(own.stream) +
                         ", is another for every element of the stream " +
                         sizes.describe(reader.stream) + " of '" +
                         sourceName(reader.op->getResult(0)) +
                         "': a slice of it is complete before it is read",
                     reader.op, Value()});
  }
}

SmallVector<linalg::GenericOp> Ties::contractionsInside() const {
  SmallVector<linalg::GenericOp> all(joined);
  for (Operation *op : contractible)
    all.push_back(cast<linalg::GenericOp>(op));
  return all;
}

void Ties::setLibraryProducts(ArrayRef<linalg::GenericOp> products) {
  libraryProducts.assign(products.begin(), products.end());
  libraryOps.clear();
  for (linalg::GenericOp product : products)
    libraryOps.insert(product);
}

SmallVector<Operation *> refold::numberReductions(func::FuncOp function) {
  SmallVector<Operation *> result;
  for (Operation &op : function.getBody().front()) {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (isa<TopKOp>(op) || (generic && generic.getNumReductionLoops()))
      result.push_back(&op);
  }
  return result;
}

Ties Ties::find(func::FuncOp function, SizeTable &sizes,
                const llvm::SetVector<Value> &materialised,
                const Shared &shared, const PlanOptions &options,
                std::vector<Refusal> &notes) {
  Ties ties;
  bool fuse = options.fuse;
  ties.materialised = &materialised;
  ties.shared = &shared;
  for (Operation *op : numberReductions(function))
    ties.reductions.emplace_back().op = op;
  for (auto [number, r] : llvm::enumerate(ties.reductions))
    ties.numberOf[r.op] = number;
  for (auto [number, r] : llvm::enumerate(ties.reductions)) {
    ties.read(r, sizes);
    for (const Occurrence &o : r.reads) {
      SmallVector<unsigned> &readers = ties.readersOf[o.producer];
      if (readers.empty() || readers.back() != number)
        readers.push_back(number);
    }
  }
  for (Reduction &r : ties.reductions)
    if (fuse)
      ties.widen(r);
  SmallVector<linalg::GenericOp> candidates, inner;
  for (auto [number, r] : llvm::enumerate(ties.reductions)) {
    auto generic = dyn_cast<linalg::GenericOp>(r.op);
    bool isApart = options.apart.contains(number);
    if (isApart)
      ties.alone.append(r.op->result_begin(), r.op->result_end());
    if (!fuse)
      for (Value v : r.op->getResults())
        ties.forced.push_back(v);
    if (!generic || !isContraction(generic, materialised))
      continue;
    if (!isProduct(generic)) {
      inner.push_back(generic);
      continue;
    }
    bool joins = false;
    for (const Occurrence &o : r.reads) {
      auto producer = dyn_cast<linalg::GenericOp>(o.producer);
      if (!fuse || isApart || isWindowProduct(generic) || !ties.tied(r, o) ||
          (producer && isProduct(producer)))
        continue;
      joins = ties.isLastReader(generic, o.producer, sizes);
      if (!joins)
        notes.push_back({"escapes",
                         "what '" + sourceName(generic.getResult(0)) +
                             "' reads of '" +
                             sourceName(o.producer->getResult(0)) +
                             "' is also used elsewhere",
                         r.op, Value()});
      break;
    }
    if (joins)
      ties.joined.push_back(generic);
    else
      candidates.push_back(generic);
  }
  // Everything is the library's until a kernel proves to be its only reader.
  ties.setLibraryProducts(candidates);
  if (!fuse)
    return ties;
  llvm::copy_if(candidates, std::back_inserter(inner), [](auto candidate) {
    return !isWindowProduct(candidate); // too much work to be a part of others
  });
  // One that reads other reductions ends a cascade of its own.
  auto isTiedItself = [&](linalg::GenericOp generic) {
    const Reduction &own = *ties.find(generic);
    return llvm::any_of(own.reads,
                        [&](const Occurrence &o) { return ties.tied(own, o); });
  };
  for (linalg::GenericOp generic : inner)
    if (!materialised.contains(generic.getResult(0)) &&
        !llvm::is_contained(ties.alone, generic.getResult(0)) &&
        !isTiedItself(generic) && ties.onlyFeedsReductions(generic) &&
        ties.isComputedOnce(generic)) {
      ties.contractible.push_back(generic);
      ties.contractibleOps.insert(generic);
    }
  llvm::erase_if(candidates,
                 [&](linalg::GenericOp op) { return ties.mayContract(op); });
  ties.setLibraryProducts(candidates);
  // A reduction that moves with its reader's stream and is no contraction is
  // computed first: the least that holds it and what it is tied to, or itself.
  // What a library product reads is in memory anyway.
  for (Reduction &r : ties.reductions) {
    auto generic = dyn_cast<linalg::GenericOp>(r.op);
    auto isInMemory = [&](Value v) { return materialised.contains(v); };
    if (generic &&
        (ties.isLibraryProduct(generic) || isSumOfRanks(generic, isInMemory)))
      continue;
    SmallVector<Operation *> moving;
    for (const Occurrence &o : r.reads) {
      auto producer = dyn_cast<linalg::GenericOp>(o.producer);
      if (!o.moves || ties.mayContract(o.producer) ||
          (producer && ties.isLibraryProduct(producer)))
        continue;
      if (!llvm::is_contained(moving, o.producer))
        moving.push_back(o.producer);
    }
    if (generic && isContraction(generic, materialised))
      ties.noteInside(r, moving, notes);
    ties.noteSlices(r, moving, sizes, notes);
    for (ArrayRef<Operation *> cascade : ties.cascadesOf(moving)) {
      if (Value cover = ties.coverOf(r, cascade)) {
        ties.forced.push_back(cover);
        continue;
      }
      for (Operation *producer : cascade)
        ties.forced.append(producer->result_begin(), producer->result_end());
    }
  }
  return ties;
}
