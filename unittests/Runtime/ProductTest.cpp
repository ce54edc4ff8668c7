// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of every layout and type against plain sums in double.
#include "refold/Runtime/Executable.h"

#include "refold/Support/RandomInputs.h"
#include "gtest/gtest.h"
#include <cmath>
#include <cstring>
#include <random>

using namespace refold;

namespace {
/// A product of random arrays: sizes, how each operand lies, and types.
struct Case {
  int64_t batch, m, n, k;
  bool lhsTransposed = false, rhsTransposed = false, resultTransposed = false;
  bool rhsShared = false; ///< one right side for the whole batch
  bool rhsConstant = false;
  int64_t gap = 0; ///< elements between rows
  DType lhsType = DType::F32, rhsType = DType::F32, resultType = DType::F32;
  bool hasBias = false;
  Activation activation = Activation::None;
};

/// A matrix stack: offset 0, strides for batch, rows and columns.
struct Layout {
  int64_t batchStride, rowStride, colStride, elements;
};
} // namespace

static Layout layoutOf(int64_t batch, int64_t rows, int64_t cols,
                       bool isTransposed, int64_t gap, bool isShared) {
  int64_t major = isTransposed ? cols : rows,
          minor = isTransposed ? rows : cols;
  int64_t pitch = minor + gap;
  int64_t each = major * pitch;
  return {isShared ? 0 : each, isTransposed ? 1 : pitch,
          isTransposed ? pitch : 1, isShared ? each : batch * each};
}

static ViewSpec viewOf(unsigned buffer, DType dtype, const Layout &layout,
                       int64_t batch, int64_t rows, int64_t cols) {
  ViewSpec view;
  view.buffer = buffer;
  view.dtype = dtype;
  for (int64_t size : {batch, rows, cols})
    view.sizes.push_back(size);
  for (int64_t stride :
       {layout.batchStride, layout.rowStride, layout.colStride})
    view.strides.push_back(stride);
  return view;
}

static Tensor random1D(DType dtype, int64_t count, llvm::StringRef name) {
  Tensor tensor = llvm::cantFail(Tensor::create(dtype, {count}));
  fillRandom(tensor, InputRecipe(), 3, name);
  return tensor;
}

static double activate(Activation activation, double x) {
  switch (activation) {
  case Activation::None:
    return x;
  case Activation::Relu:
    return std::max(x, 0.0);
  case Activation::GeluErf:
    return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  case Activation::Tanh:
    return std::tanh(x);
  }
  return x;
}

/// The largest error relative to sum |a b|, or 1 where the run failed.
static double errorOf(const Case &c, unsigned threads,
                      std::vector<char> *bytes = nullptr) {
  Layout lhs = layoutOf(c.batch, c.m, c.k, c.lhsTransposed, c.gap, false);
  Layout rhs = layoutOf(c.batch, c.k, c.n, c.rhsTransposed, c.gap, c.rhsShared);
  Layout out = layoutOf(c.batch, c.m, c.n, c.resultTransposed, 0, false);
  Tensor a = random1D(c.lhsType, lhs.elements, "a");
  Tensor b = random1D(c.rhsType, rhs.elements, "b");
  Tensor bias = random1D(c.resultType, c.n, "bias");

  ExecutableSpec spec;
  spec.instructionSet = InstructionSet::AVX512;
  auto addInput = [&](const char *name, const Tensor &tensor) {
    InputSpec input{name, tensor.dtype(), {}};
    input.dims.push_back({"", tensor.shape()[0], 0});
    spec.inputs.push_back(input);
    BufferSpec buffer;
    buffer.kind = BufferKind::Input;
    buffer.port = spec.inputs.size() - 1;
    buffer.bytes = tensor.numBytes();
    spec.buffers.push_back(buffer);
    return unsigned(spec.buffers.size() - 1);
  };
  std::vector<Tensor> inputs = {a, bias};
  ProductStep step;
  step.lhs = viewOf(addInput("a", a), c.lhsType, lhs, c.batch, c.m, c.k);
  unsigned biasBuffer = addInput("bias", bias);
  unsigned rhsBuffer = 0;
  if (c.rhsConstant) {
    BufferSpec buffer;
    buffer.kind = BufferKind::Constant;
    buffer.data = b.data();
    buffer.bytes = b.numBytes();
    spec.buffers.push_back(buffer);
    rhsBuffer = spec.buffers.size() - 1;
  } else {
    rhsBuffer = addInput("b", b);
    inputs.push_back(b);
  }
  step.rhs = viewOf(rhsBuffer, c.rhsType, rhs, c.batch, c.k, c.n);
  BufferSpec result;
  result.kind = BufferKind::Output;
  spec.buffers.push_back(result);
  spec.outputs.push_back({"c", c.resultType, {SizeExpr(out.elements)}});
  step.result =
      viewOf(spec.buffers.size() - 1, c.resultType, out, c.batch, c.m, c.n);
  if (c.hasBias) {
    step.bias = ViewSpec();
    step.bias->buffer = biasBuffer;
    step.bias->dtype = c.resultType;
    step.bias->sizes = {SizeExpr(c.n)};
    step.bias->strides = {SizeExpr(1)};
  }
  step.activation = c.activation;
  spec.steps.push_back({step, "product"});

  Executable executable(std::move(spec));
  auto outputs = executable.run(inputs, threads);
  if (!outputs) {
    ADD_FAILURE() << llvm::toString(outputs.takeError());
    return 1.0;
  }
  Tensor &found = (*outputs)[0];
  if (bytes)
    bytes->assign(static_cast<char *>(found.data()),
                  static_cast<char *>(found.data()) + found.numBytes());
  double worst = 0.0;
  for (int64_t x = 0; x < c.batch; ++x)
    for (int64_t i = 0; i < c.m; ++i)
      for (int64_t j = 0; j < c.n; ++j) {
        double sum = 0.0, size = 1e-30;
        for (int64_t k = 0; k < c.k; ++k) {
          double product = a.get(x * lhs.batchStride + i * lhs.rowStride +
                                 k * lhs.colStride) *
                           b.get(x * rhs.batchStride + k * rhs.rowStride +
                                 j * rhs.colStride);
          sum += product;
          size += std::abs(product);
        }
        if (c.hasBias) {
          sum += bias.get(j);
          size += std::abs(bias.get(j));
        }
        double expected = activate(c.activation, sum);
        double got = found.get(x * out.batchStride + i * out.rowStride +
                               j * out.colStride);
        double error = std::abs(got - expected) / size;
        if (!(error <= worst))
          worst = error;
      }
  return worst;
}

TEST(ProductTest, EveryLayout) {
  std::mt19937 random(5);
  for (int bits = 0; bits < 64; ++bits) {
    Case c;
    c.batch = 1 + random() % 3;
    c.m = 1 + random() % 70;
    c.n = 1 + random() % 70;
    c.k = 1 + random() % 70;
    c.lhsTransposed = bits & 1;
    c.rhsTransposed = bits & 2;
    c.resultTransposed = bits & 4;
    c.rhsShared = bits & 8;
    c.rhsConstant = bits & 16;
    c.gap = bits & 32 ? 3 : 0;
    EXPECT_LE(errorOf(c, 1), 2e-6)
        << bits << ": " << c.batch << " " << c.m << " " << c.n << " " << c.k;
  }
}

TEST(ProductTest, OddAndEmptyShapes) {
  for (auto [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                         {1, 1000, 17},
                         {1000, 1, 17},
                         {129, 513, 1},
                         {0, 5, 5},
                         {5, 0, 5},
                         {5, 5, 0},
                         {131, 1153, 65}})
    for (bool isConstant : {false, true}) {
      Case c;
      c.batch = 1;
      c.m = m;
      c.n = n;
      c.k = k;
      c.rhsConstant = isConstant;
      EXPECT_LE(errorOf(c, 2), 2e-6) << m << " " << n << " " << k;
    }
}

TEST(ProductTest, EveryType) {
  using D = DType;
  for (auto [lhs, rhs, result, bound] :
       {std::tuple<D, D, D, double>{D::F64, D::F64, D::F64, 1e-15},
        {D::BF16, D::BF16, D::F32, 2e-6},
        {D::F8E4M3, D::F32, D::F32, 2e-6},
        {D::F32, D::F8E5M2, D::F32, 2e-6},
        {D::F8E4M3, D::F8E4M3, D::F32, 2e-6},
        {D::F16, D::F32, D::F32, 2e-6},
        {D::F32, D::F16, D::F32, 2e-6},
        {D::I8, D::I8, D::I32, 0.0},
        {D::U8, D::I8, D::I32, 0.0},
        {D::I32, D::I32, D::I64, 0.0}})
    for (bool isConstant : {false, true}) {
      Case c;
      c.batch = 2;
      c.m = 33;
      c.n = 20;
      c.k = 47;
      c.lhsType = lhs;
      c.rhsType = rhs;
      c.resultType = result;
      c.rhsConstant = isConstant;
      c.rhsShared = isConstant;
      EXPECT_LE(errorOf(c, 2), bound) << nameOf(lhs).str() << nameOf(rhs).str();
    }
}

TEST(ProductTest, Epilogues) {
  for (Activation activation : {Activation::None, Activation::Relu,
                                Activation::GeluErf, Activation::Tanh})
    for (bool isTransposed : {false, true})
      for (DType type : {DType::F32, DType::F64})
        for (int64_t k : {0, 30}) {
          Case c;
          c.batch = 1;
          c.m = 45;
          c.n = 37;
          c.k = k;
          c.hasBias = true;
          c.activation = activation;
          c.resultTransposed = isTransposed;
          c.lhsType = c.rhsType = c.resultType = type;
          EXPECT_LE(errorOf(c, 1), 2e-6) << int(activation) << isTransposed;
        }
}

TEST(ProductTest, BitsDoNotDependOnThreads) {
  for (bool isConstant : {false, true}) {
    Case c;
    c.batch = 3;
    c.m = 150;
    c.n = 700;
    c.k = 21;
    c.rhsConstant = isConstant;
    std::vector<char> one, two, five;
    errorOf(c, 1, &one);
    errorOf(c, 2, &two);
    errorOf(c, 5, &five);
    EXPECT_EQ(one, two);
    EXPECT_EQ(one, five);
  }
}
