#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small programs on arrays whose answer numpy gives: what random inputs of one shape do not reach."""

import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

REFOLD = os.environ.get("REFOLD", str(pathlib.Path(__file__).resolve().parent.parent.parent / "build/dev/bin/refold"))
RANDOM = np.random.default_rng(7)


def normal(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def ones(*shape):
    return np.ones(shape, np.float32)


def with_nan(x, *place):
    x[place] = np.nan
    return x


def softmax(s):
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def double(**arrays):
    return {name: a.astype(np.float64) if a.dtype == np.float32 else a for name, a in arrays.items()}


# Name, program, inputs, expected outputs by name (from the inputs in double precision).
CASES = [
    ("more-indices-than-a-set-holds",
     "f(q[m,d], " + ", ".join(f"k{i}[n,d]" for i in range(66)) + ") -> y\n  s = "
     + " + ".join(f"sum(d: q*k{i})" for i in range(66)) + "\n  y[m] = max(n: s)\n",
     {"q": normal(3, 4), **{f"k{i}": normal(5, 4) for i in range(66)}},
     lambda q, **k: {"y": sum(q @ one.T for one in k.values()).max(axis=1)}),
    ("extent-of-a-table-that-is-longer",
     """f(q[m,d], k[n,d], v[n,e], bias[p,r]) -> o
  s = bias[m,n] + sum(d: q*k)
  t = max(n: s)
  p1 = exp(s - t)
  o[m,e] = sum(n: p1*v) / sum(n: p1)
""",
     {"q": normal(5, 8), "k": normal(20, 8), "v": normal(20, 6), "bias": normal(64, 64)},
     lambda q, k, v, bias: {"o": softmax(q @ k.T + bias[:5, :20]) @ v}),
    ("front-of-a-vector",
     "f(x[m,n], e[k]) -> y\n  y[m] = sum(n: where(e[n] > 0, x, 0))\n",
     {"x": ones(3, 10), "e": ones(50)}, lambda x, e: {"y": x.sum(axis=1)}),
    ("front-of-a-matrix",
     "f(b[m,k], a[n]) -> y\n  t = max(n: b[m,n])\n  z = sum(n: exp(b[m,n] - t))\n  y[m] = z + a[0]\n",
     {"b": ones(3, 20), "a": ones(10)}, lambda b, a: {"y": np.exp(b[:, :10] - 1).sum(axis=1) + 1}),
    *[("factor-of-the-position-%d" % n,
       "f(x[m,n]) -> y\n  p = x * exp(-n / 10)\n  y = p / sum(n: p)\n", {"x": 1 + normal(3, n) ** 2},
       lambda x: {"y": (p := x * np.exp(-np.arange(x.shape[1]) / 10)) / p.sum(axis=1, keepdims=True)})
      for n in (1, 9, 600, 3000)],
    ("nan-that-another-pass-leaves-out",
     "f(x[m,n]) -> y\n  t = max(n: x)\n  z = sum(n: where(n <= m, 1, 0) * x * sin(x * t))\n  y[m] = z + t\n",
     {"x": with_nan(normal(2, 3000), 0, 2000)}, lambda x: {"y": np.array([np.nan, sum(
         x[1, n] * np.sin(x[1, n] * x[1].max()) for n in range(2)) + x[1].max()])}),
    ("result-without-an-empty-row-axis",
     "f(x[m,n], w[n]) -> y, t\n  t = max(n: w)\n  u = max(n: x)\n  y[m] = sum(n: exp(x - u) * exp(w - t))\n",
     {"x": ones(0, 7), "w": normal(7)}, lambda x, w: {"y": np.zeros(0), "t": w.max()}),
    ("sums-of-a-row-value",
     "f(x[m,n], u[m]) -> y\n  t = max(n: x)\n  z = sum(n: u)\n  y[m] = z + t\n",
     {"x": normal(2, 100000), "u": normal(2)}, lambda x, u: {"y": x.shape[1] * u + x.max(axis=1)}),
    ("product-of-positions",
     "f(x[n]) -> y\n  y[n] = x * f32((n * 10000000) % 7)\n",
     {"x": ones(1000)}, lambda x: {"y": np.arange(1000) * 10000000 % 7}),
    ("irregular-by-a-label-that-is-ignored",
     """f(x[m,n=3], label[m]: i64) -> l
  t = max(n: x)
  z = sum(n: exp(x - t))
  l = sum(n: where(n == label and label != -1, -(x - t - log(z)), 0))
""",
     {"x": np.array([[-np.inf] * 3, [np.nan, 1, 2], [1, 2, 3]], np.float32), "label": np.array([-1, -1, 2])},
     lambda x, label: {"l": np.array([0, 0, np.log(np.exp(x[2] - 3).sum())])}),
    ("irregular-by-a-sentinel",
     """f(x[m,n], k[m,n]: i32) -> l
  t = max(n: x)
  z = sum(n: exp(x - t))
  l = sum(n: where(k != 31337, x - t - log(z), 0))
""",
     {"x": np.array([[-np.inf] * 3, [np.nan, 1, 2], [np.inf, 0, 0]], np.float32), "k": np.full((3, 3), 31337, np.int32)},
     lambda x, k: {"l": np.zeros(3)}),
    ("irregular-in-f64",
     "f(x[m,n]: f64, w[m,n]: f64) -> y: f64, p: f64\n  s = max(n: abs(x))\n  y = sum(n: x/s*w)\n  p = prod(n: x/s)\n",
     {"x": np.array([[1e300, 2e300] + [2e300] * 300]), "w": np.array([[1e20, 2e20] + [0.0] * 300])},
     lambda x, w: {"y": np.array([2.5e20]), "p": np.array([0.5])}),
    ("irregular-outputs-of-finite-states",
     "f(x[m,n], w[n,e], u[n]) -> o\n  mu = sum(n: x*u)/sum(n: u)\n  o[m,e] = sum(n: (x - mu)^2*w)\n",
     {"x": np.array([[0, 2, 2]], np.float32), "u": ones(3), "w": np.array([[1], [3e38], [2]], np.float32)},
     lambda x, w, u: {"o": ((x - x.mean()) ** 2 @ w)}),
    ("irregular-by-a-weight-of-zero",
     "f(x[m,n], w[n,e], u[n]) -> o\n  mu = sum(n: x*u)/sum(n: u)\n  o[m,e] = sum(n: (x - mu)^2*w)\n",
     {"x": np.array([[-1, 0, 1]], np.float32), "u": np.array([1, -1, 0], np.float32), "w": np.array([[-1], [1], [2]], np.float32)},
     lambda x, w, u: {"o": np.array([[np.nan]])}),
    ("irregular-by-a-scale-that-has-no-reciprocal",
     "f(x[m,n]) -> p\n  s = max(n: abs(x))\n  p = prod(n: x/s)\n",
     {"x": np.full((1, 3), 1e-39, np.float32)}, lambda x: {"p": np.ones(1)}),
]


def run(folder, name, text, inputs, expected, fuse):
    program = folder / "program.fold"
    program.write_text(text, encoding="utf-8")
    command = [REFOLD, "run", program, f"--fuse={fuse}"]
    for key, array in inputs.items():
        np.save(folder / f"{key}.npy", array)
        command.append(f"--input={key}={folder / f'{key}.npy'}")
    for key in expected:
        command.append(f"--output={key}={folder / f'out_{key}.npy'}")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip()
    for key, want in expected.items():
        found = np.load(folder / f"out_{key}.npy")
        if found.shape != np.shape(want) or not np.allclose(found, want, rtol=2e-6, atol=1e-6, equal_nan=True):
            return f"{key}: found {found.ravel()[:4]}, expected {np.ravel(want)[:4]}"
    return None


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, text, inputs, expect in CASES:
            expected = expect(**double(**inputs))
            for fuse in ("auto", "never"):
                problem = run(pathlib.Path(folder), name, text, inputs, expected, fuse)
                if problem:
                    failed += 1
                    print(f"FAILED {name} --fuse={fuse}: {problem}")
    print(f"{2 * len(CASES) - failed} passed, {failed} failed, 0 skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
