// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a kernel with roles has in shared memory and registers, for the verifier
// of the tile level, which sees each entry before it is printed.
#include "TilePrinter.h"

#include <array>
#include <set>

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

/// Tiles that gates tell of, the gates themselves, and sums in registers.
void TilePrinter::describeRoles(tile::Program &program) {
  constexpr int64_t kSwizzled = 1024, kGate = 8;
  auto add = [&](const std::string &name, const std::string &count,
                 const std::string &bytes, const std::string &gate,
                 int64_t alignment) -> tile::Tiles & {
    tile::Tiles of{name, name, count, bytes, "", "", alignment, ""};
    if (!gate.empty()) {
      of.came = gate + "_came";
      of.left = gate + "_left";
    }
    program.tiles.push_back(of);
    return program.tiles.back();
  };
  std::string values = std::to_string(2 * tiles.values.size());
  add("left_tile", "kLefts", "Left::kBytes", "left", kSwizzled);
  add("right_tiles", "2", "Right::kBytes", "right", kSwizzled);
  add("value_tiles", values, "Values::kBytes", "values", kSwizzled);
  if (hasBoxes()) {
    tile::Tiles &rows =
        add("own rows", "4 * kConsumers", "Rows::kBytes", "", kSwizzled);
    rows.begin = "value_tiles + " + values + " * Values::kBytes";
    rows.when = "kBoxColumns > 0";
  }
  eachBrought([&](TileAccess &access, const std::string &condition) {
    add(access.name + "_tiles", "2", access.name + "_type::kBytes", "elements",
        128)
        .when = condition;
  });
  for (std::string name : {"left", "right", "values", "elements"})
    if (name != "elements" || mostBrought())
      for (const char *end : {"_came", "_left"})
        add(name + end, "2", "8", "", kGate);
  if (hasLow()) {
    add("all_walked", "1", "8", "", kGate);
    add("low_words", "4 * kConsumers", "0", "", 1).begin = "";
  }
  program.registers = {{"products", "kColumns / 2"},
                       {"factors", "kColumns / 4"}};
  for (const TileState &p : tiles.products)
    program.registers.push_back({name(*p.state) + "_sums", "kWidth / 2"});
}

tile::Entry TilePrinter::entryOf(const CudaEntry &entry) {
  auto panels = [](int64_t rows, int64_t columns) {
    return tile::SharedRows::panel(rows, columns).bytes();
  };
  tile::Entry to;
  to.threads = entry.threads;
  to.sharedBytes = entry.sharedBytes;
  auto count = brought.find(entry.name);
  auto boxes = boxColumns.find(entry.name);
  int64_t boxed = boxes == boxColumns.end() ? 0 : boxes->second;
  to.constants = {{"kConsumers", entry.roles},
                  {"kColumns", entry.vectors},
                  {"kDepth", entry.deepest},
                  {"kWidth", entry.widest},
                  {"kBrought", count == brought.end() ? 0 : count->second},
                  {"kBoxColumns", boxed},
                  {"kSharedBytes", entry.sharedBytes},
                  {"Left::kBytes", panels(entry.rows, entry.deepest)},
                  {"Right::kBytes", panels(entry.vectors, entry.deepest)},
                  {"Values::kBytes", panels(entry.vectors, entry.widest)},
                  {"Rows::kBytes", panels(16, boxed)},
                  {"Low::kMost", 1024},
                  {"Further", 0},
                  {"FirstOfRows", 1},
                  {"FirstOrFurther", 2}};
  // A second place of the left side where there is room: kLefts of the text.
  int64_t least =
      panels(entry.rows, entry.deepest) +
      2 * panels(entry.vectors, entry.deepest) +
      2 * int64_t(tiles.values.size()) * panels(entry.vectors, entry.widest) +
      4 * entry.roles * panels(16, boxed) +
      bytesOfBrought(unsigned(to.constants["kBrought"]), entry.rows,
                     entry.vectors) +
      gateBytes() + narrowBytes(entry);
  for (auto [name, rows, length] :
       {std::tuple("Left", int64_t(entry.rows), entry.deepest),
        {"Right", int64_t(entry.vectors), entry.deepest},
        {"Values", int64_t(entry.vectors), entry.widest}})
    to.constants[std::string(name) + "Narrow::kBytes"] =
        tiles.widensStream() ? bytesOfNarrow(rows, length, 128) : 0;
  to.constants["kLefts"] = entry.sharedBytes == least ? 1 : 2;
  eachBrought([&](TileAccess &access, const std::string &condition) {
    to.constants[access.name + "_type::kBytes"] =
        bytesOfElements(access, entry.rows, entry.vectors);
  });
  return to;
}

LogicalResult TilePrinter::verifyRoles(tile::Program program) {
  // An earlier printer has found which parameters there are: the same ops.
  if (earlierOwn.empty())
    return success();
  describeRoles(program);
  std::set<std::array<int64_t, 5>> verifiedWays;
  for (const CudaEntry &entry : result.entries) {
    if (!entry.roles)
      continue;
    tile::Entry verified = entryOf(entry);
    // What decides where warps go; other numbers are sizes.
    std::map<std::string, int64_t> &of = verified.constants;
    verified.isLikeAnother =
        !verifiedWays
             .insert({of["kConsumers"], of["kLefts"], of["kBrought"],
                      of["kBoxColumns"] > 0, of["kWidth"] > 128})
             .second;
    if (options.seesTiles)
      options.seesTiles(program, verified);
    if (auto fault = tile::verify(program, verified))
      return refuse(plan.cascade, Reason::CudaTileFault)
             << entry.name << ": " << fault->rule << ": " << fault->detail;
  }
  return success();
}
