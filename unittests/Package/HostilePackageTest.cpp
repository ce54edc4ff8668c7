// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Package/Cpu.h"
#include "gtest/gtest.h"

using namespace refold;
using namespace refold::package;

/// Packages whose checksums are right and whose plans are not: loading or
/// planning ends in a message.
namespace {
class HostilePackageTest : public testing::Test {
protected:
  enum Buffer : unsigned { X, Y, Weights };
  static ViewSpec view(Buffer buffer, std::vector<SizeExpr> sizes,
                       std::vector<SizeExpr> strides) {
    ViewSpec spec;
    spec.buffer = buffer;
    spec.sizes = std::move(sizes);
    spec.strides = std::move(strides);
    return spec;
  }
  static ViewSpec all(Buffer buffer) { return view(buffer, {16}, {1}); }

  HostilePackageTest() {
    package.name = "copies";
    package.architecture = "baseline";
    package.features = "sse4.2";
    package.program.inputs.push_back({"x", DType::F32, {{"", 16, 0}}});
    package.program.outputs.push_back({"y", DType::F32, {SizeExpr(16)}});
    package.program.buffers = {{BufferKind::Input, 0, nullptr, 64},
                               {BufferKind::Output, 0, nullptr, 64},
                               {BufferKind::Constant, 0, zeros, 64}};
  }
  void copy(ViewSpec from, ViewSpec to) {
    package.program.steps.push_back(
        {CopyStep{std::move(from), std::move(to)}, "a copy"});
  }
  /// What happens to the file: "" where it runs.
  std::string outcome() {
    auto bytes = std::make_shared<std::string>(formatPackage(package));
    auto read = parsePackage(*bytes, "file", bytes);
    if (!read)
      return read.error().message;
    auto program = CpuProgram::open(*read, 1);
    if (!program)
      return program.error().message;
    auto plan = (*program)->planFor({{16}});
    if (!plan)
      return plan.error().message;
    const void *from[] = {x};
    void *to[] = {y};
    return (*program)->run(**plan, from, to).message;
  }

  Package package;
  float zeros[16] = {}, x[16] = {1, 2, 3}, y[16] = {};
};
} // namespace

static const char *const kDoesNotFit =
    "file: found a plan whose parts do not fit";

TEST_F(HostilePackageTest, AGoodOneRuns) {
  copy(all(X), all(Y));
  EXPECT_EQ(outcome(), "");
  EXPECT_EQ(y[2], 3.0f);
}

TEST_F(HostilePackageTest, ConstantsAndInputsAreNotWritten) {
  for (Buffer target : {Weights, X}) {
    package.program.steps.clear();
    copy(all(Y), all(target));
    EXPECT_EQ(outcome(), kDoesNotFit);
    package.program.steps = {{KernelStep{0, {all(target)}, 0}, "a kernel"}};
    package.hostKernels = {{"a kernel", "", 1, {}, false}};
    EXPECT_EQ(outcome(), kDoesNotFit);
  }
  EXPECT_EQ(x[2], 3.0f);
}

TEST_F(HostilePackageTest, AKernelReadsNoMoreOperandsThanItHas) {
  package.hostKernels = {{"a kernel", "", 1, {}, false}};
  package.program.steps = {{KernelStep{0, {all(X)}, 2}, "a kernel"}};
  EXPECT_EQ(outcome(), kDoesNotFit);
  package.program.steps = {{KernelStep{0, {all(X)}, 1}, "a kernel"}};
  EXPECT_NE(outcome(), kDoesNotFit); // it lacks its object
}

/// Messages repeat names, and terminals obey what they are shown.
TEST_F(HostilePackageTest, NamesHaveNoControlCharacters) {
  copy(all(X), all(Y));
  for (const char *name : {"c\n\x1b[31mred", "\x7f", "c\xc2\x9b"}) {
    std::string *const places[] = {
        &package.name, &package.features, &package.program.inputs[0].name,
        &package.program.outputs[0].name, &package.program.steps[0].name};
    for (std::string *place : places) {
      std::string before = *place;
      *place = name;
      EXPECT_EQ(outcome(), "file: found a name with control characters, "
                           "expected plain text");
      *place = before;
    }
  }
  package.name = "\xc2\xb5 \xe2\x88\x91"; // mu and a sum
  EXPECT_EQ(outcome(), "");
}

TEST_F(HostilePackageTest, NoElementIsWrittenOrCheckedForYears) {
  constexpr int64_t kMany = int64_t(1) << 59;
  copy(view(X, {kMany}, {0}), view(Y, {kMany}, {0}));
  EXPECT_EQ(outcome(), "'a copy' writes an element more than once");
  package.program.steps.clear();
  copy(view(X, {8, 8}, {0, 1}), view(Y, {8, 8}, {1, 1}));
  EXPECT_EQ(outcome(), "'a copy' writes an element more than once");
  ViewSpec flags = view(X, {kMany}, {0});
  flags.dtype = DType::Bool;
  package.program.steps = {{AssertStep{"a message", flags}, "a check"}};
  EXPECT_EQ(outcome(), "'a check' checks an element more than once");
}
