// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "TunedSchedules.h"
#include "KeptJson.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/Diagnostics.h"
#include "refold/Driver/MachineFacts.h"
#include "refold/Schedule/Schedule.h"

namespace refold {

static constexpr llvm::StringLiteral kKind = "schedules";

/// The op as text says everything that a schedule is chosen by but the extents.
static std::string keyOf(CascadeOp op, const NamedExtents &extents,
                         const CpuTarget &target) {
  std::string key = "schedule 1; " + knownFacts(target).processor + "; " +
                    target.name() + "; " + target.features + ";";
  for (const auto &[name, extent] : extents)
    key += " " + name + "=" + std::to_string(extent);
  llvm::raw_string_ostream os(key);
  os << "\n";
  op->print(os, mlir::OpPrintingFlags().useLocalScope());
  return key;
}

std::string keepSchedule(CascadeOp op, const NamedExtents &extents,
                         const CpuTarget &target, llvm::StringRef schedule) {
  return keep(kKind, keyOf(op, extents, target),
              llvm::json::Object{{"schedule", schedule.str()}});
}

bool setSchedule(CascadeOp op, llvm::StringRef text, const TargetFacts &facts) {
  mlir::ScopedDiagnosticHandler quiet(
      op.getContext(), [](mlir::Diagnostic &) { return mlir::success(); });
  auto schedule = mlir::dyn_cast_or_null<mlir::DictionaryAttr>(
      mlir::parseAttribute(text, op.getContext()));
  if (!schedule)
    return false;
  auto before = op.getScheduleAttr();
  op.setScheduleAttr(schedule);
  if (mlir::succeeded(chooseSchedule(op, facts)))
    return true;
  op.setScheduleAttr(before);
  return false;
}

void applyTuned(mlir::ModuleOp module, const NamedExtents &extents,
                const CpuTarget &target) {
  module.walk([&](CascadeOp op) {
    std::optional<llvm::json::Object> kept =
        findKept(kKind, keyOf(op, extents, target));
    if (!kept)
      return;
    if (std::optional<llvm::StringRef> text = kept->getString("schedule"))
      setSchedule(op, *text, target.facts);
  });
}

} // namespace refold
