// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Probe.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "refold/Driver/Compare.h"
#include "refold/Driver/Inputs.h"
#include "refold/Support/Error.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/Format.h"
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

/// The caches as the C library knows them; 0 stands for unknown.
static HealthReport examineCaches() {
  static constexpr std::pair<llvm::StringLiteral, int> levels[] = {
      {"L1", _SC_LEVEL1_DCACHE_SIZE},
      {"L2", _SC_LEVEL2_CACHE_SIZE},
      {"L3", _SC_LEVEL3_CACHE_SIZE},
  };
  std::string text;
  for (auto [name, key] : levels) {
    int64_t kibibytes = ::sysconf(key) / 1024;
    text += (text.empty() ? "" : ", ") + name.str() + " " +
            (kibibytes > 0 ? std::to_string(kibibytes) + " KiB" : "unknown");
  }
  return {"caches", text, true};
}

static HealthReport examineRates(const CpuTarget &target) {
  constexpr double kMemory = 256.0 * 1024 * 1024;
  int64_t threads = std::max(1u, std::thread::hardware_concurrency());
  std::string text;
  llvm::raw_string_ostream os(text);
  for (int64_t count : {int64_t(1), threads}) {
    if (count == 1 || threads > 1) {
      llvm::Expected<Probe> probe = Probe::create(target, count);
      if (!probe)
        return {"rates", llvm::toString(probe.takeError()), false};
      os << (text.empty() ? "" : "; ") << count
         << (count == 1 ? " thread: " : " threads: ")
         << llvm::format("%.1f GFLOP/s of f32 fma, %.1f GB/s of reading",
                         probe->operationsPerMs() * 1e-6,
                         probe->bytesPerMs(kMemory) * 1e-6);
    }
  }
  return {"rates", text, true};
}

/// Attention of a few rows: two contractions, a softmax and a mask through
/// every stage of the house.
static constexpr llvm::StringLiteral kProgram =
    "check(q[m,d], k[n,d], v[n,d]) -> o\n"
    "  s = where(n <= m, sum(d: q*k), -inf)\n"
    "  p = exp(s - max(n: s))\n"
    "  o[m,d] = sum(n: p*v) / sum(n: p)\n";

static llvm::Expected<std::string> runProgram() {
  std::unique_ptr<mlir::MLIRContext> context = makeContext();
  auto judged = loadFoldText(*context, kProgram, "doctor.fold");
  if (!judged)
    return judged.takeError();
  auto loaded = loadFoldText(*context, kProgram, "doctor.fold");
  if (!loaded)
    return loaded.takeError();
  auto program = compile(std::move(*loaded), {});
  if (!program)
    return program.takeError();
  Extents extents = {{"m", 37}, {"n", 53}, {"d", 19}};
  auto inputs = makeInputs(program->inputs, extents, {}, {}, /*seed=*/1);
  if (!inputs)
    return inputs.takeError();
  auto outputs = program->executable.run(*inputs, /*threads=*/2);
  if (!outputs)
    return outputs.takeError();
  EvaluationOptions exactly;
  exactly.keepOutputsExact = true;
  auto function = *judged->module->getOps<mlir::func::FuncOp>().begin();
  auto expected = evaluateProgram(function, *inputs, exactly);
  if (!expected)
    return expected.takeError();
  constexpr double kBound = 1e-5;
  Deviation deviation = compare(outputs->front(), expected->front());
  std::string text;
  llvm::raw_string_ostream(text)
      << program->fusion.cascades.size() << " cascade fused, compiled in "
      << llvm::format("%.0f ms, error %.1e against double", program->compileMs,
                      deviation.error);
  if (!(deviation.error <= kBound) || deviation.wrongClass)
    return fail(ExitCode::Mismatch, text + ", expected at most 1e-05");
  return text;
}

static HealthReport examineProgram() {
  llvm::Expected<std::string> found = runProgram();
  if (!found)
    return {"a program", llvm::toString(found.takeError()), false};
  return {"a program", *found, true};
}

std::vector<HealthReport> examine() {
  std::vector<HealthReport> result;
  result.push_back(examineProcessor());
  result.push_back(
      {"threads", std::to_string(std::thread::hardware_concurrency()), true});
  result.push_back(examineCaches());
  result.push_back(examineMemory());
  llvm::Expected<CpuTarget> target = detectTarget();
  if (target) {
    result.push_back({"target",
                      target->name() + ", " +
                          std::to_string(target->facts.vectorRegisters) +
                          " registers of " +
                          std::to_string(target->facts.vectorBits) + " bits",
                      true});
    result.push_back(examineRates(*target));
  } else {
    result.push_back({"target", llvm::toString(target.takeError()), false});
  }
  result.push_back({"LLVM", LLVM_VERSION_STRING,
                    llvm::StringRef(LLVM_VERSION_STRING) == "19.1.7"});
  size_t operators = readableOperators().size();
  result.push_back(
      {"ONNX operators", std::to_string(operators), operators > 0});
  result.push_back(examineProgram());
  return result;
}

} // namespace refold
