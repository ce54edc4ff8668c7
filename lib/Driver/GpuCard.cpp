// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/GpuPlan.h"
#include "refold/Support/Error.h"

namespace refold {

std::string GpuCard::source() const {
  return isAssumed ? "assumed: " + why : "the GPU of this machine";
}

llvm::Expected<GpuCard> cardFor(llvm::StringRef target) {
  if (target != "cuda" && target != "cuda-sm80" && target != "cuda-sm90")
    return fail(ExitCode::Usage,
                "found the target '" + target +
                    "', expected avx512, avx2, baseline, cuda, cuda-sm80 or "
                    "cuda-sm90");
  GpuCard card;
  package::Outcome<package::GpuFacts> gpu = package::findGpu();
  if (gpu && (target == "cuda" || target == "cuda-sm80" ||
              gpu->textTarget() == target)) {
    card.facts = *gpu;
  } else {
    card.facts = usualGpu(target != "cuda-sm80");
    card.isAssumed = true;
    card.why = gpu ? "the GPU '" + gpu->name + "' runs other text"
                   : gpu.error().message.substr(
                         0, gpu.error().message.find_first_of(":;,"));
  }
  card.rates = ratesOf(card.facts);
  return card;
}

} // namespace refold
