// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_PACKAGE_PROGRAMPLANS_H
#define REFOLD_LIB_PACKAGE_PROGRAMPLANS_H

#include "PlanCache.h"
#include "refold/Package/Package.h"

namespace refold::package {

/// Plans of a package, and what is computed of its constants alone when the
/// first one is made: the part that all targets share. `Kept` as in
/// `PlanCache`.
template <typename Kept> struct ProgramPlans {
  virtual ~ProgramPlans() = default;

  /// Before the first plan. Kept arrays begin at multiples of `alignment`.
  Problem findConstants(std::shared_ptr<const Package> opened,
                        int64_t alignment) {
    package = std::move(opened);
    if (!hasWeights(*package))
      return problem(ExitCode::Usage, "'" + package->name +
                                          "': the files of its weights are "
                                          "not mapped");
    constantSteps = findConstantSteps(package->program);
    hasConstants = constantSteps.count == 0;
    auto found = placeKept(package->program, constantSteps, alignment);
    if (!found)
      return problem(ExitCode::Limit, "'" + package->name +
                                          "': the size of its arrays "
                                          "overflows");
    places = std::move(*found);
    return {};
  }

  Outcome<std::shared_ptr<const RunPlan>>
  planFor(const std::vector<std::vector<int64_t>> &inputShapes) {
    Outcome<std::vector<int64_t>> symbols =
        readSymbols(package->program, inputShapes);
    if (!symbols)
      return symbols.error();
    if (Kept *known = plans.find(*symbols))
      return known->plan;
    Outcome<Kept> made = makePlan(PlannedSteps::Others, *symbols);
    if (!made)
      return made.error();
    if (!hasConstants)
      if (Problem error = computeConstants(*symbols))
        return error;
    if (Problem error = finish(*made))
      return error;
    return plans.add(std::move(*made)).plan;
  }

  std::shared_ptr<const RunPlan> keptPlan(uint64_t id) {
    Kept *kept = plans.find(id);
    return kept ? kept->plan : nullptr;
  }

  std::shared_ptr<const Package> package;
  ConstantSteps constantSteps;
  KeptPlaces places; ///< of what is kept of them
  PlanCache<Kept> plans;

private:
  /// Memory and code for the steps of `made`, all but its plan is to be found.
  virtual Problem prepare(Kept &made, PlannedSteps which) = 0;
  /// Memory of `places`.
  virtual Problem reserveKept() = 0;
  /// Runs steps that neither inputs nor outputs are named by; they are done
  /// when it returns.
  virtual Problem runOnce(Kept &made) = 0;
  /// Of a plan, when all that is computed once is there.
  virtual Problem finish(Kept &) { return {}; }

  Outcome<Kept> makePlan(PlannedSteps which,
                         const std::vector<int64_t> &symbols) {
    Outcome<std::unique_ptr<RunPlan>> plan =
        planRun(package->program, constantSteps, which, symbols);
    if (!plan)
      return plan.error();
    Kept made;
    made.plan = std::move(*plan);
    if (Problem error = prepare(made, which))
      return error;
    return made;
  }

  /// Where a step fails nothing is kept, and the next plan tries again.
  Problem computeConstants(const std::vector<int64_t> &symbols) {
    if (Problem error = reserveKept())
      return error;
    Outcome<Kept> plan = makePlan(PlannedSteps::Once, symbols);
    if (!plan)
      return plan.error();
    if (Problem error = runOnce(*plan))
      return error;
    hasConstants = true;
    return {};
  }

  bool hasConstants = false;
};

} // namespace refold::package

#endif // REFOLD_LIB_PACKAGE_PROGRAMPLANS_H
