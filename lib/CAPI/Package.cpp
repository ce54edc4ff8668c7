// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold-c/Package.h"

#include "refold/Package/Cpu.h"
#include "refold/Package/Cuda.h"
#include "refold/Package/EntryText.h"
#include "refold/Package/Nvrtc.h"
#include "refold/Package/TunedFile.h"
#include <algorithm>
#include <cstring>
#include <new>

using namespace refold;
using namespace refold::package;

struct refold_error {
  Problem problem;
};
struct refold_package {
  std::shared_ptr<Package> package;
  std::unique_ptr<CudaProgram> gpu;
  std::unique_ptr<CpuProgram> cpu;
  const ProgramSpec &program() const { return package->program; }
};

/// No exception leaves the library.
template <typename Work> static refold_error *guarded(Work work) {
  static refold_error noMemory{{ExitCode::Limit, "no memory is left"}};
  try {
    Problem problem = work();
    return problem ? new refold_error{std::move(problem)} : nullptr;
  } catch (const std::bad_alloc &) {
    return &noMemory;
  } catch (const std::exception &error) {
    return new refold_error{{ExitCode::Internal, error.what()}};
  }
}

int refold_error_code(const refold_error *error) {
  return static_cast<int>(error->problem.code);
}
const char *refold_error_message(const refold_error *error) {
  return error->problem.message.c_str();
}
void refold_error_free(refold_error *error) {
  if (error && error->problem.message != "no memory is left")
    delete error;
}

/// NVRTC, for a GPU that the package has no code for.
static decltype(CudaProgram::Options::compile)
compilerOf(std::shared_ptr<Package> package) {
  return [package](const DeviceKernel &kernel, const std::string &entry,
                   const std::string &architecture) -> Outcome<std::string> {
    Outcome<const Nvrtc *> nvrtc = Nvrtc::find();
    if (!nvrtc)
      return nvrtc.error();
    return (*nvrtc)->compile(entry, textOfEntry(kernel.text, entry),
                             package->headers, architecture);
  };
}

/// Plans ask for choices as long as the program is there.
static Problem loadTuned(const refold_open_options &options,
                         CudaProgram::Options &gpuOptions) {
  Outcome<GpuFacts> gpu = findGpu(options.gpu);
  if (!gpu)
    return gpu.error();
  auto file = std::make_shared<TunedFile>(*gpu);
  if (Problem error = file->load(options.tuned))
    return error;
  gpuOptions.findChoice = [file](const LaunchOfShape &of) {
    return file->find(of);
  };
  return {};
}

static Problem open(const char *path, const refold_open_options &options,
                    refold_package **result) {
  Outcome<std::shared_ptr<Package>> read =
      openPackage(path, options.weights ? options.weights : "");
  if (!read)
    return read.error();
  auto opened = std::make_unique<refold_package>();
  opened->package = *read;
  if (opened->package->target == PackageTarget::Cuda) {
    CudaProgram::Options gpuOptions;
    gpuOptions.ordinal = options.gpu;
    if (options.tuned)
      if (Problem error = loadTuned(options, gpuOptions))
        return error;
    if (options.compiles)
      gpuOptions.compile = compilerOf(opened->package);
    auto gpu = CudaProgram::open(opened->package, gpuOptions);
    if (!gpu)
      return gpu.error();
    opened->gpu = std::move(*gpu);
  } else {
    auto cpu = CpuProgram::open(opened->package, std::max(options.threads, 1u));
    if (!cpu)
      return cpu.error();
    opened->cpu = std::move(*cpu);
  }
  *result = opened.release();
  return {};
}

/// A pointer that the caller left out.
static Problem isNull(const std::string &what) {
  return problem(ExitCode::Usage, "found a null pointer for " + what);
}

refold_error *refold_package_open(const char *path,
                                  const refold_open_options *options,
                                  refold_package **result) {
  refold_open_options known = {sizeof(known), 0, 0, 1, nullptr};
  if (options)
    std::memcpy(&known, options, std::min(options->size, sizeof(known)));
  *result = nullptr;
  return guarded([&] {
    return path ? open(path, known, result) : isNull("the path of a package");
  });
}

void refold_package_free(refold_package *package) { delete package; }

int refold_package_is_for_gpu(const refold_package *package) {
  return package->gpu != nullptr;
}
size_t refold_package_num_inputs(const refold_package *package) {
  return package->program().inputs.size();
}
size_t refold_package_num_outputs(const refold_package *package) {
  return package->program().outputs.size();
}
const char *refold_package_input_name(const refold_package *package, size_t i) {
  return package->program().inputs[i].name.c_str();
}
const char *refold_package_output_name(const refold_package *package,
                                       size_t i) {
  return package->program().outputs[i].name.c_str();
}
const char *refold_package_input_type(const refold_package *package, size_t i) {
  return infoOf(package->program().inputs[i].dtype).name;
}
const char *refold_package_output_type(const refold_package *package,
                                       size_t i) {
  return infoOf(package->program().outputs[i].dtype).name;
}
size_t refold_package_input_rank(const refold_package *package, size_t i) {
  return package->program().inputs[i].dims.size();
}
size_t refold_package_output_rank(const refold_package *package, size_t i) {
  return package->program().outputs[i].shape.size();
}
int64_t refold_package_input_extent(const refold_package *package, size_t i,
                                    size_t dim) {
  return package->program().inputs[i].dims[dim].extent;
}
const char *refold_package_input_dim_name(const refold_package *package,
                                          size_t i, size_t dim) {
  return package->program().inputs[i].dims[dim].name.c_str();
}

refold_error *refold_package_plan(refold_package *package,
                                  const int64_t *const *input_shapes,
                                  const refold_plan **result) {
  *result = nullptr;
  return guarded([&]() -> Problem {
    std::vector<std::vector<int64_t>> shapes;
    for (size_t i = 0; i < package->program().inputs.size(); ++i) {
      const InputSpec &input = package->program().inputs[i];
      size_t rank = input.dims.size();
      if (!input_shapes || (rank && !input_shapes[i]))
        return isNull("the shape of input '" + input.name + "'");
      if (rank)
        shapes.emplace_back(input_shapes[i], input_shapes[i] + rank);
      else
        shapes.emplace_back();
    }
    auto plan = package->gpu ? package->gpu->planFor(shapes)
                             : package->cpu->planFor(shapes);
    if (!plan)
      return plan.error();
    // Its number: a handle that outlives its plan is found to be of none.
    *result = reinterpret_cast<const refold_plan *>(uintptr_t((*plan)->id));
    return {};
  });
}

static Outcome<std::shared_ptr<const RunPlan>>
planOf(refold_package *package, const refold_plan *handle) {
  auto id = uint64_t(reinterpret_cast<uintptr_t>(handle));
  auto plan =
      package->gpu ? package->gpu->keptPlan(id) : package->cpu->keptPlan(id);
  if (!plan)
    return noLongerKept(package->package->name);
  return plan;
}

refold_error *refold_package_output_shape(refold_package *package,
                                          const refold_plan *handle, size_t i,
                                          int64_t *extents) {
  return guarded([&]() -> Problem {
    auto plan = planOf(package, handle);
    if (!plan)
      return plan.error();
    const std::vector<int64_t> &shape = (*plan)->outputShapes[i];
    std::copy(shape.begin(), shape.end(), extents);
    return {};
  });
}

/// Whether every array that has elements has an address.
template <typename Address>
static Problem checkArrays(const refold_package &package, const RunPlan &plan,
                           const Address *inputs, const Address *outputs) {
  auto check = [&](const auto &ports, const auto &shapes,
                   const Address *addresses, const char *kind) {
    for (size_t i = 0; i < ports.size(); ++i)
      if (!addresses ||
          (!addresses[i] && bytesOf(ports[i].dtype, shapes[i]) != 0))
        return isNull(kind + (" '" + ports[i].name + "'"));
    return Problem();
  };
  if (Problem error =
          check(package.program().inputs, plan.inputShapes, inputs, "input"))
    return error;
  return check(package.program().outputs, plan.outputShapes, outputs, "output");
}

refold_error *refold_package_run(refold_package *package,
                                 const refold_plan *handle,
                                 const void *const *inputs,
                                 void *const *outputs) {
  return guarded([&]() -> Problem {
    auto plan = planOf(package, handle);
    if (!plan)
      return plan.error();
    if (Problem error =
            checkArrays<const void *>(*package, **plan, inputs, outputs))
      return error;
    std::span from(inputs, package->program().inputs.size());
    std::span to(outputs, package->program().outputs.size());
    return package->gpu ? package->gpu->run(**plan, from, to)
                        : package->cpu->run(**plan, from, to);
  });
}

refold_error *refold_package_enqueue(refold_package *package,
                                     const refold_plan *handle,
                                     const uint64_t *inputs,
                                     const uint64_t *outputs, void *stream) {
  return guarded([&]() -> Problem {
    if (!package->gpu)
      return problem(ExitCode::Usage,
                     "'" + package->package->name +
                         "' is made for the CPU, expected a package for GPUs");
    auto plan = planOf(package, handle);
    if (!plan)
      return plan.error();
    if (Problem error = checkArrays(*package, **plan, inputs, outputs))
      return error;
    return package->gpu->enqueue(
        **plan, {inputs, package->program().inputs.size()},
        {outputs, package->program().outputs.size()}, stream);
  });
}

refold_error *refold_package_check(refold_package *package) {
  return guarded([&]() -> Problem {
    return package->gpu ? package->gpu->findFailedCheck() : Problem();
  });
}
