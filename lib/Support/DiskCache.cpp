// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sixteen folders of files named by the hash of their keys. Each has a share of
// the limit to itself, so that a writer counts the files of one of them only.
#include "refold/Support/DiskCache.h"
#include "refold/Support/Error.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace refold {

using Hash = std::array<uint8_t, 32>;

namespace {
/// In front of every value. Every bit of a file is covered: by the magic word,
/// the hash of the key, the size or the checksum.
struct Header {
  char magic[8];
  Hash key, checksum;
  uint64_t bytes;
};
static_assert(sizeof(Header) == 80, "no padding in files");

struct Place {
  std::string shard, name;
};

struct Entry {
  std::string name;
  uint64_t bytes;
  timespec used;
};
} // namespace

static constexpr char kMagic[8] = {'r', 'e', 'f', 'o', 'l', 'd', 'c', '1'};
static constexpr unsigned kShards = 16;
static constexpr llvm::StringLiteral kShardNames = "0123456789abcdef";
static constexpr llvm::StringLiteral kUnfinished = ".new-";
/// A writer that is older was killed, or finds that its file is gone.
static constexpr time_t kSecondsToWrite = 60;
/// Uses are noted no more often than that.
static constexpr time_t kSecondsBetweenUses = 60;

static Hash hashOf(llvm::StringRef bytes) {
  llvm::BLAKE3 hasher;
  hasher.update(bytes);
  return hasher.final<32>();
}

static Place placeOf(const Hash &key) {
  std::string name = llvm::toHex(key, /*LowerCase=*/true);
  return {name.substr(0, 1), name.substr(1)};
}

static int openFolder(int parent, const char *name, int more) {
  return ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | more);
}

llvm::Expected<std::unique_ptr<DiskCache>>
DiskCache::open(llvm::StringRef folder, uint64_t limitBytes) {
  auto refuse = [&](const llvm::Twine &why) {
    return fail(ExitCode::Model, folder + ": not used as a cache: " + why);
  };
  // The parent of "a/" would be "a" itself.
  llvm::StringRef trimmed = folder.rtrim('/');
  std::string path = trimmed.empty() ? folder.str() : trimmed.str();
  llvm::StringRef parent = llvm::sys::path::parent_path(path);
  if (!parent.empty())
    if (std::error_code code = llvm::sys::fs::create_directories(
            parent, /*IgnoreExisting=*/true, llvm::sys::fs::owner_all))
      return refuse(llvm::StringRef(code.message()).lower());
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return refuse(llvm::StringRef(std::strerror(errno)).lower());
  int descriptor = openFolder(AT_FDCWD, path.c_str(), 0);
  if (descriptor < 0)
    return refuse(llvm::StringRef(std::strerror(errno)).lower());
  std::unique_ptr<DiskCache> cache(new DiskCache(path, limitBytes, descriptor));
  struct stat status;
  if (::fstat(descriptor, &status) != 0)
    return refuse(llvm::StringRef(std::strerror(errno)).lower());
  if (status.st_uid != ::geteuid())
    return refuse("found a folder of another user");
  if (status.st_mode & (S_IWGRP | S_IWOTH))
    return refuse("found a folder that other users may write to");
  return std::move(cache);
}

DiskCache::~DiskCache() { ::close(descriptor); }

/// Reads so many bytes, or fails.
static bool readAll(int descriptor, char *to, size_t bytes) {
  while (bytes) {
    ssize_t found = ::read(descriptor, to, bytes);
    if (found < 0 && errno == EINTR)
      continue;
    if (found <= 0)
      return false;
    to += found;
    bytes -= found;
  }
  return true;
}

static bool writeAll(int descriptor, const char *from, size_t bytes) {
  while (bytes) {
    ssize_t written = ::write(descriptor, from, bytes);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return false;
    from += written;
    bytes -= written;
  }
  return true;
}

/// Moves the time of the last use, which is the file's own, to now.
static void noteUse(int file, const struct stat &status) {
  if (::time(nullptr) - status.st_mtim.tv_sec < kSecondsBetweenUses)
    return;
  ::futimens(file, nullptr); // a closed folder keeps its order of writing
}

std::unique_ptr<llvm::MemoryBuffer> DiskCache::get(llvm::StringRef key) const {
  Hash hash = hashOf(key);
  Place place = placeOf(hash);
  int file = ::openat(descriptor, (place.shard + "/" + place.name).c_str(),
                      O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0)
    return nullptr;
  auto close = llvm::make_scope_exit([&] { ::close(file); });
  struct stat status;
  Header header;
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_uid != ::geteuid() ||
      uint64_t(status.st_size) < sizeof(Header) ||
      uint64_t(status.st_size) - sizeof(Header) > limitBytes ||
      !readAll(file, reinterpret_cast<char *>(&header), sizeof(Header)))
    return nullptr;
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 ||
      header.key != hash ||
      header.bytes != uint64_t(status.st_size) - sizeof(Header))
    return nullptr;
  auto value = llvm::WritableMemoryBuffer::getNewUninitMemBuffer(
      header.bytes, "cached value");
  if (!value || !readAll(file, value->getBufferStart(), header.bytes) ||
      hashOf(value->getBuffer().size()
                 ? llvm::StringRef(value->getBufferStart(), header.bytes)
                 : "") != header.checksum)
    return nullptr;
  noteUse(file, status);
  return value;
}

/// Calls `visit` with the name and status of every file that is ours.
static void forEachFile(
    int shard,
    llvm::function_ref<void(const char *name, const struct stat &)> visit) {
  // The stream has an offset and a descriptor of its own.
  int copy = openFolder(shard, ".", 0);
  DIR *folder = copy < 0 ? nullptr : ::fdopendir(copy);
  if (!folder) {
    if (copy >= 0)
      ::close(copy);
    return;
  }
  while (const dirent *entry = ::readdir(folder)) {
    llvm::StringRef name = entry->d_name;
    bool isOurs = name.starts_with(kUnfinished) ||
                  (name.size() == 63 && llvm::all_of(name, llvm::isHexDigit));
    struct stat status;
    if (isOurs &&
        ::fstatat(shard, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0)
      visit(entry->d_name, status);
  }
  ::closedir(folder);
}

/// Removes what killed writers left, then the files that were not used for
/// longest, until an eighth of the share is free again.
static void trim(int shard, uint64_t share) {
  std::vector<Entry> entries;
  uint64_t bytes = 0;
  time_t now = ::time(nullptr);
  forEachFile(shard, [&](const char *name, const struct stat &status) {
    if (llvm::StringRef(name).starts_with(kUnfinished) &&
        now - status.st_mtim.tv_sec > kSecondsToWrite) {
      ::unlinkat(shard, name, 0);
      return;
    }
    bytes += status.st_size;
    entries.push_back({name, uint64_t(status.st_size), status.st_mtim});
  });
  if (bytes <= share)
    return;
  llvm::sort(entries, [](const Entry &a, const Entry &b) {
    return std::tie(a.used.tv_sec, a.used.tv_nsec, a.name) <
           std::tie(b.used.tv_sec, b.used.tv_nsec, b.name);
  });
  for (const Entry &entry : entries) {
    if (bytes <= share - share / 8)
      return;
    if (!llvm::StringRef(entry.name).starts_with(kUnfinished) &&
        ::unlinkat(shard, entry.name.c_str(), 0) == 0)
      bytes -= entry.bytes;
  }
}

/// A new file of this process and thread, whatever others make.
static int openUnfinished(int shard, std::string &name) {
  for (unsigned attempt = 0; attempt < 100; ++attempt) {
    timespec now;
    ::clock_gettime(CLOCK_REALTIME, &now);
    name = (kUnfinished + llvm::Twine(::getpid()) + "-" +
            llvm::Twine(now.tv_nsec) + "-" + llvm::Twine(attempt))
               .str();
    int file =
        ::openat(shard, name.c_str(),
                 O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file >= 0 || errno != EEXIST)
      return file;
  }
  return -1;
}

bool DiskCache::put(llvm::StringRef key, llvm::StringRef value) const {
  uint64_t share = limitBytes / kShards;
  if (sizeof(Header) + value.size() > share)
    return false;
  Header header;
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.key = hashOf(key);
  header.checksum = hashOf(value);
  header.bytes = value.size();
  Place place = placeOf(header.key);
  if (::mkdirat(descriptor, place.shard.c_str(), 0700) != 0 && errno != EEXIST)
    return false;
  int shard = openFolder(descriptor, place.shard.c_str(), O_NOFOLLOW);
  if (shard < 0)
    return false;
  auto close = llvm::make_scope_exit([&] { ::close(shard); });
  std::string unfinished;
  int file = openUnfinished(shard, unfinished);
  if (file < 0)
    return false;
  bool isKept =
      writeAll(file, reinterpret_cast<const char *>(&header), sizeof(Header)) &&
      writeAll(file, value.data(), value.size());
  isKept &= ::close(file) == 0;
  auto takeName = [&] {
    return ::renameat(shard, unfinished.c_str(), shard, place.name.c_str()) ==
           0;
  };
  // An empty folder in its place is nobody's value.
  isKept = isKept && (takeName() || (errno == EISDIR &&
                                     ::unlinkat(shard, place.name.c_str(),
                                                AT_REMOVEDIR) == 0 &&
                                     takeName()));
  if (!isKept)
    ::unlinkat(shard, unfinished.c_str(), 0);
  trim(shard, share);
  return isKept;
}

/// Every file of every shard.
static void forEachShard(int folder, llvm::function_ref<void(int)> visit) {
  for (char name : kShardNames) {
    char text[2] = {name, 0};
    int shard = openFolder(folder, text, O_NOFOLLOW);
    if (shard < 0)
      continue;
    visit(shard);
    ::close(shard);
  }
}

DiskCache::Contents DiskCache::measure() const {
  Contents found;
  forEachShard(descriptor, [&](int shard) {
    forEachFile(shard, [&](const char *, const struct stat &status) {
      ++found.entries;
      found.bytes += status.st_size;
    });
  });
  return found;
}

DiskCache::Contents DiskCache::clear() const {
  Contents removed;
  forEachShard(descriptor, [&](int shard) {
    forEachFile(shard, [&](const char *name, const struct stat &status) {
      if (::unlinkat(shard, name, 0) != 0)
        return;
      ++removed.entries;
      removed.bytes += status.st_size;
    });
  });
  return removed;
}

std::string cacheFolderOfEnvironment() {
  if (const char *folder = std::getenv("REFOLD_CACHE_DIR"))
    return folder;
  llvm::SmallString<256> path;
  const char *base = std::getenv("XDG_CACHE_HOME");
  if (base && llvm::sys::path::is_absolute(base)) {
    path = base;
  } else {
    const char *home = std::getenv("HOME");
    if (!home || !llvm::sys::path::is_absolute(home))
      return "";
    path = home;
    llvm::sys::path::append(path, ".cache");
  }
  llvm::sys::path::append(path, "refold", "kernels");
  return path.str().str();
}

llvm::Expected<uint64_t> cacheLimitOfEnvironment() {
  const char *text = std::getenv("REFOLD_CACHE_MIB");
  if (!text)
    return DiskCache::kDefaultLimit;
  constexpr uint64_t kMost = uint64_t(1) << 24;
  uint64_t mebibytes = 0;
  if (llvm::StringRef(text).getAsInteger(10, mebibytes) || mebibytes < 1 ||
      mebibytes > kMost)
    return fail(ExitCode::Usage, llvm::Twine("REFOLD_CACHE_MIB is '") + text +
                                     "', expected a number from 1 to " +
                                     llvm::Twine(kMost));
  return mebibytes << 20;
}

llvm::Expected<std::unique_ptr<DiskCache>> openCacheOfEnvironment() {
  llvm::Expected<uint64_t> limit = cacheLimitOfEnvironment();
  if (!limit)
    return limit.takeError();
  std::string folder = cacheFolderOfEnvironment();
  if (folder.empty())
    return nullptr;
  return DiskCache::open(folder, *limit);
}

} // namespace refold
