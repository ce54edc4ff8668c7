#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A benchmark looks at one input. Where its terms cancel (weighted means of values of both signs), the bound is that of inputs
that differ in their last bits; of a row without cancellation it is that of the input itself.

    bench_bound_test.py
"""

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))
# Program, shape, and how many of the seeds are to need it: at least and at most.
CASES = [("benchmarks/suite/programs/kernel_regression.fold", "i=512,j=200,d=8,e=1", 1, 11),
         ("examples/logsumexp.fold", "m=512,n=200", 0, 0)]
SEEDS = 12


def check(program, shape, seed):
    asked = [REFOLD, "bench", str(ROOT / program), "--shape", shape, f"--seed={seed}", "--turns"]
    found = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if found.returncode:
        return {"problem": found.stderr.strip()}
    return json.loads(found.stdout)


def main():
    failed = 0
    for program, shape, least, most in CASES:
        answers = [check(program, shape, seed) for seed in range(SEEDS)]
        problems = [answer["problem"] for answer in answers if "problem" in answer]
        conditioned = sum(answer.get("conditioned", False) for answer in answers)
        print(f"{program}: {conditioned} of {SEEDS} inputs were judged by their neighbours", *problems, sep="\n  ")
        failed += bool(problems) or not least <= conditioned <= most
    print(f"{failed} failed")
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
