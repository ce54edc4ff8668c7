// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls: functions of the text are followed, primitives are ops.
#include "Expand.h"

#include <algorithm>

using namespace refold::tile;
using namespace refold::tile::source;

//===----------------------------------------------------------------------===//
// Primitives
//===----------------------------------------------------------------------===//

namespace {
/// What a primitive is as an op, and which of its arguments say where.
struct Primitive {
  const char *name;
  Op::Kind kind;
  int to = -1, from = -1;      ///< places in shared memory
  int place = -1, count = -1;  ///< gates or barriers, and numbers
  bool countsTemplate = false; ///< the number is its template's
  int registers = -1;
  int vector = -1; ///< of its template: copied by vectors, written otherwise
  int bytes = 0;   ///< that each lane accesses where it says, no more
};
} // namespace

static constexpr Primitive kPrimitives[] = {
    {"make_gate", Op::MakeGate, -1, -1, 0, 1},
    {"wait_gate", Op::WaitGate, -1, -1, 0, 1},
    {"arrive", Op::Arrive, -1, -1, 0},
    {"arrive_with_copies", Op::ArriveWithCopies, -1, -1, 0},
    {"arrive_expecting", Op::ArriveExpecting, -1, -1, 0, 1},
    {"copy_box", Op::CopyBox, 0, 1, 2},
    {"make_map", Op::MakeMap, 0, 1},
    {"see_map", Op::SeeMap, -1, 0},
    {"store_box", Op::StoreBox, -1, 1},
    {"commit_boxes", Op::CommitBoxes},
    {"wait_boxes", Op::WaitBoxes, -1, -1, -1, -1, true},
    {"copy_async", Op::CopyRows, 0, -1, -1, -1, false, -1, -1, 16},
    {"take_async", Op::CopyRows, 0, -1, -1, -1, false, -1, -1, 16},
    {"copy_kept", Op::CopyRows, 0},
    {"copy_of_warp", Op::CopyRows, 0},
    {"copy_word_async", Op::CopyRows, 0},
    {"copy_words_async", Op::CopyRows, 0},
    {"copy_even_rows", Op::CopyRows, 0},
    {"copy_tile", Op::CopyRows, 0, -1, -1, -1, false, -1, 2},
    {"gather_tile", Op::CopyRows, 0, -1, -1, -1, false, -1, 2},
    {"copy_widened", Op::Write, 0},
    {"gather_widened", Op::Write, 0},
    {".bring", Op::CopyRows, 0},
    {"commit_copies", Op::CommitCopies},
    {"wait_copies", Op::WaitCopies, -1, -1, -1, -1, true},
    {"store_shared", Op::Write, 0, -1, -1, -1, false, -1, -1, 16},
    {"store_matrices", Op::Write, 0},
    {"load_shared", Op::Read, -1, 1, -1, -1, false, -1, -1, 16},
    {"load_kept", Op::Read, -1, 0},
    {"load_of_warp", Op::Read, -1, 0},
    {"load_matrices", Op::Read, -1, 1},
    {"load_transposed", Op::Read, -1, 1},
    {"load_rows", Op::Read, -1, 1},
    {"multiply_columns", Op::Read, -1, 2},
    {"show_matrices", Op::Fence},
    {"begin_products", Op::BeginProducts},
    {"commit_products", Op::CommitProducts},
    {"wait_products", Op::WaitProducts, -1, -1, -1, -1, true},
    {"settle", Op::Settle, -1, -1, -1, -1, false, 0},
    {"await_turn", Op::AwaitTurn, -1, -1, 0, 1},
    {"pass_turn", Op::PassTurn, -1, -1, 0, 1},
    {"give_registers", Op::GiveRegisters, -1, -1, -1, -1, true},
    {"take_registers", Op::TakeRegisters, -1, -1, -1, -1, true},
    {"block_barrier", Op::BlockBarrier},
    {"warp_barrier", Op::WarpBarrier},
    {"fence_blocks", Op::FenceBlocks},
    {"take_ticket", Op::TakeTicket},
    {"arrive_at_cluster", Op::ArriveAtCluster},
    {"wait_for_cluster", Op::WaitForCluster}};

/// Text that a warp says together, and what needs no op.
static const char *const kPlain[] = {
    "shuffle_xor", "shuffle_from",   "any_lane",      "of_warp",
    "store_quads", "exchange_quads", "follow_launch", "invite_launch",
    "thread",      "thread_again",   "block",         "blocks",
    "smaller",     "larger",         "describe",      "describe_step",
    "further"};

static const Primitive *findPrimitive(const CallText &call) {
  std::string name = call.object.empty() ? call.name : "." + call.name;
  auto *found =
      std::find_if(std::begin(kPrimitives), std::end(kPrimitives),
                   [&](const Primitive &one) { return name == one.name; });
  return found == std::end(kPrimitives) ? nullptr : found;
}

/// A call as it is written, for what the walk is told of it.
static std::string textOf(const CallText &call) {
  std::string text = call.object.empty() ? "" : join(call.object) + ".";
  text += call.name + "(";
  for (size_t i = 0; i < call.arguments.size(); ++i)
    text += (i ? "," : "") + join(call.arguments[i]);
  return text + ")";
}

/// The name that an array has, without its elements.
static std::string rootOf(const Tokens &text) {
  for (const std::string &token : text)
    if (isWord(token))
      return token.substr(0, token.find('?'));
  return "";
}

bool Expander::addPrimitive(const CallText &call, const ScopePtr &scope,
                            Tokens &result) {
  const Primitive *primitive = findPrimitive(call);
  if (!primitive)
    return false;
  auto textOf = [&](int which) {
    return which >= 0 && size_t(which) < call.arguments.size()
               ? join(folded(substitute(call.arguments[size_t(which)], scope)))
               : std::string();
  };
  int to = primitive->to;
  // Of parts of a tile that are brought one after the other.
  if (call.name == "bring" &&
      typeNames[join(substitute(call.object, scope))] == "Next")
    to = 2;
  Op::Kind kind = primitive->kind;
  if (primitive->vector >= 0) {
    size_t which = size_t(primitive->vector);
    auto vector =
        which < call.templates.size()
            ? constantOf(join(substitute(call.templates[which], scope)))
            : std::optional<int64_t>(1);
    if (vector == 1)
      kind = Op::Write;
  }
  Op &op = add(kind);
  op.text = join(substitute(Tokens{call.name}, scope));
  op.bytes = primitive->bytes;
  if (to >= 0)
    op.to = {"", textOf(to), ""};
  // Maps that launches have made are there.
  std::string from = textOf(primitive->from);
  if (!from.empty() && (kind != Op::CopyBox || isReadable(from)))
    op.reads = {{"", from, ""}};
  if (kind == Op::TakeTicket)
    op.count = "last_block";
  op.place = textOf(primitive->place);
  if (primitive->count >= 0)
    op.count = textOf(primitive->count);
  if (primitive->countsTemplate && !call.templates.empty())
    op.count = join(folded(substitute(call.templates[0], scope)));
  if (primitive->registers >= 0)
    op.sums = {rootOf(substitute(call.arguments[0], scope))};
  op.text = call.name + "(" + textOf(to >= 0 ? to : primitive->from) +
            op.place + (op.count.empty() ? "" : ", ") + op.count + ")";
  result = {};
  return true;
}

/// Products of a warp of tiles, of four warps of panels.
void Expander::addProducts(const CallText &call, const ScopePtr &scope) {
  auto read = [&](size_t which) {
    std::string at = join(folded(substitute(call.arguments[which], scope)));
    return Stage{"", at, ""};
  };
  if (call.name != "multiply_rows") {
    Op &op = add(Op::Multiply);
    op.sums = {rootOf(substitute(call.arguments[0], scope))};
    if (call.name.rfind("multiply_kept_", 0) == 0)
      op.factors = {rootOf(substitute(call.arguments[1], scope))};
    else
      op.reads = {read(1)};
    op.reads.push_back(read(2));
    // Of values that lie along the sum, 64 columns are a panel.
    constexpr std::string_view kAlong = "multiply_along_";
    if (call.name.rfind(kAlong, 0) == 0)
      op.panels = std::max(std::stoi(call.name.substr(kAlong.size())) / 64, 1);
    op.text = call.name + "(";
    for (const Stage &one : op.reads)
      op.text += one.stage + (&one == &op.reads.back() ? ")" : ", ");
    return;
  }
  // The left side is kept in registers, or not; between steps others go on.
  bool isKept = call.templates.size() > 3 &&
                constantOf(join(substitute(call.templates[3], scope))) == 1;
  constexpr int kSteps = 2;
  for (int part = 0; part < kSteps; ++part) {
    for (size_t which : {size_t(2), size_t(3)})
      if (which == 3 || !isKept) {
        Op &op = add(Op::Read);
        op.reads = {read(which)};
        op.text = call.name + "(" + op.reads[0].stage + ")";
      }
    if (call.arguments.size() < 5)
      continue;
    CallText between;
    ScopePtr declared = scope;
    const Tokens &lambda = call.arguments[4];
    const Function *callee = nullptr;
    between.arguments = {{std::to_string(part)}, {std::to_string(kSteps)}};
    if (lambda[0] == "[") {
      lambdas.push_back(std::make_unique<Function>(parseLambda(lambda)));
      callee = lambdas.back().get();
    } else {
      between.name = lambda.back();
      between.path = lambda;
      callee = calleeOf(between, scope, declared);
    }
    if (callee)
      followFunction(*callee, bindArguments(*callee, between, declared, scope));
  }
}

/// What a block leaves for others, and what it takes of all.
bool Expander::addParts(const CallText &call) {
  static const char *const kLeaving[] = {"leave", "leave_words"};
  static const char *const kTaking[] = {"take_left", "take_words",
                                        "take_words_if"};
  auto isOneOf = [&](const auto &names) {
    return std::find(std::begin(names), std::end(names), call.name) !=
           std::end(names);
  };
  if (isOneOf(kLeaving)) {
    Op &op = add(Op::Write);
    op.to = {"parts", "block()", ""};
    op.text = call.name + "()";
    return true;
  }
  if (!isOneOf(kTaking))
    return false;
  auto blocks = reading.numbers.find("parts");
  for (int64_t of = 0; blocks != reading.numbers.end() && of < blocks->second;
       ++of) {
    Op &op = add(Op::Read);
    op.reads = {{"parts", std::to_string(of), ""}};
    op.text = call.name + "()";
  }
  return true;
}

/// Numbers that all blocks add to; what they see there the walk is told.
bool Expander::addTicket(const CallText &call, const ScopePtr &scope) {
  struct Kind {
    const char *name;
    Op::Kind kind;
  };
  static constexpr Kind kKinds[] = {{"add_to_ticket", Op::AddToTicket},
                                    {"add_unless", Op::AddUnless},
                                    {"wait_for_bits", Op::AwaitTicket},
                                    {"clear_ticket", Op::ClearTicket}};
  auto *found =
      std::find_if(std::begin(kKinds), std::end(kKinds),
                   [&](const Kind &one) { return call.name == one.name; });
  if (found == std::end(kKinds) || !call.object.empty())
    return false;
  std::vector<std::string> given;
  for (const Tokens &argument : call.arguments)
    given.push_back(join(folded(substitute(argument, scope))));
  std::string written = textOf(call);
  Op &op = add(found->kind);
  op.text = written;
  op.place = given[0];
  if (op.kind == Op::AddToTicket || op.kind == Op::AddUnless)
    op.count = given[1];
  if (op.kind == Op::AddUnless)
    op.bits = {given[2], given[3]};
  if (auto answer = answerTo(written); answer && !isLoose(written))
    op.seen = join(folded(substitute(*answer, scope)));
  return true;
}

/// What blocks of a cluster send each other: a mailbox is two gates.
bool Expander::addAcross(const CallText &call, const ScopePtr &scope) {
  auto textOf = [&](size_t which) {
    return "(" + join(folded(substitute(call.arguments[which], scope))) + ")";
  };
  auto mailbox = [&](const std::string &exchange) {
    return Stage{join(substitute(call.arguments[0], scope)), exchange, ""};
  };
  auto byFirst = [&](Op::Kind kind, const Stage &gate,
                     const std::string &count) {
    Op one;
    one.kind = kind;
    one.to = gate;
    one.count = count;
    one.text = call.name + ": gate of " + gate.stage;
    Op &branch = add(Op::Branch);
    branch.condition = "thread() == 0";
    branch.body.push_back(std::move(one));
  };
  if (call.name == "open_mailbox") {
    byFirst(Op::MakeGate, mailbox("0"), "1");
    byFirst(Op::MakeGate, mailbox("1"), "1");
    add(Op::ArriveAtCluster).text = call.name + ": arrival";
    return true;
  }
  if (call.name == "receive_across") {
    Stage gate = mailbox(textOf(1) + " % 2");
    byFirst(Op::ArriveExpecting, gate, textOf(2));
    Op &wait = add(Op::WaitGate);
    wait.to = gate;
    wait.count = textOf(1) + " / 2 % 2";
    wait.text = call.name + ": wait";
    return true;
  }
  if (call.name != "send_across")
    return false;
  Op &op = add(Op::SendAcross);
  std::string array = join(substitute(call.arguments[2], scope));
  op.to = {array, textOf(4), ""};
  op.place = textOf(3);
  op.count = std::to_string(elementBytes[array]);
  op.reads = {mailbox(textOf(1) + " % 2")};
  op.text = call.name + "(" + array + ")";
  return true;
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

bool Expander::readCall(const Tokens &tokens, size_t at, CallText &call) const {
  size_t begin = at;
  if (!isWord(tokens[at]))
    return false;
  call = CallText();
  auto templatesAt = [&](size_t from) {
    size_t end = closingAngle(tokens, from);
    return end + 1 < tokens.size() &&
                   (tokens[end + 1] == "(" || tokens[end + 1] == "::")
               ? end
               : tokens.size();
  };
  size_t last = at; // of the name
  for (size_t next = at + 1; next < tokens.size();) {
    const std::string &token = tokens[next];
    if (token == "<") {
      size_t end = templatesAt(next);
      if (end == tokens.size())
        return false;
      if (tokens[end + 1] == "(")
        call.templates = splitAtCommas(Tokens(tokens.begin() + long(next) + 1,
                                              tokens.begin() + long(end)));
      next = end + 1;
    } else if (token == "::" || token == "." || token == "->") {
      if (token != "::")
        call.object =
            Tokens(tokens.begin() + long(begin), tokens.begin() + long(next));
      last = next + 1;
      if (last < tokens.size() && tokens[last] == "template")
        ++last;
      if (last >= tokens.size() || !isWord(tokens[last]))
        return false;
      next = last + 1;
    } else if (token == "(") {
      size_t end = closing(tokens, next);
      call.name = tokens[last];
      call.path =
          Tokens(tokens.begin() + long(begin), tokens.begin() + long(last) + 1);
      call.arguments = splitAtCommas(
          Tokens(tokens.begin() + long(next) + 1, tokens.begin() + long(end)));
      call.end = end + 1;
      return true;
    } else if (token == "[" && !call.object.empty()) {
      return false;
    } else {
      return false;
    }
  }
  return false;
}

const Function *Expander::calleeOf(const CallText &call, const ScopePtr &scope,
                                   ScopePtr &declared) {
  Binding *found = nullptr;
  Binding type;
  if (std::find(std::begin(kPlain), std::end(kPlain), call.name) !=
      std::end(kPlain))
    return nullptr;
  if (!call.object.empty()) {
    auto object = objects.find(join(substitute(call.object, scope)));
    if (object == objects.end())
      return nullptr;
    type = object->second;
  } else if (call.path.size() > 2) {
    type = typeOf(Tokens(call.path.begin(), call.path.end() - 2), scope);
  } else {
    found = lookUp(call.name, scope);
  }
  if (type.scope)
    if (auto at = type.scope->names.find(call.name);
        at != type.scope->names.end())
      found = &at->second;
  if (!found || found->calls.empty())
    return nullptr;
  declared = found->scope;
  // Of functions of one name, that of as many parameters.
  const Function *best = nullptr;
  for (const Function *one : found->calls) {
    size_t most = one->parameters.size(), least = most;
    while (least > 0 && (!one->parameters[least - 1].preset.empty() ||
                         one->parameters[least - 1].isPack))
      --least;
    bool isOpen = most > 0 && one->parameters.back().isPack &&
                  call.arguments.size() >= most;
    if (call.arguments.size() >= least && call.arguments.size() <= most)
      return one;
    if (isOpen && !best)
      best = one;
  }
  return best;
}

bool refold::tile::source::changes(const std::vector<Statement> &body,
                                   const std::string &name) {
  static const char *const kChanging[] = {
      "=", "+=", "-=", "*=", "/=", "|=", "^=", "&=", "++", "--"};
  auto isIn = [&](const Tokens &tokens) {
    for (size_t at = 0; at < tokens.size(); ++at)
      if (tokens[at] == name && (at == 0 || tokens[at - 1] != "."))
        for (const char *one : kChanging)
          if ((at + 1 < tokens.size() && tokens[at + 1] == one) ||
              (at > 0 && one[0] == one[1] && tokens[at - 1] == one))
            return true;
    return false;
  };
  return std::any_of(body.begin(), body.end(), [&](const Statement &one) {
    return isIn(one.tokens) || isIn(one.step) || changes(one.body, name) ||
           changes(one.otherwise, name);
  });
}

/// Numbers of a template that only arrays say that are given.
void Expander::deduceExtents(const Function &function, const CallText &call,
                             const ScopePtr &own, const ScopePtr &scope) {
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    const Parameter &parameter = function.parameters[i];
    if (parameter.extents.empty() || i >= call.arguments.size())
      continue;
    Tokens given = substitute(call.arguments[i], scope);
    auto known = given.empty() ? extents.end() : extents.find(given[0]);
    if (known == extents.end())
      continue;
    // "a[0]" is an array of what is left.
    size_t left = size_t(std::count(given.begin(), given.end(), "["));
    for (size_t at = 0; at < parameter.extents.size(); ++at) {
      const Tokens &extent = parameter.extents[at];
      bool isDeduced = extent.size() == 1 && left + at < known->second.size() &&
                       std::any_of(
                           function.templates.begin() +
                               long(std::min(call.templates.size(),
                                             function.templates.size())),
                           function.templates.end(),
                           [&](const Parameter &one) {
                             return one.name == extent[0] && !one.isPack;
                           });
      if (isDeduced)
        own->names[extent[0]].text = known->second[left + at];
    }
  }
}

ScopePtr Expander::bindArguments(const Function &function, const CallText &call,
                                 const ScopePtr &declared,
                                 const ScopePtr &scope) {
  ScopePtr own = inside(declared);
  // What the object has, by the names that its functions know; a function of
  // the same object needs not name it.
  if (!call.object.empty())
    own->object = join(substitute(call.object, scope));
  for (Scope *at = scope.get(); at && own->object.empty(); at = at->outer.get())
    if (auto same = objects.find(at->object);
        same != objects.end() && same->second.scope == declared)
      own->object = at->object;
  if (auto at = objects.find(own->object); at != objects.end())
    for (auto &[member, preset] : at->second.record->members)
      own->names[member].text = {own->object + "." + member};
  bindTemplates(function.templates, call.templates, own, scope);
  deduceExtents(function, call, own, scope);
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    const Parameter &parameter = function.parameters[i];
    Binding &binding = own->names[parameter.name];
    binding = Binding();
    bool isGiven = i < call.arguments.size();
    const Tokens &argument = isGiven ? call.arguments[i] : parameter.preset;
    const ScopePtr &from = isGiven ? scope : own;
    if (argument.empty()) {
      binding.text = {parameter.name + "?"};
      continue;
    }
    if (argument[0] == "[") {
      lambdas.push_back(std::make_unique<Function>(parseLambda(argument)));
      binding.calls = {lambdas.back().get()};
      binding.scope = from;
      continue;
    }
    if (Binding *known =
            argument.size() == 1 ? lookUp(argument[0], from) : nullptr;
        known && !known->calls.empty()) {
      binding = *known;
      continue;
    }
    Tokens text = folded(substitute(argument, from));
    if (!parameter.isReference && changes(function.body, parameter.name) &&
        isReadable(join(text))) {
      Op &op = add(Op::Let);
      std::string name = fresh(parameter.name);
      op.numbers = {{name, join(text)}};
      numbers.insert(name);
      text = {name};
    }
    binding.text = text;
  }
  return own;
}

/// The ops of a function, and what names its result; "" where nothing does.
std::string Expander::followFunction(const Function &function,
                                     const ScopePtr &own) {
  if (deep > 40) {
    fail("unmodelled", "found " + function.name + " within itself");
    return "";
  }
  ++deep;
  own->isFunction = true;
  own->result = fresh("result");
  std::vector<Op> *outside = ops;
  std::vector<Op> body;
  ops = &body;
  walk(function.body, own);
  ops = outside;
  --deep;
  bool hasResult = numbers.count(own->result) != 0;
  if (!isBusy(body) && !hasResult) {
    addAsText(std::move(body));
    return "";
  }
  if (hasResult) {
    Op &op = add(Op::Let);
    op.numbers = {{own->result, "0"}};
  }
  Op &define = add(Op::Define);
  define.callee = fresh(function.name.empty() ? "lambda" : function.name);
  define.body = std::move(body);
  std::string name = define.callee;
  add(Op::Call).callee = name;
  return hasResult ? own->result : "";
}

/// `isKnown`: whether it is a function or a primitive at all.
Tokens Expander::followCall(const CallText &call, const ScopePtr &scope,
                            bool &isKnown) {
  Tokens result = followKnown(call, scope, isKnown);
  if (!result.empty())
    return result;
  auto answer = answerTo(textOf(call));
  if (!answer || isLeftOut(textOf(call)))
    return {};
  answer->insert(answer->begin(), "(");
  answer->push_back(")");
  return *answer;
}

Tokens Expander::followKnown(const CallText &call, const ScopePtr &scope,
                             bool &isKnown) {
  Tokens result;
  isKnown = true;
  if (addPrimitive(call, scope, result))
    return result;
  bool isArray =
      !call.object.empty() && (call.name == "load" || call.name == "store");
  std::string array = join(substitute(call.object, scope));
  if (auto at = arrays.find(array); at != arrays.end())
    array = at->second;
  if (isArray && typeNames[array] == "Shared") {
    bool isStore = call.name == "store";
    Op &op = add(isStore ? Op::Write : Op::Read);
    std::string element = join(folded(substitute(call.arguments[0], scope)));
    Stage at{array, element, ""};
    op.text = at.tiles + "." + call.name + "(" + element + ")";
    if (isStore)
      op.to = at;
    else
      op.reads = {at};
    // What is there, where the walk is told; `times`: how often it was asked.
    auto given = reading.loads.find(at.tiles + "[" + element + "]");
    if (given == reading.loads.end())
      given = reading.loads.find(at.tiles);
    if (isStore || given == reading.loads.end())
      return {};
    Tokens found = readTokens("(" + given->second + ")");
    if (std::find(found.begin(), found.end(), "times") != found.end()) {
      std::string times = "times." + at.tiles, now = fresh("times");
      counted.insert(times);
      numbers.insert(times);
      add(Op::Let).numbers = {{now, times}};
      numbers.insert(now);
      add(Op::Assign).numbers = {{times, times + " + 1"}};
      std::replace(found.begin(), found.end(), std::string("times"), now);
    }
    return found;
  }
  if (addParts(call) || addTicket(call, scope) || addAcross(call, scope))
    return {};
  bool isProducts = call.name.rfind("multiply_shared_", 0) == 0 ||
                    call.name.rfind("multiply_along_", 0) == 0 ||
                    call.name.rfind("multiply_kept_", 0) == 0 ||
                    call.name.rfind("multiply_bytes_", 0) == 0 ||
                    call.name == "multiply_rows";
  if (isProducts) {
    addProducts(call, scope);
    return {};
  }
  ScopePtr declared;
  const Function *callee = calleeOf(call, scope, declared);
  if (!callee || isLeftOut(textOf(call))) {
    isKnown = false;
    return {};
  }
  ScopePtr own = bindArguments(*callee, call, declared, scope);
  const std::vector<Statement> &body = callee->body;
  bool isFormula = body.size() == 1 && body[0].kind == Statement::Simple &&
                   body[0].tokens.size() > 1 && body[0].tokens[0] == "return";
  if (isFormula) {
    // A formula stands where it is; what it accesses comes in front.
    Tokens value = substitute(
        follow(Tokens(body[0].tokens.begin() + 1, body[0].tokens.end()), own),
        own);
    isLastKnown = true;
    if (!isReadable(join(value)))
      return {};
    value.insert(value.begin(), "(");
    value.push_back(")");
    return value;
  }
  std::string name = followFunction(*callee, own);
  return name.empty() ? Tokens{} : Tokens{name};
}

/// "n++" of a number in a formula: what it was, and a step.
bool Expander::takeStep(const Tokens &tokens, size_t &at, const ScopePtr &scope,
                        Tokens &to) {
  if (at + 1 >= tokens.size() || tokens[at + 1] != "++" || !isWord(tokens[at]))
    return false;
  std::string name = join(substitute({tokens[at]}, scope));
  if (!numbers.count(name))
    return false;
  std::string before = fresh("before");
  add(Op::Let).numbers = {{before, name}};
  numbers.insert(before);
  add(Op::Assign).numbers = {{name, name + " + 1"}};
  to.push_back(before);
  at += 2;
  return true;
}

/// What a call behind "&&" is made under; "" where that cannot be read.
std::string Expander::guardOf(const Tokens &before, const ScopePtr &scope) {
  if (before.empty() || before.back() != "&&")
    return "";
  std::string guard =
      join(substitute(Tokens(before.begin(), before.end() - 1), scope));
  return isReadable(guard) ? guard : "";
}

Tokens Expander::follow(const Tokens &tokens, const ScopePtr &scope) {
  Tokens to;
  for (size_t at = 0; at < tokens.size();) {
    // A lambda is followed where it is called.
    if (size_t end = behindLambda(tokens, at); end > at) {
      to.insert(to.end(), tokens.begin() + long(at),
                tokens.begin() + long(end));
      at = end;
      continue;
    }
    CallText call;
    bool isMember = at > 0 && (tokens[at - 1] == "." || tokens[at - 1] == "::");
    if (!isMember && takeStep(tokens, at, scope, to))
      continue;
    if (isMember || !readCall(tokens, at, call)) {
      to.push_back(tokens[at++]);
      continue;
    }
    // What it is given comes first.
    for (Tokens &argument : call.arguments)
      argument = follow(argument, scope);
    bool isKnown = false;
    std::vector<Op> guarded, *outside = ops;
    std::string guard = guardOf(to, scope);
    if (!guard.empty())
      ops = &guarded;
    Tokens result = followCall(call, scope, isKnown);
    ops = outside;
    if (!guarded.empty()) {
      Op &branch = add(Op::Branch);
      branch.condition = guard;
      branch.body = std::move(guarded);
    }
    isLastKnown = isKnown;
    if (!result.empty()) {
      to.insert(to.end(), result.begin(), result.end());
    } else {
      // As it was, with what is known of its arguments.
      size_t open = call.end - 1;
      int balance = 0;
      do
        balance += tokens[open] == ")" ? 1 : tokens[open] == "(" ? -1 : 0;
      while (balance && open-- > at);
      to.insert(to.end(), tokens.begin() + long(at),
                tokens.begin() + long(open) + 1);
      for (size_t i = 0; i < call.arguments.size(); ++i) {
        if (i)
          to.push_back(",");
        to.insert(to.end(), call.arguments[i].begin(), call.arguments[i].end());
      }
      to.push_back(")");
    }
    at = call.end;
  }
  return to;
}
