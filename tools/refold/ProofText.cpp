// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ProofText.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

namespace refold {

using llvm::json::Array;
using llvm::json::Object;

static int64_t countIn(const Object &object, llvm::StringRef key) {
  return object.getInteger(key).value_or(0);
}

static llvm::StringRef textIn(const Object &object, llvm::StringRef key) {
  return object.getString(key).value_or("");
}

/// "0 1 2"; numbers and strings.
static std::string listIn(const Object &object, llvm::StringRef key,
                          llvm::StringRef separator) {
  std::vector<std::string> items;
  if (const Array *list = object.getArray(key))
    for (const llvm::json::Value &value : *list)
      items.push_back(value.getAsString()
                          ? value.getAsString()->str()
                          : std::to_string(value.getAsInteger().value_or(0)));
  return llvm::join(items, separator);
}

/// "2 normal, 1 offset", in the order of the names.
static std::string countsIn(const Object &object, llvm::StringRef key) {
  std::vector<std::string> items;
  if (const Object *counts = object.getObject(key))
    for (const auto &[name, count] : *counts)
      items.push_back(name.str() + " " +
                      std::to_string(count.getAsInteger().value_or(0)));
  llvm::sort(items);
  return llvm::join(items, ", ");
}

static void printTransports(llvm::raw_ostream &os, const Object &check) {
  std::string states = listIn(check, "states", ", ");
  os << "    transports: "
     << (states.empty()
             ? "none\n"
             : states + ", " + std::to_string(countIn(check, "trials")) +
                   " identities over the integers modulo " +
                   textIn(check, "modulus").str() + "\n");
}

static void printRows(llvm::raw_ostream &os, const Object &check) {
  os << "    rows: " << countIn(check, "rows") << " of "
     << listIn(check, "lengths", ", ") << " elements with 31 digits, "
     << countIn(check, "comparisons") << " values of stages, worst "
     << llvm::format("%.1e", check.getNumber("worst").value_or(0));
  if (llvm::StringRef at = textIn(check, "worst_at"); !at.empty())
    os << " at " << at;
  os << "\n      families: " << countsIn(check, "families")
     << "\n      orders: " << countsIn(check, "orders") << "\n";
  if (int64_t rows = countIn(check, "rounded_rows"))
    os << "      roundings at running values on " << rows << " rows, at most "
       << llvm::format("%.2f", check.getNumber("share_of_bound").value_or(0))
       << " of their bound\n";
}

static void printEdges(llvm::raw_ostream &os, const Object &check) {
  os << "    edge rows: " << countIn(check, "rows")
     << "; outputs expected there: " << countsIn(check, "classes") << "\n";
  if (const Object *values = check.getObject("values")) {
    std::vector<std::string> lines;
    for (const auto &[name, list] : *values)
      lines.push_back(name.str() + " in " + listIn(*values, name, " "));
    llvm::sort(lines);
    for (const std::string &line : lines)
      os << "      " << line << "\n";
  }
  if (const Array *designs = check.getArray("designs"))
    for (const llvm::json::Value &value : *designs) {
      const Object &design = *value.getAsObject();
      os << "      " << countIn(design, "length") << " elements in "
         << textIn(design, "arithmetic") << ": " << countIn(design, "rows")
         << " rows, ";
      if (design.getBoolean("complete").value_or(false))
        os << "all there are\n";
      else
        os << "every combination of " << countIn(design, "strength") << " of "
           << countIn(design, "choices") << " values; and "
           << countIn(design, "sparse_rows")
           << " of numbers but for one or two values\n";
    }
  if (int64_t differences = countIn(check, "differences"))
    os << "      " << differences
       << " irregular rows differ: " << textIn(check, "example") << "\n";
}

static void printCut(llvm::raw_ostream &os, const Object &cut) {
  os << "    cut of " << textIn(cut, "stage") << " [" << textIn(cut, "rule")
     << "]: ";
  llvm::StringRef witness = textIn(cut, "witness");
  if (witness == "rule") {
    os << "by the rule\n";
    return;
  }
  int64_t order = countIn(cut, "order");
  if (witness == "optima") {
    os << "elements " << listIn(cut, "elements", " ")
       << " are each the only optimum in rows " << listIn(cut, "rows", " ")
       << "\n";
    return;
  }
  os << "minor of order " << order << " over elements "
     << listIn(cut, "elements", " ") << " and the results of rows "
     << listIn(cut, "rows", " ");
  if (llvm::StringRef residue = textIn(cut, "determinant"); !residue.empty())
    os << ", determinant " << residue << " over the field\n";
  else
    os << ", smallest pivot "
       << llvm::format("%.1e", cut.getNumber("smallest_pivot").value_or(0))
       << "\n";
}

void printProof(llvm::raw_ostream &os, const Object &proof) {
  if (const Array *checks = proof.getArray("checks")) {
    os << "  certificate in full, seed " << countIn(proof, "seed") << "\n";
    for (const llvm::json::Value &value : *checks) {
      const Object &check = *value.getAsObject();
      llvm::StringRef name = textIn(check, "check");
      name == "transports" ? printTransports(os, check)
      : name == "rows"     ? printRows(os, check)
                           : printEdges(os, check);
    }
    if (!proof.getBoolean("holds").value_or(false))
      os << "    fails: " << textIn(proof, "failure") << "\n";
  }
  if (const Array *cuts = proof.getArray("cuts"))
    for (const llvm::json::Value &value : *cuts)
      printCut(os, *value.getAsObject());
}

} // namespace refold
