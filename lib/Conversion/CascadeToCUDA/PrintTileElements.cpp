// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How a kernel with roles reads what moves along both its rows and the stream
// (a bias of pairs, a mask): rectangles that the copying warps bring to shared
// memory beside the right side, as many of them as there is room for.
#include "TilePrinter.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;
using TileOp = tile::Op;

static int64_t bytesOfElement(const TileAccess &access) {
  return access.read->type.isInteger(1)
             ? 1
             : (access.read->type.getIntOrFloatBitWidth() + 7) / 8;
}

static std::string typeOfElements(const TileAccess &access) {
  return storedType(access.read->type);
}

static tile::SharedRows rowsOfElements(const TileAccess &access, int64_t rows,
                                       int64_t columns) {
  return tile::SharedRows::elements(rows, columns, bytesOfElement(access));
}

int64_t TilePrinter::bytesOfElements(const TileAccess &access, int64_t rows,
                                     int64_t columns) {
  return rowsOfElements(access, rows, columns).bytes();
}

int64_t TilePrinter::bytesOfBrought(unsigned brought, int64_t rows,
                                    int64_t columns) {
  int64_t bytes = 0;
  for (const TileAccess &access : ArrayRef(tiles.elements).take_front(brought))
    bytes += 2 * bytesOfElements(access, rows, columns);
  return bytes;
}

/// What the texts of entries take for granted of tiles: that sums are factors
/// where they are, that nothing meets in a bank.
LogicalResult TilePrinter::checkLayouts() {
  for (const CudaEntry &entry : result.entries) {
    // Of f32 factors are handed over in shared memory.
    if (tiles.isOfWords)
      continue;
    tile::PlannedTiles planned;
    planned.isOfFourWarps = entry.roles > 0;
    auto add = [&](const char *name, int64_t rows, int64_t columns) {
      planned.matrices.push_back(
          {name, planned.isOfFourWarps
                     ? tile::SharedRows::panel(rows, columns)
                     : tile::SharedRows::tile(rows, columns)});
    };
    add("left", entry.rows, entry.deepest);
    add("right", entry.vectors, entry.deepest);
    if (hasWidth())
      add("values", entry.vectors, entry.widest);
    if (auto count = brought.find(entry.name); count != brought.end())
      for (const TileAccess &access :
           ArrayRef(tiles.elements).take_front(count->second))
        planned.matrices.push_back(
            {access.name, rowsOfElements(access, entry.rows, entry.vectors),
             8 * bytesOfElement(access)});
    if (!tiles.products.empty()) {
      // As they are in shared memory: those of 8 bits are widened.
      const TileAccess &values = tiles.values[tiles.products.front().values];
      planned.columns = unsigned(entry.vectors);
      planned.factorBytes = values.unit.getIntOrFloatBitWidth() / 8;
    }
    if (std::string fault = tile::faultOf(planned); !fault.empty())
      return refuse(plan.cascade, Reason::CudaTileFault)
             << entry.name << ": " << fault;
  }
  return success();
}

unsigned TilePrinter::mostBrought() {
  unsigned most = 0;
  for (auto &[name, count] : brought)
    most = std::max(most, count);
  return most;
}

unsigned TilePrinter::fewestBrought() {
  unsigned fewest = tiles.elements.size();
  for (auto &[name, count] : brought)
    fewest = std::min(fewest, count);
  return fewest;
}

/// The arrays that some entry brings, and what each of them is in front of, in
/// entries that do not.
void TilePrinter::eachBrought(
    llvm::function_ref<void(TileAccess &, const std::string &)> print) {
  for (unsigned i = 0; i < mostBrought(); ++i)
    print(tiles.elements[i], i < fewestBrought()
                                 ? std::string()
                                 : "kBrought > " + std::to_string(i));
}

/// Types and bytes; rectangles lie behind the values.
void TilePrinter::printElementNumbers() {
  if (!mostBrought())
    return;
  std::string bytes;
  eachBrought([&](TileAccess &access, const std::string &condition) {
    std::string type = access.name + "_type";
    out.line("using " + type + " = Elements<" + typeOfElements(access) +
             ", kBlockRows, kColumns>;");
    std::string own = "2 * " + type + "::kBytes";
    if (!condition.empty())
      own = "(" + condition + " ? " + own + " : 0)";
    bytes += (bytes.empty() ? "" : " + ") + own;
  });
  ops.add(let("constexpr int64_t", {{"kElementBytes", bytes}}));
}

void TilePrinter::printElementPlaces() {
  std::string at = "value_tiles + " + std::to_string(2 * tiles.values.size()) +
                   " * Values::kBytes" + (hasBoxes() ? " + kRowsBytes" : "");
  eachBrought([&](TileAccess &access, const std::string &condition) {
    ops.add(
        let("[[maybe_unused]] const uint32_t", {{access.name + "_tiles", at}}));
    at = access.name + "_tiles + 2 * " + access.name + "_type::kBytes";
  });
}

/// Where they are in global memory.
void TilePrinter::printElementRows() {
  eachBrought([&](TileAccess &access, const std::string &condition) {
    printMatrix(access);
  });
}

void TilePrinter::printElementCopies() {
  if (!mostBrought())
    return;
  const std::string &n = kernel.indexNames[tiles.stream];
  const std::string &m = kernel.indexNames[tiles.tileRow];
  openWhereBrought();
  ops.add(atGate(TileOp::WaitGate, "elements_left", "place", "parity"));
  eachBrought([&](TileAccess &access, const std::string &condition) {
    std::string type = access.name + "_type";
    TileOp op = plain(TileOp::CopyRows);
    op.callee = "copy_elements<" + type + ", 128>";
    op.to = {access.name + "_tiles", "place", type};
    op.arguments = {access.name + " + first", strideOf(access),
                    m + "_end - " + m + "_first", n + "_count - first"};
    ops.add(whereInline(condition, op));
  });
  ops.add(atGate(TileOp::ArriveWithCopies, "elements_came", "place"));
  closeWhereBrought();
}

/// Around what entries that bring nothing leave out.
void TilePrinter::openWhereBrought() {
  if (fewestBrought() == 0)
    ops.open(where("kBrought > 0", /*isConstant=*/true));
}
void TilePrinter::closeWhereBrought() {
  if (fewestBrought() == 0)
    ops.close();
}

/// Before the first term that reads one, and behind the last.
void TilePrinter::printElementsCome() {
  if (!mostBrought())
    return;
  openWhereBrought();
  ops.add(atGate(TileOp::WaitGate, "elements_came", "place", "(turn / 2) & 1"));
  closeWhereBrought();
}
void TilePrinter::printElementsLeave() {
  if (!mostBrought())
    return;
  openWhereBrought();
  TileOp barrier = plain(TileOp::WarpBarrier);
  barrier.comment = "one lane says so for all";
  ops.add(barrier);
  ops.add(where("which % 32 == 0",
                atGate(TileOp::Arrive, "elements_left", "place")));
  closeWhereBrought();
}

/// Those that these terms read; of the later levels, beside what is kept.
void TilePrinter::findBrought(ArrayRef<Node *> roots, bool isFirst) {
  broughtHere.clear();
  NodeSet seen;
  SmallVector<Node *> pending(roots.begin(), roots.end());
  while (isInRoles && !pending.empty()) {
    Node *n = pending.pop_back_val();
    if (!seen.insert(n) || n->kind == Node::Contract ||
        (n == tiles.kept && !isFirst))
      continue;
    pending.append(n->in.begin(), n->in.end());
  }
  if (isInRoles)
    eachBrought([&](TileAccess &access, const std::string &condition) {
      if (seen.contains(access.read))
        broughtHere.push_back({&access, condition});
    });
}

/// What the thread has of them in 16 columns, of all its rows.
void TilePrinter::printBrought() {
  for (auto &[access, condition] : broughtHere) {
    out.line("[[maybe_unused]] " + typeOfElements(*access) + " " +
             access->name + "_here[2 * kTiles][4] = {};");
    std::string type = access->name + "_type";
    tile::Stage from = {access->name + "_tiles", "place", type};
    TileOp op = plain(TileOp::Read);
    op.text = "take_elements<" + type + ", kTiles>(" + access->name +
              "_here, " + from.text() + ", which / 32 * kTiles * 16, c);";
    op.reads = {from};
    ops.add(whereInline(condition, op));
  }
}

/// One of four elements of a row; read where it lies where it is not brought.
void TilePrinter::bindBrought() {
  for (auto &[access, condition] : broughtHere) {
    std::string one = access->name + "_here[i][e]";
    if (!condition.empty()) {
      auto read = cast<ReadOp>(access->read->op);
      std::string there =
          kernel.operandNames[access->operand] +
          values.offset(access->operand, read.getMap(), access->read->in, 0);
      out.line(typeOfElements(*access) + " " + access->name + "_one;");
      out.line("if constexpr (" + condition + ")");
      out.line("  " + access->name + "_one = " + one + ";");
      out.line("else");
      out.line("  " + access->name + "_one = refold::load_element(" + there +
               ");");
      one = access->name + "_one";
    }
    values.bind(access->read,
                access->read->type.isInteger(1) ? "(" + one + " != 0)" : one);
  }
}
