// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Algebra/CertificateKey.h"

#include "refold/Algebra/Derive.h"
#include "gtest/gtest.h"

namespace refold::algebra {
namespace {

/// m = max x, s = sum e^(x - m) times a number, and how they are called.
struct Summed {
  Context context;
  Cascade cascade{context};
  Program program;

  explicit Summed(const std::string &prefix, double factor = 1,
                  Facts facts = {}, int64_t extent = -1) {
    cascade.addIndex(prefix + "row", IndexRole::Row);
    unsigned n = cascade.addIndex(prefix + "n", IndexRole::Stream, extent);
    Expr x = cascade.addRead(prefix + "x", 1u | (1u << n), Type::F32, facts);
    Expr m = cascade.addStage(prefix + "m", Reducer::Max, x);
    Expr term = context.exp(context.sub(x, m));
    Expr s = cascade.addStage(prefix + "s", Reducer::Sum,
                              context.mul(term, context.real(factor)));
    cascade.addOutput(prefix + "o", s);
    program = *derive(cascade).program;
  }
  std::string key() const { return certificateKey(cascade, program); }
};

TEST(CertificateKeyTest, NamesMakeNoDifference) {
  EXPECT_EQ(Summed("a").key(), Summed("b").key());
}

TEST(CertificateKeyTest, EverythingElseDoes) {
  std::string key = Summed("a").key();
  EXPECT_NE(key, Summed("a", 2).key());
  EXPECT_NE(key, Summed("a", 1, Facts{.nonNegative = true}).key());
  EXPECT_NE(key, Summed("a", 1, {}, 64).key());
}

TEST(CertificateKeyTest, AMutantHasAKeyOfItsOwn) {
  Summed right("a"), wrong("a");
  for (Definition &definition : wrong.program.definitions)
    if (auto *state = std::get_if<State>(&definition);
        state && state->transport)
      state->transport = wrong.context.neg(state->transport);
  EXPECT_NE(right.key(), wrong.key());
  Summed later("a");
  std::get<State>(later.program.definitions.front()).pass = 1;
  EXPECT_NE(right.key(), later.key());
}

} // namespace
} // namespace refold::algebra
