// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_ALGEBRA_CERTIFICATEKEY_H
#define REFOLD_ALGEBRA_CERTIFICATEKEY_H

#include "refold/Algebra/Program.h"

namespace refold::algebra {

/// Everything that a certificate of `program` for `cascade` depends on, as
/// bytes: two pairs have equal keys exactly if they differ in names and places
/// at most. A deep model has the same cascade in every layer; one certificate
/// does for all of them.
std::string certificateKey(const Cascade &cascade, const Program &program);

} // namespace refold::algebra

#endif // REFOLD_ALGEBRA_CERTIFICATEKEY_H
