// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Images read at places that are data.
#include "Operators.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace refold::onnx;

namespace {
/// What is read outside the image.
enum class Outside { Zeros, Border, Reflection };

/// The arithmetic of one place along one spatial dimension of the image. A
/// place that is NaN or infinite is outside.
struct Line {
  GraphBuilder &graph;
  Body &body;
  Type real; ///< in which places are computed
  Value size, last;
  bool alignsCorners;
  Outside outside;

  Line(GraphBuilder &graph, Body &body, Type real, const Extent &extent,
       bool alignsCorners, Outside outside)
      : graph(graph), body(body), real(real),
        size(graph.extentIn(body, extent, real)), alignsCorners(alignsCorners),
        outside(outside) {
    last = body.make<arith::SubFOp>(size, number(1));
  }

  Value number(double value) { return body.real(real, value); }

  /// From [-1, 1] to elements.
  Value place(Value given) {
    Value fromEdge = body.make<arith::AddFOp>(given, number(1));
    Value place =
        alignsCorners
            ? body.make<arith::MulFOp>(
                  body.make<arith::DivFOp>(fromEdge, number(2)), last)
            : body.make<arith::DivFOp>(
                  body.make<arith::SubFOp>(
                      body.make<arith::MulFOp>(fromEdge, size), number(1)),
                  number(2));
    return outside == Outside::Reflection ? reflected(place) : place;
  }

  /// Back and forth between the corners, or the edges of their elements.
  Value reflected(Value place) {
    Value low = number(alignsCorners ? 0 : -0.5);
    Value range = alignsCorners ? last : size;
    // A line of one corner is that one.
    Value span = body.make<arith::MaximumFOp>(range, number(1e-30));
    Value off = body.make<math::AbsFOp>(body.make<arith::SubFOp>(place, low));
    Value turns = body.make<math::FloorOp>(body.make<arith::DivFOp>(off, span));
    Value rest =
        body.make<arith::SubFOp>(off, body.make<arith::MulFOp>(turns, span));
    Value half = body.make<arith::MulFOp>(turns, number(0.5));
    Value isEven = body.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, half,
                                            body.make<math::FloorOp>(half));
    Value back = body.make<arith::SubFOp>(span, rest);
    return body.make<arith::AddFOp>(
        body.make<arith::SelectOp>(isEven, rest, back), low);
  }

  /// Inside, whatever the number is; NaN is 0.
  Value clamped(Value place) {
    Value least = body.make<arith::MaxNumFOp>(place, number(0));
    return body.make<arith::MinNumFOp>(least, last);
  }
  Value isInside(Value place) {
    Value isAbove =
        body.make<arith::CmpFOp>(arith::CmpFPredicate::OGE, place, number(0));
    Value isBelow =
        body.make<arith::CmpFOp>(arith::CmpFPredicate::OLE, place, last);
    return body.make<arith::AndIOp>(isAbove, isBelow);
  }
  Value index(Value place) {
    Value whole =
        body.make<arith::FPToSIOp>(body.builder.getI64Type(), clamped(place));
    return body.make<arith::IndexCastOp>(body.builder.getIndexType(), whole);
  }
};

/// An element of a line and what it weighs; null: 1.
struct Tap {
  Value place, weight;
};
} // namespace

static SmallVector<Tap, 2> tapsOf(Line &line, Value given, bool isNearest) {
  Body &body = line.body;
  Value place = line.place(given);
  if (line.outside != Outside::Zeros)
    place = line.clamped(place);
  if (isNearest)
    return {{body.make<math::RoundEvenOp>(place), Value()}};
  Value first = body.make<math::FloorOp>(place);
  Value share = body.make<arith::SubFOp>(place, first);
  return {{first, body.make<arith::SubFOp>(line.number(1), share)},
          {body.make<arith::AddFOp>(first, line.number(1)), share}};
}

static FailureOr<Outside> readOutside(Node &node) {
  std::string name = node.string("padding_mode", "zeros");
  if (name == "zeros")
    return Outside::Zeros;
  if (name == "border")
    return Outside::Border;
  if (name == "reflection")
    return Outside::Reflection;
  node.error() << "padding_mode is '" << name
               << "'; expected zeros, border or reflection";
  return failure();
}

static FailureOr<bool> readNearest(Node &node) {
  std::string mode = node.string("mode", "linear");
  if (mode == "nearest")
    return true;
  if (mode == "linear" || mode == "bilinear")
    return false;
  bool isKnown = mode == "cubic" || mode == "bicubic";
  (isKnown ? node.unsupported() : node.error())
      << "mode is '" << mode << "'; expected linear or nearest";
  return failure();
}

static LogicalResult checkShapes(Node &node) {
  const Tensor &image = node.input(0), &grid = node.input(1);
  if (image.rank() != 4)
    return node.unsupported()
           << "input 0 has rank " << image.rank() << "; expected 4";
  if (grid.rank() != 4 || !grid.shape[3].is(2) ||
      failed(node.graph.requireEqual(image.shape[0], grid.shape[0])))
    return node.error() << "places of shape "
                        << toString(node.extents, grid.shape)
                        << " for images of shape "
                        << toString(node.extents, image.shape)
                        << "; expected (images, height, width, 2)";
  for (unsigned k = 2; k < 4; ++k)
    if (failed(node.graph.requireAtMost(Extent(1), image.shape[k],
                                        "an extent of the image")))
      return node.error() << "dimension " << k
                          << " of input 0 has no elements; expected at least 1";
  return success();
}

static LogicalResult lowerGridSample(Node &node) {
  if (failed(node.requireFloatHere(0)) || failed(node.requireFloat(1)) ||
      failed(checkShapes(node)))
    return failure();
  FailureOr<Outside> outside = readOutside(node);
  FailureOr<bool> isNearest = readNearest(node);
  if (failed(outside) || failed(isNearest))
    return failure();
  GraphBuilder &graph = node.graph;
  Tensor &image = node.input(0), &grid = node.input(1);
  bool alignsCorners = node.integer("align_corners", 0) != 0;
  Value source = graph.valueOf(image);
  Shape shape{image.shape[0], image.shape[1], grid.shape[1], grid.shape[2]};
  SmallVector<Tensor, 2> places; // x, y
  for (int k = 0; k < 2; ++k) {
    Tensor one = graph.slice(grid, 3, Extent(k), Extent(1), Extent(1));
    auto view = graph.reshape(one, {shape[0], Extent(1), shape[2], shape[3]});
    if (failed(view))
      return failure();
    places.push_back(*view);
  }
  return node.give(graph.elementwise(
      {&places[0], &places[1]}, shape, image.type,
      [&](Body &body, ValueRange in) -> Value {
        Type real = in[0].getType(),
             element = computeType(graph.ops, image.type);
        Line across(graph, body, real, image.shape[3], alignsCorners, *outside);
        Line down(graph, body, real, image.shape[2], alignsCorners, *outside);
        Value sum;
        auto acrossTaps = tapsOf(across, in[0], *isNearest);
        for (Tap &y : tapsOf(down, in[1], *isNearest))
          for (Tap &x : acrossTaps) {
            Value value = body.toCompute(body.make<tensor::ExtractOp>(
                source,
                ValueRange{graph.subscriptIn(body, shape, 0),
                           graph.subscriptIn(body, shape, 1),
                           down.index(y.place), across.index(x.place)}));
            if (x.weight) {
              Value weight = body.make<arith::MulFOp>(x.weight, y.weight);
              if (real != element && element.isF64())
                weight = body.make<arith::ExtFOp>(element, weight);
              else if (real != element)
                weight = body.make<arith::TruncFOp>(element, weight);
              value = body.make<arith::MulFOp>(value, weight);
            }
            Value isRead = body.make<arith::AndIOp>(down.isInside(y.place),
                                                    across.isInside(x.place));
            value = body.make<arith::SelectOp>(isRead, value,
                                               body.real(element, 0));
            sum = sum ? body.make<arith::AddFOp>(sum, value) : value;
          }
        return sum;
      }));
}

ArrayRef<Operator> refold::onnx::gridSampleOperators() {
  static const Operator rows[] = {
      {"GridSample", 16, kLastOpset, "align_corners:i mode:s padding_mode:s", 2,
       2, lowerGridSample},
  };
  return rows;
}
