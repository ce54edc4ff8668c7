// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Programs as the fusing passes leave them, compiled and run.
#include "refold/Target/CPU/CompileProgram.h"
#include "../../Dialect/CascadeText.h"

#include "CompileText.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "refold/Dialect/Refold/IR/Refold.h"
#include "refold/Runtime/Executable.h"
#include "refold/Support/RandomInputs.h"
#include <cmath>

using namespace refold;
using namespace refold::test;

namespace {
/// A program and the context that its constants live in.
struct Program {
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;

  explicit Program(llvm::StringRef text) {
    mlir::DialectRegistry registry;
    registerCpuDialects(registry);
    registry.insert<RefoldDialect, mlir::cf::ControlFlowDialect,
                    mlir::linalg::LinalgDialect, mlir::tensor::TensorDialect>();
    context = std::make_unique<mlir::MLIRContext>(
        registry, mlir::MLIRContext::Threading::DISABLED);
    module = mlir::parseSourceString<mlir::ModuleOp>(text, context.get());
    EXPECT_TRUE(module);
  }
  llvm::Expected<ExecutableSpec> compile() {
    return compileProgram(*module, *detectTarget());
  }
  Executable load() {
    llvm::Expected<ExecutableSpec> spec = compile();
    if (!spec) {
      ADD_FAILURE() << llvm::toString(spec.takeError());
      return Executable(ExecutableSpec());
    }
    return Executable(std::move(*spec));
  }
};
} // namespace

static Tensor randomTensor(llvm::ArrayRef<int64_t> shape, llvm::StringRef name,
                           DType dtype = DType::F32) {
  Tensor tensor = llvm::cantFail(Tensor::create(dtype, shape));
  fillRandom(tensor, InputRecipe(), 1, name);
  return tensor;
}

static std::vector<Tensor> runOrFail(Executable &program,
                                     llvm::ArrayRef<Tensor> inputs,
                                     unsigned threads = 1) {
  auto outputs = program.run(inputs, threads);
  if (!outputs) {
    ADD_FAILURE() << llvm::toString(outputs.takeError());
    return {};
  }
  return std::move(*outputs);
}

static std::string messageOf(llvm::Error error) {
  return llvm::toString(std::move(error));
}

static const std::string kSoftmaxThenProduct = R"mlir(
func.func @f(%x: tensor<?x?xf32> {refold.name = "x", refold.dims = ["m", "k"]},
             %w: tensor<?x?xf32> {refold.name = "w", refold.dims = ["k", "n"]})
    -> (tensor<?x?xf32> {refold.name = "y"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %x, %c0 : tensor<?x?xf32>
  %k = tensor.dim %x, %c1 : tensor<?x?xf32>
  %n = tensor.dim %w, %c1 : tensor<?x?xf32>
  %e = tensor.empty(%m, %k) : tensor<?x?xf32>
  %p = refold.cascade rows(%i = ?) stream(%j = ?)
      ins(%a = %x : tensor<?x?xf32>) outs(%o = %e : tensor<?x?xf32>) {
    %lowest = arith.constant -3.40282347E+38 : f32
    %v = refold.read %a[%i, %j] : f32
)mlir" + test::softmaxOf("v") + R"mlir(
    %y = arith.divf %p, %z : f32
    refold.write %y, %o[%i, %j] : f32
  }
  %zero = arith.constant 0.0 : f32
  %e2 = tensor.empty(%m, %n) : tensor<?x?xf32>
  %s = linalg.fill ins(%zero : f32) outs(%e2 : tensor<?x?xf32>) -> tensor<?x?xf32>
  %r = linalg.matmul ins(%p, %w : tensor<?x?xf32>, tensor<?x?xf32>)
                     outs(%s : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
})mlir";

/// softmax(x) w in double.
static double softmaxProduct(const Tensor &x, const Tensor &w, int64_t i,
                             int64_t j) {
  int64_t k = x.shape()[1], n = w.shape()[1];
  double max = -HUGE_VAL, sum = 0.0, total = 0.0;
  for (int64_t c = 0; c < k; ++c)
    max = std::max(max, x.get(i * k + c));
  for (int64_t c = 0; c < k; ++c)
    sum += std::exp(x.get(i * k + c) - max);
  for (int64_t c = 0; c < k; ++c)
    total += std::exp(x.get(i * k + c) - max) / sum * w.get(c * n + j);
  return total;
}

TEST(CompileProgramTest, CascadeThenProductForManyShapes) {
  Program program(kSoftmaxThenProduct);
  Executable executable = program.load();
  for (auto [m, k, n] : {std::array<int64_t, 3>{5, 17, 3},
                         {1, 1, 1},
                         {64, 100, 48},
                         {0, 7, 3},
                         {33, 129, 65}}) {
    Tensor x = randomTensor({m, k}, "x"), w = randomTensor({k, n}, "w");
    std::vector<Tensor> one = runOrFail(executable, {x, w});
    std::vector<Tensor> two = runOrFail(executable, {x, w}, 2);
    ASSERT_EQ(one.size(), 1u);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        ASSERT_NEAR(one[0].get(i * n + j), softmaxProduct(x, w, i, j), 1e-5);
    EXPECT_EQ(std::memcmp(one[0].data(), two[0].data(), one[0].numBytes()), 0);
  }
  llvm::json::Object counters = executable.counters();
  EXPECT_EQ(counters.getInteger("kernels"), 1);
  EXPECT_EQ(counters.getInteger("products"), 1);
  EXPECT_EQ(counters.getInteger("shapes"), 5);
}

TEST(CompileProgramTest, DimensionsOfOneNameMustAgree) {
  Program program(kSoftmaxThenProduct);
  Executable executable = program.load();
  auto outputs =
      executable.run({randomTensor({2, 3}, "x"), randomTensor({4, 5}, "w")}, 1);
  ASSERT_FALSE(bool(outputs));
  EXPECT_EQ(messageOf(outputs.takeError()),
            "argument 'w': dimension 0 ('k') is 4, expected 3 as dimension 1 "
            "of argument 'x'");
}

// Two equal layers, then a different one.
TEST(CompileProgramTest, EqualKernelsCompileOnce) {
  std::string text = R"mlir(
func.func @f(%x: tensor<8x?xf32>) -> tensor<8x?xf32> {
  %c1 = arith.constant 1 : index
  %n = tensor.dim %x, %c1 : tensor<8x?xf32>
  %e = tensor.empty(%n) : tensor<8x?xf32>
)mlir";
  auto layer = [&](const char *from, const char *to, const char *operand,
                   const char *op) {
    text += std::string("  %") + to +
            " = refold.cascade rows(%i = 8, %j = ?) ins(%" + operand + " = %" +
            from + " : tensor<8x?xf32>) outs(%o = %e : tensor<8x?xf32>) {\n" +
            "    %v = refold.read %" + operand +
            "[%i, %j] : f32\n    %y = " + op +
            " %v, %v : f32\n    refold.write %y, %o[%i, %j] : f32\n  }\n";
  };
  layer("x", "a", "left", "arith.addf");
  layer("a", "b", "right", "arith.addf");
  layer("b", "c", "right", "arith.mulf");
  text += "  return %c : tensor<8x?xf32>\n}";
  Program program(text);
  Executable executable = program.load();
  EXPECT_EQ(executable.counters().getInteger("kernels"), 2);
  EXPECT_EQ(executable.counters().getInteger("kernel_calls"), 3);
  Tensor x = randomTensor({8, 21}, "x");
  std::vector<Tensor> y = runOrFail(executable, {x});
  ASSERT_EQ(y.size(), 1u);
  for (int64_t i = 0; i < x.numElements(); ++i) {
    float four = 4 * float(x.get(i));
    ASSERT_EQ(y[0].get(i), double(four * four));
  }
}

// Views, copies and constants around one elementwise kernel.
TEST(CompileProgramTest, ViewsAndCopies) {
  Program program(R"mlir(
func.func @f(%x: tensor<6x?xf32>, %y: tensor<2x?xf32>)
    -> (tensor<8x?xf32>, tensor<?x3xf32>, tensor<9x?xf32>) {
  %c1 = arith.constant 1 : index
  %n = tensor.dim %x, %c1 : tensor<6x?xf32>
  %all = tensor.concat dim(0) %x, %y : (tensor<6x?xf32>, tensor<2x?xf32>) -> tensor<8x?xf32>
  %flat = tensor.collapse_shape %x [[0, 1]] : tensor<6x?xf32> into tensor<?xf32>
  %c2 = arith.constant 2 : index
  %n2 = arith.muli %n, %c2 : index
  %three = tensor.expand_shape %flat [[0, 1]] output_shape [%n2, 3] : tensor<?xf32> into tensor<?x3xf32>
  %row = tensor.extract_slice %x[2, 0] [1, %n] [1, 1] : tensor<6x?xf32> to tensor<1x?xf32>
  %one = arith.constant 1.5 : f32
  %padded = tensor.pad %all low[1, 0] high[0, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %one : f32
  } : tensor<8x?xf32> to tensor<9x?xf32>
  %inserted = tensor.insert_slice %row into %padded[3, 0] [1, %n] [1, 1]
      : tensor<1x?xf32> into tensor<9x?xf32>
  return %all, %three, %inserted : tensor<8x?xf32>, tensor<?x3xf32>, tensor<9x?xf32>
})mlir");
  Executable executable = program.load();
  Tensor x = randomTensor({6, 5}, "x"), y = randomTensor({2, 5}, "y");
  std::vector<Tensor> results = runOrFail(executable, {x, y});
  ASSERT_EQ(results.size(), 3u);
  for (int64_t i = 0; i < 40; ++i) {
    double expected = i < 30 ? x.get(i) : y.get(i - 30);
    EXPECT_EQ(results[0].get(i), expected);
    bool isRow = i >= 10 && i < 15; // row 3 of the padded one
    EXPECT_EQ(results[2].get(i + 5), isRow ? x.get(i) : expected);
  }
  for (int64_t i = 0; i < 30; ++i)
    EXPECT_EQ(results[1].get(i), x.get(i));
  for (int64_t i = 0; i < 5; ++i)
    EXPECT_EQ(results[2].get(i), 1.5);
  // x and y share no name, so only the run sees that they differ.
  auto bad = executable.run({x, randomTensor({2, 4}, "y")}, 1);
  ASSERT_FALSE(bool(bad));
  EXPECT_NE(messageOf(bad.takeError()).find("differ in a dimension"),
            std::string::npos);
}

/// Halves of the rows of x that change places, one with the other sign, as a
/// kernel for each half makes them, and what `then` makes of %all.
static std::string turnedHalves(llvm::StringRef then) {
  return (R"mlir(
func.func @f(%x: tensor<?x8xf32> {refold.name = "x", refold.dims = ["m", "k"]})
    -> (tensor<1x?x8xf32>, tensor<?x4xf32>) {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%m) : tensor<?x4xf32>
  %upper = refold.cascade rows(%i = ?, %j = 4)
      ins(%a = %x : tensor<?x8xf32>) outs(%o = %e : tensor<?x4xf32>) {
    %v = refold.read %a[%i, %j + 4] : f32
    %n = arith.negf %v : f32
    refold.write %n, %o[%i, %j] : f32
  }
  %lower = refold.cascade rows(%i = ?, %j = 4)
      ins(%a = %x : tensor<?x8xf32>) outs(%o = %e : tensor<?x4xf32>) {
    %v = refold.read %a[%i, %j] : f32
    refold.write %v, %o[%i, %j] : f32
  }
  %first = tensor.expand_shape %upper [[0, 1], [2]] output_shape [1, %m, 4] : tensor<?x4xf32> into tensor<1x?x4xf32>
  %second = tensor.expand_shape %lower [[0, 1], [2]] output_shape [1, %m, 4] : tensor<?x4xf32> into tensor<1x?x4xf32>
)mlir" + then +
          "\n}")
      .str();
}

/// Copies among the steps.
static int64_t countCopies(const Executable &executable) {
  return llvm::count_if(executable.spec().steps, [](const Step &step) {
    return std::holds_alternative<CopyStep>(step.what);
  });
}

// A kernel writes its part of a longer array where it belongs; others that read
// the part take rows with gaps.
TEST(CompileProgramTest, PartsAreWrittenInPlace) {
  const std::string whole = R"mlir(
  %all = tensor.concat dim(2) %first, %second : (tensor<1x?x4xf32>, tensor<1x?x4xf32>) -> tensor<1x?x8xf32>
)mlir";
  const std::string reader = R"mlir(
  %twice = refold.cascade rows(%i = ?, %j = 4)
      ins(%a = %upper : tensor<?x4xf32>) outs(%o = %e : tensor<?x4xf32>) {
    %v = refold.read %a[%i, %j] : f32
    %d = arith.addf %v, %v : f32
    refold.write %d, %o[%i, %j] : f32
  }
  return %all, %twice : tensor<1x?x8xf32>, tensor<?x4xf32>)mlir";
  const std::string result =
      "return %all, %upper : tensor<1x?x8xf32>, tensor<?x4xf32>";
  const std::string same = R"mlir(
  %all = tensor.concat dim(2) %first, %first : (tensor<1x?x4xf32>, tensor<1x?x4xf32>) -> tensor<1x?x8xf32>
)mlir";
  // A result of the program and what stands twice in the array are copied.
  for (auto [text, copies, factor, isSame] :
       {std::tuple(whole + reader, 0, 2.0, false),
        {whole + result, 1, 1.0, false},
        {same + reader, 2, 2.0, true}}) {
    Program program(turnedHalves(text));
    Executable executable = program.load();
    EXPECT_EQ(countCopies(executable), copies) << text;
    for (int64_t m : {0, 1, 5, 70}) {
      Tensor x = randomTensor({m, 8}, "x");
      std::vector<Tensor> y = runOrFail(executable, {x}, 2);
      ASSERT_EQ(y.size(), 2u);
      for (int64_t i = 0; i < 8 * m; ++i)
        EXPECT_EQ(y[0].get(i), i % 8 < 4 ? -x.get(i + 4)
                               : isSame  ? -x.get(i)
                                         : x.get(i - 4));
      for (int64_t i = 0; i < 4 * m; ++i)
        EXPECT_EQ(y[1].get(i), -factor * x.get(i / 4 * 8 + i % 4 + 4));
    }
  }
}

TEST(CompileProgramTest, AssertionsAboutSizesAndData) {
  Program program(R"mlir(
func.func @f(%x: tensor<?xf32>, %ok: tensor<i1>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  %fits = arith.cmpi sle, %n, %c3 : index
  cf.assert %fits, "x is too long"
  %flag = tensor.extract %ok[] : tensor<i1>
  cf.assert %flag, "the data is wrong"
  return %x : tensor<?xf32>
})mlir");
  Executable executable = program.load();
  Tensor yes = llvm::cantFail(Tensor::create(DType::Bool, {}));
  yes.set(0, 1.0);
  Tensor no = llvm::cantFail(Tensor::create(DType::Bool, {}));
  EXPECT_EQ(runOrFail(executable, {randomTensor({3}, "x"), yes}).size(), 1u);
  auto tooLong = executable.run({randomTensor({4}, "x"), yes}, 1);
  ASSERT_FALSE(bool(tooLong));
  EXPECT_EQ(messageOf(tooLong.takeError()), "x is too long");
  auto wrong = executable.run({randomTensor({3}, "x"), no}, 1);
  ASSERT_FALSE(bool(wrong));
  EXPECT_EQ(messageOf(wrong.takeError()), "the data is wrong");
}

// The check stands after what it guards: the block's order says nothing.
TEST(CompileProgramTest, ChecksOnDataComeFirst) {
  Program program(R"mlir(
func.func @f(%x: tensor<?xf32>, %l: tensor<3xi64>, %ok: tensor<i1>) -> tensor<3xf32> {
  %e = tensor.empty() : tensor<3xf32>
  %y = refold.cascade rows(%i = 3)
      ins(%a = %x : tensor<?xf32>, %b = %l : tensor<3xi64>) outs(%o = %e : tensor<3xf32>) {
    %v = refold.read %b[%i] : i64
    %at = arith.index_cast %v : i64 to index
    %w = refold.read %a[%at] : f32
    refold.write %w, %o[%i] : f32
  }
  %flag = tensor.extract %ok[] : tensor<i1>
  cf.assert %flag, "a subscript is out of range"
  return %y : tensor<3xf32>
})mlir");
  Executable executable = program.load();
  Tensor x = randomTensor({5}, "x");
  Tensor l = llvm::cantFail(Tensor::create(DType::I64, {3}));
  Tensor ok = llvm::cantFail(Tensor::create(DType::Bool, {}));
  l.set(0, 4.0);
  l.set(1, 0x1p40); // reading there would end the process
  auto outputs = executable.run({x, l, ok}, 1);
  ASSERT_FALSE(bool(outputs));
  EXPECT_EQ(messageOf(outputs.takeError()), "a subscript is out of range");
  l.set(1, 2.0);
  ok.set(0, 1.0);
  std::vector<Tensor> y = runOrFail(executable, {x, l, ok});
  ASSERT_EQ(y.size(), 1u);
  EXPECT_EQ(y[0].get(0), x.get(4));
  EXPECT_EQ(y[0].get(1), x.get(2));
  EXPECT_EQ(y[0].get(2), x.get(0));
}

// A constant right side, a transposed left one, batches, sums in i32.
TEST(CompileProgramTest, ProductsOfManyForms) {
  Program program(R"mlir(
#a = affine_map<(b, m, h, n, k) -> (b, k, m)>
#w = affine_map<(b, m, h, n, k) -> (k, h, n)>
#o = affine_map<(b, m, h, n, k) -> (b, h, m, n)>
#q = affine_map<(m, n, k) -> (m, k)>
#r = affine_map<(m, n, k) -> (n, k)>
#s = affine_map<(m, n, k) -> (m, n)>
func.func @f(%x: tensor<2x2x?xf32>, %q: tensor<?x4xi8>) -> (tensor<2x2x?x3xf32>, tensor<?x?xi32>) {
  %w = arith.constant dense<[[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],
                             [[7.0, 8.0, 9.0], [10.0, 11.0, 12.0]]]> : tensor<2x2x3xf32>
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %m = tensor.dim %x, %c2 : tensor<2x2x?xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%m) : tensor<2x2x?x3xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x2x?x3xf32>) -> tensor<2x2x?x3xf32>
  %y = linalg.generic {indexing_maps = [#a, #w, #o],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<2x2x?xf32>, tensor<2x2x3xf32>) outs(%z : tensor<2x2x?x3xf32>) {
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %p = arith.mulf %a, %b : f32
    %t = arith.addf %acc, %p : f32
    linalg.yield %t : f32
  } -> tensor<2x2x?x3xf32>
  %l = tensor.dim %q, %c0 : tensor<?x4xi8>
  %zi = arith.constant 0 : i32
  %ei = tensor.empty(%l, %l) : tensor<?x?xi32>
  %fi = linalg.fill ins(%zi : i32) outs(%ei : tensor<?x?xi32>) -> tensor<?x?xi32>
  %g = linalg.generic {indexing_maps = [#q, #r, #s],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %q : tensor<?x4xi8>, tensor<?x4xi8>) outs(%fi : tensor<?x?xi32>) {
  ^bb0(%a: i8, %b: i8, %acc: i32):
    %a32 = arith.extsi %a : i8 to i32
    %b32 = arith.extsi %b : i8 to i32
    %p = arith.muli %a32, %b32 : i32
    %t = arith.addi %p, %acc : i32
    linalg.yield %t : i32
  } -> tensor<?x?xi32>
  return %y, %g : tensor<2x2x?x3xf32>, tensor<?x?xi32>
})mlir");
  Executable executable = program.load();
  Tensor x = randomTensor({2, 2, 5}, "x");
  Tensor q = randomTensor({3, 4}, "q", DType::I8);
  std::vector<Tensor> results = runOrFail(executable, {x, q});
  ASSERT_EQ(results.size(), 2u);
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t m = 0; m < 5; ++m)
        for (int64_t n = 0; n < 3; ++n) {
          double sum = 0.0;
          for (int64_t k = 0; k < 2; ++k)
            sum += x.get((b * 2 + k) * 5 + m) * double(1 + k * 6 + h * 3 + n);
          EXPECT_NEAR(results[0].get(((b * 2 + h) * 5 + m) * 3 + n), sum, 1e-5);
        }
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 3; ++j) {
      double sum = 0.0;
      for (int64_t k = 0; k < 4; ++k)
        sum += q.get(i * 4 + k) * q.get(j * 4 + k);
      EXPECT_EQ(results[1].get(i * 3 + j), sum);
    }
}

// Bias and GELU become part of the product, unless something else reads it.
TEST(CompileProgramTest, EpiloguesOfProducts) {
  for (bool isReadTwice : {false, true}) {
    std::string text = R"mlir(
func.func @f(%x: tensor<?x6xf32>, %w: tensor<6x5xf32>, %b: tensor<5xf32>)
    -> (tensor<?x5xf32>, tensor<?x5xf32>) {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?x6xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%m) : tensor<?x5xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x5xf32>) -> tensor<?x5xf32>
  %p = linalg.matmul ins(%x, %w : tensor<?x6xf32>, tensor<6x5xf32>)
                     outs(%z : tensor<?x5xf32>) -> tensor<?x5xf32>
  %y = refold.cascade rows(%i = ?, %j = 5)
      ins(%a = %p : tensor<?x5xf32>, %c = %b : tensor<5xf32>) outs(%o = %e : tensor<?x5xf32>) {
    %root = arith.constant 1.41421354 : f32
    %one = arith.constant 1.0 : f32
    %half = arith.constant 0.5 : f32
    %v = refold.read %a[%i, %j] : f32
    %bias = refold.read %c[%j] : f32
    %s = arith.addf %v, %bias : f32
    %q = arith.divf %s, %root : f32
    %erf = math.erf %q : f32
    %t = arith.addf %erf, %one : f32
    %g = arith.mulf %s, %t : f32
    %r = arith.mulf %g, %half : f32
    refold.write %r, %o[%i, %j] : f32
  }
)mlir";
    text += isReadTwice
                ? "  return %y, %p : tensor<?x5xf32>, tensor<?x5xf32>\n}"
                : "  return %y, %y : tensor<?x5xf32>, tensor<?x5xf32>\n}";
    Program program(text);
    Executable executable = program.load();
    EXPECT_EQ(executable.counters().getInteger("kernel_calls"),
              isReadTwice ? 1 : 0);
    Tensor x = randomTensor({7, 6}, "x"), w = randomTensor({6, 5}, "w"),
           b = randomTensor({5}, "b");
    std::vector<Tensor> y = runOrFail(executable, {x, w, b});
    ASSERT_EQ(y.size(), 2u);
    for (int64_t i = 0; i < 7; ++i)
      for (int64_t j = 0; j < 5; ++j) {
        double sum = 0.0;
        for (int64_t k = 0; k < 6; ++k)
          sum += x.get(i * 6 + k) * w.get(k * 5 + j);
        double v = sum + b.get(j);
        double gelu = 0.5 * v * (1.0 + std::erf(v / std::sqrt(2.0)));
        EXPECT_NEAR(y[0].get(i * 5 + j), gelu, 2e-6);
        EXPECT_NEAR(y[1].get(i * 5 + j), isReadTwice ? sum : gelu, 2e-6);
      }
  }
}

TEST(CompileProgramTest, OtherOpsAreRefused) {
  Program program(R"mlir(
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %y = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
})mlir");
  llvm::Expected<ExecutableSpec> spec = program.compile();
  ASSERT_FALSE(bool(spec));
  EXPECT_NE(messageOf(spec.takeError())
                .find("found 'linalg.exp', which is no cascade, product, view "
                      "or copy"),
            std::string::npos);
}

/// How a processor likes to be asked.
enum class Asks { Usual, IntoFirst, InOrder, Twice, FarAhead };

/// Lines that AVX-512 code of a program asks for, into the first cache and into
/// the second; nothing where this machine does not generate it.
static std::optional<std::pair<size_t, size_t>>
linesAskedFor(Program &program, Asks how,
              llvm::StringRef ofFirst = "prefetcht0") {
  llvm::Expected<CpuTarget> target = detectTarget("avx512");
  if (!target) {
    llvm::consumeError(target.takeError());
    return std::nullopt;
  }
  target->facts.asksIntoFirst = how == Asks::IntoFirst;
  target->facts.asksInOrder = how == Asks::IntoFirst || how == Asks::InOrder;
  target->facts.asksTwice = how == Asks::Twice;
  target->facts.asksFarAhead = how == Asks::FarAhead;
  std::pair<size_t, size_t> lines;
  CompileProgramOptions options;
  options.onAssembly = [&](llvm::StringRef, llvm::StringRef text) {
    lines.first += text.count(ofFirst);
    lines.second += text.count("prefetcht1");
  };
  auto spec = compileProgram(*program.module, *target, options);
  if (!spec) {
    ADD_FAILURE() << llvm::toString(spec.takeError());
    return std::nullopt;
  }
  return lines;
}

// Rows of 16 KB: this one and the next have room in 48 KB, what both read too
// has not.
TEST(CompileProgramTest, NextRowsAreAskedForAsTheProcessorLikes) {
  Program program(R"mlir(
func.func @f(%x: tensor<8192x4096xf32>) -> tensor<8192x4096xf32> {
  %e = tensor.empty() : tensor<8192x4096xf32>
  %p = refold.cascade rows(%i = 8192) stream(%j = 4096)
      ins(%a = %x : tensor<8192x4096xf32>)
      outs(%o = %e : tensor<8192x4096xf32>) {
    %lowest = arith.constant -3.40282347E+38 : f32
    %v = refold.read %a[%i, %j] : f32
)mlir" + test::softmaxOf("v") +
                  R"mlir(
    %y = arith.divf %p, %z : f32
    refold.write %y, %o[%i, %j] : f32
  }
  return %p : tensor<8192x4096xf32>
})mlir");
  auto usual = linesAskedFor(program, Asks::Usual);
  auto first = linesAskedFor(program, Asks::IntoFirst);
  if (!usual || !first)
    GTEST_SKIP() << "no AVX-512";
  EXPECT_EQ(usual->second, 0u); // the pass asks for it
  EXPECT_GT(first->first, usual->first);
  EXPECT_EQ(first->second, 0u);
  // 8 KB ahead, the sweep in the next row.
  for (llvm::StringRef line : {"prefetcht1\t8192(", "prefetcht1\t24576("}) {
    auto twice = linesAskedFor(program, Asks::Twice, line);
    ASSERT_TRUE(twice);
    EXPECT_GT(twice->first, 0u) << line.str();
  }
  auto near = linesAskedFor(program, Asks::Twice);
  ASSERT_TRUE(near);
  EXPECT_EQ(near->first, 0u);
  // 16 KB ahead by the pass, which begins the next row.
  auto far = linesAskedFor(program, Asks::FarAhead, "prefetcht1\t16384(");
  ASSERT_TRUE(far);
  EXPECT_GT(far->first, 0u);
  far = linesAskedFor(program, Asks::FarAhead);
  ASSERT_TRUE(far);
  EXPECT_EQ(far->first, 0u);
}

// Sums by themselves: nothing is asked for on the first level, which reads a
// tile in order.
TEST(CompileProgramTest, RowsThatReduceAreAskedForTwice) {
  auto program = [](llvm::StringRef more) {
    return Program((R"mlir(
func.func @f(%x: tensor<8192x4096xf32>, %w: tensor<8192x4096xf32>)
    -> tensor<8192xf32> {
  %e = tensor.empty() : tensor<8192xf32>
  %p = refold.cascade rows(%i = 8192) stream(%j = 4096)
      ins(%a = %x : tensor<8192x4096xf32>, %b = %w : tensor<8192x4096xf32>)
      outs(%o = %e : tensor<8192xf32>) {
    %v = refold.read %a[%i, %j] : f32
    %u = refold.read %b[%i, %j] : f32
    %s = refold.state add(%v : f32)
    %one = arith.constant 1.0 : f32
    %n = refold.state add(%one : f32)
    %m = arith.divf %s, %n : f32
    %d = arith.subf %v, %m : f32
    %q = arith.mulf %d, %d : f32
    %r = arith.addf %q, )mlir" +
                    more + R"mlir( : f32
    %z = refold.state add(%r : f32)
        pivot(%m : f32) with(%s : f32, %n : f32)
        transport(%old, %new, %self, %sum, %count) {
      %two = arith.constant 2.0 : f32
      %0 = arith.subf %old, %new : f32
      %1 = arith.mulf %sum, %two : f32
      %2 = arith.addf %old, %new : f32
      %3 = arith.mulf %2, %count : f32
      %4 = arith.subf %1, %3 : f32
      %5 = arith.mulf %0, %4 : f32
      %6 = arith.addf %self, %5 : f32
      refold.yield %6 : f32
    } law "taylor-shift"
    refold.write %z, %o[%i] : f32
  }
  return %p : tensor<8192xf32>
})mlir")
                       .str());
  };
  Program one = program("%v"), two = program("%u");
  for (llvm::StringRef line : {"prefetcht1\t16384(", "prefetcht1\t8192("}) {
    auto ofOne = linesAskedFor(one, Asks::Twice, line);
    auto ofTwo = linesAskedFor(two, Asks::Twice, line);
    if (!ofOne || !ofTwo)
      GTEST_SKIP() << "no AVX-512";
    EXPECT_GT(ofOne->first, 0u) << line.str();
    EXPECT_EQ(ofTwo->second, 0u); // two arrays are the first cache
  }
}

// Rows of 4 KB: two of them are as far as others ask, four as far as this one,
// or eight into the second cache beside what the pass asks for.
TEST(CompileProgramTest, ShortRowsAreAskedForFurtherAhead) {
  Program program(R"mlir(
func.func @f(%x: tensor<32768x1024xf32>) -> tensor<32768x1024xf32> {
  %e = tensor.empty() : tensor<32768x1024xf32>
  %p = refold.cascade rows(%i = 32768) stream(%j = 1024)
      ins(%a = %x : tensor<32768x1024xf32>)
      outs(%o = %e : tensor<32768x1024xf32>) {
    %v = refold.read %a[%i, %j] : f32
    %w = arith.mulf %v, %v : f32
    %s = refold.state add(%w : f32)
    %y = arith.divf %v, %s : f32
    refold.write %y, %o[%i, %j] : f32
  }
  return %p : tensor<32768x1024xf32>
})mlir");
  auto usual = linesAskedFor(program, Asks::Usual, "prefetcht0\t8192(");
  auto first = linesAskedFor(program, Asks::IntoFirst, "prefetcht0\t16384(");
  if (!usual || !first)
    GTEST_SKIP() << "no AVX-512";
  EXPECT_GT(usual->first, 0u);
  EXPECT_GT(first->first, 0u);
  for (llvm::StringRef line : {"prefetcht0\t8192(", "prefetcht1\t32768("}) {
    auto far = linesAskedFor(program, Asks::FarAhead, line);
    ASSERT_TRUE(far);
    EXPECT_GT(far->first, 0u) << line.str();
  }
}

// Four rows share what they multiply: it comes from memory.
TEST(CompileProgramTest, SharedFactorsAreAskedForAsTheProcessorLikes) {
  Program program(R"mlir(
func.func @f(%x: tensor<32x16384xf32>, %w: tensor<8x16384x128xf32>)
    -> tensor<32x128xf32> {
  %e = tensor.empty() : tensor<32x128xf32>
  %p = refold.cascade rows(%i = 32) stream(%j = 16384) carried(%c = 128)
      ins(%a = %x : tensor<32x16384xf32>, %b = %w : tensor<8x16384x128xf32>)
      outs(%o = %e : tensor<32x128xf32>) {
    %lowest = arith.constant -3.40282347E+38 : f32
    %s = refold.read %a[%i, %j] : f32
    %v = refold.read %b[%i floordiv 4, %j, %c] : f32
)mlir" + test::softmaxOf("s", "v", "0") +
                  R"mlir(
    %y = arith.divf %a0, %z0 : f32
    refold.write %y, %o[%i, %c] : f32
  }
  return %p : tensor<32x128xf32>
})mlir");
  auto usual = linesAskedFor(program, Asks::Usual);
  auto first = linesAskedFor(program, Asks::IntoFirst);
  if (!usual || !first)
    GTEST_SKIP() << "no AVX-512";
  EXPECT_GE(first->first, usual->first + 4);
  EXPECT_EQ(first->second, 0u);
  for (llvm::StringRef line : {"prefetcht1\t16384(", "prefetcht1\t8192("}) {
    auto twice = linesAskedFor(program, Asks::Twice, line);
    ASSERT_TRUE(twice);
    EXPECT_GT(twice->first, 0u) << line.str();
  }
}

// Four keys are in work side by side, or sixteen: rows that lie together.
TEST(CompileProgramTest, KeysAreAskedForInOrder) {
  for (bool isShared : {true, false}) {
    std::string head = isShared ? "%i floordiv 4" : "%i";
    Program program(R"mlir(
func.func @f(%x: tensor<32x128xf32>, %w: tensor<32x16384x128xf32>)
    -> tensor<32xf32> {
  %e = tensor.empty() : tensor<32xf32>
  %p = refold.cascade rows(%i = 32) stream(%j = 16384) inner(%d = 128)
      ins(%a = %x : tensor<32x128xf32>, %b = %w : tensor<32x16384x128xf32>)
      outs(%o = %e : tensor<32xf32>) {
    %lowest = arith.constant -3.40282347E+38 : f32
    %q = refold.read %a[%i, %d] : f32
    %k = refold.read %b[)mlir" +
                    head + R"mlir(, %j, %d] : f32
    %m = arith.mulf %q, %k : f32
    %s = refold.contract %m over(%d) : f32
    %t = refold.state max(%s : f32)
    refold.write %t, %o[%i] : f32
  }
  return %p : tensor<32xf32>
})mlir");
    // The seventh line of the keys ahead; no step reads it of its own keys.
    llvm::StringRef line = "prefetcht0\t8576(";
    auto usual = linesAskedFor(program, Asks::Usual, line);
    auto first = linesAskedFor(program, Asks::IntoFirst, line);
    if (!usual || !first)
      GTEST_SKIP() << "no AVX-512";
    EXPECT_EQ(usual->first, 0u);
    EXPECT_EQ(usual->second > 0, isShared);
    auto twice = linesAskedFor(program, Asks::Twice);
    ASSERT_TRUE(twice);
    EXPECT_GT(twice->second, 0u); // of rows by themselves, too
    EXPECT_EQ(first->first, 1u);
    EXPECT_EQ(first->second, 0u);
    // Into the second cache twice as far, and nothing into the first.
    auto far = linesAskedFor(program, Asks::InOrder, "prefetcht1\t16768(");
    auto near = linesAskedFor(program, Asks::InOrder);
    ASSERT_TRUE(far && near);
    EXPECT_EQ(far->first, 1u);
    EXPECT_EQ(near->first, 0u);
  }
}
