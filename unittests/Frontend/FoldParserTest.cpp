// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Frontend/Fold/Syntax.h"
#include "gtest/gtest.h"

using namespace refold::fold;

namespace {

const char *spellingOf(Op op) {
  switch (op) {
  case Op::Neg:
    return "neg";
  case Op::Not:
    return "not";
  case Op::Add:
    return "+";
  case Op::Sub:
    return "-";
  case Op::Mul:
    return "*";
  case Op::Div:
    return "/";
  case Op::FloorDiv:
    return "//";
  case Op::Mod:
    return "%";
  case Op::Pow:
    return "^";
  case Op::Lt:
    return "<";
  case Op::Eq:
    return "==";
  case Op::And:
    return "and";
  case Op::Or:
    return "or";
  default:
    return "?";
  }
}

/// The tree with every grouping written: (+ a (* b c)).
std::string show(const Ast &ast, ExprId id) {
  const Expr &expr = ast.exprs[id];
  std::string text = expr.name;
  if (expr.kind == ExprKind::Number)
    return std::to_string(expr.number).substr(0, 3);
  if (expr.kind == ExprKind::Name)
    return text;
  if (expr.kind == ExprKind::Unary || expr.kind == ExprKind::Binary)
    text = spellingOf(expr.op);
  text = "(" + text;
  for (const Name &axis : expr.axes)
    text += " " + axis.text + ":";
  for (ExprId operand : expr.operands)
    text += " " + show(ast, operand);
  return text + ")";
}

/// The tree of an expression, or its error as "line:column: message".
std::string parsed(const std::string &expression) {
  Result<Ast> result = parse("f(a) -> y\ny = " + expression + "\n");
  if (const Error *error = std::get_if<Error>(&result))
    return std::to_string(error->pos.line) + ":" +
           std::to_string(error->pos.column) + ": " + error->message;
  const Ast &ast = std::get<Ast>(result);
  return show(ast, ast.definitions.front().expr);
}

TEST(FoldParserTest, PrecedenceIsThatOfTheLanguage) {
  EXPECT_EQ(parsed("a + b*c - d"), "(- (+ a (* b c)) d)");
  EXPECT_EQ(parsed("a / b * c"), "(* (/ a b) c)");
  EXPECT_EQ(parsed("a // b % c"), "(% (// a b) c)");
  EXPECT_EQ(parsed("(a + b) * c"), "(* (+ a b) c)");
  EXPECT_EQ(parsed("a + b < c * d"), "(< (+ a b) (* c d))");
  EXPECT_EQ(parsed("a or b and c"), "(or a (and b c))");
  EXPECT_EQ(parsed("not a and b"), "(and (not a) b)");
  EXPECT_EQ(parsed("a and not b or c"), "(or (and a (not b)) c)");
  EXPECT_EQ(parsed("not a == b"), "(not (== a b))");
  EXPECT_EQ(parsed("not not a"), "(not (not a))");
}

TEST(FoldParserTest, PowerIsRightAssociativeAndBindsTighterThanMinus) {
  EXPECT_EQ(parsed("-x^2"), "(neg (^ x 2.0))");
  EXPECT_EQ(parsed("a^b^c"), "(^ a (^ b c))");
  EXPECT_EQ(parsed("2^-x*3"), "(* (^ 2.0 (neg x)) 3.0)");
  EXPECT_EQ(parsed("a*-b"), "(* a (neg b))");
  EXPECT_EQ(parsed("a - -b"), "(- a (neg b))");
  EXPECT_EQ(parsed("-a*b"), "(* (neg a) b)");
  EXPECT_EQ(parsed("--a"), "(neg (neg a))");
}

TEST(FoldParserTest, ReducersCallsAndSubscripts) {
  EXPECT_EQ(parsed("sum(h, w: a*b) / 2"), "(/ (sum h: w: (* a b)) 2.0)");
  EXPECT_EQ(parsed("max(a, b)"), "(max a b)");
  EXPECT_EQ(parsed("max(n: a)"), "(max n: a)");
  EXPECT_EQ(parsed("topk(n: a + b, 8)"), "(topk n: (+ a b) 8.0)");
  EXPECT_EQ(parsed("k[b, h//4, n]"), "(k b (// h 4.0) n)");
  EXPECT_EQ(parsed("x[r, label[r]]"), "(x r (label r))");
  EXPECT_EQ(parsed("f()"), "(f)");
}

TEST(FoldParserTest, FunctionNamesAreWordsOnlyBeforeParentheses) {
  EXPECT_EQ(parsed("mean + sum[i8]"), "(+ mean (sum i8))");
  EXPECT_EQ(parsed("a + inf"), "(+ a inf)");
}

TEST(FoldParserTest, NumbersAndBlankLines) {
  EXPECT_EQ(parsed(".5 + 1e3 + 1.5e-2 + 7."), "(+ (+ (+ 0.5 100) 0.0) 7.0)");
  Result<Ast> result = parse("\n# title\r\n\nf ( x [n = 3, m] : bf16 ) -> y:f16"
                             "  # header\r\n\n\ty [n]=x # end");
  ASSERT_TRUE(std::holds_alternative<Ast>(result))
      << std::get<Error>(result).message;
  const Ast &ast = std::get<Ast>(result);
  ASSERT_EQ(ast.arguments.size(), 1u);
  EXPECT_EQ(ast.arguments[0].axes[0].extent, 3);
  EXPECT_FALSE(ast.arguments[0].axes[1].extent);
  EXPECT_EQ(ast.arguments[0].dtype, refold::DType::BF16);
  EXPECT_EQ(ast.outputs[0].dtype, refold::DType::F16);
  EXPECT_EQ(ast.definitions[0].targets[0].name.pos.line, 6u);
  EXPECT_EQ(ast.definitions[0].targets[0].name.pos.column, 2u);
}

TEST(FoldParserTest, ErrorsNameTheColumn) {
  EXPECT_EQ(parsed("a +"), "2:8: found end of line, expected an expression");
  EXPECT_EQ(parsed("a )"), "2:7: found ')', expected an operator or the end "
                           "of the line");
  EXPECT_EQ(parsed("1..2"), "2:7: found '.' inside a number, expected a space "
                            "or an operator");
  EXPECT_EQ(parsed("a < b == c"),
            "2:11: found '==' after a comparison, expected 'and': comparisons "
            "do not chain");
}

TEST(FoldParserTest, NestingAndSizeAreBounded) {
  auto isRefused = [](const std::string &expression) {
    return parsed(expression).find("nested deeper") != std::string::npos;
  };
  std::string open(100000, '('), minus(100000, '-'), power, nots, chain = "a";
  for (int i = 0; i < 50000; ++i) {
    power += "a^";
    nots += "not ";
    chain += "+a";
  }
  EXPECT_TRUE(isRefused(open + "a"));
  EXPECT_TRUE(isRefused(minus + "a"));
  EXPECT_TRUE(isRefused(power + "a"));
  EXPECT_TRUE(isRefused(nots + "a"));
  EXPECT_TRUE(isRefused(chain));
  EXPECT_FALSE(isRefused(std::string(200, '(') + "a" + std::string(200, ')')));
  std::string large(kMaxSourceBytes + 1, ' ');
  Result<Ast> result = parse(large);
  EXPECT_EQ(std::get<Error>(result).message,
            "found a source of 1048577 bytes, expected at most 1048576");
}

TEST(FoldParserTest, EveryPrefixOfAProgramIsHandled) {
  std::string source = "f(q[b,h=8,d]: bf16, l[b]) -> o: i32, p\n"
                       "  s[b,h] = sum(d: q^2 // 3) - where(h <= 1.5e-3, -inf, "
                       "q[b, h//4, d])\n  v[r], o[r] = topk(b: s, 8)\n  p = s";
  for (size_t length = 0; length < source.size(); ++length)
    parse(std::string_view(source).substr(0, length));
  EXPECT_TRUE(std::holds_alternative<Ast>(parse(source)));
}

} // namespace
