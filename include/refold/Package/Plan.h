// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_PACKAGE_PLAN_H
#define REFOLD_PACKAGE_PLAN_H

#include "refold/Package/Outcome.h"
#include "refold/Runtime/ConstantSteps.h"
#include "refold/Runtime/Views.h"
#include <memory>

namespace refold::package {

/// A kernel step whose sizes are known. `words` lacks the addresses only.
struct PlannedKernel {
  struct Address {
    uint32_t word; ///< base; the aligned base follows
    uint32_t buffer;
    int64_t byteOffset;
  };
  uint32_t kernel = 0;
  std::vector<int64_t> words;
  std::vector<Address> addresses;
};
/// A product whose sizes fit each other. Of sides that are not read, strides
/// are 0.
struct PlannedProduct {
  View lhs, rhs, result;
  std::optional<View> bias; ///< without gaps
};
struct PlannedCopy {
  View from, to;
};
struct PlannedCheck {
  View flags; ///< bytes, none of which may be 0
  const std::string *message = nullptr;
};

struct PlannedStep {
  size_t step = 0; ///< number in the program
  std::variant<PlannedKernel, PlannedProduct, PlannedCopy, PlannedCheck> what;
};

/// As many plans as a program keeps for later runs.
inline constexpr int kMostPlans = 64;

/// All of a run that follows from the extents of the inputs.
struct RunPlan {
  uint64_t id = 0;              ///< no other plan of the process ever has it
  std::vector<int64_t> symbols; ///< the extents
  std::vector<std::vector<int64_t>> inputShapes, outputShapes;
  std::vector<PlannedStep> steps;
  std::vector<int64_t> arenaOffsets; ///< one a buffer; -1: not in the arena
  int64_t arenaBytes = 0;
};

/// The extents that inputs of these shapes give the symbols; wrong shapes are
/// told with the argument's name and dimension.
Outcome<std::vector<int64_t>>
readSymbols(const ProgramSpec &program,
            const std::vector<std::vector<int64_t>> &shapes);

/// Of `constants`, the steps that are done once, or all the others: what is
/// kept of the former lies in no arena. Fails where a size overflows or is
/// negative, a check of sizes does not hold, or a view reaches beyond its
/// buffer.
enum class PlannedSteps : uint8_t { Once, Others };
Outcome<std::unique_ptr<RunPlan>> planRun(const ProgramSpec &program,
                                          const ConstantSteps &constants,
                                          PlannedSteps which,
                                          const std::vector<int64_t> &symbols);

/// Of a plan that a program does not know.
Problem noLongerKept(const std::string &package);

/// Bytes of a row-major array.
int64_t bytesOf(DType dtype, const std::vector<int64_t> &shape);

} // namespace refold::package

#endif // REFOLD_PACKAGE_PLAN_H
