// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// ConvTranspose without zeros between the elements. Element m * stride + r of
// an axis meets the taps a * stride + r only, of the elements m - a: windows of
// ceil(taps / stride) elements that do not skip, with `stride` outputs (r) for
// each output of the model, which then lie side by side.
#include "Movement.h"
#include "Operators.h"
#include "Windows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace refold::onnx;

namespace {
/// One spatial dimension. Taps are in the weights; with a dilation and a stride
/// there are zeros between them.
struct Axis {
  int64_t taps = 1, stride = 1, dilation = 1;
  int64_t cut = 0; ///< elements before the first one of the result
  Extent in, out;
  bool isSpread() const { return stride > 1 && dilation > 1; }
  int64_t span() const { return dilation * (taps - 1) + 1; }
  /// Of the weights as they are read: a multiple of the stride.
  int64_t tapsWithin() const {
    int64_t own = isSpread() ? taps * dilation : taps;
    return int64_t(llvm::divideCeil(own, stride)) * stride;
  }
  int64_t windowTaps() const { return tapsWithin() / stride; }
  int64_t windowDilation() const { return isSpread() ? 1 : dilation; }
};
using Axes = SmallVector<Axis, kMostSpatial>;
} // namespace

/// The result's extent and what is cut off in front of it, of `whole` elements.
static LogicalResult cutAxis(Node &node, Axis &axis, const Extent &whole,
                             int64_t low, int64_t high,
                             std::optional<int64_t> wanted) {
  Extents &extents = node.extents;
  std::string mode = node.string("auto_pad", "NOTSET");
  bool isSame = StringRef(mode).starts_with("SAME");
  if (wanted || isSame) {
    Extent out =
        wanted ? Extent(*wanted) : extents.mul(axis.in, Extent(axis.stride));
    std::optional<int64_t> total = extents.sub(whole, out).constant();
    if (!total)
      return node.unsupported()
             << "output_shape for an extent of " << extents.toString(axis.in)
             << "; expected a number";
    // Nothing is cut off of what is too short: zeros follow it.
    int64_t cut = std::max<int64_t>(*total, 0);
    low = mode == "SAME_UPPER" ? cut / 2 : cut - cut / 2;
    high = *total - low;
  }
  axis.cut = low;
  axis.out = extents.sub(whole, Extent(low + high));
  if (succeeded(node.graph.requireAtMost(Extent(1), axis.out,
                                         "an extent of the result")))
    return success();
  return node.error() << "pads of " << low << " and " << high << " of "
                      << extents.toString(whole)
                      << " elements; expected less than all";
}

static FailureOr<Axes> readAxes(Node &node, ArrayRef<int64_t> taps) {
  unsigned count = taps.size();
  auto strides = readWindowList(node, "strides", count, 1, 1);
  auto dilations = readWindowList(node, "dilations", count, 1, 1);
  auto pads = readWindowList(node, "pads", 2 * count, 0, 0);
  auto more = readWindowList(node, "output_padding", count, 0, 0);
  auto wanted = readWindowList(node, "output_shape", count, 1, 1);
  if (failed(strides) || failed(dilations) || failed(pads) || failed(more) ||
      failed(wanted))
    return failure();
  std::string mode = node.string("auto_pad", "NOTSET");
  if (mode != "SAME_UPPER" && mode != "SAME_LOWER" && mode != "NOTSET" &&
      mode != "VALID") {
    node.error() << "auto_pad is '" << mode
                 << "'; expected NOTSET, VALID, SAME_UPPER or SAME_LOWER";
    return failure();
  }
  Axes axes;
  for (unsigned k = 0; k < count; ++k) {
    Axis &axis = axes.emplace_back();
    axis.taps = taps[k];
    axis.stride = (*strides)[k];
    axis.dilation = (*dilations)[k];
    axis.in = node.input(0).shape[2 + k];
    Extents &extents = node.extents;
    if (failed(node.graph.requireAtMost(Extent(1), axis.in,
                                        "an extent of input 0"))) {
      node.error() << "dimension " << 2 + k
                   << " of input 0 has no elements; expected at least 1";
      return failure();
    }
    Extent whole =
        extents.add(extents.mul(extents.sub(axis.in, 1), Extent(axis.stride)),
                    Extent(axis.span() + (*more)[k]));
    bool isVoid = mode == "VALID";
    if (failed(cutAxis(node, axis, whole, isVoid ? 0 : (*pads)[k],
                       isVoid ? 0 : (*pads)[count + k],
                       node.has("output_shape") ? std::optional((*wanted)[k])
                                                : std::nullopt)))
      return failure();
  }
  return axes;
}

/// The weights (c, o, taps...) of all groups as those of the windows: (g, r...,
/// o, c, windowTaps...), turned round along each axis.
static FailureOr<Tensor> windowWeights(Node &node, ArrayRef<Axis> axes,
                                       ArrayRef<int64_t> sizes,
                                       int64_t groups) {
  GraphBuilder &graph = node.graph;
  unsigned count = axes.size();
  Tensor weights = node.input(1);
  // Zeros behind each tap (where it is spread) and behind all of them.
  Shape apart{Extent(sizes[0]), Extent(sizes[1])}, whole = apart;
  for (const Axis &axis : axes) {
    apart.append({Extent(axis.taps), Extent(1)});
    whole.push_back(Extent(axis.taps * (axis.isSpread() ? axis.dilation : 1)));
  }
  auto zeros = [&](Tensor &tensor, ArrayRef<Extent> high) {
    SmallVector<Extent> none(tensor.rank());
    graph.valueOf(tensor);
    auto type = cast<FloatType>(getElementTypeOrSelf(tensor.base));
    return graph.pad(tensor, none, high, FloatAttr::get(type, 0));
  };
  FailureOr<Tensor> view = weights;
  if (llvm::any_of(axes, [](const Axis &axis) { return axis.isSpread(); })) {
    view = graph.reshape(weights, apart);
    if (failed(view))
      return failure();
    SmallVector<Extent> high(apart.size());
    for (auto [k, axis] : llvm::enumerate(axes))
      if (axis.isSpread())
        high[3 + 2 * k] = Extent(axis.dilation - 1);
    Tensor spread = zeros(*view, high);
    view = graph.reshape(spread, whole);
    if (failed(view))
      return failure();
  }
  SmallVector<Extent> missing(2 + count);
  bool isWhole = true;
  for (auto [k, axis] : llvm::enumerate(axes)) {
    int64_t rest = axis.tapsWithin() - *whole[2 + k].constant();
    missing[2 + k] = Extent(rest);
    isWhole &= rest == 0;
  }
  Tensor filled = isWhole ? *view : zeros(*view, missing);
  Shape split{Extent(groups), Extent(sizes[0] / groups), Extent(sizes[1])};
  SmallVector<unsigned> order{0};
  for (auto [k, axis] : llvm::enumerate(axes)) {
    split.append({Extent(axis.windowTaps()), Extent(axis.stride)});
    order.push_back(4 + 2 * unsigned(k));
  }
  order.append({2, 1});
  for (unsigned k = 0; k < count; ++k)
    order.push_back(3 + 2 * k);
  view = graph.reshape(filled, split);
  if (failed(view))
    return failure();
  Tensor turned = graph.transpose(*view, order);
  for (unsigned k = 0; k < count; ++k)
    if (int64_t taps = axes[k].windowTaps(); taps > 1)
      turned = reverse(node, turned, 3 + count + k, Extent(taps - 1),
                       Extent(taps), Extent(-1));
  return turned;
}

/// The input padded so that the windows give `places` of an axis, or cut.
static FailureOr<Tensor> windowInput(Node &node, ArrayRef<Axis> axes,
                                     WindowAxes &windows) {
  GraphBuilder &graph = node.graph;
  Extents &extents = node.extents;
  Tensor input = withChannelsLast(graph, node.input(0));
  for (auto [k, axis] : llvm::enumerate(axes)) {
    WindowAxis &window = windows.emplace_back();
    window.taps = axis.windowTaps();
    window.dilation = axis.windowDilation();
    // Places up to the last element of the result.
    Extent end = extents.add(axis.out, Extent(axis.cut));
    window.out = extents.ceilDiv(end, Extent(axis.stride));
    window.low = Extent(window.span() - 1);
    window.in = axis.in;
    Extent behind = extents.sub(window.out, axis.in);
    if (!extents.isNonNegative(behind)) {
      if (!extents.isAtMost(behind, 0))
        return node.unsupported()
               << "pads of an extent of " << extents.toString(axis.in)
               << "; expected ones whose rest is known to be inside or behind";
      window.in = window.out;
      input = graph.slice(input, 1 + k, 0, window.in, 1);
      behind = Extent(0);
    }
    window.high = behind;
  }
  return paddedForWindows(graph, input, windows, 0);
}

static LogicalResult checkChannels(Node &node, ArrayRef<int64_t> sizes,
                                   int64_t groups) {
  if (groups < 1 || groups > kLargestWindow || sizes[0] % groups)
    return node.error() << "group is " << groups << " for " << sizes[0]
                        << " channels; expected a divisor";
  const Extent &channels = node.input(0).shape[1];
  if (failed(node.graph.requireEqual(channels, Extent(sizes[0]))))
    return node.error() << node.extents.toString(channels)
                        << " channels; expected " << sizes[0]
                        << ", those of the weights";
  if (!node.hasInput(2))
    return success();
  const Tensor &bias = node.input(2);
  if (bias.rank() != 1 ||
      failed(node.graph.requireEqual(bias.shape[0], Extent(sizes[1] * groups))))
    return node.error() << "the bias has shape "
                        << toString(node.extents, bias.shape) << "; expected ("
                        << sizes[1] * groups << ")";
  return success();
}

/// (n, places..., g, r..., o) as (n, elements..., g * o), of which the result
/// has its part.
static FailureOr<Tensor> sideBySide(Node &node, Tensor &sums,
                                    ArrayRef<Axis> axes,
                                    ArrayRef<WindowAxis> windows,
                                    int64_t groups, int64_t outputs) {
  GraphBuilder &graph = node.graph;
  unsigned count = axes.size();
  Shape apart{sums.shape[0]}, merged = apart;
  SmallVector<unsigned> order{0};
  for (auto [k, window] : llvm::enumerate(windows)) {
    apart.push_back(window.out);
    merged.push_back(node.extents.mul(window.out, Extent(axes[k].stride)));
    order.append({1 + unsigned(k), 2 + count + unsigned(k)});
  }
  apart.push_back(Extent(groups));
  for (const Axis &axis : axes)
    apart.push_back(Extent(axis.stride));
  apart.push_back(Extent(outputs));
  merged.push_back(Extent(groups * outputs));
  order.append({1 + count, 2 + 2 * count});
  FailureOr<Tensor> view = graph.reshape(sums, apart);
  if (failed(view))
    return failure();
  Tensor turned = graph.transpose(*view, order);
  FailureOr<Tensor> result = graph.reshape(turned, merged);
  if (failed(result))
    return failure();
  for (auto [k, axis] : llvm::enumerate(axes))
    if (axis.cut || !node.extents.areEqual(axis.out, result->shape[1 + k]))
      result = graph.slice(*result, 1 + k, Extent(axis.cut), axis.out, 1);
  return result;
}

static LogicalResult lowerConvTranspose(Node &node) {
  GraphBuilder &graph = node.graph;
  if (failed(node.requireSameTypes()) || failed(node.requireFloat(0)) ||
      failed(requireSpatial(node)))
    return failure();
  auto sizes = weightExtents(node);
  if (failed(sizes))
    return failure();
  int64_t groups = node.integer("group", 1), outputs = (*sizes)[1];
  if (failed(checkChannels(node, *sizes, groups)))
    return failure();
  auto axes = readAxes(node, ArrayRef(*sizes).drop_front(2));
  if (failed(axes))
    return failure();
  SmallVector<int64_t> windowSizes{groups * outputs, (*sizes)[0] / groups};
  for (const Axis &axis : *axes) {
    windowSizes[0] *= axis.stride;
    windowSizes.push_back(axis.windowTaps());
    if (axis.tapsWithin() > kLargestWindow || windowSizes[0] > kLargestWindow)
      return node.beyondLimit() << "a stride of " << axis.stride << " for "
                                << axis.taps << " taps; expected smaller ones";
  }
  WindowAxes windows;
  auto weights = windowWeights(node, *axes, *sizes, groups);
  auto input = windowInput(node, *axes, windows);
  if (failed(weights) || failed(input))
    return failure();
  input->shape.back() = Extent((*sizes)[0]); // as was required
  auto sums = convolve(node, *input, *weights, windows, windowSizes, groups);
  if (failed(sums))
    return failure();
  auto result = sideBySide(node, *sums, *axes, windows, groups, outputs);
  if (failed(result))
    return failure();
  if (node.hasInput(2))
    *result = graph.elementwise({&*result, &node.input(2)},
                                Shape(result->shape), node.input(0).type,
                                [](Body &body, ValueRange in) -> Value {
                                  return body.make<arith::AddFOp>(in[0], in[1]);
                                });
  return node.give(withChannelsSecond(graph, *result));
}

ArrayRef<Operator> refold::onnx::transposedOperators() {
  static const Operator rows[] = {
      {"ConvTranspose", 13, kLastOpset,
       "auto_pad:s dilations:is group:i kernel_shape:is output_padding:is "
       "output_shape:is pads:is strides:is",
       2, 3, lowerConvTranspose},
  };
  return rows;
}
