// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Constants.h"
#include "ModelFile.h"
#include "Operators.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Iterators.h"
#include "mlir/IR/Verifier.h"
#include "refold/Dialect/Refold/IR/Refold.h"
#include "refold/Frontend/ONNX.h"
#include "refold/Support/Diagnostics.h"
#include "refold/Support/Error.h"
#include "refold/Support/NearestName.h"
#include "llvm/ADT/StringSet.h"
#include <map>

using namespace mlir;
using namespace refold;
using namespace refold::onnx;
using ::onnx::GraphProto;
using ::onnx::NodeProto;
using ::onnx::TypeProto;
using ::onnx::ValueInfoProto;

namespace {
/// Reads one file.
class Importer {
public:
  Importer(StringRef path, MLIRContext &context, const OnnxOptions &options)
      : path(path), context(context), options(options), builder(&context) {}

  FailureOr<OnnxModel> run(llvm::Expected<std::shared_ptr<ModelFile>> opened);

private:
  LogicalResult error(const Twine &message, ExitCode code = ExitCode::Model) {
    Location loc = FileLineColLoc::get(&context, path, 0, 0);
    emitError(code == ExitCode::Model ? loc : endingWith(code, loc), message);
    return failure();
  }
  LogicalResult fail(llvm::Error error, Location loc, const Twine &what = "");
  LogicalResult readOpset();
  LogicalResult checkDimOptions();
  LogicalResult declareInitializers(const GraphProto &proto, bool isMain);
  FailureOr<Shape> shapeOf(const ValueInfoProto &info,
                           SmallVectorImpl<std::string> &names);
  LogicalResult declareInputs();
  LogicalResult lowerNode(const NodeProto &proto, int number);
  LogicalResult lowerIf(const NodeProto &proto, int number, Location loc);
  FailureOr<std::vector<Tensor>> lowerBranch(const GraphProto &proto,
                                             int number, Location loc);
  LogicalResult checkResult(Node &node, unsigned i, Tensor &tensor);
  LogicalResult finish();
  LogicalResult finishOutput(const ValueInfoProto &info,
                             SmallVectorImpl<Value> &values,
                             SmallVectorImpl<Attribute> &attributes);
  LogicalResult define(StringRef name, Tensor tensor, Location loc);
  DictionaryAttr portAttributes(StringRef name, ElementType type,
                                ArrayRef<std::string> dims);

  std::string path;
  MLIRContext &context;
  const OnnxOptions &options;
  OpBuilder builder;
  std::shared_ptr<ModelFile> file;
  std::optional<ConstantReader> constants;
  int opset = 0;
  Extents extents;
  std::map<std::string, Tensor> tensors;
  std::vector<std::string> *branchNames = nullptr; ///< those it has defined
  OwningOpRef<ModuleOp> module;
  func::FuncOp function;
  std::optional<GraphBuilder> graph;
};
} // namespace

static bool isDefaultDomain(StringRef domain) {
  return domain.empty() || domain == "ai.onnx";
}

LogicalResult Importer::fail(llvm::Error error, Location loc,
                             const Twine &what) {
  std::string message;
  ExitCode code = takeError(std::move(error), message);
  return emitError(endingWith(code, loc), what + message);
}

LogicalResult Importer::readOpset() {
  const ::onnx::ModelProto &model = file->model();
  if (!model.has_graph())
    return error("the model has no graph; expected one");
  for (const ::onnx::OperatorSetIdProto &entry : model.opset_import())
    if (isDefaultDomain(entry.domain())) {
      if (entry.version() < kFirstOpset || entry.version() > kLastOpset)
        return error("opset " + Twine(entry.version()) + "; expected " +
                         Twine(kFirstOpset) + " to " + Twine(kLastOpset),
                     ExitCode::Unsupported);
      opset = int(entry.version());
    }
  if (!opset)
    return error("the model names no opset of the domain 'ai.onnx'; expected " +
                 Twine(kFirstOpset) + " to " + Twine(kLastOpset));
  return success();
}

LogicalResult Importer::define(StringRef name, Tensor tensor, Location loc) {
  if (!tensors.try_emplace(name.str(), std::move(tensor)).second)
    return emitError(loc) << "the name '" << name
                          << "' is defined twice; expected distinct names";
  if (branchNames)
    branchNames->push_back(name.str());
  return success();
}

/// Only those of the main graph have their numbers outside the message.
LogicalResult Importer::declareInitializers(const GraphProto &proto,
                                            bool isMain) {
  if (proto.sparse_initializer_size())
    return error("a sparse initializer; expected dense ones only",
                 ExitCode::Unsupported);
  for (int i = 0; i < proto.initializer_size(); ++i) {
    const ::onnx::TensorProto &initializer = proto.initializer(i);
    Location loc = NameLoc::get(builder.getStringAttr(initializer.name()),
                                FileLineColLoc::get(&context, path, 0, 0));
    llvm::Expected<Tensor> tensor =
        constants->read(initializer, isMain ? file->payload(i) : StringRef(),
                        initializer.name());
    if (!tensor)
      return fail(tensor.takeError(), loc,
                  "initializer '" + initializer.name() + "': ");
    tensor->origin = loc;
    if (failed(define(initializer.name(), std::move(*tensor), loc)))
      return failure();
  }
  return success();
}

FailureOr<Shape> Importer::shapeOf(const ValueInfoProto &info,
                                   SmallVectorImpl<std::string> &names) {
  auto refuse = [&](const Twine &found, const Twine &expected,
                    ExitCode code = ExitCode::Model) {
    return error("'" + info.name() + "' " + found + "; expected " + expected,
                 code);
  };
  if (info.type().value_case() != TypeProto::kTensorType)
    return refuse("is no tensor", "tensors only", ExitCode::Unsupported);
  const TypeProto::Tensor &type = info.type().tensor_type();
  if (!isSupported(type.elem_type()))
    return refuse("has elements of type " + typeName(type.elem_type()),
                  "one of " + supportedTypeNames(), ExitCode::Unsupported);
  if (!type.has_shape())
    return refuse("has no shape", "one, with names for what varies",
                  ExitCode::Unsupported);
  if (type.shape().dim_size() > kHighestRank)
    return refuse("has rank " + Twine(type.shape().dim_size()),
                  "at most " + Twine(kHighestRank), ExitCode::Limit);
  Shape shape;
  for (const ::onnx::TensorShapeProto::Dimension &dim : type.shape().dim()) {
    bool isFixed = dim.has_dim_value();
    if (isFixed && (dim.dim_value() < 0 || dim.dim_value() > kLargestExtent))
      return refuse("has a dimension of " + Twine(dim.dim_value()), "0 to 2^40",
                    dim.dim_value() < 0 ? ExitCode::Model : ExitCode::Limit);
    names.push_back(isFixed ? "" : dim.dim_param());
    auto fixed = options.dims.find(dim.dim_param());
    if (isFixed)
      shape.push_back(Extent(dim.dim_value()));
    else if (!dim.dim_param().empty() && fixed != options.dims.end())
      shape.push_back(Extent(fixed->second));
    else
      shape.push_back(extents.symbol(dim.dim_param()));
  }
  if (failed(checkSize(shape)))
    return refuse("has shape " + toString(extents, shape),
                  "an element count that fits 2^47", ExitCode::Limit);
  return shape;
}

/// `--dim` may only name what some input has.
LogicalResult Importer::checkDimOptions() {
  std::vector<std::string> known;
  for (const ValueInfoProto &input : file->model().graph().input())
    for (auto &dim : input.type().tensor_type().shape().dim())
      if (dim.has_dim_param())
        known.push_back(dim.dim_param());
  for (auto &entry : options.dims) {
    if (entry.second < 0 || entry.second > kLargestExtent)
      return error("dimension '" + entry.first() + "' is set to " +
                       Twine(entry.second) + "; expected 0 to 2^40",
                   ExitCode::Usage);
    if (llvm::is_contained(known, entry.first().str()))
      continue;
    std::vector<StringRef> names(known.begin(), known.end());
    return error("no input has a dimension '" + entry.first() +
                     "'; expected one of the model's" +
                     suggestion(entry.first(), names),
                 ExitCode::Usage);
  }
  return success();
}

DictionaryAttr Importer::portAttributes(StringRef name, ElementType type,
                                        ArrayRef<std::string> dims) {
  SmallVector<StringRef> names(dims.begin(), dims.end());
  NamedAttrList attributes;
  attributes.set("refold.name", builder.getStringAttr(name));
  attributes.set("refold.dims", builder.getStrArrayAttr(names));
  if (type == ElementType::U8)
    attributes.set("refold.unsigned", builder.getUnitAttr());
  return attributes.getDictionary(&context);
}

/// A symbol name that any printer takes as it is.
static std::string functionName(StringRef name) {
  std::string clean;
  for (char c : name)
    clean += llvm::isAlnum(c) ? c : '_';
  if (clean.empty() || llvm::isDigit(clean.front()))
    clean = "model" + clean;
  return clean;
}

LogicalResult Importer::declareInputs() {
  const GraphProto &proto = file->model().graph();
  struct Input {
    std::string name;
    ElementType type;
    Shape shape;
  };
  std::vector<Input> inputs;
  SmallVector<Type> types;
  SmallVector<Attribute> attributes;
  llvm::StringSet<> seen;
  for (const ValueInfoProto &info : proto.input()) {
    if (!seen.insert(info.name()).second)
      return error("the input '" + info.name() +
                   "' is defined twice; expected distinct names");
    // Before IR version 4 initialisers were inputs, too.
    if (tensors.count(info.name()))
      continue;
    SmallVector<std::string> names;
    FailureOr<Shape> shape = shapeOf(info, names);
    if (failed(shape))
      return failure();
    auto type = ElementType(info.type().tensor_type().elem_type());
    SmallVector<int64_t> sizes;
    for (const Extent &extent : *shape)
      sizes.push_back(extent.constant().value_or(ShapedType::kDynamic));
    types.push_back(RankedTensorType::get(sizes, storageType(builder, type)));
    attributes.push_back(portAttributes(info.name(), type, names));
    inputs.push_back({info.name(), type, *shape});
  }
  Location loc = NameLoc::get(builder.getStringAttr(proto.name()),
                              FileLineColLoc::get(&context, path, 0, 0));
  module = ModuleOp::create(loc);
  builder.setInsertionPointToEnd(module->getBody());
  function = builder.create<func::FuncOp>(loc, functionName(proto.name()),
                                          builder.getFunctionType(types, {}));
  function.addEntryBlock();
  function.setAllArgAttrs(ArrayRef(attributes));
  graph.emplace(function, extents);
  graph->constants = &*constants;
  for (auto [input, argument] :
       llvm::zip_equal(inputs, function.getArguments())) {
    for (auto [k, extent] : llvm::enumerate(input.shape))
      if (!extent.constant())
        graph->defineSymbol(extent.terms.front().atoms.front(), argument, k);
    if (failed(define(input.name,
                      graph->tensorOf(argument, input.type, input.shape), loc)))
      return failure();
  }
  return success();
}

LogicalResult Importer::checkResult(Node &node, unsigned i, Tensor &tensor) {
  if (extents.hasOverflowed)
    return node.beyondLimit() << "a size of result " << i
                              << " leaves 64 bits; expected smaller sizes";
  if (tensor.rank() > kHighestRank)
    return node.beyondLimit() << "result " << i << " has rank " << tensor.rank()
                              << "; expected at most " << kHighestRank;
  if (failed(checkSize(tensor.shape)))
    return node.beyondLimit()
           << "result " << i << " has shape " << toString(extents, tensor.shape)
           << "; expected an element count that fits 2^47";
  return success();
}

LogicalResult Importer::lowerNode(const NodeProto &proto, int number) {
  std::string name = proto.name();
  if (name.empty())
    name = proto.output_size() ? proto.output(0) : proto.op_type();
  Location loc = NameLoc::get(builder.getStringAttr(name),
                              FileLineColLoc::get(&context, path, number, 1));
  Location isUnsupported = endingWith(ExitCode::Unsupported, loc);
  if (!isDefaultDomain(proto.domain()))
    return emitError(isUnsupported)
           << "operator '" << proto.op_type() << "' of domain '"
           << proto.domain() << "'; expected operators of 'ai.onnx'";
  if (proto.op_type() == "If")
    return lowerIf(proto, number, loc);
  const Operator *row = findOperator(proto.op_type(), opset);
  if (!row)
    return emitError(isUnsupported) << whyUnknown(proto.op_type(), opset);
  SmallVector<Tensor *> inputs;
  for (const std::string &input : proto.input()) {
    auto found = tensors.find(input);
    if (input.empty()) {
      inputs.push_back(nullptr);
    } else if (found == tensors.end()) {
      return emitError(loc)
             << proto.op_type() << ": input '" << input
             << "' is not defined before it; expected nodes in order, "
             << "without cycles";
    } else {
      inputs.push_back(&found->second);
    }
  }
  Node node(proto, *graph, std::move(inputs), loc);
  if (failed(checkNode(node, *row)) || failed(row->lower(node)))
    return failure();
  for (unsigned i = 0; i < node.numOutputs(); ++i) {
    if (!node.wants(i))
      continue;
    if (!node.results[i])
      return node.error() << "it has no result " << i
                          << " here; expected that one to be left out";
    if (failed(checkResult(node, i, *node.results[i])) ||
        failed(define(proto.output(i), std::move(*node.results[i]), loc)))
      return failure();
  }
  return success();
}

/// The results of a graph that is part of a node, as nodes of this one. Its
/// names are known inside it only.
FailureOr<std::vector<Tensor>> Importer::lowerBranch(const GraphProto &proto,
                                                     int number, Location loc) {
  std::vector<std::string> names;
  std::vector<std::string> *outer = std::exchange(branchNames, &names);
  std::vector<Tensor> results;
  auto lower = [&]() -> LogicalResult {
    if (failed(declareInitializers(proto, /*isMain=*/false)))
      return failure();
    for (const NodeProto &node : proto.node())
      if (failed(lowerNode(node, number)))
        return failure();
    for (const ValueInfoProto &output : proto.output()) {
      auto found = tensors.find(output.name());
      if (found == tensors.end())
        return emitError(loc) << "If: the result '" << output.name()
                              << "' of a branch is not defined; expected a "
                                 "node that gives it";
      results.push_back(found->second);
    }
    return success();
  };
  LogicalResult done = lower();
  branchNames = outer;
  for (const std::string &name : names)
    tensors.erase(name);
  if (failed(done))
    return failure();
  return results;
}

/// One branch, in place of the node: which one must follow from constants and
/// sizes.
LogicalResult Importer::lowerIf(const NodeProto &proto, int number,
                                Location loc) {
  auto graphOf = [&](StringRef name) -> const GraphProto * {
    for (const ::onnx::AttributeProto &attribute : proto.attribute())
      if (name == attribute.name() && attribute.has_g())
        return &attribute.g();
    return nullptr;
  };
  const GraphProto *then = graphOf("then_branch");
  const GraphProto *otherwise = graphOf("else_branch");
  auto condition =
      proto.input_size() == 1 ? tensors.find(proto.input(0)) : tensors.end();
  if (!then || !otherwise || condition == tensors.end() ||
      condition->second.type != ElementType::Bool)
    return emitError(loc) << "If: a node without a condition that is defined "
                             "before it and two branches; expected them";
  const Scalar *flag = condition->second.splat();
  std::optional<int64_t> value =
      flag && flag->integer ? flag->integer->constant() : std::nullopt;
  if (!value)
    return emitError(endingWith(ExitCode::Unsupported, loc))
           << "If: the condition is known only at run time; expected one that "
              "follows from constants and sizes";
  auto results = lowerBranch(*value ? *then : *otherwise, number, loc);
  if (failed(results))
    return failure();
  if (int(results->size()) != proto.output_size())
    return emitError(loc) << "If: a branch gives " << results->size()
                          << " results; expected " << proto.output_size();
  for (auto [name, tensor] : llvm::zip_equal(proto.output(), *results))
    if (!name.empty() && failed(define(name, std::move(tensor), loc)))
      return failure();
  return success();
}

LogicalResult Importer::finishOutput(const ValueInfoProto &info,
                                     SmallVectorImpl<Value> &values,
                                     SmallVectorImpl<Attribute> &attributes) {
  auto found = tensors.find(info.name());
  if (found == tensors.end())
    return error("the output '" + info.name() +
                 "' is not defined; expected a node that gives it");
  Tensor &tensor = found->second;
  const TypeProto::Tensor &type = info.type().tensor_type();
  if (info.has_type() && type.elem_type() != int32_t(tensor.type))
    return error("the output '" + info.name() + "' is declared as " +
                 typeName(type.elem_type()) + "; expected " +
                 typeName(tensor.type) + ", which its node gives");
  if (type.has_shape()) {
    bool agrees = type.shape().dim_size() == int(tensor.rank());
    for (unsigned k = 0; agrees && k < tensor.rank(); ++k)
      agrees = !type.shape().dim(k).has_dim_value() ||
               !extents.areUnequal(Extent(type.shape().dim(k).dim_value()),
                                   tensor.shape[k]);
    if (!agrees)
      return error("the output '" + info.name() +
                   "' is declared with another shape; expected " +
                   toString(extents, tensor.shape) + ", which its node gives");
  }
  Value value = graph->valueOf(tensor);
  Type stored = storageType(builder, tensor.type);
  if (getElementTypeOrSelf(value) != stored) {
    Tensor rounded =
        graph->elementwise(&tensor, tensor.shape, tensor.type, stored,
                           [&](Body &body, ValueRange args) -> Value {
                             return body.make<arith::TruncFOp>(stored, args[0]);
                           });
    value = graph->valueOf(rounded);
  }
  SmallVector<std::string> names;
  for (const Extent &extent : tensor.shape)
    names.push_back(extents.symbolName(extent));
  values.push_back(value);
  attributes.push_back(portAttributes(info.name(), tensor.type, names));
  return success();
}

/// Ops that nobody reads: sizes and masks that were folded away.
static void eraseUnread(func::FuncOp function) {
  function.walk<WalkOrder::PostOrder, mlir::ReverseIterator>([](Operation *op) {
    if (isOpTriviallyDead(op))
      op->erase();
  });
}

LogicalResult Importer::finish() {
  const GraphProto &proto = file->model().graph();
  if (!proto.output_size())
    return error("the graph has no output; expected at least one");
  SmallVector<Value> values;
  SmallVector<Attribute> attributes;
  graph->loc = function.getLoc();
  for (const ValueInfoProto &info : proto.output())
    if (failed(finishOutput(info, values, attributes)))
      return failure();
  graph->ops.create<func::ReturnOp>(function.getLoc(), values);
  function.setFunctionType(builder.getFunctionType(
      function.getArgumentTypes(), ValueRange(values).getTypes()));
  function.setAllResultAttrs(ArrayRef(attributes));
  eraseUnread(function);
  return verify(*module);
}

FailureOr<OnnxModel>
Importer::run(llvm::Expected<std::shared_ptr<ModelFile>> opened) {
  context.loadDialect<affine::AffineDialect, arith::ArithDialect,
                      cf::ControlFlowDialect, func::FuncDialect,
                      linalg::LinalgDialect, math::MathDialect,
                      tensor::TensorDialect, RefoldDialect>();
  if (!opened)
    return fail(opened.takeError(), FileLineColLoc::get(&context, path, 0, 0));
  file = *opened;
  constants.emplace(ConstantReader{context, file});
  if (failed(readOpset()) || failed(checkDimOptions()) ||
      failed(declareInitializers(file->model().graph(), /*isMain=*/true)) ||
      failed(declareInputs()))
    return failure();
  int number = 0;
  for (const NodeProto &proto : file->model().graph().node())
    if (failed(lowerNode(proto, ++number)))
      return failure();
  if (failed(finish()))
    return failure();
  return OnnxModel{std::move(module), file, file->files()};
}

FailureOr<OnnxModel> refold::importOnnx(StringRef path, MLIRContext &context,
                                        const OnnxOptions &options) {
  return Importer(path, context, options).run(ModelFile::open(path));
}

FailureOr<OnnxModel>
refold::importOnnx(std::unique_ptr<llvm::MemoryBuffer> bytes, StringRef path,
                   MLIRContext &context, const OnnxOptions &options) {
  return Importer(path, context, options)
      .run(ModelFile::parse(std::move(bytes), path));
}
