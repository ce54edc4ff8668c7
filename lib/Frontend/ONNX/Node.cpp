// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Node.h"
#include "onnx.pb.h"
#include "refold/Support/Diagnostics.h"
#include "refold/Support/Error.h"

using namespace mlir;
using namespace refold;
using namespace refold::onnx;
using ::onnx::AttributeProto;

static std::string nameOf(const ::onnx::NodeProto &proto) {
  if (!proto.name().empty())
    return proto.name();
  return proto.output_size() ? proto.output(0) : proto.op_type();
}

Node::Node(const ::onnx::NodeProto &proto, GraphBuilder &graph,
           SmallVector<Tensor *> inputs, Location loc)
    : graph(graph), extents(graph.extents),
      results(proto.output_size(), std::nullopt), proto(proto),
      inputs(std::move(inputs)), loc(loc) {
  graph.loc = loc;
  graph.nodeName = nameOf(proto);
}

std::string Node::name() const { return nameOf(proto); }

llvm::StringRef Node::op() const { return proto.op_type(); }

InFlightDiagnostic Node::report(ExitCode code) {
  ++numErrors;
  return emitError(code == ExitCode::Model ? loc : endingWith(code, loc))
         << proto.op_type() << ": ";
}

LogicalResult Node::fail(llvm::Error error) {
  std::string message;
  ExitCode code = takeError(std::move(error), message);
  return report(code) << message;
}

FailureOr<Shape> Node::extentsOf(unsigned i, StringRef what) {
  Tensor &tensor = input(i);
  if (isFloat(tensor.type) || tensor.rank() > 1) {
    error() << what << " are of type " << typeName(tensor.type) << " and shape "
            << toString(extents, tensor.shape)
            << "; expected integers of rank 0 or 1";
    return failure();
  }
  if (!tensor.isKnown() || (tensor.known.size() == 1 && tensor.rank() == 1 &&
                            !tensor.shape[0].constant())) {
    unsupported() << what
                  << " are known only at run time; expected constants or "
                  << "arithmetic on shapes";
    return failure();
  }
  Shape result;
  for (const Scalar &scalar : tensor.known)
    result.push_back(*scalar.integer);
  int64_t count = tensor.rank() ? *tensor.shape[0].constant() : 1;
  if (result.size() == 1)
    result.resize(std::min(count, kMostKnown), result.front());
  return result;
}

FailureOr<SmallVector<int64_t>> Node::integersOf(unsigned i, StringRef what) {
  FailureOr<Shape> values = extentsOf(i, what);
  if (failed(values))
    return failure();
  SmallVector<int64_t> result;
  for (const Extent &value : *values) {
    if (!value.constant()) {
      unsupported() << what << " depend on a size, " << extents.toString(value)
                    << "; expected numbers";
      return failure();
    }
    result.push_back(*value.constant());
  }
  return result;
}

const AttributeProto *Node::find(StringRef name) const {
  for (const AttributeProto &attribute : proto.attribute())
    if (name == attribute.name())
      return &attribute;
  return nullptr;
}

bool Node::has(StringRef name) const { return find(name) != nullptr; }

int64_t Node::integer(StringRef name, int64_t otherwise) const {
  const AttributeProto *attribute = find(name);
  return attribute ? attribute->i() : otherwise;
}

double Node::real(StringRef name, double otherwise) const {
  const AttributeProto *attribute = find(name);
  return attribute ? double(attribute->f()) : otherwise;
}

std::string Node::string(StringRef name, StringRef otherwise) const {
  const AttributeProto *attribute = find(name);
  return attribute ? attribute->s() : otherwise.str();
}

SmallVector<int64_t> Node::integers(StringRef name) const {
  const AttributeProto *attribute = find(name);
  if (!attribute)
    return {};
  return SmallVector<int64_t>(attribute->ints().begin(),
                              attribute->ints().end());
}

SmallVector<double> Node::reals(StringRef name) const {
  const AttributeProto *attribute = find(name);
  if (!attribute)
    return {};
  return SmallVector<double>(attribute->floats().begin(),
                             attribute->floats().end());
}

const ::onnx::TensorProto *Node::tensor(StringRef name) const {
  const AttributeProto *attribute = find(name);
  return attribute && attribute->has_t() ? &attribute->t() : nullptr;
}

FailureOr<unsigned> Node::axis(int64_t value, unsigned rank) {
  int64_t signedRank = rank;
  if (value < -signedRank || value >= signedRank) {
    error() << "axis " << value << " of a tensor of rank " << rank
            << "; expected " << -signedRank << " to " << signedRank - 1;
    return failure();
  }
  return unsigned(value < 0 ? value + signedRank : value);
}

FailureOr<unsigned> Node::axisAttribute(int64_t otherwise, unsigned rank) {
  return axis(integer("axis", otherwise), rank);
}

FailureOr<SmallVector<bool>> Node::axisSet(ArrayRef<int64_t> axes,
                                           unsigned rank) {
  SmallVector<bool> flags(rank, false);
  for (int64_t value : axes) {
    FailureOr<unsigned> place = axis(value, rank);
    if (failed(place))
      return failure();
    if (flags[*place]) {
      error() << "axis " << value << " is given twice; expected distinct axes";
      return failure();
    }
    flags[*place] = true;
  }
  return flags;
}

unsigned Node::numOutputs() const { return proto.output_size(); }

bool Node::wants(unsigned i) const {
  return i < numOutputs() && !proto.output(i).empty();
}

LogicalResult Node::give(unsigned i, Tensor tensor) {
  if (i < results.size())
    results[i] = std::move(tensor);
  return success();
}

LogicalResult Node::requireSameTypes(unsigned from) {
  for (unsigned i = from + 1; i < numInputs(); ++i)
    if (hasInput(i) && input(i).type != input(from).type)
      return error() << "input " << i << " is of type "
                     << typeName(input(i).type) << "; expected "
                     << typeName(input(from).type) << ", that of input "
                     << from;
  return success();
}

LogicalResult Node::requireFloat(unsigned i) {
  if (isFloat(input(i).type))
    return success();
  return error() << "input " << i << " is of type " << typeName(input(i).type)
                 << "; expected a float type";
}

LogicalResult Node::requireFloatHere(unsigned i) {
  if (isFloat(input(i).type) || input(i).type == ElementType::Bool)
    return requireFloat(i);
  return unsupported() << "input " << i << " is of type "
                       << typeName(input(i).type) << "; expected a float type";
}

bool Node::areEqual(ArrayRef<Extent> a, ArrayRef<Extent> b) {
  return llvm::equal(a, b, [&](const Extent &x, const Extent &y) {
    return extents.areEqual(x, y);
  });
}

FailureOr<Shape> Node::broadcast(ArrayRef<Tensor *> tensors) {
  FailureOr<Shape> shape = graph.broadcast(tensors);
  if (failed(shape)) {
    InFlightDiagnostic message = error() << "shapes ";
    for (auto [i, tensor] : llvm::enumerate(tensors))
      message << (i ? " and " : "") << toString(extents, tensor->shape);
    message
        << " do not broadcast; expected equal extents or 1 in each dimension";
  }
  return shape;
}
