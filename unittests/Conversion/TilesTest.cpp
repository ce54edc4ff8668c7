// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Matrix tiles as the walk uses them, on any machine: what is laid out before
// them, which registers hold what, and where they begin and end.
#include "CascadeSuite.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Parser/Parser.h"
#include "refold/Conversion/CascadeToVector.h"
#include "refold/Target/CPU/ObjectCode.h"
#include "gtest/gtest.h"
#include <set>

using namespace refold;

namespace {

/// What the registers hold, told by the calls of one function in their order;
/// the body of a loop is as one run of it.
class Registers {
public:
  void call(mlir::LLVM::CallIntrinsicOp op) {
    llvm::StringRef name = op.getIntrin();
    if (!name.consume_front("llvm.x86."))
      return;
    if (name == "ldtilecfg") {
      EXPECT_FALSE(isOpen) << "laid out twice";
      isOpen = true;
      ++begins;
    } else if (name == "tilerelease") {
      EXPECT_TRUE(isOpen);
      isOpen = false;
    } else if (name == "tilezero") {
      EXPECT_TRUE(isOpen);
      sums.insert(number(op, 0));
    } else if (name == "tileloadd64") {
      EXPECT_TRUE(isOpen);
      EXPECT_FALSE(sums.count(number(op, 0))) << "a sum is overwritten";
      factors.insert(number(op, 0));
    } else if (name.starts_with("tdp")) {
      EXPECT_TRUE(sums.count(number(op, 0))) << "not begun";
      EXPECT_TRUE(factors.count(number(op, 1)));
      EXPECT_TRUE(factors.count(number(op, 2)));
      EXPECT_NE(number(op, 1), number(op, 2));
      products.insert(name.str());
    } else if (name == "tilestored64") {
      EXPECT_TRUE(sums.erase(number(op, 0))) << "nothing was summed";
    }
  }
  void end() {
    EXPECT_FALSE(isOpen) << "not released";
    EXPECT_TRUE(sums.empty()) << "sums are lost";
  }
  unsigned begins = 0;
  std::set<std::string> products;

private:
  static int64_t number(mlir::LLVM::CallIntrinsicOp op, unsigned i) {
    auto constant = op.getArgs()[i].getDefiningOp<mlir::LLVM::ConstantOp>();
    int64_t value = mlir::cast<mlir::IntegerAttr>(constant.getValue()).getInt();
    EXPECT_TRUE(value >= 0 && value < 8);
    return value;
  }
  bool isOpen = false;
  std::set<int64_t> sums, factors;
};

struct Lowered {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  size_t numPacked = 0;
};

mlir::DialectRegistry registryOfTargets() {
  mlir::DialectRegistry registry;
  registerCpuDialects(registry);
  registry.insert<RefoldDialect>();
  return registry;
}

/// The functions of a kernel; no module if there are none.
Lowered lower(const SuiteCase &c, bool isDynamic, const TargetFacts &target,
              mlir::MLIRContext &context) {
  Lowered result{mlir::parseSourceString<mlir::ModuleOp>(
      c.text(isDynamic, c.schedule), &context)};
  EXPECT_TRUE(result.module) << c.name;
  if (!result.module)
    return {};
  mlir::func::FuncOp kernel;
  result.module->walk([&](CascadeOp op) {
    kernel = op->getParentOfType<mlir::func::FuncOp>();
  });
  auto lowered = lowerCascade(kernel, target);
  EXPECT_TRUE(succeeded(lowered)) << c.name;
  if (failed(lowered))
    return {};
  result.numPacked = lowered->packedOperands.size();
  return result;
}

/// What the functions of a kernel multiply in tiles.
std::set<std::string> productsOf(const SuiteCase &c, bool isDynamic,
                                 const TargetFacts &target) {
  mlir::MLIRContext context(registryOfTargets(),
                            mlir::MLIRContext::Threading::DISABLED);
  Lowered lowered = lower(c, isDynamic, target, context);
  if (!lowered.module)
    return {};
  std::set<std::string> products;
  for (auto function : lowered.module->getOps<mlir::func::FuncOp>()) {
    Registers registers;
    function.walk<mlir::WalkOrder::PreOrder>(
        [&](mlir::LLVM::CallIntrinsicOp op) { registers.call(op); });
    registers.end();
    EXPECT_LE(registers.begins, 1u);
    EXPECT_TRUE(registers.begins || registers.products.empty());
    for (unsigned i = 0; i < lowered.numPacked; ++i)
      if (function.getName().ends_with("_phase" + std::to_string(i)))
        EXPECT_EQ(registers.begins, 0u) << "panels are laid out without";
    products.insert(registers.products.begin(), registers.products.end());
  }
  return products;
}

TargetFacts withTiles() {
  TargetFacts target = TargetFacts::avx512();
  target.hasByteDots = target.addsPairs = target.multipliesTiles = true;
  return target;
}

TEST(TilesTest, HoldWhatIsMultiplied) {
  unsigned pairs = 0;
  for (const SuiteCase &c : cascadeSuite())
    for (bool isDynamic : {false, true}) {
      if (isDynamic && !c.canBeDynamic)
        continue;
      SCOPED_TRACE(c.name + (isDynamic ? ", open" : ""));
      auto products = productsOf(c, isDynamic, withTiles());
      pairs += products.count("tdpbf16ps");
      TargetFacts without = withTiles();
      without.multipliesTiles = false;
      EXPECT_TRUE(productsOf(c, isDynamic, without).empty());
    }
  EXPECT_GE(pairs, 2u);
}

/// Registers of other widths have other rows than tiles.
TEST(TilesTest, AreForWholeRegistersOnly) {
  TargetFacts target = TargetFacts::avx2();
  target.addsPairs = target.multipliesTiles = true;
  for (const SuiteCase &c : cascadeSuite())
    EXPECT_TRUE(productsOf(c, false, target).empty()) << c.name;
}

/// Weights in pairs are stored a line at a time, by the instruction that
/// narrows two registers.
TEST(TilesTest, TwoRegistersOfWeightsAreNarrowedAtOnce) {
  unsigned together = 0;
  for (const SuiteCase &c : cascadeSuite()) {
    mlir::MLIRContext context(registryOfTargets(),
                              mlir::MLIRContext::Threading::DISABLED);
    Lowered lowered = lower(c, /*isDynamic=*/false, withTiles(), context);
    if (!lowered.module)
      continue;
    lowered.module->walk([&](mlir::LLVM::CallIntrinsicOp op) {
      if (op.getIntrin() != "llvm.x86.avx512bf16.cvtne2ps2bf16.512")
        return;
      ++together;
      mlir::Value stored = op->getResult(0);
      ASSERT_TRUE(stored.hasOneUse());
      auto bits = mlir::dyn_cast<mlir::vector::BitCastOp>(*stored.user_begin());
      ASSERT_TRUE(bits);
      EXPECT_TRUE(mlir::isa<mlir::vector::StoreOp>(*bits->user_begin()));
    });
  }
  EXPECT_GE(together, 1u);
}

/// Few rows ask for the tiles that come, a line of each at a time, where the
/// machine does not see them coming.
TEST(TilesTest, FewRowsAskForWhatLiesInMemory) {
  unsigned asking = 0;
  for (const SuiteCase &c : cascadeSuite())
    for (bool isDynamic : {false, true}) {
      if (isDynamic && !c.canBeDynamic)
        continue;
      SCOPED_TRACE(c.name + (isDynamic ? ", open" : ""));
      auto linesAskedFor = [&](bool asks) {
        TargetFacts target = withTiles();
        target.asksInOrder = asks;
        mlir::MLIRContext context(registryOfTargets(),
                                  mlir::MLIRContext::Threading::DISABLED);
        Lowered lowered = lower(c, isDynamic, target, context);
        unsigned lines = 0, tiles = 0;
        if (lowered.module)
          lowered.module->walk([&](mlir::Operation *op) {
            auto call = mlir::dyn_cast<mlir::LLVM::CallIntrinsicOp>(op);
            tiles += call && call.getIntrin() == "llvm.x86.tileloadd64";
            lines += op->getName().stripDialect() == "prefetch";
          });
        return tiles ? lines : 0;
      };
      unsigned lines = linesAskedFor(true) - linesAskedFor(false);
      EXPECT_EQ(lines % 16, 0u);
      asking += lines > 0;
    }
  EXPECT_GE(asking, 1u);
}

} // namespace
