#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the files under test/Frontend/ONNX/broken, each with what refold must say.

    make_broken.py [FOLDER]

They are kept in the repository; this is how they were made, with the `onnx` package.
"""

import os
import pathlib
import sys

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def value(name, shape, dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs=None, outputs=None, initializers=(), opset=17, domain=""):
    inputs = [value("x", [2, 3])] if inputs is None else inputs
    outputs = [value("y", None)] if outputs is None else outputs
    graph = helper.make_graph(nodes, "broken", inputs, outputs, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, opset)], ir_version=8)


def node(op, inputs, outputs=("y",), **attributes):
    return helper.make_node(op, list(inputs), list(outputs), name=f"the_{op.lower()}", **attributes)


def constant(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def raw(name, dims, size, dtype=FLOAT):
    """A tensor with `size` bytes of raw_data, whatever its dimensions."""
    tensor = TensorProto(name=name, data_type=dtype, raw_data=bytes(size))
    tensor.dims.extend(dims)
    return tensor


def external(**entries):
    tensor = TensorProto(name="w", data_type=FLOAT, data_location=TensorProto.EXTERNAL)
    tensor.dims.extend([3])
    for key, text in entries.items():
        tensor.external_data.add(key=key, value=text)
    return model([node("Add", ["x", "w"])], initializers=[tensor])


def quantise(scale, opset=21, **attributes):
    return model([node("QuantizeLinear", ["x", "s"], **attributes)], initializers=[constant("s", scale)], opset=opset)


def window(op, shape, weights=None, opset=20, outputs=("y",), bias=None, **attributes):
    """A convolution or a pooling of an image `x`; `weights` is the shape of those."""
    arrays = [("w", weights), ("b", bias)]
    initializers = [constant(name, np.ones(dims, np.float32)) for name, dims in arrays if dims]
    names = ["x"] + [one.name for one in initializers]
    return model([node(op, names, outputs, **attributes)], inputs=[value("x", shape)], initializers=initializers, opset=opset)


def resize(shape=(1, 1, 4, 4), scales=(1, 1, 2, 2), sizes=None, **attributes):
    """A Resize by constants."""
    given = np.array(sizes or scales, np.int64 if sizes else np.float32)
    return model([node("Resize", ["x", "", "", "s"] if sizes else ["x", "", "s"], **attributes)], inputs=[value("x", list(shape))],
                 outputs=[value("y", None)], initializers=[constant("s", given)], opset=19)


def sample(shape=(1, 1, 4, 4), places=(1, 2, 2, 2), **attributes):
    """A GridSample of an image."""
    return model([node("GridSample", ["x", "g"], **attributes)], inputs=[value("x", list(shape)), value("g", list(places))],
                 outputs=[value("y", None)], opset=20)


def branches(condition, result="b"):
    """An If between Relu and Abs; `condition` is the argument 'c' or the constant 'yes'."""
    parts = {name: helper.make_graph([node(op, ["x"], ["b"])], name, [], [value(result, None)])
             for name, op in (("then_branch", "Relu"), ("else_branch", "Abs"))}
    return model([node("If", [condition], **parts)], inputs=[value("x", [2, 3]), value("c", [], TensorProto.BOOL)],
                 outputs=[value("y", None)], initializers=[constant("yes", np.array(True))])


def field(number, payload):
    """One length-delimited field, by hand: the package refuses what is too deep."""
    size, length = len(payload), b""
    while size >= 0x80:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + payload


def nested(depth):
    """A graph (6) in an attribute (5) of a node (1) of a graph, and so on; a model's graph is 7."""
    graph = b""
    for _ in range(depth):
        graph = field(1, field(4, b"If") + field(5, field(1, b"then_branch") + field(6, graph)))
    return field(7, graph)


def nested_type(depth):
    """A sequence (4) of elements (1) that are sequences, and so on."""
    kind = b""
    for _ in range(depth):
        kind = field(4, field(1, kind))
    return kind


RELU = node("Relu", ["x"])
GOOD = model([RELU], outputs=[value("y", [2, 3])]).SerializeToString()

# name: (bytes or model, exit code, part of the message)
CASES = {
    "truncated": (GOOD[:-7], 1, "expected at most the"),
    "text": (b"this is no model\n", 1, "broken protobuf at byte"),
    "empty": (b"", 1, "the model has no graph; expected one"),
    "endless_varint": (b"\xff" * 32, 1, "expected a varint of at most 10 bytes"),
    "group": (b"\x3b\x00", 1, "wire type 3; expected 0, 1, 2 or 5"),
    "deep": (nested(80), 5, "has messages nested more than 64 deep; expected fewer"),
    "deep_type": (field(7, field(11, field(2, nested_type(80)))), 5,
                  "has messages nested more than 64 deep; expected fewer"),
    "unknown_operator": (model([node("Sotfmax", ["x"])]), 4,
                         "operator 'Sotfmax' is not known; expected one that 'refold ops' lists; did you mean 'Softmax'?"),
    "later_operator": (model([node("Gelu", ["x"])]), 4, "operator 'Gelu' of opset 17; expected opset 20 or later"),
    "other_domain": (model([node("Relu", ["x"], domain="com.example")]), 4,
                     "operator 'Relu' of domain 'com.example'; expected operators of 'ai.onnx'"),
    "old_opset": (model([RELU], opset=9), 4, "opset 9; expected 13 to 23"),
    "no_opset": (model([RELU], domain="com.example"), 1, "names no opset of the domain 'ai.onnx'"),
    "cycle": (model([node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])], outputs=[value("b", None)]), 1,
              "Add: input 'b' is not defined before it; expected nodes in order, without cycles"),
    "missing_input": (model([node("Add", ["x", "w"])]), 1, "Add: input 'w' is not defined before it"),
    "left_out_input": (model([node("Add", ["x", ""])]), 1, "Add: input 1 is left out; expected a tensor"),
    "too_few_inputs": (model([node("Add", ["x"])]), 1, "Add: 1 inputs; expected 2"),
    "duplicate_name": (model([node("Relu", ["x"]), node("Abs", ["x"])]), 1, "the name 'y' is defined twice"),
    "duplicate_initializer": (model([node("Add", ["x", "w"])],
                                    initializers=[constant("w", np.ones(3, np.float32))] * 2), 1,
                              "the name 'w' is defined twice"),
    "duplicate_input": (model([RELU], inputs=[value("x", [2, 3])] * 2), 1, "the input 'x' is defined twice"),
    "negative_dim": (model([node("Add", ["x", "w"])], initializers=[raw("w", [-3], 12)]), 1,
                     "initializer 'w': a dimension of -3; expected dimensions from 0"),
    "huge_dims": (model([node("Add", ["x", "w"])], initializers=[raw("w", [1 << 40, 1 << 40], 12)]), 5,
                  "whose product fits 64 bits"),
    "short_data": (model([node("Add", ["x", "w"])], initializers=[raw("w", [3], 11)]), 1,
                   "11 bytes of data; expected 12 for 3 elements of type float"),
    "large_short_data": (model([node("Add", ["x", "w"])], initializers=[raw("w", [2000], 7999)]), 1,
                         "7999 bytes of data; expected 8000"),
    "high_rank": (model([node("Add", ["x", "w"])], initializers=[raw("w", [1] * 40, 4)]), 5,
                  "rank 40; expected at most 16"),
    "new_type": (model([node("Add", ["x", "w"])], initializers=[raw("w", [3], 2, 23)]), 4,
                 "elements of type float4e2m1; expected one of float"),
    "huge_input": (model([RELU], inputs=[value("x", [1 << 39, 1 << 39])]), 5, "an element count that fits 2^47"),
    "large_dim": (model([RELU], inputs=[value("x", [1 << 41])]), 5, "'x' has a dimension of 2199023255552; expected 0 to 2^40"),
    "high_rank_input": (model([RELU], inputs=[value("x", [1] * 17)]), 5, "'x' has rank 17; expected at most 16"),
    "high_rank_result": (model([node("Unsqueeze", ["x", "s"])], inputs=[value("x", [1] * 16)],
                               initializers=[constant("s", np.array([0]))]), 5,
                         "result 0 has rank 17; expected at most 16"),
    "large_k": (model([node("TopK", ["x", "k"], ["y", "i"])], inputs=[value("x", [1 << 20])],
                      initializers=[constant("k", np.array([70000]))]), 5, "TopK: K is 70000; expected at most 1024"),
    "large_pad": (model([node("Pad", ["x", "p"])], inputs=[value("x", [2])],
                        initializers=[constant("p", np.array([0, 1 << 41]))]), 5,
                  "Pad: a pad of 0 or 2199023255552; expected at most 2^40"),
    "large_range": (model([node("Range", ["a", "b", "c"])], inputs=[], initializers=[
        constant("a", np.float32(0)), constant("b", np.float32(1e6)), constant("c", np.float32(1))]), 5,
                    "Range: a range of 1000000 floats; expected at most"),
    "endless_range": (model([node("Range", ["a", "b", "c"])], inputs=[], initializers=[
        constant("a", np.float32(0)), constant("b", np.float32(1)), constant("c", np.float32(0))]), 1,
                      "Range: a range of"),
    "cast_string": (model([node("Cast", ["x"], to=8)]), 4, "Cast: a cast to string; expected one of"),
    "cast_undefined": (model([node("Cast", ["x"], to=0)]), 1, "Cast: a cast to undefined; expected one of"),
    "mean_of_integers": (model([node("ReduceMean", ["x"])], inputs=[value("x", [2, 3], INT64)]), 4,
                         "ReduceMean: input 0 is of type int64; expected a float type"),
    "exp_of_integers": (model([node("Exp", ["x"])], inputs=[value("x", [2, 3], INT64)]), 1,
                        "Exp: input 0 is of type int64; expected a float type"),
    "negative_input": (model([RELU], inputs=[value("x", [-2])]), 1, "'x' has a dimension of -2; expected 0 to 2^40"),
    "string_input": (model([RELU], inputs=[value("x", [2], TensorProto.STRING)]), 4,
                     "'x' has elements of type string; expected one of"),
    "no_shape": (model([RELU], inputs=[value("x", None)]), 4, "'x' has no shape; expected one"),
    "huge_result": (model([node("Expand", ["x", "s"])], inputs=[value("x", [1])],
                          initializers=[constant("s", np.array([1 << 40, 1 << 40]))]), 5,
                    "expected an element count that fits 2^47"),
    "inner_extents": (model([node("MatMul", ["x", "x"])]), 1,
                      "MatMul: inner extents 3 and 2; expected equal ones"),
    "broadcast": (model([node("Add", ["x", "w"])], initializers=[constant("w", np.ones(4, np.float32))]), 1,
                  "shapes (2, 3) and (4) do not broadcast; expected equal extents or 1"),
    "mixed_types": (model([node("Add", ["x", "w"])], initializers=[constant("w", np.ones(3, np.int64))]), 1,
                    "input 1 is of type int64; expected float, that of input 0"),
    "axis": (model([node("Softmax", ["x"], axis=2)]), 1, "axis 2 of a tensor of rank 2; expected -2 to 1"),
    "attribute": (model([node("Softmax", ["x"], axes=1)]), 1, "attribute 'axes'; expected one of axis"),
    "attribute_kind": (model([node("Softmax", ["x"], axis=1.0)]), 1,
                       "attribute 'axis' is a float; expected an integer"),
    "perm": (model([node("Transpose", ["x"], perm=[0, 0])]), 1, "perm has 2 entries for rank 2"),
    "reshape": (model([node("Reshape", ["x", "s"])], initializers=[constant("s", np.array([4, -1]))]), 1,
                "has 6 elements; expected a multiple of 4"),
    "reshape_data": (model([node("Reshape", ["x", "s"])], inputs=[value("x", [2, 3]), value("s", [2], INT64)]), 4,
                     "Reshape: the sizes are known only at run time; expected constants or arithmetic on shapes"),
    "gather": (model([node("Gather", ["x", "i"])], initializers=[constant("i", np.array([0, 1, 5]))]), 1,
               "position 5 of a dimension of 2; expected one inside"),
    "split": (model([node("Split", ["x", "s"], ["y", "z"], axis=1)],
                    initializers=[constant("s", np.array([1, 1]))]), 1, "the sizes sum to 2; expected 3"),
    "no_output": (model([RELU], outputs=[]), 1, "the graph has no output; expected at least one"),
    "undefined_output": (model([RELU], outputs=[value("z", [2, 3])]), 1, "the output 'z' is not defined"),
    "output_type": (model([RELU], outputs=[value("y", [2, 3], INT64)]), 1,
                    "the output 'y' is declared as int64; expected float"),
    "output_shape": (model([RELU], outputs=[value("y", [2, 4])]), 1,
                     "the output 'y' is declared with another shape; expected (2, 3)"),
    "blocks": (quantise(np.ones((2, 2), np.float32), block_size=2), 4,
               "QuantizeLinear: block_size is 2 for an extent of 3; expected a divisor"),
    "block_scales": (quantise(np.ones((2, 3), np.float32), block_size=3), 1,
                     "the scale or zero point has shape (2, 3); expected (2, 1), one a block"),
    "scale_of_axis": (quantise(np.ones(4, np.float32)), 1, "has shape (4); expected a scalar or (3), the extent of axis 1"),
    "quantise_to_int16": (quantise(np.float32(1), output_dtype=TensorProto.INT16), 4,
                          "QuantizeLinear: a result of int16; expected uint8, int8, float8e4m3fn or float8e5m2"),
    "zero_point_type": (model([node("DequantizeLinear", ["x", "s", "z"])], inputs=[value("x", [2], TensorProto.INT8)],
                              initializers=[constant("s", np.float32(1)), constant("z", np.uint8(1))]), 1,
                        "the zero point is of type uint8; expected int8, that of input 0"),
    "integer_product": (model([node("MatMulInteger", ["x", "x"])]), 1,
                        "MatMulInteger: input 0 is of type float; expected uint8 or int8"),
    "einsum_letters": (model([node("Einsum", ["x"], equation="ijk->i")]), 1,
                       "the term 'ijk' for an operand of rank 2; expected a letter for each dimension"),
    "einsum_result": (model([node("Einsum", ["x"], equation="ij->ik")]), 1,
                      "'k' in the result 'ik'; expected labels of the operands, each once"),
    "einsum_terms": (model([node("Einsum", ["x"], equation="ij,jk")]), 1,
                     "the equation 'ij,jk' has 2 terms; expected 1, one an input"),
    "einsum_diagonal": (model([node("Einsum", ["x"], equation="ii->i")]), 1, "'i' is 2 and 3; expected equal extents"),
    "einsum_text": (model([node("Einsum", ["x"], equation="i.j->i")]), 1, "'.' in the equation; expected letters"),
    "depth": (model([node("OneHot", ["i", "d", "v"])], inputs=[value("i", [2], INT64), value("d", [], INT64)],
                    initializers=[constant("v", np.array([0.0, 1.0], np.float32))]), 4,
              "OneHot: the depth is known only at run time; expected a constant"),
    "fraction_depth": (model([node("OneHot", ["i", "d", "v"])], inputs=[value("i", [2], INT64)], initializers=[
        constant("d", np.float32(2.5)), constant("v", np.array([0.0, 1.0], np.float32))]), 1,
                       "OneHot: the depth is no whole number; expected one"),
    "labels": (model([node("NegativeLogLikelihoodLoss", ["x", "t"])], inputs=[value("x", [2, 3]), value("t", [3], INT64)]), 1,
               "labels of shape (3) for scores of shape (2, 3); expected the shape of the scores without dimension 1"),
    "heads": (model([node("Attention", ["x", "x", "x"], q_num_heads=2, kv_num_heads=2)], inputs=[value("x", [1, 4, 3])],
                    opset=23), 1, "expected rank 4, or rank 3 and a number of heads that divides the last extent"),
    "past_key": (model([node("Attention", ["x", "x", "x", "", "x"])], inputs=[value("x", [1, 2, 4, 3])], opset=23), 1,
                 "one of past_key and past_value; expected both or none"),
    "scatter": (model([node("ScatterND", ["x", "i", "u"])], inputs=[value("x", [4]), value("i", [2, 1], INT64), value("u", [3])]),
                1, "ScatterND: updates of shape (3); expected (2)"),
    "scatter_tuples": (model([node("ScatterND", ["x", "i", "u"])],
                             inputs=[value("x", [4]), value("i", [2, 2], INT64), value("u", [2])]), 1,
                       "index tuples of shape (2, 2) into rank 1; expected tuples of 1 to rank numbers"),
    "scatter_reduction": (model([node("ScatterND", ["x", "i", "u"], reduction="mean")],
                                inputs=[value("x", [4]), value("i", [2, 1], INT64), value("u", [2])]), 1,
                          "reduction is 'mean'; expected none, add, mul, max or min"),
    "scatter_bool": (model([node("ScatterND", ["x", "i", "u"], reduction="add")], inputs=[
        value("x", [4], TensorProto.BOOL), value("i", [2, 1], INT64), value("u", [2], TensorProto.BOOL)],
                           outputs=[value("y", [4], TensorProto.BOOL)]), 4, "reduction 'add' of bool; expected numbers"),
    "scatter_types": (model([node("ScatterND", ["x", "i", "u"])],
                            inputs=[value("x", [4]), value("i", [2, 1], INT64), value("u", [2], INT64)]), 1,
                      "the updates are of type int64; expected float, that of the data"),
    "scatter_part": (model([node("ScatterElements", ["x", "i", "u"])],
                           inputs=[value("x", [4, 3]), value("i", [2, 2], INT64), value("u", [2, 2])]), 4,
                     "indices of shape (2, 2) into (4, 3); expected all of the data besides the axis"),
    "scatter_shapes": (model([node("ScatterElements", ["x", "i", "u"])],
                             inputs=[value("x", [4, 3]), value("i", [2, 3], INT64), value("u", [1, 3])]), 1,
                       "indices of shape (2, 3) and updates of shape (1, 3); expected one shape of rank 2"),
    "rotary_heads": (model([node("RotaryEmbedding", ["x", "c", "c"], num_heads=2)],
                           inputs=[value("x", [1, 4, 3]), value("c", [1, 4, 1])], opset=23), 1,
                     "expected rank 4, or rank 3 and a number of heads that divides the last extent"),
    "rotary_angles": (model([node("RotaryEmbedding", ["x", "c", "c"])],
                            inputs=[value("x", [1, 2, 4, 6]), value("c", [1, 4, 2])], opset=23), 1,
                      "input 1 has shape (1, 4, 2); expected (1, 4, 3)"),
    "rotary_odd": (model([node("RotaryEmbedding", ["x", "c", "c"], rotary_embedding_dim=5)],
                         inputs=[value("x", [1, 2, 4, 6]), value("c", [1, 4, 2])], opset=23), 1,
                   "pairs of 5 elements of 6; expected an even number, at most all"),
    "recurrence": (model([node("LSTM", ["x", "x", "x"])]), 4,
                   "operator 'LSTM' is not read: each step of it needs the step before; expected one that 'refold ops' lists"),
    "loop": (model([node("Loop", ["x", "x"])]), 4, "operator 'Loop' is not read: it runs a graph a number of times"),
    "data_sizes": (model([node("NonZero", ["x"])]), 4, "operator 'NonZero' is not read: sizes of its results are data"),
    "random": (model([node("RandomNormalLike", ["x"])]), 4, "operator 'RandomNormalLike' is not read: its results are random"),
    "branches": (branches("c"), 4, "If: the condition is known only at run time; expected one that follows from constants and sizes"),
    "no_branch": (model([node("If", ["c"])], inputs=[value("c", [], TensorProto.BOOL)]), 1,
                  "If: a node without a condition that is defined before it and two branches; expected them"),
    "branch_result": (branches("yes", "z"), 1, "If: the result 'z' of a branch is not defined; expected a node that gives it"),
    "resize_mode": (resize(mode="quadratic"), 1, "mode is 'quadratic'; expected nearest, linear or cubic"),
    "resize_rounding": (resize(nearest_mode="round"), 1, "nearest_mode is 'round'; expected round_prefer_floor"),
    "resize_coordinates": (resize(coordinate_transformation_mode="centre"), 1,
                           "coordinate_transformation_mode is 'centre'; expected half_pixel"),
    "resize_crop": (resize(coordinate_transformation_mode="tf_crop_and_resize"), 4,
                    "coordinate_transformation_mode is 'tf_crop_and_resize'; expected half_pixel"),
    "resize_antialias": (resize(mode="linear", antialias=1), 4, "antialias is set; expected 0"),
    "resize_scale": (resize(scales=(1, 1, 0, 1)), 1, "scale 0.000000e+00; expected one above 0, at most 2^20"),
    "resize_scales": (resize(scales=(1, 1)), 1, "scales of shape (2) for 4 axes; expected one an axis"),
    "resize_fraction": (resize(["n", 1, "h", 4], (1, 1, 0.3, 1)), 4,
                        "of an extent of h; expected a fraction of a power of two up to 1024"),
    "resize_neither": (model([node("Resize", ["x"])], opset=18), 1, "neither scales nor sizes; expected one of them"),
    "resize_sizes": (model([node("Resize", ["x", "", "", "s"])], initializers=[constant("s", np.array([2]))], opset=18), 1,
                     "1 sizes for 2 axes; expected one an axis"),
    "resize_empty": (resize([1, 1, 0, 4]), 1, "dimension 2 of input 0 has no elements; expected at least 1"),
    "resize_policy": (resize(sizes=(1, 1, 8, 8), keep_aspect_ratio_policy="larger"), 1,
                      "keep_aspect_ratio_policy is 'larger'; expected stretch, not_larger or not_smaller"),
    "resize_named_policy": (resize([1, 1, "h", 4], sizes=(1, 1, 8, 8), keep_aspect_ratio_policy="not_larger"), 4,
                            "keep_aspect_ratio_policy is 'not_larger' for an extent of h that becomes 8; expected numbers"),
    "grid_rank": (sample([1, 1, 4, 4, 4], [1, 2, 2, 2, 3]), 4, "GridSample: input 0 has rank 5; expected 4"),
    "grid_places": (sample([1, 1, 4, 4], [1, 2, 2, 3]), 1,
                    "places of shape (1, 2, 2, 3) for images of shape (1, 1, 4, 4); expected (images, height, width, 2)"),
    "grid_mode": (sample(mode="quadratic"), 1, "mode is 'quadratic'; expected linear or nearest"),
    "grid_cubic": (sample(mode="cubic"), 4, "mode is 'cubic'; expected linear or nearest"),
    "grid_padding": (sample(padding_mode="ones"), 1, "padding_mode is 'ones'; expected zeros, border or reflection"),
    "grid_empty": (sample([1, 1, 4, 0]), 1, "dimension 3 of input 0 has no elements; expected at least 1"),
    "turned_channels": (window("ConvTranspose", [1, 3, 5, 5], [2, 2, 3, 3]), 1, "3 channels; expected 2, those of the weights"),
    "turned_groups": (window("ConvTranspose", [1, 2, 5, 5], [2, 2, 3, 3], group=3), 1, "group is 3 for 2 channels; expected a divisor"),
    "turned_bias": (window("ConvTranspose", [1, 2, 5, 5], [2, 2, 3, 3], bias=[3]), 1, "the bias has shape (3); expected (2)"),
    "turned_auto": (window("ConvTranspose", [1, 2, 5, 5], [2, 2, 3, 3], auto_pad="FULL"), 1,
                    "auto_pad is 'FULL'; expected NOTSET, VALID, SAME_UPPER or SAME_LOWER"),
    "turned_pads": (window("ConvTranspose", [1, 2, 1, 1], [2, 2, 3, 3], pads=[2, 0, 1, 0]), 1,
                    "pads of 2 and 1 of 3 elements; expected less than all"),
    "turned_shape": (window("ConvTranspose", [1, 2, "h", 5], [2, 2, 3, 3], output_shape=[7, 7]), 4,
                     "output_shape for an extent of h; expected a number"),
    "window_rank": (window("Conv", [1, 2, 3, 3, 3, 3], [2, 2, 1, 1, 1, 1]), 4, "Conv: input 0 has rank 6; expected at most 5"),
    "window_flat": (window("MaxPool", [2, 3], kernel_shape=[1]), 1, "MaxPool: input 0 has rank 2; expected at least 3"),
    "window_weights_rank": (window("Conv", [1, 2, 5, 5], [2, 2, 3]), 1, "input 1 has rank 3; expected 4, that of input 0"),
    "window_weights_dim": (model([node("Conv", ["x", "w"])], inputs=[value("x", [1, 2, 5, 5]), value("w", [2, 2, "k", 3])]), 4,
                           "Conv: the weights have shape (2, 2, k, 3); expected numbers"),
    "window_weights_empty": (window("Conv", [1, 2, 5, 5], [0, 2, 3, 3]), 1, "the weights have an extent of 0; expected at least 1"),
    "window_kernel": (window("Conv", [1, 2, 5, 5], [2, 2, 3, 3], kernel_shape=[3, 1]), 1,
                      "kernel_shape is not that of the weights, (2, 2, 3, 3); expected the same"),
    "window_groups": (window("Conv", [1, 2, 5, 5], [2, 1, 3, 3], group=3), 1, "group is 3 for 2 outputs; expected a divisor"),
    "window_channels": (window("Conv", [1, 3, 5, 5], [2, 2, 3, 3]), 1, "3 channels for 1 groups of 2; expected 2"),
    "window_bias": (window("Conv", [1, 2, 5, 5], [2, 2, 3, 3], bias=[3]), 1, "the bias has shape (3); expected (2)"),
    "window_auto": (window("Conv", [1, 2, 5, 5], [2, 2, 3, 3], auto_pad="FULL"), 1,
                    "auto_pad is 'FULL'; expected NOTSET, VALID, SAME_UPPER or SAME_LOWER"),
    "window_both_pads": (window("Conv", [1, 2, 5, 5], [2, 2, 3, 3], auto_pad="VALID", pads=[1, 0, 0, 0]), 1,
                         "pads beside auto_pad 'VALID'; expected one"),
    "window_strides": (window("Conv", [1, 2, 5, 5], [2, 2, 3, 3], strides=[0, 1]), 1,
                       "attribute 'strides' has 0; expected at least 1"),
    "window_many_strides": (window("Conv", [1, 2, 5, 5], [2, 2, 3, 3], strides=[1]), 1,
                            "attribute 'strides' has 1 numbers; expected 2"),
    "window_large_pads": (window("Conv", [1, 2, 5, 5], [2, 2, 3, 3], pads=[1 << 40, 0, 0, 0]), 5,
                          "attribute 'pads' has 1099511627776; expected at most 16777216"),
    "window_large_strides": (window("Conv", [1, 2, 5, 5], [2, 2, 3, 3], dilations=[(1 << 63) - 1, 1]), 5,
                             "attribute 'dilations' has 9223372036854775807; expected at most 16777216"),
    "window_too_large": (window("Conv", [1, 2, 5, 5], [2, 2, 3, 3], dilations=[3, 1]), 1,
                         "a window of 7 over 5 elements with their padding; expected no more"),
    "window_positions": (window("MaxPool", [1, 2, 5, 5], outputs=("y", "i"), kernel_shape=[3, 3]), 4,
                         "output 1, the positions of the largest elements, is asked for; expected the elements only"),
    "window_no_kernel": (window("AveragePool", [1, 2, 5, 5]), 1, "no attribute 'kernel_shape'; expected one number a spatial dimension"),
    "window_mean": (window("AveragePool", [1, 2, "h", 5], kernel_shape=[3, 3], pads=[1, 1, 1, 1]), 4,
                    "the mean of windows that hang over an extent of h; expected a number"),
    "window_all_pads": (window("AveragePool", [1, 2, 5, 5], kernel_shape=[3, 3], pads=[0, 0, 3, 0]), 1,
                        "attribute 'pads' has 3 for a window of 3; expected less"),
    "window_ceil": (window("MaxPool", [1, 2, 5, 2], kernel_shape=[3, 4], strides=[2, 2], ceil_mode=1), 1,
                    "a window of 4 over 2 elements with their padding; expected no more"),
    "window_no_channels": (window("MaxPool", [1, 0, 4, 4], kernel_shape=[2, 2], pads=[1, 1, 1, 1]), 4,
                           "input 0 has no channels; expected at least 1"),
    "window_integers": (model([node("MaxPool", ["x"], kernel_shape=[3])], inputs=[value("x", [1, 2, 5], TensorProto.INT8)]), 4,
                        "MaxPool: input 0 is of type int8; expected a float type"),
    "external_parent": (external(location="../secret.bin"), 1,
                        "external data at '../secret.bin'; expected a relative path inside the model's folder"),
    "external_absolute": (external(location="/etc/hostname"), 1, "expected a relative path inside the model's folder"),
    "external_link": (external(location="link_out.bin"), 1,
                      "external data at 'link_out.bin' links out of the model's folder; expected a file in it"),
    "external_missing": (external(location="missing.bin"), 1, "expected a file that can be read"),
    "external_range": (external(location="empty.onnx.expect", offset="4096"), 1, "expected them inside the file"),
    "external_number": (external(location="empty.onnx.expect", offset="-1"), 1,
                        "offset '-1' of external data; expected a number"),
    "external_none": (external(), 1, "external data at ''; expected a relative path"),
}


def main():
    here = pathlib.Path(__file__).parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "broken"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (content, code, message) in CASES.items():
        data = content.SerializeToString() if isinstance(content, ModelProto) else content
        (folder / f"{name}.onnx").write_bytes(data)
        (folder / f"{name}.onnx.expect").write_text(f"expect {code}: {message}\n")
    link = folder / "link_out.bin"
    if not link.is_symlink():
        os.symlink("../make_broken.py", link)
    print(f"{len(CASES)} files in {folder}")


if __name__ == "__main__":
    main()
