// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rotation of pairs of elements by angles of their positions.
#include "Gathers.h"
#include "Movement.h"
#include "Operators.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace refold::onnx;

/// (batch, length, heads, size) of input 0, as a view.
static FailureOr<Tensor> readRows(Node &node) {
  Tensor &input = node.input(0);
  if (input.rank() == 4)
    return node.graph.transpose(input, {0, 2, 1, 3});
  int64_t heads = node.integer("num_heads", 0);
  std::optional<Extent> size;
  if (input.rank() == 3 && heads > 0)
    size = node.extents.divideExactly(input.shape[2], Extent(heads));
  if (!size) {
    node.error() << "input 0 has shape " << toString(node.extents, input.shape)
                 << " and num_heads is " << heads
                 << "; expected rank 4, or rank 3 and a number of heads that "
                    "divides the last extent";
    return failure();
  }
  return node.graph.reshape(
      input, {input.shape[0], input.shape[1], Extent(heads), *size});
}

/// Cosines (i = 1) or sines (2) as (batch, length, 1, half).
static FailureOr<Tensor> readAngles(Node &node, unsigned i, const Tensor &rows,
                                    const Extent &half) {
  GraphBuilder &graph = node.graph;
  Tensor angles = node.input(i);
  bool hasPositions = node.hasInput(3);
  if (hasPositions && angles.rank() == 2) {
    if (failed(requireIndices(node, 3)))
      return failure();
    FailureOr<Tensor> read = gather(node, angles, node.input(3), 0);
    if (failed(read))
      return failure();
    angles = *read;
  }
  bool agrees = angles.rank() == 3 &&
                node.input(i).rank() == (hasPositions ? 2u : 3u) &&
                succeeded(graph.requireEqual(angles.shape[0], rows.shape[0])) &&
                succeeded(graph.requireEqual(angles.shape[1], rows.shape[1])) &&
                succeeded(graph.requireEqual(angles.shape[2], half));
  if (!agrees) {
    node.error() << "input " << i << " has shape "
                 << toString(node.extents, node.input(i).shape) << "; expected "
                 << (hasPositions
                         ? "(positions, "
                         : "(" + node.extents.toString(rows.shape[0]) + ", " +
                               node.extents.toString(rows.shape[1]) + ", ")
                 << node.extents.toString(half)
                 << (hasPositions ? ") and a position for every row" : ")");
    return failure();
  }
  return graph.reshape(angles, {rows.shape[0], rows.shape[1], Extent(1), half});
}

/// a * cos - b * sin, or b * cos + a * sin.
static Tensor turned(GraphBuilder &graph, Tensor &a, Tensor &b, Tensor &cosines,
                     Tensor &sines, bool isFirst) {
  return graph.elementwise(
      {&a, &b, &cosines, &sines}, Shape(a.shape), a.type,
      [&](Body &body, ValueRange in) -> Value {
        Value ofOwn = body.make<arith::MulFOp>(isFirst ? in[0] : in[1], in[2]);
        Value ofOther =
            body.make<arith::MulFOp>(isFirst ? in[1] : in[0], in[3]);
        return isFirst ? body.make<arith::SubFOp>(ofOwn, ofOther)
                       : body.make<arith::AddFOp>(ofOwn, ofOther);
      });
}

/// The pairs of `rows` (batch, length, heads, 2 * half) turned.
static FailureOr<Tensor> rotate(Node &node, Tensor rows, const Extent &half) {
  GraphBuilder &graph = node.graph;
  auto cosines = readAngles(node, 1, rows, half);
  auto sines = readAngles(node, 2, rows, half);
  if (failed(cosines) || failed(sines))
    return failure();
  bool isInterleaved = node.integer("interleaved", 0) != 0;
  Extent step(isInterleaved ? 2 : 1);
  Tensor a = graph.slice(rows, 3, 0, half, step);
  Tensor b = graph.slice(rows, 3, isInterleaved ? Extent(1) : half, half, step);
  Tensor first = turned(graph, a, b, *cosines, *sines, /*isFirst=*/true);
  Tensor second = turned(graph, a, b, *cosines, *sines, /*isFirst=*/false);
  if (!isInterleaved)
    return join(node, {&first, &second}, 3);
  Shape apart = a.shape;
  apart.push_back(Extent(1));
  auto firsts = graph.reshape(first, apart),
       seconds = graph.reshape(second, apart);
  if (failed(firsts) || failed(seconds))
    return failure();
  FailureOr<Tensor> pairs = join(node, {&*firsts, &*seconds}, 4);
  if (failed(pairs))
    return failure();
  return graph.reshape(*pairs, rows.shape);
}

static LogicalResult lowerRotaryEmbedding(Node &node) {
  for (unsigned i = 0; i < 3; ++i)
    if (failed(node.requireFloat(i)))
      return failure();
  GraphBuilder &graph = node.graph;
  Extents &extents = node.extents;
  FailureOr<Tensor> rows = readRows(node);
  if (failed(rows))
    return failure();
  const Extent size = rows->shape[3];
  int64_t given = node.integer("rotary_embedding_dim", 0);
  Extent width = given ? Extent(given) : size;
  std::optional<Extent> half = extents.divideExactly(width, Extent(2));
  if (given < 0 || !half || !extents.isAtMost(width, size))
    return node.badSizes({width, size})
           << "pairs of " << extents.toString(width) << " elements of "
           << extents.toString(size)
           << "; expected an even number, at most all";
  Tensor first = graph.slice(*rows, 3, 0, width, 1);
  FailureOr<Tensor> result = rotate(node, first, *half);
  if (failed(result))
    return failure();
  Extent rest = extents.sub(size, width);
  if (!rest.is(0)) {
    Tensor others = graph.slice(*rows, 3, width, rest, 1);
    result = join(node, {&*result, &others}, 3);
    if (failed(result))
      return failure();
  }
  Tensor &input = node.input(0);
  if (input.rank() == 4)
    return node.give(graph.transpose(*result, {0, 2, 1, 3}));
  result = graph.reshape(*result, input.shape);
  return failed(result) ? failure() : node.give(std::move(*result));
}

ArrayRef<Operator> refold::onnx::rotaryOperators() {
  static const Operator rows[] = {
      {"RotaryEmbedding", 23, kLastOpset,
       "interleaved:i num_heads:i rotary_embedding_dim:i", 3, 4,
       lowerRotaryEmbedding},
  };
  return rows;
}
