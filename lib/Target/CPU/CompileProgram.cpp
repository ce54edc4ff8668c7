// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Target/CPU/CompileProgram.h"

#include "ProgramCompiler.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "refold/Support/Error.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace refold;

std::string refold::stepNameOf(Operation *op) {
  Location loc = op->getLoc();
  if (auto name = dyn_cast<NameLoc>(loc))
    return name.getName().str();
  return op->getName().getStringRef().str();
}

llvm::Error refold::refuse(Operation *op, const llvm::Twine &message) {
  std::string where;
  Location loc = op->getLoc();
  if (auto name = dyn_cast<NameLoc>(loc))
    loc = name.getChildLoc();
  if (auto file = dyn_cast<FileLineColLoc>(loc))
    where = llvm::formatv("{0}:{1}:{2}: ", file.getFilename().getValue(),
                          file.getLine(), file.getColumn())
                .str();
  return fail(ExitCode::Unsupported,
              where + "'" + stepNameOf(op) + "': " + message);
}

llvm::Expected<DType> ProgramCompiler::dtypeFor(Operation *op, Type type) {
  Type element = cast<ShapedType>(type).getElementType();
  if (std::optional<DType> dtype = dtypeOf(element))
    return *dtype;
  return refuse(op, "found an array of " + llvm::formatv("{0}", element).str() +
                        ", which is no element type of arrays");
}

/// The port's name and dtype by the attributes of its argument or result.
template <typename Port>
static bool describePort(Port &port, Type type, DictionaryAttr attributes,
                         const llvm::Twine &fallbackName) {
  auto name =
      attributes ? attributes.getAs<StringAttr>("refold.name") : nullptr;
  port.name = name ? name.str() : fallbackName.str();
  auto tensor = dyn_cast<RankedTensorType>(type);
  std::optional<DType> dtype =
      tensor ? dtypeOf(tensor.getElementType(),
                       attributes && attributes.get("refold.unsigned"))
             : std::nullopt;
  if (dtype)
    port.dtype = *dtype;
  return dtype.has_value();
}

llvm::Error ProgramCompiler::addArguments() {
  llvm::StringMap<unsigned> symbolOf;
  llvm::StringMap<int64_t> fixed; // extents that some argument's type says
  auto dimsOf = [&](unsigned i) {
    return function.getArgAttrOfType<ArrayAttr>(i, "refold.dims");
  };
  auto dimName = [&](unsigned i, size_t dim) -> StringRef {
    ArrayAttr names = dimsOf(i);
    return names && dim < names.size() ? cast<StringAttr>(names[dim]).getValue()
                                       : StringRef();
  };
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes()))
    if (auto tensor = dyn_cast<RankedTensorType>(type))
      for (auto [dim, extent] : llvm::enumerate(tensor.getShape()))
        if (!ShapedType::isDynamic(extent) && !dimName(i, dim).empty())
          fixed[dimName(i, dim)] = extent;

  for (auto [i, argument] : llvm::enumerate(function.getArguments())) {
    InputSpec input;
    if (!describePort(input, argument.getType(), function.getArgAttrDict(i),
                      "arg" + llvm::Twine(i)))
      return refuse(function, "found argument " + llvm::Twine(i) +
                                  " to be no array of a known element type");
    Sizes extents;
    auto tensor = cast<RankedTensorType>(argument.getType());
    for (auto [dim, extent] : llvm::enumerate(tensor.getShape())) {
      DimSpec info;
      info.name = dimName(i, dim).str();
      info.extent = ShapedType::isDynamic(extent) ? -1 : extent;
      if (auto known = fixed.find(info.name);
          info.extent < 0 && known != fixed.end())
        info.extent = known->second;
      if (info.extent < 0) {
        bool isKnown = !info.name.empty() && symbolOf.count(info.name);
        info.symbol = isKnown ? symbolOf[info.name] : spec.numSymbols++;
        if (!info.name.empty())
          symbolOf[info.name] = info.symbol;
      }
      extents.push_back(info.extent < 0 ? SizeExpr::symbol(info.symbol)
                                        : SizeExpr(info.extent));
      input.dims.push_back(std::move(info));
    }
    BufferSpec buffer;
    buffer.kind = BufferKind::Input;
    buffer.port = i;
    buffer.bytes = productOf(extents) * SizeExpr(byteWidth(input.dtype));
    spec.buffers.push_back(std::move(buffer));
    slots[argument] =
        rowMajorSlot(spec.buffers.size() - 1, input.dtype, extents);
    spec.inputs.push_back(std::move(input));
  }
  return llvm::Error::success();
}

/// The elements of a small constant, a byte each where they are bits.
static std::vector<char> bytesOf(DenseElementsAttr value, DType dtype) {
  size_t width = byteWidth(dtype);
  std::vector<char> bytes;
  bytes.reserve(value.getNumElements() * width);
  if (dtype == DType::Bool) {
    for (bool element : value.getValues<bool>())
      bytes.push_back(element);
    return bytes;
  }
  ArrayRef<char> raw = value.getRawData();
  if (!value.isSplat())
    return std::vector<char>(raw.begin(), raw.end());
  for (int64_t i = 0; i < value.getNumElements(); ++i)
    bytes.insert(bytes.end(), raw.begin(), raw.begin() + width);
  return bytes;
}

llvm::Error ProgramCompiler::addConstant(arith::ConstantOp op) {
  Attribute value = op.getValue();
  if (auto number = dyn_cast<IntegerAttr>(value)) {
    sizes[op] = SizeExpr(op.getType().isInteger(1)
                             ? int64_t(!number.getValue().isZero())
                             : number.getValue().getSExtValue());
    return llvm::Error::success();
  }
  auto tensor = dyn_cast<RankedTensorType>(op.getType());
  if (!tensor)
    return llvm::Error::success(); // a float: whoever uses it reads the op
  llvm::Expected<DType> dtype = dtypeFor(op, tensor);
  if (!dtype)
    return dtype.takeError();
  Sizes extents(tensor.getShape().begin(), tensor.getShape().end());
  if (auto resource = dyn_cast<DenseResourceElementsAttr>(value)) {
    AsmResourceBlob *blob = resource.getRawHandle().getBlob();
    int64_t bytes = tensor.getNumElements() * int64_t(byteWidth(*dtype));
    if (!blob || int64_t(blob->getData().size()) != bytes)
      return refuse(op, "found a constant whose data has another size than its "
                        "type");
    unsigned buffer = addConstantBuffer(blob->getData().data(), bytes);
    slots[op] = rowMajorSlot(buffer, *dtype, extents);
    return llvm::Error::success();
  }
  auto elements = dyn_cast<DenseElementsAttr>(value);
  if (!elements)
    return refuse(op, "found a constant that is not dense");
  constexpr int64_t kLargeSplat = int64_t(1) << 16;
  if (elements.isSplat() && tensor.getNumElements() > kLargeSplat) {
    empties[op] = extents;
    fills[op] = cast<TypedAttr>(elements.getSplatValue<Attribute>());
    return llvm::Error::success();
  }
  unsigned buffer = ownConstant(bytesOf(elements, *dtype));
  slots[op] = rowMajorSlot(buffer, *dtype, extents);
  return llvm::Error::success();
}

llvm::Error ProgramCompiler::addAssert(Operation *op, Value condition,
                                       StringRef message) {
  AssertStep step;
  step.message = message.str();
  if (std::optional<SizeExpr> size = sizeOf(condition)) {
    if (size->constant() == std::optional<int64_t>(1))
      return llvm::Error::success();
    step.condition = *size;
    spec.steps.push_back({std::move(step), stepNameOf(op)});
    return llvm::Error::success();
  }
  if (auto both = condition.getDefiningOp<arith::AndIOp>()) {
    if (llvm::Error error = addAssert(op, both.getLhs(), message))
      return error;
    return addAssert(op, both.getRhs(), message);
  }
  auto extract = condition.getDefiningOp<tensor::ExtractOp>();
  if (!extract)
    return refuse(op, "found an assertion that is neither about sizes nor "
                      "about one element of an array");
  llvm::Expected<Slot> slot = slotOf(op, extract.getTensor());
  if (!slot)
    return slot.takeError();
  ViewSpec element = slot->view;
  for (auto [index, stride] :
       llvm::zip_equal(extract.getIndices(), slot->view.strides)) {
    std::optional<SizeExpr> at = sizeOf(index);
    if (!at)
      return refuse(op, "found a subscript that depends on data");
    element.offset = element.offset + *at * stride;
  }
  element.sizes.clear();
  element.strides.clear();
  step.condition = element;
  spec.steps.push_back({std::move(step), stepNameOf(op)});
  return llvm::Error::success();
}

llvm::Error ProgramCompiler::addResults(func::ReturnOp op) {
  for (auto [i, value] : llvm::enumerate(op.getOperands())) {
    OutputSpec output;
    if (!describePort(output, value.getType(), function.getResultAttrDict(i),
                      "out" + llvm::Twine(i)))
      return refuse(op, "found result " + llvm::Twine(i) +
                            " to be no array of a known element type");
    llvm::Expected<Slot> slot = slotOf(op, value);
    if (!slot)
      return slot.takeError();
    output.shape.assign(slot->view.sizes.begin(), slot->view.sizes.end());
    spec.outputs.push_back(output);

    BufferSpec &buffer = spec.buffers[slot->view.buffer];
    if (buffer.kind == BufferKind::Temporary && slot->isWhole &&
        slot->isRowMajor) {
      buffer.kind = BufferKind::Output; // computed where it is wanted
      buffer.port = i;
      continue;
    }
    Slot to = makeTemporary(slot->view.dtype, slot->view.sizes);
    spec.buffers[to.view.buffer].kind = BufferKind::Output;
    spec.buffers[to.view.buffer].port = i;
    addCopy(op, slot->view, to.view);
    spec.steps.back().name = output.name;
  }
  return llvm::Error::success();
}

llvm::Error ProgramCompiler::addOp(Operation *op) {
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return addConstant(constant);
  if (auto cascade = dyn_cast<CascadeOp>(op))
    return addCascade(cascade);
  if (auto assertion = dyn_cast<cf::AssertOp>(op))
    return addAssert(op, assertion.getArg(), assertion.getMsg());
  if (auto result = dyn_cast<func::ReturnOp>(op))
    return addResults(result);
  for (auto add :
       {&ProgramCompiler::addSizeOp, &ProgramCompiler::addTensorOp}) {
    llvm::Expected<bool> isDone = (this->*add)(op);
    if (!isDone)
      return isDone.takeError();
    if (*isDone)
      return llvm::Error::success();
  }
  if (auto product = dyn_cast<linalg::LinalgOp>(op))
    return addProduct(product);
  // Parts of assertions; addAssert reads them.
  bool isBit =
      op->getNumResults() == 1 && op->getResult(0).getType().isInteger(1);
  if (isa<tensor::ExtractOp>(op) || (isBit && isa<arith::AndIOp>(op)))
    return llvm::Error::success();
  return refuse(op, "found '" + op->getName().getStringRef() +
                        "', which is no cascade, product, view or copy");
}

/// The ops of the block that `op` needs, itself included.
static llvm::DenseSet<Operation *> backwardSlice(Operation *op) {
  llvm::DenseSet<Operation *> slice = {op};
  SmallVector<Operation *> work = {op};
  while (!work.empty())
    work.pop_back_val()->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands()) {
        Operation *producer = operand.getDefiningOp();
        if (producer && producer->getBlock() == op->getBlock() &&
            slice.insert(producer).second)
          work.push_back(producer);
      }
    });
  return slice;
}

llvm::Error ProgramCompiler::run() {
  if (!function.getBody().hasOneBlock())
    return refuse(function, "found control flow; expected one block");
  if (llvm::Error error = addArguments())
    return error;
  // Checks come first, with what they need, in their own order: what they guard
  // (a subscript from data) does not depend on them otherwise.
  Block &block = function.getBody().front();
  llvm::DenseSet<Operation *> done;
  auto addAll =
      [&](llvm::function_ref<bool(Operation *)> isWanted) -> llvm::Error {
    for (Operation &op : block)
      if (isWanted(&op) && done.insert(&op).second)
        if (llvm::Error error = addOp(&op))
          return error;
    return llvm::Error::success();
  };
  for (auto assertion : block.getOps<cf::AssertOp>()) {
    llvm::DenseSet<Operation *> slice = backwardSlice(assertion);
    if (llvm::Error error =
            addAll([&](Operation *op) { return slice.contains(op); }))
      return error;
  }
  return addAll([](Operation *) { return true; });
}

llvm::Expected<ExecutableSpec>
refold::compileProgram(ModuleOp module, const CpuTarget &target,
                       const CompileProgramOptions &options) {
  func::FuncOp function;
  for (auto candidate : module.getOps<func::FuncOp>()) {
    if (!candidate.isPublic())
      continue;
    if (function)
      return refuse(candidate, "found a second public function; expected one");
    function = candidate;
  }
  if (!function || function.isDeclaration())
    return fail(ExitCode::Model, "found no public function");
  ProgramCompiler compiler(function);
  compiler.keepsNames = options.keepsNames;
  compiler.roundsProducts = options.roundsProducts;
  compiler.writesParts = options.writesParts;
  {
    StageTimer timer(options.times, "steps and kernels as text");
    if (llvm::Error error = compiler.run())
      return std::move(error);
  }
  compiler.spec.instructionSet = target.instructionSet;
  if (options.onKernel)
    for (const KernelSource &kernel : compiler.kernels)
      options.onKernel(kernel.name, kernel.text);
  if (options.plansOnly)
    return std::move(compiler.spec);
  CompileKernelsOptions kernelOptions;
  kernelOptions.threads = options.threads;
  kernelOptions.cache = options.cache;
  kernelOptions.times = options.times;
  kernelOptions.isCancelled = options.isCancelled;
  kernelOptions.onAssembly = options.onAssembly;
  kernelOptions.onObject = options.onObject;
  llvm::Expected<CompiledKernels> compiled =
      compileKernels(compiler.kernels, target, kernelOptions);
  if (!compiled)
    return compiled.takeError();
  compiler.spec.kernels = std::move(compiled->kernels);
  compiler.spec.cachedKernels = compiled->cached;
  for (std::shared_ptr<LoadedCode> &code : compiled->code)
    compiler.spec.owners.push_back(std::move(code));
  return std::move(compiler.spec);
}
