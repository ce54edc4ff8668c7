// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Programs of tile ops that are read from text, each op that synchronises left
// out, and there twice.
#ifndef REFOLD_UNITTESTS_CONVERSION_READKERNELS_H
#define REFOLD_UNITTESTS_CONVERSION_READKERNELS_H

#include "refold/Conversion/ReadTiles.h"

#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace refold::test {

/// Why programs without, or with a second one of, an op are the same.
struct SameWithout {
  /// What it begins with; or with numbers as "#" and names without theirs, and
  /// which of those that are the same then.
  std::string statement;
  std::string why;
};

/// Numbers that a launch has: parameters, and which blocks are walked.
struct Launch {
  std::map<std::string, int64_t> numbers;
  int block = 0, walkedBlocks = 1, blocks = 1;
};

/// A function of a header or a kernel, and all that it is verified with.
struct ReadKernel {
  std::string name;
  tile::Reading reading; ///< without numbers of a launch
  int threads = 0;
  std::vector<Launch> launches;
  /// The first launches, in which changes are tried: ops left out, or twice.
  size_t mostSwept = ~size_t(0), mostRepeated = ~size_t(0);
  std::vector<SameWithout> removed, repeated;
};

/// A header of runtime/cuda.
std::string readHeader(const std::string &name);
/// "16 * 1024" bytes from there on, in `count` places.
tile::Tiles tilesAt(const std::string &name, int64_t begin, int64_t count,
                    int64_t bytes);
tile::Tiles gatesAt(const std::string &name, int64_t begin, int64_t count);

/// What `count` blocks leave for each other.
tile::Tiles partsOf(int64_t count);

/// What of a kernel is verified: as it is, and with each op that synchronises
/// left out, or there twice.
class ReadKernelTest : public testing::TestWithParam<ReadKernel> {};
inline std::string
nameOfKernel(const testing::TestParamInfo<ReadKernel> &info) {
  return info.param.name;
}

} // namespace refold::test

#endif // REFOLD_UNITTESTS_CONVERSION_READKERNELS_H
