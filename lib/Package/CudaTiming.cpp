// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CudaProgram.h"

#include <algorithm>
#include <cmath>

using namespace refold;
using namespace refold::package;

namespace {
/// Events of the current context.
class Events {
public:
  Events(const CudaDriver &driver, size_t count) : driver(driver) {
    for (size_t i = 0; i < count && !error; ++i) {
      CuEvent event = nullptr;
      error = driver.cuEventCreate(&event, 0);
      if (!error)
        events.push_back(event);
    }
  }
  ~Events() {
    for (CuEvent event : events)
      driver.cuEventDestroy_v2(event);
  }
  Events(const Events &) = delete;
  Events &operator=(const Events &) = delete;

  CuResult record(size_t i, CuStream stream) {
    return driver.cuEventRecord(events[i], stream);
  }
  CuResult elapsed(size_t from, size_t to, double &ms) {
    float found = 0.0f;
    CuResult failure =
        driver.cuEventElapsedTime(&found, events[from], events[to]);
    ms = found;
    return failure;
  }
  CuResult error = kCudaSuccess;

private:
  const CudaDriver &driver;
  std::vector<CuEvent> events;
};
} // namespace

static double medianOf(std::vector<double> &values) {
  auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Outcome<double>
CudaProgram::time(int launches, int groups,
                  const std::function<Problem(DeviceStream)> &run) {
  CurrentContext current(*impl);
  Events events(impl->driver, 2);
  if (events.error)
    return impl->failed("cuEventCreate", events.error);
  constexpr int kWarmUps = 3;
  for (int i = 0; i < kWarmUps; ++i)
    if (Problem error = run(impl->stream))
      return error;
  if (Problem error = impl->synchronize())
    return error;
  std::vector<double> times;
  for (int group = 0; group < groups; ++group) {
    CuResult error = events.record(0, impl->stream);
    for (int i = 0; i < launches && !error; ++i)
      if (Problem problem = run(impl->stream))
        return problem;
    error = error ? error : events.record(1, impl->stream);
    if (error)
      return impl->failed("cuEventRecord", error);
    if (Problem problem = impl->synchronize())
      return problem;
    double ms = 0.0;
    if ((error = events.elapsed(0, 1, ms)))
      return impl->failed("cuEventElapsedTime", error);
    times.push_back(ms / launches);
  }
  return medianOf(times);
}

namespace {
/// A graph of launches, where the driver makes them.
class ReplayedGraph {
public:
  ReplayedGraph(const CudaDriver &driver, CuStream stream)
      : driver(driver), stream(stream) {}
  ~ReplayedGraph() {
    if (made)
      driver.cuGraphExecDestroy(made);
    if (graph)
      driver.cuGraphDestroy(graph);
  }
  ReplayedGraph(const ReplayedGraph &) = delete;
  ReplayedGraph &operator=(const ReplayedGraph &) = delete;

  static bool areThere(const CudaDriver &driver) {
    return driver.cuStreamBeginCapture_v2 && driver.cuStreamEndCapture &&
           driver.cuGraphInstantiateWithFlags && driver.cuGraphLaunch &&
           driver.cuGraphExecDestroy && driver.cuGraphDestroy;
  }
  /// `failing` is set to the call that went wrong.
  Problem capture(const std::function<Problem()> &launches, CuResult &error,
                  const char *&failing) {
    failing = "cuStreamBeginCapture";
    if ((error = driver.cuStreamBeginCapture_v2(stream, kCaptureOfThread)))
      return {};
    Problem problem = launches();
    failing = "cuStreamEndCapture";
    error = driver.cuStreamEndCapture(stream, &graph);
    if (problem || error)
      return problem;
    failing = "cuGraphInstantiate";
    error = driver.cuGraphInstantiateWithFlags(&made, graph, 0);
    return {};
  }
  CuResult launch() { return driver.cuGraphLaunch(made, stream); }

private:
  const CudaDriver &driver;
  CuStream stream;
  CuGraph graph = nullptr;
  CuGraphExec made = nullptr;
};
} // namespace

Outcome<double>
CudaProgram::timeReplayed(int launches, int groups,
                          const std::function<Problem(DeviceStream)> &run) {
  if (!ReplayedGraph::areThere(impl->driver))
    return time(launches, groups, run);
  CurrentContext current(*impl);
  ReplayedGraph graph(impl->driver, impl->stream);
  CuResult error = kCudaSuccess;
  const char *failing = "";
  Problem problem = graph.capture(
      [&]() -> Problem {
        for (int i = 0; i < launches; ++i)
          if (Problem one = run(impl->stream))
            return one;
        return {};
      },
      error, failing);
  if (problem)
    return problem;
  if (error)
    return impl->failed(failing, error);
  Outcome<double> ms = time(1, groups, [&](DeviceStream) {
    CuResult failed = graph.launch();
    return failed ? impl->failed("cuGraphLaunch", failed) : Problem();
  });
  return ms ? Outcome<double>(*ms / launches) : ms;
}

Outcome<std::vector<double>>
CudaProgram::timeSteps(const RunPlan &plan,
                       std::span<const DeviceAddress> inputs,
                       std::span<const DeviceAddress> outputs, int runs) {
  CurrentContext current(*impl);
  Events events(impl->driver, plan.steps.size() + 1);
  if (events.error)
    return impl->failed("cuEventCreate", events.error);
  size_t numSteps = impl->package->program.steps.size();
  std::vector<std::vector<double>> times(numSteps);
  for (int run = 0; run < runs; ++run) {
    size_t next = 0;
    CuResult failure = kCudaSuccess;
    if (Problem error =
            enqueue(plan, inputs, outputs, impl->stream, [&](size_t) {
              failure = events.record(next++, impl->stream);
              return Problem();
            }))
      return error;
    if (failure)
      return impl->failed("cuEventRecord", failure);
    if (Problem error = impl->synchronize())
      return error;
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      double ms = 0.0;
      if (CuResult error = events.elapsed(i, i + 1, ms))
        return impl->failed("cuEventElapsedTime", error);
      times[plan.steps[i].step].push_back(ms);
    }
  }
  std::vector<double> medians;
  for (std::vector<double> &one : times)
    medians.push_back(one.empty() ? 0.0 : medianOf(one));
  return medians;
}

Outcome<double> CudaProgram::copyRate(int64_t bytes) {
  CurrentContext current(*impl);
  int64_t half = std::max<int64_t>(bytes / 2, 1) & ~int64_t(15);
  half = std::max<int64_t>(half, 16);
  DeviceMemory memory(impl->driver);
  if (Problem error = memory.reserve(2 * half, impl->gpu, "a copy"))
    return error;
  constexpr int kLaunches = 6, kGroups = 9;
  Outcome<double> ms = time(kLaunches, kGroups, [&](DeviceStream stream) {
    CuResult error = impl->driver.cuMemcpyDtoDAsync_v2(
        memory.address + uint64_t(half), memory.address, size_t(half),
        static_cast<CuStream>(stream));
    return error ? impl->failed("cuMemcpyDtoDAsync", error) : Problem();
  });
  if (!ms)
    return ms.error();
  return 2.0 * double(half) / *ms;
}
