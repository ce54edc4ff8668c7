// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Copies of kernels with roles by boxes: one thread asks for panels of a map of
// each array, and waits for nobody's copies.
#include "TilePrinter.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;
using TileOp = tile::Op;

static bool beginsInside(const TileAccess &access) {
  auto constant = dyn_cast<AffineConstantExpr>(access.inside);
  return !constant || constant.getValue() != 0;
}

bool cuda::mayMap(const TileAccess &access) {
  constexpr unsigned kMostDimensions = 5;
  AffineMap map = cast<ReadOp>(access.read->op).getMap();
  return access.rowDim >= 0 &&
         map.getNumResults() + beginsInside(access) <= kMostDimensions &&
         llvm::none_of(map.getResults(), [&](AffineExpr expr) {
           return Expressions::isOfData(expr, access.read->in);
         });
}

bool TilePrinter::hasNarrowRows() {
  constexpr int64_t kNarrow = 32;
  auto isNarrow = [&](int index) {
    int64_t extent = plan.extent(unsigned(index));
    return !ShapedType::isDynamic(extent) && extent <= kNarrow;
  };
  return isNarrow(tiles.depth) && isNarrow(tiles.width);
}

/// What every element reads comes by all threads of the role, and everything
/// else then with it.
bool TilePrinter::copiesByBoxes() {
  return !tiles.widens() && !hasNarrowRows() && tiles.elements.empty() &&
         mayMap(tiles.left) && mayMap(tiles.right) &&
         llvm::all_of(tiles.values, mayMap);
}

SmallVector<MapIndex> cuda::indicesBeside(const TileAccess &access) {
  AffineMap map = cast<ReadOp>(access.read->op).getMap();
  SmallVector<MapIndex> indices;
  int last = int(map.getNumResults()) - 1;
  if (beginsInside(access))
    indices.push_back({-1, access.inside.floorDiv(8)});
  for (int dim = last - 1; dim >= 0; --dim)
    if (dim != access.rowDim)
      indices.push_back({dim, map.getResult(dim)});
  return indices;
}

CudaMap TilePrinter::mapOf(const TileAccess &access, int row, int columns,
                           int boxRows) {
  CudaMap map{access.operand,
              extentOf(columns),
              {{extentOf(row), access.rowDim}},
              boxRows};
  int last = int(cast<ReadOp>(access.read->op).getMap().getNumResults()) - 1;
  for (const MapIndex &index : indicesBeside(access)) {
    CudaExtent extent;
    extent.operand = int(access.operand);
    extent.dim = index.dim < 0 ? last : index.dim;
    map.indices.push_back({extent, index.dim, 16});
  }
  return map;
}

/// Arrays that are copied, in the order of their maps.
SmallVector<BoxedCopy> TilePrinter::boxedCopies() {
  SmallVector<BoxedCopy> copies = {
      {&tiles.right, "right", {"right_tiles", "place", "Right"}},
      {&tiles.left, "left", {"left_tile", "place", "Left"}}};
  for (auto [i, access] : llvm::enumerate(tiles.values))
    copies.push_back(
        {&access,
         "values",
         {"value_tiles", "(" + std::to_string(2 * i) + " + place)", "Values"}});
  return copies;
}

/// A warp for each array (four of them: the fifth array is the first one's,
/// too).
static std::string warpOf(size_t copy) {
  return "bringing == " + std::to_string(copy % 4);
}

void TilePrinter::printBringing() {
  size_t count = boxedCopies().size();
  out.comment("A thread of a warp for each array asks for its boxes.");
  ops.add(let("const int", {{"bringing", "of_warp(thread_again() / 32)"}}));
  std::string others =
      count < 4 ? "bringing >= " + std::to_string(count) + " || " : "";
  ops.add(where(others + "thread_again() % 32 != 0", jump(TileOp::Return)));
}

std::vector<CudaMap> TilePrinter::copyMaps(const CudaEntry &entry) {
  std::vector<CudaMap> maps;
  for (auto [i, copy] : llvm::enumerate(boxedCopies())) {
    bool isLeft = copy.access == &tiles.left;
    maps.push_back(mapOf(*copy.access, isLeft ? tiles.tileRow : tiles.stream,
                         i < 2 ? tiles.depth : tiles.width,
                         isLeft ? entry.rows : entry.vectors));
  }
  return maps;
}

void TilePrinter::printBoxCopy(const BoxedCopy &copy, size_t number,
                               const std::string &row) {
  std::string at;
  for (const MapIndex &index : indicesBeside(*copy.access))
    at +=
        ", int(" +
        withoutParentheses(values.subscript(index.at, copy.access->read->in)) +
        ")";
  ops.open(where(warpOf(number)));
  ops.add(atGate(TileOp::WaitGate, copy.gate + "_left", "place", "parity"));
  if (copy.access == &tiles.right)
    // Groups that take no turns are slower (7 % of growing rows) where it comes
    // before all are done with the values two tiles ago. Not asked of the first
    // tile of rows: where no other rows follow at once, the values of the last
    // tile before are let go before it comes, and the wait would not end.
    ops.add(where("kConsumers == 3 && at + 1 < end",
                  atGate(TileOp::WaitGate, "values_left", "place ^ 1",
                         "((turn - 1) / 2 + 1) & 1")));
  TileOp op = atGate(TileOp::CopyBoxes, copy.gate + "_came", "place");
  op.callee = "copy_by_boxes<" + copy.to.type + ">";
  op.to = copy.to;
  op.arguments = {"maps" + (number ? " + " + std::to_string(number) : ""),
                  row + at};
  ops.add(op);
  ops.close();
}

void TilePrinter::printBoxCopier() {
  SmallVector<BoxedCopy> copies = boxedCopies();
  printBringing();
  ops.add(let("int", {{"turn", "0"}, {"lefts", "0"}}));
  if (hasLow())
    ops.add(let("bool", {{"is_again", "false"}}));
  ops.open(loop({{"visits", "0"}}, "", "++visits"));
  Expressions::Scope scope(values, {});
  printNextVisit();
  printVisit();
  printBounds();
  printRoleRange();
  ops.open(where("begin < end"));
  ops.add(let("const int", {{"place", "lefts % kLefts"}}));
  ops.add(let("const uint32_t", {{"parity", "(lefts / kLefts + 1) & 1"}}));
  printBoxCopy(copies[1], 1,
               "int(" + kernel.indexNames[tiles.tileRow] + "_first)");
  ops.add(step("++lefts"));
  ops.close();
  ops.open(loop({{"at", "end - 1"}}, "at >= begin", "--at, ++turn"));
  ops.add(let("const int", {{"place", "turn & 1"}}));
  ops.add(let("const uint32_t", {{"parity", "(turn / 2 + 1) & 1"}}));
  for (auto [i, copy] : llvm::enumerate(copies))
    if (copy.access != &tiles.left)
      printBoxCopy(copy, i, "at * kColumns");
  ops.close();
  ops.close();
}
