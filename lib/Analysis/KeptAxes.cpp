// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions over fewer axes than what they read (theory: several axes). Where
// `mu` is reduced over (c, s), and `pooled[c]` over s reads it and the same
// elements, one traversal of (c, s) is enough: an element counts for the place
// c of `pooled` that it stands at.
#include "Ties.h"

using namespace mlir;
using namespace refold;

/// Loops of `reader` along the stream of `producer`, by an operand that both
/// read: every loop that `reader` reduces, and others that the place it reads
/// `producer` at does not move with. The last axis is one that `reader`
/// reduces: places along it would be summed one element at a time, in as many
/// steps as there are, and err accordingly.
std::optional<WiderStream> Ties::along(const Reduction &reader,
                                       const Reduction &producer,
                                       uint64_t placeLoops) const {
  for (const Operand &theirs : producer.operands)
    for (const Operand &mine : reader.operands) {
      if (theirs.tensor != mine.tensor)
        continue;
      WiderStream wider{producer.stream, {}};
      uint64_t used = 0;
      for (unsigned stream : producer.streamLoops) {
        auto dim = llvm::find(theirs.loops, int(stream));
        int loop = dim == theirs.loops.end()
                       ? -1
                       : mine.loops[dim - theirs.loops.begin()];
        if (loop < 0 || ((used | placeLoops) & (uint64_t(1) << loop)))
          break;
        used |= uint64_t(1) << loop;
        wider.loops.push_back(loop);
      }
      uint64_t reduced = 0;
      for (unsigned loop : reader.streamLoops)
        reduced |= uint64_t(1) << loop;
      if (wider.loops.size() == producer.stream.size() && !(reduced & ~used) &&
          (reduced & (uint64_t(1) << wider.loops.back())))
        return wider;
    }
  return std::nullopt;
}

/// Nothing else of the cascade may read the reduction: what a stage reads has
/// the rows of the cascade, and the stream would be read for each place. Nor
/// may it have a stage of its own axes, which would have as many places.
void Ties::widen(Reduction &reader) const {
  if (!isa<linalg::GenericOp>(reader.op))
    return;
  if (auto it = readersOf.find(reader.op); it != readersOf.end())
    for (unsigned number : it->second)
      for (const Occurrence &o : reductions[number].reads)
        if (o.producer == reader.op && !o.moves)
          return;
  uint64_t placeLoops = 0;
  const Reduction *widest = nullptr;
  for (const Occurrence &o : reader.reads) {
    const Reduction *producer = find(o.producer);
    if (o.moves || !producer)
      continue;
    if (producer->wider || producer->stream.size() <= reader.stream.size() ||
        (widest && widest->stream != producer->stream))
      return;
    widest = producer;
    placeLoops |= o.loops;
  }
  if (widest)
    reader.wider = along(reader, *widest, placeLoops);
}

const WiderStream *Ties::widerStream(linalg::GenericOp op) const {
  const Reduction *own = find(op);
  return own && own->wider ? &*own->wider : nullptr;
}
