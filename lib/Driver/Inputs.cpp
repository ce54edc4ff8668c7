// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/Inputs.h"
#include "refold/Support/Error.h"
#include "refold/Support/NearestName.h"
#include <cmath>

namespace refold {

std::string dimName(const Port &port, unsigned dim) {
  return port.dims[dim].empty() ? port.name + "." + std::to_string(dim)
                                : port.dims[dim];
}

std::vector<std::string> openDims(llvm::ArrayRef<Port> inputs) {
  std::vector<std::string> result;
  for (const Port &port : inputs)
    for (unsigned i = 0; i < port.dims.size(); ++i)
      if (port.extents[i] < 0 && !llvm::is_contained(result, dimName(port, i)))
        result.push_back(dimName(port, i));
  return result;
}

std::vector<std::string> streamAxesOf(const FuseReport &fusion) {
  std::vector<std::string> streams;
  for (const CascadeReport &cascade : fusion.cascades)
    llvm::append_range(streams, cascade.axes);
  return streams.empty() ? fusion.streamAxes : streams;
}

llvm::Error checkExtents(llvm::ArrayRef<Port> inputs, const Extents &extents) {
  std::map<std::string, int64_t> known; // -1 where open
  for (const Port &port : inputs)
    for (unsigned i = 0; i < port.dims.size(); ++i) {
      auto [entry, isNew] =
          known.try_emplace(dimName(port, i), port.extents[i]);
      if (port.extents[i] >= 0)
        entry->second = port.extents[i];
    }
  std::vector<llvm::StringRef> names;
  for (const auto &[name, extent] : known)
    names.push_back(name);
  for (const auto &[name, extent] : extents) {
    auto entry = known.find(name);
    if (entry == known.end())
      return fail(ExitCode::Usage, "--shape: found the unknown dimension '" +
                                       name + "'" + suggestion(name, names));
    if (entry->second >= 0 && entry->second != extent)
      return fail(ExitCode::Usage,
                  "--shape: found extent " + llvm::Twine(extent) + " of '" +
                      name + "', which is " + llvm::Twine(entry->second));
  }
  return llvm::Error::success();
}

llvm::Expected<llvm::SmallVector<int64_t, 4>> shapeOf(const Port &port,
                                                      const Extents &extents) {
  llvm::SmallVector<int64_t, 4> shape;
  for (unsigned i = 0; i < port.dims.size(); ++i) {
    std::string name = dimName(port, i);
    auto given = extents.find(name);
    if (port.extents[i] >= 0)
      shape.push_back(port.extents[i]);
    else if (given != extents.end())
      shape.push_back(given->second);
    else
      return fail(ExitCode::Usage, "found no extent of dimension '" + name +
                                       "' of '" + port.name +
                                       "', expected --shape " + name + "=...");
  }
  return shape;
}

/// The extent of a dimension by its name, or nothing.
static std::optional<int64_t> extentOf(llvm::StringRef name,
                                       llvm::ArrayRef<Port> inputs,
                                       const Extents &extents) {
  if (auto given = extents.find(name.str()); given != extents.end())
    return given->second;
  for (const Port &port : inputs)
    for (auto [dim, extent] : llvm::zip(port.dims, port.extents))
      if (dim == name && extent >= 0)
        return extent;
  return std::nullopt;
}

static InputRecipe integerRecipe(const Port &port, llvm::ArrayRef<Port> inputs,
                                 const Extents &extents) {
  int64_t high = extentOf(port.indexes, inputs, extents).value_or(2);
  return {InputFamily::Uniform, 0.0, std::max<double>(high, 1.0)};
}

llvm::Expected<std::vector<Tensor>>
makeInputs(llvm::ArrayRef<Port> inputs, const Extents &extents,
           const InputRecipe &recipe,
           const std::map<std::string, InputRecipe> &recipes, uint64_t seed) {
  std::vector<Tensor> result;
  for (const Port &port : inputs) {
    auto shape = shapeOf(port, extents);
    if (!shape)
      return shape.takeError();
    auto tensor = Tensor::create(port.dtype, *shape);
    if (!tensor)
      return tensor.takeError();
    auto own = recipes.find(port.name);
    InputRecipe chosen = own != recipes.end() ? own->second
                         : isFloat(port.dtype) || port.dtype == DType::Bool
                             ? recipe
                             : integerRecipe(port, inputs, extents);
    fillRandom(*tensor, chosen, seed, port.name);
    result.push_back(std::move(*tensor));
  }
  return result;
}

llvm::Expected<std::vector<Tensor>> asComputed(llvm::ArrayRef<Tensor> given) {
  std::vector<Tensor> result;
  for (const Tensor &input : given) {
    bool isNarrow = isFloat(input.dtype()) && byteWidth(input.dtype()) < 4;
    auto copy = input.clone(isNarrow ? DType::F32 : input.dtype());
    if (!copy)
      return copy.takeError();
    result.push_back(std::move(*copy));
  }
  return result;
}

void moveLastBits(Tensor &tensor, std::mt19937_64 &random) {
  if (tensor.dtype() != DType::F32 && tensor.dtype() != DType::F64)
    return;
  for (int64_t i = 0, e = tensor.numElements(); i < e; ++i) {
    uint64_t draw = random() % 3;
    double towards = draw ? HUGE_VAL : -HUGE_VAL, value = tensor.get(i);
    if (draw == 2 || !std::isfinite(value))
      continue;
    tensor.set(i, tensor.dtype() == DType::F64
                      ? std::nextafter(value, towards)
                      : std::nextafter(static_cast<float>(value),
                                       static_cast<float>(towards)));
  }
}

llvm::Error
eachMoved(llvm::ArrayRef<Tensor> given, uint64_t seed,
          llvm::function_ref<llvm::Error(llvm::ArrayRef<Tensor>)> run) {
  constexpr int kDraws = 8;
  std::mt19937_64 random(seed);
  for (int draw = 0; draw < kDraws; ++draw) {
    auto moved = asComputed(given);
    if (!moved)
      return moved.takeError();
    for (Tensor &input : *moved)
      moveLastBits(input, random);
    if (llvm::Error error = run(*moved))
      return error;
  }
  return llvm::Error::success();
}

/// The elements of `tensor` through a view of `storage`.
static Tensor viewOf(const Tensor &tensor, const Tensor &storage,
                     llvm::ArrayRef<int64_t> strides) {
  Tensor view =
      Tensor::share(tensor.dtype(), tensor.shape(), strides, storage.data(),
                    std::make_shared<Tensor>(storage));
  for (int64_t i = 0, e = tensor.numElements(); i < e; ++i)
    std::memcpy(view.at(i), tensor.at(i), byteWidth(tensor.dtype()));
  return view;
}

llvm::Expected<Tensor> makeStrided(const Tensor &tensor) {
  if (tensor.rank() == 0)
    return tensor;
  // Every second column of an array with two columns to spare in each row.
  llvm::SmallVector<int64_t, 4> wide(tensor.shape());
  wide.back() = 2 * wide.back() + 2;
  llvm::Expected<Tensor> storage = Tensor::create(tensor.dtype(), wide);
  if (!storage)
    return storage;
  llvm::SmallVector<int64_t, 4> strides(storage->strides());
  strides.back() = 2;
  return viewOf(tensor, *storage, strides);
}

llvm::Expected<Tensor> makeTransposed(const Tensor &tensor) {
  auto reversed = llvm::reverse(tensor.shape());
  llvm::SmallVector<int64_t, 4> shape(reversed.begin(), reversed.end());
  llvm::Expected<Tensor> storage = Tensor::create(tensor.dtype(), shape);
  if (!storage)
    return storage;
  auto steps = llvm::reverse(storage->strides());
  llvm::SmallVector<int64_t, 4> strides(steps.begin(), steps.end());
  return viewOf(tensor, *storage, strides);
}

Extents extentsOf(llvm::ArrayRef<Port> ports, llvm::ArrayRef<Tensor> inputs) {
  Extents extents;
  for (auto [port, tensor] : llvm::zip_equal(ports, inputs))
    for (auto [name, extent] : llvm::zip(port.dims, tensor.shape()))
      if (!name.empty())
        extents[name] = extent;
  return extents;
}

} // namespace refold
