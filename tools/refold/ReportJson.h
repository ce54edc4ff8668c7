// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_TOOLS_REFOLD_REPORTJSON_H
#define REFOLD_TOOLS_REFOLD_REPORTJSON_H

#include "refold/Driver/Work.h"

namespace refold {

/// "fused", "waits" or "cut".
const char *verdictOf(const CascadeReport &report);
/// An entry of "cascades" in the answer of `refold explain`.
llvm::json::Object toJson(const CascadeReport &report);
llvm::json::Array toJson(llvm::ArrayRef<ReasonReport> reasons);
llvm::json::Object toJson(const StepWork &step);
llvm::json::Object toJson(const std::map<std::string, int64_t> &extents);
/// {"name", "ms", "count"} each.
llvm::json::Array stagesToJson(llvm::ArrayRef<StageTimes::Stage> stages);

} // namespace refold

#endif // REFOLD_TOOLS_REFOLD_REPORTJSON_H
