// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which cascades are rows, and what of them moves along a row.
#include "RowKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

InFlightDiagnostic cuda::refuse(Operation *op, Reason reason) {
  return op->emitError() << "[" << StringRef(keyOf(reason)) << "] ";
}

std::string RowKernel::nameFor(StringRef wanted) {
  std::string base;
  for (char c : wanted)
    base += llvm::isAlnum(c) ? c : '_';
  if (base.empty() || llvm::isDigit(base[0]))
    base = "a" + base;
  std::string name = base;
  for (unsigned i = 2; !taken.insert(name).second; ++i)
    name = base + "_" + std::to_string(i);
  return name;
}

std::string RowKernel::programName(StringRef wanted) {
  std::string base;
  bool isNext = false;
  for (char c : wanted) {
    if (!llvm::isAlnum(c)) {
      isNext = !base.empty();
      continue;
    }
    base += isNext ? llvm::toUpper(c) : c;
    isNext = false;
  }
  if (base.empty() || llvm::isDigit(base[0]))
    base = "a" + base;
  std::string name = base;
  for (unsigned i = 2; !taken.insert(name).second; ++i)
    name = base + std::to_string(i);
  return name;
}

/// What the text says for itself without an underscore, and words of C++.
static constexpr llvm::StringLiteral kTaken =
    "F8Roles F8Units Left Made OfColumn OfRow Result U "
    "Matrix RowUnits SumRows U Units kAtOnce kCopied own "
    "Access Along Between Next between down kCount kIsKept kIsPermuted "
    "kLargePivot kSteps kept parts "
    "Panels arrive consumer kConsumers key limit parity settle "
    "take leave kIsPart packed index olds quad kPlaces kQuads Own "
    "InRing Mailbox exchange mailbox places use kAhead kChunkBytes kIsRing "
    "kTableBytes Chunk Column ColumnOf Columns Combine Extremes InLanes "
    "InParts InRegisters InShared Copy Divisor "
    "EOF Fiber "
    "Left "
    "List Machine Mode NULL "
    "Nowhere Number Place Policy Pragma Range Reuse Right Shared SharedElement "
    "SharedMemory "
    "Slot Split States Stored Stream T Tile To Values Vector Warp Word "
    "abort address all "
    "alignas alignof and approximate arrived asm assert assign at auto "
    "barriers base before begin bf16 bitand bitor bits block blockDim "
    "blockEpoch blockIdx blocks body bool break bring by byte bytes c case "
    "catch char checkGlobal chunk chunkAt chunks class clear clusterIdx "
    "column columns combine comesAfter compl concept const consteval "
    "constexpr constinit continue copies copy copysign cosf count covered "
    "current data decltype default define delete describeDeadlock divide do "
    "double drawRandom e each element elementBytes elements else empty "
    "emulator "
    "end endif enterFiber enum errno error exp2 expf explicit expm1f export "
    "extern f f16 f8e4m3 f8e5m2 fabs fabsf factors false fetch fiber fibers "
    "findUnwritten "
    "first "
    "flag float fma fmaxf fold fold1 fold2 fold3 for friend from function "
    "generation get goto gridDim group half held high i if ifdef ifndef "
    "include "
    "infinity inline inside int inverse isDense isDone isForced isHeld "
    "isResult isSameWarp isTransposed isUnderWay isWrite isWritten isfinite "
    "kBlockRows kBlocks kBytes kChunk kChunks kColumns kColumnsOf kDepth "
    "kElementBytes kHeld kIsShared kLanesLongest kLongest "
    "kPlace "
    "kept kAlone kHalves kKept kLeft kLefts kModes kOwn kPanels kPart kRest "
    "panel "
    "kParts "
    "kPasses kPerWord kPolicy kRowBytes kRows "
    "kRoom kRowsOf kSharedBytes kStackBytes kStep kThreads kTiles kValue "
    "kVector "
    "Narrow NextNarrow RightNarrow ValuesNarrow further kInVector "
    "kTilePlaces slot "
    "kVectors kWaitingBits kWaits kWarps kWidth kind land lane lanes larger "
    "last launch "
    "launchBytes left live load loadMatrices log1pf logf long low machine map "
    "maps "
    "mask matrix max meetWarp memcpy memory memset merge merge1 merge2 merge3 "
    "missing mode move multiplyMatrices mutable name namespace narrow new "
    "newSite next noexcept noreturn not now nullptr offsetof old one operator "
    "or order out pack part parts pass place private product products progress "
    "protected public quotient random range ranges read readShared reads "
    "reciprocal refold register remainder report requires resize rest return "
    "reversesBlocks "
    "right right0 right1 rintf root round row rows runBlock s saturate save "
    "saved "
    "scale scaled scheduler seed set shared sharedArray sharedBytes "
    "sharedElement short shuffle shufflesThreads signed sinf site sites size "
    "sizeof slot slots smaller source sqrt stack stackPointer startFibers "
    "starved starvesWarps states static stcs std steps store strcmp string "
    "strlen struct sum sums swap sweep switch syncthreads template text there "
    "this "
    "thread "
    "threadIdx threads throw tickets tile to top true try turn type typedef "
    "typeid "
    "typename uint2 uint4 ulps undef union unsigned unused using v value "
    "values vector vectors virtual void volatile waiting waitsFor warp "
    "warpEpoch warpSize warps what while which within whole word words "
    "workspace write "
    "writeShared "
    "written xff xffffffffu xor yield ";

void cuda::chooseNames(RowKernel &kernel) {
  CascadeOp op = kernel.plan->cascade;
  SmallVector<StringRef> words;
  kTaken.split(words, ' ', -1, /*KeepEmpty=*/false);
  for (StringRef word : words)
    kernel.taken.insert(word);
  for (Attribute name : op.getArgNames())
    kernel.operandNames.push_back(
        kernel.programName(cast<StringAttr>(name).getValue()));
  for (unsigned i = 0; i < op.numIndices(); ++i)
    kernel.indexNames.push_back(kernel.programName(op.indexName(i)));
  for (StatePlan &s : kernel.plan->states)
    kernel.stateNames.push_back(
        kernel.nameFor(stringifyReducer(s.op.getReducer()).str() + "_" +
                       std::to_string(s.number)));
}

static bool isRank(Plan &plan, unsigned index) {
  return llvm::any_of(plan.states, [&](StatePlan &s) {
    return s.op.isOrdered() && rankOf(s) == index;
  });
}

/// Whether only what is written when a row is done has an index: a few results
/// beside each other.
static bool isOfResults(Plan &plan, unsigned index) {
  constexpr int64_t kMost = 32;
  int64_t extent = plan.extent(index);
  if (plan.states.empty() || ShapedType::isDynamic(extent) || extent < 1 ||
      extent > kMost)
    return false;
  auto hasIt = [&](Node *root) {
    NodeSet all;
    collect(root, all);
    return llvm::any_of(all, [&](Node *n) { return n->has(index); });
  };
  return llvm::none_of(plan.states,
                       [&](StatePlan &s) {
                         return (s.set & bit(index)) || hasIt(s.term);
                       }) &&
         llvm::none_of(plan.sweepWrites,
                       [&](WritePlan &w) {
                         return (w.set & bit(index)) || hasIt(w.value);
                       }) &&
         // Two indices beside a row are walked by threads with rows of their
         // own.
         llvm::none_of(plan.finishWrites, [&](WritePlan &w) {
           Set beside = w.set & ~plan.rows & ~plan.streams;
           return (w.set & bit(index)) && llvm::popcount(beside) > 1;
         });
}

/// The index along a row. Without a stream the last row index is it.
static LogicalResult chooseIndices(RowKernel &kernel) {
  CascadeOp op = kernel.plan->cascade;
  for (unsigned i = 0; i < op.numIndices(); ++i) {
    switch (op.getRoles()[i]) {
    case CascadeOp::Row:
      kernel.rows.push_back(i);
      break;
    case CascadeOp::Stream:
      if (kernel.stream >= 0)
        kernel.outer.push_back(kernel.stream);
      kernel.stream = i;
      break;
    default:
      if (isRank(*kernel.plan, i) || isOfResults(*kernel.plan, i)) {
        kernel.ranks.push_back(i);
        break;
      }
      kernel.rows.push_back(i);
      kernel.isColumns = true;
    }
  }
  if (kernel.stream < 0 && !kernel.rows.empty())
    kernel.stream = kernel.rows.pop_back_val();
  return success();
}

/// Threads have elements from all over the row: what law `order-reach` keeps
/// holds for segments of neighbours alone.
static LogicalResult checkOrder(RowKernel &kernel) {
  for (StatePlan &s : kernel.plan->states)
    if (auto law = s.op.getLaw(); law && *law == "order-reach")
      return refuse(s.op, Reason::CudaNotRows)
             << "found sums on one side of the place of an extreme, which are "
                "merged with neighbours only; expected any order";
  return success();
}

LogicalResult cuda::checkTypes(RowKernel &kernel) {
  CascadeOp op = kernel.plan->cascade;
  if (failed(checkOrder(kernel)))
    return failure();
  auto check = [&](Operation *at, Type type) -> LogicalResult {
    if (!valueType(type).empty())
      return success();
    return refuse(at, Reason::CudaUnsupportedOp)
           << "found a value of type " << type
           << "; expected f32, f16, bf16, f8 or integers";
  };
  for (Value operand : op->getOperands()) {
    auto memref = dyn_cast<MemRefType>(operand.getType());
    if (failed(check(op, memref ? memref.getElementType() : operand.getType())))
      return failure();
  }
  WalkResult walked = op.getBody().walk([&](Operation *inner) {
    for (Type type : inner->getResultTypes())
      if (!isa<ArgType>(type) && failed(check(inner, type)))
        return WalkResult::interrupt();
    bool isScalar = isa<ReadOp, WriteOp, StateOp, ContractOp, ExtentOp, YieldOp,
                        arith::ConstantOp>(inner);
    if (isScalar || !templateOf(inner, false).empty())
      return WalkResult::advance();
    refuse(inner, Reason::CudaUnsupportedOp)
        << "found '" << inner->getName()
        << "' on these types, which has no form in CUDA C++ here";
    return WalkResult::interrupt();
  });
  return failure(walked.wasInterrupted());
}

/// A list in registers: its places are known, its keys are f32, and what
/// its elements are does not depend on what was read before.
static LogicalResult checkList(RowKernel &kernel, StatePlan &s) {
  constexpr int64_t kMostPlaces = 32;
  int64_t places = kernel.plan->extent(rankOf(s));
  if (ShapedType::isDynamic(places) || places > kMostPlaces)
    return refuse(s.op, Reason::CudaNotRows)
           << "found a list of "
           << (ShapedType::isDynamic(places) ? "an unknown number of"
                                             : llvm::Twine(places).str())
           << " elements; expected at most " << kMostPlaces;
  if (!s.type().isF32())
    return refuse(s.op, Reason::CudaNotRows)
           << "found a list by keys of type " << s.type() << "; expected f32";
  NodeSet all;
  collect(s.term, all);
  for (Node *n : s.payloads)
    collect(n, all);
  for (Node *n : all)
    if (n->kind == Node::Old || n->kind == Node::New)
      return refuse(s.op, Reason::CudaNotRows)
             << "found a list of elements relative to what is read; expected "
                "elements of the row";
  return success();
}

LogicalResult cuda::checkRowStates(RowKernel &kernel) {
  Plan &plan = *kernel.plan;
  Set places = 0;
  for (unsigned rank : kernel.ranks)
    if (plan.extent(rank) != 1)
      places |= bit(rank);
  auto refusePlaces = [&] {
    return refuse(plan.cascade, Reason::CudaNotRows)
           << "found the places of a list beside an index along the row; "
              "expected results that have one of them";
  };
  for (StatePlan &s : plan.states) {
    if (s.op.isOrdered() && !kernel.outer.empty())
      return refuse(s.op, Reason::CudaNotRows)
             << "found a list over several indices at once; expected one";
    if (s.op.isOrdered() && failed(checkList(kernel, s)))
      return failure();
    if (!s.op.isOrdered() && (s.set & places))
      return refusePlaces();
  }
  for (auto *writes : {&plan.finishWrites, &plan.sweepWrites})
    for (WritePlan &w : *writes) {
      bool isAlong = (w.set & kernel.streamSet()) != 0;
      if (llvm::popcount(w.set & places) + isAlong > 1)
        return refusePlaces();
    }
  return success();
}

int64_t cuda::bytesOf(Type type) {
  return type.isIndex() ? 8 : std::max(type.getIntOrFloatBitWidth() / 8, 1u);
}

/// The last subscript is the stream index, and no other one has it.
static bool isAlongRow(AffineMap map, ArrayRef<Node *> subscripts, int stream) {
  for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
    bool isLast = dim + 1 == map.getNumResults();
    if (isLast) {
      auto place = dyn_cast<AffineDimExpr>(expr);
      if (!place || subscripts[place.getPosition()]->kind != Node::Index ||
          int(subscripts[place.getPosition()]->index) != stream)
        return false;
      continue;
    }
    for (auto [k, n] : llvm::enumerate(subscripts))
      if (expr.isFunctionOfDim(k) && n->has(stream))
        return false;
  }
  return map.getNumResults() > 0;
}

bool cuda::isDense(Type type) {
  auto memref = cast<MemRefType>(type);
  SmallVector<int64_t> strides;
  int64_t offset = 0;
  return memref.getRank() == 0 ||
         (succeeded(getStridesAndOffset(memref, strides, offset)) &&
          strides.back() == 1);
}

static unsigned targetOf(Plan &plan, WriteOp op) {
  return cast<BlockArgument>(op.getTarget()).getArgNumber() -
         plan.cascade.numIndices();
}

/// Whether a result that moves with the stream is written across its last
/// dimension.
static bool isWrittenAcross(RowKernel &kernel, WritePlan &w) {
  Plan &plan = *kernel.plan;
  if (kernel.stream < 0 || !(w.set & bit(kernel.stream)))
    return false;
  SmallVector<Value> indices(w.op.getIndices());
  auto last = dyn_cast<AffineDimExpr>(w.op.getMap().getResults().back());
  auto arg = last ? dyn_cast<BlockArgument>(indices[last.getPosition()])
                  : BlockArgument();
  return !arg || int(arg.getArgNumber()) != kernel.stream ||
         !isDense(plan.cascade->getOperand(targetOf(plan, w.op)).getType());
}

/// Whether an array that moves with the stream is read across its last
/// dimension.
static bool isReadAcross(RowKernel &kernel, Node *n) {
  if (n->kind != Node::Read || !kernel.hasStream(n))
    return false;
  auto read = cast<ReadOp>(n->op);
  CascadeOp op = kernel.plan->cascade;
  unsigned operand =
      cast<BlockArgument>(read.getSource()).getArgNumber() - op.numIndices();
  if (kernel.plan->partOfGroup(n, kernel.stream))
    return false;
  return !isAlongRow(read.getMap(), n->in, kernel.stream) ||
         !isDense(op->getOperand(operand).getType());
}

/// Whether elements that lie beside each other belong to several rows.
static bool isDenseAcrossRows(RowKernel &kernel, Node *n) {
  if (n->kind != Node::Read || !kernel.hasStream(n))
    return false;
  auto read = cast<ReadOp>(n->op);
  if (read.getMap().getNumResults() == 0)
    return false;
  auto last = dyn_cast<AffineDimExpr>(read.getMap().getResults().back());
  return last && n->in[last.getPosition()]->kind == Node::Index &&
         llvm::is_contained(kernel.rows, n->in[last.getPosition()]->index);
}

int64_t RowRead::bytes() const { return bytesOf(node->type) * group.size; }

/// Whether two reads of groups differ in their places there only.
static bool isSameGroup(Node *x, Node *y, unsigned groupDims) {
  auto a = cast<ReadOp>(x->op), b = cast<ReadOp>(y->op);
  if (a.getSource() != b.getSource())
    return false;
  // Each map numbers its own operands.
  auto isSame = [&](AffineExpr e, AffineExpr f) {
    auto d = dyn_cast<AffineDimExpr>(e), g = dyn_cast<AffineDimExpr>(f);
    return d && g ? x->in[d.getPosition()] == y->in[g.getPosition()]
                  : isa<AffineConstantExpr>(e) && e == f;
  };
  return llvm::all_of(
      llvm::zip(a.getMap().getResults().drop_back(groupDims),
                b.getMap().getResults().drop_back(groupDims)),
      [&](auto pair) { return isSame(std::get<0>(pair), std::get<1>(pair)); });
}

static void addReads(RowKernel &kernel, const NodeSet &all, bool isFolded) {
  CascadeOp op = kernel.plan->cascade;
  for (Node *n : all) {
    if (n->kind != Node::Read || !kernel.hasStream(n))
      continue;
    auto read = cast<ReadOp>(n->op);
    unsigned operand =
        cast<BlockArgument>(read.getSource()).getArgNumber() - op.numIndices();
    auto group = kernel.plan->partOfGroup(n, kernel.stream);
    if (group) {
      auto leader = llvm::find_if(kernel.reads, [&](auto &other) {
        return other.second.group.dims &&
               isSameGroup(other.first, n, group->dims);
      });
      Node *first = leader == kernel.reads.end() ? n : leader->first;
      kernel.parts[n] = {first, group->place};
      if (first != n) {
        leader->second.isFolded |= isFolded;
        continue;
      }
    }
    auto [it, isNew] = kernel.reads.try_emplace(n);
    RowRead &entry = it->second;
    entry.isFolded |= isFolded;
    if (!isNew)
      continue;
    entry.node = n;
    if (group)
      entry.group = *group;
    std::string wanted = kernel.operandNames[operand];
    for (auto &other : kernel.reads)
      if (other.second.name == wanted)
        wanted = kernel.nameFor(wanted);
    entry.name = wanted;
    entry.row = kernel.nameFor(wanted + "_row");
    entry.element = kernel.nameFor(wanted + "_e");
    entry.isShared = !(n->set & ~bit(kernel.stream));
    kernel.narrowest = std::min(kernel.narrowest, bytesOf(n->type));
  }
}

/// A thread has a row where that is what lies beside each other; all results
/// then have all of its indices.
static LogicalResult chooseColumns(RowKernel &kernel, const NodeSet &all) {
  Plan &plan = *kernel.plan;
  bool isOne = kernel.outer.empty();
  for (Node *n : all)
    kernel.isColumns |=
        isOne ? isReadAcross(kernel, n) : isDenseAcrossRows(kernel, n);
  for (auto *writes : {&plan.finishWrites, &plan.sweepWrites})
    for (WritePlan &w : *writes)
      kernel.isColumns |= isOne && isWrittenAcross(kernel, w);
  if (kernel.isColumns && plan.states.empty() && kernel.stream >= 0) {
    kernel.rows.push_back(kernel.stream);
    kernel.stream = walk::kNone;
  }
  if (!kernel.isColumns)
    return success();
  for (auto *writes : {&plan.finishWrites, &plan.sweepWrites})
    for (WritePlan &w : *writes)
      for (unsigned i : kernel.rows)
        if (!(w.set & bit(i)))
          return refuse(plan.cascade, Reason::CudaNotRows)
                 << "found '" << kernel.operandNames[targetOf(plan, w.op)]
                 << "' without the index '" << plan.cascade.indexName(i)
                 << "', which other results have; expected it in all";
  return success();
}

void cuda::collectRow(const RowKernel &kernel, Node *n, NodeSet &out) {
  if (out.contains(n))
    return;
  if (!kernel.isProduct(n))
    for (Node *i : n->in)
      collectRow(kernel, i, out);
  out.insert(n);
}

LogicalResult cuda::findReads(RowKernel &kernel) {
  Plan &plan = *kernel.plan;
  NodeSet folded, written;
  for (StatePlan &s : plan.states)
    collectRow(kernel, s.term, folded);
  for (auto *writes : {&plan.finishWrites, &plan.sweepWrites})
    for (WritePlan &w : *writes)
      collectRow(kernel, w.value, written);
  NodeSet all(folded.begin(), folded.end());
  all.insert(written.begin(), written.end());
  if (failed(chooseColumns(kernel, all)))
    return failure();
  if (kernel.isByPlaces())
    return success();
  if (kernel.product) {
    RowRead &entry = kernel.reads[kernel.product->sum];
    entry.node = kernel.product->sum;
    entry.name = kernel.nameFor("product");
    entry.element = kernel.nameFor("product_e");
    entry.isFolded = true;
  }
  addReads(kernel, folded, true);
  addReads(kernel, written, false);
  for (auto *writes : {&plan.finishWrites, &plan.sweepWrites})
    for (WritePlan &w : *writes)
      if (kernel.stream >= 0 && (w.set & bit(kernel.stream)))
        kernel.narrowest = std::min(kernel.narrowest, bytesOf(w.value->type));
  bool hasFloats = false, isWide = false;
  for (auto &[node, read] : kernel.reads) {
    hasFloats |= isa<FloatType>(node->type);
    isWide |= node->type.isF32() && !kernel.isProduct(node);
  }
  for (auto *writes : {&plan.finishWrites, &plan.sweepWrites})
    for (WritePlan &w : *writes)
      isWide |= w.value->type.isF32();
  kernel.isNarrow = hasFloats && !isWide;
  return success();
}

/// Sums of products of 8-bit floats that have an index beside those of rows are
/// matrix products, which matrix units take: a thread would have one of them.
/// Products of as many matrices as there are batches have no such kernel.
static LogicalResult checkF8Products(RowKernel &kernel) {
  auto isByte = [](Node *n) {
    return n->kind == Node::Elem && isa<arith::ExtFOp>(n->op) &&
           n->in[0]->type.getIntOrFloatBitWidth() == 8;
  };
  for (StatePlan &s : kernel.plan->states) {
    Set beside = s.set & ~kernel.plan->rows & ~kernel.plan->streams;
    bool isBatch = s.term->kind == Node::Elem && s.term->in.size() == 2 &&
                   (s.term->in[0]->set & s.term->in[1]->set & s.set);
    bool isProduct = beside && !isBatch && s.op.getReducer() == Reducer::Add &&
                     s.term->kind == Node::Elem &&
                     isa<arith::MulFOp>(s.term->op) &&
                     llvm::all_of(s.term->in, isByte);
    if (isProduct)
      return refuse(s.op, Reason::CudaNotRows)
             << "found a matrix product of 8-bit floats; expected one that is "
                "a step of its own, for matrix units";
  }
  return success();
}

FailureOr<RowKernel> cuda::findRows(Plan &plan) {
  RowKernel kernel;
  kernel.plan = &plan;
  if (failed(checkF8Products(kernel)) || failed(chooseIndices(kernel)) ||
      failed(checkRowStates(kernel)) || failed(checkTypes(kernel)))
    return failure();
  chooseNames(kernel);
  if (failed(findReads(kernel)))
    return failure();
  return kernel;
}
