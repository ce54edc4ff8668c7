#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every exit code of the contract that a user can reach, and colour only on a terminal."""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REFOLD = os.environ["REFOLD"]
IDENTITY = "test/Support/Inputs/identity.mlir"


def run(*arguments):
    done = subprocess.run([REFOLD, *arguments], cwd=ROOT, capture_output=True, text=True,
                          env=dict(os.environ, TERM="xterm-256color"))
    return done.returncode, done.stdout + done.stderr


def closed_output():
    """What is wrong where nobody reads what is printed, or None: the code of the table in docs/tools.md."""
    end, begin = os.pipe()
    os.close(end)
    done = subprocess.run([REFOLD, "explain", "examples/softmax.fold"], cwd=ROOT, stdout=begin, stderr=subprocess.PIPE)
    os.close(begin)
    told = (ROOT / "docs/tools.md").read_text()
    return None if done.returncode == 74 and "| 74 |" in told else f"closed output: found {done.returncode}, expected 74, as in docs/tools.md"


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        big = pathlib.Path(folder) / "big.fold"
        big.write_bytes(b"#" * (2 << 20))
        cases = [
            (0, ["inspect", IDENTITY]),
            (1, ["inspect", "test/Frontend/MLIR/broken/undefined-value.mlir"]),
            (1, ["inspect", "missing.fold"]),
            (2, []),
            (2, ["inspect"]),
            (2, ["inspect", "x.unknown"]),
            (2, ["inspect", "examples/softmax.fold", "--dim", "zz=3"]),
            (2, ["inspect", "examples/attention_gqa.fold", "--dim", "h=3"]),
            (2, ["inspect", "test/Frontend/ONNX/broken/text.onnx", "--dim", "n=-3"]),
            (2, ["run", "examples/softmax.fold", "--shape", "m=3"]),
            *((2, [command, "examples/softmax.fold", "--shape", "m=3,n=4,q=5"])
              for command in ("run", "explain", "bench", "verify")),
            (2, ["run", "examples/attention_gqa.fold", "--shape", "b=1,h=9,g=2,m=3,n=4,d=5,e=6"]),
            (2, ["run", "examples/softmax.fold", "--shape", "m=3,n=4", "--target", "z80"]),
            (2, ["tune", "examples/softmax.fold", "--shape", "m=3,n=4", "--target", "cuda-sm90"]),
            (4, ["inspect", "test/Frontend/MLIR/broken/two-functions.mlir"]),
            (4, ["ops", "NoSuchOperator"]),
            (5, ["inspect", "test/Frontend/MLIR/broken/deep-types.mlir"]),
            (5, ["inspect", str(big)]),
            (5, ["run", IDENTITY, "--shape", "m=1000000000000,n=1000000000000"]),
        ]
        for expected, arguments in cases:
            code, output = run(*arguments)
            if code != expected or "\x1b" in output:
                failed += 1
                print(f"refold {' '.join(arguments)}: found exit code {code}, expected {expected}\n{output}")
    wrong = closed_output()
    if wrong:
        failed += 1
        print(wrong)
    print(f"{len(cases) + 1 - failed} passed, {failed} failed, 0 skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
