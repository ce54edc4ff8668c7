// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An exponential has ten constants, and AVX2 sixteen registers. LLVM keeps of
// equal numbers one word and broadcasts it: an instruction of its own, and a
// register that is renamed, of which a processor has as many as it can look
// ahead. A whole register in memory is an operand of the operation instead.
#include "ConstantsInMemory.h"

#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/LLVMContext.h"

using namespace refold;

/// Operations that read one operand from memory, and of which the code
/// generator makes nothing else where it knows the number.
static bool readsMemory(const llvm::Instruction &instruction) {
  if (auto *call = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction))
    switch (call->getIntrinsicID()) {
    case llvm::Intrinsic::fma:
    case llvm::Intrinsic::fmuladd:
    case llvm::Intrinsic::minnum:
    case llvm::Intrinsic::maxnum:
      return true;
    default:
      return false;
    }
  switch (instruction.getOpcode()) {
  case llvm::Instruction::FAdd:
  case llvm::Instruction::FSub:
  case llvm::Instruction::FMul:
  case llvm::Instruction::FCmp:
  case llvm::Instruction::Add:
  case llvm::Instruction::Sub:
  case llvm::Instruction::Select:
    return true;
  default:
    return false;
  }
}

/// Equal words or double words, of which no bit pattern is one that an
/// instruction makes from nothing, nor x * 2 is x + x.
static bool isKept(const llvm::Value *value, unsigned bits) {
  auto *constant = llvm::dyn_cast<llvm::Constant>(value);
  if (!constant || !llvm::isa<llvm::FixedVectorType>(constant->getType()) ||
      constant->getType()->getPrimitiveSizeInBits() != bits ||
      constant->getType()->getScalarSizeInBits() < 32)
    return false;
  const llvm::Constant *one = constant->getSplatValue();
  if (!one || one->isZeroValue() || one->isNegativeZeroValue() ||
      one->isAllOnesValue())
    return false;
  auto *number = llvm::dyn_cast<llvm::ConstantFP>(one);
  return number ? !number->isExactlyValue(2.0)
                : llvm::isa<llvm::ConstantInt>(one);
}

namespace {
/// Of one function: its constants, read where it begins. Where they are needed
/// the allocator of registers reads them again, as operands, before it keeps
/// anything on the stack.
class Readings {
public:
  Readings(llvm::Function &function, unsigned bits)
      : function(function), bits(bits) {}

  void replaceOperands(llvm::Instruction &instruction);

private:
  llvm::Value *read(llvm::Constant *constant);

  llvm::Function &function;
  unsigned bits;
  llvm::DenseMap<llvm::Constant *, llvm::Value *> readings;
};
} // namespace

llvm::Value *Readings::read(llvm::Constant *constant) {
  llvm::Value *&reading = readings[constant];
  if (reading)
    return reading;
  auto *words = new llvm::GlobalVariable(
      *function.getParent(), constant->getType(), /*isConstant=*/true,
      llvm::GlobalValue::PrivateLinkage, constant);
  words->setUnnamedAddr(llvm::GlobalValue::UnnamedAddr::Global);
  words->setAlignment(llvm::Align(bits / 8));
  llvm::BasicBlock &entry = function.getEntryBlock();
  llvm::IRBuilder<> b(&entry, entry.getFirstInsertionPt());
  llvm::LoadInst *load =
      b.CreateAlignedLoad(constant->getType(), words, llvm::Align(bits / 8));
  load->setMetadata(llvm::LLVMContext::MD_invariant_load,
                    llvm::MDNode::get(function.getContext(), {}));
  reading = load;
  return reading;
}

void Readings::replaceOperands(llvm::Instruction &instruction) {
  if (readsMemory(instruction))
    for (llvm::Use &operand : instruction.operands())
      if (isKept(operand, bits))
        operand.set(read(llvm::cast<llvm::Constant>(operand)));
}

void refold::keepConstantsInMemory(llvm::Module &module, unsigned bits) {
  for (llvm::Function &function : module) {
    if (function.isDeclaration())
      continue;
    llvm::DominatorTree tree(function);
    llvm::LoopInfo loops(tree);
    Readings readings(function, bits);
    for (llvm::BasicBlock &block : function)
      if (loops.getLoopFor(&block))
        for (llvm::Instruction &instruction : block)
          readings.replaceOperands(instruction);
  }
}
