// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CertifyField.h"
#include "CertifyTerm.h"
#include "EvaluateCode.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace refold::algebra {
using namespace certifier;

// Law `minor-of-a-term`: a minor of order K of the term F(x_i, δ_j) that is not
// 0 as a function shows that F is no sum of fewer than K products g(x)·h(δ).
//
// Each column is a real row that holds the elements x_i of all columns and some
// of its own, whose results δ_j move freely with those. Kinks, comparisons and
// roundings are decided on it, with room to spare, and so stay as they are on
// an open set: there F is the piece that they leave, a polynomial in numbers,
// exponentials and logarithms. Those are algebraically independent as far as
// their arguments are linearly so (Ax), which is how the field reads them: a
// minor that is not 0 over it is none over the reals.

/// Room of a decision, relative to what is compared.
static constexpr double kRoom = 1e-9;
/// A node count beyond which a term is only sampled.
static constexpr size_t kMostNodes = 192;
/// Rows for each element, at most.
static constexpr unsigned kBatches = 5;
/// Elements of a column's own.
static constexpr uint32_t kOwn = 4;
/// Relative error of a sampled entry that ball arithmetic assumes: ten of the
/// 31 digits are given away.
static constexpr double kEntryError = 1e-21;

namespace {
/// The rows on which a term is looked at.
class Columns {
public:
  Columns(const Cascade &cascade, const Program &program, unsigned stage,
          unsigned order, uint64_t seed)
      : of(cascade, &program, stage), order(order), random(seed) {
    IndexSet inner = cascade.indicesOf(IndexRole::Inner);
    bool isSmall = true;
    forEachNode(of.term(), [&](Expr e) {
      if (e != of.term() && !(e.indices() & inner) && nodes.size() < kMostNodes)
        nodes.push_back(e);
      isSmall &= nodes.size() < kMostNodes;
    });
    if (isSmall)
      for (Expr e : nodes)
        of.cascade.addOutput("", e);
    else
      nodes.clear();
    for (Expr symbol : symbolsOf(of.term()))
      if (symbol.isSym(Role::Stage))
        results.push_back(symbol);
    stream = cascade.stream();
    roots = rootsOf(of.cascade);
    base = draw();
    evaluator = std::make_unique<DefinitionEvaluator<DoubleDouble>>(
        of.cascade, base.extents);
    RowValues<DoubleDouble> first = evaluator->run(base);
    for (auto [result, parameter] : of.constants)
      base.values[&parameter.symbol()] = {
          double(first.stages[result.symbol().ordinal][0][0])};
  }

  /// The next row: it shares the first `order` elements with all others. Odd
  /// ones reach far, so that sums move. False if the term has no such elements.
  bool next() {
    ++number;
    Sample fresh = draw();
    double reach = number % 2       ? double(order) * random.uniform(-1.5, 1.5)
                   : number % 4 < 2 ? 2
                                    : 1;
    sample = base;
    for (auto &[symbol, values] : sample.values)
      forEachOwn(*symbol, values, [&](size_t i) {
        double value = reach * fresh.values.at(symbol)[i];
        values[i] = symbol->facts.nonNegative ? std::fabs(value) : value;
        values[i] =
            std::clamp(values[i], symbol->facts.low, symbol->facts.high);
      });
    row = evaluator->run(sample);
    return row.outputs[0].size() >= order;
  }

  /// The value of output `node` (0: the term) at an element.
  DoubleDouble value(size_t node, unsigned element) const {
    const std::vector<DoubleDouble> &values = row.outputs[node];
    return values[values.size() == 1 ? 0 : element];
  }
  double parameter(const Symbol &symbol) const {
    auto it = sample.values.find(&symbol);
    return it == sample.values.end() || it->second.empty() ? 0 : it->second[0];
  }
  /// True if the results move independently with the row's own elements: the
  /// matrix of their derivatives has full rank.
  bool movesFreely() {
    RowValues<DoubleDouble> before = row;
    Matrix jacobian;
    constexpr double step = 1e-10;
    for (auto [symbol, own] : inOrder(sample)) {
      std::vector<double> &values = *own;
      forEachOwn(*symbol, values, [&](size_t i) {
        if (jacobian.size() >= 2 * results.size() + 2)
          return;
        double kept = values[i];
        values[i] += step;
        double moved = values[i] - kept;
        RowValues<DoubleDouble> after = evaluator->run(sample);
        values[i] = kept;
        jacobian.emplace_back();
        for (Expr symbol : results) {
          unsigned stage = symbol.symbol().ordinal;
          DoubleDouble slope =
              (after.stages[stage][0][0] - before.stages[stage][0][0]) /
              DoubleDouble(moved);
          // Curvature is no slope.
          jacobian.back().push_back(
              fabs(double(slope)) < 1e-6 || !isfinite(slope) ? DoubleDouble(0)
                                                             : slope);
        }
      });
    }
    size_t size = std::max(jacobian.size(), results.size());
    jacobian.resize(size);
    for (auto &line : jacobian)
      line.resize(size, DoubleDouble(0));
    return numericRank(std::move(jacobian)) >= results.size();
  }

  TermCascade of;
  unsigned order;
  std::vector<Expr> nodes;   ///< of the term, where it is small
  std::vector<Expr> results; ///< symbols of stages that vary

private:
  Sample draw() {
    return makeSample(of.cascade.indices, roots, Family::Normal, order + kOwn,
                      random);
  }

  template <typename Visit>
  void forEachOwn(const Symbol &symbol, const std::vector<double> &values,
                  Visit visit) {
    if (symbol.role != Role::Element || !isFloat(symbol.type))
      return;
    for (auto [index, stride] :
         evaluate::shapeOf(symbol.indices, base.extents).steps)
      for (size_t i = 0; i < values.size() && (stream >> index & 1); ++i)
        if (i / stride % base.extents[index] >= order)
          visit(i);
  }

  IndexSet stream = 0;
  Random random;
  std::vector<Expr> roots;
  Sample base, sample;
  RowValues<DoubleDouble> row;
  std::unique_ptr<DefinitionEvaluator<DoubleDouble>> evaluator;
  unsigned number = 0;
};

/// Reads the pieces of a term over the field.
class PieceReader {
public:
  PieceReader(Columns &columns, uint64_t seed)
      : columns(columns), context(*columns.of.cascade.context),
        reader(seed,
               std::vector<uint32_t>(columns.of.cascade.indices.size(), 2)) {
    for (size_t i = 0; i < columns.nodes.size(); ++i)
      at[columns.nodes[i]] = i + 1;
  }

  /// F(x_element, δ) of the present column, a residue; nothing where it is no
  /// such polynomial or a decision has no room.
  std::optional<uint64_t> read(unsigned element, unsigned column) {
    i = element;
    j = column;
    isKnown = true;
    pieces.clear();
    environment.clear();
    Expr piece = pieceOf(columns.of.term());
    if (!isKnown)
      return std::nullopt;
    uint64_t residue = reader.read(piece, environment);
    if (!rootsAreSquares())
      return std::nullopt;
    return residue;
  }

private:
  double real(Expr e) {
    auto it = at.find(e);
    if (it == at.end()) {
      isKnown = false;
      return 0;
    }
    return double(columns.value(it->second, i));
  }
  Expr refuse(Expr e) {
    isKnown = false;
    return e;
  }
  /// The sign of a number that keeps it nearby.
  int signOf(double value, double size) {
    if (!(std::fabs(value) > kRoom * (1 + size)) || !std::isfinite(value))
      isKnown = false;
    return value < 0 ? -1 : 1;
  }
  int signOf(Expr e) { return signOf(real(e), 0); }
  /// The sign of a - b.
  int order(Expr a, Expr b) {
    double left = real(a), right = real(b);
    return signOf(left - right, std::fabs(left));
  }

  Expr pieceOf(Expr e) {
    auto it = pieces.find(e);
    if (it != pieces.end() || !isKnown)
      return it != pieces.end() ? it->second : e;
    Expr piece = compute(e);
    pieces[e] = piece;
    return piece;
  }

  Expr compute(Expr e) {
    auto in = [&](unsigned k) { return pieceOf(e.operand(k)); };
    switch (e.kind()) {
    case Kind::Const:
      return std::isfinite(*e.constant()) ? e : refuse(e);
    case Kind::Sym:
      return symbol(e);
    case Kind::Contract:
      return e.uses(Role::Stage) ? refuse(e) : free(e);
    case Kind::Max:
    case Kind::MaxNum:
      return in(order(e.operand(0), e.operand(1)) < 0 ? 1 : 0);
    case Kind::Min:
    case Kind::MinNum:
      return in(order(e.operand(0), e.operand(1)) < 0 ? 0 : 1);
    case Kind::Select:
      return in(truth(e.operand(0)) ? 1 : 2);
    case Kind::Cmp:
    case Kind::And:
    case Kind::Or:
    case Kind::Not:
      return context.integer(truth(e));
    case Kind::Cast:
      if (isFloat(e.type()) && !isFloat(e.operand(0).type()))
        return in(0);
      return rounded(e);
    case Kind::Fn:
      return function(e);
    case Kind::Pow:
      if (!e->exponent.isInteger())
        return root(e, context.pow(in(0), e->exponent));
      [[fallthrough]];
    default: {
      std::vector<Expr> operands;
      for (unsigned k = 0; k < e.size(); ++k)
        operands.push_back(in(k));
      return isKnown ? context.rebuild(e, operands) : e;
    }
    }
  }

  bool truth(Expr e) {
    switch (e.kind()) {
    case Kind::And:
    case Kind::Or: {
      // Both sides have to have room.
      bool a = truth(e.operand(0)), b = truth(e.operand(1));
      return e.is(Kind::And) ? a && b : a || b;
    }
    case Kind::Not:
      return !truth(e.operand(0));
    case Kind::Cmp:
      if (isFloat(e.operand(0).type()))
        order(e.operand(0), e.operand(1));
      break;
    case Kind::Sym:
    case Kind::Const:
      break;
    default:
      isKnown = false;
    }
    return real(e) != 0;
  }

  /// Elements and results are free; places are the numbers that they are.
  Expr symbol(Expr e) {
    const Symbol &own = e.symbol();
    bool isNumber =
        isFloat(own.type) && own.role != Role::Index && own.role != Role::Let;
    if (own.role == Role::Stage && !isFloat(own.type))
      return refuse(e);
    if (!isNumber)
      return context.integer(int64_t(
          own.role == Role::Parameter ? columns.parameter(own) : real(e)));
    uint64_t key = own.role == Role::Element ? 2 * i + 1
                   : own.role == Role::Stage ? 2 * j + 2
                                             : 0;
    uint64_t residue = reader.random(kFree, {own.id, key});
    // A square is positive: what is known to be so has a root.
    environment[&own] = F::mul(residue, residue);
    return e;
  }
  /// A sum over inner indices is free too: each element has operands of its
  /// own.
  Expr free(Expr e) {
    Expr &stand = stands[e];
    if (!stand)
      stand = context.symbol("", Role::Element, e.type(), 0);
    return symbol(stand);
  }

  /// A whole number of units nearby, and so a constant.
  Expr rounded(Expr e) {
    double value = real(e);
    return std::isfinite(value) ? context.real(value, e.type()) : refuse(e);
  }

  Expr function(Expr e) {
    Expr argument = e.operand(0);
    auto in = [&] { return pieceOf(argument); };
    switch (e->fn) {
    case Fn::Abs:
      return signOf(argument) < 0 ? context.neg(in()) : in();
    case Fn::Relu:
      return signOf(argument) < 0 ? context.real(0) : in();
    case Fn::Sign:
      return context.integer(signOf(argument));
    case Fn::Floor:
    case Fn::Ceil:
    case Fn::Round:
      return rounded(e);
    case Fn::Tanh: { // (e^2a - 1) / (e^2a + 1)
      Expr two = context.exp(context.mul(context.real(2), in()));
      return context.div(context.sub(two, context.real(1)),
                         context.add(two, context.real(1)));
    }
    case Fn::Log1p:
      return context.log(context.add(context.real(1), in()));
    case Fn::Sqrt:
    case Fn::Rsqrt:
      return root(e, context.fn(e->fn, in()));
    case Fn::Exp:
    case Fn::Exp2:
    case Fn::Expm1:
    case Fn::Log:
    case Fn::Log2:
    case Fn::Sigmoid:
    case Fn::Cosh:
    case Fn::Sinh: {
      Expr operand = in();
      return isKnown ? context.rebuild(e, std::span(&operand, 1)) : e;
    }
    default:
      return refuse(e);
    }
  }

  /// A root is what its power says only of squares of the field.
  Expr root(Expr original, Expr piece) {
    bool isMixed = original.operand(0).uses(Role::Stage) &&
                   original.operand(0).uses(Role::Element);
    if (isMixed)
      return refuse(original);
    // Of a constant it is a constant.
    if (piece.is(Kind::Pow) || piece.is(Kind::Fn))
      roots.insert(piece.operand(0));
    return piece;
  }
  bool rootsAreSquares() {
    bool result = true;
    for (Expr e : roots)
      result &= F::pow(reader.read(e, environment), kHalfPrime) == 1;
    roots.clear();
    return result;
  }

  enum : uint64_t { kFree = 70 };
  Columns &columns;
  Context &context;
  FieldReader reader;
  std::unordered_map<Expr, size_t, ExprHash> at;
  ExprMap pieces, stands;
  ExprSet roots;
  FieldReader::Environment environment;
  unsigned i = 0, j = 0;
  bool isKnown = true;
};
} // namespace

using ResidueMatrix = std::vector<std::vector<uint64_t>>; ///< [column][element]

/// Rows of the matrix are columns `drawn` of the evidence.
static void findFieldMinor(ResidueMatrix matrix, std::vector<unsigned> drawn,
                           RankEvidence &evidence) {
  unsigned rank = 0;
  evidence.elements.clear();
  evidence.determinant = 1;
  size_t width = matrix.empty() ? 0 : matrix[0].size();
  for (size_t at = 0; at < width && rank < matrix.size(); ++at) {
    size_t pivot = rank;
    while (pivot < matrix.size() && matrix[pivot][at] == 0)
      ++pivot;
    if (pivot == matrix.size())
      continue;
    if (pivot != rank) {
      std::swap(matrix[pivot], matrix[rank]);
      std::swap(drawn[pivot], drawn[rank]);
      evidence.determinant = F::sub(0, evidence.determinant);
    }
    evidence.elements.push_back(unsigned(at));
    evidence.determinant = F::mul(evidence.determinant, matrix[rank][at]);
    uint64_t inverse = F::inverse(matrix[rank][at]);
    for (size_t row = rank + 1; row < matrix.size(); ++row) {
      uint64_t factor = F::mul(matrix[row][at], inverse);
      for (size_t k = at; factor && k < width; ++k)
        matrix[row][k] =
            F::sub(matrix[row][k], F::mul(factor, matrix[rank][k]));
    }
    ++rank;
  }
  evidence.rank = rank;
  drawn.resize(rank);
  evidence.rows = std::move(drawn);
}

/// True if every matrix within kEntryError of this one is regular: with an
/// approximate inverse R, the rows of |1 - R M| + |R| E sum to less than 1.
static bool isRegularBall(const Matrix &matrix) {
  size_t n = matrix.size();
  Matrix left = matrix, inverse(n, std::vector<DoubleDouble>(n, 0));
  for (size_t k = 0; k < n; ++k)
    inverse[k][k] = 1;
  for (size_t k = 0; k < n; ++k) {
    size_t pivot = k;
    for (size_t r = k; r < n; ++r)
      if (fabs(left[r][k]) > fabs(left[pivot][k]))
        pivot = r;
    if (left[pivot][k] == DoubleDouble(0))
      return false;
    std::swap(left[pivot], left[k]);
    std::swap(inverse[pivot], inverse[k]);
    DoubleDouble scale = DoubleDouble(1) / left[k][k];
    for (size_t c = 0; c < n; ++c) {
      left[k][c] = left[k][c] * scale;
      inverse[k][c] = inverse[k][c] * scale;
    }
    for (size_t r = 0; r < n; ++r) {
      DoubleDouble factor = left[r][k];
      for (size_t c = 0; r != k && c < n; ++c) {
        left[r][c] = left[r][c] - factor * left[k][c];
        inverse[r][c] = inverse[r][c] - factor * inverse[k][c];
      }
    }
  }
  for (size_t r = 0; r < n; ++r) {
    double sum = 0;
    for (size_t c = 0; c < n; ++c) {
      DoubleDouble product(r == c ? -1.0 : 0.0);
      double radius = 0;
      for (size_t k = 0; k < n; ++k) {
        product = product + inverse[r][k] * matrix[k][c];
        radius += std::fabs(double(inverse[r][k])) *
                  (std::fabs(double(matrix[k][c])) + 1) * kEntryError;
      }
      sum += std::fabs(double(product)) + 2 * radius;
    }
    if (!(sum < 0.5)) // half for the roundings of this loop
      return false;
  }
  return true;
}

/// The largest order found at which a minor is certainly not 0: rows and
/// columns in the order of an elimination with full pivoting.
static RankEvidence ballMinor(Matrix matrix,
                              const std::vector<unsigned> &drawn) {
  RankEvidence evidence;
  evidence.proof = RankEvidence::Proof::Ball;
  std::vector<double> pivots;
  Matrix original = matrix;
  size_t height = matrix.size(), width = height ? matrix[0].size() : 0;
  std::vector<size_t> rows(height), columns(width);
  for (size_t k = 0; k < height; ++k)
    rows[k] = k;
  for (size_t k = 0; k < width; ++k)
    columns[k] = k;
  unsigned rank = 0;
  for (; rank < std::min(height, width); ++rank) {
    size_t row = rank, column = rank;
    for (size_t r = rank; r < height; ++r)
      for (size_t c = rank; c < width; ++c)
        if (fabs(matrix[rows[r]][columns[c]]) >
            fabs(matrix[rows[row]][columns[column]]))
          row = r, column = c;
    std::swap(rows[row], rows[rank]);
    std::swap(columns[column], columns[rank]);
    DoubleDouble pivot = matrix[rows[rank]][columns[rank]];
    if (std::fabs(double(pivot)) < 1e-18)
      break;
    pivots.push_back(std::fabs(double(pivot)));
    for (size_t r = rank + 1; r < height; ++r) {
      DoubleDouble factor = matrix[rows[r]][columns[rank]] / pivot;
      for (size_t c = rank; c < width; ++c)
        matrix[rows[r]][columns[c]] = matrix[rows[r]][columns[c]] -
                                      factor * matrix[rows[rank]][columns[c]];
    }
  }
  for (; rank > 1; --rank) {
    Matrix minor(rank);
    for (unsigned r = 0; r < rank; ++r)
      for (unsigned c = 0; c < rank; ++c)
        minor[r].push_back(original[rows[r]][columns[c]]);
    if (!isRegularBall(minor))
      continue;
    evidence.rank = rank;
    evidence.smallest =
        *std::min_element(pivots.begin(), pivots.begin() + rank);
    for (unsigned k = 0; k < rank; ++k) {
      evidence.rows.push_back(drawn[rows[k]]);
      evidence.elements.push_back(unsigned(columns[k]));
    }
    break;
  }
  return evidence;
}

/// How many of the elements are each, for some results, better than all others.
static void findOptima(Columns &columns, bool isMax, RankEvidence &evidence) {
  std::map<unsigned, unsigned> found; // element -> row
  for (unsigned tries = 0; tries < 24 * columns.order; ++tries) {
    if (!columns.next() || columns.order < 2)
      return;
    unsigned best = 0, second = 1;
    auto isBetter = [&](unsigned a, unsigned b) {
      DoubleDouble x = columns.value(0, a), y = columns.value(0, b);
      return isMax ? y < x : x < y;
    };
    if (isBetter(second, best))
      std::swap(best, second);
    for (unsigned k = 2; k < columns.order; ++k)
      if (isBetter(k, best))
        second = best, best = k;
      else if (isBetter(k, second))
        second = k;
    double a = double(columns.value(0, best)),
           b = double(columns.value(0, second));
    if (std::isfinite(a) && std::fabs(a - b) > kRoom * (1 + std::fabs(a)))
      found.try_emplace(best, tries);
  }
  evidence.rank = unsigned(found.size());
  for (auto [element, row] : found) {
    evidence.elements.push_back(element);
    evidence.rows.push_back(row);
  }
}

namespace {
/// What is known of rows, by the numbers under which they were drawn.
struct Drawn {
  Matrix numbers;
  ResidueMatrix residues;
  std::vector<unsigned> numbersOf, residuesOf;
};
} // namespace

/// The present row as a column of both matrices, where it can be one.
static void addColumn(Columns &columns, PieceReader &reader, unsigned number,
                      Drawn &drawn) {
  std::vector<DoubleDouble> values;
  for (unsigned i = 0; i < columns.order; ++i) {
    values.push_back(columns.value(0, i));
    if (!isfinite(values.back()))
      return;
  }
  drawn.numbers.push_back(std::move(values));
  drawn.numbersOf.push_back(number);
  std::vector<uint64_t> line;
  for (unsigned i = 0; i < columns.order; ++i) {
    std::optional<uint64_t> residue;
    if (!columns.nodes.empty())
      residue = reader.read(i, number);
    if (!residue)
      return;
    line.push_back(*residue);
  }
  if (!columns.movesFreely())
    return;
  drawn.residues.push_back(std::move(line));
  drawn.residuesOf.push_back(number);
}

std::optional<RankEvidence> rankEvidence(const Cascade &cascade,
                                         const Program &program, const Cut &cut,
                                         unsigned samples, uint64_t seed) {
  if (cut.stage >= cascade.stages.size() || samples == 0 ||
      program.stagePass.size() != cascade.stages.size() ||
      checkStructure(program) || !isSampled(cascade, cut.stage))
    return std::nullopt;
  Reducer reducer = cascade.stages[cut.stage].reducer;
  bool isMax = reducer == Reducer::Max || reducer == Reducer::MaxNum,
       isMin = reducer == Reducer::Min || reducer == Reducer::MinNum;
  if (reducer != Reducer::Sum && !isMax && !isMin)
    return std::nullopt;
  Columns columns(cascade, program, cut.stage, samples, seed);
  RankEvidence evidence;
  evidence.samples = samples;
  if (isMax || isMin) {
    evidence.proof = RankEvidence::Proof::Optimum;
    findOptima(columns, isMax, evidence);
    return evidence;
  }
  PieceReader reader(columns, seed);
  Drawn drawn;
  for (unsigned batch = 0; batch < kBatches; ++batch) {
    for (unsigned column = 0; column < samples; ++column)
      if (!columns.next())
        return std::nullopt;
      else
        addColumn(columns, reader, batch * samples + column, drawn);
    findFieldMinor(drawn.residues, drawn.residuesOf, evidence);
    if (evidence.rank >= samples)
      return evidence;
  }
  RankEvidence ball = ballMinor(std::move(drawn.numbers), drawn.numbersOf);
  ball.samples = samples;
  return ball.rank > evidence.rank ? ball : evidence;
}

} // namespace refold::algebra
