#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packages: written by refold, loaded by refold-run and librefold_run, which know no compiler. GPUs are the fake
one of test/Target/CUDA.

    package_test.py [check_cpu ...]
"""

import json
import os
import pathlib
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "test/Target/CUDA"))
import device_test  # noqa: E402

REFOLD = pathlib.Path(device_test.REFOLD)
RUN = REFOLD.parent / "refold-run"
LIBRARY = REFOLD.parent.parent / "lib-c/librefold_run.so"
MOST_BYTES = 5 << 20
PROGRAMS = [("examples/softmax.fold", "m=3,n=40"), ("examples/entropy.fold", "m=3,n=4290"),
            ("test/Target/CUDA/Inputs/rows_and_copy.mlir", "m=3,n=40"),
            ("examples/attention.fold", "b=1,h=2,m=19,n=37,d=16,e=16"), ("test/Execution/Inputs/of_weights.mlir", "n=50")]


class Files:
    def __init__(self, machine):
        self.machine, self.folder = machine, machine.folder

    def write(self, name, text):
        path = self.folder / f"{name}.fold"
        path.write_text(text)
        return path

    def package(self, program, target="cpu", **environment):
        path = self.folder / f"{pathlib.Path(program).stem}.{target}.rfx"
        self.machine.answers("compile", "--target", target, program, "-o", path, **environment)
        return path


def check_size(files):
    """Stripped, the tool and the library are small, and link to nothing of a compiler."""
    for binary in (RUN, LIBRARY):
        small = files.folder / binary.name
        subprocess.run(["strip", "-o", small, binary], check=True)
        assert small.stat().st_size < MOST_BYTES, small.stat().st_size
        needed = subprocess.run(["ldd", binary], check=True, capture_output=True, text=True).stdout
        for word in ("LLVM", "MLIR", "dnnl", "cuda", "nvrtc", "gomp"):
            assert word not in needed, needed


def check_header(files):
    subprocess.run(["clang-19", "-std=c99", "-Wall", "-Wextra", "-Wstrict-prototypes", "-Werror", "-fsyntax-only", "-x", "c",
                    ROOT / "include/refold-c/Package.h"], check=True)


def check_cpu(files):
    """The bits of `refold run`, on any number of threads."""
    for program, shape in PROGRAMS:
        package = files.package(program)
        run, _ = files.machine.answers("run", program, "--shape", shape, "--outputs-to", files.folder / "out.npz")
        names = [line.split(":")[0] for line in run.splitlines() if ": " in line and "[" in line]
        inputs = make_inputs(files, program, shape)
        for threads in ("1", "2"):
            for tool, extra in ((REFOLD, ["run", program]), (RUN, [package])):
                out = [f"--output={n}={files.folder}/{tool.name}.{n}.npy" for n in names]
                out = [part for one in out for part in ("--output", one.split("=", 1)[1])]
                given = [part for name, path in inputs for part in ("--input", f"{name}={path}")]
                code, text, _ = files.machine.run(tool, *extra, *given, *out, "--threads", threads)
                assert code == 0, text
            for name in names:
                ours, theirs = ((files.folder / f"{tool.name}.{name}.npy").read_bytes() for tool in (RUN, REFOLD))
                assert ours == theirs, (program, name)


def check_certificates(files):
    """Kernels of an attempt whose certificate failed are in no package, whatever the cache holds: cold, then warm."""
    programs = {"chi": "f(o[b,i,j]) -> s\n  row[b,i] = sum(j: o)\n  column[b,j] = sum(i: o)\n  total[b] = sum(i, j: o)\n"
                       "  e = row * column / total\n  s = sum(i, j: (o - e)^2 / e)\n",
                "best": "f(x[row,n], w[n,col]) -> best, at: i32, total\n  m = max(n: x)\n  s = sum(n: exp(x - m))\n"
                        "  best[row,col,r], at[row,col,r] = topk(n: 2.0*w - m, 3)\n  total[row,col] = sum(n: exp(x - m) / s * w)\n"}
    for name, text in programs.items():
        program = files.write(name, text)
        made = [files.package(program).read_bytes() for _ in range(3)]
        made += [files.package(program, REFOLD_CACHE_DIR="").read_bytes()]
        assert all(one == made[0] for one in made), (name, [len(one) for one in made])


def make_inputs(files, program, shape):
    """Normal f32 arrays for every input of a program, as files."""

    ports = json.loads(files.machine.answers("inspect", program, "--format", "json")[0])["inputs"]
    extents = dict(one.split("=") for one in shape.split(","))
    made = []
    for i, port in enumerate(ports):
        dims = [int(extents[d]) if e is None else e for d, e in zip(port["dims"], port["extents"])]
        path = files.folder / f"{port['name']}.npy"
        write_npy(path, dims, i)
        made.append((port["name"], path))
    return made


def write_npy(path, dims, seed, kind="f", descr=""):
    """Normal numbers, of f32 or (kind "e") f16; any bytes are a number of another type of that width, `descr`."""
    count = 1
    for d in dims:
        count *= d
    generator = random.Random(seed)
    header = str({"descr": descr or f"<f{struct.calcsize(kind)}", "fortran_order": False, "shape": tuple(dims)})
    header += " " * (63 - (len(header) + 10) % 64) + "\n"
    data = struct.pack(f"<{count}{kind}", *(generator.gauss(0, 1) for _ in range(count)))
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data)


def check_gpu(files):
    """Needs no NVRTC, gives the values of `refold run`; refused on another GPU, unless it may be compiled there."""
    package = files.package("examples/softmax.fold", "cuda-sm90")
    write_npy(files.folder / "x.npy", [3, 40], 0)
    given = ["--input", f"x={files.folder}/x.npy", "--output", f"y={files.folder}/y.npy"]
    code, text, calls = files.machine.run(RUN, package, *given, REFOLD_NVRTC="/no-such.so")
    assert code == 0 and not any("nvrtc" in call for call in calls), text
    files.machine.answers("run", "--target", "cuda", "examples/softmax.fold", "--input", f"x={files.folder}/x.npy", "--output",
                          f"y={files.folder}/same.npy")
    assert (files.folder / "y.npy").read_bytes() == (files.folder / "same.npy").read_bytes()
    code, text, _ = files.machine.run(RUN, package, *given, FAKE_CUDA_CAPABILITY="8.0")
    assert code == 4 and "is made for sm_90a" in text and text.count("\n") == 1, (code, text)
    old = files.package("examples/softmax.fold", "cuda-sm80")
    code, text, _ = files.machine.run(RUN, old, *given, REFOLD_NVRTC="/no-such.so")
    assert code == 4 and "is made for sm_80" in text, (code, text)
    code, text, calls = files.machine.run(RUN, old, "--compile", *given)
    assert code == 0 and any("--gpu-architecture=sm_90a" in call for call in calls), text
    code, text, _ = files.machine.run(RUN, package, *given, REFOLD_LIBCUDA="/no-such.so")
    assert code == 4 and "found no CUDA driver" in text, (code, text)
    code, text, _ = files.machine.run(RUN, package, "--shape", "m=2,n=64", "--bench")
    assert code == 0 and "% of a copy" in text, text


def check_tiles(files):
    """Conditions on several sizes and shared memory by request travel, and steps for sizes that no entry has room for: the bits of `refold run`."""
    program = files.folder / "tiles.fold"
    program.write_text("f(q[m,d], k[n,d], v[n,e]) -> o\n  s = sum(d: q*k)\n  t = max(n: s)\n"
                       "  o[m,e] = sum(n: exp(s - t)*v) / sum(n: exp(s - t))\n")
    package = files.folder / "tiles.rfx"
    files.machine.answers("compile", "--target", "cuda-sm90", "--dtype", "f16", program, "-o", package)
    for depth, width in ((128, 128), (13, 40), (300, 40), (24, 260)):
        given = []
        for i, (name, dims) in enumerate((("q", [70, depth]), ("k", [90, depth]), ("v", [90, width]))):
            write_npy(files.folder / f"{name}.npy", dims, i, "e")
            given += ["--input", f"{name}={files.folder}/{name}.npy"]
        code, text, _ = files.machine.run(RUN, package, *given, "--output", f"o={files.folder}/o.npy", REFOLD_NVRTC="/no-such.so")
        assert code == 0, (code, text)
        files.machine.answers("run", "--target", "cuda", "--dtype", "f16", program, *given, "--output", f"o={files.folder}/same.npy")
        assert (files.folder / "o.npy").read_bytes() == (files.folder / "same.npy").read_bytes(), (depth, width)


def check_damage(files):
    """Bytes that are lost or changed are told, whichever they are."""
    for target in ("cpu", "cuda-sm90"):
        package = files.package("examples/softmax.fold", target)
        good = package.read_bytes()
        broken = files.folder / "broken.rfx"
        generator = random.Random(1)
        cuts = [good[:n] for n in (0, 7, 63, 64, 100, len(good) // 2, len(good) - 1)]
        for _ in range(40):
            at = generator.randrange(len(good))
            cuts.append(good[:at] + bytes([good[at] ^ 1 << generator.randrange(8)]) + good[at + 1:])
        told = 0
        for bytes_ in cuts:
            broken.write_bytes(bytes_)
            code, text, _ = files.machine.run(RUN, broken, "--shape", "m=3,n=40")
            if code == 0:
                continue  # a bit between the parts
            told += 1
            assert code == 1 and text.startswith("error: ") and text.count("\n") == 1, (code, text)
        assert told > 40, told
    newer = good[:8] + (99).to_bytes(4, "little") + good[12:]
    broken.write_bytes(newer)
    code, text, _ = files.machine.run(RUN, broken, "--shape", "m=3,n=40")
    assert code == 1 and "version 99" in text, text


def check_writing(files):
    """A file that may not grow leaves nothing behind; a target that has no packages is refused."""
    folder = files.folder / "full"
    folder.mkdir()
    target = folder / "x.rfx"
    done = subprocess.run([REFOLD, "compile", "examples/softmax.fold", "-o", target], cwd=ROOT, capture_output=True, text=True,
                          env=dict(files.machine.environment, REFOLD_CACHE_DIR=""),
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)))
    assert done.returncode == 5 and done.stderr.startswith("error: "), (done.returncode, done.stderr)
    assert list(folder.iterdir()) == [], list(folder.iterdir())
    files.machine.refuses(2, ["which no package is made for"], "compile", "--target", "cuda-emulated", "examples/softmax.fold",
                          "-o", target)
    assert list(folder.iterdir()) == []


def check_npy(files):
    """Files are written by the rules of refold, and bf16 is read as anybody writes it."""
    package = files.package("examples/softmax.fold")
    folder = files.folder / "outputs"
    folder.mkdir()
    plain, real, link, pipe = (folder / name for name in ("plain.npy", "real.npy", "link.npy", "pipe"))
    run = [RUN, package, "--shape", "m=3,n=40", "--output"]
    assert files.machine.run(*run, f"y={plain}")[0] == 0
    real.touch()
    real.chmod(0o604)
    link.symlink_to(real.name)
    assert files.machine.run(*run, f"y={link}")[0] == 0
    assert link.is_symlink() and real.stat().st_mode & 0o777 == 0o604 and real.read_bytes() == plain.read_bytes()
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    assert files.machine.run(*run, f"y={pipe}")[0] == 0
    assert pipe.is_fifo() and os.read(reader, 1 << 16) == plain.read_bytes()
    os.close(reader)
    for target, expected in ((folder, 1), (folder / "none/y.npy", 1), ("/dev/full", 5)):
        code, text, _ = files.machine.run(*run, f"y={target}")
        assert code == expected and text.startswith(f"error: {target}: "), (code, text)
    assert sorted(path.name for path in folder.iterdir()) == ["link.npy", "pipe", "plain.npy", "real.npy"]

    package = files.folder / "bf16.rfx"
    files.machine.answers("compile", "--dtype", "bf16", "examples/softmax.fold", "-o", package)
    written = []
    for descr, expected in (("|V2", 0), ("<V2", 0), (">V2", 1), ("<f2", 1)):
        write_npy(files.folder / "x.npy", [3, 40], 0, "e", descr)
        output = files.folder / "y.npy"
        code, text, _ = files.machine.run(RUN, package, "--input", f"x={files.folder}/x.npy", "--output", f"y={output}")
        assert code == expected, (descr, code, text)
        written.append(output.read_bytes())
    assert written[0] == written[1]


def check_f8(files):
    """What is stored in 8 bits is compared as the number that it is."""
    program = files.write("halves", "halves(x[m,n]) -> y: f8e4m3\n  y = f8e4m3(x/max(n: abs(x)))\n")
    package = files.package(program)
    header = str({"descr": "<f8", "fortran_order": False, "shape": (1, 2)})
    header = (header + " " * (63 - (len(header) + 10) % 64) + "\n").encode()
    for descr, kind, values in (("f4", "f", (2.0, 1.0)), ("f8", "d", (1.0, 0.5)), ("f8", "d", (1.0, 0.25))):
        data = header.replace(b"f8", descr.encode()) + struct.pack(f"<2{kind}", *values)
        (files.folder / f"{kind}{values[1]}.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + data)
    for expected, wanted in (("d0.5", 0), ("d0.25", 1)):
        code, text, _ = files.machine.run(RUN, package, "--input", f"x={files.folder}/f1.0.npy", "--expect",
                                          f"y={files.folder}/{expected}.npy")
        assert bool(code) == bool(wanted), (expected, code, text)


def check_pipe(files):
    """A pipe that nobody writes to is no package; nobody waits for it."""
    pipe = files.folder / "pipe.rfx"
    os.mkfifo(pipe)
    done = subprocess.run([RUN, pipe], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and "found no package of refold" in done.stderr, done


# The C API as a caller without a compiler sees it.
LIBRARY_CALLS = f"""
import ctypes, os, resource
lib = ctypes.CDLL({str(LIBRARY)!r})
lib.refold_error_message.restype = ctypes.c_char_p
for name in ("open", "plan", "output_shape", "run", "enqueue", "check"):
    getattr(lib, "refold_package_" + name).restype = ctypes.c_void_p
class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("gpu", ctypes.c_int), ("compiles", ctypes.c_int), ("threads", ctypes.c_uint)]
def code_of(error):
    # (exit code, message); (0, "") where there is no error
    if not error:
        return 0, ""
    error = ctypes.c_void_p(error)
    found = lib.refold_error_code(error), lib.refold_error_message(error).decode()
    lib.refold_error_free(error)
    return found
def check(error):
    code, message = code_of(error)
    assert code == 0, message
def open_package(path, threads=1):
    handle = ctypes.c_void_p()
    check(lib.refold_package_open(path.encode(), ctypes.byref(Options(ctypes.sizeof(Options), 0, 0, threads)),
                                  ctypes.byref(handle)))
    return handle
def plan(handle, *shapes):
    # (exit code, plan)
    arrays = [(ctypes.c_int64 * len(s))(*s) for s in shapes]
    found = ctypes.c_void_p()
    error = lib.refold_package_plan(handle, (ctypes.c_void_p * len(arrays))(*map(ctypes.addressof, arrays)), ctypes.byref(found))
    return code_of(error)[0], found
def addresses(arrays):
    return (ctypes.c_void_p * len(arrays))(*map(ctypes.addressof, arrays))
def run(handle, plan, inputs, outputs):
    return code_of(lib.refold_package_run(handle, plan, addresses(inputs), addresses(outputs)))
def numbers(count, modulus=7):
    return (ctypes.c_float * count)(*[i % modulus for i in range(count)])
def on_gpu(arrays):
    fake = ctypes.CDLL(os.environ["REFOLD_LIBCUDA"])
    fake.cuCtxPushCurrent_v2(None)
    places = (ctypes.c_uint64 * len(arrays))()
    for i, array in enumerate(arrays):
        at = ctypes.c_uint64()
        assert fake.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(ctypes.sizeof(array))) == 0
        fake.cuMemcpyHtoDAsync_v2(at, array, ctypes.c_size_t(ctypes.sizeof(array)), None)
        places[i] = at.value
    return places
def to_host(array, place):
    ctypes.CDLL(os.environ["REFOLD_LIBCUDA"]).cuMemcpyDtoHAsync_v2(array, ctypes.c_uint64(place),
                                                                  ctypes.c_size_t(ctypes.sizeof(array)), None)
    return array
def log(line):
    open(os.environ["FAKE_CUDA_LOG"], "a").write(line + "\\n")
"""


def calls_library(files, script, **environment):
    """Calls of the driver by such a script, which ends well."""
    code, text, calls = files.machine.run(sys.executable, "-c", LIBRARY_CALLS + script, **environment)
    assert code == 0, (code, text)
    return calls


def check_library(files):
    """The C API on a stream: right, and nothing is allocated after the plan."""
    package = files.package("examples/layernorm.fold", "cuda-sm90")
    calls = calls_library(files, f"""
handle = ctypes.c_void_p()
error, message = code_of(lib.refold_package_open(b"/no-such.rfx", None, ctypes.byref(handle)))
assert error == 1 and "/no-such.rfx" in message
check(lib.refold_package_open({str(package)!r}.encode(), None, ctypes.byref(handle)))
assert lib.refold_package_num_inputs(handle) == 3 and lib.refold_package_is_for_gpu(handle) == 1
error, planned = plan(handle, (3, 64), (64,), (64,))
assert error == 0
extents = (ctypes.c_int64 * 2)()
check(lib.refold_package_output_shape(handle, planned, 0, extents))
assert list(extents) == [3, 64]
x, g, b, y = map(numbers, (192, 64, 64, 192))
assert run(handle, planned, (x, g, b), (y,)) == (0, "")
assert any(y), list(y)[:8]
given, taken = on_gpu((x, g, b)), on_gpu((y,))
log("warm")
for _ in range(3):
    check(lib.refold_package_enqueue(handle, planned, given, taken, None))
log("cold")
assert bytes(to_host(numbers(192), taken[0])) == bytes(y)
# More sets of arrays than a plan remembers the launches of.
sets = []
for i in range(6):
    x, y = numbers(192, 5 + i), numbers(192)
    assert run(handle, planned, (x, g, b), (y,)) == (0, "")
    sets.append((on_gpu((x, g, b)), on_gpu((numbers(192),)), bytes(y)))
assert len(set(y for _, _, y in sets)) == 6
for given, taken, y in sets + sets:
    check(lib.refold_package_enqueue(handle, planned, given, taken, None))
    assert bytes(to_host(numbers(192), taken[0])) == y
# Those that begin elsewhere take another way, in turns with the others.
fake = ctypes.CDLL(os.environ["REFOLD_LIBCUDA"])
for i, (given, taken, y) in enumerate(sets):
    log("shifted")
    room = on_gpu((numbers(200),))
    fake.cuMemcpyHtoDAsync_v2(ctypes.c_uint64(room[0] + 4), numbers(192, 5 + i), ctypes.c_size_t(768), None)
    other = (ctypes.c_uint64 * 3)(room[0] + 4, given[1], given[2])
    check(lib.refold_package_enqueue(handle, planned, other, taken, None))
    near = (ctypes.c_float * 192).from_buffer_copy(y)
    assert all(abs(a - b) <= 1e-5 for a, b in zip(to_host(numbers(192), taken[0]), near))
    log("aligned")
    check(lib.refold_package_enqueue(handle, planned, given, taken, None))
    assert bytes(to_host(numbers(192), taken[0])) == y
lib.refold_package_free(handle)
""")
    launched = {what: {calls[i + n].split()[1] for i, call in enumerate(calls) if call == what for n in range(1, 6)
                       if calls[i + n].startswith("cuLaunchKernel")} for what in ("shifted", "aligned")}
    assert len(launched["shifted"]) == len(launched["aligned"]) == 1 and launched["shifted"] != launched["aligned"], launched
    between = [call.split()[0] for call in calls[calls.index("warm") + 1:calls.index("cold")]]
    assert between == ["cuStreamIsCapturing", "cuLaunchKernel"] * 3, between


def check_null(files):
    """Pointers that are left out are errors."""
    package = files.package("examples/softmax.fold")
    calls_library(files, f"""
handle = open_package({str(package)!r})
found = ctypes.c_void_p()
nothing = (ctypes.c_void_p * 1)()
assert code_of(lib.refold_package_open(None, None, ctypes.byref(found)))[0] == 2
for shapes in (None, nothing):
    assert code_of(lib.refold_package_plan(handle, shapes, ctypes.byref(found))) == (2, "found a null pointer for the shape of "
                                                                                        "input 'x'")
error, planned = plan(handle, (3, 4))
x, y = numbers(12), numbers(12)
for given, taken, what in ((None, addresses([y]), "input 'x'"), (nothing, addresses([y]), "input 'x'"),
                           (addresses([x]), None, "output 'y'"), (addresses([x]), nothing, "output 'y'")):
    assert code_of(lib.refold_package_run(handle, planned, given, taken)) == (2, "found a null pointer for " + what)
assert code_of(lib.refold_package_run(handle, None, addresses([x]), addresses([y])))[0] == 2
error, empty = plan(handle, (0, 4))
assert code_of(lib.refold_package_run(handle, empty, nothing, nothing)) == (0, "")
""")


def check_no_room(files):
    """An array that there is no memory for is named by its size: a random one, a file's, and one of the results."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    def ends(package, *arguments, size):
        done = subprocess.run([RUN, package, *arguments], capture_output=True, text=True, preexec_fn=limit)
        wanted = (5, f"error: no memory for an array of {size} bytes\n")
        assert (done.returncode, done.stderr) == wanted, f"found {(done.returncode, done.stderr)}, expected {wanted}"

    ends(files.package("examples/softmax.fold"), "--shape", "m=1000000,n=100000", size=400_000_000_000)
    wide = files.write("wide", "wide(x[m], w[n]) -> y\n  y[m,n] = x + w\n")
    ends(files.package(wide), "--shape", "m=100000,n=1000000", size=400_000_000_000)
    long = files.folder / "long.npy"
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1024, 1048576), }".ljust(117) + b"\n"
    with open(long, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
        file.truncate(128 + (4 << 30))  # takes no room on a disk
    ends(files.package("examples/softmax.fold"), "--input", f"x={long}", size=4 << 30)


def check_short_memory(files):
    """A shape that there is no memory for leaves the plans there are as they were."""
    package = files.package("examples/attention.fold")
    calls_library(files, f"""
handle = open_package({str(package)!r}, threads=4)
error, small = plan(handle, *[(1, 4, 256, 64)] * 3)
q, o, again = numbers(1 << 16), numbers(1 << 16), numbers(1 << 16)
assert run(handle, small, (q, q, q), (o,)) == (0, "")
assert plan(handle, (1, 1, 1024, 1 << 16), (1, 1, 1 << 28, 1 << 16), (1, 1, 1 << 28, 1 << 22))[0] == 5
for _ in range(60):
    assert run(handle, small, (q, q, q), (again,)) == (0, "")
    assert bytes(o) == bytes(again)
""")
    package = files.package("test/Target/CUDA/Inputs/rows_and_copy.mlir", "cuda-sm90")
    calls = calls_library(files, f"""
handle = open_package({str(package)!r})
error, small = plan(handle, (3, 40))
x, y, again = numbers(120), numbers(126), numbers(126)
assert run(handle, small, (x,), (y,)) == (0, "")
assert plan(handle, (1 << 25, 1 << 14))[0] == 5
assert plan(handle, (3, 40))[1].value == small.value
assert run(handle, small, (x,), (again,)) == (0, "") and bytes(y) == bytes(again)
""")
    assert not any(call.startswith("fault") for call in calls), calls


def check_once(files):
    """What follows from weights alone is launched when the first plan is made, and stays."""
    program = "test/Execution/Inputs/of_weights.mlir"
    package = files.package(program, "cuda-sm90")
    write_npy(files.folder / "x.npy", [3, 24], 0)
    files.machine.answers("run", "--target", "cuda", program, "--input", f"x={files.folder}/x.npy", "--output",
                          f"y={files.folder}/y.npy")
    calls = calls_library(files, f"""
handle = open_package({str(package)!r})
log("opened")
error, small = plan(handle, (3, 24))
log("planned")
x, y, again, long, wide = numbers(72), numbers(120), numbers(120), numbers(24 * 500), numbers(40 * 500)
import struct
x[:] = struct.unpack("<72f", open("{files.folder}/x.npy", "rb").read()[-288:])
assert run(handle, small, (x,), (y,)) == (0, "")
assert bytes(y) == open("{files.folder}/y.npy", "rb").read()[-480:]
log("run")
error, large = plan(handle, (500, 24))
log("planned again")
assert run(handle, large, (long,), (wide,)) == (0, "")
assert run(handle, small, (x,), (again,)) == (0, "") and bytes(again) == bytes(y)
""")

    def launches(begin, end):
        return sum(call.startswith("cuLaunchKernel") for call in calls[calls.index(begin):calls.index(end)])
    assert (launches("opened", "planned"), launches("planned", "run"), launches("run", "planned again")) == (2, 1, 0), calls


def check_panels(files):
    """Constants that a kernel lays out are laid out when the first plan is made: what becomes of the file is not seen.
    Shapes without rows lay out nothing that others read; the bits are those of the compiler."""
    program = "test/Package/Inputs/rows_of_weights.mlir"
    package = files.package(program)
    write_npy(files.folder / "x.npy", [5, 24], 3)
    files.machine.answers("run", program, "--input", f"x={files.folder}/x.npy", "--output", f"y={files.folder}/y.npy")
    calls_library(files, f"""
import mmap, struct
x, y, again, none = numbers(120), numbers(40 * 5), numbers(40 * 5), numbers(0)
x[:] = struct.unpack("<120f", open("{files.folder}/x.npy", "rb").read()[-480:])
wanted = open("{files.folder}/y.npy", "rb").read()[-800:]
for threads in (1, 3):
    handle = open_package({str(package)!r}, threads)
    error, empty = plan(handle, (0, 24))
    assert run(handle, empty, (none,), (none,)) == (0, "")
    error, whole = plan(handle, (5, 24))
    assert run(handle, whole, (x,), (y,)) == (0, "") and bytes(y) == wanted
weights = struct.pack("<3f", 0.875, 0.8125, 0.75)
with open({str(package)!r}, "r+b") as file, mmap.mmap(file.fileno(), 0) as bytes_of:
    at = bytes_of.find(weights)
    assert at > 0
    bytes_of[at:at + 12] = bytes(12)
assert run(handle, whole, (x,), (again,)) == (0, "") and bytes(again) == wanted
""")


def check_stale_plans(files):
    """A plan that is no longer kept is an error, on whatever a new plan lies; a captured one stays, and its memory."""
    for target in ("cpu", "cuda-sm90"):
        package = files.package("examples/softmax.fold", target)
        calls_library(files, f"""
handle, other = open_package({str(package)!r}), open_package({str(package)!r})
x, y, again = numbers(6), numbers(6), numbers(6)
error, first = plan(handle, (2, 3))
error, second = plan(handle, (3, 2))
assert run(handle, first, (x,), (y,)) == (0, "")
assert run(other, first, (x,), (again,))[0] == 2
for i in range(63):
    assert plan(handle, (100 + i, 50))[0] == 0
assert run(handle, first, (x,), (again,)) == (0, "") and bytes(y) == bytes(again)  # the second was the oldest
extents = (ctypes.c_int64 * 2)()
code, message = run(handle, second, (x,), (y,))
assert code == 2 and "no longer kept, expected one of the last 64 of 'softmax'" in message, message
assert code_of(lib.refold_package_output_shape(handle, second, 0, extents)) == (code, message)
for i in range(200):
    assert plan(handle, (2 + i, 500))[0] == 0
assert run(handle, first, (x,), (y,))[0] == 2
""")
    package = files.package("test/Target/CUDA/Inputs/rows_and_copy.mlir", "cuda-sm90")
    calls = calls_library(files, f"""
handle = open_package({str(package)!r})
error, captured = plan(handle, (3, 40))
x, y, again = numbers(120), numbers(126), numbers(126)
assert run(handle, captured, (x,), (y,)) == (0, "")
given, taken = on_gpu((x,)), on_gpu((again,))
log("captured")
os.environ["FAKE_CUDA_CAPTURE"] = "1"
check(lib.refold_package_enqueue(handle, captured, given, taken, None))
os.environ["FAKE_CUDA_CAPTURE"] = "0"
for i in range(80):
    assert plan(handle, (3 + i, 41))[0] == 0
log("planned")
assert run(handle, captured, (x,), (again,)) == (0, "") and bytes(y) == bytes(again)
assert plan(handle, (3, 40))[1].value == captured.value
""")
    between = calls[calls.index("captured") + 1:calls.index("planned")]
    allocated, freed = (device_test.count(between, name) for name in ("cuMemAlloc_v2", "cuMemFree_v2"))
    assert 0 < allocated < 8 and freed < allocated, between


def check_entries(files):
    """Text: a plan makes the code of what it launches; what other addresses launch is made then, but in no capture of a graph."""
    package = files.package("examples/softmax.fold", "cuda-sm80")
    calls = calls_library(files, f"""
handle = ctypes.c_void_p()
check(lib.refold_package_open({str(package)!r}.encode(), ctypes.byref(Options(ctypes.sizeof(Options), 0, 1, 1)), ctypes.byref(handle)))
log("opened")
error, planned = plan(handle, (3, 40))
assert error == 0
x, y, apart = numbers(120), numbers(120), numbers(121)
given, taken, shifted = on_gpu((x,)), on_gpu((y,)), on_gpu((apart,))
shifted[0] += 4
def enqueue(start, is_captured):
    os.environ["FAKE_CUDA_CAPTURE"] = str(int(is_captured))
    return code_of(lib.refold_package_enqueue(handle, planned, start, taken, None))
log("planned")
assert enqueue(given, True) == (0, "")
code, message = enqueue(shifted, True)
assert code == 2 and "has no code yet" in message and "graph" in message, message
log("refused")
assert enqueue(shifted, False) == (0, "")
log("made")
assert enqueue(shifted, True) == (0, "") and enqueue(given, False) == (0, "")
log("done")
""")
    ends = [calls.index(word) for word in ("opened", "planned", "refused", "made", "done")]
    compiled = [device_test.count(calls[a:b], "nvrtcCompileProgram") for a, b in zip([0, *ends], ends)]
    assert compiled == [0, 1, 0, 1, 0], compiled


def check_late_checks(files):
    """Positions from data on the caller's stream: nothing waits, what is outside reads inside, and is told afterwards, once."""
    program = files.write("pick", "pick(x[n], i[m]: i64) -> y\n  y[m] = x[i] * 2\n")
    package = files.package(program, "cuda-sm90")
    calls = calls_library(files, f"""
handle = open_package({str(package)!r})
lib.refold_package_check.argtypes = [ctypes.c_void_p]
error, planned = plan(handle, (5,), (3,))
x, y = numbers(5), numbers(3)
def enqueue(*places):
    given, taken = on_gpu((x, (ctypes.c_int64 * 3)(*places))), on_gpu((y,))
    log("enqueued")
    check(lib.refold_package_enqueue(handle, planned, given, taken, None))
    log("done")
    to_host(y, taken[0])
    return list(y)
assert enqueue(4, 0, 2) == [8, 0, 4] and code_of(lib.refold_package_check(handle)) == (0, "")
assert enqueue(4, 99, -1)[:2] == [8, 8]
code, message = code_of(lib.refold_package_check(handle))
assert code == 1 and "out of range" in message, (code, message)
assert code_of(lib.refold_package_check(handle)) == (0, "")
assert enqueue(1, 1, 1) == [2, 2, 2] and code_of(lib.refold_package_check(handle)) == (0, "")
""")
    during = calls[calls.index("enqueued") + 1:calls.index("done")]
    assert not any(device_test.count(during, name) for name in ("cuMemAlloc_v2", "cuStreamSynchronize", "cuMemcpyDtoHAsync_v2")), during


def check_tuned(files):
    """The library takes the choices of refold-run --tune, and says what is wrong with such a file."""
    package, tuned = files.package("examples/softmax.fold", "cuda-sm90"), files.folder / "choices"
    write_npy(files.folder / "x.npy", [3, 40], 0)
    run = [RUN, package, "--input", f"x={files.folder}/x.npy", "--tuned-file", tuned, "--tune"]
    code, text, _ = files.machine.run(*run)
    ways = [line.split()[2] for line in text.splitlines() if line.startswith("  ") and line.split()[0] != "ms"]
    tuned.unlink()
    other = next(way for way in ways[1:] if way != ways[0] and not way.endswith(","))
    code, text, _ = files.machine.run(*run, FAKE_CUDA_TIMES=f"{other}=0.5")
    assert code == 0, text
    calls = calls_library(files, f"""
class Tuned(ctypes.Structure):
    _fields_ = Options._fields_ + [("tuned", ctypes.c_char_p)]
def opened(path):
    handle, options = ctypes.c_void_p(), Tuned(ctypes.sizeof(Tuned), 0, 0, 1, path)
    return code_of(lib.refold_package_open({str(package)!r}.encode(), ctypes.byref(options), ctypes.byref(handle))), handle
x, y, again = numbers(120), numbers(120), numbers(120)
for path, to in ((None, y), ({str(tuned)!r}.encode(), again)):
    error, handle = opened(path)
    assert error == (0, ""), error
    error, planned = plan(handle, (3, 40))
    assert run(handle, planned, (x,), (to,)) == (0, "")
assert all(abs(a - b) < 1e-6 for a, b in zip(y, again)) and sum(y) > 2.9
code, message = opened(b"/no/such")[0]
assert code == 1 and "/no/such" in message, message
open({str(tuned)!r}, "ab").write(b"x")
code, message = opened({str(tuned)!r}.encode())[0]
assert code == 1 and "damaged" in message, message
""")
    launched = [call.split()[1] for call in calls if call.startswith("cuLaunchKernel ")]
    assert launched == [ways[0], other], launched


CHECKS = [check_size, check_header, check_cpu, check_certificates, check_gpu, check_tiles, check_damage, check_writing, check_library, check_null, check_npy, check_f8, check_pipe,
          check_no_room, check_short_memory, check_once, check_panels, check_stale_plans, check_entries, check_late_checks, check_tuned]


def run_checks(checks):
    """All of them, or those that the command line names: what a test file exits with."""
    compiler = next((c for c in ("clang++-19", "clang++", "g++") if shutil.which(c)), None)
    if compiler is None or not RUN.exists():
        print("found no C++ compiler, or no refold-run")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        files = Files(device_test.Machine(folder, compiler))
        wanted = [check for check in checks if not sys.argv[1:] or check.__name__ in sys.argv[1:]]
        for check in wanted:
            try:
                check(files)
            except (AssertionError, subprocess.SubprocessError, ValueError, KeyError) as error:
                failed += 1
                print(f"{check.__name__}: {error!r}")
    print(f"{len(wanted) - failed} passed, {failed} failed, 0 skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(run_checks(CHECKS))
