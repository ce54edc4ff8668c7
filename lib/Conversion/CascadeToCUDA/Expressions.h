// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_CONVERSION_CASCADETOCUDA_EXPRESSIONS_H
#define REFOLD_LIB_CONVERSION_CASCADETOCUDA_EXPRESSIONS_H

#include "RowKernel.h"
#include <functional>

namespace refold::cuda {

/// Lines of text, two blanks a level.
class Text {
public:
  void line(const std::string &statement);
  /// A line that ends in a brace; `close` writes its end.
  void open(const std::string &statement);
  void close(llvm::StringRef end = "}");
  /// The other side of an open condition, by a condition of its own if any.
  void otherwise(const std::string &condition = "");
  void blank() { text += "\n"; }
  /// A comment, broken at 80 columns.
  void comment(llvm::StringRef words, llvm::StringRef mark = "// ");
  std::string text;

private:
  unsigned depth = 0;
};

/// Formulas as C++: what occurs once stands where it is used, the rest gets a
/// name. Names live as long as the scope that was open when they were given.
class Expressions {
public:
  Expressions(RowKernel &kernel, Text &out) : kernel(kernel), out(out) {}

  /// While alive: a block of the text.
  class Scope {
  public:
    /// `isClosed`: names from outside do not hold in it.
    Scope(Expressions &of, llvm::ArrayRef<Node *> roots, bool isClosed = false);
    ~Scope();
    Scope(const Scope &) = delete;

  private:
    friend class Expressions;
    Expressions &of;
    Scope *outer;
    bool isClosed;
    llvm::DenseMap<Node *, std::string> names;
    llvm::DenseMap<Node *, unsigned> uses;
    llvm::DenseMap<Node *, std::string> divisors; ///< of the block around it
  };

  /// Nothing of what was written before is in reach.
  void beginFunction() {
    divisors.clear();
    numTemporaries = 0;
  }
  /// The value as an expression; writes the definitions that it needs.
  std::string value(Node *n);
  /// The same, with a name.
  std::string named(Node *n, llvm::StringRef hint = "");
  void bind(Node *n, const std::string &text) { scope->names[n] = text; }
  /// Names the parts of `root` that no index of the loop moves, for a loop.
  void hoist(Node *root);
  /// What a value is called or made of where that is known otherwise; "" where
  /// it is not.
  std::function<std::string(Node *)> spell;
  /// What a loop is along, where that is no stream: places of a list.
  walk::Set along = 0;
  /// Quotients by a number of the row may take its reciprocal.
  bool takesReciprocals = false;
  /// ... and be one product with it where the text says that it may.
  bool takesPlain = false;
  /// ... and are then made the nearest float of.
  bool takesNearest = false;
  /// Indices that are known to be less than a number: what is made of them and
  /// fits is computed in 32 bits.
  llvm::SmallDenseMap<unsigned, int64_t> below;
  /// What divides here and further out, by name.
  llvm::SmallVector<std::string> divisorsOf(llvm::ArrayRef<Node *> roots);
  /// The position of element (0, ..., stream = 0) and of subscripts.
  std::string subscript(mlir::AffineExpr expr, llvm::ArrayRef<Node *> in);
  /// Whether data decides where the subscript points.
  static bool isOfData(mlir::AffineExpr expr, llvm::ArrayRef<Node *> in);
  /// The same of dimension `dim` of an operand, which it does not leave.
  std::string subscriptInside(unsigned operand, unsigned dim,
                              mlir::AffineExpr expr, llvm::ArrayRef<Node *> in);
  /// Elements from the array's beginning to the subscripts but for the last
  /// `leftOut`.
  std::string offset(unsigned operand, mlir::AffineMap map,
                     llvm::ArrayRef<Node *> in, unsigned leftOut);

private:
  const std::string *find(Node *n);
  std::string define(Node *n, const std::string &expression);
  std::string elementwise(Node *n);
  std::string fresh(Node *n);
  std::string product(Node *n, Node *other, bool isNegated);
  unsigned usesOf(Node *n);
  bool varies(Node *n) const {
    return along ? (n->set & along) != 0 : kernel.hasStream(n);
  }
  std::string readElement(Node *n);
  std::string divisor(Node *n);
  std::optional<std::pair<int64_t, int64_t>> rangeOf(Node *n);
  std::string inShort(Node *n);

  RowKernel &kernel;
  Text &out;
  Scope *scope = nullptr;
  llvm::DenseMap<Node *, std::string> divisors; ///< by what divides
  unsigned numTemporaries = 0;
};

/// What `n` brings into the range of a float of 8 bits before it rounds it to
/// that, which conversions that saturate do by themselves; null where `n` is
/// anything else.
Node *saturatedBy(Node *n);

/// "(a + b)" as "a + b".
std::string withoutParentheses(std::string expression);

} // namespace refold::cuda

#endif // REFOLD_LIB_CONVERSION_CASCADETOCUDA_EXPRESSIONS_H
