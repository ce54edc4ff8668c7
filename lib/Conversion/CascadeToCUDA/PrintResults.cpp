// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a row kernel writes, from complete states.
#include "RowPrinter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "refold/Conversion/CascadeToVector.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

static bool isCast(Node *n, StringRef name) {
  return n->kind == Node::Elem && n->op->getName().getStringRef() == name;
}

Node *cuda::withoutCasts(Node *n) {
  while (isCast(n, "arith.truncf") && isCast(n->in[0], "arith.extf") &&
         n->in[0]->in[0]->type == n->type)
    n = n->in[0]->in[0];
  return n;
}

bool cuda::isRounded(Node *n) {
  return isCast(n, "arith.truncf") && n->in[0]->type.isF32();
}

/// What is stored as `value`, before it is rounded.
static Node *unrounded(Node *value) {
  value = withoutCasts(value);
  if (Node *inside = saturatedBy(value))
    return inside;
  return isRounded(value) ? value->in[0] : value;
}

/// Stores of numbers of the row, or of a place of a list.
void RowPrinter::printWrites(ArrayRef<WritePlan *> writes) {
  SmallVector<Node *> roots;
  for (WritePlan *w : writes)
    roots.push_back(w->value);
  Expressions::Scope scope(values, roots);
  for (WritePlan *w : writes) {
    unsigned target = cast<BlockArgument>(w->op.getTarget()).getArgNumber() -
                      plan.cascade.numIndices();
    SmallVector<Node *> in;
    Graph::Instance final(plan.sets.numPasses, Node::Final);
    for (Value index : w->op.getIndices())
      in.push_back(plan.graph->instantiate(index, final));
    std::string value = withoutParentheses(values.value(w->value));
    if (w->value->type.isInteger(1))
      value = "int8_t(" + value + ")";
    out.line("store_element(" + kernel.operandNames[target] +
             values.offset(target, w->op.getMap(), in, 0) + ", " + value +
             ");");
  }
}

SmallVector<WritePlan *> RowPrinter::numberWrites() {
  SmallVector<WritePlan *> writes;
  for (WritePlan &w : plan.finishWrites)
    writes.push_back(&w);
  if (!hasStream())
    for (WritePlan &w : plan.sweepWrites)
      writes.push_back(&w);
  else if (!hasStates())
    llvm::erase_if(writes,
                   [&](WritePlan *w) { return w->set & kernel.streamSet(); });
  return writes;
}

SmallVector<WritePlan *> RowPrinter::sweptWrites() {
  SmallVector<WritePlan *> writes;
  for (auto *list : {&plan.sweepWrites, &plan.finishWrites})
    for (WritePlan &w : *list)
      if (w.set & kernel.streamSet())
        writes.push_back(&w);
  return writes;
}

SmallVector<Node *> RowPrinter::resultRoots() {
  SmallVector<Node *> roots;
  for (WritePlan *w : numberWrites())
    roots.push_back(w->value);
  for (WritePlan *w : sweptWrites())
    roots.push_back(unrounded(w->value));
  return roots;
}

void RowPrinter::printRowResults() {
  SmallVector<WritePlan *> writes = numberWrites(), numbers;
  if (writes.empty())
    return;
  SmallVector<Node *> roots;
  for (WritePlan *w : writes)
    roots.push_back(w->value);
  Expressions::Scope scope(values, roots);
  nameLists(roots);
  llvm::MapVector<unsigned, SmallVector<WritePlan *>> places;
  for (WritePlan *w : writes) {
    auto rank = llvm::find_if(kernel.ranks, [&](unsigned i) {
      return plan.extent(i) > 1 && (w->set & bit(i));
    });
    if (rank == kernel.ranks.end())
      numbers.push_back(w);
    else
      places[*rank].push_back(w);
  }
  if (!numbers.empty()) {
    out.open("if (lane == 0 && " + isWriter() + ") {");
    printWrites(numbers);
    out.close();
  }
  for (auto &[rank, own] : places)
    printPlaces(rank, own);
}

void RowPrinter::printStore(WritePlan &w, const std::string &array) {
  unsigned target = cast<BlockArgument>(w.op.getTarget()).getArgNumber() -
                    plan.cascade.numIndices();
  SmallVector<Node *> in;
  Graph::Instance final(plan.sets.numPasses, Node::Final);
  for (Value index : w.op.getIndices())
    in.push_back(plan.graph->instantiate(index, final));
  bool rounds = isRounded(withoutCasts(w.value));
  bool saturates = saturatedBy(withoutCasts(w.value));
  if (kernel.isByPlaces()) {
    std::string value = array + (kernel.isColumns ? "[v]" : "[0]");
    if (rounds)
      value = (saturates ? "saturate<" : "narrow<") +
              storedType(w.value->type) + ">(" + value + ")";
    out.line("store_element(" + kernel.operandNames[target] +
             values.offset(target, w.op.getMap(), in, 0) + ", " + value + ");");
    return;
  }
  out.line(std::string(saturates ? "store_saturated"
                       : rounds  ? "store_rounded"
                                 : "store_values") +
           "<kWidth>(" + kernel.operandNames[target] +
           values.offset(target, w.op.getMap(), in, 1) + " + column, " + array +
           ");");
}

/// Whether a result counts on exact quotients: rounded to whole numbers, or
/// compared, along the indices `along`.
static bool needsExactQuotients(Set along, Node *root) {
  NodeSet all;
  collect(root, all);
  return llvm::any_of(all, [&](Node *n) {
    return n->kind == Node::Elem &&
           isa<math::RoundEvenOp, math::FloorOp, math::CeilOp, arith::FPToSIOp,
               arith::CmpFOp>(n->op) &&
           (n->set & along) != 0;
  });
}

/// Whether the program reads the result again, after a rounding to 8 bits: a
/// quotient at a tie would be another number by far more than an ulp.
static bool isRoundedWithin(Plan &plan, WritePlan &w) {
  auto isFinal =
      plan.cascade->getAttrOfType<DenseBoolArrayAttr>(kFinalResultsAttr);
  unsigned result = cast<BlockArgument>(w.op.getTarget()).getArgNumber() -
                    plan.cascade.numIndices() - plan.cascade.getInputs().size();
  bool leaves = isFinal && result < unsigned(isFinal.size()) && isFinal[result];
  return !leaves && isa<FloatType>(w.value->type) &&
         w.value->type.getIntOrFloatBitWidth() == 8;
}

/// Whether it takes many instructions for every element.
bool RowPrinter::isFunctionOfStream(Node *n) {
  return n->kind == Node::Elem && kernel.hasStream(n) &&
         isa<math::MathDialect>(n->op->getDialect()) &&
         !isa<math::AbsFOp, math::AbsIOp, math::FmaOp>(n->op);
}

/// Whether an element of the row takes few instructions: none is a function,
/// and no quotient has to be exact.
bool RowPrinter::isLight() {
  SmallVector<Node *> roots;
  for (WritePlan *w : sweptWrites()) {
    if (isRoundedWithin(plan, *w))
      return false;
    roots.push_back(unrounded(w->value));
  }
  if (llvm::any_of(roots, [&](Node *root) {
        return needsExactQuotients(kernel.streamSet(), root);
      }))
    return false;
  for (StatePlan &s : plan.states)
    roots.push_back(s.term);
  NodeSet all;
  for (Node *root : roots)
    collect(root, all);
  return llvm::none_of(all, [&](Node *n) { return isFunctionOfStream(n); });
}

/// How what is written for each place `along` divides by numbers of the row.
void RowPrinter::chooseQuotients(ArrayRef<WritePlan *> writes,
                                 ArrayRef<Node *> roots, Set along) {
  values.takesReciprocals = llvm::none_of(
      roots, [&](Node *root) { return needsExactQuotients(along, root); });
  values.takesNearest = llvm::any_of(
      writes, [&](WritePlan *w) { return isRoundedWithin(plan, *w); });
  values.takesPlain = false;
}

void RowPrinter::printSweep() {
  SmallVector<WritePlan *> writes = sweptWrites();
  SmallVector<Node *> roots;
  for (WritePlan *w : writes)
    roots.push_back(unrounded(w->value));
  chooseQuotients(writes, roots, kernel.streamSet());
  Expressions::Scope outside(values, resultRoots());
  nameLists(roots);
  for (Node *root : roots)
    values.hoist(root);
  printRowResults();
  values.takesPlain = hasWholeChunks();
  std::string isPlain;
  if (values.takesPlain && values.takesReciprocals && !values.takesNearest)
    for (const std::string &by : values.divisorsOf(roots))
      isPlain += by + ".is_plain && ";
  out.line(isPlain.empty()
               ? "// `whole`: nothing of the chunk is behind the row."
               : "// `whole`: nothing of the chunk is behind the row, and what "
                 "divides is plain.");
  out.open("const auto write = [&](auto whole, const auto "
           "&chunk, Column first) {");
  printOwnVectors();
  auto nameOf = [&](WritePlan *w) {
    unsigned target = cast<BlockArgument>(w->op.getTarget()).getArgNumber() -
                      plan.cascade.numIndices();
    return kernel.operandNames[target] + "_values";
  };
  // Of columns all are read before the first is written: what is behind a store
  // would wait for it, since it may be of the same memory. Along several
  // indices places would be divided twice (groups and batches on an H200: 1.1
  // to 1.3).
  bool areFirst = kernel.isColumns;
  auto declare = [&](const std::string &count) {
    for (auto [w, root] : llvm::zip(writes, roots))
      out.line((root->type.isInteger(1) ? "int8_t" : valueType(root->type)) +
               " " + nameOf(w) + "[" + count + "];");
  };
  if (areFirst)
    declare(ownVectors());
  openVectors(ownVectors());
  for (auto &[node, read] : kernel.reads) {
    if (read.isFolded)
      continue;
    std::string vector = read.name + "_v";
    if (read.isShared && hasRings) {
      out.line("Vector<" + storedType(node->type) + ", kWidth> " + vector +
               ";");
      printTable(vector, read);
      continue;
    }
    out.line("const auto " + vector + " = load_vector<" + read.times("kWidth") +
             ", " + read.policy() + ">(" + read.row + " + " +
             read.times("column") + ");");
  }
  printApart();
  if (!areFirst)
    declare("kWidth");
  out.line("REFOLD_UNROLL");
  out.open("for (int e = 0; e < kWidth; ++e) {");
  {
    Expressions::Scope scope(values, roots);
    bindElements(false);
    printStreamIndices("column + e");
    for (auto [w, root] : llvm::zip(writes, roots))
      out.line(nameOf(w) + (areFirst ? "[v] = " : "[e] = ") +
               withoutParentheses(values.value(root)) + ";");
  }
  out.close();
  if (areFirst) {
    out.close();
    openVectors(ownVectors());
  }
  if (kernel.isByPlaces())
    printStreamIndices("column");
  for (WritePlan *w : writes)
    printStore(*w, nameOf(w));
  out.close();
  out.line("(void)chunk;");
  out.close("};");
  printSweepWalk(isPlain);
  values.takesReciprocals = values.takesNearest = values.takesPlain = false;
}

/// Whether rows are walked by chunks that are mostly whole.
bool RowPrinter::hasWholeChunks() {
  return !kernel.isByPlaces() && !kernel.product && listWords() == 0;
}

/// What is done to a chunk, by one guard of all of it.
void RowPrinter::printChoice(const std::string &isWhole,
                             const std::string &use) {
  out.line("if (" + isWhole + ")");
  out.line("  " + use.substr(0, use.find('$')) + "Number<1>{}" +
           use.substr(use.find('$') + 1));
  out.line("else");
  out.line("  " + use.substr(0, use.find('$')) + "Number<0>{}" +
           use.substr(use.find('$') + 1));
}

/// Backwards: what was read last is still on chip.
void RowPrinter::printSweepWalk(const std::string &isPlain) {
  if (kernel.product) {
    out.line("if (is_row)");
    out.line("  write(Number<0>{}, chunk, 0);");
    return;
  }
  if (hasColumnLanes)
    return printColumnSweepWalk();
  auto writeAt = [&](const std::string &first,
                     const std::string &chunk = "chunk") {
    if (!hasWholeChunks())
      return out.line("write(Number<0>{}, " + chunk + ", " + first + ");");
    std::string end = first == "0" ? "kChunk" : first + " + kChunk";
    printChoice(isPlain + end + " <= " + count(),
                "write($, " + chunk + ", " + first + ");");
  };
  out.open("if (is_row) {");
  out.open("if constexpr (kPlace == InRegisters) {");
  writeAt("0");
  if (hasShared) {
    out.otherwise("if constexpr (kIsShared)");
    out.comment("What is written makes room for the next row of the block.");
    printKeptChunks(isPlain, [&] {
      out.line("write(whole, chunk, first);");
      if (hasRings) {
        out.line("if constexpr (kIsRing)");
        out.line("  bring_part(whole, row + (kAhead + 1) * (" + rowStep() +
                 "), at);");
      }
      out.line(std::string(hasRings ? "else if" : "if") + " (row + " +
               rowStep() + " < " + rowCount() + ")");
      out.line("  bring(whole, row + " + rowStep() + ", first, at);");
    });
    out.open("if constexpr (kHeld > 0) {");
    writeAt("0", "held");
    out.close();
  }
  if (hasParts) {
    out.otherwise("if constexpr (kIsPart)");
    printSweepOfParts([&](const std::string &first) { writeAt(first); });
  }
  out.otherwise();
  out.line("const Column last = (" + count() + " - 1) / kChunk * kChunk;");
  out.open("for (Column first = last; first >= 0; first -= kChunk) {");
  out.line("Chunk<kVectors, kWidth> next;");
  out.line("if (first > 0)");
  out.line("  load(next, first - kChunk);");
  writeAt("first");
  out.line("if (first > 0)");
  out.line("  chunk = next;");
  out.close();
  out.close();
  out.close();
}

void RowPrinter::printResults() {
  out.blank();
  out.comment(std::to_string(plan.passes.size() + 1) +
              ". Results, from states that every thread of the row has now.");
  if (hasSweep())
    printSweep();
  else
    printRowResults();
}
