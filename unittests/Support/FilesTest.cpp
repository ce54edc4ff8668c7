// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/Files.h"
#include "Outcome.h"
#include "refold/Support/Error.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/resource.h>

using namespace refold;

static std::string contentOf(llvm::StringRef path) {
  return llvm::cantFail(readFile(path, 1 << 20))->getBuffer().str();
}

static size_t countEntries(llvm::StringRef folder) {
  auto entries = std::filesystem::directory_iterator(folder.str());
  return std::distance(begin(entries), end(entries));
}

TEST(FilesTest, ReplacesAndLeavesNothingBeside) {
  TempDir folder;
  std::string path = folder.path("a.bin");
  EXPECT_TRUE(succeeds(writeFileAtomically(path, "first")));
  EXPECT_TRUE(succeeds(writeFileAtomically(path, "second")));
  EXPECT_EQ(contentOf(path), "second");
  EXPECT_EQ(countEntries(folder.path()), 1u);
}

/// A file size limit stands in for a full disk: write() fails in the middle.
TEST(FilesTest, AFullDiskKeepsTheEarlierFile) {
  TempDir folder;
  std::string path = folder.path("a.bin");
  ASSERT_TRUE(succeeds(writeFileAtomically(path, "precious")));
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = {4096, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  llvm::Error error = writeFileAtomically(path, std::string(100000, 'x'));
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(fails(std::move(error)));
  EXPECT_EQ(contentOf(path), "precious");
  EXPECT_EQ(countEntries(folder.path()), 1u);
}

TEST(FilesTest, RefusesFoldersAndMissingFolders) {
  TempDir folder;
  EXPECT_TRUE(fails(writeFileAtomically(folder.path(), "x")));
  EXPECT_TRUE(fails(writeFileAtomically(folder.path("none/a.bin"), "x")));
  EXPECT_TRUE(fails(readFile(folder.path(), 10)));
  EXPECT_TRUE(fails(readFile(folder.path("none"), 10)));
}

TEST(FilesTest, FullDeviceIsAnError) {
  EXPECT_TRUE(fails(writeFileAtomically("/dev/full", "x")));
  EXPECT_TRUE(succeeds(writeFileAtomically("/dev/null", "x")));
}

TEST(FilesTest, KeepsLinksAndBoundsSizes) {
  TempDir folder;
  std::string path = folder.path("a.bin"), link = folder.path("link");
  ASSERT_TRUE(succeeds(writeFileAtomically(path, "first")));
  std::filesystem::create_symlink("a.bin", link);
  EXPECT_TRUE(succeeds(writeFileAtomically(link, "second")));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(contentOf(path), "second");
  EXPECT_TRUE(fails(readFile(path, 3)));
}
