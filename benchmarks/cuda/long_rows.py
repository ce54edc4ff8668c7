#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times packages of rows with results along them on few long rows, on the first GPU, in graphs of launches that rotate
among arrays, beside PyTorch's kernels and TorchInductor.

    long_rows.py --library librefold_run.so --packages FOLDER [--before FOLDER] [--shapes 1x65536,4x262144] [--peers]

A package is PROGRAM.DTYPE.rfx, as packages.py takes them: softmax, layernorm, rmsnorm. Those of --before, of another commit,
are timed in turns with them. Every answer is held against double as a whole, and has to be the same 100 times.
"""

import argparse
import pathlib
import statistics
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from packages import Library, Package  # noqa: E402
from parts import graph_of  # noqa: E402
from rows import DTYPES, PROGRAMS, time_ms  # noqa: E402

SHAPES = "1x65536,1x1048576,4x262144,16x1048576,1x16777216"
ROUNDS, REPEATED = 3, 100
ERRORS = {"bf16": 4e-3, "f16": 1e-3, "f32": 2e-6}


def time_program(options, library, path, rows, length):
    """Fields of one line, and whether all was right."""
    program, name = path.stem.split(".")[:2]
    function, kinds, *_ = PROGRAMS[program]
    dtype = DTYPES[name]
    size = 2 * rows * length * torch.empty((), dtype=dtype).element_size()
    count = max(2, min(16, (256 << 20) // size))  # so that none waits in a cache
    ramp = torch.linspace(-2, 2, length, device="cuda")
    torch.manual_seed(rows)
    xs = [(torch.randn(rows, length, device="cuda") + ramp).to(dtype) for _ in range(count)]
    tables = [(torch.randn(length, device="cuda") * 0.25 + 1.0).to(dtype) for _ in kinds[1:]]
    ys = [torch.full_like(x, float("nan")) for x in xs]
    packages = {"ours": Package(library, path)}
    if options.before:
        packages["before"] = Package(library, options.before / path.name)
    exact, graphs, right = function(xs[0].double(), *(t.double() for t in tables)), {}, True
    fields = {"program": program, "dtype": name, "rows": rows, "length": length, "mb": size / 1e6}
    for who, package in packages.items():
        runs = [package.launcher([x, *tables], [y]) for x, y in zip(xs, ys)]
        runs[0]()
        error = ((ys[0].double() - exact).norm() / exact.norm()).nan_to_num(float("inf")).item()
        first, same = ys[0].clone(), True
        for _ in range(REPEATED if who == "ours" else 0):
            ys[0].fill_(float("nan"))
            runs[0]()
            same &= torch.equal(first, ys[0])
        fields[f"{who}_error"] = error
        right &= error < ERRORS[name] and same
        graphs[who] = graph_of(runs)
    times = {who: [] for who in graphs}
    for _ in range(ROUNDS):
        for who, graph in graphs.items():
            times[who].append(time_ms(graph.replay, 3, 7) / count * 1e3)
    fields |= {f"{who}_us": statistics.median(t) for who, t in times.items()}
    for package in packages.values():
        package.close()
    if options.peers:
        torch._dynamo.reset()
        compiled = torch.compile(function, dynamic=False)
        with torch.no_grad():
            compiled(xs[0], *tables)
            for who, peer in (("inductor", compiled), ("eager", function)):
                fields[f"{who}_us"] = time_ms(graph_of([lambda x=x: peer(x, *tables) for x in xs]).replay, 3, 7) / count * 1e3
    return fields, right


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--packages", type=pathlib.Path, required=True)
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--only", default="")
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    library, failed = Library(options.library), False
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    for path in sorted(options.packages.glob("*.rfx")):
        if options.only and path.stem not in options.only.split(","):
            continue
        for shape in options.shapes.split(","):
            fields, right = time_program(options, library, path, *map(int, shape.split("x")))
            print(" ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in fields.items()),
                  "right" if right else "WRONG", flush=True)
            failed |= not right
    sys.exit(failed)


if __name__ == "__main__":
    main()
