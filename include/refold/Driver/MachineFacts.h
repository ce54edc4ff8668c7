// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_DRIVER_MACHINEFACTS_H
#define REFOLD_DRIVER_MACHINEFACTS_H

#include "refold/Schedule/MachineRates.h"
#include "refold/Target/CPU/DetectTarget.h"
#include "llvm/Support/JSON.h"
#include <string>
#include <vector>

namespace refold {

/// What is known of this machine under one target. Measured once
/// (`refold doctor`) and kept in the user's cache folder, with the processor,
/// its number of cores and the target as key.
struct MachineFacts {
  std::string processor;             ///< as it names itself
  std::vector<std::string> features; ///< of LLVM's, that kernels may use
  MachineRates rates;
  /// False: the defaults of the target, because nothing was measured yet.
  bool isMeasured = false;
  double probeMs = 0.0; ///< that measuring took
  std::string keptIn;   ///< the file; empty where none could be written

  /// "measured on this machine" or "defaults of cpu-avx512".
  std::string source(const CpuTarget &target) const;
};

/// What was measured before, or the defaults. Never measures.
MachineFacts knownFacts(const CpuTarget &target);

/// Measures everything anew and keeps it, of what was kept before the higher
/// rates.
llvm::Expected<MachineFacts> measureFacts(const CpuTarget &target);

llvm::json::Object toJson(const MachineFacts &facts);

} // namespace refold

#endif // REFOLD_DRIVER_MACHINEFACTS_H
