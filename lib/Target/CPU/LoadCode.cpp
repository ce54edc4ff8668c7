// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/Error.h"
#include "refold/Target/CPU/ObjectCode.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/TargetSelect.h"
#include <cmath>
#include <cstring>
#include <mutex>

using namespace refold;

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

/// Everything that generated code may call.
static llvm::ArrayRef<Symbol> allowedSymbols() {
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
  return table;
}

struct LoadedCode::Impl {
  /// What the session says beside the error that a call returns.
  std::string messages;
  std::mutex mutex;
  std::unique_ptr<llvm::orc::LLJIT> jit;

  llvm::Error asFailure(llvm::Error error) {
    std::string text = llvm::toString(std::move(error));
    std::lock_guard<std::mutex> lock(mutex);
    if (!messages.empty())
      text += ": " + std::exchange(messages, "");
    return fail(ExitCode::Internal, "loading generated code: " + text);
  }
};

LoadedCode::LoadedCode() : impl(std::make_unique<Impl>()) {}
LoadedCode::~LoadedCode() = default;

llvm::Expected<std::shared_ptr<LoadedCode>>
LoadedCode::load(std::vector<std::unique_ptr<llvm::MemoryBuffer>> objects) {
  llvm::InitializeNativeTarget(); // idempotent; a test may load without
                                  // emitting
  llvm::InitializeNativeTargetAsmPrinter();
  std::shared_ptr<LoadedCode> loaded(new LoadedCode());
  auto jit = llvm::orc::LLJITBuilder()
                 .setLinkProcessSymbolsByDefault(false)
                 .setPlatformSetUp(llvm::orc::setUpInactivePlatform)
                 .create();
  if (!jit)
    return loaded->impl->asFailure(jit.takeError());
  loaded->impl->jit = std::move(*jit);
  llvm::orc::LLJIT &engine = *loaded->impl->jit;
  engine.getExecutionSession().setErrorReporter(
      [state = loaded->impl.get()](llvm::Error error) {
        std::lock_guard<std::mutex> lock(state->mutex);
        state->messages += llvm::toString(std::move(error));
      });
  llvm::orc::SymbolMap symbols;
  for (const Symbol &symbol : allowedSymbols())
    symbols[engine.mangleAndIntern(symbol.name)] = {
        llvm::orc::ExecutorAddr::fromPtr(symbol.address),
        llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  llvm::orc::JITDylib &library = engine.getMainJITDylib();
  if (llvm::Error error =
          library.define(llvm::orc::absoluteSymbols(std::move(symbols))))
    return loaded->impl->asFailure(std::move(error));
  for (std::unique_ptr<llvm::MemoryBuffer> &object : objects)
    if (llvm::Error error = engine.addObjectFile(std::move(object)))
      return loaded->impl->asFailure(std::move(error));
  return loaded;
}

llvm::Expected<KernelFunction> LoadedCode::find(llvm::StringRef name) {
  auto address = impl->jit->lookup((name + "_words").str());
  if (!address)
    return impl->asFailure(address.takeError());
  return address->toPtr<KernelFunction>();
}
