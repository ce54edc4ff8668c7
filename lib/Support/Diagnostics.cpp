// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/Diagnostics.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Location.h"
#include "refold/Support/Error.h"

namespace refold {

/// More errors than this help nobody, and a hostile file can cause any number.
static constexpr size_t kMaxErrorBytes = 1 << 16;

mlir::Location endingWith(ExitCode code, mlir::Location location) {
  mlir::Builder builder(location.getContext());
  return mlir::FusedLoc::get(location.getContext(), {location},
                             builder.getI32IntegerAttr(static_cast<int>(code)));
}

static std::optional<ExitCode> exitCodeOf(mlir::Location location) {
  auto fused = mlir::dyn_cast<mlir::FusedLoc>(location);
  auto code =
      fused ? mlir::dyn_cast_or_null<mlir::IntegerAttr>(fused.getMetadata())
            : nullptr;
  if (!code)
    return std::nullopt;
  return static_cast<ExitCode>(code.getInt());
}

std::string describePlace(mlir::Location location) {
  llvm::StringRef name;
  mlir::FileLineColLoc file;
  location->walk([&](mlir::Location inner) {
    if (auto named = mlir::dyn_cast<mlir::NameLoc>(inner);
        named && name.empty())
      name = named.getName();
    file = mlir::dyn_cast<mlir::FileLineColLoc>(inner);
    return file ? mlir::WalkResult::interrupt() : mlir::WalkResult::advance();
  });
  if (!file)
    return name.empty() ? "" : ("'" + name + "'").str();
  std::string place = file.getFilename().str();
  if (!llvm::StringRef(place).ends_with(".onnx"))
    return place + ":" + std::to_string(file.getLine()) + ":" +
           std::to_string(file.getColumn());
  // A model in a binary format has nodes where text has lines.
  if (file.getLine() > 0)
    place += ": node " + std::to_string(file.getLine());
  return name.empty() ? place : (place + " '" + name + "'").str();
}

static std::string format(mlir::Diagnostic &diagnostic) {
  llvm::StringRef kind;
  switch (diagnostic.getSeverity()) {
  case mlir::DiagnosticSeverity::Error:
    kind = "error: ";
    break;
  case mlir::DiagnosticSeverity::Warning:
    kind = "warning: ";
    break;
  case mlir::DiagnosticSeverity::Remark:
    kind = "remark: ";
    break;
  case mlir::DiagnosticSeverity::Note:
    kind = "note: ";
    break;
  }
  std::string place = describePlace(diagnostic.getLocation());
  return (place.empty() ? "" : place + ": ") + kind.str() + diagnostic.str();
}

DiagnosticCollector::DiagnosticCollector(mlir::MLIRContext &context)
    : handler(&context,
              [this](mlir::Diagnostic &diagnostic) { add(diagnostic); }) {}

void DiagnosticCollector::add(mlir::Diagnostic &diagnostic) {
  bool isError = diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error;
  if (isError && errors.size() > kMaxErrorBytes)
    return;
  std::string text = format(diagnostic);
  for (mlir::Diagnostic &note : diagnostic.getNotes())
    text += "\n" + format(note);
  if (!isError) {
    remarks.push_back(std::move(text));
    return;
  }
  if (errors.empty())
    exitCode = exitCodeOf(diagnostic.getLocation()).value_or(ExitCode::Model);
  errors += (errors.empty() ? "" : "\n") + text;
}

llvm::Error DiagnosticCollector::takeErrors(llvm::StringRef fallback) {
  if (errors.empty())
    return fail(ExitCode::Internal, fallback);
  return fail(exitCode, std::exchange(errors, {}));
}

std::vector<std::string> DiagnosticCollector::takeRemarks() {
  return std::exchange(remarks, {});
}

} // namespace refold
