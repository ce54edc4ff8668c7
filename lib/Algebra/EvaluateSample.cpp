// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "EvaluateCode.h"
#include "refold/Algebra/Evaluate.h"
#include "refold/Support/SplitMix64.h"

#include <algorithm>
#include <cmath>

namespace refold::algebra {

const char *spelling(Family family) {
  static const char *const names[] = {
      "normal",        "offset", "masked", "equal",   "outlier",
      "outlier first", "tiny",   "ramp",   "growing", "near"};
  return names[unsigned(family)];
}

const char *spelling(Order order) {
  static const char *const names[] = {
      "stream",         "balanced tree",      "tiles",
      "random tree",    "right-leaning tree", "random pivots",
      "rounded pivots", "definition"};
  return names[unsigned(order)];
}

const char *spelling(Defect defect) {
  static const char *const names[] = {"none",
                                      "absorbing does not move the state",
                                      "merging does not move its left side",
                                      "merging does not move its right side",
                                      "merging forgets its left side",
                                      "merging forgets its right side",
                                      "transports are turned round",
                                      "of equal keys the later one wins",
                                      "reductions start at 0",
                                      "reductions start at 1",
                                      "empty places count as elements",
                                      "payloads of the right side are lost"};
  return names[unsigned(defect)];
}

uint64_t Random::next() {
  uint64_t draw = splitMix64(state);
  state += kSplitMix64Step;
  return draw;
}

double Random::normal() {
  // Irwin-Hall is as good as a Gaussian here, and the same on every machine.
  double sum = 0;
  for (int i = 0; i < 12; ++i)
    sum += uniform();
  return sum - 6;
}

uint32_t Sample::length(const std::vector<Index> &indices) const {
  uint32_t product = 1;
  for (size_t i = 0; i < indices.size(); ++i)
    if (indices[i].role == IndexRole::Stream)
      product *= extents[i];
  return product;
}

std::optional<StreamLength> streamLength(const std::vector<Index> &indices) {
  StreamLength result;
  int64_t product = 1;
  for (const Index &index : indices) {
    if (index.role != IndexRole::Stream)
      continue;
    if (index.extent < 0) {
      result.isStatic = false;
      continue;
    }
    result.isFree = false;
    if (__builtin_mul_overflow(product, index.extent, &product) ||
        product > std::numeric_limits<uint32_t>::max())
      return std::nullopt;
  }
  result.factor = uint32_t(product);
  return result;
}

static void addRoots(std::vector<Expr> &roots, const std::vector<Expr> &more) {
  for (Expr e : more)
    if (e)
      roots.push_back(e);
}

std::vector<Expr> rootsOf(const Cascade &cascade) {
  std::vector<Expr> roots;
  for (const Stage &stage : cascade.stages) {
    addRoots(roots, {stage.term});
    addRoots(roots, stage.payloads);
  }
  for (const Output &output : cascade.outputs)
    addRoots(roots, {output.value});
  return roots;
}

std::vector<Expr> rootsOf(const Program &program) {
  std::vector<Expr> roots;
  for (const Definition &definition : program.definitions) {
    if (const Let *let = std::get_if<Let>(&definition)) {
      addRoots(roots, {let->value});
      continue;
    }
    const State &state = std::get<State>(definition);
    addRoots(roots, state.values);
    addRoots(roots, {state.transport});
  }
  for (const std::vector<Expr> &readout : program.readouts)
    addRoots(roots, readout);
  for (const ProgramOutput &output : program.outputs)
    addRoots(roots, {output.value});
  return roots;
}

/// Places of lists whose length the program does not rely on: few, so that rows
/// have more.
static constexpr uint32_t kShortList = 2;

/// Ranks have their k, inner indices 2 or 3 positions, the stream `length`. Its
/// static extents are kept where they divide the length, and what is left is
/// shared by the others, as a product with small last factors.
static std::vector<uint32_t> chooseExtents(const std::vector<Index> &indices,
                                           uint32_t length) {
  std::vector<uint32_t> extents(indices.size(), 1);
  std::optional<StreamLength> own = streamLength(indices);
  bool keepsStatic = own && own->allows(length);
  if (keepsStatic && own->factor > 0)
    length /= own->factor;
  size_t streams =
      std::count_if(indices.begin(), indices.end(), [&](const Index &index) {
        return index.role == IndexRole::Stream &&
               !(keepsStatic && index.extent >= 0);
      });
  for (size_t i = indices.size(); i-- > 0;) {
    switch (indices[i].role) {
    case IndexRole::Stream:
      if (keepsStatic && indices[i].extent >= 0) {
        extents[i] = uint32_t(indices[i].extent);
        break;
      }
      extents[i] = length;
      if (--streams > 0 && length % 2 == 0 && length > 2) {
        extents[i] = 2;
        length /= 2;
      } else {
        length = 1;
      }
      break;
    case IndexRole::Inner:
      extents[i] = 2 + uint32_t(i % 2);
      break;
    case IndexRole::Rank:
      extents[i] = indices[i].length.is(Kind::Const)
                       ? uint32_t(std::clamp<int64_t>(indices[i].extent, 1, 64))
                       : kShortList;
      break;
    case IndexRole::Row:
    case IndexRole::Carried:
      break;
    }
  }
  return extents;
}

namespace {
/// Draws the values of one symbol.
class SymbolSampler {
public:
  SymbolSampler(const Symbol &symbol, Family family, uint32_t length,
                bool hasInner, Random &random)
      : symbol(symbol), facts(symbol.facts), family(family), length(length),
        random(random) {
    if (symbol.role != Role::Element)
      this->family = family == Family::Tiny ? Family::Tiny : Family::Normal;
    // Sums over an inner index of two large factors say nothing but "huge".
    else if (hasInner && family != Family::Masked && family != Family::Tiny)
      this->family = Family::Normal;
    mask = family;
    common = random.normal();
  }

  double draw(uint32_t position) {
    if (!isFloat(symbol.type))
      return drawInteger();
    if (family == Family::Masked && facts.mayBeNegInf && !facts.nonNegative &&
        !std::isfinite(facts.low) && (position == 0 || random.below(3) == 0))
      return -std::numeric_limits<double>::infinity();
    double value = drawReal(position);
    if (facts.nonNegative)
      value = std::fabs(value);
    if (value >= facts.low && value <= facts.high)
      return value;
    double low = std::max(facts.low, -1e3), high = std::min(facts.high, 1e3);
    return low <= high ? random.uniform(low, high) : facts.low;
  }

private:
  /// A mask is true everywhere on rows of one family, false on those of
  /// another: what it selects may then be nothing.
  double drawBool() {
    if (symbol.role != Role::Element)
      return random.below(2);
    switch (mask) {
    case Family::Offset:
      return 1;
    case Family::Tiny:
      return 0;
    case Family::Equal:
      return common > 0;
    default:
      return random.below(2);
    }
  }

  double drawInteger() {
    if (symbol.type == Type::Bool)
      return drawBool();
    double low = std::max(facts.low, 0.0), high = std::min(facts.high, low + 3);
    if (!facts.nonNegative && !std::isfinite(facts.low) &&
        (symbol.type == Type::I8 || symbol.type == Type::I32))
      low = -3;
    return std::ceil(low) +
           random.below(uint32_t(std::max(0.0, high - low)) + 1);
  }

  double drawReal(uint32_t position) {
    switch (family) {
    case Family::Offset:
      return 1e4 + random.normal();
    case Family::Equal:
      return common;
    case Family::Outlier:
      return position == length / 2 ? 50 : random.normal();
    case Family::First:
      return position == 0 ? 50 : random.normal();
    case Family::Tiny:
      return 1e-12 * random.normal();
    case Family::Ramp:
      return common + 0.25 * position + 0.01 * random.normal();
    case Family::Growing:
      return std::ldexp(random.normal(), int(std::min(position, 7u)));
    case Family::Near: // the same place, the same number, but for a little
      return 1.5 * std::cos(2.3 * position * position) + 0.1 * random.normal();
    case Family::Normal:
    case Family::Masked:
      break;
    }
    return random.normal();
  }

  const Symbol &symbol;
  const Facts &facts;
  Family family;
  Family mask; ///< of the row, whatever kind the symbol is
  uint32_t length;
  Random &random;
  double common;
};
} // namespace

/// Positions are values of stream, inner and rank indices; the one position of
/// a row or carried index stands for any.
static void setIndexValues(const std::vector<Index> &indices, Sample &sample,
                           Random &random) {
  for (size_t i = 0; i < indices.size(); ++i) {
    const Index &index = indices[i];
    bool isOne =
        index.role == IndexRole::Row || index.role == IndexRole::Carried;
    uint32_t bound =
        index.extent > 0 ? uint32_t(std::min<int64_t>(index.extent, 12)) : 12;
    std::vector<double> values;
    for (uint32_t position = 0; position < sample.extents[i]; ++position)
      values.push_back(isOne ? random.below(bound) : position);
    if (index.length && index.length.isSym())
      sample.values[&index.length.symbol()] = {
          isOne ? values[0] + 1 + random.below(4) : double(sample.extents[i])};
    if (index.value && index.value.isSym())
      sample.values[&index.value.symbol()] = std::move(values);
  }
}

Sample makeSample(const std::vector<Index> &indices,
                  const std::vector<Expr> &roots, Family family,
                  uint32_t length, Random &random) {
  Sample sample;
  sample.extents = chooseExtents(indices, length);
  setIndexValues(indices, sample, random);
  IndexSet inner = 0, stream = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i].role == IndexRole::Inner)
      inner |= IndexSet(1) << i;
    if (indices[i].role == IndexRole::Stream)
      stream |= IndexSet(1) << i;
  }
  std::vector<Expr> symbols;
  for (Expr root : roots)
    for (Expr symbol : symbolsOf(root))
      symbols.push_back(symbol);
  std::sort(symbols.begin(), symbols.end());
  for (Expr e : symbols) {
    const Symbol &symbol = e.symbol();
    if ((symbol.role != Role::Element && symbol.role != Role::Parameter) ||
        sample.values.count(&symbol))
      continue;
    SymbolSampler sampler(symbol, family, length, symbol.indices & inner,
                          random);
    evaluate::Shape shape = evaluate::shapeOf(symbol.indices, sample.extents);
    evaluate::Shape streams =
        evaluate::shapeOf(symbol.indices & stream, sample.extents);
    std::vector<double> &values = sample.values[&symbol];
    std::vector<uint32_t> positions(indices.size(), 0);
    evaluate::forEachTuple(
        shape, sample.extents, positions.data(), [&](uint32_t) {
          values.push_back(
              sampler.draw(evaluate::offsetIn(streams, positions.data())));
        });
  }
  return sample;
}

} // namespace refold::algebra
