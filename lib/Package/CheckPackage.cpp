// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Package/Package.h"
#include "refold/Runtime/Product.h"

#include <algorithm>

using namespace refold;
using namespace refold::package;

namespace {
/// Whether all numbers of one package are in range.
struct Checker {
  const Package &package;
  const ProgramSpec &program = package.program;

  bool isGood() const;
  bool hasPlainNames() const;
  bool hasWeightPlaces() const;

private:
  static bool isType(DType dtype) { return dtype <= DType::Bool; }
  /// Whether all sizes of its launches are terms of the kernel.
  static bool areLaunches(const DeviceKernel &kernel) {
    auto isSize = [&](SizeNumber size) { return size < kernel.sizes.size(); };
    auto areSizes = [&](const auto &sizes) {
      return std::all_of(sizes.begin(), sizes.end(), isSize);
    };
    auto isMap = [&](const LaunchMap &map) {
      constexpr uint32_t kMostBoxRows = 256;
      return isSize(map.first) && isSize(map.columns) &&
             areSizes(map.extents) && areSizes(map.strides) &&
             !map.extents.empty() &&
             map.extents.size() <= LaunchMap::kMostIndices &&
             map.strides.size() == map.extents.size() && map.boxRows >= 1 &&
             map.boxRows <= kMostBoxRows;
    };
    auto isWay = [&](const LaunchWay &way) {
      constexpr size_t kMostMaps = 16;
      return isSize(way.condition) && isSize(way.legal) && areSizes(way.grid) &&
             isSize(way.shape.groups) && isSize(way.shape.parts) &&
             way.shape.place <= WayShape::Ring && way.shape.unit <= 3 &&
             (!way.freeBlocks || (isSize(way.freeBlocks->unit) &&
                                  isSize(way.freeBlocks->pieces))) &&
             areSizes(way.block) && isSize(way.sharedBytes) &&
             way.maps.size() <= kMostMaps &&
             std::all_of(way.maps.begin(), way.maps.end(), isMap);
    };
    auto isLaunch = [&](const Launch &launch) {
      return !launch.ways.empty() && areSizes(launch.parameters) &&
             std::all_of(launch.ways.begin(), launch.ways.end(), isWay);
    };
    const CallExtents &call = kernel.call;
    auto isWork = [&](const DeviceWork &work) {
      return areSizes(std::array{work.bytesRead, work.bytesWritten,
                                 work.streamBytes, work.sharedBytes}) &&
             std::all_of(work.parts.begin(), work.parts.end(),
                         [&](auto &part) { return isSize(part.places); });
    };
    return isSize(kernel.workspaceBytes) &&
           call.form <= CallForm::ByteProduct &&
           areSizes(std::array{call.batch, call.rows, call.length, call.columns,
                               call.depth}) &&
           (!kernel.work || isWork(*kernel.work)) &&
           (!kernel.product || isSize(kernel.product->condition)) &&
           std::all_of(kernel.launches.begin(), kernel.launches.end(),
                       isLaunch);
  }
  /// Whether the library computes products of such arrays.
  static bool isProduct(const DeviceProduct &product) {
    constexpr uint32_t kMostDims = 64, kMostWords = 1 << 16;
    auto isSide = [](const DeviceProduct::Side &side) {
      return side.word <= kMostWords &&
             (side.dtype == DType::F32 || side.dtype == DType::F16 ||
              side.dtype == DType::BF16);
    };
    return product.rank >= 2 && product.rank <= kMostDims &&
           product.biasRank >= 1 && product.biasRank <= kMostDims &&
           isSide(product.lhs) && isSide(product.rhs) &&
           isSide(product.result) && isSide(product.bias);
  }
  bool isView(const ViewSpec &view) const {
    return view.buffer < program.buffers.size() && isType(view.dtype) &&
           view.sizes.size() == view.strides.size();
  }
  /// A view of what steps may write.
  bool isTarget(const ViewSpec &view) const {
    if (!isView(view))
      return false;
    BufferKind kind = program.buffers[view.buffer].kind;
    return kind == BufferKind::Output || kind == BufferKind::Temporary;
  }
  bool isKernelStep(const KernelStep &kernel) const;
  bool isProductStep(const ProductStep &product) const;
  bool isBuffer(const BufferSpec &buffer) const;
  bool isStep(const Step &step) const;
  bool isInput(const InputSpec &input) const {
    return isType(input.dtype) &&
           std::all_of(
               input.dims.begin(), input.dims.end(), [&](const DimSpec &dim) {
                 return dim.extent >= 0 || dim.symbol < program.numSymbols;
               });
  }
  size_t numKernels() const {
    return package.target == PackageTarget::Cuda ? package.deviceKernels.size()
                                                 : package.hostKernels.size();
  }
};
} // namespace

bool Checker::isBuffer(const BufferSpec &buffer) const {
  switch (buffer.kind) {
  case BufferKind::Input:
    return buffer.port < program.inputs.size();
  case BufferKind::Output:
    return buffer.port < program.outputs.size();
  case BufferKind::Constant:
    return buffer.bytes.constant().value_or(-1) >= 0;
  case BufferKind::Temporary:
    return true;
  }
  return false;
}

bool Checker::isKernelStep(const KernelStep &kernel) const {
  if (kernel.kernel >= numKernels() ||
      kernel.numInputs > kernel.operands.size())
    return false;
  for (size_t i = 0; i < kernel.operands.size(); ++i) {
    auto *view = std::get_if<ViewSpec>(&kernel.operands[i]);
    if (view && !(i < kernel.numInputs ? isView(*view) : isTarget(*view)))
      return false;
  }
  return true;
}

/// GPUs have kernels for all. What is done to results is done to floats.
bool Checker::isProductStep(const ProductStep &product) const {
  size_t rank = product.result.sizes.size();
  DType type = product.result.dtype;
  bool isReal = type == DType::F32 || type == DType::F64;
  bool hasEpilogue = product.bias || product.activation != Activation::None;
  return package.target == PackageTarget::Cpu && isView(product.lhs) &&
         isView(product.rhs) && isTarget(product.result) && rank >= 2 &&
         product.lhs.sizes.size() == rank && product.rhs.sizes.size() == rank &&
         product.activation <= Activation::Tanh && (isReal || !hasEpilogue) &&
         (!product.bias ||
          (isView(*product.bias) && product.bias->dtype == type &&
           product.bias->sizes.size() == 1)) &&
         hasProduct(product.lhs.dtype, product.rhs.dtype, type);
}

bool Checker::isStep(const Step &step) const {
  if (auto *kernel = std::get_if<KernelStep>(&step.what))
    return isKernelStep(*kernel);
  if (auto *product = std::get_if<ProductStep>(&step.what))
    return isProductStep(*product);
  if (auto *copy = std::get_if<CopyStep>(&step.what))
    return isView(copy->from) && isTarget(copy->to) &&
           copy->from.dtype == copy->to.dtype;
  if (auto *check = std::get_if<AssertStep>(&step.what)) {
    auto *view = std::get_if<ViewSpec>(&check->condition);
    return !view || (isView(*view) && byteWidth(view->dtype) == 1);
  }
  return false;
}

/// Whether it is a path below a folder.
static bool isBelow(const std::string &name) {
  std::string parts = "/" + name + "/";
  return !name.empty() && name[0] != '/' && name.back() != '/' &&
         parts.find("/../") == std::string::npos;
}

/// Ends are checked here once: whoever maps a file may add.
bool Checker::hasWeightPlaces() const {
  constexpr uint64_t kMost = INT64_MAX;
  int64_t last = -1;
  for (const WeightPlace &place : package.weightPlaces) {
    if (int64_t(place.buffer) <= last ||
        place.buffer >= program.buffers.size() ||
        place.file >= package.weightFiles.size())
      return false;
    const BufferSpec &buffer = program.buffers[place.buffer];
    if (buffer.kind != BufferKind::Constant || place.offset > kMost ||
        uint64_t(buffer.bytes.constant().value_or(0)) > kMost - place.offset)
      return false;
    last = place.buffer;
  }
  bool isFolder =
      !package.weightsFolder.empty() && package.weightsFolder[0] != '/';
  return std::all_of(package.weightFiles.begin(), package.weightFiles.end(),
                     isBelow) &&
         (package.weightFiles.empty() || isFolder);
}

bool Checker::isGood() const {
  auto all = [](const auto &list, auto isOne) {
    return std::all_of(list.begin(), list.end(), isOne);
  };
  constexpr unsigned kMostSymbols = 1 << 20, kMostPhases = 1024,
                     kMostTickets = 1 << 20;
  return package.target <= PackageTarget::Cuda &&
         program.numSymbols <= kMostSymbols &&
         all(program.inputs, [&](auto &one) { return isInput(one); }) &&
         all(program.outputs, [&](auto &one) { return isType(one.dtype); }) &&
         all(program.buffers, [&](auto &one) { return isBuffer(one); }) &&
         all(program.steps, [&](auto &one) { return isStep(one); }) &&
         hasWeightPlaces() &&
         all(package.deviceKernels,
             [&](auto &kernel) {
               return kernel.tickets <= kMostTickets &&
                      (!kernel.product || isProduct(*kernel.product)) &&
                      areLaunches(kernel);
             }) &&
         all(package.hostKernels,
             [](auto &kernel) {
               return kernel.phases <= kMostPhases &&
                      kernel.packedOperands.size() <= kernel.phases;
             }) &&
         all(std::vector{package.copyKernel, package.checkKernel},
             [&](int64_t kernel) {
               return kernel >= -1 &&
                      kernel < int64_t(package.deviceKernels.size());
             });
}

/// Whether a terminal prints it and does nothing else: no control characters,
/// of ASCII or, in UTF-8, of Latin-1.
static bool isPlain(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    auto byte = static_cast<unsigned char>(text[i]);
    auto next =
        static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : '\0');
    if (byte < 0x20 || byte == 0x7f ||
        (byte == 0xc2 && next >= 0x80 && next < 0xa0))
      return false;
  }
  return true;
}

/// All that messages repeat.
bool Checker::hasPlainNames() const {
  bool arePlain = isPlain(package.name) && isPlain(package.architecture) &&
                  isPlain(package.features) && isPlain(package.textTarget);
  auto look = [&](const std::string &name) { arePlain &= isPlain(name); };
  look(package.weightsFolder);
  for (const std::string &file : package.weightFiles)
    look(file);
  for (const InputSpec &input : program.inputs) {
    look(input.name);
    for (const DimSpec &dim : input.dims)
      look(dim.name);
  }
  for (const OutputSpec &output : program.outputs)
    look(output.name);
  for (const Step &step : program.steps) {
    look(step.name);
    if (auto *check = std::get_if<AssertStep>(&step.what))
      look(check->message);
  }
  for (const HostKernel &kernel : package.hostKernels)
    look(kernel.name);
  for (const DeviceKernel &kernel : package.deviceKernels) {
    look(kernel.name);
    forEachWay(kernel, [&](const LaunchWay &way) { look(way.entry); });
  }
  return arePlain;
}

Problem package::checkPackage(const Package &package) {
  Checker checker{package};
  if (!checker.isGood())
    return problem(ExitCode::Model, "found a plan whose parts do not fit");
  if (!checker.hasPlainNames())
    return problem(ExitCode::Model,
                   "found a name with control characters, expected plain text");
  return {};
}

std::optional<MapValues> package::valuesOf(const LaunchMap &map,
                                           TermValues &sizes) {
  MapValues values;
  std::optional<int64_t> first = sizes[map.first], columns = sizes[map.columns];
  if (!first || !columns)
    return std::nullopt;
  values.first = *first;
  values.columns = *columns;
  values.boxRows = map.boxRows;
  values.numIndices = int64_t(map.extents.size());
  for (size_t i = 0; i < map.extents.size(); ++i) {
    std::optional<int64_t> extent = sizes[map.extents[i]],
                           stride = sizes[map.strides[i]];
    if (!extent || (*extent > 1 && !stride))
      return std::nullopt;
    values.extents[i] = *extent;
    if (*extent > 1)
      values.strides[i] = *stride;
  }
  return values;
}
