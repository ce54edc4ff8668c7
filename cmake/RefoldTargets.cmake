# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# How the project's targets are declared.
#
#   refold_library(Name SOURCES a.cpp b.cpp LINKS Refold::Other [MLIR])
#
# makes the static library RefoldName with the alias Refold::Name. MLIR says that
# its sources use MLIR or LLVM headers: it then links libMLIR and libLLVM (the
# shared ones, never a mix with the archives) and reads the headers from one
# precompiled file, since parsing them is most of the compile time.

function(refold_library name)
  cmake_parse_arguments(ARG "MLIR" "" "SOURCES;LINKS" ${ARGN})
  add_library(Refold${name} STATIC ${ARG_SOURCES})
  add_library(Refold::${name} ALIAS Refold${name})
  target_include_directories(Refold${name} PUBLIC "${PROJECT_SOURCE_DIR}/include"
                                                  "${PROJECT_BINARY_DIR}/include")
  target_link_libraries(Refold${name} PUBLIC ${ARG_LINKS})
  if(ARG_MLIR)
    refold_use_mlir(Refold${name})
  endif()
endfunction()

function(refold_use_mlir target)
  target_include_directories(${target} SYSTEM PUBLIC ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
  target_compile_options(${target} PUBLIC ${REFOLD_LLVM_DEFINITIONS})
  target_link_libraries(${target} PUBLIC MLIR LLVM)
  add_dependencies(${target} RefoldIncGen)
  if(NOT target STREQUAL "RefoldPrecompiled")
    target_precompile_headers(${target} REUSE_FROM RefoldPrecompiled)
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    # The precompiled header is made for libraries; -fPIE would not match it.
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
endfunction()

#   refold_tool(name SOURCES main.cpp LINKS Refold::X [MLIR])   -> bin/name
function(refold_tool name)
  cmake_parse_arguments(ARG "MLIR" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINKS})
  if(ARG_MLIR)
    refold_use_mlir(${name})
  endif()
endfunction()

#   refold_unittest(Name SOURCES a.cpp LINKS Refold::X [MLIR])  -> bin/NameTests
function(refold_unittest name)
  cmake_parse_arguments(ARG "MLIR" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name}Tests ${ARG_SOURCES})
  target_link_libraries(${name}Tests PRIVATE ${ARG_LINKS} GTest::gmock GTest::gtest_main)
  if(ARG_MLIR)
    refold_use_mlir(${name}Tests)
  endif()
  set_property(GLOBAL APPEND PROPERTY REFOLD_UNIT_TESTS ${name}Tests)
  add_test(NAME ${name} COMMAND ${name}Tests)
endfunction()
