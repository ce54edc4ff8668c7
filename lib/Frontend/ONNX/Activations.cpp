// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Activations: their formulas in exp, tanh, erf and selections.
#include "Elementwise.h"
#include "Operators.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>
#include <numbers>

using namespace mlir;
using namespace refold::onnx;

/// 1 / (1 + e^-x).
static Value emitSigmoid(Body &body, Value x) {
  Value one = body.real(x.getType(), 1);
  Value e = body.make<math::ExpOp>(body.make<arith::NegFOp>(x));
  return body.make<arith::DivFOp>(one, body.make<arith::AddFOp>(one, e));
}

/// max(x, 0) + log(1 + e^-|x|), which does not overflow.
static Value emitSoftplus(Body &body, Value x) {
  Value zero = body.real(x.getType(), 0);
  Value size = body.make<math::AbsFOp>(x);
  Value e = body.make<math::ExpOp>(body.make<arith::NegFOp>(size));
  Value positive = body.make<arith::MaximumFOp>(x, zero);
  return body.make<arith::AddFOp>(positive, body.make<math::Log1pOp>(e));
}

/// positive(x) where x >= 0 (and for NaN), negative(x) below.
static Value emitBySign(Body &body, Value x, Value positive, Value negative) {
  Value isNegative = body.make<arith::CmpFOp>(arith::CmpFPredicate::OLT, x,
                                              body.real(x.getType(), 0));
  return body.make<arith::SelectOp>(isNegative, negative, positive);
}

static Value emitScaled(Body &body, Value x, double factor) {
  return body.make<arith::MulFOp>(x, body.real(x.getType(), factor));
}

static LogicalResult lowerLeaky(Node &node) {
  double alpha = node.real("alpha", 0.01);
  return lowerReal(node, [&](Body &body, ValueRange in) {
    return emitBySign(body, in[0], in[0], emitScaled(body, in[0], alpha));
  });
}

static LogicalResult lowerPRelu(Node &node) {
  if (failed(node.requireFloatHere(0)) || failed(node.requireSameTypes()))
    return failure();
  return lowerElementwise(
      node, node.allInputs(), typeOfFirst(node), [](Body &body, ValueRange in) {
        return emitBySign(body, in[0], in[0],
                          body.make<arith::MulFOp>(in[0], in[1]));
      });
}

/// Elu, Selu and Celu: a (e^(x/c) - 1) below 0, all of it times g.
static LogicalResult lowerExponentialUnit(Node &node) {
  StringRef op = node.op();
  bool isSelu = op == "Selu", isCelu = op == "Celu";
  double alpha = node.real("alpha", isSelu ? 1.67326319217681884765625 : 1.0);
  double gamma = isSelu ? node.real("gamma", 1.05070102214813232421875) : 1.0;
  return lowerReal(node, [&](Body &body, ValueRange in) {
    Value x = in[0];
    Value inner = isCelu ? emitScaled(body, x, 1 / alpha) : x;
    Value below = emitScaled(body, body.make<math::ExpM1Op>(inner), alpha);
    Value value = emitBySign(body, x, x, below);
    return isSelu ? emitScaled(body, value, gamma) : value;
  });
}

/// max(0, min(1, a x + b)).
static Value emitHardSigmoid(Body &body, Value x, double alpha, double beta) {
  Type type = x.getType();
  Value line = body.make<arith::AddFOp>(emitScaled(body, x, alpha),
                                        body.real(type, beta));
  Value capped = body.make<arith::MinimumFOp>(line, body.real(type, 1));
  return body.make<arith::MaximumFOp>(capped, body.real(type, 0));
}

static LogicalResult lowerHardSigmoid(Node &node) {
  double alpha = node.real("alpha", 0.2), beta = node.real("beta", 0.5);
  return lowerReal(node, [&](Body &body, ValueRange in) {
    return emitHardSigmoid(body, in[0], alpha, beta);
  });
}

static LogicalResult lowerHardSwish(Node &node) {
  return lowerReal(node, [](Body &body, ValueRange in) -> Value {
    return body.make<arith::MulFOp>(in[0],
                                    emitHardSigmoid(body, in[0], 1.0 / 6, 0.5));
  });
}

static LogicalResult lowerThresholded(Node &node) {
  double alpha = node.real("alpha", 1.0);
  return lowerReal(node, [&](Body &body, ValueRange in) -> Value {
    Type type = in[0].getType();
    Value passes = body.make<arith::CmpFOp>(arith::CmpFPredicate::OGT, in[0],
                                            body.real(type, alpha));
    return body.make<arith::SelectOp>(passes, in[0], body.real(type, 0));
  });
}

/// x/2 (1 + erf(x / √2)), or the approximation by tanh.
static LogicalResult lowerGelu(Node &node) {
  std::string how = node.string("approximate", "none");
  if (how != "none" && how != "tanh")
    return node.error() << "approximate is '" << how
                        << "'; expected 'none' or 'tanh'";
  return lowerReal(node, [&](Body &body, ValueRange in) -> Value {
    Value x = in[0];
    Value one = body.real(x.getType(), 1), inner;
    if (how == "none") {
      inner =
          body.make<math::ErfOp>(emitScaled(body, x, std::numbers::sqrt2 / 2));
    } else {
      Value cube = body.make<arith::MulFOp>(body.make<arith::MulFOp>(x, x), x);
      Value sum = body.make<arith::AddFOp>(x, emitScaled(body, cube, 0.044715));
      inner = body.make<math::TanhOp>(
          emitScaled(body, sum, std::sqrt(2 / std::numbers::pi)));
    }
    Value half = emitScaled(body, x, 0.5);
    return body.make<arith::MulFOp>(half, body.make<arith::AddFOp>(one, inner));
  });
}

static LogicalResult lowerMish(Node &node) {
  return lowerReal(node, [](Body &body, ValueRange in) -> Value {
    return body.make<arith::MulFOp>(
        in[0], body.make<math::TanhOp>(emitSoftplus(body, in[0])));
  });
}

static LogicalResult lowerShrink(Node &node) {
  double lambda = node.real("lambd", 0.5), bias = node.real("bias", 0);
  return lowerReal(node, [&](Body &body, ValueRange in) -> Value {
    Value x = in[0];
    Type type = x.getType();
    Value shift = body.real(type, bias), zero = body.real(type, 0);
    Value isHigh = body.make<arith::CmpFOp>(arith::CmpFPredicate::OGT, x,
                                            body.real(type, lambda));
    Value isLow = body.make<arith::CmpFOp>(arith::CmpFPredicate::OLT, x,
                                           body.real(type, -lambda));
    Value value = body.make<arith::SelectOp>(
        isLow, body.make<arith::AddFOp>(x, shift), zero);
    return body.make<arith::SelectOp>(
        isHigh, body.make<arith::SubFOp>(x, shift), value);
  });
}

static LogicalResult lowerRelu(Node &node) {
  if (failed(requireNumbers(node)))
    return failure();
  return lowerElementwise(
      node, node.allInputs(), typeOfFirst(node),
      [](Body &body, ValueRange in) -> Value {
        Type type = in[0].getType();
        if (isa<FloatType>(type))
          return body.make<arith::MaximumFOp>(in[0], body.real(type, 0));
        return body.make<arith::MaxSIOp>(in[0], body.integer(type, 0));
      });
}

ArrayRef<Operator> refold::onnx::activationOperators() {
  static const Operator rows[] = {
      {"Celu", 13, kLastOpset, "alpha:f", 1, 1, lowerExponentialUnit},
      {"Elu", 13, kLastOpset, "alpha:f", 1, 1, lowerExponentialUnit},
      {"Gelu", 20, kLastOpset, "approximate:s", 1, 1, lowerGelu},
      {"HardSigmoid", 13, kLastOpset, "alpha:f beta:f", 1, 1, lowerHardSigmoid},
      {"HardSwish", 14, kLastOpset, "", 1, 1, lowerHardSwish},
      {"LeakyRelu", 13, kLastOpset, "alpha:f", 1, 1, lowerLeaky},
      {"Mish", 18, kLastOpset, "", 1, 1, lowerMish},
      {"PRelu", 13, kLastOpset, "", 2, 2, lowerPRelu},
      {"Relu", 13, kLastOpset, "", 1, 1, lowerRelu},
      {"Selu", 13, kLastOpset, "alpha:f gamma:f", 1, 1, lowerExponentialUnit},
      {"Shrink", 13, kLastOpset, "bias:f lambd:f", 1, 1, lowerShrink},
      {"Sigmoid", 13, kLastOpset, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, [](Body &body, ValueRange in) {
           return emitSigmoid(body, in[0]);
         });
       }},
      {"Softplus", 13, kLastOpset, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, [](Body &body, ValueRange in) {
           return emitSoftplus(body, in[0]);
         });
       }},
      {"Softsign", 13, kLastOpset, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, [](Body &body, ValueRange in) -> Value {
           Value size = body.make<math::AbsFOp>(in[0]);
           return body.make<arith::DivFOp>(
               in[0],
               body.make<arith::AddFOp>(body.real(size.getType(), 1), size));
         });
       }},
      {"ThresholdedRelu", 13, kLastOpset, "alpha:f", 1, 1, lowerThresholded},
  };
  return rows;
}
