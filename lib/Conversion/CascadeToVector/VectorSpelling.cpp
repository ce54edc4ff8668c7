// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions, operands, memory and control flow; arithmetic is in
// VectorArith.cpp.
#include "VectorSpelling.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "refold/Schedule/Schedule.h"
#include <numeric>

using namespace mlir;
using namespace refold;
using namespace refold::walk;

VectorSpelling::VectorSpelling(func::FuncOp kernel, int64_t lanes,
                               const TargetFacts &target)
    : Spelling(lanes), kernel(kernel), target(target), b(kernel),
      loc(kernel.getLoc()) {}

Value VectorSpelling::value(Val v) {
  return Value::getFromOpaquePointer(v.token);
}

Val VectorSpelling::handle(Value v) {
  return {v.getAsOpaquePointer(), isa<VectorType>(v.getType())};
}

VectorType VectorSpelling::vectorOf(Type element) {
  return VectorType::get({lanes()}, element);
}

/// Constants stand at the head of the function, once each.
Value VectorSpelling::cachedConstant(TypedAttr attr) {
  Value &v = constants[attr];
  if (v)
    return v;
  OpBuilder::InsertionGuard guard(b);
  if (lastConstant)
    b.setInsertionPointAfter(lastConstant);
  else
    b.setInsertionPointToStart(&function.getBody().front());
  v = b.create<arith::ConstantOp>(loc, attr);
  lastConstant = v.getDefiningOp();
  return v;
}

Value VectorSpelling::zeros(VectorType type) {
  return cachedConstant(cast<TypedAttr>(b.getZeroAttr(type)));
}

Value VectorSpelling::allLanes() {
  return cachedConstant(DenseElementsAttr::get(vectorOf(b.getI1Type()), true));
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

/// Elements lie in memory as integers where registers do not hold their type:
/// i1 as a byte, narrow floats as their bits (moving those as floats is a call
/// on some machines).
static Type storedElement(Type element) {
  MLIRContext *context = element.getContext();
  if (element.isInteger(1))
    return IntegerType::get(context, 8);
  if (isa<FloatType>(element) && element.getIntOrFloatBitWidth() < 32)
    return IntegerType::get(context, element.getIntOrFloatBitWidth());
  return element;
}

static Type storageOf(Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  if (!memref)
    return type;
  return MemRefType::get(memref.getShape(),
                         storedElement(memref.getElementType()),
                         memref.getLayout(), memref.getMemorySpace());
}

void VectorSpelling::beginFunction(StringRef suffix, TypeRange extra,
                                   TypeRange results) {
  operands.clear();
  constants.clear();
  lastConstant = nullptr;
  isStreaming = false;
  SmallVector<Type> inputs;
  for (Type type : kernel.getArgumentTypes())
    inputs.push_back(storageOf(type));
  inputs.append(extra.begin(), extra.end());
  b.setInsertionPoint(kernel);
  function = b.create<func::FuncOp>(loc, (kernel.getName() + suffix).str(),
                                    b.getFunctionType(inputs, results));
  b.setInsertionPointToStart(function.addEntryBlock());
}

void VectorSpelling::beginShape(unsigned numResults) {
  SmallVector<Type> results(numResults, b.getIndexType());
  beginFunction("_shape", {}, results);
}

void VectorSpelling::endShape(ArrayRef<Ix> results) {
  SmallVector<Value> values;
  for (Ix x : results)
    values.push_back(value(x));
  b.create<func::ReturnOp>(loc, values);
}

void VectorSpelling::beginPhase(unsigned number) {
  auto bytes = MemRefType::get({ShapedType::kDynamic}, b.getI8Type());
  SmallVector<Type> extra{bytes, bytes, b.getIndexType(), b.getIndexType()};
  beginFunction("_phase" + std::to_string(number), extra, {});
}

void VectorSpelling::endPhase() {
  // Such stores are not ordered with what tells other threads of them.
  if (isStreaming)
    b.create<LLVM::FenceOp>(loc, LLVM::AtomicOrdering::seq_cst, "");
  b.create<func::ReturnOp>(loc);
}

Ix VectorSpelling::itemBegin() {
  return Ix(handle(function.getArguments().take_back(2)[0]));
}

Ix VectorSpelling::itemEnd() {
  return Ix(handle(function.getArguments().back()));
}

Buffer VectorSpelling::workspace(bool isShared, Ix byte, Type element,
                                 Ix count) {
  Type stored = storedElement(element);
  Value bytes = function.getArguments().take_back(4)[isShared ? 0 : 1];
  auto type = MemRefType::get({ShapedType::kDynamic}, stored);
  Value view = b.create<memref::ViewOp>(loc, type, bytes, value(byte),
                                        ValueRange{value(count)});
  return {view.getAsOpaquePointer(), element, Ix(0)};
}

//===----------------------------------------------------------------------===//
// Operands: flat arrays with sizes and strides as numbers
//===----------------------------------------------------------------------===//

void VectorSpelling::readOperand(unsigned number) {
  if (operands.count(number))
    return;
  OpBuilder::InsertionGuard guard(b);
  mlir::Block &entry = function.getBody().front();
  if (lastConstant)
    b.setInsertionPointAfter(lastConstant);
  else
    b.setInsertionPointToStart(&entry);
  Operand &o = operands[number];
  Value arg = function.getArgument(number);
  auto type = cast<MemRefType>(arg.getType());
  auto meta = b.create<memref::ExtractStridedMetadataOp>(loc, arg);
  SmallVector<int64_t> strides;
  int64_t offset = 0;
  (void)getStridesAndOffset(type, strides, offset);
  auto number_ = [&](int64_t known, Value v) {
    return ShapedType::isDynamic(known) ? Ix(handle(v)) : Ix(known);
  };
  o.offset = number_(offset, meta.getOffset());
  for (int64_t d = 0; d < type.getRank(); ++d) {
    o.sizes.push_back(number_(type.getDimSize(d), meta.getSizes()[d]));
    o.strides.push_back(number_(strides[d], meta.getStrides()[d]));
  }
  auto flat = MemRefType::get({ShapedType::kDynamic}, type.getElementType());
  OpFoldResult size = type.getRank() ? OpFoldResult(meta.getSizes()[0])
                                     : OpFoldResult(meta.getOffset());
  auto cast = b.create<memref::ReinterpretCastOp>(
      loc, flat, meta.getBaseBuffer(), OpFoldResult(b.getIndexAttr(0)),
      ArrayRef<OpFoldResult>{size},
      ArrayRef<OpFoldResult>{OpFoldResult(b.getIndexAttr(1))});
  o.flat = cast;
  lastConstant = cast;
}

Buffer VectorSpelling::operand(unsigned number) {
  readOperand(number);
  Operand &o = operands[number];
  auto type = cast<MemRefType>(kernel.getArgumentTypes()[number]);
  return {o.flat.getAsOpaquePointer(), type.getElementType(), o.offset};
}

Val VectorSpelling::scalarOperand(unsigned number) {
  return handle(function.getArgument(number));
}

Ix VectorSpelling::size(unsigned operand, unsigned dim) {
  readOperand(operand);
  return operands[operand].sizes[dim];
}

Ix VectorSpelling::stride(unsigned operand, unsigned dim) {
  readOperand(operand);
  return operands[operand].strides[dim];
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Value VectorSpelling::fromStorage(Value v, Type element) {
  if (getElementTypeOrSelf(v.getType()) == element)
    return v;
  Type type = isa<VectorType>(v.getType()) ? Type(vectorOf(element)) : element;
  if (element.isInteger(1))
    return b.create<arith::TruncIOp>(loc, type, v);
  return b.create<arith::BitcastOp>(loc, type, v);
}

Value VectorSpelling::toStorage(Value v, Type element) {
  Type stored = storedElement(element);
  if (stored == element)
    return v;
  Type type = isa<VectorType>(v.getType()) ? Type(vectorOf(stored)) : stored;
  if (element.isInteger(1))
    return b.create<arith::ExtUIOp>(loc, type, v);
  return b.create<arith::BitcastOp>(loc, type, v);
}

static Value memoryOf(const Buffer &buffer) {
  return Value::getFromOpaquePointer(buffer.token);
}

static Type storedIn(const Buffer &buffer) {
  return cast<MemRefType>(memoryOf(buffer).getType()).getElementType();
}

Val VectorSpelling::load(const Buffer &from, Ix at) {
  Value v = b.create<memref::LoadOp>(loc, memoryOf(from), value(at));
  return handle(fromStorage(v, from.element));
}

Val VectorSpelling::loadWide(const Buffer &from, Ix at, Val mask) {
  VectorType type = vectorOf(storedIn(from));
  Value v;
  if (mask)
    v = b.create<vector::MaskedLoadOp>(loc, type, memoryOf(from), value(at),
                                       value(mask), zeros(type));
  else
    v = b.create<vector::LoadOp>(loc, type, memoryOf(from), value(at));
  return handle(fromStorage(v, from.element));
}

/// The address of element 0, an i64. MLIR takes the pointer of a view for that
/// of what it is a view of: the bytes between them are added here.
Value VectorSpelling::startOf(const Buffer &buffer) {
  Value memory = memoryOf(buffer);
  auto view = memory.getDefiningOp<memref::ViewOp>();
  Value start = b.create<memref::ExtractAlignedPointerAsIndexOp>(
      loc, view ? view.getSource() : memory);
  if (view)
    start = b.create<arith::AddIOp>(loc, start, view.getByteShift());
  return b.create<arith::IndexCastUIOp>(loc, b.getI64Type(), start);
}

/// Gathers take words of 32 bits: the aligned word that holds an element has no
/// byte on a page of its own. Without such gathers every lane is a branch.
Val VectorSpelling::gatherNarrow(const Buffer &from, Val at, Val mask) {
  constexpr int64_t kWordBytes = 4;
  Type stored = storedIn(from), word = b.getI32Type();
  VectorType wide = vectorOf(b.getI64Type()), words = vectorOf(word);
  auto all = [&](int64_t number) {
    return cachedConstant(
        DenseElementsAttr::get(wide, b.getI64IntegerAttr(number)));
  };
  Value base = startOf(from);
  Value bytes = b.create<arith::MulIOp>(
      loc, b.create<arith::IndexCastOp>(loc, wide, value(at)),
      all(stored.getIntOrFloatBitWidth() / 8));
  Value address = b.create<arith::AddIOp>(
      loc, b.create<vector::BroadcastOp>(loc, wide, base), bytes);
  Value inWord = b.create<arith::AndIOp>(loc, address, all(kWordBytes - 1));
  auto pointers = LLVM::LLVMFixedVectorType::get(
      LLVM::LLVMPointerType::get(b.getContext()), lanes());
  Value pointer = b.create<LLVM::IntToPtrOp>(
      loc, pointers, b.create<arith::SubIOp>(loc, address, inWord));
  Value read = b.create<LLVM::masked_gather>(
      loc, words, pointer, mask ? value(mask) : allLanes(),
      ValueRange{zeros(words)}, /*alignment=*/kWordBytes);
  Value shift = b.create<arith::TruncIOp>(
      loc, words, b.create<arith::MulIOp>(loc, inWord, all(8)));
  Value moved = b.create<arith::ShRUIOp>(loc, read, shift);
  Value v = b.create<arith::TruncIOp>(loc, vectorOf(stored), moved);
  return handle(fromStorage(v, from.element));
}

Val VectorSpelling::gather(const Buffer &from, Val at, Val mask) {
  VectorType type = vectorOf(storedIn(from));
  if (type.getElementTypeBitWidth() < 32 && target.gathersWords && lanes() > 1)
    return gatherNarrow(from, at, mask);
  Value v = b.create<vector::GatherOp>(
      loc, type, memoryOf(from), ValueRange{value(Ix(0))}, value(at),
      mask ? value(mask) : allLanes(), zeros(type));
  return handle(fromStorage(v, from.element));
}

Val VectorSpelling::loadEvery(const Buffer &from, Ix at, int64_t part,
                              int64_t step) {
  VectorType type = vectorOf(storedIn(from));
  Value taken;
  for (int64_t k = 0; k < step; ++k) {
    Value next = b.create<vector::LoadOp>(loc, type, memoryOf(from),
                                          value(add(at, k * lanes())));
    if (!k) {
      taken = next;
      continue;
    }
    // Lanes of what was read before, then of `next`. A lane that comes later
    // is whatever.
    SmallVector<int64_t> lane;
    for (int64_t i = 0; i < lanes(); ++i) {
      int64_t place = i * step + part, end = (k + 1) * lanes();
      if (k == 1)
        lane.push_back(place < end ? place : 0);
      else
        lane.push_back(place < k * lanes() || place >= end
                           ? i
                           : place - (k - 1) * lanes());
    }
    taken = b.create<vector::ShuffleOp>(loc, taken, next, lane);
  }
  return handle(fromStorage(taken, from.element));
}

void VectorSpelling::store(Val v, const Buffer &to, Ix at) {
  b.create<memref::StoreOp>(loc, toStorage(value(v), to.element), memoryOf(to),
                            value(at));
}

void VectorSpelling::storeWide(Val v, const Buffer &to, Ix at, Val mask) {
  Value stored = toStorage(value(v), to.element);
  if (mask)
    b.create<vector::MaskedStoreOp>(loc, memoryOf(to), value(at), value(mask),
                                    stored);
  else
    b.create<vector::StoreOp>(loc, stored, memoryOf(to), value(at));
}

/// Of every set of eight lanes those that are in it, in order: one byte each.
static Value tableOfLanes(OpBuilder &b, Location loc, func::FuncOp function) {
  constexpr const char *kName = "lanes_of_sets";
  constexpr int64_t kLanes = 8;
  auto type = MemRefType::get({kLanes << kLanes}, b.getI8Type());
  auto module = function->getParentOfType<ModuleOp>();
  if (!module.lookupSymbol(kName)) {
    std::vector<int8_t> table;
    for (int64_t set = 0; set < 1 << kLanes; ++set) {
      for (int64_t lane = 0; lane < kLanes; ++lane)
        if (set >> lane & 1)
          table.push_back(int8_t(lane));
      table.resize(size_t(kLanes * (set + 1)), 0);
    }
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    auto values = RankedTensorType::get(type.getShape(), b.getI8Type());
    b.create<memref::GlobalOp>(
        loc, kName, b.getStringAttr("private"), type,
        DenseElementsAttr::get(values, ArrayRef<int8_t>(table)),
        /*constant=*/true, /*alignment=*/b.getI64IntegerAttr(64));
  }
  return b.create<memref::GetGlobalOp>(loc, type, kName);
}

/// Lane i: which lane is the i-th in which the mask holds.
Value VectorSpelling::lanesOfMask(Val mask) {
  Value row =
      b.create<arith::IndexCastUIOp>(loc, b.getIndexType(), bitsOf(mask));
  row = b.create<arith::MulIOp>(loc, row,
                                b.create<arith::ConstantIndexOp>(loc, lanes()));
  Value bytes = b.create<vector::LoadOp>(loc, vectorOf(b.getI8Type()),
                                         tableOfLanes(b, loc, function), row);
  return b.create<arith::ExtUIOp>(loc, vectorOf(b.getI32Type()), bytes);
}

void VectorSpelling::storeCompressed(ArrayRef<Val> values, ArrayRef<Buffer> to,
                                     Ix at, Val mask) {
  bool hasTable = compressesByTable(target, lanes());
  Val order;
  for (auto [v, buffer] : llvm::zip(values, to)) {
    if (!hasTable || !picksLanes(buffer.element)) {
      compressInto(buffer, at, v, mask);
      continue;
    }
    if (!order)
      order = handle(lanesOfMask(mask));
    storeWide(pickLanes(v, order), buffer, at, Val());
  }
}

void VectorSpelling::compressInto(const Buffer &to, Ix at, Val v, Val mask) {
  Value stored = toStorage(value(v), to.element);
  auto type = cast<VectorType>(stored.getType());
  int64_t bits = type.getElementTypeBitWidth();
  // In a register and then stored: half the time of the form that stores. LLVM
  // has no such instruction for less than 128 bits.
  int64_t width = bits * lanes();
  if (target.hasCompress && bits >= 32 && width >= 128 &&
      width <= target.vectorBits) {
    std::string name = "llvm.x86.avx512.mask.compress.v" +
                       std::to_string(lanes()) +
                       (isa<FloatType>(type.getElementType()) ? "f" : "i") +
                       std::to_string(bits);
    Value moved = b.create<LLVM::CallIntrinsicOp>(
                       loc, type, b.getStringAttr(name),
                       ValueRange{stored, zeros(type), value(mask)},
                       LLVM::FastmathFlagsAttr::get(b.getContext(),
                                                    LLVM::FastmathFlags::none))
                      .getResult(0);
    b.create<vector::StoreOp>(loc, moved, memoryOf(to), value(at));
    return;
  }
  if (target.hasCompress) {
    b.create<vector::CompressStoreOp>(loc, memoryOf(to), value(at), value(mask),
                                      stored);
    return;
  }
  // Lane by lane, each where the ones before it end: LLVM would branch.
  Value left = bitsOf(mask), place = value(at);
  Value one = b.create<arith::ConstantIntOp>(loc, 1, left.getType());
  for (int64_t lane = 0; lane < lanes(); ++lane) {
    Value element = b.create<vector::ExtractOp>(loc, stored, lane);
    b.create<memref::StoreOp>(loc, element, memoryOf(to), place);
    Value isIn = b.create<arith::AndIOp>(loc, left, one);
    Value step = b.create<arith::IndexCastUIOp>(loc, b.getIndexType(), isIn);
    place = b.create<arith::AddIOp>(loc, place, step);
    left = b.create<arith::ShRUIOp>(loc, left, one);
  }
}

void VectorSpelling::storeLanes(Val wide, int64_t first, int64_t count,
                                const Buffer &to, Ix at) {
  Value v = toStorage(value(wide), to.element);
  if (count < lanes())
    v = b.create<vector::ExtractStridedSliceOp>(
        loc, v, ArrayRef<int64_t>{first}, ArrayRef<int64_t>{count},
        ArrayRef<int64_t>{1});
  b.create<vector::StoreOp>(loc, v, memoryOf(to), value(at));
}

void VectorSpelling::scatter(Val v, const Buffer &to, Val at, Val mask) {
  b.create<vector::ScatterOp>(loc, memoryOf(to), ValueRange{value(Ix(0))},
                              value(at), mask ? value(mask) : allLanes(),
                              toStorage(value(v), to.element));
}

void VectorSpelling::storeStreaming(Val v, const Buffer &to, Ix at) {
  b.create<vector::StoreOp>(loc, toStorage(value(v), to.element), memoryOf(to),
                            value(at), /*nontemporal=*/true);
  isStreaming = true;
}

/// Bytes and halves: registers of words become narrow in one go, and lines are
/// written whole. Elsewhere a register is as good as a line of them. Zen 4,
/// 4096 x 4096 in bf16, register by register and so, one thread / two, ms:
/// RMSNorm 4.4 and 3.6 / 2.2 and 1.9, softmax 6.5 and 5.9 / 3.9 and 3.2.
int64_t VectorSpelling::registersOfStore(Type element) {
  bool areWide = 32 * lanes() == target.vectorBits && target.hasCompress;
  Type stored = storedElement(element);
  if (!areWide || element.isInteger(1))
    return 1;
  return stored.isInteger(8) ? 4 : stored.isInteger(16) ? 2 : 1;
}

void VectorSpelling::storeTogether(ArrayRef<Val> values, const Buffer &to,
                                   Ix at, bool isStreamed) {
  SmallVector<Value> parts;
  if (Value both = values.size() == 2
                       ? narrowedTogether(value(values[0]), value(values[1]))
                       : Value()) {
    auto type = cast<VectorType>(both.getType()).clone(storedIn(to));
    parts.push_back(b.create<vector::BitCastOp>(loc, type, both));
  } else {
    for (Val v : values)
      parts.push_back(toStorage(value(v), to.element));
  }
  for (int64_t width = lanes(); parts.size() > 1; width *= 2) {
    SmallVector<int64_t> both(size_t(2 * width));
    std::iota(both.begin(), both.end(), 0);
    for (size_t i = 0; i < parts.size() / 2; ++i)
      parts[i] = b.create<vector::ShuffleOp>(loc, parts[2 * i],
                                             parts[2 * i + 1], both);
    parts.resize(parts.size() / 2);
  }
  b.create<vector::StoreOp>(loc, parts[0], memoryOf(to), value(at), isStreamed);
  isStreaming |= isStreamed;
}

Ix VectorSpelling::untilAligned(const Buffer &to, Ix at) {
  int64_t bytes =
      std::max<int64_t>(storedIn(to).getIntOrFloatBitWidth() / 8, 1);
  Value base =
      b.create<memref::ExtractAlignedPointerAsIndexOp>(loc, memoryOf(to));
  Value address = b.create<arith::AddIOp>(loc, base, value(mul(at, bytes)));
  Value back = b.create<arith::SubIOp>(loc, value(Ix(0)), address);
  int64_t stored = lanes() * bytes * registersOfStore(to.element);
  Value rest = b.create<arith::AndIOp>(loc, back, value(Ix(stored - 1)));
  return div(Ix(handle(rest)), bytes);
}

void VectorSpelling::prefetch(const Buffer &from, Ix at, bool isWrite,
                              int level) {
  b.create<memref::PrefetchOp>(loc, memoryOf(from), value(at), isWrite,
                               /*localityHint=*/unsigned(4 - level),
                               /*isDataCache=*/true);
}

Val VectorSpelling::loadWord(const Buffer &from, Ix at) {
  auto bytes = VectorType::get({4}, b.getI8Type());
  Value v = b.create<vector::LoadOp>(loc, bytes, memoryOf(from), value(at));
  v = b.create<vector::BitCastOp>(loc, VectorType::get({1}, b.getI32Type()), v);
  return handle(b.create<vector::ExtractOp>(loc, v, 0));
}

Val VectorSpelling::loadWords(const Buffer &from, Ix at) {
  auto bytes = VectorType::get({4 * lanes()}, b.getI8Type());
  Value v = b.create<vector::LoadOp>(loc, bytes, memoryOf(from), value(at));
  return handle(b.create<vector::BitCastOp>(loc, vectorOf(b.getI32Type()), v));
}

void VectorSpelling::storeWords(Val words, const Buffer &to, Ix at) {
  auto bytes = VectorType::get({4 * lanes()}, b.getI8Type());
  Value v = b.create<vector::BitCastOp>(loc, bytes, value(words));
  b.create<vector::StoreOp>(loc, v, memoryOf(to), value(at));
}

Value VectorSpelling::flipSigns(Value words) {
  Value signs = b.create<arith::ConstantOp>(
      loc, DenseElementsAttr::get(cast<VectorType>(words.getType()),
                                  APInt(32, 0x80808080)));
  return b.create<arith::XOrIOp>(loc, words, signs);
}

/// The four rows side by side, their words turned, and then the bytes of each
/// group of four words: two shuffles where there is none for both.
Val VectorSpelling::wordsOfRows(const Buffer &from, Ix at, Ix stride,
                                bool isMoved) {
  constexpr int64_t kRows = 4;
  int64_t n = lanes();
  auto bytes = [&](int64_t count) {
    return VectorType::get({count}, b.getI8Type());
  };
  auto words = vectorOf(b.getI32Type());
  auto row = [&](int64_t r) {
    return b.create<vector::LoadOp>(loc, bytes(n), memoryOf(from),
                                    value(add(at, mul(stride, r))));
  };
  auto joined = [&](Value x, Value y) -> Value {
    SmallVector<int64_t> both(2 * cast<VectorType>(x.getType()).getDimSize(0));
    std::iota(both.begin(), both.end(), 0);
    return b.create<vector::ShuffleOp>(loc, x, y, both);
  };
  Value low = joined(row(0), row(1)), high = joined(row(2), row(3));
  Value all = b.create<vector::BitCastOp>(loc, words, joined(low, high));
  SmallVector<int64_t> byWord, byByte;
  for (int64_t i = 0; i < n; ++i)
    byWord.push_back(i % kRows * (n / kRows) + i / kRows);
  for (int64_t i = 0; i < kRows * n; ++i) {
    int64_t group = i / (kRows * kRows), inside = i % (kRows * kRows);
    byByte.push_back(group * kRows * kRows + inside % kRows * kRows +
                     inside / kRows);
  }
  all = b.create<vector::ShuffleOp>(loc, all, all, byWord);
  all = b.create<vector::BitCastOp>(loc, bytes(kRows * n), all);
  all = b.create<vector::ShuffleOp>(loc, all, all, byByte);
  all = b.create<vector::BitCastOp>(loc, words, all);
  return handle(isMoved ? flipSigns(all) : all);
}

Val VectorSpelling::dotOfBytes(Val sum, Val x, Val y) {
  Value v = value(sum);
  return handle(b.create<LLVM::CallIntrinsicOp>(
                     loc, v.getType(),
                     b.getStringAttr("llvm.x86.avx512.vpdpbusd.512"),
                     ValueRange{v, value(x), value(y)})
                    .getResult(0));
}

Val VectorSpelling::dotOfHalfWords(Val sum, Val x, bool isXSigned, Val y,
                                   bool isYSigned) {
  auto halves = VectorType::get({2 * lanes()}, b.getI16Type());
  auto constant = [&](int64_t number) -> Value {
    return b.create<arith::ConstantOp>(
        loc, DenseElementsAttr::get(halves, APInt(16, number)));
  };
  // Every second byte, the first ones or those behind them.
  auto widened = [&](Value bytes, bool isSigned, bool isFirst) -> Value {
    Value eight = constant(8);
    if (isFirst && !isSigned)
      return b.create<arith::AndIOp>(loc, bytes, constant(255));
    if (isFirst)
      bytes = b.create<arith::ShLIOp>(loc, bytes, eight);
    if (isSigned)
      return b.create<arith::ShRSIOp>(loc, bytes, eight);
    return b.create<arith::ShRUIOp>(loc, bytes, eight);
  };
  Value left = b.create<vector::BitCastOp>(loc, halves, value(x));
  Value right = b.create<vector::BitCastOp>(loc, halves, value(y));
  Value total = value(sum);
  StringRef name =
      lanes() == 16 ? "llvm.x86.avx512.pmaddw.d.512" : "llvm.x86.avx2.pmadd.wd";
  for (bool isFirst : {true, false}) {
    Value products = b.create<LLVM::CallIntrinsicOp>(
                          loc, total.getType(), b.getStringAttr(name),
                          ValueRange{widened(left, isXSigned, isFirst),
                                     widened(right, isYSigned, isFirst)})
                         .getResult(0);
    total = b.create<arith::AddIOp>(loc, total, products);
  }
  return handle(total);
}

Spelling::Values VectorSpelling::turn(ArrayRef<Val> wides, Type element) {
  SmallVector<Value> rows; // as they are stored
  for (Val v : wides)
    rows.push_back(toStorage(value(v), element));
  transpose(rows);
  Values turned;
  for (Value row : rows)
    turned.push_back(handle(fromStorage(row, element)));
  return turned;
}

void VectorSpelling::transposeBlock(const Buffer &from, Ix fromAt,
                                    Ix fromStride, const Buffer &to, Ix toAt,
                                    Ix toStride) {
  VectorType type = vectorOf(storedIn(from)); // moved as it is stored
  SmallVector<Value> rows;
  for (int64_t r = 0; r < lanes(); ++r)
    rows.push_back(b.create<vector::LoadOp>(
        loc, type, memoryOf(from), value(add(fromAt, mul(fromStride, r)))));
  storeTransposed(rows, to, toAt, toStride);
}

void VectorSpelling::transposePairs(const Buffer &from, Ix fromAt,
                                    Ix fromStride, const Buffer &to, Ix toAt,
                                    Ix toStride) {
  auto halves = VectorType::get({2 * lanes()}, storedIn(from));
  SmallVector<Value> rows;
  for (int64_t r = 0; r < lanes(); ++r) {
    Value row = b.create<vector::LoadOp>(
        loc, halves, memoryOf(from), value(add(fromAt, mul(fromStride, r))));
    rows.push_back(
        b.create<vector::BitCastOp>(loc, vectorOf(b.getI32Type()), row));
  }
  storeTransposed(rows, to, toAt, toStride);
}

void VectorSpelling::transposeWords(const Buffer &from, Ix fromAt,
                                    Ix fromStride, const Buffer &to, Ix toAt,
                                    Ix toStride, bool isMoved) {
  constexpr int64_t kBytes = 4;
  SmallVector<Value> rows;
  for (int64_t r = 0; r < lanes(); ++r) {
    Value row = value(loadWords(from, add(fromAt, mul(fromStride, r))));
    rows.push_back(isMoved ? flipSigns(row) : row);
  }
  transpose(rows);
  for (auto [r, row] : llvm::enumerate(rows))
    storeWords(handle(row), to, add(toAt, mul(mul(toStride, r), kBytes)));
}

/// Log2(lanes) rounds of exchanging the off-diagonal blocks of pairs of rows.
void VectorSpelling::transpose(SmallVector<Value> &rows) {
  int64_t n = lanes();
  for (int64_t half = n / 2; half > 0; half /= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t l = 0; l < n; ++l) {
      low.push_back(l & half ? n + l - half : l);
      high.push_back(l & half ? n + l : l + half);
    }
    for (int64_t r = 0; r < n; ++r) {
      if (r & half)
        continue;
      Value x = rows[r], y = rows[r + half];
      rows[r] = b.create<vector::ShuffleOp>(loc, x, y, low);
      rows[r + half] = b.create<vector::ShuffleOp>(loc, x, y, high);
    }
  }
}

void VectorSpelling::storeTransposed(SmallVector<Value> rows, const Buffer &to,
                                     Ix toAt, Ix toStride) {
  transpose(rows);
  for (auto [r, row] : llvm::enumerate(rows))
    b.create<vector::StoreOp>(loc, row, memoryOf(to),
                              value(add(toAt, mul(toStride, r))));
}

//===----------------------------------------------------------------------===//
// Control flow
//===----------------------------------------------------------------------===//

Spelling::Values VectorSpelling::loop(Ix lo, Ix hi, int64_t step,
                                      ArrayRef<Val> init, LoopBody body) {
  SmallVector<Value> initial;
  for (Val v : init)
    initial.push_back(value(v));
  auto loop =
      b.create<scf::ForOp>(loc, value(lo), value(hi), value(Ix(step)), initial);
  OpBuilder::InsertionGuard guard(b);
  if (init.empty())
    b.setInsertionPoint(loop.getBody()->getTerminator());
  else
    b.setInsertionPointToEnd(loop.getBody());
  Values carried;
  for (Value v : loop.getRegionIterArgs())
    carried.push_back(handle(v));
  Values next = body(Ix(handle(loop.getInductionVar())), carried);
  if (!init.empty()) {
    SmallVector<Value> yielded;
    for (Val v : next)
      yielded.push_back(value(v));
    b.create<scf::YieldOp>(loc, yielded);
  }
  Values results;
  for (Value v : loop.getResults())
    results.push_back(handle(v));
  return results;
}

void VectorSpelling::branch(Val condition, Spelling::Block then,
                            Spelling::Block otherwise) {
  auto op = b.create<scf::IfOp>(loc, value(condition), /*withElse=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(op.thenBlock()->getTerminator());
  then();
  b.setInsertionPoint(op.elseBlock()->getTerminator());
  otherwise();
}

Spelling::Values
VectorSpelling::repeat(ArrayRef<Val> init,
                       llvm::function_ref<Val(ArrayRef<Val>)> condition,
                       llvm::function_ref<Values(ArrayRef<Val>)> body) {
  SmallVector<Value> initial;
  for (Val v : init)
    initial.push_back(value(v));
  auto handles = [&](ValueRange values) {
    Values result;
    for (Value v : values)
      result.push_back(handle(v));
    return result;
  };
  auto loop = b.create<scf::WhileOp>(
      loc, ValueRange(initial).getTypes(), initial,
      [&](OpBuilder &, Location, ValueRange now) {
        Value holds = value(condition(handles(now)));
        b.create<scf::ConditionOp>(loc, holds, now);
      },
      [&](OpBuilder &, Location, ValueRange now) {
        SmallVector<Value> yielded;
        for (Val v : body(handles(now)))
          yielded.push_back(value(v));
        b.create<scf::YieldOp>(loc, yielded);
      });
  return handles(loop.getResults());
}

// Of the control word of SSE.
constexpr int32_t kExceptions = 0x3f, kFlushToZero = 0x8000;
constexpr int32_t kUnderflow = 0x10;

void VectorSpelling::startFlushing(const Buffer &words, Ix on) {
  Ix before = words.offset, now = add(before, 1);
  callX86("sse.stmxcsr", addressOf(words, before));
  auto number = [&](int32_t v) {
    return value(constant(b.getI32IntegerAttr(v)));
  };
  Value word = b.create<arith::AndIOp>(loc, value(load(words, before)),
                                       number(~kExceptions));
  Value mode = value(toData(mul(on, kFlushToZero)));
  store(handle(b.create<arith::OrIOp>(loc, word, mode)), words, now);
  callX86("sse.ldmxcsr", addressOf(words, now));
}

Ix VectorSpelling::stopFlushing(const Buffer &words) {
  Ix before = words.offset, now = add(before, 1);
  callX86("sse.stmxcsr", addressOf(words, now));
  callX86("sse.ldmxcsr", addressOf(words, before));
  return rem(div(toIndex(load(words, now)), kUnderflow), 2);
}
