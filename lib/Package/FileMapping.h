// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_PACKAGE_FILEMAPPING_H
#define REFOLD_LIB_PACKAGE_FILEMAPPING_H

#include "refold/Package/Outcome.h"
#include <memory>
#include <string>
#include <string_view>

namespace refold::package {

/// A file in memory, read only: pages are read when they are first looked at.
/// The file must not become shorter while it is mapped.
class FileMapping {
public:
  /// What is no regular file has no bytes. The message of an error begins with
  /// `path` and says why it was not read.
  static Outcome<std::shared_ptr<FileMapping>> open(const std::string &path);
  FileMapping(const void *address, size_t size)
      : address(address), size(size) {}
  ~FileMapping();
  FileMapping(const FileMapping &) = delete;
  FileMapping &operator=(const FileMapping &) = delete;

  std::string_view bytes() const {
    return {static_cast<const char *>(address), size};
  }

private:
  const void *address;
  size_t size;
};

} // namespace refold::package

#endif // REFOLD_LIB_PACKAGE_FILEMAPPING_H
