// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Transforms/FuseCascades.h"

#include "refold/Algebra/CertificateKey.h"
#include "refold/Support/Stopwatch.h"
#include "refold/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/bit.h"

using namespace mlir;
using namespace refold;

/// Products read what the plan says, in place of what dissolves.
static void rewireProduct(const ProductPlan &plan) {
  linalg::GenericOp op = plan.op;
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  for (auto [i, operand] : llvm::enumerate(plan.operands)) {
    op.setOperand(i, operand.first);
    maps[i] = operand.second;
  }
  Builder b(op.getContext());
  op.setIndexingMapsAttr(b.getAffineMapArrayAttr(maps));
}

static void eraseDead(Block &block) {
  bool changed = true;
  while (changed) {
    changed = false;
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
      if (isOpTriviallyDead(&op)) {
        op.erase();
        changed = true;
      }
  }
}

/// Puts every op behind what it reads and otherwise keeps the order, in one
/// walk over the ops. False, and nothing moves, if they read each other in a
/// circle.
static bool sortByUse(Block &block) {
  enum class Mark : uint8_t { Open, Done };
  DenseMap<Operation *, Mark> marks;
  SmallVector<Operation *> order;
  auto producersOf = [&](Operation *op) {
    SmallVector<Operation *> producers;
    op->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (Operation *def = operand.getDefiningOp();
            def && def->getBlock() == &block)
          producers.push_back(def);
    });
    std::reverse(producers.begin(), producers.end());
    return producers;
  };
  SmallVector<std::pair<Operation *, SmallVector<Operation *>>> stack;
  for (Operation &root : block.without_terminator()) {
    if (marks.count(&root))
      continue;
    marks[&root] = Mark::Open;
    stack.push_back({&root, producersOf(&root)});
    while (!stack.empty()) {
      auto &[op, producers] = stack.back();
      if (producers.empty()) {
        marks[op] = Mark::Done;
        order.push_back(op);
        stack.pop_back();
        continue;
      }
      Operation *next = producers.pop_back_val();
      auto [mark, isNew] = marks.try_emplace(next, Mark::Open);
      if (isNew)
        stack.push_back({next, producersOf(next)});
      else if (mark->second == Mark::Open)
        return false;
    }
  }
  for (Operation *op : order)
    op->moveBefore(block.getTerminator());
  return true;
}

namespace {
/// Derives and certifies the kernels of one program.
class Deriver {
public:
  Deriver(const FuseCascadesOptions &options, std::vector<FusionNote> &notes)
      : options(options), notes(notes), storePrefix(describe(options)) {}

  /// The program of kernel `number`: fused as far as the algebra goes and its
  /// certificate holds, otherwise as written.
  LogicalResult derive(const KernelPlan &plan, algebra::Policy policy,
                       size_t number, FusedKernel &kernel);

private:
  /// Whether a kernel that differs from this one in names was certified; it
  /// then has that one's certificate, and its passes for irregular rows.
  bool isKnown(FusedKernel &kernel);
  /// True if the certificate failed and the stages run as written.
  bool certify(FusedKernel &kernel, const algebra::Policy &policy,
               std::string &failure);

  /// Leaves the certificate to somebody else.
  void defer(const FusedKernel &kernel, size_t number,
             const algebra::Policy &policy);

  struct Known {
    std::string summary;
    bool isRepaired = false; ///< it holds with passes for irregular rows
  };
  /// Of this program, or of an earlier one: from the store.
  const Known *find(const std::string &key);
  void keep(const std::string &key, Known entry);
  static std::string describe(const FuseCascadesOptions &options);

  const FuseCascadesOptions &options;
  std::vector<FusionNote> &notes;
  std::string storePrefix;
  /// Programs that hold, by what their certificates depend on.
  llvm::StringMap<Known> known;
};
} // namespace

/// What a certificate depends on beside its program. Every field, so that a new
/// one does not compile before it stands here; which stages wait the program
/// shows.
std::string Deriver::describe(const FuseCascadesOptions &options) {
  std::string text;
  llvm::raw_string_ostream os(text);
  const auto &[stability, moments, casts, castBound, maskedRows, rankBudget,
               thresholdList, fuse, apart, ownPivots] = options.policy;
  os << int(stability) << ' ' << int(moments) << ' ' << int(casts) << ' '
     << llvm::bit_cast<uint64_t>(castBound) << ' ' << int(maskedRows) << ' '
     << rankBudget << ' ' << thresholdList << ' ' << fuse << ' ' << ownPivots;
  (void)apart;
  const auto &[seed, modularTrials, rowsPerFamily, rowLength, extremeValues,
               edgeRows, tolerance, defect] = options.certificate;
  os << '\n'
     << seed << ' ' << modularTrials << ' ' << rowsPerFamily << ' ' << rowLength
     << ' ' << extremeValues << ' ' << edgeRows << ' '
     << llvm::bit_cast<uint64_t>(tolerance) << ' ' << int(defect) << '\n';
  return text;
}

/// In the store, a letter that says whether passes are needed stands before the
/// summary.
const Deriver::Known *Deriver::find(const std::string &key) {
  auto entry = known.find(key);
  if (entry != known.end())
    return &entry->second;
  if (!options.store || options.keepsCertificates)
    return nullptr;
  std::optional<std::string> kept = options.store->find(storePrefix + key);
  if (!kept || kept->empty())
    return nullptr;
  return &(known[key] = {kept->substr(1), kept->front() == 'r'});
}

void Deriver::keep(const std::string &key, Known entry) {
  if (options.store)
    options.store->keep(storePrefix + key,
                        (entry.isRepaired ? "r" : "h") + entry.summary);
  known[key] = std::move(entry);
}

bool Deriver::isKnown(FusedKernel &kernel) {
  const algebra::Cascade &cascade = kernel.formula->cascade;
  auto lookUp = [&] {
    return find(algebra::certificateKey(cascade, *kernel.derivation.program));
  };
  const Known *entry = lookUp();
  if (entry && entry->isRepaired) {
    // What holds is the program with passes for irregular rows.
    algebra::Program plain = std::move(*kernel.derivation.program);
    for (algebra::Regularity regularity : algebra::kRegularities) {
      kernel.derivation.program =
          algebra::withIrregularRows(cascade, plain, regularity);
      if (entry = lookUp(); entry)
        break;
    }
    if (!entry)
      kernel.derivation.program = std::move(plain);
  }
  if (!entry)
    return false;
  kernel.certificate = entry->summary;
  return true;
}

bool Deriver::certify(FusedKernel &kernel, const algebra::Policy &policy,
                      std::string &failure) {
  const algebra::Cascade &cascade = kernel.formula->cascade;
  std::string key =
      algebra::certificateKey(cascade, *kernel.derivation.program);
  algebra::Certified certified = algebra::certified(
      cascade, std::move(kernel.derivation), policy, options.certificate);
  kernel.derivation = std::move(certified.derivation);
  kernel.certificate = certified.certificate.summary();
  failure = certified.rejected;
  for (size_t i = 0; i < certified.apart.size(); ++i)
    failure += (i == 0 ? "; '" : " and '") +
               cascade.stages[certified.apart[i]].name + "'";
  if (!certified.apart.empty())
    failure += certified.apart.size() == 1 ? " waits for what it reads"
                                           : " wait for what they read";
  if (options.keepsCertificates) {
    kernel.evidence = std::move(certified.certificate);
    return certified.isFallback;
  }
  // An example of an edge row names what is in this kernel.
  if (certified.isFallback || !certified.certificate.holds ||
      !certified.certificate.edgeExample.empty())
    return certified.isFallback;
  std::string found =
      algebra::certificateKey(cascade, *kernel.derivation.program);
  if (found != key)
    keep(key, {"", true});
  keep(found, {kernel.certificate, false});
  return false;
}

void Deriver::defer(const FusedKernel &kernel, size_t number,
                    const algebra::Policy &policy) {
  std::string key =
      storePrefix + algebra::certificateKey(kernel.formula->cascade,
                                            *kernel.derivation.program);
  for (DeferredCertificate &other : *options.deferred)
    if (other.key == key)
      return other.kernels.push_back(number);
  options.deferred->push_back({kernel.formula,
                               kernel.derivation,
                               policy,
                               options.certificate,
                               std::move(key),
                               {number},
                               ""});
}

bool refold::holds(DeferredCertificate &deferred,
                   const CertificateStore &store) {
  const algebra::Cascade &cascade = deferred.formula->cascade;
  auto keyOf = [&] {
    return algebra::certificateKey(cascade, *deferred.derivation.program);
  };
  std::string key = keyOf();
  std::string prefix = deferred.key.substr(0, deferred.key.size() - key.size());
  algebra::Certified certified =
      algebra::certified(cascade, std::move(deferred.derivation),
                         deferred.policy, deferred.options);
  deferred.derivation = std::move(certified.derivation);
  if (certified.isFallback || !certified.certificate.holds)
    return false;
  deferred.summary = certified.certificate.summary();
  std::string found = keyOf();
  // An example of an edge row names what is in this kernel.
  if (certified.certificate.edgeExample.empty()) {
    if (found != key)
      store.keep(deferred.key, "r");
    store.keep(prefix + found, "h" + deferred.summary);
  }
  return found == key;
}

/// A state whose transport takes more than pivots, other states and constants:
/// merges of states have no elements of the row's arrays at hand.
static std::string stateMovedByRow(const algebra::Program &program) {
  for (const auto &definition : program.definitions) {
    auto *state = std::get_if<algebra::State>(&definition);
    if (!state || !state->transport)
      continue;
    for (algebra::Expr symbol : algebra::symbolsOf(state->transport)) {
      algebra::Role role = symbol.symbol().role;
      bool isOfStates =
          role == algebra::Role::Old || role == algebra::Role::New ||
          role == algebra::Role::Self || role == algebra::Role::With;
      if (!isOfStates && symbol.symbol().indices)
        return state->symbol().symbol().name;
    }
  }
  return "";
}

LogicalResult Deriver::derive(const KernelPlan &plan, algebra::Policy policy,
                              size_t number, FusedKernel &kernel) {
  Operation *at = plan.outputs[0].tensor.getDefiningOp();
  const algebra::Cascade &cascade = plan.formula->cascade;
  Stopwatch watch;
  kernel.derivation = algebra::derive(cascade, policy);
  kernel.deriveMs = watch.ms();
  if (!kernel.derivation.program)
    return at->emitError("no program is derived: ") << kernel.derivation.error;
  if (std::string state = stateMovedByRow(*kernel.derivation.program);
      !state.empty()) {
    notes.push_back({"moved-by-row",
                     "moving '" + state + "' of '" + kernel.name +
                         "' to another pivot takes an array's element of the "
                         "row; its reductions stay apart",
                     at->getLoc()});
    policy.fuse = false;
    kernel.derivation = algebra::derive(cascade, policy);
    kernel.deriveMs = watch.ms();
    if (!kernel.derivation.program)
      return at->emitError("no program is derived: ")
             << kernel.derivation.error;
  }
  bool isMoved = llvm::any_of(
      kernel.derivation.program->definitions, [](const auto &definition) {
        auto *state = std::get_if<algebra::State>(&definition);
        return state && state->transport;
      });
  if (kernel.derivation.program->boundsExponentials && !plan.isCascade())
    notes.push_back({"bounded-exponentials",
                     "exponentials of '" + kernel.name +
                         "' are kept relative to their largest",
                     at->getLoc()});
  if (!options.certify || !options.fuse || !(plan.isCascade() || isMoved))
    return success();
  Stopwatch certifying;
  std::string failure;
  bool isOpen = !isKnown(kernel);
  if (isOpen && options.deferred)
    defer(kernel, number, policy);
  else if (isOpen && certify(kernel, policy, failure))
    notes.push_back({"certified-fallback",
                     "the derived program of '" + kernel.name +
                         "' failed its certificate and is not used: " + failure,
                     at->getLoc()});
  kernel.certifyMs = certifying.ms();
  return kernel.derivation.program ? success()
                                   : at->emitError("no program is derived: ")
                                         << kernel.derivation.error;
}

/// Of `totalMs`, what is neither derivation nor certificate makes ops.
static void addTimes(ArrayRef<FusedKernel> kernels, double totalMs,
                     StageTimes &times) {
  double deriveMs = 0, certifyMs = 0;
  for (const FusedKernel &kernel : kernels) {
    deriveMs += kernel.deriveMs;
    certifyMs += kernel.certifyMs;
  }
  times.add("derive", deriveMs);
  times.add("certify", certifyMs);
  times.add("fuse", totalMs - deriveMs - certifyMs);
}

/// Stages of the kernel that are reductions with one of these numbers.
static std::vector<unsigned> stagesOf(const Formula &formula,
                                      ArrayRef<Operation *> reductions,
                                      const DenseSet<unsigned> &numbers) {
  std::vector<unsigned> stages;
  if (numbers.empty())
    return stages;
  for (const StageUse &use : formula.stageUses)
    if (auto at = llvm::find(reductions, use.op);
        at != reductions.end() && numbers.contains(at - reductions.begin()))
      stages.push_back(use.stage);
  return stages;
}

/// States along a carried index that the stage's result is read from, passes
/// for irregular rows left out.
static unsigned carriedStatesOf(const algebra::Program &program,
                                unsigned stage) {
  algebra::ExprSet seen;
  unsigned count = 0;
  SmallVector<algebra::Expr> work;
  for (algebra::Expr readout : program.readouts[stage])
    if (readout)
      work.push_back(readout);
  while (!work.empty())
    for (algebra::Expr symbol : algebra::symbolsOf(work.pop_back_val())) {
      if (!seen.insert(symbol).second)
        continue;
      if (const algebra::Let *let = program.findLet(symbol)) {
        work.push_back(let->value);
        continue;
      }
      const algebra::State *state = program.findState(symbol);
      count += state && state->pass < program.passes &&
               llvm::any_of(
                   llvm::enumerate(program.indices),
                   [&](auto index) {
                     return index.value().role == algebra::IndexRole::Carried &&
                            (state->indices >> index.index() & 1);
                   });
    }
  return count;
}

/// Which reductions of the function the kernel holds.
static void noteReductions(const KernelPlan &plan,
                           ArrayRef<Operation *> reductions,
                           FusedKernel &kernel) {
  const algebra::Program &program = *kernel.derivation.program;
  DenseSet<unsigned> separated;
  for (const StageUse &use : plan.formula->stageUses)
    if (carriedStatesOf(program, use.stage) > 1)
      separated.insert(llvm::find(reductions, use.op) - reductions.begin());
  kernel.separated.assign(separated.begin(), separated.end());
  llvm::sort(kernel.separated);
  DenseSet<Operation *> held;
  for (const StageUse &use : plan.formula->stageUses)
    held.insert(use.op);
  for (const StageUse &use : plan.formula->contractionUses)
    held.insert(use.op);
  for (auto [number, op] : llvm::enumerate(reductions)) {
    if (!held.contains(op))
      continue;
    kernel.reductions.push_back(number);
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (generic && isProduct(generic))
      kernel.products.push_back(number);
  }
}

FailureOr<FusionResult>
refold::fuseCascades(func::FuncOp function,
                     const FuseCascadesOptions &options) {
  Stopwatch watch;
  FusionResult result;
  if (options.fuse) {
    selectFromLists(function, result.notes);
    eraseDead(function.getBody().front());
  }
  SizeTable sizes(function);
  SmallVector<Operation *> reductions = numberReductions(function);
  FailureOr<ProgramPlan> plan =
      planKernels(function, sizes, PlanOptions{options.fuse, options.apart});
  if (failed(plan))
    return failure();
  result.planMs = watch.ms();
  if (options.times)
    options.times->add("analyse", result.planMs);
  Stopwatch deriving;
  for (const Refusal &note : plan->notes)
    result.notes.push_back(
        {note.key, note.text, (note.at ? note.at : function)->getLoc()});
  result.products = plan->products.size();
  Block &block = function.getBody().front();
  OpBuilder b(block.getTerminator());
  for (const ProductPlan &product : plan->products)
    rewireProduct(product);
  SmallVector<std::pair<Value, Value>> replacements;
  Deriver deriver(options, result.notes);
  for (const KernelPlan &kernelPlan : plan->kernels) {
    FusedKernel kernel;
    kernel.name = sourceName(kernelPlan.outputs.back().tensor);
    kernel.formula = kernelPlan.formula;
    kernel.isCascade = kernelPlan.isCascade();
    algebra::Policy policy = options.policy;
    policy.fuse = options.fuse;
    policy.apart = stagesOf(*kernel.formula, reductions, options.waiting);
    if (failed(
            deriver.derive(kernelPlan, policy, result.kernels.size(), kernel)))
      return failure();
    noteReductions(kernelPlan, reductions, kernel);
    FailureOr<EmittedCascade> emitted = emitCascade(
        b, *kernel.formula, *kernel.derivation.program, kernelPlan.outputs);
    if (failed(emitted))
      return failure();
    kernel.op = emitted->op;
    for (auto [output, value] : llvm::zip(kernelPlan.outputs, emitted->results))
      replacements.push_back({output.tensor, value});
    result.kernels.push_back(std::move(kernel));
  }
  if (options.times)
    addTimes(result.kernels, deriving.ms(), *options.times);
  for (auto [from, to] : replacements)
    from.replaceAllUsesWith(to);
  eraseDead(block);
  // Kernels were put at the end; their readers may stand before them.
  if (!sortByUse(block))
    return function.emitError("kernels depend on each other in a circle"),
           failure();
  return result;
}

namespace {
struct FuseCascades : PassWrapper<FuseCascades, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(FuseCascades)
  FuseCascades() = default;
  FuseCascades(const FuseCascades &other) : PassWrapper(other) {}
  StringRef getArgument() const override { return "refold-fuse-cascades"; }
  StringRef getDescription() const override {
    return "reductions that read each other as one refold.cascade";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<RefoldDialect, arith::ArithDialect, math::MathDialect,
                    tensor::TensorDialect>();
  }
  void runOnOperation() override {
    FuseCascadesOptions options;
    options.fuse = fuse;
    options.policy.casts = casts;
    if (castBound > 0)
      options.policy.castBound = castBound;
    options.policy.maskedRows = maskedRows;
    options.policy.thresholdList = thresholdList;
    if (failed(fuseCascades(getOperation(), options)))
      signalPassFailure();
  }
  Option<bool> fuse{*this, "fuse", llvm::cl::init(true),
                    llvm::cl::desc("false: every reduction on its own")};
  Option<algebra::CastPolicy> casts{
      *this, "casts", llvm::cl::init(algebra::CastPolicy::Exact),
      llvm::cl::desc("what a rounding of elements and results may do"),
      llvm::cl::values(clEnumValN(algebra::CastPolicy::Exact, "exact",
                                  "nothing but powers of two move through it"),
                       clEnumValN(algebra::CastPolicy::Requantise, "requantise",
                                  "it is done at the results so far"))};
  Option<double> castBound{
      *this, "cast-bound", llvm::cl::init(0),
      llvm::cl::desc("requantise only what errs by less of its largest value; "
                     "0: any")};
  Option<unsigned> thresholdList{
      *this, "threshold-list", llvm::cl::init(0),
      llvm::cl::desc("sums over elements near an extreme: over so many of the "
                     "best, with a pass for rows that have more; 0: in a pass "
                     "of their own")};
  Option<algebra::RowPolicy> maskedRows{
      *this, "masked-rows", llvm::cl::init(algebra::RowPolicy::Ieee),
      llvm::cl::desc("what a row of nothing but masked elements is"),
      llvm::cl::values(
          clEnumValN(algebra::RowPolicy::Ieee, "ieee",
                     "what the formula gives"),
          clEnumValN(algebra::RowPolicy::Zero, "zero", "0 instead of nan"))};
};
} // namespace

std::unique_ptr<Pass> refold::createFuseCascadesPass() {
  return std::make_unique<FuseCascades>();
}

void refold::registerRefoldPasses() {
  registerPass([] { return createNormaliseProgramPass(); });
  registerPass([] { return createFuseCascadesPass(); });
  registerPass([] { return createFuseEpiloguesPass(); });
  registerPass([] { return createPrintKernelsPass(); });
  registerPass([] { return createRecertifyCascadesPass(); });
}
