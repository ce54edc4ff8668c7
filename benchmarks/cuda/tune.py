#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `refold-run --tune` finds at shapes beside those that rules were fitted to.

    tune.py build --refold build/release/bin/refold --out FOLDER       # packages, without a GPU (NVRTC)
    tune.py run --refold-run build/release/bin/refold-run --packages FOLDER [--out FILE.jsonl]
    tune.py table FILE.jsonl                                           # as benchmarks/results/cuda-tune.md has it
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from product_rows import PROGRAM as ROUTER  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LINEAR = "linear(x[m,k], w[n,k], b[n]) -> y\n  y[m,n] = max(sum(k: x*w) + b, 0)\n"
EXAMPLES = {"softmax": ("m=20,n=3000", "m=4096,n=3000", "m=4096,n=777", "m=20,n=100000", "m=300,n=12000", "m=20,n=1504", "m=120,n=3000", "m=20,n=70000", "m=30,n=200000", "m=1,n=100000"),
            "layernorm": ("m=20,n=3000", "m=4096,n=3000", "m=2000,n=12288", "m=300,n=50000", "m=120,n=3000"),
            "rmsnorm_fp8": ("m=700,n=3000", "m=20,n=5120", "m=3000,n=20000"),
            "variance": ("m=20,n=3000", "m=300,n=70001", "m=5000,n=3000", "m=3,n=3000000", "m=120,n=3000", "m=20,n=12000"),
            "entropy": ("m=20,n=3000", "m=100,n=32000", "m=20000,n=1000", "m=120,n=1504"),
            "kl_divergence": ("m=20,n=3000", "m=1000,n=3001", "m=100,n=50257")}
# name: program or its text, flags, shapes
CASES = {name: (f"examples/{name}.fold", ["--dtype", "bf16"], shapes) for name, shapes in EXAMPLES.items() if shapes}
CASES["softmax_f32"] = ("examples/softmax.fold", ["--dtype", "f32"], ("m=20,n=3000", "m=4096,n=3000", "m=700,n=777"))
for width in (64, 128):
    CASES[f"attention_{width}"] = ("examples/attention.fold", ["--dtype", "bf16", f"--dim=d={width},e={width}"],
                                   ("b=2,h=16,m=700,n=700", "b=8,h=12,m=200,n=200", "b=2,h=16,m=20,n=700", "b=2,h=16,m=50,n=3000", "b=1,h=5,m=3000,n=3000", "b=2,h=16,m=40,n=700", "b=2,h=8,m=1000,n=1000",
                                    "b=4,h=16,m=700,n=700", "b=8,h=32,m=512,n=512", "b=4,h=32,m=50,n=1000"))
CASES["causal_128"] = ("examples/attention_causal.fold", ["--dtype", "bf16", "--dim=d=128,e=128"], ("b=2,h=16,m=700,n=700", "b=1,h=8,m=3000,n=3000"))
CASES["decode"] = ("benchmarks/suite/programs/decode.fold", ["--dtype", "bf16", "--dim=d=128,e=128"], ("b=7,n=700", "b=1,n=3000", "b=20,n=5000"))
CASES["router"] = ("test/Target/CUDA/Inputs/router.fold", ["--dtype", "bf16"], ("m=20,n=100", "m=20000,n=100", "m=3000,n=500"))
for experts in (96, 160):
    CASES[f"routed_{experts}"] = (ROUTER.format(n=experts, k=8).replace("d]: bf16", "d=4096]: bf16"), [], ("m=20", "m=700", "m=5000"))
CASES["linear"] = (LINEAR, ["--dtype", "f16"], ("m=20,k=3000,n=3000", "m=700,k=3072,n=1000", "m=700,k=3000,n=3000", "m=3000,k=1000,n=700"))
CASES["linear_f32"] = (LINEAR, ["--dtype", "f32"], ("m=20,k=3000,n=3000", "m=700,k=1000,n=1000"))


def build(options):
    options.out.mkdir(parents=True, exist_ok=True)
    for name, (program, flags, _) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = ROOT / program
            if not program.endswith(".fold"):
                path = pathlib.Path(folder) / f"{name}.fold"
                path.write_text(program)
            subprocess.run([options.refold, "compile", "--target", "cuda-sm90", *flags, path, "-o", options.out / f"{name}.rfx"], check=True, cwd=ROOT)


def parse(text):
    """Launches of a run: [{"step", "timed", "legal", "ways": [...]}]."""
    launches = []
    for line in text.splitlines():
        if head := re.match(r"(.*): (\d+) of (\d+) ways timed$", line):
            launches.append({"step": head[1], "timed": int(head[2]), "legal": int(head[3]), "ways": []})
        elif way := re.match(r" +([\d.]+|-) +([\d.]+)  (\S+?)(?:, (\d+) blocks)?( \(default\))?( \(taken\)|: another answer.*)?$", line):
            launches[-1]["ways"].append({"entry": way[3], "blocks": int(way[4] or 0), "ms": None if way[1] == "-" else float(way[1]),
                                         "predicted_ms": float(way[2]), "default": bool(way[5]), "taken": way[6] == " (taken)",
                                         "note": way[6] if way[6] and "another" in way[6] else ""})
    return launches


def run(options):
    lines = []
    for name, (_, _, shapes) in CASES.items():
        package = options.packages / f"{name}.rfx"
        if not package.exists():
            continue
        for shape in shapes:
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run([options.refold_run.resolve(), package, "--shape", shape, "--tune", "--tuned-file", f"{folder}/tuned"],
                                      capture_output=True, text=True)
            found = {"package": name, "shape": shape, "rc": done.returncode, "launches": parse(done.stderr)}
            if done.returncode or not found["launches"]:
                found["error"] = done.stderr[-400:]
            lines.append(json.dumps(found))
            print(name, shape, found.get("error", ""), *(f"{best['ms']}/{one['ways'][0]['ms']}" for one in found["launches"]
                                                         for best in one["ways"] if best["taken"]), flush=True)
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


def table(options):
    print("| program | shape | ways legal | default | us | quickest | us | gain | predicted us of both |\n|---|---|---|---|---|---|---|---|---|")
    for line in options.file.read_text().splitlines():
        case = json.loads(line)
        for launch in case["launches"]:
            usual = launch["ways"][0]
            best = next(way for way in launch["ways"] if way["taken"])
            def short(way):
                return re.sub(r"^k\d+_[a-z]+_", "", way["entry"]) + (f" x {way['blocks']}" if way["blocks"] else "")
            gain = 1 - best["ms"] / usual["ms"]
            print(f"| {case['package']} | {case['shape']} | {launch['legal']} | {short(usual)} | {1e3 * usual['ms']:.1f} | {'same' if best is usual else short(best)} | "
                  f"{1e3 * best['ms']:.1f} | {100 * gain:.0f} % | {1e3 * usual['predicted_ms']:.1f}, {1e3 * best['predicted_ms']:.1f} |")


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    for function in (build, run, table):
        command = commands.add_parser(function.__name__)
        command.set_defaults(function=function)
        if function is build:
            command.add_argument("--refold", required=True)
            command.add_argument("--out", required=True, type=pathlib.Path)
        elif function is run:
            command.add_argument("--refold-run", required=True, type=pathlib.Path)
            command.add_argument("--packages", required=True, type=pathlib.Path)
            command.add_argument("--out", type=pathlib.Path)
        else:
            command.add_argument("file", type=pathlib.Path)
    options = parser.parse_args()
    options.function(options)


if __name__ == "__main__":
    sys.exit(main())
