// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ModelFile.h"
#include "refold/Support/Error.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include <google/protobuf/io/coded_stream.h>

using namespace refold;
using namespace refold::onnx;
using llvm::Expected;
using llvm::StringRef;
using llvm::Twine;

/// Maps a regular file; anything else (a folder, a pipe) is an error.
static Expected<std::unique_ptr<llvm::MemoryBuffer>> mapFile(StringRef path) {
  llvm::sys::fs::file_status status;
  if (std::error_code code = llvm::sys::fs::status(path, status))
    return fail(ExitCode::Model, "'" + path + "': " + code.message() +
                                     "; expected a file that can be read");
  if (status.type() != llvm::sys::fs::file_type::regular_file)
    return fail(ExitCode::Model, "'" + path +
                                     "' is not a regular file; "
                                     "expected one");
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                            /*RequiresNullTerminator=*/false);
  if (!buffer)
    return fail(ExitCode::Model, "'" + path +
                                     "': " + buffer.getError().message() +
                                     "; expected a file that can be read");
  return std::move(*buffer);
}

Expected<std::shared_ptr<ModelFile>> ModelFile::open(StringRef path) {
  auto file = mapFile(path);
  if (!file)
    return file.takeError();
  return parse(std::move(*file), path);
}

Expected<std::shared_ptr<ModelFile>>
ModelFile::parse(std::unique_ptr<llvm::MemoryBuffer> bytes, StringRef path) {
  auto result = std::make_shared<ModelFile>();
  result->path = path.str();
  result->file = std::move(bytes);
  Expected<ScannedModel> scanned = scanModel(result->file->getBuffer());
  if (!scanned)
    return fail(ExitCode::Model,
                "'" + path + "': " + llvm::toString(scanned.takeError()));
  result->payloads = std::move(scanned->payloads);
  if (scanned->rest.size() > size_t(INT32_MAX))
    return fail(ExitCode::Limit,
                "'" + path + "' has " + Twine(scanned->rest.size()) +
                    " bytes beside its weights; expected less than 2 GiB");
  if (nestsTooDeep(scanned->rest))
    return fail(ExitCode::Limit,
                "'" + path + "' has messages nested more than " +
                    Twine(kDeepestNesting) + " deep; expected fewer");
  google::protobuf::io::CodedInputStream stream(
      reinterpret_cast<const uint8_t *>(scanned->rest.data()),
      int(scanned->rest.size()));
  // The leaves of what nests: a shape of a tensor's type.
  stream.SetRecursionLimit(kDeepestNesting + 8);
  if (!result->proto.ParseFromCodedStream(&stream) ||
      !stream.ConsumedEntireMessage() ||
      result->payloads.size() !=
          size_t(result->proto.graph().initializer_size()))
    return fail(ExitCode::Model,
                "'" + path +
                    "' is no ONNX model; expected a ModelProto message");
  return result;
}

static bool hasParent(StringRef location) {
  for (auto part = llvm::sys::path::begin(location),
            end = llvm::sys::path::end(location);
       part != end; ++part)
    if (*part == "..")
      return true;
  return false;
}

/// What the entries of external_data say.
struct ExternalEntry {
  StringRef location;
  uint64_t offset = 0;
  std::optional<uint64_t> length;
};

static Expected<ExternalEntry> readEntry(const ::onnx::TensorProto &tensor) {
  ExternalEntry entry;
  for (const ::onnx::StringStringEntryProto &pair : tensor.external_data()) {
    StringRef value = pair.value();
    uint64_t number = 0;
    if (pair.key() == "location") {
      entry.location = value;
    } else if (pair.key() == "offset" || pair.key() == "length") {
      if (value.getAsInteger(10, number))
        return fail(ExitCode::Model,
                    Twine(pair.key()) + " '" + value +
                        "' of external data; expected a number");
      if (pair.key() == "offset")
        entry.offset = number;
      else
        entry.length = number;
    }
  }
  return entry;
}

Expected<StringRef> ModelFile::external(const ::onnx::TensorProto &tensor) {
  Expected<ExternalEntry> entry = readEntry(tensor);
  if (!entry)
    return entry.takeError();
  StringRef location = entry->location;
  if (location.empty() || location.contains('\0') ||
      llvm::sys::path::is_absolute(location) || hasParent(location))
    return fail(ExitCode::Model,
                "external data at '" + location +
                    "'; expected a relative path inside the model's folder");
  auto &buffer = externals[location];
  if (!buffer) {
    llvm::SmallString<256> folder(llvm::sys::path::parent_path(path)), joined,
        realFolder, realFile;
    if (folder.empty())
      folder = ".";
    joined = folder;
    llvm::sys::path::append(joined, location);
    std::error_code code = llvm::sys::fs::real_path(folder, realFolder);
    if (!code)
      code = llvm::sys::fs::real_path(joined, realFile);
    if (code)
      return fail(ExitCode::Model, "external data at '" + location +
                                       "': " + code.message() +
                                       "; expected a file that can be read");
    if (!realFolder.ends_with("/"))
      realFolder += "/";
    if (!realFile.starts_with(realFolder))
      return fail(
          ExitCode::Model,
          "external data at '" + location +
              "' links out of the model's folder; expected a file in it");
    auto mapped = mapFile(realFile);
    if (!mapped)
      return mapped.takeError();
    buffer = std::move(*mapped);
  }
  StringRef bytes = buffer->getBuffer();
  uint64_t length = entry->length.value_or(
      bytes.size() - std::min<uint64_t>(entry->offset, bytes.size()));
  if (entry->offset > bytes.size() || length > bytes.size() - entry->offset)
    return fail(ExitCode::Model,
                "external data at bytes " + Twine(entry->offset) + " to " +
                    Twine(entry->offset) + "+" + Twine(length) + " of '" +
                    location + "', which has " + Twine(bytes.size()) +
                    "; expected them inside the file");
  return bytes.substr(entry->offset, length);
}

std::vector<MappedFile> ModelFile::files() const {
  std::vector<MappedFile> all = {
      {llvm::sys::path::filename(path).str(), file->getBuffer()}};
  for (const auto &entry : externals)
    if (entry.second)
      all.push_back({entry.first().str(), entry.second->getBuffer()});
  // The order of a hash table is none.
  llvm::sort(
      all.begin() + 1, all.end(),
      [](const MappedFile &a, const MappedFile &b) { return a.name < b.name; });
  return all;
}
