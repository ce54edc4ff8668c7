// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "random_cascades_program.h"
#include "refold/Support/RandomInputs.h"
#include <algorithm>
#include <cctype>
#include <random>

using namespace refold::fuzz;

std::string Term::text() const {
  std::string result;
  for (size_t i = 0; i < format.size(); ++i)
    if (format[i] == '$')
      result += operands[format[++i] - '0'].text();
    else
      result += format[i];
  return result;
}

std::string RandomProgram::text() const {
  std::string result = "f(";
  for (size_t i = 0; i < arguments.size(); ++i)
    result += (i ? ", " : "") + arguments[i];
  result += ") -> ";
  for (size_t i = 0; i < outputs.size(); ++i)
    result += (i ? ", " : "") + outputs[i];
  result += "\n";
  for (const Definition &definition : definitions)
    result += definition.text();
  return result;
}

bool RandomProgram::ordersByResults() const {
  for (const Definition &definition : definitions) {
    std::string term = definition.term.text();
    bool isList = definition.before.find("topk") != std::string::npos ||
                  definition.before.find("arg") != std::string::npos;
    for (size_t i = 0; isList && i + 1 < term.size(); ++i)
      if (term[i] == 'r' && std::isdigit(term[i + 1]))
        return true; // stages are r0, r1, ...
  }
  return false;
}

bool RandomProgram::hasSharedCount() const {
  for (const Definition &definition : definitions)
    if (definition.name == "t0" && definition.before.find("sum") == 0)
      return true;
  return false;
}

bool RandomProgram::isMostlyMerged() const {
  for (const Definition &definition : definitions)
    if (definition.name[0] == 'c' || definition.name[0] == 't')
      return true;
  return false;
}

namespace {

/// Families of other sizes than 1.
constexpr auto kTiny = unsigned(refold::InputFamily::Tiny),
               kHuge = unsigned(refold::InputFamily::Huge),
               kMixed = unsigned(refold::InputFamily::Mixed);

class Generator {
public:
  explicit Generator(uint64_t seed) : engine(seed) {}
  RandomProgram run();

private:
  /// A number below `n`, the same on every standard library.
  unsigned below(unsigned n) { return engine() % n; }
  bool chance(unsigned percent) { return below(100) < percent; }
  template <typename T> const T &pick(const std::vector<T> &from) {
    return from[below(from.size())];
  }
  void addArgument(const std::string &name, const std::string &axes,
                   bool isStorage = true);
  void addBase();
  void addMask();
  void addStage(unsigned number);
  void addOutputs();
  void addColumns();
  void addLaterPass();
  void addSharedCount();
  Term element(unsigned depth);
  Term idiom(unsigned depth);
  std::string over(const std::string &reducer) const {
    return reducer + "(" + stream + ": ";
  }
  bool addSpecial(const std::string &name);
  Term row(unsigned depth);
  Term exponential();
  Term number() {
    return {pick<std::string>({"2", "0.5", "3", "(1/3)", "0.1"}), {}};
  }

  std::mt19937_64 engine;
  RandomProgram program;
  std::string rowAxes = "m";
  std::vector<std::string> elements; ///< names with axis n
  std::vector<std::string> rows;     ///< names of stages, safe to read
  std::vector<std::string> maxima;   ///< stages t = max(n: s)
  std::vector<std::string> minima;   ///< stages u = min(n: s)
  std::vector<std::string> shares;   ///< exponentials / their sum
  std::vector<std::string> means;    ///< means of s
  std::vector<std::string> flags;    ///< truth values of a row
  std::string stream = "n";          ///< or two axes
  bool hasCarried = false;
};

void Generator::addArgument(const std::string &name, const std::string &axes,
                            bool isStorage) {
  static const std::vector<std::string> types = {"",      "",       "",
                                                 ": f16", ": bf16", ": f64"};
  program.arguments.push_back(name + "[" + axes + "]" +
                              (isStorage ? pick(types) : ""));
}

/// s, the array that is reduced, with axes of rows and n.
void Generator::addBase() {
  if (chance(20))
    rowAxes = "b,m";
  Term s;
  if (chance(8)) { // a stream of two axes
    stream = "h,n";
    addArgument("x", rowAxes + ",h,n");
    program.definitions.push_back({"s", "", "", {"x", {}}});
    elements.push_back("s");
    return;
  }
  switch (below(5)) {
  case 0: // a product inside
    addArgument("q", rowAxes + ",d");
    addArgument("k", chance(50) ? "n,d" : "d,n");
    s = chance(50) ? Term{"sum(d: q*k) * rsqrt(len(d))", {}}
                   : Term{"sum(d: q * k * $0)", {number()}};
    break;
  case 1: // transposed
    addArgument("x", "n," + rowAxes);
    s = {"x * $0", {number()}};
    break;
  case 2: // broadcast
    addArgument("x", rowAxes + ",n");
    addArgument("c", "n");
    s = chance(50) ? Term{"x * c", {}} : Term{"x + c", {}};
    break;
  default:
    addArgument("x", rowAxes + ",n");
    s = {"x", {}};
  }
  program.definitions.push_back({"s", "", "", s});
  elements.push_back("s");
}

void Generator::addMask() {
  if (!chance(40))
    return;
  std::string dead = pick<std::string>({"-inf", "-3.4028235e38", "0"});
  std::string condition =
      pick<std::string>({"n <= m", "n >= m", "n % 3 > 0", "w > 0", "u"});
  if (condition[0] == 'w') {
    addArgument("w", "n");
    elements.push_back("w");
  }
  if (condition == "u")
    program.arguments.push_back("u[n]: bool");
  program.definitions.push_back(
      {"s", "", "", {"where(" + condition + ", s, " + dead + ")", {}}});
}

/// A term in the stream's axis and, at times, in earlier stages.
Term Generator::element(unsigned depth) {
  if (depth == 0 || chance(15))
    return {pick(elements), {}};
  if (chance(25))
    return idiom(depth);
  switch (below(11)) {
  case 0:
    return {"($0 * $1)", {element(depth - 1), number()}};
  case 1:
    return {"($0 + $1)", {element(depth - 1), element(depth - 1)}};
  case 2:
    return {"($0 * $1)", {element(depth - 1), element(depth - 1)}};
  case 3:
    return {"$0^2", {{"($0)", {element(depth - 1)}}}};
  case 4:
    return {"abs($0)", {element(depth - 1)}};
  case 5:
    return {"f16($0)", {{pick(elements), {}}}};
  case 6:
    return {"where($0 > 0, $0, $1)", {element(depth - 1), number()}};
  case 7:
    if (!rows.empty())
      return {"($0 * $1)", {element(depth - 1), row(0)}};
    [[fallthrough]];
  case 8:
    if (!rows.empty())
      return {"($0 - $1)", {element(depth - 1), row(0)}};
    [[fallthrough]];
  default:
    if (maxima.empty() && minima.empty())
      return {pick(elements), {}};
    return exponential();
  }
}

/// Of `s` about an extreme; there is one.
Term Generator::exponential() {
  if (maxima.empty() || (!minima.empty() && chance(50)))
    return {"exp($0 - s)", {{pick(minima), {}}}};
  return {"exp(s - $0)", {{pick(maxima), {}}}};
}

/// What people write: shares, moments, distances, guards.
Term Generator::idiom(unsigned depth) {
  switch (below(9)) {
  case 0:
    if (!shares.empty())
      return {pick(shares), {}};
    [[fallthrough]];
  case 1:
    if (!means.empty())
      return {pick<std::string>({"($0 - $1)^2", "($0 - $1)^3", "cos($0 - $1)",
                                 "(($0 - $1) * rsqrt(1 + abs($1)))"}),
              {{"s", {}}, {pick(means), {}}}};
    [[fallthrough]];
  case 2:
    if (!maxima.empty())
      return {pick<std::string>({"abs($0 - $1)", "relu($1 - $0)",
                                 "where($0 == $1, 1.0, 0.0)",
                                 "where($0 < $1, $0, 0.0)",
                                 "where($1 == -inf, 0, exp($0 - $1))"}),
              {{"s", {}}, {pick(maxima), {}}}};
    [[fallthrough]];
  case 3:
    if (!shares.empty())
      return {pick<std::string>({"where(isnan($0), 0, $0)", "clip($0, 0, 1)",
                                 "where($0 > 0, $0 * log($0), 0)", "$0^2"}),
              {{"(" + pick(shares) + ")", {}}}};
    [[fallthrough]];
  case 4:
    return {pick<std::string>({"tanh($0)", "sigmoid($0)", "sin($0)",
                               "sqrt(abs($0))", "relu($0)", "exp(-abs($0))"}),
            {element(depth - 1)}};
  case 5:
    if (stream == "n")
      return {"where(n == label, $0, 0)", {element(depth - 1)}};
    [[fallthrough]];
  case 6:
    if (!flags.empty())
      return {"where($0, $1, $2)",
              {{pick(flags), {}}, element(depth - 1), number()}};
    [[fallthrough]];
  case 7:
    return {"max($0, $1)", {element(depth - 1), element(depth - 1)}};
  default:
    return {"(-$0)", {element(depth - 1)}};
  }
}

/// A row value: a stage, or a function of stages that does not blow up.
Term Generator::row(unsigned depth) {
  Term atom = {pick(rows), {}};
  if (depth == 0)
    return atom;
  switch (below(5)) {
  case 0:
    return {"($0 + $1)", {row(depth - 1), row(depth - 1)}};
  case 1:
    return {"($0 / (1 + abs($1)))", {row(depth - 1), row(depth - 1)}};
  case 2:
    if (!flags.empty() && chance(30))
      return {"where($0, $1, $2)",
              {{pick(flags), {}}, row(depth - 1), number()}};
    return {pick<std::string>({"rsqrt(abs($0) + 1)", "max($0, 0.5)",
                               "log(abs($0) + 1)", "where($0 == -inf, 0, $0)"}),
            {row(depth - 1)}};
  case 3:
    return {"($0 * $1)", {row(depth - 1), number()}};
  default:
    return atom;
  }
}

/// A stage that is no plain sum, mean or extreme, or false.
bool Generator::addSpecial(const std::string &name) {
  Definition stage{name, "", ")", {}};
  switch (below(8)) {
  case 0: // the denominator of a softmax
    if (maxima.empty() && minima.empty())
      return false;
    stage.before = over("sum");
    stage.term = exponential();
    shares.push_back(stage.term.text() + " / " + name);
    break;
  case 1:
    stage.before = over("mean");
    stage.term = {"s", {}};
    means.push_back(name);
    break;
  case 2:
    stage.before = over(pick<std::string>({"any", "all"}));
    stage.term = {pick<std::string>({"$0 > $1", "$0 <= $1", "$0 == $1"}),
                  {element(1), rows.empty() ? number() : row(1)}};
    flags.push_back(name);
    program.definitions.push_back(stage);
    return true;
  case 3: {
    if (stream != "n")
      return false;
    std::string places = "p" + name, axes = "[" + rowAxes + ",k" + name + "]";
    stage.target = name + axes + ", " + places + axes;
    stage.before = over("topk");
    stage.after = ", " + pick<std::string>({"1", "2", "5"}) + ")";
    stage.term = element(1);
    program.definitions.push_back(stage);
    if (chance(50))
      program.outputs.push_back(places);
    return true; // it has an axis of its own: an output
  }
  case 4:
    if (stream != "n")
      return false;
    stage.before = over(pick<std::string>({"argmax", "argmin"}));
    stage.term = element(1);
    program.definitions.push_back(stage);
    return true;
  case 5:
    stage.before = over("prod");
    stage.term = {pick<std::string>({"exp(-abs($0))", "(1 - 0.1 * sigmoid($0))",
                                     "(1 + 0.01 * tanh($0))"}),
                  {element(1)}};
    break;
  case 6: // no maximum was taken away
    stage.before = over("sum");
    stage.term = {"exp(0.1 * $0)", {element(1)}};
    break;
  default: // a value of the row by itself
    if (rows.empty())
      return false;
    stage.after.clear();
    stage.term = row(2);
  }
  program.definitions.push_back(stage);
  rows.push_back(name);
  return true;
}

void Generator::addStage(unsigned numberOfStage) {
  std::string name = "r" + std::to_string(numberOfStage);
  if (chance(35) && addSpecial(name))
    return;
  Definition stage{name, "", ")", {}};
  unsigned kind = below(10);
  if (kind < 2) {
    bool isLeast = chance(30);
    stage.before = over(isLeast ? "min" : "max");
    stage.term = {"s", {}};
    (isLeast ? minima : maxima).push_back(name);
  } else if (kind < 4) {
    stage.before = over(chance(50) ? "max" : "min");
    stage.term = element(2);
  } else if (kind < 5 && !hasCarried && stream == "n") {
    addArgument("v", "n,e");
    hasCarried = true;
    stage.before = over("sum");
    stage.term = {"$0 * v", {element(2)}};
    program.definitions.push_back(stage);
    return; // it has axis e: an output, but not read by later stages
  } else {
    stage.before = over(chance(50) ? "sum" : "mean");
    stage.term = element(3);
  }
  program.definitions.push_back(stage);
  rows.push_back(name);
}

void Generator::addOutputs() {
  for (const Definition &definition : program.definitions)
    if (definition.name[0] == 'r' && chance(40))
      program.outputs.push_back(definition.name);
  if (rows.empty() || chance(30)) {
    program.definitions.push_back({"y", "", "", element(2)});
    program.outputs.push_back("y");
  }
  if (!rows.empty() && chance(50)) {
    program.definitions.push_back({"o", "", "", row(2)});
    program.outputs.push_back("o");
  }
  if (program.outputs.empty())
    program.outputs.push_back(program.definitions.back().name);
}

/// Moments of rows with columns: states that all rows share of a column, that
/// rows have of it, and later ones that read both.
void Generator::addColumns() {
  if (!hasCarried)
    addArgument("v", "n,e");
  std::vector<std::string> columns;        // with axis e, of all rows or each
  std::vector<Term> factors = {{"v", {}}}; // with axes n and e
  auto add = [&](const std::string &name, const std::string &before,
                 const Term &term) {
    program.definitions.push_back({name, before, ")", term});
    columns.push_back(name);
    if (chance(50))
      program.outputs.push_back(name);
  };
  auto ofRow = [&] { return chance(60) ? Term{"s", {}} : element(1); };
  unsigned stages = 2 + below(4);
  for (unsigned i = 0; i < stages; ++i) {
    std::string name = "c" + std::to_string(i);
    switch (i == 0 ? below(2) : below(6)) {
    case 0: // all rows share it
      add(name, over("mean"), {pick(factors)});
      break;
    case 1:
      add(name, over(chance(50) ? "max" : "min"), {"v", {}});
      factors.push_back({"exp(-abs(v - $0))", {{name, {}}}});
      break;
    case 2: // each row has it
      add(name, over(chance(50) ? "sum" : "mean"),
          {"$0 * $1", {ofRow(), pick(factors)}});
      break;
    default:
      add(name, over("mean"),
          {"$0 * $1 * $2", {ofRow(), pick(factors), factors.back()}});
    }
    factors.push_back({"(v - $0)^2", {{name, {}}}});
    factors.push_back({"(v - $0)", {{name, {}}}});
  }
  if (program.outputs.back() != columns.back())
    program.outputs.push_back(columns.back());
}

/// What has to know the end of a pass: elements chosen by its extreme, and
/// exponentials about what is made of both.
void Generator::addLaterPass() {
  auto add = [&](const std::string &name, const std::string &before,
                 const std::string &after, const Term &term) {
    program.definitions.push_back({name, before, after, term});
  };
  add("t0", over("max"), ")", {"abs($0)", {{pick(elements), {}}}});
  add("t1", "", "",
      {pick<std::string>({"where(2 * s > t0, $0, 0.0)",
                          "where($0 < t0, s, 0.5)",
                          "where(abs(s) < t0, $0, -inf)"}),
       {{pick(elements), {}}}});
  add("t2", over("max"), ")", {"t1", {}});
  add("t3", "", "",
      {pick<std::string>({"max(t2, t0)", "max(t2, 0.5)", "t2"}), {}});
  add("t4", over("sum"), ")", {"exp(t1 - t3)", {}});
  std::string carried = hasCarried ? "v" : pick(elements);
  add("t5", over("sum"), ")",
      {"exp(t1 - t3)" + pick<std::string>({" / t4", ""}) + " * $0",
       {{carried, {}}}});
  if (chance(50))
    program.outputs.push_back("t4");
  program.outputs.push_back("t5");
}

/// What all rows share, read by what is written of each element.
void Generator::addSharedCount() {
  bool hasMask = program.text().find("w[n]") != std::string::npos;
  program.definitions.push_back(
      {"t0",
       over("sum"),
       ")",
       {hasMask ? "where(w > 0, 1.0, 0.0)" : "1.0", {}}});
  program.definitions.push_back({"t1", over("mean"), ")", {"s", {}}});
  program.definitions.push_back(
      {"t2",
       "",
       "",
       {pick<std::string>({"(s - t1) + $0 / (1 + t0)", "(s - t1) * $0 + t0"}),
        {{pick(elements), {}}}}});
  program.outputs.push_back("t2");
}

RandomProgram Generator::run() {
  addBase();
  addMask();
  unsigned stages = 1 + below(5);
  for (unsigned i = 0; i < stages; ++i)
    addStage(i);
  addOutputs();
  if (program.text().find("label") != std::string::npos)
    program.arguments.push_back("label[m]: i32");
  program.extents = {{"n", pick<int64_t>({0, 1, 2, 5, 16, 17, 33, 64, 130})},
                     {"m", pick<int64_t>({1, 3, 5, 9})},
                     {"b", 1 + below(2)},
                     {"h", 1 + below(4)},
                     {"d", pick<int64_t>({1, 2, 5, 16})},
                     {"e", pick<int64_t>({1, 3, 8, 19})}};
  program.family = below(6);
  // Drawn last: a seed keeps its program.
  if (chance(25))
    program.family = pick<unsigned>({kTiny, kHuge, kMixed});
  if (stream == "n" && chance(20)) {
    // A row of one number is its own mean, and the moment about it 0: exactly
    // as written, to rounding from sums of powers, which here may be huge.
    program.family = below(6);
    addColumns();
  } else if (stream == "n" && chance(10)) {
    program.family = below(6);
    addLaterPass();
  } else if (stream == "n" && chance(10)) {
    addSharedCount();
  }
  return std::move(program);
}

/// Every copy of `term` with one subterm replaced by one of its operands.
void collect(const Term &term, std::vector<Term> &into) {
  for (const Term &operand : term.operands)
    into.push_back(operand);
  for (size_t i = 0; i < term.operands.size(); ++i) {
    std::vector<Term> inner;
    collect(term.operands[i], inner);
    for (Term &smaller : inner) {
      into.push_back(term);
      into.back().operands[i] = std::move(smaller);
    }
  }
}

} // namespace

RandomProgram refold::fuzz::generate(uint64_t seed) {
  return Generator(seed).run();
}

std::vector<RandomProgram> refold::fuzz::smaller(const RandomProgram &program) {
  std::vector<RandomProgram> result;
  for (size_t i = 0; program.outputs.size() > 1 && i < program.outputs.size();
       ++i) {
    result.push_back(program);
    result.back().outputs.erase(result.back().outputs.begin() + i);
  }
  for (size_t i = 0; i < program.definitions.size(); ++i) {
    result.push_back(program);
    result.back().definitions.erase(result.back().definitions.begin() + i);
  }
  for (size_t i = 0; i < program.arguments.size(); ++i) {
    result.push_back(program);
    result.back().arguments.erase(result.back().arguments.begin() + i);
  }
  for (size_t i = 0; i < program.arguments.size(); ++i)
    if (size_t colon = program.arguments[i].find(':');
        colon != std::string::npos) {
      result.push_back(program);
      result.back().arguments[i].resize(colon);
    }
  for (size_t i = 0; i < program.definitions.size(); ++i) {
    std::vector<Term> terms;
    collect(program.definitions[i].term, terms);
    for (Term &term : terms) {
      result.push_back(program);
      result.back().definitions[i].term = std::move(term);
    }
  }
  for (auto &[axis, extent] : program.extents)
    for (int64_t less : {extent / 2, extent - 1})
      if (less >= 1 && less < extent) {
        result.push_back(program);
        result.back().extents[axis] = less;
      }
  return result;
}
