#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the workloads of benchmarks/suite and writes one JSON line a measurement (schema.json).

    run.py build/release/bin/refold [--out results.jsonl] [--only attention] [--peers] [--rounds 3]

`refold bench` checks the answer before it times anything; a line without "checked" is not a time and is
shown as UNCHECKED. With --peers the programs of benchmarks/peers that a workload names take turns with it
(`ninja -C build/release benchmark_peers` builds those in C++; those in Python run in this one). The workload
"derivation" is CPU time of the compiler itself (derivation.py).
"""

import argparse
import ast
import datetime
import json
import operator
import pathlib
import platform
import subprocess
import sys

import derivation

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2}
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}


def evaluate(formula, names):
    """A formula of the suite: integers, names, + - * //."""
    def value(node):
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Name):
            return names[node.id]
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        raise ValueError(f"found {ast.dump(node)} in '{formula}', expected integers, names, + - * //")
    return value(ast.parse(formula, mode="eval").body)


def machine():
    """Processor and number of threads, as the kernel says them."""
    names = [line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    return {"processor": names[0] if names else platform.processor(), "threads": len(names)}


def measure(refold, workload, shape, dtype, threads):
    command = [refold, "bench", workload["program"], "--format", "json", "--dtype", dtype, "--threads", str(threads),
               "--shape", ",".join(f"{name}={extent}" for name, extent in shape.items())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        return {"checked": False, "error": done.stderr.strip()}
    answer = json.loads(done.stdout)
    names = dict(shape, size=BYTES[dtype])
    milliseconds = answer["fused_ms"]
    answer["gbytes_per_s"] = evaluate(workload["bytes"], names) / milliseconds / 1e6
    answer["gflops_per_s"] = evaluate(workload["flops"], names) / milliseconds / 1e6
    return answer


def run_peer(refold, peer, workload, shape, threads):
    """What the peer prints: a JSON object with "ms"."""
    names = ",".join(f"{name}={extent}" for name, extent in shape.items())
    if peer.endswith(".py"):
        command = [sys.executable, ROOT / "benchmarks/peers" / peer, workload["program"], names, str(threads)]
    else:
        command = [refold.parent / peer, names, str(threads)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except OSError as error:
        sys.exit(f"error: {error}; expected it built by `ninja benchmark_peers`")
    if done.returncode != 0:
        sys.exit(f"error: {peer} ended with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def compare(refold, workload, shape, dtype, threads, rounds):
    """Refold and the peers in turns; of each the round with the median time."""
    rounds = [[measure(refold, workload, shape, dtype, threads)]
              + [run_peer(refold, peer, workload, shape, threads) for peer in workload["peers"]] for _ in range(rounds)]
    if not all(one[0]["checked"] for one in rounds):
        return next(one[0] for one in rounds if not one[0]["checked"])
    middle = len(rounds) // 2
    answer = sorted((one[0] for one in rounds), key=lambda one: one["fused_ms"])[middle]
    answer["peers"] = {}
    for i, peer in enumerate(workload["peers"], start=1):
        found = sorted((one[i] for one in rounds), key=lambda one: one["ms"])[middle]
        ratio = sorted(one[i]["ms"] / one[0]["fused_ms"] for one in rounds)[middle]
        unfused = sorted(one[i]["ms"] / one[0]["unfused_ms"] for one in rounds)[middle]
        answer["peers"][peer] = {**found, "speedup": ratio, "unfused_speedup": unfused}
    return answer


def run_derivation(refold, workload):
    """One line a program, one a graph and one of all: CPU time, and what is over the limits."""
    paths = sorted(path for pattern in workload["derived"] for path in ROOT.glob(pattern))
    programs = derivation.measure_programs(refold, paths, workload["runs"], is_quiet=False)
    graphs = derivation.measure_graphs(refold, workload["graphs"], workload["runs"], is_quiet=False)
    summary = derivation.summarise(programs, graphs)
    lines = [{"program": str(path.relative_to(ROOT)), **times} for path, times in programs]
    lines += [{"nodes": nodes, **{k: v for k, v in times.items() if k != "cascades"}} for nodes, times in graphs.items()]
    return lines + [{"summary": summary, "beyond": derivation.beyond(summary, workload["limits"])}]


def describe(result):
    if not result["checked"]:
        return f"UNCHECKED {result['error']}"
    text = f"{result['fused_ms']:.3f} ms, {result['speedup']:.2f}x unfused"
    for peer, found in result.get("peers", {}).items():
        text += f"; {peer} {found['ms']:.3f} ms: {found['speedup']:.2f}x it, unfused {found['unfused_speedup']:.2f}x it"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("refold", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--peers", action="store_true", help="also times the peers that a workload names")
    parser.add_argument("--rounds", type=int, default=3, help="turns of Refold and the peers")
    options = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    common = {"commit": commit, "machine": machine(),
              "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
    failed = 0
    for path in sorted((ROOT / "benchmarks/suite").glob("*.json")):
        workload = json.loads(path.read_text(encoding="utf-8"))
        if options.only not in workload["name"]:
            continue
        if "derived" in workload:
            lines = run_derivation(options.refold, workload)
            failed += bool(lines[-1]["beyond"])
            for line in lines if options.out else []:
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"workload": workload["name"], **line, **common}) + "\n")
            print(derivation.describe(lines[-1]["summary"], lines[-1]["beyond"]), flush=True)
            continue
        for shape in workload["shapes"]:
            for dtype in workload["dtypes"]:
                for threads in workload["threads"]:
                    if options.peers and "peers" in workload:
                        result = compare(options.refold, workload, shape, dtype, threads, options.rounds)
                    else:
                        result = measure(options.refold, workload, shape, dtype, threads)
                    failed += not result["checked"]
                    line = {"workload": workload["name"], "shape": shape, "dtype": dtype, "threads": threads, **result, **common}
                    if options.out:
                        with options.out.open("a", encoding="utf-8") as file:
                            file.write(json.dumps(line) + "\n")
                    what = f"{workload['name']} {dtype} {shape} threads {threads}: "
                    print(what + describe(result), flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
