// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Runtime/SizeTerms.h"

#include <bit>
#include <limits>

using namespace refold;

std::optional<SizeTerms> SizeTerms::of(std::vector<Term> terms) {
  constexpr uint64_t kMostSymbol = std::numeric_limits<unsigned>::max();
  if (terms.size() > kMost)
    return std::nullopt;
  for (size_t at = 0; at < terms.size(); ++at) {
    const Term &term = terms[at];
    bool isSymbol = term.op == SizeExpr::Op::Symbol;
    if (term.op > SizeExpr::Op::Select ||
        (isSymbol && uint64_t(term.value) > kMostSymbol))
      return std::nullopt;
    for (unsigned i = 0; i < SizeExpr::arity(term.op); ++i)
      if (term.operands[i] >= at)
        return std::nullopt;
  }
  SizeTerms result;
  result.terms = std::move(terms);
  return result;
}

std::vector<SizeExpr> SizeTerms::expressions() const {
  std::vector<SizeExpr> made;
  made.reserve(terms.size());
  for (const Term &term : terms) {
    auto operand = [&](unsigned i) { return made[term.operands[i]]; };
    switch (term.op) {
    case SizeExpr::Op::Const:
      made.emplace_back(term.value);
      break;
    case SizeExpr::Op::Symbol:
      made.push_back(SizeExpr::symbol(unsigned(term.value)));
      break;
    case SizeExpr::Op::Select:
      made.push_back(SizeExpr::select(operand(0), operand(1), operand(2)));
      break;
    default:
      made.push_back(SizeExpr::binary(term.op, operand(0), operand(1)));
    }
  }
  return made;
}

size_t SizeSharing::Hash::operator()(const SizeTerms::Term &term) const {
  uint64_t sum = uint64_t(term.op);
  for (uint64_t part : {uint64_t(term.value), uint64_t(term.operands[0]),
                        uint64_t(term.operands[1]), uint64_t(term.operands[2])})
    sum = std::rotl((sum ^ part) * 0x9e3779b97f4a7c15u, 29);
  return size_t(sum);
}

SizeNumber SizeSharing::numberOf(const SizeTerms::Term &term) {
  auto [known, isNew] =
      numbers.try_emplace(term, SizeNumber(terms.terms.size()));
  if (isNew)
    terms.terms.push_back(term);
  return known->second;
}

std::optional<SizeNumber> SizeSharing::known(const SizeExpr &expr) {
  if (!expr.identity())
    return numberOf({expr.op(), expr.value()});
  auto found = visited.find(expr.identity());
  if (found == visited.end())
    return std::nullopt;
  return found->second.second;
}

SizeNumber SizeSharing::add(const SizeExpr &expr) {
  // Without recursion: an expression may be deeper than the stack.
  std::vector<const SizeExpr *> waiting = {&expr};
  while (!waiting.empty()) {
    const SizeExpr &one = *waiting.back();
    if (known(one)) {
      waiting.pop_back();
      continue;
    }
    SizeTerms::Term term{one.op()};
    size_t before = waiting.size();
    std::span<const SizeExpr> operands = one.operands();
    for (size_t i = 0; i < operands.size(); ++i) {
      if (std::optional<SizeNumber> number = known(operands[i]))
        term.operands[i] = *number;
      else
        waiting.push_back(&operands[i]);
    }
    if (waiting.size() > before)
      continue;
    waiting.pop_back();
    visited.emplace(one.identity(), std::pair(one, numberOf(term)));
  }
  return *known(expr);
}

void TermValues::start(const SizeTerms &ofTerms,
                       std::span<const int64_t> ofSymbols) {
  terms = &ofTerms;
  symbols = ofSymbols;
  known = 0;
}

/// The value of an operation, a constant or a symbol. `operand(i)` is the value
/// of the operand i.
template <typename Operand>
static std::optional<int64_t> valueOf(SizeExpr::Op op, int64_t value,
                                      std::span<const int64_t> symbols,
                                      const Operand &operand) {
  if (op == SizeExpr::Op::Const)
    return value;
  if (op == SizeExpr::Op::Symbol)
    return uint64_t(value) < symbols.size()
               ? std::optional(symbols[size_t(value)])
               : std::nullopt;
  std::optional<int64_t> a = operand(0), b = operand(1);
  if (!a || !b)
    return std::nullopt;
  if (op != SizeExpr::Op::Select)
    return SizeExpr::apply(op, *a, *b);
  std::optional<int64_t> c = operand(2);
  return !c ? c : *a ? b : c;
}

std::optional<int64_t> TermValues::work(const SizeTerms::Term &term) const {
  return valueOf(term.op, term.value, symbols,
                 [&](size_t i) { return values[term.operands[i]]; });
}

std::optional<int64_t> TermValues::operator[](SizeNumber number) {
  if (!terms || number >= terms->size())
    return std::nullopt;
  if (values.size() < terms->size())
    values.resize(terms->size());
  for (; known <= number; ++known)
    values[known] = work(terms->all()[known]);
  return values[number];
}

std::optional<int64_t> SizeValues::of(const SizeExpr &expr) {
  // What is shallow is worked out sooner than looked up.
  constexpr unsigned kShallow = 3;
  if (expr.height() <= kShallow)
    return valueOf(expr.op(), expr.value(), symbols,
                   [&](size_t i) { return of(expr.operands()[i]); });
  return values[sharing.add(expr)];
}
