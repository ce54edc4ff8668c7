// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How many cores the machine has decides how work is divided, never in which
// order anything is summed: results have the same bits wherever they are made.
// Nor do rows see how many of them there are.
#include "refold/Driver/Compare.h"
#include "refold/Driver/Driver.h"
#include "refold/Driver/Inputs.h"
#include "refold/Target/CPU/CompileProgram.h"
#include "gtest/gtest.h"

using namespace refold;

namespace {
constexpr llvm::StringLiteral kAttention =
    "f(q[h,m,d=32], k[h,n,d=32], v[h,n,e=32]) -> o\n"
    "  s = sum(d: q*k) * rsqrt(len(d))\n"
    "  p = exp(s - max(n: s))\n"
    "  o[h,m,e] = sum(n: p*v) / sum(n: p)\n";
constexpr llvm::StringLiteral kCausal =
    "f(q[h,m,d=32], k[h,n,d=32], v[h,n,e=32]) -> o\n"
    "  s = where(n <= m, sum(d: q*k), -inf)\n"
    "  p = exp(s - max(n: s))\n"
    "  o[h,m,e] = sum(n: p*v) / sum(n: p)\n";
constexpr llvm::StringLiteral kLatent =
    "f(q[b,h,d=72], c[b,n,d=72]) -> o\n"
    "  s = sum(d: q*c) * rsqrt(len(d))\n"
    "  p = exp(s - max(n: s))\n"
    "  o[b,h,d] = sum(n: p*c) / sum(n: p)\n";
constexpr llvm::StringLiteral kRouting =
    "f(x[m,d], w[d,n]) -> weight, expert: i32\n"
    "  s[m,n] = sum(d: x*w)\n"
    "  t = max(n: s)\n"
    "  z = sum(n: exp(s - t))\n"
    "  best[m,r], expert[m,r] = topk(n: s, 4)\n"
    "  weight = exp(best - t) / z\n";
constexpr llvm::StringLiteral kRows =
    "f(x[m=3,n]) -> y, v\n"
    "  y = log(sum(n: exp(x - max(n: x)))) + max(n: x)\n"
    "  v = mean(n: (x - mean(n: x))^2)\n";
constexpr llvm::StringLiteral kEntropy =
    "f(x[m,n]) -> h, l\n"
    "  t = max(n: x)\n"
    "  e = exp(x - t)\n"
    "  l = t + log(sum(n: e))\n"
    "  h = l - sum(n: e * x) / sum(n: e)\n";
constexpr llvm::StringLiteral kNorm =
    "f(x[m,n], gamma[n], beta[n]) -> y\n"
    "  mu = mean(n: x)\n"
    "  y = (x - mu) * rsqrt(mean(n: (x - mu)^2) + 1e-5) * gamma + beta\n";
constexpr llvm::StringLiteral kStandardised =
    "f(x[m,n]) -> y\n"
    "  mu = mean(n: x)\n"
    "  y = (x - mu) * rsqrt(mean(n: (x - mu)^2) + 1e-5)\n";
constexpr llvm::StringLiteral kNormAndProduct =
    "f(x[m,n], w[n,j]) -> o\n"
    "  s = rsqrt(mean(n: x^2) + 1e-5)\n"
    "  o[m,j] = sum(n: x*s*w)\n";
constexpr llvm::StringLiteral kGated = "f(x[m,n], w[n,j], u[n,j]) -> o\n"
                                       "  s = rsqrt(mean(n: x^2) + 1e-5)\n"
                                       "  a[m,j] = sum(n: x*s*w)\n"
                                       "  b[m,j] = sum(n: x*s*u)\n"
                                       "  o = a / (1 + exp(-a)) * b\n";
constexpr llvm::StringLiteral kProduct = "f(x[m,n], w[n,j]) -> o\n"
                                         "  o[m,j] = sum(n: x*w)\n";

class CoresTest : public testing::Test {
protected:
  struct Compiled {
    std::vector<Port> inputs;
    Executable executable;
  };
  /// `text` as it is compiled for so many cores. The second cache is small, so
  /// that what is divided for it is divided here too.
  Compiled compile(llvm::StringRef text, int64_t cores) {
    LoadedProgram program =
        llvm::cantFail(loadFoldText(*context, text, "test.fold"));
    CpuTarget target = llvm::cantFail(detectTarget());
    target.facts.cores = cores;
    target.facts.l2Bytes = l2Bytes;
    FuseOptions options;
    options.policy = FusePolicy::Always;
    options.certify = false;
    options.facts = target.facts;
    llvm::cantFail(fuse(*program.module, options));
    return {program.inputs, Executable(llvm::cantFail(
                                compileProgram(*program.module, target)))};
  }

  static std::vector<Tensor> run(Compiled &program,
                                 llvm::ArrayRef<Tensor> inputs) {
    return llvm::cantFail(program.executable.run(inputs, /*threads=*/2));
  }

  std::vector<std::vector<Tensor>> resultsOf(llvm::StringRef text,
                                             int64_t cores,
                                             llvm::ArrayRef<Extents> shapes) {
    Compiled program = compile(text, cores);
    std::vector<std::vector<Tensor>> results;
    for (const Extents &shape : shapes)
      results.push_back(
          run(program, llvm::cantFail(makeInputs(program.inputs, shape,
                                                 InputRecipe(), {}, 1))));
    return results;
  }

  /// Row `row` of what has rows, as an array of one row.
  static Tensor rowOf(const Tensor &all, int64_t row) {
    llvm::SmallVector<int64_t, 4> shape(all.shape());
    shape[0] = 1;
    return Tensor::borrow(all.dtype(), shape, all.strides(),
                          all.at(row * (all.numElements() / all.shape()[0])));
  }

  /// Each of some rows of the first input by itself, of some families.
  void expectSameAlone(Compiled &program, int64_t rows, int64_t length) {
    for (InputFamily family :
         {InputFamily::Normal, InputFamily::Offset, InputFamily::Growing,
          InputFamily::NegInf, InputFamily::NaN}) {
      std::vector<Tensor> inputs = llvm::cantFail(makeInputs(
          program.inputs, {{"m", rows}, {"n", length}}, {family}, {}, 1));
      Tensor among = run(program, inputs)[0], x = inputs[0];
      for (int64_t row : {int64_t(0), rows / 2, rows - 1}) {
        inputs[0] = rowOf(x, row);
        EXPECT_TRUE(hasEqualBits(run(program, inputs)[0], rowOf(among, row)))
            << "row " << row << " of " << rows << " x " << length << ", "
            << describe({family});
      }
    }
  }

  void expectSameBits(llvm::StringRef text, llvm::ArrayRef<Extents> shapes) {
    auto few = resultsOf(text, 1, shapes);
    for (int64_t cores : {2, 16, 96}) {
      auto more = resultsOf(text, cores, shapes);
      for (auto [k, shape] : llvm::enumerate(shapes)) {
        std::string at;
        for (auto &[dim, extent] : shape)
          at += dim + "=" + std::to_string(extent) + " ";
        EXPECT_TRUE(llvm::equal(few[k], more[k], hasEqualBits))
            << cores << " cores, " << at << "of\n"
            << text.str();
      }
    }
  }

  int64_t l2Bytes = 256 << 10;
  std::unique_ptr<mlir::MLIRContext> context = makeContext();
};
} // namespace

TEST_F(CoresTest, Attention) {
  std::vector<Extents> shapes;
  for (int64_t m : {1, 3, 40, 197, 300})
    for (int64_t n : {197, 1025})
      shapes.push_back({{"h", 3}, {"m", m}, {"n", n}});
  expectSameBits(kAttention, shapes);
  expectSameBits(kCausal, shapes);
}

/// Known numbers of rows, beside a large second cache.
TEST_F(CoresTest, KnownRows) {
  l2Bytes = 2 << 20;
  for (const char *rows : {"m=40", "m=197", "m=250"}) {
    std::string text = kAttention.str();
    text.replace(text.find("[h,m,"), 5, "[h," + std::string(rows) + ",");
    std::vector<Extents> shapes;
    for (int64_t n : {197, 1025})
      shapes.push_back({{"h", 5}, {"n", n}});
    expectSameBits(text, shapes);
  }
}

TEST_F(CoresTest, Latent) {
  std::vector<Extents> shapes;
  for (int64_t h : {1, 16, 100, 200})
    for (int64_t n : {300, 3000})
      shapes.push_back({{"b", 2}, {"h", h}, {"n", n}});
  expectSameBits(kLatent, shapes);
}

TEST_F(CoresTest, Routing) {
  std::vector<Extents> shapes;
  for (int64_t m : {1, 5, 16, 64, 128, 300})
    for (int64_t d : {70, 600})
      shapes.push_back({{"m", m}, {"d", d}, {"n", 48}});
  expectSameBits(kRouting, shapes);
}

TEST_F(CoresTest, LongRows) {
  expectSameBits(kRows, {{{"n", 1000}}, {{"n", 70000}}, {{"n", 1000000}}});
}

/// Rows of which a register's worth is merged at once.
TEST_F(CoresTest, GroupedRows) {
  std::vector<Extents> shapes;
  for (int64_t m : {1, 5, 40, 700})
    for (int64_t n : {100, 200, 1000, 5000})
      shapes.push_back({{"m", m}, {"n", n}});
  expectSameBits(kEntropy, shapes);
}

/// Rows that are swept together, as many as give each core an item.
TEST_F(CoresTest, RowsSweptTogether) {
  std::vector<Extents> shapes;
  for (int64_t m : {1, 5, 40})
    for (int64_t n : {16384, 20001})
      shapes.push_back({{"m", m}, {"n", n}});
  expectSameBits(kNorm, shapes);
}

TEST_F(CoresTest, Products) {
  std::vector<Extents> shapes;
  for (int64_t m : {1, 3, 8, 33, 130, 700})
    for (int64_t n : {90, 1500})
      shapes.push_back({{"m", m}, {"n", n}, {"j", 300}});
  expectSameBits(kProduct, shapes);
  expectSameBits(kNormAndProduct, shapes);
  expectSameBits(kGated, shapes);
}

/// How wide tiles of columns are follows from the cores where the number of
/// columns is known.
TEST_F(CoresTest, Columns) {
  for (const char *columns : {"m=300", "m=1500", "m=4096", "m"}) {
    std::string text = "f(x[n," + std::string(columns) +
                       "], gamma[n]) -> y\n"
                       "  mu = mean(n: x)\n"
                       "  v = mean(n: (x - mu)^2)\n"
                       "  y[n,m] = (x - mu) * rsqrt(v + 1e-5) * gamma\n";
    bool isOpen = llvm::StringRef(columns) == "m";
    std::vector<Extents> shapes;
    for (int64_t n : {3, 200, 3000}) {
      shapes.push_back({{"n", n}});
      if (isOpen)
        shapes.back()["m"] = 700;
    }
    expectSameBits(text, shapes);
  }
}

/// Rows that are swept together and rows one by one, of one tile and of several
/// about trailing means.
TEST_F(CoresTest, RowsAlone) {
  for (llvm::StringRef text : {kNorm, kStandardised}) {
    SCOPED_TRACE(text.str());
    Compiled program = compile(text, /*cores=*/2);
    for (int64_t length : {1, 17, 100, 4097, 20001})
      expectSameAlone(program, 37, length);
  }
}
