// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CertifyLetters.h"
#include "CertifyParts.h"
#include "Edges.h"

#include <algorithm>
#include <cmath>

namespace refold::algebra::certifier {

static constexpr double kInf = std::numeric_limits<double>::infinity();
static constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Values of a symbol that are chosen freely: enough for three elements with
/// an inner index of three. Long rows repeat them.
static constexpr size_t kPeriod = 9;
/// What overflows as soon as it is squared or added is no plain number.
static constexpr double kHuge = 1e30;
/// What one symbol is compared with.
static constexpr size_t kMostSentinels = 12;

Letters::Letters(const Program &program, const std::vector<Expr> &roots)
    : program(program) {
  for (Expr root : roots)
    for (Expr symbol : symbolsOf(root))
      if (isRead.insert(symbol).second && symbol.isSym(Role::Element) &&
          (isFloat(symbol.type()) || symbol.type() == Type::Bool))
        elementSymbols.push_back(symbol);
  chosen = elementSymbols;
  findSentinels(roots);
  findFeatures();
}

/// A mask stands where products are complete.
static bool isMaskable(Expr feature) {
  bool hasProduct = false;
  forEachNode(feature, [&](Expr e) {
    hasProduct |= e.is(Kind::Mul) || e.is(Kind::Div) || e.is(Kind::Contract);
  });
  return !hasProduct;
}

/// What maxima and minima are taken of. Not beside a top-k, whose keys may
/// underflow together.
void Letters::findFeatures() {
  bool hasTopK = false;
  for (const Definition &definition : program.definitions) {
    const State *state = std::get_if<State>(&definition);
    if (!state)
      continue;
    Reducer reducer = state->reducer;
    hasTopK |= reducer == Reducer::TopK;
    bool isMin = reducer == Reducer::Min || reducer == Reducer::MinNum;
    bool isMax = reducer == Reducer::Max || reducer == Reducer::MaxNum;
    if (!isMin && !isMax)
      continue;
    for (Expr e : symbolsOf(state->values[0])) {
      if (std::isfinite(e.symbol().facts.low))
        continue;
      features.insert(&e.symbol());
      if (isMaskable(state->values[0]))
        masked.insert(&e.symbol());
      if (isMin)
        smallest.insert(&e.symbol());
    }
  }
  if (hasTopK)
    features.clear(), masked.clear();
}

void Letters::findSentinels(const std::vector<Expr> &roots) {
  ExprSet seen;
  for (Expr root : roots)
    forEachNode(root, [&](Expr e) {
      if (e.is(Kind::Cmp) && seen.insert(e).second)
        addSentinels(e);
    });
}

void Letters::addSentinel(Expr symbol, std::optional<double> value) {
  std::set<double> &own = sentinels[&symbol.symbol()];
  if (value && own.size() < kMostSentinels)
    own.insert(*value);
  if (std::find(chosen.begin(), chosen.end(), symbol) == chosen.end())
    chosen.push_back(symbol);
}

/// A label that is ignored or looked for, and both answers of a threshold.
void Letters::addSentinels(Expr comparison) {
  auto withoutCasts = [](Expr e) {
    while (e.is(Kind::Cast))
      e = e.operand(0);
    return e;
  };
  auto isInput = [](Expr e) {
    return (e.isSym(Role::Element) || e.isSym(Role::Parameter)) &&
           e.type() != Type::Bool;
  };
  for (unsigned side : {0, 1}) {
    Expr own = withoutCasts(comparison.operand(side)),
         other = withoutCasts(comparison.operand(1 - side));
    if (!isInput(own))
      continue;
    if (other.constant())
      addSentinel(own, other.constant());
    else if (!isFloat(own.type()) && other.isSym(Role::Index))
      addSentinel(own, std::nullopt);
  }
  std::vector<Expr> symbols = symbolsOf(comparison);
  if (symbols.size() == 1 && isInput(symbols[0]) && isFloat(symbols[0].type()))
    addSides(comparison, symbols[0]);
}

/// A number for each answer of a comparison that one input decides: f(x) < c.
void Letters::addSides(Expr comparison, Expr symbol) {
  static const double kTried[] = {0,   2,    -1,  0.5,  1,    -0.25, 3,
                                  -3,  8,    -8,  30,   -30,  100,   -100,
                                  1e3, -1e3, 1e5, -1e5, 1e10, -1e10};
  bool hasAnswer[2] = {};
  for (double value : kTried) {
    const Facts &facts = symbol.symbol().facts;
    if (value < facts.low || value > facts.high ||
        (facts.nonNegative && value < 0))
      continue;
    Folded answer = fold(comparison, {{symbol, Folded::known(value)}});
    if (!answer.isKnown() || hasAnswer[answer.value != 0])
      continue;
    hasAnswer[answer.value != 0] = true;
    addSentinel(symbol, value);
  }
}

std::vector<double> Letters::lettersOf(const Symbol &symbol, uint32_t length,
                                       double lowest) const {
  std::vector<double> letters;
  const Facts &facts = symbol.facts;
  if (symbol.type == Type::Bool)
    letters = {0, 1};
  else if (!isFloat(symbol.type))
    letters = {-1, 0, 1, 2, double(length)};
  else if (facts.nonNegative)
    letters = {0, 0.5, 2, kInf, kNan};
  else
    letters = {-kInf, -1, 0, 2, kInf, kNan};
  if (lowest < 0 && features.count(&symbol) && !smallest.count(&symbol) &&
      isFloat(symbol.type) && !facts.nonNegative)
    letters.push_back(lowest);
  if (!isFloat(symbol.type)) {
    auto isWrong = [&](double value) {
      return value < facts.low || value > facts.high ||
             (facts.nonNegative && value < 0);
    };
    letters.erase(std::remove_if(letters.begin(), letters.end(), isWrong),
                  letters.end());
  }
  if (auto it = sentinels.find(&symbol); it != sentinels.end())
    letters.insert(letters.end(), it->second.begin(), it->second.end());
  std::vector<double> unique;
  for (double value : letters)
    if (std::find(unique.begin(), unique.end(), value) == unique.end())
      unique.push_back(value);
  if (unique.empty())
    unique.push_back(std::isfinite(facts.low) ? facts.low : facts.high);
  return unique;
}

/// Rows about where the stream is: a mask by positions then keeps some of the
/// elements and hides others.
void Letters::addPositions(std::vector<Factor> &factors,
                           const Sample &sample) const {
  for (const Index &index : program.indices) {
    if (index.role != IndexRole::Row || !index.value || !index.value.isSym())
      continue;
    bool isLength = index.length && index.length.isSym();
    if (!isRead.contains(index.value) &&
        !(isLength && isRead.contains(index.length)))
      continue;
    int64_t most = int64_t(sample.length(program.indices)) + 1;
    if (index.extent > 0)
      most = std::min(most, index.extent);
    Factor factor{&index.value.symbol(), 0, {}, nullptr};
    for (int64_t position = 0; position < most; ++position)
      if (position < 3 || position + 2 >= most)
        factor.letters.push_back(double(position));
    factors.push_back(std::move(factor));
    if (isLength)
      factors.push_back(
          {&index.length.symbol(), 0, {1, 2, 3, 4}, &index.value.symbol()});
  }
}

std::vector<Factor> Letters::factors(const Sample &sample, double lowest,
                                     uint64_t seed) const {
  std::vector<Factor> factors;
  addPositions(factors, sample);
  uint32_t length = sample.length(program.indices);
  for (Expr e : chosen) {
    std::vector<double> letters = lettersOf(e.symbol(), length, lowest);
    size_t count = sample.values.at(&e.symbol()).size();
    for (size_t slot = 0; slot < std::min(count, kPeriod); ++slot)
      factors.push_back({&e.symbol(), slot, letters, nullptr});
  }
  // What no combination of a few asks for is then another row for every seed.
  Random random(seed * 77 + 5);
  for (Factor &factor : factors)
    for (size_t i = factor.letters.size(); i > 1; --i)
      std::swap(factor.letters[i - 1],
                factor.letters[random.below(uint32_t(i))]);
  return factors;
}

namespace {
/// A letter of a factor.
struct Choice {
  size_t factor;
  uint8_t level;
};
} // namespace

std::vector<std::vector<uint8_t>> sparseRows(const std::vector<Factor> &factors,
                                             size_t most, uint64_t seed) {
  Random random(seed * 77 + 6);
  std::vector<std::vector<uint8_t>> numbers(factors.size()), rows;
  std::vector<Choice> infinities, others;
  for (size_t i = 0; i < factors.size(); ++i)
    for (size_t level = 0; level < factors[i].letters.size(); ++level) {
      double letter = factors[i].letters[level];
      if (std::isnan(letter))
        others.push_back({i, uint8_t(level)});
      else if (std::fabs(letter) > kHuge)
        infinities.push_back({i, uint8_t(level)});
      else
        numbers[i].push_back(uint8_t(level));
    }
  auto add = [&](std::initializer_list<Choice> chosen) {
    if (rows.size() >= most)
      return;
    rows.emplace_back();
    for (const std::vector<uint8_t> &levels : numbers)
      rows.back().push_back(
          levels.empty() ? 0 : levels[random.below(uint32_t(levels.size()))]);
    for (Choice choice : chosen)
      rows.back()[choice.factor] = choice.level;
  };
  for (const std::vector<Choice> *list : {&infinities, &others})
    for (Choice choice : *list)
      add({choice});
  for (size_t i = 0; i < infinities.size(); ++i)
    for (size_t j = i + 1; j < infinities.size(); ++j)
      if (infinities[i].factor != infinities[j].factor)
        add({infinities[i], infinities[j]});
  return rows;
}

void setRow(Sample &sample, const std::vector<Factor> &factors,
            const std::vector<uint8_t> &row) {
  for (size_t i = 0; i < factors.size(); ++i) {
    const Factor &factor = factors[i];
    double value = factor.letters[row[i]];
    if (factor.above)
      value += sample.values.at(factor.above)[0];
    std::vector<double> &values = sample.values.at(factor.symbol);
    for (size_t slot = factor.slot; slot < values.size(); slot += kPeriod)
      values[slot] = value;
  }
}

} // namespace refold::algebra::certifier
