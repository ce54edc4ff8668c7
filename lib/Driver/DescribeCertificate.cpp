// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "DescribeCertificate.h"
#include "llvm/Support/Format.h"

namespace refold {

using llvm::json::Array;
using llvm::json::Object;

/// JSON has no infinities: numbers as people write them.
static std::string spell(double value) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%g", value);
  return text;
}

static Object transportsOf(const algebra::Certificate &certificate) {
  return Object{{"check", "transports"},
                {"states", Array(certificate.moved)},
                {"trials", certificate.modularTrials},
                {"modulus", std::to_string(algebra::kFieldPrime)}};
}

static Object rowsOf(const algebra::Certificate &certificate) {
  Object families, orders;
  for (auto [family, count] : certificate.rowsOf)
    families[algebra::spelling(family)] = count;
  for (auto [order, count] : certificate.ordersOf)
    orders[algebra::spelling(order)] = count;
  Array lengths;
  for (uint32_t length : certificate.lengths)
    lengths.push_back(length);
  return Object{{"check", "rows"},
                {"rows", certificate.rows},
                {"lengths", std::move(lengths)},
                {"families", std::move(families)},
                {"orders", std::move(orders)},
                {"readouts", certificate.readouts},
                {"comparisons", certificate.readoutSamples},
                {"worst", certificate.worst},
                {"worst_at", certificate.worstAt},
                {"rounded_rows", certificate.boundedRows},
                {"share_of_bound", certificate.shareOfBound}};
}

static Object edgesOf(const algebra::Certificate &certificate) {
  Array designs;
  for (const algebra::EdgeRows &rows : certificate.edges)
    designs.push_back(Object{{"arithmetic", rows.arithmetic},
                             {"length", rows.length},
                             {"rows", rows.rows},
                             {"sparse_rows", rows.sparse},
                             {"choices", rows.choices},
                             {"strength", rows.strength},
                             {"complete", rows.isComplete}});
  Object values, classes;
  for (const auto &[input, list] : certificate.edgeValues) {
    Array letters;
    for (double value : list)
      letters.push_back(spell(value));
    values[input] = std::move(letters);
  }
  for (const auto &[name, count] : certificate.edgeClasses)
    classes[name] = count;
  return Object{{"check", "edge rows"},
                {"rows", certificate.edgeRows},
                {"designs", std::move(designs)},
                {"values", std::move(values)},
                {"classes", std::move(classes)},
                {"differences", certificate.edgeDifferences},
                {"example", certificate.edgeExample}};
}

/// A minor by its elements and rows, or an element for each row in which it is
/// the only optimum.
static Object cutOf(const FusedKernel &kernel, const algebra::Cut &cut,
                    uint64_t seed) {
  using Proof = algebra::RankEvidence::Proof;
  const algebra::Cascade &cascade = kernel.formula->cascade;
  Object result{{"stage", cascade.stages[cut.stage].name},
                {"rule", cut.reason}};
  std::optional<algebra::RankEvidence> evidence = algebra::rankEvidence(
      cascade, *kernel.derivation.program, cut, /*samples=*/16, seed);
  if (!evidence || evidence->rank < 2) {
    result["witness"] = "rule";
    return result;
  }
  result["witness"] = evidence->proof == Proof::Optimum ? "optima" : "minor";
  result["order"] = evidence->rank;
  Array elements, rows;
  for (unsigned element : evidence->elements)
    elements.push_back(element);
  for (unsigned row : evidence->rows)
    rows.push_back(row);
  result["elements"] = std::move(elements);
  result["rows"] = std::move(rows);
  if (evidence->proof == Proof::Field)
    result["determinant"] = std::to_string(evidence->determinant);
  if (evidence->proof == Proof::Ball)
    result["smallest_pivot"] = evidence->smallest;
  return result;
}

Object describeCertificate(const FusedKernel &kernel, uint64_t seed) {
  Object result{{"seed", int64_t(seed)}};
  if (const auto &certificate = kernel.evidence) {
    result["holds"] = certificate->holds;
    result["failure"] = certificate->failure;
    result["checks"] = Array{transportsOf(*certificate), rowsOf(*certificate),
                             edgesOf(*certificate)};
  }
  Array cuts;
  for (const algebra::Cut &cut : kernel.derivation.program->cuts)
    cuts.push_back(cutOf(kernel, cut, seed));
  result["cuts"] = std::move(cuts);
  return result;
}

} // namespace refold
