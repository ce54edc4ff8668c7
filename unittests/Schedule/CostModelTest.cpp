// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Schedule/CostModel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace refold;

namespace {

class CostModelTest : public testing::Test {
protected:
  CostModelTest() {
    context.loadDialect<RefoldDialect, mlir::arith::ArithDialect,
                        mlir::math::MathDialect>();
    context.allowUnregisteredDialects();
  }

  /// `text` with `to` in place of `from`.
  static std::string replaced(llvm::StringRef text, llvm::StringRef from,
                              llvm::StringRef to) {
    std::string result;
    llvm::raw_string_ostream stream(result);
    for (; text.contains(from); text = text.split(from).second)
      stream << text.split(from).first << to;
    stream << text;
    return result;
  }
  /// The one cascade in `text`; null, and a failure, where there is none.
  CascadeOp parse(llvm::StringRef text) {
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    CascadeOp cascade;
    if (module)
      module->walk([&](CascadeOp op) { cascade = op; });
    if (!cascade) {
      ADD_FAILURE() << "the text was not read";
      return nullptr;
    }
    llvm::SmallVector<bool> varying(cascade.getInputs().size(), true);
    cascade->setAttr(kVaryingInputsAttr,
                     mlir::DenseBoolArrayAttr::get(&context, varying));
    return cascade;
  }
  /// Counts of it.
  KernelWork workOf(llvm::StringRef text, llvm::ArrayRef<double> extents) {
    CascadeOp cascade = parse(text);
    if (!cascade)
      return {};
    auto sets = IndexSets::infer(cascade);
    auto schedule = chooseSchedule(cascade, target);
    if (mlir::failed(sets) || mlir::failed(schedule)) {
      ADD_FAILURE() << "no index sets or no schedule";
      return {};
    }
    return countWork(cascade, *sets, extents, *schedule, target);
  }
  double msOf(const KernelWork &work, double workingSet, int64_t threads = 1) {
    return predict(work, target, rates, threads, workingSet).ms;
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  TargetFacts target = TargetFacts::avx512();
  MachineRates rates = MachineRates::defaults(target);
};

constexpr llvm::StringLiteral kSoftmax = R"(
  %x, %y = "test.arrays"() : () -> (memref<?x?xf32>, memref<?x?xf32>)
  refold.cascade rows(%m = ?) stream(%n = ?)
    ins(%a = %x : memref<?x?xf32>) outs(%b = %y : memref<?x?xf32>)
    sizes(%m = %b[0], %n = %b[1]) {
    %0 = refold.read %a[%m, %n] : f32
    %1 = refold.state max(%0 : f32)
    %2 = arith.subf %0, %1 : f32
    %3 = math.exp %2 : f32
    %4 = refold.state add(%3 : f32) pivot(%1 : f32) transport(%old, %new, %self) {
      %8 = arith.subf %old, %new : f32
      %9 = math.exp %8 : f32
      %10 = arith.mulf %self, %9 : f32
      refold.yield %10 : f32
    }
    %5 = arith.divf %3, %4 : f32
    refold.write %5, %b[%m, %n] : f32
  })";

TEST_F(CostModelTest, AMomentMovesWhatCoresAndMemoryDo) {
  MachineRates half = rates.at({0.5, 0.25});
  EXPECT_EQ(half.flops, 0.5 * rates.flops);
  EXPECT_EQ(half.exponentials, 0.5 * rates.exponentials);
  EXPECT_EQ(half.read[1], 0.5 * rates.read[1]);
  EXPECT_EQ(half.read[2], rates.read[2]);
  EXPECT_EQ(half.read[3], 0.25 * rates.read[3]);
  EXPECT_EQ(half.copyAll, 0.25 * rates.copyAll);
  // Between the cache and memory: as near to memory as before.
  auto shareOf = [](const MachineRates &of, double rate) {
    return (1.0 / rate - 1.0 / of.read[2]) /
           (1.0 / of.read[3] - 1.0 / of.read[2]);
  };
  rates.read[2] = 4.0 * rates.read[3];
  rates.readAround[1] = 2.0 * rates.read[3];
  half = rates.at({0.5, 0.25});
  EXPECT_LT(half.readAround[1], rates.readAround[1]);
  EXPECT_NEAR(1.0 / half.readAround[1],
              1.0 / rates.readAround[1] +
                  shareOf(rates, rates.readAround[1]) * 3.0 / rates.read[3],
              1e-9 / rates.readAround[1]);
}

TEST_F(CostModelTest, TheSweepComputesAgain) {
  KernelWork work = workOf(kSoftmax, {8, 2048});
  EXPECT_EQ(work.stream.exponentials, 8 * 2048);
  EXPECT_EQ(work.stream.lagging, 8 * 2048);
  EXPECT_EQ(work.stream.divisions, 8 * 2048);
  ASSERT_EQ(work.rereads.size(), 1u);
  EXPECT_EQ(work.rereads[0].bytes, 8 * 2048 * 4);
  EXPECT_EQ(work.rereads[0].between, 2048 * 4);
  EXPECT_EQ(work.visits, 2 * 8);
  EXPECT_EQ(work.merges, 2 * 8);
  EXPECT_EQ(work.nestSteps, 0);
}

TEST_F(CostModelTest, TheSweepOfOneTileReadsWhatThePassesHaveComputed) {
  KernelWork work = workOf(kSoftmax, {8, 64});
  EXPECT_EQ(work.stream.exponentials, 0);
  EXPECT_EQ(work.stream.lagging, 8 * 64);
  EXPECT_EQ(work.stream.divisions, 8 * 64);
}

TEST_F(CostModelTest, RegistersThatAreNotFullCountAsFull) {
  EXPECT_EQ(workOf(kSoftmax, {8, 17}).stream.lagging, 8 * 32);
  EXPECT_EQ(workOf(kSoftmax, {8, 1}).stream.lagging, 8 * 16);
}

TEST_F(CostModelTest, StatesAreMovedOnceATile) {
  EXPECT_EQ(workOf(kSoftmax, {8, 1024}).moves.exponentials, 0);
  EXPECT_EQ(workOf(kSoftmax, {8, 4096}).moves.exponentials, 8 * 4);
}

/// A sum of ELEMENT, which is made of %0, and the exponential of the sum.
constexpr llvm::StringLiteral kSum = R"(
  %x, %y = "test.arrays"() : () -> (memref<?x?xf32>, memref<?xf32>)
  refold.cascade rows(%m = ?) stream(%n = ?)
    ins(%a = %x : memref<?x?xf32>) outs(%b = %y : memref<?xf32>)
    sizes(%m = %a[0], %n = %a[1]) {
    %0 = refold.read %a[%m, %n] : f32
    %1 = ELEMENT : f32
    %2 = refold.state add(%1 : f32)
    %3 = math.exp %2 : f32
    refold.write %3, %b[%m] : f32
  })";

/// Heads that share what they read find it in a cache, if it fits into one.
TEST_F(CostModelTest, RowsThatReadAlikeReadAgain) {
  constexpr llvm::StringLiteral kHeads = R"(
  %x, %y = "test.arrays"() : () -> (memref<?x?x?xf32>, memref<?x?xf32>)
  refold.cascade rows(%h = ?, %m = ?) stream(%n = ?)
    ins(%a = %x : memref<?x?x?xf32>) outs(%b = %y : memref<?x?xf32>)
    sizes(%h = %b[0], %m = %b[1], %n = %a[2]) {
    %0 = refold.read %a[HEAD, %m, %n] : f32
    %1 = refold.read %a[OTHER, %n] : f32
    %2 = arith.mulf %0, %1 : f32
    %3 = refold.state add(%2 : f32)
    refold.write %3, %b[%h, %m] : f32
  })";
  auto readAgain = [&](llvm::StringRef head, llvm::StringRef other) {
    std::string text = replaced(kHeads, "HEAD", head);
    auto again = workOf(replaced(text, "OTHER", other), {32, 64, 4096}).rereads;
    return again.empty() ? std::pair(0.0, 0.0)
                         : std::pair(again.back().bytes, again.back().between);
  };
  constexpr double kRow = 4096 * 4, kHead = 64 * kRow;
  EXPECT_EQ(readAgain("%h", "%h, %m").first, 0.0);
  EXPECT_EQ(readAgain("%h floordiv 4", "%h, %m"), std::pair(24 * kHead, kHead));
  EXPECT_EQ(readAgain("%h floordiv 4 + 1", "%h, %m").first, 0.0); // not seen
  // Where nothing else lies along all rows, tiles are of heads (`groupedRow`).
  EXPECT_EQ(readAgain("%h floordiv 4", "%h, 0"), std::pair(24 * kHead, kRow));
}

/// Sums of rows of a table: which row, and which element of it, is data.
TEST_F(CostModelTest, RowsAtComputedPlacesAreReadAsOthers) {
  std::string text = R"(
  %x, %i, %y = "test.arrays"()
    : () -> (memref<?x?xf32>, memref<?x?xi64>, memref<?xf32>)
  refold.cascade rows(%m = ?) stream(%n = ?)
    ins(%a = %x : memref<?x?xf32>, %p = %i : memref<?x?xi64>)
    outs(%b = %y : memref<?xf32>) sizes(%m = %b[0], %n = %a[1]) {
    %0 = refold.read %p[%m, PLACE] : i64
    %1 = arith.index_cast %0 : i64 to index
    %2 = refold.read %a[SUBSCRIPTS] : f32
    %3 = refold.state add(%2 : f32)
    refold.write %3, %b[%m] : f32
  })";
  auto gathered = [&](llvm::StringRef place, llvm::StringRef subscripts) {
    return workOf(replaced(replaced(text, "PLACE", place), "SUBSCRIPTS",
                           subscripts),
                  {8, 64})
        .gathered;
  };
  EXPECT_EQ(gathered("%m", "%1, %n"), 8);
  EXPECT_EQ(gathered("%n", "%m, %1"), 8 * 64);
  EXPECT_EQ(gathered("%n", "%1, %m"), 8 * 64);
}

TEST_F(CostModelTest, AsksAheadOnLongRows) {
  auto asks = [&](llvm::StringRef text) {
    CascadeOp cascade = parse(text);
    auto schedule = chooseSchedule(cascade, target);
    return mlir::succeeded(schedule) && schedule->prefetch;
  };
  std::string squares = replaced(kSum, "ELEMENT", "arith.mulf %0, %0"),
              sizes = replaced(kSum, "ELEMENT", "math.absf %0"),
              powers = replaced(kSum, "ELEMENT", "math.exp %0");
  for (llvm::StringRef text :
       {llvm::StringRef(squares), llvm::StringRef(sizes),
        llvm::StringRef(powers), llvm::StringRef(kSoftmax)})
    EXPECT_TRUE(asks(text)) << text.str();
}

TEST_F(CostModelTest, TilesOfHalvesAreLongerWhereLinesComeIntoTheFirstCache) {
  constexpr llvm::StringLiteral text = R"(
    %x, %w, %y = "test.arrays"()
        : () -> (memref<32x128xTYPE>, memref<8x?x128xTYPE>, memref<32xTYPE>)
    refold.cascade rows(%h = 32) stream(%n = ?) inner(%d = 128)
      ins(%a = %x : memref<32x128xTYPE>, %b = %w : memref<8x?x128xTYPE>)
      outs(%c = %y : memref<32xTYPE>) sizes(%n = %b[1]) {
      %0 = refold.read %a[%h, %d] : TYPE
      %1 = refold.read %b[%h floordiv 4, %n, %d] : TYPE
      %2 = arith.mulf %0, %1 : TYPE
      %3 = refold.contract %2 over(%d) : TYPE
      %4 = refold.state max(%3 : TYPE)
      refold.write %4, %c[%h] : TYPE
    })";
  auto tile = [&](llvm::StringRef type) -> int64_t {
    CascadeOp cascade = parse(replaced(text, "TYPE", type));
    auto schedule = chooseSchedule(cascade, target);
    return mlir::succeeded(schedule) ? schedule->tile["n"] : 0;
  };
  EXPECT_EQ(tile("f16"), 256);
  target.asksIntoFirst = true;
  EXPECT_EQ(tile("f16"), 512);
  EXPECT_EQ(tile("f32"), 256);
}

constexpr llvm::StringLiteral kProduct = R"(
  %x, %w, %y = "test.arrays"()
      : () -> (memref<?x?xf32>, memref<?x?xf32>, memref<?x?xf32>)
  refold.cascade rows(%m = ?) stream(%n = ?) carried(%j = ?)
    ins(%a = %x : memref<?x?xf32>, %b = %w : memref<?x?xf32>)
    outs(%c = %y : memref<?x?xf32>) sizes(%m = %c[0], %n = %a[1], %j = %c[1]) {
    %0 = refold.read %a[%m, %n] : f32
    %1 = refold.read %b[%n, %j] : f32
    %2 = arith.mulf %0, %1 : f32
    %3 = refold.state add(%2 : f32)
    refold.write %3, %c[%m, %j] : f32
  })";

TEST_F(CostModelTest, AProductAndItsSumAreOneStep) {
  KernelWork work = workOf(kProduct, {64, 32, 48});
  EXPECT_EQ(work.nestSteps, 64 * 32 * 48);
  EXPECT_EQ(work.stream.simple, 0);
}

TEST_F(CostModelTest, RowsThatFillNoRegisterTileWait) {
  EXPECT_EQ(workOf(kProduct, {8, 32, 48}).nestSteps, 8 * 32 * 48);
  EXPECT_EQ(workOf(kProduct, {5, 32, 48}).nestSteps, (4 + 2) * 32 * 48);
  EXPECT_EQ(workOf(kProduct, {7, 32, 48}).nestSteps, (4 + 2 + 2) * 32 * 48);
}

TEST_F(CostModelTest, RegistersOfASumThatAreNotFullCountAsFull) {
  EXPECT_EQ(workOf(kProduct, {64, 32, 8}).nestSteps, 64 * 32 * 16);
  EXPECT_EQ(workOf(kProduct, {64, 32, 17}).nestSteps, 64 * 32 * 32);
}

constexpr llvm::StringLiteral kScores = R"(
  %x, %w, %y = "test.arrays"()
      : () -> (memref<?x64xf32>, memref<?x64xf32>, memref<?xf32>)
  refold.cascade rows(%m = ?) stream(%n = ?) inner(%d = 64)
    ins(%a = %x : memref<?x64xf32>, %b = %w : memref<?x64xf32>)
    outs(%c = %y : memref<?xf32>) sizes(%m = %c[0], %n = %b[0]) {
    %0 = refold.read %a[%m, %d] : f32
    %1 = refold.read %b[%n, %d] : f32
    %2 = arith.mulf %0, %1 : f32
    %3 = refold.contract %2 over(%d) : f32
    %4 = refold.state max(%3 : f32)
    refold.write %4, %c[%m] : f32
  })";

/// Rows that are one tile of the stream are summed as by a product by itself.
TEST_F(CostModelTest, WholeRowsAreSummedAsAProductAlone) {
  EXPECT_LT(workOf(kProduct, {64, 32, 48}).nestSums, 0.5 * 64 * 48);
  KernelWork many = workOf(kProduct, {64, 1024, 512});
  EXPECT_EQ(many.nestSums, 64 * 512);
  EXPECT_GT(many.nestSteps, 64.0 * 1024 * 512);
  EXPECT_EQ(workOf(kProduct, {64, 8192, 512}).nestSteps, 64.0 * 8192 * 512);
}

/// Every block of columns reads its rows; many results have one for each core.
TEST_F(CostModelTest, BlocksOfColumnsReadRowsAgain) {
  auto again = [&](double columns) {
    double bytes = 0.0;
    for (const KernelWork::Reread &r :
         workOf(kProduct, {128, 1024, columns}).rereads)
      bytes += r.bytes;
    return bytes / (128 * 1024 * 4);
  };
  target.cores = 2;
  EXPECT_EQ(again(512), 0);
  EXPECT_EQ(again(1024), 1);
  EXPECT_EQ(again(2040), 3);
  EXPECT_EQ(again(2048), 1);
}

TEST_F(CostModelTest, ScoresOfFewRowsNeedNoPanels) {
  KernelWork few = workOf(kScores, {20, 2048, 64});
  EXPECT_EQ(few.sumsAcross, 20 * 2048);
  EXPECT_EQ(few.turned, 0);
  KernelWork more =
      workOf(kScores, {double(rowsAlongSum(64, 16) + 1), 2048, 64});
  EXPECT_EQ(more.sumsAcross, 0);
  EXPECT_EQ(more.turned, 2048 * 64);
  // Half a register is turned as a whole one.
  KernelWork narrow = workOf(replaced(kScores, "64", "8"), {128, 2048, 8});
  EXPECT_EQ(narrow.turned, 2048 * 16);
}

TEST_F(CostModelTest, AContractionBeginsASumForEveryScore) {
  EXPECT_EQ(workOf(kScores, {128, 2048, 64}).nestSums, 128 * 2048);
  EXPECT_EQ(workOf(kScores, {8, 2048, 64}).nestSums, 0);   // across lanes
  EXPECT_EQ(workOf(kProduct, {64, 8192, 48}).nestSums, 0); // kept in the tile
}

TEST_F(CostModelTest, FewColumnsOfAContractionTakeWholeRegisters) {
  for (double columns : {4.0, 12.0, 16.0})
    EXPECT_EQ(workOf(kScores, {128, columns, 64}).nestSteps, 128 * 16 * 64);
  EXPECT_EQ(workOf(kScores, {128, 20, 64}).nestSteps, 128 * 32 * 64);
  EXPECT_EQ(workOf(kScores, {128, 48, 64}).nestSteps, 128 * 48 * 64);
  // Lanes along what is summed.
  EXPECT_EQ(workOf(replaced(kScores, "64", "20"), {4, 48, 20}).nestSteps,
            4 * 48 * 32);
}

TEST_F(CostModelTest, OpenColumnsBeforeASecondProductTakeWholeTiles) {
  std::string second = replaced(kScores, "%4 = refold.state max(%3 : f32)",
                                "%v = refold.read %b[%n, %j] : f32\n"
                                "%p = arith.mulf %3, %v : f32\n"
                                "%4 = refold.state add(%p : f32)");
  second =
      replaced(second, "inner(%d = 64)", "inner(%d = 64) carried(%j = 64)");
  second = replaced(second, "memref<?xf32>)\n", "memref<?x64xf32>)\n");
  second = replaced(second, "%y : memref<?xf32>", "%y : memref<?x64xf32>");
  second = replaced(second, "%c[%m] :", "%c[%m, %j] :");
  EXPECT_EQ(workOf(second, {128, 16, 64, 64}).nestSteps,
            128 * 32 * 64 + 128 * 16 * 64);
  EXPECT_EQ(workOf(replaced(second, "%n = ?", "%n = 16"), {128, 16, 64, 64})
                .nestSteps,
            128 * 16 * 64 + 128 * 16 * 64);
}

constexpr llvm::StringLiteral kAlone = R"(
  %x, %w, %y = "test.arrays"()
      : () -> (memref<?x64xf32>, memref<64x?xf32>, memref<?x?xf32>)
  refold.cascade rows(%m = ?, %n = ?) inner(%d = 64)
    ins(%a = %x : memref<?x64xf32>, %b = %w : memref<64x?xf32>)
    outs(%c = %y : memref<?x?xf32>) sizes(%m = %c[0], %n = %b[1]) {
    %0 = refold.read %a[%m, %d] : f32
    %1 = refold.read %b[%d, %n] : f32
    %2 = arith.mulf %0, %1 : f32
    %3 = refold.contract %2 over(%d) : f32
    refold.write %3, %c[%m, %n] : f32
  })";

TEST_F(CostModelTest, AProductAloneOnlyStoresItsSums) {
  KernelWork work = workOf(kAlone, {128, 20, 64});
  EXPECT_EQ(work.nestSteps, 128 * 32 * 64);
  EXPECT_LT(work.nestSums, 0.5 * 128 * 32);
  // A panel of 1024 x 32 numbers does not fit the first cache.
  KernelWork deep = workOf(replaced(kAlone, "64", "1024"), {128, 20, 1024});
  EXPECT_GT(deep.nestSteps, 128.0 * 32 * 1024);
  // Many columns are stored where they do not fit it.
  EXPECT_GE(workOf(kAlone, {128, 300, 64}).nestSums, 128 * 300);
}

TEST_F(CostModelTest, BytesOfFourStepsAreLaidBesideEachOther) {
  target.hasByteDots = true;
  std::string bytes = replaced(kAlone, "f32", "i8");
  bytes = replaced(bytes, "memref<?x?xi8>", "memref<?x?xi32>");
  bytes = replaced(bytes, "%2 = arith.mulf %0, %1 : i8",
                   "%w0 = arith.extsi %0 : i8 to i32\n"
                   "%w1 = arith.extsi %1 : i8 to i32\n"
                   "%2 = arith.muli %w0, %w1 : i32");
  bytes = replaced(bytes, "over(%d) : i8", "over(%d) : i32");
  bytes = replaced(bytes, "%c[%m, %n] : i8", "%c[%m, %n] : i32");
  KernelWork work = workOf(bytes, {16, 128, 64});
  EXPECT_EQ(work.nestSteps, 16 * 128 * 64 / 4);
  EXPECT_NEAR(work.turned, 0.35 * (16 * 64 + 64 * 128), 1.0);
}

/// The BEST places of the first of the rows, or of ROWS of them.
constexpr llvm::StringLiteral kList = R"(
  %x, %y = "test.arrays"() : () -> (memref<?x?xf32>, memref<?xBESTxf32>)
  refold.cascade rows(%m = ROWS) stream(%n = 100) carried(%r = BEST)
    ins(%a = %x : memref<?x?xf32>) outs(%b = %y : memref<?xBESTxf32>)
    sizes(%m = %a[0], %n = %a[1]) {
    %0 = refold.read %a[%m, %n] : f32
    %1 = refold.state topk(%0 : f32) rank(%r)
    refold.write %1, %b[%m, %r] : f32
  })";

TEST_F(CostModelTest, ListsAreCountedAsTheyAreFilled) {
  auto listOf = [&](llvm::StringRef best, llvm::StringRef rows) {
    std::string text = replaced(replaced(kList, "BEST", best), "ROWS", rows);
    double number = 0, places = 0;
    best.getAsDouble(places);
    if (rows.getAsDouble(number))
      number = 1024;
    return workOf(text, {number, 100, places});
  };
  KernelWork two = listOf("2", "?"), eight = listOf("8", "?");
  EXPECT_GE(two.lists, 1024);
  EXPECT_EQ(two.searched, 1024 * 100);
  EXPECT_EQ(two.entered, 0);
  EXPECT_EQ(two.moved, 0);
  // 2.07 candidates of 14 instructions, 10.6 of 25.5.
  EXPECT_NEAR(eight.placed / two.placed, 10.6 * 25.5 / (2.07 * 14), 0.2);
  // Five rows fill no register, and 20 places no list of one.
  for (const KernelWork &work : {listOf("2", "5"), listOf("20", "?")}) {
    EXPECT_EQ(work.lists, 0);
    EXPECT_EQ(work.placed, 0);
    EXPECT_GT(work.entered, 0);
  }
  // 8 of the maxima of two registers of 8 leave as many as those of one of 16.
  double ofSixteen = eight.placed;
  target = TargetFacts::avx2();
  EXPECT_EQ(listOf("8", "?").placed, ofSixteen);
  EXPECT_EQ(listOf("2", "?").moved, 0); // a table
  // Without that and an instruction elements are moved one by one.
  target = TargetFacts::baseline();
  EXPECT_EQ(listOf("2", "?").moved, 1024 * 100);
}

TEST_F(CostModelTest, KeysAreComputedForTheMaximaAndForTheCandidates) {
  std::string text = replaced(replaced(kList, "BEST", "8"), "ROWS", "?");
  std::string costly =
      replaced(text, "%1 = refold.state topk(%0 : f32)",
               "%k = math.exp %0 : f32\n    %1 = refold.state topk(%k : f32)");
  EXPECT_EQ(workOf(text, {1024, 128, 8}).stream.exponentials, 0);
  EXPECT_EQ(workOf(costly, {1024, 128, 8}).stream.exponentials, 2 * 1024 * 128);
}

TEST_F(CostModelTest, TheFormOfAListIsDecidedOnce) {
  mlir::Builder b(&context);
  mlir::Type f32 = b.getF32Type(), f64 = b.getF64Type(), i32 = b.getI32Type();
  EXPECT_EQ(listFormOf(f32, 8, 16, 16), ListForm::Sorted);
  EXPECT_EQ(listFormOf(f32, 8, 8, 8), ListForm::Sorted);
  EXPECT_EQ(listFormOf(i32, 8, 16, 16), ListForm::Inserted);
  EXPECT_EQ(listFormOf(f64, 8, 16, 8), ListForm::Inserted);
  EXPECT_EQ(listFormOf(f32, 2, 16, 2), ListForm::Inserted);
  EXPECT_EQ(listFormOf(f32, 8, 5, 16), ListForm::ByElement);
  EXPECT_EQ(listFormOf(f32, 17, 16, 16), ListForm::ByElement);
  EXPECT_EQ(listFormOf(f32, 0, 16, 16), ListForm::ByElement);
  int64_t open = mlir::ShapedType::kDynamic;
  EXPECT_EQ(listFormOf(f32, open, 16, 16), ListForm::ByElement);
  EXPECT_EQ(listFormOf(f32, 8, 0, 16), ListForm::ByElement);
}

TEST_F(CostModelTest, WhatIsMadeOfRowsHasThemAlongTheLanes) {
  std::string sum = replaced(kSum, "ELEMENT", "arith.mulf %0, %0");
  EXPECT_EQ(workOf(sum, {1000, 4096}).rows.exponentials, 0);
  EXPECT_EQ(workOf(sum, {1000, 4096}).stream.exponentials, 1000);
  EXPECT_EQ(workOf(sum, {1000, 5000}).rows.exponentials, 1000);
}

TEST_F(CostModelTest, ShortRowsTakeTheirEndsAndExtremesLong) {
  std::string sum = replaced(kSum, "ELEMENT", "arith.mulf %0, %0");
  std::string extreme = replaced(sum, "state add", "state max");
  KernelWork added = workOf(sum, {1000, 100}),
             most = workOf(extreme, {1000, 100});
  EXPECT_EQ(added.tails, 1000 * 3); // 64 in one block, 36 in three registers
  EXPECT_EQ(workOf(sum, {1000, 128}).tails, 0);
  EXPECT_EQ(added.extremes, 0);
  EXPECT_EQ(most.extremes, 1000);
  EXPECT_GT(msOf(most, 1e5), 1.05 * msOf(added, 1e5));
}

/// As many rows as a core of two has, which read in order, and their sums.
TEST_F(CostModelTest, SumsOfFewRowsThatLeaveTheFirstCacheWait) {
  target.l1Bytes = 48 * 1024;
  auto steps = [&](double rows, double columns) {
    return workOf(kAlone, {rows, columns, 64}).nestSteps /
           (rows * columns * 64);
  };
  EXPECT_EQ(steps(64, 64), 1.0);
  EXPECT_GT(steps(64, 128), 1.05);
  EXPECT_EQ(steps(128, 128), 1.0); // in panels
  EXPECT_EQ(steps(16, 128), 1.0);
}

TEST_F(CostModelTest, ShortSumsTakeLonger) {
  KernelWork work = workOf(kScores, {128, 2048, 64});
  KernelWork shorter =
      workOf(replaced(kScores, "64", "16"), {128, 4.0 * 2048, 16});
  EXPECT_EQ(shorter.nestSteps, work.nestSteps);
  EXPECT_GT(msOf(shorter, 1e6), 1.2 * msOf(work, 1e6));
}

TEST_F(CostModelTest, RowsOfARegisterTileShareAConversion) {
  std::string half = replaced(kScores, "64xf32>", "64xf16>");
  half = replaced(half, "%d] : f32", "%d] : f16");
  half = replaced(half, "%2 = arith.mulf %0, %1 : f32",
                  "%w0 = arith.extf %0 : f16 to f32\n"
                  "%w1 = arith.extf %1 : f16 to f32\n"
                  "%2 = arith.mulf %w0, %w1 : f32");
  KernelWork many = workOf(half, {128, 2048, 64});
  EXPECT_EQ(many.nestOthers, 128.0 * 2048 * 64 / 8);
  KernelWork few = workOf(half, {8, 2048, 64});
  EXPECT_EQ(few.nestOthers, 8.0 * 2048 * 64 / 4);
}

TEST_F(CostModelTest, NestsRunAtTheRateOfRegisterTiles) {
  KernelWork work = workOf(kScores, {512, 2048, 64});
  double ms = msOf(work, 1e6);
  rates.tileFlops *= 0.5;
  EXPECT_GT(msOf(work, 1e6), 1.8 * ms);
}

TEST_F(CostModelTest, PairsRunAtTheRateOfTheirInstruction) {
  KernelWork work;
  work.pairSteps = 1e9;
  double unknown = msOf(work, 1e6);
  rates.bf16Flops = 2.0 * rates.flops;
  EXPECT_NEAR(msOf(work, 1e6), unknown, 1e-6 * unknown);
  rates.bf16Flops = rates.flops;
  EXPECT_NEAR(msOf(work, 1e6), 2.0 * unknown, 0.01 * unknown);
}

TEST_F(CostModelTest, AProductTurnsItsRightSide) {
  ProductWork work;
  work.rows = 5.0;
  work.columns = work.depth = 1024.0;
  double ms = predict(work, target, rates, 1, 1e6).ms;
  work.turned = 1024.0 * 1024.0;
  EXPECT_GT(predict(work, target, rates, 1, 1e6).ms, ms);
}

TEST_F(CostModelTest, AProductOfShortSumsTakesLonger) {
  ProductWork deep, shallow;
  deep.batch = shallow.batch = 8.0;
  deep.rows = shallow.rows = 512.0;
  deep.columns = 256.0;
  deep.depth = 1024.0;
  shallow.columns = 8192.0;
  shallow.depth = 32.0;
  EXPECT_GT(predict(shallow, target, rates, 1, 1e6).ms,
            1.05 * predict(deep, target, rates, 1, 1e6).ms);
}

TEST_F(CostModelTest, AProductReadsWhatItWrites) {
  ProductWork work;
  work.bytesWritten = 1e8;
  double ms = predict(work, target, rates, 1, 1e9).ms;
  work.bytesRead = 1e8;
  EXPECT_LT(predict(work, target, rates, 1, 1e9).ms, 2.0 * ms);
  EXPECT_GT(ms, 1.3 * 1e8 / rates.write);
}

TEST_F(CostModelTest, NarrowOperandsAreMadeFloatFirst) {
  ProductWork work;
  work.batch = 4.0;
  work.rows = 16.0;
  work.columns = 64.0;
  work.depth = 1024.0;
  double ms = predict(work, target, rates, 1, 1e6).ms;
  work.fromOthers = work.batch * work.depth * work.columns;
  double other = predict(work, target, rates, 1, 1e6).ms;
  std::swap(work.fromOthers, work.fromF16);
  EXPECT_GT(other, 2.0 * ms); // Zen 4, f16: 0.435 ms, f32 0.081
  EXPECT_GT(predict(work, target, rates, 1, 1e6).ms, other);
}

TEST_F(CostModelTest, MoreOfAnythingTakesLonger) {
  KernelWork work = workOf(kSoftmax, {4096, 1024});
  work.bytesRead = work.bytesWritten = 4096.0 * 1024 * 4;
  double ms = msOf(work, 1e9);
  for (double KernelWork::*count :
       {&KernelWork::visits, &KernelWork::merges, &KernelWork::items,
        &KernelWork::nestSteps, &KernelWork::gathered, &KernelWork::entered,
        &KernelWork::tails, &KernelWork::extremes, &KernelWork::lists,
        &KernelWork::moved, &KernelWork::sumsAcross, &KernelWork::turned,
        &KernelWork::searched, &KernelWork::placed, &KernelWork::nestSums,
        &KernelWork::nestOthers, &KernelWork::pairSteps, &KernelWork::byteSteps,
        &KernelWork::tileSums}) {
    KernelWork more = work;
    more.*count += 1e6;
    EXPECT_GT(msOf(more, 1e9), ms);
  }
}

TEST_F(CostModelTest, CachesServeWhatFits) {
  KernelWork work = workOf(kProduct, {1, 1, 1});
  work.bytesRead = 1e8;
  double last = 0.0;
  for (double workingSet : {1e4, 3e5, 3e6, 1e9}) {
    double ms = msOf(work, workingSet);
    EXPECT_GT(ms, last) << workingSet;
    last = ms;
  }
}

/// Its size does not say how much of the third cache is there.
TEST_F(CostModelTest, TheThirdCacheServesWhatItWasSeenToServe) {
  KernelWork work = workOf(kProduct, {1, 1, 1});
  work.bytesRead = 1e8;
  auto size = static_cast<double>(rates.cacheBytes[2]);
  auto read = [&](double ofCache) {
    return predict(work, target, rates, 1, ofCache * size).memoryMs;
  };
  rates.readAround.fill(rates.read[3]);
  double memory = read(8.0), cache = read(0.25);
  constexpr double kFar = 1.1; // by what is probed
  EXPECT_NEAR(cache, kFar * 1e8 / rates.read[2], 0.01 * cache);
  EXPECT_NEAR(memory, kFar * 1e8 / rates.read[3], 0.01 * memory);
  EXPECT_DOUBLE_EQ(read(0.5), memory);
  rates.readAround = {rates.read[2], 2.0 * rates.read[3], rates.read[3]};
  EXPECT_DOUBLE_EQ(read(0.5), cache);
  EXPECT_NEAR(read(1.0), kFar * 1e8 / (2.0 * rates.read[3]), 0.01 * memory);
  EXPECT_NEAR(read(1.5), 0.5 * (read(1.0) + memory), 0.01 * memory);
  EXPECT_DOUBLE_EQ(read(2.0), memory);
}

/// What others have of it at the moment: found by reading, for all sizes.
TEST_F(CostModelTest, AMomentTellsWhatTheThirdCacheServes) {
  KernelWork work = workOf(kProduct, {1, 1, 1});
  work.bytesRead = 1e8;
  auto size = static_cast<double>(rates.cacheBytes[2]);
  rates.readAround = {rates.read[2], rates.read[2], rates.read[3]};
  MachineMoment moment;
  auto read = [&](double ofCache, int64_t threads) {
    return predict(work, target, rates.at(moment), threads, ofCache * size)
        .memoryMs;
  };
  double cache = read(0.5, 1), memory = read(8.0, 1);
  moment.readBytes = 0.5 * size;
  moment.readPerMs = rates.read[3]; // nothing of it
  EXPECT_DOUBLE_EQ(read(0.5, 1), memory);
  EXPECT_DOUBLE_EQ(read(0.25, 1), memory);
  EXPECT_DOUBLE_EQ(read(8.0, 1), memory);
  moment.readPerMs = 2.0 / (1.0 / rates.read[2] + 1.0 / rates.read[3]);
  EXPECT_NEAR(read(0.5, 1), 0.5 * (cache + memory), 0.01 * cache);
  EXPECT_DOUBLE_EQ(read(8.0, 1), memory);
  moment.readPerMs = rates.read[2]; // all of it, as is known
  EXPECT_DOUBLE_EQ(read(0.5, 1), cache);
  // More than is known.
  rates.readAround.fill(rates.read[3]);
  EXPECT_DOUBLE_EQ(read(0.5, 1), cache);
  // By as many threads as read.
  moment.readPerMs = 2.0 * rates.read[2];
  moment.threads = 2;
  work.items = 2.0;
  EXPECT_NEAR(read(0.5, 2), 0.5 * cache, 0.01 * cache);
}

/// What more rows than a tile has share is laid out for matrix tiles; fewer
/// read it as it lies.
TEST_F(CostModelTest, PairsOfManyRowsAreLaidOutForTiles) {
  constexpr llvm::StringLiteral kPooled = R"(
  %x, %v, %y = "test.arrays"()
    : () -> (memref<?x?xbf16>, memref<?x?xbf16>, memref<?x?xf32>)
  refold.cascade rows(%m = ?) stream(%n = ?) carried(%e = ?)
    ins(%a = %x : memref<?x?xbf16>, %w = %v : memref<?x?xbf16>)
    outs(%b = %y : memref<?x?xf32>)
    sizes(%m = %b[0], %n = %a[1], %e = %b[1]) {
    %0 = refold.read %a[%m, %n] : bf16
    %1 = refold.read %w[%n, %e] : bf16
    %2 = arith.extf %0 : bf16 to f32
    %3 = arith.extf %1 : bf16 to f32
    %4 = arith.mulf %2, %3 : f32
    %5 = refold.state add(%4 : f32)
    refold.write %5, %b[%m, %e] : f32
  })";
  target.addsPairs = target.multipliesTiles = true;
  KernelWork many = workOf(kPooled, {40, 2048, 64});
  ASSERT_GT(many.pairSteps, 0.0);
  EXPECT_NEAR(many.turned, 0.7 * 2048 * 64, 1.0);
  EXPECT_EQ(workOf(kPooled, {16, 2048, 64}).turned, 0.0);
}

/// One port more or less is not told by what fmas take.
TEST_F(CostModelTest, SharedPortsMakeRowsLongerAndNothingElse) {
  KernelWork rows = workOf(kSoftmax, {64, 1024});
  KernelWork product = workOf(kProduct, {64, 64, 64});
  double before = msOf(rows, 1.0), productBefore = msOf(product, 1.0);
  target.sharesPorts = true;
  EXPECT_GT(msOf(rows, 1.0), 1.05 * before);
  EXPECT_LT(msOf(product, 1.0), 1.05 * productBefore);
}

/// Results past the caches come beside what is read from one.
TEST_F(CostModelTest, ResultsPastTheCachesGoToMemory) {
  KernelWork work = workOf(kProduct, {1, 1, 1});
  work.bytesWritten = 1e8;
  auto memoryMs = [&](double ofCache) {
    double size = ofCache * double(rates.cacheBytes[2]);
    return predict(work, target, rates, 1, size).memoryMs;
  };
  double cache = memoryMs(0.1), memory = memoryMs(8.0);
  ASSERT_LT(cache, 0.9 * memory);
  work.bytesPast = 1e8;
  EXPECT_NEAR(memoryMs(0.1), memory, 0.01 * memory);
  EXPECT_DOUBLE_EQ(memoryMs(8.0), memory);
  double written = memoryMs(0.1);
  work.bytesRead = 1e8;
  double both = memoryMs(0.1);
  work.bytesWritten = work.bytesPast = 0.0;
  EXPECT_LT(both, 0.95 * (memoryMs(0.1) + written));
}

/// e^x about a pivot that lags behind is computed as the row comes.
TEST_F(CostModelTest, WhatLagsBehindRunsBesideMemory) {
  KernelWork work;
  work.bytesRead = 1e9;
  double ms = msOf(work, 1e9);
  work.stream.lagging = 0.9 * ms * rates.exponentials;
  EXPECT_DOUBLE_EQ(msOf(work, 1e9), ms);
  std::swap(work.stream.lagging, work.stream.exponentials);
  EXPECT_GT(msOf(work, 1e9), 1.15 * ms);
}

TEST_F(CostModelTest, ARegionOfOnePartWakesNobody) {
  KernelWork work = workOf(kProduct, {64, 64, 64});
  work.items = 1.0;
  EXPECT_DOUBLE_EQ(msOf(work, 1e5, 2), msOf(work, 1e5, 1));
}

/// One tile of rows is shared by columns.
TEST_F(CostModelTest, AProductThatMakesPanelsGivesEveryCoreColumns) {
  target.cores = 2;
  EXPECT_EQ(workOf(kAlone, {16, 128, 64}).items, 2);
  EXPECT_EQ(workOf(kAlone, {16, 32, 64}).items, 1);
  // However the indices are ordered.
  std::string turned = replaced(kAlone, "%m = ?, %n = ?", "%n = ?, %m = ?");
  EXPECT_EQ(workOf(turned, {128, 16, 64}).items, 2);
}

TEST_F(CostModelTest, ThreadsShareItemsAndMemory) {
  KernelWork work = workOf(kProduct, {4096, 256, 256});
  EXPECT_NEAR(msOf(work, 1e6, 2) / msOf(work, 1e6, 1), 0.5, 0.05);
  work.items = 1.0; // nothing to share
  EXPECT_GE(msOf(work, 1e6, 2), msOf(work, 1e6, 1));
  KernelWork copy;
  copy.items = 1000.0;
  copy.bytesRead = 1e9;
  double ratio = msOf(copy, 1e9, 2) / msOf(copy, 1e9, 1);
  EXPECT_LT(ratio, 0.8);
  EXPECT_GT(ratio, 0.6);
}

/// Of nine rows in items of eight the last item has one: the other thread waits
/// for nearly all of them.
TEST_F(CostModelTest, ItemsThatAreNotFullKeepNoThreadBusy) {
  target.cores = 2;
  auto shareOfOne = [&](const KernelWork &work) {
    return predict(work, target, rates, 2, 1e6).arithmeticMs /
           predict(work, target, rates, 1, 1e6).arithmeticMs;
  };
  KernelWork full = workOf(kScores, {16, 2048, 64});
  EXPECT_EQ(full.items, 2);
  EXPECT_EQ(full.fullShare, 1.0);
  EXPECT_DOUBLE_EQ(shareOfOne(full), 1.0 / 2);
  KernelWork work = workOf(kScores, {9, 2048, 64});
  EXPECT_EQ(work.items, 2);
  EXPECT_EQ(work.fullShare, 9.0 / 16);
  EXPECT_DOUBLE_EQ(shareOfOne(work), 8.0 / 9);
  // One item has all rows there are.
  EXPECT_EQ(workOf(kScores, {5, 2048, 64}).fullShare, 1.0);
}

TEST_F(CostModelTest, NarrowRegistersTakeLonger) {
  KernelWork work = workOf(kSoftmax, {512, 512});
  double wide = msOf(work, 1e6);
  target = TargetFacts::baseline();
  rates = MachineRates::defaults(target);
  EXPECT_GT(msOf(workOf(kSoftmax, {512, 512}), 1e6), 2.0 * wide);
}

TEST_F(CostModelTest, ExtentsOfZeroAndHugeOnesAreNumbers) {
  for (double extent : {0.0, 1e12}) {
    double ms = msOf(workOf(kSoftmax, {extent, extent}), 1e9);
    EXPECT_TRUE(std::isfinite(ms));
    EXPECT_GT(ms, 0.0);
  }
}

} // namespace
