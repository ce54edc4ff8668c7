// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels as programs of tile ops: what is asynchronous in them, and what
// decides where it happens. Text is printed from the ops; what computes numbers
// of elements is text between them.
#ifndef REFOLD_CONVERSION_TILEPROGRAM_H
#define REFOLD_CONVERSION_TILEPROGRAM_H

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace refold::tile {

/// A place of some tiles in shared memory: `tiles` + `stage` * type::kBytes;
/// without `tiles`, `stage` is where it is in shared memory.
struct Stage {
  std::string tiles, stage, type;
  std::string text() const {
    return tiles + " + " + stage + " * " + type + "::kBytes";
  }
};

/// A name and the number that it has, as C++.
using Number = std::pair<std::string, std::string>;

struct Op {
  enum Kind : uint8_t {
    Text, ///< lines as they are
    // Numbers, and where a thread goes.
    Let,    ///< names that live as long as the ops around
    Assign, ///< of names that are there
    Loop,   ///< `begin` of `numbers`, while `condition`, then `step`
    Branch, ///< `body` where `condition`, else `otherwise`
    Return,
    Break,
    Continue,
    Define, ///< a lambda `callee`, of `numbers`: a name, and "constant" of a
            ///< Number<>, "visit", "number", or "" for what is text
    Call,
    // Gates: `gate` at `place`; without a name, where it is in shared memory,
    // or `to` is the one.
    MakeGate, ///< of `count` arrivals
    WaitGate, ///< until phases of `count` are over
    Arrive,   ///< by each thread
    ArriveWithCopies,
    ArriveExpecting, ///< and `count` bytes of boxes
    // Copies to `to`.
    CopyBoxes, ///< by one thread, arriving at `gate` at `place`
    CopyBox,   ///< one of those that `gate` expects, of the map in `reads`
    SeeMap,    ///< that somebody has written
    MakeMap,   ///< at `to`, by way of what is in `reads`; seen by who makes it
    CopyRows,  ///< by all threads of a role
    CommitCopies,
    WaitCopies, ///< all but `count` groups
    StoreBoxes, ///< from shared memory of a warp
    StoreBox,   ///< one of a group
    CommitBoxes,
    WaitBoxes, ///< until all but `count` groups are read
    // Accesses in order by the threads themselves.
    Read,
    Write,
    Fence, ///< between those and what matrix units and boxes access
    // Products of four warps, sums in `sums`, of `reads` and `factors`.
    BeginProducts,
    Multiply,
    CommitProducts,
    WaitProducts, ///< all but `count` groups
    Settle,       ///< `sums` may be touched
    // Roles.
    AwaitTurn, ///< barrier `place`, of `count` threads
    PassTurn,
    GiveRegisters, ///< `count` of each thread
    TakeRegisters,
    BlockBarrier,
    WarpBarrier,
    // Other blocks.
    FenceBlocks, ///< what was written is seen by who takes a ticket later
    TakeTicket,
    AddToTicket, ///< `count` to that of `place`, which then is `seen`
    AddUnless,   ///< its bits `bits[0]` are `bits[1]`; `seen` then
    AwaitTicket, ///< until it is `seen`; 0 where that takes too long
    ClearTicket,
    ArriveAtCluster,
    WaitForCluster,
    SendAcross ///< `count` bytes to `to` of block `place`, and to the gate of
               ///< it that is the first of `reads`
  };
  /// How a branch or the body of one is written.
  enum Style : uint8_t { Braced, Bare, Inline };

  Kind kind = Text;
  Style style = Braced;
  bool isConstant = false; ///< if constexpr
  bool isOpen = false;     ///< a condition on numbers that are text
  bool isSilent = false;   ///< what text around it says already
  bool isApart = false;    ///< a loop that lanes of a warp may leave apart
  int inside = 0;          ///< braces of text that are open around it
  bool hasOtherwise = false;
  std::string text;    ///< as it is written, where it does not follow
  std::string comment; ///< behind the statement
  std::string condition, step;
  std::vector<Number> numbers;
  std::vector<Number> steps; ///< of a loop, beside `step`
  std::string callee;
  /// As they are written; of products, "" is where the next of `reads` stands.
  std::vector<std::string> arguments;
  std::string gate, place, count, seen;
  std::vector<std::string> bits;
  Stage to;
  std::vector<Stage> reads;
  int bytes = 0;  ///< that each lane accesses, at its own address; 0: others
  int panels = 1; ///< of the last of `reads`, as far apart as its address says
  std::vector<std::string> sums, factors; ///< arrays in registers
  std::vector<Op> body, otherwise;

  /// Whether other threads or units are told or waited for.
  bool isSynchronisation() const;
  bool isAtGate() const;
  bool isAtTicket() const;
  /// The statement that it is, without what it holds.
  std::string statement() const;
};

/// Where text goes.
class Lines {
public:
  virtual ~Lines() = default;
  virtual void line(const std::string &statement) = 0;
  virtual void open(const std::string &statement) = 0;
  virtual void otherwise() = 0;
  virtual void close(const std::string &end) = 0;
  virtual void verbatim(const std::string &text) = 0;
  virtual void indent(int more) = 0;
};
void print(const std::vector<Op> &ops, Lines &to);

/// Tiles of shared memory: `count` places of `bytes` each from `begin` on, all
/// of them numbers as C++; and the gates that say what is in them.
struct Tiles {
  std::string name, begin, count, bytes;
  std::string came, left; ///< "" where no gate tells
  int64_t alignment = 16;
  /// Whether an entry has them, a number of its template; "" for all.
  std::string when;
  bool isGate = false;   ///< of 8 bytes each
  bool isGlobal = false; ///< memory that all blocks have
  /// Whether lanes of a warp access what others of it wrote: they meet between.
  bool isMet = false;
  bool isOwn = false; ///< each thread has places of its own in them
};

/// Sums or factors in registers, as many of each thread as `count` says.
struct RegisterArray {
  std::string name, count;
};

struct Program {
  std::vector<Op> ops;
  std::vector<Tiles> tiles;
  std::vector<RegisterArray> registers;
};

/// Builds a program from its first op to its last.
class Builder {
public:
  Program program;

  Op &add(Op op);
  /// Until `close`, ops are those of the last one's body; `otherwise`: from
  /// there on of its other side.
  void open();
  void otherwise();
  void close();
  bool isAtTop() const { return stack.empty(); }

private:
  std::vector<Op> *current();
  /// The way to what is open: an op by its number, and which side of it.
  std::vector<std::pair<size_t, bool>> stack;
};

} // namespace refold::tile

#endif // REFOLD_CONVERSION_TILEPROGRAM_H
