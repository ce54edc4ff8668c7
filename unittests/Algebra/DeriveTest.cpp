// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Suite.h"

#include "refold/Algebra/Certify.h"
#include "refold/Algebra/Evaluate.h"
#include "refold/Algebra/Formula.h"

#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <sstream>

namespace refold::algebra::test {

static const char *const kSoftmax = "m = max x\ns = sum exp(x-m)\n";
static const char *const kMoments = "S = sum x\nmu := S/n\n";
static const char *const kVariance =
    "S = sum x\nmu := S/n\nV = sum (x-mu)**2\n";

namespace {
struct Expected {
  const char *name;
  std::string lines;
  unsigned passes;
  unsigned stateSize; ///< at most
  const char *cut;    ///< key of the first cut, or null
};
} // namespace

static std::string sm() { return kSoftmax; }
static std::string mv() { return kVariance; }

/// The 55 cascades of the theory page, in its order and with its bounds.
static std::vector<Expected> suite() {
  return {
      {"safe softmax", "in x\n" + sm() + "out s = s\nout p = exp(x-m)/s", 1, 2,
       nullptr},
      {"attention",
       "in x\ncarried v\n" + sm() + "o = sum exp(x-m)/s*v\nout o = o", 1, 3,
       nullptr},
      {"latent attention",
       "in k1 k2 kr\nparam q1 q2 qr\nx := q1*k1+q2*k2+qr*kr\n" + sm() +
           "o = sum exp(x-m)/s*k1\nout o = o",
       1, 3, nullptr},
      {"routing",
       "in x\n" + sm() + "t = top2 exp(x-m)/s\nout p = t\nout i = t_at", 1, 3,
       nullptr},
      {"quantised product",
       "in x w\na = max abs(x)\no = sum f8e4m3(x*448/a)*w\nout y = o*a/448", 2,
       2, "mixed-cast"},
      {"variance", "in x\n" + mv() + "out v = V/n", 1, 4, nullptr},
      {"moment of inertia",
       "in w>=0 x y\nM = sum w\nA = sum w*x\nB = sum w*y\ncx := A/M\ncy := "
       "B/M\nI = sum w*((x-cx)**2+(y-cy)**2)\nout I = I",
       1, 6, nullptr},
      {"logsumexp", "in x\n" + sm() + "out l = m+log(s)", 1, 2, nullptr},
      {"softmax without max",
       "in x\ncarried v\ns = sum exp(x)\no = sum exp(x)*v\nout o = o/s", 1, 3,
       nullptr},
      {"cross-entropy",
       "in x t>=0\n" + sm() + "c = sum t*(x-m-log(s))\nout c = -c", 1, 4,
       nullptr},
      {"entropy",
       "in x\n" + sm() + "H = sum exp(x-m)/s*(x-m-log(s))\nout H = -H", 1, 3,
       nullptr},
      {"divergence",
       "in x y\n" + sm() +
           "m2 = max y\ns2 = sum exp(y-m2)\nk = sum "
           "exp(x-m)/s*((x-m-log(s))-(y-m2-log(s2)))\nout k = k",
       1, 8, nullptr},
      {"skewness",
       "in x\n" + mv() + "C = sum (x-mu)**3\nout k = (C/n)/(V/n)**1.5", 1, 5,
       nullptr},
      {"kurtosis",
       "in x\n" + mv() + "Q = sum (x-mu)**4\nout k = (Q/n)/(V/n)**2", 1, 6,
       nullptr},
      {"skewness inside",
       "in x\n" + mv() +
           "sd := sqrt(V/n+1/100000)\nC = sum ((x-mu)/sd)**3\nout k = C/n",
       1, 5, nullptr},
      {"layer norm statistics",
       "in x\n" + mv() + "rs := 1/sqrt(V/n+1/100000)\nout mu = mu\nout rs = rs",
       1, 4, nullptr},
      {"layer norm and product",
       "in x g b\ncarried w\n" + mv() +
           "rs := 1/sqrt(V/n+1/100000)\no = sum ((x-mu)*rs*g+b)*w\nout o = o",
       1, 7, nullptr},
      {"root mean square norm and product",
       "in x g\ncarried w\nq = sum x**2\nr := 1/sqrt(q/n+1/100000)\no = sum "
       "x*r*g*w\nout o = o",
       1, 3, nullptr},
      {"cosine similarity",
       "in x y\nq = sum x**2\np = sum y**2\nc = sum "
       "(x/sqrt(q))*(y/sqrt(p))\nout c = c",
       1, 3, nullptr},
      {"temperature",
       "in x\ncarried v\nparam T>=0\nm = max x\ns = sum exp((x-m)/T)\no = sum "
       "exp((x-m)/T)/s*v\nout o = o",
       1, 3, nullptr},
      {"sigmoid attention",
       "in x\ncarried v\ns = sum sigmoid(x)\no = sum sigmoid(x)/s*v\nout o = o",
       1, 2, nullptr},
      {"softcap",
       "in x\ncarried v\nparam cap>=0\nz := cap*tanh(x/cap)\nm = max z\ns = "
       "sum exp(z-m)\no = sum exp(z-m)/s*v\nout o = o",
       1, 3, nullptr},
      {"linear bias",
       "in x pos>=0\ncarried v\nparam sl>=0\nz := x-sl*pos\nm = max x\ns = sum "
       "exp(z-m)\no = sum exp(z-m)/s*v\nout o = o",
       1, 3, nullptr},
      {"sink",
       "in x\ncarried v\nparam sink\nm0 = max x\nm := max(m0,sink)\ns = sum "
       "exp(x-m)\nz := s+exp(sink-m)\no = sum exp(x-m)/z*v\nout o = o",
       1, 3, nullptr},
      {"covariance",
       "in x y\nS = sum x\nU = sum y\nmx := S/n\nmy := U/n\nC = sum "
       "(x-mx)*(y-my)\nout c = C/n",
       1, 6, nullptr},
      {"least squares",
       "in x y\nS = sum x\nU = sum y\nmx := S/n\nmy := U/n\nVx = sum "
       "(x-mx)**2\nC = sum (x-mx)*(y-my)\nbe := C/(Vx+1/1000000000)\nE = sum "
       "(y-my-be*(x-mx))**2\nout be = be\nout e = E",
       1, 8, nullptr},
      {"normalise then dot",
       "in x\ncarried w\nq = sum x**2\no = sum x/sqrt(q)*w\nout o = o", 1, 2,
       nullptr},
      {"min-max normalise",
       "in x\ncarried w\nlo = min x\nhi = max x\no = sum "
       "(x-lo)/(hi-lo+1/1000000)*w\nout o = o",
       1, 4, nullptr},
      {"weighted variance",
       "in w>=0 x\nM = sum w\nS = sum w*x\nmu := S/M\nV = sum w*(x-mu)**2\nout "
       "mu = mu\nout v = V/M",
       1, 4, nullptr},
      {"log-softmax", "in x w\n" + sm() + "o = sum (x-m-log(s))*w\nout o = o",
       1, 4, nullptr},
      {"standardised max",
       "in x\n" + mv() +
           "sd := sqrt(V/n+1/100000)\nz = max abs(x-mu)/sd\nout z = z",
       1, 6, nullptr},
      {"argmax of probabilities",
       "in x\n" + sm() + "t = top1 exp(x-m)/s\nout p = t\nout i = t_at", 1, 3,
       nullptr},
      {"distance to the maximum",
       "in x w>=0\nm = max x\no = sum abs(x-m)*w\nout o = o", 1, 3, nullptr},
      {"tie count", "in x v\nm = max x\nc = sum where(x==m,1,0)\nout c = c", 1,
       2, nullptr},
      {"product of ratios",
       "in x>=0\nG = sum log(x)\ngm := exp(G/n)\no = prod x/gm\nout gm = "
       "gm\nout o = o",
       1, 3, nullptr},
      {"phase",
       "in x\n" + std::string(kMoments) + "o = sum cos(x-mu)\nout o = o", 1, 4,
       nullptr},
      {"outlier flag",
       "in x\n" + mv() + "sd := sqrt(V/n)\nf = any x>mu+2*sd\nout f = f", 1, 5,
       nullptr},
      {"peak-normalised",
       "in x\n" + sm() +
           "pm = max exp(x-m)/s\no = sum (exp(x-m)/s/pm)**2\nout o = o",
       1, 3, nullptr},
      {"focal",
       "in x t>=0\n" + sm() +
           "p := exp(x-m)/s\no = sum t*(1-p)**2*log(p)\nout o = o",
       1, 8, nullptr},
      {"standardised softmax",
       "in x\ncarried v\n" + mv() +
           "sd := sqrt(V/n+1/100000)\nm = max (x-mu)/sd\ns = sum "
           "exp((x-mu)/sd-m)\no = sum exp((x-mu)/sd-m)/s*v\nout o = o",
       2, 7, "mixed-exponent"},
      {"double softmax",
       "in x\ncarried v\n" + sm() +
           "p := exp(x-m)/s\nm2 = max p\ns2 = sum exp(p-m2)\no = sum "
           "exp(p-m2)/s2*v\nout o = o",
       2, 4, "mixed-exponent"},
      {"threshold at the mean",
       "in x\n" + std::string(kMoments) + "o = sum relu(x-mu)\nout o = o", 2, 3,
       "kink"},
      {"absolute deviation",
       "in x\n" + std::string(kMoments) + "o = sum abs(x-mu)\nout o = o", 2, 3,
       "kink"},
      {"count above the mean",
       "in x\n" + std::string(kMoments) + "o = sum where(x>mu,1,0)\nout o = o",
       2, 3, "mixed-compare"},
      {"nearest to the mean",
       "in x\n" + std::string(kMoments) + "o = min abs(x-mu)\nout o = o", 2, 3,
       "interior-optimum"},
      {"filtered mass",
       "in x\n" + sm() + "o = sum where(x-m>log(0.1),exp(x-m),0)\nout o = o", 2,
       3, "mixed-compare"},
      {"kernel at the mean",
       "in x\n" + std::string(kMoments) +
           "o = sum exp(-(x-mu)**2/2)\nout o = o",
       2, 3, "mixed-exponent"},
      {"robust step",
       "in x\n" + std::string(kMoments) +
           "o = sum (x-mu)/sqrt(1+(x-mu)**2)\nout o = o",
       2, 3, "pow-of-sum"},
      {"entropy from moments",
       "in x\n" + sm() + "o = sum x*exp(x-m)\nout H = m+log(s)-o/s", 1, 3,
       nullptr},
      {"softmax-weighted variance",
       "in x v\n" + sm() +
           "o = sum exp(x-m)*v\nmu := o/s\nV = sum exp(x-m)/s*(v-mu)**2\nout "
           "mu = mu\nout v = V",
       1, 5, nullptr},
      {"variance of logits",
       "in x\n" + sm() +
           "o = sum exp(x-m)*x\nmu := o/s\nV = sum exp(x-m)/s*(x-mu)**2\nout v "
           "= V",
       1, 5, nullptr},
      {"collision entropy",
       "in x\n" + sm() + "r = sum (exp(x-m)/s)**2\nout r = -log(r)", 1, 3,
       nullptr},
      {"correlation",
       "in x y\nS = sum x\nU = sum y\nmx := S/n\nmy := U/n\nA = sum "
       "(x-mx)**2\nB = sum (y-my)**2\nC = sum "
       "(x-mx)/sqrt(A)*(y-my)/sqrt(B)\nout r = C",
       1, 8, nullptr},
      {"trimmed range",
       "in x\nlo = min x\nhi = max x\no = sum where(x>lo+(hi-lo)/10,x,0)\nout "
       "o = o",
       2, 3, "mixed-compare"},
  };
}

/// The largest relative disagreement between the program, run in every order,
/// and the definition, over all families and lengths; the first one beyond
/// `tolerance` is described.
static double worstDisagreement(const Cascade &cascade, const Program &program,
                                std::string &failure) {
  double worst = 0;
  Random random(7);
  std::vector<Expr> roots = rootsOf(cascade);
  for (unsigned family = 0; family < kFamilies; ++family)
    for (uint32_t length : {1u, 2u, 7u, 16u}) {
      Sample sample =
          makeSample(cascade.indices, roots, Family(family), length, random);
      DefinitionEvaluator<DoubleDouble> definition(cascade, sample.extents);
      auto expected = definition.run(sample);
      ProgramEvaluator<DoubleDouble> evaluator(program, sample.extents);
      for (Order order : {Order::Stream, Order::Balanced, Order::Random,
                          Order::Right, Order::Pivots}) {
        auto got = evaluator.run(sample, order, random);
        if (!evaluator.isRegular())
          continue;
        for (size_t o = 0; o < got.outputs.size(); ++o)
          for (size_t i = 0; i < got.outputs[o].size(); ++i) {
            double a = double(got.outputs[o][i]);
            double b = double(expected.outputs[o][i]);
            double error =
                std::abs(double(got.outputs[o][i] - expected.outputs[o][i])) /
                (std::abs(b) + 1e-9);
            if (a == b || (std::isnan(a) && std::isnan(b)))
              continue;
            if (!std::isfinite(b) && Family(family) != Family::Masked)
              continue; // 0/0 of an ill-conditioned row
            if (!(error <= worst)) {
              worst = std::isnan(error) ? 1e300 : error;
              failure = std::string(spelling(Family(family))) + " " +
                        spelling(order) + " length " + std::to_string(length) +
                        ": " + program.outputs[o].name + " = " +
                        std::to_string(a) + ", expected " + std::to_string(b);
            }
          }
      }
    }
  return worst;
}

/// Guarded softmaxes of the second theory page.
static std::vector<Expected> guards() {
  const std::string start = "in x\ncarried v\n";
  return {
      {"isnan of p",
       start + sm() +
           "p := exp(x-m)/s\no = sum where(isnan(p),0,p)*v\nout o = o\nout q = "
           "where(isnan(p),0,p)",
       1, 3, nullptr},
      {"p differs from itself",
       start + sm() + "p := exp(x-m)/s\no = sum where(p!=p,0,p)*v\nout o = o",
       1, 3, nullptr},
      {"s is zero",
       start + sm() + "o = sum where(s==0,0,exp(x-m)/s)*v\nout o = o", 1, 3,
       nullptr},
      {"divisor clamped",
       start + sm() + "o = sum exp(x-m)/max(s,0.000001)*v\nout o = o", 1, 3,
       nullptr},
      {"exponential guarded",
       start + "m = max x\ns = sum where(m==-inf,0,exp(x-m))\no = sum "
               "where(m==-inf,0,exp(x-m))/s*v\nout o = o",
       1, 3, nullptr},
      {"pivot guarded",
       start + "m0 = max x\nm := where(m0==-inf,0,m0)\ns = sum exp(x-m)\no = "
               "sum exp(x-m)/max(s,0.000001)*v\nout o = o",
       1, 3, nullptr},
      {"mask by product",
       "in x k>=0\ncarried v\n" +
           std::string("m = max x\ns = sum exp(x-m)*k\no = sum "
                       "exp(x-m)*k/s*v\nout o = o"),
       1, 3, nullptr},
      {"element guard",
       start + sm() + "o = sum where(x==-inf,0,exp(x-m)/s)*v\nout o = o", 1, 4,
       nullptr},
      {"either guard",
       start + sm() +
           "p := exp(x-m)/s\no = sum where(isnan(p) or x==-inf,0,p)*v\nout o = "
           "o",
       1, 4, nullptr},
      {"vanishing product",
       "in x\n" + sm() +
           "p := exp(x-m)/s\no = sum where(p==0,0,p*log(p))\nout o = o",
       1, 4, nullptr},
      {"positive product",
       "in x\n" + sm() +
           "p := exp(x-m)/s\no = sum where(p>0,p*log(p),0)\nout o = o",
       1, 4, nullptr},
      {"clip at one",
       start + sm() + "p := exp(x-m)/s\no = sum max(0,min(1,p))*v\nout o = o",
       1, 3, nullptr},
      {"clip below",
       start + sm() + "p := exp(x-m)/s\no = sum max(0.1,p)*v\nout o = o", 2, 3,
       "kink"},
      {"not shifted",
       start + "s = sum exp(x)\np := exp(x)/s\no = sum "
               "where(isnan(p),0,p)*v\nout o = o",
       2, 5, "guard-mixed"},
      {"masked by select",
       "in x k>=0\ncarried v\ny := where(k>0.5,x,-inf)\nm = max y\ns = sum "
       "exp(y-m)\no = sum exp(y-m)/s*v\nout o = o\nout p = exp(y-m)/s",
       1, 3, nullptr},
      {"softmax without max, swept",
       start +
           "s = sum exp(x)\nout p = exp(x)/s\nout l = log(s)\nout e = x-log(s)",
       1, 2, nullptr},
      {"smallest",
       "in x y\nm = max x\nt = bottom2 x-m\nu = top2 m-x\nb = bottom1 y\nout p "
       "= t\nout i = t_at\nout q = u\nout j = u_at\nout b = b\nout l = b_at",
       1, 4, nullptr},
      {"masked by number",
       "in x k\ncarried v\ny := x+k\nm = max y\ns = sum exp(y-m)\no = sum "
       "exp(y-m)/s*v\nout o = o",
       1, 3, nullptr},
  };
}

/// Questions whether an element is at the extreme of its row.
static std::vector<Expected> ties() {
  const std::string start = "in x v\nm = max x\n";
  return {
      {"payload of the maximum",
       start + "c = sum where(x==m,1,0)\np = sum where(x==m,v,0)\nout p = p/c",
       1, 3, nullptr},
      {"payload of the minimum",
       "in x v\nm = min x\np = sum where(x<=m,v,0)\nout p = p", 1, 2, nullptr},
      {"compared from the other side, scaled",
       start + "p = sum where(-2*m>=-2*x,v,0)\nout p = p", 1, 2, nullptr},
      {"all but the maximum", start + "p = sum where(x!=m,v,0)\nout p = p", 1,
       3, nullptr},
      {"short of the maximum", start + "p = sum where(x<m,v,0)\nout p = p", 1,
       3, nullptr},
      {"both sides", start + "p = sum where(x<m,v,2*v*v)\nout p = p", 1, 5,
       nullptr},
      {"first position",
       "in x pos\nm = max x\ni = min where(x==m,pos,inf)\nj = max "
       "where(x<m,-inf,pos)\nout i = i\nout j = j",
       1, 4, nullptr},
      {"any at the maximum",
       "in x\nmask k\nm = max x\nf = any x==m and k\ng = all x<m or k\nout f "
       "= f\nout g = g",
       1, 4, nullptr},
      {"share of the maximum",
       start + "s = sum exp(x-m)\np = sum where(x==m,exp(x-m)/s*v,0)\nout p = "
               "p",
       1, 3, nullptr},
      {"shares short of the maximum",
       start + "s = sum exp(x-m)\np = sum where(x<m,exp(x-m)/s*v,0)\nout p = "
               "p",
       1, 4, nullptr},
      {"trimmed by the extremes",
       "in x\nlo = min x\nhi = max x\no = sum where(x==lo or "
       "x==hi,0,x)\nc = sum where(x==lo or x==hi,0,1)\nout o = o/c",
       1, 10, nullptr},
      {"spread of the payload",
       start + "S = sum v\nmu := S/n\np = sum where(x==m,(v-mu)**2,0)\nout p "
               "= p",
       1, 7, nullptr},
  };
}

/// Masks that may select nothing, or everything.
static std::vector<Expected> masks() {
  const std::string start = "in x v\nmask k\n";
  return {
      {"filled with -inf",
       start + "s = sum v\no = sum where(k,x*s,-inf)\nout "
               "o = o",
       1, 4, nullptr},
      {"masked mean inside",
       start + "c = sum where(k,1,0)\no = sum where(k,x/c,0)\nout o = o", 1, 3,
       nullptr},
      {"masked mean outside",
       start + "c = sum where(k,1,0)\no = sum where(k,x,0)/c\nout o = o", 1, 2,
       nullptr},
      {"masked variance",
       start + "c = sum where(k,1,0)\nS = sum where(k,x,0)\nmu := S/c\nV = "
               "sum where(k,(x-mu)**2,0)\nout o = V/c",
       1, 4, nullptr},
      {"masked variance about another mean",
       start + "S = sum v\nmu := S/n\nV = sum where(k,(x-mu)**2,0)\nout o = V",
       1, 5, nullptr},
      {"masked by select",
       start + "y := where(k,x,-inf)\nm = max y\ns = sum exp(y-m)\no = sum "
               "where(k,exp(y-m)/s,0)*v\nout o = o",
       1, 4, nullptr},
      {"no maximum of masked elements",
       start + "s = sum where(k,exp(x),0)\no = sum where(k,exp(x)/s,0)*v\nout "
               "o = o",
       1, 4, nullptr},
  };
}

/// Extremes of extremes, of choices, of negations.
static std::vector<Expected> parts() {
  const std::string start =
      "in x y\nmask k\nS = sum x\nmu := S/n\nU = sum y\nnu := U/n\n";
  return {
      {"largest of two distances", start + "o = max max(x-mu,nu-y)\nout o = o",
       1, 4, nullptr},
      {"smallest of masked distances",
       start + "o = min where(k,abs(x-mu),inf)\nout o = o", 2, 4,
       "interior-optimum"},
      {"largest of masked distances",
       start + "o = max where(k,abs(x-mu),-inf)\nout o = o", 1, 6, nullptr},
      {"largest of chosen distances",
       start + "o = max where(k,x-mu,2*(y-nu))\nout o = o", 1, 6, nullptr},
      {"largest by a choice of the row",
       start + "o = max where(mu>nu,x-mu,y-nu)\nout o = o", 1, 4, nullptr},
      {"any of two", start + "o = any x>mu+1 or (k and y>nu+1)\nout o = o", 1,
       5, nullptr},
      {"all of a negation", start + "o = all not (x>mu+1 or y>nu+1)\nout o = o",
       1, 5, nullptr},
  };
}

/// Functions that are not defined on all numbers, in an order that knows NaN.
static std::vector<Expected> partial() {
  const std::string start = "in x\nS = sum x\nd := S/n\n";
  return {
      {"largest logarithm", start + "o = max log(x-d)\nout o = o", 1, 3,
       nullptr},
      {"smallest root", start + "o = min sqrt(x-d)\nout o = o", 1, 3, nullptr},
      {"best logarithms", start + "t = top2 log(x-d)\nout o = t\nout i = t_at",
       2, 2, "not-monotone"},
      {"worst logarithms",
       start + "t = bottom2 log(x-d)\nout o = t\nout i = t_at", 2, 2,
       "not-monotone"},
      {"defined everywhere",
       "in x\n" + sm() +
           "t = bottom2 log(exp(x-m)/s)\nout o = t\nout i = "
           "t_at",
       1, 3, nullptr},
  };
}

static void check(const Expected &expected) {
  SCOPED_TRACE(expected.name);
  Text text(expected.lines);
  Cascade cascade = text.cascade();
  Derivation derivation = derive(cascade);
  ASSERT_TRUE(derivation.program) << derivation.error;
  const Program &program = *derivation.program;
  EXPECT_EQ(program.passes, expected.passes);
  EXPECT_LE(program.stateSize, expected.stateSize);
  EXPECT_EQ(program.cuts.empty() ? "" : program.cuts[0].reason,
            expected.cut ? expected.cut : "");
  std::string failure;
  EXPECT_LT(worstDisagreement(cascade, program, failure), 1e-9) << failure;
  CertifyOptions options;
  options.edgeRows = 2000;
  Certified whole = certified(cascade, derivation, {}, options);
  Certificate certificate = whole.certificate;
  EXPECT_TRUE(certificate.holds) << certificate.failure;
  // Law `irregular-rows`: every row has the class of the stages as written.
  EXPECT_EQ(certificate.edgeDifferences, 0u) << certificate.edgeExample;
  if (::testing::Test::HasNonfatalFailure() || getenv("REFOLD_SHOW"))
    fprintf(stderr, "%s\n%s\n", expected.name,
            (describe(cascade, whole.derivation).str() + certificate.summary())
                .c_str());
}

namespace {
/// Rows of up to three of the edge values, against the stages as written.
class EdgeRows {
public:
  EdgeRows(const Cascade &cascade, const Program &program)
      : cascade(cascade), program(program) {
    for (Expr root : rootsOf(cascade))
      for (Expr symbol : symbolsOf(root))
        if (symbol.isSym(Role::Element) &&
            std::find(elements.begin(), elements.end(), symbol) ==
                elements.end())
          elements.push_back(symbol);
  }

  /// All rows of `length`, or `most` random ones. The first that differs, or
  /// "".
  std::string differ(uint32_t length, uint64_t most) {
    Random random(length + 1);
    Sample sample = makeSample(cascade.indices, rootsOf(cascade),
                               Family::Normal, length, random);
    DefinitionEvaluator<double> definition(cascade, sample.extents);
    ProgramEvaluator<double> fused(program, sample.extents);
    uint64_t all = 1;
    for (Expr e : elements)
      for (uint32_t i = 0; i < length; ++i)
        all = std::min(all, most + 1) * letters(e).size();
    for (uint64_t row = 0; row < std::min(all, most); ++row) {
      set(sample, row, length, all > most ? &random : nullptr);
      RowValues<double> expected = definition.run(sample);
      for (Order order : {Order::Stream, Order::Balanced, Order::Right}) {
        RowValues<double> found = fused.run(sample, order, random);
        for (size_t i = 0; i < expected.outputs.size(); ++i)
          for (size_t j = 0; j < expected.outputs[i].size(); ++j)
            if (classOf(found.outputs[i][j]) != classOf(expected.outputs[i][j]))
              return show(sample) + ": " + cascade.outputs[i].name + " is " +
                     std::to_string(found.outputs[i][j]) + ", expected " +
                     std::to_string(expected.outputs[i][j]);
      }
    }
    return "";
  }

private:
  static std::vector<double> letters(Expr e) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    if (e.type() == Type::Bool)
      return {0, 1};
    if (e.symbol().facts.nonNegative)
      return {0, 1, kInf, kNan};
    return {-kInf, -1, 0, 1, kInf, kNan};
  }
  static int classOf(double x) {
    return std::isnan(x) ? 3 : std::isinf(x) ? (x > 0 ? 1 : 2) : 0;
  }
  /// Positions that share an element's value with other indices take it too.
  void set(Sample &sample, uint64_t row, uint32_t length, Random *random) {
    for (Expr e : elements) {
      std::vector<double> own = letters(e), chosen;
      for (uint32_t i = 0; i < length; ++i, row /= own.size())
        chosen.push_back(
            own[random ? random->below(own.size()) : row % own.size()]);
      std::vector<double> &values = sample.values.at(&e.symbol());
      for (size_t i = 0; length && i < values.size(); ++i)
        values[i] = chosen[i * length / values.size()];
    }
  }
  std::string show(const Sample &sample) const {
    std::string text;
    for (Expr e : elements) {
      text += " " + e.symbol().name + " =";
      for (double value : sample.values.at(&e.symbol()))
        text += " " + std::to_string(value);
    }
    return text;
  }

  const Cascade &cascade;
  const Program &program;
  std::vector<Expr> elements;
};
} // namespace

/// Every row of up to three elements over {-inf, -1, 0, 1, inf, NaN} has the
/// class of the stages as written, in every order; a program that needs the
/// policy to requantise has it. Where there are more than
/// 600 of them (REFOLD_EDGES=N: more than N), so many at random.
TEST(DeriveTest, EdgeRowsOfTheTheoryTable) {
  const char *wanted = getenv("REFOLD_EDGES");
  uint64_t most = wanted ? strtoull(wanted, nullptr, 10) : 600;
  unsigned fused = 0, requantised = 0;
  for (const Expected &expected : suite()) {
    Text text(expected.lines);
    Cascade cascade = text.cascade();
    Policy policy;
    Derivation derivation = derive(cascade, policy);
    if (!derivation.program->isFused()) {
      policy.casts = CastPolicy::Requantise;
      derivation = derive(cascade, policy);
    }
    if (!derivation.program->isFused())
      continue;
    Certified whole = certified(cascade, derivation, policy);
    EdgeRows rows(cascade, *whole.derivation.program);
    ++fused;
    requantised += policy.casts == CastPolicy::Requantise;
    for (uint32_t length : {0, 1, 2, 3})
      EXPECT_EQ(rows.differ(length, most), "") << expected.name;
  }
  // The 44th of the page is cut under the exact policy.
  EXPECT_EQ(fused, 44u);
  EXPECT_EQ(requantised, 1u);
}

TEST(DeriveTest, Guards) {
  for (const Expected &expected : guards())
    check(expected);
}

namespace {
/// A line of a cascade, and the names that it makes.
struct Line {
  std::string text;
  std::vector<std::string> names;
  bool mentions(const std::string &name) const {
    for (size_t at = text.find(name); at != std::string::npos;
         at = text.find(name, at + 1)) {
      auto isWord = [&](size_t i) {
        return i < text.size() && (std::isalnum(text[i]) || text[i] == '_');
      };
      if (!(at > 0 && isWord(at - 1)) && !isWord(at + name.size()))
        return true;
    }
    return false;
  }
};
} // namespace

/// The same cascade with its lines in another order that is also one: each as
/// late as possible.
static std::string reordered(const std::string &lines) {
  std::vector<Line> all;
  std::istringstream input(lines);
  for (std::string text; std::getline(input, text);) {
    Line line{text, {}};
    std::istringstream words(text);
    std::string first, name;
    words >> first;
    if (first == "in" || first == "carried" || first == "param" ||
        first == "mask") {
      while (words >> name)
        line.names.push_back(name.substr(0, name.find(">=0")));
    } else if (first != "out") {
      line.names = {first, first + "_at"};
    }
    all.push_back(line);
  }
  for (size_t round = 0; round < all.size(); ++round)
    for (size_t i = 0; i + 1 < all.size(); ++i) {
      bool isFixed = all[i].names.empty() != all[i + 1].names.empty() ||
                     all[i].text.starts_with("in ") ||
                     all[i + 1].text.starts_with("in ");
      for (const std::string &name : all[i].names)
        isFixed |= all[i + 1].mentions(name);
      if (!isFixed && all[i].text < all[i + 1].text)
        std::swap(all[i], all[i + 1]);
    }
  std::string result;
  for (const Line &line : all)
    result += line.text + "\n";
  return result;
}

/// No verdict hangs on the order or the names of stages.
TEST(DeriveTest, OrderAndNamesDoNotMatter) {
  unsigned moved = 0;
  for (const auto &table :
       {suite(), guards(), ties(), masks(), parts(), partial()})
    for (const Expected &expected : table) {
      SCOPED_TRACE(expected.name);
      std::string other = reordered(expected.lines);
      moved += other != expected.lines + "\n" && other != expected.lines;
      Text text(other);
      Derivation derivation = derive(text.cascade());
      ASSERT_TRUE(derivation.program) << derivation.error;
      EXPECT_EQ(derivation.program->passes, expected.passes) << other;
      EXPECT_LE(derivation.program->stateSize, expected.stateSize) << other;
      EXPECT_EQ(derivation.program->cuts.empty()
                    ? ""
                    : derivation.program->cuts[0].reason,
                expected.cut ? expected.cut : "")
          << other;
    }
  EXPECT_GT(moved, 20u);
}

TEST(DeriveTest, Ties) {
  for (const Expected &expected : ties())
    check(expected);
}

/// s >= 1 where it is a number, so that s = 0 and max(s, eps) do nothing; the
/// guard that helps asks the maximum.
TEST(DeriveTest, IdleGuardsAreNamed) {
  auto idle = [](const std::string &share) {
    Text text("in x k>=0\ncarried v\n" + sm() + "z = sum k\no = sum " + share +
              "*v\nout o = o");
    return derive(text.cascade()).program->idleGuards;
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(idle("where(s==0,0,exp(x-m)/s)"),
            Lines{"s = 0 never holds where its operands are numbers"});
  EXPECT_EQ(idle("exp(x-m)/max(s,0.5)"),
            Lines{"max(s, 0.5) is s where that is a number"});
  EXPECT_EQ(idle("where(s>0,exp(x-m)/s,0)"),
            Lines{"s > 0 always holds where its operands are numbers"});
  EXPECT_EQ(idle("where(m==-inf,0,exp(x-m))/s"), Lines{});
  EXPECT_EQ(idle("k/max(z,0.5)"), Lines{});
  EXPECT_EQ(idle("where(z==0,0,k/z)"), Lines{});
  EXPECT_EQ(idle("exp(x-m)/max(s,2)"), Lines{});
}

TEST(DeriveTest, Masks) {
  for (const Expected &expected : masks())
    check(expected);
}

TEST(DeriveTest, Parts) {
  for (const Expected &expected : parts())
    check(expected);
}

TEST(DeriveTest, PartialFunctions) {
  for (const Expected &expected : partial())
    check(expected);
}

TEST(DeriveTest, TheoryTable) {
  for (const Expected &expected : suite())
    check(expected);
}

} // namespace refold::algebra::test
