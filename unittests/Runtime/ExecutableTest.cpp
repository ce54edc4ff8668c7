// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Executables written by hand: shape checks, reuse of memory, concurrency.
#include "refold/Runtime/Executable.h"

#include "refold/Support/RandomInputs.h"
#include "gtest/gtest.h"
#include <atomic>
#include <cstring>
#include <dlfcn.h>
#include <thread>

using namespace refold;

// Every allocation of the process is counted while a test asks for it. The
// table that oneDNN makes for each call is told apart by its caller.
static std::atomic<bool> isCounting{false};
static std::atomic<int64_t> allocations{0};
extern "C" void *__libc_malloc(size_t);
extern "C" void *__libc_memalign(size_t, size_t);
extern "C" void *__libc_calloc(size_t, size_t);

namespace refold {
bool isInProductLibrary();
}
static void count() {
  if (isCounting && !isInProductLibrary())
    ++allocations;
}
extern "C" void *malloc(size_t size) {
  count();
  return __libc_malloc(size);
}
extern "C" void *calloc(size_t count_, size_t size) {
  count();
  return __libc_calloc(count_, size);
}
extern "C" void *aligned_alloc(size_t alignment, size_t size) {
  count();
  return __libc_memalign(alignment, size);
}

namespace {
/// Descriptor of a row-major 2-d memref inside the words of a call.
struct Memref2D {
  const int64_t *words;
  float *data() const { return reinterpret_cast<float *>(words[1]); }
  int64_t rows() const { return words[3]; }
  int64_t cols() const { return words[4]; }
  static constexpr unsigned kWords = 7;
};
} // namespace

/// A kernel with the generated code's interface: y = 2 x + 1, a row an item;
/// its second phase adds what the first left in the shared workspace.
static void doubleShape(const int64_t *words, int64_t *results) {
  results[0] = Memref2D{words}.rows() * 4;
  results[1] = 8;
  int64_t rows = Memref2D{words}.rows();
  results[2] = results[3] = rows;
  results[4] = results[5] = (rows + 2) / 3; // three rounds
}
static void doublePhase0(const int64_t *words, int64_t *) {
  Memref2D x{words}, y{words + Memref2D::kWords};
  const int64_t *rest = words + 2 * Memref2D::kWords;
  auto *shared = reinterpret_cast<float *>(rest[1]);
  for (int64_t row = rest[10]; row < rest[11]; ++row) {
    for (int64_t col = 0; col < x.cols(); ++col)
      y.data()[row * x.cols() + col] = 2 * x.data()[row * x.cols() + col];
    shared[row] = 1.0f;
  }
}
static void doublePhase1(const int64_t *words, int64_t *) {
  Memref2D y{words + Memref2D::kWords};
  const int64_t *rest = words + 2 * Memref2D::kWords;
  auto *shared = reinterpret_cast<float *>(rest[1]);
  for (int64_t row = rest[10]; row < rest[11]; ++row)
    for (int64_t col = 0; col < y.cols(); ++col)
      y.data()[row * y.cols() + col] += shared[row];
}

static ViewSpec matrixView(unsigned buffer) {
  ViewSpec view;
  view.buffer = buffer;
  view.sizes = {SizeExpr::symbol(0), SizeExpr::symbol(1)};
  view.strides = {SizeExpr::symbol(1), SizeExpr(1)};
  return view;
}

/// x[n, d] and w[d, d]: three doublings through two temporaries, then a product
/// with w.
static ExecutableSpec makeSpec() {
  ExecutableSpec spec;
  spec.instructionSet = InstructionSet::AVX512;
  spec.numSymbols = 2;
  spec.inputs.push_back(
      {"x", DType::F32, {DimSpec{"n", -1, 0}, DimSpec{"d", -1, 1}}});
  spec.inputs.push_back(
      {"w", DType::F32, {DimSpec{"d", -1, 1}, DimSpec{"d", -1, 1}}});
  SizeExpr bytes = SizeExpr::symbol(0) * SizeExpr::symbol(1) * SizeExpr(4);
  spec.outputs.push_back(
      {"y", DType::F32, {SizeExpr::symbol(0), SizeExpr::symbol(1)}});
  spec.buffers = {{BufferKind::Input, 0, nullptr, bytes},
                  {BufferKind::Input, 1, nullptr, bytes},
                  {BufferKind::Temporary, 0, nullptr, bytes},
                  {BufferKind::Temporary, 0, nullptr, bytes},
                  {BufferKind::Temporary, 0, nullptr, bytes},
                  {BufferKind::Output, 0, nullptr, bytes}};
  spec.kernels.push_back({"double", doubleShape, {doublePhase0, doublePhase1}});
  for (unsigned from : {0u, 2u, 3u}) {
    KernelStep step;
    step.operands = {matrixView(from), matrixView(from == 0 ? 2 : from + 1)};
    step.numInputs = 1;
    spec.steps.push_back({step, "double"});
  }
  ProductStep product;
  product.lhs = matrixView(4);
  product.rhs = matrixView(1);
  product.rhs.sizes[0] = SizeExpr::symbol(1);
  product.result = matrixView(5);
  spec.steps.push_back({product, "product"});
  return spec;
}

static Tensor randomMatrix(int64_t rows, int64_t cols, llvm::StringRef name) {
  Tensor tensor = llvm::cantFail(Tensor::create(DType::F32, {rows, cols}));
  fillRandom(tensor, InputRecipe(), 1, name);
  return tensor;
}

static double expectedAt(const Tensor &x, const Tensor &w, int64_t i,
                         int64_t j) {
  int64_t d = x.shape()[1];
  double sum = 0.0;
  for (int64_t k = 0; k < d; ++k)
    sum += (8 * x.get(i * d + k) + 7) * w.get(k * d + j);
  return sum;
}

static bool isRight(const Tensor &x, const Tensor &w, const Tensor &y) {
  for (int64_t i = 0; i < x.shape()[0]; ++i)
    for (int64_t j = 0; j < x.shape()[1]; ++j)
      if (!(std::abs(y.get(i * x.shape()[1] + j) - expectedAt(x, w, i, j)) <
            1e-3))
        return false;
  return true;
}

TEST(ExecutableTest, RunsForEveryShapeAndThreadCount) {
  Executable executable(makeSpec());
  for (int64_t n : {0, 1, 7, 200})
    for (unsigned threads : {1u, 2u, 3u}) {
      Tensor x = randomMatrix(n, 19, "x"), w = randomMatrix(19, 19, "w");
      auto y = executable.run({x, w}, threads);
      ASSERT_TRUE(bool(y)) << llvm::toString(y.takeError());
      EXPECT_TRUE(isRight(x, w, (*y)[0])) << n << " " << threads;
    }
  EXPECT_EQ(executable.counters().getInteger("shapes"), 4);
  // Three temporaries that follow each other need room for two.
  EXPECT_EQ(executable.counters().getInteger("arena_bytes"),
            2 * ((200 * 19 * 4 + 63) / 64 * 64));
}

TEST(ExecutableTest, StridedInputsAndOutputs) {
  Executable executable(makeSpec());
  Tensor x = randomMatrix(5, 6, "x"), w = randomMatrix(6, 6, "w");
  Tensor turned = llvm::cantFail(Tensor::create(DType::F32, {6, 5}));
  for (int64_t i = 0; i < 5; ++i)
    for (int64_t j = 0; j < 6; ++j)
      turned.set(j * 5 + i, x.get(i * 6 + j));
  Tensor view = Tensor::borrow(DType::F32, {5, 6}, {1, 5}, turned.data());
  Tensor room = llvm::cantFail(Tensor::create(DType::F32, {6, 5}));
  Tensor out = Tensor::borrow(DType::F32, {5, 6}, {1, 5}, room.data());
  std::vector<Tensor> outputs = {out};
  llvm::Error error = executable.runInto({view, w}, outputs, 1);
  ASSERT_FALSE(bool(error));
  EXPECT_TRUE(isRight(x, w, out));
}

TEST(ExecutableTest, WrongArgumentsAreNamed) {
  Executable executable(makeSpec());
  auto message = [&](llvm::ArrayRef<Tensor> inputs) {
    auto outputs = executable.run(inputs, 1);
    return outputs ? std::string("no error")
                   : llvm::toString(outputs.takeError());
  };
  Tensor x = randomMatrix(4, 6, "x"), w = randomMatrix(6, 6, "w");
  EXPECT_EQ(message({x}), "1 arguments were given, expected 2");
  EXPECT_EQ(message({x, randomMatrix(6, 7, "w")}),
            "argument 'w': dimension 1 ('d') is 7, expected 6 as dimension 1 "
            "of argument 'x'");
  EXPECT_EQ(message({llvm::cantFail(Tensor::create(DType::F64, {4, 6})), w}),
            "argument 'x' is f64, expected f32");
  EXPECT_EQ(message({llvm::cantFail(Tensor::create(DType::F32, {4})), w}),
            "argument 'x' has 1 dimensions, expected 2");
}

TEST(ExecutableTest, NoAllocationAfterTheFirstRunOfAShape) {
  Executable executable(makeSpec());
  std::vector<Tensor> inputs = {randomMatrix(64, 33, "x"),
                                randomMatrix(33, 33, "w")};
  std::vector<Tensor> outputs = {randomMatrix(64, 33, "y")};
  for (unsigned threads : {1u, 2u}) {
    // The second run meets threads and argument tables that the first one made.
    for (int i = 0; i < 3; ++i)
      ASSERT_FALSE(bool(executable.runInto(inputs, outputs, threads)));
    // On a busy machine the second thread's first item may come late.
    for (int attempt = 0; attempt < 10; ++attempt) {
      allocations = 0;
      isCounting = true;
      for (int i = 0; i < 20; ++i)
        if (executable.runInto(inputs, outputs, threads))
          std::abort();
      isCounting = false;
      if (allocations == 0)
        break;
    }
    EXPECT_EQ(allocations, 0) << threads << " threads";
  }
  // The counter counts: a new shape needs a plan.
  std::vector<Tensor> longer = {randomMatrix(65, 33, "x"), inputs[1]};
  std::vector<Tensor> room = {randomMatrix(65, 33, "y")};
  isCounting = true;
  ASSERT_FALSE(bool(executable.runInto(longer, room, 1)));
  isCounting = false;
  EXPECT_GT(allocations, 0);
}

TEST(ExecutableTest, RunsSideBySide) {
  Executable executable(makeSpec());
  std::atomic<bool> isGood{true};
  auto work = [&](int64_t n) {
    Tensor x = randomMatrix(n, 24, "x"), w = randomMatrix(24, 24, "w");
    for (int i = 0; i < 50; ++i) {
      auto y = executable.run({x, w}, 2);
      if (!y) {
        llvm::consumeError(y.takeError());
        isGood = false;
      } else if (!isRight(x, w, (*y)[0])) {
        isGood = false;
      }
    }
  };
  // Two of one shape, and one that interleaves with another.
  std::thread first(work, 40), second(work, 40), third(work, 73);
  first.join();
  second.join();
  third.join();
  EXPECT_TRUE(isGood);
}
