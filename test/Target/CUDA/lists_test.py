#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lists of the best in rows of the CUDA target: the very elements that the definition selects, emulated in all modes.

Keys are few small numbers, so that many are equal, zeros of both signs among them, in rows of -inf, NaN and
+inf; rows are empty, of one element, shorter than the list, ragged, and longer than registers hold. Every
entry once; compiled for sm_80 and sm_90a without spills or stack.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import numpy

import checks
from checks import ROOT, nvrtc
from conformance_test import f8_codes, f8_values
from rows_test import check_compiled, kernels_of, verify

REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))
ROWS = 19
F8 = {"f8e4m3": f8_values(3, 7, False), "f8e5m2": f8_values(2, 15, True)}
BEST = "best(x[m,n]: {dtype}) -> v: f32, i: i32\n  v[m,r], i[m,r] = topk(n: x, {k})\n"
LEAST = BEST.replace("x, {k}", "-x, {k}").replace("best(", "least(")
# Both ends, sums over places, what is written as one number; keys that are not what is read.
ENDS = ("ends(x[m,n]: {dtype}) -> v: f32, i: i32, low: i32, high: i32, total: f32\n  v[m,r], i[m,r] = topk(n: -2.0 * x, {k})\n"
        "  low = argmin(n: x)\n  high = argmax(n: x)\n  total = sum(r: where(i >= 0, 1.0, 0.0))\n")
EMULATED = [("f32", 1, [2, 1000]), ("f32", 3, [0, 129]), ("bf16", 8, [1, 64, 512]), ("f16", 6, [7, 5000]), ("bf16", 17, [8, 300]),
            ("f32", 32, [20, 1000]), ("f8e4m3", 8, [3, 129])]
# Softmax over what was selected, several passes, rows that need them: `verify` compares keys and places with double.
VERIFIED = [("test/Catalogue/catalogue_42_routing_not_renormalised", "f32"), ("test/Catalogue/best_renormalised", "bf16"),
            ("test/Catalogue/catalogue_67_trimmed_mean", "f32"), ("test/Catalogue/best_below_and_above", "f32"),
            ("test/Catalogue/order_sum_beyond_the_maximum", "f32"), ("test/Catalogue/order_sides_of_the_minimum", "f32"),
            ("test/Catalogue/theory_argmax_of_probabilities", "f16"), ("test/Target/CUDA/Inputs/router", "bf16"),
            ("test/Target/CUDA/Inputs/f8_best", "f32")]
COMPILED = [("test/Target/CUDA/Inputs/router", "bf16"), ("test/Target/CUDA/Inputs/router", "f32"),
            ("test/Catalogue/catalogue_42_routing_not_renormalised", "f32"), ("test/Catalogue/best_below_and_above", "f16")]
EACH_ENTRY = [("bf16", 8), ("f32", 3), ("f16", 17)]


def ordered(keys, k):
    """Positions of the k largest: NaN first, of equal keys the earlier; -1 where there are fewer."""
    def rank(i):
        return (0, 0.0, i) if numpy.isnan(keys[i]) else (1, -keys[i], i)
    found = sorted(range(len(keys)), key=rank)[:k]
    return found + [-1] * (k - len(found))


def draw(n, seed):
    draws = numpy.random.default_rng(seed)
    x = draws.integers(-6, 7, size=(ROWS, n)) / 4.0
    x[x == 0.25] = -0.0
    x[0], x[1], x[2], x[3] = -numpy.inf, 0.25, numpy.nan, numpy.inf
    x[4:8][draws.random((4, n)) < 0.5] = -numpy.inf
    x[8:10][draws.random((2, n)) < 0.2] = numpy.nan
    x[10:12][draws.random((2, n)) < 0.2] = numpy.inf
    x[12] = numpy.arange(n) * 0.125  # every element enters
    x[13] = -numpy.arange(n) * 0.125  # none does after the first
    x[14:] = draws.standard_normal((ROWS - 14, n))
    return x


def run(folder, text, x, **environment):
    (folder / "p.fold").write_text(text)
    numpy.savez(folder / "in.npz", x=x)
    done = subprocess.run([REFOLD, "run", "--target", "cuda-emulated", folder / "p.fold", f"--inputs-from={folder}/in.npz",
                           f"--outputs-to={folder}/out.npz"], capture_output=True, text=True, timeout=600,
                          env=dict(os.environ, **environment))
    assert done.returncode == 0, text + done.stderr
    return dict(numpy.load(folder / "out.npz"))


def hold(found, keys, k, what):
    for t in range(ROWS):
        best = ordered(keys[t], k)
        want = [keys[t][i] if i >= 0 else -numpy.inf for i in best]
        assert found["i"][t].tolist() == best, (what, t, found["i"][t].tolist(), best)
        assert numpy.array_equal(found["v"][t].astype("f8"), numpy.array(want), equal_nan=True), (what, t, found["v"][t], want)


def codes(x, dtype):
    values = F8[dtype]
    return f8_codes(x, values, not numpy.isinf(values).any()).astype("u1")


def stored(x, dtype):
    if dtype in F8:
        return codes(x, dtype).view("V1")
    if dtype == "bf16":
        return (x.astype("f4").view("u4") >> 16).astype("u2").view("V2")
    return x.astype({"f32": "f4", "f16": "f2"}[dtype])


def rounded(x, dtype):
    """What arrays of the type hold of it."""
    if dtype in F8:
        values = F8[dtype]
        return numpy.concatenate([values, -values])[codes(x, dtype)]
    if dtype == "bf16":
        bits = x.astype("f4").view("u4")
        return ((bits >> 16) << 16).view("f4").astype("f8")
    return stored(x, dtype).astype("f8")


def check_best(dtype, k, lengths, program=BEST, **environment):
    with tempfile.TemporaryDirectory() as name:
        for n in lengths:
            x = rounded(draw(n, n + k), dtype)
            found = run(pathlib.Path(name), program.format(dtype=dtype, k=k), stored(x, dtype), **environment)
            hold(found, x if program is BEST else -x, k, (dtype, k, n, environment))


def check_ends(dtype, k, lengths, **environment):
    with tempfile.TemporaryDirectory() as name:
        for n in lengths:
            x = rounded(draw(n, n), dtype)
            found = run(pathlib.Path(name), ENDS.format(dtype=dtype, k=k), stored(x, dtype), **environment)
            hold(found, -2.0 * x, k, (dtype, k, n))
            for t in range(ROWS):
                numbers = [i for i in range(n) if not numpy.isnan(x[t][i])]
                low = min(numbers, key=lambda i: (x[t][i], i)) if numbers else 0 if n else -1
                assert found["low"][t] == low, (dtype, n, t, found["low"][t], low)
                assert found["high"][t] == ordered(x[t], 1)[0], (dtype, n, t)
                assert found["total"][t] == min(n, k), (dtype, n, t)


def check_verified(program, dtype):
    verify(program, dtype, "0,1,2,17,300", "33")


def kernels_with(dtype, k, program):
    with tempfile.TemporaryDirectory() as name:
        (pathlib.Path(name) / "best.fold").write_text(program.format(dtype=dtype, k=k))
        return kernels_of(f"{name}/best", dtype)


def entries_of(dtype, k):
    return kernels_with(dtype, k, BEST)[0]["entries"]


def check_entry(dtype, k, entry):
    chunk = entry["threads"] * entry["vectors"] * entry["width"]
    length = entry["longest"] if entry["resident"] else 2 * chunk + entry["width"]
    lengths = [length, max(length // 2 // entry["width"], 1) * entry["width"], entry["width"]]
    asked = dict(REFOLD_CUDA_ENTRY=entry["name"].split("_")[-1])
    check_best(dtype, k, lengths, **asked)
    if "lanes" in asked["REFOLD_CUDA_ENTRY"]:
        check_best(dtype, k, [0, lengths[1]], LEAST, **asked)
        # By keys of 32 bits, of which longer lists have no lanes, and none is chosen by parts of vectors.
        named = [{e["name"].split("_")[-1] for e in kernel["entries"]} for kernel in kernels_with(dtype, min(k, 8), ENDS)]
        if all(asked["REFOLD_CUDA_ENTRY"] in names for names in named):
            check_ends(dtype, min(k, 8), lengths[1:2], **asked)


def main():
    only = sys.argv[1:]
    cases = [(check_best, *case) for case in EMULATED]
    cases += [(check_ends, dtype, 5, lengths) for dtype, lengths in (("f32", [0, 33]), ("f16", [1, 64]), ("bf16", [4, 700]))]
    cases += [(check_verified, *case) for case in VERIFIED]
    for dtype, k in EACH_ENTRY:
        cases += [(check_entry, dtype, k, entry) for entry in entries_of(dtype, k)]
    gates = [(program, dtype, arch) for program, dtype in COMPILED for arch in ("sm_80", "sm_90a")]
    gated, skipped = checks.compiled(check_compiled, gates)
    return checks.run([c for c in cases + gated if not only or any(o in str(c) for o in only)], skipped)


if __name__ == "__main__":
    sys.exit(main())
