#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables of results: all of them as Markdown, and those of the README.

    report.py results.jsonl                      the whole table
    report.py results.jsonl --readme README.md   writes the table between the marks of the README; with --test, says whether it is there
"""

import argparse
import json
import pathlib
import statistics
import sys

BEGIN, END = "<!-- benchmarks: report.py writes this -->", "<!-- end of benchmarks -->"
NAMES = {"torch": "torch", "inductor": "TorchInductor", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "jax": "XLA"}
#: Predictions that are nearer than this are right.
NEAR = 0.25
#: What the README shows: a workload's first shape in the results, or one with these extents.
README_ROWS = [("attention", {"m": 2048}, "attention, 8 heads of 2048 x 2048 x 64"), ("attention_causal", {"m": 2048}, "the same, causal"),
               ("decode", {"n": 16384}, "decoding, 32 query and 8 cached heads, 16k tokens of 128"), ("softmax", {"n": 4096}, "softmax, 4096 x 4096"),
               ("layernorm", {"n": 4096}, "LayerNorm, 4096 x 4096"), ("rmsnorm_int8", {"n": 4096}, "RMSNorm to int8, 4096 x 4096"),
               ("entropy", {"n": 4096}, "entropy of a softmax, 4096 x 4096"), ("token_statistics", {"n": 4096}, "log-probability, entropy and KL, 4096 x 4096"),
               ("softmax_top8", {"n": 128}, "softmax and its 8 best, 65536 x 128"), ("quantised_product", {"m": 1024}, "rows to int8 and a product, 1024 x 4096 x 4096"),
               ("residual_rmsnorm_swiglu", {"m": 128, "n": 4096}, "residual, RMSNorm, two products, SwiGLU, 128 x 4096 x 4096"),
               ("minilm", {"batch": 8}, "all-MiniLM-L6-v2, 8 x 128")]


def has_peers(line):
    return any("speedup" in peer for peer in line.get("peers", {}).values())


def load(path, when=lambda line: True):
    """The last line of each case, of those for which `when` holds."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(line)
        if "shape" in line and "threads" in line and when(line):
            found[(line["workload"], line["dtype"], json.dumps(line["shape"], sort_keys=True), line["threads"])] = line
    return list(found.values())


def shape_of(line):
    return " ".join(f"{name}{extent}" for name, extent in line["shape"].items())


def best_of(line):
    if "ratio" not in line:
        return "-"
    return f"{line['ratio']:.2f}x {NAMES[line['best_peer']]}"


def peer_cell(line, kind):
    found = line["peers"].get(kind)
    if not found:
        return ""
    if "problem" in found:
        return "-"
    mark = f" ({found['faults']:.0f} faults)" if found["faults"] > 100 else ""
    return f"{found['speedup']:.2f}x{mark}"


def time_cell(line):
    """With the CPU time of the busiest thread where the run waited for others."""
    waited = f" (CPU {line['thread_ms']:.2f})" if line["thread_ms"] < 0.8 * line["fused_ms"] else ""
    return f"{line['fused_ms']:.2f}{waited}" if line["fused_ms"] >= 10 else f"{line['fused_ms']:.3f}{waited}"


def table(lines):
    """A row a case; ratios are how many times faster ours is."""
    rows = ["| workload | type | shape | threads | ms | of bound | unfused | " + " | ".join(NAMES.values()) + " |",
            "|---|---|---|---|---|---|---|" + "---|" * len(NAMES)]
    for line in lines:
        front = f"| {line['workload']} | {line['dtype']} | {shape_of(line)} | {line['threads']} | "
        if not line["checked"]:
            rows.append(front + f"UNCHECKED: {line['problem']} |" + " |" * (2 + len(NAMES)))
            continue
        cells = [time_cell(line), f"{100 * line['bound']['share']:.0f} % {line['bound']['name']}", f"{line['speedup']:.2f}x"]
        rows.append(front + " | ".join(cells + [peer_cell(line, kind) for kind in NAMES]) + " |")
    return "\n".join(rows)


def predictions(lines):
    """Predicted against measured, by form and number of threads; unfused programs only where they were timed."""
    text = []
    for threads in sorted({line["threads"] for line in lines}):
        for form in ("fused", "unfused"):
            ratios = [line["predicted_ms"][form] / line[f"{form}_ms"] for line in lines
                      if line["threads"] == threads and line.get("predicted_ms", {}).get(form)]
            near = sum(abs(ratio - 1) <= NEAR for ratio in ratios)
            if ratios:
                text.append(f"- {form}, {threads} threads: {near} of {len(ratios)} within {100 * NEAR:.0f} %; least {min(ratios):.2f}, "
                            f"median {statistics.median(ratios):.2f}, most {max(ratios):.2f} of measured")
    return ["\nPredicted time against measured:\n", *text] if text else []


def summary(lines):
    """Where ours is behind: a peer, its own unfused program, or its prediction."""
    timed = [line for line in lines if line["checked"]]
    text = [f"{len(timed)} cases, {len(lines) - len(timed)} without an answer.", *predictions(timed)]
    behind = sorted((line for line in timed if line.get("ratio", 2) < 1), key=lambda line: line["ratio"])
    slower = sorted((line for line in timed if line["speedup"] < 0.97), key=lambda line: line["speedup"])
    for title, found, value in (("Behind the best peer", behind, best_of), ("Slower than 0.97 of unfused", slower, lambda line: f"{line['speedup']:.2f}x")):
        text.append(f"\n{title}: {len(found)}.\n")
        text += [f"- {line['workload']} {line['dtype']} {shape_of(line)}, {line['threads']} threads: {value(line)}" for line in found]
    return "\n".join(text)


def readme_table(lines):
    def find(name, extents, threads):
        return next((line for line in lines if line["workload"] == name and line["threads"] == threads and line["checked"] and line["dtype"] == "f32"
                     and all(line["shape"].get(key) == value for key, value in extents.items())), None)

    rows = ["| program and shape | ms, 1 / 2 threads | share of the machine's bound | against unfused | against the best peer | commit |", "|---|---|---|---|---|---|"]
    for name, extents, title in README_ROWS:
        found = [line for line in (find(name, extents, threads) for threads in (1, 2)) if line]
        if found:
            cells = [" / ".join(show(line) for line in found) for show in (
                time_cell, lambda line: f"{100 * line['bound']['share']:.0f} %", lambda line: f"{line['speedup']:.2f}x", best_of)]
            rows.append(f"| {title} | " + " | ".join([*cells, found[0]["commit"][:7]]) + " |")
    first = lines[0]
    peers = {kind: one["version"] for line in lines for kind, one in line.get("peers", {}).items() if "version" in one}
    named = ", ".join(f"{NAMES[kind]} {version}" for kind, version in sorted(peers.items()))
    return "\n".join(rows) + f"\n\n{first['machine']['processor']}. Peers: {named}."


def with_table(text, block):
    """The text with the block between its marks."""
    begin, end = text.find(BEGIN), text.find(END)
    if begin < 0 or end < begin:
        sys.exit(f"error: found no '{BEGIN}' before '{END}'")
    return text[:begin + len(BEGIN)] + "\n" + block + "\n" + text[end:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--readme", type=pathlib.Path)
    parser.add_argument("--test", action="store_true", help="writes nothing; fails where the table is another")
    options = parser.parse_args()
    lines = load(options.results)
    if not options.readme:
        print(table(lines) + "\n\n" + summary(lines))
        return 0
    text = options.readme.read_text(encoding="utf-8")
    wanted = with_table(text, readme_table(lines))
    if options.test:
        print("" if wanted == text else f"error: {options.readme} has another table; run {sys.argv[0]} without --test")
        return int(wanted != text)
    options.readme.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
