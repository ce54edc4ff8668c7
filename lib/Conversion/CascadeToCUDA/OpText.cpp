// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "OpText.h"

using namespace refold;
using namespace refold::cuda;
using tile::Op;

/// How many braces are open.
static int numOpen(Text &out) {
  size_t end = out.text.size();
  out.line("");
  int open = int(out.text.size() - end - 1) / 2;
  out.text.resize(end);
  return open;
}

/// As if so many more were.
static void indent(Text &out, int more) {
  size_t end = out.text.size();
  for (; more > 0; --more)
    out.open("");
  for (; more < 0; ++more)
    out.close("");
  out.text.resize(end);
}

namespace {
struct ToText : tile::Lines {
  explicit ToText(Text &out) : out(out) {}
  void line(const std::string &statement) override { out.line(statement); }
  void open(const std::string &statement) override { out.open(statement); }
  void otherwise() override { out.otherwise(); }
  void close(const std::string &end) override { out.close(end); }
  void verbatim(const std::string &text) override { out.text += text; }
  void indent(int more) override { ::indent(out, more); }
  Text &out;
};
} // namespace

void OpText::begin() {
  builder = tile::Builder();
  mark = out.text.size();
  begun = numOpen(out);
  opened = 0;
}

void OpText::flush() {
  if (out.text.size() == mark)
    return;
  Op op;
  op.text = out.text.substr(mark);
  out.text.resize(mark);
  builder.add(std::move(op));
}

tile::Program OpText::end() {
  flush();
  ToText to(out);
  tile::print(builder.program.ops, to);
  return std::move(builder.program);
}

void OpText::add(Op op) {
  flush();
  op.inside = numOpen(out) - begun - opened;
  builder.add(std::move(op));
}

void OpText::open(Op op) {
  add(std::move(op));
  builder.open();
  // What follows is written as deep as it will stand.
  indent(out, 1);
  ++opened;
}
void OpText::otherwise() {
  flush();
  builder.otherwise();
}
void OpText::close() {
  flush();
  builder.close();
  indent(out, -1);
  --opened;
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

Op cuda::let(const std::string &type, std::vector<tile::Number> numbers) {
  Op op;
  op.kind = Op::Let;
  op.callee = type;
  op.numbers = std::move(numbers);
  return op;
}

Op cuda::letAs(const std::string &text, std::vector<tile::Number> numbers) {
  Op op = let("", std::move(numbers));
  op.text = text;
  op.isSilent = text.empty();
  return op;
}

Op cuda::assign(const std::string &name, const std::string &number) {
  Op op;
  op.kind = Op::Assign;
  op.numbers = {{name, number}};
  return op;
}

Op cuda::step(const std::string &text) {
  Op op;
  op.kind = Op::Assign;
  op.step = text;
  return op;
}

Op cuda::jump(Op::Kind kind) { return plain(kind); }

Op cuda::where(const std::string &condition, bool isConstant) {
  Op op;
  op.kind = Op::Branch;
  op.condition = condition;
  op.isConstant = isConstant;
  return op;
}

Op cuda::where(const std::string &condition, Op inner, bool isConstant) {
  Op op = where(condition, isConstant);
  op.style = Op::Bare;
  op.body.push_back(std::move(inner));
  return op;
}

Op cuda::whereInline(const std::string &condition, Op inner) {
  if (condition.empty())
    return inner;
  Op op = where(condition, std::move(inner), /*isConstant=*/true);
  op.style = Op::Inline;
  return op;
}

Op cuda::loop(std::vector<tile::Number> begin, const std::string &condition,
              const std::string &step) {
  Op op;
  op.kind = Op::Loop;
  op.callee = "int";
  op.numbers = std::move(begin);
  op.condition = condition;
  op.step = step;
  return op;
}

Op cuda::define(const std::string &name, const std::string &text,
                std::vector<tile::Number> parameters) {
  Op op;
  op.kind = Op::Define;
  op.callee = name;
  op.text = "const auto " + name + " = " + text + " {";
  op.numbers = std::move(parameters);
  return op;
}

Op cuda::call(const std::string &name, std::vector<std::string> arguments) {
  Op op;
  op.kind = Op::Call;
  op.callee = name;
  op.arguments = std::move(arguments);
  return op;
}

Op cuda::atGate(Op::Kind kind, const std::string &gate,
                const std::string &place, const std::string &count) {
  Op op = plain(kind, count);
  op.gate = gate;
  op.place = place;
  return op;
}

Op cuda::turn(Op::Kind kind, const std::string &barrier,
              const std::string &threads) {
  Op op = plain(kind, threads);
  op.place = barrier;
  return op;
}

Op cuda::plain(Op::Kind kind, const std::string &count) {
  Op op;
  op.kind = kind;
  op.count = count;
  return op;
}

Op cuda::settle(const std::string &sums, const std::string &array) {
  Op op = plain(Op::Settle);
  op.arguments = {sums};
  op.sums = {array};
  return op;
}
