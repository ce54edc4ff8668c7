#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long the programs of the suite take to compile, cold, with open extents and with those of a shape.

    compile_times.py build/release/bin/refold [--only softmax,routing_top8] [--runs 5]

A Markdown table, ms: wall time of the whole program (`compile_ms`), kernels, and of all its kernels together the CPU time of the stages
that have most. Of several runs the least counts, since others use the machine too."""

import argparse
import json
import pathlib
import subprocess
import sys

import suite

#: Stages by the words they begin with; the rest is one column.
STAGES = {"certify": "certify", "walk": "kernel: walk", "MLIR": "kernel: MLIR passes", "to LLVM": "kernel: translation",
          "LLVM": "kernel: LLVM code generation"}


def compile_once(refold, program, extents):
    flags = ["--dim", suite.shape_text(extents)] if extents else []
    done = subprocess.run([refold, "compile", program, "--no-cache", "--format=json", *flags], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{program}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def cells(refold, program, extents, runs):
    """Of the quickest run: wall, kernels, the stages."""
    least = min((compile_once(refold, program, extents) for _ in range(runs)), key=lambda run: run["compile_ms"])
    times = {stage["name"]: stage["ms"] for stage in least["stages"]}
    compiled = next(stage["count"] for stage in least["stages"] if stage["name"] == STAGES["to LLVM"])
    return [f"{least['compile_ms']:.0f}", str(compiled)] + [f"{times.get(name, 0.0):.0f}" for name in STAGES.values()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("refold")
    parser.add_argument("--only", default="", help="workloads or families, separated by commas")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    wanted = suite.parse_wanted(options.only) if options.only else []
    head = ["program", "extents", "all", "kernels", *STAGES]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for workload in suite.load(wanted):
        program = workload["program"]
        if pathlib.Path(program).suffix != ".fold":
            continue
        shape = workload["shapes"][len(workload["shapes"]) // 2]
        for name, extents in (("open", None), (suite.shape_text(shape), shape)):
            row = [workload["name"], name, *cells(options.refold, str(suite.ROOT / program), extents, options.runs)]
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
