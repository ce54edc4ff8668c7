// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_RUNTIME_INSTRUCTIONSET_H
#define REFOLD_RUNTIME_INSTRUCTIONSET_H

#include <cstdint>

namespace refold {

/// The three forms that code is generated in. Baseline is x86-64-v2 (SSE4.2, no
/// FMA); AVX2 has FMA and F16C too; AVX512 has F, BW, CD, DQ and VL.
enum class InstructionSet : uint8_t { Baseline, AVX2, AVX512 };

} // namespace refold

#endif // REFOLD_RUNTIME_INSTRUCTIONSET_H
