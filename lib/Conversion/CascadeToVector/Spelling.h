// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_CONVERSION_CASCADETOVECTOR_SPELLING_H
#define REFOLD_LIB_CONVERSION_CASCADETOVECTOR_SPELLING_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/ErrorHandling.h"

/// The line between the walk, which decides what is computed when, and the text
/// of one target. The walk sees handles, flat arrays, registers of `lanes()`
/// lanes and structured control flow; it never sees a type of the target.
namespace refold::walk {

/// A value in the target's code: a scalar, or a register of `lanes()` lanes.
struct Val {
  const void *token = nullptr;
  bool wide = false;
  explicit operator bool() const { return token; }
};

/// A position or size: `value` (0 if there is none) plus a constant. Sums of
/// constants so never reach the target, and end up in an address's
/// displacement.
struct Ix {
  Val value;
  int64_t constant = 0;
  Ix(int64_t constant = 0) : constant(constant) {}
  explicit Ix(Val value, int64_t constant = 0)
      : value(value), constant(constant) {}
  bool isConstant() const { return !value; }
  bool is(int64_t c) const { return !value && constant == c; }
};

/// A flat array: an operand of the kernel or a part of a workspace.
struct Buffer {
  const void *token = nullptr;
  mlir::Type element;
  Ix offset; ///< of element 0
  explicit operator bool() const { return token; }
};

enum class IndexOp { Add, Sub, Mul, Div, Rem, Min, Max };
/// MaxF and MinF take the second operand where one is NaN; MaximumF and
/// MinimumF are NaN where one is, MaxMagnitude too, of numbers whose sign is
/// cleared and -inf; MaxNumF and MinNumF ignore NaN.
enum class Binary {
  AddF,
  MulF,
  MaxF,
  MinF,
  MaximumF,
  MinimumF,
  MaxMagnitude,
  MaxNumF,
  MinNumF,
  AddI,
  MulI,
  MaxSI,
  MinSI,
  AndI,
  OrI,
};
enum class Compare { OGT, OLT, UGT, ULT, UGE, ULE, ORD, SGT, SLT, SGE, SLE };

/// How far 2^x may err. `Gradual`: by some units in the last place everywhere;
/// `Bounded`: the same of x up to 63, of others any number; `Flushed`: and be
/// 0, or any other number that is not normal, below those; `Short`: and err by
/// 2^-18, of what is rounded to 16 bits.
enum class Exp2Form { Gradual, Bounded, Flushed, Short };

/// What two tiles hold whose products are added: bytes in fours, signed or not,
/// on the left side and on the right one, or pairs of bf16.
struct TileKind {
  bool arePairs = false, isLeftSigned = true, isRightSigned = true;
};

class Spelling {
public:
  using Values = llvm::SmallVector<Val>;
  using LoopBody = llvm::function_ref<Values(Ix, llvm::ArrayRef<Val>)>;
  using Block = llvm::function_ref<void()>;

  explicit Spelling(int64_t lanes) : numLanes(lanes) {}
  virtual ~Spelling() = default;
  int64_t lanes() const { return numLanes; }

  // Functions of the kernel; one is open at a time.
  virtual void beginShape(unsigned numResults) = 0;
  virtual void endShape(llvm::ArrayRef<Ix> results) = 0;
  virtual void beginPhase(unsigned number) = 0;
  virtual void endPhase() = 0;
  virtual Ix itemBegin() = 0;
  virtual Ix itemEnd() = 0;
  /// `count` elements at a byte of a workspace.
  virtual Buffer workspace(bool isShared, Ix byte, mlir::Type element,
                           Ix count) = 0;

  // Operands, by their number.
  virtual Buffer operand(unsigned number) = 0;
  virtual Val scalarOperand(unsigned number) = 0;
  virtual Ix size(unsigned operand, unsigned dim) = 0;
  virtual Ix stride(unsigned operand, unsigned dim) = 0;

  // Elementwise. Operands are all wide or all scalar.
  virtual Val constant(mlir::TypedAttr value) = 0;
  /// The result of an op of arith or math on other operands. An index is an
  /// i32.
  virtual Val elementwise(mlir::Operation *op, llvm::ArrayRef<Val> in,
                          mlir::Type element) = 0;
  /// The same of a division by a number that divides many.
  virtual Val byNumber(mlir::Operation *op, Val x, Val number,
                       mlir::Type element) {
    return elementwise(op, {x, number}, element);
  }
  virtual Val binary(Binary kind, Val x, Val y) = 0;
  virtual Val fma(Val x, Val y, Val z) = 0;
  /// Of f32.
  virtual Val exp2(Val x, Exp2Form form) = 0;
  virtual Val compare(Compare kind, Val x, Val y) = 0;
  virtual Val select(Val condition, Val x, Val y) = 0;
  virtual Val integerCast(Val x, mlir::Type from, mlir::Type to) = 0;
  /// Of a scalar i32.
  virtual Val toFloat(Val x, mlir::Type to) = 0;

  // Two bf16 values as one i32, the first in the lower half. `narrow` and
  // `addPairs` may take subnormal values as 0.
  virtual Val pairUp(Val low, Val high) = 0;         ///< wide bf16
  virtual Val narrow(Val x, mlir::Type element) = 0; ///< wide f32 to bf16
  /// sum + x.high * y.high + x.low * y.low
  virtual Val addPairs(Val x, Val y, Val sum) = 0;

  // Lanes.
  virtual Val broadcast(Val scalar) = 0;
  virtual Val reduceLanes(Binary kind, Val wide) = 0;
  /// Lane i is `reduceLanes` of the i-th of `lanes()` registers.
  virtual Val reduceEach(Binary kind, llvm::ArrayRef<Val> wides) = 0;
  virtual Val extract(Val wide, Ix lane) = 0;
  /// The first lane in which a wide i1 holds, lanes() if it holds in none: i32.
  virtual Val firstLane(Val wide) = 0;
  virtual Val countLanes(Val mask) = 0; ///< in which it holds: i32
  /// first + 0, first + 1, ... as i32.
  virtual Val iota(Ix first) = 0;
  /// True in the lanes below `count`, which may be below 0 or above `lanes()`.
  virtual Val mask(Ix count) = 0;

  // Lists, where a register has several lanes.
  /// `key`, a float of at most 32 bits, and `place`, an i32 that is not
  /// negative, as one number a lane that is never NaN: in the order of the
  /// keys, NaN above all and -0 the same as 0, and where these are equal so
  /// that the lower place is the larger number (`isTop`) or the smaller one.
  /// Lanes that do not exist are below all others (`isTop`) or above.
  virtual Val sortable(Val /*key*/, Val /*place*/, Val /*exists*/,
                       bool /*isTop*/) {
    return noLists();
  }
  /// The place that a sortable number was made of: i32.
  virtual Val placeOf(Val /*sortable*/, bool /*isTop*/) { return noLists(); }
  /// The number that is below all sortable ones, or above.
  virtual Val extremeSortable(bool /*isBelow*/) { return noLists(); }
  /// Whether lanes of this type are picked by an instruction or three.
  virtual bool picksLanes(mlir::Type) { return false; }
  /// Lane i is lane from[i] of x; numbers of lanes are taken modulo `lanes()`.
  virtual Val pickLanes(Val /*x*/, Val /*from*/) { return noLists(); }

  // Indices and data.
  virtual Val indexOp(IndexOp op, Val x, Val y) = 0;
  virtual Val indexConstant(int64_t value) = 0;
  virtual Val less(Ix x, Ix y) = 0;
  virtual Val toData(Ix index) = 0;             ///< i32
  virtual Ix toIndex(Val data) = 0;             ///< of an i32
  virtual Val toWideIndex(Val wideData) = 0;    ///< of i32 lanes
  virtual Val wideIndex(Ix first, Ix step) = 0; ///< first + lane * step
  virtual Val wideIndexOp(IndexOp op, Val x, Val y) = 0;

  // Memory. A null mask means all lanes; masked lanes read as zero.
  virtual Val load(const Buffer &from, Ix at) = 0;
  virtual Val loadWide(const Buffer &from, Ix at, Val mask) = 0;
  virtual Val gather(const Buffer &from, Val at, Val mask) = 0;
  /// Lane i is from[at + i * step + part], part < step: registers in a row, of
  /// which the other elements are thrown away.
  virtual Val loadEvery(const Buffer &from, Ix at, int64_t part,
                        int64_t step) = 0;
  virtual void store(Val value, const Buffer &to, Ix at) = 0;
  virtual void storeWide(Val value, const Buffer &to, Ix at, Val mask) = 0;
  /// Of each of some registers, the lanes in which the mask holds, one behind
  /// the other, in a buffer of its own; what lies behind them, up to a
  /// register, is overwritten.
  virtual void storeCompressed(llvm::ArrayRef<Val> values,
                               llvm::ArrayRef<Buffer> to, Ix at, Val mask) = 0;
  /// `count` lanes from lane `first` on, in a row.
  virtual void storeLanes(Val wide, int64_t first, int64_t count,
                          const Buffer &to, Ix at) = 0;
  virtual void scatter(Val value, const Buffer &to, Val at, Val mask) = 0;
  /// All lanes, past the caches, to an address that is a multiple of the
  /// register's bytes: for what nobody reads before it has left them anyway.
  virtual void storeStreaming(Val value, const Buffer &to, Ix at) = 0;
  /// Registers of `element` side by side that one store takes.
  virtual int64_t registersOfStore(mlir::Type /*element*/) { return 1; }
  /// So many, past the caches or not.
  virtual void storeTogether(llvm::ArrayRef<Val> values, const Buffer &to,
                             Ix at, bool isStreamed);
  /// Elements from `at` to the next address that is a multiple of what such a
  /// store writes.
  virtual Ix untilAligned(const Buffer &to, Ix at) = 0;
  /// `level`: the cache that the line is wanted in, 1 or 2.
  virtual void prefetch(const Buffer &from, Ix at, bool isWrite,
                        int level = 1) = 0;
  // Bytes in fours, where the target has dot products of them.
  /// Four bytes as one i32; four a lane.
  virtual Val loadWord(const Buffer &, Ix) { return noByteDots(); }
  virtual Val loadWords(const Buffer &, Ix) { return noByteDots(); }
  virtual void storeWords(Val, const Buffer &, Ix) { noByteDots(); }
  /// Bytes r * stride + lane of r < 4, four a lane; their sign bits flipped
  /// where they are moved by 128.
  virtual Val wordsOfRows(const Buffer &, Ix /*at*/, Ix /*stride*/,
                          bool /*isMoved*/) {
    return noByteDots();
  }
  /// The word at to[4 * (c * toStride + r)] = the one at
  /// from[r * fromStride + 4 * c], for r, c < lanes(); moved likewise.
  virtual void transposeWords(const Buffer &, Ix /*fromAt*/, Ix /*fromStride*/,
                              const Buffer &, Ix /*toAt*/, Ix /*toStride*/,
                              bool /*isMoved*/) {
    noByteDots();
  }
  /// sum + the products of the unsigned bytes of x and the signed ones of y.
  virtual Val dotOfBytes(Val, Val, Val) { return noByteDots(); }
  /// sum + the products of the bytes of x and those of y, of these signs.
  virtual Val dotOfHalfWords(Val /*sum*/, Val /*x*/, bool /*isXSigned*/,
                             Val /*y*/, bool /*isYSigned*/) {
    return noByteDots();
  }

  // Results below the normal numbers, which else take as long as some hundred
  // others, and so does what multiplies by them.
  virtual bool mayFlush() { return false; }
  /// From here on such results are 0, if `on` is 1. `words` are three i32.
  virtual void startFlushing(const Buffer & /*words*/, Ix /*on*/) {}
  /// And from here on they are as they were before; 1 if there were any.
  virtual Ix stopFlushing(const Buffer & /*words*/) { return 0; }

  // Tiles, where the target multiplies them: 16 rows of 64 bytes. Numbers from
  // 0 to 7 name registers; from `beginTiles` to `endTiles` of one phase.
  virtual void beginTiles() { noTiles(); }
  virtual void endTiles() { noTiles(); }
  virtual void clearTile(int) { noTiles(); }
  /// Row r is the 64 bytes from[at + r * stride].
  virtual void loadTile(int, const Buffer &, Ix /*at*/, Ix /*stride*/) {
    noTiles();
  }
  virtual void storeTile(int, const Buffer &, Ix /*at*/, Ix /*stride*/) {
    noTiles();
  }
  /// sum[m][n] += left[m][k][j] * right[k][n][j] of fours or pairs j.
  virtual void addTiles(int /*sum*/, int /*left*/, int /*right*/, TileKind) {
    noTiles();
  }

  /// Lanes 2i and 2i + 1 are lane i of x and of y, up to half of them.
  virtual Val interleave(Val x, Val) { return x; } // of one lane
  /// Lane r of the c-th of `lanes()` registers is lane c of the r-th.
  virtual Values turn(llvm::ArrayRef<Val> wides, mlir::Type element) = 0;
  /// to[c * toStride + r] = from[r * fromStride + c] for r, c < lanes().
  virtual void transposeBlock(const Buffer &from, Ix fromAt, Ix fromStride,
                              const Buffer &to, Ix toAt, Ix toStride) = 0;

  /// to[c * toStride + r] = the pair from[r * fromStride + 2 * c] and the next.
  virtual void transposePairs(const Buffer &from, Ix fromAt, Ix fromStride,
                              const Buffer &to, Ix toAt, Ix toStride) = 0;

  // Control flow.
  virtual Values loop(Ix lo, Ix hi, int64_t step, llvm::ArrayRef<Val> init,
                      LoopBody body) = 0;
  virtual void branch(Val condition, Block then, Block otherwise) = 0;
  /// Runs the body on its own results while the condition holds of them.
  virtual Values
  repeat(llvm::ArrayRef<Val> init,
         llvm::function_ref<Val(llvm::ArrayRef<Val>)> condition,
         llvm::function_ref<Values(llvm::ArrayRef<Val>)> body) = 0;

  // What every target shares.
  Val materialise(Ix x);
  Ix add(Ix x, Ix y);
  Ix sub(Ix x, Ix y);
  Ix mul(Ix x, Ix y);
  /// Floor division and remainder of a number that is not negative.
  Ix div(Ix x, Ix y);
  Ix rem(Ix x, Ix y);
  Ix min(Ix x, Ix y);
  Ix max(Ix x, Ix y);
  Ix floorTo(Ix x, int64_t m) { return mul(div(x, m), m); }
  Ix ceilDiv(Ix x, Ix y) { return div(add(add(x, y), -1), y); }
  Ix ceilTo(Ix x, int64_t m) { return floorTo(add(x, m - 1), m); }
  Val splat(Val v) { return v.wide ? v : broadcast(v); }
  /// A loop without carried values; written out where it runs at most once.
  void each(Ix lo, Ix hi, int64_t step, llvm::function_ref<void(Ix)> body);

private:
  static Val noByteDots() {
    llvm_unreachable("dots were planned for a target that has none");
  }
  static void noTiles() {
    llvm_unreachable("tiles were planned for a target that has none");
  }
  static Val noLists() {
    llvm_unreachable("lists are sorted where a register has several lanes");
  }
  int64_t numLanes;
};

} // namespace refold::walk

#endif // REFOLD_LIB_CONVERSION_CASCADETOVECTOR_SPELLING_H
