// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Pieces of the bodies of cascades, as text, for the tests of whatever reads
// them.
#ifndef REFOLD_UNITTESTS_DIALECT_CASCADETEXT_H
#define REFOLD_UNITTESTS_DIALECT_CASCADETEXT_H

#include <string>

namespace refold::test {

/// A state moved by e^(old - new); `name` makes its values different ones.
inline std::string rescaling(const std::string &name = "") {
  std::string d = "%d" + name, f = "%f" + name, m = "%m" + name;
  return " transport(%old, %new, %self) {\n" + d +
         " = arith.subf %old, %new : f32\n" + f + " = math.exp " + d +
         " : f32\n" + m + " = arith.mulf %self, " + f +
         " : f32\nrefold.yield " + m + " : f32\n}\n";
}

/// The maximum, the pivot %g, %p = e^(x - %g) and its sum %z, all with `suffix`
/// behind their names; with `carried`, also the sum %a of %p * carried. Needs
/// %lowest.
inline std::string softmaxOf(const std::string &x,
                             const std::string &carried = "",
                             const std::string &suffix = "") {
  auto named = [&](const char *name) { return name + suffix; };
  std::string text = named("%mx") + " = refold.state max(%" + x + " : f32)\n" +
                     named("%g") + " = arith.maxnumf " + named("%mx") +
                     ", %lowest : f32\n" + named("%u") + " = arith.subf %" + x +
                     ", " + named("%g") + " : f32\n" + named("%p") +
                     " = math.exp " + named("%u") + " : f32\n" + named("%z") +
                     " = refold.state add(" + named("%p") + " : f32) pivot(" +
                     named("%g") + " : f32)" + rescaling("s1" + suffix);
  if (!carried.empty())
    text += named("%pv") + " = arith.mulf " + named("%p") + ", %" + carried +
            " : f32\n" + named("%a") + " = refold.state add(" + named("%pv") +
            " : f32) pivot(" + named("%g") + " : f32)" +
            rescaling("s2" + suffix);
  return text;
}

/// Of %v: count, sum, mean %mu, deviation %t, its sum and that of its square,
/// both kept at the mean; variance %var, its root's inverse %rs. Needs %one,
/// %two and %eps.
inline constexpr char kMoments[] = R"(
%n = refold.state add(%one : f32)
%s = refold.state add(%v : f32)
%n1 = arith.maxnumf %n, %one : f32
%mu = arith.divf %s, %n1 : f32
%t = arith.subf %v, %mu : f32
%c1 = refold.state add(%t : f32) pivot(%mu : f32) with(%n : f32) transport(%old, %new, %self, %n0) {
  %D = arith.subf %old, %new : f32
  %Dn = arith.mulf %D, %n0 : f32
  %mv = arith.addf %self, %Dn : f32
  refold.yield %mv : f32
}
%tt = arith.mulf %t, %t : f32
%c2 = refold.state add(%tt : f32) pivot(%mu : f32) with(%n : f32, %c1 : f32) transport(%old, %new, %self, %n0, %c0) {
  %D = arith.subf %old, %new : f32
  %D2 = arith.mulf %D, %D : f32
  %D2n = arith.mulf %D2, %n0 : f32
  %Dc = arith.mulf %D, %c0 : f32
  %tDc = arith.mulf %two, %Dc : f32
  %q0 = arith.addf %self, %tDc : f32
  %mv = arith.addf %q0, %D2n : f32
  refold.yield %mv : f32
}
%m2 = arith.divf %c2, %n1 : f32
%m1 = arith.divf %c1, %n1 : f32
%mm = arith.mulf %m1, %m1 : f32
%var = arith.subf %m2, %mm : f32
%ve = arith.addf %var, %eps : f32
%sd = math.sqrt %ve : f32
%rs = arith.divf %one, %sd : f32
)";

} // namespace refold::test

#endif // REFOLD_UNITTESTS_DIALECT_CASCADETEXT_H
