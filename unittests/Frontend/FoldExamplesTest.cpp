// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The examples against their formulas, written out by hand: the reference reads
// the same lowering as the compiler, so it cannot notice a wrong one.
#include "FoldTestSupport.h"
#include "llvm/Support/MemoryBuffer.h"
#include <random>

using namespace refold;

namespace {

std::string example(const std::string &name) {
  auto buffer = llvm::MemoryBuffer::getFile(std::string(REFOLD_SOURCE_DIR) +
                                            "/examples/" + name + ".fold");
  return buffer ? (*buffer)->getBuffer().str() : "";
}

Tensor random(std::vector<int64_t> shape, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  Tensor tensor = llvm::cantFail(Tensor::create(DType::F32, shape));
  for (int64_t i = 0; i < tensor.numElements(); ++i)
    tensor.set(i, normal(engine));
  return tensor;
}

/// An element by its subscripts.
double at(const Tensor &tensor, std::vector<int64_t> subscripts) {
  int64_t position = 0;
  for (size_t i = 0; i < subscripts.size(); ++i)
    position = position * tensor.shape()[i] + subscripts[i];
  return tensor.get(position);
}

void expectClose(const std::vector<double> &found,
                 const std::vector<double> &expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_LE(std::abs(found[i] - expected[i]),
              1e-6 * (1 + std::abs(expected[i])))
        << "element " << i;
}

/// Softmax of scores, times values.
double weigh(const std::vector<double> &scores,
             const std::vector<double> &values) {
  double most = -kInf, total = 0, result = 0;
  for (double score : scores)
    most = std::max(most, score);
  for (size_t i = 0; i < scores.size(); ++i) {
    total += std::exp(scores[i] - most);
    result += std::exp(scores[i] - most) * values[i];
  }
  return result / total;
}

/// Attention with `group` query heads to one of k and v; score(h, m, n, s)
/// alters a scaled product.
template <typename Score>
std::vector<double> attention(const Tensor &q, const Tensor &k, const Tensor &v,
                              int64_t group, Score score) {
  std::vector<double> result;
  auto [B, H, M, D] =
      std::tuple(q.shape()[0], q.shape()[1], q.shape()[2], q.shape()[3]);
  int64_t N = k.shape()[2], E = v.shape()[3];
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t m = 0; m < M; ++m)
        for (int64_t e = 0; e < E; ++e) {
          std::vector<double> scores, values;
          for (int64_t n = 0; n < N; ++n) {
            double dot = 0;
            for (int64_t d = 0; d < D; ++d)
              dot += at(q, {b, h, m, d}) * at(k, {b, h / group, n, d});
            scores.push_back(score(h, m, n, dot / std::sqrt(double(D))));
            values.push_back(at(v, {b, h / group, n, e}));
          }
          result.push_back(weigh(scores, values));
        }
  return result;
}

TEST(FoldExamplesTest, Attention) {
  Tensor q = random({2, 2, 5, 3}, 1), k = random({2, 2, 7, 3}, 2),
         v = random({2, 2, 7, 4}, 3), slope = random({2}, 4);
  auto plain = [](int64_t, int64_t, int64_t, double s) { return s; };
  auto causal = [](int64_t, int64_t m, int64_t n, double s) {
    return n <= m ? s : -kInf;
  };
  auto alibi = [&](int64_t h, int64_t m, int64_t n, double s) {
    return n <= m ? s - slope.get(h) * double(m - n) : -kInf;
  };
  expectClose(run(example("attention"), {q, k, v}).only(),
              attention(q, k, v, 1, plain));
  expectClose(run(example("attention_causal"), {q, k, v}).only(),
              attention(q, k, v, 1, causal));
  expectClose(run(example("attention_alibi"), {q, k, v, slope}).only(),
              attention(q, k, v, 1, alibi));
}

TEST(FoldExamplesTest, GroupedHeads) {
  Tensor q = random({2, 8, 3, 5}, 1), k = random({2, 2, 6, 5}, 2),
         v = random({2, 2, 6, 4}, 3);
  auto plain = [](int64_t, int64_t, int64_t, double s) { return s; };
  expectClose(run(example("attention_gqa"), {q, k, v}).only(),
              attention(q, k, v, 4, plain));
  Tensor token = random({2, 8, 1, 5}, 4);
  Tensor flat = llvm::cantFail(token.clone());
  flat = Tensor::share(DType::F32, {2, 8, 5}, rowMajorStrides({2, 8, 5}),
                       flat.data(), std::make_shared<Tensor>(flat));
  auto filled = [](int64_t, int64_t, int64_t n, double s) {
    return n < 4 ? s : -kInf;
  };
  expectClose(run(example("attention_decode"),
                  {flat, k, v, array(DType::I32, {2}, {4, 4})})
                  .only(),
              attention(token, k, v, 4, filled));
}

TEST(FoldExamplesTest, StatisticsOfRows) {
  Tensor x = random({3, 11}, 1), gamma = random({11}, 2),
         beta = random({11}, 3);
  std::vector<double> mean(3), variance(3), entropy, logSum, norm, softmax;
  for (int64_t m = 0; m < 3; ++m) {
    for (int64_t n = 0; n < 11; ++n)
      mean[m] += at(x, {m, n}) / 11;
    for (int64_t n = 0; n < 11; ++n)
      variance[m] += std::pow(at(x, {m, n}) - mean[m], 2) / 11;
    double total = 0, h = 0;
    for (int64_t n = 0; n < 11; ++n)
      total += std::exp(at(x, {m, n}));
    for (int64_t n = 0; n < 11; ++n) {
      double p = std::exp(at(x, {m, n})) / total;
      softmax.push_back(p);
      h -= p * std::log(p);
      norm.push_back((at(x, {m, n}) - mean[m]) / std::sqrt(variance[m] + 1e-5) *
                         gamma.get(n) +
                     beta.get(n));
    }
    entropy.push_back(h);
    logSum.push_back(std::log(total));
  }
  expectClose(run(example("variance"), {x}).outputs.at(0), mean);
  expectClose(run(example("variance"), {x}).outputs.at(1), variance);
  expectClose(run(example("softmax"), {x}).only(), softmax);
  expectClose(run(example("entropy"), {x}).only(), entropy);
  expectClose(run(example("logsumexp"), {x}).only(), logSum);
  expectClose(run(example("layernorm"), {x, gamma, beta}).only(), norm);
  Tensor label = array(DType::I64, {3}, {10, 0, 4});
  std::vector<double> loss;
  for (int64_t m = 0; m < 3; ++m)
    loss.push_back(logSum[m] - at(x, {m, int64_t(label.get(m))}));
  expectClose(run(example("cross_entropy"), {x, label}).only(), loss);
}

TEST(FoldExamplesTest, QuantisedProduct) {
  Tensor x = random({2, 9}, 1), scale = random({3}, 2);
  std::vector<double> weights;
  for (int i = 0; i < 27; ++i)
    weights.push_back(i * 7 % 50 - 25);
  Tensor w = array(DType::I8, {9, 3}, weights);
  std::vector<double> expected;
  for (int64_t m = 0; m < 2; ++m)
    for (int64_t j = 0; j < 3; ++j) {
      double most = 0, sum = 0;
      for (int64_t n = 0; n < 9; ++n)
        most = std::max(most, std::abs(at(x, {m, n})));
      for (int64_t n = 0; n < 9; ++n)
        sum += std::nearbyint(at(x, {m, n}) * (127 / most)) * at(w, {n, j});
      expected.push_back(sum * most / 127 * scale.get(j));
    }
  expectClose(run(example("quantised_product"), {x, w, scale}).only(),
              expected);
}

TEST(FoldExamplesTest, Routing) {
  Tensor x = random({2, 4}, 1), w = random({4, 12}, 2);
  Outcome outcome = run(example("routing"), {x, w});
  ASSERT_EQ(outcome.error, "");
  std::vector<double> weights, experts;
  for (int64_t m = 0; m < 2; ++m) {
    std::vector<std::pair<double, double>> scores;
    double total = 0;
    for (int64_t n = 0; n < 12; ++n) {
      double s = 0;
      for (int64_t d = 0; d < 4; ++d)
        s += at(x, {m, d}) * at(w, {d, n});
      scores.push_back({-s, double(n)});
      total += std::exp(s);
    }
    std::sort(scores.begin(), scores.end());
    for (int r = 0; r < 8; ++r) {
      weights.push_back(std::exp(-scores[r].first) / total);
      experts.push_back(scores[r].second);
    }
  }
  expectClose(outcome.outputs[0], weights);
  EXPECT_EQ(outcome.outputs[1], experts);
}

TEST(FoldExamplesTest, NearestNeighbour) {
  Tensor x = random({4, 3}, 1), y = random({6, 3}, 2);
  Outcome outcome = run(example("nearest_neighbour"), {x, y});
  ASSERT_EQ(outcome.error, "");
  for (int64_t m = 0; m < 4; ++m) {
    double least = kInf, which = -1;
    for (int64_t n = 0; n < 6; ++n) {
      double distance = 0;
      for (int64_t d = 0; d < 3; ++d)
        distance += std::pow(at(x, {m, d}) - at(y, {n, d}), 2);
      if (distance < least) {
        least = distance;
        which = n;
      }
    }
    EXPECT_EQ(outcome.outputs[0][m], which);
    EXPECT_NEAR(outcome.outputs[1][m], least, 1e-9);
  }
}

TEST(FoldExamplesTest, GroupNorm) {
  Tensor x = random({2, 3, 4, 5}, 1), gamma = random({3, 4}, 2),
         beta = random({3, 4}, 3);
  std::vector<double> expected;
  for (int64_t group = 0; group < 6; ++group) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < 20; ++i)
      mean += x.get(group * 20 + i) / 20;
    for (int64_t i = 0; i < 20; ++i)
      variance += std::pow(x.get(group * 20 + i) - mean, 2) / 20;
    for (int64_t i = 0; i < 20; ++i)
      expected.push_back((x.get(group * 20 + i) - mean) /
                             std::sqrt(variance + 1e-5) *
                             gamma.get(group % 3 * 4 + i / 5) +
                         beta.get(group % 3 * 4 + i / 5));
  }
  expectClose(run(example("groupnorm"), {x, gamma, beta}).only(), expected);
}

TEST(FoldExamplesTest, ProductsAndDivergences) {
  Tensor x = random({2, 5}, 1), gamma = random({5}, 2), w = random({5, 3}, 3);
  std::vector<double> product;
  for (int64_t m = 0; m < 2; ++m)
    for (int64_t j = 0; j < 3; ++j) {
      double square = 0, sum = 0;
      for (int64_t n = 0; n < 5; ++n) {
        square += std::pow(at(x, {m, n}), 2) / 5;
        sum += at(x, {m, n}) * gamma.get(n) * at(w, {n, j});
      }
      product.push_back(sum / std::sqrt(square + 1e-6));
    }
  expectClose(run(example("rmsnorm_product"), {x, gamma, w}).only(), product);

  Tensor a = random({2, 5}, 4), b = random({2, 5}, 5);
  std::vector<double> divergence;
  for (int64_t m = 0; m < 2; ++m) {
    double totalA = 0, totalB = 0, sum = 0;
    for (int64_t n = 0; n < 5; ++n) {
      totalA += std::exp(at(a, {m, n}));
      totalB += std::exp(at(b, {m, n}));
    }
    for (int64_t n = 0; n < 5; ++n) {
      double p = std::exp(at(a, {m, n})) / totalA;
      sum += p * std::log(p / (std::exp(at(b, {m, n})) / totalB));
    }
    divergence.push_back(sum);
  }
  expectClose(run(example("kl_divergence"), {a, b}).only(), divergence);
}

} // namespace
