// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Package/Cpu.h"
#include "gtest/gtest.h"
#include <algorithm>
#include <cstring>
#include <random>

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
  std::string outcome() { return outcome(formatPackage(package)); }
  std::string outcome(std::string file) {
    auto bytes = std::make_shared<std::string>(std::move(file));
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

  /// Words of the plan of `bytes`, which may be changed.
  static std::span<int64_t> plan(std::string &bytes) {
    int64_t planBytes = 0;
    std::memcpy(&planBytes, bytes.data() + kPlanBytesAt, sizeof(planBytes));
    return {reinterpret_cast<int64_t *>(bytes.data() + kHeadBytes),
            size_t(planBytes) / sizeof(int64_t)};
  }
  /// With the checksum of what the plan is now.
  static std::string sealed(std::string bytes) {
    int64_t planBytes = 0;
    std::memcpy(&planBytes, bytes.data() + kPlanBytesAt, sizeof(planBytes));
    uint64_t sum =
        checksum(std::string_view(bytes).substr(kHeadBytes, size_t(planBytes)));
    std::memcpy(bytes.data() + kPlanSumAt, &sum, sizeof(sum));
    return bytes;
  }
  static constexpr size_t kHeadBytes = 64, kPlanBytesAt = 24, kPlanSumAt = 32;

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

static const char *const kDoesNotParse =
    "file: found a plan that does not parse";

/// Terms of sizes that read others which do not stand before them.
TEST_F(HostilePackageTest, TermsReadOnlyThoseBeforeThem) {
  constexpr int64_t kSeed = 0x5eed;
  package.name = "sixteen letters!"; // words of the plan lie at multiples of 8
  package.features.clear();
  package.architecture.clear();
  package.program.inputs[0].name = package.program.outputs[0].name = "";
  copy(all(X), all(Y));
  package.program.steps[0].name = "8letters";
  SizeExpr seed = kSeed + SizeExpr::symbol(0);
  package.program.buffers.push_back(
      {BufferKind::Temporary, 0, nullptr, seed * seed});
  std::string good = formatPackage(package);
  // A constant, its symbol, their sum, its square.
  auto at = std::ranges::find(plan(good), kSeed) - plan(good).begin();
  ASSERT_LT(size_t(at), plan(good).size());
  auto changed = [&](std::initializer_list<std::pair<int, int64_t>> words) {
    std::string bytes = good;
    for (auto [word, value] : words)
      plan(bytes)[size_t(at + word)] = value;
    return outcome(sealed(bytes));
  };
  constexpr int kSymbol = 2, kSumOp = 3, kSumLeft = 4, kSquareRight = 8;
  int64_t sum = plan(good)[size_t(at + kSquareRight)];
  EXPECT_EQ(plan(good)[size_t(at + kSumOp)], int64_t(SizeExpr::Op::Add));
  EXPECT_NE(changed({}), kDoesNotParse);
  EXPECT_EQ(changed({{kSquareRight, sum + 1}}), kDoesNotParse); // itself
  EXPECT_EQ(changed({{kSumLeft, sum + 1}}), kDoesNotParse);     // a cycle
  EXPECT_EQ(changed({{kSumLeft, 1000}}), kDoesNotParse);
  EXPECT_EQ(changed({{kSumLeft, -1}}), kDoesNotParse);
  EXPECT_EQ(changed({{kSumOp, 15}}), kDoesNotParse);
  EXPECT_EQ(changed({{kSymbol, int64_t(1) << 32}}), kDoesNotParse);
}

TEST_F(HostilePackageTest, LaunchesNameTermsThatThereAre) {
  package.target = PackageTarget::Cuda;
  package.deviceKernels.emplace_back().sizes =
      *SizeTerms::of({{SizeExpr::Op::Const, 1}});
  DeviceKernel &kernel = package.deviceKernels[0];
  kernel.product.emplace();
  Launch &launch = kernel.launches.emplace_back();
  launch.parameters = {0};
  LaunchWay &way = launch.ways.emplace_back();
  LaunchMap &map = way.maps.emplace_back();
  map.extents = map.strides = {0, 0};
  way.freeBlocks.emplace();
  DeviceWork::Part &part = kernel.work.emplace().parts.emplace_back();
  SizeNumber *const places[] = {&way.shape.groups,
                                &way.shape.parts,
                                &kernel.call.batch,
                                &kernel.call.depth,
                                &kernel.work->bytesRead,
                                &part.places,
                                &way.legal,
                                &way.freeBlocks->unit,
                                &way.freeBlocks->pieces,
                                &launch.parameters[0],
                                &way.condition,
                                &way.grid[2],
                                &way.block[0],
                                &way.sharedBytes,
                                &kernel.product->condition,
                                &kernel.workspaceBytes,
                                &map.first,
                                &map.columns,
                                &map.extents[1],
                                &map.strides[0]};
  EXPECT_NE(outcome(), kDoesNotFit);
  for (SizeNumber *place : places) {
    *place = 1;
    EXPECT_EQ(outcome(), kDoesNotFit);
    *place = 0;
  }
  for (uint32_t boxRows : {0, 257}) {
    map.boxRows = boxRows;
    EXPECT_EQ(outcome(), kDoesNotFit);
  }
  map.boxRows = 256;
  EXPECT_NE(outcome(), kDoesNotFit);
  for (size_t indices : {0, 5}) {
    map.extents.resize(indices);
    map.strides.resize(indices);
    EXPECT_EQ(outcome(), kDoesNotFit);
  }
  map.extents = {0, 0};
  map.strides = {0};
  EXPECT_EQ(outcome(), kDoesNotFit);
}

TEST_F(HostilePackageTest, TermsHaveAnEnd) {
  copy(all(X), all(Y));
  SizeSharing sharing(package.deviceKernels.emplace_back().sizes);
  for (size_t i = 0; i < SizeTerms::kMost; ++i)
    sharing.add(int64_t(i));
  EXPECT_EQ(outcome(), "");
  sharing.add(-1);
  EXPECT_EQ(outcome(), kDoesNotParse);
}

/// Short files whose sizes are large when written out.
TEST_F(HostilePackageTest, SizesTakeTheTimeOfTheirTerms) {
  SizeExpr doubled = SizeExpr::symbol(0);
  package.program.numSymbols = 1;
  package.program.inputs[0].dims[0] = {"n", -1, 0};
  for (int i = 0; i < 59; ++i)
    doubled = doubled + doubled;
  copy(view(X, {doubled - doubled}, {1}), view(Y, {doubled - doubled}, {1}));
  EXPECT_EQ(outcome(), "'a copy': a size overflows or is negative");
  SizeExpr deep = SizeExpr::symbol(0);
  for (int i = 0; i < 1 << 18; ++i)
    deep = SizeExpr::binary(SizeExpr::Op::Max, SizeExpr::symbol(0), deep);
  package.program.steps.clear();
  for (int i = 0; i < 1000; ++i)
    copy(view(X, {deep}, {1}), view(Y, {deep}, {1}));
  EXPECT_EQ(outcome(), "");
  EXPECT_EQ(y[2], 3.0f);
}

/// Weights in files: places that name something else, names that lead
/// elsewhere, and weights that nobody has mapped.
TEST_F(HostilePackageTest, WeightsLieInFilesBelowAFolder) {
  copy(all(Weights), all(Y));
  package.weightsFolder = "../models";
  package.weightFiles = {"data/weights.bin"};
  package.weightPlaces = {{Weights, 0, 7, 0}};
  const std::string notMapped = "'copies': the files of its weights are not "
                                "mapped";
  EXPECT_EQ(outcome(), notMapped);
  auto refused = [&](auto change) {
    Package before = package;
    change();
    EXPECT_EQ(outcome(), kDoesNotFit);
    package = before;
  };
  for (const char *name : {"", "/etc/passwd", "..", "../x", "a/../../x", "a/"})
    refused([&] { package.weightFiles[0] = name; });
  for (const char *folder : {"", "/models"})
    refused([&] { package.weightsFolder = folder; });
  WeightPlace &place = package.weightPlaces[0];
  refused([&] { place.file = 1; });
  refused([&] { place.offset = uint64_t(1) << 63; });
  refused([&] { place.offset = INT64_MAX - 63; });
  refused([&] { package.weightPlaces.push_back({9, 0, 0, 0}); });
  place.offset = INT64_MAX - 64;
  EXPECT_EQ(outcome(), notMapped);
  package.weightFiles[0] = "a\nb";
  EXPECT_EQ(outcome(), "file: found a name with control characters, expected "
                       "plain text");
}

/// A place of what is no constant, or two of one: the rest of the plan is read
/// as something else.
TEST_F(HostilePackageTest, OneConstantLiesInOnePlace) {
  copy(all(X), all(Y));
  package.weightsFolder = ".";
  package.weightFiles = {"w"};
  for (auto places :
       {std::vector<WeightPlace>{{X, 0, 0, 0}},
        std::vector<WeightPlace>{{Weights, 0, 0, 0}, {Weights, 0, 0, 0}}}) {
    package.weightPlaces = places;
    EXPECT_EQ(outcome(), kDoesNotFit);
  }
}

TEST_F(HostilePackageTest, ProductsAreOfMatricesThatFit) {
  // Doubles, which plain loops multiply: 2 x 2 of them.
  auto matrix = [](Buffer buffer, int64_t rows, int64_t columns) {
    ViewSpec spec = view(buffer, {rows, columns}, {columns, 1});
    spec.dtype = DType::F64;
    return spec;
  };
  ProductStep good;
  good.lhs = matrix(X, 2, 3);
  good.rhs = matrix(Weights, 3, 2);
  good.result = matrix(Y, 2, 2);
  auto with = [&](auto change) {
    ProductStep step = good;
    change(step);
    package.program.steps = {{step, "a product"}};
    return outcome();
  };
  const double left[] = {1, 2, 3, 4, 5, 6}, right[] = {1, 0, 0, 1, 2, 2};
  std::memcpy(x, left, sizeof(left));
  std::memcpy(zeros, right, sizeof(right));
  EXPECT_EQ(with([](ProductStep &) {}), "");
  double found[4];
  std::memcpy(found, y, sizeof(found));
  EXPECT_EQ(std::vector<double>(found, found + 4),
            (std::vector<double>{7, 8, 16, 17}));

  for (auto change : {+[](ProductStep &p) { p.result.buffer = Weights; },
                      +[](ProductStep &p) { p.lhs.buffer = 77; },
                      +[](ProductStep &p) { p.lhs.dtype = DType::I32; },
                      +[](ProductStep &p) { p.lhs.sizes.pop_back(); },
                      +[](ProductStep &p) { p.activation = Activation(4); },
                      +[](ProductStep &p) { p.bias = p.lhs; }})
    EXPECT_EQ(with(change), kDoesNotFit);
  const std::string noFit = "'a product' multiplies matrices that do not fit";
  EXPECT_EQ(with([](ProductStep &p) { p.lhs.sizes[1] = 2; }), noFit);
  EXPECT_EQ(with([](ProductStep &p) { p.result.sizes[0] = 1; }), noFit);
  EXPECT_EQ(with([](ProductStep &p) { p.rhs.strides[0] = 1000; }),
            "'a product' reaches beyond its array");
  EXPECT_EQ(with([](ProductStep &p) {
              p.lhs.sizes[0] = p.result.sizes[0] = 100;
              p.lhs.strides[0] = p.result.strides[0] = 0;
            }),
            "'a product' writes an element more than once");
  EXPECT_EQ(with([](ProductStep &p) {
              p.lhs.sizes[1] = p.rhs.sizes[0] = int64_t(1) << 40;
              p.lhs.strides[1] = p.rhs.strides[0] = 0;
            }),
            "'a product' multiplies the same elements 1099511627776 times");
  // Nothing is read: strides may be anything.
  EXPECT_EQ(with([](ProductStep &p) {
              p.lhs.sizes[1] = p.rhs.sizes[0] = 0;
              p.lhs.strides[0] = p.rhs.strides[1] = INT64_MAX;
            }),
            "");
  std::memcpy(found, y, sizeof(found));
  EXPECT_EQ(found[3], 0.0);
  package.target = PackageTarget::Cuda;
  EXPECT_EQ(with([](ProductStep &) {}), kDoesNotFit);
}

/// What follows from weights alone is computed when the first plan is made:
/// bytes of the file that change later are not seen.
TEST_F(HostilePackageTest, WhatFollowsFromWeightsIsComputedOnce) {
  std::fill(zeros, zeros + 16, 1234.5f);
  package.program.buffers.push_back({BufferKind::Temporary, 0, nullptr, 64});
  package.program.buffers.push_back({BufferKind::Temporary, 0, nullptr, 64});
  Buffer kept = Buffer(3), ofRun = Buffer(4);
  copy(all(Weights), all(kept));
  copy(all(X), all(ofRun));
  copy(view(kept, {8}, {1}), view(Y, {8}, {1}));
  ViewSpec upper = view(Y, {8}, {1});
  upper.offset = 8;
  copy(view(ofRun, {8}, {1}), upper);
  auto bytes = std::make_shared<std::string>(formatPackage(package));
  auto read = parsePackage(*bytes, "file", bytes);
  ASSERT_TRUE(bool(read)) << read.error().message;
  auto program = CpuProgram::open(*read, 1);
  ASSERT_TRUE(bool(program)) << program.error().message;
  auto plan = (*program)->planFor({{16}});
  ASSERT_TRUE(bool(plan)) << plan.error().message;
  size_t at = bytes->find(std::string(reinterpret_cast<char *>(zeros), 64));
  ASSERT_NE(at, std::string::npos);
  std::memset(bytes->data() + at, 0, 64);
  const void *from[] = {x};
  void *to[] = {y};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ((*program)->run(**plan, from, to).message, "");
    EXPECT_EQ(y[0], 1234.5f);
    EXPECT_EQ(y[10], 3.0f);
  }
}

TEST_F(HostilePackageTest, TooLargeToBeKept) {
  // Neither kept nor in the arena of a run is there room for it.
  package.program.buffers.push_back(
      {BufferKind::Temporary, 0, nullptr, int64_t(1) << 61});
  Buffer large = Buffer(3);
  copy(all(Weights), all(large));
  copy(all(large), all(Y));
  EXPECT_EQ(outcome(), "memory is short for this shape");
}

/// Words that are others: all is refused, or still a package that may be
/// planned and run.
TEST_F(HostilePackageTest, OtherWordsAreNoCrash) {
  package.program.numSymbols = 1;
  package.program.inputs[0].dims[0] = {"n", -1, 0};
  SizeExpr n = SizeExpr::symbol(0);
  package.program.outputs[0].shape = {SizeExpr::binary(
      SizeExpr::Op::Min, n, SizeExpr::select(n, n + SizeExpr(3), 99))};
  copy(view(X, {n}, {1}), view(Y, {n}, {SizeExpr(17) - n}));
  EXPECT_EQ(outcome(), "");
  std::string good = formatPackage(package);
  std::mt19937_64 random(11);
  int numRun = 0, numUnparsed = 0, numOthers = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (size_t changes = 1 + random() % 2; changes > 0; --changes) {
      // Names are no multiples of words: anywhere.
      size_t at = kHeadBytes + random() % (plan(bytes).size() * 8 - 8);
      if (random() % 4 == 0) {
        bytes[at] = char(random());
      } else {
        int64_t value = int64_t(random() % 24) - 2;
        std::memcpy(bytes.data() + (at & ~size_t(7)), &value, sizeof(value));
      }
    }
    std::string what = outcome(sealed(bytes));
    ++(what.empty() ? numRun : what == kDoesNotParse ? numUnparsed : numOthers);
  }
  EXPECT_GT(numRun, 100);
  EXPECT_GT(numUnparsed, 1000);
  EXPECT_GT(numOthers, 1000);
}
