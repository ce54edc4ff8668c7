// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory of a GPU: of constants, of plans, and of arrays of the host.
#include "CudaProgram.h"

#include <algorithm>

using namespace refold;
using namespace refold::package;

/// Adds so many bytes, up to the next place where an array may begin; false
/// where the sum overflows.
static bool append(int64_t &total, int64_t bytes) {
  int64_t sum = 0;
  if (__builtin_add_overflow(total, bytes, &sum) ||
      __builtin_add_overflow(sum, 255, &sum))
    return false;
  total = sum & ~int64_t(255);
  return true;
}

static Problem overflow(const Package &package) {
  return problem(ExitCode::Limit,
                 "'" + package.name + "': the size of its arrays overflows");
}

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

Problem CudaProgram::Impl::uploadConstants() {
  const std::vector<BufferSpec> &buffers = package->program.buffers;
  constantsAt.assign(buffers.size(), 0);
  int64_t total = 0;
  std::vector<std::pair<size_t, int64_t>> places;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].kind != BufferKind::Constant)
      continue;
    places.push_back({i, total});
    if (!append(total, buffers[i].bytes.constant().value_or(0)))
      return overflow(*package);
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

/// Zeros, which every launch that counts leaves as it found them: nothing else
/// is ever written there.
Problem CudaProgram::Impl::makeTickets() {
  uint32_t most = 0;
  for (const DeviceKernel &kernel : package->deviceKernels)
    most = std::max(most, kernel.tickets);
  if (most == 0)
    return {};
  const std::vector<uint32_t> zeros(most, 0);
  if (Problem error = tickets.reserve(int64_t(most) * 4, gpu, "tickets"))
    return error;
  CuResult error = driver.cuMemcpyHtoDAsync_v2(tickets.address, zeros.data(),
                                               zeros.size() * 4, stream);
  return error ? failed("cuMemcpyHtoDAsync", error) : synchronize();
}

/// No check has failed.
Problem CudaProgram::Impl::makeFailedCheck() {
  static constexpr int32_t kNone = 0;
  if (Problem error = failedCheck.reserve(sizeof(kNone), gpu, "checks"))
    return error;
  CuResult error = driver.cuMemcpyHtoDAsync_v2(failedCheck.address, &kNone,
                                               sizeof(kNone), stream);
  return error ? failed("cuMemcpyHtoDAsync", error) : synchronize();
}

/// Memory for plans of at least so many bytes; that of the plans there are
/// stays where it is. Twice the bytes there were where the GPU has them:
/// growing step by step then keeps a few blocks only.
Problem CudaProgram::Impl::growMemory(int64_t wanted) {
  if (memory && wanted <= memory->bytes)
    return {};
  auto grown = std::make_shared<DeviceMemory>(driver);
  int64_t ample = 2 * (memory ? memory->bytes : 0);
  constexpr const char *kWhat = "intermediate arrays and workspaces";
  Problem error;
  if (wanted >= ample || (error = grown->reserve(ample, gpu, kWhat)))
    error = grown->reserve(wanted, gpu, kWhat);
  if (!error)
    memory = std::move(grown);
  return error;
}

/// What steps need beside their arrays, and room for the words of a call.
Problem CudaProgram::Impl::reserveFor(CudaPlan &made) {
  int64_t workspaceBytes = 0;
  size_t mostWords = kCopyWords;
  for (const PlannedStep &step : made.plan->steps) {
    auto *kernel = std::get_if<PlannedKernel>(&step.what);
    if (!kernel)
      continue;
    mostWords = std::max(mostWords, kernel->words.size() + 2);
    const DeviceKernel &device = package->deviceKernels[kernel->kernel];
    sizes.start(device.sizes, kernel->words);
    std::optional<int64_t> bytes = sizes[device.workspaceBytes];
    if (!bytes || *bytes < 0)
      return problem(ExitCode::Limit,
                     "'" + device.name +
                         "': the size of its workspace overflows");
    workspaceBytes = std::max(workspaceBytes, *bytes);
  }
  int64_t workspaceAt = 0;
  if (!append(workspaceAt, made.plan->arenaBytes))
    return overflow(*package);
  int64_t wanted = workspaceAt;
  if (!append(wanted, workspaceBytes))
    return overflow(*package);
  words.reserve(std::max(words.capacity(), mostWords));
  addresses.resize(package->program.buffers.size());
  if (Problem error = growMemory(wanted))
    return error;
  made.memory = memory;
  made.arena = memory ? memory->address : 0;
  made.workspace = made.arena + uint64_t(workspaceAt);
  return prepareProducts(made);
}

/// Asks the library how it would compute what it may; it is loaded when a plan
/// first has such a product.
Problem CudaProgram::Impl::prepareProducts(CudaPlan &made) {
  made.resolved.resize(made.plan->steps.size());
  for (size_t i = 0; i < made.resolved.size(); ++i) {
    auto *kernel = std::get_if<PlannedKernel>(&made.plan->steps[i].what);
    if (!kernel)
      continue;
    const DeviceKernel &device = package->deviceKernels[kernel->kernel];
    const std::optional<DeviceProduct> &product = device.product;
    if (!product)
      continue;
    sizes.start(device.sizes, kernel->words);
    if (!sizes[product->condition].value_or(0))
      continue;
    if (!library) {
      Outcome<std::unique_ptr<ProductLibrary>> found = ProductLibrary::create();
      if (!found)
        return found.error();
      library = std::move(*found);
    }
    if (!*library)
      return {};
    if (Problem error = libraryWorkspace.reserve(
            ProductLibrary::kWorkspaceBytes, gpu, "the workspace of cuBLASLt"))
      return error;
    made.resolved[i].product = (*library)->prepare(*product, kernel->words);
  }
  return {};
}

Outcome<std::vector<DeviceAddress>> CudaProgram::stage(const RunPlan &plan) {
  CurrentContext current(*impl);
  std::vector<DeviceAddress> places;
  int64_t total = 0;
  bool isCounted = true;
  auto place = [&](DType dtype, const std::vector<int64_t> &shape) {
    places.push_back(uint64_t(total));
    isCounted &= append(total, bytesOf(dtype, shape));
  };
  const ProgramSpec &program = impl->package->program;
  for (size_t i = 0; i < program.inputs.size(); ++i)
    place(program.inputs[i].dtype, plan.inputShapes[i]);
  for (size_t i = 0; i < program.outputs.size(); ++i)
    place(program.outputs[i].dtype, plan.outputShapes[i]);
  if (!isCounted)
    return overflow(*impl->package);
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
