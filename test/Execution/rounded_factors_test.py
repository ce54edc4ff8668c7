#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Factors of bf16 rows that are rounded so that dot products take them (rounded-factors): where they are, where they are
not, and that the allowance beside the bound holds at odd lengths, for growing scores, NaN, and rows of nothing but -inf.

    rounded_factors_test.py [--self-test]
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))
HEAD = "attention(q[b,h,m,d], k[b,h,n,d], v[b,h,n,e]) -> o\n"
SCORES = "  s = sum(d: q*k) * rsqrt(len(d))\n"
REST = "  t = max(n: s)\n  p = exp(s - t)\n  z = sum(n: p)\n  o[b,h,m,e] = sum(n: p*v) / z\n"


def program(mask="", rest=REST):
    return HEAD + SCORES + mask + rest


PROGRAMS = {
    "full": program(),
    "causal": program("  s = where(n <= m, s, -inf)\n"),
    "window": program("  s = where(n <= m, s, -inf)\n  s = where(m - n < 40, s, -inf)\n"),
    "masked": program("  s = where(n % 3 == m % 2, s, -inf)\n"),
    "groups": (ROOT / "examples/attention_gqa.fold").read_text(encoding="utf-8"),
}
DIFFERENCE = program(rest="  t = max(n: s)\n  p = exp(s - t)\n  o[b,h,m,e] = sum(n: p*v) - sum(n: p)\n")
WIDE = "d=64,e=64"
# Lengths that fill no pair, no register and no tile, under every family of inputs; then more rows than a tile has.
LENGTHS = "--lengths=0,1,2,17,131"
MOST_OF_OTHERS = 1e-3
SHAPE = {"b": 1, "h": 2, "m": 70, "n": 135, "d": 40, "e": 1}


def verify(folder, name, text, dtype, dims, flags=()):
    """Exit code, whether factors are rounded, the largest error, what was said."""
    path = folder / f"{name}.fold"
    path.write_text(text)
    fixed = [one.split("=")[0] for one in dims.split(",")] + re.findall(r"(\w)=\d", text)
    shape = ",".join(f"{dim}={extent}" for dim, extent in SHAPE.items() if dim not in fixed)
    worst = 0.0
    for where in (LENGTHS, f"--shape={shape}"):
        done = subprocess.run([REFOLD, "verify", path, "--format=json", f"--dtype={dtype}", f"--dim={dims}", "--broad-length=0",
                               "--first-seeds=1", "--splits=1", where, *flags], capture_output=True, text=True)
        if not done.stdout or done.returncode:
            return done.returncode, False, worst, done.stderr.strip()
        answer = json.loads(done.stdout)
        worst = max([worst, *(c["fused_error"] or 0 for o in answer["outputs"] for c in o["cases"])])
        # A result that no rounded factor reaches has no allowance.
        if any(c["bound"] > MOST_OF_OTHERS for o in answer["outputs"] if o["name"] == "y" for c in o["cases"]):
            return 1, False, worst, "y has an allowance"
    return 0, "rounded-factors" in answer["policies"], worst, ""


def main():
    known = subprocess.run([REFOLD, "doctor"], capture_output=True, text=True, env={**os.environ, "REFOLD_CACHE_DIR": ""}).stdout
    is_taken = bool(re.search(r"znver[45]\).* avx512bf16", known)) or "matrix tiles" in known
    # What is asked of a program: whether factors are rounded, and the largest error there may be.
    cases = [(name, text, "bf16", WIDE, (), is_taken) for name, text in PROGRAMS.items()]
    full = PROGRAMS["full"]
    cases += [
        ("wide", full, "bf16", "d=128,e=128", (), is_taken),
        ("odd_columns", full, "bf16", "d=33,e=37", (), is_taken),
        # Of rows that may have one column nothing says how far it cancels.
        ("open", full, "bf16", "b=2", (), False),
        ("columns_not_last", full.replace("o[b,h,m,e]", "o[b,h,e,m]"), "bf16", WIDE, (), False),
        ("two_results", full.replace("-> o", "-> o, y") + "  y[b,h,m] = t + log(z)\n", "bf16", WIDE, (), is_taken),
        ("accurate", full, "bf16", WIDE, ("--stability=most-accurate",), False),
        ("f32", full, "f32", WIDE, (), False),
        ("f16", full, "f16", WIDE, (), False),
        ("narrow", full, "bf16", "d=64,e=3", (), False),
        ("decode", full, "bf16", WIDE + ",m=1", (), False),
        ("difference", DIFFERENCE, "bf16", WIDE, (), False),
        ("by_name", full, "bf16", WIDE, ("--target=avx2",), False),
    ]
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        for name, text, dtype, dims, flags, expected in cases:
            code, found, worst, message = verify(pathlib.Path(temporary), name, text, dtype, dims, flags)
            if "--self-test" in sys.argv:
                expected = not expected
            if code or found != expected:
                failed += 1
                print(f"{name}: exit code {code}, factors {'' if found else 'not '}rounded, error {worst}: {message[-300:]}")
    if "--self-test" in sys.argv:
        print("found every case wrong, as it should be" if failed == len(cases) else "found a case right that is not")
        return failed != len(cases)
    print(f"{len(cases) - failed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
