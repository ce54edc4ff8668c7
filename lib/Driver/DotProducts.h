// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_DRIVER_DOTPRODUCTS_H
#define REFOLD_LIB_DRIVER_DOTPRODUCTS_H

namespace refold {

/// Dot products of narrow types, which one machine has faster than its fma,
/// another slower, and a third not at all: some microseconds of nothing else.
/// `run...` requires `has...`.
bool hasBf16Dots();
bool hasInt8Dots();
void runBf16Dots();
void runInt8Dots();
/// The same in matrix tiles, where `mayUseMatrixTiles`.
void runBf16Tiles();
void runInt8Tiles();

/// Operations of one call.
constexpr double kDotRepeats = 4000.0;
constexpr double kBf16DotFlops = kDotRepeats * 12.0 * 16.0 * 2.0 * 2.0;
constexpr double kInt8DotFlops = kDotRepeats * 12.0 * 16.0 * 4.0 * 2.0;
constexpr double kBf16TileFlops = kDotRepeats * 4.0 * 16.0 * 16.0 * 32.0 * 2.0;
constexpr double kInt8TileFlops = kDotRepeats * 4.0 * 16.0 * 16.0 * 64.0 * 2.0;

} // namespace refold

#endif // REFOLD_LIB_DRIVER_DOTPRODUCTS_H
