// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// When may a maximum ignore a NaN? Its combiner is then one instruction instead
// of three. A sum over terms that are NaN where the maximum's term is covers
// it: every path from the maximum to a result must pass a value that is NaN
// with the sum.
#include "Plan.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// NaN if one operand is.
static bool isStrict(Operation *op) {
  return isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp,
             arith::NegFOp, arith::MaximumFOp, arith::MinimumFOp, arith::ExtFOp,
             arith::TruncFOp, math::ExpOp, math::Exp2Op, math::ExpM1Op,
             math::LogOp, math::Log1pOp, math::Log2Op, math::SqrtOp,
             math::RsqrtOp, math::TanhOp, math::ErfOp, math::AbsFOp,
             math::FmaOp, math::SinOp, math::CosOp>(op);
}

namespace {
class NanCover {
public:
  NanCover(Plan &plan, unsigned state)
      : plan(plan), state(state), term(plan.states[state].op.getValues()[0]) {}

  bool coversAllWrites() {
    for (auto write : plan.cascade.getBody().getOps<WriteOp>())
      if (!isHarmless(write.getValue()))
        return false;
    return true;
  }

private:
  /// NaN wherever the element `term` is one.
  bool isNanWithTerm(Value v) {
    if (v == term)
      return true;
    Operation *def = v.getDefiningOp();
    // A pass that only irregular rows need adds what such a row takes.
    if (auto select = dyn_cast_or_null<arith::SelectOp>(def)) {
      Value taken = takenOnNanRow(select);
      return taken && isNanWithTerm(taken);
    }
    if (!def || !isStrict(def))
      return false;
    return llvm::any_of(def->getOperands(),
                        [&](Value o) { return isNanWithTerm(o); });
  }
  /// Whether the sum passes by every element that the maximum passes by: a
  /// condition of another pass leaves out tiles.
  bool seesWhat(StateOp sum) {
    unsigned pass = plan.states[plan.graph->numberOf(sum)].pass;
    return pass == plan.states[state].pass ||
           plan.passes[pass].conditions.empty();
  }
  static bool isNan(arith::ConstantOp constant) {
    auto value = dyn_cast<FloatAttr>(constant.getValue());
    return value && value.getValue().isNaN();
  }
  /// Whether the stream has no element: not so for a row that holds a NaN.
  bool asksIfEmpty(Value condition) {
    auto compare = condition.getDefiningOp<arith::CmpIOp>();
    auto extent =
        compare ? compare.getLhs().getDefiningOp<ExtentOp>() : ExtentOp();
    auto zero = compare ? compare.getRhs().getDefiningOp<arith::ConstantOp>()
                        : arith::ConstantOp();
    auto value = zero ? dyn_cast<IntegerAttr>(zero.getValue()) : IntegerAttr();
    return extent && value && value.getInt() == 0 &&
           compare.getPredicate() == arith::CmpIPredicate::eq &&
           (plan.streams & plan.sets.of(extent.getOf()));
  }
  /// What a condition is for a row that holds a NaN term, if that is certain.
  std::optional<bool> onNanRow(Value v) {
    Operation *def = v.getDefiningOp();
    if (!def || !v.getType().isInteger(1))
      return std::nullopt;
    if (auto compare = dyn_cast<arith::CmpFOp>(def)) {
      if (!isCovered(compare.getLhs()) && !isCovered(compare.getRhs()))
        return std::nullopt;
      return compare.getPredicate() >= arith::CmpFPredicate::UEQ;
    }
    if (auto constant = dyn_cast<arith::ConstantOp>(def))
      return cast<IntegerAttr>(constant.getValue()).getValue().getBoolValue();
    if (!isa<arith::AndIOp, arith::OrIOp, arith::XOrIOp>(def))
      return std::nullopt;
    std::optional<bool> a = onNanRow(def->getOperand(0)),
                        b = onNanRow(def->getOperand(1));
    if (isa<arith::XOrIOp>(def))
      return a && b ? std::optional(*a != *b) : std::nullopt;
    bool decides = isa<arith::OrIOp>(def);
    if ((a && *a == decides) || (b && *b == decides))
      return decides;
    return a && b ? std::optional(!decides) : std::nullopt;
  }
  /// The side of a choice that a row with a NaN term takes.
  Value takenOnNanRow(arith::SelectOp select) {
    std::optional<bool> taken = onNanRow(select.getCondition());
    return !taken   ? Value()
           : *taken ? select.getTrueValue()
                    : select.getFalseValue();
  }
  /// NaN for a row that holds a NaN term.
  bool isCovered(Value v) {
    if (auto it = covered.find(v); it != covered.end())
      return it->second;
    bool result = false;
    if (Operation *def = v.getDefiningOp()) {
      if (auto s = dyn_cast<StateOp>(def))
        result = s.getReducer() == Reducer::Add && seesWhat(s) &&
                 !(plan.sets.of(plan.states[state].op.getResult(0)) &
                   ~plan.sets.of(s.getResult(0))) &&
                 isNanWithTerm(s.getValues()[0]);
      else if (auto constant = dyn_cast<arith::ConstantOp>(def))
        result = isNan(constant);
      else if (auto select = dyn_cast<arith::SelectOp>(def)) {
        Value taken = takenOnNanRow(select);
        result = taken ? isCovered(taken)
                       : isCovered(select.getFalseValue()) &&
                             (asksIfEmpty(select.getCondition()) ||
                              isCovered(select.getTrueValue()));
      } else if (isStrict(def))
        result = llvm::any_of(def->getOperands(),
                              [&](Value o) { return isCovered(o); });
    }
    return covered[v] = result;
  }
  /// Does not depend on the maximum, or only through covered values.
  bool isHarmless(Value v) {
    if (auto it = harmless.find(v); it != harmless.end())
      return it->second;
    harmless[v] = true;
    if (isCovered(v) || onNanRow(v))
      return true;
    Operation *def = v.getDefiningOp();
    bool result = true;
    auto select = dyn_cast_or_null<arith::SelectOp>(def);
    if (Value taken = select ? takenOnNanRow(select) : Value())
      return harmless[v] = isHarmless(taken);
    if (def && def == plan.states[state].op.getOperation())
      result = false;
    else if (def)
      result = llvm::all_of(def->getOperands(),
                            [&](Value o) { return isHarmless(o); });
    return harmless[v] = result;
  }

  Plan &plan;
  unsigned state;
  Value term;
  llvm::DenseMap<Value, bool> covered, harmless;
};
} // namespace

bool walk::mayDropNan(Plan &plan, unsigned state) {
  return NanCover(plan, state).coversAllWrites();
}
