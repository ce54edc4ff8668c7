// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Operators.h"
#include "onnx.pb.h"
#include "refold/Frontend/ONNX.h"
#include "refold/Support/NearestName.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include <map>

using namespace mlir;
using namespace refold;
using namespace refold::onnx;
using ::onnx::AttributeProto;

/// Rows by name; an operator whose meaning changed has several.
static const std::multimap<StringRef, const Operator *> &table() {
  static const auto *rows = [] {
    auto *all = new std::multimap<StringRef, const Operator *>;
    for (ArrayRef<Operator> kind :
         {activationOperators(), arithmeticOperators(),
          attentionOperators(),  castOperators(),
          comparisonOperators(), constantOperators(),
          einsumOperators(),     gatherOperators(),
          gridSampleOperators(), lossOperators(),
          movementOperators(),   normalisationOperators(),
          productOperators(),    quantisationOperators(),
          reductionOperators(),  resizeOperators(),
          rotaryOperators(),     scatterOperators(),
          selectionOperators(),  shapeOperators(),
          transposedOperators(), windowOperators()})
      for (const Operator &row : kind)
        all->emplace(row.name, &row);
    return all;
  }();
  return *rows;
}

const Operator *refold::onnx::findOperator(StringRef name, int opset) {
  auto [begin, end] = table().equal_range(name);
  for (auto row = begin; row != end; ++row)
    if (row->second->firstOpset <= opset && opset <= row->second->lastOpset)
      return row->second;
  return nullptr;
}

/// What stands in the way of operators that models do hold, or "".
static StringRef whyRefused(StringRef name) {
  return llvm::StringSwitch<StringRef>(name)
      .Cases("LSTM", "GRU", "RNN", "each step of it needs the step before")
      .Cases("Loop", "Scan", "it runs a graph a number of times")
      .Cases("NonZero", "Compress", "Unique", "NonMaxSuppression",
             "sizes of its results are data")
      .Cases("RandomNormal", "RandomNormalLike", "RandomUniform",
             "RandomUniformLike", "Bernoulli", "Multinomial",
             "its results are random")
      .Default("");
}

std::string refold::onnx::whyUnknown(StringRef name, int opset) {
  if (StringRef reason = whyRefused(name); !reason.empty())
    return "operator '" + name.str() + "' is not read: " + reason.str() +
           "; expected one that 'refold ops' lists";
  auto [begin, end] = table().equal_range(name);
  if (begin != end)
    return "operator '" + name.str() + "' of opset " + std::to_string(opset) +
           "; expected opset " + std::to_string(begin->second->firstOpset) +
           " or later";
  std::vector<StringRef> names;
  for (auto &[known, row] : table())
    names.push_back(known);
  return "operator '" + name.str() +
         "' is not known; expected one that 'refold ops' lists" +
         suggestion(name, names);
}

/// "i", "is", ... of an attribute as it stands in the file, "" for the rest.
static StringRef kindOf(const AttributeProto &attribute) {
  switch (attribute.type()) {
  case AttributeProto::INT:
    return "i";
  case AttributeProto::FLOAT:
    return "f";
  case AttributeProto::STRING:
    return "s";
  case AttributeProto::TENSOR:
    return "t";
  case AttributeProto::INTS:
    return "is";
  case AttributeProto::FLOATS:
    return "fs";
  default:
    return "";
  }
}

static StringRef spell(StringRef kind) {
  return llvm::StringSwitch<StringRef>(kind)
      .Case("i", "an integer")
      .Case("f", "a float")
      .Case("s", "a string")
      .Case("t", "a tensor")
      .Case("is", "integers")
      .Case("fs", "floats")
      .Default("a kind that is not read here");
}

LogicalResult refold::onnx::checkNode(Node &node, const Operator &row) {
  unsigned count = node.numInputs();
  if (count < row.fewestInputs || count > row.mostInputs)
    return node.error() << count << " inputs; expected "
                        << (row.mostInputs == kAnyNumber
                                ? "at least " + std::to_string(row.fewestInputs)
                            : row.fewestInputs == row.mostInputs
                                ? std::to_string(row.fewestInputs)
                                : std::to_string(row.fewestInputs) + " to " +
                                      std::to_string(row.mostInputs));
  for (unsigned i = 0; i < row.fewestInputs; ++i)
    if (!node.hasInput(i))
      return node.error() << "input " << i << " is left out; expected a tensor";
  SmallVector<StringRef> allowed, names;
  row.attributes.split(allowed, ' ', -1, /*KeepEmpty=*/false);
  for (StringRef entry : allowed)
    names.push_back(entry.split(':').first);
  for (const AttributeProto &attribute : node.proto.attribute()) {
    auto place = llvm::find(names, StringRef(attribute.name()));
    if (place == names.end())
      return node.error() << "attribute '" << attribute.name() << "'; expected "
                          << (names.empty()
                                  ? "none"
                                  : "one of " + llvm::join(names, ", "));
    StringRef wanted = allowed[place - names.begin()].split(':').second;
    if (kindOf(attribute) != wanted)
      return node.error() << "attribute '" << attribute.name() << "' is "
                          << spell(kindOf(attribute)) << "; expected "
                          << spell(wanted);
  }
  return success();
}

std::vector<OnnxOperator> refold::onnxOperators() {
  std::map<std::string, OnnxOperator> merged;
  for (auto &[name, row] : table()) {
    auto [entry, isNew] = merged.try_emplace(
        name.str(), OnnxOperator{name.str(), row->firstOpset, row->lastOpset});
    if (isNew)
      continue;
    entry->second.firstOpset =
        std::min(entry->second.firstOpset, row->firstOpset);
    entry->second.lastOpset = std::max(entry->second.lastOpset, row->lastOpset);
  }
  std::vector<OnnxOperator> result;
  for (auto &[name, entry] : merged)
    result.push_back(entry);
  return result;
}
