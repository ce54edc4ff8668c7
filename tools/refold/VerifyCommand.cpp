// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Commands.h"
#include "Output.h"
#include "ReportJson.h"
#include "RunFlags.h"
#include "refold/Driver/Verify.h"
#include "refold/Support/Json.h"
#include "llvm/ADT/StringExtras.h"

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
  inputs.addTo(flags, /*withFiles=*/false);
  flags.value("inputs", "FAMILY,...",
              "families of random inputs (all without uniform)",
              [this](llvm::StringRef text) {
                return parseFamilies(text, options.families);
              });
  flags.value("lengths", "N,...",
              "extents of stream axes without --shape (0,1,17,1000)",
              [this](llvm::StringRef text) {
                return parseCounts(text, options.streamExtents, 0,
                                   int64_t(1) << 24);
              });
  flags.value("threads", "N,...",
              "numbers of threads that must give the same bits (1,2)",
              [this](llvm::StringRef text) {
                return parseCounts(text, options.threads, 1, 1024);
              });
  flags.integer("seeds", "N", "how many inputs of each kind (32)",
                options.seeds, 1, 100000);
  flags.text("target", "NAME",
             "avx512, avx2 or baseline (what the machine offers)",
             options.target);
}

llvm::json::Value verdictJson(const OutputVerdict &output) {
  llvm::json::Array cases;
  for (const OutputCase &one : output.cases)
    cases.push_back(
        llvm::json::Object{{"shape", toJson(one.shape)},
                           {"inputs", one.family},
                           {"fused_error", jsonNumber(one.fusedError)},
                           {"unfused_error", jsonNumber(one.unfusedError)},
                           {"bound", jsonNumber(one.bound)},
                           {"class_equal", one.classLosses == 0},
                           {"unfused_class_errors", one.unfusedClassErrors}});
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

void printText(const Verification &verification) {
  llvm::raw_ostream &os = llvm::outs();
  for (const OutputVerdict &output : verification.outputs) {
    const OutputCase &worst = output.worst();
    printColored(os, worst.isGood() ? os.GREEN : os.RED,
                 worst.isGood() ? "ok   " : "BAD  ");
    os << output.name << ": error " << formatError(worst.fusedError)
       << " fused, " << formatError(worst.unfusedError) << " unfused, bound "
       << formatError(worst.bound) << " (" << worst.family;
    for (const auto &[name, extent] : worst.shape)
      os << " " << name << "=" << extent;
    os << "; " << output.cases.size() << " cases)\n";
    for (const OutputCase &one : output.cases) {
      if (one.classLosses == 0)
        continue;
      os << "     " << one.classLosses
         << " elements of another class than double and unfused ("
         << one.family;
      for (const auto &[name, extent] : one.shape)
        os << " " << name << "=" << extent;
      os << ")\n";
    }
  }
  if (!verification.equalAcrossThreads)
    os << "BAD  other bits for another number of threads\n";
  if (!verification.equalAcrossStrides)
    os << "BAD  other bits for strided inputs\n";
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
  VerifyOptions &options = given.options;
  options.shape = given.inputs.shape;
  options.inputs = given.inputs.recipes;
  options.seed = given.inputs.seed;
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
        {"policies", llvm::json::Array(verification->policies)}});
  } else {
    printText(*verification);
  }
  return isGood ? ExitCode::Ok : ExitCode::Mismatch;
}

} // namespace refold
