#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes test/Frontend/ONNX/Inputs/scores.onnx: a product with weights, its scale, a mask and a softmax.

It is kept in the repository; this is how it was made, with the `onnx` package.
"""

import pathlib

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save


def main():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], name="score"),
        helper.make_node("Div", ["product", "root"], ["scaled"], name="scale"),
        helper.make_node("Where", ["keep", "scaled", "lowest"], ["masked"], name="mask"),
        helper.make_node("Softmax", ["masked"], ["y"], name="weights", axis=-1),
    ]
    graph = helper.make_graph(
        nodes, "scores",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["batch", 2]),
         helper.make_tensor_value_info("keep", TensorProto.BOOL, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, ["batch", 3])],
        [numpy_helper.from_array(np.arange(6, dtype=np.float16).reshape(2, 3), "w"),
         numpy_helper.from_array(np.float16(8), "root"),
         numpy_helper.from_array(np.float16(-np.inf), "lowest")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save(model, pathlib.Path(__file__).parent / "Inputs" / "scores.onnx")


if __name__ == "__main__":
    main()
