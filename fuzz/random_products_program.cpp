// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "random_products_program.h"
#include <algorithm>
#include <random>

using namespace refold::fuzz;

namespace {

using Words = std::vector<std::string>;

class Generator {
public:
  explicit Generator(uint64_t seed) : engine(seed) {}
  ProductProgram run();

private:
  /// A number below `n`, the same on every standard library.
  unsigned below(unsigned n) { return engine() % n; }
  bool chance(unsigned percent) { return below(100) < percent; }
  template <typename T> T pick(const std::vector<T> &from) {
    return from[below(from.size())];
  }

  std::string add(const std::string &name, const std::string &axes,
                  const std::string &type);
  void define(const std::string &name, const std::string &before, Term term,
              const std::string &target = "") {
    program.definitions.push_back(
        {name, before, before.empty() ? "" : ")", std::move(term), target});
  }
  std::string realType() {
    return pick<std::string>({"", "", "", ": bf16", ": bf16", ": f16"});
  }
  std::string byteType() { return chance(70) ? ": i8" : ": u8"; }
  /// Axes of rows, with what `more` are behind them.
  std::string axesOf(const std::string &more) const {
    return "[" + rows + "," + more + "]";
  }

  void chooseRows();
  void addElements();
  void addScores();
  void addMask();
  void addWeights();
  void addProduct(unsigned number);
  Term factorOf(const std::string &operand, bool isWhole);
  void readBeside(unsigned number);
  void addResult();
  Term scaled(Term result);
  void addBehind();
  void chooseOutputs();
  void chooseExtents();
  int64_t work() const;

  std::mt19937_64 engine;
  ProductProgram made;
  RandomProgram &program = made.program;
  std::string rows = "m"; ///< axes of rows, the last of which is m
  std::string heads;      ///< of the shared operands: "", "b," or "b,g,"
  std::string shared;     ///< how they are subscripted
  std::string columns = "e";
  bool isWhole = false; ///< elements are integers
  bool areWeightsWhole = false;
  bool hasDeadElements = false;
  Words weights;  ///< over rows and n
  Words numbers;  ///< of rows, safe to divide by 1 + |.|
  Words operands; ///< of products: as arguments
  Words reads;    ///< the same as they are subscripted
  Words besides;  ///< sums over columns
  Words results;
  std::string normaliser;
};

std::string Generator::add(const std::string &name, const std::string &axes,
                           const std::string &type) {
  program.arguments.push_back(name + "[" + axes + "]" + type);
  return name;
}

void Generator::chooseRows() {
  switch (below(6)) {
  case 0:
    rows = "b,m";
    heads = chance(50) ? "b," : "";
    break;
  case 1:
    rows = "b,h,m";
    heads = chance(75) ? "b,g," : "b,";
    break;
  default:
    break;
  }
  shared = heads == "b,g," ? "b, h//2, " : heads == "b," ? "b, " : "";
  if (chance(12))
    columns = "e,c";
}

/// s, what is reduced along n.
void Generator::addElements() {
  switch (below(5)) {
  case 0:
    add("x", rows + ",n", byteType());
    isWhole = true;
    define("s", "", {"x", {}});
    break;
  case 1:
  case 2:
    return addScores();
  default:
    add("x", rows + ",n", realType());
    define("s", "", {"x", {}});
  }
}

void Generator::addScores() {
  isWhole = chance(35);
  add("q", rows + ",d", isWhole ? byteType() : realType());
  bool isTurned = chance(25);
  add("k", heads + (isTurned ? "d,n" : "n,d"),
      isWhole ? byteType() : realType());
  std::string k = "k[" + shared + (isTurned ? "d, n]" : "n, d]");
  Term product = {"q * " + k, {}};
  if (isWhole && chance(40)) {
    add("zk", "n", ": i8");
    product = chance(50) ? Term{"q * (" + k + " - zk)", {}}
                         : Term{"(q - $0) * " + k, {{"3", {}}}};
  }
  define("s", "sum(d: ", product);
  if (isWhole && chance(60)) {
    define("sq", "", {"s * 0.001", {}});
    if (chance(50)) {
      add("sk", "n", "");
      define("sq", "", {"sq * sk", {}});
    }
    program.definitions.push_back({"s", "", "", {"sq", {}}});
    isWhole = false;
  } else if (!isWhole) {
    define("s", "", {"s * rsqrt(len(d))", {}});
  }
}

void Generator::addMask() {
  if (isWhole || !chance(35))
    return;
  std::string condition =
      pick<std::string>({"n <= m", "n <= m and m - n < 5", "abs(m - n) < 3",
                         "n % 3 > 0", "u", "n < lens"});
  if (condition == "u")
    add("u", chance(50) ? "n" : "m,n", ": bool");
  if (condition == "n < lens")
    add("lens", "m", ": i32");
  hasDeadElements = chance(70);
  define(
      "s", "",
      {"where(" + condition + ", s, " + (hasDeadElements ? "-inf" : "0") + ")",
       {}});
}

/// What the elements are made into for the products.
void Generator::addWeights() {
  auto addNumber = [&](const std::string &name, const std::string &before,
                       Term term) {
    define(name, before, std::move(term));
    numbers.push_back(name);
  };
  auto addExponential = [&] {
    addNumber("t", "max(n: ", {"s", {}});
    define("p", "", {"exp(s - t)", {}});
    define("z", "sum(n: ", {"p", {}});
    normaliser = "z";
    weights.push_back("p");
  };
  auto addQuantised = [&] {
    bool isSigned = chance(70);
    define("a", "max(n: ", {"abs(s)", {}});
    define("step", "", {"max(a, 0.000001) / 127", {}});
    numbers.push_back("step");
    define(
        "p", "",
        {isSigned ? "i8(round(s / step))" : "u8(round((s + a) * 0.5 / step))",
         {}});
    weights.push_back("p");
    areWeightsWhole = true;
  };
  if (isWhole) {
    weights.push_back("s");
    areWeightsWhole = true;
    if (chance(20)) {
      define("p", "", {"f32(s) * 0.1", {}});
      weights = {"p"};
      areWeightsWhole = false;
    }
    return;
  }
  if (hasDeadElements)
    return addExponential();
  switch (below(6)) {
  case 0:
    weights.push_back("s");
    break;
  case 1:
    define("r", "", {"rsqrt($0 + 0.00001)", {{"mean(n: s^2)", {}}}});
    numbers.push_back("r");
    define("p", "", {"s * r", {}});
    weights.push_back("p");
    break;
  case 2:
    addNumber("mu", "mean(n: ", {"s", {}});
    define("p", "", {"s - mu", {}});
    weights.push_back("p");
    break;
  case 3:
  case 4:
    addQuantised();
    break;
  default:
    addExponential();
    if (chance(15))
      define("p", "", {"bf16(p)", {}});
  }
}

/// A factor of an operand, as it is or less a zero point, or scaled.
Term Generator::factorOf(const std::string &operand, bool isWhole) {
  bool isColumn = columns == "e";
  if (isWhole && isColumn && chance(20)) {
    std::string zero = "zo" + std::to_string(results.size());
    add(zero, "e", ": i8");
    return {"($0 - " + zero + ")", {{operand, {}}}};
  }
  if (!isWhole && isColumn && chance(10)) {
    std::string scale = "so" + std::to_string(results.size());
    add(scale, chance(50) ? "e" : "n", "");
    return {"($0 * " + scale + ")", {{operand, {}}}};
  }
  return {operand, {}};
}

void Generator::addProduct(unsigned number) {
  std::string name = "o" + std::to_string(number), read;
  if (!reads.empty() && chance(20)) {
    read = pick(reads);
  } else {
    std::string operand = "v" + std::to_string(number);
    bool isTurned = columns == "e" && chance(25);
    bool hasHeads = chance(60);
    std::string type = areWeightsWhole ? (chance(85) ? byteType() : realType())
                                       : (chance(15) ? byteType() : realType());
    add(operand, (hasHeads ? heads : "") + (isTurned ? "e,n" : "n," + columns),
        type);
    std::string last = isTurned ? "e, n" : columns == "e" ? "n, e" : "n, e, c";
    read = operand + "[" + (hasHeads ? shared : "") + last + "]";
    // What is shared by all rows can be summed by itself.
    if (!hasHeads || heads.empty())
      operands.push_back(operand);
    reads.push_back(read);
  }
  std::string weight = pick(weights);
  Term left = {weight, {}};
  if (areWeightsWhole && chance(15)) {
    left = {"($0 - zx)", {left}};
    if (program.text().find("zx[") == std::string::npos)
      add("zx", "m", ": i8");
  }
  Term term = {"$0 * $1", {left, factorOf(read, areWeightsWhole)}};
  if (number && chance(10))
    term = {"$0 * $1", {term, {weight, {}}}};
  define(name, "sum(n: ", term, name + axesOf(columns));
  results.push_back(name);
}

/// Other readers of what a product reads.
void Generator::readBeside(unsigned number) {
  std::string name = "c" + std::to_string(number);
  if (!operands.empty() && chance(60)) {
    std::string before = pick<std::string>(
        {"sum(n: ", "sum(n: ", "max(n: ", "min(n: ", "sum(n: "});
    Term term = {pick(operands), {}};
    if (chance(20))
      term = {"abs($0)", {term}};
    else if (chance(10))
      term = {"$0 * $0", {term}};
    define(name, before, term);
    besides.push_back(name);
    return;
  }
  define(name, pick<std::string>({"sum(n: ", "max(n: ", "min(n: "}),
         {pick(weights), {}});
  if (!hasDeadElements)
    numbers.push_back(name);
}

/// Scales and zero points of rows and columns.
Term Generator::scaled(Term result) {
  unsigned steps = below(4);
  // As a zero point of -1 would.
  if (!besides.empty() && chance(50))
    result = {"$0 - " + besides.front(), {result}};
  for (unsigned i = 0; i < steps; ++i) {
    std::string number = std::to_string(i);
    switch (below(8)) {
    case 0:
      add("sr" + number, "m", "");
      result = {"$0 * sr" + number, {{"($0)", {result}}}};
      break;
    case 1:
      add("sc" + number, "e", realType());
      result = {"$0 * sc" + number, {{"($0)", {result}}}};
      break;
    case 2:
      add("bias" + number, "e", realType());
      result = {"$0 + bias" + number, {result}};
      break;
    case 3:
      if (!besides.empty()) {
        add("zr" + number, "m", chance(60) ? ": i8" : "");
        result = {"$0 - zr" + number + " * " + pick(besides), {result}};
      }
      break;
    case 4:
      if (!numbers.empty())
        result = {"$0 * " + pick(numbers), {{"($0)", {result}}}};
      break;
    case 5:
      result = {
          pick<std::string>({"relu($0)", "$0 * sigmoid($0)", "tanh($0 * 0.01)",
                             "$0 * (1 + erf($0 * 0.70710678))"}),
          {{"($0)", {result}}}};
      break;
    case 6:
      add("res" + number, rows + "," + columns, realType());
      result = {"$0 + res" + number, {result}};
      break;
    default:
      if (!besides.empty())
        result = {"$0 + " + pick(besides), {result}};
    }
  }
  return result;
}

void Generator::addResult() {
  Term result = {results.front(), {}};
  if (!normaliser.empty() && chance(85))
    result = {"$0 / " + normaliser, {result}};
  for (size_t i = 1; i < results.size(); ++i)
    if (chance(60))
      result = chance(50) ? Term{"$0 + " + results[i], {result}}
                          : Term{"$0 * sigmoid(0.01 * " + results[i] + ")",
                                 {{"($0)", {result}}}};
  define("y", "", scaled(std::move(result)), "y" + axesOf(columns));
}

/// Reductions along the columns of a result, or lists of the elements.
void Generator::addBehind() {
  if (chance(25)) {
    if (chance(50)) {
      define("t2", "max(e: ", {"y", {}});
      define("w2", "", {"exp(y - t2)", {}});
      define("z2", "sum(e: ", {"w2", {}});
      define("y2", "", {"w2 / z2", {}});
      program.outputs.push_back("y2");
    } else {
      define("y2", "", {"y * rsqrt($0 + 0.001)", {{"mean(e: y^2)", {}}}});
      program.outputs.push_back("y2");
    }
  }
  if (!chance(15))
    return;
  bool isOfColumns = columns == "e" && chance(60);
  std::string axes = axesOf("kk");
  std::string of = isOfColumns ? "e: f32(y)" : "n: f32(s)";
  program.definitions.push_back(
      {"best",
       "topk(" + of.substr(0, 3),
       ", " + pick<std::string>({"1", "3", "8"}) + ")",
       {of.substr(3), {}},
       "best" + axes + ", places" + axes});
  program.outputs.push_back("best");
  if (chance(50))
    program.outputs.push_back("places");
}

void Generator::chooseOutputs() {
  if (program.outputs.empty() || chance(70))
    program.outputs.push_back("y");
  for (const Definition &definition : program.definitions)
    if (std::count(program.outputs.begin(), program.outputs.end(),
                   definition.name) == 0 &&
        (definition.name[0] == 'o' || definition.name[0] == 'c' ||
         definition.name == "z" || definition.name == "p") &&
        chance(20))
      program.outputs.push_back(definition.name);
  std::string &last = program.outputs.back();
  if (last == "y" && chance(20))
    last += realType();
}

int64_t Generator::work() const {
  auto of = [&](const char *axis) {
    return std::max<int64_t>(1, program.extents.at(axis));
  };
  int64_t inner = of("e") * (columns == "e" ? 1 : of("c"));
  if (program.text().find("q[") != std::string::npos)
    inner += of("d");
  int64_t work = of("m") * inner;
  for (char axis : rows)
    if (axis == 'b' || axis == 'h')
      work *= of(std::string(1, axis).c_str());
  return work * *std::max_element(made.lengths.begin(), made.lengths.end());
}

void Generator::chooseExtents() {
  constexpr int64_t kMostWork = 1 << 18; // steps of the judge
  auto &extents = program.extents;
  bool isWide = chance(20);
  made.lengths = {pick<int64_t>({0, 1, 2, 3, 7, 15, 16}),
                  pick<int64_t>({31, 32, 33, 64, 65, 100, 130, 257})};
  if (chance(10))
    made.lengths.push_back(pick<int64_t>({600, 1025, 4097}));
  extents = {
      {"m", isWide
                ? pick<int64_t>({1, 2, 3, 4, 5, 8, 9})
                : pick<int64_t>({1, 3, 4, 7, 8, 9, 15, 16, 17, 33, 70, 130})},
      {"b", 1 + below(2)},
      {"h", pick<int64_t>({2, 4})},
      {"d", pick<int64_t>({1, 3, 8, 16, 17, 32, 64, 80})},
      {"e", isWide ? pick<int64_t>({513, 1030, 2100, 4133, 5000})
                   : pick<int64_t>({1, 3, 7, 8, 15, 16, 17, 32, 40, 64, 100})},
      {"c", pick<int64_t>({1, 2, 5, 16})}};
  while (work() > kMostWork)
    if (made.lengths.size() > 2)
      made.lengths.pop_back();
    else if (extents["m"] > 9)
      extents["m"] /= 2;
    else if (made.lengths.back() > 16)
      made.lengths.back() /= 2;
    else
      extents["e"] /= 2;
  extents["g"] = extents["h"] / 2;
  std::string text = program.text();
  auto isArgument = [&](const std::string &axis) {
    for (const std::string &argument : program.arguments) {
      size_t open = argument.find('['), close = argument.find(']');
      std::string axes =
          "," + argument.substr(open + 1, close - open - 1) + ",";
      if (axes.find("," + axis + ",") != std::string::npos)
        return true;
    }
    return false;
  };
  for (auto it = extents.begin(); it != extents.end();)
    it = isArgument(it->first) ? std::next(it) : extents.erase(it);
  const std::pair<const char *, unsigned> kKnown[] = {
      {"d", 70}, {"e", 60}, {"c", 60}, {"h", 40}, {"g", 40}, {"m", 15}};
  for (auto [axis, percent] : kKnown)
    if (extents.count(axis) && chance(percent))
      made.known[axis] = extents[axis];
  if (chance(20)) {
    made.lengths.erase(made.lengths.begin());
    made.known["n"] = made.lengths.front();
    made.lengths.resize(1);
  }
}

ProductProgram Generator::run() {
  chooseRows();
  addElements();
  addMask();
  addWeights();
  unsigned products = 1 + below(3);
  for (unsigned i = 0; i < products; ++i) {
    addProduct(i);
    if (chance(50))
      readBeside(i);
  }
  addResult();
  addBehind();
  chooseOutputs();
  chooseExtents();
  // Growing scores, NaN and dead rows as often as others.
  program.family = below(6);
  unsigned target = below(20);
  made.target = target < 4 ? "avx2" : "";
  unsigned stability = below(10);
  made.stability = stability == 0 ? 0 : stability == 1 ? 2 : 1;
  made.requantises = chance(15);
  return std::move(made);
}

} // namespace

ProductProgram refold::fuzz::generateProducts(uint64_t seed) {
  return Generator(seed).run();
}
