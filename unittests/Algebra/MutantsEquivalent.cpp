// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "MutantsEquivalent.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace refold::algebra::test {

[[noreturn]] static void refuse(const std::string &what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

Equivalents::Equivalents(const std::string &text) {
  std::istringstream input(text);
  std::string proof;
  bool isProof = false;
  for (std::string line; std::getline(input, line);) {
    if (line.empty() || line[0] == '#')
      continue;
    if (line[0] != ' ') {
      proof = isProof ? proof + " " + line : line;
      isProof = true;
      continue;
    }
    isProof = false;
    std::string mutant = line.substr(line.find_first_not_of(' '));
    if (proof.empty())
      refuse("found '" + mutant + "' without a proof above it");
    if (!proofs.emplace(mutant, proof).second)
      refuse("found '" + mutant + "' twice");
  }
}

const Equivalents &Equivalents::known() {
  static const Equivalents equivalents = [] {
    std::string path =
        REFOLD_SOURCE_DIR "/unittests/Algebra/EquivalentMutants.txt";
    std::ifstream file(path);
    if (!file)
      refuse("found no file '" + path + "'");
    std::ostringstream text;
    text << file.rdbuf();
    return Equivalents(text.str());
  }();
  return equivalents;
}

std::string Equivalents::proofOf(const std::string &mutant) const {
  auto it = proofs.find(mutant);
  return it == proofs.end() ? "" : it->second;
}

} // namespace refold::algebra::test
