// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Matrix products through oneDNN. Every primitive is made for one thread and
// one block of rows, so that what is computed, and in which order, follows from
// the shape alone.
#include "refold/Runtime/Product.h"

#include "ProductLoops.h"
#include <algorithm>
#include <utility>

using namespace refold;
using onednn::Library;
using onednn::MemoryDesc;

static thread_local bool insideLibrary = false;
bool refold::isInProductLibrary() { return insideLibrary; }

namespace {
/// The library computes on the calling thread alone.
class LibraryCall {
public:
  explicit LibraryCall(const Library &library) : library(library) {
    insideLibrary = true;
    if (library.omp_get_max_threads && library.omp_set_num_threads)
      before = library.omp_get_max_threads();
    if (before > 1)
      library.omp_set_num_threads(1);
  }
  ~LibraryCall() {
    if (before > 1)
      library.omp_set_num_threads(before);
    insideLibrary = false;
  }
  LibraryCall(const LibraryCall &) = delete;
  LibraryCall &operator=(const LibraryCall &) = delete;

private:
  const Library &library;
  int before = 1;
};

/// What the library made and destroys.
template <typename Handle, onednn::Status (*Library::*destroy)(Handle)>
class Owned {
public:
  Owned() = default;
  Owned(Owned &&other) noexcept
      : library(other.library), handle(std::exchange(other.handle, nullptr)) {}
  Owned &operator=(Owned &&other) noexcept {
    std::swap(library, other.library);
    std::swap(handle, other.handle);
    return *this;
  }
  ~Owned() {
    if (handle)
      (library->*destroy)(handle);
  }
  /// Where a call of `from` puts it, once.
  Handle *madeBy(const Library &from) {
    library = &from;
    return &handle;
  }
  Handle get() const { return handle; }

private:
  const Library *library = nullptr;
  Handle handle = nullptr;
};
using OwnedEngine = Owned<onednn::Engine, &Library::dnnl_engine_destroy>;
using OwnedStream = Owned<onednn::Stream, &Library::dnnl_stream_destroy>;
using OwnedMemory = Owned<onednn::Memory, &Library::dnnl_memory_destroy>;
using OwnedAttributes =
    Owned<onednn::Attributes, &Library::dnnl_primitive_attr_destroy>;
using OwnedPostOps = Owned<onednn::PostOps, &Library::dnnl_post_ops_destroy>;
using OwnedDesc =
    Owned<onednn::PrimitiveDesc, &Library::dnnl_primitive_desc_destroy>;
using OwnedPrimitive =
    Owned<onednn::Primitive, &Library::dnnl_primitive_destroy>;

/// The primitive for items of one extent.
struct Variant {
  int64_t rows = 0;
  OwnedDesc desc;
  OwnedPrimitive primitive;
};

/// What a thread passes to the primitive: handles that it sets for each item.
struct Arguments {
  OwnedMemory lhs, rhs, result, bias, scratchpad;
};
struct ThreadArguments {
  OwnedStream stream;
  std::vector<Arguments> ofVariant;
};
} // namespace

struct PackedWeights::Block {
  AlignedBuffer bytes;
  MemoryDesc layout;
  OwnedMemory memory;
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
  OwnedEngine engine;
  std::vector<Variant> variants;
  /// Of a constant right side, one a batch element.
  std::map<int64_t, onednn::Memory> packed;
  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<ThreadArguments>> idle;
  std::string error; ///< what went wrong first

  const Library &library() const { return *options.library; }
  bool works(onednn::Status status);
  bool prepareLibrary(PackedWeights &weights);
  MemoryDesc describeMatrix(bool isInPlace, MatrixRef ref, int64_t rows,
                            int64_t cols);
  bool makeAttributes(OwnedAttributes &attributes);
  bool addVariant(int64_t rows, PackedWeights &weights);
  bool pack(const Variant &variant, PackedWeights &weights);
  bool packBlock(const Variant &variant, int64_t rhsByte,
                 PackedWeights::Block &block);
  const MemoryDesc *query(const Variant &variant, int what,
                          int index = 0) const {
    return library().dnnl_primitive_desc_query_md(variant.desc.get(), what,
                                                  index);
  }
  std::unique_ptr<ThreadArguments> takeArguments() const;
  bool runInLibrary(ThreadArguments &arguments, const ProductItem &item,
                    const ProductOperands &operands, char *workspace) const;
};

bool ProductPlan::Impl::works(onednn::Status status) {
  if (status == onednn::kSuccess)
    return true;
  static const char *const names[] = {"", "out of memory", "invalid arguments",
                                      "not implemented"};
  if (error.empty())
    error = status > 0 && status <= onednn::kUnimplemented
                ? names[status]
                : "status " + std::to_string(status);
  return false;
}

/// oneDNN takes matrices with one unit stride and without overlap.
static bool isPlainMatrix(int64_t rowStride, int64_t colStride, int64_t rows,
                          int64_t cols) {
  if (colStride == 1 || cols == 1)
    return rowStride >= cols || rows == 1;
  return rowStride == 1 && colStride >= rows;
}

/// A descriptor of a matrix in place, or of a row-major copy. Strides that no
/// step uses are made harmless, since the library checks them too.
MemoryDesc ProductPlan::Impl::describeMatrix(bool isInPlace, MatrixRef ref,
                                             int64_t rows, int64_t cols) {
  int64_t rowStride = cols, colStride = 1;
  if (isInPlace) {
    rowStride = ref.rowStride;
    colStride = cols == 1 ? 1 : ref.colStride;
    if (rows == 1)
      rowStride = colStride == 1 ? std::max(rowStride, cols) : 1;
  }
  MemoryDesc made;
  onednn::Dims sizes = {rows, cols}, strides = {rowStride, colStride};
  works(library().dnnl_memory_desc_init_by_strides(&made, 2, sizes,
                                                   onednn::kF32, strides));
  return made;
}

static int64_t roundToLine(int64_t bytes) { return (bytes + 63) / 64 * 64; }

bool ProductPlan::Impl::prepareLibrary(PackedWeights &weights) {
  LibraryCall inside(library());
  if (!works(library().dnnl_engine_create(engine.madeBy(library()),
                                          onednn::kCpu, 0)))
    return false;
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
    if (rows && !addVariant(rows, weights))
      return false;
  return true;
}

bool ProductPlan::Impl::makeAttributes(OwnedAttributes &attributes) {
  if (!works(
          library().dnnl_primitive_attr_create(attributes.madeBy(library()))) ||
      !works(library().dnnl_primitive_attr_set_scratchpad_mode(
          attributes.get(), onednn::kUserScratchpad)))
    return false;
  if (!hasLibraryEpilogue || options.activation == Activation::None)
    return true;
  int algorithm = options.activation == Activation::Relu   ? onednn::kRelu
                  : options.activation == Activation::Tanh ? onednn::kTanh
                                                           : onednn::kGeluErf;
  OwnedPostOps operations;
  return works(library().dnnl_post_ops_create(operations.madeBy(library()))) &&
         works(library().dnnl_post_ops_append_eltwise(operations.get(), 1.0f,
                                                      algorithm, 0.0f, 0.0f)) &&
         works(library().dnnl_primitive_attr_set_post_ops(attributes.get(),
                                                          operations.get()));
}

bool ProductPlan::Impl::addVariant(int64_t rows, PackedWeights &weights) {
  for (const Variant &variant : variants)
    if (variant.rows == rows)
      return true;
  MemoryDesc lhs = describeMatrix(isLhsInPlace, shape.lhs, rows, shape.k);
  MemoryDesc result =
      describeMatrix(isResultInPlace, shape.result, rows, shape.n);
  MemoryDesc rhs = describeMatrix(isRhsInPlace, shape.rhs, shape.k, shape.n);
  MemoryDesc bias = describeMatrix(/*isInPlace=*/false, {}, 1, shape.n);
  if (options.constantRhs) {
    // The layout that the first shape chose, or else the library's choice.
    onednn::Dims sizes = {shape.k, shape.n};
    works(library().dnnl_memory_desc_init_by_tag(&rhs, 2, sizes, onednn::kF32,
                                                 onednn::kAnyFormat));
    std::lock_guard<std::mutex> lock(weights.mutex);
    if (!weights.blocks.empty())
      rhs = weights.blocks.begin()->second->layout;
  }
  OwnedAttributes attributes;
  onednn::MatmulDesc matmul;
  Variant variant;
  variant.rows = rows;
  bool isBiased = options.hasBias && hasLibraryEpilogue;
  if (!error.empty() || !makeAttributes(attributes) ||
      !works(library().dnnl_matmul_desc_init(
          &matmul, &lhs, &rhs, isBiased ? &bias : nullptr, &result)) ||
      !works(library().dnnl_primitive_desc_create(
          variant.desc.madeBy(library()), &matmul, attributes.get(),
          engine.get(), nullptr)) ||
      !works(library().dnnl_primitive_create(
          variant.primitive.madeBy(library()), variant.desc.get())))
    return false;
  scratchpadBytes = std::max<int64_t>(
      scratchpadBytes, roundToLine(int64_t(library().dnnl_memory_desc_get_size(
                           query(variant, onednn::kScratchpadDesc)))));
  if (options.constantRhs && !pack(variant, weights))
    return false;
  variants.push_back(std::move(variant));
  return true;
}

/// Reorders one right side.
bool ProductPlan::Impl::packBlock(const Variant &variant, int64_t rhsByte,
                                  PackedWeights::Block &block) {
  AlignedBuffer plain;
  block.layout = *query(variant, onednn::kWeightsDesc);
  size_t bytes = library().dnnl_memory_desc_get_size(&block.layout);
  if (!plain.reserve(std::max<size_t>(1, size_t(shape.k * shape.n) * 4)) ||
      !block.bytes.reserve(std::max<size_t>(1, bytes)))
    return works(onednn::kOutOfMemory);
  packAsF32(shape.rhsType, options.constantRhs + rhsByte, shape.rhs.rowStride,
            shape.rhs.colStride, shape.k, shape.n,
            reinterpret_cast<float *>(plain.data()));
  MemoryDesc rows = describeMatrix(/*isInPlace=*/false, {}, shape.k, shape.n);
  OwnedStream stream;
  OwnedMemory from;
  OwnedDesc desc;
  OwnedPrimitive reorder;
  if (!error.empty() ||
      !works(library().dnnl_stream_create(
          stream.madeBy(library()), engine.get(), onednn::kDefaultStream)) ||
      !works(library().dnnl_memory_create(from.madeBy(library()), &rows,
                                          engine.get(), plain.data())) ||
      !works(library().dnnl_memory_create(block.memory.madeBy(library()),
                                          &block.layout, engine.get(),
                                          block.bytes.data())) ||
      !works(library().dnnl_reorder_primitive_desc_create(
          desc.madeBy(library()), &rows, engine.get(), &block.layout,
          engine.get(), nullptr)) ||
      !works(library().dnnl_primitive_create(reorder.madeBy(library()),
                                             desc.get())))
    return false;
  onednn::Argument list[] = {{onednn::kSource, from.get()},
                             {onednn::kResult, block.memory.get()}};
  return works(library().dnnl_primitive_execute(reorder.get(), stream.get(), 2,
                                                list)) &&
         works(library().dnnl_stream_wait(stream.get()));
}

/// Reorders the right sides, where no earlier shape has.
bool ProductPlan::Impl::pack(const Variant &variant, PackedWeights &weights) {
  std::lock_guard<std::mutex> lock(weights.mutex);
  for (int64_t i = 0, e = shape.numItems(); i < e; ++i) {
    ProductItem item = itemOf(shape, i);
    if (packed.count(item.rhsByte))
      continue;
    std::unique_ptr<PackedWeights::Block> &block = weights.blocks[item.rhsByte];
    if (!block) {
      auto made = std::make_unique<PackedWeights::Block>();
      if (!packBlock(variant, item.rhsByte, *made)) {
        weights.blocks.erase(item.rhsByte);
        return false;
      }
      block = std::move(made);
    }
    packed[item.rhsByte] = block->memory.get();
  }
  return true;
}

/// Null where the library failed.
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
  bool isGood = library().dnnl_stream_create(
                    arguments->stream.madeBy(library()), engine.get(),
                    onednn::kDefaultStream) == onednn::kSuccess;
  for (const Variant &variant : variants) {
    auto make = [&](OwnedMemory &memory, int what, int index = 0) {
      isGood &= library().dnnl_memory_create(
                    memory.madeBy(library()), query(variant, what, index),
                    engine.get(), nullptr) == onednn::kSuccess;
    };
    Arguments made;
    make(made.lhs, onednn::kSourceDesc);
    if (!options.constantRhs)
      make(made.rhs, onednn::kWeightsDesc);
    make(made.result, onednn::kResultDesc);
    if (options.hasBias && hasLibraryEpilogue)
      make(made.bias, onednn::kWeightsDesc, 1);
    make(made.scratchpad, onednn::kScratchpadDesc);
    arguments->ofVariant.push_back(std::move(made));
  }
  return isGood ? std::move(arguments) : nullptr;
}

static void setHandle(const Library &library, const OwnedMemory &memory,
                      const char *bytes) {
  // Without the stream form, which would clear padding.
  library.dnnl_memory_set_data_handle(memory.get(), const_cast<char *>(bytes));
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
  setHandle(library(), memory.lhs, lhs);
  onednn::Memory rhsMemory = nullptr;
  if (options.constantRhs) {
    rhsMemory = packed.find(item.rhsByte)->second;
  } else {
    const char *rhs = operands.rhs + item.rhsByte;
    if (!isRhsInPlace) {
      packAsF32(shape.rhsType, rhs, shape.rhs.rowStride, shape.rhs.colStride,
                shape.k, shape.n, reinterpret_cast<float *>(rhsCopy));
      rhs = rhsCopy;
    }
    setHandle(library(), memory.rhs, rhs);
    rhsMemory = memory.rhs.get();
  }
  char *result = operands.result + item.resultByte;
  setHandle(library(), memory.result, isResultInPlace ? result : resultCopy);
  setHandle(library(), memory.scratchpad, workspace);

  onednn::Argument list[5] = {{onednn::kSource, memory.lhs.get()},
                              {onednn::kWeights, rhsMemory},
                              {onednn::kResult, memory.result.get()},
                              {onednn::kScratchpad, memory.scratchpad.get()}};
  int count = 4;
  if (options.hasBias && hasLibraryEpilogue) {
    setHandle(library(), memory.bias, operands.bias);
    list[count++] = {onednn::kBias, memory.bias.get()};
  }
  if (library().dnnl_primitive_execute(variants[which].primitive.get(),
                                       arguments.stream.get(), count,
                                       list) != onednn::kSuccess)
    return false;
  if (!isResultInPlace) {
    int64_t sizes[2] = {item.rows, shape.n}, from[2] = {shape.n, 1};
    int64_t to[2] = {shape.result.rowStride, shape.result.colStride};
    copyStrided(4, sizes, resultCopy, from, result, to);
  }
  return true;
}

bool refold::needsProductLibrary(DType lhs, DType rhs, DType result) {
  auto isLibraryType = [](DType type) {
    return isFloat(type) && type != DType::F64;
  };
  return isLibraryType(lhs) && isLibraryType(rhs) && result == DType::F32;
}

bool refold::hasProduct(DType lhs, DType rhs, DType result) {
  return needsProductLibrary(lhs, rhs, result) ||
         hasPlainLoops(lhs, rhs, result);
}

std::unique_ptr<ProductPlan>
ProductPlan::create(const View &lhs, const View &rhs, const View &result,
                    const Options &options, PackedWeights &weights,
                    std::string &error) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->shape = normaliseProduct(lhs, rhs, result, options.constantRhs,
                                 /*mayGrowColumns=*/!options.hasBias);
  ProductShape &shape = impl->shape;
  if (shape.isSwapped)
    impl->options.constantRhs = nullptr;
  bool isOfLibrary =
      needsProductLibrary(shape.lhsType, shape.rhsType, shape.resultType);
  bool isEmpty = shape.k == 0 || shape.numItems() == 0;
  impl->usesLibrary = isOfLibrary && !isEmpty;
  if (impl->usesLibrary && !options.library) {
    error = "found no library for a product";
    return nullptr;
  }
  if (impl->usesLibrary && !impl->prepareLibrary(weights)) {
    error = "matrix product of " + std::to_string(shape.m) + " x " +
            std::to_string(shape.k) + " x " + std::to_string(shape.n) +
            ": oneDNN said " + impl->error;
    return nullptr;
  }
  if (isOfLibrary && isEmpty) // nothing is read
    shape.lhsType = shape.rhsType = DType::F32;
  if (!impl->usesLibrary &&
      !hasPlainLoops(shape.lhsType, shape.rhsType, shape.resultType)) {
    error = std::string("no product of ") + infoOf(lhs.dtype).name + " and " +
            infoOf(rhs.dtype).name + " with sums in " +
            infoOf(result.dtype).name;
    return nullptr;
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
    LibraryCall inside(impl->library());
    arguments = impl->takeArguments();
    if (!arguments)
      return false;
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
