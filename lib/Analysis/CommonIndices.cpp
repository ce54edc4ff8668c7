// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CommonIndices.h"

using namespace mlir;
using namespace refold;
using algebra::IndexSet;

using Numbers = SmallVector<std::optional<unsigned>>;

/// Indices of `own` as indices of `other`, where both read one reduction.
/// Nothing: they read it at places that do not correspond.
static std::optional<Numbers> match(const Formula &own, const Formula &other,
                                    bool &haveCommon) {
  Numbers map(own.extents.size(), std::nullopt);
  IndexSet streams = own.cascade.stream(), theirs = other.cascade.stream();
  auto correspond = [&](unsigned from, unsigned to) {
    bool areStreams = (streams >> from & 1) && (theirs >> to & 1);
    if (!areStreams && map[from] && *map[from] != to)
      return false;
    map[from] = to;
    return true;
  };
  auto matchPlaces = [&](const Subscripts &mine, const Subscripts &at) {
    haveCommon = true;
    for (auto [a, b] : llvm::zip(mine, at)) {
      std::optional<unsigned> from = own.atoms.asIndex(a);
      std::optional<unsigned> to = other.atoms.asIndex(b);
      bool same = a.isConstant() && b.isConstant() && a.constant == b.constant;
      if (from && to ? !correspond(*from, *to) : !same)
        return false;
    }
    return true;
  };
  for (const StageUse &use : own.stageUses)
    for (const StageUse &at : other.stageUses) {
      if (use.op != at.op)
        continue;
      int mine = own.cascade.stages[use.stage].rank;
      int rank = other.cascade.stages[at.stage].rank;
      if (!matchPlaces(use.subscripts, at.subscripts) ||
          (mine >= 0 && rank >= 0 && !correspond(mine, rank)))
        return std::nullopt;
    }
  for (const StageUse &use : own.contractionUses)
    for (const StageUse &at : other.contractionUses)
      if (use.op == at.op && !matchPlaces(use.subscripts, at.subscripts))
        return std::nullopt;
  return map;
}

CommonIndices CommonIndices::of(ArrayRef<const Formula *> formulas) {
  CommonIndices result;
  result.numbers.resize(formulas.size());
  unsigned next = formulas[0]->extents.size();
  for (unsigned i = 0; i < next; ++i)
    result.numbers[0].push_back(i);
  SmallVector<unsigned> known{0}, open;
  for (unsigned m = 1; m < formulas.size(); ++m)
    open.push_back(m);
  // What has a reduction in common with a formula that is known, round by
  // round: a group holds together by its reductions.
  while (!open.empty()) {
    SmallVector<unsigned> later;
    for (unsigned m : open) {
      Numbers &mine = result.numbers[m];
      mine.assign(formulas[m]->extents.size(), std::nullopt);
      bool isTied = false;
      for (unsigned k : known) {
        auto map = match(*formulas[m], *formulas[k], isTied);
        if (!map && k == 0) {
          result.misfit = m;
          return result;
        }
        // Of other formulas a place that does not correspond is a second one.
        for (unsigned i = 0; map && i < map->size(); ++i)
          if ((*map)[i] && !mine[i]) {
            std::optional<unsigned> &theirs = result.numbers[k][*(*map)[i]];
            if (!theirs)
              theirs = next++;
            // Two indices that meet at one of theirs stay two.
            if (!llvm::is_contained(mine, theirs) || k == 0)
              mine[i] = theirs;
          }
      }
      (isTied ? known : later).push_back(m);
    }
    if (later.size() == open.size())
      break;
    open = std::move(later);
  }
  return result;
}
