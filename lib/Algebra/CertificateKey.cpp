// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Algebra/CertificateKey.h"

#include <algorithm>
#include <bit>

namespace refold::algebra {

namespace {

/// Writes numbers one after the other. Every list is preceded by its length,
/// so that no two structures have the same bytes. The structs are taken apart
/// by all of their members: one that is added does not compile before somebody
/// has decided here whether a certificate depends on it.
class KeyWriter {
public:
  std::string take() { return std::move(bytes); }

  void put(uint64_t value) {
    // Most numbers are small: seven bits a byte, as LEB128.
    for (; value >= 0x80; value >>= 7)
      bytes.push_back(char(value | 0x80));
    bytes.push_back(char(value));
  }

  void put(const Facts &facts) {
    auto &[nonNegative, mayBeNegInf, low, high] = facts;
    put(nonNegative);
    put(mayBeNegInf);
    put(std::bit_cast<uint64_t>(low));
    put(std::bit_cast<uint64_t>(high));
  }

  /// The number of the node; its own description follows where it is new.
  void put(Expr root) {
    if (!root)
      return put(0);
    forEachNode(root, [&](Expr e) {
      if (!numbers.try_emplace(e, numbers.size() + 1).second)
        return;
      putNode(e);
    });
    put(numbers.at(root));
  }

  void put(const std::vector<Expr> &list) {
    put(list.size());
    for (Expr e : list)
      put(e);
  }

  void put(const Index &index) {
    auto &[name, role, extent, value, length] = index;
    put(unsigned(role));
    put(uint64_t(extent));
    put(value);
    put(length);
  }

  void put(const Stage &stage) {
    auto &[name, reducer, term, payloads, k, largest, rank, indices, place,
           results] = stage;
    put(unsigned(reducer));
    put(term);
    put(payloads);
    put(uint64_t(k));
    put(largest);
    put(uint64_t(int64_t(rank)));
    put(indices);
    put(results);
  }

  void put(const Let &let) {
    auto &[symbol, value] = let;
    put(symbol);
    put(value);
  }

  void put(const State &state) {
    auto &[reducer, values, k, largest, rank, results, pivots, with, transport,
           law, gauge, indices, pass] = state;
    put(unsigned(reducer));
    put(values);
    put(uint64_t(k));
    put(largest);
    put(uint64_t(int64_t(rank)));
    put(results);
    put(pivots);
    put(with);
    put(transport);
    put(indices);
    put(pass);
  }

  void put(const Rounding &rounding) {
    // Errors follow from what is rounded.
    auto &[stage, written, unit, step, lowestNormal, size, isPowerOfTwo] =
        rounding;
    put(stage);
    put(written);
    put(isPowerOfTwo);
  }

  void put(const Cascade &cascade) {
    auto &[context, indices, stages, outputs] = cascade;
    put(indices.size());
    for (const Index &index : indices)
      put(index);
    put(stages.size());
    for (const Stage &stage : stages)
      put(stage);
    put(outputs.size());
    for (const Output &output : outputs) {
      auto &[name, value, place] = output;
      put(value);
    }
  }

  void put(const Program &program) {
    // What is for a reader (passes, cuts, evidence) follows from the rest.
    auto &[context, indices, definitions, readouts, stagePass, outputs, passes,
           repairPasses, unfusedPasses, stateSize, cuts, idleGuards, choices,
           lists, boundsExponentials, assumesNumbers, roundings,
           zeroedOutputs] = program;
    put(indices.size());
    for (const Index &index : indices)
      put(index);
    put(definitions.size());
    for (const Definition &definition : definitions) {
      put(definition.index());
      std::visit([&](const auto &known) { put(known); }, definition);
    }
    put(readouts.size());
    for (const std::vector<Expr> &readout : readouts)
      put(readout);
    put(outputs.size());
    for (const ProgramOutput &output : outputs) {
      auto &[name, value] = output;
      put(value);
      put(std::find(zeroedOutputs.begin(), zeroedOutputs.end(), name) !=
          zeroedOutputs.end());
    }
    put(roundings.size());
    for (const Rounding &rounding : roundings)
      put(rounding);
    put(repairPasses);
    put(boundsExponentials);
  }

private:
  void putNode(Expr e) {
    put(unsigned(e.kind()));
    put(unsigned(e.type()));
    put(unsigned(e->fn));
    put(unsigned(e->pred));
    put(e->integral);
    put(e->contracted);
    put(std::bit_cast<uint64_t>(e->real));
    put(uint64_t(e->integer));
    put(uint64_t(e->exponent.num));
    put(uint64_t(e->exponent.den));
    put(e.size());
    for (unsigned i = 0; i < e.size(); ++i)
      put(uint64_t(numbers.at(e.operand(i))));
    if (!e.isSym())
      return;
    auto &[name, role, type, indices, ordinal, facts, id] = e.symbol();
    put(unsigned(role));
    put(indices);
    put(ordinal);
    put(facts);
  }

  std::string bytes;
  std::unordered_map<Expr, uint64_t, ExprHash> numbers;
};

} // namespace

std::string certificateKey(const Cascade &cascade, const Program &program) {
  KeyWriter writer;
  writer.put(cascade);
  writer.put(program);
  return writer.take();
}

} // namespace refold::algebra
