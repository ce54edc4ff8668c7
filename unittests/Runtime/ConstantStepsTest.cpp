// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is computed of constants alone: which steps, within which bounds, and
// that an executable runs them once.
#include "refold/Runtime/ConstantSteps.h"

#include "refold/Runtime/Executable.h"
#include "gtest/gtest.h"
#include <atomic>
#include <thread>

using namespace refold;

namespace {
using Bools = std::vector<bool>;

/// A program over vectors of 8 floats: input 0, output 1, constants 2 and 3,
/// temporaries from 4 on.
struct VectorProgram : ProgramSpec {
  enum Buffer : unsigned { X, Y, A, B, T, U, V, W };
  VectorProgram() {
    numSymbols = 1;
    inputs.push_back({"x", DType::F32, {DimSpec{"n", -1, 0}}});
    outputs.push_back({"y", DType::F32, {SizeExpr(8)}});
    buffers = {{BufferKind::Input, 0, nullptr, SizeExpr::symbol(0)},
               {BufferKind::Output, 0, nullptr, 32},
               {BufferKind::Constant, 0, values, 32},
               {BufferKind::Constant, 0, values, 32}};
    for (int i = 0; i < 4; ++i)
      buffers.push_back({BufferKind::Temporary, 0, nullptr, 32});
  }
  static ViewSpec view(unsigned buffer, SizeExpr size = 8) {
    ViewSpec spec;
    spec.buffer = buffer;
    spec.sizes = {size};
    spec.strides = {SizeExpr(1)};
    return spec;
  }
  void copy(unsigned from, unsigned to, SizeExpr size = 8) {
    steps.push_back({CopyStep{view(from, size), view(to, size)}, "copy"});
  }
  void call(std::vector<unsigned> from, std::vector<unsigned> to,
            std::optional<SizeExpr> scalar = std::nullopt) {
    KernelStep step;
    for (unsigned buffer : from)
      step.operands.push_back(view(buffer));
    if (scalar)
      step.operands.push_back(ScalarSpec{*scalar});
    step.numInputs = unsigned(step.operands.size());
    for (unsigned buffer : to)
      step.operands.push_back(view(buffer));
    steps.push_back({step, "call"});
  }
  Bools once() const { return findConstantSteps(*this).isOnce; }

  static inline const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
};
using V = VectorProgram;

constexpr int64_t kMiB = int64_t(1) << 20;
} // namespace

TEST(ConstantStepsTest, FindsWhatFollowsFromConstants) {
  VectorProgram program;
  program.copy(V::A, V::T);
  program.call({V::T, V::B}, {V::U});
  program.call({V::X, V::U}, {V::V}); // the first of every run
  program.copy(V::V, V::Y);
  ConstantSteps found = findConstantSteps(program);
  EXPECT_EQ(found.isOnce, (Bools{true, true, false, false}));
  // T is read by what is done once alone.
  EXPECT_EQ(found.isKept,
            (Bools{false, false, false, false, false, true, false, false}));
  EXPECT_EQ(found.keptBytes, 32);
  EXPECT_EQ(found.count, 2u);
}

TEST(ConstantStepsTest, ProductsAndChecksOfConstants) {
  VectorProgram program;
  ProductStep product;
  product.lhs = V::view(V::A);
  product.rhs = V::view(V::B);
  product.bias = V::view(V::A);
  product.result = V::view(V::T);
  program.steps.push_back({product, "product"});
  program.steps.push_back({AssertStep{"of data", V::view(V::T)}, "check"});
  program.steps.push_back({AssertStep{"of sizes", SizeExpr(1)}, "check"});
  program.copy(V::T, V::Y);
  EXPECT_EQ(program.once(), (Bools{true, true, false, false}));
  product.bias = V::view(V::X);
  program.steps[0].what = product;
  EXPECT_EQ(program.once(), (Bools(4, false)));
}

TEST(ConstantStepsTest, WhatIsNotTheSameInEveryRun) {
  auto onceOf = [](auto build) {
    VectorProgram program;
    build(program);
    return program.once();
  };
  // Inputs, outputs, places and numbers that follow from extents.
  EXPECT_EQ(onceOf([](V &p) { p.copy(V::X, V::T); }), Bools{false});
  EXPECT_EQ(onceOf([](V &p) { p.copy(V::A, V::Y); }), Bools{false});
  EXPECT_EQ(onceOf([](V &p) { p.copy(V::A, V::T, SizeExpr::symbol(0)); }),
            Bools{false});
  EXPECT_EQ(onceOf([](V &p) { p.call({V::A}, {V::T}, SizeExpr::symbol(0)); }),
            Bools{false});
  EXPECT_EQ(onceOf([](V &p) { p.call({V::A}, {V::T}, SizeExpr(3)); }),
            Bools{true});
  // An array whose extent is open, though what is written is not.
  EXPECT_EQ(onceOf([](V &p) {
              p.buffers[V::T].bytes = SizeExpr::symbol(0);
              p.copy(V::A, V::T);
            }),
            Bools{false});
  // Nobody has written it.
  EXPECT_EQ(onceOf([](V &p) { p.copy(V::T, V::U); }), Bools{false});
}

TEST(ConstantStepsTest, AnArrayThatVariesInAPart) {
  // A border of constants around what is computed, written before or after it.
  for (bool isFirst : {true, false}) {
    VectorProgram program;
    if (isFirst)
      program.copy(V::A, V::T);
    program.copy(V::X, V::T);
    if (!isFirst)
      program.copy(V::A, V::T);
    program.call({V::T}, {V::U}); // sees both
    EXPECT_EQ(program.once(), Bools(3, false)) << isFirst;
  }
  // Whose reader comes first: what it reads is not what is written next.
  VectorProgram program;
  program.copy(V::A, V::T);
  program.copy(V::T, V::Y);
  program.copy(V::B, V::T);
  program.copy(V::T, V::U);
  EXPECT_EQ(program.once(), Bools(4, false));
}

TEST(ConstantStepsTest, LargeResultsAreComputedInEveryRun) {
  auto onceOf = [](int64_t constantBytes, int64_t resultBytes) {
    VectorProgram program;
    program.buffers[V::A].bytes = constantBytes;
    program.buffers[V::T].bytes = resultBytes;
    program.copy(V::A, V::T);
    program.copy(V::T, V::Y);
    return bool(program.once()[0]);
  };
  EXPECT_TRUE(onceOf(4, kFreeBytes));
  EXPECT_FALSE(onceOf(4, kFreeBytes + 4));
  EXPECT_TRUE(onceOf(16 * kMiB, 16 * kMiB * kMostGrowth));
  EXPECT_FALSE(onceOf(16 * kMiB, 16 * kMiB * kMostGrowth + 4));
  // Sizes of a file may be anything.
  EXPECT_FALSE(onceOf(0, INT64_MAX));
  EXPECT_TRUE(onceOf(INT64_MAX, INT64_MAX));
}

TEST(ConstantStepsTest, LargeOnTheWayIsNotKept) {
  VectorProgram program;
  program.buffers[V::T].bytes = int64_t(1) << 40;
  program.copy(V::A, V::T);
  program.copy(V::T, V::U);
  program.copy(V::U, V::Y);
  ConstantSteps found = findConstantSteps(program);
  EXPECT_EQ(found.isOnce, (Bools{true, true, false}));
  EXPECT_EQ(found.keptBytes, 32);
}

TEST(ConstantStepsTest, AllThatIsKeptIsBounded) {
  VectorProgram program;
  unsigned many = unsigned(kMostFreeBytes / kFreeBytes) + 3;
  for (unsigned i = 0; i < many; ++i) {
    program.buffers.push_back(
        {BufferKind::Temporary, 0, nullptr, SizeExpr(kFreeBytes)});
    unsigned buffer = unsigned(program.buffers.size()) - 1;
    program.copy(V::A, buffer);
    program.copy(buffer, V::Y);
  }
  ConstantSteps found = findConstantSteps(program);
  EXPECT_EQ(found.keptBytes, kMostFreeBytes);
  EXPECT_EQ(found.count, size_t(kMostFreeBytes / kFreeBytes));
  // The weights of the program are as much again.
  program.buffers[V::B].bytes = 2 * kFreeBytes;
  EXPECT_EQ(findConstantSteps(program).keptBytes,
            kMostFreeBytes + 2 * kFreeBytes);
}

TEST(ConstantStepsTest, AStepThatIsGivenUpTakesItsReadersAlong) {
  // T and U of one step, and U is too large: what reads T is no constant then.
  VectorProgram program;
  program.buffers[V::U].bytes = 2 * kFreeBytes;
  program.call({V::A}, {V::T, V::U});
  program.call({V::T}, {V::V});
  program.call({V::U, V::V}, {V::Y});
  EXPECT_EQ(program.once(), Bools(3, false));
}

TEST(ConstantStepsTest, AFileMayBeWrittenAgainstTheSearch) {
  // Each step writes into the array of the next one, and the last array varies:
  // every look finds one step more that does.
  auto countOf = [](unsigned length) {
    VectorProgram program;
    unsigned first = unsigned(program.buffers.size());
    for (unsigned i = 0; i <= length; ++i)
      program.buffers.push_back({BufferKind::Temporary, 0, nullptr, 32});
    program.copy(V::A, V::T);
    for (unsigned i = 0; i < length; ++i)
      program.call({V::A}, {first + i, first + i + 1});
    program.copy(V::X, first + length);
    return findConstantSteps(program).count;
  };
  EXPECT_EQ(countOf(5), 1u);
  EXPECT_EQ(countOf(1000), 0u); // given up as a whole
}

namespace {
std::atomic<int> countedCalls{0};
/// y = x + 1 over vectors.
void addShape(const int64_t *, int64_t *results) {
  results[0] = results[1] = 64;
  results[2] = results[3] = 1;
}
void addPhase(const int64_t *words, int64_t *) {
  ++countedCalls;
  auto *from = reinterpret_cast<const float *>(words[1]);
  auto *to = reinterpret_cast<float *>(words[6]);
  for (int64_t i = 0; i < words[3]; ++i)
    to[i] = from[i] + 1;
}

/// y = A + 1 + 1, and x + 1 for nobody.
struct AddingProgram : ExecutableSpec {
  AddingProgram() {
    static_cast<ProgramSpec &>(*this) = VectorProgram();
    instructionSet = InstructionSet::AVX512;
    kernels.push_back({"add", addShape, {addPhase}});
    auto add = [&](unsigned from, unsigned to) {
      KernelStep step;
      step.operands = {V::view(from), V::view(to)};
      step.numInputs = 1;
      steps.push_back({step, "add"});
    };
    add(V::A, V::T);
    add(V::T, V::U);
    steps.push_back({CopyStep{V::view(V::U), V::view(V::Y)}, "copy"});
    add(V::X, V::V);
  }
};

/// x has `length` elements, at least 8.
std::string run(Executable &executable, std::vector<float> &y,
                unsigned threads = 1, int64_t length = 8) {
  Tensor x = llvm::cantFail(Tensor::create(DType::F32, {length}));
  std::fill_n(static_cast<float *>(x.data()), length, 0.5f);
  auto outputs = executable.run({x}, threads);
  if (!outputs)
    return llvm::toString(outputs.takeError());
  auto *data = static_cast<const float *>((*outputs)[0].data());
  y.assign(data, data + 8);
  return "";
}
const std::vector<float> kExpected = {3, 4, 5, 6, 7, 8, 9, 10};
} // namespace

TEST(ConstantStepsTest, AnExecutableRunsThemOnce) {
  Executable executable{AddingProgram()};
  countedCalls = 0;
  std::vector<float> y;
  for (int i = 1; i <= 3; ++i) {
    ASSERT_EQ(run(executable, y, 1, 8 + i / 2), ""); // another shape, twice
    EXPECT_EQ(y, kExpected);
    EXPECT_EQ(countedCalls, 2 + i);
  }
  EXPECT_EQ(executable.counters().getInteger("shapes"), 2);
  llvm::json::Object counters = executable.counters();
  EXPECT_EQ(counters.getInteger("once_steps"), 2);
  EXPECT_EQ(counters.getInteger("kept_bytes"), 32);
  // V alone: what is kept lies elsewhere, T is gone.
  EXPECT_EQ(counters.getInteger("arena_bytes"), 64);
}

TEST(ConstantStepsTest, FirstRunsSideBySide) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    Executable executable{AddingProgram()};
    countedCalls = 0;
    std::atomic<bool> isGood{true}, mayStart{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        while (!mayStart)
          std::this_thread::yield();
        std::vector<float> y;
        isGood = run(executable, y, 2).empty() && y == kExpected && isGood;
      });
    mayStart = true;
    for (std::thread &thread : threads)
      thread.join();
    EXPECT_TRUE(isGood);
    EXPECT_EQ(countedCalls, 2 + 4);
  }
}

TEST(ConstantStepsTest, StepsThatAreDoneOnceAreToldInTheFirstRun) {
  Executable executable{AddingProgram()};
  std::vector<size_t> told;
  executable.observeSteps([&](size_t step, double) { told.push_back(step); });
  std::vector<float> y;
  ASSERT_EQ(run(executable, y), "");
  EXPECT_EQ(told, (std::vector<size_t>{0, 1, 2, 3}));
  told.clear();
  ASSERT_EQ(run(executable, y), "");
  EXPECT_EQ(told, (std::vector<size_t>{2, 3}));
}

TEST(ConstantStepsTest, ACheckOfConstantsFailsInEveryRun) {
  static const char no[8] = {};
  AddingProgram program;
  program.buffers[V::B].data = no;
  program.buffers[V::B].bytes = 8;
  ViewSpec flags = V::view(V::B);
  flags.dtype = DType::Bool;
  program.steps.insert(program.steps.begin() + 1,
                       {AssertStep{"a constant is wrong", flags}, "check"});
  Executable executable{std::move(program)};
  std::vector<float> y;
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(run(executable, y), "a constant is wrong");
}

/// What is kept is packed once too, as a constant is.
TEST(ConstantStepsTest, WhatIsKeptIsLaidOutOnce) {
  static std::atomic<int> packs;
  packs = 0;
  AddingProgram program;
  Kernel kernel;
  kernel.name = "packed";
  kernel.shape = [](const int64_t *, int64_t *results) {
    results[0] = results[1] = 64;
    results[2] = results[3] = results[4] = results[5] = 1;
  };
  kernel.phases = {[](const int64_t *words, int64_t *) {
                     ++packs;
                     auto *from = reinterpret_cast<const float *>(words[1]);
                     auto *panel = reinterpret_cast<float *>(words[11]);
                     std::copy_n(from, 8, panel);
                   },
                   [](const int64_t *words, int64_t *) {
                     auto *panel = reinterpret_cast<const float *>(words[11]);
                     auto *to = reinterpret_cast<float *>(words[6]);
                     std::copy_n(panel, 8, to);
                   }};
  kernel.packedOperands = {0};
  kernel.sharesOnlyPanels = true;
  program.kernels.push_back(kernel);
  KernelStep step;
  step.kernel = 1;
  step.operands = {V::view(V::U), V::view(V::Y)};
  step.numInputs = 1;
  program.steps[2] = {step, "packed"};
  Executable executable{std::move(program)};
  std::vector<float> y;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(run(executable, y), "");
    EXPECT_EQ(y, kExpected);
  }
  EXPECT_EQ(packs, 1);
}
