# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The compiler, and where its LLVM lies: Debian keeps version 19 beside the default one.
# A toolchain file, since a compiler given as a cache variable makes every second
# configure start from an empty cache.
set(CMAKE_C_COMPILER clang-19)
set(CMAKE_CXX_COMPILER clang++-19)
execute_process(COMMAND llvm-config-19 --prefix OUTPUT_VARIABLE refold_llvm_prefix
                OUTPUT_STRIP_TRAILING_WHITESPACE)
list(APPEND CMAKE_PREFIX_PATH "${refold_llvm_prefix}")
