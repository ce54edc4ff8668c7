// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random programs around sums of products: `verify` holds their generated code,
// unfused, fused and with other cuts of the stream, against double precision.
// A failure is made small and printed with its command.
//
//   random_products [--seconds S] [--programs N] [--seed S] [--failures N]
//                   [--target T] [--print]
//
// The summary counts refusals by their text and cascades by verdict.
#include "random_products_program.h"
#include "refold/Driver/Verify.h"
#include "refold/Support/Error.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include <chrono>

using namespace refold;
using fuzz::ProductProgram;

namespace {

llvm::cl::opt<unsigned> seconds("seconds", llvm::cl::init(10),
                                llvm::cl::desc("time to spend"));
llvm::cl::opt<unsigned> programs("programs", llvm::cl::init(~0u),
                                 llvm::cl::desc("programs to try"));
llvm::cl::opt<uint64_t> firstSeed("seed", llvm::cl::init(1),
                                  llvm::cl::desc("of the first program"));
llvm::cl::opt<unsigned> failures("failures", llvm::cl::init(1),
                                 llvm::cl::desc("failures to look for"));
llvm::cl::opt<std::string> target("target", llvm::cl::desc("of all programs"));
llvm::cl::opt<bool> printsAll("print", llvm::cl::desc("print every program"));

/// How one program ended. Invalid: the front end or the program's own checks
/// refuse it. Refused: it is right, and not covered.
enum class Verdict { Agrees, Invalid, Refused, Differs };

struct Outcome {
  Verdict verdict = Verdict::Agrees;
  std::string what;
  unsigned cascades = 0, fused = 0;
  /// Differs where nothing is known of what running roundings may change.
  bool isUnjudged = false;
};

/// Special values are those of what is reduced; whole numbers use all of their
/// type.
std::map<std::string, InputRecipe> recipesOf(const ProductProgram &made) {
  std::map<std::string, InputRecipe> recipes;
  for (const std::string &argument : made.program.arguments) {
    std::string name = argument.substr(0, argument.find('['));
    bool isSigned = argument.find(": i8") != std::string::npos,
         isByte = argument.find(": u8") != std::string::npos;
    if (isSigned)
      recipes[name] = {InputFamily::Uniform, -128, 128};
    else if (isByte)
      recipes[name] = {InputFamily::Uniform, 0, 256};
    else if (name == "lens")
      recipes[name] = {InputFamily::Uniform, 0, 70};
    else if (name != "x" && name != "q" && name != "u")
      recipes[name] = {InputFamily::Normal, 0, 1};
  }
  return recipes;
}

/// Of each input: what is beyond its bound then is no luck of few.
constexpr int64_t kSeeds = 33;

std::string targetOf(const ProductProgram &made) {
  return target.empty() ? made.target : target.getValue();
}

/// Extents that are neither fixed nor the stream's.
Extents shapeOf(const ProductProgram &made) {
  Extents shape;
  for (auto &[axis, extent] : made.program.extents)
    if (axis != "n" && !made.known.count(axis))
      shape[axis] = extent;
  return shape;
}

std::string describe(const Verification &found) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (!found.equalAcrossThreads)
    os << "bits depend on threads; ";
  if (!found.equalAcrossStrides)
    os << "bits depend on strides; ";
  for (const OutputVerdict &output : found.outputs) {
    if (output.cases.empty() || output.worst().isGood())
      continue;
    const OutputCase &one = output.worst();
    os << output.name << " errs by " << llvm::format("%.3g", one.fusedError)
       << ", bound " << llvm::format("%.3g", one.bound) << ", unfused "
       << llvm::format("%.3g", one.asWritten.error) << ", bound "
       << llvm::format("%.3g", one.asWritten.bound) << ", classes lost "
       << one.classLosses << " and " << one.asWritten.losses
       << ", rows of one number that are wrong " << one.wrongRows << " and "
       << one.asWritten.wrongRows << " at n = "
       << (one.shape.count("n") ? std::to_string(one.shape.at("n")) : "known")
       << ", seed " << one.worstSeed << "; ";
  }
  return text;
}

Outcome check(const ProductProgram &made) {
  llvm::SmallString<64> path;
  int file = -1;
  if (llvm::sys::fs::createTemporaryFile("random_products", "fold", file, path))
    return {Verdict::Invalid, "no temporary file"};
  llvm::FileRemover remover(path);
  llvm::raw_fd_ostream(file, /*shouldClose=*/true) << made.program.text();
  LoadOptions loading;
  loading.dims = made.known;
  VerifyOptions options;
  options.shape = shapeOf(made);
  options.streamExtents = made.lengths;
  options.broadLength = 0;
  options.families = {{InputFamily(made.program.family)}};
  options.inputs = recipesOf(made);
  options.firstSeeds = 1;
  options.seeds = kSeeds;
  options.splits = 1;
  options.splitSeed = made.lengths.back();
  options.target = targetOf(made);
  options.numerics.stability = Stability(made.stability);
  options.numerics.requantise = made.requantises;
  std::unique_ptr<mlir::MLIRContext> context = makeContext();
  Outcome outcome;
  mlir::ScopedDiagnosticHandler handler(
      context.get(), [](mlir::Diagnostic &) { return mlir::success(); });
  auto found = verify(*context, path, loading, options);
  if (!found) {
    ExitCode code = takeError(found.takeError(), outcome.what);
    outcome.verdict = code == ExitCode::Model ? Verdict::Invalid
                      : code == ExitCode::Unsupported || code == ExitCode::Limit
                          ? Verdict::Refused
                          : Verdict::Differs;
    // Without the name of the file.
    if (size_t at = outcome.what.rfind(".fold:"); at != std::string::npos)
      outcome.what = outcome.what.substr(at + 6);
    return outcome;
  }
  for (const CascadeReport &cascade : found->cascades) {
    ++outcome.cascades;
    outcome.fused += cascade.isFused;
  }
  for (const OutputVerdict &output : found->outputs)
    for (const OutputCase &one : output.cases)
      outcome.isUnjudged |= !(one.unknownError <= one.bound);
  if (!found->isGood())
    return {Verdict::Differs, describe(*found)};
  return outcome;
}

/// Smaller programs, boldest first.
std::vector<ProductProgram> smallerThan(const ProductProgram &made) {
  std::vector<ProductProgram> result;
  auto add = [&]() -> ProductProgram & { return result.emplace_back(made); };
  if (made.stability != 1)
    add().stability = 1;
  if (made.requantises)
    add().requantises = false;
  if (made.program.family)
    add().program.family = 0;
  for (size_t i = 0; made.lengths.size() > 1 && i < made.lengths.size(); ++i) {
    std::vector<int64_t> &lengths = add().lengths;
    lengths.erase(lengths.begin() + i);
  }
  for (const auto &entry : made.known)
    add().known.erase(entry.first);
  for (fuzz::RandomProgram &program : fuzz::smaller(made.program)) {
    ProductProgram &one = add();
    one.program = std::move(program);
    for (auto &[axis, extent] : one.known)
      if (auto it = one.program.extents.find(axis);
          it != one.program.extents.end())
        extent = it->second;
  }
  for (int64_t less : {made.lengths.front() / 2, made.lengths.front() - 1})
    if (made.lengths.size() == 1 && less >= 1 && less < made.lengths.front()) {
      ProductProgram &one = add();
      one.lengths = {less};
      if (one.known.count("n"))
        one.known["n"] = less;
    }
  return result;
}

ProductProgram shrink(ProductProgram made) {
  for (bool changed = true; changed;) {
    changed = false;
    for (const ProductProgram &candidate : smallerThan(made)) {
      if (check(candidate).verdict != Verdict::Differs)
        continue;
      made = candidate;
      changed = true;
      break;
    }
  }
  return made;
}

void report(const ProductProgram &made, uint64_t seed,
            const std::string &what) {
  llvm::errs() << "seed " << seed << ": " << what << "\n"
               << made.program.text() << "# refold verify --inputs "
               << describe(InputRecipe{InputFamily(made.program.family)})
               << " --splits 1 --split-seed " << made.lengths.back()
               << " --first-seeds 1 --seeds " << kSeeds << " --broad-length 0";
  auto list = [&](const char *flag, const Extents &extents) {
    const char *separator = flag;
    for (auto &[axis, extent] : extents) {
      llvm::errs() << separator << axis << "=" << extent;
      separator = ",";
    }
  };
  list(" --dim ", made.known);
  list(" --shape ", shapeOf(made));
  const char *separator = " --lengths ";
  for (int64_t length : made.lengths) {
    llvm::errs() << separator << length;
    separator = ",";
  }
  if (!targetOf(made).empty())
    llvm::errs() << " --target " << targetOf(made);
  if (made.stability != 1)
    llvm::errs() << " --stability "
                 << (made.stability ? "most-accurate" : "fastest");
  if (made.requantises)
    llvm::errs() << " --casts requantise";
  for (auto &[name, recipe] : recipesOf(made))
    llvm::errs() << " --input " << name << "=" << describe(recipe);
  llvm::errs() << "\n";
}

} // namespace

int main(int argc, char **argv) {
  llvm::cl::ParseCommandLineOptions(argc, argv, "random products\n");
  auto start = std::chrono::steady_clock::now();
  auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         start)
        .count();
  };
  unsigned tried = 0, differing = 0, cascades = 0, fused = 0, unjudged = 0;
  std::map<std::string, unsigned> refusals;
  double slowest = 0;
  uint64_t slowestSeed = 0;
  for (uint64_t seed = firstSeed;
       tried < programs && differing < failures && elapsed() < seconds;
       ++seed) {
    ProductProgram made = fuzz::generateProducts(seed);
    if (printsAll)
      report(made, seed, "");
    double begin = elapsed();
    Outcome outcome = check(made);
    ++tried;
    cascades += outcome.cascades;
    fused += outcome.fused;
    unjudged += outcome.isUnjudged;
    if (elapsed() - begin > slowest)
      slowest = elapsed() - begin, slowestSeed = seed;
    if (outcome.verdict == Verdict::Invalid ||
        outcome.verdict == Verdict::Refused)
      ++refusals[(outcome.verdict == Verdict::Invalid ? "invalid: "
                                                      : "refused: ") +
                 outcome.what];
    if (outcome.verdict != Verdict::Differs)
      continue;
    ++differing;
    report(made, seed, outcome.what);
    ProductProgram least = shrink(made);
    report(least, seed, check(least).what);
  }
  llvm::outs() << tried << " programs tried, " << differing << " differ; "
               << fused << " of " << cascades << " cascades in one pass, "
               << unjudged << " not judged everywhere\n";
  for (const auto &[text, count] : refusals)
    llvm::outs() << "  " << llvm::format("%6u", count) << "  " << text << "\n";
  llvm::outs() << "slowest: seed " << slowestSeed << ", "
               << llvm::format("%.2f", slowest) << " s\n";
  // What is not judged says nothing of the kernel: it must stay rare.
  bool isTooMuch = tried >= 20 && unjudged * 10 > tried;
  return differing || isTooMuch ? 3 : 0;
}
