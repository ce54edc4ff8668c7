// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ReadKernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

using namespace refold;
using namespace refold::test;
using tile::Op;

std::string test::readHeader(const std::string &name) {
  std::ifstream file(std::string(REFOLD_CUDA_HEADERS) + "/" + name);
  EXPECT_TRUE(file) << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

tile::Tiles test::tilesAt(const std::string &name, int64_t begin, int64_t count,
                          int64_t bytes) {
  tile::Tiles tiles;
  tiles.name = name;
  tiles.begin = std::to_string(begin);
  tiles.count = std::to_string(count);
  tiles.bytes = std::to_string(bytes);
  tiles.isMet = true;
  return tiles;
}

tile::Tiles test::gatesAt(const std::string &name, int64_t begin,
                          int64_t count) {
  tile::Tiles gates = tilesAt(name, begin, count, 8);
  gates.isGate = true;
  gates.alignment = 8;
  return gates;
}

namespace {

struct Walked {
  tile::Program program;
  tile::Entry entry;
};

/// Of each launch, with conditions that only text knows met and not.
std::vector<Walked> walksOf(const ReadKernel &kernel) {
  std::vector<Walked> all;
  for (const Launch &launch : kernel.launches) {
    tile::Reading reading = kernel.reading;
    reading.numbers.insert(launch.numbers.begin(), launch.numbers.end());
    std::optional<tile::Fault> fault;
    Walked walked{tile::readProgram(reading, fault), {}};
    EXPECT_FALSE(fault) << kernel.name << ": " << fault->rule << ": "
                        << fault->detail;
    walked.entry.constants = reading.numbers;
    walked.entry.threads = kernel.threads;
    walked.entry.sharedBytes = 227 << 10;
    walked.entry.block = launch.block;
    walked.entry.walkedBlocks = launch.walkedBlocks;
    walked.entry.blocks = launch.blocks;
    walked.entry.hasVisits = false;
    for (bool takesOpen : {false, true}) {
      walked.entry.takesOpen = takesOpen;
      all.push_back(walked);
    }
  }
  return all;
}

/// The way to an op: numbers in lists, and which side of a branch.
using Way = std::vector<std::pair<size_t, bool>>;

void eachWay(const std::vector<Op> &ops, Way &way,
             const std::function<void(const Op &, const Way &)> &visit) {
  for (size_t i = 0; i < ops.size(); ++i) {
    way.push_back({i, false});
    visit(ops[i], way);
    eachWay(ops[i].body, way, visit);
    way.back().second = true;
    eachWay(ops[i].otherwise, way, visit);
    way.pop_back();
  }
}

/// The list that it is in.
std::vector<Op> *listOf(tile::Program &program, const Way &way) {
  std::vector<Op> *ops = &program.ops;
  for (size_t i = 0; i + 1 < way.size(); ++i)
    ops = way[i].second ? &(*ops)[way[i].first].otherwise
                        : &(*ops)[way[i].first].body;
  return ops;
}

bool isMeant(const Op &op) {
  return op.isSynchronisation() && op.kind != Op::Read && op.kind != Op::Write;
}

/// Whether some warp comes to an op: a barrier that there is not is found then.
bool isReached(tile::Program program, const Way &at, const tile::Entry &entry) {
  Op none;
  none.kind = Op::AwaitTurn;
  none.place = "99";
  none.count = "32";
  (*listOf(program, at))[at.back().first] = none;
  return tile::verify(program, entry).has_value();
}

void expectRejected(const ReadKernel &kernel, const char *what,
                    const std::vector<SameWithout> &same,
                    const std::function<void(std::vector<Op> &, size_t)> &by) {
  std::vector<Walked> walks = walksOf(kernel);
  ASSERT_FALSE(walks.empty());
  const std::vector<std::string> &rules = tile::allRules();
  // Launches whose numbers leave out other things have other ops: each is
  // changed where it has them.
  std::map<std::string, std::pair<bool, std::string>> found;
  std::set<std::string> reached;
  for (size_t walk = 0; walk < walks.size(); walk += 2) {
    const tile::Program &program = walks[walk].program;
    std::map<std::string, int> times;
    Way way;
    eachWay(program.ops, way, [&](const Op &op, const Way &at) {
      if (!isMeant(op))
        return;
      std::string statement = op.text;
      // Numbers of names differ between launches; the order does not.
      std::string key = statement + " #" + std::to_string(times[statement]++);
      auto &[isCaught, rule] = found[key];
      // What no launch comes to, templates have for others.
      for (size_t i = walk; i < walk + 2 && !reached.count(key); ++i)
        if (isReached(program, at, walks[i].entry))
          reached.insert(key);
      for (size_t i = walk; i < walk + 2 && !isCaught; ++i) {
        tile::Program changed = program;
        by(*listOf(changed, at), at.back().first);
        if (auto fault = tile::verify(changed, walks[i].entry)) {
          isCaught = true;
          rule = fault->rule + ": " + fault->detail;
          EXPECT_NE(std::find(rules.begin(), rules.end(), fault->rule),
                    rules.end())
              << fault->rule;
        }
      }
    });
  }
  size_t caught = 0, listed = 0, unreached = 0;
  for (auto &[statement, result] : found) {
    if (!reached.count(statement)) {
      ++unreached;
      continue;
    }
    bool isListed =
        std::any_of(same.begin(), same.end(), [&](const SameWithout &one) {
          return statement.rfind(one.statement, 0) == 0;
        });
    caught += result.first;
    listed += !result.first;
    EXPECT_NE(result.first, isListed)
        << kernel.name << ", " << what << ": '" << statement << "' "
        << (isListed ? "is listed, and rejected by " + result.second
                     : std::string("is missed"));
  }
  for (auto &[end, number] :
       {std::pair("rejected", caught), std::pair("listed", listed),
        std::pair("not_reached", unreached)})
    testing::Test::RecordProperty(std::string(what) + "_" + end, int(number));
}

} // namespace

void test::expectVerified(const ReadKernel &kernel) {
  for (const Walked &walked : walksOf(kernel)) {
    auto fault = tile::verify(walked.program, walked.entry);
    std::string launch;
    for (auto &[name, number] : walked.entry.constants)
      launch += " " + name + "=" + std::to_string(number);
    EXPECT_FALSE(fault) << kernel.name << launch << ": " << fault->rule << ": "
                        << fault->detail;
  }
}

void test::expectRemovalsRejected(const ReadKernel &kernel) {
  expectRejected(
      kernel, "removed", kernel.removed,
      [](std::vector<Op> &ops, size_t i) { ops.erase(ops.begin() + long(i)); });
}

void test::expectRepetitionsRejected(const ReadKernel &kernel) {
  expectRejected(kernel, "repeated", kernel.repeated,
                 [](std::vector<Op> &ops, size_t i) {
                   ops.insert(ops.begin() + long(i), Op(ops[i]));
                 });
}
