#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times attention, plain or with biases, soft caps and gates, from packages of several compilers, in turns, on the first GPU.

    versions.py --library librefold_run.so --packages OLD,NEW [--programs catalogue_05_pair_bias,...] [--lengths 1024,4096]
                [--head-widths 64,128,256] [--peers] [--out FILE.jsonl]

OLD, NEW: folders with catalogue_05_pair_bias.rfx, ...: `refold compile --target cuda-sm90 --dtype bf16
test/Catalogue/PROGRAM.fold -o ...` (attention: of examples), each by its own compiler. Every answer is compared with double on the first
heads, and every element has to be written, before a time counts; scores grow along the keys, so that every pivot
moves. Times are the median of 9 groups of launches, one group of each version in turn. --peers: FlexAttention.
"""

import argparse
import json
import pathlib
import statistics
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from packages import Library, Package  # noqa: E402

HEADS, TOKENS, SAMPLE = 8, 4096, 2  # heads, tokens of a batch, heads that are compared with double
BOUND = 4e-3  # in the norm: probabilities and results are rounded to bf16


def random(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def operands(length, width):
    batch = max(TOKENS // length, 1)
    q, k, v = (random(batch, HEADS, length, width) for _ in range(3))
    return q, (k * torch.linspace(0.5, 1.5, length, device="cuda")[:, None]).to(k.dtype), v


def reference(q, k, v, change, scale=None):
    """In double, of the sampled heads; `change` of their scores."""
    q, k, v = (x[:1, :SAMPLE].double() for x in (q, k, v))
    return torch.softmax(change(q @ k.mT * (scale or q.shape[-1] ** -0.5)), -1) @ v


def places(length):
    return torch.arange(length, device="cuda")


# Each: inputs, what the sampled heads are, what FlexAttention makes of a score, its scale (none: that of the width).


def attention(length, width):
    q, k, v = operands(length, width)
    return [q, k, v], reference(q, k, v, lambda s: s), None, None


def pair_bias(length, width):
    q, k, v = operands(length, width)
    bias, slope = random(HEADS, length, length), torch.rand(HEADS, device="cuda").mul(0.1).to(q.dtype)
    distance = (places(length)[:, None] - places(length)).abs().double()
    want = reference(q, k, v, lambda s: s + bias[:SAMPLE].double() - slope[:SAMPLE, None, None].double() * distance)
    return [q, k, v, bias, slope], want, lambda s, b, h, m, n: s + bias[h, m, n] - slope[h] * (m - n).abs(), None


def bucketed_bias(length, width):
    q, k, v = operands(length, width)
    q, table = (q * width ** -0.5).to(q.dtype), random(HEADS, 33)
    bucket = (places(length) - places(length)[:, None]).clamp(-16, 16) + 16
    want = reference(q, k, v, lambda s: s + table[:SAMPLE].double()[:, bucket], scale=1.0)
    return [q, k, v, table], want, lambda s, b, h, m, n: s + table[h, (n - m).clamp(-16, 16) + 16], 1.0


def soft_capped_attention(length, width):
    q, k, v = operands(length, width)
    want = reference(q, k, v, lambda s: 30.0 * torch.tanh(s / 30.0))
    return [x.flatten(0, 1) for x in (q, k, v)], want, lambda s, b, h, m, n: 30.0 * torch.tanh(s / 30.0), None


def gated_attention(length, width):
    q, k, v = operands(length, width)
    mask = (torch.rand(q.shape[0], length, device="cuda") > 0.1).to(q.dtype)
    pair, gate = random(HEADS, length, length), random(*q.shape)
    want = reference(q, k, v, lambda s: s + 1e9 * (mask[:1, None, None].double() - 1.0) + pair[:SAMPLE].double())
    want = want * torch.sigmoid(gate[:1, :SAMPLE].double())
    return [q, k, v, mask, pair, gate], want, lambda s, b, h, m, n: s + 1e9 * (mask[b, n] - 1.0) + pair[h, m, n], None


PROGRAMS = {"attention": attention, "catalogue_05_pair_bias": pair_bias, "catalogue_05_bucketed_bias": bucketed_bias,
            "catalogue_06_soft_capped_attention": soft_capped_attention, "catalogue_14_gated_attention": gated_attention}


def flex(inputs, score, scale, shape):
    from torch.nn.attention.flex_attention import flex_attention
    torch._dynamo.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    q, k, v = (x.view(shape) for x in inputs[:3])
    gate = inputs[5] if len(inputs) == 6 else None
    return lambda: compiled(q, k, v, score_mod=score, scale=scale) * (torch.sigmoid(gate) if gate is not None else 1)


def group_ms(run, launches):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(launches):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / launches


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True, type=pathlib.Path)
    parser.add_argument("--packages", required=True)
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--lengths", default="1024,4096")
    parser.add_argument("--head-widths", default="64,128,256")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    library, failed, log = Library(options.library), False, []
    folders = [pathlib.Path(folder) for folder in options.packages.split(",")]
    for program in options.programs.split(","):
        make = PROGRAMS[program]
        packages = {folder.name: Package(library, folder / f"{program}.rfx") for folder in folders}
        for length in map(int, options.lengths.split(",")):
            for width in map(int, options.head_widths.split(",")):
                torch.manual_seed(0)
                inputs, want, score, scale = make(length, width)
                shape = (-1, HEADS, length, width)
                runs, errors, times = {}, {}, {}
                for name, package in packages.items():
                    result = torch.full_like(inputs[0], float("nan"))
                    runs[name] = package.launcher(inputs, [result])
                    runs[name]()
                    torch.cuda.synchronize()
                    found = result.view(shape)[:1, :SAMPLE].double()
                    errors[name] = float((found - want).norm() / want.norm())
                    failed |= bool(torch.isnan(result).any()) or not errors[name] <= BOUND
                if options.peers:
                    try:
                        runs["flex"] = flex(inputs, score, scale, shape)
                        errors["flex"] = float((runs["flex"]()[:1, :SAMPLE].double() - want).norm() / want.norm())
                    except Exception as error:  # a peer that cannot is said and left out
                        runs.pop("flex", None)
                        print(f"{program} {length} {width} flex: {type(error).__name__}", flush=True)
                launches = max(2, min(200, int(6 / max(group_ms(next(iter(runs.values())), 3), 1e-3))))
                for _ in range(9):
                    for name, run in runs.items():
                        times.setdefault(name, []).append(group_ms(run, launches))
                medians = {name: statistics.median(found) for name, found in times.items()}
                log.append({"program": program, "length": length, "width": width, "dtype": "bf16", "ms": medians, "errors": errors})
                first = next(iter(medians.values()))
                print(f"{program.split('_', 2)[-1]:22} S {length:5} d {width:3}  " + "  ".join(
                    f"{name} {ms * 1e3:7.1f} us ({first / ms:.3f}, error {errors[name]:.1e})" for name, ms in medians.items()), flush=True)
    if options.out:
        options.out.write_text("".join(json.dumps(line) + "\n" for line in log))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
