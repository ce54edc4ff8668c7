# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A `.fold` program as an ONNX model: the same formulas in the operators of ONNX, one node an operation.

Every value is a tensor over some of the program's axes, always in one order, so that operands line up by
Unsqueeze. What ONNX cannot say, or not with the same roundings, is refused by `Untranslatable`.
"""

import ast
import operator
import re

import numpy as np
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
REDUCERS = {"sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd", "mean": "ReduceMean",
            "any": "ReduceMax", "all": "ReduceMin", "argmax": "ArgMax", "argmin": "ArgMin"}
FUNCTIONS = {"exp": "Exp", "log": "Log", "sqrt": "Sqrt", "abs": "Abs", "sign": "Sign", "relu": "Relu", "floor": "Floor",
             "ceil": "Ceil", "round": "Round", "tanh": "Tanh", "sigmoid": "Sigmoid", "erf": "Erf", "sin": "Sin",
             "cos": "Cos", "sinh": "Sinh", "cosh": "Cosh", "isnan": "IsNaN", "isinf": "IsInf", "max": "Max", "min": "Min",
             "pow": "Pow"}
BINARY = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div", ast.Pow: "Pow"}
ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
              ast.Pow: operator.pow}
COMPARISONS = {ast.Lt: "Less", ast.LtE: "LessOrEqual", ast.Gt: "Greater", ast.GtE: "GreaterOrEqual", ast.Eq: "Equal"}
DTYPES = {"f32": TensorProto.FLOAT, "f64": TensorProto.DOUBLE, "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16,
          "i64": TensorProto.INT64, "i32": TensorProto.INT32, "i8": TensorProto.INT8, "u8": TensorProto.UINT8,
          "bool": TensorProto.BOOL, "f8e4m3": TensorProto.FLOAT8E4M3FN, "f8e5m2": TensorProto.FLOAT8E5M2}
REAL = TensorProto.FLOAT


class Untranslatable(Exception):
    """What ONNX has no words for."""


class Value:
    """A tensor of the graph: its name, its axes, its type; a bare number has no name yet."""

    def __init__(self, name, axes, dtype, number=None):
        self.name, self.axes, self.dtype, self.number = name, axes, dtype, number


class Translator:
    def __init__(self, text):
        lines = [line.split("#")[0].rstrip() for line in text.splitlines()]
        lines = [line for line in lines if line.strip()]
        self.nodes, self.initializers, self.inputs, self.values = [], [], [], {}
        self.counter, self.order, self.homes, self.fixed = 0, [], {}, {}
        self.outputs = self.read_header(lines[0])
        for line in lines[1:]:
            for name in re.findall(r"\w+\[([\w, ]+)\]\s*(?:,|=(?!=))", line):
                self.note_axes(name)
        for line in lines[1:]:
            self.define(line.strip())

    def note_axes(self, text):
        for axis in (part.strip() for part in text.split(",")):
            if axis not in self.order:
                self.order.append(axis)

    def read_header(self, line):
        name, arguments, outputs = re.fullmatch(r"(\w+)\((.*)\)\s*->\s*(.*)", line.strip()).groups()
        self.name = name
        for part in re.findall(r"(\w+)(?:\[([^\]]*)\])?(?:\s*:\s*(\w+))?\s*(?:,|$)", arguments):
            axes = []
            for axis in filter(None, (a.strip() for a in part[1].split(","))):
                axis, _, extent = axis.partition("=")
                axes.append(axis.strip())
                if extent:
                    self.fixed[axis.strip()] = int(extent)
            self.note_axes(",".join(axes))
            dtype = self.dtype(part[2] or "f32")
            self.inputs.append((part[0], axes, dtype))
        self.order = [axis for axis in self.order if axis]
        for name, axes, dtype in self.inputs:
            for place, axis in enumerate(axes):
                self.homes.setdefault(axis, (name, place))
            self.values[name] = Value(name, axes, dtype)
        return [(n, self.dtype(d) if d else None) for n, d in re.findall(r"(\w+)(?:\s*:\s*(\w+))?\s*(?:,|$)", outputs)]

    @staticmethod
    def dtype(word):
        if word not in DTYPES:
            raise Untranslatable(f"type {word}")
        return DTYPES[word]

    # ---- nodes -------------------------------------------------------------------------------------------

    def emit(self, op, inputs, axes, dtype, **attributes):
        self.counter += 1
        name = f"{op.lower()}_{self.counter}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return Value(name, axes, dtype)

    def constant(self, array):
        self.counter += 1
        self.initializers.append(numpy_helper.from_array(array, f"c_{self.counter}"))
        return f"c_{self.counter}"

    def named(self, value, dtype):
        """The value as a tensor of the type; a bare number becomes an initialiser of it."""
        if value.number is not None:
            array = np.asarray(value.number, dtype=helper.tensor_dtype_to_np_dtype(dtype))
            return Value(self.constant(array), [], dtype)
        if value.dtype == dtype:
            return value
        return self.emit("Cast", [value.name], value.axes, dtype, to=dtype)

    def cast(self, value, dtype):
        """A written cast: to the nearest integer, where Cast cuts off."""
        whole = dtype in (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32, TensorProto.INT64)
        if whole and value.number is None and value.dtype in (REAL, TensorProto.DOUBLE):
            value = self.apply("Round", [value])
        return self.named(value, dtype)

    def ordered(self, value):
        """The axes in the program's order."""
        wanted = sorted(value.axes, key=self.order.index)
        if wanted == value.axes:
            return value
        return self.emit("Transpose", [value.name], wanted, value.dtype, perm=[value.axes.index(a) for a in wanted])

    def spread(self, value, axes):
        value = self.ordered(value)
        missing = [place for place, axis in enumerate(axes) if axis not in value.axes]
        # Leading ones are what broadcasting adds.
        while missing and missing[0] == 0 and not value.axes:
            return value
        if not missing:
            return value
        return self.emit("Unsqueeze", [value.name, self.constant(np.array(missing))], axes, value.dtype)

    def aligned(self, values):
        axes = sorted({axis for value in values for axis in value.axes}, key=self.order.index)
        return axes, [self.spread(value, axes) for value in values]

    def common(self, values):
        """The type of arithmetic on the values: a number takes that of the others."""
        known = {value.dtype for value in values if value.number is None}
        if REAL in known or not known or any(isinstance(v.number, float) for v in values):
            if TensorProto.DOUBLE in known:
                return TensorProto.DOUBLE
            return REAL
        if any(d in (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2, TensorProto.FLOAT16, TensorProto.BFLOAT16) for d in known):
            return REAL
        short = (TensorProto.BOOL, TensorProto.INT8, TensorProto.UINT8)
        return max((TensorProto.INT32 if d in short else d for d in known),
                   key=[TensorProto.INT32, TensorProto.INT64].index)

    def apply(self, op, values, result=None, dtype=None, **attributes):
        dtype = dtype or self.common(values)
        axes, operands = self.aligned([self.named(value, dtype) for value in values])
        return self.emit(op, [o.name for o in operands], axes, dtype if result is None else result, **attributes)

    # ---- expressions -------------------------------------------------------------------------------------

    def evaluate(self, node):
        method = getattr(self, "on_" + type(node).__name__.lower(), None)
        if not method:
            raise Untranslatable(ast.dump(node))
        return method(node)

    def on_constant(self, node):
        return Value(None, [], None, node.value)

    def on_name(self, node):
        if node.id in ("inf", "nan", "pi"):
            return Value(None, [], None, {"inf": np.inf, "nan": np.nan, "pi": np.pi}[node.id])
        if node.id in self.values:
            return self.values[node.id]
        if node.id not in self.homes:
            raise Untranslatable(f"the axis {node.id} has no extent in an input")
        zero, one = (self.constant(np.array(n)) for n in (0, 1))
        return self.emit("Range", [zero, self.length(node.id).name, one], [node.id], TensorProto.INT64)

    def length(self, axis):
        if axis not in self.homes:
            raise Untranslatable(f"the axis {axis} has no extent in an input")
        name, place = self.homes[axis]
        shape = self.emit("Shape", [name], ["?"], TensorProto.INT64)
        return self.emit("Gather", [shape.name, self.constant(np.array(place))], [], TensorProto.INT64, axis=0)

    def on_unaryop(self, node):
        value = self.evaluate(node.operand)
        if isinstance(node.op, ast.Not):
            return self.apply("Not", [value], dtype=TensorProto.BOOL)
        if value.number is not None:
            return Value(None, [], None, -value.number)
        return self.apply("Neg", [value])

    def on_binop(self, node):
        values = [self.evaluate(node.left), self.evaluate(node.right)]
        if type(node.op) not in BINARY:
            raise Untranslatable(ast.dump(node.op))
        real = isinstance(node.op, (ast.Div, ast.Pow))
        if all(value.number is not None for value in values):
            folded = ARITHMETIC[type(node.op)](values[0].number, values[1].number)
            return Value(None, [], None, folded)
        dtype = self.common(values)
        return self.apply(BINARY[type(node.op)], values, dtype=REAL if real and dtype != TensorProto.DOUBLE else dtype)

    def on_compare(self, node):
        values = [self.evaluate(node.left), self.evaluate(node.comparators[0])]
        if isinstance(node.ops[0], ast.NotEq):
            equal = self.apply("Equal", values, TensorProto.BOOL)
            return self.apply("Not", [equal], dtype=TensorProto.BOOL)
        return self.apply(COMPARISONS[type(node.ops[0])], values, TensorProto.BOOL)

    def on_boolop(self, node):
        op = "And" if isinstance(node.op, ast.And) else "Or"
        value = self.evaluate(node.values[0])
        for other in node.values[1:]:
            value = self.apply(op, [value, self.evaluate(other)], dtype=TensorProto.BOOL)
        return value

    def on_subscript(self, node):
        value = self.evaluate(node.value)
        places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if not all(isinstance(p, ast.Name) for p in places) or [p.id for p in places] != value.axes:
            raise Untranslatable("a computed subscript")
        return value

    def on_call(self, node):
        name = node.func.id
        if name.startswith("reduce_"):
            return self.reduce(name[len("reduce_"):], node.args[0].value.split(","), self.evaluate(node.args[1]))
        if name == "len":
            return self.length(node.args[0].id)
        values = [self.evaluate(argument) for argument in node.args]
        if name == "where":
            condition = self.named(values[0], TensorProto.BOOL)
            dtype = self.common(values[1:])
            axes, operands = self.aligned([condition] + [self.named(v, dtype) for v in values[1:]])
            return self.emit("Where", [o.name for o in operands], axes, dtype)
        if name in DTYPES:
            return self.cast(values[0], self.dtype(name))
        if name not in FUNCTIONS:
            raise Untranslatable(name)
        result = TensorProto.BOOL if name in ("isnan", "isinf") else None
        dtype = self.common(values)
        if name not in ("abs", "sign", "relu", "max", "min") and dtype != TensorProto.DOUBLE:
            dtype = REAL
        return self.apply(FUNCTIONS[name], values, result, dtype)

    def reduce(self, reducer, axes, value):
        if not set(axes) <= set(value.axes):
            raise Untranslatable("a reduction over an axis that the value repeats along")
        places = [value.axes.index(axis) for axis in axes]
        kept = [axis for axis in value.axes if axis not in axes]
        if reducer in ("argmax", "argmin"):
            return self.emit(REDUCERS[reducer], [value.name], kept, TensorProto.INT64, axis=places[0], keepdims=0)
        if reducer not in ("any", "all"):
            value = self.named(value, self.common([value]))
        return self.emit(REDUCERS[reducer], [value.name, self.constant(np.array(places))], kept, value.dtype, keepdims=0)

    # ---- definitions -------------------------------------------------------------------------------------

    @staticmethod
    def parse(text):
        text = re.sub(r"\b(\w+)\(\s*(\w+(?:\s*,\s*\w+)*)\s*:", lambda m: f'reduce_{m[1]}("{m[2].replace(" ", "")}", ', text)
        return ast.parse(text.replace("^", "**"), mode="eval").body

    def rename(self, value, name):
        """The node that makes the value gets the name of its definition, which is what a cascade is told by."""
        for node in reversed(self.nodes):
            if value.name in node.output and value.name not in self.values:
                node.name = name
                return

    def define(self, line):
        target, expression = re.match(r"(.*?[^=!<>])=(?!=)\s*(.*)", line).groups()
        targets = re.findall(r"(\w+)\s*(?:\[([^\]]*)\])?", target)
        if expression.startswith("topk"):
            return self.define_topk(targets, expression)
        value = self.evaluate(self.parse(expression))
        if value.number is not None:
            value = self.named(value, REAL)
        name, axes = targets[0][0], [a.strip() for a in targets[0][1].split(",") if a.strip()]
        if axes and axes != value.axes:
            if sorted(axes) != sorted(value.axes):
                raise Untranslatable("a definition that repeats along an axis")
            value = self.emit("Transpose", [value.name], axes, value.dtype, perm=[value.axes.index(a) for a in axes])
        self.rename(value, name)
        self.values[name] = value

    def define_topk(self, targets, expression):
        axis, inner, count = re.fullmatch(r"topk\((\w+):(.*),\s*(\d+)\)", expression).groups()
        value = self.evaluate(self.parse(inner.strip()))
        place = value.axes.index(axis)
        if int(count) > self.fixed.get(axis, int(count)):
            raise Untranslatable("more places than elements")
        self.counter += 1
        names = [f"top_{self.counter}", f"top_at_{self.counter}"]
        self.nodes.append(helper.make_node("TopK", [value.name, self.constant(np.array([int(count)]))], names,
                                           name=targets[0][0], axis=place))
        for (name, written), result, dtype in zip(targets, names, (value.dtype, TensorProto.INT64)):
            axes = [a.strip() for a in written.split(",")]
            rank = next(a for a in axes if a not in value.axes)
            made = Value(result, [rank if a == axis else a for a in value.axes], dtype)
            if made.axes != axes:
                made = self.emit("Transpose", [made.name], axes, dtype, perm=[made.axes.index(a) for a in axes])
            self.values[name] = made

    def model(self):
        outputs = []
        for name, dtype in self.outputs:
            value = self.values[name]
            if dtype or value.dtype not in (TensorProto.FLOAT, TensorProto.BOOL):
                value = self.named(value, dtype or REAL)
            if value.name in {i[0] for i in self.inputs} or any(value.name == o.name for o in outputs):
                value = self.emit("Identity", [value.name], value.axes, value.dtype)
            outputs.append(helper.make_tensor_value_info(value.name, value.dtype, None))
        inputs = [helper.make_tensor_value_info(name, dtype, [self.fixed.get(a, a) for a in axes])
                  for name, axes, dtype in self.inputs]
        graph = helper.make_graph(self.nodes, self.name, inputs, outputs, self.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def translate(text):
    """The ONNX model of a `.fold` program's text."""
    return Translator(text).model()
