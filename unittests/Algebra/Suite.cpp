// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Suite.h"

#include <cctype>
#include <cstdlib>
#include <sstream>

namespace refold::algebra::test {

/// Recursive descent over one formula. Tests only: a mistake ends the program.
class Parser {
public:
  Parser(Text &text, std::string formula)
      : text(text), context(text.context), formula(std::move(formula)) {}

  Expr parse() {
    Expr result = disjunction();
    skip();
    require(at == formula.size());
    return result;
  }

private:
  void require(bool holds) {
    if (holds)
      return;
    fprintf(stderr, "cannot read '%s' at %zu\n", formula.c_str(), at);
    abort();
  }
  void skip() {
    while (at < formula.size() && formula[at] == ' ')
      ++at;
  }
  bool take(const std::string &token) {
    skip();
    if (formula.compare(at, token.size(), token) != 0)
      return false;
    bool isWord = std::isalpha(token[0]);
    char next =
        at + token.size() < formula.size() ? formula[at + token.size()] : ' ';
    if (isWord && (std::isalnum(next) || next == '_'))
      return false;
    at += token.size();
    return true;
  }
  bool peek(const std::string &token) {
    size_t before = at;
    bool found = take(token);
    at = before;
    return found;
  }
  Expr disjunction() {
    Expr left = conjunction();
    while (take("or"))
      left = context.logicalOr(left, conjunction());
    return left;
  }
  Expr conjunction() {
    Expr left = comparison();
    while (take("and"))
      left = context.logicalAnd(left, comparison());
    return left;
  }
  Expr comparison() {
    if (take("not"))
      return context.logicalNot(comparison());
    Expr left = sum();
    static const std::pair<const char *, Pred> preds[] = {
        {">=", Pred::Ge}, {"<=", Pred::Le}, {"==", Pred::Eq},
        {"!=", Pred::Ne}, {">", Pred::Gt},  {"<", Pred::Lt}};
    for (auto [token, pred] : preds)
      if (take(token))
        return context.cmp(pred, left, sum());
    return left;
  }
  Expr sum() {
    Expr left = product();
    while (true) {
      if (take("+"))
        left = context.add(left, product());
      else if (take("-"))
        left = context.sub(left, product());
      else
        return left;
    }
  }
  Expr product() {
    Expr left = unary();
    while (true) {
      if (peek("**"))
        return left;
      if (take("*"))
        left = context.mul(left, unary());
      else if (take("/"))
        left = context.div(left, unary());
      else
        return left;
    }
  }
  Expr unary() {
    if (take("-"))
      return context.neg(unary());
    Expr base = primary();
    if (take("**")) {
      bool isNegative = take("-");
      double exponent = *primary().constant() * (isNegative ? -1 : 1);
      return context.fn(Fn::PowFn, base, context.real(exponent));
    }
    return base;
  }
  Expr primary() {
    skip();
    if (take("(")) {
      Expr inner = disjunction();
      require(take(")"));
      return inner;
    }
    if (std::isdigit(formula[at])) {
      char *end;
      double value = std::strtod(formula.c_str() + at, &end);
      at = size_t(end - formula.c_str());
      return context.real(value);
    }
    size_t start = at;
    while (at < formula.size() &&
           (std::isalnum(formula[at]) || formula[at] == '_'))
      ++at;
    std::string name = formula.substr(start, at - start);
    require(!name.empty());
    if (take("("))
      return call(name);
    if (name == "inf" || name == "nan")
      return context.real(std::strtod(name.c_str(), nullptr));
    auto it = text.names.find(name);
    require(it != text.names.end());
    return it->second;
  }
  Expr call(const std::string &name) {
    std::vector<Expr> arguments;
    do
      arguments.push_back(disjunction());
    while (take(","));
    require(take(")"));
    if (name == "where")
      return context.select(arguments[0], arguments[1], arguments[2]);
    if (name == "max" || name == "min")
      return name == "max" ? context.max(arguments[0], arguments[1])
                           : context.min(arguments[0], arguments[1]);
    if (name == "f8e4m3")
      return context.cast(Type::F8E4M3, arguments[0]);
    for (unsigned fn = 0; fn <= unsigned(Fn::IsInf); ++fn)
      if (name == spelling(Fn(fn)))
        return context.fn(Fn(fn), arguments[0]);
    require(false);
    return {};
  }

  Text &text;
  Context &context;
  std::string formula;
  size_t at = 0;
};

static Facts factsOf(std::string &name) {
  Facts facts;
  if (size_t mark = name.find(">=0"); mark != std::string::npos) {
    name.resize(mark);
    facts.nonNegative = true;
    facts.mayBeNegInf = false;
  }
  return facts;
}

Text::Text(const std::string &lines) : built(new Cascade(context)) {
  built->addIndex("n", IndexRole::Stream);
  built->addIndex("j", IndexRole::Carried);
  names["l"] = built->indices[0].value;
  names["n"] = built->indices[0].length;
  std::istringstream input(lines);
  unsigned number = 0;
  for (std::string line; std::getline(input, line); ++number) {
    std::istringstream words(line);
    std::string first, second, rest;
    if (!(words >> first))
      continue;
    if (first == "in" || first == "carried" || first == "param" ||
        first == "mask") {
      IndexSet set = first == "param" ? 0 : first == "carried" ? 3 : 1;
      Type type = first == "mask" ? Type::Bool : Type::F32;
      while (words >> second) {
        Facts facts = factsOf(second);
        names[second] = built->addRead(second, set, type, facts);
      }
      continue;
    }
    bool isOutput = first == "out";
    if (isOutput)
      words >> first;
    words >> second;
    if (isOutput || second == ":=") {
      std::getline(words, rest);
      Expr value = Parser(*this, rest).parse();
      if (isOutput)
        built->addOutput(first, value);
      else
        names[first] = value;
      continue;
    }
    std::string reducer;
    words >> reducer;
    std::getline(words, rest);
    Expr term = Parser(*this, rest).parse();
    Place place{"suite.fold", number, 1};
    bool isBottom = reducer.starts_with("bottom");
    if (reducer.starts_with("top") || isBottom) {
      int64_t k = std::atoi(reducer.c_str() + (isBottom ? 6 : 3));
      int rank = k == 1 ? -1
                        : int(built->addIndex("r" + std::to_string(number),
                                              IndexRole::Rank, k));
      auto results = built->addTopK(first, term, {built->indices[0].value}, k,
                                    !isBottom, rank, place);
      names[first] = results[0];
      names[first + "_at"] = results[1];
      continue;
    }
    for (unsigned r = 0; r <= unsigned(Reducer::All); ++r)
      if (reducer == spelling(Reducer(r)))
        names[first] = built->addStage(first, Reducer(r), term, place);
    if (!names.contains(first))
      abort();
  }
}

} // namespace refold::algebra::test
