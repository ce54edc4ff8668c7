// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Names in their scopes, and types with the numbers that their templates
// decide.
#include "Expand.h"

#include <algorithm>

using namespace refold::tile;
using namespace refold::tile::source;

//===----------------------------------------------------------------------===//
// Scopes
//===----------------------------------------------------------------------===//

ScopePtr Expander::inside(const ScopePtr &scope) {
  auto inner = std::make_shared<Scope>();
  inner->outer = scope;
  return inner;
}

Binding *Expander::lookUp(const std::string &name, const ScopePtr &scope) {
  for (Scope *at = scope.get(); at; at = at->outer.get())
    if (auto found = at->names.find(name); found != at->names.end())
      return &found->second;
  return nullptr;
}

void Expander::fail(const std::string &rule, const std::string &detail) {
  if (!*fault)
    *fault = Fault{rule, detail};
}

std::string Expander::fresh(const std::string &name) {
  return name + "_" + std::to_string(++number);
}

void Expander::declareUnit() {
  global = std::make_shared<Scope>();
  for (const Record &record : unit.records)
    global->names[record.name] = {{}, &record, {}, global};
  for (const Function &function : unit.functions) {
    Binding &binding = global->names[function.name];
    binding.calls.push_back(&function);
    binding.scope = global;
  }
  for (const Statement &constant : unit.constants)
    declareConstant(constant.tokens, global);
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

std::optional<Names::Found> Expander::find(const std::string &name) const {
  if (auto at = reading.numbers.find(name); at != reading.numbers.end())
    return Found{true, at->second, false};
  if (numbers.count(name))
    return Found{false, 0, false};
  return std::nullopt;
}

bool Expander::isReadable(const std::string &text) const {
  std::string unknown;
  return readFormula(text, *this, unknown).has_value();
}

std::optional<int64_t> Expander::constantOf(const std::string &text) const {
  std::string unknown;
  auto formula = readFormula(text, *this, unknown);
  return formula ? constantIn(*formula) : std::nullopt;
}

Tokens Expander::folded(const Tokens &tokens) const {
  if (auto constant = constantOf(join(tokens)))
    return {std::to_string(*constant)};
  return tokens;
}

/// What `Number<n>{}` is, by its `value`.
static std::optional<Tokens> literalOf(const Tokens &text) {
  if (text.size() < 6 || text[0] != "Number" || text[1] != "<")
    return std::nullopt;
  return Tokens(text.begin() + 2, text.end() - 3);
}

static void append(Tokens &to, const Tokens &text) {
  bool isOne = text.size() == 1 || text[0] == "Number";
  if (!isOne)
    to.push_back("(");
  to.insert(to.end(), text.begin(), text.end());
  if (!isOne)
    to.push_back(")");
}

/// Goes on behind a name: what it stands for is added to `to`.
size_t Expander::substituteName(const Tokens &tokens, size_t at,
                                const ScopePtr &scope, Tokens &to) {
  const std::string &name = tokens[at];
  Binding *binding = lookUp(name, scope);
  if (!binding) {
    to.push_back(name);
    return at + 1;
  }
  if (!binding->text.empty()) {
    // A number of its type.
    auto object = objects.find(join(binding->text));
    if (object != objects.end() && at + 2 < tokens.size() &&
        tokens[at + 1] == ".") {
      auto &names = object->second.scope->names;
      if (auto constant = names.find(tokens[at + 2]);
          constant != names.end() && !constant->second.text.empty()) {
        append(to, constant->second.text);
        return at + 3;
      }
    }
    auto value = literalOf(binding->text);
    bool isAsked = at + 2 < tokens.size() && tokens[at + 1] == "." &&
                   tokens[at + 2] == "value";
    append(to, value && isAsked ? *value : binding->text);
    return at + (value && isAsked ? 3 : 1);
  }
  // A type, up to its number or function; or a function.
  size_t end = at + 1;
  while (end < tokens.size() && tokens[end] != "(" &&
         (isWord(tokens[end]) || tokens[end] == "::" || tokens[end] == "<")) {
    if (tokens[end] != "<") {
      ++end;
      continue;
    }
    size_t deep = 0, from = end;
    do
      deep += tokens[end] == "<" ? 1 : tokens[end] == ">" ? size_t(-1) : 0;
    while (++end < tokens.size() && deep);
    if (deep) {
      end = from;
      break;
    }
  }
  CallText call;
  if (end < tokens.size() && tokens[end] == "(" && readCall(tokens, at, call)) {
    ScopePtr declared;
    const Function *callee = calleeOf(call, scope, declared);
    bool isFormula = callee && callee->body.size() == 1 &&
                     callee->body[0].kind == Statement::Simple &&
                     callee->body[0].tokens.size() > 1 &&
                     callee->body[0].tokens[0] == "return";
    if (isFormula && ++deep < 40) {
      const Tokens &body = callee->body[0].tokens;
      Tokens value = substitute(Tokens(body.begin() + 1, body.end()),
                                bindArguments(*callee, call, declared, scope));
      append(to, folded(value));
      --deep;
      return call.end;
    }
  }
  size_t last = end;
  while (last > at && tokens[last - 1] != "::")
    --last;
  if (last > at + 1) {
    Binding type = typeOf(
        Tokens(tokens.begin() + long(at), tokens.begin() + long(last) - 1),
        scope);
    if (type.scope && last < tokens.size())
      if (auto found = type.scope->names.find(tokens[last]);
          found != type.scope->names.end() && !found->second.text.empty()) {
        append(to, found->second.text);
        return last + 1;
      }
  }
  to.insert(to.end(), tokens.begin() + long(at), tokens.begin() + long(at) + 1);
  return at + 1;
}

Tokens Expander::substitute(const Tokens &tokens, const ScopePtr &scope) {
  Tokens to;
  for (size_t at = 0; at < tokens.size();) {
    const std::string &token = tokens[at];
    bool isMember =
        at > 0 && (tokens[at - 1] == "." || tokens[at - 1] == "->" ||
                   tokens[at - 1] == "::");
    // A lambda has names of its own.
    if (size_t end = behindLambda(tokens, at); end > at) {
      to.insert(to.end(), tokens.begin() + long(at),
                tokens.begin() + long(end));
      at = end;
    } else if (token == "decltype" && at + 1 < tokens.size()) {
      // decltype(n)::value, n being a Number.
      size_t end = closing(tokens, at + 1);
      auto value = literalOf(substitute(
          Tokens(tokens.begin() + long(at) + 2, tokens.begin() + long(end)),
          scope));
      bool isAsked = value && end + 2 < tokens.size() &&
                     tokens[end + 1] == "::" && tokens[end + 2] == "value";
      if (isAsked)
        append(to, *value);
      else
        to.push_back(token);
      at = isAsked ? end + 3 : at + 1;
    } else if (token == "sizeof" && at + 3 < tokens.size() &&
               tokens[at + 1] == "." && tokens[at + 2] == ".") {
      // Of functions of any number of things, one is followed.
      to.push_back("0");
      at = closing(tokens, at + 4) + 1;
    } else if (isWord(token) && !isMember && token != "template" &&
               token != "typename") {
      at = substituteName(tokens, at, scope, to);
    } else {
      if (token != "template" && token != "typename")
        to.push_back(token);
      ++at;
    }
  }
  return to;
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

void Expander::bindTemplates(const std::vector<Parameter> &templates,
                             const std::vector<Tokens> &given,
                             const ScopePtr &to, const ScopePtr &scope) {
  for (size_t i = 0; i < templates.size(); ++i) {
    const Parameter &parameter = templates[i];
    bool isGiven = i < given.size();
    if (!isGiven && parameter.preset.empty())
      continue;
    const Tokens &argument = isGiven ? given[i] : parameter.preset;
    const ScopePtr &from = isGiven ? scope : to;
    if (parameter.isReference) {
      Binding type = typeOf(argument, from);
      if (type.scope)
        to->names[parameter.name] = type;
      else
        to->names[parameter.name].text = substitute(argument, from);
    } else {
      to->names[parameter.name].text = folded(substitute(argument, from));
    }
  }
}

/// "using A = B<...>", "static constexpr int a = 1, b = 2".
void Expander::declareConstant(const Tokens &tokens, const ScopePtr &scope) {
  auto equals = std::find(tokens.begin(), tokens.end(), "=");
  if (equals == tokens.end() || equals - tokens.begin() < 2)
    return;
  if (tokens[0] == "using") {
    Tokens type(equals + 1, tokens.end());
    Binding found = typeOf(type, scope);
    if (found.scope)
      scope->names[tokens[1]] = found;
    return;
  }
  // Behind the type comes the first name.
  Tokens list(equals - 1, tokens.end());
  for (const Tokens &one : splitAtCommas(list))
    if (one.size() > 2 && one[1] == "=")
      scope->names[one[0]].text =
          folded(substitute(Tokens(one.begin() + 2, one.end()), scope));
}

Binding Expander::instantiate(const Record &record,
                              const std::vector<Tokens> &given,
                              const ScopePtr &declared, const ScopePtr &scope) {
  ScopePtr own = inside(declared);
  bindTemplates(record.templates, given, own, scope);
  for (auto &[name, arguments] : record.bases) {
    Tokens base = {name, "<"};
    base.insert(base.end(), arguments.begin(), arguments.end());
    base.push_back(">");
    Binding type = typeOf(base, own);
    if (type.scope)
      for (auto &inherited : type.scope->names)
        own->names.insert(inherited);
  }
  // Its own name is this one, not the template.
  own->names[record.name] = {{}, &record, {}, own, true};
  for (const Record &inner : record.records)
    own->names[inner.name] = {{}, &inner, {}, own};
  for (const Statement &constant : record.constants)
    declareConstant(constant.tokens, own);
  for (const Function &function : record.functions) {
    Binding &binding = own->names[function.name];
    if (binding.record)
      continue; // a constructor
    if (binding.scope != own)
      binding = Binding();
    binding.calls.push_back(&function);
    binding.scope = own;
  }
  return {{}, &record, {}, own, true};
}

/// A record with its numbers; without a scope where it is none that is known.
Binding Expander::typeOf(const Tokens &tokens, const ScopePtr &scope) {
  Binding type;
  ScopePtr from = scope;
  for (size_t at = 0; at < tokens.size();) {
    if (tokens[at] == "typename" || tokens[at] == "::" ||
        tokens[at] == "template" || tokens[at] == "const" ||
        tokens[at] == "struct") {
      ++at;
      continue;
    }
    Binding *found = isWord(tokens[at]) ? lookUp(tokens[at], from) : nullptr;
    if (!found || !found->record)
      return {};
    std::vector<Tokens> given;
    ++at;
    bool isTemplate = at < tokens.size() && tokens[at] == "<";
    if (isTemplate) {
      size_t deep = 1, end = at + 1;
      while (end < tokens.size() && deep) {
        deep += tokens[end] == "<" ? 1 : tokens[end] == ">" ? size_t(-1) : 0;
        ++end;
      }
      given = splitAtCommas(Tokens(tokens.begin() + long(at) + 1,
                                   tokens.begin() + long(end) - 1));
      at = end;
    }
    // One of two types, as a number says.
    if (found->record->name == "Choice" && given.size() == 3) {
      auto isFirst = constantOf(join(substitute(given[0], scope)));
      return isFirst ? typeOf(given[*isFirst ? 1 : 2], scope) : Binding();
    }
    type = found->isInstance && !isTemplate
               ? *found
               : instantiate(*found->record, given, found->scope, scope);
    from = type.scope;
  }
  return type;
}
