// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Passes.h"
#include "RewriteRoots.h"

#include "mlir/Conversion/VectorToSCF/VectorToSCF.h"
#include "mlir/Dialect/Vector/Transforms/LoweringPatterns.h"
#include "mlir/Dialect/X86Vector/Transforms.h"

using namespace mlir;

namespace {
struct LowerVectors : PassWrapper<LowerVectors, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LowerVectors)
  StringRef getArgument() const override { return "refold-lower-vectors"; }
  StringRef getDescription() const override {
    return "vectors of several dimensions to such of one";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<affine::AffineDialect, arith::ArithDialect,
                    memref::MemRefDialect, scf::SCFDialect,
                    vector::VectorDialect>();
  }

  void runOnOperation() override {
    MLIRContext *context = &getContext();
    vector::VectorTransformsOptions options;
    options.setVectorTransposeLowering(
        vector::VectorTransposeLowering::Shuffle16x16);
    {
      RewritePatternSet patterns(context);
      vector::populateVectorBroadcastLoweringPatterns(patterns);
      vector::populateVectorTransposeLoweringPatterns(patterns, options);
      vector::populateVectorShapeCastLoweringPatterns(patterns);
      auto transposes = x86vector::avx2::LoweringOptions().setTransposeOptions(
          x86vector::avx2::TransposeLoweringOptions()
              .lower4x8xf32()
              .lower8x8xf32());
      x86vector::avx2::populateSpecializedTransposeLoweringPatterns(
          patterns, transposes, /*benefit=*/10);
      (void)refold::rewriteRoots(getOperation(), std::move(patterns));
    }
    // Transfers last: what the others leave is rank 1 or is unrolled here.
    RewritePatternSet patterns(context);
    VectorTransferToSCFOptions transfers;
    transfers.enableFullUnroll();
    transfers.setTargetRank(1);
    populateVectorToSCFConversionPatterns(patterns, transfers);
    vector::populateVectorTransferLoweringPatterns(patterns,
                                                   /*maxTransferRank=*/1);
    (void)refold::rewriteRoots(getOperation(), std::move(patterns));
  }
};
} // namespace

std::unique_ptr<Pass> refold::createLowerVectorsPass() {
  return std::make_unique<LowerVectors>();
}
