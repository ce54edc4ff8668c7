// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "LaunchSizes.h"

using namespace refold;

size_t refold::numWords(const CudaKernel &kernel) {
  size_t words = 0;
  for (const CudaOperand &o : kernel.operands)
    words = std::max<size_t>(words, o.word + (o.isArray ? 3 + 2 * o.rank : 1));
  return words;
}

SizeExpr Words::takes(const SizeExpr &length, int width) const {
  using Op = SizeExpr::Op;
  SizeExpr all = isMultiple(length, width);
  for (const CudaOperand &o : kernel.operands) {
    if (!o.hasVectors)
      continue;
    int64_t whole = width * o.group * o.elementBytes;
    int64_t bytes = std::min<int64_t>(16, whole & -whole);
    for (unsigned dim = 0; dim + 1 + o.groupDims < o.rank; ++dim)
      all = all *
            SizeExpr::binary(
                Op::Max, SizeExpr::binary(Op::Le, size(o, dim), SizeExpr(1)),
                isMultiple(stride(o, dim) * SizeExpr(o.elementBytes), bytes));
    all = all * isMultiple(address(o), bytes);
  }
  return all;
}

SizeExpr Words::takesRows(const CudaOperand &o, unsigned flat,
                          int width) const {
  using Op = SizeExpr::Op;
  SizeExpr all = isMultiple(size(o, flat), width) * isMultiple(address(o), 16) *
                 SizeExpr::binary(Op::Eq, stride(o, flat), SizeExpr(1));
  for (unsigned dim = 0; dim < o.rank; ++dim)
    if (dim != flat)
      all = all *
            SizeExpr::binary(
                Op::Max, SizeExpr::binary(Op::Le, size(o, dim), SizeExpr(1)),
                isMultiple(stride(o, dim) * SizeExpr(o.elementBytes), 16));
  return all;
}

SizeExpr Words::beginWhole(const CudaOperand &o) const {
  using Op = SizeExpr::Op;
  SizeExpr all = isMultiple(address(o), 16);
  for (unsigned dim = 0; dim + 1 < o.rank; ++dim)
    all =
        all * SizeExpr::binary(
                  Op::Max, SizeExpr::binary(Op::Le, size(o, dim), SizeExpr(1)),
                  isMultiple(stride(o, dim) * SizeExpr(o.elementBytes), 16));
  return all;
}

SizeExpr Words::areAligned(const CudaOperand &o, unsigned flat) const {
  SizeExpr all = 1;
  for (unsigned dim = 0; dim < o.rank; ++dim)
    if (dim != flat)
      all = all * isMultiple(stride(o, dim) * SizeExpr(o.elementBytes), 16);
  return all;
}

SizeExpr Words::takesMap(const CudaOperand &o, unsigned flat) const {
  SizeExpr all = areAligned(o, flat);
  for (unsigned dim = 0; dim < o.rank; ++dim)
    if (dim != flat)
      all =
          all * SizeExpr::binary(SizeExpr::Op::Le, SizeExpr(0), stride(o, dim));
  return all;
}

SizeExpr Words::areForward() const {
  SizeExpr all = 1;
  for (const CudaOperand &o : kernel.operands)
    for (unsigned dim = 0; o.hasVectors && dim < o.rank; ++dim)
      all =
          all * SizeExpr::binary(SizeExpr::Op::Le, SizeExpr(0), stride(o, dim));
  return all;
}

SizeExpr Words::haveAtMost(int64_t places) const {
  SizeExpr all = 1;
  for (const CudaOperand &o : kernel.operands)
    for (unsigned dim = 0; o.hasVectors && dim < o.rank; ++dim)
      all = all * isAtMost(size(o, dim), places);
  return all;
}

SizeExpr Words::parameter(const CudaParameter &p) const {
  if (p.kind == CudaParameter::Workspace)
    return word(unsigned(numWords(kernel)));
  if (p.kind == CudaParameter::Tickets)
    return word(unsigned(numWords(kernel)) + 1);
  const CudaOperand &o = kernel.operands[p.operand];
  switch (p.kind) {
  case CudaParameter::Pointer:
    return address(o);
  case CudaParameter::Size:
    return size(o, p.dim);
  case CudaParameter::Stride:
    return stride(o, p.dim);
  default:
    break;
  }
  return word(o.word);
}

package::LaunchMap Words::map(const CudaMap &map, SizeSharing &sharing) const {
  const CudaOperand &o = kernel.operands[map.operand];
  package::LaunchMap made;
  made.first = sharing.add(address(o));
  for (const CudaMap::Index &index : map.indices) {
    made.extents.push_back(sharing.add(extent(index.extent)));
    made.strides.push_back(sharing.add(index.dim < 0
                                           ? SizeExpr(index.bytes)
                                           : stride(o, unsigned(index.dim)) *
                                                 SizeExpr(o.elementBytes)));
  }
  made.columns = sharing.add(extent(map.columns) * SizeExpr(o.elementBytes));
  made.boxRows = uint32_t(map.boxRows);
  return made;
}

SizeExpr Words::isMultiple(const SizeExpr &value, int64_t of) {
  using Op = SizeExpr::Op;
  return SizeExpr::binary(
      Op::Eq, SizeExpr::binary(Op::Mod, value, SizeExpr(of)), SizeExpr(0));
}

SizeExpr refold::isAtMost(const SizeExpr &value, int64_t most) {
  return SizeExpr::binary(SizeExpr::Op::Le, value, SizeExpr(most));
}

SizeExpr refold::rowsOf(const CudaKernel &kernel, const Words &words) {
  SizeExpr rows = 1;
  for (const CudaExtent &row : kernel.rows)
    rows = rows * words.extent(row);
  return rows;
}

SizeExpr refold::lengthOf(const CudaKernel &kernel, const Words &words) {
  SizeExpr length = words.extent(kernel.stream);
  for (const CudaExtent &outer : kernel.outerStreams)
    length = length * words.extent(outer);
  return length;
}

SizeExpr refold::packedRows(const CudaKernel &kernel, const Words &words) {
  SizeExpr rows = 1;
  for (const CudaTiles::Share &packed : kernel.tiles->packed)
    rows = rows * (packed.share ? SizeExpr(packed.share)
                                : words.extent(packed.extent));
  return rows;
}

SizeExpr refold::groupsOf(const CudaEntry &entry, const CudaKernel &kernel,
                          const Words &words) {
  using Op = SizeExpr::Op;
  if (kernel.product) {
    const CudaOperand &result = kernel.operands.back();
    SizeExpr all =
        SizeExpr::binary(Op::CeilDiv, words.size(result, result.rank - 2),
                         SizeExpr(entry.rows)) *
        SizeExpr::binary(Op::CeilDiv, words.size(result, result.rank - 1),
                         SizeExpr(entry.columns));
    for (unsigned d = 0; d + 2 < result.rank; ++d)
      all = all * words.size(result, d);
    return all * SizeExpr(kernel.product->count);
  }
  if (kernel.rowProduct)
    return rowsOf(kernel, words) *
           SizeExpr::binary(Op::CeilDiv, words.extent(kernel.rowProduct->rows),
                            SizeExpr(entry.rows));
  if (!kernel.tiles) // of columns a block has several
    return entry.rows == 1
               ? rowsOf(kernel, words)
               : SizeExpr::binary(Op::CeilDiv, rowsOf(kernel, words),
                                  SizeExpr(entry.rows));
  SizeExpr groups = SizeExpr::binary(Op::CeilDiv, packedRows(kernel, words),
                                     SizeExpr(entry.rows));
  for (const CudaTiles::Share &group : kernel.tiles->groups)
    groups = groups * SizeExpr::binary(Op::CeilDiv, words.extent(group.extent),
                                       SizeExpr(group.share));
  return groups;
}

CallSizes refold::callSizesOf(const CudaKernel &kernel, const Words &words) {
  CallSizes call;
  if (kernel.product) {
    const CudaOperand &lhs = kernel.operands[0],
                      &result = kernel.operands.back();
    call.rows = words.size(result, result.rank - 2);
    call.columns = words.size(result, result.rank - 1);
    call.length = words.size(lhs, lhs.rank - 1);
    for (unsigned d = 0; d + 2 < result.rank; ++d)
      call.batch = call.batch * words.size(result, d);
    return call;
  }
  if (kernel.f8Product) {
    const CudaF8Product &product = *kernel.f8Product;
    call.rows = words.extent(product.rows);
    call.columns = words.extent(product.columns);
    call.length =
        words.size(kernel.operands[product.left.operand], product.left.flat);
    return call;
  }
  call.rows = rowsOf(kernel, words);
  call.length = lengthOf(kernel, words);
  if (kernel.rowProduct) {
    const CudaRowProduct::Side &left = kernel.rowProduct->left;
    call.batch = call.rows;
    call.rows = words.extent(kernel.rowProduct->rows);
    call.depth = words.size(kernel.operands[left.operand], left.flat);
  } else if (kernel.tiles) {
    call.batch = call.rows;
    call.rows = words.extent(kernel.tiles->rows);
    call.depth = words.extent(kernel.tiles->depth);
    call.columns = words.extent(kernel.tiles->width);
  }
  return call;
}
