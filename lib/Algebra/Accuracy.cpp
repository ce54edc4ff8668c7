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
/// What an operation may lose below the smallest normal number.
static constexpr double kUnderflow = 0x1p-150;
static constexpr double kAllowedRatio = 2;
/// A value whose formula is that ill conditioned is 0.
static constexpr double kNothing = 1e25;
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

static bool isWithin(const FamilyAccuracy &family) {
  return std::all_of(family.ratio.begin(), family.ratio.end(),
                     [](double ratio) { return ratio <= kAllowedRatio; });
}

double Accuracy::shareOfBound() const {
  double worst = 0;
  for (const OutputAccuracy &output : outputs)
    for (const FamilyAccuracy &family : output.families)
      if (!isWithin(family))
        worst = std::max(worst, family.shareOfBound);
  return worst;
}

bool Accuracy::usesBound() const { return shareOfBound() > 0; }

bool Accuracy::holds() const {
  for (const OutputAccuracy &output : outputs)
    for (const FamilyAccuracy &family : output.families)
      if (!isWithin(family) && !(family.shareOfBound <= 1))
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
    Policy plain;
    plain.fuse = false;
    written = derive(cascade, plain).program;
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
    for (Family family : kMeasured) {
      rows.clear();
      for (unsigned i = 0; i < options.rowsPerFamily; ++i)
        row(family, length);
      for (const auto &[number, own] : rows)
        result.outputs[number].families.push_back(measured(family, own));
    }
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
    std::vector<Amplification> own = amplificationOf(program, sample),
                               asWritten = amplificationOf(*written, sample);
    ProgramEvaluator<float> evaluator(program, sample.extents);
    std::vector<Outputs> fused;
    for (Order order : kMeasuredOrders)
      fused.push_back(outputsOf(evaluator.run(sample, order, random)));
    size_t number = 0;
    for (size_t i = 0; i < program.outputs.size(); ++i) {
      if (!isFloat(program.outputs[i].value.type()))
        continue;
      std::vector<std::vector<double>> values;
      for (const Outputs &outputs : fused)
        values.push_back(outputs[i]);
      add(number++, reference.outputs[i], unfused[i], values, own[i],
          asWritten[i], length);
    }
  }

  std::vector<Amplification> amplificationOf(const Program &of,
                                             const Sample &sample) {
    ProgramEvaluator<DoubleDouble> exact(of, sample.extents);
    exact.run(sample, Order::Tiles, random);
    return exact.amplify(/*withElements=*/true);
  }

  /// One row of one output.
  struct Row {
    double unfused = 0;
    FamilyAccuracy::ByOrder fused{}, bound{};
    double amplification = 0; ///< of the program
    double condition = 1;     ///< amplification of the stages as written
  };

  /// Nothing where the row has no finite value, or the unfused row has none.
  void add(size_t number, const std::vector<DoubleDouble> &reference,
           const std::vector<double> &unfused,
           const std::vector<std::vector<double>> &fused,
           const Amplification &own, const Amplification &asWritten,
           uint32_t length) {
    double condition = asWritten.states + asWritten.epilogue;
    bool isNothing = condition > kNothing;
    std::optional<double> error = errorOf(unfused, reference, isNothing);
    if (!error || !std::isfinite(*error))
      return;
    Row row;
    row.unfused = *error;
    row.amplification = own.states + own.epilogue;
    if (condition >= 1 && !isNothing)
      row.condition = condition;
    for (size_t i = 0; i < fused.size(); ++i) {
      double path = longestPath(kMeasuredOrders[i], length, degree);
      row.fused[i] = *errorOf(fused[i], reference, isNothing);
      row.bound[i] = kRoundoff * (std::sqrt(path) * own.states + own.epilogue) +
                     kUnderflow * own.underflow;
    }
    rows[number].push_back(row);
  }

  /// The error of a row as written may be small by luck: no less is allowed
  /// than what rows of its condition have in the mean.
  static FamilyAccuracy measured(Family family, const std::vector<Row> &rows) {
    double squares = 0;
    for (const Row &row : rows)
      squares += square(row.unfused / row.condition) / double(rows.size());
    FamilyAccuracy result;
    result.family = family;
    for (const Row &row : rows) {
      result.unfused = std::max(result.unfused, row.unfused);
      result.amplification = std::max(result.amplification, row.amplification);
      double expected =
          std::max(row.unfused, std::sqrt(squares) * row.condition);
      for (size_t i = 0; i < row.fused.size(); ++i) {
        double ratio = row.fused[i] / (expected + kUlp),
               share = row.fused[i] > 0 ? row.fused[i] / row.bound[i] : 0;
        result.fused[i] = std::max(result.fused[i], row.fused[i]);
        result.bound[i] = std::max(result.bound[i], row.bound[i]);
        result.ratio[i] = std::max(result.ratio[i], ratio);
        result.shareOfBound = std::max(result.shareOfBound, share);
      }
    }
    return result;
  }
  static double square(double value) { return value * value; }

  /// Over elements that are finite in the reference; nothing if none is, inf
  /// where one is not finite here. Of values that are 0, but for the rounding
  /// of the reference, the error is absolute.
  static std::optional<double>
  errorOf(const std::vector<double> &values,
          const std::vector<DoubleDouble> &reference, bool isNothing) {
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
    return size == 0 || isNothing ? error : error / size;
  }

  const Cascade &cascade;
  const Program &program;
  const AccuracyOptions &options;
  Random random;
  std::vector<Expr> roots;
  size_t degree = 0;
  std::optional<Program> written;          ///< every stage in its own pass
  std::map<size_t, std::vector<Row>> rows; ///< by output, of one family
  Accuracy result;
};
} // namespace

Accuracy measureAccuracy(const Cascade &cascade, const Program &program,
                         const AccuracyOptions &options) {
  return Measurement(cascade, program, options).run();
}

} // namespace refold::algebra
