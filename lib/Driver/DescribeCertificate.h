// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_DRIVER_DESCRIBECERTIFICATE_H
#define REFOLD_LIB_DRIVER_DESCRIBECERTIFICATE_H

#include "refold/Transforms/FuseCascades.h"
#include "llvm/Support/JSON.h"

namespace refold {

/// The fields of `proof` in docs/tools.md: the checks of the certificate, and
/// what shows of every cut that no short state would do. `seed`: of both.
llvm::json::Object describeCertificate(const FusedKernel &kernel,
                                       uint64_t seed);

} // namespace refold

#endif // REFOLD_LIB_DRIVER_DESCRIBECERTIFICATE_H
