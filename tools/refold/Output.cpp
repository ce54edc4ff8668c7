// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Output.h"
#include "refold/Driver/Driver.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include <cstdlib>
#include <unistd.h>

namespace refold {

using Clock = std::chrono::steady_clock;

void printJson(const llvm::json::Value &value) {
  llvm::outs() << llvm::formatv("{0:2}", value) << "\n";
}

static bool hasColors(llvm::raw_ostream &os) {
  return os.is_displayed() && os.has_colors() && !std::getenv("NO_COLOR");
}

void printColored(llvm::raw_ostream &os, llvm::raw_ostream::Colors color,
                  llvm::StringRef text) {
  bool isColored = hasColors(os);
  if (isColored)
    os.changeColor(color, /*Bold=*/true);
  os << text;
  if (isColored)
    os.resetColor();
}

void printError(llvm::StringRef message) {
  llvm::raw_ostream &os = llvm::errs();
  // "a.fold:3:8: error: found ..." came from a front end.
  constexpr llvm::StringLiteral word = "error: ";
  size_t place = message.split('\n').first.find(word);
  if (place == llvm::StringRef::npos) {
    printColored(os, os.RED, word);
    os << message << "\n";
    return;
  }
  os << message.take_front(place);
  printColored(os, os.RED, word);
  os << message.drop_front(place + word.size()) << "\n";
}

void tellNarrowed(const LoadedProgram &program, llvm::StringRef type) {
  if (!program.narrowed)
    return;
  const NarrowReport &report = *program.narrowed;
  llvm::errs() << "remark: " << report.products << " products read " << type
               << "; " << report.constants << " constants are stored so, "
               << formatBytes(double(report.bytesAfter)) << " instead of "
               << formatBytes(double(report.bytesBefore));
  if (report.tooLarge)
    llvm::errs() << "; " << report.tooLarge
                 << " stay f32, which it has no numbers for";
  llvm::errs() << "\n";
}

void tellReferenced(const PackageReport &report) {
  llvm::errs() << "remark: " << formatBytes(double(report.referencedBytes))
               << " of weights stay where they are";
  for (const std::string &file : report.files)
    llvm::errs() << (&file == &report.files.front() ? ": '" : ", '") << file
                 << "'";
  llvm::errs() << "; " << formatBytes(double(report.copiedBytes))
               << " are in the package\n";
}

void tellLibraryProducts(const PackageReport &report) {
  if (report.libraryProducts.empty())
    return;
  llvm::errs() << "remark: the package needs oneDNN where it runs, for "
               << report.libraryProducts.size() << " products: '"
               << llvm::join(report.libraryProducts, "', '") << "'\n";
}

void tellDeclined(const FuseReport &report) {
  for (const CascadeReport &cascade : report.cascades)
    if (cascade.decline)
      llvm::errs() << "remark: '" << cascade.name << "' is not fused ["
                   << cascade.decline->key << "]: " << cascade.decline->text
                   << (cascade.decline->keepsProduct
                           ? "; its products are steps of their own\n"
                           : "; it runs as written\n");
}

/// In the largest unit of which there is one.
static std::string formatInUnits(double value, double step,
                                 llvm::ArrayRef<const char *> units) {
  unsigned unit = 0;
  for (; value >= step && unit + 1 < units.size(); ++unit)
    value /= step;
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format(unit ? "%.1f" : "%.0f", value)
                                 << (*units[unit] ? " " : "") << units[unit];
  return text;
}

std::string formatBytes(double bytes) {
  return formatInUnits(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB"});
}

std::string formatCount(double count) {
  return formatInUnits(count, 1000, {"", "k", "M", "G", "T"});
}

std::string formatError(double value) {
  if (value == 0)
    return "0";
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.2e", value);
  return text;
}

Progress::Progress(llvm::StringRef what, size_t total)
    : what(what), total(total), isTerminal(::isatty(STDERR_FILENO)),
      begin(Clock::now()), last(begin) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (isShown)
    llvm::errs() << "\r\x1b[K";
  isShown = false;
}

void Progress::step(llvm::StringRef detail) {
  ++done;
  Clock::time_point now = Clock::now();
  using namespace std::chrono_literals;
  if (!isTerminal || now - begin < 500ms || now - last < 100ms)
    return;
  last = now;
  isShown = true;
  llvm::errs() << "\r\x1b[K" << what << ": " << done << "/" << total << " "
               << detail;
  llvm::errs().flush();
}

} // namespace refold
