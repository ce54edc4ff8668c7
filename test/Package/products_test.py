#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packages for the CPU with matrix products outside cascades: oneDNN is loaded where a product is left to it, and only there.

    products_test.py [check_bits ...]
"""

import pathlib
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "test/Target/CUDA"))
sys.path.insert(0, str(ROOT / "test/Package"))
from package_test import REFOLD, RUN, calls_library, run_checks, write_npy  # noqa: E402

SIZES = {"b": 3, "m": 70, "k": 33, "n": 40}
# Products of pairs, as they lie and turned; then those that few columns leave to oneDNN.
PROGRAMS = {"pairs": ("pairs(a[b,m,k], c[b,k,n]) -> y\n  y[b,m,n] = sum(k: a[b,m,k] * c[b,k,n])\n", 40),
            "turned": ("turned(a[b,m,k], c[b,n,k]) -> y\n  y[b,m,n] = sum(k: a[b,m,k] * c[b,n,k])\n", 40),
            "across": ("across(a[b,m,k], c[b,k,n]) -> y\n  y[m,b,n] = sum(k: a[b,m,k] * c[b,k,n])\n", 40),
            "few": ("few(a[b,m,k], c[b,k,n]) -> y\n  y[b,m,n] = sum(k: a[b,m,k] * c[b,k,n])\n", 8),
            "kept": ("kept(a[b,m,k], c[b,k,n]) -> y\n  p[b,m,n] = sum(k: a[b,m,k] * c[b,k,n])\n"
                     "  y[b,m] = sum(n: exp(p - max(n: p)) * n)\n", 8)}
ORDER = {"turned": "bnk"}


def compile_one(files, name, *flags):
    """A package of a program whose columns are known, and what was said of it."""
    text, columns = PROGRAMS[name]
    package = files.folder / f"{name}{''.join(flags)}.rfx"
    told, _ = files.machine.answers("compile", "--target", "cpu", files.write(name, text), "--dim", f"n={columns}", *flags,
                                    "-o", package)
    return package, told


def given(files, name, kind="f"):
    """Flags with its inputs, normal numbers."""
    sizes = dict(SIZES, n=PROGRAMS[name][1])
    flags = []
    for i, (port, dims) in enumerate((("a", "bmk"), ("c", ORDER.get(name, "bkn")))):
        path = files.folder / f"{name}.{port}.npy"
        write_npy(path, [sizes[d] for d in dims], i, kind)
        flags += ["--input", f"{port}={path}"]
    return flags


def check_bits(files):
    """The bits of `refold run`, on one thread and two, in f32 and where other types are read as f32."""
    left_to_library = 0
    for name, (_, columns) in PROGRAMS.items():
        for flags, kind in ((), "f"), (("--dtype", "f16"), "e"):
            package, told = compile_one(files, name, *flags)
            left_to_library += "remark: the package needs oneDNN where it runs, for 1 products: '" in told
            inputs = given(files, name, kind)
            for threads in ("1", "2"):
                written = []
                for tool, extra in ((RUN, [package]), (REFOLD, ["run", files.folder / f"{name}.fold", "--dim", f"n={columns}", *flags])):
                    out = files.folder / f"{tool.name}.npy"
                    code, text, _ = files.machine.run(tool, *extra, *inputs, "--output", f"y={out}", "--threads", threads)
                    assert code == 0, (name, flags, text)
                    written.append(out.read_bytes())
                assert written[0] == written[1], (name, flags, threads)
    assert left_to_library >= 2, left_to_library


def check_loops(files):
    """Types that oneDNN has no product of need none of it."""
    package, told = compile_one(files, "pairs", "--dtype", "f64")
    assert "oneDNN" not in told, told
    inputs = given(files, "pairs", "d")
    out = files.folder / "y.npy"
    code, text, _ = files.machine.run(RUN, package, *inputs, "--output", f"y={out}", REFOLD_ONEDNN="/no-such.so")
    assert code == 0, text
    files.machine.answers("run", files.folder / "pairs.fold", "--dim", "n=40", "--dtype", "f64", *inputs, "--output",
                          f"y={files.folder}/same.npy")
    assert out.read_bytes() == (files.folder / "same.npy").read_bytes()


def check_gpu(files):
    """A GPU has kernels for the same products: nothing is refused, and no library is needed."""
    for name in ("pairs", "turned", "few"):
        for flags, kind, bound in ((), "f", 1e-5), (("--dtype", "f16"), "e", 2e-2):
            text, columns = PROGRAMS[name]
            package = files.folder / f"{name}.cuda.rfx"
            told, _ = files.machine.answers("compile", "--target", "cuda-sm90", files.write(name, text), "--dim", f"n={columns}",
                                            *flags, "-o", package)
            assert told == "", told
            inputs = given(files, name, kind)
            out = files.folder / "y.npy"
            code, text, _ = files.machine.run(RUN, package, *inputs, "--output", f"y={out}", REFOLD_ONEDNN="/no-such.so",
                                              REFOLD_NVRTC="/no-such.so")
            assert code == 0, (name, flags, text)
            files.machine.answers("run", files.folder / f"{name}.fold", "--dim", f"n={columns}", *flags, *inputs, "--output",
                                  f"y={files.folder}/same.npy")
            ours, theirs = (numbers(path, kind) for path in (out, files.folder / "same.npy"))
            assert len(ours) == SIZES["b"] * SIZES["m"] * columns
            assert max(abs(a - b) for a, b in zip(ours, theirs)) <= bound * max(map(abs, theirs)), (name, flags)


def numbers(path, kind):
    data = path.read_bytes()
    data = data[10 + int.from_bytes(data[8:10], "little"):]
    return struct.unpack(f"<{len(data) // struct.calcsize(kind)}{kind}", data)


def make_library(files, name, body):
    source, library = files.folder / f"{name}.c", files.folder / f"{name}.so"
    source.write_text("struct version { int major, minor, patch; const char *hash; unsigned cpu, gpu; };\n" + body)
    subprocess.run([files.machine.compiler, "-x", "c", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def check_refused(files):
    """A library that is missing, another version, or one with threads that nobody can hold back: told when the package is
    opened, before it asks for an input."""
    package, _ = compile_one(files, "few")

    def version(numbers, runtime):
        return ("const struct version *dnnl_version(void) { static const struct version is = {%s, 0, \"\", %d, 0}; return &is; }\n"
                % (numbers, runtime))

    folder = files.folder / "empty"
    folder.mkdir()
    for library, words in (
            ("/no-such.so", "/no-such.so: cannot open shared object file"), (folder, "no such file"),
            (make_library(files, "newer", version("3, 4", 2)), "newer.so is version 3.4"),
            (make_library(files, "older", version("2, 5", 2)), "older.so is version 2.5"),
            (make_library(files, "tbb", version("2, 6", 4)), "tbb.so has threads of its own"),
            (make_library(files, "short", version("2, 6", 1)), "short.so lacks 'dnnl_engine_create'"),
            (make_library(files, "other", "int other;"), "other.so lacks 'dnnl_version'")):
        code, text, _ = files.machine.run(RUN, package, REFOLD_ONEDNN=str(library))
        assert code == 4 and text.startswith("error: 'few': 'y' is a matrix product by oneDNN: found no oneDNN ("), (code, text)
        assert words in text and "apt-get install libdnnl2" in text and text.count("\n") == 1, (words, text)
    code, text, _ = files.machine.run(RUN, package)
    assert code == 2 and "found no extent of" in text, (code, text)


def check_threads(files):
    """One pool a process: products on two threads start none beside ours, whatever OpenMP is told; and a program without them
    loads nothing."""
    package, _ = compile_one(files, "few")
    plain = files.package("examples/softmax.fold")
    calls_library(files, f"""
def tasks():
    return len(os.listdir("/proc/self/task"))
def has(library):
    return library in open("/proc/self/maps").read()
handle = open_package({str(plain)!r}, threads=2)
error, planned = plan(handle, (512, 4096))
x, y = numbers(512 * 4096), numbers(512 * 4096)
assert run(handle, planned, (x,), (y,)) == (0, "")
before = tasks()
assert before == 2 and not has("libdnnl") and not has("libgomp"), before
handle = open_package({str(package)!r}, threads=2)
assert has("libdnnl") and tasks() == before
error, planned = plan(handle, (64, 512, 64), (64, 64, 8))
assert error == 0
a, c, y = numbers(64 * 512 * 64), numbers(64 * 64 * 8, 5), numbers(64 * 512 * 8)
for _ in range(3):
    assert run(handle, planned, (a, c), (y,)) == (0, "")
    assert tasks() == before, tasks()
assert y[9] == sum(a[64 + k] * c[k * 8 + 1] for k in range(64))
""", OMP_NUM_THREADS="4")


CHECKS = [check_bits, check_loops, check_gpu, check_refused, check_threads]

if __name__ == "__main__":
    sys.exit(run_checks(CHECKS))
