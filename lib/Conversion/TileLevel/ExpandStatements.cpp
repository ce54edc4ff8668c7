// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Statements as ops: numbers that decide where threads go stay, the rest is
// text.
#include "Expand.h"

#include <algorithm>

using namespace refold::tile;
using namespace refold::tile::source;

static bool isJump(const Op &op) {
  return op.kind == Op::Return || op.kind == Op::Break ||
         op.kind == Op::Continue;
}

bool refold::tile::source::isBusy(const std::vector<Op> &ops) {
  return std::any_of(ops.begin(), ops.end(), [](const Op &op) {
    bool isNumber = op.kind == Op::Let || op.kind == Op::Text ||
                    op.kind == Op::Define ||
                    (op.kind == Op::Assign && op.isOpen);
    if (op.kind == Op::Loop || op.kind == Op::Branch)
      return isBusy(op.body) || isBusy(op.otherwise);
    return !isNumber && !isJump(op);
  });
}

/// The same, jumps included, but those that a loop inside has.
static bool decides(const std::vector<Op> &ops, bool isInLoop = false) {
  return isBusy(ops) || std::any_of(ops.begin(), ops.end(), [&](const Op &op) {
           if (op.kind == Op::Loop)
             return decides(op.body, true);
           if (op.kind == Op::Branch)
             return decides(op.body, isInLoop) ||
                    decides(op.otherwise, isInLoop);
           return op.kind == Op::Return || (!isInLoop && isJump(op));
         });
}

Op &Expander::add(Op::Kind kind) {
  ops->emplace_back();
  ops->back().kind = kind;
  return ops->back();
}

void Expander::addText(const Tokens &tokens) {
  if (!tokens.empty())
    add(Op::Text).text = join(tokens) + ";";
}

/// Names of numbers that are assigned; nothing where ops do more than that.
static bool findAssigned(const std::vector<Op> &ops,
                         std::set<std::string> &names) {
  for (const Op &op : ops) {
    if (op.kind == Op::Assign)
      for (auto &[name, number] : op.numbers)
        names.insert(name);
    else if (op.kind == Op::Loop || op.kind == Op::Branch) {
      for (auto &[name, number] : op.steps)
        names.insert(name);
      if (!findAssigned(op.body, names) || !findAssigned(op.otherwise, names))
        return false;
    } else if (op.kind != Op::Let && op.kind != Op::Text) {
      return false;
    }
  }
  return true;
}

/// What is left of ops that decide nothing: text, as lines behind each other.
void Expander::addAsText(std::vector<Op> from) {
  for (Op &op : from) {
    if (op.kind == Op::Text)
      ops->push_back(std::move(op));
    else if (op.kind == Op::Loop || op.kind == Op::Branch) {
      addAsText(std::move(op.body));
      addAsText(std::move(op.otherwise));
    }
  }
}

/// The longest of the beginnings that the walk is told something of.
static auto answerIn(const std::map<std::string, std::string> &answers,
                     const std::string &text) {
  auto best = answers.end();
  for (auto at = answers.begin(); at != answers.end(); ++at)
    if (text.rfind(at->first, 0) == 0 &&
        (best == answers.end() || at->first.size() > best->first.size()))
      best = at;
  return best;
}

/// What the walk is told of a call or a condition.
std::optional<Tokens> Expander::answerTo(const std::string &text) const {
  auto answer = answerIn(reading.answers, text);
  if (answer == reading.answers.end())
    return std::nullopt;
  size_t begin = isLoose(text) ? 1 : 0;
  return readTokens(answer->second.substr(begin));
}

/// Whether a call is text that nobody follows.
bool Expander::isLeftOut(const std::string &text) const {
  auto answer = answerIn(reading.answers, text);
  return answer != reading.answers.end() && answer->second == "!";
}

/// Whether it may be another number, which then decides nothing.
bool Expander::isLoose(const std::string &text) const {
  auto answer = answerIn(reading.answers, text);
  return answer != reading.answers.end() && answer->second[0] == '~';
}

std::vector<Op> Expander::collect(const std::vector<Statement> &statements,
                                  const ScopePtr &scope) {
  std::vector<Op> inner, *outside = ops;
  ops = &inner;
  walk(statements, scope);
  ops = outside;
  return inner;
}

void Expander::walk(const std::vector<Statement> &statements,
                    const ScopePtr &scope) {
  for (const Statement &statement : statements)
    if (!*fault)
      walkOne(statement, scope);
}

void Expander::walkOne(const Statement &statement, const ScopePtr &scope) {
  switch (statement.kind) {
  case Statement::Lambda:
    scope->names[statement.functions[0].name] = {
        {}, nullptr, {&statement.functions[0]}, scope};
    return;
  case Statement::Block:
    return walk(statement.body, inside(scope));
  case Statement::If:
    return walkIf(statement, scope);
  case Statement::For:
  case Statement::Each:
  case Statement::While:
    return walkLoop(statement, scope);
  case Statement::Simple:
    return walkSimple(statement.tokens, scope);
  }
}

//===----------------------------------------------------------------------===//
// Conditions and loops
//===----------------------------------------------------------------------===//

void Expander::walkIf(const Statement &statement, const ScopePtr &scope) {
  Tokens tokens = statement.tokens;
  // "if (--n < 0)": a step in front.
  if (tokens.size() > 1 && (tokens[0] == "--" || tokens[0] == "++")) {
    walkAssignment({tokens[0], tokens[1]}, scope);
    tokens.erase(tokens.begin());
  }
  std::string condition = join(substitute(follow(tokens, scope), scope));
  if (auto answer =
          isReadable(condition) ? std::nullopt : answerTo(join(tokens)))
    condition = join(substitute(*answer, scope));
  if (auto known = constantOf(condition))
    return walk(*known ? statement.body : statement.otherwise, inside(scope));
  Op branch;
  branch.kind = Op::Branch;
  branch.condition = condition;
  branch.body = collect(statement.body, inside(scope));
  branch.otherwise = collect(statement.otherwise, inside(scope));
  branch.hasOtherwise = statement.hasOtherwise;
  bool isKnown = isReadable(condition);
  if (!decides(branch.body) && !decides(branch.otherwise)) {
    addText(isKnown ? Tokens() : Tokens{condition});
    if (!isKnown) {
      addAsText(std::move(branch.body));
      addAsText(std::move(branch.otherwise));
      return;
    }
  }
  // Numbers that such a condition decides are known no more.
  std::set<std::string> assigned;
  if (!isKnown && findAssigned(branch.body, assigned) &&
      findAssigned(branch.otherwise, assigned)) {
    for (const std::string &name : assigned)
      numbers.erase(name);
    addAsText(std::move(branch.body));
    addAsText(std::move(branch.otherwise));
    return;
  }
  branch.isOpen = !isKnown;
  bool isListed = statement.isConstant ||
                  std::any_of(reading.open.begin(), reading.open.end(),
                              [&](const std::string &one) {
                                return condition.find(one) != std::string::npos;
                              });
  if (!isKnown && !isListed)
    fail("known-numbers", "found the condition '" + condition +
                              "'; expected numbers that ops say");
  ops->push_back(std::move(branch));
}

void Expander::walkLoop(const Statement &statement, const ScopePtr &outer) {
  ScopePtr scope = inside(outer);
  Op loop;
  loop.kind = Op::Loop;
  loop.isApart = true;
  if (statement.kind == Statement::Each) {
    // for (T &x : array): some text that is done for each.
    auto colon = std::find(statement.begin.begin(), statement.begin.end(), ":");
    if (colon != statement.begin.begin())
      scope->names[*(colon - 1)].text =
          Tokens(colon + 1, statement.begin.end());
    std::vector<Op> body = collect(statement.body, scope);
    if (decides(body))
      fail("unmodelled", "found a loop over an array that decides more than "
                         "numbers");
    return addAsText(std::move(body));
  }
  if (!statement.begin.empty())
    walkSimple(statement.begin, scope);
  Tokens tokens =
      statement.isBehind ? statement.tokens : follow(statement.tokens, scope);
  loop.condition = join(substitute(tokens, scope));
  bool isKnown = loop.condition.empty() || isReadable(loop.condition);
  loop.body = collect(statement.body, scope);
  for (const Tokens &step : splitAtCommas(statement.step))
    walkAssignment(step, scope, &loop.steps);
  if (statement.isBehind) {
    std::vector<Op> *outside = ops;
    ops = &loop.body;
    Tokens last = follow(statement.tokens, scope);
    loop.condition = "";
    Op end;
    end.kind = Op::Branch;
    end.condition = "!(" + join(substitute(last, scope)) + ")";
    end.body.emplace_back();
    end.body[0].kind = Op::Break;
    isKnown = isReadable(end.condition);
    ops->push_back(std::move(end));
    ops = outside;
  }
  if (!decides(loop.body, true))
    return addAsText(std::move(loop.body));
  std::set<std::string> assigned;
  if (!isKnown && findAssigned(loop.body, assigned)) {
    for (const std::string &name : assigned)
      numbers.erase(name);
    return addAsText(std::move(loop.body));
  }
  if (!isKnown)
    fail("known-numbers", "found a loop while '" + loop.condition +
                              "'; expected numbers that ops say");
  ops->push_back(std::move(loop));
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

/// "x = 1", "x{1}", "x": a number where it can be read.
void Expander::declareNumber(const Tokens &declarator, bool isConstant,
                             const ScopePtr &scope) {
  const std::string &name = declarator[0];
  Tokens value;
  if (declarator.size() > 2 && declarator[1] == "=")
    value = Tokens(declarator.begin() + 2, declarator.end());
  value = folded(substitute(follow(value, scope), scope));
  std::string text = join(value);
  // What is given counts more than what the text says.
  if (auto given = reading.numbers.find(name); given != reading.numbers.end()) {
    scope->names[name] = {{std::to_string(given->second)}, nullptr, {}, {}};
    return;
  }
  Binding &binding = scope->names[name];
  binding = Binding();
  bool isArray = declarator.size() > 1 && declarator[1] == "[";
  if (declarator.size() == 1) {
    // A number where something that can be read is assigned to it first.
    std::string own = fresh(name);
    add(Op::Let).numbers = {{own, "0"}};
    empty.insert(own);
    binding.text = {own};
    return;
  }
  if (isArray)
    declareExtents(declarator, scope);
  if (value.empty() || isArray || !isReadable(text)) {
    binding.text = {name + "?"};
    addText(value);
    return;
  }
  if (isConstant && constantOf(text)) {
    binding.text = value;
    return;
  }
  std::string own = fresh(name);
  add(Op::Let).numbers = {{own, text}};
  numbers.insert(own);
  binding.text = {own};
}

/// Whether the walk is told what an object has.
bool Expander::hasGivenMembers(const std::string &name) const {
  auto member = reading.numbers.lower_bound(name + ".");
  return member != reading.numbers.end() &&
         member->first.rfind(name + ".", 0) == 0;
}

/// How long an array is, for templates that are found from it.
void Expander::declareExtents(const Tokens &declarator, const ScopePtr &scope) {
  std::vector<Tokens> &all = extents[declarator[0] + "?"];
  all.clear();
  for (size_t at = 1; at < declarator.size() && declarator[at] == "[";) {
    size_t end = closing(declarator, at);
    all.push_back(folded(substitute(Tokens(declarator.begin() + long(at) + 1,
                                           declarator.begin() + long(end)),
                                    scope)));
    at = end + 1;
  }
}

/// Whether a pointer begins as a number: of tickets, of maps.
bool Expander::isAddress(const Tokens &declarator, const ScopePtr &scope) {
  return declarator.size() > 2 && declarator[1] == "=" &&
         isReadable(join(substitute(
             Tokens(declarator.begin() + 2, declarator.end()), scope)));
}

/// An object of a type that is known, or of one that is only named.
bool Expander::declareObject(const Tokens &type, const Tokens &declarator,
                             const ScopePtr &scope, bool isPointer) {
  const std::string &name = declarator[0];
  std::string own = fresh(name);
  Binding record = typeOf(type, scope);
  bool isKnown = record.scope && !record.record->members.empty() &&
                 !isPointer && !(declarator.size() > 1 && declarator[1] == "[");
  if (!isKnown) {
    typeNames[name + "?"] = type.empty() ? "" : type[0];
    scope->names[name].text = {name + (hasGivenMembers(name) ? "" : "?")};
    declareExtents(declarator, scope);
    addText(substitute(follow(declarator, scope), scope));
    return true;
  }
  objects[own] = record;
  typeNames[own] = record.record->name;
  std::vector<Tokens> given;
  if (declarator.size() > 2 && (declarator[1] == "(" || declarator[1] == "{"))
    given = splitAtCommas(Tokens(declarator.begin() + 2, declarator.end() - 1));
  auto set = [&](const std::string &member, const Tokens &value) {
    std::string text = join(folded(value));
    std::string full = own + "." + member;
    if (auto at = typeNames.find(text);
        at != typeNames.end() && at->second == "Shared")
      arrays[full] = text;
    if (text.empty() || !isReadable(text))
      return;
    add(Op::Let).numbers = {{full, text}};
    numbers.insert(full);
  };
  const Function *constructor = nullptr;
  for (const Function &function : record.record->functions)
    if (function.name == record.record->name &&
        function.parameters.size() == given.size())
      constructor = &function;
  // "T x = y" of an object.
  if (declarator.size() > 2 && declarator[1] == "=") {
    std::string from = join(
        substitute(Tokens(declarator.begin() + 2, declarator.end()), scope));
    for (auto &[member, preset] : record.record->members)
      set(member, {from + "." + member});
  } else if (constructor && !constructor->parameters.empty()) {
    CallText call;
    call.arguments = given;
    ScopePtr inner = bindArguments(*constructor, call, record.scope, scope);
    inner->object = own;
    for (auto &[member, value] : constructor->members) {
      // Members that have been set, but for parameters of their name.
      set(member, substitute(value, inner));
      if (!std::any_of(constructor->parameters.begin(),
                       constructor->parameters.end(),
                       [&, &member = member](const Parameter &one) {
                         return one.name == member;
                       }))
        inner->names[member].text = {own + "." + member};
    }
    // Others: as they are declared, or as its body sets them.
    for (auto &[member, preset] : record.record->members) {
      bool isSet =
          std::any_of(constructor->members.begin(), constructor->members.end(),
                      [&, &member = member](const auto &one) {
                        return one.first == member;
                      });
      if (isSet || (preset.empty() && !changes(constructor->body, member)))
        continue;
      set(member,
          preset.empty() ? Tokens{"0"} : substitute(preset, record.scope));
      inner->names[member].text = {own + "." + member};
    }
    walk(constructor->body, inner);
  } else {
    for (size_t i = 0; i < record.record->members.size(); ++i) {
      auto &[member, preset] = record.record->members[i];
      set(member, i < given.size() ? substitute(follow(given[i], scope), scope)
                                   : substitute(preset, record.scope));
    }
  }
  scope->names[name] = {{own}, nullptr, {}, {}};
  return true;
}

bool Expander::walkDeclaration(const Tokens &tokens, const ScopePtr &scope) {
  static const std::set<std::string> kNumbers = {
      "int",      "int64_t", "int32_t", "uint32_t",
      "uint64_t", "bool",    "Column",  "auto"};
  size_t at = 0;
  bool isConstant = false;
  while (at < tokens.size() &&
         (tokens[at] == "const" || tokens[at] == "constexpr" ||
          tokens[at] == "static")) {
    isConstant = true;
    ++at;
  }
  if (at + 1 < tokens.size() && tokens[at] == "unsigned" &&
      tokens[at + 1] == "char")
    ++at;
  size_t begin = at;
  // The type: "A::B<...>", and what follows it.
  for (; at < tokens.size(); ++at) {
    if (tokens[at] == "decltype")
      at = closing(tokens, at + 1);
    else if (tokens[at] == "<")
      at = closingAngle(tokens, at);
    else if (!isWord(tokens[at]) && tokens[at] != "::")
      break;
    bool isPath = at + 1 < tokens.size() &&
                  (tokens[at + 1] == "::" || tokens[at + 1] == "<" ||
                   tokens[at] == "::" || tokens[at] == "typename" ||
                   (tokens[at] == "decltype" && tokens[at + 1] == "("));
    if (!isPath) {
      ++at;
      break;
    }
  }
  if (at >= tokens.size() || at == begin)
    return false;
  Tokens type(tokens.begin() + long(begin), tokens.begin() + long(at));
  if (type[0] == "return" || type[0] == "asm")
    return false;
  bool isReference = false, isPointer = false;
  while (at < tokens.size() &&
         (tokens[at] == "&" || tokens[at] == "*" || tokens[at] == "const")) {
    isReference |= tokens[at] != "const";
    isPointer |= tokens[at] == "*";
    ++at;
  }
  if (at >= tokens.size())
    return false;
  if (tokens[at] == "[" && type[0] == "auto") {
    // Several names at once, which are what the walk is told.
    size_t end = closing(tokens, at);
    for (size_t i = at + 1; i < end; i += 2) {
      auto given = reading.numbers.find(tokens[i]);
      scope->names[tokens[i]].text = {given == reading.numbers.end()
                                          ? tokens[i] + "?"
                                          : std::to_string(given->second)};
    }
    return true;
  }
  bool isName =
      isWord(tokens[at]) && (at + 1 == tokens.size() || tokens[at + 1] == "=" ||
                             tokens[at + 1] == "(" || tokens[at + 1] == "{" ||
                             tokens[at + 1] == "[" || tokens[at + 1] == ",");
  if (!isName)
    return false;
  Tokens rest(tokens.begin() + long(at), tokens.end());
  for (const Tokens &declarator : splitAtCommas(rest)) {
    if (type[0] == "Number") {
      Tokens number = type;
      number.insert(number.end(), {"{", "}"});
      scope->names[declarator[0]].text = substitute(number, scope);
    } else if (kNumbers.count(join(type)) && !isReference) {
      declareNumber(declarator, isConstant, scope);
    } else if (isPointer && isAddress(declarator, scope)) {
      declareNumber(declarator, isConstant, scope);
    } else if (type[0] == "auto" && declarator.size() == 3) {
      scope->names[declarator[0]].text = substitute({declarator[2]}, scope);
    } else {
      declareObject(type, declarator, scope, isPointer);
    }
  }
  return true;
}

/// "x = 1", "x += 1", "++x" of a number; `steps`: of a loop.
bool Expander::walkAssignment(const Tokens &tokens, const ScopePtr &scope,
                              std::vector<Number> *steps) {
  Tokens name, value;
  std::string sign;
  if (tokens.size() >= 2 && (tokens[0] == "++" || tokens[0] == "--")) {
    name = Tokens(tokens.begin() + 1, tokens.end());
    sign = tokens[0].substr(0, 1);
    value = {"1"};
  } else if (tokens.size() >= 2 &&
             (tokens.back() == "++" || tokens.back() == "--")) {
    name = Tokens(tokens.begin(), tokens.end() - 1);
    sign = tokens.back().substr(0, 1);
    value = {"1"};
  } else {
    size_t at = 1;
    while (at + 1 < tokens.size() && tokens[at] == ".")
      at += 2;
    if (at + 1 >= tokens.size() || tokens[at].back() != '=' ||
        tokens[at] == "==" || tokens[at] == "!=" || tokens[at] == "<=" ||
        tokens[at] == ">=")
      return false;
    name = Tokens(tokens.begin(), tokens.begin() + long(at));
    sign = tokens[at].substr(0, tokens[at].size() - 1);
    value = Tokens(tokens.begin() + long(at) + 1, tokens.end());
  }
  std::string to = join(substitute(name, scope));
  bool isFirst = empty.erase(to) && sign.empty();
  if (!isFirst && !numbers.count(to))
    return false;
  std::string text = join(substitute(follow(value, scope), scope));
  if (!sign.empty())
    text = to + " " + sign + " (" + text + ")";
  if (!isReadable(text)) {
    // Nothing that is asked of it later can be followed.
    numbers.erase(to);
    add(Op::Text).text = text + ";";
    return true;
  }
  numbers.insert(to);
  if (steps)
    steps->push_back({to, text});
  else
    add(Op::Assign).numbers = {{to, text}};
  return true;
}

//===----------------------------------------------------------------------===//
// Others
//===----------------------------------------------------------------------===//

void Expander::walkReturn(const Tokens &tokens, const ScopePtr &scope) {
  if (tokens.size() > 1) {
    Tokens value = follow(Tokens(tokens.begin() + 1, tokens.end()), scope);
    std::string text = join(substitute(value, scope));
    Scope *function = scope.get();
    while (function && !function->isFunction)
      function = function->outer.get();
    if (function && !function->result.empty() && isReadable(text)) {
      Op &op = add(Op::Assign);
      op.numbers = {{function->result, text}};
      op.isOpen = true;
      numbers.insert(function->result);
    } else {
      addText(Tokens{text});
    }
  }
  add(Op::Return);
}

/// Arrays of shared memory that have a name: one place an element.
void Expander::addShared(const Tokens &tokens, const ScopePtr &scope) {
  size_t end = closing(tokens, 1);
  std::vector<Tokens> arguments =
      splitAtCommas(Tokens(tokens.begin() + 2, tokens.begin() + long(end)));
  bool isBytes = tokens[0] == "REFOLD_SHARED_BYTES";
  bool isMailbox = tokens[0] == "REFOLD_MAILBOX";
  bool isGates = tokens[0] == "REFOLD_GATES";
  const Tokens &named = arguments[isBytes || isMailbox || isGates ? 0 : 1];
  const std::string &name = named[0];
  if (isBytes) {
    scope->names[name].text = {"0"};
    return;
  }
  if (isGates) // where the walk is told
    return declareNumber(named, true, scope);
  scope->names[name].text = {name};
  typeNames[name] = isMailbox ? "Mailbox" : "Shared";
  bool isLong =
      arguments[0] == Tokens{"double"} || arguments[0] == Tokens{"int64_t"};
  elementBytes[name] = isLong ? 8 : 4;
  bool isThere =
      std::any_of(program.tiles.begin(), program.tiles.end(),
                  [&](const Tiles &tiles) { return tiles.name == name; });
  if (isThere)
    return;
  Tiles tiles;
  tiles.name = name;
  tiles.count = isMailbox ? "2" : join(folded(substitute(arguments[2], scope)));
  tiles.isMet = true;
  program.tiles.push_back(tiles);
}

void Expander::walkSimple(Tokens tokens, const ScopePtr &scope) {
  while (tokens.size() > 2 && tokens[0] == "[" && tokens[1] == "[")
    tokens.erase(tokens.begin(), tokens.begin() + long(closing(tokens, 0)) + 1);
  if (tokens.empty() || tokens[0] == "static_assert" || tokens[0] == "asm")
    return;
  if (tokens[0] == "return")
    return walkReturn(tokens, scope);
  if (tokens[0] == "break" || tokens[0] == "continue") {
    add(tokens[0] == "break" ? Op::Break : Op::Continue);
    return;
  }
  if (tokens[0] == "using")
    return declareConstant(tokens, scope);
  if (tokens[0] == "REFOLD_SHARED" || tokens[0] == "REFOLD_SHARED_BYTES" ||
      tokens[0] == "REFOLD_MAILBOX" || tokens[0] == "REFOLD_GATES")
    return addShared(tokens, scope);
  if (walkDeclaration(tokens, scope) || walkAssignment(tokens, scope))
    return;
  CallText call;
  bool isCall = readCall(tokens, 0, call) && call.end == tokens.size();
  Tokens followed = follow(tokens, scope);
  if (!isCall) {
    addText(substitute(followed, scope));
    return;
  }
  // What is followed says what it does; others are text.
  if (!isLastKnown)
    addText(substitute(followed, scope));
}

Program Expander::run(std::optional<Fault> &found) {
  fault = &found;
  program.tiles = reading.tiles;
  program.registers = reading.registers;
  ops = &program.ops;
  for (const std::string &text : reading.texts)
    parse(text, unit);
  declareUnit();
  // "F<...>::run": its parameters are what the walk is told.
  Tokens name = readTokens(reading.function);
  name.insert(name.end(), {"(", ")"});
  CallText call;
  ScopePtr declared;
  const Function *function = nullptr;
  if (readCall(name, 0, call)) {
    Binding type;
    Binding *binding = nullptr;
    if (call.path.size() > 2)
      type = typeOf(Tokens(call.path.begin(), call.path.end() - 2), global);
    if (type.scope && type.scope->names.count(call.name))
      binding = &type.scope->names[call.name];
    else if (call.path.size() <= 2)
      binding = lookUp(call.name, global);
    if (binding && !binding->calls.empty()) {
      function = binding->calls[0];
      declared = binding->scope;
    }
  }
  if (!function) {
    fail("unmodelled", "found no function '" + reading.function + "'");
    return std::move(program);
  }
  ScopePtr own = inside(declared);
  bindTemplates(function->templates, call.templates, own, global);
  for (const Parameter &parameter : function->parameters) {
    auto given = reading.numbers.find(parameter.name);
    if (given == reading.numbers.end()) {
      own->names[parameter.name].text = {
          parameter.name + (hasGivenMembers(parameter.name) ? "" : "?")};
    } else if (std::string own_name = fresh(parameter.name); true) {
      add(Op::Let).numbers = {{own_name, std::to_string(given->second)}};
      numbers.insert(own_name);
      own->names[parameter.name].text = {own_name};
    }
  }
  own->isFunction = true;
  walk(function->body, own);
  for (const std::string &times : counted) {
    Op op;
    op.kind = Op::Let;
    op.numbers = {{times, "0"}};
    program.ops.insert(program.ops.begin(), op);
  }
  return std::move(program);
}

Program refold::tile::readProgram(const Reading &reading,
                                  std::optional<Fault> &fault) {
  return Expander(reading).run(fault);
}
