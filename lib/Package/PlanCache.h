// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_PACKAGE_PLANCACHE_H
#define REFOLD_LIB_PACKAGE_PLANCACHE_H

#include "refold/Package/Plan.h"
#include <algorithm>
#include <list>

namespace refold::package {

/// The plans that were used last. `Kept` is what a target keeps of one: `plan`,
/// a shared pointer to its RunPlan, `isPinned`, whether it stays whatever is
/// planned, and more.
template <typename Kept> class PlanCache {
public:
  /// Null where there is none; else it is the one used last.
  Kept *find(const std::vector<int64_t> &symbols) {
    return touch([&](const RunPlan &plan) { return plan.symbols == symbols; });
  }
  Kept *find(uint64_t id) {
    return touch([&](const RunPlan &plan) { return plan.id == id; });
  }

  /// Lets go of the one that was not used for longest where there are too many.
  Kept &add(Kept made) {
    plans.push_front(std::move(made));
    auto isFree = [](const Kept &kept) { return !kept.isPinned; };
    if (std::count_if(plans.begin(), plans.end(), isFree) > kMostPlans) {
      auto oldest = std::find_if(plans.rbegin(), plans.rend(), isFree);
      plans.erase(std::next(oldest).base());
    }
    return plans.front();
  }

  void clear() { plans.clear(); }

private:
  template <typename IsIt> Kept *touch(IsIt isIt) {
    auto found =
        std::find_if(plans.begin(), plans.end(),
                     [&](const Kept &kept) { return isIt(*kept.plan); });
    if (found == plans.end())
      return nullptr;
    plans.splice(plans.begin(), plans, found);
    return &plans.front();
  }

  std::list<Kept> plans; ///< the one used last comes first
};

} // namespace refold::package

#endif // REFOLD_LIB_PACKAGE_PLANCACHE_H
