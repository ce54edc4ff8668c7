#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small models of the transformers library with random weights, as PyTorch exports them: the results of PyTorch
at the exported shape and at another one, the same bits on two threads, and fused against unfused.

    REFOLD=build/dev/bin/refold test/Execution/transformers_test.py [NAME...]

Skipped where torch is missing or REFOLD_WITHOUT_TORCH is set.
"""

import contextlib
import importlib.util
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

SKIP = 77
TOLERANCE = 5e-6  # of the largest result; the models err by 1e-7 to 6e-7
BASE = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=112)
TEXT = dict(vocab_size=99, max_position_embeddings=64)
IMAGE = dict(image_size=32, patch_size=8)
SDPA = dict(attn_implementation="sdpa")

# Name: class, configuration, its settings, fused cascades at least. What is peculiar to each stands beside it.
MODELS = {
    # Rotated halves of a product that is also read whole; grouped heads.
    "llama": ("LlamaModel", "LlamaConfig", {**BASE, **TEXT, **SDPA, "num_key_value_heads": 2}, 4),
    # Soft caps on scores, two kinds of masks.
    "gemma2": ("Gemma2Model", "Gemma2Config", {**BASE, **TEXT, "num_key_value_heads": 2, "head_dim": 16, "attn_implementation": "eager"}, 2),
    "gpt2": ("GPT2Model", "GPT2Config", {"vocab_size": 99, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4, **SDPA}, 7),
    # Biases of scores from a table of distances.
    "t5": ("T5EncoderModel", "T5Config", {"vocab_size": 99, "d_model": 64, "d_kv": 16, "d_ff": 112, "num_layers": 2, "num_heads": 4}, 6),
    # Positions are a prefix sum of the mask.
    "roberta": ("RobertaModel", "RobertaConfig", {**BASE, **TEXT, **SDPA}, 7),
    # Slopes times a prefix sum.
    "bloom": ("BloomModel", "BloomConfig", {"vocab_size": 99, "hidden_size": 64, "n_layer": 2, "n_head": 4}, 3),
    # Scores of distances by gathers along the stream.
    "deberta": ("DebertaV2Model", "DebertaV2Config",
                {**BASE, **TEXT, "relative_attention": True, "position_buckets": 16, "pos_att_type": ["p2c", "c2p"],
                 "max_relative_positions": 32}, 7),
    "vit": ("ViTModel", "ViTConfig", {**BASE, **IMAGE, **SDPA}, 5),
    # Windows of rows that were normalised, shifted by half a window.
    "swin": ("SwinModel", "SwinConfig", {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}, 8),
    # Keys and values of fewer places than queries.
    "segformer": ("SegformerModel", "SegformerConfig",
                  {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 40, 64], "num_attention_heads": [1, 2, 2, 4]}, 9),
}
IMAGES = {"vit": 32, "swin": 32, "segformer": 64}
ENCODERS = {"t5", "roberta", "deberta"}
passed, failed = 0, 0


def check(holds, what):
    global passed, failed
    passed, failed = passed + bool(holds), failed + (not holds)
    if not holds:
        print(f"failed: {what}", flush=True)


def call(*command):
    return subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)


def wrap(torch, model, name):
    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *inputs):
            if name in IMAGES:
                return self.model(pixel_values=inputs[0]).last_hidden_state
            options = {} if name in ENCODERS else {"use_cache": False}
            return self.model(input_ids=inputs[0], attention_mask=inputs[1], **options).last_hidden_state

    return Hidden()


def inputs_of(torch, name, batch, length):
    if name in IMAGES:
        return (torch.randn(batch, 3, IMAGES[name], IMAGES[name]),)
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[-1, length - 3:] = 0
    return torch.randint(2, 90, (batch, length)), mask


def export(torch, model, name, inputs, path):
    batch, length = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("length", min=2, max=48)
    dims = ({0: batch},) if name in IMAGES else ({0: batch, 1: length},) * 2
    with torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(model, inputs, path, dynamo=True, opset_version=20, external_data=False, dynamic_shapes=(dims,),
                          verbose=False)


def compare(np, torch, refold, path, model, name, inputs, folder):
    with torch.no_grad():
        wanted = model(*inputs).numpy()
    ports = [line.split()[1].partition("[")[0] for line in call(refold, "inspect", path).stdout.splitlines()
             if line.startswith("  in ")]
    check(len(ports) == len(inputs), f"{name}: {len(ports)} inputs")
    np.savez(folder / "in.npz", **{port: value.numpy() for port, value in zip(ports, inputs)})
    found = []
    for threads in (1, 2):
        output = folder / f"out{threads}.npz"
        done = call(refold, "run", path, f"--inputs-from={folder / 'in.npz'}", f"--outputs-to={output}", f"--threads={threads}")
        if done.returncode:
            return check(False, f"{name}: {done.stdout[-600:]}")
        data = np.load(output)
        found.append(data[data.files[0]])
    # Rows of padding attend to what the mask leaves, in both.
    error = float(np.abs(found[0] - wanted).max() / np.abs(wanted).max())
    check(error <= TOLERANCE, f"{name} {tuple(inputs[0].shape)}: {error:.2e} from PyTorch, expected {TOLERANCE}")
    check(np.array_equal(found[0], found[1]), f"{name}: bits differ between 1 and 2 threads")


def run(np, torch, transformers, refold, name, folder):
    kind, config, settings, least = MODELS[name]
    torch.manual_seed(0)
    model = wrap(torch, getattr(transformers, kind)(getattr(transformers, config)(**settings)).eval().float(), name)
    path = folder / f"{name}.onnx"
    inputs = inputs_of(torch, name, 2, 11)
    export(torch, model, name, inputs, path)
    compare(np, torch, refold, path, model, name, inputs, folder)
    compare(np, torch, refold, path, model, name, inputs_of(torch, name, 3, 17), folder)
    done = call(refold, "explain", path)
    last = done.stdout.strip().splitlines()[-1]
    fused = int(last.split(", ")[1].split()[0]) if done.returncode == 0 and " fused;" in last else 0
    check(fused >= least, f"{name}: '{last}', expected {least} or more fused")


def main():
    for module in ("numpy", "onnx", "torch", "transformers", "onnxscript"):
        if importlib.util.find_spec(module) is None or (module == "torch" and os.environ.get("REFOLD_WITHOUT_TORCH")):
            print(f"needs {module}")
            return SKIP
    import logging

    import numpy as np
    import torch
    import transformers
    logging.disable(logging.WARNING)
    refold = pathlib.Path(os.environ["REFOLD"]).resolve()
    for name in sys.argv[1:] or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            run(np, torch, transformers, refold, name, pathlib.Path(folder))
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
