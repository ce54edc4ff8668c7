// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a step of a plan asks of the driver.
#include "CudaProgram.h"

#include <algorithm>

using namespace refold;
using namespace refold::package;

/// What kernel `number` launches where `words` are as they are.
Problem CudaProgram::Impl::resolve(size_t number, Choices choices,
                                   std::vector<ResolvedLaunch> &launches) {
  const DeviceKernel &kernel = package->deviceKernels[number];
  size_t firstEntry = 0;
  sizes.start(kernel.sizes, words);
  launches.resize(kernel.launches.size());
  for (size_t i = 0; i < launches.size(); ++i) {
    const Launch &one = kernel.launches[i];
    const LaunchChoice *choice = choiceOf(choices, i);
    const LaunchWay *way = chooseWay(one, sizes, gpu, choice);
    if (!way)
      return problem(ExitCode::Unsupported,
                     "'" + kernel.name +
                         "': [cuda-not-tiles] found products or results that "
                         "no entry has room for, expected shorter ones");
    LoadedEntry &entry =
        kernels[number].entries[firstEntry + (way - one.ways.data())];
    if (Problem error =
            resolveEntry(kernel, one, *way, choice, entry, launches[i]))
      return error;
    firstEntry += one.ways.size();
  }
  return {};
}

/// Of a way whose blocks do many rows each as many as run at once. Of clusters
/// as many as find room: those of a second wave would begin when the others
/// have done all they have.
void CudaProgram::Impl::cutToRun(const LaunchWay &way, CuFunction function,
                                 WaySizes &launched) {
  int width = 0, clusters = 0;
  if (driver.cuFuncGetAttribute && driver.cuOccupancyMaxActiveClusters &&
      driver.cuFuncGetAttribute(&width, kRequiredClusterWidth, function) ==
          kCudaSuccess &&
      width > 1) {
    CuLaunchConfig config{
        {unsigned(launched.grid[0]), unsigned(launched.grid[1]),
         unsigned(launched.grid[2])},
        {unsigned(launched.block[0]), unsigned(launched.block[1]),
         unsigned(launched.block[2])},
        unsigned(launched.sharedBytes),
        nullptr,
        nullptr,
        0};
    if (driver.cuOccupancyMaxActiveClusters(&clusters, function, &config) !=
        kCudaSuccess)
      clusters = 0;
  }
  cutGrid(launched, way, gpu, width, clusters);
}

/// A grid without blocks launches nothing: its first extent is 0.
Problem CudaProgram::Impl::resolveEntry(const DeviceKernel &kernel,
                                        const Launch &one, const LaunchWay &way,
                                        const LaunchChoice *choice,
                                        LoadedEntry &entry,
                                        ResolvedLaunch &resolved) {
  resolved.launch = &one;
  resolved.way = &way;
  Outcome<WaySizes> found = sizesOf(way, sizes, gpu);
  if (!found)
    return found.error();
  WaySizes launched = *found;
  auto keep = [&] {
    for (size_t d = 0; d < 3; ++d) {
      resolved.grid[d] = unsigned(launched.grid[d]);
      resolved.block[d] = unsigned(launched.block[d]);
    }
    resolved.sharedBytes = unsigned(launched.sharedBytes);
  };
  keep();
  if (launched.isEmpty())
    return {};
  if (!entry.function)
    if (Problem error = loadMissing({{&kernel, &way, &entry}}))
      return error;
  resolved.function = entry.function;
  if (launched.sharedBytes > entry.sharedBytes) {
    if (CuResult error = driver.cuFuncSetAttribute(
            entry.function, kMaxDynamicSharedBytes, int(launched.sharedBytes)))
      return failed("cuFuncSetAttribute", error);
    entry.sharedBytes = launched.sharedBytes;
  }
  if (way.blocksPerUnit > 0) {
    cutToRun(way, entry.function, launched);
    keep();
  }
  if (choice && choice->blocks > 0 && choice->entry == way.entry) {
    setBlocks(launched, way, sizes, sizes[kernel.workspaceBytes].value_or(0),
              choice->blocks);
    keep();
  }
  return resolveValues(resolved);
}

/// What its parameters are, by `sizes`.
Problem CudaProgram::Impl::resolveValues(ResolvedLaunch &resolved) {
  const std::vector<SizeNumber> &parameters = resolved.launch->parameters;
  resolved.values.resize(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::optional<int64_t> value = sizes[parameters[i]];
    if (!value)
      return problem(ExitCode::Limit,
                     "'" + resolved.way->entry + "': a size overflows");
    resolved.values[i] = *value;
  }
  const LaunchWay &way = *resolved.way;
  resolved.maps.assign(way.maps.size(), {});
  for (size_t i = 0; i < way.maps.size(); ++i)
    if (Problem error = makeMap(way.maps[i], way.entry, resolved.maps[i]))
      return error;
  return {};
}

/// By `sizes`; what there is nothing of stays zeros, which nobody reads.
Problem CudaProgram::Impl::makeMap(const LaunchMap &map,
                                   const std::string &entry,
                                   CuTensorMap &made) {
  std::optional<MapValues> values = valuesOf(map, sizes);
  if (!values)
    return problem(ExitCode::Limit, "'" + entry + "': a size overflows");
  if (values->isEmpty())
    return {};
  if (!driver.cuTensorMapEncodeTiled)
    return problem(ExitCode::Unsupported,
                   "'" + entry +
                       "' copies by boxes: found a driver without "
                       "cuTensorMapEncodeTiled, expected one of CUDA 12.0 or "
                       "newer");
  constexpr size_t kMost = LaunchMap::kMostIndices + 1;
  constexpr unsigned kBoxBytes = 128;
  uint64_t extents[kMost] = {uint64_t(values->columns)}, strides[kMost];
  unsigned box[kMost] = {kBoxBytes, unsigned(values->boxRows), 1, 1, 1},
           apart[kMost] = {1, 1, 1, 1, 1};
  for (size_t i = 0; i + 1 < kMost; ++i) {
    extents[i + 1] = uint64_t(values->extents[i]);
    strides[i] = uint64_t(values->strides[i]);
  }
  CuResult error = driver.cuTensorMapEncodeTiled(
      &made, kMapOfBytes, unsigned(values->numIndices + 1),
      reinterpret_cast<void *>(uintptr_t(values->first)), extents, strides, box,
      apart, kMapInterleave, kMapSwizzle, kMapPromotion, kMapFill);
  return error ? failed(("cuTensorMapEncodeTiled of '" + entry + "'").c_str(),
                        error)
               : Problem();
}

/// The launches of a call, from those of one on arrays that begin alike where
/// there was one: to ask all conditions takes longer than a small kernel.
Problem CudaProgram::Impl::resolveAlike(const PlannedKernel &kernel,
                                        ResolvedStep &resolved,
                                        ResolvedStep::Call &call) {
  remainders.clear();
  for (const PlannedKernel::Address &address : kernel.addresses)
    remainders.push_back(words[address.word] % kAddressRemainder);
  const ResolvedStep::Call *like = resolved.callLike(remainders);
  if (like && like != &call)
    call.launches = like->launches;
  call.words.clear(); // not for these, should it fail
  if (like) {
    sizes.start(package->deviceKernels[kernel.kernel].sizes, words);
    for (ResolvedLaunch &one : call.launches)
      if (one.grid[0] > 0)
        if (Problem error = resolveValues(one))
          return error;
  } else if (Problem error =
                 resolve(kernel.kernel, resolved.choices, call.launches)) {
    return error;
  }
  call.remainders = remainders;
  call.words = words;
  return {};
}

Problem CudaProgram::Impl::launch(std::vector<ResolvedLaunch> &launches,
                                  CuStream on) {
  for (ResolvedLaunch &one : launches) {
    if (one.grid[0] == 0)
      continue;
    cells.resize(one.values.size());
    for (size_t i = 0; i < cells.size(); ++i)
      cells[i] = &one.values[i];
    if (!one.maps.empty())
      cells.push_back(one.maps.data());
    const unsigned *grid = one.grid, *block = one.block;
    CuResult error = kCudaSuccess;
    if (driver.hasEarlyLaunches && gpu.major >= 9) {
      CuLaunchAttribute isEarly;
      CuLaunchConfig config{{grid[0], grid[1], grid[2]},
                            {block[0], block[1], block[2]},
                            one.sharedBytes,
                            on,
                            &isEarly,
                            1};
      error =
          driver.cuLaunchKernelEx(&config, one.function, cells.data(), nullptr);
    } else {
      error = driver.cuLaunchKernel(one.function, grid[0], grid[1], grid[2],
                                    block[0], block[1], block[2],
                                    one.sharedBytes, on, cells.data(), nullptr);
    }
    if (error)
      return failed(("cuLaunchKernel of '" + one.way->entry + "'").c_str(),
                    error);
  }
  return {};
}

/// The product of `words`, by the library.
Problem CudaProgram::Impl::multiply(LibraryProduct &product, CuStream on) {
  LtStatus status =
      (*library)->run(product, words, libraryWorkspace.address, on);
  return status ? problem(ExitCode::Internal,
                          "'" + package->name + "' on the GPU '" + gpu.name +
                              "': " +
                              (*library)->describe("cublasLtMatmul", status))
                : Problem();
}

/// Launches what `words` say.
Problem CudaProgram::Impl::launchNow(size_t number, CuStream on) {
  if (Problem error = resolve(number, {}, launches))
    return error;
  return launch(launches, on);
}

Problem CudaProgram::Impl::copy(const PlannedCopy &copy, CuStream on) {
  Outcome<bool> takesKernel =
      setCopyWords(copy, addresses, package->copyKernel >= 0, words);
  if (!takesKernel)
    return takesKernel.error();
  if (*takesKernel)
    return launchNow(size_t(package->copyKernel), on);
  int64_t bytes = copy.from.numElements() * byteWidth(copy.from.dtype);
  if (bytes == 0)
    return {};
  CuResult error = driver.cuMemcpyDtoDAsync_v2(
      addresses[copy.to.buffer] + copy.to.byteOffset,
      addresses[copy.from.buffer] + copy.from.byteOffset, size_t(bytes), on);
  return error ? failed("cuMemcpyDtoDAsync", error) : Problem();
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

/// The words of the kernel that checks; false: there is nothing to look at.
Outcome<bool> CudaProgram::Impl::setCheckWords(const PlannedCheck &check,
                                               size_t step) {
  std::pmr::vector<int64_t> sizes(check.flags.sizes.begin(),
                                  check.flags.sizes.end()),
      strides(check.flags.strides.begin(), check.flags.strides.end()),
      same = strides;
  int64_t count = check.flags.numElements();
  if (count == 0)
    return false;
  mergeDims(sizes, strides, same);
  if (sizes.size() > kCopyRank)
    return problem(ExitCode::Unsupported,
                   "found checked data with " + std::to_string(sizes.size()) +
                       " dimensions that lie apart, expected at most " +
                       std::to_string(kCopyRank));
  words.assign({int64_t(addresses[check.flags.buffer]) + check.flags.byteOffset,
                int64_t(failedCheck.address), count, int64_t(step) + 1});
  for (auto [dims, filler] : {std::pair(&sizes, 1), {&strides, 0}}) {
    words.insert(words.end(), kCopyRank - dims->size(), filler);
    words.insert(words.end(), dims->begin(), dims->end());
  }
  return true;
}

/// The same without waiting: `CudaProgram::findFailedCheck` tells.
Problem CudaProgram::Impl::checkLater(const PlannedCheck &check, size_t step,
                                      CuStream on) {
  Outcome<bool> isAny = setCheckWords(check, step);
  if (!isAny)
    return isAny.error();
  return *isAny ? launchNow(size_t(package->checkKernel), on) : Problem();
}

Problem CudaProgram::Impl::runStep(CudaPlan &kept, const PlannedStep &step,
                                   ResolvedStep &resolved, CuStream on,
                                   bool checksLater) {
  if (auto *copyStep = std::get_if<PlannedCopy>(&step.what))
    return copy(*copyStep, on);
  if (auto *checkStep = std::get_if<PlannedCheck>(&step.what))
    return checksLater ? checkLater(*checkStep, step.step, on)
                       : check(*checkStep);
  const PlannedKernel &kernel = std::get<PlannedKernel>(step.what);
  setKernelWords(kernel, addresses, kept.workspace, tickets.address, words);
  resolved.wasMultiplied = resolved.product && resolved.product->takes(words);
  if (resolved.wasMultiplied)
    return multiply(*resolved.product, on);
  ResolvedStep::Call &call = resolved.callFor(words);
  if (call.words != words)
    if (Problem error = resolveAlike(kernel, resolved, call))
      return error;
  return launch(call.launches, on);
}

/// Where the arrays of a call are: none of inputs and outputs for the steps
/// that are done once.
void CudaProgram::Impl::placeBuffers(const CudaPlan &plan,
                                     std::span<const DeviceAddress> inputs,
                                     std::span<const DeviceAddress> outputs) {
  const std::vector<BufferSpec> &buffers = package->program.buffers;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const BufferSpec &buffer = buffers[i];
    switch (buffer.kind) {
    case BufferKind::Input:
      addresses[i] = inputs.empty() ? 0 : inputs[buffer.port];
      break;
    case BufferKind::Output:
      addresses[i] = outputs.empty() ? 0 : outputs[buffer.port];
      break;
    case BufferKind::Constant:
      addresses[i] = constantsAt[i];
      break;
    case BufferKind::Temporary:
      addresses[i] =
          constantSteps.isKept[i]
              ? keptArrays.address + uint64_t(places.offsets[i])
              : plan.arena +
                    uint64_t(std::max<int64_t>(plan.plan->arenaOffsets[i], 0));
      break;
    }
  }
}

/// All steps of a plan, on the arrays that `placeBuffers` placed.
Problem
CudaProgram::Impl::runPlaced(CudaPlan &kept, CuStream on,
                             const std::function<Problem(size_t)> &onStep,
                             bool checksLater) {
  const RunPlan &plan = *kept.plan;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const PlannedStep &step = plan.steps[i];
    if (onStep)
      if (Problem error = onStep(step.step))
        return error;
    if (Problem error = runStep(kept, step, kept.resolved[i], on, checksLater))
      return error;
  }
  return onStep ? onStep(package->program.steps.size()) : Problem();
}

Problem CudaProgram::Impl::runSteps(
    CudaPlan &kept, std::span<const DeviceAddress> inputs,
    std::span<const DeviceAddress> outputs, CuStream on,
    const std::function<Problem(size_t)> &onStep, bool checksLater) {
  const ProgramSpec &program = package->program;
  if (inputs.size() != program.inputs.size() ||
      outputs.size() != program.outputs.size())
    return problem(ExitCode::Model, "found another number of arrays than '" +
                                        package->name + "' has");
  placeBuffers(kept, inputs, outputs);
  return runPlaced(kept, on, onStep, checksLater);
}
