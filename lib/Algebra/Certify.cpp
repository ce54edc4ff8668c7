// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CertifyParts.h"

#include <cstdio>

namespace refold::algebra {
using namespace certifier;

static std::string counted(unsigned count, const char *noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string Certificate::summary() const {
  if (!holds)
    return "not certified: " + failure;
  char worstText[32];
  std::snprintf(worstText, sizeof(worstText), "%.1e", worst);
  std::string text = counted(transports, "transport") + " proved by " +
                     counted(modularTrials, "trial") + " over a prime field; " +
                     counted(rows, "row") + " in " + counted(orders, "order") +
                     " agree to " + worstText + "; " +
                     counted(edgeRows, "row") + " of edge values";
  if (boundedRows) {
    std::snprintf(worstText, sizeof(worstText), "%.2f", shareOfBound);
    text += "; roundings at running values differ by at most " +
            std::string(worstText) + " of their bound";
  }
  if (edgeDifferences)
    text += ", of which " + std::to_string(edgeDifferences) +
            " irregular ones differ (" + edgeExample + ")";
  return text;
}

/// Static lengths up to this are executed if shorter rows disagree.
static constexpr uint32_t kLongestExact = 4096;

/// Lengths of rows that have the static extents of the stream, short first.
static std::vector<uint32_t> exactLengths(const Program &program) {
  std::optional<StreamLength> own = streamLength(program.indices);
  if (!own || own->isFree || own->factor > kLongestExact)
    return {};
  if (own->isStatic || own->factor == 0)
    return {own->factor};
  std::vector<uint32_t> lengths = {0, own->factor};
  for (uint32_t times : {2, 3})
    if (times * own->factor <= kLongestExact)
      lengths.push_back(times * own->factor);
  return lengths;
}

/// Rows are short, whatever the extent of the stream. A program for a static
/// extent, or for a multiple of one, may have made use of it: as a number that
/// stands for the length of any row, or else only rows of that length count.
static Failure execute(const Cascade *cascade, const Program &program,
                       const CertifyOptions &options, bool isShort,
                       Certificate &certificate) {
  Certificate before = certificate;
  Failure failure = checkRows(cascade, program, options, certificate);
  if (!failure)
    failure = checkEdges(cascade, program, options, certificate);
  if (!failure || isShort)
    return failure;
  if (AnyLength::has(program)) {
    AnyLength any(cascade, program);
    const Cascade *free = any.cascade ? &*any.cascade : nullptr;
    certificate = before;
    Failure other = checkRows(free, any.program, options, certificate);
    if (!other)
      other = checkEdges(free, any.program, options, certificate);
    if (!other)
      return other;
  }
  std::vector<uint32_t> lengths = exactLengths(program);
  if (lengths.empty())
    return failure;
  certificate = before;
  failure = std::nullopt;
  for (uint32_t length : lengths) {
    if (!failure && length > 0)
      failure = checkRows(cascade, program, options, certificate, length);
    if (!failure)
      failure = checkEdges(cascade, program, options, certificate, length);
  }
  return failure;
}

static Certificate run(const Cascade *cascade, const Program &program,
                       const CertifyOptions &options, bool isShort = false) {
  Certificate certificate;
  Failure failure = checkStructure(program);
  if (!failure && cascade)
    failure = checkInterface(*cascade, program);
  if (!failure)
    failure = checkTransports(program, options, certificate);
  if (!failure)
    failure = execute(cascade, program, options, isShort, certificate);
  if (!failure && certificate.rows == 0)
    failure = "no row could be compared";
  certificate.holds = !failure;
  certificate.failure = failure.value_or("");
  return certificate;
}

Certificate certify(const Cascade &cascade, const Program &program,
                    const CertifyOptions &options) {
  return run(&cascade, program, options);
}

Certificate certifier::certifyOnShortRows(const Cascade &cascade,
                                          const Program &program,
                                          const CertifyOptions &options) {
  return run(&cascade, program, options, /*isShort=*/true);
}

Certificate certify(const Cascade &cascade, const Derivation &derivation,
                    const CertifyOptions &options) {
  if (derivation.program)
    return run(&cascade, *derivation.program, options);
  Certificate certificate;
  certificate.failure = derivation.error;
  return certificate;
}

Certificate recertify(const Program &program, const CertifyOptions &options) {
  return run(nullptr, program, options);
}

} // namespace refold::algebra
