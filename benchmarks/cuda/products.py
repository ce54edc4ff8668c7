#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times products outside cascades, and attention of f32 in steps of its own, on the first GPU through librefold_run:
answers against double on sampled rows, times by events, PyTorch (cuBLAS, its attention) in the same run.

    products.py --library librefold_run.so --packages FOLDER [--out FILE.jsonl]

A package is PROGRAM.DTYPE.rfx: `refold compile --target cuda-sm90 --dtype DTYPE PROGRAM -o ...`, of the programs that
`products.py --programs FOLDER` writes and of examples/attention.fold.
"""

import argparse
import json
import pathlib
import sys

PROGRAMS = {"product": "product(x[m,k], w[k,n]) -> y\n  y = sum(k: x * w)\n",
            "linear": "linear(x[m,k], w[n,k], b[n]) -> y\n  y = max(sum(k: x * w) + b, 0)\n"}
SHAPES = [(4096, 4096, 4096), (8192, 4096, 1024), (128, 768, 3072), (2048, 384, 1536), (16, 4096, 4096), (1, 4096, 4096)]
ATTENTION = [(1, 8, 2048, 64), (4, 16, 1024, 64)]
BOUNDS = {"bf16": 8e-3, "f16": 1e-3, "f32": 1e-5}
SAMPLED = 64


def write_programs(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in PROGRAMS.items():
        (folder / f"{name}.fold").write_text(text)


def peer_of(program, inputs):
    import torch
    if program == "product":
        return lambda: torch.matmul(*inputs)
    if program == "linear":
        return lambda: torch.relu(torch.nn.functional.linear(*inputs))
    return lambda: torch.nn.functional.scaled_dot_product_attention(*inputs)


def inputs_of(program, shape, dtype):
    import torch
    torch.manual_seed(sum(shape))
    if program == "attention":
        b, h, s, d = shape
        return [torch.randn(b, h, s, d, device="cuda").to(dtype) for _ in range(3)], (b, h, s, d)
    m, k, n = shape
    sides = [(m, k), (k, n)] if program == "product" else [(m, k), (n, k), (n,)]
    return [torch.randn(*side, device="cuda").to(dtype) for side in sides], (m, n)


def error_of(program, inputs, result):
    """Largest error of some rows, by the largest value."""
    import torch
    if program == "attention":
        sampled = [inputs[0][:, :, -SAMPLED:].double(), inputs[1].double(), inputs[2].double()]
        found = result[:, :, -SAMPLED:]
    else:
        sampled = [inputs[0][-SAMPLED:].double(), *[one.double() for one in inputs[1:]]]
        found = result[-SAMPLED:]
    exact = peer_of(program, sampled)()
    return float((found.double() - exact).abs().max() / exact.abs().max())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=pathlib.Path)
    parser.add_argument("--library", type=pathlib.Path)
    parser.add_argument("--packages", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    if options.programs:
        return write_programs(options.programs)
    import torch
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    from packages import Library, Package
    from rows import DTYPES, time_ms
    library, log, failed = Library(options.library), [], False

    def note(**fields):
        log.append(fields)
        print(" ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in fields.items()), flush=True)

    note(device=torch.cuda.get_device_name(), torch=torch.__version__)
    for path in sorted(options.packages.glob("*.rfx")):
        program, dtype_name = path.stem.split(".")[:2]
        if program not in (*PROGRAMS, "attention"):
            continue
        package = Package(library, path)
        for shape in ATTENTION if program == "attention" else SHAPES:
            inputs, result_shape = inputs_of(program, shape, DTYPES[dtype_name])
            result = torch.full(result_shape, float("nan"), device="cuda", dtype=DTYPES[dtype_name])
            run = package.launcher(inputs, [result])
            run()
            torch.cuda.synchronize()
            error = error_of(program, inputs, result)
            good = error < BOUNDS[dtype_name] and not bool(result.isnan().any())
            failed |= not good
            peer = peer_of(program, inputs)
            operations = 2.0 * shape[0] * shape[1] * shape[2]
            if program == "attention":
                operations = 4.0 * shape[0] * shape[1] * shape[2] * shape[2] * shape[3]
            ms, peer_ms = time_ms(run), time_ms(peer)
            note(program=program, dtype=dtype_name, shape="x".join(map(str, shape)), good=int(good), error=error, ms=ms,
                 tflops=operations / ms / 1e9, torch_ms=peer_ms, torch_tflops=operations / peer_ms / 1e9,
                 of_torch=peer_ms / ms)
        package.close()
    if options.out:
        options.out.write_text("".join(json.dumps(one) + "\n" for one in log))
    return failed


if __name__ == "__main__":
    sys.exit(main())
