// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A cascade as its states say: absorbed by segments, each relative to a pivot
// of its own, merged in a random order, moved to the true pivots at the end.
#include "CascadeRow.h"
#include "refold/Support/Error.h"
#include <cmath>

using namespace mlir;
using namespace refold;
using namespace refold::reference;

namespace {

/// The states of one pass over one range, relative to `pivots`.
struct Segment {
  StreamRange range;
  DenseMap<Value, Field> pivots;
  DenseMap<Operation *, StateFields> states;
};

/// One row of the cascade.
class RowStreamer {
public:
  RowStreamer(CascadeRow &row, const Splits &splits, std::mt19937_64 &random)
      : row(row), splits(splits), random(random) {
    whole.range = row.wholeStream();
  }
  llvm::Error run();

private:
  llvm::Error runPass(unsigned pass);
  SmallVector<StreamRange> cut();
  llvm::Expected<Segment> absorb(StreamRange range);
  llvm::Expected<Segment> merge(const Segment &a, const Segment &b);
  llvm::Expected<Field> move(StateOp state, const Segment &segment,
                             const DenseMap<Value, Field> &to);
  llvm::Error finish(const Segment &segment);
  llvm::Error choosePivots(Segment &segment);
  llvm::Expected<double> pivotOver(Value pivot, StreamRange range);
  double perturb(double own, double other);
  double uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  }

  CascadeRow &row;
  const Splits &splits;
  std::mt19937_64 &random;
  unsigned pass = 0;
  SmallVector<StateOp> states; ///< of the pass, in the order of the body
  Scope whole; ///< final values of the row, over the whole stream
};

} // namespace

static bool isNeverComputed(StateOp) { return false; }

/// A transport that asks whether its pivot moved starts anew then: nothing
/// leads back from a pivot that is not the segment's own.
static bool comparesPivots(StateOp state) {
  if (state.getTransport().empty())
    return false;
  Block &block = state.getTransport().front();
  bool result = false;
  block.walk([&](arith::CmpFOp compare) {
    result |= mlir::isa<BlockArgument>(compare.getLhs()) &&
              mlir::isa<BlockArgument>(compare.getRhs()) &&
              compare.getLhs() != compare.getRhs();
  });
  return result;
}

/// Random cuts of the whole stream; equal ones make empty segments.
SmallVector<StreamRange> RowStreamer::cut() {
  int64_t n = whole.range.end;
  SmallVector<int64_t> cuts = {0, n};
  for (unsigned s = 1; s < splits.segments; ++s)
    cuts.push_back(std::uniform_int_distribution<int64_t>(0, n)(random));
  llvm::sort(cuts);
  SmallVector<StreamRange> ranges;
  for (size_t c = 0; c + 1 < cuts.size(); ++c)
    ranges.push_back({cuts[c], cuts[c + 1]});
  return ranges;
}

/// The value of a pivot if the stream were `range`; states of earlier passes
/// keep their final values.
llvm::Expected<double> RowStreamer::pivotOver(Value pivot, StreamRange range) {
  Scope scope;
  scope.range = range;
  for (StateOp state : row.op().bodyBlock()->getOps<StateOp>())
    if (row.indexSets().passOf(state) < pass)
      for (Value result : state.getResults())
        scope.values[result] = whole.values[result];
  if (llvm::Error error =
          row.ensure(pivot, scope, [](StateOp) { return true; }))
    return std::move(error);
  return scope.values[pivot].cells.data()->f;
}

/// Another pivot near a segment's own: far enough that a wrong transport shows,
/// near enough that no exponential leaves the range of double, and not beyond
/// the size of the data, whose digits the sums would lose. The sign is kept,
/// since the pivot of a scaling is never 0.
double RowStreamer::perturb(double own, double other) {
  constexpr double kFar = 20.0;
  double size = std::abs(own);
  if (std::isfinite(other))
    size = std::max(size, std::abs(other));
  double shift = uniform(-0.2, 0.2) * size;
  if (std::isfinite(other))
    shift += uniform(-0.5, 1.5) * (other - own);
  double moved = own + std::clamp(shift, -kFar, kFar);
  if (!std::isfinite(own) || !std::isfinite(moved))
    return own;
  return own != 0.0 && moved * own <= 0.0 ? own * uniform(0.5, 2.0) : moved;
}

llvm::Error RowStreamer::choosePivots(Segment &segment) {
  llvm::SmallDenseSet<Value> fixed;
  for (StateOp state : states)
    if (comparesPivots(state))
      fixed.insert(state.getPivots().begin(), state.getPivots().end());
  for (StateOp state : states)
    for (Value pivot : state.getPivots()) {
      if (segment.pivots.count(pivot))
        continue;
      auto own = pivotOver(pivot, segment.range);
      if (!own)
        return own.takeError();
      double value = *own;
      if (splits.randomPivots && !segment.range.isEmpty() &&
          !fixed.contains(pivot)) {
        int64_t n = whole.range.end;
        int64_t at = std::uniform_int_distribution<int64_t>(0, n - 1)(random);
        auto other = pivotOver(pivot, {at, std::min(n, at + 3)});
        if (!other)
          return other.takeError();
        value = perturb(value, *other);
      }
      segment.pivots[pivot] = {{}, RefTensor::scalar(value)};
    }
  return llvm::Error::success();
}

llvm::Expected<Segment> RowStreamer::absorb(StreamRange range) {
  Segment segment;
  segment.range = range;
  if (llvm::Error error = choosePivots(segment))
    return std::move(error);
  // States with the same pivots see the same elements.
  std::map<std::vector<void *>, Scope> scopes;
  for (StateOp state : states) {
    std::vector<void *> key;
    for (Value pivot : state.getPivots())
      key.push_back(pivot.getAsOpaquePointer());
    auto [known, isNew] = scopes.try_emplace(key);
    Scope &scope = known->second;
    if (isNew) {
      scope.range = range;
      for (auto &[value, field] : whole.values)
        if (value.getDefiningOp<StateOp>())
          scope.values[value] = field;
      for (Value pivot : state.getPivots())
        scope.values[pivot] = segment.pivots[pivot];
    }
    auto fields = row.reduce(state, scope, isNeverComputed);
    if (!fields)
      return fields.takeError();
    segment.states[state] = *fields;
  }
  return segment;
}

/// The state of a segment relative to the pivots `to`.
llvm::Expected<Field> RowStreamer::move(StateOp state, const Segment &segment,
                                        const DenseMap<Value, Field> &to) {
  const Field &self = segment.states.find(state)->second[0];
  SmallVector<Field> old, target, with;
  for (Value pivot : state.getPivots()) {
    old.push_back(segment.pivots.find(pivot)->second);
    target.push_back(to.find(pivot)->second);
  }
  for (Value value : state.getWith()) {
    auto result = cast<OpResult>(value);
    with.push_back(segment.states.find(result.getOwner())
                       ->second[result.getResultNumber()]);
  }
  auto moved = row.transport(state, old, target, self, with, whole);
  if (!moved)
    return moved;
  // A transport may drop an index (a constant state); the state keeps its own.
  SmallVector<int64_t> shape(self.cells.shape());
  return Field{self.dims, broadcastTo(*moved, self.dims, shape)};
}

llvm::Expected<Segment> RowStreamer::merge(const Segment &a, const Segment &b) {
  if (a.range.isEmpty() || b.range.isEmpty())
    return a.range.isEmpty() ? b : a;
  Segment both;
  both.range = {a.range.begin, b.range.end};
  if (llvm::Error error = choosePivots(both))
    return std::move(error);
  for (StateOp state : states) {
    StateFields left = a.states.find(state)->second,
                right = b.states.find(state)->second;
    if (!state.getTransport().empty()) {
      auto movedLeft = move(state, a, both.pivots);
      if (!movedLeft)
        return movedLeft.takeError();
      auto movedRight = move(state, b, both.pivots);
      if (!movedRight)
        return movedRight.takeError();
      left = {*movedLeft};
      right = {*movedRight};
    }
    auto combined = row.combine(state, left, right);
    if (!combined)
      return combined.takeError();
    both.states[state] = *combined;
  }
  return both;
}

/// Moves the states to the true pivots, which earlier states give.
llvm::Error RowStreamer::finish(const Segment &segment) {
  for (StateOp state : states) {
    StateFields fields = segment.states.find(state)->second;
    if (!state.getTransport().empty() && !segment.range.isEmpty()) {
      DenseMap<Value, Field> to;
      for (Value pivot : state.getPivots()) {
        if (llvm::Error error = row.ensure(pivot, whole, isNeverComputed))
          return error;
        to[pivot] = whole.values[pivot];
      }
      auto moved = move(state, segment, to);
      if (!moved)
        return moved.takeError();
      fields = {*moved};
    }
    for (auto [result, field] : llvm::zip(state.getResults(), fields))
      whole.values[result] = field;
  }
  return llvm::Error::success();
}

llvm::Error RowStreamer::runPass(unsigned number) {
  pass = number;
  states.clear();
  for (StateOp state : row.op().bodyBlock()->getOps<StateOp>())
    if (row.indexSets().passOf(state) == pass)
      states.push_back(state);
  std::vector<Segment> segments;
  for (StreamRange range : cut()) {
    if (range.isEmpty() && !segments.empty())
      continue; // the identity
    auto segment = range.isEmpty() ? absorb({0, 0}) : absorb(range);
    if (!segment)
      return segment.takeError();
    segments.push_back(std::move(*segment));
  }
  while (segments.size() > 1) {
    size_t at =
        std::uniform_int_distribution<size_t>(0, segments.size() - 2)(random);
    auto merged = merge(segments[at], segments[at + 1]);
    if (!merged)
      return merged.takeError();
    segments[at] = std::move(*merged);
    segments.erase(segments.begin() + at + 1);
  }
  return finish(segments.front());
}

llvm::Error RowStreamer::run() {
  for (unsigned p = 0; p < row.indexSets().numPasses; ++p)
    if (llvm::Error error = runPass(p))
      return error;
  for (auto write : row.op().bodyBlock()->getOps<WriteOp>()) {
    if (llvm::Error error =
            row.ensure(write.getValue(), whole, isNeverComputed))
      return error;
    if (llvm::Error error = row.store(write, whole))
      return error;
  }
  return llvm::Error::success();
}

llvm::Expected<std::vector<RefTensor>> refold::evaluateCascadeStreaming(
    CascadeOp cascade, ArrayRef<RefTensor> operands, const Splits &splits,
    std::mt19937_64 &random, const EvaluationOptions &options) {
  Session session(options);
  auto row = CascadeRow::create(cascade, operands, session);
  if (!row)
    return row.takeError();
  while ((*row)->nextRow())
    if (llvm::Error error = RowStreamer(**row, splits, random).run())
      return std::move(error);
  return std::vector<RefTensor>((*row)->results.begin(), (*row)->results.end());
}
