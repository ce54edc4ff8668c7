// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Zip.h"
#include "refold/Support/Error.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Endian.h"
#include <zlib.h>

namespace refold {

using llvm::support::endian::read16le;
using llvm::support::endian::read32le;

namespace {

constexpr uint32_t kLocalMagic = 0x04034b50, kEntryMagic = 0x02014b50,
                   kEndMagic = 0x06054b50;
constexpr size_t kLocalSize = 30, kEntrySize = 46, kEndSize = 22;
/// Deflate writes at most this many bytes for one it reads.
constexpr uint64_t kMaxRatio = 1032;
/// What all members together may unpack to.
constexpr uint64_t kMaxUnpacked = uint64_t(8) << 30;
constexpr uint16_t kStored = 0, kDeflated = 8;

struct Entry {
  std::string name;
  uint16_t flags, method;
  uint32_t checksum, packedSize, size, localOffset;
};

llvm::Error zipError(llvm::StringRef where, size_t offset,
                     const llvm::Twine &text) {
  return fail(ExitCode::Model,
              where + ": byte " + llvm::Twine(offset) + ": " + text);
}

/// Offset of the end-of-directory record: the last one, behind which only its
/// comment follows.
std::optional<size_t> findEnd(llvm::StringRef bytes) {
  if (bytes.size() < kEndSize)
    return std::nullopt;
  size_t first = bytes.size() - kEndSize;
  for (size_t back = 0; back <= std::min<size_t>(first, 0xffff); ++back)
    if (read32le(bytes.data() + first - back) == kEndMagic &&
        read16le(bytes.data() + first - back + 20) == back)
      return first - back;
  return std::nullopt;
}

llvm::Expected<Entry> parseEntry(llvm::StringRef bytes, size_t &offset,
                                 size_t end, llvm::StringRef where) {
  if (end - offset < kEntrySize ||
      read32le(bytes.data() + offset) != kEntryMagic)
    return zipError(where, offset, "found no directory entry, expected one");
  const char *p = bytes.data() + offset;
  size_t nameSize = read16le(p + 28),
         tail = read16le(p + 30) + size_t(read16le(p + 32));
  if (end - offset - kEntrySize < nameSize + tail)
    return zipError(where, offset, "found a directory entry that is cut off");
  Entry entry{std::string(p + kEntrySize, nameSize),
              read16le(p + 8),
              read16le(p + 10),
              read32le(p + 16),
              read32le(p + 20),
              read32le(p + 24),
              read32le(p + 42)};
  if (entry.packedSize == 0xffffffff || entry.size == 0xffffffff ||
      entry.localOffset == 0xffffffff)
    return fail(ExitCode::Limit,
                where + ": member '" + entry.name +
                    "': found zip64 sizes, expected less than 4 GiB");
  offset += kEntrySize + nameSize + tail;
  return entry;
}

/// The packed bytes of a member.
llvm::Expected<llvm::StringRef>
locate(llvm::StringRef bytes, const Entry &entry, llvm::StringRef where) {
  size_t offset = entry.localOffset;
  if (bytes.size() < kLocalSize || offset > bytes.size() - kLocalSize ||
      read32le(bytes.data() + offset) != kLocalMagic)
    return zipError(where, offset,
                    "found no local header of member '" + entry.name + "'");
  size_t begin = offset + kLocalSize + read16le(bytes.data() + offset + 26) +
                 read16le(bytes.data() + offset + 28);
  if (begin > bytes.size() || entry.packedSize > bytes.size() - begin)
    return zipError(where, offset,
                    "found member '" + entry.name + "' cut off, expected " +
                        llvm::Twine(entry.packedSize) + " bytes");
  return bytes.substr(begin, entry.packedSize);
}

/// Empty where the stream is broken or has another size than the directory
/// says.
std::optional<std::string> inflateMember(llvm::StringRef packed,
                                         uint32_t size) {
  std::string result(size, '\0');
  z_stream stream = {};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
    return std::nullopt;
  stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(packed.data()));
  stream.avail_in = packed.size();
  Bytef nothing = 0;
  stream.next_out = size ? reinterpret_cast<Bytef *>(result.data()) : &nothing;
  stream.avail_out = size;
  int code = inflate(&stream, Z_FINISH);
  bool isWhole = code == Z_STREAM_END && stream.total_out == size;
  inflateEnd(&stream);
  if (!isWhole)
    return std::nullopt;
  return result;
}

llvm::Expected<std::string> unpack(llvm::StringRef packed, const Entry &entry,
                                   llvm::StringRef where) {
  std::string place = (where + ": member '" + entry.name + "': ").str();
  if (entry.flags & 1)
    return fail(ExitCode::Unsupported,
                place + "found encryption, expected none");
  std::string result;
  if (entry.method == kStored) {
    if (entry.size != entry.packedSize)
      return fail(ExitCode::Model,
                  place + "found " + llvm::Twine(entry.packedSize) +
                      " stored bytes, expected " + llvm::Twine(entry.size));
    result = packed.str();
  } else if (entry.method == kDeflated) {
    if (entry.size > uint64_t(entry.packedSize) * kMaxRatio)
      return fail(ExitCode::Model, place + "found a size of " +
                                       llvm::Twine(entry.size) + " for " +
                                       llvm::Twine(entry.packedSize) +
                                       " packed bytes");
    std::optional<std::string> inflated = inflateMember(packed, entry.size);
    if (!inflated)
      return fail(ExitCode::Model, place +
                                       "found broken deflate data, expected " +
                                       llvm::Twine(entry.size) + " bytes");
    result = std::move(*inflated);
  } else {
    return fail(ExitCode::Unsupported, place + "found compression method " +
                                           llvm::Twine(entry.method) +
                                           ", expected stored or deflate");
  }
  uLong checksum =
      crc32_z(0, reinterpret_cast<const Bytef *>(result.data()), result.size());
  if (checksum != entry.checksum)
    return fail(ExitCode::Model,
                place + "found checksum " + llvm::utohexstr(checksum, true) +
                    ", expected " + llvm::utohexstr(entry.checksum, true));
  return result;
}

} // namespace

llvm::Expected<std::vector<ZipMember>> parseZip(llvm::StringRef bytes,
                                                llvm::StringRef where) {
  std::optional<size_t> end = findEnd(bytes);
  if (!end)
    return zipError(where, bytes.size(),
                    "found no end of a zip directory, expected one");
  size_t count = read16le(bytes.data() + *end + 10);
  size_t size = read32le(bytes.data() + *end + 12),
         offset = read32le(bytes.data() + *end + 16);
  if (offset > *end || size > *end - offset)
    return zipError(where, *end, "found a zip directory outside the file");
  std::vector<ZipMember> members;
  llvm::StringSet<> names;
  // Members may overlap in a hostile file; what all of them unpack to is
  // bounded too.
  uint64_t total = 0, unpacked = 0;
  for (size_t i = 0; i < count; ++i) {
    llvm::Expected<Entry> entry = parseEntry(bytes, offset, *end, where);
    if (!entry)
      return entry.takeError();
    if (!names.insert(entry->name).second)
      return fail(ExitCode::Model,
                  where + ": member '" + entry->name + "': found twice");
    total += entry->packedSize;
    unpacked += entry->size;
    if (unpacked > kMaxUnpacked)
      return fail(ExitCode::Limit,
                  where + ": member '" + entry->name + "': found more than " +
                      llvm::Twine(kMaxUnpacked) + " bytes unpacked");
    if (total > bytes.size())
      return fail(ExitCode::Model, where + ": member '" + entry->name +
                                       "': found overlapping members");
    llvm::Expected<llvm::StringRef> packed = locate(bytes, *entry, where);
    if (!packed)
      return packed.takeError();
    llvm::Expected<std::string> data = unpack(*packed, *entry, where);
    if (!data)
      return data.takeError();
    members.push_back({std::move(entry->name), std::move(*data)});
  }
  return members;
}

static void append16(std::string &out, uint16_t value) {
  out += {static_cast<char>(value), static_cast<char>(value >> 8)};
}
static void append32(std::string &out, uint32_t value) {
  append16(out, value);
  append16(out, value >> 16);
}

llvm::Expected<std::string> formatZip(llvm::ArrayRef<ZipMember> members) {
  constexpr uint16_t version = 20, utf8Names = 0x0800;
  constexpr uint16_t midnight = 0, firstOf1980 = 0x21;
  if (members.size() > 0xffff)
    return fail(ExitCode::Limit,
                "an .npz file of more than 65535 members is not written");
  std::string out, directory;
  for (const ZipMember &member : members) {
    if (out.size() + member.bytes.size() >= 0xfff00000u ||
        member.name.size() > 0xffff)
      return fail(ExitCode::Limit, "an .npz file above 4 GiB is not written");
    uint32_t offset = out.size();
    std::string shared;
    append16(shared, version);
    append16(shared, utf8Names);
    append16(shared, kStored);
    append16(shared, midnight);
    append16(shared, firstOf1980);
    append32(shared,
             crc32_z(0, reinterpret_cast<const Bytef *>(member.bytes.data()),
                     member.bytes.size()));
    append32(shared, member.bytes.size());
    append32(shared, member.bytes.size());
    append16(shared, member.name.size());
    append16(shared, 0);
    append32(out, kLocalMagic);
    out += shared + member.name + member.bytes;
    append32(directory, kEntryMagic);
    append16(directory, version);
    directory += shared;
    for (int i = 0; i < 5; ++i) // no comment, disk 0, no attributes
      append16(directory, 0);
    append32(directory, offset);
    directory += member.name;
  }
  uint32_t offset = out.size();
  out += directory;
  append32(out, kEndMagic);
  append32(out, 0);
  append16(out, members.size());
  append16(out, members.size());
  append32(out, directory.size());
  append32(out, offset);
  append16(out, 0);
  return out;
}

} // namespace refold
