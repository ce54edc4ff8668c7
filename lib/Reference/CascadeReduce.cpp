// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the reducers of a cascade do to fields.
#include "CascadeRow.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace refold;
using namespace refold::reference;

static int64_t highest(Type type) {
  return int64_t((uint64_t(1) << (widthOf(type) - 1)) - 1);
}

Cell reference::identityOf(Reducer reducer, Type type) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  bool isFloat = isa<FloatType>(type);
  Cell cell{};
  cell.i = 0; // all-zero bytes: 0 of both kinds
  switch (reducer) {
  case Reducer::Add:
  case Reducer::Or:
    break;
  case Reducer::Mul:
    isFloat ? void(cell.f = 1.0) : void(cell.i = 1);
    break;
  case Reducer::Max:
  case Reducer::MaxNum:
  case Reducer::TopK:
    isFloat ? void(cell.f = -infinity)
            : void(cell.i = wrapTo(widthOf(type), -highest(type) - 1));
    break;
  case Reducer::Min:
  case Reducer::MinNum:
  case Reducer::BottomK:
    isFloat ? void(cell.f = infinity) : void(cell.i = highest(type));
    break;
  case Reducer::And:
    cell.i = wrapTo(widthOf(type), -1);
    break;
  }
  return cell;
}

static double combineFloats(Reducer reducer, double a, double b) {
  switch (reducer) {
  case Reducer::Add:
    return a + b;
  case Reducer::Mul:
    return a * b;
  case Reducer::Max:
    return maximum(a, b);
  case Reducer::Min:
    return minimum(a, b);
  case Reducer::MaxNum:
    return std::fmax(a, b);
  default:
    return std::fmin(a, b);
  }
}

static int64_t combineIntegers(Reducer reducer, int64_t a, int64_t b) {
  switch (reducer) {
  case Reducer::Add:
    return int64_t(uint64_t(a) + uint64_t(b));
  case Reducer::Mul:
    return int64_t(uint64_t(a) * uint64_t(b));
  case Reducer::Max:
    return std::max(a, b);
  case Reducer::Min:
    return std::min(a, b);
  case Reducer::And:
    return a & b;
  default:
    return a | b;
  }
}

Cell CascadeRow::combineCells(StateOp state, Cell a, Cell b) const {
  Type type = state.getResult(0).getType();
  Cell cell{};
  if (!isa<FloatType>(type)) {
    cell.i =
        wrapTo(widthOf(type), combineIntegers(state.getReducer(), a.i, b.i));
    return cell;
  }
  cell.f = combineFloats(state.getReducer(), a.f, b.f);
  if (session.options.roundEveryOp)
    cell.f = session.isUnlimited() ? roundDigits(*dtypeOf(type), cell.f)
                                   : roundTo(*dtypeOf(type), cell.f);
  return cell;
}

/// Reduces the last dimension, which is the stream.
llvm::Expected<StateFields> CascadeRow::fold(StateOp state, const Field &values,
                                             StreamRange range) {
  Field result;
  result.dims = values.dims;
  result.dims.pop_back();
  ArrayRef<int64_t> shape = values.cells.shape();
  auto cells =
      session.make(values.cells.isFloat(), shape.drop_back(), state.getLoc());
  if (!cells)
    return cells.takeError();
  result.cells = *cells;
  RefTensor from =
      values.cells.isRowMajor() ? values.cells : values.cells.clone();
  int64_t n = shape.back();
  if (llvm::Error error =
          session.charge(double(from.numElements()), state.getLoc()))
    return std::move(error);
  Cell identity = identityOf(state.getReducer(), state.getResult(0).getType());
  for (int64_t p = 0, count = cells->numElements(); p < count; ++p) {
    Cell sum = identity;
    for (int64_t l = 0; l < n; ++l)
      sum = combineCells(state, sum, from.data()[p * n + l]);
    cells->data()[p] = sum;
  }
  return StateFields{result};
}

/// The same field with its dimensions in rising order, by strides.
static void sortDims(Field &field, ArrayRef<int64_t> extents) {
  SmallVector<unsigned, 3> sorted(field.dims);
  llvm::sort(sorted);
  SmallVector<int64_t> shape;
  for (unsigned dim : sorted)
    shape.push_back(extents[dim]);
  field.cells = broadcastTo(field, sorted, shape);
  field.dims = sorted;
}

/// The best of the last dimension: keys, payloads, positions. Every field has
/// the same dimensions.
llvm::Expected<StateFields> CascadeRow::select(StateOp state,
                                               ArrayRef<Field> values,
                                               const Field &positions) {
  bool largest = state.getReducer() == Reducer::TopK;
  unsigned rank = cast<BlockArgument>(state.getRank()[0]).getArgNumber();
  int64_t k = extents[rank], n = positions.cells.shape().back();
  SmallVector<const Field *> from;
  for (const Field &value : values)
    from.push_back(&value);
  from.push_back(&positions);
  StateFields chosen(from.size());
  SmallVector<int64_t> shape(positions.cells.shape().drop_back());
  shape.push_back(k);
  for (auto [field, source] : llvm::zip(chosen, from)) {
    auto cells = session.make(source->cells.isFloat(), shape, state.getLoc());
    if (!cells)
      return cells.takeError();
    field.cells = *cells;
  }
  int64_t rowCount =
      n ? positions.cells.numElements() / n
        : chosen[0].cells.numElements() / std::max<int64_t>(k, 1);
  std::vector<int64_t> order;
  const Cell *keys = values[0].cells.data(), *at = positions.cells.data();
  bool isFloat = values[0].cells.isFloat();
  auto isBetter = [&](int64_t a, int64_t b) {
    return isFloat   ? isBetterKey(keys[a].f, keys[b].f, largest)
           : largest ? keys[a].i > keys[b].i
                     : keys[a].i < keys[b].i;
  };
  for (int64_t row = 0; row < rowCount; ++row) {
    order.clear();
    for (int64_t l = row * n; l < (row + 1) * n; ++l)
      if (at[l].i >= 0) // elements that exist
        order.push_back(l);
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      if (isBetter(a, b) || isBetter(b, a))
        return isBetter(a, b);
      return at[a].i < at[b].i;
    });
    for (auto [f, field] : llvm::enumerate(chosen))
      for (int64_t r = 0; r < k; ++r) {
        Cell absent;
        absent.i = -1;
        if (f == 0)
          absent = identityOf(state.getReducer(), state.getResult(0).getType());
        else if (field.cells.isFloat())
          absent.f = std::numeric_limits<double>::quiet_NaN();
        field.cells.data()[row * k + r] = r < int64_t(order.size())
                                              ? from[f]->cells.data()[order[r]]
                                              : absent;
      }
  }
  for (Field &field : chosen) {
    field.dims.assign(positions.dims.begin(), positions.dims.end() - 1);
    field.dims.push_back(rank);
    sortDims(field, extents);
  }
  return chosen;
}

/// Copies a field to the dimensions `dims`, the stream among them.
static Field spread(const Field &field, ArrayRef<unsigned> dims,
                    ArrayRef<int64_t> shape) {
  Field result;
  result.dims.assign(dims.begin(), dims.end());
  result.cells = broadcastTo(field, dims, shape).clone();
  return result;
}

llvm::Expected<StateFields>
CascadeRow::reduce(StateOp state, Scope &scope,
                   llvm::function_ref<bool(StateOp)> computesState) {
  SmallVector<unsigned> dims;
  for (Value value : state.getValues()) {
    if (llvm::Error error = ensure(value, scope, computesState))
      return std::move(error);
    for (unsigned dim : scope.values[value].dims)
      if (!llvm::is_contained(dims, dim))
        dims.push_back(dim);
  }
  // A value without the stream is reduced as often as the stream is long.
  if (!llvm::is_contained(dims, kStreamDim))
    dims.push_back(kStreamDim);
  llvm::sort(dims);
  SmallVector<int64_t> shape;
  for (unsigned dim : dims)
    shape.push_back(extentOf(dim, scope.range));
  SmallVector<Field> values;
  for (Value value : state.getValues())
    values.push_back(spread(scope.values[value], dims, shape));
  if (!state.isOrdered())
    return fold(state, values[0], scope.range);
  Field positions;
  positions.dims = {kStreamDim};
  positions.cells = RefTensor::create(false, {shape.back()});
  for (int64_t p = 0; p < shape.back(); ++p)
    positions.cells.data()[p].i = scope.range.begin + p;
  return select(state, values, spread(positions, dims, shape));
}

llvm::Expected<StateFields>
CascadeRow::combine(StateOp state, const StateFields &a, const StateFields &b) {
  if (!state.isOrdered()) {
    Field result{a[0].dims, a[0].cells.clone()};
    RefTensor right = b[0].cells.clone();
    for (int64_t p = 0, n = right.numElements(); p < n; ++p)
      result.cells.data()[p] =
          combineCells(state, result.cells.data()[p], right.data()[p]);
    return StateFields{result};
  }
  // Both lists behind each other, as a stream of their own.
  unsigned rank = cast<BlockArgument>(state.getRank()[0]).getArgNumber();
  int64_t k = extents[rank];
  SmallVector<Field> joined;
  for (auto [x, y] : llvm::zip(a, b)) {
    SmallVector<unsigned, 3> dims;
    SmallVector<int64_t> shape;
    for (unsigned dim : x.dims)
      if (dim != rank) {
        dims.push_back(dim);
        shape.push_back(extents[dim]);
      }
    dims.push_back(rank);
    shape.push_back(k);
    RefTensor left = broadcastTo(x, dims, shape),
              right = broadcastTo(y, dims, shape);
    shape.back() = 2 * k;
    Field both{dims, RefTensor::create(x.cells.isFloat(), shape)};
    both.dims.back() = kStreamDim;
    for (int64_t p = 0, n = left.numElements(); p < n; ++p) {
      both.cells.data()[p / k * 2 * k + p % k] = left.at(p);
      both.cells.data()[p / k * 2 * k + k + p % k] = right.at(p);
    }
    joined.push_back(both);
  }
  Field positions = joined.pop_back_val();
  return select(state, joined, positions);
}
