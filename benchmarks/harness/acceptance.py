#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the results of a run say of each figure that the project wants to reach on CPUs.

    acceptance.py results.jsonl [--by-hand by-hand.jsonl]

A row a figure: in how many of its cases it was reached, what stops the others, and the cases that miss it, the open and the worst first. The
last measurement of a case counts, as in report.py, and where peers count the last one beside peers. Where one line has two figures (a share of the bound and a ratio) they are two
rows.

What stops a case: `bound`, if the figure asks for more than the probed bound of the case (three times a peer that takes 2.5 times
what the memory takes); `by hand`, if a kernel that was written by hand for it does not reach the figure either: the one that took
turns with ours in that line (run.py --by-hand) or, where none did, one of the lines of --by-hand, on the same machine; `its product`,
if what the program computes in any form, by itself, takes longer than the figure asks of the whole. What is none of these is open. Lines of
kernels by hand: {"workload", "dtype", "shape", "threads", "ms", "bound_ms"}, with the time that their own run's probe gives the bound, so that
machines whose rates move are compared by shares; a shape has the extents that matter, and "dtype" may be left out.
"""

import argparse
import collections
import json
import math
import pathlib
import statistics

from report import NEAR, has_peers, load, shape_of

#: Rows of two or more sums that have to be moved together: what two threads reach is another figure.
THREE_STATES = ("token_statistics", "kurtosis", "kl_divergence")
WRITING, INT8 = ("softmax", "layernorm", "rmsnorm"), ("rmsnorm_int8",)
REDUCING = ("logsumexp", "entropy", "variance", "cross_entropy", *THREE_STATES)
BEHIND_PRODUCTS = ("routing_top8", "routing_top6", "routing_top1", "routing_grouped")
BEFORE_PRODUCTS = ("layernorm_product", "rmsnorm_product", "residual_rmsnorm_swiglu", "residual_layernorm_gelu")
EXPORTS = ("minilm_dynamo_eager", "minilm_dynamo_sdpa", "minilm_torchscript_eager", "minilm_torchscript_sdpa")


class Results:
    """The lines of a run; those without a checked answer reach nothing."""

    def __init__(self, lines, beside_peers=None):
        self.lines = lines
        self.beside_peers = [line for line in lines if has_peers(line)] if beside_peers is None else beside_peers
        self.cases = {self.key(line): line for line in lines}

    @staticmethod
    def key(line, **other):
        line = {**line, **other}
        return line["workload"], line["dtype"], json.dumps(line["shape"], sort_keys=True), line["threads"]

    def like(self, line, **other):
        """The case that differs in what is named, if it was measured."""
        return self.cases.get(self.key(line, **other))

    def of(self, *names, dtype=None, when=lambda line: True, beside_peers=False):
        lines = self.beside_peers if beside_peers else self.lines
        return [line for line in lines if line["workload"] in names and dtype in (None, line["dtype"]) and line["checked"] and when(line)]

    def of_peers(self, *names, **which):
        return self.of(*names, **which, beside_peers=True)


def share(line):
    return line["bound"]["share"]


def against_best(line):
    return line.get("ratio")


def against(*kinds):
    """How many times faster than the fastest of the peers."""
    def ratio(line):
        found = [line["peers"][kind]["speedup"] for kind in kinds if line.get("peers", {}).get(kind, {}).get("speedup")]
        return min(found, default=None)
    return ratio


def is_left_alone(line):
    """The model said that fusing does not pay: of a cascade (the programs asked here have one with products), or both forms are one program."""
    predicted = line.get("predicted_ms", {})
    return bool(line.get("declined") or line.get("same")) or (predicted.get("fused") and predicted["fused"] == predicted.get("unfused"))


def against_unfused(line):
    """Nothing where both forms are one program: what differs is noise."""
    return None if line.get("same") else line["speedup"]


def against_all(line):
    """Against unfused and the peers; what was left unfused is held against itself only, by a figure of its own."""
    if is_left_alone(line):
        return None
    return min(ratio for ratio in (line["speedup"], line.get("ratio")) if ratio is not None)


class ByHand:
    """What kernels by hand reach of the bounds of cases."""

    def __init__(self, lines):
        self.lines = lines

    def share(self, line):
        """Of its bound, by the best kernel; None if nobody has written one."""
        shares = [own["bound_ms"] / own["ms"] for own in self.lines
                  if own["workload"] == line["workload"] and own["threads"] == line["threads"] and own.get("dtype", line["dtype"]) == line["dtype"]
                  and all(line["shape"].get(name) == extent for name, extent in own["shape"].items())]
        return max(shares, default=None)


#: A figure is met where it rounds to it.
NEAREST = 0.005
#: What stops a case.
BOUND, PART, BY_HAND, OPEN = "bound", "its product", "by hand", "open"


def needed(line, figure, value, least):
    """The share of its bound at which a case would reach a figure that is `value` now: figures are inverse to its time, or differences of shares."""
    if getattr(figure, "is_difference", False):
        return share(line) + least - value
    return share(line) * least / value


def obstacle(line, figure, value, least, by_hand):
    """What stops a case that misses `least`."""
    if not line.get("bound") or value == 0:
        return OPEN
    wanted = needed(line, figure, value, least - NEAREST)
    if wanted > 1:
        return BOUND
    if "part_ms" in line and share(line) * line["fused_ms"] < wanted * line["part_ms"]:
        return PART
    own = line.get("by_hand", {})
    if "ms" in own:
        return BY_HAND if own["share"] < wanted else OPEN
    # Other kernels by hand are held against the best of their probe's rounds.
    name, rates = line["bound"].get("name"), line["bound"].get("rates")
    best = line["bound"].get("best_rates", rates)
    if rates:
        wanted *= rates[name] / best[name]
    reached = by_hand.share(line)
    return BY_HAND if reached is not None and reached < wanted else OPEN


def rows(results):
    """(title, figure, least value to reach, cases)"""
    def width(line):
        return line["shape"]["n"]

    def elements(line):
        return math.prod(line["shape"].values())

    def one(line):
        return line["threads"] == 1

    def two(line):
        return line["threads"] == 2

    def fma(name, dtype="f32", when=lambda line: True, beside_peers=False):
        return results.of(name, dtype=dtype, when=lambda line: line["shape"]["n"] == line["shape"]["m"] and when(line), beside_peers=beside_peers)

    def wide(line):
        return line["shape"]["d"] >= 64 and line["shape"]["n"] >= 512

    def narrow(length):
        return lambda line: line["shape"]["d"] == 32 and line["shape"]["n"] == length

    def of_full(line):
        """In what the machine could compute meanwhile: the two were not timed in the same minute."""
        full = results.like(line, workload="attention")
        return work(full) / work(line) if full else None

    def work(line):
        return line["fused_ms"] * line["bound"]["rates"]["fma"]

    def of_f32(line):
        other = results.like(line, dtype="f32")
        return other["fused_ms"] / line["fused_ms"] if other else None

    def of_five(line):
        others = [results.like(line, workload=name) for name in ("minilm", *EXPORTS)]
        times = [other["fused_ms"] for other in others if other]
        return min(times) / line["fused_ms"] if len(times) > 1 else None

    def per_element(line):
        """Against as much of the same work in rows of 1024, or in a stream of as many."""
        first = next((other for other in results.of(line["workload"], dtype=line["dtype"]) if width(other) == 1024 and other["threads"] == line["threads"]
                      and elements(other) == elements(line)), None)
        return share(line) - share(first) if first else None

    per_element.is_difference = True

    yield "attention f32, d >= 64, s >= 512, one thread: of FMA", share, 0.90, fma("attention", when=lambda line: wide(line) and one(line))
    yield "the same, two threads", share, 0.80, fma("attention", when=lambda line: wide(line) and two(line))
    yield "the same: of the best peer", against_best, 1.12, fma("attention", when=wide, beside_peers=True)
    yield "attention f32, d 32, s 128: of FMA", share, 0.67, fma("attention", when=narrow(128))
    yield "attention f32, d 32, s 512: of FMA", share, 0.76, fma("attention", when=narrow(512))
    yield "causal, s >= 1024: full over causal", of_full, 1 / 0.56, fma("attention_causal", when=lambda line: width(line) >= 1024)
    yield "attention bf16: of our f32", of_f32, 1.7, fma("attention", "bf16")
    yield "attention bf16: of torch", against("torch"), 4, fma("attention", "bf16", beside_peers=True)
    yield "decode, latent decode: of the tighter bound", share, 0.82, results.of("decode", "latent_decode")
    yield "decode, latent decode: of the best peer", against_best, 4, results.of_peers("decode", "latent_decode")
    for names, title, usual, long in ((WRITING, "rows that write", 0.82, 0.70), (INT8, "rows that write int8", 0.72, 0.54)):
        yield f"{title}, 1k to 16k: of the copy", share, usual, results.of(*names, dtype="f32", when=lambda line: 1024 <= width(line) <= 16384)
        yield f"{title}, 128k: of the copy", share, long, results.of(*names, dtype="f32", when=lambda line: width(line) == 131072)
        mine = results.of_peers(*names, dtype="f32", when=lambda line: 1024 <= width(line) <= 131072)
        yield f"{title}: of ONNX Runtime", against("onnxruntime"), 1.5, mine
        yield f"{title}: of every other peer", against("torch", "inductor", "openvino", "jax"), 3, mine
    few = [name for name in REDUCING if name not in THREE_STATES]
    long_rows = results.of(*REDUCING, when=lambda line: 4096 <= width(line) <= 131072)
    yield "rows that reduce, 4k to 128k: of the read", share, 0.86, [line for line in long_rows if line["workload"] in few or one(line)]
    yield "the same, three states, two threads", share, 0.74, [line for line in long_rows if line["workload"] in THREE_STATES and two(line)]
    yield "rows that reduce, 1k: of the read", share, 0.86, results.of(*few, when=lambda line: width(line) == 1024)
    yield "the same, three states", share, 0.68, results.of(*THREE_STATES, when=lambda line: width(line) == 1024)
    yield "rows that reduce: of the best peer", against_best, 2, results.of_peers(*REDUCING, when=lambda line: 1024 <= width(line) <= 131072)
    yield "softmax and its 8 best: of the best peer", against_best, 30, results.of_peers("softmax_top8")
    yield "int8 rows and product, M 1024: of the bound", share, 0.90, results.of("quantised_product", when=lambda line: line["shape"]["m"] == 1024)
    yield "the same: of the best peer", against_best, 1.0, results.of_peers("quantised_product", when=lambda line: line["shape"]["m"] == 1024)
    yield "int8 rows and product, M 16: of the best peer", against_best, 1.1, results.of_peers("quantised_product", when=lambda line: line["shape"]["m"] == 16)
    yield "products and lists, norms and products, fused: of unfused and the best peer", against_all, 1.1, results.of_peers(*BEHIND_PRODUCTS, *BEFORE_PRODUCTS)
    yield "the same, left unfused: of unfused", lambda line: against_unfused(line) if is_left_alone(line) else None, 0.97, results.of(*BEHIND_PRODUCTS, *BEFORE_PRODUCTS)
    yield "MiniLM: of ONNX Runtime", against("onnxruntime"), 1.1, results.of_peers("minilm", *EXPORTS)
    yield "MiniLM, 128 tokens: of OpenVINO", against("openvino"), 1.03, results.of_peers("minilm", when=lambda line: line["shape"]["length"] == 128)
    yield "MiniLM, 512 tokens: of OpenVINO", against("openvino"), 1.08, results.of_peers("minilm", when=lambda line: line["shape"]["length"] == 512)
    yield "MiniLM: of the fastest of five files", of_five, 0.97, results.of("minilm", *EXPORTS)
    yield "rows of 1k to 1M: share less that of 1k", per_element, -0.10, results.of(*WRITING, *INT8, *REDUCING, dtype="f32", when=lambda line: width(line) > 1024)
    yield "all: of unfused", against_unfused, 0.97, [line for line in results.lines if line["checked"]]


def say(value):
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def table(results, by_hand, most_missed=6):
    text = ["| figure | to reach | reached in | median | stopped by | missed by |", "|---|---|---|---|---|---|"]
    for title, figure, least, cases in rows(results):
        found = [(figure(line), line) for line in cases]
        found = sorted(((value, line) for value, line in found if value is not None), key=lambda pair: pair[0])
        if not found:
            text.append(f"| {title} | {say(least)} | not measured | | | |")
            continue
        # A figure is met where it rounds to it: runs differ by more than the last digit.
        missed = [(value, line) for value, line in found if round(value, 2) < round(least, 2)]
        stops = [(obstacle(line, figure, value, least, by_hand), value, line) for value, line in missed]
        stops.sort(key=lambda stop: stop[0] != OPEN)
        named = "; ".join(f"{line['workload']} {line['dtype']} {shape_of(line)}, {line['threads']} threads {say(value)}{'' if why == OPEN else f' ({why})'}" for why, value, line in stops[:most_missed])
        more = f"; {len(missed) - most_missed} more" if len(missed) > most_missed else ""
        counts = collections.Counter(why for why, _, _ in stops)
        stopped = ", ".join(f"{why} {counts[why]}" for why in (BOUND, PART, BY_HAND, OPEN) if counts[why])
        text.append(f"| {title} | {say(least)} | {len(found) - len(missed)} of {len(found)} | {say(statistics.median(value for value, _ in found))} | {stopped} | {named}{more} |")
    near = collections.Counter()
    for line in results.lines:
        for form in ("fused", "unfused"):
            if line["checked"] and line.get("predicted_ms", {}).get(form):
                near[form, abs(line["predicted_ms"][form] / line[f"{form}_ms"] - 1) <= NEAR] += 1
    for form in ("fused", "unfused"):
        every = near[form, True] + near[form, False]
        if every:
            text.append(f"| predictions within 25 %, {form} | 0.80 | {near[form, True]} of {every} | {say(near[form, True] / every)} | | |")
    return "\n".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--by-hand", type=pathlib.Path, help="JSON lines of kernels that were written by hand")
    options = parser.parse_args()
    by_hand = [json.loads(line) for line in options.by_hand.read_text(encoding="utf-8").splitlines()] if options.by_hand else []
    print(table(Results(load(options.results), load(options.results, has_peers)), ByHand(by_hand)))


if __name__ == "__main__":
    main()
