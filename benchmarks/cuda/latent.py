#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times decoding over a compressed cache (keys of 576, their first 512 the values, 128 heads) on the first GPU, in
graphs of launches that rotate among caches, beside TorchInductor; answers against double first, scores that grow.

    latent.py --programs FOLDER
    latent.py --library librefold_run.so --package latent_decode.rfx [--ragged latent_ragged.rfx[,OTHER.rfx]] [--peers]

The package: `refold compile --target cuda-sm90 --dtype bf16 --dim e=512 benchmarks/suite/programs/latent_decode.fold`; the ragged
one, of caches filled up to lengths that data say, likewise of the program that --programs writes. Several are timed in turns.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
if "--programs" not in sys.argv:
    import torch
    from packages import Library, Package
    from parts import graph_of
    from rows import time_ms

RAGGED = """latent_ragged(q[b,h,d=576], c[b,n,d], length[b]: i32) -> o
  s[b,h,n] = where(n < length, sum(d: q * c) * rsqrt(192.0), -inf)
  t = max(n: s)
  p = exp(s - t)
  o[b,h,e] = sum(n: p * c[b,n,e]) / sum(n: p)
"""
DEPTH, WIDTH, LAUNCHES, REPEATED = 576, 512, 8, 30
#: Batch, heads, length; the first four only for their answers.
SHAPES = ((3, 128, 1000), (2, 16, 77), (1, 128, 1), (70, 128, 300), (16, 128, 8192), (64, 128, 4096), (1, 128, 8192), (1, 128, 32768))
TIMED = 4
RAGGED_SHAPES = ((3, 128, 1000), (16, 128, 8192), (64, 128, 4096))


def attention(q, c):
    return torch.softmax((q @ c.mT).float() * 192 ** -0.5, -1).to(c.dtype) @ c[..., :WIDTH]


def error_of(o, q, c):
    weights = torch.softmax(q.double() @ c.double().mT * 192 ** -0.5, -1)
    exact = weights @ c[..., :WIDTH].double()
    return ((o.double() - exact).norm() / exact.norm()).nan_to_num(float("inf")).item()


def describe(runs, flops):
    graph = graph_of(runs)
    times = sorted(time_ms(graph.replay, 4, 15) / len(runs) for _ in range(3))
    return f"{times[1] * 1e3:.1f} us ({times[0] * 1e3:.1f} to {times[2] * 1e3:.1f}), {flops / times[1] * 1e-9:.0f} TFLOP/s"


def measure(options, library, shape, is_timed):
    batch, heads, length = shape
    count = 4 if batch == 1 else 2 if batch == 16 else 1  # caches in turns, so that none waits in the L2
    ramp = torch.linspace(-0.25, 0.25, length, device="cuda", dtype=torch.bfloat16)[:, None]
    caches = [torch.randn(batch, length, DEPTH, device="cuda", dtype=torch.bfloat16) * 0.5 + ramp for _ in range(count)]
    q = torch.randn(batch, heads, DEPTH, device="cuda", dtype=torch.bfloat16)
    o = torch.full((batch, heads, WIDTH), float("nan"), device="cuda", dtype=torch.bfloat16)
    name, flops = f"B{batch} H{heads} L{length}", 2 * batch * heads * length * (DEPTH + WIDTH)
    package = Package(library, options.package)
    runs = [package.launcher([q, c], [o]) for c in caches]
    runs[-1]()
    picked = sorted({0, batch - 1})
    error, first, is_same = max(error_of(o[b], q[b], caches[-1][b]) for b in picked), o.clone(), True
    for _ in range(REPEATED):
        runs[-1]()
        is_same &= torch.equal(first, o)
    took = describe([runs[i % count] for i in range(LAUNCHES)], flops) if is_timed else "not timed"
    print(f"{name}: error {error:.2e}, {'same bits' if is_same else 'OTHER BITS'}, {took}", flush=True)
    if options.peers and is_timed:
        compiled = torch.compile(attention, dynamic=False)
        worst = max(error_of(compiled(q, caches[-1])[b], q[b], caches[-1][b]) for b in picked)
        took = describe([lambda i=i: compiled(q, caches[i % count]) for i in range(LAUNCHES)], flops)
        print(f"{name}: TorchInductor error {worst:.2e}, {took}", flush=True)
    package.close()


def measure_ragged(options, library, shape):
    """Lengths at random, 1 to the longest, then all of them whole; TFLOP/s of what is there."""
    batch, heads, length = shape
    torch.manual_seed(batch)
    cache = torch.randn(batch, length, DEPTH, device="cuda", dtype=torch.bfloat16) * 0.5
    cache += torch.linspace(-0.25, 0.25, length, device="cuda", dtype=torch.bfloat16)[:, None]
    q = torch.randn(batch, heads, DEPTH, device="cuda", dtype=torch.bfloat16)
    paths = [pathlib.Path(name) for name in options.ragged.split(",")]
    packages = [Package(library, path) for path in paths]
    for what in ("ragged", "even"):
        lengths = torch.randint(1, length + 1, (batch,), device="cuda", dtype=torch.int32)
        lengths[0] = length
        if what == "even":
            lengths.fill_(length)
        flops = 2 * heads * int(lengths.sum()) * (DEPTH + WIDTH)
        graphs, notes = [], []
        for package in packages:
            o = torch.full((batch, heads, WIDTH), float("nan"), device="cuda", dtype=torch.bfloat16)
            run = package.launcher([q, cache, lengths], [o])
            run()
            error = max(error_of(o[b], q[b], cache[b, :int(lengths[b])]) for b in range(batch))
            first, is_same = o.clone(), True
            for _ in range(REPEATED):
                run()
                is_same &= torch.equal(first, o)
            notes.append(f"error {error:.2e}, {'same bits' if is_same else 'OTHER BITS'}")
            graphs.append((graph_of([run] * LAUNCHES), o))
        times = [[time_ms(graph.replay, 4, 7) / LAUNCHES for graph, _ in graphs] for _ in range(5)]
        for path, note, own in zip(paths, notes, zip(*times)):
            ms = sorted(own)[len(own) // 2]
            print(f"{path.stem} B{batch} L{length} {what}: {note}, {ms * 1e3:.1f} us ({min(own) * 1e3:.1f} to {max(own) * 1e3:.1f}), "
                  f"{flops / ms * 1e-9:.0f} TFLOP/s", flush=True)
    for package in packages:
        package.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=pathlib.Path)
    parser.add_argument("--library", type=pathlib.Path)
    parser.add_argument("--package", type=pathlib.Path)
    parser.add_argument("--ragged", default="")
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    if options.programs:
        options.programs.mkdir(parents=True, exist_ok=True)
        (options.programs / "latent_ragged.fold").write_text(RAGGED)
        return
    library = Library(options.library)
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    for i, shape in enumerate(SHAPES if options.package else ()):
        measure(options, library, shape, i >= TIMED)
    for shape in RAGGED_SHAPES if options.ragged else ():
        measure_ragged(options, library, shape)


if __name__ == "__main__":
    main()
