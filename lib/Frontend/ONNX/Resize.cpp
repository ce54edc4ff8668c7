// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Resize: an element is the sum of a few elements of each axis, whose positions
// and weights depend on its own subscript alone. They are tables: numbers where
// the extents are, computed by the program where the extents have names.
#include "Operators.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>

using namespace mlir;
using namespace refold::onnx;

namespace {
/// How an axis is read, as the attributes say.
struct Rule {
  enum class Filter { Nearest, Linear, Cubic } filter = Filter::Nearest;
  std::string coordinates, rounding;
  double cubic = -0.75;
  bool excludesOutside = false;

  unsigned numTaps() const {
    return filter == Filter::Nearest ? 1 : filter == Filter::Linear ? 2 : 4;
  }
};

/// An axis whose extent changes.
struct ResizedAxis {
  unsigned axis = 0;
  Extent in, out;
  std::optional<float> scale; ///< as given; else out / in
};

/// Numbers while importing: what formulas of positions are written in.
struct Numbers {
  using T = float;
  using Flag = bool;
  static T of(double value) { return float(value); }
  static T add(T a, T b) { return a + b; }
  static T sub(T a, T b) { return a - b; }
  static T mul(T a, T b) { return a * b; }
  static T div(T a, T b) { return a / b; }
  static T floor(T a) { return std::floor(a); }
  static T ceil(T a) { return std::ceil(a); }
  static T min(T a, T b) { return std::min(a, b); }
  static T max(T a, T b) { return std::max(a, b); }
  static Flag equal(T a, T b) { return a == b; }
  static T select(Flag flag, T a, T b) { return flag ? a : b; }
};

/// The same in a body of the program.
struct Emitted {
  Body &body;
  using T = Value;
  using Flag = Value;
  T of(double value) { return body.real(body.builder.getF32Type(), value); }
  T add(T a, T b) { return body.make<arith::AddFOp>(a, b); }
  T sub(T a, T b) { return body.make<arith::SubFOp>(a, b); }
  T mul(T a, T b) { return body.make<arith::MulFOp>(a, b); }
  T div(T a, T b) { return body.make<arith::DivFOp>(a, b); }
  T floor(T a) { return body.make<math::FloorOp>(a); }
  T ceil(T a) { return body.make<math::CeilOp>(a); }
  T min(T a, T b) { return body.make<arith::MinimumFOp>(a, b); }
  T max(T a, T b) { return body.make<arith::MaximumFOp>(a, b); }
  Flag equal(T a, T b) {
    return body.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, a, b);
  }
  T select(Flag flag, T a, T b) {
    return body.make<arith::SelectOp>(flag, a, b);
  }
};

/// Where element `at` of an axis lies on the axis before, by the formulas of
/// the specification.
template <typename Math> struct Place {
  Math math;
  const Rule &rule;
  typename Math::T in, out, scale;
  using T = typename Math::T;

  T coordinate(T at) {
    T half = math.of(0.5), one = math.of(1), zero = math.of(0);
    if (rule.coordinates == "asymmetric")
      return math.div(at, scale);
    if (rule.coordinates == "align_corners") {
      T steps = math.max(math.sub(out, one), one);
      return math.select(math.equal(out, one), zero,
                         math.div(math.mul(at, math.sub(in, one)), steps));
    }
    T middle = math.sub(math.div(math.add(at, half), scale), half);
    if (rule.coordinates == "pytorch_half_pixel")
      return math.select(math.equal(out, one), zero, middle);
    if (rule.coordinates == "half_pixel_symmetric") {
      T share = math.div(out, math.mul(scale, in));
      T offset = math.mul(math.mul(in, half), math.sub(one, share));
      return math.add(offset, middle);
    }
    return middle;
  }

  T inside(T position) {
    return math.max(math.of(0), math.min(position, math.sub(in, math.of(1))));
  }

  T nearest(T x) {
    T half = math.of(0.5);
    if (rule.rounding == "floor")
      return math.floor(x);
    if (rule.rounding == "ceil")
      return math.ceil(x);
    return rule.rounding == "round_prefer_ceil" ? math.floor(math.add(x, half))
                                                : math.ceil(math.sub(x, half));
  }

  /// The cubic of a tap at a distance of at most 1, and of at most 2.
  T near(T distance) {
    double a = rule.cubic;
    T inner = math.sub(math.mul(math.of(a + 2), distance), math.of(a + 3));
    return math.add(math.mul(math.mul(inner, distance), distance), math.of(1));
  }
  T far(T distance) {
    double a = rule.cubic;
    T sum = math.sub(math.mul(math.of(a), distance), math.of(5 * a));
    sum = math.add(math.mul(sum, distance), math.of(8 * a));
    return math.sub(math.mul(sum, distance), math.of(4 * a));
  }

  struct Taps {
    SmallVector<T, 4> positions, weights;
  };
  Taps taps(T at) {
    T x = coordinate(at), one = math.of(1);
    if (rule.filter == Rule::Filter::Nearest)
      return {{inside(nearest(x))}, {one}};
    T first = math.floor(x), share = math.sub(x, first);
    T rest = math.sub(one, share);
    Taps taps;
    if (rule.filter == Rule::Filter::Linear)
      return {{inside(first), inside(math.add(first, one))}, {rest, share}};
    for (int k = -1; k <= 2; ++k)
      taps.positions.push_back(math.add(first, math.of(k)));
    taps.weights = {far(math.add(share, one)), near(share), near(rest),
                    far(math.add(rest, one))};
    T sum = math.of(0);
    for (auto [position, weight] :
         llvm::zip_equal(taps.positions, taps.weights)) {
      T within = inside(position);
      if (rule.excludesOutside)
        weight = math.select(math.equal(within, position), weight, math.of(0));
      sum = math.add(sum, weight);
      position = within;
    }
    if (rule.excludesOutside)
      for (T &weight : taps.weights)
        weight = math.div(weight, sum);
    return taps;
  }
};

/// Positions (i64) and weights (f32) of each tap, along the axis.
struct Tables {
  SmallVector<Tensor, 4> positions, weights;
};
} // namespace

/// A larger table is computed by the program.
static constexpr int64_t kMostTabled = 1 << 20;

static Tensor tableOf(ElementType type, const Extent &size,
                      ElementsAttr elements) {
  Tensor table;
  table.type = type;
  table.shape = {size};
  table.constant = elements;
  return table;
}

static Tables knownTables(GraphBuilder &graph, const ResizedAxis &axis,
                          const Rule &rule) {
  int64_t in = *axis.in.constant(), out = *axis.out.constant();
  float scale = axis.scale.value_or(float(out) / float(in));
  Place<Numbers> place{{}, rule, float(in), float(out), scale};
  SmallVector<std::vector<int64_t>, 4> positions(rule.numTaps());
  SmallVector<std::vector<float>, 4> weights(rule.numTaps());
  for (int64_t at = 0; at < out; ++at) {
    auto taps = place.taps(float(at));
    for (unsigned k = 0; k < rule.numTaps(); ++k) {
      positions[k].push_back(int64_t(taps.positions[k]));
      weights[k].push_back(taps.weights[k]);
    }
  }
  Tables tables;
  auto i64 = RankedTensorType::get({out}, graph.ops.getI64Type());
  auto f32 = RankedTensorType::get({out}, graph.ops.getF32Type());
  for (unsigned k = 0; k < rule.numTaps(); ++k) {
    tables.positions.push_back(
        tableOf(ElementType::I64, axis.out,
                DenseElementsAttr::get(i64, ArrayRef(positions[k]))));
    tables.weights.push_back(
        tableOf(ElementType::F32, axis.out,
                DenseElementsAttr::get(f32, ArrayRef(weights[k]))));
  }
  return tables;
}

static Tables computedTables(GraphBuilder &graph, const ResizedAxis &axis,
                             const Rule &rule) {
  Type f32 = graph.ops.getF32Type(), i64 = graph.ops.getI64Type();
  auto tapsIn = [&](Body &body, Value at) {
    Emitted math{body};
    Value in = graph.extentIn(body, axis.in, f32);
    Value out = graph.extentIn(body, axis.out, f32);
    Value scale = axis.scale ? math.of(*axis.scale) : math.div(out, in);
    Value wide = body.make<arith::IndexCastOp>(i64, at);
    return Place<Emitted>{math, rule, in, out, scale}.taps(
        body.make<arith::SIToFPOp>(f32, wide));
  };
  Tables tables;
  for (unsigned k = 0; k < rule.numTaps(); ++k) {
    tables.positions.push_back(
        graph.generate({axis.out}, ElementType::I64, i64,
                       [&](Body &body, ValueRange at) -> Value {
                         return body.make<arith::FPToSIOp>(
                             i64, tapsIn(body, at[0]).positions[k]);
                       }));
    tables.weights.push_back(
        graph.generate({axis.out}, ElementType::F32, f32,
                       [&](Body &body, ValueRange at) -> Value {
                         return tapsIn(body, at[0]).weights[k];
                       }));
  }
  return tables;
}

/// The data over dimension `axis` of its own memory, as the tables say.
static Tensor readTaps(GraphBuilder &graph, Tensor &data, unsigned axis,
                       const Extent &size, Tables &tables) {
  Value source = graph.valueOf(data);
  Shape shape = data.shape;
  shape[axis] = size;
  unsigned rank = shape.size(), numTaps = tables.positions.size();
  bool isWeighted = numTaps > 1;
  Type element = isWeighted ? computeType(graph.ops, data.type)
                            : getElementTypeOrSelf(source);
  OpBuilder &ops = graph.ops;
  AffineMap along =
      AffineMap::get(rank, 0, ops.getAffineDimExpr(axis), ops.getContext());
  SmallVector<Value> operands;
  for (auto *list : {&tables.positions, &tables.weights})
    if (list == &tables.positions || isWeighted)
      for (Tensor &table : *list)
        operands.push_back(graph.valueOf(table));
  SmallVector<AffineMap> maps(operands.size(), along);
  maps.push_back(ops.getMultiDimIdentityMap(rank));
  SmallVector<utils::IteratorType> iterators(rank,
                                             utils::IteratorType::parallel);
  Value init = graph.empty(shape, element);
  auto generic = ops.create<linalg::GenericOp>(
      graph.loc, init.getType(), operands, init, maps, iterators,
      [&](OpBuilder &builder, Location loc, ValueRange args) {
        Body body{builder, loc};
        SmallVector<Value> at;
        for (unsigned k = 0; k < rank; ++k)
          at.push_back(builder.create<linalg::IndexOp>(loc, k));
        Value sum;
        for (unsigned k = 0; k < numTaps; ++k) {
          at[axis] =
              body.make<arith::IndexCastOp>(builder.getIndexType(), args[k]);
          Value value = body.make<tensor::ExtractOp>(source, at);
          if (isWeighted) {
            Value weight = args[numTaps + k];
            if (weight.getType() != element)
              weight = body.make<arith::ExtFOp>(element, weight);
            value = body.make<arith::MulFOp>(body.toCompute(value), weight);
          }
          sum = sum ? body.make<arith::AddFOp>(sum, value) : value;
        }
        builder.create<linalg::YieldOp>(loc, sum);
      });
  return graph.tensorOf(generic.getResult(0), data.type, shape);
}

/// How many times each element of the axis stands in the result, where that is
/// all that happens to it.
static std::optional<int64_t>
repeatsOf(Extents &extents, const ResizedAxis &axis, const Rule &rule) {
  bool cuts = rule.coordinates == "asymmetric" && rule.rounding == "floor";
  bool rounds = rule.coordinates.find("half_pixel") != std::string::npos &&
                StringRef(rule.rounding).starts_with("round");
  if (rule.filter != Rule::Filter::Nearest || !(cuts || rounds))
    return std::nullopt;
  auto times = extents.divideExactly(axis.out, axis.in);
  std::optional<int64_t> count = times ? times->constant() : std::nullopt;
  if (!count || *count < 1 || (axis.scale && *axis.scale != float(*count)))
    return std::nullopt;
  return count;
}

static FailureOr<Tensor> repeated(GraphBuilder &graph, Tensor &data,
                                  unsigned axis, const Extent &size,
                                  int64_t times) {
  Shape apart = data.shape;
  apart.insert(apart.begin() + axis + 1, Extent(1));
  FailureOr<Tensor> view = graph.reshape(data, apart);
  if (failed(view))
    return failure();
  apart[axis + 1] = Extent(times);
  Tensor wide = graph.broadcastTo(*view, apart);
  Shape shape = data.shape;
  shape[axis] = size;
  return graph.reshape(wide, shape);
}

/// One axis, in the order in which the tensor lies in memory.
static FailureOr<Tensor> resizeAxis(Node &node, Tensor &tensor,
                                    const ResizedAxis &axis, const Rule &rule) {
  GraphBuilder &graph = node.graph;
  graph.build(tensor);
  bool isPlain =
      llvm::all_of(tensor.dims, [](auto &list) { return list.size() == 1; });
  if (!isPlain || tensor.baseShape.size() != tensor.rank())
    graph.valueOf(tensor);
  Tensor lying = graph.tensorOf(tensor.base, tensor.type, tensor.baseShape);
  unsigned along = tensor.dims[axis.axis].front();
  FailureOr<Tensor> resized;
  if (auto times = repeatsOf(node.extents, axis, rule)) {
    resized = repeated(graph, lying, along, axis.out, *times);
    if (failed(resized))
      return failure();
    graph.valueOf(*resized);
  } else {
    auto small = [](const Extent &extent) {
      return extent.constant().value_or(kMostTabled + 1) <= kMostTabled;
    };
    Tables tables = small(axis.in) && small(axis.out)
                        ? knownTables(graph, axis, rule)
                        : computedTables(graph, axis, rule);
    resized = readTaps(graph, lying, along, axis.out, tables);
  }
  SmallVector<unsigned> order;
  for (auto &list : tensor.dims)
    order.push_back(list.front());
  return graph.transpose(*resized, order);
}

//===- What the node says ===//

static FailureOr<Rule> readRule(Node &node) {
  Rule rule;
  std::string mode = node.string("mode", "nearest");
  if (mode == "linear")
    rule.filter = Rule::Filter::Linear;
  else if (mode == "cubic")
    rule.filter = Rule::Filter::Cubic;
  else if (mode != "nearest") {
    node.error() << "mode is '" << mode
                 << "'; expected nearest, linear or cubic";
    return failure();
  }
  rule.coordinates =
      node.string("coordinate_transformation_mode", "half_pixel");
  rule.rounding = node.string("nearest_mode", "round_prefer_floor");
  rule.cubic = node.real("cubic_coeff_a", -0.75);
  rule.excludesOutside = node.integer("exclude_outside", 0) != 0;
  static const char *const coordinates[] = {
      "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
      "align_corners", "asymmetric"};
  static const char *const roundings[] = {"round_prefer_floor",
                                          "round_prefer_ceil", "floor", "ceil"};
  if (!llvm::is_contained(coordinates, rule.coordinates)) {
    (rule.coordinates == "tf_crop_and_resize" ? node.unsupported()
                                              : node.error())
        << "coordinate_transformation_mode is '" << rule.coordinates
        << "'; expected half_pixel, half_pixel_symmetric, "
           "pytorch_half_pixel, align_corners or asymmetric";
    return failure();
  }
  if (!llvm::is_contained(roundings, rule.rounding)) {
    node.error() << "nearest_mode is '" << rule.rounding
                 << "'; expected round_prefer_floor, round_prefer_ceil, floor "
                    "or ceil";
    return failure();
  }
  if (node.integer("antialias", 0)) {
    node.unsupported() << "antialias is set; expected 0";
    return failure();
  }
  return rule;
}

/// floor(extent * scale), if that is a number or the scale is a fraction whose
/// divisor is a small power of two.
static std::optional<Extent> scaled(Extents &extents, const Extent &extent,
                                    float scale) {
  if (std::optional<int64_t> number = extent.constant())
    return Extent(int64_t(std::floor(float(*number) * scale)));
  int64_t divisor = 1;
  while (divisor <= 1024 &&
         scale * float(divisor) != std::floor(scale * float(divisor)))
    divisor *= 2;
  if (divisor > 1024 || scale * float(divisor) > 1 << 20)
    return std::nullopt;
  return extents.floorDiv(
      extents.mul(extent, Extent(int64_t(scale * float(divisor)))),
      Extent(divisor));
}

static bool isGiven(Node &node, unsigned i) {
  return node.hasInput(i) &&
         !(node.input(i).rank() == 1 && node.input(i).shape[0].is(0));
}

static LogicalResult readScales(Node &node, ArrayRef<unsigned> axes,
                                SmallVectorImpl<ResizedAxis> &resized) {
  Tensor &given = node.input(2);
  bool isList = given.rank() == 1 && given.shape[0].is(int64_t(axes.size()));
  if (!isList)
    return node.error() << "scales of shape "
                        << toString(node.extents, given.shape) << " for "
                        << axes.size() << " axes; expected one an axis";
  if (!given.isKnown())
    return node.unsupported() << "the scales depend on data or sizes; expected "
                                 "constants, or sizes in their place";
  for (auto [k, axis] : llvm::enumerate(axes)) {
    double scale = *given.known[given.known.size() == 1 ? 0 : k].real;
    if (!(scale > 0) || scale > 1 << 20)
      return node.error() << "scale " << scale
                          << "; expected one above 0, at most 2^20";
    const Extent &in = node.input(0).shape[axis];
    std::optional<Extent> out = scaled(node.extents, in, float(scale));
    if (!out)
      return node.unsupported()
             << "scale " << scale << " of an extent of "
             << node.extents.toString(in)
             << "; expected a fraction of a power of two up to 1024";
    resized.push_back({axis, in, *out, float(scale)});
  }
  return success();
}

/// One scale for all axes, so that no extent is above its size, or none below.
static LogicalResult keepRatio(Node &node, StringRef policy,
                               MutableArrayRef<ResizedAxis> resized) {
  if (policy == "stretch")
    return success();
  bool isLarger = policy == "not_smaller";
  if (!isLarger && policy != "not_larger")
    return node.error() << "keep_aspect_ratio_policy is '" << policy
                        << "'; expected stretch, not_larger or not_smaller";
  std::optional<float> scale;
  for (const ResizedAxis &axis : resized) {
    std::optional<int64_t> in = axis.in.constant(), out = axis.out.constant();
    if (!in || !out || *in < 1)
      return node.unsupported()
             << "keep_aspect_ratio_policy is '" << policy
             << "' for an extent of " << node.extents.toString(axis.in)
             << " that becomes " << node.extents.toString(axis.out)
             << "; expected numbers";
    float own = float(*out) / float(*in);
    scale = !scale     ? own
            : isLarger ? std::max(*scale, own)
                       : std::min(*scale, own);
  }
  for (ResizedAxis &axis : resized) {
    axis.scale = *scale;
    axis.out =
        Extent(int64_t(std::floor(*scale * float(*axis.in.constant()) + 0.5f)));
  }
  return success();
}

static FailureOr<SmallVector<ResizedAxis>> readAxes(Node &node) {
  Tensor &input = node.input(0);
  SmallVector<unsigned> axes;
  SmallVector<int64_t> given = node.integers("axes");
  if (!node.has("axes"))
    for (unsigned k = 0; k < input.rank(); ++k)
      given.push_back(k);
  if (failed(node.axisSet(given, input.rank())))
    return failure();
  for (int64_t axis : given)
    axes.push_back(*node.axis(axis, input.rank()));
  SmallVector<ResizedAxis> resized;
  bool hasScales = isGiven(node, 2), hasSizes = isGiven(node, 3);
  if (hasScales == hasSizes) {
    node.error() << (hasScales ? "both of scales and sizes"
                               : "neither scales nor sizes")
                 << "; expected one of them";
    return failure();
  }
  if (hasScales) {
    if (failed(readScales(node, axes, resized)))
      return failure();
    return resized;
  }
  FailureOr<Shape> sizes = node.extentsOf(3, "the sizes");
  if (failed(sizes))
    return failure();
  if (sizes->size() != axes.size()) {
    node.error() << sizes->size() << " sizes for " << axes.size()
                 << " axes; expected one an axis";
    return failure();
  }
  for (auto [size, axis] : llvm::zip_equal(*sizes, axes)) {
    if (!node.extents.isNonNegative(size)) {
      node.badSizes(size) << "size " << node.extents.toString(size)
                          << "; expected one that is at least 0";
      return failure();
    }
    resized.push_back({axis, input.shape[axis], size, std::nullopt});
  }
  if (failed(keepRatio(node, node.string("keep_aspect_ratio_policy", "stretch"),
                       resized)))
    return failure();
  return resized;
}

static LogicalResult lowerResize(Node &node) {
  FailureOr<Rule> rule = readRule(node);
  if (failed(rule))
    return failure();
  if (rule->filter != Rule::Filter::Nearest && failed(node.requireFloatHere(0)))
    return failure();
  auto axes = readAxes(node);
  if (failed(axes))
    return failure();
  Tensor result = node.input(0);
  for (const ResizedAxis &axis : *axes) {
    if (node.extents.areEqual(axis.in, axis.out) && axis.scale.value_or(1) == 1)
      continue;
    if (failed(node.graph.requireAtMost(Extent(1), axis.in,
                                        "the extent that is resized")))
      return node.error() << "dimension " << axis.axis
                          << " of input 0 has no elements; expected at least 1";
    FailureOr<Tensor> resized = resizeAxis(node, result, axis, *rule);
    if (failed(resized))
      return node.beyondLimit() << "the sizes overflow; expected smaller ones";
    result = std::move(*resized);
  }
  return node.give(std::move(result));
}

ArrayRef<Operator> refold::onnx::resizeOperators() {
  static const Operator rows[] = {
      {"Resize", 13, 17,
       "coordinate_transformation_mode:s cubic_coeff_a:f exclude_outside:i "
       "extrapolation_value:f mode:s nearest_mode:s",
       1, 4, lowerResize},
      {"Resize", 18, kLastOpset,
       "antialias:i axes:is coordinate_transformation_mode:s cubic_coeff_a:f "
       "exclude_outside:i extrapolation_value:f keep_aspect_ratio_policy:s "
       "mode:s nearest_mode:s",
       1, 4, lowerResize},
  };
  return rows;
}
