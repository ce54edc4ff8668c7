// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CertifyLetters.h"
#include "CertifyParts.h"
#include "refold/Algebra/CoveringDesign.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace refold::algebra::certifier {

static constexpr double kInf = std::numeric_limits<double>::infinity();
/// Differences of finite results that are no rounding of such rows.
static constexpr double kEdgeError = 1e-6;

/// Fused and unfused have the same class up to overflow (the theory, E4): a
/// result beyond this part of the largest number may be infinite in one of
/// them.
static constexpr double kNearOverflow = 0x1p-10;
/// How far numbers are moved to see whether they cancel by chance.
static constexpr double kMove = 1e-3;

/// A number that the lowest and the highest of f32 are infinitely far from, and
/// that still may be summed.
static constexpr double kFar = 1e34, kFarInF64 = 1e303;

enum class Class { Finite, Nan, PlusInf, MinusInf };

static Class classOf(double value) {
  if (std::isnan(value))
    return Class::Nan;
  if (std::isinf(value))
    return value > 0 ? Class::PlusInf : Class::MinusInf;
  return Class::Finite;
}

static const char *spelling(Class of) {
  static const char *const names[] = {"finite", "nan", "inf", "-inf"};
  return names[unsigned(of)];
}

namespace {
/// By law `irregular-rows`, where everything a program computes is finite,
/// fused and unfused have the same class. Which rows must agree:
enum class Kind {
  Empty,
  Dead, ///< one quantity -inf at every position, all else finite: agrees if
        ///< an extremum ends at its identity (law `identity-row`)
  Any   ///< agrees if the program calls it regular
};

class EdgeCheck {
public:
  EdgeCheck(const Cascade *cascade, const Program &program,
            const CertifyOptions &options, Certificate &certificate)
      : cascade(cascade), program(program), options(options),
        certificate(certificate), random(options.seed * 77 + 5),
        roots(cascade ? rootsOf(*cascade) : rootsOf(program)),
        letters(program, roots),
        isRounded(!cascade || !program.roundings.empty()) {}

  /// T: the arithmetic, double or float. `own`: it is the program's, so that
  /// features that have an extreme may be masked by the lowest number, the
  /// square of which is infinite.
  template <typename T> Failure run(uint32_t length, unsigned rows, bool own) {
    isOwn = own;
    lowest = -double(std::numeric_limits<T>::max());
    // Extents depend on the length alone if the seed does.
    Random shapeRandom(length + 1);
    Sample base =
        makeSample(program.indices, roots, Family::Normal, length, shapeRandom);
    ProgramEvaluator<T> evaluator(program, base.extents, options.defect);
    std::unique_ptr<DefinitionEvaluator<T>> definition;
    if (cascade)
      definition =
          std::make_unique<DefinitionEvaluator<T>>(*cascade, base.extents);
    if (!length) {
      if (Failure failure =
              compareRow(base, Kind::Empty, evaluator, definition.get()))
        return failure;
    } else if (rows > 0) {
      if (Failure failure = runDesign(base, rows, evaluator, definition.get()))
        return failure;
    }
    for (bool isFar : {false, true}) {
      if (!isOwn || !length || !letters.hasMasked())
        break;
      setEnds(base, isFar);
      if (Failure failure =
              compareRow(base, Kind::Any, evaluator, definition.get()))
        return failure;
    }
    for (Expr dead : letters.elements()) {
      if (!length || !setDead(base, dead))
        continue;
      if (Failure failure =
              compareRow(base, Kind::Dead, evaluator, definition.get(), dead))
        return failure;
    }
    return std::nullopt;
  }

  void noteClasses() {
    for (Class of :
         {Class::Finite, Class::Nan, Class::PlusInf, Class::MinusInf})
      if (unsigned count = classes[unsigned(of)])
        certificate.edgeClasses[spelling(of)] += count;
  }

private:
  /// Every combination of a few values in some row.
  template <typename T>
  Failure runDesign(Sample &sample, unsigned rows,
                    ProgramEvaluator<T> &evaluator,
                    DefinitionEvaluator<T> *definition) {
    std::vector<Factor> factors =
        letters.factors(sample, isOwn ? lowest : 0, options.seed);
    std::vector<unsigned> levels;
    for (const Factor &factor : factors)
      levels.push_back(unsigned(factor.letters.size()));
    auto [known, isNew] = designs.try_emplace({levels, rows});
    if (isNew)
      known->second = coveringDesign(levels, rows);
    const Design &design = known->second;
    std::vector<std::vector<uint8_t>> sparse;
    if (!design.isComplete)
      sparse = sparseRows(factors, rows, options.seed);
    certificate.edges.push_back(
        {arithmetic(), sample.length(program.indices),
         unsigned(design.rows.size()), unsigned(sparse.size()),
         unsigned(factors.size()), design.strength, design.isComplete});
    for (const Factor &factor : factors)
      noteLetters(factor);
    for (const std::vector<std::vector<uint8_t>> *list :
         {&design.rows, &std::as_const(sparse)})
      for (const std::vector<uint8_t> &row : *list) {
        setRow(sample, factors, row);
        if (Failure failure =
                compareRow(sample, Kind::Any, evaluator, definition))
          return failure;
      }
    return std::nullopt;
  }

  const char *arithmetic() const {
    return !isOwn ? "double" : lowest < -1e300 ? "f64" : "f32";
  }

  void noteLetters(const Factor &factor) {
    std::vector<double> &values = certificate.edgeValues[factor.symbol->name];
    for (double value : factor.letters) {
      auto isSame = [&](double other) {
        return other == value || (std::isnan(other) && std::isnan(value));
      };
      if (std::none_of(values.begin(), values.end(), isSame))
        values.push_back(value);
    }
    std::sort(values.begin(), values.end(), [](double a, double b) {
      return std::isnan(b) ? !std::isnan(a) : a < b;
    });
  }

  /// Features so far from where sides stand that have seen nothing that the way
  /// between overflows. Or masked by the lowest number,
  /// all but the last: sums of such numbers overflow before a factor of 0
  /// arrives.
  void setEnds(Sample &sample, bool isFar) {
    for (Expr e : letters.elements()) {
      std::vector<double> &values = sample.values.at(&e.symbol());
      bool isSmallest = letters.isSmallest(e);
      bool isFeature = letters.isMasked(e) && (isFar || !isSmallest);
      double far = lowest < -1e300 ? kFarInF64 : kFar;
      double end = !isFar ? lowest : isSmallest ? -far : far;
      for (double &value : values)
        value = e.type() == Type::Bool         ? 1
                : isFeature                    ? end
                : e.symbol().facts.nonNegative ? 0.5
                                               : 1.5;
      if (isFeature && !isFar)
        values.back() = 2;
    }
  }

  bool setDead(Sample &sample, Expr dead) {
    const Facts &facts = dead.symbol().facts;
    if (dead.type() == Type::Bool || facts.nonNegative || !facts.mayBeNegInf ||
        std::isfinite(facts.low))
      return false;
    for (Expr e : letters.elements())
      for (double &value : sample.values.at(&e.symbol()))
        value = e == dead                      ? -kInf
                : e.type() == Type::Bool       ? 1
                : e.symbol().facts.nonNegative ? 0.5
                                               : 1.5;
    return true;
  }

  template <typename T>
  Failure compareRow(const Sample &sample, Kind kind,
                     ProgramEvaluator<T> &evaluator,
                     DefinitionEvaluator<T> *definition, Expr dead = Expr()) {
    RowValues<T> expected =
        definition ? definition->run(sample)
                   : evaluator.run(sample, Order::Definition, random);
    if (definition && endsBeyondType(*cascade, expected))
      return std::nullopt;
    ++certificate.edgeRows;
    for (const auto &output : expected.outputs)
      for (T value : output)
        ++classes[unsigned(classOf(value))];
    // Random trees have empty parts, whose merging may overflow f32. A tree
    // that leans to the right is balanced up to three elements.
    Order last = isOwn ? Order::Random : Order::Right;
    bool isBalanced = !isOwn && sample.length(program.indices) <= 3;
    for (Order order : {Order::Stream, Order::Balanced, last}) {
      if (order == last && isBalanced)
        break;
      RowValues<T> found = evaluator.run(sample, order, random);
      bool isStrict = kind == Kind::Empty ||
                      (kind == Kind::Dead && hasDeadExtremum(expected, dead));
      // What only stages show, no user sees: where the program promises it.
      std::string difference =
          compareValues(found, expected, kind,
                        !isRounded && (isStrict || evaluator.isRegular()));
      if (difference.empty())
        continue;
      if (kind == Kind::Any && definition &&
          isCoincidence(sample, order, evaluator, *definition))
        continue;
      difference += " on " + describe(sample);
      if (isStrict || evaluator.isRegular() || isFiniteRow(expected))
        return difference + " (" + algebra::spelling(order) +
               (isOwn ? std::string(", in ") + arithmetic() + ")" : ")");
      ++certificate.edgeDifferences;
      if (certificate.edgeExample.empty() ||
          difference.size() < certificate.edgeExample.size())
        certificate.edgeExample = difference;
      break;
    }
    return std::nullopt;
  }

  /// Numbers that cancel exactly, in one order of summation and not in another:
  /// 0 times an infinity is NaN, the least rounding times it is not. True if
  /// both agree as soon as the numbers of the row are a little different, equal
  /// ones staying equal.
  template <typename T>
  bool isCoincidence(const Sample &sample, Order order,
                     ProgramEvaluator<T> &evaluator,
                     DefinitionEvaluator<T> &definition) {
    Sample moved = sample;
    for (Expr e : letters.elements())
      for (double &value : moved.values.at(&e.symbol()))
        if (isFloat(e.type()) && std::isfinite(value) && value != lowest)
          value += kMove * (1 + std::fabs(value)) * std::cos(40 * value);
    RowValues<T> expected = definition.run(moved);
    RowValues<T> found = evaluator.run(moved, order, random);
    return compareValues(found, expected, Kind::Any, !isRounded).empty() &&
           !hasSameClasses(expected, definition.run(sample));
  }

  /// Of outputs and stages.
  template <typename T>
  static bool hasSameClasses(const RowValues<T> &a, const RowValues<T> &b) {
    auto classes = [](const RowValues<T> &row) {
      std::vector<Class> found;
      for (const auto &output : row.outputs)
        for (T value : output)
          found.push_back(classOf(value));
      for (const auto &stage : row.stages)
        for (const auto &values : stage)
          for (T value : values)
            found.push_back(classOf(value));
      return found;
    };
    return classes(a) == classes(b);
  }

  static bool isIdentity(Reducer reducer, double value) {
    bool isMax = reducer == Reducer::Max || reducer == Reducer::MaxNum;
    bool isMin = reducer == Reducer::Min || reducer == Reducer::MinNum;
    return (isMax && value == -kInf) || (isMin && value == kInf);
  }

  /// An extremum at its identity because `dead` is: not because of a mask while
  /// the weights of the row are not finite (a guard's 0 times them).
  template <typename T>
  bool hasDeadExtremum(const RowValues<T> &expected, Expr dead) {
    bool found = false;
    if (cascade) {
      for (size_t i = 0; i < cascade->stages.size(); ++i)
        if (contains(cascade->stages[i].term, dead))
          for (T value : expected.stages[i][0])
            found |= isIdentity(cascade->stages[i].reducer, value);
      return found;
    }
    for (size_t i = 0; i < program.definitions.size(); ++i) {
      const State *state = std::get_if<State>(&program.definitions[i]);
      if (state && contains(state->values[0], dead))
        for (T value : expected.definitions[i])
          found |= isIdentity(state->reducer, value);
    }
    return found;
  }

  /// Of outputs, which is what users see, and of what is read out of stages.
  template <typename T>
  std::string compareValues(const RowValues<T> &found,
                            const RowValues<T> &expected, Kind kind,
                            bool hasStages) {
    for (size_t i = 0; i < expected.outputs.size(); ++i)
      for (size_t j = 0; j < expected.outputs[i].size(); ++j) {
        // What the policy for masked rows changes: NaN to 0.
        if (isZeroed(program.outputs[i].name) &&
            classOf(expected.outputs[i][j]) == Class::Nan &&
            found.outputs[i][j] == T(0))
          continue;
        if (std::string text =
                compareValue(found.outputs[i][j], expected.outputs[i][j], kind);
            !text.empty())
          return "output '" + program.outputs[i].name + "' is " + text;
      }
    for (size_t i = 0; hasStages && i < expected.stages.size(); ++i)
      for (size_t r = 0; r < expected.stages[i].size(); ++r)
        for (size_t j = 0; j < expected.stages[i][r].size(); ++j)
          if (r < found.stages[i].size() && j < found.stages[i][r].size())
            if (std::string text = compareValue(found.stages[i][r][j],
                                                expected.stages[i][r][j], kind);
                !text.empty())
              return "stage '" + cascade->stages[i].name + "' is " + text;
    return "";
  }

  /// What is wrong with a value, or nothing. Numbers are compared in double:
  /// edge values cancel exactly.
  std::string compareValue(double found, double expected, Kind kind) {
    // The formula as written overflows, or all but does, or is told in double.
    if (isOwn && !(std::fabs(expected) <= -lowest * kNearOverflow))
      return "";
    if (classOf(found) != classOf(expected))
      return std::string(spelling(classOf(found))) + "; " +
             spelling(classOf(expected)) + " expected";
    double allowed =
        kind == Kind::Empty ? 0 : kEdgeError * (1 + std::fabs(expected));
    if (classOf(found) == Class::Finite && !isOwn && !isRounded &&
        !(std::fabs(found - expected) <= allowed))
      return std::to_string(found) + "; " + std::to_string(expected) +
             " expected";
    return "";
  }

  bool isZeroed(const std::string &output) const {
    return std::find(program.zeroedOutputs.begin(), program.zeroedOutputs.end(),
                     output) != program.zeroedOutputs.end();
  }

  std::string describe(const Sample &sample) {
    if (sample.length(program.indices) == 0)
      return "the empty row";
    std::string text = "the row";
    for (Expr e : letters.elements()) {
      text += " " + e.symbol().name + " =";
      for (double value : sample.values.at(&e.symbol())) {
        char buffer[32];
        std::snprintf(buffer, sizeof(buffer), " %g", value);
        text += buffer;
      }
    }
    return text.size() > 200 ? "a row of edge values" : text;
  }

  const Cascade *cascade;
  const Program &program;
  const CertifyOptions &options;
  Certificate &certificate;
  Random random;
  std::vector<Expr> roots;
  Letters letters;
  /// Of the numbers of letters, and how many rows there may be.
  std::map<std::pair<std::vector<unsigned>, size_t>, Design> designs;
  double lowest = 0;
  bool isOwn = false;
  unsigned classes[4] = {}; ///< of expected outputs
  bool isRounded;           ///< casts of running values: other numbers
};
} // namespace

bool isSingleOnly(const std::vector<Expr> &roots) {
  bool result = true;
  for (Expr root : roots)
    forEachNode(root, [&](Expr e) { result &= e.type() != Type::F64; });
  return result;
}

/// Lengths that are symbols may be known to be at least 1.
static bool mayBeEmpty(const std::vector<Index> &indices) {
  std::optional<StreamLength> known = streamLength(indices);
  if (known && known->isStatic && known->factor != 0)
    return false;
  return std::any_of(indices.begin(), indices.end(), [](const Index &index) {
    return index.role == IndexRole::Stream &&
           (index.length.isSym() ? index.length.symbol().facts.low < 1
                                 : index.extent <= 0);
  });
}

static Failure checkLengths(EdgeCheck &check, const Program &program,
                            const CertifyOptions &options,
                            std::optional<uint32_t> exact) {
  bool isSingle = isSingleOnly(rootsOf(program));
  auto inOwn = [&](uint32_t length, unsigned rows) {
    return isSingle ? check.run<float>(length, rows, true)
                    : check.run<double>(length, rows, true);
  };
  if (exact) {
    // Long rows cost more, and hold more values each.
    constexpr uint32_t kLong = 16;
    unsigned rows = *exact ? options.edgeRows / (*exact > kLong ? 32 : 8) : 1;
    Failure failure = check.run<double>(*exact, rows, false);
    return failure ? failure : inOwn(*exact, rows);
  }
  const std::pair<uint32_t, unsigned> sizes[] = {{0, 1},
                                                 {1, options.edgeRows / 4},
                                                 {2, options.edgeRows / 4},
                                                 {3, options.edgeRows / 2}};
  for (auto [length, rows] : sizes)
    if (length > 0 || mayBeEmpty(program.indices)) {
      if (Failure failure = check.run<double>(length, rows, false))
        return failure;
      if (Failure failure = inOwn(length, rows))
        return failure;
    }
  return std::nullopt;
}

Failure checkEdges(const Cascade *cascade, const Program &program,
                   const CertifyOptions &options, Certificate &certificate,
                   std::optional<uint32_t> exact) {
  EdgeCheck check(cascade, program, options, certificate);
  Failure failure = checkLengths(check, program, options, exact);
  check.noteClasses();
  return failure;
}

} // namespace refold::algebra::certifier
