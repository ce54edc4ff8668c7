// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Commands.h"
#include "GpuText.h"
#include "Output.h"
#include "ProgramFlags.h"
#include "ProofText.h"
#include "ReportJson.h"
#include "refold/Conversion/CascadeToCUDA.h"
#include "refold/Driver/GpuPlan.h"
#include "refold/Driver/Work.h"
#include "refold/Support/Error.h"
#include "refold/Support/Reasons.h"
#include "refold/Support/Stopwatch.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

namespace refold {

static constexpr const char *kOnceText =
    "; of weights alone: done once, before the first run";

static void printIndented(llvm::raw_ostream &os, llvm::StringRef text) {
  llvm::SmallVector<llvm::StringRef> lines;
  text.rtrim('\n').split(lines, '\n');
  for (llvm::StringRef line : lines)
    os << "    " << line << "\n";
}

/// "tiles m=64 n=256, registers of 8 rows x 32 lanes along n, 16 segments".
static std::string describeWalk(const llvm::json::Object &schedule) {
  std::string text;
  llvm::raw_string_ostream os(text);
  const llvm::json::Object *tile = schedule.getObject("tile");
  if (tile && !tile->empty()) {
    std::vector<std::string> sizes;
    for (const auto &[name, size] : *tile)
      sizes.push_back(name.str() + "=" +
                      std::to_string(size.getAsInteger().value_or(0)));
    llvm::sort(sizes);
    os << "tiles " << llvm::join(sizes, " ") << ", ";
  }
  os << "register tile of " << schedule.getInteger("register_rows").value_or(1)
     << " rows x " << schedule.getInteger("register_lanes").value_or(1)
     << " lanes";
  llvm::StringRef lanes = schedule.getString("lanes").value_or("");
  if (!lanes.empty())
    os << " along " << lanes;
  if (int64_t segments = schedule.getInteger("segments").value_or(1);
      segments > 1)
    os << ", up to " << segments << " segments";
  if (schedule.getBoolean("prefetch").value_or(false))
    os << ", prefetched";
  return text;
}

static void printSchedule(const llvm::json::Object &schedule) {
  llvm::raw_ostream &os = llvm::outs();
  if (schedule.get("declined")) {
    os << "  cascade not fused [" << schedule.getString("declined").value_or("")
       << "]: " << schedule.getString("text").value_or("");
    if (!schedule.get("rates")) { // a GPU has no fused code for it
      os << (schedule.getBoolean("keeps_product").value_or(false)
                 ? "; its products are steps of their own\n"
                 : "; it runs as written\n");
      return;
    }
    os << " (rates: " << schedule.getString("rates").value_or("")
       << "); --fuse always fuses it nevertheless\n";
    return;
  }
  if (schedule.get("form")) {
    printLaunch(schedule, schedule.getBoolean("is_once").value_or(false));
    return;
  }
  os << "  kernel " << schedule.getString("kernel").value_or("") << " for "
     << schedule.getString("target").value_or("") << ": "
     << describeWalk(schedule) << "\n";
  if (const llvm::json::Array *plan = schedule.getArray("plan"))
    for (const llvm::json::Value &line : *plan)
      os << "    " << line.getAsString().value_or("") << "\n";
  if (schedule.getBoolean("second_sweep").value_or(false))
    os << "    the stream is read once more, to write results along it\n";
  auto number = [&](llvm::StringRef key) {
    return schedule.getNumber(key).value_or(0.0);
  };
  os << "  at this shape: " << formatBytes(number("bytes_read")) << " read, "
     << formatBytes(number("bytes_written")) << " written, "
     << formatCount(number("operations")) << " operations"
     << (schedule.getBoolean("skips_tiles").value_or(false)
             ? " at most: dead tiles are skipped"
             : "");
  if (schedule.getBoolean("is_once").value_or(false)) {
    os << kOnceText << "\n";
    return;
  }
  os << llvm::format("\n  predicted: %.4g ms on one thread (rates: ",
                     number("predicted_ms"))
     << schedule.getString("rates").value_or("") << ")\n";
  if (llvm::StringRef judged = schedule.getString("judged").value_or("");
      !judged.empty())
    os << "  " << judged << "\n";
}

/// "  error in f32 over the unfused one: 1.3 as a stream, ...".
static void printAccuracy(const llvm::json::Object &accuracy) {
  llvm::raw_ostream &os = llvm::outs();
  auto number = [](const llvm::json::Object &object, llvm::StringRef key) {
    return object.getNumber(key).value_or(
        std::numeric_limits<double>::infinity());
  };
  auto show = [&](llvm::StringRef key) {
    return llvm::format("%.2g", number(accuracy, key));
  };
  os << "  f32 error, of the unfused one + 1 ulp: " << show("stream")
     << " as a stream, " << show("tiles") << " in tiles of 16, " << show("tree")
     << " as a tree";
  if (number(accuracy, "share_of_bound") > 0)
    os << "; " << show("share_of_bound")
       << " of the bound of an amplification of " << show("amplification");
  os << (accuracy.getBoolean("holds").value_or(false) ? "\n" : ": beyond it\n");
  for (const llvm::json::Value &value : *accuracy.getArray("outputs")) {
    const llvm::json::Object &output = *value.getAsObject();
    for (const llvm::json::Value &row : *output.getArray("families")) {
      const llvm::json::Object &family = *row.getAsObject();
      os << "    "
         << llvm::left_justify(output.getString("name").value_or(""), 10)
         << llvm::left_justify(family.getString("family").value_or(""), 14);
      for (const char *key : {"unfused", "stream", "tiles", "tree"})
        os << " " << key << llvm::format(" %-8.1e", number(family, key));
      os << "\n";
    }
  }
}

/// `placeWord`: what the numbers of places count in the user's file.
static void print(const CascadeReport &report, llvm::StringRef placeWord) {
  llvm::raw_ostream &os = llvm::outs();
  os << report.name << ": ";
  printColored(os, report.isFused ? os.GREEN : os.YELLOW, verdictOf(report));
  os << ", " << report.stages.size()
     << (report.stages.size() == 1 ? " reduction" : " reductions") << " over "
     << llvm::join(report.axes, ", ") << " in " << report.passes
     << (report.passes == 1 ? " pass" : " passes");
  if (report.passes == report.unfusedPasses)
    os << ", as written";
  else
    os << " instead of " << report.unfusedPasses;
  os << ", state of " << report.stateSize << "\n";
  if (report.repairPasses) {
    os << "  rows ";
    if (!report.lists.empty())
      os << "of which a list holds too little, or ";
    if (!report.choices.empty())
      os << "whose results would lose digits, or ";
    os << "that do not end finite: " << report.repairPasses
       << (report.repairPasses == 1 ? " more pass" : " more passes")
       << (report.choices.empty() ? ", as written" : "")
       << " [irregular-rows]\n";
  }
  for (const StageReport &stage : report.stages) {
    os << "  pass " << stage.pass << "  " << stage.name << " = " << stage.op;
    if (stage.line)
      os << "  (" << placeWord << " " << stage.line << ")";
    os << "\n";
  }
  if (!report.gauge.empty())
    os << "  relative to: " << report.gauge << "\n";
  for (const GaugeReport &gauge : report.gauges)
    os << "    " << llvm::join(gauge.states, ", ") << " to " << gauge.pivot
       << ": " << gauge.why << " (" << gauge.law << ")\n";
  for (const ReasonReport &reason : report.reasons) {
    os << "  " << reason.at << ": ";
    bool waits = reason.key == keyOf(Reason::WaitsForResults);
    printColored(os, os.YELLOW,
                 (waits ? "cascade waits [" : "cascade cut [") + reason.key +
                     "]");
    os << ": " << reason.text << "\n";
    if (!reason.evidence.empty())
      os << "    evidence: " << reason.evidence << "\n";
    if (!reason.hint.empty())
      os << "    hint: " << reason.hint << "\n";
  }
  for (const std::string &policy : report.policies)
    os << "  policy [" << policy << "]: " << infoOf(*reasonOfKey(policy)).text
       << "\n";
  for (const std::string &choice : report.choices)
    os << "  chosen for accuracy: " << choice << "\n";
  for (const std::string &list : report.lists)
    os << "  list [threshold-by-list]: " << list << "\n";
  for (const RoundingReport &rounding : report.roundings)
    os << "  " << rounding.stage << ": y rounded in " << rounding.formula
       << " is " << rounding.bound << "\n";
  for (const std::string &output : report.zeroedOutputs)
    os << "  " << output << ": 0 on rows of masked elements\n";
  printIndented(os, report.formula);
  if (!report.certificate.empty())
    os << "  certificate: " << report.certificate << "\n";
  if (report.proof)
    printProof(os, *report.proof);
  if (report.accuracy)
    printAccuracy(*report.accuracy);
  if (report.schedule)
    printSchedule(*report.schedule);
  os << "\n";
}

/// The steps that run none of the cascades, by what they do.
static void printOtherSteps(const ProgramWork &work,
                            const std::vector<CascadeReport> &cascades,
                            const std::optional<GpuPlan> &gpu) {
  for (auto [i, step] : llvm::enumerate(work.steps)) {
    llvm::StringRef kernel = step.kernel;
    bool isShown = llvm::any_of(cascades, [&](const CascadeReport &cascade) {
      return cascade.schedule && !kernel.empty() &&
             cascade.schedule->getString("kernel") ==
                 std::optional<llvm::StringRef>(kernel);
    });
    if (isShown || step.isLeftOut || step.kind == "check")
      continue;
    if (gpu) {
      const std::optional<llvm::json::Object> &launch = gpu->launches[i];
      printShortLaunch(step, launch ? &*launch : nullptr);
      continue;
    }
    llvm::outs() << "  " << llvm::left_justify(step.kind, 8)
                 << llvm::left_justify(step.name, 24) << " "
                 << formatBytes(step.bytesRead + step.bytesWritten) << ", "
                 << formatCount(step.operations) << " operations"
                 << (step.isOnce ? kOnceText : "") << "\n";
  }
}

/// Steps that the program has for other sizes.
static void printLeftOut(const ProgramWork &work) {
  size_t left = llvm::count_if(
      work.steps, [](const StepWork &step) { return step.isLeftOut; });
  if (left)
    llvm::outs() << left << (left == 1 ? " step" : " steps")
                 << " for other sizes, left out at these\n";
}

static void printOnce(const ProgramWork &work) {
  size_t once = llvm::count_if(
      work.steps, [](const StepWork &step) { return step.isOnce; });
  if (once)
    llvm::outs() << once << (once == 1 ? " step" : " steps")
                 << " of weights alone done once, "
                 << formatBytes(static_cast<double>(work.keptBytes))
                 << " kept\n";
}

/// Compiles the program, so that the kernels are those that would run, and
/// gives every cascade its schedule and its work at the shape.
static llvm::Expected<ProgramWork>
schedule(mlir::MLIRContext &context, LoadedProgram loaded, const Extents &shape,
         const std::string &target, const NumericPolicy &numerics,
         FusePolicy policy, FuseReport &report) {
  auto shapes = shapesOf(loaded.inputs, shape);
  if (!shapes)
    return shapes.takeError();
  CompileOptions options;
  options.target = target;
  options.numerics = numerics;
  options.policy = policy;
  options.usualExtents = shape;
  auto machine = detectTarget(target);
  if (!machine)
    return machine.takeError();
  auto compiled = compile(std::move(loaded), options);
  if (!compiled)
    return compiled.takeError();
  auto work = measureWork(context, *compiled, *shapes);
  if (!work)
    return work.takeError();
  MachineFacts facts = knownFacts(*machine);
  predictTimes(*work, machine->facts, facts.rates, /*threads=*/1);
  report = std::move(compiled->fusion);
  std::vector<bool> isTaken(work->steps.size());
  for (CascadeReport &cascade : report.cascades) {
    if (cascade.decline) {
      cascade.schedule =
          llvm::json::Object{{"declined", cascade.decline->key},
                             {"text", cascade.decline->text},
                             {"predicted_ms", cascade.decline->fusedMs},
                             {"other_ms", cascade.decline->otherMs},
                             {"rates", facts.source(*machine)}};
      continue;
    }
    for (auto [i, step] : llvm::enumerate(work->steps)) {
      // A check of subscripts has the name of what it guards.
      if (isTaken[i] || step.kernel.empty() || step.name != cascade.step ||
          step.axes != cascade.axes)
        continue;
      isTaken[i] = true;
      auto found = describeSchedule(context, *compiled, i, target);
      if (!found)
        return found.takeError();
      (*found)["bytes_read"] = step.bytesRead;
      (*found)["bytes_written"] = step.bytesWritten;
      (*found)["operations"] = step.operations;
      (*found)["is_once"] = step.isOnce;
      (*found)["skips_tiles"] = step.skipsTiles;
      (*found)["predicted_ms"] = step.predicted.ms;
      (*found)["rates"] = facts.source(*machine);
      (*found)["judged"] = cascade.judged;
      cascade.schedule = std::move(*found);
      break;
    }
  }
  return std::move(*work);
}

/// A cascade that is left apart because the target has no fused code for it.
static llvm::json::Object describeDecline(const DeclineReport &decline) {
  return llvm::json::Object{{"declined", decline.key},
                            {"text", decline.text},
                            {"keeps_product", decline.keepsProduct}};
}

/// The same for a GPU: compiles the program as a package would be, and says
/// what every step launches.
static llvm::Expected<GpuPlan>
scheduleOnGpu(mlir::MLIRContext &context, LoadedProgram loaded,
              const Extents &shape, const GpuCard &card,
              const CompileOptions &asked, FuseReport &report) {
  auto shapes = shapesOf(loaded.inputs, shape);
  if (!shapes)
    return shapes.takeError();
  CompileOptions options = asked;
  options.usualExtents = shape;
  std::vector<CudaKernel> kernels;
  options.onCuda = [&](const CudaKernel &kernel) { kernels.push_back(kernel); };
  auto compiled = compile(std::move(loaded), options);
  if (!compiled)
    return compiled.takeError();
  auto plan =
      planForGpu(context, *compiled, kernels, *shapes, card, options.cache);
  if (!plan)
    return plan.takeError();
  report = std::move(compiled->fusion);
  std::vector<bool> isTaken(plan->work.steps.size());
  for (CascadeReport &cascade : report.cascades) {
    if (cascade.decline) {
      cascade.schedule = describeDecline(*cascade.decline);
      continue;
    }
    for (auto [i, step] : llvm::enumerate(plan->work.steps)) {
      if (isTaken[i] || step.kernel.empty() || step.name != cascade.step ||
          step.axes != cascade.axes || !plan->launches[i])
        continue;
      isTaken[i] = true;
      cascade.schedule = llvm::json::Object(*plan->launches[i]);
      (*cascade.schedule)["target"] = options.target;
      (*cascade.schedule)["is_once"] = step.isOnce;
      break;
    }
  }
  return std::move(*plan);
}

static void printText(const FuseReport &report,
                      const std::optional<ProgramWork> &work,
                      const std::optional<GpuCard> &card,
                      const std::optional<GpuPlan> &gpu, llvm::StringRef path) {
  for (const CascadeReport &cascade : report.cascades)
    print(cascade, path.ends_with_insensitive(".onnx") ? "node" : "line");
  for (const ReasonReport &note : report.notes) {
    // What a kernel does otherwise than the formula stands last in Reasons.def.
    std::optional<Reason> reason = reasonOfKey(note.key);
    bool isPolicy = reason && *reason >= Reason::MaskedValuesUnread;
    llvm::outs() << note.at << ": "
                 << (isPolicy                        ? "policy ["
                     : reason == Reason::TrialFailed ? "not compared ["
                                                     : "cascade not fused [")
                 << note.key << "]: " << note.text << "\n";
  }
  size_t fused = llvm::count_if(
      report.cascades, [](const CascadeReport &c) { return c.isFused; });
  size_t waiting = llvm::count_if(
      report.cascades, [](const CascadeReport &c) { return c.waits; });
  llvm::outs() << report.cascades.size()
               << (report.cascades.size() == 1 ? " cascade, " : " cascades, ")
               << fused << " fused";
  if (waiting)
    llvm::outs() << ", " << waiting << " waiting in one kernel";
  llvm::outs() << "; " << report.kernels << " kernels, " << report.products
               << " products\n";
  if (!work)
    return;
  printOtherSteps(*work, report.cascades, gpu);
  printOnce(*work);
  printLeftOut(*work);
  if (gpu)
    printCard(*card, *gpu);
  llvm::outs() << "at this shape: inputs " << formatBytes(work->inputBytes)
               << ", weights " << formatBytes(work->weightBytes) << ", outputs "
               << formatBytes(work->outputBytes)
               << llvm::format("; predicted %.4g ms\n", work->predictedMs);
}

/// Milliseconds of CPU time: `loadMs` for reading the file.
static llvm::json::Object timingOf(const FuseReport &report, double loadMs) {
  llvm::json::Array cascades;
  for (const CascadeReport &cascade : report.cascades)
    cascades.push_back(llvm::json::Object{{"name", cascade.name},
                                          {"derive_ms", cascade.deriveMs},
                                          {"certify_ms", cascade.certifyMs}});
  return llvm::json::Object{{"load_ms", loadMs},
                            {"plan_ms", report.planMs},
                            {"total_ms", loadMs + report.totalMs},
                            {"cascades", std::move(cascades)}};
}

static void printTiming(const FuseReport &report, double loadMs) {
  double derive = 0, certify = 0;
  for (const CascadeReport &cascade : report.cascades) {
    derive += cascade.deriveMs;
    certify += cascade.certifyMs;
  }
  llvm::outs() << llvm::format(
      "CPU time: %.1f ms to read, %.1f ms to find cascades, %.1f ms to derive, "
      "%.1f ms to certify, %.1f ms in all\n",
      loadMs, report.planMs, derive, certify, loadMs + report.totalMs);
}

llvm::Expected<ExitCode> explainCommand(const Command &command,
                                        Arguments arguments) {
  ProgramFlags program;
  Extents shape;
  bool hasShape = false;
  std::string target;
  FuseOptions fuseOptions;
  Flags flags;
  program.addTo(flags);
  program.addDtypeTo(flags);
  flags.toggle("accuracy", "measures fused cascades in f32 against 31 digits",
               fuseOptions.accuracy);
  program.addNumericsTo(flags);
  flags.value("shape", "NAME=EXTENT,...",
              "shows schedules, bytes and operations for these extents, which "
              "may be none",
              [&](llvm::StringRef text) {
                hasShape = true;
                return text.empty() ? llvm::Error::success()
                                    : parseExtents(text, shape);
              });
  flags.text("target", "NAME",
             "avx512, avx2 or baseline (what the machine offers), cuda, "
             "cuda-sm80 or cuda-sm90",
             target);
  program.addCacheTo(flags);
  FusePolicy policy = FusePolicy::Auto;
  addFuseTo(flags, policy);
  flags.toggle("certificate",
               "says what the certificate of every cascade looked at",
               fuseOptions.certificate);
  int64_t seed = 1;
  flags.integer("seed", "N", "of what certificates draw at random (1)", seed, 0,
                std::numeric_limits<int64_t>::max());
  bool isTimed = false;
  flags.toggle("timing", "shows the CPU time of each step of the derivation",
               isTimed);
  if (showHelp(command, flags, arguments))
    return ExitCode::Ok;
  if (llvm::Error error = flags.parse(command.name, arguments))
    return std::move(error);
  if (fuseOptions.accuracy && hasShape)
    return fail(ExitCode::Usage,
                "found --accuracy and --shape, expected one of them: rows are "
                "measured at a length of their own");
  bool isForGpu = llvm::StringRef(target).starts_with("cuda");
  if (isForGpu && (fuseOptions.accuracy || fuseOptions.certificate))
    return fail(ExitCode::Usage,
                "found --target " + target +
                    " beside --accuracy or --certificate, expected one of "
                    "them: both are of every target");
  if ((fuseOptions.certificate || seed != 1) && hasShape)
    return fail(ExitCode::Usage,
                "found --shape beside --certificate or --seed, expected one of "
                "them: a certificate is of every shape");
  std::optional<GpuCard> card;
  if (isForGpu) {
    auto found = cardFor(target);
    if (!found)
      return found.takeError();
    card = std::move(*found);
  }
  auto context = makeContext();
  Stopwatch watch;
  auto loaded = load(*context, program.path, program.loadOptions());
  if (!loaded)
    return loaded.takeError();
  double loadMs = watch.ms();
  FuseReport report;
  std::optional<ProgramWork> work;
  std::optional<GpuPlan> gpu;
  std::unique_ptr<DiskCache> cache;
  if (!hasShape && card && !openDims(loaded->inputs).empty())
    return fail(ExitCode::Usage,
                "found no --shape, expected extents of " +
                    llvm::join(openDims(loaded->inputs), ", ") +
                    ": what is launched hangs on them");
  if (card) {
    auto opened = program.openCache();
    if (!opened)
      return opened.takeError();
    cache = std::move(*opened);
    CompileOptions options;
    options.target = target == "cuda" ? card->facts.textTarget() : target;
    options.numerics = program.numerics;
    options.policy = policy;
    options.cache = cache.get();
    auto found = scheduleOnGpu(*context, std::move(*loaded), shape, *card,
                               options, report);
    if (!found)
      return found.takeError();
    gpu = std::move(*found);
    work = gpu->work;
  } else if (!hasShape) {
    fuseOptions.numerics = program.numerics;
    fuseOptions.policy = policy;
    fuseOptions.seed = uint64_t(seed);
    auto fused = fuse(*loaded->module, fuseOptions);
    if (!fused)
      return fused.takeError();
    report = std::move(*fused);
  } else {
    auto found = schedule(*context, std::move(*loaded), shape, target,
                          program.numerics, policy, report);
    if (!found)
      return found.takeError();
    work = std::move(*found);
  }
  if (!program.isJson()) {
    printText(report, work, card, gpu, program.path);
    if (isTimed)
      printTiming(report, loadMs);
    return ExitCode::Ok;
  }
  llvm::json::Array cascades;
  for (const CascadeReport &cascade : report.cascades)
    cascades.push_back(toJson(cascade));
  llvm::json::Object answer{{"cascades", std::move(cascades)},
                            {"notes", toJson(report.notes)},
                            {"kernels", report.kernels},
                            {"products", report.products}};
  if (work) {
    llvm::json::Array steps;
    for (auto [i, step] : llvm::enumerate(work->steps)) {
      llvm::json::Object one = toJson(step);
      if (gpu)
        one["launch"] = gpu->launches[i]
                            ? llvm::json::Value(std::move(*gpu->launches[i]))
                            : llvm::json::Value(nullptr);
      steps.push_back(std::move(one));
    }
    answer["steps"] = std::move(steps);
    answer["bytes"] = llvm::json::Object{{"inputs", work->inputBytes},
                                         {"weights", work->weightBytes},
                                         {"outputs", work->outputBytes}};
    answer["predicted_ms"] = work->predictedMs;
  }
  if (gpu) {
    answer["card"] = toJson(*card);
    answer["code"] = gpu->code;
  }
  if (isTimed)
    answer["timing"] = timingOf(report, loadMs);
  printJson(std::move(answer));
  return ExitCode::Ok;
}

} // namespace refold
