// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CompileText.h"
#include <cmath>

using namespace refold;
using namespace refold::test;

TEST(LoadedCodeTest, ScalarsAndSeveralResults) {
  auto code = compileText(R"(
    func.func @f(%a: index, %x: f32, %b: i1) -> (index, f32) {
      %one = arith.constant 1.0 : f32
      %y = arith.addf %x, %one : f32
      %z = arith.select %b, %y, %x : f32
      return %a, %z : index, f32
    })",
                          *detectTarget());
  ASSERT_TRUE(code);
  KernelFunction function = llvm::cantFail(code->find("f"));
  float x = 2.5f;
  int64_t words[3] = {7, 0, 1}, results[2] = {};
  std::memcpy(&words[1], &x, 4);
  function(words, results);
  EXPECT_EQ(results[0], 7);
  std::memcpy(&x, &results[1], 4);
  EXPECT_EQ(x, 3.5f);
}

/// The object of a module.
static std::string objectOf(llvm::StringRef text, unsigned threads = 1) {
  mlir::DialectRegistry registry;
  registerCpuDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  ObjectOptions options;
  options.threads = threads;
  auto object = llvm::cantFail(emitObject(*module, *detectTarget(), options));
  return object->getBuffer().str();
}

static llvm::Expected<std::shared_ptr<LoadedCode>>
loadBytes(llvm::StringRef bytes) {
  std::vector<std::unique_ptr<llvm::MemoryBuffer>> objects;
  objects.push_back(llvm::MemoryBuffer::getMemBufferCopy(bytes));
  return LoadedCode::load(std::move(objects));
}

TEST(LoadedCodeTest, OtherCallsAreRefused) {
  auto code = loadBytes(objectOf(R"(
    func.func private @system(%x: i64) -> i64
    func.func @f(%x: i64) -> i64 {
      %y = call @system(%x) : (i64) -> i64
      return %y : i64
    })"));
  ASSERT_FALSE(bool(code));
  EXPECT_NE(llvm::toString(code.takeError()).find("'system'"),
            std::string::npos);
}

/// Constants, calls of libm and branches: what needs relocations.
TEST(LoadedCodeTest, BrokenObjectsAreRefused) {
  std::string good = objectOf(R"(
    func.func @f(%x: f64, %n: index) -> f64 {
      %third = arith.constant 0.333 : f64
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %y = scf.for %i = %c0 to %n step %c1 iter_args(%s = %x) -> f64 {
        %a = math.atan2 %s, %third : f64
        %b = math.cbrt %a : f64
        scf.yield %b : f64
      }
      return %y : f64
    })");
  auto whole = loadBytes(good);
  ASSERT_TRUE(bool(whole)) << llvm::toString(whole.takeError());
  auto missing = (*whole)->find("g");
  ASSERT_FALSE(bool(missing));
  EXPECT_NE(llvm::toString(missing.takeError()).find("'g'"), std::string::npos);
  KernelFunction function = llvm::cantFail((*whole)->find("f"));
  double x = 2.0, y = 0.0;
  int64_t words[2] = {0, 2};
  std::memcpy(words, &x, 8);
  function(words, reinterpret_cast<int64_t *>(&y));
  for (int i = 0; i < 2; ++i)
    x = std::cbrt(std::atan2(x, 0.333));
  EXPECT_NEAR(y, x, 1e-15);
  // The cache's checksum keeps other damage away.
  auto tryToLoad = [](llvm::StringRef bytes) {
    auto code = loadBytes(bytes);
    if (code)
      return true;
    llvm::consumeError(code.takeError());
    return false;
  };
  for (size_t bytes = 0; bytes < good.size(); bytes += 7)
    EXPECT_FALSE(tryToLoad(good.substr(0, bytes))) << bytes << " bytes";
}

/// A loop whose turns take one of two long ways.
static std::string textOfLongWays(int64_t steps) {
  std::string text = R"(
    func.func @f(%n: index, %x: i64, %b: i1) -> i64 {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %three = arith.constant 3 : i64
      %y = scf.for %i = %c0 to %n step %c1 iter_args(%s = %x) -> i64 {
        %r = scf.if %b -> i64 {
)";
  for (const char *step : {"addi", "xori"}) {
    std::string last = "%s";
    for (int64_t i = 0; i < steps; ++i) {
      std::string at = std::to_string(i);
      text += "%p" + at + " = arith.muli " + last + ", %three : i64\n";
      text += "%q" + at + " = arith." + step + " %p" + at + ", %x : i64\n";
      last = "%q" + at;
    }
    text += "scf.yield " + last + " : i64\n}";
    text += step == std::string("addi") ? " else {\n" : "\n";
  }
  return text + R"(
        scf.yield %r : i64
      }
      return %y : i64
    })";
}

/// Large modules are two objects joined, whatever the number of threads.
TEST(LoadedCodeTest, HalvesOfALargeModuleAreJoined) {
  constexpr int64_t kSteps = 600;
  std::string text = textOfLongWays(kSteps), one = objectOf(text, 1);
  EXPECT_EQ(one, objectOf(text, 2));
  EXPECT_NE(one.find(".part"), std::string::npos);
  EXPECT_EQ(objectOf(textOfLongWays(20), 2).find(".part"), std::string::npos);
  auto code = loadBytes(one);
  ASSERT_TRUE(bool(code)) << llvm::toString(code.takeError());
  KernelFunction function = llvm::cantFail((*code)->find("f"));
  for (bool adds : {true, false}) {
    uint64_t x = 5, expected = x;
    for (int64_t i = 0; i < 3 * kSteps; ++i)
      expected = adds ? 3 * expected + x : (3 * expected) ^ x;
    int64_t words[3] = {3, int64_t(x), adds}, result = 0;
    function(words, &result);
    EXPECT_EQ(uint64_t(result), expected);
  }
}

TEST(LoadedCodeTest, SameModuleSameBytes) {
  mlir::DialectRegistry registry;
  registerCpuDialects(registry);
  std::string first;
  for (int i = 0; i < 3; ++i) {
    mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
    auto module = mlir::parseSourceString<mlir::ModuleOp>(
        "func.func @f(%x: vector<16xf32>) -> vector<16xf32> {\n"
        "  %y = math.exp %x : vector<16xf32>\n"
        "  return %y : vector<16xf32>\n}",
        &context);
    ASSERT_TRUE(module);
    auto object = llvm::cantFail(emitObject(*module, *detectTarget()));
    if (i == 0)
      first = object->getBuffer().str();
    EXPECT_EQ(object->getBuffer(), first);
  }
}

/// A sum is one FMA where it says so; a difference is 0 where its sides are
/// rounded alike, so that e^(x·c - m) is 1 at the largest x·c, and so is that
/// of x·c + b, which may stand in another block than the largest.
TEST(LoadedCodeTest, WhatIsWrittenIsNotContracted) {
  float x = 1.0f / 3, c = 0.3f, sides[3] = {x, c, 2 * c};
  for (const CpuTarget &target : runnableTargets()) {
    auto code = compileText(R"(
      func.func @f(%x: f32, %c: f32, %twice: f32) -> (f32, f32, f32) {
        %two = arith.constant 2.0 : f32
        %p = arith.mulf %x, %c : f32
        %half = arith.divf %x, %two : f32
        %same = arith.mulf %half, %twice : f32
        %nothing = arith.subf %p, %same : f32
        %far = arith.mulf %x, %twice : f32
        %other = arith.mulf %c, %twice : f32
        %sum = arith.addf %other, %twice fastmath<contract> : f32
        %written = arith.addf %far, %twice : f32
        return %nothing, %sum, %written : f32, f32, f32
      })",
                            target);
    ASSERT_TRUE(code);
    int64_t words[3] = {}, results[3] = {};
    for (int i = 0; i < 3; ++i)
      std::memcpy(&words[i], &sides[i], 4);
    llvm::cantFail(code->find("f"))(words, results);
    float nothing, sum, written;
    std::memcpy(&nothing, &results[0], 4);
    std::memcpy(&sum, &results[1], 4);
    std::memcpy(&written, &results[2], 4);
    EXPECT_EQ(nothing, 0);
    volatile float product = x * (2 * c); // rounded
    EXPECT_EQ(written, product + 2 * c);
    EXPECT_NE(written, std::fma(x, 2 * c, 2 * c));
    if (target.instructionSet != InstructionSet::Baseline)
      EXPECT_EQ(sum, std::fma(c, 2 * c, 2 * c));
  }
}
