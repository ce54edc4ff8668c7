// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Statements as they are walked: names in their scopes, functions where they
// are called, types with their numbers.
#ifndef REFOLD_LIB_CONVERSION_TILELEVEL_EXPAND_H
#define REFOLD_LIB_CONVERSION_TILELEVEL_EXPAND_H

#include "Numbers.h"
#include "Source.h"
#include "refold/Conversion/ReadTiles.h"

#include <cctype>
#include <memory>
#include <set>

namespace refold::tile::source {

/// A name or a keyword, not a number or a sign.
inline bool isWord(const std::string &token) {
  return std::isalpha(uint8_t(token[0])) || token[0] == '_';
}

struct Scope;
using ScopePtr = std::shared_ptr<Scope>;

/// What a name stands for.
struct Binding {
  Tokens text;                         ///< of a number, an object, an array
  const Record *record = nullptr;      ///< of a type
  std::vector<const Function *> calls; ///< of a function, overloaded or not
  ScopePtr scope;                      ///< where the two are
  bool isInstance = false;             ///< a type with its numbers
};
struct Scope {
  std::map<std::string, Binding> names;
  ScopePtr outer;
  bool isLoop = false, isFunction = false;
  std::string result; ///< of a function: where what it returns goes
  std::string object; ///< whose function it is
};

/// A call as it is written: `object.name<templates>(arguments)`.
struct CallText {
  Tokens object, path; ///< `path`: "A::f", without arguments of the last one
  std::string name;
  std::vector<Tokens> templates, arguments;
  size_t end = 0; ///< behind it
};

class Expander : public Names {
public:
  explicit Expander(const Reading &reading) : reading(reading) {}
  Program run(std::optional<Fault> &fault);
  std::optional<Found> find(const std::string &name) const override;

private:
  // Scopes.
  static ScopePtr inside(const ScopePtr &scope);
  static Binding *lookUp(const std::string &name, const ScopePtr &scope);
  void declareUnit();
  void fail(const std::string &rule, const std::string &detail);
  std::string fresh(const std::string &name);

  // Numbers and types.
  Tokens substitute(const Tokens &tokens, const ScopePtr &scope);
  size_t substituteName(const Tokens &tokens, size_t at, const ScopePtr &scope,
                        Tokens &to);
  bool isReadable(const std::string &text) const;
  std::optional<int64_t> constantOf(const std::string &text) const;
  /// The same as text, a constant where it is one.
  Tokens folded(const Tokens &tokens) const;
  Binding typeOf(const Tokens &tokens, const ScopePtr &scope);
  Binding instantiate(const Record &record, const std::vector<Tokens> &given,
                      const ScopePtr &declared, const ScopePtr &scope);
  void bindTemplates(const std::vector<Parameter> &templates,
                     const std::vector<Tokens> &given, const ScopePtr &to,
                     const ScopePtr &scope);
  void declareConstant(const Tokens &tokens, const ScopePtr &scope);

  // Calls.
  bool readCall(const Tokens &tokens, size_t at, CallText &call) const;
  const Function *calleeOf(const CallText &call, const ScopePtr &scope,
                           ScopePtr &declared);
  ScopePtr bindArguments(const Function &function, const CallText &call,
                         const ScopePtr &declared, const ScopePtr &scope);
  /// Ops of the calls in `tokens`, which then name what these return.
  Tokens follow(const Tokens &tokens, const ScopePtr &scope);
  bool takeStep(const Tokens &tokens, size_t &at, const ScopePtr &scope,
                Tokens &to);
  std::string guardOf(const Tokens &before, const ScopePtr &scope);
  Tokens followCall(const CallText &call, const ScopePtr &scope, bool &isKnown);
  Tokens followKnown(const CallText &call, const ScopePtr &scope,
                     bool &isKnown);
  std::string followFunction(const Function &function, const ScopePtr &own);
  void deduceExtents(const Function &function, const CallText &call,
                     const ScopePtr &own, const ScopePtr &scope);
  bool addPrimitive(const CallText &call, const ScopePtr &scope,
                    Tokens &result);
  void addProducts(const CallText &call, const ScopePtr &scope);
  bool addParts(const CallText &call);
  bool addTicket(const CallText &call, const ScopePtr &scope);
  bool addAcross(const CallText &call, const ScopePtr &scope);
  void addShared(const Tokens &tokens, const ScopePtr &scope);

  // Statements.
  void walk(const std::vector<Statement> &statements, const ScopePtr &scope);
  void walkOne(const Statement &statement, const ScopePtr &scope);
  void walkIf(const Statement &statement, const ScopePtr &scope);
  void walkLoop(const Statement &statement, const ScopePtr &outer);
  void walkSimple(Tokens tokens, const ScopePtr &scope);
  bool walkDeclaration(const Tokens &tokens, const ScopePtr &scope);
  void declareNumber(const Tokens &declarator, bool isConstant,
                     const ScopePtr &scope);
  void declareExtents(const Tokens &declarator, const ScopePtr &scope);
  bool isAddress(const Tokens &declarator, const ScopePtr &scope);
  bool hasGivenMembers(const std::string &name) const;
  bool declareObject(const Tokens &type, const Tokens &declarator,
                     const ScopePtr &scope, bool isPointer);
  bool walkAssignment(const Tokens &tokens, const ScopePtr &scope,
                      std::vector<Number> *steps = nullptr);
  void walkReturn(const Tokens &tokens, const ScopePtr &scope);
  void addText(const Tokens &tokens);
  std::optional<Tokens> answerTo(const std::string &text) const;
  bool isLoose(const std::string &text) const;
  bool isLeftOut(const std::string &text) const;
  std::vector<Op> collect(const std::vector<Statement> &statements,
                          const ScopePtr &scope);
  void addAsText(std::vector<Op> from);
  Op &add(Op::Kind kind);

  const Reading &reading;
  Unit unit;
  ScopePtr global;
  Program program;
  std::vector<Op> *ops = nullptr;
  std::set<std::string> numbers; ///< that ops say
  std::set<std::string> counted; ///< arrays, by how often they are asked
  std::set<std::string> empty;   ///< those that were given no value yet
  std::map<std::string, std::string> typeNames;
  std::map<std::string, Binding> objects;    ///< their types
  std::map<std::string, int> elementBytes;   ///< of arrays of shared memory
  std::map<std::string, std::string> arrays; ///< members that refer to them
  std::map<std::string, std::vector<Tokens>> extents; ///< of arrays, by names
  std::optional<Fault> *fault = nullptr;
  int number = 0, deep = 0;
  bool isLastKnown = false; ///< of the calls that were followed
  std::vector<std::unique_ptr<Function>> lambdas; ///< given as arguments
};

/// Whether statements change what has that name.
bool changes(const std::vector<Statement> &body, const std::string &name);
/// Whether an op is more than text and numbers for it.
bool isBusy(const std::vector<Op> &ops);

} // namespace refold::tile::source

#endif // REFOLD_LIB_CONVERSION_TILELEVEL_EXPAND_H
