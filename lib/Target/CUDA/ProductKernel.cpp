// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products outside cascades: a kernel for each form that a program has, over
// runtime/cuda/refold_cuda_products.h.
#include "refold/Support/Error.h"
#include "refold/Support/Reasons.h"
#include "refold/Target/CUDA/CompileCuda.h"
#include "llvm/Support/FormatVariadic.h"
#include <map>

using namespace refold;

namespace {
/// A rectangle that a block computes: Units of refold_cuda_products.h.
struct Rectangle {
  int rowWarps, columnWarps, tiles, parts;
  int depth, stages, slices;
  int threads() const { return rowWarps * columnWarps * slices * 32; }
  int rows() const { return rowWarps * tiles * 16; }
  int columns() const { return columnWarps * parts * 8; }
};
constexpr int kFlatSide = 64, kFlatThreads = 256; // multiply_flat

/// Blocks that share sums: two for each multiprocessor of a large GPU.
constexpr int64_t kMostSharing = 264;

/// The largest that gives every multiprocessor a block comes first, but few
/// rows are not computed 64 times. Where blocks are few, warps share what a
/// block sums, and more of it is under way: its way there is what takes time.
constexpr Rectangle kWide = {4, 2, 2, 8, 32, 3, 1},
                    kSmall = {2, 2, 2, 4, 64, 4, 1},
                    kSliced = {1, 1, 2, 4, 64, 6, 4},
                    kFew = {1, 4, 1, 2, 64, 4, 1},
                    kFewSliced = {1, 1, 1, 4, 64, 6, 4};

/// A rectangle of four warps that copy and `groups` times four that multiply:
/// PanelUnits of refold_cuda_products_panels.h.
struct RoleRectangle {
  int groups, columns, depth, stages;
  int blocksPerUnit;
  bool mayShare = false; ///< blocks may share what is summed for one
  int threads() const { return 128 + groups * 128; }
  int rows() const { return groups * 64; }
  int64_t sharedBytes() const {
    constexpr int64_t kGateBytes = 16;
    return stages * ((rows() + columns) * depth * 2 + kGateBytes);
  }
};
/// PlanLaunch takes the one that it expects to be done first.
constexpr RoleRectangle kRoles[] = {{2, 256, 64, 4, 1},
                                    {2, 128, 64, 6, 1},
                                    {1, 128, 64, 4, 2},
                                    {1, 64, 64, 4, 3},
                                    {1, 64, 128, 3, 2, true}};

/// A rectangle of f32 by multiply-adds: WordUnits of
/// refold_cuda_products_words.h.
struct WordRectangle {
  int rowThreads, columnThreads, rowQuads, columnQuads;
  int slices, depth, stages;
  int blocksPerUnit;
  int64_t mostBlocks; ///< that share what is summed for one; 0: none does
  bool takesAny;      ///< has an entry for any strides, too
  int threads() const { return rowThreads * columnThreads * slices; }
  int rows() const { return rowThreads * rowQuads * 4; }
  int columns() const { return columnThreads * columnQuads * 4; }
  int64_t sharedBytes() const {
    int64_t staged = int64_t(stages) * depth * (rows() + columns() + 8) * 4,
            sliced = int64_t(slices) * rows() * columns() * 4;
    return slices > 1 ? std::max(staged, sliced) : staged;
  }
};
/// PlanLaunch takes the one that it expects to be done first. Eight by eight
/// sums a thread are 64 multiply-adds for 4 loads from shared memory; with what
/// they are added to they leave room for 256 threads. Few rows come with their
/// right side: what counts is how much of it is under way.
constexpr WordRectangle kWords[] = {
    {16, 16, 2, 2, 1, 16, 4, 1, 0, true},
    {8, 8, 2, 2, 2, 16, 4, 2, kMostSharing, true},
    {4, 8, 2, 2, 8, 32, 4, 1, kMostSharing / 2, false},
    {2, 16, 2, 2, 8, 32, 4, 1, kMostSharing / 2, true},
    {1, 32, 2, 1, 8, 32, 4, 2, kMostSharing, false}};

class ProductPrinter {
public:
  /// Products of one left side and of one form, beside each other.
  ProductPrinter(llvm::ArrayRef<Step> steps, llvm::ArrayRef<BufferSpec> buffers,
                 llvm::StringRef target)
      : steps(steps), buffers(buffers),
        product(std::get<ProductStep>(steps.front().what)), target(target) {}

  llvm::Expected<CudaKernel> print(std::string name);
  KernelStep call(unsigned kernel) const;

private:
  bool hasUnits() const;
  std::optional<CudaProduct::Library> libraryForm() const;
  bool hasRoles() const { return hasUnits() && target.contains("sm90"); }
  /// Of f32: the kernel text's words.
  bool hasWords() const;
  bool isTransposed() const;
  unsigned batchRank() const { return product.result.sizes.size() - 2; }
  void addOperand(const ViewSpec &view, const std::string &name, bool isResult,
                  bool isFirst);
  void addEntry(const Rectangle *rectangle, int width);
  void addRoleEntry(const RoleRectangle &rectangle);
  void addWordEntry(const WordRectangle &rectangle, int width);
  void addEntryText(CudaEntry entry, llvm::StringRef work, int blocksPerUnit);
  std::string sharesText(const CudaEntry &entry) const;
  std::string viewsText(const std::string &more = "") const;
  std::string signature() const;
  std::string placeText(int rows, int columns) const;
  std::string targetText() const;

  const ProductStep &productAt(size_t i) const {
    return std::get<ProductStep>(steps[i].what);
  }
  /// What an operand of product `i` is called: all of them, where there is one.
  std::string nameOf(const char *name, size_t i) const {
    return name + (steps.size() > 1 ? std::to_string(i) : "");
  }
  std::string chosenText(const char *name, llvm::StringRef type,
                         unsigned rank) const;

  /// Whether no launch writes the right sides.
  bool isAhead() const {
    for (size_t i = 0; i < steps.size(); ++i)
      if (buffers[productAt(i).rhs.buffer].kind != BufferKind::Constant)
        return false;
    return true;
  }

  llvm::ArrayRef<Step> steps;
  llvm::ArrayRef<BufferSpec> buffers;
  const ProductStep &product;
  llvm::StringRef target;
  CudaKernel kernel;
  std::string typed;
};
} // namespace

/// How the text calls the type; null for one without a form.
static const char *spelled(DType dtype) {
  switch (dtype) {
  case DType::F32:
    return "float";
  case DType::F16:
    return "f16";
  case DType::BF16:
    return "bf16";
  case DType::I64:
    return "int64_t";
  case DType::I32:
    return "int32_t";
  case DType::I8:
    return "int8_t";
  default:
    return nullptr;
  }
}

static const char *spelled(Activation activation) {
  switch (activation) {
  case Activation::None:
    return "Activation::None";
  case Activation::Relu:
    return "Activation::Relu";
  case Activation::GeluErf:
    return "Activation::GeluErf";
  case Activation::Tanh:
    return "Activation::Tanh";
  }
  return "";
}

/// f32 for floats, as they are read; integers in the result's type.
static const char *sumOf(const ProductStep &product) {
  return isFloat(product.result.dtype) ? "float"
                                       : spelled(product.result.dtype);
}

bool ProductPrinter::hasUnits() const {
  return product.lhs.dtype == product.rhs.dtype &&
         (product.lhs.dtype == DType::F16 || product.lhs.dtype == DType::BF16);
}

bool ProductPrinter::hasWords() const {
  return product.lhs.dtype == DType::F32 && product.rhs.dtype == DType::F32;
}

/// One product of floats; cuBLASLt adds a bias of the result's type.
/// Activations stay with our own: it has no erf, and NaN in its maximum is its
/// choice.
std::optional<CudaProduct::Library> ProductPrinter::libraryForm() const {
  DType sides = product.lhs.dtype, result = product.result.dtype;
  bool isTaken = steps.size() == 1 && product.rhs.dtype == sides &&
                 (hasUnits() || sides == DType::F32) &&
                 (result == sides || result == DType::F32) &&
                 (!product.bias || product.bias->dtype == result) &&
                 product.activation == Activation::None;
  if (!isTaken)
    return std::nullopt;
  return CudaProduct::Library{sides, result, product.bias.has_value()};
}

/// Whether the elements that are summed lie beside each other in `rhs`.
bool ProductPrinter::isTransposed() const {
  const std::vector<SizeExpr> &strides = product.rhs.strides;
  return strides[batchRank()].constant() == 1 &&
         strides[batchRank() + 1].constant() != 1;
}

void ProductPrinter::addOperand(const ViewSpec &view, const std::string &name,
                                bool isResult, bool isFirst) {
  CudaOperand operand;
  for (const CudaOperand &o : kernel.operands)
    operand.word += 3 + 2 * o.rank;
  operand.rank = unsigned(view.sizes.size());
  operand.elementBytes = byteWidth(view.dtype);
  operand.isResult = isResult;
  operand.isConstant = buffers[view.buffer].kind == BufferKind::Constant;
  unsigned number = unsigned(kernel.operands.size());
  kernel.operands.push_back(operand);
  auto add = [&](CudaParameter::Kind kind, unsigned dim, std::string type,
                 const std::string &spelling) {
    kernel.parameters.push_back({kind, number, dim});
    typed += (typed.empty() ? "" : ", ") + std::move(type) + spelling;
  };
  add(CudaParameter::Pointer, 0,
      (isResult ? "" : "const ") + std::string(spelled(view.dtype)) + " *",
      name);
  for (unsigned d = 0; d < operand.rank; ++d)
    add(CudaParameter::Stride, d, "int64_t ",
        name + "_stride" + std::to_string(d));
  if (isResult && isFirst)
    for (unsigned d = 0; d < operand.rank; ++d)
      add(CudaParameter::Size, d, "int64_t ", "count" + std::to_string(d));
  if (number == 0)
    add(CudaParameter::Size, operand.rank - 1, "int64_t ", "depth");
}

/// An operand of the product that the block has a part of.
std::string ProductPrinter::chosenText(const char *name, llvm::StringRef type,
                                       unsigned rank) const {
  auto chosen = [&](const std::string &suffix) {
    std::string text;
    for (size_t i = 0; i + 1 < steps.size(); ++i)
      text += "which == " + std::to_string(i) + " ? " + nameOf(name, i) +
              suffix + " : ";
    return text + nameOf(name, steps.size() - 1) + suffix + ";\n";
  };
  std::string text = "  " + type.str() + " *" + name + " = " + chosen("");
  for (unsigned d = 0; d < rank; ++d) {
    std::string stride = "_stride" + std::to_string(d);
    text += "  [[maybe_unused]] const int64_t " + (name + stride) + " = " +
            chosen(stride);
  }
  return text;
}

/// Where a block is.
std::string ProductPrinter::placeText(int rows, int columns) const {
  std::string m = std::to_string(batchRank()),
              n = std::to_string(batchRank() + 1);
  std::string text;
  if (steps.size() > 1) {
    std::string count = std::to_string(steps.size());
    text += "  const int64_t which = place % " + count +
            ";\n  place /= " + count + ";\n";
    auto type = [](const ViewSpec &view) { return spelled(view.dtype); };
    text += chosenText("rhs", "const " + std::string(type(product.rhs)),
                       product.rhs.sizes.size());
    if (product.bias)
      text += chosenText("bias", "const " + std::string(type(*product.bias)),
                         product.bias->sizes.size());
    text +=
        chosenText("result", type(product.result), product.result.sizes.size());
  }
  text += "  const int64_t across = (count" + n + " + " +
          std::to_string(columns - 1) + ") / " + std::to_string(columns) +
          ";\n  const int64_t along = (count" + m + " + " +
          std::to_string(rows - 1) + ") / " + std::to_string(rows) +
          ";\n  const int64_t column0 = place % across * " +
          std::to_string(columns) +
          ";\n  place /= across;\n"
          "  const int64_t row0 = place % along * " +
          std::to_string(rows) + ";\n  place /= along;\n";
  for (unsigned d = batchRank(); d-- > 0;) {
    std::string i = std::to_string(d);
    text += "  const int64_t b" + i + " = place % count" + i +
            ";\n  place /= count" + i + ";\n";
    for (const char *name : {"lhs", "rhs", "result"})
      text += std::string("  ") + name + " += b" + i + " * " + name +
              "_stride" + i + ";\n";
  }
  return text;
}

std::string ProductPrinter::targetText() const {
  std::string m = std::to_string(batchRank()),
              n = std::to_string(batchRank() + 1);
  std::string bias = product.bias ? spelled(product.bias->dtype) : "float";
  std::string stride =
      product.bias
          ? "bias_stride" + std::to_string(product.bias->sizes.size() - 1)
          : "0";
  std::string scale = llvm::formatv("{0:e9}f", product.erfScale).str();
  return "  const Target<" + std::string(spelled(product.result.dtype)) + ", " +
         bias + ", " + spelled(product.activation) + "> target{{result, " +
         "result_stride" + m + ", result_stride" + n + "}, " +
         (product.bias ? "bias" : "nullptr") + ", " + stride + ", count" + m +
         ", count" + n + ", " + scale + "};\n";
}

std::string ProductPrinter::viewsText(const std::string &more) const {
  std::string m = std::to_string(batchRank()),
              n = std::to_string(batchRank() + 1);
  return "{lhs, lhs_stride" + m + ", lhs_stride" + n + "}, {rhs, rhs_stride" +
         m + ", rhs_stride" + n + "}, target, depth, row0, column0" + more +
         ");\n";
}

/// Which rectangle a block has, or has a part of.
std::string ProductPrinter::sharesText(const CudaEntry &entry) const {
  if (!entry.hasParts())
    return "  int64_t place = block();\n";
  auto blocks = [&](unsigned dim, int share) {
    return "((count" + std::to_string(dim) + " + " + std::to_string(share - 1) +
           ") / " + std::to_string(share) + ")";
  };
  std::string all =
      steps.size() > 1 ? std::to_string(steps.size()) + " * " : "";
  for (unsigned d = 0; d < batchRank(); ++d)
    all += "count" + std::to_string(d) + " * ";
  all += blocks(batchRank(), entry.rows) + " * " +
         blocks(batchRank() + 1, entry.columns);
  return "  const int64_t parts = block_quotient(blocks(), " + all +
         ");\n  int64_t place = block_quotient(block(), parts);\n"
         "  const SharedSums shares{workspace + place * parts * " +
         std::to_string(entry.leftBytes) +
         ", tickets + place,\n      int(parts), int(block() - place * "
         "parts)};\n";
}

/// `blocksPerUnit`: that are meant to share a multiprocessor; 0: any number.
void ProductPrinter::addEntryText(CudaEntry entry, llvm::StringRef work,
                                  int blocksPerUnit) {
  std::string threads = std::to_string(entry.threads);
  std::string bounds = blocksPerUnit > 0
                           ? "REFOLD_UNIT_KERNEL(" + threads + ", " +
                                 std::to_string(blocksPerUnit)
                           : "REFOLD_KERNEL(" + threads;
  kernel.text += "\n" + bounds + ")\n" + entry.name + "(" + typed + ") {\n" +
                 (entry.roles ? "" : "  begin_launch();\n") +
                 sharesText(entry) + placeText(entry.rows, entry.columns) +
                 targetText() + work.str() + "}\n";
  kernel.entries.push_back(std::move(entry));
}

void ProductPrinter::addRoleEntry(const RoleRectangle &rectangle) {
  CudaEntry entry;
  entry.width = 8;
  entry.rows = rectangle.rows();
  entry.columns = rectangle.columns;
  entry.threads = rectangle.threads();
  entry.roles = rectangle.groups;
  entry.copied = rectangle.depth;
  entry.blocksPerUnit = rectangle.blocksPerUnit;
  entry.sharedBytes = rectangle.sharedBytes();
  if (rectangle.mayShare) {
    entry.mostBlocks = kMostSharing;
    entry.leftBytes = int64_t(entry.rows) * entry.columns * 4;
  }
  entry.name = kernel.name + "_roles" + std::to_string(entry.rows) + "x" +
               std::to_string(entry.columns) + "x" +
               std::to_string(rectangle.depth) + "x" +
               std::to_string(entry.width);
  std::string units = "PanelUnits<" + std::to_string(rectangle.groups) + ", " +
                      std::to_string(rectangle.columns) + ", " +
                      std::to_string(rectangle.stages) + ", " +
                      std::to_string(rectangle.depth) + ">";
  std::string work = "  using Units = " + units +
                     ";\n  REFOLD_SHARED_BYTES(memory, Units::kBytes);\n"
                     "  Units::run<" +
                     (isTransposed() ? "true, " : "false, ") +
                     (isAhead() ? "true, " : "false, ") +
                     spelled(product.lhs.dtype) + ">(memory, " +
                     viewsText(rectangle.mayShare ? ", shares" : ", OwnSums{}");
  addEntryText(std::move(entry), work, rectangle.blocksPerUnit);
}

void ProductPrinter::addWordEntry(const WordRectangle &rectangle, int width) {
  CudaEntry entry;
  entry.width = width;
  entry.rows = rectangle.rows();
  entry.columns = rectangle.columns();
  entry.threads = rectangle.threads();
  entry.copied = rectangle.depth;
  entry.blocksPerUnit = rectangle.blocksPerUnit;
  entry.sharedBytes = rectangle.sharedBytes();
  entry.mostBlocks = rectangle.mostBlocks;
  if (entry.hasParts())
    entry.leftBytes = int64_t(entry.rows) * entry.columns * 4;
  entry.name = kernel.name + "_words" + std::to_string(entry.rows) + "x" +
               std::to_string(entry.columns) + "x" + std::to_string(width);
  std::string units;
  for (int number : {rectangle.rowThreads, rectangle.columnThreads,
                     rectangle.rowQuads, rectangle.columnQuads,
                     rectangle.slices, rectangle.depth, rectangle.stages})
    units += (units.empty() ? "" : ", ") + std::to_string(number);
  std::string left = width > 1 ? "Words" : "Any";
  std::string right = isTransposed() ? "Words" : width > 1 ? "Vectors" : "Any";
  std::string work = "  using Units = WordUnits<" + units +
                     ">;\n  REFOLD_SHARED_WORDS(memory, Units::kBytes);\n"
                     "  Units::run<Bring::" +
                     left + ", Bring::" + right + ", " + std::to_string(width) +
                     ">(memory, " +
                     viewsText(entry.hasParts() ? ", shares" : ", OwnSums{}");
  addEntryText(std::move(entry), work, rectangle.blocksPerUnit);
}

/// Without a rectangle: by multiply-adds.
void ProductPrinter::addEntry(const Rectangle *rectangle, int width) {
  CudaEntry entry;
  entry.width = width;
  entry.rows = rectangle ? rectangle->rows() : kFlatSide;
  entry.columns = rectangle ? rectangle->columns() : kFlatSide;
  entry.threads = rectangle ? rectangle->threads() : kFlatThreads;
  entry.name = kernel.name + "_" + std::to_string(entry.rows) + "x" +
               std::to_string(entry.columns) + "x" + std::to_string(width);
  std::string views = viewsText(), body;
  if (rectangle) {
    // As Tile lays them out.
    auto tileBytes = [](int rows, int columns) {
      int chunks = columns / 8;
      bool isPermuted = chunks >= 8 && (chunks & (chunks - 1)) == 0;
      return int64_t(rows) * 16 * (isPermuted ? chunks : chunks | 1);
    };
    int depth = rectangle->depth;
    int64_t right = isTransposed() ? tileBytes(entry.columns, depth)
                                   : tileBytes(depth, entry.columns);
    entry.sharedBytes =
        rectangle->stages * (tileBytes(entry.rows, depth) + right);
    std::string units;
    for (int number :
         {rectangle->rowWarps, rectangle->columnWarps, rectangle->tiles,
          rectangle->parts, depth, rectangle->stages, rectangle->slices})
      units += (units.empty() ? "" : ", ") + std::to_string(number);
    body += "  REFOLD_SHARED_BYTES(memory, " +
            std::to_string(entry.sharedBytes) +
            ");\n  multiply_on_units<Units<" + units + ">, " +
            (isTransposed() ? "true" : "false") + ", " + std::to_string(width) +
            ", " + std::to_string(entry.sharedBytes) + ", " +
            spelled(product.lhs.dtype) + ">(memory, " + views;
  } else {
    std::string sum = sumOf(product);
    body += "  REFOLD_SHARED(" + sum +
            ", left_side, kFlatDepth * kFlatStride"
            ");\n  REFOLD_SHARED(" +
            sum +
            ", right_side, kFlatDepth * "
            "kFlatStride);\n  multiply_flat<" +
            sum + ", " + spelled(product.lhs.dtype) + ", " +
            spelled(product.rhs.dtype) + ">(left_side, right_side, " + views;
  }
  // Several products have the strides of all of them: left to itself ptxas
  // keeps to 72 registers, and spills.
  constexpr int kThreadsOfUnit = 256;
  int blocksPerUnit = std::max(kThreadsOfUnit / entry.threads, 1);
  addEntryText(std::move(entry), body, steps.size() > 1 ? blocksPerUnit : 0);
}

std::string ProductPrinter::signature() const {
  std::string batch;
  for (unsigned d = 0; d < batchRank(); ++d)
    batch += "b" + std::to_string(d) + ", ";
  std::string sum = "sum over k of lhs[" + batch + "m, k] * rhs[" + batch +
                    "k, n]" + (product.bias ? " + bias[n]" : "");
  llvm::StringRef activation = spelled(product.activation);
  activation.consume_front("Activation::");
  if (product.activation != Activation::None)
    sum = activation.str() + "(" + sum + ")";
  return "result[" + batch + "m, n] = " + sum;
}

llvm::Expected<CudaKernel> ProductPrinter::print(std::string name) {
  std::vector<const ViewSpec *> views = {&product.lhs, &product.rhs,
                                         &product.result};
  if (product.bias)
    views.push_back(&*product.bias);
  for (const ViewSpec *view : views)
    if (!spelled(view->dtype) ||
        isFloat(view->dtype) != isFloat(product.result.dtype))
      return fail(ExitCode::Unsupported,
                  "'" + steps.front().name + "': [" +
                      llvm::StringRef(keyOf(Reason::CudaHostStep)) +
                      "] found a matrix product of " +
                      infoOf(view->dtype).name +
                      " outside a cascade; expected f32, f16, bf16, i8, i32 "
                      "or i64");
  kernel.name = std::move(name);
  addOperand(product.lhs, "lhs", false, true);
  for (size_t i = 0; i < steps.size(); ++i)
    addOperand(productAt(i).rhs, nameOf("rhs", i), false, i == 0);
  for (size_t i = 0; product.bias && i < steps.size(); ++i)
    addOperand(*productAt(i).bias, nameOf("bias", i), false, i == 0);
  for (size_t i = 0; i < steps.size(); ++i)
    addOperand(productAt(i).result, nameOf("result", i), true, i == 0);
  kernel.product = CudaProduct{isTransposed(), unsigned(steps.size()),
                               product.activation == Activation::GeluErf ||
                                   product.activation == Activation::Tanh,
                               libraryForm()};
  kernel.text =
      "// refold, --target " + target.str() +
      ". Generated; do not edit.\n"
      "// Product  " +
      signature() +
      (steps.size() > 1 ? "\n//   for each of " + std::to_string(steps.size()) +
                              " right sides, biases and results, side by side"
                        : "") +
      "\n// Launch   " +
      (steps.size() > 1 ? std::to_string(steps.size()) + " * " : "") +
      "product of the batch extents * ceil(m / R) * "
      "ceil(n / C) blocks; an entry _RxCxV\n//   computes R x C of "
      "the result, V elements at once: V > 1 asks that rows begin "
      "at\n//   multiples of 16 bytes and are whole vectors." +
      (hasRoles() ? " Of _rolesRxCxDxV four warps copy, D of a\n//   "
                    "sum at once, and the others multiply.\n"
                  : "\n") +
      "#include \"refold_cuda.h\"\n"
      "#include \"refold_cuda_products" +
      (hasRoles()   ? "_panels"
       : hasWords() ? "_words"
                    : "") +
      ".h\"\n\n"
      "using namespace refold;\n";
  if (hasRoles() || hasWords()) {
    kernel.parameters.push_back({CudaParameter::Workspace, 0, 0});
    kernel.parameters.push_back({CudaParameter::Tickets, 0, 0});
    typed += ", [[maybe_unused]] unsigned char *workspace, "
             "[[maybe_unused]] uint32_t *tickets";
  }
  if (hasWords()) {
    for (const WordRectangle &rectangle : kWords)
      addWordEntry(rectangle, 4);
    for (const WordRectangle &rectangle : kWords)
      if (rectangle.takesAny)
        addWordEntry(rectangle, 1);
  } else if (hasUnits()) {
    if (hasRoles()) {
      for (const RoleRectangle &rectangle : kRoles)
        addRoleEntry(rectangle);
    } else {
      for (const Rectangle &rectangle :
           {kFewSliced, kFew, kWide, kSmall, kSliced})
        addEntry(&rectangle, 8);
    }
    addEntry(&kSmall, 1);
  } else {
    addEntry(nullptr, 1);
  }
  return std::move(kernel);
}

KernelStep ProductPrinter::call(unsigned number) const {
  KernelStep result;
  result.kernel = number;
  result.operands = {product.lhs};
  for (size_t i = 0; i < steps.size(); ++i)
    result.operands.push_back(productAt(i).rhs);
  for (size_t i = 0; product.bias && i < steps.size(); ++i)
    result.operands.push_back(*productAt(i).bias);
  result.numInputs = unsigned(result.operands.size());
  for (size_t i = 0; i < steps.size(); ++i)
    result.operands.push_back(productAt(i).result);
  return result;
}

static bool isSame(const ViewSpec &a, const ViewSpec &b) {
  return a.buffer == b.buffer && a.dtype == b.dtype && a.offset == b.offset &&
         a.sizes == b.sizes && a.strides == b.strides;
}

/// How many steps from `first` on are products of one left side, in 16 bits,
/// and of one form, none of what another makes.
static size_t countBeside(llvm::ArrayRef<Step> steps, size_t first,
                          llvm::StringRef text,
                          llvm::function_ref<std::string(size_t)> textAt) {
  constexpr size_t kMost = 4;
  const ProductStep &own = std::get<ProductStep>(steps[first].what);
  bool isNarrow = own.lhs.dtype == DType::F16 || own.lhs.dtype == DType::BF16;
  size_t count = 1;
  for (; isNarrow && count < kMost && first + count < steps.size(); ++count) {
    auto *next = std::get_if<ProductStep>(&steps[first + count].what);
    if (!next || !isSame(next->lhs, own.lhs) ||
        next->result.sizes != own.result.sizes ||
        next->rhs.dtype != own.rhs.dtype || textAt(first + count) != text)
      break;
    bool isApart = true;
    for (size_t i = 0; i < count; ++i) {
      unsigned made =
          std::get<ProductStep>(steps[first + i].what).result.buffer;
      isApart &= made != next->rhs.buffer && made != next->result.buffer &&
                 made != next->lhs.buffer &&
                 !(next->bias && next->bias->buffer == made);
    }
    if (!isApart)
      break;
  }
  return count;
}

llvm::Error refold::addProductKernels(ExecutableSpec &spec,
                                      std::vector<CudaKernel> &kernels,
                                      const CudaTarget &target) {
  // Layers of a model have the same kernels.
  std::map<std::string, unsigned> known;
  std::vector<Step> steps;
  llvm::ArrayRef<Step> all = spec.steps;
  size_t firstOther = SIZE_MAX;
  for (size_t at = 0; at < all.size();) {
    // What is for other sizes is launched alone.
    bool isOther = at >= spec.firstOther;
    if (isOther && firstOther == SIZE_MAX)
      firstOther = steps.size();
    if (!std::holds_alternative<ProductStep>(all[at].what)) {
      steps.push_back(all[at++]);
      continue;
    }
    auto print = [&](llvm::ArrayRef<Step> some, std::string name) {
      return ProductPrinter(some, spec.buffers, target.name)
          .print(std::move(name));
    };
    llvm::Expected<CudaKernel> plain = print(all.slice(at, 1), "product");
    if (!plain)
      return plain.takeError();
    auto textAt = [&](size_t i) {
      llvm::Expected<CudaKernel> other = print(all.slice(i, 1), "product");
      if (other)
        return other->text;
      llvm::consumeError(other.takeError());
      return std::string();
    };
    size_t count = countBeside(isOther ? all : all.take_front(spec.firstOther),
                               at, plain->text, textAt);
    llvm::ArrayRef<Step> some = all.slice(at, count);
    if (count > 1) {
      plain = print(some, "product");
      if (!plain)
        return plain.takeError();
    }
    auto [it, isNew] = known.try_emplace(plain->text, unsigned(kernels.size()));
    if (isNew) {
      llvm::Expected<CudaKernel> kernel =
          print(some, "product" + std::to_string(known.size() - 1));
      if (!kernel)
        return kernel.takeError();
      kernels.push_back(std::move(*kernel));
    }
    Step step = all[at];
    step.what =
        ProductPrinter(some, spec.buffers, target.name).call(it->second);
    steps.push_back(std::move(step));
    at += count;
  }
  spec.steps = std::move(steps);
  spec.firstOther = firstOther;
  return llvm::Error::success();
}
