// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_CONVERSION_CASCADETOVECTOR_CXXSPELLING_H
#define REFOLD_LIB_CONVERSION_CASCADETOVECTOR_CXXSPELLING_H

#include "Spelling.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <deque>

namespace refold::walk {

/// The walk as plain C++ with one lane. Each function takes its arguments as
/// words of 8 bytes, the way `KernelFunction` of refold/Runtime does.
class CxxSpelling : public Spelling {
public:
  explicit CxxSpelling(mlir::func::FuncOp kernel);
  /// The text so far, or the first op that has no spelling.
  std::string text;
  std::string unknown;

  void beginShape(unsigned numResults) override;
  void endShape(llvm::ArrayRef<Ix> results) override;
  void beginPhase(unsigned number) override;
  void endPhase() override;
  Ix itemBegin() override { return Ix(named("item_begin")); }
  Ix itemEnd() override { return Ix(named("item_end")); }
  Buffer workspace(bool isShared, Ix byte, mlir::Type element,
                   Ix count) override;
  Buffer operand(unsigned number) override;
  Val scalarOperand(unsigned number) override;
  Ix size(unsigned operand, unsigned dim) override;
  Ix stride(unsigned operand, unsigned dim) override;
  Val constant(mlir::TypedAttr value) override;
  Val elementwise(mlir::Operation *op, llvm::ArrayRef<Val> in,
                  mlir::Type element) override;
  Val binary(Binary kind, Val x, Val y) override;
  Val fma(Val x, Val y, Val z) override;
  Val exp2(Val x, Exp2Form form) override;
  Val compare(Compare kind, Val x, Val y) override;
  Val select(Val condition, Val x, Val y) override;
  Val integerCast(Val x, mlir::Type from, mlir::Type to) override;
  Val toFloat(Val x, mlir::Type to) override;
  Val pairUp(Val low, Val high) override;
  Val narrow(Val x, mlir::Type element) override;
  Val addPairs(Val x, Val y, Val sum) override;
  Val broadcast(Val scalar) override { return {scalar.token, true}; }
  Val reduceLanes(Binary, Val wide) override { return {wide.token, false}; }
  Val reduceEach(Binary, llvm::ArrayRef<Val> wides) override {
    return wides[0];
  }
  Val extract(Val wide, Ix) override { return {wide.token, false}; }
  Val firstLane(Val wide) override;
  Val countLanes(Val mask) override;
  Val iota(Ix first) override;
  Val mask(Ix count) override;
  Val indexOp(IndexOp op, Val x, Val y) override;
  Val indexConstant(int64_t value) override;
  Val less(Ix x, Ix y) override;
  Val toData(Ix index) override;
  Ix toIndex(Val data) override;
  Val toWideIndex(Val wideData) override;
  Val wideIndex(Ix first, Ix) override;
  Val wideIndexOp(IndexOp op, Val x, Val y) override;
  Val load(const Buffer &from, Ix at) override;
  Val loadWide(const Buffer &from, Ix at, Val mask) override;
  Val gather(const Buffer &from, Val at, Val mask) override;
  Val loadEvery(const Buffer &from, Ix at, int64_t part, int64_t step) override;
  void store(Val value, const Buffer &to, Ix at) override;
  void storeWide(Val value, const Buffer &to, Ix at, Val mask) override;
  void storeCompressed(llvm::ArrayRef<Val> values, llvm::ArrayRef<Buffer> to,
                       Ix at, Val) override {
    for (auto [value, buffer] : llvm::zip(values, to))
      storeWide(value, buffer, at, Val());
  }
  void storeLanes(Val wide, int64_t, int64_t, const Buffer &to,
                  Ix at) override {
    store({wide.token, false}, to, at);
  }
  void scatter(Val value, const Buffer &to, Val at, Val mask) override;
  void storeStreaming(Val value, const Buffer &to, Ix at) override;
  Ix untilAligned(const Buffer &to, Ix at) override;
  void prefetch(const Buffer &, Ix, bool, int) override {}
  Values turn(llvm::ArrayRef<Val> wides, mlir::Type) override {
    return Values(wides);
  }
  void transposeBlock(const Buffer &from, Ix fromAt, Ix, const Buffer &to,
                      Ix toAt, Ix) override;
  void transposePairs(const Buffer &from, Ix fromAt, Ix, const Buffer &to,
                      Ix toAt, Ix) override;
  Values loop(Ix lo, Ix hi, int64_t step, llvm::ArrayRef<Val> init,
              LoopBody body) override;
  void branch(Val condition, Block then, Block otherwise) override;
  Values repeat(llvm::ArrayRef<Val> init,
                llvm::function_ref<Val(llvm::ArrayRef<Val>)> condition,
                llvm::function_ref<Values(llvm::ArrayRef<Val>)> body) override;

private:
  void beginFunction(const std::string &name, bool isPhase);
  Val named(const std::string &name, bool isWide = false);
  Values variables(llvm::ArrayRef<Val> init);
  Val define(const std::string &expression, bool isWide = false);
  void line(const std::string &statement);
  static std::string nameOf(const void *token);
  static std::string nameOf(Val v) { return nameOf(v.token); }
  std::string show(Ix x);
  std::string element(const Buffer &buffer, const std::string &at);

  mlir::func::FuncOp kernel;
  std::deque<std::string> names;
  unsigned numValues = 0, depth = 0;
};

} // namespace refold::walk

#endif // REFOLD_LIB_CONVERSION_CASCADETOVECTOR_CXXSPELLING_H
