// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Layouts as maps over bits against what the headers of runtime/cuda say in
// numbers, and what follows from them by algebra.
#include "refold/Conversion/TileLayouts.h"

#include <gtest/gtest.h>
#include <set>

using namespace refold::tile;

namespace {

TEST(BitMaps, InverseAndRankAreThoseOfTheMatrix) {
  BitMap map(3, {0b011, 0b110, 0b100});
  EXPECT_EQ(map.rank(), 3u);
  auto back = map.inverse();
  ASSERT_TRUE(back);
  EXPECT_EQ(map.then(*back), BitMap::identity(3));
  EXPECT_EQ(back->then(map), BitMap::identity(3));
  for (uint32_t x = 0; x < 8; ++x)
    EXPECT_EQ((*back)(map(x)), x);
  BitMap flat(3, {0b011, 0b110, 0b101});
  EXPECT_EQ(flat.rank(), 2u);
  EXPECT_FALSE(flat.inverse());
  EXPECT_FALSE(BitMap(3, {1, 2}).inverse());
}

/// fragment_row and fragment_column of refold_cuda_tiles.h, sums[part][i].
TEST(Fragments, SumsAreWhereTheMatrixUnitsLeaveThem) {
  Fragment f = Fragment::sumsOfFourWarps(128);
  ASSERT_EQ(f.registers, 6u);
  for (uint32_t part = 0; part < 16; ++part)
    for (uint32_t i = 0; i < 4; ++i)
      for (uint32_t at = 0; at < 128; ++at) {
        uint32_t row = at / 32 * 16 + at % 32 / 4 + i / 2 * 8;
        uint32_t column = part * 8 + at % 4 * 2 + i % 2;
        EXPECT_EQ(f.map((part * 4 + i) | at << f.registers),
                  row << f.columns | column);
      }
}

TEST(Fragments, SumsAreALeftSideOf16Bits) {
  for (unsigned columns : {16u, 64u, 128u}) {
    auto moved = withoutExchange(Fragment::sumsOfFourWarps(columns),
                                 Fragment::leftOfFourWarps(columns, 2));
    ASSERT_TRUE(moved);
    EXPECT_EQ(*moved, BitMap::identity(moved->numInputs()));
    moved = withoutExchange(Fragment::sumsOfWarp(columns),
                            Fragment::leftOfWarp(columns, 2));
    ASSERT_TRUE(moved);
    EXPECT_EQ(*moved, BitMap::identity(moved->numInputs()));
  }
}

TEST(Fragments, ALeftSideOfOtherSizesTakesAnExchange) {
  for (unsigned bytes : {1u, 4u}) {
    EXPECT_FALSE(withoutExchange(Fragment::sumsOfFourWarps(64),
                                 Fragment::leftOfFourWarps(64, bytes)));
    EXPECT_FALSE(withoutExchange(Fragment::sumsOfWarp(64),
                                 Fragment::leftOfWarp(64, bytes)));
  }
  // The transposed product is none either.
  EXPECT_FALSE(withoutExchange(Fragment::sumsOfWarp(16),
                               Fragment::rightOfWarp(16, 16, 2)));
  // Of as many columns only.
  EXPECT_FALSE(
      withoutExchange(Fragment::sumsOfWarp(32), Fragment::leftOfWarp(16, 2)));
}

TEST(Fragments, RegistersInAnotherOrderAreFound) {
  Fragment from = Fragment::sumsOfWarp(16), to = from;
  to.map = BitMap(8, {from.map.image(1), from.map.image(0), from.map.image(2),
                      from.map.image(3), from.map.image(4), from.map.image(5),
                      from.map.image(6), from.map.image(7)});
  auto moved = withoutExchange(from, to);
  ASSERT_TRUE(moved);
  EXPECT_EQ(*moved, BitMap(3, {2, 1, 4}));
}

TEST(Fragments, WhatIsLoadedIsASide) {
  EXPECT_EQ(Fragment::loaded(false).map, Fragment::leftOfWarp(16, 2).map);
  EXPECT_EQ(Fragment::loaded(true).map, Fragment::rightOfWarp(16, 16, 2).map);
}

/// Different banks of chunks, counted.
int counted(const SharedRows &rows, bool isByRows) {
  std::set<int64_t> banks;
  for (int64_t i = 0; i < 8; ++i)
    banks.insert((isByRows ? rows.place(i, 0) : rows.place(0, i)) / 16 % 8);
  return 8 / int(banks.size());
}

TEST(SharedMemory, RanksAreConflictsAsTheyAreCounted) {
  for (int64_t pitch = 1; pitch <= 40; ++pitch)
    for (int64_t span : {1, 8})
      if (span == 1 || pitch % 8 == 0) {
        SharedRows rows = SharedRows::plain(16, pitch, pitch);
        rows.span = span;
        EXPECT_EQ(rows.rowConflicts(), counted(rows, true)) << pitch;
        if (pitch >= 8) {
          EXPECT_EQ(rows.chunkConflicts(), counted(rows, false)) << pitch;
        }
      }
}

TEST(SharedMemory, TilesOfTheHeadersHaveNoConflicts) {
  for (int64_t columns = 16; columns <= 576; columns += 16) {
    SharedRows tile = SharedRows::tile(64, columns);
    EXPECT_EQ(tile.rowConflicts(), 1) << columns;
    EXPECT_EQ(tile.rowConflicts(), counted(tile, true)) << columns;
    SharedRows panel = SharedRows::panel(64, columns);
    EXPECT_EQ(panel.rowConflicts(), 1) << columns;
    EXPECT_EQ(panel.chunkConflicts(), 1) << columns;
    EXPECT_TRUE(isDescribed(panel));
    EXPECT_EQ(panel.bytes(), 64 * 128 * ((columns + 63) / 64));
  }
  EXPECT_EQ(SharedRows::tile(64, 80).bytes(), 64 * 11 * 16);
}

/// Panels::place of refold_cuda_wgmma.h.
TEST(SharedMemory, PanelsAreWhereTheHeaderHasThem) {
  SharedRows panel = SharedRows::panel(48, 192);
  for (int64_t row = 0; row < 48; ++row)
    for (int64_t chunk = 0; chunk < 24; ++chunk)
      EXPECT_EQ(panel.place(row, chunk),
                chunk / 8 * 48 * 128 + row * 128 + ((chunk ^ row) & 7) * 16);
}

TEST(SharedMemory, SwizzlesOfFewerBytesAreFreeOfConflictsByRows) {
  for (int64_t bytes : {128, 64, 32}) {
    SharedRows rows = SharedRows::swizzled(64, bytes);
    EXPECT_EQ(rows.rowConflicts(), 1) << bytes;
    EXPECT_EQ(rows.rowConflicts(), counted(rows, true)) << bytes;
  }
  EXPECT_FALSE(isDescribed(SharedRows::swizzled(64, 64)));
}

TEST(SharedMemory, ElementsAreReadByQuadsWithoutConflicts) {
  for (int64_t bytes : {1, 2, 4, 8})
    for (int64_t columns : {64, 80, 96, 128}) {
      SharedRows rows = SharedRows::elements(64, columns, bytes);
      EXPECT_EQ(rows.quadConflicts(8 * bytes), 1) << bytes << " " << columns;
    }
}

TEST(SharedMemory, AWrongPitchIsFound) {
  EXPECT_EQ(SharedRows::plain(64, 8, 8).rowConflicts(), 8);
  EXPECT_EQ(SharedRows::plain(64, 10, 10).rowConflicts(), 2);
  EXPECT_EQ(SharedRows::plain(64, 12, 12).rowConflicts(), 4);
  EXPECT_EQ(SharedRows::plain(64, 10, 11).rowConflicts(), 1);
  SharedRows elements = SharedRows::elements(64, 80, 4);
  elements.pitch += 2;
  EXPECT_EQ(elements.quadConflicts(32), 4);
  SharedRows turned = SharedRows::tile(64, 128);
  turned.unit = 2;
  EXPECT_EQ(turned.rowConflicts(), 2);
}

PlannedTiles planned() {
  PlannedTiles tiles;
  tiles.isOfFourWarps = true;
  tiles.columns = 128;
  tiles.factorBytes = 2;
  tiles.matrices = {{"right", SharedRows::panel(128, 80)},
                    {"bias", SharedRows::elements(128, 80, 4), 32}};
  return tiles;
}

TEST(PlannedTiles, FaultsAreNamed) {
  EXPECT_EQ(faultOf(planned()), "");
  PlannedTiles tiles = planned();
  tiles.factorBytes = 1;
  EXPECT_EQ(faultOf(tiles).find("relayout: "), 0u);
  tiles = planned();
  tiles.matrices[0].rows = SharedRows::plain(128, 10, 10);
  EXPECT_EQ(faultOf(tiles).find("bank-conflicts: found rows of 'right'"), 0u);
  tiles = planned();
  tiles.matrices[1].rows.pitch += 2;
  EXPECT_EQ(faultOf(tiles).find("bank-conflicts: found rows of 'bias'"), 0u);
  tiles = planned();
  tiles.matrices[0].rows = SharedRows::tile(128, 80);
  EXPECT_EQ(faultOf(tiles).find("described-layout: "), 0u);
  tiles.isOfFourWarps = false;
  EXPECT_EQ(faultOf(tiles), "");
}

} // namespace
