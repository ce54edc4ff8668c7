// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products outside cascades: a kernel for each form that a program has, over
// runtime/cuda/refold_cuda_products.h.
#include "refold/Support/Error.h"
#include "refold/Support/Reasons.h"
#include "refold/Target/CUDA/CompileCuda.h"
#include <map>

using namespace refold;

namespace {
/// A rectangle that a block computes: Units of refold_cuda_products.h.
struct Rectangle {
  int rowWarps, columnWarps, tiles, parts;
  int threads() const { return rowWarps * columnWarps * 32; }
  int rows() const { return rowWarps * tiles * 16; }
  int columns() const { return columnWarps * parts * 8; }
};
constexpr int kUnitsDepth = 32, kUnitsStages = 3; // Units
constexpr int kFlatSide = 64, kFlatThreads = 256; // multiply_flat

/// The largest that gives every multiprocessor a block comes first, but few
/// rows are not computed 64 times.
constexpr Rectangle kWide = {4, 2, 2, 8}, kFew = {1, 4, 1, 2},
                    kSmall = {2, 2, 2, 4};

class ProductPrinter {
public:
  ProductPrinter(const Step &step, llvm::StringRef target)
      : step(step), product(std::get<ProductStep>(step.what)), target(target) {}

  llvm::Expected<CudaKernel> print(std::string name);
  KernelStep call(unsigned kernel) const;

private:
  bool hasUnits() const;
  bool isTransposed() const;
  unsigned batchRank() const { return product.result.sizes.size() - 2; }
  void addOperand(const ViewSpec &view, const char *name, bool isResult);
  void addEntry(const Rectangle *rectangle, int width);
  std::string signature() const;
  std::string placeText(int rows, int columns) const;
  std::string targetText() const;

  const Step &step;
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

/// Whether the elements that are summed lie beside each other in `rhs`.
bool ProductPrinter::isTransposed() const {
  const std::vector<SizeExpr> &strides = product.rhs.strides;
  return strides[batchRank()].constant() == 1 &&
         strides[batchRank() + 1].constant() != 1;
}

void ProductPrinter::addOperand(const ViewSpec &view, const char *name,
                                bool isResult) {
  CudaOperand operand;
  for (const CudaOperand &o : kernel.operands)
    operand.word += 3 + 2 * o.rank;
  operand.rank = unsigned(view.sizes.size());
  operand.elementBytes = byteWidth(view.dtype);
  operand.isResult = isResult;
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
        name + ("_stride" + std::to_string(d)));
  if (isResult)
    for (unsigned d = 0; d < operand.rank; ++d)
      add(CudaParameter::Size, d, "int64_t ", "count" + std::to_string(d));
  if (number == 0)
    add(CudaParameter::Size, operand.rank - 1, "int64_t ", "depth");
}

/// Where a block is.
std::string ProductPrinter::placeText(int rows, int columns) const {
  std::string m = std::to_string(batchRank()),
              n = std::to_string(batchRank() + 1);
  std::string text = "  int64_t place = block();\n"
                     "  const int64_t across = (count" +
                     n + " + " + std::to_string(columns - 1) + ") / " +
                     std::to_string(columns) +
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
  return "  const Target<" + std::string(spelled(product.result.dtype)) + ", " +
         bias + ", " + spelled(product.activation) + "> target{{result, " +
         "result_stride" + m + ", result_stride" + n + "}, " +
         (product.bias ? "bias" : "nullptr") + ", " + stride + ", count" + m +
         ", count" + n + "};\n";
}

/// Without a rectangle: by multiply-adds.
void ProductPrinter::addEntry(const Rectangle *rectangle, int width) {
  std::string m = std::to_string(batchRank()),
              n = std::to_string(batchRank() + 1);
  CudaEntry entry;
  entry.width = width;
  entry.rows = rectangle ? rectangle->rows() : kFlatSide;
  entry.columns = rectangle ? rectangle->columns() : kFlatSide;
  entry.threads = rectangle ? rectangle->threads() : kFlatThreads;
  entry.name = kernel.name + "_" + std::to_string(entry.rows) + "x" +
               std::to_string(entry.columns) + "x" + std::to_string(width);
  std::string views = "{lhs, lhs_stride" + m + ", lhs_stride" + n +
                      "}, {rhs, rhs_stride" + m + ", rhs_stride" + n +
                      "}, target, depth, row0, column0);\n";
  std::string body = placeText(entry.rows, entry.columns) + targetText();
  if (rectangle) {
    // As Tile lays them out.
    auto tileBytes = [](int rows, int columns) {
      int chunks = columns / 8;
      bool isPermuted = chunks >= 8 && (chunks & (chunks - 1)) == 0;
      return int64_t(rows) * 16 * (isPermuted ? chunks : chunks | 1);
    };
    int64_t right = isTransposed() ? tileBytes(entry.columns, kUnitsDepth)
                                   : tileBytes(kUnitsDepth, entry.columns);
    entry.sharedBytes =
        kUnitsStages * (tileBytes(entry.rows, kUnitsDepth) + right);
    body +=
        "  REFOLD_SHARED_BYTES(memory, " + std::to_string(entry.sharedBytes) +
        ");\n  multiply_on_units<Units<" + std::to_string(rectangle->rowWarps) +
        ", " + std::to_string(rectangle->columnWarps) + ", " +
        std::to_string(rectangle->tiles) + ", " +
        std::to_string(rectangle->parts) + ">, " +
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
  kernel.text += "\nREFOLD_KERNEL(" + std::to_string(entry.threads) + ")\n" +
                 entry.name + "(" + typed + ") {\n" + body + "}\n";
  kernel.entries.push_back(std::move(entry));
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
                  "'" + step.name + "': [" +
                      llvm::StringRef(keyOf(Reason::CudaHostStep)) +
                      "] found a matrix product of " +
                      infoOf(view->dtype).name +
                      " outside a cascade; expected f32, f16, bf16, i8, i32 "
                      "or i64");
  kernel.name = std::move(name);
  addOperand(product.lhs, "lhs", false);
  addOperand(product.rhs, "rhs", false);
  if (product.bias)
    addOperand(*product.bias, "bias", false);
  addOperand(product.result, "result", true);
  kernel.product = CudaProduct{isTransposed()};
  kernel.text = "// refold, --target " + target.str() +
                ". Generated; do not edit.\n"
                "// Product  " +
                signature() +
                "\n// Launch   product of the batch extents * ceil(m / R) * "
                "ceil(n / C) blocks; an entry _RxCxV\n//   computes R x C of "
                "the result, V elements at once: V > 1 asks that rows begin "
                "at\n//   multiples of 16 bytes and are whole vectors.\n"
                "#include \"refold_cuda.h\"\n"
                "#include \"refold_cuda_products.h\"\n\n"
                "using namespace refold;\n";
  if (hasUnits()) {
    for (const Rectangle &rectangle : {kFew, kWide, kSmall})
      addEntry(&rectangle, 8);
    addEntry(&kSmall, 1);
  } else {
    addEntry(nullptr, 1);
  }
  return std::move(kernel);
}

KernelStep ProductPrinter::call(unsigned number) const {
  KernelStep result;
  result.kernel = number;
  result.operands = {product.lhs, product.rhs};
  if (product.bias)
    result.operands.push_back(*product.bias);
  result.numInputs = unsigned(result.operands.size());
  result.operands.push_back(product.result);
  return result;
}

llvm::Error refold::addProductKernels(ExecutableSpec &spec,
                                      std::vector<CudaKernel> &kernels,
                                      const CudaTarget &target) {
  // Layers of a model have the same kernels.
  std::map<std::string, unsigned> known;
  for (Step &step : spec.steps) {
    if (!std::holds_alternative<ProductStep>(step.what))
      continue;
    ProductPrinter same(step, target.name);
    llvm::Expected<CudaKernel> plain = same.print("product");
    if (!plain)
      return plain.takeError();
    auto [it, isNew] = known.try_emplace(plain->text, unsigned(kernels.size()));
    if (isNew) {
      ProductPrinter own(step, target.name);
      llvm::Expected<CudaKernel> kernel =
          own.print("product" + std::to_string(known.size() - 1));
      if (!kernel)
        return kernel.takeError();
      kernels.push_back(std::move(*kernel));
    }
    step.what = same.call(it->second);
  }
  return llvm::Error::success();
}
