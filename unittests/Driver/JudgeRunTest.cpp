// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What `bench` holds an answer to: faults in fused and unfused results alike.
#include "../../lib/Driver/JudgeRun.h"
#include "../Support/Outcome.h"
#include "refold/Driver/Inputs.h"
#include "refold/Support/Error.h"
#include "llvm/Support/raw_ostream.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace refold;

namespace {
using Fault = llvm::function_ref<void(Tensor &)>;

class JudgeRunTest : public testing::Test {
protected:
  /// What is said of a run where this fault is in what both programs give;
  /// nothing where it is good.
  std::string judge(llvm::StringRef lines, llvm::StringRef family,
                    Fault fault) {
    std::string path = folder.path("judged.fold"), message;
    std::error_code error;
    llvm::raw_fd_ostream(path, error) << "judged(x[m,n]) -> y\n" << lines;
    EXPECT_FALSE(error);
    auto compileAs = [&](FusePolicy policy) {
      CompileOptions options;
      options.policy = policy;
      return llvm::cantFail(compileFile(*context, path, {}, options));
    };
    auto reference = llvm::cantFail(load(*context, path, {}));
    CompiledProgram fused = compileAs(FusePolicy::Always),
                    unfused = compileAs(FusePolicy::Never);
    auto inputs = llvm::cantFail(
        makeInputs(fused.inputs, {{"m", 13}, {"n", 100}},
                   llvm::cantFail(parseInputRecipe(family)), {}, /*seed=*/0));
    auto run = [&](CompiledProgram &program, llvm::ArrayRef<Tensor> given) {
      auto found = llvm::cantFail(program.executable.run(given, 1));
      fault(found.front());
      return found;
    };
    auto found = run(fused, inputs);
    auto runUnfused = [&](llvm::ArrayRef<Tensor> given)
        -> llvm::Expected<std::vector<Tensor>> { return run(unfused, given); };
    auto function = *reference.module->getOps<mlir::func::FuncOp>().begin();
    auto judged =
        judgeRun({function, fused, inputs, found, runUnfused, std::nullopt});
    if (judged)
      return "";
    takeError(judged.takeError(), message);
    return message;
  }

  TempDir folder;
  std::unique_ptr<mlir::MLIRContext> context = makeContext();
};

constexpr llvm::StringLiteral kSoftmax =
    "  p = exp(x - max(n: x))\n  y = p / sum(n: p)\n";
/// Digits cancel: of rows about 1000 the variance errs by 1e-3 as written.
constexpr llvm::StringLiteral kMoments =
    "  y = sum(n: x^2) / len(n) - (sum(n: x) / len(n))^2\n";
} // namespace

TEST_F(JudgeRunTest, RightResultsHold) {
  for (llvm::StringRef lines : {kSoftmax, kMoments})
    for (llvm::StringRef family :
         {"normal", "ninf", "nan", "offset", "growing", "mixed"})
      EXPECT_EQ(judge(lines, family, [](Tensor &) {}), "")
          << lines.str() << family.str();
}

TEST_F(JudgeRunTest, BothAreWrong) {
  auto shift = [](Tensor &y) {
    for (int64_t i = 0, e = y.shape().back(); i < e; ++i)
      y.set(i, 2 * y.get(i));
  };
  std::string message = judge(kSoftmax, "normal", shift);
  EXPECT_EQ(message.rfind("output 'y': found an error of 1.00e+00 of the "
                          "unfused program against double (fused 1.00e+00), "
                          "expected at most ",
                          0),
            0u)
      << message;
  EXPECT_EQ(judge(kSoftmax, "normal", [](Tensor &y) { y.set(0, NAN); }),
            "output 'y': found 1 elements of the unfused program of another "
            "class than double and the program rounded as written, expected "
            "none");
  EXPECT_NE(
      judge(kMoments, "offset", [](Tensor &y) { y.set(0, 1e4 * y.get(0)); }),
      "");
}
