#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packages that leave their weights in the files of the model: the bits of those that have copies, and a message for every
file that is another one, or not there.

    weights_test.py [check_same ...]
"""

import os
import pathlib
import random
import resource
import shutil
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "test/Target/CUDA"))
sys.path.insert(0, str(ROOT / "test/Package"))
import device_test  # noqa: E402
from package_test import REFOLD, RUN, calls_library, run_checks, write_npy  # noqa: E402

DEPTH, WIDTH, ROWS = 64, 96, 5
TYPES = {"f32": (1, "f", 4), "f16": (10, "e", 2)}  # of ONNX, of Python, bytes
WEIGHT_BYTES = {dtype: (DEPTH * WIDTH + WIDTH * DEPTH) * width for dtype, (_, _, width) in TYPES.items()}


# Messages of protobuf, by hand: models need no Python package here.
def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def part(field, content):
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def tensor(name, dims, onnx_type, data=None, external=()):
    head = b"".join(number(1, d) for d in dims) + number(2, onnx_type) + part(8, name)
    if data is not None:
        return head + part(9, data)
    return head + b"".join(part(13, part(1, key) + part(2, str(value))) for key, value in external) + number(14, 1)


def port(name, onnx_type, dims):
    shape = b"".join(part(1, number(1, d) if isinstance(d, int) else part(2, d)) for d in dims)
    return part(1, name) + part(2, part(1, number(1, onnx_type) + part(2, shape)))


def node(op, inputs, output):
    return b"".join(part(1, name) for name in inputs) + part(2, output) + part(3, output) + part(4, op)


def write_model(folder, dtype="f32", external=None, seed=1):
    """softmax(x·w + b)·v. The weights are in the model, or from byte 7 of `external` on, which no type is aligned to."""
    onnx_type, kind, width = TYPES[dtype]
    generator = random.Random(seed)
    data = {name: struct.pack(f"<{n}{kind}", *(generator.gauss(0, 0.2) for _ in range(n)))
            for name, n in (("w", DEPTH * WIDTH), ("b", WIDTH), ("v", WIDTH * DEPTH))}
    dims = {"w": (DEPTH, WIDTH), "b": (WIDTH,), "v": (WIDTH, DEPTH)}
    places, blob = {}, b"-" * 7
    for name in ("w", "v") if external else ():
        places[name] = (("location", external), ("offset", len(blob)), ("length", len(data[name])))
        blob += data[name] + b"-" * 13
    folder.mkdir(parents=True, exist_ok=True)
    if external:
        (folder / external).parent.mkdir(parents=True, exist_ok=True)
        (folder / external).write_bytes(blob)
    nodes = [node("MatMul", ["x", "w"], "p"), node("Add", ["p", "b"], "q"), node("Softmax", ["q"], "s"),
             node("MatMul", ["s", "v"], "y")]
    graph = b"".join(part(1, one) for one in nodes) + part(2, "rows")
    graph += b"".join(part(5, tensor(name, dims[name], onnx_type, None if name in places else data[name], places.get(name, ())))
                      for name in data)
    graph += part(11, port("x", onnx_type, ["rows", DEPTH])) + part(12, port("y", onnx_type, ["rows", DEPTH]))
    path = folder / "model.onnx"
    path.write_bytes(number(1, 8) + part(7, graph) + part(8, part(1, "") + number(2, 17)))
    return path


def compile_to(files, model, package, *flags, target="cpu"):
    package.parent.mkdir(parents=True, exist_ok=True)
    text, _ = files.machine.answers("compile", "--target", target, model, "-o", package, *flags)
    return text


def outputs_of(files, package, *flags, dtype="f32", code=0, **environment):
    """The bytes of y, or the one line of the error."""
    write_npy(files.folder / "x.npy", [ROWS, DEPTH], 0, TYPES[dtype][1])
    out = files.folder / "y.npy"
    out.unlink(missing_ok=True)
    found, text, _ = files.machine.run(RUN, package, "--input", f"x={files.folder}/x.npy", "--output", f"y={out}", *flags,
                                       REFOLD_NVRTC="/no-such.so", **environment)
    assert found == code, (found, text)
    if code == 0:
        return out.read_bytes()
    assert text.startswith("error: ") and text.count("\n") == 1 and not out.exists(), text
    return text


def check_same(files):
    """The bits of a package with copies, which is larger by the weights; in the model or beside it, at any address."""
    for dtype in TYPES:
        for external in (None, "data/weights.bin"):
            model = write_model(files.folder / f"models/{dtype}/{bool(external)}", dtype, external)
            for target in ("cpu", "cuda-sm90"):
                copied = files.folder / f"packages/{dtype}.{bool(external)}.{target}.rfx"
                referring = copied.with_suffix(".ref.rfx")
                assert "weights" not in compile_to(files, model, copied, target=target)
                told = compile_to(files, model, referring, "--weights", "reference", target=target)
                place = external or "model.onnx"
                assert f"of weights stay where they are: '../models/{dtype}/{bool(external)}/{place}'; " in told, told
                assert told.count("of weights") == 1, told
                saved = copied.stat().st_size - referring.stat().st_size
                assert WEIGHT_BYTES[dtype] - 512 <= saved <= WEIGHT_BYTES[dtype], (saved, WEIGHT_BYTES[dtype])
                found = outputs_of(files, referring, dtype=dtype)
                assert found == outputs_of(files, copied, dtype=dtype), (dtype, external, target)
                if target == "cpu":
                    assert found == outputs_of(files, referring, "--threads", "2", dtype=dtype)
                    files.machine.answers("run", model, "--input", f"x={files.folder}/x.npy", "--output",
                                          f"y={files.folder}/same.npy")
                    assert found == (files.folder / "same.npy").read_bytes(), (dtype, external)


def check_converted(files):
    """What the compiler has made of weights lies in no file: it is in the package, and that is said."""
    model = write_model(files.folder / "converted")
    package = files.folder / "narrow.rfx"
    told = compile_to(files, model, package, "--weights", "reference", "--multiply", "bf16")
    assert "remark: 0 B of weights stay where they are; 24.4 KiB are in the package" in told, told
    model.unlink()
    assert outputs_of(files, package)
    program = files.write("none", "f(x[n]) -> y\n  y[n] = x * 2\n")
    assert "remark: 0 B of weights" in compile_to(files, program, package, "--weights", "reference")


def check_moved(files):
    """Together with its weights, behind a link, or with another folder of weights that is named."""
    folder = files.folder / "moved"
    model = write_model(folder / "a/models", external="data/weights.bin")
    package = folder / "a/packages/deep/model.rfx"
    compile_to(files, model, package, "--weights", "reference")
    expected = outputs_of(files, package)
    (folder / "a").rename(folder / "b")
    package = folder / "b/packages/deep/model.rfx"
    assert outputs_of(files, package) == expected
    link = folder / "elsewhere/link.rfx"
    link.parent.mkdir()
    link.symlink_to(package)
    assert outputs_of(files, link) == expected
    (folder / "linked").symlink_to(folder / "b/packages/deep")
    assert outputs_of(files, folder / "linked/model.rfx") == expected

    alone = folder / "alone.rfx"
    package.rename(alone)
    text = outputs_of(files, alone, code=1)
    assert "models/data/weights.bin: No such file or directory; expected the weights of" in text and "--weights" not in text, text
    assert outputs_of(files, alone, "--weights", folder / "b/models") == expected
    single = folder / "renamed.bin"
    shutil.copy(folder / "b/models/data/weights.bin", single)
    assert outputs_of(files, alone, "--weights", single) == expected
    text = outputs_of(files, alone, "--weights", folder / "none", code=1)
    assert f"{folder}/none/data/weights.bin: No such file" in text, text
    calls_library(files, f"""
class WithWeights(ctypes.Structure):
    _fields_ = Options._fields_ + [("tuned", ctypes.c_char_p), ("weights", ctypes.c_char_p)]
def opened(weights):
    handle = ctypes.c_void_p()
    options = WithWeights(ctypes.sizeof(WithWeights), 0, 0, 1, None, weights)
    return code_of(lib.refold_package_open({str(alone)!r}.encode(), ctypes.byref(options), ctypes.byref(handle))), handle
found, handle = opened({str(folder / "b/models")!r}.encode())
assert found == (0, ""), found
error, planned = plan(handle, ({ROWS}, {DEPTH}))
y = numbers({ROWS * DEPTH})
x = (ctypes.c_float * {ROWS * DEPTH}).from_buffer_copy(open({str(files.folder / "x.npy")!r}, "rb").read()[128:])
assert run(handle, planned, (x,), (y,)) == (0, "")
assert bytes(y) == {expected!r}[128:]
for weights in (None, b""):
    (code, message), handle = opened(weights)
    assert code == 1 and "No such file" in message and not handle, (code, message)
handle = ctypes.c_void_p()  # options of a caller who knows of no weights
code, message = code_of(lib.refold_package_open({str(alone)!r}.encode(), ctypes.byref(Options(24, 0, 0, 1)), ctypes.byref(handle)))
assert code == 1 and "No such file" in message, (code, message)
""")


def check_refused(files):
    """A file that is gone, cannot be read, is no file, is shorter or has other bytes; what lies between weights is nobody's."""
    for target in ("cpu", "cuda-sm90"):
        folder = files.folder / f"refused.{target}"
        model = write_model(folder, external="weights.bin")
        weights, package = folder / "weights.bin", folder / "model.rfx"
        compile_to(files, model, package, "--weights", "reference", target=target)
        expected = outputs_of(files, package)
        good = weights.read_bytes()
        first, last = 7, len(good) - 13
        weights.write_bytes(b"+" * 7 + good[7:last] + b"+" * 40)
        assert outputs_of(files, package) == expected
        weights.write_bytes(good[:last])
        assert outputs_of(files, package) == expected

        def refuses(words):
            text = outputs_of(files, package, code=1)
            assert f"error: {weights}: {words}" in text, (words, text)

        weights.write_bytes(good[:last - 1])
        refuses(f"found {last - 1} bytes of weights, expected at least {last}")
        weights.write_bytes(b"")
        refuses("found 0 bytes of weights")
        for at in (first, first + 4999, last - 1):
            weights.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1:])
            refuses("found other weights at bytes ")
        weights.write_bytes(b"-" + good)
        refuses("found other weights at bytes ")
        weights.unlink()
        refuses("No such file or directory; expected the weights of")
        weights.mkdir()
        refuses("found 0 bytes of weights")
        weights.rmdir()
        os.mkfifo(weights)
        refuses("found 0 bytes of weights")
        weights.unlink()
        weights.write_bytes(good)
        if os.geteuid():  # root reads all
            weights.chmod(0)
            refuses("Permission denied")
            weights.chmod(0o600)
        assert outputs_of(files, package) == expected


def check_written(files):
    """Whole or not at all, never over the weights, and to a file: a pipe has no folder."""
    folder = files.folder / "written"
    model = write_model(folder)
    before = model.read_bytes()
    reference = ["--weights", "reference"]
    done = subprocess.run([REFOLD, "compile", "--target", "cpu", model, *reference, "-o", folder / "x.rfx"], cwd=ROOT,
                          capture_output=True, text=True, env=dict(files.machine.environment, REFOLD_CACHE_DIR=""),
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)))
    assert done.returncode == 5 and done.stderr.startswith("error: "), (done.returncode, done.stderr)
    link = folder / "link.rfx"
    link.symlink_to(model.name)
    for target in (model, link):
        files.machine.refuses(2, ["found the file of the weights as that of the package"], "compile", model, *reference, "-o",
                              target)
    files.machine.refuses(2, ["found no file for a package"], "compile", model, *reference, "-o", "/dev/null")
    files.machine.refuses(1, ["No such file"], "compile", model, *reference, "-o", folder / "none/x.rfx")
    files.machine.refuses(2, ["found --weights without a package"], "compile", model, *reference)
    files.machine.refuses(2, ["reference"], "compile", model, "--weights", "here", "-o", folder / "x.rfx")
    assert sorted(path.name for path in folder.iterdir()) == ["link.rfx", "model.onnx"] and model.read_bytes() == before


def check_damage(files):
    """Bits of such a package that are changed are told."""
    folder = files.folder / "damage"
    package = folder / "model.rfx"
    compile_to(files, write_model(folder), package, "--weights", "reference")
    good, expected = package.read_bytes(), outputs_of(files, package)
    generator = random.Random(1)
    told = 0
    for _ in range(40):
        at = generator.randrange(len(good))
        package.write_bytes(good[:at] + bytes([good[at] ^ 1 << generator.randrange(8)]) + good[at + 1:])
        code, text, _ = files.machine.run(RUN, package, "--shape", "rows=2")
        if code == 0:
            continue  # a bit between the parts
        told += 1
        assert code == 1 and text.startswith("error: ") and text.count("\n") == 1, (code, text)
    assert told > 30, told
    package.write_bytes(good)
    assert outputs_of(files, package) == expected


def check_minilm(files):
    """all-MiniLM-L6-v2, where it is installed: 90 MB of weights stay where they are."""
    sys.path.insert(0, str(ROOT / "examples/minilm"))
    try:
        import make_model
        import numpy as np
        import onnx
        import weights
        tensors = weights.read_safetensors(weights.model_folder() / "model.safetensors")
    except (ImportError, SystemExit) as error:
        print(f"check_minilm: not run: {error}")
        return
    model = files.folder / "minilm.onnx"
    onnx.save(make_model.make_model(tensors, weights.config()), model)
    inputs = []
    for name, high in (("input_ids", 30000), ("attention_mask", 2)):
        path = files.folder / f"{name}.npy"
        np.save(path, np.random.default_rng(1).integers(1, high, (2, 9)))
        inputs += ["--input", f"{name}={path}"]
    copied, referring, written = files.folder / "copied.rfx", files.folder / "referring.rfx", []
    compile_to(files, model, copied)
    compile_to(files, model, referring, "--weights", "reference")
    assert copied.stat().st_size > 90e6 and referring.stat().st_size < 3e6, (copied.stat().st_size, referring.stat().st_size)
    for tool, first in ((RUN, [copied]), (RUN, [referring]), (REFOLD, ["run", model])):
        out = files.folder / "embedding.npy"
        code, text, _ = files.machine.run(tool, *first, *inputs, "--output", f"embedding={out}")
        assert code == 0, text
        written.append(out.read_bytes())
    assert written[0] == written[1] == written[2]


CHECKS = [check_same, check_converted, check_moved, check_refused, check_written, check_damage, check_minilm]


if __name__ == "__main__":
    sys.exit(run_checks(CHECKS))
