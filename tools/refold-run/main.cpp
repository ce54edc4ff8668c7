// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs a package where there is no compiler.
#include "Npy.h"
#include "refold/Package/CompareArrays.h"
#include "refold/Package/Cpu.h"
#include "refold/Package/Cuda.h"
#include "refold/Package/EntryText.h"
#include "refold/Package/Nvrtc.h"
#include "refold/Package/TunedFile.h"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <unistd.h>

using namespace refold;
using namespace refold::package;

namespace {

constexpr const char *kUsage =
    "usage: refold-run PACKAGE [flags]\n\n"
    "  --input NAME=FILE.npy    one input (random)\n"
    "  --output NAME=FILE.npy   writes one output\n"
    "  --expect NAME=FILE.npy   compares one output, f64, with the file\n"
    "  --tolerance X            largest |y - expected| of the largest "
    "|expected| "
    "of a row (1e-5)\n"
    "  --shape DIM=EXTENT,...   extents of dimensions that no file gives\n"
    "  --weights FOLDER         of the files that the package leaves its "
    "weights in (where it says)\n"
    "  --threads N              of the CPU (1)\n"
    "  --gpu N                  number of the GPU (0)\n"
    "  --compile                lets NVRTC make code that the package lacks\n"
    "  --tune                   times other ways to launch each kernel of a "
    "GPU,\n"
    "                           and keeps which is the quickest\n"
    "  --tuned                  takes what was kept, and times nothing\n"
    "  --tuned-file FILE        where it is kept (PACKAGE.tuned)\n"
    "  --bench                  times runs\n";

struct Options {
  std::string package, weights;
  std::map<std::string, std::string> inputs, outputs, expected;
  std::map<std::string, int64_t> shape;
  double tolerance = 1e-5;
  unsigned threads = 1;
  int gpu = 0;
  std::string tunedFile;
  bool isBench = false, compiles = false, tunes = false, isTuned = false;
};

Problem usage(const std::string &what) {
  return problem(ExitCode::Usage, what + "; see refold-run --help");
}

bool parseNumber(const std::string &text, int64_t &number) {
  char *end = nullptr;
  errno = 0;
  number = std::strtoll(text.c_str(), &end, 10);
  return !text.empty() && !*end && !errno && number >= 0;
}

Problem parseShape(const std::string &text, Options &options) {
  for (size_t at = 0; at <= text.size();) {
    size_t end = std::min(text.find(',', at), text.size());
    std::string one = text.substr(at, end - at);
    size_t equals = one.find('=');
    int64_t extent = 0;
    if (equals == std::string::npos ||
        !parseNumber(one.substr(equals + 1), extent))
      return usage("found '" + one + "', expected DIM=EXTENT");
    options.shape[one.substr(0, equals)] = extent;
    at = end + 1;
  }
  return {};
}

Problem parseFlag(const std::string &flag, const std::string &value,
                  Options &options) {
  auto addFile = [&](std::map<std::string, std::string> &files) {
    size_t equals = value.find('=');
    if (equals == std::string::npos)
      return usage("found '" + value + "', expected NAME=FILE.npy");
    files[value.substr(0, equals)] = value.substr(equals + 1);
    return Problem();
  };
  if (flag == "--input")
    return addFile(options.inputs);
  if (flag == "--output")
    return addFile(options.outputs);
  if (flag == "--expect")
    return addFile(options.expected);
  if (flag == "--shape")
    return parseShape(value, options);
  if (flag == "--tuned-file") {
    options.tunedFile = value;
    options.isTuned = true;
    return {};
  }
  if (flag == "--weights") {
    options.weights = value;
    return {};
  }
  if (flag == "--tolerance") {
    options.tolerance = std::atof(value.c_str());
    return {};
  }
  int64_t number = 0;
  if (!parseNumber(value, number) || number > 1024)
    return usage("found '" + value + "' for " + flag + ", expected a number");
  (flag == "--gpu" ? options.gpu : reinterpret_cast<int &>(options.threads)) =
      int(number);
  return {};
}

Problem parse(int count, char **arguments, Options &options) {
  static const char *const valued[] = {
      "--input",   "--output", "--expect",     "--tolerance", "--shape",
      "--threads", "--gpu",    "--tuned-file", "--weights"};
  for (int i = 1; i < count; ++i) {
    std::string flag = arguments[i];
    if (flag.rfind("--", 0) != 0) {
      if (!options.package.empty())
        return usage("found a second package '" + flag + "'");
      options.package = flag;
    } else if (flag == "--bench") {
      options.isBench = true;
    } else if (flag == "--compile") {
      options.compiles = true;
    } else if (flag == "--tune") {
      options.tunes = options.isTuned = true;
    } else if (flag == "--tuned") {
      options.isTuned = true;
    } else if (std::find(std::begin(valued), std::end(valued), flag) ==
               std::end(valued)) {
      return usage("found the unknown flag '" + flag + "'");
    } else if (i + 1 == count) {
      return usage("found no value of " + flag);
    } else if (Problem error = parseFlag(flag, arguments[++i], options)) {
      return error;
    }
  }
  return options.package.empty() ? usage("found no package") : Problem();
}

template <typename T> void append(std::vector<char> &bytes, T value) {
  const char *from = reinterpret_cast<const char *>(&value);
  bytes.insert(bytes.end(), from, from + sizeof(T));
}

/// Normal numbers; integers are 0 or 1.
Outcome<Array> randomArray(const InputSpec &input, std::vector<int64_t> shape,
                           unsigned seed) {
  Array array{input.dtype, std::move(shape), {}};
  std::optional<int64_t> count =
      checkedNumElements(array.shape, byteWidth(input.dtype));
  if (!count)
    return problem(ExitCode::Limit, "input '" + input.name + "' is too large");
  // More numbers than these are the same ones again.
  constexpr int64_t kMostDrawn = int64_t(1) << 20;
  size_t total = size_t(*count) * byteWidth(input.dtype);
  if (Problem error = growArray(array, total, total))
    return error;
  array.bytes.clear(); // its room stays
  count = std::min(*count, kMostDrawn);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < *count; ++i) {
    float x = normal(random);
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    switch (input.dtype) {
    case DType::F64:
      append(array.bytes, double(x));
      break;
    case DType::F32:
      append(array.bytes, x);
      break;
    case DType::F16:
      append(array.bytes, _Float16(x));
      break;
    case DType::BF16:
      append(array.bytes, uint16_t(bits >> 16));
      break;
    default:
      array.bytes.push_back(char(isFloat(input.dtype) ? 0 : x > 0));
      array.bytes.resize(size_t(i + 1) * byteWidth(input.dtype));
    }
  }
  size_t done = array.bytes.size();
  array.bytes.resize(total);
  for (; done < total; done += std::min(done, total - done))
    std::memcpy(array.bytes.data() + done, array.bytes.data(),
                std::min(done, total - done));
  return array;
}

/// max |y - expected| over a row, of the row's max |expected|.
double errorOf(const Array &found, const Array &expected) {
  size_t count = expected.bytes.size() / sizeof(double);
  size_t row = found.shape.empty() ? 1 : size_t(found.shape.back());
  double worst = 0.0;
  for (size_t first = 0; row && first < count; first += row) {
    double largest = 0.0, error = 0.0;
    for (size_t i = first; i < first + row; ++i) {
      double y = elementOf(found.dtype,
                           found.bytes.data() + i * byteWidth(found.dtype)),
             e = elementOf(DType::F64,
                           expected.bytes.data() + i * sizeof(double));
      largest = std::max(largest, std::abs(e));
      bool isSame = y == e || (std::isnan(y) && std::isnan(e));
      double difference = isSame ? 0.0 : std::abs(y - e);
      error = difference <= error ? error : difference;
    }
    double relative = error == 0 ? 0.0 : error / std::max(largest, 1e-300);
    worst = relative <= worst ? worst : relative;
  }
  return worst;
}

/// A package on its machine.
struct Runner {
  std::unique_ptr<CudaProgram> gpu;
  std::unique_ptr<CpuProgram> cpu;
  std::optional<TunedFile> tuned;
  std::string tunedPath;

  Problem open(std::shared_ptr<Package> package, const Options &options);
  Outcome<std::shared_ptr<const RunPlan>>
  planFor(const std::vector<std::vector<int64_t>> &s) {
    return gpu ? gpu->planFor(s) : cpu->planFor(s);
  }
  Problem loadTuned(const Options &options);
  Problem tune(const RunPlan &plan, std::span<const void *const> from);
  Problem run(const RunPlan &plan, std::span<const void *const> from,
              std::span<void *const> to) {
    return gpu ? gpu->run(plan, from, to) : cpu->run(plan, from, to);
  }
};

/// A file that holds nothing for this GPU is told of, and takes nothing away.
Problem Runner::loadTuned(const Options &options) {
  Outcome<GpuFacts> facts = findGpu(options.gpu);
  if (!facts)
    return facts.error();
  tuned.emplace(*facts);
  tunedPath = options.tunedFile.empty() ? options.package + ".tuned"
                                        : options.tunedFile;
  if (options.tunes && ::access(tunedPath.c_str(), F_OK) != 0)
    return {};
  if (Problem error = tuned->load(tunedPath))
    std::fprintf(stderr, "warning: %s: ignored\n", error.message.c_str());
  return {};
}

/// Times what the file has no choice of, and adds it there.
Problem Runner::tune(const RunPlan &plan, std::span<const void *const> from) {
  const ProgramSpec &program = gpu->package().program;
  Outcome<std::vector<DeviceAddress>> places = gpu->stage(plan);
  if (!places)
    return places.error();
  size_t numInputs = program.inputs.size();
  for (size_t i = 0; i < numInputs; ++i)
    if (Problem error =
            gpu->upload((*places)[i], from[i],
                        bytesOf(program.inputs[i].dtype, plan.inputShapes[i])))
      return error;
  TuneOptions options;
  options.onProgress = [](const std::string &what) {
    std::fprintf(stderr, "tune: %s\n", what.c_str());
  };
  auto found = gpu->tune(plan, std::span(*places).first(numInputs),
                         std::span(*places).subspan(numInputs), options);
  if (!found)
    return found.error();
  size_t numTimed = 0;
  for (const TunedLaunch &one : *found) {
    std::fputs(describeTuned(gpu->package(), one).c_str(), stderr);
    if (one.wasKept)
      continue;
    ++numTimed;
    tuned->keep(
        {gpu->package().deviceKernels[one.kernel], one.launch, one.words},
        one.choice);
  }
  return numTimed ? tuned->save(tunedPath) : Problem();
}

Problem Runner::open(std::shared_ptr<Package> package, const Options &options) {
  if (options.isTuned && package->target == PackageTarget::Cpu)
    return usage("'" + package->name +
                 "' is made for the CPU, expected a package for GPUs with "
                 "--tune and --tuned");
  if (options.isTuned)
    if (Problem error = loadTuned(options))
      return error;
  if (package->target == PackageTarget::Cpu) {
    auto opened = CpuProgram::open(package, options.threads);
    if (!opened)
      return opened.error();
    cpu = std::move(*opened);
    return {};
  }
  CudaProgram::Options gpuOptions;
  gpuOptions.ordinal = options.gpu;
  if (options.compiles)
    gpuOptions.compile =
        [package](const DeviceKernel &kernel, const std::string &entry,
                  const std::string &architecture) -> Outcome<std::string> {
      Outcome<const Nvrtc *> nvrtc = Nvrtc::find();
      if (!nvrtc)
        return nvrtc.error();
      return (*nvrtc)->compile(entry, textOfEntry(kernel.text, entry),
                               package->headers, architecture);
    };
  if (tuned)
    gpuOptions.findChoice = [this](const LaunchOfShape &of) {
      return tuned->find(of);
    };
  auto opened = CudaProgram::open(package, gpuOptions);
  if (!opened)
    return opened.error();
  gpu = std::move(*opened);
  return {};
}

Outcome<std::vector<Array>> makeInputs(const ProgramSpec &program,
                                       const Options &options) {
  std::vector<Array> inputs(program.inputs.size());
  std::map<std::string, int64_t> extents = options.shape;
  for (const auto &[name, file] : options.inputs) {
    auto found = std::find_if(program.inputs.begin(), program.inputs.end(),
                              [&](auto &input) { return input.name == name; });
    if (found == program.inputs.end())
      return usage("found the unknown input '" + name + "'");
    Outcome<Array> read = readNpy(file, found->dtype);
    if (!read)
      return read.error();
    for (size_t d = 0; d < found->dims.size() && d < read->shape.size(); ++d)
      extents.emplace(found->dims[d].name, read->shape[d]);
    inputs[size_t(found - program.inputs.begin())] = std::move(*read);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const InputSpec &input = program.inputs[i];
    if (options.inputs.count(input.name))
      continue;
    std::vector<int64_t> shape;
    for (const DimSpec &dim : input.dims) {
      auto known = extents.find(dim.name);
      if (dim.extent < 0 && known == extents.end())
        return usage("found no extent of '" + dim.name + "' of input '" +
                     input.name + "', expected one in --shape");
      shape.push_back(dim.extent >= 0 ? dim.extent : known->second);
    }
    Outcome<Array> made = randomArray(input, shape, unsigned(i));
    if (!made)
      return made.error();
    inputs[i] = std::move(*made);
  }
  return inputs;
}

Problem benchGpu(CudaProgram &gpu, const RunPlan &plan, int64_t bytes) {
  Outcome<std::vector<DeviceAddress>> places = gpu.stage(plan);
  if (!places)
    return places.error();
  size_t numInputs = plan.inputShapes.size();
  auto in = std::span(*places).first(numInputs),
       out = std::span(*places).subspan(numInputs);
  auto run = [&](DeviceStream stream) {
    return gpu.enqueue(plan, in, out, stream);
  };
  constexpr int kGroups = 15;
  auto first = gpu.time(1, 3, run);
  if (!first)
    return first.error();
  int launches = int(std::clamp(4.0 / std::max(*first, 1e-3), 1.0, 400.0));
  auto ms = gpu.time(launches, kGroups, run);
  if (!ms)
    return ms.error();
  auto rate = gpu.copyRate(bytes);
  if (!rate)
    return rate.error();
  std::printf("%s: %.4f ms, %.0f GB/s, %.0f %% of a copy (%.0f GB/s)\n",
              gpu.gpu().name.c_str(), *ms, double(bytes) / *ms * 1e-6,
              100.0 * double(bytes) / *ms / *rate, *rate * 1e-6);
  auto steps = gpu.timeSteps(plan, in, out, 9);
  if (!steps)
    return steps.error();
  if (Problem error = gpu.findFailedCheck())
    return error;
  const ProgramSpec &program = gpu.package().program;
  ConstantSteps constants = findConstantSteps(program);
  for (size_t i = 0; i < steps->size(); ++i) {
    if (program.steps[i].condition.evaluate(plan.symbols) == 0)
      continue; // for other sizes
    if (constants.isOnce[i]) {
      std::printf("  done once     %s (of weights alone)\n",
                  program.steps[i].name.c_str());
      continue;
    }
    std::string library = gpu.libraryOf(plan, i);
    std::printf("  %9.4f ms  %s%s\n", (*steps)[i],
                program.steps[i].name.c_str(),
                library.empty() ? "" : (" (" + library + ")").c_str());
  }
  return {};
}

Problem benchCpu(Runner &runner, const RunPlan &plan,
                 std::span<const void *const> from, std::span<void *const> to,
                 int64_t bytes) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  for (int i = 0; i < 15; ++i) {
    auto begin = Clock::now();
    if (Problem error = runner.run(plan, from, to))
      return error;
    times.push_back(
        std::chrono::duration<double, std::milli>(Clock::now() - begin)
            .count());
  }
  std::nth_element(times.begin(), times.begin() + 7, times.end());
  std::printf("cpu: %.4f ms, %.1f GB/s\n", times[7],
              double(bytes) / times[7] * 1e-6);
  return {};
}

Problem compareAndWrite(const ProgramSpec &program,
                        const std::vector<Array> &outputs,
                        const Options &options) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string &name = program.outputs[i].name;
    if (auto file = options.outputs.find(name); file != options.outputs.end())
      if (Problem error = writeNpy(file->second, outputs[i]))
        return error;
    auto file = options.expected.find(name);
    if (file == options.expected.end())
      continue;
    Outcome<Array> expected = readNpy(file->second, DType::F64);
    if (!expected)
      return expected.error();
    if (expected->shape != outputs[i].shape)
      return problem(ExitCode::Mismatch, "output '" + name +
                                             "' has another shape than " +
                                             file->second);
    double error = errorOf(outputs[i], *expected);
    std::printf("%s: error %.2e\n", name.c_str(), error);
    if (!(error <= options.tolerance))
      return problem(ExitCode::Mismatch,
                     "output '" + name + "': found an error of " +
                         std::to_string(error) + ", expected at most " +
                         std::to_string(options.tolerance));
  }
  return {};
}

Problem runAll(const Options &options) {
  Outcome<std::shared_ptr<Package>> package =
      openPackage(options.package, options.weights);
  if (!package)
    return package.error();
  const ProgramSpec &program = (*package)->program;
  for (auto *files : {&options.outputs, &options.expected})
    for (const auto &[name, file] : *files)
      if (std::none_of(program.outputs.begin(), program.outputs.end(),
                       [&](auto &output) { return output.name == name; }))
        return usage("found the unknown output '" + name + "'");
  Runner runner;
  if (Problem error = runner.open(*package, options))
    return error;
  Outcome<std::vector<Array>> inputs = makeInputs(program, options);
  if (!inputs)
    return inputs.error();
  std::vector<std::vector<int64_t>> shapes;
  std::vector<const void *> from;
  int64_t bytes = 0;
  for (const Array &input : *inputs) {
    shapes.push_back(input.shape);
    from.push_back(input.bytes.data());
    bytes += int64_t(input.bytes.size());
  }
  Outcome<std::shared_ptr<const RunPlan>> plan = runner.planFor(shapes);
  if (!plan)
    return plan.error();
  if (options.tunes)
    if (Problem error = runner.tune(**plan, from))
      return error;
  std::vector<Array> outputs;
  std::vector<void *> to;
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const std::vector<int64_t> &shape = (*plan)->outputShapes[i];
    DType dtype = program.outputs[i].dtype;
    outputs.push_back({dtype, shape, {}});
    size_t size = size_t(bytesOf(dtype, shape));
    if (Problem error = growArray(outputs.back(), size, size))
      return error;
    bytes += int64_t(size);
  }
  for (Array &output : outputs)
    to.push_back(output.bytes.data());
  if (Problem error = runner.run(**plan, from, to))
    return error;
  if (Problem error = compareAndWrite(program, outputs, options))
    return error;
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::printf("%s: %s[", program.outputs[i].name.c_str(),
                infoOf(outputs[i].dtype).name);
    for (size_t d = 0; d < outputs[i].shape.size(); ++d)
      std::printf("%s%lld", d ? ", " : "", (long long)outputs[i].shape[d]);
    std::printf("]\n");
  }
  if (!options.isBench)
    return {};
  return runner.gpu ? benchGpu(*runner.gpu, **plan, bytes)
                    : benchCpu(runner, **plan, from, to, bytes);
}

} // namespace

int main(int count, char **arguments) {
  // A file that may not grow is an error of the write, not our death.
  ::signal(SIGXFSZ, SIG_IGN);
  Options options;
  for (int i = 1; i < count; ++i)
    if (!std::strcmp(arguments[i], "--help")) {
      std::fputs(kUsage, stdout);
      return 0;
    }
  Problem error = parse(count, arguments, options);
  try {
    if (!error)
      error = runAll(options);
  } catch (const std::bad_alloc &) {
    error = problem(ExitCode::Limit, "no memory is left");
  }
  if (!error && std::fflush(stdout) != 0)
    error = problem(ExitCode::Limit, "standard output: not written");
  if (error)
    std::fprintf(stderr, "error: %s\n", error.message.c_str());
  return static_cast<int>(error.code);
}
