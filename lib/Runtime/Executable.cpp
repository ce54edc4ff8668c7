// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Runtime/Executable.h"

#include "LinkedOneDnn.h"
#include "Parallel.h"
#include "ShapePlan.h"
#include "refold/Runtime/ArenaPlan.h"
#include "refold/Runtime/ConstantSteps.h"
#include "refold/Support/AlignedBuffer.h"
#include "refold/Support/Error.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>

using namespace refold;

namespace {
/// What one call of `run` owns while it runs; reused by later calls.
struct RunState {
  AlignedBuffer arena, shared;
  AlignedBuffer staging; ///< row-major copies of strided inputs and outputs
  AlignedBuffer privates;
  std::vector<char *> addresses; ///< one a buffer
  std::vector<int64_t> words;    ///< one copy of a call's words a thread
  std::vector<int64_t> symbols;
};

struct LessSymbols {
  using is_transparent = void;
  bool operator()(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b) const {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  }
};

/// Where everything of one run lies.
struct Bindings {
  llvm::ArrayRef<Tensor> inputs;
  llvm::MutableArrayRef<Tensor> outputs;
};
} // namespace

struct Executable::Impl {
  ExecutableSpec spec;
  std::vector<PackedWeights> weights;
  std::vector<PanelStore> panels;
  /// What is computed of constants alone, before the first run: `buffers` has
  /// it as constants from then on. A remote program sees to it itself.
  ConstantSteps constants;
  std::vector<BufferSpec> buffers;
  AlignedBuffer kept;
  bool hasConstants = false;
  std::mutex mutex;
  /// Plans by the extents that they are for. Old ones go when there are many.
  std::map<std::vector<int64_t>, std::shared_ptr<ShapePlan>, LessSymbols> plans;
  std::vector<std::unique_ptr<RunState>> idle;
  int64_t largestArena = 0, shapesSeen = 0;
  StepObserver observer;
  static constexpr size_t kMaxPlans = 256;

  explicit Impl(ExecutableSpec spec)
      : spec(std::move(spec)), weights(this->spec.steps.size()),
        panels(this->spec.steps.size()),
        constants(findConstantSteps(this->spec)), buffers(this->spec.buffers),
        hasConstants(this->spec.remote || constants.count == 0) {
    if (this->spec.remote)
      constants.isOnce.assign(this->spec.steps.size(), false);
  }

  llvm::Error readSymbols(llvm::ArrayRef<Tensor> inputs,
                          std::vector<int64_t> &symbols) const;
  llvm::Expected<std::shared_ptr<ShapePlan>>
  planFor(llvm::ArrayRef<int64_t> symbols, unsigned threads);
  llvm::Error computeConstants(llvm::ArrayRef<int64_t> symbols,
                               unsigned threads);
  llvm::Expected<std::vector<llvm::SmallVector<int64_t, 4>>>
  outputShapes(llvm::ArrayRef<Tensor> inputs, unsigned threads);
  std::unique_ptr<RunState> takeState();
  void giveBack(std::unique_ptr<RunState> state);
  llvm::Error checkOutputs(llvm::ArrayRef<Tensor> outputs,
                           const ShapePlan &plan) const;
  bool reserve(const ShapePlan &plan, unsigned threads, RunState &state) const;
  void placeBuffers(llvm::ArrayRef<BufferSpec> placed, const ShapePlan &plan,
                    RunState &state) const;
  llvm::Error bind(const Bindings &bindings, const ShapePlan &plan,
                   unsigned threads, RunState &state) const;
  llvm::Error execute(const ShapePlan &plan, unsigned threads,
                      RunState &state) const;
  llvm::Error executeRemotely(llvm::ArrayRef<Tensor> inputs,
                              RunState &state) const;
  void storeOutputs(const Bindings &bindings, RunState &state) const;
};

static std::string describeDim(const InputSpec &input, size_t dim) {
  std::string text =
      "argument '" + input.name + "': dimension " + std::to_string(dim);
  if (!input.dims[dim].name.empty())
    text += " ('" + input.dims[dim].name + "')";
  return text;
}

static llvm::Error checkExtent(const InputSpec &input, size_t dim,
                               int64_t found, int64_t expected,
                               const llvm::Twine &where) {
  if (found == expected)
    return llvm::Error::success();
  return fail(ExitCode::Model, describeDim(input, dim) + " is " +
                                   llvm::Twine(found) + ", expected " +
                                   llvm::Twine(expected) + where);
}

static llvm::Error checkInput(const InputSpec &input, const Tensor &tensor) {
  if (tensor.dtype() != input.dtype)
    return fail(ExitCode::Model, "argument '" + input.name + "' is " +
                                     nameOf(tensor.dtype()) + ", expected " +
                                     nameOf(input.dtype));
  if (tensor.rank() != input.dims.size())
    return fail(ExitCode::Model, "argument '" + input.name + "' has " +
                                     llvm::Twine(tensor.rank()) +
                                     " dimensions, expected " +
                                     llvm::Twine(unsigned(input.dims.size())));
  return llvm::Error::success();
}

llvm::Error Executable::Impl::readSymbols(llvm::ArrayRef<Tensor> inputs,
                                          std::vector<int64_t> &symbols) const {
  if (inputs.size() != spec.inputs.size())
    return fail(ExitCode::Model, llvm::Twine(unsigned(inputs.size())) +
                                     " arguments were given, expected " +
                                     llvm::Twine(unsigned(spec.inputs.size())));
  symbols.assign(spec.numSymbols, -1);
  // Where a symbol got its value, for the message.
  auto firstPlace = [&](unsigned symbol) -> std::string {
    for (const InputSpec &input : spec.inputs)
      for (auto [dim, info] : llvm::enumerate(input.dims))
        if (info.extent < 0 && info.symbol == symbol)
          return " as dimension " + std::to_string(dim) + " of argument '" +
                 input.name + "'";
    return "";
  };
  for (auto [input, tensor] : llvm::zip_equal(spec.inputs, inputs)) {
    if (llvm::Error error = checkInput(input, tensor))
      return error;
    for (auto [dim, info] : llvm::enumerate(input.dims)) {
      int64_t found = tensor.shape()[dim];
      if (info.extent >= 0) {
        if (llvm::Error error = checkExtent(input, dim, found, info.extent, ""))
          return error;
        continue;
      }
      int64_t &symbol = symbols[info.symbol];
      if (symbol < 0)
        symbol = found;
      if (symbol != found)
        return checkExtent(input, dim, found, symbol, firstPlace(info.symbol));
    }
  }
  return llvm::Error::success();
}

/// Multiples of a cache line, as arrays begin in an arena.
static size_t roundedUp(int64_t bytes) {
  return size_t(bytes + ArenaPlan::kAlignment - 1) & ~size_t(63);
}

static llvm::Error noMemory() {
  return fail(ExitCode::Limit, "memory is short for this shape");
}

/// Runs the steps that are done once. Where one fails nothing has changed, and
/// the next run tries again.
llvm::Error Executable::Impl::computeConstants(llvm::ArrayRef<int64_t> symbols,
                                               unsigned threads) {
  auto plan = planShape(
      spec,
      {spec.buffers, constants.isOnce, /*areOnce=*/true, constants.isKept},
      symbols, weights, panels);
  if (!plan)
    return plan.takeError();
  std::optional<KeptPlaces> places =
      placeKept(spec, constants, int64_t(AlignedBuffer::kAlignment));
  RunState state;
  if (!places || !kept.reserve(size_t(places->bytes)) ||
      !reserve(**plan, threads, state))
    return noMemory();
  state.addresses.resize(spec.buffers.size());
  placeBuffers(spec.buffers, **plan, state);
  for (size_t i = 0; i < buffers.size(); ++i)
    if (constants.isKept[i])
      state.addresses[i] = kept.data() + places->offsets[i];
  if (llvm::Error error = execute(**plan, threads, state))
    return error;
  for (size_t i = 0; i < buffers.size(); ++i)
    if (constants.isKept[i]) {
      buffers[i].kind = BufferKind::Constant;
      buffers[i].data = kept.data() + places->offsets[i];
    }
  // What they laid out of their weights nobody reads again.
  plan->reset();
  for (size_t i = 0; i < spec.steps.size(); ++i)
    if (constants.isOnce[i]) {
      weights[i].clear();
      panels[i].buffers.clear();
    }
  hasConstants = true;
  return llvm::Error::success();
}

llvm::Expected<std::shared_ptr<ShapePlan>>
Executable::Impl::planFor(llvm::ArrayRef<int64_t> symbols, unsigned threads) {
  // Planning under the lock: a second run of a new shape waits for the first
  // one's plan instead of making its own.
  std::lock_guard<std::mutex> lock(mutex);
  if (auto known = plans.find(symbols); known != plans.end())
    return known->second;
  SingleThreadedLibraries alone; // what is made now is run on one thread
  if (!hasConstants)
    if (llvm::Error error = computeConstants(symbols, threads))
      return std::move(error);
  llvm::Expected<std::unique_ptr<ShapePlan>> made = planShape(
      spec, {buffers, constants.isOnce, /*areOnce=*/false, constants.isKept},
      symbols, weights, panels);
  if (!made)
    return made.takeError();
  if (plans.size() >= kMaxPlans)
    plans.clear();
  std::shared_ptr<ShapePlan> plan = std::move(*made);
  plans[symbols.vec()] = plan;
  ++shapesSeen;
  largestArena = std::max(largestArena, plan->arenaBytes);
  return plan;
}

std::unique_ptr<RunState> Executable::Impl::takeState() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!idle.empty()) {
      std::unique_ptr<RunState> state = std::move(idle.back());
      idle.pop_back();
      return state;
    }
  }
  auto state = std::make_unique<RunState>();
  state->addresses.resize(spec.buffers.size());
  state->symbols.reserve(spec.numSymbols);
  return state;
}

void Executable::Impl::giveBack(std::unique_ptr<RunState> state) {
  std::lock_guard<std::mutex> lock(mutex);
  idle.push_back(std::move(state));
}

llvm::Error Executable::Impl::checkOutputs(llvm::ArrayRef<Tensor> outputs,
                                           const ShapePlan &plan) const {
  if (outputs.size() != spec.outputs.size())
    return fail(ExitCode::Model,
                llvm::Twine(unsigned(outputs.size())) +
                    " results were given room, expected " +
                    llvm::Twine(unsigned(spec.outputs.size())));
  for (auto [i, output] : llvm::enumerate(spec.outputs)) {
    const Tensor &tensor = outputs[i];
    if (tensor.dtype() != output.dtype ||
        tensor.shape() != llvm::ArrayRef<int64_t>(plan.outputShapes[i]))
      return fail(ExitCode::Model, "result '" + output.name + "' is " +
                                       describe(tensor) +
                                       ", expected another shape or type");
  }
  return llvm::Error::success();
}

/// Room for what a run has of its own; false where memory is short.
bool Executable::Impl::reserve(const ShapePlan &plan, unsigned threads,
                               RunState &state) const {
  if (!state.arena.reserve(spec.remote ? 0 : plan.arenaBytes) ||
      !state.shared.reserve(plan.sharedBytes) ||
      !state.privates.reserve(threads * roundedUp(plan.privateBytes)))
    return false;
  if (state.words.size() < threads * plan.maxWords)
    state.words.resize(threads * plan.maxWords);
  return true;
}

/// Where everything but inputs and outputs lies.
void Executable::Impl::placeBuffers(llvm::ArrayRef<BufferSpec> placed,
                                    const ShapePlan &plan,
                                    RunState &state) const {
  for (auto [i, buffer] : llvm::enumerate(placed)) {
    if (buffer.kind == BufferKind::Constant)
      state.addresses[i] =
          const_cast<char *>(static_cast<const char *>(buffer.data));
    else if (buffer.kind == BufferKind::Temporary && plan.arenaOffsets[i] >= 0)
      state.addresses[i] = state.arena.data() + plan.arenaOffsets[i];
  }
}

llvm::Error Executable::Impl::bind(const Bindings &bindings,
                                   const ShapePlan &plan, unsigned threads,
                                   RunState &state) const {
  size_t staged = 0;
  for (const Tensor &tensor : bindings.inputs)
    staged += tensor.isRowMajor() ? 0 : roundedUp(tensor.numBytes());
  for (const Tensor &tensor : bindings.outputs)
    staged += tensor.isRowMajor() ? 0 : roundedUp(tensor.numBytes());
  if (!state.staging.reserve(staged) || !reserve(plan, threads, state))
    return noMemory();

  size_t at = 0;
  auto place = [&](const Tensor &tensor, bool isCopied) {
    if (tensor.isRowMajor())
      return static_cast<char *>(tensor.data());
    char *copy = state.staging.data() + at;
    at += roundedUp(tensor.numBytes());
    if (isCopied)
      copyStrided(byteWidth(tensor.dtype()), tensor.shape(),
                  static_cast<const char *>(tensor.data()), tensor.strides(),
                  copy, rowMajorStrides(tensor.shape()));
    return copy;
  };
  placeBuffers(buffers, plan, state);
  for (auto [i, buffer] : llvm::enumerate(spec.buffers)) {
    if (buffer.kind == BufferKind::Input)
      state.addresses[i] = place(bindings.inputs[buffer.port], true);
    else if (buffer.kind == BufferKind::Output)
      state.addresses[i] = place(bindings.outputs[buffer.port], false);
  }
  return llvm::Error::success();
}

static llvm::Error runKernel(const KernelCall &call, const ShapePlan &plan,
                             unsigned threads, RunState &state) {
  auto setMemref = [](int64_t *words, unsigned at, char *address) {
    words[at] = words[at + 1] = reinterpret_cast<intptr_t>(address);
  };
  size_t numWords = call.words.size();
  if (call.isSmall)
    threads = 1;
  size_t privateStride = size_t(plan.privateBytes + 63) & ~size_t(63);
  for (unsigned thread = 0; thread < threads; ++thread) {
    int64_t *words = state.words.data() + thread * plan.maxWords;
    std::memcpy(words, call.words.data(), numWords * sizeof(int64_t));
    for (const KernelCall::Address &address : call.addresses)
      setMemref(words, address.word,
                state.addresses[address.buffer] + address.byteOffset);
    setMemref(words, call.sharedAt,
              call.panels ? call.panels : state.shared.data());
    setMemref(words, call.privateAt,
              state.privates.data() + thread * privateStride);
  }
  if (call.kernel->launch)
    return call.kernel->launch(state.words.data());
  // The last phase has items in every round.
  for (int64_t first = 0, round = 0; first < call.items.back();
       first += call.itemsAtOnce.back(), ++round)
    for (unsigned phase = call.firstPhase; phase < call.items.size(); ++phase) {
      KernelFunction function = call.kernel->phases[phase];
      int64_t before = round * call.itemsAtOnce[phase];
      int64_t items =
          std::min(call.itemsAtOnce[phase], call.items[phase] - before);
      runInParallel(
          threads, items, [&](unsigned thread, int64_t begin, int64_t end) {
            int64_t *words = state.words.data() + thread * plan.maxWords;
            words[call.rangeAt] = before + begin;
            words[call.rangeAt + 1] = before + end;
            function(words, nullptr);
          });
    }
  return llvm::Error::success();
}

static llvm::Error runProduct(const ProductCall &call, const ShapePlan &plan,
                              unsigned threads, RunState &state) {
  ProductOperands operands;
  operands.lhs = state.addresses[call.lhs];
  operands.rhs = state.addresses[call.rhs];
  operands.result = state.addresses[call.result];
  operands.bias = call.bias
                      ? state.addresses[call.bias->first] + call.bias->second
                      : nullptr;
  size_t privateStride = size_t(plan.privateBytes + 63) & ~size_t(63);
  std::atomic<bool> isGood{true};
  runInParallel(
      threads, call.plan->numItems(),
      [&](unsigned thread, int64_t begin, int64_t end) {
        if (!call.plan->run(operands, begin, end,
                            state.privates.data() + thread * privateStride))
          isGood = false;
      });
  if (!isGood)
    return fail(ExitCode::Internal, "oneDNN failed to run a matrix product");
  return llvm::Error::success();
}

static llvm::Error checkFlags(const AssertCall &call, const RunState &state) {
  const char *base = state.addresses[call.flags.buffer] + call.flags.byteOffset;
  int64_t count = call.flags.numElements();
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0, rest = i;
    for (size_t d = call.flags.sizes.size(); d-- > 0;) {
      offset += rest % call.flags.sizes[d] * call.flags.strides[d];
      rest /= call.flags.sizes[d];
    }
    if (!base[offset])
      return fail(ExitCode::Model, *call.message);
  }
  return llvm::Error::success();
}

static llvm::Error runCall(const Call &call, const ShapePlan &plan,
                           unsigned threads, RunState &state) {
  if (auto *kernel = std::get_if<KernelCall>(&call))
    return runKernel(*kernel, plan, threads, state);
  if (auto *product = std::get_if<ProductCall>(&call))
    return runProduct(*product, plan, threads, state);
  if (auto *assertion = std::get_if<AssertCall>(&call))
    return checkFlags(*assertion, state);
  const CopyCall &copy = std::get<CopyCall>(call);
  copyStrided(byteWidth(copy.from.dtype), copy.from.sizes,
              state.addresses[copy.from.buffer] + copy.from.byteOffset,
              copy.from.strides,
              state.addresses[copy.to.buffer] + copy.to.byteOffset,
              copy.to.strides);
  return llvm::Error::success();
}

llvm::Error Executable::Impl::execute(const ShapePlan &plan, unsigned threads,
                                      RunState &state) const {
  using Clock = std::chrono::steady_clock;
  for (auto [call, step] : llvm::zip_equal(plan.calls, plan.stepOfCall)) {
    Clock::time_point begin = observer ? Clock::now() : Clock::time_point();
    if (llvm::Error error = runCall(call, plan, threads, state))
      return error;
    if (observer)
      observer(step,
               std::chrono::duration<double, std::milli>(Clock::now() - begin)
                   .count());
  }
  return llvm::Error::success();
}

llvm::Error Executable::Impl::executeRemotely(llvm::ArrayRef<Tensor> inputs,
                                              RunState &state) const {
  std::vector<const void *> from(spec.inputs.size());
  std::vector<void *> to(spec.outputs.size());
  for (auto [buffer, address] :
       llvm::zip_equal(spec.buffers, state.addresses)) {
    if (buffer.kind == BufferKind::Input)
      from[buffer.port] = address;
    else if (buffer.kind == BufferKind::Output)
      to[buffer.port] = address;
  }
  return spec.remote->run(inputs, from, to);
}

void Executable::Impl::storeOutputs(const Bindings &bindings,
                                    RunState &state) const {
  for (auto [i, buffer] : llvm::enumerate(spec.buffers)) {
    if (buffer.kind != BufferKind::Output)
      continue;
    Tensor &output = bindings.outputs[buffer.port];
    if (!output.isRowMajor())
      copyStrided(byteWidth(output.dtype()), output.shape(), state.addresses[i],
                  rowMajorStrides(output.shape()),
                  static_cast<char *>(output.data()), output.strides());
  }
}

Executable::Executable(ExecutableSpec spec)
    : impl(std::make_unique<Impl>(std::move(spec))) {
  limitProductLibrary(impl->spec.instructionSet);
}
Executable::~Executable() = default;
Executable::Executable(Executable &&) = default;
Executable &Executable::operator=(Executable &&) = default;

const ExecutableSpec &Executable::spec() const { return impl->spec; }

void Executable::observeSteps(StepObserver observer) {
  impl->observer = std::move(observer);
}

llvm::Expected<std::vector<Tensor>>
Executable::run(llvm::ArrayRef<Tensor> inputs, unsigned threads) {
  llvm::Expected<std::vector<llvm::SmallVector<int64_t, 4>>> shapes =
      impl->outputShapes(inputs, std::max(threads, 1u));
  if (!shapes)
    return shapes.takeError();
  std::vector<Tensor> outputs;
  for (auto [output, shape] : llvm::zip_equal(impl->spec.outputs, *shapes)) {
    llvm::Expected<Tensor> tensor = Tensor::create(output.dtype, shape);
    if (!tensor)
      return tensor.takeError();
    outputs.push_back(std::move(*tensor));
  }
  if (llvm::Error error = runInto(inputs, outputs, threads))
    return std::move(error);
  return std::move(outputs);
}

llvm::Error Executable::runInto(llvm::ArrayRef<Tensor> inputs,
                                llvm::MutableArrayRef<Tensor> outputs,
                                unsigned threads) {
  threads = std::max(threads, 1u);
  std::unique_ptr<RunState> state = impl->takeState();
  auto attempt = [&]() -> llvm::Error {
    if (llvm::Error error = impl->readSymbols(inputs, state->symbols))
      return error;
    llvm::Expected<std::shared_ptr<ShapePlan>> plan =
        impl->planFor(state->symbols, threads);
    if (!plan)
      return plan.takeError();
    if (llvm::Error error = impl->checkOutputs(outputs, **plan))
      return error;
    Bindings bindings{inputs, outputs};
    if (llvm::Error error = impl->bind(bindings, **plan, threads, *state))
      return error;
    if (llvm::Error error = impl->spec.remote
                                ? impl->executeRemotely(inputs, *state)
                                : impl->execute(**plan, threads, *state))
      return error;
    impl->storeOutputs(bindings, *state);
    return llvm::Error::success();
  };
  llvm::Error error = attempt();
  impl->giveBack(std::move(state));
  return error;
}

llvm::Expected<std::vector<llvm::SmallVector<int64_t, 4>>>
Executable::Impl::outputShapes(llvm::ArrayRef<Tensor> inputs,
                               unsigned threads) {
  std::vector<int64_t> symbols;
  if (llvm::Error error = readSymbols(inputs, symbols))
    return std::move(error);
  llvm::Expected<std::shared_ptr<ShapePlan>> plan = planFor(symbols, threads);
  if (!plan)
    return plan.takeError();
  return (*plan)->outputShapes;
}

llvm::Expected<std::vector<llvm::SmallVector<int64_t, 4>>>
Executable::outputShapes(llvm::ArrayRef<Tensor> inputs) {
  return impl->outputShapes(inputs, /*threads=*/1);
}

llvm::json::Object Executable::counters() const {
  int64_t calls = 0, products = 0, constantBytes = 0;
  for (const Step &step : impl->spec.steps) {
    calls += std::holds_alternative<KernelStep>(step.what);
    products += std::holds_alternative<ProductStep>(step.what);
  }
  for (const BufferSpec &buffer : impl->spec.buffers)
    if (buffer.kind == BufferKind::Constant)
      constantBytes += buffer.bytes.constant().value_or(0);
  std::lock_guard<std::mutex> lock(impl->mutex);
  return llvm::json::Object{{"kernels", int64_t(impl->spec.kernels.size())},
                            {"cached_kernels", impl->spec.cachedKernels},
                            {"kernel_calls", calls},
                            {"products", products},
                            {"steps", int64_t(impl->spec.steps.size())},
                            {"once_steps", int64_t(impl->constants.count)},
                            {"constant_bytes", constantBytes},
                            {"kept_bytes", impl->constants.keptBytes},
                            {"shapes", impl->shapesSeen},
                            {"arena_bytes", impl->largestArena}};
}
