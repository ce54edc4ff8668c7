// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Lexer.h"
#include <charconv>

namespace refold::fold {

static bool isDigit(char c) { return c >= '0' && c <= '9'; }
static bool isWordStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool isWordPart(char c) { return isWordStart(c) || isDigit(c); }

namespace {

class Lexer {
public:
  explicit Lexer(std::string_view source) : source(source) {}
  Result<std::vector<Token>> run();

private:
  char at(size_t ahead = 0) const {
    return offset + ahead < source.size() ? source[offset + ahead] : '\0';
  }
  void add(TokenKind kind, size_t length);
  void endLine();
  std::optional<Error> lexNumber();
  std::optional<Error> lexOther();

  std::string_view source;
  size_t offset = 0, lineStart = 0;
  uint32_t line = 1;
  std::vector<Token> tokens;

  SourcePos here() const { return {line, uint32_t(offset - lineStart + 1)}; }
};

} // namespace

void Lexer::add(TokenKind kind, size_t length) {
  tokens.push_back({kind, here(), source.substr(offset, length), 0, false});
  offset += length;
}

void Lexer::endLine() {
  if (!tokens.empty() && tokens.back().kind != TokenKind::Newline)
    tokens.push_back({TokenKind::Newline, here(), {}, 0, false});
}

std::optional<Error> Lexer::lexNumber() {
  size_t length = 0;
  bool whole = true;
  while (isDigit(at(length)))
    ++length;
  if (at(length) == '.') {
    whole = false;
    ++length;
    while (isDigit(at(length)))
      ++length;
  }
  if (at(length) == 'e' || at(length) == 'E') {
    size_t exponent = length + 1;
    if (at(exponent) == '+' || at(exponent) == '-')
      ++exponent;
    if (!isDigit(at(exponent)))
      return Error{here(), "found a number whose exponent has no digits, "
                           "expected for example 1e-5"};
    whole = false;
    for (length = exponent; isDigit(at(length));)
      ++length;
  }
  if (isWordPart(at(length)) || at(length) == '.')
    return Error{{line, uint32_t(offset + length - lineStart + 1)},
                 std::string("found '") + at(length) +
                     "' inside a number, expected a space or an operator"};
  const char *begin = source.data() + offset;
  double number = 0;
  if (std::from_chars(begin, begin + length, number).ec != std::errc())
    return Error{here(),
                 "found a number beyond the range of f64, expected at most "
                 "about 1.8e308",
                 ExitCode::Limit};
  add(TokenKind::Number, length);
  tokens.back().number = number;
  tokens.back().whole = whole;
  return std::nullopt;
}

std::optional<Error> Lexer::lexOther() {
  std::string_view rest = source.substr(offset, 2);
  for (std::string_view two : {"->", "//", "==", "!=", "<=", ">="})
    if (rest == two) {
      add(TokenKind::Punctuation, 2);
      return std::nullopt;
    }
  char c = at();
  if (std::string_view("()[],:=+-*/%^<>").find(c) != std::string_view::npos) {
    add(TokenKind::Punctuation, 1);
    return std::nullopt;
  }
  static const char digits[] = "0123456789abcdef";
  unsigned char byte = c;
  std::string what =
      byte > 32 && byte < 127
          ? std::string("'") + c + "'"
          : std::string("byte 0x") + digits[byte >> 4] + digits[byte & 15];
  return Error{here(), "found " + what +
                           ", expected a name, a number or an "
                           "operator"};
}

Result<std::vector<Token>> Lexer::run() {
  while (offset < source.size()) {
    char c = at();
    if (c == '\n') {
      endLine();
      lineStart = ++offset;
      ++line;
    } else if (c == ' ' || c == '\t' || (c == '\r' && at(1) == '\n')) {
      ++offset;
    } else if (c == '#') {
      while (offset < source.size() && at() != '\n')
        ++offset;
    } else if (isWordStart(c)) {
      size_t length = 1;
      while (isWordPart(at(length)))
        ++length;
      if (length > kMaxNameLength)
        return Error{here(),
                     "found a name of " + std::to_string(length) +
                         " letters, expected at most " +
                         std::to_string(kMaxNameLength),
                     ExitCode::Limit};
      add(TokenKind::Word, length);
    } else {
      bool number = isDigit(c) || (c == '.' && isDigit(at(1)));
      if (std::optional<Error> error = number ? lexNumber() : lexOther())
        return *error;
    }
  }
  endLine();
  add(TokenKind::End, 0);
  return std::move(tokens);
}

Result<std::vector<Token>> tokenize(std::string_view source) {
  if (source.size() > kMaxSourceBytes)
    return Error{{1, 1},
                 "found a source of " + std::to_string(source.size()) +
                     " bytes, expected at most " +
                     std::to_string(kMaxSourceBytes),
                 ExitCode::Limit};
  return Lexer(source).run();
}

std::string describe(const Token &token) {
  if (token.kind == TokenKind::Newline)
    return "end of line";
  if (token.kind == TokenKind::End)
    return "end of file";
  return "'" + std::string(token.text) + "'";
}

} // namespace refold::fold
