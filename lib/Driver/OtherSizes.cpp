// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "OtherSizes.h"
#include "refold/Support/Error.h"
#include <iterator>
#include <utility>

namespace refold {

/// The numbers in `spec` of the buffers of `other`, which are appended where
/// they are not the same memory.
static std::vector<unsigned> mergeBuffers(ExecutableSpec &spec,
                                          const ExecutableSpec &other) {
  std::vector<unsigned> numbers;
  size_t numOwn = spec.buffers.size();
  for (const BufferSpec &buffer : other.buffers) {
    auto own = llvm::ArrayRef(spec.buffers).take_front(numOwn);
    auto same = llvm::find_if(own, [&](const BufferSpec &one) {
      return one.kind == buffer.kind && one.kind != BufferKind::Temporary &&
             one.port == buffer.port && one.data == buffer.data &&
             one.bytes == buffer.bytes;
    });
    bool isNew = same == own.end();
    numbers.push_back(isNew ? unsigned(spec.buffers.size())
                            : unsigned(same - own.begin()));
    if (isNew)
      spec.buffers.push_back(buffer);
  }
  return numbers;
}

static void renumber(Step &step, llvm::ArrayRef<unsigned> buffers,
                     unsigned firstKernel) {
  auto place = [&](ViewSpec &view) { view.buffer = buffers[view.buffer]; };
  if (auto *kernel = std::get_if<KernelStep>(&step.what)) {
    kernel->kernel += firstKernel;
    for (OperandSpec &operand : kernel->operands)
      if (auto *view = std::get_if<ViewSpec>(&operand))
        place(*view);
  } else if (auto *product = std::get_if<ProductStep>(&step.what)) {
    for (ViewSpec *view : {&product->lhs, &product->rhs, &product->result})
      place(*view);
    if (product->bias)
      place(*product->bias);
  } else if (auto *copy = std::get_if<CopyStep>(&step.what)) {
    place(copy->from);
    place(copy->to);
  } else if (auto *view = std::get_if<ViewSpec>(
                 &std::get<AssertStep>(step.what).condition)) {
    place(*view);
  }
}

static bool haveSameSymbols(const ExecutableSpec &a, const ExecutableSpec &b) {
  auto isSame = [](const InputSpec &x, const InputSpec &y) {
    return llvm::equal(x.dims, y.dims, [](const DimSpec &d, const DimSpec &e) {
      return d.extent == e.extent && (d.extent >= 0 || d.symbol == e.symbol);
    });
  };
  return a.numSymbols == b.numSymbols &&
         llvm::equal(a.inputs, b.inputs, isSame);
}

llvm::Error appendOther(ExecutableSpec &spec, ExecutableSpec other,
                        unsigned firstKernel) {
  if (!haveSameSymbols(spec, other))
    return fail(ExitCode::Internal,
                "a program has other sizes when less of it is fused");
  std::vector<unsigned> buffers = mergeBuffers(spec, other);
  spec.firstOther = spec.steps.size();
  for (Step &step : other.steps) {
    renumber(step, buffers, firstKernel);
    spec.steps.push_back(std::move(step));
  }
  spec.cachedKernels += other.cachedKernels;
  spec.owners.insert(spec.owners.end(),
                     std::make_move_iterator(other.owners.begin()),
                     std::make_move_iterator(other.owners.end()));
  return llvm::Error::success();
}

void chooseBySizes(ExecutableSpec &spec, llvm::ArrayRef<CudaKernel> kernels) {
  if (spec.firstOther >= spec.steps.size())
    return;
  llvm::MutableArrayRef<Step> steps = spec.steps;
  SizeExpr haveRoom = 1;
  for (const Step &step : steps.take_front(spec.firstOther))
    if (auto *kernel = std::get_if<KernelStep>(&step.what);
        kernel && mayLackRoom(kernels[kernel->kernel]))
      haveRoom = haveRoom * hasRoom(kernels[kernel->kernel], *kernel);
  if (haveRoom.constant() == 1) { // what lacked room is left apart anyway
    spec.steps.resize(std::exchange(spec.firstOther, SIZE_MAX));
    return;
  }
  for (Step &step : steps.take_front(spec.firstOther))
    step.condition = haveRoom;
  for (Step &step : steps.drop_front(spec.firstOther))
    step.condition = SizeExpr(1) - haveRoom;
}

} // namespace refold
