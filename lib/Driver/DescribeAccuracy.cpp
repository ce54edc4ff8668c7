// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "DescribeAccuracy.h"

#include "refold/Algebra/Accuracy.h"

#include <cmath>

namespace refold {

/// JSON has no infinity.
static llvm::json::Value number(double value) {
  if (std::isfinite(value))
    return value;
  return llvm::json::Value("inf");
}

static constexpr const char *kOrderKeys[] = {"stream", "tiles", "tree"};

static llvm::json::Object
describeFamily(const algebra::FamilyAccuracy &family) {
  llvm::json::Object result{{"family", algebra::spelling(family.family)},
                            {"unfused", number(family.unfused)},
                            {"amplification", number(family.amplification)},
                            {"share_of_bound", number(family.shareOfBound)}};
  for (size_t i = 0; i < family.fused.size(); ++i) {
    result[kOrderKeys[i]] = number(family.fused[i]);
    result[std::string(kOrderKeys[i]) + "_ratio"] = number(family.ratio[i]);
    result[std::string(kOrderKeys[i]) + "_bound"] = number(family.bound[i]);
  }
  return result;
}

/// The worst ratio of all orders under another policy.
static llvm::json::Value worstUnder(const algebra::Cascade &cascade,
                                    algebra::Moments moments) {
  algebra::Policy policy;
  policy.moments = moments;
  algebra::Derivation derivation = algebra::derive(cascade, policy);
  if (!derivation.program)
    return nullptr;
  algebra::Accuracy accuracy =
      algebra::measureAccuracy(cascade, *derivation.program);
  double worst = 0;
  for (size_t i = 0; i < std::size(kOrderKeys); ++i)
    worst = std::max(worst, accuracy.worstRatio(i));
  return number(worst);
}

std::optional<llvm::json::Object> describeAccuracy(const FusedKernel &kernel) {
  const algebra::Cascade &cascade = kernel.formula->cascade;
  algebra::Accuracy accuracy =
      algebra::measureAccuracy(cascade, *kernel.derivation.program);
  bool isMeasured = llvm::any_of(accuracy.outputs, [](const auto &output) {
    return !output.families.empty();
  });
  if (!isMeasured)
    return std::nullopt;
  llvm::json::Object result{
      {"holds", accuracy.holds()},
      {"amplification", number(accuracy.amplification())},
      {"share_of_bound", number(accuracy.shareOfBound())},
      {"dropped", worstUnder(cascade, algebra::Moments::Dropped)},
      {"raw", worstUnder(cascade, algebra::Moments::Raw)}};
  for (size_t i = 0; i < std::size(kOrderKeys); ++i)
    result[kOrderKeys[i]] = number(accuracy.worstRatio(i));
  llvm::json::Array outputs;
  for (const algebra::OutputAccuracy &output : accuracy.outputs) {
    llvm::json::Array families;
    for (const algebra::FamilyAccuracy &family : output.families)
      families.push_back(describeFamily(family));
    outputs.push_back(llvm::json::Object{{"name", output.name},
                                         {"families", std::move(families)}});
  }
  result["outputs"] = std::move(outputs);
  return result;
}

} // namespace refold
