# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Compiler settings and the packages that every target may use.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/archive")
set(CMAKE_CXX_FLAGS_DEV "-O1")
set(CMAKE_C_FLAGS_DEV "-O1")

find_package(MLIR 19.1.7 EXACT REQUIRED CONFIG)
list(APPEND CMAKE_MODULE_PATH "${MLIR_CMAKE_DIR}" "${LLVM_CMAKE_DIR}")
include(TableGen)
include(AddLLVM)
include(AddMLIR)
separate_arguments(REFOLD_LLVM_DEFINITIONS NATIVE_COMMAND "${LLVM_DEFINITIONS}")
find_package(Threads REQUIRED)

add_compile_options(-fuse-ld=lld -Wall -Wextra -Wno-unused-parameter
                    -Wno-unused-command-line-argument)
add_link_options(-fuse-ld=lld)
if(REFOLD_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined
                      -fno-sanitize=vptr,function -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=address,undefined)
endif()
if(REFOLD_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
