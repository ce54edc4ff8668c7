// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Target/CUDA/DescribeLaunch.h"

#include "LaunchSizes.h"

using namespace refold;

namespace {
/// Sizes of a call as numbers.
class CallNumbers {
public:
  CallNumbers(const CudaKernel &kernel, llvm::ArrayRef<int64_t> values)
      : words(kernel), values(values) {}
  int64_t of(const SizeExpr &size) const {
    return size.evaluate(values).value_or(0);
  }
  int64_t of(const CudaExtent &extent) const {
    return of(words.extent(extent));
  }

  Words words;

private:
  llvm::ArrayRef<int64_t> values;
};
} // namespace

const char *refold::formOf(const CudaKernel &kernel) {
  return kernel.tiles        ? "tiles"
         : kernel.rowProduct ? "rows of products"
         : kernel.product    ? "product"
         : kernel.f8Product  ? "product of 8 bits"
                             : "rows";
}

CudaCall refold::describeCall(const CudaKernel &kernel, const CudaEntry &entry,
                              llvm::ArrayRef<int64_t> words) {
  CallNumbers sizes(kernel, words);
  CallSizes found = callSizesOf(kernel, sizes.words);
  CudaCall call;
  call.batch = sizes.of(found.batch);
  call.rows = sizes.of(found.rows);
  call.length = sizes.of(found.length);
  call.columns = sizes.of(found.columns);
  call.depth = sizes.of(found.depth);
  if (entry.hasParts()) {
    call.groups = sizes.of(groupsOf(entry, kernel, sizes.words));
    call.parts = sizes.of(partsOf(entry, kernel, sizes.words));
  }
  return call;
}

/// How the rows of an entry lie on the multiprocessor.
static std::string describeRows(const CudaEntry &entry) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (entry.blocks > 1)
    os << "a row a cluster of " << entry.blocks << " blocks of "
       << entry.threads << " threads";
  else if (entry.hasParts() && entry.rows > 1)
    os << entry.rows << " rows by several blocks, " << entry.threads
       << " threads each";
  else if (entry.hasParts())
    os << "a row by several blocks of " << entry.threads << " threads";
  else if (entry.rows > 1)
    os << entry.rows << " rows a block, " << entry.threads
       << (entry.threads > 1 ? " threads each" : " thread each");
  else
    os << "a row a block of " << entry.threads << " threads";
  os << ", vectors of " << entry.width << ", " << entry.vectors
     << " at once; the row ";
  switch (entry.hasParts() ? CudaEntry::Nowhere : entry.place) {
  case CudaEntry::Nowhere:
    os << "is read in chunks";
    if (entry.stages > 0)
      os << ", " << entry.stages << " of them in shared memory";
    break;
  case CudaEntry::Registers:
    os << "stays in registers";
    break;
  case CudaEntry::Shared:
    os << "stays in shared memory";
    break;
  case CudaEntry::Split:
    os << "stays in registers and shared memory";
    break;
  case CudaEntry::Ring:
    os << "stays in shared memory, with what all rows read and " << entry.ahead
       << " later ones on their way";
    break;
  case CudaEntry::Lanes:
    os << "is one lane's, in shared memory";
    break;
  }
  if (entry.waits)
    os << "; blocks wait for each other and sweep their parts again";
  else if (entry.hasParts())
    os << "; the last block of a row merges what all have left";
  return text;
}

std::string refold::describeEntry(const CudaKernel &kernel,
                                  const CudaEntry &entry) {
  if (!kernel.tiles && !kernel.rowProduct && !kernel.product &&
      !kernel.f8Product)
    return describeRows(entry);
  std::string text;
  llvm::raw_string_ostream os(text);
  if (kernel.tiles)
    os << entry.rows << " rows a block, the stream in tiles of "
       << entry.vectors << ", products of up to " << entry.deepest
       << ", results of up to " << entry.widest;
  else
    os << "rectangles of " << entry.rows << " x " << entry.columns;
  if (entry.copied > 0 && !kernel.rowProduct)
    os << ", sums in steps of " << entry.copied;
  if (entry.roles > 0)
    os << "; " << entry.threads / 128
       << " groups of four warps: " << entry.roles
       << (entry.roles == 1 ? " multiplies" : " multiply")
       << ", the others bring";
  else
    os << "; " << entry.threads / 32 << " warps";
  if (entry.isLoop)
    os << "; a block does some of them one after the other";
  if (entry.hasParts())
    os << (kernel.tiles ? "; blocks share the stream" : "; blocks share a sum");
  return text;
}

static std::string moreThan(const char *what, int64_t found, int64_t most) {
  return (llvm::Twine(what) + " " + llvm::Twine(found) + ", it has room for " +
          llvm::Twine(most))
      .str();
}

/// Limits of entries over tiles.
static std::string whyNotTiles(const CudaKernel &kernel, const CudaEntry &entry,
                               const CallNumbers &sizes, const CudaCall &call) {
  if (call.depth > entry.deepest)
    return moreThan("products of", call.depth, entry.deepest);
  if (call.columns > entry.widest && entry.widest > 0)
    return moreThan("results of", call.columns, entry.widest);
  constexpr int64_t kFewRows = 32;
  if (entry.hasParts() && entry.roles == 0) {
    int64_t packed = sizes.of(packedRows(kernel, sizes.words));
    if (packed > kFewRows)
      return moreThan("rows of a stream:", packed, kFewRows);
  }
  if (call.rows < entry.fewestRows)
    return (llvm::Twine(call.rows) + " rows, it is for " +
            llvm::Twine(entry.fewestRows) + " and more")
        .str();
  if (sizes.of(sizes.words.takes(sizes.words.extent(kernel.tiles->depth),
                                 entry.width)) == 0)
    return "rows are no whole vectors of 16 bytes";
  return "";
}

static std::string whyNotRows(const CudaKernel &kernel, const CudaEntry &entry,
                              const CallNumbers &sizes, const CudaCall &call) {
  if (entry.longest >= 0 && call.length > entry.longest)
    return moreThan("rows of", call.length, entry.longest);
  if (call.length < entry.shortest)
    return (llvm::Twine("rows of ") + llvm::Twine(call.length) +
            ", it is for " + llvm::Twine(entry.shortest) + " and more")
        .str();
  if (call.rows < entry.fewestRows)
    return (llvm::Twine(call.rows) + " rows, it is for " +
            llvm::Twine(entry.fewestRows) + " and more")
        .str();
  if (sizes.of(sizes.words.takes(lengthOf(kernel, sizes.words), entry.width)) ==
      0)
    return "rows are no whole vectors of " + std::to_string(entry.width);
  if (entry.hasParts())
    return call.groups > entry.mostBlocks
               ? moreThan(entry.rows > 1 ? "blocks of rows:" : "rows:",
                          call.groups, entry.mostBlocks)
               : "rows are not worth several blocks each";
  return "";
}

std::string refold::whyNot(const CudaKernel &kernel, const CudaEntry &entry,
                           llvm::ArrayRef<int64_t> words) {
  CallNumbers sizes(kernel, words);
  CudaCall call = describeCall(kernel, entry, words);
  std::string why;
  if (kernel.tiles)
    why = whyNotTiles(kernel, entry, sizes, call);
  else if (!kernel.product && !kernel.rowProduct && !kernel.f8Product)
    why = whyNotRows(kernel, entry, sizes, call);
  else if (entry.width > 1 || entry.copied > 1)
    why = "arrays that are no whole vectors of 16 bytes, or another one is "
          "expected to be done sooner";
  return why.empty() ? "another one is expected to be done sooner" : why;
}
