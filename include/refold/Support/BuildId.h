// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SUPPORT_BUILDID_H
#define REFOLD_SUPPORT_BUILDID_H

#include <initializer_list>
#include <string>

namespace refold {

/// What tells this compiler from any other: the build ids, which linkers make
/// of contents, of the files that hold our code and LLVM's. Empty where one of
/// them has none.
const std::string &buildId();

/// The same for the loaded files that hold these addresses.
std::string buildIdOf(std::initializer_list<const void *> addresses);

} // namespace refold

#endif // REFOLD_SUPPORT_BUILDID_H
