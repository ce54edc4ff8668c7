// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Mutants.h"

#include "MutantsEquivalent.h"
#include "Suite.h"
#include "refold/Algebra/Certify.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace refold::algebra::test {

const char *spelling(MutantKind kind) {
  static const char *const names[] = {
      "transport", "value",  "let",   "reducer",   "payload", "pivot",
      "readout",   "output", "order", "execution", "fact"};
  return names[unsigned(kind)];
}

namespace {
struct Source {
  const char *name, *lines;
};

/// One for each ability of the derivation, short, so that each defect matters.
const Source kSources[] = {
    {"attention", "in x\ncarried v\nm = max x\ns = sum exp(x-m)\n"
                  "o = sum exp(x-m)/s*v\nout o = o"},
    {"entropy", "in x\nm = max x\ns = sum exp(x-m)\n"
                "H = sum exp(x-m)/s*(x-m-log(s))\nout H = -H"},
    {"temperature",
     "in x\nparam T>=0\nm = max x\ns = sum exp((x-m)/T)\nout l = m/T+log(s)"},
    {"divergence",
     "in x y\nm = max x\ns = sum exp(x-m)\nm2 = max y\ns2 = sum exp(y-m2)\n"
     "k = sum exp(x-m)/s*((x-m-log(s))-(y-m2-log(s2)))\nout k = k"},
    {"logsumexp", "in x\nm = max x\ns = sum exp(x-m)\nout l = m+log(s)"},
    {"no maximum", "in x\ncarried v\ns = sum exp(x)\no = sum exp(x)*v\n"
                   "out o = o/s"},
    {"variance", "in x\nS = sum x\nmu := S/n\nV = sum (x-mu)**2\nout v = V/n"},
    {"third moment",
     "in x\nS = sum x\nmu := S/n\nC = sum (x-mu)**3\nout c = C/n"},
    {"fourth moment",
     "in x\nS = sum x\nmu := S/n\nQ = sum (x-mu)**4\nout q = Q/n"},
    {"covariance", "in x y\nS = sum x\nU = sum y\nmx := S/n\nmy := U/n\n"
                   "C = sum (x-mx)*(y-my)\nout c = C/n"},
    {"weighted variance",
     "in w>=0 x\nM = sum w\nS = sum w*x\nmu := S/M\nV = sum w*(x-mu)**2\n"
     "out v = V/M"},
    {"weighted by a softmax",
     "in x v\nm = max x\ns = sum exp(x-m)\no = sum exp(x-m)*v\nmu := o/s\n"
     "V = sum exp(x-m)/s*(v-mu)**2\nout v = V"},
    {"phase", "in x\nS = sum x\nmu := S/n\no = sum cos(x-mu)\nout o = o"},
    {"hyperbolic",
     "in x\nS = sum x\nmu := S/n\no = sum sinh((x-mu)/8)\nout o = o"},
    {"distance to the maximum",
     "in x w>=0\nm = max x\no = sum abs(x-m)*w\nout o = o"},
    {"distance to the minimum",
     "in x w>=0\nm = min x\no = sum relu(x-m)*w\nout o = o"},
    {"distance to logsumexp",
     "in x w>=0\nm = max x\ns = sum exp(x-m)\nl := m+log(s)\n"
     "o = sum w*abs(x-l)\nout o = o"},
    {"clipped share", "in x\ncarried v\nm = max x\ns = sum exp(x-m)\n"
                      "o = sum max(0,min(1,exp(x-m)/s))*v\nout o = o"},
    {"routing", "in x\nm = max x\ns = sum exp(x-m)\nt = top2 exp(x-m)/s\n"
                "out p = t\nout i = t_at"},
    {"smallest two",
     "in x\nS = sum x\nt = bottom2 x-S\nout p = t\nout i = t_at"},
    {"best of one", "in x\nm = max x\ns = sum exp(x-m)\n"
                    "t = top1 exp(x-m)/s\nout p = t\nout i = t_at"},
    {"largest distance",
     "in x\nS = sum x\nmu := S/n\nz = max abs(x-mu)\nout z = z"},
    {"outlier flag",
     "in x\nS = sum x\nmu := S/n\nf = any x>mu+1\ng = all x<mu+2\n"
     "out f = f\nout g = g"},
    {"product of ratios",
     "in x>=0\nS = sum x\no = prod exp(-S/n)/(1+x)\nout o = o"},
    {"payload of the maximum",
     "in x v\nm = max x\nc = sum where(x==m,1,0)\np = sum where(x==m,v,0)\n"
     "out p = p/c"},
    {"short of the maximum",
     "in x v\nm = max x\np = sum where(x<m,v,0)\nout p = p"},
    {"first position",
     "in x pos\nm = max x\ni = min where(x==m,pos,inf)\nout i = i"},
    {"tied flags",
     "in x\nmask k\nm = max x\nf = any x==m and k\ng = all x<m or k\n"
     "out f = f\nout g = g"},
    {"isnan of p",
     "in x\ncarried v\nm = max x\ns = sum exp(x-m)\np := exp(x-m)/s\n"
     "o = sum where(isnan(p),0,p)*v\nout o = o"},
    {"dead rows",
     "in x\ncarried v\nm = max x\ns = sum where(m==-inf,0,exp(x-m))\n"
     "o = sum where(m==-inf,0,exp(x-m))*v\nout o = o/max(s,0.5)"},
    {"element guard", "in x\ncarried v\nm = max x\ns = sum exp(x-m)\n"
                      "o = sum where(x==-inf,0,exp(x-m)/s)*v\nout o = o"},
    {"masked", "in x\nmask k\ny := where(k,x,-inf)\nm = max y\n"
               "s = sum exp(y-m)\nout l = m+log(s)"},
    {"masked variance",
     "in x\nmask k\nc = sum where(k,1,0)\nS = sum where(k,x,0)\nmu := S/c\n"
     "V = sum where(k,(x-mu)**2,0)\nout o = V/c"},
    {"chosen distances",
     "in x y\nmask k\nS = sum x\nmu := S/n\nU = sum y\nnu := U/n\n"
     "o = max where(k,x-mu,2*(y-nu))\nout o = o"},
    {"two passes", "in x\nS = sum x\nmu := S/n\na = sum abs(x-mu)\n"
                   "o = max a-x\nout o = o\nout a = a"},
    {"second softmax",
     "in x\nm = max x\ns = sum exp(x-m)\np := exp(x-m)/s\nm2 = max p\n"
     "s2 = sum exp(p-m2)\nout o = exp(p-m2)/s2"},
};

/// Copies of `root` in which one node is something else.
class ExprMutants {
public:
  ExprMutants(Context &c, Expr root, bool isTransport) : c(c), root(root) {
    if (isTransport)
      turnRound();
    forEachNode(root, [&](Expr e) { mutate(e); });
  }
  std::vector<std::pair<std::string, Expr>> list;

private:
  void add(Expr node, Expr by) {
    if (node == by || node.type() != by.type())
      return;
    Expr mutant = substitute(c, root, {{node, by}});
    if (mutant == root || mutant.type() != root.type())
      return;
    for (const auto &known : list)
      if (known.second == mutant)
        return;
    list.push_back({dump(by) + " for " + dump(node), mutant});
  }

  void turnRound() {
    ExprMap swap;
    for (Expr symbol : symbolsOf(root)) {
      const Symbol &s = symbol.symbol();
      if (s.role == Role::Old || s.role == Role::New)
        swap[symbol] = c.placeholder(
            s.role == Role::Old ? Role::New : Role::Old, s.ordinal, s.type);
    }
    if (Expr mutant = substitute(c, root, swap); mutant != root)
      list.push_back({"turned round", mutant});
  }

  void mutate(Expr e) {
    switch (e.kind()) {
    case Kind::Add:
    case Kind::Sub:
      add(e, e.is(Kind::Add) ? c.sub(e.operand(0), e.operand(1))
                             : c.add(e.operand(0), e.operand(1)));
      [[fallthrough]];
    case Kind::Mul:
    case Kind::Div:
      for (unsigned i : {0, 1})
        add(e, e.operand(i)); // a term or factor is lost
      break;
    case Kind::Neg:
      add(e, e.operand(0));
      break;
    case Kind::Const:
      mutateConstant(e);
      break;
    case Kind::Pow:
      add(e,
          c.pow(e.operand(0), rational(e->exponent.num + 1, e->exponent.den)));
      break;
    case Kind::Max:
    case Kind::MaxNum:
    case Kind::Min:
    case Kind::MinNum:
      for (unsigned i : {0, 1})
        add(e, e.operand(i)); // a clamp is lost
      add(e, e.is(Kind::Max) || e.is(Kind::MaxNum)
                 ? c.min(e.operand(0), e.operand(1))
                 : c.max(e.operand(0), e.operand(1)));
      break;
    case Kind::Select:
      add(e, c.select(e.operand(0), e.operand(2), e.operand(1)));
      for (unsigned i : {1, 2})
        add(e, e.operand(i)); // a guard is lost
      break;
    case Kind::Cmp:
      add(e, c.logicalNot(e));
      if (e->pred != Pred::Eq && e->pred != Pred::Ne)
        add(e, c.cmp(e->pred, e.operand(1), e.operand(0)));
      break;
    case Kind::And:
    case Kind::Or:
      add(e, e.is(Kind::And) ? c.logicalOr(e.operand(0), e.operand(1))
                             : c.logicalAnd(e.operand(0), e.operand(1)));
      break;
    case Kind::Fn:
      mutateFunction(e);
      break;
    default:
      break;
    }
  }

  void mutateConstant(Expr e) {
    if (!isFloat(e.type()))
      return;
    double value = *e.constant();
    if (std::isnan(value) || std::isinf(value)) {
      add(e, c.real(0, e.type()));
      return;
    }
    if (value == 0)
      add(e, c.real(1, e.type()));
    for (double factor : {0.5, -1.0, 1.01})
      if (value != 0 && std::abs(value * factor) <= largestFinite(e.type()))
        add(e, c.real(value * factor, e.type()));
  }

  void mutateFunction(Expr e) {
    static const std::pair<Fn, Fn> confused[] = {
        {Fn::Sin, Fn::Cos},    {Fn::Sinh, Fn::Cosh}, {Fn::Sqrt, Fn::Rsqrt},
        {Fn::Exp, Fn::Exp2},   {Fn::Log, Fn::Log1p}, {Fn::Abs, Fn::Relu},
        {Fn::IsNan, Fn::IsInf}};
    for (auto [a, b] : confused) {
      if (e.is(a))
        add(e, c.fn(b, e.operand(0)));
      if (e.is(b))
        add(e, c.fn(a, e.operand(0)));
    }
    bool isEven = e.is(Fn::Cos) || e.is(Fn::Cosh) || e.is(Fn::Abs);
    if (isFloat(e.operand(0).type()) && !isEven)
      add(e, c.fn(e->fn, c.neg(e.operand(0))));
    add(e, e.operand(0));
  }

  Context &c;
  Expr root;
};

class Planter {
public:
  Planter(unsigned every, const std::function<void(const Mutant &)> &visit)
      : every(every), visit(visit) {}

  void run(const Source &source) {
    Text text(source.lines);
    Cascade own = text.cascade();
    Derivation derivation = derive(own);
    if (!derivation.program) {
      std::fprintf(stderr, "%s: %s\n", source.name, derivation.error.c_str());
      std::abort();
    }
    name = source.name;
    cascade = &own;
    program = &*derivation.program;
    context = &text.context;
    Certificate right = certify(own, *program);
    if (!right.holds) {
      std::fprintf(stderr, "%s: %s\n", source.name, right.summary().c_str());
      std::abort();
    }
    edgeDifferences = right.edgeDifferences;
    inExpressions();
    inStates();
    inOrder();
    inExecution(right);
    inFacts();
    inNonNegativity(source);
  }

private:
  void judge(MutantKind kind, const std::string &what, const Cascade &meant,
             const Program &mutant, CertifyOptions options = {}) {
    if (planted++ % every != 0)
      return;
    Mutant result{kind, name + ": " + what, "", ""};
    std::string excuse = Equivalents::known().proofOf(result.title());
    Certificate certificate = certify(meant, mutant, options);
    if (certificate.holds && excuse.empty()) {
      options.rowsPerFamily = 24;
      certificate = certify(meant, mutant, options);
    }
    if (!certificate.holds)
      result.rejection = certificate.failure;
    else if (certificate.edgeDifferences > edgeDifferences)
      result.rejection = "differs on other rows: " + certificate.edgeExample;
    else
      result.equivalence = excuse;
    visit(result);
  }
  void judge(MutantKind kind, const std::string &what, const Program &mutant) {
    judge(kind, what, *cascade, mutant);
  }

  /// Every expression of the program, one node at a time.
  void inExpressions() {
    Program mutant = *program;
    auto in = [&](MutantKind kind, const std::string &where, Expr &place,
                  bool isTransport = false) {
      if (!place)
        return;
      Expr right = place;
      for (auto &[what, wrong] :
           ExprMutants(*context, right, isTransport).list) {
        place = wrong;
        judge(kind, where + ": " + what, mutant);
      }
      place = right;
    };
    for (Definition &definition : mutant.definitions) {
      if (Let *let = std::get_if<Let>(&definition)) {
        in(MutantKind::Let, "let " + let->symbol.symbol().name, let->value);
        continue;
      }
      State &state = std::get<State>(definition);
      const std::string &own = state.symbol().symbol().name;
      in(MutantKind::Transport, "state " + own, state.transport, true);
      for (size_t i = 0; i < state.values.size(); ++i)
        in(i ? MutantKind::Payload : MutantKind::Value, "state " + own,
           state.values[i]);
    }
    for (size_t i = 0; i < mutant.readouts.size(); ++i)
      for (Expr &readout : mutant.readouts[i])
        in(MutantKind::Readout, "stage " + cascade->stages[i].name, readout);
    for (ProgramOutput &output : mutant.outputs)
      in(MutantKind::Output, "output " + output.name, output.value);
  }

  void inStates() {
    for (size_t i = 0; i < program->definitions.size(); ++i)
      if (std::holds_alternative<State>(program->definitions[i]))
        inState(i);
  }

  void inState(size_t at) {
    Program mutant = *program;
    State &state = std::get<State>(mutant.definitions[at]);
    const State right = state;
    std::string who = "state " + right.symbol().symbol().name + ": ";
    static const Reducer kinds[][2] = {
        {Reducer::Max, Reducer::Min},    {Reducer::Max, Reducer::MaxNum},
        {Reducer::Max, Reducer::Sum},    {Reducer::Min, Reducer::MinNum},
        {Reducer::Min, Reducer::Sum},    {Reducer::Sum, Reducer::Max},
        {Reducer::Sum, Reducer::Prod},   {Reducer::Prod, Reducer::Sum},
        {Reducer::Any, Reducer::All},    {Reducer::Min, Reducer::Max},
        {Reducer::All, Reducer::Any},    {Reducer::MaxNum, Reducer::Max},
        {Reducer::MinNum, Reducer::Min}, {Reducer::Prod, Reducer::Max}};
    for (auto [from, to] : kinds)
      if (right.reducer == from) {
        state.reducer = to;
        judge(MutantKind::Reducer, who + algebra::spelling(to), mutant);
      }
    state = right;
    if (right.reducer == Reducer::TopK) {
      state.largest = !right.largest;
      judge(MutantKind::Reducer, who + "the other end", mutant);
      state = right;
      if (right.k > 1) {
        state.k = right.k - 1;
        judge(MutantKind::Reducer, who + "one place fewer", mutant);
        state = right;
      }
      for (size_t i = 1; i < right.values.size(); ++i) {
        state.values[i] = isFloat(right.values[i].type())
                              ? right.values[0]
                              : context->integer(0, right.values[i].type());
        judge(MutantKind::Payload, who + "another payload", mutant);
        state = right;
      }
    }
    inPivots(mutant, state, who, at);
  }

  void inPivots(Program &mutant, State &state, const std::string &who,
                size_t at) {
    const State right = state;
    if (!right.transport)
      return;
    state.transport = Expr();
    state.pivots.clear();
    state.with.clear();
    judge(MutantKind::Pivot, who + "not moved at all", mutant);
    state = right;
    for (size_t i = 0; i < right.pivots.size(); ++i)
      for (size_t j = 0; j < at; ++j) {
        const Definition &other = mutant.definitions[j];
        Expr symbol = std::holds_alternative<Let>(other)
                          ? std::get<Let>(other).symbol
                          : std::get<State>(other).symbol();
        if (symbol == right.pivots[i] ||
            symbol.type() != right.pivots[i].type())
          continue;
        state.pivots[i] = symbol;
        judge(MutantKind::Pivot, who + "pivot " + symbol.symbol().name, mutant);
        ExprMap map{{right.pivots[i], symbol}};
        state.values[0] = substitute(*context, right.values[0], map);
        judge(MutantKind::Pivot,
              who + "pivot and value of " + symbol.symbol().name, mutant);
        state = right;
      }
    for (size_t i = 0; i < right.with.size(); ++i)
      for (size_t j = 0; j < at; ++j) {
        const State *other = std::get_if<State>(&mutant.definitions[j]);
        if (!other || other->symbol() == right.with[i] ||
            other->symbol().type() != right.with[i].type())
          continue;
        state.with[i] = other->symbol();
        judge(MutantKind::Pivot,
              who + "moved with " + other->symbol().symbol().name, mutant);
        state = right;
      }
  }

  /// Definitions that read what is not complete, or not there.
  void inOrder() {
    for (size_t i = 0; i + 1 < program->definitions.size(); ++i) {
      Program mutant = *program;
      std::swap(mutant.definitions[i], mutant.definitions[i + 1]);
      if (!reads(mutant.definitions[i], mutant.definitions[i + 1]))
        continue;
      judge(MutantKind::Order,
            "definition " + std::to_string(i) + " after its reader", mutant);
    }
    for (size_t i = 0; i < program->definitions.size(); ++i) {
      Program mutant = *program;
      mutant.definitions.erase(mutant.definitions.begin() + i);
      judge(MutantKind::Order, "no definition " + std::to_string(i), mutant);
      mutant = *program;
      mutant.definitions.push_back(mutant.definitions[i]);
      judge(MutantKind::Order, "definition " + std::to_string(i) + " twice",
            mutant);
    }
    Program mutant = *program;
    ++mutant.passes;
    judge(MutantKind::Order, "a pass too many", mutant);
    for (size_t i = 0; i < program->stagePass.size(); ++i) {
      mutant = *program;
      ++mutant.stagePass[i];
      judge(MutantKind::Order,
            "stage " + cascade->stages[i].name + " a pass later", mutant);
    }
    for (size_t i = 0; i + 1 < program->outputs.size(); ++i) {
      mutant = *program;
      std::swap(mutant.outputs[i].value, mutant.outputs[i + 1].value);
      judge(MutantKind::Order, "outputs turned round", mutant);
    }
  }

  static bool reads(const Definition &a, const Definition &b) {
    std::vector<Expr> results, used;
    if (const Let *let = std::get_if<Let>(&b))
      results = {let->symbol};
    else
      results = std::get<State>(b).results;
    if (const Let *let = std::get_if<Let>(&a)) {
      used = symbolsOf(let->value);
    } else {
      const State &state = std::get<State>(a);
      used = state.pivots;
      used.insert(used.end(), state.with.begin(), state.with.end());
      for (Expr value : state.values)
        for (Expr symbol : symbolsOf(value))
          used.push_back(symbol);
    }
    return std::any_of(results.begin(), results.end(), [&](Expr e) {
      return std::find(used.begin(), used.end(), e) != used.end();
    });
  }

  /// Wrong execution of the right program.
  void inExecution(const Certificate &right) {
    bool hasList = false, hasPayload = false, hasExtreme = false;
    bool startsAtOne = true;
    for (const Definition &definition : program->definitions)
      if (const State *state = std::get_if<State>(&definition)) {
        bool isList = state->reducer == Reducer::TopK;
        hasList |= isList;
        hasPayload |= isList && state->values.size() > 1;
        hasExtreme |=
            state->reducer != Reducer::Sum && state->reducer != Reducer::Any;
        startsAtOne &=
            state->reducer == Reducer::Prod || state->reducer == Reducer::All;
      }
    for (unsigned i = 1; i < kDefects; ++i) {
      CertifyOptions options;
      options.defect = Defect(i);
      bool applies = true;
      switch (options.defect) {
      case Defect::AbsorbStays:
      case Defect::LeftStays:
      case Defect::RightStays:
      case Defect::TurnedRound:
        applies = right.transports > 0;
        break;
      case Defect::OthersFirst:
      case Defect::LostPayloads:
        applies = hasPayload;
        break;
      case Defect::FullLists:
        applies = hasList;
        break;
      case Defect::ZeroIdentity:
        applies = hasExtreme; // a sum starts there
        break;
      case Defect::OneIdentity:
        applies = !startsAtOne;
        break;
      default:
        break;
      }
      if (applies)
        judge(MutantKind::Execution, algebra::spelling(options.defect),
              *cascade, *program, options);
    }
  }

  /// Programs derived under a wrong belief about a kink, a comparison or a
  /// clamp: a branch is taken for all elements.
  void inFacts() {
    for (size_t i = 0; i < cascade->stages.size(); ++i) {
      Expr right = cascade->stages[i].term;
      std::vector<std::pair<std::string, Expr>> beliefs;
      auto believe = [&](Expr node, Expr by) {
        if (node.type() == by.type())
          beliefs.push_back({dump(node) + " is " + dump(by),
                             substitute(*context, right, {{node, by}})});
      };
      forEachNode(right, [&](Expr e) {
        Context &c = *context;
        if (e.is(Fn::Abs)) {
          believe(e, e.operand(0));
          believe(e, c.neg(e.operand(0)));
        }
        if (e.is(Fn::Relu)) {
          believe(e, e.operand(0));
          believe(e, c.real(0, e.type()));
        }
        bool isClamp = e.is(Kind::Max) || e.is(Kind::Min);
        for (unsigned branch : {0, 1})
          if (isClamp)
            believe(e, e.operand(branch));
        for (unsigned branch : {1, 2})
          if (e.is(Kind::Select))
            believe(e, e.operand(branch));
        if (e.is(Kind::Cmp))
          for (bool value : {false, true})
            believe(e, c.boolean(value));
      });
      for (auto &[what, wrong] : beliefs) {
        Cascade believed = *cascade;
        believed.stages[i].term = wrong;
        Derivation derivation = derive(believed);
        if (derivation.program)
          judge(MutantKind::Fact,
                "stage " + cascade->stages[i].name + ": " + what, *cascade,
                *derivation.program);
      }
    }
  }

  /// Programs derived for inputs that are believed not to be negative.
  void inNonNegativity(const Source &source) {
    std::string lines = source.lines;
    size_t end = lines.find('\n');
    for (size_t at = 3; at < end; ++at) {
      if (lines[at] == ' ' || lines.compare(at, 3, ">=0") == 0)
        continue;
      size_t stop = std::min(lines.find_first_of(" >\n", at), end);
      bool isKnown = lines.compare(stop, 3, ">=0") == 0;
      std::string symbol = lines.substr(at, stop - at);
      at = stop + (isKnown ? 3 : 0);
      if (isKnown)
        continue;
      // Believed in a cascade of its own, then read as the true one.
      Expr own = symbolNamed(symbol);
      if (!own)
        continue;
      Facts facts;
      facts.nonNegative = true;
      facts.mayBeNegInf = false;
      Expr other = context->symbol(symbol, Role::Element, own.type(),
                                   own.indices(), 0, facts);
      Cascade believed = renamed(*cascade, {{own, other}});
      Derivation derivation = derive(believed);
      if (!derivation.program)
        continue;
      Program found = renamed(*derivation.program, {{other, own}});
      if (!sameAs(found))
        judge(MutantKind::Fact, symbol + " is not negative", found);
    }
  }

  Expr symbolNamed(const std::string &symbol) {
    for (Expr root : rootsOf(*cascade))
      for (Expr e : symbolsOf(root))
        if (e.isSym(Role::Element) && e.symbol().name == symbol)
          return e;
    return {};
  }

  Cascade renamed(Cascade from, const ExprMap &map) {
    for (Stage &stage : from.stages) {
      stage.term = substitute(*context, stage.term, map);
      for (Expr &payload : stage.payloads)
        payload = substitute(*context, payload, map);
    }
    for (algebra::Output &output : from.outputs)
      output.value = substitute(*context, output.value, map);
    return from;
  }

  Program renamed(Program from, const ExprMap &map) {
    for (Definition &definition : from.definitions) {
      if (Let *let = std::get_if<Let>(&definition)) {
        let->value = substitute(*context, let->value, map);
        continue;
      }
      for (Expr &value : std::get<State>(definition).values)
        value = substitute(*context, value, map);
    }
    for (auto &stage : from.readouts)
      for (Expr &readout : stage)
        if (readout)
          readout = substitute(*context, readout, map);
    for (ProgramOutput &output : from.outputs)
      output.value = substitute(*context, output.value, map);
    return from;
  }

  /// The same program up to the names of its states: the belief was not used.
  bool sameAs(const Program &other) {
    if (other.definitions.size() != program->definitions.size())
      return false;
    std::vector<Expr> a = rootsOf(*program), b = rootsOf(other);
    if (a.size() != b.size())
      return false;
    for (size_t i = 0; i < a.size(); ++i)
      if (!structurallyEqual(a[i], b[i], /*names=*/true))
        return false;
    return true;
  }

  unsigned every;
  const std::function<void(const Mutant &)> &visit;
  unsigned planted = 0;
  unsigned edgeDifferences = 0; ///< of the right program
  std::string name;
  const Cascade *cascade = nullptr;
  const Program *program = nullptr;
  Context *context = nullptr;
};
} // namespace

void plantMutants(unsigned every,
                  const std::function<void(const Mutant &)> &visit) {
  Planter planter(every, visit);
  for (const Source &source : kSources)
    planter.run(source);
}

std::string Mutant::title() const {
  return std::string("[") + spelling(kind) + "] " + name;
}

void MutantCount::add(const Mutant &mutant) {
  Row &row = rows[unsigned(mutant.kind)];
  ++row.planted;
  row.rejected += !mutant.rejection.empty();
  row.equivalent += !mutant.equivalence.empty();
  row.survivors += mutant.isSurvivor();
  if (!mutant.equivalence.empty())
    excused.insert(mutant.title());
}

std::vector<std::string>
MutantCount::idleExcuses(const Equivalents &equivalents) const {
  std::vector<std::string> idle;
  for (const auto &[title, proof] : equivalents.all())
    if (!excused.count(title))
      idle.push_back(title);
  return idle;
}

unsigned MutantCount::planted() const {
  unsigned total = 0;
  for (const Row &row : rows)
    total += row.planted;
  return total;
}

unsigned MutantCount::survivors() const {
  unsigned total = 0;
  for (const Row &row : rows)
    total += row.survivors;
  return total;
}

std::string MutantCount::summary() const {
  std::string text;
  for (unsigned i = 0; i < kMutantKinds; ++i) {
    char line[160];
    std::snprintf(line, sizeof(line),
                  "%-10s %5u planted %5u rejected %4u equivalent %4u survive\n",
                  spelling(MutantKind(i)), rows[i].planted, rows[i].rejected,
                  rows[i].equivalent, rows[i].survivors);
    text += line;
  }
  return text;
}

} // namespace refold::algebra::test
