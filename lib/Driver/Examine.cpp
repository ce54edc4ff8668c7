// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/Driver.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/TargetParser/Host.h"
#include <thread>
#include <unistd.h>

namespace refold {

static HealthReport examineProcessor() {
  llvm::SmallVector<llvm::StringRef> found;
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  for (llvm::StringRef name :
       {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vnni",
        "avx512bf16", "amx-tile", "neon", "sve"})
    if (features.lookup(name))
      found.push_back(name);
  return {"processor",
          (llvm::sys::getHostCPUName() + ": " + llvm::join(found, " ")).str(),
          true};
}

static HealthReport examineMemory() {
  double bytes =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  int64_t mebibytes = static_cast<int64_t>(bytes / (1 << 20));
  return {"memory", std::to_string(mebibytes) + " MiB", mebibytes >= 1024};
}

std::vector<HealthReport> examine() {
  std::vector<HealthReport> result;
  result.push_back(examineProcessor());
  result.push_back(
      {"threads", std::to_string(std::thread::hardware_concurrency()), true});
  result.push_back(examineMemory());
  result.push_back({"LLVM", LLVM_VERSION_STRING,
                    llvm::StringRef(LLVM_VERSION_STRING) == "19.1.7"});
  size_t operators = readableOperators().size();
  result.push_back(
      {"ONNX operators", std::to_string(operators), operators > 0});
  return result;
}

} // namespace refold
