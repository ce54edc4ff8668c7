# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What programs.py needs, as nodes of an ONNX model: the operator that ONNX has for it where it has one.

Shapes are static, as the peers are given them. `has_attention` writes attention as the operator of opset 23, which not
every runtime reads, instead of two products and a softmax.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TYPES = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "i8": TensorProto.INT8, "i32": TensorProto.INT32, "i64": TensorProto.INT64}


class Value:
    """An array of the graph: its name, shape and type, and the operators of arrays."""

    def __init__(self, library, name, shape, dtype):
        self.library, self.name, self.shape, self.dtype = library, name, tuple(shape), dtype

    def _binary(self, op, other, is_turned=False):
        pair = [self, self.library.array(other, self.dtype)]
        if pair[1].dtype != self.dtype:
            pair = [self.library.cast(one, "f32") for one in pair]
        pair = pair[::-1] if is_turned else pair
        shape = np.broadcast_shapes(pair[0].shape, pair[1].shape)
        return self.library.node(op, pair, shape, pair[0].dtype)

    def __add__(self, other):
        return self._binary("Add", other)

    __radd__ = __add__

    def __sub__(self, other):
        return self._binary("Sub", other)

    def __rsub__(self, other):
        return self._binary("Sub", other, is_turned=True)

    def __mul__(self, other):
        return self._binary("Mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other):
        return self._binary("Div", other)

    def __rtruediv__(self, other):
        return self._binary("Div", other, is_turned=True)

    def __pow__(self, exponent):
        return self * self if exponent == 2 else self._binary("Pow", float(exponent))

    def __neg__(self):
        return self.library.node("Neg", [self], self.shape, self.dtype)

    def reshape(self, *shape):
        return self.library.node("Reshape", [self, self.library.numbers(shape)], shape, self.dtype)

    def __getitem__(self, key):
        """New axes (None), all of an axis, a front of the last one, and one position of it."""
        key = key if isinstance(key, tuple) else (key,)
        given = sum(part is not None and part is not Ellipsis for part in key)
        parts, axis, value = [], 0, self
        for part in key:
            parts += [slice(None)] * (len(self.shape) - given) if part is Ellipsis else [part]
        for part in parts:
            if part is None:
                shape = value.shape[:axis] + (1,) + value.shape[axis:]
                value = self.library.node("Unsqueeze", [value, self.library.numbers([axis])], shape, value.dtype)
            elif isinstance(part, int):
                shape = value.shape[:axis] + value.shape[axis + 1:]
                at = self.library.constant(np.int64(part))
                value = self.library.node("Gather", [value, at], shape, value.dtype, axis=axis)
                continue
            elif part != slice(None):
                shape = value.shape[:axis] + (part.stop,) + value.shape[axis + 1:]
                ends = [self.library.numbers([n]) for n in (0, part.stop, axis)]
                value = self.library.node("Slice", [value, *ends], shape, value.dtype)
            axis += 1
        return value


class Library:
    def __init__(self, has_attention=False):
        self.has_attention, self.nodes, self.constants, self.count = has_attention, [], [], 0

    def node(self, op, inputs, shape, dtype, **attributes):
        self.count += 1
        name = f"v{self.count}"
        self.nodes.append(helper.make_node(op, [one.name for one in inputs], [name], **attributes))
        return Value(self, name, shape, dtype)

    def constant(self, array):
        self.count += 1
        array = np.asarray(array)
        self.constants.append(numpy_helper.from_array(array, f"c{self.count}"))
        names = {np.dtype(np.float32): "f32", np.dtype(np.float16): "f16", np.dtype(np.int64): "i64", np.dtype(bool): "bool"}
        return Value(self, f"c{self.count}", array.shape, names[array.dtype])

    def numbers(self, numbers):
        return self.constant(np.array(numbers, np.int64))

    def array(self, value, dtype):
        if isinstance(value, Value):
            return value
        return self.constant(np.array(value, np.float16 if dtype == "f16" else np.float32))

    def cast(self, x, dtype):
        return x if x.dtype == dtype else self.node("Cast", [x], x.shape, dtype, to=TYPES[dtype])

    def _map(self, op, x, **attributes):
        return self.node(op, [x], x.shape, x.dtype, **attributes)

    def exp(self, x):
        return self._map("Exp", x)

    def log(self, x):
        return self._map("Log", x)

    def sqrt(self, x):
        return self._map("Sqrt", x)

    def abs(self, x):
        return self._map("Abs", x)

    def sigmoid(self, x):
        return self._map("Sigmoid", x)

    def gelu(self, x):
        return self._map("Gelu", x)

    def silu(self, x):
        return x * self.sigmoid(x)

    def softmax(self, x):
        return self._map("Softmax", x, axis=-1)

    def log_softmax(self, x):
        return self._map("LogSoftmax", x, axis=-1)

    def _reduce(self, op, x, axis=-1, keep=False):
        axis %= len(x.shape)
        shape = x.shape[:axis] + ((1,) if keep else ()) + x.shape[axis + 1:]
        return self.node(op, [x, self.numbers([axis])], shape, x.dtype, keepdims=int(keep))

    def sum(self, x, axis=-1, keep=False):
        return self._reduce("ReduceSum", x, axis, keep)

    def mean(self, x, keep=False):
        return self._reduce("ReduceMean", x, -1, keep)

    def max(self, x, keep=False):
        return self._reduce("ReduceMax", x, -1, keep)

    def logsumexp(self, x):
        return self._reduce("ReduceLogSumExp", x)

    def mean_and_variance(self, x):
        mean = self.mean(x, keep=True)
        return mean.reshape(*x.shape[:-1]), self.mean((x - mean) ** 2)

    def layer_norm(self, x, gamma, beta, epsilon):
        return self.node("LayerNormalization", [x, gamma, beta], x.shape, x.dtype, axis=-1, epsilon=epsilon)

    def group_norm(self, x, gamma, beta, epsilon):
        """As exporters write it, without the operator of opset 21."""
        b, g, c, p = x.shape
        ones, zeros = (self.constant(np.full(g, value, np.float32)) for value in (1, 0))
        flat = x.reshape(b, g, c * p)
        y = self.node("InstanceNormalization", [flat, ones, zeros], flat.shape, x.dtype, epsilon=epsilon)
        return y.reshape(b, g, c, p) * gamma[:, :, None] + beta[:, :, None]

    def rms_norm(self, x, gamma, epsilon):
        return x / self.sqrt(self.mean(x ** 2, keep=True) + epsilon) * gamma

    def transpose(self, x):
        order = list(range(len(x.shape)))
        order[-2:] = order[:-3:-1]
        return self.node("Transpose", [x], [x.shape[i] for i in order], x.dtype, perm=order)

    def matmul(self, a, b):
        shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) + (a.shape[-2], b.shape[-1])
        return self.node("MatMul", [a, b], shape, a.dtype)

    def attention(self, q, k, v, causal):
        if self.has_attention:
            return self.node("Attention", [q, k, v], q.shape[:-1] + v.shape[-1:], q.dtype, is_causal=int(causal))
        scores = self.matmul(q, self.transpose(k)) * float(q.shape[-1] ** -0.5)
        if causal:
            is_seen = np.tril(np.ones((q.shape[-2], k.shape[-2]), bool))
            least = np.array(-np.inf, np.float16 if q.dtype == "f16" else np.float32)
            scores = self.node("Where", [self.constant(is_seen), scores, self.constant(least)], scores.shape, scores.dtype)
        return self.matmul(self.softmax(scores), v)

    def topk(self, x, k):
        self.count += 1
        names = [f"best{self.count}", f"at{self.count}"]
        inputs = [x.name, self.numbers([k]).name]
        self.nodes.append(helper.make_node("TopK", inputs, names, axis=-1))
        shape = x.shape[:-1] + (k,)
        return Value(self, names[0], shape, x.dtype), Value(self, names[1], shape, "i64")

    def take(self, x, at):
        return self.node("GatherElements", [x, at], at.shape, x.dtype, axis=-1)

    def keep_groups(self, choice, group):
        zeros = self.constant(np.zeros(choice.shape[:-1], np.float32))
        ones = self.constant(np.ones(group.shape, np.float32))
        keep = self.node("ScatterElements", [zeros, group, ones], choice.shape[:-1], "f32", axis=-1)
        keep = self.node("Cast", [keep[..., None]], choice.shape[:-1] + (1,), "bool", to=TensorProto.BOOL)
        return self.node("Where", [keep, choice, self.constant(np.float32(-np.inf))], choice.shape, choice.dtype)

    def int8(self, x):
        return self.cast(self._map("Round", x), "i8")

    def int_product(self, q, w):
        return self.node("MatMulInteger", [q, w], (q.shape[-2], w.shape[-1]), "i32")

    def cross_entropy(self, x, label):
        return -self.take(self.log_softmax(x), label[:, None])[:, 0]


def make_model(program, inputs, has_attention):
    """The bytes of a model; `inputs` are pairs of shape and type."""
    library = Library(has_attention)
    values = [Value(library, f"x{i}", shape, dtype) for i, (shape, dtype) in enumerate(inputs)]
    outputs = program(library, *values)
    ports = [helper.make_tensor_value_info(one.name, TYPES[one.dtype], one.shape) for one in values]
    results = []
    for i, one in enumerate(outputs):
        library.nodes.append(helper.make_node("Identity", [one.name], [f"y{i}"]))
        results.append(helper.make_tensor_value_info(f"y{i}", TYPES[one.dtype], one.shape))
    graph = helper.make_graph(library.nodes, "program", ports, results, library.constants)
    opset = 23 if has_attention else 20
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10 if opset < 23 else 11)
    onnx.checker.check_model(model)
    return model.SerializeToString()
