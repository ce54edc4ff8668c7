// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_RUNTIME_SIZEEXPR_H
#define REFOLD_RUNTIME_SIZEEXPR_H

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace refold {

/// A size that is known when the extents of the arguments are. Symbol k is
/// whatever stands at k where it is evaluated. Comparisons give 0 or 1.
/// Building folds what is constant. A copy, and what an expression is part of,
/// share its terms: to build one of any size takes the time of an operation.
class SizeExpr {
public:
  enum class Op : uint8_t {
    Const,
    Symbol,
    Add,
    Sub,
    Mul,
    FloorDiv, ///< towards -inf
    CeilDiv,
    Mod, ///< of the sign of the divisor
    Min,
    Max,
    Eq,
    Ne,
    Lt,
    Le,
    Select, ///< condition, then, else; both are evaluated
  };
  /// Operands that it has: 0, 2 or 3.
  static constexpr unsigned arity(Op op) {
    return op == Op::Const || op == Op::Symbol ? 0 : op == Op::Select ? 3 : 2;
  }
  /// The value of a binary `op`, or nothing where it overflows or divides by 0.
  static std::optional<int64_t> apply(Op op, int64_t a, int64_t b);

  /// Zero.
  SizeExpr() = default;
  SizeExpr(int64_t value) : number(value) {}
  static SizeExpr symbol(unsigned index);
  /// Requires a binary `op`.
  static SizeExpr binary(Op op, const SizeExpr &lhs, const SizeExpr &rhs);
  static SizeExpr select(const SizeExpr &condition, const SizeExpr &ifTrue,
                         const SizeExpr &ifFalse);

  friend SizeExpr operator+(const SizeExpr &a, const SizeExpr &b) {
    return binary(Op::Add, a, b);
  }
  friend SizeExpr operator-(const SizeExpr &a, const SizeExpr &b) {
    return binary(Op::Sub, a, b);
  }
  friend SizeExpr operator*(const SizeExpr &a, const SizeExpr &b) {
    return binary(Op::Mul, a, b);
  }

  Op op() const { return code; }
  /// The constant, or the number of the symbol.
  int64_t value() const { return number; }
  std::span<const SizeExpr> operands() const;
  /// Operations on the longest way to a constant or symbol, 255 of more.
  unsigned height() const { return levels; }
  /// That of its copies, and of nothing else while one is there; null: it is a
  /// constant or a symbol.
  const void *identity() const { return shared.get(); }

  /// The value, or nothing where it overflows, divides by 0 or needs a symbol
  /// that `symbols` lacks. Several expressions: `SizeValues`.
  std::optional<int64_t> evaluate(std::span<const int64_t> symbols) const;
  std::optional<int64_t> constant() const;

  /// "((s0 + 15) floordiv 16)".
  std::string show() const;
  /// Whether they are built alike.
  bool operator==(const SizeExpr &other) const;

private:
  struct Operands;

  SizeExpr(Op op, std::shared_ptr<Operands> shared);

  Op code = Op::Const;
  uint8_t levels = 0;
  int64_t number = 0;
  std::shared_ptr<Operands> shared; ///< never changed
};

} // namespace refold

#endif // REFOLD_RUNTIME_SIZEEXPR_H
