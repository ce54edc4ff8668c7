// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Text of kernels and of the headers that they are written in, as statements:
// the part of C++ that these use.
#ifndef REFOLD_LIB_CONVERSION_TILELEVEL_SOURCE_H
#define REFOLD_LIB_CONVERSION_TILELEVEL_SOURCE_H

#include <cstdint>
#include <string>
#include <vector>

namespace refold::tile::source {

/// Words, numbers and signs, without comments and directives.
using Tokens = std::vector<std::string>;
Tokens readTokens(const std::string &text);
/// As one line.
std::string join(const Tokens &tokens);
/// Where the bracket at `begin` is closed.
size_t closing(const Tokens &tokens, size_t begin);
/// Where template arguments end that the `<` at `begin` opens; behind all
/// tokens where it is none that does.
size_t closingAngle(const Tokens &tokens, size_t begin);
/// Behind the lambda that is given as an argument there; `at` where none is.
size_t behindLambda(const Tokens &tokens, size_t at);
/// Between commas outside of brackets; of template arguments, `<` counts.
std::vector<Tokens> splitAtCommas(const Tokens &tokens);

struct Function;
struct Record;

struct Statement {
  enum Kind : uint8_t {
    Simple, ///< `tokens` without its semicolon
    Block,
    If,    ///< `tokens` is the condition
    For,   ///< of `begin`, `tokens` and `step`
    Each,  ///< for (x : y)
    While, ///< also behind the body
    Lambda ///< `functions` has it
  };
  Kind kind = Simple;
  bool isConstant = false, isBehind = false, hasOtherwise = false;
  Tokens tokens, begin, step;
  std::vector<Statement> body, otherwise;
  std::vector<Function> functions; ///< one, of a lambda
};

struct Parameter {
  std::string name;
  bool isReference = false; ///< or no number
  bool isPack = false;
  Tokens preset;
  std::vector<Tokens> extents; ///< of an array
};

struct Function {
  std::string name;
  std::vector<Parameter> templates, parameters;
  /// Of a constructor: members and what they begin with.
  std::vector<std::pair<std::string, Tokens>> members;
  std::vector<Statement> body;
};

/// A struct: numbers that its template decides, members and functions.
struct Record {
  std::string name;
  std::vector<Parameter> templates;
  std::vector<std::pair<std::string, Tokens>> bases; ///< by name, arguments
  std::vector<Statement> constants;                  ///< and types
  std::vector<std::pair<std::string, Tokens>> members;
  std::vector<Function> functions;
  std::vector<Record> records;
};

/// What a header or a kernel declares.
struct Unit {
  std::vector<Statement> constants;
  std::vector<Function> functions;
  std::vector<Record> records;
};
/// Adds what `text` declares.
void parse(const std::string &text, Unit &to);
/// A lambda, `[...](...) {...}`, as it is given to a function.
Function parseLambda(const Tokens &tokens);

} // namespace refold::tile::source

#endif // REFOLD_LIB_CONVERSION_TILELEVEL_SOURCE_H
