#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles what rows.py and tiles.py time, on a machine without a GPU.

    build_bundles.py --refold build/dev/bin/refold --out FOLDER [--arch sm_90a] [--variants]
    build_bundles.py --refold build/dev/bin/refold --out FOLDER [--target cuda-sm80 --arch sm_90] --tiles

--variants adds entries with other numbers of threads and vectors, to look for better ones. --tiles makes the
bundles of tiles.py instead: attention of the widths --head-widths, fixed in the program, in bf16.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "utils"))
import nvrtc  # noqa: E402

PROGRAMS = ["softmax", "logsumexp", "entropy", "layernorm", "variance", "kl_divergence", "rmsnorm_fp8"]
TILES = ["attention", "attention_causal", "attention_gqa"]
# threads a row, rows a block, vectors, resident
VARIANTS = [(32, 4, 4, 1), (32, 4, 16, 1), (32, 8, 8, 1), (64, 2, 8, 1), (64, 1, 8, 1), (128, 1, 4, 1), (256, 1, 2, 1),
            (256, 1, 4, 1), (256, 1, 8, 1), (512, 1, 2, 1), (512, 1, 4, 1), (1024, 1, 2, 1), (1024, 1, 4, 1),
            (32, 4, 4, 0), (32, 4, 8, 0), (128, 1, 2, 0), (128, 1, 4, 0), (256, 1, 2, 0), (256, 1, 4, 0), (512, 1, 2, 0),
            (1024, 1, 1, 0), (1024, 1, 2, 0)]


def add_variants(kernel):
    known = {e["name"] for e in kernel["entries"]}
    width = kernel["entries"][0]["width"]
    # The first entry, its numbers replaced.
    pattern = re.compile(r"REFOLD_KERNEL\(\d+\)\n(\w+)\((.*?)\) \{\n  begin_launch\(\);\n  (\w+)<[^>]*>(.*?;)\n\}", re.DOTALL)
    first = pattern.search(kernel["text"])
    for threads, rows, vectors, resident in VARIANTS:
        name = f"{kernel['name']}_{'rows' if resident else 'chunks'}{threads}x{vectors}x{width}_{rows}"
        if name in known:
            continue
        kernel["text"] += (f"\nREFOLD_KERNEL({threads * rows})\n{name}({first[2]}) {{\n  begin_launch();\n  {first[3]}<{threads}, {rows}, "
                           f"{vectors}, {width}, {'InRegisters' if resident else 'Nowhere'}>{first[4]}\n}}\n")
        kernel["entries"].append({"name": name, "threads": threads, "rows": rows, "vectors": vectors, "width": width,
                                  "resident": bool(resident), "kept_bytes": 0, "held": 0, "blocks_per_unit": 0, "most_blocks": 0,
                                  "longest": threads * vectors * width if resident else 0})


def fix_width(program, width):
    """The text of an example whose products and results have `width` elements."""
    text = (ROOT / f"examples/{program}.fold").read_text()
    return re.sub(r"\b([de])\](?=.*\) -> )", rf"\1={width}]", text)


def make_bundle(options, compiler, path, name, dtype):
    out = subprocess.run([options.refold, "compile", "--target", options.target, "--emit",
                          "cuda", "--format", "json", "--dtype", dtype, path], check=True, capture_output=True, text=True).stdout
    bundle = json.loads(out)
    kernel = bundle["kernels"][0]
    if options.variants:
        add_variants(kernel)
    cubin, log = compiler.compile(kernel["text"], options.arch)
    (options.out / f"{name}.cubin").write_bytes(cubin)
    (options.out / f"{name}.json").write_text(json.dumps(bundle))
    report = nvrtc.resources(log)
    print(name, " ".join(f"{e['name']}:{report[e['name']]}" for e in kernel["entries"]), flush=True)


def make_tiles(options, compiler):
    with tempfile.TemporaryDirectory() as folder:
        for program in TILES:
            for width in map(int, options.head_widths.split(",")):
                path = pathlib.Path(folder) / f"{program}.fold"
                path.write_text(fix_width(program, width))
                make_bundle(options, compiler, path, f"{program}.{width}.bf16", "bf16")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--refold", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--target", default="cuda-sm90", help="whose text; that of cuda-sm80 runs on an H200 by --arch sm_90")
    parser.add_argument("--dtypes", default="bf16,f32")
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--variants", action="store_true")
    parser.add_argument("--tiles", action="store_true")
    parser.add_argument("--head-widths", default="64,128")
    options = parser.parse_args()
    library = nvrtc.find_library()
    if library is None:
        sys.exit("error: found no NVRTC, expected the Python package nvidia-cuda-nvrtc in .venv")
    compiler = nvrtc.Compiler(library)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.tiles and options.variants:
        sys.exit("error: found --tiles with --variants, expected one of them")
    if options.tiles:
        return make_tiles(options, compiler)
    cubin, _ = compiler.compile((ROOT / "benchmarks/cuda/ceilings.cu").read_text(), options.arch)
    (options.out / "ceilings.cubin").write_bytes(cubin)
    for program in options.programs.split(","):
        for dtype in options.dtypes.split(","):
            path = program if program.endswith(".fold") else ROOT / f"examples/{program}.fold"
            make_bundle(options, compiler, path, f"{pathlib.Path(path).stem}.{dtype}", dtype)


if __name__ == "__main__":
    main()
