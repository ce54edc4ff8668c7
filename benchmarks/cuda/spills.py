#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times what spills against what does not: programs of the catalogue, packaged by several builds of the compiler, on the
first GPU, in turns; whole answers against double before a time counts.

    spills.py --library librefold_run.so --packages FOLDER --others FOLDER[,FOLDER] [--out FILE.jsonl]

A package is PROGRAM.DTYPE.rfx or PROGRAM.DTYPE.WIDTH.rfx (`refold compile --dtype DTYPE --dim d=WIDTH --dim e=WIDTH`) of
test/Catalogue or examples; a folder that lacks one of them has nothing to say of it. A ratio above 1 says that the first folder is quicker.
"""

import argparse
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import torch  # noqa: E402

from packages import Library, Package  # noqa: E402
from rows import DTYPES, poison, time_ms, unwritten_of  # noqa: E402

ROUNDS, GROUPS = 5, 7
LENGTHS = ((1, 16, 1000), (2, 16, 2048), (1, 16, 4096))  # batch, heads, rows and stream


def pair_bias(q, k, v, bias, slope):
    at = torch.arange(k.shape[-2], device=q.device, dtype=q.dtype)
    s = q @ k.mT * q.shape[-1] ** -0.5 + bias - slope[:, None, None] * (at[:q.shape[-2], None] - at).abs()
    return torch.softmax(s, -1) @ v


def distance_bias(q, k, v, slope):
    at = torch.arange(k.shape[-2], device=q.device, dtype=q.dtype)
    s = q @ k.mT * q.shape[-1] ** -0.5 - slope[:, None, None] * (at[:, None] - at)
    return torch.softmax(s.masked_fill(at > at[:, None], -torch.inf), -1) @ v


def bucketed_bias(q, k, v, table):
    at = torch.arange(q.shape[-2], device=q.device)
    buckets = (at - at[:, None]).clamp(-16, 16) + 16
    return torch.softmax(q @ k.mT + table[:, buckets], -1) @ v


def gated_attention(q, k, v, mask, pair, gate):
    a = q @ k.mT * q.shape[-1] ** -0.5 + 1e9 * (mask[:, None, None, :] - 1) + pair
    return torch.softmax(a, -1) @ v * torch.sigmoid(gate)


def layer_norm_backward(x, dy, gamma):
    centred = x - x.mean(-1, keepdim=True)
    rs = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)
    xh, g = centred * rs, dy * gamma
    dx = rs * (g - g.mean(-1, keepdim=True) - xh * (g * xh).mean(-1, keepdim=True))
    return dx, (dy * xh).sum(0), dy.sum(0)


def mixture_step(x, logw, mean, prec):
    r = torch.softmax(logw - 0.5 * prec * (x[:, None] - mean) ** 2, -1)
    weight = r.sum(0)
    mu = (r * x[:, None]).sum(0) / weight
    return weight, mu, (r * (x[:, None] - mu) ** 2).sum(0) / weight


def attention_probes(q, k, v):
    s = q @ k.mT * q.shape[-1] ** -0.5
    p = torch.softmax(s, -1)
    return p @ v, -(p * torch.log_softmax(s, -1)).sum(-1), p.amax(-1)


def heads(batch, count, length, width, dtype):
    """q, k, v of small numbers; keys grow along the stream, so that every pivot moves."""
    q, k, v = (torch.randn(batch, count, length, width, device="cuda") for _ in range(3))
    return [x.to(dtype) for x in (q / 2, k * torch.linspace(0.25, 2, length, device="cuda")[:, None], v)]


def bias_inputs(width, dtype):
    for batch, count, length in (*LENGTHS, (8, 16, 8192)):
        q, *others = heads(batch, count, length, width, dtype)
        rows = 16 if length > 4096 else length  # few rows, whose stream blocks share
        yield [q[:, :, :rows].contiguous(), *others, torch.randn(count, rows, length, device="cuda").to(dtype),
               (torch.rand(count, device="cuda") / 64).to(dtype)]


def distance_inputs(width, dtype):
    for batch, count, length in LENGTHS:
        yield [*heads(batch, count, length, width, dtype), (torch.rand(count, device="cuda") / 64).to(dtype)]


def bucket_inputs(width, dtype):
    for batch, count, length in LENGTHS:
        q, k, v = heads(batch, count, length, width, dtype)
        yield [q / 4, k, v, torch.randn(count, 33, device="cuda").to(dtype)]


def gated_inputs(width, dtype):
    for batch, count, length in LENGTHS:
        q, k, v = heads(batch, count, length, width, dtype)
        mask = torch.ones(batch, length, device="cuda").to(dtype)
        mask[:, 3::7] = 0
        yield [q, k, v, mask, torch.randn(count, length, length, device="cuda").to(dtype), torch.randn_like(q)]


def probe_inputs(width, dtype):
    for batch, count, length in LENGTHS:
        yield [x.flatten(0, 1) for x in heads(batch, count, length, width, dtype)]


def mixture_inputs(_, dtype):
    for samples, components in ((65536, 64), (8192, 1000), (4096, 8192)):
        yield [torch.randn(samples, device="cuda").to(dtype), *[torch.randn(components, device="cuda").to(dtype) for _ in range(2)],
               (torch.rand(components, device="cuda") + 0.5).to(dtype)]


def norm_inputs(_, dtype):
    for rows, width in ((8192, 4096), (4096, 8192), (2048, 12288), (2048, 16384), (1024, 24576), (1024, 32768), (512, 65536)):
        yield [torch.randn(rows, width, device="cuda").to(dtype) + 1, torch.randn(rows, width, device="cuda").to(dtype),
               torch.randn(width, device="cuda").to(dtype)]


def cross_entropy(x, label):
    lse = torch.logsumexp(x, -1)
    return 0.9 * (lse - x.gather(1, label.long()[:, None])[:, 0]) + 0.1 * (lse - x.mean(-1)) + 1e-4 * lse ** 2


def cross_entropy_backward(x, label):
    lse, at = torch.logsumexp(x, -1), label.long()[:, None]
    dx = torch.softmax(x, -1)
    return lse - x.gather(1, at)[:, 0], dx.scatter_add(1, at, -torch.ones_like(at, dtype=x.dtype))


def smoothed_targets(x, label):
    logp = torch.log_softmax(x, -1)
    return -0.9 * logp.gather(1, label.long()[:, None])[:, 0] - 0.1 * logp.mean(-1)


def total_variation(x, label):
    return 1 - torch.softmax(x, -1).gather(1, label.long()[:, None])[:, 0]


def linear_cross_entropy(h, w, label):
    x = h @ w.T
    return torch.logsumexp(x, -1) - x.gather(1, label.long()[:, None])[:, 0]


def regression(x, y):
    cx, cy = x - x.mean(-1, keepdim=True), y - y.mean(-1, keepdim=True)
    sxy, sxx, syy = (cx * cy).sum(-1), (cx * cx).sum(-1), (cy * cy).sum(-1)
    slope, r = sxy / sxx, sxy / (sxx * syy).sqrt()
    return r, slope, y.mean(-1) - slope * x.mean(-1), r * r


def gated_loudness(p):
    loud = p > 1e-7
    near = loud & (p > 0.1 * (p * loud).sum(-1, keepdim=True) / loud.sum(-1, keepdim=True).clamp_min(1))
    return (p * near).sum(-1) / near.sum(-1).clamp_min(1)


def routing(x):
    best = torch.softmax(x, -1).topk(2)
    return best.values, best.indices.int()


def gumbel(x, g, tau):
    token = (x / tau + g).argmax(-1)
    return token.int(), torch.log_softmax(x, -1).gather(1, token[:, None])[:, 0]


def sinkhorn(x, y, v, eps):
    return -eps * torch.logsumexp((v - torch.cdist(x, y) ** 2) / eps, -1)


def classes(rows, width, dtype):
    return [torch.randn(rows, width, device="cuda").to(dtype), torch.randint(width, (rows,), device="cuda")]


def label_inputs(_, dtype):
    for rows, width in ((65536, 1024), (16384, 4096), (4096, 16384), (1024, 65536), (16, 1 << 20)):
        yield classes(rows, width, dtype)


def vocabulary_inputs(_, dtype):
    for rows, width in ((512, 8192), (4096, 8192), (4096, 32768)):
        yield [torch.randn(rows, 64, device="cuda").to(dtype) / 2, torch.randn(width, 64, device="cuda").to(dtype),
               torch.randint(width, (rows,), device="cuda")]


def pair_inputs(_, dtype):
    for rows, width in ((65536, 1024), (16384, 4096), (2048, 32768), (512, 131072)):
        x = torch.randn(rows, width, device="cuda")
        yield [x.to(dtype), (0.5 * x + torch.randn_like(x) + 1).to(dtype)]


def level_inputs(_, dtype):
    for rows, width in ((131072, 512), (32768, 4096), (16384, 8192)):
        yield [torch.rand(rows, width, device="cuda").to(dtype)]


def expert_inputs(_, dtype):
    for rows in (1024, 4096, 16384, 131072):  # all of a row are different
        yield [(torch.rand(rows, 128, device="cuda").argsort(-1) / 16).to(dtype)]


def token_inputs(_, dtype):
    for rows, width in ((4096, 128), (16384, 128), (131072, 128)):
        x, g = torch.randn(rows, width, device="cuda"), torch.randn(rows, width, device="cuda")
        g[torch.arange(rows), torch.randint(width, (rows,))] = 16
        yield [x.to(dtype), g.to(dtype), torch.tensor(1.5, device="cuda").to(dtype)]


def point_inputs(_, dtype):
    for points, width in ((512, 256), (2048, 256), (1024, 1024)):
        x, y = torch.randn(points, width, device="cuda"), torch.randn(points, width, device="cuda")
        yield [x.to(dtype), y.to(dtype), torch.randn(points, device="cuda").to(dtype), torch.tensor(8.0, device="cuda").to(dtype)]


PROGRAMS = {"attention_alibi": (distance_bias, distance_inputs), "catalogue_05_pair_bias": (pair_bias, bias_inputs), "catalogue_05_bucketed_bias": (bucketed_bias, bucket_inputs),
            "catalogue_14_gated_attention": (gated_attention, gated_inputs),
            "catalogue_32_layer_norm_backward": (layer_norm_backward, norm_inputs),
            "catalogue_18_attention_probes": (attention_probes, probe_inputs), "catalogue_56_mixture_step": (mixture_step, mixture_inputs),
            "catalogue_19_cross_entropy": (cross_entropy, label_inputs),
            "catalogue_19_cross_entropy_backward": (cross_entropy_backward, label_inputs),
            "catalogue_19_smoothed_targets": (smoothed_targets, label_inputs),
            "catalogue_23_total_variation_to_a_label": (total_variation, label_inputs),
            "catalogue_20_linear_cross_entropy": (linear_cross_entropy, vocabulary_inputs),
            "catalogue_54_regression": (regression, pair_inputs), "catalogue_68_gated_loudness": (gated_loudness, level_inputs),
            "catalogue_42_routing_not_renormalised": (routing, expert_inputs), "catalogue_46_gumbel_sampling": (gumbel, token_inputs),
            "catalogue_58_sinkhorn_half_step": (sinkhorn, point_inputs)}
BOUNDS = {"bf16": 6e-3, "f16": 1e-3, "f32": 1e-5}


def error_of(exact, results):
    """The largest deviation of a result from double, against its own scale."""
    worst = 0.0
    for e, r in zip(map(torch.Tensor.double, exact), results):
        worst = max(worst, ((r.double() - e).norm() / e.norm().clamp_min(1e-30)).nan_to_num(float("inf")).item())
    return worst


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True, type=pathlib.Path)
    parser.add_argument("--packages", required=True, type=pathlib.Path)
    parser.add_argument("--others", required=True)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    library, log, failed = Library(options.library), [], False
    print(torch.cuda.get_device_name(), flush=True)
    for path in sorted(options.packages.glob("*.rfx")):
        program, dtype, *width = path.stem.split(".")
        function, make = PROGRAMS[program]
        folders = [options.packages, *[pathlib.Path(f) for f in options.others.split(",") if (pathlib.Path(f) / path.name).exists()]]
        packages = [Package(library, folder / path.name) for folder in folders]
        torch.manual_seed(5)
        for inputs in make(int(width[0]) if width else 0, DTYPES[dtype]):
            exact = function(*[x.double() for x in inputs])
            exact = exact if isinstance(exact, tuple) else (exact,)
            results = [torch.empty(e.shape, device="cuda", dtype=DTYPES[dtype] if e.is_floating_point() else e.dtype) for e in exact]
            runs, errors = [package.launcher(inputs, results) for package in packages], []
            for run in runs:
                for r in results:
                    poison(r) if r.is_floating_point() else r.fill_(-1)
                run()
                torch.cuda.synchronize()
                errors.append(error_of(exact, results))
                failed |= bool(sum(map(unwritten_of, results))) or not errors[-1] <= BOUNDS[dtype]
            del exact
            torch.cuda.empty_cache()
            times = [statistics.median(t) for t in zip(*[[time_ms(run, groups=GROUPS) for run in runs] for _ in range(ROUNDS)])]
            shape = "x".join(map(str, inputs[0].shape))
            log.append({"program": program, "dtype": dtype, "shape": shape, "errors": errors,
                        "ms": {folder.name: ms for folder, ms in zip(folders, times)}})
            print(path.stem, shape, " ".join(f"{f.name} {ms:.4f} ({ms / times[0]:.3f}, error {e:.1e})"
                                             for f, ms, e in zip(folders, times, errors)), flush=True)
            del inputs, results, runs
            torch.cuda.empty_cache()
        for package in packages:
            package.close()
    if options.out:
        options.out.write_text("".join(json.dumps(one) + "\n" for one in log))
    sys.exit(failed)


if __name__ == "__main__":
    main()
