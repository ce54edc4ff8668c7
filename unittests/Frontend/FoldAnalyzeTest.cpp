// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Frontend/Fold/Program.h"
#include "gtest/gtest.h"

using namespace refold;
using namespace refold::fold;

namespace {

Result<Program> analyzed(const std::string &source,
                         const Options &options = {}) {
  Result<Ast> ast = parse(source);
  if (const Error *error = std::get_if<Error>(&ast))
    return *error;
  return analyze(std::get<Ast>(ast), options);
}

/// "y[b, n]: f32" for the latest definition of a name, or the error.
std::string signatureOf(const std::string &name, const std::string &source,
                        const Options &options = {}) {
  Result<Program> result = analyzed(source, options);
  if (const Error *error = std::get_if<Error>(&result))
    return std::to_string(error->pos.line) + ":" +
           std::to_string(error->pos.column) + ": " + error->message;
  const Program &program = std::get<Program>(result);
  std::string text = "no such name";
  for (const Variable &value : program.values) {
    if (value.name != name)
      continue;
    text = name + "[";
    for (AxisId axis : value.axes) {
      text += (text.back() == '[' ? "" : ", ") + program.axes[axis].name;
      if (std::optional<int64_t> extent = program.fixedExtent(axis))
        text += "=" + std::to_string(*extent);
    }
    text += "]: " + nameOf(value.dtype).str();
  }
  return text;
}

/// The type that an expression over x: f32, f: f16, d: f64, i: i32, j: i64,
/// c: i8, u: u8, t: bool has on its own.
std::string typeOf(const std::string &expression) {
  std::string text = signatureOf(
      "z", "g(x[n], f[n]: f16, d[n]: f64, i[n]: i32, j[n]: i64, c[n]: i8, "
           "u[n]: u8, t[n]: bool) -> y\nz = " +
               expression + "\ny = 0\n");
  size_t colon = text.rfind(": ");
  return text.rfind("z[", 0) == 0 ? text.substr(colon + 2) : text;
}

TEST(FoldAnalyzeTest, AxesAreTheUnionInOrderOfAppearance) {
  const char *header = "g(q[b,m,d], k[b,n,d], w[n]) -> y\n";
  auto axesOf = [&](const std::string &definition) {
    return signatureOf("y", header + definition + "\n");
  };
  EXPECT_EQ(axesOf("y = q*k"), "y[b, m, d, n]: f32");
  EXPECT_EQ(axesOf("y = k*q"), "y[b, n, d, m]: f32");
  EXPECT_EQ(axesOf("y = sum(d: q*k)"), "y[b, m, n]: f32");
  EXPECT_EQ(axesOf("y[n,m,b] = sum(d: q*k)"), "y[n, m, b]: f32");
  EXPECT_EQ(axesOf("y[m,b] = sum(d, n: q*k)"), "y[m, b]: f32");
  EXPECT_EQ(axesOf("y = sum(b, m, d: q)"), "y[]: f32");
  // Index values come after what is read: the order of s survives a mask.
  EXPECT_EQ(axesOf("y = where(n <= m, sum(d: q*k), -inf)"), "y[b, m, n]: f32");
  EXPECT_EQ(axesOf("y[b,n] = w"), "y[b, n]: f32");
  EXPECT_EQ(axesOf("y = k[b, j, d] + w[j]"), "y[b, j, d]: f32");
}

TEST(FoldAnalyzeTest, RedefinitionReadsTheEarlierValue) {
  Result<Program> result = analyzed("g(x[n]) -> x\nx = x + 1\nx = sum(n: x)\n");
  ASSERT_TRUE(std::holds_alternative<Program>(result));
  const Program &program = std::get<Program>(result);
  ASSERT_EQ(program.values.size(), 3u);
  EXPECT_EQ(program.outputs.front(), 2u);
  EXPECT_EQ(program.values[0].readers, 1u);
  EXPECT_EQ(program.values[1].readers, 1u);
}

TEST(FoldAnalyzeTest, TypesFollowThePage) {
  EXPECT_EQ(typeOf("f * f"), "f32");
  EXPECT_EQ(typeOf("f"), "f16"); // stored as it is read, no rounding
  EXPECT_EQ(typeOf("x * d"), "f64");
  EXPECT_EQ(typeOf("i * c"), "i32");
  EXPECT_EQ(typeOf("u + u"), "i32");
  EXPECT_EQ(typeOf("t + t"), "i32");
  EXPECT_EQ(typeOf("i + j"), "i64");
  EXPECT_EQ(typeOf("n + i"), "i64");
  EXPECT_EQ(typeOf("i // 2"), "i32");
  EXPECT_EQ(typeOf("i + 1"), "i32");
  EXPECT_EQ(typeOf("i + 5000000000"), "i64");
  EXPECT_EQ(typeOf("x / n"), "f32");
  EXPECT_EQ(typeOf("x < 1"), "bool");
  EXPECT_EQ(typeOf("isnan(x) or t"), "bool");
  EXPECT_EQ(typeOf("where(t, c, u)"), "i32");
  EXPECT_EQ(typeOf("where(t, t, not t)"), "bool");
  EXPECT_EQ(typeOf("i8(x)"), "i8");
  EXPECT_EQ(typeOf("i8(x) * 2"), "i32");
  EXPECT_EQ(typeOf("f16(x) + 1"), "f32");
  EXPECT_EQ(typeOf("sum(n: c)"), "i32");
  EXPECT_EQ(typeOf("sum(n: t)"), "i32");
  EXPECT_EQ(typeOf("sum(n: n)"), "i64");
  EXPECT_EQ(typeOf("any(n: t)"), "bool");
  EXPECT_EQ(typeOf("argmax(n: f)"), "i32");
}

TEST(FoldAnalyzeTest, WhatReadsNoDataTakesThePrecisionOfItsUser) {
  EXPECT_EQ(typeOf("x * rsqrt(len(n))"), "f32");
  EXPECT_EQ(typeOf("d * rsqrt(len(n))"), "f64");
  EXPECT_EQ(typeOf("f * (pi / 3)"), "f32");
  // i / 3 is real without a real operand: f64 in a program that has f64.
  EXPECT_EQ(typeOf("i / 3"), "f64");
}

TEST(FoldAnalyzeTest, OutputsAreRoundedOnceAndDefaultToF32) {
  EXPECT_EQ(signatureOf("y", "g(x[n]: f64) -> y: bf16\ny = x\n"), "y[n]: bf16");
  EXPECT_EQ(signatureOf("y", "g(x[n]: i32) -> y\ny = x\n"), "y[n]: f32");
  Result<Program> result =
      analyzed("g(x[n]) -> y: f16, z\ny = x + 1\nz = y * 2\n");
  const Program &program = std::get<Program>(result);
  // z reads y before it is rounded.
  EXPECT_EQ(program.values[1].dtype, DType::F32);
  EXPECT_EQ(program.values[program.outputs[0]].dtype, DType::F16);
  EXPECT_EQ(program.statements.size(), 3u);
}

TEST(FoldAnalyzeTest, OptionsFixExtentsAndStorage) {
  Options options;
  options.dims = {{"n", 512}};
  options.storage = DType::F16;
  std::string source = "g(x[m,n], k[n]: f8e4m3, l[m]: i64) -> y: f64, i: i32\n"
                       "y = x * k\ni = l\n";
  EXPECT_EQ(signatureOf("x", source, options), "x[m, n=512]: f16");
  EXPECT_EQ(signatureOf("y", source, options), "y[m, n=512]: f16");
  EXPECT_EQ(signatureOf("k", source, options), "k[n=512]: f8e4m3");
  EXPECT_EQ(signatureOf("i", source, options), "i[m]: i32");
  options.storage = DType::I32;
  EXPECT_EQ(signatureOf("x", source, options),
            "1:1: found dtype i32 for real arguments and outputs, expected a "
            "real one");
  options.storage = std::nullopt;
  options.dims = {{"nn", 512}};
  EXPECT_EQ(
      signatureOf("x", source, options),
      "1:1: found unknown name 'nn', expected an axis; did you mean 'n'?");
  options.dims = {{"n", -1}};
  EXPECT_EQ(signatureOf("x", source, options),
            "1:1: found extent -1 for axis 'n', expected 0 to 2^40");
  options.dims = {{"n", 4}};
  EXPECT_EQ(signatureOf("x", "g(x[n=5]) -> y\ny = x\n", options),
            "1:1: found extent 4 for axis 'n', expected 5 as fixed before");
}

TEST(FoldAnalyzeTest, SubscriptAxesTakeTheExtentTheyRunOver) {
  EXPECT_EQ(signatureOf("s", "g(x[n=7,d]) -> s\ns[n,j] = sum(d: x*x[j,d])\n"),
            "s[n=7, j=7]: f32");
  // The axis is known before it is read.
  EXPECT_EQ(signatureOf("s", "g(x[n=7]) -> s\ns = sum(j: where(j < n, x[j], "
                             "0))\n"),
            "s[n=7]: f32");
  Options options;
  options.dims = {{"e", 5}};
  EXPECT_EQ(signatureOf("s", "g(c[d=7]) -> s\ns = c[e]\n", options),
            "s[e=5]: f32");
}

TEST(FoldAnalyzeTest, AxesThatOnlyNameEachOtherHaveNoExtent) {
  std::string message = ": found axis 't' without an extent, expected it among "
                        "the axes of an argument";
  EXPECT_EQ(signatureOf("y", "g(x[n]) -> z\ny[t] = 1\nz = y[t]\n"),
            "2:3" + message);
  EXPECT_EQ(signatureOf("y", "g(x[n]) -> z\ny[t] = 1\nw = y[u]\nz = w[t]\n"),
            "2:3" + message);
}

/// How each subscript of the last read of a value is known to be in range.
std::vector<Bound> boundsOf(const std::string &source) {
  Result<Program> result = analyzed(source);
  std::vector<Bound> bounds;
  if (const Program *program = std::get_if<Program>(&result))
    for (const Node &node : program->nodes)
      if (!node.bounds.empty())
        bounds = node.bounds;
  return bounds;
}

TEST(FoldAnalyzeTest, SubscriptsAreProvedOrChecked) {
  using B = std::vector<Bound>;
  auto P = Bound::Proved, E = Bound::Extents, D = Bound::Data;
  EXPECT_EQ(boundsOf("g(k[b,g], q[b,h]) -> y\ny = q * k[b, h//4]\n"),
            (B{P, E}));
  EXPECT_EQ(boundsOf("g(k[b,g=2], q[b,h=8]) -> y\ny = q * k[b, h//4]\n"),
            (B{P, P}));
  EXPECT_EQ(boundsOf("g(x[n,d]) -> y\ny[n,j] = x[n, j]\n"), (B{P, P}));
  EXPECT_EQ(boundsOf("g(c[d], w[e]) -> y\ny = w * c[e]\n"), (B{E}));
  EXPECT_EQ(boundsOf("g(c[d=9], w[e=9]) -> y\ny = w * c[e]\n"), (B{P}));
  EXPECT_EQ(boundsOf("g(x[m,n], l[m]: i64) -> y\ny = x[m, l]\n"), (B{P, D}));
  EXPECT_EQ(boundsOf("g(x[n], w[m]) -> y\ny = w * x[m % 4]\n"), (B{E}));
  EXPECT_EQ(boundsOf("g(x[n=4], w[m]) -> y\ny = w * x[m % 4]\n"), (B{P}));
  EXPECT_EQ(boundsOf("g(x[n]) -> y\ny[n] = x[len(n) - 1 - n]\n"), (B{E}));
  // Products that may wrap in i64 are looked at one by one.
  EXPECT_EQ(boundsOf("g(x[n]) -> y\ny[n] = x[n*8]\n"), (B{E}));
  EXPECT_EQ(boundsOf("g(x[n]) -> y\ny[n] = x[n*n]\n"), (B{D}));
  EXPECT_EQ(boundsOf("g(x[n=9]) -> y\ny[n] = x[n*n//9]\n"), (B{P}));
  EXPECT_EQ(boundsOf("g(x[n]) -> y\ny[n] = x[n*n*n*n % 4]\n"), (B{D}));
  EXPECT_EQ(boundsOf("g(x[n=0]) -> y\ny[n] = x[n + 3]\n"), (B{P}));
}

TEST(FoldAnalyzeTest, TopKMakesAnAxis) {
  std::string header = "g(x[m,n]) -> v, i: i32\n";
  EXPECT_EQ(signatureOf("v", header + "v[r,m], i = topk(n: x, 8)\n"),
            "v[r=8, m]: f32");
  EXPECT_EQ(signatureOf("i", header + "v[r,m], i = topk(n: x, 8)\n"),
            "i[r=8, m]: i32");
  EXPECT_EQ(signatureOf("v", header + "v[m,r,n], i = topk(n: x, 8)\n"),
            "2:7: found a second new axis 'n', expected one of extent 8");
}

} // namespace
