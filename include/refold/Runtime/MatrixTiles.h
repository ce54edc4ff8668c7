// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_RUNTIME_MATRIXTILES_H
#define REFOLD_RUNTIME_MATRIXTILES_H

namespace refold {

/// Whether this process may use registers of matrix tiles (Intel's AMX: tiles,
/// products of bytes and of pairs of bf16): the CPU has them, and the kernel
/// gives them to a process that asks. The first call asks; the answer holds for
/// all threads, those that are there too.
bool mayUseMatrixTiles();

} // namespace refold

#endif // REFOLD_RUNTIME_MATRIXTILES_H
