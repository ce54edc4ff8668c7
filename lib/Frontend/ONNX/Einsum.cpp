// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums of products by named dimensions: diagonals, broadcasts under an
// ellipsis, any number of operands.
#include "Contraction.h"
#include "Elementwise.h"
#include "Operators.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace refold::onnx;

namespace {
/// A dimension: a letter, or the k-th from the end of what '...' stands for.
using Label = int;
using Labels = SmallVector<Label, 8>;

/// A tensor and the label of each of its dimensions, all distinct.
struct Factor {
  Tensor tensor;
  Labels labels;
};

/// "ij,jk->ik", with the ellipses as labels.
struct Equation {
  std::vector<Labels> inputs;
  Labels output;
};
} // namespace

static constexpr Label kFirstEllipsisLabel = 256;

static std::string spell(Label label) {
  if (label >= kFirstEllipsisLabel)
    return "...";
  return std::string(1, char(label));
}

/// The letters of one term; the ellipsis becomes `ellipsis` labels.
static FailureOr<Labels> parseTerm(Node &node, StringRef term,
                                   unsigned ellipsis) {
  Labels labels;
  bool hasEllipsis = false;
  while (!term.empty()) {
    if (term.consume_front("...")) {
      if (hasEllipsis) {
        node.error() << "a term has '...' twice; expected it once";
        return failure();
      }
      hasEllipsis = true;
      for (unsigned k = ellipsis; k > 0; --k)
        labels.push_back(kFirstEllipsisLabel + int(k) - 1);
      continue;
    }
    if (!llvm::isAlpha(term.front())) {
      node.error() << "'" << term.take_front(1)
                   << "' in the equation; expected letters, ',', '->' and "
                      "'...'";
      return failure();
    }
    labels.push_back(term.front());
    term = term.drop_front();
  }
  return labels;
}

/// How many dimensions '...' of a term stands for, given the operand's rank.
static FailureOr<unsigned> ellipsisOf(Node &node, StringRef term,
                                      unsigned rank) {
  unsigned letters =
      llvm::count_if(term, [](char c) { return llvm::isAlpha(c); });
  bool hasEllipsis = term.contains("...");
  if (letters > rank || (letters < rank && !hasEllipsis)) {
    node.error() << "the term '" << term << "' for an operand of rank " << rank
                 << "; expected a letter for each dimension";
    return failure();
  }
  return rank - letters;
}

/// Without '->': the ellipsis, then the letters that occur once, sorted.
static Labels implicitOutput(const std::vector<Labels> &inputs,
                             unsigned ellipsis) {
  Labels output, letters;
  for (unsigned k = ellipsis; k > 0; --k)
    output.push_back(kFirstEllipsisLabel + int(k) - 1);
  for (const Labels &labels : inputs)
    for (Label label : labels)
      if (label < kFirstEllipsisLabel)
        letters.push_back(label);
  llvm::sort(letters);
  for (auto [k, label] : llvm::enumerate(letters))
    if (llvm::count(letters, label) == 1)
      output.push_back(label);
  return output;
}

static FailureOr<Equation> parseEquation(Node &node) {
  std::string text = node.string("equation", "");
  llvm::erase(text, ' ');
  auto [left, right] = StringRef(text).split("->");
  bool isExplicit = StringRef(text).contains("->");
  SmallVector<StringRef> terms;
  left.split(terms, ',');
  if (terms.size() != node.numInputs()) {
    node.error() << "the equation '" << text << "' has " << terms.size()
                 << " terms; expected " << node.numInputs() << ", one an input";
    return failure();
  }
  Equation equation;
  unsigned longest = 0;
  for (auto [i, term] : llvm::enumerate(terms)) {
    auto count = ellipsisOf(node, term, node.input(i).rank());
    if (failed(count))
      return failure();
    auto labels = parseTerm(node, term, *count);
    if (failed(labels))
      return failure();
    longest = std::max(longest, *count);
    equation.inputs.push_back(std::move(*labels));
  }
  if (!isExplicit) {
    equation.output = implicitOutput(equation.inputs, longest);
    return equation;
  }
  auto output = parseTerm(node, right, longest);
  if (failed(output))
    return failure();
  for (auto [k, label] : llvm::enumerate(*output)) {
    bool isKnown = llvm::any_of(equation.inputs, [&](const Labels &labels) {
      return llvm::is_contained(labels, label);
    });
    if (!isKnown || llvm::count(*output, label) > 1) {
      node.error() << "'" << spell(label) << "' in the result '" << right
                   << "'; expected labels of the operands, each once";
      return failure();
    }
  }
  equation.output = std::move(*output);
  return equation;
}

/// A label that occurs twice in one operand is read along the diagonal.
static FailureOr<Factor> withDistinctLabels(Node &node, Tensor &tensor,
                                            const Labels &labels) {
  GraphBuilder &graph = node.graph;
  Factor factor;
  Shape shape;
  SmallVector<AffineExpr, 4> at;
  for (auto [k, label] : llvm::enumerate(labels)) {
    auto place = llvm::find(factor.labels, label);
    unsigned number = place - factor.labels.begin();
    at.push_back(graph.ops.getAffineDimExpr(number));
    if (place == factor.labels.end()) {
      factor.labels.push_back(label);
      shape.push_back(tensor.shape[k]);
      continue;
    }
    if (failed(graph.requireEqual(shape[number], tensor.shape[k]))) {
      node.error() << "'" << spell(label) << "' is "
                   << node.extents.toString(shape[number]) << " and "
                   << node.extents.toString(tensor.shape[k])
                   << "; expected equal extents";
      return failure();
    }
  }
  if (factor.labels.size() == labels.size()) {
    factor.tensor = tensor;
    return factor;
  }
  GraphBuilder::Access read = graph.access(tensor, at);
  unsigned rank = shape.size();
  Type element = computeType(graph.ops, tensor.type);
  Value init = graph.empty(shape, element);
  SmallVector<AffineMap> maps{
      AffineMap::get(rank, 0, read.exprs, graph.ops.getContext()),
      graph.ops.getMultiDimIdentityMap(rank)};
  SmallVector<utils::IteratorType> iterators(rank,
                                             utils::IteratorType::parallel);
  auto generic = graph.ops.create<linalg::GenericOp>(
      graph.loc, init.getType(), read.operand, init, maps, iterators,
      [](OpBuilder &builder, Location loc, ValueRange args) {
        Body body{builder, loc};
        builder.create<linalg::YieldOp>(loc, body.toCompute(args[0]));
      });
  factor.tensor = graph.tensorOf(generic.getResult(0), tensor.type, shape);
  return factor;
}

/// The factor over `order`, its dimensions 1 where it lacks the label.
static FailureOr<Tensor> spreadOver(Node &node, Factor &factor,
                                    const Labels &order) {
  SmallVector<unsigned> permutation;
  Shape shape;
  for (Label label : order) {
    auto place = llvm::find(factor.labels, label);
    if (place == factor.labels.end()) {
      shape.push_back(1);
      continue;
    }
    unsigned k = place - factor.labels.begin();
    permutation.push_back(k);
    shape.push_back(factor.tensor.shape[k]);
  }
  Tensor turned = node.graph.transpose(factor.tensor, permutation);
  return node.graph.reshape(turned, shape);
}

/// The product of one or two factors, summed over every label that is not in
/// `kept`; the result has the kept ones in their order.
static FailureOr<Factor> combine(Node &node, MutableArrayRef<Factor> factors,
                                 const Labels &kept) {
  Labels order, summed;
  auto has = [](ArrayRef<Label> labels, Label label) {
    return llvm::is_contained(labels, label);
  };
  for (Label label : kept)
    if (llvm::any_of(factors,
                     [&](const Factor &f) { return has(f.labels, label); }))
      order.push_back(label);
  for (const Factor &factor : factors)
    for (Label label : factor.labels)
      if (!has(kept, label) && !has(summed, label))
        summed.push_back(label);
  unsigned numKept = order.size();
  order.append(summed);
  if (order.size() > kHighestRank) {
    node.beyondLimit() << "a product over " << order.size()
                       << " labels; expected at most " << kHighestRank;
    return failure();
  }
  std::vector<Tensor> spread;
  for (Factor &factor : factors) {
    FailureOr<Tensor> tensor = spreadOver(node, factor, order);
    if (failed(tensor))
      return failure();
    spread.push_back(std::move(*tensor));
  }
  SmallVector<Tensor *> inputs;
  for (Tensor &tensor : spread)
    inputs.push_back(&tensor);
  FailureOr<Shape> shape = node.broadcast(inputs);
  if (failed(shape))
    return failure();
  Factor result;
  result.labels.assign(order.begin(), order.begin() + numKept);
  if (numKept == order.size() && factors.size() == 1) {
    result.tensor = spread.front();
    return result;
  }
  ElementType type = node.input(0).type;
  if (numKept == order.size()) {
    result.tensor = node.graph.elementwise(inputs, *shape, type, emitProduct);
    return result;
  }
  SmallVector<bool> isReduced(order.size(), false);
  std::fill(isReduced.begin() + numKept, isReduced.end(), true);
  result.tensor = node.graph.reduce(inputs, *shape, isReduced, false,
                                    Combiner::Add, type, emitProduct);
  return result;
}

/// Two operands at a time, from the left; what no later one has is summed at
/// once, so that no step has more dimensions than it needs.
static LogicalResult lowerEinsum(Node &node) {
  if (failed(node.requireSameTypes()))
    return failure();
  if (node.input(0).type == ElementType::Bool)
    return node.error() << "input 0 is of type bool; expected numbers";
  FailureOr<Equation> equation = parseEquation(node);
  if (failed(equation))
    return failure();
  std::vector<Factor> factors;
  for (unsigned i = 0; i < node.numInputs(); ++i) {
    auto factor = withDistinctLabels(node, node.input(i), equation->inputs[i]);
    if (failed(factor))
      return failure();
    factors.push_back(std::move(*factor));
  }
  Factor result = factors.front();
  size_t next = 1;
  do {
    std::vector<Factor> pair{result};
    if (next < factors.size())
      pair.push_back(factors[next]);
    ++next;
    Labels kept = equation->output;
    for (size_t later = next; later < factors.size(); ++later)
      for (Label label : factors[later].labels)
        if (!llvm::is_contained(kept, label))
          kept.push_back(label);
    FailureOr<Factor> product = combine(node, pair, kept);
    if (failed(product))
      return failure();
    result = std::move(*product);
  } while (next < factors.size());
  return node.give(std::move(result.tensor));
}

ArrayRef<Operator> refold::onnx::einsumOperators() {
  static const Operator rows[] = {
      {"Einsum", 13, kLastOpset, "equation:s", 1, kAnyNumber, lowerEinsum},
  };
  return rows;
}
