#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Few rows by values as they lie in matrix tiles, where each factor stands beside a 0 (TilesInPlace.cpp): elements that are
infinite or no number are so in their own column, and in no other; the other heads and tiles are as ever.

    tiles_in_place_test.py
"""

import itertools
import os
import pathlib
import subprocess
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))
HEADS, DEPTH, COLUMNS = 2, 40, 70
BOUND = 2.0**-6  # factors and results of bf16
DIMS = f"--dim=d={DEPTH},e={COLUMNS}"


def halves(values):
    """The nearest numbers of bf16, as f32."""
    bits = values.astype("f4").view("u4")
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return numpy.where(numpy.isfinite(values), rounded.view("f4"), values).astype("f4")


def results(folder, given):
    numpy.savez(f"{folder}/in.npz", **{name: (x.view("u4") >> 16).astype("u2").view("V2") for name, x in given.items()})
    subprocess.run([REFOLD, "run", ROOT / "examples/attention.fold", "--dtype=bf16", DIMS, "--fuse=always",
                    f"--inputs-from={folder}/in.npz", f"--outputs-to={folder}/out.npz"], check=True, stdout=subprocess.DEVNULL)
    with numpy.load(f"{folder}/out.npz") as found:
        o = found["o"]
    return (o.view("u2").astype("u4") << 16).view("f4")


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for rows, length, kind in itertools.product([1, 5, 16], [33, 600], [0.0, numpy.inf, -numpy.inf, numpy.nan]):
            draw = numpy.random.default_rng(length + rows)
            q, k, v = (halves(draw.normal(size=(1, HEADS, n, width))) for n, width in
                       [(rows, DEPTH), (length, DEPTH), (length, COLUMNS)])
            for at, column in [(0, 3), (length - 1, COLUMNS - 2), (length // 2, 32)]:
                if kind != 0:
                    v[0, 0, at, column] = kind
            s = numpy.einsum("bhmd,bhnd->bhmn", q.astype("f8"), k) / DEPTH**0.5
            p = numpy.exp(s - s.max(-1, keepdims=True))
            want = numpy.einsum("bhmn,bhne->bhme", p, v) / p.sum(-1)[..., None]
            found = results(folder, {"q": q, "k": k, "v": v})
            finite = numpy.isfinite(want)
            alike = (finite == numpy.isfinite(found)) & (finite | (found == want) | (numpy.isnan(found) & numpy.isnan(want)))
            if not alike.all() or abs(found[finite] - want[finite]).max() > BOUND * abs(want[finite]).max():
                print(f"{kind} in {rows} rows by {length}: {(~alike).sum()} places are not alike")
                failed += 1
    print(f"{failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
