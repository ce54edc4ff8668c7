# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The workloads of benchmarks/suite: their files, formulas and inputs."""

import ast
import json
import operator
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SUITE = ROOT / "benchmarks/suite"
BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2}
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}
#: What a bound is made of: the rate that is probed, and the formula that it divides. Where the file says bf16 products,
#: the machine may multiply pairs.
RESOURCES = {"read": "bytes", "copy": "bytes", "fma": "flops", "vnni": "flops", "bf16": "flops"}


def evaluate(formula, names):
    """A formula of the suite: integers, names, + - * //."""
    def value(node):
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Name):
            return names[node.id]
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        raise ValueError(f"found {ast.dump(node)} in '{formula}', expected integers, names, + - * //")
    return value(ast.parse(formula, mode="eval").body)


class Wanted:
    """A workload or family, and which of its shapes and types: "decode:n=16384:bf16"."""

    def __init__(self, text):
        self.name, *rest = text.split(":")
        self.shape = {name: int(extent) for name, extent in (part.split("=") for part in rest if "=" in part)}
        self.dtypes = [part for part in rest if "=" not in part]

    def has(self, workload):
        return self.name in (workload["name"], workload["family"])


def parse_wanted(text):
    return [Wanted(part) for part in text.split(",")]


def is_wanted(wanted, workload, shape, dtype):
    """Whether one of a list says so; an empty list wants all."""
    return not wanted or any(one.has(workload) and (not one.dtypes or dtype in one.dtypes)
                             and all(shape.get(name) == extent for name, extent in one.shape.items()) for one in wanted)


def load(wanted=()):
    """Workloads that are timed, not those of the compiler itself; some only where they are named."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(SUITE.glob("*.json"))]
    found = [one for one in found if "shapes" in one]
    return [one for one in found
            if (any(name.has(one) for name in wanted) if wanted else not one.get("only_named"))]


def stated_flags(workload, shape):
    """Extents that are known before compilation, as a model states them (a head's width); all others are open."""
    stated = dict(workload.get("dims", {}), **{name: shape[name] for name in workload.get("stated", [])})
    return [f"--dim={name}={extent}" for name, extent in stated.items()]


def shape_text(shape):
    return ",".join(f"{name}={extent}" for name, extent in shape.items())


def resources_of(workload, dtype):
    """The rates that limit a workload; the tightest counts. Products of bf16 have their own instruction, if the machine has it."""
    return (["bf16"] if "fma" in workload["bound"] and dtype == "bf16" else []) + workload["bound"]


def amounts(workload, shape, dtype):
    names = dict(shape, size=BYTES[dtype])
    return {name: evaluate(workload[name], names) for name in ("bytes", "flops")}


def make_array(random, port, extents, recipe, names):
    """Normal numbers, or what the workload says: uniform(a,b), integers(a,b) with b left out."""
    import numpy as np
    if not recipe:
        values = random.standard_normal(extents, dtype=np.float32)
    else:
        kind, low, high = re.fullmatch(r"(\w+)\(([^,]*),([^,]*)\)", recipe).groups()
        low, high = (names[one] if one in names else float(one) for one in (low, high))
        values = random.integers(int(low), int(high), extents) if kind == "integers" else random.uniform(low, high, extents)
    if port["dtype"] == "bf16":
        import ml_dtypes
        return values.astype(ml_dtypes.bfloat16)
    types = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "i8": np.int8, "i32": np.int32, "i64": np.int64}
    return values.astype(types[port["dtype"]])


def make_inputs(ports, workload, shape, folder):
    """Writes NAME.npy for each input; the seed is the same for everybody and every run."""
    import numpy as np
    random = np.random.default_rng(0)
    paths = []
    names = dict(workload.get("dims", {}), **shape)
    for port in ports:
        extents = [fixed if fixed is not None else names[name] for name, fixed in zip(port["dims"], port["extents"])]
        array = make_array(random, port, extents, workload.get("inputs", {}).get(port["name"]), names)
        paths.append(folder / f"{port['name']}.npy")
        np.save(paths[-1], array.view("V2") if port["dtype"] == "bf16" else array)
    return paths
