// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "MutantsEquivalent.h"

#include <regex>
#include <vector>

namespace refold::algebra::test {

namespace {
/// A proof, and the mutants that it is about.
struct Proof {
  const char *mutants; ///< regular expression of whole names
  const char *reason;
};
} // namespace

static const Proof kProofs[] = {
    // Transports: what a side that has seen nothing does.
    {R"(.*: state [^:]*: \(or .*\) for \(and .*\))",
     "the guard now also takes states of which one part is 0; self = 0 and "
     "with "
     "= 0 are moved to 0 by the other branch too, and where with, a sum of "
     "weights, is 0, so is self"},
    {R"(weighted by a softmax: state (o\.dev|V): .*old0 -3\.4.*)"
     R"(|weighted by a softmax: state (o\.dev|V): .*\(== (self|with[01]) 0\))"
     R"(|weighted by a softmax: state (o\.dev|V): )"
     R"((-1\.70141173e\+38|3\.40282347e\+38|1) for (-3\.40282347e\+38|0))",
     "the guard is idle: exp(old0 - new0) <= 1 and the means old1, new1 are "
     "finite (that of nothing is 0), so 0 is moved to 0 without it"},
    {R"((payload of the maximum|tied flags): state [cpf]: turned round)"
     R"(|(payload of the maximum|first position): transports are turned round)",
     "where(old = new, self, identity) is the same in old and new"},

    {R"(divergence: state (k|s\.near\.(dev|tail)): .*)"
     R"(((not )?\(== (old[01] -3\.4\d*e\+38|self 0|with[01] 0)\))?.* for )"
     R"((-3\.4\d*e\+38|0|\(== .*|\(select \((and \(and|== with0) .*))",
     "as above; where the way from nothing overflows, both rows are so far out "
     "that they have one distribution or infinitely different ones, and the "
     "output reads neither state"},

    // Pivots.
    {R"(divergence: let s\.near\.mean: .*)"
     R"(|divergence: state s\.near: pivot and value of m2?(\.pivot)?)",
     "pivots are free (theory, Thm 8); a mean serves the digits only"},
    {R"(.*: let [^:]*\.pivot: -?1\.7\d*e\+38 for -?3\.4\d*e\+38)",
     "an extreme at its identity may be clamped to any number: pivots are free "
     "(theory, Thm 8)"},
    {R"(.*: let [^:]*\.mean: (0\.5|1\.01|-1) for 1)",
     "the divisor is n or a weight where that is not 0, and 0 is divided "
     "otherwise"},
    {R"(.*: let [^:]*\.shift[^:]*: (0\.5|1\.01) for 1)",
     "the divisor is n wherever there is an element"},
    {R"(covariance: let [SU]\.mean: .*)",
     "pivots are free (theory, Thm 8); a mean serves the digits only"},
    {R"(covariance: let C\.shift[^:]*: .*)",
     "bilinear: C + t Sx + s (Sy + t n) with s = -Sx/n is C - Sx Sy/n for "
     "every t, and the same with s and t exchanged"},
    {R"(no maximum: reductions start at 0)",
     "the maximum is a pivot that only we chose: max(x, 0) is one too (theory, "
     "Thm 8); e^x as written leaves the range as soon"},

    // NaN.
    {R"(.*: state [^:]*: (maxnum|minnum|max))",
     "a NaN that this state now ignores, or keeps, is also in another state or "
     "let that everything reads which reads this one"},

    // Refinement.
    {R"(.*: (stage|output) [^:]*: (V|C|Q|\(div V s\)) for \(add \2 \(mul )"
     R"(\w+\.shift .*)",
     "the move from the rounded mean to the mean is left out: in exact "
     "arithmetic it is by 0, as in the formula that the user wrote"},
    {R"(covariance: (stage C|output c): .*U\.dev \(mul C\.shift\.1 n\).*)",
     "Sy + t n is 0 with t = -Sy/n, whatever stands before it"},

    // Readouts and outputs.
    {R"((temperature|logsumexp|masked): output l: 1 for 0)",
     "the sum over nothing: log of it is added to a maximum of -inf"},
    {R"((divergence|distance to logsumexp): (stage|output) [^:]*: )"
     R"(\(add .* for \(select \(== m2? -inf\) nan .*)",
     "beside a maximum of -inf the sum of exponentials is 0: its logarithm "
     "times or plus what is infinite is NaN without the guard"},
    {R"(routing: (stage t|output p): .* for \(select \(== len\(n\) 0\) .*)",
     "in a row of nothing every place of the list is vacant, which the guard "
     "around this one asks"},
    {R"(smallest two: stage t: \(sub t S\) for .*)",
     "the key of a vacant place is inf, and so is inf - S"},
    {R"(best of one: (stage t|output p): )"
     R"((\(exp2 \(sub t m\)\)|\(exp \(neg \(sub t m\)\)\)) for .*)",
     "the largest key is the maximum: t - m = 0 or NaN"},
    {R"(largest distance: (stage|output) z: .*z\.max .*)",
     "the mean is at most the maximum (fact F4)"},
    {R"(dead rows: output o: (0\.25|0\.505) for 0\.5)",
     "s >= 1, or the row is dead: then 0 is divided"},
    {R"(second softmax: let (s\.1|m2): .*)"
     R"(|second softmax: output o: .*(nan|len\(n\)|1 for 0).*)",
     "beside a maximum of -inf s = 0 and p = 0/0 is NaN without the guard; a "
     "row of nothing writes no o"},

    {R"((divergence|distance to [^:]*): stage [ko]: )"
     R"((0 for (-?inf|nan)|o for \(select \(== m inf\) nan o\)))",
     "what is read out of a stage on rows that are not regular, which no "
     "output "
     "reads: the output has the same choice for itself, and its mutants are "
     "rejected"},

    {R"(divergence: let s\.near\.closeness: (s|\(exp s\.near\.shift\)) for .*)",
     "the closeness is now at least 1 on every row: the other form, which is "
     "as "
     "the stage was written, is taken"},
    {R"(divergence: output k: (0\.25|-0\.5|0\.505) for 0\.5)"
     R"(|divergence: output k: \(select .* for \(select \(< s\.near\.closeness .*)",
     "where the two rows are near, the grouped form has more digits; both are "
     "the same number"},

    // Values.
    {R"(element guard: state o: \(exp \(sub x m\.pivot\)\) for .*)",
     "exp(-inf - pivot) is the 0 that the guard puts there"},

    // Beliefs that are right.
    {R"(divergence: x is not negative)",
     "only the guard of dead rows is left out: 0/0 is NaN without it"},
    {R"(distance to the maximum: stage o: \(abs .*\) is \(neg .*\))",
     "x <= max x (fact F1)"},
    {R"(distance to the minimum: stage o: \(relu .*\) is \(sub x m\))",
     "x >= min x (fact F1)"},
    {R"(distance to logsumexp: stage o: \(abs .*\) is \(neg .*\))",
     "x <= log sum exp(x) (facts F2, F3)"},
    {R"(clipped share: stage o: .* is .*)",
     "0 <= exp(x - m)/s <= 1, since s is the sum of such terms (fact F2)"},
};

const char *equivalence(const std::string &name) {
  static const std::vector<std::regex> expressions = [] {
    std::vector<std::regex> result;
    for (const Proof &proof : kProofs)
      result.emplace_back(proof.mutants, std::regex::optimize);
    return result;
  }();
  for (size_t i = 0; i < expressions.size(); ++i)
    if (std::regex_match(name, expressions[i]))
      return kProofs[i].reason;
  return nullptr;
}

} // namespace refold::algebra::test
