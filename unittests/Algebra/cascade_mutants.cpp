// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Plants defects in derived programs, one at a time, and asks the certifier.
//
//   cascade_mutants [--every N] [--print]
//
// Ends with 0 if each is rejected or named in EquivalentMutants.txt with a
// proof that it computes the same, and if all that are named there survive.
#include "Mutants.h"
#include "MutantsEquivalent.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace refold::algebra::test;

int main(int argc, char **argv) {
  unsigned every = 1;
  bool printsAll = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--print") == 0) {
      printsAll = true;
    } else if (std::strcmp(argv[i], "--every") == 0 && i + 1 < argc &&
               std::atoi(argv[i + 1]) > 0) {
      every = unsigned(std::atoi(argv[++i]));
    } else {
      std::fprintf(stderr, "found '%s', expected --every N or --print\n",
                   argv[i]);
      return 2;
    }
  }
  MutantCount count;
  plantMutants(every, [&](const Mutant &mutant) {
    count.add(mutant);
    if (mutant.isSurvivor())
      std::printf("survives %s\n", mutant.title().c_str());
    else if (printsAll)
      std::printf(
          "%s %s: %s\n", mutant.rejection.empty() ? "equivalent" : "rejected",
          mutant.title().c_str(),
          (mutant.rejection.empty() ? mutant.equivalence : mutant.rejection)
              .c_str());
  });
  std::vector<std::string> idle;
  if (every == 1)
    idle = count.idleExcuses(Equivalents::known());
  for (const std::string &title : idle)
    std::printf("excused, but no survivor: %s\n", title.c_str());
  std::printf("%s%u mutants, %u survive\n", count.summary().c_str(),
              count.planted(), count.survivors());
  return count.survivors() || !idle.empty() ? 3 : 0;
}
