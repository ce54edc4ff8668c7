#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums by columns over streams of hundreds of tiles: tiles are added up in blocks, as those of rows are. Equal elements
round the same way in every step: one chain of 512 tiles erred by 5e-6.

    long_streams_test.py
"""

import os
import pathlib
import subprocess
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))
# Tiles of 512: one block, the end of one, some, many; rows added 16 and 64 at a time.
LENGTHS = [8192, 8193, 5 * 8192 + 3, 262145]
BOUND = {3: 6e-7, 40: 1.2e-6}
OPTIONS = [[], ["--dim", "n=262145,m=3"]]  # known: in segments

PROGRAM = """long(q[m,d=4], k[n,d=4], v[n,e=16]) -> o
  s[m,n] = sum(d: q*k)
  p = exp(s - max(n: s))
  o = sum(n: p*v) / sum(n: p)
"""


def inputs(kind, rows, length):
    draw = numpy.random.default_rng(length)
    q, k = draw.standard_normal((rows, 4), "f4"), draw.standard_normal((length, 4), "f4")
    if kind == "equal":
        k[:] = 0.3
    if kind == "growing":  # the pivots move in every tile
        q, k = abs(q), numpy.sort(k, 0) * numpy.float32(8)
    v = numpy.full((length, 16), 0.1, "f4") * numpy.arange(3, 19, dtype="f4")
    return {"q": q, "k": k, "v": v if kind == "equal" else draw.random((length, 16), "f4")}


def error(folder, given, options):
    numpy.savez(f"{folder}/in.npz", **given)
    subprocess.run([REFOLD, "run", f"{folder}/long.fold", "--fuse=always", *options, f"--inputs-from={folder}/in.npz",
                    f"--outputs-to={folder}/out.npz"], check=True, stdout=subprocess.DEVNULL)
    q, k, v = (given[name].astype("f8") for name in "qkv")
    s = q @ k.T
    p = numpy.exp(s - s.max(1, keepdims=True))
    want = p @ v / p.sum(1, keepdims=True)
    with numpy.load(f"{folder}/out.npz") as found:
        return (abs(found["o"] - want) / abs(want).max()).max()


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "long.fold").write_text(PROGRAM)
        for rows, bound in BOUND.items():
            for length in LENGTHS:
                for options in OPTIONS if (rows, length) == (3, 262145) else OPTIONS[:1]:
                    for kind in ["equal", "growing", "normal"]:
                        found = error(folder, inputs(kind, rows, length), options)
                        if not found <= bound:
                            print(f"{kind}, {rows} rows, {length} {options}: {found:.2e} of {bound:.2e}")
                            failed += 1
    print(f"{failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
