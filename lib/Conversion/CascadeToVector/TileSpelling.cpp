// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Matrix tiles as Intel's AMX has them. Registers are named, not allocated:
// what works on them stands in one loop (`TileSums.cpp`), and LLVM need not
// find a shape for each value.
#include "VectorSpelling.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

constexpr int kTiles = 8, kTileRows = 16, kRowBytes = 64;

void VectorSpelling::callX86(StringRef name, ValueRange arguments) {
  b.create<LLVM::CallIntrinsicOp>(
      loc, TypeRange{}, b.getStringAttr("llvm.x86." + name), arguments);
}

Value VectorSpelling::tileNumber(int tile) {
  return b.create<LLVM::ConstantOp>(loc, b.getI8Type(),
                                    b.getI8IntegerAttr(tile));
}

static Value memoryOf(const Buffer &buffer) {
  return Value::getFromOpaquePointer(buffer.token);
}

/// So many elements, as an i64.
Value VectorSpelling::bytesOf(const Buffer &buffer, Ix count) {
  Type stored = cast<MemRefType>(memoryOf(buffer).getType()).getElementType();
  int64_t bytes = stored.getIntOrFloatBitWidth() / 8;
  return b.create<arith::IndexCastOp>(loc, b.getI64Type(),
                                      value(mul(count, bytes)));
}

Value VectorSpelling::addressOf(const Buffer &buffer, Ix at) {
  Value word =
      b.create<arith::AddIOp>(loc, startOf(buffer), bytesOf(buffer, at));
  return b.create<LLVM::IntToPtrOp>(
      loc, LLVM::LLVMPointerType::get(b.getContext()), word);
}

/// All registers have all rows: the layout of 64 bytes that the instruction
/// reads has a palette, bytes of a row from byte 16 on and rows from 48 on.
void VectorSpelling::beginTiles() {
  constexpr int kBytesAt = 16, kRowsAt = 48;
  SmallVector<int8_t> layout(kRowBytes, 0);
  layout[0] = 1;
  for (int tile = 0; tile < kTiles; ++tile) {
    layout[kBytesAt + 2 * tile] = kRowBytes;
    layout[kRowsAt + tile] = kTileRows;
  }
  auto bytes = VectorType::get({kRowBytes}, b.getI8Type());
  Value all = b.create<arith::ConstantOp>(
      loc, DenseElementsAttr::get(bytes, ArrayRef<int8_t>(layout)));
  Value room = b.create<memref::AllocaOp>(
      loc, MemRefType::get({kRowBytes}, b.getI8Type()),
      b.getI64IntegerAttr(kRowBytes));
  b.create<vector::StoreOp>(loc, all, room, value(Ix(0)));
  Buffer buffer{room.getAsOpaquePointer(), b.getI8Type(), Ix(0)};
  callX86("ldtilecfg", addressOf(buffer, 0));
}

void VectorSpelling::endTiles() { callX86("tilerelease", {}); }

void VectorSpelling::clearTile(int tile) {
  callX86("tilezero", tileNumber(tile));
}

void VectorSpelling::loadTile(int tile, const Buffer &from, Ix at, Ix stride) {
  Value address = addressOf(from, at);
  callX86("tileloadd64", {tileNumber(tile), address, bytesOf(from, stride)});
}

void VectorSpelling::storeTile(int tile, const Buffer &to, Ix at, Ix stride) {
  Value address = addressOf(to, at);
  callX86("tilestored64", {tileNumber(tile), address, bytesOf(to, stride)});
}

void VectorSpelling::addTiles(int sum, int left, int right, TileKind kind) {
  StringRef bytes = kind.isLeftSigned
                        ? (kind.isRightSigned ? "tdpbssd" : "tdpbsud")
                        : (kind.isRightSigned ? "tdpbusd" : "tdpbuud");
  callX86(kind.arePairs ? "tdpbf16ps" : bytes,
          {tileNumber(sum), tileNumber(left), tileNumber(right)});
}
