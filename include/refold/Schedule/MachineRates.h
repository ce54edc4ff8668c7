// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SCHEDULE_MACHINERATES_H
#define REFOLD_SCHEDULE_MACHINERATES_H

#include "refold/Schedule/TargetFacts.h"
#include <array>

namespace refold {

/// What others on a machine leave of it for a while: parts of the rates that
/// are known of it, which were measured at another moment.
struct MachineMoment {
  double cores = 1.0;  ///< what they compute, and read from their own caches
  double memory = 1.0; ///< what is read from and written to it
  /// Bytes that so many threads read again and again, a millisecond: how much
  /// of them the third cache serves. 0 bytes: nobody looked.
  double readBytes = 0.0, readPerMs = 0.0;
  int64_t threads = 1;
};

/// What a machine does, as plain numbers: those of one thread, and of the
/// memory those of all threads at once too. Rates are a millisecond; of the
/// third cache and the memory, which others use at the same time, those of a
/// usual moment, of all else the best.
struct MachineRates {
  double flops = 0.0; ///< of f32 fma, two each
  /// The same in tiles of registers with operands from the second cache: how
  /// far loads run beside the fmas differs from core to core.
  double tileFlops = 0.0;
  double exponentials = 0.0; ///< f32 elements, our own code, from registers
  /// Of the dot products of pairs and of quads, in matrix tiles where the
  /// target multiplies them; 0: none.
  double bf16Flops = 0.0;
  double int8Flops = 0.0;
  /// Bytes read again and again from L1, L2, L3 and memory.
  std::array<double, 4> read = {};
  /// The same of half as much as L3 holds, as much, and twice as much: of that
  /// memory gives a part. By how much is not known from its size, of which
  /// other machines may have their share.
  std::array<double, 3> readAround = {};
  double readAll = 0.0;  ///< from memory, by all threads together
  double write = 0.0;    ///< streaming stores to memory
  double writeAll = 0.0; ///< by all threads together
  double copy = 0.0;     ///< read and written bytes of a streaming copy
  double copyAll = 0.0;  ///< by all threads together
  std::array<int64_t, 3> cacheBytes = {}; ///< L1 and L2 of a core, L3 of all
  int64_t cores = 1;
  /// Of what the third cache serves by these rates, however much that is, the
  /// share that others have instead. Negative where it serves more.
  double taken = 0.0;

  bool paysBf16() const { return bf16Flops > 1.2 * flops; }
  bool paysInt8() const { return int8Flops > 1.2 * flops; }

  /// These rates at `moment`. That of the third cache alone stays, unless more
  /// was read: how much it has is looked at, not how fast it gives it.
  MachineRates at(const MachineMoment &moment) const;

  /// What is taken where nothing was measured: a Zen 4 server core at 3.7 GHz
  /// with two cores, scaled to the width of the target's registers. Compiled
  /// programs then depend on the target alone.
  static MachineRates defaults(const TargetFacts &target);
};

} // namespace refold

#endif // REFOLD_SCHEDULE_MACHINERATES_H
