// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ReportJson.h"

namespace refold {

const char *verdictOf(const CascadeReport &report) {
  return report.isFused ? "fused" : report.waits ? "waits" : "cut";
}

llvm::json::Array toJson(llvm::ArrayRef<ReasonReport> reasons) {
  llvm::json::Array result;
  for (const ReasonReport &reason : reasons)
    result.push_back(llvm::json::Object{{"key", reason.key},
                                        {"at", reason.at},
                                        {"text", reason.text},
                                        {"node", reason.node},
                                        {"hint", reason.hint},
                                        {"evidence", reason.evidence}});
  return result;
}

llvm::json::Object toJson(const std::map<std::string, int64_t> &extents) {
  llvm::json::Object result;
  for (const auto &[name, extent] : extents)
    result[name] = extent;
  return result;
}

static llvm::json::Object toJson(const OperationCounts &counts) {
  return llvm::json::Object{
      {"simple", counts.simple},       {"exponentials", counts.exponentials},
      {"lagging", counts.lagging},     {"functions", counts.functions},
      {"divisions", counts.divisions}, {"conversions", counts.conversions}};
}

static llvm::json::Object toJson(const KernelWork &work) {
  llvm::json::Array rereads;
  for (const KernelWork::Reread &again : work.rereads)
    rereads.push_back(
        llvm::json::Object{{"bytes", again.bytes}, {"between", again.between}});
  return llvm::json::Object{{"stream", toJson(work.stream)},
                            {"rows", toJson(work.rows)},
                            {"moves", toJson(work.moves)},
                            {"nest_steps", work.nestSteps},
                            {"nest_others", work.nestOthers},
                            {"thin_steps", work.thinSteps},
                            {"thin_loads", work.thinLoads},
                            {"pair_steps", work.pairSteps},
                            {"byte_steps", work.byteSteps},
                            {"tile_sums", work.tileSums},
                            {"bytes_past", work.bytesPast},
                            {"sums_across", work.sumsAcross},
                            {"turned", work.turned},
                            {"walked", work.walked},
                            {"visits", work.visits},
                            {"merges", work.merges},
                            {"tails", work.tails},
                            {"extremes", work.extremes},
                            {"compared", work.compared},
                            {"entered", work.entered},
                            {"searched", work.searched},
                            {"moved", work.moved},
                            {"lists", work.lists},
                            {"placed", work.placed},
                            {"gathered", work.gathered},
                            {"items", work.items},
                            {"full_share", work.fullShare},
                            {"nest_sums", work.nestSums},
                            {"rereads", std::move(rereads)}};
}

static llvm::json::Value countsOf(const StepWork &step) {
  if (auto *kernel = std::get_if<KernelWork>(&step.counts))
    return toJson(*kernel);
  if (auto *product = std::get_if<ProductWork>(&step.counts))
    return llvm::json::Object{
        {"batch", product->batch},      {"rows", product->rows},
        {"columns", product->columns},  {"depth", product->depth},
        {"turned", product->turned},    {"is_integer", product->isInteger},
        {"from_f16", product->fromF16}, {"from_others", product->fromOthers}};
  return nullptr;
}

llvm::json::Object toJson(const StepWork &step) {
  return llvm::json::Object{{"name", step.name},
                            {"kind", step.kind},
                            {"kernel", step.kernel},
                            {"bytes_read", step.bytesRead},
                            {"bytes_written", step.bytesWritten},
                            {"operations", step.operations},
                            {"is_once", step.isOnce},
                            {"is_left_out", step.isLeftOut},
                            {"skips_tiles", step.skipsTiles},
                            {"predicted_ms", step.predicted.ms},
                            {"working_set", step.workingSet},
                            {"counts", countsOf(step)}};
}

llvm::json::Object toJson(const CascadeReport &report) {
  llvm::json::Array stages;
  for (const StageReport &stage : report.stages)
    stages.push_back(llvm::json::Object{{"name", stage.name},
                                        {"op", stage.op},
                                        {"line", stage.line},
                                        {"pass", stage.pass}});
  llvm::json::Array gauges;
  for (const GaugeReport &gauge : report.gauges)
    gauges.push_back(
        llvm::json::Object{{"pivot", gauge.pivot},
                           {"states", llvm::json::Array(gauge.states)},
                           {"law", gauge.law},
                           {"why", gauge.why}});
  llvm::json::Array roundings;
  for (const RoundingReport &rounding : report.roundings)
    roundings.push_back(
        llvm::json::Object{{"stage", rounding.stage},
                           {"formula", rounding.formula},
                           {"unit", rounding.unit},
                           {"step", rounding.step},
                           {"power_of_two", rounding.isPowerOfTwo},
                           {"headroom", rounding.headroom},
                           {"bound", rounding.bound}});
  llvm::json::Value schedule = nullptr;
  if (report.schedule)
    schedule = llvm::json::Object(*report.schedule);
  llvm::json::Value accuracy = nullptr;
  if (report.accuracy)
    accuracy = llvm::json::Object(*report.accuracy);
  llvm::json::Value proof = nullptr;
  if (report.proof)
    proof = llvm::json::Object(*report.proof);
  return llvm::json::Object{
      {"name", report.name},
      {"axes", llvm::json::Array(report.axes)},
      {"stages", std::move(stages)},
      {"verdict", verdictOf(report)},
      {"passes", report.passes},
      {"repair_passes", report.repairPasses},
      {"unfused_passes", report.unfusedPasses},
      {"state_size", report.stateSize},
      {"single_product", report.isSingleProduct},
      {"formula", report.formula},
      {"gauge", report.gauge},
      {"certificate", report.certificate},
      {"proof", std::move(proof)},
      {"reasons", toJson(report.reasons)},
      {"policies", llvm::json::Array(report.policies)},
      {"gauges", std::move(gauges)},
      {"roundings", std::move(roundings)},
      {"zeroed", llvm::json::Array(report.zeroedOutputs)},
      {"idle_guards", llvm::json::Array(report.idleGuards)},
      {"choices", llvm::json::Array(report.choices)},
      {"lists", llvm::json::Array(report.lists)},
      {"schedule", std::move(schedule)},
      {"accuracy", std::move(accuracy)}};
}

llvm::json::Array stagesToJson(llvm::ArrayRef<StageTimes::Stage> stages) {
  llvm::json::Array result;
  for (const StageTimes::Stage &stage : stages)
    result.push_back(llvm::json::Object{
        {"name", stage.name}, {"ms", stage.ms}, {"count", stage.count}});
  return result;
}

} // namespace refold
