// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SCHEDULE_TARGETFACTS_H
#define REFOLD_SCHEDULE_TARGETFACTS_H

#include <cstdint>

namespace refold {

/// What the choice of a schedule and the walk need to know of a machine. Plain
/// numbers: nothing here names an instruction.
struct TargetFacts {
  /// Bits of one vector register: 512 (AVX-512), 256 (AVX2), 128 (baseline), 32
  /// (no vectors).
  int64_t vectorBits = 512;
  int64_t vectorRegisters = 32;
  int64_t l1Bytes = 32 * 1024;
  int64_t l2Bytes = 1024 * 1024;
  /// Lanes of a mask are moved to the front of a register by one instruction
  /// (AVX-512).
  bool hasCompress = true;
  /// Sums of products of bf16 values are added two at a time in less than the
  /// time of two products of f32. Each product is exact.
  bool addsPairs = false;
  int64_t l3Bytes = 32 * 1024 * 1024;
  /// Threads that run at once. Decides how finely work is divided where that
  /// costs something, never in which order anything is summed.
  int64_t cores = 16;
  /// An instruction adds four products of unsigned and signed bytes to each
  /// 32-bit lane of a 512-bit register.
  bool hasByteDots = false;
  /// An instruction multiplies 16-bit integers and adds neighbours to 32 bits:
  /// bytes of any sign that are widened are so added in fours (AVX2).
  bool addsHalfWords = false;
  /// One instruction reads words of 32 bits from as many addresses as there are
  /// lanes (AVX-512); elsewhere each lane is a branch and a load.
  bool gathersWords = true;
  /// A masked access takes no longer than one without a mask (AVX-512).
  bool masksAreFree = true;
  /// Parts of rows that lie apart come early enough by themselves where they
  /// are copied: to ask for them is in their way.
  bool followsRows = false;
  /// What is read soon is asked for into the first cache, even where it has
  /// little room: from the second it comes late.
  bool asksIntoFirst = false;
  /// What few rows share, or single rows read, is asked for in the order in
  /// which it lies: of several streams in a page none is followed. Into the
  /// second cache unless `asksIntoFirst`.
  bool asksInOrder = false;
  /// What is asked for is asked for twice, into the second cache: what finds no
  /// room in the queue the first time comes the second. Rows that are written
  /// are asked for by the sweep of the row before and by their own pass.
  bool asksTwice = false;
  /// What rows read is asked for into the second cache, twice as far ahead as
  /// elsewhere, and by a sweep four times; the pass of rows that are written
  /// asks for it into the first beside that, where elements cost little.
  bool asksFarAhead = false;
  /// Of rows that the second cache does not hold the next one is read while
  /// results of this one are written.
  bool beginsNextRow = false;
  /// Whatever a register of 512 bits is asked goes through the two ports that
  /// fmas go through, and those are busy with nothing else as they are probed.
  bool sharesPorts = false;
  /// Additions have ports of their own, no more than multiplications have.
  bool addsApart = false;
  /// Up to so many rows of a product all pass by one panel that lies ready
  /// before the next.
  int64_t mostRowsByPanel = 32;
  /// An instruction multiplies two tiles, each of 16 rows of 64 bytes, which
  /// hold bytes in fours or bf16 in pairs, and adds to 16 x 16 sums.
  bool multipliesTiles = false;

  static TargetFacts avx512() {
    TargetFacts facts;
    facts.addsHalfWords = true;
    return facts;
  }
  static TargetFacts avx2() {
    TargetFacts facts = narrow(256);
    facts.addsHalfWords = true;
    return facts;
  }
  static TargetFacts baseline() { return narrow(128); }
  static TargetFacts scalar() {
    TargetFacts facts = narrow(32);
    facts.addsPairs = true;
    return facts;
  }

  /// Elements of `bits` bits in one register; at least 1.
  int64_t lanes(int64_t bits) const {
    return vectorBits > bits ? vectorBits / bits : 1;
  }

private:
  static TargetFacts narrow(int64_t vectorBits) {
    TargetFacts facts;
    facts.vectorBits = vectorBits;
    facts.vectorRegisters = 16;
    facts.l2Bytes = 512 * 1024;
    facts.hasCompress = facts.gathersWords = facts.masksAreFree = false;
    return facts;
  }
};

} // namespace refold

#endif // REFOLD_SCHEDULE_TARGETFACTS_H
