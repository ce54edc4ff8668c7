// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/Files.h"
#include "refold/Support/Error.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace refold {

/// A full disk is a limit; a folder that is missing or closed is a wrong path.
static llvm::Error writeFailure(llvm::StringRef path, int code) {
  bool isFull = code == ENOSPC || code == EDQUOT || code == EFBIG;
  return fail(
      isFull ? ExitCode::Limit : ExitCode::Model,
      path + ": not written: " + llvm::StringRef(std::strerror(code)).lower());
}

/// Writes all bytes; errno of the failing call, or 0.
static int writeAll(int descriptor, llvm::StringRef bytes) {
  while (!bytes.empty()) {
    ssize_t written = ::write(descriptor, bytes.data(),
                              std::min<size_t>(bytes.size(), 1 << 30));
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return errno;
    bytes = bytes.drop_front(written);
  }
  return 0;
}

static llvm::Error writeDirectly(llvm::StringRef path, llvm::StringRef bytes) {
  int descriptor = ::open(path.str().c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0)
    return writeFailure(path, errno);
  int code = writeAll(descriptor, bytes);
  if (::close(descriptor) != 0 && code == 0)
    code = errno;
  return code ? writeFailure(path, code) : llvm::Error::success();
}

/// Makes the new name durable; a file system that cannot sync a folder is not
/// an error.
static void syncFolder(const std::string &path) {
  int descriptor = ::open(path.empty() ? "." : path.c_str(),
                          O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0)
    return;
  ::fsync(descriptor);
  ::close(descriptor);
}

llvm::Error writeFileAtomically(llvm::StringRef path, llvm::StringRef bytes) {
  struct stat status;
  std::string target = path.str();
  bool exists = ::stat(target.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode))
    return fail(ExitCode::Model, path + ": found a folder, expected a file");
  if (exists && !S_ISREG(status.st_mode))
    return writeDirectly(path, bytes);
  if (exists && ::access(target.c_str(), W_OK) != 0)
    return writeFailure(path, errno);

  // A link keeps being a link: what it points to is replaced.
  llvm::SmallString<256> real;
  if (exists && !llvm::sys::fs::real_path(path, real))
    target = real.str().str();
  std::string folder = llvm::sys::path::parent_path(target).str();
  std::string temporary = (llvm::Twine(folder) + (folder.empty() ? "" : "/") +
                           "." + llvm::sys::path::filename(target) + ".XXXXXX")
                              .str();
  int descriptor = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (descriptor < 0)
    return writeFailure(path, errno);
  mode_t mask = ::umask(0);
  ::umask(mask);
  int code =
      ::fchmod(descriptor, exists ? status.st_mode & 07777 : 0666 & ~mask)
          ? errno
          : 0;
  if (!code)
    code = writeAll(descriptor, bytes);
  if (!code && ::fsync(descriptor) != 0)
    code = errno;
  if (::close(descriptor) != 0 && !code)
    code = errno;
  if (!code && ::rename(temporary.c_str(), target.c_str()) != 0)
    code = errno;
  if (code) {
    ::unlink(temporary.c_str());
    return writeFailure(path, code);
  }
  syncFolder(folder);
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>>
readFile(llvm::StringRef path, uint64_t maxBytes) {
  llvm::sys::fs::file_status status;
  if (std::error_code code = llvm::sys::fs::status(path, status))
    return fail(ExitCode::Model, path + ": not read: " +
                                     llvm::StringRef(code.message()).lower());
  if (llvm::sys::fs::is_directory(status))
    return fail(ExitCode::Model, path + ": found a folder, expected a file");
  if (status.getSize() > maxBytes)
    return fail(ExitCode::Limit,
                path + ": found " + llvm::Twine(status.getSize()) +
                    " bytes, expected at most " + llvm::Twine(maxBytes));
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                            /*RequiresNullTerminator=*/true,
                                            /*IsVolatile=*/true);
  if (!buffer)
    return fail(ExitCode::Model,
                path + ": not read: " +
                    llvm::StringRef(buffer.getError().message()).lower());
  // A pipe has no size beforehand.
  if ((*buffer)->getBufferSize() > maxBytes)
    return fail(ExitCode::Limit,
                path + ": found more than " + llvm::Twine(maxBytes) + " bytes");
  return std::move(*buffer);
}

} // namespace refold
