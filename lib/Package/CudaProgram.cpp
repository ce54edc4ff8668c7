// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CudaProgram.h"

#include <algorithm>
#include <cstring>

using namespace refold;
using namespace refold::package;

DeviceMemory::~DeviceMemory() {
  if (address)
    driver.cuMemFree_v2(address);
}

Problem DeviceMemory::reserve(int64_t wanted, const GpuFacts &gpu,
                              const char *what) {
  if (wanted <= bytes)
    return {};
  if (address)
    driver.cuMemFree_v2(address);
  address = 0;
  bytes = 0;
  CuResult error = driver.cuMemAlloc_v2(&address, size_t(wanted));
  if (error) {
    address = 0;
    return problem(error == kCudaOutOfMemory ? ExitCode::Limit
                                             : ExitCode::Internal,
                   "found no " + std::to_string(wanted) + " bytes for " + what +
                       " on the GPU '" + gpu.name + "', which has " +
                       std::to_string(gpu.memoryBytes) + ": " +
                       driver.describe("cuMemAlloc", error));
  }
  bytes = wanted;
  return {};
}

CudaProgram::Impl::~Impl() {
  if (!context)
    return;
  {
    CurrentContext current(*this);
    if (stream) {
      driver.cuStreamSynchronize(stream);
      driver.cuStreamDestroy_v2(stream);
    }
    for (LoadedKernel &kernel : kernels)
      if (kernel.module)
        driver.cuModuleUnload(kernel.module);
    for (DeviceMemory *memory : {&constants, &arena, &workspace, &staging})
      memory->release();
  }
  driver.cuDevicePrimaryCtxRelease_v2(device);
}

Problem CudaProgram::Impl::failed(const char *call, CuResult error) const {
  return problem(error == kCudaOutOfMemory ? ExitCode::Limit
                                           : ExitCode::Internal,
                 "'" + package->name + "' on the GPU '" + gpu.name +
                     "': " + driver.describe(call, error));
}

/// What went wrong in a kernel is known when the host waits, and by no name.
Problem CudaProgram::Impl::synchronize() {
  CuResult error = driver.cuStreamSynchronize(stream);
  if (!error)
    return {};
  std::string names;
  for (const DeviceKernel &kernel : package->deviceKernels)
    names += (names.empty() ? "'" : ", '") + kernel.name + "'";
  return problem(ExitCode::Internal,
                 "a kernel of '" + package->name + "' (" + names +
                     ") stopped the GPU '" + gpu.name +
                     "': " + driver.describe("cuStreamSynchronize", error));
}

/// The code of a kernel: from the package where it fits this GPU, else made of
/// the text.
Problem CudaProgram::Impl::loadModule(const DeviceKernel &kernel,
                                      const Options &options,
                                      LoadedKernel &loaded) {
  std::string made;
  std::string_view image = kernel.cubin;
  if (image.empty() || !runsOn(package->architecture, gpu)) {
    bool mayCompile = !kernel.text.empty() && options.compile &&
                      (package->textTarget == "cuda-sm80" ||
                       package->textTarget == gpu.textTarget());
    if (!mayCompile)
      return problem(
          ExitCode::Unsupported,
          "'" + package->name + "' is made for " +
              (image.empty() ? package->textTarget : package->architecture) +
              ", found the GPU '" + gpu.name + "' of compute capability " +
              std::to_string(gpu.major) + "." + std::to_string(gpu.minor));
    Outcome<std::string> compiled = options.compile(kernel, gpu.architecture());
    if (!compiled)
      return compiled.error();
    made = std::move(*compiled);
    image = made;
  }
  // The driver reads the length out of the image; a copy is aligned for it.
  std::vector<uint64_t> aligned((image.size() + 15) / 8);
  std::memcpy(aligned.data(), image.data(), image.size());
  CuResult error = driver.cuModuleLoadData(&loaded.module, aligned.data());
  if (error) {
    loaded.module = nullptr;
    return failed(("cuModuleLoadData of '" + kernel.name + "'").c_str(), error);
  }
  for (const Launch &launch : kernel.launches)
    for (const LaunchWay &way : launch.ways) {
      CuFunction function = nullptr;
      error = driver.cuModuleGetFunction(&function, loaded.module,
                                         way.entry.c_str());
      if (error)
        return failed(("cuModuleGetFunction of '" + way.entry + "'").c_str(),
                      error);
      loaded.entries.push_back({function, kSharedBytesWithoutAsking});
    }
  return {};
}

Problem CudaProgram::Impl::uploadConstants() {
  const std::vector<BufferSpec> &buffers = package->program.buffers;
  constantsAt.assign(buffers.size(), 0);
  int64_t total = 0;
  std::vector<std::pair<size_t, int64_t>> places;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].kind != BufferKind::Constant)
      continue;
    places.push_back({i, total});
    total += (buffers[i].bytes.constant().value_or(0) + 255) & ~int64_t(255);
  }
  if (Problem error = constants.reserve(total, gpu, "weights"))
    return error;
  for (auto [i, offset] : places) {
    constantsAt[i] = constants.address + uint64_t(offset);
    size_t bytes = size_t(buffers[i].bytes.constant().value_or(0));
    CuResult error = bytes ? driver.cuMemcpyHtoDAsync_v2(
                                 constantsAt[i], buffers[i].data, bytes, stream)
                           : kCudaSuccess;
    if (error)
      return failed("cuMemcpyHtoDAsync", error);
  }
  return synchronize();
}

Problem CudaProgram::Impl::start(const Options &options) {
  CuResult error = driver.cuDevicePrimaryCtxRetain(&context, device);
  if (error) {
    context = nullptr;
    return failed("cuDevicePrimaryCtxRetain", error);
  }
  CurrentContext current(*this);
  if ((error = driver.cuStreamCreate(&stream, kStreamNonBlocking))) {
    stream = nullptr;
    return failed("cuStreamCreate", error);
  }
  for (const DeviceKernel &kernel : package->deviceKernels) {
    LoadedKernel &loaded = kernels.emplace_back();
    if (Problem problem = loadModule(kernel, options, loaded))
      return problem;
  }
  return uploadConstants();
}

Outcome<std::unique_ptr<CudaProgram>>
CudaProgram::open(std::shared_ptr<const Package> package,
                  const Options &options) {
  if (package->target != PackageTarget::Cuda)
    return problem(ExitCode::Usage, "'" + package->name +
                                        "' is made for the CPU, expected a "
                                        "package for GPUs");
  auto found = findDevice(options.ordinal);
  if (!found)
    return found.error();
  auto impl =
      std::make_unique<Impl>(**cudaDriver(), found->first, found->second);
  impl->package = std::move(package);
  if (Problem error = impl->start(options))
    return error;
  return std::unique_ptr<CudaProgram>(new CudaProgram(std::move(impl)));
}

CudaProgram::CudaProgram(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
CudaProgram::~CudaProgram() = default;
const Package &CudaProgram::package() const { return *impl->package; }
const GpuFacts &CudaProgram::gpu() const { return impl->gpu; }

Outcome<const RunPlan *>
CudaProgram::planFor(const std::vector<std::vector<int64_t>> &inputShapes) {
  Outcome<std::vector<int64_t>> symbols =
      readSymbols(impl->package->program, inputShapes);
  if (!symbols)
    return symbols.error();
  auto known = impl->plans.find(*symbols);
  if (known != impl->plans.end())
    return known->second.get();
  Outcome<std::unique_ptr<RunPlan>> plan =
      planRun(impl->package->program, *symbols);
  if (!plan)
    return plan.error();
  CurrentContext current(*impl);
  if (Problem error = impl->reserveFor(**plan))
    return error;
  if (impl->plans.size() >= Impl::kMostPlans)
    impl->plans.clear();
  auto &kept = impl->plans[*symbols];
  kept = std::move(*plan);
  return kept.get();
}

/// What steps need beside their arrays, and room for the words of a call.
Problem CudaProgram::Impl::reserveFor(const RunPlan &plan) {
  int64_t workspaceBytes = 0;
  size_t mostWords = kCopyWords;
  for (const PlannedStep &step : plan.steps) {
    auto *kernel = std::get_if<PlannedKernel>(&step.what);
    if (!kernel)
      continue;
    mostWords = std::max(mostWords, kernel->words.size() + 1);
    std::optional<int64_t> bytes =
        package->deviceKernels[kernel->kernel].workspaceBytes.evaluate(
            kernel->words);
    if (!bytes || *bytes < 0)
      return problem(ExitCode::Limit,
                     "'" + package->deviceKernels[kernel->kernel].name +
                         "': the size of its workspace overflows");
    workspaceBytes = std::max(workspaceBytes, *bytes);
  }
  words.reserve(std::max(words.capacity(), mostWords));
  addresses.resize(package->program.buffers.size());
  if (Problem error =
          arena.reserve(plan.arenaBytes, gpu, "intermediate arrays"))
    return error;
  return workspace.reserve(workspaceBytes, gpu, "workspaces");
}

const LaunchWay *CudaProgram::Impl::chooseWay(const Launch &launch) const {
  for (const LaunchWay &way : launch.ways)
    if (way.condition.evaluate(words).value_or(0))
      return &way;
  return nullptr;
}

/// Launches what `words` say.
Problem CudaProgram::Impl::launch(size_t number, CuStream on) {
  const DeviceKernel &kernel = package->deviceKernels[number];
  size_t firstEntry = 0;
  for (const Launch &one : kernel.launches) {
    const LaunchWay *way = chooseWay(one);
    if (!way)
      return problem(ExitCode::Unsupported,
                     "'" + kernel.name +
                         "': [cuda-not-tiles] found products or results that "
                         "no entry has room for, expected shorter ones");
    LoadedEntry &entry =
        kernels[number].entries[firstEntry + (way - one.ways.data())];
    if (Problem error = launchEntry(one, *way, entry, on))
      return error;
    firstEntry += one.ways.size();
  }
  return {};
}

Problem CudaProgram::Impl::launchEntry(const Launch &one, const LaunchWay &way,
                                       LoadedEntry &entry, CuStream on) {
  static constexpr int64_t kMostBlocks[] = {INT32_MAX, 65535, 65535};
  static constexpr int64_t kMostThreads[] = {1024, 1024, 64};
  unsigned grid[3], block[3];
  bool isEmpty = false;
  for (int d = 0; d < 3; ++d) {
    std::optional<int64_t> blocks = way.grid[d].evaluate(words),
                           threads = way.block[d].evaluate(words);
    if (!blocks || *blocks < 0 || *blocks > kMostBlocks[d] || !threads ||
        *threads < 1 || *threads > kMostThreads[d])
      return problem(ExitCode::Limit,
                     "'" + way.entry + "': found more blocks than a grid has");
    isEmpty |= *blocks == 0;
    grid[d] = unsigned(*blocks);
    block[d] = unsigned(*threads);
  }
  if (isEmpty)
    return {};
  std::optional<int64_t> shared = way.sharedBytes.evaluate(words);
  if (!shared || *shared < 0 || *shared > gpu.sharedBytesPerBlock)
    return problem(ExitCode::Limit,
                   "'" + way.entry +
                       "' needs more shared memory than the GPU '" + gpu.name +
                       "' has for a block");
  if (*shared > entry.sharedBytes) {
    if (CuResult error = driver.cuFuncSetAttribute(
            entry.function, kMaxDynamicSharedBytes, int(*shared)))
      return failed("cuFuncSetAttribute", error);
    entry.sharedBytes = *shared;
  }
  values.resize(one.parameters.size());
  cells.resize(one.parameters.size());
  for (size_t i = 0; i < values.size(); ++i) {
    std::optional<int64_t> value = one.parameters[i].evaluate(words);
    if (!value)
      return problem(ExitCode::Limit, "'" + way.entry + "': a size overflows");
    values[i] = *value;
    cells[i] = &values[i];
  }
  CuResult error = driver.cuLaunchKernel(
      entry.function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
      unsigned(*shared), on, cells.data(), nullptr);
  return error
             ? failed(("cuLaunchKernel of '" + way.entry + "'").c_str(), error)
             : Problem();
}

Problem CudaProgram::Impl::copy(const PlannedCopy &copy, CuStream on) {
  std::pmr::vector<int64_t> sizes(copy.from.sizes.begin(),
                                  copy.from.sizes.end()),
      from(copy.from.strides.begin(), copy.from.strides.end()),
      to(copy.to.strides.begin(), copy.to.strides.end());
  int64_t count = copy.from.numElements();
  if (count == 0)
    return {};
  mergeDims(sizes, from, to);
  DeviceAddress source = addresses[copy.from.buffer] + copy.from.byteOffset,
                target = addresses[copy.to.buffer] + copy.to.byteOffset;
  int64_t width = byteWidth(copy.from.dtype);
  if (sizes.empty() || (sizes.size() == 1 && from[0] == 1 && to[0] == 1)) {
    CuResult error =
        driver.cuMemcpyDtoDAsync_v2(target, source, size_t(count * width), on);
    return error ? failed("cuMemcpyDtoDAsync", error) : Problem();
  }
  if (sizes.size() > kCopyRank || package->copyKernel < 0)
    return problem(ExitCode::Unsupported,
                   "found a copy of an array with " +
                       std::to_string(sizes.size()) +
                       " dimensions that lie apart, expected at most " +
                       std::to_string(kCopyRank));
  words.assign({int64_t(source), int64_t(target), width, count});
  for (auto [dims, filler] : {std::pair(&sizes, 1), {&from, 0}, {&to, 0}}) {
    words.insert(words.end(), kCopyRank - dims->size(), filler);
    words.insert(words.end(), dims->begin(), dims->end());
  }
  return launch(size_t(package->copyKernel), on);
}

/// Waits, and looks at the bytes.
Problem CudaProgram::Impl::check(const PlannedCheck &check) {
  int64_t low = check.flags.byteOffset, high = low;
  int64_t count = check.flags.numElements();
  if (count == 0)
    return {};
  for (size_t d = 0; d < check.flags.sizes.size(); ++d) {
    int64_t reach = (check.flags.sizes[d] - 1) * check.flags.strides[d];
    (reach < 0 ? low : high) += reach;
  }
  flags.resize(size_t(high - low) + 1);
  if (CuResult error = driver.cuMemcpyDtoHAsync_v2(
          flags.data(), addresses[check.flags.buffer] + uint64_t(low),
          flags.size(), stream))
    return failed("cuMemcpyDtoHAsync", error);
  if (Problem error = synchronize())
    return error;
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = check.flags.byteOffset - low, rest = i;
    for (size_t d = check.flags.sizes.size(); d-- > 0;) {
      at += rest % check.flags.sizes[d] * check.flags.strides[d];
      rest /= check.flags.sizes[d];
    }
    if (!flags[size_t(at)])
      return problem(ExitCode::Model, *check.message);
  }
  return {};
}

Problem CudaProgram::Impl::runStep(const PlannedStep &step, CuStream on) {
  if (auto *copyStep = std::get_if<PlannedCopy>(&step.what))
    return copy(*copyStep, on);
  if (auto *checkStep = std::get_if<PlannedCheck>(&step.what))
    return check(*checkStep);
  const PlannedKernel &kernel = std::get<PlannedKernel>(step.what);
  words.assign(kernel.words.begin(), kernel.words.end());
  for (const PlannedKernel::Address &address : kernel.addresses)
    words[address.word] = words[address.word + 1] =
        int64_t(addresses[address.buffer]) + address.byteOffset;
  words.push_back(int64_t(workspace.address));
  return launch(kernel.kernel, on);
}

Problem
CudaProgram::Impl::runSteps(const RunPlan &plan,
                            std::span<const DeviceAddress> inputs,
                            std::span<const DeviceAddress> outputs, CuStream on,
                            const std::function<Problem(size_t)> &onStep) {
  const ProgramSpec &program = package->program;
  if (inputs.size() != program.inputs.size() ||
      outputs.size() != program.outputs.size())
    return problem(ExitCode::Model, "found another number of arrays than '" +
                                        package->name + "' has");
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const BufferSpec &buffer = program.buffers[i];
    switch (buffer.kind) {
    case BufferKind::Input:
      addresses[i] = inputs[buffer.port];
      break;
    case BufferKind::Output:
      addresses[i] = outputs[buffer.port];
      break;
    case BufferKind::Constant:
      addresses[i] = constantsAt[i];
      break;
    case BufferKind::Temporary:
      addresses[i] =
          arena.address + uint64_t(std::max<int64_t>(plan.arenaOffsets[i], 0));
      break;
    }
  }
  for (const PlannedStep &step : plan.steps) {
    if (onStep)
      if (Problem error = onStep(step.step))
        return error;
    if (Problem error = runStep(step, on))
      return error;
  }
  return onStep ? onStep(program.steps.size()) : Problem();
}

Problem CudaProgram::enqueue(const RunPlan &plan,
                             std::span<const DeviceAddress> inputs,
                             std::span<const DeviceAddress> outputs,
                             DeviceStream stream,
                             const std::function<Problem(size_t)> &onStep) {
  for (const PlannedStep &step : plan.steps)
    if (auto *check = std::get_if<PlannedCheck>(&step.what))
      return problem(ExitCode::Unsupported,
                     "'" + impl->package->name + "' checks its data ('" +
                         *check->message +
                         "'), expected a program that does not on a stream of "
                         "the caller");
  CurrentContext current(*impl);
  return impl->runSteps(plan, inputs, outputs, static_cast<CuStream>(stream),
                        onStep);
}

Outcome<std::vector<DeviceAddress>> CudaProgram::stage(const RunPlan &plan) {
  CurrentContext current(*impl);
  std::vector<DeviceAddress> places;
  int64_t total = 0;
  auto place = [&](DType dtype, const std::vector<int64_t> &shape) {
    places.push_back(uint64_t(total));
    total += (bytesOf(dtype, shape) + 255) & ~int64_t(255);
  };
  const ProgramSpec &program = impl->package->program;
  for (size_t i = 0; i < program.inputs.size(); ++i)
    place(program.inputs[i].dtype, plan.inputShapes[i]);
  for (size_t i = 0; i < program.outputs.size(); ++i)
    place(program.outputs[i].dtype, plan.outputShapes[i]);
  if (Problem error =
          impl->staging.reserve(total, impl->gpu, "inputs and outputs"))
    return error;
  for (DeviceAddress &one : places)
    one += impl->staging.address;
  return places;
}

Problem CudaProgram::upload(DeviceAddress to, const void *from, int64_t bytes) {
  CurrentContext current(*impl);
  if (bytes == 0)
    return {};
  CuResult error =
      impl->driver.cuMemcpyHtoDAsync_v2(to, from, size_t(bytes), impl->stream);
  return error ? impl->failed("cuMemcpyHtoDAsync", error) : impl->synchronize();
}

Problem CudaProgram::download(void *to, DeviceAddress from, int64_t bytes) {
  CurrentContext current(*impl);
  if (bytes == 0)
    return {};
  CuResult error =
      impl->driver.cuMemcpyDtoHAsync_v2(to, from, size_t(bytes), impl->stream);
  return error ? impl->failed("cuMemcpyDtoHAsync", error) : impl->synchronize();
}

Problem CudaProgram::repeat(DeviceAddress to, int64_t bytes,
                            const void *pattern, int64_t patternBytes) {
  int64_t done = std::min(bytes, patternBytes);
  if (Problem error = upload(to, pattern, done))
    return error;
  CurrentContext current(*impl);
  // What is there is doubled; a whole number of patterns at any time.
  while (done < bytes) {
    int64_t next = std::min(done, bytes - done);
    if (CuResult error = impl->driver.cuMemcpyDtoDAsync_v2(
            to + uint64_t(done), to, size_t(next), impl->stream))
      return impl->failed("cuMemcpyDtoDAsync", error);
    done += next;
  }
  return impl->synchronize();
}

Problem CudaProgram::run(const RunPlan &plan,
                         std::span<const void *const> inputs,
                         std::span<void *const> outputs) {
  Outcome<std::vector<DeviceAddress>> places = stage(plan);
  if (!places)
    return places.error();
  const ProgramSpec &program = impl->package->program;
  auto in = std::span(*places).first(program.inputs.size()),
       out = std::span(*places).subspan(program.inputs.size());
  for (size_t i = 0; i < in.size(); ++i)
    if (Problem error =
            upload(in[i], inputs[i],
                   bytesOf(program.inputs[i].dtype, plan.inputShapes[i])))
      return error;
  {
    CurrentContext current(*impl);
    if (Problem error = impl->runSteps(plan, in, out, impl->stream, nullptr))
      return error;
    if (Problem error = impl->synchronize())
      return error;
  }
  for (size_t i = 0; i < out.size(); ++i)
    if (Problem error =
            download(outputs[i], out[i],
                     bytesOf(program.outputs[i].dtype, plan.outputShapes[i])))
      return error;
  return {};
}
