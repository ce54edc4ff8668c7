// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "KernelCache.h"

#include "mlir/IR/BuiltinDialect.h"
#include "refold/Support/BuildId.h"
#include "llvm/Support/raw_ostream.h"
#include <cstring>

using namespace refold;

static constexpr uint32_t kMostPhases = 1024;

/// Every fact, so that a new one does not compile before it stands here; but
/// for those that only tell how long a kernel takes.
static void print(llvm::raw_ostream &os, const TargetFacts &facts) {
  [[maybe_unused]] const auto &[vectorBits, vectorRegisters, l1Bytes, l2Bytes,
                                hasCompress, addsPairs, l3Bytes, cores,
                                hasByteDots, addsHalfWords, gathersWords,
                                masksAreFree, followsRows, asksIntoFirst,
                                asksInOrder, asksTwice, asksFarAhead,
                                beginsNextRow, sharesPorts, addsApart,
                                mostRowsByPanel, multipliesTiles] = facts;
  os << vectorBits << ' ' << vectorRegisters << ' ' << l1Bytes << ' ' << l2Bytes
     << ' ' << hasCompress << ' ' << addsPairs << ' ' << l3Bytes << ' ' << cores
     << ' ' << hasByteDots << ' ' << addsHalfWords << ' ' << gathersWords << ' '
     << masksAreFree << ' ' << followsRows << ' ' << asksIntoFirst << ' '
     << asksInOrder << ' ' << asksTwice << ' ' << asksFarAhead << ' '
     << beginsNextRow << ' ' << addsApart << ' ' << mostRowsByPanel << ' '
     << multipliesTiles;
}

/// Of this compiler and the two libraries that its code comes from.
static const std::string &compilerId() {
  static const std::string id = [] {
    std::string mlir = buildIdOf(
        {mlir::TypeID::get<mlir::BuiltinDialect>().getAsOpaquePointer()});
    bool isKnown = !mlir.empty() && !buildId().empty();
    return isKnown ? buildId() + "-" + mlir : "";
  }();
  return id;
}

std::string refold::kernelKey(const KernelSource &source,
                              const CpuTarget &target) {
  const std::string &compiler = compilerId();
  if (compiler.empty())
    return "";
  std::string key;
  llvm::raw_string_ostream os(key);
  os << "kernel\n"
     << compiler << '\n'
     << target.cpuName << '\n'
     << target.features << '\n'
     << int(target.instructionSet) << ' ';
  print(os, target.facts);
  os << '\n' << source.text;
  return key;
}

/// The head of a kept kernel: numbers of 32 bits, then the operands.
namespace {
struct Head {
  uint32_t phases = 0, sharesOnlyPanels = 0, packedOperands = 0;
};
} // namespace

std::string refold::packKernel(const LoweredKernel &lowered,
                               llvm::StringRef object) {
  Head head{lowered.phases, lowered.sharesOnlyPanels,
            uint32_t(lowered.packedOperands.size())};
  std::string bytes(reinterpret_cast<const char *>(&head), sizeof(head));
  for (uint32_t operand : lowered.packedOperands)
    bytes.append(reinterpret_cast<const char *>(&operand), sizeof(operand));
  return bytes + object.str();
}

std::optional<StoredKernel> refold::unpackKernel(llvm::StringRef bytes) {
  StoredKernel kernel;
  Head head;
  if (bytes.size() < sizeof(head))
    return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof(head));
  bytes = bytes.drop_front(sizeof(head));
  if (head.phases > kMostPhases || head.sharesOnlyPanels > 1 ||
      head.packedOperands > head.phases ||
      bytes.size() < head.packedOperands * sizeof(uint32_t))
    return std::nullopt;
  kernel.lowered.phases = head.phases;
  kernel.lowered.sharesOnlyPanels = head.sharesOnlyPanels;
  for (uint32_t i = 0; i < head.packedOperands; ++i) {
    uint32_t operand;
    std::memcpy(&operand, bytes.data(), sizeof(operand));
    kernel.lowered.packedOperands.push_back(operand);
    bytes = bytes.drop_front(sizeof(operand));
  }
  // A copy: what reads objects wants them aligned.
  kernel.object = llvm::MemoryBuffer::getMemBufferCopy(bytes, "kernel");
  return kernel;
}
