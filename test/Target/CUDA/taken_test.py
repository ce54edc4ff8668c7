#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many programs the CUDA target takes is what README.md and docs/targets/cuda.md say: both follow from a list of those that it does
not take whole, and an eighth of all programs is held to the list, which one by the number of commits (REFOLD_ALL_CASES=1: all)."""

import os
import re
import subprocess
import sys

import checks
import taken
from checks import ROOT

LIST = ROOT / "test/Target/CUDA/Inputs/not_whole.txt"
SAID = {"README.md": r"(?P<taken>\d+) of (?P<all>\d+) programs of `examples/` and `test/Catalogue` are taken in f32",
        "docs/targets/cuda.md": r"(?P<taken>\d+) of (?P<all>\d+) programs in f32 are taken, (?P<unfused>\d+) of them with something"}


def not_whole():
    """{path from the root: refused or unfused}"""
    lines = [line for line in LIST.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split(" | ") for line in lines)


def check_docs(name):
    listed = list(not_whole().values())
    every = len(taken.programs())
    wanted = {"all": every, "taken": every - listed.count("refused"), "unfused": listed.count("unfused")}
    found = re.search(SAID[name], (ROOT / name).read_text())
    assert found, f"found no sentence '{SAID[name]}'"
    said = {key: int(number) for key, number in found.groupdict().items()}
    assert said.items() <= wanted.items(), f"found {said}, expected {wanted}"


def check_listed(path):
    assert (ROOT / path).exists(), f"found {path} in {LIST.name}, which is no program"


def check_program(path):
    wanted = not_whole().get(str(path.relative_to(ROOT)), "taken")
    what, said = taken.judge(path, "f32")
    assert what == wanted, f"found '{what}' {said}, expected '{wanted}': change {LIST.name}"


def main():
    programs = taken.programs()
    if not os.environ.get("REFOLD_ALL_CASES"):
        counted = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True)
        part = int(counted.stdout) % checks.PARTS if counted.returncode == 0 else 0
        print(f"part {part + 1} of {checks.PARTS} of {len(programs)} programs; REFOLD_ALL_CASES=1 judges all")
        programs = programs[part::checks.PARTS]
    os.environ["REFOLD_ALL_CASES"] = "1"  # what is left is run as a whole
    return checks.run([(check_docs, name) for name in SAID] + [(check_listed, path) for path in not_whole()] +
                      [(check_program, path) for path in programs])


if __name__ == "__main__":
    sys.exit(main())
