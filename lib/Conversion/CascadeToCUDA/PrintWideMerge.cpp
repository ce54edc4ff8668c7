// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where results are wide and blocks share the stream: each merges a slice of
// the rows, of what all of them have left. Parts of a few blocks go through
// registers, several quads a thread; of many, slices have few rows, and what
// is left of them is brought to shared memory, so that enough is under way.
#include "TilePrinter.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

unsigned TilePrinter::numberAmongRows(StatePlan &s) {
  SmallVector<StatePlan *> all = rowStates();
  return unsigned(llvm::find(all, &s) - all.begin());
}

/// The block that has the first part of this one's group.
std::string TilePrinter::firstPart() {
  return hasShares() ? "block() - part" : "group * row_parts";
}

/// What blocks leave for the last one.
void TilePrinter::printWorkspace() {
  unsigned number = 0;
  int64_t maps = result.entries.front().mapBytes;
  auto place = [&](unsigned number) {
    std::string behind =
        maps ? std::to_string(maps) + " * blocks() + " : std::string();
    return " = reinterpret_cast<float *>(workspace + " + behind +
           std::to_string(number * 4) + " * kRows * blocks());";
  };
  for (StatePlan *s : rowStates())
    out.line("[[maybe_unused]] float *const left_" + name(*s) +
             place(number++));
  if (!tiles.products.empty())
    out.line("[[maybe_unused]] float *const left_sums" + place(number));
}

/// What states of `level` become, of four parts: those of them whose numbers
/// are read, and the quads of sums.
void TilePrinter::printSliceLevel(unsigned level) {
  SmallVector<StatePlan *> here = rowStatesOf(level);
  SmallVector<const TileState *> products = productsOf(level);
  SmallVector<Node *> roots;
  NodeSet read;
  for (StatePlan *s : here)
    roots.push_back(s->moved);
  for (const TileState *p : products)
    roots.push_back(p->state->moved);
  for (Node *root : roots)
    collect(root, read);
  out.line("REFOLD_NO_UNROLL");
  out.open("for (int base = 0; base < int(row_parts); base += 4) {");
  out.line("[[maybe_unused]] States olds[4];");
  for (StatePlan *s : rowStates()) {
    if (!llvm::is_contained(here, s) &&
        !read.contains(plan.graph->version(s->op, Node::Old)))
      continue;
    std::string four = name(*s) + "_four";
    out.line("uint32_t " + four + "[4];");
    out.line("left.take_numbers(" + four + ", base, own_row, " +
             std::to_string(numberAmongRows(*s)) + ");");
    out.line("REFOLD_UNROLL");
    out.line("for (int slot = 0; slot < 4; ++slot)");
    out.line("  olds[slot]." + name(*s) + " = float_of(" + four + "[slot]);");
  }
  for (const TileState *p : products) {
    out.line("uint32_t " + name(*p->state) + "_quads[4][4];");
    out.line("left.take_quads(" + name(*p->state) + "_quads);");
  }
  out.line("REFOLD_UNROLL");
  out.open("for (int slot = 0; slot < 4; ++slot) {");
  out.line("const bool is_there = base + slot < row_parts;");
  out.line("[[maybe_unused]] const States old = is_there ? olds[slot] : "
           "States();");
  Expressions::Scope scope(values, roots);
  mode = Merging;
  int stream = kernel.stream;
  kernel.stream = tiles.width;
  printMergedStates(here, products, "", /*isOfBlocks=*/true);
  kernel.stream = stream;
  mode = Absorbing;
  out.close();
  out.close();
}

/// A slice of two rows, of many parts.
void TilePrinter::printThinSlice() {
  std::string merged = name(*tiles.products.front().state) + "_merged";
  SmallVector<StatePlan *> states = rowStates();
  std::string numbers =
      states.empty() ? "left_sums" : "left_" + name(*states.front());
  out.line("constexpr int kSliceRows = kRows / kSlices;");
  out.line("const int own = thread() - 128;");
  out.line("const int64_t first = (" + firstPart() +
           ") * kRows + slice * kSliceRows;");
  out.line("LeftParts<kThreads, kRows, kSliceRows, kWidth, " +
           std::to_string(states.size()) +
           ", kOtherAt / (kThreads * 64)> left(own, int(row_parts), " +
           numbers +
           " + first, kRows * blocks(), left_sums + first * kWidth, "
           "right_panels, factor_panels);");
  out.line("await_turn(6, 256);");
  out.open("if (own < kSliceRows * kQuads) {");
  out.line("const int own_row = own / kQuads, column = own % kQuads * 4;");
  out.line("States s;");
  out.line("float " + merged + "[4] = {};");
  for (unsigned level = 0; level < tiles.numLevels(); ++level)
    printSliceLevel(level);
  out.line("write(s, slice * kSliceRows + own_row, column, " + merged + ");");
  out.close();
  out.line("await_turn(6, 256); // numbers of a further slice may lie there");
}

/// The slices that a block has, mostly one.
void TilePrinter::printSlices() {
  out.line("const int slices = slices_of<kSlices>(row_parts), slice_rows = "
           "kRows / slices;");
  out.line("const uint32_t claimed = claim_slices(tickets + " + firstPart() +
           ", part, row_parts, slices);");
  out.line("REFOLD_NO_UNROLL");
  out.open("for (int slice = 0; slice < slices; ++slice) {");
  out.line("if ((claimed >> slice & 1) == 0)");
  out.line("  continue;");
  out.open("if (slices == kSlices) {");
  printThinSlice();
  out.line("continue;");
  out.close();
  printMergedParts(/*isOfBlocks=*/true);
  out.close();
}
