#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A whole ONNX model for GPUs without one: a small encoder (two layers, several heads, masks, GELU, LayerNorm, mean pooling, the
checks of its positions), f32 and f16, with products of f16 too, emulated against double and compiled into a package.

Random weights under the names of all-MiniLM-L6-v2, written by examples/minilm/make_model.py. Skipped where the Python package
onnx is missing.
"""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile

import checks
from rows_test import REFOLD, refold

CONFIG = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32, "layer_norm_eps": 1e-12}
INNER, WORDS, PLACES = 64, 50, 24
INPUTS = ["--input", f"input_ids=uniform(0,{WORDS})", "--input", "attention_mask=uniform(0,2)"]


def make_tensors(np):
    random = np.random.default_rng(7)
    width, tensors = CONFIG["hidden_size"], {}

    def add(name, *shape):
        tensors[name] = random.normal(0, 1 / np.sqrt(shape[-1]), shape).astype(np.float32)

    def add_norm(name):
        tensors[f"{name}.weight"] = random.normal(1, 0.1, width).astype(np.float32)
        add(f"{name}.bias", width)

    add("embeddings.word_embeddings.weight", WORDS, width)
    add("embeddings.position_embeddings.weight", PLACES, width)
    add("embeddings.token_type_embeddings.weight", 2, width)
    add_norm("embeddings.LayerNorm")
    for layer in range(CONFIG["num_hidden_layers"]):
        name = f"encoder.layer.{layer}"
        for part, rows, columns in (("attention.self.query", width, width), ("attention.self.key", width, width),
                                    ("attention.self.value", width, width), ("attention.output.dense", width, width),
                                    ("intermediate.dense", INNER, width), ("output.dense", width, INNER)):
            add(f"{name}.{part}.weight", rows, columns)
            add(f"{name}.{part}.bias", rows)
        add_norm(f"{name}.attention.output.LayerNorm")
        add_norm(f"{name}.output.LayerNorm")
    return tensors


def write_models(folder):
    import numpy as np
    import onnx
    example = checks.ROOT / "examples/minilm"
    sys.path.insert(0, str(example))
    import make_model
    for dtype in (np.float32, np.float16):
        onnx.save(make_model.make_model(make_tensors(np), CONFIG, dtype), folder / f"encoder_{np.dtype(dtype).name}.onnx")


def check_emulated(model, *flags):
    """One token, a length of no vector, whole vectors."""
    refold("verify", "--target", "cuda-emulated", str(model), "--lengths", "1,7,16", "--broad-length", "0", "--shape", "batch=2",
           *INPUTS, "--first-seeds", "1", "--seeds", "8", "--splits", "0", "--threads", "1", *flags)


def check_package(folder, model):
    """Every step has a kernel, and what runs by which is told."""
    package = folder / f"{model.stem}.rfx"
    done = subprocess.run([REFOLD, "compile", "--target", "cuda-sm90", str(model), "-o", str(package)], capture_output=True,
                          text=True, timeout=600)
    assert done.returncode == 0 and package.stat().st_size > 0, done.stderr


def main():
    if not importlib.util.find_spec("onnx"):
        print("found no Python package onnx: skipped")
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        write_models(folder)
        models = [folder / "encoder_float32.onnx", folder / "encoder_float16.onnx"]
        all_checks = [(check_emulated, model) for model in models]
        all_checks.append((check_emulated, models[1], "--multiply", "f16"))
        gated, skipped = checks.compiled(lambda compiler, *case: check_package(*case), [(folder, model) for model in models])
        return checks.run(all_checks + gated, skipped)


if __name__ == "__main__":
    sys.exit(main())
