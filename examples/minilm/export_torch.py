#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the four ONNX files that PyTorch's exporters make of all-MiniLM-L6-v2.

    export_torch.py FOLDER

torchscript_eager, torchscript_sdpa (dynamo=False, opset 17), dynamo_eager and dynamo_sdpa
(dynamo=True, opset 20). Made for torch 2.13.0 (a CPU build), transformers 5.23.0 and
onnxscript 0.7.2; other versions write other graphs, so they are refused.
"""

import argparse
import importlib.metadata
import pathlib
import warnings

import torch
from transformers import BertConfig, BertModel

import weights

# Not "embedding": the dynamo exporter gives that name to an inner value, too.
OUTPUT = "sentence_embedding"
VERSIONS = {"torch": "2.13.0", "transformers": "5.23.0", "onnxscript": "0.7.2"}


def check_versions():
    for package, expected in VERSIONS.items():
        found = importlib.metadata.version(package).partition("+")[0]
        if found != expected:
            raise SystemExit(f"error: {package} is {found}; expected {expected}")
    if torch.version.cuda or torch.version.hip:
        raise SystemExit(f"error: torch is {torch.__version__}; expected a CPU build")


class Embedder(torch.nn.Module):
    """The encoder, the mean of the kept tokens, and the scaling to length one."""

    def __init__(self, implementation):
        super().__init__()
        settings = weights.config()
        settings.pop("transformers_version", None)
        settings.pop("position_embedding_type", None)
        self.encoder = BertModel(
            BertConfig(**settings, attn_implementation=implementation), add_pooling_layer=False)
        tensors = {
            name: torch.from_numpy(value.copy())
            for name, value in weights.read_safetensors(
                weights.model_folder() / "model.safetensors").items()
            if not name.startswith("pooler.") and name != "embeddings.position_ids"}
        missing, unexpected = self.encoder.load_state_dict(tensors, strict=False)
        missing = [name for name in missing if not name.endswith(("position_ids", "token_type_ids"))]
        if missing or unexpected:
            raise SystemExit(f"error: weights missing {missing}, unexpected {unexpected}")

    def forward(self, input_ids, attention_mask):
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        keep = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * keep).sum(1) / keep.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, p=2.0, dim=1)


def example():
    ids = torch.randint(1000, 20000, (2, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    return ids, mask


def export(implementation, dynamo, path):
    model = Embedder(implementation).eval()
    names = ["input_ids", "attention_mask"]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            batch, length = torch.export.Dim("batch", min=1, max=512), torch.export.Dim("length", min=1, max=512)
            torch.onnx.export(model, example(), path, input_names=names, output_names=[OUTPUT],
                              opset_version=20, dynamo=True, external_data=False,
                              dynamic_shapes=tuple({0: batch, 1: length} for _ in names))
        else:
            axes = {0: "batch", 1: "length"}
            torch.onnx.export(model, example(), path, input_names=names, output_names=[OUTPUT],
                              opset_version=17, dynamo=False,
                              dynamic_axes={**{name: axes for name in names}, OUTPUT: {0: "batch"}})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="where the four files go")
    folder = parser.parse_args().folder
    check_versions()
    folder.mkdir(parents=True, exist_ok=True)
    for dynamo in (False, True):
        for implementation in ("eager", "sdpa"):
            name = f"{'dynamo' if dynamo else 'torchscript'}_{implementation}.onnx"
            export(implementation, dynamo, folder / name)
            print(f"{folder / name}: written", flush=True)


if __name__ == "__main__":
    main()
