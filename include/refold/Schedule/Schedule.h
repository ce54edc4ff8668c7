// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SCHEDULE_SCHEDULE_H
#define REFOLD_SCHEDULE_SCHEDULE_H

#include "refold/Dialect/Refold/IR/Refold.h"
#include "refold/Schedule/TargetFacts.h"
#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace refold {

/// On the cascade of a kernel with nests: a bool an input, whether it is
/// another array in every run. Panels of it are made by who reads them.
inline constexpr llvm::StringLiteral kVaryingInputsAttr = "refold.varying";

/// At most so many rows, a tile, sum their products with lanes along what is
/// summed, if the operand that they share is dense there: panels would serve
/// one tile.
inline constexpr int64_t kRowsAlongSum = 64, kRowsInPlace = 4;

/// The same where `extent` elements are summed, of which a register has
/// `lanes`: each sum is added up across its lanes, however short it is. Zen 4,
/// attention of m rows, with panels and so, ms: 8 heads, 2048 keys, d = 64,
/// m = 5 0.67 and 0.33, 16 1.67 and 1.1; 4 heads, 1024 keys, how many times as
/// long: d = 8, m = 8 1.4; d = 16, m = 12 1.2, 24 1.25; d = 32, m = 40 1.16;
/// d = 64, m = 40 1.07, 64 1.15; d = 128, m = 40 0.76.
inline int64_t rowsAlongSum(int64_t extent, int64_t lanes) {
  return std::clamp(extent / lanes * lanes / 2, kRowsInPlace, kRowsAlongSum);
}

/// At most so many rows are multiplied by an array that is another one in every
/// run in the order in which it lies, some steps of the sum at a time: panels
/// would be made for one reading. x[m, 4096] by 4096 x 4096, one thread, ms,
/// with panels and so: Sapphire Rapids m = 16 8.7 and 3.7, 32 11.3 and 7.2, 64
/// 16.3 and 14.2 (with panels of 512 steps 14.3), 128 25.7 and 28.9; routing of
/// 64 tokens, 2048 by 128, 0.22 and 0.19. With 16 registers no more than these
/// were timed (Zen 3).
inline int64_t rowsInOrder(const TargetFacts &target) {
  return target.vectorRegisters >= 32 ? 64 : 8;
}
/// The same of one that is dense along what is summed: a sum for each row and
/// column is added up across its lanes. Sapphire Rapids, x[m, 4096] by
/// w[4096, 4096] along both rows, with panels and so: m = 16 8.9 and 5.9 ms, 32
/// 11.8 and 10.7, 64 16.1 and 19.1.
inline int64_t rowsInOrderAlong(const TargetFacts &target) {
  return std::min<int64_t>(rowsInOrder(target), 32);
}

/// How lists of the best are filled: element by element; from candidates of as
/// many rows as there are lanes, one after the other; or by sorting these.
enum class ListForm : uint8_t { ByElement, Inserted, Sorted };

/// The form of lists of `length` places whose keys are of type `key`, of rows
/// in tiles of `tileRows`, of which a register has `lanes`. A list of
/// candidates is no longer than a register; where they are sorted a key has its
/// place beside it in 64 bits.
inline ListForm listFormOf(mlir::Type key, int64_t length, int64_t tileRows,
                           int64_t lanes) {
  if (tileRows < 1 || tileRows % lanes || length < 1 || length > lanes)
    return ListForm::ByElement;
  bool isSorted = mlir::isa<mlir::FloatType>(key) &&
                  key.getIntOrFloatBitWidth() <= 32 && lanes >= 4;
  return isSorted ? ListForm::Sorted : ListForm::Inserted;
}

/// Whether lanes are brought together by a table of all sets of them, where no
/// instruction does it: 2 KiB for eight.
inline bool compressesByTable(const TargetFacts &target, int64_t lanes) {
  return !target.hasCompress && lanes == 8;
}

/// Registers of maxima that bound the candidates of a row. The least of as many
/// maxima as a list has places is a poor bound: of random rows 22 elements are
/// no worse than the 8th of 8 maxima, 11 than that of 16, 9 than that of 32.
inline int64_t registersOfMaxima(int64_t length, int64_t lanes) {
  return 2 * length > lanes ? 2 : 1;
}

/// Whether `input` of the cascade has that bit.
bool isVarying(CascadeOp cascade, unsigned input);
bool isVarying(CascadeOp cascade, ReadOp read);

/// Items of a kernel that multiplies rows by panels: as few as give each core
/// some. The walk and the cost model agree on them here.
struct ItemsOfPanels {
  /// Fewer rows are not worth panels that the item lays out itself.
  static constexpr int64_t kLeastRows = 512;
  /// Of a product by itself; what has rows in common to compute has one.
  static constexpr int64_t kOfCore = 4;
  /// Of fewer results for each core than `kManyResults`, blocks of columns give
  /// each core two items, and all of them four; else one.
  static constexpr int64_t kManyResults = 1 << 17;
  static int64_t withBlocks(int64_t cores) {
    return std::max<int64_t>(2 * cores, 4);
  }
};

/// How a cascade is walked: numbers and names of indices and operands, never a
/// meaning. As text it is the `schedule {...}` dictionary of the op; a field
/// that is left out takes the value that `chooseSchedule` gives it.
struct Schedule {
  /// `tile = {m = 64, n = 256}`. A row index with a tile is the one whose rows
  /// are worked on together; of a carried index: an outer block, in which the
  /// row states are computed again.
  std::map<std::string, int64_t> tile;
  /// `register = array<i64: 8, 32>`: rows and lanes of the register tile.
  int64_t registerRows = 8;
  int64_t registerLanes = 32;
  /// `unroll = 4`: steps of an innermost loop written out.
  int64_t unroll = 4;
  /// `pack = ["w"]`: operands put into panels though their lanes are
  /// contiguous.
  std::vector<std::string> pack;
  /// `lanes = "j"`: a row index that runs along the lanes instead of the
  /// stream.
  std::string lanes;
  /// `segments = 4`: parts of the stream that are items of their own.
  int64_t segments = 1;
  /// `prefetch`: ask for the next rows while this one is computed.
  bool prefetch = false;
  /// `stream_bytes = 33554432`: results of at least so many bytes are stored
  /// past the caches, which they would only empty; 0: none are.
  int64_t streamBytes = 0;
  /// From how many bytes on a result is stored so. Beside what is read with it,
  /// and what others leave in the last cache between two calls, a quarter of it
  /// is all that a result of the program finds there. Zen 4, 32 MB, one and two
  /// threads, through the caches and past them, in turns with unfused:
  /// LayerNorm 512 x 4096 (8 MB) 1.13 and 0.49 ms, 0.51 and 0.33, 1024 rows
  /// 2.35 and 1.16, 1.14 and 0.70; 256 rows (4 MB) 0.28 and 0.20, 0.15 and
  /// 0.17. What the program itself reads next (softmax unfused): 8 MB 1.33 and
  /// 1.20, 0.68 and 0.95; 16 MB 3.4 and 2.7, 1.87 and 1.56.
  int64_t streamedFrom(bool leavesProgram) const {
    return leavesProgram ? (streamBytes + 3) / 4 : streamBytes;
  }
  /// A result of bytes that leaves the program counts as this part of what
  /// passes through the caches with it, and at least as its own: little of it
  /// would be left there. Zen 4, rows of 4096 f32 to int8, 64 MB to 16: 5.4 ms,
  /// past the caches 3.4 to 4.1.
  static constexpr int64_t kPassingOfBytes = 2;
  /// `panel_bytes = 393216`: of packed operands that lie ready at a time; where
  /// all of them are more, the kernel works in rounds of some outer rows; 0:
  /// each item lays out those of its tiles of the stream.
  static constexpr int64_t kPanelBytes = 384 << 10;
  int64_t panelBytes = kPanelBytes;
  /// `inner_lanes`: lanes along the contracted index (few rows, nothing
  /// packed).
  bool innerLanes = false;

  mlir::DictionaryAttr toAttr(mlir::MLIRContext *context) const;
};

/// What a row moves for each position of `stream`.
struct MovedAlong {
  int64_t bits = 0;          ///< read and written
  int64_t sweptBytes = 0;    ///< that a sweep reads
  int64_t ownSweptBytes = 0; ///< of these, what no other row reads
  bool sweepsShared = false; ///< some of that is the same for all rows
};
MovedAlong movedAlong(CascadeOp cascade, const IndexSets &sets,
                      unsigned stream);

/// The most elements along the stream of rows that a sweep follows one by one
/// though they read something in common there: three quarters of the second
/// cache hold a row and that. Longer ones are swept tile by tile, all rows of
/// an item, up to `kRowsSwept`. None where rows share nothing. Sapphire Rapids,
/// one thread, LayerNorm by hand, row by row and 8 rows so, 64 x 262144 7.5
/// and 5.5 ms, 16 x 1048576 8.3 and 5.5; 128 x 131072, which three quarters
/// hold, 5.45 and 5.42.
std::optional<int64_t> longestSweptAlone(const MovedAlong &moved,
                                         const TargetFacts &target);
constexpr int64_t kRowsSwept = 16;

/// The most elements of rows that are written before the next one is begun,
/// where the target asks for what is read soon into the first cache: three
/// quarters of the second hold one, and what all read. The pass of the next row
/// goes beside the sweep of a longer one, so that reads from memory and from
/// the third cache and writes past them overlap, and what rows have in common
/// is read once for both. Zen 5, one thread, 16 rows swept together and so:
/// RMSNorm 128 x 131072 4.5 ms and 3.7, 16 x 1048576, whose 8 rows of an item
/// fill the third cache, 5.2 and 3.8; to int8 4.9 and 3.0, 5.1 and 3.3. Rows
/// that the second cache holds are better written first: LayerNorm 512 x 32768
/// 3.7 ms, so 5.1; softmax 128 x 131072 3.25 and 3.45. None where a sweep reads
/// nothing of its row.
std::optional<int64_t> longestWrittenFirst(const MovedAlong &moved,
                                           const TargetFacts &target);

/// Accesses of the tile of `row` times the index of the lanes that lie along
/// `row`: registers are turned, some rows of them at a time, through an array
/// of the workspace.
struct TurnedAccesses {
  llvm::SmallVector<ReadOp, 2> reads;
  llvm::SmallVector<WriteOp, 2> writes;
  bool any() const { return !reads.empty() || !writes.empty(); }
};
TurnedAccesses turnedAccesses(CascadeOp cascade, const IndexSets &sets,
                              unsigned lane, unsigned row,
                              const TargetFacts &target);
/// Rows of such a tile, whose arrays have room for `width` elements a row: a
/// block of two cache lines of each position of the lanes, while half of the
/// second cache holds them. Sapphire Rapids, 4096 x 4096 written transposed,
/// rows in the second cache, 16 rows 7.3 ms, 32 5.9, 64 6.2; read so 7.7, 6.0,
/// 5.9.
int64_t rowsTurned(const TurnedAccesses &turned, int64_t width,
                   const TargetFacts &target);

/// Whether `term` multiplies two values that are bf16, of which one is read
/// from an operand that is the same in every run.
bool multipliesPairsByConstant(CascadeOp cascade, mlir::Value term);

/// The schedule of the op: what its attribute says, and for the rest what index
/// sets, extents and strides suggest for `target`. Deterministic.
mlir::FailureOr<Schedule> chooseSchedule(CascadeOp cascade,
                                         const TargetFacts &target);

} // namespace refold

#endif // REFOLD_SCHEDULE_SCHEDULE_H
