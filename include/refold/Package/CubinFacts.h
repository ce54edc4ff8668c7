// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_PACKAGE_CUBINFACTS_H
#define REFOLD_PACKAGE_CUBINFACTS_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace refold::package {

/// What machine code of an entry takes of a multiprocessor.
struct EntryCode {
  int64_t registers = 0;   ///< of a thread
  int64_t stackBytes = 0;  ///< of a thread: arrays, and what is spilled
  int64_t sharedBytes = 0; ///< static, that the kernel names itself
  int64_t instructions = 0;
  /// Of them, those that store and load what registers had no room for, or an
  /// array of the thread.
  int64_t localStores = 0, localLoads = 0;
};

/// Reads a cubin (ELF for CUDA, as NVRTC 12 and 13 write it for sm_80 and
/// newer). Whatever the bytes are: nothing where they are no such file, or it
/// has no such entry.
std::optional<EntryCode> readEntryCode(std::string_view cubin,
                                       const std::string &entry);

} // namespace refold::package

#endif // REFOLD_PACKAGE_CUBINFACTS_H
