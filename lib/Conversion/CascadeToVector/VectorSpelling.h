// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_CONVERSION_CASCADETOVECTOR_VECTORSPELLING_H
#define REFOLD_LIB_CONVERSION_CASCADETOVECTOR_VECTORSPELLING_H

#include "Spelling.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "refold/Schedule/TargetFacts.h"
#include <map>

namespace refold::walk {

/// The walk as arith, math, memref, scf and vector: registers are 1-D vectors.
class VectorSpelling : public Spelling {
public:
  /// Functions are put before `kernel`, whose arguments they take.
  VectorSpelling(mlir::func::FuncOp kernel, int64_t lanes,
                 const TargetFacts &target);

  void beginShape(unsigned numResults) override;
  void endShape(llvm::ArrayRef<Ix> results) override;
  void beginPhase(unsigned number) override;
  void endPhase() override;
  Ix itemBegin() override;
  Ix itemEnd() override;
  Buffer workspace(bool isShared, Ix byte, mlir::Type element,
                   Ix count) override;
  Buffer operand(unsigned number) override;
  Val scalarOperand(unsigned number) override;
  Ix size(unsigned operand, unsigned dim) override;
  Ix stride(unsigned operand, unsigned dim) override;
  Val constant(mlir::TypedAttr value) override;
  Val elementwise(mlir::Operation *op, llvm::ArrayRef<Val> in,
                  mlir::Type element) override;
  Val byNumber(mlir::Operation *op, Val x, Val number,
               mlir::Type element) override;
  Val binary(Binary kind, Val x, Val y) override;
  Val fma(Val x, Val y, Val z) override;
  Val exp2(Val x, Exp2Form form) override;
  Val compare(Compare kind, Val x, Val y) override;
  Val select(Val condition, Val x, Val y) override;
  Val integerCast(Val x, mlir::Type from, mlir::Type to) override;
  Val toFloat(Val x, mlir::Type to) override;
  Val pairUp(Val low, Val high) override;
  Val interleave(Val x, Val y) override;
  Val narrow(Val x, mlir::Type element) override;
  Val addPairs(Val x, Val y, Val sum) override;
  Val broadcast(Val scalar) override;
  Val reduceLanes(Binary kind, Val wide) override;
  Val reduceEach(Binary kind, llvm::ArrayRef<Val> wides) override;
  Val extract(Val wide, Ix lane) override;
  Val firstLane(Val wide) override;
  Val countLanes(Val mask) override;
  Val iota(Ix first) override;
  Val mask(Ix count) override;
  Val sortable(Val key, Val place, Val exists, bool isTop) override;
  Val placeOf(Val sortable, bool isTop) override;
  Val extremeSortable(bool isBelow) override;
  bool picksLanes(mlir::Type element) override;
  Val pickLanes(Val x, Val from) override;
  Val indexOp(IndexOp op, Val x, Val y) override;
  Val indexConstant(int64_t value) override;
  Val less(Ix x, Ix y) override;
  Val toData(Ix index) override;
  Ix toIndex(Val data) override;
  Val toWideIndex(Val wideData) override;
  Val wideIndex(Ix first, Ix step) override;
  Val wideIndexOp(IndexOp op, Val x, Val y) override;
  Val load(const Buffer &from, Ix at) override;
  Val loadWide(const Buffer &from, Ix at, Val mask) override;
  Val gather(const Buffer &from, Val at, Val mask) override;
  Val loadEvery(const Buffer &from, Ix at, int64_t part, int64_t step) override;
  void store(Val value, const Buffer &to, Ix at) override;
  void storeWide(Val value, const Buffer &to, Ix at, Val mask) override;
  void storeCompressed(llvm::ArrayRef<Val> values, llvm::ArrayRef<Buffer> to,
                       Ix at, Val mask) override;
  void storeLanes(Val wide, int64_t first, int64_t count, const Buffer &to,
                  Ix at) override;
  void scatter(Val value, const Buffer &to, Val at, Val mask) override;
  void storeStreaming(Val value, const Buffer &to, Ix at) override;
  int64_t registersOfStore(mlir::Type element) override;
  void storeTogether(llvm::ArrayRef<Val> values, const Buffer &to, Ix at,
                     bool isStreamed) override;
  Ix untilAligned(const Buffer &to, Ix at) override;
  void prefetch(const Buffer &from, Ix at, bool isWrite, int level) override;
  Val loadWord(const Buffer &from, Ix at) override;
  Val loadWords(const Buffer &from, Ix at) override;
  void storeWords(Val words, const Buffer &to, Ix at) override;
  Val wordsOfRows(const Buffer &from, Ix at, Ix stride, bool isMoved) override;
  void transposeWords(const Buffer &from, Ix fromAt, Ix fromStride,
                      const Buffer &to, Ix toAt, Ix toStride,
                      bool isMoved) override;
  Val dotOfBytes(Val sum, Val x, Val y) override;
  Val dotOfHalfWords(Val sum, Val x, bool isXSigned, Val y,
                     bool isYSigned) override;
  bool mayFlush() override { return lanes() > 1; }
  void startFlushing(const Buffer &words, Ix on) override;
  Ix stopFlushing(const Buffer &words) override;
  void beginTiles() override;
  void endTiles() override;
  void clearTile(int tile) override;
  void loadTile(int tile, const Buffer &from, Ix at, Ix stride) override;
  void storeTile(int tile, const Buffer &to, Ix at, Ix stride) override;
  void addTiles(int sum, int left, int right, TileKind kind) override;
  Values turn(llvm::ArrayRef<Val> wides, mlir::Type element) override;
  void transposeBlock(const Buffer &from, Ix fromAt, Ix fromStride,
                      const Buffer &to, Ix toAt, Ix toStride) override;
  void transposePairs(const Buffer &from, Ix fromAt, Ix fromStride,
                      const Buffer &to, Ix toAt, Ix toStride) override;
  Values loop(Ix lo, Ix hi, int64_t step, llvm::ArrayRef<Val> init,
              LoopBody body) override;
  void branch(Val condition, Block then, Block otherwise) override;
  Values repeat(llvm::ArrayRef<Val> init,
                llvm::function_ref<Val(llvm::ArrayRef<Val>)> condition,
                llvm::function_ref<Values(llvm::ArrayRef<Val>)> body) override;

private:
  struct Operand {
    mlir::Value flat;
    Ix offset;
    llvm::SmallVector<Ix, 4> sizes, strides;
  };
  void beginFunction(llvm::StringRef name, mlir::TypeRange extra,
                     mlir::TypeRange results);
  void readOperand(unsigned number);
  mlir::Value value(Val v);
  mlir::Value value(Ix x) { return value(materialise(x)); }
  Val handle(mlir::Value v);
  mlir::VectorType vectorOf(mlir::Type element);
  mlir::Value cachedConstant(mlir::TypedAttr attr);
  mlir::Value zeros(mlir::VectorType type);
  mlir::Value allLanes();
  void transpose(llvm::SmallVector<mlir::Value> &rows);
  void storeTransposed(llvm::SmallVector<mlir::Value> rows, const Buffer &to,
                       Ix toAt, Ix toStride);
  mlir::Value flipSigns(mlir::Value words);
  mlir::Value startOf(const Buffer &buffer);
  mlir::Value addressOf(const Buffer &buffer, Ix at);
  mlir::Value bytesOf(const Buffer &buffer, Ix count);
  mlir::Value tileNumber(int tile);
  void callX86(llvm::StringRef name, mlir::ValueRange arguments);
  Val gatherNarrow(const Buffer &from, Val at, Val mask);
  mlir::Value fromStorage(mlir::Value v, mlir::Type element);
  mlir::Value toStorage(mlir::Value v, mlir::Type element);
  mlir::Value bitsOf(Val mask);
  mlir::Value lanesOfMask(Val mask);
  void compressInto(const Buffer &to, Ix at, Val value, Val mask);
  mlir::Value narrowedTogether(mlir::Value low, mlir::Value high);
  mlir::Value words(int32_t number);
  mlir::Value halfOf(Val sortable, bool isHigh);
  mlir::Value joinWords(mlir::Value low, mlir::Value high);

  mlir::func::FuncOp kernel, function;
  TargetFacts target;
  mlir::OpBuilder b;
  mlir::Location loc;
  std::map<unsigned, Operand> operands;
  llvm::DenseMap<mlir::Attribute, mlir::Value> constants;
  mlir::Operation *lastConstant = nullptr;
  bool isStreaming = false; ///< the open function stores around the caches
};

} // namespace refold::walk

#endif // REFOLD_LIB_CONVERSION_CASCADETOVECTOR_VECTORSPELLING_H
