// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Package/CubinFacts.h"

#include <cstring>
#include <elf.h>
#include <vector>

using namespace refold;
using namespace refold::package;

namespace {
/// A file whose parts are read where they are inside it.
class Cubin {
public:
  explicit Cubin(std::string_view bytes) : bytes(bytes) {}
  bool open();
  std::optional<std::string_view> section(const std::string &name) const;
  /// Bytes that a section has in memory, of one that has none in the file too.
  std::optional<int64_t> sizeOf(const std::string &name) const;
  std::optional<uint32_t> symbolOf(const std::string &entry) const;

private:
  template <typename T> bool read(uint64_t at, T &value) const {
    if (at > bytes.size() || bytes.size() - at < sizeof(T))
      return false;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    return true;
  }
  std::string_view nameAt(std::string_view table, uint64_t at) const {
    if (at >= table.size())
      return {};
    std::string_view rest = table.substr(at);
    return rest.substr(0, rest.find('\0'));
  }
  std::optional<std::string_view> contents(const Elf64_Shdr &section) const {
    if (section.sh_type == SHT_NOBITS || section.sh_offset > bytes.size() ||
        section.sh_size > bytes.size() - section.sh_offset)
      return std::nullopt;
    return bytes.substr(section.sh_offset, section.sh_size);
  }
  const Elf64_Shdr *find(const std::string &name) const {
    for (const Elf64_Shdr &section : sections)
      if (nameAt(names, section.sh_name) == name)
        return &section;
    return nullptr;
  }

  std::string_view bytes, names;
  std::vector<Elf64_Shdr> sections;
};
} // namespace

bool Cubin::open() {
  constexpr unsigned kCuda = 190; // EM_CUDA
  Elf64_Ehdr head;
  if (!read(0, head) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
      head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_machine != kCuda ||
      head.e_shentsize != sizeof(Elf64_Shdr))
    return false;
  for (unsigned i = 0; i < head.e_shnum; ++i) {
    Elf64_Shdr section;
    if (!read(head.e_shoff + uint64_t(i) * sizeof(section), section))
      return false;
    sections.push_back(section);
  }
  if (head.e_shstrndx >= sections.size())
    return false;
  std::optional<std::string_view> table = contents(sections[head.e_shstrndx]);
  names = table.value_or(std::string_view());
  return table.has_value();
}

std::optional<std::string_view> Cubin::section(const std::string &name) const {
  const Elf64_Shdr *found = find(name);
  return found ? contents(*found) : std::nullopt;
}

std::optional<int64_t> Cubin::sizeOf(const std::string &name) const {
  const Elf64_Shdr *found = find(name);
  if (!found || found->sh_size > INT32_MAX)
    return std::nullopt;
  return int64_t(found->sh_size);
}

std::optional<uint32_t> Cubin::symbolOf(const std::string &entry) const {
  std::optional<std::string_view> table = section(".symtab"),
                                  strings = section(".strtab");
  if (!table || !strings)
    return std::nullopt;
  for (size_t i = 0; (i + 1) * sizeof(Elf64_Sym) <= table->size(); ++i) {
    Elf64_Sym symbol;
    std::memcpy(&symbol, table->data() + i * sizeof(symbol), sizeof(symbol));
    if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
        nameAt(*strings, symbol.st_name) == entry)
      return uint32_t(i);
  }
  return std::nullopt;
}

/// The number that `.nv.info` has of a symbol for an attribute.
static std::optional<int64_t> attributeOf(std::string_view info,
                                          uint8_t attribute, uint32_t symbol) {
  constexpr uint8_t kSized = 4; // EIFMT_SVAL
  for (size_t at = 0; at + 4 <= info.size();) {
    auto format = uint8_t(info[at]), found = uint8_t(info[at + 1]);
    uint16_t size = 0;
    std::memcpy(&size, info.data() + at + 2, sizeof(size));
    at += 4;
    if (format != kSized)
      continue;
    if (size > info.size() - at)
      return std::nullopt;
    uint32_t pair[2];
    if (found == attribute && size >= sizeof(pair)) {
      std::memcpy(pair, info.data() + at, sizeof(pair));
      if (pair[0] == symbol)
        return pair[1];
    }
    at += size;
  }
  return std::nullopt;
}

std::optional<EntryCode> package::readEntryCode(std::string_view cubin,
                                                const std::string &entry) {
  // EIATTR_FRAME_SIZE and EIATTR_REGCOUNT; an instruction has 16 bytes, of
  // which the lowest 12 bits say what it is (STL, LDL).
  constexpr uint8_t kFrameSize = 0x11, kRegisterCount = 0x2f;
  constexpr size_t kInstruction = 16;
  constexpr uint16_t kKind = 0xfff, kStoreLocal = 0x387, kLoadLocal = 0x983;
  Cubin file(cubin);
  if (!file.open())
    return std::nullopt;
  std::optional<uint32_t> symbol = file.symbolOf(entry);
  std::optional<std::string_view> info = file.section(".nv.info"),
                                  code = file.section(".text." + entry);
  if (!symbol || !info || !code)
    return std::nullopt;
  std::optional<int64_t> registers =
      attributeOf(*info, kRegisterCount, *symbol);
  if (!registers)
    return std::nullopt;
  EntryCode found;
  found.registers = *registers;
  found.stackBytes = attributeOf(*info, kFrameSize, *symbol).value_or(0);
  found.sharedBytes = file.sizeOf(".nv.shared." + entry).value_or(0);
  // From sm_90 on what the system keeps of every block stands there, too.
  constexpr int64_t kReserved = 1024;
  if (file.sizeOf(".nv.shared.reserved.0") && found.sharedBytes >= kReserved)
    found.sharedBytes -= kReserved;
  found.instructions = int64_t(code->size() / kInstruction);
  for (size_t at = 0; at + kInstruction <= code->size(); at += kInstruction) {
    uint16_t kind = 0;
    std::memcpy(&kind, code->data() + at, sizeof(kind));
    found.localStores += (kind & kKind) == kStoreLocal;
    found.localLoads += (kind & kKind) == kLoadLocal;
  }
  return found;
}
