#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times rows quantised to 8 bits and their product with 8-bit weights on the first GPU through librefold_run, in a
graph: answers against double on sampled rows first, then in turns with TorchInductor and torch._scaled_mm.

    f8_products.py --library librefold_run.so --packages FOLDER [--out FILE.jsonl]

Packages are NAME.rfx, balanced and most-accurate say (sums of 4096 are the same under fastest): `refold compile --target cuda-sm90 --dtype bf16 --stability NAME
examples/fp8_quantised_product.fold -o NAME.rfx`.
"""

import argparse
import json
import pathlib
import subprocess
import sys

SIDE, ROWS, SAMPLED, BOUND = 4096, (1000, 1024, 4096, 8192), 64, 1.2e-2


def quantised(x):
    scale = x.abs().amax(-1, keepdim=True).float().clamp(min=1e-12) / 448
    import torch
    return (x.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def captured(run, launches=12):
    """A graph of launches, and how long one of them takes by it, in ms."""
    import torch
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            run()

    def once(count=3):
        times = []
        for _ in range(2):
            graph.replay()
        for _ in range(count):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / launches)
        return sorted(times)[count // 2]
    return once


def in_turns(timed, turns):
    """The median of each over turns, forwards and backwards: a card that warms, or is capped, is so for all of them."""
    found = {name: [] for name in timed}
    for turn in range(turns):
        for name in [*timed][::1 if turn % 2 == 0 else -1]:
            found[name].append(timed[name]())
    return {name: sorted(times)[turns // 2] for name, times in found.items()}, {name: min(times) for name, times in found.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True, type=pathlib.Path)
    parser.add_argument("--packages", required=True, type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    import torch
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    from packages import Library, Package
    torch.manual_seed(0)
    library, log, failed = Library(options.library), [], False

    def note(**fields):
        log.append(fields)
        print(" ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in fields.items()), flush=True)

    def clocks():
        return subprocess.run(["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()

    note(device=torch.cuda.get_device_name(), torch=torch.__version__)
    w = (torch.randn(SIDE, SIDE, device="cuda") * 100).clamp(-448, 448).to(torch.float8_e4m3fn)
    t = (torch.rand(SIDE, device="cuda") * 1e-3).bfloat16()
    t_wide = t.float()
    ours = {path.stem: Package(library, path) for path in sorted(options.packages.glob("*.rfx"))}
    for rows in ROWS:
        x = torch.randn(rows, SIDE, device="cuda", dtype=torch.bfloat16)
        sampled = torch.randint(0, rows, (SAMPLED,), device="cuda")
        q, scale = quantised(x[sampled])
        exact = (q.double() @ w.double().t()) * scale.double() * t.double()[None]
        operations = 2.0 * rows * SIDE * SIDE

        def judge(y):
            error = (y[sampled].double() - exact).abs().amax(1) / exact.abs().amax(1)
            return float(error.max()), float(error.max()) < BOUND and not bool(y.isnan().any())

        timed, errors, kept = {}, {}, []
        for name, package in ours.items():
            y = torch.full((rows, SIDE), float("nan"), device="cuda", dtype=torch.bfloat16)
            kept.append(y)  # a graph has its address only
            run = package.launcher([x, w, t], [y])
            run()
            torch.cuda.synchronize()
            errors[name] = judge(y)
            timed[name] = captured(run)
        for fast in (True, False) if rows in ROWS[1:] else ():
            def peer(x, w, t):
                q, scale = quantised(x)
                return torch._scaled_mm(q, w.t(), scale_a=scale, scale_b=t[None], out_dtype=torch.bfloat16, use_fast_accum=fast)
            torch._dynamo.reset()
            compiled, name = torch.compile(peer, dynamic=False), "inductor+_scaled_mm" + (" fast" if fast else "")
            errors[name] = judge(compiled(x, w, t_wide))
            timed[name] = captured(lambda: compiled(x, w, t_wide))
        medians, least = in_turns(timed, options.turns)
        for name, ms in medians.items():
            error, good = errors[name]
            failed |= not good
            note(name=name, rows=rows, good=int(good), error=error, ms=ms, least_ms=least[name], tflops=operations / ms / 1e9, clocks=clocks())
    if options.out:
        options.out.write_text("".join(json.dumps(one) + "\n" for one in log))
    return failed


if __name__ == "__main__":
    sys.exit(main())
