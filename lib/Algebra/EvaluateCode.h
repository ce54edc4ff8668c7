// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_ALGEBRA_EVALUATECODE_H
#define REFOLD_LIB_ALGEBRA_EVALUATECODE_H

#include "refold/Algebra/DoubleDouble.h"
#include "refold/Algebra/Evaluate.h"

/// Straight-line code for an expression, run again and again on other values.
namespace refold::algebra::evaluate {

/// The arrays that code reads from.
enum Base : uint8_t {
  Input,   ///< the row
  Current, ///< the segment that is being made
  Previous ///< the segment that it is made from
};
inline constexpr unsigned kBases = 3;

/// Where the values of a symbol lie: an array over its indices.
struct Slot {
  Base base = Input;
  uint32_t offset = 0;
  IndexSet indices = 0;
};

template <typename T> struct Frame {
  const T *bases[kBases] = {};
  /// Position of every index; Contract moves those it sums over.
  uint32_t *positions = nullptr;
  /// Set where an exponential of a finite number is 0 or infinite.
  bool *saturated = nullptr;
  /// Interval: set where a comparison could have another answer.
  bool *undecided = nullptr;
  CastSlack slack = CastSlack::None;
};

/// Steps from one value to the next in an array over `indices`, and its size.
struct Shape {
  std::vector<std::pair<uint8_t, uint32_t>> steps; ///< index, stride
  uint32_t size = 1;
};
Shape shapeOf(IndexSet indices, const std::vector<uint32_t> &extents);
/// Offset of the tuple at `positions`.
inline uint32_t offsetIn(const Shape &shape, const uint32_t *positions) {
  uint32_t offset = 0;
  for (auto [index, stride] : shape.steps)
    offset += positions[index] * stride;
  return offset;
}
/// Calls `visit` at each tuple of positions of `indices`, the last fastest.
template <typename Visit>
void forEachTuple(const Shape &shape, const std::vector<uint32_t> &extents,
                  uint32_t *positions, Visit visit) {
  for (uint32_t tuple = 0; tuple < shape.size; ++tuple) {
    for (auto [index, stride] : shape.steps)
      positions[index] = tuple / stride % extents[index];
    visit(tuple);
  }
  for (auto [index, stride] : shape.steps)
    positions[index] = 0;
}

using Resolver = std::function<Slot(Expr symbol)>;

/// What roundings do to a value, over the operations that round.
template <typename T> struct Roundings {
  T relative{}; ///< Σ |derivative·result|
  T absolute{}; ///< Σ |derivative|
};

template <typename T> class Code {
public:
  /// Requires that `resolve` knows every symbol inside.
  Code(Expr root, const Resolver &resolve,
       const std::vector<uint32_t> &extents);
  T run(const Frame<T> &frame) const;
  /// Calls `leaf` with what the value changes by for each symbol that it reads,
  /// times `seed`: base, offset, derivative. Contractions are leaves of their
  /// own.
  Roundings<T>
  differentiate(const Frame<T> &frame, T seed,
                const std::function<void(Base, uint32_t, T)> &leaf) const;

private:
  struct Instruction {
    Kind kind;
    Fn fn;
    Pred pred;
    Type type;
    Base base;
    uint32_t operands[3];
    uint32_t offset;     ///< Sym: into the base; Contract: which of `inner`
    T value;             ///< Const; Pow: the exponent
    bool isTail = false; ///< Sub: expm1(u) - u, without its cancellation
    Shape shape;         ///< Sym: of the array; Contract: of the summed tuples
    bool isShared = false; ///< has elements and results
  };
  T compute(const Instruction &instruction, const Frame<T> &frame) const;
  T contract(const Instruction &instruction, const Frame<T> &frame) const;
  T derivative(const Instruction &instruction, unsigned operand,
               const Frame<T> &frame) const;

  std::vector<Instruction> instructions;
  std::vector<Code> inner;
  std::vector<uint32_t> extents;
  mutable std::vector<T> registers;
};

/// The value rounded to `type`: floats to nearest even (f8e4m3 and f8e5m2
/// saturate), integers too, saturating, NaN to 0.
template <typename T> T roundTo(Type type, T value);

extern template class Code<float>;
extern template class Code<double>;
extern template class Code<DoubleDouble>;
extern template class Code<Interval>;

} // namespace refold::algebra::evaluate

#endif // REFOLD_LIB_ALGEBRA_EVALUATECODE_H
