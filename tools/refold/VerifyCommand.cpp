// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Commands.h"
#include "Output.h"
#include "ReportJson.h"
#include "RunFlags.h"
#include "refold/Driver/Verify.h"
#include "refold/Support/Json.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

namespace refold {

namespace {

llvm::Error parseFamilies(llvm::StringRef text,
                          std::vector<InputRecipe> &result) {
  result.clear();
  // Commas also stand inside uniform(a,b).
  while (!text.empty()) {
    size_t end = text.starts_with("uniform(") ? text.find(')') : text.find(',');
    if (end != llvm::StringRef::npos && text[end] == ')')
      ++end;
    auto recipe = parseInputRecipe(text.substr(0, end));
    if (!recipe)
      return recipe.takeError();
    result.push_back(*recipe);
    text = text.substr(std::min(end, text.size()));
    text.consume_front(",");
  }
  return llvm::Error::success();
}

struct VerifyFlags {
  ProgramFlags program;
  InputFlags inputs;
  VerifyOptions options;

  VerifyFlags() {
    llvm::cantFail(parseFamilies("normal,ninf,nan,offset,const,growing",
                                 options.families));
  }
  void addTo(Flags &flags);
};

void VerifyFlags::addTo(Flags &flags) {
  program.addTo(flags);
  program.addDtypeTo(flags);
  program.addNumericsTo(flags);
  program.addCacheTo(flags);
  inputs.addTo(flags, /*withFiles=*/false);
  flags.value("inputs", "FAMILY,...",
              "families of random inputs (normal to growing)",
              [this](llvm::StringRef text) {
                return parseFamilies(text, options.families);
              });
  flags.value("lengths", "N,...",
              "extents of stream axes without --shape "
              "(0,1,2,15,16,17,1000,4097)",
              [this](llvm::StringRef text) {
                return parseCounts(text, options.streamExtents, 0,
                                   int64_t(1) << 24);
              });
  flags.value("broad-length", "N",
              "extent of stream axes in one more shape, whose other axes are "
              "long; 0: none (130, 4290 for rows)",
              [this](llvm::StringRef text) -> llvm::Error {
                std::vector<int64_t> length;
                if (llvm::Error error =
                        parseCounts(text, length, 0, int64_t(1) << 24))
                  return error;
                if (length.size() != 1)
                  return fail(ExitCode::Usage,
                              "found '" + text + "', expected one number");
                options.broadLength = length.front();
                return llvm::Error::success();
              });
  flags.value("threads", "N,...",
              "numbers of threads that must give the same bits (1,2)",
              [this](llvm::StringRef text) {
                return parseCounts(text, options.threads, 1, 1024);
              });
  flags.integer("seeds", "N",
                "inputs of each family and shape: 4, and up to N while an "
                "error is beyond its bound (256)",
                options.seeds, 1, 100000);
  flags.integer("first-seeds", "N",
                "inputs of each family and shape that are always run (4)",
                options.firstSeeds, 1, 100000);
  flags.integer("splits", "N", "programs with other cuts of their streams (2)",
                options.splits, 0, 64);
  flags.integer("split-seed", "N", "of these cuts (0)", options.splitSeed, 0,
                int64_t(1) << 62);
  flags.text(
      "target", "NAME",
      "avx512, avx2, baseline, cuda, cuda-sm80, cuda-sm90 or cuda-emulated "
      "(what the machine's CPU offers)",
      options.target);
}

llvm::json::Value verdictJson(const OutputVerdict &output) {
  llvm::json::Array cases;
  for (const OutputCase &one : output.cases)
    cases.push_back(llvm::json::Object{
        {"shape", toJson(one.shape)},
        {"inputs", one.family},
        {"fused_error", jsonNumber(one.fusedError)},
        {"unfused_error", jsonNumber(one.unfusedError)},
        {"bound", jsonNumber(one.bound)},
        {"touched_error", jsonNumber(one.touchedError)},
        {"touched_bound", jsonNumber(one.touchedBound)},
        {"lost", one.lost},
        {"seeds", one.seeds},
        {"worst_seed", static_cast<int64_t>(one.worstSeed)},
        {"conditioned", one.isConditioned},
        {"class_equal", one.classLosses == 0},
        {"wrong_rows", one.wrongRows + one.asWritten.wrongRows},
        {"bound_share", jsonNumber(one.shareOfBound)},
        {"unknown_error", jsonNumber(one.unknownError)},
        {"unfused_class_errors", one.unfusedClassErrors},
        {"written_error", jsonNumber(one.asWritten.writtenError)},
        {"unfused_losses", one.asWritten.losses},
        {"unfused_good", one.asWritten.isGood()}});
  const OutputCase &worst = output.worst();
  bool isClassEqual = llvm::all_of(
      output.cases, [](const OutputCase &one) { return one.classLosses == 0; });
  return llvm::json::Object{{"name", output.name},
                            {"fused_error", jsonNumber(worst.fusedError)},
                            {"unfused_error", jsonNumber(worst.unfusedError)},
                            {"bound", jsonNumber(worst.bound)},
                            {"class_equal", isClassEqual},
                            {"cases", std::move(cases)}};
}

template <typename Range> std::string joined(const Range &range) {
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::interleaveComma(range, os);
  return text;
}

std::vector<std::string> spellings(llvm::ArrayRef<StreamSplit> splits) {
  std::vector<std::string> result;
  for (const StreamSplit &split : splits)
    result.push_back("up to " + std::to_string(split.segments) +
                     " segments in tiles of " + std::to_string(split.tile));
  return result;
}

llvm::json::Value coverageJson(const Coverage &coverage) {
  llvm::json::Array splits;
  for (const StreamSplit &split : coverage.splits)
    splits.push_back(
        llvm::json::Object{{"segments", split.segments}, {"tile", split.tile}});
  llvm::json::Array refused;
  for (const RefusedLength &one : coverage.refused)
    refused.push_back(
        llvm::json::Object{{"length", one.length}, {"text", one.reason}});
  return llvm::json::Object{
      {"stream_axes", llvm::json::Array(coverage.streamAxes)},
      {"following_axes", llvm::json::Array(coverage.followingAxes)},
      {"lengths", llvm::json::Array(coverage.lengths)},
      {"refused", std::move(refused)},
      {"broad", toJson(coverage.broad)},
      {"inputs", llvm::json::Array(coverage.families)},
      {"threads", llvm::json::Array(coverage.threads)},
      {"splits", std::move(splits)},
      {"runs", coverage.inputs}};
}

void printCoverage(const Coverage &coverage) {
  llvm::raw_ostream &os = llvm::outs();
  os << "     covered: ";
  if (coverage.streamAxes.empty())
    os << "no open stream axis";
  else
    os << joined(coverage.streamAxes) << " = " << joined(coverage.lengths);
  if (!coverage.broad.empty()) {
    os << "; and";
    for (const auto &[name, extent] : coverage.broad)
      os << " " << name << "=" << extent;
  }
  os << "; inputs " << joined(coverage.families) << "; " << coverage.inputs
     << " runs\n     threads " << joined(coverage.threads)
     << " and strided and transposed inputs: same bits expected\n";
  for (const RefusedLength &one : coverage.refused)
    os << "     length " << one.length << " is refused: " << one.reason << "\n";
  if (!coverage.splits.empty())
    os << "     streams also cut into " << joined(spellings(coverage.splits))
       << "\n";
}

void printFaults(const OutputCase &one) {
  llvm::raw_ostream &os = llvm::outs();
  auto printPlace = [&] {
    os << " (" << one.family;
    for (const auto &[name, extent] : one.shape)
      os << " " << name << "=" << extent;
    os << ")\n";
  };
  if (one.classLosses) {
    os << "     " << one.classLosses
       << " elements of another class than double and unfused";
    printPlace();
  }
  if (one.asWritten.losses) {
    os << "     unfused: " << one.asWritten.losses
       << " elements of another class than double and the program rounded as "
          "written";
    printPlace();
  }
  for (auto [rows, form] : {std::pair(one.wrongRows, "fused"),
                            std::pair(one.asWritten.wrongRows, "unfused")}) {
    if (rows == 0)
      continue;
    os << "     " << form << ": " << rows
       << " rows of one number without half of their digits, which the program "
          "rounded as written has";
    printPlace();
  }
  if (!(one.touchedError <= one.touchedBound)) {
    os << "     beside the limits of the range: error "
       << formatError(one.touchedError) << " fused, "
       << formatError(one.touchedUnfusedError) << " unfused, bound "
       << formatError(one.touchedBound);
    printPlace();
  }
  if (!(one.unknownError <= one.bound)) {
    os << "     error " << formatError(one.unknownError)
       << " where nothing is known of what running roundings may change: not "
          "judged";
    printPlace();
  }
  if (!(one.asWritten.error <= one.asWritten.bound)) {
    os << "     unfused: error " << formatError(one.asWritten.error)
       << ", rounded as written " << formatError(one.asWritten.writtenError)
       << ", bound " << formatError(one.asWritten.bound);
    printPlace();
  }
}

void printText(const Verification &verification) {
  llvm::raw_ostream &os = llvm::outs();
  for (const OutputVerdict &output : verification.outputs) {
    const OutputCase &worst = output.worst();
    printColored(os, worst.isGood() ? os.GREEN : os.RED,
                 worst.isGood() ? "ok   " : "BAD  ");
    os << output.name << ": error " << formatError(worst.fusedError)
       << " fused, " << formatError(worst.unfusedError) << " unfused, bound "
       << formatError(worst.bound);
    double share = 0;
    int64_t lost = 0;
    for (const OutputCase &one : output.cases) {
      share = std::max(share, one.shareOfBound);
      lost += one.lost;
    }
    if (lost)
      os << ", " << lost << " elements lost as written";
    if (share > 0)
      os << llvm::format(", beside %.2f of what running roundings may change",
                         share);
    os << " (" << worst.family;
    for (const auto &[name, extent] : worst.shape)
      os << " " << name << "=" << extent;
    if (!worst.isGood())
      os << ", seed " << worst.worstSeed;
    os << "; " << output.cases.size() << " cases)\n";
    for (const OutputCase &one : output.cases)
      printFaults(one);
  }
  if (!verification.equalAcrossThreads)
    os << "BAD  other bits for another number of threads\n";
  if (!verification.equalAcrossStrides)
    os << "BAD  other bits for strided inputs\n";
  printCoverage(verification.coverage);
  for (const std::string &policy : verification.policies)
    os << "     policy " << policy << "\n";
}

} // namespace

llvm::Expected<ExitCode> verifyCommand(const Command &command,
                                       Arguments arguments) {
  VerifyFlags given;
  Flags flags;
  given.addTo(flags);
  if (showHelp(command, flags, arguments))
    return ExitCode::Ok;
  if (llvm::Error error = flags.parse(command.name, arguments))
    return std::move(error);
  auto context = makeContext();
  auto cache = given.program.openCache();
  if (!cache)
    return cache.takeError();
  VerifyOptions &options = given.options;
  options.cache = cache->get();
  options.shape = given.inputs.shape;
  options.inputs = given.inputs.recipes;
  options.seed = given.inputs.seed;
  options.numerics = given.program.numerics;
  if (llvm::StringRef(options.target).starts_with("cuda"))
    options.onReport = tellDeclined;
  std::optional<Progress> progress;
  options.onProgress = [&](size_t, size_t total, llvm::StringRef what) {
    if (!progress)
      progress.emplace("verify", total);
    progress->step(what);
  };
  auto verification = verify(*context, given.program.path,
                             given.program.loadOptions(), options);
  progress.reset();
  if (!verification)
    return verification.takeError();
  bool isGood = verification->isGood();
  if (given.program.isJson()) {
    llvm::json::Array outputs;
    for (const OutputVerdict &output : verification->outputs)
      outputs.push_back(verdictJson(output));
    printJson(llvm::json::Object{
        {"ok", isGood},
        {"outputs", std::move(outputs)},
        {"threads_equal", verification->equalAcrossThreads},
        {"strides_equal", verification->equalAcrossStrides},
        {"coverage", coverageJson(verification->coverage)},
        {"policies", llvm::json::Array(verification->policies)}});
  } else {
    printText(*verification);
  }
  return isGood ? ExitCode::Ok : ExitCode::Mismatch;
}

} // namespace refold
