// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "FormulaFormat.h"

#include <charconv>
#include <cmath>

namespace refold::algebra {
using namespace formula;

namespace {
/// Writes one expression. Recursion is bounded by the cut-off.
class Formatter {
public:
  Formatter(const Notation &notation) : notation(notation) {}

  static constexpr size_t kLongest = 4000;
  std::string text;

  void write(Expr e, Binding least) {
    if (text.size() > kLongest)
      return;
    if (auto it = notation.parts.find(e); it != notation.parts.end()) {
      text += it->second;
      return;
    }
    if (Expr number = countBehind(e))
      return write(number, least);
    bool wrap = bindingOf(e) < least;
    if (wrap)
      text += '(';
    writeBare(e);
    if (wrap)
      text += ')';
  }

private:
  bool unicode() const { return notation.charset == Charset::Unicode; }

  Binding bindingOf(Expr e) const {
    switch (e.kind()) {
    case Kind::Or:
      return Or;
    case Kind::And:
      return And;
    case Kind::Not:
      return Not;
    case Kind::Cmp:
      return Compare;
    case Kind::Add:
    case Kind::Sub:
      return Sum;
    case Kind::Mul:
    case Kind::Div:
      return Product;
    case Kind::Contract:
      return unicode() ? Sum : Atom;
    case Kind::Neg:
      return Negation;
    case Kind::Const:
      return std::signbit(*e.constant()) ? Negation : Atom;
    case Kind::Pow:
      return isRoot(e) ? Atom : Power;
    default:
      return Atom;
    }
  }

  /// The index or length that casts make a number of another type, which people
  /// read as the number; null for everything else.
  static Expr countBehind(Expr e) {
    bool isWide = e.type() == Type::F64 || e.type() == Type::F32 ||
                  e.type() == Type::I64 || e.type() == Type::I32;
    if (!e.is(Kind::Cast) || !isWide)
      return Expr();
    Expr inner = e.operand(0);
    return inner.type() == Type::Index ? inner : countBehind(inner);
  }

  static bool isRoot(Expr e) {
    return e->exponent == Rational{1, 2} || e->exponent == Rational{-1, 2};
  }

  void infix(Expr e, const char *sign, Binding left, Binding right) {
    write(e.operand(0), left);
    text += sign;
    write(e.operand(1), right);
  }

  void call(const std::string &name, Expr e) {
    text += name + "(";
    for (unsigned i = 0; i < e.size(); ++i) {
      if (i)
        text += ", ";
      write(e.operand(i), Or);
    }
    text += ')';
  }

  void writeBare(Expr e) {
    switch (e.kind()) {
    case Kind::Const:
      return writeConstant(e);
    case Kind::Sym:
      text += nameOf(e);
      return;
    case Kind::Add:
      return infix(e, " + ", Sum, Product);
    case Kind::Sub:
      return infix(e, " - ", Sum, Product);
    case Kind::Mul:
      return infix(e, unicode() ? "·" : "*", Product, Power);
    case Kind::Div:
      return infix(e, " / ", Product, Power);
    case Kind::Neg:
      text += '-';
      return write(e.operand(0), Power);
    case Kind::Pow:
      return writePower(e);
    case Kind::Max:
      return call("max", e);
    case Kind::Min:
      return call("min", e);
    case Kind::MaxNum:
      return call("maxnum", e);
    case Kind::MinNum:
      return call("minnum", e);
    case Kind::Fn:
      return writeFunction(e);
    case Kind::Cmp:
      return infix(e, comparison(e->pred), Sum, Sum);
    case Kind::And:
      return infix(e, " and ", And, Not);
    case Kind::Or:
      return infix(e, " or ", Or, And);
    case Kind::Not:
      text += "not ";
      return write(e.operand(0), Compare);
    case Kind::Select:
      return call("where", e);
    case Kind::Cast:
      return call(spelling(e.type()), e);
    case Kind::Contract:
      return writeContraction(e);
    }
  }

  std::string nameOf(Expr symbol) const {
    auto it = notation.names.find(&symbol.symbol());
    return it == notation.names.end() ? symbol.symbol().name : it->second;
  }

  void writeConstant(Expr e) {
    double value = *e.constant();
    if (e.type() == Type::Bool)
      text += value != 0 ? "true" : "false";
    else if (std::isnan(value))
      text += "nan";
    else if (std::isinf(value))
      text += std::string(value < 0 ? "-" : "") + (unicode() ? "∞" : "inf");
    else if (e->integral)
      text += std::to_string(e->integer);
    else {
      char buffer[64];
      auto end = e.type() == Type::F64
                     ? std::to_chars(buffer, buffer + 64, value)
                     : std::to_chars(buffer, buffer + 64, float(value));
      text.append(buffer, end.ptr);
    }
  }

  void writePower(Expr e) {
    Rational exponent = e->exponent;
    if (isRoot(e)) {
      call(exponent.num > 0 ? "sqrt" : "rsqrt", e);
      return;
    }
    write(e.operand(0), Atom);
    bool isSmall =
        exponent.isInteger() && exponent.num >= 2 && exponent.num <= 9;
    if (unicode() && isSmall) {
      static const char *const digits[] = {"²", "³", "⁴", "⁵",
                                           "⁶", "⁷", "⁸", "⁹"};
      text += digits[exponent.num - 2];
      return;
    }
    text += '^';
    std::string number = std::to_string(exponent.num);
    if (!exponent.isInteger())
      number += "/" + std::to_string(exponent.den);
    text += isSmall ? number : "(" + number + ")";
  }

  void writeFunction(Expr e) {
    if (e.is(Fn::FloorDiv))
      return infix(e, " // ", Power, Power);
    if (e.is(Fn::Rem))
      return infix(e, " % ", Power, Power);
    if (e.is(Fn::Abs) && unicode()) {
      text += '|';
      write(e.operand(0), Or);
      text += '|';
      return;
    }
    call(spelling(e->fn), e);
  }

  const char *comparison(Pred pred) const {
    static const char *const wide[] = {" < ", " ≤ ", " > ",
                                       " ≥ ", " = ", " ≠ "};
    static const char *const plain[] = {" < ",  " <= ", " > ",
                                        " >= ", " == ", " != "};
    return (unicode() ? wide : plain)[unsigned(pred)];
  }

  void writeContraction(Expr e) {
    text += reduction(notation, "Σ", "sum", e->contracted);
    write(e.operand(0), unicode() ? Product : Or);
    if (!unicode())
      text += ')';
  }

private:
  const Notation &notation;
};
} // namespace

std::string formula::reduction(const Notation &notation,
                               const std::string &wide,
                               const std::string &plain, IndexSet over) {
  std::string names;
  unsigned count = 0;
  for (unsigned i = 0; i < 64; ++i) {
    if (!(over >> i & 1))
      continue;
    names += count++ ? "," : "";
    bool known = notation.indices && i < notation.indices->size();
    names += known ? (*notation.indices)[i].name : std::to_string(i);
  }
  if (notation.charset == Charset::Ascii)
    return plain + "(" + names + ": ";
  return wide + "_" + (count > 1 ? "{" + names + "}" : names) + " ";
}

std::string formula::formatAt(Expr e, const Notation &notation, Binding least) {
  Formatter formatter(notation);
  formatter.write(e, least);
  std::string &text = formatter.text;
  if (text.size() <= Formatter::kLongest)
    return text;
  text.resize(Formatter::kLongest);
  while (!text.empty() && (text.back() & 0x80))
    text.pop_back(); // never half of a wide character
  return text + "...";
}

std::string format(Expr e, const Notation &notation) {
  return formatAt(e, notation, Or);
}

} // namespace refold::algebra
