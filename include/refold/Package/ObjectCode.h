// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_PACKAGE_OBJECTCODE_H
#define REFOLD_PACKAGE_OBJECTCODE_H

#include "refold/Package/Outcome.h"
#include <map>
#include <memory>
#include <string_view>

namespace refold::package {

/// A position independent ELF object for x86-64 made executable in this
/// process: what refold's code generator writes. It may call nothing but libm,
/// memcpy, memmove and memset; whatever the bytes are, loading them ends in
/// code or in a message.
class ObjectCode {
public:
  static Outcome<std::unique_ptr<ObjectCode>> load(std::string_view object);
  ~ObjectCode();

  /// The public function of this name; null where there is none.
  void *find(const std::string &name) const;

private:
  ObjectCode() = default;
  friend class ObjectLinker;
  void *base = nullptr;
  size_t bytes = 0;
  std::map<std::string, void *, std::less<>> functions;
};

/// The function that generated code means by this name: one of libm, memcpy,
/// memmove or memset. Null: it may not call it.
void *addressOfCallable(std::string_view name);

} // namespace refold::package

#endif // REFOLD_PACKAGE_OBJECTCODE_H
