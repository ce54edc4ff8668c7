// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The file: a head of 64 bytes, the plan, then large parts at multiples of 64.
// The plan says where they lie. Numbers are little endian. The order of fields
// is that of `describe`, which reads and writes: they cannot differ.
#include "refold/Package/Package.h"

#include "FileMapping.h"
#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

using namespace refold;
using namespace refold::package;

static_assert(std::endian::native == std::endian::little);

/// A reader takes its own version only: plans change with the compiler.
static constexpr uint32_t kVersion = 13;
static constexpr char kMagic[8] = {'r', 'e', 'f', 'o', 'l', 'd', 'p', 'k'};
static constexpr size_t kAlignment = 64;

uint64_t package::checksum(std::string_view bytes) {
  constexpr uint64_t kPrime = 0x9e3779b97f4a7c15;
  uint64_t sum = bytes.size() * kPrime;
  while (!bytes.empty()) {
    uint64_t word = 0;
    size_t taken = std::min(bytes.size(), sizeof(word));
    std::memcpy(&word, bytes.data(), taken);
    sum = std::rotl((sum ^ word) * kPrime, 29);
    bytes.remove_prefix(taken);
  }
  return sum;
}

namespace {
struct Head {
  char magic[8];
  uint32_t version = kVersion, reserved = 0;
  uint64_t fileBytes = 0, planBytes = 0;
  uint64_t planSum = 0, dataSum = 0;
  uint64_t unused[2] = {0, 0};
};
static_assert(sizeof(Head) == kAlignment);

size_t alignUp(size_t at) { return (at + kAlignment - 1) & ~(kAlignment - 1); }

/// Appends a plan, and gathers the large parts.
class Writer {
public:
  static constexpr bool isReader = false;
  std::string plan, data;

  template <typename T> void number(const T &value) {
    int64_t word = int64_t(value);
    plan.append(reinterpret_cast<const char *>(&word), sizeof(word));
  }
  void text(const std::string &value) {
    number(value.size());
    plan += value;
  }
  void part(std::string_view bytes) {
    data.resize(alignUp(data.size()));
    number(data.size());
    number(bytes.size());
    data += bytes;
  }
  template <typename Items, typename Each>
  void list(const Items &items, Each each) {
    number(items.size());
    for (const auto &item : items)
      each(item);
  }
};

/// Reads what `Writer` wrote. After the first thing that is wrong all is zero
/// or empty, and `isGood` false.
class Reader {
public:
  static constexpr bool isReader = true;
  Reader(std::string_view plan, std::string_view data)
      : plan(plan), data(data) {}
  bool isGood = true;
  bool isAtEnd() const { return plan.empty(); }

  template <typename T> void number(T &value) {
    int64_t word = 0;
    if (plan.size() < sizeof(word)) {
      isGood = false;
      plan = {};
    } else {
      std::memcpy(&word, plan.data(), sizeof(word));
      plan.remove_prefix(sizeof(word));
    }
    value = T(word);
    isGood &= int64_t(value) == word;
  }
  void text(std::string &value) {
    uint64_t bytes = 0;
    number(bytes);
    if (bytes > plan.size())
      return spoil();
    value.assign(plan.data(), bytes);
    plan.remove_prefix(bytes);
  }
  void part(std::string_view &bytes) {
    uint64_t at = 0, count = 0;
    number(at);
    number(count);
    if (at > data.size() || count > data.size() - at)
      return spoil();
    bytes = data.substr(at, count);
  }
  template <typename T, typename Each>
  void list(std::vector<T> &items, Each each) {
    uint64_t count = 0;
    number(count);
    // Every item takes a word at least.
    if (count > plan.size() / sizeof(int64_t))
      return spoil();
    for (uint64_t i = 0; i < count && isGood; ++i)
      each(items.emplace_back());
  }
  void spoil() {
    isGood = false;
    plan = {};
  }

private:
  std::string_view plan, data;
};

/// Where the sizes of a program are: in a file each is the number of a term.
template <bool isReader> struct ProgramSizes {
  SizeTerms terms;
  SizeSharing sharing{terms};
};
template <> struct ProgramSizes<true> {
  std::vector<SizeExpr> all;
};

/// Reads or writes each part of a package.
template <typename File, bool isReader = File::isReader> class Describe {
  template <typename T> using Of = std::conditional_t<isReader, T, const T>;

public:
  explicit Describe(File &file) : file(file) {}

  void operator()(Of<Package> &p) {
    file.text(p.name);
    file.number(p.target);
    file.text(p.architecture);
    file.text(p.features);
    file.text(p.textTarget);
    weights(p);
    program(p.program);
    file.list(p.deviceKernels, [&](Of<DeviceKernel> &k) { device(k); });
    file.list(p.hostKernels, [&](Of<HostKernel> &k) { host(k); });
    file.list(p.headers, [&](Of<std::pair<std::string, std::string>> &header) {
      file.text(header.first);
      file.text(header.second);
    });
    file.number(p.copyKernel);
    file.number(p.checkKernel);
  }

private:
  /// Before the program, whose constants are read by it.
  void weights(Of<Package> &p) {
    file.text(p.weightsFolder);
    file.list(p.weightFiles, [&](Of<std::string> &name) { file.text(name); });
    file.list(p.weightPlaces, [&](Of<WeightPlace> &place) {
      file.number(place.buffer);
      file.number(place.file);
      file.number(place.offset);
      file.number(place.sum);
    });
    places = p.weightPlaces;
  }
  /// Whether the next buffer lies in another file. They are in order.
  bool isElsewhere() {
    bool is = !places.empty() && places.front().buffer == numBuffers;
    if (is)
      places = places.subspan(1);
    ++numBuffers;
    return is;
  }
  void size(Of<SizeExpr> &expr) {
    SizeNumber number = 0;
    if constexpr (!isReader)
      number = programSizes.sharing.add(expr);
    file.number(number);
    if constexpr (isReader) {
      if (number < programSizes.all.size())
        expr = programSizes.all[number];
      else
        file.spoil();
    }
  }
  void term(Of<SizeTerms::Term> &one) {
    file.number(one.op);
    unsigned operands = SizeExpr::arity(one.op);
    if (operands == 0)
      file.number(one.value);
    for (unsigned i = 0; i < operands; ++i)
      file.number(one.operands[i]);
  }
  void terms(Of<SizeTerms> &all) {
    if constexpr (isReader) {
      std::vector<SizeTerms::Term> read;
      file.list(read, [&](SizeTerms::Term &one) { term(one); });
      if (std::optional<SizeTerms> good = SizeTerms::of(std::move(read)))
        all = std::move(*good);
      else
        file.spoil();
    } else {
      file.list(all.all(), [&](const SizeTerms::Term &one) { term(one); });
    }
  }
  void sizes(Of<std::vector<SizeExpr>> &list) {
    file.list(list, [&](Of<SizeExpr> &expr) { size(expr); });
  }
  void view(Of<ViewSpec> &v) {
    file.number(v.buffer);
    file.number(v.dtype);
    size(v.offset);
    sizes(v.sizes);
    sizes(v.strides);
  }
  /// A variant of two: which, then what.
  template <typename Variant, typename First, typename Second>
  void either(Variant &value, First first, Second second) {
    uint8_t which = 0;
    if constexpr (!isReader)
      which = uint8_t(value.index());
    file.number(which);
    if constexpr (isReader) {
      if (which == 1)
        value.template emplace<1>();
      else
        value.template emplace<0>();
      if (which > 1)
        return file.spoil();
    }
    if (value.index() == 0)
      first(std::get<0>(value));
    else
      second(std::get<1>(value));
  }
  /// The terms of its sizes, then what has them: known when that is written.
  void program(Of<ProgramSpec> &p) {
    if constexpr (isReader) {
      SizeTerms read;
      terms(read);
      programSizes.all = read.expressions();
      programParts(p);
    } else {
      std::string before = std::exchange(file.plan, std::string());
      programParts(p);
      std::string parts = std::exchange(file.plan, std::move(before));
      terms(programSizes.terms);
      file.plan += parts;
    }
  }
  void programParts(Of<ProgramSpec> &p) {
    file.number(p.numSymbols);
    file.list(p.inputs, [&](Of<InputSpec> &input) {
      file.text(input.name);
      file.number(input.dtype);
      file.list(input.dims, [&](Of<DimSpec> &dim) {
        file.text(dim.name);
        file.number(dim.extent);
        file.number(dim.symbol);
      });
    });
    file.list(p.outputs, [&](Of<OutputSpec> &output) {
      file.text(output.name);
      file.number(output.dtype);
      sizes(output.shape);
    });
    file.list(p.buffers, [&](Of<BufferSpec> &b) { buffer(b); });
    file.list(p.steps, [&](Of<Step> &s) { step(s); });
  }
  void buffer(Of<BufferSpec> &b) {
    file.number(b.kind);
    file.number(b.port);
    size(b.bytes);
    if (isElsewhere() || b.kind != BufferKind::Constant)
      return;
    std::string_view bytes;
    if constexpr (!isReader)
      bytes = {static_cast<const char *>(b.data),
               size_t(b.bytes.constant().value_or(0))};
    file.part(bytes);
    if constexpr (isReader) {
      b.data = bytes.data();
      if (b.bytes.constant() != int64_t(bytes.size()))
        file.spoil();
    }
  }
  void kernelStep(Of<KernelStep> &k) {
    file.number(k.kernel);
    file.number(k.numInputs);
    file.list(k.operands, [&](Of<OperandSpec> &operand) {
      either(
          operand, [&](Of<ViewSpec> &v) { view(v); },
          [&](Of<ScalarSpec> &s) { size(s.value); });
    });
  }
  void productStep(Of<ProductStep> &p) {
    for (auto *one : {&p.lhs, &p.rhs, &p.result})
      view(*one);
    maybe(p.bias, [&](Of<ViewSpec> &v) { view(v); });
    file.number(p.activation);
    auto scale = std::bit_cast<int64_t>(p.erfScale);
    file.number(scale);
    if constexpr (isReader)
      p.erfScale = std::bit_cast<double>(scale);
  }
  void step(Of<Step> &s) {
    file.text(s.name);
    size(s.condition);
    // 0 kernel, 1 product, 2 copy, 3 check.
    uint8_t which = 0;
    if constexpr (!isReader)
      which = uint8_t(s.what.index());
    file.number(which);
    if constexpr (isReader) {
      if (which == 1)
        s.what.template emplace<ProductStep>();
      else if (which == 2)
        s.what.template emplace<CopyStep>();
      else if (which == 3)
        s.what.template emplace<AssertStep>();
      else if (which != 0)
        return file.spoil();
    }
    if (auto *kernel = std::get_if<KernelStep>(&s.what))
      return kernelStep(*kernel);
    if (auto *product = std::get_if<ProductStep>(&s.what))
      return productStep(*product);
    if (auto *copy = std::get_if<CopyStep>(&s.what)) {
      view(copy->from);
      return view(copy->to);
    }
    if (auto *check = std::get_if<AssertStep>(&s.what)) {
      file.text(check->message);
      either(
          check->condition, [&](Of<SizeExpr> &expr) { size(expr); },
          [&](Of<ViewSpec> &v) { view(v); });
    }
  }
  void device(Of<DeviceKernel> &k) {
    file.text(k.name);
    file.text(k.text);
    file.part(k.cubin);
    terms(k.sizes);
    file.list(k.launches, [&](Of<Launch> &one) { launch(one); });
    maybe(k.product, [&](Of<DeviceProduct> &p) { product(p); });
    file.number(k.workspaceBytes);
    file.number(k.tickets);
    file.number(k.call.form);
    for (auto *number : {&k.call.elementBytes, &k.call.batch, &k.call.rows,
                         &k.call.length, &k.call.columns, &k.call.depth})
      file.number(*number);
    maybe(k.work, [&](Of<DeviceWork> &w) { work(w); });
  }
  void launch(Of<Launch> &l) {
    file.list(l.parameters, [&](Of<SizeNumber> &one) { file.number(one); });
    file.list(l.ways, [&](Of<LaunchWay> &way) {
      file.text(way.entry);
      file.number(way.condition);
      file.number(way.legal);
      for (auto *dims : {&way.grid, &way.block})
        for (auto &dim : *dims)
          file.number(dim);
      file.number(way.sharedBytes);
      file.number(way.blocksPerUnit);
      file.number(way.leastBlocks);
      maybe(way.freeBlocks, [&](Of<FreeBlocks> &blocks) {
        file.number(blocks.unit);
        file.number(blocks.pieces);
        file.number(blocks.most);
        file.number(blocks.leftBytes);
      });
      shape(way.shape);
      file.list(way.maps, [&](Of<LaunchMap> &one) { map(one); });
    });
  }
  void shape(Of<WayShape> &s) {
    file.number(s.place);
    file.number(s.unit);
    flag(s.hasParts);
    flag(s.takesTurns);
    for (auto *number : {&s.threads, &s.rows, &s.vectors, &s.width, &s.columns,
                         &s.stages, &s.blocks, &s.groups, &s.parts})
      file.number(*number);
  }
  void work(Of<DeviceWork> &w) {
    for (auto *number : {&w.bytesRead, &w.bytesWritten, &w.streamBytes,
                         &w.sharedBytes, &w.sweeps, &w.walked})
      file.number(*number);
    file.list(w.parts, [&](Of<DeviceWork::Part> &part) {
      for (auto *number :
           {&part.places, &part.products, &part.slots, &part.fixedSlots,
            &part.functions, &part.fixedFunctions})
        file.number(*number);
    });
  }
  void map(Of<LaunchMap> &m) {
    file.number(m.first);
    for (auto *numbers : {&m.extents, &m.strides})
      file.list(*numbers, [&](Of<SizeNumber> &one) { file.number(one); });
    file.number(m.columns);
    file.number(m.boxRows);
  }
  void product(Of<DeviceProduct> &p) {
    file.number(p.rank);
    file.number(p.biasRank);
    for (auto *side : {&p.lhs, &p.rhs, &p.result, &p.bias}) {
      file.number(side->word);
      file.number(side->dtype);
    }
    flag(p.hasBias);
    file.number(p.condition);
  }
  void flag(Of<bool> &value) {
    uint8_t is = 0;
    if constexpr (!isReader)
      is = value;
    file.number(is);
    if constexpr (isReader)
      value = is != 0;
  }
  template <typename Optional, typename Each>
  void maybe(Optional &value, Each each) {
    bool is = value.has_value();
    flag(is);
    if constexpr (isReader)
      if (is)
        value.emplace();
    if (is)
      each(*value);
  }
  void host(Of<HostKernel> &k) {
    file.text(k.name);
    file.part(k.object);
    file.number(k.phases);
    file.list(k.packedOperands,
              [&](Of<uint32_t> &operand) { file.number(operand); });
    flag(k.sharesOnlyPanels);
  }

  File &file;
  ProgramSizes<isReader> programSizes;
  std::span<const WeightPlace> places; ///< of the buffers that follow
  uint32_t numBuffers = 0;
};
} // namespace

std::string package::formatPackage(const Package &package) {
  Writer writer;
  Describe<Writer> describe(writer);
  describe(package);
  Head head;
  std::memcpy(head.magic, kMagic, sizeof(kMagic));
  head.planBytes = writer.plan.size();
  head.planSum = checksum(writer.plan);
  head.dataSum = checksum(writer.data);
  size_t dataAt = alignUp(sizeof(head) + writer.plan.size());
  head.fileBytes = dataAt + writer.data.size();
  std::string bytes(reinterpret_cast<const char *>(&head), sizeof(head));
  bytes += writer.plan;
  bytes.resize(dataAt);
  return bytes + writer.data;
}

Outcome<std::shared_ptr<Package>>
package::parsePackage(std::string_view bytes, const std::string &where,
                      std::shared_ptr<void> owner) {
  auto wrong = [&](const std::string &what) {
    return problem(ExitCode::Model, where + ": " + what);
  };
  Head head;
  if (bytes.size() < sizeof(head) ||
      std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0)
    return wrong("found no package of refold");
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (head.version != kVersion)
    return wrong("found a package of version " + std::to_string(head.version) +
                 ", expected " + std::to_string(kVersion) +
                 ": compile the program anew");
  if (head.fileBytes != bytes.size() ||
      head.planBytes > bytes.size() - sizeof(head) ||
      alignUp(sizeof(head) + head.planBytes) > bytes.size())
    return wrong("found " + std::to_string(bytes.size()) + " bytes, expected " +
                 std::to_string(head.fileBytes));
  std::string_view plan = bytes.substr(sizeof(head), head.planBytes);
  std::string_view data = bytes.substr(alignUp(sizeof(head) + head.planBytes));
  if (checksum(plan) != head.planSum || checksum(data) != head.dataSum)
    return wrong("the checksum does not match: the file is damaged");
  auto package = std::make_shared<Package>();
  Reader reader(plan, data);
  Describe<Reader> describe(reader);
  describe(*package);
  if (!reader.isGood || !reader.isAtEnd())
    return wrong("found a plan that does not parse");
  if (Problem error = checkPackage(*package))
    return wrong(error.message);
  package->owner = std::move(owner);
  return package;
}

Outcome<std::shared_ptr<Package>>
package::openPackage(const std::string &path, const std::string &weights) {
  Outcome<std::shared_ptr<FileMapping>> mapping = FileMapping::open(path);
  if (!mapping)
    return mapping.error();
  if ((*mapping)->bytes().empty())
    return problem(ExitCode::Model, path + ": found no package of refold");
  auto package = parsePackage((*mapping)->bytes(), path, *mapping);
  if (!package)
    return package.error();
  if (Problem error = mapWeights(**package, path, weights))
    return error;
  return package;
}
