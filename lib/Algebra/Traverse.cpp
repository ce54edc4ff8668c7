// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Algebra/Expr.h"

#include <algorithm>
#include <bit>
#include <sstream>

namespace refold::algebra {

namespace {
/// Nodes of an expression: a bit each by their numbers, none of which is above
/// that of the expression, unless the context has very many.
class Visited {
public:
  explicit Visited(Expr root)
      : bits(root->id < kMost ? root->id / kBits + 1 : 0) {}
  bool contains(Expr e) const {
    return bits.empty() ? others.contains(e)
                        : bits[e->id / kBits] >> (e->id % kBits) & 1;
  }
  /// False where it was there.
  bool insert(Expr e) {
    if (bits.empty())
      return others.insert(e).second;
    uint64_t bit = uint64_t(1) << (e->id % kBits);
    bool isNew = !(bits[e->id / kBits] & bit);
    bits[e->id / kBits] |= bit;
    return isNew;
  }

private:
  static constexpr uint32_t kBits = 64, kMost = 1 << 15;
  std::vector<uint64_t> bits;
  ExprSet others;
};
} // namespace

/// Operands first, each node once. No recursion: terms come from user programs.
void forEachNode(Expr root, const std::function<void(Expr)> &visit) {
  constexpr size_t kUsualDepth = 32;
  if (!root)
    return;
  Visited done(root);
  std::vector<std::pair<Expr, unsigned>> stack;
  stack.reserve(kUsualDepth);
  stack.push_back({root, 0});
  while (!stack.empty()) {
    auto &[node, next] = stack.back();
    if (next == 0 && done.contains(node)) {
      stack.pop_back();
      continue;
    }
    if (next < node.size()) {
      Expr operand = node.operand(next++);
      if (!done.contains(operand))
        stack.push_back({operand, 0});
      continue;
    }
    Expr finished = node;
    stack.pop_back();
    if (done.insert(finished))
      visit(finished);
  }
}

std::vector<Expr> symbolsOf(Expr root) {
  std::vector<Expr> symbols;
  forEachNode(root, [&](Expr e) {
    if (e.isSym())
      symbols.push_back(e);
  });
  std::sort(symbols.begin(), symbols.end(),
            [](Expr a, Expr b) { return a.symbol().id < b.symbol().id; });
  return symbols;
}

bool contains(Expr root, Expr part) {
  bool found = false;
  forEachNode(root, [&](Expr e) { found |= e == part; });
  return found;
}

Expr substitute(Context &context, Expr root, const ExprMap &map) {
  ExprMap result;
  forEachNode(root, [&](Expr e) {
    if (auto it = map.find(e); it != map.end()) {
      result[e] = it->second;
      return;
    }
    Expr operands[3];
    bool changed = false;
    for (unsigned i = 0; i < e.size(); ++i) {
      operands[i] = result.at(e.operand(i));
      changed |= operands[i] != e.operand(i);
    }
    result[e] = changed ? context.rebuild(e, {operands, e.size()}) : e;
  });
  return result.at(root);
}

//===----------------------------------------------------------------------===//
// Structure across contexts
//===----------------------------------------------------------------------===//

static uint64_t combine(uint64_t seed, uint64_t value) {
  value ^= value >> 31;
  value *= 0x7FB5D329728EA185ull;
  value ^= value >> 27;
  return (seed + 0x9E3779B97F4A7C15ull) * 0x81DADEF4BC2DD44Dull ^ value;
}

static uint64_t hashText(const std::string &text) {
  uint64_t h = 1469598103934665603ull; // FNV-1a, the same on every platform
  for (unsigned char c : text)
    h = (h ^ c) * 1099511628211ull;
  return h;
}

uint64_t structuralHash(Expr root, bool names) {
  std::unordered_map<Expr, uint64_t, ExprHash> hashes;
  std::unordered_map<const Symbol *, uint64_t> numbers;
  forEachNode(root, [&](Expr e) {
    uint64_t h = combine(unsigned(e.kind()), unsigned(e.type()));
    h = combine(h, unsigned(e->fn) * 64 + unsigned(e->pred));
    h = combine(h, e->contracted);
    h = combine(h, std::bit_cast<uint64_t>(e->real));
    h = combine(h, uint64_t(e->integer));
    h = combine(h, uint64_t(e->exponent.num) * 64 + uint64_t(e->exponent.den));
    if (e.isSym()) {
      const Symbol &s = e.symbol();
      uint64_t number = numbers.try_emplace(&s, numbers.size()).first->second;
      h = combine(h, unsigned(s.role));
      h = combine(h, s.indices);
      h = combine(h, s.ordinal);
      h = combine(h, names ? hashText(s.name) : number);
    }
    for (unsigned i = 0; i < e.size(); ++i)
      h = combine(h, hashes.at(e.operand(i)));
    hashes[e] = h;
  });
  return hashes.at(root);
}

static bool sameSymbol(const Symbol &a, const Symbol &b, bool names) {
  return a.role == b.role && a.type == b.type && a.indices == b.indices &&
         a.ordinal == b.ordinal && (!names || a.name == b.name);
}

bool structurallyEqual(Expr a, Expr b, bool names) {
  std::unordered_map<Expr, Expr, ExprHash> forward, backward;
  std::vector<std::pair<Expr, Expr>> pending{{a, b}};
  while (!pending.empty()) {
    auto [x, y] = pending.back();
    pending.pop_back();
    auto [f, isNewX] = forward.try_emplace(x, y);
    auto [g, isNewY] = backward.try_emplace(y, x);
    if (f->second != y || g->second != x)
      return false;
    if (!isNewX && !isNewY)
      continue;
    if (x.kind() != y.kind() || x.type() != y.type() || x->fn != y->fn ||
        x->pred != y->pred || x->contracted != y->contracted ||
        std::bit_cast<uint64_t>(x->real) != std::bit_cast<uint64_t>(y->real) ||
        x->integer != y->integer || !(x->exponent == y->exponent) ||
        x.size() != y.size())
      return false;
    if (x.isSym() && !sameSymbol(x.symbol(), y.symbol(), names))
      return false;
    for (unsigned i = 0; i < x.size(); ++i)
      pending.push_back({x.operand(i), y.operand(i)});
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Dump
//===----------------------------------------------------------------------===//

static const char *headOf(Expr e) {
  static const char *const names[] = {
      "const", "sym", "add", "sub",    "mul",    "div",     "neg",
      "pow",   "fn",  "max", "min",    "maxnum", "minnum",  "cmp",
      "and",   "or",  "not", "select", "cast",   "contract"};
  if (e.is(Kind::Fn))
    return spelling(e->fn);
  if (e.is(Kind::Cmp))
    return spelling(e->pred);
  return names[unsigned(e.kind())];
}

static void dumpTo(std::ostringstream &out, Expr e, unsigned budget) {
  if (e.is(Kind::Const)) {
    if (e->integral)
      out << e->integer;
    else
      out << e->real;
    return;
  }
  if (e.isSym()) {
    out << e.symbol().name;
    return;
  }
  if (budget == 0) {
    out << "...";
    return;
  }
  out << '(' << headOf(e);
  if (e.is(Kind::Pow))
    out << ' ' << e->exponent.num << '/' << e->exponent.den;
  if (e.is(Kind::Cast))
    out << ' ' << spelling(e.type());
  if (e.is(Kind::Contract))
    out << " {" << e->contracted << '}';
  for (unsigned i = 0; i < e.size(); ++i) {
    out << ' ';
    dumpTo(out, e.operand(i), budget - 1);
  }
  out << ')';
}

std::string dump(Expr root) {
  if (!root)
    return "null";
  std::ostringstream out;
  out.precision(9);
  dumpTo(out, root, 64);
  return out.str();
}

} // namespace refold::algebra
