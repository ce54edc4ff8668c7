// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A linker for what our code generator writes: position independent objects
// for x86-64 whose only foreign symbols are functions. LLVM's takes longer to
// set up than a kernel from the disk cache may cost; this one is done in 0.1
// ms.
#include "CallableSymbols.h"
#include "refold/Support/Error.h"
#include "refold/Target/CPU/ObjectCode.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/MathExtras.h"
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

using namespace refold;
using llvm::object::ELFObjectFile;
using llvm::object::ELFSectionRef;
using llvm::object::ELFSymbolRef;
using Object = ELFObjectFile<llvm::object::ELF64LE>;

static llvm::Error loadFailure(const llvm::Twine &why) {
  return fail(ExitCode::Internal, "loading generated code: " + why);
}

namespace {
/// Pages that hold one object: code first, then data.
class Image {
public:
  Image() = default;
  Image(const Image &) = delete;
  Image &operator=(const Image &) = delete;
  ~Image() {
    if (base)
      ::munmap(base, bytes);
  }

  llvm::Error load(const Object &object);

  llvm::StringMap<uint64_t> functions; ///< addresses of the public ones

private:
  /// Where an object's foreign functions are called: calls reach 2 GB, which
  /// libm may be away from here.
  static constexpr uint64_t kStubBytes = 16;

  llvm::Error layOut(const Object &object);
  llvm::Error copySections(const Object &object);
  llvm::Error addStubs(const Object &object);
  llvm::Error relocate(const Object &object);
  llvm::Error apply(const Object &object,
                    const llvm::object::RelocationRef &relocation,
                    const llvm::object::SectionRef &section);
  llvm::Expected<uint64_t> addressOf(const Object &object,
                                     const ELFSymbolRef &symbol);
  llvm::Error findFunctions(const Object &object);
  llvm::Error protect();

  char *base = nullptr;
  uint64_t bytes = 0, codeBytes = 0, stubsAt = 0;
  llvm::DenseMap<uint64_t, uint64_t> offsets; ///< by index of the section
  llvm::StringMap<uint64_t> stubs;            ///< their addresses, by name
};
} // namespace

static bool isLoaded(const ELFSectionRef &section) {
  return (section.getFlags() & llvm::ELF::SHF_ALLOC) && section.getSize();
}

static bool isCode(const ELFSectionRef &section) {
  return section.getFlags() & llvm::ELF::SHF_EXECINSTR;
}

static bool isForeign(const ELFSymbolRef &symbol) {
  auto flags = symbol.getFlags();
  if (!flags) {
    llvm::consumeError(flags.takeError());
    return true;
  }
  return *flags & llvm::object::SymbolRef::SF_Undefined;
}

llvm::Error Image::layOut(const Object &object) {
  uint64_t page = ::sysconf(_SC_PAGESIZE);
  uint64_t at = 0;
  constexpr uint64_t kMost = uint64_t(1) << 30; // far from all overflows
  auto place = [&](bool wantsCode) -> llvm::Error {
    for (ELFSectionRef section : object.sections()) {
      if (!isLoaded(section) || isCode(section) != wantsCode)
        continue;
      uint64_t alignment = std::max<uint64_t>(
          object.getSection(section.getRawDataRefImpl())->sh_addralign, 1);
      if (!llvm::isPowerOf2_64(alignment) || alignment > page ||
          section.getSize() > kMost || at > kMost)
        return loadFailure("found a section that is too large");
      at = llvm::alignTo(at, alignment);
      offsets[section.getIndex()] = at;
      at += section.getSize();
    }
    return llvm::Error::success();
  };
  if (llvm::Error error = place(/*wantsCode=*/true))
    return error;
  stubsAt = at = llvm::alignTo(at, kStubBytes);
  for (ELFSymbolRef symbol : object.symbols())
    at += isForeign(symbol) ? kStubBytes : 0;
  codeBytes = at = llvm::alignTo(at, page);
  if (llvm::Error error = place(/*wantsCode=*/false))
    return error;
  bytes = llvm::alignTo(std::max<uint64_t>(at, 1), page);
  void *pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED)
    return fail(ExitCode::Limit, "no memory is left for generated code");
  base = static_cast<char *>(pages);
  return llvm::Error::success();
}

llvm::Error Image::copySections(const Object &object) {
  for (ELFSectionRef section : object.sections()) {
    if (!isLoaded(section) || section.isBSS())
      continue; // fresh pages are 0
    llvm::Expected<llvm::StringRef> contents = section.getContents();
    if (!contents)
      return loadFailure(llvm::toString(contents.takeError()));
    std::memcpy(base + offsets[section.getIndex()], contents->data(),
                contents->size());
  }
  return llvm::Error::success();
}

/// jmp [rip + 0], then the address.
llvm::Error Image::addStubs(const Object &object) {
  static constexpr uint8_t kJump[] = {0xff, 0x25, 0, 0, 0, 0};
  char *at = base + stubsAt;
  for (ELFSymbolRef symbol : object.symbols()) {
    if (!isForeign(symbol))
      continue;
    llvm::Expected<llvm::StringRef> name = symbol.getName();
    if (!name)
      return loadFailure(llvm::toString(name.takeError()));
    if (name->empty())
      continue; // the first symbol of every object
    void *address = addressOfCallable(*name);
    if (!address)
      return loadFailure("found a call of '" + *name +
                         "', expected functions of libm only");
    std::memcpy(at, kJump, sizeof(kJump));
    std::memcpy(at + sizeof(kJump), &address, sizeof(address));
    stubs[*name] = reinterpret_cast<uint64_t>(at);
    at += kStubBytes;
  }
  return llvm::Error::success();
}

llvm::Expected<uint64_t> Image::addressOf(const Object &object,
                                          const ELFSymbolRef &symbol) {
  if (isForeign(symbol)) {
    llvm::Expected<llvm::StringRef> name = symbol.getName();
    if (!name)
      return loadFailure(llvm::toString(name.takeError()));
    auto stub = stubs.find(*name);
    if (stub == stubs.end())
      return loadFailure("found a relocation to nothing");
    return stub->second;
  }
  auto section = symbol.getSection();
  if (!section)
    return loadFailure(llvm::toString(section.takeError()));
  if (*section == object.section_end())
    return loadFailure("found a symbol outside of all sections");
  auto value = symbol.getValue();
  if (!value)
    return loadFailure(llvm::toString(value.takeError()));
  auto offset = offsets.find((*section)->getIndex());
  if (offset == offsets.end() || *value > (*section)->getSize())
    return loadFailure("found a symbol outside of its section");
  return reinterpret_cast<uint64_t>(base) + offset->second + *value;
}

llvm::Error Image::apply(const Object &object,
                         const llvm::object::RelocationRef &relocation,
                         const llvm::object::SectionRef &section) {
  uint64_t type = relocation.getType();
  uint64_t width =
      type == llvm::ELF::R_X86_64_64 || type == llvm::ELF::R_X86_64_PC64 ? 8
                                                                         : 4;
  uint64_t at = relocation.getOffset();
  if (at > section.getSize() || section.getSize() - at < width)
    return loadFailure("found a relocation outside of its section");
  auto symbol = relocation.getSymbol();
  if (symbol == object.symbol_end())
    return loadFailure("found a relocation to nothing");
  llvm::Expected<uint64_t> target = addressOf(object, *symbol);
  if (!target)
    return target.takeError();
  auto addend = llvm::object::ELFRelocationRef(relocation).getAddend();
  if (!addend)
    return loadFailure(llvm::toString(addend.takeError()));
  char *to = base + offsets[section.getIndex()] + at;
  uint64_t value = *target + static_cast<uint64_t>(*addend);
  switch (type) {
  case llvm::ELF::R_X86_64_64:
    break;
  case llvm::ELF::R_X86_64_PC64:
  case llvm::ELF::R_X86_64_PC32:
  case llvm::ELF::R_X86_64_PLT32:
    value -= reinterpret_cast<uint64_t>(to);
    break;
  default:
    return loadFailure("found a relocation of the unknown type " +
                       llvm::Twine(type));
  }
  if (width == 4 && !llvm::isInt<32>(static_cast<int64_t>(value)))
    return loadFailure("found a relocation that reaches beyond 2 GB");
  std::memcpy(to, &value, width);
  return llvm::Error::success();
}

llvm::Error Image::relocate(const Object &object) {
  for (llvm::object::SectionRef section : object.sections()) {
    auto relocated = section.getRelocatedSection();
    if (!relocated)
      return loadFailure(llvm::toString(relocated.takeError()));
    if (*relocated == object.section_end() ||
        !offsets.count((*relocated)->getIndex()))
      continue;
    for (const llvm::object::RelocationRef &relocation : section.relocations())
      if (llvm::Error error = apply(object, relocation, **relocated))
        return error;
  }
  return llvm::Error::success();
}

llvm::Error Image::findFunctions(const Object &object) {
  for (ELFSymbolRef symbol : object.symbols()) {
    if (symbol.getBinding() != llvm::ELF::STB_GLOBAL || isForeign(symbol) ||
        symbol.getELFType() != llvm::ELF::STT_FUNC)
      continue;
    llvm::Expected<llvm::StringRef> name = symbol.getName();
    if (!name)
      return loadFailure(llvm::toString(name.takeError()));
    llvm::Expected<uint64_t> address = addressOf(object, symbol);
    if (!address)
      return address.takeError();
    functions[*name] = *address;
  }
  return llvm::Error::success();
}

llvm::Error Image::protect() {
  bool isDone =
      (!codeBytes || ::mprotect(base, codeBytes, PROT_READ | PROT_EXEC) == 0) &&
      (bytes == codeBytes ||
       ::mprotect(base + codeBytes, bytes - codeBytes, PROT_READ) == 0);
  return isDone ? llvm::Error::success()
                : loadFailure(llvm::StringRef(std::strerror(errno)).lower());
}

llvm::Error Image::load(const Object &object) {
  if (object.getArch() != llvm::Triple::x86_64 || !object.isRelocatableObject())
    return loadFailure("found no object for x86-64");
  for (auto step : {&Image::layOut, &Image::copySections, &Image::addStubs,
                    &Image::relocate, &Image::findFunctions})
    if (llvm::Error error = (this->*step)(object))
      return error;
  return protect();
}

struct LoadedCode::Impl {
  std::vector<std::unique_ptr<Image>> images;
};

LoadedCode::LoadedCode() : impl(std::make_unique<Impl>()) {}
LoadedCode::~LoadedCode() = default;

llvm::Expected<std::shared_ptr<LoadedCode>>
LoadedCode::load(std::vector<std::unique_ptr<llvm::MemoryBuffer>> objects) {
  std::shared_ptr<LoadedCode> loaded(new LoadedCode());
  for (const std::unique_ptr<llvm::MemoryBuffer> &buffer : objects) {
    auto object = Object::create(buffer->getMemBufferRef());
    if (!object)
      return loadFailure(llvm::toString(object.takeError()));
    auto image = std::make_unique<Image>();
    if (llvm::Error error = image->load(*object))
      return std::move(error);
    loaded->impl->images.push_back(std::move(image));
  }
  return loaded;
}

llvm::Expected<KernelFunction> LoadedCode::find(llvm::StringRef name) {
  for (const std::unique_ptr<Image> &image : impl->images) {
    auto function = image->functions.find((name + "_words").str());
    if (function != image->functions.end())
      return reinterpret_cast<KernelFunction>(function->second);
  }
  return loadFailure("found no function '" + name + "'");
}
