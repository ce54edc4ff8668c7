// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// refold_cuda_wgmma.h for the host. Copies that a gate waits for arrive when
// they begin, at a random time, or when nobody can go on without; products run
// when they begin or when they are waited for, and their sums are NaN in
// between. Reported are: products that read what no gate let pass, what the
// matrix units have not been shown, or what is still being written; copies over
// what products still read, as far as gates tell; products without a fence,
// or of which four warps disagree; gates with too many arrivals; registers that
// nobody gives. Sums and factors that are touched too early are wrong. Boxes on
// their way out are read when they begin or when they are waited for; reported
// are those of what nobody has shown them, and who writes there before.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_WGMMA_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_WGMMA_H

#include "refold_cuda_emulated_roles.h"

#define REFOLD_GATES(name, count)                                              \
  static const int name##_site = refold::emulator::newSite();                  \
  const uint32_t name = refold::emulator::gatesAt(name##_site, count)

namespace refold::emulator {

/// Gates of their own have offsets behind all that a block may have.
constexpr uint32_t kGatesAt = 1 << 20, kMostGates = 512;
inline uint32_t gatesAt(int site, int count) {
  if (count < 1 || uint32_t(count) > kMostGates)
    report("a block has " + std::to_string(count) + " gates");
  return kGatesAt + uint32_t(site) * kMostGates * 8;
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Where a chunk is that an operand names: `across` counts chunks of 8 elements
/// along what lies beside each other, `row` the other way.
inline int operandChunk(uint64_t operand, int row, int across, bool isPanel) {
  const bool isStep = operand >> 62 == 3 && !isPanel; // rows of 32 bytes
  if (operand >> 62 != 1 && !isStep)
    report("a product asks for a swizzle that there is none of");
  const uint32_t base = uint32_t(operand & 0x3fff) << 4,
                 panels = uint32_t(operand >> 16 & 0x3fff) << 4,
                 rows = uint32_t(operand >> 32 & 0x3fff) << 4;
  uint32_t at = base + row / 8 * rows + row % 8 * (isStep ? 32 : 128);
  at += isPanel ? across / 8 * panels + across % 8 * 16 : across * 16;
  at ^= at >> 3 & (isStep ? 0x10 : 0x70);
  return int(at / 16);
}

/// Every chunk that an operand of `rows` by 8 * `across` elements has.
template <typename Visit>
void visitOperand(uint64_t operand, int rows, int across, bool isPanel,
                  Visit visit) {
  for (int row = 0; row < rows; ++row)
    for (int i = 0; i < across; ++i)
      visit(row, i, operandChunk(operand, row, i, isPanel));
}
template <typename Visit> void visitOperands(const Product &p, Visit visit) {
  if (!p.isOfFactors)
    visitOperand(p.left, 64, 2, false,
                 [&](int row, int i, int at) { visit(0, row, i, at); });
  visitOperand(p.right, p.isAlong ? 16 : p.columns,
               p.isAlong ? p.columns / 8 : 2, p.isAlong,
               [&](int row, int i, int at) { visit(1, row, i, at); });
}

/// What threads have written is there for those who come behind its showing.
inline void checkWritten(int four, const Chunk &chunk) {
  if (chunk.shown.thread < 0)
    report("a product reads shared memory that no gate says is there, and "
           "that nobody has shown the matrix units");
  const int asking = machine.current;
  bool isThere = true;
  for (int i = 0; i < 128 && isThere; ++i) {
    machine.current = four * 128 + i;
    isThere = comesAfter(chunk.shown);
  }
  machine.current = asking;
  if (!isThere)
    report("a product reads shared memory that thread " +
           std::to_string(chunk.shown.thread) + " still writes");
}

/// What the four warps may read of shared memory now.
inline void checkProduct(int four, const Product &p) {
  std::vector<uint64_t> shown(roles.gates.size(), ~uint64_t(0)), seen = shown;
  for (int i = 0; i < 128; ++i) {
    Witness &one = roles.witnesses[four * 128 + i];
    one.shown.resize(roles.gates.size());
    one.seen.resize(roles.gates.size());
    for (size_t gate = 0; gate < shown.size(); ++gate) {
      shown[gate] = std::min(shown[gate], one.shown[gate]);
      seen[gate] = std::min(seen[gate], one.seen[gate]);
    }
  }
  visitOperands(p, [&](int, int, int, int at) {
    SharedElement &element = sharedElement(machine.bytes, at);
    Chunk &chunk = roles.chunk(at);
    if (element.isUnderWay)
      report("a product reads shared memory that a copy is still writing");
    if (element.write.thread < 0)
      report("a product reads shared memory that nobody has written");
    if (chunk.gate < 0) {
      checkWritten(four, chunk);
    } else {
      const auto &known = chunk.isOfBox ? seen : shown;
      if (known[chunk.gate] < chunk.opening)
        report("a product reads shared memory that its warps have not seen "
               "arrive, or not shown the matrix units");
    }
    chunk.reads[four] = p.number;
  });
}

/// Of what a sum of products of bytes adds at once, the bits below the first
/// 14 of the largest are lost.
inline float addBytes(float sum, const float *left, const float *right) {
  float addends[33] = {sum}, largest = std::fabs(sum);
  bool isFinite = std::isfinite(sum);
  for (int k = 0; k < 32; ++k) {
    addends[1 + k] = left[k] * right[k];
    largest = std::max(largest, std::fabs(addends[1 + k]));
    isFinite &= std::isfinite(addends[1 + k]);
  }
  if (!isFinite || largest == 0.0f)
    return std::accumulate(addends, addends + 33, 0.0f);
  // A number whose last place is the last bit that counts.
  const double unit = std::ldexp(1.0, std::ilogb(largest) - 13);
  double total = 0;
  for (float addend : addends)
    total += std::trunc(addend / unit);
  return float(total * unit);
}

inline void runBytes(FourWarps &four, const Product &p) {
  std::vector<float> sides[2] = {std::vector<float>(64 * 32),
                                 std::vector<float>(p.columns * 32)};
  visitOperands(p, [&](int side, int row, int across, int at) {
    uint8_t bits[16];
    std::memcpy(bits, machine.bytes.bytes.data() + at * 16, 16);
    for (int i = 0; i < 16; ++i)
      sides[side][row * 32 + across * 16 + i] = p.widenBytes[side](bits[i]);
  });
  for (int thread = 0; thread < 128; ++thread) {
    Flight &flight = four.flights[p.sums[thread]];
    for (int i = 0; i < p.columns / 2; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
      const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      flight.values[i] = addBytes(p.adds ? flight.values[i] : 0.0f,
                                  &sides[0][row * 32], &sides[1][column * 32]);
    }
  }
}

inline void runProduct(FourWarps &four, const Product &p) {
  if (p.widenBytes[0])
    return runBytes(four, p);
  std::vector<Sixteen> left(64), right(p.columns);
  visitOperands(p, [&](int side, int row, int across, int at) {
    uint16_t bits[8];
    std::memcpy(bits, machine.bytes.bytes.data() + at * 16, 16);
    for (int i = 0; i < 8; ++i) {
      const int along = across * 8 + i;
      const float value = p.widen(bits[i]);
      if (side == 0)
        left[row].set(along, value);
      else if (p.isAlong)
        right[along].set(row, value);
      else
        right[row].set(along, value);
    }
  });
  const int values = p.columns / 2;
  auto rowOf = [](int thread, int i) {
    return thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
  };
  auto columnOf = [](int thread, int i) {
    return i / 4 * 8 + thread % 4 * 2 + i % 2;
  };
  if (p.isOfFactors)
    for (int thread = 0; thread < 128; ++thread)
      for (int word = 0; word < 4; ++word)
        for (int i = 0; i < 2; ++i)
          left[rowOf(thread, word % 2 * 2)].set(
              thread % 4 * 2 + word / 2 * 8 + i,
              p.widen(uint16_t(p.factors[thread][word] >> 16 * i)));
  for (int thread = 0; thread < 128; ++thread) {
    Flight &flight = four.flights[p.sums[thread]];
    for (int i = 0; i < values; ++i)
      flight.values[i] =
          addProducts(p.adds ? flight.values[i] : 0.0f, left[rowOf(thread, i)],
                      right[columnOf(thread, i)]);
  }
}

/// All 128 threads meet; the last one acts.
template <typename Act> void meetFour(const char *what, Act act) {
  if (machine.current / 128 * 128 + 128 > machine.threads)
    report("a product of fewer than four warps");
  FourWarps &four = roles.warpgroups[machine.current / 128];
  const uint64_t generation = four.generation;
  if (++four.arrived == 128) {
    four.arrived = 0;
    ++four.generation;
    ++machine.progress;
    act(four);
  }
  while (four.generation == generation)
    yield(what);
}

inline void issueProduct(float *sums, int columns, const uint32_t *factors,
                         uint64_t left, uint64_t right, bool adds, bool isAlong,
                         float (*widen)(uint16_t),
                         float (*widenLeft)(uint8_t) = nullptr,
                         float (*widenRight)(uint8_t) = nullptr) {
  const int number = machine.current / 128, thread = machine.current % 128;
  FourWarps &four = roles.warpgroups[number];
  if (!four.hasBegun[thread])
    report("a product without begin_products()");
  Product &p = four.current;
  if (four.arrived == 0) {
    p = Product();
    p.columns = columns, p.isOfFactors = factors != nullptr, p.adds = adds;
    p.isAlong = isAlong;
    p.left = left, p.right = right, p.widen = widen;
    p.widenBytes[0] = widenLeft, p.widenBytes[1] = widenRight;
  } else if (p.columns != columns || p.isOfFactors != (factors != nullptr) ||
             p.isAlong != isAlong || p.adds != adds || p.left != left ||
             p.right != right) {
    report("four warps are at different products");
  }
  p.sums[thread] = sums;
  p.factors[thread] = factors;
  Flight &flight = four.flights[sums];
  if (flight.uses++ == 0) {
    flight.values.assign(sums, sums + columns / 2);
    for (int i = 0; i < columns / 2; ++i)
      sums[i] = std::nanf("");
  }
  meetFour("other warps at a product", [&](FourWarps &one) {
    one.current.number = ++one.issued;
    checkProduct(number, one.current);
    one.groups.back().push_back(one.current);
    // Odd modes run products when they are waited for.
    if (machine.seed % 2 == 0)
      runProduct(one, one.current);
  });
}

inline void retire(FourWarps &four, size_t left) {
  while (four.groups.size() > left + 1) {
    for (const Product &p : four.groups.front()) {
      if (machine.seed % 2 != 0)
        runProduct(four, p);
      for (int thread = 0; thread < 128; ++thread) {
        Flight &flight = four.flights[p.sums[thread]];
        if (--flight.uses > 0)
          continue;
        std::copy(flight.values.begin(), flight.values.end(), p.sums[thread]);
        four.flights.erase(p.sums[thread]);
      }
      four.retired = p.number;
    }
    four.groups.pop_front();
  }
}

} // namespace refold::emulator

namespace refold {

inline int of_warp(int x) { return emulator::shuffle("of_warp", x, 0); }

inline void make_gate(uint32_t gate, int arrivals) {
  using namespace emulator;
  if (gate % 8)
    report("a gate is misaligned");
  if (arrivals <= 0 || roles.gateNumbers.count(gate))
    report("a gate is made twice, or for nobody");
  if (gate < kGatesAt)
    roles.chunk(int(gate / 16)).isGate = true;
  roles.gateNumbers[gate] = int(roles.gates.size());
  Gate made;
  made.arrivals = made.pending = arrivals;
  made.made = now();
  roles.gates.push_back(made);
}
inline void arrive(uint32_t gate) {
  using namespace emulator;
  roles.arriveAt(roles.numberOf(gate), roles.knownHere(), 0, roles.nextTurn());
}
inline void arrive_with_copies(uint32_t gate) {
  using namespace emulator;
  Arrival arrival;
  arrival.thread = machine.current;
  arrival.gate = roles.numberOf(gate);
  arrival.made = now();
  arrival.turns = roles.nextTurn();
  arrival.copies = std::move(current().copies);
  current().copies.clear();
  roles.arrivals.push_back(std::move(arrival));
  if (machine.seed == 1)
    roles.landCopies(machine.current);
}
inline void arrive_expecting(uint32_t gate, int bytes) {
  using namespace emulator;
  if (bytes <= 0 || bytes % 16 || bytes >= 1 << 20)
    report("a gate expects " + std::to_string(bytes) + " bytes");
  roles.arriveAt(roles.numberOf(gate), Known(), bytes);
}

struct alignas(64) ArrayMap {
  int64_t words[16];
};
template <int kCount> struct ArrayMaps {
  ArrayMap of[kCount];
};
#define REFOLD_MAPS(name, count) refold::ArrayMaps<count> name

namespace emulator {
/// Those of a launch, of which each has as many words.
template <int kCount> ArrayMaps<kCount> mapsOf(const int64_t *words) {
  ArrayMaps<kCount> maps{};
  for (ArrayMap &map : maps.of) {
    std::copy_n(words, kMapWords, map.words);
    words += kMapWords;
  }
  return maps;
}

inline void checkMap(const MatrixMap &map) {
  bool isTaken = uintptr_t(map.first) % 16 == 0 && map.columns >= 1 &&
                 map.boxRows >= 1 && map.boxRows <= 256;
  for (int i = 0; i < MatrixMap::kMostIndices; ++i)
    isTaken &= map.extents[i] <= 1 ||
               (map.strides[i] % 16 == 0 && map.strides[i] >= 0 &&
                map.strides[i] < int64_t(1) << 40);
  if (!isTaken)
    report("a map of a matrix that copies do not take");
}
} // namespace emulator

template <int kIndices>
void make_array_map(void *map, uint32_t scratch, const void *first,
                    const int64_t (&extents)[kIndices],
                    const int64_t (&strides)[kIndices], int64_t columns,
                    int box_rows) {
  using namespace emulator;
  static_assert(kIndices <= MatrixMap::kMostIndices);
  MatrixMap made{static_cast<const char *>(first),
                 box_rows,
                 uint32_t(columns),
                 {1, 1, 1, 1},
                 {},
                 machine.block,
                 {}};
  if (uintptr_t(map) % 128 || scratch % 128)
    report("a map is misaligned");
  bool isTaken = columns >> 32 == 0;
  for (int i = 0; i < kIndices; ++i) {
    made.extents[i] = uint32_t(extents[i]);
    made.strides[i] = strides[i];
    isTaken &= extents[i] >> 32 == 0;
  }
  if (!isTaken)
    report("a map of a matrix that copies do not take");
  checkMap(made);
  checkLeft(map, 128);
  if (thread() % 32 < 8)
    writeShared(machine.bytes, chunkAt(scratch + thread() % 8 * 16));
  meetWarp("make_array_map", nullptr, [](void **) {});
  LeftValue &left = machine.left[static_cast<const char *>(map)];
  if (left.block >= 0 && left.block != machine.block)
    report("makes a map over that of block " + std::to_string(left.block));
  left = {machine.block, 128, now(), ++machine.time};
  made.made = now();
  std::memcpy(map, &made, sizeof made);
}
inline void see_map(const void *map) {
  using namespace emulator;
  MatrixMap seen;
  checkLeft(map, 128);
  std::memcpy(&seen, map, sizeof seen);
  if (seen.block != machine.block || !comesAfter(seen.made))
    report("sees a map that nobody has made, or that is still being made");
  roles.witness().maps.push_back(map);
}

namespace emulator {
inline MatrixMap mapFor(const void *map, uint32_t place) {
  MatrixMap found;
  checkLeft(map, 128);
  std::memcpy(&found, map, sizeof found);
  if (found.block != machine.block)
    report("a map of another block");
  const std::vector<const void *> &seen = roles.witness().maps;
  if (found.made.thread / 32 != machine.current / 32 &&
      std::find(seen.begin(), seen.end(), map) == seen.end())
    report("a map of another warp that the thread has not seen");
  if (place % 1024)
    report("a box is at a misaligned place");
  return found;
}

/// A map that the launch came with, for everybody.
inline MatrixMap mapFor(const ArrayMap *map, uint32_t place) {
  const int64_t *words = map->words;
  MatrixMap found{reinterpret_cast<const char *>(words[0]),
                  int32_t(words[2]),
                  uint32_t(words[1]),
                  {},
                  {},
                  machine.block,
                  {}};
  bool isTaken = words[1] >> 32 == 0, isEmpty = words[1] == 0;
  for (int i = 0; i < MatrixMap::kMostIndices; ++i) {
    found.extents[i] = uint32_t(words[3 + i]);
    found.strides[i] = words[3 + MatrixMap::kMostIndices + i];
    isTaken &= words[3 + i] >> 32 == 0;
    isEmpty |= words[3 + i] == 0;
  }
  if (words[kMapWords - 1] == 0)
    report("a map that nobody has made");
  if (isEmpty)
    report("a box of an array that has no elements");
  if (!isTaken)
    report("a map of a matrix that copies do not take");
  checkMap(found);
  if (place % 1024)
    report("a box is at a misaligned place");
  return found;
}

/// Every 16 bytes of a box: where they are in shared memory, and how many of
/// them where in the matrix.
template <typename Visit>
void visitBox(const MatrixMap &map, uint32_t place, int column,
              std::array<int, MatrixMap::kMostIndices> at, Visit visit) {
  const char *matrix = map.first;
  bool isMatrix = true;
  for (int i = 1; i < MatrixMap::kMostIndices; ++i) {
    isMatrix &= at[i] >= 0 && uint32_t(at[i]) < map.extents[i];
    matrix += isMatrix ? at[i] * map.strides[i] : 0;
  }
  for (int64_t r = 0; r < map.boxRows; ++r)
    for (int chunk = 0; chunk < 8; ++chunk) {
      const int64_t first = column + chunk * 16, row = at[0] + r;
      const bool isThere =
          isMatrix && row >= 0 && row < map.extents[0] && first >= 0;
      const int64_t bytes =
          isThere ? std::clamp<int64_t>(map.columns - first, 0, 16) : 0;
      visit(uint32_t(place + r * 128 + (chunk ^ (r & 7)) * 16), bytes,
            bytes > 0 ? matrix + row * map.strides[0] + first : nullptr);
    }
}

/// What a box on its way out has of shared memory now.
inline void takeBytes(Leaving &box) {
  visitBox(box.to, box.from, box.column, box.at,
           [&](uint32_t from, int64_t, const char *) {
             const char *at = machine.bytes.bytes.data() + from;
             box.bytes.insert(box.bytes.end(), at, at + 16);
           });
}

/// The thread knows that a box is gone: who comes behind it may write there.
inline void finishBox(Leaving &box) {
  if (box.bytes.empty())
    takeBytes(box);
  size_t taken = 0;
  visitBox(box.to, box.from, box.column, box.at,
           [&](uint32_t from, int64_t bytes, const char *to) {
             const int place = chunkAt(from);
             for (int64_t i = 0; i < bytes; ++i)
               checkGlobal(to + i, 1, true);
             std::memcpy(const_cast<char *>(to), box.bytes.data() + taken,
                         size_t(bytes));
             taken += 16;
             --roles.chunk(place).leaving;
             machine.bytes.elements[place].reads.push_back(now());
           });
}
} // namespace emulator

template <typename Map, typename... At>
void copy_box(uint32_t to, const Map *map, uint32_t gate, int column, int row,
              At... at) {
  using namespace emulator;
  const MatrixMap from = mapFor(map, to);
  Arrival arrival;
  arrival.thread = machine.current;
  arrival.gate = roles.numberOf(gate);
  arrival.made = now();
  arrival.isBox = true;
  for (size_t i = sizeof...(At) + 1; i < MatrixMap::kMostIndices; ++i)
    if (from.extents[i] > 1)
      report("brings a box of no one matrix");
  visitBox(from, to, column, {row, at...},
           [&](uint32_t place, int64_t bytes, const char *at) {
             Copy copy;
             copy.to = place;
             std::memset(copy.data, 0, 16);
             if (bytes > 0) {
               checkGlobal(at, 1, false);
               checkGlobal(at + bytes - 1, 1, false);
               std::memcpy(copy.data, at, size_t(bytes));
             }
             const int chunk = chunkAt(copy.to);
             const Chunk &before = roles.chunk(chunk);
             if (sharedElement(machine.bytes, chunk).write.thread >= 0 &&
                 before.gate < 0 &&
                 (before.shown.thread < 0 || !comesAfter(before.shown)))
               report("brings a box over what nobody has shown it since it was "
                      "written");
             // Warps whose product has read what others copied have shown it
             // the engines: who knows that it is done comes behind that.
             if (before.gate >= 0 && !before.isOfBox && before.isRead())
               sharedElement(machine.bytes, chunk).write = now();
             roles.isBringingBox = true;
             writeShared(machine.bytes, chunk);
             roles.isBringingBox = false;
             machine.bytes.elements[chunk].isUnderWay = true;
             std::memset(machine.bytes.bytes.data() + copy.to, 0xff, 16);
             arrival.copies.push_back(copy);
           });
  roles.arrivals.push_back(std::move(arrival));
  if (machine.seed == 1)
    roles.landCopies(machine.current);
}
template <typename Map, typename... At>
void store_box(const Map *map, uint32_t from, int column, int row, At... at) {
  using namespace emulator;
  Leaving box{machine.current,
              roles.boxGroups[machine.current],
              mapFor(map, from),
              from,
              column,
              {row, at...},
              {}};
  for (size_t i = sizeof...(At) + 1; i < box.at.size(); ++i)
    if (box.to.extents[i] > 1)
      report("stores a box of no one matrix");
  visitBox(box.to, from, column, box.at,
           [&](uint32_t to, int64_t bytes, const char *) {
             const int place = chunkAt(to);
             const SharedElement &element = sharedElement(machine.bytes, place);
             Chunk &chunk = roles.chunk(place);
             ++chunk.leaving;
             if (bytes == 0)
               return; // what is there does not matter
             if (element.isUnderWay)
               report("stores a box that a copy is still writing");
             if (chunk.shown.thread < 0 || !comesAfter(chunk.shown))
               report("stores a box of what nobody has shown it since it was "
                      "written");
           });
  // Even modes take the bytes when the thread waits for them.
  if (machine.seed % 2 != 0)
    takeBytes(box);
  roles.leaving.push_back(std::move(box));
}
inline void commit_boxes() {
  ++emulator::roles.boxGroups[emulator::machine.current];
}
template <int kLeft> void wait_boxes() {
  using namespace emulator;
  const uint64_t complete = roles.boxGroups[machine.current];
  for (size_t i = 0; i < roles.leaving.size();) {
    Leaving &box = roles.leaving[i];
    if (box.thread != machine.current || box.group + kLeft >= complete) {
      ++i;
      continue;
    }
    finishBox(box);
    roles.leaving.erase(roles.leaving.begin() + i);
  }
}
inline void wait_gate(uint32_t gate, uint32_t parity) {
  using namespace emulator;
  const int number = roles.numberOf(gate);
  while ((roles.gates[number].opened & 1) == (parity & 1))
    yield("a gate");
  Witness &witness = roles.witness();
  witness.seen[number] = roles.gates[number].opened;
  witness.known.join(roles.gates[number].passed);
  joinTurns(witness.gateTurns, roles.gates[number].passedTurns);
}
inline void show_matrices() {
  emulator::Witness &witness = emulator::roles.witness();
  witness.shown = witness.seen;
  emulator::roles.showWritten();
}

inline void store_matrices(uint32_t row, const uint32_t (&from)[4]) {
  using namespace emulator;
  struct Slot {
    const uint32_t *from;
    uint32_t row[4];
  } slot{from, {}};
  meetWarp("store_matrices", &slot, [](void **slots) {
    for (int at = 0; at < 32; ++at)
      for (int word = 0; word < 4; ++word)
        static_cast<Slot *>(slots[at])->row[word] =
            static_cast<Slot *>(slots[at % 8 * 4 + word])->from[at / 8];
  });
  std::memcpy(writeShared(machine.bytes, chunkAt(row)), slot.row, 16);
}

inline void await_turn(int barrier, int threads);
inline void pass_turn(int barrier, int threads);

namespace emulator {
inline Turn &arriveAtTurn(int barrier, int threads) {
  if (barrier < 1 || barrier > 15 || threads % 32 || threads <= 0)
    report("a turn is no barrier of whole warps");
  Turn &turn = roles.turns[barrier];
  if (turn.arrived == 0)
    turn.threads = threads;
  else if (turn.threads != threads)
    report("a turn is of different numbers of threads");
  std::vector<uint32_t> &known = roles.witnesses[machine.current].turns;
  known.resize(machine.threads);
  known[machine.current] = ++current().turn;
  joinTurns(turn.next, known);
  turn.nextKnown.join(roles.knownHere());
  if (++turn.arrived == threads) {
    turn.arrived = 0;
    turn.passed = std::move(turn.next);
    turn.next.clear();
    turn.known = turn.nextKnown;
    ++turn.generation;
    ++machine.progress;
  }
  return turn;
}
} // namespace emulator

inline void await_turn(int barrier, int threads) {
  const uint64_t generation = emulator::roles.turns[barrier & 15].generation;
  emulator::Turn &turn = emulator::arriveAtTurn(barrier, threads);
  while (turn.generation == generation)
    emulator::yield("its turn");
  emulator::joinTurns(emulator::roles.witnesses[thread()].turns, turn.passed);
  emulator::roles.witnesses[thread()].known.join(turn.known);
}
inline void pass_turn(int barrier, int threads) {
  emulator::arriveAtTurn(barrier, threads);
}

template <int kCount> void give_registers() {
  using namespace emulator;
  static_assert(kCount % 8 == 0 && kCount >= 24 && kCount <= 256);
  meetWarp("give_registers", nullptr, [](void **) {
    int &own = roles.registers[machine.current / 32];
    if (kCount > own)
      report("gives registers that it does not have");
    roles.pool += own - kCount;
    own = kCount;
  });
}
template <int kCount> void take_registers() {
  using namespace emulator;
  static_assert(kCount % 8 == 0 && kCount >= 24 && kCount <= 256);
  meetWarp("take_registers", nullptr, [](void **) {});
  int &own = roles.registers[machine.current / 32];
  while (own < kCount) {
    if (roles.pool >= kCount - own) {
      roles.pool -= kCount - own;
      own = kCount;
      ++machine.progress;
      break;
    }
    yield("registers of other roles");
  }
}

inline void begin_products() {
  emulator::roles.warpgroups[thread() / 128].hasBegun[thread() % 128] = true;
}
inline void commit_products() {
  emulator::meetFour("other warps at a commit", [](emulator::FourWarps &four) {
    four.groups.emplace_back();
    std::fill(std::begin(four.hasBegun), std::end(four.hasBegun), false);
  });
}
template <int kLeft> void wait_products() {
  emulator::meetFour("other warps at a wait", [](emulator::FourWarps &four) {
    emulator::retire(four, kLeft);
  });
}
template <int kParts> void settle(float (&)[kParts][4]) {}

namespace emulator {
inline float widenBf16(uint16_t bits) { return to_float(bf16{bits}); }
inline float widenF16(uint16_t bits) { return to_float(f16{bits}); }
template <typename T> float widenByte(uint8_t bits) {
  return to_float(T{bits});
}
} // namespace emulator

#define REFOLD_PRODUCTS(type, widen, columns)                                  \
  template <int kPart, int kParts>                                             \
  void multiply_shared_##columns(float(&sums)[kParts][4], uint64_t left,       \
                                 uint64_t right, int adds, type) {             \
    static_assert((kPart + columns / 8) <= kParts);                            \
    emulator::issueProduct(sums[kPart], columns, nullptr, left, right,         \
                           adds != 0, false, emulator::widen);                 \
  }                                                                            \
  template <int kPart, int kParts>                                             \
  void multiply_along_##columns(float(&sums)[kParts][4], uint64_t left,        \
                                uint64_t right, int adds, type) {              \
    static_assert((kPart + columns / 8) <= kParts);                            \
    emulator::issueProduct(sums[kPart], columns, nullptr, left, right,         \
                           adds != 0, true, emulator::widen);                  \
  }                                                                            \
  template <int kPart, int kParts>                                             \
  void multiply_kept_##columns(float(&sums)[kParts][4],                        \
                               const uint32_t(&left)[4], uint64_t right,       \
                               int adds, type) {                               \
    static_assert((kPart + columns / 8) <= kParts);                            \
    emulator::issueProduct(sums[kPart], columns, left, 0, right, adds != 0,    \
                           false, emulator::widen);                            \
  }                                                                            \
  template <int kPart, int kParts>                                             \
  void multiply_factors_##columns(float(&sums)[kParts][4],                     \
                                  const uint32_t(&left)[4], uint64_t right,    \
                                  int adds, type) {                            \
    static_assert((kPart + columns / 8) <= kParts);                            \
    emulator::issueProduct(sums[kPart], columns, left, 0, right, adds != 0,    \
                           true, emulator::widen);                             \
  }
#define REFOLD_PRODUCTS_OF(type, widen)                                        \
  REFOLD_PRODUCTS(type, widen, 16)                                             \
  REFOLD_PRODUCTS(type, widen, 32)                                             \
  REFOLD_PRODUCTS(type, widen, 64)                                             \
  REFOLD_PRODUCTS(type, widen, 128)                                            \
  REFOLD_PRODUCTS(type, widen, 256)
REFOLD_PRODUCTS_OF(bf16, widenBf16)
REFOLD_PRODUCTS_OF(f16, widenF16)
#undef REFOLD_PRODUCTS_OF
#undef REFOLD_PRODUCTS

template <int kPart, int kParts, typename T>
void multiply_shared_128(float (&sums)[kParts][4], const uint64_t (&left)[4],
                         const uint64_t (&right)[4], int adds, T type) {
  for (int i = 0; i < 4; ++i)
    multiply_shared_128<kPart>(sums, left[i], right[i], i > 0 || adds, type);
}
template <int kPart, int kFirst, int kParts, int kSteps, typename T>
void multiply_factors_128(float (&sums)[kParts][4],
                          const uint32_t (&left)[kSteps][1][4],
                          const uint64_t (&right)[4], int adds, T type) {
  for (int i = 0; i < 4; ++i)
    multiply_factors_128<kPart>(sums, left[kFirst + i][0], right[i],
                                i > 0 || adds, type);
}

#define REFOLD_PRODUCTS(columns)                                               \
  template <int kPart, int kParts, typename L, typename R>                     \
  void multiply_bytes_##columns(float(&sums)[kParts][4], uint64_t left,        \
                                uint64_t right, int adds, L, R) {              \
    static_assert((kPart + columns / 8) <= kParts);                            \
    emulator::issueProduct(sums[kPart], columns, nullptr, left, right,         \
                           adds != 0, false, nullptr, emulator::widenByte<L>,  \
                           emulator::widenByte<R>);                            \
  }
REFOLD_PRODUCTS(64)
REFOLD_PRODUCTS(128)
REFOLD_PRODUCTS(256)
#undef REFOLD_PRODUCTS

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_WGMMA_H
