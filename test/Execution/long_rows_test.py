#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums over millions of elements: the chain of additions behind a result grows with the logarithm of the length. Equal
elements round the same way in every step, so that a chain of hundreds of blocks would err by tens of ulp.

    long_rows_test.py
"""

import os
import pathlib
import subprocess
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))
LENGTHS = [16384, 16385, 3 * 16384 + 1, 4194307, 16777259]  # about one block, some, many
BOUND = 2.5e-7  # 2 ulp

PROGRAM = """long(x[b,n], w[b,n]) -> total, spread, energy
  total = sum(n: x)
  mean = sum(n: w*x) / sum(n: w)
  spread = sum(n: w * (x - mean)^2)
  energy = sum(n: x*x)
"""


def rows(kind, length):
    if kind == "equal":
        return numpy.full((1, length), 0.1, "f4")
    if kind == "growing":
        return (numpy.arange(length, dtype="f4") / numpy.float32(length) * 30)[None]
    return numpy.random.default_rng(length).random((1, length), "f4")


def expected(x, w):
    x, w = x.astype("f8"), w.astype("f8")
    mean = (w * x).sum() / w.sum()
    return {"total": x.sum(), "spread": (w * (x - mean) ** 2).sum(), "energy": (x * x).sum()}


def errors(folder, kind, length, fuse):
    x, w = rows(kind, length), rows("normal", length)
    numpy.savez(f"{folder}/in.npz", x=x, w=w)
    subprocess.run([REFOLD, "run", f"{folder}/long.fold", f"--fuse={fuse}", f"--inputs-from={folder}/in.npz",
                    f"--outputs-to={folder}/out.npz"], check=True, stdout=subprocess.DEVNULL)
    want = expected(x, w)
    with numpy.load(f"{folder}/out.npz") as found:
        scale = {name: abs(value) for name, value in want.items()}
        if kind == "equal":  # nothing but rounding is spread
            scale["spread"] = want["energy"]
        return {name: abs(float(found[name][0]) - want[name]) / scale[name] for name in want}


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "long.fold").write_text(PROGRAM)
        for length in LENGTHS:
            for kind in ("equal", "growing", "normal"):
                for fuse in ("always", "never"):
                    found = errors(folder, kind, length, fuse)
                    bad = {name: f"{e:.1e}" for name, e in found.items() if not e <= BOUND}
                    failed += bool(bad)
                    print(f"{'FAIL' if bad else 'ok  '} n={length} {kind} --fuse={fuse} {bad or ''}")
    print(f"{failed} failed")
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
