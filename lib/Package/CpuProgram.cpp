// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Package/Cpu.h"

#include "PlanCache.h"
#include "refold/Package/ObjectCode.h"
#include "refold/Runtime/AlignedBuffer.h"
#include "refold/Runtime/MatrixTiles.h"
#include "refold/Runtime/ThreadPool.h"
#include <algorithm>
#include <sstream>

using namespace refold;
using namespace refold::package;

using KernelFunction = void (*)(const int64_t *words, int64_t *results);

namespace {
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
};

struct CpuPlan {
  std::shared_ptr<const RunPlan> plan;
  std::vector<CallShape> calls; ///< one a planned step
  static constexpr bool isPinned = false;
};

/// Words of a workspace: base, aligned base, offset, size, stride.
constexpr size_t kWorkspaceWords = 5;
} // namespace

struct CpuProgram::Impl {
  std::shared_ptr<const Package> package;
  unsigned threads = 1;
  std::vector<LoadedKernel> kernels;
  /// What is computed of constants alone, when the first plan is made.
  ConstantSteps constants;
  KeptPlaces places;
  bool hasConstants = false;
  PlanCache<CpuPlan> plans;
  AlignedBuffer kept, arena, shared, privates;
  int64_t privateStride = 0;
  std::vector<int64_t> words; ///< of every thread
  std::vector<char *> addresses;

  Problem load();
  Outcome<CpuPlan> makePlan(PlannedSteps which,
                            const std::vector<int64_t> &symbols);
  Problem computeConstants(const std::vector<int64_t> &symbols);
  void placeBuffers(const RunPlan &plan, std::span<const void *const> inputs,
                    std::span<void *const> outputs);
  Problem runSteps(const CpuPlan &kept);
  Problem shapeCalls(CpuPlan &made);
  Problem reserveFor(const CpuPlan &made);
  void runKernel(const PlannedKernel &kernel, const CallShape &call);
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
  constants = findConstantSteps(package->program);
  hasConstants = constants.count == 0;
  std::optional<KeptPlaces> found = placeKept(
      package->program, constants, int64_t(AlignedBuffer::kAlignment));
  if (!found)
    return problem(ExitCode::Limit,
                   "'" + package->name + "': the size of its arrays overflows");
  places = std::move(*found);
  return {};
}

Outcome<std::unique_ptr<CpuProgram>>
CpuProgram::open(std::shared_ptr<const Package> package, unsigned threads) {
  if (package->target != PackageTarget::Cpu)
    return problem(ExitCode::Usage, "'" + package->name +
                                        "' is made for a GPU, expected a "
                                        "package for the CPU");
  auto impl = std::make_unique<Impl>();
  impl->package = std::move(package);
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
    sharedBytes = std::max(sharedBytes, call.sharedBytes);
    privateBytes = std::max(privateBytes, call.privateBytes);
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

Outcome<CpuPlan>
CpuProgram::Impl::makePlan(PlannedSteps which,
                           const std::vector<int64_t> &symbols) {
  Outcome<std::unique_ptr<RunPlan>> plan =
      planRun(package->program, constants, which, symbols);
  if (!plan)
    return plan.error();
  CpuPlan made;
  made.plan = std::move(*plan);
  if (Problem error = shapeCalls(made))
    return error;
  if (Problem error = reserveFor(made))
    return error;
  return made;
}

/// Where a step fails nothing is kept, and the next plan tries again.
Problem
CpuProgram::Impl::computeConstants(const std::vector<int64_t> &symbols) {
  if (!kept.reserve(size_t(places.bytes)))
    return problem(ExitCode::Limit, "memory is short for what is computed of "
                                    "the weights of '" +
                                        package->name + "' alone");
  Outcome<CpuPlan> plan = makePlan(PlannedSteps::Once, symbols);
  if (!plan)
    return plan.error();
  placeBuffers(*plan->plan, {}, {});
  if (Problem error = runSteps(*plan))
    return error;
  hasConstants = true;
  return {};
}

Outcome<std::shared_ptr<const RunPlan>>
CpuProgram::planFor(const std::vector<std::vector<int64_t>> &inputShapes) {
  Outcome<std::vector<int64_t>> symbols =
      readSymbols(impl->package->program, inputShapes);
  if (!symbols)
    return symbols.error();
  if (CpuPlan *known = impl->plans.find(*symbols))
    return known->plan;
  Outcome<CpuPlan> made = impl->makePlan(PlannedSteps::Others, *symbols);
  if (!made)
    return made.error();
  if (!impl->hasConstants)
    if (Problem error = impl->computeConstants(*symbols))
      return error;
  return impl->plans.add(std::move(*made)).plan;
}

std::shared_ptr<const RunPlan> CpuProgram::keptPlan(uint64_t id) {
  CpuPlan *kept = impl->plans.find(id);
  return kept ? kept->plan : nullptr;
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

void CpuProgram::Impl::runKernel(const PlannedKernel &kernel,
                                 const CallShape &call) {
  size_t own = kernel.words.size(), rangeAt = call.words - 2;
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
    setWorkspace(own, shared.data(), call.sharedBytes);
    setWorkspace(own + kWorkspaceWords,
                 privates.data() + int64_t(thread) * privateStride,
                 call.privateBytes);
  }
  const LoadedKernel &loaded = kernels[kernel.kernel];
  // The last phase has items in every round.
  for (int64_t first = 0, round = 0; first < call.items.back();
       first += call.itemsAtOnce.back(), ++round)
    for (size_t phase = 0; phase < call.items.size(); ++phase) {
      int64_t before = round * call.itemsAtOnce[phase];
      int64_t items =
          std::min(call.itemsAtOnce[phase], call.items[phase] - before);
      runInParallel(threads, items,
                    [&](unsigned thread, int64_t begin, int64_t end) {
                      int64_t *own = words.data() + thread * call.words;
                      own[rangeAt] = before + begin;
                      own[rangeAt + 1] = before + end;
                      loaded.phases[phase](own, nullptr);
                    });
    }
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
      address = constants.isKept[i]
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
