#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions and poolings whose extents fill nothing evenly, and what is done to their elements: each against double
precision, against ONNX Runtime where it is there, on every instruction set, and as the number of kernels that it should be.

    windows_test.py [--self-test]
"""

import os
import pathlib
import re
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
try:
    import onnxruntime
except ImportError:
    onnxruntime = None

REFOLD = os.environ.get("REFOLD", "refold")
TARGETS = ["avx512", "avx2", "baseline"]
EXTENTS = {"n": 2, "h": 9, "w": 21}
TOLERANCE = 2e-6  # of the largest element
OWN_TOLERANCE = {"half": 1e-3}  # ONNX Runtime rounds to half floats between all nodes


class Model:
    """A graph under construction: `x` is what the last node gave."""

    def __init__(self, *shape):
        self.random = numpy.random.default_rng(5)
        self.inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        self.rank = len(shape)
        self.nodes, self.weights, self.last = [], [], "x"

    def weight(self, *shape, low=None):
        values = self.random.standard_normal(shape) if low is None else self.random.uniform(low, 2, shape)
        self.weights.append(numpy_helper.from_array(values.astype(numpy.float32), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def number(self, value):
        self.weights.append(numpy_helper.from_array(numpy.float32(value), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def argument(self, name, *shape):
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def add(self, kind, *others, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [self.last, *others], [name], **attributes))
        self.last = name
        return name

    def convolve(self, outputs, depth, *taps, bias=True, **attributes):
        weights = [self.weight(outputs, depth, *taps)] + ([self.weight(outputs)] if bias else [])
        return self.add("Conv", *weights, **attributes)

    def save(self, path):
        result = helper.make_tensor_value_info(self.last, TensorProto.FLOAT, [None] * self.rank)
        graph = helper.make_graph(self.nodes, "windows", self.inputs, [result], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
        model.ir_version = 9
        onnx.save(model, path)


def convolutions():
    """Name, model, and the kernels of a convolution with what follows it; None: not counted."""
    one = Model("n", 5, "w")
    one.convolve(7, 5, 4, auto_pad="SAME_LOWER", strides=[2])
    yield "line", one, None

    volume = Model(2, 3, 5, 6, 7)
    volume.convolve(5, 3, 2, 3, 2, strides=[1, 2, 1], pads=[0, 1, 1, 1, 0, 1])
    yield "volume", volume, None

    plane = Model("n", 6, "h", "w")
    plane.convolve(40, 6, 3, 3, pads=[1, 1, 1, 1])
    plane.add("Relu")
    yield "plane", plane, None

    uneven = Model("n", 6, "h", "w")
    uneven.convolve(33, 6, 3, 2, pads=[0, 2, 1, 1], strides=[2, 3], dilations=[2, 1], bias=False)
    uneven.add("Clip", uneven.number(-0.5), uneven.number(2))
    yield "uneven", uneven, None

    point = Model("n", 35, "h", "w")
    point.convolve(48, 35, 1, 1, strides=[2, 2])
    point.add("Gelu")
    yield "point", point, None

    depthwise = Model("n", 37, "h", "w")
    depthwise.convolve(37, 1, 3, 5, group=37, pads=[1, 2, 1, 2])
    depthwise.add("Mul", depthwise.add("Sigmoid"))
    depthwise.nodes[-1].input[0] = depthwise.nodes[0].output[0]
    yield "depthwise", depthwise, None

    doubled = Model(1, 12, 9, 9)
    doubled.convolve(24, 1, 3, 3, group=12)
    yield "doubled", doubled, None

    groups = Model("n", 24, 9, 14)
    groups.convolve(36, 8, 3, 3, group=3, pads=[1, 1, 1, 1])
    yield "groups", groups, None

    single = Model(1, 3, 4, 4)
    single.convolve(1, 3, 4, 4)
    yield "single", single, None

    wide = Model("n", 3, 6, 8)
    wide.convolve(40, 3, 3, 3, strides=[4, 6], dilations=[1, 2])
    yield "wide", wide, None

    # Bias, activation and the residual are done in the registers of the second convolution; its operand is written
    # where its padding is, so that nothing is copied. One kernel turns the result round at the end.
    block = Model(1, 32, 9, 14)
    block.convolve(64, 32, 1, 1)
    kept = block.add("Relu")
    block.convolve(64, 64, 3, 3, pads=[1, 1, 1, 1])
    block.add("Add", kept)
    block.add("Relu")
    block.convolve(64, 64, 1, 1)
    yield "block", block, 4

    norm = Model("n", 8, 9, 9)
    norm.convolve(32, 8, 3, 3)
    statistics = [norm.weight(32), norm.weight(32), norm.weight(32), norm.weight(32, low=0.5)]
    norm.add("BatchNormalization", *statistics)
    yield "norm", norm, None

    # Windows that fit once, along all axes or one: the order of what is summed is not that of the weights.
    for name, shape, weights, attributes in [
            ("once", (2, 16, 5, 5), (10, 16, 5, 5), {}),
            ("once_line", ("n", 16, 8), (24, 16, 8), {}),
            ("once_across", (2, 4, 9, 2), (6, 4, 1, 2), {}),
            ("once_strided", (2, 16, 5, 5), (24, 16, 3, 3), {"strides": [8, 8]}),
            ("once_many", ("n", 6, 4, 4), (40, 6, 4, 4), {}),
            ("once_groups", (2, 32, 7, 7), (64, 8, 7, 7), {"group": 4}),
            ("once_groups_down", (2, 16, 7, 7), (32, 4, 7, 1), {"group": 4}),
    ]:
        once = Model(*shape)
        once.convolve(*weights, **attributes)
        yield name, once, None

    # What is padded is computed in more bits than it is stored in.
    half = Model("n", 6, 9, 14)
    half.add("Cast", to=TensorProto.FLOAT16)
    half.add("Relu")
    half.add("MaxPool", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    half.add("Cast", to=TensorProto.FLOAT)
    yield "half", half, None

    given = Model("n", 4, 7, "w")
    given.add("Conv", given.argument("weights", 9, 4, 3, 3))
    yield "given", given, None


def poolings():
    for name, kind, shape, attributes in [
            ("largest", "MaxPool", ("n", 21, "h", "w"), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
            ("largest_ceil", "MaxPool", (2, 5, 10, 13), {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1}),
            ("largest_behind", "MaxPool", (1, 16, 2, "w"), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
            ("largest_apart", "MaxPool", (2, 5, 19), {"kernel_shape": [3], "dilations": [4]}),
            ("mean", "AveragePool", ("n", 5, "h", "w"), {"kernel_shape": [2, 3], "strides": [2, 1]}),
            ("mean_inside", "AveragePool", ("n", 5, 9, 10), {"kernel_shape": [3, 3], "pads": [1, 1, 2, 0], "strides": [2, 2]}),
            ("mean_all", "AveragePool", ("n", 5, 9, 10), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
            ("mean_ceil", "AveragePool", ("n", 5, 9, 10), {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
            ("mean_apart", "AveragePool", (2, 5, 9, 10),
             {"kernel_shape": [3, 3], "dilations": [2, 3], "pads": [2, 1, 1, 2], "strides": [2, 1]}),
            ("mean_same", "AveragePool", ("n", 5, 9, 10), {"kernel_shape": [4, 3], "auto_pad": "SAME_UPPER"}),
    ]:
        model = Model(*shape)
        model.add(kind, **attributes)
        yield name, model, None
    whole = Model("n", 40, "h", "w")
    whole.convolve(48, 40, 1, 1)
    whole.add("Relu")
    whole.add("GlobalAveragePool")
    yield "whole", whole, None


def run(*arguments, target):
    return subprocess.run([REFOLD, *map(str, arguments)], capture_output=True, text=True, check=False,
                          env={**os.environ, "REFOLD_CPU": target})


def difference(folder, path, target):
    """From ONNX Runtime, of the largest element: what is wrong, or ""."""
    if onnxruntime is None:
        return ""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    random = numpy.random.default_rng(11)
    feeds = {port.name: random.standard_normal([EXTENTS.get(dim, dim) for dim in port.shape]).astype(numpy.float32)
             for port in session.get_inputs()}
    wanted = session.run(None, feeds)[0]
    numpy.savez(folder / "in.npz", **feeds)
    done = run("run", path, f"--inputs-from={folder / 'in.npz'}", f"--outputs-to={folder / 'out.npz'}", target=target)
    if done.returncode:
        return done.stderr
    data = numpy.load(folder / "out.npz")
    found = data[data.files[0]]
    if found.shape != wanted.shape:
        return f"shape {found.shape}, expected {wanted.shape}"
    error = float(numpy.abs(found - wanted).max() / numpy.abs(wanted).max())
    most = OWN_TOLERANCE.get(path.stem, TOLERANCE)
    return "" if error <= most else f"{error:.2e} from ONNX Runtime, expected {most}"


def open_dims(path):
    ports = onnx.load(path).graph.input
    return sorted({dim.dim_param for port in ports for dim in port.type.tensor_type.shape.dim if dim.dim_param})


def judge(folder, name, kernels, target):
    """What is wrong, or ""."""
    path = folder / f"{name}.onnx"
    wrong = difference(folder, path, target)
    if "lacks" in wrong:
        return "skip"
    if wrong or (target != TARGETS[-1] and onnxruntime and kernels is None):
        return wrong
    shape = ",".join(f"{dim}={EXTENTS[dim]}" for dim in open_dims(path))
    answer = run("verify", path, *([f"--shape={shape}"] if shape else []), "--first-seeds=1", "--seeds=1", "--splits=1",
                 target=target)
    if "lacks" in answer.stderr:
        return "skip"
    if answer.returncode:
        return f"{answer.stdout}{answer.stderr}"
    if kernels is None:
        return ""
    steps = run("bench", path, "--kernels", "--pairs=1", target=target).stdout
    steps = steps[steps.find("fused: "):steps.find("unfused: ", steps.find("fused: ") + 7)]
    found = sum(int(count or 1) for count in re.findall(r"%.*  (?:(\d+) like )?kernel ", steps))
    return "" if found == kernels else f"expected {kernels} kernels, found {found}:\n{steps}"


def main():
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cases = [*convolutions(), *poolings()]
        for case, model, _ in cases:
            model.save(folder / f"{case}.onnx")
        if "--self-test" in sys.argv:
            wrong = judge(folder, "block", 3, TARGETS[-1])
            print("a wrong number of kernels is " + ("found" if wrong else "not found"))
            return 0 if wrong else 1
        for case, _, kernels in cases:
            for target in TARGETS:
                wrong = judge(folder, case, kernels, target)
                skipped += wrong == "skip"
                passed += not wrong
                if wrong and wrong != "skip":
                    failed += 1
                    print(f"{case}, {target}: {wrong}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
