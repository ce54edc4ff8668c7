#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times a product, the softmax of its rows and the best of them on the first GPU through librefold_run: answers against
double on sampled rows, launches in a graph on arrays that the caches do not hold, TorchInductor and our own unfused
form in the same run.

    product_rows.py --programs FOLDER
    product_rows.py --library librefold_run.so --packages FOLDER [--rows 8192,1024] [--peers] [--out FILE.jsonl]

A package is PROGRAM.FORM.rfx, FORM fused or apart: `refold compile --target cuda-sm90 PROGRAM.FORM.fold -o ...`.
"""

import argparse
import json
import pathlib
import sys

# A row's products are rounded to bf16, as a bf16 product in PyTorch is.
PROGRAM = """experts{n}top{k}(x[m,d]: bf16, w[n={n},d]: bf16) -> weight, expert: i32
  s[m,n] = bf16(sum(d: x * w))
  t = max(n: s)
  z = sum(n: exp(s - t))
  best[m,r], expert[m,r] = topk(n: s, {k})
  p = exp(best - t) / z
  weight = p / sum(r: p)
"""
# Experts, how many are chosen, sizes of a token: the bars of issue 6, then the models of workloads.md.
SHAPES = [(64, 8, 4096), (128, 8, 4096), (256, 8, 4096), (128, 1, 768), (64, 6, 2560), (64, 6, 2048), (128, 8, 2048), (256, 8, 7168)]
SAMPLED = 64


def name_of(n, k):
    return f"experts{n}top{k}"


def write_programs(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for n, k, _ in SHAPES:
        text = PROGRAM.format(n=n, k=k)
        (folder / f"{name_of(n, k)}.fused.fold").write_text(text)
        # Rows of no fixed length: a product and a row kernel. What they exchange is not rounded.
        apart = text.replace(f"w[n={n},d]", "w[n,d]").replace("bf16(sum(d: x * w))", "sum(d: x * w)")
        (folder / f"{name_of(n, k)}.apart.fold").write_text(apart)


def is_good(x, w, weight, expert, k):
    """Places are those of the largest products but for what rounding to bf16 makes equal; weights are those of them."""
    import torch
    rows = torch.cat([torch.arange(min(SAMPLED, x.shape[0])), torch.arange(max(x.shape[0] - SAMPLED, 0), x.shape[0])]).cuda()
    exact = x[rows].double() @ w.double().t()
    chosen = expert[rows].long()
    if int(chosen.min()) < 0 or int(chosen.max()) >= w.shape[0] or bool(weight.isnan().any()):
        return False
    room = exact.abs().max(-1, keepdim=True).values * 2.0**-7
    own = exact.gather(1, chosen)
    far = (own - exact.topk(k, dim=-1).values).abs() > room
    twice = (chosen.sort(-1).values.diff(dim=-1) == 0).any()
    shares = torch.softmax(own, -1)
    off = (weight[rows].double() - shares).abs() > shares * 2 * room + 1e-6
    return not bool(far.any() | twice | off.any())


def graph_ms(run, count):
    """Median of replays of `count` launches."""
    import torch
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            run()
    times = []
    for _ in range(15):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / count)
    return sorted(times[3:])[6]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=pathlib.Path)
    parser.add_argument("--library", type=pathlib.Path)
    parser.add_argument("--packages", type=pathlib.Path)
    parser.add_argument("--rows", default="8192,16384,1024,128,16,1")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    if options.programs:
        return write_programs(options.programs)
    import torch
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    from packages import Library, Package
    library, log, failed = Library(options.library), [], False

    def note(**fields):
        log.append(fields)
        print(" ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in fields.items()), flush=True)
        if options.out:
            options.out.write_text("".join(json.dumps(one) + "\n" for one in log))

    def peer(x, w, k):
        p = torch.softmax(torch.nn.functional.linear(x, w).float(), -1)
        value, index = torch.topk(p, k, dim=-1)
        return value / value.sum(-1, keepdim=True), index

    note(device=torch.cuda.get_device_name(), torch=torch.__version__)
    for n, k, d in SHAPES:
        for m in map(int, options.rows.split(",")):
            torch.manual_seed(m + n)
            copies = max(2, min(6, 2**28 // (2 * m * d)))
            xs = [torch.randn(m, d, device="cuda").bfloat16() for _ in range(copies)]
            w = (torch.randn(n, d, device="cuda") / d**0.5 * 2).bfloat16()
            fields, turn = {}, [0]
            for form in ("fused", "apart"):
                path = options.packages / f"{name_of(n, k)}.{form}.rfx"
                if not path.exists():
                    continue
                package = Package(library, path)
                weight = torch.full((m, k), float("nan"), device="cuda")
                expert = torch.full((m, k), -1, device="cuda", dtype=torch.int32)
                runs = [package.launcher([x, w], [weight, expert]) for x in xs]
                good = True
                for x, run in zip(xs, runs):
                    weight.fill_(float("nan")), expert.fill_(-1)
                    run()
                    torch.cuda.synchronize()
                    good &= is_good(x, w, weight, expert, k)
                failed |= not good

                def go():
                    turn[0] += 1
                    runs[turn[0] % copies]()
                fields |= {f"{form}_good": int(good), f"{form}_ms": graph_ms(go, 12)}
                package.close()
            if options.peers:
                torch._dynamo.reset()
                compiled = torch.compile(peer, dynamic=False)
                with torch.no_grad():
                    compiled(xs[0], w, k)

                    def go():
                        turn[0] += 1
                        compiled(xs[turn[0] % copies], w, k)
                    fields["inductor_ms"] = graph_ms(go, 12)
                fields["over_inductor"] = fields["inductor_ms"] / fields["fused_ms"]
            fields["tbs_of_x"] = 2 * m * d / fields["fused_ms"] / 1e9
            note(experts=n, best=k, hidden=d, rows=m, **fields)
            del xs
    return failed


if __name__ == "__main__":
    sys.exit(main())
