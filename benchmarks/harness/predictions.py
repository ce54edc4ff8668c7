#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Holds the cost model against what is measured.

    predictions.py build/release/bin/refold [--only softmax,decode:n=16384] [--threads 1] [--runs 7] [--out FILE.jsonl]

Every workload of the suite: predicted and measured time of the fused program (as the cost model decides) and of
the unfused one, and at the end the share within 25 %. `refold doctor` first: without measured rates the
predictions are those of the target's defaults.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

import suite

NEAR = 0.25


class Case:
    """`refold bench --turns` of one shape; answers are checked before the first turn."""

    def __init__(self, refold, workload, shape, dtype):
        command = [refold, "bench", workload["program"], "--turns", *suite.stated_flags(workload, shape), "--shape",
                   suite.shape_text(shape)]
        if pathlib.Path(workload["program"]).suffix == ".fold":
            command += ["--dtype", dtype]
        self.process = subprocess.Popen(command, cwd=suite.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.checked = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def turn(self, form, threads, runs):
        self.process.stdin.write(f"{form} {threads} {runs}\n")
        self.process.stdin.flush()
        answer = self.answer()
        return statistics.median(answer["ms"]), answer["predicted_ms"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(options, workload, shape, dtype):
    """One line a form, or none where the answer is not checked."""
    case = Case(options.refold, workload, shape, dtype)
    lines = []
    for form in ("fused", "unfused") if case.checked else ():
        case.turn(form, options.threads, 1)  # what is cold, warm
        measured, predicted = case.turn(form, options.threads, options.runs)
        lines.append({"workload": workload["name"], "shape": shape, "dtype": dtype, "threads": options.threads,
                      "form": form, "ms": measured, "predicted_ms": predicted, "ratio": predicted / measured})
    case.close()
    return lines


def is_near(line):
    return abs(line["ratio"] - 1) <= NEAR


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("refold", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--only", default="", help="names of workloads, as run.py takes them")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--out", type=pathlib.Path)
    return parser.parse_args()


def main():
    options = parse_options()
    wanted = suite.parse_wanted(options.only) if options.only else []
    lines, unchecked = [], 0
    for workload in suite.load(wanted):
        for shape in workload.get("shapes", []):
            for dtype in workload.get("dtypes", []):
                if not suite.is_wanted(wanted, workload, shape, dtype):
                    continue
                found = measure(options, workload, shape, dtype)
                unchecked += not found
                for line in found:
                    print(f"{workload['name']:26} {suite.shape_text(shape):44} {dtype:5} {line['form']:8} "
                          f"{line['ms']:10.3f} ms, predicted {line['predicted_ms']:10.3f}, {line['ratio']:5.2f}"
                          f"{'' if is_near(line) else '  *'}", flush=True)
                    if options.out:
                        with options.out.open("a", encoding="utf-8") as file:
                            file.write(json.dumps(line) + "\n")
                lines += found
    near = sum(map(is_near, lines))
    print(f"{near} of {len(lines)} predictions within {NEAR:.0%}: {near / max(len(lines), 1):.0%}; "
          f"{unchecked} cases without a checked answer")
    return 1 if unchecked or not lines else 0


if __name__ == "__main__":
    sys.exit(main())
