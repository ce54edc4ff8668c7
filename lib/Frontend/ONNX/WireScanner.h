// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_FRONTEND_ONNX_WIRESCANNER_H
#define REFOLD_LIB_FRONTEND_ONNX_WIRESCANNER_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace refold::onnx {

/// A model file taken apart without copying its weights.
struct ScannedModel {
  /// The ModelProto without the large raw_data: what protobuf parses.
  std::string rest;
  /// One entry an initialiser of the main graph, in the order protobuf will
  /// number them: the raw_data that was left out, empty where none was.
  std::vector<llvm::StringRef> payloads;
};

/// raw_data of at least this many bytes is left out.
constexpr size_t kLargePayload = 4096;

/// Walks ModelProto -> GraphProto -> TensorProto by their field numbers and
/// copies everything else as it is. `bytes` stays the owner of the payloads. An
/// error names the offset at which the wire format is broken.
llvm::Expected<ScannedModel> scanModel(llvm::StringRef bytes);

/// Messages inside messages (a graph in an attribute of a node, a type of a
/// sequence of types) that are read; no real model is deeper.
constexpr unsigned kDeepestNesting = 64;

/// Do the messages of a ModelProto nest deeper than that? What is broken counts
/// as no message.
bool nestsTooDeep(llvm::StringRef model);

} // namespace refold::onnx

#endif // REFOLD_LIB_FRONTEND_ONNX_WIRESCANNER_H
