// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "refold/Dialect/Refold/IR/ElementTypes.h"
#include "refold/Driver/Driver.h"
#include "refold/Driver/InitAll.h"
#include "refold/Frontend/Fold.h"
#include "refold/Frontend/MLIR.h"
#include "refold/Frontend/ONNX.h"
#include "refold/Support/Diagnostics.h"
#include "refold/Support/Error.h"
#include "refold/Support/Files.h"
#include "refold/Support/Stopwatch.h"
#include "llvm/Support/Path.h"

namespace refold {

std::unique_ptr<mlir::MLIRContext> makeContext() {
  mlir::DialectRegistry registry;
  registerAllDialects(registry);
  // The passes of one program are too short for MLIR's threads to pay.
  auto context = std::make_unique<mlir::MLIRContext>(
      registry, mlir::MLIRContext::Threading::DISABLED);
  context->printOpOnDiagnostic(false);
  return context;
}

static llvm::Expected<Port> portOf(mlir::Type type,
                                   mlir::DictionaryAttr attributes,
                                   const llvm::Twine &fallbackName) {
  auto tensor = mlir::dyn_cast<mlir::RankedTensorType>(type);
  bool isUnsigned = attributes && attributes.get("refold.unsigned");
  std::optional<DType> dtype =
      tensor ? dtypeOf(tensor.getElementType(), isUnsigned) : std::nullopt;
  if (!dtype)
    return fail(ExitCode::Internal,
                "found '" + fallbackName + "' of an unknown type");
  Port port;
  port.dtype = *dtype;
  auto name =
      attributes ? attributes.getAs<mlir::StringAttr>("refold.name") : nullptr;
  port.name = name ? name.str() : fallbackName.str();
  if (auto indexes = attributes
                         ? attributes.getAs<mlir::StringAttr>("refold.indexes")
                         : nullptr)
    port.indexes = indexes.str();
  auto dims =
      attributes ? attributes.getAs<mlir::ArrayAttr>("refold.dims") : nullptr;
  for (auto [i, extent] : llvm::enumerate(tensor.getShape())) {
    port.extents.push_back(mlir::ShapedType::isDynamic(extent) ? -1 : extent);
    port.dims.push_back(dims ? mlir::cast<mlir::StringAttr>(dims[i]).str()
                             : "");
  }
  return port;
}

/// Reads the ports off the public function of the module.
static llvm::Error describeSignature(LoadedProgram &program) {
  mlir::func::FuncOp function;
  for (auto candidate : program.module->getOps<mlir::func::FuncOp>())
    if (candidate.isPublic())
      function = candidate;
  if (!function)
    return fail(ExitCode::Internal, "the front end made no public function");
  program.name = function.getSymName().str();
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
    auto port =
        portOf(type, function.getArgAttrDict(i), "arg" + llvm::Twine(i));
    if (!port)
      return port.takeError();
    program.inputs.push_back(std::move(*port));
  }
  for (auto [i, type] : llvm::enumerate(function.getResultTypes())) {
    auto port =
        portOf(type, function.getResultAttrDict(i), "out" + llvm::Twine(i));
    if (!port)
      return port.takeError();
    program.outputs.push_back(std::move(*port));
  }
  return llvm::Error::success();
}

static llvm::Error loadMLIR(mlir::MLIRContext &context, llvm::StringRef path,
                            const LoadOptions &options,
                            LoadedProgram &program) {
  if (!options.dims.empty())
    return fail(ExitCode::Usage,
                path +
                    ": found extents for a .mlir file, whose types fix them");
  auto text = readFile(path, MLIRLimits().bytes);
  if (!text)
    return text.takeError();
  auto module = importMLIR((*text)->getBuffer(), path, context);
  if (!module)
    return module.takeError();
  program.module = std::move(*module);
  return llvm::Error::success();
}

static llvm::Error importFoldText(mlir::MLIRContext &context,
                                  llvm::StringRef text, llvm::StringRef path,
                                  const LoadOptions &options,
                                  LoadedProgram &program) {
  DiagnosticCollector collector(context);
  FoldOptions foldOptions;
  foldOptions.dims = options.dims;
  foldOptions.storage = options.dtype;
  auto module = importFold(text, path, context, foldOptions);
  if (mlir::failed(module))
    return collector.takeErrors("the .fold front end failed without reason");
  program.module = std::move(*module);
  return llvm::Error::success();
}

static llvm::Error loadFold(mlir::MLIRContext &context, llvm::StringRef path,
                            const LoadOptions &options,
                            LoadedProgram &program) {
  auto text = readFile(path, fold::kMaxSourceBytes);
  if (!text)
    return text.takeError();
  return importFoldText(context, (*text)->getBuffer(), path, options, program);
}

static llvm::Error loadOnnx(mlir::MLIRContext &context, llvm::StringRef path,
                            const LoadOptions &options,
                            LoadedProgram &program) {
  DiagnosticCollector collector(context);
  OnnxOptions onnxOptions;
  for (const auto &[name, extent] : options.dims)
    onnxOptions.dims[name] = extent;
  auto model = importOnnx(path, context, onnxOptions);
  if (mlir::failed(model))
    return collector.takeErrors("the ONNX front end failed without reason");
  program.module = std::move(model->module);
  program.storage = std::move(model->storage);
  llvm::StringRef folder = llvm::sys::path::parent_path(path);
  program.weightsFolder = folder.empty() ? "." : folder.str();
  program.weightFiles = std::move(model->files);
  return llvm::Error::success();
}

llvm::Expected<LoadedProgram> loadFoldText(mlir::MLIRContext &context,
                                           llvm::StringRef text,
                                           llvm::StringRef name) {
  LoadedProgram program;
  if (llvm::Error error = importFoldText(context, text, name, {}, program))
    return std::move(error);
  if (llvm::Error error = describeSignature(program))
    return std::move(error);
  return program;
}

/// `type`: f16 or bf16.
static void narrow(LoadedProgram &program, DType type) {
  mlir::MLIRContext *context = program.module->getContext();
  mlir::FloatType to = type == DType::F16 ? mlir::FloatType::getF16(context)
                                          : mlir::FloatType::getBF16(context);
  for (auto function : program.module->getOps<mlir::func::FuncOp>())
    if (function.isPublic())
      program.narrowed = narrowProducts(function, to);
}

llvm::Expected<LoadedProgram> load(mlir::MLIRContext &context,
                                   llvm::StringRef path,
                                   const LoadOptions &options) {
  using Loader = llvm::Error (*)(mlir::MLIRContext &, llvm::StringRef,
                                 const LoadOptions &, LoadedProgram &);
  static constexpr std::pair<llvm::StringLiteral, Loader> loaders[] = {
      {".fold", loadFold},
      {".onnx", loadOnnx},
      {".mlir", loadMLIR},
  };
  for (auto [extension, loader] : loaders) {
    if (!path.ends_with(extension))
      continue;
    LoadedProgram program;
    Stopwatch watch;
    if (llvm::Error error = loader(context, path, options, program))
      return std::move(error);
    if (llvm::Error error = describeSignature(program))
      return std::move(error);
    if (options.multiply)
      narrow(program, *options.multiply);
    program.readMs = watch.ms();
    return program;
  }
  return fail(ExitCode::Usage,
              path +
                  ": found another extension, expected .fold, .onnx or .mlir");
}

} // namespace refold
