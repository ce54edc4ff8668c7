// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "KeptJson.h"
#include "refold/Support/Files.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/xxhash.h"
#include <cstdlib>

namespace refold {

/// "" where nothing is to be kept.
static std::string fileOf(llvm::StringRef kind, llvm::StringRef key) {
  llvm::SmallString<256> path;
  if (const char *folder = std::getenv("REFOLD_CACHE_DIR")) {
    path = folder;
  } else if (const char *base = std::getenv("XDG_CACHE_HOME");
             base && llvm::sys::path::is_absolute(base)) {
    path = base;
    llvm::sys::path::append(path, "refold");
  } else if (const char *home = std::getenv("HOME");
             home && llvm::sys::path::is_absolute(home)) {
    path = home;
    llvm::sys::path::append(path, ".cache", "refold");
  }
  if (path.empty())
    return "";
  llvm::sys::path::append(path, kind,
                          llvm::utohexstr(llvm::xxh3_64bits(key)) + ".json");
  return path.str().str();
}

std::optional<llvm::json::Object> findKept(llvm::StringRef kind,
                                           llvm::StringRef key) {
  constexpr uint64_t kMostBytes = 16 << 10; // the parser goes as deep as these
  std::string path = fileOf(kind, key);
  if (path.empty() || !llvm::sys::fs::is_regular_file(path))
    return std::nullopt;
  auto file = readFile(path, kMostBytes);
  if (!file) {
    llvm::consumeError(file.takeError());
    return std::nullopt;
  }
  auto parsed = llvm::json::parse((*file)->getBuffer());
  if (!parsed) {
    llvm::consumeError(parsed.takeError());
    return std::nullopt;
  }
  llvm::json::Object *whole = parsed->getAsObject();
  if (!whole || whole->getString("key") != std::optional<llvm::StringRef>(key))
    return std::nullopt;
  llvm::json::Object *value = whole->getObject("value");
  return value ? std::optional(std::move(*value)) : std::nullopt;
}

std::string keep(llvm::StringRef kind, llvm::StringRef key,
                 llvm::json::Object value) {
  std::string path = fileOf(kind, key);
  // Kernels lie beside it, in a folder that only its owner may write to.
  if (path.empty() || llvm::sys::fs::create_directories(
                          llvm::sys::path::parent_path(path),
                          /*IgnoreExisting=*/true, llvm::sys::fs::owner_all))
    return "";
  std::string text;
  llvm::raw_string_ostream(text) << llvm::json::Value(
      llvm::json::Object{{"key", key.str()}, {"value", std::move(value)}});
  if (llvm::Error error = writeFileAtomically(path, text)) {
    llvm::consumeError(std::move(error));
    return "";
  }
  return path;
}

} // namespace refold
