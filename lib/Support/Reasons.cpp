// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/Reasons.h"

namespace refold {

static constexpr ReasonInfo kReasons[] = {
#define REFOLD_REASON(NAME, KEY, TEXT, HINT) {Reason::NAME, KEY, TEXT, HINT},
#include "refold/Support/Reasons.def"
};

std::span<const ReasonInfo> allReasons() { return kReasons; }

const ReasonInfo &infoOf(Reason reason) {
  return kReasons[static_cast<size_t>(reason)];
}

std::optional<Reason> reasonOfKey(std::string_view key) {
  for (const ReasonInfo &info : kReasons)
    if (info.key == key)
      return info.reason;
  return std::nullopt;
}

} // namespace refold
