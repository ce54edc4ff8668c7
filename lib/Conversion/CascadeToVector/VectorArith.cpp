// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arithmetic of the vector spelling.
#include "VectorSpelling.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include <limits>

using namespace mlir;
using namespace refold;
using namespace refold::walk;

Val VectorSpelling::constant(TypedAttr attr) {
  return handle(cachedConstant(attr));
}

Val VectorSpelling::elementwise(Operation *op, ArrayRef<Val> in, Type element) {
  Type type = element.isIndex() ? Type(b.getI32Type()) : element;
  bool isWide = !in.empty() && in[0].wide;
  OperationState state(loc, op->getName());
  for (Val v : in)
    state.addOperands(value(v));
  state.addTypes(isWide ? Type(vectorOf(type)) : type);
  state.addAttributes(op->getAttrs());
  return handle(b.create(state)->getResult(0));
}

Val VectorSpelling::byNumber(Operation *, Val x, Val number, Type) {
  // DivideByNumber.cpp reads it so.
  return handle(b.create<arith::DivFOp>(loc, value(x), value(number),
                                        arith::FastMathFlags::arcp));
}

Val VectorSpelling::binary(Binary kind, Val x, Val y) {
  Value l = value(x), r = value(y);
  switch (kind) {
  case Binary::AddF: // may be one FMA (EmitObject.cpp)
    return handle(
        b.create<arith::AddFOp>(loc, l, r, arith::FastMathFlags::contract));
  case Binary::MulF:
    return handle(b.create<arith::MulFOp>(loc, l, r));
  // Compare and select is one instruction; maximumf takes three.
  case Binary::MaxF:
    return select(compare(Compare::OGT, x, y), x, y);
  case Binary::MinF:
    return select(compare(Compare::OLT, x, y), x, y);
  case Binary::MaximumF:
    return handle(b.create<arith::MaximumFOp>(loc, l, r));
  case Binary::MinimumF:
    return handle(b.create<arith::MinimumFOp>(loc, l, r));
  // The bits of magnitudes are ordered as integers, NaN above all of them.
  case Binary::MaxMagnitude: {
    auto bits = [&](Value v) -> Value {
      unsigned width =
          getElementTypeOrSelf(v.getType()).getIntOrFloatBitWidth();
      Type integer = b.getIntegerType(width);
      if (auto vector = dyn_cast<VectorType>(v.getType()))
        integer = vector.clone(integer);
      return b.create<arith::BitcastOp>(loc, integer, v);
    };
    Value larger = b.create<arith::MaxSIOp>(loc, bits(l), bits(r));
    return handle(b.create<arith::BitcastOp>(loc, l.getType(), larger));
  }
  case Binary::MaxNumF:
    return handle(b.create<arith::MaxNumFOp>(loc, l, r));
  case Binary::MinNumF:
    return handle(b.create<arith::MinNumFOp>(loc, l, r));
  case Binary::AddI:
    return handle(b.create<arith::AddIOp>(loc, l, r));
  case Binary::MulI:
    return handle(b.create<arith::MulIOp>(loc, l, r));
  case Binary::MaxSI:
    return handle(b.create<arith::MaxSIOp>(loc, l, r));
  case Binary::MinSI:
    return handle(b.create<arith::MinSIOp>(loc, l, r));
  case Binary::AndI:
    return handle(b.create<arith::AndIOp>(loc, l, r));
  case Binary::OrI:
    return handle(b.create<arith::OrIOp>(loc, l, r));
  }
  llvm_unreachable("covered switch");
}

Val VectorSpelling::fma(Val x, Val y, Val z) {
  return handle(b.create<math::FmaOp>(loc, value(x), value(y), value(z)));
}

Val VectorSpelling::exp2(Val x, Exp2Form form) {
  // LowerMath.cpp reads them so.
  using Flags = arith::FastMathFlags;
  Flags flags = form == Exp2Form::Gradual   ? Flags::none
                : form == Exp2Form::Bounded ? Flags::ninf
                : form == Exp2Form::Flushed ? Flags::afn
                                            : Flags::afn | Flags::contract;
  return handle(b.create<math::Exp2Op>(loc, value(x), flags));
}

Val VectorSpelling::compare(Compare kind, Val x, Val y) {
  using F = arith::CmpFPredicate;
  using I = arith::CmpIPredicate;
  Value l = value(x), r = value(y);
  auto floats = [&](F p) {
    return handle(b.create<arith::CmpFOp>(loc, p, l, r));
  };
  switch (kind) {
  case Compare::OGT:
    return floats(F::OGT);
  case Compare::OLT:
    return floats(F::OLT);
  case Compare::UGT:
    return floats(F::UGT);
  case Compare::ULT:
    return floats(F::ULT);
  case Compare::UGE:
    return floats(F::UGE);
  case Compare::ULE:
    return floats(F::ULE);
  case Compare::ORD:
    return floats(F::ORD);
  case Compare::SGT:
    return handle(b.create<arith::CmpIOp>(loc, I::sgt, l, r));
  case Compare::SLT:
    return handle(b.create<arith::CmpIOp>(loc, I::slt, l, r));
  case Compare::SGE:
    return handle(b.create<arith::CmpIOp>(loc, I::sge, l, r));
  case Compare::SLE:
    return handle(b.create<arith::CmpIOp>(loc, I::sle, l, r));
  }
  llvm_unreachable("covered switch");
}

Val VectorSpelling::select(Val condition, Val x, Val y) {
  return handle(
      b.create<arith::SelectOp>(loc, value(condition), value(x), value(y)));
}

Val VectorSpelling::toFloat(Val x, Type to) {
  return handle(b.create<arith::SIToFPOp>(loc, to, value(x)));
}

Val VectorSpelling::integerCast(Val x, Type from, Type to) {
  unsigned have = from.getIntOrFloatBitWidth(),
           want = to.getIntOrFloatBitWidth();
  if (have == want)
    return x;
  Type type = x.wide ? Type(vectorOf(to)) : to;
  if (have < want)
    return handle(b.create<arith::ExtSIOp>(loc, type, value(x)));
  return handle(b.create<arith::TruncIOp>(loc, type, value(x)));
}

//===----------------------------------------------------------------------===//
// Pairs
//===----------------------------------------------------------------------===//

Val VectorSpelling::pairUp(Val low, Val high) {
  auto bits = [&](Val v) -> Value {
    Type half = vectorOf(b.getI16Type());
    Value raw = b.create<arith::BitcastOp>(loc, half, value(v));
    return b.create<arith::ExtUIOp>(loc, vectorOf(b.getI32Type()), raw);
  };
  Value shift =
      cachedConstant(DenseElementsAttr::get(vectorOf(b.getI32Type()), 16));
  Value upper = b.create<arith::ShLIOp>(loc, bits(high), shift);
  return handle(b.create<arith::OrIOp>(loc, bits(low), upper));
}

Val VectorSpelling::interleave(Val x, Val y) {
  SmallVector<int64_t> from;
  for (int64_t i = 0; i < lanes(); ++i)
    from.push_back(i / 2 + (i % 2) * lanes());
  return handle(b.create<vector::ShuffleOp>(loc, value(x), value(y), from));
}

static constexpr StringLiteral kNarrow = "llvm.x86.avx512bf16.cvtneps2bf16.512";

/// The target has said that pairs of this type are added by an instruction.
Val VectorSpelling::narrow(Val x, Type element) {
  return handle(b.create<LLVM::CallIntrinsicOp>(loc, vectorOf(element),
                                                b.getStringAttr(kNarrow),
                                                ValueRange{value(x)})
                    .getResults());
}

/// Two registers that were narrowed, by the instruction for both (Sapphire
/// Rapids, from scores to pairs, ns a register of f32: 2.3 and 2.1; stored one
/// by one 2.4); null if they were not.
Value VectorSpelling::narrowedTogether(Value low, Value high) {
  auto wide = [](Value narrow) -> Value {
    auto call = narrow.getDefiningOp<LLVM::CallIntrinsicOp>();
    return call && call.getIntrin() == kNarrow ? call.getArgs()[0] : Value();
  };
  if (!wide(low) || !wide(high))
    return Value();
  auto type = VectorType::get({2 * lanes()}, b.getBF16Type());
  return b
      .create<LLVM::CallIntrinsicOp>(
          loc, type, b.getStringAttr("llvm.x86.avx512bf16.cvtne2ps2bf16.512"),
          ValueRange{wide(high), wide(low)})
      .getResult(0);
}

Val VectorSpelling::addPairs(Val x, Val y, Val sum) {
  auto name = b.getStringAttr("llvm.x86.avx512bf16.dpbf16ps.512");
  auto halves = VectorType::get({2 * lanes()}, b.getBF16Type());
  Value u = b.create<vector::BitCastOp>(loc, halves, value(x));
  Value v = b.create<vector::BitCastOp>(loc, halves, value(y));
  return handle(b.create<LLVM::CallIntrinsicOp>(loc, vectorOf(b.getF32Type()),
                                                name,
                                                ValueRange{value(sum), u, v})
                    .getResults());
}

//===----------------------------------------------------------------------===//
// Lanes
//===----------------------------------------------------------------------===//

Val VectorSpelling::broadcast(Val scalar) {
  Value v = value(scalar);
  TypedAttr attr;
  if (auto op = v.getDefiningOp<arith::ConstantOp>(); op && op.getValue())
    attr = op.getValue();
  VectorType type = vectorOf(v.getType());
  if (attr)
    return handle(cachedConstant(DenseElementsAttr::get(type, attr)));
  return handle(b.create<vector::BroadcastOp>(loc, type, v));
}

/// By halves: the same order on every machine, and one instruction a step.
Val VectorSpelling::reduceLanes(Binary kind, Val wide) {
  Value v = value(wide);
  if (getElementTypeOrSelf(v.getType()).isInteger(1)) {
    auto all = kind == Binary::AndI || kind == Binary::MulI
                   ? vector::CombiningKind::AND
                   : vector::CombiningKind::OR;
    return handle(b.create<vector::ReductionOp>(loc, all, v));
  }
  for (int64_t n = lanes() / 2; n >= 1; n /= 2) {
    auto half = [&](int64_t at) {
      return handle(b.create<vector::ExtractStridedSliceOp>(
          loc, v, ArrayRef<int64_t>{at}, ArrayRef<int64_t>{n},
          ArrayRef<int64_t>{1}));
    };
    v = value(binary(kind, half(n), half(0)));
  }
  return handle(b.create<vector::ExtractOp>(loc, v, ArrayRef<int64_t>{0}));
}

/// In rounds, each of which puts the halves of two registers' parts side by
/// side and combines them: the order of `reduceLanes`.
Val VectorSpelling::reduceEach(Binary kind, ArrayRef<Val> wides) {
  int64_t n = lanes();
  Values now(wides);
  for (int64_t part = n; part > 1; part /= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t source : {int64_t(0), n})
      for (int64_t at = 0; at < n; at += part)
        for (int64_t l = 0; l < part / 2; ++l) {
          low.push_back(source + at + l);
          high.push_back(source + at + part / 2 + l);
        }
    Values next;
    for (size_t i = 0; i < now.size(); i += 2) {
      Value x = value(now[i]), y = value(now[i + 1]);
      next.push_back(
          binary(kind, handle(b.create<vector::ShuffleOp>(loc, x, y, high)),
                 handle(b.create<vector::ShuffleOp>(loc, x, y, low))));
    }
    now = next;
  }
  return now[0];
}

Val VectorSpelling::extract(Val wide, Ix lane) {
  return handle(
      b.create<vector::ExtractElementOp>(loc, value(wide), value(lane)));
}

/// A bit a lane, in 64 bits.
Value VectorSpelling::bitsOf(Val mask) {
  auto word = b.getIntegerType(unsigned(lanes()));
  Value bits =
      b.create<vector::BitCastOp>(loc, VectorType::get({1}, word), value(mask));
  bits = b.create<vector::ExtractOp>(loc, bits, ArrayRef<int64_t>{0});
  return b.create<arith::ExtUIOp>(loc, b.getIntegerType(64), bits);
}

Val VectorSpelling::countLanes(Val mask) {
  Value count = b.create<math::CtPopOp>(loc, bitsOf(mask));
  return handle(b.create<arith::TruncIOp>(loc, b.getI32Type(), count));
}

Val VectorSpelling::firstLane(Val wide) {
  unsigned n = unsigned(lanes());
  Type wider = b.getIntegerType(64);
  Value bits = bitsOf(wide);
  // A bit behind the last lane stands for none.
  Value none = b.create<arith::ConstantOp>(
      loc, b.getIntegerAttr(wider, int64_t(1) << n));
  bits = b.create<arith::OrIOp>(loc, bits, none);
  bits = b.create<math::CountTrailingZerosOp>(loc, bits);
  return handle(b.create<arith::TruncIOp>(loc, b.getI32Type(), bits));
}

Val VectorSpelling::iota(Ix first) {
  SmallVector<int32_t> steps;
  for (int32_t i = 0; i < lanes(); ++i)
    steps.push_back(i);
  Value step = cachedConstant(b.getI32VectorAttr(steps));
  Value start = value(broadcast(toData(first)));
  return handle(b.create<arith::AddIOp>(loc, start, step));
}

Val VectorSpelling::mask(Ix count) {
  SmallVector<int32_t> steps;
  for (int32_t i = 0; i < lanes(); ++i)
    steps.push_back(i);
  Value step = cachedConstant(b.getI32VectorAttr(steps));
  Value bound = value(broadcast(toData(min(count, lanes()))));
  return handle(
      b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::slt, step, bound));
}

//===----------------------------------------------------------------------===//
// Lists
//===----------------------------------------------------------------------===//

Value VectorSpelling::words(int32_t number) {
  return cachedConstant(
      DenseElementsAttr::get(vectorOf(b.getI32Type()), number));
}

// A sortable number is an f64: the bits of an f32 are its upper half, the place
// its lower one. Every machine has their maxima. What would be subnormal, and
// so 0 where a thread says that such numbers are, is moved out of the way: no
// number here is subnormal, infinite or NaN.
static constexpr int32_t kMoved = 0x00100000, kNan = 0x7fd00000,
                         kAbsent = 0x7fe00000, kSign = INT32_MIN;

/// Lanes of one half are every other group of 128 bits, as unpacking leaves
/// them.
static SmallVector<int64_t> unpacked(int64_t lanes) {
  constexpr int64_t kGroup = 4;
  SmallVector<int64_t> order;
  for (int64_t half : {0, 1})
    for (int64_t group = 0; group < lanes; group += kGroup)
      for (int64_t i = 0; i < kGroup / 2; ++i)
        order.push_back(group + half * kGroup / 2 + i);
  return order;
}

Value VectorSpelling::joinWords(Value low, Value high) {
  SmallVector<int64_t> from;
  for (int64_t lane : unpacked(lanes()))
    from.append({lane, lanes() + lane});
  Value both = b.create<vector::ShuffleOp>(loc, low, high, from);
  return b.create<vector::BitCastOp>(loc, vectorOf(b.getF64Type()), both);
}

Value VectorSpelling::halfOf(Val sortable, bool isHigh) {
  auto type = VectorType::get({2 * lanes()}, b.getI32Type());
  Value both = b.create<vector::BitCastOp>(loc, type, value(sortable));
  SmallVector<int64_t> from(size_t(lanes()), 0);
  for (auto [at, lane] : llvm::enumerate(unpacked(lanes())))
    from[size_t(lane)] = 2 * int64_t(at) + (isHigh ? 1 : 0);
  return b.create<vector::ShuffleOp>(loc, both, both, from);
}

Val VectorSpelling::sortable(Val key, Val place, Val exists, bool isTop) {
  Type f32 = b.getF32Type(), i32 = b.getI32Type();
  Value x = value(key);
  if (getElementTypeOrSelf(x.getType()) != f32)
    x = b.create<arith::ExtFOp>(loc, vectorOf(f32), x);
  // -0 + 0 is 0.
  x = b.create<arith::AddFOp>(loc, x, zeros(vectorOf(f32)));
  Value isNumber =
      b.create<arith::CmpFOp>(loc, arith::CmpFPredicate::ORD, x, x);
  Value bits = b.create<arith::BitcastOp>(loc, vectorOf(i32), x);
  Value high = b.create<arith::AddIOp>(loc, bits, words(kMoved));
  high = b.create<arith::SelectOp>(loc, isNumber, high, words(kNan));
  high = b.create<arith::SelectOp>(loc, value(exists), high,
                                   words(isTop ? kAbsent | kSign : kAbsent));
  // The larger the lower half, the larger the magnitude.
  Value sign = b.create<arith::ShRSIOp>(loc, high, words(31));
  Value low = b.create<arith::XOrIOp>(loc, value(place), sign);
  if (isTop)
    low = b.create<arith::XOrIOp>(loc, low, words(-1));
  return handle(joinWords(low, high));
}

Val VectorSpelling::placeOf(Val sortable, bool isTop) {
  Value sign = b.create<arith::ShRSIOp>(loc, halfOf(sortable, /*isHigh=*/true),
                                        words(31));
  Value place =
      b.create<arith::XOrIOp>(loc, halfOf(sortable, /*isHigh=*/false), sign);
  if (isTop)
    place = b.create<arith::XOrIOp>(loc, place, words(-1));
  return handle(place);
}

Val VectorSpelling::extremeSortable(bool isBelow) {
  double most = std::numeric_limits<double>::max();
  return handle(cachedConstant(DenseElementsAttr::get(vectorOf(b.getF64Type()),
                                                      isBelow ? -most : most)));
}

bool VectorSpelling::picksLanes(Type element) {
  int64_t bits = 32 * lanes();
  return element.isIntOrFloat() && element.getIntOrFloatBitWidth() <= 32 &&
         (bits == 256 || bits == 512) && bits <= target.vectorBits;
}

Val VectorSpelling::pickLanes(Val x, Val from) {
  Value v = value(x);
  Type type = v.getType(), word = vectorOf(b.getI32Type());
  unsigned width = getElementTypeOrSelf(type).getIntOrFloatBitWidth();
  Type bits = vectorOf(b.getIntegerType(width));
  if (type != bits)
    v = b.create<arith::BitcastOp>(loc, bits, v);
  if (width < 32)
    v = b.create<arith::ExtUIOp>(loc, word, v);
  auto name =
      b.getStringAttr(32 * lanes() == 512 ? "llvm.x86.avx512.permvar.si.512"
                                          : "llvm.x86.avx2.permd");
  v = b.create<LLVM::CallIntrinsicOp>(loc, word, name,
                                      ValueRange{v, value(from)})
          .getResult(0);
  if (width < 32)
    v = b.create<arith::TruncIOp>(loc, bits, v);
  if (type != bits)
    v = b.create<arith::BitcastOp>(loc, type, v);
  return handle(v);
}

//===----------------------------------------------------------------------===//
// Indices
//===----------------------------------------------------------------------===//

static Value indexArith(OpBuilder &b, Location loc, IndexOp op, Value x,
                        Value y) {
  switch (op) {
  case IndexOp::Add:
    return b.create<arith::AddIOp>(loc, x, y);
  case IndexOp::Sub:
    return b.create<arith::SubIOp>(loc, x, y);
  case IndexOp::Mul:
    return b.create<arith::MulIOp>(loc, x, y);
  case IndexOp::Div:
    return b.create<arith::DivUIOp>(loc, x, y);
  case IndexOp::Rem:
    return b.create<arith::RemUIOp>(loc, x, y);
  case IndexOp::Min:
    return b.create<arith::MinSIOp>(loc, x, y);
  case IndexOp::Max:
    return b.create<arith::MaxSIOp>(loc, x, y);
  }
  llvm_unreachable("covered switch");
}

Val VectorSpelling::indexOp(IndexOp op, Val x, Val y) {
  return handle(indexArith(b, loc, op, value(x), value(y)));
}

Val VectorSpelling::wideIndexOp(IndexOp op, Val x, Val y) {
  return handle(indexArith(b, loc, op, value(x), value(y)));
}

Val VectorSpelling::indexConstant(int64_t v) {
  return handle(cachedConstant(b.getIndexAttr(v)));
}

Val VectorSpelling::less(Ix x, Ix y) {
  return handle(b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::slt,
                                        value(x), value(y)));
}

Val VectorSpelling::toData(Ix index) {
  if (index.isConstant())
    return constant(b.getI32IntegerAttr(int32_t(index.constant)));
  return handle(
      b.create<arith::IndexCastOp>(loc, b.getI32Type(), value(index)));
}

Ix VectorSpelling::toIndex(Val data) {
  return Ix(
      handle(b.create<arith::IndexCastOp>(loc, b.getIndexType(), value(data))));
}

Val VectorSpelling::toWideIndex(Val wideData) {
  return handle(b.create<arith::IndexCastOp>(loc, vectorOf(b.getIndexType()),
                                             value(wideData)));
}

Val VectorSpelling::wideIndex(Ix first, Ix step) {
  VectorType type = vectorOf(b.getIndexType());
  SmallVector<APInt> steps;
  for (int64_t i = 0; i < lanes(); ++i)
    steps.push_back(APInt(64, step.isConstant() ? i * step.constant : i));
  Value sum = cachedConstant(DenseElementsAttr::get(type, steps));
  if (!step.isConstant())
    sum = b.create<arith::MulIOp>(
        loc, sum, b.create<vector::BroadcastOp>(loc, type, value(step)));
  return handle(b.create<arith::AddIOp>(
      loc, sum, b.create<vector::BroadcastOp>(loc, type, value(first))));
}
