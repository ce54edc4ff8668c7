// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Defects planted in the text of a kernel or in a header that it includes.
#ifndef REFOLD_UNITTESTS_TARGET_CUDA_PLANTEDDEFECTS_H
#define REFOLD_UNITTESTS_TARGET_CUDA_PLANTEDDEFECTS_H

#include "refold/Target/CUDA/CompileCuda.h"
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace refold::test {

struct Defect {
  const char *from, *to;
};

/// Has the kernel carry a header of its own, so that defects reach it too.
inline void carryHeader(CudaKernel &kernel, llvm::StringRef header,
                        llvm::StringRef guard) {
  std::string carried;
  for (auto [name, text] : cudaHeaders())
    if (name == header)
      carried = text.str();
  // What others include of it is left out.
  std::string include = "#include \"refold_cuda.h\"\n",
              own = ("#include \"" + header + "\"\n").str();
  size_t place = kernel.text.find(include);
  ASSERT_NE(place, std::string::npos);
  if (size_t at = kernel.text.find(own); at != std::string::npos)
    kernel.text.erase(at, own.size());
  kernel.text.insert(place + include.size(),
                     ("#undef " + guard + "\n").str() + carried);
  kernel.text.insert(place, ("#define " + guard + "\n").str());
}

/// Everywhere in the text.
inline void plant(CudaKernel &kernel, const Defect &defect) {
  std::string from = defect.from;
  size_t at = kernel.text.find(from);
  ASSERT_NE(at, std::string::npos) << "the text has no '" << from << "'";
  for (; at != std::string::npos; at = kernel.text.find(from, at)) {
    kernel.text.replace(at, from.size(), defect.to);
    at += strlen(defect.to);
  }
}

/// That the emulator, or a wrong answer, shows the defect: a text that no
/// compiler takes shows nothing.
inline void expectCaught(const std::string &wrong, const Defect &defect) {
  EXPECT_FALSE(wrong.empty())
      << "'" << defect.from << "' as '" << defect.to << "'";
  EXPECT_EQ(wrong.find("does not compile"), std::string::npos) << wrong;
  EXPECT_EQ(wrong.find("compiler refuses"), std::string::npos) << wrong;
}

/// That what boxes are told of each array by the launch of an entry matters:
/// `judge` finds nothing wrong without a change, and something with any.
template <typename Judge>
void expectMapsMatter(const CudaKernel &kernel, llvm::StringRef name,
                      Judge judge) {
  ExecutableSpec kept; // so that the text is compiled once
  setenv("REFOLD_CUDA_ENTRY", name.str().c_str(), 1);
  ASSERT_FALSE(bool(attachEmulated(kept, {kernel})));
  unsetenv("REFOLD_CUDA_ENTRY");
  ASSERT_EQ(judge(kernel), "");
  using Change = void (*)(CudaMap &);
  const std::pair<const char *, Change> changes[] = {
      {"boxes of half the rows", [](CudaMap &m) { m.boxRows /= 2; }},
      {"rows beside each other",
       [](CudaMap &m) {
         m.indices[0].dim = -1;
         m.indices[0].bytes = 16;
       }},
      {"one row", [](CudaMap &m) { m.indices[0].extent = CudaExtent(); }},
      {"more rows than there are",
       [](CudaMap &m) { m.indices[0].extent = CudaExtent{-1, -1, 1 << 20}; }},
      {"fewer columns", [](CudaMap &m) { m.columns = CudaExtent{-1, -1, 8}; }},
      {"no columns", [](CudaMap &m) { m.columns = CudaExtent{-1, -1, 0}; }}};
  unsigned count = 0;
  for (size_t e = 0; e < kernel.entries.size(); ++e)
    for (size_t i = 0; i < kernel.entries[e].maps.size(); ++i)
      for (auto [what, change] : changes) {
        if (!llvm::StringRef(kernel.entries[e].name).ends_with(name))
          continue;
        CudaKernel other = kernel;
        change(other.entries[e].maps[i]);
        EXPECT_NE(judge(other), "") << "map " << i << ": " << what;
        ++count;
      }
  EXPECT_GT(count, 0u);
}

/// Every `step`th of the list, which has some of each kind; all of them where
/// REFOLD_ALL_DEFECTS is set: each takes a compiler and some launches.
inline std::vector<Defect> chosenDefects(const std::vector<Defect> &defects,
                                         size_t step = 6) {
  if (std::getenv("REFOLD_ALL_DEFECTS"))
    return defects;
  std::vector<Defect> chosen;
  for (size_t i = 0; i < defects.size(); i += step)
    chosen.push_back(defects[i]);
  return chosen;
}

} // namespace refold::test

#endif // REFOLD_UNITTESTS_TARGET_CUDA_PLANTEDDEFECTS_H
