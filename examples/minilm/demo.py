#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Embeds a dozen sentences with all-MiniLM-L6-v2, compiled by Refold.

    demo.py --refold build/release/bin/refold [--folder build/minilm] [--threads 2]

Writes the ONNX file from the weights, tokenises the sentences, fuses, compiles and runs the
model, and prints what was fused, how far fused and unfused are from double precision, how long
both take, and which sentences are nearest to each other.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent


def run(*command):
    """Standard output of a command; its own words and exit code if it fails."""
    done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        sys.exit(done.returncode)
    return done.stdout


def script(name, *arguments):
    return run(sys.executable, HERE / name, *arguments)


def embed(refold, model, folder, name, *flags):
    """The embeddings of the tokenised sentences, one row a sentence."""
    output = folder / f"{name}.npy"
    run(refold, "run", model, f"--input=input_ids={folder / 'input_ids.npy'}",
        f"--input=attention_mask={folder / 'attention_mask.npy'}", f"--output=embedding={output}", *flags)
    return np.load(output).astype(np.float64)


def row_error(found, reference):
    """Worst distance in a row over the row's largest value."""
    return float((np.abs(found - reference).max(axis=1) / np.abs(reference).max(axis=1)).max())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--refold", type=pathlib.Path, required=True, help="the refold program")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/minilm"), help="for what is made")
    parser.add_argument("--sentences", type=pathlib.Path, default=HERE / "sentences.txt", help="one a line")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    folder, model = options.folder, options.folder / "minilm.onnx"
    folder.mkdir(parents=True, exist_ok=True)
    if not model.exists():
        print(f"writing {model} (90 MB)", flush=True)
        script("make_model.py", model)
    print(f"tokenising {options.sentences.name}", flush=True)
    script("tokenise.py", options.sentences, "--out", folder)

    print("fusing", flush=True)
    cascades = json.loads(run(options.refold, "explain", model, "--format=json"))["cascades"]
    print("running it fused, unfused and in double precision", flush=True)
    threads = f"--threads={options.threads}"
    fused = embed(options.refold, model, folder, "fused", threads)
    unfused = embed(options.refold, model, folder, "unfused", threads, "--fuse=never")
    reference = embed(options.refold, model, folder, "reference", "--reference")
    batch, length = np.load(folder / "input_ids.npy").shape
    print("timing", flush=True)
    timing = json.loads(run(options.refold, "bench", model, f"--shape=batch={batch},length={length}", threads,
                            "--baseline=unfused", "--format=json"))

    cut = [c for c in cascades if c["verdict"] != "fused"]
    print(f"\ncascades   {len(cascades)} found, {len(cascades) - len(cut)} fused, {len(cut)} cut")
    for cascade in cut:
        for reason in cascade["reasons"]:
            print(f"           {cascade['name']} [{reason['key']}] {reason['text']}")
    print(f"error      {row_error(fused, reference):.2e} fused, {row_error(unfused, reference):.2e} unfused, "
          "against double precision")
    print(f"time       {timing['fused_ms']:.2f} ms fused, {timing['unfused_ms']:.2f} ms unfused "
          f"({batch} sentences of {length} tokens, {options.threads} threads; "
          f"{timing['speedup']:.2f}x, median of pairs)")
    print(f"compile    {timing['compile_ms']:.0f} ms\n")
    print(script("nearest.py", folder / "fused.npy", options.sentences), end="")


if __name__ == "__main__":
    main()
