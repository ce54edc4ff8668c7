// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Grammar (a line is a header or a definition):
//
//   file       = header { definition }
//   header     = NAME '(' [arg {',' arg}] ')' '->' output {',' output}
//   arg        = NAME ['[' NAME ['=' WHOLE] {',' ...} ']'] [':' dtype]
//   output     = NAME [':' dtype]
//   definition = target ['=' expr | ',' target '=' expr]
//   target     = NAME ['[' NAME {',' NAME} ']']
//   expr       = operators by precedence, see `binaryOperator`
//   primary    = NUMBER | NAME | NAME '[' expr {',' expr} ']' | '(' expr ')'
//              | NAME '(' [expr {',' expr}] ')'
//              | NAME '(' NAME {',' NAME} ':' expr {',' expr} ')'
#include "Lexer.h"
#include <algorithm>

namespace refold::fold {

bool isInteger(DType dtype) {
  return dtype == DType::I64 || dtype == DType::I32 || dtype == DType::I8 ||
         dtype == DType::U8;
}

namespace {

/// Binding strength; a larger one binds tighter.
enum Precedence : int {
  kOr = 1,
  kAnd,
  kNot,
  kCompare,
  kSum,
  kProduct,
  kNegate,
  kPower
};

struct BinaryOperator {
  Op op;
  Precedence precedence;
};

/// Each member either succeeds or sets `error` and returns false (or 0).
class Parser {
public:
  explicit Parser(std::vector<Token> tokens) : tokens(std::move(tokens)) {}
  Result<Ast> run();

private:
  const Token &peek(size_t ahead = 0) const {
    return tokens[std::min(position + ahead, tokens.size() - 1)];
  }
  const Token &take() {
    const Token &token = peek();
    position = std::min(position + 1, tokens.size() - 1);
    return token;
  }
  bool fail(SourcePos pos, std::string message);
  bool failLimit(SourcePos pos, std::string message);
  bool failExpected(std::string_view expected);
  bool expect(std::string_view punctuation, std::string_view expected);
  bool accept(std::string_view punctuation);
  bool endOfLine(std::string_view expected);
  bool parseName(Name &name, std::string_view expected);
  bool parseNames(std::vector<Name> &names);
  bool parseDType(std::optional<DType> &dtype);
  bool parseHeader();
  bool parseArgument();
  bool parseAxisDecl(AxisDecl &axis);
  bool parseDefinition();
  bool parseTarget(Definition &definition);
  bool parseExpr(ExprId &result, int minimum = kOr);
  bool parsePrefix(ExprId &result, int minimum);
  bool parsePrimary(ExprId &result);
  bool parseOperands(Expr &expr, std::string_view close);
  bool parseCall(ExprId &result);
  bool add(Expr expr, ExprId &result);

  std::vector<Token> tokens;
  size_t position = 0;
  unsigned depth = 0;
  Ast ast;
  std::optional<Error> error;
};

} // namespace

bool Parser::fail(SourcePos pos, std::string message) {
  if (!error)
    error = Error{pos, std::move(message)};
  return false;
}

bool Parser::failLimit(SourcePos pos, std::string message) {
  if (!error)
    error = Error{pos, std::move(message), ExitCode::Limit};
  return false;
}

bool Parser::failExpected(std::string_view expected) {
  return fail(peek().pos, "found " + describe(peek()) + ", expected " +
                              std::string(expected));
}

bool Parser::accept(std::string_view punctuation) {
  if (!peek().is(punctuation))
    return false;
  take();
  return true;
}

bool Parser::expect(std::string_view punctuation, std::string_view expected) {
  return accept(punctuation) || failExpected(expected);
}

bool Parser::endOfLine(std::string_view expected) {
  if (peek().kind != TokenKind::Newline)
    return failExpected(expected);
  take();
  return true;
}

static bool isReserved(std::string_view word) {
  return word == "and" || word == "or" || word == "not" || word == "inf" ||
         word == "nan" || word == "pi";
}

bool Parser::parseName(Name &name, std::string_view expected) {
  if (peek().kind != TokenKind::Word)
    return failExpected(expected);
  if (isReserved(peek().text))
    return fail(peek().pos, "found the reserved word " + describe(peek()) +
                                ", expected " + std::string(expected));
  name = {std::string(peek().text), peek().pos};
  take();
  return true;
}

bool Parser::parseNames(std::vector<Name> &names) {
  do {
    Name name;
    if (!parseName(name, "the name of an axis"))
      return false;
    for (const Name &other : names)
      if (other.text == name.text)
        return fail(name.pos, "found axis '" + name.text +
                                  "' twice, expected different axes");
    names.push_back(name);
  } while (accept(","));
  return true;
}

bool Parser::parseDType(std::optional<DType> &dtype) {
  if (!accept(":"))
    return true;
  if (peek().kind == TokenKind::Word)
    dtype = refold::parseDType(
        llvm::StringRef(peek().text.data(), peek().text.size()));
  if (!dtype)
    return failExpected("a dtype: f64, f32, f16, bf16, f8e4m3, f8e5m2, i64, "
                        "i32, i8, u8 or bool");
  take();
  return true;
}

bool Parser::parseAxisDecl(AxisDecl &axis) {
  if (!parseName(axis.name, "the name of an axis"))
    return false;
  if (!accept("="))
    return true;
  const Token &number = peek();
  constexpr std::string_view expected =
      "an extent: a whole number of at most 2^40";
  if (number.kind != TokenKind::Number || !number.whole)
    return failExpected(expected);
  if (number.number > double(kMaxExtent))
    return failLimit(number.pos, "found " + describe(number) + ", expected " +
                                     std::string(expected));
  axis.extent = int64_t(number.number);
  take();
  return true;
}

bool Parser::parseArgument() {
  Argument argument;
  if (!parseName(argument.name, "the name of an argument"))
    return false;
  if (accept("[")) {
    do {
      AxisDecl axis;
      if (!parseAxisDecl(axis))
        return false;
      for (const AxisDecl &other : argument.axes)
        if (other.name.text == axis.name.text)
          return fail(axis.name.pos, "found axis '" + axis.name.text +
                                         "' twice, expected different axes");
      argument.axes.push_back(axis);
    } while (accept(","));
    if (!expect("]", "',' or ']'"))
      return false;
  }
  if (!parseDType(argument.dtype))
    return false;
  if (ast.arguments.size() == kMaxArguments)
    return failLimit(argument.name.pos, "found more than " +
                                            std::to_string(kMaxArguments) +
                                            " arguments, expected fewer");
  ast.arguments.push_back(std::move(argument));
  return true;
}

bool Parser::parseHeader() {
  if (!parseName(ast.name, "a header: name(arguments) -> outputs") ||
      !expect("(", "'(' and the arguments"))
    return false;
  if (!accept(")")) {
    do {
      if (!parseArgument())
        return false;
    } while (accept(","));
    if (!expect(")", ast.arguments.back().dtype
                         ? "',' or ')'"
                         : "',', ':' and a dtype, or ')'"))
      return false;
  }
  if (!expect("->", "'->' and the outputs"))
    return false;
  do {
    OutputDecl output;
    if (!parseName(output.name, "the name of an output") ||
        !parseDType(output.dtype))
      return false;
    if (ast.outputs.size() == kMaxArguments)
      return failLimit(output.name.pos, "found more than " +
                                            std::to_string(kMaxArguments) +
                                            " outputs, expected fewer");
    ast.outputs.push_back(output);
  } while (accept(","));
  return endOfLine(ast.outputs.back().dtype
                       ? "',' or the end of the line"
                       : "':' and a dtype, ',' or the end of the line");
}

bool Parser::parseTarget(Definition &definition) {
  Target target;
  if (!parseName(target.name, "a definition: name = expression"))
    return false;
  if (accept("[")) {
    target.axes.emplace();
    if (!parseNames(*target.axes) || !expect("]", "',' or ']'"))
      return false;
  }
  definition.targets.push_back(std::move(target));
  return true;
}

bool Parser::parseDefinition() {
  Definition definition;
  do {
    if (!parseTarget(definition))
      return false;
  } while (accept(","));
  if (peek().is("(") && definition.targets.size() == 1)
    return failExpected("'[' or '=': a file holds one function, and a line one "
                        "definition");
  if (!expect("=", definition.targets.back().axes ? "'='" : "'[' or '='") ||
      !parseExpr(definition.expr))
    return false;
  if (peek().isWord("and") || peek().isWord("or") ||
      peek().kind != TokenKind::Newline)
    return failExpected("an operator or the end of the line");
  take();
  ast.definitions.push_back(std::move(definition));
  return true;
}

bool Parser::add(Expr expr, ExprId &result) {
  for (ExprId operand : expr.operands)
    expr.depth = std::max(expr.depth, ast.exprs[operand].depth + 1);
  if (expr.depth > kMaxDepth)
    return failLimit(expr.pos, "found an expression nested deeper than " +
                                   std::to_string(kMaxDepth) +
                                   " levels, expected several definitions");
  result = ast.exprs.size();
  ast.exprs.push_back(std::move(expr));
  return true;
}

static std::optional<BinaryOperator> binaryOperator(const Token &token) {
  static const std::pair<std::string_view, BinaryOperator> table[] = {
      {"or", {Op::Or, kOr}},      {"and", {Op::And, kAnd}},
      {"==", {Op::Eq, kCompare}}, {"!=", {Op::Ne, kCompare}},
      {"<", {Op::Lt, kCompare}},  {"<=", {Op::Le, kCompare}},
      {">", {Op::Gt, kCompare}},  {">=", {Op::Ge, kCompare}},
      {"+", {Op::Add, kSum}},     {"-", {Op::Sub, kSum}},
      {"*", {Op::Mul, kProduct}}, {"/", {Op::Div, kProduct}},
      {"%", {Op::Mod, kProduct}}, {"//", {Op::FloorDiv, kProduct}},
      {"^", {Op::Pow, kPower}},
  };
  if (token.kind == TokenKind::Word || token.kind == TokenKind::Punctuation)
    for (const auto &[text, op] : table)
      if (token.text == text)
        return op;
  return std::nullopt;
}

/// Precedence climbing: reads operators that bind at least as tightly as
/// `minimum`. One level of recursion per parenthesis, prefix or right operand.
bool Parser::parseExpr(ExprId &result, int minimum) {
  if (depth >= kMaxDepth)
    return failLimit(peek().pos, "found an expression nested deeper than " +
                                     std::to_string(kMaxDepth) +
                                     " levels, expected several definitions");
  ++depth;
  bool compared = false;
  bool ok = parsePrefix(result, minimum);
  while (ok) {
    std::optional<BinaryOperator> binary = binaryOperator(peek());
    if (!binary || binary->precedence < minimum)
      break;
    if (binary->precedence == kCompare && compared) {
      ok = fail(peek().pos, "found " + describe(peek()) +
                                " after a comparison, expected 'and': "
                                "comparisons do not chain");
      break;
    }
    compared = binary->precedence == kCompare;
    Expr expr;
    expr.kind = ExprKind::Binary;
    expr.op = binary->op;
    expr.pos = take().pos;
    // ^ is right-associative, and its right operand may carry a minus: 2^-x.
    int rightMinimum =
        binary->op == Op::Pow ? int(kNegate) : binary->precedence + 1;
    ExprId right = 0;
    ok = parseExpr(right, rightMinimum);
    expr.operands = {result, right};
    ok = ok && add(std::move(expr), result);
  }
  --depth;
  return ok;
}

bool Parser::parsePrefix(ExprId &result, int minimum) {
  Expr expr;
  expr.kind = ExprKind::Unary;
  expr.pos = peek().pos;
  int operandMinimum;
  if (peek().is("-")) {
    // Binds looser than ^ and tighter than *: -x^2 is -(x^2).
    expr.op = Op::Neg;
    operandMinimum = kNegate;
  } else if (peek().isWord("not")) {
    if (minimum > kNot)
      return failExpected("'(' before a 'not' that is an operand");
    expr.op = Op::Not;
    operandMinimum = kNot;
  } else {
    return parsePrimary(result);
  }
  take();
  ExprId operand = 0;
  if (!parseExpr(operand, operandMinimum))
    return false;
  expr.operands = {operand};
  return add(std::move(expr), result);
}

bool Parser::parseOperands(Expr &expr, std::string_view close) {
  do {
    ExprId operand = 0;
    if (!parseExpr(operand))
      return false;
    expr.operands.push_back(operand);
  } while (accept(","));
  if (!peek().is(close))
    return failExpected("an operator, ',' or '" + std::string(close) + "'");
  take();
  return true;
}

/// After NAME, at '('. A list of words and ':' makes it a reducer.
bool Parser::parseCall(ExprId &result) {
  Expr expr;
  expr.kind = ExprKind::Call;
  expr.pos = peek().pos;
  expr.name = take().text;
  take();
  size_t ahead = 0;
  while (peek(ahead).kind == TokenKind::Word && peek(ahead + 1).is(","))
    ahead += 2;
  if (peek(ahead).kind == TokenKind::Word && peek(ahead + 1).is(":")) {
    expr.kind = ExprKind::Reduce;
    if (!parseNames(expr.axes))
      return false;
    take();
  } else if (accept(")")) {
    return add(std::move(expr), result);
  }
  return parseOperands(expr, ")") && add(std::move(expr), result);
}

bool Parser::parsePrimary(ExprId &result) {
  const Token &token = peek();
  Expr expr;
  expr.pos = token.pos;
  if (token.kind == TokenKind::Number) {
    expr.number = token.number;
    expr.whole = token.whole;
    take();
    return add(std::move(expr), result);
  }
  if (accept("("))
    return parseExpr(result) && expect(")", "an operator or ')'");
  if (token.kind != TokenKind::Word || token.text == "and" ||
      token.text == "or")
    return failExpected("an expression");
  if (peek(1).is("("))
    return parseCall(result);
  expr.kind = ExprKind::Name;
  expr.name = take().text;
  if (accept("[")) {
    expr.kind = ExprKind::Subscript;
    if (!parseOperands(expr, "]"))
      return false;
  }
  return add(std::move(expr), result);
}

Result<Ast> Parser::run() {
  bool ok = parseHeader();
  while (ok && peek().kind != TokenKind::End)
    ok = parseDefinition();
  if (!ok)
    return *error;
  return std::move(ast);
}

Result<Ast> parse(std::string_view source) {
  Result<std::vector<Token>> tokens = tokenize(source);
  if (Error *error = std::get_if<Error>(&tokens))
    return *error;
  return Parser(std::move(std::get<std::vector<Token>>(tokens))).run();
}

} // namespace refold::fold
