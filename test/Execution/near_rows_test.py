#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Differences of logarithms of sums: rows of which the difference would lose its digits take one more pass over the
stream. No row, some rows and all rows of an array need it.

    near_rows_test.py [--self-test]
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))
EXACT = numpy.longdouble
ROWS = 37
LENGTHS = [1, 3, 17, 300, 4290]
LOGSUMEXPS = """difference(a[m,n], b[m,n]) -> d
  ta = max(n: a)
  tb = max(n: b)
  d = (ta + log(sum(n: exp(a - ta)))) - (tb + log(sum(n: exp(b - tb))))
"""


def logsumexp(x):
    top = x.max(axis=1, keepdims=True)
    return (top + numpy.log(numpy.exp(x - top).sum(axis=1, keepdims=True)))[:, 0]


def divergence(a, b):
    """Σ p·(e^u - 1 - u) over its own mean: nothing cancels."""
    top = a.max(axis=1, keepdims=True)
    p = numpy.exp(a - top)
    p /= p.sum(axis=1, keepdims=True)
    y = b - a
    u = y - (p * y).sum(axis=1, keepdims=True)
    small = numpy.abs(u) < 1e-3
    tail = numpy.where(small, u * u / 2 + u**3 / 6 + u**4 / 24, numpy.expm1(u) - u)
    left = (p * u).sum(axis=1)
    return numpy.log1p((p * tail).sum(axis=1) + left) - left


def difference(a, b):
    top = b.max(axis=1, keepdims=True)
    weight = numpy.exp(b - top)
    return numpy.log1p((weight * numpy.expm1(a - b)).sum(axis=1) / weight.sum(axis=1))


# A program, its arguments, and what it should be of them.
PROGRAMS = {
    "kl": (ROOT / "examples/kl_divergence.fold", ("a", "b"), "kl", divergence),
    "statistics": (ROOT / "test/Catalogue/catalogue_25_token_statistics.fold", ("x", "ref"), "kl", divergence),
    "divergence": (ROOT / "test/Catalogue/theory_divergence.fold", ("x", "y"), "k", divergence),
    "logsumexps": (LOGSUMEXPS, ("a", "b"), "d", difference),
}
# How far the second array is from the first; "far" is one of its own.
KINDS = {"far": None, "equal": 0.0, "1e-5": 1e-5, "1e-3": 1e-3, "0.1": 0.1, "beside": 1.0, "offset": 1e-2,
         "growing": 1e-2, "masked": 1e-2}


def rows(kind, count, n, draw):
    a = draw.normal(size=(count, n)).astype("f4")
    if kind == "offset":
        a += numpy.float32(1e4)
    if kind == "growing":
        a += numpy.linspace(0, 80, n, dtype="f4")
    if kind == "masked" and n > 2:
        a[:, draw.random(n) < 0.3] = -1e4
    noise = draw.normal(size=(count, n))
    b = noise * 2 if KINDS[kind] is None else a + noise * KINDS[kind]
    return a, b.astype("f4")


def arrays(mix, n, draw):
    parts = [rows(mix[i % len(mix)], 1, n, draw) for i in range(ROWS)]
    return [numpy.concatenate(x) for x in zip(*parts)]


def run(folder, name, a, b, *flags):
    source, arguments, output, _ = PROGRAMS[name]
    if isinstance(source, str):
        path = pathlib.Path(folder) / f"{name}.fold"
        path.write_text(source, encoding="utf-8")
        source = path
    inputs = dict(zip(arguments, (a, b)))
    if name == "statistics":
        inputs["label"] = numpy.zeros(len(a), dtype="i8")
    numpy.savez(f"{folder}/in.npz", **inputs)
    done = subprocess.run([REFOLD, "run", str(source), f"--inputs-from={folder}/in.npz", f"--outputs-to={folder}/out.npz",
                           *flags], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return numpy.load(f"{folder}/out.npz")[output].reshape(-1)


def errors(found, exact, name, a):
    """In units of the row's own value; a difference of both signs may itself be near 0."""
    size = numpy.abs(exact)
    if name == "logsumexps":
        size = numpy.maximum(size, 1e-5)
    size = numpy.maximum(size, 1e-30)
    # Elements of 1e4 have a difference with an error of their own: none here, as both are f32 and near.
    return numpy.where(found == exact, 0, numpy.abs(found - exact) / size)


def check(folder, name, mix, n, draw, flags=()):
    a, b = arrays(mix, n, draw)
    exact = PROGRAMS[name][3](a.astype(EXACT), b.astype(EXACT))
    found = run(folder, name, a, b, "--threads=1", *flags)
    wrong = []
    worst = errors(found.astype(EXACT), exact, name, a)
    most = 3e-5
    for i in numpy.nonzero(~(worst <= most))[0][:2]:
        wrong.append(f"{name} {'+'.join(mix)} n={n} row {i} ({mix[i % len(mix)]}): {found[i]:.6g} for {float(exact[i]):.6g}")
    if flags:
        return wrong
    if not numpy.array_equal(found, run(folder, name, a, b, "--threads=2"), equal_nan=True):
        wrong.append(f"{name} {'+'.join(mix)} n={n}: other bits with two threads")
    # What the others of its tile need is nothing to a row.
    alone = run(folder, name, a[:1].repeat(ROWS, axis=0), b[:1].repeat(ROWS, axis=0))
    if not (alone == found[0]).all() and not numpy.isnan(found[0]):
        wrong.append(f"{name} {'+'.join(mix)} n={n}: {alone[0]!r} alone, {found[0]!r} among others")
    return wrong


MIXES = [["far"], ["1e-3"], ["equal"], ["far", "1e-3"], list(KINDS)]


def main():
    wrong, cases, failed = [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["REFOLD_CACHE_DIR"] = os.path.join(folder, "kernels")  # a program is compiled once
        if "--self-test" in sys.argv:
            draw = numpy.random.default_rng(1)
            if not check(folder, "kl", ["1e-3"], 300, draw, ["--stability=fastest"]):
                sys.exit("rows without the pass were accepted")
            return
        for name in PROGRAMS:
            for n in LENGTHS:
                for mix in MIXES:
                    if name == "logsumexps" and mix == ["far"] and n < 17:
                        continue
                    found = check(folder, name, mix, n, numpy.random.default_rng(n))
                    wrong += found
                    failed += bool(found)
                    cases += 1
    print("\n".join(wrong))
    print(f"{cases - failed} passed, {failed} failed, 0 skipped")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
