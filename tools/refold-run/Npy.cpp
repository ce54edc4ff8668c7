// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Npy.h"

#include "refold/Support/WriteFile.h"
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>

using namespace refold;
using namespace refold::package;

/// As NumPy spells the type.
static const char *descriptionOf(DType dtype) {
  switch (dtype) {
  case DType::F64:
    return "<f8";
  case DType::F32:
    return "<f4";
  case DType::F16:
    return "<f2";
  case DType::BF16:
    return "|V2";
  case DType::F8E4M3:
  case DType::F8E5M2:
    return "|V1";
  case DType::I64:
    return "<i8";
  case DType::I32:
    return "<i4";
  case DType::I8:
    return "|i1";
  case DType::U8:
    return "|u1";
  case DType::Bool:
    return "|b1";
  }
  return "";
}

namespace {
struct CloseFile {
  void operator()(FILE *file) const { std::fclose(file); }
};
using File = std::unique_ptr<FILE, CloseFile>;
} // namespace

/// The text behind `'key':` in the header.
static std::string valueOf(const std::string &header, const std::string &key) {
  size_t at = header.find("'" + key + "':");
  if (at == std::string::npos)
    return "";
  at += key.size() + 3;
  while (at < header.size() && header[at] == ' ')
    ++at;
  size_t end = header.find(header[at] == '(' ? ')' : ',', at);
  return header.substr(at, end == std::string::npos ? end : end - at);
}

static bool parseShape(const std::string &text, std::vector<int64_t> &shape) {
  if (text.empty() || text[0] != '(')
    return false;
  for (size_t at = 1; at < text.size();) {
    if (text[at] == ' ' || text[at] == ',') {
      ++at;
      continue;
    }
    int64_t extent = 0;
    size_t first = at;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
      if (__builtin_mul_overflow(extent, 10, &extent) ||
          __builtin_add_overflow(extent, text[at] - '0', &extent))
        return false;
    if (at == first)
      return false;
    shape.push_back(extent);
  }
  return true;
}

/// Both in quotes. The byte order may be left open, or be said of what has
/// none: ml_dtypes writes bf16 as '<V2'.
static bool isSpelling(const std::string &description,
                       const std::string &expected) {
  constexpr size_t kOrderAt = 1;
  if (description.size() <= kOrderAt ||
      std::strchr("<|=", description[kOrderAt]) == nullptr)
    return false;
  std::string same = description;
  same[kOrderAt] = expected[kOrderAt];
  return same == expected;
}

Problem package::growArray(Array &array, size_t size, size_t total) {
  try {
    array.bytes.resize(size);
  } catch (const std::exception &) { // bad_alloc, length_error
    return problem(ExitCode::Limit, "no memory for an array of " +
                                        std::to_string(total) + " bytes");
  }
  return {};
}

Outcome<Array> package::readNpy(const std::string &path, DType wanted) {
  auto wrong = [&](const std::string &what) {
    return problem(ExitCode::Model, path + ": " + what);
  };
  File file(std::fopen(path.c_str(), "rb"));
  if (!file)
    return wrong(std::strerror(errno));
  unsigned char head[12];
  if (std::fread(head, 1, 10, file.get()) != 10 ||
      std::memcmp(head, "\x93NUMPY", 6) != 0)
    return wrong("found no .npy file");
  size_t bytes = head[8] | size_t(head[9]) << 8;
  if (head[6] >= 2) {
    if (std::fread(head + 10, 1, 2, file.get()) != 2)
      return wrong("the header is cut off");
    bytes |= size_t(head[10]) << 16 | size_t(head[11]) << 24;
  }
  constexpr size_t kMostHeader = 1 << 20;
  if (bytes > kMostHeader)
    return wrong("the header is too long");
  std::string header(bytes, ' ');
  if (std::fread(header.data(), 1, bytes, file.get()) != bytes)
    return wrong("the header is cut off");
  std::string description = valueOf(header, "descr");
  std::string expected = "'" + std::string(descriptionOf(wanted)) + "'";
  if (!isSpelling(description, expected))
    return wrong("found elements of type " + description + ", expected " +
                 expected);
  if (valueOf(header, "fortran_order") != "False")
    return wrong("found an array in Fortran order, expected C order");
  Array array;
  array.dtype = wanted;
  if (!parseShape(valueOf(header, "shape"), array.shape))
    return wrong("found no shape");
  std::optional<int64_t> count =
      checkedNumElements(array.shape, byteWidth(wanted));
  if (!count)
    return problem(ExitCode::Limit, path + ": the array is too large");
  // Read piece by piece: a header may promise more than there is.
  constexpr size_t kPiece = size_t(64) << 20;
  size_t total = size_t(*count) * byteWidth(wanted);
  while (array.bytes.size() < total) {
    size_t at = array.bytes.size(), piece = std::min(kPiece, total - at);
    if (Problem error = growArray(array, at + piece, total))
      return error;
    if (std::fread(array.bytes.data() + at, 1, piece, file.get()) != piece)
      return wrong("the array is cut off");
  }
  return array;
}

Problem package::writeNpy(const std::string &path, const Array &array) {
  std::string shape;
  for (int64_t extent : array.shape)
    shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
  if (array.shape.size() == 1)
    shape += ",";
  std::string header = "{'descr': '" + std::string(descriptionOf(array.dtype)) +
                       "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize((header.size() + 1 + 10 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  std::string head = "\x93NUMPY";
  head += {1, 0, char(header.size() & 255), char(header.size() >> 8)};
  head += header;
  WriteFailure failure =
      writeWholeFile(path, {head, {array.bytes.data(), array.bytes.size()}});
  return {failure.code, std::move(failure.message)};
}
