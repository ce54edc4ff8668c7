// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The dictionary that a schedule is as text, both ways.
#include "ScheduleChooser.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace refold;

DictionaryAttr Schedule::toAttr(MLIRContext *context) const {
  Builder b(context);
  NamedAttrList list;
  SmallVector<NamedAttribute> tiles;
  for (auto &[name, size] : tile)
    tiles.push_back(b.getNamedAttr(name, b.getI64IntegerAttr(size)));
  list.set("tile", b.getDictionaryAttr(tiles));
  list.set("register", b.getDenseI64ArrayAttr({registerRows, registerLanes}));
  list.set("unroll", b.getI64IntegerAttr(unroll));
  if (!pack.empty()) {
    SmallVector<StringRef> names(pack.begin(), pack.end());
    list.set("pack", b.getStrArrayAttr(names));
  }
  if (!lanes.empty())
    list.set("lanes", b.getStringAttr(lanes));
  if (segments > 1)
    list.set("segments", b.getI64IntegerAttr(segments));
  if (prefetch)
    list.set("prefetch", b.getUnitAttr());
  if (streamBytes)
    list.set("stream_bytes", b.getI64IntegerAttr(streamBytes));
  if (panelBytes != kPanelBytes)
    list.set("panel_bytes", b.getI64IntegerAttr(panelBytes));
  if (innerLanes)
    list.set("inner_lanes", b.getUnitAttr());
  return list.getDictionary(context);
}

LogicalResult refold::overlaySchedule(CascadeOp cascade, DictionaryAttr attr,
                                      Schedule &s) {
  for (NamedAttribute field : attr) {
    StringRef name = field.getName();
    Attribute value = field.getValue();
    auto integer = dyn_cast<IntegerAttr>(value);
    if (auto tiles = dyn_cast<DictionaryAttr>(value); tiles && name == "tile") {
      s.tile.clear();
      for (NamedAttribute t : tiles) {
        auto size = dyn_cast<IntegerAttr>(t.getValue());
        if (!size || size.getInt() < 1 || size.getInt() > (1 << 20))
          return cascade.emitOpError("schedule has tile ")
                 << t.getValue() << " of '" << t.getName().getValue()
                 << "'; expected 1 to 1048576";
        s.tile[t.getName().str()] = size.getInt();
      }
    } else if (auto list = dyn_cast<DenseI64ArrayAttr>(value);
               list && name == "register" && list.size() == 2 && list[0] > 0 &&
               list[0] <= 16 && list[1] > 0 && list[1] <= 256) {
      s.registerRows = list[0];
      s.registerLanes = list[1];
    } else if (integer && name == "unroll" && integer.getInt() > 0 &&
               integer.getInt() <= 32) {
      s.unroll = integer.getInt();
    } else if (integer && name == "segments" && integer.getInt() > 0 &&
               integer.getInt() <= 4096) {
      s.segments = integer.getInt();
    } else if (integer && name == "stream_bytes" && integer.getInt() >= 0) {
      s.streamBytes = integer.getInt();
    } else if (integer && name == "panel_bytes" && integer.getInt() >= 0) {
      s.panelBytes = integer.getInt();
    } else if (auto names = dyn_cast<ArrayAttr>(value);
               names && name == "pack") {
      for (Attribute n : names)
        if (auto text = dyn_cast<StringAttr>(n))
          s.pack.push_back(text.str());
    } else if (auto text = dyn_cast<StringAttr>(value);
               text && name == "lanes") {
      s.lanes = text.str();
    } else if (name == "prefetch") {
      s.prefetch = true;
    } else if (name == "inner_lanes") {
      s.innerLanes = true;
    } else {
      return cascade.emitOpError("schedule has '")
             << name << "' = " << value
             << "; expected tile, register, unroll, pack, lanes, segments, "
                "stream_bytes, panel_bytes, prefetch or inner_lanes with "
                "values in range";
    }
  }
  return success();
}
