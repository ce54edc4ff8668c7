#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What explain reads from machine code, against what ptxas reports of the same text: registers, stack, shared memory; one
entry that is known to spill. Needs NVRTC, and no GPU."""

import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
sys.path.insert(0, str(ROOT / "utils"))
import nvrtc  # noqa: E402

REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))
CASES = [("examples/softmax.fold", "bf16", "m=64,n=4096"), ("examples/softmax.fold", "bf16", "m=4096,n=131072"),
         ("examples/attention.fold", "bf16", "b=1,h=2,m=512,n=512,d=64,e=64"), ("examples/attention.fold", "f32", "b=1,h=2,m=64,n=64,d=64,e=64"),
         ("test/Target/CUDA/Inputs/router.fold", "bf16", "m=1048576,n=128")]
ARCHITECTURES = {"cuda-sm80": "sm_80", "cuda-sm90": "sm_90a"}


def refold(*arguments):
    environment = dict(os.environ, REFOLD_LIBCUDA="/nowhere", REFOLD_CACHE_DIR="", LLVM_DISABLE_SYMBOLIZATION="1")
    done = subprocess.run([REFOLD, *arguments, "--format", "json"], cwd=ROOT, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def text_of(text, entry):
    """The text without its other entries, as a run compiles it."""
    head, *parts = re.split(r"(?m)^(?=REFOLD_\w*KERNEL\()", text)
    for part in parts:
        body, rest = part.split("\n}\n", 1)
        head += (body + "\n}\n" if f"\n{entry}(" in body else "") + rest
    return head


def shared_of(log):
    """{entry: bytes of static shared memory}"""
    found, entry = {}, None
    for line in log.splitlines():
        if m := re.search(r"Compiling entry function '(\w+)'", line):
            entry = m[1]
        elif "Used" in line and entry:
            m = re.search(r"(\d+) bytes smem", line)
            found[entry] = int(m[1]) if m else 0
    return found


def check(compiler, program, dtype, shape, target):
    answer = refold("explain", program, "--dtype", dtype, "--target", target, "--shape", shape)
    kernels = {k["name"]: k["text"] for k in refold("compile", program, "--dtype", dtype, "--target", target, "--emit", "cuda")["kernels"]}
    launches = [step["launch"] for step in answer["steps"] if step["launch"]]
    assert launches and answer["code"].startswith("NVRTC "), answer["code"]
    for launch in launches:
        _, log = compiler.compile(text_of(kernels[launch["kernel"]], launch["entry"]), ARCHITECTURES[target])
        registers, stack, spills = nvrtc.resources(log)[launch["entry"]]
        code = launch["code"]
        assert (code["registers"], code["stack_bytes"]) == (registers, stack), (launch["entry"], code, registers, stack)
        assert code["shared_bytes"] == shared_of(log)[launch["entry"]], (launch["entry"], code)
        assert (code["local_loads"] + code["local_stores"] > 0) == (stack + spills > 0), (launch["entry"], code, stack, spills)
        if launch["occupancy"]["bound"] == "registers":
            assert launch["occupancy"]["blocks"] * launch["block"][0] * registers <= 65536


def main():
    library = nvrtc.find_library()
    if library is None:
        print("found no NVRTC")
        return 77
    compiler, failed, count = nvrtc.Compiler(library), 0, 0
    for program, dtype, shape in CASES:
        for target in ARCHITECTURES:
            count += 1
            try:
                check(compiler, program, dtype, shape, target)
            except AssertionError as error:
                failed += 1
                print(f"{program} {dtype} {target}: {error}")
    print(f"{count - failed} passed, {failed} failed, 0 skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
