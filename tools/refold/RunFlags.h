// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_TOOLS_REFOLD_RUNFLAGS_H
#define REFOLD_TOOLS_REFOLD_RUNFLAGS_H

#include "ProgramFlags.h"
#include "refold/Driver/Inputs.h"

namespace refold {

/// Where the inputs of a program come from: arrays from files, random ones for
/// the rest.
struct InputFlags {
  Extents shape;
  std::map<std::string, InputRecipe> recipes;
  std::map<std::string, std::string> files;
  std::string npz;
  int64_t seed = 0;

  void addTo(Flags &flags, bool withFiles);
  llvm::Expected<std::vector<Tensor>> make(llvm::ArrayRef<Port> ports) const;

private:
  llvm::Error parseInput(llvm::StringRef text, bool withFiles);
};

} // namespace refold

#endif // REFOLD_TOOLS_REFOLD_RUNFLAGS_H
