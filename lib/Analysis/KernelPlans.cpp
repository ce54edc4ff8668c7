// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "KernelPlans.h"

#include "llvm/ADT/BitVector.h"

using namespace mlir;
using namespace refold;
using algebra::Expr;
using algebra::IndexRole;
using algebra::IndexSet;

static IndexSet bit(unsigned i) { return IndexSet(1) << i; }

void refold::assignRoles(Formula &formula) {
  algebra::Cascade &cascade = formula.cascade;
  if (cascade.stages.empty())
    return;
  IndexSet readByStages = 0, everywhere = ~IndexSet(0);
  bool anyRead = false;
  for (const algebra::Stage &stage : cascade.stages) {
    everywhere &= stage.indices;
    auto visit = [&](Expr e) {
      for (Expr symbol : algebra::symbolsOf(e))
        if (symbol.isSym(algebra::Role::Stage)) {
          readByStages |= symbol.indices();
          anyRead = true;
        }
    };
    visit(stage.term);
    for (Expr payload : stage.payloads)
      visit(payload);
  }
  IndexSet rows = anyRead ? readByStages : everywhere;
  if (!anyRead)
    for (const Read &read : formula.reads) {
      std::optional<unsigned> last =
          read.subscripts.empty()
              ? std::nullopt
              : formula.atoms.asIndex(read.subscripts.back());
      if (last && (cascade.stream() & bit(*last)))
        rows |= read.symbol.indices();
    }
  // Lists of best elements have no lanes.
  for (const algebra::Stage &stage : cascade.stages)
    if (stage.reducer == algebra::Reducer::TopK)
      rows |= stage.indices;
  if (!anyRead && cascade.stages.size() == 1 &&
      cascade.stages[0].reducer != algebra::Reducer::TopK)
    for (const Read &read : formula.reads) {
      if (read.subscripts.empty())
        continue;
      std::optional<unsigned> last =
          formula.atoms.asIndex(read.subscripts.back());
      if (last && (rows & bit(*last)) &&
          (read.symbol.indices() & cascade.stream()))
        rows &= ~bit(*last);
    }
  for (auto [i, index] : llvm::enumerate(cascade.indices))
    if (index.role == IndexRole::Row && !(rows & bit(i)))
      index.role = IndexRole::Carried;
}

void refold::dropUnread(func::FuncOp function, ProgramPlan &plan) {
  DenseMap<Value, unsigned> writers;
  for (auto [k, kernel] : llvm::enumerate(plan.kernels))
    for (const KernelOutput &output : kernel.outputs)
      writers[output.tensor] = k;
  DenseMap<Value, const ProductPlan *> products;
  for (const ProductPlan &product : plan.products)
    products[product.op->getResult(0)] = &product;
  llvm::BitVector isRead(plan.kernels.size());
  DenseSet<Value> seen;
  SmallVector<Value> work;
  for (Operation &op : function.getBody().front())
    if (!isMemoryEffectFree(&op) || op.hasTrait<OpTrait::IsTerminator>())
      work.append(op.operand_begin(), op.operand_end());
  while (!work.empty()) {
    Value v = work.pop_back_val();
    if (!seen.insert(v).second || !v.getDefiningOp())
      continue;
    if (auto writer = writers.find(v); writer != writers.end()) {
      isRead.set(writer->second);
      for (const Read &read : plan.kernels[writer->second].formula->reads)
        if (read.operand)
          work.push_back(read.operand);
    } else if (auto product = products.find(v); product != products.end()) {
      for (const auto &operand : product->second->operands)
        work.push_back(operand.first);
    } else {
      work.append(v.getDefiningOp()->operand_begin(),
                  v.getDefiningOp()->operand_end());
    }
  }
  unsigned k = 0;
  llvm::erase_if(plan.kernels,
                 [&](const KernelPlan &) { return !isRead.test(k++); });
}
