// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Runtime/SizeExpr.h"

#include <algorithm>
#include <limits>

using namespace refold;

static std::optional<int64_t> floorDiv(int64_t a, int64_t b) {
  if (b == 0 || (a == std::numeric_limits<int64_t>::min() && b == -1))
    return std::nullopt;
  int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

static std::optional<int64_t> apply(SizeExpr::Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
  case SizeExpr::Op::Add:
    return __builtin_add_overflow(a, b, &result) ? std::nullopt
                                                 : std::optional(result);
  case SizeExpr::Op::Sub:
    return __builtin_sub_overflow(a, b, &result) ? std::nullopt
                                                 : std::optional(result);
  case SizeExpr::Op::Mul:
    return __builtin_mul_overflow(a, b, &result) ? std::nullopt
                                                 : std::optional(result);
  case SizeExpr::Op::FloorDiv:
    return floorDiv(a, b);
  case SizeExpr::Op::CeilDiv: {
    std::optional<int64_t> quotient = floorDiv(a, b);
    if (!quotient)
      return std::nullopt;
    return a % b != 0 ? *quotient + 1 : *quotient;
  }
  case SizeExpr::Op::Mod: {
    std::optional<int64_t> quotient = floorDiv(a, b);
    if (!quotient)
      return std::nullopt;
    return a - *quotient * b;
  }
  case SizeExpr::Op::Min:
    return std::min(a, b);
  case SizeExpr::Op::Max:
    return std::max(a, b);
  case SizeExpr::Op::Eq:
    return a == b;
  case SizeExpr::Op::Ne:
    return a != b;
  case SizeExpr::Op::Lt:
    return a < b;
  case SizeExpr::Op::Le:
    return a <= b;
  case SizeExpr::Op::Const:
  case SizeExpr::Op::Symbol:
  case SizeExpr::Op::Select:
    break;
  }
  return std::nullopt;
}

template <typename T>
static void append(std::vector<T> &to, const std::vector<T> &from) {
  to.insert(to.end(), from.begin(), from.end());
}

std::optional<SizeExpr> SizeExpr::of(std::vector<Instruction> instructions) {
  unsigned depth = 0;
  for (const Instruction &instruction : instructions) {
    if (instruction.op > Op::Select)
      return std::nullopt;
    bool isLeaf = instruction.op == Op::Const || instruction.op == Op::Symbol;
    unsigned taken = isLeaf ? 0 : instruction.op == Op::Select ? 3 : 2;
    if (depth < taken)
      return std::nullopt;
    depth += 1 - taken;
    if (depth > kMaxDepth)
      return std::nullopt;
  }
  if (depth != 1)
    return std::nullopt;
  SizeExpr result;
  result.code = std::move(instructions);
  return result;
}

SizeExpr SizeExpr::symbol(unsigned index) {
  SizeExpr result;
  result.code[0] = {Op::Symbol, index};
  return result;
}

SizeExpr SizeExpr::binary(Op op, const SizeExpr &lhs, const SizeExpr &rhs) {
  if (std::optional<int64_t> a = lhs.constant(), b = rhs.constant(); a && b)
    if (std::optional<int64_t> value = apply(op, *a, *b))
      return *value;
  bool isNeutralRight =
      ((op == Op::Add || op == Op::Sub) && rhs == SizeExpr(0)) ||
      ((op == Op::Mul || op == Op::FloorDiv || op == Op::CeilDiv) &&
       rhs == SizeExpr(1));
  if (isNeutralRight)
    return lhs;
  if ((op == Op::Add && lhs == SizeExpr(0)) ||
      (op == Op::Mul && lhs == SizeExpr(1)))
    return rhs;
  SizeExpr result = lhs;
  append(result.code, rhs.code);
  result.code.push_back({op});
  return result;
}

SizeExpr SizeExpr::select(const SizeExpr &condition, const SizeExpr &ifTrue,
                          const SizeExpr &ifFalse) {
  if (std::optional<int64_t> value = condition.constant())
    return *value ? ifTrue : ifFalse;
  SizeExpr result = condition;
  append(result.code, ifTrue.code);
  append(result.code, ifFalse.code);
  result.code.push_back({Op::Select});
  return result;
}

std::optional<int64_t> SizeExpr::constant() const {
  if (code.size() == 1 && code[0].op == Op::Const)
    return code[0].value;
  return std::nullopt;
}

std::optional<int64_t>
SizeExpr::evaluate(std::span<const int64_t> symbols) const {
  int64_t stack[kMaxDepth];
  unsigned depth = 0;
  for (const Instruction &instruction : code) {
    if (instruction.op == Op::Const || instruction.op == Op::Symbol) {
      bool isSymbol = instruction.op == Op::Symbol;
      if (depth == kMaxDepth ||
          (isSymbol && uint64_t(instruction.value) >= symbols.size()))
        return std::nullopt;
      stack[depth++] =
          isSymbol ? symbols[instruction.value] : instruction.value;
      continue;
    }
    if (instruction.op == Op::Select) {
      depth -= 2;
      stack[depth - 1] = stack[depth - 1] ? stack[depth] : stack[depth + 1];
      continue;
    }
    --depth;
    std::optional<int64_t> value =
        apply(instruction.op, stack[depth - 1], stack[depth]);
    if (!value)
      return std::nullopt;
    stack[depth - 1] = *value;
  }
  return stack[0];
}

std::string SizeExpr::show() const {
  static constexpr const char *names[] = {
      "",      "",      " + ",   " - ",  " * ",  " floordiv ", " ceildiv ",
      " mod ", " min ", " max ", " == ", " != ", " < ",        " <= "};
  std::vector<std::string> stack;
  for (const Instruction &instruction : code) {
    if (instruction.op == Op::Const) {
      stack.push_back(std::to_string(instruction.value));
    } else if (instruction.op == Op::Symbol) {
      stack.push_back("s" + std::to_string(instruction.value));
    } else if (instruction.op == Op::Select) {
      size_t top = stack.size();
      stack[top - 3] = "(" + stack[top - 3] + " ? " + stack[top - 2] + " : " +
                       stack[top - 1] + ")";
      stack.resize(top - 2);
    } else {
      std::string rhs = std::move(stack.back());
      stack.pop_back();
      stack.back() =
          "(" + stack.back() + names[unsigned(instruction.op)] + rhs + ")";
    }
  }
  return stack.back();
}
