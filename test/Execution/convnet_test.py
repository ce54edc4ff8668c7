#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The convolutional classifier that PyTorch exports (examples/convnet), whole: the scores of double precision and of ONNX
Runtime for one image and several, the same bits on any number of threads, and one kernel for a convolution with all that is
done to its elements.

    REFOLD=build/dev/bin/refold REFOLD_BUILD=build/dev test/Execution/convnet_test.py

Skipped where torch is missing or REFOLD_WITHOUT_TORCH is set.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOLERANCE = 1e-6
# 22 convolutions, the ReLU behind the grouped one; one more with the mean behind it; the largest of windows; the last product.
KERNELS = 26


def call(*command):
    return subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)


def scores(np, refold, model, images, threads):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        np.savez(folder / "in.npz", image=images)
        done = call(refold, "run", model, f"--inputs-from={folder / 'in.npz'}", f"--outputs-to={folder / 'out.npz'}",
                    f"--threads={threads}")
        if done.returncode:
            sys.exit(done.stdout)
        return np.load(folder / "out.npz")["scores"]


def problems(np, session, refold, model):
    """What is wrong, one line each."""
    for batch in (1, 3):
        images = np.random.default_rng(batch).standard_normal((batch, 3, 224, 224)).astype(np.float32)
        found = [scores(np, refold, model, images, threads) for threads in (1, 2)]
        error = float(np.abs(found[0] - session.run(None, {"image": images})[0]).max())
        if not error <= TOLERANCE:
            yield f"batch {batch}: {error:.2e} from ONNX Runtime, expected {TOLERANCE}"
        if not np.array_equal(found[0], found[1]):
            yield f"batch {batch}: bits differ between 1 and 2 threads"
    done = call(refold, "bench", model, "--shape=batch=1", "--pairs=1", "--kernels", "--format=json")
    if done.returncode:
        yield f"double precision: {done.stdout}"
        return
    steps = json.loads(done.stdout[done.stdout.index("{"):])["kernels"]["fused"]
    found = {kind: sum(step["kind"] == kind for step in steps) for kind in ("kernel", "product")}
    if found != {"kernel": KERNELS, "product": 0}:
        yield f"found {found}, expected {KERNELS} kernels"


def main():
    for module in ("numpy", "onnx", "onnxruntime", "torch"):
        if importlib.util.find_spec(module) is None or (module == "torch" and os.environ.get("REFOLD_WITHOUT_TORCH")):
            print(f"needs {module}")
            return 77
    import numpy as np
    import onnxruntime
    folder = pathlib.Path(os.environ.get("REFOLD_BUILD", ROOT / "build/dev")).resolve() / "convnet"
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "convnet.onnx"
    if not model.exists():
        done = call(sys.executable, ROOT / "examples/convnet/make_model.py", model)
        if done.returncode:
            print(done.stdout)
            return 1
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    wrong = list(problems(np, session, pathlib.Path(os.environ["REFOLD"]).resolve(), model))
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
