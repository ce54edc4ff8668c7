// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_ALGEBRA_CERTIFYPARTS_H
#define REFOLD_LIB_ALGEBRA_CERTIFYPARTS_H

#include "refold/Algebra/Certify.h"
#include "refold/Algebra/Evaluate.h"

/// The steps of a certificate. Each adds what it tried to the certificate and
/// answers what is wrong, or nothing.
namespace refold::algebra::certifier {

using Failure = std::optional<std::string>;

/// What the format of a program promises: definitions read earlier ones only,
/// values read states of their own pass through pivots alone, placeholders are
/// in range, nothing is so large that executing it takes long.
Failure checkStructure(const Program &program);
/// The program has the outputs and stages of the cascade.
Failure checkInterface(const Cascade &cascade, const Program &program);

/// Law `transport-identity`: f(x, new) = T(old, new, f(x, old), f_j(x, old)),
/// and T of reduced values is the reduction of T, both over F_p.
Failure checkTransports(const Program &program, const CertifyOptions &options,
                        Certificate &certificate);

/// Rows of every family with 31 digits, in every order. Without a cascade the
/// program is compared with its own definition. `exact`: a few rows of this
/// length alone.
Failure checkRows(const Cascade *cascade, const Program &program,
                  const CertifyOptions &options, Certificate &certificate,
                  std::optional<uint32_t> exact = {});

/// Rows of up to three edge values: classes (NaN, infinities, finite) must be
/// the definition's on regular rows, on the empty row and on dead rows. In
/// double, and again with every operation rounded to f32.
Failure checkEdges(const Cascade *cascade, const Program &program,
                   const CertifyOptions &options, Certificate &certificate,
                   std::optional<uint32_t> exact = {});

/// As `certify`, but a program that fails on short rows fails, whatever its
/// extents are.
Certificate certifyOnShortRows(const Cascade &cascade, const Program &program,
                               const CertifyOptions &options);

/// A cascade and its program in which the static extents of the stream are
/// free, and numbers made of them (their product, one less, the reciprocals)
/// are made of len(n). What holds for any length holds for theirs.
class AnyLength {
public:
  /// Whether the static extents make rows too long to be executed in no time.
  static bool has(const Program &program);
  AnyLength(const Cascade *original, const Program &of);
  /// The program for the extents that were static.
  Program atOwnLength(Program any) const;

  std::optional<Cascade> cascade;
  Program program;

private:
  void freeIndices();
  Expr made(Expr number) const;
  void replace(Expr &e) const;

  Context &context;
  uint32_t length;
  std::vector<Index> indices; ///< as they were
  Expr len;                   ///< the product of the lengths that were static
};

/// True if nothing is computed in f64: then the code that runs rounds to f32,
/// and overflows where f32 does.
bool isSingleOnly(const std::vector<Expr> &roots);

/// True if every stage of a row, or every definition, ended finite.
template <typename T> bool isFiniteRow(const RowValues<T> &row) {
  for (const auto &stage : row.stages)
    for (T value : stage.empty() ? std::vector<T>() : stage[0])
      if (!std::isfinite(double(value)))
        return false;
  for (const auto &definition : row.definitions)
    for (T value : definition)
      if (!std::isfinite(double(value)))
        return false;
  return true;
}

/// True if an extremum ended between its identity and the numbers of its type,
/// which only wider arithmetic has. Pivots are clamped to the numbers of the
/// type (`identity-clamp`): nothing is claimed of such a row.
template <typename T>
bool endsBeyondType(const Cascade &cascade, const RowValues<T> &row) {
  for (size_t i = 0; i < cascade.stages.size(); ++i) {
    Reducer reducer = cascade.stages[i].reducer;
    bool isMax = reducer == Reducer::Max || reducer == Reducer::MaxNum;
    bool isMin = reducer == Reducer::Min || reducer == Reducer::MinNum;
    Type type = cascade.stages[i].term.type();
    if (!isFloat(type) || (!isMax && !isMin))
      continue;
    double largest = largestFinite(computeType(type));
    for (T value : row.stages[i][0]) {
      T towards = isMax ? -value : value; // the identity
      if (std::isfinite(double(value)) && T(largest) < towards)
        return true;
    }
  }
  return false;
}

} // namespace refold::algebra::certifier

#endif // REFOLD_LIB_ALGEBRA_CERTIFYPARTS_H
