# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An ONNX model of any number of nodes: blocks of attention and a feed-forward layer, each behind a norm, as exporters
write them. The file is written field by field, so that it takes no package."""

import struct

FLOAT, INT64, INT, INTS = 1, 7, 2, 7
HEADS, SIZE = 4, 64


def varint(number):
    out = b""
    number &= (1 << 64) - 1
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, payload):
    """One field of a message: a number, or bytes with their length."""
    if isinstance(payload, int):
        return varint(number << 3) + varint(payload)
    payload = payload.encode() if isinstance(payload, str) else payload
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def initializer(name, dims, numbers):
    whole = all(isinstance(n, int) for n in numbers)
    data = struct.pack(f"<{len(numbers)}{'q' if whole else 'f'}", *numbers)
    return b"".join(field(1, d) for d in dims) + field(2, INT64 if whole else FLOAT) + field(8, name) + field(9, data)


def attribute(name, value):
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, INT)
    return field(1, name) + b"".join(field(8, v) for v in value) + field(20, INTS)


def port(name, dims=None):
    shape = b"".join(field(1, field(1, d) if isinstance(d, int) else field(2, d)) for d in dims or [])
    tensor = field(1, FLOAT) + (field(2, shape) if dims else b"")
    return field(1, name) + field(2, field(1, tensor))


class Writer:
    """The nodes so far."""

    def __init__(self):
        self.nodes = []

    def op(self, kind, *inputs, **attributes):
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(b"".join(field(1, i) for i in inputs) + field(2, name) + field(3, name) + field(4, kind)
                          + b"".join(field(5, attribute(k, v)) for k, v in attributes.items()))
        return name

    def norm(self, x):
        mean = self.op("ReduceMean", x, axes=[-1])
        centred = self.op("Sub", x, mean)
        variance = self.op("ReduceMean", self.op("Pow", centred, "two"), axes=[-1])
        scaled = self.op("Div", centred, self.op("Sqrt", self.op("Add", variance, "epsilon")))
        return self.op("Add", self.op("Mul", scaled, "gain"), "offset")

    def linear(self, x, weight, bias):
        return self.op("Add", self.op("MatMul", x, weight), bias)

    def block(self, x):
        y = self.norm(x)
        q, k, v = (self.op("Transpose", self.op("Reshape", self.linear(y, "square", "bias"), "split"), perm=[0, 2, 1, 3])
                   for _ in range(3))
        product = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        shares = self.op("Softmax", self.op("Add", self.op("Mul", product, "quarter"), "mask"), axis=-1)
        joined = self.op("Reshape", self.op("Transpose", self.op("MatMul", shares, v), perm=[0, 2, 1, 3]), "join")
        x = self.op("Add", x, self.linear(joined, "square", "bias"))
        wide = self.linear(self.norm(x), "up", "wide_bias")
        gate = self.op("Add", self.op("Erf", self.op("Div", wide, "root_two")), "one")
        hidden = self.op("Mul", self.op("Mul", wide, gate), "half")
        return self.op("Add", x, self.linear(hidden, "down", "bias"))


def deep_model(nodes):
    """The bytes of a model of at least that many nodes."""
    writer, x = Writer(), "x"
    while len(writer.nodes) < nodes:
        x = writer.block(x)
    row, wide = [0.5] * SIZE, [0.5] * (4 * SIZE)
    tensors = [initializer(name, [], [number]) for name, number in
               {"two": 2.0, "epsilon": 1e-5, "quarter": 0.25, "root_two": 1.4142135, "one": 1.0, "half": 0.5}.items()]
    tensors += [initializer(name, [SIZE], row) for name in ("gain", "offset", "bias")]
    tensors += [initializer("wide_bias", [4 * SIZE], wide), initializer("square", [SIZE, SIZE], row * SIZE),
                initializer("up", [SIZE, 4 * SIZE], wide * SIZE), initializer("down", [4 * SIZE, SIZE], row * 4 * SIZE),
                initializer("split", [4], [0, 0, HEADS, SIZE // HEADS]), initializer("join", [3], [0, 0, SIZE])]
    graph = b"".join(field(1, node) for node in writer.nodes) + field(2, "deep")
    graph += b"".join(field(5, tensor) for tensor in tensors)
    graph += field(11, port("x", ["batch", "length", SIZE])) + field(11, port("mask", ["batch", 1, "length", "length"]))
    graph += field(12, port(x, ["batch", "length", SIZE]))
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 17))
