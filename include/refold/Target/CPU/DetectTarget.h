// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_TARGET_CPU_DETECTTARGET_H
#define REFOLD_TARGET_CPU_DETECTTARGET_H

#include "refold/Runtime/InstructionSet.h"
#include "refold/Schedule/TargetFacts.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace refold {

/// "avx512", "avx2", "baseline".
llvm::StringRef nameOf(InstructionSet instructionSet);

/// A machine as code is generated for it.
struct CpuTarget {
  InstructionSet instructionSet = InstructionSet::Baseline;
  TargetFacts facts;    ///< what schedules and lowerings ask
  std::string cpuName;  ///< as LLVM calls it
  std::string features; ///< LLVM's "+avx2,+fma,..."

  bool hasFma() const { return instructionSet != InstructionSet::Baseline; }
  /// "cpu-avx512"
  std::string name() const { return "cpu-" + nameOf(instructionSet).str(); }
};

/// The best form that this machine runs, or the one that `wanted` names. An
/// empty `wanted` means the environment's REFOLD_CPU, if it is set. Refuses an
/// unknown name and a form that the machine lacks.
llvm::Expected<CpuTarget> detectTarget(llvm::StringRef wanted = "");

/// Bytes of the cache for data of level 1, 2 or 3 that a core reaches; 0 if
/// nobody knows. As the kernel lists it: the C library multiplies a cache by
/// the sockets that a virtual machine claims to have (320 MB instead of 32).
int64_t cacheBytes(unsigned level);

/// What of the last cache, of `bytes`, so many cores are taken to have.
int64_t lastCacheOfCores(int64_t bytes, int64_t cores);

} // namespace refold

#endif // REFOLD_TARGET_CPU_DETECTTARGET_H
