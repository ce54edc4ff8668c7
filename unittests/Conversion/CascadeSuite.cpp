// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Cascades that the walk has no line for: what is under test is that it needs
// none.
#include "CascadeSuite.h"

#include "../Dialect/CascadeText.h"

using namespace refold;
using namespace refold::test;

//===----------------------------------------------------------------------===//
// Pieces of formulas
//===----------------------------------------------------------------------===//

static const char *kScores = R"(
%qv = refold.read %q[%b, %h, %m, %d] : f32
%kv = refold.read %k[%b, %h floordiv 2, %n, %d] : f32
%qk = arith.mulf %qv, %kv : f32
%s0 = refold.contract %qk over(%d) : f32
%vv = refold.read %v[%b, %h floordiv 2, %n, %e] : f32
)";
static const char *kOutput = R"(
%r = arith.divf %a, %z : f32
refold.write %r, %o[%b, %h, %m, %e] : f32
)";

namespace {
using Indices = std::vector<SuiteIndex>;
/// Extents of the case in work; `cascadeSuite` sets them.
int64_t B, H, M, N, D, E, I, J;
const std::string kReadX = "%v = refold.read %x[%i, %j] : f32\n";

Indices attentionIndices() {
  return {{"b", "rows", B},   {"h", "rows", H},  {"m", "rows", M},
          {"n", "stream", N}, {"d", "inner", D}, {"e", "carried", E}};
}
Indices rowIndices() { return {{"i", "rows", I}, {"j", "stream", J}}; }
Indices plus(Indices list, SuiteIndex more) {
  list.push_back(more);
  return list;
}
} // namespace

static void addAttention(std::vector<SuiteCase> &all) {
  const Indices kAttention = attentionIndices();
  const SuiteOperand kQ{"q", DType::F32, {B, H, M, D}},
      kK{"k", DType::F32, {B, H / 2, N, D}},
      kV{"v", DType::F32, {B, H / 2, N, E}}, kO{"o", DType::F32, {B, H, M, E}};
  std::string scores = kScores, output = kOutput;
  all.push_back({"gqa",
                 kAttention,
                 {kQ, kK, kV},
                 {kO},
                 scores + softmaxOf("s0", "vv") + output,
                 1e-5});
  all.push_back(
      {"bias-softcap",
       kAttention,
       {kQ, kK, kV, {"bias", DType::F32, {H, M, N}}},
       {kO},
       scores +
           "%bv = refold.read %bias[%h, %m, %n] : f32\n%sb = arith.addf %s0, "
           "%bv : f32\n%sc = arith.divf %sb, %c30 : f32\n%th = math.tanh %sc : "
           "f32\n%x = arith.mulf %th, %c30 : f32\n" +
           softmaxOf("x", "vv") + output,
       1e-5});
  all.push_back(
      {"alibi-causal",
       kAttention,
       {kQ, kK, kV, {"sl", DType::F32, {H}, SuiteOperand::Positive}},
       {kO},
       scores +
           "%sv = refold.read %sl[%h] : f32\n%df = arith.subi %n, %m : "
           "index\n%di = arith.index_cast %df : index to i32\n%dff = "
           "arith.sitofp %di : i32 to f32\n%al = arith.mulf %sv, %dff : "
           "f32\n%sa = arith.addf %s0, %al : f32\n%c = arith.cmpi sle, %n, %m "
           ": "
           "index\n%x = arith.select %c, %sa, %ninf : f32\n" +
           softmaxOf("x", "vv") + output,
       1e-5});
  all.push_back(
      {"window",
       kAttention,
       {kQ, kK, kV},
       {kO},
       scores +
           "%w = arith.constant 20 : index\n%lo = arith.subi %m, %w : "
           "index\n%c1 = arith.cmpi sle, %n, %m : index\n%c2 = arith.cmpi sgt, "
           "%n, %lo : index\n%c = arith.andi %c1, %c2 : i1\n%x = arith.select "
           "%c, %s0, %ninf : f32\n" +
           softmaxOf("x", "vv") + output,
       1e-5});
  all.push_back(
      {"padding-mask",
       kAttention,
       {kQ, kK, kV, {"mask", DType::Bool, {B, N}, SuiteOperand::Bits}},
       {kO},
       scores +
           "%c = refold.read %mask[%b, %n] : i1\n%x = arith.select %c, %s0, "
           "%ninf : f32\n" +
           softmaxOf("x", "vv") + output,
       1e-5});
  // Values and keys behind each other in one array, heads inside a row of it,
  // and a mask of numbers that no query moves.
  auto times = [](int64_t n) { return std::to_string(n); };
  all.push_back(
      {"heads-in-rows",
       kAttention,
       {{"q", DType::F32, {B, M, H, D}},
        {"kv", DType::F32, {B, N, H / 2 * (D + E)}},
        {"mask", DType::I64, {B, N}, SuiteOperand::Bits}},
       {kO},
       "%qv = refold.read %q[%b, %m, %h, %d] : f32\n"
       "%kt = refold.read %kv[%b, %n, %h floordiv 2 * " +
           times(D) + " + %d + " + times(H / 2 * E) +
           "] : f32\n%qk = arith.mulf %qv, %kt : f32\n%s0 = "
           "refold.contract %qk over(%d) : f32\n%vv = refold.read %kv[%b, %n, "
           "%h floordiv 2 * " +
           times(E) +
           " + %e] : f32\n%mi = refold.read %mask[%b, %n] : i64\n%mf = "
           "arith.sitofp "
           "%mi : i64 to f32\n%mn = arith.subf %one, %mf : f32\n%ml = "
           "arith.mulf %mn, %lowest : f32\n%x = arith.addf %s0, %ml : f32\n" +
           softmaxOf("x", "vv") + output,
       1e-5});
  all.push_back(
      {"sink",
       kAttention,
       {kQ, kK, kV, {"sink", DType::F32, {H}}},
       {kO},
       scores +
           "%sk = refold.read %sink[%h] : f32\n%mx = refold.state max(%s0 : "
           "f32)\n%g = arith.maxnumf %mx, %sk : f32\n%u = arith.subf %s0, %g : "
           "f32\n%p = math.exp %u : f32\n%z0 = refold.state add(%p : f32) "
           "pivot(%g : f32)" +
           rescaling("k1") +
           "%pv = arith.mulf %p, %vv : f32\n%a = refold.state add(%pv : f32) "
           "pivot(%g : f32)" +
           rescaling("k2") +
           "%us = arith.subf %sk, %g : f32\n%ps = math.exp %us : f32\n%z = "
           "arith.addf %z0, %ps : f32\n" +
           output,
       1e-5});
  Indices latent = kAttention;
  latent.back().extent = 16;
  all.push_back(
      {"latent-with-lse",
       latent,
       {kQ, {"c", DType::F32, {B, N, D}}},
       {{"o", DType::F32, {B, H, M, 16}}, {"l", DType::F32, {B, H, M}}},
       "%qv = refold.read %q[%b, %h, %m, %d] : f32\n%kv = refold.read %c[%b, "
       "%n, %d] : f32\n%qk = arith.mulf %qv, %kv : f32\n%x = refold.contract "
       "%qk over(%d) : f32\n%vv = refold.read %c[%b, %n, %e] : f32\n" +
           softmaxOf("x", "vv") + output +
           "%lz = math.log %z : f32\n%le = arith.addf %lz, %g : "
           "f32\nrefold.write %le, %l[%b, %h, %m] : f32\n",
       1e-5});
  auto half = [](SuiteOperand o, DType dtype) {
    o.dtype = dtype;
    return o;
  };
  for (DType dtype : {DType::F16, DType::BF16}) {
    std::string t = dtype == DType::F16 ? "f16" : "bf16";
    all.push_back(
        {"storage-" + t,
         kAttention,
         {half(kQ, dtype), half(kK, dtype), half(kV, dtype)},
         {kO},
         "%q0 = refold.read %q[%b, %h, %m, %d] : " + t +
             "\n%k0 = refold.read %k[%b, %h floordiv 2, %n, %d] : " + t +
             "\n%v0 = refold.read %v[%b, %h floordiv 2, %n, %e] : " + t +
             "\n%qv = arith.extf %q0 : " + t +
             " to f32\n%kv = arith.extf %k0 : " + t +
             " to f32\n%vv = arith.extf %v0 : " + t +
             " to f32\n%qk = arith.mulf %qv, %kv : f32\n%s0 = refold.contract "
             "%qk over(%d) : f32\n" +
             softmaxOf("s0", "vv") + output,
         1e-5});
  }
  // One query a head: the heads of a group share what they read. Of the last,
  // not all heads fill a register tile.
  for (int64_t group : {2, 4, 6}) {
    std::string g = std::to_string(group);
    all.push_back(
        {"groups-of-" + g,
         {{"b", "rows", B},
          {"h", "rows", 12},
          {"n", "stream", N},
          {"d", "inner", D},
          {"e", "carried", E}},
         {{"q", DType::F32, {B, 12, D}},
          {"k", DType::F32, {B, 12 / group, N, D}},
          half({"v", DType::F32, {B, 12 / group, N, E}}, DType::BF16)},
         {{"o", DType::F32, {B, 12, E}}},
         "%qv = refold.read %q[%b, %h, %d] : f32\n%kv = refold.read %k[%b, %h "
         "floordiv " +
             g +
             ", %n, %d] : f32\n%qk = arith.mulf %qv, %kv : f32\n%x = "
             "refold.contract %qk over(%d) : f32\n%v0 = refold.read %v[%b, %h "
             "floordiv " +
             g + ", %n, %e] : bf16\n%vv = arith.extf %v0 : bf16 to f32\n" +
             softmaxOf("x", "vv") +
             "%r = arith.divf %a, %z : f32\nrefold.write %r, %o[%b, %h, %e] : "
             "f32\n",
         1e-5});
  }
  // Both factors of both products are bf16: the queries rounded here, the
  // weights where they meet the values.
  all.push_back(
      {"rounded-factors",
       kAttention,
       {kQ, half(kK, DType::BF16), half(kV, DType::BF16)},
       {kO},
       "%q0 = refold.read %q[%b, %h, %m, %d] : f32\n%qh = arith.truncf %q0 : "
       "f32 to bf16\n%qv = arith.extf %qh : bf16 to f32\n%k0 = refold.read "
       "%k[%b, %h floordiv 2, %n, %d] : bf16\n%kv = arith.extf %k0 : bf16 to "
       "f32\n%v0 = refold.read %v[%b, %h floordiv 2, %n, %e] : bf16\n%vv = "
       "arith.extf %v0 : bf16 to f32\n%qk = arith.mulf %qv, %kv : f32\n%x = "
       "refold.contract %qk over(%d) : f32\n" +
           softmaxOf("x") +
           "%ph = arith.truncf %p : f32 to bf16\n%pr = arith.extf %ph : bf16 "
           "to f32\n%pv = arith.mulf %pr, %vv : f32\n%a = refold.state "
           "add(%pv : f32) pivot(%g : f32)" +
           rescaling("s2") + output,
       2e-2});
  // The contracted index in two parts, and two carried indices.
  all.push_back(
      {"two-contracted-two-carried",
       {{"m", "rows", 21},
        {"n", "stream", 70},
        {"c", "inner", 3},
        {"d", "inner", 10},
        {"e", "carried", 3},
        {"f", "carried", 37}},
       {{"q", DType::F32, {21, 3, 10}},
        {"k", DType::F32, {70, 3, 10}},
        {"w", DType::F32, {70, 3, 37}}},
       {{"o", DType::F32, {3, 21, 37}}},
       "%qv = refold.read %q[%m, %c, %d] : f32\n%kv = refold.read %k[%n, %c, "
       "%d] : f32\n%qk = arith.mulf %qv, %kv : f32\n%x = refold.contract %qk "
       "over(%c, %d) : f32\n%vv = refold.read %w[%n, %e, %f] : f32\n" +
           softmaxOf("x", "vv") +
           "%r = arith.divf %a, %z : f32\nrefold.write %r, %o[%e, %m, %f] : "
           "f32\n",
       1e-5});
  // (q W) k: a contraction of a contraction; the result is strided along e.
  all.push_back(
      {"contraction-of-contraction",
       {{"m", "rows", 21},
        {"n", "stream", 70},
        {"c", "inner", 9},
        {"d", "inner", 20},
        {"e", "carried", 37}},
       {{"q", DType::F32, {21, 9}},
        {"w", DType::F32, {9, 20}},
        {"k", DType::F32, {70, 20}},
        {"v", DType::F32, {70, 37}}},
       {{"o", DType::F32, {37, 21}}},
       "%q0 = refold.read %q[%m, %c] : f32\n%w0 = refold.read %w[%c, %d] : "
       "f32\n%qw = arith.mulf %q0, %w0 : f32\n%qv = refold.contract %qw "
       "over(%c) : f32\n%kv = refold.read %k[%n, %d] : f32\n%qk = arith.mulf "
       "%qv, %kv : f32\n%x = refold.contract %qk over(%d) : f32\n%vv = "
       "refold.read %v[%n, %e] : f32\n" +
           softmaxOf("x", "vv") +
           "%r = arith.divf %a, %z : f32\nrefold.write %r, %o[%e, %m] : f32\n",
       2e-5});
  // sum_d e^(x - g) with g the running maximum of another operand.
  all.push_back(
      {"contraction-of-state",
       {{"m", "rows", 21}, {"n", "stream", 70}, {"d", "inner", 9}},
       {{"y", DType::F32, {21, 70}}, {"x", DType::F32, {21, 70, 9}}},
       {{"o", DType::F32, {21}}},
       "%yv = refold.read %y[%m, %n] : f32\n%xv = refold.read %x[%m, %n, %d] : "
       "f32\n%mx = refold.state max(%yv : f32)\n%g = arith.maxnumf %mx, "
       "%lowest "
       ": f32\n%u = arith.subf %xv, %g : f32\n%p = math.exp %u : f32\n%c = "
       "refold.contract %p over(%d) : f32\n%z = refold.state add(%c : f32) "
       "pivot(%g : f32)" +
           rescaling("9") + "refold.write %z, %o[%m] : f32\n",
       1e-5});
}

/// Second passes that only some rows need, and of those some columns.
static void addGuarded(std::vector<SuiteCase> &all) {
  const Indices kRows = rowIndices();
  const SuiteOperand kX{"x", DType::F32, {I, J}};
  const std::string first = kReadX + R"(
%off = arith.constant 0.0 : f32
%s = refold.state add(%v : f32)
%flag = arith.cmpf olt, %s, %off : f32
)";
  all.push_back({"row-guarded",
                 kRows,
                 {kX},
                 {{"o", DType::F32, {I}}},
                 first + R"(
%sq = arith.mulf %v, %v : f32
%t = arith.select %flag, %sq, %off : f32
%q = refold.state add(%t : f32)
%r = arith.select %flag, %q, %s : f32
refold.write %r, %o[%i] : f32
)",
                 1e-5});
  // A contraction of a state, which is there once the stream runs.
  all.push_back({"guarded-by-a-contraction",
                 plus(kRows, {"d", "inner", 9}),
                 {kX, {"w", DType::F32, {9}}},
                 {{"o", DType::F32, {I}}},
                 first + R"(
%wv = refold.read %w[%d] : f32
%sw = arith.mulf %s, %wv : f32
%c = refold.contract %sw over(%d) : f32
%asked = arith.cmpf olt, %c, %off : f32
%sq = arith.mulf %v, %v : f32
%t = arith.select %asked, %sq, %off : f32
%q = refold.state add(%t : f32)
refold.write %q, %o[%i] : f32
)",
                 1e-5});
  // A list, read where it is needed only.
  all.push_back({"row-guarded-list",
                 plus(kRows, {"ex", "carried", 3}),
                 {kX},
                 {{"o", DType::F32, {I, 3}}, {"at", DType::F32, {I, 3}}},
                 first + R"(
%low = arith.constant 0xFF800000 : f32
%ji = arith.index_cast %j : index to i32
%jf = arith.sitofp %ji : i32 to f32
%best:2 = refold.state topk(%v : f32, %jf : f32) rank(%ex)
%d = arith.subf %v, %s : f32
%key = arith.select %flag, %d, %low : f32
%again:2 = refold.state topk(%key : f32, %jf : f32) rank(%ex)
%r = arith.select %flag, %again#0, %best#0 : f32
%ra = arith.select %flag, %again#1, %best#1 : f32
refold.write %r, %o[%i, %ex] : f32
refold.write %ra, %at[%i, %ex] : f32
)",
                 1e-5});
  for (int64_t columns : {50, 3})
    all.push_back({"guarded-columns-" + std::to_string(columns),
                   plus(kRows, {"e", "carried", columns}),
                   {kX, {"w", DType::F32, {J, columns}}},
                   {{"o", DType::F32, {I, columns}}},
                   first + R"(
%wv = refold.read %w[%j, %e] : f32
%xw = arith.mulf %v, %wv : f32
%a = refold.state add(%xw : f32)
%top = arith.constant 0x7F800000 : f32
%size = math.absf %a : f32
%regular = arith.cmpf olt, %size, %top : f32
%low = arith.cmpf oge, %a, %off : f32
%fine = arith.andi %regular, %low : i1
%d = arith.subf %v, %s : f32
%dw = arith.mulf %d, %wv : f32
%t = arith.select %fine, %off, %dw : f32
%q = refold.state add(%t : f32)
%r = arith.select %fine, %a, %q : f32
refold.write %r, %o[%i, %e] : f32
)",
                   1e-5});
}

static void addRows(std::vector<SuiteCase> &all) {
  const Indices kRows = rowIndices();
  const SuiteOperand kX{"x", DType::F32, {I, J}, SuiteOperand::Normal, 3};
  const SuiteOperand y{"y", DType::F32, {I, J}, SuiteOperand::Normal, 3};
  const SuiteOperand w{"w", DType::F32, {J}}, h{"h", DType::F32, {I}},
      o{"o", DType::F32, {I, J}};
  all.push_back(
      {"softmax",
       kRows,
       {kX},
       {o},
       kReadX + softmaxOf("v") +
           "%r = arith.divf %p, %z : f32\nrefold.write %r, %o[%i, %j] "
           ": f32\n"});
  all.push_back(
      {"softmax-of-f16",
       kRows,
       {{"x", DType::F16, {I, J}}},
       {{"o", DType::F16, {I, J}}},
       "%vh = refold.read %x[%i, %j] : f16\n%v = arith.extf %vh : f16 to "
       "f32\n" +
           softmaxOf("v") +
           "%r = arith.divf %p, %z : f32\n%rh = arith.truncf %r : f32 to "
           "f16\nrefold.write %rh, %o[%i, %j] : f16\n",
       1e-3});
  all.push_back(
      {"double-softmax-product",
       plus(kRows, {"e", "carried", 20}),
       {kX, {"w", DType::F32, {J, 20}}},
       {{"o", DType::F32, {I, 20}}},
       kReadX + softmaxOf("v") +
           "%pn = arith.divf %p, %z : f32\n%mx2 = refold.state max(%pn : "
           "f32)\n%u2 = arith.subf %pn, %mx2 : f32\n%p2 = math.exp %u2 : "
           "f32\n%z2 = refold.state add(%p2 : f32) pivot(%mx2 : f32)" +
           rescaling("q1") +
           "%vv = refold.read %w[%j, %e] : f32\n%pv2 = arith.mulf %p2, %vv : "
           "f32\n%a2 = refold.state add(%pv2 : f32) pivot(%mx2 : f32)" +
           rescaling("q2") +
           "%r = arith.divf %a2, %z2 : f32\nrefold.write %r, %o[%i, %e] : "
           "f32\n"});
  std::string taylor = R"( transport(%old, %new, %self, %z0) {
  %dl = arith.subf %old, %new : f32
  %fl = math.exp %dl : f32
  %dz = arith.mulf %dl, %z0 : f32
  %sd0 = arith.addf %self, %dz : f32
  %mv = arith.mulf %sd0, %fl : f32
  refold.yield %mv : f32
}
)";
  all.push_back(
      {"entropy",
       kRows,
       {kX},
       {h},
       kReadX + softmaxOf("v") +
           "%tp = arith.mulf %u, %p : f32\n%t = refold.state add(%tp : f32) "
           "pivot(%g : f32) with(%z : f32)" +
           taylor +
           "%lz = math.log %z : f32\n%q = arith.divf %t, %z : f32\n%r = "
           "arith.subf %lz, %q : f32\nrefold.write %r, %h[%i] : f32\n"});
  all.push_back({"divergence",
                 kRows,
                 {kX, y},
                 {h},
                 kReadX + "%vy = refold.read %y[%i, %j] : f32\n" +
                     softmaxOf("v") + R"(
%my = refold.state max(%vy : f32)
%gy = arith.maxnumf %my, %lowest : f32
%uy = arith.subf %vy, %gy : f32
%py = math.exp %uy : f32
%zy = refold.state add(%py : f32) pivot(%gy : f32))" +
                     rescaling("y9") + R"(
%dd = arith.subf %u, %uy : f32
%pd = arith.mulf %p, %dd : f32
%t = refold.state add(%pd : f32) pivot(%g : f32, %gy : f32) with(%z : f32) transport(%o1, %n1, %o2, %n2, %self, %z0) {
  %d1 = arith.subf %o1, %n1 : f32
  %d2 = arith.subf %o2, %n2 : f32
  %d12 = arith.subf %d1, %d2 : f32
  %dz = arith.mulf %d12, %z0 : f32
  %sm = arith.addf %self, %dz : f32
  %f = math.exp %d1 : f32
  %mv = arith.mulf %sm, %f : f32
  refold.yield %mv : f32
}
%q = arith.divf %t, %z : f32
%l1 = math.log %z : f32
%l2 = math.log %zy : f32
%ql = arith.subf %q, %l1 : f32
%r = arith.addf %ql, %l2 : f32
refold.write %r, %h[%i] : f32
)",
                 1e-5});
  all.push_back(
      {"cross-entropy",
       kRows,
       {kX, {"lab", DType::I64, {I}, SuiteOperand::Labels, 1, J}},
       {h},
       kReadX + softmaxOf("v") +
           "%li = refold.read %lab[%i] : i64\n%lx = arith.index_cast %li : i64 "
           "to index\n%xl = refold.read %x[%i, %lx] : f32\n%ul = arith.subf "
           "%xl, %g : f32\n%lz = math.log %z : f32\n%r = arith.subf %lz, %ul : "
           "f32\nrefold.write %r, %h[%i] : f32\n"});
  all.push_back(
      {"layernorm",
       kRows,
       {kX, w},
       {o},
       kReadX + kMoments +
           "%ta = arith.subf %t, %m1 : f32\n%tn = arith.mulf %ta, %rs : "
           "f32\n%wv = refold.read %w[%j] : f32\n%r = arith.mulf %tn, %wv : "
           "f32\nrefold.write %r, %o[%i, %j] : f32\n"});
  all.push_back({"variance",
                 kRows,
                 {kX},
                 {h},
                 kReadX + kMoments + "refold.write %var, %h[%i] : f32\n"});
  all.push_back({"layernorm-product",
                 plus(kRows, {"e", "carried", 50}),
                 {kX, {"w", DType::F32, {J, 50}}},
                 {{"o", DType::F32, {I, 50}}},
                 kReadX + kMoments + R"(
%wv = refold.read %w[%j, %e] : f32
%ws = refold.state add(%wv : f32)
%tw = arith.mulf %t, %wv : f32
%a = refold.state add(%tw : f32) pivot(%mu : f32) with(%ws : f32) transport(%old, %new, %self, %w0) {
  %D = arith.subf %old, %new : f32
  %Dw = arith.mulf %D, %w0 : f32
  %moved = arith.addf %self, %Dw : f32
  refold.yield %moved : f32
}
%m1w = arith.mulf %m1, %ws : f32
%ar = arith.subf %a, %m1w : f32
%y = arith.mulf %ar, %rs : f32
refold.write %y, %o[%i, %e] : f32
)",
                 1e-5});
  all.push_back(
      {"rmsnorm-product-tanh",
       plus(kRows, {"e", "carried", 50}),
       {kX, {"w", DType::F32, {J, 50}}, {"c", DType::F32, {50}}},
       {{"o", DType::F32, {I, 50}}},
       kReadX +
           "%n = refold.state add(%one : f32)\n%vq = arith.mulf %v, %v : "
           "f32\n%ss = refold.state add(%vq : f32)\n%wv = refold.read %w[%j, "
           "%e] : f32\n%vw = arith.mulf %v, %wv : f32\n%a = refold.state "
           "add(%vw : f32)\n%ms = arith.divf %ss, %n : f32\n%ve = arith.addf "
           "%ms, %eps : f32\n%sd = math.sqrt %ve : f32\n%y0 = arith.divf %a, "
           "%sd : f32\n%cv = refold.read %c[%e] : f32\n%y1 = arith.addf %y0, "
           "%cv : f32\n%th = math.tanh %y1 : f32\nrefold.write %th, %o[%i, %e] "
           ": f32\n",
       1e-5});
  all.push_back(
      {"quantised-product",
       plus(kRows, {"e", "carried", 50}),
       {kX, {"w", DType::F32, {J, 50}}},
       {{"o", DType::F32, {I, 50}}, {"sc", DType::F32, {I}}},
       kReadX +
           "%av = math.absf %v : f32\n%am = refold.state max(%av : f32)\n%sc0 "
           "= arith.divf %am, %c127 : f32\n%xs = arith.divf %v, %sc0 : "
           "f32\n%xr = math.roundeven %xs : f32\n%wv = refold.read %w[%j, %e] "
           ": "
           "f32\n%vw = arith.mulf %xr, %wv : f32\n%a = refold.state add(%vw : "
           "f32)\n%r = arith.mulf %a, %sc0 : f32\nrefold.write %r, %o[%i, %e] "
           ": "
           "f32\nrefold.write %sc0, %sc[%i] : f32\n",
       1e-4});
  all.push_back({"no-rows",
                 {{"j", "stream", 1003}},
                 {{"x", DType::F32, {1003}}},
                 {{"o", DType::F32, {}}},
                 "%v = refold.read %x[%j] : f32\n%vq = arith.mulf %v, %v : "
                 "f32\n%ss = refold.state add(%vq : f32)\n%r = math.sqrt %ss : "
                 "f32\nrefold.write %r, %o[] : f32\n"});
}

static void addOthers(std::vector<SuiteCase> &all) {
  const Indices kRows = rowIndices();
  const SuiteOperand kX{"x", DType::F32, {I, J}, SuiteOperand::Normal, 3};
  all.push_back(
      {"group-moments",
       {{"b", "rows", 3}, {"gr", "rows", 2}, {"j", "stream", 120}},
       {{"x", DType::F32, {3, 8, 30}}},
       {{"o", DType::F32, {3, 2}}, {"ov", DType::F32, {3, 2}}},
       std::string("%v = refold.read %x[%b, %gr * 4 + %j floordiv 30, %j mod "
                   "30] : f32\n") +
           kMoments +
           "%me = arith.addf %mu, %m1 : f32\nrefold.write %me, %o[%b, %gr] : "
           "f32\nrefold.write %var, %ov[%b, %gr] : f32\n",
       1e-5,
       false});
  all.push_back(
      {"two-streams-layernorm",
       {{"b", "rows", 5}, {"h", "stream", 7}, {"w", "stream", 33}},
       {{"x", DType::F32, {5, 7, 33}}},
       {{"o", DType::F32, {5, 7, 33}}},
       std::string("%v = refold.read %x[%b, %h, %w] : f32\n") + kMoments +
           "%ta = arith.subf %t, %m1 : f32\n%r = arith.mulf %ta, %rs : "
           "f32\nrefold.write %r, %o[%b, %h, %w] : f32\n"});
  // The sum has its lanes along m and a panel for them; the result of the sweep
  // has its own along n.
  all.push_back(
      {"columns-of-both-kinds",
       {{"n", "stream", 45}, {"m", "carried", 37}},
       {{"x", DType::F32, {37, 45}}},
       {{"s", DType::F32, {37}}, {"o", DType::F32, {37, 45}}},
       "%v = refold.read %x[%m, %n] : f32\n%a = refold.state add(%v : "
       "f32)\nrefold.write %a, %s[%m] : f32\n%r = arith.mulf %v, %a "
       ": f32\nrefold.write %r, %o[%m, %n] : f32\n"});
  const SuiteOperand tokens{"x", DType::F32, {70, 90}},
      experts{"w", DType::F32, {90, 33}};
  all.push_back(
      {"router",
       {{"t", "rows", 70}, {"ex", "stream", 33}, {"c", "inner", 90}},
       {tokens, experts},
       {{"o", DType::F32, {70, 33}}},
       "%xv = refold.read %x[%t, %c] : f32\n%wv = refold.read %w[%c, %ex] : "
       "f32\n%xw = arith.mulf %xv, %wv : f32\n%lg = refold.contract %xw "
       "over(%c) : f32\n" +
           softmaxOf("lg") +
           "%r = arith.divf %p, %z : f32\nrefold.write %r, %o[%t, %ex] : f32\n",
       1e-5});
  for (auto [experts, k] :
       {std::pair<int64_t, int64_t>{33, 8}, {300, 20}, {5, 9}, {2500, 7}})
    for (const char *reducer : {"topk", "bottomk"})
      all.push_back(
          {std::string(reducer) + std::to_string(k) + "-of-" +
               std::to_string(experts),
           {{"t", "rows", 70}, {"ex", "stream", experts}, {"r", "carried", k}},
           {{"x", DType::F32, {70, experts}, SuiteOperand::Round, 4}},
           {{"o", DType::F32, {70, k}}, {"id", DType::I32, {70, k}}},
           "%lg = refold.read %x[%t, %ex] : f32\n%id0 = arith.index_cast %ex : "
           "index to i32\n%top:2 = refold.state " +
               std::string(reducer) + "(%lg : f32, %id0 : i32) rank(%r)\n" +
               softmaxOf("lg") +
               "%ut = arith.subf %top#0, %g : f32\n%pt = math.exp %ut : "
               "f32\n%w "
               "= arith.divf %pt, %z : f32\nrefold.write %w, %o[%t, %r] : "
               "f32\nrefold.write %top#1, %id[%t, %r] : i32\n",
           1e-5});
  // A column softmax: the pivot varies with the dense index.
  all.push_back(
      {"column-softmax",
       {{"b", "rows", 3}, {"c", "rows", 37}, {"j", "stream", 50}},
       {{"x", DType::F32, {3, 50, 37}}},
       {{"o", DType::F32, {3, 50, 37}}},
       "%v = refold.read %x[%b, %j, %c] : f32\n" + softmaxOf("v") +
           "%r = arith.divf %p, %z : f32\nrefold.write %r, %o[%b, %j, %c] : "
           "f32\n"});
  for (const char *reducer : {"add", "max", "min", "mul", "maxnum", "minnum"})
    all.push_back({std::string("column-") + reducer,
                   {{"b", "rows", 3}, {"c", "rows", 37}, {"j", "stream", 50}},
                   {{"x", DType::F32, {3, 50, 37}}},
                   {{"o", DType::F32, {3, 37}}},
                   "%v = refold.read %x[%b, %j, %c] : f32\n%r = refold.state " +
                       std::string(reducer) +
                       "(%v : f32)\nrefold.write %r, %o[%b, %c] : f32\n"});
  for (const char *reducer : {"add", "max", "min", "maxnum", "minnum"})
    all.push_back({std::string("row-") + reducer,
                   kRows,
                   {{"x", DType::F32, {I, J}}},
                   {{"h", DType::F32, {I}}},
                   kReadX + "%r = refold.state " + std::string(reducer) +
                       "(%v : f32)\nrefold.write %r, %h[%i] : f32\n",
                   1e-5});
  for (const char *reducer : {"add", "mul", "max", "min", "and", "or"})
    all.push_back({std::string("int-") + reducer,
                   {{"i", "rows", 11}, {"j", "stream", 77}},
                   {{"x", DType::I32, {11, 77}, SuiteOperand::Round, 40}},
                   {{"o", DType::I32, {11}}},
                   "%v = refold.read %x[%i, %j] : i32\n%r = refold.state " +
                       std::string(reducer) +
                       "(%v : i32)\nrefold.write %r, %o[%i] : i32\n"});
  for (const char *reducer : {"and", "or"})
    all.push_back({std::string("bool-") + reducer,
                   {{"i", "rows", 11}, {"j", "stream", 5}},
                   {{"x", DType::Bool, {11, 5}, SuiteOperand::Bits}},
                   {{"o", DType::Bool, {11}}},
                   "%v = refold.read %x[%i, %j] : i1\n%r = refold.state " +
                       std::string(reducer) +
                       "(%v : i1)\nrefold.write %r, %o[%i] : i1\n"});
  all.push_back(
      {"f64-sum-of-exp",
       kRows,
       {{"x", DType::F64, {I, J}}},
       {{"o", DType::F64, {I}}},
       "%v = refold.read %x[%i, %j] : f64\n%e = math.exp %v : f64\n%r "
       "= refold.state add(%e : f64)\nrefold.write %r, %o[%i] : "
       "f64\n",
       1e-14});
  all.push_back(
      {"i8-sum-in-i32",
       kRows,
       {{"x", DType::I8, {I, J}, SuiteOperand::Round, 30}},
       {{"o", DType::I32, {I}}},
       "%v = refold.read %x[%i, %j] : i8\n%e = arith.extsi %v : i8 to "
       "i32\n%r = refold.state add(%e : i32)\nrefold.write %r, %o[%i] "
       ": i32\n",
       0});
  // Four registers of bytes in one store, and what is left of a row. Halves are
  // exact, and so are their roundings.
  all.push_back(
      {"bytes-of-rows",
       {{"i", "rows", 7}, {"j", "stream", 333}},
       {{"x", DType::F32, {7, 333}, SuiteOperand::Round, 90}},
       {{"o", DType::I8, {7, 333}}},
       "%v = refold.read %x[%i, %j] : f32\n%t = refold.state max(%v : f32)\n"
       "%c = arith.constant 1.5 : f32\n%q = arith.constant 0.25 : f32\n"
       "%vc = arith.mulf %v, %c : f32\n%tq = arith.mulf %t, %q : f32\n"
       "%y = arith.addf %vc, %tq : f32\n%r = math.roundeven %y : f32\n"
       "%z = arith.constant 0.0 : f32\n%lo = arith.constant -128.0 : f32\n"
       "%hi = arith.constant 127.0 : f32\n%n = arith.cmpf uno, %r, %r : f32\n"
       "%s = arith.select %n, %z, %r : f32\n%a = arith.maximumf %s, %lo : f32\n"
       "%b = arith.minimumf %a, %hi : f32\n%g = arith.fptosi %b : f32 to i8\n"
       "refold.write %g, %o[%i, %j] : i8\n",
       0});
  all.push_back({"f8-sum",
                 kRows,
                 {{"x", DType::F8E4M3, {I, J}}},
                 {{"h", DType::F32, {I}}},
                 "%x8 = refold.read %x[%i, %j] : f8E4M3FN\n%v = arith.extf "
                 "%x8 : f8E4M3FN to f32\n%r = refold.state add(%v : "
                 "f32)\nrefold.write %r, %h[%i] : f32\n"});
  all.push_back({"mean-by-extent",
                 kRows,
                 {kX},
                 {{"h", DType::F32, {I}}},
                 kReadX +
                     "%s = refold.state add(%v : f32)\n%n = refold.extent "
                     "%j\n%ni = arith.index_cast %n : index to i32\n%nf = "
                     "arith.sitofp %ni : i32 to f32\n%r = arith.divf %s, %nf : "
                     "f32\nrefold.write %r, %h[%i] : f32\n"});
  all.push_back(
      {"stream-and-carried-result",
       {{"m", "rows", 9}, {"n", "stream", 41}, {"e", "carried", 37}},
       {{"x", DType::F32, {9, 41}}, {"w", DType::F32, {41, 37}}},
       {{"o", DType::F32, {9, 41, 37}}},
       "%v = refold.read %x[%m, %n] : f32\n%wv = refold.read %w[%n, "
       "%e] : f32\n" +
           softmaxOf("v") +
           "%pn = arith.divf %p, %z : f32\n%r = arith.mulf %pn, %wv : "
           "f32\nrefold.write %r, %o[%m, %n, %e] : f32\n"});
}

static void addElementwise(std::vector<SuiteCase> &all) {
  Indices three = {{"b", "rows", 3}, {"i", "rows", 21}, {"j", "rows", 37}};
  all.push_back({"elementwise-broadcast",
                 three,
                 {{"x", DType::F32, {3, 21, 37}},
                  {"y", DType::F32, {37}},
                  {"s", DType::F32, {}}},
                 {{"o", DType::F32, {3, 21, 37}}},
                 "%v = refold.read %x[%b, %i, %j] : f32\n%w = refold.read "
                 "%y[%j] : f32\n%s = refold.read %s[] : f32\n%t = arith.addf "
                 "%v, %w : f32\n%r = arith.mulf %t, %s : f32\nrefold.write %r, "
                 "%o[%b, %i, %j] : f32\n"});
  all.back().body = "%v = refold.read %x[%b, %i, %j] : f32\n%w = refold.read "
                    "%y[%j] : f32\n%sv = refold.read %s[] : f32\n%t = "
                    "arith.addf %v, %w : f32\n%r = arith.mulf %t, %sv : "
                    "f32\nrefold.write %r, %o[%b, %i, %j] : f32\n";
  all.push_back({"elementwise-transpose",
                 three,
                 {{"x", DType::F32, {37, 3, 21}}},
                 {{"o", DType::F32, {3, 21, 37}}},
                 "%v = refold.read %x[%j, %b, %i] : f32\nrefold.write %v, "
                 "%o[%b, %i, %j] : f32\n"});
  all.push_back({"elementwise-two-results",
                 three,
                 {{"x", DType::F32, {3, 21, 37}}, {"y", DType::F32, {21}}},
                 {{"o", DType::F32, {3, 21, 37}},
                  {"t", DType::F32, {37, 21, 3}},
                  {"l", DType::F32, {21}}},
                 "%v = refold.read %x[%b, %i, %j] : f32\n%w = refold.read "
                 "%y[%i] : f32\n%r = arith.mulf %v, %w : f32\nrefold.write %r, "
                 "%o[%b, %i, %j] : f32\nrefold.write %v, %t[%j, %i, %b] : "
                 "f32\nrefold.write %w, %l[%i] : f32\n"});
  all.push_back({"elementwise-gather",
                 {{"t", "rows", 23}, {"c", "rows", 37}},
                 {{"w", DType::F32, {19, 37}},
                  {"id", DType::I64, {23}, SuiteOperand::Labels, 1, 19}},
                 {{"o", DType::F32, {23, 37}}},
                 "%k = refold.read %id[%t] : i64\n%kx = arith.index_cast %k : "
                 "i64 to index\n%v = refold.read %w[%kx, %c] : "
                 "f32\nrefold.write %v, %o[%t, %c] : f32\n"});
  all.push_back({"elementwise-gather-along-lanes",
                 {{"t", "rows", 23}},
                 {{"w", DType::F32, {19}},
                  {"id", DType::I32, {23}, SuiteOperand::Labels, 1, 19}},
                 {{"o", DType::F32, {23}}},
                 "%k = refold.read %id[%t] : i32\n%kx = arith.index_cast %k : "
                 "i32 to index\n%v = refold.read %w[%kx] : f32\nrefold.write "
                 "%v, %o[%t] : f32\n"});
  all.push_back({"elementwise-scalar",
                 {},
                 {{"x", DType::F32, {}}},
                 {{"o", DType::F32, {}}},
                 "%v = refold.read %x[] : f32\n%r = math.exp %v : "
                 "f32\nrefold.write %r, %o[] : f32\n"});
  all.push_back({"elementwise-compare",
                 {{"i", "rows", 9}, {"j", "rows", 37}},
                 {{"x", DType::F32, {9, 37}}},
                 {{"o", DType::Bool, {9, 37}}},
                 "%v = refold.read %x[%i, %j] : f32\n%c = arith.cmpf ogt, %v, "
                 "%zero : f32\nrefold.write %c, %o[%i, %j] : i1\n"});
  all.push_back(
      {"plain-product",
       {{"i", "rows", 35}, {"j", "rows", 50}, {"d", "inner", 19}},
       {{"x", DType::F32, {35, 19}}, {"y", DType::F32, {50, 19}}},
       {{"o", DType::F32, {35, 50}}},
       "%a = refold.read %x[%i, %d] : f32\n%b = refold.read %y[%j, "
       "%d] : f32\n%p = arith.mulf %a, %b : f32\n%s = refold.contract "
       "%p over(%d) : f32\nrefold.write %s, %o[%i, %j] : f32\n"});
}

std::vector<SuiteCase> refold::cascadeSuite() {
  B = 2, H = 4, M = 50, N = 150, D = 24, E = 40, I = 37, J = 301;
  std::vector<SuiteCase> all;
  addAttention(all);
  addRows(all);
  addGuarded(all);
  addOthers(all);
  for (SuiteCase &c : keyedCases())
    all.push_back(std::move(c));
  addElementwise(all);
  return all;
}

std::vector<SuiteCase> refold::cascadesOf(int64_t rows, int64_t stream,
                                          int64_t batch) {
  B = batch, H = 2 * batch, M = rows, N = stream, D = 17, E = 33, I = rows,
  J = stream;
  std::vector<SuiteCase> all;
  addAttention(all);
  all.resize(9); // those whose extents are M and N
  addRows(all);
  all.pop_back(); // has no rows
  return all;
}
