// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CascadeSuite.h"

#include "../Dialect/CascadeText.h"

using namespace refold;
using namespace refold::test;

/// States of which an element touches one place: a carried index equals a
/// stream index. With a mean as pivot every tile moves what it touches.
std::vector<SuiteCase> refold::keyedCases() {
  std::vector<SuiteCase> all;
  auto sumAt = [](const std::string &name, const std::string &value) {
    std::string term = "%t" + name;
    return term + " = arith.select %is, " + value + ", %zero : f32\n%" + name +
           " = refold.state add(" + term + " : f32)";
  };
  std::string moved = " pivot(%mu : f32) with(%size : f32) transport(%old, "
                      "%new, %self, %n0) {\n%Dk = arith.subf %old, %new : "
                      "f32\n%Dn = arith.mulf %Dk, %n0 : f32\n%mk = arith.addf "
                      "%self, %Dn : f32\nrefold.yield %mk : f32\n}\n";
  std::string mean = "%m0 = arith.maxnumf %size, %one : f32\n%r0 = arith.divf "
                     "%dev, %m0 : f32\n%r = arith.mulf %r0, %rs : f32\n";
  auto moments = [&](const std::string &key) {
    return std::string("%v = refold.read %x[%b, %c, %j] : f32\n") + kMoments +
           key + sumAt("size", "%one") + "\n" + sumAt("dev", "%t") + moved +
           mean;
  };
  for (bool isLast : {false, true}) {
    int64_t places = isLast ? 150 : 7;
    std::string key = isLast ? "%j" : "%c";
    all.push_back({isLast ? "keyed-along-the-stream" : "keyed",
                   {{"b", "rows", 5},
                    {"c", "stream", 7},
                    {"j", "stream", 150},
                    {"k", "carried", places}},
                   {{"x", DType::F32, {5, 7, 150}}},
                   {{"o", DType::F32, {5, places}}},
                   moments("%is = arith.cmpi eq, " + key + ", %k : index\n") +
                       "refold.write %r, %o[%b, %k] : f32\n",
                   1e-5});
  }
  std::string read = "%v = refold.read %x[%b, %c, %h, %j] : f32\n";
  std::string both = "%i1 = arith.cmpi eq, %c, %k : index\n%i2 = arith.cmpi "
                     "eq, %l, %h : index\n%is = arith.andi %i1, %i2 : i1\n";
  std::vector<SuiteIndex> four = {{"b", "rows", 3},    {"c", "stream", 4},
                                  {"h", "stream", 6},  {"j", "stream", 37},
                                  {"k", "carried", 4}, {"l", "carried", 6}};
  SuiteOperand x{"x", DType::F32, {3, 4, 6, 37}};
  all.push_back({"keyed-twice",
                 four,
                 {x},
                 {{"o", DType::F32, {3, 4, 6}}},
                 read + softmaxOf("v") + both + sumAt("a", "%p") +
                     " pivot(%g : f32)" + rescaling("sk") +
                     "%r = arith.divf %a, %z : f32\nrefold.write %r, %o[%b, "
                     "%k, %l] : f32\n",
                 1e-5});
  all.push_back({"keyed-maximum",
                 four,
                 {x},
                 {{"o", DType::F32, {3, 4, 6}}},
                 read + both +
                     "%t = arith.select %is, %v, %ninf : f32\n%a = "
                     "refold.state max(%t : f32)\nrefold.write %a, %o[%b, %k, "
                     "%l] : f32\n"});
  all.push_back({"keyed-product",
                 {{"b", "rows", 3},
                  {"c", "stream", 5},
                  {"j", "stream", 70},
                  {"k", "carried", 5},
                  {"e", "carried", 37}},
                 {{"x", DType::F32, {3, 5, 70}}, {"y", DType::F32, {70, 37}}},
                 {{"o", DType::F32, {3, 5, 37}}},
                 "%v = refold.read %x[%b, %c, %j] : f32\n%w = refold.read "
                 "%y[%j, %e] : f32\n" +
                     softmaxOf("v") +
                     "%is = arith.cmpi eq, %k, %c : index\n%pw = arith.mulf "
                     "%p, %w : f32\n" +
                     sumAt("a", "%pw") + " pivot(%g : f32)" + rescaling("sk") +
                     "%r = arith.divf %a, %z : f32\nrefold.write %r, %o[%b, "
                     "%k, %e] : f32\n",
                 1e-5});
  return all;
}
