// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows in f32 by AVX-512, written by hand: what may be asked of the compiler.
//
//   rows_by_hand WORKLOAD INPUT.npy...    takes turns, as Turns.h says
//   rows_by_hand --self-test              all workloads on small and odd rows
//
// Inputs are in the order of the workload's program (benchmarks/suite).
#include "RowsForms.h"

#include <random>

using namespace byhand;

namespace {

/// A workload: its inputs, the answer of one row in double, and its forms.
struct Workload {
  const char *name;
  int inputs;  ///< how many arrays
  int outputs; ///< of one float a row; 0 if elements are written
  /// Whether the arrays behind x are rows as well, or columns.
  bool hasTwoRows, hasLabel;
  std::vector<Form> (*forms)(const Problem &);
};

const Workload kWorkloads[] = {
    {"softmax", 1, 0, false, false, softmaxForms},
    {"layernorm", 3, 0, false, false, writeForms<LayerNorm>},
    {"rmsnorm", 2, 0, false, false, writeForms<RmsNorm>},
    {"rmsnorm_int8", 2, 1, false, false, writeForms<RmsNormInt8>},
    {"logsumexp", 1, 1, false, false, reduceForms<LogSumExp, true>},
    {"cross_entropy", 2, 1, false, true, reduceForms<LogSumExp, true>},
    {"entropy", 1, 1, false, false, reduceForms<Entropy, true>},
    {"variance", 1, 2, false, false, reduceForms<Variance, false>},
    {"kurtosis", 1, 1, false, false, reduceForms<Kurtosis, false>},
    {"token_statistics", 3, 3, true, true, reduceForms<Divergence<true>, true>},
    {"kl_divergence", 2, 1, true, false, reduceForms<Divergence<false>, true>},
};

/// Of a row in double, with z = Σ e^(x - most).
struct Exact {
  double most = -INFINITY, z = 0, weighted = 0, mean = 0, second = 0,
         fourth = 0, square = 0;

  Exact(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      most = std::max<double>(most, x[i]);
      mean += x[i];
      square += static_cast<double>(x[i]) * x[i];
    }
    mean /= static_cast<double>(n);
    square /= static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) {
      double t = x[i] - most, e = t > -745 ? std::exp(t) : 0;
      double d = x[i] - mean, dd = d * d;
      z += e;
      weighted += e > 0 ? e * t : 0;
      second += dd / static_cast<double>(n);
      fourth += dd * dd / static_cast<double>(n);
    }
  }
  double logSum() const { return most + std::log(z); }
};

/// The answer in double, rounded, of some rows, and how to compare with it.
class Judge {
public:
  /// Large arrays are judged by each seventh row.
  Judge(const Workload &workload, const Problem &p)
      : workload(workload), p(p), name(workload.name),
        every(p.m * p.n > (16 << 20) ? 7 : 1), rows((p.m + every - 1) / every),
        elements(workload.outputs == 0 || p.bytes ? rows * p.n : 0),
        sums(3 * rows) {
    Crew(2).run([&](const Worker &worker) {
      auto [first, last] = worker.part(rows);
      for (int64_t row = first; row < last; ++row)
        findAnswer(row);
    });
  }

  /// The largest error of all outputs, relative to what the workload says.
  double error() const {
    std::array<double, 2> worst = {};
    Crew(2).run([&](const Worker &worker) {
      auto [first, last] = worker.part(rows);
      double most = 0;
      for (int64_t row = first; row < last; ++row)
        most = worse(most, errorOf(row));
      worst[worker.index] = most;
    });
    return worse(worst[0], worst[1]);
  }

private:
  static double worse(double a, double b) { return b <= a ? a : b; }
  static double gap(double got, double exact, double scale) {
    return got == exact ? 0 : std::abs(got - exact) / scale;
  }

  void findAnswer(int64_t at) {
    int64_t row = at * every;
    const float *x = p.x + row * p.n;
    Exact exact(x, p.n);
    double *sum = &sums[3 * at];
    float *y = elements.empty() ? nullptr : &elements[at * p.n];
    if (name == "softmax") {
      for (int64_t i = 0; i < p.n; ++i)
        y[i] = static_cast<float>(std::exp(x[i] - exact.most) / exact.z);
    } else if (name == "layernorm") {
      double scale = 1 / std::sqrt(exact.second + 1e-5);
      for (int64_t i = 0; i < p.n; ++i)
        y[i] = static_cast<float>((x[i] - exact.mean) * scale * p.other[i] +
                                  p.beta[i]);
    } else if (name == "rmsnorm" || name == "rmsnorm_int8") {
      double scale = 1 / std::sqrt(exact.square + 1e-6), most = 0;
      for (int64_t i = 0; i < p.n; ++i)
        most = std::max(most, std::abs(x[i] * scale * p.other[i]));
      sum[0] = most / 127;
      if (p.bytes)
        scale *= 127 / most;
      for (int64_t i = 0; i < p.n; ++i)
        y[i] = static_cast<float>(x[i] * scale * p.other[i]);
    } else if (name == "logsumexp") {
      sum[0] = exact.logSum();
    } else if (name == "cross_entropy") {
      sum[0] = exact.logSum() - x[p.label[row]];
    } else if (name == "entropy") {
      sum[0] = std::log(exact.z) - exact.weighted / exact.z;
    } else if (name == "variance") {
      sum[0] = exact.mean;
      sum[1] = exact.second;
      sum[2] = std::sqrt(exact.square); // what the mean's error is held against
    } else if (name == "kurtosis") {
      sum[0] = exact.fourth / (exact.second * exact.second);
    } else {
      Exact other(p.other + row * p.n, p.n);
      const float *ref = p.other + row * p.n;
      double gaps = 0;
      for (int64_t i = 0; i < p.n; ++i)
        gaps += std::exp(x[i] - exact.most) * (double(x[i]) - ref[i]);
      bool hasAll = workload.outputs == 3;
      sum[hasAll ? 2 : 0] = gaps / exact.z - exact.logSum() + other.logSum();
      if (hasAll) {
        sum[0] = x[p.label[row]] - exact.logSum();
        sum[1] = std::log(exact.z) - exact.weighted / exact.z;
      }
    }
  }

  double errorOf(int64_t at) const {
    int64_t row = at * every;
    const double *sum = &sums[3 * at];
    double most = 0;
    for (int k = 0; k < workload.outputs; ++k) {
      double scale = std::max(1.0, std::abs(sum[k]));
      if (name == "variance")
        scale = k == 0 ? sum[2] : sum[1];
      if (name == "rmsnorm_int8" || name == "kurtosis")
        scale = std::abs(sum[k]);
      most = worse(most, gap(p.out[k][row], sum[k], std::max(scale, 1e-30)));
    }
    if (elements.empty())
      return most;
    const float *exact = &elements[at * p.n];
    if (p.bytes) {
      // A rounding may go either way where the value is this near a half.
      const int8_t *q = p.bytes + row * p.n;
      constexpr double kNearHalf = 1e-3, kUnit = 1e-5;
      double far = 0;
      for (int64_t i = 0; i < p.n; ++i)
        far = worse(far, std::abs(q[i] - double(exact[i])));
      return worse(most, std::max(0.0, far - 0.5) * kUnit / kNearHalf);
    }
    const float *y = p.out[0] + row * p.n;
    float least = name == "softmax" ? 1e-30f : 1.0f;
    for (int64_t i = 0; i < p.n; ++i)
      most = worse(most, std::abs(y[i] - exact[i]) /
                             std::max(std::abs(exact[i]), least));
    return most;
  }

  const Workload &workload;
  const Problem &p;
  std::string name;
  int64_t every, rows;
  std::vector<float> elements;
  std::vector<double> sums;
};

/// A problem with its inputs and outputs, and all that turns need of it.
struct Case {
  Problem problem;
  std::vector<Memory> outputs;
  std::unique_ptr<Judge> judge;
  Kernel kernel;

  /// `arrays` has x first, and stays.
  Case(const Workload &workload, int64_t m, int64_t n,
       const std::vector<const void *> &arrays) {
    Problem &p = problem;
    p.m = m;
    p.n = n;
    p.x = static_cast<const float *>(arrays[0]);
    int at = 1;
    if (workload.hasTwoRows || (!workload.hasLabel && workload.inputs > 1))
      p.other = static_cast<const float *>(arrays[at++]);
    if (workload.inputs == 3 && !workload.hasLabel)
      p.beta = static_cast<const float *>(arrays[at++]);
    if (workload.hasLabel)
      p.label = static_cast<const int64_t *>(arrays[at++]);
    bool hasBytes = std::strcmp(workload.name, "rmsnorm_int8") == 0;
    size_t floats = workload.outputs == 0 ? m * n : m;
    auto make = [&](size_t bytes) {
      outputs.emplace_back(bytes);
      return std::pair(outputs.back().data(), bytes);
    };
    std::vector<std::pair<void *, size_t>> made;
    if (hasBytes) {
      made.push_back(make(m * n));
      p.bytes = static_cast<int8_t *>(made.back().first);
    }
    for (int k = 0; k < std::max(workload.outputs, 1); ++k) {
      made.push_back(make(floats * sizeof(float)));
      p.out[k] = static_cast<float *>(made.back().first);
    }
    kernel.forms = workload.forms(p);
    kernel.wipe = [made] {
      for (auto [at, bytes] : made)
        std::memset(at, 0xa5, bytes);
    };
    judge = std::make_unique<Judge>(workload, p);
    kernel.error = [this] { return judge->error(); };
  }
};

/// Rows of the self-test: what makes pivots move, and what is lost below them.
enum class Kind { Normal, Growing, Falling, Offset, Masked, Late };

std::vector<float> makeRows(Kind kind, int64_t m, int64_t n,
                            std::mt19937 &random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(m * n);
  for (int64_t i = 0; i < m * n; ++i) {
    int64_t column = i % n;
    float along = n > 1 ? 400.0f * column / static_cast<float>(n - 1) - 200 : 0;
    float value = normal(random);
    switch (kind) {
    case Kind::Normal:
      break;
    case Kind::Growing:
      value += along;
      break;
    case Kind::Falling:
      value -= along;
      break;
    case Kind::Offset:
      value += i / n % 2 ? 1e4f : -1e4f; // each far from the row before it
      break;
    case Kind::Masked:
      value = column % 3 || column == n - 1 ? value : -INFINITY;
      break;
    case Kind::Late:
      value = column == n - 1 ? 60.0f : value;
      break;
    }
    x[i] = value;
  }
  return x;
}

/// How many forms err; says which.
int testCase(const Workload &workload, Kind kind, int64_t m, int64_t n,
             std::mt19937 &random) {
  // Room behind the end, as in arrays that are read from files.
  auto padded = [](std::vector<float> x) {
    Memory memory(x.size() * sizeof(float));
    std::copy(x.begin(), x.end(), memory.as<float>());
    return memory;
  };
  Memory x = padded(makeRows(kind, m, n, random));
  Memory other =
      padded(makeRows(workload.hasTwoRows ? kind : Kind::Normal, m, n, random));
  Memory beta = padded(makeRows(Kind::Normal, 1, n, random));
  std::vector<int64_t> label(m);
  for (int64_t row = 0; row < m; ++row)
    label[row] = n - 1 - row % std::min<int64_t>(n, 3) / 2;
  std::vector<const void *> arrays = {x.data()};
  if (workload.hasTwoRows || (!workload.hasLabel && workload.inputs > 1))
    arrays.push_back(other.data());
  if (workload.inputs == 3 && !workload.hasLabel)
    arrays.push_back(beta.data());
  if (workload.hasLabel)
    arrays.push_back(label.data());
  Case one(workload, m, n, arrays);
  int wrong = 0;
  for (const Form &form : one.kernel.forms)
    for (int threads : {1, 2}) {
      one.kernel.wipe();
      Crew(threads).run(form.work);
      double error = one.kernel.error();
      if (error <= one.kernel.mostError)
        continue;
      ++wrong;
      std::printf("%s %s, rows %d of %ld: errs by %.2e with %d threads\n",
                  workload.name, form.name.c_str(), static_cast<int>(kind),
                  static_cast<long>(n), error, threads);
    }
  return wrong;
}

bool isOfExponentials(const Workload &workload) {
  std::string name = workload.name;
  return name == "softmax" || name == "logsumexp" || name == "cross_entropy" ||
         name == "entropy";
}

int selfTest() {
  std::mt19937 random(1);
  int wrong = 0;
  for (const Workload &workload : kWorkloads)
    for (Kind kind : {Kind::Normal, Kind::Growing, Kind::Falling, Kind::Offset,
                      Kind::Masked, Kind::Late})
      for (int64_t n : {1, 5, 37, 64, 1000, 1024, 5000})
        for (int64_t m : {1, 7}) {
          bool isInfinite = kind == Kind::Masked;
          // One element has no fourth moment, and of few that lie far from 0
          // a variance is rounding.
          bool isDegenerate =
              n == 1 && std::string(workload.name) == "kurtosis";
          if (isDegenerate || (isInfinite && !isOfExponentials(workload)))
            continue;
          wrong += testCase(workload, kind, m, n, random);
        }
  std::printf("%d wrong\n", wrong);
  return wrong > 0;
}

} // namespace

int main(int count, char **arguments) {
  if (count == 2 && std::strcmp(arguments[1], "--self-test") == 0)
    return selfTest();
  const Workload *found = nullptr;
  for (const Workload &workload : kWorkloads)
    if (count > 1 && std::strcmp(arguments[1], workload.name) == 0)
      found = &workload;
  if (!found || count != 2 + found->inputs)
    fail("expected a workload of rows and its inputs, or --self-test");
  std::vector<Array> arrays;
  std::vector<const void *> data;
  for (int i = 2; i < count; ++i) {
    arrays.push_back(readNpy(arguments[i]));
    data.push_back(arrays.back().as<void>());
    const char *type = found->hasLabel && i + 1 == count ? "<i8" : "<f4";
    if (arrays.back().type != type)
      fail("found " + arrays.back().type + " in " + arguments[i] +
           ", expected " + type);
  }
  if (arrays[0].shape.size() != 2)
    fail("found another rank than 2 of the first input");
  Case one(*found, arrays[0].shape[0], arrays[0].shape[1], data);
  return serveTurns(one.kernel);
}
