#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every program of examples/ against double precision, fused and unfused: `refold verify`.

    verify_test.py [--thorough] [name ...]

Without --thorough lengths and seeds are few, so that the tests stay quick.
"""

import concurrent.futures
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))
# What a program needs to make sense of random inputs.
OPTIONS = {
    "attention_decode": ["--input", "length=uniform(0,1001)"],
    "attention_latent": ["--shape", "j=3"],
    "quantised_product": ["--input", "w=uniform(-128,128)"],
}
# Rounding inside these makes an error a step of the integer grid, by luck of the input.
LENGTHS, SEEDS, DTYPES = "0,1,17,100", "3", ["f32", "f16"]
THOROUGH = "0,1,2,15,16,17,1000,4097", "32", ["f32", "f64", "f16", "bf16"]


def verify(path, dtype, lengths, seeds):
    command = [REFOLD, "verify", str(path), "--lengths", lengths, "--seeds", seeds, "--dtype", dtype,
               *OPTIONS.get(path.stem, [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return " ".join(command), done.returncode, done.stdout + done.stderr


def main():
    names = [a for a in sys.argv[1:] if not a.startswith("--")]
    lengths, seeds, dtypes = THOROUGH if "--thorough" in sys.argv else (LENGTHS, SEEDS, DTYPES)
    files = [p for p in sorted((ROOT / "examples").glob("*.fold")) if not names or p.stem in names]
    assert len(files) >= (1 if names else 10)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(verify, path, dtype, lengths, seeds) for path in files for dtype in dtypes]
        for job in jobs:
            command, code, output = job.result()
            if code != 0:
                failed += 1
                print(f"{command}: exit code {code}\n{output}")
    print(f"{len(jobs) - failed} passed, {failed} failed, 0 skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
