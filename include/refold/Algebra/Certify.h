// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_ALGEBRA_CERTIFY_H
#define REFOLD_ALGEBRA_CERTIFY_H

#include "refold/Algebra/Derive.h"
#include "refold/Algebra/Evaluate.h"

#include <map>
#include <set>

/// Independent evidence that a program computes what its cascade means. The
/// certifier shares no code with the derivation: transports are tested as
/// identities over a finite field, everything else by executing both.
namespace refold::algebra {

/// Identities are shown over the integers modulo this prime.
inline constexpr uint64_t kFieldPrime = 4611686018427377339;

/// How much is tried. The defaults take some milliseconds a cascade.
struct CertifyOptions {
  uint64_t seed = 1;
  unsigned modularTrials = 3; ///< of each transport
  unsigned rowsPerFamily = 1; ///< rows of each kind, each in every order
  unsigned rowLength = 11;    ///< of the longest rows
  bool extremeValues = true;  ///< rows of offsets, outliers, tiny values too
  /// Rows of edge values in all, where that is enough for all rows of up to
  /// three elements, or for every combination of three values; for those of two
  /// values more may be taken.
  unsigned edgeRows = 960;
  double tolerance = 1e-9;      ///< relative, of values with 31 digits
  Defect defect = Defect::None; ///< of the execution, to see it rejected
};

/// What a certificate did with rows of edge values of one length.
struct EdgeRows {
  std::string arithmetic; ///< "double", or what the program computes in
  uint32_t length = 0;
  unsigned rows = 0;    ///< of a covering design
  unsigned sparse = 0;  ///< one or two values not finite, all others numbers
  unsigned choices = 0; ///< values that are chosen for a row
  /// Any so many choices have every combination of their values in some row.
  unsigned strength = 0;
  bool isComplete = false; ///< these are all rows
};

struct Certificate {
  bool holds = false;
  /// What failed first, with the names of the program; empty if `holds`.
  std::string failure;

  unsigned transports = 0;       ///< identities shown over the field
  unsigned modularTrials = 0;    ///< in all
  unsigned readouts = 0;         ///< stage results compared with the definition
  unsigned readoutSamples = 0;   ///< comparisons
  unsigned rows = 0;             ///< rows executed with 31 digits
  unsigned orders = 0;           ///< executions of the program on them
  double worst = 0;              ///< largest relative disagreement found
  unsigned boundedRows = 0;      ///< rows whose roundings may differ
  unsigned rangeDifferences = 0; ///< irregular rows: squares out of range
  double shareOfBound = 0;       ///< largest difference over what they may
  unsigned edgeRows = 0;         ///< rows of -inf, ..., NaN
  unsigned edgeDifferences = 0;  ///< irregular rows that differ in class
  std::string edgeExample;       ///< the shortest of them

  // In full, for who asks what was looked at.
  std::vector<std::string> moved; ///< states that have transports
  std::set<uint32_t> lengths;     ///< of rows executed with 31 digits
  std::map<Family, unsigned> rowsOf;
  std::map<Order, unsigned> ordersOf;
  std::string worstAt; ///< where `worst` was found
  std::vector<EdgeRows> edges;
  /// By input: its values in edge rows, rising, NaN last.
  std::map<std::string, std::vector<double>> edgeValues;
  /// Values of outputs that were expected there, by class: "finite", "nan"...
  std::map<std::string, unsigned> edgeClasses;

  /// One line: "2 transports identical (6 trials over a field of 2^62), ...".
  std::string summary() const;
};

/// Certifies a derived program against its cascade.
Certificate certify(const Cascade &cascade, const Program &program,
                    const CertifyOptions &options = {});
/// The same; without a program the certificate fails with the derivation's
/// error.
Certificate certify(const Cascade &cascade, const Derivation &derivation,
                    const CertifyOptions &options = {});

/// A program that holds, and how that is known.
struct Certified {
  Derivation derivation;
  /// Of the program; of what was derived if the stages run as written.
  Certificate certificate;
  /// What was derived is not used: its certificate failed, or it loses digits.
  bool isFallback = false;
  std::string rejected; ///< and why
  /// Stages that wait for what they read, in a plan that holds. Empty with
  /// `isFallback`: all stages are in passes of their own, as written.
  std::vector<unsigned> apart;
};

/// Certifies a derivation made under `policy`; adds passes for irregular rows
/// where edge rows show that some come out in another class. Where no
/// certificate holds, or f32 loses half of its digits and a hundred times what
/// the stages as written lose (not with `Stability::Fastest`), it looks for the
/// plan of fewest passes that does in which one stage or two wait for what they
/// read, and falls back to the stages as written.
Certified certified(const Cascade &cascade, Derivation derivation,
                    const Policy &policy, const CertifyOptions &options = {});

/// Certifies a program that somebody wrote: its states are what is meant, so
/// each must have the value that its definition gives, in every order and at
/// every pivot; pivots must be finite and transports keep the identity.
Certificate recertify(const Program &program,
                      const CertifyOptions &options = {});

/// A proof that the term of a cut stage needs at least so many products, or
/// that an extreme must keep so many elements. It looks at `samples` elements
/// and twice as many rows; nothing if the stage has no such form.
std::optional<RankEvidence> rankEvidence(const Cascade &cascade,
                                         const Program &program, const Cut &cut,
                                         unsigned samples = 16,
                                         uint64_t seed = 1);

/// True if samples of the term are g(x)·h(δ) or, for an extreme, g(x) + h(δ)
/// with results δ of earlier stages: what a test for a single product admits.
bool needsOneProduct(const Cascade &cascade, unsigned stage);

} // namespace refold::algebra

#endif // REFOLD_ALGEBRA_CERTIFY_H
