// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "refold/Frontend/MLIR.h"
#include "refold/Support/Diagnostics.h"
#include "refold/Support/NearestName.h"

namespace refold {

namespace {

constexpr int64_t kMaxElements = int64_t(1) << 48;

mlir::InFlightDiagnostic refuse(ExitCode code, mlir::Location location) {
  return mlir::emitError(endingWith(code, location));
}

/// Tensor ops that only make, view or move elements.
bool isKnownTensorOp(mlir::Operation *op) {
  return mlir::isa<
      mlir::tensor::EmptyOp, mlir::tensor::DimOp, mlir::tensor::ExpandShapeOp,
      mlir::tensor::CollapseShapeOp, mlir::tensor::ExtractSliceOp,
      mlir::tensor::InsertSliceOp, mlir::tensor::ConcatOp, mlir::tensor::PadOp,
      mlir::tensor::CastOp, mlir::tensor::ExtractOp, mlir::tensor::YieldOp>(op);
}

bool isKnownOp(mlir::Operation *op) {
  llvm::StringRef dialect = op->getName().getDialectNamespace();
  if (dialect == "linalg" || dialect == "arith" || dialect == "math" ||
      dialect == "refold")
    return true;
  return isKnownTensorOp(op) ||
         mlir::isa<mlir::ModuleOp, mlir::func::FuncOp, mlir::func::ReturnOp,
                   mlir::affine::AffineApplyOp, mlir::cf::AssertOp>(op);
}

bool isKnownElement(mlir::Type type) {
  if (mlir::isa<mlir::IndexType>(type))
    return true;
  if (type.isF64() || type.isF32() || type.isF16() || type.isBF16() ||
      type.isFloat8E4M3FN() || type.isFloat8E5M2())
    return true;
  return type.isInteger(1) || type.isInteger(8) || type.isInteger(32) ||
         type.isInteger(64);
}

mlir::LogicalResult checkType(mlir::Type type, mlir::Location location) {
  auto tensor = mlir::dyn_cast<mlir::RankedTensorType>(type);
  if (mlir::isa<mlir::TensorType, mlir::MemRefType, mlir::VectorType>(type) &&
      !tensor)
    return refuse(ExitCode::Unsupported, location)
           << "found the type " << type
           << ", expected scalars and ranked tensors";
  if (!tensor)
    return mlir::success();
  if (tensor.getEncoding())
    return refuse(ExitCode::Unsupported, location)
           << "found the tensor encoding of " << type << ", expected none";
  if (!isKnownElement(tensor.getElementType()))
    return refuse(ExitCode::Unsupported, location)
           << "found elements of type " << tensor.getElementType()
           << ", expected f64 f32 f16 bf16 f8E4M3FN f8E5M2 i64 i32 i8 i1 or "
              "index";
  int64_t elements = 1;
  for (int64_t extent : tensor.getShape())
    if (!mlir::ShapedType::isDynamic(extent) &&
        (__builtin_mul_overflow(elements, std::max<int64_t>(extent, 1),
                                &elements) ||
         elements > kMaxElements))
      return refuse(ExitCode::Limit, location)
             << "found a tensor of more than 2^48 elements: " << type;
  return mlir::success();
}

/// A resource is data from the file: its size must be what the type says.
mlir::LogicalResult checkResource(mlir::arith::ConstantOp constant) {
  auto resource =
      mlir::dyn_cast<mlir::DenseResourceElementsAttr>(constant.getValue());
  if (!resource)
    return mlir::success();
  mlir::AsmResourceBlob *blob = resource.getRawHandle().getBlob();
  if (!blob)
    return refuse(ExitCode::Model, constant.getLoc())
           << "found no data for the resource '"
           << resource.getRawHandle().getKey() << "'";
  mlir::ShapedType type = resource.getType();
  unsigned bits =
      type.getElementType().isIndex() ? 64 : type.getElementTypeBitWidth();
  uint64_t expected = type.getNumElements() * ((bits + 7) / 8);
  if (blob->getData().size() != expected)
    return refuse(ExitCode::Model, constant.getLoc())
           << "found " << blob->getData().size() << " bytes in the resource '"
           << resource.getRawHandle().getKey() << "', expected " << expected;
  return mlir::success();
}

mlir::LogicalResult checkOp(mlir::Operation *op) {
  if (!isKnownOp(op))
    return refuse(ExitCode::Unsupported, op->getLoc())
           << "found '" << op->getName()
           << "', expected ops of linalg, arith, math, tensor and refold in "
              "one function";
  for (mlir::Type type : op->getOperandTypes())
    if (mlir::failed(checkType(type, op->getLoc())))
      return mlir::failure();
  for (mlir::Type type : op->getResultTypes())
    if (mlir::failed(checkType(type, op->getLoc())))
      return mlir::failure();
  for (mlir::Region &region : op->getRegions())
    if (region.hasOneBlock() == false && !region.empty())
      return refuse(ExitCode::Unsupported, op->getLoc())
             << "found " << region.getBlocks().size() << " blocks in '"
             << op->getName() << "', expected 1";
  if (auto constant = mlir::dyn_cast<mlir::arith::ConstantOp>(op))
    return checkResource(constant);
  return mlir::success();
}

mlir::LogicalResult checkSignature(mlir::func::FuncOp function) {
  mlir::FunctionType type = function.getFunctionType();
  auto check = [&](llvm::StringRef what, unsigned i,
                   mlir::Type port) -> mlir::LogicalResult {
    auto tensor = mlir::dyn_cast<mlir::RankedTensorType>(port);
    if (!tensor || tensor.getElementType().isIndex())
      return refuse(ExitCode::Unsupported, function.getLoc())
             << "found " << what << " " << i << " of type " << port
             << ", expected a ranked tensor of floats, integers or i1 (a "
                "scalar is tensor<f32>)";
    return checkType(port, function.getLoc());
  };
  for (auto [i, port] : llvm::enumerate(type.getInputs()))
    if (mlir::failed(check("argument", i, port)))
      return mlir::failure();
  for (auto [i, port] : llvm::enumerate(type.getResults()))
    if (mlir::failed(check("result", i, port)))
      return mlir::failure();
  return mlir::success();
}

mlir::LogicalResult checkPort(mlir::func::FuncOp function,
                              mlir::DictionaryAttr attributes, mlir::Type type,
                              llvm::StringRef what, unsigned i,
                              llvm::StringMap<unsigned> &names) {
  if (!attributes)
    return mlir::success();
  if (mlir::Attribute name = attributes.get("refold.name")) {
    auto text = mlir::dyn_cast<mlir::StringAttr>(name);
    if (!text || text.empty())
      return refuse(ExitCode::Model, function.getLoc())
             << "found refold.name of " << what << " " << i << " to be " << name
             << ", expected a string";
    if (!names.try_emplace(text, i).second)
      return refuse(ExitCode::Model, function.getLoc())
             << "found two " << what << "s of the name '" << text.getValue()
             << "'";
  }
  mlir::Attribute dims = attributes.get("refold.dims");
  if (!dims)
    return mlir::success();
  auto list = mlir::dyn_cast<mlir::ArrayAttr>(dims);
  int64_t rank = mlir::cast<mlir::RankedTensorType>(type).getRank();
  bool isGood = list && static_cast<int64_t>(list.size()) == rank &&
                llvm::all_of(list, llvm::IsaPred<mlir::StringAttr>);
  if (isGood)
    return mlir::success();
  return refuse(ExitCode::Model, function.getLoc())
         << "found refold.dims of " << what << " " << i << " to be " << dims
         << ", expected " << rank << " strings";
}

mlir::LogicalResult checkNames(mlir::func::FuncOp function) {
  llvm::StringMap<unsigned> inputs, outputs;
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (mlir::failed(checkPort(function, function.getArgAttrDict(i),
                               function.getArgumentTypes()[i], "argument", i,
                               inputs)))
      return mlir::failure();
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (mlir::failed(checkPort(function, function.getResultAttrDict(i),
                               function.getResultTypes()[i], "result", i,
                               outputs)))
      return mlir::failure();
  return mlir::success();
}

mlir::LogicalResult check(mlir::ModuleOp module) {
  llvm::SmallVector<mlir::func::FuncOp> functions(
      module.getOps<mlir::func::FuncOp>());
  if (functions.size() != 1)
    return refuse(ExitCode::Unsupported,
                  functions.empty() ? module.getLoc() : functions[1].getLoc())
           << "found " << functions.size() << " functions, expected 1";
  mlir::func::FuncOp function = functions.front();
  if (!function.isPublic() || function.isDeclaration())
    return refuse(ExitCode::Unsupported, function.getLoc())
           << "found "
           << (function.isPublic() ? "a declaration" : "a private function")
           << ", expected a public function with a body";
  if (mlir::failed(checkSignature(function)) ||
      mlir::failed(checkNames(function)))
    return mlir::failure();
  mlir::WalkResult walked = module.walk([&](mlir::Operation *op) {
    bool isNested = (mlir::isa<mlir::ModuleOp>(op) && op != module) ||
                    (mlir::isa<mlir::func::FuncOp>(op) && op != function);
    if (isNested) {
      refuse(ExitCode::Unsupported, op->getLoc())
          << "found a nested '" << op->getName()
          << "', expected one function in one module";
      return mlir::WalkResult::interrupt();
    }
    return mlir::WalkResult(checkOp(op));
  });
  return mlir::failure(walked.wasInterrupted());
}

} // namespace

llvm::Error checkProgramForm(mlir::ModuleOp module, llvm::StringRef where) {
  DiagnosticCollector collector(*module.getContext());
  if (mlir::succeeded(check(module)))
    return llvm::Error::success();
  return collector.takeErrors(
      (where + ": error: the program form was refused without reason").str());
}

} // namespace refold
