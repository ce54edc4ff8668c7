// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Frontend/MLIR.h"
#include "refold/Support/Error.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MathExtras.h"
#include <utility>

namespace refold {

namespace {

/// What is open at a place: which bracket, and what it is part of.
struct Bracket {
  char closing;
  bool inLocation; ///< of `loc(...)`: a string before '(' is a name there, not
                   ///< an op
  bool isMap;      ///< of an affine map or set
};

/// Size and depth of an alias with all aliases in it written out.
struct Alias {
  uint64_t tokens = 0;
  unsigned depth = 0;
};

/// Walks over MLIR text without recursion, in one pass, knowing of its grammar
/// only what the limits are about.
class TextGuard {
public:
  TextGuard(llvm::StringRef text, llvm::StringRef where,
            const MLIRLimits &limits)
      : text(text), where(where), limits(limits) {}

  llvm::Error check();

private:
  llvm::Error error(ExitCode code, const llvm::Twine &message) const;
  bool skipBlank();
  llvm::Error step();
  llvm::Error readString();
  llvm::Error readWord();
  llvm::Error checkShape(size_t begin);
  llvm::Error open(char closing);
  llvm::Error close(char c);
  llvm::Error count();
  void finishAlias();
  llvm::Error useAlias(llvm::StringRef name);
  bool isAt(llvm::StringRef token) const {
    return text.substr(position).starts_with(token);
  }

  llvm::StringRef text, where;
  const MLIRLimits &limits;
  size_t position = 0, start = 0; ///< of the reader, of the token being read
  unsigned line = 1;
  size_t lineStart = 0;
  llvm::SmallVector<Bracket> brackets;
  llvm::StringRef word;         ///< the token being read, if it is a word
  llvm::StringRef previousWord; ///< the token before it, if that is a word
  bool isString = false, previousIsString = false; ///< likewise for strings
  unsigned mapTokens = 0;

  llvm::StringMap<Alias> aliases;
  llvm::StringRef aliasName; ///< being defined; empty otherwise
  Alias alias;
};

llvm::Error TextGuard::error(ExitCode code, const llvm::Twine &message) const {
  return fail(code, where + ":" + llvm::Twine(line) + ":" +
                        llvm::Twine(start - lineStart + 1) +
                        ": error: " + message);
}

/// Skips one blank character or comment; a line break ends an alias.
bool TextGuard::skipBlank() {
  if (text[position] == '\n') {
    ++line;
    lineStart = ++position;
    return true;
  }
  if (isAt("//")) {
    position = std::min(text.find('\n', position), text.size());
    return true;
  }
  if (!llvm::isSpace(text[position]))
    return false;
  ++position;
  return true;
}

llvm::Error TextGuard::readString() {
  for (++position; position < text.size(); ++position) {
    if (text[position] == '"') {
      ++position;
      isString = true;
      return count();
    }
    if (text[position] == '\n')
      break;
    if (text[position] == '\\')
      ++position;
  }
  return error(ExitCode::Model, "found a string without end, expected '\"'");
}

llvm::Error TextGuard::readWord() {
  auto isWordCharacter = [](char c) {
    return llvm::isAlnum(c) || c == '_' || c == '$' || c == '.';
  };
  if (llvm::StringRef("#!%^@").contains(text[position]))
    ++position;
  while (position < text.size() && isWordCharacter(text[position]))
    ++position;
  // "1.0e-5" is one word for the parser and two for this one; neither limit
  // cares.
  if (position == start)
    ++position;
  word = text.slice(start, position);
  if (word.size() > limits.wordBytes)
    return error(ExitCode::Limit, "found a word of " +
                                      llvm::Twine(word.size()) +
                                      " bytes, expected at most " +
                                      llvm::Twine(limits.wordBytes));
  if (llvm::Error failure = count())
    return failure;
  bool isAlias = word.size() > 1 && (word[0] == '#' || word[0] == '!');
  return isAlias ? useAlias(word) : llvm::Error::success();
}

void TextGuard::finishAlias() {
  if (!aliasName.empty())
    aliases[aliasName] = alias;
  aliasName = {};
  alias = Alias();
}

/// At the use or the definition of an alias. A definition runs from its name at
/// the top level to the next definition, or to the first top-level op.
llvm::Error TextGuard::useAlias(llvm::StringRef name) {
  size_t next = text.find_first_not_of(" \t", position);
  bool isDefinition = brackets.empty() && next != llvm::StringRef::npos &&
                      text[next] == '=' && !text.substr(next).starts_with("==");
  if (isDefinition) {
    finishAlias();
    aliasName = name;
    return llvm::Error::success();
  }
  // MLIR resolves aliases inside a definition at once, so an unknown one is its
  // error.
  auto known = aliases.find(name);
  if (aliasName.empty() || known == aliases.end())
    return llvm::Error::success();
  alias.tokens += known->second.tokens;
  alias.depth = std::max(alias.depth, known->second.depth + 1);
  if (alias.depth > limits.aliasDepth)
    return error(ExitCode::Limit,
                 "found aliases that use each other more than " +
                     llvm::Twine(limits.aliasDepth) + " deep");
  return count();
}

llvm::Error TextGuard::count() {
  if (!aliasName.empty() && ++alias.tokens > limits.aliasTokens)
    return error(ExitCode::Limit, "found an alias of more than " +
                                      llvm::Twine(limits.aliasTokens) +
                                      " words, the aliases in it written out");
  if (!brackets.empty() && brackets.back().isMap &&
      ++mapTokens > limits.mapTokens)
    return error(ExitCode::Limit, "found an affine map of more than " +
                                      llvm::Twine(limits.mapTokens) + " words");
  return llvm::Error::success();
}

/// The extents of a shaped type, from behind its '<': "4x?x8xf32".
llvm::Error TextGuard::checkShape(size_t begin) {
  int64_t elements = 1;
  for (size_t at = begin; at < text.size();) {
    llvm::StringRef rest = text.substr(at).ltrim(" \t[");
    at = text.size() - rest.size();
    if (rest.consume_front("?")) {
      at = text.size() - rest.size();
    } else {
      llvm::StringRef digits = rest.take_while(llvm::isDigit);
      if (digits.empty())
        break;
      int64_t extent = 0;
      bool isBad = digits.getAsInteger(10, extent) ||
                   __builtin_mul_overflow(
                       elements, std::max<int64_t>(extent, 1), &elements) ||
                   elements > limits.elements;
      if (isBad)
        return error(ExitCode::Limit,
                     "found a shape of more than 2^" +
                         llvm::Twine(llvm::Log2_64(limits.elements)) +
                         " elements");
      at += digits.size();
    }
    rest = text.substr(at).ltrim(" \t]");
    if (!rest.consume_front("x"))
      break;
    at = text.size() - rest.size();
  }
  return llvm::Error::success();
}

llvm::Error TextGuard::open(char closing) {
  if (brackets.size() == limits.nesting)
    return error(ExitCode::Limit, "found brackets nested more than " +
                                      llvm::Twine(limits.nesting) + " deep");
  Bracket inner{closing, !brackets.empty() && brackets.back().inLocation,
                !brackets.empty() && brackets.back().isMap};
  if (closing == ')' && previousWord == "loc")
    inner.inLocation = true;
  if (closing == '>' &&
      (previousWord == "affine_map" || previousWord == "affine_set")) {
    inner.isMap = true;
    mapTokens = 0;
  }
  if (closing == ')' && previousIsString && !inner.inLocation)
    return error(ExitCode::Unsupported,
                 "found an op in the generic form, expected the custom form: "
                 "'arith.addf', not '\"arith.addf\"'");
  brackets.push_back(inner);
  bool isShaped = previousWord == "tensor" || previousWord == "vector" ||
                  previousWord == "memref";
  return closing == '>' && isShaped ? checkShape(position)
                                    : llvm::Error::success();
}

llvm::Error TextGuard::close(char c) {
  if (brackets.empty() || brackets.back().closing != c)
    return error(
        ExitCode::Model,
        llvm::Twine("found '") + llvm::Twine(c) + "', expected " +
            (brackets.empty()
                 ? std::string("no closing bracket")
                 : "'" + std::string(1, brackets.back().closing) + "'"));
  brackets.pop_back();
  return llvm::Error::success();
}

llvm::Error TextGuard::step() {
  char c = text[position];
  if (c == '"')
    return readString();
  if (llvm::isAlnum(c) || llvm::StringRef("_#!%^@").contains(c))
    return readWord();
  // Comparisons inside affine sets and arrows are no brackets.
  for (llvm::StringRef operation : {"->", ">=", "<=", "=="})
    if (isAt(operation)) {
      position += operation.size();
      return count();
    }
  ++position;
  if (size_t kind = llvm::StringRef("([{<").find(c);
      kind != llvm::StringRef::npos)
    return open(")]}>"[kind]);
  if (llvm::StringRef(")]}>").contains(c))
    return close(c);
  return count();
}

llvm::Error TextGuard::check() {
  if (text.size() > limits.bytes)
    return error(ExitCode::Limit, "found " + llvm::Twine(text.size()) +
                                      " bytes, expected at most " +
                                      llvm::Twine(limits.bytes));
  if (text.starts_with("ML\xef"
                       "R"))
    return error(ExitCode::Unsupported, "found MLIR bytecode, expected text");
  if (text.contains('\0'))
    return error(ExitCode::Model, "found a zero byte, expected text");
  while (position < text.size()) {
    if (skipBlank())
      continue;
    start = position;
    previousWord = std::exchange(word, {});
    previousIsString = std::exchange(isString, false);
    if (llvm::Error failure = step())
      return failure;
    // The first op ends the aliases that stand before it.
    bool isOp = !word.empty() && llvm::isAlpha(word[0]) &&
                (word.contains('.') || word == "module");
    if (isOp && !aliasName.empty() && brackets.empty())
      finishAlias();
  }
  start = position;
  if (!brackets.empty())
    return error(ExitCode::Model,
                 std::string("found the end of the file, expected '") +
                     brackets.back().closing + "'");
  return llvm::Error::success();
}

} // namespace

llvm::Error checkMLIRText(llvm::StringRef text, llvm::StringRef where,
                          const MLIRLimits &limits) {
  return TextGuard(text, where, limits).check();
}

} // namespace refold
