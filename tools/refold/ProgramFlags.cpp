// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ProgramFlags.h"
#include "llvm/Support/raw_ostream.h"
#include <cmath>

namespace refold {

void ProgramFlags::addTo(Flags &flags) {
  flags.file("FILE", "a .fold, .onnx or .mlir program", path);
  flags.choice("format", "how the answer is written (text)", format,
               {"text", "json"});
  flags.value(
      "dim", "NAME=EXTENT,...", "fixes named dimensions while reading",
      [this](llvm::StringRef text) { return parseExtents(text, dims); });
}

void ProgramFlags::addDtypeTo(Flags &flags) {
  flags.choice("dtype",
               "type of the float arguments and results of a .fold program",
               dtype, {"f64", "f32", "f16", "bf16"});
  flags.choice("multiply",
               "type that what matrix products of f32 read is rounded to; "
               "weights are stored so, sums stay f32 (as the program says)",
               multiply, {"f16", "bf16"});
}

void addFuseTo(Flags &flags, FusePolicy &policy) {
  flags.value("fuse", "auto|always|never",
              "what is fused: what is not predicted to be slower, everything "
              "that can be, or nothing (auto)",
              [&policy](llvm::StringRef text) -> llvm::Error {
                if (text != "auto" && text != "always" && text != "never")
                  return fail(ExitCode::Usage,
                              "found '" + text +
                                  "', expected auto or always or never");
                policy = text == "auto"     ? FusePolicy::Auto
                         : text == "always" ? FusePolicy::Always
                                            : FusePolicy::Never;
                return llvm::Error::success();
              });
}

void addTunedTo(Flags &flags, bool &usesTuned) {
  flags.toggle("tuned",
               "takes the schedules that 'refold tune' kept for this shape and "
               "machine",
               usesTuned);
}

void addTuneTo(Flags &flags, bool &tunes) {
  flags.toggle("tune",
               "times other ways to launch each kernel of a GPU at this shape, "
               "and takes the quickest; the cache keeps it for --tuned",
               tunes);
}

llvm::Error checkTune(bool tunes, llvm::StringRef target) {
  bool isGpu = target.starts_with("cuda") && !target.contains("emulated");
  if (!tunes || isGpu)
    return llvm::Error::success();
  return fail(ExitCode::Usage,
              "found --tune with the target '" +
                  (target.empty() ? "of the machine's CPU" : target) +
                  "', expected cuda, cuda-sm80 or cuda-sm90; schedules of a "
                  "CPU are measured by 'refold tune'");
}

void tellNotKept(bool hasCache) {
  if (!hasCache)
    llvm::errs() << "warning: found no cache, which would keep what was tuned "
                    "for --tuned\n";
}

/// "exact", "requantise" or "requantise=0.01".
static llvm::Error parseCasts(llvm::StringRef text, NumericPolicy &numerics) {
  auto [word, bound] = text.split('=');
  numerics.requantise = word == "requantise";
  numerics.castBound = HUGE_VAL;
  bool isGood = word == "requantise" || text == "exact";
  if (isGood && text.contains('='))
    isGood = !bound.getAsDouble(numerics.castBound) && numerics.castBound > 0 &&
             std::isfinite(numerics.castBound);
  if (isGood)
    return llvm::Error::success();
  return fail(ExitCode::Usage,
              "found '" + text +
                  "' for --casts, expected exact, requantise or "
                  "requantise=BOUND with a bound above 0");
}

/// "pass", "list" or "list=64".
static llvm::Error parseThresholds(llvm::StringRef text, unsigned &length) {
  constexpr unsigned kUsual = 32, kLeast = 2, kMost = 256;
  auto [word, number] = text.split('=');
  length = word == "list" ? kUsual : 0;
  bool isGood = word == "list" || text == "pass";
  if (isGood && text.contains('='))
    isGood =
        !number.getAsInteger(10, length) && length >= kLeast && length <= kMost;
  if (isGood)
    return llvm::Error::success();
  return fail(ExitCode::Usage,
              "found '" + text +
                  "' for --thresholds, expected pass, list or list=LENGTH with "
                  "a length from 2 to 256");
}

static llvm::Error parseStability(llvm::StringRef text, Stability &result) {
  if (text == "fastest")
    result = Stability::Fastest;
  else if (text == "balanced")
    result = Stability::Balanced;
  else if (text == "most-accurate")
    result = Stability::MostAccurate;
  else
    return fail(ExitCode::Usage,
                "found '" + text +
                    "', expected fastest, balanced or most-accurate");
  return llvm::Error::success();
}

void ProgramFlags::addNumericsTo(Flags &flags) {
  flags.value(
      "casts", "exact|requantise[=BOUND]",
      "whether a rounding may be done at the results so far, if it errs "
      "by at most BOUND of the largest value (exact)",
      [this](llvm::StringRef text) { return parseCasts(text, numerics); });
  flags.value("masked-rows", "ieee|zero",
              "what a row of nothing but masked elements is: as the formula "
              "says, or 0 instead of nan (ieee)",
              [this](llvm::StringRef text) -> llvm::Error {
                numerics.zeroMaskedRows = text == "zero";
                if (text == "zero" || text == "ieee")
                  return llvm::Error::success();
                return fail(ExitCode::Usage,
                            "found '" + text +
                                "' for --masked-rows, expected ieee or zero");
              });
  flags.value("thresholds", "pass|list[=LENGTH]",
              "sums over the elements near an extreme: in a second pass, or "
              "over a list of the best with that pass for rows that have more "
              "(pass)",
              [this](llvm::StringRef text) {
                return parseThresholds(text, numerics.thresholdList);
              });
  flags.value("stability", "fastest|balanced|most-accurate",
              "how far epilogues are regrouped to keep digits (balanced)",
              [this](llvm::StringRef text) {
                return parseStability(text, numerics.stability);
              });
}

void ProgramFlags::addCacheTo(Flags &flags) {
  flags.toggle("no-cache", "neither finds nor keeps kernels on disk",
               withoutCache);
}

llvm::Expected<std::unique_ptr<DiskCache>> ProgramFlags::openCache() const {
  if (withoutCache)
    return nullptr;
  auto cache = openCacheOfEnvironment();
  if (cache)
    return cache;
  std::string message;
  ExitCode code = takeError(cache.takeError(), message);
  if (code == ExitCode::Usage)
    return fail(code, message);
  // Compiled as if there were none; who has a home that cannot be written to
  // knows it.
  if (std::getenv("REFOLD_CACHE_DIR"))
    llvm::errs() << "refold: warning: " << message << "\n";
  return nullptr;
}

LoadOptions ProgramFlags::loadOptions() const {
  LoadOptions options;
  options.dims = dims;
  options.dtype = parseDType(dtype);
  options.multiply = parseDType(multiply);
  return options;
}

bool showHelp(const Command &command, const Flags &flags, Arguments arguments) {
  if (!llvm::is_contained(arguments, "--help") &&
      !llvm::is_contained(arguments, "-h"))
    return false;
  llvm::outs() << flags.help(command.name, command.summary);
  return true;
}

} // namespace refold
