// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ReadKernels.h"

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

tile::Tiles test::partsOf(int64_t count) {
  tile::Tiles parts;
  parts.name = "parts";
  parts.count = std::to_string(count);
  parts.isGlobal = true;
  return parts;
}

namespace {

struct Walked {
  tile::Program program;
  std::vector<tile::Entry> entries; ///< of a launch
};

bool hasOpen(const std::vector<Op> &ops) {
  return std::any_of(ops.begin(), ops.end(), [](const Op &op) {
    return (op.kind == Op::Branch && op.isOpen) || hasOpen(op.body) ||
           hasOpen(op.otherwise);
  });
}

/// Of each launch, with conditions that only text knows not met and met.
std::vector<Walked> walksOf(const ReadKernel &kernel) {
  std::vector<Walked> all;
  for (const Launch &launch : kernel.launches) {
    tile::Reading reading = kernel.reading;
    reading.numbers.insert(launch.numbers.begin(), launch.numbers.end());
    std::optional<tile::Fault> fault;
    Walked walked{tile::readProgram(reading, fault), {}};
    EXPECT_FALSE(fault) << kernel.name << ": " << fault->rule << ": "
                        << fault->detail;
    tile::Entry entry;
    entry.constants = reading.numbers;
    entry.threads = kernel.threads;
    entry.sharedBytes = 227 << 10;
    entry.block = launch.block;
    entry.walkedBlocks = launch.walkedBlocks;
    entry.blocks = launch.blocks;
    entry.hasVisits = false;
    walked.entries.push_back(entry);
    entry.takesOpen = true;
    if (hasOpen(walked.program.ops))
      walked.entries.push_back(entry);
    all.push_back(std::move(walked));
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

/// Numbers as "#", and names without those that tell them apart.
std::string withoutNumbers(const std::string &text) {
  std::string to;
  for (size_t at = 0; at < text.size(); ++at) {
    size_t end = at;
    while (end < text.size() && std::isdigit(uint8_t(text[end])))
      ++end;
    bool isOfName =
        !to.empty() && (std::isalpha(uint8_t(to.back())) || to.back() == '_');
    bool isOwn = isOfName && to.back() == '_' &&
                 (end == text.size() || !std::isalnum(uint8_t(text[end])));
    if (end == at || (isOfName && !isOwn)) {
      to += text[at];
      continue;
    }
    if (isOwn)
      to.pop_back();
    else
      to += '#';
    at = end - 1;
  }
  return to;
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
                    const std::vector<SameWithout> &same, size_t most,
                    const std::function<void(std::vector<Op> &, size_t)> &by) {
  std::vector<Walked> walks = walksOf(kernel);
  ASSERT_FALSE(walks.empty());
  const std::vector<std::string> &rules = tile::allRules();
  // Launches whose numbers leave out other things have other ops: each is
  // changed where it has them.
  std::map<std::string, std::pair<bool, std::string>> found;
  std::set<std::string> reached;
  std::map<std::string, std::string> alike;
  walks.resize(std::min(walks.size(), most));
  for (const Walked &walked : walks) {
    std::map<std::string, int> times;
    Way way;
    eachWay(walked.program.ops, way, [&](const Op &op, const Way &at) {
      if (!isMeant(op))
        return;
      // Numbers of names differ between launches; the order does not.
      std::string key = op.text + " #" + std::to_string(times[op.text]++);
      std::string same = withoutNumbers(op.text) + " ";
      alike[key] = same + std::to_string(times[same]++);
      auto &[isCaught, rule] = found[key];
      if (isCaught)
        return;
      tile::Program changed = walked.program;
      by(*listOf(changed, at), at.back().first);
      for (const tile::Entry &entry : walked.entries)
        if (auto fault = tile::verify(changed, entry)) {
          isCaught = true;
          rule = fault->rule + ": " + fault->detail;
          EXPECT_NE(std::find(rules.begin(), rules.end(), fault->rule),
                    rules.end())
              << fault->rule;
          reached.insert(key);
          return;
        }
      // What no launch comes to, templates have for others.
      for (const tile::Entry &entry : walked.entries)
        if (!reached.count(key) && isReached(walked.program, at, entry))
          reached.insert(key);
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
          return statement.rfind(one.statement, 0) == 0 ||
                 alike[statement].rfind(one.statement, 0) == 0;
        });
    caught += result.first;
    listed += !result.first;
    EXPECT_NE(result.first, isListed)
        << kernel.name << ", " << what << ": '" << statement << "' ('"
        << alike[statement] << "') "
        << (isListed ? "is listed, and rejected by " + result.second
                     : std::string("is missed"));
  }
  for (auto &[end, number] :
       {std::pair("rejected", caught), std::pair("listed", listed),
        std::pair("not_reached", unreached)})
    testing::Test::RecordProperty(std::string(what) + "_" + end, int(number));
}

} // namespace

TEST_P(ReadKernelTest, IsVerified) {
  const ReadKernel &kernel = GetParam();
  for (const Walked &walked : walksOf(kernel))
    for (const tile::Entry &entry : walked.entries) {
      auto fault = tile::verify(walked.program, entry);
      std::string launch;
      for (auto &[name, number] : entry.constants)
        launch += " " + name + "=" + std::to_string(number);
      EXPECT_FALSE(fault) << kernel.name << launch << ": " << fault->rule
                          << ": " << fault->detail;
    }
}

TEST_P(ReadKernelTest, EveryRemovalIsRejected) {
  expectRejected(
      GetParam(), "removed", GetParam().removed, GetParam().mostSwept,
      [](std::vector<Op> &ops, size_t i) { ops.erase(ops.begin() + long(i)); });
}

TEST_P(ReadKernelTest, EveryRepetitionIsRejected) {
  expectRejected(GetParam(), "repeated", GetParam().repeated,
                 GetParam().mostRepeated, [](std::vector<Op> &ops, size_t i) {
                   ops.insert(ops.begin() + long(i), Op(ops[i]));
                 });
}
