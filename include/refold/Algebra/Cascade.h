// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_ALGEBRA_CASCADE_H
#define REFOLD_ALGEBRA_CASCADE_H

#include "refold/Algebra/Expr.h"

/// What goes into a derivation: reductions over a common stream, in order, each
/// of which may read the complete results of earlier ones, and what is read
/// from them at the end. The meaning is by definition: each stage in full, in
/// order.
namespace refold::algebra {

enum class IndexRole : uint8_t {
  Row,     ///< one independent problem for each value
  Stream,  ///< what every stage reduces; several are one stream of tuples
  Inner,   ///< reduced inside one element, by Contract
  Carried, ///< of elements and results, not of the rows (attention's e)
  Rank     ///< made by a top-k: 0 = best
};

struct Index {
  std::string name;
  IndexRole role;
  int64_t extent; ///< -1: unknown
  Expr value;     ///< the index as a number, type Index
  Expr length;    ///< constant, or a parameter named len(name)
};

enum class Reducer : uint8_t {
  Sum,
  Prod,
  Max,
  Min, ///< NaN sticks
  MaxNum,
  MinNum, ///< NaN gives way
  Any,
  All, ///< of Bool
  /// Key and payloads of the k best; NaN is above +inf: the first of the
  /// largest, the last of the smallest. Equal keys: the earlier element first.
  TopK
};
const char *spelling(Reducer reducer);
/// Value of an empty reduction: 0, 1, -inf, inf, false, true. TopK: key -inf.
/// Integers: lowest and highest of the type for Max and Min.
Expr identity(Context &context, Reducer reducer, Type type);

/// Where a stage or output stands in the user's program.
struct Place {
  std::string file;
  unsigned line = 0;
  unsigned column = 0;
};

struct Stage {
  std::string name;
  Reducer reducer = Reducer::Sum;
  Expr term;                  ///< summand, or key of a TopK
  std::vector<Expr> payloads; ///< TopK: carried along with the key
  int64_t k = 1;              ///< TopK
  bool largest = true;        ///< TopK: false takes the smallest keys
  int rank = -1; ///< TopK: the Rank index of its results; -1 only if k = 1
  IndexSet indices = 0; ///< of its results: no stream, no inner index
  Place place;
  /// Symbols (role Stage, ordinal = position in `stages`) by which later stages
  /// and outputs read it: one, or for TopK the key and then one for each
  /// payload.
  std::vector<Expr> results;
};

struct Output {
  std::string name;
  /// Over results, parameters and, in a sweep output (softmax's p), elements.
  Expr value;
  Place place;
};

struct Cascade {
  explicit Cascade(Context &context) : context(&context) {}

  /// Adds an index and its symbols; answers its number. At most 64.
  unsigned addIndex(std::string name, IndexRole role, int64_t extent = -1);
  /// A read, or a scalar: role Element if `indices` meets the stream, else
  /// Parameter.
  Expr addRead(std::string name, IndexSet indices, Type type = Type::F32,
               Facts facts = {});
  /// Appends a stage; its index set is the term's without the stream (plus the
  /// rank). Answers the symbol of its (first) result.
  Expr addStage(std::string name, Reducer reducer, Expr term, Place place = {});
  /// `rank` = a Rank index of extent k, or -1 if k = 1. Results: key, payloads.
  std::vector<Expr> addTopK(std::string name, Expr key,
                            std::vector<Expr> payloads, int64_t k, bool largest,
                            int rank, Place place = {});
  void addOutput(std::string name, Expr value, Place place = {});

  IndexSet indicesOf(IndexRole role) const;
  IndexSet stream() const { return indicesOf(IndexRole::Stream); }
  /// The stage that a symbol of role Stage belongs to.
  const Stage &stageOf(Expr result) const {
    return stages[result.symbol().ordinal];
  }
  /// What stops this from being a cascade (forward reads, a result that keeps a
  /// stream index, nesting beyond `maxDepth`, ...), or nothing.
  std::optional<std::string> verify() const;

  /// Nesting of terms beyond which a derivation is refused.
  static constexpr uint32_t maxDepth = 512;

  Context *context;
  std::vector<Index> indices;
  std::vector<Stage> stages;
  std::vector<Output> outputs;
};

} // namespace refold::algebra

#endif // REFOLD_ALGEBRA_CASCADE_H
