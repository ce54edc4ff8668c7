// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Passes.h"
#include "RewriteRoots.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/IndexToLLVM/IndexToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/Transforms/Transforms.h"
#include "mlir/Dialect/Vector/Transforms/LoweringPatterns.h"
#include "mlir/Dialect/Vector/Transforms/VectorRewritePatterns.h"
#include "mlir/Dialect/X86Vector/Transforms.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;

namespace {
struct LowerViews : PassWrapper<LowerViews, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LowerViews)
  StringRef getArgument() const override { return "refold-lower-views"; }
  StringRef getDescription() const override {
    return "views of memrefs to their offsets, sizes and strides";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<affine::AffineDialect, arith::ArithDialect,
                    memref::MemRefDialect>();
  }
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    memref::populateExpandStridedMetadataPatterns(patterns);
    (void)refold::rewriteRoots(getOperation(), std::move(patterns));
  }
};

struct LowerToLLVM : PassWrapper<LowerToLLVM, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LowerToLLVM)
  StringRef getArgument() const override { return "refold-to-llvm"; }
  StringRef getDescription() const override {
    return "all dialects of kernels to LLVM's, in one conversion";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry
        .insert<LLVM::LLVMDialect, arith::ArithDialect, memref::MemRefDialect,
                vector::VectorDialect, x86vector::X86VectorDialect>();
  }

  void runOnOperation() override {
    MLIRContext *context = &getContext();
    {
      RewritePatternSet patterns(context);
      vector::populateVectorBroadcastLoweringPatterns(patterns);
      vector::populateVectorShapeCastLoweringPatterns(patterns);
      vector::populateVectorTransposeLoweringPatterns(
          patterns, vector::VectorTransformsOptions());
      vector::populateVectorMaskMaterializationPatterns(
          patterns, /*force32BitVectorIndices=*/true);
      vector::populateVectorTransferLoweringPatterns(patterns);
      (void)refold::rewriteRoots(getOperation(), std::move(patterns));
    }
    // Branches that were folded have left blocks that no conversion visits.
    IRRewriter rewriter(context);
    getOperation().walk([&](Operation *op) {
      (void)eraseUnreachableBlocks(rewriter, op->getRegions());
    });
    LLVMTypeConverter types(context);
    RewritePatternSet patterns(context);
    LLVMConversionTarget target(*context);
    target.addLegalOp<ModuleOp>();
    // Sums are split into lanes anyway; the order inside a register is ours to
    // choose, and it is the same on every run.
    populateVectorToLLVMConversionPatterns(types, patterns,
                                           /*reassociateFPReductions=*/true,
                                           /*force32BitVectorIndices=*/true);
    populateX86VectorLegalizeForLLVMExportPatterns(types, patterns);
    configureX86VectorLegalizeForExportTarget(target);
    arith::populateArithToLLVMConversionPatterns(types, patterns);
    populateMathToLLVMConversionPatterns(types, patterns);
    populateFinalizeMemRefToLLVMConversionPatterns(types, patterns);
    index::populateIndexToLLVMConversionPatterns(types, patterns);
    populateFuncToLLVMConversionPatterns(types, patterns);
    cf::populateControlFlowToLLVMConversionPatterns(types, patterns);
    if (failed(applyPartialConversion(getOperation(), target,
                                      std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace

std::unique_ptr<Pass> refold::createLowerViewsPass() {
  return std::make_unique<LowerViews>();
}

std::unique_ptr<Pass> refold::createLowerToLLVMPass() {
  return std::make_unique<LowerToLLVM>();
}
