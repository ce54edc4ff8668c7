// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Matrix products through oneDNN: the only file that knows it. Every primitive
// is made for one thread and one block of rows, so that what is computed, and
// in which order, follows from the shape alone.
#include "Product.h"

#include "ProductLoops.h"
#include "refold/Support/Error.h"
#include <algorithm>
#include <dnnl.hpp>

using namespace refold;

static thread_local bool insideLibrary = false;
bool refold::isInProductLibrary() { return insideLibrary; }

namespace {
struct LibraryCall {
  LibraryCall() { insideLibrary = true; }
  ~LibraryCall() { insideLibrary = false; }
};

/// The primitive for items of one extent.
struct Variant {
  int64_t rows = 0;
  dnnl::matmul::primitive_desc desc;
  dnnl::matmul primitive;
};

/// What a thread passes to the primitive: handles that it sets for each item.
struct Arguments {
  dnnl::memory lhs, rhs, result, bias, scratchpad;
};
struct ThreadArguments {
  dnnl::stream stream;
  std::vector<Arguments> ofVariant;
};

using Dims = dnnl::memory::dims;
constexpr auto kF32 = dnnl::memory::data_type::f32;
} // namespace

struct PackedWeights::Block {
  AlignedBuffer bytes;
  dnnl::memory memory;
};
PackedWeights::PackedWeights() = default;
PackedWeights::~PackedWeights() = default;
void PackedWeights::clear() { blocks.clear(); }

struct ProductPlan::Impl {
  ProductShape shape;
  Options options;
  bool usesLibrary = false;
  /// Whether the operand is read or written in place; else by way of the
  /// workspace.
  bool isLhsInPlace = false, isRhsInPlace = false, isResultInPlace = false;
  bool hasLibraryEpilogue = false;
  int64_t scratchpadBytes = 0, lhsBytes = 0, rhsBytes = 0, resultBytes = 0;
  dnnl::engine engine;
  std::vector<Variant> variants;
  /// Of a constant right side, one a batch element.
  std::map<int64_t, dnnl::memory> packed;
  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<ThreadArguments>> idle;

  void prepareLibrary(PackedWeights &weights);
  void addVariant(int64_t rows, PackedWeights &weights);
  void pack(const Variant &variant, PackedWeights &weights);
  std::unique_ptr<ThreadArguments> takeArguments() const;
  bool runInLibrary(ThreadArguments &arguments, const ProductItem &item,
                    const ProductOperands &operands, char *workspace) const;
};

/// oneDNN takes matrices with one unit stride and without overlap.
static bool isPlainMatrix(int64_t rowStride, int64_t colStride, int64_t rows,
                          int64_t cols) {
  if (colStride == 1 || cols == 1)
    return rowStride >= cols || rows == 1;
  return rowStride == 1 && colStride >= rows;
}

/// A descriptor of a matrix in place, or of a row-major copy. Strides that no
/// step uses are made harmless, since the library checks them too.
static dnnl::memory::desc describeMatrix(bool isInPlace, MatrixRef ref,
                                         int64_t rows, int64_t cols) {
  if (!isInPlace)
    return {{rows, cols}, kF32, Dims{cols, 1}};
  int64_t rowStride = ref.rowStride, colStride = ref.colStride;
  if (cols == 1)
    colStride = 1;
  if (rows == 1)
    rowStride = colStride == 1 ? std::max(rowStride, cols) : 1;
  return {{rows, cols}, kF32, Dims{rowStride, colStride}};
}

static int64_t roundToLine(int64_t bytes) { return (bytes + 63) / 64 * 64; }

void ProductPlan::Impl::prepareLibrary(PackedWeights &weights) {
  LibraryCall inside;
  engine = dnnl::engine(dnnl::engine::kind::cpu, 0);
  bool isF32 = shape.lhsType == DType::F32;
  isLhsInPlace = isF32 && isPlainMatrix(shape.lhs.rowStride,
                                        shape.lhs.colStride, shape.m, shape.k);
  isF32 = shape.rhsType == DType::F32;
  isRhsInPlace = isF32 && isPlainMatrix(shape.rhs.rowStride,
                                        shape.rhs.colStride, shape.k, shape.n);
  isResultInPlace = isPlainMatrix(shape.result.rowStride,
                                  shape.result.colStride, shape.m, shape.n) &&
                    (shape.result.colStride == 1 || shape.n == 1);
  hasLibraryEpilogue = !shape.isSwapped;
  auto copyBytes = [&](bool isInPlace, int64_t rows, int64_t cols) {
    return isInPlace ? 0 : roundToLine(rows * cols * 4);
  };
  lhsBytes = copyBytes(isLhsInPlace, shape.rowBlock, shape.k);
  rhsBytes =
      options.constantRhs ? 0 : copyBytes(isRhsInPlace, shape.k, shape.n);
  resultBytes = copyBytes(isResultInPlace, shape.rowBlock, shape.n);

  int64_t tail = shape.m % shape.rowBlock;
  for (int64_t rows : {std::min(shape.rowBlock, shape.m), tail})
    if (rows)
      addVariant(rows, weights);
}

void ProductPlan::Impl::addVariant(int64_t rows, PackedWeights &weights) {
  for (const Variant &variant : variants)
    if (variant.rows == rows)
      return;
  dnnl::memory::desc lhs =
      describeMatrix(isLhsInPlace, shape.lhs, rows, shape.k);
  dnnl::memory::desc result =
      describeMatrix(isResultInPlace, shape.result, rows, shape.n);
  dnnl::memory::desc rhs =
      describeMatrix(isRhsInPlace, shape.rhs, shape.k, shape.n);
  if (options.constantRhs) {
    // The layout that the first shape chose, or else the library's choice.
    rhs = {{shape.k, shape.n}, kF32, dnnl::memory::format_tag::any};
    std::lock_guard<std::mutex> lock(weights.mutex);
    if (!weights.blocks.empty())
      rhs = weights.blocks.begin()->second->memory.get_desc();
  }
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops postOps;
  if (hasLibraryEpilogue && options.activation != Activation::None) {
    auto algorithm = options.activation == Activation::Relu
                         ? dnnl::algorithm::eltwise_relu
                     : options.activation == Activation::Tanh
                         ? dnnl::algorithm::eltwise_tanh
                         : dnnl::algorithm::eltwise_gelu_erf;
    postOps.append_eltwise(1.0f, algorithm, 0.0f, 0.0f);
    attributes.set_post_ops(postOps);
  }
  Variant variant;
  variant.rows = rows;
  if (options.hasBias && hasLibraryEpilogue)
    variant.desc = dnnl::matmul::primitive_desc(
        {lhs, rhs, dnnl::memory::desc({1, shape.n}, kF32, Dims{shape.n, 1}),
         result},
        attributes, engine);
  else
    variant.desc =
        dnnl::matmul::primitive_desc({lhs, rhs, result}, attributes, engine);
  variant.primitive = dnnl::matmul(variant.desc);
  scratchpadBytes = std::max<int64_t>(
      scratchpadBytes, roundToLine(variant.desc.scratchpad_desc().get_size()));
  if (options.constantRhs)
    pack(variant, weights);
  variants.push_back(std::move(variant));
}

/// Reorders the right sides, where no earlier shape has.
void ProductPlan::Impl::pack(const Variant &variant, PackedWeights &weights) {
  std::lock_guard<std::mutex> lock(weights.mutex);
  dnnl::stream stream(engine);
  for (int64_t i = 0, e = shape.numItems(); i < e; ++i) {
    ProductItem item = itemOf(shape, i);
    if (packed.count(item.rhsByte))
      continue;
    std::unique_ptr<PackedWeights::Block> &block = weights.blocks[item.rhsByte];
    if (!block) {
      auto made = std::make_unique<PackedWeights::Block>();
      std::vector<float> plain(size_t(shape.k) * size_t(shape.n));
      packAsF32(shape.rhsType, options.constantRhs + item.rhsByte,
                shape.rhs.rowStride, shape.rhs.colStride, shape.k, shape.n,
                plain.data());
      dnnl::memory::desc layout = variant.desc.weights_desc();
      if (!made->bytes.reserve(std::max<size_t>(1, layout.get_size())))
        throw std::bad_alloc();
      dnnl::memory from({{shape.k, shape.n}, kF32, Dims{shape.n, 1}}, engine,
                        plain.data());
      made->memory = dnnl::memory(layout, engine, made->bytes.data());
      dnnl::reorder(from, made->memory).execute(stream, from, made->memory);
      stream.wait();
      block = std::move(made);
    }
    packed[item.rhsByte] = block->memory;
  }
}

std::unique_ptr<ThreadArguments> ProductPlan::Impl::takeArguments() const {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!idle.empty()) {
      std::unique_ptr<ThreadArguments> arguments = std::move(idle.back());
      idle.pop_back();
      return arguments;
    }
  }
  auto arguments = std::make_unique<ThreadArguments>();
  arguments->stream = dnnl::stream(engine);
  for (const Variant &variant : variants) {
    Arguments made;
    made.lhs = dnnl::memory(variant.desc.src_desc(), engine, nullptr);
    if (!options.constantRhs)
      made.rhs = dnnl::memory(variant.desc.weights_desc(), engine, nullptr);
    made.result = dnnl::memory(variant.desc.dst_desc(), engine, nullptr);
    if (options.hasBias && hasLibraryEpilogue)
      made.bias = dnnl::memory(variant.desc.bias_desc(), engine, nullptr);
    made.scratchpad =
        dnnl::memory(variant.desc.scratchpad_desc(), engine, nullptr);
    arguments->ofVariant.push_back(std::move(made));
  }
  return arguments;
}

static void setHandle(dnnl::memory &memory, const char *bytes) {
  // Without the stream form, which would clear padding.
  dnnl_memory_set_data_handle(memory.get(), const_cast<char *>(bytes));
}

bool ProductPlan::Impl::runInLibrary(ThreadArguments &arguments,
                                     const ProductItem &item,
                                     const ProductOperands &operands,
                                     char *workspace) const {
  size_t which = 0;
  while (variants[which].rows != item.rows)
    ++which;
  Arguments &memory = arguments.ofVariant[which];
  char *lhsCopy = workspace + scratchpadBytes;
  char *rhsCopy = lhsCopy + lhsBytes, *resultCopy = rhsCopy + rhsBytes;
  const char *lhs = operands.lhs + item.lhsByte;
  if (!isLhsInPlace) {
    packAsF32(shape.lhsType, lhs, shape.lhs.rowStride, shape.lhs.colStride,
              item.rows, shape.k, reinterpret_cast<float *>(lhsCopy));
    lhs = lhsCopy;
  }
  setHandle(memory.lhs, lhs);
  dnnl_memory_t rhsMemory = nullptr;
  if (options.constantRhs) {
    rhsMemory = packed.find(item.rhsByte)->second.get();
  } else {
    const char *rhs = operands.rhs + item.rhsByte;
    if (!isRhsInPlace) {
      packAsF32(shape.rhsType, rhs, shape.rhs.rowStride, shape.rhs.colStride,
                shape.k, shape.n, reinterpret_cast<float *>(rhsCopy));
      rhs = rhsCopy;
    }
    setHandle(memory.rhs, rhs);
    rhsMemory = memory.rhs.get();
  }
  char *result = operands.result + item.resultByte;
  setHandle(memory.result, isResultInPlace ? result : resultCopy);
  setHandle(memory.scratchpad, workspace);

  dnnl_exec_arg_t list[5] = {{DNNL_ARG_SRC, memory.lhs.get()},
                             {DNNL_ARG_WEIGHTS, rhsMemory},
                             {DNNL_ARG_DST, memory.result.get()},
                             {DNNL_ARG_SCRATCHPAD, memory.scratchpad.get()}};
  int count = 4;
  if (options.hasBias && hasLibraryEpilogue) {
    setHandle(memory.bias, operands.bias);
    list[count++] = {DNNL_ARG_BIAS, memory.bias.get()};
  }
  if (dnnl_primitive_execute(variants[which].primitive.get(),
                             arguments.stream.get(), count,
                             list) != dnnl_success)
    return false;
  if (!isResultInPlace) {
    int64_t sizes[2] = {item.rows, shape.n}, from[2] = {shape.n, 1};
    int64_t to[2] = {shape.result.rowStride, shape.result.colStride};
    copyStrided(4, sizes, resultCopy, from, result, to);
  }
  return true;
}

llvm::Expected<std::unique_ptr<ProductPlan>>
ProductPlan::create(const View &lhs, const View &rhs, const View &result,
                    const Options &options, PackedWeights &weights) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->shape = normaliseProduct(lhs, rhs, result, options.constantRhs,
                                 /*mayGrowColumns=*/!options.hasBias);
  const ProductShape &shape = impl->shape;
  if (shape.isSwapped)
    impl->options.constantRhs = nullptr;
  auto isLibraryType = [](DType type) {
    return isFloat(type) && type != DType::F64;
  };
  impl->usesLibrary =
      isLibraryType(shape.lhsType) && isLibraryType(shape.rhsType) &&
      shape.resultType == DType::F32 && shape.k > 0 && shape.numItems() > 0;
  if (!impl->usesLibrary) {
    if (shape.k == 0 || shape.numItems() == 0) // nothing is read
      for (DType *type : {&impl->shape.lhsType, &impl->shape.rhsType})
        if (isLibraryType(*type))
          *type = DType::F32;
    if (!hasPlainLoops(shape.lhsType, shape.rhsType, shape.resultType))
      return fail(ExitCode::Unsupported, "no product of " + nameOf(lhs.dtype) +
                                             " and " + nameOf(rhs.dtype) +
                                             " with sums in " +
                                             nameOf(result.dtype));
    return std::unique_ptr<ProductPlan>(new ProductPlan(std::move(impl)));
  }
  try {
    impl->prepareLibrary(weights);
  } catch (const std::exception &error) {
    return fail(ExitCode::Internal,
                llvm::Twine("matrix product of ") + llvm::Twine(shape.m) +
                    " x " + llvm::Twine(shape.k) + " x " +
                    llvm::Twine(shape.n) + ": oneDNN said " + error.what());
  }
  return std::unique_ptr<ProductPlan>(new ProductPlan(std::move(impl)));
}

ProductPlan::ProductPlan(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
ProductPlan::~ProductPlan() = default;

int64_t ProductPlan::numItems() const { return impl->shape.numItems(); }
int64_t ProductPlan::privateBytes() const {
  return impl->scratchpadBytes + impl->lhsBytes + impl->rhsBytes +
         impl->resultBytes;
}

bool ProductPlan::run(const ProductOperands &operands, int64_t begin,
                      int64_t end, char *workspace) const {
  const ProductShape &shape = impl->shape;
  ProductOperands sides = operands;
  if (shape.isSwapped)
    std::swap(sides.lhs, sides.rhs);
  bool hasEpilogue =
      operands.bias || impl->options.activation != Activation::None;
  std::unique_ptr<ThreadArguments> arguments;
  bool isGood = true;
  if (impl->usesLibrary) {
    LibraryCall inside;
    arguments = impl->takeArguments();
    for (int64_t i = begin; i < end; ++i)
      isGood &=
          impl->runInLibrary(*arguments, itemOf(shape, i), sides, workspace);
    std::lock_guard<std::mutex> lock(impl->mutex);
    impl->idle.push_back(std::move(arguments));
  }
  bool isEpilogueDone = impl->usesLibrary && impl->hasLibraryEpilogue;
  for (int64_t i = begin; i < end; ++i) {
    ProductItem item = itemOf(shape, i);
    if (!impl->usesLibrary)
      multiplyPlainly(shape, item, sides.lhs, sides.rhs, sides.result);
    if (hasEpilogue && !isEpilogueDone)
      applyEpilogue(shape, item, operands.bias, impl->options.activation,
                    sides.result);
  }
  return isGood;
}

void refold::limitProductLibrary(InstructionSet instructionSet) {
  // A refusal means that the library has been used already; it then computes
  // with what it has chosen, which every caller sees alike.
  if (instructionSet == InstructionSet::AVX2)
    (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
  else if (instructionSet == InstructionSet::Baseline)
    (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41);
}
