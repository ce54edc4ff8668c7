// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_DRIVER_PROBE_H
#define REFOLD_LIB_DRIVER_PROBE_H

#include "refold/Schedule/MachineRates.h"
#include "refold/Support/Tensor.h"
#include "refold/Target/CPU/DetectTarget.h"
#include "refold/Target/CPU/ObjectCode.h"
#include "llvm/Support/Error.h"
#include <map>
#include <vector>

namespace refold {

/// What the machine does at best while it is asked, measured by code of the
/// same target as the kernels', on all threads at once. An answer takes some 50
/// ms.
class Probe {
public:
  /// Quick: an answer takes some 15 ms, and may be a few percent low.
  enum class Effort : uint8_t { Quick, Thorough };
  static llvm::Expected<Probe> create(const CpuTarget &target, int64_t threads,
                                      Effort effort = Effort::Thorough);

  /// Operations of f32 a millisecond; an fma is two.
  double operationsPerMs();
  /// What others on the machine leave of what is known of it, in the usual one
  /// of a few rounds: takes some 30 ms, and what memory holds 4 times L3.
  MachineMoment momentOf(const MachineRates &known);
  /// As much with how fast these arrays are read again and again, where they
  /// lie, if they are more than the second caches hold and less than
  /// `streamedBytes`. Those of integers are left out.
  MachineMoment momentOf(const MachineRates &known,
                         llvm::MutableArrayRef<Tensor> arrays);
  /// Bytes read a millisecond, of `workingSet` bytes that the threads read
  /// again and again between them: the rate of the cache that holds as much.
  /// Known for powers of 4, the next of which is taken.
  double bytesPerMs(double workingSet);
  /// Elements a millisecond of our own exp, in registers.
  double exponentialsPerMs();
  /// Operations of f32 a millisecond of products of register tiles whose
  /// operands lie in the second cache: loads and the ends of sums with the
  /// fmas.
  double tileOperationsPerMs();
  /// Operations a millisecond of the dot products of bf16 pairs and of int8
  /// quads, in matrix tiles where the target multiplies them; 0 where the
  /// machine has none.
  double bf16PerMs();
  double int8PerMs();
  /// The same of exactly so many bytes, in a usual round, not in the best one:
  /// other programs and machines use the third cache and the memory too.
  double usualBytesPerMs(double workingSet);
  /// Bytes written by streaming stores a millisecond, and bytes read and
  /// written by a copy with them; of memory, of so many bytes, in a usual
  /// round.
  double writtenPerMs(double bytes);
  double copiedPerMs(double bytes);

  /// Bytes that no cache of the machine keeps: 4 times L3, 64 to 256 MiB.
  static double streamedBytes(const MachineRates &rates);

private:
  class Arrays;
  std::vector<double> roundsOfLoop(KernelFunction loop, double each,
                                   int rounds);
  int64_t elementsOf(double bytes) const;
  /// Bytes that are read a millisecond in each round, from the slowest on.
  std::vector<double> readInRounds(Arrays &arrays, int rounds);

  std::shared_ptr<LoadedCode> code;
  KernelFunction fma = nullptr, exp = nullptr, tile = nullptr, read = nullptr,
                 write = nullptr, copy = nullptr;
  int rounds = 1;
  bool hasTiles = false;
  int64_t threads = 1, lanes = 1, tileRows = 1;
  double operations = 0.0;
  std::map<int64_t, double> readRates; ///< by elements a thread
  std::shared_ptr<Arrays> streamed;    ///< of `momentOf`
};

} // namespace refold

#endif // REFOLD_LIB_DRIVER_PROBE_H
