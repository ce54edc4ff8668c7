// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "FileMapping.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace refold;
using namespace refold::package;

Outcome<std::shared_ptr<FileMapping>>
FileMapping::open(const std::string &path) {
  auto failed = [&](int code) {
    return problem(ExitCode::Model, path + ": " + std::strerror(code));
  };
  // Not blocking: nobody may write to what turns out to be a pipe.
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0)
    return failed(errno);
  struct stat status;
  void *address = nullptr;
  size_t bytes = 0;
  int code = ::fstat(file, &status) != 0 ? errno : 0;
  if (!code && S_ISREG(status.st_mode) && status.st_size > 0) {
    bytes = size_t(status.st_size);
    address = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    code = address == MAP_FAILED ? errno : 0;
  }
  ::close(file);
  if (code)
    return failed(code);
  return std::make_shared<FileMapping>(address, bytes);
}

FileMapping::~FileMapping() {
  if (size)
    ::munmap(const_cast<void *>(address), size);
}
