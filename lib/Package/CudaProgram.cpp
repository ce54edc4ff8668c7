// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CudaProgram.h"

using namespace refold;
using namespace refold::package;

CudaProgram::Impl::~Impl() {
  if (!context)
    return;
  {
    CurrentContext current(*this);
    if (stream) {
      driver.cuStreamSynchronize(stream);
      driver.cuStreamDestroy_v2(stream);
    }
    for (CuModule module : modules)
      driver.cuModuleUnload(module);
    plans.clear();
    library.reset();
    memory.reset();
    for (DeviceMemory *one : {&constants, &tickets, &staging, &libraryWorkspace,
                              &failedCheck, &keptArrays})
      one->release();
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

Problem CudaProgram::Impl::start() {
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
    if (Problem problem = loadKernel(kernel, loaded))
      return problem;
  }
  if (Problem problem = makeTickets())
    return problem;
  if (package->checkKernel >= 0)
    if (Problem problem = makeFailedCheck())
      return problem;
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
  if (Problem error =
          impl->findConstants(std::move(package), kAddressRemainder))
    return error;
  impl->compile = options.compile;
  impl->findChoice = options.findChoice;
  if (Problem error = impl->start())
    return error;
  return std::unique_ptr<CudaProgram>(new CudaProgram(std::move(impl)));
}

CudaProgram::CudaProgram(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
CudaProgram::~CudaProgram() = default;
const Package &CudaProgram::package() const { return *impl->package; }
const GpuFacts &CudaProgram::gpu() const { return impl->gpu; }

Problem CudaProgram::Impl::prepare(CudaPlan &made, PlannedSteps) {
  if (Problem error = reserveFor(made))
    return error;
  findChoices(made);
  return loadEntriesOf(made);
}

Problem CudaProgram::Impl::reserveKept() {
  return keptArrays.reserve(places.bytes, gpu,
                            "what is computed of weights alone");
}

/// Waits: launches on any stream find it done.
Problem CudaProgram::Impl::runOnce(CudaPlan &made) {
  isCapturing = false;
  placeBuffers(made, {}, {});
  if (Problem error = runPlaced(made, stream, nullptr, /*checksLater=*/false))
    return error;
  return synchronize();
}

Outcome<std::shared_ptr<const RunPlan>>
CudaProgram::planFor(const std::vector<std::vector<int64_t>> &inputShapes) {
  CurrentContext current(*impl);
  return impl->planFor(inputShapes);
}

std::shared_ptr<const RunPlan> CudaProgram::keptPlan(uint64_t id) {
  return impl->keptPlan(id);
}

Problem CudaProgram::enqueue(const RunPlan &plan,
                             std::span<const DeviceAddress> inputs,
                             std::span<const DeviceAddress> outputs,
                             DeviceStream stream,
                             const std::function<Problem(size_t)> &onStep) {
  CudaPlan *kept = impl->plans.find(plan.id);
  if (!kept)
    return noLongerKept(impl->package->name);
  for (const PlannedStep &step : plan.steps)
    if (std::get_if<PlannedCheck>(&step.what) && impl->package->checkKernel < 0)
      return problem(ExitCode::Model,
                     "'" + impl->package->name +
                         "' checks its data and has no kernel that does");
  CurrentContext current(*impl);
  auto on = static_cast<CuStream>(stream);
  int capture = kNoCapture;
  if (CuResult error = impl->driver.cuStreamIsCapturing(on, &capture))
    return impl->failed("cuStreamIsCapturing", error);
  // The graph has the addresses of the plan's memory from here on.
  kept->isPinned |= capture != kNoCapture;
  impl->isCapturing = capture != kNoCapture;
  return impl->runSteps(*kept, inputs, outputs, on, onStep,
                        /*checksLater=*/true);
}

std::string CudaProgram::libraryOf(const RunPlan &plan, size_t step) {
  CudaPlan *kept = impl->plans.find(plan.id);
  for (size_t i = 0; kept && i < plan.steps.size(); ++i)
    if (plan.steps[i].step == step && kept->resolved[i].wasMultiplied)
      return "cuBLASLt " + (*impl->library)->functions().version;
  return "";
}

Problem CudaProgram::findFailedCheck() {
  if (impl->package->checkKernel < 0)
    return {};
  int32_t failed = 0, none = 0;
  DeviceAddress at = impl->failedCheck.address;
  if (Problem error = download(&failed, at, sizeof(failed)))
    return error;
  if (failed == 0)
    return {};
  if (Problem error = upload(at, &none, sizeof(none)))
    return error;
  const std::vector<Step> &steps = impl->package->program.steps;
  auto *check = size_t(failed) <= steps.size()
                    ? std::get_if<AssertStep>(&steps[size_t(failed) - 1].what)
                    : nullptr;
  return problem(ExitCode::Model, check ? check->message : "a check failed");
}

Problem CudaProgram::run(const RunPlan &plan,
                         std::span<const void *const> inputs,
                         std::span<void *const> outputs) {
  CudaPlan *kept = impl->plans.find(plan.id);
  if (!kept)
    return noLongerKept(impl->package->name);
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
    impl->isCapturing = false;
    if (Problem error = impl->runSteps(*kept, in, out, impl->stream, nullptr,
                                       /*checksLater=*/false))
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
