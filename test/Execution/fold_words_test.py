#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every word of .fold compiles, and the code agrees with the judge: functions, operators, casts between all
types, reducers of all types over one axis and over two."""

import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

REFOLD = os.environ["REFOLD"]
FUNCTIONS = ["exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "abs", "sign", "floor", "ceil", "round",
             "tanh", "sigmoid", "erf", "sin", "cos", "sinh", "cosh", "relu"]
TYPES = ["f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i64", "i32", "i8", "u8", "bool"]
NUMBERS = [t for t in TYPES if t != "bool"]
# Whole numbers that no argument leaves, whatever its type.
RANGES = {"i64": "uniform(-90,90)", "i32": "uniform(-90,90)", "i8": "uniform(-90,90)", "u8": "uniform(0,250)",
          "bool": "uniform(0,2)", "index": "uniform(0,37)"}
REDUCERS = ["sum", "max", "min", "prod", "mean"]


def programs():
    """(name, text, types of x and y; 'index': subscripts of 37 elements)"""
    for dtype in ("f32", "f64"):
        lines = [f"  o{k} = {name}(abs(x) + 0.5)" for k, name in enumerate(FUNCTIONS)]
        outputs = ", ".join(f"o{k}: {dtype}" for k in range(len(FUNCTIONS)))
        yield f"functions of {dtype}", f"f(x[m,n]: {dtype}) -> {outputs}\n" + "\n".join(lines) + "\n", [dtype]
    yield "operators", ("f(x[m,n], y[m,n]) -> a, b, c, d, e, g, h, i, j, k, l\n"
                        "  a = x + y*2 - x/3\n  b = -x^2 + abs(y)^0.5 + 2^y\n  c = min(x, y) + max(x, 1)\n"
                        "  d = pow(abs(x), y)\n  e = clip(x, -0.5, 0.5)\n  g = where(x < y and not x > 1, x, y)\n"
                        "  h = where(isnan(x) or isinf(y), 0, x)\n  i = x + n*2 + m\n  j = x / len(n) + pi\n"
                        "  k = where(x == y or x != 0, 1, 2)\n  l = where(n <= m, x, -inf)\n"), ["f32", "f32"]
    for dtype in ("i64", "i32", "i8", "u8"):
        yield f"operators of {dtype}", (
            f"f(x[m,n]: {dtype}, y[m,n]: {dtype}) -> a: i64, b: i64, c: i64, d: i64, e: f32, g: i32, h: i64\n"
            "  a = x + y*3 - 1\n  b = x // y\n  c = x % y\n  d = x // 7 + y % 5 + x // -4\n  e = x / (abs(y) + 1)\n"
            "  g = where(x < y or x == 3, 1, 2)\n  h = max(x, y) - min(x, 2) + abs(x)\n"), [dtype, dtype]
    for source in TYPES:
        outputs = ", ".join(f"o{k}: {to}" for k, to in enumerate(TYPES))
        lines = "\n".join(f"  o{k} = {to}(x)" if to != "bool" else f"  o{k} = bool(x)" for k, to in enumerate(TYPES))
        yield f"casts of {source}", f"f(x[m,n]: {source}) -> {outputs}\n{lines}\n", [source]
    for axes, header in (("n", "x[m,n]"), ("m, n", "x[m,n]"), ("m", "x[m,n]")):
        for source in NUMBERS:
            # A product of many whole numbers overflows.
            names = [r for r in REDUCERS if r != "prod" or source in ("f64", "f32")]
            outputs = ", ".join(f"{name}_of" for name in names)
            lines = "\n".join(f"  {name}_of = {name}({axes}: x)" for name in names)
            yield f"reducers of {source} over {axes}", f"f({header.replace(']', ']: ' + source)}) -> {outputs}\n{lines}\n", [source]
        yield f"any and all over {axes}", ("f(x[m,n]: bool) -> a: bool, b: bool\n"
                                           f"  a = any({axes}: x)\n  b = all({axes}: x)\n"), ["bool"]
    for source in ("f32", "f64", "f16", "i32"):
        yield f"argmax of {source}", (f"f(x[m,n]: {source}) -> a: i32, b: i64\n"
                                      "  a = argmax(n: x)\n  b = argmin(m: x)\n"), [source]
    yield "topk", "f(x[m,n]) -> v, i: i32\n  v[m,r], i[m,r] = topk(n: x, 5)\n", ["f32"]
    yield "gathers", ("f(x[m,n], y[m]: i32) -> a, b\n  a = x[m, y]\n  b[m,n] = x[m, n//2] + x[m, (n*3 + y) % len(n)]\n"), ["f32", "index"]


def run(path, types, out, *flags, seed=1):
    inputs = [f"--input={name}={RANGES[dtype]}" for name, dtype in zip("xy", types) if dtype in RANGES]
    done = subprocess.run([REFOLD, "run", path, "--shape=m=5,n=37", f"--seed={seed}", *inputs, f"--outputs-to={out}", *flags],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return None if done.returncode == 0 else f"exit code {done.returncode}: {done.stderr.strip()}"


def check(folder, number, program):
    """What is wrong with a program, or None."""
    name, text, types = program
    path = pathlib.Path(folder) / f"{number}.fold"
    path.write_text(text)
    code, judge = path.with_suffix(".code.npz"), path.with_suffix(".judge.npz")
    wrong = run(path, types, code) or run(path, types, judge, "--reference") or compare(code, judge)
    # A comparison that sees no difference would pass for everything.
    if not wrong and number == 0 and not (run(path, types, judge, "--reference", seed=2) or compare(code, judge)):
        wrong = "other inputs gave the same results"
    return wrong and f"{name}: {wrong}"


def compare(code, judge):
    import numpy as np

    with np.load(code) as found, np.load(judge) as wanted:
        for name in wanted:
            a, b = found[name], wanted[name]
            if a.dtype.kind == "V":  # bf16 and f8: equal bits, or neighbours
                a, b = (v.view(np.uint16 if v.itemsize == 2 else np.uint8).astype(np.int64) for v in (a, b))
                if abs(a - b).max(initial=0) > 1:
                    return f"'{name}' differs"
                continue
            if a.dtype.kind in "iub":
                if not np.array_equal(a, b):
                    at = np.argwhere(np.atleast_1d(a != b))[0]
                    return f"'{name}' at {at}: found {np.atleast_1d(a)[tuple(at)]}, expected {np.atleast_1d(b)[tuple(at)]}"
                continue
            bound = {2: 2e-3, 4: 1e-5, 8: 1e-12}[a.itemsize]
            a, b = np.atleast_1d(a).astype(np.float64), np.atleast_1d(b).astype(np.float64)
            finite = np.isfinite(b)
            scale = np.abs(b[finite]).max(initial=0.0)
            worst = np.abs(a[finite] - b[finite]).max(initial=0.0)
            if not (np.array_equal(np.isnan(a), np.isnan(b)) and np.array_equal(a[np.isinf(b)], b[np.isinf(b)])
                    and worst <= bound * scale):
                return f"'{name}' differs by {worst} of {scale}"
    return None


def check_definition(folder, dtype):
    """The judge reads the program as the code does: what a reducer begins with is looked at from outside."""
    import numpy as np

    path = pathlib.Path(folder) / f"definition_{dtype}.fold"
    places = ", first: i32, last: i32\n  first = argmin(n: x)\n  last = argmax(n: x)\n" if dtype != "i64" else "\n"
    path.write_text(f"f(x[m,n]: {dtype}) -> lo, hi, total{places}  lo = min(n: x)\n  hi = max(n: x)\n  total = sum(n: x)\n")
    kind = {"u8": "uint8", "i8": "int8", "i32": "int32", "i64": "int64"}.get(dtype, "float32")
    x = np.random.default_rng(3).integers(1, 100, (5, 37)).astype(kind)
    if kind != "uint8":
        x[1] *= -1
    np.savez(path.with_suffix(".in.npz"), x=x)
    for flags in ([], ["--reference"]):
        out = path.with_suffix(".out.npz")
        done = subprocess.run([REFOLD, "run", path, f"--inputs-from={path.with_suffix('.in.npz')}", f"--outputs-to={out}", *flags],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            return f"definition of {dtype}: {done.stderr.strip()}"
        wide = x.astype(np.float64)
        wanted = {"lo": wide.min(1), "hi": wide.max(1), "total": wide.sum(1), "first": wide.argmin(1), "last": wide.argmax(1)}
        with np.load(out) as found:
            for name, value in wanted.items():
                if name in found and not np.array_equal(found[name].astype(np.float64), value):
                    return f"definition of {dtype}: '{name}' is {found[name]}, expected {value}"
    return None


def main():
    try:
        import numpy  # noqa: F401
    except ImportError:
        print("the Python package 'numpy' is not installed")
        return 77
    listed = list(programs())
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [w for w in pool.map(lambda p: check(folder, *p), enumerate(listed)) if w]
        types = ["i64", "i32", "i8", "u8", "f32"]
        wrong += [w for w in pool.map(lambda dtype: check_definition(folder, dtype), types) if w]
        listed += types
    print("\n".join(wrong))
    print(f"{len(listed) - len(wrong)} passed, {len(wrong)} failed, 0 skipped")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
