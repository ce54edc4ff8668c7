// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A linker for what our code generator writes: position independent objects
// for x86-64 whose only foreign symbols are functions. LLVM's takes longer to
// set up than a kernel from the disk cache may cost; this one is done in 0.1
// ms, and needs no LLVM.
#include "refold/Package/ObjectCode.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <elf.h>
#include <span>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

using namespace refold;
using namespace refold::package;

static Problem wrong(const std::string &what) {
  return problem(ExitCode::Internal, "loading generated code: " + what);
}

static uint64_t alignTo(uint64_t at, uint64_t alignment) {
  return (at + alignment - 1) & ~(alignment - 1);
}

namespace refold::package {

/// Pages that hold one object: code first, then calls of foreign functions,
/// then data.
class ObjectLinker {
public:
  ObjectLinker(std::string_view file, ObjectCode &code)
      : file(file), code(code) {}
  Problem link();

private:
  /// Where an object's foreign functions are called: calls reach 2 GB, which
  /// libm may be away from here.
  static constexpr uint64_t kStubBytes = 16;
  static constexpr uint64_t kNowhere = ~uint64_t(0);

  Problem parse();
  Problem layOut();
  Problem copySections();
  Problem addStubs();
  Problem relocate();
  Problem apply(const Elf64_Rela &relocation, size_t section);
  Problem findFunctions();
  Problem protect();
  Outcome<uint64_t> addressOf(const Elf64_Sym &symbol) const;

  /// Entries of a table, all of which lie in the file.
  template <typename T>
  bool read(uint64_t at, uint64_t count, std::vector<T> &table) const {
    if (count > file.size() / sizeof(T) || at > file.size() ||
        file.size() - at < count * sizeof(T))
      return false;
    table.resize(count);
    if (count)
      std::memcpy(table.data(), file.data() + at, count * sizeof(T));
    return true;
  }
  bool isLoaded(const Elf64_Shdr &section) const {
    return (section.sh_flags & SHF_ALLOC) && section.sh_size;
  }
  static bool isForeign(const Elf64_Sym &symbol) {
    return symbol.st_shndx == SHN_UNDEF;
  }
  /// The name of a symbol; empty where it has none, or lies outside.
  std::string_view nameOf(const Elf64_Sym &symbol) const {
    if (symbol.st_name >= names.size())
      return {};
    std::string_view rest = names.substr(symbol.st_name);
    return rest.substr(0, rest.find('\0'));
  }

  std::string_view file, names;
  ObjectCode &code;
  std::vector<Elf64_Shdr> sections;
  std::vector<Elf64_Sym> symbols;
  std::vector<uint64_t> offsets; ///< of sections in the pages
  uint64_t codeBytes = 0, stubsAt = 0;
  std::map<std::string_view, uint64_t> stubs; ///< their addresses
};

} // namespace refold::package

Problem ObjectLinker::parse() {
  std::vector<Elf64_Ehdr> head;
  if (!read(0, 1, head) || std::memcmp(head[0].e_ident, ELFMAG, SELFMAG) != 0 ||
      head[0].e_ident[EI_CLASS] != ELFCLASS64 ||
      head[0].e_machine != EM_X86_64 || head[0].e_type != ET_REL ||
      head[0].e_shentsize != sizeof(Elf64_Shdr))
    return wrong("found no object for x86-64");
  if (!read(head[0].e_shoff, head[0].e_shnum, sections))
    return wrong("found sections outside of the object");
  for (const Elf64_Shdr &section : sections) {
    bool hasBytes =
        section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL;
    if (hasBytes && (section.sh_offset > file.size() ||
                     section.sh_size > file.size() - section.sh_offset))
      return wrong("found a section outside of the object");
    if (section.sh_type != SHT_SYMTAB)
      continue;
    if (!symbols.empty() || section.sh_link >= sections.size() ||
        sections[section.sh_link].sh_type != SHT_STRTAB ||
        !read(section.sh_offset, section.sh_size / sizeof(Elf64_Sym), symbols))
      return wrong("found no table of symbols");
    const Elf64_Shdr &strings = sections[section.sh_link];
    if (strings.sh_offset > file.size() ||
        strings.sh_size > file.size() - strings.sh_offset)
      return wrong("found a section outside of the object");
    names = file.substr(strings.sh_offset, strings.sh_size);
  }
  return {};
}

Problem ObjectLinker::layOut() {
  uint64_t page = uint64_t(::sysconf(_SC_PAGESIZE)), at = 0;
  constexpr uint64_t kMost = uint64_t(1) << 30; // far from all overflows
  offsets.assign(sections.size(), kNowhere);
  auto place = [&](bool wantsCode) {
    for (size_t i = 0; i < sections.size(); ++i) {
      const Elf64_Shdr &section = sections[i];
      bool isCode = section.sh_flags & SHF_EXECINSTR;
      if (!isLoaded(section) || isCode != wantsCode)
        continue;
      uint64_t alignment = std::max<uint64_t>(section.sh_addralign, 1);
      if ((alignment & (alignment - 1)) || alignment > page ||
          section.sh_size > kMost || at > kMost)
        return false;
      at = alignTo(at, alignment);
      offsets[i] = at;
      at += section.sh_size;
    }
    return true;
  };
  if (!place(/*wantsCode=*/true))
    return wrong("found a section that is too large");
  stubsAt = at = alignTo(at, kStubBytes);
  at += kStubBytes *
        uint64_t(std::count_if(symbols.begin(), symbols.end(), isForeign));
  codeBytes = at = alignTo(at, page);
  if (!place(/*wantsCode=*/false))
    return wrong("found a section that is too large");
  size_t bytes = alignTo(std::max<uint64_t>(at, 1), page);
  void *pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED)
    return problem(ExitCode::Limit, "no memory is left for generated code");
  code.base = pages;
  code.bytes = bytes;
  return {};
}

Problem ObjectLinker::copySections() {
  for (size_t i = 0; i < sections.size(); ++i)
    if (offsets[i] != kNowhere && sections[i].sh_type != SHT_NOBITS)
      std::memcpy(static_cast<char *>(code.base) + offsets[i],
                  file.data() + sections[i].sh_offset, sections[i].sh_size);
  return {}; // fresh pages are 0
}

/// jmp [rip + 0], then the address.
Problem ObjectLinker::addStubs() {
  static constexpr uint8_t kJump[] = {0xff, 0x25, 0, 0, 0, 0};
  char *at = static_cast<char *>(code.base) + stubsAt;
  for (const Elf64_Sym &symbol : symbols) {
    std::string_view name = nameOf(symbol);
    if (!isForeign(symbol) || name.empty())
      continue; // the first symbol of every object has no name
    void *address = addressOfCallable(name);
    if (!address)
      return wrong("found a call of '" + std::string(name) +
                   "', expected functions of libm only");
    std::memcpy(at, kJump, sizeof(kJump));
    std::memcpy(at + sizeof(kJump), &address, sizeof(address));
    stubs[name] = reinterpret_cast<uint64_t>(at);
    at += kStubBytes;
  }
  return {};
}

Outcome<uint64_t> ObjectLinker::addressOf(const Elf64_Sym &symbol) const {
  if (isForeign(symbol)) {
    auto stub = stubs.find(nameOf(symbol));
    if (stub == stubs.end())
      return wrong("found a relocation to nothing");
    return stub->second;
  }
  if (symbol.st_shndx >= sections.size())
    return wrong("found a symbol outside of all sections");
  if (offsets[symbol.st_shndx] == kNowhere ||
      symbol.st_value > sections[symbol.st_shndx].sh_size)
    return wrong("found a symbol outside of its section");
  return reinterpret_cast<uint64_t>(code.base) + offsets[symbol.st_shndx] +
         symbol.st_value;
}

Problem ObjectLinker::apply(const Elf64_Rela &relocation, size_t section) {
  uint32_t type = ELF64_R_TYPE(relocation.r_info);
  uint64_t width = type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4;
  uint64_t at = relocation.r_offset;
  if (at > sections[section].sh_size || sections[section].sh_size - at < width)
    return wrong("found a relocation outside of its section");
  uint64_t number = ELF64_R_SYM(relocation.r_info);
  if (number == 0 || number >= symbols.size())
    return wrong("found a relocation to nothing");
  Outcome<uint64_t> target = addressOf(symbols[number]);
  if (!target)
    return target.error();
  char *to = static_cast<char *>(code.base) + offsets[section] + at;
  uint64_t value = *target + static_cast<uint64_t>(relocation.r_addend);
  switch (type) {
  case R_X86_64_64:
    break;
  case R_X86_64_PC64:
  case R_X86_64_PC32:
  case R_X86_64_PLT32:
    value -= reinterpret_cast<uint64_t>(to);
    break;
  default:
    return wrong("found a relocation of the unknown type " +
                 std::to_string(type));
  }
  if (width == 4 && int64_t(value) != int64_t(int32_t(value)))
    return wrong("found a relocation that reaches beyond 2 GB");
  std::memcpy(to, &value, width);
  return {};
}

Problem ObjectLinker::relocate() {
  for (const Elf64_Shdr &section : sections) {
    bool isTable = section.sh_type == SHT_RELA;
    if (section.sh_type == SHT_REL)
      return wrong("found relocations without addends");
    if (!isTable || section.sh_info >= sections.size() ||
        offsets[section.sh_info] == kNowhere)
      continue;
    std::vector<Elf64_Rela> relocations;
    if (!read(section.sh_offset, section.sh_size / sizeof(Elf64_Rela),
              relocations))
      return wrong("found relocations outside of the object");
    for (const Elf64_Rela &relocation : relocations)
      if (Problem error = apply(relocation, section.sh_info))
        return error;
  }
  return {};
}

Problem ObjectLinker::findFunctions() {
  for (const Elf64_Sym &symbol : symbols) {
    if (ELF64_ST_BIND(symbol.st_info) != STB_GLOBAL || isForeign(symbol) ||
        ELF64_ST_TYPE(symbol.st_info) != STT_FUNC)
      continue;
    Outcome<uint64_t> address = addressOf(symbol);
    if (!address)
      return address.error();
    code.functions[std::string(nameOf(symbol))] =
        reinterpret_cast<void *>(*address);
  }
  return {};
}

Problem ObjectLinker::protect() {
  char *base = static_cast<char *>(code.base);
  bool isDone =
      (!codeBytes || ::mprotect(base, codeBytes, PROT_READ | PROT_EXEC) == 0) &&
      (code.bytes == codeBytes ||
       ::mprotect(base + codeBytes, code.bytes - codeBytes, PROT_READ) == 0);
  return isDone ? Problem() : wrong(std::strerror(errno));
}

Problem ObjectLinker::link() {
  for (auto step : {&ObjectLinker::parse, &ObjectLinker::layOut,
                    &ObjectLinker::copySections, &ObjectLinker::addStubs,
                    &ObjectLinker::relocate, &ObjectLinker::findFunctions,
                    &ObjectLinker::protect})
    if (Problem error = (this->*step)())
      return error;
  return {};
}

Outcome<std::unique_ptr<ObjectCode>> ObjectCode::load(std::string_view object) {
  std::unique_ptr<ObjectCode> code(new ObjectCode());
  if (Problem error = ObjectLinker(object, *code).link())
    return error;
  return code;
}

ObjectCode::~ObjectCode() {
  if (base)
    ::munmap(base, bytes);
}

void *ObjectCode::find(const std::string &name) const {
  auto found = functions.find(name);
  return found == functions.end() ? nullptr : found->second;
}
