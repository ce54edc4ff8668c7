// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What `ld -r` does, for objects of our own code generator: caches, packages
// and their linker see one object a kernel, however many threads wrote it.
#include "JoinObjects.h"

#include "refold/Support/Error.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MathExtras.h"
#include <cstring>
#include <elf.h>
#include <vector>

using namespace refold;

namespace {
/// An object that is read, and what its sections and symbols are in the result.
struct Part {
  llvm::StringRef bytes, names;
  std::vector<Elf64_Shdr> sections;
  std::vector<Elf64_Sym> symbols;
  std::vector<uint32_t> sectionOf, symbolOf; ///< 0: none
};

class Joiner {
public:
  llvm::Error read(llvm::StringRef bytes);
  llvm::Expected<std::string> join();

private:
  template <typename T> void append(llvm::ArrayRef<T> values) {
    out.append(reinterpret_cast<const char *>(values.data()),
               values.size() * sizeof(T));
  }
  uint32_t nameOf(llvm::StringRef name);
  void align(uint64_t bytes) { out.resize(llvm::alignTo(out.size(), bytes)); }
  void copySections(Part &part);
  void copySymbols(Part &part, bool areLocal);
  uint32_t addSymbol(const Part &part, Elf64_Sym symbol);
  llvm::Error copyRelocations(Part &part);
  void addTable(Elf64_Shdr table, llvm::StringRef name, llvm::StringRef bytes);
  void addSymbols();

  std::vector<Part> parts;
  std::string out, names;
  std::vector<Elf64_Shdr> sections;
  std::vector<Elf64_Sym> symbols;
  uint32_t numLocals = 0;
  llvm::StringMap<uint32_t> known; ///< global symbols by name
};
} // namespace

static llvm::Error wrong(llvm::StringRef what) {
  return fail(ExitCode::Internal, "joining objects: " + what);
}

/// Entries of a table that lies in `bytes`.
template <typename T>
static bool readTable(llvm::StringRef bytes, uint64_t at, uint64_t count,
                      std::vector<T> &table) {
  if (at > bytes.size() || (bytes.size() - at) / sizeof(T) < count)
    return false;
  table.resize(count);
  if (count)
    std::memcpy(table.data(), bytes.data() + at, count * sizeof(T));
  return true;
}

llvm::Error Joiner::read(llvm::StringRef bytes) {
  Part part;
  part.bytes = bytes;
  std::vector<Elf64_Ehdr> head;
  if (!readTable(bytes, 0, 1, head) ||
      !readTable(bytes, head[0].e_shoff, head[0].e_shnum, part.sections))
    return wrong("found no object");
  if (out.empty())
    append(llvm::ArrayRef(head)); // completed in the end
  for (const Elf64_Shdr &section : part.sections)
    if (section.sh_type == SHT_SYMTAB) {
      const Elf64_Shdr &strings = part.sections[section.sh_link];
      part.names = bytes.substr(strings.sh_offset, strings.sh_size);
      if (!readTable(bytes, section.sh_offset,
                     section.sh_size / sizeof(Elf64_Sym), part.symbols))
        return wrong("found no table of symbols");
    }
  part.sectionOf.assign(part.sections.size(), 0);
  part.symbolOf.assign(part.symbols.size(), 0);
  parts.push_back(std::move(part));
  return llvm::Error::success();
}

uint32_t Joiner::nameOf(llvm::StringRef name) {
  uint32_t at = uint32_t(names.size());
  names.append(name.begin(), name.end());
  names.push_back('\0');
  return at;
}

static llvm::StringRef nameAt(const Part &part, uint32_t at) {
  return part.names.substr(at).split('\0').first;
}

void Joiner::copySections(Part &part) {
  for (auto [i, section] : llvm::enumerate(part.sections)) {
    if (!(section.sh_flags & SHF_ALLOC))
      continue;
    Elf64_Shdr copy = section;
    copy.sh_name = nameOf(nameAt(part, section.sh_name));
    align(std::max<uint64_t>(section.sh_addralign, 1));
    copy.sh_offset = out.size();
    if (section.sh_type != SHT_NOBITS) {
      llvm::StringRef bytes =
          part.bytes.substr(section.sh_offset, section.sh_size);
      out.append(bytes.begin(), bytes.end());
    }
    part.sectionOf[i] = uint32_t(sections.size());
    sections.push_back(copy);
  }
}

uint32_t Joiner::addSymbol(const Part &part, Elf64_Sym symbol) {
  symbol.st_name = nameOf(nameAt(part, symbol.st_name));
  if (symbol.st_shndx != SHN_UNDEF)
    symbol.st_shndx = uint16_t(part.sectionOf[symbol.st_shndx]);
  symbols.push_back(symbol);
  return uint32_t(symbols.size() - 1);
}

/// Local symbols of what is loaded; or the global ones that are here. Those of
/// files are neither.
void Joiner::copySymbols(Part &part, bool areLocal) {
  for (auto [i, symbol] : llvm::enumerate(part.symbols)) {
    bool isLocal = ELF64_ST_BIND(symbol.st_info) == STB_LOCAL;
    if (isLocal != areLocal || symbol.st_shndx == SHN_UNDEF ||
        symbol.st_shndx >= part.sections.size() ||
        !part.sectionOf[symbol.st_shndx])
      continue;
    part.symbolOf[i] = addSymbol(part, symbol);
    if (!isLocal)
      known[nameAt(part, symbol.st_name)] = part.symbolOf[i];
  }
}

llvm::Error Joiner::copyRelocations(Part &part) {
  for (const Elf64_Shdr &section : part.sections) {
    if (section.sh_type != SHT_RELA || !part.sectionOf[section.sh_info])
      continue;
    std::vector<Elf64_Rela> relocations;
    if (!readTable(part.bytes, section.sh_offset,
                   section.sh_size / sizeof(Elf64_Rela), relocations))
      return wrong("found relocations outside of the object");
    for (Elf64_Rela &relocation : relocations) {
      uint64_t symbol = ELF64_R_SYM(relocation.r_info);
      if (symbol >= part.symbolOf.size() || !part.symbolOf[symbol])
        return wrong("found a relocation to nothing");
      relocation.r_info = ELF64_R_INFO(uint64_t(part.symbolOf[symbol]),
                                       ELF64_R_TYPE(relocation.r_info));
    }
    Elf64_Shdr table = section;
    table.sh_info = part.sectionOf[section.sh_info];
    addTable(table, nameAt(part, section.sh_name),
             {reinterpret_cast<const char *>(relocations.data()),
              relocations.size() * sizeof(Elf64_Rela)});
  }
  return llvm::Error::success();
}

void Joiner::addTable(Elf64_Shdr table, llvm::StringRef name,
                      llvm::StringRef bytes) {
  align(8);
  table.sh_name = nameOf(name);
  table.sh_offset = out.size();
  table.sh_size = bytes.size();
  out.append(bytes.begin(), bytes.end());
  sections.push_back(table);
}

/// Symbols that relocations point to, theirs, and names.
void Joiner::addSymbols() {
  uint32_t symbolsAt = uint32_t(sections.size());
  for (Elf64_Shdr &section : sections)
    if (section.sh_type == SHT_RELA)
      section.sh_link = symbolsAt;
  Elf64_Shdr table{};
  table.sh_type = SHT_SYMTAB;
  table.sh_entsize = sizeof(Elf64_Sym);
  table.sh_addralign = 8;
  table.sh_link = symbolsAt + 1;
  table.sh_info = numLocals;
  addTable(table, ".symtab",
           {reinterpret_cast<const char *>(symbols.data()),
            symbols.size() * sizeof(Elf64_Sym)});
  Elf64_Shdr strings{};
  strings.sh_type = SHT_STRTAB;
  strings.sh_addralign = 1;
  strings.sh_name = nameOf(".strtab");
  strings.sh_offset = out.size();
  strings.sh_size = names.size();
  out += names;
  sections.push_back(strings);
}

llvm::Expected<std::string> Joiner::join() {
  nameOf("");
  sections.push_back(Elf64_Shdr{});
  symbols.push_back(Elf64_Sym{});
  for (Part &part : parts)
    copySections(part);
  for (Part &part : parts)
    copySymbols(part, /*areLocal=*/true);
  numLocals = uint32_t(symbols.size());
  for (Part &part : parts)
    copySymbols(part, /*areLocal=*/false);
  for (Part &part : parts)
    for (auto [i, symbol] : llvm::enumerate(part.symbols)) {
      if (i == 0 || symbol.st_shndx != SHN_UNDEF)
        continue;
      auto [found, isNew] =
          known.try_emplace(nameAt(part, symbol.st_name), uint32_t(0));
      if (isNew)
        found->second = addSymbol(part, symbol);
      part.symbolOf[i] = found->second;
    }
  for (Part &part : parts)
    if (llvm::Error error = copyRelocations(part))
      return std::move(error);
  addSymbols();
  align(8);
  Elf64_Ehdr head;
  std::memcpy(&head, out.data(), sizeof(head));
  head.e_shoff = out.size();
  head.e_shnum = uint16_t(sections.size());
  head.e_shstrndx = uint16_t(sections.size() - 1);
  std::memcpy(out.data(), &head, sizeof(head));
  append(llvm::ArrayRef(sections));
  return std::move(out);
}

llvm::Expected<std::string>
refold::joinObjects(llvm::ArrayRef<llvm::StringRef> parts) {
  Joiner joiner;
  for (llvm::StringRef bytes : parts)
    if (llvm::Error error = joiner.read(bytes))
      return std::move(error);
  return joiner.join();
}
