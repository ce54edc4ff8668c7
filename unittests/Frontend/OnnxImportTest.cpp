// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a model becomes: shapes folded, views instead of copies, weights in
// place.
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "onnx.pb.h"
#include "refold/Frontend/ONNX.h"
#include "refold/Support/Diagnostics.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace refold;
using ::onnx::AttributeProto;
using ::onnx::TensorProto;

namespace {

constexpr int kFloat = 1, kInt64 = 7, kBool = 9, kHalf = 10;

/// Writes small models. A dimension is a number, or a name.
struct Model {
  ::onnx::ModelProto proto;
  explicit Model(int opset = 17) {
    proto.set_ir_version(8);
    auto *entry = proto.add_opset_import();
    entry->set_domain("");
    entry->set_version(opset);
    proto.mutable_graph()->set_name("test");
  }
  static void describe(::onnx::ValueInfoProto &info, const std::string &name,
                       int type, const std::vector<std::string> &dims) {
    info.set_name(name);
    auto *tensor = info.mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(type);
    tensor->mutable_shape();
    for (const std::string &dim : dims) {
      auto *entry = tensor->mutable_shape()->add_dim();
      if (isdigit(dim[0]))
        entry->set_dim_value(std::stoll(dim));
      else
        entry->set_dim_param(dim);
    }
  }
  Model &input(const std::string &name, int type,
               const std::vector<std::string> &dims) {
    describe(*proto.mutable_graph()->add_input(), name, type, dims);
    return *this;
  }
  Model &output(const std::string &name, int type,
                const std::vector<std::string> &dims) {
    describe(*proto.mutable_graph()->add_output(), name, type, dims);
    return *this;
  }
  Model &numbers(const std::string &name, const std::vector<int64_t> &values,
                 bool isScalar = false) {
    TensorProto *tensor = proto.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(kInt64);
    if (!isScalar)
      tensor->add_dims(values.size());
    for (int64_t value : values)
      tensor->add_int64_data(value);
    return *this;
  }
  /// The attribute is "name=3" or "name=1,0,2".
  Model &node(const std::string &op, const std::vector<std::string> &inputs,
              const std::vector<std::string> &outputs,
              const std::string &attribute = "") {
    auto *entry = proto.mutable_graph()->add_node();
    entry->set_op_type(op);
    for (const std::string &name : inputs)
      entry->add_input(name);
    for (const std::string &name : outputs)
      entry->add_output(name);
    if (attribute.empty())
      return *this;
    auto [name, values] = StringRef(attribute).split('=');
    AttributeProto *given = entry->add_attribute();
    given->set_name(name.str());
    SmallVector<StringRef> parts;
    values.split(parts, ',');
    given->set_type(parts.size() > 1 ? AttributeProto::INTS
                                     : AttributeProto::INT);
    for (StringRef part : parts) {
      int64_t number = std::stoll(part.str());
      parts.size() > 1 ? given->add_ints(number) : given->set_i(number);
    }
    return *this;
  }
};

struct OnnxImportTest : testing::Test {
  MLIRContext context{MLIRContext::Threading::DISABLED};
  std::string bytes, messages;
  OnnxOptions options;
  std::optional<OnnxModel> imported;

  bool import(const Model &model) {
    bytes = model.proto.SerializeAsString();
    DiagnosticCollector collector(context);
    auto result = importOnnx(
        llvm::MemoryBuffer::getMemBuffer(bytes, "t.onnx",
                                         /*RequiresNullTerminator=*/false),
        "t.onnx", context, options);
    if (failed(result)) {
      messages = llvm::toString(collector.takeErrors("no reason"));
      return false;
    }
    imported = std::move(*result);
    return true;
  }
  func::FuncOp function() {
    return *imported->module->getOps<func::FuncOp>().begin();
  }
  template <typename Op> std::vector<Op> all() {
    std::vector<Op> found;
    imported->module->walk([&](Op op) { found.push_back(op); });
    return found;
  }
  template <typename Op> size_t count() { return all<Op>().size(); }
};

/// (batch, length, 384) split into heads, turned, and turned back.
Model heads() {
  Model model;
  model.input("x", kFloat, {"batch", "length", "384"})
      .numbers("split", {0, 0, 12, 32})
      .numbers("flat", {-1, 32})
      .node("Reshape", {"x", "split"}, {"a"})
      .node("Transpose", {"a"}, {"b"}, "perm=0,2,1,3");
  return model;
}

TEST_F(OnnxImportTest, HeadsAreAViewThatTheProductReads) {
  Model model = heads();
  model.node("Transpose", {"b"}, {"k"}, "perm=0,1,3,2")
      .node("MatMul", {"b", "k"}, {"y"})
      .output("y", kFloat, {"batch", "12", "length", "length"});
  ASSERT_TRUE(import(model)) << messages;
  // One expansion of the last dimension; no transpose, no copy.
  for (tensor::ExpandShapeOp expand : all<tensor::ExpandShapeOp>())
    EXPECT_EQ(expand.getReassociationIndices().back().size(), 2u);
  EXPECT_EQ(count<linalg::GenericOp>(), 1u);
  EXPECT_EQ(count<tensor::CollapseShapeOp>(), 0u);
  EXPECT_EQ(count<cf::AssertOp>(), 0u);
}

TEST_F(OnnxImportTest, JoiningWhatWasTurnedIsOneCopy) {
  Model model = heads();
  model.node("Reshape", {"b", "flat"}, {"y"})
      .output("y", kFloat, {"rows", "32"});
  ASSERT_TRUE(import(model)) << messages;
  EXPECT_EQ(count<linalg::GenericOp>(), 1u);
  EXPECT_EQ(count<tensor::CollapseShapeOp>(), 1u);
  EXPECT_EQ(count<cf::AssertOp>(), 0u);
}

TEST_F(OnnxImportTest, ShapeArithmeticLeavesNothingBehind) {
  // Expand(x, Where(shape == -1, ones, shape)): what exporters write.
  Model model;
  model.input("x", kFloat, {"batch", "1"})
      .input("ids", kInt64, {"batch", "length"})
      .numbers("minus", {-1, -1})
      .numbers("ones", {1, 1})
      .node("Shape", {"ids"}, {"s"})
      .node("Equal", {"s", "minus"}, {"c"})
      .node("Where", {"c", "ones", "s"}, {"t"})
      .node("Expand", {"x", "t"}, {"e"})
      .node("Relu", {"e"}, {"y"})
      .output("y", kFloat, {"batch", "length"});
  ASSERT_TRUE(import(model)) << messages;
  EXPECT_EQ(count<linalg::GenericOp>(), 1u);
  EXPECT_EQ(count<cf::AssertOp>(), 0u);
  auto dims = function().getResultAttrOfType<ArrayAttr>(0, "refold.dims");
  EXPECT_EQ(cast<StringAttr>(dims[0]), "batch");
  EXPECT_EQ(cast<StringAttr>(dims[1]), "length");
}

TEST_F(OnnxImportTest, AMaskGatheredByPositionIsTheMask) {
  // mask flattened and read at b*length + l.
  Model model;
  model.input("mask", kBool, {"batch", "length"})
      .numbers("zero", {0}, true)
      .numbers("one", {1}, true)
      .numbers("axis0", {0})
      .numbers("axis1", {1})
      .numbers("minus", {-1})
      .node("Shape", {"mask"}, {"s"})
      .node("Gather", {"s", "zero"}, {"b"}, "axis=0")
      .node("Gather", {"s", "one"}, {"l"}, "axis=0")
      .node("Range", {"zero", "b", "one"}, {"bs"})
      .node("Range", {"zero", "l", "one"}, {"ls"})
      .node("Unsqueeze", {"bs", "axis1"}, {"bc"})
      .node("Unsqueeze", {"ls", "axis0"}, {"lr"})
      .node("Mul", {"bc", "l"}, {"row"})
      .node("Add", {"row", "lr"}, {"at"})
      .node("Reshape", {"mask", "minus"}, {"flat"})
      .node("Gather", {"flat", "at"}, {"read"}, "axis=0")
      .node("Not", {"read"}, {"y"})
      .output("y", kBool, {"batch", "length"});
  ASSERT_TRUE(import(model)) << messages;
  EXPECT_EQ(count<linalg::GenericOp>(), 1u); // the Not
  EXPECT_EQ(count<tensor::ExtractOp>(), 0u);
  EXPECT_EQ(count<cf::AssertOp>(), 0u);
}

TEST_F(OnnxImportTest, PositionsThatAreDataAreChecked) {
  Model model;
  model.input("table", kFloat, {"30", "4"})
      .input("ids", kInt64, {"length"})
      .node("Gather", {"table", "ids"}, {"y"}, "axis=0")
      .output("y", kFloat, {"length", "4"});
  ASSERT_TRUE(import(model)) << messages;
  ASSERT_EQ(count<cf::AssertOp>(), 1u);
  EXPECT_EQ(all<cf::AssertOp>()[0].getMsg(),
            "node 'y': a position is outside a dimension of 30; expected it "
            "inside");
}

TEST_F(OnnxImportTest, SizesThatMayDifferAreChecked) {
  Model model;
  model.input("a", kFloat, {"m"})
      .input("b", kFloat, {"n"})
      .node("Add", {"a", "b"}, {"y"})
      .output("y", kFloat, {"k"});
  ASSERT_TRUE(import(model)) << messages;
  ASSERT_EQ(count<cf::AssertOp>(), 1u);
  EXPECT_EQ(all<cf::AssertOp>()[0].getMsg(),
            "node 'y': m and n differ; expected equal extents");
}

TEST_F(OnnxImportTest, AVectorFixesANamedSizeWithACheck) {
  // The last extent has a name, and the scale says that it is 3.
  Model model(23);
  model.input("x", kFloat, {"batch", "size"})
      .input("scale", kFloat, {"3"})
      .node("RMSNormalization", {"x", "scale"}, {"y"})
      .output("y", kFloat, {"batch", "size"});
  ASSERT_TRUE(import(model)) << messages;
  EXPECT_EQ(count<cf::AssertOp>(), 1u);
}

TEST_F(OnnxImportTest, DimFixesANameAndRefusesAnUnknownOne) {
  options.dims["length"] = 16;
  Model model = heads();
  model.output("b", kFloat, {"batch", "12", "length", "32"});
  ASSERT_TRUE(import(model)) << messages;
  auto type = cast<RankedTensorType>(function().getResultTypes()[0]);
  EXPECT_EQ(type.getDimSize(2), 16);
  EXPECT_TRUE(type.isDynamicDim(0));
  options.dims.clear();
  options.dims["lenght"] = 16;
  ASSERT_FALSE(import(model));
  EXPECT_NE(messages.find("no input has a dimension 'lenght'"),
            std::string::npos);
  EXPECT_NE(messages.find("did you mean 'length'?"), std::string::npos);
}

TEST_F(OnnxImportTest, LargeWeightsStayWhereTheyAre) {
  Model model;
  TensorProto *weight = model.proto.mutable_graph()->add_initializer();
  weight->set_name("w");
  weight->set_data_type(kFloat);
  weight->add_dims(2048);
  weight->set_raw_data(std::string(8192, '\0'));
  model.input("x", kFloat, {"2048"})
      .node("Add", {"x", "w"}, {"y"})
      .output("y", kFloat, {"2048"});
  ASSERT_TRUE(import(model)) << messages;
  const char *blob = nullptr;
  for (arith::ConstantOp constant : all<arith::ConstantOp>())
    if (auto held = dyn_cast<DenseResourceElementsAttr>(constant.getValue()))
      blob = held.getRawHandle().getBlob()->getData().data();
  ASSERT_NE(blob, nullptr);
  EXPECT_GE(blob, bytes.data());
  EXPECT_LT(blob, bytes.data() + bytes.size());
}

TEST_F(OnnxImportTest, ShortFloatsAreStorageOnly) {
  Model model;
  model.input("x", kHalf, {"m", "n"})
      .node("Exp", {"x"}, {"e"})
      .node("Add", {"e", "x"}, {"y"})
      .output("y", kHalf, {"m", "n"});
  ASSERT_TRUE(import(model)) << messages;
  std::vector<linalg::GenericOp> generics = all<linalg::GenericOp>();
  ASSERT_EQ(generics.size(), 3u); // exp, add, and the rounding of the output
  auto elementOf = [](linalg::GenericOp op) {
    return getElementTypeOrSelf(op.getResult(0));
  };
  EXPECT_TRUE(elementOf(generics[0]).isF32());
  EXPECT_TRUE(elementOf(generics[1]).isF32());
  EXPECT_TRUE(elementOf(generics[2]).isF16());
  EXPECT_EQ(count<arith::TruncFOp>(), 1u);
}

TEST_F(OnnxImportTest, LocationsNameNodes) {
  Model model;
  model.input("x", kFloat, {"n"})
      .node("Exp", {"x"}, {"e"})
      .node("Log", {"e"}, {"y"})
      .output("y", kFloat, {"n"});
  ASSERT_TRUE(import(model)) << messages;
  auto name = cast<NameLoc>(all<linalg::GenericOp>()[1].getLoc());
  EXPECT_EQ(name.getName(), "y");
  auto place = cast<FileLineColLoc>(name.getChildLoc());
  EXPECT_EQ(place.getFilename(), "t.onnx");
  EXPECT_EQ(place.getLine(), 2u);
}

} // namespace
