// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CascadeRunner.h"

#include "mlir/Parser/Parser.h"
#include "refold/Conversion/CascadeToVector.h"
#include "refold/Schedule/CostModel.h"
#include "refold/Support/Error.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include <chrono>
#include <cmath>
#include <dlfcn.h>

using namespace refold;

llvm::Expected<std::unique_ptr<CascadeRunner>>
CascadeRunner::compile(llvm::StringRef text, const Options &options) {
  auto target = detectTarget(options.instructionSet);
  if (!target)
    return target.takeError();
  if (options.cores)
    target->facts.cores = options.cores;
  if (options.l2Bytes)
    target->facts.l2Bytes = options.l2Bytes;
  auto runner = std::make_unique<CascadeRunner>();
  runner->options = options;
  runner->facts = target->facts;
  auto start = std::chrono::steady_clock::now();
  CompileKernelsOptions compileOptions;
  compileOptions.threads = 1;
  auto compiled = compileKernels({KernelSource{"kernel", text.str()}}, *target,
                                 compileOptions);
  if (!compiled)
    return compiled.takeError();
  runner->compileMs = std::chrono::duration<double, std::milli>(
                          std::chrono::steady_clock::now() - start)
                          .count();
  runner->compiled = std::move(*compiled);
  runner->parse(text);
  return runner;
}

void CascadeRunner::parse(llvm::StringRef text) {
  mlir::DialectRegistry registry;
  registerCpuDialects(registry);
  registry.insert<RefoldDialect>();
  context = std::make_unique<mlir::MLIRContext>(
      registry, mlir::MLIRContext::Threading::DISABLED);
  module = mlir::parseSourceString<mlir::ModuleOp>(text, context.get());
}

/// Loads what `kernel` has in the library at `path`, which stays open.
static llvm::Expected<Kernel> loadKernel(void *library,
                                         const std::string &name) {
  auto find = [&](const std::string &symbol) {
    return reinterpret_cast<KernelFunction>(dlsym(library, symbol.c_str()));
  };
  Kernel kernel;
  kernel.name = name;
  kernel.shape = find(name + "_shape");
  if (!kernel.shape)
    return fail(ExitCode::Internal, "no symbol " + name + "_shape");
  while (auto phase =
             find(name + "_phase" + std::to_string(kernel.phases.size())))
    kernel.phases.push_back(phase);
  return kernel;
}

llvm::Expected<std::vector<std::unique_ptr<CascadeRunner>>>
CascadeRunner::compileCxx(llvm::ArrayRef<std::string> texts) {
  std::vector<std::unique_ptr<CascadeRunner>> runners;
  std::string source;
  for (auto [i, text] : llvm::enumerate(texts)) {
    auto runner = std::make_unique<CascadeRunner>();
    runner->parse(text);
    if (!runner->module)
      return fail(ExitCode::Internal, "does not parse");
    auto function = *runner->module->getOps<mlir::func::FuncOp>().begin();
    function.setSymName("kernel" + std::to_string(i));
    auto printed = printCascadeAsCxx(function);
    if (failed(printed))
      return fail(ExitCode::Internal, "cannot be printed");
    source += *printed;
    runners.push_back(std::move(runner));
  }
  llvm::SmallString<128> file, library;
  if (llvm::sys::fs::createTemporaryFile("kernels", "cpp", file) ||
      llvm::sys::fs::createTemporaryFile("kernels", "so", library))
    return fail(ExitCode::Internal, "no temporary file");
  llvm::FileRemover removeFile(file), removeLibrary(library);
  std::error_code error;
  llvm::raw_fd_ostream(file, error) << source;
  std::string command =
      (REFOLD_CXX " -std=c++20 -O0 -shared -fPIC -o " + library + " " + file)
          .str();
  if (error || std::system(command.c_str()) != 0)
    return fail(ExitCode::Internal,
                "the printed text does not compile:\n" + source);
  void *handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    return fail(ExitCode::Internal, dlerror());
  for (auto [i, runner] : llvm::enumerate(runners)) {
    auto kernel = loadKernel(handle, "kernel" + std::to_string(i));
    if (!kernel)
      return kernel.takeError();
    runner->compiled.kernels.push_back(std::move(*kernel));
  }
  return runners;
}

static void append(std::vector<int64_t> &words, const Tensor &t) {
  words.push_back(reinterpret_cast<int64_t>(t.data()));
  words.push_back(reinterpret_cast<int64_t>(t.data()));
  words.push_back(0);
  words.insert(words.end(), t.shape().begin(), t.shape().end());
  words.insert(words.end(), t.strides().begin(), t.strides().end());
}

static void appendBytes(std::vector<int64_t> &words, void *data,
                        int64_t bytes) {
  int64_t base = reinterpret_cast<int64_t>(data);
  words.insert(words.end(), {base, base, 0, bytes, 1});
}

namespace {
struct Workspace {
  explicit Workspace(int64_t bytes)
      : bytes(bytes), data(std::aligned_alloc(64, (bytes + 127) / 64 * 64)) {
    std::memset(data, 0xff, bytes); // NaN: nobody may read what nobody wrote
  }
  ~Workspace() { std::free(data); }
  int64_t bytes;
  void *data;
};
} // namespace

std::vector<int64_t> CascadeRunner::askShape(llvm::ArrayRef<Tensor> operands) {
  const Kernel &kernel = compiled.kernels[0];
  std::vector<int64_t> words;
  for (const Tensor &t : operands)
    append(words, t);
  shapeWords.assign(2 + 2 * kernel.phases.size(), 0);
  kernel.shape(words.data(), shapeWords.data());
  return words;
}

int64_t CascadeRunner::itemsOf(llvm::ArrayRef<Tensor> operands) {
  askShape(operands);
  return shapeWords[1 + compiled.kernels[0].phases.size()];
}

double CascadeRunner::predictedItems(llvm::ArrayRef<double> extents) {
  CascadeOp op = cascade();
  auto sets = IndexSets::infer(op);
  auto schedule = chooseSchedule(op, facts);
  return succeeded(sets) && succeeded(schedule)
             ? countWork(op, *sets, extents, *schedule, facts).items
             : -1.0;
}

llvm::Error CascadeRunner::run(llvm::ArrayRef<Tensor> operands) {
  const Kernel &kernel = compiled.kernels[0];
  size_t phases = kernel.phases.size();
  std::vector<int64_t> words = askShape(operands);
  if (shapeWords[0] < 0 || shapeWords[1] < 0 || shapeWords[0] > (1 << 30) ||
      shapeWords[1] > (1 << 30))
    return fail(ExitCode::Limit, "workspace of " +
                                     std::to_string(shapeWords[0]) + ", " +
                                     std::to_string(shapeWords[1]) + " bytes");
  Workspace shared(shapeWords[0]), own(shapeWords[1]);
  appendBytes(words, shared.data, shared.bytes);
  appendBytes(words, own.data, own.bytes);
  words.resize(words.size() + 2);
  numRounds = 0;
  for (int64_t first = 0; first < shapeWords[1 + phases];
       first += shapeWords.back(), ++numRounds)
    for (size_t phase = 0; phase < phases; ++phase) {
      int64_t atOnce = shapeWords[2 + phases + phase];
      int64_t begin = numRounds * atOnce;
      int64_t end = std::min(begin + atOnce, shapeWords[2 + phase]);
      int64_t step = options.itemsPerCall > 0 ? options.itemsPerCall : atOnce;
      for (int64_t i = begin; i < end; i += step) {
        words[words.size() - 2] = i;
        words[words.size() - 1] = std::min(i + step, end);
        kernel.phases[phase](words.data(), nullptr);
      }
    }
  return llvm::Error::success();
}

CascadeOp CascadeRunner::cascade() {
  CascadeOp found;
  module->walk([&](CascadeOp op) { found = op; });
  return found;
}

llvm::Expected<std::vector<RefTensor>>
CascadeRunner::reference(llvm::ArrayRef<Tensor> operands) {
  std::vector<RefTensor> values;
  for (const Tensor &t : operands)
    values.push_back(RefTensor::fromTensor(t));
  return evaluateCascade(cascade(), values);
}

double refold::relativeError(const Tensor &got, const RefTensor &want) {
  if (got.shape() != want.shape())
    return INFINITY;
  double scale = 0, worst = 0;
  for (int64_t i = 0; i < want.numElements(); ++i)
    if (std::isfinite(want.get(i)))
      scale = std::max(scale, std::abs(want.get(i)));
  for (int64_t i = 0; i < want.numElements(); ++i) {
    double a = got.get(i), b = want.get(i);
    if (std::isnan(a) != std::isnan(b) || std::isinf(a) != std::isinf(b) ||
        (std::isinf(a) && a != b))
      return INFINITY;
    if (std::isfinite(b))
      worst = std::max(worst, std::abs(a - b));
  }
  return worst == 0 ? 0 : worst / std::max(scale, 1e-300);
}
