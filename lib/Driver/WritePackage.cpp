// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/Driver.h"
#include "refold/Runtime/Product.h"
#include "refold/Support/Error.h"
#include "refold/Support/Files.h"
#include "refold/Target/CPU/DetectTarget.h"
#include "refold/Target/CUDA/CompileCuda.h"
#include "llvm/ADT/STLExtras.h"
#include <filesystem>

namespace refold {
namespace fs = std::filesystem;

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

/// What is written is read again.
static llvm::Expected<std::string>
formatChecked(const package::Package &package) {
  if (package::Problem problem = package::checkPackage(package))
    return fail(ExitCode::Unsupported,
                "no package is made: " + problem.message);
  return package::formatPackage(package);
}

namespace {
/// What a package points into.
struct Kept {
  std::vector<std::string> objects;
  std::optional<CompiledProgram> compiled;
};
} // namespace

static llvm::Expected<package::Package>
makeForCpu(LoadedProgram program, CompileOptions options, Kept &kept) {
  package::Package package;
  std::vector<std::string> &objects = kept.objects;
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
  kept.compiled.emplace(std::move(*compiled));
  return package;
}

static llvm::Expected<package::Package>
makeForGpu(LoadedProgram program, CompileOptions options, Kept &kept) {
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
  kept.compiled.emplace(std::move(*compiled));
  return package;
}

/// The folder of the weights as a package at `path` names it.
static llvm::Expected<std::string>
relativeFolder(const std::string &path, const LoadedProgram &program) {
  std::error_code code;
  auto failed = [&](const std::string &of) {
    return fail(ExitCode::Model, of + ": " + code.message());
  };
  fs::path own = path;
  if (fs::exists(own, code)) {
    if (!fs::is_regular_file(own, code))
      return fail(ExitCode::Usage, path +
                                       ": found no file for a package with "
                                       "--weights reference, expected one: it "
                                       "names its weights from its folder on");
    for (const MappedFile &file : program.weightFiles)
      if (fs::equivalent(own, fs::path(program.weightsFolder) / file.name,
                         code))
        return fail(ExitCode::Usage,
                    path + ": found the file of the weights as that of the "
                           "package, expected another one");
    own = fs::canonical(own, code);
    if (code)
      return failed(path);
  }
  fs::path folder = own.has_parent_path() ? own.parent_path() : fs::path(".");
  fs::path from = fs::canonical(folder, code);
  if (code)
    return failed(folder.string());
  fs::path to = fs::canonical(program.weightsFolder, code);
  if (code)
    return failed(program.weightsFolder);
  return to.lexically_relative(from).string();
}

/// Of the file, where the constant lies there as it is.
static std::optional<uint64_t> offsetIn(const MappedFile &file,
                                        const BufferSpec &constant) {
  auto begin = reinterpret_cast<uintptr_t>(file.bytes.data()),
       data = reinterpret_cast<uintptr_t>(constant.data);
  uint64_t bytes = uint64_t(constant.bytes.constant().value_or(0));
  if (data < begin || data - begin > file.bytes.size() || bytes == 0 ||
      bytes > file.bytes.size() - (data - begin))
    return std::nullopt;
  return data - begin;
}

/// Leaves the constants where they are that lie in `files`.
static void referTo(llvm::ArrayRef<MappedFile> files,
                    package::Package &package) {
  std::vector<BufferSpec> &buffers = package.program.buffers;
  for (auto [i, buffer] : llvm::enumerate(buffers)) {
    if (buffer.kind != BufferKind::Constant)
      continue;
    for (const MappedFile &file : files) {
      std::optional<uint64_t> offset = offsetIn(file, buffer);
      if (!offset)
        continue;
      auto known = llvm::find(package.weightFiles, file.name);
      auto number = uint32_t(known - package.weightFiles.begin());
      if (known == package.weightFiles.end())
        package.weightFiles.push_back(file.name);
      uint64_t sum = package::checksum(
          file.bytes.substr(*offset, size_t(*buffer.bytes.constant())));
      package.weightPlaces.push_back({uint32_t(i), number, *offset, sum});
      break;
    }
  }
}

static PackageReport reportOn(const package::Package &package) {
  PackageReport report;
  for (const BufferSpec &buffer : package.program.buffers)
    if (buffer.kind == BufferKind::Constant)
      report.copiedBytes += buffer.bytes.constant().value_or(0);
  for (const package::WeightPlace &place : package.weightPlaces)
    report.referencedBytes +=
        package.program.buffers[place.buffer].bytes.constant().value_or(0);
  report.copiedBytes -= report.referencedBytes;
  for (const Step &step : package.program.steps)
    if (auto *product = std::get_if<ProductStep>(&step.what))
      if (needsProductLibrary(product->lhs.dtype, product->rhs.dtype,
                              product->result.dtype))
        report.libraryProducts.push_back(step.name);
  for (const std::string &file : package.weightFiles)
    report.files.push_back(
        (fs::path(package.weightsFolder) / file).lexically_normal().string());
  return report;
}

llvm::Expected<PackageReport> writePackage(LoadedProgram program,
                                           const CompileOptions &options,
                                           WeightStorage weights,
                                           llvm::StringRef path) {
  std::vector<MappedFile> files;
  std::string folder;
  if (weights == WeightStorage::Referenced && !program.weightFiles.empty()) {
    auto found = relativeFolder(path.str(), program);
    if (!found)
      return found.takeError();
    folder = std::move(*found);
    files = program.weightFiles;
  }
  std::shared_ptr<void> storage = program.storage;
  Kept kept;
  bool isGpu = llvm::StringRef(options.target).starts_with("cuda");
  auto package = isGpu ? makeForGpu(std::move(program), options, kept)
                       : makeForCpu(std::move(program), options, kept);
  if (!package)
    return package.takeError();
  referTo(files, *package);
  if (!package->weightFiles.empty())
    package->weightsFolder = folder;
  auto bytes = formatChecked(*package);
  if (!bytes)
    return bytes.takeError();
  if (llvm::Error error = writeFileAtomically(path, *bytes))
    return std::move(error);
  return reportOn(*package);
}

} // namespace refold
