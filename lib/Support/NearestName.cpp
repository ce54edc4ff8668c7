// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/NearestName.h"
#include "llvm/ADT/Twine.h"

namespace refold {

llvm::StringRef nearestName(llvm::StringRef name,
                            llvm::ArrayRef<llvm::StringRef> known) {
  // Edit distance is quadratic; a hostile name of a megabyte is near to
  // nothing.
  if (name.size() > 64)
    return "";
  std::string lower = name.lower();
  llvm::StringRef best;
  unsigned bestDistance = name.size() / 3 + 1;
  for (llvm::StringRef candidate : known) {
    if (candidate.size() > 64)
      continue;
    unsigned distance = llvm::StringRef(lower).edit_distance(
        candidate.lower(), true, bestDistance);
    if (distance < bestDistance || (distance == bestDistance && best.empty())) {
      if (distance >= std::max(name.size(), candidate.size()))
        continue; // nothing in common
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

std::string suggestion(llvm::StringRef name,
                       llvm::ArrayRef<llvm::StringRef> known) {
  llvm::StringRef near = nearestName(name, known);
  return near.empty() ? ""
                      : (llvm::Twine("; did you mean '") + near + "'?").str();
}

} // namespace refold
