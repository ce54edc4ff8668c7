// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_PACKAGE_ENTRYTEXT_H
#define REFOLD_PACKAGE_ENTRYTEXT_H

#include <string>
#include <string_view>

namespace refold::package {

/// A kernel's text without its other entries: compilers take their time for
/// each. All of the text where it has no such entry.
std::string textOfEntry(std::string_view text, std::string_view entry);

} // namespace refold::package

#endif // REFOLD_PACKAGE_ENTRYTEXT_H
