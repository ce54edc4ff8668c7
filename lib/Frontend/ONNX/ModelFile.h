// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_FRONTEND_ONNX_MODELFILE_H
#define REFOLD_LIB_FRONTEND_ONNX_MODELFILE_H

#include "WireScanner.h"
#include "onnx.pb.h"
#include "refold/Frontend/ONNX.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MemoryBuffer.h"
#include <memory>
#include <vector>

namespace refold::onnx {

/// A model file, its parsed messages, and the files beside it that hold
/// external data; all mapped, for as long as this object lives.
class ModelFile {
public:
  /// Any file system or wire error names the file.
  static llvm::Expected<std::shared_ptr<ModelFile>> open(llvm::StringRef path);
  /// The bytes of a model that lies, or would lie, at `path`.
  static llvm::Expected<std::shared_ptr<ModelFile>>
  parse(std::unique_ptr<llvm::MemoryBuffer> bytes, llvm::StringRef path);

  const ::onnx::ModelProto &model() const { return proto; }
  /// The raw_data of initialiser `index` of the main graph if it was left out
  /// of the message, else empty.
  llvm::StringRef payload(size_t index) const { return payloads[index]; }
  /// The bytes that the external_data entries of a tensor mean. The file must
  /// lie in the model's folder, after links are followed.
  llvm::Expected<llvm::StringRef> external(const ::onnx::TensorProto &tensor);
  /// The model, and the external data that was asked for.
  std::vector<MappedFile> files() const;

private:
  std::string path;
  std::unique_ptr<llvm::MemoryBuffer> file;
  ::onnx::ModelProto proto;
  std::vector<llvm::StringRef> payloads;
  llvm::StringMap<std::unique_ptr<llvm::MemoryBuffer>> externals;
};

} // namespace refold::onnx

#endif // REFOLD_LIB_FRONTEND_ONNX_MODELFILE_H
