// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Assembly and verifiers of the ops inside a cascade, and of refold.topk.
#include "refold/Dialect/Refold/IR/Refold.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace refold;

#define GET_OP_CLASSES
#include "refold/Dialect/Refold/IR/RefoldOps.cpp.inc"

//===----------------------------------------------------------------------===//
// read, write: subscripts as in affine.load, then the element type
//===----------------------------------------------------------------------===//

static ParseResult
parseSubscripts(OpAsmParser &p,
                SmallVectorImpl<OpAsmParser::UnresolvedOperand> &indices,
                NamedAttrList &attrs) {
  AffineMapAttr map;
  return p.parseAffineMapOfSSAIds(indices, map, "map", attrs);
}

ParseResult ReadOp::parse(OpAsmParser &p, OperationState &result) {
  OpAsmParser::UnresolvedOperand source;
  SmallVector<OpAsmParser::UnresolvedOperand> indices;
  Type type;
  if (p.parseOperand(source) ||
      parseSubscripts(p, indices, result.attributes) ||
      p.parseOptionalAttrDict(result.attributes) || p.parseColonType(type) ||
      p.resolveOperand(source, ArgType::get(p.getContext(), type),
                       result.operands) ||
      p.resolveOperands(indices, p.getBuilder().getIndexType(),
                        result.operands))
    return failure();
  result.addTypes(type);
  return success();
}

void ReadOp::print(OpAsmPrinter &p) {
  p << ' ' << getSource() << '[';
  p.printAffineMapOfSSAIds(getMapAttr(), getIndices());
  p << ']';
  p.printOptionalAttrDict((*this)->getAttrs(), {"map"});
  p << " : " << getValue().getType();
}

LogicalResult ReadOp::verify() {
  if (cast<ArgType>(getSource().getType()).getElementType() !=
      getValue().getType())
    return emitOpError("result is not of the operand's element type");
  if (getMap().getNumInputs() != getIndices().size())
    return emitOpError("map and indices differ in number");
  return success();
}

ParseResult WriteOp::parse(OpAsmParser &p, OperationState &result) {
  OpAsmParser::UnresolvedOperand value, target;
  SmallVector<OpAsmParser::UnresolvedOperand> indices;
  Type type;
  if (p.parseOperand(value) || p.parseComma() || p.parseOperand(target) ||
      parseSubscripts(p, indices, result.attributes) ||
      p.parseOptionalAttrDict(result.attributes) || p.parseColonType(type) ||
      p.resolveOperand(value, type, result.operands) ||
      p.resolveOperand(target, ArgType::get(p.getContext(), type),
                       result.operands) ||
      p.resolveOperands(indices, p.getBuilder().getIndexType(),
                        result.operands))
    return failure();
  return success();
}

void WriteOp::print(OpAsmPrinter &p) {
  p << ' ' << getValue() << ", " << getTarget() << '[';
  p.printAffineMapOfSSAIds(getMapAttr(), getIndices());
  p << ']';
  p.printOptionalAttrDict((*this)->getAttrs(), {"map"});
  p << " : " << getValue().getType();
}

LogicalResult WriteOp::verify() {
  if (cast<ArgType>(getTarget().getType()).getElementType() !=
      getValue().getType())
    return emitOpError("value is not of the operand's element type");
  if (getMap().getNumInputs() != getIndices().size())
    return emitOpError("map and indices differ in number");
  return success();
}

//===----------------------------------------------------------------------===//
// state
//===----------------------------------------------------------------------===//

namespace {
/// The operand groups of a state, in the order of its segments.
enum Segment { Values, Pivots, With, Rank, NumSegments };
} // namespace

static ParseResult parseTransport(OpAsmParser &p, OperationState &result,
                                  ArrayRef<SmallVector<Type>> types) {
  SmallVector<OpAsmParser::Argument> args;
  if (p.parseArgumentList(args, AsmParser::Delimiter::Paren))
    return failure();
  SmallVector<Type> want;
  for (Type type : types[Pivots])
    want.append({type, type});
  if (!types[Values].empty())
    want.push_back(types[Values].front());
  want.append(types[With]);
  if (args.size() != want.size())
    return p.emitError(p.getNameLoc())
           << "transport has " << args.size() << " arguments; expected "
           << want.size()
           << " (old and new of each pivot, the state, each of 'with')";
  for (auto [arg, type] : llvm::zip(args, want))
    arg.type = type;
  return p.parseRegion(*result.regions.back(), args);
}

// refold.state add(%p : f32) pivot(%g : f32) with(%n : f32)
//     transport(%old, %new, %self, %n0) { ... } law "..."
ParseResult StateOp::parse(OpAsmParser &p, OperationState &result) {
  Builder &b = p.getBuilder();
  StringRef keyword;
  SMLoc at = p.getCurrentLocation();
  if (p.parseKeyword(&keyword))
    return failure();
  std::optional<Reducer> reducer = symbolizeReducer(keyword);
  if (!reducer)
    return p.emitError(at) << "has unknown reducer '" << keyword << "'";
  result.addAttribute("reducer", ReducerAttr::get(p.getContext(), *reducer));
  SmallVector<Type> types[3];
  int32_t segments[NumSegments] = {};
  auto list = [&](Segment s) {
    return p.parseCommaSeparatedList(
        AsmParser::Delimiter::Paren, [&]() -> ParseResult {
          OpAsmParser::UnresolvedOperand operand;
          Type type;
          if (p.parseOperand(operand) || p.parseColonType(type) ||
              p.resolveOperand(operand, type, result.operands))
            return failure();
          types[s].push_back(type);
          ++segments[s];
          return success();
        });
  };
  if (list(Values))
    return failure();
  if (succeeded(p.parseOptionalKeyword("pivot")) && list(Pivots))
    return failure();
  if (succeeded(p.parseOptionalKeyword("with")) && list(With))
    return failure();
  if (succeeded(p.parseOptionalKeyword("rank"))) {
    OpAsmParser::UnresolvedOperand operand;
    if (p.parseLParen() || p.parseOperand(operand) || p.parseRParen() ||
        p.resolveOperand(operand, b.getIndexType(), result.operands))
      return failure();
    segments[Rank] = 1;
  }
  result.addRegion();
  if (succeeded(p.parseOptionalKeyword("transport")) &&
      parseTransport(p, result, types))
    return failure();
  if (succeeded(p.parseOptionalKeyword("law"))) {
    StringAttr law;
    if (p.parseAttribute(law))
      return failure();
    result.addAttribute("law", law);
  }
  if (p.parseOptionalAttrDict(result.attributes))
    return failure();
  result.addTypes(types[Values]);
  result.addAttribute(getOperandSegmentSizeAttr(),
                      b.getDenseI32ArrayAttr(segments));
  return success();
}

void StateOp::print(OpAsmPrinter &p) {
  p << ' ' << stringifyReducer(getReducer());
  auto list = [&](StringRef name, ValueRange values) {
    if (values.empty())
      return;
    p << name << '(';
    llvm::interleaveComma(values, p,
                          [&](Value v) { p << v << " : " << v.getType(); });
    p << ')';
  };
  list("", getValues());
  list(" pivot", getPivots());
  list(" with", getWith());
  if (!getRank().empty())
    p << " rank(" << getRank()[0] << ')';
  if (!getTransport().empty()) {
    p << " transport(";
    llvm::interleaveComma(getTransport().getArguments(), p,
                          [&](Value a) { p << a; });
    p << ") ";
    p.printRegion(getTransport(), /*printEntryBlockArgs=*/false);
  }
  if (getLaw()) {
    p << " law ";
    p.printAttribute(getLawAttr());
  }
  p.printOptionalAttrDict((*this)->getAttrs(),
                          {"reducer", "law", getOperandSegmentSizeAttr()});
}

void StateOp::getAsmBlockArgumentNames(Region &region,
                                       OpAsmSetValueNameFn set) {
  if (region.getNumArguments() != 2 * getPivots().size() + 1 + getWith().size())
    return;
  unsigned a = 0;
  for (size_t i = 0; i < getPivots().size(); ++i) {
    set(region.getArgument(a++), "old");
    set(region.getArgument(a++), "new");
  }
  set(region.getArgument(a++), "self");
  for (size_t i = 0; i < getWith().size(); ++i)
    set(region.getArgument(a++), "with");
}

static LogicalResult verifyTransport(StateOp state) {
  if (state.isOrdered())
    return state.emitOpError("reducer ")
           << stringifyReducer(state.getReducer()) << " has no transport";
  SmallVector<Type> want;
  for (Value v : state.getPivots())
    want.append({v.getType(), v.getType()});
  want.push_back(state.getValues()[0].getType());
  for (Value v : state.getWith())
    want.push_back(v.getType());
  Region &region = state.getTransport();
  if (!region.hasOneBlock() ||
      TypeRange(region.getArgumentTypes()) != TypeRange(want))
    return state.emitOpError("transport arguments do not match old and new of "
                             "each pivot, the state, each of 'with'");
  Block &block = region.front();
  auto yield = block.empty() ? YieldOp() : dyn_cast<YieldOp>(block.back());
  if (!yield || yield.getValue().getType() != state.getResult(0).getType())
    return state.emitOpError(
        "transport must yield one value of the state's type");
  return success();
}

LogicalResult StateOp::verify() {
  if (getValues().empty() || (!isOrdered() && getValues().size() != 1))
    return emitOpError("reducer ")
           << stringifyReducer(getReducer())
           << " takes one value; payloads belong to topk and bottomk";
  if (isOrdered() != (getRank().size() == 1))
    return emitOpError("topk and bottomk, and only they, have a rank index");
  if (getResultTypes() != getValues().getTypes())
    return emitOpError("results differ in type from the values");
  Type type = getValues()[0].getType();
  bool logical = getReducer() == Reducer::And || getReducer() == Reducer::Or;
  bool ieee =
      getReducer() == Reducer::MaxNum || getReducer() == Reducer::MinNum;
  if ((logical && !isa<IntegerType>(type)) || (ieee && !isa<FloatType>(type)) ||
      !type.isIntOrFloat())
    return emitOpError("reducer ") << stringifyReducer(getReducer())
                                   << " does not take values of type " << type;
  if (getPivots().empty() != getTransport().empty())
    return emitOpError("has ")
           << (getPivots().empty() ? "a transport and no pivot"
                                   : "a pivot and no transport");
  if (!getTransport().empty())
    return verifyTransport(*this);
  return getWith().empty() ? success()
                           : emitOpError("has 'with' and no transport");
}

//===----------------------------------------------------------------------===//
// topk
//===----------------------------------------------------------------------===//

LogicalResult TopKOp::verify() {
  auto source = cast<RankedTensorType>(getSource().getType());
  auto keys = cast<RankedTensorType>(getKeys().getType());
  auto positions = cast<RankedTensorType>(getPositions().getType());
  int64_t dim = getDim(), k = getK();
  if (dim < 0 || dim >= source.getRank())
    return emitOpError("has dim ")
           << dim << "; expected 0 to " << source.getRank() - 1;
  if (k < 1)
    return emitOpError("has k ") << k << "; expected 1 or more";
  SmallVector<int64_t> want(source.getShape());
  want[dim] = k;
  if (keys.getShape() != ArrayRef<int64_t>(want) ||
      positions.getShape() != ArrayRef<int64_t>(want))
    return emitOpError("results have shapes other than the source's with ")
           << k << " at dim " << dim;
  if (source.getElementType().isInteger(1))
    return emitOpError("has keys of type i1; expected numbers, which have an "
                       "order");
  if (keys.getElementType() != source.getElementType() ||
      !positions.getElementType().isSignlessInteger())
    return emitOpError("keys must have the source's element type and positions "
                       "an integer one");
  return success();
}
