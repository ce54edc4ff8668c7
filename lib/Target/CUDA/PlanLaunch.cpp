// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/Error.h"
#include "refold/Target/CUDA/CompileCuda.h"
#include "llvm/Support/MathExtras.h"

using namespace refold;

namespace {
/// The words of one call.
class Words {
public:
  Words(const CudaKernel &kernel, const int64_t *words)
      : kernel(kernel), words(words) {}

  int64_t address(const CudaOperand &o) const {
    return words[o.word + 1] + words[o.word + 2] * o.elementBytes;
  }
  int64_t size(const CudaOperand &o, unsigned dim) const {
    return words[o.word + 3 + dim];
  }
  int64_t stride(const CudaOperand &o, unsigned dim) const {
    return words[o.word + 3 + o.rank + dim];
  }
  int64_t extent(const CudaExtent &e) const {
    if (e.operand < 0)
      return e.constant;
    const CudaOperand &o = kernel.operands[e.operand];
    return e.dim < 0 ? words[o.word] : size(o, e.dim);
  }
  int64_t parameter(const CudaParameter &p) const {
    const CudaOperand &o = kernel.operands[p.operand];
    switch (p.kind) {
    case CudaParameter::Pointer:
      return address(o);
    case CudaParameter::Size:
      return size(o, p.dim);
    case CudaParameter::Stride:
      return stride(o, p.dim);
    case CudaParameter::Scalar:
      break;
    }
    return words[o.word];
  }
  /// Whether all rows are whole vectors of `width` elements that begin at
  /// multiples of 16 bytes, or of the vector where that is less.
  bool takes(int width) const {
    if (extent(kernel.stream) % width)
      return false;
    return llvm::all_of(kernel.operands, [&](const CudaOperand &o) {
      if (!o.hasVectors)
        return true;
      int64_t bytes = std::min<int64_t>(16, width * o.elementBytes);
      for (unsigned dim = 0; dim + 1 < o.rank; ++dim)
        if (size(o, dim) > 1 && stride(o, dim) * o.elementBytes % bytes)
          return false;
      return address(o) % bytes == 0;
    });
  }

private:
  const CudaKernel &kernel;
  const int64_t *words;
};
} // namespace

static bool takes(const CudaEntry &entry, const CudaKernel &kernel,
                  const Words &words, bool isWanted) {
  int64_t length = words.extent(kernel.stream);
  bool isLimit = entry.isResident || !isWanted;
  return words.takes(entry.width) &&
         (!isLimit || entry.longest < 0 || length <= entry.longest);
}

/// The first that takes the rows; the last one takes all.
static unsigned chooseEntry(const CudaKernel &kernel, const Words &words) {
  for (auto [i, entry] : llvm::enumerate(kernel.entries))
    if (takes(entry, kernel, words, /*isWanted=*/false))
      return i;
  return kernel.entries.size() - 1;
}

llvm::Expected<std::optional<CudaLaunch>>
refold::planCudaLaunch(const CudaKernel &kernel, const int64_t *rawWords,
                       std::optional<unsigned> wanted) {
  Words words(kernel, rawWords);
  int64_t rows = 1;
  for (const CudaExtent &row : kernel.rows)
    if (llvm::MulOverflow(rows, words.extent(row), rows))
      return fail(ExitCode::Limit, "'" + kernel.name + "' has too many rows");
  if (rows == 0)
    return std::nullopt;
  CudaLaunch launch;
  launch.entry = chooseEntry(kernel, words);
  if (wanted && takes(kernel.entries[*wanted], kernel, words, true))
    launch.entry = *wanted;
  const CudaEntry &entry = kernel.entries[launch.entry];
  launch.threads = entry.threads * entry.rows;
  launch.blocks = llvm::divideCeil(rows, entry.rows);
  constexpr int64_t kMaxBlocks = (int64_t(1) << 31) - 1;
  if (launch.blocks > kMaxBlocks)
    return fail(ExitCode::Limit, "'" + kernel.name + "': found " +
                                     llvm::Twine(rows) +
                                     " rows, expected fewer than a grid has");
  for (const CudaParameter &parameter : kernel.parameters)
    launch.values.push_back(words.parameter(parameter));
  return launch;
}
