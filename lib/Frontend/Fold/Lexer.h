// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_FRONTEND_FOLD_LEXER_H
#define REFOLD_LIB_FRONTEND_FOLD_LEXER_H

#include "refold/Frontend/Fold/Syntax.h"

namespace refold::fold {

enum class TokenKind : uint8_t { Word, Number, Punctuation, Newline, End };

struct Token {
  TokenKind kind = TokenKind::End;
  SourcePos pos;
  std::string_view text; ///< into the source
  double number = 0;
  bool whole = false; ///< a number without point and exponent

  bool is(std::string_view punctuation) const {
    return kind == TokenKind::Punctuation && text == punctuation;
  }
  bool isWord(std::string_view word) const {
    return kind == TokenKind::Word && text == word;
  }
};

/// Splits a source into tokens. Blank and comment lines leave no token, so a
/// Newline always ends a line that has something on it; the last is End.
Result<std::vector<Token>> tokenize(std::string_view source);

/// How an error names a token: "'+'", "end of line", "end of file".
std::string describe(const Token &token);

} // namespace refold::fold

#endif // REFOLD_LIB_FRONTEND_FOLD_LEXER_H
