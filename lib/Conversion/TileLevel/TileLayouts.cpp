// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Conversion/TileLayouts.h"

#include <algorithm>
#include <bit>

using namespace refold::tile;

/// Bits that numbers below `count` take.
static unsigned bitsOf(int64_t count) {
  return count <= 1 ? 0 : unsigned(std::bit_width(uint64_t(count - 1)));
}

//===----------------------------------------------------------------------===//
// Maps over bits
//===----------------------------------------------------------------------===//

BitMap BitMap::identity(unsigned bits) {
  std::vector<uint32_t> images(bits);
  for (unsigned i = 0; i < bits; ++i)
    images[i] = 1u << i;
  return BitMap(bits, std::move(images));
}

uint32_t BitMap::operator()(uint32_t input) const {
  uint32_t output = 0;
  for (unsigned i = 0; i < images.size(); ++i)
    output ^= input >> i & 1 ? images[i] : 0;
  return output;
}

BitMap BitMap::then(const BitMap &next) const {
  std::vector<uint32_t> composed;
  for (uint32_t image : images)
    composed.push_back(next(image));
  return BitMap(next.outputs, std::move(composed));
}

unsigned BitMap::rank() const {
  std::vector<uint32_t> left = images;
  unsigned found = 0;
  for (unsigned bit = 0; bit < outputs; ++bit) {
    auto pivot = std::find_if(left.begin() + found, left.end(),
                              [&](uint32_t x) { return x >> bit & 1; });
    if (pivot == left.end())
      continue;
    std::iter_swap(left.begin() + found, pivot);
    for (size_t i = 0; i < left.size(); ++i)
      if (i != found && left[i] >> bit & 1)
        left[i] ^= left[found];
    ++found;
  }
  return found;
}

std::optional<BitMap> BitMap::inverse() const {
  if (numInputs() != outputs)
    return std::nullopt;
  // Gauss-Jordan: `left` becomes the identity, what was one becomes the map
  // back.
  std::vector<uint32_t> left = images, back = identity(outputs).images;
  for (unsigned bit = 0; bit < outputs; ++bit) {
    unsigned pivot = bit;
    while (pivot < outputs && !(left[pivot] >> bit & 1))
      ++pivot;
    if (pivot == outputs)
      return std::nullopt;
    std::swap(left[bit], left[pivot]);
    std::swap(back[bit], back[pivot]);
    for (unsigned i = 0; i < outputs; ++i)
      if (i != bit && left[i] >> bit & 1) {
        left[i] ^= left[bit];
        back[i] ^= back[bit];
      }
  }
  return BitMap(outputs, std::move(back));
}

BitMap BitMap::part(unsigned begin, unsigned count, uint32_t mask) const {
  std::vector<uint32_t> kept;
  for (unsigned i = begin; i < begin + count; ++i) {
    uint32_t moved = 0;
    for (unsigned bit = 0, to = 0; bit < outputs; ++bit)
      if (mask >> bit & 1)
        moved |= (images[i] >> bit & 1) << to++;
    kept.push_back(moved);
  }
  return BitMap(unsigned(std::popcount(mask)), std::move(kept));
}

//===----------------------------------------------------------------------===//
// Registers
//===----------------------------------------------------------------------===//

namespace {
/// Bits of a fragment in the order of its inputs.
struct Bits {
  unsigned columns;
  std::vector<uint32_t> images;
  void column(unsigned bit) { images.push_back(1u << bit); }
  void row(unsigned bit) { images.push_back(1u << (columns + bit)); }
};
} // namespace

static Fragment fragmentOf(Bits bits, unsigned rows, unsigned warps) {
  Fragment f;
  f.columns = bits.columns;
  f.rows = rows;
  f.warps = warps;
  f.registers = unsigned(bits.images.size()) - Fragment::kLaneBits - warps;
  f.map = BitMap(bits.columns + rows, std::move(bits.images));
  return f;
}

static Fragment sumsOf(unsigned columns, unsigned warps) {
  Bits bits{std::max(bitsOf(columns), 3u), {}};
  bits.column(0);
  bits.row(3);
  for (unsigned bit = 3; bit < bits.columns; ++bit)
    bits.column(bit);
  for (unsigned bit : {1u, 2u})
    bits.column(bit);
  for (unsigned bit : {0u, 1u, 2u})
    bits.row(bit);
  for (unsigned warp = 0; warp < warps; ++warp)
    bits.row(4 + warp);
  return fragmentOf(std::move(bits), 4 + warps, warps);
}

/// A register has 4 bytes, so 4, 2 or 1 columns beside each other; four lanes
/// have as many each, and the next registers those of 8 rows and of 16 bytes
/// further on.
static Fragment leftOf(unsigned columns, unsigned bytes, unsigned warps) {
  unsigned inside = bitsOf(4 / bytes);
  Bits bits{std::max(bitsOf(columns), inside + 3), {}};
  for (unsigned bit = 0; bit < inside; ++bit)
    bits.column(bit);
  bits.row(3);
  for (unsigned bit = inside + 2; bit < bits.columns; ++bit)
    bits.column(bit);
  bits.column(inside);
  bits.column(inside + 1);
  for (unsigned bit : {0u, 1u, 2u})
    bits.row(bit);
  for (unsigned warp = 0; warp < warps; ++warp)
    bits.row(4 + warp);
  return fragmentOf(std::move(bits), 4 + warps, warps);
}

Fragment Fragment::sumsOfWarp(unsigned columns) { return sumsOf(columns, 0); }
Fragment Fragment::sumsOfFourWarps(unsigned columns) {
  return sumsOf(columns, 2);
}
Fragment Fragment::leftOfWarp(unsigned columns, unsigned bytes) {
  return leftOf(columns, bytes, 0);
}
Fragment Fragment::leftOfFourWarps(unsigned columns, unsigned bytes) {
  return leftOf(columns, bytes, 2);
}

Fragment Fragment::rightOfWarp(unsigned depth, unsigned columns,
                               unsigned bytes) {
  unsigned inside = bitsOf(4 / bytes);
  unsigned rows = std::max(bitsOf(depth), inside + 3);
  Bits bits{std::max(bitsOf(columns), 3u), {}};
  for (unsigned bit = 0; bit < inside; ++bit)
    bits.row(bit);
  for (unsigned bit = inside + 2; bit < rows; ++bit)
    bits.row(bit);
  for (unsigned bit = 3; bit < bits.columns; ++bit)
    bits.column(bit);
  bits.row(inside);
  bits.row(inside + 1);
  for (unsigned bit : {0u, 1u, 2u})
    bits.column(bit);
  return fragmentOf(std::move(bits), rows, 0);
}

Fragment Fragment::loaded(bool isTransposed) {
  Bits bits{4, {}};
  auto inside = [&](unsigned bit) {
    isTransposed ? bits.row(bit) : bits.column(bit);
  };
  auto across = [&](unsigned bit) {
    isTransposed ? bits.column(bit) : bits.row(bit);
  };
  inside(0);
  bits.row(3);
  bits.column(3);
  inside(1);
  inside(2);
  for (unsigned bit : {0u, 1u, 2u})
    across(bit);
  return fragmentOf(std::move(bits), 4, 0);
}

std::optional<BitMap> refold::tile::withoutExchange(const Fragment &from,
                                                    const Fragment &to) {
  if (from.columns != to.columns || from.rows != to.rows ||
      from.registers != to.registers || from.warps != to.warps)
    return std::nullopt;
  std::optional<BitMap> back = from.map.inverse();
  if (!back)
    return std::nullopt;
  BitMap moved = to.map.then(*back);
  // Lanes and warps stay where they are, and no register asks another lane.
  uint32_t ofRegisters = (1u << to.registers) - 1;
  for (unsigned bit = 0; bit < moved.numInputs(); ++bit)
    if (bit < to.registers ? (moved.image(bit) & ~ofRegisters) != 0
                           : moved.image(bit) != 1u << bit)
      return std::nullopt;
  return moved.part(0, to.registers, ofRegisters);
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

int64_t SharedRows::place(int64_t row, int64_t chunk) const {
  int64_t panel = panels > 1 ? chunk / chunks : 0;
  int64_t inside = chunk - panel * chunks;
  int64_t turned = inside ^ (row / rowsPerTurn * unit % span);
  return (panel * rows * pitch + row * pitch + turned) * 16;
}

BitMap SharedRows::banks() const {
  constexpr unsigned kBits = 3; // of the chunks that 128 bytes have
  std::vector<uint32_t> images;
  for (unsigned bit = 0; bit < kBits; ++bit)
    images.push_back(1u << bit);
  int64_t even = pitch % 8 == 0 ? 0 : pitch & -pitch;
  for (unsigned bit = 0; bit < kBits; ++bit) {
    int64_t row = int64_t(1) << bit;
    images.push_back(
        uint32_t((row * even & 7) ^ (row / rowsPerTurn * unit % span)));
  }
  return BitMap(kBits, std::move(images));
}

int SharedRows::rowConflicts() const {
  return 1 << (3 - banks().part(3, 3, 7).rank());
}
int SharedRows::chunkConflicts() const {
  return 1 << (3 - banks().part(0, 3, 7).rank());
}

int SharedRows::quadConflicts(int64_t bytes) const {
  unsigned ofChunks = bitsOf(std::max<int64_t>(bytes / 16, 1));
  unsigned ofRows = 3 - std::min(ofChunks, 3u);
  BitMap all = banks();
  std::vector<uint32_t> images;
  for (unsigned bit = 0; bit < std::min(ofChunks, 3u); ++bit)
    images.push_back(all.image(bit));
  for (unsigned bit = 0; bit < ofRows; ++bit)
    images.push_back(all.image(3 + bit));
  return 1 << (3 - BitMap(3, std::move(images)).rank());
}

SharedRows SharedRows::plain(int64_t rows, int64_t chunks, int64_t pitch) {
  SharedRows to;
  to.rows = rows;
  to.chunks = chunks;
  to.pitch = pitch;
  return to;
}

SharedRows SharedRows::tile(int64_t rows, int64_t columns) {
  int64_t chunks = columns / 8;
  bool isPermuted = chunks >= 8 && std::has_single_bit(uint64_t(chunks));
  SharedRows to = plain(rows, chunks, isPermuted ? chunks : chunks | 1);
  to.span = isPermuted ? 8 : 1;
  return to;
}

SharedRows SharedRows::panel(int64_t rows, int64_t columns) {
  SharedRows to = swizzled(rows, 128);
  to.panels = (columns + 63) / 64;
  return to;
}

SharedRows SharedRows::elements(int64_t rows, int64_t columns, int64_t bytes) {
  int64_t chunks = columns * bytes / 16;
  int64_t unit = std::max<int64_t>(bytes / 2, 1);
  bool isPermuted = chunks % 8 == 0;
  SharedRows to =
      plain(rows, chunks, isPermuted ? chunks : (chunks / unit | 1) * unit);
  to.unit = unit;
  to.span = isPermuted ? 8 : 1;
  return to;
}

SharedRows SharedRows::swizzled(int64_t rows, int64_t bytes) {
  SharedRows to = plain(rows, bytes / 16, bytes / 16);
  to.span = bytes / 16;
  to.rowsPerTurn = 128 / bytes;
  return to;
}

bool refold::tile::isDescribed(const SharedRows &rows) {
  return rows.pitch == 8 && rows.chunks == 8 &&
         rows.banks() == SharedRows::swizzled(8, 128).banks();
}

//===----------------------------------------------------------------------===//
// What is planned
//===----------------------------------------------------------------------===//

std::string refold::tile::faultOf(const PlannedTiles &tiles) {
  for (const PlannedTiles::Matrix &matrix : tiles.matrices) {
    const SharedRows &rows = matrix.rows;
    int conflicts = matrix.quadBytes ? rows.quadConflicts(matrix.quadBytes)
                                     : rows.rowConflicts();
    if (conflicts != 1)
      return "bank-conflicts: found rows of '" + matrix.name + "' " +
             std::to_string(rows.pitch) + " chunks apart, of which 8 meet " +
             std::to_string(conflicts) +
             " times in a bank; expected a pitch of different banks";
    if (tiles.isOfFourWarps && !matrix.quadBytes && !isDescribed(rows))
      return "described-layout: found '" + matrix.name +
             "' in another layout than the matrix units are told of; expected "
             "rows of 128 permuted bytes";
  }
  if (!tiles.columns)
    return "";
  auto moved = tiles.isOfFourWarps
                   ? withoutExchange(Fragment::sumsOfFourWarps(tiles.columns),
                                     Fragment::leftOfFourWarps(
                                         tiles.columns, tiles.factorBytes))
                   : withoutExchange(Fragment::sumsOfWarp(tiles.columns),
                                     Fragment::leftOfWarp(tiles.columns,
                                                          tiles.factorBytes));
  if (!moved || *moved != BitMap::identity(moved->numInputs()))
    return "relayout: found factors of " + std::to_string(tiles.factorBytes) +
           " bytes, which lie in other registers or lanes than the products "
           "they are made of; expected the same places";
  return "";
}
