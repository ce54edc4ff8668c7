// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_RUNTIME_SHAPEPLAN_H
#define REFOLD_LIB_RUNTIME_SHAPEPLAN_H

#include "refold/Runtime/ExecutableSpec.h"
#include "refold/Runtime/Product.h"
#include "refold/Runtime/Views.h"
#include "refold/Support/AlignedBuffer.h"
#include "llvm/Support/Error.h"
#include <map>
#include <memory>
#include <variant>
#include <vector>

namespace refold {

/// A kernel call whose sizes are known. `words` lacks only addresses: those of
/// `addresses`, the two workspaces (`workspaceAt`), and an item range.
struct KernelCall {
  struct Address {
    unsigned word; ///< base; the aligned base follows
    unsigned buffer;
    int64_t byteOffset;
  };
  const Kernel *kernel = nullptr;
  llvm::SmallVector<int64_t, 0> words;
  std::vector<Address> addresses;
  unsigned sharedAt = 0, privateAt = 0, rangeAt = 0; ///< in words
  int64_t sharedBytes = 0, privateBytes = 0;
  std::vector<int64_t> items;       ///< one a phase
  std::vector<int64_t> itemsAtOnce; ///< of them, those of one round
  unsigned firstPhase = 0;          ///< those before it have run
  char *panels = nullptr; ///< what they left, instead of a shared workspace
  bool isSmall = false;   ///< not worth waking other threads
};

struct ProductCall {
  std::unique_ptr<ProductPlan> plan;
  unsigned lhs = 0, rhs = 0, result = 0;            ///< buffers
  std::optional<std::pair<unsigned, int64_t>> bias; ///< buffer, byte offset
  bool isSmall = false;
};

struct CopyCall {
  View from, to;
};

struct AssertCall {
  View flags;
  const std::string *message = nullptr;
};

/// Constant operands of one step in the panels that its kernel reads, made once
/// for all shapes.
struct PanelStore {
  std::map<std::vector<int64_t>, AlignedBuffer> buffers; ///< by `panelKey`
};

using Call = std::variant<KernelCall, ProductCall, CopyCall, AssertCall>;

/// Everything about a run that follows from the extents of the inputs.
struct ShapePlan {
  std::vector<Call> calls;
  std::vector<size_t> stepOfCall;    ///< number in the spec
  std::vector<int64_t> arenaOffsets; ///< one a buffer; -1: not in the arena
  int64_t arenaBytes = 0;
  int64_t sharedBytes = 0, privateBytes = 0;
  size_t maxWords = 0;
  std::vector<llvm::SmallVector<int64_t, 4>> outputShapes;
};

/// The steps that are planned, and what their buffers are by then.
struct PlannedSteps {
  /// As the spec has them, or constants once they were computed.
  llvm::ArrayRef<BufferSpec> buffers;
  const std::vector<bool> &isOnce; ///< one a step
  bool areOnce = false;            ///< these ones; else the others
  const std::vector<bool> &isKept; ///< one a buffer: lies in no arena

  bool have(size_t step) const { return isOnce[step] == areOnce; }
};

/// Plans a run. `weights` and `panels` have one entry a step and outlive the
/// plan; so does `spec`. Fails where a size overflows, is negative, an
/// assertion about sizes does not hold or a product has no implementation.
llvm::Expected<std::unique_ptr<ShapePlan>>
planShape(const ExecutableSpec &spec, const PlannedSteps &steps,
          llvm::ArrayRef<int64_t> symbols, std::vector<PackedWeights> &weights,
          std::vector<PanelStore> &panels);

} // namespace refold

#endif // REFOLD_LIB_RUNTIME_SHAPEPLAN_H
