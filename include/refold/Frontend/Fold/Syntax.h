// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The `.fold` language as text: types, syntax tree, parser. Knows no MLIR, so
// that tests and fuzzers build it sanitised.
#ifndef REFOLD_FRONTEND_FOLD_SYNTAX_H
#define REFOLD_FRONTEND_FOLD_SYNTAX_H

#include "refold/Support/ExitCode.h"
#include "refold/Support/Tensor.h"
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace refold::fold {

/// Bounds on what one file may hold; each has its own error.
inline constexpr size_t kMaxSourceBytes = 1 << 20;
inline constexpr unsigned kMaxDepth = 256;
inline constexpr size_t kMaxNameLength = 255;
inline constexpr size_t kMaxAxes = 64; ///< in a file
inline constexpr size_t kMaxAxesOfValue = 16;
inline constexpr size_t kMaxArguments = 1024;
inline constexpr int64_t kMaxExtent = int64_t(1) << 40;
inline constexpr int64_t kMaxElements = int64_t(1) << 48;
inline constexpr int64_t kMaxSteps = int64_t(1) << 60; ///< of one reduction
inline constexpr int64_t kMaxTopK = 1 << 16;

/// Line and column count from 1; the column counts bytes.
struct SourcePos {
  uint32_t line = 1;
  uint32_t column = 1;
};

struct Error {
  SourcePos pos;
  std::string message;
  /// Limit for a bound on size or depth, Unsupported where the language allows
  /// what is not read, Usage where the caller asked for what cannot be.
  ExitCode code = ExitCode::Model;
};

/// A value, or the first error.
template <typename T> using Result = std::variant<T, Error>;

/// i64, i32, i8 or u8; bool is neither real nor integer.
bool isInteger(DType dtype);

/// What a caller may fix from outside.
struct Options {
  /// Extents by axis name. An axis that the program lacks, or that it fixes
  /// otherwise, is an error.
  std::map<std::string, int64_t> dims;
  /// Replaces f64, f32, f16 and bf16 of all arguments and outputs. The f8 types
  /// stay: a program that names one means its grid, not a precision.
  std::optional<DType> storage;
};

using ExprId = uint32_t;

struct Name {
  std::string text;
  SourcePos pos;
};

enum class Op : uint8_t {
  Neg,
  Not,
  Add,
  Sub,
  Mul,
  Div,
  FloorDiv,
  Mod,
  Pow,
  Eq,
  Ne,
  Lt,
  Le,
  Gt,
  Ge,
  And,
  Or,
  Select,
  Min,
  Max,
  Abs,
  Sign,
  Relu,
  Exp,
  Exp2,
  Expm1,
  Log,
  Log2,
  Log1p,
  Sqrt,
  Rsqrt,
  Floor,
  Ceil,
  Round,
  Tanh,
  Sigmoid,
  Erf,
  Sin,
  Cos,
  Sinh,
  Cosh,
  IsNan,
  IsInf,
};

enum class ExprKind : uint8_t {
  Number,    ///< number, whole
  Name,      ///< name: a value, an axis, inf, nan or pi
  Subscript, ///< name[operands]
  Unary,     ///< op operands[0]
  Binary,    ///< operands[0] op operands[1]
  Call,      ///< name(operands): function, cast or len
  Reduce, ///< name(axes: operands[0]); further operands are arguments of topk
};

struct Expr {
  ExprKind kind = ExprKind::Number;
  Op op = Op::Neg;
  SourcePos pos;
  double number = 0;
  bool whole = false; ///< the number was written without point and exponent
  std::string name;
  std::vector<ExprId> operands;
  std::vector<Name> axes;
  unsigned depth = 1; ///< of the tree below, at most kMaxDepth
};

struct AxisDecl {
  Name name;
  std::optional<int64_t> extent;
};

struct Argument {
  Name name;
  std::vector<AxisDecl> axes;
  std::optional<DType> dtype;
};

struct OutputDecl {
  Name name;
  std::optional<DType> dtype;
};

/// What stands left of `=`.
struct Target {
  Name name;
  std::optional<std::vector<Name>> axes;
};

struct Definition {
  std::vector<Target> targets;
  ExprId expr = 0;
};

/// One file. Expressions are numbered; operands come before their users.
struct Ast {
  Name name;
  std::vector<Argument> arguments;
  std::vector<OutputDecl> outputs;
  std::vector<Definition> definitions;
  std::vector<Expr> exprs;
};

/// Parses one file. Never recurses deeper than kMaxDepth, whatever the source.
Result<Ast> parse(std::string_view source);

} // namespace refold::fold

#endif // REFOLD_FRONTEND_FOLD_SYNTAX_H
