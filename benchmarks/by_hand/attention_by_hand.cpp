// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention and decoding by kernels written by hand, which take turns with the
// compiler's in benchmarks/harness (Turns.h has the talk).
//
//   attention_by_hand WORKLOAD INPUT.npy...   decode, attention, ...
//   attention_by_hand --self-test
#include "Attention.h"
#include "AttentionTiles.h"
#include "Decode.h"
#include "Turns.h"

#include <memory>
#include <random>

using namespace byhand;

namespace {

constexpr int kMostThreads = 64;

/// A state for each thread, made when it first works.
template <typename State> class States {
public:
  template <typename... Arguments>
  State &of(const Worker &worker, const Arguments &...arguments) {
    if (worker.count > kMostThreads)
      fail("found more than " + std::to_string(kMostThreads) + " threads");
    std::unique_ptr<State> &state = (*states)[worker.index];
    if (!state)
      state = std::make_unique<State>(arguments...);
    return *state;
  }

private:
  std::shared_ptr<std::vector<std::unique_ptr<State>>> states =
      std::make_shared<std::vector<std::unique_ptr<State>>>(kMostThreads);
};

/// Rows of the answer in double, and how far the outputs are from them: over
/// the largest weighted mean of the sizes of values, because the mean of many
/// values of either sign is as near to zero as they are many.
template <typename T> class Judge {
public:
  explicit Judge(const T *out) : out(out) {}

  /// Softmax of `scores` times rows of `width` values, to stand at out[at].
  void expect(int64_t at, const std::vector<double> &scores, const T *values,
              int width, int64_t pitch) {
    double top = *std::max_element(scores.begin(), scores.end()), total = 0;
    Row row = {at, std::vector<double>(width)};
    std::vector<double> sizes(width);
    for (size_t key = 0; key < scores.size(); ++key) {
      double weight = std::exp(scores[key] - top);
      total += weight;
      for (int e = 0; e < width; ++e) {
        row.right[e] += weight * numberOf(values[key * pitch + e]);
        sizes[e] += weight * std::abs(numberOf(values[key * pitch + e]));
      }
    }
    for (int e = 0; e < width; ++e) {
      row.right[e] /= total;
      largest = std::max(largest, sizes[e] / total);
    }
    rows.push_back(std::move(row));
  }

  double error() const {
    double worst = 0;
    for (const Row &row : rows)
      for (size_t e = 0; e < row.right.size(); ++e) {
        double error = std::abs(numberOf(out[row.at + e]) - row.right[e]);
        if (!(error <= worst))
          worst = error; // a NaN stays, and no comparison holds of it
        if (std::isnan(worst))
          return worst;
      }
    return worst / largest;
  }

private:
  struct Row {
    int64_t at;
    std::vector<double> right;
  };
  const T *out;
  std::vector<Row> rows;
  double largest = 1e-30;
};

/// Products of `q` and rows of as many numbers.
template <typename T>
std::vector<double> scoresOf(const T *q, const T *keys, int64_t count,
                             int width, double scale) {
  std::vector<double> scores(count);
  for (int64_t key = 0; key < count; ++key) {
    for (int i = 0; i < width; ++i)
      scores[key] += double(numberOf(q[i])) * numberOf(keys[key * width + i]);
    scores[key] *= scale;
  }
  return scores;
}

/// So many of [0, count), the first and the last among them.
std::vector<int64_t> someOf(int64_t count, int64_t most) {
  std::vector<int64_t> some;
  for (int64_t i = 0; i < std::min(count, most); ++i)
    some.push_back(count <= most ? i : (count - 1) * i / (most - 1));
  return some;
}

/// A kernel whose outputs are `bytes` of `out`.
template <typename T>
Kernel makeKernel(std::vector<Form> forms, const Memory &out, size_t bytes,
                  std::shared_ptr<Judge<T>> judge) {
  Kernel kernel;
  kernel.forms = std::move(forms);
  void *at = out.data();
  kernel.wipe = [at, bytes] { std::memset(at, 0xff, bytes); };
  kernel.error = [judge] { return judge->error(); };
  kernel.mostError = sizeof(T) == 4 ? 1e-5 : 1e-2;
  return kernel;
}

// Attention

constexpr int kLatentDepth = 576, kLatentWidth = 512;

template <typename T> struct ArraysOf {
  AttentionShape shape;
  const T *q, *k, *v;
  T *out;
  int64_t valuePitch; ///< from one value to the next
};
using AttentionArrays = ArraysOf<float>;

/// Blocks of queries, head after head: a thread begins each of its heads once.
template <typename Block, typename T>
Work attentionWork(const ArraysOf<T> &arrays) {
  return [arrays, states = States<Block>()](const Worker &worker) mutable {
    const AttentionShape &shape = arrays.shape;
    Block &block = states.of(worker, shape);
    if (sizeof(T) == 2)
      beginTiles();
    int64_t blocks = (shape.m + Block::kQueries - 1) / Block::kQueries;
    auto [first, last] = worker.part(shape.heads * blocks);
    int64_t begun = -1;
    for (int64_t item = first; item < last; ++item) {
      int64_t head = item / blocks, row = item % blocks * Block::kQueries;
      if (head != begun)
        block.beginHead(arrays.k + head * shape.n * shape.d,
                        arrays.v + head * shape.n * arrays.valuePitch);
      begun = head;
      block.run(
          arrays.q + (head * shape.m + row) * shape.d,
          arrays.out + (head * shape.m + row) * shape.e, row,
          static_cast<int>(std::min<int64_t>(Block::kQueries, shape.m - row)));
    }
    if (sizeof(T) == 2)
      _tile_release();
  };
}

/// Matrix tiles of bf16; NB: keys of a block.
template <int D, int NB> class ByTiles {
public:
  explicit ByTiles(const AttentionShape &shape)
      : n(static_cast<int>(shape.n)), keys((shape.n + NB) * D * sizeof(Half)),
        values((shape.n + NB) * D * sizeof(Half)) {}

  static constexpr int kQueries = kTileRows;

  void beginHead(const Half *theKeys, const Half *theValues) {
    layKeys<D, NB>(theKeys, n, keys.as<Half>());
    layValues<D, NB>(theValues, n, values.as<Half>());
  }

  void run(const Half *q, Half *out, int64_t, int count) {
    bool isWhole = count == kTileRows;
    if (!isWhole)
      std::copy_n(q, count * D, padded);
    tiles.run(isWhole ? q : padded, keys.as<Half>(), values.as<Half>(),
              isWhole ? out : padded, n);
    if (!isWhole)
      std::copy_n(padded, count * D, out);
  }

private:
  int n;
  Memory keys, values;
  AttentionTiles<D, NB> tiles;
  alignas(64) Half padded[kTileRows * D] = {};
};

template <int D> std::vector<Form> tileForms(const ArraysOf<Half> &a) {
  return {{"tiles-64", attentionWork<ByTiles<D, 64>>(a)},
          {"tiles-128", attentionWork<ByTiles<D, 128>>(a)}};
}

std::vector<Form> attentionForms(const ArraysOf<Half> &a) {
  switch (a.shape.d == a.shape.e && !a.shape.isCausal ? a.shape.d : 0) {
  case 32:
    return tileForms<32>(a);
  case 64:
    return tileForms<64>(a);
  case 128:
    return tileForms<128>(a);
  }
  fail("found a mask, or widths that are not 32, 64 or 128, of bf16");
}

template <int D, RowTiles tiles>
Form byRows(std::string name, const AttentionArrays &a) {
  return {"rows-" + name, attentionWork<ByRows<D, D, tiles>>(a)};
}

template <int D, LaneTiles tiles>
Form byLanes(std::string name, const AttentionArrays &a) {
  return {"lanes-" + name, attentionWork<ByLanes<D, D, tiles>>(a)};
}

template <int D> std::vector<Form> attentionForms(const AttentionArrays &a) {
  using enum Power;
  return {
      byRows<D, RowTiles{64, 256, 8, Rounded, false}>("64x256-8", a),
      byRows<D, RowTiles{72, 256, 12, Reduced, false}>("72x256-12", a),
      byRows<D, RowTiles{64, 512, 8, Reduced, true}>("64x512-8-laid", a),
      byLanes<D, LaneTiles{2, 128, 8, Reduced}>("2x128-8", a),
      byLanes<D, LaneTiles{2, 72, 12, Reduced}>("2x72-12", a),
      byLanes<D, LaneTiles{2, 36, 12, Reduced}>("2x36-12", a),
      byLanes<D, LaneTiles{3, 64, 8, Reduced}>("3x64-8", a),
      byLanes<D, LaneTiles{3, 64, 8, Rounded}>("3x64-8-rounded", a),
      byLanes<D, LaneTiles{3, 32, 8, Reduced}>("3x32-8", a),
      byLanes<D, LaneTiles{3, 128, 8, Magic}>("3x128-8-magic", a),
      byLanes<D, LaneTiles{4, 60, 6, Reduced}>("4x60-6", a),
      byLanes<D, LaneTiles{4, 96, 6, Reduced}>("4x96-6", a),
      byLanes<D, LaneTiles{4, 30, 6, Reduced}>("4x30-6", a),
      byLanes<D, LaneTiles{1, 128, 16, Reduced}>("1x128-16", a),
  };
}

/// Latent decoding: queries are the heads, values the front of the keys.
template <LaneTiles tiles>
Form latentForm(std::string name, const AttentionArrays &a) {
  return {
      "lanes-" + name,
      attentionWork<ByLanes<kLatentDepth, kLatentWidth, tiles, kLatentDepth>>(
          a)};
}

std::vector<Form> latentForms(const AttentionArrays &a) {
  using enum Power;
  return {
      latentForm<LaneTiles{2, 64, 8, Reduced}>("2x64-8", a),
      latentForm<LaneTiles{2, 128, 8, Reduced}>("2x128-8", a),
      latentForm<LaneTiles{2, 60, 12, Reduced}>("2x60-12", a),
      latentForm<LaneTiles{4, 60, 6, Reduced}>("4x60-6", a),
      latentForm<LaneTiles{4, 96, 6, Reduced}>("4x96-6", a),
      latentForm<LaneTiles{1, 128, 16, Reduced}>("1x128-16", a),
  };
}

std::vector<Form> attentionForms(const AttentionArrays &a) {
  if (a.shape.d == kLatentDepth && a.shape.e == kLatentWidth)
    return latentForms(a);
  switch (a.shape.d == a.shape.e ? a.shape.d : 0) {
  case 32:
    return attentionForms<32>(a);
  case 64:
    return attentionForms<64>(a);
  case 80:
    return attentionForms<80>(a);
  case 128:
    return attentionForms<128>(a);
  }
  fail("found widths of " + std::to_string(a.shape.d) + " and " +
       std::to_string(a.shape.e) + ", expected 32, 64, 80 or 128");
}

template <typename T>
Kernel attentionKernel(const ArraysOf<T> &a, const Memory &out) {
  const AttentionShape &shape = a.shape;
  auto judge = std::make_shared<Judge<T>>(a.out);
  for (int64_t i : someOf(shape.heads * shape.m, 96)) {
    int64_t head = i / shape.m, row = i % shape.m;
    int64_t seen = shape.isCausal ? std::min(shape.n, row + 1) : shape.n;
    judge->expect(i * shape.e,
                  scoresOf(a.q + i * shape.d, a.k + head * shape.n * shape.d,
                           seen, shape.d, shape.scale),
                  a.v + head * shape.n * a.valuePitch, shape.e, a.valuePitch);
  }
  return makeKernel(attentionForms(a), out,
                    shape.heads * shape.m * shape.e * sizeof(T), judge);
}

// Decoding

template <typename T> struct DecodeArrays {
  int64_t batch, n;
  const T *q, *k, *v;
  T *out;
};

/// Each head's keys in so many segments, which are items of the threads.
template <typename T, DecodeTiles tiles>
Form decodeForm(std::string name, const DecodeArrays<T> &a, int segments) {
  using Kind = Decode<T, tiles>;
  auto parts =
      std::make_shared<std::vector<DecodePart>>(a.batch * kGroups * segments);
  if (segments > 1)
    name += "-of" + std::to_string(segments);
  return {name, [a, segments, parts,
                 states = States<Kind>()](const Worker &worker) mutable {
            Kind &state = states.of(worker);
            if constexpr (Kind::kHasTiles)
              beginDecodeTiles();
            int64_t chunks = (a.n + tiles.keys - 1) / tiles.keys;
            int64_t heads = a.batch * kGroups;
            auto [first, last] = worker.part(heads * segments);
            for (int64_t item = first; item < last; ++item) {
              int64_t head = item / segments, at = item % segments;
              int64_t begin = chunks * at / segments * tiles.keys;
              int64_t end =
                  std::min(a.n, chunks * (at + 1) / segments * tiles.keys);
              int64_t from = (head * a.n + begin) * kDecodeWidth;
              state.run(a.q + head * kGroup * kDecodeWidth, a.k + from,
                        a.v + from, std::max<int64_t>(0, end - begin),
                        (*parts)[item]);
            }
            if constexpr (Kind::kHasTiles)
              _tile_release();
            worker.meet();
            auto [firstHead, lastHead] = worker.part(heads);
            for (int64_t head = firstHead; head < lastHead; ++head)
              mergeParts(&(*parts)[head * segments], segments,
                         a.out + head * kGroup * kDecodeWidth);
          }};
}

std::vector<Form> decodeForms(const DecodeArrays<float> &a) {
  using enum Values;
  constexpr Scores kV = Scores::Vectors;
  constexpr int kKb = 1024;
  return {
      decodeForm<float, DecodeTiles{64, 0, false, HalfWidths, kV}>("halves-64",
                                                                   a, 1),
      decodeForm<float, DecodeTiles{64, 8 * kKb, false, HeadPairs, kV}>(
          "pairs-64-8k", a, 1),
      decodeForm<float, DecodeTiles{64, 32 * kKb, true, HeadPairs, kV}>(
          "pairs-64-32k-far", a, 1),
      decodeForm<float, DecodeTiles{64, 8 * kKb, false, HalfWidths, kV}>(
          "halves-64-8k", a, 1),
      decodeForm<float, DecodeTiles{64, 16 * kKb, true, HalfWidths, kV}>(
          "halves-64-16k-far", a, 1),
      decodeForm<float, DecodeTiles{64, 32 * kKb, true, HalfWidths, kV}>(
          "halves-64-32k-far", a, 1),
      decodeForm<float, DecodeTiles{64, 32 * kKb, true, HalfWidths, kV}>(
          "halves-64-32k-far", a, 4),
      decodeForm<float, DecodeTiles{128, 64 * kKb, true, HalfWidths, kV}>(
          "halves-128-64k-far", a, 1),
      decodeForm<float, DecodeTiles{32, 16 * kKb, true, HalfWidths, kV}>(
          "halves-32-16k-far", a, 1),
  };
}

std::vector<Form> decodeForms(const DecodeArrays<Half> &a) {
  using enum Values;
  constexpr Scores kV = Scores::Vectors, kT = Scores::Tiles;
  constexpr int kKb = 1024;
  return {
      decodeForm<Half, DecodeTiles{64, 0, false, HalfWidths, kV}>("halves-64",
                                                                  a, 1),
      decodeForm<Half, DecodeTiles{64, 8 * kKb, false, HeadPairs, kV}>(
          "pairs-64-8k", a, 1),
      decodeForm<Half, DecodeTiles{64, 8 * kKb, false, HalfWidths, kV}>(
          "halves-64-8k", a, 1),
      decodeForm<Half, DecodeTiles{128, 8 * kKb, false, HalfWidths, kV}>(
          "halves-128-8k", a, 1),
      decodeForm<Half, DecodeTiles{128, 8 * kKb, false, HalfWidths, kV}>(
          "halves-128-8k", a, 4),
      decodeForm<Half, DecodeTiles{128, 16 * kKb, true, HalfWidths, kV}>(
          "halves-128-16k-far", a, 1),
      decodeForm<Half, DecodeTiles{128, 32 * kKb, true, HalfWidths, kV}>(
          "halves-128-32k-far", a, 1),
      decodeForm<Half, DecodeTiles{128, 0, false, HalfWidths, kT}>(
          "tile-scores-128", a, 1),
      decodeForm<Half, DecodeTiles{128, 8 * kKb, false, HalfWidths, kT}>(
          "tile-scores-128-8k", a, 1),
      decodeForm<Half, DecodeTiles{128, 32 * kKb, true, HalfWidths, kT}>(
          "tile-scores-128-32k-far", a, 1),
      decodeForm<Half, DecodeTiles{128, 8 * kKb, false, Tiles, kV}>(
          "tile-values-128-8k", a, 1),
      decodeForm<Half, DecodeTiles{128, 8 * kKb, false, Tiles, kT}>(
          "tiles-128-8k", a, 1),
  };
}

template <typename T>
Kernel decodeKernel(const DecodeArrays<T> &a, const Memory &out) {
  constexpr int64_t kWidth = kDecodeWidth;
  int64_t heads = a.batch * kGroups * kGroup;
  auto judge = std::make_shared<Judge<T>>(a.out);
  for (int64_t head : someOf(heads, 12)) {
    int64_t from = head / kGroup * a.n * kWidth;
    judge->expect(head * kWidth,
                  scoresOf(a.q + head * kWidth, a.k + from, a.n, kWidth,
                           1 / std::sqrt(double(kWidth))),
                  a.v + from, kWidth, kWidth);
  }
  return makeKernel(decodeForms(a), out, heads * kWidth * sizeof(T), judge);
}

// What is asked for

void expectShape(const Array &array, const std::vector<int64_t> &shape,
                 const char *name) {
  if (array.shape != shape)
    fail("found another shape of " + std::string(name) + " than expected");
}

template <typename T> int serveDecode(const std::vector<Array> &in) {
  DecodeArrays<T> a = {in[1].shape.at(0), in[1].shape.at(2), in[0].as<T>(),
                       in[1].as<T>(),     in[2].as<T>(),     nullptr};
  expectShape(in[0], {a.batch, kGroups * kGroup, kDecodeWidth}, "q");
  expectShape(in[1], {a.batch, kGroups, a.n, kDecodeWidth}, "k");
  expectShape(in[2], {a.batch, kGroups, a.n, kDecodeWidth}, "v");
  Memory out(in[0].count() * sizeof(T));
  a.out = out.as<T>();
  return serveTurns(decodeKernel(a, out));
}

float rootScale(int64_t width) { return 1 / std::sqrt(float(width)); }

template <typename T>
int serveAttention(const std::vector<Array> &in, bool isCausal) {
  const std::vector<int64_t> &q = in[0].shape, &v = in[2].shape;
  if (q.size() != 4 || v.size() != 4)
    fail("expected arrays of four extents");
  AttentionShape shape = {q[0] * q[1], q[2],     v[2],           q[3],
                          v[3],        isCausal, rootScale(q[3])};
  expectShape(in[1], {q[0], q[1], shape.n, shape.d}, "k");
  Memory out(shape.heads * shape.m * shape.e * sizeof(T));
  ArraysOf<T> a = {shape,         in[0].as<T>(), in[1].as<T>(),
                   in[2].as<T>(), out.as<T>(),   shape.e};
  return serveTurns(attentionKernel(a, out));
}

AttentionShape latentShape(int64_t batch, int64_t heads, int64_t n) {
  return {batch, heads, n, kLatentDepth, kLatentWidth, false, rootScale(192)};
}

int serveLatent(const std::vector<Array> &in) {
  AttentionShape shape =
      latentShape(in[0].shape.at(0), in[0].shape.at(1), in[1].shape.at(1));
  expectShape(in[0], {shape.heads, shape.m, kLatentDepth}, "q");
  expectShape(in[1], {shape.heads, shape.n, kLatentDepth}, "c");
  Memory out(shape.heads * shape.m * shape.e * sizeof(float));
  AttentionArrays a = {
      shape,           in[0].as<float>(), in[1].as<float>(), in[1].as<float>(),
      out.as<float>(), kLatentDepth};
  return serveTurns(attentionKernel(a, out));
}

int serve(const std::string &workload, const std::vector<Array> &in) {
  bool isLatent = workload == "latent_decode";
  if (in.size() != (isLatent ? 2 : 3))
    fail("expected queries, keys and values, or queries and a cache");
  const std::string &type = in[0].type;
  if (isLatent && type == "<f4")
    return serveLatent(in);
  if (workload == "decode" && type == "<f4")
    return serveDecode<float>(in);
  if (workload == "decode" && type.ends_with("V2"))
    return serveDecode<Half>(in);
  if (workload == "attention" && type == "<f4")
    return serveAttention<float>(in, false);
  if (workload == "attention" && type.ends_with("V2"))
    return serveAttention<Half>(in, false);
  if (workload == "attention_causal" && type == "<f4")
    return serveAttention<float>(in, true);
  fail("found workload " + workload + " of type " + type +
       ", expected attention, attention_causal, decode, latent_decode");
}

// Small odd shapes, with scores that grow and scores far from zero

enum class Inputs { Usual, Growing, Offset };

template <typename T>
void fill(const Memory &memory, int64_t rows, int width, Inputs kind,
          bool areKeys) {
  static unsigned seed = 0;
  std::mt19937 random(++seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < rows * width; ++i) {
    float x = normal(random);
    if (areKeys && kind == Inputs::Growing)
      x *= 1 + 12 * float(i / width) / float(rows);
    if (kind == Inputs::Offset)
      x = (areKeys && i / width % 64 < 32 ? -2.0f : 2.0f) + x * 0.2f;
    if constexpr (sizeof(T) == 4)
      memory.as<T>()[i] = x;
    else
      memory.as<T>()[i] = narrow(x);
  }
}

bool judge(const char *what, int64_t m, int64_t n, int64_t width, Inputs kind,
           const Kernel &kernel) {
  bool isRight = true;
  // Scores of hundreds are known to 2^-24 of that, and weights no better.
  double most = kernel.mostError * (kind == Inputs::Usual ? 1 : 5);
  for (const Form &form : kernel.forms)
    for (int threads : {1, 2}) {
      kernel.wipe();
      Crew(threads).run(form.work);
      double error = kernel.error();
      if (error <= most)
        continue;
      std::printf("%s m %ld, n %ld, width %ld, %s, %d threads: error %.2e\n",
                  what, long(m), long(n), long(width), form.name.c_str(),
                  threads, error);
      isRight = false;
    }
  return isRight;
}

template <typename T>
bool testAttention(int64_t m, int64_t n, int64_t width, bool isCausal,
                   Inputs kind) {
  constexpr int64_t kHeads = 3;
  AttentionShape shape = {kHeads,          m, n, width, width, isCausal,
                          rootScale(width)};
  Memory q(kHeads * m * width * sizeof(T)), k(kHeads * n * width * sizeof(T)),
      v(kHeads * n * width * sizeof(T)), out(kHeads * m * width * sizeof(T));
  fill<T>(q, kHeads * m, width, kind, false);
  fill<T>(k, kHeads * n, width, kind, true);
  fill<T>(v, kHeads * n, width, Inputs::Usual, false);
  ArraysOf<T> a = {shape,     q.as<T>(),   k.as<T>(),
                   v.as<T>(), out.as<T>(), shape.e};
  return judge(isCausal         ? "attention_causal"
               : sizeof(T) == 2 ? "attention bf16"
                                : "attention",
               m, n, width, kind, attentionKernel(a, out));
}

bool testLatent(int64_t heads, int64_t n, Inputs kind) {
  AttentionShape shape = latentShape(2, heads, n);
  Memory q(2 * heads * kLatentDepth * 4), c(2 * n * kLatentDepth * 4),
      out(2 * heads * kLatentWidth * 4);
  fill<float>(q, 2 * heads, kLatentDepth, kind, false);
  fill<float>(c, 2 * n, kLatentDepth, kind, true);
  AttentionArrays a = {shape,         q.as<float>(),   c.as<float>(),
                       c.as<float>(), out.as<float>(), kLatentDepth};
  return judge("latent_decode", heads, n, kLatentDepth, kind,
               attentionKernel(a, out));
}

template <typename T> bool testDecode(int64_t batch, int64_t n, Inputs kind) {
  constexpr int64_t kWidth = kDecodeWidth;
  int64_t queries = batch * kGroups * kGroup, keys = batch * kGroups * n;
  Memory q(queries * kWidth * sizeof(T)), k(keys * kWidth * sizeof(T)),
      v(keys * kWidth * sizeof(T)), out(queries * kWidth * sizeof(T));
  fill<T>(q, queries, kWidth, kind, false);
  fill<T>(k, keys, kWidth, kind, true);
  fill<T>(v, keys, kWidth, Inputs::Usual, false);
  DecodeArrays<T> a = {batch, n, q.as<T>(), k.as<T>(), v.as<T>(), out.as<T>()};
  return judge(sizeof(T) == 4 ? "decode f32" : "decode bf16", batch, n, kWidth,
               kind, decodeKernel(a, out));
}

int selfTest() {
  bool isRight = true;
  for (Inputs kind : {Inputs::Usual, Inputs::Growing, Inputs::Offset})
    for (int64_t n : {1, 9, 37, 257}) {
      isRight &= testDecode<float>(1, n, kind);
      isRight &= testDecode<Half>(2, n, kind);
      isRight &= testLatent(n == 37 ? 128 : 5, n, kind);
      for (int64_t width : {32, 64, 80, 128})
        for (int64_t m : {1, 37, 257}) {
          isRight &= testAttention<float>(m, n, width, false, kind);
          if (width != 80)
            isRight &= testAttention<Half>(m, n, width, false, kind);
          isRight &= testAttention<float>(m, n, width, true, kind);
        }
    }
  std::puts(isRight ? "all forms are right" : "error: some forms are wrong");
  return isRight ? 0 : 1;
}

} // namespace

int main(int argc, char **argv) {
  if (!beginTiles())
    fail("found no matrix tiles (AMX)");
  _tile_release();
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words == std::vector<std::string>{"--self-test"})
    return selfTest();
  if (words.empty())
    fail("expected WORKLOAD INPUT.npy... or --self-test");
  std::vector<Array> inputs;
  for (size_t i = 1; i < words.size(); ++i)
    inputs.push_back(readNpy(words[i]));
  return serve(words[0], inputs);
}
