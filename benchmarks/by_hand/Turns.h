// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What kernels by hand share that take turns in benchmarks/harness: arrays,
// threads, and the talk. A kernel has forms; the first line of its program is
//
//   {"checked": true, "error": E, "forms": ["NAME", ...]}
//
// and each line "NAME THREADS RUNS" that it reads is answered by
//
//   {"ms": [...], "thread_ms": T, "faults": F, "form": "NAME"}
//
// where "best" is the fastest form at that number of threads, as found when it
// is first asked for. Threads are begun anew for each turn, outside of what is
// timed, because the harness says before each on which CPUs it runs.
#ifndef REFOLD_BENCHMARKS_BYHAND_TURNS_H
#define REFOLD_BENCHMARKS_BYHAND_TURNS_H

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <immintrin.h>
#include <iostream>
#include <limits>
#include <map>
#include <sched.h>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <thread>
#include <time.h>
#include <utility>
#include <vector>

namespace byhand {

[[noreturn]] inline void fail(const std::string &why) {
  std::fprintf(stderr, "error: %s\n", why.c_str());
  std::exit(2);
}

/// Zeroed, touched, on large pages where the system has them. What is read or
/// asked for beyond its end, up to a large page, is there as well.
class Memory {
public:
  explicit Memory(size_t bytes = 0) : bytes((bytes / kPage + 2) * kPage) {
    void *at = mmap(nullptr, this->bytes + kPage, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
      fail("found no memory for " + std::to_string(bytes) + " bytes");
    begin = static_cast<char *>(at);
    char *data = static_cast<char *>(this->data());
    madvise(data, this->bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < this->bytes; i += 4096)
      static_cast<volatile char *>(data)[i] = 0;
  }
  Memory(Memory &&other) noexcept
      : bytes(other.bytes), begin(std::exchange(other.begin, nullptr)) {}
  Memory &operator=(Memory &&other) noexcept {
    std::swap(begin, other.begin);
    std::swap(bytes, other.bytes);
    return *this;
  }
  ~Memory() {
    if (begin)
      munmap(begin, bytes + kPage);
  }

  void *data() const {
    uintptr_t at = reinterpret_cast<uintptr_t>(begin);
    return begin + (kPage - at % kPage) % kPage;
  }
  template <typename T> T *as() const { return static_cast<T *>(data()); }

private:
  static constexpr size_t kPage = size_t(2) << 20;
  size_t bytes;
  char *begin = nullptr;
};

/// What a .npy file has, in C order.
struct Array {
  std::string type; ///< as numpy says it: <f4, <i8, <i4, <V2 (raw halves)
  std::vector<int64_t> shape;
  Memory memory;

  int64_t count() const {
    int64_t product = 1;
    for (int64_t extent : shape)
      product *= extent;
    return product;
  }
  template <typename T> T *as() const { return memory.as<T>(); }
};

/// What stands behind 'key': in the header of a .npy file, up to the end of a
/// tuple or the next comma.
inline std::string headerField(const std::string &header, const char *key) {
  size_t at = header.find("'" + std::string(key) + "'");
  at = at == std::string::npos ? at : header.find(':', at);
  if (at == std::string::npos)
    fail("found no " + std::string(key) + " in " + header);
  at = header.find_first_not_of(" '", at + 1);
  bool isTuple = header[at] == '(';
  return header.substr(at, header.find_first_of(isTuple ? ")" : "',", at) - at);
}

inline Array readNpy(const std::string &path) {
  std::FILE *file = std::fopen(path.c_str(), "rb");
  unsigned char front[12] = {};
  if (!file || std::fread(front, 1, 10, file) != 10 ||
      std::memcmp(front, "\x93NUMPY", 6) != 0)
    fail("found no .npy file at " + path);
  size_t length = front[8] + 256 * front[9];
  if (front[6] > 1) {
    if (std::fread(front + 10, 1, 2, file) != 2)
      fail("found the end of " + path + " in its header");
    length += (size_t(front[10]) << 16) + (size_t(front[11]) << 24);
  }
  std::string header(length, ' ');
  if (std::fread(header.data(), 1, length, file) != length)
    fail("found the end of " + path + " in its header");
  Array array;
  array.type = headerField(header, "descr");
  if (headerField(header, "fortran_order") != "False")
    fail("found columns first in " + path + ", expected rows first");
  std::string shape = headerField(header, "shape");
  for (size_t i = 0; i < shape.size();) {
    char *end = nullptr;
    if (std::isdigit(static_cast<unsigned char>(shape[i]))) {
      array.shape.push_back(std::strtoll(&shape[i], &end, 10));
      i = end - shape.data();
    } else {
      ++i;
    }
  }
  size_t size = std::strtoull(array.type.c_str() + 2, nullptr, 10);
  size_t bytes = array.count() * size;
  array.memory = Memory(bytes);
  if (std::fread(array.memory.data(), 1, bytes, file) != bytes)
    fail("found the end of " + path + ", expected " + std::to_string(bytes) +
         " bytes");
  std::fclose(file);
  return array;
}

inline double cpuMs() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e3 * time.tv_sec + 1e-6 * time.tv_nsec;
}

/// Spins, and after a while lets others have the core.
template <typename Done> void spinUntil(Done isDone) {
  for (int spins = 0; !isDone();) {
    _mm_pause();
    if (++spins > 20000) {
      spins = 0;
      std::this_thread::yield();
    }
  }
}

/// What the threads of a run share.
struct Shared {
  std::atomic<int64_t> next{0};
  std::atomic<int> arrived{0}, phase{0};
};

/// One of the threads of a run, as a kernel sees it.
struct Worker {
  int index, count;
  Shared *shared;

  /// [first, second): its part of so many items, in whole groups of `group`.
  std::pair<int64_t, int64_t> part(int64_t items, int64_t group = 1) const {
    int64_t groups = (items + group - 1) / group;
    auto at = [&](int64_t i) {
      return std::min(items, groups * i / count * group);
    };
    return {at(index), at(index + 1)};
  }

  /// Calls `f(first, last)` for chunks of so many items, as threads are free.
  /// Once a run, or with `meet` before and a `next` set back by one of them.
  template <typename F> void chunks(int64_t items, int64_t size, F f) const {
    for (int64_t first; (first = shared->next.fetch_add(
                             size, std::memory_order_relaxed)) < items;)
      f(first, std::min(items, first + size));
  }

  /// Waits until all threads of the run have come as far.
  void meet() const {
    if (count == 1)
      return;
    int phase = shared->phase.load(std::memory_order_acquire);
    if (shared->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
      shared->arrived.store(0, std::memory_order_relaxed);
      shared->phase.store(phase + 1, std::memory_order_release);
    } else {
      spinUntil([&] {
        return shared->phase.load(std::memory_order_acquire) != phase;
      });
    }
  }
};

using Work = std::function<void(const Worker &)>;

/// Takes the calling thread to the CPU of that number, of those where it may
/// be, and leaves it free to go: a new thread is else with the one that made it
/// until somebody moves it, for milliseconds.
inline void goToCpu(int number) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) <= number)
    return;
  int cpu = 0;
  for (int seen = 0; !CPU_ISSET(cpu, &all) || seen++ < number;)
    ++cpu;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
  sched_setaffinity(0, sizeof all, &all);
}

/// So many threads, of which the caller is the first. The others are where the
/// caller may be when it is made.
class Crew {
public:
  explicit Crew(int count) : count(count), times(count) {
    if (count > 1)
      goToCpu(0);
    for (int index = 1; index < count; ++index)
      others.emplace_back([this, index] {
        goToCpu(index);
        serve(index);
      });
    run([](const Worker &) {});
  }
  ~Crew() {
    isOver = true;
    for (std::thread &other : others)
      other.join();
  }
  Crew(const Crew &) = delete;
  Crew &operator=(const Crew &) = delete;

  /// Returns when all are done: the CPU time of the slowest, in ms.
  double run(const Work &work) {
    shared.next.store(0, std::memory_order_relaxed);
    left.store(count - 1, std::memory_order_relaxed);
    now = &work;
    round.fetch_add(1, std::memory_order_release);
    doPart(0);
    spinUntil([&] { return left.load(std::memory_order_acquire) == 0; });
    double most = 0;
    for (const Time &time : times)
      most = std::max(most, time.ms);
    return most;
  }

private:
  struct alignas(64) Time {
    double ms = 0;
  };

  void doPart(int index) {
    double begin = cpuMs();
    (*now)({index, count, &shared});
    times[index].ms = cpuMs() - begin;
  }

  void serve(int index) {
    for (int seen = 0;; ++seen) {
      spinUntil([&] {
        return isOver || round.load(std::memory_order_acquire) != seen;
      });
      if (isOver)
        return;
      doPart(index);
      left.fetch_sub(1, std::memory_order_release);
    }
  }

  int count;
  std::vector<Time> times;
  const Work *now = nullptr;
  alignas(64) Shared shared;
  alignas(64) std::atomic<int> round{0};
  alignas(64) std::atomic<int> left{0};
  std::atomic<bool> isOver{false};
  std::vector<std::thread> others;
};

/// One way to compute the answer; the name is one word.
struct Form {
  std::string name;
  Work work;
};

/// What a program by hand offers.
struct Kernel {
  std::vector<Form> forms;
  /// Makes the outputs wrong, so that a form that writes nothing is found out.
  std::function<void()> wipe;
  /// How far the outputs are from the answer in double; NaN counts as wrong.
  std::function<double()> error;
  double mostError = 1e-5;
};

inline double pageFaults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_minflt + usage.ru_majflt);
}

inline double medianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

struct TurnTimes {
  std::vector<double> ms;
  double threadMs = 0, faults = 0;
};

inline TurnTimes takeTurn(const Form &form, Crew &crew, int runs) {
  using Clock = std::chrono::steady_clock;
  TurnTimes times;
  std::vector<double> ofThreads;
  times.ms.reserve(runs);
  ofThreads.reserve(runs);
  double faults = pageFaults();
  for (int i = 0; i < runs; ++i) {
    auto begin = Clock::now();
    double ofThread = crew.run(form.work);
    std::chrono::duration<double, std::milli> ms = Clock::now() - begin;
    times.ms.push_back(ms.count());
    ofThreads.push_back(ofThread);
  }
  times.faults = (pageFaults() - faults) / runs;
  times.threadMs = medianOf(ofThreads);
  return times;
}

/// The fastest form. All take turns, and after them the best few; what counts
/// of a turn is CPU time against the middle form of the same turn, because a
/// shared machine may be twice as fast in the next: its median over the turns.
inline const Form &findBest(const std::vector<Form> &forms, int threads) {
  constexpr int kTurns = 4, kLastTurns = 8, kMostRuns = 24;
  constexpr size_t kFew = 5;
  constexpr double kSettlingMs = 30, kTimedMs = 20;
  struct Candidate {
    const Form *form;
    std::vector<double> ratios;
  };
  std::vector<Candidate> left;
  for (const Form &form : forms)
    left.push_back({&form, {}});
  Crew crew(threads);
  auto compete = [&](int turns) {
    for (Candidate &one : left)
      one.ratios.clear();
    for (int turn = 0; turn < turns && left.size() > 1; ++turn) {
      std::vector<double> times;
      for (const Candidate &one : left) {
        double ms = std::max(takeTurn(*one.form, crew, 1).ms[0], 1e-3);
        auto runsFor = [&](double inAll, int fewest) {
          return std::clamp(static_cast<int>(inAll / ms), fewest, kMostRuns);
        };
        takeTurn(*one.form, crew, runsFor(kSettlingMs, 1));
        times.push_back(
            takeTurn(*one.form, crew, runsFor(kTimedMs, 3)).threadMs);
      }
      double middle = std::max(medianOf(times), 1e-9);
      for (size_t i = 0; i < left.size(); ++i)
        left[i].ratios.push_back(times[i] / middle);
    }
    std::sort(left.begin(), left.end(),
              [](const Candidate &a, const Candidate &b) {
                return medianOf(a.ratios) < medianOf(b.ratios);
              });
  };
  compete(kTurns);
  left.resize(std::min(left.size(), kFew));
  compete(kLastTurns);
  return *left[0].form;
}

/// A number as JSON has it.
inline std::string toJson(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return std::abs(value) <= std::numeric_limits<double>::max() ? text : "null";
}

/// Runs every form, by one thread and by two; says how wrong the worst is.
inline bool checkForms(const Kernel &kernel) {
  double worst = 0;
  std::string wrong, names;
  for (const Form &form : kernel.forms) {
    names += (names.empty() ? "\"" : ", \"") + form.name + "\"";
    for (int threads : {1, 2}) {
      kernel.wipe();
      Crew(threads).run(form.work);
      double error = kernel.error();
      if (!(error <= kernel.mostError) && wrong.empty())
        wrong = form.name + " errs by " + toJson(error) + " with " +
                std::to_string(threads) + " threads";
      worst = error <= worst ? worst : error;
    }
  }
  std::string problem = wrong.empty() ? "" : ", \"problem\": \"" + wrong + "\"";
  std::printf("{\"checked\": %s, \"error\": %s, \"forms\": [%s]%s}\n",
              wrong.empty() ? "true" : "false", toJson(worst).c_str(),
              names.c_str(), problem.c_str());
  std::fflush(stdout);
  return wrong.empty();
}

/// The talk, until the input ends; the value of main.
inline int serveTurns(const Kernel &kernel) {
  if (!checkForms(kernel))
    return 1;
  std::map<int, const Form *> best;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string name;
    int threads = 0, runs = 0;
    words >> name >> threads >> runs;
    if (threads < 1 || threads > 1024 || runs < 1)
      fail("found '" + line + "', expected FORM THREADS RUNS");
    const Form *form = nullptr;
    if (name == "best") {
      if (!best[threads])
        best[threads] = &findBest(kernel.forms, threads);
      form = best[threads];
    }
    for (const Form &one : kernel.forms)
      form = one.name == name ? &one : form;
    if (!form)
      fail("found no form '" + name + "'");
    Crew crew(threads);
    TurnTimes times = takeTurn(*form, crew, runs);
    std::string all;
    for (double ms : times.ms)
      all += (all.empty() ? "" : ", ") + toJson(ms);
    std::printf("{\"ms\": [%s], \"thread_ms\": %s, \"faults\": %s, "
                "\"form\": \"%s\"}\n",
                all.c_str(), toJson(times.threadMs).c_str(),
                toJson(times.faults).c_str(), form->name.c_str());
    std::fflush(stdout);
  }
  return 0;
}

} // namespace byhand

#endif // REFOLD_BENCHMARKS_BYHAND_TURNS_H
