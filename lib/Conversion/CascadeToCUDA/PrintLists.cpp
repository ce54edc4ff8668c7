// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lists of the best in a row kernel: a thread has one of what it has seen, in
// registers (runtime/cuda/refold_cuda_lists.h). What travels with a key is its
// place alone; the rest is computed again from the place.
#include "RowPrinter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

unsigned cuda::rankOf(StatePlan &s) {
  return cast<BlockArgument>(s.op.getRank()[0]).getArgNumber();
}

/// The first bits of a key that differ between elements: what is made of a
/// number of 16 bits by its sign alone has no others.
int cuda::keyBits(Node *n) {
  if (n->kind != Node::Elem)
    return 32;
  if (isa<arith::NegFOp>(n->op))
    return keyBits(n->in[0]);
  if (!isa<arith::ExtFOp>(n->op) || !n->type.isF32())
    return 32;
  Type stored = n->in[0]->type;
  return stored.isBF16()           ? 16
         : stored.isF16()          ? 19
         : stored.isFloat8E4M3FN() ? 12
         : stored.isFloat8E5M2()   ? 11
                                   : 32;
}

SmallVector<StatePlan *> RowPrinter::listsOf(unsigned pass) {
  SmallVector<StatePlan *> lists;
  for (StatePlan &s : plan.states)
    if (s.pass == pass && s.op.isOrdered())
      lists.push_back(&s);
  return lists;
}

std::string RowPrinter::listType(StatePlan &s) { return "Best_" + name(s); }

/// Registers of all lists in rows that are short; 0 where there is none.
int RowPrinter::listWords() {
  int64_t words = 0;
  for (StatePlan &s : plan.states)
    if (s.op.isOrdered())
      words += listBytes(s) / (keyBits(s.term) < 32 ? 8 : 4);
  return int(words);
}

/// Bytes of a list where warps exchange them.
int64_t RowPrinter::listBytes(StatePlan &s) {
  return 8 * int64_t(llvm::PowerOf2Ceil(plan.extent(rankOf(s))));
}

void RowPrinter::printLists() {
  bool isFirst = true;
  for (StatePlan &s : plan.states) {
    if (!s.op.isOrdered())
      continue;
    if (isFirst)
      out.line(hasLanes ? "constexpr int64_t kLongest = kPlace == InRegisters "
                          "? kChunk : kPlace == InLanes ? kLanesLongest : -1;"
                        : "constexpr int64_t kLongest = kPlace == InRegisters "
                          "? kChunk : -1;");
    isFirst = false;
    bool isTop = s.op.getReducer() == Reducer::TopK;
    std::string bits = std::to_string(keyBits(s.term)), keys;
    if (std::optional<Stored> stored = storedKeysOf(s); stored && hasLanes) {
      if (bits != "16")
        bits = "kPlace == InLanes ? 16 : " + bits;
      keys = ", Either<kPlace == InLanes, " + stored->type + ", float>";
    }
    out.line("using " + listType(s) + " = List<" +
             std::to_string(plan.extent(rankOf(s))) + ", " +
             (isTop ? "true" : "false") + ", " + bits + ", kLongest" + keys +
             ">;");
    out.line(listType(s) + " " + name(s) + ";");
    if (hasLanes)
      out.line("[[maybe_unused]] " + listType(s) + " vectors_" + name(s) +
               "; // by the best of each");
  }
}

/// Elements of a chunk into the lists of a pass.
void RowPrinter::printTaken(unsigned pass) {
  for (StatePlan *s : listsOf(pass)) {
    out.open("{");
    Expressions::Scope outside(values, {s->term});
    nameLists({s->term});
    values.hoist(s->term);
    if (hasLanes) {
      out.open("if constexpr (kPlace == InLanes) {");
      printBestsOfVectors(*s);
      out.otherwise();
    }
    openVectors();
    out.line("typename " + listType(*s) + "::Word words[kWidth];");
    out.line("REFOLD_UNROLL");
    out.open("for (int e = 0; e < kWidth; ++e) {");
    {
      Expressions::Scope scope(values, {s->term});
      bindElements(true);
      out.line("[[maybe_unused]] const int64_t " +
               kernel.indexNames[kernel.stream] + " = column + e;");
      out.line("words[e] = " + listType(*s) + "::word_of(" +
               withoutParentheses(values.value(s->term)) + ", column + e);");
    }
    out.close();
    out.line(
        name(*s) +
        ".template take<kPlace != InRegisters>(words, kPlace == InRegisters "
        "&& v == 0);");
    out.close();
    if (hasLanes)
      out.close();
    out.close();
  }
}

void RowPrinter::printListMerge(unsigned pass) {
  for (StatePlan *s : listsOf(pass)) {
    out.line("REFOLD_UNROLL");
    out.line("for (int mask = lanes.value / 2; mask > 0; mask /= 2)");
    out.line("  " + name(*s) + ".merge_lane(mask);");
  }
}

void RowPrinter::printListsToShared(unsigned pass) {
  for (StatePlan *s : listsOf(pass))
    out.line(name(*s) + ".store(shared_" + name(*s) + ", lane / 32" +
             (hasShared ? " + turn" : "") + ");");
}

void RowPrinter::printListsFromShared(unsigned pass) {
  for (StatePlan *s : listsOf(pass))
    out.line(name(*s) + ".load(shared_" + name(*s) +
             ", lane % (kThreads / 32)" + (hasShared ? " + turn" : "") + ");");
}

/// The list and the place that text is about.
std::pair<std::string, std::string> RowPrinter::placeIn(StatePlan &s) {
  if (isOwnPlace)
    return {name(s) + "_own", "at"};
  return {name(s), kernel.indexNames[rankOf(s)]};
}

/// Whether places lie beside each other in the array that is written.
bool RowPrinter::isAlongPlaces(WritePlan &w, unsigned rank) {
  unsigned target = cast<BlockArgument>(w.op.getTarget()).getArgNumber() -
                    plan.cascade.numIndices();
  AffineMap map = w.op.getMap();
  auto last = dyn_cast<AffineDimExpr>(map.getResults().back());
  if (!last || !isDense(plan.cascade->getOperand(target).getType()))
    return false;
  for (auto [k, index] : llvm::enumerate(w.op.getIndices())) {
    bool isLast = k == last.getPosition();
    bool isRank = plan.sets.of(index) & bit(rank);
    auto arg = dyn_cast<BlockArgument>(index);
    if (isLast ? !arg || arg.getArgNumber() != rank : isRank)
      return false;
  }
  return llvm::none_of(map.getResults().drop_back(), [&](AffineExpr expr) {
    return expr.isFunctionOfDim(last.getPosition());
  });
}

/// Results with places, some of them for each of the first threads of a row.
void RowPrinter::printPlaces(unsigned rank, ArrayRef<WritePlan *> writes) {
  std::string places = std::to_string(plan.extent(rank));
  const std::string &i = kernel.indexNames[rank];
  SmallVector<Node *> roots;
  SmallVector<WritePlan *> apart;
  for (WritePlan *w : writes)
    roots.push_back(w->value);
  out.open("{");
  out.line("constexpr int kWriters = writers<kThreads, " + places + ">();");
  out.line("constexpr int kOwn = " + places + " / kWriters;");
  for (StatePlan &s : plan.states)
    if (s.op.isOrdered() && rankOf(s) == rank)
      out.line("[[maybe_unused]] const auto " + name(s) + "_own = " + name(s) +
               ".template part_of<kWriters>(lane);");
  out.open("if (lane < kWriters && " + isWriter() + ") {");
  auto target = [&](WritePlan *w) {
    return cast<BlockArgument>(w->op.getTarget()).getArgNumber() -
           plan.cascade.numIndices();
  };
  for (WritePlan *w : writes)
    if (isAlongPlaces(*w, rank))
      out.line(storedType(w->value->type) + " " +
               kernel.operandNames[target(w)] + "_places[kOwn];");
    else
      apart.push_back(w);
  // What 16 bits hold has exponentials and quotients as along a row.
  auto before = std::tuple(values.takesReciprocals, values.takesNearest);
  Expressions::Scope outside(values, roots);
  if (kernel.isNarrow) {
    values.along = bit(rank);
    chooseQuotients(writes, roots, bit(rank));
    for (Node *root : roots)
      values.hoist(root);
  }
  out.line("REFOLD_UNROLL");
  out.open("for (int at = 0; at < kOwn; ++at) {");
  out.line("[[maybe_unused]] const int64_t " + i + " = lane * kOwn + at;");
  isOwnPlace = true;
  {
    Expressions::Scope scope(values, roots);
    for (WritePlan *w : writes)
      if (!llvm::is_contained(apart, w))
        out.line(kernel.operandNames[target(w)] + "_places[at] = " +
                 withoutParentheses(values.value(w->value)) + ";");
    printWrites(apart);
  }
  isOwnPlace = false;
  values.along = 0;
  std::tie(values.takesReciprocals, values.takesNearest) = before;
  out.close();
  Graph::Instance final(plan.sets.numPasses, Node::Final);
  for (WritePlan *w : writes) {
    if (llvm::is_contained(apart, w))
      continue;
    SmallVector<Node *> in;
    for (Value index : w->op.getIndices())
      in.push_back(plan.graph->instantiate(index, final));
    const std::string &to = kernel.operandNames[target(w)];
    out.line("store_places<kOwn>(" + to +
             values.offset(target(w), w->op.getMap(), in, 1) +
             " + lane * kOwn, " + to + "_places);");
  }
  out.close();
  out.close();
}

/// What stands where no element is.
static std::string freePayload(Type type) {
  return isa<FloatType>(type) ? "0.0f" : valueType(type) + "(-1)";
}

/// A payload of a place of a list: what it is made of is read again there.
std::string RowPrinter::payload(Node *n, StatePlan &s) {
  Node *from = s.payloads[n->result - 1];
  auto [list, at] = placeIn(s);
  std::string place = list + ".place(" + at + ")";
  Node *inside = from;
  while (inside->kind == Node::Elem && isa<arith::IndexCastOp>(inside->op))
    inside = inside->in[0];
  if (inside->kind == Node::Index && int(inside->index) == kernel.stream)
    return from->type.isInteger(32) ? place
                                    : valueType(from->type) + "(" + place + ")";
  std::string found = kernel.nameFor("p" + std::to_string(n->id));
  out.line(valueType(from->type) + " " + found + " = " +
           freePayload(from->type) + ";");
  out.open("if (!" + list + ".is_free(" + at + ")) {");
  {
    Expressions::Scope scope(values, {from}, /*isClosed=*/true);
    out.line("[[maybe_unused]] const int64_t " +
             kernel.indexNames[kernel.stream] + " = " + place + ";");
    out.line(found + " = " + withoutParentheses(values.value(from)) + ";");
  }
  out.close();
  return found;
}

/// A sum over the places of lists.
std::string RowPrinter::sumOfRanks(Node *n) {
  nameLists(n->in[0]->in);
  std::string sum = kernel.nameFor("sum" + std::to_string(n->id));
  out.line(valueType(n->type) + " " + sum + " = 0;");
  unsigned depth = 0;
  for (unsigned rank : kernel.ranks)
    if (n->over & bit(rank)) {
      openPlaces(rank);
      ++depth;
    }
  {
    Expressions::Scope scope(values, {n->in[0]});
    out.line(sum + " += " + withoutParentheses(values.value(n->in[0])) + ";");
  }
  for (; depth > 0; --depth)
    out.close();
  return sum;
}

void RowPrinter::openPlaces(unsigned rank) {
  out.line("REFOLD_UNROLL");
  const std::string &i = kernel.indexNames[rank];
  out.open("for (int64_t " + i + " = 0; " + i + " < " +
           std::to_string(plan.extent(rank)) + "; ++" + i + ") {");
}

/// How lists and sums over them are spelled; "" for anything else.
std::string RowPrinter::spellList(Node *n) {
  if (kernel.isProduct(n))
    return "load_sums<1>(own_sums, " + kernel.indexNames[kernel.stream] +
           ").get(0)";
  if (n->kind == Node::Contract)
    return sumOfRanks(n);
  if (!n->isState() || !plan.states[n->state].op.isOrdered())
    return "";
  StatePlan &s = plan.states[n->state];
  if (n->result > 0)
    return payload(n, s);
  auto [list, at] = placeIn(s);
  return list + ".key(" + at + ", " + identity(s) + ")";
}

/// Names what `roots` take of lists, but for what has a place of its own: sums
/// over places are loops, which stand before the loops that need them.
void RowPrinter::nameLists(ArrayRef<Node *> roots) {
  Set places = 0;
  for (unsigned rank : kernel.ranks)
    if (plan.extent(rank) > 1)
      places |= bit(rank);
  NodeSet all;
  for (Node *root : roots)
    collectRow(kernel, root, all);
  for (Node *n : all)
    if (((n->kind == Node::Contract && !kernel.isProduct(n)) ||
         (n->isState() && plan.states[n->state].op.isOrdered())) &&
        !(n->set & places))
      values.named(n);
}
