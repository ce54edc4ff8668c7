// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Target/CPU/Pipeline.h"

#include "Passes.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Affine/Passes.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace refold;

/// Folds and patterns, in so many visits of every op. Blocks are left as they
/// are: ours are neither dead nor equal, and to compare them takes as long as
/// everything else.
static std::unique_ptr<Pass> canonicalise(int64_t visits) {
  GreedyRewriteConfig config;
  config.enableRegionSimplification = GreedySimplifyRegionLevel::Disabled;
  config.maxIterations = visits;
  return createCanonicalizerPass(config);
}

void refold::buildLowerToLLVM(OpPassManager &passes,
                              InstructionSet instructionSet) {
  passes.addPass(canonicalise(1));
  passes.addPass(createCSEPass());
  // While a row's exp is one op and not ten: what does not change in a loop is
  // found and moved at a tenth of the cost.
  passes.addPass(createLoopInvariantCodeMotionPass());
  // Arithmetic on storage types, which a .mlir file may hold, is arithmetic in
  // f32 with conversions around it.
  arith::ArithEmulateUnsupportedFloatsOptions storageTypes;
  static const std::string names[] = {"f16", "bf16", "f8E4M3FN", "f8E5M2"};
  storageTypes.sourceTypeStrs = names;
  passes.addPass(arith::createArithEmulateUnsupportedFloats(storageTypes));
  passes.addPass(createLowerFloatConversionsPass(instructionSet));
  passes.addPass(createLowerMathPass(instructionSet));
  // After the functions, whose constants are vectors of any shape.
  passes.addPass(createLowerVectorsPass());
  passes.addPass(canonicalise(1));
  passes.addPass(createCSEPass());
  // Makes affine.apply ops, so before they are lowered.
  passes.addPass(createLowerViewsPass());
  passes.addPass(createLowerAffinePass());
  passes.addPass(createConvertSCFToCFPass());
  passes.addPass(canonicalise(1));
  passes.addPass(createLowerToLLVMPass());
  passes.addPass(createReconcileUnrealizedCastsPass());
  // What is left to fold is visited once more to see that nothing is; of the
  // equal ops that memrefs leave everywhere, only one of each.
  passes.addPass(createCSEPass());
  passes.addPass(canonicalise(GreedyRewriteConfig().maxIterations));
}

void refold::registerCpuPasses() {
  registerPass([] { return createLowerMathPass(InstructionSet::AVX512); });
  registerPass(
      [] { return createLowerFloatConversionsPass(InstructionSet::Baseline); });
  registerPass([] { return createLowerVectorsPass(); });
  registerPass([] { return createLowerViewsPass(); });
  registerPass([] { return createLowerToLLVMPass(); });
  PassPipelineRegistration<>("refold-lower-to-llvm",
                             "vector, scf and memref to the LLVM dialect",
                             [](OpPassManager &passes) {
                               buildLowerToLLVM(passes, InstructionSet::AVX512);
                             });
}
