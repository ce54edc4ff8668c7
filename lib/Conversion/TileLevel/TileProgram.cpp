// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Conversion/TileProgram.h"

using namespace refold::tile;

bool Op::isSynchronisation() const { return kind >= MakeGate; }
bool Op::isAtGate() const {
  return (kind >= MakeGate && kind <= CopyBoxes) || kind == CopyBox;
}

bool Op::isAtTicket() const {
  return kind >= AddToTicket && kind <= ClearTicket;
}

/// A place as it is written behind "8 * ".
static std::string factor(const std::string &place) {
  bool isOne = place.find(' ') == std::string::npos || place.front() == '(';
  return isOne ? place : "(" + place + ")";
}

static std::string gateAt(const Op &op) {
  return op.place.empty() ? op.gate : op.gate + " + 8 * " + factor(op.place);
}

static std::string call(const std::string &callee,
                        const std::vector<std::string> &arguments) {
  std::string text = callee + "(";
  for (size_t i = 0; i < arguments.size(); ++i)
    text += (i ? ", " : "") + arguments[i];
  return text + ");";
}

static std::string assignment(const Op &op) {
  std::string text;
  for (auto &[name, number] : op.numbers)
    text += (text.empty() ? "" : ", ") + name + " = " + number;
  return text;
}

std::string Op::statement() const {
  if (isSilent || !text.empty())
    return text;
  switch (kind) {
  case Let:
    return callee + " " + assignment(*this) + ";";
  case Assign:
    return step.empty() ? assignment(*this) + ";" : step + ";";
  case Loop:
    return "for (" + callee + " " + assignment(*this) + ";" +
           (condition.empty() ? "" : " ") + condition + "; " + step + ") {";
  case Branch:
    return std::string(isConstant ? "if constexpr (" : "if (") + condition +
           ")";
  case Return:
    return "return;";
  case Break:
    return "break;";
  case Continue:
    return "continue;";
  case Call:
    return call(callee, arguments);
  case MakeGate:
    return call("make_gate", {gateAt(*this), count});
  case WaitGate:
    return call("wait_gate", {gateAt(*this), count});
  case Arrive:
    return call("arrive", {gateAt(*this)});
  case ArriveWithCopies:
    return call("arrive_with_copies", {gateAt(*this)});
  case StoreBoxes:
    return call(callee, arguments);
  case CopyBoxes:
    return call(callee, {to.text(), arguments[0], gateAt(*this), arguments[1]});
  case CopyRows: {
    std::vector<std::string> all = arguments;
    all.insert(all.begin(), to.text());
    return call(callee, all);
  }
  case Multiply: {
    std::vector<std::string> all = arguments;
    size_t next = 0;
    for (std::string &argument : all)
      if (argument.empty())
        argument = reads[next++].text();
    return call(callee, all);
  }
  case WaitCopies:
    return "wait_copies<" + count + ">();";
  case WaitBoxes:
    return "wait_boxes<" + count + ">();";
  case Fence:
    return "show_matrices();";
  case BeginProducts:
    return "begin_products();";
  case CommitProducts:
    return "commit_products();";
  case WaitProducts:
    return "wait_products<" + count + ">();";
  case Settle:
    return call("settle", arguments);
  case AwaitTurn:
    return call("await_turn", {place, count});
  case PassTurn:
    return call("pass_turn", {place, count});
  case GiveRegisters:
    return "give_registers<" + count + ">();";
  case TakeRegisters:
    return "take_registers<" + count + ">();";
  case BlockBarrier:
    return "block_barrier();";
  case WarpBarrier:
    return "warp_barrier();";
  case CommitCopies:
    return "commit_copies();";
  case CommitBoxes:
    return "commit_boxes();";
  case Text:
  case Define:
  case Read:
  case Write:
  case ArriveExpecting:
  case CopyBox:
  case MakeMap:
  case SeeMap:
  case StoreBox:
  case FenceBlocks:
  case TakeTicket:
  case AddToTicket:
  case AddUnless:
  case AwaitTicket:
  case ClearTicket:
  case ArriveAtCluster:
  case WaitForCluster:
  case SendAcross:
    return ""; // as they are read
  }
  return "";
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

/// `before`: what the line begins with; `inside`: of braces of text around
/// them, those that are there already.
static void printOne(const Op &op, Lines &to, const std::string &before,
                     int inside);

static void printAll(const std::vector<Op> &ops, Lines &to, int inside) {
  for (const Op &op : ops)
    printOne(op, to, "", inside);
}

static void printBranch(const Op &op, Lines &to, const std::string &before) {
  std::string head = before + op.statement();
  switch (op.style) {
  case Op::Braced:
    to.open(head + " {");
    printAll(op.body, to, op.inside);
    if (op.hasOtherwise) {
      to.otherwise();
      printAll(op.otherwise, to, op.inside);
    }
    to.close("}");
    return;
  case Op::Bare:
    to.line(head);
    printOne(op.body.front(), to, before + "  ", op.body.front().inside);
    if (op.hasOtherwise) {
      to.line(before + "else");
      printOne(op.otherwise.front(), to, before + "  ",
               op.otherwise.front().inside);
    }
    return;
  case Op::Inline:
    printOne(op.body.front(), to, head + " ", op.body.front().inside);
    return;
  }
}

static void printOne(const Op &op, Lines &to, const std::string &before,
                     int inside) {
  if (op.kind == Op::Text)
    return to.verbatim(op.text);
  to.indent(op.inside - inside);
  if (op.kind == Op::Branch) {
    printBranch(op, to, before);
  } else if (op.kind == Op::Loop || op.kind == Op::Define) {
    to.open(before + op.statement());
    printAll(op.body, to, op.inside);
    to.close(op.kind == Op::Loop ? "}" : "};");
  } else if (std::string statement = op.statement(); !statement.empty()) {
    to.line(before + statement +
            (op.comment.empty() ? "" : " // " + op.comment));
  }
  to.indent(inside - op.inside);
}

void refold::tile::print(const std::vector<Op> &ops, Lines &to) {
  printAll(ops, to, 0);
}

//===----------------------------------------------------------------------===//
// Builder
//===----------------------------------------------------------------------===//

std::vector<Op> *Builder::current() {
  std::vector<Op> *ops = &program.ops;
  for (auto [number, isOther] : stack)
    ops = isOther ? &(*ops)[number].otherwise : &(*ops)[number].body;
  return ops;
}

Op &Builder::add(Op op) {
  std::vector<Op> *ops = current();
  ops->push_back(std::move(op));
  return ops->back();
}

void Builder::open() { stack.push_back({current()->size() - 1, false}); }
void Builder::otherwise() {
  auto [number, isOther] = stack.back();
  stack.pop_back();
  (*current())[number].hasOtherwise = true;
  stack.push_back({number, true});
}
void Builder::close() { stack.pop_back(); }
