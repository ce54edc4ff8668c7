#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The k best of rows, to the position: NaN above all, of equal keys (-0 and 0 too) the first, of every element what it
was. Lists of 1 to 17 places, rows shorter than the list and longer than a stream tile, of every type and on every CPU
target.

    sorted_lists_test.py [--self-test]
"""

import itertools
import os
import pathlib
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy
import onnx

REFOLD = os.environ.get("REFOLD", "refold")
ALONE = """best(x[t,n]) -> v, i: i32
  v[t,r], i[t,r] = topk(n: x, {k})
"""
# Of columns: lists of one of a register of them at once, longer ones of columns that are turned.
COLUMNS = """best(x[n,t]) -> v, i: i32
  v[t,r], i[t,r] = topk(n: x, {k})
"""
# Beside a softmax, whose sum is found while the row is traversed for candidates.
BESIDE = """best(x[t,n], y[t,n]) -> v, i: i32, z
  v[t,r], i[t,r] = topk(n: x, {k})
  m = max(n: y)
  z = sum(n: exp(y - m))
"""
COLUMNS_BESIDE = """best(x[n,t]) -> v, i: i32, z
  v[t,r], i[t,r] = topk(n: x, {k})
  m = max(n: x)
  z = sum(n: exp(x - m))
"""
TYPES = {"f32": numpy.float32, "f64": numpy.float64, "f16": numpy.float16, "bf16": ml_dtypes.bfloat16}
TARGETS = ["avx512", "avx2", "baseline"]
# Rows, their length, places.
SHAPES = [(16, 64, 8), (35, 37, 5), (1, 20, 4), (17, 16, 16), (33, 128, 1), (16, 33, 2), (48, 300, 3), (31, 9, 12),
          (16, 1, 8), (5, 5000, 8), (20, 9000, 11), (40, 9000, 7), (18, 256, 17), (19, 0, 3)]

# The same of columns.
OF_COLUMNS = [(16, 64, 8), (35, 37, 1), (1, 20, 1), (33, 128, 1), (20, 9000, 1), (70, 1, 1), (19, 0, 1), (40, 300, 3), (24, 5000, 11), (17, 16, 16)]


def keys(draw, rows, length, dtype):
    """Rows of many equal keys, of none, of infinities, NaN, zeros of both signs and subnormal numbers."""
    x = draw.standard_normal((rows, length))
    for row in range(rows):
        kind, some = row % 10, draw.random(length)
        if kind == 1:
            x[row] = numpy.floor(x[row] * 2)
        elif kind == 2:
            x[row] = numpy.where(some < 0.5, 0.0, -0.0)
        elif kind == 3:
            x[row] = numpy.where(some < 0.9, -numpy.inf, x[row])
        elif kind == 4:
            x[row] = numpy.where(some < 0.1, numpy.nan, numpy.where(some < 0.3, numpy.inf, x[row]))
        elif kind == 5:
            x[row] = numpy.nan if row % 2 else -numpy.inf
        elif kind == 6:
            x[row] = numpy.where(some < 0.5, x[row] * 1e-7, x[row]) * float(ml_dtypes.finfo(dtype).tiny)
        elif kind == 7:
            x[row] = numpy.sort(x[row]) if row % 2 else -numpy.abs(x[row])
        elif kind == 8:
            x[row] = 0.25
        elif kind == 9 and length:  # every element of the best in another lane: a bound must count a NaN once
            x[row] = -numpy.arange(length)
            x[row, row % min(8, length)] = numpy.nan
    return x.astype(dtype)


def positions(row, k, isLargest):
    """Of the k best: NaN is above all numbers."""
    value = row.astype(numpy.float64)
    isNan = numpy.isnan(value)
    rank = numpy.where(isNan, 0, -value if isLargest else value)
    return numpy.lexsort((numpy.arange(len(row)), rank, ~isNan if isLargest else isNan))[:k]


def bitsOf(x):
    return x.view({2: numpy.uint16, 4: numpy.uint32, 8: numpy.uint64}[x.dtype.itemsize])


def wrongRows(x, values, at, k, isLargest):
    wrong = []
    for row in range(len(x)):
        want = positions(x[row], k, isLargest)
        count = len(want)
        same = numpy.array_equal(at[row, :count], want) and numpy.all(at[row, count:] == -1)
        taken, found = x[row][want], values[row, :count].astype(x.dtype)
        isNan = numpy.isnan(taken.astype(numpy.float64))
        same = same and numpy.all(numpy.where(isNan, numpy.isnan(found.astype(numpy.float64)), bitsOf(found) == bitsOf(taken)))
        same = same and numpy.all(values[row, count:].astype(numpy.float64) == -numpy.inf)
        if not same:
            wrong.append(row)
    return wrong


def smallest(path, dtype, k):
    """An ONNX model of the k smallest: its positions are i64."""
    kind = {"f32": onnx.TensorProto.FLOAT, "f64": onnx.TensorProto.DOUBLE}[dtype]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=1, largest=0, sorted=1)], "smallest",
        [value("x", kind, ["t", "n"])], [value("v", kind, ["t", k]), value("i", onnx.TensorProto.INT64, ["t", k])],
        [onnx.helper.make_tensor("k", onnx.TensorProto.INT64, [1], [k])])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), path)


def run(folder, program, dtype, target, shape, arrays, threads):
    out = pathlib.Path(folder) / "out.npz"
    command = [REFOLD, "run", str(program), f"--threads={threads}", f"--target={target}", f"--outputs-to={out}",
               f"--shape=t={shape[0]},n={shape[1]}", "--fuse=always"]
    if program.suffix == ".fold":
        command.append(f"--dtype={dtype}")
    for name, array in arrays.items():
        numpy.save(pathlib.Path(folder) / f"{name}.npy", array.view("V2") if dtype == "bf16" else array)
        command.append(f"--input={name}={folder}/{name}.npy")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr
    return dict(numpy.load(out)), ""


def cases():
    for shape, dtype, target in itertools.product(SHAPES, TYPES, TARGETS):
        if dtype == "f32" or target == "avx512" or shape in SHAPES[:4]:
            yield shape, dtype, target, ALONE, True
    for shape, target in itertools.product(SHAPES, TARGETS):
        yield shape, "f32", target, BESIDE, True
        if shape[2] <= shape[1]:
            yield shape, "f32", target, None, False
    for shape in SHAPES[:4]:
        yield shape, "f64", "avx512", None, False
    for shape, dtype, target in itertools.product(OF_COLUMNS, TYPES, TARGETS):
        if dtype == "f32" or (target == "avx512" and shape[1] < 1000):
            yield shape, dtype, target, COLUMNS, True
    for shape, target in itertools.product(OF_COLUMNS, TARGETS):
        yield shape, "f32", target, COLUMNS_BESIDE, True


def main():
    draw = numpy.random.default_rng(7)
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory() as folder:
        for shape, dtype, target, text, isLargest in cases():
            rows, length, k = shape
            x = keys(draw, rows, length, TYPES[dtype])
            areColumns = text in (COLUMNS, COLUMNS_BESIDE)
            arrays = {"x": numpy.ascontiguousarray(x.T) if areColumns else x}
            program = pathlib.Path(folder) / ("best.fold" if text else "best.onnx")
            if text:
                program.write_text(text.format(k=k), encoding="utf-8")
            else:
                smallest(program, dtype, k)
            if text == BESIDE:
                arrays["y"] = draw.standard_normal(x.shape).astype(x.dtype)
            found, error = run(folder, program, dtype, target, shape, arrays, 1 + (passed & 1))
            if "lacks" in error:
                skipped += 1
                continue
            if found and dtype == "bf16":
                found["v"] = found["v"].view(ml_dtypes.bfloat16)
            wrong = error or wrongRows(x, found["v"], found["i"], k, isLargest)
            if "--self-test" in sys.argv and not wrong and length > 1 and k > 1:  # a later one of equal keys
                found["i"][rows - 1, [0, 1]] = found["i"][rows - 1, [1, 0]]
                wrong = "" if wrongRows(x, found["v"], found["i"], k, isLargest) == [rows - 1] else "a swap was not seen"
            passed, failed = passed + (not wrong), failed + bool(wrong)
            if wrong:
                print(f"{shape} {dtype} {target} {'largest' if isLargest else 'smallest'}: {wrong}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
