// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The k best with payloads: an insertion list a row. Elements rarely enter once
// the best are known, so a register is first compared with the last of the
// list.
#include "Kernel.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

static unsigned rankOf(StatePlan &s) {
  return cast<BlockArgument>(s.op.getRank()[0]).getArgNumber();
}

/// Strictly before in the order: equal keys keep the order they came in. A NaN
/// is above +inf.
Val Kernel::beats(StatePlan &s, Val key, Val than) {
  bool isTop = s.op.getReducer() == Reducer::TopK;
  if (!isa<FloatType>(s.type()))
    return to.compare(isTop ? Compare::SGT : Compare::SLT, key, than);
  Val before = to.compare(isTop ? Compare::UGT : Compare::ULT, key, than);
  Val number = isTop ? than : key;
  return to.binary(Binary::AndI, before,
                   to.compare(Compare::ORD, number, number));
}

void Kernel::initialiseOrdered(StatePlan &s) {
  StateArrays &a = arrays[s.number];
  MLIRContext *context = s.op.getContext();
  Builder b(context);
  eachRow(plan.hasRow(s.set), [&](Ix row) {
    Tile t = tileOf(row);
    writeArray(t, a.count, 0, 0, to.constant(b.getI32IntegerAttr(0)));
    to.each(0, extents[rankOf(s)], 1, [&](Ix k) {
      Tile at = tileOf(row);
      at.local[rankOf(s)] = k;
      for (auto [i, array] : llvm::enumerate(a.values)) {
        Type type = s.op.getResult(i).getType();
        Val v = i == 0 ? identity(s)
                : isa<FloatType>(type)
                    ? to.constant(b.getFloatAttr(type, 0.0))
                    : to.constant(cast<TypedAttr>(b.getIntegerAttr(
                          type.isIndex() ? b.getI32Type() : type, -1)));
        writeArray(at, array, 0, 0, v);
      }
    });
  });
}

/// Puts one element where it belongs; what stands behind moves down.
void Kernel::insertOrdered(StatePlan &s, Ix row, Values element) {
  StateArrays &a = arrays[s.number];
  Builder b(s.op.getContext());
  Tile head = tileOf(row);
  Val count = readArray(head, a.count, 0, 0);
  Ix filled = to.toIndex(count);
  element.push_back(to.constant(b.getBoolAttr(false)));
  to.loop(0, extents[rankOf(s)], 1, element, [&](Ix k, ArrayRef<Val> e) {
    Tile t = tileOf(row);
    t.local[rankOf(s)] = k;
    Values current, next;
    for (Array &array : a.values)
      current.push_back(readArray(t, array, 0, 0));
    Val isFree = to.less(to.sub(filled, 1), k);
    Val goesHere =
        to.binary(Binary::OrI, e.back(),
                  to.binary(Binary::OrI, isFree, beats(s, e[0], current[0])));
    for (auto [i, array] : llvm::enumerate(a.values)) {
      writeArray(t, array, 0, 0, to.select(goesHere, e[i], current[i]));
      next.push_back(to.select(goesHere, current[i], e[i]));
    }
    next.push_back(goesHere);
    return next;
  });
  Val one = to.constant(b.getI32IntegerAttr(1));
  writeArray(head, a.count, 0, 0, to.binary(Binary::AddI, count, one));
}

void Kernel::orderedColumn(StatePlan &s, Tile &t, int c, bool isChecked) {
  StateArrays &a = arrays[s.number];
  Ix row = t.rowLocal[0];
  Values wide{to.splat(eval(t, s.term, 0, c))};
  for (Node *n : s.payloads)
    wide.push_back(to.splat(eval(t, n, 0, c)));
  Val inside = isChecked ? maskOf(t, c) : Val();
  auto last = [&] {
    Tile end = tileOf(row);
    end.local[rankOf(s)] = to.sub(extents[rankOf(s)], 1);
    return readArray(end, a.values[0], 0, 0);
  };
  auto isNotFull = [&] {
    Tile head = tileOf(row);
    return to.less(to.toIndex(readArray(head, a.count, 0, 0)),
                   extents[rankOf(s)]);
  };
  auto perLane = [&] {
    to.each(0, to.lanes(), 1, [&](Ix lane) {
      Values element;
      for (Val v : wide)
        element.push_back(to.extract(v, lane));
      Val enters =
          to.binary(Binary::OrI, isNotFull(), beats(s, element[0], last()));
      if (inside)
        enters = to.binary(Binary::AndI, enters, to.extract(inside, lane));
      to.branch(enters, [&] { insertOrdered(s, row, element); }, [] {});
    });
  };
  to.branch(
      to.less(0, extents[rankOf(s)]),
      [&] {
        Val any = beats(s, wide[0], to.splat(last()));
        Val enters = to.binary(Binary::OrI, isNotFull(),
                               to.reduceLanes(Binary::OrI, any));
        to.branch(enters, perLane, [] {});
      },
      [] {});
}
