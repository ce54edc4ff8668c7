// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A cascade by definition: every state is its complete reduction.
#include "CascadeRow.h"

using namespace mlir;
using namespace refold;
using namespace refold::reference;

llvm::Expected<std::vector<RefTensor>>
refold::evaluateCascade(CascadeOp cascade, ArrayRef<RefTensor> operands,
                        const EvaluationOptions &options) {
  Session session(options);
  auto made = CascadeRow::create(cascade, operands, session);
  if (!made)
    return made.takeError();
  CascadeRow &row = **made;
  auto byDefinition = [](StateOp) { return true; };
  while (row.nextRow()) {
    Scope scope;
    scope.range = row.wholeStream();
    for (auto write : cascade.bodyBlock()->getOps<WriteOp>()) {
      if (llvm::Error error = row.ensure(write.getValue(), scope, byDefinition))
        return std::move(error);
      if (llvm::Error error = row.store(write, scope))
        return std::move(error);
    }
  }
  return std::vector<RefTensor>(row.results.begin(), row.results.end());
}
