#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The acceptance lines of the CUDA target in one go: what the scripts beside this one time, with their peers.

    acceptance.py --refold build/release/bin/refold --out FOLDER                     # packages and bundles, without a GPU
    acceptance.py --library librefold_run.so --packages FOLDER --out LOG [--only rows,lists]       # there
    acceptance.py --table LOG                                                        # every line: ours, peer, ratio

MiniLM is a package of its own (models.py): FOLDER/minilm.rfx is taken where it is there. LOG is what the scripts print.
"""

import argparse
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ROWS = ("softmax", "layernorm", "entropy", "kl_divergence", "logsumexp", "variance", "rmsnorm_fp8")
LONG = ("examples/variance", "examples/entropy", "examples/logsumexp", "benchmarks/suite/programs/kurtosis")
#: Name: script and arguments; {p} is the folder of packages, {l} the library.
RUNS = {
    "ceilings": "rows.py --bundles {p}/lists --only none",
    "rows": "packages.py --library {l} --packages {p}/rows --peers",
    "lists": "lists.py --bundles {p}/lists --peers",
    "products": "product_rows.py --library {l} --packages {p}/pr --rows 8192,1024,128,16,1 --peers",
    "attention": "tiles.py --bundles {p}/tiles --peers",
    "sm80": "tiles.py --bundles {p}/tiles80 --peers",
    "parts": "parts.py --library {l} --packages {p}/parts --peers",
    "latent": "latent.py --library {l} --package {p}/latent.rfx --ragged {p}/latent_ragged.rfx --peers",
    "f8": "f8_products.py --library {l} --packages {p}/f8",
    "minilm": "models.py --library {l} --package {p}/minilm.rfx",
}


def build(refold, out):
    def package(source, to, *options):
        to.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([refold, "compile", "--target", "cuda-sm90", *options, source, "-o", to], check=True)

    def bundles(folder, *options):
        subprocess.run([sys.executable, HERE / "build_bundles.py", "--refold", refold, "--out", out / folder, *options], check=True)

    for name in ROWS:
        package(ROOT / f"examples/{name}.fold", out / f"rows/{name}.bf16.rfx", "--dtype", "bf16")
    for dtype in ("bf16", "f32"):
        for name in LONG:
            package(ROOT / f"{name}.fold", out / f"parts/{pathlib.Path(name).name}.{dtype}.rfx", "--dtype", dtype)
        package(ROOT / "test/Catalogue/catalogue_60_moment_of_inertia.fold", out / f"parts/inertia.{dtype}.rfx", "--dtype", dtype)
    suite = ROOT / "benchmarks/suite/programs"
    package(suite / "decode.fold", out / "parts/decode.bf16.rfx", "--dtype", "bf16", "--dim=d=128,e=128")
    package(suite / "latent_decode.fold", out / "latent.rfx", "--dtype", "bf16", "--dim", "e=512")
    for name in ("balanced", "most-accurate"):
        package(ROOT / "examples/fp8_quantised_product.fold", out / f"f8/{name}.rfx", "--dtype", "bf16", "--stability", name)
    for script in ("product_rows.py", "latent.py"):
        subprocess.run([sys.executable, HERE / script, "--programs", out / "programs"], check=True)
    package(out / "programs/latent_ragged.fold", out / "latent_ragged.rfx", "--dtype", "bf16", "--dim", "e=512")
    for path in sorted((out / "programs").glob("experts*.fold")):
        package(path, out / f"pr/{path.stem}.rfx")
    bundles("lists", "--dtypes", "bf16", "--programs", "test/Target/CUDA/Inputs/router.fold")
    bundles("tiles", "--tiles", "--head-widths", "64,80,128,256")
    bundles("tiles80", "--tiles", "--target", "cuda-sm80", "--arch", "sm_90")


def run(options):
    failed = []
    with options.out.open("a") as log:
        for name in options.only.split(",") if options.only else RUNS:
            script, *arguments = RUNS[name].format(p=options.packages, l=options.library).split()
            if name == "minilm" and not (options.packages / "minilm.rfx").exists():
                continue
            done = subprocess.run([sys.executable, HERE / script, *arguments], capture_output=True, text=True)
            failed += [name] * (done.returncode != 0)
            log.write(f"== {name} {done.returncode}\n{done.stdout}")
            log.flush()
            print(f"== {name}: {'failed' if done.returncode else 'right'}", done.stderr[-800:] if done.returncode else "", flush=True)
    sys.exit(bool(failed))


def read(path):
    """{run: its lines}, each {field: value} where a line is made of these, and the text."""
    found, lines = {}, []
    for line in path.read_text().splitlines():
        if line.startswith("== "):
            lines = found.setdefault(line.split()[1], [])
            continue
        fields = dict(re.findall(r"(\w+)=(\S+)", line))
        lines.append({k: float(v) if re.fullmatch(r"[-+.e\d]+", v) else v for k, v in fields.items()} | {"text": line})
    return found


def pairs(lines, keys, value):
    """{values of `keys`: {ours or the peer's name: `value`}}."""
    found = {}
    for line in lines:
        if value in line and all(k in line for k in keys):
            found.setdefault(tuple(line[k] for k in keys), {})[line.get("peer", "ours")] = line[value]
    return found


def table(path):
    found = read(path)
    out = lambda *cells: print("| " + " | ".join(f"{c:.4g}" if isinstance(c, float) else str(c) for c in cells) + " |")
    ceiling = found["ceilings"][0]
    print(f"read {ceiling['read_tbs']:.3g}, copy {ceiling['torch_copy_tbs']:.3g} TB/s")
    out("line", "ours", "peer", "ratio")
    for (program, width), tbs in pairs(found["rows"], ("program", "width"), "tbs").items():
        gives_rows = program in ("softmax", "layernorm", "rmsnorm_fp8")
        share = tbs["ours"] / ceiling["torch_copy_tbs" if gives_rows else "read_tbs"]
        out(f"{program} {width:.0f}", f"{tbs['ours']:.2f} TB/s", f"Inductor {tbs['inductor']:.2f}",
            f"{share:.3f} of the {'copy' if gives_rows else 'read'}, {tbs['ours'] / tbs['inductor']:.2f}x")
    for (width,), ms in pairs(found["lists"], ("width",), "ms").items():
        out(f"softmax + top-8 {width:.0f}", f"{ms['ours']:.3f} ms", f"Inductor {ms['inductor']:.2f}", f"{ms['inductor'] / ms['ours']:.0f}x")
    for line in found["products"]:
        if "fused_ms" in line:
            out(f"product + top-k {line['experts']:.0f}/{line['best']:.0f} {line['hidden']:.0f} x {line['rows']:.0f}",
                f"{line['fused_ms']:.4f} ms", f"Inductor {line['inductor_ms']:.4f}", f"{line['over_inductor']:.2f}x")
    for name in ("attention", "sm80"):
        for (program, width, length), tflops in pairs(found[name], ("program", "width", "length"), "tflops").items():
            ratios = ", ".join(f"{tflops['ours'] / v:.2f} of {k}" for k, v in tflops.items() if k != "ours")
            out(f"{name} {program} {width:.0f} S {length:.0f}", f"{tflops['ours']:.0f} TFLOP/s",
                ", ".join(f"{k} {v:.0f}" for k, v in tflops.items() if k != "ours"), ratios)
    by_rows = {}
    for line in found["f8"]:
        if "rows" in line:
            by_rows.setdefault(line["rows"], []).append(line["text"])
    for texts in by_rows.values():
        ms = [(re.search(r"name=(.*?) rows", t)[1], float(re.search(r" ms=(\S+)", t)[1])) for t in texts]
        for name, own in ms:
            out(f"f8 {texts[0].split('rows=')[1].split()[0]}", name, f"{own:.4f} ms", f"{own / ms[0][1]:.3f} of ours")
    for name in ("parts", "latent", "minilm"):
        for line in found.get(name, ()):
            out(name, line["text"], "", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--refold")
    parser.add_argument("--library", type=pathlib.Path)
    parser.add_argument("--packages", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--table", type=pathlib.Path)
    options = parser.parse_args()
    if options.table:
        table(options.table)
    elif options.refold:
        build(options.refold, options.out)
    else:
        run(options)


if __name__ == "__main__":
    main()
