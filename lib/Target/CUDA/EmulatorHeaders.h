// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How the host's compiler is called for a kernel that the emulator runs.
#ifndef REFOLD_LIB_TARGET_CUDA_EMULATORHEADERS_H
#define REFOLD_LIB_TARGET_CUDA_EMULATORHEADERS_H

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace refold {

/// The compiler and what it is told for every text. `headers` is a folder that
/// has the headers of kernels; empty where they have to lie beside the text.
struct EmulatorCompiler {
  std::string path;
  std::vector<std::string> flags;
  std::string headers;
  std::string object; ///< with their functions, to be linked; or empty
  std::string linker; ///< the flag that names it; or empty
};

/// REFOLD_HOST_CXX, or the first that PATH has of clang++-19, clang++ and g++.
/// Parsing and compiling the headers is most of what a small kernel takes, so
/// that clang reads them precompiled where REFOLD_EMULATOR_DIR names a folder,
/// and at level 0 only links their functions, which are optimised: made there
/// once for each content, compiler and set of flags, by whoever comes first.
/// Kernels that are compiled with them are kept there too, without a bound: it
/// is a folder for a run of tests.
/// What cannot be made there (full disk, folder of somebody else) is left out.
/// REFOLD_EMULATOR_OPT is how far the compiler optimises, 0 to 3; 1 without it.
llvm::Expected<EmulatorCompiler> findEmulatorCompiler();

/// Writes a file that the emulator needs; a full disk is a limit.
llvm::Error writeForEmulator(const llvm::Twine &path, llvm::StringRef text);

/// Writes the headers into a folder.
llvm::Error writeEmulatorHeaders(llvm::StringRef folder);

} // namespace refold

#endif // REFOLD_LIB_TARGET_CUDA_EMULATORHEADERS_H
