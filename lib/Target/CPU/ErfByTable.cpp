// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// erf by tables of 32 numbers, of which one instruction picks one for each lane
// (AVX-512). Below 3.94, in intervals of 1/8 about k/8, erf(a) is
// erf(c) + u r(u) with u = a - c, r of degree 4. The centres c are next to k/8
// where erf(c) is nearly an f32 (S. Gal, B. Bachelis, "An accurate elementary
// mathematical library", 1991), so that little is left to round. The first
// three are 0, where r is erf(a)/a less what it is at 0. utils/fit_erf made
// them.
#include "VectorMath.h"

using namespace mlir;
using namespace refold;

static constexpr float kCentres[] = {
    0x0p+0f,        0x0p+0f,        0x0p+0f,        0x1.7e05fcp-2f,
    0x1.fdf446p-2f, 0x1.3f02aap-1f, 0x1.7efbeap-1f, 0x1.befb06p-1f,
    0x1.ff1a6p-1f,  0x1.1f8804p+0f, 0x1.3f7dcap+0f, 0x1.5f830ap+0f,
    0x1.7f82acp+0f, 0x1.9f83bp+0f,  0x1.bf8902p+0f, 0x1.df893ap+0f,
    0x1.ff860cp+0f, 0x1.0fc6a4p+1f, 0x1.1fd774p+1f, 0x1.2fcb52p+1f,
    0x1.3fc11cp+1f, 0x1.4fd34cp+1f, 0x1.5fd8acp+1f, 0x1.6fc98ep+1f,
    0x1.7fc2dep+1f, 0x1.8fc534p+1f, 0x1.9fc9fep+1f, 0x1.a86c98p+1f,
    0x1.b884ecp+1f, 0x1.ca0fd4p+1f, 0x1.d87828p+1f, 0x1.ea8e94p+1f};
static constexpr float kValues[] = {
    0x0p+0f,        0x0p+0f,        0x0p+0f,        0x1.9be064p-2f,
    0x1.09989cp-1f, 0x1.3e57c6p-1f, 0x1.6b752p-1f,  0x1.90e91ap-1f,
    0x1.af16fep-1f, 0x1.c68e4ap-1f, 0x1.d8489ep-1f, 0x1.e54bdcp-1f,
    0x1.ee877p-1f,  0x1.f4e282p-1f, 0x1.f9206ep-1f, 0x1.fbde2p-1f,
    0x1.fd95d2p-1f, 0x1.fea14ap-1f, 0x1.ff3f1ep-1f, 0x1.ff9888p-1f,
    0x1.ffca1cp-1f, 0x1.ffe4ep-1f,  0x1.fff2b8p-1f, 0x1.fff9aap-1f,
    0x1.fffd12p-1f, 0x1.fffebp-1f,  0x1.ffff6ep-1f, 0x1.ffffa4p-1f,
    0x1.ffffdap-1f, 0x1.fffff2p-1f, 0x1.fffffap-1f, 0x1.fffffep-1f};
static constexpr float kTerms[][32] = {
    {-0x1.f7ac92p-25f, -0x1.c00f9p-22f, -0x1.d3bee8p-16f, 0x1.f6aa7cp-1f,
     0x1.c2d5aep-1f,   0x1.87db1cp-1f,  0x1.4a292p-1f,    0x1.0d9b2ep-1f,
     0x1.aa8f8cp-2f,   0x1.4741bap-2f,  0x1.e6ce2ep-3f,   0x1.5ebad4p-3f,
     0x1.e9f08p-4f,    0x1.4ba6c6p-4f,  0x1.b31666p-5f,   0x1.14ae38p-5f,
     0x1.5522f2p-6f,   0x1.976704p-7f,  0x1.d6b124p-8f,   0x1.0894a2p-8f,
     0x1.20439ap-9f,   0x1.2f1228p-10f, 0x1.3569d6p-11f,  0x1.333f3ap-12f,
     0x1.275234p-13f,  0x1.12ae1p-14f,  0x1.eefbdap-16f,  0x1.3de2cp-16f,
     0x1.0fd2bp-17f,   0x1.9f6ed8p-19f, 0x1.6e9204p-20f,  0x1.fa6628p-22f},
    {0x1.473cfcp-28f,  0x1.0bf3bap-16f,  0x1.22ab3cp-11f,  -0x1.770f06p-2f,
     -0x1.c10876p-2f,  -0x1.e84e0ap-2f,  -0x1.edee3ep-2f,  -0x1.d6bcb8p-2f,
     -0x1.a9d04p-2f,   -0x1.6f9096p-2f,  -0x1.2fc516p-2f,  -0x1.e195cp-3f,
     -0x1.6efc7ep-3f,  -0x1.0d2704p-3f,  -0x1.7c4e88p-4f,  -0x1.03232ap-4f,
     -0x1.54d1b4p-5f,  -0x1.b08222p-6f,  -0x1.089e5p-6f,   -0x1.39f9eep-7f,
     -0x1.680d76p-8f,  -0x1.8d928cp-9f,  -0x1.a94176p-10f, -0x1.b968d2p-11f,
     -0x1.bab3d8p-12f, -0x1.acefbep-13f, -0x1.91f712p-14f, -0x1.0780bap-14f,
     -0x1.d3baap-16f,  -0x1.73ac48p-17f, -0x1.523f9ap-18f, -0x1.e5344ep-20f},
    {-0x1.812774p-2f, -0x1.816d4cp-2f, -0x1.858ae8p-2f, -0x1.e39f7ap-3f,
     -0x1.2ef09p-3f,  -0x1.d37472p-5f, 0x1.a3a942p-6f,  0x1.7909p-4f,
     0x1.1a6782p-3f,  0x1.4c4992p-3f,  0x1.57351cp-3f,  0x1.43f18ep-3f,
     0x1.1cdc18p-3f,  0x1.d7ee76p-4f,  0x1.72b7cap-4f,  0x1.157efep-4f,
     0x1.8d26bp-5f,   0x1.1027a2p-5f,  0x1.657c84p-6f,  0x1.c4b26ep-7f,
     0x1.13cb54p-7f,  0x1.427108p-8f,  0x1.6bde16p-9f,  0x1.8d2d6cp-10f,
     0x1.a1d464p-11f, 0x1.a7ada6p-12f, 0x1.9ea1e6p-13f, 0x1.159b0ep-13f,
     0x1.0090c6p-14f, 0x1.a9d26ap-16f, 0x1.90161ep-17f, 0x1.2b45d4p-18f},
    {0x1.e3c0e4p-16f,  0x1.0b642ap-9f,   0x1.ffc452p-7f,   0x1.53cd12p-3f,
     0x1.764e36p-3f,   0x1.6975e6p-3f,   0x1.35781ep-3f,   0x1.cefcfp-4f,
     0x1.1df966p-4f,   0x1.d4dec8p-6f,   -0x1.6e0c02p-8f,  -0x1.ed16b2p-6f,
     -0x1.6b6c5ap-5f,  -0x1.968bc4p-5f,  -0x1.8a2be8p-5f,  -0x1.5ae20ep-5f,
     -0x1.1b2458p-5f,  -0x1.b1d57p-6f,   -0x1.39f846p-6f,  -0x1.b10d98p-7f,
     -0x1.1ce9f6p-7f,  -0x1.6570acp-8f,  -0x1.ae48p-9f,    -0x1.f27e6ap-10f,
     -0x1.15393cp-10f, -0x1.283652p-11f, -0x1.3090dap-12f, -0x1.96b0ep-13f,
     -0x1.8885a4p-14f, -0x1.58347p-15f,  -0x1.4ad3c8p-16f, -0x1.06452cp-17f},
    {0x1.cc7f08p-4f,  0x1.b42a4ep-4f,  0x1.6c4058p-4f,  0x1.5b6f94p-5f,
     0x1.a0e1cp-8f,   -0x1.66326cp-6f, -0x1.d91ddap-5f, -0x1.269ebp-4f,
     -0x1.240c18p-4f, -0x1.fe3012p-5f, -0x1.81edeep-5f, -0x1.06c73ap-5f,
     -0x1.e6357cp-7f, -0x1.261372p-9f, 0x1.a60f1ap-8f,  0x1.746f8ep-7f,
     0x1.a8955p-7f,   0x1.9be0c8p-7f,  0x1.5d2824p-7f,  0x1.12741ap-7f,
     0x1.91a01ap-8f,  0x1.152efep-8f,  0x1.6a17fep-9f,  0x1.c28278p-10f,
     0x1.0b7182p-10f, 0x1.2f9cbcp-11f, 0x1.4a9ca2p-12f, 0x1.6bbd3ep-13f,
     0x1.6ddbc8p-14f, 0x1.5dc996p-15f, 0x1.49e536p-16f, 0x1.225c98p-17f}};

Value refold::emitErfByTable(VectorMath &m, Value x) {
  // From `kLargest` on 1 is nearest. Adding `kRound` rounds to eighths, whose
  // number is in the last bits; `kFirst` is halfway, and rounds to the even 2.
  constexpr double kLargest = 3.9374, kRound = 0x1.8p20, kFirst = 0.3125;
  constexpr double kSlope = 0x1.20dd76p0; // 2 / sqrt(pi), rounded
  Value a = m.atMost(m.abs(x), kLargest);
  Value place = m.bitsOf(m.add(a, m.constant(kRound)));
  Value u = m.sub(a, m.lookUp(kCentres, place));
  Value r = m.lookUp(kTerms[4], place);
  for (int i = 3; i >= 0; --i)
    r = m.fma(r, u, m.lookUp(kTerms[i], place));
  Value y = m.fma(u, r, m.lookUp(kValues, place));
  Value first = m.fma(u, m.constant(kSlope), m.mul(u, r));
  y = m.select(m.compare(arith::CmpFPredicate::OLE, a, kFirst), first, y);
  return m.copySign(y, x);
}
