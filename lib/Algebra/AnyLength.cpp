// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A long row of static length is what a row of any length is: the certificate
// of the general program holds for it, and takes short rows.
#include "CertifyParts.h"

namespace refold::algebra::certifier {

/// Shorter rows are executed at their own length: their numbers are as likely
/// to be there for another reason.
static constexpr uint32_t kShortestFreed = 64;

static void eachExpr(Program &program, const auto &change) {
  auto each = [&](std::vector<Expr> &list) {
    for (Expr &e : list)
      change(e);
  };
  for (Definition &definition : program.definitions)
    if (auto *let = std::get_if<Let>(&definition)) {
      change(let->value);
    } else {
      State &state = std::get<State>(definition);
      each(state.values);
      change(state.transport);
    }
  for (std::vector<Expr> &results : program.readouts)
    each(results);
  for (ProgramOutput &output : program.outputs)
    change(output.value);
  for (Rounding &rounding : program.roundings)
    change(rounding.written);
}

static void eachExpr(Cascade &cascade, const auto &change) {
  for (Stage &stage : cascade.stages) {
    change(stage.term);
    for (Expr &payload : stage.payloads)
      change(payload);
  }
  for (Output &output : cascade.outputs)
    change(output.value);
}

bool AnyLength::has(const Program &program) {
  std::optional<StreamLength> own = streamLength(program.indices);
  return own && !own->isFree && own->factor >= kShortestFreed;
}

AnyLength::AnyLength(const Cascade *original, const Program &of)
    : program(of), context(*of.context),
      length(streamLength(of.indices)->factor), indices(of.indices) {
  if (original)
    cascade = *original;
  freeIndices();
  auto change = [this](Expr &e) { replace(e); };
  if (cascade)
    eachExpr(*cascade, change);
  eachExpr(program, change);
}

void AnyLength::freeIndices() {
  for (size_t i = 0; i < program.indices.size(); ++i) {
    Index &index = program.indices[i];
    if (index.role != IndexRole::Stream || index.extent < 0)
      continue;
    index.extent = -1;
    // As long as it is: no row is empty.
    index.length =
        context.symbol("len(" + index.name + ")", Role::Parameter, Type::Index,
                       0, unsigned(i), {true, false, 1});
    len = len ? context.mul(len, index.length) : index.length;
  }
  if (cascade)
    cascade->indices = program.indices;
}

/// The number in terms of the length, or itself.
Expr AnyLength::made(Expr number) const {
  double value = *number.constant();
  for (double less : {0.0, 1.0}) {
    double count = length - less;
    Expr own = less ? context.sub(len, context.integer(1, Type::Index)) : len;
    own = context.cast(number.type(), own);
    if (value == count)
      return own;
    if (isFloat(number.type()) &&
        (value == 1 / count ||
         (number.type() != Type::F64 && float(value) == float(1 / count))))
      return context.div(context.real(1, number.type()), own);
  }
  return number;
}

void AnyLength::replace(Expr &e) const {
  if (!e)
    return;
  ExprMap map;
  forEachNode(e, [&](Expr part) {
    if (part.is(Kind::Const) && part.type() != Type::Bool)
      if (Expr own = made(part); own != part)
        map[part] = own;
  });
  if (!map.empty())
    e = substitute(context, e, map);
}

Program AnyLength::atOwnLength(Program any) const {
  ExprMap map;
  for (size_t i = 0; i < indices.size(); ++i)
    if (any.indices[i].length != indices[i].length)
      map[any.indices[i].length] = indices[i].length;
  eachExpr(any, [&](Expr &e) {
    if (e)
      e = substitute(context, e, map);
  });
  any.indices = indices;
  return any;
}

} // namespace refold::algebra::certifier
