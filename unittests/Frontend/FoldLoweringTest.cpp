// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "refold/Dialect/Refold/IR/Refold.h"
#include "refold/Frontend/Fold.h"
#include "refold/Support/Diagnostics.h"
#include "refold/Support/Error.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "gtest/gtest.h"
#include <set>

using namespace mlir;
using namespace refold;

namespace {

/// Imports and keeps what was said about it, as the tools print it.
struct Import {
  explicit Import(StringRef source, const FoldOptions &options = {}) {
    DiagnosticCollector collector(context);
    auto result = importFold(source, "t.fold", context, options);
    if (succeeded(result))
      module = std::move(*result);
    else
      exitCode = takeError(collector.takeErrors("nothing was said"), errors);
  }

  func::FuncOp function() { return *module->getOps<func::FuncOp>().begin(); }
  std::string text() {
    std::string buffer;
    llvm::raw_string_ostream stream(buffer);
    module->print(stream);
    return buffer;
  }
  template <typename OpType> SmallVector<OpType> all() {
    SmallVector<OpType> ops;
    module->walk([&](OpType op) { ops.push_back(op); });
    return ops;
  }
  template <typename OpType> size_t count() { return all<OpType>().size(); }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  std::string errors;
  ExitCode exitCode = ExitCode::Ok;
};

std::vector<std::string> foldFiles(StringRef folder) {
  std::vector<std::string> files;
  std::error_code error;
  std::string path = std::string(REFOLD_SOURCE_DIR) + "/" + folder.str();
  for (llvm::sys::fs::directory_iterator it(path, error), end;
       it != end && !error; it.increment(error))
    if (llvm::sys::path::extension(it->path()) == ".fold")
      files.push_back(it->path());
  std::sort(files.begin(), files.end());
  return files;
}

std::string textOf(const std::string &path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  return buffer ? (*buffer)->getBuffer().str() : "";
}

TEST(FoldLoweringTest, EveryExampleLowersInEveryStorage) {
  std::vector<std::string> files = foldFiles("examples");
  EXPECT_GE(files.size(), 12u);
  for (const std::string &file : files) {
    std::string source = textOf(file);
    EXPECT_EQ(source.substr(0, 2), "# ") << file << " says what it computes";
    for (std::optional<DType> storage :
         {std::optional<DType>(), std::optional(DType::F64),
          std::optional(DType::F16), std::optional(DType::BF16)}) {
      FoldOptions options;
      options.storage = storage;
      Import import(source, options);
      EXPECT_TRUE(import.module) << file << ": " << import.errors;
    }
  }
}

/// The exit code and message that the first line of a broken file announces.
std::string expectedError(StringRef source) {
  StringRef line = source.split('\n').first;
  return line.consume_front("# expect ") ? line.str() : "no '# expect ' line";
}

std::string foundError(StringRef source) {
  Import import(source);
  EXPECT_FALSE(import.module);
  StringRef text = import.errors;
  EXPECT_TRUE(text.consume_front("t.fold:")) << import.errors;
  return std::to_string(int(import.exitCode)) + ": " + text.str();
}

TEST(FoldLoweringTest, EveryBrokenFileGivesItsMessage) {
  std::vector<std::string> files = foldFiles("test/Frontend/Fold/broken");
  EXPECT_GE(files.size(), 60u);
  for (const std::string &file : files) {
    std::string source = textOf(file);
    EXPECT_EQ(foundError(source), expectedError(source)) << file;
  }
}

TEST(FoldLoweringTest, ComparisonOfMessagesNoticesAnotherPlaceAndCode) {
  std::string found = foundError("#\nf(x[n]) -> y\n  y = z\n");
  std::string message =
      "error: found unknown name 'z', expected a value or an axis\n";
  EXPECT_EQ(found, expectedError("# expect 1: 3:7: " + message));
  EXPECT_NE(found, expectedError("# expect 1: 3:8: " + message));
  EXPECT_NE(found, expectedError("# expect 5: 3:7: " + message));
}

TEST(FoldLoweringTest, SignatureKeepsNamesAndTypes) {
  Import import("f(x[m,n=4]: f16, k[n]: u8, s: f64) -> y: bf16, p: bool\n"
                "y = x * k * s\np = any(n: k > 3)\n");
  ASSERT_TRUE(import.module) << import.errors;
  func::FuncOp function = import.function();
  EXPECT_EQ(function.getName(), "f");
  auto *context = &import.context;
  auto nameOf = [](Attribute attribute) {
    return cast<StringAttr>(attribute).getValue();
  };
  EXPECT_EQ(nameOf(function.getArgAttr(0, "refold.name")), "x");
  auto dims = cast<ArrayAttr>(function.getArgAttr(0, "refold.dims"));
  ASSERT_EQ(dims.size(), 2u);
  EXPECT_EQ(nameOf(dims[1]), "n");
  EXPECT_EQ(function.getArgumentTypes()[0],
            RankedTensorType::get({ShapedType::kDynamic, 4},
                                  Float16Type::get(context)));
  EXPECT_TRUE(function.getArgAttr(1, "refold.unsigned"));
  EXPECT_FALSE(function.getArgAttr(0, "refold.unsigned"));
  EXPECT_EQ(function.getArgumentTypes()[2],
            RankedTensorType::get({}, Float64Type::get(context)));
  EXPECT_EQ(nameOf(function.getResultAttr(1, "refold.name")), "p");
  EXPECT_EQ(function.getResultTypes()[1],
            RankedTensorType::get({}, IntegerType::get(context, 1)));
}

TEST(FoldLoweringTest, OneGenericAReductionAndOneForTheRest) {
  Import import("f(x[m,n]) -> y\ny = x - log(sum(n: exp(x - max(n: x))))\n");
  ASSERT_TRUE(import.module) << import.errors;
  SmallVector<linalg::GenericOp> generics = import.all<linalg::GenericOp>();
  ASSERT_EQ(generics.size(), 3u);
  EXPECT_EQ(generics[0].getNumReductionLoops(), 1u);
  EXPECT_EQ(generics[1].getNumReductionLoops(), 1u);
  EXPECT_EQ(generics[2].getNumReductionLoops(), 0u);
  // x is one operand although it is read twice.
  Import twice("f(x[n]) -> y\ny = x*x + x\n");
  EXPECT_EQ(twice.all<linalg::GenericOp>()[0].getNumDpsInputs(), 1);
}

TEST(FoldLoweringTest, LocationsNameTheDefinition) {
  Import import(
      "# title\nf(x[m,n]) -> y, z\n  y = x / sum(n: x)\n  z = max(m: y)\n");
  ASSERT_TRUE(import.module) << import.errors;
  std::set<std::string> places;
  import.module->walk([&](linalg::GenericOp op) {
    auto name = dyn_cast<NameLoc>(op.getLoc());
    ASSERT_TRUE(name);
    auto place = cast<FileLineColLoc>(name.getChildLoc());
    places.insert(name.getName().str() + "@" + place.getFilename().str() + ":" +
                  std::to_string(place.getLine()) + ":" +
                  std::to_string(place.getColumn()));
  });
  EXPECT_EQ(places, (std::set<std::string>{"y@t.fold:3:11", "y@t.fold:3:3",
                                           "z@t.fold:4:7"}));
}

/// The op that combines the accumulator of the only reduction, and what fills
/// it.
std::pair<std::string, std::string> reductionOf(const std::string &type,
                                                const std::string &reducer,
                                                const std::string &output) {
  Import import("f(x[n]: " + type + ") -> y: " + output + "\ny = " + reducer +
                "(n: x)\n");
  if (!import.module)
    return {import.errors, ""};
  linalg::GenericOp generic = import.all<linalg::GenericOp>().front();
  Value yielded = generic.getBody()->getTerminator()->getOperand(0);
  std::string combiner =
      yielded.getDefiningOp()->getName().getStringRef().str();
  EXPECT_EQ(yielded.getDefiningOp()->getOperand(0),
            generic.getBody()->getArguments().back());
  std::string identity;
  llvm::raw_string_ostream stream(identity);
  cast<linalg::FillOp>(generic.getDpsInits()[0].getDefiningOp())
      .value()
      .getDefiningOp<arith::ConstantOp>()
      .getValue()
      .print(stream, /*elideType=*/true);
  return {combiner, identity};
}

TEST(FoldLoweringTest, ReducersHaveTheirCombinerAndIdentity) {
  using Pair = std::pair<std::string, std::string>;
  EXPECT_EQ(reductionOf("f32", "sum", "f32"),
            (Pair{"arith.addf", "0.000000e+00"}));
  EXPECT_EQ(reductionOf("f16", "prod", "f32"),
            (Pair{"arith.mulf", "1.000000e+00"}));
  EXPECT_EQ(reductionOf("f32", "max", "f32"),
            (Pair{"arith.maximumf", "0xFF800000"}));
  EXPECT_EQ(reductionOf("f32", "min", "f32"),
            (Pair{"arith.minimumf", "0x7F800000"}));
  EXPECT_EQ(reductionOf("i8", "sum", "i32"), (Pair{"arith.addi", "0"}));
  EXPECT_EQ(reductionOf("i32", "max", "i32"),
            (Pair{"arith.maxsi", "-2147483648"}));
  EXPECT_EQ(reductionOf("i64", "min", "i64"),
            (Pair{"arith.minsi", "9223372036854775807"}));
  EXPECT_EQ(reductionOf("i64", "max", "i64"),
            (Pair{"arith.maxsi", "-9223372036854775808"}));
  EXPECT_EQ(reductionOf("bool", "any", "bool"), (Pair{"arith.ori", "false"}));
  EXPECT_EQ(reductionOf("bool", "all", "bool"), (Pair{"arith.andi", "true"}));
}

TEST(FoldLoweringTest, ReadsByAxesAreMapsAndOthersExtract) {
  Import maps("f(x[n,d], w[j,d]) -> y\ny[n,j] = sum(d: x * w + x[j,d])\n");
  ASSERT_TRUE(maps.module) << maps.errors;
  EXPECT_EQ(maps.count<tensor::ExtractOp>(), 0u);
  Import heads("f(q[b,h,d], k[b,g,d]) -> y\ny = sum(d: q * k[b, h//4, d])\n");
  ASSERT_TRUE(heads.module) << heads.errors;
  EXPECT_EQ(heads.count<tensor::ExtractOp>(), 1u);
  EXPECT_EQ(heads.count<arith::DivUIOp>(), 1u);
  EXPECT_EQ(heads.count<cf::AssertOp>(), 1u);
  Import fixed("f(q[h=8], k[g=2]) -> y\ny = q * k[h//4]\n");
  EXPECT_EQ(fixed.count<cf::AssertOp>(), 0u);
  Import diagonal("f(x[n,m]) -> y\ny = x[n,n]\n");
  ASSERT_TRUE(diagonal.module) << diagonal.errors;
  EXPECT_EQ(diagonal.count<tensor::ExtractOp>(), 1u);
}

TEST(FoldLoweringTest, DataSubscriptsAreCheckedFirst) {
  Import import("f(x[m,n], label[m]: i64) -> y\n  y = x[m, label]\n");
  ASSERT_TRUE(import.module) << import.errors;
  EXPECT_EQ(cast<StringAttr>(import.function().getArgAttr(1, "refold.indexes"))
                .getValue(),
            "n");
  SmallVector<cf::AssertOp> asserts = import.all<cf::AssertOp>();
  ASSERT_EQ(asserts.size(), 1u);
  EXPECT_EQ(asserts[0].getMsg(),
            "t.fold:2:12: found subscript 2 of 'x' out of range, expected at "
            "least 0 and less than len(n)");
  linalg::GenericOp reader = import.all<linalg::GenericOp>().back();
  EXPECT_TRUE(asserts[0]->isBeforeInBlock(reader));
  EXPECT_EQ(import.all<linalg::GenericOp>().front().getNumReductionLoops(), 1u);
}

TEST(FoldLoweringTest, FrontOfALongerDimensionIsASlice) {
  Import import("f(c[n,d], w[e]) -> y\ny = sum(n: w * c[n,e])\n");
  ASSERT_TRUE(import.module) << import.errors;
  EXPECT_EQ(import.count<tensor::ExtractSliceOp>(), 1u);
  EXPECT_EQ(import.count<cf::AssertOp>(), 1u);
  FoldOptions options;
  options.dims = {{"d", 576}, {"e", 512}};
  Import fixed("f(c[n,d], w[e]) -> y\ny = sum(n: w * c[n,e])\n", options);
  EXPECT_EQ(fixed.count<tensor::ExtractSliceOp>(), 1u);
  EXPECT_EQ(fixed.count<cf::AssertOp>(), 0u);
}

TEST(FoldLoweringTest, TopKAndArgmax) {
  Import import("f(x[m,n]) -> v, i: i32, a: i32, b: i32\n"
                "v[r,m], i[m,r] = topk(n: x, 3)\na = argmax(n: x)\n"
                "b = argmin(m, : x)\n");
  EXPECT_FALSE(import.module); // a list of axes ends before ':'
  Import good("f(x[m,n]: f16) -> v, i: i32, a: i32, b: i32, c: i32\n"
              "v[r,m], i[m,r] = topk(n: x, 3)\na = argmax(n: x)\n"
              "b = argmin(m: x)\nc = argmax(m: sum(n: x))\n");
  ASSERT_TRUE(good.module) << good.errors;
  SmallVector<TopKOp> ops = good.all<TopKOp>();
  ASSERT_EQ(ops.size(), 4u);
  EXPECT_TRUE(ops[0].getLargest());
  EXPECT_EQ(ops[0].getK(), 3u);
  EXPECT_FALSE(ops[2].getLargest());
  EXPECT_EQ(good.function().getResultTypes()[0],
            RankedTensorType::get({3, ShapedType::kDynamic},
                                  Float32Type::get(&good.context)));
  EXPECT_EQ(good.function().getResultTypes()[4],
            RankedTensorType::get({}, IntegerType::get(&good.context, 32)));
}

TEST(FoldLoweringTest, StorageIsWidenedOnReadingAndRoundedOnlyWhereWritten) {
  Import import("f(x[n]: bf16, w[n]: f16) -> y: bf16\n"
                "p = exp(x * w)\nq = f16(p)\ny = sum(n: p * q)\n");
  ASSERT_TRUE(import.module) << import.errors;
  EXPECT_EQ(import.count<arith::TruncFOp>(), 2u); // the cast and the output
  EXPECT_EQ(import.count<arith::ExtFOp>(), 3u);
  for (auto op : import.all<arith::MulFOp>())
    EXPECT_TRUE(op.getType().isF32());
}

TEST(FoldLoweringTest, WhatReadsNoDataIsComputedWhereItIsUsed) {
  Import import("f(x[n], d[n]: f64) -> y, z: f64\ny = x * rsqrt(len(n)) + "
                "1/3\nz = d * rsqrt(len(n))\n");
  ASSERT_TRUE(import.module) << import.errors;
  EXPECT_EQ(import.count<arith::TruncFOp>(), 0u);
  EXPECT_EQ(import.count<arith::ExtFOp>(), 0u);
}

TEST(FoldLoweringTest, SmallPowersAreProducts) {
  Import import("f(x[n]) -> y\ny = x^3 + x^-1 + x^0.5\n");
  ASSERT_TRUE(import.module) << import.errors;
  EXPECT_EQ(import.count<arith::MulFOp>(), 2u);
  EXPECT_EQ(import.count<arith::DivFOp>(), 1u);
  EXPECT_NE(import.text().find("math.powf"), std::string::npos);
}

TEST(FoldLoweringTest, CountsAndConstantsNeedNoData) {
  for (const char *body :
       {"y = 3", "y = len(n)", "y = sum(n: 1)", "y = sum(n: n^2)", "y[n] = 2",
        "y = max(n: where(n < 3, 1, 0))", "y = prod(n, m: 2)", "y = mean(n: n)",
        "y = n + m", "y = x[0, 0]", "y = x[n, n]", "y = sum(n: x[n, n])",
        "y = x[argmax(n: x[n, 0]), m]"}) {
    Import import("f(x[n,m]) -> y\n" + std::string(body) + "\n");
    EXPECT_TRUE(import.module) << body << ": " << import.errors;
  }
}

// What a machine would leave undefined, and the reference does not show.
TEST(FoldLoweringTest, NothingIsLeftToTheMachine) {
  Import toByte("f(x[n]) -> y: i8\ny = i8(x)\n");
  ASSERT_TRUE(toByte.module) << toByte.errors;
  auto byte = toByte.all<arith::FPToSIOp>().front();
  EXPECT_TRUE(byte.getIn().getDefiningOp<arith::MinimumFOp>());
  ASSERT_EQ(toByte.count<arith::CmpFOp>(), 1u);
  arith::CmpFOp isNan = toByte.all<arith::CmpFOp>().front();
  EXPECT_EQ(isNan.getPredicate(), arith::CmpFPredicate::UNO);
  EXPECT_FALSE(isNan->use_empty());

  Import toInteger("f(x[n]) -> y: i32\ny = i32(x)\n");
  ASSERT_TRUE(toInteger.module) << toInteger.errors;
  auto converted = toInteger.all<arith::FPToSIOp>().front();
  EXPECT_TRUE(converted.getIn().getDefiningOp<arith::SelectOp>());
  std::set<arith::CmpFPredicate> tested;
  for (auto compare : toInteger.all<arith::CmpFOp>())
    tested.insert(compare.getPredicate());
  EXPECT_EQ(tested, (std::set<arith::CmpFPredicate>{
                        arith::CmpFPredicate::OLE, arith::CmpFPredicate::OGE,
                        arith::CmpFPredicate::UNO}));

  Import toF8("f(x[n]) -> y: f8e4m3, z: f8e5m2\ny = x\nz = x\n");
  ASSERT_TRUE(toF8.module) << toF8.errors;
  for (auto rounded : toF8.all<arith::TruncFOp>())
    EXPECT_TRUE(rounded.getIn().getDefiningOp<arith::MinimumFOp>());
  EXPECT_EQ(toF8.count<arith::TruncFOp>(), 2u);

  for (const char *source : {"f(x[n]: i32) -> y: i32\ny = 7 // x\n",
                             "f(x[n]: i32) -> y: i32\ny = 7 % x\n"}) {
    Import division(source);
    ASSERT_TRUE(division.module) << division.errors;
    std::set<int64_t> excluded;
    for (auto compare : division.all<arith::CmpIOp>()) {
      auto constant = compare.getRhs().getDefiningOp<arith::ConstantIntOp>();
      if (compare.getPredicate() == arith::CmpIPredicate::eq && constant)
        excluded.insert(constant.value());
    }
    EXPECT_EQ(excluded, (std::set<int64_t>{-1, 0})) << source;
  }
}

TEST(FoldLoweringTest, EveryCastLowers) {
  const char *dtypes[] = {"f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2",
                          "i64", "i32", "i8",  "u8",   "bool"};
  for (const char *from : dtypes)
    for (const char *to : dtypes) {
      Import import("f(x[n]: " + std::string(from) + ") -> y: " + to +
                    ", z: " + to + "\ny = " + to + "(x)\nz = x\n");
      EXPECT_TRUE(import.module) << from << " to " << to << import.errors;
    }
}

TEST(FoldLoweringTest, EveryFunctionLowers) {
  const char *functions[] = {"exp(x)",
                             "exp2(x)",
                             "expm1(x)",
                             "log(x)",
                             "log2(x)",
                             "log1p(x)",
                             "sqrt(x)",
                             "rsqrt(x)",
                             "abs(x)",
                             "sign(x)",
                             "floor(x)",
                             "ceil(x)",
                             "round(x)",
                             "tanh(x)",
                             "sigmoid(x)",
                             "erf(x)",
                             "sin(x)",
                             "cos(x)",
                             "sinh(x)",
                             "cosh(x)",
                             "relu(x)",
                             "isnan(x)",
                             "isinf(x)",
                             "min(x, 1)",
                             "max(1, x)",
                             "x ^ x",
                             "pow(x, 2)",
                             "x / x",
                             "-x",
                             "clip(x, 0, 1)",
                             "x == x",
                             "not x != x",
                             "x <= n",
                             "x > 1 or x < 0",
                             "x >= 1 and x <= 2",
                             "where(x > 0, x, 2)"};
  for (const char *dtype : {"f32", "f64", "f16", "i32", "i64", "u8"})
    for (const char *function : functions) {
      Import import("f(x[n]: " + std::string(dtype) +
                    ") -> y\ny = " + function + "\n");
      EXPECT_TRUE(import.module)
          << dtype << " " << function << ": " << import.errors;
    }
  for (const char *dtype : {"i32", "i64", "i8", "u8"})
    for (const char *function : {"x // 3", "x % 3", "x // x", "x % x",
                                 "x // -2", "n // 3 + x", "x % (n + 1)"}) {
      Import import("f(x[n]: " + std::string(dtype) +
                    ") -> y: i64\ny = " + function + "\n");
      EXPECT_TRUE(import.module)
          << dtype << " " << function << ": " << import.errors;
    }
}

} // namespace
