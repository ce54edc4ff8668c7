// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the analysis of a cascade's body answers, beyond accepting or refusing.
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Parser/Parser.h"
#include "refold/Dialect/Refold/IR/Refold.h"
#include "gtest/gtest.h"

using namespace refold;

namespace {

class IndexSetsTest : public testing::Test {
protected:
  IndexSetsTest() : context(mlir::MLIRContext::Threading::DISABLED) {
    context.loadDialect<mlir::arith::ArithDialect, mlir::func::FuncDialect,
                        mlir::math::MathDialect, RefoldDialect>();
  }
  /// The one cascade of the text.
  CascadeOp parse(llvm::StringRef body) {
    std::string text = "func.func @f(%X: tensor<?x?xf32>, %W: tensor<?x?xf32>, "
                       "%Y: tensor<?xf32>) {\n"
                       "%r = refold.cascade rows(%i = ?) stream(%j = ?) "
                       "inner(%d = 2) carried(%e = ?)\n"
                       "ins(%x = %X : tensor<?x?xf32>, %w = %W : "
                       "tensor<?x?xf32>) outs(%y = %Y : tensor<?xf32>) {\n" +
                       body.str() + "}\nreturn\n}";
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    CascadeOp found;
    if (module)
      module->walk([&](CascadeOp op) { found = op; });
    return found;
  }
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

constexpr uint64_t kRow = 1, kStream = 2, kInner = 4, kCarried = 8;

TEST_F(IndexSetsTest, SetsFollowTheData) {
  CascadeOp op = parse(R"(
    %v = refold.read %x[%i, %j * 2 + %d] : f32
    %c = refold.contract %v over(%d) : f32
    %u = refold.read %w[%j, %e] : f32
    %p = arith.mulf %c, %u : f32
    %s = refold.state add(%p : f32)
    %column = refold.state add(%u : f32)
    %n = refold.extent %e
    %row = refold.read %x[%i, %n] : f32
    refold.write %row, %y[%i] : f32
  )");
  ASSERT_TRUE(op);
  auto sets = IndexSets::infer(op);
  ASSERT_TRUE(mlir::succeeded(sets));
  std::vector<uint64_t> found;
  for (mlir::Operation &inner : *op.bodyBlock())
    if (inner.getNumResults())
      found.push_back(sets->of(inner.getResult(0)));
  EXPECT_EQ(found, (std::vector<uint64_t>{kRow | kStream | kInner,
                                          kRow | kStream, kStream | kCarried,
                                          kRow | kStream | kCarried,
                                          kRow | kCarried, kCarried, 0, kRow}));
  EXPECT_EQ(op.showIndices(kRow | kCarried), "{i, e}");
}

TEST_F(IndexSetsTest, APivotSavesAPass) {
  auto passesOf = [&](const char *pivot) {
    CascadeOp op = parse(std::string(R"(
      %v = refold.read %x[%i, %j] : f32
      %u0 = refold.read %w[%j, %e] : f32
      %m = refold.state max(%v : f32)
      %u = arith.subf %v, %m : f32
      %p = math.exp %u : f32
      %z = refold.state add(%p : f32))") +
                         pivot + R"(
      %q = arith.divf %p, %z : f32
      %m2 = refold.state max(%q : f32)
      refold.write %m2, %y[%i] : f32
    )");
    auto sets = op ? IndexSets::infer(op) : mlir::FailureOr<IndexSets>();
    return mlir::succeeded(sets) ? sets->numPasses : 0;
  };
  EXPECT_EQ(passesOf(""), 3u);
  EXPECT_EQ(passesOf(R"( pivot(%m : f32) transport(%old, %new, %self) {
        %d0 = arith.subf %old, %new : f32
        %f = math.exp %d0 : f32
        %moved = arith.mulf %self, %f : f32
        refold.yield %moved : f32
      })"),
            2u);
}

} // namespace
