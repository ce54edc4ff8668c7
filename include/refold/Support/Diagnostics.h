// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The one part of Support that knows MLIR; its library is Refold::Diagnostics.
#ifndef REFOLD_SUPPORT_DIAGNOSTICS_H
#define REFOLD_SUPPORT_DIAGNOSTICS_H

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "refold/Support/ExitCode.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace refold {

/// `location`, and how the tool ends after an error there. Without it an error
/// ends with ExitCode::Model:
///
///     emitError(endingWith(ExitCode::Unsupported, loc)) << "found ...";
mlir::Location endingWith(ExitCode code, mlir::Location location);

/// "a.fold:3:8", or "m.onnx: node 12 'MatMul_3'": a place for people.
std::string describePlace(mlir::Location location);

/// Collects the diagnostics of a context while it lives.
class DiagnosticCollector {
public:
  explicit DiagnosticCollector(mlir::MLIRContext &context);

  /// The errors so far with their notes, one a line, as a `Failure`; `fallback`
  /// where something failed and said nothing (our own broken invariant).
  llvm::Error takeErrors(llvm::StringRef fallback);
  bool hasErrors() const { return !errors.empty(); }
  /// Remarks and warnings with their notes, in order.
  std::vector<std::string> takeRemarks();

private:
  void add(mlir::Diagnostic &diagnostic);

  std::string errors;
  ExitCode exitCode = ExitCode::Model;
  std::vector<std::string> remarks;
  mlir::ScopedDiagnosticHandler handler;
};

} // namespace refold

#endif // REFOLD_SUPPORT_DIAGNOSTICS_H
