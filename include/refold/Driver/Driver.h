// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_DRIVER_DRIVER_H
#define REFOLD_DRIVER_DRIVER_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "refold/Frontend/ONNX.h"
#include "refold/Package/Package.h"
#include "refold/Runtime/Executable.h"
#include "refold/Schedule/TargetFacts.h"
#include "refold/Support/DiskCache.h"
#include "refold/Support/StageTimes.h"
#include "refold/Support/Tensor.h"
#include "refold/Transforms/NarrowProducts.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

/// The house as seen from its door: what the tools and the C API call. Every
/// function answers with a value or with a `Failure` (refold/Support/Error.h)
/// whose message is ready to be printed; nothing here prints.
namespace refold {

struct CudaKernel;
class GpuProgram;

/// An argument or a result of a program.
struct Port {
  std::string name;
  DType dtype = DType::F32;
  std::vector<std::string> dims; ///< "" where the dimension has no name
  std::vector<int64_t> extents;  ///< -1 where it is known only when run
  std::string indexes; ///< the dimension that its elements are subscripts of
};

/// A program in program form with what its signature says.
struct LoadedProgram {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::string name; ///< of the public function
  std::vector<Port> inputs, outputs;
  std::shared_ptr<void> storage; ///< of the constants that the module points to
  double readMs = 0.0;           ///< CPU time of the front end
  std::optional<NarrowReport> narrowed; ///< by `LoadOptions::multiply`
  /// Files that constants may point into, below one folder.
  std::string weightsFolder;
  std::vector<MappedFile> weightFiles;
};

struct LoadOptions {
  /// Extents of named dimensions, fixed while loading.
  std::map<std::string, int64_t> dims;
  /// Replaces the dtype of every float argument and result (.fold only:
  /// `--dtype`).
  std::optional<DType> dtype;
  /// f16 or bf16: what matrix products read is rounded to it, and weights are
  /// stored so (refold/Transforms/NarrowProducts.h).
  std::optional<DType> multiply;
};

/// A context with every dialect and interface that the passes need.
std::unique_ptr<mlir::MLIRContext> makeContext();

/// Reads a `.fold`, `.onnx` or `.mlir` file, by its extension.
llvm::Expected<LoadedProgram> load(mlir::MLIRContext &context,
                                   llvm::StringRef path,
                                   const LoadOptions &options = {});

/// Reads the text of a `.fold` program; `name` stands for the file.
llvm::Expected<LoadedProgram> loadFoldText(mlir::MLIRContext &context,
                                           llvm::StringRef text,
                                           llvm::StringRef name);

/// How large a program is.
struct ProgramSize {
  std::map<std::string, int64_t> ops; ///< by name, without constants
  int64_t constants = 0, constantBytes = 0;
};
ProgramSize measure(LoadedProgram &program);

/// An operator of a foreign format that is read, and in which versions.
struct OperatorReport {
  std::string name;
  int firstOpset = 0, lastOpset = 0;
};
/// By name.
std::vector<OperatorReport> readableOperators();

/// One thing that `refold doctor` looked at.
struct HealthReport {
  std::string what, found;
  bool isGood = true;
};
struct MachineFacts;
/// Looks at the machine as code for `target` finds it (empty: the best form),
/// measures it unless it is known (`probes`: even then), and runs a small
/// program through all stages, whose answer is compared with the judge's.
std::vector<HealthReport> examine(llvm::StringRef target, bool probes,
                                  std::optional<MachineFacts> &machine);

/// How far epilogues are regrouped to keep digits (docs/numerics.md).
enum class Stability : uint8_t { Fastest, Balanced, MostAccurate };

/// What fusing may change of the numbers: docs/numerics.md.
struct NumericPolicy {
  /// Roundings of values that elements and results share are done at the
  /// results so far...
  bool requantise = false;
  /// ... if one errs by at most this much of the largest value.
  double castBound = HUGE_VAL;
  /// Rows of nothing but masked elements are 0 where the formula has NaN.
  bool zeroMaskedRows = false;
  Stability stability = Stability::Balanced;
  /// Sums over elements near an extreme are ones over so many of the best, with
  /// a second pass for rows that have more; 0: always a second pass.
  unsigned thresholdList = 0;
};

enum class FusePolicy : uint8_t {
  Never,  ///< every reduction is a kernel of its own: the baseline
  Auto,   ///< what can be fused and is not predicted to be slower
  Always, ///< what can be fused
};

struct StageReport {
  std::string name; ///< of the definition or node
  std::string op;   ///< "sum", "max", "topk", ...
  int64_t line = 0; ///< in the user's file, 0 where unknown
  int64_t pass = 0;
};
struct ReasonReport {
  std::string key, at, text;
  /// Of a cut: the part of the summand that stands in the way, and what the
  /// author, or another policy, could change; may be empty.
  std::string node, hint;
  /// Of a cut: what shows that no state of few accumulators would do; may be
  /// empty.
  std::string evidence;
};

/// What some states are kept relative to, and what for.
struct GaugeReport {
  std::string pivot;
  std::vector<std::string> states;
  std::string law, why;
};

/// A rounding that runs with the results so far, or could.
struct RoundingReport {
  std::string stage;   ///< whose summand is rounded
  std::string formula; ///< what is rounded, as written
  /// |q(y) - y| <= max(unit·|y|, step).
  double unit = 0.0, step = 0.0;
  bool isPowerOfTwo = false;
  std::string bound; ///< of the stage, in numbers
  std::string type;  ///< of the rounded value, "" where it is a whole number
  /// Up to how many elements what is rounded to 0 weighs less than the
  /// rounding; 0: any number.
  int64_t headroom = 0;
};

/// A cascade that could be fused and is not, because the cost model predicts a
/// loss at the extents that were known.
struct DeclineReport {
  std::string key;           ///< of Reasons.def
  std::string text;          ///< with both numbers
  double fusedMs = 0.0;      ///< predicted, of its kernel on one thread
  double otherMs = 0.0;      ///< of what runs instead
  bool keepsProduct = false; ///< only its matrix products are left apart
};

/// One entry of `refold explain`: stages tied by dependence over common axes.
/// The fields are those of the JSON of docs/tools.md.
struct CascadeReport {
  std::string name;
  std::string step; ///< of the executable that runs it
  std::vector<std::string> axes;
  std::vector<StageReport> stages;
  bool isFused = false;
  /// One kernel, of more passes than one only because those are predicted to be
  /// faster.
  bool waits = false;
  int64_t passes = 0, unfusedPasses = 0, stateSize = 0;
  int64_t repairPasses = 0; ///< after those, of rows that need them
  /// Each stage is one product of a part in elements and one in results, or for
  /// an extreme their sum: all that a test for rank 1 admits.
  bool isSingleProduct = false;
  std::string formula, gauge, certificate;
  std::vector<ReasonReport> reasons;
  std::optional<DeclineReport> decline;
  /// Why it stays as it is, where predictions were asked for.
  std::string judged;
  /// Numbers of its reductions in the program, and of those of them that are
  /// matrix products: `FuseOptions::apart`.
  std::vector<unsigned> reductions, products;
  /// Those that one pass computes as several products, where the formula has
  /// one: `FuseOptions::waiting`.
  std::vector<unsigned> separated;
  /// Keys of Reasons.def: what the fused kernel does otherwise than the
  /// formula.
  std::vector<std::string> policies;
  /// Groupings that were chosen for accuracy, and why.
  std::vector<std::string> choices;
  /// Sums over lists of the best elements.
  std::vector<std::string> lists;
  std::vector<GaugeReport> gauges;
  std::vector<RoundingReport> roundings;
  std::vector<std::string> zeroedOutputs, idleGuards;
  /// How the kernel is walked and what it does at one shape, where one is
  /// given.
  std::optional<llvm::json::Object> schedule;
  /// Errors in f32 arithmetic, where they are measured:
  /// `FuseOptions::accuracy`.
  std::optional<llvm::json::Object> accuracy;
  /// What the certificate looked at, in full: `FuseOptions::certificate`.
  std::optional<llvm::json::Object> proof;
  double deriveMs = 0, certifyMs = 0; ///< CPU time
};

class DeferredCertificates;

struct FuseOptions {
  FusePolicy policy = FusePolicy::Auto;
  /// Measure every fused cascade in f32 arithmetic (a second or so each).
  bool accuracy = false;
  /// Say of every certificate, and of every cut, what was looked at.
  bool certificate = false;
  uint64_t seed = 1; ///< of what certificates draw at random
  /// Reductions that are not fused with anything, by their numbers.
  llvm::DenseSet<unsigned> apart;
  /// Reductions that wait in their kernel for all that they read, likewise.
  llvm::DenseSet<unsigned> waiting;
  bool certify = true; ///< false: for a look at what would come of it
  NumericPolicy numerics;
  /// Where certificates are looked for, and kept; null: nowhere. With
  /// `certificate` all are made anew.
  const DiskCache *cache = nullptr;
  /// Set: gets the certificates that are not known.
  DeferredCertificates *deferred = nullptr;
  /// Certificates beside those of the cache, where set.
  const std::map<std::string, std::string> *known = nullptr;
  StageTimes *times = nullptr; ///< gets the time of every stage, where set
  /// Of the CPU that code is made for, whose dot products factors are rounded
  /// for (refold/Conversion/RoundFactors.h); none: nothing is rounded.
  std::optional<TargetFacts> facts;
};

/// What fusing a program came to.
struct FuseReport {
  std::vector<CascadeReport> cascades; ///< fused or cut, in program order
  std::vector<ReasonReport>
      notes; ///< on reductions that no cascade holds together
  /// Names of the axes that kernels stream over, cascades or not; sorted.
  std::vector<std::string> streamAxes;
  int64_t kernels = 0, products = 0;
  /// By result of the program, the largest relative error of a factor that is
  /// rounded for it (refold/Conversion/RoundFactors.h).
  std::vector<double> factorRounding;
  double planMs = 0;  ///< CPU time of finding kernels and cascades
  double totalMs = 0; ///< CPU time of everything, these reports too
};

/// Normalises the module and replaces its reductions by `refold.cascade`.
llvm::Expected<FuseReport> fuse(mlir::ModuleOp module,
                                const FuseOptions &options);

/// A kernel before lowering: a cascade on memrefs in a function of its own.
struct KernelText {
  std::string name, text;
};

/// A compiled program with what was found on the way.
struct CompiledProgram {
  std::string name;
  std::vector<Port> inputs, outputs;
  Executable executable;
  FuseReport fusion;
  double compileMs = 0.0;          ///< from the program form to code in memory
  std::vector<KernelText> kernels; ///< as numbered in the executable
  /// CPU time of every stage, the front end first.
  std::vector<StageTimes::Stage> stages;
  TargetFacts facts; ///< that it was compiled for
  /// By output, the largest relative error of one factor of a sum of products
  /// that kernels round for dot products or matrix units
  /// (refold/Conversion/RoundFactors.h).
  std::vector<double> factorRounding;
  /// What runs it on a GPU, where that is the target.
  std::shared_ptr<GpuProgram> gpu = nullptr;
};

/// Another cut of every stream than the schedule's own.
struct StreamSplit {
  int64_t segments = 1; ///< at most, merged at the end
  int64_t tile = 1;     ///< positions absorbed at once; rounded up to registers
};

struct CompileOptions {
  FusePolicy policy = FusePolicy::Auto;
  NumericPolicy numerics;
  /// Extents of named dimensions for which the program will mostly run. The
  /// code is for all; whether a fusion pays, and whether few long rows are cut
  /// into segments, is decided for these. One that
  /// depends on others is fused.
  std::map<std::string, int64_t> usualExtents;
  /// Takes the schedules that `tune` kept for these extents on this machine; on
  /// a GPU, the ways to launch that `GpuProgram::tune` kept.
  bool usesTuned = false;
  /// Adds to the kernels of a GPU what their times are predicted by, which
  /// packages and tuning have.
  bool countsWork = false;
  /// Called with what is known of the machine, where set: by who exercises
  /// plans for others. Their instructions have to be this one's.
  std::function<void(TargetFacts &facts)> onFacts;
  /// Called with the fused module before code is made of it, where set.
  std::function<void(mlir::ModuleOp module)> onFused;
  /// Set by who exercises merges and transports; results differ by rounding.
  std::optional<StreamSplit> split;
  /// "avx512", "avx2" or "baseline"; empty: what the machine offers, or
  /// REFOLD_CPU. "cuda", "cuda-emulated", "cuda-sm80" or "cuda-sm90": the CUDA
  /// target (docs/targets/cuda.md).
  std::string target;
  /// Where kernels and certificates are looked for, and kept; null: nowhere. A
  /// program for a GPU makes code when it first runs: until then it is used.
  const DiskCache *cache = nullptr;
  /// Called with the assembly of every kernel, where set.
  std::function<void(llvm::StringRef kernel, llvm::StringRef assembly)>
      onAssembly;
  /// Called with the object code of every kernel for the CPU, where set.
  std::function<void(package::HostKernel kernel, std::string object)> onObject;
  /// Called with every kernel of the CUDA target, where set.
  std::function<void(const CudaKernel &kernel)> onCuda;
  /// Called with what was fused and what was not, where set.
  std::function<void(const FuseReport &report)> onReport;
};

/// Fuses by the policy, generates code and prepares the program for runs. The
/// module is consumed; its context must outlive the result.
llvm::Expected<CompiledProgram> compile(LoadedProgram program,
                                        const CompileOptions &options);

/// Where a package has its constants.
enum class WeightStorage : uint8_t {
  Copied,     ///< in itself
  Referenced, ///< where they lie in the files of the program, if they do
};
struct PackageReport {
  int64_t copiedBytes = 0, referencedBytes = 0; ///< of constants
  std::vector<std::string> files; ///< that are referred to, from the package
  /// Steps that oneDNN computes where the package runs.
  std::vector<std::string> libraryProducts;
};

/// Compiles a program into a package (docs/packages.md) and writes it, whole or
/// not at all. A program that needs what packages have no form for is
/// Unsupported.
llvm::Expected<PackageReport> writePackage(LoadedProgram program,
                                           const CompileOptions &options,
                                           WeightStorage weights,
                                           llvm::StringRef path);

/// Loads a file and compiles what it holds.
llvm::Expected<CompiledProgram> compileFile(mlir::MLIRContext &context,
                                            llvm::StringRef path,
                                            const LoadOptions &loadOptions,
                                            const CompileOptions &options);

} // namespace refold

#endif // REFOLD_DRIVER_DRIVER_H
