// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// ONNX's own node tests: import, evaluate by definition, compare. They run
// where REFOLD_ONNX_NODE_DATA names a folder of them; without one the test is
// skipped.
#include "onnx.pb.h"
#include "refold/Frontend/MLIR.h"
#include "refold/Frontend/ONNX.h"
#include "refold/Reference/Evaluate.h"
#include "refold/Support/Diagnostics.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "gtest/gtest.h"
#include <cmath>
#include <cstdlib>
#include <set>

using namespace refold;
namespace fs = llvm::sys::fs;

namespace {

std::string readAll(const std::string &path) {
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                            /*RequiresNullTerminator=*/false);
  return buffer ? (*buffer)->getBuffer().str() : std::string();
}

std::optional<DType> dtypeOf(int32_t number) {
  switch (number) {
  case 1:
    return DType::F32;
  case 2:
    return DType::U8;
  case 3:
    return DType::I8;
  case 6:
    return DType::I32;
  case 7:
    return DType::I64;
  case 9:
    return DType::Bool;
  case 10:
    return DType::F16;
  case 11:
    return DType::F64;
  case 16:
    return DType::BF16;
  default:
    return std::nullopt;
  }
}

/// A TensorProto of the test data as an array. They hold raw_data, or for the
/// smallest the typed field.
std::optional<Tensor> tensorOf(const ::onnx::TensorProto &proto) {
  std::optional<DType> dtype = dtypeOf(proto.data_type());
  if (!dtype)
    return std::nullopt;
  std::vector<int64_t> shape(proto.dims().begin(), proto.dims().end());
  auto tensor = Tensor::create(*dtype, shape);
  if (!tensor) {
    llvm::consumeError(tensor.takeError());
    return std::nullopt;
  }
  if (proto.has_raw_data() &&
      int64_t(proto.raw_data().size()) == tensor->numBytes()) {
    memcpy(tensor->data(), proto.raw_data().data(), proto.raw_data().size());
    return *tensor;
  }
  for (int64_t i = 0; i < tensor->numElements(); ++i) {
    double value = 0;
    if (i < proto.float_data_size())
      value = proto.float_data(i);
    else if (i < proto.double_data_size())
      value = proto.double_data(i);
    else if (i < proto.int64_data_size())
      value = double(proto.int64_data(i));
    else if (i < proto.int32_data_size())
      value = proto.int32_data(i);
    storeFromDouble(*dtype, value, tensor->at(i));
  }
  return *tensor;
}

struct Case {
  ::onnx::ModelProto model;
  std::vector<::onnx::TensorProto> inputs, outputs;
};

std::optional<Case> readCase(const std::string &folder) {
  Case result;
  if (!result.model.ParseFromString(readAll(folder + "/model.onnx")))
    return std::nullopt;
  auto read = [&](const char *kind, std::vector<::onnx::TensorProto> &into) {
    for (int i = 0;; ++i) {
      std::string path =
          folder + "/test_data_set_0/" + kind + "_" + std::to_string(i) + ".pb";
      if (!fs::exists(path))
        return true;
      into.emplace_back();
      if (!into.back().ParseFromString(readAll(path)))
        return false;
    }
  };
  if (!read("input", result.inputs) || !read("output", result.outputs))
    return std::nullopt;
  return result;
}

/// Inputs that say sizes, axes or counts: in a model of today's they are
/// constants, in a node test they are inputs.
bool saysShape(llvm::StringRef op, int place) {
  static const std::set<std::pair<std::string, int>> places = {
      {"ConstantOfShape", 0}, {"CumSum", 1}, {"Dropout", 1}, {"Dropout", 2},
      {"Expand", 1},          {"Pad", 1},    {"Pad", 2},     {"Pad", 3},
      {"Range", 0},           {"Range", 1},  {"Range", 2},   {"Reshape", 1},
      {"Resize", 1},          {"Resize", 2}, {"Resize", 3},  {"Slice", 1},
      {"Slice", 2},           {"Slice", 3},  {"Slice", 4},   {"Split", 1},
      {"Squeeze", 1},         {"Tile", 1},   {"TopK", 1},    {"Trilu", 1},
      {"Unsqueeze", 1},
  };
  return places.count({op.str(), place}) ||
         (op.starts_with("Reduce") && place == 1);
}

/// Turns such inputs into initialisers and drops them from the data.
void fixShapes(Case &test) {
  ::onnx::GraphProto &graph = *test.model.mutable_graph();
  std::set<std::string> fixed;
  for (const ::onnx::NodeProto &node : graph.node())
    for (int i = 0; i < node.input_size(); ++i)
      if (saysShape(node.op_type(), i))
        fixed.insert(node.input(i));
  std::vector<::onnx::TensorProto> kept;
  ::onnx::GraphProto trimmed = graph;
  trimmed.clear_input();
  for (int i = 0; i < graph.input_size(); ++i) {
    if (!fixed.count(graph.input(i).name())) {
      *trimmed.add_input() = graph.input(i);
      kept.push_back(test.inputs[i]);
      continue;
    }
    ::onnx::TensorProto *initializer = trimmed.add_initializer();
    *initializer = test.inputs[i];
    initializer->set_name(graph.input(i).name());
  }
  graph = trimmed;
  test.inputs = kept;
}

/// "" where the case passes, "-" where it is not ours, else what went wrong.
class Judge {
public:
  explicit Judge(const llvm::StringSet<> &known) : known(known) {}
  std::string run(const std::string &folder);

private:
  bool isOurs(const Case &test) const;
  std::string compare(const ::onnx::TensorProto &expected,
                      const RefTensor &found);
  const llvm::StringSet<> &known;
};

bool Judge::isOurs(const Case &test) const {
  const ::onnx::GraphProto &graph = test.model.graph();
  for (const ::onnx::NodeProto &node : graph.node())
    if (!known.contains(node.op_type()) || !node.domain().empty())
      return false;
  for (const ::onnx::OperatorSetIdProto &opset : test.model.opset_import())
    if (opset.version() < 13 || opset.version() > 20)
      return false;
  if (test.inputs.size() != size_t(graph.input_size()))
    return false;
  for (const ::onnx::TensorProto &tensor : test.inputs)
    if (!dtypeOf(tensor.data_type()))
      return false;
  for (const ::onnx::TensorProto &tensor : test.outputs)
    if (!dtypeOf(tensor.data_type()))
      return false;
  return true;
}

std::string Judge::compare(const ::onnx::TensorProto &expected,
                           const RefTensor &found) {
  std::optional<Tensor> want = tensorOf(expected);
  if (!want)
    return "-";
  if (want->shape() != found.shape())
    return "another shape";
  bool isShort = want->dtype() == DType::F16 || want->dtype() == DType::BF16;
  double relative = isShort ? 1e-2 : 1e-4;
  for (int64_t i = 0; i < want->numElements(); ++i) {
    double a = want->get(i), b = found.get(i);
    if (want->dtype() == DType::U8)
      b = double(uint8_t(int64_t(b)));
    bool agrees = a == b || (std::isnan(a) && std::isnan(b)) ||
                  std::abs(a - b) <= 1e-6 + relative * std::abs(a);
    if (!agrees)
      return "element " + std::to_string(i) + " is " + std::to_string(b) +
             "; expected " + std::to_string(a);
  }
  return "";
}

std::string Judge::run(const std::string &folder) {
  std::optional<Case> test = readCase(folder);
  if (!test || !isOurs(*test))
    return "-";
  fixShapes(*test);
  llvm::SmallString<128> path;
  int descriptor;
  if (fs::createTemporaryFile("refold-node", "onnx", descriptor, path))
    return "no temporary file";
  {
    llvm::raw_fd_ostream out(descriptor, /*shouldClose=*/true);
    out << test->model.SerializeAsString();
  }
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  DiagnosticCollector collector(context);
  auto model = importOnnx(path, context);
  fs::remove(path);
  if (mlir::failed(model))
    return llvm::toString(collector.takeErrors("refused without reason"));
  if (llvm::Error error = checkProgramForm(*model->module, folder))
    return llvm::toString(std::move(error));
  std::vector<Tensor> inputs;
  for (const ::onnx::TensorProto &input : test->inputs)
    inputs.push_back(*tensorOf(input));
  auto function = *model->module->getOps<mlir::func::FuncOp>().begin();
  auto outputs = evaluateProgram(function, inputs);
  if (!outputs)
    return llvm::toString(outputs.takeError());
  for (size_t i = 0; i < outputs->size(); ++i) {
    std::string wrong = compare(test->outputs[i], (*outputs)[i].value);
    if (!wrong.empty())
      return "output " + std::to_string(i) + ": " + wrong;
  }
  return "";
}

// Cases that ask for what is refused on purpose, by a part of their name.
const char *const kRefused[] = {
    "select_last_index", // needs the order of equal keys turned round
    "training",          // inference only
    "_edge_pad",         // only constant padding
    "_reflect_pad",
    "_wrap_pad",
    "test_identity_opt", // no tensor
    "test_identity_sequence",
    "window_expanded", // sizes computed from the data of an input
    "window_symmetric_expanded",
    "test_center_crop_pad",
    "gridsample_bicubic", // linear and nearest
    "gridsample_volumetric",
    "antialias", // filters of one, two or four taps
    "tf_crop_and_resize",
    // The result's extent is the whole number that it is.
    "test_resize_downsample_scales_cubic_align_corners",
    "test_resize_downsample_scales_linear_align_corners",
};

bool isRefused(const std::string &name) {
  for (const char *part : kRefused)
    if (name.find(part) != std::string::npos)
      return true;
  return false;
}

TEST(OnnxNodesTest, SupportedOperatorsPassTheirNodeTests) {
  const char *roots = std::getenv("REFOLD_ONNX_NODE_DATA");
  std::string folders = roots ? roots : REFOLD_ONNX_NODE_DATA;
  llvm::StringSet<> known, covered;
  for (const OnnxOperator &entry : onnxOperators())
    known.insert(entry.name);
  Judge judge(known);
  unsigned passed = 0;
  llvm::SmallVector<llvm::StringRef> parts;
  llvm::StringRef(folders).split(parts, ':', -1, /*KeepEmpty=*/false);
  for (llvm::StringRef root : parts) {
    std::error_code code;
    std::set<std::string> cases;
    for (fs::directory_iterator entry(root, code), end; entry != end && !code;
         entry.increment(code))
      cases.insert(entry->path());
    for (const std::string &folder : cases) {
      if (isRefused(folder))
        continue;
      std::string verdict = judge.run(folder);
      EXPECT_TRUE(verdict.empty() || verdict == "-")
          << llvm::sys::path::filename(folder).str() << ": " << verdict;
      passed += verdict.empty();
    }
  }
  if (parts.empty())
    GTEST_SKIP() << "no node tests; REFOLD_ONNX_NODE_DATA names their folders";
  std::printf("%u node tests passed\n", passed);
  EXPECT_GE(passed, 200u) << "the data is not where it was expected";
}

} // namespace
