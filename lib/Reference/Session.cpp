// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Session.h"
#include "ScalarProgram.h"
#include "refold/Support/Error.h"

using namespace mlir;
using namespace refold;
using namespace refold::reference;

std::string reference::showShape(ArrayRef<int64_t> shape) {
  std::string text = "[";
  for (int64_t extent : shape) {
    text += text.size() > 1 ? ", " : "";
    text += ShapedType::isDynamic(extent) ? "?" : std::to_string(extent);
  }
  return text + "]";
}

bool reference::agrees(ArrayRef<int64_t> have, ArrayRef<int64_t> want) {
  return have.size() == want.size() &&
         llvm::all_of(llvm::zip(have, want), [](auto pair) {
           auto [h, w] = pair;
           return ShapedType::isDynamic(w) || h == w;
         });
}

static llvm::Error checkRoom(const EvaluationOptions &options,
                             ArrayRef<int64_t> shape, Location location) {
  for (int64_t extent : shape)
    if (extent < 0)
      return failAt(ExitCode::Model, location,
                    "an array has shape " + showShape(shape) +
                        "; expected extents of 0 or more");
  std::optional<int64_t> n = checkedNumElements(shape, sizeof(Cell));
  int64_t room = options.limits.bytes - RefTensor::liveBytes();
  if (!n || *n > room / int64_t(sizeof(Cell)))
    return failAt(ExitCode::Limit, location,
                  "an array of shape " + showShape(shape) +
                      " exceeds the reference's memory limit of " +
                      llvm::Twine(options.limits.bytes >> 20) + " MiB");
  return llvm::Error::success();
}

llvm::Expected<RefTensor> Session::make(bool isFloat, ArrayRef<int64_t> shape,
                                        Location location) {
  if (llvm::Error error = checkRoom(options, shape, location))
    return std::move(error);
  return RefTensor::create(isFloat, shape, isWide);
}

llvm::Expected<RefTensor> Session::copy(const RefTensor &array,
                                        Location location) {
  if (llvm::Error error = checkRoom(options, array.shape(), location))
    return std::move(error);
  return array.clone();
}

llvm::Error Session::charge(double amount, Location location) {
  steps += amount;
  if (steps > double(options.limits.steps))
    return failAt(ExitCode::Limit, location,
                  "the reference's limit of " +
                      llvm::Twine(options.limits.steps) +
                      " scalar operations is exceeded");
  return llvm::Error::success();
}

void Session::setRange(ScalarProgram &program) const {
  program.isUnlimited = isUnlimited();
  program.subnormalNoise = options.subnormalNoise;
  program.keepsRange = options.beyondRange == BeyondRange::IsKept;
  program.zeroMasks = options.beyondRange == BeyondRange::IsMasked;
  if (options.beyondRange == BeyondRange::PlusOfBoth)
    program.sumOfBoth = std::numeric_limits<double>::infinity();
  if (options.beyondRange == BeyondRange::MinusOfBoth)
    program.sumOfBoth = -std::numeric_limits<double>::infinity();
}
