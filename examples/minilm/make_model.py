#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes all-MiniLM-L6-v2 as one ONNX file, from the weights alone.

    make_model.py minilm.onnx [--dtype f16]

Inputs `input_ids` and `attention_mask` (int64, batch x length, both symbolic),
output `embedding` (batch x 384): the BERT encoder, the mean of the tokens that the
mask keeps, scaled to length one. Opset 17; no torch.
"""

import argparse

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import weights

MASKED = np.finfo(np.float32).min  # what transformers adds where the mask is 0


class Graph:
    """Collects nodes and initialisers; a method call adds one node."""

    def __init__(self, dtype):
        self.dtype = dtype
        self.nodes = []
        self.initializers = []
        self.scope = ""

    def add(self, op, *inputs, name, outputs=1, **attributes):
        base = f"{self.scope}{name}"
        names = [base] if outputs == 1 else [f"{base}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=base, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, name, value):
        """An initialiser, once a name; floats are stored as the graph's type."""
        value = np.asarray(value)
        if value.dtype == np.float32:
            value = value.astype(self.dtype)
        if all(known.name != name for known in self.initializers):
            self.initializers.append(numpy_helper.from_array(np.array(value, order="C"), name))
        return name


class Encoder:
    """BERT as config.json describes it."""

    def __init__(self, graph, tensors, config):
        self.g, self.tensors = graph, tensors
        self.layers = config["num_hidden_layers"]
        self.heads = config["num_attention_heads"]
        self.width = config["hidden_size"]
        self.epsilon = config["layer_norm_eps"]

    def linear(self, x, weight, name):
        """x W^T + b. The weight is stored transposed, as MatMul reads it."""
        w = self.g.constant(f"{weight}.weight", self.tensors[f"{weight}.weight"].T)
        b = self.g.constant(f"{weight}.bias", self.tensors[f"{weight}.bias"])
        product = self.g.add("MatMul", x, w, name=f"{name}.product")
        return self.g.add("Add", product, b, name=name)

    def norm(self, x, weight, name):
        scale = self.g.constant(f"{weight}.weight", self.tensors[f"{weight}.weight"])
        bias = self.g.constant(f"{weight}.bias", self.tensors[f"{weight}.bias"])
        return self.g.add("LayerNormalization", x, scale, bias, name=name, axis=-1,
                          epsilon=self.epsilon)

    def embed(self, ids):
        """Word, position and segment rows (segment 0 throughout), summed, normalised."""
        g, prefix = self.g, "embeddings"
        words = g.constant(f"{prefix}.word_embeddings.weight",
                           self.tensors[f"{prefix}.word_embeddings.weight"])
        places = g.constant(f"{prefix}.position_embeddings.weight",
                            self.tensors[f"{prefix}.position_embeddings.weight"])
        segment = g.constant(f"{prefix}.segment",
                             self.tensors[f"{prefix}.token_type_embeddings.weight"][0])
        word = g.add("Gather", words, ids, name="word", axis=0)
        shape = g.add("Shape", ids, name="shape")
        length = g.add("Gather", shape, g.constant("one", np.int64(1)), name="length", axis=0)
        end = g.add("Unsqueeze", length, g.constant("axis0", np.array([0])), name="end")
        place = g.add("Slice", places, g.constant("axis0", np.array([0])), end,
                      g.constant("axis0", np.array([0])), name="place")
        total = g.add("Add", g.add("Add", word, segment, name="word_segment"), place, name="sum")
        return self.norm(total, f"{prefix}.LayerNorm", "norm")

    def split_heads(self, x, name):
        """(batch, length, width) to (batch, heads, length, width / heads)."""
        shape = self.g.constant("head_shape", np.array([0, 0, self.heads, self.width // self.heads]))
        apart = self.g.add("Reshape", x, shape, name=f"{name}.apart")
        return self.g.add("Transpose", apart, name=name, perm=[0, 2, 1, 3])

    def attention(self, x, bias, weight):
        g = self.g
        q, k, v = (self.split_heads(self.linear(x, f"{weight}.self.{part}", part), f"{part}.heads")
                   for part in ("query", "key", "value"))
        kt = g.add("Transpose", k, name="key.turned", perm=[0, 1, 3, 2])
        root = g.constant("scale", np.float32((self.width // self.heads) ** 0.5))
        scores = g.add("Div", g.add("MatMul", q, kt, name="scores"), root, name="scaled")
        weights_ = g.add("Softmax", g.add("Add", scores, bias, name="masked"), name="softmax", axis=-1)
        heads = g.add("MatMul", weights_, v, name="context.heads")
        turned = g.add("Transpose", heads, name="context.turned", perm=[0, 2, 1, 3])
        joined = g.add("Reshape", turned, g.constant("join_shape", np.array([0, 0, self.width])),
                       name="context")
        return self.linear(joined, f"{weight}.output.dense", "attention")

    def gelu(self, x):
        g = self.g
        scaled = g.add("Div", x, g.constant("sqrt2", np.float32(2**0.5)), name="gelu.scaled")
        erf = g.add("Add", g.add("Erf", scaled, name="gelu.erf"), g.constant("one_f", np.float32(1)),
                    name="gelu.plus")
        return g.add("Mul", g.add("Mul", x, erf, name="gelu.product"),
                     g.constant("half", np.float32(0.5)), name="gelu")

    def layer(self, x, bias, weight):
        attention = self.attention(x, bias, f"{weight}.attention")
        x = self.norm(self.g.add("Add", attention, x, name="attention.residual"),
                      f"{weight}.attention.output.LayerNorm", "attention.norm")
        hidden = self.gelu(self.linear(x, f"{weight}.intermediate.dense", "hidden"))
        out = self.linear(hidden, f"{weight}.output.dense", "output")
        return self.norm(self.g.add("Add", out, x, name="output.residual"),
                         f"{weight}.output.LayerNorm", "output.norm")

    def mask_bias(self, mask):
        """0 where a token counts, the least float where it does not: (batch, 1, 1, length)."""
        g = self.g
        wide = g.add("Unsqueeze", mask, g.constant("axes12", np.array([1, 2])), name="mask.wide")
        keep = g.add("Cast", wide, name="mask.keep", to=numpy_type(g.dtype))
        drop = g.add("Sub", g.constant("one_f", np.float32(1)), keep, name="mask.drop")
        lowest = np.float32(MASKED if g.dtype == np.float32 else np.finfo(np.float16).min)
        return g.add("Mul", drop, g.constant("lowest", lowest), name="mask.bias")

    def pool(self, x, mask):
        """The mean over kept tokens, then scaled to length one."""
        g = self.g
        axis1, axis2 = (g.constant(f"axis{a}", np.array([a])) for a in (1, 2))
        keep = g.add("Cast", g.add("Unsqueeze", mask, axis2, name="pool.wide"), name="pool.keep",
                     to=numpy_type(g.dtype))
        total = g.add("ReduceSum", g.add("Mul", x, keep, name="pool.kept"), axis1,
                      name="pool.sum", keepdims=0)
        count = g.add("ReduceSum", keep, axis1, name="pool.count", keepdims=0)
        mean = g.add("Div", total, g.add("Max", count, g.constant("tiny", np.float32(1e-9)),
                                         name="pool.least"), name="pool.mean")
        length = g.add("ReduceL2", mean, name="pool.length", axes=[1], keepdims=1)
        return g.add("Div", mean, g.add("Max", length, g.constant("tiny12", np.float32(1e-12)),
                                        name="pool.long"), name="pool.unit")

    def build(self, ids, mask):
        g = self.g
        g.scope = "embeddings/"
        x = self.embed(ids)
        bias = self.mask_bias(mask)
        for index in range(self.layers):
            g.scope = f"layer{index}/"
            x = self.layer(x, bias, f"encoder.layer.{index}")
        g.scope = ""
        return self.pool(x, mask)


def numpy_type(dtype):
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def make_model(tensors, config, dtype=np.float32):
    graph = Graph(dtype)
    result = Encoder(graph, tensors, config).build("input_ids", "attention_mask")
    graph.add("Identity", result, name="embedding")
    axes = ["batch", "length"]
    proto = helper.make_graph(
        graph.nodes, "minilm",
        [helper.make_tensor_value_info(name, TensorProto.INT64, axes)
         for name in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info("embedding", numpy_type(dtype),
                                       ["batch", config["hidden_size"]])],
        graph.initializers)
    # IR version 8 is what opset 17 came with: older readers take the file.
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", help="the .onnx file to write")
    parser.add_argument("--dtype", choices=["f32", "f16"], default="f32", help="type of the weights")
    options = parser.parse_args()
    dtype = np.float16 if options.dtype == "f16" else np.float32
    tensors = weights.read_safetensors(weights.model_folder() / "model.safetensors")
    model = make_model(tensors, weights.config(), dtype)
    onnx.save(model, options.output)
    print(f"{options.output}: {len(model.graph.node)} nodes, "
          f"{sum(len(t.raw_data) for t in model.graph.initializer) / 2**20:.1f} MiB of weights")


if __name__ == "__main__":
    main()
