// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_CONVERSION_CASCADETOCUDA_ROWPRINTER_H
#define REFOLD_LIB_CONVERSION_CASCADETOCUDA_ROWPRINTER_H

#include "Expressions.h"
#include "refold/Conversion/CascadeToCUDA.h"

namespace refold::cuda {

/// Writes one kernel, top to bottom.
class RowPrinter {
public:
  /// `body`: the text of an earlier printer; parameters that it does not name
  /// are left out.
  RowPrinter(RowKernel &kernel, const CudaOptions &options,
             llvm::StringRef body = "")
      : kernel(kernel), plan(*kernel.plan), options(options), earlier(body),
        values(kernel, out) {
    result.name = options.name;
  }
  CudaKernel print();
  std::string body; ///< of the function that all entries share

private:
  // What is launched.
  void findParameters();
  CudaExtent extentOf(unsigned index);
  bool isNamed(llvm::StringRef parameter);
  void addParameter(CudaParameter parameter, const std::string &type,
                    const std::string &name);
  void chooseEntries();
  // The head.
  void printHead();
  std::string describe(mlir::Value value, unsigned depth = 0);
  std::string describeRead(ReadOp read);
  void describeOperands(bool areResults);
  // The body.
  void printStates();
  void printBody();
  void printRow();
  void printRowPointers();
  void printChunk();
  void printLoad();
  void printPass(unsigned pass);
  void printFold(unsigned pass);
  void printLevel(unsigned pass, unsigned level);
  void printElements(llvm::ArrayRef<walk::StatePlan *> states);
  void printMerge(unsigned pass);
  void printMergeAcrossWarps(unsigned pass);
  void printWalk(unsigned pass);
  void printResults();
  void printRowResults();
  void printSweep();
  void printSweepWalk();
  void printStore(walk::WritePlan &w, const std::string &values);
  void openVectors(bool isChecked);
  void bindElements(bool isFolded);
  void printEntries();

  llvm::SmallVector<walk::StatePlan *> statesOf(unsigned pass, int level = -1);
  std::string identity(walk::StatePlan &s);
  std::string combine(walk::StatePlan &s, const std::string &x,
                      const std::string &y);
  std::string accumulate(walk::StatePlan &s, const std::string &acc);
  std::string name(walk::StatePlan &s) { return kernel.stateNames[s.number]; }
  std::string count() { return kernel.indexNames[kernel.stream] + "_count"; }
  bool hasStream() const { return kernel.stream >= 0; }
  bool hasStates() const { return !plan.states.empty(); }
  /// Whether results lie along the row.
  bool hasSweep() const;

  RowKernel &kernel;
  walk::Plan &plan;
  const CudaOptions &options;
  llvm::StringRef earlier;
  Text out;
  Expressions values;
  CudaKernel result;
  std::string typedParameters, plainParameters;
};

} // namespace refold::cuda

#endif // REFOLD_LIB_CONVERSION_CASCADETOCUDA_ROWPRINTER_H
