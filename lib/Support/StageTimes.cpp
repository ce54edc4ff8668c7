// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/StageTimes.h"
#include "llvm/ADT/STLExtras.h"

namespace refold {

void StageTimes::add(llvm::StringRef name, double ms) {
  std::lock_guard<std::mutex> lock(mutex);
  auto stage = llvm::find_if(
      stages, [&](const Stage &other) { return other.name == name; });
  if (stage == stages.end())
    stage = stages.insert(stages.end(), {name.str()});
  stage->ms += ms;
  ++stage->count;
}

std::vector<StageTimes::Stage> StageTimes::list() const {
  std::lock_guard<std::mutex> lock(mutex);
  return stages;
}

} // namespace refold
