#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One peer in a process of its own, in its own environment: a JSON object a line in, one a line out.

    worker.py torch|inductor|onnxruntime|openvino|jax

    {"do": "load", "program": NAME or "model": FILE, "inputs": [FILE.npy], "dtypes": [...], "threads": N}
        -> {"version", "compile_ms"}
    {"do": "check", "expected": FILE.npz, "dtype": ...} -> {"error": worst over outputs, "is_right"}
    {"do": "run", "runs": N}               -> {"ms": [...], "thread_ms", "faults"}

What fails is answered with {"problem": text}. Outputs are written into arrays that are kept where the peer allows it;
the harness asks malloc to give back nothing to the system, so that the others find their pages mapped as well;
"faults" says how many pages a run had to be given all the same.
"""

import json
import os
import resource
import sys
import time

import ml_dtypes
import numpy as np

from programs import PROGRAMS

#: What an answer may differ by, against the largest of its row.
TOLERANCE = {"f64": 1e-3, "f32": 1e-3, "f16": 1e-2, "bf16": 2e-2, "i8": 1.01 / 127}
#: Of all positions: two elements that rounding makes equal may change places.
MISPLACED = 1e-3


def load_array(path):
    array = np.load(path)
    return array.view(ml_dtypes.bfloat16) if array.dtype == np.dtype("V2") else array


def difference(found, expected, dtype):
    """(error, whether it is small enough) of one output; `dtype` is the type of the program's floats."""
    found = np.asarray(found)
    if found.shape != expected.shape:
        found = found.reshape(expected.shape)
    if expected.dtype in (np.int32, np.int64):
        part = float(np.mean(found != expected))
        return part, part <= MISPLACED
    kind = "i8" if expected.dtype == np.int8 else dtype
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    if expected.ndim == 0:
        found, expected = found[None], expected[None]
    largest = np.max(np.abs(expected), -1, keepdims=True) if expected.ndim > 1 else np.max(np.abs(expected))
    error = float(np.max(np.abs(found - expected) / np.maximum(largest, 1e-30))) if found.size else 0.0
    return error, error <= TOLERANCE[kind]


class Torch:
    def __init__(self):
        import torch
        import torch_library
        self.torch, self.library, self.version = torch, torch_library, torch.__version__

    def load(self, program, arrays, dtypes, threads):
        self.torch.set_num_threads(threads)
        function = PROGRAMS[program]
        self.inputs = [self.tensor(one) for one in arrays]
        self.call = lambda *inputs: function(self.library, *inputs)

    def tensor(self, array):
        if array.dtype == ml_dtypes.bfloat16:
            return self.torch.from_numpy(array.view(np.int16)).view(self.torch.bfloat16)
        return self.torch.from_numpy(array)

    def run(self):
        with self.torch.inference_mode():
            self.outputs = self.call(*self.inputs)

    def results(self):
        return [(one.float() if one.dtype == self.torch.bfloat16 else one).numpy() for one in self.outputs]


class Inductor(Torch):
    def load(self, program, arrays, dtypes, threads):
        super().load(program, arrays, dtypes, threads)
        self.torch._dynamo.reset()
        self.call = self.torch.compile(self.call)


class OnnxRuntime:
    def __init__(self):
        import onnxruntime
        self.runtime, self.version = onnxruntime, onnxruntime.__version__

    def load(self, program, arrays, dtypes, threads):
        from onnx_library import make_model
        if "bf16" in dtypes:
            raise TypeError("has no bf16 on CPUs")
        ports = [(one.shape, dtype) for one, dtype in zip(arrays, dtypes)]
        names = {f"x{i}": array for i, array in enumerate(arrays)}
        self.best_of([make_model(PROGRAMS[program], ports, has) for has in self.forms(program)], names, threads)

    @staticmethod
    def forms(program):
        return (False, True) if program in ("attention", "attention_causal") else (False,)

    def load_model(self, path, arrays, threads):
        self.best_of([path], arrays, threads)

    def best_of(self, models, arrays, threads):
        """The faster of the forms of a program."""
        found = []
        for model in models:
            self.open(model, arrays, threads)
            times = []
            for _ in range(3 if len(models) > 1 else 1):
                begin = time.perf_counter()
                self.run()
                times.append(time.perf_counter() - begin)
            found.append((min(times), self.binding, self.session))
        _, self.binding, self.session = min(found, key=lambda one: one[0])

    def open(self, model, arrays, threads):
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self.session = self.runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.kept = [self.runtime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(one)) for one in arrays.values()]
        self.binding = self.session.io_binding()
        wanted = {one.name for one in self.session.get_inputs()}
        for name, value in zip(arrays, self.kept):
            if name in wanted:
                self.binding.bind_ortvalue_input(name, value)
        for output in self.session.get_outputs():
            self.binding.bind_output(output.name, "cpu")
        self.run()
        for output, value in zip(self.session.get_outputs(), self.binding.get_outputs()):
            self.binding.bind_ortvalue_output(output.name, value)

    def run(self):
        self.session.run_with_iobinding(self.binding)

    def results(self):
        return [one.numpy() for one in self.binding.get_outputs()]


class OpenVino:
    def __init__(self):
        import openvino
        self.openvino, self.version = openvino, openvino.__version__.split("-")[0]

    def load(self, program, arrays, dtypes, threads):
        from onnx_library import make_model
        is_narrow = "bf16" in dtypes
        ports = [(one.shape, "f32" if dtype == "bf16" else dtype) for one, dtype in zip(arrays, dtypes)]
        model = self.openvino.Core().read_model(make_model(PROGRAMS[program], ports, has_attention=False))
        if is_narrow:
            steps = self.openvino.preprocess.PrePostProcessor(model)
            for i, dtype in enumerate(dtypes):
                if dtype == "bf16":
                    steps.input(i).tensor().set_element_type(self.openvino.Type.bf16)
            model = steps.build()
        self.open(model, dict(zip((f"x{i}" for i in range(len(arrays))), arrays)), threads, "bf16" if is_narrow else "f32")

    def load_model(self, path, arrays, threads):
        model = self.openvino.Core().read_model(path)
        model.reshape({name: list(one.shape) for name, one in arrays.items()})
        self.open(model, arrays, threads, "f32")

    def open(self, model, arrays, threads, precision):
        options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
        compiled = self.openvino.Core().compile_model(model, "CPU", options)
        self.request = compiled.create_infer_request()
        self.kept = []
        for port in compiled.inputs:
            array = arrays[port.any_name]
            if array.dtype == ml_dtypes.bfloat16:
                tensor = self.openvino.Tensor(self.openvino.Type.bf16, array.shape)
                tensor.data.view(np.uint16)[...] = array.view(np.uint16)
            else:
                tensor = self.openvino.Tensor(np.ascontiguousarray(array), shared_memory=True)
            self.kept.append(tensor)
            self.request.set_tensor(port, tensor)
        self.count = len(compiled.outputs)

    def run(self):
        self.request.infer()

    def results(self):
        return [self.request.get_output_tensor(i).data for i in range(self.count)]


class Jax:
    def __init__(self):
        import jax
        import jax_library
        jax.config.update("jax_enable_x64", True)  # for labels of 64 bits; floats keep their type
        self.jax, self.library, self.version = jax, jax_library, jax.__version__

    def load(self, program, arrays, dtypes, threads):
        function = PROGRAMS[program]
        self.inputs = [self.jax.device_put(one) for one in arrays]
        self.call = self.jax.jit(lambda *inputs: function(self.library, *inputs)).lower(*self.inputs).compile()

    def run(self):
        self.outputs = self.jax.block_until_ready(self.call(*self.inputs))

    def results(self):
        return [np.asarray(one) for one in self.outputs]


PEERS = {"torch": Torch, "inductor": Inductor, "onnxruntime": OnnxRuntime, "openvino": OpenVino, "jax": Jax}


def thread_clocks():
    """CPU seconds of every thread of this process; Linux numbers their clocks so."""
    clocks = {}
    for name in os.listdir("/proc/self/task"):
        try:
            clocks[name] = time.clock_gettime((~int(name) << 3) | 6)
        except OSError:
            pass  # it has ended meanwhile
    return clocks


def timed(peer, runs):
    before, faults = thread_clocks(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        peer.run()
        times.append(1e3 * (time.perf_counter() - begin))
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    spent = max(clock - before.get(name, 0.0) for name, clock in thread_clocks().items())
    return {"ms": times, "thread_ms": 1e3 * spent / runs, "faults": faults / runs}


def answer(peer, request):
    if request["do"] == "load":
        arrays = [load_array(path) for path in request["inputs"]]
        begin = time.perf_counter()
        if "model" in request:
            peer.load_model(request["model"], dict(zip(request["names"], arrays)), request["threads"])
        else:
            peer.load(request["program"], arrays, request["dtypes"], request["threads"])
        peer.run()
        return {"version": peer.version, "compile_ms": 1e3 * (time.perf_counter() - begin)}
    if request["do"] == "check":
        with np.load(request["expected"]) as expected:
            arrays = {name: expected[name] for name in expected.files}
            arrays = {name: one.view(ml_dtypes.bfloat16) if one.dtype == np.dtype("V2") else one for name, one in arrays.items()}
            found = [difference(one, arrays[name], request["dtype"]) for one, name in zip(peer.results(), arrays)]
        return {"error": max(error for error, _ in found), "is_right": all(is_right for _, is_right in found)}
    return timed(peer, request["runs"])


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in PEERS:
        sys.exit(__doc__)
    # What libraries print must not come between answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer = PEERS[sys.argv[1]]()
    for line in sys.stdin:
        try:
            reply = answer(peer, json.loads(line))
        except Exception as error:  # of somebody else's compiler: said, and the next workload may do
            text = str(error).strip().splitlines() or [""]
            reply = {"problem": f"{type(error).__name__}: {text[0][:200]}"}
        print(json.dumps(reply), file=out, flush=True)


if __name__ == "__main__":
    main()
