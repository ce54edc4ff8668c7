// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Package/ObjectCode.h"

#include <cmath>
#include <cstring>

extern "C" {
float __powisf2(float, int);
double __powidf2(double, int);
}

namespace {
struct Symbol {
  const char *name;
  void *address;
};
template <typename T> Symbol symbol(const char *name, T *function) {
  return {name, reinterpret_cast<void *>(function)};
}
} // namespace

// One line a function of libm, in both precisions.
#define REFOLD_LIBM_1(NAME)                                                    \
  symbol(#NAME, static_cast<double (*)(double)>(::NAME)),                      \
      symbol(#NAME "f", static_cast<float (*)(float)>(::NAME##f))
#define REFOLD_LIBM_2(NAME)                                                    \
  symbol(#NAME, static_cast<double (*)(double, double)>(::NAME)),              \
      symbol(#NAME "f", static_cast<float (*)(float, float)>(::NAME##f))

void *refold::package::addressOfCallable(std::string_view name) {
  // Everything that generated code may call.
  static const Symbol table[] = {
      REFOLD_LIBM_1(acos),
      REFOLD_LIBM_1(acosh),
      REFOLD_LIBM_1(asin),
      REFOLD_LIBM_1(asinh),
      REFOLD_LIBM_1(atan),
      REFOLD_LIBM_1(atanh),
      REFOLD_LIBM_1(cbrt),
      REFOLD_LIBM_1(ceil),
      REFOLD_LIBM_1(cos),
      REFOLD_LIBM_1(cosh),
      REFOLD_LIBM_1(erf),
      REFOLD_LIBM_1(exp),
      REFOLD_LIBM_1(exp2),
      REFOLD_LIBM_1(expm1),
      REFOLD_LIBM_1(floor),
      REFOLD_LIBM_1(log),
      REFOLD_LIBM_1(log10),
      REFOLD_LIBM_1(log1p),
      REFOLD_LIBM_1(log2),
      REFOLD_LIBM_1(rint),
      REFOLD_LIBM_1(round),
      REFOLD_LIBM_1(roundeven),
      REFOLD_LIBM_1(sin),
      REFOLD_LIBM_1(sinh),
      REFOLD_LIBM_1(sqrt),
      REFOLD_LIBM_1(tan),
      REFOLD_LIBM_1(tanh),
      REFOLD_LIBM_1(trunc),
      REFOLD_LIBM_2(atan2),
      REFOLD_LIBM_2(fmax),
      REFOLD_LIBM_2(fmin),
      REFOLD_LIBM_2(fmod),
      REFOLD_LIBM_2(pow),
      symbol("__powidf2", __powidf2),
      symbol("__powisf2", __powisf2),
      symbol("memcpy", std::memcpy),
      symbol("memmove", std::memmove),
      symbol("memset", std::memset),
  };
  static const std::map<std::string_view, void *> addresses = [] {
    std::map<std::string_view, void *> map;
    for (const Symbol &symbol : table)
      map[symbol.name] = symbol.address;
    return map;
  }();
  auto found = addresses.find(name);
  return found == addresses.end() ? nullptr : found->second;
}
