// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The sweeps of a row kernel that make states.
#include "RowPrinter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

bool RowPrinter::hasSweep() const {
  auto isSwept = [&](const WritePlan &w) {
    return (w.set & kernel.streamSet()) != 0;
  };
  return llvm::any_of(plan.sweepWrites, isSwept) ||
         llvm::any_of(plan.finishWrites, isSwept);
}

/// `acc` with the element's term.
std::string RowPrinter::accumulate(StatePlan &s, const std::string &acc) {
  bool isSum = s.op.getReducer() == Reducer::Add && s.type().isF32();
  if (isSum && s.term->kind == Node::Elem && isa<arith::MulFOp>(s.term->op))
    return "multiply_add(" + values.value(s.term->in[0]) + ", " +
           values.value(s.term->in[1]) + ", " + acc + ")";
  return withoutParentheses(combine(s, acc, values.value(s.term)));
}

/// Whether an element's place is in a formula, beside what is read there.
bool RowPrinter::needsPlace(Node *root) {
  NodeSet all;
  collect(root, all);
  return llvm::any_of(all, [&](Node *n) {
    return n->kind == Node::Index && int(n->index) == kernel.stream &&
           !llvm::all_of(all, [&](Node *user) {
             return user->kind == Node::Read ||
                    !llvm::is_contained(user->in, n);
           });
  });
}

/// Whether one is in a formula of a state or of a result.
bool RowPrinter::needsPlaces() {
  auto isPlaced = [&](const WritePlan &w) { return needsPlace(w.value); };
  return llvm::any_of(plan.states,
                      [&](StatePlan &s) { return needsPlace(s.term); }) ||
         llvm::any_of(plan.sweepWrites, isPlaced);
}

void RowPrinter::printElements(ArrayRef<StatePlan *> states) {
  SmallVector<Node *> roots;
  for (StatePlan *s : states)
    roots.push_back(s->term);
  openVectors(ownVectors());
  printApart();
  out.line("REFOLD_UNROLL");
  out.open("for (int e = 0; e < kWidth; ++e) {");
  {
    Expressions::Scope scope(values, roots);
    out.line("const int part = (v * kWidth + e) % kParts;");
    if (llvm::any_of(roots, [&](Node *root) { return needsPlace(root); }) ||
        kernel.isByPlaces())
      printStreamIndices("column + e");
    bindElements(true);
    for (auto &[node, text] : sharedReads)
      values.bind(node, text);
    for (StatePlan *s : states)
      out.line(name(*s) + "[part] = " + accumulate(*s, name(*s) + "[part]") +
               ";");
  }
  out.close();
  out.close();
}

std::optional<RowPrinter::Extremes> RowPrinter::extremesOf(StatePlan &s) {
  Reducer reducer = s.op.getReducer();
  if ((reducer != Reducer::Max && reducer != Reducer::Min) ||
      !s.type().isF32() || kernel.isByPlaces() || kernel.product)
    return std::nullopt;
  Node *term = s.term;
  bool isMagnitude = term->kind == Node::Elem && isa<math::AbsFOp>(term->op);
  Node *read = widenedRead(isMagnitude ? term->in[0] : term);
  auto found = read ? kernel.reads.find(read) : kernel.reads.end();
  if (found == kernel.reads.end() || found->second.group.size != 1 ||
      !found->second.isFolded)
    return std::nullopt;
  std::string type = "Extremes<" + storedType(read->type) + ", " +
                     (reducer == Reducer::Max ? "true" : "false") +
                     (isMagnitude ? ", 0x7fff7fffu>" : ">");
  return Extremes{isApart(found->second)
                      ? found->second.name + "_of(chunk, v)"
                      : "chunk." + found->second.name + "[v]",
                  type};
}

/// Of elements as they are stored, two at once; one by one in blocks that share
/// a row, which were up to 15 % slower with pairs (entropy of 16M bf16 on an
/// H200: 17.5 us against 15.3).
void RowPrinter::printExtremes(ArrayRef<StatePlan *> states, bool hasOwnParts) {
  if (hasOwnParts) {
    out.open("if constexpr (kPlace == InParts) {");
    for (StatePlan *s : states) {
      std::string others = identity(*s);
      out.line("float " + name(*s) + "[kParts] = {s." + name(*s) + ", " +
               others + ", " + others + ", " + others + "};");
    }
    printElements(states);
    for (StatePlan *s : states) {
      std::string n = name(*s);
      out.line("s." + n + " = " +
               combine(*s, combine(*s, n + "[0]", n + "[1]"),
                       combine(*s, n + "[2]", n + "[3]")) +
               ";");
    }
    out.otherwise();
  }
  for (StatePlan *s : states)
    out.line(extremesOf(*s)->type + " " + name(*s) + "(" + identity(*s) + ");");
  openVectors();
  for (StatePlan *s : states)
    out.line(name(*s) + ".take(" + extremesOf(*s)->vector + ");");
  out.close();
  for (StatePlan *s : states)
    out.line("s." + name(*s) + " = " + name(*s) + ".with(s." + name(*s) + ");");
  if (hasOwnParts)
    out.close();
}

/// Beside lists: by pairs where a lane has a row, of the bests that a list has
/// found if it can be. Elsewhere pairs took more registers than there are.
void RowPrinter::printExtremesOfLane(unsigned pass, StatePlan &s) {
  Extremes extremes = *extremesOf(s);
  std::string own = name(s);
  out.open("if constexpr (kPlace == InLanes) {");
  out.line(extremes.type + " " + own + "(" + identity(s) + ");");
  auto lists = listsOf(pass);
  auto same = llvm::find_if(lists, [&](StatePlan *list) {
    std::optional<Stored> keys = storedKeysOf(*list);
    return keys && keys->isLargest && s.op.getReducer() == Reducer::Max &&
           widenedRead(s.term) &&
           &kernel.reads.find(widenedRead(s.term))->second == keys->read;
  });
  if (same != lists.end()) {
    out.line(own + ".take(bests_" + name(**same) + ");");
  } else {
    openVectors();
    out.line(own + ".take(" + extremes.vector + ");");
    out.close();
  }
  out.line("s." + own + " = " + own + ".with(s." + own + ");");
  out.otherwise();
  std::string others = identity(s);
  out.line("float " + own + "[kParts] = {s." + own + ", " + others + ", " +
           others + ", " + others + "};");
  printElements({&s});
  out.line("s." + own + " = " +
           combine(s, combine(s, own + "[0]", own + "[1]"),
                   combine(s, own + "[2]", own + "[3]")) +
           ";");
  out.close();
}

/// States that need those of lower levels only: moved to the pivots that these
/// have now, then the elements of the chunk are absorbed.
void RowPrinter::printLevel(unsigned pass, unsigned level) {
  SmallVector<StatePlan *> states = statesOf(pass, level), repeated, extremes;
  SmallVector<std::string> before;
  SmallVector<Node *> roots;
  for (StatePlan *s : states)
    roots.push_back(s->moved);
  Expressions::Scope scope(values, roots);
  for (StatePlan *s : states) {
    bool isMoved = !s->op.getTransport().empty();
    std::string moved =
        isMoved ? withoutParentheses(values.value(s->moved)) : "s." + name(*s);
    if (s->isCount) {
      std::string each = withoutParentheses(values.value(s->term));
      out.line("s." + name(*s) + " = " + moved + " + " + each +
               " * float(covered);");
      continue;
    }
    if (!isMoved && hasLanes && extremesOf(*s)) {
      printExtremesOfLane(pass, *s);
      continue;
    }
    // Beside lists it spills, but where lanes have rows.
    if (!isMoved && listWords() == 0 && extremesOf(*s)) {
      extremes.push_back(s);
      continue;
    }
    repeated.push_back(s);
    std::string others = identity(*s);
    // One thread's sum of a whole row is too long to add its elements one by
    // one to what there is.
    before.push_back(kernel.isColumns ? "(" + moved + ")" : "");
    if (kernel.isColumns)
      moved = others;
    out.line(valueType(s->type()) + " " + name(*s) + "[kParts] = {" + moved +
             ", " + others + ", " + others + ", " + others + "};");
  }
  if (!extremes.empty())
    printExtremes(extremes, hasParts && !hasSweep() && pass == 0);
  if (repeated.empty())
    return;
  for (StatePlan *s : repeated) {
    nameLists({s->term});
    values.hoist(s->term);
  }
  printElements(repeated);
  for (auto [s, old] : llvm::zip(repeated, before)) {
    std::string n = name(*s);
    std::string all = combine(*s, combine(*s, n + "[0]", n + "[1]"),
                              combine(*s, n + "[2]", n + "[3]"));
    if (!old.empty())
      all = combine(*s, old, all);
    out.line("s." + n + " = " + withoutParentheses(all) + ";");
  }
}

static unsigned numLevels(ArrayRef<StatePlan *> states) {
  unsigned levels = 0;
  for (StatePlan *s : states)
    levels = std::max(levels, s->level + 1);
  return levels;
}

static bool hasTransport(ArrayRef<StatePlan *> states) {
  return llvm::any_of(
      states, [](StatePlan *s) { return !s->op.getTransport().empty(); });
}

void RowPrinter::printFold(unsigned pass) {
  SmallVector<StatePlan *> states = statesOf(pass);
  std::string number = std::to_string(pass + 1);
  out.line(
      "// Absorbs a chunk: states that others are relative to come first.");
  out.open("const auto fold" + number + " = [&](auto whole, " +
           (hasRings ? "auto" : "const auto") + " &chunk, Column first) {");
  printOwnVectors();
  if (hasTransport(states))
    out.line("const States old = s;");
  if (llvm::any_of(states, [](StatePlan *s) { return s->isCount; })) {
    out.line("int covered = " + ownVectors() + " * kWidth;");
    out.open("if (whole.value == 0) {");
    out.line("covered = 0;");
    out.line("for (int v = 0; v < " + ownVectors() + "; ++v)");
    out.line("  covered += first + (v * kThreads + lane) * kWidth < " + end() +
             " ? kWidth : 0;");
    out.close();
  }
  printSharedReads(pass);
  if (hasLanes)
    printBestsOfChunk(pass);
  for (unsigned level = 0; level < numLevels(states); ++level) {
    if (hasRings && level > 0)
      printPinned();
    out.open("{");
    printLevel(pass, level);
    out.close();
  }
  printTaken(pass);
  out.line("(void)chunk;");
  out.close("};");
}

/// The states of all lanes of a group, moved to common pivots, into each.
void RowPrinter::printMerge(unsigned pass) {
  SmallVector<StatePlan *> states = statesOf(pass);
  out.line("// Lanes in pairs, each side first moved to the pivots of both.");
  bool isShared = kernel.isColumns; // where lanes are in different warps
  out.open("const auto merge" + std::to_string(pass + 1) +
           " = [&](auto lanes) {");
  for (StatePlan *s : states)
    if (isShared)
      out.line("REFOLD_SHARED(" + valueType(s->type()) + ", shared_" +
               name(*s) + ", kThreads * kRows);");
  if (hasTransport(states))
    out.line("const States old = s;");
  for (unsigned level = 0; level < numLevels(states); ++level) {
    SmallVector<StatePlan *> here = statesOf(pass, level);
    SmallVector<Node *> roots;
    for (StatePlan *s : here)
      roots.push_back(s->moved);
    out.open("{");
    {
      Expressions::Scope scope(values, roots);
      for (StatePlan *s : here)
        if (!s->op.getTransport().empty())
          out.line("s." + name(*s) + " = " +
                   withoutParentheses(values.value(s->moved)) + ";");
      out.line("REFOLD_UNROLL");
      out.open("for (int mask = lanes.value / 2; mask > 0; mask /= 2) {");
      if (isShared) {
        for (StatePlan *s : here)
          out.line("shared_" + name(*s) + ".store(thread(), s." + name(*s) +
                   ");");
        out.line("block_barrier();");
      }
      for (StatePlan *s : here) {
        std::string n = "s." + name(*s);
        out.line(
            "const " + valueType(s->type()) + " other_" + name(*s) + " = " +
            (isShared ? "shared_" + name(*s) + ".load(thread() ^ mask * kRows);"
                      : "shuffle_xor(" + n + ", mask);"));
        out.line(n + " = " +
                 withoutParentheses(combine(*s, n, "other_" + name(*s))) + ";");
      }
      if (isShared)
        out.line("block_barrier();");
      out.close();
    }
    out.close();
  }
  printListMerge(pass);
  out.close("};");
}

void RowPrinter::printMergeAcrossWarps(unsigned pass) {
  SmallVector<StatePlan *> states = statesOf(pass);
  std::string number = std::to_string(pass + 1);
  if (kernel.isColumns) {
    if (!hasColumnLanes)
      return;
    out.line("if constexpr (kThreads > 1)");
    out.line("  merge" + number + "(Number<kThreads>{});");
    return;
  }
  std::string turn = hasShared ? " + turn" : "";
  if (hasLanes) // a lane with a row for itself has nothing to merge
    out.line("if constexpr (kThreads > 1)");
  out.line(std::string(hasLanes ? "  " : "") + "merge" + number +
           "(Number<kThreads < 32 ? kThreads : 32>{});");
  if (kernel.product) // whose rows are a warp's
    return;
  out.open("if constexpr (kThreads > 32) {");
  for (StatePlan *s : states)
    out.line("REFOLD_SHARED(" + valueType(s->type()) + ", shared_" + name(*s) +
             ", kThreads / 32" + (hasShared ? " * (kIsShared ? 2 : 1)" : "") +
             ");");
  for (StatePlan *s : listsOf(pass))
    out.line("REFOLD_SHARED(typename " + listType(*s) + "::Word, shared_" +
             name(*s) + ", kThreads / 32" +
             (hasShared ? " * (kIsShared ? 2 : 1)" : "") + " * " +
             listType(*s) + "::kRoom);");
  out.open("if (lane % 32 == 0) {");
  printListsToShared(pass);
  for (StatePlan *s : states)
    out.line("shared_" + name(*s) + ".store(lane / 32" + turn + ", s." +
             name(*s) + ");");
  out.close();
  out.line("block_barrier();");
  out.comment("Every warp merges the states of all warps: of as many lanes as "
              "there are warps, lane i has those of warp i.");
  printListsFromShared(pass);
  for (StatePlan *s : states)
    out.line("s." + name(*s) + " = shared_" + name(*s) +
             ".load(lane % (kThreads / 32)" + turn + ");");
  out.line("merge" + number + "(Number<kThreads / 32>{});");
  out.close();
}

/// All chunks of a row. A resident row is one, read by the first pass.
void RowPrinter::printWalk(unsigned pass) {
  std::string number = std::to_string(pass + 1);
  auto foldAt = [&](const std::string &first,
                    const std::string &chunk = "chunk") {
    std::string end = first == "0" ? "kChunk" : first + " + kChunk";
    printChoice(end + " <= " + count(),
                "fold" + number + "($, " + chunk + ", " + first + ");");
  };
  if (kernel.product) {
    if (pass == 0)
      out.line("load(chunk, 0);");
    foldAt("0");
    return;
  }
  if (hasColumnLanes)
    return printColumnWalk(pass);
  out.open("if constexpr (kPlace == InRegisters) {");
  if (pass == 0)
    out.line("load(chunk, 0);");
  foldAt("0");
  if (hasShared) {
    out.otherwise("if constexpr (kIsShared)");
    if (pass == 0) {
      out.line("if constexpr (kHeld > 0)");
      out.line("  load(held, 0);");
      out.line(hasRings ? "wait_copies<kAhead>();" : "wait_copies<0>();");
    }
    printKeptChunks(
        "", [&] { out.line("fold" + number + "(whole, chunk, first);"); });
    out.open("if constexpr (kHeld > 0) {");
    foldAt("0", "held");
    out.close();
  }
  if (hasLanes) {
    out.otherwise("if constexpr (kPlace == InLanes)");
    out.line("REFOLD_NO_UNROLL");
    out.open("for (Column first = 0; first < " + count() +
             "; first += kChunk) {");
    out.open("if (first + kChunk <= " + count() + ") {");
    out.line("fetch_own(Number<1>{}, chunk, first);");
    out.line("fold" + number + "(Number<1>{}, chunk, first);");
    out.otherwise();
    out.line("fetch_own(Number<0>{}, chunk, first);");
    out.line("fold" + number + "(Number<0>{}, chunk, first);");
    out.close();
    out.close();
    printSelections(pass);
  }
  bool isPart = hasParts && pass == 0;
  std::string of = hasSweep() ? "share_" : "part_";
  std::string begin = isPart ? of + "first" : "0";
  std::string end = isPart ? of + "end" : count();
  if (hasStages)
    printStagedWalk("fold" + number, begin, end);
  out.otherwise();
  out.line("load(chunk, " + begin + ");");
  out.open("for (Column first = " + begin + "; first < " + end +
           "; first += kChunk) {");
  out.line("Chunk<kVectors, kWidth> next;");
  out.line("if (first + kChunk < " + end + ")");
  out.line("  load(next, first + kChunk);");
  foldAt("first");
  out.line("if (first + kChunk < " + end + ")");
  out.line("  chunk = next;");
  out.close();
  out.close();
}

void RowPrinter::printPass(unsigned pass) {
  SmallVector<StatePlan *> states = statesOf(pass);
  out.blank();
  std::string text = std::to_string(pass + 1) + ". ";
  text += pass == 0 ? "One sweep over the row:"
                    : "A sweep that needs the results of those before:";
  for (StatePlan *s : states)
    text += " " + name(*s);
  for (StatePlan *s : listsOf(pass))
    text += " " + name(*s);
  out.comment(text + ".");
  SmallVector<RowGuard> &guards = plan.passes[pass].guards;
  if (!guards.empty()) {
    SmallVector<Node *> roots;
    for (RowGuard &guard : guards)
      roots.push_back(guard.condition);
    // What results are made of as well has its name until they are written,
    // unless lists need the registers.
    SmallVector<Node *> all = roots;
    if (listWords() == 0)
      llvm::append_range(all, resultRoots());
    rowScopes.push_back(std::make_unique<Expressions::Scope>(values, all));
    nameLists(roots);
    std::string condition;
    for (RowGuard &guard : guards)
      condition += (condition.empty() ? "" : " || ") +
                   std::string(guard.needed ? "" : "!") +
                   values.value(guard.condition);
    out.comment("All threads of a row agree on whether it needs this; rows "
                "that share a warp do not, and then all of them do it.");
    std::string shares = hasColumnLanes     ? "kThreads > 1 || "
                         : kernel.isColumns ? ""
                         : hasLanes ? "(kThreads > 1 && kThreads < 32) || "
                                    : "kThreads < 32 || ";
    out.open("if (" + shares + condition + ") {");
  }
  printFold(pass);
  if (!kernel.isColumns || hasColumnLanes)
    printMerge(pass);
  printWalk(pass);
  printMergeAcrossWarps(pass);
  printMergeAcrossBlocks(pass);
  if (hasParts && pass == 0)
    printMergeOfParts();
  if (!guards.empty()) {
    out.close();
    if (listWords() != 0)
      rowScopes.pop_back();
  }
}
