// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Numbers.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>
#include <utility>

using namespace refold::tile;

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace {
struct Operator {
  std::string_view text;
  int binding; ///< the tighter the larger
  Formula::Code code;
};
} // namespace

// Longer ones first. What is greater is less with its sides exchanged.
static constexpr Operator kOperators[] = {
    {"||", 1, Formula::Either},    {"&&", 2, Formula::Both},
    {"==", 6, Formula::Equal},     {"!=", 6, Formula::NotEqual},
    {"<=", 7, Formula::LessEqual}, {">=", 7, Formula::LessEqual},
    {"<<", 8, Formula::ShiftLeft}, {">>", 8, Formula::ShiftRight},
    {"|", 3, Formula::Or},         {"^", 4, Formula::Xor},
    {"&", 5, Formula::And},        {"<", 7, Formula::Less},
    {">", 7, Formula::Less},       {"+", 9, Formula::Add},
    {"-", 9, Formula::Subtract},   {"*", 10, Formula::Multiply},
    {"/", 10, Formula::Divide},    {"%", 10, Formula::Remainder}};

static constexpr std::pair<std::string_view, NumberFunction> kFunctions[] = {
    {"int", NumberFunction::Same},
    {"bool", NumberFunction::Same},
    {"int64_t", NumberFunction::Same},
    {"uint32_t", NumberFunction::Same},
    {"int32_t", NumberFunction::Same},
    {"uint64_t", NumberFunction::Same},
    {"Column", NumberFunction::Same},
    {"pinned", NumberFunction::Same},
    {"describe", NumberFunction::Describe},
    {"describe_step", NumberFunction::Same}, // by where it is
    {"further", NumberFunction::Sum},
    {"block_quotient", NumberFunction::Quotient},
    {"block_remainder", NumberFunction::Remainder},
    {"block", NumberFunction::Block},
    {"block_again", NumberFunction::Block},
    {"blocks", NumberFunction::Blocks},
    {"smaller", NumberFunction::Smaller},
    {"larger", NumberFunction::Larger},
    {"thread", NumberFunction::Thread},
    {"thread_again", NumberFunction::Thread},
    {"thread_within", NumberFunction::Thread},
    {"of_warp", NumberFunction::OfWarp},
    {"any_lane", NumberFunction::AnyLane},
    {"matrix_of", NumberFunction::Matrix},
    {"rows_of", NumberFunction::Rows},
    {"begin_of", NumberFunction::Begin},
    {"end_of", NumberFunction::End},
    {"low_of", NumberFunction::Low},
    {"low_visits.has", NumberFunction::HasLow},
    {"low_visits.hasAny", NumberFunction::HasAnyLow}};

namespace {
class Reader {
public:
  Reader(const std::string &text, const Names &names, std::string &unknown)
      : text(text), names(names), unknown(unknown) {}

  std::optional<Formula> read() {
    if (!choice() || !(skip(), at == text.size())) {
      if (unknown.empty())
        unknown = text;
      return std::nullopt;
    }
    return std::move(formula);
  }

private:
  void skip() {
    while (at < text.size() && std::isspace(uint8_t(text[at])))
      ++at;
  }
  bool take(std::string_view token) {
    skip();
    if (text.compare(at, token.size(), token) != 0)
      return false;
    at += token.size();
    return true;
  }
  bool add(Formula::Code code, int64_t value = 0, int count = 0) {
    formula.steps.push_back({code, count, value});
    return true;
  }
  bool choice() {
    if (!binary(1))
      return false;
    if (!take("?"))
      return true;
    return choice() && take(":") && choice() && add(Formula::Choose);
  }
  const Operator *operatorHere() {
    skip();
    for (const Operator &op : kOperators)
      if (text[at] == op.text[0] &&
          text.compare(at, op.text.size(), op.text) == 0)
        return &op;
    return nullptr;
  }
  bool binary(int least) {
    if (!unary())
      return false;
    for (const Operator *op = operatorHere(); op && op->binding >= least;
         op = operatorHere()) {
      at += op->text.size();
      bool isGuarded = op->code == Formula::Both || op->code == Formula::Either;
      if (isGuarded)
        add(Formula::Guard, 0, op->code);
      size_t middle = formula.steps.size();
      if (!binary(op->binding + 1))
        return false;
      if (isGuarded)
        formula.steps[middle - 1].value =
            int64_t(formula.steps.size() - middle) + 1;
      if (op->code == Formula::Less || op->code == Formula::LessEqual)
        if (op->text[0] == '>')
          exchange(middle);
      add(op->code);
    }
    return true;
  }
  /// The two last operands, of which the second begins at `middle`.
  void exchange(size_t middle) {
    size_t begin = beginOfOperand(middle);
    std::rotate(formula.steps.begin() + long(begin),
                formula.steps.begin() + long(middle), formula.steps.end());
  }
  size_t beginOfOperand(size_t end) const {
    for (int wanted = 1; wanted > 0;) {
      const Formula::Step &step = formula.steps[--end];
      wanted += operands(step) - 1;
    }
    return end;
  }
  static int operands(const Formula::Step &step) {
    switch (step.code) {
    case Formula::Constant:
    case Formula::Name:
      return 0;
    case Formula::Function:
      return step.count;
    case Formula::Guard:
    case Formula::Not:
    case Formula::Negate:
      return 1;
    case Formula::Choose:
      return 3;
    default:
      return 2;
    }
  }
  bool unary() {
    if (take("!"))
      return unary() && add(Formula::Not);
    if (take("-"))
      return unary() && add(Formula::Negate);
    if (take("~")) // -x - 1
      return unary() && add(Formula::Negate) && add(Formula::Constant, 1) &&
             add(Formula::Subtract);
    if (take("("))
      return choice() && take(")");
    skip();
    if (at < text.size() && std::isdigit(uint8_t(text[at])))
      return number();
    return name();
  }
  bool number() {
    char *end = nullptr;
    int64_t value = int64_t(std::strtoull(text.c_str() + at, &end, 0));
    at = size_t(end - text.c_str());
    if (at < text.size() && text[at] == 'u')
      ++at;
    return add(Formula::Constant, value);
  }
  bool name() {
    size_t begin = at;
    auto isPart = [&](char c) {
      return std::isalnum(uint8_t(c)) || c == '_' || c == '.' || c == ':';
    };
    // A single colon belongs to a choice.
    while (at < text.size() && isPart(text[at]))
      if (text[at] != ':')
        ++at;
      else if (text.compare(at, 2, "::") == 0)
        at += 2;
      else
        break;
    std::string found = text.substr(begin, at - begin);
    if (found.empty())
      return false;
    if (take("("))
      return call(found);
    if (found == "true" || found == "false")
      return add(Formula::Constant, found == "true");
    auto known = names.find(found);
    if (!known) {
      unknown = found;
      return false;
    }
    formula.isOfLanes |= known->isOfLanes;
    return add(known->isConstant ? Formula::Constant : Formula::Name,
               known->value);
  }
  bool call(const std::string &callee) {
    auto *function =
        std::find_if(std::begin(kFunctions), std::end(kFunctions),
                     [&](auto &one) { return callee == one.first; });
    if (function == std::end(kFunctions)) {
      unknown = callee;
      return false;
    }
    bool wasOfLanes = std::exchange(formula.isOfLanes, false);
    int count = 0;
    if (!take(")")) {
      do {
        if (!choice())
          return false;
        ++count;
      } while (take(","));
      if (!take(")"))
        return false;
    }
    NumberFunction f = function->second;
    bool isOne = f == NumberFunction::OfWarp || f == NumberFunction::AnyLane;
    formula.isOfLanes = wasOfLanes || (formula.isOfLanes && !isOne) ||
                        f == NumberFunction::Thread;
    return add(Formula::Function, int64_t(f), count);
  }

  const std::string &text;
  const Names &names;
  std::string &unknown;
  size_t at = 0;
  Formula formula;
};
} // namespace

std::optional<Formula> refold::tile::readFormula(const std::string &text,
                                                 const Names &names,
                                                 std::string &unknown) {
  return Reader(text, names, unknown).read();
}

//===----------------------------------------------------------------------===//
// Computing
//===----------------------------------------------------------------------===//

static int64_t binary(Formula::Code code, int64_t x, int64_t y) {
  switch (code) {
  case Formula::Add:
    return x + y;
  case Formula::Subtract:
    return x - y;
  case Formula::Multiply:
    return x * y;
  case Formula::Divide:
    return y ? x / y : 0;
  case Formula::Remainder:
    return y ? x % y : 0;
  case Formula::And:
    return x & y;
  case Formula::Or:
    return x | y;
  case Formula::Xor:
    return x ^ y;
  case Formula::ShiftLeft:
    return int64_t(uint64_t(x) << (y & 63));
  case Formula::ShiftRight:
    return x >> (y & 63);
  case Formula::Less:
    return x < y;
  case Formula::LessEqual:
    return x <= y;
  case Formula::Equal:
    return x == y;
  case Formula::NotEqual:
    return x != y;
  case Formula::Both:
    return x && y;
  default:
    return x || y;
  }
}

int64_t refold::tile::compute(const Formula &formula, Numbers &of, int lane) {
  constexpr int kMostDeep = 32;
  int64_t stack[kMostDeep];
  int top = 0;
  for (size_t at = 0; at < formula.steps.size(); ++at) {
    const Formula::Step &step = formula.steps[at];
    if (top + 1 >= kMostDeep)
      return 0;
    switch (step.code) {
    case Formula::Guard:
      if ((step.count == Formula::Either) != (stack[top - 1] != 0))
        break;
      stack[top - 1] = stack[top - 1] != 0;
      at += size_t(step.value);
      break;
    case Formula::Constant:
      stack[top++] = step.value;
      break;
    case Formula::Name:
      stack[top++] = of.slot(step.value, lane);
      break;
    case Formula::Function:
      top -= step.count;
      stack[top] =
          of.call(NumberFunction(step.value), stack + top, step.count, lane);
      ++top;
      break;
    case Formula::Not:
      stack[top - 1] = !stack[top - 1];
      break;
    case Formula::Negate:
      stack[top - 1] = -stack[top - 1];
      break;
    case Formula::Choose:
      top -= 2;
      stack[top - 1] = stack[top - 1] ? stack[top] : stack[top + 1];
      break;
    default:
      --top;
      stack[top - 1] = binary(step.code, stack[top - 1], stack[top]);
    }
  }
  return top ? stack[top - 1] : 0;
}

int64_t refold::tile::callPlain(NumberFunction function,
                                const int64_t *arguments, int count) {
  if (count < 2)
    return count ? arguments[0] : 0;
  int64_t x = arguments[0], y = arguments[1];
  switch (function) {
  case NumberFunction::Smaller:
    return std::min(x, y);
  case NumberFunction::Larger:
    return std::max(x, y);
  case NumberFunction::Sum:
    return x + y;
  case NumberFunction::Describe:
    return x | y << 32;
  case NumberFunction::Quotient:
    return y ? x / y : 0;
  case NumberFunction::Remainder:
    return y ? x % y : 0;
  default:
    return x;
  }
}

namespace {
struct NoNumbers : Numbers {
  int64_t slot(int64_t, int) override { return 0; }
  int64_t call(NumberFunction function, const int64_t *arguments, int count,
               int) override {
    return callPlain(function, arguments, count);
  }
};
} // namespace

std::optional<int64_t> refold::tile::constantIn(const Formula &formula) {
  for (const Formula::Step &step : formula.steps)
    if (step.code == Formula::Name ||
        (step.code == Formula::Function &&
         step.value > int64_t(NumberFunction::Remainder)))
      return std::nullopt;
  NoNumbers none;
  return compute(formula, none, 0);
}
