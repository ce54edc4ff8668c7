// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks of columns that are wider than their tile: only where no array lies
// over the columns, each kind of which is planted here.
#include "../../lib/Conversion/CascadeToVector/Plan.h"
#include "CascadeSuite.h"
#include "mlir/Parser/Parser.h"
#include "refold/Target/CPU/ObjectCode.h"
#include "gtest/gtest.h"

using namespace refold;
using namespace refold::walk;

namespace {

/// What may keep values over the tiled carried index.
const std::pair<const char *, void (*)(Plan &, Node *)> kPlanted[] = {
    {"kept", [](Plan &p, Node *n) { p.passes.back().kept.push_back(n); }},
    {"prelude", [](Plan &p, Node *n) { p.passes.back().prelude.push_back(n); }},
    {"step",
     [](Plan &p, Node *n) {
       walk::Step step;
       step.contraction = n;
       p.passes.back().steps.push_back(step);
     }},
    {"operand", [](Plan &p, Node *n) { p.operands[n] = 0; }},
    {"reused", [](Plan &p, Node *n) { p.reused[n] = n; }},
    {"likely", [](Plan &p, Node *n) { p.likely[n].term = n; }},
    {"prologue", [](Plan &p, Node *n) { p.prologue.push_back(n); }},
    {"finish", [](Plan &p, Node *n) { p.finishContractions.push_back(n); }},
    {"sweep", [](Plan &p, Node *n) { p.sweepContractions.push_back(n); }},
    {"number", [](Plan &p, Node *n) { p.numbers.push_back(n); }},
    {"number of a result",
     [](Plan &p, Node *n) { p.finishNumbers.push_back(n); }},
    {"state", [](Plan &p, Node *) { p.wholes.pop_back(); }},
};

TEST(BlocksTest, AreWideOnlyWhereNoArrayLiesOverThem) {
  mlir::DialectRegistry registry;
  registerCpuDialects(registry);
  registry.insert<RefoldDialect>();
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  unsigned wide = 0;
  for (const SuiteCase &c : cascadeSuite()) {
    auto module = mlir::parseSourceString<mlir::ModuleOp>(
        c.text(c.canBeDynamic, "tile = {j = 64, e = 64}"), &context);
    ASSERT_TRUE(module) << c.name;
    CascadeOp cascade;
    module->walk([&](CascadeOp op) { cascade = op; });
    auto planOf = [&] { return makePlan(cascade, TargetFacts::avx512()); };
    auto plan = planOf();
    ASSERT_TRUE(succeeded(plan)) << c.name;
    if (!(*plan)->hasBlocksOfResults())
      continue;
    ++wide;
    for (auto [what, plant] : kPlanted) {
      auto planted = planOf();
      Node over;
      over.set = Set(1) << (*planted)->block;
      plant(**planted, &over);
      EXPECT_FALSE((*planted)->hasBlocksOfResults()) << c.name << ", " << what;
      Node other; // over rows alone it is none of the block's business
      other.set = (*planted)->rows;
      auto harmless = planOf();
      (*harmless)->passes.back().kept.push_back(&other);
      EXPECT_TRUE((*harmless)->hasBlocksOfResults()) << c.name;
    }
  }
  EXPECT_GT(wide, 0u);
}

} // namespace
