// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Package/CubinFacts.h"
#include "gtest/gtest.h"

#include <cstring>
#include <elf.h>
#include <vector>

using namespace refold::package;

namespace {
/// The least file that has an entry, as NVRTC lays it out.
struct Section {
  std::string name, bytes;
  uint32_t type = SHT_PROGBITS;
  uint64_t size = 0; ///< of one that has no bytes
};

std::string pair(uint8_t attribute, uint32_t symbol, uint32_t value) {
  std::string text{4, char(attribute), 8, 0};
  for (uint32_t word : {symbol, value})
    text.append(reinterpret_cast<const char *>(&word), sizeof(word));
  return text;
}

std::string instruction(uint16_t kind) {
  std::string text(16, '\0');
  std::memcpy(text.data(), &kind, sizeof(kind));
  return text;
}

std::string makeCubin(bool isReserved, unsigned machine = 190) {
  std::string strings = std::string(1, '\0') + "k_rows" + '\0';
  std::string symbols(2 * sizeof(Elf64_Sym), '\0');
  Elf64_Sym symbol = {};
  symbol.st_name = 1;
  symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
  std::memcpy(symbols.data() + sizeof(symbol), &symbol, sizeof(symbol));
  std::vector<Section> sections = {
      {"", "", SHT_NULL, 0},
      {".strtab", strings, SHT_STRTAB, 0},
      {".symtab", symbols, SHT_SYMTAB, 0},
      {".nv.info", pair(0x2f, 7, 99) + pair(0x2f, 1, 40) + pair(0x11, 1, 24),
       SHT_PROGBITS, 0},
      {".text.k_rows",
       instruction(0x5387) + instruction(0x7983) + instruction(0x983) +
           instruction(0x221),
       SHT_PROGBITS, 0},
      {".nv.shared.k_rows", "", SHT_NOBITS, 2048}};
  if (isReserved)
    sections.push_back({".nv.shared.reserved.0", "", SHT_NOBITS, 0});
  std::string names;
  sections.push_back({".shstrtab", "", SHT_STRTAB, 0});
  std::vector<Elf64_Shdr> heads;
  for (const Section &section : sections) {
    Elf64_Shdr head = {};
    head.sh_name = uint32_t(names.size());
    names += section.name + '\0';
    heads.push_back(head);
  }
  sections.back().bytes = names;
  std::string file(sizeof(Elf64_Ehdr), '\0');
  for (size_t i = 0; i < sections.size(); ++i) {
    heads[i].sh_type = sections[i].type;
    heads[i].sh_offset = file.size();
    heads[i].sh_size =
        std::max<uint64_t>(sections[i].size, sections[i].bytes.size());
    file += sections[i].bytes;
  }
  Elf64_Ehdr head = {};
  std::memcpy(head.e_ident, ELFMAG, SELFMAG);
  head.e_ident[EI_CLASS] = ELFCLASS64;
  head.e_machine = uint16_t(machine);
  head.e_shentsize = sizeof(Elf64_Shdr);
  head.e_shoff = file.size();
  head.e_shnum = uint16_t(heads.size());
  head.e_shstrndx = uint16_t(heads.size() - 1);
  std::memcpy(file.data(), &head, sizeof(head));
  for (const Elf64_Shdr &one : heads)
    file.append(reinterpret_cast<const char *>(&one), sizeof(one));
  return file;
}
} // namespace

TEST(CubinFactsTest, ReadsAnEntry) {
  std::optional<EntryCode> code = readEntryCode(makeCubin(true), "k_rows");
  ASSERT_TRUE(code);
  EXPECT_EQ(code->registers, 40);
  EXPECT_EQ(code->stackBytes, 24);
  EXPECT_EQ(code->sharedBytes, 1024);
  EXPECT_EQ(code->instructions, 4);
  EXPECT_EQ(code->localStores, 1);
  EXPECT_EQ(code->localLoads, 2);
}

TEST(CubinFactsTest, TakesWhatTheSystemKeepsFromSm90On) {
  EXPECT_EQ(readEntryCode(makeCubin(false), "k_rows")->sharedBytes, 2048);
}

TEST(CubinFactsTest, RefusesWhatIsNone) {
  EXPECT_FALSE(readEntryCode("", "k_rows"));
  EXPECT_FALSE(readEntryCode(makeCubin(true), "k_row"));
  EXPECT_FALSE(readEntryCode(makeCubin(true, 62), "k_rows"));
}

/// Whatever of the file is missing or other: an answer or none, and nothing is
/// read beyond it (the sanitizers' build looks).
TEST(CubinFactsTest, TakesAnyBytes) {
  const std::string file = makeCubin(true);
  for (size_t length = 0; length < file.size(); ++length)
    readEntryCode(std::string(file, 0, length), "k_rows");
  for (size_t at = 0; at < file.size(); ++at)
    for (char other : {char(0), char(0xff), char(0x7f)}) {
      std::string changed = file;
      changed[at] = other;
      readEntryCode(changed, "k_rows");
    }
}
