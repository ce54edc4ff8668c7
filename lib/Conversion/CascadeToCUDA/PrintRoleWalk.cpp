// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What those who compute do of a kernel with roles, for some rows after the
// other: tiles of the stream, and the last sums.
#include "TilePrinter.h"

using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;
using TileOp = tile::Op;

/// Columns of sums of a row up to which first and further tiles have a text
/// each, and beyond it those up to which they have one (`hasOneText`).
static constexpr int kTwoTextSums = 64, kOneTextSums = 128;

/// The last sums of rows, where no others follow: of those before, and of rows
/// of which there is nothing to fold.
void TilePrinter::printLastSums() {
  ops.open(where("is_over || begin >= end"));
  out.line("REFOLD_NO_UNROLL");
  ops.open(loop({{"some", "before.matrix < 0"}}, "some < (is_over ? 1 : 2)",
                "++some"));
  ops.open(where("some == 0"));
  ops.add(call("multiply_values", {"turns - 1", "of_warp((turns - 1) & 1)"}));
  ops.add(call("bring_together", {"done"}));
  ops.add(call("settle_sums", {"(turns - 1) & 1", "true"}));
  ops.otherwise();
  out.line("// What rows begin with is what they have.");
  printZeros();
  out.line("done[0] = states[0], done[1] = states[1];");
  ops.add(call("bring_together", {"done"}));
  printBefore();
  ops.close();
  ops.add(call("finish", {"done", "before"}));
  ops.add(call("forget_sums", {}));
  ops.close();
  ops.add(assign("before.matrix", "-1"));
  if (hasLow()) {
    ops.open(where("is_over"));
    printAllWalked();
    ops.close();
  } else {
    ops.add(where("is_over", jump(TileOp::Break)));
  }
  ops.add(jump(TileOp::Continue));
  ops.close();
}

/// Tiles of wide results are folded by one text: a second one is a quarter of
/// the time that NVRTC takes (width 128, s: 0.65 for 0.48), and saves 0 to 1 %
/// of a launch on an H200; of narrow results it saves 2 to 4 %. Wider ones,
/// what is read at every element and more states than a pivot and a sum leave
/// no registers for what both have to do: they spill 52 bytes to 1.7 KB.
bool TilePrinter::hasOneText(int64_t widest) {
  int64_t sums = int64_t(tiles.products.size()) * widest;
  return tiles.elements.empty() && !readsElements() &&
         rowStates().size() <= 2 && sums > kTwoTextSums && sums <= kOneTextSums;
}

bool TilePrinter::hasOneText() {
  return llvm::any_of(result.entries, [&](const CudaEntry &e) {
    return e.roles > 0 && hasOneText(e.widest);
  });
}

bool TilePrinter::hasTwoTexts() {
  return llvm::any_of(result.entries, [&](const CudaEntry &e) {
    return e.roles > 0 && !hasOneText(e.widest);
  });
}

/// Tiles from `from` down to the first one of the range.
void TilePrinter::printTiles(const std::string &from,
                             llvm::function_ref<void()> fold) {
  ops.open(loop({{"at", from}}, "at >= begin", "--at"));
  out.line("const int64_t first = int64_t(at) * kColumns;");
  ops.add(let("const int", {{"turn", "turns + end - 1 - at"}}));
  fold();
  ops.close();
}

void TilePrinter::printRoleWalk() {
  printLastSums();
  ops.add(
      atGate(TileOp::WaitGate, "left_came", "left", "(lefts / kLefts) & 1"));
  ops.add(
      atGate(TileOp::WaitGate, "right_came", "turns & 1", "(turns / 2) & 1"));
  ops.add(plain(TileOp::Fence));
  using Arguments = std::vector<std::string>;
  auto fold = [&](const std::string &whole, Arguments rest) {
    rest.insert(rest.begin(), whole);
    return call("fold", rest);
  };
  // `whole` is asked where the text has masks for both.
  auto foldEither = [&](const std::string &whole, const Arguments &rest) {
    if (masks)
      return ops.add(fold(whole, rest));
    TileOp either = where(whole, fold("Number<1>{}", rest));
    either.isOpen = either.hasOtherwise = true;
    either.otherwise.push_back(fold("Number<0>{}", rest));
    ops.add(either);
  };
  bool isChosen = hasOneText() && hasTwoTexts();
  if (isChosen) {
    auto width = [&](int sums) {
      return std::to_string(sums / tiles.products.size());
    };
    ops.open(where("kWidth > " + width(kTwoTextSums) +
                       " && kWidth <= " + width(kOneTextSums),
                   /*isConstant=*/true));
  }
  if (hasOneText())
    printTiles("end - 1", [&] {
      foldEither(isWholeBehindFirst() ? "at < whole_end"
                                      : "at >= whole_begin && at < whole_end",
                 {"Number<FirstOrFurther>{}", "at + 1 == end", "first", "turn",
                  "at > begin"});
    });
  if (isChosen)
    ops.otherwise();
  if (hasTwoTexts()) {
    Arguments first = {"Number<FirstOfRows>{}", "true", "last", "turns",
                       "end - 1 > begin"};
    Arguments further = {"Number<Further>{}", "false", "first", "turn",
                         "at > begin"};
    out.line("const int64_t last = int64_t(end - 1) * kColumns;");
    // Masks of a whole tile are 6 % of a visit of four tiles. Where elements of
    // the stream are left out the first tile is the one that is not whole.
    if (isWholeBehindFirst())
      foldEither("end - 1 < whole_end", first);
    else
      ops.add(fold(masks ? "false" : "Number<0>{}", first));
    printTiles("end - 2", [&] {
      if (!isWholeBehindFirst())
        return foldEither("at >= whole_begin && at < whole_end", further);
      out.line("// Only the first of them is not whole.");
      ops.add(fold(masks ? "true" : "Number<1>{}", further));
    });
  }
  if (isChosen)
    ops.close();
  ops.add(step("turns += end - begin"));
  ops.add(step("++lefts"));
  out.line("done[0] = states[0], done[1] = states[1];");
  printBefore();
}
