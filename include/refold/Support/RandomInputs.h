// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SUPPORT_RANDOMINPUTS_H
#define REFOLD_SUPPORT_RANDOMINPUTS_H

#include "refold/Support/Tensor.h"
#include <string>

namespace refold {

/// A way to fill an array, and what it is there to upset.
enum class InputFamily : uint8_t {
  Normal,  ///< standard normal
  NegInf,  ///< a quarter of the elements -inf, and every third row wholly
  NaN,     ///< one NaN in every third row
  Offset,  ///< standard normal around 1000: cancellation
  Const,   ///< one value: zero variance, all ties
  Growing, ///< rises along the row by a tenth a step: every element is the new
           ///< maximum
  Uniform, ///< uniform in [low, high); an integer type gets integers
  Tiny,    ///< standard normal, so small that squares are subnormal
  Huge,    ///< so large that squares are infinite
  Mixed,   ///< each row of another size between these two, and in it a quarter
           ///< of the elements
};

struct InputRecipe {
  InputFamily family = InputFamily::Normal;
  double low = 0.0, high = 1.0; ///< of Uniform
};

/// "normal", "ninf", "nan", "offset", "const", "growing", "tiny",
/// "huge", "mixed", "uniform(a,b)".
llvm::Expected<InputRecipe> parseInputRecipe(llvm::StringRef text);
std::string describe(const InputRecipe &recipe);

/// Fills every element; rows are those of the last axis. The values depend on
/// recipe, seed, name, dtype and shape only. Integer types have no -inf and
/// NaN: they get the rounded values of Normal, scaled by 8.
void fillRandom(Tensor &tensor, const InputRecipe &recipe, uint64_t seed,
                llvm::StringRef name);

} // namespace refold

#endif // REFOLD_SUPPORT_RANDOMINPUTS_H
