#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What needs no GPU of the CUDA target's products of floats of 8 bits, with what is made of each of them.

Emulated in all modes against double, each way to sum by its own bound (nothing to compute, nothing to sum, one
row, ragged, more rectangles than blocks, NaN, -inf, offsets, growing rows), every entry on its own; compiled for
sm_80 and sm_90a without spills or stack; the host's compiler takes the same text with warnings as errors.
"""

import json
import pathlib
import sys
import tempfile

import numpy as np

import checks
from rows_test import check_text, nvrtc, refold

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
PROGRAMS = {
    "quantised": (ROOT / "examples/fp8_quantised_product.fold").read_text(),
    "plain": "plain(q[m,k]: f8e4m3, w[n,k]: f8e4m3) -> y: f32\n  y[m,n] = sum(k: q*w)\n",
    "mixed": """mixed(q[m,k]: f8e5m2, w[n,k]: f8e4m3, b[n], r[m,n]) -> y
  y[m,n] = max(sum(k: q*w) * 0.25 + b, 0) + r
""",
    "across": "across(q[m,k]: f8e4m3, w[k,n]: f8e5m2, s[m]) -> y\n  y[m,n] = sum(k: q*w) * s\n",
    "batches": "batches(q[b,m,k]: f8e5m2, w[n,k]: f8e5m2, t[n]) -> y\n  y[b,m,n] = sum(k: q*w) * t\n",
}
SHAPES = ["m=0,n=8,k=16", "m=3,n=16,k=0", "m=1,n=24,k=32", "m=67,n=33,k=45", "m=130,n=136,k=272"]
SUMS = {"balanced": "128x256", "fastest": "128x256", "most-accurate": "Units"}
#: Of so many products the units may make the whole sum.
SHORT = "short(q[m,k=144]: f8e4m3, w[n,k=144]: f8e4m3) -> y: f32\n  y[m,n] = sum(k: q*w)\n"
#: What would make more of an error of the sums, or has none of the kernels: sums of f32.
OTHERS = {
    "softmax": """softmax(q[m,k]: f8e4m3, w[n,k]: f8e4m3) -> y: f32
  l[m,n] = sum(k: q*w)
  y[m,n] = exp(l - max(n: l)) / sum(n: exp(l - max(n: l)))
""",
    "centred": "centred(q[m,k]: f8e4m3, w[n,k]: f8e4m3) -> y: f32\n  l[m,n] = sum(k: q*w)\n  y[m,n] = l - mean(n: l)\n",
    "power": "power(q[m,k]: f8e4m3, w[n,k]: f8e4m3) -> y: f32\n  y[m,n] = exp(sum(k: q*w) / 64)\n",
}
BATCH_OF_WEIGHTS = """weights(x[b,m,k], w[b,n,k]: f8e4m3, t[n]) -> y
  s = max(max(k: abs(x)), 1e-12) / 448
  q = f8e4m3(x / s)
  y[b,m,n] = sum(k: q*w) * s * t
"""


def product_of(path, target, stability):
    text = refold("compile", "--target", target, "--emit", "cuda", "--format", "json", "--dtype", "bf16", "--stability", stability, f"{path}.fold")
    return [k for k in json.loads(text)["kernels"] if "_f8Units" in k["entries"][-1]["name"]][0]


def check_emulated(folder, name, dtype, shape, target, stability):
    more = ",b=2" if name == "batches" else ""
    refold("verify", "--target", target, str(folder / f"{name}.fold"), "--dtype", dtype, "--shape", shape + more, "--stability", stability,
           "--first-seeds", "1", "--seeds", "1", "--threads", "1")


def check_entries(folder, name, stability):
    """Which of them is taken first, and each on its own."""
    path = folder / name
    kernel = product_of(path, "cuda-sm90", stability)
    first = kernel["entries"][0]["name"]
    assert SUMS[stability] in first and ("_f8Roles" in first) == (stability != "most-accurate"), first
    for entry in kernel["entries"]:
        refold("verify", "--target", "cuda-emulated-sm90", f"{path}.fold", "--dtype", "bf16", "--shape", "m=140,n=136,k=144", "--stability", stability,
               "--inputs", "normal", "--first-seeds", "1", "--seeds", "1", "--threads", "1",
               REFOLD_CUDA_ENTRY=kernel["name"] + "_" + entry["name"].split("_")[-1])


def check_quantiser(folder, entry, depth):
    """Few rows whose only state is an extreme have two vectors a thread: one that is not whole, and a row of whole ones."""
    for k in (depth - 1016, depth):
        refold("verify", "--target", "cuda-emulated-sm90", str(folder / "quantised.fold"), "--dtype", "bf16", "--shape", f"m=3,n=8,k={k}",
               "--first-seeds", "1", "--seeds", "1", "--threads", "1", "--splits", "0", REFOLD_CUDA_ENTRY=f"k0_q_{entry}")


def check_rows(folder, target):
    """Rows of zeros, of one NaN, of infinities, far from 0; what is written is what the definition says."""
    random = np.random.default_rng(4)
    x = random.standard_normal((9, 48)).astype("f4")
    x[1], x[2, 3], x[3, 5], x[4] = 0, np.nan, np.inf, x[4] + 1e4
    x[5] *= 1e-30
    w = random.choice(np.arange(1, 120, dtype="u1"), (16, 48))
    t = np.ones(16, "f4")
    name = f"rows_{target}"
    np.savez(folder / f"{name}.npz", x=x, w=w.view("V1"), t=t)
    refold("run", "--target", target, str(folder / "quantised.fold"), "--dtype", "f32", f"--inputs-from={folder}/{name}.npz",
           f"--outputs-to={folder}/{name}_out.npz")
    y = np.load(folder / f"{name}_out.npz")["y"]
    refold("run", str(folder / "quantised.fold"), "--dtype", "f32", f"--inputs-from={folder}/{name}.npz", f"--outputs-to={folder}/{name}_cpu.npz")
    cpu = np.load(folder / f"{name}_cpu.npz")["y"]
    assert (y[1] == 0).all() and np.isnan(y[2]).all() and np.isnan(y[3]).all() and np.isfinite(y[4:]).all(), y[:6, :4]
    same = np.isnan(y) == np.isnan(cpu)
    error = np.abs(y - cpu) / np.maximum(np.nan_to_num(np.abs(cpu)).max(1, keepdims=True), 1e-30)
    assert same.all() and not (error > 2e-3).any(), error


def check_short(folder):
    """Short sums are whole sums of the units where that is asked for, within their bound."""
    path = folder / "short"
    for stability, are_parts in (("fastest", "false"), ("balanced", "true")):
        assert f"F8Roles<256, 4, {are_parts}>" in product_of(path, "cuda-sm90", stability)["text"], stability
    check_one(path, "m=67,n=33", "normal", "fastest")
    check_one(path, "m=3,n=16", "uniform(0,1)", "fastest")


def check_one(path, shape, inputs, stability):
    refold("verify", "--target", "cuda-emulated-sm90", f"{path}.fold", "--dtype", "f32", "--shape", shape, "--stability", stability, "--inputs", inputs,
           "--first-seeds", "1", "--seeds", "1", "--threads", "1", "--splits", "0")


def check_other(folder, name):
    assert "_f8Roles1" not in refold("compile", "--target", "cuda-sm90", "--emit", "cuda", str(folder / f"{name}.fold"))
    check_one(folder / name, "m=3,n=16,k=512", "uniform(0,1)", "balanced")


def check_weights(folder):
    """Another matrix for each batch has a kernel, if a slower one."""
    text = refold("compile", "--target", "cuda-sm90", "--emit", "cuda", "--dtype", "bf16", str(folder / "weights.fold"))
    assert "_f8" not in text
    check_one(folder / "weights", "b=2,m=3,n=5,k=33", "normal", "balanced")


def check_written(folder, name):
    check_text(str(folder / name), "bf16")


def check_compiled(compiler, folder, name, stability, arch):
    target = "cuda-sm80" if arch == "sm_80" else "cuda-sm90"
    kernel = product_of(folder / name, target, stability)
    _, log = compiler.compile(kernel["text"], arch)
    found = nvrtc.resources(log)
    for entry in kernel["entries"]:
        registers, stack, spilled = found[entry["name"]]
        assert (stack, spilled) == (0, 0) and registers <= 255, (entry["name"], arch, found[entry["name"]])
        assert entry["shared_bytes"] <= (227 if "Roles" in entry["name"] else 163) << 10, entry["name"]
    assert "(C75" not in log, (name, [line for line in log.splitlines() if "(C75" in line])


def main():
    only = sys.argv[1:]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name, text in {**PROGRAMS, **OTHERS, "short": SHORT, "weights": BATCH_OF_WEIGHTS}.items():
            (folder / f"{name}.fold").write_text(text)
        targets, dtypes, sums = ["cuda-emulated-sm90", "cuda-emulated"], ["bf16", "f32", "f16"], [*SUMS]
        cases = [(check_emulated, folder, name, dtypes[(i + k) % 3], shape, targets[k % 2 if k < 4 else 0], sums[(i + k) % 3])
                 for i, name in enumerate(PROGRAMS) for k, shape in enumerate(SHAPES) if k in (i % 2, 2 + i % 2, 4)]
        cases += [(check_entries, folder, "quantised", stability) for stability in SUMS]
        cases += [(check_quantiser, folder, entry, depth) for entry, depth in (("rows128x2x8", 2048), ("rows128x4x8", 4096), ("rows256x2x8", 4096))]
        cases += [(check_rows, folder, target) for target in targets]
        # Long sums of one sign are where the units lose most.
        cases += [(check_one, folder / "plain", "m=3,n=16,k=2048", "uniform(0,1)", "fastest"), (check_short, folder), (check_weights, folder)]
        cases += [(check_other, folder, name) for name in OTHERS]
        cases += [(check_written, folder, name) for name in PROGRAMS]
        gates = [(folder, name, stability, arch) for name in PROGRAMS for stability, arch in
                 (("balanced", "sm_90a"), ("fastest", "sm_90a"), ("balanced", "sm_80"))]
        gated, skipped = checks.compiled(check_compiled, gates)
        return checks.run([c for c in cases + gated if not only or any(o in str(c) for o in only)], skipped)


if __name__ == "__main__":
    sys.exit(main())
