// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel is mostly one function: the walks of its rows, of which each item
// takes one, and the nests of its tiles. What a block dominates is entered
// there only, and so can be a function.
#include "SplitModule.h"

#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Instructions.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Utils/CodeExtractor.h"

using namespace refold;

/// Code generation takes some 20 us an instruction; to split a module and to
/// join two objects takes 4 ms.
constexpr size_t kLeastOfModule = 1500;
/// What is smaller than so many parts of a module is not worth a call.
constexpr size_t kParts = 8;
/// Loops around a part: that of the items, and that of tiles or of rows. A call
/// takes as long as some thirty instructions.
constexpr unsigned kMostLoops = 2;

static size_t sizeOf(const llvm::Function &function) {
  size_t size = 0;
  for (const llvm::BasicBlock &block : function)
    size += block.size();
  return size;
}

namespace {
/// A function, or what `first` dominates in one.
struct Part {
  llvm::Function *function = nullptr;
  llvm::BasicBlock *first = nullptr;
  size_t size = 0;
};
} // namespace

/// Adds what each block of a function dominates, and the function; returns its
/// size.
static size_t addDominated(llvm::DomTreeNode *node, std::vector<Part> &parts) {
  llvm::BasicBlock *block = node->getBlock();
  size_t size = block->size();
  for (llvm::DomTreeNode *child : *node)
    size += addDominated(child, parts);
  parts.push_back(
      {block->getParent(), node->getIDom() ? block : nullptr, size});
  return size;
}

/// Parts of so much of a module, at least: those that are nearest to `wanted`
/// first, of equal ones the first.
static std::vector<Part> partsNear(llvm::Module &module, size_t wanted,
                                   size_t least) {
  std::vector<Part> parts;
  for (llvm::Function &function : module)
    if (!function.isDeclaration()) {
      llvm::DominatorTree tree(function);
      addDominated(tree.getRootNode(), parts);
    }
  llvm::erase_if(parts, [&](const Part &part) {
    return part.size < least || part.size > wanted + least;
  });
  std::vector<std::pair<size_t, size_t>> order;
  for (auto [i, part] : llvm::enumerate(parts))
    order.push_back(
        {part.size > wanted ? part.size - wanted : wanted - part.size, i});
  llvm::sort(order);
  std::vector<Part> sorted;
  for (auto [apart, i] : order)
    sorted.push_back(parts[i]);
  return sorted;
}

/// Whether the blocks are left to one block only, and few loops lie around.
static bool mayBeFunction(llvm::ArrayRef<llvm::BasicBlock *> blocks,
                          const llvm::LoopInfo &loops) {
  llvm::SmallPtrSet<llvm::BasicBlock *, 32> inside(blocks.begin(),
                                                   blocks.end());
  llvm::SmallPtrSet<llvm::BasicBlock *, 2> next;
  for (llvm::BasicBlock *block : blocks) {
    if (llvm::isa<llvm::ReturnInst>(block->getTerminator()))
      return false;
    for (llvm::BasicBlock *other : llvm::successors(block))
      if (!inside.contains(other))
        next.insert(other);
  }
  const llvm::Loop *loop = loops.getLoopFor(blocks.front());
  while (loop && inside.contains(loop->getHeader()))
    loop = loop->getParentLoop();
  return next.size() == 1 && (!loop || loop->getLoopDepth() <= kMostLoops);
}

/// A call wants all registers: those of what lies beside it in a loop go to the
/// stack where the call is, not where they are in use.
static void makeCallsCold(llvm::Function &function) {
  for (llvm::User *user : function.users())
    if (auto *call = llvm::dyn_cast<llvm::CallInst>(user))
      call->addFnAttr(llvm::Attribute::Cold);
}

/// Makes a function of a part; null where that cannot be.
static llvm::Function *outline(const Part &part) {
  if (!part.first)
    return part.function;
  llvm::DominatorTree tree(*part.function);
  llvm::LoopInfo loops(tree);
  llvm::SmallVector<llvm::BasicBlock *> blocks;
  tree.getDescendants(part.first, blocks);
  if (!mayBeFunction(blocks, loops))
    return nullptr;
  llvm::CodeExtractor extractor(
      blocks, &tree, /*AggregateArgs=*/false, /*BFI=*/nullptr, /*BPI=*/nullptr,
      /*AC=*/nullptr, /*AllowVarArgs=*/false, /*AllowAlloca=*/false,
      /*AllocationBlock=*/nullptr, "part");
  if (!extractor.isEligible())
    return nullptr;
  llvm::Function *made = extractor.extractCodeRegion(
      llvm::CodeExtractorAnalysisCache(*part.function));
  if (made)
    makeCallsCold(*made);
  return made;
}

/// Gives the other module the definitions and this one declarations.
static std::unique_ptr<llvm::Module>
moveFunctions(llvm::Module &module, llvm::ArrayRef<llvm::Function *> moved) {
  for (llvm::Function &function : module)
    if (function.hasLocalLinkage()) {
      function.setLinkage(llvm::GlobalValue::ExternalLinkage);
      function.setVisibility(llvm::GlobalValue::HiddenVisibility);
      function.setDSOLocal(true);
    }
  llvm::ValueToValueMapTy map;
  auto other = llvm::CloneModule(module, map, [&](const llvm::GlobalValue *v) {
    return llvm::is_contained(moved, v) || llvm::isa<llvm::GlobalVariable>(v);
  });
  for (llvm::Function *function : moved)
    function->deleteBody();
  return other;
}

std::unique_ptr<llvm::Module> refold::splitOffHalf(llvm::Module &module) {
  size_t total = 0;
  for (llvm::Function &function : module)
    total += sizeOf(function);
  // Both modules have what is constant.
  bool hasConstants =
      llvm::all_of(module.globals(), [](const llvm::GlobalVariable &v) {
        return v.isConstant();
      });
  if (total < kLeastOfModule || !hasConstants)
    return nullptr;
  size_t least = total / kParts, wanted = total / 2;
  llvm::SmallVector<llvm::Function *> moved;
  while (wanted >= least) {
    llvm::Function *next = nullptr;
    size_t size = 0;
    for (const Part &part : partsNear(module, wanted, least)) {
      if (llvm::is_contained(moved, part.function))
        continue;
      size = part.size;
      if ((next = outline(part)))
        break;
    }
    if (!next)
      break;
    moved.push_back(next);
    wanted -= std::min(wanted, size);
  }
  return moved.empty() ? nullptr : moveFunctions(module, moved);
}
