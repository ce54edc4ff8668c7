// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CertifyTerm.h"
#include "EvaluateCode.h"

#include <algorithm>
#include <cmath>

namespace refold::algebra {
using namespace certifier;

/// Entries below this part of the largest one are rounding.
static constexpr double kZero = 1e-20;

namespace certifier {
unsigned numericRank(Matrix matrix) {
  size_t size = matrix.size();
  double largest = 0;
  for (unsigned rank = 0; rank < size; ++rank) {
    size_t row = rank, column = rank;
    for (size_t i = rank; i < size; ++i)
      for (size_t j = rank; j < size; ++j)
        if (fabs(matrix[i][j]) > fabs(matrix[row][column]))
          row = i, column = j;
    double pivot = std::fabs(double(matrix[row][column]));
    largest = std::max(largest, pivot);
    if (pivot <= kZero * largest)
      return rank;
    std::swap(matrix[row], matrix[rank]);
    for (auto &line : matrix)
      std::swap(line[column], line[rank]);
    for (size_t i = rank + 1; i < size; ++i) {
      DoubleDouble factor = matrix[i][rank] / matrix[rank][rank];
      for (size_t j = rank; j < size; ++j)
        matrix[i][j] = matrix[i][j] - factor * matrix[rank][j];
    }
  }
  return unsigned(size);
}

TermCascade::TermCascade(const Cascade &original, const Program *program,
                         unsigned number)
    : cascade(original) {
  const Stage &stage = original.stages[number];
  unsigned pass = 0;
  for (Expr symbol : symbolsOf(stage.term))
    if (program && symbol.isSym(Role::Stage))
      pass = std::max(pass, program->stagePass[symbol.symbol().ordinal]);
  ExprMap map;
  for (Expr symbol : symbolsOf(stage.term))
    if (program && symbol.isSym(Role::Stage) &&
        program->stagePass[symbol.symbol().ordinal] < pass) {
      const Symbol &s = symbol.symbol();
      constants.push_back(
          {symbol, cascade.context->symbol(s.name, Role::Parameter, s.type,
                                           s.indices, 0, s.facts)});
      map[symbol] = constants.back().second;
    }
  cascade.outputs.clear();
  cascade.stages.resize(number);
  cascade.addOutput("term", substitute(*cascade.context, stage.term, map));
}

bool isSampled(const Cascade &cascade, unsigned number) {
  const Stage &stage = cascade.stages[number];
  IndexSet stream = cascade.stream(),
           ranks = cascade.indicesOf(IndexRole::Rank);
  bool isOneStream = (stream & (stream - 1)) == 0;
  return isOneStream && (stage.term.indices() & stream) &&
         !(stage.term.indices() & ranks);
}
} // namespace certifier

/// Redraws the elements behind the first `kept`: another row that contains
/// these.
static void redraw(Sample &sample, uint32_t kept, const Sample &fresh,
                   IndexSet stream) {
  for (auto &[symbol, values] : sample.values) {
    if (symbol->role != Role::Element || !isFloat(symbol->type))
      continue;
    for (auto [index, stride] :
         evaluate::shapeOf(symbol->indices, sample.extents).steps)
      for (size_t i = 0; i < values.size() && (stream >> index & 1); ++i)
        if (i / stride % sample.extents[index] >= kept)
          values[i] = 2 * fresh.values.at(symbol)[i];
  }
}

/// Terms of a stage, over elements and results that a row with them can have;
/// nothing where it has no such form.
static std::optional<Matrix> sampled(const Cascade &cascade,
                                     const Program *program, unsigned number,
                                     unsigned samples, uint64_t seed) {
  IndexSet stream = cascade.stream();
  if (samples == 0 || !isSampled(cascade, number))
    return std::nullopt;
  TermCascade of(cascade, program, number);
  std::vector<Expr> roots = rootsOf(of.cascade);
  Random random(seed);
  auto draw = [&] {
    return makeSample(cascade.indices, roots, Family::Normal, samples + 4,
                      random);
  };
  Sample sample = draw();
  DefinitionEvaluator<DoubleDouble> evaluator(of.cascade, sample.extents);
  RowValues<DoubleDouble> first = evaluator.run(sample);
  for (auto [result, parameter] : of.constants) {
    const auto &values = first.stages[result.symbol().ordinal];
    sample.values[&parameter.symbol()] = {double(values[0][0])};
  }
  Matrix matrix;
  for (unsigned row = 0; row < samples; ++row) {
    redraw(sample, samples, draw(), stream);
    matrix.push_back(evaluator.run(sample).outputs[0]);
    matrix.back().resize(samples);
    for (DoubleDouble value : matrix.back())
      if (!isfinite(value))
        return std::nullopt;
  }
  return matrix;
}

/// m(x, d) = g(x) + h(d) up to rounding.
static bool isSum(const Matrix &matrix) {
  for (const auto &row : matrix)
    for (size_t j = 0; j < row.size(); ++j) {
      DoubleDouble mixed = row[j] - row[0] - matrix[0][j] + matrix[0][0];
      double size = std::fabs(double(row[j])) + std::fabs(double(row[0])) +
                    std::fabs(double(matrix[0][j]));
      if (std::fabs(double(mixed)) > kZero * size)
        return false;
    }
  return true;
}

bool needsOneProduct(const Cascade &cascade, unsigned stage) {
  constexpr unsigned samples = 8;
  const Stage &own = cascade.stages[stage];
  if (!own.term.uses(Role::Stage))
    return true;
  std::optional<Matrix> matrix = sampled(cascade, nullptr, stage, samples, 1);
  if (!matrix)
    return false;
  bool isExtreme = own.reducer != Reducer::Sum && own.reducer != Reducer::Prod;
  return (isExtreme && isSum(*matrix)) || numericRank(*matrix) <= 1;
}

} // namespace refold::algebra
