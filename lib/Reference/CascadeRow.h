// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The body of a cascade for one value of its row indices: what both readings of
// the op, by definition and by states, share.
#ifndef REFOLD_LIB_REFERENCE_CASCADEROW_H
#define REFOLD_LIB_REFERENCE_CASCADEROW_H

#include "Session.h"

namespace refold::reference {

/// The dimension of a field that runs over stream positions, all stream indices
/// flattened to one in row-major order.
constexpr unsigned kStreamDim = 64;

/// A value of the body for one row: an array over the indices that it has, the
/// row's left out. `dims` are numbers of indices in rising order, the stream
/// last.
struct Field {
  llvm::SmallVector<unsigned, 3> dims;
  RefTensor cells;
};

/// Part of the flattened stream.
struct StreamRange {
  int64_t begin = 0, end = 0;
  bool isEmpty() const { return begin >= end; }
};

/// Values known so far, over one range of the stream.
struct Scope {
  StreamRange range;
  llvm::DenseMap<mlir::Value, Field> values;
};

/// What a segment knows of a state: its results (one for each value) and, for
/// topk and bottomk, the stream positions that were chosen.
using StateFields = llvm::SmallVector<Field, 2>;

class CascadeRow {
public:
  /// Sizes are resolved and checked, every op is translated.
  static llvm::Expected<std::unique_ptr<CascadeRow>>
  create(CascadeOp cascade, llvm::ArrayRef<RefTensor> operands,
         Session &session);

  CascadeOp op() const { return cascade; }
  const IndexSets &indexSets() const { return sets; }
  StreamRange wholeStream() const { return {0, streamLength}; }
  /// False when all rows are done; starts before the first.
  bool nextRow();

  /// Evaluates `value` into the scope. States must be there already, unless
  /// `computesState` says that they are evaluated by definition over the
  /// scope's range.
  llvm::Error ensure(mlir::Value value, Scope &scope,
                     llvm::function_ref<bool(StateOp)> computesState);
  /// The reduction of the state's values over the scope's range.
  llvm::Expected<StateFields>
  reduce(StateOp state, Scope &scope,
         llvm::function_ref<bool(StateOp)> computesState);
  /// Both sides by the state's reducer; `a` comes earlier in the stream.
  llvm::Expected<StateFields> combine(StateOp state, const StateFields &a,
                                      const StateFields &b);
  /// The state moved by its transport; `old` and `with` as its arguments ask,
  /// `scope` for constants.
  llvm::Expected<Field> transport(StateOp state, llvm::ArrayRef<Field> old,
                                  llvm::ArrayRef<Field> to, const Field &self,
                                  llvm::ArrayRef<Field> with, Scope &scope);
  /// Stores the value of a write over the scope's range.
  llvm::Error store(WriteOp write, Scope &scope);

  llvm::SmallVector<RefTensor> results;

private:
  struct Plan {
    ScalarProgram program;
    std::unique_ptr<ScalarCompiler> compiler;
    llvm::SmallVector<std::pair<mlir::Value, uint32_t>> inputs;
    uint32_t result = 0;
    std::unique_ptr<Lanes> lanes;
  };

  CascadeRow(CascadeOp cascade, llvm::ArrayRef<RefTensor> operands,
             Session &session)
      : cascade(cascade), operands(operands), session(session) {}
  llvm::Error resolveExtents();
  llvm::Error takeExtent(mlir::Operation *access, mlir::AffineMap map,
                         mlir::ValueRange indices, mlir::Value arg,
                         bool isWrite);
  llvm::Error planOps();
  llvm::Error planOp(mlir::Operation &op);
  llvm::Error planTransport(StateOp state);
  llvm::Error planRead(ReadOp read, Plan &plan);
  uint32_t inputRegister(Plan &plan, mlir::Value value);
  Field indexField(unsigned index, StreamRange range) const;
  /// Runs a plan over the union of its inputs' dimensions.
  llvm::Expected<Field> runPlan(Plan &plan, llvm::ArrayRef<Field> inputs,
                                StreamRange range, bool isFloat,
                                mlir::Location location);
  llvm::Expected<Field> contract(ContractOp op, const Field &value);
  llvm::Expected<StateFields>
  select(StateOp state, llvm::ArrayRef<Field> values, const Field &positions);
  llvm::Expected<StateFields> fold(StateOp state, const Field &values,
                                   StreamRange range);
  Cell combineCells(StateOp state, Cell a, Cell b) const;
  int64_t extentOf(unsigned dim, StreamRange range) const {
    return dim == kStreamDim ? range.end - range.begin : extents[dim];
  }

  CascadeOp cascade;
  llvm::ArrayRef<RefTensor> operands;
  Session &session;
  IndexSets sets;
  llvm::SmallVector<int64_t> extents; ///< one an index
  int64_t streamLength = 1;
  llvm::SmallVector<unsigned> rows, streams;
  llvm::SmallVector<int64_t> rowAt;
  bool isStarted = false;
  llvm::DenseMap<mlir::Operation *, Plan> plans;
};

/// What reducing nothing gives.
Cell identityOf(Reducer reducer, mlir::Type type);

/// `field` with its dimensions those of `dims` (a superset), by strides.
RefTensor broadcastTo(const Field &field, llvm::ArrayRef<unsigned> dims,
                      llvm::ArrayRef<int64_t> shape);

} // namespace refold::reference

#endif // REFOLD_LIB_REFERENCE_CASCADEROW_H
