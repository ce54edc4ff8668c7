// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/Verify.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "refold/Support/Error.h"
#include "refold/Support/Reasons.h"
#include <cmath>

namespace refold {

const OutputCase &OutputVerdict::worst() const {
  auto badness = [](const OutputCase &one) {
    // Beyond every error: a lost class, or an error that is no number.
    if (one.classLosses || !(one.fusedError <= one.bound))
      return HUGE_VAL;
    return one.fusedError / one.bound;
  };
  return *llvm::max_element(cases,
                            [&](const OutputCase &a, const OutputCase &b) {
                              return badness(a) < badness(b);
                            });
}

bool Verification::isGood() const {
  bool isGood = equalAcrossThreads && equalAcrossStrides;
  for (const OutputVerdict &output : outputs)
    isGood &= output.cases.empty() || output.worst().isGood();
  return isGood;
}

namespace {

/// The three forms of one program, and the walk over the cases.
class Verifier {
public:
  Verifier(const VerifyOptions &options, LoadedProgram &reference,
           CompiledProgram &fused, CompiledProgram &unfused)
      : options(options), fused(fused), unfused(unfused),
        function(*reference.module->getOps<mlir::func::FuncOp>().begin()) {}

  llvm::Expected<Verification> verifyAll();

private:
  std::vector<Extents> chooseShapes() const;
  llvm::Error verifySeed(const Extents &shape, const InputRecipe &family,
                         uint64_t seed, std::vector<OutputCase> &cases);
  llvm::Error checkThreads(llvm::ArrayRef<Tensor> inputs,
                           llvm::ArrayRef<Tensor> expected);
  bool isPolicy(Reason reason) const {
    return llvm::is_contained(result.policies, keyOf(reason));
  }

  const VerifyOptions &options;
  CompiledProgram &fused, &unfused;
  mlir::func::FuncOp function;
  Verification result;
};

/// Stream axes share their extent: a square product is a case that matters, and
/// the number of cases stays small. Other axes get distinct primes, so that no
/// two are mixed up.
std::vector<Extents> Verifier::chooseShapes() const {
  static constexpr int64_t primes[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29};
  std::vector<std::string> open;
  for (const std::string &dim : openDims(fused.inputs))
    if (!options.shape.count(dim))
      open.push_back(dim);
  auto isStream = [&](const std::string &dim) {
    return llvm::any_of(fused.fusion.cascades,
                        [&](const CascadeReport &cascade) {
                          return llvm::is_contained(cascade.axes, dim);
                        });
  };
  Extents fixed = options.shape;
  unsigned next = 0;
  bool hasStream = false;
  for (const std::string &dim : open) {
    if (isStream(dim))
      hasStream = true;
    else
      fixed[dim] = primes[next++ % std::size(primes)];
  }
  if (!hasStream)
    return {fixed};
  std::vector<Extents> shapes;
  for (int64_t extent : options.streamExtents) {
    Extents shape = fixed;
    for (const std::string &dim : open)
      if (isStream(dim))
        shape[dim] = extent;
    // Of no elements there is no subscript.
    bool isIndexed = llvm::any_of(fused.inputs, [&](const Port &port) {
      auto indexed = shape.find(port.indexes);
      return indexed != shape.end() && indexed->second == 0;
    });
    if (!isIndexed)
      shapes.push_back(std::move(shape));
  }
  return shapes;
}

/// Are the bits the same for every number of threads, and behind strides?
llvm::Error Verifier::checkThreads(llvm::ArrayRef<Tensor> inputs,
                                   llvm::ArrayRef<Tensor> expected) {
  auto isSame = [&](llvm::ArrayRef<Tensor> found) {
    return llvm::equal(found, expected, hasEqualBits);
  };
  for (int64_t threads : llvm::ArrayRef(options.threads).drop_front()) {
    auto again = fused.executable.run(inputs, threads);
    if (!again)
      return again.takeError();
    result.equalAcrossThreads &= isSame(*again);
  }
  std::vector<Tensor> strided;
  for (const Tensor &input : inputs) {
    auto view = makeStrided(input);
    if (!view)
      return view.takeError();
    strided.push_back(std::move(*view));
  }
  auto again = fused.executable.run(strided, options.threads.front());
  if (!again)
    return again.takeError();
  result.equalAcrossStrides &= isSame(*again);
  return llvm::Error::success();
}

llvm::Error Verifier::verifySeed(const Extents &shape,
                                 const InputRecipe &family, uint64_t seed,
                                 std::vector<OutputCase> &cases) {
  auto inputs = makeInputs(fused.inputs, shape, family, options.inputs, seed);
  if (!inputs)
    return inputs.takeError();
  EvaluationOptions exactly;
  exactly.keepOutputsExact = true;
  auto reference = evaluateProgram(function, *inputs, exactly);
  if (!reference)
    return reference.takeError();
  auto one = fused.executable.run(*inputs, options.threads.front());
  if (!one)
    return one.takeError();
  auto other = unfused.executable.run(*inputs, options.threads.front());
  if (!other)
    return other.takeError();
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i].fusedError = std::max(cases[i].fusedError,
                                   compare((*one)[i], (*reference)[i]).error);
    Deviation base = compare((*other)[i], (*reference)[i]);
    cases[i].unfusedError = std::max(cases[i].unfusedError, base.error);
    cases[i].unfusedClassErrors += base.wrongClass;
    cases[i].classLosses +=
        countClassLosses((*one)[i], (*other)[i], (*reference)[i],
                         isPolicy(Reason::MaskedValuesUnread));
  }
  bool isFirst = seed == options.seed;
  return isFirst ? checkThreads(*inputs, *one) : llvm::Error::success();
}

llvm::Expected<Verification> Verifier::verifyAll() {
  result.cascades = fused.fusion.cascades;
  for (const CascadeReport &cascade : fused.fusion.cascades)
    for (const std::string &policy : cascade.policies)
      if (!llvm::is_contained(result.policies, policy))
        result.policies.push_back(policy);
  for (const Port &port : fused.outputs)
    result.outputs.push_back({port.name, {}});

  std::vector<Extents> shapes = chooseShapes();
  if (shapes.empty())
    return fail(ExitCode::Usage, "found no shape to verify, expected one with "
                                 "elements to be indexed");
  size_t total = shapes.size() * options.families.size(), done = 0;
  for (const Extents &shape : shapes)
    for (const InputRecipe &family : options.families) {
      std::vector<OutputCase> cases(fused.outputs.size());
      for (OutputCase &one : cases) {
        one.shape = shape;
        one.family = describe(family);
      }
      for (int64_t seed = 0; seed < options.seeds; ++seed)
        if (llvm::Error error =
                verifySeed(shape, family, options.seed + seed, cases))
          return std::move(error);
      for (auto [i, one] : llvm::enumerate(cases)) {
        one.bound =
            2.0 * one.unfusedError + 2.0 * ulpOf(fused.outputs[i].dtype);
        result.outputs[i].cases.push_back(one);
      }
      if (options.onProgress)
        options.onProgress(++done, total, describe(family));
    }
  return std::move(result);
}

} // namespace

llvm::Expected<Verification> verify(mlir::MLIRContext &context,
                                    llvm::StringRef path,
                                    const LoadOptions &loadOptions,
                                    const VerifyOptions &options) {
  auto compileAs = [&](FusePolicy policy) -> llvm::Expected<CompiledProgram> {
    auto program = load(context, path, loadOptions);
    if (!program)
      return program.takeError();
    CompileOptions compileOptions;
    compileOptions.policy = policy;
    compileOptions.target = options.target;
    return compile(std::move(*program), compileOptions);
  };
  auto reference = load(context, path, loadOptions);
  if (!reference)
    return reference.takeError();
  auto fused = compileAs(FusePolicy::Auto);
  if (!fused)
    return fused.takeError();
  auto unfused = compileAs(FusePolicy::Never);
  if (!unfused)
    return unfused.takeError();
  return Verifier(options, *reference, *fused, *unfused).verifyAll();
}

} // namespace refold
