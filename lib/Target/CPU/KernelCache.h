// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_TARGET_CPU_KERNELCACHE_H
#define REFOLD_LIB_TARGET_CPU_KERNELCACHE_H

#include "refold/Conversion/CascadeToVector.h"
#include "refold/Target/CPU/ObjectCode.h"
#include <optional>

namespace refold {

/// Everything that the code of a kernel depends on: its text, the machine, and
/// the compiler. Empty where the compiler cannot be told from others.
std::string kernelKey(const KernelSource &source, const CpuTarget &target);

/// A kernel as it is kept.
struct StoredKernel {
  LoweredKernel lowered;
  std::unique_ptr<llvm::MemoryBuffer> object;
};

std::string packKernel(const LoweredKernel &lowered, llvm::StringRef object);
/// Nothing where the bytes are none that `packKernel` made.
std::optional<StoredKernel> unpackKernel(llvm::StringRef bytes);

} // namespace refold

#endif // REFOLD_LIB_TARGET_CPU_KERNELCACHE_H
