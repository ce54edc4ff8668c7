#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times softmax with the best of every row on the first GPU, and PyTorch's on the same inputs.

    lists.py --bundles FOLDER [--rows 1048576] [--widths 64,128,256] [--entries chosen|all] [--peers] [--out FILE.jsonl]

Bundles are those of test/Target/CUDA/Inputs/router.fold (build_bundles.py --programs PATH), named after
it. Every place of every row is compared with a stable sort of all keys, every weight with double, before a
time counts. Keys are rounded to 16 bits, so that many are equal.
"""

import argparse
import json
import pathlib
import sys

import torch

from rows import DTYPES, Driver, chosen_entry, time_ms, values_of

K = 8


def written(x):
    return torch.topk(torch.softmax(x.float(), -1), K)


def exact_of(x, some):
    """(weights in double, places): of equal keys the earlier one first. Of `some` rows at once."""
    for first in range(0, x.shape[0], some):
        part = x[first:first + some]
        keys, places = torch.sort(part, dim=-1, descending=True, stable=True)
        shares = torch.softmax(part.double(), -1)
        yield first, shares.gather(1, places[:, :K]), places[:, :K].int()


def is_right(x, weight, expert, bound):
    worst = 0.0
    for first, exact, places in exact_of(x, 1 << 17):
        rows = slice(first, first + exact.shape[0])
        if not torch.equal(expert[rows], places):
            return float("nan")
        worst = max(worst, ((weight[rows].double() - exact).abs() / exact).max().item())
    return worst if worst <= bound else float("nan")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bundles", required=True, type=pathlib.Path)
    parser.add_argument("--entries", default="chosen")
    parser.add_argument("--rows", type=int, default=1 << 20)
    parser.add_argument("--widths", default="64,128,256")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    driver, log, failed = Driver(), [], False

    def note(**fields):
        log.append(fields)
        print(" ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in fields.items()), flush=True)

    note(device=torch.cuda.get_device_name(), torch=torch.__version__, rows=options.rows)
    for path in sorted(options.bundles.glob("*.json")):
        program, dtype_name = path.stem.split(".")
        kernel = json.loads(path.read_text())["kernels"][0]
        module, dtype = driver.load(path.with_suffix(".cubin")), DTYPES[dtype_name]
        for width in map(int, options.widths.split(",")):
            torch.manual_seed(width)
            x = torch.randn(options.rows, width, device="cuda").to(dtype)
            weight = torch.empty(options.rows, K, device="cuda", dtype=dtype)
            expert = torch.empty(options.rows, K, device="cuda", dtype=torch.int32)
            moved = sum(t.numel() * t.element_size() for t in (x, weight, expert))
            values = values_of(kernel, [x, weight, expert])
            for e in kernel["entries"]:
                fits = not e["resident"] or e["longest"] >= width
                chosen = e["name"] == chosen_entry(kernel, width, options.rows)
                if width % e["width"] or not fits or (options.entries == "chosen" and not chosen):
                    continue
                handle = driver.function(module, e["name"])
                weight.fill_(float("nan"))
                expert.fill_(-2)
                chunk = e["width"] if "lanes" in e["name"] else e["threads"] * e["vectors"] * e["width"]
                shared = -(-width // chunk) * chunk * e["kept_bytes"] + e["shared_bytes"]
                if shared:
                    driver.allow_shared(handle, shared)
                run = lambda: driver.launch(handle, -(-options.rows // e["rows"]), e["threads"] * e["rows"], values, shared)
                run()
                torch.cuda.synchronize()
                error = is_right(x, weight, expert, {"bf16": 5e-3, "f16": 1e-3, "f32": 3e-6}[dtype_name])
                failed |= error != error
                # A group's events and first launch are 10 us.
                ms = time_ms(run, launches=40) if error == error else float("nan")
                note(program=program, dtype=dtype_name, width=width, entry=e["name"], chosen=int(chosen), ms=ms, tbs=moved / ms / 1e9,
                     error=error)
            if options.peers:
                for peer, f in [("torch", written), ("inductor", torch.compile(written, dynamic=False))]:
                    with torch.no_grad():
                        f(x)
                        ms = time_ms(lambda: f(x), launches=2, groups=5)
                    note(program=program, dtype=dtype_name, width=width, peer=peer, ms=ms)
                torch._dynamo.reset()
            del x, weight, expert
            torch.cuda.empty_cache()
    if options.out:
        options.out.write_text("".join(json.dumps(x) + "\n" for x in log))
    return failed


if __name__ == "__main__":
    sys.exit(main())
