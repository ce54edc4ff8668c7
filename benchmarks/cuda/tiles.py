#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times kernels over tiles of the CUDA target on the first GPU, and PyTorch's attention on the same inputs.

    tiles.py --bundles FOLDER [--before FOLDER] [--peers] [--lengths 512,16384] [--out FILE.jsonl]

A bundle is NAME.WIDTH.DTYPE.json beside its cubin, as build_bundles.py --tiles makes it; those of --before are another
commit's. Every answer is compared with double on sampled rows, and every element has to be written, before a time counts; scores
grow along the keys, so that every pivot moves. Times are the median of 15 groups of launches, replayed from
graphs (what a host takes for a launch differs), one group of each kernel in turn (the first one timed after a
pause is slower).
"""

import argparse
import ctypes
import json
import math
import pathlib
import statistics
import sys

import torch

from rows import DTYPES, Driver

F = torch.nn.functional
MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def maps_of(driver, entry, tensors):
    """What the entry is told of arrays that it copies by boxes, one behind the other, at a multiple of 64."""
    memory = ctypes.create_string_buffer(128 * len(entry["maps"]) + 64)
    begin = -(-ctypes.addressof(memory) // 64) * 64
    for i, m in enumerate(entry["maps"]):
        t, rank = tensors[m["operand"]], 1 + len(m["indices"])
        size = t.element_size()
        u64, u32 = ctypes.c_uint64 * rank, ctypes.c_uint32 * rank
        extents = u64(extent(m["columns"], tensors) * size, *[extent(x["extent"], tensors) for x in m["indices"]])
        strides = u64(*[t.stride(x["dim"]) * size if x["dim"] >= 0 else x["bytes"] for x in m["indices"]])
        # Bytes, boxes of 128 of them, swizzled by 128, zeros where nothing is.
        driver.call("cuTensorMapEncodeTiled", ctypes.c_void_p(begin + 128 * i), 0, rank, ctypes.c_void_p(t.data_ptr()), extents, strides,
                    u32(128, m["box_rows"], *[1] * (rank - 2)), u32(*[1] * rank), 0, 3, 0, 0)
    return memory, begin


def launch(driver, function, blocks, entry, values, maps):
    cells = [ctypes.c_int64(v) for v in values]
    array = (ctypes.c_void_p * (len(cells) + 1))(*[ctypes.cast(ctypes.byref(c), ctypes.c_void_p) for c in cells], maps[1])
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    driver.call("cuLaunchKernel", function, blocks, 1, 1, entry["threads"], 1, 1, entry["shared_bytes"], stream, array, None)


def replayed(run, launches):
    """A graph of so many launches."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            run()
    return graph.replay


def times_in_turn(graphs, launches, groups=15, replays=2):
    """{name: ms of a launch}: medians, forwards and backwards."""
    times = {name: [] for name in graphs}
    for replay in graphs.values():
        replay()
    torch.cuda.synchronize()
    for group in range(groups):
        for name in list(graphs)[::-1 if group % 2 else 1]:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(replays):
                graphs[name]()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) / launches / replays)
    return {name: statistics.median(found) for name, found in times.items()}


def values_of(kernel, tensors):
    values = []
    for p in kernel["parameters"]:
        t = tensors[p["operand"]]
        if p["kind"] in ("workspace", "tickets"):  # of entries whose blocks share a stream: not launched here
            values.append(0)
            continue
        values.append({"pointer": t.data_ptr, "size": lambda: t.shape[p["dim"]],
                       "stride": lambda: t.stride(p["dim"])}[p["kind"]]())
    return values


def extent(e, tensors):
    return e["constant"] if e["operand"] < 0 else tensors[e["operand"]].shape[e["dim"]]


def walked(kernel, entry, length):
    """As LaunchConditions.cpp has it."""
    columns, growing = entry["vectors"], kernel["tiles"]["growing"]
    ends_inside = columns if entry["rows"] % columns else 0
    is_third = f"REFOLD_UNIT_KERNEL(128, 3)\n{entry['name']}(" in kernel["text"]
    beside = (47 if is_third else 87) * (2 if growing else 1)
    return ((length + entry["rows"] + ends_inside if growing else -(-length // columns) * columns) + beside) * (105 if columns < 64 else 103 if columns < 80 else 100)


def chosen_entry(kernel, tensors):
    depth, width = extent(kernel["tiles"]["depth"], tensors), extent(kernel["tiles"]["width"], tensors)
    rows, length = extent(kernel["tiles"]["rows"], tensors), extent(kernel["stream"], tensors)
    kinds = {}
    for e in kernel["entries"]:
        kinds.setdefault((e["rows"], e["width"], e["deepest"], e["widest"], "roles" in e["name"], e["most_blocks"]), []).append(e)
    for e in [min(kind, key=lambda e: walked(kernel, e, length)) if kind[0]["name"].split("_")[-1].startswith("tiles") else e
              for kind in kinds.values() for e in kind]:
        if rows < e["fewest_rows"] or e["most_blocks"]:
            continue
        if depth <= e["deepest"] and width <= e["widest"] and depth % e["width"] == 0 and width % e["width"] == 0:
            return e
    return None


def make_inputs(name, dtype, tokens, length, width, heads):
    torch.manual_seed(length + width)
    batch = max(1, tokens // length)
    groups = heads // 4 if name == "attention_gqa" else heads
    q = torch.randn(batch, heads, length, width, device="cuda", dtype=torch.float32)
    k = torch.randn(batch, groups, length, width, device="cuda", dtype=torch.float32)
    v = torch.randn(batch, groups, length, width, device="cuda", dtype=torch.float32)
    q[..., 0] = 1.0
    k[..., 0] += torch.linspace(-4, 4, length, device="cuda") * math.sqrt(width)
    return [x.to(dtype) for x in (q, k, v)]


def error_of(name, inputs, result):
    """The deviation from double on sampled rows of three heads."""
    q, k, v = inputs
    length = q.shape[2]
    rows = sorted({0, 1, 63, 64, length // 3, length // 2, length - 2, length - 1})
    worst = 0.0
    for b, h in [(0, 0), (q.shape[0] - 1, q.shape[1] - 1), (q.shape[0] // 2, q.shape[1] // 2)]:
        g = h * k.shape[1] // q.shape[1]
        scores = q[b, h, rows].double() @ k[b, g].double().T / math.sqrt(q.shape[3])
        if "causal" in name:
            hidden = torch.arange(length, device="cuda")[None] > torch.tensor(rows, device="cuda")[:, None]
            scores = scores.masked_fill(hidden, -math.inf)
        exact = torch.softmax(scores, -1) @ v[b, g].double()
        found = result[b, h, rows].double()
        worst = max(worst, ((found - exact).norm() / exact.norm()).item())
    return worst


def peers(name, inputs):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    q, k, v = inputs
    for label, backend in [("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash_attention_2", SDPBackend.FLASH_ATTENTION)]:
        def run(backend=backend):
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal="causal" in name, enable_gqa=k.shape[1] != q.shape[1])
        yield label, run


def runner(driver, path, tensors):
    """(launches the bundle's kernel on the arrays, its entry)."""
    kernel = json.loads(path.read_text())["kernels"][0]
    module = driver.load(path.with_suffix(".cubin"))
    entry = chosen_entry(kernel, tensors)
    function = driver.function(module, entry["name"])
    driver.call("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, entry["shared_bytes"])
    values = values_of(kernel, tensors)
    blocks = -(-extent(kernel["tiles"]["rows"], tensors) // entry["rows"])
    for row in kernel["rows"]:
        blocks *= extent(row, tensors)
    if entry["blocks_per_unit"]:
        units = torch.cuda.get_device_properties(0).multi_processor_count
        blocks = min(blocks, units * entry["blocks_per_unit"])
    maps = maps_of(driver, entry, tensors)
    return lambda: launch(driver, function, blocks, entry, values, maps), entry["name"].split("_")[-1]


def check(name, run, inputs, result):
    """(the deviation from double, elements that are not written, whether both are as they should be, and bits five times the same)."""
    run()
    torch.cuda.synchronize()
    unwritten, error, first = int(result.isnan().sum()), error_of(name, inputs, result), result.clone()
    for _ in range(5):
        run()
    torch.cuda.synchronize()
    return error, unwritten, unwritten == 0 and error < 8e-3 and torch.equal(first, result)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bundles", required=True, type=pathlib.Path)
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--lengths", default="512,1024,4096,16384")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    driver = Driver()
    log, failed = [], False

    def note(**fields):
        log.append(fields)
        print(" ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in fields.items()), flush=True)

    note(device=torch.cuda.get_device_name(), torch=torch.__version__)
    for path in sorted(options.bundles.glob("*.json")):
        parts = path.stem.split(".")
        if len(parts) != 3 or (options.only and path.stem not in options.only.split(",")):
            continue
        name, width, dtype_name = parts[0], int(parts[1]), parts[2]
        heads = 8 if name == "attention_gqa" else 2048 // width
        for length in map(int, options.lengths.split(",")):
            inputs = make_inputs(name, DTYPES[dtype_name], options.tokens, length, width, heads)
            flops = 4.0 * inputs[0].numel() * length * (0.5 if "causal" in name else 1.0)
            launches, graphs, found = max(4, int(8192 / length)), {}, {}
            results = []  # which graphs write
            for label, folder in [("ours", options.bundles), ("before", options.before)]:
                if folder is None or not (folder / path.name).exists():
                    continue
                results.append(torch.full_like(inputs[0], float("nan")))
                run, entry = runner(driver, folder / path.name, [*inputs, results[-1]])
                error, unwritten, good = check(name, run, inputs, results[-1])
                failed |= not good
                found[label] = {"entry": entry, "error": error, "unwritten": unwritten}
                if good:
                    graphs[label] = replayed(run, launches)
            for label, peer in peers(name, inputs) if options.peers else ():
                try:
                    found[label] = {"error": error_of(name, inputs, peer())}
                    graphs[label] = replayed(peer, launches)
                except RuntimeError as problem:
                    found[label] = {"failed": str(problem).splitlines()[0][:80]}
            times = times_in_turn(graphs, launches)
            for label, fields in found.items():
                peer = {} if label == "ours" else {"peer": label}
                if label in times or label in ("ours", "before"):
                    ms = times.get(label, float("nan"))
                    fields = {"ms": ms, "tflops": flops / ms / 1e9} | fields
                note(program=name, width=width, dtype=dtype_name, length=length, **peer, **fields)
    if options.out:
        options.out.write_text("".join(json.dumps(x) + "\n" for x in log))
    sys.exit(failed)


if __name__ == "__main__":
    main()
