// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Constants that lie in other files than the package: mapped, not copied.
#include "FileMapping.h"
#include "refold/Package/Package.h"

#include <algorithm>
#include <filesystem>
#include <vector>

using namespace refold;
using namespace refold::package;
namespace fs = std::filesystem;

static uint64_t bytesOf(const Package &package, const WeightPlace &place) {
  int64_t bytes =
      package.program.buffers[place.buffer].bytes.constant().value_or(0);
  return uint64_t(std::max<int64_t>(bytes, 0));
}

bool package::hasWeights(const Package &package) {
  return std::all_of(package.weightPlaces.begin(), package.weightPlaces.end(),
                     [&](const WeightPlace &place) {
                       return package.program.buffers[place.buffer].data !=
                              nullptr;
                     });
}

/// Where file `name` of a package at `path` is looked for. What the package
/// says counts from the folder that it lies in itself, behind links.
static std::string placeOf(const Package &package, const std::string &name,
                           const std::string &path,
                           const std::string &weights) {
  std::error_code code;
  if (!weights.empty()) {
    bool isIt = package.weightFiles.size() == 1 && fs::exists(weights, code) &&
                !fs::is_directory(weights, code);
    return isIt ? weights : (fs::path(weights) / name).string();
  }
  fs::path real = fs::canonical(path, code);
  fs::path folder = (code ? fs::path(path) : real).parent_path();
  return (folder / package.weightsFolder / name).lexically_normal().string();
}

/// The constants that lie in `file`, whose bytes these are.
static Problem placeWeights(Package &package, uint32_t file,
                            std::string_view found, const std::string &where) {
  for (const WeightPlace &place : package.weightPlaces) {
    if (place.file != file)
      continue;
    uint64_t bytes = bytesOf(package, place);
    if (place.offset > found.size() || bytes > found.size() - place.offset)
      return problem(ExitCode::Model,
                     where + ": found " + std::to_string(found.size()) +
                         " bytes of weights, expected at least " +
                         std::to_string(place.offset + bytes));
    std::string_view own = found.substr(place.offset, bytes);
    if (checksum(own) != place.sum)
      return problem(ExitCode::Model,
                     where + ": found other weights at bytes " +
                         std::to_string(place.offset) + " to " +
                         std::to_string(place.offset + bytes) +
                         " than those that the package was made of");
    package.program.buffers[place.buffer].data = own.data();
  }
  return {};
}

Problem package::mapWeights(Package &package, const std::string &path,
                            const std::string &weights) {
  if (package.weightFiles.empty())
    return {};
  using Owners = std::vector<std::shared_ptr<void>>;
  auto owners = std::make_shared<Owners>(Owners{package.owner});
  for (uint32_t file = 0; file < package.weightFiles.size(); ++file) {
    std::string where =
        placeOf(package, package.weightFiles[file], path, weights);
    auto mapping = FileMapping::open(where);
    if (!mapping)
      return problem(mapping.error().code,
                     mapping.error().message + "; expected the weights of '" +
                         path + "' there, or in another folder that is named");
    if (Problem error = placeWeights(package, file, (*mapping)->bytes(), where))
      return error;
    owners->push_back(*mapping);
  }
  package.owner = std::move(owners);
  return {};
}
