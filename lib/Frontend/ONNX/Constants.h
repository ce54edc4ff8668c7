// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_FRONTEND_ONNX_CONSTANTS_H
#define REFOLD_LIB_FRONTEND_ONNX_CONSTANTS_H

#include "ModelFile.h"
#include "Tensor.h"

namespace refold::onnx {

/// What turns TensorProtos into constants.
struct ConstantReader {
  mlir::MLIRContext &context;
  std::shared_ptr<ModelFile> file;

  /// `payload`: the raw_data that the message was parsed without, or empty.
  /// Large numbers stay where they are mapped; the attribute's blob keeps the
  /// file alive. An error says what was found and expected, without a place.
  llvm::Expected<Tensor> read(const ::onnx::TensorProto &proto,
                              llvm::StringRef payload, llvm::StringRef name);
};

} // namespace refold::onnx

#endif // REFOLD_LIB_FRONTEND_ONNX_CONSTANTS_H
