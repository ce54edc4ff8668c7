// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Commands.h"
#include "Output.h"
#include "ProgramFlags.h"

namespace refold {

llvm::Expected<ExitCode> cacheCommand(const Command &command,
                                      Arguments arguments) {
  std::string format = "text";
  bool clears = false;
  Flags flags;
  flags.choice("format", "how the answer is written (text)", format,
               {"text", "json"});
  flags.toggle("clear", "removes everything that is kept", clears);
  if (showHelp(command, flags, arguments))
    return ExitCode::Ok;
  if (llvm::Error error = flags.parse(command.name, arguments))
    return std::move(error);
  llvm::Expected<uint64_t> limit = cacheLimitOfEnvironment();
  if (!limit)
    return limit.takeError();
  std::string folder = cacheFolderOfEnvironment();
  DiskCache::Contents removed, found;
  if (!folder.empty()) {
    auto cache = DiskCache::open(folder, *limit);
    if (!cache)
      return cache.takeError();
    if (clears)
      removed = (*cache)->clear();
    found = (*cache)->measure();
  }
  if (format == "json") {
    printJson(llvm::json::Object{{"folder", folder},
                                 {"entries", int64_t(found.entries)},
                                 {"bytes", int64_t(found.bytes)},
                                 {"limit_bytes", int64_t(*limit)},
                                 {"removed", int64_t(removed.entries)}});
    return ExitCode::Ok;
  }
  llvm::raw_ostream &os = llvm::outs();
  if (folder.empty()) {
    os << "nothing is kept: REFOLD_CACHE_DIR is empty, or there is no home\n";
    return ExitCode::Ok;
  }
  if (clears)
    os << removed.entries << " entries removed\n";
  os << folder << ": " << found.entries << " entries, "
     << formatBytes(double(found.bytes)) << " of at most "
     << formatBytes(double(*limit)) << "\n";
  return ExitCode::Ok;
}

} // namespace refold
