// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "FormulaFormat.h"

namespace refold::algebra {
using namespace formula;

/// "Σ_n exp(x - m)" for a reduction of `terms` over `over`.
static std::string formatReduction(const Notation &notation, Reducer reducer,
                                   const std::vector<Expr> &terms, int64_t k,
                                   bool largest, IndexSet over) {
  bool unicode = notation.charset == Charset::Unicode;
  const char *wide = spelling(reducer);
  if (reducer == Reducer::Sum)
    wide = "Σ";
  else if (reducer == Reducer::Prod)
    wide = "Π";
  std::string ranked = (largest ? "top" : "bottom") + std::to_string(k);
  if (reducer == Reducer::TopK)
    wide = ranked.c_str();
  std::string text =
      reduction(notation, wide,
                reducer == Reducer::TopK ? wide : spelling(reducer), over);
  bool isLong = terms.size() > 1;
  if (isLong && unicode)
    text += '(';
  for (size_t i = 0; i < terms.size(); ++i) {
    text += (i ? ", " : "") +
            formatAt(terms[i], notation, unicode && !isLong ? Product : Or);
  }
  return text + (isLong || !unicode ? ")" : "");
}

namespace {
/// Writes the update rules of one program.
class Describer {
public:
  Describer(const Program &program, Charset charset)
      : program(program), charset(charset),
        passes(passesOf(program.definitions)) {
    for (size_t i = 0; i < program.indices.size(); ++i)
      if (program.indices[i].role == IndexRole::Stream)
        stream |= IndexSet(1) << i;
    findPivots();
  }

  FormulaText run() {
    FormulaText text;
    for (size_t i = 0; i < program.definitions.size(); ++i) {
      text.passes.resize(std::max<size_t>(text.passes.size(), passes[i] + 1));
      FormulaPass &pass = text.passes[passes[i]];
      if (const State *state = std::get_if<State>(&program.definitions[i]))
        addState(*state, passes[i], pass);
      else
        addPivotLet(std::get<Let>(program.definitions[i]), passes[i], pass);
    }
    addFinish(text);
    text.firstRepair = text.passes.size() - program.repairPasses;
    return text;
  }

private:
  /// What kind of name a symbol of the pass gets.
  enum class Side { Plain, Primed, A, B };

  static std::string decorated(std::string name, Side side) {
    switch (side) {
    case Side::Plain:
      return name;
    case Side::Primed:
      return name + "'";
    case Side::A:
      return name + ".a";
    case Side::B:
      return name + ".b";
    }
    return name;
  }

  /// A let that only replaces the identity of a state by something finite goes
  /// by the name of the state.
  static Expr guarded(Expr value) {
    Expr found;
    for (unsigned i = 0; i < value.size(); ++i) {
      Expr operand = value.operand(i);
      bool isSwitch = value.is(Kind::Select) && i == 0;
      if (isSwitch || operand.is(Kind::Const))
        continue;
      if (found || !operand.isSym(Role::State))
        return {};
      found = operand;
    }
    bool isGuard = value.is(Kind::MaxNum) || value.is(Kind::MinNum) ||
                   value.is(Kind::Max) || value.is(Kind::Min);
    if (value.is(Kind::Select)) {
      std::vector<Expr> tested = symbolsOf(value.operand(0));
      isGuard = tested.size() == 1 && tested[0] == found;
    }
    return isGuard ? found : Expr();
  }

  /// A result needs the let itself, beside the state that it guards.
  bool isReadOut(Expr symbol) const {
    return std::any_of(program.outputs.begin(), program.outputs.end(),
                       [&](const ProgramOutput &output) {
                         return contains(output.value, symbol);
                       });
  }

  void findPivots() {
    ExprSet wanted;
    for (const Definition &definition : program.definitions)
      if (const State *state = std::get_if<State>(&definition))
        wanted.insert(state->pivots.begin(), state->pivots.end());
    for (size_t i = program.definitions.size(); i-- > 0;) {
      const Let *let = std::get_if<Let>(&program.definitions[i]);
      if (!let || !wanted.count(let->symbol))
        continue;
      pivotLets.insert(let->symbol);
      if (Expr state = isReadOut(let->symbol) ? Expr() : guarded(let->value))
        alias[&let->symbol.symbol()] = state.symbol().name;
      for (Expr symbol : symbolsOf(let->value))
        wanted.insert(symbol);
    }
  }

  std::string nameOf(Expr symbol) const {
    auto it = alias.find(&symbol.symbol());
    return it == alias.end() ? symbol.symbol().name : it->second;
  }

  /// Names in which everything that `pass` computes stands on `side`.
  Notation notation(unsigned pass, Side side) const {
    Notation result{charset, &program.indices, {}, {}};
    for (size_t i = 0; i < program.definitions.size(); ++i) {
      Side own = passes[i] == pass ? side : Side::Plain;
      auto add = [&](Expr symbol) {
        result.names[&symbol.symbol()] = decorated(nameOf(symbol), own);
      };
      if (const Let *let = std::get_if<Let>(&program.definitions[i]))
        add(let->symbol);
      else
        for (Expr symbol : std::get<State>(program.definitions[i]).results)
          add(symbol);
    }
    return result;
  }

  /// where(s > 0, s, 1) is s: that a scale is 1 where it is none goes without
  /// saying.
  static Expr withoutGuard(Expr value) {
    if (!value.is(Kind::Select) || !value.operand(2).isConstant(1))
      return value;
    Expr scale = value.operand(1);
    bool isOfScale = true;
    forEachNode(value.operand(0), [&](Expr e) {
      isOfScale &= !e.is(Kind::Cmp) || e.operand(0) == scale;
    });
    return isOfScale ? scale : value;
  }

  void addPivotLet(const Let &let, unsigned pass, FormulaPass &text) {
    if (!pivotLets.count(let.symbol) || alias.count(&let.symbol.symbol()))
      return;
    std::string name = nameOf(let.symbol);
    Expr value = withoutGuard(let.value);
    text.absorb.push_back(decorated(name, Side::Primed) + " = " +
                          format(value, notation(pass, Side::Primed)));
    text.merge.push_back(name + " = " +
                         format(value, notation(pass, Side::Plain)));
  }

  /// The state of `side`, moved to the pivots named by `to`. That an empty side
  /// stays where it is goes without saying.
  Expr transportOf(const State &state) const {
    if (!state.transport)
      return state.symbol();
    bool isUnlessEmpty = state.transport.is(Kind::Select) &&
                         state.transport.operand(0).uses(Role::Self);
    return isUnlessEmpty ? state.transport.operand(2) : state.transport;
  }
  Notation transportNotation(const State &state, Side from, Side to) const {
    Notation result{charset, &program.indices, {}, {}};
    result.names[&state.symbol().symbol()] =
        decorated(nameOf(state.symbol()), from);
    for (Expr symbol : symbolsOf(transportOf(state))) {
      const Symbol &s = symbol.symbol();
      bool isPivot = s.role == Role::Old || s.role == Role::New;
      if (isPivot && s.ordinal < state.pivots.size())
        result.names[&s] = decorated(nameOf(state.pivots[s.ordinal]),
                                     s.role == Role::Old ? from : to);
      else if (s.role == Role::Self)
        result.names[&s] = decorated(nameOf(state.symbol()), from);
      else if (s.role == Role::With && s.ordinal < state.with.size())
        result.names[&s] = decorated(nameOf(state.with[s.ordinal]), from);
    }
    return result;
  }

  /// "a + b", "max(a, b)", ... of two expressions, each in its own notation.
  std::string reduced(Reducer reducer, Expr a, const Notation &left, Expr b,
                      const Notation &right) const {
    Binding least = Or, leastRight = Or;
    const char *sign = nullptr;
    if (reducer == Reducer::Sum)
      sign = " + ", least = Sum, leastRight = Product;
    else if (reducer == Reducer::Prod)
      sign = charset == Charset::Unicode ? "·" : "*",
      least = leastRight = Power;
    else if (reducer == Reducer::Any)
      sign = " or ", least = leastRight = And;
    else if (reducer == Reducer::All)
      sign = " and ", least = leastRight = Not;
    std::string first = formatAt(a, left, least);
    std::string second = formatAt(b, right, leastRight);
    if (sign)
      return first + sign + second;
    return std::string(spelling(reducer)) + "(" + first + ", " + second + ")";
  }

  void addState(const State &state, unsigned pass, FormulaPass &text) {
    std::string name = nameOf(state.symbol());
    Notation plain = notation(pass, Side::Plain);
    std::string line = name;
    for (size_t i = 1; i < state.results.size(); ++i)
      line += ", " + nameOf(state.results[i]);
    line += " = " + formatReduction(plain, state.reducer, state.values, state.k,
                                    state.largest, stream);
    if (!state.pivots.empty()) {
      line += ", kept relative to ";
      for (size_t i = 0; i < state.pivots.size(); ++i)
        line += (i ? ", " : "") + nameOf(state.pivots[i]);
      if (!state.law.empty())
        line += " (law " + state.law + ")";
    }
    text.state.push_back(std::move(line));
    if (state.reducer == Reducer::TopK)
      return addTopK(state, pass, text);
    Notation primed = plain;
    for (Expr pivot : state.pivots)
      primed.names[&pivot.symbol()] = decorated(nameOf(pivot), Side::Primed);
    Expr moved = transportOf(state);
    text.absorb.push_back(
        decorated(name, Side::Primed) + " = " +
        reduced(state.reducer, moved,
                transportNotation(state, Side::Plain, Side::Primed),
                state.values[0], primed));
    text.merge.push_back(
        name + " = " +
        reduced(state.reducer, moved,
                transportNotation(state, Side::A, Side::Plain), moved,
                transportNotation(state, Side::B, Side::Plain)));
  }

  void addTopK(const State &state, unsigned pass, FormulaPass &text) {
    std::string name = nameOf(state.symbol());
    std::string best =
        (state.largest ? "top" : "bottom") + std::to_string(state.k);
    Notation plain = notation(pass, Side::Plain);
    std::string element;
    for (size_t i = 0; i < state.values.size(); ++i)
      element += (i ? ", " : "") + format(state.values[i], plain);
    if (state.values.size() > 1)
      element = "(" + element + ")";
    text.absorb.push_back(name + "' = " + best + "(" + name + ", " + element +
                          ")");
    text.merge.push_back(name + " = " + best + "(" + name + ".a, " + name +
                         ".b)");
  }

  /// Lets that outputs need, parts that occur several times, outputs.
  void addFinish(FormulaText &text) {
    std::vector<std::pair<std::string, Expr>> lines;
    ExprSet wanted;
    for (const ProgramOutput &output : program.outputs) {
      lines.push_back({output.name, output.value});
      for (Expr symbol : symbolsOf(output.value))
        wanted.insert(symbol);
    }
    for (size_t i = program.definitions.size(); i-- > 0;) {
      const Let *let = std::get_if<Let>(&program.definitions[i]);
      if (!let || !wanted.count(let->symbol))
        continue;
      for (Expr symbol : symbolsOf(let->value))
        wanted.insert(symbol);
      lines.insert(lines.begin(), {nameOf(let->symbol), let->value});
    }
    Notation plain{charset, &program.indices, {}, {}};
    ExprSet named;
    for (const auto &[name, value] : lines) {
      for (Expr part : sharedParts(lines, value, named)) {
        std::string line = format(part, plain);
        std::string own = "u" + std::to_string(plain.parts.size() + 1);
        text.finish.push_back(own + " = " + line);
        plain.parts[part] = own;
      }
      text.finish.push_back(name + " = " + format(value, plain));
    }
  }

  /// Composite parts of `root` that occur at two places or more of `lines`, in
  /// the order in which they can be defined. Without what is `named` already.
  static std::vector<Expr>
  sharedParts(const std::vector<std::pair<std::string, Expr>> &lines, Expr root,
              ExprSet &named) {
    std::unordered_map<Expr, unsigned, ExprHash> uses, size;
    ExprSet seen;
    for (const auto &[name, value] : lines) {
      ++uses[value];
      forEachNode(value, [&](Expr e) {
        if (!seen.insert(e).second)
          return;
        unsigned own = e.size() > 0;
        for (unsigned i = 0; i < e.size(); ++i) {
          ++uses[e.operand(i)];
          own += size[e.operand(i)];
        }
        size[e] = std::min(own, 1000u);
      });
    }
    std::vector<Expr> parts;
    forEachNode(root, [&](Expr e) {
      bool isPart = e != root && uses[e] > 1 && size[e] >= kSmallestPart;
      if (isPart && named.insert(e).second)
        parts.push_back(e);
    });
    return parts;
  }

  /// Operations of a part that is worth a name.
  static constexpr unsigned kSmallestPart = 3;

  const Program &program;
  Charset charset;
  std::vector<unsigned> passes;
  IndexSet stream = 0;
  ExprSet pivotLets;
  std::unordered_map<const Symbol *, std::string> alias;
};
} // namespace

FormulaText describe(const Program &program, Charset charset) {
  return Describer(program, charset).run();
}

FormulaText describe(const Cascade &cascade, const Derivation &derivation,
                     Charset charset) {
  FormulaText text = describe(*derivation.program, charset);
  Notation notation{charset, &cascade.indices, {}, {}};
  for (const Stage &stage : cascade.stages) {
    std::string line = stage.name;
    for (size_t i = 1; i < stage.results.size(); ++i)
      line += ", " + stage.results[i].symbol().name;
    std::vector<Expr> terms = {stage.term};
    terms.insert(terms.end(), stage.payloads.begin(), stage.payloads.end());
    text.stages.push_back(line + " = " +
                          formatReduction(notation, stage.reducer, terms,
                                          stage.k, stage.largest,
                                          cascade.stream()));
  }
  text.idle = derivation.program->idleGuards;
  return text;
}

static void append(std::string &text, const std::string &heading,
                   const std::vector<std::string> &lines) {
  if (lines.empty())
    return;
  text += heading + "\n";
  for (const std::string &line : lines)
    text += "  " + line + "\n";
}

std::string FormulaText::str() const {
  std::string text;
  append(text, "stages", stages);
  for (size_t i = 0; i < passes.size(); ++i) {
    std::string of =
        passes.size() > 1 ? " of pass " + std::to_string(i + 1) : "";
    if (i >= firstRepair)
      of += ", of rows that need it";
    append(text, "state" + of, passes[i].state);
    append(text, "absorb" + of, passes[i].absorb);
    append(text, "merge" + of, passes[i].merge);
  }
  append(text, "finish", finish);
  append(text, "guards that protect nothing", idle);
  return text;
}

} // namespace refold::algebra
