// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/WriteFile.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace refold;

using Parts = std::vector<std::string_view>;

/// A full disk is a limit; a folder that is missing or closed is a wrong path.
WriteFailure refold::writeFailure(const std::string &path, int code) {
  bool isFull = code == ENOSPC || code == EDQUOT || code == EFBIG;
  std::string why = std::strerror(code);
  for (char &one : why)
    if (one >= 'A' && one <= 'Z')
      one = char(one - 'A' + 'a');
  return {isFull ? ExitCode::Limit : ExitCode::Model,
          path + ": not written: " + why};
}

/// Writes all bytes; errno of the failing call, or 0.
static int writeAll(int descriptor, const Parts &parts) {
  for (std::string_view bytes : parts)
    while (!bytes.empty()) {
      ssize_t written = ::write(descriptor, bytes.data(),
                                std::min<size_t>(bytes.size(), 1 << 30));
      if (written < 0 && errno == EINTR)
        continue;
      if (written < 0)
        return errno;
      bytes.remove_prefix(size_t(written));
    }
  return 0;
}

static WriteFailure writeDirectly(const std::string &path, const Parts &parts) {
  int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0)
    return writeFailure(path, errno);
  int code = writeAll(descriptor, parts);
  if (::close(descriptor) != 0 && code == 0)
    code = errno;
  return code ? writeFailure(path, code) : WriteFailure();
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

/// Where the bytes have to go; a link keeps being a link.
static std::string behindLinks(const std::string &path) {
  char *real = ::realpath(path.c_str(), nullptr);
  std::string target = real ? real : path;
  std::free(real);
  return target;
}

WriteFailure refold::writeWholeFile(const std::string &path,
                                    const Parts &parts) {
  struct stat status;
  bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode))
    return {ExitCode::Model, path + ": found a folder, expected a file"};
  if (exists && !S_ISREG(status.st_mode))
    return writeDirectly(path, parts);
  if (exists && ::access(path.c_str(), W_OK) != 0)
    return writeFailure(path, errno);

  std::string target = exists ? behindLinks(path) : path;
  size_t nameAt = target.rfind('/') + 1; // 0 where there is no folder
  std::string folder = target.substr(0, nameAt);
  std::string temporary = folder + "." + target.substr(nameAt) + ".XXXXXX";
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
    code = writeAll(descriptor, parts);
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
  return {};
}
