#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""No rule knows a pattern by name: other names, another order, named parts and inlined parts leave every verdict.

    invariance_test.py [--jobs N] [--show VARIANT] [name ...]

Every program of this folder is rewritten (fold_text.py) and explained again. What has to stay: fused or cut, the passes,
and the reasons.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import fold_text
from policies import POLICIES

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))
SEED = 20240817
VARIANTS = {
    "as printed": lambda p, draw: p,
    "renamed, reordered": lambda p, draw: fold_text.renamed(fold_text.reordered(p, draw)),
    "split into named parts": lambda p, draw: fold_text.split(p, splitsSums=False),
    "split sums, scaled": lambda p, draw: fold_text.split(p),
    "inlined": lambda p, draw: fold_text.inlined(p),
}


def verdicts(text, folder, name):
    """What may not change, of all cascades together; or the error."""
    path = pathlib.Path(folder) / f"{name}.fold"
    path.write_text(text, encoding="utf-8")
    command = [REFOLD, "explain", "--format", "json", str(path), *POLICIES.get(name.rpartition("-")[0], [])]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip()
    answer = json.loads(done.stdout)
    if any(n["key"] == "lists-of-groups" for n in answer["notes"]):
        return ["lists-of-groups"]
    found = sorted((c["verdict"], c["passes"], tuple(sorted({r["key"] for r in c["reasons"]})))
                   for c in answer["cascades"])
    return sorted(set(found))


def examine(path, folder):
    text = path.read_text(encoding="utf-8")
    expected = verdicts(text, folder, f"{path.stem}-0")
    program = fold_text.once(fold_text.parse(text))
    wrong = ""
    for number, (variant, rewrite) in enumerate(VARIANTS.items(), 1):
        rewritten = fold_text.printed(rewrite(program, random.Random(SEED)))
        found = verdicts(rewritten, folder, f"{path.stem}-{number}")
        if found != expected:
            wrong += f"{path.stem}, {variant}: found {found}, expected {expected}\n{rewritten}"
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    paths = [p for p in sorted(HERE.glob("*.fold")) if not options.names or p.stem in options.names]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        answers = list(pool.map(lambda p: examine(p, folder), paths))
    for answer in answers:
        print(answer, end="")
    failed = sum(bool(a) for a in answers)
    print(f"{len(answers) - failed} passed, {failed} failed, 0 skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
