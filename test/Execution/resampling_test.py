#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Resize, ConvTranspose, RotaryEmbedding, GridSample, ScatterND, ScatterElements and If against their definitions in double precision: odd
extents, extents with names, half floats, NaN and infinities.

    resampling_test.py [--self-test]
"""

import itertools
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

REFOLD = os.environ.get("REFOLD", "refold")
TOLERANCE = {"float32": 2e-6, "float16": 1e-3, "float64": 1e-12}  # of the largest element
RANDOM = numpy.random.default_rng(7)
passed, failed = 0, 0


def run(node, inputs, dims, constants, opset=23, before=()):
    """The result of one node behind others. `dims`: the shape of each input as the model declares it."""
    kinds = helper.np_dtype_to_tensor_dtype
    infos = [helper.make_tensor_value_info(n, kinds(a.dtype), dims.get(n, a.shape)) for n, a in inputs.items()]
    result = helper.make_tensor_value_info(node.output[0], kinds(next(iter(inputs.values())).dtype), None)
    graph = helper.make_graph([*before, node], "one", infos, [result], [numpy_helper.from_array(a, n) for n, a in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "m.onnx").write_bytes(model.SerializeToString())
        numpy.savez(path / "in.npz", **inputs)
        done = subprocess.run([REFOLD, "run", path / "m.onnx", f"--inputs-from={path}/in.npz", f"--outputs-to={path}/out.npz",
                               "--threads", "2"], capture_output=True, text=True, check=False)
        if done.returncode:
            return done.stderr.strip()
        return numpy.load(path / "out.npz")[node.output[0]]


def check(what, found, wanted):
    global passed, failed
    wanted = numpy.asarray(wanted)
    holds = not isinstance(found, str) and found.shape == wanted.shape
    if holds and found.dtype.kind == "f":
        finite = numpy.abs(wanted[numpy.isfinite(wanted)])
        most = TOLERANCE[found.dtype.name] * (finite.max() if finite.size else 0)
        exact = numpy.isfinite(wanted)
        with numpy.errstate(invalid="ignore"):
            holds = (numpy.abs(found - wanted)[exact] <= most).all() and numpy.array_equal(
                found[~exact].astype(numpy.float64), wanted[~exact].astype(numpy.float64), equal_nan=True)
    elif holds:
        holds = numpy.array_equal(found, wanted)
    passed, failed = passed + bool(holds), failed + (not holds)
    if not holds:
        print(f"{what}: found {found if isinstance(found, str) else (found.shape, found.ravel()[:6])}, "
              f"expected {wanted.shape} {wanted.ravel()[:6]}")


# Resize: the matrix of each axis.

def place(mode, i, scale, size, length):
    if mode == "asymmetric":
        return i / scale
    if mode == "align_corners":
        return i * (size - 1) / (length - 1) if length > 1 else 0.0
    if mode == "pytorch_half_pixel" and length == 1:
        return 0.0
    if mode == "half_pixel_symmetric":
        return size / 2 * (1 - length / (scale * size)) + (i + 0.5) / scale - 0.5
    return (i + 0.5) / scale - 0.5


def rounded(mode, x):
    if mode == "round_prefer_floor":
        return numpy.ceil(x - 0.5)
    if mode == "round_prefer_ceil":
        return numpy.floor(x + 0.5)
    return numpy.floor(x) if mode == "floor" else numpy.ceil(x)


def cubic(a, t):
    t = abs(t)
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0


def axis_matrix(size, length, scale, mode, coordinates, rounding="round_prefer_floor", excludes=0, a=-0.75):
    matrix = numpy.zeros((length, size))
    for i in range(length):
        x = place(coordinates, i, scale, size, length)
        first = int(numpy.floor(x))
        taps = ([(int(rounded(rounding, x)), 1.0)] if mode == "nearest" else
                [(first, first + 1 - x), (first + 1, x - first)] if mode == "linear" else
                [(first + k, cubic(a, x - first - k)) for k in (-1, 0, 1, 2)])
        if excludes:
            taps = [(k, w) for k, w in taps if 0 <= k < size]
            taps = [(k, w / sum(w for _, w in taps)) for k, w in taps]
        for k, w in taps:
            matrix[i, min(max(k, 0), size - 1)] += w
    return matrix


def check_resize():
    coordinates = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]
    for (h, w), named, mode, coordinate in itertools.product([(5, 7), (1, 3)], [False, True], ["nearest", "linear", "cubic"], coordinates):
        x = RANDOM.standard_normal((2, 3, h, w)).astype(numpy.float32)
        excludes = int(mode == "cubic" and coordinate == "half_pixel")
        rounding = {"asymmetric": "floor", "align_corners": "round_prefer_ceil"}.get(coordinate, "round_prefer_floor")
        for scales, sizes in (((2.0, 1.5), None), ((0.5, 3.0) if h > 1 else (1.0, 3.0), None), (None, (4, 9))):
            if named and sizes is None and coordinate == "half_pixel_symmetric":
                continue
            lengths = sizes or tuple(int(numpy.floor(s * n)) for s, n in zip(scales, (h, w)))
            used = scales or tuple(n / m for n, m in zip(sizes, (h, w)))
            maps = [axis_matrix(m, n, s, mode, coordinate, rounding, excludes) for m, n, s in zip((h, w), lengths, used)]
            if mode == "nearest" and coordinate == "align_corners":
                continue  # positions half way between two depend on the precision
            given = numpy.array(scales or sizes, numpy.float32 if scales else numpy.int64)
            node = helper.make_node("Resize", ["x", "", "s"] if scales else ["x", "", "", "s"], ["y"], mode=mode, axes=[2, 3],
                                    coordinate_transformation_mode=coordinate, nearest_mode=rounding, exclude_outside=excludes)
            found = run(node, {"x": x}, {"x": [2, 3, "h", "w"]} if named else {}, {"s": given})
            wanted = numpy.einsum("nchw,ah,bw->ncab", x.astype(float), *maps)
            check(f"Resize {mode} {coordinate} {(h, w)} by {scales or sizes}{' named' if named else ''}", found, wanted)
    whole = RANDOM.integers(-100, 100, (1, 2, 3, 5)).astype(numpy.int32)
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    found = run(node, {"x": whole}, {"x": ["n", 2, "h", "w"]}, {"s": numpy.array([1, 1, 2, 3], numpy.float32)})
    check("Resize of integers", found, whole.repeat(2, 2).repeat(3, 3))
    half = RANDOM.standard_normal((1, 2, 3, 5)).astype(numpy.float16)
    half[0, 0, 1, 2], half[0, 1, 0, 0] = numpy.nan, numpy.inf
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="nearest", nearest_mode="ceil")
    maps = [axis_matrix(3, 7, 7 / 3, "nearest", "half_pixel", "ceil"), axis_matrix(5, 4, 0.8, "nearest", "half_pixel", "ceil")]
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode="nearest", nearest_mode="ceil")
    found = run(node, {"x": half}, {}, {"s": numpy.array([1, 2, 7, 4])})
    check("Resize of half floats", found, half[:, :, maps[0].argmax(1)][:, :, :, maps[1].argmax(1)])


# ConvTranspose: what each element adds where.

def transposed(x, w, strides, dilations, groups, pads, more, bias):
    n, c, h, wide = x.shape
    outputs, kh, kw = w.shape[1:]
    size = [s * (e - 1) + d * (k - 1) + 1 + p for s, e, d, k, p in zip(strides, (h, wide), dilations, (kh, kw), more)]
    y = numpy.zeros((n, groups * outputs, *size))
    for g in range(groups):
        part = slice(g * (c // groups), (g + 1) * (c // groups))
        for i, j, a, b in itertools.product(range(h), range(wide), range(kh), range(kw)):
            y[:, g * outputs:(g + 1) * outputs, i * strides[0] + a * dilations[0], j * strides[1] + b * dilations[1]] += (
                x[:, part, i, j] @ w[part, :, a, b])
    y = y[:, :, pads[0]:size[0] - pads[2], pads[1]:size[1] - pads[3]]
    return y + (0 if bias is None else bias[None, :, None, None])


def check_transposed():
    cases = [(1, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), (0, 0)), (1, (4, 4), (2, 2), (1, 1), (1, 1, 1, 1), (0, 0)),
             (1, (3, 5), (2, 3), (1, 1), (1, 2, 0, 1), (1, 2)), (2, (3, 3), (2, 1), (1, 2), (1, 0, 1, 3), (1, 0)),
             (4, (3, 2), (3, 2), (1, 1), (0, 0, 2, 1), (0, 1)), (1, (3, 3), (2, 2), (2, 3), (1, 1, 2, 0), (0, 1)),
             (1, (1, 2), (3, 4), (1, 1), (0, 0, 0, 0), (2, 3)), (2, (5, 3), (1, 1), (1, 2), (4, 2, 3, 0), (0, 0)),
             (1, (2, 2), (5, 5), (1, 1), (0, 3, 1, 0), (0, 0))]
    for (groups, kernel, strides, dilations, pads, more), (h, w), named in itertools.product(cases, [(4, 6), (1, 3)], [False, True]):
        x = RANDOM.standard_normal((2, 4, h, w)).astype(numpy.float32)
        weights = RANDOM.standard_normal((4, 3, *kernel)).astype(numpy.float32)
        bias = RANDOM.standard_normal(3 * groups).astype(numpy.float32) if h > 1 else None
        wanted = transposed(x.astype(float), weights.astype(float), strides, dilations, groups, pads, more, bias)
        if 0 in wanted.shape:
            continue
        node = helper.make_node("ConvTranspose", ["x", "w", "b"] if bias is not None else ["x", "w"], ["y"], group=groups,
                                strides=strides, dilations=dilations, pads=pads, output_padding=more)
        constants = {"w": weights} if bias is None else {"w": weights, "b": bias}
        found = run(node, {"x": x}, {"x": ["n", 4, "h", "w"]} if named else {}, constants)
        check(f"ConvTranspose {groups} {kernel} {strides} {dilations} {pads} {more} of {(h, w)}{' named' if named else ''}", found, wanted)


# Scatters: one write after the other.

OPERATORS = {"none": lambda a, b: b, "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "max": max, "min": min}


def check_scatters():
    for kind, dtype in itertools.product(OPERATORS, [numpy.float32, numpy.int64, numpy.float16]):
        data = RANDOM.integers(-9, 9, (5, 4, 3)).astype(dtype)
        at = numpy.array([[[1, 0], [-1, 3]], [[0, -1], [1, 1]], [[1, 0], [3, 3]]])  # one place twice
        if kind == "none":
            at[2, 0] = 2, 2
        updates = RANDOM.integers(-9, 9, (3, 2, 3)).astype(dtype)
        wanted = data.copy()
        for i, j in numpy.ndindex(3, 2):
            for k in range(3):
                place = (*at[i, j], k)
                wanted[place] = OPERATORS[kind](wanted[place], updates[i, j, k])
        for named in (False, True):
            node = helper.make_node("ScatterND", ["x", "i", "u"], ["y"], reduction=kind)
            found = run(node, {"x": data, "i": at, "u": updates},
                        {"x": ["a", "b", 3], "i": ["p", 2, 2], "u": ["p", 2, 3]} if named else {}, {})
            check(f"ScatterND {kind} {dtype.__name__}{' named' if named else ''}", found, wanted)
        for axis in (0, -2, 2):
            length = {0: 3, -2: 2, 2: 1}[axis]
            shape = list(data.shape)
            shape[axis] = length
            rows = numpy.stack([RANDOM.permutation(data.shape[axis])[:length] for _ in range(int(numpy.prod(shape)) // length)])
            at_axis = numpy.moveaxis(rows.reshape(*[e for k, e in enumerate(shape) if k != axis % 3], length), -1, axis)
            at_axis = at_axis - data.shape[axis] * (at_axis % 2)  # some from the end
            updates = RANDOM.integers(-9, 9, shape).astype(dtype)
            wanted = data.copy()
            for place in numpy.ndindex(*shape):
                to = list(place)
                to[axis % 3] = at_axis[place]
                wanted[tuple(to)] = OPERATORS[kind](wanted[tuple(to)], updates[place])
            node = helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=axis, reduction=kind)
            found = run(node, {"x": data, "i": at_axis, "u": updates}, {"x": ["a", "b", "c"]} if axis == 0 else {}, {})
            check(f"ScatterElements {kind} {dtype.__name__} along {axis}", found, wanted)
    # A box of the data, at positions that are known: every other row, a column.
    data = RANDOM.standard_normal((6, 5, 2)).astype(numpy.float32)
    data[0, 0, 0] = numpy.nan
    rows, column = numpy.meshgrid([1, 3, 5], [-2], indexing="ij")
    for kind in OPERATORS:
        updates = RANDOM.standard_normal((3, 1, 2)).astype(numpy.float32)
        updates[1, 0, 0] = -numpy.inf
        wanted = data.astype(float)
        for i, k in numpy.ndindex(3, 2):
            wanted[1 + 2 * i, 3, k] = OPERATORS[kind](wanted[1 + 2 * i, 3, k], float(updates[i, 0, k]))
        node = helper.make_node("ScatterND", ["x", "i", "u"], ["y"], reduction=kind)
        found = run(node, {"x": data, "u": updates}, {}, {"i": numpy.stack([rows, column], -1)})
        check(f"ScatterND of a box {kind}", found, wanted)
    node = helper.make_node("ScatterND", ["x", "i", "u"], ["y"])
    found = run(node, {"x": data, "i": numpy.array([[6]]), "u": data[:1]}, {}, {})
    check("a position outside is told", numpy.array("outside a dimension of 6" in str(found)), numpy.array(True))
    check("a scatter of nothing", run(node, {"x": data, "i": numpy.zeros((0, 1), numpy.int64), "u": data[:0]}, {}, {}), data)


def check_rotary():
    for interleaved, width, named, rank in itertools.product([0, 1], [0, 6], [False, True], [3, 4]):
        x = RANDOM.standard_normal((2, 3, 5, 8)).astype(numpy.float32)  # batch, heads, length, size
        half = (width or 8) // 2
        angles = RANDOM.standard_normal((11, half))
        cosines, sines = numpy.cos(angles).astype(numpy.float32), numpy.sin(angles).astype(numpy.float32)
        at = RANDOM.integers(0, 11, (2, 5))
        c, s = (t[at][:, None].astype(float) for t in (cosines, sines))
        first, second = ((x[..., 0:2 * half:2], x[..., 1:2 * half:2]) if interleaved else (x[..., :half], x[..., half:2 * half]))
        real, other = c * first - s * second, s * first + c * second
        turned = numpy.stack([real, other], -1).reshape(2, 3, 5, 2 * half) if interleaved else numpy.concatenate([real, other], -1)
        wanted = numpy.concatenate([turned, x[..., 2 * half:]], -1)
        given = x
        if rank == 3:
            given, wanted = (t.transpose(0, 2, 1, 3).reshape(2, 5, 24) for t in (x, wanted))
        node = helper.make_node("RotaryEmbedding", ["x", "c", "s", "p"], ["y"], interleaved=interleaved, rotary_embedding_dim=width,
                                num_heads=3 if rank == 3 else 0)
        dims = {"x": ["b", "l", 24] if rank == 3 else ["b", 3, "l", 8], "p": ["b", "l"]} if named else {}
        check(f"RotaryEmbedding {interleaved} {width} rank {rank}{' named' if named else ''}",
              run(node, {"x": given, "p": at}, dims, {"c": cosines, "s": sines}), wanted)


# GridSample: places along one dimension, then the four corners.

def line(given, size, aligns, padding):
    place = (given + 1) / 2 * (size - 1) if aligns else ((given + 1) * size - 1) / 2
    if padding == "reflection":
        low, span = (0.0, size - 1.0) if aligns else (-0.5, float(size))
        if span == 0:
            place = 0.0 * place
        else:
            off = numpy.abs(place - low)
            turns, rest = numpy.floor(off / span), off % span
            place = numpy.where(turns % 2 == 0, rest, span - rest) + low
    return place if padding == "zeros" else numpy.clip(place, 0, size - 1)


def sampled(image, grid, mode, aligns, padding):
    n, c, h, w = image.shape
    x, y = (line(grid[..., k], size, aligns, padding) for k, size in ((0, w), (1, h)))
    if mode == "nearest":
        corners = [(numpy.round(x), numpy.round(y), 1.0)]
    else:
        corners = [(numpy.floor(x) + a, numpy.floor(y) + b, abs(1 - a - (x - numpy.floor(x))) * abs(1 - b - (y - numpy.floor(y))))
                   for a in (0, 1) for b in (0, 1)]
    total = numpy.zeros((n, c, *grid.shape[1:3]))
    for at, down, weight in corners:
        inside = (at >= 0) & (at < w) & (down >= 0) & (down < h)
        i, j = (numpy.where(inside, t, 0).astype(int) for t in (down, at))
        for k in range(n):
            total[k] += numpy.where(inside[k], image[k][:, i[k], j[k]] * (weight if mode == "nearest" else weight[k]), 0)
    return total


def check_grid():
    for mode, aligns, padding, named, (h, w) in itertools.product(["nearest", "linear"], [0, 1], ["zeros", "border", "reflection"],
                                                                  [False, True], [(5, 7), (1, 2)]):
        image = RANDOM.standard_normal((2, 3, h, w)).astype(numpy.float32)
        grid = (RANDOM.integers(-400, 400, (2, 4, 3, 2)) / 256 + 1 / 1024).astype(numpy.float32)
        node = helper.make_node("GridSample", ["x", "g"], ["y"], mode=mode, align_corners=aligns, padding_mode=padding)
        found = run(node, {"x": image, "g": grid}, {"x": ["n", 3, "h", "w"], "g": ["n", "a", "b", 2]} if named else {}, {})
        wanted = sampled(image.astype(float), grid.astype(float), mode, aligns, padding)
        check(f"GridSample {mode} {aligns} {padding} {(h, w)}{' named' if named else ''}", found, wanted)
    grid = numpy.array([[[[numpy.nan, 0], [numpy.inf, 0], [0, -numpy.inf], [1e30, 1e30]]]], numpy.float32)
    node = helper.make_node("GridSample", ["x", "g"], ["y"])
    check("GridSample of no place", run(node, {"x": image[:1], "g": grid}, {}, {}), numpy.zeros((1, 3, 1, 4), numpy.float32))


def check_branches():
    """Of an If whose condition follows from sizes, one inside the other; both branches use one name."""
    x = RANDOM.standard_normal((2, 3)).astype(numpy.float32)
    result = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    weight = numpy_helper.from_array(numpy.float32(3), "weight")
    outer = helper.make_tensor_value_info("outer", TensorProto.FLOAT, None)

    def branch(*nodes, output=result):
        return helper.make_graph(list(nodes), "branch", [], [output], [weight] if output is result else [])
    for extent, named in ((3, False), (4, False), (3, True)):
        before = [helper.make_node("Shape", ["x"], ["size"], start=1), helper.make_node("Equal", ["size", "three"], ["is"])]
        inside = helper.make_node("If", ["is"], ["inner2"], then_branch=branch(helper.make_node("Mul", ["x", "weight"], ["inner"])),
                                  else_branch=branch(helper.make_node("Add", ["x", "weight"], ["inner"])))
        node = helper.make_node("If", ["yes"], ["y"], else_branch=branch(helper.make_node("LSTM", ["x"], ["inner"])),
                                then_branch=branch(inside, helper.make_node("Neg", ["inner2"], ["outer"]), output=outer))
        found = run(node, {"x": x}, {"x": ["n", 3 if not named else "m"]}, {"three": numpy.array([extent]), "yes": numpy.array(True)},
                    before=before)
        if named:
            check("an If of data", numpy.array("known only at run time" in str(found)), numpy.array(True))
        else:
            check(f"an If of {extent}", found, -(x * 3.0 if extent == 3 else x + 3.0))


def main():
    if "--self-test" in sys.argv:
        global failed
        check("a wrong element", numpy.ones(3, numpy.float32), [1, 1, 1.001])
        check("a NaN that is none", numpy.ones(3, numpy.float32), [1, 1, numpy.nan])
        check("another shape", numpy.ones(3, numpy.float32), [1, 1])
        print("self-test", "passed" if failed == 3 else "failed")
        return int(failed != 3)
    check_resize()
    check_transposed()
    check_scatters()
    check_rotary()
    check_grid()
    check_branches()
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
