// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Numbers as C++ spells them, and what they are: integers, names, and a few
// functions of threads.
#ifndef REFOLD_LIB_CONVERSION_TILELEVEL_NUMBERS_H
#define REFOLD_LIB_CONVERSION_TILELEVEL_NUMBERS_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace refold::tile {

/// A formula in postfix order.
class Formula {
public:
  enum Code : uint8_t {
    Constant, ///< `value`
    Name,     ///< slot `value`
    Function, ///< of the list of functions, with `count` arguments
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    Less,
    LessEqual,
    Equal,
    NotEqual,
    Both,
    Either,
    Guard, ///< of Both or Either, as `count` says: `value` steps are left out
           ///< where the first side decides
    Not,
    Negate,
    Choose
  };
  struct Step {
    Code code;
    int count = 0;
    int64_t value = 0;
  };
  std::vector<Step> steps;
  bool isOfLanes = false; ///< lanes of a warp may have different numbers
};

/// Functions that formulas call.
enum class NumberFunction {
  Same, ///< casts
  Smaller,
  Larger,
  Sum,      ///< of addresses
  Describe, ///< a matrix: where it is, and 2^32 times how far panels are apart
  Quotient,
  Remainder,
  Block,
  Blocks,
  Thread,
  OfWarp,
  AnyLane,
  Matrix,
  Rows,
  Begin,
  End,
  Low,
  HasLow,
  HasAnyLow
};

/// What names are, while a formula is read.
class Names {
public:
  virtual ~Names() = default;
  struct Found {
    bool isConstant = false;
    int64_t value = 0; ///< or the slot
    bool isOfLanes = false;
  };
  virtual std::optional<Found> find(const std::string &name) const = 0;
};

/// Reads a formula; nothing where it is none, `unknown` being what is not
/// known.
std::optional<Formula> readFormula(const std::string &text, const Names &names,
                                   std::string &unknown);

/// What a thread is asked while its formulas are computed.
class Numbers {
public:
  virtual ~Numbers() = default;
  virtual int64_t slot(int64_t number, int lane) = 0;
  /// Of the lane at hand, `arguments` being its own.
  virtual int64_t call(NumberFunction function, const int64_t *arguments,
                       int count, int lane) = 0;
};
int64_t compute(const Formula &formula, Numbers &of, int lane);
/// Of a function that asks nothing of threads.
int64_t callPlain(NumberFunction function, const int64_t *arguments, int count);
/// The number of a formula without names or threads.
std::optional<int64_t> constantIn(const Formula &formula);

} // namespace refold::tile

#endif // REFOLD_LIB_CONVERSION_TILELEVEL_NUMBERS_H
