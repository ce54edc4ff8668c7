#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""No verdict depends on what a certificate draws at random.

    seeds_test.py [--seeds 2,3] [--every N] [NAME ...]

Explains the programs of the catalogue (without names: every N-th, 8 by default) with the seed 1 and others and compares
what a user could rely on: verdict, passes, passes for irregular rows, state, reasons and the keys of notes.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

from policies import POLICIES

HERE = pathlib.Path(__file__).resolve().parent
REFOLD = os.environ.get("REFOLD", str(HERE.parent.parent / "build/dev/bin/refold"))
FIELDS = ["name", "verdict", "passes", "repair_passes", "state_size", "gauge", "policies"]


def explain(path, seed):
    command = [REFOLD, "explain", "--format", "json", "--seed", str(seed), str(path), *POLICIES.get(path.stem, [])]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip()
    answer = json.loads(done.stdout)
    return ([[c[f] for f in FIELDS] + [[r["key"] for r in c["reasons"]]] for c in answer["cascades"]],
            sorted(n["key"] for n in answer["notes"]))


def compare(path, seeds, ask=explain):
    """What differs, as text."""
    first = ask(path, 1)
    return "".join(f"{path.stem}: seed {seed} gives {found}, seed 1 gives {first}\n"
                   for seed in seeds if (found := ask(path, seed)) != first)


def self_test():
    """A verdict that depends on the seed is seen."""
    path = pathlib.Path("a.fold")
    assert not compare(path, [2, 3], lambda _, seed: ([["a", "fused"]], []))
    assert compare(path, [2, 3], lambda _, seed: ([["a", "fused" if seed < 3 else "cut"]], [])).count("seed 3") == 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", default="2")
    parser.add_argument("--every", type=int, default=8)
    options = parser.parse_args()
    self_test()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    paths = sorted(HERE.glob("*.fold"))
    paths = [p for p in paths if p.stem in options.names] if options.names else paths[::options.every]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = list(pool.map(lambda path: compare(path, seeds), paths))
    print("".join(wrong), end="")
    failed = sum(map(bool, wrong))
    print(f"{len(paths) - failed} passed, {failed} failed, 0 skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
