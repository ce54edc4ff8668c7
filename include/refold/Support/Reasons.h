// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SUPPORT_REASONS_H
#define REFOLD_SUPPORT_REASONS_H

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace refold {

/// Why a fusion was declined, or what a fused kernel does otherwise. One
/// enumerator a line of Reasons.def; no LLVM in this header, since lib/Algebra
/// speaks it too.
enum class Reason : uint8_t {
#define REFOLD_REASON(NAME, KEY, TEXT, HINT) NAME,
#include "refold/Support/Reasons.def"
};

struct ReasonInfo {
  Reason reason;
  std::string_view key;  ///< as users see it: "not-separable"
  std::string_view text; ///< one line, lower case, no full stop
  std::string_view hint; ///< what the user can do; may be empty
};

/// All reasons in the order of Reasons.def.
std::span<const ReasonInfo> allReasons();
const ReasonInfo &infoOf(Reason reason);
inline std::string_view keyOf(Reason reason) { return infoOf(reason).key; }
/// The reason of that key, or nothing.
std::optional<Reason> reasonOfKey(std::string_view key);

} // namespace refold

#endif // REFOLD_SUPPORT_REASONS_H
