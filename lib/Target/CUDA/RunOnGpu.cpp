// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Package/EntryText.h"
#include "refold/Package/Nvrtc.h"
#include "refold/Support/DiskCache.h"
#include "refold/Support/Error.h"
#include "refold/Target/CUDA/CompileCuda.h"
#include "llvm/Support/ThreadPool.h"
#include <map>

using namespace refold;

static llvm::Error asError(package::Problem problem) {
  return fail(problem.code, problem.message);
}

static const package::TextHeaders &headersOfTexts() {
  static const package::TextHeaders headers = [] {
    package::TextHeaders list;
    for (const auto &[name, text] : cudaHeaders())
      if (!name.contains("emulated"))
        list.emplace_back(name, text);
    return list;
  }();
  return headers;
}

/// The version of NVRTC. Where the cache knows it, it need not be loaded.
static llvm::Expected<std::string> versionOfNvrtc(const DiskCache *cache) {
  static std::mutex mutex;
  static std::string known;
  std::lock_guard<std::mutex> lock(mutex);
  if (!known.empty())
    return known;
  std::string key = "version of NVRTC\n" + package::Nvrtc::whereabouts();
  if (std::unique_ptr<llvm::MemoryBuffer> kept =
          cache ? cache->get(key) : nullptr)
    return known = kept->getBuffer().str();
  package::Outcome<const package::Nvrtc *> nvrtc = package::Nvrtc::find();
  if (!nvrtc)
    return asError(nvrtc.error());
  known = (*nvrtc)->version();
  if (cache)
    cache->put(key, known);
  return known;
}

/// All that the code depends on.
static std::string keyOf(const std::string &text,
                         const std::string &architecture,
                         const std::string &version) {
  std::string key = "cubin\n" + version + package::Nvrtc::optionsKey() + "\n" +
                    architecture + "\n";
  for (const auto &[name, header] : headersOfTexts())
    key += name + "\n" + header;
  return key + text;
}

llvm::Expected<std::string> refold::makeCubin(llvm::StringRef name,
                                              const std::string &text,
                                              const std::string &architecture,
                                              const DiskCache *cache) {
  llvm::Expected<std::string> version = versionOfNvrtc(cache);
  if (!version)
    return version.takeError();
  std::string key = keyOf(text, architecture, *version);
  // Forms of a program that differ elsewhere have equal kernels. Who asks for
  // code that somebody makes waits for it.
  struct Made {
    std::mutex mutex;
    std::string code; ///< empty: not yet
  };
  static std::mutex mutex;
  static std::map<std::string, Made> known;
  Made *made = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex);
    made = &known[key];
  }
  std::lock_guard<std::mutex> lock(made->mutex);
  if (!made->code.empty())
    return made->code;
  if (std::unique_ptr<llvm::MemoryBuffer> kept =
          cache ? cache->get(key) : nullptr) {
    made->code = kept->getBuffer().str();
    return made->code;
  }
  package::Outcome<const package::Nvrtc *> nvrtc = package::Nvrtc::find();
  if (!nvrtc)
    return asError(nvrtc.error());
  package::Outcome<std::string> compiled =
      (*nvrtc)->compile(name.str(), text, headersOfTexts(), architecture);
  if (!compiled)
    return asError(compiled.error());
  made->code = std::move(*compiled);
  if (cache)
    cache->put(key, made->code);
  return made->code;
}

llvm::Error refold::makeCubins(package::Package &package,
                               const std::string &architecture,
                               const DiskCache *cache) {
  size_t count = package.deviceKernels.size();
  auto codes = std::make_shared<std::vector<std::string>>(count);
  std::vector<package::Problem> problems(count);
  {
    llvm::DefaultThreadPool threads;
    for (size_t i = 0; i < count; ++i)
      threads.async([&, i] {
        const package::DeviceKernel &kernel = package.deviceKernels[i];
        auto code = makeCubin(kernel.name, kernel.text, architecture, cache);
        if (code)
          (*codes)[i] = std::move(*code);
        else
          problems[i].code = takeError(code.takeError(), problems[i].message);
      });
  }
  for (package::Problem &problem : problems)
    if (problem)
      return asError(std::move(problem));
  for (auto [kernel, code] : llvm::zip_equal(package.deviceKernels, *codes))
    kernel.cubin = code;
  package.architecture = architecture;
  package.owner = std::move(codes);
  return llvm::Error::success();
}

/// All that the time of a launch depends on.
static std::string keyOfChoice(const package::LaunchOfShape &of,
                               const package::GpuFacts &gpu) {
  std::string key = "launch choice\n" + gpu.name + "\n" + gpu.architecture() +
                    "\n" + std::to_string(gpu.driverVersion) + "\n" +
                    std::to_string(of.launch);
  for (int64_t word : of.words)
    key += " " + std::to_string(word);
  for (const auto &[name, header] : headersOfTexts())
    key += "\n" + name + "\n" + header;
  return key + "\n" + of.kernel.text;
}

static std::optional<package::LaunchChoice>
keptChoice(const DiskCache &cache, const package::LaunchOfShape &of,
           const package::GpuFacts &gpu) {
  std::unique_ptr<llvm::MemoryBuffer> kept = cache.get(keyOfChoice(of, gpu));
  if (!kept)
    return std::nullopt;
  auto [blocks, entry] = kept->getBuffer().split(' ');
  package::LaunchChoice choice;
  choice.entry = entry.str();
  if (entry.empty() || blocks.getAsInteger(10, choice.blocks))
    return std::nullopt;
  return choice;
}

llvm::Expected<package::CudaProgram *> GpuProgram::open() {
  if (program)
    return program.get();
  package::CudaProgram::Options options;
  if (usesTuned && cache) {
    package::Outcome<package::GpuFacts> gpu = package::findGpu();
    if (!gpu)
      return asError(gpu.error());
    options.findChoice = [this, gpu = *gpu](const package::LaunchOfShape &of) {
      return keptChoice(*cache, of, gpu);
    };
  }
  options.compile =
      [this](const package::DeviceKernel &kernel, const std::string &entry,
             const std::string &architecture) -> package::Outcome<std::string> {
    auto code = makeCubin(entry, package::textOfEntry(kernel.text, entry),
                          architecture, cache);
    if (code)
      return std::move(*code);
    std::string message;
    ExitCode exit = takeError(code.takeError(), message);
    return package::problem(exit, message);
  };
  auto opened = package::CudaProgram::open(package, options);
  if (!opened)
    return asError(opened.error());
  program = std::move(*opened);
  return program.get();
}

llvm::Expected<std::vector<package::TunedLaunch>>
GpuProgram::tune(const package::RunPlan &plan,
                 std::span<const package::DeviceAddress> inputs,
                 std::span<const package::DeviceAddress> outputs,
                 const package::TuneOptions &options) {
  auto opened = open();
  if (!opened)
    return opened.takeError();
  auto found = (*opened)->tune(plan, inputs, outputs, options);
  if (!found)
    return asError(found.error());
  for (const package::TunedLaunch &one : *found)
    if (cache && !one.wasKept)
      cache->put(keyOfChoice({package->deviceKernels[one.kernel], one.launch,
                              one.words},
                             (*opened)->gpu()),
                 std::to_string(one.choice.blocks) + " " + one.choice.entry);
  return std::move(*found);
}

llvm::Expected<std::vector<package::TunedLaunch>>
GpuProgram::tune(llvm::ArrayRef<Tensor> inputs,
                 const package::TuneOptions &options) {
  std::lock_guard<std::mutex> lock(mutex);
  auto opened = open();
  if (!opened)
    return opened.takeError();
  std::vector<std::vector<int64_t>> shapes;
  for (const Tensor &input : inputs)
    shapes.push_back(input.shape().vec());
  auto plan = (*opened)->planFor(shapes);
  if (!plan)
    return asError(plan.error());
  auto places = (*opened)->stage(**plan);
  if (!places)
    return asError(places.error());
  for (auto [place, input] : llvm::zip(*places, inputs))
    if (package::Problem problem =
            (*opened)->upload(place, input.data(), input.numBytes()))
      return asError(problem);
  std::span<const package::DeviceAddress> all(*places);
  return tune(**plan, all.first(inputs.size()), all.subspan(inputs.size()),
              options);
}

llvm::Error GpuProgram::run(llvm::ArrayRef<Tensor> inputs,
                            llvm::ArrayRef<const void *> from,
                            llvm::ArrayRef<void *> to) {
  std::lock_guard<std::mutex> lock(mutex);
  auto opened = open();
  if (!opened)
    return opened.takeError();
  std::vector<std::vector<int64_t>> shapes;
  for (const Tensor &input : inputs)
    shapes.push_back(input.shape().vec());
  auto plan = (*opened)->planFor(shapes);
  if (!plan)
    return asError(plan.error());
  if (package::Problem problem = (*opened)->run(**plan, from, to))
    return asError(std::move(problem));
  return llvm::Error::success();
}
