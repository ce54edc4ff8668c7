#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times packages whose blocks share a row or a stream (decoding, a single long row) on the first GPU, in graphs of
launches that rotate among arrays, beside PyTorch's cuDNN and FlashAttention, TorchInductor and a read of the bytes.

    parts.py --library librefold_run.so --packages FOLDER [--peers]

Packages are PROGRAM.DTYPE.rfx of examples/variance.fold, entropy.fold and logsumexp.fold, and of kurtosis.fold and
decode.fold in benchmarks/suite/programs (decode: h=32, g=8, d=128, bf16); inertia.DTYPE.rfx is
test/Catalogue/catalogue_60_moment_of_inertia.fold. ragged*.rfx are of decode.fold with `length[b]: i32` behind its
arrays and `s = where(n < length, s, -inf)`; --only-ragged times these alone, several in turns.
"""

import argparse
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from packages import Library, Package  # noqa: E402
from rows import time_ms  # noqa: E402

HEADS, GROUPS, WIDTH, LAUNCHES, REPEATED = 32, 8, 128, 8, 200
DECODED = ((1, 32768), (16, 8192), (64, 8192))
ROWS = ((1, 1 << 24), (1, 1 << 27), (8, 1 << 21))
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
FORMS = {
    "variance": lambda x: (x.mean(-1), x.var(-1, unbiased=False)),
    "kurtosis": lambda x: (((x - x.mean(-1, keepdim=True)) ** 4).mean(-1) / x.var(-1, unbiased=False) ** 2,),
    "entropy": lambda x: (-(torch.softmax(x, -1) * torch.log_softmax(x, -1)).sum(-1),),
    "logsumexp": lambda x: (torch.logsumexp(x, -1),),
}


def inertia(mass, x):
    m = mass.abs()
    centre = (m[..., None] * x).sum(-2) / m.sum(-1, keepdim=True)
    return (m * ((x - centre[:, None]) ** 2).sum(-1)).sum(-1), centre


def graph_of(runs):
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for run in runs:
            run()
    stream.synchronize()
    with torch.cuda.graph(graph):
        for run in runs:
            run()
    return graph


def times_of(runs, size):
    """Three times of one run each, as text."""
    graph = graph_of(runs)
    times = [time_ms(graph.replay, 4, 15) / len(runs) for _ in range(3)]
    return " ".join(f"{ms * 1e3:.1f}us {size / ms * 1e-9:.2f}TB/s" for ms in times)


def decode(options, library, batch, length):
    count = 8 if batch == 1 else 4 if batch == 16 else 1  # arrays in turns, so that none waits in a cache
    ramp = torch.linspace(-1, 1, length, device="cuda", dtype=torch.bfloat16)[:, None] * 0.25
    shape = (batch, GROUPS, length, WIDTH)
    keys = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) + ramp for _ in range(count)]
    values = [torch.randn_like(key) for key in keys]
    q = torch.randn(batch, HEADS, WIDTH, device="cuda", dtype=torch.bfloat16)
    size = batch * GROUPS * length * WIDTH * 4
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION) if options.peers else ():
        def peer(i):
            with torch.no_grad():
                F.scaled_dot_product_attention(q[:, :, None], keys[i % count], values[i % count], enable_gqa=True)
        with sdpa_kernel(backend):
            print(f"B{batch} L{length} {backend.name} {times_of([lambda i=i: peer(i) for i in range(LAUNCHES)], size)}", flush=True)
    for path in sorted(options.packages.glob("decode*.rfx")):
        package, o = Package(library, path), torch.empty(batch, HEADS, WIDTH, device="cuda", dtype=torch.bfloat16)
        runs, error = [package.launcher([q, k, v], [o]) for k, v in zip(keys, values)], 0.0
        for i, b in ((i, b) for i in {0, count - 1} for b in {0, batch - 1}):
            o.fill_(float("nan"))
            runs[i]()
            rows = q[b].double().view(GROUPS, HEADS // GROUPS, WIDTH)
            weights = torch.softmax(rows @ keys[i][b].double().transpose(1, 2) / WIDTH ** 0.5, -1)
            exact = (weights @ values[i][b].double()).view(HEADS, WIDTH)
            error = max(error, ((o[b].double() - exact).norm() / exact.norm()).nan_to_num(float("inf")).item())
        first, is_same = o.clone(), True
        for _ in range(REPEATED):
            runs[-1]()
            is_same &= torch.equal(first, o)
        took = times_of([runs[i % count] for i in range(LAUNCHES)], size)
        print(f"B{batch} L{length} {path.stem} error {error:.2e} {'same bits' if is_same else 'OTHER BITS'} {took}", flush=True)
        package.close()


def ragged(options, library, batch, length):
    """Caches filled up to lengths at random, 1 to the longest, then all of them whole."""
    paths = sorted(options.packages.glob("ragged*.rfx"))
    if not paths:
        return
    torch.manual_seed(batch)
    shape = (batch, GROUPS, length, WIDTH)
    key, value = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    key += torch.linspace(-0.25, 0.25, length, device="cuda", dtype=torch.bfloat16)[:, None]
    q = torch.randn(batch, HEADS, WIDTH, device="cuda", dtype=torch.bfloat16)
    packages = [Package(library, path) for path in paths]
    for what in ("ragged", "even"):
        lengths = torch.randint(1, length + 1, (batch,), device="cuda", dtype=torch.int32)
        lengths[0] = length
        if what == "even":
            lengths.fill_(length)
        size, graphs, notes = int(lengths.sum()) * GROUPS * WIDTH * 4, [], []
        for package in packages:
            o, error = torch.full((batch, HEADS, WIDTH), float("nan"), device="cuda", dtype=torch.bfloat16), 0.0
            run = package.launcher([q, key, value, lengths], [o])
            run()
            for b in range(batch):
                rows, end = q[b].double().view(GROUPS, HEADS // GROUPS, WIDTH), int(lengths[b])
                weights = torch.softmax(rows @ key[b, :, :end].double().transpose(1, 2) / WIDTH ** 0.5, -1)
                exact = (weights @ value[b, :, :end].double()).view(HEADS, WIDTH)
                error = max(error, ((o[b].double() - exact).norm() / exact.norm()).nan_to_num(float("inf")).item())
            first, is_same = o.clone(), True
            for _ in range(30):
                run()
                is_same &= torch.equal(first, o)
            notes.append(f"error {error:.2e} {'same bits' if is_same else 'OTHER BITS'}")
            graphs.append((graph_of([run] * LAUNCHES), o))
        times = [[time_ms(graph.replay, 4, 7) / LAUNCHES for graph, _ in graphs] for _ in range(5)]
        for path, note, own in zip(paths, notes, zip(*times)):
            ms = sorted(own)[len(own) // 2]
            print(f"B{batch} L{length} {what} {path.stem} {note} {ms * 1e3:.1f}us {size / ms * 1e-9:.2f}TB/s", flush=True)
    for package in packages:
        package.close()


def reduce_rows(options, library, name, rows, length):
    count = 8 if rows * length < 1 << 27 else 2
    ramp = torch.linspace(-2, 2, length, device="cuda")
    arrays = [(torch.randn(rows, length, device="cuda") + ramp).to(TYPES[name]) for _ in range(count)]
    size, what = arrays[0].nbytes, f"{name} {rows}x{length}"
    print(f"{what} read, by an integer maximum: {times_of([lambda x=x: x.view(-1).view(torch.int32).max() for x in arrays], size)}", flush=True)
    for path in sorted(options.packages.glob(f"*.{name}.rfx")):
        form = FORMS.get(path.stem.split(".")[0])
        if not form:
            continue
        package = Package(library, path)
        outputs = [torch.full_like(one, float("nan")) for one in form(arrays[0][:, :64])]
        runs = [package.launcher([x], outputs) for x in arrays]
        runs[0]()
        error = max(((own.double() - exact).abs() / exact.abs().clamp(min=1e-3)).max().nan_to_num(float("inf")).item()
                    for own, exact in zip(outputs, form(arrays[0].double())))
        print(f"{what} {path.stem} error {error:.1e} {times_of(runs, size)}", flush=True)
        package.close()
    if options.peers and length == 1 << 24:
        for program, form in FORMS.items():
            torch._dynamo.reset()
            compiled = torch.compile(form, dynamic=False)
            with torch.no_grad():
                compiled(arrays[0])
                print(f"{what} {program} TorchInductor {times_of([lambda x=x: compiled(x) for x in arrays], size)}", flush=True)


def points(options, library, name, length):
    """Moment of inertia in space: masses and coordinates of one set of points."""
    path = options.packages / f"inertia.{name}.rfx"
    if not path.exists():
        return
    arrays = [((torch.rand(1, length, device="cuda") + 0.1).to(TYPES[name]),
               (torch.randn(1, length, 3, device="cuda") + 2.0).to(TYPES[name])) for _ in range(4)]
    size, what = sum(a.nbytes for a in arrays[0]), f"{name} {length} points"
    reads = [lambda x=x: x.view(-1).view(torch.int32).max() for _, x in arrays]
    print(f"{what} read of x, by an integer maximum: {times_of(reads, arrays[0][1].nbytes)}", flush=True)
    package = Package(library, path)
    outputs = [torch.full_like(one, float("nan")) for one in inertia(*(a[:, :64] for a in arrays[0]))]
    runs = [package.launcher(list(a), outputs) for a in arrays]
    runs[0]()
    exact = inertia(*(a.double() for a in arrays[0]))
    error = max(((own.double() - one).abs() / one.abs().max()).max().nan_to_num(float("inf")).item() for own, one in zip(outputs, exact))
    print(f"{what} inertia error {error:.1e} {times_of(runs, size)}", flush=True)
    package.close()
    if options.peers:
        compiled = torch.compile(inertia, dynamic=False)
        with torch.no_grad():
            compiled(*arrays[0])
            print(f"{what} inertia TorchInductor {times_of([lambda a=a: compiled(*a) for a in arrays], size)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--packages", type=pathlib.Path, required=True)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--only-ragged", action="store_true")
    options = parser.parse_args()
    library = Library(options.library)
    print(torch.cuda.get_device_name(), torch.__version__, "cuDNN", torch.backends.cudnn.version(), flush=True)
    for batch, length in DECODED:
        ragged(options, library, batch, length)
        if not options.only_ragged:
            decode(options, library, batch, length)
    if options.only_ragged:
        return
    for name in TYPES:
        for rows, length in ROWS:
            reduce_rows(options, library, name, rows, length)
        points(options, library, name, 1 << 24)


if __name__ == "__main__":
    main()
