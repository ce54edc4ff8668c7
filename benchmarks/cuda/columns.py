#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times reductions over the first axis of a matrix on the first GPU, by graphs of one launch, in turns with packages of
other builds and TorchInductor; whole answers against double before a time counts.

    columns.py --library librefold_run.so --packages FOLDER [--others FOLDER[,FOLDER]] [--peers] [--shapes 8192x4096,...] [--out FILE.jsonl]

A package is column_PROGRAM.DTYPE.rfx: `refold compile --target cuda-sm90 --dtype DTYPE benchmarks/suite/programs/column_PROGRAM.fold -o ...`.
"""

import argparse
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import torch  # noqa: E402

from packages import Library, Package, replayed  # noqa: E402
from rows import DTYPES, poison, time_ms, unwritten_of  # noqa: E402
from spills import error_of  # noqa: E402

ROUNDS = 3
PROGRAMS = {"column_softmax": lambda x: torch.softmax(x, 0), "column_logsumexp": lambda x: torch.logsumexp(x, 0),
            "column_variance": lambda x: x.var(0, correction=0)}
SHAPES = "8192x4096,65536x512,2048x16384,1048576x32,512x65536,1000x40000,300x100000,128x262144,1024x8192,4096x1000,4096x64,512x512"
BOUNDS = {"bf16": 6e-3, "f16": 1e-3, "f32": 2e-6}


def compiled(function, x):
    torch._dynamo.reset()
    run = torch.compile(function, dynamic=False)
    run(x)
    return replayed(lambda: run(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True, type=pathlib.Path)
    parser.add_argument("--packages", required=True, type=pathlib.Path)
    parser.add_argument("--others", default="")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    library, log, failed = Library(options.library), [], False
    print(torch.cuda.get_device_name(), flush=True)
    for path in sorted(options.packages.glob("column_*.rfx")):
        program, dtype = path.stem.split(".")
        function = PROGRAMS[program]
        folders = [options.packages, *map(pathlib.Path, filter(None, options.others.split(",")))]
        packages = [Package(library, folder / path.name) for folder in folders]
        for shape in options.shapes.split(","):
            rows, columns = map(int, shape.split("x"))
            torch.manual_seed(5)
            # Scores that grow along the column, so that every pivot moves.
            x = (torch.randn(rows, columns, device="cuda") + torch.linspace(0, 4, rows, device="cuda")[:, None]).to(DTYPES[dtype])
            exact = function(x.double())
            result = torch.empty(exact.shape, device="cuda", dtype=x.dtype)
            runs, errors = [package.launcher([x], [result]) for package in packages], []
            for run in runs:
                poison(result)
                run()
                torch.cuda.synchronize()
                errors.append(error_of([exact], [result]))
                failed |= bool(unwritten_of(result)) or not errors[-1] <= BOUNDS[dtype]
            del exact
            torch.cuda.empty_cache()
            named = dict(zip([folder.name for folder in folders], map(replayed, runs)))
            if options.peers:
                named["inductor"] = compiled(function, x)
            times = [statistics.median(t) for t in zip(*[[time_ms(run, groups=7) for run in named.values()] for _ in range(ROUNDS)])]
            moved = (x.numel() + result.numel()) * x.element_size()
            log.append({"program": program, "dtype": dtype, "shape": shape, "errors": errors, "ms": dict(zip(named, times)),
                        "tbs": moved / times[0] / 1e9})
            print(path.stem, shape, f"{moved / times[0] / 1e9:.2f} TB/s", " ".join(
                f"{name} {ms:.4f} ({ms / times[0]:.2f})" for name, ms in zip(named, times)), f"errors {max(errors):.1e}", flush=True)
            del x, result, runs, named
            torch.cuda.empty_cache()
        for package in packages:
            package.close()
    if options.out:
        options.out.write_text("".join(json.dumps(one) + "\n" for one in log))
    sys.exit(failed)


if __name__ == "__main__":
    main()
