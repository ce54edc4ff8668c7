// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_FUZZ_RANDOM_MACHINE_H
#define REFOLD_FUZZ_RANDOM_MACHINE_H

#include "mlir/IR/BuiltinOps.h"
#include "refold/Schedule/TargetFacts.h"
#include <string>

namespace refold::fuzz {

/// A machine that is not at hand, of instructions that this one has: registers,
/// caches and what its processor does well are others, so that paths which
/// depend on them are taken by short rows and on every machine.
void makeOtherMachine(TargetFacts &facts, uint64_t seed);

/// Gives about half of the cascades schedules with some fields of their own,
/// of those that a program may state. Returns what was set, as text.
std::string setOtherSchedules(mlir::ModuleOp module, const TargetFacts &facts,
                              uint64_t seed);

/// What `makeOtherMachine` has changed, as text.
std::string describe(const TargetFacts &facts);

} // namespace refold::fuzz

#endif // REFOLD_FUZZ_RANDOM_MACHINE_H
