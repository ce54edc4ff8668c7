#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What needs no GPU of the CUDA target's products outside cascades.

Emulated in all modes against double (empty, one element, ragged, whole vectors, few rows and many, transposed
and batched, NaN, -inf), every entry on its own; compiled for sm_80 and sm_90a without spills or stack; the host's
compiler takes the same text with warnings as errors.
"""

import os
import pathlib
import re
import sys
import tempfile

import checks
from rows_test import check_text, kernels_of, nvrtc, refold

PROGRAMS = {
    "plain": "plain(x[m,k], w[k,n]) -> y\n  y = sum(k: x * w)\n",
    "transposed": "transposed(x[b,m,k], w[n,k]) -> y\n  y = sum(k: x * w)\n",
    "batched": "batched(x[b,c,m,k], w[b,c,k,n], a[n]) -> y\n  y = tanh(sum(k: x * w) + a)\n",
    "both": "both(x[m,k], w[k,n], a[n], v[n,j]) -> y\n  h = max(sum(k: x * w) + a, 0)\n  y = sum(n: h * v)\n",
    "rounded": "rounded(x[m,k], w[k,n], a[n]) -> y\n  h = sum(k: x * w) + a\n  y = h * (1 + erf(h / 1.4140625)) * 0.5\n",
    "beside": "beside(x[m,k], u[k,n], v[k,n], w[k,n], a[n], b[n], c[n]) -> q, r, s\n  q = sum(k: x * u) + a\n"
              "  r = sum(k: x * v) + b\n  s = sum(k: x * w) + c\n",
    "integers": "integers(x[m,k]: i8, w[k,n]: i8) -> y\n  y = sum(k: i32(x) * i32(w))\n",
}
FLOATS = [name for name in PROGRAMS if name != "integers"]
# Ragged everywhere; whole vectors and more than one block; one row; nothing to sum; no rows.
SHAPES = ["m=5,k=3,n=7", "m=130,k=72,n=136", "m=1,k=264,n=72", "m=70,k=0,n=8", "m=0,k=5,n=8"]
ENTRIES = ["16x64x8", "16x32x8", "32x32x8", "64x64x8", "128x128x8", "64x64x1"]
ROLES = ["roles64x64x64x8", "roles64x64x128x8", "roles64x128x64x8", "roles128x128x64x8", "roles128x256x64x8"]  # of the text for sm_90a

WORDS = ["words128x128x4", "words64x64x4", "words32x64x4", "words16x128x4", "words8x128x4", "words128x128x1", "words64x64x1", "words16x128x1"]  # of f32


def dims(name, shape):
    more = {"transposed": ",b=2", "batched": ",b=2,c=1", "both": ",j=24"}
    return shape + more.get(name, "")


def check_emulated(folder, name, dtype, shape, target="cuda-emulated"):
    refold("verify", "--target", target, str(folder / f"{name}.fold"), "--dtype", dtype, "--shape",
           dims(name, shape), "--first-seeds", "1", "--seeds", "1", "--threads", "1")


def check_entry(folder, name, entry):
    target = "cuda-emulated" + ("-sm90" if entry in ROLES else "")
    refold("verify", "--target", target, str(folder / f"{name}.fold"), "--dtype", "bf16", "--shape",
           dims(name, "m=130,k=456,n=136" if entry in ROLES else "m=130,k=72,n=136"), "--first-seeds", "1", "--seeds", "1", "--threads", "1",
           REFOLD_CUDA_ENTRY=f"product0_{entry}")


def check_words(folder, name, entry):
    """More than a block each way, or blocks that share a sum of which the last has less; ragged."""
    rows, columns, width = map(int, re.findall(r"\d+", entry))
    ragged = 4 if width > 1 else 3
    shapes = [f"m={rows + 3},k=19,n={8 + ragged}"]
    if rows < 128:
        shapes.append(f"m=5,k=37,n={columns + ragged}")
    if rows < 128 and name == "plain":
        shapes.append(f"m={min(rows - 1, 9)},k=397,n={ragged}")
    for shape in shapes:
        refold("verify", "--target", "cuda-emulated", str(folder / f"{name}.fold"), "--dtype", "f32", "--shape", dims(name, shape),
               "--first-seeds", "1", "--seeds", "1", "--threads", "1", REFOLD_CUDA_ENTRY=f"product0_{entry}")


def check_beside(folder):
    """Products of one left side are one launch, those of f32 not."""
    for dtype, steps in (("f16", 1), ("f32", 3)):
        kernels = [k for k in kernels_of(str(folder / "beside"), dtype) if "product" in k["entries"][0]["name"]]
        assert len(kernels) == 1 and ("which" in kernels[0]["text"]) == (steps == 1), (dtype, len(kernels))


def check_scale(folder, scale, is_gelu):
    """An erf of the root of 1/2, as 16 bits round it, is done in the product; any other scale is not."""
    path = folder / f"scaled{scale}.fold"
    path.write_text(f"scaled(x[m,k], w[k,n], a[n]) -> y\n  h = sum(k: x * w) + a\n  y = h * (1 + erf(h * {scale})) * 0.5\n")
    texts = [kernel["text"] for kernel in kernels_of(str(path)[:-5], "f16")]
    assert any("Activation::GeluErf" in text for text in texts) == is_gelu, scale
    check_emulated(folder, path.stem, "f16", "m=5,k=8,n=16")


def check_relu(folder, dtype):
    """max(x, 0) is done in the product, on either side, NaN as the maximum has it; any other number is not, nor is -0."""
    for number, text, is_relu in (("0", "max(s, 0)", True), ("left", "max(0, s)", True), ("one", "max(s, 1)", False), ("minus", "max(s, -0.0)", False),
                                  ("least", "min(s, 0)", False)):
        path = folder / f"relu_{number}_{dtype}.fold"
        path.write_text(f"f(x[m,k], w[n,k], a[n]) -> y\n  s = sum(k: x * w) + a\n  y = {text}\n")
        kernels = kernels_of(str(path)[:-5], dtype)
        assert any("Activation::Relu" in kernel["text"] for kernel in kernels) == is_relu == (len(kernels) == 1), (text, len(kernels))
    check_emulated(folder, f"relu_0_{dtype}", dtype, "m=5,k=8,n=16")


def check_written(folder, name, dtype):
    check_text(str(folder / name), dtype)


def check_compiled(compiler, folder, name, dtype, arch):
    target = "cuda-sm80" if arch == "sm_80" else "cuda-sm90"
    for kernel in kernels_of(str(folder / name), dtype, target):
        _, log = compiler.compile(kernel["text"], arch)
        found = nvrtc.resources(log)
        # Products that are serialised, registers that are not moved.
        assert not re.search(r"C75\d\d|setmaxnreg", log), log
        for entry in kernel["entries"]:
            registers, stack, spilled = found[entry["name"]]
            assert (stack, spilled) == (0, 0) and registers <= 255, (entry["name"], arch, found[entry["name"]])


def main():
    os.environ["REFOLD_EMULATOR_OPT"] = "0"  # most are compiled for longer than run: 391 CPU seconds for 475
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name, text in PROGRAMS.items():
            (folder / f"{name}.fold").write_text(text)
        all_checks = [(check_emulated, folder, name, ["f32", "bf16", "f16"][(i + k) % 3], shape)
                      for i, name in enumerate(FLOATS) for k, shape in enumerate(SHAPES)]
        all_checks += [(check_emulated, folder, name, dtype, shape, "cuda-emulated-sm90")
                       for name, dtype in (("plain", "f16"), ("rounded", "bf16")) for shape in SHAPES]
        all_checks += [(check_entry, folder, name, entry) for name in ("plain", "transposed", "batched", "rounded") for entry in ROLES]
        all_checks += [(check_entry, folder, "beside", ROLES[0])]
        all_checks += [(check_emulated, folder, "integers", "f32", shape) for shape in SHAPES]
        all_checks += [(check_entry, folder, name, entry) for name in ("plain", "transposed") for entry in ENTRIES]
        all_checks += [(check_words, folder, "plain", entry) for entry in WORDS]
        all_checks += [(check_words, folder, name, entry) for name in ("transposed", "batched") for entry in (WORDS[1], WORDS[4], WORDS[6])]
        all_checks += [(check_beside, folder)]
        all_checks += [(check_relu, folder, dtype) for dtype in ("f32", "f16", "bf16")]
        all_checks += [(check_scale, folder, *one) for one in (("0.709", True), ("0.7", False), ("3.0", False))]
        all_checks += [(check_entry, folder, "beside", entry) for entry in ENTRIES[:3]]
        all_checks += [(check_written, folder, name, dtype) for name in FLOATS for dtype in ("f32", "bf16")]
        gates = [(folder, name, dtype, arch) for name in ("plain", "transposed", "batched", "beside") for dtype in ("f32", "bf16")
                 for arch in ("sm_80", "sm_90a")]
        gates += [(folder, "rounded", dtype, "sm_90a") for dtype in ("f16", "bf16")]
        gated, skipped = checks.compiled(check_compiled, gates)
        return checks.run(all_checks + gated, skipped)


if __name__ == "__main__":
    sys.exit(main())
