#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Means of long rows beside what is summed about them. One row is luck, so the root mean square of the errors of many rows
is held against that of the unfused program: elements of both signs, whose mean is far smaller than they are, and
elements that lie far from 0.

    long_means_test.py
"""

import os
import pathlib
import subprocess
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))
ROWS = 48
# One tile of a whole row, some tiles, some blocks of tiles.
LENGTHS = [1000, 5000, 40000]
# Of the unfused error. Of both signs it was 1.9 to 3 times that, where the mean was corrected by the sum of distances from
# it, of which each binade is rounded to one side; far from 0 the correction is exact.
MOST = {"both signs": 1.4, "far from 0": 0.9}

PROGRAM = """means(x[b,n], y[b,n], w[b,n]) -> mu, spread, centre, moment, intercept, distances
  mu = mean(n: x)
  spread = mean(n: (x - mu)^2)
  m = abs(w)
  centre = sum(n: m*x) / sum(n: m)
  moment = sum(n: m * (x - centre)^2)
  my = mean(n: y)
  slope = sum(n: (x - mu) * (y - my)) / sum(n: (x - mu)^2)
  distances = sum(n: (y - my)^2)
  intercept = my - slope * mu
"""


def inputs(kind, length):
    draw = numpy.random.default_rng(length)
    offset = numpy.float32(300 if kind == "far from 0" else 0)
    return {name: draw.standard_normal((ROWS, length), "f4") + (0 if name == "w" else offset) for name in "xyw"}


def expected(x, y, w):
    x, y, w = x.astype("f8"), y.astype("f8"), abs(w.astype("f8"))
    mu, my = x.mean(1), y.mean(1)
    dx, dy = x - mu[:, None], y - my[:, None]
    slope = (dx * dy).sum(1) / (dx * dx).sum(1)
    centre = (w * x).sum(1) / w.sum(1)
    return {"mu": mu, "spread": (dx * dx).mean(1), "centre": centre, "moment": (w * (x - centre[:, None]) ** 2).sum(1),
            "intercept": my - slope * mu}


def errors(folder, given, want, fuse):
    numpy.savez(f"{folder}/in.npz", **given)
    subprocess.run([REFOLD, "run", f"{folder}/means.fold", f"--fuse={fuse}", f"--inputs-from={folder}/in.npz",
                    f"--outputs-to={folder}/out.npz"], check=True, stdout=subprocess.DEVNULL)
    with numpy.load(f"{folder}/out.npz") as found:
        return {name: numpy.sqrt(((found[name] - want[name]) ** 2).mean()) for name in want}


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "means.fold").write_text(PROGRAM)
        for length in LENGTHS:
            for kind, most in MOST.items():
                given = inputs(kind, length)
                want = expected(**given)
                fused, unfused = (errors(folder, given, want, fuse) for fuse in ("always", "never"))
                # Squares have an ulp to spare: of moments about a rounded mean a term more is rounded.
                ulp = {name: 2.0**-24 * abs(want[name]).max() if name in ("spread", "moment") else 0 for name in want}
                bad = {name: f"{e / unfused[name]:.2f}" for name, e in fused.items() if not e <= most * unfused[name] + ulp[name]}
                failed += bool(bad)
                print(f"{'FAIL' if bad else 'ok  '} n={length} {kind} {bad or ''}")
    print(f"{failed} failed")
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
