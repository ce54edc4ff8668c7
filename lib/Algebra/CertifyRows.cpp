// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CertifyParts.h"

#include <algorithm>
#include <cmath>

namespace refold::algebra::certifier {

using Row = RowValues<DoubleDouble>;

/// A change of the inputs that double-double resolves with digits to spare.
static constexpr double kJitter = 1e-24;
/// How much more than the reference a program may be shaken by kJitter.
static constexpr double kConditioning = 1e4;
/// Disagreements below this are rounding, whatever the value is.
static constexpr double kNothing = 1e-18;

/// Rows beyond this length are read in two orders, not in five.
static constexpr uint32_t kLongForAllOrders = 64;

static std::string shortNumber(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.3g", value);
  return buffer;
}

/// What the program rounds at running values; of a program without cascade,
/// what its states round at their pivots.
static CastSlack slackOf(const Cascade *cascade, const Program &program) {
  CastSlack slack = CastSlack::None;
  for (const Rounding &rounding : program.roundings)
    if (slack != CastSlack::Running)
      slack =
          rounding.isPowerOfTwo ? CastSlack::PowerOfTwo : CastSlack::Running;
  if (cascade)
    return slack;
  for (const Definition &definition : program.definitions)
    if (const State *state = std::get_if<State>(&definition))
      for (Expr pivot : state->pivots)
        if (roundsAt(*state, pivot))
          slack = CastSlack::Running;
  return slack;
}

namespace {
/// Compares one program with what is meant, row after row.
class RowCheck {
public:
  RowCheck(const Cascade *cascade, const Program &program,
           const CertifyOptions &options, Certificate &certificate)
      : cascade(cascade), program(program), options(options),
        certificate(certificate), random(options.seed),
        roots(cascade ? rootsOf(*cascade) : std::vector<Expr>()) {
    for (Expr root : rootsOf(program))
      roots.push_back(root);
    for (const Definition &definition : program.definitions)
      if (const State *state = std::get_if<State>(&definition))
        hasProduct |= state->reducer == Reducer::Prod;
    isSingle = isSingleOnly(roots);
    slack = slackOf(cascade, program);
  }

  Failure run(Family family, uint32_t length) {
    Sample sample = makeSample(program.indices, roots, family, length, random);
    Sample shaken = sample;
    shaken.jitter = kJitter;
    Row expected = reference(sample), neighbour = reference(shaken);
    if (expected.isSaturated && isExtreme(family))
      return std::nullopt; // the definition itself leaves the range of double
    bound = {};
    if (slack != CastSlack::None) {
      bound = boundOf(sample);
      if (bound.isUndecided)
        return std::nullopt; // another comparison, another value
      ++certificate.boundedRows;
    }
    ProgramEvaluator<DoubleDouble> evaluator(program, sample.extents);
    ++certificate.rows;
    for (Order order : {Order::Stream, Order::Balanced, Order::Random,
                        Order::Right, Order::Pivots}) {
      if (length > kLongForAllOrders && order > Order::Balanced)
        break;
      ++certificate.orders;
      Row found = evaluator.run(sample, order, random);
      // Classes are compared on rows of edge values. Parts of a product may
      // overflow though the whole does not.
      bool isExcused =
          !isFiniteRow(expected) || (hasProduct && isExtreme(family));
      if (!evaluator.isRegular() && isExcused)
        continue;
      if (Failure failure = compareRows(found, expected, neighbour))
        return *failure + " (" + spelling(order) + ", " +
               std::to_string(length) + " elements, " + spelling(family) + ")";
    }
    return isExtreme(family) && family != Family::Tiny
               ? runSingle(sample, family)
               : std::nullopt;
  }

  static bool isExtreme(Family family) {
    return family == Family::Offset || family == Family::Outlier ||
           family == Family::First || family == Family::Growing ||
           family == Family::Tiny;
  }

private:
  /// Every operation rounded to f32: outputs that are finite as written are
  /// finite in the program.
  Failure runSingle(const Sample &sample, Family family) {
    if (!isSingle)
      return std::nullopt;
    ProgramEvaluator<float> evaluator(program, sample.extents);
    RowValues<float> expected =
        cascade
            ? DefinitionEvaluator<float>(*cascade, sample.extents).run(sample)
            : evaluator.run(sample, Order::Definition, random);
    for (Order order : {Order::Stream, Order::Balanced, Order::Random}) {
      ++certificate.orders;
      RowValues<float> found = evaluator.run(sample, order, random);
      for (size_t i = 0; i < expected.outputs.size(); ++i)
        for (size_t j = 0; j < expected.outputs[i].size(); ++j)
          if (std::isfinite(expected.outputs[i][j]) &&
              !std::isfinite(found.outputs[i][j]))
            return "output '" + program.outputs[i].name +
                   "' is not finite in f32 arithmetic; " +
                   shortNumber(expected.outputs[i][j]) + " expected (" +
                   spelling(order) + ", " + spelling(family) + ")";
    }
    return std::nullopt;
  }

  /// How far roundings at running values may lead away from the definition.
  RowValues<Ball> boundOf(Sample sample) {
    sample.slack = slack;
    if (cascade)
      return DefinitionEvaluator<Ball>(*cascade, sample.extents).run(sample);
    return ProgramEvaluator<Ball>(program, sample.extents)
        .run(sample, Order::Definition, random);
  }

  Row reference(const Sample &sample) {
    if (cascade)
      return DefinitionEvaluator<DoubleDouble>(*cascade, sample.extents)
          .run(sample);
    return ProgramEvaluator<DoubleDouble>(program, sample.extents)
        .run(sample, Order::Definition, random);
  }

  Failure compareRows(const Row &found, const Row &expected,
                      const Row &neighbour) {
    if (cascade) {
      for (size_t i = 0; i < expected.stages.size(); ++i) {
        if (isTied(cascade->stages[i], expected.isSaturated, found.stages[i],
                   expected.stages[i]))
          return std::nullopt; // the payloads, and all that reads them, differ
        for (size_t j = 0; j < expected.stages[i].size(); ++j) {
          if (j >= found.stages[i].size() || found.stages[i][j].empty())
            continue; // nothing reads this stage
          ++certificate.readoutSamples;
          if (Failure failure =
                  compare(found.stages[i][j], expected.stages[i][j],
                          neighbour.stages[i][j], boundIn(bound.stages, i, j)))
            return "stage '" + cascade->stages[i].name + "' " + *failure;
        }
      }
    } else {
      for (size_t i = 0; i < expected.definitions.size(); ++i)
        if (Failure failure = compare(
                found.definitions[i], expected.definitions[i],
                neighbour.definitions[i], boundIn(bound.definitions, i)))
          return "definition " + std::to_string(i) + " " + *failure;
    }
    for (size_t i = 0; i < expected.outputs.size(); ++i)
      if (Failure failure =
              compare(found.outputs[i], expected.outputs[i],
                      neighbour.outputs[i], boundIn(bound.outputs, i)))
        return "output '" + program.outputs[i].name + "' " + *failure;
    return std::nullopt;
  }

  /// Keys that differ in exact arithmetic are equal where both underflow or are
  /// infinite: then the program may take the other element. Keys that are equal
  /// as functions (round) are no excuse.
  static bool isTied(const Stage &stage, bool isSaturated,
                     const std::vector<std::vector<DoubleDouble>> &found,
                     const std::vector<std::vector<DoubleDouble>> &expected) {
    if (stage.reducer != Reducer::TopK || found.empty() || found[0].empty())
      return false;
    bool differs = false;
    for (size_t j = 1; j < expected.size() && j < found.size(); ++j)
      differs |= !found[j].empty() && found[j] != expected[j];
    for (DoubleDouble key : expected[0])
      isSaturated |= !isfinite(key);
    return differs && isSaturated;
  }

  static const std::vector<Ball> *
  boundIn(const std::vector<std::vector<Ball>> &bounds, size_t i) {
    return i < bounds.size() ? &bounds[i] : nullptr;
  }
  static const std::vector<Ball> *
  boundIn(const std::vector<std::vector<std::vector<Ball>>> &bounds, size_t i,
          size_t j) {
    return i < bounds.size() ? boundIn(bounds[i], j) : nullptr;
  }

  /// What the bound allows, and how much of it was used.
  double allowance(const std::vector<Ball> *bounds, size_t i, double off) {
    double radius = bounds ? (*bounds)[i].radius : 0;
    if (radius > 0 && std::isfinite(radius))
      certificate.shareOfBound =
          std::max(certificate.shareOfBound, off / radius);
    return radius;
  }

  Failure compare(const std::vector<DoubleDouble> &found,
                  const std::vector<DoubleDouble> &expected,
                  const std::vector<DoubleDouble> &neighbour,
                  const std::vector<Ball> *bounds) {
    if (found.size() != expected.size())
      return "has " + std::to_string(found.size()) + " values; " +
             std::to_string(expected.size()) + " expected";
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!isfinite(expected[i]))
        continue; // rows of edge values compare classes
      double size = std::fabs(double(expected[i]));
      double off = std::fabs(double(found[i] - expected[i]));
      double shift = std::fabs(double(neighbour[i] - expected[i]));
      double radius = allowance(bounds, i, off);
      if (shift <= 1e-18 * size && size > 1e-6 && radius == 0)
        certificate.worst = std::max(certificate.worst, off / size);
      if (off <= kNothing)
        continue;
      double allowed =
          options.tolerance * size + kConditioning * shift + radius;
      if (!(off <= allowed) && std::isfinite(shift))
        return "is " + shortNumber(double(found[i])) + "; " +
               shortNumber(double(expected[i])) + " expected";
    }
    return std::nullopt;
  }

  const Cascade *cascade;
  const Program &program;
  const CertifyOptions &options;
  Certificate &certificate;
  Random random;
  std::vector<Expr> roots;
  bool hasProduct = false;
  bool isSingle = false;
  CastSlack slack = CastSlack::None;
  RowValues<Ball> bound; ///< of the row at hand
};
} // namespace

Failure checkRows(const Cascade *cascade, const Program &program,
                  const CertifyOptions &options, Certificate &certificate,
                  std::optional<uint32_t> exact) {
  RowCheck check(cascade, program, options, certificate);
  if (exact) {
    for (unsigned family = 0; family < kFamilies; ++family) {
      bool isChosen = Family(family) == Family::Normal ||
                      Family(family) == Family::Masked ||
                      Family(family) == Family::Growing;
      bool isShort =
          *exact <= kLongForAllOrders &&
          (options.extremeValues || !RowCheck::isExtreme(Family(family)));
      if (!isChosen && !isShort)
        continue;
      if (Failure failure = check.run(Family(family), *exact))
        return failure;
    }
    return std::nullopt;
  }
  for (const auto &stage : program.readouts)
    for (Expr value : stage)
      certificate.readouts += bool(value);
  for (unsigned family = 0; family < kFamilies; ++family) {
    if (!options.extremeValues && RowCheck::isExtreme(Family(family)))
      continue;
    for (unsigned row = 0; row < options.rowsPerFamily; ++row)
      if (Failure failure = check.run(Family(family), options.rowLength))
        return failure;
  }
  for (uint32_t length : {1, 2, 4})
    for (Family family : {Family::Normal, Family::Masked})
      if (Failure failure = check.run(family, length))
        return failure;
  return std::nullopt;
}

} // namespace refold::algebra::certifier
