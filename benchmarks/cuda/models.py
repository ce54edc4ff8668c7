#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An encoder of all-MiniLM-L6-v2's architecture as a package on the first GPU, beside PyTorch's forms of the same weights, each as a
CUDA graph. Answers are compared with double (the same rounded weights) first, once with every token and once with padding.

    models.py --write FILE.onnx                                          # random weights, f16
    refold compile --multiply f16 --target cuda-sm90 FILE.onnx -o FILE.rfx
    models.py --library librefold_run.so --package FILE.rfx [--out FILE.jsonl]
"""

import argparse
import json
import pathlib
import statistics
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDTH, HEADS, LAYERS, INNER, WORDS, PLACES, EPSILON = 384, 12, 6, 1536, 30522, 512, 1e-12
SHAPES = [(1, 16), (1, 128), (8, 128), (1, 512), (4, 512)]


def make_tensors():
    """Weights of every name that the model has; the same on every machine."""
    random, tensors = np.random.default_rng(7), {}

    def add(name, *shape):
        tensors[name] = random.normal(0, 1 / np.sqrt(shape[-1]), shape).astype(np.float16)

    def norm(name):
        tensors[f"{name}.weight"] = random.normal(1, 0.1, WIDTH).astype(np.float16)
        add(f"{name}.bias", WIDTH)

    add("embeddings.word_embeddings.weight", WORDS, WIDTH)
    add("embeddings.position_embeddings.weight", PLACES, WIDTH)
    add("embeddings.token_type_embeddings.weight", 2, WIDTH)
    norm("embeddings.LayerNorm")
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        for part, rows, columns in (("attention.self.query", WIDTH, WIDTH), ("attention.self.key", WIDTH, WIDTH),
                                    ("attention.self.value", WIDTH, WIDTH), ("attention.output.dense", WIDTH, WIDTH),
                                    ("intermediate.dense", INNER, WIDTH), ("output.dense", WIDTH, INNER)):
            add(f"{name}.{part}.weight", rows, columns)
            add(f"{name}.{part}.bias", rows)
        norm(f"{name}.attention.output.LayerNorm")
        norm(f"{name}.output.LayerNorm")
    return tensors


def write(path):
    import onnx
    sys.path.insert(0, str(ROOT / "examples/minilm"))
    import make_model
    config = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "hidden_size": WIDTH, "layer_norm_eps": EPSILON}
    tensors = {name: value.astype(np.float32) for name, value in make_tensors().items()}
    onnx.save(make_model.make_model(tensors, config, np.float16), path)


def encode(w, ids, mask):
    """As transformers writes it; the type is that of the weights."""
    import torch
    import torch.nn.functional as F

    def linear(x, name):
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(x, name):
        return F.layer_norm(x, (WIDTH,), w[f"{name}.weight"], w[f"{name}.bias"], EPSILON)

    def heads(x):
        return x.view(x.shape[0], x.shape[1], HEADS, WIDTH // HEADS).transpose(1, 2)

    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0]
    x = norm(x + w["embeddings.position_embeddings.weight"][:ids.shape[1]], "embeddings.LayerNorm")
    kept = mask[:, None, None, :] != 0
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        q, k, v = (heads(linear(x, f"{name}.attention.self.{part}")) for part in ("query", "key", "value"))
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=kept).transpose(1, 2).reshape(x.shape)
        x = norm(linear(o, f"{name}.attention.output.dense") + x, f"{name}.attention.output.LayerNorm")
        h = F.gelu(linear(x, f"{name}.intermediate.dense"))
        x = norm(linear(h, f"{name}.output.dense") + x, f"{name}.output.LayerNorm")
    keep = mask[:, :, None].to(x.dtype)
    return F.normalize((x * keep).sum(1) / keep.sum(1).clamp(min=1e-9), dim=-1, eps=1e-12)


def paired(runs, launches=20, groups=15):
    """Median milliseconds of each, group by group in turn."""
    import torch
    times = {name: [] for name in runs}
    for group in range(groups + 1):
        for name, run in runs.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(launches):
                run()
            end.record()
            end.synchronize()
            if group:
                times[name].append(begin.elapsed_time(end) / launches)
    return {name: statistics.median(values) for name, values in times.items()}


def run(options):
    import torch
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    import packages
    library = packages.Library(options.library)
    library.lib.refold_package_check.restype = packages.ctypes.c_void_p
    package = packages.Package(library, options.package)
    tensors = make_tensors()
    half = {name: torch.from_numpy(value).cuda() for name, value in tensors.items()}
    double = {name: value.double() for name, value in half.items()}
    log = []
    for batch, length in SHAPES:
        torch.manual_seed(length)
        ids = torch.randint(0, WORDS, (batch, length), device="cuda")
        out = torch.full((batch, WIDTH), float("nan"), dtype=torch.float16, device="cuda")
        mask = torch.ones_like(ids)
        errors = {}
        forms = {"torch": encode}
        if not options.eager:
            torch._dynamo.reset()
            forms["compiled"] = torch.compile(encode, dynamic=False)
        launch = package.launcher([ids, mask], [out])
        with torch.no_grad():
            for what in ("padded", "whole"):
                mask.fill_(1)
                if what == "padded":
                    for row in range(batch):
                        mask[row, length - length * (row + 1) // (batch + 1):] = 0
                expected = encode(double, ids, mask)
                launch()
                torch.cuda.synchronize()
                library.check(package.library.lib.refold_package_check(package.handle))
                errors[f"{what} refold"] = (out - expected).abs().max().item()
                for name, form in forms.items():
                    errors[f"{what} {name}"] = (form(half, ids, mask) - expected).abs().max().item()
            assert errors["whole refold"] <= 4e-3 and errors["padded refold"] <= 4e-3, errors
            graphs = {"refold": packages.replayed(launch)}
            for name, form in forms.items():
                graphs[name] = packages.replayed(lambda form=form: form(half, ids, mask))
            ms = paired(graphs)
        log.append({"batch": batch, "length": length, "ms": ms, "errors": errors})
        print(batch, length, *(f"{name} {value * 1e3:.1f} us" for name, value in ms.items()),
              *(f"{name} {value:.1e}" for name, value in errors.items()), flush=True)
        if options.out:
            options.out.write_text("".join(json.dumps(line) + "\n" for line in log))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--library", type=pathlib.Path)
    parser.add_argument("--package", type=pathlib.Path)
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    if options.write:
        return write(options.write)
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
