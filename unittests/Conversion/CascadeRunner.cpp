// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CascadeRunner.h"

#include "mlir/Parser/Parser.h"
#include "refold/Support/Error.h"
#include <chrono>
#include <cmath>

using namespace refold;

llvm::Expected<std::unique_ptr<CascadeRunner>>
CascadeRunner::compile(llvm::StringRef text, const Options &options) {
  auto target = detectTarget(options.instructionSet);
  if (!target)
    return target.takeError();
  auto runner = std::make_unique<CascadeRunner>();
  runner->options = options;
  auto start = std::chrono::steady_clock::now();
  auto compiled =
      compileKernels({KernelSource{"kernel", text.str()}}, *target, 1);
  if (!compiled)
    return compiled.takeError();
  runner->compileMs = std::chrono::duration<double, std::milli>(
                          std::chrono::steady_clock::now() - start)
                          .count();
  runner->compiled = std::move(*compiled);
  mlir::DialectRegistry registry;
  registerCpuDialects(registry);
  registry.insert<RefoldDialect>();
  runner->context = std::make_unique<mlir::MLIRContext>(
      registry, mlir::MLIRContext::Threading::DISABLED);
  runner->module =
      mlir::parseSourceString<mlir::ModuleOp>(text, runner->context.get());
  return runner;
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

llvm::Error CascadeRunner::run(llvm::ArrayRef<Tensor> operands) {
  const Kernel &kernel = compiled.kernels[0];
  std::vector<int64_t> words;
  for (const Tensor &t : operands)
    append(words, t);
  shapeWords.assign(2 + kernel.phases.size(), 0);
  kernel.shape(words.data(), shapeWords.data());
  if (shapeWords[0] < 0 || shapeWords[1] < 0 || shapeWords[0] > (1 << 30) ||
      shapeWords[1] > (1 << 30))
    return fail(ExitCode::Limit, "workspace of " +
                                     std::to_string(shapeWords[0]) + ", " +
                                     std::to_string(shapeWords[1]) + " bytes");
  Workspace shared(shapeWords[0]), own(shapeWords[1]);
  appendBytes(words, shared.data, shared.bytes);
  appendBytes(words, own.data, own.bytes);
  words.resize(words.size() + 2);
  for (size_t phase = 0; phase < kernel.phases.size(); ++phase) {
    int64_t items = shapeWords[2 + phase];
    int64_t step = options.itemsPerCall > 0 ? options.itemsPerCall : items;
    for (int64_t i = 0; i < items; i += step) {
      words[words.size() - 2] = i;
      words[words.size() - 1] = std::min(i + step, items);
      kernel.phases[phase](words.data(), nullptr);
    }
  }
  return llvm::Error::success();
}

llvm::Expected<std::vector<RefTensor>>
CascadeRunner::reference(llvm::ArrayRef<Tensor> operands) {
  CascadeOp cascade;
  module->walk([&](CascadeOp op) { cascade = op; });
  std::vector<RefTensor> values;
  for (const Tensor &t : operands)
    values.push_back(RefTensor::fromTensor(t));
  return evaluateCascade(cascade, values);
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
