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

/// An f32 result with an error beyond this part of the row's largest value, and
/// beyond this multiple of the error as written, has lost its digits.
static constexpr double kLost = 0.01, kGross = 100;

/// Sizes of elements, and whether their squares leave the range of f32 (some
/// digits, or all) or their cubes alone.
struct Scale {
  double size;
  bool leavesBySquares;
};
static constexpr Scale kScales[] = {
    {1e-18, false}, {1e17, false}, {1e-22, true}, {1e-26, true}, {1e20, true}};
/// Of several inputs at once whose squares are in the range, and of the gains
/// that they are multiplied by.
static constexpr double kOfNormalised = 1e17, kOfGains = 1e3;
/// An error that shows that squares lost digits below the range: half of them.
static constexpr double kHalfOfDigits = 0x1p-12;
static constexpr double kUlp = 0x1p-23;
/// Rows of a few elements differ by luck: so many times the error as written.
static constexpr double kMoreThanWritten = 16;
/// Results beyond leave the range of f32, or all but do.
static constexpr double kLeastResult = 0x1p-100, kMostOfResult = 0x1p118;

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
        certificate(certificate), random(options.seed), rowRandom(options.seed),
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
    Sample sample =
        makeSample(program.indices, roots, family, length, rowRandom);
    Sample shaken = sample;
    shaken.jitter = kJitter;
    Row expected = reference(sample), neighbour = reference(shaken);
    if (expected.isSaturated && isExtreme(family))
      return std::nullopt; // the definition itself leaves the range of double
    if (cascade && endsBeyondType(*cascade, expected))
      return std::nullopt;
    bound = {};
    if (slack != CastSlack::None) {
      bound = boundOf(sample);
      if (bound.isUndecided)
        return std::nullopt; // another comparison, another value
      ++certificate.boundedRows;
    }
    ProgramEvaluator<DoubleDouble> evaluator(program, sample.extents,
                                             options.defect);
    ++certificate.rows;
    ++certificate.rowsOf[family];
    certificate.lengths.insert(length);
    for (Order order : {Order::Stream, Order::Balanced, Order::Random,
                        Order::Right, Order::Pivots}) {
      if (length > kLongForAllOrders && order > Order::Balanced)
        break;
      count(order);
      Row found = evaluator.run(sample, order, random);
      // Classes are compared on rows of edge values. Parts of a product may
      // overflow though the whole does not.
      bool isExcused =
          !isFiniteRow(expected) || (hasProduct && isExtreme(family));
      if (!evaluator.isRegular() && isExcused)
        continue;
      double before = certificate.worst;
      std::string where = std::string(" (") + spelling(order) + ", " +
                          std::to_string(length) + " elements, " +
                          spelling(family) + ")";
      if (Failure failure = compareRows(found, expected, neighbour))
        return *failure + where;
      if (certificate.worst > before)
        certificate.worstAt = worstOf + where;
    }
    bool isMild = slack == CastSlack::None &&
                  (family == Family::Normal || family == Family::Near);
    if (Failure failure =
            isMild && length > 3 ? runShifted(sample, expected) : std::nullopt)
      return failure;
    if (family == Family::Normal && length > 3) {
      for (const Scale &scale : kScales)
        runScaled(sample, scale);
      runNormalised(sample);
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

  /// A truth value tells one bit of what it is made of: more rows.
  Failure runFlags() {
    bool hasFlag = false;
    for (const ProgramOutput &output : program.outputs)
      hasFlag |= output.value.type() == Type::Bool;
    for (unsigned row = 0; hasFlag && row < kFlagRows * options.rowsPerFamily;
         ++row)
      if (Failure failure = run(Family::Normal, 2 + row % 4))
        return failure;
    return std::nullopt;
  }

private:
  static constexpr unsigned kFlagRows = 48;

  void count(Order order) {
    ++certificate.orders;
    ++certificate.ordersOf[order];
  }

  /// A let that is 0 in exact arithmetic leads from a rounded pivot to the mean
  /// (theory, N3). What reads it must be the same at any pivot.
  Failure runShifted(const Sample &sample, const Row &expected) {
    ProgramEvaluator<DoubleDouble> evaluator(program, sample.extents,
                                             options.defect);
    Row exact = evaluator.run(sample, Order::Balanced, random);
    ExprSet shifts;
    for (size_t i = 0; i < program.definitions.size(); ++i)
      if (const Let *let = std::get_if<Let>(&program.definitions[i]))
        if (readsAny(let->value, shifts) ||
            (let->value.uses(Role::State) && isNothing(exact.definitions[i])))
          shifts.insert(let->symbol);
    if (shifts.empty())
      return std::nullopt;
    count(Order::Shifted);
    Row found = evaluator.run(sample, Order::Shifted, random);
    for (size_t i = 0; cascade && i < program.readouts.size(); ++i)
      if (readsAny(program.readouts[i][0], shifts))
        if (Failure failure = compare(found.stages[i][0], expected.stages[i][0],
                                      expected.stages[i][0], nullptr))
          return "stage '" + cascade->stages[i].name + "' " + *failure +
                 " where pivots are rounded";
    for (size_t i = 0; i < program.outputs.size(); ++i)
      if (readsAny(program.outputs[i].value, shifts))
        if (Failure failure = compare(found.outputs[i], expected.outputs[i],
                                      expected.outputs[i], nullptr))
          return "output '" + program.outputs[i].name + "' " + *failure +
                 " where pivots are rounded";
    return std::nullopt;
  }
  static bool readsAny(Expr value, const ExprSet &symbols) {
    bool result = false;
    for (Expr symbol : value ? symbolsOf(value) : std::vector<Expr>())
      result |= symbols.contains(symbol);
    return result;
  }
  static bool isNothing(const std::vector<DoubleDouble> &values) {
    return std::all_of(values.begin(), values.end(), [](DoubleDouble value) {
      return std::fabs(double(value)) <= kNothing;
    });
  }

  /// Every operation rounded to f32: outputs that are finite as written are
  /// finite in the program.
  Failure runSingle(Sample sample, Family family) {
    if (!isSingle)
      return std::nullopt;
    for (auto &[symbol, values] : sample.values)
      for (double &value : values)
        value = isFloat(symbol->type) ? float(value) : value;
    Row exact = reference(sample);
    ProgramEvaluator<float> evaluator(program, sample.extents, options.defect);
    RowValues<float> expected =
        cascade
            ? DefinitionEvaluator<float>(*cascade, sample.extents).run(sample)
            : evaluator.run(sample, Order::Definition, random);
    for (Order order : {Order::Stream, Order::Balanced, Order::Random}) {
      count(order);
      RowValues<float> found = evaluator.run(sample, order, random);
      for (size_t i = 0; i < expected.outputs.size(); ++i)
        if (double lost = errorOf(found.outputs[i], exact.outputs[i],
                                  expected.outputs[i]),
            unfused = errorOf(expected.outputs[i], exact.outputs[i],
                              expected.outputs[i]);
            slack == CastSlack::None && lost > kLost &&
            !(lost <= kGross * unfused))
          return "output '" + program.outputs[i].name + "' has an error of " +
                 shortNumber(lost) + " in f32 arithmetic; " +
                 shortNumber(unfused) + " as written (" + spelling(order) +
                 ", " + spelling(family) + ")";
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

  /// Elements of another size, in f32, one input after the other and all of
  /// them: powers that a program adds up, and what divides them, may leave the
  /// range of f32 where the stages as written do not. Such rows are irregular.
  void runScaled(const Sample &sample, const Scale &scale) {
    std::vector<const Symbol *> symbols = scalable(sample);
    for (const Symbol *symbol : symbols) {
      Sample row = sample;
      resize(row, symbol, scale.size);
      noteLost(row, scale, "'" + symbol->name + "'");
    }
    if (symbols.size() < 2 || !scale.leavesBySquares)
      return;
    Sample row = sample;
    for (const Symbol *symbol : symbols)
      resize(row, symbol, scale.size);
    noteLost(row, scale, "everything");
  }

  /// The same of all inputs that several stages read, beside gains: as written
  /// each is divided by what another stage makes of it, and small when it is
  /// multiplied by the others. What one stage alone reads, weights and gains,
  /// has no such size.
  void runNormalised(const Sample &sample) {
    std::vector<const Symbol *> symbols = scalable(sample);
    Sample row = sample;
    std::string names;
    unsigned number = 0;
    for (const Symbol *symbol : symbols) {
      auto reads = [&](const Stage &stage) {
        bool result = false;
        for (Expr read : symbolsOf(stage.term))
          result |= &read.symbol() == symbol;
        return result;
      };
      bool isNormalised = std::count_if(cascade->stages.begin(),
                                        cascade->stages.end(), reads) > 1;
      resize(row, symbol, isNormalised ? kOfNormalised : kOfGains);
      if (!isNormalised)
        continue;
      names += (number++ ? ", '" : "'") + symbol->name + "'";
    }
    if (number > 1 && !leavesRange(reference(row)))
      noteLost(row, {kOfNormalised, false}, names);
  }

  /// Inputs that may be of any size.
  std::vector<const Symbol *> scalable(const Sample &sample) const {
    std::vector<const Symbol *> symbols;
    if (!isSingle || slack != CastSlack::None || !cascade)
      return symbols;
    for (const auto &[symbol, values] : sample.values)
      if (isFloat(symbol->type) && symbol->role == Role::Element &&
          !std::isfinite(symbol->facts.low) &&
          !std::isfinite(symbol->facts.high))
        symbols.push_back(symbol);
    // The order of a map is not the same in every run.
    std::sort(symbols.begin(), symbols.end(),
              [](const Symbol *a, const Symbol *b) { return a->id < b->id; });
    return symbols;
  }

  static void resize(Sample &row, const Symbol *symbol, double size) {
    for (double &value : row.values[symbol])
      value = float(size * value);
  }

  void noteLost(const Sample &row, const Scale &scale,
                const std::string &what) {
    std::string lost = lostNumber(row, scale);
    if (lost.empty())
      return;
    ++certificate.edgeDifferences;
    certificate.rangeDifferences += scale.leavesBySquares;
    if (certificate.edgeExample.empty())
      certificate.edgeExample =
          what + " of " + shortNumber(scale.size) + " in f32: " + lost;
  }

  /// The output that is finite in f32 as written and not in the program, or has
  /// lost half of its digits there.
  std::string lostNumber(const Sample &sample, const Scale &scale) {
    RowValues<float> expected =
        DefinitionEvaluator<float>(*cascade, sample.extents).run(sample);
    RowValues<float> found =
        ProgramEvaluator<float>(program, sample.extents, options.defect)
            .run(sample, Order::Balanced, random);
    Row exact, neighbour;
    if (scale.leavesBySquares) {
      exact = reference(sample);
      Sample shaken = sample;
      shaken.jitter = kUlp;
      neighbour = reference(shaken);
    }
    // An overflow as written has lost the row, whatever number comes of it.
    bool isLost = scale.leavesBySquares && leavesRange(exact);
    for (size_t i = 0; i < expected.outputs.size(); ++i) {
      auto errorIn = [&](const RowValues<float> &row) {
        return errorOf(row.outputs[i], exact.outputs[i], expected.outputs[i]);
      };
      // A result that leaves the range is nobody's.
      double size = scale.leavesBySquares ? sizeOf(exact.outputs[i]) : 0;
      if (isLost || size > kMostOfResult)
        continue;
      for (size_t j = 0; j < expected.outputs[i].size(); ++j)
        if (std::isfinite(expected.outputs[i][j]) &&
            !std::isfinite(found.outputs[i][j]))
          return "'" + program.outputs[i].name + "' is no number";
      // What the stages as written lose is not owed, nor what a rounding of the
      // elements does. Positions change where keys underflow.
      if (!scale.leavesBySquares || size < kLeastResult ||
          !isFloat(program.outputs[i].value.type()) ||
          differ(exact.outputs[i], neighbour.outputs[i], kHalfOfDigits * size))
        continue;
      if (double error = errorIn(found), unfused = errorIn(expected);
          error > kHalfOfDigits && unfused <= kHalfOfDigits &&
          error > kMoreThanWritten * (unfused + kUlp))
        return "'" + program.outputs[i].name + "' errs by " +
               shortNumber(error);
    }
    return {};
  }

  /// How far roundings at running values may lead away from the definition.
  RowValues<Interval> boundOf(Sample sample) {
    sample.slack = slack;
    if (cascade)
      return DefinitionEvaluator<Interval>(*cascade, sample.extents)
          .run(sample);
    return ProgramEvaluator<Interval>(program, sample.extents)
        .run(sample, Order::Definition, random);
  }

  /// The largest difference in parts of the largest value; 0 if that is none.
  /// Only where the formula as written is a number in f32 is there an error to
  /// be held against.
  static double errorOf(const std::vector<float> &found,
                        const std::vector<DoubleDouble> &exact,
                        const std::vector<float> &written) {
    double error = 0, size = 0;
    for (size_t i = 0; i < exact.size() && i < found.size(); ++i)
      if (isfinite(exact[i]) && std::isfinite(found[i]) &&
          std::isfinite(written[i])) {
        size = std::max(size, std::fabs(double(exact[i])));
        error = std::max(error, std::fabs(found[i] - double(exact[i])));
      }
    return size > 0 ? error / size : 0;
  }

  static bool differ(const std::vector<DoubleDouble> &a,
                     const std::vector<DoubleDouble> &b, double by) {
    for (size_t i = 0; i < a.size(); ++i)
      if (isfinite(a[i]) && !(std::fabs(double(a[i] - b[i])) <= by))
        return true;
    return false;
  }

  /// A result of a stage.
  static bool leavesRange(const Row &exact) {
    for (const auto &stage : exact.stages)
      for (const std::vector<DoubleDouble> &values : stage)
        if (sizeOf(values) > kMostOfResult)
          return true;
    return false;
  }

  static double sizeOf(const std::vector<DoubleDouble> &values) {
    double size = 0;
    for (DoubleDouble value : values)
      if (isfinite(value))
        size = std::max(size, std::fabs(double(value)));
    return size;
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
          // Which of equal keys is taken is no matter of conditioning.
          bool isPayload = cascade->stages[i].reducer == Reducer::TopK && j > 0;
          if (Failure failure = compare(
                  found.stages[i][j], expected.stages[i][j],
                  isPayload ? expected.stages[i][j] : neighbour.stages[i][j],
                  boundIn(bound.stages, i, j)))
            return "stage '" + cascade->stages[i].name + "' " + *failure;
          noteWorst("stage", cascade->stages[i].name);
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
      else
        noteWorst("output", program.outputs[i].name);
    return std::nullopt;
  }

  /// Where the largest disagreement is.
  void noteWorst(const char *what, const std::string &name) {
    if (certificate.worst <= worst)
      return;
    worst = certificate.worst;
    worstOf = std::string(what) + " '" + name + "'";
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
    return differs && isSaturated;
  }

  static const std::vector<Interval> *
  boundIn(const std::vector<std::vector<Interval>> &bounds, size_t i) {
    return i < bounds.size() ? &bounds[i] : nullptr;
  }
  static const std::vector<Interval> *
  boundIn(const std::vector<std::vector<std::vector<Interval>>> &bounds,
          size_t i, size_t j) {
    return i < bounds.size() ? boundIn(bounds[i], j) : nullptr;
  }

  /// What the bound allows, and how much of it was used.
  double allowance(const std::vector<Interval> *bounds, size_t i, double off) {
    double radius = bounds ? (*bounds)[i].radius() : 0;
    if (radius > 0 && std::isfinite(radius))
      certificate.shareOfBound =
          std::max(certificate.shareOfBound, off / radius);
    return radius;
  }

  Failure compare(const std::vector<DoubleDouble> &found,
                  const std::vector<DoubleDouble> &expected,
                  const std::vector<DoubleDouble> &neighbour,
                  const std::vector<Interval> *bounds) {
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
  Random random;    ///< of orders
  Random rowRandom; ///< the same rows for every program of a cascade
  std::vector<Expr> roots;
  bool hasProduct = false;
  bool isSingle = false;
  CastSlack slack = CastSlack::None;
  RowValues<Interval> bound; ///< of the row at hand
  double worst = 0;          ///< that `worstOf` is about
  std::string worstOf;
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
  return check.runFlags();
}

} // namespace refold::algebra::certifier
