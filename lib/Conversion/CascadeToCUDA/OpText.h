// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_CONVERSION_CASCADETOCUDA_OPTEXT_H
#define REFOLD_LIB_CONVERSION_CASCADETOCUDA_OPTEXT_H

#include "Expressions.h"
#include "refold/Conversion/TileProgram.h"

namespace refold::cuda {

/// Text of which some lines are ops of a program of the tile level: what is
/// written to `out` between them becomes ops of text. In the end all of it is
/// printed from the ops.
class OpText {
public:
  explicit OpText(Text &out) : out(out) {}
  /// What `out` has so far stays.
  void begin();
  /// Prints what was built since.
  tile::Program end();

  void add(tile::Op op);
  /// A loop, a lambda, or a condition in braces.
  void open(tile::Op op);
  void otherwise();
  void close();
  tile::Program &program() { return builder.program; }

private:
  void flush();
  Text &out;
  tile::Builder builder;
  int begun = 0, opened = 0; ///< braces: before all ops, and of ops
  size_t mark = 0;           ///< what of `out` ops have
};

// Ops as the printers of kernels with roles need them.
tile::Op let(const std::string &type, std::vector<tile::Number> numbers);
/// The same, in words of its own.
tile::Op letAs(const std::string &text, std::vector<tile::Number> numbers);
tile::Op assign(const std::string &name, const std::string &number);
tile::Op step(const std::string &text);
tile::Op jump(tile::Op::Kind kind);
tile::Op where(const std::string &condition, bool isConstant = false);
/// With one statement, on a line of its own or on the same one.
tile::Op where(const std::string &condition, tile::Op op,
               bool isConstant = false);
tile::Op whereInline(const std::string &condition, tile::Op op);
tile::Op loop(std::vector<tile::Number> begin, const std::string &condition,
              const std::string &step);
tile::Op define(const std::string &name, const std::string &text,
                std::vector<tile::Number> parameters);
tile::Op call(const std::string &name, std::vector<std::string> arguments);
tile::Op atGate(tile::Op::Kind kind, const std::string &gate,
                const std::string &place, const std::string &count = "");
tile::Op turn(tile::Op::Kind kind, const std::string &barrier,
              const std::string &threads);
/// Those that have a number, or nothing.
tile::Op plain(tile::Op::Kind kind, const std::string &count = "");
tile::Op settle(const std::string &sums, const std::string &array);

} // namespace refold::cuda

#endif // REFOLD_LIB_CONVERSION_CASCADETOCUDA_OPTEXT_H
