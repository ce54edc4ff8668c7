// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_TARGET_CUDA_LAUNCHSIZES_H
#define REFOLD_LIB_TARGET_CUDA_LAUNCHSIZES_H

#include "refold/Target/CUDA/CompileCuda.h"

/// What a launch of a kernel depends on, as functions of the words of its call.
namespace refold {

// LaunchWords.cpp: what the words say.

/// Words of a kernel's call, without those of the workspace and the tickets.
size_t numWords(const CudaKernel &kernel);

/// Extents, strides and addresses, and whether vectors go with them.
class Words {
public:
  explicit Words(const CudaKernel &kernel) : kernel(kernel) {}

  static SizeExpr word(unsigned index) { return SizeExpr::symbol(index); }
  SizeExpr address(const CudaOperand &o) const {
    return word(o.word + 1) + word(o.word + 2) * SizeExpr(o.elementBytes);
  }
  SizeExpr size(const CudaOperand &o, unsigned dim) const {
    return word(o.word + 3 + dim);
  }
  SizeExpr stride(const CudaOperand &o, unsigned dim) const {
    return word(o.word + 3 + o.rank + dim);
  }
  SizeExpr extent(const CudaExtent &e) const {
    if (e.operand < 0)
      return e.constant;
    const CudaOperand &o = kernel.operands[e.operand];
    return e.dim < 0 ? word(o.word) : size(o, e.dim);
  }
  SizeExpr parameter(const CudaParameter &p) const;
  package::LaunchMap map(const CudaMap &map, SizeSharing &sharing) const;
  /// Whether `length` elements are whole vectors of `width`, and all arrays
  /// that are read by vectors have rows that begin at multiples of 16 bytes, or
  /// of the vector where that is less.
  SizeExpr takes(const SizeExpr &length, int width) const;
  /// Whether rows along `flat`, a dimension of stride 1, begin at multiples of
  /// 16 bytes and are whole vectors of `width` elements.
  SizeExpr takesRows(const CudaOperand &o, unsigned flat, int width) const;
  /// Whether rows along the last dimension begin at multiples of 16 bytes.
  SizeExpr beginWhole(const CudaOperand &o) const;
  /// Whether rows that are not there would begin at multiples of 16 bytes, too:
  /// behind a single row of any stride.
  SizeExpr areAligned(const CudaOperand &o, unsigned flat) const;
  /// Whether a map of rows along `flat` can be made: it takes the stride of a
  /// single row, too, and none backwards.
  SizeExpr takesMap(const CudaOperand &o, unsigned flat) const;
  /// Whether no array that is read by vectors has rows that lie backwards.
  SizeExpr areForward() const;
  /// Whether no dimension of those arrays has more.
  SizeExpr haveAtMost(int64_t places) const;
  static SizeExpr isMultiple(const SizeExpr &value, int64_t of);

private:
  const CudaKernel &kernel;
};

/// 1 or 0.
SizeExpr isAtMost(const SizeExpr &value, int64_t most);

/// Rows of all batches.
SizeExpr rowsOf(const CudaKernel &kernel, const Words &words);

/// Elements of a row.
SizeExpr lengthOf(const CudaKernel &kernel, const Words &words);

/// Rows over tiles that read one stream, of all indices that a block packs.
SizeExpr packedRows(const CudaKernel &kernel, const Words &words);

/// What has parts: a row, a rectangle, or rows of a block that read one stream.
SizeExpr groupsOf(const CudaEntry &entry, const CudaKernel &kernel,
                  const Words &words);

/// What a call is made of, in the words of `CudaCall`.
struct CallSizes {
  SizeExpr batch = 1, rows = 0, length = 0, columns = 0, depth = 0;
};
CallSizes callSizesOf(const CudaKernel &kernel, const Words &words);

// LaunchTimes.cpp: how long it takes, and so how many blocks share it.

/// About how many nanoseconds an entry takes for rows of products, but for what
/// all entries do.
SizeExpr timeOfRowProduct(const CudaEntry &entry, const CudaKernel &kernel,
                          const Words &words);

/// About how many cycles an entry with roles, or of f32, takes for a product.
SizeExpr cyclesOfProduct(const CudaEntry &entry, const CudaKernel &kernel,
                         const Words &words);

/// How many parts a row has that are worth a block each.
SizeExpr longestParts(const CudaEntry &entry, const CudaKernel &kernel,
                      const Words &words);

/// How many blocks share a row: as many as have enough of it, while the launch
/// has no more than it wants. Follows from shapes alone, and so do the bits of
/// the result.
SizeExpr partsOf(const CudaEntry &entry, const CudaKernel &kernel,
                 const Words &words);

// LaunchConditions.cpp: which entry it is.

/// Whether an entry may run, 1 or 0; one that is asked for, on any length that
/// it can.
SizeExpr conditionOf(const CudaEntry &entry, const CudaKernel &kernel,
                     const Words &words, bool isWanted);

} // namespace refold

#endif // REFOLD_LIB_TARGET_CUDA_LAUNCHSIZES_H
