// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Programs of tile ops of generated kernels, and the same with an op that is
// missing, there twice, or in another place: the verifier has to name a rule,
// or the list says why nothing changes.
#include "WeightedRows.h"

#include "mlir/Parser/Parser.h"
#include "refold/Conversion/CascadeToCUDA.h"
#include "refold/Conversion/VerifyTiles.h"
#include <functional>
#include <set>

using namespace refold;
using namespace refold::test;
using tile::Op;

namespace {

struct Verified {
  tile::Program program;
  tile::Entry entry;
};

/// What the verifier sees of each entry of a kernel.
std::vector<Verified> programsOf(const std::string &text) {
  auto context = makeContext();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, context.get());
  std::vector<Verified> seen;
  CudaOptions options;
  options.target = "cuda-sm90";
  options.seesTiles = [&](const tile::Program &program,
                          const tile::Entry &entry) {
    seen.push_back({program, entry});
  };
  auto kernel = printCascadeAsCuda(
      *module->getOps<mlir::func::FuncOp>().begin(), options);
  EXPECT_TRUE(mlir::succeeded(kernel));
  return seen;
}

/// Kernels whose ops differ: copies by boxes and by threads, two groups that
/// multiply and three, rows that are walked again, a bias that is brought.
struct Kind {
  const char *name;
  std::string text;
};
std::vector<Kind> kinds() {
  return {{"boxes", weightedText(80, 72)},
          {"narrow", weightedText(32, 24)},
          {"wide", weightedText(128, 128)},
          {"low", weightedText(80, 72, false, "", "-1.0e+09")},
          {"three", weightedText(64, 64)},
          {"bias", weightedText(64, 64, false, "bf16")}};
}

/// Calls for each op and the list that it is in; lists do not change meanwhile.
using Visit = std::function<void(std::vector<Op> &, size_t)>;
void eachOp(std::vector<Op> &ops, const Visit &visit) {
  for (size_t i = 0; i < ops.size(); ++i) {
    visit(ops, i);
    eachOp(ops[i].body, visit);
    eachOp(ops[i].otherwise, visit);
  }
}

/// Changes the n-th op of those that synchronise; its statement, "" behind the
/// last one.
std::string change(tile::Program &program, size_t n,
                   const std::function<void(std::vector<Op> &, size_t)> &by) {
  size_t at = 0;
  std::vector<Op> *found = nullptr;
  size_t number = 0;
  eachOp(program.ops, [&](std::vector<Op> &ops, size_t i) {
    if (ops[i].isSynchronisation() && at++ == n) {
      found = &ops;
      number = i;
    }
  });
  if (!found)
    return "";
  const Op &op = (*found)[number];
  std::string statement = op.statement() + op.comment;
  by(*found, number);
  return statement;
}

void remove(std::vector<Op> &ops, size_t i) {
  ops.erase(ops.begin() + long(i));
}
void repeat(std::vector<Op> &ops, size_t i) {
  ops.insert(ops.begin() + long(i), Op(ops[i]));
}

/// Why programs without, or with a second one of, an op are the same.
struct Equivalent {
  const char *statement; ///< that it begins with
  const char *why;
  const char *kinds = nullptr; ///< of kernels; null: all
};

// What may be there twice: nothing happens between the two.
const std::vector<Equivalent> kRepeated = {
    {"wait_gate(", "the phase is over already, and its parity stays until the "
                   "warp itself lets the next but one begin"},
    {"wait_copies<", "nothing is under way any more"},
    {"wait_boxes<", "nothing is under way any more"},
    {"wait_products<", "no more than that is under way already"},
    {"show_matrices(", "what was seen is shown already"},
    {"begin_products(", "no register is written between"},
    {"commit_products(", "a group of no products, over as soon as those before "
                         "it are"},
    {"settle(", "no instruction: registers are pinned twice"},
    {"warp_barrier(", "lanes that have met meet again"},
    {"make_gate(", "nobody has arrived at it yet"},
    {"block_barrier(", "threads that have met meet again"},
    {"give_registers<", "as many as there are"},
    {"take_registers<", "as many as there are"},
    {"low_visits.add(", "a bit that is set"},
    {"take_elements<", "registers are loaded with the same again"},
    {"multiply_panels<", "the first step of sums forgets what they were"},
    {"store_by_boxes<", "the same bytes go to the same place, after those "
                        "before are read"},
    // Sums are added twice: a wrong number, which is no matter of order.
    {"multiply_factors<", "not of the order: the emulator finds it"}};

const std::vector<Equivalent> kRemoved = {
    // But the first fence, of gates.
    {"show_matrices();",
     "boxes come by the way that matrix units read, and "
     "nothing else is read by them",
     "boxes wide low three"},
    {"wait_gate(values_left + 8 * (place ^ 1), ((turn - 1) / 2 + 1) & 1);",
     "it is there for speed: nothing is written that it waits for"},
    {"wait_gate(right_came + 8 * (turns & 1), (turns / 2) & 1);",
     "the left side is copied after the right one by the same threads, and "
     "its gate, which is waited for, opens when all of their copies are there",
     "narrow bias"},
    // Results that are not written, rows that are not walked again: wrong
    // numbers, which is no matter of order.
    {"store_by_boxes<", "not of the order: the emulator finds it"},
    {"low_visits.add(", "not of the order: the emulator finds it"}};

/// Whole statements end in a semicolon.
bool isListed(const std::vector<Equivalent> &list, const std::string &statement,
              const std::string &kind) {
  return std::any_of(list.begin(), list.end(), [&](const Equivalent &one) {
    std::string known = one.statement;
    bool isMeant = known.back() == ';' ? statement == known
                                       : statement.rfind(known, 0) == 0;
    return isMeant && (!one.kinds ||
                       std::string(one.kinds).find(kind) != std::string::npos);
  });
}

bool isRule(const std::string &name) {
  const std::vector<std::string> &rules = tile::allRules();
  return std::find(rules.begin(), rules.end(), name) != rules.end();
}

class TileProgram : public testing::TestWithParam<Kind> {};

TEST_P(TileProgram, IsVerified) {
  std::vector<Verified> all = programsOf(GetParam().text);
  ASSERT_FALSE(all.empty());
  for (auto &[program, entry] : all) {
    auto fault = tile::verify(program, entry);
    EXPECT_FALSE(fault) << fault->rule << ": " << fault->detail;
  }
}

/// Changes every op. All entries of a kernel have one text: a change is found
/// where a rule is named for one of them.
void expectFaults(const Kind &kind,
                  const std::function<void(std::vector<Op> &, size_t)> &by,
                  const std::vector<Equivalent> &equivalents) {
  std::vector<Verified> all = programsOf(kind.text);
  ASSERT_FALSE(all.empty());
  for (size_t n = 0;; ++n) {
    tile::Program changed = all.front().program;
    std::string statement = change(changed, n, by);
    if (statement.empty())
      break;
    std::string rule;
    for (const Verified &one : all)
      if (auto fault = tile::verify(changed, one.entry)) {
        rule = fault->rule;
        EXPECT_TRUE(isRule(rule)) << rule;
      }
    bool isEquivalent = isListed(equivalents, statement, kind.name);
    EXPECT_NE(rule.empty(), !isEquivalent)
        << kind.name << ": '" << statement << "' (" << n << ") "
        << (isEquivalent ? "is listed, and rejected by " + rule : "is missed");
  }
}

TEST_P(TileProgram, EveryRemovalIsRejected) {
  expectFaults(GetParam(), remove, kRemoved);
}
TEST_P(TileProgram, EveryRepetitionIsRejected) {
  expectFaults(GetParam(), repeat, kRepeated);
}

/// The first op that this holds for, inside others or not.
Op *findOp(std::vector<Op> &ops, const std::function<bool(const Op &)> &is) {
  for (Op &op : ops) {
    if (is(op))
      return &op;
    for (std::vector<Op> *inner : {&op.body, &op.otherwise})
      if (Op *found = findOp(*inner, is))
        return found;
  }
  return nullptr;
}

// Of three groups, who brings the right side waited for the values of the tile
// before also at the first tile of rows: for ever, where rows without tiles
// follow others, or rows are walked again.
TEST(TileFaults, ThreeGroupsWaitForNoValuesOfOtherRows) {
  unsigned found = 0;
  for (auto &[program, entry] : programsOf(weightedText(64, 64))) {
    Op *wait = findOp(program.ops, [](const Op &op) {
      return op.condition == "kConsumers == 3 && at + 1 < end";
    });
    ASSERT_TRUE(wait);
    wait->condition = "kConsumers == 3";
    auto fault = tile::verify(program, entry);
    EXPECT_EQ(fault.has_value(), entry.constants.at("kConsumers") == 3);
    if (!fault)
      continue;
    EXPECT_EQ(fault->rule, "deadlock");
    ++found;
  }
  EXPECT_EQ(found, 1u);
}

TEST(TileFaults, AreErrorsOfTheCompiler) {
  auto context = makeContext();
  auto module =
      mlir::parseSourceString<mlir::ModuleOp>(weightedText(), context.get());
  CudaOptions options;
  options.target = "cuda-sm90";
  // What sees it is not meant to change it; a test may.
  options.seesTiles = [](const tile::Program &, const tile::Entry &entry) {
    const_cast<tile::Entry &>(entry).sharedBytes -= 64;
  };
  std::string message;
  mlir::ScopedDiagnosticHandler handler(context.get(),
                                        [&](mlir::Diagnostic &diagnostic) {
                                          message += diagnostic.str();
                                          return mlir::success();
                                        });
  EXPECT_TRUE(mlir::failed(printCascadeAsCuda(
      *module->getOps<mlir::func::FuncOp>().begin(), options)));
  EXPECT_NE(message.find("[cuda-tile-fault]"), std::string::npos) << message;
  EXPECT_NE(message.find("shared-memory: found tiles of"), std::string::npos)
      << message;
}

INSTANTIATE_TEST_SUITE_P(Kernels, TileProgram, testing::ValuesIn(kinds()),
                         [](const auto &info) { return info.param.name; });

} // namespace
