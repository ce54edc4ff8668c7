// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ScalarCompiler.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "refold/Dialect/Refold/IR/ElementTypes.h"
#include "refold/Support/Diagnostics.h"
#include "refold/Support/Error.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace refold;
using namespace refold::reference;

llvm::Error reference::failAt(ExitCode code, Location location,
                              const llvm::Twine &message) {
  return fail(code, describePlace(location) + ": " + message);
}

std::optional<DType> reference::dtypeOf(Type type) {
  return isa<FloatType>(type) ? refold::dtypeOf(type) : std::nullopt;
}

bool reference::isKnownScalar(Type type) {
  if (auto integer = dyn_cast<IntegerType>(type))
    return integer.getWidth() >= 1 && integer.getWidth() <= 64;
  return type.isIndex() || dtypeOf(type);
}

unsigned reference::widthOf(Type type) {
  return type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
}

static double doubleOf(APFloat value) {
  bool lost = false;
  value.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lost);
  return value.convertToDouble();
}

Cell reference::cellOf(Attribute attribute, bool isWide) {
  Cell cell{};
  if (auto real = dyn_cast<FloatAttr>(attribute)) {
    setFloat(cell, isWide, doubleOf(real.getValue()));
    return cell;
  }
  auto integer = cast<IntegerAttr>(attribute);
  cell.i = wrapTo(widthOf(integer.getType()),
                  int64_t(integer.getValue().getRawData()[0]));
  return cell;
}

namespace {
/// Opcodes of the ops whose operands are read in order.
const llvm::StringMap<Opcode> &opcodes() {
  using O = Opcode;
  static const llvm::StringMap<Opcode> table = {
      {"arith.addf", O::AddF},
      {"arith.subf", O::SubF},
      {"arith.mulf", O::MulF},
      {"arith.divf", O::DivF},
      {"arith.remf", O::RemF},
      {"arith.negf", O::NegF},
      {"arith.maximumf", O::MaximumF},
      {"arith.minimumf", O::MinimumF},
      {"arith.maxnumf", O::MaxNumF},
      {"arith.minnumf", O::MinNumF},
      {"arith.cmpf", O::CmpF},
      {"arith.addi", O::AddI},
      {"arith.subi", O::SubI},
      {"arith.muli", O::MulI},
      {"arith.divsi", O::DivSI},
      {"arith.divui", O::DivUI},
      {"arith.ceildivsi", O::CeilDivSI},
      {"arith.ceildivui", O::CeilDivUI},
      {"arith.floordivsi", O::FloorDivSI},
      {"arith.remsi", O::RemSI},
      {"arith.remui", O::RemUI},
      {"arith.andi", O::AndI},
      {"arith.ori", O::OrI},
      {"arith.xori", O::XorI},
      {"arith.shli", O::ShLI},
      {"arith.shrsi", O::ShRSI},
      {"arith.shrui", O::ShRUI},
      {"arith.maxsi", O::MaxSI},
      {"arith.minsi", O::MinSI},
      {"arith.maxui", O::MaxUI},
      {"arith.minui", O::MinUI},
      {"arith.cmpi", O::CmpI},
      {"arith.select", O::Select},
      {"math.fma", O::FmaF},
      {"math.exp", O::Exp},
      {"math.exp2", O::Exp2},
      {"math.expm1", O::ExpM1},
      {"math.log", O::Log},
      {"math.log2", O::Log2},
      {"math.log10", O::Log10},
      {"math.log1p", O::Log1p},
      {"math.sqrt", O::Sqrt},
      {"math.rsqrt", O::Rsqrt},
      {"math.cbrt", O::Cbrt},
      {"math.absf", O::AbsF},
      {"math.sin", O::Sin},
      {"math.cos", O::Cos},
      {"math.tan", O::Tan},
      {"math.sinh", O::Sinh},
      {"math.cosh", O::Cosh},
      {"math.tanh", O::Tanh},
      {"math.asin", O::Asin},
      {"math.acos", O::Acos},
      {"math.atan", O::Atan},
      {"math.asinh", O::Asinh},
      {"math.acosh", O::Acosh},
      {"math.atanh", O::Atanh},
      {"math.atan2", O::Atan2},
      {"math.erf", O::Erf},
      {"math.floor", O::Floor},
      {"math.ceil", O::Ceil},
      {"math.round", O::Round},
      {"math.roundeven", O::RoundEven},
      {"math.trunc", O::Trunc},
      {"math.powf", O::PowF},
      {"math.fpowi", O::FPowI},
      {"math.copysign", O::CopySign},
      {"math.absi", O::AbsI},
      {"math.ipowi", O::IPowI},
      {"math.ctpop", O::CtPop},
  };
  return table;
}
} // namespace

uint32_t ScalarCompiler::emit(Instruction instruction, Location location) {
  instruction.to = program.newRegister();
  program.instructions.push_back(instruction);
  locations.push_back(location);
  return instruction.to;
}

uint32_t ScalarCompiler::constant(int64_t value) {
  Cell cell{};
  cell.i = value;
  program.constants.push_back({program.newRegister(), cell});
  return program.constants.back().to;
}

uint32_t ScalarCompiler::realConstant(double value) {
  Cell cell{};
  setFloat(cell, program.isWide, value);
  program.constants.push_back({program.newRegister(), cell});
  return program.constants.back().to;
}

/// A clamp around a rounding: both sides exact, one of them a number.
std::optional<uint32_t> ScalarCompiler::compileExactSelect(Operation *select,
                                                           Location location) {
  auto condition = registers.find(select->getOperand(0));
  std::optional<uint32_t> sides[2];
  bool isRounded = false;
  for (int side = 0; side < 2; ++side) {
    Value value = select->getOperand(1 + side);
    Attribute number;
    if (matchPattern(value, m_Constant(&number))) {
      Cell cell = cellOf(number, /*isWide=*/false);
      sides[side] =
          realConstant(isa<FloatAttr>(number) ? cell.f : double(cell.i));
      continue;
    }
    sides[side] = compileExact(value, location);
    isRounded |= sides[side].has_value();
  }
  if (!isRounded || !sides[0] || !sides[1] || condition == registers.end())
    return std::nullopt;
  Instruction in;
  in.opcode = Opcode::Select;
  in.predicate = kSelectsFloats;
  in.a = condition->second;
  in.b = *sides[0];
  in.c = *sides[1];
  return emit(in, location);
}

std::optional<uint32_t> ScalarCompiler::compileExact(Value value,
                                                     Location location) {
  Operation *def = value.getDefiningOp();
  if (!def)
    return std::nullopt;
  if (isa<arith::SelectOp>(def))
    return compileExactSelect(def, location);
  if (isa<arith::FPToSIOp, arith::FPToUIOp>(def))
    return compileExact(def->getOperand(0), location);
  if (isa<arith::MaximumFOp, arith::MinimumFOp, arith::MaxNumFOp,
          arith::MinNumFOp>(def)) {
    std::optional<uint32_t> inner = compileExact(def->getOperand(0), location);
    auto bound = registers.find(def->getOperand(1));
    if (!inner || bound == registers.end())
      return std::nullopt;
    Instruction in;
    in.opcode = opcodes().find(def->getName().getStringRef())->second;
    in.a = *inner;
    in.b = bound->second;
    return emit(in, location);
  }
  if (!isa<math::RoundEvenOp, arith::TruncFOp>(def))
    return std::nullopt;
  auto before = registers.find(def->getOperand(0));
  if (before == registers.end())
    return std::nullopt;
  return before->second;
}

uint32_t ScalarCompiler::load(const RefTensor &table,
                              ArrayRef<uint32_t> subscripts,
                              Location location) {
  Instruction in;
  in.opcode = Opcode::Load;
  in.table = program.tables.size();
  in.firstSubscript = program.subscripts.size();
  program.tables.push_back(table);
  program.subscripts.insert(program.subscripts.end(), subscripts.begin(),
                            subscripts.end());
  return emit(in, location);
}

llvm::Expected<uint32_t> ScalarCompiler::registerOf(Value value,
                                                    Operation *user) {
  if (auto it = registers.find(value); it != registers.end())
    return it->second;
  const RefTensor *known = outer ? outer(value) : nullptr;
  if (!known || known->rank() != 0)
    return failAt(ExitCode::Internal, user->getLoc(),
                  "an operand of '" + user->getName().getStringRef() +
                      "' has no value");
  program.constants.push_back({program.newRegister(), *known->data()});
  return registers[value] = program.constants.back().to;
}

llvm::Expected<uint32_t>
ScalarCompiler::compileAffine(AffineExpr expr, ArrayRef<uint32_t> dims,
                              ArrayRef<uint32_t> symbols, Location location) {
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return dims[dim.getPosition()];
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
    return symbols[symbol.getPosition()];
  if (auto number = dyn_cast<AffineConstantExpr>(expr))
    return constant(number.getValue());
  auto binary = cast<AffineBinaryOpExpr>(expr);
  auto a = compileAffine(binary.getLHS(), dims, symbols, location);
  if (!a)
    return a;
  auto b = compileAffine(binary.getRHS(), dims, symbols, location);
  if (!b)
    return b;
  Instruction in;
  in.a = *a;
  in.b = *b;
  switch (expr.getKind()) {
  case AffineExprKind::Add:
    in.opcode = Opcode::AddI;
    break;
  case AffineExprKind::Mul:
    in.opcode = Opcode::MulI;
    break;
  case AffineExprKind::Mod:
    in.opcode = Opcode::ModFloor;
    break;
  case AffineExprKind::FloorDiv:
    in.opcode = Opcode::FloorDivSI;
    break;
  default:
    in.opcode = Opcode::CeilDivSI;
  }
  return emit(in, location);
}

llvm::Error ScalarCompiler::compileAffineApply(Operation &op) {
  AffineMap map;
  bool isMin = isa<affine::AffineMinOp>(op);
  if (auto apply = dyn_cast<affine::AffineApplyOp>(op))
    map = apply.getAffineMap();
  else if (auto least = dyn_cast<affine::AffineMinOp>(op))
    map = least.getAffineMap();
  else
    map = cast<affine::AffineMaxOp>(op).getAffineMap();
  SmallVector<uint32_t> inputs;
  for (Value operand : op.getOperands()) {
    auto reg = registerOf(operand, &op);
    if (!reg)
      return reg.takeError();
    inputs.push_back(*reg);
  }
  ArrayRef<uint32_t> all = inputs;
  std::optional<uint32_t> best;
  for (AffineExpr expr : map.getResults()) {
    auto reg = compileAffine(expr, all.take_front(map.getNumDims()),
                             all.drop_front(map.getNumDims()), op.getLoc());
    if (!reg)
      return reg.takeError();
    Instruction in;
    in.opcode = isMin ? Opcode::MinSI : Opcode::MaxSI;
    if (best) {
      in.a = *best;
      in.b = *reg;
    }
    best = best ? emit(in, op.getLoc()) : *reg;
  }
  bind(op.getResult(0), *best);
  return llvm::Error::success();
}

llvm::Error ScalarCompiler::compileExtract(Operation &op) {
  auto extract = cast<tensor::ExtractOp>(op);
  const RefTensor *table = outer ? outer(extract.getTensor()) : nullptr;
  if (!table)
    return failAt(ExitCode::Unsupported, op.getLoc(),
                  "found a 'tensor.extract' from an array made in the body; "
                  "expected one from outside");
  SmallVector<uint32_t> subscripts;
  for (Value index : extract.getIndices()) {
    auto reg = registerOf(index, &op);
    if (!reg)
      return reg.takeError();
    subscripts.push_back(*reg);
  }
  bind(extract.getResult(), load(*table, subscripts, op.getLoc()));
  return llvm::Error::success();
}

/// The opcode of a conversion between number types. False where `op` is none.
bool ScalarCompiler::planConversion(Operation &op, Instruction &in) {
  Type from = op.getOperand(0).getType(), to = op.getResult(0).getType();
  unsigned fromWidth = widthOf(from), toWidth = widthOf(to);
  in.width = toWidth;
  if (isa<arith::ExtFOp>(op)) {
    in.opcode = Opcode::Copy;
  } else if (isa<arith::TruncFOp>(op)) {
    in.opcode = Opcode::Copy;
    if (toWidth < 32 || options.roundEveryOp)
      in.round = uint8_t(*dtypeOf(to));
  } else if (isa<arith::ExtSIOp, arith::TruncIOp, arith::IndexCastOp>(op)) {
    in.opcode = Opcode::Wrap;
    if (fromWidth == 1 && toWidth > 1) { // i1 holds 1 for -1
      in.opcode = Opcode::SubI;
      in.b = in.a;
      in.a = constant(0);
    }
  } else if (isa<arith::ExtUIOp, arith::IndexCastUIOp>(op)) {
    in.opcode = fromWidth < toWidth ? Opcode::ZeroExtend : Opcode::Wrap;
    in.width = std::min(fromWidth, toWidth);
  } else if (isa<arith::SIToFPOp, arith::UIToFPOp>(op)) {
    in.opcode = isa<arith::SIToFPOp>(op) ? Opcode::SIToFP : Opcode::UIToFP;
    in.width = fromWidth;
    if (options.roundEveryOp)
      in.round = uint8_t(*dtypeOf(to));
  } else if (isa<arith::FPToSIOp>(op)) {
    in.opcode = Opcode::FPToSI;
  } else if (isa<arith::FPToUIOp>(op)) {
    in.opcode = Opcode::FPToUI;
  } else if (isa<arith::BitcastOp>(op)) {
    bool fromFloat = isa<FloatType>(from), toFloat = isa<FloatType>(to);
    if (fromFloat && toFloat && from != to)
      return false;
    in.opcode = fromFloat == toFloat ? Opcode::Copy
                : fromFloat          ? Opcode::FloatToBits
                                     : Opcode::BitsToFloat;
    in.predicate =
        uint8_t(*dtypeOf(fromFloat ? from
                         : toFloat ? to
                                   : Float64Type::get(op.getContext())));
  } else {
    return false;
  }
  return true;
}

llvm::Error ScalarCompiler::compileConversion(Operation &op, Instruction in) {
  if (!planConversion(op, in))
    return failAt(ExitCode::Unsupported, op.getLoc(),
                  "found '" + op.getName().getStringRef() +
                      "', which the reference does not evaluate");
  bind(op.getResult(0), emit(in, op.getLoc()));
  return llvm::Error::success();
}

llvm::Error ScalarCompiler::compile(Operation &op) {
  if (auto number = dyn_cast<arith::ConstantOp>(op)) {
    if (!isKnownScalar(number.getType()))
      return failAt(ExitCode::Unsupported, op.getLoc(),
                    "found a constant that is no scalar in a scalar body");
    program.constants.push_back(
        {program.newRegister(), cellOf(number.getValue(), program.isWide)});
    bind(number.getResult(), program.constants.back().to);
    return llvm::Error::success();
  }
  if (isa<affine::AffineApplyOp, affine::AffineMinOp, affine::AffineMaxOp>(op))
    return compileAffineApply(op);
  if (isa<tensor::ExtractOp>(op))
    return compileExtract(op);
  auto opcode = opcodes().find(op.getName().getStringRef());
  bool isKnown = op.getNumResults() == 1 && op.getNumOperands() >= 1 &&
                 op.getNumOperands() <= 3 && op.getNumRegions() == 0;
  for (Type type : op.getOperandTypes())
    isKnown &= isKnownScalar(type);
  for (Type type : op.getResultTypes())
    isKnown &= isKnownScalar(type);
  if (!isKnown)
    return failAt(ExitCode::Unsupported, op.getLoc(),
                  "found '" + op.getName().getStringRef() +
                      "' in a scalar body, which the reference does not "
                      "evaluate");
  Instruction in;
  uint32_t *slots[] = {&in.a, &in.b, &in.c};
  for (auto [slot, operand] : llvm::zip(slots, op.getOperands())) {
    auto reg = registerOf(operand, &op);
    if (!reg)
      return reg.takeError();
    *slot = *reg;
  }
  if (opcode == opcodes().end())
    return compileConversion(op, in);
  in.opcode = opcode->second;
  if (auto compare = dyn_cast<arith::CmpFOp>(op))
    in.predicate = uint8_t(compare.getPredicate());
  if (auto compare = dyn_cast<arith::CmpIOp>(op))
    in.predicate = uint8_t(compare.getPredicate());
  if (!isa<FloatType>(op.getOperand(0).getType()))
    in.width = widthOf(op.getOperand(0).getType());
  auto real = dyn_cast<FloatType>(op.getResult(0).getType());
  if (real && in.opcode == Opcode::Select)
    in.predicate = kSelectsFloats;
  bool isRounded = options.roundEveryOp || options.ownNoise;
  if (real && isRounded && in.opcode != Opcode::Select)
    in.round = uint8_t(*dtypeOf(real));
  bind(op.getResult(0), emit(in, op.getLoc()));
  return llvm::Error::success();
}

llvm::Error ScalarCompiler::describe(const TrapState &trap) const {
  Location location = locations[trap.instruction];
  if (trap.trap == Trap::DivisionByZero)
    return failAt(ExitCode::Model, location, "integer division by zero");
  return failAt(ExitCode::Model, location,
                "subscript " + llvm::Twine(trap.dimension) + " is " +
                    llvm::Twine(trap.subscript) + "; expected 0 to " +
                    llvm::Twine(trap.extent - 1));
}
