// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "GpuText.h"
#include "Output.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

namespace refold {

static double numberOf(const llvm::json::Object &object, llvm::StringRef key) {
  return object.getNumber(key).value_or(0.0);
}
static int64_t integerOf(const llvm::json::Object &object,
                         llvm::StringRef key) {
  return object.getInteger(key).value_or(0);
}
static llvm::StringRef textOf(const llvm::json::Object &object,
                              llvm::StringRef key) {
  return object.getString(key).value_or("");
}
static int64_t firstOf(const llvm::json::Object &object, llvm::StringRef key) {
  const llvm::json::Array *list = object.getArray(key);
  return list && !list->empty() ? list->front().getAsInteger().value_or(0) : 0;
}

/// "0.0312 ms", "3.1 us".
static std::string formatMs(double ms) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (ms < 0.1)
    os << llvm::format("%.3g us", ms * 1000.0);
  else
    os << llvm::format("%.4g ms", ms);
  return text;
}

static void printGrid(const llvm::json::Object &launch) {
  llvm::raw_ostream &os = llvm::outs();
  int64_t grid = firstOf(launch, "grid"),
          whole = integerOf(launch, "whole_grid"),
          cluster = integerOf(launch, "cluster");
  os << "    grid of " << grid << (grid == 1 ? " block" : " blocks");
  if (whole > grid)
    os << " for the work of " << whole << ", as many as run at once";
  os << ", " << firstOf(launch, "block") << " threads each";
  if (cluster > 1)
    os << ", in clusters of " << cluster;
  if (int64_t parts = integerOf(launch, "parts"); parts > 1)
    os << "; " << parts << " blocks share each of "
       << integerOf(launch, "groups")
       << (integerOf(launch, "groups") == 1 ? " group" : " groups")
       << " and are merged";
  os << "\n";
}

static void printResources(const llvm::json::Object &launch) {
  llvm::raw_ostream &os = llvm::outs();
  const llvm::json::Object *code = launch.getObject("code");
  os << "    shared memory "
     << formatBytes(numberOf(launch, "dynamic_shared_bytes")) << " dynamic";
  if (code) {
    os << ", " << formatBytes(numberOf(*code, "shared_bytes")) << " static; "
       << integerOf(*code, "registers") << " registers a thread, ";
    int64_t stack = integerOf(*code, "stack_bytes");
    int64_t loads = integerOf(*code, "local_loads"),
            stores = integerOf(*code, "local_stores");
    if (stack + loads + stores == 0)
      os << "nothing spilled";
    else
      os << formatBytes(double(stack)) << " of stack, " << stores
         << " stores and " << loads << " loads of it";
    os << ", " << integerOf(*code, "instructions") << " instructions";
  }
  if (double bytes = numberOf(launch, "workspace_bytes"))
    os << "; workspace " << formatBytes(bytes);
  os << "\n";
  if (const llvm::json::Object *occupancy = launch.getObject("occupancy")) {
    int64_t blocks = integerOf(*occupancy, "blocks");
    os << "    a multiprocessor has room for " << blocks
       << (blocks == 1 ? " block, " : " blocks, ")
       << integerOf(*occupancy, "warps") << " of "
       << integerOf(*occupancy, "most_warps") << " warps: bound by "
       << textOf(*occupancy, "bound");
    if (!code)
      os << ", registers not counted";
    if (launch.get("waves"))
      os << llvm::format("; %.3g waves", numberOf(launch, "waves"));
    os << "\n";
  }
}

static void printEntries(const llvm::json::Object &launch) {
  llvm::raw_ostream &os = llvm::outs();
  const llvm::json::Array *entries = launch.getArray("entries");
  if (!entries)
    return;
  size_t behind = 0;
  for (const llvm::json::Value &value : *entries) {
    const llvm::json::Object &entry = *value.getAsObject();
    if (entry.getBoolean("taken").value_or(false))
      continue;
    if (textOf(entry, "why") == "stands behind")
      ++behind;
    else
      os << "    passed over: " << textOf(entry, "name") << " ("
         << textOf(entry, "why") << ")\n";
  }
  if (behind)
    os << "    " << behind << (behind == 1 ? " more stands" : " more stand")
       << " behind it, for other shapes\n";
}

static void printWork(const llvm::json::Object &launch) {
  llvm::raw_ostream &os = llvm::outs();
  const llvm::json::Object *bytes = launch.getObject("bytes"),
                           *work = launch.getObject("work");
  if (!bytes || !work)
    return;
  os << "  at this shape: " << formatBytes(numberOf(*bytes, "read"))
     << " read, " << formatBytes(numberOf(*bytes, "written")) << " written";
  if (double again = numberOf(*bytes, "read_again"))
    os << ", " << formatBytes(again) << " read again";
  os << "; " << formatBytes(numberOf(*bytes, "through_cache"))
     << " through the second level cache\n    ";
  if (double products = numberOf(*work, "products"))
    os << formatCount(products) << " multiply-adds by " << textOf(*work, "unit")
       << ", ";
  os << formatCount(numberOf(*work, "slots")) << " other instructions of lanes";
  for (const char *kind : {"exponentials", "functions", "divisions"})
    if (double count = numberOf(*work, kind))
      os << ", " << formatCount(count) << " " << kind;
  if (double walked = numberOf(*work, "walked"); walked < 1.0)
    os << llvm::format("; %.0f %% of the stream is walked", 100.0 * walked);
  os << "\n";
}

static void printTime(const llvm::json::Object &launch) {
  llvm::raw_ostream &os = llvm::outs();
  os << "  predicted: " << formatMs(numberOf(launch, "predicted_ms"))
     << ", bound by " << textOf(launch, "bound");
  if (const llvm::json::Object *parts = launch.getObject("parts_ms")) {
    std::vector<std::string> words;
    for (const char *part : {"memory", "cache", "products", "slots",
                             "functions", "waiting", "launch"})
      if (double ms = numberOf(*parts, part))
        words.push_back(std::string(part) + " " + formatMs(ms));
    os << " (" << llvm::join(words, ", ") << ")";
  }
  os << "\n";
}

void printLaunch(const llvm::json::Object &launch, bool isOnce) {
  llvm::raw_ostream &os = llvm::outs();
  os << "  kernel " << textOf(launch, "kernel") << " for "
     << textOf(launch, "target") << ": " << textOf(launch, "form");
  if (llvm::StringRef refused = textOf(launch, "refused"); !refused.empty()) {
    os << ", refused at this shape: " << refused << "\n";
    printEntries(launch);
    return;
  }
  os << ", entry " << textOf(launch, "entry") << "\n";
  if (!textOf(launch, "what").empty())
    os << "    " << textOf(launch, "what") << "\n";
  if (firstOf(launch, "grid") == 0) {
    os << "    nothing to launch at this shape\n";
    return;
  }
  printGrid(launch);
  printResources(launch);
  printEntries(launch);
  printWork(launch);
  if (isOnce)
    os << "  of weights alone: done once, before the first run\n";
  else
    printTime(launch);
}

/// "; cuBLASLt computes it in its place", or what it would take for that.
static std::string libraryText(const llvm::json::Object &launch) {
  const llvm::json::Object *library = launch.getObject("library");
  if (!library || !library->getBoolean("expected_quicker").value_or(false))
    return "";
  return library->getBoolean("wanted").value_or(false)
             ? "; cuBLASLt computes it in its place, where the GPU's host has "
               "it"
             : "; cuBLASLt would with REFOLD_CUBLASLT=on";
}

void printShortLaunch(const StepWork &step, const llvm::json::Object *launch) {
  llvm::raw_ostream &os = llvm::outs();
  os << "  " << llvm::left_justify(step.kind, 8)
     << llvm::left_justify(step.name, 24) << " ";
  if (!launch) {
    os << "no launch\n";
    return;
  }
  if (llvm::StringRef refused = textOf(*launch, "refused"); !refused.empty()) {
    os << "refused at this shape: " << refused << "\n";
    return;
  }
  if (llvm::StringRef entry = textOf(*launch, "entry"); !entry.empty())
    os << entry << ", grid " << firstOf(*launch, "grid") << " x "
       << firstOf(*launch, "block") << ", shared memory "
       << formatBytes(numberOf(*launch, "dynamic_shared_bytes"));
  else
    os << textOf(*launch, "form");
  if (int64_t parts = integerOf(*launch, "parts"); parts > 1)
    os << ", " << parts << " parts";
  os << "; " << formatBytes(step.bytesRead + step.bytesWritten);
  if (step.isOnce)
    os << "; of weights alone: done once, before the first run";
  else
    os << ", " << formatMs(step.predicted.ms) << " by "
       << textOf(*launch, "bound");
  os << libraryText(*launch) << "\n";
}

void printCard(const GpuCard &card, const GpuPlan &plan) {
  const package::GpuFacts &facts = card.facts;
  llvm::outs() << "card: " << facts.name << " (" << card.source() << "), "
               << facts.architecture() << ", " << facts.multiprocessors
               << " multiprocessors of "
               << llvm::format("%.2f GHz, %.2f TB/s read and %.2f copied, ",
                               card.rates.cycles / 1e6, card.rates.memory / 1e9,
                               card.rates.copied / 1e9)
               << formatBytes(double(facts.l2Bytes)) << " second level cache, "
               << formatBytes(double(facts.sharedBytesPerBlock))
               << " shared memory a block\n"
               << (plan.hasCode ? "machine code: " : "no machine code: ")
               << plan.code << "\n";
}

llvm::json::Object toJson(const GpuCard &card) {
  const package::GpuFacts &facts = card.facts;
  const GpuRates &rates = card.rates;
  return llvm::json::Object{
      {"name", facts.name},
      {"assumed", card.isAssumed},
      {"source", card.source()},
      {"architecture", facts.architecture()},
      {"multiprocessors", facts.multiprocessors},
      {"cache_bytes", facts.l2Bytes},
      {"shared_bytes_per_block", facts.sharedBytesPerBlock},
      {"memory_bytes", facts.memoryBytes},
      {"rates", llvm::json::Object{{"cycles", rates.cycles},
                                   {"read_bytes", rates.memory},
                                   {"copied_bytes", rates.copied},
                                   {"cache_bytes", rates.cache},
                                   {"multiply_adds", rates.multiplied}}}};
}

} // namespace refold
