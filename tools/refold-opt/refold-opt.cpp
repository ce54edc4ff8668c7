// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "refold/Driver/InitAll.h"

int main(int argc, char **argv) {
  mlir::registerAllPasses();
  refold::registerAllPasses();
  mlir::DialectRegistry registry;
  refold::registerAllDialects(registry);
  return mlir::asMainReturnCode(mlir::MlirOptMain(
      argc, argv, "Refold's passes, one at a time\n", registry));
}
