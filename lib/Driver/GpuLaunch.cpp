// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One launch in words and numbers: what it is, what it takes of a
// multiprocessor, what it moves and computes, how long that is predicted to
// take.
#include "GpuLaunch.h"
#include "refold/Support/Error.h"
#include "refold/Target/CUDA/DescribeLaunch.h"
#include <cmath>

namespace refold {

namespace {
/// What a launch moves and computes, with what its entry adds to the formula:
/// rows that are read again, rectangles that are not full.
class LaunchCounter {
public:
  LaunchCounter(const GpuLaunchContext &context, const CudaCall &call,
                const Occupancy &occupancy)
      : launch(context.launch), kernel(*context.kernel), entry(*context.entry),
        work(context.work), counts(std::get<GpuWork>(context.work.counts)),
        rates(context.card.rates), call(call) {
    result.workingSet = context.workingSet;
    result.residentBlocks = double(std::max<int64_t>(occupancy.blocks, 1));
    if (launch.way->blocksPerUnit > 0)
      result.residentBlocks =
          std::min(result.residentBlocks, double(launch.way->blocksPerUnit));
  }
  GpuLaunchWork count();
  double readAgain() const { return again; }
  double walked() const;

private:
  GpuUnit unitOf() const;
  double fullness() const;
  void countRows();
  void countTiles();
  void countCache();
  double blocks() const {
    return double(std::max<int64_t>(launch.wholeBlocks, 1));
  }
  /// Bytes that are not in the second level cache, of such a distance.
  double missing(double bytes, double distance) const {
    double served =
        rates.cacheBytes > 0.0 ? 1.5 - distance / rates.cacheBytes : 0.0;
    return bytes * (1.0 - std::clamp(served, 0.0, 1.0));
  }

  const package::DescribedLaunch &launch;
  const CudaKernel &kernel;
  const CudaEntry &entry;
  const StepWork &work;
  const GpuWork &counts;
  const GpuRates &rates;
  const CudaCall &call;
  GpuLaunchWork result;
  double again = 0.0; ///< bytes of the stream that are asked for once more
};
} // namespace

/// Of the stream's places, what blocks walk: their rows end at different ones.
double LaunchCounter::walked() const {
  if (counts.walked >= 1.0 || !kernel.tiles || call.length == 0)
    return counts.walked;
  return std::min(
      counts.walked + double(entry.rows) / 2.0 / double(call.length), 1.0);
}

GpuUnit LaunchCounter::unitOf() const {
  bool isOfWords = kernel.product && entry.copied > 0 && entry.roles == 0;
  bool isFlat = kernel.product && entry.roles == 0 && entry.sharedBytes == 0;
  if (isOfWords || isFlat ||
      (!kernel.tiles && !kernel.rowProduct && !kernel.product &&
       !kernel.f8Product))
    return GpuUnit::Lanes;
  if (entry.roles == 0)
    return GpuUnit::Warps;
  return kernel.f8Product ? GpuUnit::Bytes : GpuUnit::WarpGroups;
}

/// Products of whole rectangles, of those that are asked for.
double LaunchCounter::fullness() const {
  auto whole = [](int64_t extent, int64_t of) {
    if (extent <= 0 || of <= 0)
      return 1.0;
    return std::ceil(double(extent) / double(of)) * double(of) / double(extent);
  };
  if (kernel.tiles) {
    constexpr int64_t kUnit = 16;
    double rows = entry.hasParts()
                      ? double(call.groups) * entry.rows /
                            std::max(double(call.batch * call.rows), 1.0)
                      : whole(call.rows, entry.rows);
    return rows * whole(call.length, entry.vectors) *
           (whole(call.depth, kUnit) + whole(call.columns, kUnit)) / 2.0;
  }
  if (kernel.rowProduct)
    return whole(call.rows, entry.rows) * whole(call.length, entry.columns);
  if (kernel.product || kernel.f8Product)
    return whole(call.rows, entry.rows) * whole(call.columns, entry.columns);
  return 1.0;
}

/// Rows that are nowhere between sweeps are read again, from memory where
/// others came between.
void LaunchCounter::countRows() {
  double rows = double(std::max<int64_t>(call.rows, 1));
  double ofRow = counts.streamBytes / rows;
  bool isNowhere = entry.place == CudaEntry::Nowhere || entry.hasParts();
  if (isNowhere && counts.sweeps > 1) {
    // What a block has last is still there, and is read first.
    double held = double(entry.chunk()) * double(call.parts) * ofRow /
                  std::max(double(call.length), 1.0);
    again = double(counts.sweeps - 1) * rows * std::max(ofRow - held, 0.0);
    double atOnce = entry.hasParts()
                        ? rows
                        : std::min(rows, rates.units * result.residentBlocks *
                                             double(entry.rows));
    result.bytesRead += missing(again, atOnce * ofRow);
  }
  // What all rows read stays in a multiprocessor's first cache where it fits.
  constexpr double kFirstCache = 128.0 * 1024;
  if (entry.place != CudaEntry::Ring && rows > 0.0)
    result.cacheBytes +=
        counts.sharedBytes * double(counts.sweeps) *
        std::clamp(counts.sharedBytes / rows / kFirstCache - 0.5, 0.0, 1.0);
  double ofElement = ofRow / std::max(double(call.length), 1.0);
  double held = double(entry.threads) * entry.vectors * entry.width * ofElement;
  double chunks = entry.stages > 1 ? entry.stages - 1 : 1;
  if (entry.place == CudaEntry::Shared || entry.place == CudaEntry::Split ||
      entry.place == CudaEntry::Lanes || entry.place == CudaEntry::Ring)
    result.bytesOnTheWay =
        std::max(held, ofRow / double(std::max(entry.blocks, 1)));
  else
    result.bytesOnTheWay = held * chunks;
  result.bytesOnTheWay *= double(std::max(entry.rows, 1));
}

/// Blocks of rows read the whole stream each, from the second level cache.
void LaunchCounter::countTiles() {
  double ofPlace = 2.0 * double(call.depth + call.columns);
  double streams = entry.hasParts()
                       ? double(call.groups)
                       : double(call.batch) *
                             std::ceil(double(call.rows) / double(entry.rows));
  result.cacheBytes += streams * double(call.length) * walked() * ofPlace;
  if (entry.hasParts()) // two to four tiles are under way
    result.bytesOnTheWay = 2.0 * double(entry.vectors) * ofPlace;
}

/// Rectangles of a product read both sides anew.
void LaunchCounter::countCache() {
  double bytes = kernel.f8Product ? 1.0 : 2.0;
  if (unitOf() == GpuUnit::Lanes && kernel.product)
    bytes = double(kernel.operands[0].elementBytes);
  int64_t sum = kernel.rowProduct ? call.depth : call.length;
  int64_t columns = kernel.rowProduct ? call.length : call.columns;
  double rectangles =
      double(std::max<int64_t>(call.batch, 1)) *
      std::ceil(double(call.rows) / std::max(double(entry.rows), 1.0)) *
      std::ceil(double(columns) / std::max(double(entry.columns), 1.0));
  result.cacheBytes +=
      rectangles * double(sum) * double(entry.rows + entry.columns) * bytes;
}

GpuLaunchWork LaunchCounter::count() {
  result.unit = unitOf();
  // Arrays of the caller come from memory, what other steps have just made from
  // wherever it fits.
  result.bytesRead = work.bytesRead - work.passedRead +
                     missing(work.passedRead, result.workingSet);
  result.bytesWritten = work.bytesWritten - work.passedWritten +
                        missing(work.passedWritten, result.workingSet);
  result.isEmpty = launch.sizes.isEmpty();
  result.isExchanged = call.parts > 1;
  result.pieces = blocks();
  result.warps = double(launch.sizes.block[0]) / 32.0;
  bool isRows = !kernel.tiles && !kernel.product && !kernel.rowProduct &&
                !kernel.f8Product;
  if (isRows) {
    countRows();
    result.cacheBytes += work.bytesRead + again;
    // Blocks that do many rows do as many as they can.
    if (launch.way->blocksPerUnit > 0 || entry.turnRows > 0)
      result.pieces =
          std::min(result.pieces, rates.units * result.residentBlocks);
  } else if (kernel.tiles) {
    countTiles();
  } else {
    countCache();
  }
  result.cacheBytes += work.bytesWritten;
  result.products = counts.products * walked() * fullness();
  GpuWork ofLaunch = counts;
  ofLaunch.walked = walked();
  result.slots = slotsOf(ofLaunch);
  result.functions = functionsOf(ofLaunch);
  return result;
}

static llvm::json::Array toJson(const std::array<int64_t, 3> &extents) {
  return llvm::json::Array{extents[0], extents[1], extents[2]};
}

/// Every entry of the kernel, in the order in which they are asked.
static llvm::json::Array entriesOf(const GpuLaunchContext &context) {
  llvm::json::Array entries;
  const CudaKernel &kernel = *context.kernel;
  for (auto [entry, holds] : llvm::zip(kernel.entries, context.launch.holds)) {
    bool isTaken = &entry == context.entry;
    bool isBehind = context.entry && &entry > context.entry;
    entries.push_back(llvm::json::Object{
        {"name", entry.name},
        {"what", describeEntry(kernel, entry)},
        {"taken", isTaken},
        {"why", isTaken    ? "the first that takes this shape"
                : isBehind ? "stands behind"
                : holds    ? "a multiprocessor has no room for it"
                           : whyNot(kernel, entry, context.step.words)}});
  }
  return entries;
}

static const char *nameOf(GpuUnit unit) {
  switch (unit) {
  case GpuUnit::Lanes:
    return "multiply-adds of lanes";
  case GpuUnit::Warps:
    return "mma.sync";
  case GpuUnit::WarpGroups:
    return "wgmma";
  case GpuUnit::Bytes:
    return "wgmma of 8 bits";
  }
  return "";
}

static llvm::json::Object codeOf(const package::EntryCode &code) {
  return llvm::json::Object{
      {"registers", code.registers},      {"stack_bytes", code.stackBytes},
      {"shared_bytes", code.sharedBytes}, {"instructions", code.instructions},
      {"local_loads", code.localLoads},   {"local_stores", code.localStores}};
}

static void addCounts(const GpuLaunchContext &context, const CudaCall &call,
                      const Occupancy &occupancy, llvm::json::Object &answer,
                      GpuCost &cost) {
  LaunchCounter counter(context, call, occupancy);
  GpuLaunchWork moved = counter.count();
  cost = predictLaunch(moved, context.card.rates);
  const GpuWork &counts = std::get<GpuWork>(context.work.counts);
  const OperationCounts &ops = counts.elements;
  answer["bytes"] = llvm::json::Object{{"read", context.work.bytesRead},
                                       {"written", context.work.bytesWritten},
                                       {"read_again", counter.readAgain()},
                                       {"from_memory", moved.bytesRead},
                                       {"to_memory", moved.bytesWritten},
                                       {"through_cache", moved.cacheBytes}};
  answer["work"] =
      llvm::json::Object{{"products", moved.products},
                         {"unit", nameOf(moved.unit)},
                         {"simple", ops.simple + counts.rows.simple},
                         {"exponentials", ops.exponentials + ops.lagging},
                         {"functions", ops.functions},
                         {"divisions", ops.divisions},
                         {"conversions", ops.conversions},
                         {"slots", moved.slots},
                         {"walked", counter.walked()}};
  answer["waves"] =
      moved.pieces / (context.card.rates.units * moved.residentBlocks);
  answer["predicted_ms"] = cost.ms;
  answer["bound"] = cost.bound;
  answer["parts_ms"] = llvm::json::Object{
      {"memory", cost.memoryMs},    {"cache", cost.cacheMs},
      {"slots", cost.slotMs},       {"functions", cost.functionMs},
      {"products", cost.productMs}, {"waiting", cost.waitMs},
      {"launch", cost.launchMs}};
}

/// What a library may compute in place of the kernel, and whether the user
/// wants one.
static llvm::json::Value libraryOf(const GpuLaunchContext &context) {
  if (!context.kernel || !context.kernel->product ||
      !context.kernel->product->library)
    return nullptr;
  const char *wanted = std::getenv("REFOLD_CUBLASLT");
  bool isWanted = wanted && *wanted && llvm::StringRef(wanted) != "off";
  return llvm::json::Object{{"name", "cuBLASLt"},
                            {"expected_quicker", context.step.isForLibrary},
                            {"wanted", isWanted}};
}

/// No entry takes the shape: a run ends with the same words.
static llvm::json::Object describeRefused(const GpuLaunchContext &context,
                                          llvm::json::Object answer) {
  std::string message;
  if (context.kernel) {
    auto planned = planCudaLaunch(*context.kernel, context.step.words.data());
    if (!planned)
      takeError(planned.takeError(), message);
    answer["entries"] = entriesOf(context);
  }
  answer["refused"] =
      message.empty() ? "no way to launch it takes this shape" : message;
  return answer;
}

llvm::json::Object describeLaunch(const GpuLaunchContext &context,
                                  const std::string &name, GpuCost &cost) {
  const package::DescribedLaunch &launch = context.launch;
  llvm::json::Object answer{
      {"kernel", name},
      {"form", context.kernel ? formOf(*context.kernel) : "copy"}};
  if (!launch.way)
    return describeRefused(context, std::move(answer));
  const package::WaySizes &sizes = launch.sizes;
  int64_t threads = sizes.block[0] * sizes.block[1] * sizes.block[2];
  int64_t fixed = context.code ? context.code->sharedBytes : 0;
  Occupancy occupancy = occupancyOf(context.card.facts, threads,
                                    context.code ? context.code->registers : 0,
                                    sizes.sharedBytes + fixed);
  answer["entry"] = launch.way->entry;
  answer["grid"] = toJson(sizes.grid);
  answer["block"] = toJson(sizes.block);
  answer["dynamic_shared_bytes"] = sizes.sharedBytes;
  answer["workspace_bytes"] = context.step.workspaceBytes;
  answer["code"] = context.code ? llvm::json::Value(codeOf(*context.code))
                                : llvm::json::Value(nullptr);
  answer["occupancy"] = llvm::json::Object{{"blocks", occupancy.blocks},
                                           {"warps", occupancy.warps},
                                           {"most_warps", occupancy.mostWarps},
                                           {"bound", occupancy.bound}};
  if (!context.kernel || !context.entry) {
    GpuLaunchWork moved;
    moved.bytesRead = moved.bytesWritten = context.work.bytesRead;
    cost = predictLaunch(moved, context.card.rates);
    answer["predicted_ms"] = cost.ms;
    answer["bound"] = cost.bound;
    return answer;
  }
  CudaCall call =
      describeCall(*context.kernel, *context.entry, context.step.words);
  answer["what"] = describeEntry(*context.kernel, *context.entry);
  answer["cluster"] = context.entry->blocks;
  answer["whole_grid"] = launch.wholeBlocks;
  answer["groups"] = call.groups;
  answer["parts"] = call.parts;
  answer["call"] = llvm::json::Object{{"batch", call.batch},
                                      {"rows", call.rows},
                                      {"length", call.length},
                                      {"columns", call.columns},
                                      {"depth", call.depth}};
  answer["library"] = libraryOf(context);
  answer["entries"] = entriesOf(context);
  addCounts(context, call, occupancy, answer, cost);
  return answer;
}

} // namespace refold
