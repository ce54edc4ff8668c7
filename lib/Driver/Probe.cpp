// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Probe.h"
#include "DotProducts.h"
#include "mlir/Parser/Parser.h"
#include "refold/Support/Error.h"
#include "refold/Support/Tensor.h"
#include "refold/Target/CPU/ObjectCode.h"
#include "llvm/ADT/StringExtras.h"
#include <barrier>
#include <chrono>
#include <functional>
#include <thread>

namespace refold {

/// Independent sums: enough to hide the latency of an fma, few enough for 16
/// registers.
static constexpr unsigned kSums = 12;

/// "%s0 = %b, %s1 = %b" for a pattern "%s# = %b".
static std::string repeat(llvm::StringRef pattern, llvm::StringRef separator) {
  std::string text;
  for (unsigned i = 0; i < kSums; ++i) {
    text += i ? separator.str() : "";
    for (char c : pattern)
      text += c == '#' ? std::to_string(i) : std::string(1, c);
  }
  return text;
}

/// A loop over %i that keeps kSums sums; `body` makes %t0 ... of %s0 ...
static std::string loopText(llvm::StringRef name, llvm::StringRef arguments,
                            llvm::StringRef step, llvm::StringRef body,
                            const std::string &vector) {
  std::string total = "  %u0 = arith.addf %r#0, %r#1 : " + vector + "\n";
  for (unsigned i = 2; i < kSums; ++i)
    total += "  %u" + std::to_string(i - 1) + " = arith.addf %u" +
             std::to_string(i - 2) + ", %r#" + std::to_string(i) + " : " +
             vector + "\n";
  return ("func.func @" + name + "(%n: index, " + arguments +
          "%out: memref<?xf32>) {\n"
          "  %c0 = arith.constant 0 : index\n"
          "  %step = arith.constant " +
          step + " : index\n  %a = arith.constant dense<0.999> : " + vector +
          "\n  %b = arith.constant dense<0.001> : " + vector +
          "\n  %r:" + llvm::Twine(kSums) +
          " = scf.for %i = %c0 to %n step %step iter_args(" +
          repeat("%s# = %b", ", ") + ") -> (" + repeat(vector, ", ") + ") {\n" +
          body + "    scf.yield " + repeat("%t#", ", ") + " : " +
          repeat(vector, ", ") + "\n  }\n" + total + "  vector.store %u" +
          llvm::Twine(kSums - 2) + ", %out[%c0] : memref<?xf32>, " + vector +
          "\n  return\n}\n")
      .str();
}

/// Streaming stores, of what `source` has or of one value.
static std::string storeText(llvm::StringRef name, bool copies, int64_t lanes) {
  std::string vector = "vector<" + std::to_string(lanes) + "xf32>";
  std::string value = copies ? "%v" : "%a";
  return "func.func @" + name.str() + "(%n: index, " +
         (copies ? "%x: memref<?xf32>, " : "") +
         "%out: memref<?xf32>) {\n"
         "  %c0 = arith.constant 0 : index\n"
         "  %c4 = arith.constant 4 : index\n"
         "  %step = arith.constant " +
         std::to_string(lanes) +
         " : index\n  %a = arith.constant dense<0.5> : " + vector +
         "\n  %base = memref.extract_aligned_pointer_as_index %out : "
         "memref<?xf32> -> index\n"
         "  scf.for %i = %c0 to %n step %step {\n" +
         (copies
              ? "    %v = vector.load %x[%i] : memref<?xf32>, " + vector + "\n"
              : std::string()) +
         "    %byte = arith.muli %i, %c4 : index\n"
         "    %at = arith.addi %base, %byte : index\n"
         "    %word = arith.index_cast %at : index to i64\n"
         "    %to = llvm.inttoptr %word : i64 to !llvm.ptr\n"
         "    llvm.store " +
         value + ", %to {alignment = " + std::to_string(4 * lanes) +
         " : i64, nontemporal} : " + vector + ", !llvm.ptr\n  }\n  return\n}\n";
}

/// Of the loop over register tiles: rows that are multiplied with the same two
/// registers, their blocks, panels of two registers and what a sum adds up. All
/// of it fits into a second cache of 256 KB.
struct TileLoop {
  static constexpr int64_t kBlocks = 8, kPanels = 8, kDepth = 128;
  int64_t rows, lanes;
  int64_t leftElements() const { return kBlocks * rows * kDepth; }
  int64_t columns() const { return kPanels * 2 * lanes; }
  int64_t inElements() const { return leftElements() + kDepth * columns(); }
  int64_t outElements() const { return kBlocks * rows * columns(); }
  double operations() const {
    return 2.0 * static_cast<double>(kBlocks * rows * kDepth * columns());
  }
};

/// Products of blocks of rows with panels, as kernels have them: an operand of
/// each fma is one number of a row, the other a register of the panel, and sums
/// are stored when they are done.
static std::string tileText(const TileLoop &tile) {
  std::string vector = "vector<" + std::to_string(tile.lanes) + "xf32>";
  auto number = [](int64_t value) { return std::to_string(value); };
  std::string names, begins, types, body, stores;
  for (int64_t column = 0; column < 2; ++column)
    body += "      %o" + number(column) + " = arith.constant " +
            number(column * tile.lanes) + " : index\n      %q" +
            number(column) + " = arith.addi %p, %o" + number(column) +
            " : index\n      %b" + number(column) + " = vector.load %x[%q" +
            number(column) + "] : memref<?xf32>, " + vector + "\n";
  for (int64_t row = 0; row < tile.rows; ++row) {
    std::string r = number(row);
    body += "      %l" + r + " = arith.constant " +
            number(row * TileLoop::kDepth) + " : index\n      %k" + r +
            " = arith.addi %left, %l" + r + " : index\n      %a" + r +
            " = memref.load %x[%k" + r + "] : memref<?xf32>\n      %v" + r +
            " = vector.broadcast %a" + r + " : f32 to " + vector + "\n";
    for (int64_t column = 0; column < 2; ++column) {
      std::string sum = number(2 * row + column);
      std::string comma = sum == "0" ? "" : ", ";
      names += comma + "%s" + sum + " = %zero";
      types += comma + vector;
      begins += comma + "%t" + sum;
      body += "      %t" + sum + " = math.fma %v" + r + ", %b" +
              number(column) + ", %s" + sum + " : " + vector + "\n";
      stores += "      %w" + sum + " = arith.constant " +
                number(row * tile.columns() + column * tile.lanes) +
                " : index\n      %z" + sum + " = arith.addi %to, %w" + sum +
                " : index\n      vector.store %r#" + sum + ", %out[%z" + sum +
                "] : memref<?xf32>, " + vector + "\n";
    }
  }
  auto constant = [&](llvm::StringRef name, int64_t value) {
    return "  %" + name.str() + " = arith.constant " + number(value) +
           " : index\n";
  };
  return "func.func @tile(%n: index, %x: memref<?xf32>, %out: memref<?xf32>) "
         "{\n" +
         constant("c0", 0) + constant("c1", 1) +
         constant("blocks", TileLoop::kBlocks) +
         constant("depth", TileLoop::kDepth) + constant("rows", tile.rows) +
         constant("pair", 2 * tile.lanes) +
         constant("columns", tile.columns()) +
         constant("panels", tile.leftElements()) +
         "  %zero = arith.constant dense<0.0> : " + vector +
         "\n  scf.for %j = %c0 to %n step %c1 {\n"
         "    scf.for %i = %c0 to %blocks step %c1 {\n"
         "      %row = arith.muli %i, %rows : index\n"
         "      %r:" +
         number(2 * tile.rows) +
         " = scf.for %d = %c0 to %depth step %c1 iter_args(" + names +
         ") -> (" + types +
         ") {\n"
         "      %begin = arith.muli %row, %depth : index\n"
         "      %left = arith.addi %begin, %d : index\n"
         "      %deep = arith.muli %j, %depth : index\n"
         "      %at = arith.addi %deep, %d : index\n"
         "      %off = arith.muli %at, %pair : index\n"
         "      %p = arith.addi %off, %panels : index\n" +
         body + "      scf.yield " + begins + " : " + types +
         "\n      }\n"
         "      %high = arith.muli %row, %columns : index\n"
         "      %wide = arith.muli %j, %pair : index\n"
         "      %to = arith.addi %high, %wide : index\n" +
         stores + "    }\n  }\n  return\n}\n";
}

static std::string probeText(int64_t lanes, const TileLoop &tile) {
  std::string vector = "vector<" + std::to_string(lanes) + "xf32>";
  std::string fma =
      repeat("    %t# = math.fma %s#, %a, %b : " + vector + "\n", "");
  std::string read;
  for (unsigned k = 0; k < kSums; ++k) {
    std::string i = std::to_string(k);
    read += "    %o" + i + " = arith.constant " + std::to_string(k * lanes) +
            " : index\n    %i" + i + " = arith.addi %i, %o" + i +
            " : index\n    %v" + i + " = vector.load %x[%i" + i +
            "] : memref<?xf32>, " + vector + "\n    %t" + i +
            " = arith.addf %s" + i + ", %v" + i + " : " + vector + "\n";
  }
  std::string exp = repeat("    %m# = arith.mulf %s#, %h : " + vector +
                               "\n    %t# = math.exp %m# : " + vector + "\n",
                           "");
  std::string half = "    %h = arith.constant dense<-0.5> : " + vector + "\n";
  return loopText("fma", "", "1", fma, vector) +
         loopText("exp", "", "1", half + exp, vector) + tileText(tile) +
         storeText("write", /*copies=*/false, lanes) +
         storeText("copy", /*copies=*/true, lanes) +
         loopText("read", "%x: memref<?xf32>, ", std::to_string(kSums * lanes),
                  read, vector);
}

/// Rows as `chooseSchedule` takes them.
static TileLoop tileOf(const TargetFacts &facts) {
  return {facts.vectorRegisters >= 32 ? 8 : 6, facts.lanes(32)};
}

static llvm::Expected<std::shared_ptr<LoadedCode>>
compileProbe(const CpuTarget &target) {
  mlir::DialectRegistry registry;
  registerCpuDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(
      probeText(target.facts.lanes(32), tileOf(target.facts)), &context);
  if (!module)
    return fail(ExitCode::Internal, "the probe's own text was not read");
  auto object = emitObject(*module, target);
  if (!object)
    return object.takeError();
  std::vector<std::unique_ptr<llvm::MemoryBuffer>> objects;
  objects.push_back(std::move(*object));
  return LoadedCode::load(std::move(objects));
}

/// Units a millisecond of all threads, each of which does `each` units a call,
/// in many short rounds, from the slowest to the fastest.
static std::vector<double>
ratesOf(int64_t threads, int rounds, double each,
        const std::function<void(int64_t thread)> &call) {
  using Clock = std::chrono::steady_clock;
  constexpr double kRoundMs = 2.0;
  std::vector<double> rates(threads), ofRounds;
  std::barrier together(threads);
  auto work = [&](int64_t thread) {
    call(thread); // what is cold, warm
    for (int round = 0; round < rounds; ++round) {
      together.arrive_and_wait();
      auto begin = Clock::now();
      double calls = 0.0, ms = 0.0;
      while (ms < kRoundMs) {
        call(thread);
        ++calls;
        ms = std::chrono::duration<double, std::milli>(Clock::now() - begin)
                 .count();
      }
      rates[thread] = calls * each / ms;
      together.arrive_and_wait();
      if (thread != 0)
        continue;
      double total = 0.0;
      for (double rate : rates)
        total += rate;
      ofRounds.push_back(total);
    }
  };
  std::vector<std::thread> others;
  try {
    for (int64_t thread = 1; thread < threads; ++thread)
      others.emplace_back(work, thread);
  } catch (const std::system_error &) {
    // The machine gives no more threads: those there are are measured.
    for (int64_t thread = others.size() + 1; thread < threads; ++thread)
      together.arrive_and_drop();
  }
  work(0);
  for (std::thread &other : others)
    other.join();
  llvm::sort(ofRounds);
  return ofRounds;
}

/// The best round, so that a disturbance is not taken for the limit.
static double rateOf(int64_t threads, int rounds, double each,
                     const std::function<void(int64_t thread)> &call) {
  return ratesOf(threads, rounds, each, call).back();
}

/// What disturbs is what a program finds too.
static double medianOf(const std::vector<double> &sorted) {
  return sorted[sorted.size() / 2];
}

llvm::Expected<Probe> Probe::create(const CpuTarget &target, int64_t threads,
                                    Effort effort) {
  auto code = compileProbe(target);
  if (!code)
    return code.takeError();
  Probe probe;
  for (auto [name, function] :
       {std::pair("fma", &probe.fma), std::pair("exp", &probe.exp),
        std::pair("tile", &probe.tile), std::pair("read", &probe.read),
        std::pair("write", &probe.write), std::pair("copy", &probe.copy)}) {
    auto found = (*code)->find(name);
    if (!found)
      return found.takeError();
    *function = *found;
  }
  probe.code = std::move(*code);
  probe.threads = threads;
  probe.hasTiles = target.facts.multipliesTiles;
  probe.lanes = target.facts.lanes(32);
  probe.tileRows = tileOf(target.facts).rows;
  probe.rounds = effort == Effort::Quick ? 6 : 24;
  return probe;
}

double Probe::streamedBytes(const MachineRates &rates) {
  constexpr double kLeastBytes = 64 << 20, kMostBytes = 256 << 20;
  auto cache = static_cast<double>(rates.cacheBytes[2]);
  return std::clamp(4.0 * cache, kLeastBytes, kMostBytes);
}

static constexpr int64_t kSteps = 20000;
static constexpr double kLeast = 16.0 * 1024, kMost = 64.0 * 1024 * 1024;

/// Floats of a thread, the first at the start of a cache line.
class Probe::Arrays {
public:
  Arrays(int64_t threads, int64_t elements) : elements(elements) {
    for (int64_t thread = 0; thread < threads; ++thread) {
      arrays.push_back(
          llvm::cantFail(Tensor::create(DType::F32, {elements + kLine})));
      auto *data =
          static_cast<float *>(static_cast<void *>(arrays.back().data()));
      std::fill_n(data, elements + kLine, 1.0f);
    }
  }
  int64_t address(int64_t thread) {
    constexpr int64_t kBytes = kLine * sizeof(float);
    int64_t at = reinterpret_cast<intptr_t>(arrays[thread].data());
    return (at + kBytes - 1) / kBytes * kBytes;
  }
  const int64_t elements;

private:
  static constexpr int64_t kLine = 16;
  std::vector<Tensor> arrays; // on pages like those of a program's arrays
};

std::vector<double> Probe::roundsOfLoop(KernelFunction loop, double each,
                                        int rounds) {
  Arrays sums(threads, lanes);
  return ratesOf(threads, rounds, each * kSteps * kSums * lanes,
                 [&](int64_t thread) {
                   int64_t out = sums.address(thread);
                   int64_t words[] = {kSteps, out, out, 0, lanes, 1};
                   loop(words, nullptr);
                 });
}

double Probe::operationsPerMs() {
  if (operations <= 0)
    operations = roundsOfLoop(fma, 2.0, rounds).back();
  return operations;
}

MachineMoment Probe::momentOf(const MachineRates &known) {
  constexpr int kRounds = 5;
  if (!streamed)
    streamed = std::make_shared<Arrays>(
        threads, elementsOf(streamedBytes(known) / double(threads)));
  // As the cost model has them.
  double cores = double(std::min(threads, known.cores));
  double memory =
      std::min(cores * known.read[3], std::max(known.readAll, known.read[3]));
  return {medianOf(roundsOfLoop(fma, 2.0, kRounds)) / (cores * known.flops),
          medianOf(readInRounds(*streamed, kRounds)) / memory};
}

MachineMoment Probe::momentOf(const MachineRates &known,
                              llvm::MutableArrayRef<Tensor> arrays) {
  constexpr int kRounds = 5;
  constexpr double kOfSecond = 1.5; // of it nothing is left of that
  struct Part {
    int64_t address, elements; ///< of the first thread
  };
  std::vector<Part> parts;
  double bytes = 0.0;
  for (Tensor &array : arrays) {
    // Small integers are f32 that are not normal, which may be slow to add.
    if (!isFloat(array.dtype()))
      continue;
    Part part{reinterpret_cast<intptr_t>(array.data()),
              elementsOf(static_cast<double>(array.numBytes()) /
                         static_cast<double>(threads))};
    if (part.elements == 0)
      continue;
    parts.push_back(part);
    bytes += 4.0 * static_cast<double>(part.elements * threads);
  }
  bool isBetween =
      bytes > kOfSecond * static_cast<double>(known.cacheBytes[1] * threads) &&
      bytes < streamedBytes(known);
  std::vector<double> read;
  if (isBetween) { // before anything else drives them out
    Arrays sums(threads, lanes);
    read = ratesOf(threads, kRounds, bytes / static_cast<double>(threads),
                   [&](int64_t thread) {
                     int64_t out = sums.address(thread);
                     for (const Part &part : parts) {
                       int64_t in = part.address + 4 * thread * part.elements;
                       int64_t words[] = {
                           part.elements, in, in,    0, part.elements, 1, out,
                           out,           0,  lanes, 1};
                       this->read(words, nullptr);
                     }
                   });
  }
  MachineMoment moment = momentOf(known);
  if (!isBetween)
    return moment;
  moment.readBytes = bytes;
  moment.readPerMs = medianOf(read);
  moment.threads = threads;
  return moment;
}

double Probe::exponentialsPerMs() {
  return roundsOfLoop(exp, 1.0, rounds).back();
}

double Probe::tileOperationsPerMs() {
  TileLoop loop{tileRows, lanes};
  Arrays in(threads, loop.inElements()), out(threads, loop.outElements());
  return rateOf(threads, rounds, loop.operations(), [&](int64_t thread) {
    int64_t from = in.address(thread), to = out.address(thread);
    int64_t words[] = {
        TileLoop::kPanels,  from, from, 0, loop.inElements(), 1, to, to, 0,
        loop.outElements(), 1};
    tile(words, nullptr);
  });
}

double Probe::bf16PerMs() {
  if (hasTiles)
    return rateOf(threads, rounds, kBf16TileFlops,
                  [](int64_t) { runBf16Tiles(); });
  if (!hasBf16Dots())
    return 0.0;
  return rateOf(threads, rounds, kBf16DotFlops, [](int64_t) { runBf16Dots(); });
}

double Probe::int8PerMs() {
  if (hasTiles)
    return rateOf(threads, rounds, kInt8TileFlops,
                  [](int64_t) { runInt8Tiles(); });
  if (!hasInt8Dots())
    return 0.0;
  return rateOf(threads, rounds, kInt8DotFlops, [](int64_t) { runInt8Dots(); });
}

/// A whole number of register blocks that fills `bytes`.
int64_t Probe::elementsOf(double bytes) const {
  int64_t block = kSums * lanes;
  return static_cast<int64_t>(bytes / sizeof(float)) / block * block;
}

std::vector<double> Probe::readInRounds(Arrays &arrays, int rounds) {
  Arrays sums(threads, lanes);
  int64_t elements = arrays.elements;
  return ratesOf(threads, rounds, 4.0 * elements, [&](int64_t thread) {
    int64_t in = arrays.address(thread), out = sums.address(thread);
    int64_t words[] = {elements, in, in, 0, elements, 1, out, out, 0, lanes, 1};
    read(words, nullptr);
  });
}

double Probe::bytesPerMs(double workingSet) {
  double each = kLeast;
  while (each < workingSet / threads && each < kMost)
    each *= 4.0;
  int64_t elements = elementsOf(each);
  double &rate = readRates[elements];
  if (rate <= 0) {
    Arrays arrays(threads, elements);
    rate = readInRounds(arrays, rounds).back();
  }
  return rate;
}

double Probe::usualBytesPerMs(double workingSet) {
  double each = std::max(workingSet / static_cast<double>(threads), kLeast);
  Arrays arrays(threads, elementsOf(each));
  return medianOf(readInRounds(arrays, rounds));
}

double Probe::writtenPerMs(double bytes) {
  int64_t elements = elementsOf(bytes / static_cast<double>(threads));
  Arrays arrays(threads, elements);
  auto call = [&](int64_t thread) {
    int64_t to = arrays.address(thread);
    int64_t words[] = {elements, to, to, 0, elements, 1};
    write(words, nullptr);
  };
  return medianOf(ratesOf(threads, rounds, 4.0 * elements, call));
}

double Probe::copiedPerMs(double bytes) {
  int64_t elements = elementsOf(bytes / static_cast<double>(2 * threads));
  Arrays from(threads, elements), arrays(threads, elements);
  auto call = [&](int64_t thread) {
    int64_t in = from.address(thread), to = arrays.address(thread);
    int64_t words[] = {elements, in, in, 0,        elements, 1,
                       to,       to, 0,  elements, 1};
    copy(words, nullptr);
  };
  return medianOf(ratesOf(threads, rounds, 8.0 * elements, call));
}

} // namespace refold
