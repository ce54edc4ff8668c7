// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/DiskCache.h"
#include "refold/Support/BuildId.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <set>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace refold;

namespace {
class DiskCacheTest : public ::testing::Test {
protected:
  void SetUp() override {
    llvm::SmallString<128> path;
    ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("cache", path));
    folder = path.str().str();
  }
  void TearDown() override { llvm::sys::fs::remove_directories(folder); }

  std::unique_ptr<DiskCache> open(uint64_t limit = DiskCache::kDefaultLimit) {
    return llvm::cantFail(DiskCache::open(folder + "/kernels", limit));
  }
  /// Every file below the folder.
  std::vector<std::string> files() {
    std::vector<std::string> found;
    std::error_code code;
    for (llvm::sys::fs::recursive_directory_iterator at(folder, code), end;
         at != end && !code; at.increment(code))
      if (llvm::sys::fs::is_regular_file(at->path()))
        found.push_back(at->path());
    return found;
  }
  static std::string read(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void write(const std::string &path, const std::string &bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  static std::string valueOf(const DiskCache &cache, llvm::StringRef key) {
    auto value = cache.get(key);
    return value ? value->getBuffer().str() : "(none)";
  }
  static void setAge(const std::string &path, time_t seconds) {
    timespec then = {::time(nullptr) - seconds, 0};
    timespec times[2] = {then, then};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }

  std::string folder;
};
} // namespace

TEST_F(DiskCacheTest, FindsWhatWasKept) {
  auto cache = open();
  EXPECT_EQ(valueOf(*cache, "a"), "(none)");
  std::string bytes("\0\1\2", 3);
  EXPECT_TRUE(cache->put("a", bytes));
  EXPECT_TRUE(cache->put("b", ""));
  EXPECT_EQ(valueOf(*cache, "a"), bytes);
  EXPECT_EQ(valueOf(*cache, "b"), "");
  EXPECT_TRUE(cache->put("a", "new"));
  auto later = open();
  EXPECT_EQ(valueOf(*later, "a"), "new");
  EXPECT_EQ(later->measure().entries, 2u);
  EXPECT_EQ(later->clear().entries, 2u);
  EXPECT_EQ(valueOf(*cache, "a"), "(none)");
  EXPECT_EQ(later->measure().bytes, 0u);
}

TEST_F(DiskCacheTest, EveryFlippedBitIsAMiss) {
  auto cache = open();
  ASSERT_TRUE(cache->put("key", "value"));
  ASSERT_EQ(files().size(), 1u);
  std::string path = files().front(), good = read(path);
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] ^= char(1 << bit % 8);
    write(path, bad);
    ASSERT_EQ(valueOf(*cache, "key"), "(none)") << "bit " << bit;
  }
  write(path, good);
  EXPECT_EQ(valueOf(*cache, "key"), "value");
}

TEST_F(DiskCacheTest, EveryOtherLengthIsAMiss) {
  auto cache = open();
  ASSERT_TRUE(cache->put("key", "value"));
  std::string path = files().front(), good = read(path);
  for (size_t length = 0; length < good.size(); ++length) {
    write(path, good.substr(0, length));
    ASSERT_EQ(valueOf(*cache, "key"), "(none)") << length << " bytes";
  }
  write(path, good + "!");
  EXPECT_EQ(valueOf(*cache, "key"), "(none)");
  EXPECT_TRUE(cache->put("key", "value")); // and is mended
  EXPECT_EQ(valueOf(*cache, "key"), "value");
}

TEST_F(DiskCacheTest, AValueUnderAnotherNameIsAMiss) {
  auto cache = open();
  ASSERT_TRUE(cache->put("a", "of a"));
  std::string a = files().front();
  ASSERT_TRUE(cache->put("b", "of b"));
  for (const std::string &file : files())
    if (file != a)
      write(file, read(a));
  EXPECT_EQ(valueOf(*cache, "b"), "(none)");
  EXPECT_EQ(valueOf(*cache, "a"), "of a");
}

TEST_F(DiskCacheTest, WhatIsNoFileIsAMiss) {
  auto cache = open();
  ASSERT_TRUE(cache->put("key", "value"));
  std::string path = files().front(), elsewhere = folder + "/elsewhere";
  write(elsewhere, read(path));
  ASSERT_EQ(::unlink(path.c_str()), 0);
  ASSERT_EQ(::symlink(elsewhere.c_str(), path.c_str()), 0);
  EXPECT_EQ(valueOf(*cache, "key"), "(none)");
  ASSERT_EQ(::unlink(path.c_str()), 0);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(valueOf(*cache, "key"), "(none)"); // and does not wait for a writer
  ASSERT_EQ(::unlink(path.c_str()), 0);
  ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  write(path + "/notes.txt", "not ours");
  EXPECT_EQ(valueOf(*cache, "key"), "(none)");
  EXPECT_FALSE(cache->put("key", "value"));
}

TEST_F(DiskCacheTest, LeastRecentlyUsedGoFirst) {
  constexpr uint64_t kLimit = 16 * 1024; // a KiB each sixteenth
  auto cache = open(kLimit);
  std::string value(200, 'v'); // three with what stands before them
  std::vector<std::string> keys;
  std::set<std::string> before;
  // Keys of one sixteenth.
  for (int i = 0; keys.size() < 4; ++i) {
    std::string key = "key " + std::to_string(i);
    ASSERT_TRUE(cache->put(key, value));
    std::string mine;
    for (const std::string &file : files())
      if (!before.count(file))
        mine = file;
    before.insert(mine);
    bool isHere =
        llvm::sys::path::filename(llvm::sys::path::parent_path(mine)) == "7";
    if (!isHere) {
      ::unlink(mine.c_str());
      continue;
    }
    keys.push_back(key);
    setAge(mine, 1000 * (10 - time_t(keys.size())));
    if (keys.size() == 3)
      EXPECT_EQ(valueOf(*cache, keys[0]), value); // used: no longer the oldest
  }
  EXPECT_EQ(valueOf(*cache, keys[0]), value);
  EXPECT_EQ(valueOf(*cache, keys[1]), "(none)");
  EXPECT_EQ(valueOf(*cache, keys[3]), value);
  EXPECT_LE(cache->measure().bytes, kLimit);
}

TEST_F(DiskCacheTest, StaysWithinItsLimit) {
  constexpr uint64_t kLimit = 64 * 1024;
  auto cache = open(kLimit);
  for (int i = 0; i < 500; ++i)
    EXPECT_TRUE(cache->put(std::to_string(i), std::string(1000, 'v')));
  EXPECT_LE(cache->measure().bytes, kLimit);
  EXPECT_GE(cache->measure().bytes, kLimit / 2);
  EXPECT_FALSE(cache->put("large", std::string(kLimit / 16, 'v')));
  EXPECT_EQ(valueOf(*cache, "large"), "(none)");
}

TEST_F(DiskCacheTest, WhatKilledWritersLeaveIsRemoved) {
  auto cache = open();
  ASSERT_TRUE(cache->put("key", "value"));
  std::string shard = llvm::sys::path::parent_path(files().front()).str();
  write(shard + "/.new-1-2-3", "old");
  write(shard + "/.new-1-2-4", "of one that still writes");
  write(shard + "/notes.txt", "not ours");
  setAge(shard + "/.new-1-2-3", 120);
  ASSERT_TRUE(cache->put("key", "value"));
  EXPECT_FALSE(llvm::sys::fs::exists(shard + "/.new-1-2-3"));
  EXPECT_TRUE(llvm::sys::fs::exists(shard + "/.new-1-2-4"));
  cache->clear();
  EXPECT_FALSE(llvm::sys::fs::exists(shard + "/.new-1-2-4"));
  EXPECT_TRUE(llvm::sys::fs::exists(shard + "/notes.txt"));
}

TEST_F(DiskCacheTest, AFolderInThePlaceOfAValueGoes) {
  auto cache = open();
  ASSERT_TRUE(cache->put("key", "value"));
  std::string file = files().front();
  ASSERT_FALSE(llvm::sys::fs::remove(file));
  ASSERT_FALSE(llvm::sys::fs::create_directory(file));
  EXPECT_EQ(cache->get("key"), nullptr);
  ASSERT_TRUE(cache->put("key", "value"));
  ASSERT_TRUE(cache->get("key"));
  EXPECT_EQ(cache->get("key")->getBuffer(), "value");
}

TEST_F(DiskCacheTest, ASlashBehindTheNameIsNoOtherFolder) {
  mode_t before = ::umask(0002);
  auto cache = DiskCache::open(folder + "/made/here/");
  ::umask(before);
  ASSERT_TRUE(bool(cache)) << llvm::toString(cache.takeError());
  EXPECT_EQ((*cache)->folder(), folder + "/made/here");
  EXPECT_TRUE((*cache)->put("key", "value"));
}

TEST_F(DiskCacheTest, FoldersOfOthersAreRefused) {
  auto cache = open();
  ASSERT_EQ(::chmod((folder + "/kernels").c_str(), 0777), 0);
  auto refused = DiskCache::open(folder + "/kernels");
  ASSERT_FALSE(bool(refused));
  EXPECT_NE(llvm::toString(refused.takeError())
                .find("found a folder that other users may write to"),
            std::string::npos);
  write(folder + "/file", "");
  auto file = DiskCache::open(folder + "/file");
  ASSERT_FALSE(bool(file));
  EXPECT_NE(llvm::toString(file.takeError()).find("not a directory"),
            std::string::npos);
  auto nowhere = DiskCache::open("/proc/kernels"); // nothing can be made here
  ASSERT_FALSE(bool(nowhere));
  EXPECT_NE(llvm::toString(nowhere.takeError()).find("/proc/kernels: not used"),
            std::string::npos);
}

/// Processes write and read the same keys, and are killed while they do.
TEST_F(DiskCacheTest, ManyProcessesOfWhichSomeAreKilled) {
  constexpr uint64_t kLimit = 256 * 1024;
  auto valueFor = [](int key) {
    return std::string(200 + 37 * key, char('a' + key % 26));
  };
  auto work = [&](int seed) {
    auto cache = open(kLimit);
    for (unsigned i = seed;; ++i) {
      int key = int(i * 2654435761u >> 16) % 100;
      std::string found = valueOf(*cache, std::to_string(key));
      if (found != "(none)" && found != valueFor(key))
        ::_exit(1);
      cache->put(std::to_string(key), valueFor(key));
    }
  };
  open(kLimit);
  for (int round = 0; round < 5; ++round) {
    std::vector<pid_t> children;
    for (int i = 0; i < 4; ++i) {
      pid_t child = ::fork();
      if (child == 0)
        work(17 * i + 101 * round);
      children.push_back(child);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(30 + 7 * round));
    for (pid_t child : children) {
      ::kill(child, SIGKILL);
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFSIGNALED(status)) << "a process found another value";
    }
  }
  auto cache = open(kLimit);
  int found = 0;
  for (int key = 0; key < 100; ++key) {
    std::string value = valueOf(*cache, std::to_string(key));
    found += value != "(none)";
    EXPECT_TRUE(value == "(none)" || value == valueFor(key));
  }
  EXPECT_GT(found, 0);
}

TEST_F(DiskCacheTest, FolderOfTheEnvironment) {
  ::setenv("REFOLD_CACHE_DIR", "", 1);
  EXPECT_EQ(cacheFolderOfEnvironment(), "");
  EXPECT_EQ(llvm::cantFail(openCacheOfEnvironment()), nullptr);
  ::setenv("REFOLD_CACHE_DIR", "/a/b", 1);
  EXPECT_EQ(cacheFolderOfEnvironment(), "/a/b");
  ::unsetenv("REFOLD_CACHE_DIR");
  ::setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(cacheFolderOfEnvironment(), "/x/refold/kernels");
  ::setenv("XDG_CACHE_HOME", "relative", 1); // to be ignored, says XDG
  ::setenv("HOME", "/h", 1);
  EXPECT_EQ(cacheFolderOfEnvironment(), "/h/.cache/refold/kernels");
  ::unsetenv("HOME");
  EXPECT_EQ(cacheFolderOfEnvironment(), "");
  ::setenv("REFOLD_CACHE_MIB", "3", 1);
  EXPECT_EQ(llvm::cantFail(cacheLimitOfEnvironment()), uint64_t(3) << 20);
  for (const char *bad : {"", "0", "-1", "much", "99999999999"}) {
    ::setenv("REFOLD_CACHE_MIB", bad, 1);
    llvm::Expected<uint64_t> limit = cacheLimitOfEnvironment();
    ASSERT_FALSE(bool(limit)) << bad;
    EXPECT_NE(llvm::toString(limit.takeError()).find("expected a number"),
              std::string::npos);
  }
  ::unsetenv("REFOLD_CACHE_MIB");
}

TEST(BuildIdTest, TellsFilesApart) {
  int local = 0;
  EXPECT_FALSE(buildId().empty());
  std::string ours = buildIdOf({reinterpret_cast<const void *>(&buildId)});
  EXPECT_EQ(buildId().find(ours), 0u);
  EXPECT_GT(buildId().size(), ours.size());
  EXPECT_EQ(buildIdOf({&local}), ""); // the stack is of no file
}
