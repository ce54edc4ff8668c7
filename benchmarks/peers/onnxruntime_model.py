#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times ONNX Runtime on a model.

    onnxruntime_model.py MODEL.onnx batch=8,length=128 THREADS

Integer inputs are drawn as token numbers, an input named like a mask is all ones. Prints {"ms": median}.
"""

import json
import sys
import time

import numpy as np
import onnxruntime


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    model, shape, threads = sys.argv[1], dict(part.split("=") for part in sys.argv[2].split(",")), int(sys.argv[3])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    feeds = {}
    for one in session.get_inputs():
        extents = [int(shape[d]) if isinstance(d, str) else d for d in one.shape]
        if one.type == "tensor(int64)":
            is_mask = "mask" in one.name
            feeds[one.name] = np.ones(extents, np.int64) if is_mask else random.integers(0, 30000, extents)
        else:
            feeds[one.name] = random.standard_normal(extents).astype(np.float32)
    times = []
    for _ in range(10):
        start = time.perf_counter()
        session.run(None, feeds)
        times.append(1e3 * (time.perf_counter() - start))
    print(json.dumps({"ms": float(np.median(times[2:])), "version": onnxruntime.__version__}))


if __name__ == "__main__":
    main()
