// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/Work.h"
#include "KernelIR.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "refold/Conversion/CascadeToVector.h"
#include "refold/Runtime/ConstantSteps.h"
#include "refold/Runtime/ProductBlocks.h"
#include "refold/Runtime/StepViews.h"
#include "refold/Support/Error.h"
#include <cmath>

namespace refold {

namespace {

using Shape = llvm::SmallVector<int64_t, 4>;

/// A view whose sizes are known.
struct Extent {
  Shape sizes, strides;
  unsigned width = 1;
  double elements() const {
    double count = 1.0;
    for (auto [size, stride] : llvm::zip(sizes, strides))
      count *= stride == 0 && size > 0 ? 1.0 : static_cast<double>(size);
    return count;
  }
};

/// Counts what one kernel does, given the sizes of its operands.
class KernelCounter {
public:
  KernelCounter(CascadeOp cascade, const IndexSets &sets,
                llvm::ArrayRef<std::optional<Extent>> operands)
      : cascade(cascade), sets(sets), operands(operands) {
    readExtents();
  }
  /// Elements of operand `number` that are read or written.
  double elements(unsigned number);
  double operations();
  llvm::ArrayRef<double> indexExtents() const { return extents; }

private:
  void readExtents();
  unsigned numberOf(mlir::Value argument) {
    return mlir::cast<mlir::BlockArgument>(argument).getArgNumber() -
           cascade.numIndices();
  }
  double count(uint64_t set) const {
    double result = 1.0;
    for (unsigned i = 0; i < extents.size(); ++i)
      if (set >> i & 1)
        result *= extents[i];
    return result;
  }

  CascadeOp cascade;
  const IndexSets &sets;
  llvm::ArrayRef<std::optional<Extent>> operands;
  std::vector<double> extents; ///< of the indices
};

/// An index has the size of a dimension that it alone subscripts.
void KernelCounter::readExtents() {
  extents.assign(cascade.numIndices(), 1.0);
  auto learn = [&](mlir::Value operand, mlir::AffineMap map,
                   mlir::ValueRange indices) {
    const std::optional<Extent> &extent = operands[numberOf(operand)];
    if (!extent)
      return;
    for (auto [dim, expr] : llvm::enumerate(map.getResults()))
      if (auto place = mlir::dyn_cast<mlir::AffineDimExpr>(expr))
        if (auto index = mlir::dyn_cast<mlir::BlockArgument>(
                indices[place.getPosition()]);
            index && index.getArgNumber() < extents.size())
          extents[index.getArgNumber()] =
              static_cast<double>(extent->sizes[dim]);
  };
  for (auto read : cascade.getBody().getOps<ReadOp>())
    learn(read.getSource(), read.getMap(), read.getIndices());
  for (auto write : cascade.getBody().getOps<WriteOp>())
    learn(write.getTarget(), write.getMap(), write.getIndices());
  for (unsigned i = 0; i < extents.size(); ++i)
    if (auto size = cascade.sizeOf(i); size && size->dim >= 0)
      if (const std::optional<Extent> &extent = operands[size->operand])
        extents[i] = static_cast<double>(extent->sizes[size->dim]);
  for (auto [i, extent] : llvm::enumerate(cascade.getExtents()))
    if (!mlir::ShapedType::isDynamic(extent))
      extents[i] = static_cast<double>(extent);
}

double KernelCounter::elements(unsigned number) {
  double whole = operands[number] ? operands[number]->elements() : 0.0;
  double read = 0.0;
  bool isRead = false;
  for (auto op : cascade.getBody().getOps<ReadOp>())
    if (numberOf(op.getSource()) == number) {
      isRead = true;
      read += count(sets.of(op.getValue()));
    }
  return isRead ? std::min(whole, read) : whole;
}

double KernelCounter::operations() {
  uint64_t stream = cascade.indicesOfRole(CascadeOp::Stream);
  double result = 0.0;
  for (mlir::Operation &op : *cascade.bodyBlock()) {
    if (auto state = mlir::dyn_cast<StateOp>(op)) {
      result += count(sets.of(state.getValues().front()) | stream);
      continue;
    }
    if (auto contract = mlir::dyn_cast<ContractOp>(op)) {
      result += count(sets.of(contract.getValue()));
      continue;
    }
    bool isWork =
        mlir::isa<mlir::math::MathDialect>(op.getDialect()) ||
        mlir::isa<mlir::arith::AddFOp, mlir::arith::SubFOp, mlir::arith::MulFOp,
                  mlir::arith::DivFOp, mlir::arith::RemFOp,
                  mlir::arith::MaximumFOp, mlir::arith::MinimumFOp,
                  mlir::arith::MaxNumFOp, mlir::arith::MinNumFOp,
                  mlir::arith::AddIOp, mlir::arith::SubIOp, mlir::arith::MulIOp,
                  mlir::arith::MaxSIOp, mlir::arith::MinSIOp>(op);
    if (isWork && !op.getResult(0).getType().isIndex())
      result += count(sets.of(op.getResult(0)));
  }
  return result;
}

struct CountedKernel {
  KernelIR ir;
  bool skipsTiles = false;
  std::optional<Schedule> schedule;
};

/// The walk over the steps of one program at one shape.
class WorkCounter {
public:
  WorkCounter(mlir::MLIRContext &context, const ExecutableSpec &spec,
              llvm::ArrayRef<KernelText> texts, const TargetFacts &facts,
              bool isForGpu = false)
      : context(context), spec(spec), texts(texts), facts(facts),
        isForGpu(isForGpu) {}

  llvm::Error readSymbols(llvm::ArrayRef<Shape> shapes);
  llvm::Expected<ProgramWork> count();

private:
  std::optional<Extent> extentOf(const ViewSpec &view) const;
  llvm::Error countKernel(const KernelStep &step, StepWork &work);
  llvm::Error countGpuProduct(const KernelStep &step, StepWork &work);
  GpuWork countForGpu(const CountedKernel &kernel, const KernelStep &step,
                      KernelCounter &counter, bool skipsTiles);
  void countProduct(const ProductStep &step, StepWork &work);
  llvm::Error countStep(const Step &step, StepWork &work);
  double touch(const ViewSpec &view, double elements);
  double pastCaches(const KernelStep &step,
                    llvm::ArrayRef<std::optional<Extent>> operands,
                    const Schedule &schedule, const StepWork &work);
  void notePassed(const Step &step, StepWork &work) const;

  mlir::MLIRContext &context;
  const ExecutableSpec &spec;
  llvm::ArrayRef<KernelText> texts;
  const TargetFacts &facts; ///< that the program was compiled for
  bool isForGpu;
  std::vector<int64_t> symbols;
  std::map<unsigned, CountedKernel> kernels;
  std::vector<double> touched; ///< bytes of each buffer that steps read
  std::vector<bool> isPast;    ///< buffers that are written past the caches
  bool isOfRun = true;         ///< the step that is counted, not done once
};

llvm::Error WorkCounter::readSymbols(llvm::ArrayRef<Shape> shapes) {
  symbols.assign(spec.numSymbols, -1);
  for (auto [input, shape] : llvm::zip_equal(spec.inputs, shapes))
    for (auto [dim, extent] : llvm::zip_equal(input.dims, shape)) {
      bool isOpen = dim.extent < 0;
      int64_t known = isOpen ? symbols[dim.symbol] : dim.extent;
      if (known >= 0 && known != extent)
        return fail(ExitCode::Usage, "found extent " + llvm::Twine(extent) +
                                         " of dimension '" + dim.name +
                                         "', expected " + llvm::Twine(known));
      if (isOpen)
        symbols[dim.symbol] = extent;
    }
  return llvm::Error::success();
}

std::optional<Extent> WorkCounter::extentOf(const ViewSpec &view) const {
  Extent extent;
  extent.width = byteWidth(view.dtype);
  for (auto [size, stride] : llvm::zip_equal(view.sizes, view.strides)) {
    std::optional<int64_t> length = size.evaluate(symbols),
                           step = stride.evaluate(symbols);
    if (!length || !step || *length < 0)
      return std::nullopt;
    extent.sizes.push_back(*length);
    extent.strides.push_back(*step);
  }
  return extent;
}

/// Bytes of `elements` elements of a view, noted as read from its buffer.
double WorkCounter::touch(const ViewSpec &view, double elements) {
  double bytes = elements * byteWidth(view.dtype);
  touched[view.buffer] += isOfRun ? bytes : 0.0;
  return bytes;
}

/// Bytes of results that are stored past the caches (`Schedule::streamedFrom`).
double WorkCounter::pastCaches(const KernelStep &step,
                               llvm::ArrayRef<std::optional<Extent>> operands,
                               const Schedule &schedule, const StepWork &work) {
  if (!schedule.streamBytes)
    return 0.0;
  double past = 0.0;
  for (size_t i = step.numInputs; i < operands.size(); ++i) {
    auto *view = std::get_if<ViewSpec>(&step.operands[i]);
    if (!view)
      continue;
    double bytes = operands[i]->elements() * operands[i]->width;
    bool isFinal = spec.buffers[view->buffer].kind == BufferKind::Output;
    double passing = isFinal && operands[i]->width == 1
                         ? std::max(bytes, (bytes + work.bytesRead) /
                                               Schedule::kPassingOfBytes)
                         : bytes;
    if (passing >= double(schedule.streamedFrom(isFinal))) {
      past += bytes;
      isPast[view->buffer] = true;
    }
  }
  return past;
}

llvm::Error WorkCounter::countKernel(const KernelStep &step, StepWork &work) {
  auto known = kernels.find(step.kernel);
  if (known == kernels.end()) {
    auto parsed = parseKernel(context, texts[step.kernel]);
    if (!parsed)
      return parsed.takeError();
    mlir::FailureOr<bool> skips = leavesValuesUnread(parsed->cascade, facts);
    mlir::FailureOr<Schedule> schedule = chooseSchedule(parsed->cascade, facts);
    CountedKernel counted{std::move(*parsed), mlir::succeeded(skips) && *skips,
                          std::nullopt};
    if (mlir::succeeded(schedule))
      counted.schedule = std::move(*schedule);
    known = kernels.emplace(step.kernel, std::move(counted)).first;
  }
  CountedKernel &kernel = known->second;
  std::vector<std::optional<Extent>> operands;
  for (const OperandSpec &operand : step.operands) {
    auto *view = std::get_if<ViewSpec>(&operand);
    operands.push_back(view ? extentOf(*view) : std::nullopt);
    if (view && !operands.back())
      return fail(ExitCode::Limit, "'" + work.name + "': a size overflows");
  }
  KernelCounter counter(kernel.ir.cascade, kernel.ir.sets, operands);
  for (auto [i, operand] : llvm::enumerate(step.operands)) {
    auto *view = std::get_if<ViewSpec>(&operand);
    if (!view)
      continue;
    if (i < step.numInputs)
      work.bytesRead += touch(*view, counter.elements(i));
    else
      work.bytesWritten += operands[i]->elements() * operands[i]->width;
  }
  work.operations = counter.operations();
  work.skipsTiles = kernel.skipsTiles;
  if (isForGpu) {
    work.counts = countForGpu(kernel, step, counter, work.skipsTiles);
  } else if (kernel.schedule) {
    KernelWork counts =
        countWork(kernel.ir.cascade, kernel.ir.sets, counter.indexExtents(),
                  *kernel.schedule, facts);
    counts.bytesRead = work.bytesRead;
    counts.bytesWritten = work.bytesWritten;
    counts.bytesPast = pastCaches(step, operands, *kernel.schedule, work);
    counts.skipsTiles = work.skipsTiles;
    if (work.skipsTiles)
      if (mlir::FailureOr<double> walked =
              walkedShare(kernel.ir.cascade, facts, counter.indexExtents());
          mlir::succeeded(walked))
        counts.walked = *walked;
    work.counts = counts;
  }
  work.kernel = texts[step.kernel].name;
  CascadeOp cascade = kernel.ir.cascade;
  llvm::raw_string_ostream shape(work.shape);
  for (unsigned i = 0; i < cascade.numIndices(); ++i) {
    if (cascade.getRoles()[i] == CascadeOp::Stream)
      work.axes.push_back(cascade.indexName(i).str());
    shape << int64_t(cascade.getRoles()[i]) << ":" << counter.indexExtents()[i]
          << " ";
  }
  shape << step.operands.size() - step.numInputs;
  return llvm::Error::success();
}

GpuWork WorkCounter::countForGpu(const CountedKernel &kernel,
                                 const KernelStep &step, KernelCounter &counter,
                                 bool skipsTiles) {
  CascadeOp cascade = kernel.ir.cascade;
  GpuWork counts =
      countGpuWork(cascade, kernel.ir.sets, counter.indexExtents());
  uint64_t stream = cascade.indicesOfRole(CascadeOp::Stream),
           rows = cascade.indicesOfRole(CascadeOp::Row);
  double all = 1.0;
  for (auto [i, extent] : llvm::enumerate(counter.indexExtents()))
    all *= rows >> i & 1 ? extent : 1.0;
  llvm::SmallDenseSet<unsigned> seen;
  for (auto read : cascade.getBody().getOps<ReadOp>()) {
    unsigned number =
        mlir::cast<mlir::BlockArgument>(read.getSource()).getArgNumber() -
        cascade.numIndices();
    uint64_t set = kernel.ir.sets.of(read.getValue());
    auto *view = std::get_if<ViewSpec>(&step.operands[number]);
    if (!view || !(set & stream) || !seen.insert(number).second)
      continue;
    double bytes = counter.elements(number) * byteWidth(view->dtype);
    counts.streamBytes += bytes;
    if (!(set & rows))
      counts.sharedBytes += bytes * all;
  }
  if (skipsTiles)
    if (mlir::FailureOr<double> walked =
            walkedShare(cascade, facts, counter.indexExtents());
        mlir::succeeded(walked))
      counts.walked = *walked;
  return counts;
}

/// A product is a kernel of its own: a left side, right sides, biases perhaps,
/// and as many results.
llvm::Error WorkCounter::countGpuProduct(const KernelStep &step,
                                         StepWork &work) {
  work.kind = "product";
  std::vector<Extent> extents;
  for (auto [i, operand] : llvm::enumerate(step.operands)) {
    auto *view = std::get_if<ViewSpec>(&operand);
    std::optional<Extent> extent = view ? extentOf(*view) : std::nullopt;
    if (!extent)
      return fail(ExitCode::Limit, "'" + work.name + "': a size overflows");
    if (i < step.numInputs)
      work.bytesRead += touch(*view, extent->elements());
    else
      work.bytesWritten += extent->elements() * extent->width;
    extents.push_back(std::move(*extent));
  }
  GpuWork counts;
  double results = 0.0;
  for (const Extent &result :
       llvm::ArrayRef(extents).drop_front(step.numInputs))
    results += result.elements();
  counts.products = results * double(extents.front().sizes.back());
  counts.rows.simple = results;
  work.operations = 2.0 * counts.products;
  work.counts = counts;
  return llvm::Error::success();
}

void WorkCounter::countProduct(const ProductStep &step, StepWork &work) {
  std::optional<Extent> lhs = extentOf(step.lhs), rhs = extentOf(step.rhs),
                        result = extentOf(step.result);
  if (!lhs || !rhs || !result)
    return;
  work.bytesRead =
      touch(step.lhs, lhs->elements()) + touch(step.rhs, rhs->elements());
  if (step.bias)
    if (std::optional<Extent> bias = extentOf(*step.bias))
      work.bytesRead += touch(*step.bias, bias->elements());
  work.bytesWritten = result->elements() * result->width;
  work.operations = 2.0 * static_cast<double>(rhs->sizes.back());
  for (int64_t size : lhs->sizes)
    work.operations *= static_cast<double>(size);
  ProductWork counts;
  counts.columns = static_cast<double>(rhs->sizes.back());
  counts.depth = static_cast<double>(lhs->sizes.back());
  counts.rows = static_cast<double>(lhs->sizes[lhs->sizes.size() - 2]);
  for (int64_t size : llvm::ArrayRef(lhs->sizes).drop_back(2))
    counts.batch *= static_cast<double>(size);
  counts.bytesRead = work.bytesRead;
  counts.bytesWritten = work.bytesWritten;
  counts.isInteger = !isFloat(step.lhs.dtype);
  if (rhs->strides.back() != 1 && rhs->sizes.back() > 1)
    counts.turned = rhs->elements();
  // The library multiplies f32; what is constant was made so once.
  bool isRhsConstant =
      spec.buffers[step.rhs.buffer].kind == BufferKind::Constant;
  double blocks = std::ceil(
      counts.rows / static_cast<double>(rowBlockOf(
                        static_cast<int64_t>(counts.rows),
                        static_cast<int64_t>(counts.batch), isRhsConstant)));
  auto convert = [&](DType type, double elements) {
    if (isFloat(type) && byteWidth(type) < 4)
      (type == DType::F16 ? counts.fromF16 : counts.fromOthers) += elements;
  };
  convert(step.lhs.dtype, counts.batch * counts.rows * counts.depth);
  if (!isRhsConstant)
    convert(step.rhs.dtype,
            blocks * counts.batch * counts.depth * counts.columns);
  work.counts = counts;
}

llvm::Error WorkCounter::countStep(const Step &step, StepWork &work) {
  if (auto *kernel = std::get_if<KernelStep>(&step.what)) {
    work.kind = "kernel";
    return kernel->kernel < texts.size() ? countKernel(*kernel, work)
                                         : countGpuProduct(*kernel, work);
  }
  if (auto *product = std::get_if<ProductStep>(&step.what)) {
    work.kind = "product";
    countProduct(*product, work);
  } else if (auto *copy = std::get_if<CopyStep>(&step.what)) {
    work.kind = "copy";
    if (std::optional<Extent> from = extentOf(copy->from)) {
      work.bytesRead = touch(copy->from, from->elements());
      work.bytesWritten = work.bytesRead;
    }
  } else {
    work.kind = "check";
  }
  return llvm::Error::success();
}

/// What is read or written of arrays that are no one's but the program's, at
/// most as many bytes as the step moves.
void WorkCounter::notePassed(const Step &step, StepWork &work) const {
  double read = 0.0, written = 0.0;
  forEachView(step, [&](const ViewSpec &view, bool isWritten) {
    std::optional<Extent> extent = extentOf(view);
    if (spec.buffers[view.buffer].kind == BufferKind::Temporary && extent)
      (isWritten ? written : read) += extent->elements() * extent->width;
  });
  work.passedRead = std::min(read, work.bytesRead);
  work.passedWritten = std::min(written, work.bytesWritten);
}

llvm::Expected<ProgramWork> WorkCounter::count() {
  ProgramWork result;
  touched.assign(spec.buffers.size(), 0.0);
  isPast.assign(spec.buffers.size(), false);
  ConstantSteps constants = findConstantSteps(spec);
  std::vector<bool> isNamed(spec.buffers.size()); // by steps of a run
  result.keptBytes = constants.keptBytes;
  for (auto [i, step] : llvm::enumerate(spec.steps)) {
    StepWork &work = result.steps.emplace_back();
    work.name = step.name;
    work.isOnce = constants.isOnce[i];
    work.isLeftOut = step.condition.evaluate(symbols).value_or(1) == 0;
    if (work.isLeftOut)
      continue;
    isOfRun = !work.isOnce;
    if (llvm::Error error = countStep(step, work))
      return std::move(error);
    if (work.isOnce)
      continue;
    forEachView(
        step, [&](const ViewSpec &view, bool) { isNamed[view.buffer] = true; });
    notePassed(step, work);
    if (!work.skipsTiles)
      result.operations += work.operations;
  }
  for (auto [i, buffer, bytesRead] : llvm::enumerate(spec.buffers, touched)) {
    double bytes =
        static_cast<double>(buffer.bytes.evaluate(symbols).value_or(0));
    bool isWeight = buffer.kind == BufferKind::Constant || constants.isKept[i];
    bool isRead = buffer.kind == BufferKind::Input || isWeight;
    // What is stored past the caches, and not read, has no place in them.
    if (isRead || (isNamed[i] && (!isPast[i] || bytesRead > 0.0)))
      result.workingSet += isRead ? std::min(bytes, bytesRead) : bytes;
    if (buffer.kind == BufferKind::Input)
      result.inputBytes += std::min(bytes, bytesRead);
    else if (isWeight)
      result.weightBytes += std::min(bytes, bytesRead);
    else if (buffer.kind == BufferKind::Output)
      result.outputBytes += bytes;
  }
  return std::move(result);
}

} // namespace

llvm::Expected<ProgramWork> measureWork(mlir::MLIRContext &context,
                                        const CompiledProgram &program,
                                        llvm::ArrayRef<Shape> shapes) {
  return measureWork(context, program.executable.spec(), program.kernels,
                     program.facts, shapes);
}

llvm::Expected<ProgramWork> measureWork(mlir::MLIRContext &context,
                                        const ExecutableSpec &spec,
                                        llvm::ArrayRef<KernelText> kernels,
                                        const TargetFacts &facts,
                                        llvm::ArrayRef<Shape> shapes) {
  WorkCounter counter(context, spec, kernels, facts);
  if (llvm::Error error = counter.readSymbols(shapes))
    return std::move(error);
  return counter.count();
}

llvm::Expected<ProgramWork> measureGpuWork(mlir::MLIRContext &context,
                                           const CompiledProgram &program,
                                           llvm::ArrayRef<Shape> shapes) {
  WorkCounter counter(context, program.executable.spec(), program.kernels,
                      program.facts, /*isForGpu=*/true);
  if (llvm::Error error = counter.readSymbols(shapes))
    return std::move(error);
  return counter.count();
}

llvm::Expected<std::vector<Shape>> shapesOf(llvm::ArrayRef<Port> inputs,
                                            const Extents &extents) {
  if (llvm::Error error = checkExtents(inputs, extents))
    return std::move(error);
  std::vector<Shape> result;
  for (const Port &port : inputs) {
    llvm::Expected<Shape> shape = shapeOf(port, extents);
    if (!shape)
      return shape.takeError();
    result.push_back(std::move(*shape));
  }
  return std::move(result);
}

} // namespace refold
