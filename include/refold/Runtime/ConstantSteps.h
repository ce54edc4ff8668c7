// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_RUNTIME_CONSTANTSTEPS_H
#define REFOLD_RUNTIME_CONSTANTSTEPS_H

#include "refold/Runtime/ProgramSpec.h"

namespace refold {

/// Which arrays of a program follow from its constants alone, whatever its
/// inputs and their extents are. Looks at steps in their order, and at each
/// once; a program that grows is followed while it does.
class ConstantFlow {
public:
  /// `program` outlives it.
  explicit ConstantFlow(const ProgramSpec &program) : program(program) {}

  /// Whether step `at`, the next one, reads such arrays only, at places that
  /// are the same in every run, and writes temporaries only.
  bool follow(size_t at);
  /// The same with the steps up to `end` that were not looked at yet.
  void followUpTo(size_t end);
  /// Begins with the first step again: what a later one makes vary then does.
  void restart();
  /// Whether every step so far that writes the buffer is such a one; true of
  /// constants.
  bool isConstant(unsigned buffer) const;
  /// Whether it may be kept between runs: no larger than a few times the
  /// constants that it is made of, or small.
  bool mayBeKept(unsigned buffer) const;

private:
  struct Array {
    bool isWritten = false, isRead = false, isVarying = false;
    std::vector<unsigned> madeOf; ///< constants, in order
  };
  bool mayBeRead(const ViewSpec &view) const;
  bool mayBeWritten(const ViewSpec &view) const;
  Array &at(unsigned buffer);

  const ProgramSpec &program;
  std::vector<Array> arrays; ///< one a buffer, as far as steps name them
  size_t next = 0;           ///< step that is looked at
};

/// Steps that are done once, before the first run, instead of in every run.
/// A function of the program: whoever runs it finds the same ones.
struct ConstantSteps {
  std::vector<bool> isOnce; ///< one a step
  /// One a buffer: temporaries that they write and others read. Those that
  /// they alone read live no longer than they run.
  std::vector<bool> isKept;
  int64_t keptBytes = 0;
  size_t count = 0; ///< of such steps
};

/// All steps of a `ConstantFlow`, as far as what is kept of them stays within
/// bounds: each array as `mayBeKept` says, all of them within the bytes of all
/// constants and `kMostFreeBytes`. Order among them stays that of the program.
ConstantSteps findConstantSteps(const ProgramSpec &program);

/// Where each kept array begins in memory of `bytes`, at a multiple of
/// `alignment`, a power of two; nothing where that overflows.
struct KeptPlaces {
  std::vector<int64_t> offsets; ///< one a buffer; -1: it is not kept
  int64_t bytes = 0;
};
std::optional<KeptPlaces> placeKept(const ProgramSpec &program,
                                    const ConstantSteps &constants,
                                    int64_t alignment);

/// Whether the same elements of the buffer are seen at every shape.
bool isFixed(const ViewSpec &view);

/// What may be kept whatever it is made of: one array, and all together.
inline constexpr int64_t kFreeBytes = int64_t(16) << 20,
                         kMostFreeBytes = int64_t(64) << 20;
/// A kept array has at most so many times the bytes that it is made of.
inline constexpr int64_t kMostGrowth = 4;

} // namespace refold

#endif // REFOLD_RUNTIME_CONSTANTSTEPS_H
