// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Refused.h"
#include "mlir/Parser/Parser.h"
#include "refold/Support/Error.h"
#include "refold/Support/Reasons.h"
#include "refold/Target/CPU/CompileProgram.h"
#include "refold/Transforms/FuseCascades.h"

namespace refold {

namespace {
struct RefusedStep {
  std::string why;
  /// It has sums of numbers times rows of an array, which are products, too:
  /// rows alone are slow at them (widths of 320: 1.6 to 2 times as slow as
  /// products).
  bool hasCarriedSums = false;
};
using RefusedSteps = std::map<std::string, RefusedStep>;
} // namespace

static bool hasCarriedSums(mlir::MLIRContext &context, llvm::StringRef text) {
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  bool has = false;
  if (module)
    module->walk([&](CascadeOp op) {
      mlir::FailureOr<IndexSets> sets = IndexSets::infer(op);
      uint64_t carried = op.indicesOfRole(CascadeOp::Carried);
      if (mlir::failed(sets) || op.indicesOfRole(CascadeOp::Inner) == 0)
        return;
      for (StateOp state : op.getBody().getOps<StateOp>())
        has |= state.getReducer() == Reducer::Add &&
               (sets->of(state->getResult(0)) & carried) != 0;
    });
  return has;
}

/// Steps of the fused module whose kernels are refused, and why. What is wrong
/// with the target's own work is an error.
static llvm::Expected<RefusedSteps> refusedSteps(mlir::ModuleOp fused,
                                                 const CpuTarget &target,
                                                 RefusedFusions::Check check) {
  mlir::OwningOpRef<mlir::ModuleOp> copy = fused.clone();
  CompileProgramOptions options;
  options.plansOnly = options.keepsNames = options.roundsProducts = true;
  options.writesParts = false;
  std::vector<std::optional<RefusedStep>> why;
  llvm::Error failed = llvm::Error::success();
  options.onKernel = [&](llvm::StringRef name, llvm::StringRef text) {
    auto &own = why.emplace_back();
    std::string message;
    ExitCode code = takeError(check({name.str(), text.str()}), message);
    if (code == ExitCode::Unsupported)
      own = {message, hasCarriedSums(*copy->getContext(), text)};
    else if (code != ExitCode::Ok)
      failed = llvm::joinErrors(std::move(failed), fail(code, message));
  };
  llvm::Expected<ExecutableSpec> spec = compileProgram(*copy, target, options);
  if (!spec)
    return llvm::joinErrors(std::move(failed), spec.takeError());
  if (failed)
    return std::move(failed);
  RefusedSteps refused;
  for (const Step &step : spec->steps)
    if (auto *kernel = std::get_if<KernelStep>(&step.what);
        kernel && why[kernel->kernel])
      refused[step.name] = *why[kernel->kernel];
  return refused;
}

/// "'k0_o': [key] found ..." in the terms of a report.
static DeclineReport describe(llvm::StringRef message, bool keepsProduct) {
  DeclineReport report;
  auto [key, text] = message.split('[').second.split("] ");
  report.key = key.str();
  report.text = text.str();
  report.keepsProduct = keepsProduct;
  return report;
}

/// Marks what `refused` names, with the reductions that are to be apart for it.
static void markRefused(const RefusedSteps &refused, bool keepsProducts,
                        FuseReport &report, llvm::DenseSet<unsigned> &apart,
                        std::vector<CascadeReport> &left) {
  for (CascadeReport &cascade : report.cascades) {
    auto why = refused.find(cascade.step);
    if (why == refused.end())
      continue;
    bool keepsProduct = keepsProducts && !why->second.hasCarriedSums &&
                        !cascade.products.empty() &&
                        cascade.products.size() < cascade.reductions.size();
    const auto &own = keepsProduct ? cascade.products : cascade.reductions;
    apart.insert(own.begin(), own.end());
    cascade.decline = describe(why->second.why, keepsProduct);
    left.push_back(std::move(cascade));
  }
}

llvm::Expected<bool> RefusedFusions::leave(LoadedProgram &program,
                                           const FuseOptions &options,
                                           const CpuTarget &target, Check check,
                                           FuseReport &report) {
  auto refused = refusedSteps(*program.module, target, check);
  if (!refused)
    return refused.takeError();
  FuseOptions again = options;
  again.deferred = nullptr;
  FuseReport rest = report;
  std::vector<CascadeReport> left;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  // Products first; what is refused without them too, as a whole.
  for (bool keepsProducts : {true, false}) {
    if (refused->empty())
      break;
    if (!keepsProducts)
      for (CascadeReport &cascade : left) {
        again.apart.insert(cascade.reductions.begin(),
                           cascade.reductions.end());
        cascade.decline->keepsProduct = false;
      }
    markRefused(*refused, keepsProducts, rest, again.apart, left);
    module = original->clone();
    llvm::Expected<FuseReport> fused = fuse(*module, again);
    if (!fused)
      return fused.takeError();
    rest = std::move(*fused);
    refused = refusedSteps(*module, target, check);
    if (!refused)
      return refused.takeError();
  }
  if (left.empty() || !refused->empty())
    return false;
  program.module = std::move(module);
  report = std::move(rest);
  report.cascades.insert(report.cascades.begin(),
                         std::make_move_iterator(left.begin()),
                         std::make_move_iterator(left.end()));
  return true;
}

llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
RefusedFusions::without(const FuseOptions &options, const CpuTarget &target,
                        Check check) {
  FuseOptions own = options;
  own.certificate = own.accuracy = false;
  own.deferred = nullptr;
  LoadedProgram program;
  program.module = original->clone();
  llvm::Expected<FuseReport> report = fuse(*program.module, own);
  if (!report)
    return report.takeError();
  llvm::Expected<bool> isLeft = leave(program, own, target, check, *report);
  if (!isLeft)
    return isLeft.takeError();
  if (!*isLeft)
    return mlir::OwningOpRef<mlir::ModuleOp>();
  return std::move(program.module);
}

} // namespace refold
