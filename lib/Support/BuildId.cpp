// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/BuildId.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <cstring>
#include <elf.h>
#include <link.h>

namespace refold {

namespace {
struct Search {
  uintptr_t address;
  std::string found;
};
} // namespace

/// The build id among the notes of a segment, or nothing.
static std::string idAmong(llvm::ArrayRef<uint8_t> notes) {
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes.data(), sizeof(note));
    uint64_t nameAt = sizeof(note);
    uint64_t textAt = nameAt + llvm::alignTo(uint64_t(note.n_namesz), 4);
    uint64_t end = textAt + llvm::alignTo(uint64_t(note.n_descsz), 4);
    if (end > notes.size())
      return "";
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
        std::memcmp(notes.data() + nameAt, "GNU", 4) == 0)
      return llvm::toHex(notes.slice(textAt, note.n_descsz),
                         /*LowerCase=*/true);
    notes = notes.drop_front(end);
  }
  return "";
}

static int visitFile(dl_phdr_info *file, size_t, void *data) {
  auto &search = *static_cast<Search *>(data);
  llvm::ArrayRef<ElfW(Phdr)> segments(file->dlpi_phdr, file->dlpi_phnum);
  bool isHere = llvm::any_of(segments, [&](const ElfW(Phdr) & segment) {
    uintptr_t begin = file->dlpi_addr + segment.p_vaddr;
    return segment.p_type == PT_LOAD && search.address >= begin &&
           search.address - begin < segment.p_memsz;
  });
  if (!isHere)
    return 0;
  for (const ElfW(Phdr) & segment : segments)
    if (segment.p_type == PT_NOTE && search.found.empty())
      search.found = idAmong(
          {reinterpret_cast<const uint8_t *>(file->dlpi_addr + segment.p_vaddr),
           segment.p_memsz});
  return 1;
}

std::string buildIdOf(std::initializer_list<const void *> addresses) {
  std::string all;
  for (const void *address : addresses) {
    Search search{reinterpret_cast<uintptr_t>(address), ""};
    ::dl_iterate_phdr(visitFile, &search);
    if (search.found.empty())
      return "";
    all += (all.empty() ? "" : "-") + search.found;
  }
  return all;
}

const std::string &buildId() {
  static const std::string id =
      // An object of LLVM's, as a function's address may be that of a stub
      // here.
      buildIdOf({reinterpret_cast<const void *>(&buildId), &llvm::outs()});
  return id;
}

} // namespace refold
