#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What needs no GPU of the CUDA target's rows, on programs of examples/ and the catalogue.

Emulated in all modes against double (ragged, empty, one-vector and long rows, growing scores, NaN and
-inf), every entry on its own; compiled for sm_80 and sm_90a without spills or stack; the host's compiler
takes the same text with warnings as errors.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy

import checks
from checks import ROOT, nvrtc
from conformance_test import f8_codes, f8_values

REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))

EMULATED = [("examples/softmax", "f32"), ("examples/softmax", "bf16"), ("examples/entropy", "f16"),
            ("examples/layernorm", "bf16"), ("examples/variance", "f32"), ("examples/kl_divergence", "f32"),
            ("examples/cross_entropy", "f32"), ("test/Catalogue/masks_masked_variance", "f32"),
            ("test/Catalogue/catalogue_36_quantised_rows", "f32"), ("test/Catalogue/catalogue_01_log_softmax", "f32"),
            ("test/Target/CUDA/Inputs/names", "f32"),
            # Floats of 8 bits, and rows quantised to them.
            ("examples/rmsnorm_fp8", "bf16"), ("examples/rmsnorm_fp8", "f32"), ("benchmarks/suite/programs/rmsnorm_int8", "bf16"),
            ("test/Target/CUDA/Inputs/layernorm_f8", "f16"), ("test/Target/CUDA/Inputs/f8", "f32"),
            ("test/Target/CUDA/Inputs/f8_columns", "f32"),
            # A few elements of each column, as of points in space.
            ("test/Target/CUDA/Inputs/groups", "f32"), ("test/Target/CUDA/Inputs/groups", "bf16"), ("test/Execution/coordinates", "f16"),
            ("test/Target/CUDA/Inputs/places", "f32"), ("test/Target/CUDA/Inputs/two_places", "f32"),
            # A thread a row: weighted sums, arrays read and written across.
            ("test/Catalogue/theory_sink", "f32"), ("examples/softmax_columns", "f32"), ("examples/rmsnorm_product", "f32"),
            # Rows over several indices: results along all of them, rows of neighbours, one row.
            ("examples/groupnorm", "f32"), ("test/Catalogue/catalogue_31_batch_norm", "bf16"), ("test/Target/CUDA/Inputs/totals", "f32")]
COMPILED = [("examples/softmax", "bf16"), ("examples/entropy", "bf16"), ("examples/layernorm", "bf16"),
            ("examples/variance", "f32"), ("examples/kl_divergence", "f32"), ("examples/cross_entropy", "f16"),
            ("test/Target/CUDA/Inputs/names", "f32"), ("test/Catalogue/theory_sink", "f32"), ("examples/rmsnorm_fp8", "bf16"),
            ("test/Target/CUDA/Inputs/layernorm_f8", "bf16"), ("test/Target/CUDA/Inputs/f8", "f32"),
            ("test/Target/CUDA/Inputs/f8_overflow.mlir", "f32"), ("benchmarks/suite/programs/rmsnorm_int8", "bf16"),
            ("test/Catalogue/theory_kurtosis", "f32"), ("test/Execution/coordinates", "f32"),
            ("test/Target/CUDA/Inputs/groups", "f32"), ("test/Target/CUDA/Inputs/groups", "bf16"),
            ("examples/groupnorm", "f32"), ("test/Target/CUDA/Inputs/totals", "f32")]
FOLD_WORDS = {"max", "min", "sum", "exp", "mean", "log", "len", "where", "any", "all", "prod", "abs", "sqrt", "true", "false",
              "inf", "nan", "f32", "f16", "bf16", "p", "q", "r", "t", "u"}  # no names in .fold, or taken by the test itself
EACH_ENTRY = [("examples/softmax", "bf16"), ("examples/variance", "f32"), ("test/Target/CUDA/Inputs/column_softmax", "f32"),
              ("test/Target/CUDA/Inputs/column_variance", "bf16")]
# Long rows of several blocks: an extreme, means that move, counts, two arrays, one element at once.
PARTS = [("examples/variance", "f32", "40000,17001", "m=3"), ("examples/entropy", "bf16", "70000", "m=2"),
         ("examples/logsumexp", "f32", "40000", "m=3"), ("test/Catalogue/theory_kurtosis", "f32", "33000", "row=1"),
         ("examples/kl_divergence", "f32", "30001", "m=2"), ("test/Catalogue/masks_masked_variance", "f32", "20000", "row=2"),
         ("test/Execution/coordinates", "f32", "33001,40000", "b=2"), ("test/Execution/coordinates", "bf16", "33000,40000", "b=2"),
         ("examples/variance", "bf16", "70000,65544", "m=2"), ("test/Target/CUDA/Inputs/column_variance", "bf16", "3001,600", "i=40"),
         ("test/Target/CUDA/Inputs/middle_logsumexp", "f32", "3001,600", "b=3,i=21")]
# The same with results along the row: growing rows, -inf, NaN, several outputs and arrays, groups of indices, one element at once.
SWEPT = [("examples/softmax", "bf16", "70000,16392", "m=2"), ("examples/layernorm", "f32", "30004,5000", "m=3"),
         ("test/Catalogue/catalogue_01_log_softmax", "f16", "40000", "b=2"), ("examples/layernorm", "bf16", "20001", "m=2"), ("examples/softmax", "bf16", "20001,2049", "m=2"),
         ("test/Catalogue/catalogue_36_quantised_rows", "f32", "17000", "b=2"), ("test/Catalogue/catalogue_16_softmax_backward", "bf16", "20000", "b=2"),
         ("test/Catalogue/catalogue_32_root_mean_square_norm_backward", "f32", "9000", "b=2"), ("examples/groupnorm", "f32", "700", "b=1,g=3"),
         ("test/Target/CUDA/Inputs/column_softmax", "f32", "2100,1025", "i=70")]
KEPT = [("examples/layernorm", "bf16"), ("examples/rmsnorm_fp8", "bf16"), ("test/Catalogue/catalogue_01_log_softmax", "f32")]  # the entries that keep rows


def refold(*arguments, **environment):
    done = subprocess.run([REFOLD, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600,
                          env=dict(os.environ, **environment))
    assert done.returncode == 0, " ".join(arguments) + "\n" + done.stdout + done.stderr
    return done.stdout


def path_of(program, dtype):
    """And the flag for its type, which MLIR has itself."""
    return [program] if program.endswith(".mlir") else [f"{program}.fold", "--dtype", dtype]


def verify(program, dtype, lengths, broad, *more, target="cuda-emulated", **environment):
    refold("verify", "--target", target, *path_of(program, dtype), "--lengths", lengths,
           "--broad-length", broad, "--first-seeds", "1", "--seeds", "8", "--splits", "0", "--threads", "1", *more, **environment)


def kernels_of(program, dtype, target="cuda-sm90", *more):
    text = refold("compile", "--target", target, "--emit", "cuda", "--format", "json", *path_of(program, dtype), *more)
    return json.loads(text)["kernels"]


def check_emulated(program, dtype):
    lengths = "1,8,17,1000" if "cross_entropy" in program else "0,1,8,17,1000"
    lengths = "0,1,8,17,65" if "totals" in program or "batch_norm" in program else lengths  # to the third and second power
    verify(program, dtype, lengths, "64", REFOLD_EMULATOR_OPT="0")  # compiled for longer than run


def check_parts(program, dtype, lengths, rows):
    assert any(e["most_blocks"] > 0 for e in kernels_of(program, dtype)[0]["entries"])
    verify(program, dtype, lengths, "0", "--shape", rows)


def check_swept(program, dtype, lengths, rows):
    """By blocks that wait for each other, in all entries that have those, whatever a launch would take."""
    entries = [e for e in kernels_of(program, dtype)[0]["entries"] if e["waits"]]
    assert entries, (program, dtype)
    for entry in entries:
        suffix = entry["name"].split("_")[-1]
        verify(program, dtype, lengths, "0", *(["--shape", rows] if rows else []), target="cuda-emulated-sm90", REFOLD_CUDA_ENTRY=suffix)


def check_entry(program, dtype, entry):
    # Whole vectors, so that each entry may run; several chunks of the widest.
    longest = max(entry["longest"], 64)
    chunk = entry["threads"] * entry["vectors"] * entry["width"]
    length = longest if entry["resident"] else (9 if entry["most_blocks"] else 3) * chunk + 8 * entry["width"]
    if entry["kept_bytes"]:  # a chunk and a half; rows of their own places for every block
        length = chunk + chunk // 2
    if entry["blocks"] > 1:  # two chunks or one for each, and nothing
        length += (entry["blocks"] + 1) * chunk
    if entry["ahead_bytes"]:  # a chunk each, of some vectors and a half
        length = longest // 4 + chunk // entry["vectors"] // 2
    suffix = entry["name"].split("_")[-1]
    verify(program, dtype, f"{entry['width']},{length}", "0", target="cuda-emulated-sm90", REFOLD_CUDA_ENTRY=suffix)


def check_places_of_clusters():
    """Results beside each other that a row has once: of blocks that have it together, one writes them."""
    program = "test/Target/CUDA/Inputs/numbers_of_rows"
    assert any(e["blocks"] == 4 and e["name"].endswith("cluster4x512x2x4") for e in kernels_of(program, "f32", "cuda-sm90", "--dim", "r=3")[0]["entries"])
    verify(program, "f32", "8,20000", "0", "--dim", "r=3", "--shape", "m=2", target="cuda-emulated-sm90", REFOLD_CUDA_ENTRY="cluster4x512x2x4")


def check_text(program, dtype):
    """Same bytes twice; the host's compiler has nothing to say."""
    assert kernels_of(program, dtype) == kernels_of(program, dtype)
    compiler = next(c for c in ("clang++-19", "clang++", "g++") if shutil.which(c))
    with tempfile.TemporaryDirectory() as folder:
        for kernel in kernels_of(program, dtype, "cuda-sm80"):
            source = pathlib.Path(folder) / "kernel.cpp"
            source.write_text("#define REFOLD_CUDA_EMULATED\n" + kernel["text"])
            warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-warning-option"]
            done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", *warnings, "-I", ROOT / "runtime/cuda", source],
                                  capture_output=True, text=True)
            assert done.returncode == 0, f"{program} {dtype}\n{done.stderr}"


def check_overflow(program):
    """What nothing saturates, by definition, on the CPU and emulated."""
    steps = numpy.float32([448, 464, 464.0001, 480, 57344, 61439.99, 61440, 65536, 1e30, numpy.inf, numpy.nan, 1e-9, 0.0, 13.0])
    draws = numpy.random.default_rng(4).standard_normal(171) * 3
    x = numpy.concatenate([steps / 300, steps / 90000, draws]).astype("f4")[None] * numpy.float32([[1], [-1]])
    with tempfile.TemporaryDirectory() as folder, numpy.errstate(over="ignore"):
        numpy.savez(f"{folder}/in.npz", x=x)
        scaled = {"p": x * numpy.float32(300), "q": x * numpy.float32(300) * numpy.float32(300)}
        for target in ("baseline", "cuda-emulated"):
            refold("run", "--target", target, program, f"--inputs-from={folder}/in.npz", f"--outputs-to={folder}/out.npz")
            found = numpy.load(f"{folder}/out.npz")
            for name, values in {"p": f8_values(3, 7, False), "q": f8_values(2, 15, True)}.items():
                signed = numpy.concatenate([values, -values])
                got, wanted = signed[found[name].view("u1")], signed[f8_codes(scaled[name], values, False)]
                same = (got == wanted) & (numpy.signbit(got) == numpy.signbit(wanted)) | numpy.isnan(got) & numpy.isnan(wanted)
                assert same.all(), (target, name, x[~same][:4], got[~same][:4], wanted[~same][:4])


def identifiers(program):
    code = "\n".join(line.split("//")[0] for kernel in kernels_of(program, "f32") for line in kernel["text"].splitlines())
    return set(re.findall(r"[A-Za-z]\w*", code)) - FOLD_WORDS


def check_names_of_columns(names):
    """The same of rows that lie across: as an array, and as two indices, whose places would be others' (run, since a name that
    hides another compiles)."""
    x, batch, m = (names + ["p", "q", "r"])[:3]
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "names.fold").write_text(f"f({x}[{batch},n9,{m}]) -> y9\n  m9 = max(n9: {x})\n  y9 = exp({x} - m9)\n")
        check_text(f"{folder}/names", "f32")
        verify(f"{folder}/names", "f32", "17", "0", "--shape", f"{batch}=2,{m}=40", target="cuda-emulated-sm90", REFOLD_EMULATOR_OPT="0")


def check_room(compiler, program, arch):
    """More states than 16 warps have room for to tell each other, in what a launch need not ask for."""
    for kernel in kernels_of(program, "f32", "cuda-" + arch.replace("_", "").rstrip("a")):
        assert compiler.compile(kernel["text"], arch)[0][:4] == b"\x7fELF"


def check_names(names):
    """Words of the generated text as names of a program."""
    x, m, n, scale, weight = (names + ["p", "q", "r", "t", "u"])[:5]
    text = (f"f({x}[{m},{n}], {scale}[{m}], {weight}[{n}]) -> y9\n  m9 = max({n}: {x})\n  z9 = sum({n}: exp({x} - m9))\n"
            f"  y9[{m},{n}] = exp({x} - m9) / z9 * {scale} + {weight}\n")
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "names.fold").write_text(text)
        check_text(f"{folder}/names", "f32")


def check_compiled(compiler, program, dtype, arch):
    for kernel in kernels_of(program, dtype, "cuda-" + arch.replace("_", "").rstrip("a")):
        cubin, log = compiler.compile(kernel["text"], arch)
        found = nvrtc.resources(log)
        for entry in kernel["entries"]:
            registers, stack, spilled = found[entry["name"]]
            limit = 65536 // (entry["threads"] * entry["rows"])
            assert (stack, spilled) == (0, 0) and registers <= min(limit, 255), (entry["name"], arch, found[entry["name"]])
        assert cubin[:4] == b"\x7fELF"


def main():
    cases = [(check_emulated, *case) for case in EMULATED]
    cases += [(check_text, *case) for case in COMPILED]
    cases += [(check_parts, *case) for case in PARTS]
    cases += [(check_swept, *case) for case in SWEPT]
    cases.append((check_text, "test/Catalogue/catalogue_57_kernel_regression", "f32"))  # a quotient by a place
    cases.append((check_places_of_clusters,))
    cases.append((check_overflow, "test/Target/CUDA/Inputs/f8_overflow.mlir"))
    for program, dtype in EACH_ENTRY:
        cases += [(check_entry, program, dtype, e) for e in kernels_of(program, dtype)[0]["entries"]]
    for program, dtype in KEPT:
        cases += [(check_entry, program, dtype, e) for e in kernels_of(program, dtype)[0]["entries"] if e["kept_bytes"] and e["blocks"] < 8]
    names = sorted(set().union(*map(identifiers, ("examples/softmax", "examples/variance", "examples/layernorm"))))
    cases += [(check_names, names[i:i + 5]) for i in range(0, len(names), 5)]
    columns = identifiers("test/Target/CUDA/Inputs/column_softmax") | identifiers("test/Target/CUDA/Inputs/column_variance")
    words = sorted(word for word in columns - set(names) if "_" not in word)
    cases += [(check_names_of_columns, words[i:i + 3]) for i in range(0, len(words), 3)]
    cases += [(check_names_of_columns, words[i + 1:i + 3] + words[i:i + 1]) for i in range(0, len(words), 3)]
    gates = [(program, dtype, arch) for program, dtype in COMPILED for arch in ("sm_80", "sm_90a")]
    gated, skipped = checks.compiled(check_compiled, gates)
    rooms, without = checks.compiled(check_room, [("test/Target/CUDA/Inputs/column_sums", arch) for arch in ("sm_80", "sm_90a")])
    return checks.run(cases + gated + rooms, skipped + without)


if __name__ == "__main__":
    sys.exit(main())
