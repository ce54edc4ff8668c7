// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Source.h"

#include <algorithm>
#include <cctype>
#include <utility>

using namespace refold::tile::source;

//===----------------------------------------------------------------------===//
// Tokens
//===----------------------------------------------------------------------===//

static bool isOfWord(char c) { return std::isalnum(uint8_t(c)) || c == '_'; }

/// Behind a directive, with the lines that it goes on in.
static size_t behindDirective(const std::string &text, size_t at) {
  for (;;) {
    size_t end = std::min(text.find('\n', at), text.size());
    if (end == text.size() || end == 0 || text[end - 1] != '\\')
      return end;
    at = end + 1;
  }
}

Tokens refold::tile::source::readTokens(const std::string &text) {
  static const char *const kSigns[] = {
      "::", "->", "&&", "||", "==", "!=", "<=", ">=", "++",
      "--", "+=", "-=", "*=", "/=", "|=", "^=", "&=", "<<"};
  Tokens tokens;
  for (size_t at = 0; at < text.size();) {
    char c = text[at];
    if (std::isspace(uint8_t(c))) {
      ++at;
    } else if (c == '#') {
      at = behindDirective(text, at);
    } else if (text.compare(at, 2, "//") == 0) {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '"') {
      size_t end = text.find('"', at + 1);
      tokens.push_back(text.substr(at, end + 1 - at));
      at = end + 1;
    } else if (isOfWord(c)) {
      size_t end = at;
      // A number may have a point and an exponent.
      bool isNumber = std::isdigit(uint8_t(c));
      while (end < text.size() &&
             (isOfWord(text[end]) || (isNumber && text[end] == '.')))
        ++end;
      tokens.push_back(text.substr(at, end - at));
      at = end;
    } else {
      auto *sign = std::find_if(
          std::begin(kSigns), std::end(kSigns),
          [&](const char *one) { return text.compare(at, 2, one) == 0; });
      tokens.push_back(sign != std::end(kSigns) ? *sign : std::string(1, c));
      at += tokens.back().size();
    }
  }
  return tokens;
}

std::string refold::tile::source::join(const Tokens &tokens) {
  std::string text;
  for (const std::string &token : tokens) {
    if (!text.empty() && isOfWord(text.back()) && isOfWord(token[0]))
      text += ' ';
    text += token;
  }
  return text;
}

size_t refold::tile::source::closing(const Tokens &tokens, size_t begin) {
  int deep = 0;
  for (size_t at = begin; at < tokens.size(); ++at) {
    const std::string &token = tokens[at];
    if (token == "(" || token == "[" || token == "{")
      ++deep;
    else if ((token == ")" || token == "]" || token == "}") && --deep == 0)
      return at;
  }
  return tokens.size();
}

size_t refold::tile::source::closingAngle(const Tokens &tokens, size_t begin) {
  int deep = 0;
  for (size_t at = begin; at < tokens.size(); ++at) {
    const std::string &token = tokens[at];
    if (token == "(" || token == "[" || token == "{")
      at = closing(tokens, at);
    else if (token == "<")
      ++deep;
    else if (token == ">" && --deep == 0)
      return at;
    else if (token == ";" || token == "&&" || token == "||" || token == "?" ||
             token == ")")
      break;
  }
  return tokens.size();
}

size_t refold::tile::source::behindLambda(const Tokens &tokens, size_t at) {
  bool isLambda = tokens[at] == "[" && at + 1 < tokens.size() &&
                  (tokens[at + 1] == "&" || tokens[at + 1] == "]") &&
                  (at == 0 || tokens[at - 1] == "," || tokens[at - 1] == "(");
  if (!isLambda)
    return at;
  size_t end = closing(tokens, at);
  while (end < tokens.size() && tokens[end] != "{")
    ++end;
  return std::min(closing(tokens, end) + 1, tokens.size());
}

std::vector<Tokens> refold::tile::source::splitAtCommas(const Tokens &tokens) {
  std::vector<Tokens> parts;
  Tokens part;
  for (size_t at = 0; at < tokens.size(); ++at) {
    size_t end = at;
    if (tokens[at] == "(" || tokens[at] == "[" || tokens[at] == "{")
      end = closing(tokens, at);
    else if (tokens[at] == "<" && at > 0 && isOfWord(tokens[at - 1][0])) {
      // A type's arguments: closed before anything that is compared with.
      size_t angle = closingAngle(tokens, at);
      bool isType = angle + 1 >= tokens.size() || tokens[angle + 1] == "{" ||
                    tokens[angle + 1] == "(" || tokens[angle + 1] == "::" ||
                    tokens[angle + 1] == "," || tokens[angle + 1] == "&";
      end = angle < tokens.size() && isType ? angle : at;
    }
    if (tokens[at] == "," && end == at) {
      parts.push_back(std::exchange(part, {}));
      continue;
    }
    end = std::min(end, tokens.size() - 1);
    part.insert(part.end(), tokens.begin() + long(at),
                tokens.begin() + long(end) + 1);
    at = end;
  }
  if (!part.empty())
    parts.push_back(part);
  return parts;
}

//===----------------------------------------------------------------------===//
// Statements
//===----------------------------------------------------------------------===//

namespace {
class Parser {
public:
  explicit Parser(const Tokens &tokens) : tokens(tokens) {}
  void readDeclarations(Unit &to);
  Function readLambda(size_t begin);

private:
  bool isAt(const char *token, size_t ahead = 0) const {
    return at + ahead < tokens.size() && tokens[at + ahead] == token;
  }
  bool take(const char *token) {
    if (!isAt(token))
      return false;
    ++at;
    return true;
  }
  Tokens slice(size_t begin, size_t end) const {
    return {tokens.begin() + long(begin), tokens.begin() + long(end)};
  }
  Tokens inBrackets();
  void skipAttributes();
  std::vector<Parameter> readTemplates();
  std::vector<Parameter> readParameters(const Tokens &from, bool isTemplate);
  std::vector<Statement> readBody();
  Statement readStatement();
  void readInto(std::vector<Statement> &to);
  Tokens readSimple();
  bool readFunction(std::vector<Parameter> templates,
                    std::vector<Function> &to);
  void readRecord(std::vector<Parameter> templates, std::vector<Record> &to);
  void readMember(Record &to);

  const Tokens &tokens;
  size_t at = 0;
};
} // namespace

/// What is in the brackets here, which it goes past.
Tokens Parser::inBrackets() {
  size_t end = closing(tokens, at);
  Tokens inner = slice(at + 1, end);
  at = end + 1;
  return inner;
}

void Parser::skipAttributes() {
  for (;;) {
    if (isAt("[") && isAt("[", 1))
      at = closing(tokens, at) + 1;
    else if (!take("REFOLD_UNROLL") && !take("REFOLD_NO_UNROLL"))
      return;
  }
}

std::vector<Parameter> Parser::readTemplates() {
  std::vector<Parameter> all;
  while (take("template")) {
    size_t end = closingAngle(tokens, at);
    all = readParameters(slice(at + 1, end), /*isTemplate=*/true);
    at = end + 1;
  }
  return all;
}

std::vector<Parameter> Parser::readParameters(const Tokens &from,
                                              bool isTemplate) {
  std::vector<Parameter> all;
  for (Tokens &one : splitAtCommas(from)) {
    Parameter parameter;
    auto equals = std::find(one.begin(), one.end(), "=");
    if (equals != one.end())
      parameter.preset = Tokens(equals + 1, one.end());
    one.erase(equals, one.end());
    // Behind the name of an array stands how long it is.
    while (one.size() > 1 && one.back() == "]") {
      size_t begin = one.size();
      while (begin > 0 && one[--begin] != "[")
        ;
      parameter.extents.insert(
          parameter.extents.begin(),
          Tokens(one.begin() + long(begin) + 1, one.end() - 1));
      one.resize(begin);
    }
    if (!one.empty() && one.back() == ")")
      one.pop_back();
    if (one.empty())
      continue;
    parameter.name = one.back();
    parameter.isPack = std::count(one.begin(), one.end(), ".") == 3;
    parameter.isReference =
        isTemplate ? one.front() == "typename"
                   : std::any_of(one.begin(), one.end(), [](auto &token) {
                       return token == "&" || token == "*";
                     });
    all.push_back(std::move(parameter));
  }
  return all;
}

std::vector<Statement> Parser::readBody() {
  std::vector<Statement> all;
  while (at < tokens.size() && !take("}"))
    readInto(all);
  return all;
}

/// One statement, or several in braces.
void Parser::readInto(std::vector<Statement> &to) {
  if (take(";"))
    return;
  to.push_back(readStatement());
}

/// Up to the semicolon.
Tokens Parser::readSimple() {
  size_t begin = at;
  while (at < tokens.size() && !isAt(";"))
    at = isAt("(") || isAt("[") || isAt("{") ? closing(tokens, at) + 1 : at + 1;
  Tokens simple = slice(begin, std::min(at, tokens.size()));
  ++at;
  return simple;
}

Function Parser::readLambda(size_t begin) {
  Function lambda;
  at = closing(tokens, begin) + 1;
  if (isAt("("))
    lambda.parameters = readParameters(inBrackets(), false);
  while (at < tokens.size() && !isAt("{"))
    ++at;
  ++at;
  lambda.body = readBody();
  return lambda;
}

Statement Parser::readStatement() {
  Statement to;
  skipAttributes();
  auto bodyOf = [&](std::vector<Statement> &body) {
    if (take("{"))
      body = readBody();
    else
      readInto(body);
  };
  if (take("{")) {
    to.kind = Statement::Block;
    to.body = readBody();
  } else if (take("if")) {
    to.kind = Statement::If;
    to.isConstant = take("constexpr");
    to.tokens = inBrackets();
    bodyOf(to.body);
    to.hasOtherwise = take("else");
    if (to.hasOtherwise)
      bodyOf(to.otherwise);
  } else if (take("for")) {
    Tokens head = inBrackets();
    auto first = std::find(head.begin(), head.end(), ";");
    to.kind = first == head.end() ? Statement::Each : Statement::For;
    to.begin = Tokens(head.begin(), first);
    if (first != head.end()) {
      auto second = std::find(first + 1, head.end(), ";");
      to.tokens = Tokens(first + 1, second);
      to.step = Tokens(second + 1, head.end());
    }
    bodyOf(to.body);
  } else if (take("while")) {
    to.kind = Statement::While;
    to.tokens = inBrackets();
    bodyOf(to.body);
  } else if (take("do")) {
    to.kind = Statement::While;
    to.isBehind = true;
    bodyOf(to.body);
    take("while");
    to.tokens = inBrackets();
    take(";");
  } else if (isAt("const") && isAt("auto", 1) && isAt("=", 3) && isAt("[", 4)) {
    to.kind = Statement::Lambda;
    std::string name = tokens[at + 2];
    to.functions.push_back(readLambda(at + 4));
    to.functions.back().name = name;
    take(";");
  } else {
    to.tokens = readSimple();
  }
  return to;
}

//===----------------------------------------------------------------------===//
// Declarations
//===----------------------------------------------------------------------===//

/// A function with a body, where one begins here.
bool Parser::readFunction(std::vector<Parameter> templates,
                          std::vector<Function> &to) {
  size_t begin = at, end = at, parameters = 0;
  for (; end < tokens.size() && tokens[end] != ";" && tokens[end] != "="; ++end)
    if (tokens[end] == "(") {
      if (!parameters && end > begin && isOfWord(tokens[end - 1][0]))
        parameters = end;
      end = closing(tokens, end);
    } else if (tokens[end] == "{") {
      break;
    }
  // Of a constructor, members stand between; their names, before brackets.
  bool isBody = parameters && end < tokens.size() && tokens[end] == "{";
  if (!isBody)
    return false;
  Function function;
  function.name = tokens[parameters - 1];
  function.templates = std::move(templates);
  at = parameters;
  function.parameters = readParameters(inBrackets(), false);
  if (take(":"))
    while (at < end) {
      std::string name = tokens[at++];
      function.members.push_back({name, inBrackets()});
      take(",");
    }
  at = end + 1;
  function.body = readBody();
  to.push_back(std::move(function));
  return true;
}

void Parser::readMember(Record &to) {
  skipAttributes();
  if (take("public") || take("private")) {
    take(":");
    return;
  }
  std::vector<Parameter> templates = readTemplates();
  if (isAt("struct") || isAt("class"))
    return readRecord(std::move(templates), to.records);
  if (readFunction(templates, to.functions))
    return;
  Tokens simple = readSimple();
  if (simple.empty() || simple[0] == "static_assert")
    return;
  if (simple[0] == "static" || simple[0] == "using") {
    Statement constant;
    constant.tokens = std::move(simple);
    to.constants.push_back(std::move(constant));
    return;
  }
  // "int at = 0", "uint32_t memory, came".
  for (Tokens &one : splitAtCommas(simple)) {
    auto equals = std::find(one.begin(), one.end(), "=");
    Tokens preset(equals == one.end() ? equals : equals + 1, one.end());
    one.erase(equals, one.end());
    if (!one.empty())
      to.members.push_back({one.back(), preset});
  }
}

void Parser::readRecord(std::vector<Parameter> templates,
                        std::vector<Record> &to) {
  ++at;
  // How it lies in memory.
  if (take("alignas"))
    at = closing(tokens, at) + 1;
  Record record;
  record.name = tokens[at++];
  record.templates = std::move(templates);
  size_t end = at;
  while (end < tokens.size() && tokens[end] != "{" && tokens[end] != ";")
    ++end;
  if (isAt("<") || end == tokens.size() || tokens[end] == ";") {
    // One that is declared, or for some arguments only.
    at = end;
    if (isAt("{"))
      at = closing(tokens, at) + 1;
    take(";");
    return;
  }
  if (take(":"))
    if (size_t angle = std::find(tokens.begin() + long(at),
                                 tokens.begin() + long(end), "<") -
                       tokens.begin();
        angle < end)
      record.bases.push_back(
          {tokens[angle - 1], slice(angle + 1, closingAngle(tokens, angle))});
  at = end + 1;
  while (at < tokens.size() && !take("}"))
    readMember(record);
  take(";");
  to.push_back(std::move(record));
}

void Parser::readDeclarations(Unit &to) {
  while (at < tokens.size()) {
    skipAttributes();
    if (take("}") || take(";"))
      continue;
    // What is told of a kernel's launch.
    if (tokens[at].rfind("REFOLD_", 0) == 0 && isAt("(", 1)) {
      at = closing(tokens, at + 1) + 1;
      continue;
    }
    if (take("namespace")) {
      while (at < tokens.size() && !take("{"))
        ++at;
      continue;
    }
    std::vector<Parameter> templates = readTemplates();
    if (isAt("struct") || isAt("class")) {
      readRecord(std::move(templates), to.records);
    } else if (!readFunction(std::move(templates), to.functions)) {
      Statement constant;
      constant.tokens = readSimple();
      to.constants.push_back(std::move(constant));
    }
  }
}

void refold::tile::source::parse(const std::string &text, Unit &to) {
  Tokens tokens = readTokens(text);
  Parser(tokens).readDeclarations(to);
}

Function refold::tile::source::parseLambda(const Tokens &tokens) {
  return Parser(tokens).readLambda(0);
}
