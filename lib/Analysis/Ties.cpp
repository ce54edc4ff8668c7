// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Ties.h"

#include "refold/Analysis/Kernels.h"
#include "refold/Dialect/Refold/IR/Refold.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace refold;

/// The operand of a body that `value` is, through an exact extension.
static BlockArgument bodyOperand(Value value) {
  if (Operation *op = value.getDefiningOp();
      op && isa<arith::ExtFOp, arith::ExtSIOp>(op))
    value = op->getOperand(0);
  return dyn_cast<BlockArgument>(value);
}

bool refold::isProduct(linalg::GenericOp generic) {
  if (generic.getNumResults() != 1 || generic.getNumDpsInputs() != 2 ||
      !generic.getNumReductionLoops())
    return false;
  for (AffineMap map : generic.getIndexingMapsArray())
    if (!map.isProjectedPermutation())
      return false;
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
  if (!a || !b || a == b)
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

/// Fills in what the reduction's term reads, with other reductions as symbols.
void Ties::read(Reduction &reduction, SizeTable &sizes) {
  Operation *self = reduction.op;
  FormulaPolicy policy;
  policy.isMaterialised = [&](Value v) { return materialised->contains(v); };
  policy.mayContract = [](Operation *) { return false; };
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
}

const Ties::Reduction *Ties::find(Operation *op) const {
  auto it = numberOf.find(op);
  return it == numberOf.end() ? nullptr : &reductions[it->second];
}

bool Ties::tied(const Reduction &reader, const Occurrence &occurrence) const {
  if (occurrence.moves)
    return false;
  const Reduction *producer = find(occurrence.producer);
  return producer && producer->stream == reader.stream;
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

/// Between `producer` and the product nothing is read by anybody else than the
/// product, reductions and the caller; what is would have to be in memory
/// anyway.
bool Ties::isLastReader(linalg::GenericOp product, Operation *producer) const {
  DenseSet<Operation *> path = between(product, producer);
  for (Operation *op : path)
    for (Operation *user : op->getUsers())
      if (user != product.getOperation() && !path.contains(user) &&
          !isa<func::ReturnOp>(user) &&
          (!find(user) || (isa<linalg::GenericOp>(user) &&
                           isProduct(cast<linalg::GenericOp>(user)))))
        return false;
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

Ties Ties::find(func::FuncOp function, SizeTable &sizes,
                const llvm::SetVector<Value> &materialised, bool fuse,
                std::vector<Refusal> &notes) {
  Ties ties;
  ties.materialised = &materialised;
  for (Operation &op : function.getBody().front()) {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (isa<TopKOp>(op) || (generic && generic.getNumReductionLoops()))
      ties.reductions.push_back({&op, {}, {}});
  }
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
  SmallVector<linalg::GenericOp> candidates, inner;
  for (Reduction &r : ties.reductions) {
    auto generic = dyn_cast<linalg::GenericOp>(r.op);
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
      if (!fuse || !ties.tied(r, o) || (producer && isProduct(producer)))
        continue;
      joins = ties.isLastReader(generic, o.producer);
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
  inner.append(candidates);
  for (linalg::GenericOp generic : inner)
    if (!materialised.contains(generic.getResult(0)) &&
        ties.onlyFeedsReductions(generic) && ties.isComputedOnce(generic)) {
      ties.contractible.push_back(generic);
      ties.contractibleOps.insert(generic);
    }
  llvm::erase_if(candidates,
                 [&](linalg::GenericOp op) { return ties.mayContract(op); });
  ties.setLibraryProducts(candidates);
  // A reduction that moves with its reader's stream and is no contraction: the
  // operand through which it is read is computed first. Not the reduction
  // itself: it may be one of a cascade that ends in that operand (a norm before
  // a mean). But where the reader is tied to another reduction, its operand
  // holds that one too, and would end their cascade: the reduction itself then.
  // What a library product reads is in memory anyway.
  for (Reduction &r : ties.reductions) {
    auto generic = dyn_cast<linalg::GenericOp>(r.op);
    if (generic && ties.isLibraryProduct(generic))
      continue;
    bool isTied = llvm::any_of(
        r.reads, [&](const Occurrence &o) { return ties.tied(r, o); });
    for (const Occurrence &o : r.reads) {
      auto producer = dyn_cast<linalg::GenericOp>(o.producer);
      if (!o.moves || ties.mayContract(o.producer) ||
          (producer && ties.isLibraryProduct(producer)))
        continue;
      if (isTied) {
        ties.forced.append(o.producer->result_begin(),
                           o.producer->result_end());
        continue;
      }
      for (Value operand : r.op->getOperands())
        if (ties.reads(operand, o.producer))
          ties.forced.push_back(operand);
    }
  }
  return ties;
}
