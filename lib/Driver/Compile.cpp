// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/Driver.h"
#include "refold/Support/Error.h"
#include "refold/Target/CPU/CompileProgram.h"
#include "refold/Target/CPU/DetectTarget.h"
#include <chrono>

namespace refold {

llvm::Expected<CompiledProgram> compile(LoadedProgram program,
                                        const CompileOptions &options) {
  auto begin = std::chrono::steady_clock::now();
  llvm::Expected<CpuTarget> target = detectTarget(options.target);
  if (!target)
    return target.takeError();
  FuseOptions fuseOptions;
  fuseOptions.policy = options.policy;
  llvm::Expected<FuseReport> fusion = fuse(*program.module, fuseOptions);
  if (!fusion)
    return fusion.takeError();
  CompileProgramOptions programOptions;
  programOptions.onAssembly = options.onAssembly;
  llvm::Expected<ExecutableSpec> spec =
      compileProgram(*program.module, *target, programOptions);
  if (!spec)
    return spec.takeError();
  if (program.storage)
    spec->owners.push_back(program.storage);
  Executable executable(std::move(*spec));
  std::chrono::duration<double, std::milli> spent =
      std::chrono::steady_clock::now() - begin;
  return CompiledProgram{std::move(program.name),    std::move(program.inputs),
                         std::move(program.outputs), std::move(executable),
                         std::move(*fusion),         spent.count()};
}

} // namespace refold
