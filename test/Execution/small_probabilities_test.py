#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Probabilities too small for a normal number may be 0 beside ordinary values, but not beside values, or sums before the
pivot grew, so large that they show, nor beside infinities: then each is what it is unfused.

    small_probabilities_test.py
"""

import itertools
import os
import pathlib
import subprocess
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))
ROWS, LENGTHS = [1, 3, 70], [40, 700, 1100, 9000]
COLUMNS = 20
SMALL = -95.0  # e^-95 is 5.5e-42
ULP = 2.0**-23

PROGRAM = """small(q[m,d=1], k[n,d=1], v[n,e=20]) -> o
  s[m,n] = sum(d: q*k)
  p = exp(s - max(n: s))
  o = sum(n: p*v) / sum(n: p)
"""

# Rows by themselves: each has values of its own, of more columns than a register tile.
OWN = """small(q[m,d=1], k[m,n,d=1], v[m,n,e=80]) -> o
  s[m,n] = sum(d: q*k)
  p = exp(s - max(n: s))
  o = sum(n: p*v) / sum(n: p)
"""


# A number of the program that is made where they are made: h·h below the normal numbers divides what is as small; and a sum beside them.
SCALED = {"a half": "  s[m,n] = sum(d: q*k) * 0.5\n", "a divisor": "  s[m,n] = sum(d: q*k)/(h*h)\n", "a factor": "  s[m,n] = sum(d: q*k)*1e-3*(1/(h*h)*1e3)\n"}
BESIDE = """small(q[m,d=1], k[n,d=1], v[n,e=20], h, a[m,n]) -> o, b, t
SCORES  t = max(n: s)
  p = exp(s - t)
  o = sum(n: p*v) / sum(n: p)
  b = sum(n: a*a)
"""


def check_scaled(folder):
    """How many differ from double by more than twice the unfused program's error and two units."""
    failed = 0
    for (what, scores), h in itertools.product(SCALED.items(), [1e-20, 1e-19, 3e-10]):
        if what == "a factor" and h < 1e-19:
            continue  # its reciprocal is infinite
        pathlib.Path(folder, "small.fold").write_text(BESIDE.replace("SCORES", scores))
        draw = numpy.random.default_rng(7)
        given = {"q": numpy.full((3, 1), h, "f4"), "k": (draw.uniform(1, 4, (700, 1)) * h).astype("f4"), "h": numpy.float32(h),
                 "v": draw.uniform(0.5, 1, (700, COLUMNS)).astype("f4"), "a": draw.uniform(1e-20, 2e-20, (3, 700)).astype("f4")}
        q, k, v, a, unit = (given[name].astype("f8") for name in "qkvah")
        s = q @ k.T * 0.5 if what == "a half" else q @ k.T / (unit * unit)
        p = numpy.exp(s - s.max(1, keepdims=True))
        for name, want in {"o": p @ v / p.sum(1, keepdims=True), "b": (a * a).sum(1), "t": s.max(1)}.items():
            fused, unfused = (results(folder, given, f"--fuse={how}", name=name) for how in ("always", "never"))
            bound, found = 2 * error(unfused, want) + 2 * ULP, error(fused, want)
            if not found <= bound:
                print(f"{what}, h {h}, {name}: {found:.2e} of {bound:.2e}")
                failed += 1
    return failed


def inputs(kind, rows, length):
    draw = numpy.random.default_rng(length)
    q = numpy.ones((rows, 1), "f4")
    k = draw.uniform(-103, -88, (length, 1)).astype("f4")
    v = draw.uniform(0.5e-3, 1e-3, (length, COLUMNS)).astype("f4")
    first, last = 1, length - 2
    k[first] = 0
    k[last] = SMALL
    if kind in ["large", "infinite", "nan"]:
        v[last, 3] = {"large": 2.0**126, "infinite": numpy.inf, "nan": numpy.nan}[kind]
    if kind == "large before":  # and then the pivot grows by 95
        k[first], k[last] = SMALL, 0
        v[first, 3] = 2.0**126
    if kind == "last of its columns":
        v[last, COLUMNS - 1] = 2.0**126
    return {"q": q, "k": k, "v": v}


def results(folder, given, *options, name="o"):
    numpy.savez(f"{folder}/in.npz", **given)
    subprocess.run([REFOLD, "run", f"{folder}/small.fold", *options, f"--inputs-from={folder}/in.npz",
                    f"--outputs-to={folder}/out.npz"], check=True, stdout=subprocess.DEVNULL)
    with numpy.load(f"{folder}/out.npz") as found:
        return found[name]


def error(found, want):
    """Of each column beside its largest value; of infinities and NaN whether they are there."""
    finite = numpy.isfinite(want)
    if not ((finite == numpy.isfinite(found)) & (finite | (found == want) | (numpy.isnan(found) & numpy.isnan(want)))).all():
        return numpy.inf
    return (abs(found[finite] - want[finite]) / abs(want[finite])).max(initial=0)


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["REFOLD_CACHE_DIR"] = os.path.join(folder, "kernels")  # a program is compiled once
        failed += check_scaled(folder)
        for program, rows, length in itertools.product([PROGRAM, OWN], ROWS, LENGTHS):
            if program == OWN and rows == max(ROWS):
                continue
            pathlib.Path(folder, "small.fold").write_text(program)
            for kind in ["ordinary", "large", "infinite", "nan", "large before", "last of its columns"]:
                given = inputs(kind, rows, length)
                q, k, v = (given[name].astype("f8") for name in "qkv")
                s = q @ k.T
                if program == OWN:
                    given["k"] = numpy.repeat(given["k"][None], rows, 0)
                    given["v"] = numpy.repeat(numpy.tile(given["v"], 4)[None], rows, 0)
                    v = numpy.tile(v, 4)
                p = numpy.exp(s - s.max(1, keepdims=True))
                want = p @ v / p.sum(1, keepdims=True)
                fused = results(folder, given, "--fuse=always")
                bound = 2 * error(results(folder, given, "--fuse=never"), want) + 2 * ULP
                found = error(fused, want)
                again = results(folder, given, "--fuse=always", "--threads=2")
                if not found <= bound or fused.tobytes() != again.tobytes():
                    print(f"{kind}, {rows} rows, {length}: {found:.2e} of {bound:.2e}")
                    failed += 1
    print(f"{failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
