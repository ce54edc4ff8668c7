// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Numbers that stand in the file: initialisers and Constant nodes.
#include "Constants.h"
#include "Operators.h"
#include "Scalars.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "refold/Support/Error.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace refold;
using namespace refold::onnx;
using llvm::Expected;
using ::onnx::TensorProto;

static_assert(llvm::endianness::native == llvm::endianness::little,
              "raw_data is little-endian and used as it lies");

// Position tables of this length are looked at for a closed form.
static constexpr int64_t kLongestFit = 1 << 16;

template <typename To, typename From>
static std::string pack(const From &values) {
  std::string bytes;
  bytes.reserve(values.size() * sizeof(To));
  for (auto value : values) {
    To narrow = static_cast<To>(value);
    bytes.append(reinterpret_cast<const char *>(&narrow), sizeof(To));
  }
  return bytes;
}

/// The elements of the typed fields, laid out as raw_data would be.
static std::string typedFields(const TensorProto &proto, ElementType type) {
  switch (type) {
  case ElementType::F32:
    return pack<float>(proto.float_data());
  case ElementType::F64:
    return pack<double>(proto.double_data());
  case ElementType::I64:
    return pack<int64_t>(proto.int64_data());
  case ElementType::I32:
    return pack<int32_t>(proto.int32_data());
  case ElementType::F16:
  case ElementType::BF16:
    return pack<uint16_t>(proto.int32_data());
  default:
    return pack<uint8_t>(proto.int32_data());
  }
}

template <typename T> static T loadAt(StringRef bytes, size_t index) {
  T value;
  memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

static double loadFloat(StringRef bytes, ElementType type, size_t index) {
  auto ofBits = [](const llvm::fltSemantics &semantics, unsigned width,
                   uint64_t bits) {
    APFloat number(semantics, APInt(width, bits));
    bool losesInfo;
    number.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven,
                   &losesInfo);
    return number.convertToDouble();
  };
  switch (type) {
  case ElementType::F64:
    return loadAt<double>(bytes, index);
  case ElementType::F32:
    return loadAt<float>(bytes, index);
  case ElementType::F16:
    return ofBits(APFloat::IEEEhalf(), 16, loadAt<uint16_t>(bytes, index));
  case ElementType::BF16:
    return ofBits(APFloat::BFloat(), 16, loadAt<uint16_t>(bytes, index));
  case ElementType::F8E4M3FN:
    return ofBits(APFloat::Float8E4M3FN(), 8, loadAt<uint8_t>(bytes, index));
  default:
    return ofBits(APFloat::Float8E5M2(), 8, loadAt<uint8_t>(bytes, index));
  }
}

static int64_t loadInteger(StringRef bytes, ElementType type, size_t index) {
  switch (type) {
  case ElementType::I64:
    return loadAt<int64_t>(bytes, index);
  case ElementType::I32:
    return loadAt<int32_t>(bytes, index);
  case ElementType::I8:
    return loadAt<int8_t>(bytes, index);
  case ElementType::Bool:
    return loadAt<uint8_t>(bytes, index) != 0;
  default:
    return loadAt<uint8_t>(bytes, index);
  }
}

/// Where the bytes lie, and whether they outlive the message.
struct Bytes {
  StringRef data;
  std::string owned;
  bool isMapped = false;
};

static Expected<Bytes> locate(const TensorProto &proto, StringRef payload,
                              ElementType type, ModelFile &file) {
  Bytes bytes;
  if (proto.data_location() == TensorProto::EXTERNAL) {
    Expected<StringRef> external = file.external(proto);
    if (!external)
      return external.takeError();
    bytes.data = *external;
    bytes.isMapped = true;
  } else if (!payload.empty()) {
    bytes.data = payload;
    bytes.isMapped = true;
  } else if (proto.has_raw_data()) {
    bytes.owned = proto.raw_data();
  } else {
    bytes.owned = typedFields(proto, type);
  }
  return bytes;
}

/// An attribute on the mapped bytes. Their alignment is what it happens to be.
static ElementsAttr mappedAttribute(RankedTensorType type, StringRef name,
                                    StringRef bytes,
                                    std::shared_ptr<ModelFile> file) {
  uint64_t address = reinterpret_cast<uintptr_t>(bytes.data());
  uint64_t alignment = std::min<uint64_t>(64, address & (~address + 1));
  AsmResourceBlob blob(
      ArrayRef<char>(bytes.data(), bytes.size()), alignment,
      [file](void *, size_t, size_t) {},
      /*dataIsMutable=*/false);
  return DenseResourceElementsAttr::get(type, name, std::move(blob));
}

static ElementsAttr copiedAttribute(RankedTensorType type, StringRef bytes) {
  if (!type.getElementType().isInteger(1))
    return DenseElementsAttr::getFromRawBuffer(
        type, ArrayRef<char>(bytes.data(), bytes.size()));
  SmallVector<bool> flags;
  for (char byte : bytes)
    flags.push_back(byte != 0);
  return DenseElementsAttr::get(type, flags);
}

static void track(Tensor &tensor, StringRef bytes, int64_t count) {
  bool isReal = isFloat(tensor.type);
  if (count <= kMostKnown) {
    tensor.isTracked = true;
    for (int64_t i = 0; i < count; ++i)
      tensor.known.push_back(
          isReal ? Scalar::of(loadFloat(bytes, tensor.type, i))
                 : Scalar::of(Extent(loadInteger(bytes, tensor.type, i))));
  }
  if (isReal || tensor.type == ElementType::Bool || count > kLongestFit)
    return;
  SmallVector<int64_t> elements;
  for (int64_t i = 0; i < count; ++i)
    elements.push_back(loadInteger(bytes, tensor.type, i));
  tensor.form = fitForm(elements, tensor.shape);
  if (count > 1 && llvm::all_equal(elements)) {
    tensor.isTracked = true;
    tensor.known = {Scalar::of(Extent(elements.front()))};
  }
}

Expected<Tensor> ConstantReader::read(const TensorProto &proto,
                                      StringRef payload, StringRef name) {
  if (!isSupported(proto.data_type()))
    return fail(ExitCode::Unsupported,
                "elements of type " + typeName(proto.data_type()) +
                    "; expected one of " + supportedTypeNames());
  if (proto.dims_size() > kHighestRank)
    return fail(ExitCode::Limit, "rank " + Twine(proto.dims_size()) +
                                     "; expected at most " +
                                     Twine(kHighestRank));
  Tensor tensor;
  tensor.type = ElementType(proto.data_type());
  int64_t count = 1;
  SmallVector<int64_t> sizes;
  for (int64_t size : proto.dims()) {
    if (size < 0 || size > kLargestExtent ||
        llvm::MulOverflow(count, size, count))
      return fail(size < 0 ? ExitCode::Model : ExitCode::Limit,
                  "a dimension of " + Twine(size) +
                      "; expected dimensions from 0 whose product fits 64 "
                      "bits");
    sizes.push_back(size);
    tensor.shape.push_back(Extent(size));
  }
  Expected<Bytes> bytes = locate(proto, payload, tensor.type, *file);
  if (!bytes)
    return bytes.takeError();
  StringRef data = bytes->isMapped ? bytes->data : StringRef(bytes->owned);
  int64_t wanted;
  if (llvm::MulOverflow(count, int64_t(byteWidth(tensor.type)), wanted) ||
      data.size() != uint64_t(wanted))
    return fail(ExitCode::Model,
                Twine(data.size()) + " bytes of data; expected " +
                    Twine(uint64_t(count) * byteWidth(tensor.type)) + " for " +
                    Twine(count) + " elements of type " +
                    typeName(tensor.type));
  track(tensor, data, count);
  Builder builder(&context);
  auto type = RankedTensorType::get(sizes, storageType(builder, tensor.type));
  bool staysMapped = bytes->isMapped && data.size() >= kLargePayload &&
                     tensor.type != ElementType::Bool;
  tensor.constant = staysMapped ? mappedAttribute(type, name, data, file)
                                : copiedAttribute(type, data);
  return tensor;
}

//===- Operators ===//

static LogicalResult lowerConstant(Node &node) {
  unsigned given = 0;
  for (StringRef name :
       {"value", "value_float", "value_floats", "value_int", "value_ints"})
    given += node.has(name);
  if (given != 1)
    return node.error() << given << " of value, value_float, value_floats, "
                        << "value_int and value_ints; expected one of them";
  GraphBuilder &graph = node.graph;
  if (const TensorProto *proto = node.tensor("value")) {
    Expected<Tensor> tensor = graph.constants->read(*proto, "", node.name());
    if (!tensor)
      return node.fail(tensor.takeError());
    return node.give(std::move(*tensor));
  }
  std::vector<Scalar> known;
  bool isReal = node.has("value_float") || node.has("value_floats");
  bool isList = node.has("value_floats") || node.has("value_ints");
  if (node.has("value_float"))
    known.push_back(Scalar::of(node.real("value_float", 0)));
  if (node.has("value_int"))
    known.push_back(Scalar::of(Extent(node.integer("value_int", 0))));
  for (double value : node.reals("value_floats"))
    known.push_back(Scalar::of(value));
  for (int64_t value : node.integers("value_ints"))
    known.push_back(Scalar::of(Extent(value)));
  if (int64_t(known.size()) > kMostKnown)
    return node.beyondLimit()
           << known.size() << " values in a list; expected at most "
           << kMostKnown << " (use a tensor)";
  Shape shape;
  if (isList)
    shape.push_back(Extent(int64_t(known.size())));
  return node.give(graph.knownTensor(
      isReal ? ElementType::F32 : ElementType::I64, shape, std::move(known)));
}

static LogicalResult lowerConstantOfShape(Node &node) {
  FailureOr<Shape> shape = node.extentsOf(0, "the sizes");
  if (failed(shape))
    return failure();
  for (const Extent &extent : *shape)
    if (!node.extents.isNonNegative(extent))
      return node.badSizes(extent) << "size " << node.extents.toString(extent)
                                   << "; expected one that is at least 0";
  ElementType type = ElementType::F32;
  Scalar value = Scalar::of(0.0);
  if (const TensorProto *proto = node.tensor("value")) {
    Expected<Tensor> tensor =
        node.graph.constants->read(*proto, "", node.name());
    if (!tensor)
      return node.fail(tensor.takeError());
    if (!tensor->splat())
      return node.error() << "value has "
                          << node.extents.toString(
                                 node.extents.product(tensor->shape))
                          << " elements; expected one";
    type = tensor->type;
    value = *tensor->splat();
  }
  return node.give(node.graph.knownTensor(type, *shape, {value}));
}

ArrayRef<Operator> refold::onnx::constantOperators() {
  static const Operator rows[] = {
      {"Constant", 13, kLastOpset,
       "value:t value_float:f value_floats:fs value_int:i value_ints:is", 0, 0,
       lowerConstant},
      {"ConstantOfShape", 13, kLastOpset, "value:t", 1, 1,
       lowerConstantOfShape},
  };
  return rows;
}
