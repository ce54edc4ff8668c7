// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Conversion/VerifyTiles.h"

#include "Block.h"

#include <algorithm>

using namespace refold::tile;

const std::vector<std::string> &refold::tile::allRules() {
  static const std::vector<std::string> rules = {
      "known-numbers",   "unmodelled",         "loop-ends",
      "stage-in-ring",   "uniform-collective", "group-collective",
      "gate-made",       "ordered-access",     "proxy-fence",
      "gate-bytes",      "cluster-lives",      "stage-read",
      "stage-release",   "token-waited",       "accumulator-touched",
      "register-budget", "shared-memory",      "barrier-participants",
      "deadlock",        "one-order"};
  return rules;
}

/// Rows without tiles, of one, of several; rows of a block that are none; each
/// behind the others.
static std::vector<Scenario> scenarios(bool hasLow) {
  using Visits = std::vector<Scenario::Visit>;
  std::vector<Scenario> all;
  for (const Visits &visits :
       {Visits{}, Visits{{0}}, Visits{{1}}, Visits{{5}},
        Visits{{1}, {1}, {1}, {1}}, Visits{{2}, {0}, {3}},
        Visits{{0}, {2}, {0, true}, {1}, {0}}, Visits{{4}, {1}, {2}}})
    all.push_back({visits, all.size() % 2 == 0});
  if (hasLow)
    for (uint32_t low : {0xfff0u, 0x10u}) {
      all.push_back({{{2, false, low}, {0}}, true});
      all.push_back({{{2, false, low}, {1}, {0, false, low}, {3, false, low}},
                     low == 0x10u});
    }
  return all;
}

static std::optional<Fault> checkMemory(const Compiled &program,
                                        const Path &path, int64_t sharedBytes) {
  constexpr int64_t kMost = int64_t(227) << 10;
  if (sharedBytes > kMost)
    return Fault{"shared-memory", "found " + std::to_string(sharedBytes) +
                                      " bytes; expected at most " +
                                      std::to_string(kMost)};
  struct Range {
    int64_t begin, end;
    const std::string *name;
  };
  std::vector<Range> ranges;
  for (const Compiled::Memory &tiles : program.memory) {
    if (tiles.begin.steps.empty() || tiles.isGlobal)
      continue;
    int64_t begin = numberOf(tiles.begin, path);
    int64_t bytes = numberOf(tiles.bytes, path);
    if (begin % tiles.alignment || (tiles.count > 1 && bytes % tiles.alignment))
      return Fault{"shared-memory", "found " + tiles.name + " at byte " +
                                        std::to_string(begin) +
                                        "; expected a multiple of " +
                                        std::to_string(tiles.alignment)};
    ranges.push_back({begin, begin + tiles.count * bytes, &tiles.name});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range &x, const Range &y) { return x.begin < y.begin; });
  int64_t end = 0;
  for (const Range &range : ranges) {
    if (range.begin < end)
      return Fault{"shared-memory",
                   "found " + *range.name + " where others are"};
    end = range.end;
  }
  if (end > sharedBytes)
    return Fault{"shared-memory", "found tiles of " + std::to_string(end) +
                                      " bytes in " +
                                      std::to_string(sharedBytes)};
  return std::nullopt;
}

/// What four warps do together, all of them do alike.
static std::optional<Fault> checkGroups(const std::vector<Path> &paths) {
  auto isOfGroup = [](const Event &event) {
    return event.kind == Op::BeginProducts || event.kind == Op::Multiply ||
           event.kind == Op::CommitProducts || event.kind == Op::WaitProducts ||
           event.kind == Op::GiveRegisters || event.kind == Op::TakeRegisters;
  };
  for (size_t first = 0; first + 3 < paths.size(); first += 4)
    for (size_t i = first + 1; i < first + 4; ++i) {
      const std::vector<Event> &x = paths[first].events, &y = paths[i].events;
      for (size_t a = 0, b = 0;; ++a, ++b) {
        while (a < x.size() && !isOfGroup(x[a]))
          ++a;
        while (b < y.size() && !isOfGroup(y[b]))
          ++b;
        if (a == x.size() && b == y.size())
          break;
        if (a == x.size() || b == y.size() || x[a].node != y[b].node)
          return Fault{"group-collective",
                       "found warps " + std::to_string(first) + " and " +
                           std::to_string(i) +
                           " apart in what four warps do together"};
      }
    }
  return std::nullopt;
}

static std::optional<Fault> check(const Compiled &program, const Entry &entry,
                                  const Scenario &scenario, bool isFirst) {
  int numWarps = entry.threads / 32;
  std::vector<Path> paths;
  std::optional<Fault> fault;
  for (int block = 0; block < entry.walkedBlocks; ++block)
    for (int warp = 0; warp < numWarps && !fault; ++warp)
      paths.push_back(
          walk(program, scenario, entry.block + block, warp, numWarps, fault));
  if (fault)
    return fault;
  if (isFirst)
    if (auto found = checkMemory(program, paths.back(), entry.sharedBytes))
      return found;
  if (auto found = checkGroups(paths))
    return found;
  Block forwards(program, paths, entry.threads);
  if (auto found = forwards.run(false))
    return found;
  Block backwards(program, paths, entry.threads);
  if (auto found = backwards.run(true))
    return found;
  if (forwards.matches != backwards.matches)
    return Fault{"one-order", "found a wait that sees another phase of its "
                              "gate where warps run in another order"};
  return std::nullopt;
}

std::optional<Fault> refold::tile::verify(const Program &program,
                                          const Entry &entry) {
  Compiled compiled = compile(program, entry);
  if (compiled.fault)
    return compiled.fault;
  compiled.blocks = entry.blocks;
  compiled.isRead = !entry.hasVisits;
  if (!entry.hasVisits)
    return check(compiled, entry, {{}, entry.takesOpen}, true);
  if (entry.isLikeAnother)
    return check(compiled, entry, {{{1}}, false}, true);
  bool isFirst = true;
  for (const Scenario &scenario : scenarios(compiled.lowStage >= 0)) {
    if (auto fault = check(compiled, entry, scenario, isFirst))
      return fault;
    isFirst = false;
  }
  return std::nullopt;
}
