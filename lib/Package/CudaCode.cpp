// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Code of a program on a GPU: all of it from the package, or of entries as
// launches ask for them, made of the text.
#include "CudaProgram.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <thread>

using namespace refold;
using namespace refold::package;

Problem CudaProgram::Impl::loadModule(const std::string &name,
                                      std::string_view image,
                                      CuModule &module) {
  // The driver reads the length out of the image; a copy is aligned for it.
  std::vector<uint64_t> aligned((image.size() + 15) / 8);
  std::memcpy(aligned.data(), image.data(), image.size());
  if (CuResult error = driver.cuModuleLoadData(&module, aligned.data()))
    return failed(("cuModuleLoadData of '" + name + "'").c_str(), error);
  modules.push_back(module);
  return {};
}

Problem CudaProgram::Impl::findEntry(CuModule module, const LaunchWay &way,
                                     LoadedEntry &entry) {
  CuResult error =
      driver.cuModuleGetFunction(&entry.function, module, way.entry.c_str());
  if (!error)
    return {};
  entry.function = nullptr;
  return failed(("cuModuleGetFunction of '" + way.entry + "'").c_str(), error);
}

/// The code of a kernel from the package, where it fits this GPU; else it may
/// be made of the text later, or is refused.
Problem CudaProgram::Impl::loadKernel(const DeviceKernel &kernel,
                                      LoadedKernel &loaded) {
  forEachWay(kernel, [&](const LaunchWay &) { loaded.entries.emplace_back(); });
  std::string_view image = kernel.cubin;
  if (image.empty() || !runsOn(package->architecture, gpu)) {
    makesCode = true;
    bool mayCompile = !kernel.text.empty() && compile &&
                      (package->textTarget == "cuda-sm80" ||
                       package->textTarget == gpu.textTarget());
    return mayCompile ? Problem()
                      : problem(ExitCode::Unsupported,
                                "'" + package->name + "' is made for " +
                                    (image.empty() ? package->textTarget
                                                   : package->architecture) +
                                    ", found the GPU '" + gpu.name +
                                    "' of compute capability " +
                                    std::to_string(gpu.major) + "." +
                                    std::to_string(gpu.minor));
  }
  CuModule module = nullptr;
  if (Problem error = loadModule(kernel.name, image, module))
    return error;
  Problem problem;
  auto entry = loaded.entries.begin();
  forEachWay(kernel, [&](const LaunchWay &way) {
    if (!problem)
      problem = findEntry(module, way, *entry);
    ++entry;
  });
  return problem;
}

/// What kernel `number` launches where `words` are as they are, and has no code
/// yet. What is wrong with the words, the launch says.
void CudaProgram::Impl::noteMissing(size_t number, Choices choices,
                                    std::vector<MissingEntry> &missing) {
  const DeviceKernel &kernel = package->deviceKernels[number];
  LoadedEntry *first = kernels[number].entries.data();
  sizes.start(kernel.sizes, words);
  for (size_t i = 0; i < kernel.launches.size(); ++i) {
    const Launch &launch = kernel.launches[i];
    const LaunchWay *way = chooseWay(launch, sizes, gpu, choiceOf(choices, i));
    LoadedEntry *entry = way ? first + (way - launch.ways.data()) : nullptr;
    first += launch.ways.size();
    auto isThis = [&](const MissingEntry &one) { return one.entry == entry; };
    if (!entry || entry->function ||
        std::any_of(missing.begin(), missing.end(), isThis))
      continue;
    if (std::all_of(way->grid.begin(), way->grid.end(), [&](SizeNumber blocks) {
          return sizes[blocks].value_or(0) > 0;
        }))
      missing.push_back({&kernel, way, entry});
  }
}

/// Makes and loads their code, several at a time.
Problem
CudaProgram::Impl::loadMissing(const std::vector<MissingEntry> &missing) {
  constexpr size_t kMostThreads = 8;
  if (missing.empty())
    return {};
  if (isCapturing)
    return problem(ExitCode::Usage,
                   "'" + missing.front().way->entry +
                       "' has no code yet, which cannot be made while a graph "
                       "is captured, expected a launch on arrays at such "
                       "addresses before");
  std::vector<Outcome<std::string>> codes(missing.size(), std::string());
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i; (i = next++) < missing.size();)
      codes[i] = compile(*missing[i].kernel, missing[i].way->entry,
                         gpu.architecture());
  };
  size_t numThreads = std::min<size_t>(
      {missing.size(), std::thread::hardware_concurrency(), kMostThreads});
  std::vector<std::future<void>> others;
  for (size_t i = 1; i < numThreads; ++i)
    others.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void> &other : others)
    other.get();
  for (size_t i = 0; i < missing.size(); ++i) {
    if (!codes[i])
      return codes[i].error();
    const LaunchWay &way = *missing[i].way;
    CuModule module = nullptr;
    if (Problem error = loadModule(way.entry, *codes[i], module))
      return error;
    if (Problem error = findEntry(module, way, *missing[i].entry))
      return error;
  }
  return {};
}

/// What a plan launches on arrays of the caller at multiples of
/// `kAddressRemainder`.
Problem CudaProgram::Impl::loadEntriesOf(const CudaPlan &made) {
  if (!makesCode)
    return {};
  isCapturing = false;
  const std::vector<DeviceAddress> aligned(
      std::max(package->program.inputs.size(), package->program.outputs.size()),
      0);
  placeBuffers(made, aligned, aligned);
  std::vector<MissingEntry> missing;
  for (size_t i = 0; i < made.plan->steps.size(); ++i) {
    const PlannedStep &step = made.plan->steps[i];
    if (auto *copy = std::get_if<PlannedCopy>(&step.what)) {
      Outcome<bool> takesKernel =
          setCopyWords(*copy, addresses, package->copyKernel >= 0, words);
      if (takesKernel && *takesKernel)
        noteMissing(size_t(package->copyKernel), {}, missing);
    } else if (auto *check = std::get_if<PlannedCheck>(&step.what)) {
      if (package->checkKernel < 0)
        continue;
      Outcome<bool> isAny = setCheckWords(*check, step.step);
      if (isAny && *isAny)
        noteMissing(size_t(package->checkKernel), {}, missing);
    } else {
      const auto &kernel = std::get<PlannedKernel>(step.what);
      setKernelWords(kernel, addresses, made.workspace, tickets.address, words);
      const std::unique_ptr<LibraryProduct> &product = made.resolved[i].product;
      if (!product || !product->takes(words))
        noteMissing(kernel.kernel, made.resolved[i].choices, missing);
    }
  }
  return loadMissing(missing);
}
