// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "EvaluateCode.h"

#include "EvaluateReduce.h"

#include <array>
#include <bit>
#include <cassert>
#include <cmath>

namespace refold::algebra::evaluate {

// Both instances call the same names: these for double, by lookup the ones of
// DoubleDouble.h for DoubleDouble.
using std::atan2;
using std::ceil;
using std::cos;
using std::cosh;
using std::erf;
using std::exp;
using std::expm1;
using std::fabs;
using std::floor;
using std::isfinite;
using std::isinf;
using std::isnan;
using std::log;
using std::log1p;
using std::nearbyint;
using std::pow;
using std::signbit;
using std::sin;
using std::sinh;
using std::sqrt;
using std::tanh;

Shape shapeOf(IndexSet indices, const std::vector<uint32_t> &extents) {
  Shape shape;
  for (int i = 63 - std::countl_zero(indices); indices && i >= 0; --i)
    if (indices >> i & 1) {
      shape.steps.push_back({uint8_t(i), shape.size});
      shape.size *= extents[size_t(i)];
    }
  return shape;
}

/// Digits and exponents of a storage format.
struct Format {
  int digits;
  int lowestExponent; ///< of a normal number 1.xxx * 2^e
  bool saturates;
};

static Format formatOf(Type type) {
  switch (type) {
  case Type::F64:
    return {53, -1022, false};
  case Type::F16:
    return {11, -14, false};
  case Type::BF16:
    return {8, -126, false};
  case Type::F8E4M3:
    return {4, -6, true};
  case Type::F8E5M2:
    return {3, -14, true};
  default:
    return {24, -126, false};
  }
}

template <typename T> static T roundToFloat(Type type, T value) {
  double magnitude = std::fabs(double(value));
  double infinity = std::numeric_limits<double>::infinity();
  Format format = formatOf(type);
  if (isnan(value) || magnitude == 0)
    return value;
  double largest = largestFinite(type);
  if (magnitude == infinity)
    return format.saturates ? T(std::copysign(largest, double(value))) : value;
  int exponent = std::max(std::ilogb(magnitude), format.lowestExponent);
  T unit = T(std::ldexp(1.0, exponent - format.digits + 1));
  T rounded = nearbyint(value / unit) * unit;
  if (std::fabs(double(rounded)) <= largest)
    return rounded;
  return T(std::copysign(format.saturates ? largest : infinity, double(value)));
}

/// Half a unit in the last place, relative, and half the smallest step.
static RoundingError errorOf(Type type) {
  if (!isFloat(type))
    return {0, 0.5};
  Format format = formatOf(type);
  return {std::ldexp(1.0, -format.digits),
          std::ldexp(1.0, format.lowestExponent - format.digits)};
}

/// Rounds the middle. What is off before is off after, and a step more on
/// either side; the same for a value that was rounded at earlier results.
static Interval roundInterval(Type type, Interval value, bool isShared,
                              CastSlack slack) {
  double rounded = roundTo(type, value.middle);
  bool isRunning = isShared && slack != CastSlack::None;
  if (value.isExact() && !isRunning)
    return rounded;
  RoundingError error = errorOf(type);
  double size = std::fabs(value.middle);
  bool isNormal = isFloat(type) && value.isExact() &&
                  size >= std::ldexp(1.0, formatOf(type).lowestExponent);
  if (value.isExact() && slack == CastSlack::PowerOfTwo)
    error = {0, isNormal ? 0 : error.step};
  return roundedWithin(value, rounded, error);
}

template <typename T> T roundTo(Type type, T value) {
  if (type == Type::F64 && sizeof(T) == sizeof(double))
    return value;
  if (isFloat(type))
    return roundToFloat(type, value);
  if (isnan(value))
    return T(0);
  if (type == Type::Bool)
    return T(value != T(0) ? 1 : 0);
  double low = -0x1p63, high = 0x1p63;
  if (type == Type::I32)
    low = -0x1p31, high = 0x1p31 - 1;
  else if (type == Type::I8)
    low = -128, high = 127;
  else if (type == Type::U8)
    low = 0, high = 255;
  T rounded = nearbyint(value);
  return rounded < T(low) ? T(low) : T(high) < rounded ? T(high) : rounded;
}
template float roundTo(Type, float);
template double roundTo(Type, double);
template DoubleDouble roundTo(Type, DoubleDouble);

template <typename T>
Code<T>::Code(Expr root, const Resolver &resolve,
              const std::vector<uint32_t> &extents)
    : extents(extents) {
  // By numbers of nodes, none of which is above that of the root.
  constexpr uint32_t kMissing = ~uint32_t(0);
  std::vector<uint32_t> registerOf(root->id + 1, kMissing);
  // Not forEachNode: bodies of contractions are code of their own.
  std::vector<std::pair<Expr, bool>> stack = {{root, false}};
  while (!stack.empty()) {
    auto [e, ready] = stack.back();
    stack.pop_back();
    if (registerOf[e->id] != kMissing)
      continue;
    bool isContract = e.is(Kind::Contract);
    if (!ready && !isContract && e.size()) {
      stack.push_back({e, true});
      for (unsigned i = 0; i < e.size(); ++i)
        stack.push_back({e.operand(i), false});
      continue;
    }
    Instruction next{e.kind(), e->fn, e->pred, e.type(), Input, {},
                     0,        T(0),  false,   {},       false};
    next.isShared =
        e.uses(Role::Element) &&
        (e.uses(Role::Stage) || e.uses(Role::State) || e.uses(Role::Let));
    if (e.is(Kind::Const)) {
      next.value = T(*e.constant());
    } else if (e.isSym()) {
      Slot slot = resolve(e);
      next.base = slot.base;
      next.offset = slot.offset;
      next.shape = shapeOf(slot.indices, extents);
    } else if (isContract) {
      next.offset = uint32_t(inner.size());
      next.shape = shapeOf(e->contracted, extents);
      inner.emplace_back(e.operand(0), resolve, extents);
    } else {
      for (unsigned i = 0; i < e.size(); ++i)
        next.operands[i] = registerOf[e.operand(i)->id];
      next.isTail = e.is(Kind::Sub) && e.operand(0).is(Fn::Expm1) &&
                    e.operand(0).operand(0) == e.operand(1);
      if (e.is(Kind::Pow))
        next.value = T(double(e->exponent.num)) / T(double(e->exponent.den));
    }
    registerOf[e->id] = uint32_t(instructions.size());
    instructions.push_back(std::move(next));
  }
  for (const Instruction &instruction : instructions)
    registers.push_back(instruction.value); // constants are there from now on
}

/// What most operations are is done here, without a call.
template <typename T> T Code<T>::run(const Frame<T> &frame) const {
  T *result = registers.data();
  for (const Instruction &next : instructions) {
    auto in = [&](unsigned i) { return registers[next.operands[i]]; };
    switch (next.kind) {
    case Kind::Const:
      break;
    case Kind::Sym:
      *result = frame.bases[next.base][next.offset +
                                       offsetIn(next.shape, frame.positions)];
      break;
    case Kind::Add:
      *result = in(0) + in(1);
      break;
    case Kind::Mul:
      *result = in(0) * in(1);
      break;
    case Kind::Div:
      *result = in(0) / in(1);
      break;
    case Kind::Select:
      *result = in(0) != T(0) ? in(1) : in(2);
      break;
    default:
      *result = compute(next, frame);
    }
    ++result;
  }
  return registers.back();
}

template <typename T>
T Code<T>::contract(const Instruction &instruction,
                    const Frame<T> &frame) const {
  T sum(0);
  // A rank may be bound outside too: t_r / Σ_r t_r.
  std::array<uint32_t, 64> outside;
  for (auto [index, stride] : instruction.shape.steps)
    outside[index] = frame.positions[index];
  forEachTuple(instruction.shape, extents, frame.positions, [&](uint32_t) {
    sum = sum + inner[instruction.offset].run(frame);
  });
  for (auto [index, stride] : instruction.shape.steps)
    frame.positions[index] = outside[index];
  return sum;
}

template <typename T> static T maximum(T a, T b) {
  if constexpr (std::is_same_v<T, Interval>)
    return evaluate::reduce(Reducer::Max, a, b);
  return isnan(a) ? a : isnan(b) ? b : a < b ? b : a;
}
template <typename T> static T maximumNumber(T a, T b) {
  if constexpr (std::is_same_v<T, Interval>)
    return evaluate::reduce(Reducer::MaxNum, a, b);
  return isnan(a) ? b : isnan(b) ? a : a < b ? b : a;
}

static bool compare(Pred pred, auto a, auto b) {
  switch (pred) {
  case Pred::Lt:
    return a < b;
  case Pred::Le:
    return a <= b;
  case Pred::Gt:
    return a > b;
  case Pred::Ge:
    return a >= b;
  case Pred::Eq:
    return a == b;
  case Pred::Ne:
    return a != b;
  }
  return false;
}

template <typename T> static T exp2Of(T a) {
  if constexpr (std::is_floating_point_v<T>)
    return std::exp2(a);
  else if constexpr (std::is_same_v<T, Interval>)
    return exp2(a);
  else // ln 2, as much as two doubles hold
    return exp(a * T(0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56));
}

template <typename T> static T powOf(T base, T exponent) {
  if (exponent == T(0.5))
    return sqrt(base);
  if (exponent == T(-0.5))
    return T(1) / sqrt(base);
  return pow(base, exponent);
}

static bool isExponential(Fn fn) {
  return fn == Fn::Exp || fn == Fn::Exp2 || fn == Fn::Expm1 ||
         fn == Fn::Sigmoid || fn == Fn::Sinh || fn == Fn::Cosh;
}

template <typename T> static T apply(Fn fn, T a, T b) {
  switch (fn) {
  case Fn::Exp:
    return exp(a);
  case Fn::Exp2:
    return exp2Of(a);
  case Fn::Expm1:
    return expm1(a);
  case Fn::Log:
    return log(a);
  case Fn::Log2:
    return log(a) / log(T(2));
  case Fn::Log1p:
    return log1p(a);
  case Fn::Sqrt:
    return sqrt(a);
  case Fn::Rsqrt:
    return T(1) / sqrt(a);
  case Fn::Abs:
    return fabs(a);
  case Fn::Sign:
    if constexpr (std::is_same_v<T, Interval>)
      if (isUndecided(a, Interval(0)))
        return {a > T(0) ? 1.0 : a < T(0) ? -1.0 : 0.0, 2};
    return isnan(a) ? a : a > T(0) ? T(1) : a < T(0) ? T(-1) : a;
  case Fn::Floor:
    return floor(a);
  case Fn::Ceil:
    return ceil(a);
  case Fn::Round:
    return nearbyint(a);
  case Fn::Tanh:
    return tanh(a);
  case Fn::Sigmoid:
    return T(1) / (T(1) + exp(-a));
  case Fn::Erf:
    return erf(a);
  case Fn::Sin:
    return sin(a);
  case Fn::Cos:
    return cos(a);
  case Fn::Sinh:
    return sinh(a);
  case Fn::Cosh:
    return cosh(a);
  case Fn::Relu:
    return maximum(a, T(0));
  case Fn::IsNan:
    return T(isnan(a) ? 1 : 0);
  case Fn::IsInf:
    return T(isinf(a) ? 1 : 0);
  case Fn::PowFn:
    return powOf(a, b);
  case Fn::FloorDiv:
    return floor(a / b);
  case Fn::Rem:
    return a - b * floor(a / b);
  case Fn::Atan2:
    return atan2(a, b);
  }
  return a;
}

/// e^u - 1 - u. Near 0 both terms of expm1(u) - u are u: there by its series,
/// as the code that is generated does.
template <typename T> static T exponentialTail(T u) {
  if (!(fabs(u) < T(0.5)))
    return expm1(u) - u;
  constexpr int terms = sizeof(T) > sizeof(double)    ? 26
                        : sizeof(T) == sizeof(double) ? 17
                                                      : 10;
  // u^2/2·(1 + u/3·(1 + u/4·(...)))
  T sum(1);
  for (int k = terms; k > 2; --k)
    sum = T(1) + u / T(k) * sum;
  return u * u / T(2) * sum;
}

template <typename T>
T Code<T>::compute(const Instruction &instruction,
                   const Frame<T> &frame) const {
  auto in = [&](unsigned i) { return registers[instruction.operands[i]]; };
  switch (instruction.kind) {
  case Kind::Const:
    return instruction.value;
  case Kind::Sym:
    return frame
        .bases[instruction.base][instruction.offset +
                                 offsetIn(instruction.shape, frame.positions)];
  case Kind::Add:
    return in(0) + in(1);
  case Kind::Sub:
    return instruction.isTail ? exponentialTail(in(1)) : in(0) - in(1);
  case Kind::Mul:
    return in(0) * in(1);
  case Kind::Div:
    return in(0) / in(1);
  case Kind::Neg:
    return -in(0);
  case Kind::Pow:
    return powOf(in(0), instruction.value);
  case Kind::Fn: {
    T value = apply(instruction.fn, in(0), in(arity(instruction.fn) - 1));
    if constexpr (std::is_same_v<T, Interval>) {
      bool isStep = instruction.fn == Fn::Round ||
                    instruction.fn == Fn::Floor || instruction.fn == Fn::Ceil;
      if (isStep && instruction.isShared && in(0).isExact() &&
          frame.slack != CastSlack::None)
        value = value.widened(1);
    }
    if (isExponential(instruction.fn) && isfinite(in(0)) &&
        (value == T(0) || !isfinite(value)) && frame.saturated)
      *frame.saturated |= in(0) != T(0);
    return value;
  }
  case Kind::Max:
    return maximum(in(0), in(1));
  case Kind::Min:
    return -maximum(-in(0), -in(1));
  case Kind::MaxNum:
    return maximumNumber(in(0), in(1));
  case Kind::MinNum:
    return -maximumNumber(-in(0), -in(1));
  case Kind::Cmp:
    if constexpr (std::is_same_v<T, Interval>)
      if (isUndecided(in(0), in(1)) && frame.undecided)
        *frame.undecided = true;
    return T(compare(instruction.pred, in(0), in(1)) ? 1 : 0);
  case Kind::And:
    return T(in(0) != T(0) && in(1) != T(0) ? 1 : 0);
  case Kind::Or:
    return T(in(0) != T(0) || in(1) != T(0) ? 1 : 0);
  case Kind::Not:
    return T(in(0) != T(0) ? 0 : 1);
  case Kind::Select:
    return in(0) != T(0) ? in(1) : in(2);
  case Kind::Cast:
    if constexpr (std::is_same_v<T, Interval>)
      return roundInterval(instruction.type, in(0), instruction.isShared,
                           frame.slack);
    else if (instruction.type == Type::F32)
      return in(0); // as operations in f32 are: rounded in `float` only
    else
      return roundTo(instruction.type, in(0));
  case Kind::Contract:
    return contract(instruction, frame);
  }
  assert(false && "every kind is listed");
  return T(0);
}

static unsigned operandsOf(Kind kind, Fn fn) {
  switch (kind) {
  case Kind::Const:
  case Kind::Sym:
  case Kind::Contract:
    return 0;
  case Kind::Neg:
  case Kind::Pow:
  case Kind::Not:
  case Kind::Cast:
    return 1;
  case Kind::Fn:
    return arity(fn);
  case Kind::Select:
    return 3;
  default:
    return 2;
  }
}

static bool rounds(Kind kind) {
  return kind == Kind::Add || kind == Kind::Sub || kind == Kind::Mul ||
         kind == Kind::Div || kind == Kind::Pow || kind == Kind::Fn ||
         kind == Kind::Contract;
}

/// By a central difference where the operation is not linear: the functions
/// need no table then.
template <typename T>
T Code<T>::derivative(const Instruction &instruction, unsigned operand,
                      const Frame<T> &frame) const {
  auto in = [&](unsigned i) { return registers[instruction.operands[i]]; };
  switch (instruction.kind) {
  case Kind::Add:
    return T(1);
  case Kind::Sub:
    if (instruction.isTail)
      return operand == 0 ? T(0) : in(0);
    return T(operand == 0 ? 1 : -1);
  case Kind::Neg:
    return T(-1);
  case Kind::Mul:
    return in(1 - operand);
  case Kind::Div:
    return operand == 0 ? T(1) / in(1) : -(in(0) / in(1)) / in(1);
  case Kind::Cast:
    return T(1);
  case Kind::Select:
    return T(operand == (in(0) != T(0) ? 1u : 2u) ? 1 : 0);
  case Kind::Max:
  case Kind::Min:
  case Kind::MaxNum:
  case Kind::MinNum:
    return T(compute(instruction, frame) == in(operand) ? 1 : 0);
  case Kind::Pow:
  case Kind::Fn:
    break;
  default:
    return T(0);
  }
  constexpr double kStep = 1e-6;
  T &value = registers[instruction.operands[operand]];
  T middle = value, step = T(kStep) * (middle == T(0) ? T(1) : middle);
  value = middle + step;
  T above = compute(instruction, frame);
  value = middle - step;
  T below = compute(instruction, frame);
  value = middle;
  return (above - below) / (step + step);
}

template <typename T>
Roundings<T> Code<T>::differentiate(
    const Frame<T> &frame, T seed,
    const std::function<void(Base, uint32_t, T)> &leaf) const {
  run(frame);
  std::vector<T> adjoints(instructions.size(), T(0));
  adjoints.back() = seed;
  Roundings<T> rounding{T(0), T(0)};
  for (size_t i = instructions.size(); i-- > 0;) {
    const Instruction &instruction = instructions[i];
    T adjoint = adjoints[i];
    if (adjoint == T(0) || !isFloat(instruction.type))
      continue;
    if (rounds(instruction.kind)) {
      rounding.relative = rounding.relative + fabs(adjoint * registers[i]);
      rounding.absolute = rounding.absolute + fabs(adjoint);
    }
    if (instruction.kind == Kind::Sym)
      leaf(instruction.base,
           instruction.offset + offsetIn(instruction.shape, frame.positions),
           adjoint);
    for (unsigned k = 0; k < operandsOf(instruction.kind, instruction.fn);
         ++k) {
      T change = adjoint * derivative(instruction, k, frame);
      if (isfinite(change))
        adjoints[instruction.operands[k]] =
            adjoints[instruction.operands[k]] + change;
    }
  }
  return rounding;
}

template class Code<float>;
template class Code<double>;
template class Code<DoubleDouble>;
template class Code<Interval>;

} // namespace refold::algebra::evaluate
