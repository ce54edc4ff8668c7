// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Results of kernels with roles that leave shared memory by boxes: each warp
// has room for 16 rows, and a map of the result.
#include "TilePrinter.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;
using TileOp = tile::Op;

static unsigned targetOf(WritePlan &w, Plan &plan) {
  return cast<BlockArgument>(w.op.getTarget()).getArgNumber() -
         plan.cascade.numIndices();
}

/// The index of each dimension of a result, none where one is no index.
static SmallVector<unsigned> indicesOf(WritePlan &w) {
  SmallVector<unsigned> found;
  SmallVector<Value> indices(w.op.getIndices());
  for (AffineExpr expr : w.op.getMap().getResults()) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    auto arg = dim ? dyn_cast<BlockArgument>(indices[dim.getPosition()])
                   : BlockArgument();
    if (!arg || llvm::is_contained(found, arg.getArgNumber()))
      return {};
    found.push_back(arg.getArgNumber());
  }
  return found;
}

/// The one result of all columns, if boxes can have it: of 16 bits, a dimension
/// for each index of the rows and no other, read by no column.
WritePlan *TilePrinter::boxedWrite() {
  WritePlan *found = nullptr;
  for (WritePlan &w : plan.finishWrites) {
    if (!(w.set & bit(tiles.width)))
      continue;
    if (found)
      return nullptr;
    found = &w;
  }
  if (!found || !isStoredByVectors(*found) || isOfWidth(found->value))
    return nullptr;
  constexpr size_t kMostDimensions = 5;
  SmallVector<unsigned> indices = indicesOf(*found);
  if (indices.size() != tiles.rows.size() + 2 ||
      indices.size() > kMostDimensions || int(indices.back()) != tiles.width ||
      !llvm::is_contained(indices, unsigned(tiles.tileRow)))
    return nullptr;
  return found;
}

std::string TilePrinter::boxedName() {
  return kernel.operandNames[targetOf(*boxedWrite(), plan)];
}

CudaMap TilePrinter::resultMap() {
  WritePlan &w = *boxedWrite();
  SmallVector<unsigned> indices = indicesOf(w);
  int row = int(llvm::find(indices, unsigned(tiles.tileRow)) - indices.begin());
  constexpr int kRows = 16; // of a warp
  CudaMap map{targetOf(w, plan),
              extentOf(tiles.width),
              {{extentOf(tiles.tileRow), row}},
              kRows};
  for (int dim = int(indices.size()) - 2; dim >= 0; --dim)
    if (dim != row)
      map.indices.push_back({extentOf(indices[dim]), dim});
  return map;
}

void TilePrinter::printZeros() {
  for (const TileState &p : tiles.products) {
    out.line("REFOLD_UNROLL");
    out.line("for (auto &sum : " + name(*p.state) + "_sums[0])");
    out.line("  sum[0] = sum[1] = sum[2] = sum[3] = 0.0f;");
  }
}

void TilePrinter::printOwnRows() {
  ops.add(let("[[maybe_unused]] const int",
              {{"computing", "of_warp((thread_again() - 128) / 32)"}}));
  ops.add(letAs("[[maybe_unused]] const uint32_t own_rows = value_tiles + " +
                    std::to_string(2 * tiles.values.size()) +
                    " * Values::kBytes + computing * Rows::kBytes;",
                {}));
}

/// What a thread has of a row, two columns at once.
void TilePrinter::printBoxWords(WritePlan &w, ArrayRef<Node *> roots) {
  const std::string &e = kernel.indexNames[tiles.width];
  Node *value = withoutCasts(w.value);
  bool rounds = isRounded(value);
  out.line("REFOLD_UNROLL");
  out.open("for (int part = 0; part < kWidth / 8; ++part) {");
  out.line(std::string(rounds ? "float" : storedType(value->type)) +
           " pair[2];");
  out.line("REFOLD_UNROLL");
  out.open("for (int c = 2 * part; c < 2 * part + 2; ++c) {");
  out.line("[[maybe_unused]] const int64_t " + e +
           " = smaller(c / 2 * 8 + fragment_column(c % 2, which), " +
           countOf(tiles.width) + " - 1);");
  {
    Expressions::Scope inside(values, roots);
    bindSums();
    out.line("pair[c % 2] = " +
             withoutParentheses(values.value(rounds ? value->in[0] : value)) +
             ";");
  }
  out.close();
  out.line(boxedName() + "_words[i][part] = " +
           (rounds
                ? "pack(pair[0], pair[1], " + storedType(value->type) + "{});"
                : "uint32_t(pair[0].bits) | uint32_t(pair[1].bits) << 16;"));
  out.close();
}

void TilePrinter::printBoxes() {
  SmallVector<unsigned> indices = indicesOf(*boxedWrite());
  std::string at;
  for (unsigned index : llvm::reverse(indices))
    if (int(index) != tiles.width && int(index) != tiles.tileRow)
      at += ", int(" + kernel.indexNames[index] + ")";
  TileOp op = plain(TileOp::StoreBoxes);
  op.callee = "store_by_boxes<Rows>";
  op.arguments = {
      "maps + " + std::to_string(copiesByBoxes() ? boxedCopies().size() : 0),
      "own_rows", boxedName() + "_words",
      "int(" + firstOf(tiles.tileRow) + ") + which / 32 * 16" + at};
  ops.add(where("kIsBoxed", op, /*isConstant=*/true));
}
