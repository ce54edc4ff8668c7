// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_RUNTIME_SIZEEXPR_H
#define REFOLD_RUNTIME_SIZEEXPR_H

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace refold {

/// A size that is known when the extents of the arguments are: a small program
/// over symbols, in postfix form. Symbol k is whatever stands at k where it is
/// evaluated. Comparisons give 0 or 1. Building folds
/// what is constant.
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

  /// Zero.
  SizeExpr() : SizeExpr(0) {}
  SizeExpr(int64_t value) { code.push_back({Op::Const, value}); }
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

  /// The value, or nothing where it overflows, divides by 0, needs a symbol
  /// that `symbols` lacks or nests deeper than `kMaxDepth`. Allocates nothing.
  std::optional<int64_t> evaluate(std::span<const int64_t> symbols) const;
  std::optional<int64_t> constant() const;

  /// "((s0 + 15) floordiv 16)".
  std::string show() const;
  bool operator==(const SizeExpr &other) const { return code == other.code; }

  static constexpr unsigned kMaxDepth = 64;

  struct Instruction {
    Op op;
    int64_t value = 0; ///< the constant or the symbol
    bool operator==(const Instruction &) const = default;
  };
  const std::vector<Instruction> &instructions() const { return code; }
  /// The expression of these instructions, as a file holds them: nothing where
  /// they are none in postfix form, or nest deeper than `kMaxDepth`.
  static std::optional<SizeExpr> of(std::vector<Instruction> instructions);

private:
  std::vector<Instruction> code;
};

} // namespace refold

#endif // REFOLD_RUNTIME_SIZEEXPR_H
