// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_PACKAGE_FINDLIBRARY_H
#define REFOLD_LIB_PACKAGE_FINDLIBRARY_H

#include <string>
#include <vector>

namespace refold::package {

/// A library that is looked for when it is needed.
struct WantedLibrary {
  const char *environment; ///< a variable that names a file or folder; or null
  std::vector<std::string> names;    ///< best first
  std::vector<std::string> packages; ///< folders of Python's site-packages
};

/// What dlopen may be asked for, in order. What the environment names and is no
/// folder comes alone; else names that the system looks for, then files below
/// /usr/local/cuda, in the Python environments VIRTUAL_ENV and .venv, of the
/// current folder and of those above the program.
std::vector<std::string> findLibraries(const WantedLibrary &wanted);

/// What decides which of them is found, without loading any: the files and
/// their times. Changes where another one would be.
std::string describeLibraries(const WantedLibrary &wanted);

} // namespace refold::package

#endif // REFOLD_LIB_PACKAGE_FINDLIBRARY_H
