// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Algebra/Accuracy.h"

#include "CertifyParts.h"
#include "EvaluateCode.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace refold::algebra {

static constexpr double kUlp = 0x1p-23;
static constexpr double kRoundoff = 0x1p-24;
static constexpr double kAllowedRatio = 2;
/// Rows of static extents beyond this take too long with 31 digits.
static constexpr uint32_t kLongestRow = 4096;
static constexpr Family kMeasured[] = {
    Family::Normal,  Family::Offset, Family::Masked, Family::Equal,
    Family::Outlier, Family::First,  Family::Tiny,   Family::Ramp};

double Accuracy::worstRatio(size_t order) const {
  double worst = 0;
  for (const OutputAccuracy &output : outputs)
    for (const FamilyAccuracy &family : output.families)
      worst = std::max(worst, family.ratio[order]);
  return worst;
}

bool Accuracy::usesBound() const { return amplification() > 0; }

static bool isWithin(const FamilyAccuracy &family) {
  return std::all_of(family.ratio.begin(), family.ratio.end(),
                     [](double ratio) { return ratio <= kAllowedRatio; });
}

bool Accuracy::holds() const {
  for (const OutputAccuracy &output : outputs)
    for (const FamilyAccuracy &family : output.families)
      if (!isWithin(family) && !family.isBounded)
        return false;
  return true;
}

double Accuracy::amplification() const {
  double worst = 0;
  for (const OutputAccuracy &output : outputs)
    for (const FamilyAccuracy &family : output.families)
      if (!isWithin(family))
        worst = std::max(worst, family.amplification);
  return worst;
}

/// Roundings on the longest path of an element to the end of a row (theory of
/// Taylor transports: a merge of order q takes 3q + 5).
static double longestPath(Order order, uint32_t length, size_t degree) {
  double merge = 3.0 * double(degree) + 5,
         height = std::ceil(std::log2(length));
  double read = 2.0 * double(degree) + 5;
  switch (order) {
  case Order::Stream:
    return read + merge * length;
  case Order::Tiles:
    return read + 16 + merge * std::max(height - 4, 0.0);
  default:
    return read + merge * height;
  }
}

namespace {
/// Measures one program row after row.
class Measurement {
public:
  Measurement(const Cascade &cascade, const Program &program,
              const AccuracyOptions &options)
      : cascade(cascade), program(program), options(options),
        random(options.seed), roots(rootsOf(cascade)) {
    for (Expr root : rootsOf(program))
      roots.push_back(root);
    for (const Definition &definition : program.definitions)
      if (const State *state = std::get_if<State>(&definition))
        degree = std::max(degree, state->with.size());
    for (const ProgramOutput &output : program.outputs)
      if (isFloat(output.value.type()))
        result.outputs.push_back({output.name, {}});
  }

  Accuracy run() {
    std::optional<StreamLength> own = streamLength(program.indices);
    if (!own || !certifier::isSingleOnly(roots) || own->factor == 0)
      return {};
    uint32_t length = options.rowLength;
    if (own->isStatic)
      length = own->factor;
    else
      length = (length + own->factor - 1) / own->factor * own->factor;
    if (length > kLongestRow)
      return {};
    for (Family family : kMeasured)
      for (unsigned i = 0; i < options.rowsPerFamily; ++i)
        row(family, length);
    return result;
  }

private:
  using Outputs = std::vector<std::vector<double>>;
  template <typename T> static Outputs outputsOf(const RowValues<T> &row) {
    Outputs result;
    for (const std::vector<T> &output : row.outputs) {
      result.emplace_back();
      for (T value : output)
        result.back().push_back(double(value));
    }
    return result;
  }

  /// Inputs are values of their types, so that all evaluators read the same.
  void roundInputs(Sample &sample) {
    for (auto &[symbol, values] : sample.values)
      if (isFloat(symbol->type))
        for (double &value : values)
          value = evaluate::roundTo(symbol->type, value);
  }

  void row(Family family, uint32_t length) {
    Sample sample = makeSample(program.indices, roots, family, length, random);
    roundInputs(sample);
    RowValues<DoubleDouble> reference =
        DefinitionEvaluator<DoubleDouble>(cascade, sample.extents).run(sample);
    Outputs unfused = outputsOf(
        DefinitionEvaluator<float>(cascade, sample.extents).run(sample));
    ProgramEvaluator<DoubleDouble> exact(program, sample.extents);
    exact.run(sample, Order::Tiles, random);
    std::vector<Amplification> amplification =
        exact.amplify(/*withElements=*/true);
    ProgramEvaluator<float> evaluator(program, sample.extents);
    std::vector<Outputs> fused;
    for (Order order : kMeasuredOrders)
      fused.push_back(outputsOf(evaluator.run(sample, order, random)));
    size_t number = 0;
    for (size_t i = 0; i < program.outputs.size(); ++i) {
      if (!isFloat(program.outputs[i].value.type()))
        continue;
      std::vector<std::vector<double>> own;
      for (const Outputs &outputs : fused)
        own.push_back(outputs[i]);
      add(number++, family, reference.outputs[i], unfused[i], own,
          amplification[i], length);
    }
  }

  /// Nothing where the row has no finite value, or the unfused row has none.
  void add(size_t number, Family family,
           const std::vector<DoubleDouble> &reference,
           const std::vector<double> &unfused,
           const std::vector<std::vector<double>> &fused,
           const Amplification &amplification, uint32_t length) {
    OutputAccuracy &output = result.outputs[number];
    std::optional<double> written = errorOf(unfused, reference);
    if (!written || !std::isfinite(*written))
      return;
    if (output.families.empty() || output.families.back().family != family) {
      output.families.push_back({});
      output.families.back().family = family;
      squares.erase(number);
    }
    FamilyAccuracy &own = output.families.back();
    own.unfused = std::max(own.unfused, *written);
    double growth = amplification.states + amplification.epilogue;
    own.amplification = std::max(own.amplification, growth);
    double weight = growth >= 1 && std::isfinite(growth) ? 1 / growth : 1;
    Squares &sums = squares[number];
    sums.unfused += square(weight * (*written + kUlp));
    for (size_t i = 0; i < fused.size(); ++i) {
      double error = *errorOf(fused[i], reference);
      double path = longestPath(kMeasuredOrders[i], length, degree);
      double bound =
          kRoundoff * (path * amplification.states + amplification.epilogue);
      own.fused[i] = std::max(own.fused[i], error);
      own.bound[i] = std::max(own.bound[i], bound);
      own.isBounded &= error <= bound;
      sums.fused[i] += square(weight * error);
      own.ratio[i] = std::sqrt(sums.fused[i] / sums.unfused);
    }
  }
  static double square(double value) { return value * value; }

  /// Over elements that are finite in the reference; nothing if none is, inf
  /// where one is not finite here. Of values that are 0 the error is absolute.
  static std::optional<double>
  errorOf(const std::vector<double> &values,
          const std::vector<DoubleDouble> &reference) {
    double error = 0, size = 0;
    bool any = false;
    for (size_t i = 0; i < reference.size(); ++i) {
      if (!isfinite(reference[i]))
        continue;
      any = true;
      size = std::max(size, std::fabs(double(reference[i])));
      double own = std::fabs(double(DoubleDouble(values[i]) - reference[i]));
      error = std::isfinite(values[i])
                  ? std::max(error, own)
                  : std::numeric_limits<double>::infinity();
    }
    if (!any)
      return std::nullopt;
    return size == 0 ? error : error / size;
  }

  const Cascade &cascade;
  const Program &program;
  const AccuracyOptions &options;
  Random random;
  std::vector<Expr> roots;
  size_t degree = 0;
  struct Squares {
    double unfused = 0;
    FamilyAccuracy::ByOrder fused{};
  };
  std::map<size_t, Squares> squares; ///< by output, of one family
  Accuracy result;
};
} // namespace

Accuracy measureAccuracy(const Cascade &cascade, const Program &program,
                         const AccuracyOptions &options) {
  return Measurement(cascade, program, options).run();
}

} // namespace refold::algebra
