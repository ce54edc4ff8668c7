// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Package/TunedFile.h"

#include "refold/Support/WriteFile.h"
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <fstream>
#include <sstream>
#include <sys/stat.h>

using namespace refold;
using namespace refold::package;

static constexpr std::string_view kHead = "choices of refold, 1, ";

static std::string hexOf(std::string_view bytes) {
  char text[24];
  std::snprintf(text, sizeof(text), "%016" PRIx64, checksum(bytes));
  return text;
}

/// As a terminal shows it, whatever the file holds.
static std::string plain(std::string text) {
  for (char &one : text)
    if (static_cast<unsigned char>(one) < 0x20 || one == 0x7f)
      one = '?';
  return text.substr(0, 200);
}

/// The kernel, and what it is launched on.
static std::string keyOf(const LaunchOfShape &of) {
  std::string kernel = of.kernel.name + "\n" + of.kernel.text;
  forEachWay(of.kernel,
             [&](const LaunchWay &way) { kernel += "\n" + way.entry; });
  std::string_view words(reinterpret_cast<const char *>(of.words.data()),
                         of.words.size_bytes());
  return hexOf(kernel) + " " + std::to_string(of.launch) + " " + hexOf(words);
}

TunedFile::TunedFile(const GpuFacts &gpu)
    : machine(gpu.name + ", " + gpu.architecture() + ", driver " +
              std::to_string(gpu.driverVersion)) {}

Problem TunedFile::load(const std::string &path) {
  constexpr int64_t kMostBytes = int64_t(16) << 20;
  choices.clear();
  struct stat status;
  if (::stat(path.c_str(), &status) != 0)
    return problem(ExitCode::Model, path + ": " + std::strerror(errno));
  if (!S_ISREG(status.st_mode) || status.st_size > kMostBytes)
    return problem(ExitCode::Model, path + ": found no file of choices");
  std::ifstream file(path, std::ios::binary);
  std::string all{std::istreambuf_iterator<char>(file), {}};
  size_t end = all.find('\n');
  if (end == std::string::npos || all.rfind(kHead, 0) != 0)
    return problem(ExitCode::Model, path + ": found no file of choices");
  if (all.substr(kHead.size(), end - kHead.size()) !=
      hexOf(std::string_view(all).substr(end + 1)))
    return problem(ExitCode::Model,
                   path + ": the checksum does not match: the file is damaged");
  std::istringstream lines(all.substr(end + 1));
  std::string line;
  std::getline(lines, line);
  if (line != machine)
    return problem(ExitCode::Model, path + ": found choices for '" +
                                        plain(line) + "', expected '" +
                                        machine + "'");
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string kernel, launch, words;
    LaunchChoice choice;
    if (!(fields >> kernel >> launch >> words >> choice.blocks >> choice.entry))
      return choices.clear(),
             problem(ExitCode::Model, path + ": found the line '" +
                                          plain(line) + "', expected a choice");
    choices[kernel + " " + launch + " " + words] = choice;
  }
  return {};
}

Problem TunedFile::save(const std::string &path) const {
  std::string body = machine + "\n";
  for (const auto &[key, choice] : choices)
    body +=
        key + " " + std::to_string(choice.blocks) + " " + choice.entry + "\n";
  std::string head = std::string(kHead) + hexOf(body) + "\n";
  WriteFailure failure = writeWholeFile(path, {head, body});
  return failure.code == ExitCode::Ok ? Problem()
                                      : problem(failure.code, failure.message);
}

std::optional<LaunchChoice> TunedFile::find(const LaunchOfShape &of) const {
  if (choices.empty())
    return std::nullopt;
  auto found = choices.find(keyOf(of));
  return found == choices.end() ? std::nullopt : std::optional(found->second);
}

void TunedFile::keep(const LaunchOfShape &of, const LaunchChoice &choice) {
  choices[keyOf(of)] = choice;
}
