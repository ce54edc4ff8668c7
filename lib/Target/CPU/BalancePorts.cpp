// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A Zen 4 begins one multiplication and one addition of 512 bits in a cycle.
// What rounds, compares and scales takes the ports of additions: of 2^x beside
// its pivot, its sum and its maximum 8 are there, 5 at the other ports.
#include "BalancePorts.h"

#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsX86.h"

using namespace refold;

static constexpr unsigned kRegisterBits = 512;

static bool isRegister(const llvm::Type *type) {
  return type->isVectorTy() && type->isFPOrFPVectorTy() &&
         type->getPrimitiveSizeInBits() == kRegisterBits;
}

/// Whether the code generator makes this sum and a product one operation.
static bool isContracted(const llvm::Instruction &sum) {
  return sum.hasAllowContract() &&
         llvm::any_of(sum.operands(), [](const llvm::Use &operand) {
           auto *product = llvm::dyn_cast<llvm::Instruction>(operand.get());
           return product && product->getOpcode() == llvm::Instruction::FMul &&
                  product->hasAllowContract() && product->hasOneUse();
         });
}

namespace {
/// Cycles that a loop takes of the ports of either kind, and its sums.
struct Work {
  unsigned additions = 0, multiplications = 0;
  llvm::SmallVector<llvm::BinaryOperator *> sums;

  void count(llvm::Instruction &instruction);
  void countCall(const llvm::CallInst &call);
};
} // namespace

/// Measured on a Zen 4, in cycles: additions, extremes and vrndscaleps 1,
/// vreduceps and vscalefps 2, at the same ports.
void Work::countCall(const llvm::CallInst &call) {
  switch (call.getIntrinsicID()) {
  case llvm::Intrinsic::fma:
  case llvm::Intrinsic::fmuladd:
    ++multiplications;
    return;
  case llvm::Intrinsic::x86_avx512_add_ps_512:
  case llvm::Intrinsic::x86_avx512_max_ps_512:
  case llvm::Intrinsic::x86_avx512_min_ps_512:
  case llvm::Intrinsic::x86_avx512_max_pd_512:
  case llvm::Intrinsic::x86_avx512_min_pd_512:
  case llvm::Intrinsic::x86_avx512_mask_rndscale_ps_512:
  case llvm::Intrinsic::x86_avx512_mask_rndscale_pd_512:
  case llvm::Intrinsic::x86_avx512_mask_range_ps_512:
  case llvm::Intrinsic::x86_avx512_mask_range_pd_512:
  case llvm::Intrinsic::maxnum:
  case llvm::Intrinsic::minnum:
  case llvm::Intrinsic::roundeven:
  case llvm::Intrinsic::floor:
  case llvm::Intrinsic::ceil:
  case llvm::Intrinsic::trunc:
    ++additions;
    return;
  case llvm::Intrinsic::x86_avx512_mask_reduce_ps_512:
  case llvm::Intrinsic::x86_avx512_mask_reduce_pd_512:
  case llvm::Intrinsic::x86_avx512_mask_scalef_ps_512:
  case llvm::Intrinsic::x86_avx512_mask_scalef_pd_512:
    additions += 2;
    return;
  default:
    return;
  }
}

void Work::count(llvm::Instruction &instruction) {
  if (auto *call = llvm::dyn_cast<llvm::CallInst>(&instruction)) {
    if (isRegister(call->getType()))
      countCall(*call);
    return;
  }
  switch (instruction.getOpcode()) {
  case llvm::Instruction::FMul:
    multiplications += isRegister(instruction.getType());
    return;
  case llvm::Instruction::FAdd:
  case llvm::Instruction::FSub:
    // Of a contracted one the product counts.
    if (!isRegister(instruction.getType()) || isContracted(instruction))
      return;
    ++additions;
    sums.push_back(llvm::cast<llvm::BinaryOperator>(&instruction));
    return;
  case llvm::Instruction::FCmp:
    additions += isRegister(instruction.getOperand(0)->getType());
    return;
  default:
    return;
  }
}

/// b * 1 + a, or b * -1 + a: rounded once, as a + b and a - b are, and 0 has
/// the same sign. Rounding that is said with the operation keeps LLVM from
/// making it a sum again; it also keeps the operation from setting flags, of
/// which kernels ask for that of an underflow only, and a sum has none.
static void multiplyByOne(llvm::BinaryOperator &sum) {
  constexpr int32_t kToNearest = 8; // and no exceptions
  llvm::Type *type = sum.getType();
  bool isDouble = type->getScalarType()->isDoubleTy();
  bool isDifference = sum.getOpcode() == llvm::Instruction::FSub;
  llvm::IRBuilder<> b(&sum);
  llvm::Value *one = llvm::ConstantFP::get(type, isDifference ? -1.0 : 1.0);
  llvm::CallInst *fma = b.CreateIntrinsic(
      isDouble ? llvm::Intrinsic::x86_avx512_vfmadd_pd_512
               : llvm::Intrinsic::x86_avx512_vfmadd_ps_512,
      {}, {sum.getOperand(1), one, sum.getOperand(0), b.getInt32(kToNearest)});
  sum.replaceAllUsesWith(fma);
  sum.eraseFromParent();
}

static void balance(llvm::Loop &loop, const llvm::LoopInfo &loops) {
  Work work;
  for (llvm::BasicBlock *block : loop.blocks())
    if (loops.getLoopFor(block) == &loop)
      for (llvm::Instruction &instruction : *block)
        work.count(instruction);
  if (work.additions <= work.multiplications)
    return;
  size_t wanted = (work.additions - work.multiplications) / 2;
  // Every so manieth, so that the steps of an unrolled loop are alike.
  size_t all = work.sums.size(), moved = std::min(wanted, all);
  for (size_t i = 0; i < all; ++i)
    if (i * moved / all != (i + 1) * moved / all)
      multiplyByOne(*work.sums[i]);
}

void refold::balancePorts(llvm::Function &function) {
  llvm::DominatorTree tree(function);
  llvm::LoopInfo loops(tree);
  for (llvm::Loop *loop : loops.getLoopsInPreorder())
    balance(*loop, loops);
}
