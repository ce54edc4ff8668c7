// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Package/Cpu.h"

#include "FindOneDnn.h"
#include "ProgramPlans.h"
#include "refold/Package/ObjectCode.h"
#include "refold/Runtime/ConstantPanels.h"
#include "refold/Runtime/MatrixTiles.h"
#include "refold/Runtime/Product.h"
#include "refold/Runtime/ThreadPool.h"
#include "refold/Support/AlignedBuffer.h"
#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <sstream>

using namespace refold;
using namespace refold::package;

using KernelFunction = void (*)(const int64_t *words, int64_t *results);

namespace {
/// Constant operands of one step as its kernel lays them out.
struct Panels {
  AlignedBuffer bytes;
  bool areMade = false;
};

/// The functions of a kernel (docs/architecture.md, "Kernel ABI").
struct LoadedKernel {
  std::unique_ptr<ObjectCode> code;
  KernelFunction shape = nullptr;
  std::vector<KernelFunction> phases;
};

/// What a kernel step of a plan has beside its words.
struct CallShape {
  size_t words = 0; ///< with workspaces and range
  int64_t sharedBytes = 0, privateBytes = 0;
  std::vector<int64_t> items;       ///< of each phase
  std::vector<int64_t> itemsAtOnce; ///< of them, those of one round
  /// What the first `numPacks` phases leave, in place of a shared workspace:
  /// they run once, when the plan is made. Null: they run in every run.
  Panels *panels = nullptr;
  size_t numPacks = 0;
  std::unique_ptr<ProductPlan> product; ///< of a step that is none of a kernel
};

struct CpuPlan {
  std::shared_ptr<const RunPlan> plan;
  std::vector<CallShape> calls; ///< one a planned step
  static constexpr bool isPinned = false;
};

/// Words of a workspace: base, aligned base, offset, size, stride.
constexpr size_t kWorkspaceWords = 5;
} // namespace

struct CpuProgram::Impl : ProgramPlans<CpuPlan> {
  unsigned threads = 1;
  std::vector<LoadedKernel> kernels;
  /// By step and `panelKey`; at most `mostPanelBytes` of them.
  std::map<std::pair<size_t, std::vector<int64_t>>, Panels> panels;
  int64_t panelBytes = 0, mostPanelBytes = 0;
  std::vector<PackedWeights> weights;       ///< of products, one a step
  const onednn::Library *library = nullptr; ///< where products need it
  /// `kept` has what is computed of constants alone.
  AlignedBuffer kept, arena, shared, privates;
  int64_t privateStride = 0;
  std::vector<int64_t> words; ///< of every thread
  std::vector<char *> addresses;

  Problem load();
  Problem loadLibrary();
  Problem prepare(CpuPlan &made, PlannedSteps which) override;
  Problem reserveKept() override;
  Problem runOnce(CpuPlan &made) override;
  Problem finish(CpuPlan &made) override;
  void placeBuffers(const RunPlan &plan, std::span<const void *const> inputs,
                    std::span<void *const> outputs);
  Problem runSteps(const CpuPlan &kept);
  Problem shapeCalls(CpuPlan &made);
  Problem makeProducts(CpuPlan &made, PlannedSteps which);
  Problem keepPanels(CpuPlan &made);
  Problem reserveFor(const CpuPlan &made);
  void setWords(const PlannedKernel &kernel, const CallShape &call);
  void runPhase(const PlannedKernel &kernel, const CallShape &call,
                size_t phase, int64_t before, int64_t items);
  void runKernel(const PlannedKernel &kernel, const CallShape &call);
  Problem runProduct(const PlannedStep &step, const CallShape &call);
  Problem check(const PlannedCheck &check) const;
};

/// What the CPU lacks of "avx2,fma": the first name, or "".
static std::string lacks(const std::string &features) {
  __builtin_cpu_init();
  static const std::pair<const char *, bool> known[] = {
      {"sse4.2", __builtin_cpu_supports("sse4.2")},
      {"avx2", __builtin_cpu_supports("avx2")},
      {"fma", __builtin_cpu_supports("fma")},
      {"f16c", __builtin_cpu_supports("f16c")},
      {"avx512f", __builtin_cpu_supports("avx512f")},
      {"avx512bw", __builtin_cpu_supports("avx512bw")},
      {"avx512cd", __builtin_cpu_supports("avx512cd")},
      {"avx512dq", __builtin_cpu_supports("avx512dq")},
      {"avx512vl", __builtin_cpu_supports("avx512vl")},
      {"avx512vnni", __builtin_cpu_supports("avx512vnni")},
      {"avx512bf16", __builtin_cpu_supports("avx512bf16")}};
  std::stringstream list(features);
  for (std::string name; std::getline(list, name, ',');) {
    // The kernel is asked by those only that need it.
    bool isOfTiles =
        name == "amx-tile" || name == "amx-int8" || name == "amx-bf16";
    if (isOfTiles && mayUseMatrixTiles())
      continue;
    auto found = std::find_if(std::begin(known), std::end(known),
                              [&](auto &one) { return name == one.first; });
    if (found == std::end(known) || !found->second)
      return name;
  }
  return "";
}

Problem CpuProgram::Impl::load() {
  if (std::string missing = lacks(package->features); !missing.empty())
    return problem(ExitCode::Unsupported,
                   "'" + package->name + "' is made for " +
                       package->architecture + ", but this CPU lacks '" +
                       missing + "'");
  for (const HostKernel &kernel : package->hostKernels) {
    auto code = ObjectCode::load(kernel.object);
    if (!code)
      return code.error();
    LoadedKernel &loaded = kernels.emplace_back();
    loaded.code = std::move(*code);
    auto find = [&](const std::string &name) {
      return reinterpret_cast<KernelFunction>(
          loaded.code->find("kernel_" + name + "_words"));
    };
    loaded.shape = find("shape");
    bool isWhole = loaded.shape != nullptr;
    for (uint32_t phase = 0; phase < kernel.phases; ++phase) {
      loaded.phases.push_back(find("phase" + std::to_string(phase)));
      isWhole &= loaded.phases.back() != nullptr;
    }
    if (!isWhole)
      return problem(ExitCode::Model,
                     "'" + kernel.name + "' lacks functions of its kernel");
  }
  addresses.resize(package->program.buffers.size());
  weights = std::vector<PackedWeights>(package->program.steps.size());
  return loadLibrary();
}

/// Before anything runs, and only where a step needs it.
Problem CpuProgram::Impl::loadLibrary() {
  for (const Step &step : package->program.steps) {
    auto *product = std::get_if<ProductStep>(&step.what);
    if (!product || !needsProductLibrary(product->lhs.dtype, product->rhs.dtype,
                                         product->result.dtype))
      continue;
    Outcome<const onednn::Library *> found = oneDnn();
    if (!found)
      return problem(
          found.error().code,
          "'" + package->name + "': '" + step.name +
              "' is a matrix product by oneDNN: " + found.error().message);
    library = *found;
    return {};
  }
  return {};
}

/// A few times the constants, or a little: the bytes of a program's constants
/// as kernels lay them out. Shapes may lay out one constant in several ways.
static int64_t mostPanelBytesOf(const ProgramSpec &program) {
  int64_t bytes = 0;
  for (const BufferSpec &buffer : program.buffers)
    if (buffer.kind == BufferKind::Constant &&
        __builtin_add_overflow(bytes, buffer.bytes.constant().value_or(0),
                               &bytes))
      return std::numeric_limits<int64_t>::max();
  if (__builtin_mul_overflow(bytes, kMostGrowth, &bytes) ||
      __builtin_add_overflow(bytes, kMostFreeBytes, &bytes))
    return std::numeric_limits<int64_t>::max();
  return bytes;
}

Outcome<std::unique_ptr<CpuProgram>>
CpuProgram::open(std::shared_ptr<const Package> package, unsigned threads) {
  if (package->target != PackageTarget::Cpu)
    return problem(ExitCode::Usage, "'" + package->name +
                                        "' is made for a GPU, expected a "
                                        "package for the CPU");
  auto impl = std::make_unique<Impl>();
  if (Problem error = impl->findConstants(std::move(package),
                                          int64_t(AlignedBuffer::kAlignment)))
    return error;
  impl->mostPanelBytes = mostPanelBytesOf(impl->package->program);
  impl->threads = std::clamp(threads, 1u, ThreadPool::mostThreads());
  if (Problem error = impl->load())
    return error;
  return std::unique_ptr<CpuProgram>(new CpuProgram(std::move(impl)));
}

CpuProgram::CpuProgram(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
CpuProgram::~CpuProgram() = default;
const Package &CpuProgram::package() const { return *impl->package; }

/// Asks every kernel what it needs for its sizes.
Problem CpuProgram::Impl::shapeCalls(CpuPlan &made) {
  for (const PlannedStep &step : made.plan->steps) {
    CallShape &call = made.calls.emplace_back();
    auto *kernel = std::get_if<PlannedKernel>(&step.what);
    if (!kernel)
      continue;
    const LoadedKernel &loaded = kernels[kernel->kernel];
    size_t phases = loaded.phases.size();
    if (phases == 0)
      return problem(ExitCode::Model,
                     "'" + package->program.steps[step.step].name +
                         "': its kernel has no phases");
    std::vector<int64_t> answer(2 + 2 * phases);
    loaded.shape(kernel->words.data(), answer.data());
    if (std::any_of(answer.begin(), answer.end(),
                    [](int64_t value) { return value < 0; }))
      return problem(ExitCode::Limit,
                     "'" + package->program.steps[step.step].name +
                         "': a size overflows or is negative");
    call.words = kernel->words.size() + 2 * kWorkspaceWords + 2;
    call.sharedBytes = answer[0];
    call.privateBytes = answer[1];
    call.items.assign(answer.begin() + 2, answer.begin() + 2 + phases);
    call.itemsAtOnce.assign(answer.begin() + 2 + phases, answer.end());
    if (call.items.back() > 0 && call.itemsAtOnce.back() == 0)
      return problem(ExitCode::Model,
                     "'" + package->program.steps[step.step].name +
                         "': its kernel has empty rounds");
  }
  return {};
}

Problem CpuProgram::Impl::reserveFor(const CpuPlan &made) {
  int64_t sharedBytes = 0, privateBytes = 0;
  size_t mostWords = 0;
  for (const CallShape &call : made.calls) {
    if (!call.panels)
      sharedBytes = std::max(sharedBytes, call.sharedBytes);
    privateBytes =
        std::max({privateBytes, call.privateBytes,
                  call.product ? call.product->privateBytes() : int64_t(0)});
    mostWords = std::max(mostWords, call.words);
  }
  int64_t stride = std::max(privateStride, privateBytes), allPrivates = 0;
  bool isCounted = !__builtin_add_overflow(stride, 63, &stride);
  stride &= ~int64_t(63);
  if (!isCounted ||
      __builtin_mul_overflow(stride, int64_t(threads), &allPrivates) ||
      !arena.reserve(size_t(made.plan->arenaBytes)) ||
      !shared.reserve(size_t(sharedBytes)) ||
      !privates.reserve(size_t(allPrivates)))
    return problem(ExitCode::Limit, "memory is short for this shape");
  if (words.size() < mostWords * threads)
    words.resize(mostWords * threads);
  // Last: plans made before go on with the stride that they have room for.
  privateStride = stride;
  return {};
}

/// Memory for what is laid out once, as far as the bound allows: the rest is
/// laid out in every run.
Problem CpuProgram::Impl::keepPanels(CpuPlan &made) {
  const ProgramSpec &program = package->program;
  auto isConstant = [&](unsigned buffer) {
    return program.buffers[buffer].kind == BufferKind::Constant ||
           constantSteps.isKept[buffer];
  };
  for (size_t i = 0; i < made.calls.size(); ++i) {
    CallShape &call = made.calls[i];
    size_t at = made.plan->steps[i].step;
    auto *step = std::get_if<KernelStep>(&program.steps[at].what);
    if (!step || call.items != call.itemsAtOnce)
      continue;
    const HostKernel &kernel = package->hostKernels[step->kernel];
    if (!kernel.sharesOnlyPanels ||
        !packsConstants(kernel.packedOperands, *step, isConstant))
      continue;
    call.numPacks = kernel.packedOperands.size();
    auto [known, isNew] = panels.try_emplace(
        {at, panelKey(call.sharedBytes, call.items, call.numPacks)});
    if (isNew && call.sharedBytes > mostPanelBytes - panelBytes) {
      panels.erase(known);
      continue;
    }
    if (isNew && !known->second.bytes.reserve(size_t(call.sharedBytes))) {
      panels.erase(known);
      return problem(ExitCode::Limit, "memory is short for the weights of '" +
                                          program.steps[at].name + "'");
    }
    panelBytes += isNew ? call.sharedBytes : 0;
    call.panels = &known->second;
  }
  return {};
}

/// Products of the plan. Right sides that are constants are laid out: those
/// that are computed once have to be there.
Problem CpuProgram::Impl::makeProducts(CpuPlan &made, PlannedSteps which) {
  const ProgramSpec &program = package->program;
  for (size_t i = 0; i < made.calls.size(); ++i) {
    const PlannedStep &planned = made.plan->steps[i];
    auto *product = std::get_if<PlannedProduct>(&planned.what);
    if (!product)
      continue;
    auto &step = std::get<ProductStep>(program.steps[planned.step].what);
    unsigned rhs = product->rhs.buffer;
    ProductPlan::Options options;
    options.activation = step.activation;
    options.hasBias = product->bias.has_value();
    options.library = library;
    if (program.buffers[rhs].kind == BufferKind::Constant)
      options.constantRhs =
          static_cast<const char *>(program.buffers[rhs].data);
    else if (which == PlannedSteps::Others && constantSteps.isKept[rhs])
      options.constantRhs = kept.data() + places.offsets[rhs];
    std::string error;
    made.calls[i].product =
        ProductPlan::create(product->lhs, product->rhs, product->result,
                            options, weights[planned.step], error);
    if (!made.calls[i].product)
      return problem(ExitCode::Unsupported,
                     "'" + program.steps[planned.step].name + "': " + error);
  }
  return {};
}

Problem CpuProgram::Impl::prepare(CpuPlan &made, PlannedSteps which) {
  if (Problem error = shapeCalls(made))
    return error;
  if (Problem error = which == PlannedSteps::Others ? keepPanels(made)
                                                    : makeProducts(made, which))
    return error;
  return reserveFor(made);
}

Problem CpuProgram::Impl::reserveKept() {
  if (kept.reserve(size_t(places.bytes)))
    return {};
  return problem(ExitCode::Limit, "memory is short for what is computed of "
                                  "the weights of '" +
                                      package->name + "' alone");
}

Problem CpuProgram::Impl::runOnce(CpuPlan &made) {
  placeBuffers(*made.plan, {}, {});
  if (Problem error = runSteps(made))
    return error;
  // What they laid out of their weights nobody reads again.
  for (size_t i = 0; i < weights.size(); ++i)
    if (constantSteps.isOnce[i])
      weights[i].clear();
  return {};
}

/// Lays out what no plan before has.
Problem CpuProgram::Impl::finish(CpuPlan &made) {
  if (Problem error = makeProducts(made, PlannedSteps::Others))
    return error;
  if (Problem error = reserveFor(made))
    return error;
  placeBuffers(*made.plan, {}, {});
  for (size_t i = 0; i < made.calls.size(); ++i) {
    const CallShape &call = made.calls[i];
    if (!call.panels || call.panels->areMade)
      continue;
    auto &kernel = std::get<PlannedKernel>(made.plan->steps[i].what);
    setWords(kernel, call);
    for (size_t phase = 0; phase < call.numPacks; ++phase)
      runPhase(kernel, call, phase, 0, call.items[phase]);
    call.panels->areMade = true;
  }
  return {};
}

Outcome<std::shared_ptr<const RunPlan>>
CpuProgram::planFor(const std::vector<std::vector<int64_t>> &inputShapes) {
  return impl->planFor(inputShapes);
}

std::shared_ptr<const RunPlan> CpuProgram::keptPlan(uint64_t id) {
  return impl->keptPlan(id);
}

/// Sixteen chunks a thread, as they become free.
static void runInParallel(unsigned threads, int64_t items, auto body) {
  threads = unsigned(std::min<int64_t>(threads, items));
  ThreadPool::Slot *slot =
      threads > 1 ? ThreadPool::instance().takeSlot() : nullptr;
  if (!slot) {
    if (items > 0)
      body(0, int64_t(0), items);
    return;
  }
  int64_t chunk = std::max<int64_t>(1, items / (16 * int64_t(threads)));
  unsigned chunks = unsigned((items + chunk - 1) / chunk);
  ThreadPool::instance().run(
      *slot, threads, chunks, [&](unsigned thread, unsigned index) {
        int64_t first = int64_t(index) * chunk;
        body(thread, first, std::min(first + chunk, items));
      });
  ThreadPool::instance().giveBack(slot);
}

/// Of every thread, but for the range.
void CpuProgram::Impl::setWords(const PlannedKernel &kernel,
                                const CallShape &call) {
  size_t own = kernel.words.size();
  for (unsigned thread = 0; thread < threads; ++thread) {
    int64_t *to = words.data() + thread * call.words;
    std::copy(kernel.words.begin(), kernel.words.end(), to);
    auto setMemref = [&](size_t at, char *address) {
      to[at] = to[at + 1] = reinterpret_cast<intptr_t>(address);
    };
    for (const PlannedKernel::Address &address : kernel.addresses)
      setMemref(address.word, addresses[address.buffer] + address.byteOffset);
    auto setWorkspace = [&](size_t at, char *address, int64_t bytes) {
      setMemref(at, address);
      to[at + 2] = 0;
      to[at + 3] = bytes;
      to[at + 4] = 1;
    };
    setWorkspace(own, (call.panels ? call.panels->bytes : shared).data(),
                 call.sharedBytes);
    setWorkspace(own + kWorkspaceWords,
                 privates.data() + int64_t(thread) * privateStride,
                 call.privateBytes);
  }
}

/// Items [before, before + items) of it.
void CpuProgram::Impl::runPhase(const PlannedKernel &kernel,
                                const CallShape &call, size_t phase,
                                int64_t before, int64_t items) {
  KernelFunction function = kernels[kernel.kernel].phases[phase];
  size_t rangeAt = call.words - 2;
  runInParallel(threads, items,
                [&](unsigned thread, int64_t begin, int64_t end) {
                  int64_t *own = words.data() + thread * call.words;
                  own[rangeAt] = before + begin;
                  own[rangeAt + 1] = before + end;
                  function(own, nullptr);
                });
}

void CpuProgram::Impl::runKernel(const PlannedKernel &kernel,
                                 const CallShape &call) {
  setWords(kernel, call);
  size_t firstPhase = call.panels ? call.numPacks : 0;
  // The last phase has items in every round.
  for (int64_t first = 0, round = 0; first < call.items.back();
       first += call.itemsAtOnce.back(), ++round)
    for (size_t phase = firstPhase; phase < call.items.size(); ++phase) {
      int64_t before = round * call.itemsAtOnce[phase];
      runPhase(kernel, call, phase, before,
               std::min(call.itemsAtOnce[phase], call.items[phase] - before));
    }
}

Problem CpuProgram::Impl::runProduct(const PlannedStep &step,
                                     const CallShape &call) {
  auto &product = std::get<PlannedProduct>(step.what);
  ProductOperands operands;
  operands.lhs = addresses[product.lhs.buffer];
  operands.rhs = addresses[product.rhs.buffer];
  operands.result = addresses[product.result.buffer];
  operands.bias =
      product.bias ? addresses[product.bias->buffer] + product.bias->byteOffset
                   : nullptr;
  // Waking a thread takes as long as so many multiplications.
  constexpr int64_t kSmall = int64_t(1) << 18;
  int64_t multiplications = 0;
  bool isSmall =
      !__builtin_mul_overflow(product.lhs.numElements(),
                              product.rhs.sizes.back(), &multiplications) &&
      multiplications < kSmall;
  std::atomic<bool> isGood{true};
  runInParallel(isSmall ? 1 : threads, call.product->numItems(),
                [&](unsigned thread, int64_t begin, int64_t end) {
                  char *workspace =
                      privates.data() + int64_t(thread) * privateStride;
                  if (!call.product->run(operands, begin, end, workspace))
                    isGood = false;
                });
  if (isGood)
    return {};
  return problem(ExitCode::Internal,
                 "'" + package->program.steps[step.step].name +
                     "': oneDNN failed to run a matrix product");
}

Problem CpuProgram::Impl::check(const PlannedCheck &check) const {
  const View &flags = check.flags;
  const char *base = addresses[flags.buffer] + flags.byteOffset;
  int64_t count = flags.numElements();
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = 0, rest = i;
    for (size_t d = flags.sizes.size(); d-- > 0;) {
      at += rest % flags.sizes[d] * flags.strides[d];
      rest /= flags.sizes[d];
    }
    if (!base[at])
      return problem(ExitCode::Model, *check.message);
  }
  return {};
}

/// Inputs and outputs of none are not named by the steps that are done once.
void CpuProgram::Impl::placeBuffers(const RunPlan &plan,
                                    std::span<const void *const> inputs,
                                    std::span<void *const> outputs) {
  const std::vector<BufferSpec> &buffers = package->program.buffers;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const void *address = nullptr;
    switch (buffers[i].kind) {
    case BufferKind::Input:
      address = inputs.empty() ? nullptr : inputs[buffers[i].port];
      break;
    case BufferKind::Output:
      address = outputs.empty() ? nullptr : outputs[buffers[i].port];
      break;
    case BufferKind::Constant:
      address = buffers[i].data;
      break;
    case BufferKind::Temporary:
      address = constantSteps.isKept[i]
                    ? kept.data() + places.offsets[i]
                    : arena.data() + std::max<int64_t>(plan.arenaOffsets[i], 0);
      break;
    }
    addresses[i] = static_cast<char *>(
        const_cast<void *>(address)); // inputs are read only
  }
}

Problem CpuProgram::Impl::runSteps(const CpuPlan &known) {
  const RunPlan &plan = *known.plan;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const PlannedStep &step = plan.steps[i];
    if (auto *kernel = std::get_if<PlannedKernel>(&step.what)) {
      runKernel(*kernel, known.calls[i]);
    } else if (std::get_if<PlannedProduct>(&step.what)) {
      if (Problem error = runProduct(step, known.calls[i]))
        return error;
    } else if (auto *copy = std::get_if<PlannedCopy>(&step.what)) {
      copyStrided(byteWidth(copy->from.dtype), copy->from.sizes,
                  addresses[copy->from.buffer] + copy->from.byteOffset,
                  copy->from.strides,
                  addresses[copy->to.buffer] + copy->to.byteOffset,
                  copy->to.strides);
    } else if (Problem error = check(std::get<PlannedCheck>(step.what))) {
      return error;
    }
  }
  return {};
}

Problem CpuProgram::run(const RunPlan &plan,
                        std::span<const void *const> inputs,
                        std::span<void *const> outputs) {
  CpuPlan *known = impl->plans.find(plan.id);
  if (!known)
    return noLongerKept(impl->package->name);
  impl->placeBuffers(plan, inputs, outputs);
  return impl->runSteps(*known);
}
