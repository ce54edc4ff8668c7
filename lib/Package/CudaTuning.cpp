// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ways to make a launch, timed on the GPU that is there.
#include "CudaProgram.h"
#include "refold/Package/CompareArrays.h"

#include <algorithm>
#include <cmath>

using namespace refold;
using namespace refold::package;

void CudaProgram::Impl::findChoices(CudaPlan &made) {
  if (!findChoice)
    return;
  for (size_t i = 0; i < made.resolved.size(); ++i) {
    auto *step = std::get_if<PlannedKernel>(&made.plan->steps[i].what);
    if (!step)
      continue;
    const DeviceKernel &kernel = package->deviceKernels[step->kernel];
    std::vector<std::optional<LaunchChoice>> &choices =
        made.resolved[i].choices;
    choices.resize(kernel.launches.size());
    for (size_t launch = 0; launch < choices.size(); ++launch)
      choices[launch] = findChoice({kernel, launch, step->words});
  }
}

namespace {
/// An array that a step writes, and what the default wrote there.
struct WrittenArray {
  View view;
  bool isDense = false;
  /// Places of what is compared, from the first byte.
  std::vector<std::pair<int64_t, int64_t>> parts;
  std::vector<std::vector<char>> expected;
};

class LaunchTuner {
public:
  LaunchTuner(CudaProgram &program, CudaProgram::Impl &impl, CudaPlan &kept,
              const TuneOptions &options)
      : program(program), impl(impl), kept(kept), options(options) {}

  Outcome<std::vector<TunedLaunch>> run();

private:
  Problem tuneStep(size_t at);
  Problem tuneLaunch(size_t at, TunedLaunch &tuned);
  Problem makeCode(size_t at, const TunedLaunch &tuned);
  CallWork callOf(const DeviceKernel &kernel, const PlannedStep &step);
  Problem findWritten(const PlannedStep &step);
  Problem readDefault();
  Problem poison();
  Problem compare(TunedWay &way);
  Problem launchNow(size_t at);
  Problem check(size_t at, TunedLaunch &tuned, TunedWay &way);
  Outcome<double> time(size_t at, TunedLaunch &tuned,
                       const LaunchChoice &choice);
  Problem isQuicker(size_t at, TunedLaunch &tuned, bool &is);
  void choose(size_t at, const TunedLaunch &tuned,
              const std::optional<LaunchChoice> &choice);
  void tell(const std::string &what) {
    if (options.onProgress)
      options.onProgress(what);
  }
  const PlannedKernel &kernelOf(size_t at) const {
    return std::get<PlannedKernel>(kept.plan->steps[at].what);
  }
  const DeviceKernel &deviceKernelOf(size_t at) const {
    return impl.package->deviceKernels[kernelOf(at).kernel];
  }

  CudaProgram &program;
  CudaProgram::Impl &impl;
  CudaPlan &kept;
  const TuneOptions &options;
  std::vector<WrittenArray> written;
  std::vector<TunedLaunch> all;
};
} // namespace

/// Large arrays are compared at both ends and in the middle.
static std::vector<std::pair<int64_t, int64_t>> partsOf(int64_t bytes,
                                                        int64_t width) {
  constexpr int64_t kPart = int64_t(4) << 20;
  if (bytes <= 3 * kPart)
    return {{0, bytes}};
  int64_t middle = (bytes - kPart) / 2 / width * width;
  return {{0, kPart}, {middle, kPart}, {bytes - kPart, kPart}};
}

Problem LaunchTuner::findWritten(const PlannedStep &step) {
  written.clear();
  const Step &spec = impl.package->program.steps[step.step];
  const auto &kernel = std::get<KernelStep>(spec.what);
  SizeValues sizes(kept.plan->symbols);
  for (size_t i = kernel.numInputs; i < kernel.operands.size(); ++i) {
    auto *view = std::get_if<ViewSpec>(&kernel.operands[i]);
    if (!view)
      continue;
    std::optional<View> found = refold::resolve(*view, sizes);
    if (!found)
      return problem(ExitCode::Limit, "'" + spec.name + "': a size overflows");
    if (found->numElements() == 0)
      continue;
    WrittenArray &array = written.emplace_back();
    int64_t reach = 1, dense = 1;
    array.isDense = true;
    for (size_t d = found->sizes.size(); d-- > 0;) {
      array.isDense &= found->sizes[d] == 1 || found->strides[d] == dense;
      reach += (found->sizes[d] - 1) * found->strides[d];
      dense *= found->sizes[d];
    }
    int64_t width = byteWidth(found->dtype);
    array.parts = partsOf(std::max<int64_t>(reach, 1) * width, width);
    array.view = std::move(*found);
  }
  return {};
}

/// With what other steps leave in the second level cache.
CallWork LaunchTuner::callOf(const DeviceKernel &kernel,
                             const PlannedStep &step) {
  CallWork call = callWorkOf(kernel, impl.sizes);
  const ProgramSpec &program = impl.package->program;
  SizeValues values(kept.plan->symbols);
  for (const BufferSpec &buffer : program.buffers)
    call.workingSet += double(values.of(buffer.bytes).value_or(0));
  double read = 0.0, written = 0.0;
  const auto &spec = std::get<KernelStep>(program.steps[step.step].what);
  for (size_t i = 0; i < spec.operands.size(); ++i) {
    auto *operand = std::get_if<ViewSpec>(&spec.operands[i]);
    if (!operand ||
        program.buffers[operand->buffer].kind != BufferKind::Temporary)
      continue;
    std::optional<View> view = refold::resolve(*operand, values);
    double bytes = view ? byteWidth(view->dtype) : 0.0;
    for (size_t d = 0; view && d < view->sizes.size(); ++d)
      bytes *= view->strides[d] == 0 && view->sizes[d] > 0
                   ? 1.0
                   : double(view->sizes[d]);
    (i < spec.numInputs ? read : written) += bytes;
  }
  call.passedRead = std::min(read, call.bytesRead);
  call.passedWritten = std::min(written, call.bytesWritten);
  return call;
}

Problem LaunchTuner::readDefault() {
  for (WrittenArray &array : written)
    for (auto [at, bytes] : array.parts) {
      std::vector<char> &to = array.expected.emplace_back(size_t(bytes));
      DeviceAddress from = impl.addresses[array.view.buffer] +
                           uint64_t(array.view.byteOffset + at);
      if (Problem error = program.download(to.data(), from, bytes))
        return error;
    }
  return {};
}

/// What nobody writes is then none of the default's numbers. Arrays with gaps
/// may have somebody else's numbers there.
Problem LaunchTuner::poison() {
  const std::vector<char> pattern(4096, char(0xff));
  for (WrittenArray &array : written) {
    int64_t bytes = array.view.numElements() * byteWidth(array.view.dtype);
    if (!array.isDense)
      continue;
    DeviceAddress to =
        impl.addresses[array.view.buffer] + uint64_t(array.view.byteOffset);
    if (Problem error =
            program.repeat(to, bytes, pattern.data(), int64_t(pattern.size())))
      return error;
  }
  return {};
}

Problem LaunchTuner::compare(TunedWay &way) {
  std::vector<char> found;
  for (WrittenArray &array : written)
    for (size_t i = 0; i < array.parts.size(); ++i) {
      auto [at, bytes] = array.parts[i];
      found.resize(size_t(bytes));
      DeviceAddress from = impl.addresses[array.view.buffer] +
                           uint64_t(array.view.byteOffset + at);
      if (Problem error = program.download(found.data(), from, bytes))
        return error;
      ArrayDifference difference =
          compareArrays(array.view.dtype, found, array.expected[i]);
      way.difference = std::max(way.difference, difference.relative);
      way.isWrong |= !difference.isRounding;
    }
  return {};
}

void LaunchTuner::choose(size_t at, const TunedLaunch &tuned,
                         const std::optional<LaunchChoice> &choice) {
  ResolvedStep &resolved = kept.resolved[at];
  resolved.choices.resize(deviceKernelOf(at).launches.size());
  resolved.choices[tuned.launch] = choice;
  resolved.forgetCalls();
}

Problem LaunchTuner::launchNow(size_t at) {
  return impl.runStep(kept, kept.plan->steps[at], kept.resolved[at],
                      impl.stream, /*checksLater=*/false);
}

/// Code of all that will be timed, made side by side.
Problem LaunchTuner::makeCode(size_t at, const TunedLaunch &tuned) {
  if (!impl.makesCode)
    return {};
  const PlannedKernel &kernel = kernelOf(at);
  std::vector<MissingEntry> missing;
  for (const TunedWay &way : tuned.ways) {
    std::vector<std::optional<LaunchChoice>> choices(
        deviceKernelOf(at).launches.size());
    choices[tuned.launch] = way.choice;
    setKernelWords(kernel, impl.addresses, kept.workspace, impl.tickets.address,
                   impl.words);
    impl.noteMissing(kernel.kernel, choices, missing);
  }
  return impl.loadMissing(missing);
}

/// Enough launches for a fraction of a millisecond, again and again.
Outcome<double> LaunchTuner::time(size_t at, TunedLaunch &tuned,
                                  const LaunchChoice &choice) {
  constexpr double kGroupMs = 0.4;
  constexpr int kGroups = 11, kMostLaunches = 40;
  choose(at, tuned, choice);
  auto run = [&](DeviceStream) { return launchNow(at); };
  Outcome<double> first = program.time(1, 3, run);
  if (!first)
    return first;
  int launches = int(std::clamp(kGroupMs / std::max(*first, 1e-3), 1.0,
                                double(kMostLaunches)));
  return program.timeReplayed(launches, kGroups, run);
}

/// What a way gives, on poisoned memory.
Problem LaunchTuner::check(size_t at, TunedLaunch &tuned, TunedWay &way) {
  choose(at, tuned, way.choice);
  if (Problem error = poison())
    return error;
  if (Problem error = launchNow(at))
    return error;
  if (Problem error = impl.synchronize())
    return error;
  return compare(way);
}

/// Times the default and the best way in turns: the GPU may have been slower
/// while one of them was timed.
Problem LaunchTuner::isQuicker(size_t at, TunedLaunch &tuned, bool &is) {
  constexpr int kTurns = 3;
  double ms = HUGE_VAL, otherMs = HUGE_VAL;
  for (int turn = 0; turn < kTurns; ++turn)
    for (auto [way, least] :
         {std::pair(size_t(0), &ms), {tuned.best, &otherMs}}) {
      Outcome<double> timed = time(at, tuned, tuned.ways[way].choice);
      if (!timed)
        return timed.error();
      *least = std::min(*least, *timed);
    }
  is = otherMs < ms * (1.0 - options.leastGain);
  tuned.ways[0].ms = ms;
  tuned.ways[tuned.best].ms = otherMs;
  return {};
}

Problem LaunchTuner::tuneLaunch(size_t at, TunedLaunch &tuned) {
  const std::string &name = impl.package->program.steps[tuned.step].name;
  if (Problem error = makeCode(at, tuned))
    return error;
  for (size_t i = 0; i < tuned.ways.size(); ++i) {
    TunedWay &way = tuned.ways[i];
    tell(name + ": " + std::to_string(i + 1) + " of " +
         std::to_string(tuned.ways.size()) + ", " + way.choice.entry);
    if (i == 0) {
      choose(at, tuned, way.choice);
      Problem error = launchNow(at);
      if (error || (error = impl.synchronize()) || (error = readDefault()))
        return error;
    } else if (Problem error = check(at, tuned, way)) {
      return error;
    }
    if (way.isWrong)
      continue;
    // The first one finds the GPU at rest.
    for (int round = 0; round < (i == 0 ? 2 : 1); ++round) {
      Outcome<double> ms = time(at, tuned, way.choice);
      if (!ms)
        return ms.error();
      way.ms = *ms;
    }
  }
  double least = tuned.ways[0].ms * (1.0 - options.leastGain);
  for (size_t i = 1; i < tuned.ways.size(); ++i)
    if (!tuned.ways[i].isWrong && tuned.ways[i].ms < least) {
      least = tuned.ways[i].ms;
      tuned.best = i;
    }
  bool is = false;
  if (tuned.best)
    if (Problem error = isQuicker(at, tuned, is))
      return error;
  tuned.best = is ? tuned.best : 0;
  tuned.choice = tuned.ways[tuned.best].choice;
  return {};
}

Problem LaunchTuner::tuneStep(size_t at) {
  const PlannedStep &step = kept.plan->steps[at];
  const PlannedKernel &planned = kernelOf(at);
  const DeviceKernel &kernel = deviceKernelOf(at);
  bool isRead = false;
  for (size_t launch = 0; launch < kernel.launches.size(); ++launch) {
    TunedLaunch tuned;
    tuned.step = step.step;
    tuned.kernel = planned.kernel;
    tuned.launch = launch;
    tuned.words = planned.words;
    if (const LaunchChoice *known =
            choiceOf(kept.resolved[at].choices, launch)) {
      tuned.wasKept = true;
      tuned.choice = *known;
      all.push_back(std::move(tuned));
      continue;
    }
    setKernelWords(planned, impl.addresses, kept.workspace,
                   impl.tickets.address, impl.words);
    impl.sizes.start(kernel.sizes, impl.words);
    std::map<std::string, std::optional<EntryCode>> codes;
    auto codeOf = [&](const LaunchWay &way) -> const EntryCode * {
      auto [known, isNew] = codes.try_emplace(way.entry);
      if (isNew && !impl.makesCode)
        known->second = readEntryCode(kernel.cubin, way.entry);
      return known->second ? &*known->second : nullptr;
    };
    std::vector<LegalWay> legal =
        legalWays(kernel, kernel.launches[launch], impl.sizes, impl.gpu,
                  callOf(kernel, step), codeOf);
    tuned.numLegal = legal.size();
    for (const LegalWay &way : legal)
      if (tuned.ways.size() < options.mostWays)
        tuned.ways.push_back({way.choice, way.predictedMs, 0.0, way.isDefault});
    if (tuned.ways.empty() || !tuned.ways[0].isDefault)
      continue;
    if (!isRead)
      if (Problem error = findWritten(step))
        return error;
    isRead = true;
    for (WrittenArray &array : written)
      array.expected.clear();
    if (Problem error = tuneLaunch(at, tuned))
      return error;
    choose(at, tuned, tuned.choice);
    all.push_back(std::move(tuned));
  }
  // What follows reads what the chosen ways give.
  return launchNow(at);
}

Outcome<std::vector<TunedLaunch>> LaunchTuner::run() {
  for (size_t i = 0; i < kept.plan->steps.size(); ++i) {
    if (Problem error = launchNow(i))
      return error;
    bool isKernel =
        std::holds_alternative<PlannedKernel>(kept.plan->steps[i].what);
    // What a library computes has no ways.
    if (!isKernel || kept.resolved[i].wasMultiplied)
      continue;
    if (Problem error = tuneStep(i))
      return error;
  }
  if (Problem error = impl.synchronize())
    return error;
  return std::move(all);
}

Outcome<std::vector<TunedLaunch>>
CudaProgram::tune(const RunPlan &plan, std::span<const DeviceAddress> inputs,
                  std::span<const DeviceAddress> outputs,
                  const TuneOptions &options) {
  CudaPlan *known = impl->plans.find(plan.id);
  if (!known)
    return noLongerKept(impl->package->name);
  CurrentContext current(*impl);
  impl->isCapturing = false;
  impl->placeBuffers(*known, inputs, outputs);
  return LaunchTuner(*this, *impl, *known, options).run();
}

static std::string formatMs(double ms) {
  char text[32];
  std::snprintf(text, sizeof(text), "%10.5f", ms);
  return text;
}

std::string package::describeTuned(const Package &package,
                                   const TunedLaunch &tuned) {
  auto nameOf = [](const LaunchChoice &choice) {
    return choice.entry +
           (choice.blocks ? ", " + std::to_string(choice.blocks) + " blocks"
                          : "");
  };
  std::string text = package.program.steps[tuned.step].name + ": ";
  if (tuned.wasKept)
    return text + "kept, " + nameOf(tuned.choice) + "\n";
  text += std::to_string(tuned.ways.size()) + " of " +
          std::to_string(tuned.numLegal) +
          " ways timed\n        ms  predicted\n";
  for (size_t i = 0; i < tuned.ways.size(); ++i) {
    const TunedWay &way = tuned.ways[i];
    text += (way.isWrong ? "         -" : formatMs(way.ms)) + " " +
            formatMs(way.predictedMs) + "  " + nameOf(way.choice);
    if (way.isDefault)
      text += " (default)";
    if (way.isWrong) {
      char difference[32];
      std::snprintf(difference, sizeof(difference), "%.1e", way.difference);
      text += ": another answer, by " + std::string(difference) + ", not taken";
    } else if (i == tuned.best) {
      text += " (taken)";
    }
    text += "\n";
  }
  return text;
}
