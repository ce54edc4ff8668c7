// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_FRONTEND_ONNX_H
#define REFOLD_FRONTEND_ONNX_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace refold {

/// What a user may say about a model beside the file.
struct OnnxOptions {
  /// Extents given to symbolic dimensions (`--dim batch=8`). A name that no
  /// input of the model has is an error; symbols without an entry stay dynamic.
  llvm::StringMap<int64_t> dims;
};

/// A file that constants of a model may point into.
struct MappedFile {
  std::string name; ///< below the folder of the model
  llvm::StringRef bytes;
};

/// A model as a program (docs/architecture.md, "Program form").
struct OnnxModel {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  /// Keeps the mapped files alive that large constants point into. Keep it as
  /// long as the module, or anything compiled from it that reads its constants.
  std::shared_ptr<void> storage;
  std::vector<MappedFile> files; ///< the model and its external data
};

/// Reads a model of opset 13 to 20. Errors go to the context's diagnostics, at
/// NameLoc("node name", FileLineColLoc(path, number of the node, 1)); a model
/// that is returned has been verified.
mlir::FailureOr<OnnxModel> importOnnx(llvm::StringRef path,
                                      mlir::MLIRContext &context,
                                      const OnnxOptions &options = {});

/// As above, of bytes that lie, or would lie, at `path`; they are not copied.
mlir::FailureOr<OnnxModel> importOnnx(std::unique_ptr<llvm::MemoryBuffer> bytes,
                                      llvm::StringRef path,
                                      mlir::MLIRContext &context,
                                      const OnnxOptions &options = {});

/// One line of `refold ops`: an operator and the opsets it is read in.
struct OnnxOperator {
  std::string name;
  int firstOpset;
  int lastOpset;
};

/// Every operator that importOnnx reads, by name.
std::vector<OnnxOperator> onnxOperators();

} // namespace refold

#endif // REFOLD_FRONTEND_ONNX_H
