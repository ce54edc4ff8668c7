// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of floats of 8 bits, with what is made of each element while it is
// in registers.
#include "KernelPrinter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "refold/Conversion/CascadeToVector.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

/// What sums by the matrix units for 8 bits may err by, of the largest result
/// of a row: all of a sum, or parts of 128 products (docs/numerics.md).
static constexpr double kUnitsRounding = 0x1p-7, kTogetherRounding = 0x1p-10;
/// Of sums that the units may make as a whole: each addition cuts off against
/// the sum so far, 1.4e-2 of 1024 numbers of one sign.
static constexpr int64_t kLongestOfUnits = 512;

namespace {
class F8Printer : public KernelPrinter {
public:
  F8Printer(RowKernel &kernel, const CudaOptions &options, StringRef body = "")
      : KernelPrinter(kernel, options, body) {}
  CudaKernel print();

private:
  bool mayLoseDigits();
  void chooseEntries();
  void addEntry(const std::string &units, CudaEntry entry);
  void addRoles(int columns, int stages, bool isInParts);
  std::vector<CudaMap> mapsOf(int columns);
  /// What is written there.
  unsigned operandOf(WritePlan &w) {
    return cast<BlockArgument>(w.op.getTarget()).getArgNumber() -
           plan.cascade.numIndices();
  }
  void printHead();
  void printNumbers();
  void printStruct(const char *name, ArrayRef<Node *> numbers);
  void printNumbersOf(const char *name, const char *type, StringRef index,
                      ArrayRef<Node *> numbers);
  void printBody();
  void printElement(unsigned number);
  std::string side(const RowProduct::Side &side, bool isLeft);
  /// Collects the largest parts of `n` that are numbers of a row alone, or of a
  /// column alone.
  void split(Node *n);

  SmallVector<WritePlan *> writes;
  SmallVector<Node *> ofRow, ofColumn, elements;
  std::vector<std::pair<std::string, CudaEntry>> units; ///< types of entries
};
} // namespace

/// A value that is rounded to 16 bits where it is written, before it is.
static Node *unrounded(Node *n) {
  Type stored = n->type;
  if (stored.getIntOrFloatBitWidth() != 16)
    return n;
  while (n->kind == Node::Elem && isa<arith::TruncFOp>(n->op) &&
         n->type == stored && n->in[0]->type.isF32()) {
    Node *wide = n->in[0];
    bool isTwice = wide->kind == Node::Elem && isa<arith::ExtFOp>(wide->op) &&
                   wide->in[0]->type == stored &&
                   wide->in[0]->kind == Node::Elem &&
                   isa<arith::TruncFOp>(wide->in[0]->op);
    if (!isTwice)
      return wide;
    n = wide->in[0];
  }
  return n;
}

/// Whether an error of the sum is one of about its share in `n`: no function
/// is taken of it, and it meets itself nowhere else.
static bool isTame(Node *n, Node *sum) {
  if (n == sum)
    return true;
  NodeSet all;
  collect(n, all);
  if (!all.contains(sum))
    return true;
  if (n->kind != Node::Elem ||
      !isa<arith::MulFOp, arith::DivFOp, arith::AddFOp, arith::SubFOp,
           arith::NegFOp, arith::TruncFOp, arith::ExtFOp, arith::MaxNumFOp,
           arith::MaximumFOp, arith::MinNumFOp, arith::MinimumFOp>(n->op))
    return false;
  unsigned holders = 0;
  for (auto [i, in] : llvm::enumerate(n->in)) {
    NodeSet below;
    collect(in, below);
    if (!below.contains(sum))
      continue;
    ++holders;
    bool isDivisor = isa<arith::DivFOp>(n->op) && i == 1;
    if (isDivisor || !isTame(in, sum))
      return false;
  }
  return holders == 1;
}

/// Whether results may have the digits of sums by units for 8 bits: they leave
/// the program, so that no step makes more of their errors.
bool F8Printer::mayLoseDigits() {
  auto isFinal =
      plan.cascade->getAttrOfType<DenseBoolArrayAttr>(kFinalResultsAttr);
  return llvm::all_of(writes, [&](WritePlan *w) {
    unsigned result = cast<BlockArgument>(w->op.getTarget()).getArgNumber() -
                      plan.cascade.numIndices() -
                      plan.cascade.getInputs().size();
    return isFinal && result < unsigned(isFinal.size()) && isFinal[result] &&
           isTame(w->value, kernel.product->sum);
  });
}

void F8Printer::split(Node *n) {
  bool isNumber = n->kind != Node::Const && n->kind != Node::Param &&
                  n->kind != Node::Index && n->kind != Node::Extent;
  if (!isNumber || kernel.isProduct(n))
    return;
  NodeSet all;
  collect(n, all);
  bool hasRow = dependsOn(n, kernel.product->row);
  bool hasColumn = dependsOn(n, unsigned(kernel.stream));
  if (!all.contains(kernel.product->sum) && !(hasRow && hasColumn)) {
    auto &numbers = hasColumn ? ofColumn : ofRow;
    if (!llvm::is_contained(numbers, n))
      numbers.push_back(n);
    return;
  }
  for (Node *in : n->in)
    split(in);
}

//===----------------------------------------------------------------------===//
// What is launched
//===----------------------------------------------------------------------===//

void F8Printer::addEntry(const std::string &type, CudaEntry entry) {
  entry.name = options.name + (entry.roles ? "_f8Roles" : "_f8Units") +
               std::to_string(entry.rows) + "x" +
               std::to_string(entry.columns) + "x" +
               std::to_string(entry.width);
  units.push_back({type, entry});
  result.entries.push_back(entry);
}

/// Bytes of a struct of these numbers, at most.
static int64_t bytesOf(ArrayRef<Node *> numbers) {
  int64_t size = 4;
  for (Node *n : numbers)
    if (n->type.isIndex() || n->type.getIntOrFloatBitWidth() > 32)
      size = 8;
  return std::max<int64_t>(size * int64_t(numbers.size()), 1);
}

/// Of both sides, and of results that leave by boxes.
std::vector<CudaMap> F8Printer::mapsOf(int columns) {
  const RowProduct &product = *kernel.product;
  CudaExtent depth = extentOf(product.depth), rows = extentOf(product.row),
             across = extentOf(unsigned(kernel.stream));
  constexpr int kRows = 128, kOutRows = 16;
  std::vector<CudaMap> maps = {
      {product.left.operand, depth, {{rows, product.left.along}}, kRows},
      {product.right.operand, depth, {{across, product.right.along}}, columns}};
  for (WritePlan *w : writes)
    if (unsigned to = operandOf(*w); result.operands[to].elementBytes == 2)
      maps.push_back({to, across, {{rows, 0}}, kOutRows});
  return maps;
}

/// Rectangles of F8Roles, with as many steps under way as there is room for.
void F8Printer::addRoles(int columns, int stages, bool isInParts) {
  constexpr int64_t kStepDepth = 128, kMost = int64_t(227) << 10;
  constexpr int64_t kOutBytes = 8 * 2 * 2048;
  CudaEntry entry;
  entry.threads = 384;
  entry.rows = 128;
  entry.columns = columns;
  entry.width = 16;
  entry.roles = 2;
  entry.isLoop = true;
  entry.blocksPerUnit = 1;
  int64_t numbers = llvm::alignTo(
      entry.rows * bytesOf(ofRow) + columns * bytesOf(ofColumn), 1024);
  auto bytes = [&](int64_t count) {
    return count * ((128 + columns) * kStepDepth + 16) + kOutBytes;
  };
  while (stages > 0 && bytes(stages) + numbers > kMost)
    --stages;
  if (stages < 2)
    return;
  entry.sharedBytes = bytes(stages);
  entry.maps = mapsOf(columns);
  addEntry("F8Roles<" + std::to_string(columns) + ", " +
               std::to_string(stages) + (isInParts ? ", true>" : ", false>"),
           entry);
}

/// Rectangles for the matrix units of sm_90a where sums may have fewer digits
/// (F8Sums), for those of f16 otherwise.
void F8Printer::chooseEntries() {
  bool isDense = kernel.product->left.isFlat && kernel.product->right.isFlat;
  bool hasUnits = StringRef(options.target).contains("sm90") && isDense &&
                  options.f8Sums != F8Sums::Exact && mayLoseDigits();
  int64_t depth = plan.extent(kernel.product->depth);
  bool isWhole = options.f8Sums == F8Sums::Units &&
                 !ShapedType::isDynamic(depth) && depth <= kLongestOfUnits;
  // What is read for each element by itself has no registers beside 256 sums.
  bool readsElements = llvm::any_of(elements, [&](Node *root) {
    NodeSet all;
    collect(root, all);
    return llvm::any_of(all, [&](Node *n) {
      return n->kind == Node::Read && dependsOn(n, kernel.product->row) &&
             dependsOn(n, unsigned(kernel.stream));
    });
  });
  // Nor have results of words (f32 on an H200, M 1024 / 4096 / 8192: 0.96 /
  // 0.98 / 0.98 of the time by 128 columns, which spill nothing).
  bool writesWords = llvm::all_of(
      writes, [](WritePlan *w) { return bytesOf(w->value->type) >= 4; });
  bool isNarrow = readsElements || writesWords;
  // Of two sizes in parts the larger one reads less, but fills fewer
  // multiprocessors (takesF8Product).
  if (hasUnits && !isNarrow)
    addRoles(256, 4, !isWhole);
  if (hasUnits && (isNarrow || !isWhole))
    addRoles(128, 6, !isWhole);
  // Sums of 128 products with 14 bits each, or of all of them.
  if (!result.entries.empty())
    result.factorRounding = isWhole ? kUnitsRounding : kTogetherRounding;
  auto plain = [&](int rowWarps, int columnWarps, int tiles, int parts,
                   int width) {
    CudaEntry entry;
    entry.threads = rowWarps * columnWarps * 32;
    entry.rows = rowWarps * tiles * 16;
    entry.columns = columnWarps * parts * 8;
    entry.width = width;
    constexpr int64_t kStages = 3, kRowBytes = 80; // Units, Tile of 32 pairs
    entry.sharedBytes = kStages * (entry.rows + entry.columns) * kRowBytes;
    addEntry("F8Units<" + std::to_string(rowWarps) + ", " +
                 std::to_string(columnWarps) + ", " + std::to_string(tiles) +
                 ", " + std::to_string(parts) + ", " + std::to_string(width) +
                 ">",
             entry);
  };
  if (isDense)
    plain(4, 2, 2, 8, 16);
  plain(2, 2, 2, 4, 1);
  CudaF8Product described;
  described.rows = extentOf(kernel.product->row);
  described.columns = extentOf(unsigned(kernel.stream));
  const RowProduct &product = *kernel.product;
  described.left = {product.left.operand, unsigned(product.left.depth)};
  described.right = {product.right.operand, unsigned(product.right.depth)};
  for (WritePlan *w : writes)
    described.results.push_back({operandOf(*w), 1});
  result.f8Product = described;
}

//===----------------------------------------------------------------------===//
// The text
//===----------------------------------------------------------------------===//

void F8Printer::printHead() {
  printOrigin();
  for (WritePlan *w : writes)
    out.comment("Elements " + kernel.operandNames[operandOf(*w)] + " = " +
                withoutParentheses(describe(w->op.getValue())));
  out.comment("Launch   ceil(" + kernel.indexNames[kernel.product->row] +
              "_count / R) * ceil(" + kernel.indexNames[kernel.stream] +
              "_count / C) rectangles; an entry _f8UnitsRxCxV computes one a "
              "block, in sums of f32, _f8Roles one after the other, as many "
              "blocks as the GPU takes at once. V > 1 asks that rows begin at "
              "multiples of 16 bytes and are whole vectors.");
  bool hasRoles = result.entries.front().roles > 0;
  if (hasRoles)
    out.comment(
        result.factorRounding == kUnitsRounding
            ? "Sums     _f8Roles has some 14 bits of the largest addend "
              "(--stability fastest)"
            : "Sums     _f8Roles has some 14 bits of the largest of 128 "
              "addends; these sums are added up in f32");
  printIncludes(hasRoles ? "refold_cuda_products_f8_roles.h"
                         : "refold_cuda_products_f8.h");
}

void F8Printer::printStruct(const char *name, ArrayRef<Node *> numbers) {
  out.open(std::string("struct ") + name + " {");
  for (auto [i, n] : llvm::enumerate(numbers))
    out.line(valueType(n->type) + " number_" + std::to_string(i) + ";");
  out.close("};");
}

void F8Printer::printNumbersOf(const char *name, const char *type,
                               StringRef index, ArrayRef<Node *> numbers) {
  out.open(std::string("const auto ") + name + " = [&]([[maybe_unused]] " +
           "int64_t " + index.str() + ") {");
  values.beginFunction();
  {
    Expressions::Scope scope(values, numbers, /*isClosed=*/true);
    out.line(std::string(type) + " to;");
    for (auto [i, n] : llvm::enumerate(numbers))
      out.line("to.number_" + std::to_string(i) + " = " +
               withoutParentheses(values.value(n)) + ";");
  }
  out.line("return to;");
  out.close("};");
}

std::string F8Printer::side(const RowProduct::Side &side, bool isLeft) {
  const std::string &array = kernel.operandNames[side.operand];
  auto strideOf = [&](int dim) {
    auto type =
        cast<MemRefType>(plan.cascade->getOperand(side.operand).getType());
    SmallVector<int64_t> strides;
    int64_t offset = 0;
    bool isUnit = succeeded(getStridesAndOffset(type, strides, offset)) &&
                  strides[dim] == 1;
    return isUnit ? std::string("1") : array + "_stride" + std::to_string(dim);
  };
  int first = isLeft ? side.along : side.depth;
  int second = isLeft ? side.depth : side.along;
  return "const Matrix<const " + storedType(side.read->type) + "> " +
         (isLeft ? "left" : "right") + "{" + array + ", " + strideOf(first) +
         ", " + strideOf(second) + "};";
}

/// What an element is made of its product, and of numbers of its row and
/// column.
void F8Printer::printElement(unsigned number) {
  WritePlan &w = *writes[number];
  unsigned operand = operandOf(w);
  const std::string &array = kernel.operandNames[operand];
  Node *element = elements[number];
  std::string name = "element_" + std::to_string(number);
  out.open("const auto " + name +
           " = [&]([[maybe_unused]] const OfRow &of_its_row, [[maybe_unused]] "
           "const OfColumn &of_its_column, [[maybe_unused]] int64_t " +
           kernel.indexNames[kernel.product->row] +
           ", [[maybe_unused]] int64_t " + kernel.indexNames[kernel.stream] +
           ", [[maybe_unused]] float product_e) {");
  values.beginFunction();
  {
    Expressions::Scope scope(values, {element}, /*isClosed=*/true);
    values.bind(kernel.product->sum, "product_e");
    for (auto [i, n] : llvm::enumerate(ofRow))
      values.bind(n, "of_its_row.number_" + std::to_string(i));
    for (auto [i, n] : llvm::enumerate(ofColumn))
      values.bind(n, "of_its_column.number_" + std::to_string(i));
    out.line("return " + withoutParentheses(values.value(element)) + ";");
  }
  out.close("};");
  std::string stored = storedType(w.value->type);
  auto type = cast<MemRefType>(plan.cascade->getOperand(operand).getType());
  out.line("const auto result_" + std::to_string(number) + " = made_of<" +
           stored + ">({" + array + ", " + array + "_stride0, " +
           (isDense(type) ? "1" : array + "_stride1") +
           "}, of_row, of_column, " + name + ");");
}

void F8Printer::printBody() {
  out.line("/// What all elements of a row, and of a column, are made of.");
  printStruct("OfRow", ofRow);
  printStruct("OfColumn", ofColumn);
  out.blank();
  bool hasRoles = result.entries.front().roles > 0;
  size_t begin = out.text.size();
  out.line("template <typename U>");
  out.open("REFOLD_DEVICE void " + options.name + "(" +
           parametersIn(earlier).first +
           (hasRoles ? ", const ArrayMap *maps) {" : ") {"));
  begin = out.text.size();
  out.line("REFOLD_SHARED_BYTES(memory, U::kBytes);");
  out.line(side(kernel.product->left, true));
  out.line(side(kernel.product->right, false));
  printNumbersOf("of_row", "OfRow", kernel.indexNames[kernel.product->row],
                 ofRow);
  printNumbersOf("of_column", "OfColumn", kernel.indexNames[kernel.stream],
                 ofColumn);
  std::string results;
  for (unsigned i = 0; i < writes.size(); ++i) {
    printElement(i);
    results += ", result_" + std::to_string(i);
  }
  auto countOf = [&](unsigned index) {
    return extentOf(index).operand >= 0 ? kernel.indexNames[index] + "_count"
                                        : std::to_string(plan.extent(index));
  };
  out.line("U::run(memory, left, right, " + countOf(kernel.product->row) +
           ", " + countOf(unsigned(kernel.stream)) + ", " +
           countOf(kernel.product->depth) +
           (hasRoles ? ", maps" : ", nullptr") + results + ");");
  body = out.text.substr(begin);
  out.close();
  out.line("} // namespace");
}

CudaKernel F8Printer::print() {
  for (auto *list : {&plan.finishWrites, &plan.sweepWrites})
    for (WritePlan &w : *list) {
      writes.push_back(&w);
      elements.push_back(unrounded(w.value));
      split(elements.back());
    }
  findParameters();
  chooseEntries();
  bool hasRoles = result.entries.front().roles > 0;
  printHead();
  printBody();
  for (auto &[type, entry] : units) {
    out.blank();
    std::string threads = std::to_string(entry.threads);
    out.line("REFOLD_UNIT_KERNEL(" + threads + ", 1)");
    size_t maps = entry.maps.size();
    out.open(entry.name + "(" + typedParameters +
             (maps ? ", REFOLD_MAPS(maps, " + std::to_string(maps) + ")" : "") +
             ") {");
    printLaunch();
    out.line(options.name + "<" + type + ">(" + plainParameters +
             (maps       ? ", maps.of"
              : hasRoles ? ", nullptr"
                         : "") +
             ");");
    out.close();
  }
  result.text = std::move(out.text);
  return std::move(result);
}

FailureOr<CudaKernel> cuda::printF8Products(Plan &plan,
                                            const CudaOptions &options) {
  FailureOr<RowKernel> kernel = findF8Products(plan);
  if (failed(kernel))
    return failure();
  RowKernel again = *kernel;
  F8Printer first(*kernel, options);
  first.print();
  return F8Printer(again, options, first.body).print();
}
