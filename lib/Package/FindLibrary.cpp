// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "FindLibrary.h"

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <sys/stat.h>

using namespace refold;
using namespace refold::package;
namespace fs = std::filesystem;

/// Folders below `root` in which Python puts the package.
static void addPythonFolders(const fs::path &root, const WantedLibrary &wanted,
                             std::vector<fs::path> &folders) {
  std::error_code code;
  for (const char *lib : {"lib", "lib64"})
    for (const auto &python : fs::directory_iterator(root / lib, code))
      for (const std::string &part : wanted.packages)
        if (fs::path folder = python.path() / "site-packages" / part;
            fs::is_directory(folder, code))
          folders.push_back(folder);
}

/// Where it may lie outside of what the system looks at.
static std::vector<fs::path> likelyFolders(const WantedLibrary &wanted) {
  std::vector<fs::path> folders = {"/usr/local/cuda/lib64"};
  if (const char *environment = std::getenv("VIRTUAL_ENV"))
    addPythonFolders(environment, wanted, folders);
  std::error_code code;
  addPythonFolders(fs::current_path(code) / ".venv", wanted, folders);
  fs::path program = fs::read_symlink("/proc/self/exe", code);
  constexpr int kMostSteps = 5;
  for (int i = 0; i < kMostSteps && program.has_relative_path(); ++i) {
    program = program.parent_path();
    addPythonFolders(program / ".venv", wanted, folders);
  }
  return folders;
}

std::vector<std::string> package::findLibraries(const WantedLibrary &wanted) {
  std::vector<std::string> paths;
  auto addFolder = [&](const fs::path &folder) {
    std::error_code code;
    for (const std::string &name : wanted.names)
      if (fs::exists(folder / name, code))
        paths.push_back((folder / name).string());
  };
  const char *named =
      wanted.environment ? std::getenv(wanted.environment) : nullptr;
  if (named) {
    std::error_code code;
    if (!fs::is_directory(named, code))
      return {named}; // nothing else is wanted
    addFolder(named);
    return paths;
  }
  paths = wanted.names;
  for (const fs::path &folder : likelyFolders(wanted))
    addFolder(folder);
  return paths;
}

/// A file or folder as it is now; nothing where there is none.
static void addStatus(std::string &text, const std::string &path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0)
    return;
  text += path;
  for (int64_t number :
       {int64_t(status.st_dev), int64_t(status.st_ino), int64_t(status.st_size),
        int64_t(status.st_mtim.tv_sec), int64_t(status.st_mtim.tv_nsec)})
    text += " " + std::to_string(number);
  text += "\n";
}

std::string package::describeLibraries(const WantedLibrary &wanted) {
  std::string text;
  const char *named = std::getenv("LD_LIBRARY_PATH");
  for (const std::string &path : findLibraries(wanted)) {
    text += path + "\n";
    if (path.find('/') != path.npos) {
      addStatus(text, path);
      continue;
    }
    std::istringstream folders(named ? named : "");
    for (std::string folder; std::getline(folders, folder, ':');)
      addStatus(text, folder + "/" + path);
  }
  // Where the system looks besides.
  for (const char *place :
       {"/etc/ld.so.cache", "/lib", "/usr/lib", "/lib64", "/usr/lib64"})
    addStatus(text, place);
  return text;
}
