// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ShapePlan.h"

#include "LinkedOneDnn.h"
#include "refold/Runtime/ArenaPlan.h"
#include "refold/Runtime/ConstantPanels.h"
#include "refold/Runtime/StepViews.h"
#include "refold/Support/Error.h"
#include <algorithm>
#include <limits>

using namespace refold;

namespace {
/// What every part of planning reads.
struct Planner {
  const ExecutableSpec &spec;
  const PlannedSteps &steps;
  SizeValues &sizes;
  std::vector<PackedWeights> &weights;
  std::vector<PanelStore> &panels;
  ShapePlan &plan;
  std::vector<bool> isTaken = {}; ///< one a step: its condition holds

  llvm::Error findTaken();
  llvm::Error checkSizes() const;
  llvm::Error planCall(size_t at);
  llvm::Error planKernel(size_t at, const KernelStep &kernel);
  llvm::Error packConstants(size_t at, KernelCall &call);
  llvm::Error planProduct(size_t at, const ProductStep &product);
  llvm::Error planAssert(const Step &step, const AssertStep &assertion);
  llvm::Error placeBuffers();
  llvm::Expected<View> view(const Step &step, const ViewSpec &spec) const;
};
} // namespace

/// Below these a step runs on the calling thread: waking another one costs
/// about as much as the step (25 us, measured with libgomp on two cores).
static constexpr int64_t kSmallElements = 4096;
static constexpr int64_t kSmallMultiplications = 1 << 18;

static llvm::Error overflow(const llvm::Twine &what) {
  return fail(ExitCode::Limit, what + ": a size overflows or is negative");
}

llvm::Expected<View> Planner::view(const Step &step,
                                   const ViewSpec &viewSpec) const {
  std::optional<View> view = resolve(viewSpec, sizes);
  if (!view)
    return overflow("'" + step.name + "'");
  return std::move(*view);
}

/// Base, aligned base, offset, sizes, strides; the bases are filled in later.
static void appendMemref(KernelCall &call, const View &view) {
  call.addresses.push_back(
      {unsigned(call.words.size()), view.buffer, view.byteOffset});
  call.words.append({0, 0, 0});
  call.words.append(view.sizes.begin(), view.sizes.end());
  call.words.append(view.strides.begin(), view.strides.end());
}

/// Returns where the memref<?xi8> of a workspace begins.
static unsigned appendWorkspace(KernelCall &call, int64_t bytes) {
  unsigned at = call.words.size();
  call.words.append({0, 0, 0, bytes, 1});
  return at;
}

/// Runs the packing phases of `call`, unless an earlier shape has.
llvm::Error Planner::packConstants(size_t at, KernelCall &call) {
  call.firstPhase = call.kernel->packedOperands.size();
  auto [known, isNew] = panels[at].buffers.try_emplace(
      panelKey(call.sharedBytes, call.items, call.firstPhase));
  AlignedBuffer &shared = known->second, privates;
  if (isNew && (!shared.reserve(std::max<int64_t>(call.sharedBytes, 1)) ||
                !privates.reserve(std::max<int64_t>(call.privateBytes, 1)))) {
    panels[at].buffers.erase(known);
    return fail(ExitCode::Limit, "memory is short for the weights of '" +
                                     spec.steps[at].name + "'");
  }
  call.panels = shared.data();
  if (!isNew)
    return llvm::Error::success();
  llvm::SmallVector<int64_t, 0> words = call.words;
  auto setMemref = [&](unsigned word, const char *address) {
    words[word] = words[word + 1] = reinterpret_cast<intptr_t>(address);
  };
  for (const KernelCall::Address &address : call.addresses)
    if (const BufferSpec &buffer = steps.buffers[address.buffer];
        buffer.kind == BufferKind::Constant)
      setMemref(address.word,
                static_cast<const char *>(buffer.data) + address.byteOffset);
  setMemref(call.sharedAt, shared.data());
  setMemref(call.privateAt, privates.data());
  for (unsigned phase = 0; phase < call.firstPhase; ++phase) {
    words[call.rangeAt] = 0;
    words[call.rangeAt + 1] = call.items[phase];
    call.kernel->phases[phase](words.data(), nullptr);
  }
  return llvm::Error::success();
}

llvm::Error Planner::planKernel(size_t at, const KernelStep &kernelStep) {
  const Step &step = spec.steps[at];
  const Kernel &kernel = spec.kernels[kernelStep.kernel];
  KernelCall call;
  call.kernel = &kernel;
  int64_t elements = 0;
  for (const OperandSpec &operand : kernelStep.operands) {
    if (auto *scalar = std::get_if<ScalarSpec>(&operand)) {
      std::optional<int64_t> value = sizes.of(scalar->value);
      if (!value)
        return overflow("'" + step.name + "'");
      call.words.push_back(*value);
      continue;
    }
    llvm::Expected<View> resolved = view(step, std::get<ViewSpec>(operand));
    if (!resolved)
      return resolved.takeError();
    appendMemref(call, *resolved);
    elements += std::min(resolved->numElements(), kSmallElements);
  }
  call.isSmall = elements < kSmallElements;

  size_t phases = kernel.phases.size();
  llvm::SmallVector<int64_t, 8> answer(2 + 2 * phases);
  if (!kernel.launch)
    kernel.shape(call.words.data(), answer.data());
  for (int64_t value : answer)
    if (value < 0)
      return overflow("'" + step.name + "'");
  call.sharedBytes = answer[0];
  call.privateBytes = answer[1];
  call.items.assign(answer.begin() + 2, answer.begin() + 2 + phases);
  call.itemsAtOnce.assign(answer.begin() + 2 + phases, answer.end());
  if (phases > 0 && call.items.back() > 0 && call.itemsAtOnce.back() == 0)
    return fail(ExitCode::Internal, "'" + step.name + "' has empty rounds");
  call.sharedAt = appendWorkspace(call, call.sharedBytes);
  call.privateAt = appendWorkspace(call, call.privateBytes);
  call.rangeAt = call.words.size();
  call.words.append({0, 0});
  auto isConstant = [&](unsigned buffer) {
    return steps.buffers[buffer].kind == BufferKind::Constant;
  };
  if (kernel.sharesOnlyPanels && call.items == call.itemsAtOnce &&
      packsConstants(kernel.packedOperands, kernelStep, isConstant)) {
    if (llvm::Error error = packConstants(at, call))
      return error;
  } else {
    plan.sharedBytes = std::max(plan.sharedBytes, call.sharedBytes);
  }
  plan.privateBytes = std::max(plan.privateBytes, call.privateBytes);
  plan.maxWords = std::max<size_t>(plan.maxWords, call.words.size());
  plan.calls.push_back(std::move(call));
  return llvm::Error::success();
}

llvm::Error Planner::planProduct(size_t at, const ProductStep &product) {
  const Step &step = spec.steps[at];
  llvm::Expected<View> lhs = view(step, product.lhs);
  if (!lhs)
    return lhs.takeError();
  llvm::Expected<View> rhs = view(step, product.rhs);
  if (!rhs)
    return rhs.takeError();
  llvm::Expected<View> result = view(step, product.result);
  if (!result)
    return result.takeError();
  ProductPlan::Options options;
  options.activation = product.activation;
  options.hasBias = product.bias.has_value();
  const BufferSpec &rhsBuffer = steps.buffers[product.rhs.buffer];
  if (rhsBuffer.kind == BufferKind::Constant)
    options.constantRhs = static_cast<const char *>(rhsBuffer.data);

  options.library = &linkedOneDnn();
  ProductCall call;
  std::string error;
  call.plan =
      ProductPlan::create(*lhs, *rhs, *result, options, weights[at], error);
  if (!call.plan)
    return fail(ExitCode::Unsupported, "'" + step.name + "': " + error);
  int64_t multiplications = 0;
  call.isSmall = !__builtin_mul_overflow(lhs->numElements(), rhs->sizes.back(),
                                         &multiplications) &&
                 multiplications < kSmallMultiplications;
  call.lhs = product.lhs.buffer;
  call.rhs = product.rhs.buffer;
  call.result = product.result.buffer;
  if (product.bias) {
    llvm::Expected<View> bias = view(step, *product.bias);
    if (!bias)
      return bias.takeError();
    call.bias = {bias->buffer, bias->byteOffset};
  }
  plan.privateBytes = std::max(plan.privateBytes, call.plan->privateBytes());
  plan.calls.push_back(std::move(call));
  return llvm::Error::success();
}

llvm::Error Planner::planAssert(const Step &step, const AssertStep &assertion) {
  auto *flags = std::get_if<ViewSpec>(&assertion.condition);
  if (!flags)
    return llvm::Error::success(); // about sizes: checked before planning
  llvm::Expected<View> resolved = view(step, *flags);
  if (!resolved)
    return resolved.takeError();
  plan.calls.push_back(AssertCall{std::move(*resolved), &assertion.message});
  return llvm::Error::success();
}

llvm::Error Planner::findTaken() {
  for (const Step &step : spec.steps) {
    std::optional<int64_t> holds = sizes.of(step.condition);
    if (!holds)
      return overflow("'" + step.name + "'");
    isTaken.push_back(*holds != 0);
  }
  return llvm::Error::success();
}

/// Assertions about sizes hold before anything relies on them.
llvm::Error Planner::checkSizes() const {
  for (auto [at, step] : llvm::enumerate(spec.steps)) {
    auto *assertion = std::get_if<AssertStep>(&step.what);
    auto *condition =
        assertion ? std::get_if<SizeExpr>(&assertion->condition) : nullptr;
    if (!condition || !isTaken[at])
      continue;
    std::optional<int64_t> holds = sizes.of(*condition);
    if (!holds)
      return overflow("'" + step.name + "'");
    if (!*holds)
      return fail(ExitCode::Model, assertion->message);
  }
  return llvm::Error::success();
}

llvm::Error Planner::planCall(size_t at) {
  const Step &step = spec.steps[at];
  if (auto *kernel = std::get_if<KernelStep>(&step.what))
    return planKernel(at, *kernel);
  if (auto *product = std::get_if<ProductStep>(&step.what))
    return planProduct(at, *product);
  if (auto *assertion = std::get_if<AssertStep>(&step.what))
    return planAssert(step, *assertion);
  const CopyStep &copy = std::get<CopyStep>(step.what);
  llvm::Expected<View> from = view(step, copy.from);
  if (!from)
    return from.takeError();
  llvm::Expected<View> to = view(step, copy.to);
  if (!to)
    return to.takeError();
  plan.calls.push_back(CopyCall{std::move(*from), std::move(*to)});
  return llvm::Error::success();
}

llvm::Error Planner::placeBuffers() {
  constexpr unsigned kNever = std::numeric_limits<unsigned>::max();
  std::vector<BufferLife> lives(spec.buffers.size(), BufferLife{0, kNever, 0});
  for (unsigned at = 0; at < spec.steps.size(); ++at)
    if (steps.have(at) && isTaken[at])
      forEachView(spec.steps[at], [&](const ViewSpec &view, bool) {
        BufferLife &life = lives[view.buffer];
        life.first = std::min(life.first, at);
        life.last = at;
      });
  plan.arenaOffsets.assign(spec.buffers.size(), -1);
  std::vector<unsigned> temporaries;
  std::vector<BufferLife> placed;
  for (auto [at, buffer] : llvm::enumerate(spec.buffers)) {
    if (buffer.kind != BufferKind::Temporary || steps.isKept[at] ||
        lives[at].first == kNever)
      continue;
    std::optional<int64_t> bytes = sizes.of(buffer.bytes);
    if (!bytes || *bytes < 0)
      return overflow("intermediate array");
    lives[at].bytes = *bytes;
    temporaries.push_back(at);
    placed.push_back(lives[at]);
  }
  std::optional<ArenaPlan> arena = planArena(placed);
  if (!arena)
    return overflow("intermediate arrays");
  for (auto [i, at] : llvm::enumerate(temporaries))
    plan.arenaOffsets[at] = arena->offsets[i];
  plan.arenaBytes = arena->bytes;
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<ShapePlan>>
refold::planShape(const ExecutableSpec &spec, const PlannedSteps &steps,
                  llvm::ArrayRef<int64_t> symbols,
                  std::vector<PackedWeights> &weights,
                  std::vector<PanelStore> &panels) {
  auto plan = std::make_unique<ShapePlan>();
  SizeValues sizes(symbols);
  Planner planner{spec, steps, sizes, weights, panels, *plan};
  if (llvm::Error error = planner.findTaken())
    return std::move(error);
  if (llvm::Error error = planner.checkSizes())
    return std::move(error);
  for (const OutputSpec &output : spec.outputs) {
    llvm::SmallVector<int64_t, 4> &shape = plan->outputShapes.emplace_back();
    for (const SizeExpr &expr : output.shape) {
      std::optional<int64_t> extent = sizes.of(expr);
      if (!extent || *extent < 0)
        return overflow("output '" + output.name + "'");
      shape.push_back(*extent);
    }
    if (!checkedNumElements(shape, byteWidth(output.dtype)))
      return overflow("output '" + output.name + "'");
  }
  for (size_t at = 0; at < spec.steps.size(); ++at) {
    if (!steps.have(at) || !planner.isTaken[at])
      continue;
    if (llvm::Error error = planner.planCall(at))
      return std::move(error);
    plan->stepOfCall.resize(plan->calls.size(), at);
  }
  if (llvm::Error error = planner.placeBuffers())
    return std::move(error);
  return std::move(plan);
}
