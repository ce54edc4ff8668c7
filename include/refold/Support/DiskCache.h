// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SUPPORT_DISKCACHE_H
#define REFOLD_SUPPORT_DISKCACHE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"
#include <cstdint>
#include <memory>
#include <string>

namespace refold {

/// Values by content, kept in a folder between processes. A key is any text; it
/// has to say everything that the value depends on. The folder may be shared by
/// any number of processes, of which any may be killed at any time.
///
/// A value is found whole or not at all: it is written beside its place and
/// takes its name at once, and its checksum is compared when it is read. That
/// is why nothing waits for the disk: what a failing machine leaves half
/// written is a miss. A cache that cannot be written (closed folder, full disk)
/// still answers with what it has.
class DiskCache {
public:
  /// What the folder may hold where nobody says otherwise.
  static constexpr uint64_t kDefaultLimit = uint64_t(256) << 20;

  /// Makes the folder where it is missing. Refuses one that others may write
  /// to, or that belongs to somebody else: what lies in it will be executed.
  static llvm::Expected<std::unique_ptr<DiskCache>>
  open(llvm::StringRef folder, uint64_t limitBytes = kDefaultLimit);
  ~DiskCache();
  DiskCache(const DiskCache &) = delete;
  DiskCache &operator=(const DiskCache &) = delete;

  /// The value of a key, or null. Counts as a use of it.
  std::unique_ptr<llvm::MemoryBuffer> get(llvm::StringRef key) const;

  /// Keeps a value, and lets go of those that were not used for longest while
  /// there are too many bytes. False where it could not be kept; a value larger
  /// than a sixteenth of the limit is not.
  bool put(llvm::StringRef key, llvm::StringRef value) const;

  struct Contents {
    uint64_t entries = 0, bytes = 0;
  };
  Contents measure() const;
  /// Removes every value.
  Contents clear() const;

  const std::string &folder() const { return path; }
  uint64_t limit() const { return limitBytes; }

private:
  DiskCache(std::string path, uint64_t limitBytes, int descriptor)
      : path(std::move(path)), limitBytes(limitBytes), descriptor(descriptor) {}
  std::string path;
  uint64_t limitBytes;
  int descriptor; ///< of the folder
};

/// Where the environment wants the cache: REFOLD_CACHE_DIR, else refold/kernels
/// in XDG_CACHE_HOME, else in .cache of HOME. Empty: nowhere, because
/// REFOLD_CACHE_DIR is set to nothing, or no folder is known.
std::string cacheFolderOfEnvironment();

/// REFOLD_CACHE_MIB, or the default; an error where that is no number.
llvm::Expected<uint64_t> cacheLimitOfEnvironment();

/// The cache that the environment asks for; null where it asks for none. An
/// error where REFOLD_CACHE_MIB is no number (ExitCode::Usage), or the folder
/// cannot be used (ExitCode::Model): a program compiles without it as well.
llvm::Expected<std::unique_ptr<DiskCache>> openCacheOfEnvironment();

} // namespace refold

#endif // REFOLD_SUPPORT_DISKCACHE_H
