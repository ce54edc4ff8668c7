#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs packages on the first GPU through librefold_run, on PyTorch's arrays and stream: answers against double on
sampled rows, times by events, a graph of launches, PyTorch's own forms of the same.

    packages.py --library librefold_run.so --packages FOLDER [--before FOLDER] [--widths 4096,32768] [--peers] [--out FILE.jsonl]

A package is PROGRAM.DTYPE.rfx: `refold compile --target cuda-sm90 --dtype DTYPE PROGRAM -o ...`. Those of --before, of another
commit, are timed in turns with them, on the same arrays: the median of five rounds of each.
"""

import argparse
import ctypes
import json
import pathlib
import statistics
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from rows import DTYPES, GIB, PROGRAMS, error_of, make_inputs, poison, results_like, time_ms, unwritten_of  # noqa: E402


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(str(path.resolve()))
        self.lib.refold_error_message.restype = ctypes.c_char_p
        for name in ("open", "plan", "run", "enqueue"):
            getattr(self.lib, f"refold_package_{name}").restype = ctypes.c_void_p

    def check(self, error):
        if error:
            raise RuntimeError(self.lib.refold_error_message(ctypes.c_void_p(error)).decode())


class Package:
    def __init__(self, library, path):
        self.library, self.handle = library, ctypes.c_void_p()
        library.check(library.lib.refold_package_open(str(path).encode(), None, ctypes.byref(self.handle)))

    def launcher(self, inputs, outputs):
        shapes = [(ctypes.c_int64 * x.dim())(*x.shape) for x in inputs]
        plan = ctypes.c_void_p()
        self.library.check(self.library.lib.refold_package_plan(
            self.handle, (ctypes.c_void_p * len(shapes))(*map(ctypes.addressof, shapes)), ctypes.byref(plan)))
        given = (ctypes.c_uint64 * len(inputs))(*[x.data_ptr() for x in inputs])
        taken = (ctypes.c_uint64 * len(outputs))(*[x.data_ptr() for x in outputs])

        def run():
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            self.library.check(self.library.lib.refold_package_enqueue(self.handle, plan, given, taken, stream))
        return run

    def close(self):
        self.library.lib.refold_package_free(self.handle)


def replayed(run):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True, type=pathlib.Path)
    parser.add_argument("--packages", required=True, type=pathlib.Path)
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--widths", default="4096,32768,131072")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    library, log, failed = Library(options.library), [], False

    def note(**fields):
        log.append(fields)
        print(" ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in fields.items()), flush=True)

    x = torch.randint(-2**31, 2**31 - 1, (GIB // 4,), device="cuda", dtype=torch.int32)
    y = torch.empty_like(x)
    note(device=torch.cuda.get_device_name(), copy_tbs=2 * GIB / time_ms(lambda: y.copy_(x)) / 1e9)
    del x, y
    for path in sorted(options.packages.glob("*.rfx")):
        program, dtype_name = path.stem.split(".")[:2]
        if program not in PROGRAMS:
            continue
        function, kinds, *types = PROGRAMS[program]
        dtype = DTYPES[dtype_name]
        package = Package(library, path)
        before = Package(library, options.before / path.name) if options.before else None
        for width in map(int, options.widths.split(",")):
            rows = GIB // (width * torch.empty((), dtype=dtype).element_size())
            inputs = make_inputs(kinds, dtype, rows, width)
            results = results_like(function, inputs, types[0] if types else [])
            for r in results:
                poison(r)
            run = package.launcher(inputs, results)
            run()
            torch.cuda.synchronize()
            error = error_of(function, inputs, results)
            unwritten = sum(map(unwritten_of, results))
            good = unwritten == 0 and error < {"bf16": 4e-3, "f16": 1e-3, "f32": 2e-6}[dtype_name]
            failed |= not good
            moved = sum(t.numel() * t.element_size() for t in [*inputs, *results])
            ms = time_ms(run)
            first = [r.clone() for r in results]
            graph = time_ms(replayed(run))
            same = all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(first, results))
            failed |= not same
            note(program=program, dtype=dtype_name, width=width, ms=ms, tbs=moved / ms / 1e9, graph_ms=graph, error=error,
                 unwritten=unwritten, same_bits_in_graph=int(same))
            del first
            if before:
                runs = [before.launcher(inputs, results), run]
                times = zip(*[[time_ms(one, groups=7) for one in runs] for _ in range(5)])
                before_ms, ms = map(statistics.median, times)
                note(program=program, dtype=dtype_name, width=width, before_tbs=moved / before_ms / 1e9, tbs=moved / ms / 1e9)
                del runs
            if options.peers:
                torch._dynamo.reset()
                peer = torch.compile(function, dynamic=False)
                with torch.no_grad():
                    peer(*inputs)
                    ms = time_ms(lambda: peer(*inputs), launches=3, groups=7)
                note(program=program, dtype=dtype_name, width=width, peer="inductor", ms=ms, tbs=moved / ms / 1e9)
            del inputs, results, run
            torch.cuda.empty_cache()
        package.close()
        if before:
            before.close()
    if options.out:
        options.out.write_text("".join(json.dumps(one) + "\n" for one in log))
    sys.exit(failed)


if __name__ == "__main__":
    main()
