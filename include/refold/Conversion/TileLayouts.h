// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where elements of a tile are, as linear maps over the bits of their numbers
// (addition is exclusive or): in the registers of lanes and warps, and in
// shared memory. What two of them have to do with each other is then algebra:
// equality, an inverse, a rank.
#ifndef REFOLD_CONVERSION_TILELAYOUTS_H
#define REFOLD_CONVERSION_TILELAYOUTS_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace refold::tile {

/// A linear map over bits: what each bit of the input is, as bits of the
/// output.
class BitMap {
public:
  BitMap() = default;
  BitMap(unsigned outputs, std::vector<uint32_t> images)
      : outputs(outputs), images(std::move(images)) {}
  static BitMap identity(unsigned bits);

  unsigned numInputs() const { return unsigned(images.size()); }
  unsigned numOutputs() const { return outputs; }
  uint32_t image(unsigned bit) const { return images[bit]; }
  uint32_t operator()(uint32_t input) const;
  bool operator==(const BitMap &other) const = default;

  /// First this map, then that one.
  BitMap then(const BitMap &next) const;
  unsigned rank() const;
  /// The map back, of one that is one to one.
  std::optional<BitMap> inverse() const;
  /// The inputs [begin, begin + count) and the outputs `mask` keeps, moved
  /// together.
  BitMap part(unsigned begin, unsigned count, uint32_t mask) const;

private:
  unsigned outputs = 0;
  std::vector<uint32_t> images;
};

/// Where elements of a tile are in registers: bits of the register (elements
/// that lie in one register first), then five of the lane, then those of the
/// warp, to bits of the column, then those of the row.
struct Fragment {
  unsigned registers = 0, warps = 0; ///< bits of each; 5 are the lane's
  unsigned columns = 0, rows = 0;
  BitMap map;

  static constexpr unsigned kLaneBits = 5;
  /// What the matrix units leave of 16 rows and `columns` columns (mma.sync);
  /// of 64 rows of four warps (wgmma).
  static Fragment sumsOfWarp(unsigned columns);
  static Fragment sumsOfFourWarps(unsigned columns);
  /// What they take as the left side from registers: 16 rows of a warp, 64 of
  /// four, of `columns` columns along the sum, elements of `bytes` (1, 2 or 4).
  static Fragment leftOfWarp(unsigned columns, unsigned bytes);
  static Fragment leftOfFourWarps(unsigned columns, unsigned bytes);
  /// The right side of a warp: rows along the sum.
  static Fragment rightOfWarp(unsigned depth, unsigned columns, unsigned bytes);
  /// What `load_matrices` leaves of 16 rows of 16 columns of 16 bits, lane l
  /// having asked for row l % 16 and chunk l / 16; and `load_transposed`.
  static Fragment loaded(bool isTransposed);
};

/// Which element of `from` each element of `to` is, where no lane has to ask
/// another one: a map of register bits. Nothing where lanes have to exchange.
std::optional<BitMap> withoutExchange(const Fragment &from, const Fragment &to);

/// A matrix in shared memory, in chunks of 16 bytes of a row. Rows are `pitch`
/// chunks apart; of those where chunks are permuted, chunk c of row r lies
/// where chunk c ^ (r / rowsPerTurn * unit % span) would.
struct SharedRows {
  int64_t rows = 0, chunks = 0, pitch = 0;
  int64_t span = 1; ///< chunks that are permuted among each other; 1: none
  int64_t unit = 1, rowsPerTurn = 1;
  int64_t panels = 1; ///< of all rows, behind each other

  int64_t bytes() const { return panels * rows * pitch * 16; }
  /// Where a chunk is, in bytes.
  int64_t place(int64_t row, int64_t chunk) const;
  /// The same of 8 rows and 8 chunks from the first of them on, bits of the
  /// chunk, then of the row, to those of the chunk in shared memory, modulo
  /// the 128 bytes that its banks deliver at once. An odd number of chunks
  /// apart is as good as one: multiplying by it only renames banks.
  BitMap banks() const;
  /// How many times the banks deliver where 8 lanes ask for a chunk each: of 8
  /// rows at one chunk (load_matrices, also transposed, and products of a
  /// warp), or of 8 chunks of a row (copies).
  int rowConflicts() const;
  int chunkConflicts() const;
  /// The same of a warp that reads `bytes` of each of 8 rows by four lanes.
  int quadConflicts(int64_t bytes) const;

  /// Tile<rows, columns> of refold_cuda_tiles.h, of elements of 16 bits.
  static SharedRows tile(int64_t rows, int64_t columns);
  /// Panels<rows, columns> of refold_cuda_wgmma.h: 128 bytes of each row.
  static SharedRows panel(int64_t rows, int64_t columns);
  /// Elements<T, rows, columns> of refold_cuda_tiles.h.
  static SharedRows elements(int64_t rows, int64_t columns, int64_t bytes);
  /// What the matrix units call a swizzle of 128, 64 or 32 bytes.
  static SharedRows swizzled(int64_t rows, int64_t bytes);
  /// Rows as they come.
  static SharedRows plain(int64_t rows, int64_t chunks, int64_t pitch);
};

/// Whether the matrix units of sm_90a may be told of it as rows of 128
/// permuted bytes: the one way in which `describe` does.
bool isDescribed(const SharedRows &rows);

/// What the text of an entry takes for granted of its tiles.
struct PlannedTiles {
  struct Matrix {
    std::string name;
    SharedRows rows;
    /// How it is read: 8 rows at one chunk each; `quadBytes` of 8 rows by four
    /// lanes each where that is not 0.
    int64_t quadBytes = 0;
  };
  std::vector<Matrix> matrices;
  bool isOfFourWarps = false; ///< products by the matrix units of sm_90a
  /// Columns of products that become a left side in place, and the bytes of
  /// its elements; 0: nothing does.
  unsigned columns = 0, factorBytes = 0;
};
/// What is not so, beginning with the name of the rule; "" where all is.
std::string faultOf(const PlannedTiles &tiles);

} // namespace refold::tile

#endif // REFOLD_CONVERSION_TILELAYOUTS_H
