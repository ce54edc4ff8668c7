// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What kernels move and compute as sizes of their calls, so that packages
// predict times where no extents were known.
#include "GpuWork.h"
#include "KernelIR.h"
#include "refold/Conversion/CascadeToVector.h"
#include "refold/Package/LaunchCost.h"
#include "refold/Schedule/GpuCost.h"
#include <cmath>

namespace refold {

namespace {
class SizedWork {
public:
  SizedWork(CascadeOp cascade, const IndexSets &sets, const CudaKernel &kernel)
      : cascade(cascade), sets(sets), kernel(kernel),
        extents(cascade.numIndices(), SizeExpr(1)) {
    readExtents();
  }
  void addTo(package::DeviceWork &work, SizeSharing &sharing);
  /// Of a stream of usual length, where bounds skip some of it.
  double walked(const TargetFacts &facts);

private:
  const CudaOperand &operandOf(mlir::Value argument) {
    return kernel.operands[numberOf(argument)];
  }
  unsigned numberOf(mlir::Value argument) {
    return mlir::cast<mlir::BlockArgument>(argument).getArgNumber() -
           cascade.numIndices();
  }
  void readExtents();
  SizeExpr places(uint64_t set) const {
    SizeExpr all = 1;
    for (unsigned i = 0; i < extents.size(); ++i)
      if (set >> i & 1)
        all = all * extents[i];
    return all;
  }
  SizeExpr elements(unsigned number);

  CascadeOp cascade;
  const IndexSets &sets;
  const CudaKernel &kernel;
  std::vector<SizeExpr> extents;
};
} // namespace

static SizeExpr sizeOf(const CudaOperand &operand, unsigned dim) {
  return SizeExpr::symbol(operand.word + 3 + dim);
}

/// Different elements of an array: what is repeated counts once.
static SizeExpr elementsOf(const CudaOperand &operand) {
  SizeExpr all = 1;
  for (unsigned d = 0; operand.isArray && d < operand.rank; ++d) {
    SizeExpr stride = SizeExpr::symbol(operand.word + 3 + operand.rank + d);
    SizeExpr isRepeated = SizeExpr::binary(SizeExpr::Op::Eq, stride, 0);
    all = all * SizeExpr::select(
                    isRepeated,
                    SizeExpr::binary(SizeExpr::Op::Min, sizeOf(operand, d), 1),
                    sizeOf(operand, d));
  }
  return all;
}

/// As `KernelCounter` of Work.cpp.
void SizedWork::readExtents() {
  auto learn = [&](mlir::Value array, mlir::AffineMap map,
                   mlir::ValueRange indices) {
    const CudaOperand &operand = operandOf(array);
    if (!operand.isArray)
      return;
    for (auto [dim, expr] : llvm::enumerate(map.getResults()))
      if (auto place = mlir::dyn_cast<mlir::AffineDimExpr>(expr))
        if (auto index = mlir::dyn_cast<mlir::BlockArgument>(
                indices[place.getPosition()]);
            index && index.getArgNumber() < extents.size())
          extents[index.getArgNumber()] = sizeOf(operand, unsigned(dim));
  };
  for (auto read : cascade.getBody().getOps<ReadOp>())
    learn(read.getSource(), read.getMap(), read.getIndices());
  for (auto write : cascade.getBody().getOps<WriteOp>())
    learn(write.getTarget(), write.getMap(), write.getIndices());
  for (unsigned i = 0; i < extents.size(); ++i)
    if (auto size = cascade.sizeOf(i); size && size->dim >= 0)
      extents[i] = sizeOf(kernel.operands[size->operand], unsigned(size->dim));
  for (auto [i, extent] : llvm::enumerate(cascade.getExtents()))
    if (!mlir::ShapedType::isDynamic(extent))
      extents[i] = extent;
}

SizeExpr SizedWork::elements(unsigned number) {
  SizeExpr whole = elementsOf(kernel.operands[number]), read = 0;
  bool isRead = false;
  for (auto op : cascade.getBody().getOps<ReadOp>())
    if (numberOf(op.getSource()) == number) {
      isRead = true;
      read = read + places(sets.of(op.getValue()));
    }
  return isRead ? SizeExpr::binary(SizeExpr::Op::Min, whole, read) : whole;
}

double SizedWork::walked(const TargetFacts &facts) {
  constexpr double kUsual = 2048.0;
  mlir::FailureOr<bool> skips = leavesValuesUnread(cascade, facts);
  if (mlir::failed(skips) || !*skips)
    return 1.0;
  std::vector<double> usual;
  for (const SizeExpr &extent : extents)
    usual.push_back(double(extent.constant().value_or(int64_t(kUsual))));
  mlir::FailureOr<double> share = walkedShare(cascade, facts, usual);
  return mlir::succeeded(share) ? *share : 1.0;
}

static uint32_t inUnits(double value) {
  double units = std::round(value * double(package::DeviceWork::kUnit));
  return uint32_t(std::clamp(units, 0.0, double(INT32_MAX)));
}

static package::DeviceWork::Part partOf(const GpuWork &work,
                                        SizeNumber places) {
  package::DeviceWork::Part part;
  part.places = places;
  part.products = inUnits(work.products);
  GpuWork fixed = work;
  fixed.walked = 0.0;
  part.fixedSlots = inUnits(slotsOf(fixed));
  part.fixedFunctions = inUnits(functionsOf(fixed));
  part.slots = inUnits(slotsOf(work) - slotsOf(fixed));
  part.functions = inUnits(functionsOf(work) - functionsOf(fixed));
  return part;
}

void SizedWork::addTo(package::DeviceWork &work, SizeSharing &sharing) {
  SizeExpr read = 0, written = 0, streamed = 0, shared = 0;
  for (auto [i, operand] : llvm::enumerate(kernel.operands)) {
    if (!operand.isArray)
      continue;
    SizeExpr bytes =
        (operand.isResult ? elementsOf(operand) : elements(unsigned(i))) *
        SizeExpr(operand.elementBytes);
    (operand.isResult ? written : read) =
        (operand.isResult ? written : read) + bytes;
  }
  uint64_t stream = cascade.indicesOfRole(CascadeOp::Stream),
           rows = cascade.indicesOfRole(CascadeOp::Row);
  llvm::SmallDenseSet<unsigned> seen;
  for (auto op : cascade.getBody().getOps<ReadOp>()) {
    unsigned number = numberOf(op.getSource());
    uint64_t set = sets.of(op.getValue());
    if (!kernel.operands[number].isArray || !(set & stream) ||
        !seen.insert(number).second)
      continue;
    SizeExpr bytes =
        elements(number) * SizeExpr(kernel.operands[number].elementBytes);
    streamed = streamed + bytes;
    if (!(set & rows))
      shared = shared + bytes * places(rows);
  }
  work.bytesRead = sharing.add(read);
  work.bytesWritten = sharing.add(written);
  work.streamBytes = sharing.add(streamed);
  work.sharedBytes = sharing.add(shared);
  GpuWorkForm form = formOfGpuWork(cascade, sets);
  work.sweeps = uint32_t(form.sweeps);
  for (const auto &[set, part] : form.parts)
    work.parts.push_back(partOf(part, sharing.add(places(set))));
}

/// A product is a kernel of its own: a left side, right sides, biases perhaps,
/// and as many results.
static void addProduct(const CudaKernel &kernel, package::DeviceWork &work,
                       SizeSharing &sharing) {
  SizeExpr read = 0, written = 0, results = 0;
  for (const CudaOperand &operand : kernel.operands) {
    SizeExpr all = elementsOf(operand);
    SizeExpr bytes = all * SizeExpr(operand.elementBytes);
    (operand.isResult ? written : read) =
        (operand.isResult ? written : read) + bytes;
    if (operand.isResult)
      results = results + all;
  }
  const CudaOperand &lhs = kernel.operands.front();
  work.bytesRead = sharing.add(read);
  work.bytesWritten = sharing.add(written);
  work.streamBytes = work.sharedBytes = sharing.add(0);
  GpuWork ofProduct, ofResult;
  ofProduct.products = 1.0;
  ofResult.rows.simple = 1.0;
  work.parts.push_back(
      partOf(ofProduct, sharing.add(results * sizeOf(lhs, lhs.rank - 1))));
  work.parts.push_back(partOf(ofResult, sharing.add(results)));
}

llvm::Error addGpuWork(mlir::MLIRContext &context,
                       llvm::ArrayRef<KernelText> texts,
                       llvm::ArrayRef<CudaKernel> kernels,
                       const TargetFacts &facts, package::Package &package) {
  for (auto [i, kernel] : llvm::enumerate(kernels)) {
    package::DeviceKernel &device = package.deviceKernels[i];
    SizeSharing sharing(device.sizes);
    package::DeviceWork work;
    if (i < texts.size()) {
      auto parsed = parseKernel(context, texts[i]);
      if (!parsed)
        return parsed.takeError();
      SizedWork sized(parsed->cascade, parsed->sets, kernel);
      sized.addTo(work, sharing);
      work.walked = inUnits(sized.walked(facts));
    } else {
      addProduct(kernel, work, sharing);
    }
    device.work = std::move(work);
  }
  return llvm::Error::success();
}

} // namespace refold
