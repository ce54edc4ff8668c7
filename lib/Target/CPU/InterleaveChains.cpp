// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An exponential is a chain of some fifteen operations, each of which waits for
// the one before. A processor that looks ahead finds the next exponential, but
// one that comes as a whole behind the first stands further ahead than its
// scheduler is long. Zen 4, AVX2, sums of 2^x in the first cache: one after the
// other 2.8 G a second, two at a time 3.4, four 3.6, five 3.9.
#include "InterleaveChains.h"

#include "llvm/Analysis/AliasAnalysis.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/BasicAliasAnalysis.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/MemoryLocation.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IntrinsicInst.h"

using namespace refold;

/// A chain has as many steps of arithmetic; products of matrices have two.
static constexpr unsigned kChainLength = 9;
/// So many alternate: of more the values find no registers.
static constexpr unsigned kChainsOfGroup = 4;
/// Every two accesses are asked whether they may meet: of more a block stays as
/// it is.
static constexpr size_t kAccesses = 512;

static bool isStep(const llvm::Instruction &instruction) {
  if (!instruction.getType()->isFPOrFPVectorTy())
    return false;
  if (auto *call = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction))
    return call->getIntrinsicID() == llvm::Intrinsic::fma ||
           call->getIntrinsicID() == llvm::Intrinsic::fmuladd;
  return instruction.isBinaryOp();
}

static bool isPrefetch(const llvm::Instruction &instruction) {
  auto *call = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction);
  return call && call->getIntrinsicID() == llvm::Intrinsic::prefetch;
}

namespace {
/// One block between its phis and its end.
class Arrangement {
public:
  Arrangement(llvm::BasicBlock &block, llvm::AAResults &aliases)
      : block(block), aliases(aliases) {}

  /// False where it stays as it is.
  bool arrange();
  bool stores() const; ///< more than numbers
  bool hasChain() const { return isChained; }

private:
  bool read();
  bool isEnd(const llvm::Instruction &instruction) const;
  unsigned take(llvm::Instruction &end);
  bool keepsMemory() const;

  llvm::BasicBlock &block;
  llvm::AAResults &aliases;
  llvm::SmallVector<llvm::Instruction *> before, after;
  /// Of what has been taken: steps on the longest way to it in its group, and
  /// all operations on that way.
  struct Place {
    unsigned steps = 0, level = 0;
  };
  llvm::DenseMap<llvm::Instruction *, unsigned> positions;
  llvm::DenseMap<llvm::Instruction *, Place> places;
  llvm::SmallVector<llvm::Instruction *> group; ///< in work
  llvm::SmallPtrSet<llvm::Instruction *, 32> ofGroup;
  bool isChained = false;
};
} // namespace

/// False where an instruction does more than compute, load, store and prefetch.
bool Arrangement::read() {
  for (llvm::Instruction &instruction : block) {
    if (llvm::isa<llvm::PHINode>(instruction) || instruction.isTerminator())
      continue;
    bool isSimple = true;
    if (auto *load = llvm::dyn_cast<llvm::LoadInst>(&instruction))
      isSimple = load->isSimple();
    else if (auto *store = llvm::dyn_cast<llvm::StoreInst>(&instruction))
      isSimple = store->isSimple();
    else
      isSimple =
          isPrefetch(instruction) ||
          (!instruction.isEHPad() && !instruction.mayReadOrWriteMemory() &&
           !instruction.mayHaveSideEffects());
    if (!isSimple)
      return false;
    positions[&instruction] = before.size();
    before.push_back(&instruction);
  }
  return true;
}

/// Whether it does something, or leaves a value to another block or turn.
bool Arrangement::isEnd(const llvm::Instruction &instruction) const {
  return llvm::isa<llvm::StoreInst>(instruction) || isPrefetch(instruction) ||
         llvm::any_of(instruction.users(), [&](const llvm::User *user) {
           auto *in = llvm::cast<llvm::Instruction>(user);
           return in->getParent() != &block || llvm::isa<llvm::PHINode>(in) ||
                  in->isTerminator();
         });
}

/// Takes what is needed for `end` and belongs to no group yet. How many long
/// chains that is, by its steps and those of the longest.
unsigned Arrangement::take(llvm::Instruction &end) {
  unsigned longest = 0, steps = 0;
  llvm::SmallVector<std::pair<llvm::Instruction *, bool>> work{{&end, false}};
  llvm::SmallPtrSet<llvm::Instruction *, 32> own;
  while (!work.empty()) {
    auto [in, isReady] = work.pop_back_val();
    if (!positions.count(in) || places.count(in))
      continue;
    if (!isReady) {
      work.push_back({in, true});
      for (llvm::Use &operand : in->operands())
        if (auto *value = llvm::dyn_cast<llvm::Instruction>(operand.get()))
          work.push_back({value, false});
      continue;
    }
    Place place;
    for (llvm::Use &operand : in->operands()) {
      auto *value = llvm::dyn_cast<llvm::Instruction>(operand.get());
      if (!value || !positions.count(value))
        continue;
      const Place &of = places.at(value);
      if (ofGroup.contains(value))
        place.level = std::max(place.level, of.level + 1);
      if (own.contains(value))
        place.steps = std::max(place.steps, of.steps);
    }
    place.steps += isStep(*in);
    steps += isStep(*in);
    longest = std::max(longest, place.steps);
    places[in] = place;
    own.insert(in);
    ofGroup.insert(in);
    group.push_back(in);
  }
  return longest < kChainLength ? 0 : (steps + longest / 2) / longest;
}

/// Do accesses of which one writes keep their order where they may meet?
bool Arrangement::keepsMemory() const {
  llvm::SmallVector<llvm::Instruction *> accesses;
  for (llvm::Instruction *in : after)
    if (llvm::isa<llvm::LoadInst, llvm::StoreInst>(in))
      accesses.push_back(in);
  if (accesses.size() > kAccesses)
    return false;
  for (size_t i = 0; i < accesses.size(); ++i)
    for (size_t j = i + 1; j < accesses.size(); ++j) {
      llvm::Instruction *first = accesses[i], *second = accesses[j];
      bool isMoved = positions.at(first) > positions.at(second);
      bool writes = llvm::isa<llvm::StoreInst>(first) ||
                    llvm::isa<llvm::StoreInst>(second);
      if (isMoved && writes &&
          !aliases.isNoAlias(llvm::MemoryLocation::get(first),
                             llvm::MemoryLocation::get(second)))
        return false;
    }
  return true;
}

bool Arrangement::arrange() {
  if (!read())
    return false;
  unsigned chains = 0;
  // Chains with one end, as of rows whose registers are added in pairs, LLVM
  // arranges well: 64 x 32768, cross-entropy 0.75 ms, and 0.78.
  bool isAny = false, isJoined = false;
  auto close = [&] {
    bool alternates = !isJoined && chains > 1;
    isAny |= alternates;
    llvm::sort(group, [&](llvm::Instruction *a, llvm::Instruction *b) {
      unsigned x = alternates ? places.at(a).level : 0,
               y = alternates ? places.at(b).level : 0;
      return std::pair(x, positions.at(a)) < std::pair(y, positions.at(b));
    });
    after.append(group);
    group.clear();
    ofGroup.clear();
    chains = 0;
    isJoined = false;
  };
  for (llvm::Instruction *in : before) {
    if (!isEnd(*in))
      continue;
    unsigned more = take(*in);
    isJoined |= more > 1;
    chains += more;
    isChained |= chains > 0;
    if (chains >= kChainsOfGroup)
      close();
  }
  close();
  // What nothing needs has not been taken.
  if (!isAny || after.size() != before.size() || !keepsMemory())
    return false;
  for (llvm::Instruction *in : after)
    in->moveBefore(block.getTerminator());
  return true;
}

bool Arrangement::stores() const {
  return llvm::any_of(before, [](llvm::Instruction *in) {
    auto *store = llvm::dyn_cast<llvm::StoreInst>(in);
    return store && store->getValueOperand()->getType()->isVectorTy();
  });
}

/// A loop that adds products to half of the registers.
static bool isTile(const llvm::BasicBlock &block, int64_t registers) {
  auto isSum = [](const llvm::PHINode &phi) {
    return phi.getType()->isVectorTy() &&
           llvm::any_of(phi.incoming_values(), [](const llvm::Use &value) {
             auto *call = llvm::dyn_cast<llvm::IntrinsicInst>(value.get());
             return call && isStep(*call);
           });
  };
  return llvm::count_if(block.phis(), isSum) >= registers / 2;
}

// LLVM's scheduler takes the chains apart again in part. Zen 4, 512 x 4096, one
// thread, ms before, with it and without: logsumexp 0.86, 0.92, 0.78, KL
// divergence 2.1, 1.9, 1.7, softmax 1.10, 1.09, 1.14; attention 2 x 2048 x 64
// 30.8, 30.4, 32.0.
bool refold::interleaveChains(llvm::Module &module, int64_t registers) {
  unsigned deepest = 0;
  bool reduces = false, hasTile = false;
  llvm::TargetLibraryInfoImpl library(llvm::Triple(module.getTargetTriple()));
  for (llvm::Function &function : module) {
    if (function.isDeclaration())
      continue;
    llvm::DominatorTree tree(function);
    llvm::LoopInfo loops(tree);
    llvm::TargetLibraryInfo functions(library, &function);
    llvm::AssumptionCache assumptions(function);
    llvm::BasicAAResult basic(module.getDataLayout(), function, functions,
                              assumptions, &tree);
    llvm::AAResults aliases(functions);
    aliases.addAAResult(basic);
    for (llvm::BasicBlock &block : function) {
      if (!loops.getLoopFor(&block))
        continue;
      Arrangement arrangement(block, aliases);
      if (!arrangement.arrange()) {
        hasTile |= !arrangement.hasChain() && isTile(block, registers);
        continue;
      }
      // What ends a row stores its result and hardly counts.
      unsigned depth = loops.getLoopDepth(&block);
      bool isDeeper = depth > deepest;
      if (isDeeper || (depth == deepest && arrangement.stores()))
        reduces = !arrangement.stores();
      deepest = std::max(deepest, depth);
    }
  }
  return reduces && !hasTile;
}
