// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Algebra/DoubleDouble.h"

#include <gtest/gtest.h>

using namespace refold::algebra;

namespace {

struct Known {
  DoubleDouble (*function)(DoubleDouble);
  double at;
  DoubleDouble value;
};

/// Computed with 60 digits by mpmath 1.3.
const Known kKnown[] = {
    {exp, -20.5, {0x1.57a3afeed00abp-30, 0x1.3f4d19cefc8abp-84}},
    {exp, -3.25, {0x1.3da368521902dp-5, 0x1.517478690bcdep-60}},
    {exp, -0.3125, {0x1.769652df22f7ep-1, 0x1.3445f7544e0efp-57}},
    {exp, 0.0009765625, {0x1.00400800aab55p+0, 0x1.7778e39b3a1bap-54}},
    {exp, 0.6875, {0x1.fd1de6182f8c9p+0, -0x1.8b4f124bdce6ap-54}},
    {exp, 1.75, {0x1.704b6905bacbfp+2, -0x1.4817fd9089d58p-52}},
    {exp, 5.5, {0x1.e96244f21bbf6p+7, 0x1.298c834010b39p-48}},
    {exp, 40.25, {0x1.0c71922974cbfp+58, -0x1.12bd3048e3e2fp+2}},
    {expm1, -20.5, {-0x1.fffffff542e28p-1, -0x1.12ff54b02cb99p-58}},
    {expm1, -3.25, {-0x1.ec25c97ade6fdp-1, -0x1.6ae8b8796f432p-56}},
    {expm1, -0.3125, {-0x1.12d35a41ba104p-2, 0x1.3445f7544e0efp-57}},
    {expm1, 0.0009765625, {0x1.002002aad5577p-10, 0x1.e38e6ce86e927p-64}},
    {expm1, 0.6875, {0x1.fa3bcc305f191p-1, 0x1.d2c3b6d08c659p-56}},
    {expm1, 1.75, {0x1.304b6905bacbfp+2, -0x1.4817fd9089d58p-52}},
    {expm1, 5.5, {0x1.e76244f21bbf6p+7, 0x1.298c834010b39p-48}},
    {expm1, 40.25, {0x1.0c71922974cbfp+58, -0x1.52bd3048e3e2fp+2}},
    // Around the steps of 1/128 that small arguments are near.
    {expm1, -0.34, {-0x1.2725ae35e2895p-2, -0x1.8c96f48120669p-57}},
    {expm1, -0.2, {-0x1.733d4a7a67a9bp-3, 0x1.eebc3ad865dfcp-61}},
    {expm1, -0.004, {-0x1.059ed3367cb0ep-8, -0x1.75397eafbc0b5p-66}},
    {expm1, -0.0038, {-0x1.f120e29ae706ap-9, 0x1.828f6bbc419a9p-63}},
    {expm1, 0.0038, {0x1.f3056968ec53ep-9, 0x1.c7391262cba47p-64}},
    {expm1, 0.004, {0x1.06ab42c7fcdd3p-8, 0x1.d4c914d485ad8p-62}},
    {expm1, 0.1, {0x1.aec7b35a00d3ap-4, 0x1.056ce9e38fac8p-59}},
    {expm1, 0.3, {0x1.6641632306a56p-2, 0x1.31472da7130bfp-56}},
    {expm1, 0.34, {0x1.9eaa94c8422f5p-2, 0x1.c3d5bec86aa25p-56}},
    {exp, 0.3, {0x1.599058c8c1a96p+0, -0x1.b3ae34963b3d0p-54}},
    {exp, -0.11, {0x1.caaac5937a61ep-1, 0x1.016c1bcb75ddep-55}},
    {sin, -20.5, {-0x1.fe60798c36321p-1, 0x1.7c01d76023c35p-58}},
    {sin, -3.25, {0x1.bb2ad2464a48cp-4, 0x1.62baeb29e6797p-58}},
    {sin, -0.3125, {-0x1.3ad129769d3d8p-2, -0x1.03d550487839ap-63}},
    {sin, 0.0009765625, {0x1.fffffaaaaaaefp-11, -0x1.1112b12b1254bp-67}},
    {sin, 0.6875, {0x1.44eb381cf386bp-1, -0x1.3ed6c1e6a5505p-55}},
    {sin, 1.75, {0x1.f7cd018b18246p-1, -0x1.c06b85582fc39p-56}},
    {sin, 5.5, {-0x1.693c94e0ab057p-1, 0x1.49447d34a5e8bp-56}},
    {sin, 40.25, {0x1.1d281012357f2p-1, 0x1.5ccff8369be97p-56}},
    {cos, -20.5, {-0x1.45e47276a17c7p-4, 0x1.94601c5d7b9bdp-58}},
    {cos, -3.25, {-0x1.fcfe909d7f7f8p-1, 0x1.3f803163b7460p-55}},
    {cos, -0.3125, {0x1.e733ea0193d40p-1, -0x1.6428b3546ce13p-55}},
    {cos, 0.0009765625, {0x1.fffff00000155p-1, 0x1.55527d27d34d3p-55}},
    {cos, 0.6875, {0x1.8bb105a5dc900p-1, 0x1.863e03e9474c1p-55}},
    {cos, 1.75, {-0x1.6d0c449d3e98ap-3, -0x1.623c28c417034p-58}},
    {cos, 5.5, {0x1.6ad6c3c07d448p-1, 0x1.598876a8e32fap-57}},
    {cos, 40.25, {-0x1.a93da7c8e5a41p-1, -0x1.ecc624df1cf09p-57}},
    {tanh, -20.5, {-0x1.0000000000000p+0, 0x1.cd480a1b74820p-59}},
    {tanh, -3.25, {-0x1.fe76795d353a0p-1, -0x1.5ace83f582f40p-55}},
    {tanh, -0.3125, {-0x1.35f98a0ea650ep-2, 0x1.c5ef2f6ab7d74p-59}},
    {tanh, 0.0009765625, {0x1.fffff5555599ap-11, -0x1.9a08207f3b820p-65}},
    {tanh, 0.6875, {0x1.3157dfe9f715bp-1, 0x1.ff15b5983ffc1p-56}},
    {tanh, 1.75, {0x1.e1fbf97e33527p-1, -0x1.f8e008ea19093p-56}},
    {tanh, 5.5, {0x1.fffb9f2fc1e91p-1, 0x1.c6ff489c15417p-55}},
    {tanh, 40.25, {0x1.0000000000000p+0, -0x1.d1a2062dc07e6p-116}},
    {erf, -20.5, {-0x1.0000000000000p+0, 0x0.0p+0}},
    {erf, -3.25, {-0x1.ffff6f9f67e55p-1, -0x1.e1e4483ba034bp-55}},
    {erf, -0.3125, {-0x1.5da9f415ff23fp-2, 0x1.a72e51e19194bp-59}},
    {erf, 0.0009765625, {0x1.20dd6eff8cb8fp-10, 0x1.970af8bd04b63p-65}},
    {erf, 0.6875, {0x1.569243d2b3a9bp-1, 0x1.8eef7012e8df5p-56}},
    {erf, 1.75, {0x1.f92d077f8d56dp-1, 0x1.8b55ef493fce7p-56}},
    {erf, 5.5, {0x1.fffffffffffbep-1, -0x1.182b326b228dcp-55}},
    {erf, 40.25, {0x1.0000000000000p+0, 0x0.0p+0}},
    {sinh, -20.5, {-0x1.7d6c4f0bcdd5cp+28, -0x1.caff026fb4025p-26}},
    {sinh, -3.25, {-0x1.9c0669c3e8083p+3, 0x1.2939952162922p-52}},
    {sinh, -0.3125, {-0x1.453bdbe16906cp-2, -0x1.8d78145d8536ep-56}},
    {sinh, 0.0009765625, {0x1.000002aaaaacdp-10, -0x1.99993193191a7p-65}},
    {sinh, 0.6875, {0x1.7c645419678b8p-1, 0x1.9c6ae30bc1d3cp-55}},
    {sinh, 1.75, {0x1.652c4c46b9bbbp+1, 0x1.9b930854411d8p-55}},
    {sinh, 5.5, {0x1.e9602d48d0661p+6, 0x1.b70532faf0cf9p-49}},
    {sinh, 40.25, {0x1.0c71922974cbfp+57, -0x1.12bd3048e3e2fp+1}},
    {cosh, -20.5, {0x1.7d6c4f0bcdd5cp+28, 0x1.e0793d6ea102fp-26}},
    {cosh, -3.25, {0x1.9d440d2c3a213p+3, 0x1.005f7d5c19e6dp-54}},
    {cosh, -0.3125, {0x1.0c9a2067ebbdap+0, 0x1.13cd8803d61f3p-55}},
    {cosh, 0.0009765625, {0x1.00000800000abp+0, -0x1.5553e93e93814p-54}},
    {cosh, 0.6875, {0x1.3eebbc0b7bc6cp+0, 0x1.a67b7c2e422f8p-54}},
    {cosh, 1.75, {0x1.7b6a85c4bbdc2p+1, 0x1.08eb42c9dc0dbp-53}},
    {cosh, 5.5, {0x1.e9645c9b6718bp+6, 0x1.3827a70a612f3p-50}},
    {cosh, 40.25, {0x1.0c71922974cbfp+57, -0x1.12bd3048e3e2fp+1}},
    {log, 0.0009765625, {-0x1.bb9d3beb8c86bp+2, -0x1.6bc5ca07e04f0p-57}},
    {log, 0.6875, {-0x1.7fafa3bd8151cp-2, 0x1.219024acd3b77p-58}},
    {log, 1.75, {0x1.1e85f5e7040d0p-1, 0x1.ef62cd2f9f1e3p-56}},
    {log, 5.5, {0x1.b46a5ef8151a0p+0, -0x1.5a1f25dd01832p-55}},
    {log, 40.25, {0x1.d8f95d56dc424p+1, 0x1.8909c6a6f53eep-55}},
    {log1p, 0.0009765625, {0x1.ffc00aa8ab110p-11, -0x1.0fecbeb9b6cdbp-65}},
    {log1p, 0.6875, {0x1.0be72e4252a83p-1, -0x1.259da11330801p-55}},
    {log1p, 1.75, {0x1.02f84700434a8p+0, 0x1.cffbe849327aep-55}},
    {log1p, 5.5, {0x1.df2e6d6e5fbaap+0, 0x1.8941758adf1efp-54}},
    {log1p, 40.25, {0x1.dc1d8714f6273p+1, 0x1.e33db0e268013p-55}},
    {sqrt, 0.0009765625, {0x1.0000000000000p-5, 0x0.0p+0}},
    {sqrt, 0.6875, {0x1.a887293fd6f34p-1, 0x1.68ef24f198721p-57}},
    {sqrt, 1.75, {0x1.52a7fa9d2f8eap+0, -0x1.21c62b033c079p-54}},
    {sqrt, 5.5, {0x1.2c2fc595456a7p+1, -0x1.96f60b0fc7e96p-54}},
    {sqrt, 40.25, {0x1.9608d3c41fb4bp+2, 0x1.3df32eaa86b83p-54}},
};

double relativeError(DoubleDouble a, DoubleDouble b) {
  return std::fabs(double(a - b)) / std::fabs(double(b));
}

TEST(DoubleDoubleTest, FunctionsHaveThirtyDigits) {
  for (const Known &known : kKnown)
    EXPECT_LT(relativeError(known.function(known.at), known.value), 1e-29)
        << "entry " << &known - kKnown << " at " << known.at;
}

TEST(DoubleDoubleTest, ArithmeticHasThirtyOneDigits) {
  DoubleDouble third = DoubleDouble(1) / DoubleDouble(3);
  EXPECT_LT(relativeError(third * DoubleDouble(3), 1.0), 1e-31);
  DoubleDouble root = sqrt(DoubleDouble(2));
  EXPECT_LT(relativeError(root * root, 2.0), 1e-31);
  // The rest of a third that double forgets.
  EXPECT_NE(third.lo, 0);
  EXPECT_EQ(double(third - DoubleDouble(1.0 / 3)), third.lo);
}

/// A check that must fail: double's own third has 16 digits.
TEST(DoubleDoubleTest, DoubleIsTooCoarse) {
  EXPECT_GT(relativeError(DoubleDouble(1.0 / 3) * DoubleDouble(3), 1.0), 1e-18);
}

TEST(DoubleDoubleTest, InfinitiesAndNanBehaveAsInDouble) {
  double inf = HUGE_VAL;
  EXPECT_EQ(double(DoubleDouble(inf) + DoubleDouble(1)), inf);
  EXPECT_EQ(double(DoubleDouble(1) / DoubleDouble(0)), inf);
  EXPECT_EQ(double(DoubleDouble(1) / DoubleDouble(inf)), 0);
  EXPECT_TRUE(isnan(DoubleDouble(inf) - DoubleDouble(inf)));
  EXPECT_TRUE(isnan(DoubleDouble(0) * DoubleDouble(inf)));
  EXPECT_EQ(double(exp(DoubleDouble(-inf))), 0);
  EXPECT_EQ(double(exp(DoubleDouble(inf))), inf);
  EXPECT_EQ(double(log(DoubleDouble(0))), -inf);
  EXPECT_TRUE(isnan(log(DoubleDouble(-1))));
  EXPECT_TRUE(isnan(tanh(DoubleDouble(NAN))));
  EXPECT_EQ(double(sqrt(DoubleDouble(inf))), inf);
}

TEST(DoubleDoubleTest, RoundingIsToNearestEven) {
  EXPECT_EQ(double(nearbyint(DoubleDouble(2.5))), 2);
  EXPECT_EQ(double(nearbyint(DoubleDouble(3.5))), 4);
  EXPECT_EQ(double(nearbyint(DoubleDouble(2.5, 1e-20))), 3);
  EXPECT_EQ(double(nearbyint(DoubleDouble(-2.5))), -2);
  EXPECT_EQ(double(floor(DoubleDouble(3, -1e-20))), 2);
}

} // namespace
