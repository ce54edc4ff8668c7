// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_FRONTEND_ONNX_NODE_H
#define REFOLD_LIB_FRONTEND_ONNX_NODE_H

#include "GraphBuilder.h"
#include "mlir/IR/Diagnostics.h"
#include "refold/Support/ExitCode.h"
#include "llvm/Support/Error.h"

namespace onnx {
class NodeProto;
class AttributeProto;
class TensorProto;
} // namespace onnx

namespace refold::onnx {

/// One node while it is lowered: what a row of the operator table works with.
class Node {
public:
  Node(const ::onnx::NodeProto &proto, GraphBuilder &graph,
       llvm::SmallVector<Tensor *> inputs, mlir::Location loc);

  GraphBuilder &graph;
  Extents &extents;

  //===- Inputs -------------------------------------------------------------//
  unsigned numInputs() const { return inputs.size(); }
  bool hasInput(unsigned i) const { return i < inputs.size() && inputs[i]; }
  /// Requires hasInput(i).
  Tensor &input(unsigned i) { return *inputs[i]; }
  llvm::ArrayRef<Tensor *> allInputs() const { return inputs; }
  /// The elements of an input that says sizes, axes or positions (rank 0 or 1).
  mlir::FailureOr<Shape> extentsOf(unsigned i, llvm::StringRef what);
  /// As above, and each must be a number.
  mlir::FailureOr<llvm::SmallVector<int64_t>> integersOf(unsigned i,
                                                         llvm::StringRef what);

  //===- Attributes; their types have been checked against the row ----------//
  bool has(llvm::StringRef name) const;
  int64_t integer(llvm::StringRef name, int64_t otherwise) const;
  double real(llvm::StringRef name, double otherwise) const;
  std::string string(llvm::StringRef name, llvm::StringRef otherwise) const;
  llvm::SmallVector<int64_t> integers(llvm::StringRef name) const;
  llvm::SmallVector<double> reals(llvm::StringRef name) const;
  /// The tensor of an attribute of that kind, null if absent.
  const ::onnx::TensorProto *tensor(llvm::StringRef name) const;
  /// An axis counted from the end where it is negative; an error outside
  /// [-rank, rank).
  mlir::FailureOr<unsigned> axis(int64_t value, unsigned rank);
  mlir::FailureOr<unsigned> axisAttribute(int64_t otherwise, unsigned rank);
  /// One flag a dimension; an axis given twice is an error.
  mlir::FailureOr<llvm::SmallVector<bool>> axisSet(llvm::ArrayRef<int64_t> axes,
                                                   unsigned rank);

  //===- Results ------------------------------------------------------------//
  unsigned numOutputs() const;
  bool wants(unsigned i) const;
  mlir::LogicalResult give(Tensor tensor) { return give(0, std::move(tensor)); }
  mlir::LogicalResult give(unsigned i, Tensor tensor);
  std::vector<std::optional<Tensor>> results;

  //===- Messages -----------------------------------------------------------//
  /// "Gather: ..." at the node's location: the model is wrong.
  mlir::InFlightDiagnostic error() { return report(ExitCode::Model); }
  /// The model may be right, but this is not read here.
  mlir::InFlightDiagnostic unsupported() {
    return report(ExitCode::Unsupported);
  }
  /// The model may be right, but is larger than what is read here.
  mlir::InFlightDiagnostic beyondLimit() { return report(ExitCode::Limit); }
  /// Sizes that do not fit: the model is wrong where they are numbers,
  /// otherwise not read here, since they may fit when it runs.
  mlir::InFlightDiagnostic badSizes(llvm::ArrayRef<Extent> sizes) {
    bool isKnown = llvm::all_of(
        sizes, [](const Extent &size) { return size.constant().has_value(); });
    return report(isKnown ? ExitCode::Model : ExitCode::Unsupported);
  }
  /// An error that came from elsewhere, with its own exit code.
  mlir::LogicalResult fail(llvm::Error error);
  bool hasErrors() const { return numErrors != 0; }
  std::string name() const;
  llvm::StringRef op() const;
  const ::onnx::NodeProto &proto;

  /// Failure with a message unless every input has the type of the first one.
  mlir::LogicalResult requireSameTypes(unsigned from = 0);
  mlir::LogicalResult requireFloat(unsigned i);
  /// For operators that also take integers, which are not read here.
  mlir::LogicalResult requireFloatHere(unsigned i);
  mlir::FailureOr<Shape> broadcast(llvm::ArrayRef<Tensor *> tensors);
  /// Extent by extent equal, or checked to be when the program runs.
  bool areEqual(llvm::ArrayRef<Extent> a, llvm::ArrayRef<Extent> b);

private:
  mlir::InFlightDiagnostic report(ExitCode code);
  const ::onnx::AttributeProto *find(llvm::StringRef name) const;
  llvm::SmallVector<Tensor *> inputs;
  mlir::Location loc;
  unsigned numErrors = 0;
};

} // namespace refold::onnx

#endif // REFOLD_LIB_FRONTEND_ONNX_NODE_H
