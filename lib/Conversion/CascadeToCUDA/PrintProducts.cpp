// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows of products: a block sums whole rows by matrix units, leaves them in
// shared memory, and folds them there as any row that registers hold.
#include "RowPrinter.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

namespace {
/// How a block divides its rectangle among warps, and its rows among lanes.
struct ProductShape {
  int rowWarps, columnWarps, tiles, parts; ///< RowUnits
  int depth, stages;
  int lanes; ///< that a row has
  int rows() const { return rowWarps * tiles * 16; }
  int columns() const { return columnWarps * parts * 8; }
  int threads() const { return rowWarps * columnWarps * 32; }
};
} // namespace

/// Blocks that share sums: what a large GPU has at once.
static constexpr int64_t kMostBlocks = 132;

/// A block has 64 rows, or 16 of few. Steps of 64: 128 bytes of each row, as
/// many under way as two blocks, or one with long rows, have room for. Single
/// elements (`width` 1) take more registers each.
static ProductShape shapeOf(int64_t length, bool areFew, int width,
                            bool isSm90) {
  int columns = int(llvm::PowerOf2Ceil(std::max<int64_t>(length, 16)));
  if (areFew) {
    // Steps come one after the other: nobody else hides the way.
    // What a block has of every GPU of the target: of an 8.6, 8.9 or 12.0 99
    // KiB.
    constexpr int kMostStages = 8, kLeastStages = 2;
    int room = (isSm90 ? 160 : 99) << 10;
    int warps = columns >= 64 ? 4 : 1;
    int stages =
        std::clamp(room / ((16 + columns) * 128), kLeastStages, kMostStages);
    return {1, warps, 1, columns / 8 / warps, 64, stages, warps * 2};
  }
  int stages = columns <= 128 ? 4 : columns <= 256 ? 3 : 2;
  int lanes = columns > (width > 1 ? 256 : 128) ? 8 : 4;
  if (columns == 16)
    return {4, 1, 1, 2, 64, stages, lanes};
  int warps = columns <= 64 ? 2 : 4;
  return {2, warps, 2, columns / 8 / warps, 64, stages, lanes};
}

/// Of RoleUnits, whose threads all fold 64 rows at once, or 32.
static int roleLanes(int64_t columns, int width) {
  return columns > 128 && width == 1 ? 8 : 4;
}

/// Stages of RoleUnits: what a multiprocessor has room for.
static int roleStages(int64_t columns) {
  constexpr int64_t kRoom = 226 << 10, kMost = 12;
  return int(std::min(kMost, kRoom / ((64 + columns) * 128 + 16)));
}

/// Whether RoleUnits have boxes: of fewer columns, what is read of memory
/// bounds them, and an H200 was slower with boxes.
static bool areBoxed(int64_t columns) { return columns > 128; }

/// What Steps and SumRows of the runtime take.
static int64_t sharedBytesOf(const ProductShape &shape, bool isTransposed) {
  auto tile = [](int64_t rows, int64_t columns) {
    int64_t chunks = columns / 8;
    bool isPermuted = chunks >= 8 && llvm::isPowerOf2_64(chunks);
    return rows * 16 * (isPermuted ? chunks : chunks | 1);
  };
  int64_t right = isTransposed ? tile(shape.columns(), shape.depth)
                               : tile(shape.depth, shape.columns());
  int64_t steps = shape.stages * (tile(shape.rows(), shape.depth) + right);
  return std::max(steps, shape.rows() * (int64_t(shape.columns()) * 4 + 16));
}

void RowPrinter::chooseProducts() {
  const RowProduct &product = *kernel.product;
  int64_t length = plan.extent(kernel.stream);
  int width = length % 8 == 0 ? 8 : length % 4 == 0 ? 4 : 1;
  bool isSm90 = StringRef(options.target).contains("sm90");
  auto add = [&](bool areFew, int copied, int width) {
    ProductShape shape = shapeOf(length, areFew, width, isSm90);
    CudaEntry entry;
    entry.threads = shape.threads();
    entry.rows = shape.rows();
    entry.columns = shape.columns();
    entry.copied = copied;
    entry.width = width;
    entry.vectors = int(
        llvm::divideCeil(std::max<int64_t>(length, 1), shape.lanes * width));
    entry.longest = length;
    entry.sharedBytes = sharedBytesOf(shape, product.right.isFlat);
    entry.mostBlocks = kMostBlocks;
    entry.leftBytes = int64_t(entry.rows) * entry.columns * 4;
    entry.name = options.name + "_products" + std::to_string(entry.rows) + "x" +
                 std::to_string(entry.columns) + "x" + std::to_string(copied);
    result.entries.push_back(entry);
  };
  // No more of all batches are worth blocks of 64 at any price.
  constexpr int kFewRows = 64;
  // Longer rows take more registers than four warps have for sums.
  constexpr int64_t kLongestOfRoles = 256;
  if (isSm90 && product.right.isFlat && length <= kLongestOfRoles) {
    CudaEntry entry;
    entry.threads = 256;
    entry.rows = 64;
    entry.columns = int(llvm::alignTo(std::max<int64_t>(length, 1), 16));
    entry.copied = 8;
    entry.roles = 1;
    entry.width = width;
    entry.vectors = int(llvm::divideCeil(
        entry.columns, roleLanes(entry.columns, width) * width));
    entry.longest = length;
    entry.fewestRows = kFewRows + 1;
    entry.mapBytes = areBoxed(entry.columns) ? 2 * 128 : 0;
    int64_t stepBytes = (64 + int64_t(entry.columns)) * 128;
    int64_t bytes =
        roleStages(entry.columns) * (stepBytes + (entry.mapBytes ? 24 : 16));
    entry.sharedBytes = int64_t(llvm::alignTo(bytes + entry.mapBytes, 16));
    entry.mostBlocks = kMostBlocks;
    entry.leftBytes = int64_t(entry.rows) * entry.columns * 4;
    entry.name = options.name + "_productRoles64x" +
                 std::to_string(entry.columns) + "x8";
    result.entries.push_back(entry);
  }
  add(false, 8, width);
  result.entries.back().fewestRows = kFewRows + 1;
  add(true, 8, width);
  add(false, 1, 1);
  CudaRowProduct sides;
  sides.rows = extentOf(product.row);
  sides.left = {product.left.operand, unsigned(product.left.depth)};
  sides.right = {product.right.operand,
                 unsigned(product.right.isFlat ? product.right.depth
                                               : product.right.along)};
  result.rowProduct = sides;
}

std::string RowPrinter::productArguments(const CudaEntry &entry) {
  if (entry.roles > 0)
    return "RoleUnits<" + std::to_string(entry.columns) + ", " +
           std::to_string(roleStages(entry.columns)) +
           (areBoxed(entry.columns) ? ", true" : ", false") + ">, 8, " +
           std::to_string(roleLanes(entry.columns, entry.width)) + ", " +
           std::to_string(entry.vectors) + ", " + std::to_string(entry.width) +
           ", " + std::to_string(entry.sharedBytes);
  ProductShape shape =
      shapeOf(plan.extent(kernel.stream), entry.rows < 64, entry.width,
              StringRef(options.target).contains("sm90"));
  std::string units;
  for (int number : {shape.rowWarps, shape.columnWarps, shape.tiles,
                     shape.parts, shape.depth, shape.stages})
    units += (units.empty() ? "" : ", ") + std::to_string(number);
  std::string text = "RowUnits<" + units + ">";
  for (int64_t number :
       {int64_t(entry.copied), int64_t(shape.lanes), int64_t(entry.vectors),
        int64_t(entry.width), entry.sharedBytes})
    text += ", " + std::to_string(number);
  return text;
}

void RowPrinter::printProductHead() {
  std::string blocks;
  for (unsigned row : kernel.rows)
    blocks += kernel.indexNames[row] + "_count * ";
  blocks += "ceil(" + kernel.indexNames[kernel.product->row] + "_count / R)";
  out.comment("Launch   " + blocks +
              " blocks; an entry _productsRxNxV has R rows a block and N "
              "products of each, copies V elements at once of what is "
              "multiplied: V > 1 asks that its rows begin at multiples of 16 "
              "bytes and are whole vectors. The first entry that takes the "
              "arrays is launched, with the shared memory that it names last.");
  bool hasRoles = result.entries.front().roles > 0;
  if (hasRoles)
    out.comment("         _productRolesRxNxV has four warps that copy and four "
                "that multiply.");
  printIncludes(hasRoles ? "refold_cuda_products_roles.h"
                         : "refold_cuda_products_rows.h");
}

/// The sums of products of the block's rows, in shared memory.
void RowPrinter::printProduct() {
  const RowProduct &product = *kernel.product;
  const std::string &m = kernel.indexNames[product.row];
  const std::string &d = kernel.indexNames[product.depth];
  auto matrix = [&](const char *name, const RowProduct::Side &side, int rowDim,
                    int columnDim, bool isLeft) {
    const std::string &array = kernel.operandNames[side.operand];
    auto type =
        cast<MemRefType>(plan.cascade->getOperand(side.operand).getType());
    SmallVector<int64_t> strides;
    int64_t offset = 0;
    bool areKnown = succeeded(getStridesAndOffset(type, strides, offset));
    auto strideOf = [&](int dim) {
      return areKnown && strides[dim] == 1
                 ? std::string("1")
                 : array + "_stride" + std::to_string(dim);
    };
    std::string at = array;
    auto read = cast<ReadOp>(side.read->op);
    for (auto [dim, expr] : llvm::enumerate(read.getMap().getResults())) {
      auto constant = dyn_cast<AffineConstantExpr>(expr);
      bool isOwn = int(dim) == side.along || int(dim) == side.depth;
      if (!isOwn && !(constant && constant.getValue() == 0))
        at += " + " +
              values.subscriptInside(side.operand, dim, expr, side.read->in) +
              " * " + strideOf(int(dim));
    }
    if (isLeft)
      at += " + " + m + "_first * " + strideOf(side.along);
    at += " + own_part.first * " + strideOf(side.depth);
    out.line("const Matrix<const " + storedType(side.read->type) + "> " + name +
             "{" + at + ", " + strideOf(rowDim) + ", " + strideOf(columnDim) +
             "};");
  };
  out.line("static_assert(" + count() + " <= U::kColumns && " + count() +
           " <= kChunk);");
  out.blank();
  out.line("// 0. Products: whole rows, in shared memory when they are "
           "complete.");
  out.line("const int64_t " + m + "_blocks = (" + m +
           "_count + U::kRows - 1) / U::kRows;");
  std::string groups = m + "_blocks";
  for (unsigned row : kernel.rows)
    groups = kernel.indexNames[row] + "_count * " + groups;
  out.comment("Blocks beside each other have parts of the sums of the same "
              "rows.");
  out.line("const int64_t row_parts = block_quotient(blocks(), " + groups +
           ");");
  out.line("const int64_t row_group = block_quotient(block(), row_parts);");
  out.line("const int64_t row_part = block_remainder(block(), row_parts);");
  out.line("const DepthPart own_part = part_of_depth<U::kDepth>(" + d +
           "_count, row_parts, row_part);");
  out.line("const int64_t " + m + "_first = block_remainder(row_group, " + m +
           "_blocks) * U::kRows;");
  out.line("[[maybe_unused]] const int64_t row = block_quotient(row_group, " +
           m + "_blocks);");
  printRowIndices(/*ofBlocks=*/true);
  out.line("REFOLD_SHARED_BYTES(memory, kSharedBytes);");
  matrix("left", product.left, product.left.along, product.left.depth, true);
  matrix("right", product.right, product.right.depth, product.right.along,
         false);
  out.line(std::string("U::template sum<") +
           (product.right.isFlat ? "true" : "false") +
           ", kCopied>(memory, left, right, " + m + "_count - " + m +
           "_first, " + count() +
           ", own_part.count, workspace + block() * U::kMapBytes);");
  out.line("block_barrier();");
  out.comment("Rows that the block folds, a bit each.");
  out.line("const int64_t rows_left = smaller(" + m + "_count - " + m +
           "_first, U::kRows);");
  out.line("uint64_t own_rows = first_rows(rows_left);");
  out.open("if (row_parts > 1) {");
  out.comment("Those of which it has the sums of all parts.");
  out.line("constexpr int64_t kLeftBytes = int64_t(U::kRows) * U::kColumns * "
           "4;");
  out.line(
      "unsigned char *const left_sums = workspace + blocks() * U::kMapBytes;");
  out.line(
      "own_rows = add_parts<U>(memory, left_sums + row_group * row_parts * "
      "kLeftBytes, tickets + row_group * row_parts, int(row_parts), "
      "int(row_part), int(rows_left));");
  out.line("if (own_rows == 0)");
  out.line("  return;");
  out.line("block_barrier();");
  out.close();
}

/// A row of those that the block has now.
void RowPrinter::printProductRow() {
  const std::string &m = kernel.indexNames[kernel.product->row];
  out.line("constexpr int kAtOnce = U::kThreads / kThreads; // rows");
  out.line("static_assert(U::kRows % kAtOnce == 0 && kThreads <= 32);");
  out.line("REFOLD_NO_UNROLL");
  out.open("for (int turn = 0; turn < U::kRows; turn += kAtOnce) {");
  out.line("const int lane = thread() % kThreads;");
  out.line("const int own = turn + thread() / kThreads;");
  out.line("const bool is_row = own_rows >> own & 1;");
  out.line("if (!any_lane(is_row))");
  out.line("  continue;");
  out.line("// A row that is not there is the block's first one again, and "
           "writes nothing.");
  out.line("[[maybe_unused]] const int64_t " + m + " = " + m +
           "_first + (is_row ? own : 0);");
  out.line("const uint32_t own_sums = SumRows<U::kColumns>::row(memory, own);");
}
