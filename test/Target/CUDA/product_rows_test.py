#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What needs no GPU of the CUDA target's rows of products: a product and what is made of its rows, in one kernel.

Emulated in all modes against double (no rows, nothing to sum, one row, ragged rows and sums, more rows than a
block has, growing scores, NaN, -inf), every entry on its own, lists place for place; compiled for sm_80 and
sm_90a without spills or stack; the host's compiler takes the same text with warnings as errors.
"""

import pathlib
import sys
import tempfile

import numpy as np

import checks
from rows_test import check_text, kernels_of, nvrtc, refold

ROUTING = """routing({sides}) -> weight: f32, expert: i32
  s[m,n] = {score}
  t = max(n: s)
  z = sum(n: exp(s - t))
  best[m,r], expert[m,r] = topk(n: s, {k})
  weight = exp(best - t) / z
"""


def routing(n, k, score="sum(d: x * w)", sides="x[m,d], w[n={n},d]"):
    return ROUTING.format(sides=sides.format(n=n), k=k, score=score)


PROGRAMS = {
    "experts64": routing(64, 6), "experts128": routing(128, 8), "experts256": routing(256, 8),
    "across": routing(64, 8, sides="x[m,d], w[d,n={n}]"),
    "rounded": routing(128, 8, score="bf16(sum(d: x * w))"),
    "odd": routing(13, 3), "few": routing(4, 2), "wide": routing(260, 4), "between": routing(100, 1, sides="x[m,d], w[d,n={n}]"),
    "biased": routing(64, 8, score="where(n <= m, sum(d: x * w) * 0.5 + a, -inf)", sides="x[m,d], w[n={n},d], a[n]: f32"),
    "sigmoid": """sigmoid_routing(x[m,d], w[n=64,d]) -> weight: f32, expert: i32
  s[m,n] = sigmoid(sum(d: x * w))
  best[m,r], expert[m,r] = topk(n: s, 8)
  weight = best / (sum(r: best) + 1e-20)
""",
    # A list of one, and a sum over it.
    "best": """best(x[m,d], w[n=40,d]) -> weight: f32, expert: i32
  s[m,n] = sum(d: x * w)
  z = sum(n: exp(s - max(n: s)))
  best[m,r], expert[m,r] = topk(n: s, 1)
  p = exp(best - max(n: s)) / z
  weight = p / (sum(r: p) + 1)
""",
    "batches": """batches(x[b,m,d], w[b,n=32,d]) -> l: f32, i: i32
  s[b,m,n] = sum(d: x * w)
  l = log(sum(n: exp(s - max(n: s)))) + max(n: s)
  i = argmax(n: s)
""",
    "spread": """spread(x[m,d], w[n=48,d]) -> mean: f32, variance: f32
  s[m,n] = sum(d: x * w)
  mean = sum(n: s) / 48
  variance = sum(n: (s - mean) * (s - mean)) / 48
""",
}
NO_ROLES = ["across", "between", "wide"]  # laid out across, or too long
# Sums that blocks share: few rows, many, sums that are no whole vectors.
SHARED = ["m=3,d=4040", "m=70,d=2504", "m=18,d=4099"]
SLICED = "m=21,d=3912"  # of long rows: blocks add up a slice each
SHAPES = ["m=0,d=8", "m=3,d=0", "m=1,d=24", "m=130,d=67", "m=70,d=136", "m=17,d=328"]
WHOLE = "m=130,d=264"


def check_emulated(folder, name, dtype, shape, has_roles):
    more = ",b=2" if name == "batches" else ""
    first = kernels_of(str(folder / name), dtype, "cuda-sm90" if has_roles else "cuda-sm80")[0]["entries"][0]["name"]
    assert ("_productRoles" if has_roles else "_products") in first, first
    chosen = {"REFOLD_CUDA_ENTRY": first.split("_")[-1]} if has_roles else {}  # which few rows do not take by themselves
    # Long sums that grow lie at ties of the type that they are rounded to: one unit in the last place of f32 is one of bf16 then, in any order.
    inputs = ["--inputs", "normal,ninf,nan,offset,const"] if name == "rounded" and shape in SHARED else []
    refold("verify", "--target", "cuda-emulated-sm90" if has_roles else "cuda-emulated", str(folder / f"{name}.fold"), "--dtype", dtype, "--shape", shape + more,
           "--first-seeds", "1", "--seeds", "1", "--threads", "1", *inputs, **chosen)


def check_entry(folder, name, entry):
    refold("verify", "--target", "cuda-emulated", str(folder / f"{name}.fold"), "--dtype", "bf16", "--shape", WHOLE,
           "--first-seeds", "1", "--seeds", "1", "--threads", "1", REFOLD_CUDA_ENTRY=entry)


def bf16(x):
    return (x.astype("f4").view("u4") >> 16).astype("u2").view("V2")


def check_places(folder, name, count, places, target):
    """Sums that are exact, many of them equal, NaN and infinities: the very places of a stable sort."""
    draws = np.random.default_rng(count)
    x = draws.integers(-2, 3, size=(67, 16)).astype("f8")
    w = draws.integers(-1, 2, size=(count, 16)).astype("f8")
    x[5], x[6, 3], x[7, 3] = 0, np.nan, np.inf
    w[3, 1] = -np.inf
    with np.errstate(invalid="ignore"):
        keys = x @ w.T
    first = kernels_of(str(folder / name), "bf16", target)[0]["entries"][0]["name"]
    chosen = {"REFOLD_CUDA_ENTRY": first.split("_")[-1]} if "_productRoles" in first else {}
    name, program = f"{name}_{target}", name
    np.savez(folder / f"{name}.npz", x=bf16(x), w=bf16(w))
    refold("run", "--target", target, str(folder / f"{program}.fold"), "--dtype", "bf16",
           f"--inputs-from={folder}/{name}.npz", f"--outputs-to={folder}/{name}_out.npz", **chosen)
    found = np.load(folder / f"{name}_out.npz")["expert"]
    for t, row in enumerate(keys):
        want = sorted(range(count), key=lambda i: (0, 0.0, i) if np.isnan(row[i]) else (1, -row[i], i))[:places]
        assert found[t].tolist() == want, (name, t, found[t].tolist(), want)


def check_written(folder, name):
    check_text(str(folder / name), "bf16")


def check_compiled(compiler, folder, name, dtype, arch):
    target = "cuda-sm80" if arch == "sm_80" else "cuda-sm90"
    for kernel in kernels_of(str(folder / name), dtype, target):
        _, log = compiler.compile(kernel["text"], arch)
        found = nvrtc.resources(log)
        for entry in kernel["entries"]:
            registers, stack, spilled = found[entry["name"]]
            assert (stack, spilled) == (0, 0) and registers <= 255, (entry["name"], arch, found[entry["name"]])
            assert entry["shared_bytes"] <= (227 if "_productRoles" in entry["name"] else 163) << 10, entry["name"]
        assert "(C75" not in log, (name, [line for line in log.splitlines() if "(C75" in line])


def main():
    only = sys.argv[1:]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name, text in PROGRAMS.items():
            (folder / f"{name}.fold").write_text(text)
        cases = [(check_emulated, folder, name, ["bf16", "f16"][(i + k) % 2], shape, has_roles)
                 for i, name in enumerate(PROGRAMS) for k, shape in enumerate(SHAPES) for has_roles in (False, True)
                 if k in ([4 + i % 2] if has_roles else [i % 3, 3 + i % 3]) and not (has_roles and name in NO_ROLES)]
        cases += [(check_emulated, folder, name, "bf16", shape, has_roles) for shape in SHARED
                  for name, has_roles in [("experts64", True), ("across", False), ("rounded", True), ("batches", False)]]
        cases += [(check_emulated, folder, "experts256", "bf16", SLICED, has_roles) for has_roles in (False, True)]
        cases += [(check_entry, folder, name, e["name"].split("_")[-1]) for name in ("experts64", "across")
                  for e in kernels_of(str(folder / name), "bf16", "cuda-sm80")[0]["entries"]]
        cases += [(check_places, folder, name, count, places, target) for target in ("cuda-emulated", "cuda-emulated-sm90") for name, count, places in
                  [("experts64", 64, 6), ("experts256", 256, 8), ("odd", 13, 3), ("wide", 260, 4)]]
        cases += [(check_written, folder, name) for name in PROGRAMS]
        gates = [(folder, name, "bf16", arch) for name in ("experts64", "experts128", "experts256", "across", "rounded", "odd", "wide",
                                                          "sigmoid") for arch in ("sm_80", "sm_90a")]
        gated, skipped = checks.compiled(check_compiled, gates)
        return checks.run([c for c in cases + gated if not only or any(o in str(c) for o in only)], skipped)


if __name__ == "__main__":
    sys.exit(main())
