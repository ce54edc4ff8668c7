// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/Driver.h"
#include "refold/Support/Error.h"
#include "refold/Support/Files.h"
#include "refold/Target/CPU/DetectTarget.h"
#include "refold/Target/CUDA/CompileCuda.h"

namespace refold {

/// What the code of a form uses, for the machine that loads it.
static std::string featuresOf(const CpuTarget &target) {
  std::string features;
  switch (target.instructionSet) {
  case InstructionSet::Baseline:
    features = "sse4.2";
    break;
  case InstructionSet::AVX2:
    features = "avx2,fma,f16c";
    break;
  case InstructionSet::AVX512:
    features = "avx2,fma,f16c,avx512f,avx512bw,avx512cd,avx512dq,avx512vl";
    break;
  }
  llvm::SmallVector<llvm::StringRef> more;
  llvm::StringRef(target.features).split(more, ',');
  for (llvm::StringRef one : more)
    if (one.consume_front("+"))
      features += ("," + one).str();
  return features;
}

static llvm::Error checkSteps(const ProgramSpec &program) {
  for (const Step &step : program.steps)
    if (std::holds_alternative<ProductStep>(step.what))
      return fail(ExitCode::Unsupported,
                  "'" + step.name +
                      "': found a matrix product outside a cascade, which "
                      "packages have no library for; expected kernels, copies "
                      "and checks");
  return llvm::Error::success();
}

/// What is written is read again.
static llvm::Expected<std::string>
formatChecked(const package::Package &package) {
  if (package::Problem problem = package::checkPackage(package))
    return fail(ExitCode::Unsupported,
                "no package is made: " + problem.message);
  return package::formatPackage(package);
}

static llvm::Expected<std::string> formatForCpu(LoadedProgram program,
                                                CompileOptions options) {
  package::Package package;
  std::vector<std::string> objects;
  options.onObject = [&](package::HostKernel kernel, std::string object) {
    package.hostKernels.push_back(std::move(kernel));
    objects.push_back(std::move(object));
  };
  llvm::Expected<CpuTarget> target = detectTarget(options.target);
  if (!target)
    return target.takeError();
  auto compiled = compile(std::move(program), options);
  if (!compiled)
    return compiled.takeError();
  // Steps name kernels by their number.
  const std::vector<Kernel> &kernels = compiled->executable.spec().kernels;
  if (!llvm::equal(package.hostKernels, kernels,
                   [](const package::HostKernel &object, const Kernel &kernel) {
                     return object.name == kernel.name;
                   }))
    return fail(ExitCode::Internal,
                "found objects of " + llvm::Twine(package.hostKernels.size()) +
                    " kernels, expected those of the " +
                    llvm::Twine(kernels.size()) + " that run");
  for (auto [kernel, object] : llvm::zip_equal(package.hostKernels, objects))
    kernel.object = object;
  package.name = compiled->name;
  package.architecture = nameOf(target->instructionSet).str();
  package.features = featuresOf(*target);
  package.program = compiled->executable.spec();
  if (llvm::Error error = checkSteps(package.program))
    return std::move(error);
  return formatChecked(package);
}

static llvm::Expected<std::string> formatForGpu(LoadedProgram program,
                                                CompileOptions options) {
  options.countsWork = true;
  auto compiled = compile(std::move(program), options);
  if (!compiled)
    return compiled.takeError();
  if (!compiled->gpu)
    return fail(ExitCode::Usage, "found the target '" + options.target +
                                     "', which no package is made for, "
                                     "expected cuda-sm80 or cuda-sm90");
  package::Package package = compiled->gpu->described();
  std::string architecture =
      package.textTarget == "cuda-sm90" ? "sm_90a" : "sm_80";
  if (llvm::Error error = makeCubins(package, architecture, options.cache))
    return std::move(error);
  return formatChecked(package);
}

llvm::Error writePackage(LoadedProgram program, const CompileOptions &options,
                         llvm::StringRef path) {
  bool isGpu = llvm::StringRef(options.target).starts_with("cuda");
  auto bytes = isGpu ? formatForGpu(std::move(program), options)
                     : formatForCpu(std::move(program), options);
  if (!bytes)
    return bytes.takeError();
  return writeFileAtomically(path, *bytes);
}

} // namespace refold
