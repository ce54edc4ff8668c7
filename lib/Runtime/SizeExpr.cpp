// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Runtime/SizeExpr.h"

#include "refold/Runtime/SizeTerms.h"
#include <algorithm>
#include <limits>

using namespace refold;

static std::optional<int64_t> floorDiv(int64_t a, int64_t b) {
  if (b == 0 || (a == std::numeric_limits<int64_t>::min() && b == -1))
    return std::nullopt;
  int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::optional<int64_t> SizeExpr::apply(Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
  case Op::Add:
    return __builtin_add_overflow(a, b, &result) ? std::nullopt
                                                 : std::optional(result);
  case Op::Sub:
    return __builtin_sub_overflow(a, b, &result) ? std::nullopt
                                                 : std::optional(result);
  case Op::Mul:
    return __builtin_mul_overflow(a, b, &result) ? std::nullopt
                                                 : std::optional(result);
  case Op::FloorDiv:
    return floorDiv(a, b);
  case Op::CeilDiv: {
    std::optional<int64_t> quotient = floorDiv(a, b);
    if (!quotient)
      return std::nullopt;
    return a % b != 0 ? *quotient + 1 : *quotient;
  }
  case Op::Mod: {
    std::optional<int64_t> quotient = floorDiv(a, b);
    if (!quotient)
      return std::nullopt;
    return a - *quotient * b;
  }
  case Op::Min:
    return std::min(a, b);
  case Op::Max:
    return std::max(a, b);
  case Op::Eq:
    return a == b;
  case Op::Ne:
    return a != b;
  case Op::Lt:
    return a < b;
  case Op::Le:
    return a <= b;
  case Op::Const:
  case Op::Symbol:
  case Op::Select:
    break;
  }
  return std::nullopt;
}

struct SizeExpr::Operands {
  std::array<SizeExpr, 3> all;
  unsigned count = 0;

  Operands(const SizeExpr &a, const SizeExpr &b) : all{a, b}, count(2) {}
  Operands(const SizeExpr &a, const SizeExpr &b, const SizeExpr &c)
      : all{a, b, c}, count(3) {}
  Operands(const Operands &) = delete;
  Operands &operator=(const Operands &) = delete;
  /// Without recursion: an expression may be deeper than the stack.
  ~Operands() {
    std::vector<std::shared_ptr<Operands>> ended;
    auto take = [&](Operands &from) {
      for (SizeExpr &one : from.all)
        if (one.shared.use_count() == 1) // nobody else can ask for it
          ended.push_back(std::move(one.shared));
    };
    take(*this);
    while (!ended.empty()) {
      std::shared_ptr<Operands> one = std::move(ended.back());
      ended.pop_back();
      take(*one);
    }
  }
};

SizeExpr::SizeExpr(Op op, std::shared_ptr<Operands> operands)
    : code(op), shared(std::move(operands)) {
  unsigned below = 0;
  for (const SizeExpr &one : shared->all)
    below = std::max(below, one.height());
  levels = uint8_t(std::min(below + 1, 255u));
}

SizeExpr SizeExpr::symbol(unsigned index) {
  SizeExpr result(index);
  result.code = Op::Symbol;
  return result;
}

std::span<const SizeExpr> SizeExpr::operands() const {
  if (!shared)
    return {};
  return {shared->all.data(), shared->count};
}

SizeExpr SizeExpr::binary(Op op, const SizeExpr &lhs, const SizeExpr &rhs) {
  std::optional<int64_t> a = lhs.constant(), b = rhs.constant();
  if (a && b)
    if (std::optional<int64_t> value = apply(op, *a, *b))
      return *value;
  bool isNeutralRight =
      ((op == Op::Add || op == Op::Sub) && b == 0) ||
      ((op == Op::Mul || op == Op::FloorDiv || op == Op::CeilDiv) && b == 1);
  if (isNeutralRight)
    return lhs;
  if ((op == Op::Add && a == 0) || (op == Op::Mul && a == 1))
    return rhs;
  return SizeExpr(op, std::make_shared<Operands>(lhs, rhs));
}

SizeExpr SizeExpr::select(const SizeExpr &condition, const SizeExpr &ifTrue,
                          const SizeExpr &ifFalse) {
  if (std::optional<int64_t> value = condition.constant())
    return *value ? ifTrue : ifFalse;
  return SizeExpr(Op::Select,
                  std::make_shared<Operands>(condition, ifTrue, ifFalse));
}

std::optional<int64_t> SizeExpr::constant() const {
  return code == Op::Const ? std::optional(number) : std::nullopt;
}

std::optional<int64_t>
SizeExpr::evaluate(std::span<const int64_t> symbols) const {
  return SizeValues(symbols).of(*this);
}

bool SizeExpr::operator==(const SizeExpr &other) const {
  if (code != other.code || number != other.number)
    return false;
  if (shared == other.shared)
    return true;
  SizeTerms terms;
  SizeSharing sharing(terms);
  return sharing.add(*this) == sharing.add(other);
}

std::string SizeExpr::show() const {
  static constexpr const char *names[] = {
      "",      "",      " + ",   " - ",  " * ",  " floordiv ", " ceildiv ",
      " mod ", " min ", " max ", " == ", " != ", " < ",        " <= "};
  SizeTerms terms;
  SizeSharing(terms).add(*this);
  std::vector<std::string> texts;
  for (const SizeTerms::Term &term : terms.all()) {
    auto text = [&](unsigned i) { return texts[term.operands[i]]; };
    if (term.op == Op::Const)
      texts.push_back(std::to_string(term.value));
    else if (term.op == Op::Symbol)
      texts.push_back("s" + std::to_string(term.value));
    else if (term.op == Op::Select)
      texts.push_back("(" + text(0) + " ? " + text(1) + " : " + text(2) + ")");
    else
      texts.push_back("(" + text(0) + names[unsigned(term.op)] + text(1) + ")");
  }
  return texts.back();
}
