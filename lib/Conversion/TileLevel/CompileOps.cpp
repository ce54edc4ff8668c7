// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Names of a program become numbers, and what its text touches is found.
#include "Paths.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>
#include <utility>

using namespace refold::tile;

/// What text says that a whole warp has to say together.
static constexpr std::string_view kCollectives[] = {
    "shuffle_xor(",     "any_lane(",      "of_warp(",
    "load_matrices(",   "store_quads(",   "exchange_quads(",
    "load_transposed(", "take_elements<", "store_quads<"};
/// What only ops may say.
static constexpr std::string_view kOfOps[] = {
    "wait_gate(",        "arrive(",         "arrive_with_copies(",
    "make_gate(",        "copy_by_boxes<",  "copy_panels<",
    "copy_elements<",    "wait_copies<",    "wait_boxes<",
    "store_by_boxes<",   "show_matrices(",  "multiply_panels<",
    "multiply_factors<", "begin_products(", "commit_products(",
    "wait_products<",    "settle(",         "await_turn(",
    "pass_turn(",        "give_registers<", "take_registers<",
    "block_barrier(",    "warp_barrier(",   "commit_copies(",
    "copy_box(",         "store_box(",      "commit_boxes(",
    "arrive_expecting("};

static bool isOfName(char c) { return std::isalnum(uint8_t(c)) || c == '_'; }

/// Where `name` stands as a word.
static size_t findWord(const std::string &text, std::string_view name,
                       size_t from = 0) {
  for (size_t at = text.find(name, from); at != std::string::npos;
       at = text.find(name, at + 1)) {
    size_t end = at + name.size();
    bool isWhole = isOfName(name.back())
                       ? end == text.size() || !isOfName(text[end])
                       : true;
    if ((at == 0 || !isOfName(text[at - 1])) && isWhole)
      return at;
  }
  return std::string::npos;
}

/// What is said outside of comments.
static std::string withoutComments(const std::string &text) {
  std::string code;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    code += text.substr(at, std::min(text.find("//", at), end) - at) + "\n";
    at = end + 1;
  }
  return code;
}

namespace {
class Compiler : public Names {
public:
  Compiler(const Program &program, const Entry &entry)
      : program(program), entry(entry) {}
  Compiled compile();
  std::optional<Found> find(const std::string &name) const override;

private:
  using Scope = std::vector<std::pair<std::string, int>>;
  int declare(const std::string &name, bool isOfLanes);
  std::optional<Formula> read(const std::string &text);
  Formula need(const std::string &text);
  void fail(const std::string &rule, const std::string &detail);
  void findMemory();
  std::optional<Node::Place> placeOf(const Stage &stage);
  int registerArray(const std::string &name);
  void readNumbers(const Op &op, Node &node);
  void findOfLanes(int slot, const Formula &formula);
  std::vector<Node::Assigned> readSteps(const std::string &text);
  void readText(const Op &op, Node &node);
  void readCall(const Op &op, Node &node);
  void define(const Op &op);
  std::vector<Node> readOps(const std::vector<Op> &ops);
  std::optional<Node> readOp(const Op &op);
  std::optional<Node> readBranch(const Op &op);

  const Program &program;
  const Entry &entry;
  Compiled to;
  Scope names;
  /// Names whose numbers turn out to be of lanes behind where they are
  /// declared: what is assigned to them is, or lanes that are apart assign it.
  std::set<int> ofLanes;
  std::vector<int> apartAt; ///< how often lanes are apart, of each declaration
  int apart = 0, apartOutside = 0;
  bool hasMore = false; ///< of `ofLanes`, than were known
};
} // namespace

void Compiler::fail(const std::string &rule, const std::string &detail) {
  if (!to.fault)
    to.fault = Fault{rule, detail};
}

std::optional<Names::Found> Compiler::find(const std::string &name) const {
  for (size_t i = names.size(); i-- > 0;)
    if (names[i].first == name)
      return Found{false, names[i].second, to.areOfLanes[names[i].second]};
  if (auto at = entry.constants.find(name); at != entry.constants.end())
    return Found{true, at->second, false};
  return std::nullopt;
}

int Compiler::declare(const std::string &name, bool isOfLanes) {
  names.push_back({name, int(to.areOfLanes.size())});
  to.areOfLanes.push_back(isOfLanes ||
                          ofLanes.count(int(to.areOfLanes.size())));
  apartAt.push_back(apart);
  return names.back().second;
}

std::optional<Formula> Compiler::read(const std::string &text) {
  std::string unknown;
  return readFormula(text, *this, unknown);
}

Formula Compiler::need(const std::string &text) {
  std::string unknown;
  if (auto formula = readFormula(text, *this, unknown))
    return *formula;
  fail("known-numbers", "found '" + unknown + "' in '" + text +
                            "', which no op says; expected numbers that do");
  return {};
}

void Compiler::findMemory() {
  for (const RegisterArray &array : program.registers) {
    auto count = constantIn(need(array.count));
    to.registerNames.push_back(array.name);
    to.registers.push_back(count.value_or(0));
  }
  for (const Tiles &tiles : program.tiles) {
    if (!tiles.when.empty() && !constantIn(need(tiles.when)).value_or(1))
      continue;
    Compiled::Memory memory;
    memory.name = tiles.name;
    memory.count = constantIn(need(tiles.count)).value_or(0);
    memory.alignment = tiles.alignment;
    memory.came = tiles.came;
    memory.left = tiles.left;
    memory.isGlobal = tiles.isGlobal;
    memory.isMet = tiles.isMet;
    memory.isOwn = tiles.isOwn;
    memory.firstStage = int(to.stages.size());
    for (int64_t i = 0; i < memory.count; ++i)
      to.stages.push_back("place " + std::to_string(i) + " of " + tiles.name);
    to.memory.push_back(memory);
  }
}

std::optional<Node::Place> Compiler::placeOf(const Stage &stage) {
  if (stage.tiles.empty())
    return Node::Place{-1, 0, need(stage.stage)};
  for (const Compiled::Memory &memory : to.memory)
    if (memory.name == stage.tiles)
      return Node::Place{memory.firstStage, int(memory.count),
                         need(stage.stage)};
  fail("known-numbers", "found '" + stage.tiles +
                            "', which are no tiles; expected those of the "
                            "program");
  return std::nullopt;
}

int Compiler::registerArray(const std::string &name) {
  auto at = std::find(to.registerNames.begin(), to.registerNames.end(), name);
  if (at == to.registerNames.end()) {
    fail("known-numbers",
         "found '" + name +
             "', which are no registers; expected those of the "
             "program");
    return 0;
  }
  return int(at - to.registerNames.begin());
}

void Compiler::readNumbers(const Op &op, Node &node) {
  for (auto &[name, number] : op.numbers) {
    // The result of a function that nobody asks for.
    if (op.isOpen && !find(name))
      continue;
    Formula formula = need(number);
    int slot = 0;
    if (op.kind == Op::Assign) {
      auto found = find(name);
      if (!found || found->isConstant)
        return fail("known-numbers", "found '" + name +
                                         "' assigned; expected "
                                         "a name that an op declares");
      slot = int(found->value);
      findOfLanes(slot, formula);
    } else {
      slot = declare(name, formula.isOfLanes);
    }
    node.numbers.push_back({slot, std::move(formula)});
  }
}

void Compiler::findOfLanes(int slot, const Formula &formula) {
  bool isOfLanes = formula.isOfLanes || apart > apartAt[size_t(slot)];
  if (isOfLanes && !to.areOfLanes[size_t(slot)])
    hasMore |= ofLanes.insert(slot).second;
}

/// "--at, ++turn", "turns += n".
std::vector<Node::Assigned> Compiler::readSteps(const std::string &text) {
  std::vector<Node::Assigned> steps;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find(", ", at), text.size());
    std::string one = text.substr(at, end - at), name, number;
    if (one.rfind("++", 0) == 0 || one.rfind("--", 0) == 0) {
      name = one.substr(2);
      number = name + (one[0] == '+' ? " + 1" : " - 1");
    } else if (size_t sign = one.find(" += "); sign != std::string::npos) {
      name = one.substr(0, sign);
      number = name + " + (" + one.substr(sign + 4) + ")";
    }
    auto found = find(name);
    if (!found || found->isConstant)
      fail("known-numbers", "found the step '" + one +
                                "'; expected one of a name that is there");
    else {
      steps.push_back({int(found->value), need(number)});
      findOfLanes(int(found->value), steps.back().number);
    }
    at = end + 2;
  }
  return steps;
}

/// What text touches: registers by their names, tiles as they are read.
void Compiler::readText(const Op &op, Node &node) {
  std::string code = withoutComments(op.text);
  for (std::string_view name : kOfOps)
    if (findWord(code, name) != std::string::npos)
      fail("unmodelled", "found '" + std::string(name) +
                             "' in text; expected an op that says it");
  for (std::string_view name : kCollectives)
    node.isCollective |= findWord(code, name) != std::string::npos;
  for (size_t i = 0; i < to.registerNames.size(); ++i)
    if (findWord(code, to.registerNames[i]) != std::string::npos)
      node.touched.push_back(int(i));
  for (const Compiled::Memory &memory : to.memory) {
    bool hasGate = !memory.came.empty() || !memory.left.empty();
    if (hasGate && findWord(code, memory.name) != std::string::npos)
      fail("unmodelled", "found '" + memory.name +
                             "' in text; expected an op that accesses them");
  }
}

void Compiler::define(const Op &op) {
  Compiled::Lambda lambda;
  lambda.name = op.callee;
  lambda.parameters = op.numbers;
  size_t outside = names.size();
  for (auto &[name, type] : op.numbers) {
    if (type == "visit") {
      lambda.slots.push_back(declare(name + ".matrix", false));
      declare(name + ".rows", false);
      declare(name + ".number", false);
    } else if (!type.empty()) {
      lambda.slots.push_back(
          declare(type == "constant" ? name + ".value" : name, false));
    } else {
      lambda.slots.push_back(-1);
    }
  }
  int before = std::exchange(apartOutside, apart);
  lambda.body = readOps(op.body);
  apart = std::exchange(apartOutside, before);
  names.resize(outside);
  to.lambdas.push_back(std::move(lambda));
}

void Compiler::readCall(const Op &op, Node &node) {
  for (size_t i = to.lambdas.size(); i-- > 0 && node.callee < 0;)
    if (to.lambdas[i].name == op.callee)
      node.callee = int(i);
  if (node.callee < 0)
    return fail("known-numbers", "found a call of '" + op.callee +
                                     "'; expected a lambda of the program");
  const Compiled::Lambda &lambda = to.lambdas[size_t(node.callee)];
  if (lambda.parameters.size() != op.arguments.size())
    return fail("known-numbers",
                "found another number of arguments of '" + op.callee + "'");
  for (size_t i = 0; i < op.arguments.size(); ++i) {
    const std::string &argument = op.arguments[i];
    int slot = lambda.slots[i];
    if (lambda.parameters[i].second == "visit") {
      for (const char *part : {".matrix", ".rows", ".number"})
        node.numbers.push_back({slot++, need(argument + part)});
    } else if (slot >= 0) {
      std::string number = argument;
      if (number.rfind("Number<", 0) == 0)
        number = number.substr(7, number.size() - 7 - 3); // ">{}"
      node.numbers.push_back({slot, need(number)});
    }
  }
}

std::optional<Node> Compiler::readBranch(const Op &op) {
  Node node;
  node.op = &op;
  size_t outside = names.size();
  auto side = [&](const std::vector<Op> &ops) {
    std::vector<Node> nodes = readOps(ops);
    names.resize(outside);
    return nodes;
  };
  if (!op.isOpen) {
    node.condition = need(op.condition);
    // The side that is not there may say what this entry has not.
    if (auto known = constantIn(*node.condition)) {
      bool isTrue = *known != 0;
      node.body = isTrue ? side(op.body) : std::vector<Node>();
      node.otherwise = isTrue ? std::vector<Node>() : side(op.otherwise);
      return node;
    }
  }
  bool isApart = node.condition && node.condition->isOfLanes;
  int outer = apart;
  apart += isApart;
  int inner = apart;
  node.body = side(op.body);
  // Who has left a function is apart from who has not.
  bool hasLeft = apart > inner;
  apart = inner;
  node.otherwise = side(op.otherwise);
  hasLeft |= apart > inner;
  apart = outer + hasLeft;
  return node;
}

std::optional<Node> Compiler::readOp(const Op &op) {
  if (op.kind == Op::Branch)
    return readBranch(op);
  if (op.kind == Op::Define) {
    define(op);
    return std::nullopt;
  }
  Node node;
  node.op = &op;
  switch (op.kind) {
  case Op::Text:
    readText(op, node);
    if (node.touched.empty() && !node.isCollective)
      return std::nullopt;
    return node;
  case Op::Loop: {
    size_t outside = names.size();
    readNumbers(op, node);
    if (!op.condition.empty())
      node.condition = need(op.condition);
    int outer = apart;
    apart += node.condition && node.condition->isOfLanes;
    node.step = readSteps(op.step);
    node.body = readOps(op.body);
    for (auto &[name, number] : op.steps)
      if (auto found = find(name); found && !found->isConstant) {
        node.step.push_back({int(found->value), need(number)});
        findOfLanes(int(found->value), node.step.back().number);
      }
    apart = outer;
    names.resize(outside);
    return node;
  }
  case Op::Let:
  case Op::Assign:
    readNumbers(op, node);
    if (op.kind == Op::Assign && !op.step.empty())
      node.step = readSteps(op.step);
    return node;
  case Op::Call:
    readCall(op, node);
    return node;
  case Op::Return:
    apart += apart > apartOutside;
    return node;
  default:
    break;
  }
  // Of a gate without a name, `place` is where it is.
  node.isAddress = op.gate.empty() && op.isAtGate();
  if (!op.gate.empty()) {
    auto at = std::find(to.gates.begin(), to.gates.end(), op.gate);
    node.gate = int(at - to.gates.begin());
    if (at == to.gates.end())
      to.gates.push_back(op.gate);
  }
  if (!op.place.empty())
    node.place = need(op.place);
  if (!op.count.empty())
    node.count = need(op.count);
  if (!op.seen.empty())
    node.seen = need(op.seen);
  for (const std::string &bits : op.bits)
    node.bits.push_back(need(bits));
  if (!op.to.stage.empty())
    node.to = placeOf(op.to);
  for (const Stage &stage : op.reads)
    if (auto place = placeOf(stage))
      node.reads.push_back(*place);
  for (const std::string &name : op.sums)
    node.sums.push_back(registerArray(name));
  for (const std::string &name : op.factors)
    node.factors.push_back(registerArray(name));
  return node;
}

std::vector<Node> Compiler::readOps(const std::vector<Op> &ops) {
  std::vector<Node> nodes;
  for (const Op &op : ops)
    if (auto node = readOp(op))
      nodes.push_back(std::move(*node));
  return nodes;
}

Compiled Compiler::compile() {
  do {
    hasMore = false;
    apart = apartOutside = 0;
    apartAt.clear();
    names.clear();
    to = Compiled();
    findMemory();
    to.nodes = readOps(program.ops);
  } while (hasMore && !to.fault);
  size_t number = 0;
  for (const Tiles &tiles : program.tiles) {
    if (number == to.memory.size() || to.memory[number].name != tiles.name)
      continue;
    Compiled::Memory &memory = to.memory[number++];
    if (tiles.begin.empty())
      continue;
    memory.begin = need(tiles.begin);
    memory.bytes = need(tiles.bytes);
  }
  for (const Compiled::Memory &memory : to.memory)
    if (memory.name == "low_words")
      to.lowStage = memory.firstStage;
  return std::move(to);
}

Compiled refold::tile::compile(const Program &program, const Entry &entry) {
  return Compiler(program, entry).compile();
}
