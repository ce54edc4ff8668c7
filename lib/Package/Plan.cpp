// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Package/Plan.h"
#include "refold/Runtime/ArenaPlan.h"
#include <algorithm>
#include <array>
#include <atomic>
#include <limits>

using namespace refold;
using namespace refold::package;

static std::string quoted(const std::string &name) { return "'" + name + "'"; }

static Problem overflow(const std::string &what) {
  return problem(ExitCode::Limit, what + ": a size overflows or is negative");
}

int64_t package::bytesOf(DType dtype, const std::vector<int64_t> &shape) {
  int64_t bytes = byteWidth(dtype);
  for (int64_t extent : shape)
    bytes *= extent;
  return bytes;
}

static Problem wrongExtent(const InputSpec &input, size_t dim, int64_t found,
                           int64_t expected) {
  std::string name = input.dims[dim].name.empty()
                         ? ""
                         : " (" + quoted(input.dims[dim].name) + ")";
  return problem(ExitCode::Model, "argument " + quoted(input.name) +
                                      ": dimension " + std::to_string(dim) +
                                      name + " is " + std::to_string(found) +
                                      ", expected " + std::to_string(expected));
}

Outcome<std::vector<int64_t>>
package::readSymbols(const ProgramSpec &program,
                     const std::vector<std::vector<int64_t>> &shapes) {
  if (shapes.size() != program.inputs.size())
    return problem(ExitCode::Model, std::to_string(shapes.size()) +
                                        " arguments were given, expected " +
                                        std::to_string(program.inputs.size()));
  std::vector<int64_t> symbols(program.numSymbols, -1);
  for (size_t i = 0; i < shapes.size(); ++i) {
    const InputSpec &input = program.inputs[i];
    if (shapes[i].size() != input.dims.size())
      return problem(ExitCode::Model, "argument " + quoted(input.name) +
                                          " has " +
                                          std::to_string(shapes[i].size()) +
                                          " dimensions, expected " +
                                          std::to_string(input.dims.size()));
    if (!checkedNumElements(shapes[i], byteWidth(input.dtype)))
      return overflow("argument " + quoted(input.name));
    for (size_t dim = 0; dim < input.dims.size(); ++dim) {
      const DimSpec &info = input.dims[dim];
      int64_t found = shapes[i][dim], expected = info.extent;
      if (expected < 0) {
        int64_t &symbol = symbols[info.symbol];
        symbol = symbol < 0 ? found : symbol;
        expected = symbol;
      }
      if (found != expected)
        return wrongExtent(input, dim, found, expected);
    }
  }
  return symbols;
}

namespace {
/// What every part of planning reads.
struct Planner {
  const ProgramSpec &program;
  const ConstantSteps &constants;
  PlannedSteps which;
  RunPlan &plan;
  SizeValues sizes{plan.symbols};
  std::vector<int64_t> bufferBytes = {};
  std::vector<bool> isTaken = {}; ///< one a step: its condition holds

  Problem run();

private:
  Problem findTaken();
  Problem checkSizes();
  Problem planOutputs();
  Problem measureBuffers();
  Problem view(const Step &step, const ViewSpec &spec, View &result);
  bool repeats(const View &view) const;
  Problem planStep(size_t at);
  Problem planKernel(const Step &step, const KernelStep &kernel,
                     PlannedKernel &call);
  Problem planProduct(const Step &step, const ProductStep &product,
                      PlannedProduct &call);
  Problem placeBuffers();
};
} // namespace

Problem Planner::findTaken() {
  for (const Step &step : program.steps) {
    std::optional<int64_t> holds = sizes.of(step.condition);
    if (!holds)
      return overflow(quoted(step.name));
    isTaken.push_back(*holds != 0);
  }
  return {};
}

/// Assertions about sizes hold before anything relies on them.
Problem Planner::checkSizes() {
  for (size_t at = 0; at < program.steps.size(); ++at) {
    const Step &step = program.steps[at];
    auto *assertion = std::get_if<AssertStep>(&step.what);
    auto *condition =
        assertion ? std::get_if<SizeExpr>(&assertion->condition) : nullptr;
    if (!condition || !isTaken[at])
      continue;
    std::optional<int64_t> holds = sizes.of(*condition);
    if (!holds)
      return overflow(quoted(step.name));
    if (!*holds)
      return problem(ExitCode::Model, assertion->message);
  }
  return {};
}

Problem Planner::planOutputs() {
  for (const InputSpec &input : program.inputs) {
    auto &shape = plan.inputShapes.emplace_back();
    for (const DimSpec &dim : input.dims)
      shape.push_back(dim.extent >= 0 ? dim.extent : plan.symbols[dim.symbol]);
  }
  for (const OutputSpec &output : program.outputs) {
    auto &shape = plan.outputShapes.emplace_back();
    for (const SizeExpr &expr : output.shape) {
      std::optional<int64_t> extent = sizes.of(expr);
      if (!extent || *extent < 0)
        return overflow("output " + quoted(output.name));
      shape.push_back(*extent);
    }
    if (!checkedNumElements(shape, byteWidth(output.dtype)))
      return overflow("output " + quoted(output.name));
  }
  return {};
}

/// Of inputs and outputs what the caller gives, whatever the program says.
Problem Planner::measureBuffers() {
  for (const BufferSpec &buffer : program.buffers) {
    std::optional<int64_t> bytes = sizes.of(buffer.bytes);
    if (!bytes || *bytes < 0)
      return overflow("an array of the program");
    if (buffer.kind == BufferKind::Input)
      bytes = bytesOf(program.inputs[buffer.port].dtype,
                      plan.inputShapes[buffer.port]);
    else if (buffer.kind == BufferKind::Output)
      bytes = bytesOf(program.outputs[buffer.port].dtype,
                      plan.outputShapes[buffer.port]);
    bufferBytes.push_back(*bytes);
  }
  return {};
}

/// Whether all elements lie inside `bytes`.
static bool isInside(const View &view, int64_t bytes) {
  if (view.numElements() == 0)
    return true;
  int64_t width = byteWidth(view.dtype);
  int64_t low = view.byteOffset, high = view.byteOffset;
  for (size_t d = 0; d < view.sizes.size(); ++d) {
    int64_t reach;
    if (__builtin_mul_overflow(view.sizes[d] - 1, view.strides[d], &reach) ||
        __builtin_mul_overflow(reach, width, &reach) ||
        __builtin_add_overflow(reach < 0 ? low : high, reach,
                               reach < 0 ? &low : &high))
      return false;
  }
  return low >= 0 && high <= bytes - width;
}

Problem Planner::view(const Step &step, const ViewSpec &spec, View &result) {
  std::optional<View> resolved = resolve(spec, sizes);
  if (!resolved)
    return overflow(quoted(step.name));
  result = std::move(*resolved);
  if (!isInside(result, bufferBytes[result.buffer]))
    return problem(ExitCode::Model,
                   quoted(step.name) + " reaches beyond its array");
  return {};
}

/// Whether a view has more elements than its buffer has room for: some are the
/// same one. What goes through them one by one would take a file's word for how
/// long.
bool Planner::repeats(const View &view) const {
  return view.numElements() * byteWidth(view.dtype) > bufferBytes[view.buffer];
}

Problem Planner::planKernel(const Step &step, const KernelStep &kernel,
                            PlannedKernel &call) {
  call.kernel = kernel.kernel;
  for (const OperandSpec &operand : kernel.operands) {
    if (auto *scalar = std::get_if<ScalarSpec>(&operand)) {
      std::optional<int64_t> value = sizes.of(scalar->value);
      if (!value)
        return overflow(quoted(step.name));
      call.words.push_back(*value);
      continue;
    }
    View resolved;
    if (Problem error = view(step, std::get<ViewSpec>(operand), resolved))
      return error;
    call.addresses.push_back(
        {uint32_t(call.words.size()), resolved.buffer, resolved.byteOffset});
    call.words.insert(call.words.end(), 3, 0);
    for (auto *dims : {&resolved.sizes, &resolved.strides})
      call.words.insert(call.words.end(), dims->begin(), dims->end());
  }
  return {};
}

/// Whether the sides, the bias and the result are those of one product.
static bool isProduct(const PlannedProduct &call) {
  size_t batch = call.result.sizes.size() - 2;
  int64_t m = call.lhs.sizes[batch], k = call.lhs.sizes[batch + 1],
          n = call.rhs.sizes[batch + 1];
  for (size_t d = 0; d < batch; ++d)
    if (call.lhs.sizes[d] != call.result.sizes[d] ||
        call.rhs.sizes[d] != call.result.sizes[d])
      return false;
  bool isBias = !call.bias || (call.bias->sizes[0] == n &&
                               (n <= 1 || call.bias->strides[0] == 1));
  return isBias && call.rhs.sizes[batch] == k &&
         call.result.sizes[batch] == m && call.result.sizes[batch + 1] == n;
}

/// As many terms as one pair of elements is multiplied for.
static constexpr int64_t kMostRepeats = int64_t(1) << 24;

Problem Planner::planProduct(const Step &step, const ProductStep &product,
                             PlannedProduct &call) {
  for (auto [spec, to] : {std::pair(&product.lhs, &call.lhs),
                          {&product.rhs, &call.rhs},
                          {&product.result, &call.result}})
    if (Problem error = view(step, *spec, *to))
      return error;
  if (product.bias)
    if (Problem error = view(step, *product.bias, call.bias.emplace()))
      return error;
  if (!isProduct(call))
    return problem(ExitCode::Model,
                   quoted(step.name) + " multiplies matrices that do not fit");
  if (repeats(call.result))
    return problem(ExitCode::Model,
                   quoted(step.name) + " writes an element more than once");
  size_t last = call.result.sizes.size() - 1;
  int64_t m = call.result.sizes[last - 1], n = call.result.sizes[last],
          k = call.lhs.sizes[last];
  // Copies that are made of matrices have these sizes.
  for (std::array<int64_t, 2> copy : {std::array{m, k}, {k, n}, {m, n}})
    if (!checkedNumElements(copy, sizeof(double)))
      return overflow(quoted(step.name));
  bool isEmpty = call.result.numElements() == 0;
  if (isEmpty)
    std::fill(call.result.strides.begin(), call.result.strides.end(), 0);
  if (isEmpty || k == 0)
    for (View *side : {&call.lhs, &call.rhs})
      std::fill(side->strides.begin(), side->strides.end(), 0);
  else if (k > kMostRepeats && call.lhs.strides[last] == 0 &&
           call.rhs.strides[last - 1] == 0)
    return problem(ExitCode::Model, quoted(step.name) +
                                        " multiplies the same elements " +
                                        std::to_string(k) + " times");
  return {};
}

Problem Planner::planStep(size_t at) {
  const Step &step = program.steps[at];
  PlannedStep planned;
  planned.step = at;
  Problem error;
  if (auto *kernel = std::get_if<KernelStep>(&step.what)) {
    PlannedKernel call;
    error = planKernel(step, *kernel, call);
    planned.what = std::move(call);
  } else if (auto *copy = std::get_if<CopyStep>(&step.what)) {
    PlannedCopy call;
    error = view(step, copy->from, call.from);
    if (!error)
      error = view(step, copy->to, call.to);
    if (!error && call.from.sizes != call.to.sizes)
      error = problem(ExitCode::Model,
                      quoted(step.name) + " copies between different shapes");
    if (!error && repeats(call.to))
      error = problem(ExitCode::Model,
                      quoted(step.name) + " writes an element more than once");
    planned.what = std::move(call);
  } else if (auto *product = std::get_if<ProductStep>(&step.what)) {
    PlannedProduct call;
    error = planProduct(step, *product, call);
    planned.what = std::move(call);
  } else if (auto *assertion = std::get_if<AssertStep>(&step.what)) {
    auto *flags = std::get_if<ViewSpec>(&assertion->condition);
    if (!flags)
      return {}; // about sizes: checked before planning
    PlannedCheck call;
    call.message = &assertion->message;
    error = view(step, *flags, call.flags);
    if (!error && repeats(call.flags))
      error = problem(ExitCode::Model,
                      quoted(step.name) + " checks an element more than once");
    planned.what = std::move(call);
  }
  if (!error)
    plan.steps.push_back(std::move(planned));
  return error;
}

Problem Planner::placeBuffers() {
  constexpr unsigned kNever = std::numeric_limits<unsigned>::max();
  std::vector<BufferLife> lives(program.buffers.size(),
                                BufferLife{0, kNever, 0});
  auto touch = [&](uint32_t buffer, size_t at) {
    lives[buffer].first = std::min(lives[buffer].first, unsigned(at));
    lives[buffer].last = unsigned(at);
  };
  for (const PlannedStep &step : plan.steps) {
    if (auto *kernel = std::get_if<PlannedKernel>(&step.what))
      for (const PlannedKernel::Address &address : kernel->addresses)
        touch(address.buffer, step.step);
    if (auto *product = std::get_if<PlannedProduct>(&step.what)) {
      for (const View *one : {&product->lhs, &product->rhs, &product->result})
        touch(one->buffer, step.step);
      if (product->bias)
        touch(product->bias->buffer, step.step);
    }
    if (auto *copy = std::get_if<PlannedCopy>(&step.what))
      for (const View *one : {&copy->from, &copy->to})
        touch(one->buffer, step.step);
    if (auto *check = std::get_if<PlannedCheck>(&step.what))
      touch(check->flags.buffer, step.step);
  }
  plan.arenaOffsets.assign(program.buffers.size(), -1);
  std::vector<size_t> temporaries;
  std::vector<BufferLife> placed;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    if (program.buffers[i].kind != BufferKind::Temporary ||
        constants.isKept[i] || lives[i].first == kNever)
      continue;
    lives[i].bytes = bufferBytes[i];
    temporaries.push_back(i);
    placed.push_back(lives[i]);
  }
  std::optional<ArenaPlan> arena = planArena(placed);
  if (!arena)
    return overflow("intermediate arrays");
  for (size_t i = 0; i < temporaries.size(); ++i)
    plan.arenaOffsets[temporaries[i]] = arena->offsets[i];
  plan.arenaBytes = arena->bytes;
  return {};
}

Problem Planner::run() {
  for (auto part : {&Planner::findTaken, &Planner::checkSizes,
                    &Planner::planOutputs, &Planner::measureBuffers})
    if (Problem error = (this->*part)())
      return error;
  for (size_t at = 0; at < program.steps.size(); ++at)
    if (isTaken[at] && constants.isOnce[at] == (which == PlannedSteps::Once))
      if (Problem error = planStep(at))
        return error;
  return placeBuffers();
}

Outcome<std::unique_ptr<RunPlan>>
package::planRun(const ProgramSpec &program, const ConstantSteps &constants,
                 PlannedSteps which, const std::vector<int64_t> &symbols) {
  static std::atomic<uint64_t> numPlans{0};
  auto plan = std::make_unique<RunPlan>();
  plan->id = ++numPlans;
  plan->symbols = symbols;
  Planner planner{program, constants, which, *plan};
  if (Problem error = planner.run())
    return error;
  return plan;
}

Problem package::noLongerKept(const std::string &package) {
  return problem(ExitCode::Usage,
                 "found a plan that is not or no longer kept, expected one of "
                 "the last " +
                     std::to_string(kMostPlans) + " of " + quoted(package));
}
