# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How the tests of this folder run their checks and report them."""

import concurrent.futures
import os
import pathlib
import random
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
sys.path.insert(0, str(ROOT / "utils"))
import nvrtc  # noqa: E402

PARTS = 8


def named(case):
    """A case without what has no short name."""
    return [str(part) for part in case if isinstance(part, (str, int, os.PathLike))]


def compiled(check, gates):
    """(checks, how many are skipped) with NVRTC, where it is installed."""
    library = nvrtc.find_library()
    if not library:
        print("found no NVRTC (Python package nvidia-cuda-nvrtc): nothing is compiled for a GPU")
        return [], len(gates)
    compiler = nvrtc.Compiler(library)
    return [(check, compiler, *gate) for gate in gates], 0


def share_of(cases):
    """An eighth of many cases, all with REFOLD_ALL_CASES: each takes compilers some seconds, and together they took most of an hour.
    Which one follows from the number of commits: a commit always runs the same, the next commit the next."""
    if os.environ.get("REFOLD_ALL_CASES") or len(cases) <= 40:
        return cases
    counted = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    first = int(counted.stdout) % PARTS if counted.returncode == 0 else 0
    print(f"part {first + 1} of {PARTS} of {len(cases)} cases; REFOLD_ALL_CASES=1 runs all")
    # Neighbours are often the same for two architectures: all parts have some of each.
    mixed = random.Random(1).sample(range(len(cases)), len(cases))
    return [cases[i] for i in sorted(mixed[first::PARTS])]


def run(checks, skipped=0):
    """Every (function, argument, ...) of this commit's share once; the exit code."""
    failed = 0
    checks = share_of(checks)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for (check, *case), done in [(c, pool.submit(*c)) for c in checks]:
            try:
                done.result()
            except (AssertionError, RuntimeError, KeyError, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"{check.__name__} {named(case)}: {error}")
    print(f"{len(checks) - failed} passed, {failed} failed, {skipped} skipped")
    return failed > 0
