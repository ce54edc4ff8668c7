// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_PACKAGE_OUTCOME_H
#define REFOLD_PACKAGE_OUTCOME_H

#include "refold/Support/ExitCode.h"
#include <string>
#include <utility>
#include <variant>

/// Errors as values, without LLVM: what loads packages knows none.
namespace refold::package {

/// What went wrong, in the words of docs/architecture.md; nothing where the
/// code is Ok.
struct [[nodiscard]] Problem {
  ExitCode code = ExitCode::Ok;
  std::string message;
  explicit operator bool() const { return code != ExitCode::Ok; }
};

inline Problem problem(ExitCode code, std::string message) {
  return {code, std::move(message)};
}

/// A value, or why there is none.
template <typename T> class [[nodiscard]] Outcome {
public:
  Outcome(T value) : content(std::move(value)) {}
  Outcome(Problem problem) : content(std::move(problem)) {}
  explicit operator bool() const { return content.index() == 0; }
  T &operator*() { return std::get<0>(content); }
  T *operator->() { return &std::get<0>(content); }
  Problem &error() { return std::get<1>(content); }

private:
  std::variant<T, Problem> content;
};

} // namespace refold::package

#endif // REFOLD_PACKAGE_OUTCOME_H
