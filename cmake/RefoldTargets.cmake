# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# How the project's targets are declared.
#
#   refold_library(Name SOURCES a.cpp b.cpp LINKS Refold::Other [MLIR] [ALONE b.cpp])
#
# makes the static library RefoldName with the alias Refold::Name. MLIR says that
# its sources use MLIR or LLVM headers: what is linked of it then has libMLIR and
# libLLVM (the shared ones or the archives, never a mix), and reads the headers
# from one precompiled file, since parsing them is most of the compile time.
#
# Six sources are compiled as one (the presets' CMAKE_UNITY_BUILD), which takes
# half of the time: headers are parsed, and what they have inline is compiled,
# once for six. Names of one file that stand in another of its library too are
# therefore said to be wrong; ALONE names sources that are compiled by
# themselves, ALONE ALL says it of all: tests that plant defects name them alike.

# The shared libraries have half a million addresses to be relocated and 39
# thousand names to be found at every start: 35 ms, where the archives take 10.
# Tests are many and linked with the shared ones, bin/refold with the archives
# unless the installation lacks them. Its addresses are fixed for the same reason.
add_library(RefoldLLVMShared INTERFACE)
target_link_libraries(RefoldLLVMShared INTERFACE MLIR LLVM)
file(GLOB REFOLD_LLVM_ARCHIVES "${LLVM_LIBRARY_DIR}/libMLIR*.a" "${LLVM_LIBRARY_DIR}/libLLVM*.a")
list(FILTER REFOLD_LLVM_ARCHIVES EXCLUDE REGEX "Test|CAPI")
find_library(REFOLD_ZSTD zstd)
if(REFOLD_LLVM_ARCHIVES MATCHES "libMLIRIR.a" AND REFOLD_LLVM_ARCHIVES MATCHES "libLLVMCore.a" AND REFOLD_ZSTD)
  set(REFOLD_HAS_ARCHIVES ON)
  add_library(RefoldLLVMArchives INTERFACE)
  target_link_libraries(RefoldLLVMArchives INTERFACE ${REFOLD_LLVM_ARCHIVES} ZLIB::ZLIB ${REFOLD_ZSTD} ${CMAKE_DL_LIBS})
else()
  message(STATUS "no archives of LLVM and MLIR, or no zstd: bin/refold starts 30 ms later")
endif()
# What a target links to use LLVM, with or without MLIR: chosen by the executable.
add_library(RefoldLLVM INTERFACE)
add_library(Refold::LLVM ALIAS RefoldLLVM)
target_link_libraries(RefoldLLVM INTERFACE
  $<IF:$<BOOL:$<TARGET_PROPERTY:REFOLD_ARCHIVES>>,RefoldLLVMArchives,RefoldLLVMShared>)

function(refold_compile_alone target)
  if("${ARGN}" STREQUAL "ALL")
    set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  elseif(ARGN)
    set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

function(refold_library name)
  cmake_parse_arguments(ARG "MLIR" "" "SOURCES;LINKS;ALONE" ${ARGN})
  add_library(Refold${name} STATIC ${ARG_SOURCES})
  refold_compile_alone(Refold${name} ${ARG_ALONE})
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
  target_link_libraries(${target} PUBLIC Refold::LLVM)
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

#   refold_tool(name SOURCES main.cpp LINKS Refold::X [MLIR [ARCHIVES]] [ALONE ALL])   -> bin/name
function(refold_tool name)
  cmake_parse_arguments(ARG "MLIR;ARCHIVES" "" "SOURCES;LINKS;ALONE" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  refold_compile_alone(${name} ${ARG_ALONE})
  target_link_libraries(${name} PRIVATE ${ARG_LINKS})
  if(ARG_MLIR)
    refold_use_mlir(${name})
  endif()
  if(ARG_ARCHIVES AND REFOLD_HAS_ARCHIVES AND NOT REFOLD_SANITIZE AND NOT REFOLD_FUZZ)
    set_target_properties(${name} PROPERTIES REFOLD_ARCHIVES ON)
    target_link_options(${name} PRIVATE -no-pie -Wl,--gc-sections)
  endif()
endfunction()

#   refold_unittest(Name SOURCES a.cpp LINKS Refold::X [MLIR] [ALONE a.cpp])  -> bin/NameTests
function(refold_unittest name)
  cmake_parse_arguments(ARG "MLIR" "" "SOURCES;LINKS;ALONE" ${ARGN})
  add_executable(${name}Tests ${ARG_SOURCES})
  refold_compile_alone(${name}Tests ${ARG_ALONE})
  target_link_libraries(${name}Tests PRIVATE ${ARG_LINKS} GTest::gmock GTest::gtest_main)
  if(ARG_MLIR)
    refold_use_mlir(${name}Tests)
  endif()
  set_property(GLOBAL APPEND PROPERTY REFOLD_UNIT_TESTS ${name}Tests)
  add_test(NAME ${name} COMMAND ${name}Tests)
endfunction()
