// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Flags that several commands share.
#ifndef REFOLD_TOOLS_REFOLD_PROGRAMFLAGS_H
#define REFOLD_TOOLS_REFOLD_PROGRAMFLAGS_H

#include "Commands.h"
#include "Flags.h"
#include "refold/Driver/Driver.h"
#include "refold/Support/RandomInputs.h"

namespace refold {

/// The file, and what may be said about it.
struct ProgramFlags {
  std::string path, format = "text", dtype, multiply;
  std::map<std::string, int64_t> dims;
  NumericPolicy numerics;
  bool withoutCache = false;

  void addTo(Flags &flags);
  void addDtypeTo(Flags &flags);
  /// --casts, --masked-rows and --stability.
  void addNumericsTo(Flags &flags);
  /// --no-cache
  void addCacheTo(Flags &flags);
  /// The cache that flags and environment ask for; null: none.
  llvm::Expected<std::unique_ptr<DiskCache>> openCache() const;
  LoadOptions loadOptions() const;
  bool isJson() const { return format == "json"; }
};

/// Prints the help of `command` where it is asked for.
bool showHelp(const Command &command, const Flags &flags, Arguments arguments);

/// "--fuse": auto, always or never.
void addFuseTo(Flags &flags, FusePolicy &policy);
/// "--tuned".
void addTunedTo(Flags &flags, bool &usesTuned);
/// "--tune".
void addTuneTo(Flags &flags, bool &tunes);
/// Refuses it where no GPU runs the program.
llvm::Error checkTune(bool tunes, llvm::StringRef target);
/// Says that what was tuned is lost, where there is no cache.
void tellNotKept(bool hasCache);

} // namespace refold

#endif // REFOLD_TOOLS_REFOLD_PROGRAMFLAGS_H
