// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Decline.h"
#include "DeferredCertificates.h"
#include "refold/Driver/Work.h"
#include "refold/Support/Error.h"
#include "refold/Support/Reasons.h"
#include "refold/Target/CPU/CompileProgram.h"
#include "refold/Transforms/FuseCascades.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include <limits>

namespace refold {

/// A fusion is declined where what would run instead is predicted to save more
/// than this share of its time. Zen 5, 172 cases of the suite timed both ways:
/// with 5 % 19 of them ran below 0.97 of the unfused program, with 1 % 15; with
/// none attention that gains 11 % was left unfused.
static constexpr double kMargin = 0.01;
/// Kernels that take less of a program are fused without a look.
static constexpr double kLeastShare = 0.02;
/// Groups of alike kernels that are looked at, the longest first.
static constexpr size_t kMostGroups = 6;
/// Ops of a program times the groups that are looked at: a look plans the
/// whole program up to three times, and long programs have to be compiled too.
static constexpr size_t kMostOps = 8000;

/// Cascades that are decided on together: the layers of a model. Their kernels
/// need not be the same, since what a layer reads is written in the elements of
/// all layers before it (a residual is a sum of ever more arrays).
struct LosingFusions::Group {
  std::string form;            ///< `formOf`
  std::vector<size_t> members; ///< in the report
  std::vector<double> memberMs;
  llvm::DenseSet<unsigned> reductions, products, separated;
  double fusedMs = 0.0;
  /// The best alternative, if it is good enough, or what comes nearest.
  Alternative choice = Alternative::None, nearest = Alternative::None;
  /// What the whole program is predicted to take less by that.
  double savedMs = -std::numeric_limits<double>::infinity();
  /// Why an alternative could not be predicted.
  std::vector<std::string> failures;

  const llvm::DenseSet<unsigned> &numbersOf(Alternative other) const {
    return other == Alternative::Waiting        ? separated
           : other == Alternative::KeepsProduct ? products
                                                : reductions;
  }
  /// In whose place one of them is told of.
  LosingFusions::Change changeOf(size_t i, Alternative other) const {
    double count = static_cast<double>(members.size());
    return {members[i], other, memberMs[i], memberMs[i] - savedMs / count, ""};
  }
};

/// What alike kernels have in common: reducers and their passes, what may be
/// left apart, and every index with its role and extent, but not the elements
/// that they read.
static std::string formOf(const CascadeReport &cascade, const StepWork &step) {
  std::vector<std::string> stages;
  for (const StageReport &stage : cascade.stages)
    stages.push_back(stage.op + "@" + std::to_string(stage.pass));
  llvm::sort(stages);
  std::string form;
  llvm::raw_string_ostream(form)
      << step.shape << " " << llvm::join(stages, " ") << " " << cascade.passes
      << " " << cascade.repairPasses << " " << cascade.stateSize << " "
      << cascade.reductions.size() << " " << cascade.products.size() << " "
      << cascade.separated.size();
  return form;
}

/// The shape of a port; nothing where an extent is unknown.
static std::optional<llvm::SmallVector<int64_t, 4>>
knownShape(const Port &port, const std::map<std::string, int64_t> &extents) {
  llvm::SmallVector<int64_t, 4> shape;
  for (auto [name, extent] : llvm::zip(port.dims, port.extents)) {
    auto known = extents.find(name);
    if (extent < 0 && (name.empty() || known == extents.end()))
      return std::nullopt;
    shape.push_back(extent < 0 ? known->second : extent);
  }
  return shape;
}

LosingFusions::LosingFusions(LoadedProgram &program, const CpuTarget &target,
                             const std::map<std::string, int64_t> &extents)
    : target(target) {
  for (const Port &port : program.inputs) {
    auto shape = knownShape(port, extents);
    // Of nothing there is nothing to gain, and what is fused stays fused.
    if (!shape || llvm::is_contained(*shape, 0))
      return;
    shapes.push_back(std::move(*shape));
  }
  original = program.module->clone();
}

/// What the steps of a fused module are predicted to take, with the epilogues
/// that its products will have.
static llvm::Expected<ProgramWork>
predictModule(mlir::ModuleOp fused, const CpuTarget &target,
              llvm::ArrayRef<llvm::SmallVector<int64_t, 4>> shapes) {
  mlir::OwningOpRef<mlir::ModuleOp> copy = fused.clone();
  mlir::ModuleOp module = *copy;
  for (auto function : module.getOps<mlir::func::FuncOp>())
    fuseEpilogues(function);
  CompileProgramOptions options;
  options.plansOnly = true;
  std::vector<KernelText> kernels;
  options.onKernel = [&](llvm::StringRef name, llvm::StringRef text) {
    kernels.push_back({name.str(), text.str()});
  };
  llvm::Expected<ExecutableSpec> spec = compileProgram(module, target, options);
  if (!spec)
    return spec.takeError();
  auto work =
      measureWork(*module.getContext(), *spec, kernels, target.facts, shapes);
  if (work)
    predictTimes(*work, target.facts, knownFacts(target).rates, /*threads=*/1);
  return work;
}

/// With what was already decided on.
llvm::Expected<double>
LosingFusions::predictOther(Alternative other,
                            const llvm::DenseSet<unsigned> &numbers,
                            const FuseOptions &decided, Accepts accepts) {
  FuseOptions trial = decided;
  trial.certify = trial.certificate = trial.accuracy = false;
  trial.deferred = nullptr;
  (other == Alternative::Waiting ? trial.waiting : trial.apart)
      .insert(numbers.begin(), numbers.end());
  mlir::OwningOpRef<mlir::ModuleOp> module = original->clone();
  auto report = fuse(*module, trial);
  if (!report)
    return report.takeError();
  if (accepts)
    if (llvm::Error error = accepts(*module))
      return std::move(error);
  auto work = predictModule(*module, target, shapes);
  if (!work)
    return work.takeError();
  return work->predictedMs;
}

std::vector<LosingFusions::Group>
LosingFusions::groupCascades(const FuseReport &report,
                             const ProgramWork &work) {
  std::vector<Group> groups;
  std::vector<bool> isTaken(work.steps.size());
  for (auto [i, cascade] : llvm::enumerate(report.cascades)) {
    for (auto [s, step] : llvm::enumerate(work.steps)) {
      if (isTaken[s] || step.kernel.empty() || step.name != cascade.step ||
          step.axes != cascade.axes)
        continue;
      isTaken[s] = true;
      std::string form = formOf(cascade, step);
      auto group =
          llvm::find_if(groups, [&](const Group &g) { return g.form == form; });
      if (group == groups.end()) {
        group = groups.emplace(groups.end());
        group->form = std::move(form);
      }
      group->members.push_back(i);
      group->memberMs.push_back(step.predicted.ms);
      group->fusedMs += step.predicted.ms;
      group->reductions.insert(cascade.reductions.begin(),
                               cascade.reductions.end());
      group->products.insert(cascade.products.begin(), cascade.products.end());
      group->separated.insert(cascade.separated.begin(),
                              cascade.separated.end());
      break;
    }
  }
  llvm::sort(groups, [](const Group &a, const Group &b) {
    return std::pair(-a.fusedMs, a.members[0]) <
           std::pair(-b.fusedMs, b.members[0]);
  });
  return groups;
}

/// Against a second pass for what one pass makes several products of, against
/// the library's products beside what is left of the cascade, and against every
/// reduction on its own: all of the group at once, in a program that takes
/// `wholeMs` by what was decided before.
void LosingFusions::judge(Group &group, const FuseOptions &decided,
                          double wholeMs, Accepts accepts) {
  for (Alternative other : {Alternative::Waiting, Alternative::KeepsProduct,
                            Alternative::AsWritten}) {
    const auto &numbers = group.numbersOf(other);
    if (numbers.empty() || (other == Alternative::KeepsProduct &&
                            numbers.size() == group.reductions.size()))
      continue;
    llvm::Expected<double> ms = predictOther(other, numbers, decided, accepts);
    if (!ms) { // what has no plan is no alternative
      takeError(ms.takeError(), group.failures.emplace_back());
      continue;
    }
    if (!(wholeMs - *ms > group.savedMs))
      continue;
    group.savedMs = wholeMs - *ms;
    group.nearest = other;
  }
  if (group.savedMs > kMargin * group.fusedMs)
    group.choice = group.nearest;
}

static std::string describe(double fusedMs, double otherMs,
                            LosingFusions::Alternative other) {
  using Alternative = LosingFusions::Alternative;
  std::string text;
  llvm::raw_string_ostream out(text);
  bool isWaiting = other == Alternative::Waiting;
  const char *how = isWaiting ? "in two"
                    : other == Alternative::KeepsProduct
                        ? "with its products left to the library"
                        : "as written";
  out << "predicted " << llvm::format("%.4g", fusedMs)
      << (isWaiting ? " ms in one pass and " : " ms fused and ");
  // What else of the program becomes faster may take more off than it took.
  if (otherMs < 0)
    out << llvm::format("%.4g", fusedMs - otherMs) << " ms less of the program "
        << how;
  else
    out << llvm::format("%.4g", otherMs) << " ms " << how;
  return text;
}

/// A cascade that was declined, where it stood.
static void insertAt(size_t place, CascadeReport cascade, FuseReport &report,
                     DeferredCertificates *deferred) {
  place = std::min(place, report.cascades.size());
  report.cascades.insert(report.cascades.begin() + place, std::move(cascade));
  if (!deferred)
    return;
  for (DeferredCertificate &entry : deferred->entries)
    for (size_t &kernel : entry.kernels)
      kernel += kernel >= place;
}

void tellWaiting(const CascadeReport &cascade, std::string text,
                 FuseReport &after) {
  std::string key(keyOf(Reason::WaitsForResults));
  auto now = llvm::find_if(after.cascades, [&](const CascadeReport &other) {
    return !other.decline && !other.isFused &&
           llvm::any_of(cascade.separated, [&](unsigned number) {
             return llvm::is_contained(other.reductions, number);
           });
  });
  if (now == after.cascades.end())
    return;
  now->waits = llvm::all_of(now->reasons, [&](const ReasonReport &reason) {
    return reason.key == key;
  });
  now->reasons.push_back({std::move(key), "'" + cascade.name + "'",
                          std::move(text), "",
                          "--fuse always makes one pass nevertheless", ""});
}

/// Tells why some of what may run instead was not looked at.
static void tellFailures(const CascadeReport &cascade,
                         llvm::ArrayRef<std::string> failures,
                         FuseReport &report) {
  for (const std::string &failure : failures)
    report.notes.push_back({std::string(keyOf(Reason::TrialFailed)),
                            "'" + cascade.name + "'", failure, "", "", ""});
}

/// Of which cascades the numbers of a remark are a mean, if of several.
static std::string togetherWith(const FuseReport &report,
                                llvm::ArrayRef<size_t> members) {
  if (members.size() < 2)
    return "";
  return ", judged with " + std::to_string(members.size() - 1) +
         " alike of which '" + report.cascades[members.front()].name +
         "' is the first";
}

/// Tells cascades that stay why they do.
void LosingFusions::tellKept(llvm::ArrayRef<Group> groups, size_t numJudged,
                             double wholeMs, FuseReport &report) {
  for (auto [number, group] : llvm::enumerate(groups)) {
    if (group.choice != Alternative::None)
      continue;
    for (auto [i, member] : llvm::enumerate(group.members)) {
      std::string &text = report.cascades[member].judged;
      if (group.fusedMs < kLeastShare * wholeMs)
        text = "not judged: it and what is alike take less than 2 % of the "
               "program";
      else if (number >= numJudged)
        text = "not judged: of groups of alike kernels of a program of this "
               "size the " +
               std::to_string(numJudged) + " longest are";
      else if (group.nearest == Alternative::None)
        text = "kept: there is no other way";
      else {
        Change change = group.changeOf(i, group.nearest);
        text =
            "kept: " + describe(change.fusedMs, change.otherMs, change.choice) +
            togetherWith(report, group.members);
      }
    }
  }
}

/// Tells the report on a program that was fused again what was left for it.
static void tell(llvm::ArrayRef<LosingFusions::Change> changes,
                 FuseReport &before, FuseReport &after,
                 DeferredCertificates *deferred) {
  using Alternative = LosingFusions::Alternative;
  for (const CascadeReport &cascade : before.cascades) {
    auto same = llvm::find_if(after.cascades, [&](const CascadeReport &other) {
      return other.reductions == cascade.reductions;
    });
    if (same != after.cascades.end())
      same->judged = cascade.judged;
  }
  // In the order of members, so that each lands about where it stood.
  for (const LosingFusions::Change &change : changes) {
    CascadeReport &cascade = before.cascades[change.member];
    std::string text =
        describe(change.fusedMs, change.otherMs, change.choice) + change.with;
    if (change.choice == Alternative::Waiting) {
      tellWaiting(cascade, std::move(text), after);
      continue;
    }
    cascade.decline =
        DeclineReport{std::string(keyOf(Reason::PredictedSlower)),
                      std::move(text), change.fusedMs, change.otherMs,
                      change.choice == Alternative::KeepsProduct};
    insertAt(change.member, std::move(cascade), after, deferred);
  }
}

// Of several passes too: each would compute again what it reads.
llvm::Expected<bool> LosingFusions::decline(LoadedProgram &program,
                                            const FuseOptions &options,
                                            FuseReport &report,
                                            Accepts accepts) {
  bool mayDecline = options.policy == FusePolicy::Auto && original &&
                    !report.cascades.empty();
  if (!mayDecline)
    return false;
  auto work = predictModule(*program.module, target, shapes);
  if (!work)
    return work.takeError();
  std::vector<Group> groups = groupCascades(report, *work);
  size_t ops = 1;
  original->walk([&](mlir::Operation *) { ++ops; });
  size_t most = std::min({kMostGroups, kMostOps / ops, groups.size()});
  FuseOptions again = options;
  std::vector<Change> changes;
  // One after the other, each beside what was decided before: what is fused in
  // the end was predicted as a whole.
  double wholeMs = work->predictedMs;
  for (Group &group : llvm::MutableArrayRef(groups).take_front(most)) {
    if (group.fusedMs < kLeastShare * work->predictedMs)
      break;
    judge(group, again, wholeMs, accepts);
    tellFailures(report.cascades[group.members.front()], group.failures,
                 report);
    if (group.choice == Alternative::None)
      continue;
    wholeMs -= group.savedMs;
    const auto &left = group.numbersOf(group.choice);
    (group.choice == Alternative::Waiting ? again.waiting : again.apart)
        .insert(left.begin(), left.end());
    for (size_t i = 0; i < group.members.size(); ++i) {
      changes.push_back(group.changeOf(i, group.choice));
      changes.back().with = togetherWith(report, group.members);
    }
  }
  tellKept(groups, most, work->predictedMs, report);
  if (changes.empty())
    return false;
  llvm::sort(changes, [](const Change &a, const Change &b) {
    return a.member < b.member;
  });
  if (again.deferred)
    again.deferred->entries.clear();
  llvm::Expected<FuseReport> rest = fuse(*original, again);
  if (!rest)
    return rest.takeError();
  program.module = std::move(original);
  tell(changes, report, *rest, again.deferred);
  for (ReasonReport &note : report.notes)
    if (note.key == keyOf(Reason::TrialFailed))
      rest->notes.push_back(std::move(note));
  report = std::move(*rest);
  return true;
}

} // namespace refold
