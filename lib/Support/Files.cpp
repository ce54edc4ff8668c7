// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/Files.h"
#include "refold/Support/Error.h"
#include "refold/Support/WriteFile.h"
#include "llvm/Support/FileSystem.h"

namespace refold {

llvm::Error writeFileAtomically(llvm::StringRef path, llvm::StringRef bytes) {
  WriteFailure failure = writeWholeFile(path.str(), {bytes});
  return failure ? fail(failure.code, failure.message) : llvm::Error::success();
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
