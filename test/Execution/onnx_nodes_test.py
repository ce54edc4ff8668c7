#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs ONNX's own node tests of every operator that `refold ops` lists through `refold run`.

    onnx_nodes_test.py [--reference] [--only PART]

The cases are the distribution's (libonnx-testdata) and those that the `onnx` package makes, of opsets 13
to 23. REFOLD names the tool. Ends with 'N passed, N failed, N skipped'; a case that asks for what is
refused on purpose passes if it is.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

SKIP = 77
UNSUPPORTED = 4
FOLDER = pathlib.Path("/usr/lib/python3/dist-packages/onnx/backend/test/data/node")
OPSETS = range(13, 24)

# What is refused on purpose, by a part of the name: each must end with the exit code of what is not supported.
REFUSED = [
    ("training", "inference only"),
    ("edge_pad", "constant padding only"),
    ("reflect_pad", "constant padding only"),
    ("window_expanded", "sizes computed from data"),
    ("window_symmetric_expanded", "sizes computed from data"),
    ("center_crop_pad", "sizes computed from data"),
    ("maxpool_2d_uint8", "floats only"),
    ("maxpool_with_argmax", "no positions"),
    ("gridsample_bicubic", "linear and nearest only"),
    ("gridsample_volumetric", "images only"),
    ("antialias", "no filter that grows with the scale"),
    ("tf_crop_and_resize", "no part of an image"),
]

# Cases whose results PyTorch and ONNX Runtime contradict, which take the result's extent as the whole number that it is;
# resampling_test.py has the cases.
CONTRADICTED = {"test_resize_downsample_scales_cubic_align_corners", "test_resize_downsample_scales_linear_align_corners"}

# Operators that later opsets changed in nothing but the types they take.
MORE_TYPES_ONLY = {"DequantizeLinear", "Einsum", "OneHot", "QuantizeLinear"}
# Operators whose cases in these opsets no source has any more.
WITHOUT_CASES = set()

# Inputs that say sizes, axes or counts: constants in a model, inputs in a node test.
SHAPE_INPUTS = {
    "ConstantOfShape": [0], "CumSum": [1], "Dropout": [1, 2], "Expand": [1], "OneHot": [1], "Pad": [1, 2, 3], "Range": [0, 1, 2],
    "Reshape": [1], "Resize": [1, 2, 3], "Slice": [1, 2, 3, 4], "Split": [1], "Squeeze": [1], "Tile": [1], "TopK": [1],
    "Trilu": [1], "Unsqueeze": [1],
}


def says_shape(op, place):
    return place in SHAPE_INPUTS.get(op, []) or (op.startswith("Reduce") and place == 1)


def known_operators(refold):
    """{operator: (first opset, last opset)} as `refold ops` prints them."""
    text = subprocess.run([refold, "ops"], check=True, stdout=subprocess.PIPE).stdout.decode()
    rows = re.findall(r"^(\w+)\s+opset (\d+)(?: to (\d+))?", text, re.MULTILINE)
    return {name: (int(first), int(last or first)) for name, first, last in rows}


def folder_cases():
    """(name, model, inputs, outputs) of the distribution's folder."""
    import onnx

    for folder in sorted(FOLDER.glob("*")):
        data = folder / "test_data_set_0"
        if not (folder / "model.onnx").exists() or not data.exists():
            continue

        def tensors(kind, data=data):
            files = sorted(data.glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.rpartition("_")[2]))
            return [onnx.TensorProto.FromString(p.read_bytes()) for p in files]

        yield folder.name, onnx.load(folder / "model.onnx"), tensors("input"), tensors("output")


def package_cases():
    """The same of the cases that the installed package makes."""
    from onnx import numpy_helper
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        inputs, outputs = case.data_sets[0]
        try:
            yield (case.name, case.model, [numpy_helper.from_array(x) for x in inputs],
                   [numpy_helper.from_array(y) for y in outputs])
        except (TypeError, AttributeError, ValueError):
            continue  # sequences and optionals


def own_cases():
    """What the operators' text leaves open, as ONNX Runtime has it."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    zeros = np.zeros((3, 4), np.float32)
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    graph = helper.make_graph([node], "nothing", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])],
                              [helper.make_tensor_value_info("y", TensorProto.UINT8, [3, 4]),
                               helper.make_tensor_value_info("scale", TensorProto.FLOAT, []),
                               helper.make_tensor_value_info("zero", TensorProto.UINT8, [])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    outputs = [zeros.astype(np.uint8), np.array(1, np.float32), np.array(0, np.uint8)]
    yield ("dynamic_quantize_zeros", model, [numpy_helper.from_array(zeros)],
           [numpy_helper.from_array(output) for output in outputs])


def readable(tensors):
    """As arrays, or None where a type is one that .npz or refold has not."""
    import numpy as np
    from onnx import numpy_helper

    arrays = []
    for tensor in tensors:
        try:
            array = numpy_helper.to_array(tensor)
        except (TypeError, ValueError, KeyError):
            return None
        if array.dtype not in (np.float64, np.float32, np.float16, np.int64, np.int32, np.int8, np.uint8, np.bool_):
            return None
        arrays.append(array)
    return arrays


def means_the_same(op, opset):
    """The nearest opset that is read in which `op` is defined as in `opset`, or None."""
    import onnx.defs

    if opset < OPSETS[0] and onnx.defs.get_schema(op, OPSETS[0]).since_version <= opset:
        return OPSETS[0]
    if opset > OPSETS[-1] and op in MORE_TYPES_ONLY:
        return OPSETS[-1]
    return opset if opset in OPSETS else None


def adopt(model, known):
    """Is it a case for us? Writes the opset that it is then read in."""
    if len(model.opset_import) != 1 or model.opset_import[0].domain or model.functions:
        return False
    if not all(node.domain == "" and node.op_type in known for node in model.graph.node):
        return False
    opsets = {means_the_same(node.op_type, model.opset_import[0].version) for node in model.graph.node}
    if len(opsets) != 1 or None in opsets:
        return False
    model.opset_import[0].version = opsets.pop()
    return all(known[node.op_type][0] <= model.opset_import[0].version for node in model.graph.node)


def prepare(model, tensors, arrays):
    """A copy whose shape inputs are initialisers, and {name: array} of the others."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    fixed = {name for node in copy.graph.node for place, name in enumerate(node.input)
             if says_shape(node.op_type, place)}
    kept, given = [], {}
    for info, tensor, array in zip(list(copy.graph.input), tensors, arrays):
        if info.name in fixed:
            initializer = copy.graph.initializer.add()
            initializer.CopyFrom(tensor)
            initializer.name = info.name
        else:
            kept.append(info)
            given[info.name] = array
    del copy.graph.input[:]
    copy.graph.input.extend(kept)
    return copy, given


def differs(found, wanted):
    """What is wrong with an array, or None."""
    import numpy as np

    if found.shape != wanted.shape:
        return f"found shape {found.shape}, expected {wanted.shape}"
    short = wanted.dtype == np.float16
    close = np.isclose(found.astype(np.float64), wanted.astype(np.float64), rtol=1e-2 if short else 1e-3,
                       atol=1e-3 if short else 1e-6, equal_nan=True)
    if close.all():
        return None
    at = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(~close)))
    return f"found {np.atleast_1d(found)[at]} at {at}, expected {np.atleast_1d(wanted)[at]}"


def run_case(refold, flags, case):
    """(name, what is wrong or None)."""
    import numpy as np

    name, model, tensors, arrays, wanted = case
    with tempfile.TemporaryDirectory() as folder:
        copy, given = prepare(model, tensors, arrays)
        path = pathlib.Path(folder)
        (path / "model.onnx").write_bytes(copy.SerializeToString())
        command = [refold, "run", path / "model.onnx", f"--outputs-to={path / 'out.npz'}", *flags]
        if given:
            np.savez(path / "in.npz", **given)
            command.append(f"--inputs-from={path / 'in.npz'}")
        try:
            done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=120)
        except subprocess.TimeoutExpired:
            return name, "stopped after 120 s"
        if any(part in name for part, _ in REFUSED):
            return name, None if done.returncode == UNSUPPORTED else (
                f"found exit code {done.returncode}, expected {UNSUPPORTED}: it is listed as refused")
        if done.returncode:
            return name, f"exit code {done.returncode}: {done.stdout.decode('utf-8', 'replace').strip()[:300]}"
        with np.load(path / "out.npz") as out:
            for info, expected in zip(model.graph.output, wanted):
                wrong = differs(out[info.name], expected)
                if wrong:
                    return name, f"output '{info.name}': {wrong}"
    return name, None


def collect(known, only):
    """The cases to run."""
    cases, seen = [], set()
    for source in ([folder_cases] if FOLDER.exists() else []) + [package_cases, own_cases]:
        for name, model, inputs, outputs in source():
            if only not in name or name in CONTRADICTED or not adopt(model, known):
                continue
            key = (name, model.opset_import[0].version)
            if key in seen:
                continue
            seen.add(key)
            arrays, wanted = readable(inputs), readable(outputs)
            if arrays is None or wanted is None or len(inputs) != len(model.graph.input):
                continue
            cases.append((name, model, inputs, arrays, wanted))
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference", action="store_true", help="evaluate by definition instead of compiling")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    refold = os.environ.get("REFOLD")
    if not refold:
        print("REFOLD does not name the tool")
        return SKIP
    try:
        import onnx  # noqa: F401
    except ImportError:
        print("the Python package 'onnx' is not installed")
        return SKIP
    known = known_operators(refold)
    cases = collect(known, options.only)
    flags = ["--reference"] if options.reference else []
    failures = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name, wrong in pool.map(lambda case: run_case(refold, flags, case), cases):
            if wrong:
                failures.append(f"{name}: {wrong}")
    covered = {node.op_type for case in cases for node in case[1].graph.node}
    missing = sorted(set(known) - covered - WITHOUT_CASES)
    if missing and not options.only:
        failures.append(f"no case runs {', '.join(missing)}; expected one for every operator that is listed")
    print("\n".join(failures))
    print(f"{len(cases) - len(failures)} passed, {len(failures)} failed, 0 skipped")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
