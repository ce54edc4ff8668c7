// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_UNITTESTS_TARGET_CPU_COMPILETEXT_H
#define REFOLD_UNITTESTS_TARGET_CPU_COMPILETEXT_H

#include "mlir/Parser/Parser.h"
#include "refold/Target/CPU/ObjectCode.h"
#include "gtest/gtest.h"

namespace refold::test {

/// The targets that this machine runs.
inline std::vector<CpuTarget> runnableTargets() {
  std::vector<CpuTarget> targets;
  for (llvm::StringRef name : {"avx512", "avx2", "baseline"}) {
    llvm::Expected<CpuTarget> target = detectTarget(name);
    if (target)
      targets.push_back(*target);
    else
      llvm::consumeError(target.takeError());
  }
  return targets;
}

/// Object code or assembly of MLIR text; null, and the test fails, where there
/// is none.
inline std::unique_ptr<llvm::MemoryBuffer>
emitText(llvm::StringRef text, const CpuTarget &target,
         const ObjectOptions &options) {
  mlir::DialectRegistry registry;
  registerCpuDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  if (!module) {
    ADD_FAILURE() << "does not parse: " << text.str();
    return nullptr;
  }
  auto emitted = emitObject(*module, target, options);
  if (!emitted) {
    ADD_FAILURE() << llvm::toString(emitted.takeError());
    return nullptr;
  }
  return std::move(*emitted);
}

inline std::string assemblyOfText(llvm::StringRef text,
                                  const CpuTarget &target) {
  ObjectOptions options;
  options.asAssembly = true;
  auto assembly = emitText(text, target, options);
  return assembly ? assembly->getBuffer().str() : "";
}

/// Compiles MLIR text; fails the test where that fails.
inline std::shared_ptr<LoadedCode> compileText(llvm::StringRef text,
                                               const CpuTarget &target,
                                               ObjectOptions options = {}) {
  auto object = emitText(text, target, options);
  if (!object)
    return nullptr;
  std::vector<std::unique_ptr<llvm::MemoryBuffer>> objects;
  objects.push_back(std::move(object));
  auto code = LoadedCode::load(std::move(objects));
  if (!code) {
    ADD_FAILURE() << llvm::toString(code.takeError());
    return nullptr;
  }
  return *code;
}

/// An elementwise function from arrays of `from` to arrays of `to`: once on
/// vectors, once on scalars. `body` maps %x of `type(from)` to %y of
/// `type(to)`; FROM and TO in it are replaced by the types, and ALL<number>ALL
/// is that number in all lanes.
class Elementwise {
public:
  Elementwise(llvm::StringRef from, llvm::StringRef to, llvm::StringRef body,
              unsigned lanes, const CpuTarget &target) {
    std::string text;
    for (bool isVector : {true, false}) {
      auto typed = [&](llvm::StringRef element) {
        return isVector ? "vector<" + std::to_string(lanes) + "x" +
                              element.str() + ">"
                        : element.str();
      };
      std::string code = body.str();
      auto replace = [&](llvm::StringRef what, const std::string &by) {
        for (size_t at; (at = code.find(what.str())) != std::string::npos;)
          code.replace(at, what.size(), by);
      };
      replace("FROM", typed(from));
      replace("TO", typed(to));
      replace(">ALL", isVector ? ">" : "");
      replace("ALL<", isVector ? "dense<" : "");
      std::string in = "memref<?x" + from.str() + ">";
      std::string out = "memref<?x" + to.str() + ">";
      std::string vectorIn = isVector ? ", " + typed(from) : "";
      std::string vectorOut = isVector ? ", " + typed(to) : "";
      std::string dialect = isVector ? "vector" : "memref";
      text += "func.func @" + std::string(isVector ? "vectors" : "scalars") +
              "(%from: " + in + ", %to: " + out +
              ") {\n  %c0 = arith.constant 0 : index\n"
              "  %n = memref.dim %from, %c0 : " +
              in + "\n  %step = arith.constant " +
              std::to_string(isVector ? lanes : 1) +
              " : index\n  scf.for %i = %c0 to %n step %step {\n"
              "    %x = " +
              dialect + ".load %from[%i] : " + in + vectorIn + "\n    " + code +
              "\n    " + dialect + ".store %y, %to[%i] : " + out + vectorOut +
              "\n  }\n  return\n}\n";
    }
    code = compileText(text, target);
  }

  explicit operator bool() const { return code != nullptr; }

  /// `count` is a multiple of the lanes.
  void run(bool onVectors, const void *from, void *to, int64_t count) {
    llvm::Expected<KernelFunction> function =
        code->find(onVectors ? "vectors" : "scalars");
    ASSERT_TRUE(bool(function)) << llvm::toString(function.takeError());
    int64_t in = reinterpret_cast<intptr_t>(from);
    int64_t out = reinterpret_cast<intptr_t>(to);
    int64_t words[] = {in, in, 0, count, 1, out, out, 0, count, 1};
    (*function)(words, nullptr);
  }

private:
  std::shared_ptr<LoadedCode> code;
};

} // namespace refold::test

#endif // REFOLD_UNITTESTS_TARGET_CPU_COMPILETEXT_H
