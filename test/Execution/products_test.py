#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products with constant weights and what is done to their elements: rows that fill no register tile, columns that fill
no register, sums longer than a block or a slice, heads that are columns too, rows that threads share, several products of one
norm, whose heads are split off or not, and every instruction set.

    products_test.py [--self-test]
"""

import json
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
ROWS = [0, 7, 27, 64, 131]  # up to 32, on some machines all, pass by one panel before the next
SHARED_ROWS = [127, 128, 131, 257, 300]  # threads have rows of their own from 128 on
# How the plan of products of one norm is asked for: one pass would make several of each that has a bias.
NORMS = {"norm": ["--shape=m=128"], "split": ["--shape=m=5", "--fuse=always"]}
TARGETS = ["", "avx512", "avx2", "baseline"]  # "": with what this machine likes


class Model:
    """A graph under construction: `x` is what the last node gave."""

    def __init__(self, shape):
        self.random = numpy.random.default_rng(7)
        self.inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        self.nodes, self.weights, self.last, self.results = [], [], "x", []

    def weight(self, *shape):
        values = self.random.standard_normal(shape).astype(numpy.float32)
        self.weights.append(numpy_helper.from_array(values, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def constant(self, values):
        self.weights.append(numpy_helper.from_array(numpy.array(values, numpy.int64), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def add(self, kind, *others, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [self.last, *others], [name], **attributes))
        self.last = name

    def argument(self, name, shape):
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def join(self, names, axis):
        self.nodes.append(helper.make_node("Concat", names, ["joined"], axis=axis))
        self.last = "joined"

    def result(self, shape):
        self.results.append(helper.make_tensor_value_info(self.last, TensorProto.FLOAT, shape))

    def save(self, path, shape):
        self.nodes[-1].output[0] = "y"
        graph = helper.make_graph(self.nodes, "product", self.inputs,
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape), *self.results],
                                  self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
        model.ir_version = 9
        onnx.save(model, path)


def models(folder):
    """Name, file and the kernels that each compiles to."""
    plain = Model(["m", 300])
    plain.add("MatMul", plain.weight(300, 70))
    plain.save(folder / "plain.onnx", ["m", 70])
    yield "plain", 1

    whole = Model(["m", 33])
    whole.add("MatMul", whole.weight(33, 47))
    whole.add("Add", whole.weight(47))
    whole.add("Gelu")
    whole.add("Add", whole.argument("residual", ["m", 47]))
    whole.save(folder / "epilogue.onnx", ["m", 47])
    yield "epilogue", 1

    heads = Model([2, "m", 40])
    heads.add("MatMul", heads.weight(40, 96))
    heads.add("Add", heads.weight(96))
    heads.add("Reshape", heads.constant([2, -1, 3, 32]))
    heads.add("Transpose", perm=[0, 2, 1, 3])
    heads.save(folder / "heads.onnx", [2, 3, "m", 32])
    yield "heads", 1

    long = Model(["m", 4500])
    long.add("MatMul", long.weight(4500, 150))
    long.add("Add", long.weight(150))
    long.save(folder / "long.onnx", ["m", 150])
    yield "long", 1

    turned = Model(["m", 40])
    turned.add("MatMul", turned.weight(40, 64))
    turned.add("Tanh")
    turned.add("Transpose", perm=[1, 0])
    turned.save(folder / "turned.onnx", [64, "m"])
    yield "turned", 2

    # Rows longer than a slice.
    norm = Model(["m", 1100])
    norm.add("LayerNormalization", norm.weight(1100), norm.weight(1100))
    row, results = norm.last, []
    for columns in (70, 33, 96):
        norm.last = row
        norm.add("MatMul", norm.weight(1100, columns))
        norm.add("Add", norm.weight(columns))
        results.append(norm.last)
    norm.join(results, -1)
    norm.save(folder / "norm.onnx", ["m", 199])
    yield "norm", 1

    # Queries and keys are turned so that heads lie apart, values lie as they are.
    split = Model([2, "m", 72])
    split.add("Mul", "x")
    split.add("ReduceMean", split.constant([-1]))
    for kind in ("Sqrt", "Reciprocal"):
        split.add(kind)
    split.add("Mul", "x")
    row = split.last
    for hasHeads in (True, True, False):
        split.last = row
        split.add("MatMul", split.weight(72, 96))
        split.add("Add", split.weight(96))
        if hasHeads:
            split.add("Reshape", split.constant([2, -1, 3, 32]))
            split.add("Transpose", perm=[0, 2, 1, 3])
            split.result([2, 3, "m", 32])
    split.save(folder / "split.onnx", [2, "m", 96])
    yield "split", None  # as the costs say


def run(*arguments, target):
    chosen = {"REFOLD_CPU": target} if target else {}
    return subprocess.run([REFOLD, *map(str, arguments)], capture_output=True, text=True, check=False,
                          env={**os.environ, **chosen})


def judge(folder, name, kernels, target):
    """What is wrong, or ""."""
    path = folder / f"{name}.onnx"
    for rows in ROWS:
        answer = run("verify", path, f"--shape=m={rows}", target=target)
        if "lacks" in answer.stderr:
            return "skip"
        if answer.returncode:
            return f"m = {rows}: {answer.stdout}{answer.stderr}"
    answer = run("bench", path, "--shape=m=8", "--kernels", "--pairs=1", "--format=json", target=target)
    kinds = [step["kind"] for step in json.loads(answer.stdout)["kernels"]["fused"]]
    if "product" in kinds or kernels not in (None, kinds.count("kernel")):
        return f"expected {kernels} kernels and no product of the library, found {kinds}"
    return ""


def judge_plan(folder, name):
    """Products of one norm are sums of one kernel, each by panels of its own, however few rows there are."""
    text = run("explain", folder / f"{name}.onnx", *NORMS[name], target="").stdout
    if text.count("in panels along") != 3 or "3 products one after the other, written from registers" not in text:
        return f"expected three products by panels, found:\n{text}"
    return ""


def judge_shared(folder, name):
    """Every element is computed, and the same, whoever computes it. Answers what is wrong, or ""."""
    path = folder / f"{name}.onnx"
    for rows in SHARED_ROWS:
        found = []
        for threads in (1, 2):
            output = folder / f"shared{threads}.npz"
            answer = run("run", path, f"--shape=m={rows}", f"--threads={threads}", f"--outputs-to={output}", target="")
            if answer.returncode:
                return f"m = {rows}, {threads} threads: {answer.stdout}{answer.stderr}"
            with numpy.load(output) as arrays:
                found.append(arrays["y"])
        if not numpy.array_equal(*found):
            return f"m = {rows}: {numpy.count_nonzero(found[0] != found[1])} elements differ between 1 and 2 threads"
    return ""


def judge_rounded(folder, name):
    """Factors rounded to bf16, by what this machine has for them (pairs in matrix tiles) and by the form without: the
    products are the same, only sums differ. Answers what is wrong, or ""."""
    path, found = folder / f"{name}.onnx", []
    for rows in [*ROWS, 16, 49, 200]:
        for target in ["", "avx512"]:
            output = folder / f"{target or 'own'}.npz"
            answer = run("run", path, "--multiply=bf16", f"--shape=m={rows}", f"--outputs-to={output}", target=target)
            if target and "lacks" in answer.stderr:
                return "skip"
            if answer.returncode:
                return f"m = {rows}: {answer.stdout}{answer.stderr}"
            with numpy.load(output) as arrays:
                found.append(arrays["y"].astype(numpy.float64))
        one, other = found[-2:]
        scale = numpy.abs(other).max(initial=1e-30)
        if one.shape != other.shape or not numpy.abs(one - other).max(initial=0.0) < 4e-6 * scale:
            return f"m = {rows}: found a difference of {numpy.abs(one - other).max(initial=0.0) / scale:.1e} of the largest"
    # Another answer than without rounding: or nothing was compared.
    exact = folder / "exact.npz"
    run("run", path, f"--shape=m={rows}", f"--outputs-to={exact}", target="")
    with numpy.load(exact) as arrays:
        if numpy.array_equal(arrays["y"].astype(numpy.float64), one):
            return "nothing was rounded"
    return ""


def main():
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory() as name:
        os.environ["REFOLD_CACHE_DIR"] = os.path.join(name, "kernels")  # a program is compiled once
        folder = pathlib.Path(name)
        cases = list(models(folder))
        if "--self-test" in sys.argv:
            wrong = judge(folder, cases[0][0], 3, TARGETS[-1])
            print("a wrong number of kernels is " + ("found" if wrong else "not found"))
            return 0 if wrong else 1
        for case, kernels in cases:
            for target in TARGETS:
                wrong = judge(folder, case, kernels, target)
                skipped += wrong == "skip"
                passed += not wrong
                if wrong and wrong != "skip":
                    failed += 1
                    print(f"{case}, {target}: {wrong}")
            wrong = judge_plan(folder, case) if case in NORMS else ""
            failed += bool(wrong)
            if wrong:
                print(f"{case}, plan: {wrong}")
            wrong = judge_shared(folder, case)
            passed += not wrong
            if wrong:
                failed += 1
                print(f"{case}, shared: {wrong}")
            wrong = judge_rounded(folder, case)
            skipped += wrong == "skip"
            passed += not wrong
            if wrong and wrong != "skip":
                failed += 1
                print(f"{case}, factors of bf16: {wrong}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
