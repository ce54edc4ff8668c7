// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Anchors the precompiled header; see cmake/RefoldTargets.cmake.
