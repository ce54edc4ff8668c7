// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "VerifyShapes.h"
#include "refold/Support/Error.h"
#include <cmath>

namespace refold {

/// Of a stream that other axes follow: more than a tile of scores (512 keys),
/// and no more than is affordable.
static constexpr int64_t kMostFollowed = 600, kLongestFollowed = 1024;

namespace {

/// `input` with other numbers at the last place of an axis.
llvm::Expected<Tensor> changeLast(const Tensor &input, const Port &port,
                                  llvm::StringRef axis, double by) {
  auto copy = input.clone();
  if (!copy || !isFloat(port.dtype))
    return copy;
  int64_t inner = 1;
  for (unsigned dim = input.rank(); dim-- > 0;) {
    int64_t extent = input.shape()[dim];
    for (int64_t i = 0, e = input.numElements();
         dimName(port, dim) == axis && i < e; ++i)
      if (i / inner % extent == extent - 1)
        copy->set(i, copy->get(i) + by);
    inner *= extent;
  }
  return copy;
}

bool isEqual(const RefOutput &a, const RefOutput &b) {
  for (int64_t i = 0, e = a.value.numElements(); i < e; ++i) {
    double one = a.value.get(i), other = b.value.get(i);
    if (one != other && !(std::isnan(one) && std::isnan(other)))
      return false;
  }
  return true;
}

/// Does any result depend on the last element of a stream? True where the
/// program takes no such shape.
bool readsLast(const ShapesOf &program, const VerifyOptions &options,
               const Extents &shape, llvm::StringRef stream) {
  EvaluationOptions exactly;
  exactly.keepOutputsExact = true;
  auto evaluate = [&](double by) -> llvm::Expected<std::vector<RefOutput>> {
    auto given = makeInputs(program.inputs, shape, {InputFamily::Normal},
                            options.inputs, options.seed);
    if (!given)
      return given.takeError();
    for (auto [port, input] : llvm::zip_equal(program.inputs, *given)) {
      auto changed = changeLast(input, port, stream, by);
      if (!changed)
        return changed.takeError();
      input = std::move(*changed);
    }
    return evaluateProgram(program.function, *given, exactly);
  };
  std::vector<std::vector<RefOutput>> results;
  // To either side: the least of a row is not its largest.
  for (double by : {0.0, 9.0, -9.0}) {
    auto found = evaluate(by);
    if (!found) {
      llvm::consumeError(found.takeError());
      return true;
    }
    results.push_back(std::move(*found));
  }
  return !llvm::all_of(llvm::drop_begin(results), [&](const auto &other) {
    return llvm::equal(results.front(), other, isEqual);
  });
}

/// The other axes that have to be as long as a stream for all of it to be read:
/// with 5 queries a causal program reads 5 keys, and of its tiles the first.
std::vector<std::string> findFollowing(const ShapesOf &program,
                                       const VerifyOptions &options,
                                       llvm::ArrayRef<std::string> streams,
                                       llvm::ArrayRef<std::string> others,
                                       Extents shape) {
  constexpr int64_t kProbed = 31; // longer than the primes
  for (const std::string &stream : streams)
    shape[stream] = kProbed;
  std::vector<std::string> following;
  for (const std::string &stream : streams) {
    if (readsLast(program, options, shape, stream))
      continue;
    for (const std::string &other : others) {
      Extents longer = shape;
      longer[other] = kProbed;
      if (!readsLast(program, options, longer, stream))
        continue;
      following.push_back(other);
      break;
    }
  }
  return following;
}

} // namespace

/// Where no stream is open, the last other axis is long in a second shape, if
/// that is affordable: rows that are fewer than a register tile are no test of
/// it.
static std::vector<ShapeToVerify>
withManyRows(const ShapesOf &program, const VerifyOptions &options,
             const Extents &fixed, llvm::ArrayRef<std::string> others) {
  constexpr int64_t kRows = 37, kAffordable = int64_t(1) << 17;
  std::vector<ShapeToVerify> shapes = {{fixed}};
  if (options.broadLength == 0 || others.empty())
    return shapes;
  ShapeToVerify many{fixed, /*isCostly=*/true};
  many.extents[others.back()] = kRows;
  int64_t elements = 0;
  for (const Port &port : program.inputs) {
    auto shape = shapeOf(port, many.extents);
    if (!shape) {
      llvm::consumeError(shape.takeError());
      return shapes;
    }
    int64_t count = 1;
    for (int64_t extent : *shape)
      count *= extent;
    elements += count;
  }
  if (elements <= kAffordable)
    shapes.push_back(std::move(many));
  return shapes;
}

/// The stream that following axes keep up with in a shape whose other axes are
/// short; none on a GPU, whose tiles are no longer than the broad shape.
static int64_t longestFollowed(const VerifyOptions &options) {
  int64_t longest = 0;
  for (int64_t extent : options.streamExtents)
    if (extent <= kLongestFollowed)
      longest = std::max(longest, extent);
  return llvm::StringRef(options.target).starts_with("cuda") ? -1 : longest;
}

/// Stream axes share their extent: a square product is a case that matters, and
/// the number of cases stays small. Other axes get distinct primes, so that no
/// two are mixed up.
std::vector<ShapeToVerify> chooseShapes(const ShapesOf &program,
                                        const VerifyOptions &options,
                                        Coverage &coverage) {
  static constexpr int64_t primes[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29};
  Extents fixed = options.shape;
  std::vector<std::string> others;
  for (const std::string &dim : openDims(program.inputs))
    if (!fixed.count(dim))
      (llvm::is_contained(program.streams, dim) ? coverage.streamAxes : others)
          .push_back(dim);
  for (auto [i, dim] : llvm::enumerate(others))
    fixed[dim] = primes[i % std::size(primes)];
  if (coverage.streamAxes.empty())
    return withManyRows(program, options, fixed, others);
  coverage.followingAxes =
      findFollowing(program, options, coverage.streamAxes, others, fixed);
  bool isFollowed = !coverage.followingAxes.empty();
  std::vector<ShapeToVerify> shapes;
  for (int64_t extent : options.streamExtents) {
    ShapeToVerify &shape = shapes.emplace_back(ShapeToVerify{fixed});
    for (const std::string &dim : coverage.streamAxes)
      shape.extents[dim] = extent;
    if (!isFollowed || extent != longestFollowed(options))
      continue;
    // The last two stay: scores of one product rise with the same key in all
    // rows, and a row of one number is the luck of what cancels.
    for (const std::string &dim :
         llvm::ArrayRef(others).drop_back(std::min<size_t>(others.size(), 2)))
      shape.extents[dim] = 1;
    for (const std::string &dim : coverage.followingAxes)
      shape.extents[dim] = std::min(extent, kMostFollowed);
    shape.isCostly = true;
  }
  if (options.broadLength == 0 || others.empty())
    return shapes;
  static constexpr int64_t longPrimes[] = {37, 19, 71};
  // Rows of one axis are cheap enough to be longer than every tile.
  constexpr int64_t kBroad = 130, kBroadRows = 4290;
  bool isRows =
      others.size() == 1 && coverage.streamAxes.size() == 1 && !isFollowed;
  int64_t length = options.broadLength.value_or(isRows ? kBroadRows : kBroad);
  Extents broad = fixed;
  for (const std::string &dim : coverage.streamAxes)
    broad[dim] = length;
  size_t next = 0;
  for (const std::string &dim : llvm::reverse(others))
    if (next < std::size(longPrimes))
      broad[dim] = longPrimes[next++];
  for (const std::string &dim : coverage.followingAxes)
    broad[dim] = std::min(length, kMostFollowed);
  shapes.push_back({std::move(broad)});
  return shapes;
}

} // namespace refold
