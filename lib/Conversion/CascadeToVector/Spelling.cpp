// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Index arithmetic that every target shares: constants are folded here.
#include "Spelling.h"

using namespace refold::walk;

Val Spelling::materialise(Ix x) {
  if (x.isConstant())
    return indexConstant(x.constant);
  if (x.constant == 0)
    return x.value;
  return indexOp(IndexOp::Add, x.value, indexConstant(x.constant));
}

void Spelling::storeTogether(llvm::ArrayRef<Val> values, const Buffer &to,
                             Ix at, bool isStreamed) {
  assert(values.size() == 1 && "stores take one register");
  isStreamed ? storeStreaming(values[0], to, at)
             : storeWide(values[0], to, at, Val());
}

Ix Spelling::add(Ix x, Ix y) {
  if (x.isConstant())
    return Ix(y.value, y.constant + x.constant);
  if (y.isConstant())
    return Ix(x.value, x.constant + y.constant);
  return Ix(indexOp(IndexOp::Add, x.value, y.value), x.constant + y.constant);
}

Ix Spelling::sub(Ix x, Ix y) {
  if (y.isConstant())
    return Ix(x.value, x.constant - y.constant);
  if (x.value.token == y.value.token)
    return Ix(x.constant - y.constant);
  Val left = x.isConstant() ? indexConstant(0) : x.value;
  return Ix(indexOp(IndexOp::Sub, left, y.value), x.constant - y.constant);
}

Ix Spelling::mul(Ix x, Ix y) {
  if (x.isConstant())
    std::swap(x, y);
  if (x.isConstant())
    return Ix(x.constant * y.constant);
  if (y.is(0) || y.is(1))
    return y.constant ? x : Ix(0);
  if (!y.isConstant())
    return Ix(indexOp(IndexOp::Mul, materialise(x), materialise(y)));
  return Ix(indexOp(IndexOp::Mul, x.value, indexConstant(y.constant)),
            x.constant * y.constant);
}

Ix Spelling::div(Ix x, Ix y) {
  if (y.is(1))
    return x;
  if (x.isConstant() && y.isConstant())
    return Ix(y.constant ? x.constant / y.constant : 0);
  return Ix(indexOp(IndexOp::Div, materialise(x), materialise(y)));
}

Ix Spelling::rem(Ix x, Ix y) {
  if (y.is(1))
    return Ix(0);
  if (x.isConstant() && y.isConstant())
    return Ix(y.constant ? x.constant % y.constant : 0);
  return Ix(indexOp(IndexOp::Rem, materialise(x), materialise(y)));
}

Ix Spelling::min(Ix x, Ix y) {
  if (x.value.token == y.value.token)
    return x.constant < y.constant ? x : y;
  return Ix(indexOp(IndexOp::Min, materialise(x), materialise(y)));
}

Ix Spelling::max(Ix x, Ix y) {
  if (x.value.token == y.value.token)
    return x.constant > y.constant ? x : y;
  return Ix(indexOp(IndexOp::Max, materialise(x), materialise(y)));
}

void Spelling::each(Ix lo, Ix hi, int64_t step,
                    llvm::function_ref<void(Ix)> body) {
  if (lo.value.token == hi.value.token) {
    if (lo.constant >= hi.constant)
      return;
    if (lo.constant + step >= hi.constant)
      return body(lo);
  }
  loop(lo, hi, step, {}, [&](Ix i, llvm::ArrayRef<Val>) {
    body(i);
    return Values();
  });
}
