#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `refold explain` says of every example: fused or cut, passes before and after, size of the state."""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EXPECTED = json.loads((pathlib.Path(__file__).parent / "Inputs/verdicts.json").read_text(encoding="utf-8"))
FIELDS = ["name", "axes", "verdict", "passes", "unfused_passes", "state_size"]


def explain(path):
    done = subprocess.run([os.environ["REFOLD"], "explain", "--format", "json", str(path)], cwd=ROOT,
                          capture_output=True, text=True, check=True)
    cascades = json.loads(done.stdout)["cascades"]
    return [{**{f: c[f] for f in FIELDS}, "reasons": [r["key"] for r in c["reasons"]]} for c in cascades]


def main():
    found = {path.stem: explain(path) for path in sorted((ROOT / "examples").glob("*.fold"))}
    if "--write" in sys.argv:
        (pathlib.Path(__file__).parent / "Inputs/verdicts.json").write_text(json.dumps(found, indent=1) + "\n")
        return 0
    failed = 0
    for name, cascades in found.items():
        for cascade in cascades:
            if (cascade["verdict"] != "fused") != bool(cascade["reasons"]):
                failed += 1
                print(f"{name}: found a cut without a reason, or a reason without a cut: {cascade}")
    for name in sorted(set(found) | set(EXPECTED)):
        if found.get(name) != EXPECTED.get(name):
            failed += 1
            print(f"{name}: found {found.get(name)}, expected {EXPECTED.get(name)}")
    print(f"{max(len(found) - failed, 0)} passed, {failed} failed, 0 skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
