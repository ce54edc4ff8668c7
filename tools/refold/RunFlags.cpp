// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "RunFlags.h"
#include "refold/Support/ArrayFile.h"
#include "refold/Support/NearestName.h"

namespace refold {

llvm::Error InputFlags::parseInput(llvm::StringRef text, bool withFiles) {
  auto [name, what] = text.split('=');
  if (name.empty() || what.empty())
    return fail(ExitCode::Usage,
                "found '" + text + "', expected name=" +
                    (withFiles ? "file.npy or name=family" : "family"));
  if (withFiles && what.ends_with(".npy")) {
    files[name.str()] = what.str();
    return llvm::Error::success();
  }
  auto recipe = parseInputRecipe(what);
  if (!recipe)
    return recipe.takeError();
  recipes[name.str()] = *recipe;
  return llvm::Error::success();
}

void InputFlags::addTo(Flags &flags, bool withFiles) {
  flags.value(
      "shape", "NAME=EXTENT,...", "extents of open dimensions",
      [this](llvm::StringRef text) { return parseExtents(text, shape); });
  flags.value("input", withFiles ? "NAME=FILE.npy|FAMILY" : "NAME=FAMILY",
              "one input; FAMILY is normal ninf nan offset const growing tiny "
              "huge mixed uniform(a,b)",
              [this, withFiles](llvm::StringRef text) {
                return parseInput(text, withFiles);
              });
  if (withFiles)
    flags.text("inputs-from", "FILE.npz", "inputs by name from one file", npz);
  flags.integer("seed", "N", "of random inputs (0)", seed, 0, INT64_MAX);
}

/// Takes the extents of open dimensions from an array; they must agree with
/// what is known.
static llvm::Error learnExtents(const Port &port, const Tensor &tensor,
                                llvm::StringRef file, Extents &extents) {
  if (tensor.rank() != port.dims.size())
    return fail(ExitCode::Model, file + ": found " + describe(tensor) +
                                     " for input '" + port.name +
                                     "', expected rank " +
                                     llvm::Twine(port.dims.size()));
  for (unsigned i = 0; i < port.dims.size(); ++i) {
    int64_t found = tensor.shape()[i];
    int64_t expected =
        port.extents[i] >= 0
            ? port.extents[i]
            : extents.try_emplace(dimName(port, i), found).first->second;
    if (found != expected)
      return fail(ExitCode::Model,
                  file + ": found extent " + llvm::Twine(found) +
                      " of dimension " + llvm::Twine(i) + " ('" +
                      dimName(port, i) + "') of input '" + port.name +
                      "', expected " + llvm::Twine(expected));
  }
  if (tensor.dtype() != port.dtype)
    return fail(ExitCode::Model, file + ": found " + describe(tensor) +
                                     " for input '" + port.name +
                                     "', expected " + nameOf(port.dtype));
  return llvm::Error::success();
}

llvm::Expected<std::vector<Tensor>>
InputFlags::make(llvm::ArrayRef<Port> ports) const {
  if (llvm::Error error = checkExtents(ports, shape))
    return std::move(error);
  std::vector<llvm::StringRef> known(ports.size());
  llvm::transform(
      ports, known.begin(),
      [](const Port &port) -> llvm::StringRef { return port.name; });
  auto check = [&](llvm::StringRef name, llvm::StringRef place) -> llvm::Error {
    if (llvm::is_contained(known, name))
      return llvm::Error::success();
    return fail(ExitCode::Usage, place + "found the unknown input '" + name +
                                     "'" + suggestion(name, known));
  };
  std::map<std::string, Tensor> given;
  std::map<std::string, std::string> origin;
  if (!npz.empty()) {
    auto arrays = readNpz(npz);
    if (!arrays)
      return arrays.takeError();
    for (NamedTensor &array : *arrays) {
      given[array.name] = std::move(array.tensor);
      origin[array.name] = npz;
    }
  }
  for (const auto &[name, file] : files) {
    if (llvm::Error error = check(name, ""))
      return std::move(error);
    auto port = llvm::find_if(
        ports, [&](const Port &port) { return port.name == name; });
    auto array = readNpy(file, port->dtype);
    if (!array)
      return array.takeError();
    given[name] = std::move(*array);
    origin[name] = file;
  }
  Extents extents = shape;
  for (const auto &[name, recipe] : recipes)
    if (llvm::Error error = check(name, ""))
      return std::move(error);
  for (const auto &[name, tensor] : given) {
    if (llvm::Error error = check(name, origin[name] + ": "))
      return std::move(error);
    auto port = llvm::find_if(
        ports, [&](const Port &port) { return port.name == name; });
    if (llvm::Error error = learnExtents(*port, tensor, origin[name], extents))
      return std::move(error);
  }
  std::vector<Port> open;
  for (const Port &port : ports)
    if (!given.count(port.name))
      open.push_back(port);
  auto random = makeInputs(open, extents, {}, recipes, seed);
  if (!random)
    return random.takeError();
  for (auto [port, tensor] : llvm::zip(open, *random))
    given[port.name] = tensor;
  std::vector<Tensor> result;
  for (const Port &port : ports)
    result.push_back(given[port.name]);
  return result;
}

} // namespace refold
