// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CompileText.h"

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

TEST(LoadedCodeTest, OtherCallsAreRefused) {
  auto code = compileText(R"(
    func.func private @system(%x: i64) -> i64
    func.func @f(%x: i64) -> i64 {
      %y = call @system(%x) : (i64) -> i64
      return %y : i64
    })",
                          *detectTarget());
  ASSERT_TRUE(code);
  llvm::Expected<KernelFunction> function = code->find("f");
  ASSERT_FALSE(bool(function));
  EXPECT_NE(llvm::toString(function.takeError()).find("system"),
            std::string::npos);
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
