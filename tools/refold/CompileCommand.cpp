// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Commands.h"
#include "Output.h"
#include "ProgramFlags.h"
#include "ReportJson.h"
#include "refold/Conversion/CascadeToCUDA.h"
#include "refold/Support/Error.h"
#include "refold/Support/Files.h"
#include "refold/Target/CPU/DetectTarget.h"
#include "llvm/Support/Format.h"

namespace refold {

/// What a kernel of the CUDA target says of its launch; docs/targets/cuda.md.
static llvm::json::Object toJson(const CudaKernel &kernel) {
  static const char *const kinds[] = {"pointer", "size",      "stride",
                                      "scalar",  "workspace", "tickets"};
  llvm::json::Array parameters, operands, entries, rows;
  for (const CudaParameter &p : kernel.parameters)
    parameters.push_back(llvm::json::Object{
        {"kind", kinds[p.kind]}, {"operand", p.operand}, {"dim", p.dim}});
  for (const CudaOperand &o : kernel.operands)
    operands.push_back(llvm::json::Object{{"rank", o.rank},
                                          {"element_bytes", o.elementBytes},
                                          {"result", o.isResult},
                                          {"vectors", o.hasVectors}});
  auto extent = [](const CudaExtent &e) {
    return llvm::json::Object{
        {"operand", e.operand}, {"dim", e.dim}, {"constant", e.constant}};
  };
  auto mapsOf = [&](const CudaEntry &e) {
    llvm::json::Array maps;
    for (const CudaMap &map : e.maps) {
      llvm::json::Array indices;
      for (const CudaMap::Index &index : map.indices)
        indices.push_back(llvm::json::Object{{"extent", extent(index.extent)},
                                             {"dim", index.dim},
                                             {"bytes", index.bytes}});
      maps.push_back(llvm::json::Object{{"operand", map.operand},
                                        {"columns", extent(map.columns)},
                                        {"indices", std::move(indices)},
                                        {"box_rows", map.boxRows}});
    }
    return maps;
  };
  for (const CudaEntry &e : kernel.entries)
    entries.push_back(llvm::json::Object{
        {"name", e.name},
        {"threads", e.threads},
        {"rows", e.rows},
        {"vectors", e.vectors},
        {"width", e.width},
        {"resident", e.isResident},
        {"longest", e.longest},
        {"deepest", e.deepest},
        {"widest", e.widest},
        {"shared_bytes", e.sharedBytes},
        {"kept_bytes", e.keptBytes},
        {"ahead_bytes", e.aheadBytes()},
        {"most_blocks", e.mostBlocks},
        {"waits", e.waits},
        {"held", e.held()},
        {"blocks", e.blocks},
        {"fewest_rows", e.fewestRows},
        {"shortest", e.shortest},
        {"turn_rows", e.turnRows},
        {"maps", mapsOf(e)},
        {"blocks_per_unit", e.isLoop ? e.blocksPerUnit : 0}});
  for (const CudaExtent &row : kernel.rows)
    rows.push_back(extent(row));
  llvm::json::Value tiles = nullptr;
  if (kernel.tiles)
    tiles = llvm::json::Object{{"rows", extent(kernel.tiles->rows)},
                               {"depth", extent(kernel.tiles->depth)},
                               {"width", extent(kernel.tiles->width)},
                               {"growing", kernel.tiles->isGrowing}};
  return llvm::json::Object{{"name", kernel.name},
                            {"tiles", std::move(tiles)},
                            {"text", kernel.text},
                            {"parameters", std::move(parameters)},
                            {"operands", std::move(operands)},
                            {"rows", std::move(rows)},
                            {"stream", extent(kernel.stream)},
                            {"entries", std::move(entries)}};
}

static llvm::json::Array toJson(llvm::ArrayRef<SizeExpr> sizes) {
  llvm::json::Array list;
  for (const SizeExpr &size : sizes)
    list.push_back(size.show());
  return list;
}

static llvm::json::Object toJson(const ViewSpec &view) {
  return llvm::json::Object{{"buffer", view.buffer},
                            {"dtype", nameOf(view.dtype)},
                            {"offset", view.offset.show()},
                            {"sizes", toJson(view.sizes)},
                            {"strides", toJson(view.strides)}};
}

static llvm::json::Object toJson(const Step &step) {
  llvm::json::Object answer{{"name", step.name}};
  if (!step.condition.constant())
    answer["condition"] = step.condition.show();
  if (auto *kernel = std::get_if<KernelStep>(&step.what)) {
    llvm::json::Array operands;
    for (const OperandSpec &operand : kernel->operands) {
      if (auto *view = std::get_if<ViewSpec>(&operand))
        operands.push_back(toJson(*view));
      else
        operands.push_back(llvm::json::Object{
            {"value", std::get<ScalarSpec>(operand).value.show()}});
    }
    answer["kernel"] = kernel->kernel;
    answer["inputs"] = kernel->numInputs;
    answer["operands"] = std::move(operands);
  } else if (auto *copy = std::get_if<CopyStep>(&step.what)) {
    answer["from"] = toJson(copy->from);
    answer["to"] = toJson(copy->to);
  } else if (auto *check = std::get_if<AssertStep>(&step.what)) {
    answer["message"] = check->message;
    if (auto *size = std::get_if<SizeExpr>(&check->condition))
      answer["holds"] = size->show();
    else
      answer["flags"] = toJson(std::get<ViewSpec>(check->condition));
  }
  return answer;
}

/// What lies where, and what runs in which order. `s0` is the extent that
/// "symbols" names first.
static void addPlan(const ExecutableSpec &spec, llvm::json::Object &answer) {
  static const char *const kinds[] = {"input", "output", "constant",
                                      "temporary"};
  llvm::json::Array symbols, buffers, steps;
  std::vector<std::string> names(spec.numSymbols);
  for (const InputSpec &input : spec.inputs)
    for (const DimSpec &dim : input.dims)
      if (dim.extent < 0)
        names[dim.symbol] = dim.name;
  for (const std::string &name : names)
    symbols.push_back(name);
  for (const BufferSpec &buffer : spec.buffers) {
    llvm::json::Object one{{"kind", kinds[unsigned(buffer.kind)]},
                           {"bytes", buffer.bytes.show()}};
    if (buffer.kind <= BufferKind::Output)
      one["port"] = buffer.port;
    buffers.push_back(std::move(one));
  }
  for (const Step &step : spec.steps)
    steps.push_back(toJson(step));
  answer["symbols"] = std::move(symbols);
  answer["buffers"] = std::move(buffers);
  answer["steps"] = std::move(steps);
}

/// Which kernels run only for sizes that those of fused steps have no room for.
static std::vector<bool> areForOthers(const ExecutableSpec &spec) {
  std::vector<bool> isOther(spec.kernels.size(), true);
  for (size_t i = 0; i < std::min(spec.firstOther, spec.steps.size()); ++i)
    if (auto *kernel = std::get_if<KernelStep>(&spec.steps[i].what))
      isOther[kernel->kernel] = false;
  return isOther;
}

/// The program as text at one stage of its way through the folders of lib/.
static llvm::Expected<std::string> textAt(llvm::StringRef stage,
                                          LoadedProgram program,
                                          const CompileOptions &options,
                                          bool withLocations, bool isJson) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (stage == "asm") {
    if (llvm::StringRef(options.target).starts_with("cuda"))
      return fail(ExitCode::Usage, "found --emit asm with the target '" +
                                       options.target +
                                       "', expected --emit cuda");
    CompileOptions listening = options;
    listening.onAssembly = [&](llvm::StringRef kernel,
                               llvm::StringRef assembly) {
      os << "# kernel " << kernel << "\n" << assembly << "\n";
    };
    auto compiled = compile(std::move(program), listening);
    if (!compiled)
      return compiled.takeError();
    return os.str();
  }
  if (stage == "cascade") {
    FuseOptions fuseOptions;
    fuseOptions.policy = options.policy;
    fuseOptions.numerics = options.numerics;
    if (!llvm::StringRef(options.target).starts_with("cuda")) {
      auto machine = detectTarget(options.target);
      if (!machine)
        return machine.takeError();
      fuseOptions.facts = machine->facts;
    }
    auto report = fuse(*program.module, fuseOptions);
    if (!report)
      return report.takeError();
  }
  if (stage == "cuda") {
    CompileOptions listening = options;
    if (listening.target.empty())
      listening.target = "cuda-sm90";
    if (!llvm::StringRef(listening.target).starts_with("cuda"))
      return fail(ExitCode::Usage, "found --emit cuda with the target '" +
                                       listening.target +
                                       "', expected cuda-sm80 or cuda-sm90");
    std::vector<CudaKernel> kernels;
    listening.onCuda = [&](const CudaKernel &kernel) {
      kernels.push_back(kernel);
    };
    auto compiled = compile(std::move(program), listening);
    if (!compiled)
      return compiled.takeError();
    llvm::json::Array described;
    std::vector<bool> isOther = areForOthers(compiled->executable.spec());
    for (auto [kernel, isForOthers] : llvm::zip_equal(kernels, isOther)) {
      llvm::json::Object one = toJson(kernel);
      one["for_other_sizes"] = bool(isForOthers);
      described.push_back(std::move(one));
      if (!isJson && !isForOthers)
        os << kernel.text;
    }
    if (isJson) {
      llvm::json::Object answer{{"kernels", std::move(described)}};
      addPlan(compiled->executable.spec(), answer);
      os << llvm::json::Value(std::move(answer)) << "\n";
    }
    return os.str();
  }
  mlir::OpPrintingFlags printing;
  if (withLocations)
    printing.enableDebugInfo(/*enable=*/true, /*prettyForm=*/true)
        .useLocalScope();
  program.module->print(os, printing);
  return os.str();
}

static llvm::json::Object toJson(const CompiledProgram &compiled) {
  return llvm::json::Object{{"compile_ms", compiled.compileMs},
                            {"counters", compiled.executable.counters()},
                            {"stages", stagesToJson(compiled.stages)}};
}

static void printCompiled(const CompiledProgram &compiled, bool withStages) {
  llvm::json::Object counters = compiled.executable.counters();
  auto count = [&](llvm::StringRef name) {
    return counters.getInteger(name).value_or(0);
  };
  llvm::raw_ostream &os = llvm::outs();
  os << llvm::format("compiled in %.1f ms: ", compiled.compileMs)
     << count("kernels") << " kernels";
  if (int64_t cached = count("cached_kernels"))
    os << " (" << cached << " cached)";
  os << ", " << count("products") << " products, " << count("steps")
     << " steps, " << formatBytes(count("constant_bytes")) << " of constants";
  if (int64_t once = count("once_steps"))
    os << "; " << once << " of the steps are of constants alone, done once ("
       << formatBytes(count("kept_bytes")) << " kept)";
  os << "\n";
  if (!withStages)
    return;
  double total = 0;
  for (const StageTimes::Stage &stage : compiled.stages)
    total += stage.ms;
  os << "\n  CPU ms  share  runs  stage\n";
  for (const StageTimes::Stage &stage : compiled.stages)
    os << llvm::format("%8.2f %4.0f %% %5d  ", stage.ms,
                       total > 0 ? 100.0 * stage.ms / total : 0.0,
                       int(stage.count))
       << stage.name << "\n";
  os << llvm::format("%8.2f               all\n", total);
}

llvm::Expected<ExitCode> compileCommand(const Command &command,
                                        Arguments arguments) {
  ProgramFlags program;
  CompileOptions options;
  std::string emit, output, weights;
  bool withLocations = false, withStages = false;
  Flags flags;
  program.addTo(flags);
  program.addDtypeTo(flags);
  program.addNumericsTo(flags);
  program.addCacheTo(flags);
  flags.choice("emit",
               "shows the program as read, as cascades, as assembly, or as "
               "CUDA C++",
               emit, {"program", "cascade", "asm", "cuda"});
  addFuseTo(flags, options.policy);
  flags.text("target", "NAME",
             "cpu, avx512, avx2, baseline, cuda-sm80 or cuda-sm90 (what the "
             "machine offers)",
             options.target);
  flags.toggle("locations", "with the definition or node of every operation",
               withLocations);
  flags.toggle("timing", "with the time of every stage", withStages);
  flags.choice("weights",
               "what a package has of its weights: a copy of all (the "
               "default), or where they lie in the files of the program",
               weights, {"copy", "reference"});
  flags.text("output", "FILE",
             "where --emit writes (stdout), or else a package; also -o",
             output);
  if (showHelp(command, flags, arguments))
    return ExitCode::Ok;
  if (llvm::Error error = flags.parse(command.name, arguments))
    return std::move(error);
  if (!weights.empty() && (output.empty() || !emit.empty()))
    return fail(ExitCode::Usage, "found --weights without a package, expected "
                                 "it with -o FILE and no --emit");
  options.numerics = program.numerics;
  if (llvm::StringRef(options.target).starts_with("cuda") || emit == "cuda")
    options.onReport = tellDeclined;
  auto context = makeContext();
  auto loaded = load(*context, program.path, program.loadOptions());
  if (!loaded)
    return loaded.takeError();
  tellNarrowed(*loaded, program.multiply);
  if (!emit.empty()) {
    auto text = textAt(emit, std::move(*loaded), options, withLocations,
                       program.isJson());
    if (!text)
      return text.takeError();
    if (output.empty())
      llvm::outs() << *text;
    else if (llvm::Error error = writeFileAtomically(output, *text))
      return std::move(error);
    return ExitCode::Ok;
  }
  auto cache = program.openCache();
  if (!cache)
    return cache.takeError();
  options.cache = cache->get();
  if (options.target == "cpu")
    options.target.clear();
  if (!output.empty()) {
    auto storage = weights == "reference" ? WeightStorage::Referenced
                                          : WeightStorage::Copied;
    auto report = writePackage(std::move(*loaded), options, storage, output);
    if (!report)
      return report.takeError();
    if (storage == WeightStorage::Referenced)
      tellReferenced(*report);
    tellLibraryProducts(*report);
    return ExitCode::Ok;
  }
  auto compiled = compile(std::move(*loaded), options);
  if (!compiled)
    return compiled.takeError();
  if (program.isJson())
    printJson(toJson(*compiled));
  else
    printCompiled(*compiled, withStages);
  return ExitCode::Ok;
}

} // namespace refold
