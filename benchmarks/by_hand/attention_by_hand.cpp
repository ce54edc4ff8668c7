// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention and decoding by kernels written by hand, which take turns with the
// compiler's in benchmarks/harness (Turns.h has the talk).
//
//   attention_by_hand WORKLOAD INPUT.npy...   decode, attention, ...
//   attention_by_hand --self-test
#include "Attention.h"
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

/// Rows of the answer in double, and how far the outputs are from them.
template <typename T> class Judge {
public:
  explicit Judge(const T *out) : out(out) {}

  /// Softmax of `scores` times rows of `width` values, to stand at out[at].
  void expect(int64_t at, const std::vector<double> &scores, const T *values,
              int width) {
    double top = *std::max_element(scores.begin(), scores.end()), total = 0;
    Row row = {at, std::vector<double>(width)};
    for (size_t key = 0; key < scores.size(); ++key) {
      double weight = std::exp(scores[key] - top);
      total += weight;
      for (int e = 0; e < width; ++e)
        row.right[e] += weight * numberOf(values[key * width + e]);
    }
    for (double &x : row.right) {
      x /= total;
      largest = std::max(largest, std::abs(x));
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

/// Products of `q` and rows of as many numbers, over the root of `width`.
template <typename T>
std::vector<double> scoresOf(const T *q, const T *keys, int64_t count,
                             int width) {
  std::vector<double> scores(count);
  for (int64_t key = 0; key < count; ++key) {
    for (int i = 0; i < width; ++i)
      scores[key] += double(numberOf(q[i])) * numberOf(keys[key * width + i]);
    scores[key] /= std::sqrt(double(width));
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
  kernel.mostError = sizeof(T) == 4 ? 1e-5 : 2e-2;
  return kernel;
}

// Attention

struct AttentionArrays {
  AttentionShape shape;
  const float *q, *k, *v;
  float *out;
};

/// Blocks of queries, head after head: a thread begins each of its heads once.
template <typename Block> Work attentionWork(const AttentionArrays &arrays) {
  return [arrays, states = States<Block>()](const Worker &worker) mutable {
    const AttentionShape &shape = arrays.shape;
    Block &block = states.of(worker, shape);
    int64_t blocks = (shape.m + Block::kQueries - 1) / Block::kQueries;
    auto [first, last] = worker.part(shape.heads * blocks);
    int64_t begun = -1;
    for (int64_t item = first; item < last; ++item) {
      int64_t head = item / blocks, row = item % blocks * Block::kQueries;
      if (head != begun)
        block.beginHead(arrays.k + head * shape.n * shape.d,
                        arrays.v + head * shape.n * shape.e);
      begun = head;
      block.run(
          arrays.q + (head * shape.m + row) * shape.d,
          arrays.out + (head * shape.m + row) * shape.e, row,
          static_cast<int>(std::min<int64_t>(Block::kQueries, shape.m - row)));
    }
  };
}

template <int D> std::vector<Form> attentionForms(const AttentionArrays &a) {
  constexpr Power kRounded = Power::Rounded;
  return {
      {"rows-64x256-8x2",
       attentionWork<ByRows<D, D, RowTiles{64, 256, 8, kRounded, false}>>(a)},
      {"rows-64x512-8x2",
       attentionWork<ByRows<D, D, RowTiles{64, 512, 8, kRounded, false}>>(a)},
      {"rows-72x256-12x2",
       attentionWork<ByRows<D, D, RowTiles{72, 256, 12, kRounded, false}>>(a)},
      {"rows-64x256-8x2-laid",
       attentionWork<ByRows<D, D, RowTiles{64, 256, 8, kRounded, true}>>(a)},
      {"rows-64x256-8x2-magic",
       attentionWork<ByRows<D, D, RowTiles{64, 256, 8, Power::Magic, false}>>(
           a)},
      {"lanes-2x128-8",
       attentionWork<ByLanes<D, D, LaneTiles{2, 128, 8, kRounded}>>(a)},
      {"lanes-3x64-8",
       attentionWork<ByLanes<D, D, LaneTiles{3, 64, 8, kRounded}>>(a)},
      {"lanes-3x128-8-magic",
       attentionWork<ByLanes<D, D, LaneTiles{3, 128, 8, Power::Magic}>>(a)},
      {"lanes-4x64-6",
       attentionWork<ByLanes<D, D, LaneTiles{4, 64, 6, kRounded}>>(a)},
      {"lanes-1x128-16",
       attentionWork<ByLanes<D, D, LaneTiles{1, 128, 16, kRounded}>>(a)},
  };
}

std::vector<Form> attentionForms(const AttentionArrays &a) {
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

Kernel attentionKernel(const AttentionArrays &a, const Memory &out) {
  const AttentionShape &shape = a.shape;
  auto judge = std::make_shared<Judge<float>>(a.out);
  for (int64_t i : someOf(shape.heads * shape.m, 96)) {
    int64_t head = i / shape.m, row = i % shape.m;
    int64_t seen = shape.isCausal ? std::min(shape.n, row + 1) : shape.n;
    judge->expect(i * shape.e,
                  scoresOf(a.q + i * shape.d, a.k + head * shape.n * shape.d,
                           seen, shape.d),
                  a.v + head * shape.n * shape.e, shape.e);
  }
  return makeKernel(attentionForms(a), out,
                    shape.heads * shape.m * shape.e * sizeof(float), judge);
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
  constexpr Scores kVectors = Scores::Vectors;
  return {
      decodeForm<float, DecodeTiles{64, 0, false, HeadPairs, kVectors}>(
          "pairs-64", a, 1),
      decodeForm<float, DecodeTiles{64, 4096, false, HeadPairs, kVectors}>(
          "pairs-64-4k", a, 1),
      decodeForm<float, DecodeTiles{64, 8192, false, HeadPairs, kVectors}>(
          "pairs-64-8k", a, 1),
      decodeForm<float, DecodeTiles{64, 8192, false, HeadPairs, kVectors}>(
          "pairs-64-8k", a, 4),
      decodeForm<float, DecodeTiles{64, 16384, true, HeadPairs, kVectors}>(
          "pairs-64-16k-far", a, 1),
      decodeForm<float, DecodeTiles{64, 32768, true, HeadPairs, kVectors}>(
          "pairs-64-32k-far", a, 1),
      decodeForm<float, DecodeTiles{256, 8192, false, HeadPairs, kVectors}>(
          "pairs-256-8k", a, 1),
      decodeForm<float, DecodeTiles{64, 8192, false, HalfWidths, kVectors}>(
          "halves-64-8k", a, 1),
      decodeForm<float, DecodeTiles{256, 0, false, HalfWidths, kVectors}>(
          "halves-256", a, 1),
  };
}

std::vector<Form> decodeForms(const DecodeArrays<Half> &a) {
  using enum Values;
  constexpr Scores kVectors = Scores::Vectors;
  return {
      decodeForm<Half, DecodeTiles{64, 0, false, HeadPairs, kVectors}>(
          "pairs-64", a, 1),
      decodeForm<Half, DecodeTiles{64, 4096, false, HeadPairs, kVectors}>(
          "pairs-64-4k", a, 1),
      decodeForm<Half, DecodeTiles{64, 8192, false, HeadPairs, kVectors}>(
          "pairs-64-8k", a, 1),
      decodeForm<Half, DecodeTiles{64, 16384, true, HeadPairs, kVectors}>(
          "pairs-64-16k-far", a, 1),
      decodeForm<Half, DecodeTiles{128, 8192, false, HalfWidths, kVectors}>(
          "halves-128-8k", a, 1),
      decodeForm<Half, DecodeTiles{64, 8192, false, HeadPairs, Scores::Tiles}>(
          "tile-scores-64-8k", a, 1),
      decodeForm<Half, DecodeTiles{128, 8192, false, Tiles, Scores::Tiles}>(
          "tiles-128-8k", a, 1),
      decodeForm<Half, DecodeTiles{128, 16384, true, Tiles, Scores::Tiles}>(
          "tiles-128-16k-far", a, 1),
      decodeForm<Half, DecodeTiles{128, 0, false, Tiles, Scores::Tiles}>(
          "tiles-128", a, 1),
      decodeForm<Half, DecodeTiles{128, 8192, false, Tiles, Scores::Tiles}>(
          "tiles-128-8k", a, 4),
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
                  scoresOf(a.q + head * kWidth, a.k + from, a.n, kWidth),
                  a.v + from, kWidth);
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

int serveAttention(const std::vector<Array> &in, bool isCausal) {
  const std::vector<int64_t> &q = in[0].shape, &v = in[2].shape;
  if (q.size() != 4 || v.size() != 4)
    fail("expected arrays of four extents");
  AttentionShape shape = {q[0] * q[1], q[2], v[2], q[3], v[3], isCausal};
  expectShape(in[1], {q[0], q[1], shape.n, shape.d}, "k");
  Memory out(shape.heads * shape.m * shape.e * sizeof(float));
  AttentionArrays a = {shape, in[0].as<float>(), in[1].as<float>(),
                       in[2].as<float>(), out.as<float>()};
  return serveTurns(attentionKernel(a, out));
}

int serve(const std::string &workload, const std::vector<Array> &in) {
  if (in.size() != 3)
    fail("expected three inputs");
  const std::string &type = in[0].type;
  if (workload == "decode" && type == "<f4")
    return serveDecode<float>(in);
  if (workload == "decode" && type.ends_with("V2"))
    return serveDecode<Half>(in);
  if (workload == "attention" && type == "<f4")
    return serveAttention(in, false);
  if (workload == "attention_causal" && type == "<f4")
    return serveAttention(in, true);
  fail("found workload " + workload + " of type " + type +
       ", expected decode, attention, attention_causal");
}

// Small odd shapes, with scores that grow and scores far from zero

enum class Inputs { Usual, Growing, Offset };

template <typename T>
void fill(const Memory &memory, int64_t rows, int width, Inputs kind,
          bool areKeys) {
  std::mt19937 random(rows * 7 + width);
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

bool testAttention(int64_t m, int64_t n, int64_t width, bool isCausal,
                   Inputs kind) {
  constexpr int64_t kHeads = 3;
  AttentionShape shape = {kHeads, m, n, width, width, isCausal};
  Memory q(kHeads * m * width * 4), k(kHeads * n * width * 4),
      v(kHeads * n * width * 4), out(kHeads * m * width * 4);
  fill<float>(q, kHeads * m, width, kind, false);
  fill<float>(k, kHeads * n, width, kind, true);
  fill<float>(v, kHeads * n, width, Inputs::Usual, false);
  AttentionArrays a = {shape, q.as<float>(), k.as<float>(), v.as<float>(),
                       out.as<float>()};
  return judge(isCausal ? "attention_causal" : "attention", m, n, width, kind,
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
      for (int64_t width : {32, 64, 80, 128})
        for (int64_t m : {1, 37, 257}) {
          isRight &= testAttention(m, n, width, false, kind);
          isRight &= testAttention(m, n, width, true, kind);
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
