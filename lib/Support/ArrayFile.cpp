// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/ArrayFile.h"
#include "Zip.h"
#include "refold/Support/Error.h"
#include "refold/Support/Files.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"
#include <cstring>

namespace refold {

namespace {

constexpr llvm::StringLiteral kMagic("\x93NUMPY");
/// NumPy itself writes headers of a few hundred bytes.
constexpr size_t kMaxHeader = 1 << 16;
constexpr size_t kMaxRank = 32;
constexpr uint64_t kMaxFile = uint64_t(1) << 40;

struct Header {
  DType dtype = DType::F32;
  bool isSwapped = false, isFortran = false;
  llvm::SmallVector<int64_t, 4> shape;
};

/// Reads the Python dictionary in the header of an .npy file: strings, True,
/// False and tuples of integers, nothing else.
class HeaderParser {
public:
  HeaderParser(llvm::StringRef text, size_t base, llvm::StringRef where,
               std::optional<DType> wanted)
      : text(text), base(base), where(where), wanted(wanted) {}

  llvm::Expected<Header> parse();

private:
  llvm::Error expected(const llvm::Twine &what,
                       ExitCode code = ExitCode::Model);
  void skipSpace() {
    while (position < text.size() && llvm::isSpace(text[position]))
      ++position;
  }
  bool accept(char c) {
    skipSpace();
    if (position == text.size() || text[position] != c)
      return false;
    ++position;
    return true;
  }
  llvm::Error parseString(llvm::StringRef &result);
  llvm::Error parseBool(bool &result);
  llvm::Error parseShape();
  llvm::Error parseDescr();
  llvm::Error parseEntry(llvm::StringRef key);

  llvm::StringRef text;
  size_t base, position = 0;
  llvm::StringRef where;
  std::optional<DType> wanted;
  Header header;
};

llvm::Error HeaderParser::expected(const llvm::Twine &what, ExitCode code) {
  skipSpace();
  llvm::StringRef rest = text.substr(position);
  std::string found = "the end of the header";
  if (!rest.empty()) {
    std::string shown;
    llvm::raw_string_ostream os(shown);
    llvm::printEscapedString(
        rest.take_while([](char c) { return !llvm::isSpace(c); })
            .take_front(16),
        os);
    found = "'" + os.str() + "'";
  }
  return fail(code, where + ": byte " + llvm::Twine(base + position) +
                        ": found " + found + ", expected " + what);
}

llvm::Error HeaderParser::parseString(llvm::StringRef &result) {
  skipSpace();
  char quote = position < text.size() ? text[position] : 0;
  if (quote != '\'' && quote != '"')
    return expected("a quoted string");
  size_t end = text.find(quote, position + 1);
  if (end == llvm::StringRef::npos)
    return expected("a closing quote");
  result = text.slice(position + 1, end);
  position = end + 1;
  return llvm::Error::success();
}

llvm::Error HeaderParser::parseBool(bool &result) {
  skipSpace();
  llvm::StringRef rest = text.substr(position);
  result = rest.starts_with("True");
  if (!result && !rest.starts_with("False"))
    return expected("True or False");
  position += result ? 4 : 5;
  return llvm::Error::success();
}

llvm::Error HeaderParser::parseShape() {
  if (!accept('('))
    return expected("'('");
  header.shape.clear();
  while (!accept(')')) {
    if (!header.shape.empty() && !accept(','))
      return expected("',' or ')'");
    if (!header.shape.empty() && accept(')'))
      break;
    skipSpace();
    llvm::StringRef digits = text.substr(position).take_while(llvm::isDigit);
    int64_t extent = 0;
    if (digits.empty())
      return expected("an extent of at least 0");
    if (digits.getAsInteger(10, extent))
      return expected("an extent below 2^63", ExitCode::Limit);
    if (header.shape.size() == kMaxRank)
      return expected("at most " + llvm::Twine(kMaxRank) + " extents",
                      ExitCode::Limit);
    position += digits.size();
    header.shape.push_back(extent);
    if (position < text.size() && text[position] == 'L')
      ++position; // written by Python 2
  }
  return llvm::Error::success();
}

llvm::Error HeaderParser::parseDescr() {
  static constexpr std::pair<llvm::StringLiteral, DType> kinds[] = {
      {"f8", DType::F64},  {"f4", DType::F32},    {"f2", DType::F16},
      {"V2", DType::BF16}, {"V1", DType::F8E4M3}, {"i8", DType::I64},
      {"i4", DType::I32},  {"i1", DType::I8},     {"u1", DType::U8},
      {"b1", DType::Bool},
  };
  skipSpace();
  size_t start = position;
  llvm::StringRef descr;
  if (text.substr(position).starts_with("["))
    return expected("one type for all elements", ExitCode::Unsupported);
  if (llvm::Error error = parseString(descr))
    return error;
  bool isBig = descr.starts_with(">");
  for (const auto &[kind, dtype] : kinds)
    if (descr.size() == 3 && llvm::StringRef("<>|=").contains(descr[0]) &&
        descr.drop_front() == kind) {
      header.dtype = dtype;
      if (kind == "V1" && wanted && isFloat(*wanted) && byteWidth(*wanted) == 1)
        header.dtype = *wanted;
      header.isSwapped = isBig && byteWidth(dtype) > 1;
      return llvm::Error::success();
    }
  position = start;
  // "<c8" is a type of NumPy's, and "float" is none.
  llvm::StringRef type = descr.ltrim("<>|=");
  bool isType =
      !type.empty() &&
      llvm::StringRef("?bBhHiIlLqQefdgcuFDGSaUVOMm").contains(type.front()) &&
      llvm::all_of(type.drop_front().split('[').first, llvm::isDigit);
  return expected("a type of f8 f4 f2 i8 i4 i1 u1 b1 V2 (bf16) V1 (f8) after "
                  "its byte order",
                  isType ? ExitCode::Unsupported : ExitCode::Model);
}

llvm::Error HeaderParser::parseEntry(llvm::StringRef key) {
  if (key == "descr")
    return parseDescr();
  if (key == "fortran_order")
    return parseBool(header.isFortran);
  if (key == "shape")
    return parseShape();
  return expected("only the keys descr, fortran_order and shape");
}

llvm::Expected<Header> HeaderParser::parse() {
  llvm::SmallVector<llvm::StringRef, 3> seen;
  if (!accept('{'))
    return expected("'{'");
  while (!accept('}')) {
    if (!seen.empty() && !accept(','))
      return expected("',' or '}'");
    if (!seen.empty() && accept('}'))
      break;
    llvm::StringRef key;
    if (llvm::Error error = parseString(key))
      return std::move(error);
    if (llvm::is_contained(seen, key))
      return expected("each key once, but '" + key + "' came twice");
    if (!accept(':'))
      return expected("':'");
    if (llvm::Error error = parseEntry(key))
      return std::move(error);
    seen.push_back(key);
  }
  skipSpace();
  if (position != text.size())
    return expected("nothing after the dictionary");
  if (seen.size() != 3)
    return expected("the keys descr, fortran_order and shape");
  return header;
}

/// Splits the fixed part off: where the dictionary begins and how long it is.
llvm::Expected<std::pair<size_t, size_t>> locateHeader(llvm::StringRef bytes,
                                                       llvm::StringRef where) {
  if (!bytes.starts_with(kMagic))
    return fail(
        ExitCode::Model,
        where +
            ": byte 0: found another file type, expected the magic \\x93NUMPY");
  if (bytes.size() < 10)
    return fail(ExitCode::Model,
                where + ": byte 6: found the end of the file, expected a "
                        "version and a header size");
  int version = static_cast<unsigned char>(bytes[6]);
  if (version < 1 || version > 3)
    return fail(ExitCode::Unsupported, where + ": byte 6: found version " +
                                           llvm::Twine(version) +
                                           ", expected 1, 2 or 3");
  size_t fixed = version == 1 ? 10 : 12;
  if (bytes.size() < fixed)
    return fail(
        ExitCode::Model,
        where + ": byte 8: found the end of the file, expected a header size");
  size_t size = version == 1
                    ? llvm::support::endian::read16le(bytes.data() + 8)
                    : llvm::support::endian::read32le(bytes.data() + 8);
  if (size > kMaxHeader)
    return fail(ExitCode::Limit,
                where + ": byte 8: found a header of " + llvm::Twine(size) +
                    " bytes, expected at most " + llvm::Twine(kMaxHeader));
  if (size > bytes.size() - fixed)
    return fail(ExitCode::Model,
                where + ": byte 8: found a header of " + llvm::Twine(size) +
                    " bytes, expected at most the " +
                    llvm::Twine(bytes.size() - fixed) + " that follow");
  return std::pair(fixed, size);
}

void swapBytes(Tensor &tensor) {
  unsigned width = byteWidth(tensor.dtype());
  char *data = static_cast<char *>(tensor.data());
  for (int64_t i = 0, e = tensor.numElements(); i < e; ++i)
    std::reverse(data + i * width, data + (i + 1) * width);
}

llvm::StringRef descrOf(DType dtype) {
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
  llvm_unreachable("every dtype is a case");
}

} // namespace

llvm::Expected<Tensor> parseNpy(llvm::StringRef bytes, llvm::StringRef where,
                                std::optional<DType> wanted) {
  llvm::Expected<std::pair<size_t, size_t>> place = locateHeader(bytes, where);
  if (!place)
    return place.takeError();
  auto [begin, size] = *place;
  llvm::Expected<Header> header =
      HeaderParser(bytes.substr(begin, size), begin, where, wanted).parse();
  if (!header)
    return header.takeError();
  unsigned width = byteWidth(header->dtype);
  std::optional<int64_t> count = checkedNumElements(header->shape, width);
  if (!count)
    return fail(ExitCode::Limit, where + ": byte " + llvm::Twine(begin) +
                                     ": found a shape beyond 2^62 bytes");
  // The size is held against the file before anything is allocated.
  llvm::StringRef data = bytes.substr(begin + size);
  if (data.size() != static_cast<uint64_t>(*count) * width)
    return fail(ExitCode::Model, where + ": byte " + llvm::Twine(begin + size) +
                                     ": found " + llvm::Twine(data.size()) +
                                     " bytes of data, expected " +
                                     llvm::Twine(*count * width));
  llvm::SmallVector<int64_t, 4> stored(header->shape);
  if (header->isFortran)
    std::reverse(stored.begin(), stored.end());
  llvm::Expected<Tensor> tensor = Tensor::create(header->dtype, stored);
  if (!tensor)
    return tensor;
  if (!data.empty())
    std::memcpy(tensor->data(), data.data(), data.size());
  if (header->isSwapped)
    swapBytes(*tensor);
  if (!header->isFortran)
    return tensor;
  llvm::SmallVector<int64_t, 4> strides(llvm::reverse(tensor->strides()));
  return Tensor::borrow(header->dtype, header->shape, strides, tensor->data())
      .clone();
}

llvm::Expected<std::vector<NamedTensor>> parseNpz(llvm::StringRef bytes,
                                                  llvm::StringRef where) {
  llvm::Expected<std::vector<ZipMember>> members = parseZip(bytes, where);
  if (!members)
    return members.takeError();
  std::vector<NamedTensor> result;
  for (const ZipMember &member : *members) {
    llvm::StringRef name = member.name;
    std::string place = (where + ": member '" + name + "'").str();
    if (!name.consume_back(".npy"))
      return fail(ExitCode::Model,
                  place +
                      ": found another name, expected one that ends in .npy");
    llvm::Expected<Tensor> tensor = parseNpy(member.bytes, place);
    if (!tensor)
      return tensor.takeError();
    result.push_back({name.str(), std::move(*tensor)});
  }
  return result;
}

llvm::Expected<Tensor> readNpy(llvm::StringRef path,
                               std::optional<DType> wanted) {
  auto buffer = readFile(path, kMaxFile);
  if (!buffer)
    return buffer.takeError();
  return parseNpy((*buffer)->getBuffer(), path, wanted);
}

llvm::Expected<std::vector<NamedTensor>> readNpz(llvm::StringRef path) {
  auto buffer = readFile(path, kMaxFile);
  if (!buffer)
    return buffer.takeError();
  return parseNpz((*buffer)->getBuffer(), path);
}

llvm::Expected<std::string> formatNpy(const Tensor &tensor) {
  std::string dict = ("{'descr': '" + descrOf(tensor.dtype()) +
                      "', 'fortran_order': False, 'shape': (")
                         .str();
  for (int64_t extent : tensor.shape())
    dict += std::to_string(extent) + ", ";
  // "(3, 4, )" is a Python tuple as well, but NumPy writes "(3, 4)" and "(3,)".
  if (tensor.rank() > 0)
    dict.resize(dict.size() - (tensor.rank() == 1 ? 1 : 2));
  dict += "), }";
  constexpr size_t alignment = 64, fixed = 10;
  dict.append((alignment - (fixed + dict.size() + 1) % alignment) % alignment,
              ' ');
  dict += '\n';
  std::string out = (kMagic + llvm::StringRef("\x01\x00", 2)).str();
  out += static_cast<char>(dict.size());
  out += static_cast<char>(dict.size() >> 8);
  out += dict;
  llvm::Expected<Tensor> packed =
      tensor.isRowMajor() ? llvm::Expected<Tensor>(tensor) : tensor.clone();
  if (!packed)
    return packed.takeError();
  out.append(static_cast<const char *>(packed->data()), packed->numBytes());
  return out;
}

llvm::Expected<std::string> formatNpz(llvm::ArrayRef<NamedTensor> tensors) {
  std::vector<ZipMember> members;
  for (const NamedTensor &entry : tensors) {
    llvm::Expected<std::string> bytes = formatNpy(entry.tensor);
    if (!bytes)
      return bytes.takeError();
    members.push_back({entry.name + ".npy", std::move(*bytes)});
  }
  return formatZip(members);
}

} // namespace refold
