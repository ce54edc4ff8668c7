// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_CONVERSION_CASCADETOCUDA_KERNELPRINTER_H
#define REFOLD_LIB_CONVERSION_CASCADETOCUDA_KERNELPRINTER_H

#include "Expressions.h"
#include "refold/Conversion/CascadeToCUDA.h"

namespace refold::cuda {

/// What kernels of every form have: parameters, a head, states.
class KernelPrinter {
public:
  /// `body`: the text of an earlier printer; parameters that it does not name
  /// are left out.
  KernelPrinter(RowKernel &kernel, const CudaOptions &options,
                llvm::StringRef body)
      : kernel(kernel), plan(*kernel.plan), options(options), earlier(body),
        values(kernel, out) {
    result.name = options.name;
  }
  std::string body; ///< of the function that all entries share

protected:
  // What is launched.
  void findParameters();
  CudaExtent extentOf(unsigned index);
  bool isNamed(llvm::StringRef parameter);
  static bool isNamedIn(llvm::StringRef text, llvm::StringRef parameter);
  /// Parameters that a text names, as they are declared and as they are passed;
  /// all where there is no text yet.
  std::pair<std::string, std::string> parametersIn(llvm::StringRef text);
  /// What blocks that share a row exchange.
  void addParts();
  void addParameter(CudaParameter parameter, const std::string &type,
                    const std::string &name);
  // The head.
  void printOrigin();
  /// `more`: a header beside the one that all kernels are written in.
  void printIncludes(llvm::StringRef more = "", llvm::StringRef andMore = "");
  /// What every entry begins with.
  void printLaunch() { out.line("begin_launch();"); }
  /// `ofBlocks`: their number is that of a block, which has 31 bits.
  void printRowIndices(bool ofBlocks = false);
  std::string describe(mlir::Value value, unsigned depth = 0);
  std::string describeRead(ReadOp read);
  void describeOperands(bool areResults);
  // States.
  void printStates();
  llvm::SmallVector<walk::StatePlan *> statesOf(unsigned pass, int level = -1);
  std::string identity(walk::StatePlan &s);
  std::string combine(walk::StatePlan &s, const std::string &x,
                      const std::string &y);
  std::string name(walk::StatePlan &s) { return kernel.stateNames[s.number]; }
  bool hasStates() const { return !plan.states.empty(); }

  RowKernel &kernel;
  walk::Plan &plan;
  const CudaOptions &options;
  llvm::StringRef earlier;
  Text out;
  Expressions values;
  CudaKernel result;
  std::string typedParameters, plainParameters;
  llvm::SmallVector<std::pair<std::string, std::string>> parameters;
};

/// The text of products of floats of 8 bits.
mlir::FailureOr<CudaKernel> printF8Products(walk::Plan &plan,
                                            const CudaOptions &options);

} // namespace refold::cuda

#endif // REFOLD_LIB_CONVERSION_CASCADETOCUDA_KERNELPRINTER_H
