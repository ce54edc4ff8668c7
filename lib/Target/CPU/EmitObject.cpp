// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Target/CPU/ObjectCode.h"

#include "BalancePorts.h"
#include "ConstantsInMemory.h"
#include "InterleaveChains.h"
#include "JoinObjects.h"
#include "SplitModule.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "refold/Support/Error.h"
#include "refold/Target/CPU/Pipeline.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/CodeGen/MachineModuleInfo.h"
#include "llvm/CodeGen/Passes.h"
#include "llvm/CodeGen/TargetPassConfig.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/SmallVectorMemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Triple.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include <mutex>
#include <thread>

using namespace refold;

static constexpr llvm::StringLiteral kTriple = "x86_64-unknown-linux-gnu";

/// An option for which LLVM has no call; null: this LLVM has none.
static llvm::cl::opt<bool> *optionOf(llvm::StringRef name) {
  auto &named = llvm::cl::getRegisteredOptions();
  auto found = named.find(name);
  return found == named.end()
             ? nullptr
             : static_cast<llvm::cl::opt<bool> *>(found->second);
}

/// General registers whose chains could lie in mask registers: of 24 kernels,
/// extents open, the search changes no instruction, and takes 1 to 12 % of the
/// code generator's time (attention 9.5 of 106 ms). It is asked whenever a
/// function is compiled, so that it is left out for good.
static void leaveOutMaskChains() {
  if (auto *option = optionOf("disable-x86-domain-reassignment"))
    option->setValue(true);
}

static llvm::Expected<std::unique_ptr<llvm::TargetMachine>>
makeTargetMachine(const CpuTarget &target) {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::InitializeNativeTargetAsmParser();
    leaveOutMaskChains();
  });
  std::string error;
  const llvm::Target *found =
      llvm::TargetRegistry::lookupTarget(kTriple.str(), error);
  if (!found)
    return fail(ExitCode::Unsupported, "no code generator: " + error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard; // allowContraction
  return std::unique_ptr<llvm::TargetMachine>(found->createTargetMachine(
      kTriple, target.cpuName, target.features, options, llvm::Reloc::PIC_,
      llvm::CodeModel::Small, llvm::CodeGenOptLevel::Aggressive, /*JIT=*/true));
}

void refold::registerCpuDialects(mlir::DialectRegistry &registry) {
  registry.insert<mlir::affine::AffineDialect, mlir::arith::ArithDialect,
                  mlir::cf::ControlFlowDialect, mlir::func::FuncDialect,
                  mlir::LLVM::LLVMDialect, mlir::math::MathDialect,
                  mlir::memref::MemRefDialect, mlir::scf::SCFDialect,
                  mlir::vector::VectorDialect>();
  mlir::registerBuiltinDialectTranslation(registry);
  mlir::registerLLVMDialectTranslation(registry);
}

/// Runs the pipeline; an error has the diagnostics' text.
static llvm::Error lower(mlir::ModuleOp module, const CpuTarget &target,
                         StageTimes *times) {
  StageTimer timer(times, "kernel: MLIR passes");
  std::string messages;
  mlir::ScopedDiagnosticHandler handler(
      module.getContext(), [&](mlir::Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
          messages += (messages.empty() ? "" : "; ") + diagnostic.str();
        return mlir::success();
      });
  mlir::PassManager passes(module.getContext());
  passes.enableVerifier(false); // the last one verifies for all
  buildLowerToLLVM(passes, target.instructionSet);
  if (mlir::failed(passes.run(module)))
    return fail(ExitCode::Internal, "lowering to LLVM failed: " + messages);
  return llvm::Error::success();
}

static llvm::Value *word(llvm::IRBuilder<> &b, llvm::Value *words,
                         unsigned index) {
  return b.CreateConstInBoundsGEP1_64(b.getInt64Ty(), words, index);
}

/// The stack begins at a multiple of a register's bytes in all functions of a
/// kernel. LLVM leaves it as callers have it, at 16 bytes, where a register
/// that is kept there lies in two lines and one of them, by chance, in two
/// pages.
constexpr unsigned kStackBytes = 64;

/// A function `name` that calls `body` on such a stack.
static void alignStack(llvm::Function &body, llvm::StringRef name) {
  body.addFnAttr(llvm::Attribute::NoInline);
  llvm::Function *entry = llvm::Function::Create(
      body.getFunctionType(), llvm::GlobalValue::ExternalLinkage, name,
      *body.getParent());
  entry->addFnAttr("stackrealign");
  llvm::IRBuilder<> b(
      llvm::BasicBlock::Create(body.getContext(), "entry", entry));
  b.CreateCall(&body, {entry->getArg(0), entry->getArg(1)})
      ->setTailCallKind(llvm::CallInst::TCK_NoTail);
  b.CreateRetVoid();
}

/// Turns NAME into void NAME_words(const int64_t *words, int64_t *results),
/// which finds its arguments there, one a word. As a function of its own NAME
/// would take dozens of arguments on the stack, most of which nobody reads.
static void takeWords(llvm::Function &function) {
  llvm::Module &module = *function.getParent();
  std::string name = function.getName().str() + "_words";
  llvm::IRBuilder<> b(module.getContext());
  auto *type = llvm::FunctionType::get(
      b.getVoidTy(), {b.getPtrTy(), b.getPtrTy()}, /*isVarArg=*/false);
  llvm::Function *wrapper =
      llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage,
                             function.getName() + "_body", module);
  b.SetInsertPoint(
      llvm::BasicBlock::Create(module.getContext(), "entry", wrapper));
  llvm::SmallVector<llvm::Value *> arguments;
  for (auto [i, argument] : llvm::enumerate(function.args()))
    arguments.push_back(
        b.CreateLoad(argument.getType(), word(b, wrapper->getArg(0), i)));
  llvm::CallInst *result = b.CreateCall(&function, arguments);
  if (auto *parts = llvm::dyn_cast<llvm::StructType>(result->getType()))
    for (unsigned i = 0; i < parts->getNumElements(); ++i)
      b.CreateStore(b.CreateExtractValue(result, i),
                    word(b, wrapper->getArg(1), i));
  else if (!result->getType()->isVoidTy())
    b.CreateStore(result, wrapper->getArg(1));
  b.CreateRetVoid();
  llvm::InlineFunctionInfo info;
  bool isInside = llvm::InlineFunction(*result, info).isSuccess();
  if (isInside && function.use_empty())
    function.eraseFromParent();
  else
    function.setLinkage(llvm::GlobalValue::InternalLinkage);
  alignStack(*wrapper, name);
}

/// a * b + c may be one FMA where whoever wrote the sum says so: the walk, of
/// what it adds up, and functions. An addition of the program may not, nor may
/// a difference: the code generator contracts inside a block, and not all of
/// what is computed again stands in one. x·c + b then exceeds its own maximum
/// by some units in the last place, and its exponential is anything, up to inf.
static void allowContraction(llvm::Function &function) {
  for (llvm::Instruction &instruction : llvm::instructions(function))
    if (instruction.getOpcode() == llvm::Instruction::FMul)
      instruction.setHasAllowContract(true);
}

/// Stores past the caches are to aligned places, as `Spelling` has it; vector's
/// lowering gives them the alignment of an element, for which they would be
/// taken apart.
static void alignStreamingStores(llvm::Function &function) {
  for (llvm::Instruction &instruction : llvm::instructions(function)) {
    auto *store = llvm::dyn_cast<llvm::StoreInst>(&instruction);
    if (!store || !store->hasMetadata(llvm::LLVMContext::MD_nontemporal))
      continue;
    uint64_t bits =
        store->getValueOperand()->getType()->getPrimitiveSizeInBits();
    store->setAlignment(llvm::Align(std::max<uint64_t>(bits / 8, 1)));
  }
}

static void optimise(llvm::Module &module, llvm::TargetMachine &machine,
                     unsigned level) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager callGraph;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(callGraph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, callGraph, modules);
  builder
      .buildPerModuleDefaultPipeline(level == 1   ? llvm::OptimizationLevel::O1
                                     : level == 2 ? llvm::OptimizationLevel::O2
                                                  : llvm::OptimizationLevel::O3)
      .run(module, modules);
}

/// The module as LLVM's, with a wrapper for every public function and the
/// attributes of the target.
static std::unique_ptr<llvm::Module> translate(mlir::ModuleOp module,
                                               llvm::LLVMContext &context,
                                               const CpuTarget &target,
                                               llvm::TargetMachine &machine) {
  std::unique_ptr<llvm::Module> code =
      mlir::translateModuleToLLVMIR(module, context, "kernel");
  if (!code)
    return nullptr;
  code->setTargetTriple(machine.getTargetTriple().str());
  code->setDataLayout(machine.createDataLayout());
  code->setOverrideStackAlignment(kStackBytes);
  llvm::SmallVector<llvm::Function *> functions;
  for (llvm::Function &function : *code)
    if (!function.isDeclaration())
      functions.push_back(&function);
  for (llvm::Function *function : functions)
    if (function->hasExternalLinkage())
      takeWords(*function);
  for (llvm::Function &function : *code) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("prefer-vector-width",
                       llvm::Twine(target.facts.vectorBits).str());
    function.addFnAttr("target-cpu", target.cpuName);
    function.addFnAttr("target-features", target.features);
    function.addFnAttr(llvm::Attribute::NoUnwind);
    allowContraction(function);
    alignStreamingStores(function);
  }
  return code;
}

/// The code generator, without the reduction of loops' strengths. That and its
/// analyses are 35 % of its time, and what our loops take does not change (18
/// programs on a Zen 3: 0.90 to 1.04 times). LLVM has an option for it and no
/// call: it is set for as long as passes are added.
static bool addCodeGenerator(llvm::legacy::PassManager &passes,
                             llvm::TargetMachine &machine,
                             llvm::raw_pwrite_stream &stream, bool asAssembly,
                             bool keepsOrder) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> guard(mutex);
  auto *option = optionOf("disable-lsr");
  bool before = option && *option;
  if (option)
    option->setValue(true);
  // As `addPassesToEmitFile`, which has no word for what is left out.
  auto &generator = static_cast<llvm::LLVMTargetMachine &>(machine);
  llvm::TargetPassConfig *config = generator.createPassConfig(passes);
  config->setDisableVerify(true); // MLIR has verified what it translates
  passes.add(config);
  auto *functions = new llvm::MachineModuleInfoWrapperPass(&generator);
  passes.add(functions);
  if (keepsOrder)
    config->disablePass(&llvm::MachineSchedulerID);
  bool isUnable = config->addISelPasses();
  if (!isUnable) {
    config->addMachinePasses();
    config->setInitialized();
    isUnable =
        generator.addAsmPrinter(passes, stream, nullptr,
                                asAssembly ? llvm::CodeGenFileType::AssemblyFile
                                           : llvm::CodeGenFileType::ObjectFile,
                                functions->getMMI().getContext());
    passes.add(llvm::createFreeMachineFunctionPass());
  }
  if (option)
    option->setValue(before);
  return !isUnable;
}

/// Whether a loop carries half of 32 registers: the sums of a register tile,
/// printed in the order that has the fewest numbers beside them. LLVM's
/// scheduler has what eight rows are multiplied by in registers before it
/// begins, and then on the stack. Sapphire Rapids, 128 x 768 x 3072, open
/// extents, 5.5 ms, so 3.4. AVX2's tiles want it: 7.2 ms, without 8.1.
static bool carriesRegisterTile(const llvm::Module &module,
                                const CpuTarget &target) {
  constexpr int64_t kRegisters = 32;
  if (target.facts.vectorRegisters < kRegisters)
    return false;
  for (const llvm::Function &function : module)
    for (const llvm::BasicBlock &block : function)
      if (llvm::count_if(block.phis(), [](const llvm::PHINode &phi) {
            return phi.getType()->isVectorTy();
          }) >= kRegisters / 2)
        return true;
  return false;
}

static llvm::Error stopIfCancelled(const ObjectOptions &options) {
  if (options.isCancelled && options.isCancelled())
    return fail(ExitCode::Internal, "code generation was cancelled");
  return llvm::Error::success();
}

using Bytes = llvm::SmallVector<char, 0>;

static llvm::StringRef textOf(const Bytes &bytes) {
  return {bytes.data(), bytes.size()};
}

namespace {
/// Generates code of modules of one kernel.
struct Generator {
  const CpuTarget &target;
  const ObjectOptions &options;
  bool keepsOrder;

  llvm::Expected<Bytes> generate(llvm::Module &code,
                                 llvm::TargetMachine &machine) const;
  llvm::Expected<Bytes> generateFrom(const Bytes &bitcode) const;
  llvm::Expected<std::pair<Bytes, Bytes>>
  generateBoth(llvm::Module &code, llvm::TargetMachine &machine,
               const Bytes &other) const;
};
} // namespace

llvm::Expected<Bytes> Generator::generate(llvm::Module &code,
                                          llvm::TargetMachine &machine) const {
  StageTimer timer(options.times, "kernel: LLVM code generation");
  bool isArranged = false;
  if (target.instructionSet == InstructionSet::AVX2) {
    isArranged = interleaveChains(code, target.facts.vectorRegisters);
    keepConstantsInMemory(code, unsigned(target.facts.vectorBits));
  }
  Bytes bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager codegen;
  if (!addCodeGenerator(codegen, machine, stream, options.asAssembly,
                        keepsOrder || isArranged))
    return fail(ExitCode::Internal, "the code generator cannot write objects");
  codegen.run(code);
  return std::move(bytes);
}

/// In a context of its own, as a thread wants it.
llvm::Expected<Bytes> Generator::generateFrom(const Bytes &bitcode) const {
  auto machine = makeTargetMachine(target);
  if (!machine)
    return machine.takeError();
  llvm::LLVMContext context;
  auto code = llvm::parseBitcodeFile(
      llvm::MemoryBufferRef(textOf(bitcode), "kernel"), context);
  if (!code)
    return code.takeError();
  return generate(**code, **machine);
}

llvm::Expected<std::pair<Bytes, Bytes>>
Generator::generateBoth(llvm::Module &code, llvm::TargetMachine &machine,
                        const Bytes &other) const {
  std::optional<llvm::Expected<Bytes>> second;
  auto work = [&] { second.emplace(generateFrom(other)); };
  std::thread helper;
  try {
    if (options.threads > 1)
      helper = std::thread(work);
  } catch (const std::system_error &) {
    // The machine gives no more threads: this one does the work.
  }
  llvm::Expected<Bytes> first = generate(code, machine);
  helper.joinable() ? helper.join() : work();
  if (!first || !*second)
    return llvm::joinErrors(first.takeError(), second->takeError());
  return std::pair(std::move(*first), std::move(**second));
}

/// A large module in two parts, whatever the number of threads.
static llvm::Expected<std::string> generateCode(llvm::Module &code,
                                                const Generator &generator,
                                                llvm::TargetMachine &machine) {
  Bytes other;
  {
    StageTimer timer(generator.options.times, "kernel: split");
    if (std::unique_ptr<llvm::Module> half = splitOffHalf(code)) {
      llvm::raw_svector_ostream stream(other);
      llvm::WriteBitcodeToFile(*half, stream);
    }
  }
  if (other.empty()) {
    llvm::Expected<Bytes> bytes = generator.generate(code, machine);
    if (!bytes)
      return bytes.takeError();
    return textOf(*bytes).str();
  }
  auto both = generator.generateBoth(code, machine, other);
  if (!both)
    return both.takeError();
  auto &[first, second] = *both;
  if (generator.options.asAssembly)
    return (textOf(first) + textOf(second)).str();
  return joinObjects({textOf(first), textOf(second)});
}

llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>>
refold::emitObject(mlir::ModuleOp module, const CpuTarget &target,
                   const ObjectOptions &options) {
  llvm::Expected<std::unique_ptr<llvm::TargetMachine>> machine =
      makeTargetMachine(target);
  if (!machine)
    return machine.takeError();
  if (llvm::Error error = stopIfCancelled(options))
    return std::move(error);
  if (llvm::Error error = lower(module, target, options.times))
    return std::move(error);
  if (llvm::Error error = stopIfCancelled(options))
    return std::move(error);
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code;
  {
    StageTimer timer(options.times, "kernel: translation");
    code = translate(module, context, target, **machine);
  }
  if (!code)
    return fail(ExitCode::Internal, "translation to LLVM IR failed");
  if (options.middleEnd) {
    StageTimer timer(options.times, "kernel: LLVM middle end");
    optimise(*code, **machine, options.middleEnd);
  }
  if (target.facts.addsApart)
    for (llvm::Function &function : *code)
      if (!function.isDeclaration())
        balancePorts(function);
  Generator generator{target, options, carriesRegisterTile(*code, target)};
  llvm::Expected<std::string> bytes = generateCode(*code, generator, **machine);
  if (!bytes)
    return bytes.takeError();
  return llvm::MemoryBuffer::getMemBufferCopy(*bytes, "kernel");
}
