#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A number that divides a row is made a reciprocal in two parts: quotients have the bits of a division, whatever the number
and what it divides, and a row that is divided never exceeds its own maximum.

    row_divisors_test.py
"""

import os
import pathlib
import subprocess
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))
LENGTHS = [1, 5, 64, 65, 333, 1027, 5000]
FOUND = subprocess.run([REFOLD, "doctor"], capture_output=True, text=True, env={**os.environ, "REFOLD_CACHE_DIR": ""}).stdout

# What is selected is no factor of a result: it is divided as written, not by a reciprocal of one rounding.
QUOTIENTS = """f(x[m,n]TYPE, t[m]TYPE, c, w[n]) -> y TYPE, z TYPE
  y[m,n] = where(w > 0, x / t, 0)
  z[m,n] = where(w > 0, x / c, 0)
"""
SOFTMAX = """f(x[m,n], t[m]) -> y, k
  s = x / t
  p = exp(s - max(n: s))
  y = p / sum(n: p)
  k = sum(n: where(s >= max(n: s), 1, 0))
"""
MINMAX = """f(x[m,n]) -> y
  low = min(n: x)
  y[m,n] = max((x - low) / (max(n: x) - low), 0)
"""
BYTES = """f(x[m,n], t[m]) -> y: i8
  y[m,n] = i8(round(x / t))
"""
SCORES = """f(q[h,m,d=8], k[h,n,d], v[h,n,e=20], t[h]) -> o
  s = sum(d: q*k) / t
  p = exp(s - max(n: s))
  o[h,m,e] = sum(n: p*v) / sum(n: p)
"""


def edges(dtype):
    info = numpy.finfo(dtype)
    ends = [0.0, info.smallest_subnormal, 5 * info.smallest_subnormal, info.tiny, info.tiny * 1.25, info.max, info.max / 3,
            numpy.inf, numpy.nan, 1.0, 3.0, 0.1, 7e-20, 5e25, 1 + info.eps, 1 - info.epsneg]
    return numpy.array([sign * v for v in ends for sign in (1, -1)], dtype)


def drawn(rng, count, dtype):
    values = (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)).astype(dtype)
    places = rng.random(count) < 0.2
    values[places] = rng.choice(edges(dtype), int(places.sum()))
    return values


def run(folder, text, given, names, *options):
    (folder / "f.fold").write_text(text, encoding="utf-8")
    numpy.savez(folder / "in.npz", **given)
    subprocess.run([REFOLD, "run", folder / "f.fold", *options, f"--inputs-from={folder}/in.npz",
                    f"--outputs-to={folder}/out.npz"], check=True, stdout=subprocess.DEVNULL)
    with numpy.load(folder / "out.npz") as found:
        return [found[name] for name in names]


def differs(found, want):
    """The first place where bits differ; a small number may be its neighbour."""
    info = numpy.finfo(want.dtype)
    small = numpy.abs(want) < 2 * info.tiny / info.eps
    with numpy.errstate(all="ignore"):
        near = (found == numpy.nextafter(want, numpy.inf)) | (found == numpy.nextafter(want, -numpy.inf))
    right = numpy.where(numpy.isnan(want), numpy.isnan(found),
                        ((found == want) | (small & near)) & (numpy.signbit(found) == numpy.signbit(want)))
    return None if right.all() else tuple(numpy.argwhere(~right)[0])


def quotients(folder, dtype, length):
    """Every divisor a row, with and without a mask at its end; one number that divides all rows."""
    rng = numpy.random.default_rng(length)
    t = edges(dtype)
    x = drawn(rng, t.size * length, dtype).reshape(t.size, length)
    text = QUOTIENTS.replace("TYPE", ": f64" if dtype == "f8" else "")
    if dtype == "f8":
        text = text.replace(", c,", ", c: f64,")
    for c in numpy.array([3.0, 0.0, 1e-40, numpy.inf], dtype):
        given = {"x": x, "t": t, "c": c, "w": numpy.ones(length, "f4")}
        found = run(folder, text, given, "yz")
        with numpy.errstate(all="ignore"):
            wanted = [x / t[:, None], x / c]
        for name, y, want in zip("yz", found, wanted):
            at = differs(y, want)
            if at is not None:
                return f"{name}: {x[at]} / {t[at[0]] if name == 'y' else c} is {y[at]}, not {want[at]}"
    return None


def isClose(found, want, bound):
    with numpy.errstate(all="ignore"):
        kinds = numpy.isnan(found) == numpy.isnan(want)
        return bool((kinds & ~(numpy.abs(found - want) > bound)).all())


def softmax(folder, length):
    """Huge scores, which show a bit by which one exceeds their maximum."""
    rng = numpy.random.default_rng(length)
    t = numpy.array([0.0, -0.0, 1e-40, 1e-30, 3e-9, 0.1, 0.7, -1.3, 3.0, 1e20, 2e38, numpy.inf, numpy.nan], "f4")
    t = numpy.concatenate([t, rng.uniform(1e-9, 1e-8, 200).astype("f4")])
    x = rng.standard_normal((t.size, length)).astype("f4")
    y, k = run(folder, SOFTMAX, {"x": x, "t": t}, "yk")
    with numpy.errstate(all="ignore"):
        s = (x / t[:, None]).astype("f8")
        p = numpy.exp(s - s.max(axis=1, keepdims=True))
        want = p / p.sum(axis=1, keepdims=True)
        best = (s >= s.max(axis=1, keepdims=True)).sum(axis=1)
    usual = numpy.isfinite(s).all(axis=1)
    if not isClose(y, want, 1e-5):
        return f"shares are {numpy.nanmax(numpy.abs(y - want))} off"
    if not (k[usual] == best[usual]).all():
        return f"{(k[usual] != best[usual]).sum()} rows have another number of places that are their maximum"
    return None


def minmax(folder, length):
    rng = numpy.random.default_rng(length)
    x = rng.standard_normal((40, length)).astype("f4")
    x[3], x[4, 0], x[5] = 7.0, numpy.inf, x[5] * numpy.float32(1e-39)
    x[6, length // 2], x[7] = numpy.nan, x[7] * numpy.float32(1e37)
    [y] = run(folder, MINMAX, {"x": x}, "y")
    with numpy.errstate(all="ignore"):
        low = x.min(axis=1, keepdims=True)
        quotient = (x - low) / (x.max(axis=1, keepdims=True) - low)
        want = numpy.where(numpy.isnan(quotient), quotient, numpy.maximum(quotient, 0))
    at = differs(numpy.abs(y), numpy.abs(want))
    return None if at is None else f"at {at}: {y[at]}, not {want[at]}"


def rounded(folder, length):
    rng = numpy.random.default_rng(length)
    t = numpy.array([0.01, 0.02, 0.5, 3.0, 0.0, 1e-40, numpy.inf, numpy.nan, -0.013, 0.0078125], "f4")
    x = rng.standard_normal((t.size, length)).astype("f4")
    x[:, ::7] = (numpy.round(x[:, ::7] * 20) + numpy.float32(0.5)) * t[:, None]  # about the middle of two bytes
    [y] = run(folder, BYTES, {"x": x, "t": t}, "y")
    with numpy.errstate(all="ignore"):
        quotient = numpy.rint(x / t[:, None])
        want = numpy.clip(numpy.where(numpy.isnan(quotient), 0, quotient), -128, 127).astype("i1")
    return None if (y == want).all() else f"{(y != want).sum()} bytes differ"


def scores(folder, length):
    rng = numpy.random.default_rng(length)
    q, k, v = (rng.standard_normal(shape).astype("f4") for shape in ((5, 6, 8), (5, length, 8), (5, length, 20)))
    t = numpy.array([2.8, 0.3, 1e20, 0.0, numpy.nan], "f4")
    [o] = run(folder, SCORES, {"q": q, "k": k, "v": v, "t": t}, "o")
    with numpy.errstate(all="ignore"):
        s = numpy.einsum("hmd,hnd->hmn", q.astype("f8"), k) / t[:, None, None]
        p = numpy.exp(s - s.max(axis=2, keepdims=True))
        want = p @ v / p.sum(axis=2, keepdims=True)
    return None if isClose(o, want, 3e-5) else f"{numpy.nanmax(numpy.abs(o - want))} off"


def main():
    failed = 0
    checks = {"quotients": lambda *a: quotients(a[0], "f4", a[1]), "quotients-f64": lambda *a: quotients(a[0], "f8", a[1]),
              "softmax": softmax, "minmax": minmax, "rounded": rounded, "scores": scores}
    with tempfile.TemporaryDirectory() as folder:
        for cpu in ["avx512", "avx2", "baseline"]:
            if cpu != "baseline" and cpu not in FOUND:
                continue
            os.environ["REFOLD_CPU"] = cpu
            for name, check in checks.items():
                for length in LENGTHS:
                    problem = check(pathlib.Path(folder), length)
                    if problem:
                        failed += 1
                        print(f"FAILED {name} of {length} on {cpu}: {problem}")
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
