// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Package/EntryText.h"

using namespace refold::package;

/// Where the line of a place begins that comes next.
static size_t nextLine(std::string_view text, size_t at) {
  size_t end = text.find('\n', at);
  return end == text.npos ? text.size() : end + 1;
}

/// An entry's first line is REFOLD_KERNEL(...) or the like, its last one "}".
std::string refold::package::textOfEntry(std::string_view text,
                                         std::string_view entry) {
  std::string result;
  bool isFound = false;
  for (size_t at = 0, next; at < text.size(); at = next) {
    next = nextLine(text, at);
    std::string_view line = text.substr(at, next - at);
    if (!line.starts_with("REFOLD_") ||
        line.find("KERNEL(") == std::string_view::npos) {
      result += line;
      continue;
    }
    size_t last = text.find("\n}\n", next);
    if (last == text.npos)
      return std::string(text);
    std::string_view name = text.substr(next, text.find('(', next) - next);
    next = last + 3;
    if (name != entry)
      continue;
    isFound = true;
    result += text.substr(at, next - at);
  }
  return isFound ? result : std::string(text);
}
