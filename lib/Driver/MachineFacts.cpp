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
#include <functional>
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
/// Working sets by the size of L3, and what they are called.
struct AroundCache {
  double ofCache;
  llvm::StringLiteral name;
};
constexpr AroundCache kAround[] = {
    {0.5, "read_half_l3"}, {1.0, "read_whole_l3"}, {2.0, "read_twice_l3"}};
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
  return "machine facts 5; " + facts.processor + "; " +
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
  auto readLevel = [&](llvm::StringRef name, double &level) {
    std::optional<double> rate = rateIn(from, name);
    if (!rate || *rate <= 0.0)
      return false;
    level = *rate;
    return true;
  };
  for (auto [name, level] : llvm::zip_equal(kLevels, rates.read))
    if (!readLevel(name, level))
      return false;
  for (auto [around, level] : llvm::zip_equal(kAround, rates.readAround))
    if (!readLevel(around.name, level))
      return false;
  return true;
}

static llvm::json::Object ratesToJson(const MachineRates &rates) {
  llvm::json::Object result;
  for (const NamedRate &named : kRates)
    result[named.name] = rates.*named.rate;
  for (auto [name, level] : llvm::zip_equal(kLevels, rates.read))
    result[name] = level;
  for (auto [around, level] : llvm::zip_equal(kAround, rates.readAround))
    result[around.name] = level;
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

/// Of the third cache and the memory, which others use too: the usual rate, by
/// the median of some rounds that lie apart. Zen 5, a virtual machine with two
/// cores: for some 50 ms at a time one reads memory with a third of its rate,
/// and both copy with 60 GB/s or with 110.
static void measureShared(Probe &one, Probe &all, MachineRates &rates) {
  constexpr int kTimes = 7;
  auto cache = static_cast<double>(rates.cacheBytes[2]);
  double memory = Probe::streamedBytes(rates);
  std::vector<std::pair<double *, std::function<double()>>> probes = {
      {&rates.read[2], [&] { return one.usualBytesPerMs(0.25 * cache); }},
      {&rates.read[3], [&] { return one.usualBytesPerMs(memory); }},
      {&rates.readAll, [&] { return all.usualBytesPerMs(memory); }},
      {&rates.write, [&] { return one.writtenPerMs(memory); }},
      {&rates.writeAll, [&] { return all.writtenPerMs(memory); }},
      {&rates.copy, [&] { return one.copiedPerMs(memory); }},
      {&rates.copyAll, [&] { return all.copiedPerMs(memory); }}};
  for (auto [around, rate] : llvm::zip_equal(kAround, rates.readAround)) {
    double bytes = std::min(around.ofCache * cache, memory);
    probes.emplace_back(&rate,
                        [&, bytes] { return one.usualBytesPerMs(bytes); });
  }
  std::vector<std::vector<double>> found(probes.size());
  for (int time = 0; time < kTimes; ++time)
    for (auto [probe, list] : llvm::zip_equal(probes, found))
      list.push_back(probe.second());
  for (auto [probe, list] : llvm::zip_equal(probes, found)) {
    llvm::sort(list);
    *probe.first = list[list.size() / 2];
  }
}

/// The higher of what was measured before and now: others on the machine slow
/// it down for minutes, in which all rounds of a probe lie (Zen 5, a virtual
/// machine: all cores read memory with 39 GB/s, half an hour later with 66, the
/// day before with 87), and nothing makes it faster than it is.
static void keepHigher(const llvm::json::Object &kept, MachineRates &rates) {
  MachineRates before = rates;
  if (!readRates(kept, before))
    return;
  auto raise = [](double &rate, double other) { rate = std::max(rate, other); };
  for (const NamedRate &named : kRates)
    raise(rates.*named.rate, before.*named.rate);
  for (auto [rate, other] : llvm::zip_equal(rates.read, before.read))
    raise(rate, other);
  for (auto [rate, other] :
       llvm::zip_equal(rates.readAround, before.readAround))
    raise(rate, other);
}

llvm::Expected<MachineFacts> measureFacts(const CpuTarget &target) {
  auto begin = std::chrono::steady_clock::now();
  MachineFacts facts = describeMachine(target);
  MachineRates &rates = facts.rates;
  addCaches(rates);
  auto one = Probe::create(target, 1, Probe::Effort::Quick);
  if (!one)
    return one.takeError();
  auto all = Probe::create(target, rates.cores, Probe::Effort::Quick);
  if (!all)
    return all.takeError();
  rates.flops = one->operationsPerMs();
  rates.tileFlops = one->tileOperationsPerMs();
  rates.exponentials = one->exponentialsPerMs();
  // The dot products are those of 512 bits, which other forms do not have.
  bool hasDots = target.instructionSet == InstructionSet::AVX512;
  rates.bf16Flops = hasDots ? one->bf16PerMs() : 0.0;
  rates.int8Flops = hasDots ? one->int8PerMs() : 0.0;
  for (unsigned level : {0, 1}) // of the core alone
    rates.read[level] =
        one->bytesPerMs(0.25 * static_cast<double>(rates.cacheBytes[level]));
  measureShared(*one, *all, rates);
  if (auto kept = findKept(kKind, keyOf(facts, target)))
    keepHigher(*kept, rates);
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
