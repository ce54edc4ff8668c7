#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""all-MiniLM-L6-v2 as our script and as PyTorch's exporters write it: the same cascades, all
fused, and the embeddings of ONNX Runtime for several batches and lengths, with padding.

    REFOLD=build/dev/bin/refold REFOLD_BUILD=build/dev test/Execution/minilm_test.py

PyTorch's files are skipped where torch is missing or REFOLD_WITHOUT_TORCH is set.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "minilm"
EXPORTS = ["torchscript_eager", "torchscript_sdpa", "dynamo_eager", "dynamo_sdpa"]
SHAPES = [(batch, length) for batch in (1, 3, 8) for length in (1, 7, 128, 512)]
TOLERANCE = 1e-5
passed, failed, skipped = 0, 0, 0


def check(holds, what):
    global passed, failed
    passed, failed = passed + bool(holds), failed + (not holds)
    if not holds:
        print(f"failed: {what}", flush=True)


def call(*command):
    return subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)


def cascades_of(refold, model):
    """What is fused and how, without names, in the order of the report."""
    done = call(refold, "explain", model, "--format=json")
    if done.returncode:
        print(done.stdout)
        return None
    return sorted((c["verdict"], c["passes"], c["state_size"], tuple(s["op"] for s in c["stages"]))
                  for c in json.loads(done.stdout)["cascades"])


def make_inputs(np, batch, length):
    """Tokens and a mask that pads every row but the first, each by another count."""
    random = np.random.default_rng(batch * 1000 + length)
    ids = random.integers(1000, 20000, (batch, length))
    kept = [length if row == 0 else 1 + (length * row // batch) for row in range(batch)]
    mask = (np.arange(length)[None, :] < np.array(kept)[:, None]).astype(np.int64)
    return ids.astype(np.int64), mask


def compare(np, refold, model, session, folder, shapes):
    for batch, length in shapes:
        ids, mask = make_inputs(np, batch, length)
        np.savez(folder / "in.npz", input_ids=ids, attention_mask=mask)
        wanted = session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
        found = []
        for threads in (1, 2):
            output = folder / f"out{threads}.npz"
            done = call(refold, "run", model, f"--inputs-from={folder / 'in.npz'}", f"--outputs-to={output}",
                        f"--threads={threads}")
            if done.returncode:
                check(False, f"{model.name} {batch}x{length}: {done.stdout.strip()}")
                return
            data = np.load(output)
            found.append(data[data.files[0]])
        error = float(np.abs(found[0] - wanted).max())
        check(error <= TOLERANCE, f"{model.name} {batch}x{length}: {error:.2e} from ONNX Runtime, expected {TOLERANCE}")
        check(np.array_equal(found[0], found[1]), f"{model.name} {batch}x{length}: bits differ between 1 and 2 threads")


def main():
    global skipped
    for module in ("numpy", "onnx", "onnxruntime"):
        if importlib.util.find_spec(module) is None:
            print(f"needs {module}")
            return 77
    import numpy as np
    import onnxruntime
    refold = pathlib.Path(os.environ["REFOLD"]).resolve()
    models = pathlib.Path(os.environ.get("REFOLD_BUILD", ROOT / "build/dev")).resolve() / "minilm"
    models.mkdir(parents=True, exist_ok=True)
    ours = models / "minilm.onnx"
    if not ours.exists():
        done = call(sys.executable, EXAMPLE / "make_model.py", ours)
        if done.returncode:
            print(done.stdout)
            return 1
    wanted = cascades_of(refold, ours)
    check(wanted is not None and all(c[0] == "fused" for c in wanted), f"a cascade of {ours.name} is not fused")
    check(wanted is not None and len(wanted) == 19, "expected 6 attentions and 13 norms")
    # So long that double would take too long: against the unfused program, which rounds other last bits to 16 bits.
    done = call(refold, "bench", ours, "--multiply=bf16", "--shape=batch=8,length=128", "--pairs=1")
    check(done.returncode == 0, f"bench --multiply=bf16: {done.stdout[-2000:]}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        session = onnxruntime.InferenceSession(str(ours), providers=["CPUExecutionProvider"])
        compare(np, refold, ours, session, folder, SHAPES)
        if os.environ.get("REFOLD_WITHOUT_TORCH") or importlib.util.find_spec("torch") is None:
            print("skipped: " + ", ".join(EXPORTS) + " (no torch)")
            skipped += len(EXPORTS)
        else:
            if not all((models / f"{name}.onnx").exists() for name in EXPORTS):
                done = call(sys.executable, EXAMPLE / "export_torch.py", models)
                check(done.returncode == 0, f"export_torch.py: {done.stdout[-2000:]}")
            for name in EXPORTS:
                model = models / f"{name}.onnx"
                if not model.exists():
                    continue
                check(cascades_of(refold, model) == wanted, f"{name} gives other cascades than {ours.name}")
                compare(np, refold, model, session, folder, [(1, 7), (3, 128)])
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
