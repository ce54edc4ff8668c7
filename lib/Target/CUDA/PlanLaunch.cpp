// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "LaunchSizes.h"
#include "refold/Package/LaunchCost.h"
#include "refold/Support/Error.h"
#include "refold/Support/Reasons.h"

using namespace refold;

/// Blocks that share rows, or parts of a stream.
static SizeExpr sharingBlocks(const CudaEntry &entry, const CudaKernel &kernel,
                              const Words &words) {
  using Op = SizeExpr::Op;
  SizeExpr groups = groupsOf(entry, kernel, words);
  SizeExpr blocks = groups * partsOf(entry, kernel, words);
  if (entry.mostGroups == 0)
    return blocks;
  // Where streams differ, who is done takes a further part.
  SizeExpr streams = 1;
  for (const CudaTiles::Share &group : kernel.tiles->groups)
    if (group.hasOwnStream)
      streams = streams * words.extent(group.extent);
  SizeExpr all = SizeExpr::binary(Op::Max, groups, SizeExpr(entry.mostBlocks)) +
                 SizeExpr(entry.furtherBlocks());
  all = SizeExpr::binary(Op::Min, all,
                         groups * longestParts(entry, kernel, words));
  SizeExpr differs =
      isAtMost(groups, entry.mostGroups) * (SizeExpr(1) - isAtMost(streams, 1));
  return SizeExpr::select(differs, SizeExpr::binary(Op::Max, all, groups),
                          blocks);
}

/// Blocks of an entry: some rows each, or some rows of every tile.
static SizeExpr blocksOf(const CudaEntry &entry, const CudaKernel &kernel,
                         const Words &words) {
  if (kernel.product && !entry.hasParts())
    return groupsOf(entry, kernel, words);
  if (kernel.f8Product) {
    using Op = SizeExpr::Op;
    return SizeExpr::binary(Op::CeilDiv, words.extent(kernel.f8Product->rows),
                            SizeExpr(entry.rows)) *
           SizeExpr::binary(Op::CeilDiv,
                            words.extent(kernel.f8Product->columns),
                            SizeExpr(entry.columns));
  }
  SizeExpr rows = rowsOf(kernel, words);
  if (entry.hasParts())
    return sharingBlocks(entry, kernel, words);
  auto blocks = [&](const SizeExpr &count) {
    return SizeExpr::binary(SizeExpr::Op::CeilDiv, count, SizeExpr(entry.rows));
  };
  if (entry.turnRows > 0) {
    // As many as a GPU has multiprocessors, or twice, also of few rows.
    constexpr int64_t kFewBlocks = 256;
    using Op = SizeExpr::Op;
    SizeExpr turns =
        SizeExpr::binary(Op::CeilDiv, rows, SizeExpr(entry.turnRows));
    SizeExpr few =
        SizeExpr::binary(Op::Min, rows, SizeExpr(kFewBlocks / entry.blocks));
    return SizeExpr::binary(Op::Max, turns, few) * SizeExpr(entry.blocks);
  }
  if (!kernel.tiles)
    return blocks(rows) * SizeExpr(entry.blocks);
  return rows * blocks(words.extent(kernel.tiles->rows));
}

/// Shared memory that the launch asks for: to keep rows, whole chunks of them,
/// or whole vectors where every lane has one.
static SizeExpr sharedOf(const CudaEntry &entry, const CudaKernel &kernel,
                         const Words &words) {
  if (entry.keptBytes == 0)
    return entry.sharedBytes;
  if (entry.place == CudaEntry::Ring) // a chunk, however long the row is
    return entry.chunk() * entry.keptBytes + entry.aheadBytes();
  SizeExpr kept = SizeExpr::binary(
      SizeExpr::Op::Max, lengthOf(kernel, words) - SizeExpr(entry.held()),
      SizeExpr(0));
  int64_t chunk = entry.place == CudaEntry::Lanes ? entry.width : entry.chunk();
  SizeExpr chunks =
      SizeExpr::binary(SizeExpr::Op::CeilDiv, kept, SizeExpr(chunk));
  if (entry.blocks > 1)
    chunks =
        SizeExpr::binary(SizeExpr::Op::CeilDiv, chunks, SizeExpr(entry.blocks));
  return chunks * SizeExpr(chunk * entry.keptBytes) +
         SizeExpr(entry.aheadBytes() + entry.sharedBytes);
}

/// What cuBLASLt may compute in place of a product's kernel, and where it is
/// expected to be quicker (benchmarks/results/cuda-products.md).
static std::optional<package::DeviceProduct>
describeForLibrary(const CudaKernel &kernel, const Words &words,
                   SizeSharing &sharing) {
  if (!kernel.product || !kernel.product->library)
    return std::nullopt;
  const CudaProduct::Library &form = *kernel.product->library;
  const CudaOperand &lhs = kernel.operands[0], &result = kernel.operands.back();
  package::DeviceProduct product;
  product.rank = lhs.rank;
  product.lhs = {lhs.word, form.sides};
  product.rhs = {kernel.operands[1].word, form.sides};
  product.result = {result.word, form.result};
  product.hasBias = form.hasBias;
  if (form.hasBias) {
    product.bias = {kernel.operands[2].word, form.result};
    product.biasRank = kernel.operands[2].rank;
  }
  constexpr int64_t kLarge = int64_t(1) << 34;
  SizeExpr condition = 1;
  if (form.sides != DType::F32) {
    SizeExpr products = words.size(lhs, lhs.rank - 1);
    for (unsigned dim = 0; dim < result.rank; ++dim)
      products = products * words.size(result, dim);
    condition = SizeExpr::binary(SizeExpr::Op::Le, SizeExpr(kLarge), products);
  }
  product.condition = sharing.add(condition);
  return product;
}

/// Bytes that blocks which share sums, or have maps, leave in the workspace.
static SizeExpr workspaceOf(const CudaKernel &kernel, const Words &words) {
  using Op = SizeExpr::Op;
  SizeExpr bytes;
  for (const CudaEntry &entry : kernel.entries) {
    if (!entry.hasParts())
      continue;
    // Whatever the addresses: alignment may leave the first such entry out.
    SizeExpr groups = groupsOf(entry, kernel, words),
             parts = partsOf(entry, kernel, words);
    SizeExpr leaves =
        isAtMost(groups, std::max<int64_t>(entry.mostBlocks, entry.mostGroups));
    if (kernel.rowProduct || kernel.product) // alone, a block leaves nothing
      leaves = SizeExpr(1) - isAtMost(parts, 1);
    SizeExpr all = sharingBlocks(entry, kernel, words);
    SizeExpr blocks = SizeExpr::select(leaves, all, 0);
    bytes = SizeExpr::binary(Op::Max, bytes,
                             blocks * SizeExpr(entry.leftBytes) +
                                 all * SizeExpr(entry.mapBytes));
  }
  return bytes;
}

/// Whether an entry gives the results, whichever is expected to be done sooner:
/// wherever it is taken, and wherever it may be asked for; over tiles, while
/// every group of rows has a ticket. Of products, blocks that are alone have
/// none.
static SizeExpr legalOf(const CudaEntry &entry, const CudaKernel &kernel,
                        const Words &words, const SizeExpr &condition) {
  SizeExpr legal = conditionOf(entry, kernel, words, /*isWanted=*/true);
  if (entry.hasParts() && kernel.tiles)
    legal =
        legal * isAtMost(groupsOf(entry, kernel, words),
                         std::max<int64_t>(entry.mostBlocks, entry.mostGroups));
  return SizeExpr::binary(SizeExpr::Op::Max, condition, legal);
}

/// Other numbers of blocks that an entry takes. Kernels work out of their grid
/// how many have a row together. None where streams of different lengths are
/// shared by weight.
static std::optional<package::FreeBlocks> freeBlocksOf(const CudaEntry &entry,
                                                       const CudaKernel &kernel,
                                                       const Words &words,
                                                       SizeSharing &sharing) {
  using Op = SizeExpr::Op;
  package::FreeBlocks free;
  if (entry.turnRows > 0) {
    free.unit = sharing.add(entry.blocks);
    free.pieces = sharing.add(rowsOf(kernel, words));
    return free;
  }
  if (!entry.hasParts() ||
      (kernel.tiles && (entry.roles > 0 || entry.mostGroups > 0)))
    return std::nullopt;
  constexpr int64_t kRowProductStep = 64; // RowProductTime's
  SizeExpr length = lengthOf(kernel, words);
  int64_t piece = kernel.tiles ? entry.vectors : entry.chunk();
  if (kernel.rowProduct || kernel.product) {
    const CudaOperand &left =
        kernel.operands[kernel.product ? 0 : kernel.rowProduct->left.operand];
    length = words.size(left, kernel.product ? left.rank - 1
                                             : kernel.rowProduct->left.flat);
    piece = kernel.product ? std::max(entry.copied, 1) : kRowProductStep;
  }
  free.unit = sharing.add(groupsOf(entry, kernel, words));
  free.pieces =
      sharing.add(SizeExpr::binary(Op::CeilDiv, length, SizeExpr(piece)));
  free.most = unsigned(entry.mostBlocks);
  free.leftBytes = unsigned(entry.leftBytes + entry.mapBytes);
  return free;
}

static package::CallForm formOfCall(const CudaKernel &kernel) {
  using Form = package::CallForm;
  return kernel.tiles        ? Form::Tiles
         : kernel.rowProduct ? Form::RowProduct
         : kernel.product    ? Form::Product
         : kernel.f8Product  ? Form::ByteProduct
                             : Form::Rows;
}

/// What multiplies.
static GpuUnit unitOf(const CudaKernel &kernel, const CudaEntry &entry) {
  bool isOfWords = kernel.product && entry.copied > 0 && entry.roles == 0;
  bool isFlat = kernel.product && entry.roles == 0 && entry.sharedBytes == 0;
  // What tiles multiply has one type, or types of 16 bits and less.
  bool areWords =
      kernel.tiles && llvm::any_of(kernel.operands, [](const CudaOperand &o) {
        return o.hasVectors && !o.isResult && o.elementBytes == 4;
      });
  if (areWords || isOfWords || isFlat ||
      (!kernel.tiles && !kernel.rowProduct && !kernel.product &&
       !kernel.f8Product))
    return GpuUnit::Lanes;
  if (entry.roles == 0)
    return GpuUnit::Warps;
  return kernel.f8Product ? GpuUnit::Bytes : GpuUnit::WarpGroups;
}

/// What the time of an entry is predicted by.
static package::WayShape shapeOf(const CudaEntry &entry,
                                 const CudaKernel &kernel, const Words &words,
                                 SizeSharing &sharing) {
  using Shape = package::WayShape;
  Shape shape;
  shape.place = entry.place == CudaEntry::Nowhere     ? Shape::Nowhere
                : entry.place == CudaEntry::Registers ? Shape::Registers
                : entry.place == CudaEntry::Ring      ? Shape::Ring
                                                      : Shape::OnChip;
  shape.unit = uint8_t(unitOf(kernel, entry));
  shape.hasParts = entry.hasParts();
  shape.takesTurns = entry.turnRows > 0;
  shape.threads = unsigned(entry.threads);
  shape.rows = unsigned(entry.rows);
  shape.vectors = unsigned(entry.vectors);
  shape.width = unsigned(entry.width);
  shape.columns = unsigned(entry.columns);
  shape.stages = unsigned(entry.stages);
  shape.blocks = unsigned(entry.blocks);
  if (entry.hasParts()) {
    shape.groups = sharing.add(groupsOf(entry, kernel, words));
    shape.parts = sharing.add(partsOf(entry, kernel, words));
  }
  return shape;
}

/// What only who tunes, or explains, asks for: behind all that others do.
/// `taken`: the entry and the condition of each way.
static void
addForTuning(const CudaKernel &kernel, const Words &words,
             llvm::ArrayRef<std::pair<const CudaEntry *, SizeExpr>> taken,
             package::DeviceKernel &described, package::Launch &launch,
             SizeSharing &sharing) {
  for (auto [way, one] : llvm::zip_equal(launch.ways, taken)) {
    const auto &[entry, condition] = one;
    way.legal = sharing.add(legalOf(*entry, kernel, words, condition));
    way.freeBlocks = freeBlocksOf(*entry, kernel, words, sharing);
    way.shape = shapeOf(*entry, kernel, words, sharing);
  }
  CallSizes call = callSizesOf(kernel, words);
  described.call.form = formOfCall(kernel);
  described.call.elementBytes = unsigned(kernel.operands.front().elementBytes);
  for (auto [size, to] : {std::pair(&call.batch, &described.call.batch),
                          {&call.rows, &described.call.rows},
                          {&call.length, &described.call.length},
                          {&call.columns, &described.call.columns},
                          {&call.depth, &described.call.depth}})
    *to = sharing.add(*size);
}

package::DeviceKernel
refold::describeCudaLaunch(const CudaKernel &kernel,
                           std::optional<unsigned> wanted) {
  Words words(kernel);
  package::DeviceKernel described;
  described.name = kernel.name;
  described.text = kernel.text;
  SizeSharing sharing(described.sizes);
  // Parameters alone are worked out in every call, the workspace where memory
  // is asked for: what they do not need stands behind them.
  package::Launch launch;
  for (const CudaParameter &parameter : kernel.parameters)
    launch.parameters.push_back(sharing.add(words.parameter(parameter)));
  for (const CudaEntry &entry : kernel.entries)
    for (const CudaMap &map : entry.maps)
      words.map(map, sharing);
  SizeNumber one = sharing.add(1);
  described.workspaceBytes = sharing.add(workspaceOf(kernel, words));
  for (const CudaEntry &entry : kernel.entries)
    if (entry.hasParts())
      described.tickets =
          std::max(described.tickets, uint32_t(entry.tickets()));
  described.product = describeForLibrary(kernel, words, sharing);
  std::vector<std::pair<const CudaEntry *, SizeExpr>> taken;
  auto add = [&](const CudaEntry &entry, const SizeExpr &condition,
                 int leastBlocks) {
    package::LaunchWay way;
    way.entry = entry.name;
    way.condition = sharing.add(condition);
    way.grid = {sharing.add(blocksOf(entry, kernel, words)), one, one};
    bool isOfBlock =
        kernel.tiles || kernel.product || kernel.rowProduct || kernel.f8Product;
    way.block = {sharing.add(entry.threads * (isOfBlock ? 1 : entry.rows)), one,
                 one};
    way.sharedBytes = sharing.add(sharedOf(entry, kernel, words));
    way.blocksPerUnit = entry.isLoop ? unsigned(entry.blocksPerUnit) : 0;
    way.leastBlocks = unsigned(leastBlocks);
    for (const CudaMap &map : entry.maps)
      way.maps.push_back(words.map(map, sharing));
    launch.ways.push_back(std::move(way));
    taken.emplace_back(&entry, condition);
  };
  if (wanted)
    add(kernel.entries[*wanted],
        conditionOf(kernel.entries[*wanted], kernel, words, true), 0);
  // The first that takes the rows; of rows, the last one takes all.
  for (const CudaEntry &entry : kernel.entries)
    add(entry,
        &entry == &kernel.entries.back() && !kernel.tiles
            ? SizeExpr(1)
            : conditionOf(entry, kernel, words, false),
        entry.leastBlocks);
  addForTuning(kernel, words, taken, described, launch, sharing);
  described.launches.push_back(std::move(launch));
  return described;
}

bool refold::mayLackRoom(const CudaKernel &kernel) {
  return kernel.tiles &&
         (kernel.tiles->depth.operand >= 0 || kernel.tiles->width.operand >= 0);
}

namespace {
/// Sizes with other symbols.
class Substitution {
public:
  explicit Substitution(llvm::ArrayRef<SizeExpr> values) : values(values) {}
  SizeExpr of(const SizeExpr &size) {
    if (size.op() == SizeExpr::Op::Const)
      return size;
    if (size.op() == SizeExpr::Op::Symbol)
      return values[size.value()];
    auto known = made.find(size.identity());
    if (known != made.end())
      return known->second;
    std::span<const SizeExpr> in = size.operands();
    SizeExpr result = in.size() == 3
                          ? SizeExpr::select(of(in[0]), of(in[1]), of(in[2]))
                          : SizeExpr::binary(size.op(), of(in[0]), of(in[1]));
    made.try_emplace(size.identity(), result);
    return result;
  }

private:
  llvm::ArrayRef<SizeExpr> values;
  llvm::DenseMap<const void *, SizeExpr> made;
};
} // namespace

SizeExpr refold::hasRoom(const CudaKernel &kernel, const KernelStep &step) {
  // The words of the call, as the plan of a run has them.
  std::vector<SizeExpr> words;
  for (const OperandSpec &operand : step.operands) {
    if (auto *scalar = std::get_if<ScalarSpec>(&operand)) {
      words.push_back(scalar->value);
      continue;
    }
    const ViewSpec &view = std::get<ViewSpec>(operand);
    SizeExpr begin = view.offset * SizeExpr(int64_t(byteWidth(view.dtype)));
    words.insert(words.end(), {begin, begin, SizeExpr(0)});
    words.insert(words.end(), view.sizes.begin(), view.sizes.end());
    words.insert(words.end(), view.strides.begin(), view.strides.end());
  }
  // The last entry takes whatever any other one does.
  return Substitution(words).of(conditionOf(kernel.entries.back(), kernel,
                                            Words(kernel), /*isWanted=*/true));
}

/// Products that no entry has room for.
static llvm::Error refuseTiles(const CudaKernel &kernel,
                               llvm::ArrayRef<int64_t> values) {
  Words words(kernel);
  auto extent = [&](const CudaExtent &e) {
    return llvm::Twine(words.extent(e).evaluate(values).value_or(-1)).str();
  };
  const CudaEntry &last = kernel.entries.back();
  SizeExpr fits = isAtMost(words.extent(kernel.tiles->depth), last.deepest) *
                  isAtMost(words.extent(kernel.tiles->width), last.widest);
  std::string found = "'" + kernel.name + "': [" +
                      llvm::StringRef(keyOf(Reason::CudaNotTiles)).str() + "] ";
  bool isWide = last.hasParts() && last.roles > 0;
  if (isWide && words.areForward().evaluate(values).value_or(0) == 0)
    return fail(ExitCode::Unsupported,
                found + "found rows that lie backwards, expected those after "
                        "each other where results are wide");
  if (last.width > 1 && fits.evaluate(values).value_or(0) != 0)
    return fail(ExitCode::Unsupported,
                found + "found rows of several elements that are no whole "
                        "vectors of 16 bytes, expected those where results "
                        "are wide");
  return fail(ExitCode::Unsupported,
              found + "found products of " + extent(kernel.tiles->depth) +
                  " elements and results of " + extent(kernel.tiles->width) +
                  ", expected at most " +
                  llvm::Twine(kernel.entries.back().deepest));
}

llvm::Expected<std::optional<CudaLaunch>>
refold::planCudaLaunch(const CudaKernel &kernel, const int64_t *rawWords,
                       std::optional<unsigned> wanted,
                       std::pair<int64_t, int64_t> shared) {
  package::DeviceKernel described = describeCudaLaunch(kernel, wanted);
  const package::Launch &plan = described.launches.front();
  llvm::SmallVector<int64_t> words(rawWords, rawWords + numWords(kernel));
  words.append({shared.first, shared.second});
  TermValues sizes;
  sizes.start(described.sizes, words);
  auto way = llvm::find_if(plan.ways, [&](const package::LaunchWay &one) {
    return sizes[one.condition].value_or(0) != 0;
  });
  if (way == plan.ways.end())
    return refuseTiles(kernel, words);
  std::optional<int64_t> blocks = sizes[way->grid[0]];
  constexpr int64_t kMaxBlocks = (int64_t(1) << 31) - 1;
  if (!blocks || *blocks > kMaxBlocks)
    return fail(ExitCode::Limit,
                "'" + kernel.name +
                    "' has too many rows, expected fewer than a grid has");
  if (*blocks == 0)
    return std::nullopt;
  CudaLaunch launch;
  launch.entry = unsigned(llvm::find_if(kernel.entries,
                                        [&](const CudaEntry &one) {
                                          return one.name == way->entry;
                                        }) -
                          kernel.entries.begin());
  launch.blocks = *blocks;
  launch.threads = int(*sizes[way->block[0]]);
  // As many as two multiprocessors take, so that blocks have several rows.
  const CudaEntry &entry = kernel.entries[launch.entry];
  if (way->blocksPerUnit > 0 || entry.turnRows > 0)
    launch.blocks =
        std::min<int64_t>(*blocks, 2 * std::max(int64_t(way->blocksPerUnit),
                                                int64_t(entry.blocks)));
  launch.sharedBytes = sizes[way->sharedBytes].value_or(0);
  for (SizeNumber parameter : plan.parameters)
    launch.values.push_back(sizes[parameter].value_or(0));
  for (const package::LaunchMap &map : way->maps)
    launch.maps.push_back(
        package::valuesOf(map, sizes).value_or(package::MapValues()));
  return launch;
}

int64_t refold::cudaWorkspaceBytes(const CudaKernel &kernel,
                                   const int64_t *words,
                                   std::optional<unsigned> wanted) {
  package::DeviceKernel described = describeCudaLaunch(kernel, wanted);
  TermValues sizes;
  sizes.start(described.sizes, {words, numWords(kernel)});
  return sizes[described.workspaceBytes].value_or(0);
}
