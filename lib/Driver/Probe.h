// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_DRIVER_PROBE_H
#define REFOLD_LIB_DRIVER_PROBE_H

#include "refold/Target/CPU/DetectTarget.h"
#include "llvm/Support/Error.h"

namespace refold {

/// What a machine does at best while this is asked: both numbers are measured,
/// by code of the same target as the kernels', on all threads at once.
struct MachineRates {
  double operations = 0.0; ///< f32 a millisecond; an fma is two
  double bytes = 0.0;      ///< read a millisecond
};

/// `workingSet`: bytes that the threads read again and again between them, so
/// that the rate is that of the cache which holds as much. Takes some 100 ms.
llvm::Expected<MachineRates> measureRates(const CpuTarget &target,
                                          int64_t threads, double workingSet);

} // namespace refold

#endif // REFOLD_LIB_DRIVER_PROBE_H
