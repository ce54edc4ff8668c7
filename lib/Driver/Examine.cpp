// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "refold/Driver/Compare.h"
#include "refold/Driver/Inputs.h"
#include "refold/Driver/MachineFacts.h"
#include "refold/Support/Error.h"
#include "refold/Target/CPU/DetectTarget.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/Format.h"
#include "llvm/TargetParser/Host.h"
#include <thread>
#include <unistd.h>

namespace refold {

static HealthReport examineMemory() {
  double bytes =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  int64_t mebibytes = static_cast<int64_t>(bytes / (1 << 20));
  return {"memory", std::to_string(mebibytes) + " MiB", mebibytes >= 1024};
}

static HealthReport examineCaches() {
  std::string text;
  for (unsigned level : {1, 2, 3}) {
    int64_t kibibytes = cacheBytes(level) / 1024;
    text += (text.empty() ? "L" : ", L") + std::to_string(level) + " " +
            (kibibytes > 0 ? std::to_string(kibibytes) + " KiB" : "unknown");
  }
  return {"caches", text, true};
}

/// In units of a thousand million a second.
static std::string giga(double perMs, const char *what) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.1f ", perMs * 1e-6) << what;
  return text;
}

static std::string dotText(double rate, double flops, llvm::StringRef type) {
  std::string text = "; " + type.str() + " dot product ";
  if (rate <= 0.0)
    return text + "missing";
  llvm::raw_string_ostream(text)
      << giga(rate, "Gop/s") << llvm::format(" (%.2fx fma)", rate / flops);
  return text;
}

static void describe(const MachineFacts &facts,
                     std::vector<HealthReport> &result) {
  const MachineRates &rates = facts.rates;
  auto add = [&](llvm::StringRef what, const std::string &found) {
    result.push_back({what.str(), found, true});
  };
  add("arithmetic", giga(rates.flops, "GFLOP/s of f32 fma a core, ") +
                        giga(rates.tileFlops, "in register tiles; ") +
                        giga(rates.exponentials, "G exp/s") +
                        dotText(rates.bf16Flops, rates.flops, "bf16") +
                        dotText(rates.int8Flops, rates.flops, "int8"));
  add("reading", "GB/s a core from L1 " + giga(rates.read[0], "") + "L2 " +
                     giga(rates.read[1], "") + "L3 " + giga(rates.read[2], "") +
                     "memory " + giga(rates.read[3], "") + "all cores " +
                     giga(rates.readAll, ""));
  add("writing", "GB/s past the caches, a core " + giga(rates.write, "") +
                     "all " + giga(rates.writeAll, "") + "copying " +
                     giga(rates.copy, "") + "all " + giga(rates.copyAll, ""));
}

static void examineMachine(const CpuTarget &target, bool probes,
                           std::optional<MachineFacts> &machine,
                           std::vector<HealthReport> &result) {
  MachineFacts known = knownFacts(target);
  result.push_back({"processor",
                    known.processor + ": " + llvm::join(known.features, " "),
                    true});
  if (probes || !known.isMeasured) {
    llvm::Expected<MachineFacts> measured = measureFacts(target);
    if (!measured) {
      result.push_back({"rates", llvm::toString(measured.takeError()), false});
      return;
    }
    known = std::move(*measured);
    std::string text;
    llvm::raw_string_ostream(text)
        << llvm::format("measured in %.0f ms, ", known.probeMs)
        << (known.keptIn.empty() ? "kept nowhere" : "kept in " + known.keptIn);
    result.push_back({"rates", text, true});
  } else {
    result.push_back({"rates", "as measured before (--probe: again)", true});
  }
  describe(known, result);
  machine = std::move(known);
}

/// Attention of a few rows: two contractions, a softmax and a mask through
/// every stage of the house.
static constexpr llvm::StringLiteral kProgram =
    "check(q[m,d], k[n,d], v[n,d]) -> o\n"
    "  s = where(n <= m, sum(d: q*k), -inf)\n"
    "  p = exp(s - max(n: s))\n"
    "  o[m,d] = sum(n: p*v) / sum(n: p)\n";

static llvm::Expected<std::string> runProgram(llvm::StringRef target) {
  std::unique_ptr<mlir::MLIRContext> context = makeContext();
  auto judged = loadFoldText(*context, kProgram, "doctor.fold");
  if (!judged)
    return judged.takeError();
  auto loaded = loadFoldText(*context, kProgram, "doctor.fold");
  if (!loaded)
    return loaded.takeError();
  CompileOptions options;
  options.target = target.str();
  auto program = compile(std::move(*loaded), options);
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

static HealthReport examineProgram(llvm::StringRef target) {
  llvm::Expected<std::string> found = runProgram(target);
  if (!found)
    return {"a program", llvm::toString(found.takeError()), false};
  return {"a program", *found, true};
}

std::vector<HealthReport> examine(llvm::StringRef wanted, bool probes,
                                  std::optional<MachineFacts> &machine) {
  std::vector<HealthReport> result;
  result.push_back(
      {"threads", std::to_string(std::thread::hardware_concurrency()), true});
  result.push_back(examineCaches());
  result.push_back(examineMemory());
  llvm::Expected<CpuTarget> target = detectTarget(wanted);
  if (target) {
    result.push_back(
        {"target",
         target->name() + ", " + std::to_string(target->facts.vectorRegisters) +
             " registers of " + std::to_string(target->facts.vectorBits) +
             " bits" + (target->facts.multipliesTiles ? ", matrix tiles" : ""),
         true});
    examineMachine(*target, probes, machine, result);
  } else {
    result.push_back({"target", llvm::toString(target.takeError()), false});
  }
  result.push_back({"LLVM", LLVM_VERSION_STRING,
                    llvm::StringRef(LLVM_VERSION_STRING) == "19.1.7"});
  size_t operators = readableOperators().size();
  result.push_back(
      {"ONNX operators", std::to_string(operators), operators > 0});
  result.push_back(examineProgram(wanted));
  return result;
}

} // namespace refold
