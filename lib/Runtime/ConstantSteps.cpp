// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Runtime/ConstantSteps.h"

#include "refold/Runtime/StepViews.h"
#include <algorithm>
#include <iterator>

using namespace refold;

bool refold::isFixed(const ViewSpec &view) {
  auto isNumber = [](const SizeExpr &size) {
    return size.constant().has_value();
  };
  return isNumber(view.offset) &&
         std::all_of(view.sizes.begin(), view.sizes.end(), isNumber) &&
         std::all_of(view.strides.begin(), view.strides.end(), isNumber);
}

static int64_t bytesOf(const BufferSpec &buffer) {
  return std::max<int64_t>(buffer.bytes.constant().value_or(0), 0);
}

/// Adds up to the largest number and no further: files say what sizes are.
static int64_t add(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

ConstantFlow::Array &ConstantFlow::at(unsigned buffer) {
  if (arrays.size() <= buffer)
    arrays.resize(program.buffers.size());
  return arrays[buffer];
}

bool ConstantFlow::isConstant(unsigned buffer) const {
  if (program.buffers[buffer].kind == BufferKind::Constant)
    return true;
  return program.buffers[buffer].kind == BufferKind::Temporary &&
         buffer < arrays.size() && arrays[buffer].isWritten &&
         !arrays[buffer].isVarying;
}

bool ConstantFlow::mayBeRead(const ViewSpec &view) const {
  return isConstant(view.buffer) && isFixed(view);
}

/// What was read already was another array then.
bool ConstantFlow::mayBeWritten(const ViewSpec &view) const {
  const BufferSpec &buffer = program.buffers[view.buffer];
  bool isOther = view.buffer < arrays.size() &&
                 (arrays[view.buffer].isRead || arrays[view.buffer].isVarying);
  return buffer.kind == BufferKind::Temporary && isFixed(view) && !isOther &&
         buffer.bytes.constant().value_or(-1) >= 0;
}

/// Whether it takes no size of this run, not even to be there, and is no check
/// of sizes: these hold before anything runs.
static bool hasFixedScalars(const Step &step) {
  if (!step.condition.constant())
    return false;
  if (auto *assertion = std::get_if<AssertStep>(&step.what))
    return std::holds_alternative<ViewSpec>(assertion->condition);
  auto *kernel = std::get_if<KernelStep>(&step.what);
  return !kernel ||
         std::all_of(kernel->operands.begin(), kernel->operands.end(),
                     [](const OperandSpec &operand) {
                       auto *scalar = std::get_if<ScalarSpec>(&operand);
                       return !scalar || scalar->value.constant();
                     });
}

bool ConstantFlow::follow(size_t number) {
  const Step &step = program.steps[number];
  next = number + 1;
  bool isSame = hasFixedScalars(step);
  forEachView(step, [&](const ViewSpec &view, bool isWritten) {
    isSame &= isWritten ? mayBeWritten(view) : mayBeRead(view);
  });
  std::vector<unsigned> madeOf;
  auto addAll = [&](const std::vector<unsigned> &more) {
    std::vector<unsigned> both;
    std::set_union(madeOf.begin(), madeOf.end(), more.begin(), more.end(),
                   std::back_inserter(both));
    madeOf = std::move(both);
  };
  forEachView(step, [&](const ViewSpec &view, bool isWritten) {
    Array &array = at(view.buffer);
    bool isConstant = program.buffers[view.buffer].kind == BufferKind::Constant;
    if (!isWritten) {
      array.isRead = true;
      if (isSame)
        addAll(isConstant ? std::vector<unsigned>{view.buffer} : array.madeOf);
      return;
    }
    array.isWritten = true;
    array.isVarying |= !isSame;
    if (isSame && !array.madeOf.empty()) // an earlier step wrote a part of it
      addAll(array.madeOf);
  });
  if (isSame)
    forEachView(step, [&](const ViewSpec &view, bool isWritten) {
      if (isWritten)
        at(view.buffer).madeOf = madeOf;
    });
  return isSame;
}

void ConstantFlow::restart() {
  for (Array &array : arrays)
    array = {false, false, array.isVarying, {}};
  next = 0;
}

void ConstantFlow::followUpTo(size_t end) {
  while (next < end)
    follow(next);
}

bool ConstantFlow::mayBeKept(unsigned buffer) const {
  int64_t bytes = bytesOf(program.buffers[buffer]), made = 0;
  if (program.buffers[buffer].kind == BufferKind::Constant ||
      bytes <= kFreeBytes)
    return true;
  if (buffer >= arrays.size())
    return false;
  for (unsigned constant : arrays[buffer].madeOf)
    made = add(made, bytesOf(program.buffers[constant]));
  return made >= bytes / kMostGrowth;
}

/// Gives up steps whose results are too large to be kept, and says whether it
/// did. From the last step to the first: then what reads an array is known
/// before what writes it.
static bool giveUpLargeOnes(const ProgramSpec &program,
                            const ConstantFlow &flow, int64_t mostBytes,
                            ConstantSteps &found) {
  std::vector<bool> isRead(program.buffers.size()), isLost = isRead;
  found.isKept = isRead;
  found.keptBytes = 0;
  bool gaveUp = false;
  for (size_t at = 0; at < program.steps.size(); ++at)
    if (!found.isOnce[at])
      forEachView(program.steps[at], [&](const ViewSpec &view, bool isWritten) {
        if (isWritten)
          isLost[view.buffer] = true;
      });
  auto canKeep = [&](unsigned buffer) {
    if (isLost[buffer])
      return false;
    if (!isRead[buffer] || found.isKept[buffer])
      return true;
    int64_t bytes = add(found.keptBytes, bytesOf(program.buffers[buffer]));
    if (!flow.mayBeKept(buffer) || bytes > mostBytes)
      return false;
    found.isKept[buffer] = true;
    found.keptBytes = bytes;
    return true;
  };
  for (size_t at = program.steps.size(); at-- > 0;) {
    bool isOnce = found.isOnce[at];
    forEachView(program.steps[at], [&](const ViewSpec &view, bool isWritten) {
      isOnce =
          isOnce && (isWritten ? canKeep(view.buffer) : !isLost[view.buffer]);
    });
    if (isOnce)
      continue;
    gaveUp |= found.isOnce[at];
    found.isOnce[at] = false;
    forEachView(program.steps[at], [&](const ViewSpec &view, bool isWritten) {
      (isWritten ? isLost : isRead)[view.buffer] = true;
    });
  }
  return gaveUp;
}

ConstantSteps refold::findConstantSteps(const ProgramSpec &program) {
  // A program of the compiler needs two or three looks; a file may be written
  // so that every look finds one step less.
  constexpr int kMostLooks = 16;
  ConstantSteps found;
  found.isOnce.assign(program.steps.size(), true);
  ConstantFlow flow(program);
  auto settle = [](auto look) {
    for (int i = 0; i < kMostLooks; ++i)
      if (!look())
        return true;
    return false;
  };
  // A later step may write into what earlier ones made: then it varies.
  bool isSettled = settle([&] {
    bool hasChanged = false;
    flow.restart();
    for (size_t at = 0; at < program.steps.size(); ++at) {
      bool isSame = flow.follow(at);
      hasChanged |= !isSame && found.isOnce[at];
      found.isOnce[at] = isSame;
    }
    return hasChanged;
  });
  int64_t mostBytes = kMostFreeBytes;
  for (const BufferSpec &buffer : program.buffers)
    if (buffer.kind == BufferKind::Constant)
      mostBytes = add(mostBytes, bytesOf(buffer));
  isSettled = isSettled && settle([&] {
                return giveUpLargeOnes(program, flow, mostBytes, found);
              });
  if (!isSettled)
    return {std::vector<bool>(program.steps.size()),
            std::vector<bool>(program.buffers.size()), 0, 0};
  found.count =
      size_t(std::count(found.isOnce.begin(), found.isOnce.end(), true));
  return found;
}

std::optional<KeptPlaces> refold::placeKept(const ProgramSpec &program,
                                            const ConstantSteps &constants,
                                            int64_t alignment) {
  KeptPlaces places;
  places.offsets.assign(program.buffers.size(), -1);
  for (size_t i = 0; i < places.offsets.size(); ++i) {
    if (!constants.isKept[i])
      continue;
    places.offsets[i] = places.bytes;
    int64_t bytes = program.buffers[i].bytes.constant().value_or(0);
    if (__builtin_add_overflow(bytes, alignment - 1, &bytes) ||
        __builtin_add_overflow(places.bytes, bytes & ~(alignment - 1),
                               &places.bytes))
      return std::nullopt;
  }
  return places;
}
