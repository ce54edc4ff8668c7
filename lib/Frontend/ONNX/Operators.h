// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_FRONTEND_ONNX_OPERATORS_H
#define REFOLD_LIB_FRONTEND_ONNX_OPERATORS_H

#include "Node.h"

namespace refold::onnx {

constexpr int kFirstOpset = 13;
constexpr int kLastOpset = 23;

/// One operator in one range of opsets. To add one, write its row in the table
/// of the file of its kind, and its lowering above that.
struct Operator {
  llvm::StringLiteral name;
  int firstOpset, lastOpset;
  /// "axis:i keepdims:i": the attributes that it may have and their kinds, as
  /// letters: i, f, s, t and is, fs for lists. Others are errors.
  llvm::StringLiteral attributes;
  unsigned fewestInputs, mostInputs;
  /// Reads the node, gives its results; a failure has been reported.
  mlir::LogicalResult (*lower)(Node &node);
};

constexpr unsigned kAnyNumber = 1u << 16;

// One table a kind of operator, each in the file of that name.
llvm::ArrayRef<Operator> activationOperators();    // Activations.cpp
llvm::ArrayRef<Operator> arithmeticOperators();    // Arithmetic.cpp
llvm::ArrayRef<Operator> attentionOperators();     // Attention.cpp
llvm::ArrayRef<Operator> castOperators();          // Casts.cpp
llvm::ArrayRef<Operator> comparisonOperators();    // Comparisons.cpp
llvm::ArrayRef<Operator> constantOperators();      // Constants.cpp
llvm::ArrayRef<Operator> einsumOperators();        // Einsum.cpp
llvm::ArrayRef<Operator> gatherOperators();        // Gathers.cpp
llvm::ArrayRef<Operator> gridSampleOperators();    // GridSample.cpp
llvm::ArrayRef<Operator> lossOperators();          // Losses.cpp
llvm::ArrayRef<Operator> movementOperators();      // Movement.cpp
llvm::ArrayRef<Operator> normalisationOperators(); // Normalisation.cpp
llvm::ArrayRef<Operator> productOperators();       // Products.cpp
llvm::ArrayRef<Operator> quantisationOperators();  // Quantisation.cpp
llvm::ArrayRef<Operator> reductionOperators();     // Reductions.cpp
llvm::ArrayRef<Operator> resizeOperators();        // Resize.cpp
llvm::ArrayRef<Operator> rotaryOperators();        // Rotary.cpp
llvm::ArrayRef<Operator> scatterOperators();       // Scatters.cpp
llvm::ArrayRef<Operator> selectionOperators();     // Selection.cpp
llvm::ArrayRef<Operator> shapeOperators();         // Shapes.cpp
llvm::ArrayRef<Operator> transposedOperators();    // TransposedWindows.cpp
llvm::ArrayRef<Operator> windowOperators();        // Windows.cpp

/// The row for this operator in this opset, or null.
const Operator *findOperator(llvm::StringRef name, int opset);
/// What to say about an operator without a row in this opset.
std::string whyUnknown(llvm::StringRef name, int opset);
/// Are inputs and attributes of the node what its row allows?
mlir::LogicalResult checkNode(Node &node, const Operator &row);

} // namespace refold::onnx

#endif // REFOLD_LIB_FRONTEND_ONNX_OPERATORS_H
