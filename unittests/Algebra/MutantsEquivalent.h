// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_UNITTESTS_ALGEBRA_MUTANTSEQUIVALENT_H
#define REFOLD_UNITTESTS_ALGEBRA_MUTANTSEQUIVALENT_H

#include <string>

namespace refold::algebra::test {

/// Why the mutant of this name computes what its cascade means, or null.
const char *equivalence(const std::string &name);

} // namespace refold::algebra::test

#endif // REFOLD_UNITTESTS_ALGEBRA_MUTANTSEQUIVALENT_H
