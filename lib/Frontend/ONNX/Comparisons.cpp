// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Comparisons, logic and selection.
#include "Elementwise.h"
#include "Operators.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <cmath>

using namespace mlir;
using namespace refold::onnx;

template <typename Compare>
static Scalar
foldOrder(Extents &extents, ArrayRef<Scalar> in, Compare real,
          bool (*proves)(Extents &, const Extent &, const Extent &),
          bool (*refutes)(Extents &, const Extent &, const Extent &)) {
  if (in[0].real)
    return ofBool(real(*in[0].real, *in[1].real));
  const Extent &a = *in[0].integer, &b = *in[1].integer;
  if (proves(extents, a, b))
    return ofBool(true);
  return refutes(extents, a, b) ? ofBool(false) : Scalar();
}

static bool isEqual(Extents &e, const Extent &a, const Extent &b) {
  return e.areEqual(a, b);
}
static bool isUnequal(Extents &e, const Extent &a, const Extent &b) {
  return e.areUnequal(a, b);
}
static bool isAtMost(Extents &e, const Extent &a, const Extent &b) {
  return e.isAtMost(a, b);
}
static bool isLess(Extents &e, const Extent &a, const Extent &b) {
  return e.isAtMost(e.add(a, 1), b);
}
static bool isAtLeast(Extents &e, const Extent &a, const Extent &b) {
  return e.isAtMost(b, a);
}
static bool isMore(Extents &e, const Extent &a, const Extent &b) {
  return isLess(e, b, a);
}

static Scalar foldEqual(Extents &e, ArrayRef<Scalar> in) {
  return foldOrder(e, in, std::equal_to<double>(), isEqual, isUnequal);
}
static Scalar foldLess(Extents &e, ArrayRef<Scalar> in) {
  return foldOrder(e, in, std::less<double>(), isLess, isAtLeast);
}
static Scalar foldLessEqual(Extents &e, ArrayRef<Scalar> in) {
  return foldOrder(e, in, std::less_equal<double>(), isAtMost, isMore);
}
static Scalar foldGreater(Extents &e, ArrayRef<Scalar> in) {
  return foldOrder(e, in, std::greater<double>(), isMore, isAtMost);
}
static Scalar foldGreaterEqual(Extents &e, ArrayRef<Scalar> in) {
  return foldOrder(e, in, std::greater_equal<double>(), isAtLeast, isLess);
}

static Scalar foldNot(Extents &, ArrayRef<Scalar> in) {
  return ofBool(in[0].integer->is(0));
}

static Scalar foldAnd(Extents &, ArrayRef<Scalar> in) {
  return ofBool(in[0].integer->is(1) && in[1].integer->is(1));
}

static Scalar foldOr(Extents &, ArrayRef<Scalar> in) {
  return ofBool(in[0].integer->is(1) || in[1].integer->is(1));
}

static Scalar foldXor(Extents &, ArrayRef<Scalar> in) {
  return ofBool(in[0].integer->is(1) != in[1].integer->is(1));
}

static Scalar foldWhere(Extents &, ArrayRef<Scalar> in) {
  return in[0].integer->is(1) ? in[1] : in[2];
}

/// Provably the same for all subscripts: a mask that masks nothing.
static std::optional<Scalar> foldRanges(Node &node, ArrayRef<Extent> shape,
                                        FoldFn fold) {
  Extents &extents = node.extents;
  if (isFloat(typeOfFirst(node)))
    return std::nullopt;
  std::optional<IndexForm> a = formOver(extents, node.input(0), shape),
                           b = formOver(extents, node.input(1), shape);
  if (!a || !b)
    return std::nullopt;
  std::optional<Interval> x = rangeOf(extents, a->parts.front(), shape),
                          y = rangeOf(extents, b->parts.front(), shape);
  if (!x || !y)
    return std::nullopt;
  Scalar low = fold(extents, {Scalar::of(x->least), Scalar::of(y->most)});
  Scalar high = fold(extents, {Scalar::of(x->most), Scalar::of(y->least)});
  if (low.isKnown() && high.isKnown() && *low.integer == *high.integer)
    return low;
  return std::nullopt;
}

static LogicalResult lowerOrder(Node &node, arith::CmpFPredicate real,
                                arith::CmpIPredicate isSigned,
                                arith::CmpIPredicate isUnsigned, FoldFn fold) {
  if (failed(node.requireSameTypes()))
    return failure();
  FailureOr<Shape> shape = node.broadcast(node.allInputs());
  if (failed(shape))
    return failure();
  // Equal at both ends says nothing of what lies between, so only for orders.
  if (real != arith::CmpFPredicate::OEQ)
    if (std::optional<Scalar> same = foldRanges(node, *shape, fold))
      return node.give(
          node.graph.knownTensor(ElementType::Bool, *shape, {*same}));
  ElementType type = typeOfFirst(node);
  bool usesUnsigned = type == ElementType::U8 || type == ElementType::Bool;
  return lowerElementwise(
      node, node.allInputs(), ElementType::Bool,
      [&](Body &body, ValueRange in) -> Value {
        if (isa<FloatType>(in[0].getType()))
          return body.make<arith::CmpFOp>(real, in[0], in[1]);
        return body.make<arith::CmpIOp>(usesUnsigned ? isUnsigned : isSigned,
                                        in[0], in[1]);
      },
      fold);
}

template <typename Op>
static LogicalResult lowerLogic(Node &node, FoldFn fold,
                                std::optional<bool> neutral) {
  for (Tensor *input : node.allInputs())
    if (input->type != ElementType::Bool)
      return node.error() << "an input is of type " << typeName(input->type)
                          << "; expected bool";
  FailureOr<Shape> shape = node.broadcast(node.allInputs());
  if (failed(shape))
    return failure();
  // `true and x` is x: the mask of an encoder is only the padding.
  for (unsigned i : {0, 1}) {
    const Scalar *one = node.input(i).splat();
    if (one && neutral && one->integer->is(*neutral))
      return node.give(node.graph.broadcastTo(node.input(1 - i), *shape));
  }
  return lowerElementwise(
      node, node.allInputs(), ElementType::Bool,
      [](Body &body, ValueRange in) { return body.make<Op>(in[0], in[1]); },
      fold);
}

static LogicalResult lowerNot(Node &node) {
  if (node.input(0).type != ElementType::Bool)
    return node.error() << "input 0 is of type " << typeName(typeOfFirst(node))
                        << "; expected bool";
  return lowerElementwise(
      node, node.allInputs(), ElementType::Bool,
      [](Body &body, ValueRange in) -> Value {
        return body.make<arith::XOrIOp>(in[0],
                                        body.integer(in[0].getType(), 1));
      },
      foldNot);
}

static LogicalResult lowerWhere(Node &node) {
  if (node.input(0).type != ElementType::Bool)
    return node.error() << "the condition is of type "
                        << typeName(typeOfFirst(node)) << "; expected bool";
  if (failed(node.requireSameTypes(1)))
    return failure();
  FailureOr<Shape> shape = node.broadcast(node.allInputs());
  if (failed(shape))
    return failure();
  const Scalar *condition = node.input(0).splat();
  if (condition)
    return node.give(node.graph.broadcastTo(
        node.input(condition->integer->is(1) ? 1 : 2), *shape));
  return lowerElementwise(
      node, node.allInputs(), node.input(1).type,
      [](Body &body, ValueRange in) -> Value {
        return body.make<arith::SelectOp>(in[0], in[1], in[2]);
      },
      foldWhere);
}

static LogicalResult lowerIsNaN(Node &node) {
  if (failed(node.requireFloat(0)))
    return failure();
  return lowerElementwise(
      node, node.allInputs(), ElementType::Bool,
      [](Body &body, ValueRange in) -> Value {
        return body.make<arith::CmpFOp>(arith::CmpFPredicate::UNO, in[0],
                                        in[0]);
      },
      [](Extents &, ArrayRef<Scalar> in) {
        return ofBool(std::isnan(*in[0].real));
      });
}

static LogicalResult lowerIsInf(Node &node) {
  if (failed(node.requireFloat(0)))
    return failure();
  bool takesPositive = node.integer("detect_positive", 1) != 0;
  bool takesNegative = node.integer("detect_negative", 1) != 0;
  return lowerElementwise(
      node, node.allInputs(), ElementType::Bool,
      [&](Body &body, ValueRange in) -> Value {
        Type type = in[0].getType();
        Value result = body.integer(body.builder.getI1Type(), 0);
        for (auto [takes, value] : {std::pair(takesPositive, HUGE_VAL),
                                    std::pair(takesNegative, -HUGE_VAL)})
          if (takes)
            result = body.make<arith::OrIOp>(
                result,
                body.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, in[0],
                                         body.real(type, value)));
        return result;
      });
}

ArrayRef<Operator> refold::onnx::comparisonOperators() {
  using arith::CmpFPredicate, arith::CmpIPredicate;
  static const Operator rows[] = {
      {"And", 13, kLastOpset, "", 2, 2,
       [](Node &n) { return lowerLogic<arith::AndIOp>(n, foldAnd, true); }},
      {"Equal", 13, kLastOpset, "", 2, 2,
       [](Node &n) {
         return lowerOrder(n, CmpFPredicate::OEQ, CmpIPredicate::eq,
                           CmpIPredicate::eq, foldEqual);
       }},
      {"Greater", 13, kLastOpset, "", 2, 2,
       [](Node &n) {
         return lowerOrder(n, CmpFPredicate::OGT, CmpIPredicate::sgt,
                           CmpIPredicate::ugt, foldGreater);
       }},
      {"GreaterOrEqual", 13, kLastOpset, "", 2, 2,
       [](Node &n) {
         return lowerOrder(n, CmpFPredicate::OGE, CmpIPredicate::sge,
                           CmpIPredicate::uge, foldGreaterEqual);
       }},
      {"IsInf", 13, kLastOpset, "detect_negative:i detect_positive:i", 1, 1,
       lowerIsInf},
      {"IsNaN", 13, kLastOpset, "", 1, 1, lowerIsNaN},
      {"Less", 13, kLastOpset, "", 2, 2,
       [](Node &n) {
         return lowerOrder(n, CmpFPredicate::OLT, CmpIPredicate::slt,
                           CmpIPredicate::ult, foldLess);
       }},
      {"LessOrEqual", 13, kLastOpset, "", 2, 2,
       [](Node &n) {
         return lowerOrder(n, CmpFPredicate::OLE, CmpIPredicate::sle,
                           CmpIPredicate::ule, foldLessEqual);
       }},
      {"Not", 13, kLastOpset, "", 1, 1, lowerNot},
      {"Or", 13, kLastOpset, "", 2, 2,
       [](Node &n) { return lowerLogic<arith::OrIOp>(n, foldOr, false); }},
      {"Where", 13, kLastOpset, "", 3, 3, lowerWhere},
      {"Xor", 13, kLastOpset, "", 2, 2,
       [](Node &n) {
         return lowerLogic<arith::XOrIOp>(n, foldXor, std::nullopt);
       }},
  };
  return rows;
}
