// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_ANALYSIS_FORMULA_H
#define REFOLD_ANALYSIS_FORMULA_H

#include "refold/Algebra/Cascade.h"
#include "refold/Analysis/IndexExpr.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace refold {

using Subscripts = llvm::SmallVector<IndexExpr, 4>;

/// Why a formula could not be built, and what would help.
struct Refusal {
  std::string key; ///< of Reasons.def
  std::string text;
  mlir::Operation *at = nullptr;
  /// A tensor that, once it is computed by a kernel of its own, takes the
  /// obstacle away. Null: nothing does.
  mlir::Value materialise;
};

/// A scalar of a body. Index values keep their form as a subscript.
struct Scalar {
  algebra::Expr expr;
  std::optional<IndexExpr> index;
};

/// One operand of a kernel at one subscript.
struct Read {
  mlir::Value operand;      ///< a tensor; or an index value, without subscripts
  std::optional<Size> size; ///< set: no operand, but this size as a number
  Subscripts subscripts;
  algebra::Expr symbol;
};

/// A reduction as part of a kernel: a stage for each place it is read at.
struct StageUse {
  mlir::Operation *op;
  Subscripts subscripts; ///< without the rank of a top-k
  unsigned stage;
};

/// A stream of more axes than a reduction has, which it runs along with the
/// reductions that it reads: the axes, and its own loop along each. Loops that
/// it does not reduce are kept: an element counts for one place of them.
struct WiderStream {
  llvm::SmallVector<Size> sizes;
  llvm::SmallVector<unsigned> loops;
};

class Formula;

/// Whether a reduction that is read inside another one's term may be computed
/// there, and which tensors are in memory before the kernel starts.
struct FormulaPolicy {
  std::function<bool(mlir::Value)> isMaterialised;
  std::function<bool(mlir::Operation *)> mayContract;
  /// Set: reductions stay symbols, and every one met is told.
  std::function<void(mlir::Operation *, const Subscripts &)> onReduction;
  /// Set: whether a formula uses what a tensor in memory is made of, and not
  /// its memory.
  std::function<bool(mlir::Value, const Subscripts &, const Formula &)>
      seesThrough;
  /// Set: the wider stream of a reduction, or null.
  std::function<const WiderStream *(mlir::linalg::GenericOp)> widerStream;
};

/// The elements of tensors as formulas of a kernel's indices. Elementwise ops,
/// broadcasts, transpositions, reshapes and casts dissolve into subscripts;
/// reductions become stages (their stream is the kernel's) or contractions.
class Formula {
public:
  Formula(SizeTable &sizes, FormulaPolicy policy);

  /// Adds an index; the stream must be known before anything reads it.
  unsigned addIndex(std::string name, algebra::IndexRole role, Size extent);
  IndexExpr index(unsigned number) {
    return atoms.index(number, extents[number]);
  }
  /// The value of `tensor` at `subscripts`, or null with `refusal` set.
  algebra::Expr element(mlir::Value tensor, const Subscripts &subscripts);

  Size sizeOfLoop(mlir::linalg::GenericOp generic, unsigned loop);
  /// The summand of a reduction at `loops`, unsigned numbers as their values in
  /// a wider type; its combiner in `reducer`.
  algebra::Expr term(mlir::linalg::GenericOp generic, const Subscripts &loops,
                     algebra::Reducer &reducer);

  std::shared_ptr<algebra::Context> context;
  algebra::Cascade cascade;
  std::vector<Size> extents; ///< of each index
  std::vector<Read> reads;
  std::vector<StageUse> stageUses;
  std::vector<StageUse>
      contractionUses; ///< `stage` unused; loops as subscripts
  std::vector<unsigned> streams;
  llvm::SetVector<mlir::Operation *> inlined; ///< generics that dissolved
  std::optional<Refusal> refusal;
  IndexAtoms atoms;
  SizeTable &sizes;

private:
  struct Body;

  algebra::Expr refuse(llvm::StringRef key, const llvm::Twine &text,
                       mlir::Operation *at, mlir::Value materialise = {});
  algebra::Expr read(mlir::Value tensor, const Subscripts &subscripts);
  IndexExpr withComputedOffset(const IndexExpr &subscript);
  algebra::Expr ofView(mlir::Operation *view, const Subscripts &subscripts);
  algebra::Expr ofGeneric(mlir::linalg::GenericOp generic, unsigned result,
                          const Subscripts &subscripts);
  algebra::Expr ofReduction(mlir::linalg::GenericOp generic, unsigned result,
                            const Subscripts &subscripts);
  algebra::Expr ofTopK(mlir::Operation *topk, unsigned result,
                       const Subscripts &subscripts);
  algebra::Expr ofConstant(mlir::Value tensor, const Subscripts &subscripts);
  algebra::Expr contraction(mlir::linalg::GenericOp generic, Subscripts loops);
  algebra::Expr ofRanks(mlir::linalg::GenericOp generic, Subscripts loops,
                        const Subscripts &key);
  algebra::Expr stage(mlir::linalg::GenericOp generic, Subscripts loops,
                      const Subscripts &key);
  algebra::Expr termAlong(mlir::linalg::GenericOp generic,
                          const WiderStream &stream, const Subscripts &loops,
                          algebra::Reducer &reducer);
  algebra::Expr atPlaces(algebra::Expr body,
                         llvm::ArrayRef<std::pair<unsigned, IndexExpr>> kept);
  const WiderStream *widerStreamOf(mlir::linalg::GenericOp generic,
                                   const Subscripts &loops);
  /// Subscripts of the loops that the result's map fixes; reductions stay 0.
  std::optional<Subscripts> loopsOf(mlir::linalg::GenericOp generic,
                                    unsigned result,
                                    const Subscripts &subscripts);
  /// `result` is what would have to be in memory otherwise.
  bool bindStreams(mlir::Operation *op, llvm::ArrayRef<Size> wanted,
                   unsigned result = 0);
  std::optional<Scalar> evaluate(mlir::Value value, Body &body);
  std::optional<Scalar> evaluateOp(mlir::Operation *op, unsigned result,
                                   Body &body);
  void refuseComputed(algebra::Expr place, mlir::Operation *op);
  algebra::Expr valueOf(const IndexExpr &index);
  algebra::Expr sizeSymbol(const Size &size);
  uint64_t indicesOf(const Subscripts &subscripts) const;
  std::string freshName(llvm::StringRef base);

  algebra::Expr elementFresh(mlir::Value tensor, const Subscripts &subscripts);
  algebra::Expr withInitial(mlir::linalg::GenericOp generic,
                            const Subscripts &key, algebra::Reducer reducer,
                            algebra::Expr value);

  FormulaPolicy policy;
  std::vector<std::pair<Size, algebra::Expr>> sizeSymbols;
  llvm::DenseMap<mlir::Value, std::vector<std::pair<Subscripts, algebra::Expr>>>
      memo;
  struct Contraction {
    mlir::Operation *op;
    Subscripts loops;
    algebra::Expr value;
  };
  std::vector<Contraction> contractions;
  llvm::StringMap<unsigned> names;
  unsigned depth = 0;
};

/// The name that a value has in the source: its argument's, its definition's or
/// node's; "" without.
std::string sourceName(mlir::Value value);
/// File, line and column of an op, as far as known.
algebra::Place placeOf(mlir::Location loc);

/// One scalar arith or math op over its operands; null if it has no form here.
std::optional<Scalar> importScalarOp(mlir::Operation *op, unsigned result,
                                     llvm::ArrayRef<Scalar> operands,
                                     algebra::Context &context,
                                     IndexAtoms &atoms);
std::optional<algebra::Type> importType(mlir::Type type);

/// What an unsigned op sees in place of an integer of `type` that holds
/// `value`, and back. Null for a type that has no wider one.
algebra::Expr unsignedValue(algebra::Context &context, algebra::Expr value,
                            mlir::Type type);
algebra::Expr valueOfUnsigned(algebra::Context &context, algebra::Expr value,
                              mlir::Type type);

/// The one combiner of the accumulator `acc` that yields `value`; `term` is the
/// other operand. Nothing if there is none or acc is read elsewhere.
struct Combiner {
  algebra::Reducer reducer;
  mlir::Value term;
  bool isUnsigned = false; ///< a maximum or minimum of unsigned numbers
};
std::optional<Combiner> matchCombiner(mlir::Value value,
                                      mlir::BlockArgument acc);

/// A sum over the ranks of lists of best elements that are not in memory: it is
/// formed when the lists are complete, and no cascade of its own.
bool isSumOfRanks(mlir::linalg::GenericOp generic,
                  llvm::function_ref<bool(mlir::Value)> isMaterialised);

} // namespace refold

#endif // REFOLD_ANALYSIS_FORMULA_H
