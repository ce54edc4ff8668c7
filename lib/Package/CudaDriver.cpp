// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CudaDriver.h"

#include <cstdlib>
#include <dlfcn.h>

using namespace refold;
using namespace refold::package;

std::string CudaDriver::describe(const char *call, CuResult error) const {
  const char *name = nullptr, *text = nullptr;
  if (cuGetErrorName(error, &name) != kCudaSuccess || !name)
    name = "unknown";
  if (cuGetErrorString(error, &text) != kCudaSuccess || !text)
    text = "error";
  return std::string(call) + ": " + text + " (" + name + ", " +
         std::to_string(error) + ")";
}

static Outcome<const CudaDriver *> loadDriver() {
  const char *named = std::getenv("REFOLD_LIBCUDA");
  const char *path = named && *named ? named : "libcuda.so.1";
  void *library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::string why = ::dlerror();
    return problem(ExitCode::Unsupported,
                   "found no CUDA driver: " + why +
                       "; expected that of NVIDIA, which has libcuda.so.1");
  }
  static CudaDriver driver;
#define REFOLD_FIND(name, arguments)                                           \
  driver.name =                                                                \
      reinterpret_cast<decltype(driver.name)>(::dlsym(library, #name));        \
  if (!driver.name)                                                            \
    return problem(ExitCode::Unsupported,                                      \
                   std::string("the CUDA driver '") + path + "' lacks '" +     \
                       #name "', expected version 12.0 or newer");
  REFOLD_CUDA_FUNCTIONS(REFOLD_FIND)
#undef REFOLD_FIND
#define REFOLD_FIND(name, arguments)                                           \
  driver.name =                                                                \
      reinterpret_cast<decltype(driver.name)>(::dlsym(library, #name));
  REFOLD_CUDA_LATER_FUNCTIONS(REFOLD_FIND)
#undef REFOLD_FIND
  if (CuResult error = driver.cuInit(0))
    return problem(ExitCode::Unsupported,
                   (error == kCudaNoDevice
                        ? "found no GPU: "
                        : "the CUDA driver does not start: ") +
                       driver.describe("cuInit", error));
  int version = 0;
  if (driver.cuDriverGetVersion && driver.cuLaunchKernelEx &&
      driver.cuDriverGetVersion(&version) == kCudaSuccess)
    driver.hasEarlyLaunches = version >= kEarlyLaunchVersion;
  return &driver;
}

Outcome<const CudaDriver *> package::cudaDriver() {
  static Outcome<const CudaDriver *> driver = loadDriver();
  return driver;
}

std::string GpuFacts::architecture() const {
  std::string number = std::to_string(major) + std::to_string(minor);
  return "sm_" + number + (major == 9 ? "a" : "");
}

std::string GpuFacts::textTarget() const {
  return major == 9 ? "cuda-sm90" : "cuda-sm80";
}

bool package::runsOn(const std::string &architecture, const GpuFacts &gpu) {
  if (architecture.rfind("sm_", 0) != 0 || architecture.size() < 5)
    return false;
  if (architecture.back() == 'a')
    return architecture ==
           "sm_" + std::to_string(gpu.major) + std::to_string(gpu.minor) + "a";
  int number = std::atoi(architecture.c_str() + 3);
  return number / 10 == gpu.major && number % 10 <= gpu.minor;
}

Outcome<std::pair<CuDevice, GpuFacts>> package::findDevice(int ordinal) {
  Outcome<const CudaDriver *> found = cudaDriver();
  if (!found)
    return found.error();
  const CudaDriver &driver = **found;
  int count = 0;
  if (CuResult error = driver.cuDeviceGetCount(&count))
    return problem(ExitCode::Unsupported,
                   driver.describe("cuDeviceGetCount", error));
  if (ordinal < 0 || ordinal >= count)
    return problem(ExitCode::Unsupported, "found " + std::to_string(count) +
                                              " GPUs, expected one of "
                                              "the number " +
                                              std::to_string(ordinal));
  CuDevice device = 0;
  char name[256] = "";
  size_t bytes = 0;
  int major = 0, minor = 0, processors = 0, l2 = 0, shared = 0;
  auto ask = [&](int *value, int attribute) {
    return driver.cuDeviceGetAttribute(value, attribute, device);
  };
  CuResult error = driver.cuDeviceGet(&device, ordinal);
  error = error ? error : driver.cuDeviceGetName(name, sizeof(name), device);
  error = error ? error : driver.cuDeviceTotalMem_v2(&bytes, device);
  error = error ? error : ask(&major, kComputeCapabilityMajor);
  error = error ? error : ask(&minor, kComputeCapabilityMinor);
  error = error ? error : ask(&processors, kMultiprocessorCount);
  error = error ? error : ask(&l2, kL2CacheSize);
  error = error ? error : ask(&shared, kMaxSharedPerBlockOptin);
  if (error)
    return problem(ExitCode::Unsupported,
                   driver.describe("cuDeviceGetAttribute", error));
  if (major < 8)
    return problem(ExitCode::Unsupported,
                   "found the GPU '" + std::string(name) +
                       "' of compute capability " + std::to_string(major) +
                       "." + std::to_string(minor) + ", expected 8.0 or newer");
  GpuFacts facts;
  facts.name = name;
  facts.major = major;
  facts.minor = minor;
  facts.multiprocessors = processors;
  facts.memoryBytes = int64_t(bytes);
  facts.l2Bytes = l2;
  facts.sharedBytesPerBlock = shared;
  // Nothing hangs on these but what is predicted.
  int clock = 0, memoryClock = 0, width = 0;
  if (!ask(&clock, kClockRate))
    facts.cyclesAMs = clock;
  if (driver.cuDriverGetVersion &&
      driver.cuDriverGetVersion(&facts.driverVersion))
    facts.driverVersion = 0;
  if (!ask(&memoryClock, kMemoryClockRate) && !ask(&width, kMemoryBusWidth))
    facts.memoryBytesAMs = int64_t(memoryClock) * 2 * width / 8;
  return std::pair(device, std::move(facts));
}

Outcome<GpuFacts> package::findGpu(int ordinal) {
  auto found = findDevice(ordinal);
  if (!found)
    return found.error();
  return std::move(found->second);
}
