#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many programs of examples/ and the catalogue the CUDA target takes, and why it refuses others.

    taken.py [--dtype f32] [--list]
"""

import argparse
import collections
import os
import re
import subprocess
import sys

from checks import ROOT

REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))


def judge(path, dtype):
    """(what became of it, the reasons that were given)."""
    done = subprocess.run([REFOLD, "compile", "--target", "cuda-sm90", "--emit", "cuda", "--dtype", dtype, path], capture_output=True,
                          text=True, timeout=600)
    said = re.findall(r"\[([a-z-]+)\]:? (found [^;]*)", done.stderr)
    if done.returncode:
        return "refused", said or [("", done.stderr.strip().splitlines()[-1])]
    return ("unfused" if said else "taken"), said


def programs():
    return sorted([*(ROOT / "examples").glob("*.fold"), *(ROOT / "test/Catalogue").glob("*.fold")])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--list", action="store_true", help="every program that is not taken whole")
    options = parser.parse_args()
    counts, why = collections.Counter(), collections.Counter()
    for path in programs():
        what, said = judge(path, options.dtype)
        counts[what] += 1
        why.update({(what, key, re.sub(r"'[^']*'", "'...'", text)) for key, text in said})
        if options.list and what != "taken":
            print(path.relative_to(ROOT), what, *(f"[{key}] {text}" for key, text in said), sep=" | ")
    for (what, key, text), count in why.most_common():
        print(f"{count:4} {what} [{key}] {text}")
    print(f"{counts.total()} programs in {options.dtype}: {counts['taken'] + counts['unfused']} taken, {counts['unfused']} of them "
          f"with something that is not fused; {counts['refused']} refused")


if __name__ == "__main__":
    sys.exit(main())
