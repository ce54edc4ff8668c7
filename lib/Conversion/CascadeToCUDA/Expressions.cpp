// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Expressions.h"
#include "refold/Support/Reciprocal.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

//===----------------------------------------------------------------------===//
// Lines
//===----------------------------------------------------------------------===//

/// Where a line of at most `width` columns may end: behind a comma or an
/// operator between blanks, 0 if nowhere.
static size_t breakOf(StringRef line, size_t width) {
  for (size_t at = std::min(width, line.size() - 1); at > 8; --at)
    if (line[at] == ' ' && StringRef(",+-*?:|&").contains(line[at - 1]))
      return at;
  return 0;
}

void Text::line(const std::string &statement) {
  constexpr size_t kColumns = 100;
  std::string indent(2 * depth, ' ');
  StringRef rest = statement;
  while (indent.size() + rest.size() > kColumns) {
    size_t at = breakOf(rest, kColumns - indent.size());
    if (!at)
      break;
    text += indent + rest.take_front(at).str() + "\n";
    rest = rest.drop_front(at + 1);
    indent = std::string(2 * depth + 4, ' ');
  }
  text += indent + rest.str() + "\n";
}

void Text::open(const std::string &statement) {
  line(statement);
  ++depth;
}

void Text::close(StringRef end) {
  --depth;
  line(end.str());
}

void Text::otherwise(const std::string &condition) {
  close(condition.empty() ? "} else {" : "} else " + condition + " {");
  ++depth;
}

void Text::comment(StringRef words, StringRef mark) {
  std::string current = mark.str();
  SmallVector<StringRef> parts;
  words.split(parts, ' ');
  for (StringRef part : parts) {
    bool isFirst = current.size() == mark.size();
    if (!isFirst && 2 * depth + current.size() + part.size() + 1 > 80) {
      line(current);
      current = mark.str() + "  ";
      isFirst = true;
    }
    current += (isFirst ? "" : " ") + part.str();
  }
  line(current);
}

//===----------------------------------------------------------------------===//
// Scopes
//===----------------------------------------------------------------------===//

Expressions::Scope::Scope(Expressions &of, ArrayRef<Node *> roots,
                          bool isClosed)
    : of(of), outer(of.scope), isClosed(isClosed), divisors(of.divisors) {
  NodeSet all;
  for (Node *root : roots) {
    collect(root, all);
    ++uses[root];
  }
  for (Node *n : all)
    for (Node *i : n->in)
      ++uses[i];
  of.scope = this;
}

Expressions::Scope::~Scope() {
  of.scope = outer;
  of.divisors = std::move(divisors);
}

const std::string *Expressions::find(Node *n) {
  for (Scope *s = scope; s; s = s->isClosed ? nullptr : s->outer)
    if (auto it = s->names.find(n); it != s->names.end())
      return &it->second;
  return nullptr;
}

unsigned Expressions::usesOf(Node *n) { return scope->uses.lookup(n); }

std::string cuda::withoutParentheses(std::string expression) {
  if (expression.empty() || expression.front() != '(')
    return expression;
  int depth = 0;
  for (size_t i = 0; i < expression.size(); ++i) {
    depth += expression[i] == '(' ? 1 : expression[i] == ')' ? -1 : 0;
    if (depth == 0)
      return i + 1 == expression.size()
                 ? expression.substr(1, expression.size() - 2)
                 : expression;
  }
  return expression;
}

std::string Expressions::define(Node *n, const std::string &expression) {
  std::string name = kernel.nameFor("t" + std::to_string(++numTemporaries));
  out.line("const " + valueType(n->type) + " " + name + " = " +
           withoutParentheses(expression) + ";");
  scope->names[n] = name;
  return name;
}

static bool isLeaf(Node *n) {
  return n->kind == Node::Const || n->kind == Node::Param ||
         n->kind == Node::Index || n->kind == Node::Extent || n->isState();
}

std::string Expressions::value(Node *n) {
  if (const std::string *known = find(n))
    return *known;
  std::string text = fresh(n);
  constexpr size_t kShort = 56;
  if (isLeaf(n) || (usesOf(n) <= 1 && text.size() <= kShort))
    return text;
  return define(n, text);
}

std::string Expressions::named(Node *n, StringRef) {
  if (const std::string *known = find(n))
    return *known;
  return define(n, fresh(n));
}

void Expressions::hoist(Node *root) {
  if (isLeaf(root) || find(root) || kernel.reads.count(root))
    return;
  if (!varies(root)) {
    named(root);
    return;
  }
  bool divides = takesReciprocals && root->kind == Node::Elem &&
                 isa<arith::DivFOp>(root->op) && !varies(root->in[1]);
  if (!divides) {
    for (Node *i : root->in)
      hoist(i);
    return;
  }
  divisor(root->in[1]);
  hoist(root->in[0]);
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

std::string Expressions::divisor(Node *n) {
  std::string &name = divisors[n];
  if (name.empty()) {
    name = kernel.nameFor("by");
    // In braces: `by(float(n))` would declare a function.
    out.line("const refold::Divisor " + name + "{" +
             withoutParentheses(value(n)) + "};");
  }
  return name;
}

SmallVector<std::string> Expressions::divisorsOf(ArrayRef<Node *> roots) {
  NodeSet all;
  for (Node *root : roots)
    collect(root, all);
  SmallVector<std::string> names;
  for (Node *n : all)
    if (n->kind == Node::Elem && isa<arith::DivFOp>(n->op) && varies(n))
      if (auto known = divisors.find(n->in[1]);
          known != divisors.end() && !llvm::is_contained(names, known->second))
        names.push_back(known->second);
  return names;
}

std::string Expressions::subscript(AffineExpr expr, ArrayRef<Node *> in) {
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return value(in[dim.getPosition()]);
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return std::to_string(constant.getValue());
  auto both = cast<AffineBinaryOpExpr>(expr);
  const char *op = expr.getKind() == AffineExprKind::Add        ? " + "
                   : expr.getKind() == AffineExprKind::Mul      ? " * "
                   : expr.getKind() == AffineExprKind::FloorDiv ? " / "
                                                                : " % ";
  return "(" + subscript(both.getLHS(), in) + op +
         subscript(both.getRHS(), in) + ")";
}

bool Expressions::isOfData(AffineExpr expr, ArrayRef<Node *> in) {
  for (auto [k, n] : llvm::enumerate(in)) {
    NodeSet all;
    if (expr.isFunctionOfDim(k))
      collect(n, all);
    if (llvm::any_of(all, [](Node *i) { return i->kind == Node::Read; }))
      return true;
  }
  return false;
}

std::string Expressions::subscriptInside(unsigned operand, unsigned dim,
                                         AffineExpr expr, ArrayRef<Node *> in) {
  std::string place = subscript(expr, in);
  // A program that checks positions may know late that one is outside.
  if (isOfData(expr, in))
    place = "inside(" + withoutParentheses(place) + ", " +
            kernel.operandNames[operand] + "_size" + std::to_string(dim) + ")";
  return place;
}

std::string Expressions::offset(unsigned operand, AffineMap map,
                                ArrayRef<Node *> in, unsigned leftOut) {
  auto type =
      cast<MemRefType>(kernel.plan->cascade->getOperand(operand).getType());
  std::string text;
  for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
    if (dim + leftOut >= map.getNumResults())
      break;
    auto constant = dyn_cast<AffineConstantExpr>(expr);
    if (constant && constant.getValue() == 0)
      continue;
    SmallVector<int64_t> strides;
    int64_t start = 0;
    bool isUnit = succeeded(getStridesAndOffset(type, strides, start)) &&
                  strides[dim] == 1;
    text += " + " + subscriptInside(operand, dim, expr, in);
    if (!isUnit)
      text += " * " + kernel.operandNames[operand] + "_stride" +
              std::to_string(dim);
  }
  return text;
}

std::string Expressions::readElement(Node *n) {
  auto read = cast<ReadOp>(n->op);
  CascadeOp op = kernel.plan->cascade;
  unsigned operand =
      cast<BlockArgument>(read.getSource()).getArgNumber() - op.numIndices();
  std::string text = "refold::load_element(" + kernel.operandNames[operand] +
                     offset(operand, read.getMap(), n->in, 0) + ")";
  return n->type.isInteger(1) ? "(" + text + " != 0)" : text;
}

/// x * y + z as one operation; `n` is the product.
std::string Expressions::product(Node *n, Node *other, bool isNegated) {
  return std::string("multiply_add(") + (isNegated ? "-" : "") +
         value(n->in[0]) + ", " + value(n->in[1]) + ", " +
         withoutParentheses(value(other)) + ")";
}

/// The other operand of `n`, if one is the constant `number` and it is an `Op`.
template <typename Op>
static Node *besideConstant(Node *n, const APFloat &number) {
  if (n->kind != Node::Elem || !isa<Op>(n->op))
    return nullptr;
  for (unsigned side : {0, 1}) {
    Node *constant = n->in[side];
    if (constant->kind != Node::Const)
      continue;
    auto value =
        dyn_cast<FloatAttr>(cast<arith::ConstantOp>(constant->op).getValue());
    if (value && value.getValue().bitwiseIsEqual(number))
      return n->in[1 - side];
  }
  return nullptr;
}

Node *cuda::saturatedBy(Node *n) {
  if (n->kind != Node::Elem || !isa<arith::TruncFOp>(n->op) ||
      !n->in[0]->type.isF32() || n->type.getIntOrFloatBitWidth() != 8)
    return nullptr;
  bool isInexact = false;
  APFloat most =
      APFloat::getLargest(cast<FloatType>(n->type).getFloatSemantics());
  most.convert(APFloat::IEEEsingle(), APFloat::rmNearestTiesToEven, &isInexact);
  APFloat least = most;
  least.changeSign();
  // NaN passes both, and of numbers their order is no matter.
  if (Node *inner = besideConstant<arith::MinimumFOp>(n->in[0], most))
    return besideConstant<arith::MaximumFOp>(inner, least);
  if (Node *inner = besideConstant<arith::MaximumFOp>(n->in[0], least))
    return besideConstant<arith::MinimumFOp>(inner, most);
  return nullptr;
}

/// The least and the largest that an integer may be, where both have 32 bits.
std::optional<std::pair<int64_t, int64_t>> Expressions::rangeOf(Node *n) {
  using Range = std::pair<int64_t, int64_t>;
  constexpr int64_t kMost = 0x7fffffff;
  auto fits = [](int64_t low, int64_t high) {
    return low >= -kMost && high <= kMost ? std::optional(Range{low, high})
                                          : std::nullopt;
  };
  if (n->kind == Node::Index || n->kind == Node::Extent) {
    auto known = below.find(n->index);
    return known == below.end() ? std::nullopt : fits(0, known->second);
  }
  if (!n->type.isIntOrIndex() || n->type.isInteger(1))
    return std::nullopt;
  if (n->kind == Node::Const) {
    auto number =
        cast<IntegerAttr>(cast<arith::ConstantOp>(n->op).getValue()).getInt();
    return fits(number, number);
  }
  bool isChoice = n->kind == Node::Elem && isa<arith::SelectOp>(n->op);
  if (n->kind != Node::Elem)
    return std::nullopt;
  SmallVector<Range, 2> in;
  for (Node *i : ArrayRef(n->in).drop_front(isChoice ? 1 : 0)) {
    std::optional<Range> range = rangeOf(i);
    if (!range)
      return std::nullopt;
    in.push_back(*range);
  }
  if (isa<arith::IndexCastOp, arith::ExtSIOp>(n->op))
    return in[0];
  if (in.size() != 2)
    return std::nullopt;
  auto [a, b] = std::pair(in[0], in[1]);
  if (isChoice)
    return Range{std::min(a.first, b.first), std::max(a.second, b.second)};
  if (isa<arith::AddIOp>(n->op))
    return fits(a.first + b.first, a.second + b.second);
  if (isa<arith::SubIOp>(n->op))
    return fits(a.first - b.second, a.second - b.first);
  if (isa<arith::MaxSIOp>(n->op))
    return Range{std::max(a.first, b.first), std::max(a.second, b.second)};
  if (isa<arith::MinSIOp>(n->op))
    return Range{std::min(a.first, b.first), std::min(a.second, b.second)};
  if (isa<arith::MulIOp>(n->op)) {
    auto [low, high] = std::minmax({a.first * b.first, a.first * b.second,
                                    a.second * b.first, a.second * b.second});
    return fits(low, high);
  }
  return std::nullopt;
}

/// An operation of 64 bits on numbers that have 32, as does its result; ""
/// where it is none.
std::string Expressions::inShort(Node *n) {
  if (below.empty() || n->in.empty() || n->in.size() > 2 ||
      !(n->in[0]->type.isIndex() || n->in[0]->type.isInteger(64)))
    return "";
  for (Node *i : n->in)
    if (!rangeOf(i))
      return "";
  StringRef name = n->op->getName().getStringRef();
  if (name != "arith.sitofp" && !isa<arith::CmpIOp>(n->op) && !rangeOf(n))
    return "";
  std::string pattern =
      llvm::StringSwitch<std::string>(name)
          .Case("arith.addi", "int64_t(int32_t($0) + int32_t($1))")
          .Case("arith.subi", "int64_t(int32_t($0) - int32_t($1))")
          .Case("arith.muli", "int64_t(int32_t($0) * int32_t($1))")
          .Case("arith.maxsi", "int64_t(larger_short($0, $1))")
          .Case("arith.minsi", "int64_t(smaller_short($0, $1))")
          .Default("");
  if (name == "arith.sitofp" && n->type.isF32())
    pattern = "float(int32_t($0))";
  return pattern;
}

/// A quotient by a constant as a product and an FMA: empty if it is none, or
/// has no such form.
static std::string byConstant(Node *n) {
  if (!isa<arith::DivFOp>(n->op) || !n->type.isF32() ||
      n->in[1]->kind != Node::Const)
    return "";
  auto divisor =
      cast<FloatAttr>(cast<arith::ConstantOp>(n->in[1]->op).getValue());
  std::optional<Reciprocal> parts = reciprocalOf(divisor.getValue());
  if (!parts)
    return "";
  auto number = [&](const llvm::APFloat &v) {
    return literal(FloatAttr::get(n->type, v));
  };
  return parts->low.isZero() ? "($0 * " + number(parts->high) + ")"
                             : "multiply_add($0, " + number(parts->high) +
                                   ", $0 * " + number(parts->low) + ")";
}

std::string Expressions::elementwise(Node *n) {
  Operation *op = n->op;
  if (Node *inside = saturatedBy(n))
    return "saturate<" + valueType(n->type) + ">(" +
           withoutParentheses(value(inside)) + ")";
  // A value rounded to a storage type and widened again is rounded once.
  if (isa<arith::TruncFOp>(op) && n->in[0]->kind == Node::Elem &&
      isa<arith::ExtFOp>(n->in[0]->op) && n->in[0]->in[0]->type == n->type)
    return value(n->in[0]->in[0]);
  auto isProduct = [&](Node *x) {
    return x->kind == Node::Elem && isa<arith::MulFOp>(x->op) && !find(x) &&
           usesOf(x) <= 1;
  };
  if (isa<arith::AddFOp>(op))
    for (unsigned side : {0, 1})
      if (isProduct(n->in[side]))
        return product(n->in[side], n->in[1 - side], false);
  bool isHere = isa<arith::DivFOp>(op) && takesReciprocals && varies(n) &&
                !varies(n->in[1]);
  if (isHere)
    return divisor(n->in[1]) +
           (takesNearest ? ".nearest("
            : takesPlain ? ".quotient<whole.value != 0>("
                         : ".quotient(") +
           withoutParentheses(value(n->in[0])) + ")";
  std::string pattern = inShort(n);
  if (pattern.empty())
    pattern = byConstant(n);
  if (pattern.empty())
    pattern =
        templateOf(op, kernel.isNarrow && (kernel.hasStream(n) || varies(n)));
  SmallVector<std::string, 3> in;
  for (Node *i : n->in) {
    in.push_back(value(i));
    // Written twice: worth a name.
    std::string mark = "$" + std::to_string(in.size() - 1);
    size_t once = pattern.find(mark);
    bool isTwice = once != std::string::npos &&
                   pattern.find(mark, once + 1) != std::string::npos;
    if (isTwice && !find(i) && !isLeaf(i))
      in.back() = named(i);
  }
  std::string text;
  for (size_t at = 0; at < pattern.size(); ++at) {
    if (pattern[at] != '$') {
      text += pattern[at];
      continue;
    }
    unsigned place = pattern[++at] - '0';
    bool isAlone = at >= 2 && pattern[at - 2] == '(' &&
                   at + 1 < pattern.size() && pattern[at + 1] == ')';
    text += isAlone ? withoutParentheses(in[place]) : in[place];
  }
  return text;
}

std::string Expressions::fresh(Node *n) {
  if (spell)
    if (std::string text = spell(n); !text.empty())
      return text;
  switch (n->kind) {
  case Node::Const:
    return literal(cast<TypedAttr>(cast<arith::ConstantOp>(n->op).getValue()));
  case Node::Param:
    return kernel.operandNames[n->index];
  case Node::Index:
    return kernel.indexNames[n->index];
  case Node::Extent:
    return kernel.indexNames[n->index] + "_count";
  case Node::Read:
    return readElement(n);
  case Node::Old:
    return "old." + kernel.stateNames[n->state];
  case Node::New:
  case Node::Final:
    return "s." + kernel.stateNames[n->state];
  case Node::Elem:
    return elementwise(n);
  case Node::Contract:
    break;
  }
  llvm_unreachable("who has contractions names them");
}
