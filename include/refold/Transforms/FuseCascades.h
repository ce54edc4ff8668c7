// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_TRANSFORMS_FUSECASCADES_H
#define REFOLD_TRANSFORMS_FUSECASCADES_H

#include "refold/Algebra/Certify.h"
#include "refold/Analysis/Kernels.h"
#include "refold/Dialect/Refold/IR/Refold.h"
#include "refold/Support/StageTimes.h"
#include <functional>

namespace refold {

/// Certificates of earlier compilations. A key says everything that a
/// certificate depends on, but for the compiler.
struct CertificateStore {
  std::function<std::optional<std::string>(llvm::StringRef key)> find;
  std::function<void(llvm::StringRef key, llvm::StringRef value)> keep;
};

/// A certificate that is made beside what follows, with the kernels that share
/// it. Their program is used meanwhile; it may run when the certificate holds.
struct DeferredCertificate {
  std::shared_ptr<Formula> formula; ///< owns the expressions
  algebra::Derivation derivation;
  algebra::Policy policy;
  algebra::CertifyOptions options;
  std::string key;             ///< in a store
  std::vector<size_t> kernels; ///< by their numbers in `FusionResult`
  std::string summary;         ///< set by `holds`
};

/// Makes the certificate; the store gets what is found. False if another
/// program than the one in use has to be. No other thread may use the entry's
/// expressions meanwhile.
bool holds(DeferredCertificate &deferred, const CertificateStore &store);

struct FuseCascadesOptions {
  /// False: every reduction is a kernel of its own (the unfused baseline).
  bool fuse = true;
  /// Reductions that are not fused with anything (`PlanOptions::apart`).
  llvm::DenseSet<unsigned> apart;
  /// Reductions that wait in their kernel until all that they read is finished
  /// (`algebra::Policy::apart`), numbered as `apart`.
  llvm::DenseSet<unsigned> waiting;
  /// What a fusion may change of the numbers; `fuse` of it is ignored.
  algebra::Policy policy;
  /// Whether derived programs are certified before they are used.
  bool certify = true;
  algebra::CertifyOptions certificate;
  /// Every kernel has a certificate of its own, kept in full. Otherwise those
  /// that differ in names only share one.
  bool keepsCertificates = false;
  /// Null: there is none. Not asked with `keepsCertificates`.
  const CertificateStore *store = nullptr;
  /// Set: gets the certificates that are not known.
  std::vector<DeferredCertificate> *deferred = nullptr;
  StageTimes *times = nullptr; ///< gets the time of every stage, where set
};

/// A kernel that was made, with its derivation. `formula` owns the expressions.
struct FusedKernel {
  std::string name;
  std::shared_ptr<Formula> formula;
  algebra::Derivation derivation;
  std::string certificate; ///< summary; empty where none was asked for
  /// Where they are kept: of what was derived, used or not.
  std::optional<algebra::Certificate> evidence;
  double deriveMs = 0;  ///< CPU time
  double certifyMs = 0; ///< CPU time; small where an equal one was known
  bool isCascade =
      false;    ///< several stages, or one that another one could join
  CascadeOp op; ///< valid until the module changes
  /// Numbers of the reductions in it (`PlanOptions::apart`), and of those of
  /// them that a library could compute.
  std::vector<unsigned> reductions, products;
  /// Those of its reductions that were derived as several states along a
  /// carried index: as many products, where the formula has one.
  std::vector<unsigned> separated;
};

/// What was not fused, and why.
struct FusionNote {
  std::string key; ///< of Reasons.def
  std::string text;
  mlir::Location location;
};

struct FusionResult {
  std::vector<FusedKernel> kernels; ///< in program order
  std::vector<FusionNote> notes;
  unsigned products = 0;
  double planMs = 0; ///< CPU time of the analysis
};

/// Replaces everything but library products by `refold.cascade` ops. Requires
/// the normalised form (`normaliseProgram`). On failure a diagnostic stands at
/// the op.
mlir::FailureOr<FusionResult> fuseCascades(mlir::func::FuncOp function,
                                           const FuseCascadesOptions &options);

/// Turns products with constant weights into cascades without a stream, each
/// together with the elementwise kernel that alone reads it, if that writes
/// along the product's columns. Requires what `fuseCascades` leaves. Products
/// that stay as they are: of other types than f32 sums, of computed weights
/// (there is nothing to lay out beforehand), of fewer columns than a register
/// tile has. For a GPU: products of floats of 8 bits, and nothing else.
enum class EpilogueTarget : uint8_t { Cpu, Gpu };
void fuseEpilogues(mlir::func::FuncOp function,
                   EpilogueTarget target = EpilogueTarget::Cpu);

/// Selections among groups of which some are masked, after selections inside
/// the groups: from the lists of the groups, which then are all that is read.
void selectFromLists(mlir::func::FuncOp function,
                     std::vector<FusionNote> &notes);

/// Brings a program into the form that the analysis reads: named linalg ops as
/// generics, sizes as arithmetic on the arguments' sizes, no dead or equal ops.
mlir::LogicalResult normaliseProgram(mlir::func::FuncOp function);

/// Writes sums over two to four places out where they stand in the terms of a
/// reduction and read what another one finds along the same stream at each of
/// the places. Takes and leaves the normalised form.
void writeOutShortSums(mlir::func::FuncOp function);

/// A cascade and the values of the outputs it was made for.
struct EmittedCascade {
  CascadeOp op;
  llvm::SmallVector<mlir::Value> results;
};

/// Puts a `refold.cascade` for a derived program at the builder's insertion
/// point. `outputs[i]` says where the program's output i is written.
mlir::FailureOr<EmittedCascade>
emitCascade(mlir::OpBuilder &b, Formula &formula,
            const algebra::Program &program,
            llvm::ArrayRef<KernelOutput> outputs);

/// Reads the op back into the algebra and recomputes its certificate: its
/// summary, or failure with the reason at the op.
mlir::FailureOr<std::string> recertifyCascade(CascadeOp op);

} // namespace refold

#endif // REFOLD_TRANSFORMS_FUSECASCADES_H
