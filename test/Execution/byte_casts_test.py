#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rounded numbers as bytes, in a sweep behind a sum: ties go to even, what does not fit is the nearest byte, NaN is 0.

    byte_casts_test.py [--self-test]
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import numpy

REFOLD = os.environ.get("REFOLD", "refold")
PROGRAM = """bytes(x[m,n], z[m,n]) -> q: i8, c: i8
  y = sum(n: z)
  q = i8(round(x + y))
  c = i8(floor(x + y))
"""
HALVES = [0.5, 1.5, 2.5, 126.5, 127.0, 127.4999, 127.5, 127.50001, 128.0, 128.5, 129.5, 255.0, 256.0, 32768.5, 2.0**31, 2.0**32,
          3e38, 1e-40, 0.49999997, 0.50000006, 0.0, numpy.inf]
TARGETS = ["avx512", "avx2", "baseline"]


def expected(x, isRounded):
    y = numpy.rint(x.astype(numpy.float64)) if isRounded else numpy.floor(x.astype(numpy.float64))
    return numpy.clip(numpy.nan_to_num(y, nan=0.0, posinf=127.0, neginf=-128.0), -128.0, 127.0).astype(numpy.int8)


def main():
    passed = failed = skipped = 0
    draw = numpy.random.default_rng(3)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "bytes.fold"
        path.write_text(PROGRAM, encoding="utf-8")
        for length in (1, 15, 16, 64, 100, 5000):
            for target in TARGETS:
                edges = numpy.array(HALVES + [-v for v in HALVES] + [numpy.nan])
                x = draw.choice(edges, size=(5, length)).astype(numpy.float32)
                x[2] = draw.uniform(-140.0, 140.0, length)
                x[3] = numpy.floor(x[2]) + 0.5
                out = pathlib.Path(folder) / "out.npz"
                numpy.savez(pathlib.Path(folder) / "in.npz", x=x, z=numpy.zeros_like(x))
                done = subprocess.run([REFOLD, "run", str(path), f"--inputs-from={folder}/in.npz", f"--outputs-to={out}",
                                       f"--target={target}", "--fuse=always"], capture_output=True, text=True)
                if "lacks" in done.stderr:
                    skipped += 1
                    continue
                wrong = done.stderr if done.returncode else ""
                if not wrong:
                    found = dict(numpy.load(out))
                    if "--self-test" in sys.argv:
                        found["q"][3, 0] += 1
                    for name, isRounded in (("q", True), ("c", False)):
                        differs = found[name] != expected(x, isRounded)
                        if differs.any():
                            wrong += f"{name} of {x[differs][:4]} is {found[name][differs][:4]}; "
                if "--self-test" in sys.argv:
                    wrong = "" if wrong.startswith("q of") else "a byte more was not seen"
                passed, failed = passed + (not wrong), failed + bool(wrong)
                if wrong:
                    print(f"{length} {target}: {wrong}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
