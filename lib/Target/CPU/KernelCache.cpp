// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "KernelCache.h"

#include "mlir/IR/BuiltinDialect.h"
#include "refold/Support/BuildId.h"
#include "llvm/Support/raw_ostream.h"
#include <cstring>

using namespace refold;

static constexpr uint32_t kMostPhases = 1024;

/// Every fact, so that a new one does not compile before it stands here.
static void print(llvm::raw_ostream &os, const TargetFacts &facts) {
  const auto &[vectorBits, vectorRegisters, l1Bytes, l2Bytes, hasCompress,
               addsPairs, l3Bytes] = facts;
  os << vectorBits << ' ' << vectorRegisters << ' ' << l1Bytes << ' ' << l2Bytes
     << ' ' << hasCompress << ' ' << addsPairs << ' ' << l3Bytes;
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

std::string refold::packKernel(uint32_t phases, llvm::StringRef object) {
  std::string bytes(sizeof(phases), 0);
  std::memcpy(bytes.data(), &phases, sizeof(phases));
  return bytes + object.str();
}

std::optional<StoredKernel> refold::unpackKernel(llvm::StringRef bytes) {
  StoredKernel kernel;
  if (bytes.size() < sizeof(kernel.phases))
    return std::nullopt;
  std::memcpy(&kernel.phases, bytes.data(), sizeof(kernel.phases));
  if (kernel.phases > kMostPhases)
    return std::nullopt;
  // A copy: what reads objects wants them aligned.
  kernel.object = llvm::MemoryBuffer::getMemBufferCopy(
      bytes.drop_front(sizeof(kernel.phases)), "kernel");
  return kernel;
}
