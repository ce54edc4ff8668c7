// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Convolutions and pooling: sums and extremes over windows that slide along the
// spatial dimensions. They are computed with the channels last, which is a view
// for whoever reads them.
#include "Windows.h"
#include "Contraction.h"
#include "Operators.h"
#include "Reductions.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace refold::onnx;

FailureOr<SmallVector<int64_t>>
refold::onnx::readWindowList(Node &node, StringRef name, unsigned count,
                             int64_t least, int64_t otherwise) {
  if (!node.has(name))
    return SmallVector<int64_t>(count, otherwise);
  SmallVector<int64_t> list = node.integers(name);
  if (list.size() != count) {
    node.error() << "attribute '" << name << "' has " << list.size()
                 << " numbers; expected " << count;
    return failure();
  }
  for (int64_t value : list) {
    if (value < least) {
      node.error() << "attribute '" << name << "' has " << value
                   << "; expected at least " << least;
      return failure();
    }
    if (value > kLargestWindow) {
      node.beyondLimit() << "attribute '" << name << "' has " << value
                         << "; expected at most " << kLargestWindow;
      return failure();
    }
  }
  return list;
}

/// The padding of `auto_pad`: as much as ceil(in / stride) windows need.
static void padForSame(Extents &extents, WindowAxis &axis, bool isMoreAtEnd) {
  axis.out = extents.ceilDiv(axis.in, Extent(axis.stride));
  Extent last =
      extents.mul(extents.sub(axis.out, Extent(1)), Extent(axis.stride));
  Extent missing = extents.max(
      extents.sub(extents.add(last, Extent(axis.span())), axis.in), Extent(0));
  Extent half = extents.floorDiv(missing, Extent(2));
  Extent rest = extents.sub(missing, half);
  axis.low = isMoreAtEnd ? half : rest;
  axis.high = isMoreAtEnd ? rest : half;
}

/// Number of windows; with `isCeil` the last one may begin inside and end
/// behind the padding, which then grows.
static LogicalResult countWindows(Node &node, WindowAxis &axis,
                                  unsigned dimension, bool isCeil) {
  Extents &extents = node.extents;
  Extent padded = extents.add(axis.in, extents.add(axis.low, axis.high));
  Extent stride(axis.stride);
  Extent reach =
      isCeil ? extents.add(padded, extents.sub(stride, Extent(1))) : padded;
  if (failed(node.graph.requireAtMost(
          Extent(axis.span()), reach, "the window",
          "that of dimension " + std::to_string(dimension) +
              " of input 0 with its padding" +
              (isCeil ? " and all but one of a stride" : ""))))
    return node.error() << "a window of " << axis.span() << " over "
                        << extents.toString(padded)
                        << " elements with their padding; expected no more";
  Extent room = extents.sub(padded, Extent(axis.span()));
  if (!isCeil) {
    axis.out = extents.add(extents.floorDiv(room, stride), Extent(1));
    return success();
  }
  axis.out = extents.add(extents.ceilDiv(room, stride), Extent(1));
  // No window begins behind the elements and the padding before them.
  Extent first = extents.add(
      extents.floorDiv(extents.sub(extents.add(axis.in, axis.low), Extent(1)),
                       stride),
      Extent(1));
  axis.out = extents.min(axis.out, first);
  Extent needed =
      extents.add(extents.mul(extents.sub(axis.out, Extent(1)), stride),
                  Extent(axis.span()));
  axis.high = extents.add(axis.high,
                          extents.max(extents.sub(needed, padded), Extent(0)));
  return success();
}

/// The axes from attributes and the spatial extents of `input`.
static FailureOr<WindowAxes> readAxes(Node &node, const Tensor &input,
                                      ArrayRef<int64_t> taps) {
  unsigned count = taps.size();
  auto strides = readWindowList(node, "strides", count, 1, 1);
  auto dilations = readWindowList(node, "dilations", count, 1, 1);
  auto pads = readWindowList(node, "pads", 2 * count, 0, 0);
  if (failed(strides) || failed(dilations) || failed(pads))
    return failure();
  std::string mode = node.string("auto_pad", "NOTSET");
  bool isSame = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  if (!isSame && mode != "NOTSET" && mode != "VALID") {
    node.error() << "auto_pad is '" << mode
                 << "'; expected NOTSET, VALID, SAME_UPPER or SAME_LOWER";
    return failure();
  }
  if (mode != "NOTSET" && llvm::any_of(*pads, [](int64_t p) { return p; })) {
    node.error() << "pads beside auto_pad '" << mode << "'; expected one";
    return failure();
  }
  bool isCeil = node.integer("ceil_mode", 0) != 0;
  WindowAxes axes;
  for (unsigned k = 0; k < count; ++k) {
    WindowAxis &axis = axes.emplace_back();
    axis.taps = taps[k];
    axis.stride = (*strides)[k];
    axis.dilation = (*dilations)[k];
    axis.low = Extent((*pads)[k]);
    axis.high = Extent((*pads)[count + k]);
    axis.in = input.shape[2 + k];
    if (isSame)
      padForSame(node.extents, axis, mode == "SAME_UPPER");
    else if (failed(countWindows(node, axis, 2 + k, isCeil)))
      return failure();
  }
  return axes;
}

LogicalResult refold::onnx::requireSpatial(Node &node) {
  unsigned rank = node.input(0).rank();
  if (rank < 3)
    return node.error() << "input 0 has rank " << rank
                        << "; expected at least 3";
  if (rank > 2 + kMostSpatial)
    return node.unsupported() << "input 0 has rank " << rank
                              << "; expected at most " << 2 + kMostSpatial;
  return success();
}

Tensor refold::onnx::withChannelsLast(GraphBuilder &graph, Tensor &tensor) {
  SmallVector<unsigned> order{0};
  for (unsigned k = 2; k < tensor.rank(); ++k)
    order.push_back(k);
  order.push_back(1);
  return graph.transpose(tensor, order);
}

Tensor refold::onnx::withChannelsSecond(GraphBuilder &graph, Tensor &tensor) {
  SmallVector<unsigned> order{0, tensor.rank() - 1};
  for (unsigned k = 1; k + 1 < tensor.rank(); ++k)
    order.push_back(k);
  return graph.transpose(tensor, order);
}

/// What is left of the axes where there is one window: nothing behind it, so
/// that its extent is the axis's.
static Tensor cutToWindow(GraphBuilder &graph, Tensor tensor,
                          ArrayRef<WindowAxis> axes) {
  for (auto [k, axis] : llvm::enumerate(axes))
    if (axis.out.is(1) && !tensor.shape[1 + k].is(axis.span()))
      tensor = graph.slice(tensor, 1 + k, 0, Extent(axis.span()), 1);
  return tensor;
}

Tensor refold::onnx::paddedForWindows(GraphBuilder &graph, Tensor tensor,
                                      ArrayRef<WindowAxis> axes, double value) {
  if (llvm::all_of(axes, [](const WindowAxis &axis) {
        return axis.low.is(0) && axis.high.is(0);
      }))
    return cutToWindow(graph, tensor, axes);
  SmallVector<Extent> low(tensor.rank()), high(tensor.rank());
  for (auto [k, axis] : llvm::enumerate(axes)) {
    low[1 + k] = axis.low;
    high[1 + k] = axis.high;
  }
  // What is computed can be wider than what is stored.
  graph.build(tensor);
  auto type = cast<FloatType>(getElementTypeOrSelf(tensor.base));
  llvm::APFloat number(value);
  bool losesInfo;
  number.convert(type.getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven,
                 &losesInfo);
  return cutToWindow(
      graph, graph.pad(tensor, low, high, FloatAttr::get(type, number)), axes);
}

namespace {
/// The dimensions of a reduction over windows: batch, places, `channels`, and
/// reduced, `depth` and taps.
struct Windows {
  Windows(GraphBuilder &graph, ArrayRef<WindowAxis> axes)
      : graph(graph), axes(axes) {}

  /// A dimension of extent 1 is none.
  AffineExpr add(const Extent &extent, bool reduced) {
    if (extent.is(1))
      return graph.ops.getAffineConstantExpr(0);
    shape.push_back(extent);
    isReduced.push_back(reduced);
    return graph.ops.getAffineDimExpr(shape.size() - 1);
  }
  /// `kept`: of the axis whose one place is a dimension; it is the first.
  void addPlaces(std::optional<unsigned> kept = std::nullopt) {
    for (auto [k, axis] : llvm::enumerate(axes))
      places.push_back(k == kept ? graph.ops.getAffineDimExpr(0)
                                 : add(axis.out, false));
  }
  /// A dimension of one place.
  void addOnePlace() {
    shape.push_back(Extent(1));
    isReduced.push_back(false);
  }
  void addTaps() {
    for (const WindowAxis &axis : axes)
      taps.push_back(add(Extent(axis.taps), true));
  }
  /// Where place and tap meet along one axis.
  AffineExpr subscript(unsigned k) const {
    return places[k] * axes[k].stride + taps[k] * axes[k].dilation;
  }

  GraphBuilder &graph;
  ArrayRef<WindowAxis> axes;
  Shape shape;
  SmallVector<bool> isReduced;
  SmallVector<AffineExpr, kMostSpatial> places, taps;
};
} // namespace

//===- Convolution ===//

FailureOr<SmallVector<int64_t>> refold::onnx::weightExtents(Node &node) {
  const Tensor &weights = node.input(1);
  unsigned rank = node.input(0).rank();
  if (weights.rank() != rank) {
    node.error() << "input 1 has rank " << weights.rank() << "; expected "
                 << rank << ", that of input 0";
    return failure();
  }
  SmallVector<int64_t> sizes;
  for (const Extent &extent : weights.shape) {
    std::optional<int64_t> size = extent.constant();
    if (!size) {
      node.unsupported() << "the weights have shape "
                         << toString(node.extents, weights.shape)
                         << "; expected numbers";
      return failure();
    }
    if (*size < 1) {
      node.error() << "the weights have an extent of " << *size
                   << "; expected at least 1";
      return failure();
    }
    if (*size > kLargestWindow) {
      node.beyondLimit() << "the weights have an extent of " << *size
                         << "; expected at most " << kLargestWindow;
      return failure();
    }
    sizes.push_back(*size);
  }
  auto kernel = readWindowList(node, "kernel_shape", rank - 2, 1, 0);
  if (failed(kernel))
    return failure();
  if (node.has("kernel_shape") && *kernel != ArrayRef(sizes).drop_front(2)) {
    node.error() << "kernel_shape is not that of the weights, "
                 << toString(node.extents, weights.shape)
                 << "; expected the same";
    return failure();
  }
  return sizes;
}

static LogicalResult checkGroups(Node &node, ArrayRef<int64_t> sizes,
                                 int64_t groups) {
  if (groups < 1 || groups > kLargestWindow || sizes[0] % groups)
    return node.error() << "group is " << groups << " for " << sizes[0]
                        << " outputs; expected a divisor";
  const Extent &channels = node.input(0).shape[1];
  Extent wanted(sizes[1] * groups);
  if (failed(node.graph.requireEqual(channels, wanted)))
    return node.error() << node.extents.toString(channels) << " channels for "
                        << groups << " groups of " << sizes[1] << "; expected "
                        << node.extents.toString(wanted);
  if (!node.hasInput(2))
    return success();
  const Tensor &bias = node.input(2);
  if (bias.rank() != 1 ||
      failed(node.graph.requireEqual(bias.shape[0], Extent(sizes[0]))))
    return node.error() << "the bias has shape "
                        << toString(node.extents, bias.shape) << "; expected ("
                        << sizes[0] << ")";
  return success();
}

/// The axis whose place has to be a dimension although there is one: windows
/// that do not slide are a matrix product, whose summed dimensions would have
/// to lie in the same order in the input, channels last, as in the weights.
static std::optional<unsigned> keptPlace(ArrayRef<WindowAxis> axes,
                                         const Extent &batch,
                                         const Extent &outputs,
                                         const Extent &depth) {
  std::optional<unsigned> kept;
  bool hasRows = !batch.is(1);
  unsigned sums = !depth.is(1);
  for (auto [k, axis] : llvm::enumerate(axes)) {
    hasRows |= !axis.out.is(1);
    sums += axis.taps > 1;
    if (axis.taps > 1 && !axis.out.is(1))
      return std::nullopt;
    if (axis.taps > 1)
      kept = k;
  }
  return hasRows && !outputs.is(1) && sums > 1 ? kept : std::nullopt;
}

/// One group and groups of one output have no dimension.
FailureOr<Tensor> refold::onnx::convolve(Node &node, Tensor input,
                                         Tensor weights,
                                         ArrayRef<WindowAxis> axes,
                                         ArrayRef<int64_t> sizes,
                                         int64_t groups) {
  GraphBuilder &graph = node.graph;
  bool hasGroups = groups > 1, hasOutputs = !hasGroups || sizes[0] > groups;
  Extent outputs(sizes[0] / groups), depth(sizes[1]);
  Shape split(input.shape.begin(), input.shape.end() - 1), kernel;
  if (hasGroups)
    split.push_back(Extent(groups)), kernel.push_back(Extent(groups));
  if (hasOutputs)
    kernel.push_back(outputs);
  split.push_back(depth);
  kernel.push_back(depth);
  for (const WindowAxis &axis : axes)
    kernel.push_back(Extent(axis.taps));
  FailureOr<Tensor> x = graph.reshape(input, split);
  FailureOr<Tensor> w = graph.reshape(weights, kernel);
  if (failed(x) || failed(w))
    return failure();
  graph.dropUnits(*x);
  graph.dropUnits(*w);

  Windows windows(graph, axes);
  std::optional<unsigned> kept =
      keptPlace(axes, input.shape[0], outputs, depth);
  if (kept)
    windows.addOnePlace();
  GraphBuilder::Subscripted ofInput{&*x, {windows.add(input.shape[0], false)}};
  GraphBuilder::Subscripted ofWeights{&*w, {}};
  windows.addPlaces(kept);
  windows.addTaps();
  for (unsigned k = 0; k < axes.size(); ++k)
    ofInput.at.push_back(windows.subscript(k));
  if (hasGroups) {
    ofInput.at.push_back(windows.add(Extent(groups), false));
    ofWeights.at.push_back(ofInput.at.back());
  }
  if (hasOutputs)
    ofWeights.at.push_back(windows.add(outputs, false));
  AffineExpr channel = windows.add(depth, true);
  ofInput.at.push_back(channel);
  ofWeights.at.push_back(channel);
  ofWeights.at.append(windows.taps.begin(), windows.taps.end());
  Tensor sums = graph.reduceAt({ofInput, ofWeights}, windows.shape,
                               windows.isReduced, /*keepDims=*/false,
                               Combiner::Add, input.type, emitProduct);
  Shape merged{input.shape[0]};
  for (const WindowAxis &axis : axes)
    merged.push_back(axis.out);
  merged.push_back(Extent(sizes[0]));
  FailureOr<Tensor> result = graph.reshape(sums, merged);
  if (failed(result) || !hasGroups || !hasOutputs)
    return result;
  return graph.inOrder(*result);
}

static LogicalResult lowerConv(Node &node) {
  GraphBuilder &graph = node.graph;
  if (failed(node.requireSameTypes()) || failed(node.requireFloat(0)) ||
      failed(requireSpatial(node)))
    return failure();
  auto sizes = weightExtents(node);
  if (failed(sizes))
    return failure();
  int64_t groups = node.integer("group", 1);
  if (failed(checkGroups(node, *sizes, groups)))
    return failure();
  Tensor &given = node.input(0);
  auto axes = readAxes(node, given, ArrayRef(*sizes).drop_front(2));
  if (failed(axes))
    return failure();
  Tensor input =
      paddedForWindows(graph, withChannelsLast(graph, given), *axes, 0);
  input.shape.back() = Extent((*sizes)[1] * groups); // as was required
  auto sums = convolve(node, input, node.input(1), *axes, *sizes, groups);
  if (failed(sums))
    return failure();
  if (node.hasInput(2))
    *sums =
        graph.elementwise({&*sums, &node.input(2)}, Shape(sums->shape),
                          given.type, [](Body &body, ValueRange in) -> Value {
                            return body.make<arith::AddFOp>(in[0], in[1]);
                          });
  return node.give(withChannelsSecond(graph, *sums));
}

//===- Pooling ===//

/// How many taps of each window meet an element (or, if those count, padding),
/// as a tensor that broadcasts along the other axes; nothing where all do.
static FailureOr<std::optional<Tensor>> tapCounts(Node &node, unsigned k,
                                                  ArrayRef<WindowAxis> axes,
                                                  bool countsPadding,
                                                  const Extent &givenHigh) {
  const WindowAxis &axis = axes[k];
  Extents &extents = node.extents;
  Extent before = countsPadding ? Extent(0) : axis.low;
  Extent behind = countsPadding ? extents.sub(axis.high, givenHigh) : axis.high;
  if (before.is(0) && behind.is(0))
    return std::optional<Tensor>();
  std::optional<int64_t> in = axis.in.constant(), out = axis.out.constant();
  std::optional<int64_t> low = axis.low.constant(), high = givenHigh.constant();
  if (!in || !out || !low || !high || *out > kLargestWindow) {
    node.unsupported() << "the mean of windows that hang over an extent of "
                       << extents.toString(axis.in) << "; expected a number";
    return failure();
  }
  int64_t first = countsPadding ? -*low : 0;
  int64_t last = countsPadding ? *in + *high : *in;
  // The number of taps of a window that are before `end`.
  auto tapsBefore = [&](int64_t start, int64_t end) {
    int64_t room = std::max<int64_t>(end - start, 0);
    return std::min<int64_t>(llvm::divideCeil(room, axis.dilation), axis.taps);
  };
  std::vector<Scalar> counts;
  counts.reserve(*out);
  for (int64_t at = 0; at < *out; ++at) {
    int64_t start = at * axis.stride - *low;
    int64_t count = tapsBefore(start, last) - tapsBefore(start, first);
    counts.push_back(Scalar::of(double(count)));
  }
  Shape shape(axes.size() + 2, Extent(1));
  shape[1 + k] = Extent(*out);
  return std::optional(
      node.graph.knownTensor(node.input(0).type, shape, std::move(counts)));
}

/// The sum of each window divided by how many elements it has.
static FailureOr<Tensor> meanOfWindows(Node &node, Tensor &sums,
                                       ArrayRef<WindowAxis> axes,
                                       ArrayRef<Extent> givenHigh) {
  bool countsPadding = node.integer("count_include_pad", 0) != 0;
  double whole = 1;
  std::vector<Tensor> counts;
  for (unsigned k = 0; k < axes.size(); ++k) {
    auto own = tapCounts(node, k, axes, countsPadding, givenHigh[k]);
    if (failed(own))
      return failure();
    if (*own)
      counts.push_back(**own);
    else
      whole *= double(axes[k].taps);
  }
  SmallVector<Tensor *> inputs{&sums};
  for (Tensor &count : counts)
    inputs.push_back(&count);
  return node.graph.elementwise(inputs, Shape(sums.shape), sums.type,
                                [&](Body &body, ValueRange in) -> Value {
                                  Value count =
                                      body.real(in[0].getType(), whole);
                                  for (Value own : in.drop_front())
                                    count =
                                        body.make<arith::MulFOp>(count, own);
                                  return body.make<arith::DivFOp>(in[0], count);
                                });
}

/// A window that lies in the padding has no largest element and no mean.
static LogicalResult checkPads(Node &node, ArrayRef<int64_t> taps,
                               ArrayRef<int64_t> pads) {
  for (auto [k, pad] : llvm::enumerate(pads)) {
    int64_t size = taps[k % taps.size()];
    if (pad >= size)
      return node.error() << "attribute 'pads' has " << pad
                          << " for a window of " << size << "; expected less";
  }
  return success();
}

/// The largest element, or the mean, of each window.
static LogicalResult lowerPool(Node &node) {
  GraphBuilder &graph = node.graph;
  if (failed(node.requireFloatHere(0)) || failed(requireSpatial(node)))
    return failure();
  Tensor &given = node.input(0);
  if (given.shape[1].is(0))
    return node.unsupported() << "input 0 has no channels; expected at least 1";
  bool isMax = node.op() == "MaxPool";
  if (isMax && node.wants(1))
    return node.unsupported()
           << "output 1, the positions of the largest elements, is asked for; "
           << "expected the elements only";
  if (!node.has("kernel_shape"))
    return node.error() << "no attribute 'kernel_shape'; expected one number a "
                        << "spatial dimension";
  auto taps = readWindowList(node, "kernel_shape", given.rank() - 2, 1, 1);
  if (failed(taps))
    return failure();
  auto axes = readAxes(node, given, *taps);
  if (failed(axes))
    return failure();
  auto pads = readWindowList(node, "pads", 2 * taps->size(), 0, 0);
  if (failed(pads))
    return failure();
  bool isSame = node.has("auto_pad") &&
                StringRef(node.string("auto_pad", "")).starts_with("SAME");
  if (failed(checkPads(node, *taps, *pads)))
    return failure();
  SmallVector<Extent> givenHigh;
  for (auto [k, axis] : llvm::enumerate(*axes))
    givenHigh.push_back(isSame ? axis.high : Extent((*pads)[taps->size() + k]));

  Tensor input = paddedForWindows(graph, withChannelsLast(graph, given), *axes,
                                  isMax ? -HUGE_VAL : 0);
  Windows windows(graph, *axes);
  AffineExpr batch = windows.add(given.shape[0], false);
  windows.addPlaces();
  AffineExpr channel = windows.add(given.shape[1], false);
  windows.addTaps();
  // The extents of a window are those of an operand that nothing reads.
  Shape kernel;
  for (const WindowAxis &axis : *axes)
    if (axis.taps != 1)
      kernel.push_back(Extent(axis.taps));
  Tensor window =
      graph.tensorOf(graph.empty(kernel, storageType(graph.ops, given.type)),
                     given.type, kernel);
  GraphBuilder::Subscripted ofInput{&input, {batch}}, ofWindow{&window, {}};
  for (unsigned k = 0; k < axes->size(); ++k)
    ofInput.at.push_back(windows.subscript(k));
  ofInput.at.push_back(channel);
  for (auto [axis, tap] : llvm::zip_equal(*axes, windows.taps))
    if (axis.taps != 1)
      ofWindow.at.push_back(tap);
  graph.dropUnits(input);
  Tensor found = graph.reduceAt(
      {ofInput, ofWindow}, windows.shape, windows.isReduced,
      /*keepDims=*/false, isMax ? Combiner::MaxSticky : Combiner::Add,
      given.type, emitSame);
  Shape shape{given.shape[0]};
  for (const WindowAxis &axis : *axes)
    shape.push_back(axis.out);
  shape.push_back(given.shape[1]);
  auto whole = graph.reshape(found, shape);
  if (failed(whole))
    return failure();
  found = *whole;
  if (!isMax) {
    auto mean = meanOfWindows(node, found, *axes, givenHigh);
    if (failed(mean))
      return failure();
    found = *mean;
  }
  return node.give(withChannelsSecond(graph, found));
}

ArrayRef<Operator> refold::onnx::windowOperators() {
  static const Operator rows[] = {
      {"AveragePool", 13, 18,
       "auto_pad:s ceil_mode:i count_include_pad:i kernel_shape:is pads:is "
       "strides:is",
       1, 1, lowerPool},
      {"AveragePool", 19, kLastOpset,
       "auto_pad:s ceil_mode:i count_include_pad:i dilations:is "
       "kernel_shape:is pads:is strides:is",
       1, 1, lowerPool},
      {"Conv", 13, kLastOpset,
       "auto_pad:s dilations:is group:i kernel_shape:is pads:is strides:is", 2,
       3, lowerConv},
      {"MaxPool", 13, kLastOpset,
       "auto_pad:s ceil_mode:i dilations:is kernel_shape:is pads:is "
       "storage_order:i strides:is",
       1, 1, lowerPool},
  };
  return rows;
}
