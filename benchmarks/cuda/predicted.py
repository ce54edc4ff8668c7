#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Holds what `refold explain --target cuda-sm90` predicts beside what was measured on an H200 (benchmarks/results/cuda-*).

    predicted.py --refold build/dev/bin/refold [--out FILE.md]

Needs no GPU: the card that explain assumes is the one that was timed. Every case names the page that has its time.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from product_rows import PROGRAM as ROUTER  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GIB = 1 << 30
LINEAR = "linear(x[m,k], w[n,k], b[n]) -> y\n  y[m,n] = max(sum(k: x*w) + b, 0)\n"
BIASED = "biased(x[m,k], w[n,k], b[n]) -> y\n  y[m,n] = sum(k: x*w) + b\n"
PRODUCT = "product(x[m,k], w[k,n]) -> y\n  y[m,n] = sum(k: x*w)\n"


def rows_cases():
    """Rows of 1 GiB, TB/s at 4096 / 32768 / 131072 elements."""
    table = {
        ("variance", "bf16"): (4.41, 4.43, 4.39), ("kl_divergence", "bf16"): (4.47, 4.44, 4.28),
        ("entropy", "bf16"): (4.49, 4.45, 4.39), ("logsumexp", "bf16"): (4.45, 4.44, 4.39),
        ("softmax", "bf16"): (4.00, 4.09, 4.09), ("layernorm", "bf16"): (4.03, 3.89, 3.76),
        ("rmsnorm_fp8", "bf16"): (4.28, 4.17, 3.96), ("softmax", "f32"): (4.08, None, None),
        ("kl_divergence", "f32"): (4.50, 4.38, 4.15), ("variance", "f32"): (None, 4.40, 4.20),
        ("layernorm", "f32"): (None, 3.83, 3.86)}
    for (program, dtype), rates in table.items():
        size = 2 if dtype == "bf16" else 4
        inputs = 2 if program == "kl_divergence" else 1
        written = {"softmax": size, "layernorm": size, "rmsnorm_fp8": 1}.get(program, 0)
        for width, rate in zip((4096, 32768, 131072), rates):
            if rate is None:
                continue
            rows = GIB // inputs // size // width
            ms = rows * width * (inputs * size + written) / rate / 1e9
            yield "rows", f"{program} {dtype} {width}", f"examples/{program}.fold", ["--dtype", dtype], f"m={rows},n={width}", ms, "cuda-rows"
    for program, rates in {"rmsnorm_int8": (3.00, None), "layernorm_f8": (2.35, None)}.items():
        path = "benchmarks/suite/programs/rmsnorm_int8.fold" if program == "rmsnorm_int8" else "test/Target/CUDA/Inputs/layernorm_f8.fold"
        rows = GIB // 2 // 4096
        yield "rows", f"{program} bf16 4096", path, ["--dtype", "bf16"], f"m={rows},n=4096", rows * 4096 * 3 / rates[0] / 1e9, "cuda-rows"


def few_rows_cases():
    """Microseconds of few long rows, and of one."""
    table = {("softmax", "bf16"): ((1, 65536, 3.39), (1, 1 << 20, 6.03), (4, 1 << 18, 5.87), (16, 1 << 20, 30.3), (1, 1 << 24, 32.1),
                                   (64, 65536, 8.53), (64, 131072, 15.1), (64, 1 << 18, 22.5), (99, 1 << 20, 170)),
             ("layernorm", "bf16"): ((1, 65536, 5.03), (1, 1 << 20, 7.34), (4, 1 << 18, 7.07), (16, 1 << 20, 32.5), (1, 1 << 24, 48.5), (64, 65536, 8.94)),
             ("softmax", "f32"): ((1, 65536, 4.28), (1, 1 << 20, 7.30), (16, 1 << 20, 58.0), (1, 1 << 24, 59.7)),
             ("variance", "bf16"): ((1, 1 << 20, 4.9), (1, 1 << 24, 14.5), (1, 1 << 27, 70.2), (64, 131072, 9.4)),
             ("entropy", "bf16"): ((1, 1 << 20, 4.9), (1, 1 << 24, 14.4), (1, 1 << 27, 71)),
             ("logsumexp", "bf16"): ((1, 1 << 20, 4.7), (1, 1 << 24, 13.9), (1, 1 << 27, 70), (1, 4096, 2.3)),
             ("variance", "f32"): ((1, 1 << 24, 21.3), (1, 1 << 27, 128.5)),
             ("kurtosis", "bf16"): ((1, 1 << 20, 5.4), (1, 1 << 24, 16.1), (1, 1 << 27, 84))}
    for (program, dtype), cases in table.items():
        path = "benchmarks/suite/programs/kurtosis.fold" if program == "kurtosis" else f"examples/{program}.fold"
        for rows, width, us in cases:
            page = "cuda-rows" if program in ("softmax", "layernorm") else "cuda-parts"
            yield "few rows", f"{program} {dtype} {rows} x {width}", path, ["--dtype", dtype], f"m={rows},n={width}", us / 1e3, page


def list_cases():
    for width, ms in ((64, 0.0612), (128, 0.0900), (256, 0.158), (512, 0.316)):
        yield "lists", f"8 best bf16 {width}", "test/Target/CUDA/Inputs/router.fold", ["--dtype", "bf16"], f"m={1 << 20},n={width}", ms, "cuda-rows"
    for width, ms in ((64, 0.134), (128, 0.212), (256, 0.470)):
        yield "lists", f"8 best f32 {width}", "test/Target/CUDA/Inputs/router.fold", ["--dtype", "f32"], f"m={1 << 20},n={width}", ms, "cuda-rows"


def attention_cases():
    table = {("attention", 128): (462, 537, 615, 616), ("attention_causal", 128): (301, 405, 571, 574), ("attention_gqa", 128): (448, 527, 638, 612),
             ("attention", 64): (307, 359, 454, 486), ("attention_causal", 64): (206, 273, 392, 453), ("attention_gqa", 64): (283, 334, 402, 437),
             ("attention", 80): (330, 386, 436, 455), ("attention_causal", 80): (218, 284, 388, 413), ("attention", 96): (371, 416, 486, 504),
             ("attention_causal", 96): (237, 318, 429, 467), ("attention", 256): (472, 549, 613, 628), ("attention_causal", 256): (264, 379, 564, 575)}
    for (program, width), rates in table.items():
        heads = 8 if program == "attention_gqa" else 2048 // width
        for length, rate in zip((512, 1024, 4096, 16384), rates):
            flops = 4 * 16384 * length * heads * width * (0.5 if "causal" in program else 1)
            shape = f"b={16384 // length},m={length},n={length}" + ("" if program == "attention_gqa" else f",h={heads}")
            yield "attention", f"{program} {width} {length}", f"examples/{program}.fold", ["--dtype", "bf16", f"--dim=d={width},e={width}"], shape, flops / rate / 1e9, "cuda-tiles"


def decode_cases():
    for batch, length, us in ((1, 32768, 38.1), (16, 8192, 125.5), (64, 8192, 480.6)):
        yield "decode", f"decode {batch} x {length}", "benchmarks/suite/programs/decode.fold", ["--dtype", "bf16", "--dim=d=128,e=128"], f"b={batch},n={length}", us / 1e3, "cuda-parts"


def product_cases():
    seen = {}
    for line in (ROOT / "benchmarks/results/cuda-products.jsonl").read_text().splitlines():
        one = json.loads(line)
        if one.get("program") in ("linear", "product") and "library" not in one:
            seen[one["program"], one["dtype"], one["shape"]] = one["ms"]
    for (program, dtype, shape), ms in seen.items():
        m, k, n = shape.split("x")
        if dtype != "f32" and ms < 0.03:
            continue  # 9 to 10 us of such a launch were the host's: the graphs below
        yield "products", f"{program} {dtype} {shape}", LINEAR if program == "linear" else PRODUCT, ["--dtype", dtype], f"m={m},k={k},n={n}", ms, "cuda-products"


def graph_product_cases():
    """Microseconds of a product in a graph of 20, the quickest rectangle."""
    table = {"128x384x1152": 2.29, "128x384x384": 2.15, "128x1536x384": 4.81, "512x384x1152": 3.03, "512x384x384": 2.36,
             "512x1536x384": 5.10, "1024x384x1152": 4.23, "1024x384x384": 2.74, "1024x1536x384": 6.56, "2048x384x1152": 7.06,
             "2048x384x384": 3.16, "2048x1536x384": 8.19, "512x768x768": 4.21, "4096x4096x4096": 227.7}
    for shape, us in table.items():
        m, k, n = shape.split("x")
        yield "products in graphs", f"biased f16 {shape}", BIASED, ["--dtype", "f16"], f"m={m},k={k},n={n}", us / 1e3, "cuda-products"
    for shape, us in {"16x4096x4096": 11.8, "1x4096x4096": 11.7, "1x4096x1024": 6.0, "16x1536x384": 4.1, "128x4096x1024": 8.7}.items():
        m, k, n = shape.split("x")
        yield "products in graphs", f"product f16 {shape}", PRODUCT, ["--dtype", "f16"], f"m={m},k={k},n={n}", us / 1e3, "cuda-products"


def row_product_cases():
    seen = {}
    for line in (ROOT / "benchmarks/results/cuda-product-rows.jsonl").read_text().splitlines():
        one = json.loads(line)
        if "fused_ms" in one:
            seen[one["experts"], one["best"], one["hidden"], one["rows"]] = one["fused_ms"]
    for (experts, best, hidden, rows), ms in seen.items():
        yield "rows of products", f"{experts} of {hidden}, {rows} rows", ROUTER.format(n=experts, k=best).replace("d]: bf16", f"d={hidden}]: bf16"), [], f"m={rows}", ms, "cuda-product-rows"


CASES = (rows_cases, few_rows_cases, list_cases, attention_cases, decode_cases, product_cases, graph_product_cases, row_product_cases)


def explain(refold, path, arguments, shape):
    done = subprocess.run([refold, "explain", str(path), *arguments, "--target", "cuda-sm90", "--shape", shape, "--format", "json"],
                          cwd=ROOT, capture_output=True, text=True, env=dict(os.environ, LLVM_DISABLE_SYMBOLIZATION="1"))
    if done.returncode:
        raise RuntimeError(f"{path} {shape}: {done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--refold", required=True)
    parser.add_argument("--out")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    refold, ratios, lines = str(pathlib.Path(options.refold).resolve()), {}, []
    with tempfile.TemporaryDirectory() as folder:
        for cases in CASES:
            for kind, name, program, arguments, shape, measured, page in cases():
                if options.only and options.only not in kind:
                    continue
                if "\n" in program:
                    path = pathlib.Path(folder) / "program.fold"
                    path.write_text(program)
                    program = path
                answer = explain(refold, program, arguments, shape)
                launches = [s["launch"] for s in answer["steps"] if s["launch"]]
                predicted, ratio = answer["predicted_ms"], answer["predicted_ms"] / measured
                longest = max(launches, key=lambda l: l["predicted_ms"])
                ratios.setdefault(kind, []).append(ratio)
                lines.append(f"| {kind} | {name} | {longest['entry'].split('_', 2)[-1]} | {measured:.4g} | {predicted:.4g} | {ratio:.2f} | {longest['bound']} | {page} |")
                print(lines[-1], flush=True)
    summary = ["| kind | cases | within 25 % | median | least | most |", "|---|---|---|---|---|---|"]
    every = [r for of in ratios.values() for r in of]
    for kind, of in [*ratios.items(), ("all", every)]:
        within = sum(0.75 <= r <= 1.25 for r in of)
        summary.append(f"| {kind} | {len(of)} | {within} ({100 * within // len(of)} %) | {statistics.median(of):.2f} | {min(of):.2f} | {max(of):.2f} |")
    print("\n".join(summary))
    if options.out:
        text = pathlib.Path(options.out)
        head = text.read_text().split("<!-- table -->")[0] if text.exists() else ""
        text.write_text(head + "<!-- table -->\n" + "\n".join(summary) + "\n\n| kind | case | entry | measured ms | predicted ms | ratio | bound | page |\n"
                        "|---|---|---|---|---|---|---|---|\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
