// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Copies of kernels with roles by boxes: one thread asks for panels of a map of
// each array, and waits for nobody's copies.
#include "TilePrinter.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

static bool beginsInside(const TileAccess &access) {
  auto constant = dyn_cast<AffineConstantExpr>(access.inside);
  return !constant || constant.getValue() != 0;
}

/// Whether a map can tell copies of the array: at most five dimensions, none of
/// them at places that data say.
static bool mayMap(const TileAccess &access) {
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
  return !hasNarrowRows() && tiles.elements.empty() && mayMap(tiles.left) &&
         mayMap(tiles.right) && llvm::all_of(tiles.values, mayMap);
}

namespace {
/// A dimension of a map in front of the row: how many, how many bytes apart,
/// and which of them is copied.
struct MapIndex {
  std::string extent, stride;
  AffineExpr at;
};
} // namespace

/// The nearest first. Where rows begin inside those of the array, whole
/// vectors of 16 bytes are one.
static SmallVector<MapIndex> indicesBeside(const TileAccess &access,
                                           StringRef array) {
  AffineMap map = cast<ReadOp>(access.read->op).getMap();
  SmallVector<MapIndex> indices;
  auto sizeOf = [&](int dim) { return (array + "_size" + Twine(dim)).str(); };
  int last = int(map.getNumResults()) - 1;
  if (beginsInside(access))
    indices.push_back({sizeOf(last), "16", access.inside.floorDiv(8)});
  for (int dim = last - 1; dim >= 0; --dim)
    if (dim != access.rowDim)
      indices.push_back({sizeOf(dim),
                         (array + "_stride" + Twine(dim) + " * 2").str(),
                         map.getResult(dim)});
  return indices;
}

/// Arrays that are copied, in the order of their maps.
SmallVector<BoxedCopy> TilePrinter::boxedCopies() {
  SmallVector<BoxedCopy> copies = {
      {&tiles.right, "Right", "right", "right_tiles + place * Right::kBytes"},
      {&tiles.left, "Left", "left", "left_tile + place * Left::kBytes"}};
  for (auto [i, access] : llvm::enumerate(tiles.values))
    copies.push_back({&access, "Values", "values",
                      "value_tiles + (" + std::to_string(2 * i) +
                          " + place) * Values::kBytes"});
  return copies;
}

/// A warp for each array (four of them: the fifth array is the first one's,
/// too).
static std::string warpOf(size_t copy) {
  return "bringing == " + std::to_string(copy % 4);
}

void TilePrinter::printCopyMaps() {
  SmallVector<BoxedCopy> copies = boxedCopies();
  out.comment(
      "A thread of a warp for each array asks for boxes of the map that "
      "its warp makes.");
  out.line("const int bringing = of_warp(thread_again() / 32);");
  if (copies.size() < 4) {
    out.line("if (bringing >= " + std::to_string(copies.size()) + ")");
    out.line("  return;");
  }
  out.line("unsigned char *const maps = workspace + (block_again() * kMaps + "
           "kMaps - " +
           std::to_string(copies.size()) + ") * 128;");
  for (auto [i, copy] : llvm::enumerate(copies)) {
    const std::string &array = kernel.operandNames[copy.access->operand];
    bool isLeft = copy.access == &tiles.left;
    std::string extents = countOf(isLeft ? tiles.tileRow : tiles.stream),
                strides = strideOf(*copy.access) + " * 2";
    SmallVector<MapIndex> beside = indicesBeside(*copy.access, array);
    for (const MapIndex &index : beside) {
      extents += ", " + index.extent;
      strides += ", " + index.stride;
    }
    std::string scratch = copy.to.substr(0, copy.to.find(" + "));
    if (i > 2)
      scratch += " + " + std::to_string(2 * (i - 2)) + " * Values::kBytes";
    out.line("if (" + warpOf(i) + ")");
    out.line("  make_array_map<" + std::to_string(1 + beside.size()) +
             ">(maps + " + std::to_string(i * 128) + ", " + scratch + ", " +
             array + ", {" + extents + "}, {" + strides + "}, " +
             countOf(i < 2 ? tiles.depth : tiles.width) + " * 2, " +
             (isLeft ? "kBlockRows);" : "kColumns);"));
  }
  out.comment("A map is made where its boxes come.");
  out.line("show_matrices();");
  out.line("warp_barrier();");
  out.line("if (thread_again() % 32 != 0)");
  out.line("  return;");
}

void TilePrinter::printBoxCopy(const BoxedCopy &copy, size_t number,
                               const std::string &row) {
  std::string at;
  for (const MapIndex &index :
       indicesBeside(*copy.access, kernel.operandNames[copy.access->operand]))
    at +=
        ", int(" +
        withoutParentheses(values.subscript(index.at, copy.access->read->in)) +
        ")";
  out.open("if (" + warpOf(number) + ") {");
  out.line("wait_gate(" + copy.gate + "_left + 8 * place, parity);");
  if (copy.access == &tiles.right) {
    // Groups that take no turns are slower (7 % of growing rows) where it comes
    // before all are done with the values two tiles ago.
    out.line("if constexpr (kConsumers == 3)");
    out.line(
        "  wait_gate(values_left + 8 * (place ^ 1), ((turn - 1) / 2 + 1) & "
        "1);");
  }
  out.line("copy_by_boxes<" + copy.type + ">(" + copy.to + ", maps + " +
           std::to_string(number * 128) + ", " + copy.gate +
           "_came + 8 * place, " + row + at + ");");
  out.close();
}

void TilePrinter::printBoxCopier() {
  SmallVector<BoxedCopy> copies = boxedCopies();
  printCopyMaps();
  out.line("int turn = 0, lefts = 0;");
  out.open("for (int visits = 0;; ++visits) {");
  Expressions::Scope scope(values, {});
  printNextVisit();
  printVisit();
  printBounds();
  printRange();
  out.open("if (begin < end) {");
  out.line("const int place = lefts % kLefts;");
  out.line("const uint32_t parity = (lefts / kLefts + 1) & 1;");
  printBoxCopy(copies[1], 1,
               "int(" + kernel.indexNames[tiles.tileRow] + "_first)");
  out.line("++lefts;");
  out.close();
  out.open("for (int at = end - 1; at >= begin; --at, ++turn) {");
  out.line("const int place = turn & 1;");
  out.line("const uint32_t parity = (turn / 2 + 1) & 1;");
  for (auto [i, copy] : llvm::enumerate(copies))
    if (copy.access != &tiles.left)
      printBoxCopy(copy, i, "at * kColumns");
  out.close();
  out.close();
}
