// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An elementwise kernel that does to a product what the product library can do
// itself: add a bias along the columns, apply one of its activations.
#include "ProgramCompiler.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include <cmath>

using namespace mlir;
using namespace refold;

/// The number of a constant of the body.
static std::optional<double> numberOf(Value value) {
  FloatAttr attribute;
  if (!matchPattern(value, m_Constant(&attribute)))
    return std::nullopt;
  return attribute.getValueAsDouble();
}

static bool isAbout(double x, double expected) {
  return std::abs(x - expected) <= 1e-6 * std::abs(expected);
}

/// value = scale * (product of factors), the constants gathered in `scale`.
static void splitProduct(Value value, double &scale,
                         SmallVectorImpl<Value> &factors) {
  if (std::optional<double> number = numberOf(value)) {
    scale *= *number;
    return;
  }
  if (auto product = value.getDefiningOp<arith::MulFOp>()) {
    splitProduct(product.getLhs(), scale, factors);
    splitProduct(product.getRhs(), scale, factors);
    return;
  }
  auto quotient = value.getDefiningOp<arith::DivFOp>();
  std::optional<double> divisor =
      quotient ? numberOf(quotient.getRhs()) : std::nullopt;
  if (divisor) {
    scale /= *divisor;
    splitProduct(quotient.getLhs(), scale, factors);
    return;
  }
  factors.push_back(value);
}

/// x where value = 1 + erf(x * scale), and the scale: the root of 1/2, as a
/// program in 16 bits rounds it where `mayRound`.
static Value matchOnePlusErf(Value value, bool mayRound, double &scale) {
  auto sum = value.getDefiningOp<arith::AddFOp>();
  if (!sum)
    return nullptr;
  for (auto [one, other] : {std::pair(sum.getLhs(), sum.getRhs()),
                            std::pair(sum.getRhs(), sum.getLhs())}) {
    auto erf = other.getDefiningOp<math::ErfOp>();
    if (!erf || numberOf(one) != std::optional<double>(1.0))
      continue;
    scale = 1.0;
    SmallVector<Value> factors;
    splitProduct(erf.getOperand(), scale, factors);
    // The root of 1/2 as bf16 has it is 2^-9 off.
    bool isRounded = mayRound && std::abs(scale / M_SQRT1_2 - 1.0) < 0x1p-7;
    if (factors.size() == 1 && (isRounded || isAbout(scale, M_SQRT1_2)))
      return factors[0];
  }
  return nullptr;
}

/// x where value = max(x, 0) that keeps NaN and takes 0 for -0.
static Value matchRelu(Value value) {
  auto most = value.getDefiningOp<arith::MaximumFOp>();
  if (!most || !value.getType().isF32())
    return nullptr;
  for (auto [x, least] : {std::pair(most.getLhs(), most.getRhs()),
                          std::pair(most.getRhs(), most.getLhs())})
    if (std::optional<double> number = numberOf(least);
        number && *number == 0.0 && !std::signbit(*number))
      return x;
  return nullptr;
}

/// The activation that ends in `value`, and what it is applied to. `mayRound`:
/// by our own kernels; what a library makes of NaN in max(x, 0) is its choice.
static std::pair<Activation, Value> matchActivation(Value value, bool mayRound,
                                                    double &erfScale) {
  if (auto tanh = value.getDefiningOp<math::TanhOp>())
    return {Activation::Tanh, tanh.getOperand()};
  if (Value x = mayRound ? matchRelu(value) : nullptr)
    return {Activation::Relu, x};
  double scale = 1.0;
  SmallVector<Value> factors;
  splitProduct(value, scale, factors);
  if (factors.size() == 2 && isAbout(scale, 0.5))
    for (auto [x, rest] :
         {std::pair(factors[0], factors[1]), std::pair(factors[1], factors[0])})
      if (matchOnePlusErf(rest, mayRound, erfScale) == x)
        return {Activation::GeluErf, x};
  return {Activation::None, value};
}

/// Whether the subscripts are the cascade's last `indices.size()` indices, in
/// order.
static bool areLastIndices(CascadeOp op, ValueRange indices, AffineMap map) {
  if (!map.isIdentity() || indices.size() > op.numIndices())
    return false;
  size_t first = op.numIndices() - indices.size();
  for (auto [i, index] : llvm::enumerate(indices))
    if (index != op.bodyBlock()->getArgument(first + i))
      return false;
  return true;
}

/// The operand that a value of the body reads at the last `rank` indices;
/// `mayWiden`: or has as f32.
static Value readOperand(CascadeOp op, Value value, unsigned rank,
                         bool mayWiden = false) {
  if (auto wide = value.getDefiningOp<arith::ExtFOp>();
      wide && mayWiden && wide.getType().isF32())
    value = wide.getIn();
  auto read = value.getDefiningOp<ReadOp>();
  if (!read || read.getIndices().size() != rank ||
      !areLastIndices(op, read.getIndices(), read.getMap()))
    return nullptr;
  return op.operandOf(read.getSource());
}

namespace {
struct Match {
  Value product, bias;
  std::optional<DType> rounded; ///< to 16 bits, at last
  Activation activation = Activation::None;
  double erfScale = M_SQRT1_2;
};
} // namespace

/// The rounding of f32 that ends in `value`; one that is widened and rounded
/// again, to the same type, is one. Null for anything else.
static arith::TruncFOp roundingTo16Bits(Value value) {
  auto narrow = value.getDefiningOp<arith::TruncFOp>();
  while (narrow) {
    auto wide = narrow.getIn().getDefiningOp<arith::ExtFOp>();
    auto inner = wide ? wide.getIn().getDefiningOp<arith::TruncFOp>() : nullptr;
    if (!inner || inner.getType() != narrow.getType())
      break;
    narrow = inner;
  }
  bool is16Bits = narrow && narrow.getIn().getType().isF32() &&
                  (narrow.getType().isF16() || narrow.getType().isBF16());
  return is16Bits ? narrow : nullptr;
}

/// `mayRound`: the product may be rounded at last, and the bias be narrow.
static std::optional<Match> matchEpilogue(CascadeOp op, bool mayRound) {
  bool isElementwise = llvm::all_of(
      op.getRoles(), [](int32_t role) { return role == CascadeOp::Row; });
  if (!isElementwise || op.getResults().size() != 1)
    return std::nullopt;
  auto writes = op.bodyBlock()->getOps<WriteOp>();
  if (!llvm::hasSingleElement(writes))
    return std::nullopt;
  WriteOp write = *writes.begin();
  unsigned rank = op.numIndices();
  if (write.getIndices().size() != rank ||
      !areLastIndices(op, write.getIndices(), write.getMap()))
    return std::nullopt;
  Match match;
  Value value = write.getValue(), argument;
  if (auto narrow = roundingTo16Bits(value); narrow && mayRound) {
    match.rounded = narrow.getType().isF16() ? DType::F16 : DType::BF16;
    value = narrow.getIn();
  }
  std::tie(match.activation, argument) =
      matchActivation(value, mayRound, match.erfScale);
  match.product = readOperand(op, argument, rank);
  if (match.product)
    return match;
  auto sum = argument.getDefiningOp<arith::AddFOp>();
  if (!sum || rank < 2)
    return std::nullopt;
  for (auto [x, b] : {std::pair(sum.getLhs(), sum.getRhs()),
                      std::pair(sum.getRhs(), sum.getLhs())}) {
    match.product = readOperand(op, x, rank);
    match.bias = readOperand(op, b, 1, mayRound);
    if (match.product && match.bias)
      return match;
  }
  return std::nullopt;
}

bool ProgramCompiler::foldEpilogue(CascadeOp op) {
  std::optional<Match> match = matchEpilogue(op, roundsProducts);
  if (!match || !match->product.hasOneUse())
    return false;
  auto known = productSteps.find(match->product);
  if (known == productSteps.end())
    return false;
  ProductStep &step = std::get<ProductStep>(spec.steps[known->second].what);
  Slot result = slots.find(match->product)->second;
  // The columns must be the last dimension, all of it.
  bool fits = result.view.dtype == DType::F32 && !step.bias &&
              step.activation == Activation::None &&
              step.result.strides.back() == SizeExpr(1) &&
              step.result.sizes.back() == result.view.sizes.back();
  if (!fits)
    return false;
  if (match->bias) {
    auto bias = slots.find(match->bias);
    // A bias that a step computes might come after the product.
    if (bias == slots.end() || !bias->second.isRowMajor ||
        (bias->second.view.dtype != DType::F32 && !roundsProducts) ||
        !(bias->second.view.sizes.back() == result.view.sizes.back()) ||
        spec.buffers[bias->second.view.buffer].kind == BufferKind::Temporary)
      return false;
    step.bias = bias->second.view;
  }
  step.activation = match->activation;
  if (match->activation == Activation::GeluErf)
    step.erfScale = match->erfScale;
  if (match->rounded)
    step.result.dtype = result.view.dtype = *match->rounded;
  slots[op.getResult(0)] = result;
  return true;
}
