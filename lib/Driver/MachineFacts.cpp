// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/MachineFacts.h"
#include "KeptJson.h"
#include "Probe.h"
#include "refold/Target/CPU/DetectTarget.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/TargetParser/Host.h"
#include <chrono>
#include <cmath>
#include <thread>
#include <unistd.h>

namespace refold {

namespace {
/// A rate with its name in files and answers.
struct NamedRate {
  llvm::StringLiteral name;
  double MachineRates::*rate;
  bool mayBeMissing;
};
constexpr NamedRate kRates[] = {
    {"flops", &MachineRates::flops, false},
    {"tile_flops", &MachineRates::tileFlops, false},
    {"exponentials", &MachineRates::exponentials, false},
    {"bf16_flops", &MachineRates::bf16Flops, true},
    {"int8_flops", &MachineRates::int8Flops, true},
    {"read_all", &MachineRates::readAll, false},
    {"write", &MachineRates::write, false},
    {"write_all", &MachineRates::writeAll, false},
    {"copy", &MachineRates::copy, false},
    {"copy_all", &MachineRates::copyAll, false},
};
constexpr llvm::StringLiteral kLevels[] = {"read_l1", "read_l2", "read_l3",
                                           "read_memory"};
} // namespace

/// "model name : ..." of the kernel, else what LLVM takes it for.
static std::string processorName() {
  auto file = llvm::MemoryBuffer::getFileAsStream("/proc/cpuinfo");
  std::string name = llvm::sys::getHostCPUName().str();
  if (!file)
    return name;
  llvm::StringRef rest = (*file)->getBuffer();
  while (!rest.empty()) {
    auto [line, next] = rest.split('\n');
    auto [key, value] = line.split(':');
    if (key.trim() == "model name")
      return value.trim().str() + " (" + name + ")";
    rest = next;
  }
  return name;
}

static std::vector<std::string> usableFeatures() {
  std::vector<std::string> found;
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  for (llvm::StringRef name :
       {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vnni",
        "avx512bf16", "avxvnni", "amx-tile", "amx-int8", "amx-bf16"})
    if (features.lookup(name))
      found.push_back(name.str());
  return found;
}

static void addCaches(MachineRates &rates) {
  unsigned level = 0;
  for (int64_t &bytes : rates.cacheBytes)
    if (int64_t found = refold::cacheBytes(++level))
      bytes = found;
  rates.cores = std::max(1u, std::thread::hardware_concurrency());
}

static MachineFacts describeMachine(const CpuTarget &target) {
  MachineFacts facts;
  facts.processor = processorName();
  facts.features = usableFeatures();
  facts.rates = MachineRates::defaults(target.facts);
  return facts;
}

/// A new meaning of a rate is a new version.
static std::string keyOf(const MachineFacts &facts, const CpuTarget &target) {
  return "machine facts 4; " + facts.processor + "; " +
         std::to_string(std::thread::hardware_concurrency()) + " cores; " +
         target.name() + (target.facts.multipliesTiles ? "; tiles" : "");
}

static std::optional<double> rateIn(const llvm::json::Object &from,
                                    llvm::StringRef name) {
  constexpr double kLeast = 1.0, kMost = 1e15;
  std::optional<double> rate = from.getNumber(name);
  bool makesSense =
      rate && (*rate == 0.0 || (*rate >= kLeast && *rate < kMost));
  return makesSense ? rate : std::nullopt;
}

/// False where one is missing or makes no sense.
static bool readRates(const llvm::json::Object &from, MachineRates &rates) {
  for (const NamedRate &named : kRates) {
    std::optional<double> rate = rateIn(from, named.name);
    if (!rate || (*rate <= 0.0 && !named.mayBeMissing))
      return false;
    rates.*named.rate = *rate;
  }
  for (auto [name, level] : llvm::zip_equal(kLevels, rates.read)) {
    std::optional<double> rate = rateIn(from, name);
    if (!rate || *rate <= 0.0)
      return false;
    level = *rate;
  }
  return true;
}

static llvm::json::Object ratesToJson(const MachineRates &rates) {
  llvm::json::Object result;
  for (const NamedRate &named : kRates)
    result[named.name] = rates.*named.rate;
  for (auto [name, level] : llvm::zip_equal(kLevels, rates.read))
    result[name] = level;
  return result;
}

static constexpr llvm::StringLiteral kKind = "machines";

std::string MachineFacts::source(const CpuTarget &target) const {
  return isMeasured ? "measured on this machine"
                    : "defaults of " + target.name();
}

MachineFacts knownFacts(const CpuTarget &target) {
  MachineFacts facts = describeMachine(target);
  std::optional<llvm::json::Object> kept =
      findKept(kKind, keyOf(facts, target));
  MachineRates rates = facts.rates;
  if (kept && readRates(*kept, rates)) {
    facts.rates = rates;
    facts.isMeasured = true;
    addCaches(facts.rates);
  }
  return facts;
}

llvm::Expected<MachineFacts> measureFacts(const CpuTarget &target) {
  auto begin = std::chrono::steady_clock::now();
  MachineFacts facts = describeMachine(target);
  MachineRates &rates = facts.rates;
  addCaches(rates);
  for (int64_t threads : {int64_t(1), rates.cores}) {
    llvm::Expected<Probe> probe =
        Probe::create(target, threads, Probe::Effort::Quick);
    if (!probe)
      return probe.takeError();
    double memory = static_cast<double>(threads) * 2.0 * rates.cacheBytes[2];
    if (threads == rates.cores) {
      rates.readAll = probe->bytesPerMs(memory);
      rates.writeAll = probe->writtenPerMs();
      rates.copyAll = probe->copiedPerMs();
    }
    if (threads != 1)
      continue;
    rates.flops = probe->operationsPerMs();
    rates.tileFlops = probe->tileOperationsPerMs();
    rates.exponentials = probe->exponentialsPerMs();
    // The dot products are those of 512 bits, which other forms do not have.
    bool hasDots = target.instructionSet == InstructionSet::AVX512;
    rates.bf16Flops = hasDots ? probe->bf16PerMs() : 0.0;
    rates.int8Flops = hasDots ? probe->int8PerMs() : 0.0;
    for (auto [level, bytes] : llvm::enumerate(rates.cacheBytes))
      rates.read[level] = probe->bytesPerMs(0.25 * static_cast<double>(bytes));
    rates.read[3] = probe->bytesPerMs(memory);
    rates.write = probe->writtenPerMs();
    rates.copy = probe->copiedPerMs();
  }
  facts.isMeasured = true;
  facts.keptIn = keep(kKind, keyOf(facts, target), ratesToJson(rates));
  facts.probeMs = std::chrono::duration<double, std::milli>(
                      std::chrono::steady_clock::now() - begin)
                      .count();
  return facts;
}

llvm::json::Object toJson(const MachineFacts &facts) {
  llvm::json::Object rates = ratesToJson(facts.rates);
  const auto &caches = facts.rates.cacheBytes;
  return llvm::json::Object{
      {"processor", facts.processor},
      {"features", llvm::json::Array(facts.features)},
      {"cores", facts.rates.cores},
      {"cache_bytes", llvm::json::Array{caches[0], caches[1], caches[2]}},
      {"per_ms", std::move(rates)},
      {"pays", llvm::json::Object{{"bf16", facts.rates.paysBf16()},
                                  {"int8", facts.rates.paysInt8()}}},
      {"measured", facts.isMeasured},
      {"probe_ms", facts.probeMs},
      {"kept_in", facts.keptIn}};
}

} // namespace refold
