#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""However a program is written, its cascades are the same: divided or multiplied by the inverse, in any
storage type, with any mask, transposed, static or dynamic, and read back from its own MLIR."""

import concurrent.futures
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REFOLD = os.environ["REFOLD"]

SCALES = {"divided": "sum(d: q*k) / 3", "by the inverse": "sum(d: q*k) * (1/3)", "by a number": "sum(d: q*k) * 0.33333",
          "on q": "sum(d: (q/3)*k)", "on both": "sum(d: (q*0.57735) * (k*0.57735))",
          "inside": "sum(d: q*k/3)", "inside by a number": "sum(d: 0.33333*(q*k))", "negated": "-sum(d: -(q*k)/3)", "from the left": "(1/3) * sum(d: k*q)"}
MASKS = {"none": "", "causal": "  s = where(n <= m, s, -inf)\n", "lowest": "  s = where(n <= m, s, -3.4e38)\n",
         "added": "  s = s + bias\n", "flags": "  s = where(keep, s, -inf)\n"}
LAYOUTS = {"rows": ("q[b,h,m,d]", "k[b,h,n,d]", "v[b,h,n,e]", "o[b,h,m,e]"),
           "heads inside": ("q[b,m,h,d]", "k[b,n,h,d]", "v[b,n,h,e]", "o[b,m,h,e]"),
           "transposed": ("q[b,h,d,m]", "k[b,h,d,n]", "v[b,h,e,n]", "o[b,h,e,m]")}
EXTENTS = {"dynamic": {}, "static": {"b": 2, "h": 3, "m": 40, "n": 50, "d": 16, "e": 8}}
DTYPES = ["f32", "f16", "bf16", "f64"]


def attention(scale, mask, layout, extents):
    arguments = ", ".join(layout[:3])
    for axis, extent in extents.items():
        arguments = arguments.replace(f"{axis},", f"{axis}={extent},").replace(f"{axis}]", f"{axis}={extent}]")
    if "bias" in mask:
        arguments += ", bias[m,n]"
    if "keep" in mask:
        arguments += ", keep[b,n]: bool"
    return (f"attention({arguments}) -> o\n  s = {scale}\n{mask}  t = max(n: s)\n  p = exp(s - t)\n"
            f"  z = sum(n: p)\n  {layout[3]} = sum(n: p*v) / z\n")


NORMS = {
    "by mean": "norm(x[m,n]) -> y\n  a = mean(n: x)\n  c = mean(n: (x - a)^2)\n  y = (x - a) * rsqrt(c + 1e-5)\n",
    "by sums": "norm(x[m,n]) -> y\n  a = sum(n: x) / len(n)\n  c = sum(n: (x - a)*(x - a)) / len(n)\n"
               "  y = (x - a) / sqrt(c + 1e-5)\n",
    "by the inverse": "norm(x[m,n]) -> y\n  w = 1 / len(n)\n  a = sum(n: x) * w\n  u = x - a\n  c = sum(n: u*u) * w\n"
                      "  y = u * (1 / sqrt(c + 1e-5))\n",
    "transposed": "norm(x[n,m]) -> y\n  a = mean(n: x)\n  c = mean(n: (x - a)^2)\n  y = (x - a) * rsqrt(c + 1e-5)\n",
    "static": "norm(x[m=5,n=300]) -> y\n  a = mean(n: x)\n  c = mean(n: (x - a)^2)\n  y = (x - a) * rsqrt(c + 1e-5)\n",
}


def variants():
    """(family, what is special, text, flags): each differs from the first of its family in up to two respects."""
    plain = ("divided", "none", "rows", "dynamic", "f32")
    choices = (SCALES, MASKS, LAYOUTS, EXTENTS, DTYPES)
    for picked in itertools.product(*choices):
        if sum(a != b for a, b in zip(picked, plain)) > 2:
            continue
        scale, mask, layout, extents, dtype = picked
        text = attention(SCALES[scale], MASKS[mask], LAYOUTS[layout], EXTENTS[extents])
        yield "attention", ", ".join(picked), text, [f"--dtype={dtype}"]
    for name, text in NORMS.items():
        for dtype in DTYPES if name == "by mean" else DTYPES[:2]:
            yield "norm", f"{name}, {dtype}", text, [f"--dtype={dtype}"]


def cascades(path, flags):
    """What is the same however the program is written, or the error."""
    done = subprocess.run([REFOLD, "explain", path, "--format=json", *flags], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return f"exit code {done.returncode}: {done.stderr.strip()}"
    return [(len(c["axes"]), sorted(stage["op"] for stage in c["stages"]), c["verdict"], c["passes"],
             c["unfused_passes"], c["state_size"]) for c in json.loads(done.stdout)["cascades"]]


def as_written(folder, number, variant):
    path = pathlib.Path(folder) / f"{number}.fold"
    path.write_text(variant[2])
    return cascades(path, variant[3])


def read_back(folder, example):
    """The cascades of an example, and those of its program as MLIR."""
    path = pathlib.Path(folder) / f"{example.stem}.mlir"
    subprocess.run([REFOLD, "compile", example, "--emit=program", f"--output={path}"], check=True, cwd=ROOT)
    return cascades(example, []), cascades(path, [])


def main():
    failures, count = [], 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        listed = list(variants())
        expected = {}
        for variant, found in zip(listed, pool.map(lambda v: as_written(folder, *v), enumerate(listed))):
            count += 1
            wanted = expected.setdefault(variant[0], found)
            if isinstance(found, str) or found != wanted:
                failures.append(f"{variant[0]}, {variant[1]}: found {found}, expected {wanted}\n{variant[2]}")
        # A check that sees no difference would pass for everything.
        other = as_written(folder, "other", ("", "", attention("sum(d: q*k)", "", LAYOUTS["rows"], {}).replace(
            "/ z", "/ (z + max(n: s*s))"), []))
        if other == expected["attention"]:
            failures.append("another program: found the same cascades, expected others")
        examples = sorted((ROOT / "examples").glob("*.fold"))
        for example, (one, two) in zip(examples, pool.map(lambda e: read_back(folder, e), examples)):
            count += 1
            if isinstance(one, str) or one != two:
                failures.append(f"{example.name} read back: found {two}, expected {one}")
    print("\n".join(failures))
    print(f"{count - len(failures)} passed, {len(failures)} failed, 0 skipped")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
