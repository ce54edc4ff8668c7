// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// LLVM's own matchers are in a library that Debian does not carry.
#ifndef REFOLD_UNITTESTS_SUPPORT_OUTCOME_H
#define REFOLD_UNITTESTS_SUPPORT_OUTCOME_H

#include "llvm/Support/Error.h"
#include <cstdlib>
#include <filesystem>
#include <string>

namespace refold {

inline bool succeeds(llvm::Error error) {
  bool failed = static_cast<bool>(error);
  llvm::consumeError(std::move(error));
  return !failed;
}
template <typename T> bool succeeds(llvm::Expected<T> value) {
  return succeeds(value.takeError());
}
inline bool fails(llvm::Error error) { return !succeeds(std::move(error)); }
template <typename T> bool fails(llvm::Expected<T> value) {
  return !succeeds(value.takeError());
}

/// A folder that lives as long as this.
class TempDir {
public:
  TempDir() : root(std::filesystem::temp_directory_path() / "refold-XXXXXX") {
    if (!::mkdtemp(root.data()))
      std::abort();
  }
  ~TempDir() { std::filesystem::remove_all(root); }
  std::string path() const { return root; }
  std::string path(const std::string &name) const { return root + "/" + name; }

private:
  std::string root;
};

} // namespace refold

#endif // REFOLD_UNITTESTS_SUPPORT_OUTCOME_H
